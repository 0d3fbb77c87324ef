//! Models of tasks beside the turn: who is asked, how often, and what is counted.

use std::sync::Arc;

use hermes_core::{Auxiliary, EndReason, Engine, EventKind};
use hermes_providers::{ErrorClass, Script, ScriptedModel, Usage};
use hermes_store::{SessionStore as _, UsageTotals, View};

use crate::support::{World, ask, check_pairs, error, model};

/// A model with a name and a window of its own.
pub fn named(name: &str, window: u64, scripts: impl IntoIterator<Item = Script>) -> Arc<ScriptedModel> {
    let mut info = ScriptedModel::test_info();
    info.model = name.into();
    info.context_window = Some(window);
    let model = ScriptedModel::new(info);
    scripts.into_iter().for_each(|script| model.push(script));
    Arc::new(model)
}

/// About `tokens` tokens of words that differ.
pub fn long(tokens: usize) -> String {
    (0..tokens * 4 / 6).map(|n| format!("{:05}", n % 100_000)).collect::<Vec<_>>().join(" ")
}

/// A main model with a window of 131,072 tokens, whose history is over its threshold before the fourth input, and an
/// engine in which `notes` writes the notes.
fn world_with(
    main: impl IntoIterator<Item = Script>,
    notes: &Arc<ScriptedModel>,
) -> (World, Arc<ScriptedModel>, Engine) {
    let world = World::paused();
    let scripts = (0..3).map(|_| Script::text(long(36_000)));
    let chosen = named("chosen", 131_072, scripts.chain(main));
    let mut parts = world.parts("e", chosen.clone());
    parts.auxiliary = Auxiliary { compression: Some(notes.clone()), ..Auxiliary::default() };
    (world, chosen, Engine::new(parts))
}

/// Three long turns and a fourth, before which the history is shortened.
async fn four_turns(engine: &Engine) -> hermes_core::TurnResult {
    let first = ask(engine, None, "first").await;
    for text in ["second", "third"] {
        ask(engine, Some(&first.conversation), text).await;
    }
    ask(engine, Some(&first.conversation), "fourth").await
}

async fn of_task(world: &World, result: &hermes_core::TurnResult, task: &str) -> Vec<UsageTotals> {
    let all = world.store.usage(&result.conversation).await.unwrap();
    all.into_iter().filter(|sums| sums.task == task).collect()
}

fn shortened(world: &World) -> usize {
    world.events.all().iter().filter(|event| matches!(event.kind, EventKind::Compressed { .. })).count()
}

#[tokio::test(start_paused = true)]
async fn notes_are_written_by_the_task_s_own_model_and_counted_as_its() {
    let usage = Usage { input_uncached: Some(70), output: Some(7), ..Usage::default() };
    let notes = named("notes", 131_072, [Script::text("what was said").with_usage(usage)]);
    let (world, chosen, engine) = world_with([Script::text("done")], &notes);
    let end = four_turns(&engine).await;
    assert_eq!((end.reason, end.answer.as_str()), (EndReason::Answered, "done"), "{:?}", end.error);
    assert_eq!((chosen.requests().len(), notes.requests().len(), shortened(&world)), (4, 1, 1));
    assert!(notes.requests()[0].tools.is_empty(), "the summariser has no tools");
    let sums = of_task(&world, &end, "compression").await;
    let sums: Vec<_> = sums.iter().map(|sums| (sums.model.as_str(), sums.requests, sums.input, sums.output)).collect();
    assert_eq!(sums, [("notes", 1, 70, 7)]);
    assert_eq!((end.usage.requests, end.usage.model.as_str()), (2, "chosen"), "both count for the turn");
    check_pairs(&chosen.requests()[3].messages);
    let record = world.store.conversation(&end.conversation).await.unwrap();
    assert_eq!(record.model.as_deref(), Some("chosen"), "who writes notes is no property of the session");
}

