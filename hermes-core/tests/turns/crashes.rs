//! The program dies at every write of a turn, before it and after it; the next owner goes on.

use std::collections::HashSet;
use std::sync::Arc;

use hermes_core::testing::{Fault, FaultStore};
use hermes_core::{EndReason, Engine, TurnResult};
use hermes_store::{
    AdmissionOutcome, AdmissionStatus, AdmissionStore as _, CallOutcome, ConversationId, MessageKind, NewConversation,
    Role, SessionStore as _, View,
};
use hermes_tools::ReplaySafety;

use crate::support::{RoundsModel, World, check_prefix, short, submission};

pub async fn create(world: &World) -> ConversationId {
    use hermes_store::{AdmissionId, Intent, LeaseStore as _, NewAdmission, OwnerId};
    // A conversation that exists, so that a client may repeat its request whatever became of the first attempt.
    let id = ConversationId::parse("conv").unwrap();
    let conversation = NewConversation { id: id.clone(), profile: "test".into(), source: "test".into(), title: None };
    let owner = OwnerId::parse("setup").unwrap();
    let admission = NewAdmission {
        id: AdmissionId::parse("setup").unwrap(),
        conversation: id.clone(),
        principal: "setup".into(),
        request_id: "setup".into(),
        intent: Intent::Queue,
        payload: "{\"text\":\"x\"}".into(),
        submitted_by: owner.clone(),
    };
    world.store.create_and_admit(conversation, admission.clone()).await.unwrap();
    world.store.cancel(&admission.id).await.unwrap();
    world.store.retire(&owner).await.unwrap();
    id
}

/// Runs one input on an engine whose process dies at write `at`; false when the turn ended before.
async fn run_and_die(world: &World, conversation: &ConversationId, tool: ReplaySafety, fault: Fault, at: i64) -> bool {
    let model = RoundsModel::new(2, 2);
    let store = FaultStore::new(Arc::new(world.store.clone()), fault, at);
    let engine = Engine::new(world.parts_with("first", model, world.tool().replay(tool), store.clone()));
    let work = async {
        let receipt = engine.submit(submission(Some(conversation), "request-1", "go")).await?.receipt().clone();
        engine.run_until(conversation, &receipt.admission).await
    };
    tokio::select! {
        result = work => { result.unwrap(); false }
        () = store.died() => true,
    }
}

/// What the user does after a crash: the same request again, to a new process.
async fn run_again(world: &World, conversation: &ConversationId, tool: ReplaySafety, name: &str) -> TurnResult {
    world.dead.0.lock().unwrap().push("first".to_owned());
    let model = RoundsModel::new(2, 2);
    let engine =
        Engine::new(world.parts_with(name, model.clone(), world.tool().replay(tool), Arc::new(world.store.clone())));
    let receipt = engine.submit(submission(Some(conversation), "request-1", "go")).await.unwrap().receipt().clone();
    let result = engine.run_until(conversation, &receipt.admission).await.unwrap();
    let requests = model.requests.lock().unwrap();
    for pair in requests.windows(2) {
        check_prefix(&pair[0], &pair[1]);
    }
    result
}

async fn check(world: &World, conversation: &ConversationId, result: &TurnResult, what: &str) {
    let rows = world.rows(conversation, View::Display).await;
    let text = short(&rows);
    assert_eq!(result.reason, EndReason::Answered, "{what}: {text:?}");
    assert_eq!(result.answer, "done", "{what}");
    let record = world.store.admission(&result.admission).await.unwrap();
    assert_eq!(record.receipt.status, AdmissionStatus::Terminal, "{what}");
    assert_eq!(record.receipt.outcome, Some(AdmissionOutcome::Completed), "{what}");
    assert!(world.store.queue(conversation).await.unwrap().is_empty(), "{what}");
    // One input, two rounds of two calls, one answer: nothing twice, nothing lost.
    let users = rows.iter().filter(|row| row.role == Role::User).count();
    let answers = rows.iter().filter(|row| row.role == Role::Assistant && row.calls.is_empty()).count();
    assert_eq!((users, answers), (1, 1), "{what}: {text:?}");
    assert_eq!(rows.last().unwrap().kind, MessageKind::Normal, "{what}");
    // I13: every call has exactly one result, in call order.
    let calls: Vec<_> = rows.iter().flat_map(|row| row.calls.iter().map(|call| call.call.clone())).collect();
    let results: Vec<_> = rows.iter().filter_map(|row| row.answers.as_ref().map(|call| call.call.clone())).collect();
    assert_eq!(calls, results, "{what}: {text:?}");
    assert_eq!(calls.len(), 4, "{what}: {text:?}");
}

