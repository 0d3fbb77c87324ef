//! The plain value behind [`super::MemoryStore`], and the checks that its methods share.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;

use super::indexed::{Admissions, Calls, Rows};
use super::usage::Usage;
use crate::admission::{AdmissionRecord, AdmissionStatus};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::history::{self, BranchOrigin, HistoryChange, LockRow};
use crate::ids::{
    AdmissionId, CallId, ChangeId, ConversationId, Generation, MessageId, OwnerId, SessionId, Token, TurnId,
};
use crate::message::{
    ApiContent, MessageKind, NewMessage, Role, RowState, Sidecar, StoredCall, StoredMessage, UsageDelta,
};
use crate::round::{CallOutcome, CallResult, JournalState, NewCall};
use crate::rules::{self, OwnerRow, conflict, is_shown, not_found, not_running};
use crate::session::{ConversationFlags, SessionRecord, TitleSource};
use crate::turn::{TurnEnd, TurnStatus};

/// Bytes of a SHA-256.
const DIGEST_BYTES: usize = 32;

/// A lease that somebody holds.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) owner: OwnerId,
    /// Which claim took it.
    pub(super) claim: TurnId,
    pub(super) expires_ms: i64,
    pub(super) ttl_ms: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Conv {
    pub(super) profile: String,
    pub(super) source: String,
    pub(super) title: Option<String>,
    pub(super) title_source: Option<TitleSource>,
    pub(super) preview: Option<String>,
    pub(super) tip: Option<SessionId>,
    pub(super) open_turn: Option<TurnId>,
    pub(super) revision: i64,
    pub(super) counters: Counters,
    pub(super) lease: Option<Lease>,
    pub(super) freed_ms: i64,
    pub(super) created_ms: i64,
    pub(super) activity_ms: i64,
    /// Where it was branched off, and the digest of what was asked for.
    pub(super) origin: Option<(BranchOrigin, String)>,
    pub(super) flags: ConversationFlags,
    /// When and why it was ended.
    pub(super) ended: Option<(i64, String)>,
}

/// A change of history, with what it was asked for and its place among the changes of its conversation.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) record: HistoryChange,
    pub(super) digest: String,
    pub(super) ordinal: i64,
}

/// The lock on the compression of a session, and how its compressions failed.
#[derive(Debug, Clone, Default)]
pub(super) struct Lock {
    pub(super) row: Option<LockRow>,
    pub(super) cooldown_ms: i64,
    pub(super) error: Option<String>,
}

/// What only grows, and survives the conversation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) token: i64,
    pub(super) generation: i64,
    pub(super) seq: i64,
    pub(super) place: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub(super) conversation: ConversationId,
    pub(super) admission: AdmissionId,
    pub(super) session: Option<SessionId>,
    pub(super) generation: Generation,
    pub(super) attempt: i64,
    pub(super) status: TurnStatus,
    pub(super) end: Option<(String, Option<String>)>,
    pub(super) api_calls: u64,
    pub(super) started_ms: i64,
    pub(super) ended_ms: Option<i64>,
}

/// A digest that is only ever compared: a third of the hex digits that databases hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest([u8; DIGEST_BYTES]);

impl Digest {
    pub(super) fn of(hex: &str) -> Self {
        let mut bytes = [0; DIGEST_BYTES];
        for (byte, digits) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).unwrap_or_default();
            *byte = u8::from_str_radix(digits, 16).unwrap_or_default();
        }
        Self(bytes)
    }
}

/// What was written in a row. There are as many of these as anything, and what few of them have stands behind one
/// pointer: 150 bytes less for a row that has none of it.
#[derive(Debug, Clone)]
pub(super) struct Body {
    pub(super) id: MessageId,
    pub(super) role: Role,
    pub(super) kind: MessageKind,
    pub(super) content: Box<str>,
    finish: Option<Box<str>>,
    rare: Option<Box<Rare>>,
}

/// What few rows have.
#[derive(Debug, Clone)]
struct Rare {
    api_content: Option<ApiContent>,
    reasoning: Option<String>,
    sidecar: Option<Sidecar>,
    meta: Option<Value>,
}

impl From<NewMessage> for Body {
    fn from(new: NewMessage) -> Self {
        let NewMessage { id, role, kind, content, api_content, reasoning, sidecar, finish, meta } = new;
        let is_rare = api_content.is_some() || reasoning.is_some() || sidecar.is_some() || meta.is_some();
        let rare = is_rare.then(|| Box::new(Rare { api_content, reasoning, sidecar, meta }));
        Self { id, role, kind, content: content.into(), finish: finish.map(Into::into), rare }
    }
}

