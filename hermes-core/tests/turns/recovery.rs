//! Answers that are not whole: cut, empty, torn, looping, and what is left of them.

use std::sync::Arc;

use hermes_core::testing::{Fault, FaultStore};
use hermes_core::{EndReason, Engine, EngineSettings, EventKind, Interrupt, Stopper};
use hermes_providers::{ChatMessage, ChatRequest, Delta, ErrorClass, Finish, Script, Sidecar, Usage};
use hermes_store::{MessageKind, Role, View};

use crate::auxiliary::{long, named};
use crate::support::{World, ask, calls, check_pairs, check_requests, error, model, short, streamed, submission};

fn cut(text: &str) -> Script {
    Script::text(text).with_finish(Finish::Length)
}

fn torn(finish: Finish) -> Script {
    Script::calls([("a", "act", "{\"a\":1")]).with_finish(finish)
}

fn empty_for_nothing() -> Script {
    Script::text("").with_usage(Usage { output: Some(0), ..Usage::default() })
}

#[tokio::test]
async fn e47_a_cut_answer_is_gone_on_with_and_is_one_row_without_nudges() {
    let world = World::new();
    let overlap = "this is where the first part was cut off by the limit";
    let first = format!("One. {overlap}");
    let model = model([cut(&first), cut(&format!("{overlap}. Two, ")), Script::text("three."), Script::text("next")]);
    let engine = world.engine("e", model.clone());
    let result = ask(&engine, None, "tell").await;
    let whole = format!("One. {overlap}. Two, three.");
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, whole.as_str()));
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!(short(&rows), ["user/normal:tell".to_owned(), format!("assistant/normal:{whole}")]);
    // E51: clients saw each part once.
    assert_eq!(streamed(&world.events.all()), whole);
    // What was sent is what is replayed, nudges and all (I18, I19).
    ask(&engine, Some(&result.conversation), "more").await;
    let requests = model.requests();
    check_requests(&requests);
    let said: Vec<&str> = requests[3]
        .messages
        .iter()
        .filter_map(
            |message| if let ChatMessage::Assistant { text, .. } = message { Some(text.as_str()) } else { None },
        )
        .collect();
    assert_eq!(said, [first.as_str(), &format!("{overlap}. Two, "), "three."]);
}

#[tokio::test]
async fn e47_a_fourth_cut_ends_the_turn_with_all_parts_in_one_row() {
    let world = World::new();
    let model = model(["a", "b", "c", "d"].map(cut).into_iter().chain([Script::text("fine")]));
    let engine = world.engine("e", model.clone());
    let result = ask(&engine, None, "tell").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::OutputTruncated, "abcd"));
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!(short(&rows)[1..], ["assistant/partial:abcd"]);
    ask(&engine, Some(&result.conversation), "more").await;
    check_requests(&model.requests());
}

#[tokio::test]
async fn e47_a_cut_answer_survives_a_crash_at_every_write() {
    for fault in [Fault::DiesBefore, Fault::DiesAfter] {
        for at in 0.. {
            let world = World::new();
            let scripts = || [cut("One, "), cut("two, "), Script::text("three.")];
            let store = FaultStore::new(Arc::new(world.store.clone()), fault, at);
            let first = model(scripts());
            let engine = Engine::new(world.parts_with("first", first.clone(), world.tool(), store.clone()));
            let work = async {
                let receipt = engine.submit(submission(None, "r", "tell")).await?.receipt().clone();
                engine.run_until(&receipt.conversation, &receipt.admission).await
            };
            let died = tokio::select! {
                result = work => { result.unwrap(); false }
                () = store.died() => true,
            };
            if !died {
                break;
            }
            world.dead.0.lock().unwrap().push("first".to_owned());
            use hermes_store::SessionStore as _;
            let known = world.store.conversations(hermes_store::ConversationFilter::default()).await.unwrap();
            let Some(conversation) = known.first().map(|summary| summary.id.clone()) else { continue };
            // The next process goes on with what the first one kept, and asks for the rest only.
            let kept = world.rows(&conversation, View::Model).await;
            let parts =
                kept.iter().filter(|row| row.kind == MessageKind::Hidden && row.role == Role::Assistant).count();
            let second = model(scripts().into_iter().skip(parts));
            let engine = world.engine("second", second.clone());
            let last = engine.drain(&conversation).await.unwrap();
            let what = format!("{fault:?} at write {at}");
            if let Some(result) = last {
                assert_eq!(
                    (result.reason, result.answer.as_str()),
                    (EndReason::Answered, "One, two, three."),
                    "{what}"
                );
            }
            let rows = world.rows(&conversation, View::Display).await;
            assert_eq!(short(&rows)[1..], ["assistant/normal:One, two, three."], "{what}");
            check_requests(&second.requests());
        }
    }
}

