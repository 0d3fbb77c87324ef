//! Models that stand in for one that gives no answer.

use std::sync::Arc;

use hermes_core::{EndReason, Engine, EngineParts, EventKind};
use hermes_providers::{ChatMessage, ErrorClass, Finish, ProviderError, Script, ScriptedModel, Usage};
use hermes_store::{SessionStore as _, View};

use crate::support::{World, ask, calls, check_pairs, check_requests, error, model, short, streamed};

/// A stand-in with a name of its own, and perhaps another window.
fn stand_in(name: &str, window: u64, scripts: impl IntoIterator<Item = Script>) -> Arc<ScriptedModel> {
    let mut info = ScriptedModel::test_info();
    info.model = name.into();
    info.context_window = Some(window);
    let model = ScriptedModel::new(info);
    scripts.into_iter().for_each(|script| model.push(script));
    Arc::new(model)
}

fn engine(world: &World, chosen: &Arc<ScriptedModel>, others: &[&Arc<ScriptedModel>]) -> Engine {
    let mut parts: EngineParts = world.parts("e", chosen.clone());
    for other in others {
        parts.fallbacks.push(Arc::clone(other) as _);
    }
    Engine::new(parts)
}

fn fail(class: ErrorClass) -> Script {
    Script::error(error(class))
}

#[tokio::test]
async fn i21_a_stand_in_gets_the_same_canonical_history_and_the_session_stays_the_chosen_model_s() {
    let world = World::new();
    let chosen = model([calls("a"), fail(ErrorClass::RateLimit)]);
    let other = stand_in("other", 128_000, [Script::text("from the other")]);
    let engine = engine(&world, &chosen, &[&other]);
    let first = ask(&engine, None, "first").await;
    assert_eq!((first.reason, first.answer.as_str()), (EndReason::Answered, "from the other"));
    assert_eq!(world.ledger.effects().len(), 1, "the call was not run again");
    let (asked, told) = (chosen.requests(), other.requests());
    assert_eq!((asked.len(), told.len()), (2, 1), "a provider that has had enough is not asked again");
    assert_eq!(told[0].messages, asked[1].messages);
    assert_eq!((&told[0].system, &told[0].tools), (&asked[1].system, &asked[1].tools));
    check_requests(&asked);
    let record = world.store.conversation(&first.conversation).await.unwrap();
    assert_eq!(record.model.as_deref(), Some("scripted-model"), "who stood in is no property of the session");
    let notices: Vec<_> =
        world.events.all().into_iter().filter(|e| matches!(e.kind, EventKind::Notice { .. })).collect();
    assert_eq!(notices.len(), 1, "{notices:?}");

    // While the chosen one rests, a turn begins with the other; afterwards with the chosen one again.
    other.push(Script::text("still the other"));
    assert_eq!(ask(&engine, Some(&first.conversation), "second").await.answer, "still the other");
    assert_eq!(chosen.requests().len(), 2);
    world.clock.push(120_000);
    chosen.push(Script::text("back"));
    assert_eq!(ask(&engine, Some(&first.conversation), "third").await.answer, "back");
    check_pairs(&chosen.requests().last().unwrap().messages);
}

#[tokio::test]
async fn every_route_is_asked_once_and_the_last_one_s_word_ends_the_turn() {
    let world = World::new();
    let chosen = model([fail(ErrorClass::Auth)]);
    let second = stand_in("second", 128_000, [fail(ErrorClass::ModelNotFound)]);
    let third = stand_in("third", 128_000, (0..4).map(|_| fail(ErrorClass::ServerError)));
    let engine = engine(&world, &chosen, &[&second, &third]);
    let end = ask(&engine, None, "x").await;
    assert_eq!(end.reason, EndReason::RetriesExhausted);
    let counts = [&chosen, &second, &third].map(|model| model.requests().len());
    assert_eq!(counts, [1, 1, 4]);
    // The next turn begins at the beginning: none of these failures is one that rest mends.
    chosen.push(Script::text("hello"));
    assert_eq!(ask(&engine, Some(&end.conversation), "y").await.answer, "hello");
}

#[tokio::test]
async fn what_one_provider_refuses_to_speak_of_is_asked_of_one_other() {
    let world = World::new();
    let chosen = model([fail(ErrorClass::ContentPolicy)]);
    let second = stand_in("second", 128_000, [fail(ErrorClass::ContentPolicy)]);
    let third = stand_in("third", 128_000, [Script::text("never")]);
    let engine = engine(&world, &chosen, &[&second, &third]);
    assert_eq!(ask(&engine, None, "x").await.reason, EndReason::ContentBlocked);
    assert_eq!(third.requests().len(), 0);
}

