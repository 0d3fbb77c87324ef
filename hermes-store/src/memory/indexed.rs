//! Maps that are also looked up by something else than their key: without these, each write would look at everything
//! that the store holds. Reading goes through the map itself; what changes a membership goes through here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use super::state::{Call, Row};
use crate::admission::AdmissionRecord;
use crate::ids::{AdmissionId, CallId, ConversationId, MessageId, SessionId, TurnId};

/// Rows by conversation and place, and by id. Conversation, place, id and session of a row never change.
#[derive(Debug, Default)]
pub(super) struct Rows {
    lines: BTreeMap<ConversationId, Line>,
    places: BTreeMap<MessageId, (ConversationId, i64)>,
}

/// The rows of one conversation.
#[derive(Debug, Default)]
struct Line {
    // Boxed: nodes of a map that grows at its end are half empty.
    rows: BTreeMap<i64, Box<Row>>,
    /// The first row of each session: what the model is shown does not make the store look at all that went before.
    begins: BTreeMap<SessionId, i64>,
}

impl Rows {
    pub(super) fn insert(&mut self, row: Row) {
        self.places.insert(row.new.id.clone(), (row.conversation.clone(), row.seq));
        let line = self.lines.entry(row.conversation.clone()).or_default();
        let begin = line.begins.entry(row.session.clone()).or_insert(row.seq);
        *begin = row.seq.min(*begin);
        line.rows.insert(row.seq, Box::new(row));
    }

    pub(super) fn get(&self, id: &MessageId) -> Option<&Row> {
        let (conversation, seq) = self.places.get(id)?;
        self.lines.get(conversation)?.rows.get(seq).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, id: &MessageId) -> Option<&mut Row> {
        let (conversation, seq) = self.places.get(id)?;
        self.lines.get_mut(conversation)?.rows.get_mut(seq).map(Box::as_mut)
    }

    pub(super) fn contains_key(&self, id: &MessageId) -> bool {
        self.places.contains_key(id)
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Row> {
        self.lines.values().flat_map(|line| line.rows.values()).map(Box::as_ref)
    }

    /// The rows of a conversation in their order.
    pub(super) fn of(&self, conversation: &ConversationId) -> impl DoubleEndedIterator<Item = &Row> {
        self.lines.get(conversation).into_iter().flat_map(|line| line.rows.values()).map(Box::as_ref)
    }

    /// As [`Rows::of`], to change them.
    pub(super) fn of_mut(&mut self, conversation: &ConversationId) -> impl Iterator<Item = &mut Row> {
        self.lines.get_mut(conversation).into_iter().flat_map(|line| line.rows.values_mut()).map(Box::as_mut)
    }

    /// The rows of a conversation behind a place, from the first of a session on, in their order.
    pub(super) fn behind(
        &self,
        conversation: &ConversationId,
        session: Option<&SessionId>,
        after_seq: i64,
    ) -> impl DoubleEndedIterator<Item = &Row> {
        let line = self.lines.get(conversation);
        let begin = session.and_then(|session| line?.begins.get(session).copied()).unwrap_or(i64::MIN);
        let from = begin.max(after_seq.saturating_add(1));
        line.into_iter().flat_map(move |line| line.rows.range(from..)).map(|(_, row)| row.as_ref())
    }

    /// Forgets everything of a conversation.
    pub(super) fn remove_all(&mut self, conversation: &ConversationId) {
        for row in self.lines.remove(conversation).unwrap_or_default().rows.into_values() {
            self.places.remove(&row.new.id);
        }
    }
}

/// Calls by id, by turn and by the id of their result. Turn and result of a call never change.
#[derive(Debug, Default)]
pub(super) struct Calls {
    all: BTreeMap<CallId, Box<Call>>,
    by_turn: BTreeMap<TurnId, BTreeSet<CallId>>,
    results: BTreeSet<MessageId>,
}

impl Calls {
    pub(super) fn insert(&mut self, id: CallId, call: Call) {
        self.by_turn.entry(call.turn.clone()).or_default().insert(id.clone());
        self.results.insert(call.new.result.clone());
        self.all.insert(id, Box::new(call));
    }

    pub(super) fn get_mut(&mut self, id: &CallId) -> Option<&mut Call> {
        self.all.get_mut(id).map(Box::as_mut)
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&CallId, &mut Call) -> bool) {
        let Self { all, by_turn, results } = self;
        all.retain(|id, call| {
            let kept = keep(id, call);
            if !kept {
                results.remove(&call.new.result);
                if let Some(calls) = by_turn.get_mut(&call.turn) {
                    calls.remove(id);
                }
            }
            kept
        });
    }

    /// The calls of a turn, in no order that means something.
    pub(super) fn of_turn(&self, turn: &TurnId) -> impl Iterator<Item = &Call> {
        self.by_turn.get(turn).into_iter().flatten().filter_map(|id| self.all.get(id).map(Box::as_ref))
    }

    /// Whether a call has, or will have, its result in this row.
    pub(super) fn result_is(&self, row: &MessageId) -> bool {
        self.results.contains(row)
    }
}

impl Deref for Calls {
    type Target = BTreeMap<CallId, Box<Call>>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

/// Admissions by id and by conversation. The conversation of an admission never changes.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    all: BTreeMap<AdmissionId, AdmissionRecord>,
    by_conversation: BTreeMap<ConversationId, BTreeSet<AdmissionId>>,
}

impl Admissions {
    pub(super) fn insert(&mut self, id: AdmissionId, record: AdmissionRecord) {
        self.by_conversation.entry(record.receipt.conversation.clone()).or_default().insert(id.clone());
        self.all.insert(id, record);
    }

    pub(super) fn get_mut(&mut self, id: &AdmissionId) -> Option<&mut AdmissionRecord> {
        self.all.get_mut(id)
    }

    /// Forgets everything of a conversation.
    pub(super) fn remove_all(&mut self, conversation: &ConversationId) {
        for id in self.by_conversation.remove(conversation).unwrap_or_default() {
            self.all.remove(&id);
        }
    }

    /// The admissions of a conversation, in no order that means something.
    pub(super) fn of(&self, conversation: &ConversationId) -> impl Iterator<Item = &AdmissionRecord> {
        self.by_conversation.get(conversation).into_iter().flatten().filter_map(|id| self.all.get(id))
    }
}

impl Deref for Admissions {
    type Target = BTreeMap<AdmissionId, AdmissionRecord>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}