#[tokio::test]
async fn a_stop_in_a_continuation_keeps_what_people_saw_in_one_row() {
    let world = World::new();
    let model = model([cut("One, "), Script::text_then_hang("two"), Script::text("fine")]);
    let engine = world.engine("e", model.clone());
    let receipt = engine.submit(submission(None, "r", "tell")).await.unwrap().receipt().clone();
    let stop = async {
        while streamed(&world.events.all()) != "One, two" {
            tokio::task::yield_now().await;
        }
        engine.interrupt(&receipt.conversation, Stopper::User, Interrupt::Hard);
    };
    let (result, ()) = tokio::join!(engine.run_until(&receipt.conversation, &receipt.admission), stop);
    let result = result.unwrap();
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::StoppedByUser, "One, two"));
    let rows = world.rows(&receipt.conversation, View::Display).await;
    assert_eq!(short(&rows)[1..], ["assistant/partial:One, two"]);
    ask(&engine, Some(&receipt.conversation), "more").await;
    check_requests(&model.requests());
}

#[tokio::test]
async fn a_failure_in_a_continuation_keeps_the_parts_in_one_row() {
    let world = World::new();
    let model = model([cut("One, "), Script::error(error(ErrorClass::Auth)), Script::text("fine")]);
    let engine = world.engine("e", model.clone());
    let result = ask(&engine, None, "tell").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::AuthFailed, "One, "));
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!(short(&rows)[1..], ["assistant/partial:One, "]);
    ask(&engine, Some(&result.conversation), "more").await;
    check_requests(&model.requests());
}

#[tokio::test]
async fn a_call_after_a_cut_part_is_run_and_its_round_shows_the_part() {
    let world = World::new();
    let model = model([cut("I will "), calls("a").with_text("look."), Script::text("done"), Script::text("fine")]);
    let engine = world.engine("e", model.clone());
    let result = ask(&engine, None, "go").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"));
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!((rows.len(), rows[1].content.as_str()), (4, "I will look."));
    ask(&engine, Some(&result.conversation), "more").await;
    check_requests(&model.requests());
}

#[tokio::test]
async fn paused_parts_are_one_answer() {
    let world = World::new();
    let pause = |text: &str| Script::text(text).with_finish(Finish::Pause);
    let model = model([pause("One, "), pause("two, "), Script::text("three."), Script::text("fine")]);
    let engine = world.engine("e", model.clone());
    let result = ask(&engine, None, "tell").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "One, two, three."));
    ask(&engine, Some(&result.conversation), "more").await;
    check_requests(&model.requests());
}

#[tokio::test]
async fn a_full_window_is_not_asked_for_more() {
    let world = World::new();
    let usage = Usage { input_uncached: Some(120_000), output: Some(7_900), ..Usage::default() };
    let model = model([cut("all that fits").with_usage(usage)]);
    let result = ask(&world.engine("e", model.clone()), None, "tell").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::ContextOverflow, "all that fits"));
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn e48_a_call_that_the_output_limit_cuts_is_asked_for_again_and_never_run() {
    let world = World::new();
    let model = model((0..5).map(|_| torn(Finish::Length)));
    let result = ask(&world.engine("e", model.clone()), None, "go").await;
    assert_eq!(result.reason, EndReason::OutputTruncated);
    assert!(world.ledger.effects().is_empty());
    let requests = model.requests();
    assert_eq!(requests.len(), 5);
    assert!(requests.iter().all(|request| request.messages == requests[0].messages));
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!((rows.len(), rows[1].kind), (2, MessageKind::Boundary));
}

#[tokio::test]
async fn e48_a_configured_cap_is_raised_before_a_cut_answer_is_asked_for_again() {
    let world = World::new();
    let model = model([torn(Finish::Length), torn(Finish::Length), calls("a"), Script::text("done")]);
    let mut parts = world.parts("e", model.clone());
    parts.settings = EngineSettings { max_output_tokens: Some(1_000), ..EngineSettings::default() };
    assert_eq!(ask(&Engine::new(parts), None, "go").await.reason, EndReason::Answered);
    let caps: Vec<_> = model.requests().iter().map(|request| request.max_output_tokens).collect();
    assert_eq!(caps, [Some(1_000), Some(2_000), Some(4_000), Some(4_000)]);
}

