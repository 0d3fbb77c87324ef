//! Turns that go in circles, on hosts where somebody watches and where nobody does; calls that look alike.

use std::sync::Arc;

use hermes_core::testing::parts;
use hermes_core::{EndReason, Engine, EngineParts};
use hermes_providers::{ChatModel, Script};
use hermes_store::{AdmissionOutcome, MessageKind, Role, View};
use hermes_tools::scripted::LedgerTool;
use hermes_tools::{ReplaySafety, ToolRegistry};

use crate::support::{World, ask, calls, check_requests, model, results, short};

fn with_tools(world: &World, model: Arc<dyn ChatModel>, tools: Vec<LedgerTool>) -> EngineParts {
    let mut registry = ToolRegistry::new();
    for tool in tools {
        registry.register(Arc::new(tool)).unwrap();
    }
    parts("e", Arc::new(world.store.clone()), model, registry, world.clock.clone(), world.events.clone())
}

fn rounds(count: usize) -> impl Iterator<Item = Script> {
    (0..count).map(|n| calls(&format!("c{n}"))).chain([Script::text("done"), Script::text("fine")])
}

#[tokio::test]
async fn e53_five_identical_results_where_nobody_watches_halt_the_turn_with_a_visible_row() {
    let world = World::new();
    let model = model(rounds(5));
    let engine = world.engine("e", model.clone());
    let result = ask(&engine, None, "go").await;
    assert_eq!(result.reason, EndReason::GuardrailHalt);
    assert_eq!(result.reason.outcome(), AdmissionOutcome::Failed);
    let error = result.error.clone().unwrap();
    assert_eq!((error.code.as_str(), error.retryable), ("HM4019", false));
    assert_eq!((model.requests().len(), world.ledger.effects().len()), (5, 5));
    let rows = world.rows(&result.conversation, View::Display).await;
    let last = rows.last().unwrap();
    assert_eq!((last.role, last.kind), (Role::Assistant, MessageKind::Boundary));
    assert!(last.content.contains("act was called 5 times in a row"), "{}", last.content);
    assert_eq!(rows.iter().filter(|row| row.role == Role::Tool).count(), 5, "every call has its result");
    assert_eq!(ask(&engine, Some(&result.conversation), "more").await.answer, "done");
    check_requests(&model.requests());
}

#[tokio::test]
async fn e53_where_somebody_watches_the_model_is_warned_and_the_turn_goes_on() {
    let world = World::new();
    let model = model(rounds(7));
    let mut parts = world.parts("e", model.clone());
    parts.settings.guardrail_hard_stop = Some(false);
    let result = ask(&Engine::new(parts), None, "go").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"));
    let requests = model.requests();
    let told: Vec<bool> = results(requests.last().unwrap()).iter().map(|text| text.contains("[Note: ")).collect();
    assert_eq!(told, [false, false, true, true, true, true, true]);
    // A warning is part of the row when it is stored, and no stored row changes.
    let rows = world.rows(&result.conversation, View::Display).await;
    let stored: Vec<_> = rows.iter().filter(|row| row.role == Role::Tool).map(|row| row.content.as_str()).collect();
    assert_eq!(stored, results(requests.last().unwrap()));
    check_requests(&requests);
}

#[tokio::test]
async fn calls_that_fail_and_invalid_calls_are_told_and_counted() {
    let world = World::new();
    let failing = world.tool().failing("no such thing");
    let model = model(rounds(9));
    let result = ask(&Engine::new(with_tools(&world, model.clone(), vec![failing])), None, "go").await;
    assert_eq!(result.reason, EndReason::GuardrailHalt);
    assert!(result.error.unwrap().message.contains("failed 5 times with the same arguments"));
    let requests = model.requests();
    assert_eq!(requests.len(), 5);
    assert!(results(&requests[2])[1].contains("Note: act has failed 2 times"));
    // An unknown name beside a valid call is counted too.
    let world = World::new();
    let round = |n: usize| {
        let arguments = format!("{{\"n\":{n}}}");
        Script::calls([(format!("a{n}"), "act", arguments.as_str()), (format!("b{n}"), "nothing", "{}")])
    };
    let model = crate::support::model((0..8).map(round));
    let result = ask(&world.engine("e", model), None, "go").await;
    // The valid call has an effect each time, which begins the count of equal failures anew: the tool's own count ends it.
    assert_eq!(result.reason, EndReason::GuardrailHalt);
    assert!(result.error.unwrap().message.contains("nothing has failed 8 times in a row"));
}