#[tokio::test]
async fn e46_preflight_is_done_again_before_the_first_request_to_a_smaller_window() {
    let world = World::new();
    let long = (0..12_000).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
    let mut scripts: Vec<Script> = (0..6).map(|n| Script::text(format!("{n} {long}"))).collect();
    scripts.push(fail(ErrorClass::Billing));
    let chosen = stand_in("chosen", 1_000_000, scripts);
    let small = stand_in("small", 64_000, [Script::text("a summary of what was said"), Script::text("short")]);
    let engine = engine(&world, &chosen, &[&small]);
    let first = ask(&engine, None, "0").await;
    for n in 1..6 {
        ask(&engine, Some(&first.conversation), &n.to_string()).await;
    }
    let end = ask(&engine, Some(&first.conversation), "now").await;
    assert_eq!((end.reason, end.answer.as_str()), (EndReason::Answered, "short"), "{:?}", end.error);
    let kinds: Vec<_> = world.events.all().into_iter().map(|event| event.kind).collect();
    let fell = kinds.iter().rposition(|kind| matches!(kind, EventKind::Notice { .. })).unwrap();
    let shortened = kinds.iter().rposition(|kind| matches!(kind, EventKind::CompressionStarted { .. })).unwrap();
    let asked = kinds.iter().rposition(|kind| matches!(kind, EventKind::RequestStarted { .. })).unwrap();
    assert!(fell < shortened && shortened < asked, "{fell} {shortened} {asked}");
    let before = chosen.requests().last().unwrap().messages.len();
    assert!(small.requests().last().unwrap().messages.len() < before);
    check_pairs(&small.requests().last().unwrap().messages);
}

#[tokio::test]
async fn a_history_that_cannot_be_shortened_goes_to_a_stand_in_with_more_room() {
    let world = World::new();
    let chosen = model([fail(ErrorClass::ContextOverflow)]);
    let smaller = stand_in("smaller", 64_000, []);
    let world_parts = engine(&world, &chosen, &[&smaller]);
    assert_eq!(ask(&world_parts, None, "x").await.reason, EndReason::ContextOverflow, "no more room there");
    assert_eq!(smaller.requests().len(), 0);

    let world = World::new();
    let chosen = model([fail(ErrorClass::ContextOverflow)]);
    let larger = stand_in("larger", 1_000_000, [Script::text("fits")]);
    let engine = engine(&world, &chosen, &[&larger]);
    assert_eq!(ask(&engine, None, "x").await.answer, "fits");
}

#[tokio::test]
async fn text_that_was_shown_before_the_fall_is_taken_back_only_where_the_new_one_parts_from_it() {
    let world = World::new();
    let broken = Script::text_then_error("half of an ", error(ErrorClass::Overloaded));
    let chosen = model([broken.clone(), broken]);
    let other = stand_in("other", 128_000, [Script::text("another answer")]);
    let engine = engine(&world, &chosen, &[&other]);
    let end = ask(&engine, None, "x").await;
    assert_eq!(end.answer, "another answer");
    assert_eq!(streamed(&world.events.all()), "another answer");
    let rows = world.rows(&end.conversation, View::Display).await;
    assert_eq!(short(&rows), ["user/normal:x", "assistant/normal:another answer"]);
}

#[tokio::test]
async fn b56_another_key_is_asked_at_once_before_any_stand_in_and_costs_no_attempt() {
    let world = World::new();
    let rotated = || Script::error(ProviderError { another_key: true, ..error(ErrorClass::RateLimit) });
    let last = [fail(ErrorClass::ServerError), fail(ErrorClass::ServerError), fail(ErrorClass::ServerError)];
    let scripts = (0..3).map(|_| rotated()).chain(last).chain([Script::text("at last")]);
    let chosen = model(scripts);
    let other = stand_in("other", 128_000, []);
    let end = ask(&engine(&world, &chosen, &[&other]), None, "x").await;
    assert_eq!((end.reason, end.answer.as_str()), (EndReason::Answered, "at last"));
    assert_eq!((chosen.requests().len(), other.requests().len()), (7, 0));
    let waits = world.events.all().into_iter().filter(|e| matches!(e.kind, EventKind::Retrying { .. })).count();
    assert_eq!(waits, 3, "only the last key's failures are waited for");
}

#[tokio::test]
async fn the_summary_of_a_used_up_budget_may_come_from_a_stand_in() {
    let world = World::new();
    let chosen = model([calls("a"), fail(ErrorClass::RateLimit)]);
    let other = stand_in("other", 128_000, [Script::text("this is where I am")]);
    let mut parts = world.parts("e", chosen.clone());
    parts.fallbacks.push(other.clone());
    parts.settings.max_iterations = Some(1);
    let end = ask(&Engine::new(parts), None, "x").await;
    assert_eq!((end.reason, end.answer.as_str()), (EndReason::BudgetExhausted, "this is where I am"));
    match other.requests()[0].messages.last() {
        Some(ChatMessage::User { .. }) => {}
        last => panic!("asked for a summary: {last:?}"),
    }
}

