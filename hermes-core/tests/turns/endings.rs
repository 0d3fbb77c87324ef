//! Every way a turn can end, each with its one reason and a closed tail.

use std::sync::Arc;

use hermes_core::{EndReason, Engine, EngineSettings, EventKind, Interrupt, Stopper};
use hermes_providers::{ErrorClass, Finish, Script};
use hermes_store::{MessageKind, Role, View};

use crate::support::{World, ask, calls, check_pairs, error, model, short};

#[tokio::test]
async fn i16_every_end_has_one_reason_and_leaves_a_tail_that_the_next_turn_extends() {
    let cut = || Script::text("half").with_finish(Finish::Length);
    let fail = |class| Script::error(error(class));
    let table: Vec<(&str, Vec<Script>, EndReason)> = vec![
        ("answer", vec![Script::text("hello")], EndReason::Answered),
        ("round, answer", vec![calls("a"), Script::text("hello")], EndReason::Answered),
        ("auth", vec![fail(ErrorClass::Auth)], EndReason::AuthFailed),
        ("billing", vec![fail(ErrorClass::Billing)], EndReason::BillingFailed),
        ("no model", vec![fail(ErrorClass::ModelNotFound)], EndReason::ModelNotFound),
        ("policy", vec![fail(ErrorClass::ContentPolicy)], EndReason::ContentBlocked),
        ("bad request", vec![fail(ErrorClass::BadRequest)], EndReason::RequestRefused),
        ("overflow", vec![calls("a"), fail(ErrorClass::ContextOverflow)], EndReason::ContextOverflow),
        ("configuration", vec![fail(ErrorClass::Configuration)], EndReason::Misconfigured),
        ("retries", (0..4).map(|_| fail(ErrorClass::ServerError)).collect(), EndReason::RetriesExhausted),
        ("retry works", vec![fail(ErrorClass::ServerError), Script::text("hello")], EndReason::Answered),
        ("empty", (0..4).map(|_| Script::text("")).collect(), EndReason::EmptyResponse),
        ("empty once", vec![Script::text(""), Script::text("hello")], EndReason::Answered),
        ("cut", (0..4).map(|_| cut()).collect(), EndReason::OutputTruncated),
        ("cut before text", vec![Script::text("").with_finish(Finish::Length)], EndReason::OutputTruncated),
        ("filtered", vec![Script::text("ha").with_finish(Finish::ContentFilter)], EndReason::ContentBlocked),
        (
            "unknown tools",
            (0..3).map(|n| Script::calls([(format!("x{n}"), "nothing", "{}")])).collect(),
            EndReason::InvalidCalls,
        ),
        (
            "truncated call",
            (0..5).map(|_| Script::calls([("a", "act", "{\"a\":1")]).with_finish(Finish::Length)).collect(),
            EndReason::OutputTruncated,
        ),
    ];
    for (name, scripts, want) in table {
        let world = World::new();
        let model = model(scripts);
        let engine = world.engine("e", model.clone());
        let first = ask(&engine, None, "first").await;
        assert_eq!(first.reason, want, "{name}: {:?}", first.error);
        assert_eq!(first.error.is_some(), want != EndReason::Answered, "{name}");
        let rows = world.rows(&first.conversation, View::Display).await;
        let last = rows.last().unwrap();
        assert_eq!((last.role, last.calls.len()), (Role::Assistant, 0), "{name}: {:?}", short(&rows));
        // I15: what is called an answer is what is stored.
        if want == EndReason::Answered {
            assert_eq!((last.kind, last.content.as_str()), (MessageKind::Normal, "hello"), "{name}");
            assert_eq!(first.answer, "hello");
        }
        // The next turn is accepted by a strict provider.
        model.push(Script::text("next"));
        let next = ask(&engine, Some(&first.conversation), "second").await;
        assert_eq!(next.reason, EndReason::Answered, "{name}");
        check_pairs(&model.requests().last().unwrap().messages);
        let ends = world.events.all();
        let ends = ends.iter().filter(|e| matches!(e.kind, EventKind::TurnEnded { .. })).count();
        assert_eq!(ends, 2, "{name}: a turn ends once");
    }
}

