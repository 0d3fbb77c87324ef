//! What must hold of a world when it has come to rest, whatever happened in it.

use std::collections::{BTreeMap, HashSet, VecDeque};

use hermes_core::{EndReason, TurnResult};
use hermes_providers::ChatMessage;
use hermes_store::{
    AdmissionRecord, AdmissionStatus, AdmissionStore as _, CallOutcome, Intent, LeaseStore as _, Role,
    SessionStore as _, StoredMessage, View,
};

use crate::world::{World, conversation};

/// Fails unless every call is followed by exactly one result, in call order, before anything else, and no two user
/// messages follow each other: what the strictest provider demands.
pub(crate) fn pairs(messages: &[ChatMessage]) {
    let mut open: VecDeque<&str> = VecDeque::new();
    let mut seen = HashSet::new();
    let mut last_was_user = false;
    for message in messages {
        match message {
            ChatMessage::Assistant { calls, .. } => {
                assert!(open.is_empty(), "calls without a result: {open:?}");
                last_was_user = false;
                for call in calls {
                    assert!(seen.insert(call.id.as_str()), "call id {} twice", call.id);
                    open.push_back(&call.id);
                }
            }
            ChatMessage::Tool { call_id, .. } => {
                assert_eq!(open.pop_front(), Some(call_id.as_str()), "a result out of its place");
            }
            ChatMessage::User { text, .. } => {
                let is_right = !text.is_empty() && open.is_empty() && !last_was_user;
                assert!(is_right, "a user message out of its place: {messages:#?}");
                last_was_user = true;
            }
        }
    }
    assert!(open.is_empty(), "calls without a result: {open:?}");
}

/// All checkers, at the end of a run. `results` are those of the last node.
pub(crate) async fn at_rest(world: &World, results: &[TurnResult], what: &str) {
    let rows = world.rows(View::Display).await;
    let admissions = admissions(world, results).await;
    accepted_inputs_are_over(world, &admissions, what).await;
    starts_follow_the_queue(&admissions, what);
    generations_grow(world, &rows, what).await;
    every_call_has_one_result(&rows, what);
    effects_happen_once(world, &rows, what);
    nothing_is_shown_twice(&rows, what);
    requests_extend_each_other(world, what);
    the_tail_can_be_extended(&rows, results, what);
}

/// Every input of the scenario, as the store has it.
async fn admissions(world: &World, results: &[TurnResult]) -> Vec<AdmissionRecord> {
    assert_eq!(results.len(), world.scenario.inputs.len());
    let mut out = Vec::new();
    for result in results {
        out.push(world.store.admission(&result.admission).await.unwrap());
    }
    out
}

/// (a) Every accepted input is over, once.
async fn accepted_inputs_are_over(world: &World, admissions: &[AdmissionRecord], what: &str) {
    for record in admissions {
        assert_eq!(record.receipt.status, AdmissionStatus::Terminal, "{what}: {record:?}");
    }
    let left = world.store.queue(&conversation()).await.unwrap();
    assert!(left.is_empty(), "{what}: {left:?}");
}

/// (b) Inputs start in the order in which they were accepted.
fn starts_follow_the_queue(admissions: &[AdmissionRecord], what: &str) {
    let queued = admissions.iter().filter(|record| record.intent == Intent::Queue);
    let mut started: Vec<_> = queued.filter_map(|r| r.receipt.generation.map(|g| (r.receipt.seq, g))).collect();
    started.sort_by_key(|(seq, _)| *seq);
    assert!(started.windows(2).all(|pair| pair[0].1 < pair[1].1), "{what}: {started:?}");
}

/// (c) No row of an older start stands behind one of a newer start.
async fn generations_grow(world: &World, rows: &[StoredMessage], what: &str) {
    let mut generation = BTreeMap::new();
    for row in rows {
        if !generation.contains_key(&row.turn) {
            generation.insert(row.turn.clone(), world.store.turn(&row.turn).await.unwrap().generation);
        }
    }
    let order: Vec<_> = rows.iter().map(|row| generation[&row.turn]).collect();
    assert!(order.windows(2).all(|pair| pair[0] <= pair[1]), "{what}: {order:?}");
}

/// (d) Every call has exactly one result, in call order.
fn every_call_has_one_result(rows: &[StoredMessage], what: &str) {
    let calls: Vec<_> = rows.iter().flat_map(|row| row.calls.iter().map(|call| &call.call)).collect();
    let results: Vec<_> = rows.iter().filter_map(|row| row.answers.as_ref().map(|call| &call.call)).collect();
    assert_eq!(calls, results, "{what}");
}

