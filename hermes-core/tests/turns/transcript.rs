//! What the transcript and the requests look like.

use std::sync::Arc;

use hermes_core::{CompressionSettings, EndReason, Engine, EngineError, Interrupt, Stopper, SummaryEngine};
use hermes_providers::{ChatMessage, Script, ScriptedModel};
use hermes_store::{AdmitOutcome, Intent, SessionStore as _, View};

use crate::support::{RoundsModel, World, ask, check_prefix, check_requests, short, submission};

#[tokio::test]
async fn i18_e28_every_request_is_a_prefix_of_the_next_over_rounds_turns_and_processes() {
    let world = World::new();
    let first = RoundsModel::new(20, 2);
    let result = ask(&world.engine("one", first.clone()), None, "go").await;
    assert_eq!(result.reason, EndReason::Answered);
    let second = RoundsModel::new(3, 1);
    let engine = world.engine("two", second.clone());
    ask(&engine, Some(&result.conversation), "more").await;
    ask(&engine, Some(&result.conversation), "and more").await;
    let requests: Vec<_> =
        first.requests.lock().unwrap().iter().chain(second.requests.lock().unwrap().iter()).cloned().collect();
    assert_eq!(requests.len(), 21 + 4 + 4);
    for pair in requests.windows(2) {
        check_prefix(&pair[0], &pair[1]);
    }
}

#[tokio::test]
async fn i13_e08_results_stand_in_call_order_with_one_for_each_valid_or_invalid_call() {
    let world = World::new();
    let model = ScriptedModel::new(ScriptedModel::test_info());
    model.push(Script::calls([("a", "act", "{}"), ("b", "nothing", "{}"), ("c", "act", "{}")]));
    model.push(Script::text("done"));
    let result = ask(&world.engine("e", Arc::new(model)), None, "go").await;
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!(
        short(&rows)[1..],
        ["assistant:[\"act\", \"nothing\", \"act\"]", "tool:ok", "tool:invalid", "tool:ok", "assistant/normal:done"]
    );
    assert_eq!(world.ledger.effects().len(), 2, "the invalid call is not dispatched");
}

#[tokio::test]
async fn e14_a_call_id_that_a_provider_uses_again_is_made_unique() {
    let world = World::new();
    let model = Arc::new(ScriptedModel::new(ScriptedModel::test_info()));
    for round in 0..2 {
        let arguments = |n: usize| format!("{{\"n\":{}}}", round * 3 + n);
        let calls = ["call_0", "call_0", ""].into_iter().enumerate();
        model.push(Script::calls(calls.map(|(n, id)| (id, "act", arguments(n)))));
    }
    model.push(Script::text("done"));
    let result = ask(&world.engine("e", model.clone()), None, "go").await;
    assert_eq!(result.reason, EndReason::Answered);
    crate::support::check_pairs(&model.requests().last().unwrap().messages);
}

#[tokio::test]
async fn i02_the_same_request_is_run_once_and_other_content_is_a_conflict() {
    let world = World::new();
    let model = RoundsModel::new(1, 1);
    let engine = world.engine("e", model.clone());
    let first = ask(&engine, None, "hello").await;
    let again = submission(Some(&first.conversation), "same", "once");
    let one = engine.submit(again.clone()).await.unwrap().receipt().clone();
    engine.run_until(&one.conversation, &one.admission).await.unwrap();
    let two = engine.submit(again.clone()).await.unwrap();
    assert!(matches!(&two, AdmitOutcome::Replayed(receipt) if receipt.admission == one.admission));
    let replayed = engine.run_until(&one.conversation, &one.admission).await.unwrap();
    assert_eq!((replayed.reason, replayed.answer.as_str()), (EndReason::Answered, "done"));
    let other = submission(Some(&first.conversation), "same", "twice");
    assert!(matches!(engine.submit(other).await, Err(EngineError::Store(error)) if error.code() == "HM1002"));
    assert_eq!(world.ledger.effects().len(), 2);
}