#[tokio::test]
async fn e17_the_budget_ends_in_a_summary_without_calls() {
    let world = World::new();
    let model = model([calls("a"), calls("b"), Script::text("summary")]);
    let mut parts = world.parts("e", model.clone());
    parts.settings = EngineSettings { max_iterations: Some(2), ..EngineSettings::default() };
    let result = ask(&Engine::new(parts), None, "go").await;
    assert_eq!(result.reason, EndReason::BudgetExhausted);
    assert_eq!(result.answer, "summary");
    assert_eq!(world.ledger.effects().len(), 2);
}

#[tokio::test]
async fn e11_a_call_that_cannot_be_read_is_asked_again_in_silence() {
    let world = World::new();
    let bad = || Script::calls([("a", "act", "{\"a\":1,,}")]);
    let model = model([bad(), bad(), calls("a"), Script::text("ok")]);
    let result = ask(&world.engine("e", model), None, "go").await;
    assert_eq!(result.reason, EndReason::Answered);
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!(short(&rows), ["user/normal:go", "assistant:[\"act\"]", "tool:ok", "assistant/normal:ok"]);
}

#[tokio::test]
async fn e12_a_third_unreadable_call_is_answered_with_what_is_wrong() {
    let world = World::new();
    let bad = || Script::calls([("a", "act", "{\"a\":1,,}")]);
    let model = model([bad(), bad(), bad(), Script::text("sorry")]);
    let result = ask(&world.engine("e", model), None, "go").await;
    assert_eq!(result.reason, EndReason::Answered);
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!(short(&rows)[1..3], ["assistant:[\"act\"]", "tool:invalid"]);
    assert!(world.ledger.effects().is_empty());
}

#[tokio::test]
async fn e51_a_cut_stream_is_asked_again_and_nothing_is_shown_twice() {
    let world = World::new();
    let model =
        model([Script::text_then_error("Once upon ", error(ErrorClass::Incomplete)), Script::text("Once upon a time")]);
    let result = ask(&world.engine("e", model), None, "tell").await;
    assert_eq!(result.answer, "Once upon a time");
    let events = world.events.all();
    let shown: String = events
        .iter()
        .filter_map(|e| match &e.kind {
            EventKind::TextDelta { text } => Some(text.as_str()),
            EventKind::TextRestarted => panic!("the text was declared void"),
            _ => None,
        })
        .collect();
    assert_eq!(shown, "Once upon a time");
}

#[tokio::test]
async fn c1_a_stop_while_the_model_speaks_keeps_the_part_and_names_the_user() {
    let world = World::new();
    let model = model([Script::text_then_hang("so far")]);
    let engine = world.engine("e", model.clone());
    let receipt = engine.submit(crate::support::submission(None, "r", "go")).await.unwrap().receipt().clone();
    let stop = async {
        while !world.events.all().iter().any(|e| matches!(e.kind, EventKind::TextDelta { .. })) {
            tokio::task::yield_now().await;
        }
        assert!(engine.interrupt(&receipt.conversation, Stopper::User, Interrupt::Hard));
    };
    let (result, ()) = tokio::join!(engine.run_until(&receipt.conversation, &receipt.admission), stop);
    let result = result.unwrap();
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::StoppedByUser, "so far"));
    let rows = world.rows(&receipt.conversation, View::Display).await;
    assert_eq!(rows.last().unwrap().kind, MessageKind::Partial);
}

