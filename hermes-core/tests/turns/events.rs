//! Events have places, clients that come back are told what they missed, and a request that does not begin with the one
//! before it is named.

use std::sync::Arc;

use hermes_core::testing::RecordedEvents;
use hermes_core::{Cursor, Engine, Event, EventKind, GapReason, Replay};
use hermes_providers::Script;
use hermes_store::{ConversationId, View};

use crate::support::{World, ask, calls, model, streamed};

fn of<'e>(events: &'e [Event], conversation: &ConversationId) -> Vec<&'e Event> {
    events.iter().filter(|event| event.conversation == *conversation).collect()
}

fn replayed(replay: Replay) -> Vec<Event> {
    match replay {
        Replay::Events { events, .. } => events,
        Replay::Gap { why, .. } => panic!("a gap: {why:?}"),
    }
}

#[tokio::test]
async fn i28_events_of_a_conversation_count_from_one_without_a_gap_and_the_next_turn_counts_on() {
    let world = World::new();
    let engine = world.engine("e", model([calls("c1"), Script::text("one"), Script::text("two"), Script::text("x")]));
    let first = ask(&engine, None, "first").await.conversation;
    ask(&engine, Some(&first), "second").await;
    let second = ask(&engine, None, "another").await.conversation;
    let events = world.events.all();
    for conversation in [&first, &second] {
        let seqs: Vec<u64> = of(&events, conversation).iter().map(|event| event.at.seq).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    }
    assert!(events.iter().all(|event| event.at.epoch == events[0].at.epoch && event.at.epoch != 0));
    let metrics = engine.metrics();
    assert_eq!((metrics.turns, metrics.requests, metrics.calls), (3, 4, 1));
    assert_eq!((metrics.events, metrics.events_dropped, metrics.prefix_broken), (events.len() as u64, 0, 0));
}

#[tokio::test]
async fn i28_a_client_that_left_at_any_event_gets_exactly_what_it_missed() {
    let world = World::new();
    let engine = world.engine("e", model([calls("c1"), Script::text("an answer in several pieces of text")]));
    let conversation = ask(&engine, None, "go").await.conversation;
    let events = world.events.all();
    for seen in 0..=events.len() {
        let after = Cursor { epoch: events[0].at.epoch, seq: seen as u64 };
        let mut shown: Vec<Event> = events[..seen].to_vec();
        let missed = replayed(engine.events_since(&conversation, after));
        assert!(missed.iter().all(|event| event.at.seq > after.seq));
        shown.extend(missed);
        assert_eq!(streamed(&shown), streamed(&events), "after {seen}");
        assert_eq!(shown.last(), events.last(), "the end is never missed");
        let no_text = |event: &&Event| !matches!(event.kind, EventKind::TextDelta { .. });
        assert!(shown.iter().filter(no_text).eq(events.iter().filter(no_text)), "after {seen}");
    }
}

#[tokio::test]
async fn i28_a_client_of_another_process_is_told_to_read_the_transcript() {
    let world = World::new();
    let engine = world.engine("e", model([Script::text("one")]));
    let conversation = ask(&engine, None, "go").await.conversation;
    let seen = world.events.all().last().unwrap().at;
    let other = world.engine("other", model([Script::text("two")]));
    let Replay::Gap { why: GapReason::OtherEpoch, until } = other.events_since(&conversation, seen) else { panic!() };
    assert_eq!(replayed(other.events_since(&conversation, until)), []);
    ask(&other, Some(&conversation), "more").await;
    let missed = replayed(other.events_since(&conversation, until));
    assert!(matches!(missed.last().unwrap().kind, EventKind::TurnEnded { .. }), "{missed:?}");
    assert!(matches!(engine.events_since(&conversation, Cursor::default()), Replay::Gap { .. }), "a new client");
}

/// Two turns; between them a row of the first is changed by hand. The events of the second engine.
async fn broken(row: usize, same_engine: bool) -> (Engine, Vec<EventKind>) {
    let world = World::new();
    let ear = Arc::new(RecordedEvents::default());
    let model = model([calls("c1"), Script::text("one"), Script::text("two"), Script::text("three")]);
    let mut parts = world.parts("e", model.clone());
    parts.events = ear.clone();
    let mut engine = Engine::new(parts);
    let conversation = ask(&engine, None, "first").await.conversation;
    if !same_engine {
        let mut parts = world.parts("later", model);
        parts.events = ear.clone();
        engine = Engine::new(parts);
    }
    let rows = world.rows(&conversation, View::Model).await;
    assert!(world.store.tamper(&rows[row].id, "something else"));
    for text in ["second", "third"] {
        ask(&engine, Some(&conversation), text).await;
    }
    let kinds = ear.all().into_iter().map(|event| event.kind);
    (engine, kinds.filter(|kind| matches!(kind, EventKind::PrefixBroken { .. })).collect())
}

#[tokio::test]
async fn i18_a_row_that_was_changed_is_named_by_its_message_once() {
    for (row, role) in [(0, "user"), (1, "assistant"), (2, "tool")] {
        let (engine, told) = broken(row, true).await;
        let [EventKind::PrefixBroken { message_index, role: named, .. }] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((*message_index, named.as_str()), (Some(row as u64), role));
        assert_eq!(engine.metrics().prefix_broken, 1, "the request behind it goes on from the changed one");
    }
}

#[tokio::test]
async fn i18_the_first_request_of_an_engine_is_compared_with_nothing() {
    let (engine, told) = broken(0, false).await;
    assert_eq!((told.len(), engine.metrics().prefix_broken), (0, 0));
}
