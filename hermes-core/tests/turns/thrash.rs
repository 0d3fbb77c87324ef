//! Compressions that bring too little, and compressions after a pause.

use std::sync::Arc;

use async_trait::async_trait;
use hermes_core::{
    Auxiliary, CompactError, CompressionSettings, ContextEngine, EndReason, Engine, EngineSettings, EventKind, History,
    NewView, Summarizer, SummaryEngine, ViewPart,
};
use hermes_providers::{Script, Usage};
use hermes_store::{ConversationId, MessageKind, Role};

use crate::auxiliary::{long, named};
use crate::support::{World, ask, calls, check_pairs};

/// Tokens from which [`Nibble`] shortens.
const THRESHOLD: u64 = 3_000;

/// Takes the oldest exchange out and nothing else.
struct Nibble;

#[async_trait]
impl ContextEngine for Nibble {
    fn threshold(&self, _window: u64, _max_output_tokens: Option<u64>) -> Option<u64> {
        Some(THRESHOLD)
    }

    async fn compact(&self, history: History<'_>, _model: &dyn Summarizer) -> Result<NewView, CompactError> {
        let rows = history.rows.iter().enumerate();
        let inputs = rows.filter(|(_, row)| row.role == Role::User && row.kind != MessageKind::Summary);
        let from = inputs.map(|(index, _)| index).nth(1).ok_or(CompactError::Nothing)?;
        let note = ViewPart::Summary { content: "[Something is left out.]".to_owned() };
        let kept = (from..history.rows.len()).map(|index| ViewPart::Carried { index, content: None });
        Ok(NewView { rows: std::iter::once(note).chain(kept).collect() })
    }
}

/// An answer whose request the provider counted as so large.
fn counted(script: Script, tokens: u64) -> Script {
    script.with_usage(Usage { input_uncached: Some(tokens), output: Some(1), ..Usage::default() })
}

fn shortened(world: &World) -> usize {
    world.events.all().iter().filter(|event| matches!(event.kind, EventKind::Compressed { .. })).count()
}

/// How often a person was told that none is begun for a while.
fn told(world: &World) -> usize {
    let is =
        |kind: &EventKind| matches!(kind, EventKind::Notice { text } if text.contains("two compressions in a row"));
    world.events.all().iter().filter(|event| is(&event.kind)).count()
}

async fn three_turns(engine: &Engine) -> ConversationId {
    let first = ask(engine, None, "first").await;
    for text in ["second", "third"] {
        assert_eq!(ask(engine, Some(&first.conversation), text).await.reason, EndReason::Answered);
    }
    first.conversation
}

#[tokio::test(start_paused = true)]
async fn e38_two_compressions_in_vain_are_the_last_for_a_while_and_one_tries_again() {
    let world = World::paused();
    // What the provider counts is over the threshold whatever is left out: the rest of the request is as large as that.
    let over = |script| counted(script, THRESHOLD * 2);
    let turns = [
        vec![over(calls("a")), over(calls("b")), over(calls("c")), over(Script::text("fourth"))],
        vec![over(calls("d")), over(Script::text("fifth"))],
        vec![over(calls("e")), over(calls("f")), over(calls("g")), over(Script::text("sixth"))],
    ];
    let before = (0..3).map(|_| counted(Script::text(long(1_100)), 100));
    let model = named("chosen", 131_072, before.chain(turns.into_iter().flatten()));
    let mut parts = world.parts("e", model.clone());
    parts.context = Arc::new(Nibble);
    parts.settings.compression.attempts_max = 10;
    let engine = Engine::new(parts);
    let conversation = three_turns(&engine).await;
    assert_eq!((shortened(&world), told(&world)), (0, 0));

    // Over by estimate, then twice by count: the third is not begun, although the turn would have more attempts.
    let end = ask(&engine, Some(&conversation), "fourth").await;
    assert_eq!((end.answer.as_str(), shortened(&world), told(&world)), ("fourth", 2, 1), "{:?}", end.error);
    // The wait is remembered with the session: another engine keeps it too.
    let mut parts = world.parts("other", model.clone());
    parts.context = Arc::new(Nibble);
    let end = ask(&Engine::new(parts), Some(&conversation), "fifth").await;
    assert_eq!((end.answer.as_str(), shortened(&world), told(&world)), ("fifth", 2, 1), "{:?}", end.error);
    // Behind it one may try; it is in vain too, and the next one waits again.
    world.clock.push(301_000);
    let end = ask(&engine, Some(&conversation), "sixth").await;
    assert_eq!((end.answer.as_str(), shortened(&world), told(&world)), ("sixth", 3, 2), "{:?}", end.error);
    for request in model.requests() {
        check_pairs(&request.messages);
    }
}

