//! What must hold of a world when it has come to rest, whatever happened in it.

use std::collections::{BTreeMap, HashSet, VecDeque};

use hermes_core::{EndReason, TurnResult};
use hermes_providers::ChatMessage;
use hermes_store::transfer::bundle::BundleRow;
use hermes_store::{
    AdmissionOutcome, AdmissionRecord, AdmissionStatus, CallOutcome, ChangeKind, ConversationId, Intent, MessageId,
    Role, RowState, StoredMessage,
};

use crate::parts::bytes_of;
use crate::world::World;
use crate::{family, questions, rewinds};

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

/// All checkers, at the end of a run of one conversation. `results` are those of the last node.
pub(crate) async fn at_rest(world: &World, results: &[TurnResult], what: &str) {
    assert_eq!(results.len(), world.scenario.inputs.len());
    let mut admissions = Vec::new();
    for result in results {
        admissions.push(world.store.admission(&result.admission).await.unwrap());
    }
    conversation_at_rest(world, world.conversation(), &admissions, what).await;
    requests_extend_each_other(world, what).await;
    effects_are_in_a_transcript(world, what).await;
    people_were_heard(world, what).await;
}

/// What people were asked, what they wanted, and what their models gave away.
pub(crate) async fn people_were_heard(world: &World, what: &str) {
    questions::at_rest(world, what).await;
    rewinds::at_rest(world, what).await;
    family::at_rest(world, what).await;
}

/// What holds of each conversation, whatever other ones there are and how many nodes worked on it.
pub(crate) async fn conversation_at_rest(
    world: &World,
    conversation: &ConversationId,
    admissions: &[AdmissionRecord],
    what: &str,
) {
    let rows = world.rows(conversation).await;
    accepted_inputs_are_over(world, conversation, admissions, what).await;
    starts_follow_the_queue(admissions, what);
    generations_grow(world, &rows, what).await;
    every_call_has_one_result(&rows, what);
    effects_happen_once(world, &rows, what);
    nothing_is_shown_twice(&rows, what);
    no_row_has_changed(world, conversation, &rows, what).await;
    sessions_are_one_line(world, conversation, what).await;
    the_tail_can_be_extended(world, &rows, admissions, what).await;
}