#[tokio::test]
async fn i01_i12_i13_i14_e05_e06_a_crash_at_any_write_of_a_turn_loses_nothing_and_repeats_nothing() {
    let mut points = 0;
    for fault in [Fault::DiesBefore, Fault::DiesAfter] {
        for at in 0.. {
            let world = World::new();
            let conversation = create(&world).await;
            let what = format!("{fault:?} at write {at}");
            if !run_and_die(&world, &conversation, ReplaySafety::Once, fault, at).await {
                break;
            }
            points += 1;
            let before = world.ledger.effects();
            let result = run_again(&world, &conversation, ReplaySafety::Once, "second").await;
            check(&world, &conversation, &result, &what).await;
            // No effect twice; an effect whose result was lost is said to be unknown, never invented, never repeated.
            let effects = world.ledger.effects();
            let distinct: HashSet<_> = effects.iter().collect();
            assert_eq!(distinct.len(), effects.len(), "{what}: an effect twice: {effects:?}");
            for row in world.rows(&conversation, View::Display).await {
                let Some(call) = row.answers else { continue };
                let happened = effects.contains(&call.call.as_str().to_owned());
                match call.outcome.unwrap() {
                    CallOutcome::Ok => assert!(happened, "{what}: an invented result"),
                    CallOutcome::Skipped => assert!(!happened, "{what}: an effect is denied"),
                    CallOutcome::OutcomeUnknown => {
                        assert!(!happened || before.contains(&call.call.as_str().to_owned()), "{what}");
                        assert!(row.content.contains("not known") || row.content.contains("unknown"), "{what}");
                    }
                    other => panic!("{what}: {other:?}"),
                }
            }
        }
    }
    assert!(points >= 20, "only {points} crash points");
}

#[tokio::test]
async fn i14_pure_calls_that_a_crash_cut_are_run_again() {
    for fault in [Fault::DiesBefore, Fault::DiesAfter] {
        for at in 0.. {
            let world = World::new();
            let conversation = create(&world).await;
            if !run_and_die(&world, &conversation, ReplaySafety::Pure, fault, at).await {
                break;
            }
            let result = run_again(&world, &conversation, ReplaySafety::Pure, "second").await;
            let what = format!("{fault:?} at write {at}");
            check(&world, &conversation, &result, &what).await;
            for row in world.rows(&conversation, View::Display).await {
                if let Some(call) = row.answers {
                    assert_eq!(call.outcome, Some(CallOutcome::Ok), "{what}");
                }
            }
        }
    }
}

#[tokio::test]
async fn i06_a_second_crash_during_recovery_changes_nothing_of_the_promise() {
    for first in [3, 4, 5, 6, 7] {
        for second in 0.. {
            let world = World::new();
            let conversation = create(&world).await;
            assert!(run_and_die(&world, &conversation, ReplaySafety::Once, Fault::DiesAfter, first).await);
            world.dead.0.lock().unwrap().extend(["first".to_owned(), "second".to_owned()]);
            let store = FaultStore::new(Arc::new(world.store.clone()), Fault::DiesAfter, second);
            let model = RoundsModel::new(2, 2);
            let engine = Engine::new(world.parts_with("second", model, world.tool(), store.clone()));
            let died = tokio::select! {
                result = engine.drain(&conversation) => { result.unwrap(); false }
                () = store.died() => true,
            };
            let result = run_again(&world, &conversation, ReplaySafety::Once, "third").await;
            check(&world, &conversation, &result, &format!("{first} then {second}")).await;
            let effects = world.ledger.effects();
            assert_eq!(effects.iter().collect::<HashSet<_>>().len(), effects.len());
            if !died {
                break;
            }
        }
    }
}

#[tokio::test]
async fn i12_e02_e03_e04_a_round_that_cannot_be_recorded_runs_nothing() {
    let mut refused = 0;
    for at in 0.. {
        let world = World::new();
        let conversation = create(&world).await;
        let store = FaultStore::new(Arc::new(world.store.clone()), Fault::FailsBefore, at);
        let model = RoundsModel::new(1, 2);
        let engine = Engine::new(world.parts_with("first", model.clone(), world.tool(), store.clone()));
        let Ok(receipt) = engine.submit(submission(Some(&conversation), "r", "go")).await else { continue };
        let receipt = receipt.receipt().clone();
        let result = engine.run_until(&conversation, &receipt.admission).await;
        if !store.reached() {
            assert_eq!(result.unwrap().reason, EndReason::Answered);
            break;
        }
        refused += 1;
        // I13, E4: a result that could not be stored never reaches the model; an effect needs its record.
        let rows = world.rows(&conversation, View::Display).await;
        let recorded: Vec<String> =
            rows.iter().flat_map(|row| row.calls.iter().map(|call| call.call.as_str().to_owned())).collect();
        for effect in world.ledger.effects() {
            assert!(recorded.contains(&effect), "write {at}: an effect without a record");
        }
        for request in model.requests.lock().unwrap().iter() {
            for message in &request.messages {
                if let hermes_providers::ChatMessage::Tool { content, .. } = message {
                    assert!(rows.iter().any(|row| row.content == *content), "write {at}: an unstored result was shown");
                }
            }
        }
        if let Ok(result) = result {
            assert!(
                matches!(result.reason, EndReason::PersistenceFailed | EndReason::Answered),
                "write {at}: {:?}",
                result.reason
            );
            if result.reason == EndReason::Answered {
                assert_eq!(rows.last().unwrap().content, "done", "write {at}: an answer that is not stored");
            }
        }
    }
    assert!(refused >= 6, "only {refused} points");
}