impl Body {
    /// The message again, as it was handed in.
    pub(super) fn message(&self) -> NewMessage {
        let rare = self.rare.as_deref();
        NewMessage {
            id: self.id.clone(),
            role: self.role,
            kind: self.kind,
            content: self.content.as_ref().to_owned(),
            api_content: rare.and_then(|rare| rare.api_content.clone()),
            reasoning: rare.and_then(|rare| rare.reasoning.clone()),
            sidecar: rare.and_then(|rare| rare.sidecar.clone()),
            finish: self.finish.as_deref().map(str::to_owned),
            meta: rare.and_then(|rare| rare.meta.clone()),
        }
    }

    /// Size of what a model sees of it, in bytes.
    pub(super) fn shown_bytes(&self) -> u64 {
        let rare = self.rare.as_deref();
        history::row_bytes(
            &self.content,
            rare.and_then(|rare| rare.api_content.as_ref()),
            rare.and_then(|rare| rare.reasoning.as_deref()),
            rare.and_then(|rare| rare.sidecar.as_ref()),
        )
    }

    /// Another text in place of this one: what a provider was shown and made for the old text goes with it.
    pub(super) fn replace_content(&mut self, content: &str) {
        self.content = content.into();
        if let Some(rare) = &mut self.rare {
            rare.api_content = None;
            rare.sidecar = None;
        }
    }
}

/// A row as it was written; calls are joined to it when it is read.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) conversation: ConversationId,
    pub(super) session: SessionId,
    pub(super) turn: TurnId,
    pub(super) seq: i64,
    pub(super) digest: Digest,
    pub(super) new: Body,
    pub(super) calls: Vec<CallId>,
    pub(super) answers: Option<CallId>,
    pub(super) created_ms: i64,
    pub(super) life: Life,
}

/// What changes of history made of a row.
#[derive(Debug, Clone)]
pub(super) struct Life {
    pub(super) state: RowState,
    /// The first row of its line, when it is a copy.
    pub(super) copy_of: Option<MessageId>,
    /// The change that took it away, and what it was before.
    pub(super) undone: Option<(ChangeId, RowState)>,
}

impl Default for Life {
    fn default() -> Self {
        Self { state: RowState::Active, copy_of: None, undone: None }
    }
}

impl Row {
    /// Whether people see it.
    pub(super) fn is_visible(&self) -> bool {
        is_shown(self.new.kind) && self.life.state != RowState::Superseded && self.life.copy_of.is_none()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) conversation: ConversationId,
    pub(super) turn: TurnId,
    pub(super) assistant: MessageId,
    pub(super) new: NewCall,
    pub(super) result_seq: i64,
    pub(super) state: JournalState,
    pub(super) outcome: Option<CallOutcome>,
    pub(super) digest: Option<Digest>,
    pub(super) written_ms: i64,
}

impl Call {
    pub(super) fn stored(&self) -> StoredCall {
        StoredCall {
            call: self.new.call.clone(),
            provider_id: self.new.provider_id.clone(),
            name: self.new.name.clone(),
            arguments: self.new.arguments.clone(),
            replay: self.new.replay,
            state: self.state,
            outcome: self.outcome,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) exchange: super::inbound::Exchange,
    pub(super) approvals: super::approval::Approvals,
    pub(super) imports: super::transfer::Imports,
    pub(super) work: super::work::Work,
    pub(super) delegations: super::delegations::Delegations,
    pub(super) conversations: BTreeMap<ConversationId, Conv>,
    pub(super) tombstones: BTreeMap<ConversationId, Counters>,
    pub(super) admissions: Admissions,
    pub(super) turns: BTreeMap<TurnId, Turn>,
    pub(super) sessions: BTreeMap<SessionId, SessionRecord>,
    pub(super) rows: Rows,
    pub(super) calls: Calls,
    pub(super) usage: Usage,
    pub(super) prompts: BTreeMap<String, Bytes>,
    pub(super) changes: BTreeMap<ChangeId, Change>,
    pub(super) aliases: BTreeMap<String, ConversationId>,
    pub(super) pruned_ms: Option<i64>,
    pub(super) locks: BTreeMap<SessionId, Lock>,
    pub(super) owners: BTreeMap<OwnerId, OwnerRow>,
    pub(super) routes: BTreeMap<(String, String), i64>,
}

impl State {
    pub(super) fn conv(&self, id: &ConversationId) -> Result<&Conv, StoreError> {
        self.conversations.get(id).ok_or_else(|| not_found("conversation", id))
    }