/// (a) Every accepted input is over, once.
async fn accepted_inputs_are_over(
    world: &World,
    conversation: &ConversationId,
    admissions: &[AdmissionRecord],
    what: &str,
) {
    for record in admissions {
        assert_eq!(record.receipt.status, AdmissionStatus::Terminal, "{what}: {record:?}");
    }
    let left = world.store.queue(conversation).await.unwrap();
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

/// Tools without an effect in the world: `family.rs` looks at tasks that are given away, `questions.rs` at answers.
const ELSEWHERE: [&str; 2] = ["delegate_task", "clarify"];

/// (f) What may happen once happened at most once; a result says what is known and nothing else.
fn effects_happen_once(world: &World, rows: &[StoredMessage], what: &str) {
    let effects = world.effects.lock().unwrap();
    for row in rows {
        let Some(call) = row.answers.as_ref().filter(|call| !ELSEWHERE.contains(&call.name.as_str())) else { continue };
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
}

/// (f) Whatever happened in the world is told in a transcript.
pub(crate) async fn effects_are_in_a_transcript(world: &World, what: &str) {
    let mut known = HashSet::new();
    for conversation in &world.everybody().await {
        let rows = world.everything(conversation).await;
        known.extend(rows.into_iter().filter_map(|row| row.answers.map(|call| call.call.as_str().to_owned())));
    }
    for effect in world.effects.lock().unwrap().iter() {
        assert!(known.contains(effect), "{what}: the effect {effect} is in no transcript");
    }
}

/// A process that slept between the announcement of a call and its effect cannot be kept from the effect. Whoever took
/// over has told that nobody knows it, and it happens once.
pub(crate) async fn late_effects_are_told(world: &World, before: usize, what: &str) {
    let mut rows = Vec::new();
    let mut undone = HashSet::new();
    for conversation in &world.everybody().await {
        rows.extend(world.rows(conversation).await);
        let gone = world.everything(conversation).await.into_iter().filter(|row| row.state == RowState::Superseded);
        undone.extend(gone.filter_map(|row| row.answers.map(|call| call.call.as_str().to_owned())));
    }
    for effect in &world.effects.lock().unwrap()[before..] {
        let call = rows.iter().filter_map(|row| row.answers.as_ref()).find(|call| call.call.as_str() == effect);
        let Some(call) = call else {
            assert!(undone.contains(effect), "{what}: the late effect {effect} is in no transcript");
            continue;
        };
        let is_told = call.outcome == Some(CallOutcome::OutcomeUnknown);
        assert!(is_told || call.replay != hermes_store::ReplaySafety::Once, "{what}: {effect} happened late, untold");
    }
    effects_happen_once(world, &rows, what);
}

/// (g) Every request begins with the one before it, byte for byte, but for those that begin with new notes: there are as
/// many of them as there were compressions.
async fn requests_extend_each_other(world: &World, what: &str) {
    if !world.scenario.acts.is_empty() {
        return requests_of_all_nodes_agree(world, what).await;
    }
    let requests = world.requests.lock().unwrap();
    let mut last = BTreeMap::new();
    for (_, after) in requests.iter() {
        let Some(before) = last.insert(&after.cache_key, after) else { continue };
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

/// (g) The same where several nodes ask, and one that slept may ask the old question once more: of any two requests of a
/// conversation with the same notes one begins with the other. Each undo may begin one line more.
pub(crate) async fn requests_of_all_nodes_agree(world: &World, what: &str) {
    let mut undone = BTreeMap::new();
    for conversation in world.conversations.iter() {
        let changes = world.store.changes(conversation).await.unwrap();
        let count = changes.iter().filter(|change| change.kind == ChangeKind::Rewind).count();
        undone.insert(conversation.as_str().to_owned(), count);
    }
    let requests = world.requests.lock().unwrap();
    let mut lines: BTreeMap<_, Vec<&hermes_providers::ChatRequest>> = BTreeMap::new();
    for (node, request) in requests.iter() {
        let of = request.cache_key.clone().unwrap();
        let known = lines.entry((of.clone(), notes(request))).or_default();
        if let Some(first) = known.first() {
            assert_eq!((&first.system, &first.tools), (&request.system, &request.tools), "{what}");
        }
        let shared = |line: &hermes_providers::ChatRequest| {
            line.messages.iter().zip(&request.messages).take_while(|(a, b)| a == b).count()
        };
        let is_one =
            |line: &hermes_providers::ChatRequest| shared(line) == line.messages.len().min(request.messages.len());
        if let Some(line) = known.iter_mut().find(|line| is_one(line)) {
            if request.messages.len() > line.messages.len() {
                *line = request;
            }
            continue;
        }
        let parts = known.iter().max_by_key(|line| shared(line)).map(|line| (*line, shared(line)));
        if let Some((line, at)) = parts {
            // Where is no matter: an input that is sent again may be answered as it was, up to a place.
            let is_undo = undone.get(&of).is_some_and(|count| *count > 0);
            assert!(
                is_undo,
                "{what}: the prefix is broken by {node} at {at}: {:?}, {:?}",
                line.messages[at], request.messages[at]
            );
        }
        known.push(request);
    }
    let mut more: BTreeMap<&str, usize> = BTreeMap::new();
    for ((of, _), known) in &lines {
        *more.entry(of).or_default() += known.len() - 1;
    }
    for (of, more) in more {
        let count = undone.get(of).copied().unwrap_or_default();
        assert!(more <= count, "{what}: the requests of {of} part {more} times, and {count} times it was undone");
    }
}

/// (a) What was accepted was heard once, and what was taken back never. `again` are the rows of inputs that people had sent
/// again.
pub(crate) fn heard_once(record: &AdmissionRecord, text: &str, rows: &[BundleRow], again: &[MessageId], what: &str) {
    let is_it = |row: &&BundleRow| {
        row.role == Role::User && row.content == text && row.copy_of.is_none() && !again.contains(&row.id)
    };
    let times = rows.iter().filter(is_it).count();
    let expected = match record.receipt.outcome {
        Some(AdmissionOutcome::Cancelled) => 0..=0,
        Some(AdmissionOutcome::Completed) => 1..=1,
        // A turn that failed may have failed before it could write its input down.
        _ => 0..=1,
    };
    assert!(expected.contains(&times), "{what}: {text:?} stands {times} times in the transcript: {record:?}");
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

/// (h) Every row that anybody saw is there, with the bytes that it had, whatever was compressed since; but for those that
/// somebody undid, which are there and not shown.
async fn no_row_has_changed(world: &World, conversation: &ConversationId, rows: &[StoredMessage], what: &str) {
    let all = world.everything(conversation).await;
    let undone: HashSet<_> = all.iter().filter(|row| row.state == RowState::Superseded).map(|row| &row.id).collect();
    let now: BTreeMap<_, _> = rows.iter().map(|row| (&row.id, bytes_of(row))).collect();
    for (id, (of, bytes)) in world.known.lock().unwrap().iter() {
        if of == conversation && !undone.contains(id) {
            assert_eq!(now.get(id), Some(bytes), "{what}: the row {id} is not what it was");
        }
    }
}

/// (h) Each session has one child at most, and the line ends in the tip.
async fn sessions_are_one_line(world: &World, conversation: &ConversationId, what: &str) {
    let line = world.store.lineage(conversation).await.unwrap();
    let tip = world.store.conversation(conversation).await.unwrap().tip;
    assert_eq!(line.last().map(|session| session.id.clone()), tip, "{what}");
    assert!(line.first().is_none_or(|session| session.parent.is_none()), "{what}: {line:?}");
    for pair in line.windows(2) {
        assert_eq!(pair[1].parent.as_ref(), Some(&pair[0].id), "{what}");
        assert!(pair[0].ended_at_ms.is_some(), "{what}: {} has a child and is open", pair[0].id);
    }
}

/// (I16) The last row is one after which any provider takes a user message.
async fn the_tail_can_be_extended(world: &World, rows: &[StoredMessage], admissions: &[AdmissionRecord], what: &str) {
    let Some(last) = rows.last() else {
        let conversation = admissions.first().map(|record| &record.receipt.conversation);
        if let Some(conversation) = conversation
            && world.everything(conversation).await.iter().any(|row| row.state == RowState::Superseded)
        {
            return;
        }
        // The very first write failed, or the input could not be read: nothing was said, and the sender was told.
        for record in admissions {
            let Some(turn) = &record.receipt.turn else { continue };
            let reason = world.store.turn(turn).await.unwrap().reason;
            let silent = [EndReason::PersistenceFailed, EndReason::InvariantViolated].map(EndReason::as_str);
            assert!(reason.as_deref().is_some_and(|reason| silent.contains(&reason)), "{what}: no row, {reason:?}");
        }
        return;
    };
    assert_eq!(last.role, Role::Assistant, "{what}: {last:?}");
    assert!(last.calls.is_empty(), "{what}");
}