#[tokio::test]
async fn e10_arguments_that_stop_in_the_middle_are_a_cut_call_whatever_the_finish_says() {
    let world = World::new();
    let model = model([torn(Finish::ToolCalls), calls("a"), Script::text("done")]);
    let result = ask(&world.engine("e", model), None, "go").await;
    assert_eq!(result.reason, EndReason::Answered);
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!(short(&rows)[1..], ["assistant:[\"act\"]", "tool:ok", "assistant/normal:done"]);
    let world = World::new();
    let model = crate::support::model((0..5).map(|_| torn(Finish::ToolCalls)));
    let result = ask(&world.engine("e", model), None, "go").await;
    assert_eq!((result.reason, world.ledger.effects().len()), (EndReason::OutputTruncated, 0));
}

#[tokio::test]
async fn e09_three_rounds_of_unknown_names_end_the_turn_with_an_assistant_row() {
    let world = World::new();
    let model = model((0..3).map(|n| Script::calls([(format!("x{n}"), format!("nothing{n}"), "{}")])));
    let result = ask(&world.engine("e", model.clone()), None, "go").await;
    assert_eq!(result.reason, EndReason::InvalidCalls);
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!(rows.iter().filter(|row| row.role == Role::Tool).count(), 3);
    assert_eq!((rows[7].role, rows[7].kind), (Role::Assistant, MessageKind::Boundary));
    check_requests(&model.requests());
}

#[tokio::test]
async fn announced_calls_that_do_not_come_are_asked_for_three_times() {
    let missing = |text: &str| Script::text(text).with_finish(Finish::ToolCalls);
    let world = World::new();
    let model = model([missing("hm"), missing("hm"), missing("hm"), missing("well, this is it")]);
    let result = ask(&world.engine("e", model.clone()), None, "go").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "well, this is it"));
    assert_eq!(model.requests().len(), 4);
    let world = World::new();
    let model = crate::support::model((0..4).map(|_| missing("")));
    assert_eq!(ask(&world.engine("e", model), None, "go").await.reason, EndReason::InvalidCalls);
}

#[tokio::test]
async fn e49_two_answers_that_provably_cost_nothing_are_enough() {
    let world = World::new();
    let model = model((0..4).map(|_| empty_for_nothing()));
    let result = ask(&world.engine("e", model.clone()), None, "go").await;
    assert_eq!(result.reason, EndReason::EmptyResponse);
    assert_eq!((model.requests().len(), result.api_calls), (2, 2));
    // Without proof it is tried three times more.
    let world = World::new();
    let model = crate::support::model((0..9).map(|_| Script::text("")));
    ask(&world.engine("e", model.clone()), None, "go").await;
    assert_eq!(model.requests().len(), 4);
}

#[tokio::test]
async fn e50_an_empty_answer_after_tools_is_nudged_once_and_leaves_no_sentinel() {
    let world = World::new();
    let model = model([calls("a"), Script::text(""), Script::text("done"), Script::text("fine")]);
    let engine = world.engine("e", model.clone());
    let result = ask(&engine, None, "go").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"));
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!(short(&rows)[1..], ["assistant:[\"act\"]", "tool:ok", "assistant/normal:done"]);
    let hidden = world.rows(&result.conversation, View::Model).await;
    assert_eq!(hidden.iter().filter(|row| row.kind == MessageKind::Hidden).count(), 1);
    ask(&engine, Some(&result.conversation), "more").await;
    check_requests(&model.requests());

    let world = World::new();
    let empties = (0..9).map(|_| Script::text(""));
    let model = crate::support::model([calls("a")].into_iter().chain(empties));
    let result = ask(&world.engine("e", model.clone()), None, "go").await;
    assert_eq!(result.reason, EndReason::EmptyResponse);
    let hidden = world.rows(&result.conversation, View::Model).await;
    assert_eq!(hidden.iter().filter(|row| row.kind == MessageKind::Hidden).count(), 1, "exactly one");
    assert_eq!(model.requests().len(), 1 + 1 + 4);
    check_requests(&model.requests());
}