#[tokio::test]
async fn a_large_result_that_repeats_is_stored_shown_and_replayed_as_a_reference() {
    let world = World::new();
    let large = "y".repeat(600);
    let tool = world.tool().answering(&large).replay(ReplaySafety::Pure);
    let model = model(rounds(3));
    let mut parts = with_tools(&world, model.clone(), vec![tool]);
    parts.settings.guardrail_hard_stop = Some(false);
    let engine = Engine::new(parts);
    let result = ask(&engine, None, "go").await;
    ask(&engine, Some(&result.conversation), "more").await;
    let requests = model.requests();
    let shown = results(requests.last().unwrap());
    assert!(shown[0] == large && shown[1].starts_with(&large) && !shown[2].contains(&large));
    assert!(shown[2].contains("the call c0 of act"), "{}", shown[2]);
    let rows = world.rows(&result.conversation, View::Display).await;
    let row = rows.iter().filter(|row| row.role == Role::Tool).nth(2).unwrap();
    assert_eq!(row.content, shown[2]);
    assert_eq!(row.meta.as_ref().unwrap()["same_bytes"], 600);
    check_requests(&requests);
}

#[tokio::test]
async fn searches_over_the_cap_are_refused_on_every_surface_and_end_the_turn() {
    let world = World::new();
    let search = LedgerTool::new("web_search", world.ledger.clone());
    let round = |from: usize, count: usize| {
        Script::calls((from..from + count).map(|n| (format!("c{n}"), "web_search", format!("{{\"n\":{n}}}"))))
    };
    let model = model([round(0, 48), round(48, 4), round(52, 4)]);
    let mut parts = with_tools(&world, model, vec![search]);
    parts.settings.guardrail_hard_stop = Some(false);
    let result = ask(&Engine::new(parts), None, "go").await;
    assert_eq!(result.reason, EndReason::GuardrailHalt);
    assert_eq!(world.ledger.effects().len(), 50);
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!(short(&rows).iter().filter(|row| *row == "tool:denied").count(), 6);
}

#[tokio::test]
async fn e13_two_equal_calls_in_one_answer_are_both_run_and_both_answered() {
    let world = World::new();
    let model = model([Script::calls([("a", "act", "{\"n\":1}"), ("b", "act", "{ \"n\": 1 }")]), Script::text("done")]);
    let result = ask(&world.engine("e", model.clone()), None, "go").await;
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!(short(&rows)[1..], ["assistant:[\"act\", \"act\"]", "tool:ok", "tool:ok", "assistant/normal:done"]);
    assert_eq!(world.ledger.effects().len(), 2);
    check_requests(&model.requests());
}

#[tokio::test]
async fn e15_ids_that_would_not_come_back_as_they_are_still_pair_and_no_result_is_lost() {
    let world = World::new();
    let composite = format!("call_{}|fc_{}", "x".repeat(60), "y".repeat(60));
    let ids = ["  ", " call 1 ", composite.as_str(), "call\u{e9}", "ok_1|fc_2"];
    let script = Script::calls(ids.iter().enumerate().map(|(n, id)| (*id, "act", format!("{{\"n\":{n}}}"))));
    let model = model([script, Script::text("done")]);
    let result = ask(&world.engine("e", model.clone()), None, "go").await;
    assert_eq!(result.reason, EndReason::Answered);
    let requests = model.requests();
    check_requests(&requests);
    let shown = results(&requests[1]);
    assert_eq!((shown.len(), world.ledger.effects().len()), (5, 5));
    assert!(shown.iter().all(|text| text.contains("done")), "no result is replaced by a stub: {shown:?}");
    let hermes_providers::ChatMessage::Assistant { calls, .. } = &requests[1].messages[1] else { panic!("no calls") };
    assert_eq!(calls[4].id, "ok_1|fc_2", "an id that can be kept is kept");
    assert!(calls.iter().all(|call| call.id.len() <= 64 && call.id.bytes().all(|b| b.is_ascii_graphic())));
}