#[tokio::test]
async fn i03_inputs_of_one_conversation_start_in_their_order_on_two_engines() {
    let world = World::new();
    let engines = [world.engine("one", RoundsModel::new(1, 1)), world.engine("two", RoundsModel::new(1, 1))];
    let conversation = ask(&engines[0], None, "0").await.conversation;
    let mut receipts = Vec::new();
    for n in 1..=6_usize {
        let submission = submission(Some(&conversation), &format!("r{n}"), &n.to_string());
        receipts.push((n % 2, engines[n % 2].submit(submission).await.unwrap().receipt().admission.clone()));
    }
    let runs = receipts.iter().map(|(engine, admission)| engines[*engine].run_until(&conversation, admission));
    for result in futures::future::join_all(runs).await {
        assert_eq!(result.unwrap().reason, EndReason::Answered);
    }
    let rows = world.rows(&conversation, View::Display).await;
    let order: Vec<_> = short(&rows).into_iter().filter(|row| row.starts_with("user")).collect();
    let want: Vec<_> = (0..=6).map(|n| format!("user/normal:{n}")).collect();
    assert_eq!(order, want);
    for chunk in short(&rows).chunks(4) {
        assert_eq!(
            chunk[1..],
            ["assistant:[\"act\"]", "tool:ok", "assistant/normal:done"],
            "turns are not interleaved"
        );
    }
}

#[tokio::test]
async fn i04_a_steer_reaches_the_running_turn_once_and_a_late_one_is_the_next_input() {
    let world = World::new();
    let model = RoundsModel::new(3, 1);
    let engine = world.engine("e", model.clone());
    let begun = engine.submit(submission(None, "r1", "go")).await.unwrap().receipt().clone();
    let mut steer = submission(Some(&begun.conversation), "r2", "a hint");
    steer.intent = Intent::Steer;
    // Accepted before the turn began: it is taken by the turn that runs.
    engine.submit(steer).await.unwrap();
    let result = engine.run_until(&begun.conversation, &begun.admission).await.unwrap();
    assert_eq!(result.reason, EndReason::Answered);
    let last = model.requests.lock().unwrap().last().unwrap().clone();
    let hints =
        last.messages.iter().filter(|m| matches!(m, ChatMessage::User { text, .. } if text == "a hint")).count();
    assert_eq!(hints, 1);
    assert!(world.store.queue(&begun.conversation).await.unwrap().is_empty());
    let mut late = submission(Some(&begun.conversation), "r3", "too late");
    late.intent = Intent::Steer;
    let late = engine.submit(late).await.unwrap().receipt().clone();
    let result = engine.run_until(&late.conversation, &late.admission).await.unwrap();
    assert_eq!(result.reason, EndReason::Answered);
}

#[tokio::test]
async fn bad_inputs_are_refused_and_write_nothing() {
    let world = World::new();
    let engine = world.engine("e", RoundsModel::new(0, 0));
    assert!(matches!(engine.submit(submission(None, "r", " \n ")).await, Err(EngineError::EmptyInput)));
    let large = "x".repeat(hermes_core::limits::INPUT_MAX_BYTES + 1);
    assert!(matches!(engine.submit(submission(None, "r", &large)).await, Err(EngineError::InputTooLarge { .. })));
    assert!(world.store.conversations(hermes_store::ConversationFilter::default()).await.unwrap().is_empty());
    let nobody = hermes_store::ConversationId::parse("nobody").unwrap();
    assert!(!engine.interrupt(&nobody, Stopper::User, Interrupt::Hard));
}

#[tokio::test]
async fn c7_strange_text_is_stored_and_replayed_unchanged() {
    let world = World::new();
    let model = RoundsModel::new(0, 0);
    let engine = world.engine("e", model.clone());
    let text = format!("nul \0, emoji 👩‍👩‍👧, rtl \u{202e}, long {}", "x".repeat(100_000));
    let result = ask(&engine, None, &text).await;
    ask(&engine, Some(&result.conversation), "again").await;
    let requests = model.requests.lock().unwrap();
    let ChatMessage::User { text: sent, .. } = &requests[1].messages[0] else { panic!("no user message") };
    assert_eq!(*sent, text);
}