#[tokio::test]
async fn a_model_that_only_thinks_is_asked_to_think_less_and_then_given_up() {
    let world = World::new();
    let model = model((0..3).map(|_| Script::text("").with_reasoning("hm")));
    let mut parts = world.parts("e", model.clone());
    parts.settings.reasoning_effort = Some("high".to_owned());
    let result = ask(&Engine::new(parts), None, "go").await;
    assert_eq!(result.reason, EndReason::ThinkingExhausted);
    let efforts: Vec<_> = model.requests().into_iter().map(|request| request.reasoning_effort).collect();
    assert_eq!(efforts, [Some("high".to_owned()), Some("low".to_owned()), Some("low".to_owned())]);
}

#[tokio::test]
async fn thinking_that_uses_the_output_limit_up_is_not_paid_for_again_in_the_same_way() {
    let world = World::new();
    let model = model([Script::text("").with_reasoning("hm").with_finish(Finish::Length)]);
    let result = ask(&world.engine("e", model.clone()), None, "go").await;
    assert_eq!((result.reason, model.requests().len()), (EndReason::ThinkingExhausted, 1));
}

#[tokio::test]
async fn a_loop_is_cut_off_while_it_streams_and_nothing_of_it_is_kept() {
    let text = "I will check it again. ".repeat(2_000);
    let table = [
        // The stream never ends by itself.
        Script::text_then_hang(text.clone()),
        Script::text(text.clone()),
        Script::completion(
            text.as_bytes().chunks(300).map(|c| Delta::Text(String::from_utf8_lossy(c).into_owned())).collect(),
            hermes_providers::Completion {
                text: text.clone(),
                reasoning: None,
                sidecar: None,
                calls: Vec::new(),
                finish: Finish::Length,
                finish_missing: false,
                usage: None,
                served_model: None,
            },
        ),
    ];
    for script in table {
        let world = World::new();
        let model = model([script, Script::text("fine")]);
        let engine = world.engine("e", model.clone());
        let result = ask(&engine, None, "go").await;
        assert_eq!((result.reason, result.answer.as_str()), (EndReason::RepetitionStopped, ""));
        let rows = world.rows(&result.conversation, View::Display).await;
        assert_eq!((rows.len(), rows[1].kind), (2, MessageKind::Boundary));
        assert!(!rows[1].content.contains("I will check"));
        ask(&engine, Some(&result.conversation), "more").await;
        check_requests(&model.requests());
    }
}

#[tokio::test]
async fn e51_b58_a_part_that_arrived_before_the_connection_broke_or_fell_silent_is_kept_when_nothing_more_comes() {
    let broken = |class| Script::text_then_error("Once upon", error(class));
    let incomplete = || broken(ErrorClass::Incomplete);
    let silent = || broken(ErrorClass::Timeout);
    for scripts in [
        vec![incomplete(), Script::text("")],
        (0..4).map(|_| incomplete()).collect(),
        vec![silent(), Script::text("")],
        (0..4).map(|_| silent()).collect(),
    ] {
        let world = World::new();
        let result = ask(&world.engine("e", model(scripts)), None, "tell").await;
        assert_eq!((result.reason, result.answer.as_str()), (EndReason::PartialAnswer, "Once upon"));
        assert!(result.error.unwrap().retryable);
        let rows = world.rows(&result.conversation, View::Display).await;
        assert_eq!(short(&rows)[1..], ["assistant/partial:Once upon"]);
        assert_eq!(streamed(&world.events.all()), "Once upon");
    }
}

#[tokio::test]
async fn e51_text_before_a_call_that_is_asked_for_again_is_shown_once() {
    let world = World::new();
    let model = model([
        torn(Finish::Length).with_text("Let me look."),
        calls("a").with_text("Let me look."),
        Script::text("ok"),
    ]);
    ask(&world.engine("e", model), None, "go").await;
    let events = world.events.all();
    let deltas =
        events.iter().filter(|e| matches!(&e.kind, EventKind::TextDelta { text } if text.contains("look"))).count();
    assert_eq!(deltas, 1);
    assert!(!events.iter().any(|e| matches!(e.kind, EventKind::TextRestarted)));
}

fn signed(id: &str) -> Script {
    let sidecar = Sidecar { issuer: "me".into(), bytes: id.to_owned().into_bytes().into() };
    calls(id).with_sidecar(sidecar)
}