#[tokio::test]
async fn i16_a_write_that_fails_after_a_crash_leaves_no_open_tail() {
    let mut ends = 0;
    for (at, failing) in (0..8).flat_map(|at| (0..16).map(move |failing| (at, failing))) {
        let world = World::new();
        let conversation = create(&world).await;
        assert!(run_and_die(&world, &conversation, ReplaySafety::Once, Fault::DiesAfter, at).await);
        world.dead.0.lock().unwrap().push("first".to_owned());
        let store = FaultStore::new(Arc::new(world.store.clone()), Fault::FailsOnce, failing);
        let parts = world.parts_with("second", RoundsModel::new(2, 2), world.tool().replay(ReplaySafety::Once), store);
        let engine = Engine::new(parts);
        let Ok(accepted) = engine.submit(submission(Some(&conversation), "request-1", "go")).await else { continue };
        let Ok(result) = engine.run_until(&conversation, &accepted.receipt().admission).await else { continue };
        if world.store.admission(&result.admission).await.unwrap().receipt.status != AdmissionStatus::Terminal {
            continue;
        }
        ends += usize::from(result.reason == EndReason::PersistenceFailed);
        let rows = world.rows(&conversation, View::Model).await;
        let is_closed = rows.last().is_none_or(|row| row.role == Role::Assistant && row.calls.is_empty());
        assert!(is_closed, "died at {at}, failed at {failing}: {:?}", short(&rows));
    }
    assert!(ends > 10, "only {ends} turns ended in a failed write");
}

/// A disk that is full for a moment: the input was accepted, so it stands in the transcript with the end it came to.
#[tokio::test]
async fn i01_an_input_whose_row_could_not_be_written_stands_in_the_transcript_with_its_end() {
    for (is_first, view) in [(true, View::Model), (true, View::Display), (false, View::Model), (false, View::Display)] {
        let world = World::new();
        let store = FaultStore::new(Arc::new(world.store.clone()), Fault::FailsOnce, i64::MAX);
        let parts = world.parts_with("first", RoundsModel::new(0, 0), world.tool(), store.clone());
        let engine = Engine::new(parts);
        let conversation = create(&world).await;
        if !is_first {
            let before = engine.submit(submission(Some(&conversation), "request-0", "before")).await.unwrap();
            engine.run_until(&conversation, &before.receipt().admission).await.unwrap();
        }
        let mut failed = 0;
        // A first input whose claim works opens the session in the write that fails.
        for at in i64::from(is_first)..6 {
            let (request, text) = (format!("request-{}", at + 1), format!("go {at}"));
            let accepted = engine.submit(submission(Some(&conversation), &request, &text)).await.unwrap();
            // The claim, the row of the input, the answer, the end.
            store.fail_at(at);
            let result = engine.run_until(&conversation, &accepted.receipt().admission).await;
            store.fail_at(i64::MAX);
            let Ok(result) = result else {
                engine.run_until(&conversation, &accepted.receipt().admission).await.unwrap();
                continue;
            };
            let record = world.store.admission(&accepted.receipt().admission).await.unwrap();
            if record.receipt.status != AdmissionStatus::Terminal {
                engine.run_until(&conversation, &accepted.receipt().admission).await.unwrap();
            }
            failed += usize::from(result.reason == EndReason::PersistenceFailed);
            let rows = world.rows(&conversation, view).await;
            assert_eq!(rows.iter().filter(|row| row.content == text).count(), 1, "{at}: {:?}", short(&rows));
            let is_closed = rows.last().is_some_and(|row| row.role == Role::Assistant && row.calls.is_empty());
            assert!(is_closed, "{at}: {:?}", short(&rows));
        }
        assert!(failed >= 2, "only {failed} turns ended in a failed write");
    }
}