    /// The conversation of a fence that holds. Changes nothing.
    pub(super) fn fenced(&self, fence: &Fence) -> Result<&Conv, StoreError> {
        let held = fence.token();
        self.conversations
            .get(fence.conversation())
            .filter(|conv| Token(conv.counters.token) == held && conv.lease.is_some())
            .ok_or(StoreError::Fenced { held })
    }

    /// As [`State::fenced`], for a write of the running turn.
    pub(super) fn running(&self, fence: &Fence, turn: &TurnId) -> Result<&Conv, StoreError> {
        let conv = self.fenced(fence)?;
        if conv.open_turn.as_ref() != Some(turn) {
            return Err(not_running(turn));
        }
        Ok(conv)
    }

    /// Counts a change of a fenced conversation. An expired lease that nobody took lives again (S22).
    pub(super) fn touch(&mut self, id: &ConversationId, now: i64, activity: bool) {
        if let Some(conv) = self.conversations.get_mut(id) {
            conv.revision += 1;
            if activity {
                conv.activity_ms = now;
            }
            if let Some(lease) = &mut conv.lease
                && lease.expires_ms <= now
            {
                lease.expires_ms = now.saturating_add(lease.ttl_ms);
            }
        }
    }

    /// A row as readers get it.
    pub(super) fn stored(&self, row: &Row) -> StoredMessage {
        let join = |call: &CallId| self.calls.get(call).map(|call| call.stored());
        let message = row.new.message();
        StoredMessage {
            seq: row.seq,
            id: message.id,
            session: row.session.clone(),
            turn: row.turn.clone(),
            role: message.role,
            kind: message.kind,
            state: row.life.state,
            copy_of: row.life.copy_of.clone(),
            content: message.content,
            api_content: message.api_content,
            reasoning: message.reasoning,
            sidecar: message.sidecar,
            finish: message.finish,
            calls: row.calls.iter().filter_map(join).collect(),
            answers: row.answers.as_ref().and_then(join),
            meta: message.meta,
            created_at_ms: row.created_ms,
        }
    }

    /// Rows of a conversation in their order.
    pub(super) fn rows_of(&self, id: &ConversationId) -> impl DoubleEndedIterator<Item = &Row> {
        self.rows.of(id)
    }

    /// Rows of a turn in their order.
    pub(super) fn rows_of_turn<'a>(&'a self, turn: &'a TurnId) -> impl DoubleEndedIterator<Item = &'a Row> {
        self.turns
            .get(turn)
            .into_iter()
            .flat_map(|t| self.rows_of(&t.conversation))
            .filter(move |row| row.turn == *turn)
    }

    /// Calls of a turn in their order: by round, then as the model wrote them.
    pub(super) fn calls_of(&self, turn: &TurnId) -> Vec<&Call> {
        let mut calls: Vec<_> = self.calls.of_turn(turn).collect();
        calls.sort_by_key(|call| call.result_seq);
        calls
    }

    /// Admissions of a conversation that are not over, in their order.
    pub(super) fn waiting(&self, id: &ConversationId) -> Vec<&AdmissionRecord> {
        let mut out: Vec<_> =
            self.admissions.of(id).filter(|a| a.receipt.status != AdmissionStatus::Terminal).collect();
        out.sort_by_key(|a| a.receipt.seq);
        out
    }

    /// Rows that are not stored yet, once each; a known id with other bytes is a conflict (I17).
    pub(super) fn fresh(&self, conversation: &ConversationId, rows: &[NewMessage]) -> Result<Vec<bool>, StoreError> {
        let mut seen: BTreeMap<&MessageId, Digest> = BTreeMap::new();
        let mut out = Vec::with_capacity(rows.len());
        for row in rows {
            let digest = Digest::of(&row.digest());
            let known = match self.rows.get(&row.id) {
                Some(known) if known.conversation != *conversation => return Err(conflict("message", &row.id)),
                Some(known) => Some(known.digest),
                None => seen.get(&row.id).copied(),
            };
            match known {
                Some(known) if known != digest => return Err(conflict("message", &row.id)),
                Some(_) => out.push(false),
                None => {
                    if self.calls.result_is(&row.id) {
                        return Err(conflict("message", &row.id));
                    }
                    seen.insert(&row.id, digest);
                    out.push(true);
                }
            }
        }
        Ok(out)
    }

