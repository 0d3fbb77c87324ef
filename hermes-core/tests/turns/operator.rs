//! What a person decides about inputs.

use std::sync::Arc;

use hermes_core::{Decision, EndReason, Engine, UnknownCall};
use hermes_providers::Script;
use hermes_store::{
    AdmissionId, AdmissionOutcome, AdmissionStatus, ClaimOutcome, ClaimPolicy, ClaimRequest, Generation,
    LeaseStore as _, OwnerId, Receipt, StoreError, TurnId,
};
use hermes_tools::ReplaySafety;
use hermes_tools::scripted::LedgerEvent;

use crate::support::{World, ask, calls, model, submission};

/// A world in which a process died in a call, and its turn was given up as unknown, with an input that waits behind it.
async fn lost() -> (World, Receipt, Receipt) {
    let world = World::new();
    let tool = world.tool().replay(ReplaySafety::Once).hanging(true);
    let first = Engine::new(world.parts_with("first", model([calls("c1")]), tool, Arc::new(world.store.clone())));
    let begun = first.submit(submission(None, "one", "transfer it")).await.unwrap().receipt().clone();
    let waits = first.submit(submission(Some(&begun.conversation), "two", "and then")).await.unwrap().receipt().clone();
    let in_the_call = async {
        while !world.ledger.events().iter().any(|event| matches!(event, LedgerEvent::Began(_))) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = first.run_until(&begun.conversation, &begun.admission) => panic!("it ended"),
        () = in_the_call => {}
    }
    drop(first);
    world.dead.0.lock().unwrap().push("first".to_owned());
    let claim = ClaimRequest {
        conversation: begun.conversation.clone(),
        owner: OwnerId::parse("finder").unwrap(),
        turn: TurnId::parse("finder-turn").unwrap(),
        ttl_ms: 60_000,
        policy: ClaimPolicy::Any,
    };
    let ClaimOutcome::Recover { fence, open } = world.store.claim(claim).await.unwrap() else {
        panic!("not left open")
    };
    world.store.lose_turn(&fence, &open.id).await.unwrap();
    world.store.release(&fence).await.unwrap();
    (world, begun, waits)
}

#[tokio::test]
async fn i06_s13_a_person_sees_what_is_unknown_and_decides_about_exactly_that_start() {
    let (world, begun, waits) = lost().await;
    let engine = world.engine("second", model([Script::text("went on")]));
    let found = engine.unknown(&begun.conversation).await.unwrap();
    let [unknown] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((unknown.text.as_str(), &unknown.admission), ("transfer it", &begun.admission));
    assert_eq!(unknown.calls, [UnknownCall { name: "act".into(), arguments: "{}".into(), was_begun: true }]);
    // It blocks what stands behind it, and a decision about another start decides nothing.
    assert_eq!(engine.drain(&begun.conversation).await.unwrap(), None);
    let other = Generation(unknown.generation.0 + 1);
    let refused = engine.resolve(&unknown.admission, other, Decision::Done).await.unwrap_err();
    assert_eq!(refused.code(), StoreError::Invalid { detail: String::new() }.code());
    assert_eq!(engine.unknown(&begun.conversation).await.unwrap(), found);
    let receipt = engine.resolve(&unknown.admission, unknown.generation, Decision::Done).await.unwrap();
    assert_eq!((receipt.status, receipt.outcome), (AdmissionStatus::Terminal, Some(AdmissionOutcome::Completed)));
    assert!(engine.unknown(&begun.conversation).await.unwrap().is_empty());
    let result = engine.run_until(&begun.conversation, &waits.admission).await.unwrap();
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "went on"));
}

#[tokio::test]
async fn an_input_that_waits_is_taken_back_and_one_that_was_begun_is_not() {
    let (world, begun, waits) = lost().await;
    let engine = world.engine("second", model([Script::text("after")]));
    assert!(engine.cancel(&begun.admission).await.is_err(), "it was begun");
    let taken = engine.cancel(&waits.admission).await.unwrap();
    assert_eq!((taken.status, taken.outcome), (AdmissionStatus::Terminal, Some(AdmissionOutcome::Cancelled)));
    assert!(engine.cancel(&AdmissionId::parse("nobody").unwrap()).await.is_err());
    let generation = engine.unknown(&begun.conversation).await.unwrap()[0].generation;
    engine.resolve(&begun.admission, generation, Decision::GivenUp).await.unwrap();
    assert_eq!(engine.drain(&begun.conversation).await.unwrap(), None, "nothing is left to do");
    assert_eq!(ask(&engine, Some(&begun.conversation), "go on").await.answer, "after");
}