#[tokio::test]
async fn c2_a_stop_in_a_batch_gives_every_call_its_own_truth() {
    use hermes_tools::Concurrency;
    let world = World::new();
    let model = model([Script::calls([("a", "act", "{}"), ("b", "act", "{}"), ("c", "act", "{}")])]);
    // One after the other; each takes far longer than the test needs to stop it.
    let tool = world.tool().concurrency(Concurrency::Barrier).delay_ms(30);
    let engine = Engine::new(world.parts_with("e", model.clone(), tool, Arc::new(world.store.clone())));
    let receipt = engine.submit(crate::support::submission(None, "r", "go")).await.unwrap().receipt().clone();
    let stop = async {
        while world.ledger.effects().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        while world.ledger.events().len() < 3 {
            tokio::task::yield_now().await;
        }
        engine.interrupt(&receipt.conversation, Stopper::User, Interrupt::Hard);
    };
    let (result, ()) = tokio::join!(engine.run_until(&receipt.conversation, &receipt.admission), stop);
    assert_eq!(result.unwrap().reason, EndReason::StoppedByUser);
    let rows = world.rows(&receipt.conversation, View::Display).await;
    let outcomes: Vec<String> = short(&rows).into_iter().filter(|row| row.starts_with("tool:")).collect();
    assert_eq!(outcomes.len(), 3, "{outcomes:?}");
    assert_eq!(outcomes[0], "tool:ok");
    assert_eq!(outcomes[2], "tool:skipped");
    model.push(Script::text("fine"));
    assert_eq!(ask(&engine, Some(&receipt.conversation), "and now").await.reason, EndReason::Answered);
    check_pairs(&model.requests().last().unwrap().messages);
}

#[tokio::test]
async fn a_soft_stop_lets_the_running_call_end_and_begins_nothing_new() {
    let world = World::new();
    let model = model([calls("a"), Script::text("not asked for any more")]);
    let tool = world.tool().delay_ms(30);
    let engine = Engine::new(world.parts_with("e", model.clone(), tool, Arc::new(world.store.clone())));
    let receipt = engine.submit(crate::support::submission(None, "r", "go")).await.unwrap().receipt().clone();
    let stop = async {
        while world.ledger.events().is_empty() {
            tokio::task::yield_now().await;
        }
        engine.interrupt(&receipt.conversation, Stopper::User, Interrupt::Soft);
    };
    let (result, ()) = tokio::join!(engine.run_until(&receipt.conversation, &receipt.admission), stop);
    assert_eq!(result.unwrap().reason, EndReason::StoppedByUser);
    assert_eq!(world.ledger.effects().len(), 1);
    assert_eq!(model.requests().len(), 1);
    let rows = world.rows(&receipt.conversation, View::Display).await;
    assert_eq!(short(&rows)[2], "tool:ok");
}

#[tokio::test]
async fn a_turn_has_a_deadline_that_bounds_every_wait_in_it() {
    let world = World::new();
    let model = model([Script::hang_at_head()]);
    let mut parts = world.parts("e", model);
    parts.settings.turn_deadline_ms = Some(5_000);
    let result = ask(&Engine::new(parts), None, "go").await;
    assert_eq!(result.reason, EndReason::DeadlineExceeded);
}

#[tokio::test]
async fn i09_e25_an_owner_that_lost_its_lease_stops_and_writes_nothing() {
    use hermes_store::{ClaimOutcome, ClaimPolicy, ClaimRequest, LeaseStore as _, OwnerId, TurnId};
    let world = World::new();
    let model = model([Script::hang_at_head()]);
    let engine = world.engine("sleeper", model);
    let receipt = engine.submit(crate::support::submission(None, "r", "go")).await.unwrap().receipt().clone();
    let takeover = async {
        while !world.events.all().iter().any(|e| matches!(e.kind, EventKind::RequestStarted { .. })) {
            tokio::task::yield_now().await;
        }
        world.dead.0.lock().unwrap().push("sleeper".to_owned());
        let claim = ClaimRequest {
            conversation: receipt.conversation.clone(),
            owner: OwnerId::parse("thief").unwrap(),
            turn: TurnId::parse("t2").unwrap(),
            ttl_ms: 300_000,
            policy: ClaimPolicy::Any,
        };
        assert!(matches!(world.store.claim(claim).await.unwrap(), ClaimOutcome::Recover { .. }));
    };
    let before = world.rows(&receipt.conversation, View::Display).await;
    let (result, ()) = tokio::join!(engine.run_until(&receipt.conversation, &receipt.admission), takeover);
    assert_eq!(result.unwrap().reason, EndReason::LeaseLost);
    let after = world.rows(&receipt.conversation, View::Display).await;
    assert_eq!(after.len(), before.len() + 1, "only the user's row of the turn itself");
}