    /// Reserves `count` places and returns the one before the first.
    pub(super) fn reserve(&mut self, id: &ConversationId, count: usize) -> i64 {
        let Some(conv) = self.conversations.get_mut(id) else { return 0 };
        let before = conv.counters.seq;
        conv.counters.seq += i64::try_from(count).unwrap_or(i64::MAX);
        before
    }

    pub(super) fn insert(&mut self, row: Row) {
        if let Some(conv) = self.conversations.get_mut(&row.conversation)
            && conv.preview.is_none()
            && row.new.role == Role::User
            && row.is_visible()
        {
            conv.preview = rules::preview(&row.new.content);
        }
        self.rows.insert(row);
    }

    /// Appends rows whose freshness was checked.
    pub(super) fn append(
        &mut self,
        conversation: &ConversationId,
        session: &SessionId,
        turn: &TurnId,
        rows: Vec<NewMessage>,
        now: i64,
    ) -> Result<(), StoreError> {
        let fresh = self.fresh(conversation, &rows)?;
        let before = self.reserve(conversation, rows.len());
        for (seq, (new, fresh)) in (before + 1..).zip(rows.into_iter().zip(fresh)) {
            if fresh {
                self.insert(Row {
                    conversation: conversation.clone(),
                    session: session.clone(),
                    turn: turn.clone(),
                    seq,
                    digest: Digest::of(&new.digest()),
                    new: new.into(),
                    calls: Vec::new(),
                    answers: None,
                    created_ms: now,
                    life: Life::default(),
                });
            }
        }
        Ok(())
    }

    /// Stores the result of a call that has none.
    pub(super) fn settle(&mut self, id: &CallId, result: CallResult, now: i64) {
        let Some(call) = self.calls.get_mut(id) else { return };
        call.state = JournalState::Settled;
        call.outcome = Some(result.outcome);
        call.digest = Some(Digest::of(&rules::result_digest(result.outcome, &result.content)));
        call.written_ms = now;
        let call = call.clone();
        let Some(session) = self.rows.get(&call.assistant).map(|row| row.session.clone()) else { return };
        let mut new = NewMessage::text(call.new.result.clone(), Role::Tool, result.content);
        new.meta = result.meta;
        self.insert(Row {
            conversation: call.conversation,
            session,
            turn: call.turn,
            seq: call.result_seq,
            digest: Digest::of(&new.digest()),
            new: new.into(),
            calls: Vec::new(),
            answers: Some(id.clone()),
            created_ms: now,
            life: Life::default(),
        });
    }

    /// Ends a turn, and its admission with it.
    pub(super) fn end_turn(&mut self, turn: &TurnId, end: &TurnEnd, now: i64) {
        let Some(record) = self.turns.get_mut(turn) else { return };
        record.status = TurnStatus::Ended;
        record.end = Some((end.reason.clone(), end.detail.clone()));
        record.api_calls = end.api_calls;
        record.ended_ms = Some(now);
        if let Some(admission) = self.admissions.get_mut(&record.admission) {
            admission.receipt.status = AdmissionStatus::Terminal;
            admission.receipt.outcome = Some(end.outcome);
        }
        let conversation = record.conversation.clone();
        self.close(&conversation);
        self.owe_answer(turn, end, now);
    }

    /// No turn is open any more.
    pub(super) fn close(&mut self, conversation: &ConversationId) {
        if let Some(conv) = self.conversations.get_mut(conversation) {
            conv.open_turn = None;
        }
    }

    pub(super) fn count(&mut self, conversation: &ConversationId, usage: Option<&UsageDelta>) {
        if let Some(usage) = usage {
            self.usage.count(conversation, usage);
        }
    }

    /// The row with the final answer of a turn.
    pub(super) fn answer(&self, turn: &TurnId) -> Option<StoredMessage> {
        let row = self.rows_of_turn(turn).rev().find(|row| {
            row.new.role == Role::Assistant
                && row.calls.is_empty()
                && row.new.kind == MessageKind::Normal
                && row.life.copy_of.is_none()
        })?;
        Some(self.stored(row))
    }
}