#[tokio::test]
async fn e49_answers_with_nothing_in_them_go_to_a_stand_in_and_cost_no_step() {
    let nothing = || Script::text("").with_usage(Usage { output: Some(0), ..Usage::default() });
    let thought = || Script::text("").with_reasoning("hm");
    let cases = [
        ("two that provably cost nothing", vec![nothing(), nothing()]),
        ("four without proof", (0..4).map(|_| Script::text("")).collect()),
        ("nothing but thinking", (0..3).map(|_| thought()).collect()),
    ];
    for (what, scripts) in cases {
        let world = World::new();
        let steps = scripts.len();
        let chosen = model(scripts);
        let other = stand_in("other", 128_000, [Script::text("here I am")]);
        let mut parts = world.parts("e", chosen.clone());
        parts.fallbacks.push(other.clone());
        parts.settings.max_iterations = Some(steps as u64);
        let end = ask(&Engine::new(parts), None, "go").await;
        assert_eq!((end.reason, end.answer.as_str()), (EndReason::Answered, "here I am"), "{what}: {:?}", end.error);
        assert_eq!((chosen.requests().len(), other.requests().len()), (steps, 1), "{what}");
        assert_eq!(other.requests()[0].messages, chosen.requests()[0].messages, "{what}");
        let rows = world.rows(&end.conversation, View::Model).await;
        assert_eq!(short(&rows), ["user/normal:go", "assistant/normal:here I am"], "{what}: nothing else is kept");
    }
    // Where the stand-in has nothing to say either, the turn ends as it did.
    let world = World::new();
    let (chosen, other) = (model([nothing(), nothing()]), stand_in("other", 128_000, [nothing(), nothing()]));
    let end = ask(&engine(&world, &chosen, &[&other]), None, "go").await;
    assert_eq!((end.reason, end.api_calls), (EndReason::EmptyResponse, 4));
}

#[tokio::test]
async fn what_one_provider_withholds_in_the_middle_is_asked_of_one_other() {
    let world = World::new();
    let withheld = |text: &str| Script::text(text).with_finish(Finish::ContentFilter);
    let chosen = model([withheld("I would rath")]);
    let second = stand_in("second", 128_000, [Script::text("it is so")]);
    let end = ask(&engine(&world, &chosen, &[&second]), None, "go").await;
    assert_eq!((end.reason, end.answer.as_str()), (EndReason::Answered, "it is so"), "{:?}", end.error);
    assert_eq!(streamed(&world.events.all()), "it is so", "what was withheld is void");
    let rows = world.rows(&end.conversation, View::Model).await;
    assert_eq!(short(&rows), ["user/normal:go", "assistant/normal:it is so"]);
    // The second refusal is the last word, and what there is of it is kept.
    let world = World::new();
    let chosen = model([withheld("I would rath")]);
    let second = stand_in("second", 128_000, [withheld("not say")]);
    let third = stand_in("third", 128_000, []);
    let end = ask(&engine(&world, &chosen, &[&second, &third]), None, "go").await;
    assert_eq!((end.reason, end.answer.as_str()), (EndReason::ContentBlocked, "not say"));
    assert!(third.requests().is_empty());
}

#[tokio::test]
async fn e44_an_output_cap_without_a_number_takes_nothing_of_the_history_away() {
    let refusal = || fail(ErrorClass::OutputCap);
    let world = World::new();
    let long = "many words of it ".repeat(9_000);
    let chosen = model((0..3).map(|_| Script::text(long.clone())).chain([refusal()]));
    let alone = engine(&world, &chosen, &[]);
    let first = ask(&alone, None, "0").await;
    for n in ["1", "2"] {
        ask(&alone, Some(&first.conversation), n).await;
    }
    let end = ask(&alone, Some(&first.conversation), "3").await;
    assert_eq!((end.reason, chosen.requests().len()), (EndReason::RequestRefused, 4), "{:?}", end.error);
    assert!(!world.events.all().iter().any(|event| matches!(event.kind, EventKind::CompressionStarted { .. })));
    // A stand-in may have another cap.
    let world = World::new();
    let chosen = model([refusal()]);
    let other = stand_in("other", 128_000, [Script::text("with room")]);
    assert_eq!(ask(&engine(&world, &chosen, &[&other]), None, "go").await.answer, "with room");
}