#[tokio::test]
async fn i10_an_owner_that_was_idle_is_not_taken_for_dead_when_it_begins_to_work() {
    use hermes_store::limits::HEARTBEAT_DEAD_MS;
    use hermes_store::{ClaimOutcome, ClaimPolicy, ClaimRequest, LeaseStore as _, OwnerId, TurnId};
    let world = World::new();
    let engine = world.engine("idle", model([Script::text("hello"), Script::hang_at_head()]));
    let conversation = ask(&engine, None, "hi").await.conversation;
    // Nothing to do: nothing is written, also no sign of life.
    world.clock.push(2 * i64::try_from(HEARTBEAT_DEAD_MS).unwrap());
    let receipt = engine.submit(crate::support::submission(Some(&conversation), "r", "go")).await.unwrap();
    let requests = || {
        let events = world.events.all();
        events.iter().filter(|event| matches!(event.kind, EventKind::RequestStarted { .. })).count()
    };
    let claimed = async {
        while requests() < 2 {
            tokio::task::yield_now().await;
        }
        let claim = ClaimRequest {
            conversation: conversation.clone(),
            owner: OwnerId::parse("another").unwrap(),
            turn: TurnId::parse("t2").unwrap(),
            ttl_ms: 300_000,
            policy: ClaimPolicy::Any,
        };
        let claimed = world.store.claim(claim).await.unwrap();
        engine.interrupt(&conversation, Stopper::User, Interrupt::Hard);
        claimed
    };
    let (result, claimed) = tokio::join!(engine.run_until(&conversation, &receipt.receipt().admission), claimed);
    assert!(matches!(claimed, ClaimOutcome::Held { .. }), "{claimed:?}");
    assert_eq!(result.unwrap().reason, EndReason::StoppedByUser);
}

#[tokio::test]
async fn c3_e52_a_failed_request_is_not_run_together_with_the_next_one() {
    let world = World::new();
    let model = model([Script::error(error(ErrorClass::Auth)), Script::text("hello")]);
    let engine = world.engine("e", model.clone());
    let first = ask(&engine, None, "reset the password").await;
    ask(&engine, Some(&first.conversation), "good morning").await;
    let rows = world.rows(&first.conversation, View::Display).await;
    assert_eq!(rows[1].kind, MessageKind::Boundary);
    assert!(rows[1].content.contains("not finished"));
    check_pairs(&model.requests().last().unwrap().messages);
}

#[tokio::test(start_paused = true)]
async fn a_soft_stop_while_a_call_runs_lets_it_end_and_begins_no_other() {
    let world = World::paused();
    let two = Script::calls([("a", "act", r#"{"delay_ms": 60000}"#), ("b", "act", r#"{"text": "second"}"#)]);
    let model = model([two, Script::text("never asked for")]);
    let engine = world.engine("e", model.clone());
    let receipt = engine.submit(crate::support::submission(None, "r", "go")).await.unwrap().receipt().clone();
    let stop = async {
        while !world.events.all().iter().any(|e| matches!(e.kind, EventKind::CallStarted { .. })) {
            tokio::task::yield_now().await;
        }
        assert!(engine.interrupt(&receipt.conversation, Stopper::User, Interrupt::Soft));
    };
    let (result, ()) = tokio::join!(engine.run_until(&receipt.conversation, &receipt.admission), stop);
    assert_eq!(result.unwrap().reason, EndReason::StoppedByUser);
    let rows = world.rows(&receipt.conversation, View::Display).await;
    assert_eq!(short(&rows)[2..4], ["tool:ok", "tool:skipped"]);
    assert_eq!((world.ledger.effects().len(), model.requests().len()), (1, 1));
    ask(&engine, Some(&receipt.conversation), "next").await;
    check_pairs(&model.requests().last().unwrap().messages);
}