#[tokio::test(start_paused = true)]
async fn a_summariser_that_gives_no_answer_gives_way_to_the_turn_s_model() {
    for (class, attempts) in [(ErrorClass::Auth, 1), (ErrorClass::RateLimit, 1), (ErrorClass::ServerError, 3)] {
        let notes = named("notes", 131_072, (0..attempts).map(|_| Script::error(error(class))));
        let (world, chosen, engine) = world_with([Script::text("notes of the chosen"), Script::text("done")], &notes);
        let end = four_turns(&engine).await;
        assert_eq!(end.answer, "done", "{class:?}: {:?}", end.error);
        assert_eq!((notes.requests().len(), chosen.requests().len(), shortened(&world)), (attempts, 5, 1), "{class:?}");
        let sums = of_task(&world, &end, "compression").await;
        let sums: Vec<_> = sums.iter().map(|sums| (sums.model.as_str(), sums.requests)).collect();
        assert_eq!(sums, [("chosen", 1), ("notes", attempts as u64)], "{class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn e37_when_no_model_writes_notes_the_history_stays_and_the_turn_goes_on() {
    let fails = |class: ErrorClass| Script::error(error(class));
    let notes = named("notes", 131_072, [fails(ErrorClass::Billing)]);
    let (world, chosen, engine) = world_with([fails(ErrorClass::Auth), Script::text("done all the same")], &notes);
    let end = four_turns(&engine).await;
    assert_eq!((end.reason, end.answer.as_str()), (EndReason::Answered, "done all the same"), "{:?}", end.error);
    assert_eq!(shortened(&world), 0);
    let rows = world.rows(&end.conversation, View::Model).await;
    assert_eq!(rows.len(), 8, "nothing was taken away");
    // The failure is waited out: the next turn asks nobody for notes.
    chosen.push(Script::text("next"));
    assert_eq!(ask(&engine, Some(&end.conversation), "fifth").await.answer, "next");
    assert_eq!(notes.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_summariser_that_is_silent_is_given_up_after_its_time_and_the_turn_s_model_has_its_own() {
    let notes = named("notes", 131_072, [Script::hang()]);
    let (world, chosen, engine) = world_with([Script::text("notes of the chosen"), Script::text("done")], &notes);
    let begun = hermes_core::Clock::now_ms(world.clock.as_ref());
    let end = four_turns(&engine).await;
    assert_eq!((end.answer.as_str(), shortened(&world)), ("done", 1), "{:?}", end.error);
    let waited = hermes_core::Clock::now_ms(world.clock.as_ref()) - begun;
    assert!(waited >= i64::try_from(hermes_core::limits::SUMMARY_TIMEOUT_MS).unwrap(), "{waited} ms");
    assert_eq!((notes.requests().len(), chosen.requests().len()), (1, 5));
}

#[tokio::test(start_paused = true)]
async fn a_history_is_shortened_before_it_outgrows_the_model_that_is_to_read_it() {
    // The chosen model would take 500,000 tokens; the one that writes notes can read about 68,000.
    let notes = named("notes", 80_000, [Script::text("what was said")]);
    let five = || (0..4).map(|_| Script::text(long(20_000))).chain([Script::text("done")]);
    let inputs = ["second", "third", "fourth", "fifth"];
    let world = World::paused();
    let chosen = named("chosen", 1_000_000, five());
    let mut parts = world.parts("e", chosen.clone());
    parts.auxiliary = Auxiliary { compression: Some(notes.clone()), ..Auxiliary::default() };
    let engine = Engine::new(parts);
    let first = ask(&engine, None, "first").await;
    for text in inputs {
        ask(&engine, Some(&first.conversation), text).await;
    }
    assert_eq!((notes.requests().len(), chosen.requests().len(), shortened(&world)), (1, 5, 1));

    // Without a model of its own the turn's reads, and nothing is shortened so early.
    let world = World::paused();
    let engine = world.engine("e", named("alone", 1_000_000, five()));
    let first = ask(&engine, None, "first").await;
    for text in inputs {
        ask(&engine, Some(&first.conversation), text).await;
    }
    assert_eq!(shortened(&world), 0);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_has_had_enough_rests_and_comes_back() {
    let limited = || Script::error(error(ErrorClass::RateLimit));
    let notes = named("notes", 131_072, [limited()]);
    let mut main = Vec::new();
    for n in 0..3 {
        main.push(Script::text("notes of the chosen"));
        main.push(Script::text(if n == 2 { "done".to_owned() } else { long(110_000) }));
    }
    let (world, _, engine) = world_with(main, &notes);
    let end = four_turns(&engine).await;
    ask(&engine, Some(&end.conversation), "fifth").await;
    assert_eq!((notes.requests().len(), shortened(&world)), (1, 2), "it is left alone while it rests");
    world.clock.push(120_000);
    notes.push(Script::text("notes of its own"));
    ask(&engine, Some(&end.conversation), "sixth").await;
    assert_eq!((notes.requests().len(), shortened(&world)), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn the_same_model_named_twice_is_asked_once() {
    let world = World::paused();
    let chosen = model((0..3).map(|_| Script::text(long(36_000))));
    let mut parts = world.parts("e", chosen.clone());
    let twin = Arc::new(ScriptedModel::new(ScriptedModel::test_info()));
    parts.auxiliary = Auxiliary::all(twin.clone());
    let engine = Engine::new(parts);
    [Script::error(error(ErrorClass::Auth)), Script::text("done")].into_iter().for_each(|script| chosen.push(script));
    let end = four_turns(&engine).await;
    assert_eq!(end.answer, "done");
    assert_eq!((twin.requests().len(), shortened(&world)), (0, 0), "it would fail in the same way");
}
