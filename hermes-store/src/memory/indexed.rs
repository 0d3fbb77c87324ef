//! Maps that are also looked up by something else than their key: without these, each write would look at everything
//! that the store holds. Reading goes through the map itself; what changes a membership goes through here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use super::state::Call;
use crate::admission::AdmissionRecord;
use crate::ids::{AdmissionId, CallId, ConversationId, MessageId, TurnId};

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