#[tokio::test]
async fn another_model_goes_on_with_the_same_prompt_and_history_and_is_told() {
    use hermes_providers::{ChatModel as _, ModelInfo};
    let world = World::new();
    let first = RoundsModel::new(1, 1);
    let conversation = ask(&world.engine("one", first.clone()), None, "go").await.conversation;
    let info = ModelInfo { model: "other".to_owned(), ..first.info().clone() };
    let other = Arc::new(ScriptedModel::new(info));
    other.push(Script::text("hello"));
    let engine = world.engine("two", other.clone());
    assert_eq!(ask(&engine, Some(&conversation), "more").await.reason, EndReason::Answered);
    check_prefix(first.requests.lock().unwrap().last().unwrap(), &other.requests()[0]);
    let notices = world.events.all();
    assert!(
        notices.iter().any(|e| matches!(&e.kind, hermes_core::EventKind::Notice { text } if text.contains("other")))
    );
    let summary = world.store.conversation(&conversation).await.unwrap();
    assert_eq!(summary.model.as_deref(), Some("other"));
}

#[tokio::test]
async fn i22_a_tool_that_was_taken_away_cannot_be_called_any_more() {
    use hermes_tools::ToolSelection;
    let world = World::new();
    let conversation = ask(&world.engine("one", RoundsModel::new(1, 1)), None, "go").await.conversation;
    let model = RoundsModel::new(1, 1);
    let mut parts = world.parts("two", model.clone());
    parts.tools.selection = ToolSelection::none();
    let result = ask(&hermes_core::Engine::new(parts), Some(&conversation), "more").await;
    assert_eq!(result.reason, EndReason::Answered);
    assert!(model.requests.lock().unwrap()[0].tools.is_empty());
    assert_eq!(world.ledger.effects().len(), 1, "only the first turn had the tool");
    let rows = world.rows(&conversation, View::Display).await;
    assert!(short(&rows).contains(&"tool:invalid".to_owned()));
}

#[tokio::test]
async fn i18_a_history_of_several_pages_is_sent_whole_and_its_requests_stay_prefixes() {
    let world = World::new();
    let model = RoundsModel::new(1, 1);
    let unshortened = |name: &str| {
        let mut parts = world.parts(name, model.clone());
        let settings = CompressionSettings { enabled: false, ..CompressionSettings::default() };
        parts.context = Arc::new(SummaryEngine::new(settings));
        Engine::new(parts)
    };
    let engine = unshortened("e");
    let conversation = ask(&engine, None, "first").await.conversation;
    // The call of the next round is the last row of a page, its result the first of the third one.
    let page = hermes_store::limits::PAGE_MAX_ROWS;
    world.fill(&conversation, 2 * page - 6).await;
    assert_eq!(ask(&engine, Some(&conversation), "on the edge").await.reason, EndReason::Answered);
    let later = unshortened("later");
    assert_eq!(ask(&later, Some(&conversation), "the newest").await.reason, EndReason::Answered);
    let requests = model.requests.lock().unwrap();
    check_requests(&requests);
    let last = &requests.last().unwrap().messages;
    assert_eq!(last.len(), 2 * page + 2 + 3, "a message for each row");
    let is = |message: &ChatMessage, wanted: &str| matches!(message, ChatMessage::User { text, .. } if text == wanted);
    assert!(is(&last[0], "first") && is(&last[2 * page - 2], "on the edge") && is(&last[2 * page + 2], "the newest"));
    assert!(matches!(&last[2 * page], ChatMessage::Tool { .. }));
    assert_eq!((engine.metrics().prefix_broken, later.metrics().prefix_broken), (0, 0));
}