#[tokio::test(start_paused = true)]
async fn e38_programs_that_are_begun_for_each_input_know_what_was_in_vain() {
    let world = World::paused();
    let over = |script| counted(script, THRESHOLD * 2);
    let scripts = (0..3).map(|_| counted(Script::text(long(1_100)), 100));
    let later = (0..8).map(|_| over(Script::text(long(1_100))));
    let model = named("chosen", 131_072, scripts.chain(later));
    let process = |number: usize| {
        let mut parts = world.parts(&format!("p{number}"), model.clone());
        parts.context = Arc::new(Nibble);
        parts.settings.compression.attempts_max = 1;
        Engine::new(parts)
    };
    let conversation = three_turns(&process(0)).await;
    let mut seen = Vec::new();
    for number in 1..7 {
        let end = ask(&process(number), Some(&conversation), &format!("input {number}")).await;
        assert_eq!(end.reason, EndReason::Answered, "{:?}", end.error);
        seen.push((shortened(&world), told(&world)));
    }
    assert_eq!(seen, [(1, 0), (2, 0), (2, 1), (2, 1), (2, 1), (2, 1)]);
    // Behind the wait one may try.
    world.clock.push(301_000);
    ask(&process(7), Some(&conversation), "later").await;
    assert_eq!((shortened(&world), told(&world)), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn compressions_that_bring_enough_are_not_counted_against_the_next_one() {
    let world = World::paused();
    let under = |script| counted(script, 500);
    let scripts = (0..12).map(|_| under(Script::text(long(1_100))));
    let mut parts = world.parts("e", named("chosen", 131_072, scripts));
    parts.context = Arc::new(Nibble);
    let engine = Engine::new(parts);
    let conversation = three_turns(&engine).await;
    for text in ["fourth", "fifth", "sixth", "seventh", "eighth"] {
        ask(&engine, Some(&conversation), text).await;
    }
    assert!(shortened(&world) >= 4, "{}", shortened(&world));
    assert_eq!(told(&world), 0);
}

/// An engine that shortens after an hour's pause, and the model that writes its notes.
fn idle_engine(world: &World, tokens: usize) -> (Engine, Arc<hermes_providers::ScriptedModel>) {
    let notes = named("notes", 131_072, [Script::text("what was said")]);
    let model = named("chosen", 131_072, (0..6).map(|_| Script::text(long(tokens))));
    let mut parts = world.parts("e", model);
    let compression = CompressionSettings { idle_after_ms: Some(3_600_000), ..CompressionSettings::default() };
    parts.context = Arc::new(SummaryEngine::new(compression.clone()));
    parts.settings = EngineSettings { compression, ..parts.settings };
    parts.auxiliary = Auxiliary { compression: Some(notes.clone()), ..Auxiliary::default() };
    (Engine::new(parts), notes)
}

#[tokio::test(start_paused = true)]
async fn a_history_is_shortened_after_a_pause_and_only_then() {
    let world = World::paused();
    let (engine, notes) = idle_engine(&world, 20_000);
    let conversation = three_turns(&engine).await;
    world.clock.push(3_000_000);
    ask(&engine, Some(&conversation), "fourth").await;
    assert_eq!((notes.requests().len(), shortened(&world)), (0, 0), "the pause was short");
    world.clock.push(3_700_000);
    let end = ask(&engine, Some(&conversation), "fifth").await;
    assert_eq!((end.reason, notes.requests().len(), shortened(&world)), (EndReason::Answered, 1, 1), "{:?}", end.error);
    // What is short is left alone, and nothing is waited out for it.
    let world = World::paused();
    let (engine, notes) = idle_engine(&world, 100);
    let conversation = three_turns(&engine).await;
    world.clock.push(3_700_000);
    ask(&engine, Some(&conversation), "fourth").await;
    assert_eq!((notes.requests().len(), shortened(&world)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn without_the_setting_a_pause_changes_nothing() {
    let world = World::paused();
    let engine = world.engine("e", named("chosen", 131_072, (0..4).map(|_| Script::text(long(20_000)))));
    let conversation = three_turns(&engine).await;
    world.clock.push(864_000_000);
    assert_eq!(ask(&engine, Some(&conversation), "fourth").await.reason, EndReason::Answered);
    assert_eq!(shortened(&world), 0);
}
