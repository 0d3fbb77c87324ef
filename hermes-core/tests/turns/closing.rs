//! The end of an engine in order: what is accepted, begun, stopped and left meanwhile.

use hermes_core::{EndReason, Engine, EventKind};
use hermes_providers::Script;
use hermes_store::{AdmissionOutcome, AdmissionStatus, AdmissionStore as _, AdmitOutcome, SessionStore as _};

use crate::support::{RoundsModel, World, model, submission};

/// Ends when a turn has sent its request.
async fn requested(world: &World) {
    while !world.events.all().iter().any(|e| matches!(e.kind, EventKind::RequestStarted { .. })) {
        tokio::task::yield_now().await;
    }
}

fn code(result: Result<AdmitOutcome, hermes_core::EngineError>) -> &'static str {
    result.unwrap_err().code()
}

#[tokio::test]
async fn s17_an_engine_that_ends_refuses_new_inputs_and_repeats_old_receipts() {
    let world = World::new();
    let engine = world.engine("old", RoundsModel::new(1, 1));
    let first = engine.submit(submission(None, "r1", "go")).await.unwrap().receipt().clone();
    let conversation = Some(&first.conversation);
    for ended in [false, true] {
        match ended {
            false => assert!(engine.wind_down(0).await),
            true => engine.shutdown().await,
        }
        assert_eq!(code(engine.submit(submission(None, "r2", "go")).await), "HM1022");
        assert_eq!(code(engine.submit(submission(conversation, "r2", "go")).await), "HM1022");
        assert_eq!(code(engine.submit(submission(conversation, "r1", "stop")).await), "HM1002");
        let again = engine.submit(submission(conversation, "r1", "go")).await.unwrap();
        assert_eq!(again, AdmitOutcome::Replayed(first.clone()));
        // It begins nothing either: the input stays in the queue.
        let result = engine.run_until(&first.conversation, &first.admission).await.unwrap();
        assert_eq!((result.reason, result.turn), (EndReason::StoppedByShutdown, None));
        assert_eq!(engine.drain(&first.conversation).await.unwrap().map(|result| result.reason), None);
    }
    assert_eq!(world.store.queue(&first.conversation).await.unwrap().len(), 1);
    let next = world.engine("new", RoundsModel::new(1, 1));
    let result = next.run_until(&first.conversation, &first.admission).await.unwrap();
    assert_eq!(result.reason, EndReason::Answered);
}

#[tokio::test]
async fn s17_a_turn_that_ends_within_the_patience_is_not_stopped() {
    let world = World::new();
    let engine = world.engine("old", RoundsModel::new(3, 1));
    let receipt = engine.submit(submission(None, "r1", "go")).await.unwrap().receipt().clone();
    let end = async {
        requested(&world).await;
        engine.wind_down(u64::from(u32::MAX)).await
    };
    let (result, is_over) = tokio::join!(engine.run_until(&receipt.conversation, &receipt.admission), end);
    assert_eq!(result.unwrap().reason, EndReason::Answered);
    assert!(is_over);
}

#[tokio::test]
async fn s17_a_turn_that_outlasts_the_patience_settles_and_what_is_queued_waits_for_another() {
    let world = World::new();
    let old = Engine::new(world.parts("old", model([Script::hang_at_head()])));
    let first = old.submit(submission(None, "r1", "go")).await.unwrap().receipt().clone();
    let conversation = &first.conversation;
    let second = old.submit(submission(Some(conversation), "r2", "more")).await.unwrap().receipt().clone();
    let end = async {
        requested(&world).await;
        let is_over = old.wind_down(100).await;
        old.shutdown().await;
        is_over
    };
    let (result, is_over) = tokio::join!(old.drain(conversation), end);
    assert_eq!(result.unwrap().unwrap().reason, EndReason::StoppedByShutdown);
    assert!(is_over);
    let record = world.store.admission(&first.admission).await.unwrap();
    assert_eq!(record.receipt.outcome, Some(AdmissionOutcome::Interrupted));
    let record = world.store.admission(&second.admission).await.unwrap();
    assert_eq!(record.receipt.status, AdmissionStatus::Queued);
    let next = world.engine("new", RoundsModel::new(1, 1));
    let result = next.run_until(conversation, &second.admission).await.unwrap();
    assert_eq!(result.reason, EndReason::Answered);
}