/// The opaque state of each answer in the request.
fn sidecars(request: &ChatRequest) -> Vec<Option<String>> {
    let of = |message: &ChatMessage| match message {
        ChatMessage::Assistant { sidecar, .. } => {
            Some(sidecar.as_ref().map(|sidecar| String::from_utf8_lossy(&sidecar.bytes).into_owned()))
        }
        _ => None,
    };
    request.messages.iter().filter_map(of).collect()
}

#[tokio::test]
async fn b26_refused_opaque_state_is_left_out_once_and_a_second_refusal_ends_the_turn() {
    let refused = || Script::error(error(ErrorClass::SidecarRefused));
    let world = World::new();
    let model = model([signed("a"), refused(), signed("b"), Script::text("done"), Script::text("next")]);
    let engine = world.engine("e", model.clone());
    let first = ask(&engine, None, "go").await;
    assert_eq!((first.reason, first.answer.as_str()), (EndReason::Answered, "done"));
    let (a, b) = (Some("a".to_owned()), Some("b".to_owned()));
    let sent: Vec<_> = model.requests().iter().map(sidecars).collect();
    // What is made afterwards is kept, and so are the stored rows.
    assert_eq!(sent, [vec![], vec![a.clone()], vec![None], vec![None, b.clone()]]);
    ask(&engine, Some(&first.conversation), "more").await;
    assert_eq!(sidecars(&model.requests()[4]), [a, b, None]);

    let model = crate::support::model([signed("a"), refused(), refused(), Script::text("never asked")]);
    let engine = World::new().engine("e", model.clone());
    let second = ask(&engine, None, "go").await;
    assert_eq!((second.reason, model.requests().len(), model.left()), (EndReason::RequestRefused, 3, 1));
    // Nothing to leave out, nothing to send again.
    let model = crate::support::model([refused(), Script::text("never asked")]);
    let engine = World::new().engine("e", model.clone());
    assert_eq!((ask(&engine, None, "go").await.reason, model.left()), (EndReason::RequestRefused, 1));
}

#[tokio::test]
async fn b31_a_malformed_call_is_asked_for_once_more_and_then_an_error() {
    let malformed = |text: &str| Script::text(text).with_finish(Finish::MalformedCall);
    for (text, answer) in [("", ""), ("I will call it.", "I will call it.")] {
        let model = model([malformed(text), malformed(text), Script::text("never asked")]);
        let engine = World::new().engine("e", model.clone());
        let result = ask(&engine, None, "go").await;
        assert_eq!((result.reason, model.left(), result.answer.as_str()), (EndReason::InvalidCalls, 1, answer));
        assert!(result.error.is_some());
    }
    let model = model([malformed(""), Script::text("fine")]);
    let engine = World::new().engine("e", model.clone());
    assert_eq!(ask(&engine, None, "go").await.reason, EndReason::Answered);
}

#[tokio::test]
async fn e47_a_compression_between_two_parts_of_an_answer_loses_none_for_people() {
    let world = World::new();
    let part = |name: &str| format!("{name}: {}", long(20_000));
    let (first, second) = (part("One"), part("Two"));
    let mut scripts: Vec<Script> = (0..2).map(|_| Script::text(long(36_000))).collect();
    scripts.extend([cut(&first), cut(&second), Script::text("notes"), Script::text(" The end."), Script::text("fine")]);
    let chosen = named("chosen", 131_072, scripts);
    let engine = world.engine("e", chosen.clone());
    let conversation = ask(&engine, None, "a").await.conversation;
    ask(&engine, Some(&conversation), "b").await;
    let end = ask(&engine, Some(&conversation), "tell").await;
    let whole = format!("{first}{second} The end.");
    assert_eq!(end.reason, EndReason::Answered, "{:?}", end.error);
    assert!(world.events.all().iter().any(|event| matches!(event.kind, EventKind::Compressed { .. })));
    assert_eq!(end.answer, whole);
    let rows = world.rows(&conversation, View::Display).await;
    assert_eq!(rows.last().unwrap().content, whole);
    // The model went on with what it saw of its answer, under its request.
    let requests = chosen.requests();
    let asked = &requests.last().unwrap().messages;
    assert!(asked.iter().any(|message| matches!(message, ChatMessage::User { text, .. } if text.ends_with("tell"))));
    assert!(asked.iter().any(|message| matches!(message, ChatMessage::Assistant { text, .. } if *text == second)));
    ask(&engine, Some(&conversation), "more").await;
    check_pairs(&chosen.requests().last().unwrap().messages);
}