/// (f) What may happen once happened at most once; a result says what is known and nothing else.
fn effects_happen_once(world: &World, rows: &[StoredMessage], what: &str) {
    let effects = world.effects.lock().unwrap();
    for row in rows {
        let Some(call) = &row.answers else { continue };
        let times = effects.iter().filter(|effect| *effect == call.call.as_str()).count();
        if call.replay == hermes_store::ReplaySafety::Once {
            assert!(times <= 1, "{what}: {} happened {times} times", call.call);
        }
        match call.outcome.expect("a result without an outcome") {
            CallOutcome::Ok | CallOutcome::Failed => {
                assert!(times >= 1, "{what}: the result of {} is invented", call.call);
            }
            // A pure call that ran unseen has left no trace in the world.
            CallOutcome::Skipped if call.replay == hermes_store::ReplaySafety::Pure => {}
            CallOutcome::Skipped | CallOutcome::Denied | CallOutcome::Invalid => {
                assert_eq!(times, 0, "{what}: the effect of {} is denied", call.call);
            }
            _ => {}
        }
    }
    let known: HashSet<_> = rows.iter().filter_map(|row| row.answers.as_ref()).map(|call| call.call.as_str()).collect();
    for effect in effects.iter() {
        assert!(known.contains(effect.as_str()), "{what}: the effect {effect} is in no transcript");
    }
}

/// A process that slept between the announcement of a call and its effect cannot be kept from the effect. Whoever took
/// over has told that nobody knows it, and it happens once.
pub(crate) async fn late_effects_are_told(world: &World, before: usize, what: &str) {
    let rows = world.rows(View::Display).await;
    for effect in &world.effects.lock().unwrap()[before..] {
        let call = rows.iter().filter_map(|row| row.answers.as_ref()).find(|call| call.call.as_str() == effect);
        let call = call.unwrap_or_else(|| panic!("{what}: the late effect {effect} is in no transcript"));
        let is_told = call.outcome == Some(CallOutcome::OutcomeUnknown);
        assert!(is_told || call.replay != hermes_store::ReplaySafety::Once, "{what}: {effect} happened late, untold");
    }
    effects_happen_once(world, &rows, what);
}

/// (g) Every request begins with the one before it, byte for byte, but for those that begin with new notes: there are as
/// many of them as there were compressions.
fn requests_extend_each_other(world: &World, what: &str) {
    let requests = world.requests.lock().unwrap();
    for pair in requests.windows(2) {
        let ((_, before), (_, after)) = (&pair[0], &pair[1]);
        assert_eq!(before.tools, after.tools, "{what}");
        if notes(before) != notes(after) {
            assert!(notes(after).is_some(), "{what}: the notes are gone");
            continue;
        }
        assert_eq!(before.system, after.system, "{what}");
        assert!(
            after.messages.starts_with(&before.messages),
            "{what}: the prefix is broken\n{:#?}\n{:#?}",
            before.messages,
            after.messages
        );
    }
}

/// The place and the text of the notes of a shortened history.
fn notes(request: &hermes_providers::ChatRequest) -> Option<(usize, &str, usize)> {
    request.messages.iter().enumerate().find_map(|(at, message)| match message {
        ChatMessage::User { text, .. } if text.contains("[Notes on the earlier part") => {
            // The same words stand for more rows after a second compression: what follows them tells the two apart.
            let next = request.messages.get(at + 1).map_or("", |message| match message {
                ChatMessage::Assistant { calls, .. } => calls.first().map_or("", |call| call.id.as_str()),
                _ => "",
            });
            Some((at, next, text.len()))
        }
        _ => None,
    })
}

/// (h) A compression leaves the old bytes where they are: people see every row once, whatever was compressed.
pub(crate) fn nothing_is_shown_twice(rows: &[StoredMessage], what: &str) {
    let mut seen = HashSet::new();
    for row in rows {
        assert!(row.copy_of.is_none(), "{what}: a copy is shown");
        assert!(seen.insert(row.id.as_str()), "{what}: {} is shown twice", row.id);
    }
}

/// (I16) The last row is one after which any provider takes a user message.
fn the_tail_can_be_extended(rows: &[StoredMessage], results: &[TurnResult], what: &str) {
    let Some(last) = rows.last() else {
        // The very first write failed: nothing was said, and the sender was told.
        assert!(results.iter().all(|result| result.reason == EndReason::PersistenceFailed), "{what}: no row");
        return;
    };
    assert_eq!(last.role, Role::Assistant, "{what}: {last:?}");
    assert!(last.calls.is_empty(), "{what}");
}
