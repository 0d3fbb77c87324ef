//! Changes of history in the in-memory model.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::MemoryStore;
use super::state::{Call, Change, Conv, Digest, Life, Row, State};
use crate::admission::{AdmissionStatus, NewAdmission, Receipt};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::history::{
    self, BranchOrigin, ChangeEvent, ChangeKind, ChangeStatus, Compaction, CompressionLock, HistoryChange, LockEvent,
    LockOutcome, LockRow, LockState, NewBranch, PlannedRow, Rewind, Rotation, TakeLock, ViewItem, ViewRow, stale,
};
use crate::ids::{CallId, ChangeId, ConversationId, MessageId, SessionId, Token, TurnId};
use crate::limits::{COMPRESSION_COOLDOWN_MAX_MS, PREVIEW_LOOK_ROWS};
use crate::message::{Role, RowState, View};
use crate::round::NewCall;
use crate::rules::{self, conflict, invalid, ms, not_found, not_running};
use crate::session::{NewSession, SessionRecord};
use crate::traits::HistoryStore;

/// What a change wants done, once it may be done.
struct Swap<'a> {
    id: &'a ChangeId,
    kind: ChangeKind,
    digest: String,
    /// The tip after it.
    session: SessionId,
    last_seq: i64,
    rows: u64,
}

impl State {
    fn item(&self, row: &Row) -> ViewItem {
        let call = |id: &CallId| Some((id.clone(), self.calls.get(id)?.state));
        let calls: Vec<_> = row.calls.iter().filter_map(call).collect();
        let arguments = |id: &CallId| self.calls.get(id).map_or(0, |call| call.new.arguments.len() as u64);
        ViewItem {
            id: row.new.id.clone(),
            seq: row.seq,
            role: row.new.role,
            kind: row.new.kind,
            copy_of: row.life.copy_of.clone(),
            turn: row.turn.clone(),
            bytes: row.new.shown_bytes() + row.calls.iter().map(arguments).sum::<u64>(),
            calls,
            answers: row.answers.clone(),
        }
    }

    /// What a model sees of a session.
    fn view(&self, conversation: &ConversationId, session: &SessionId) -> Vec<ViewItem> {
        let is_seen = |row: &&Row| row.session == *session && row.life.state == RowState::Active;
        self.rows_of(conversation).filter(is_seen).map(|row| self.item(row)).collect()
    }

    /// The change under this id, when it was made before.
    fn known(
        &self,
        conversation: &ConversationId,
        id: &ChangeId,
        digest: &str,
    ) -> Result<Option<HistoryChange>, StoreError> {
        match self.changes.get(id) {
            None => Ok(None),
            Some(known) if known.record.conversation == *conversation && known.digest == digest => {
                Ok(Some(known.record.clone()))
            }
            Some(_) => Err(conflict("change", id)),
        }
    }

    /// Inputs that wait, by the id of the row that each may have written.
    fn input_rows(&self, id: &ConversationId) -> BTreeSet<String> {
        let queued = |status| status == AdmissionStatus::Queued;
        let waiting = self.waiting(id).into_iter().filter(|a| queued(a.receipt.status));
        waiting.map(|a| a.receipt.admission.as_str().to_owned()).collect()
    }

    fn nothing_unknown(&self, id: &ConversationId) -> Result<(), StoreError> {
        let unknown = self.waiting(id).into_iter().find(|a| a.receipt.status == AdmissionStatus::Unknown);
        match unknown {
            Some(a) => Err(invalid(format!("input {} is unknown; resolve it first", a.receipt.admission))),
            None => Ok(()),
        }
    }

    fn tip_of(conv: &Conv) -> Result<SessionId, StoreError> {
        conv.tip.clone().ok_or_else(|| invalid("the conversation has no session yet; open one"))
    }

    /// The turn under which new rows are written: the running one or, without one, an id that no turn has.
    fn check_writer(&self, conv: &Conv, turn: &TurnId) -> Result<(), StoreError> {
        let fits = match &conv.open_turn {
            Some(open) => open == turn,
            None => !self.turns.contains_key(turn),
        };
        if fits { Ok(()) } else { Err(not_running(turn)) }
    }

    fn lock_row(&self, session: &SessionId) -> Option<&LockRow> {
        self.locks.get(session)?.row.as_ref()
    }

    fn held(&self, fence: &Fence, lock: &CompressionLock) -> Result<LockRow, StoreError> {
        let row = self.lock_row(lock.session()).ok_or_else(history::lock_lost)?;
        row.check(fence, lock)?;
        Ok(row.clone())
    }

    fn end_lock(&mut self, session: &SessionId, event: LockEvent) {
        if let Some(row) = self.locks.get_mut(session).and_then(|lock| lock.row.as_mut())
            && let Ok(next) = row.state.next(event)
        {
            row.state = next;
        }
    }

    fn take_lock(&mut self, fence: &Fence, take: TakeLock, now: i64) -> Result<LockOutcome, StoreError> {
        history::check_holder(&take.holder)?;
        let tip = Self::tip_of(self.fenced(fence)?)?;
        if tip != take.session {
            return Err(stale(format!("the conversation goes on in session {tip}")));
        }
        let known = self.locks.entry(tip.clone()).or_default();
        let seen = known.row.clone().map(|row| row.seen(fence.token(), now));
        let mut token = seen.as_ref().map_or(Token(0), |row| row.token);
        match seen {
            Some(row) if row.state == LockState::Held && row.holder != take.holder => {
                return Ok(LockOutcome::Held { holder: row.holder, expires_at_ms: row.expires_ms });
            }
            Some(row) if row.state == LockState::Held => {}
            _ => {
                let until = known.cooldown_ms.min(now.saturating_add(ms(COMPRESSION_COOLDOWN_MAX_MS)));
                if until > now && !take.force {
                    return Ok(LockOutcome::Cooling { until_ms: until, error: known.error.clone() });
                }
                token = Token(token.0 + 1);
            }
        }
        let ttl_ms = ms(take.ttl_ms);
        let cooldown = known.cooldown_ms;
        known.row = Some(LockRow {
            state: LockState::Held,
            holder: take.holder.clone(),
            token,
            fence: fence.token(),
            expires_ms: now.saturating_add(ttl_ms),
            ttl_ms,
        });
        self.touch(fence.conversation(), now, false);
        Ok(LockOutcome::Taken(CompressionLock::new(tip, take.holder, token, cooldown)))
    }

    fn fail_compression(
        &mut self,
        fence: &Fence,
        lock: &CompressionLock,
        cooldown_ms: u64,
        error: &str,
        now: i64,
    ) -> Result<i64, StoreError> {
        self.fenced(fence)?;
        self.held(fence, lock)?;
        self.end_lock(lock.session(), LockEvent::Release);
        let until = now.saturating_add(ms(cooldown_ms.min(COMPRESSION_COOLDOWN_MAX_MS)));
        self.touch(fence.conversation(), now, false);
        let Some(known) = self.locks.get_mut(lock.session()) else { return Err(history::lock_lost()) };
        known.cooldown_ms = known.cooldown_ms.max(until);
        known.error = Some(history::cut_error(error));
        Ok(known.cooldown_ms)
    }

    /// Everything that a swap must pass before anything is changed; the view as it is, and where its rows go.
    fn before_swap(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        turn: &TurnId,
        rows: &[ViewRow],
    ) -> Result<(SessionId, Vec<ViewItem>), StoreError> {
        let id = fence.conversation();
        let conv = self.fenced(fence)?;
        self.check_writer(conv, turn)?;
        let tip = Self::tip_of(conv)?;
        self.held(fence, lock)?;
        if *lock.session() != tip {
            return Err(history::lock_lost());
        }
        self.nothing_unknown(id)?;
        for row in rows {
            if let ViewRow::New(new) = row
                && (self.rows.contains_key(&new.id) || self.calls.result_is(&new.id))
            {
                return Err(conflict("message", &new.id));
            }
        }
        Ok((tip.clone(), self.view(id, &tip)))
    }

    fn swap(
        &mut self,
        fence: &Fence,
        view: &[ViewItem],
        plan: &[PlannedRow<'_>],
        turn: &TurnId,
        swap: Swap<'_>,
        now: i64,
    ) -> HistoryChange {
        let id = fence.conversation();
        for item in view {
            if let Some(row) = self.rows.get_mut(&item.id) {
                row.life.state = RowState::Compacted;
            }
        }
        let before = self.reserve(id, plan.len());
        for (seq, planned) in (before + 1..).zip(plan) {
            let row = match planned {
                PlannedRow::New(new) => Row {
                    conversation: id.clone(),
                    session: swap.session.clone(),
                    turn: turn.clone(),
                    seq,
                    digest: Digest::of(&new.digest()),
                    new: (*new).clone().into(),
                    calls: Vec::new(),
                    answers: None,
                    created_ms: now,
                    life: Life::default(),
                },
                PlannedRow::Copy { id: copy, of, content } => {
                    let Some(first) = self.rows.get(&of.id) else { continue };
                    let mut row = Row::clone(first);
                    row.life = Life { copy_of: Some(of.root().clone()), ..Life::default() };
                    row.new.id = copy.clone();
                    row.session = swap.session.clone();
                    row.seq = seq;
                    if let Some(content) = content {
                        row.new.replace_content(content);
                    }
                    row
                }
            };
            self.insert(row);
        }
        self.touch(id, now, true);
        let last_seq = before + i64::try_from(plan.len()).unwrap_or(0);
        self.note(id, Swap { last_seq, ..swap }, now)
    }

    fn note(&mut self, conversation: &ConversationId, swap: Swap<'_>, now: i64) -> HistoryChange {
        let of_it = self.changes.values().filter(|change| change.record.conversation == *conversation);
        let ordinal = of_it.map(|change| change.ordinal).max().unwrap_or(0) + 1;
        let record = HistoryChange {
            id: swap.id.clone(),
            conversation: conversation.clone(),
            kind: swap.kind,
            status: ChangeStatus::Applied,
            session: swap.session,
            rows: swap.rows,
            last_seq: swap.last_seq,
            created_at_ms: now,
        };
        self.changes.insert(swap.id.clone(), Change { record: record.clone(), digest: swap.digest, ordinal });
        record
    }

    fn keep_prompts(&mut self, new: &NewSession) {
        for prompt in [&new.prompt, &new.tools] {
            self.prompts.insert(prompt.hash().as_str().to_owned(), prompt.bytes().clone());
        }
    }

    fn rotate(
        &mut self,
        fence: &Fence,
        lock: &CompressionLock,
        rotation: &Rotation,
        now: i64,
    ) -> Result<HistoryChange, StoreError> {
        history::check_view_rows(&rotation.rows)?;
        let id = fence.conversation();
        self.fenced(fence)?;
        let child = &rotation.child;
        let digest = history::change_digest(ChangeKind::Rotation, &rotation.mark, Some(child), &rotation.rows, None);
        if let Some(known) = self.known(id, &rotation.id, &digest)? {
            self.touch(id, now, true);
            return Ok(known);
        }
        let (tip, view) = self.before_swap(fence, lock, &rotation.turn, &rotation.rows)?;
        if child.parent.as_ref() != Some(&tip) {
            return Err(stale(format!("the conversation goes on in session {tip}")));
        }
        if self.sessions.contains_key(&child.id) {
            return Err(conflict("session", &child.id));
        }
        let plan = history::plan_view(&rotation.id, &tip, &view, &rotation.mark, &rotation.rows)?;
        let left = history::left_out(&view, &plan);
        history::check_inputs_stay(&self.input_rows(id), left.iter().copied())?;
        self.keep_prompts(child);
        self.sessions.insert(
            child.id.clone(),
            SessionRecord {
                id: child.id.clone(),
                conversation: id.clone(),
                parent: child.parent.clone(),
                provider: child.provider.clone(),
                model: child.model.clone(),
                cwd: child.cwd.clone(),
                prompt: child.prompt.hash().clone(),
                tools: child.tools.hash().clone(),
                started_at_ms: now,
                ended_at_ms: None,
                end_reason: None,
            },
        );
        if let Some(parent) = self.sessions.get_mut(&tip) {
            parent.ended_at_ms = Some(now);
            parent.end_reason = Some(history::COMPRESSION.to_owned());
        }
        if let Some(conv) = self.conversations.get_mut(id) {
            conv.tip = Some(child.id.clone());
        }
        if let Some(record) = self.turns.get_mut(&rotation.turn) {
            record.session = Some(child.id.clone());
        }
        self.end_lock(&tip, LockEvent::Rotate);
        let swap = Swap {
            id: &rotation.id,
            kind: ChangeKind::Rotation,
            digest,
            session: child.id.clone(),
            last_seq: 0,
            rows: left.len() as u64,
        };
        Ok(self.swap(fence, &view, &plan, &rotation.turn, swap, now))
    }

    fn compact(
        &mut self,
        fence: &Fence,
        lock: &CompressionLock,
        compaction: &Compaction,
        now: i64,
    ) -> Result<HistoryChange, StoreError> {
        history::check_view_rows(&compaction.rows)?;
        let id = fence.conversation();
        self.fenced(fence)?;
        let session = compaction.session.as_ref();
        let digest = history::change_digest(ChangeKind::Compaction, &compaction.mark, session, &compaction.rows, None);
        if let Some(known) = self.known(id, &compaction.id, &digest)? {
            self.touch(id, now, true);
            return Ok(known);
        }
        let (tip, view) = self.before_swap(fence, lock, &compaction.turn, &compaction.rows)?;
        if session.is_some_and(|new| new.id != tip) {
            return Err(stale(format!("the conversation goes on in session {tip}")));
        }
        let plan = history::plan_view(&compaction.id, &tip, &view, &compaction.mark, &compaction.rows)?;
        let left = history::left_out(&view, &plan);
        history::check_inputs_stay(&self.input_rows(id), left.iter().copied())?;
        if let (Some(new), Some(record)) = (session, self.sessions.get_mut(&tip)) {
            record.provider = new.provider.clone();
            record.model = new.model.clone();
            record.cwd = new.cwd.clone();
            record.prompt = new.prompt.hash().clone();
            record.tools = new.tools.hash().clone();
            self.keep_prompts(new);
        }
        self.end_lock(&tip, LockEvent::Compact);
        if let Some(lock) = self.locks.get_mut(&tip) {
            (lock.cooldown_ms, lock.error) = (0, None);
        }
        let swap = Swap {
            id: &compaction.id,
            kind: ChangeKind::Compaction,
            digest,
            session: tip,
            last_seq: 0,
            rows: left.len() as u64,
        };
        Ok(self.swap(fence, &view, &plan, &compaction.turn, swap, now))
    }

    /// The conversation of a fence that holds, at rest.
    fn at_rest(&self, fence: &Fence) -> Result<SessionId, StoreError> {
        let conv = self.fenced(fence)?;
        if let Some(turn) = &conv.open_turn {
            return Err(invalid(format!("turn {turn} is open; stop it, or wait for its end")));
        }
        self.nothing_unknown(fence.conversation())?;
        Self::tip_of(conv)
    }

    /// Sets the preview anew, from what people see.
    fn renew_preview(&mut self, id: &ConversationId) {
        let is_input = |row: &&Row| row.new.role == Role::User && row.is_visible();
        let preview = {
            let mut rows = self.rows_of(id).filter(is_input).take(PREVIEW_LOOK_ROWS);
            rows.find_map(|row| rules::preview(&row.new.content))
        };
        if let Some(conv) = self.conversations.get_mut(id) {
            conv.preview = preview;
        }
    }

    /// The rows that a rewind takes away, with the tip, or why it may not be.
    fn gone(&self, fence: &Fence, rewind: &Rewind) -> Result<(SessionId, Vec<ViewItem>), StoreError> {
        let id = fence.conversation();
        let tip = self.at_rest(fence)?;
        let view = self.view(id, &tip);
        let gone = history::plan_rewind(&tip, &view, rewind)?;
        history::check_inputs_stay(&self.input_rows(id), gone.iter())?;
        Ok((tip, gone.to_vec()))
    }

    fn retry(
        &mut self,
        fence: &Fence,
        rewind: &Rewind,
        again: NewAdmission,
        now: i64,
    ) -> Result<(HistoryChange, Receipt), StoreError> {
        let id = fence.conversation();
        self.fenced(fence)?;
        history::check_again(id, &again)?;
        let digest = history::rewind_digest(rewind, Some(&again));
        // All that may refuse it stands before the first change.
        if self.known(id, &rewind.id, &digest)?.is_none() {
            self.gone(fence, rewind)?;
        }
        let accepted = self.admit(again, now)?.receipt().clone();
        let change = self.rewind(fence, rewind, digest, now)?;
        Ok((change, accepted))
    }

    fn rewind(
        &mut self,
        fence: &Fence,
        rewind: &Rewind,
        digest: String,
        now: i64,
    ) -> Result<HistoryChange, StoreError> {
        let id = fence.conversation();
        self.fenced(fence)?;
        if let Some(known) = self.known(id, &rewind.id, &digest)? {
            self.touch(id, now, true);
            return Ok(known);
        }
        let (tip, gone) = self.gone(fence, rewind)?;
        let rows: BTreeSet<&MessageId> = gone.iter().flat_map(|item| [&item.id, item.root()]).collect();
        for row in rows {
            if let Some(row) = self.rows.get_mut(row) {
                row.life.undone = Some((rewind.id.clone(), row.life.state));
                row.life.state = RowState::Superseded;
            }
        }
        self.renew_preview(id);
        self.touch(id, now, true);
        let last_seq = self.conv(id)?.counters.seq;
        let swap =
            Swap { id: &rewind.id, kind: ChangeKind::Rewind, digest, session: tip, last_seq, rows: gone.len() as u64 };
        Ok(self.note(id, swap, now))
    }

    fn restore(&mut self, fence: &Fence, change: &ChangeId, now: i64) -> Result<HistoryChange, StoreError> {
        let id = fence.conversation();
        self.fenced(fence)?;
        let known = self.changes.get(change).filter(|known| known.record.conversation == *id).cloned();
        let known = known.ok_or_else(|| not_found("change", change))?;
        if known.record.kind != ChangeKind::Rewind {
            return Err(invalid("a compression is not taken back; make a branch from an earlier row"));
        }
        let Ok(status) = known.record.status.next(ChangeEvent::Restore) else {
            self.touch(id, now, true);
            return Ok(known.record);
        };
        self.at_rest(fence)?;
        let later = |other: &Change| {
            other.record.conversation == *id
                && other.ordinal > known.ordinal
                && other.record.status == ChangeStatus::Applied
        };
        if self.changes.values().any(later) {
            return Err(stale("a later change holds"));
        }
        if self.rows_of(id).next_back().is_some_and(|row| row.seq > known.record.last_seq) {
            return Err(stale("rows were written"));
        }
        for row in self.rows.of_mut(id) {
            if row.life.undone.as_ref().is_some_and(|(by, _)| by == change)
                && let Some((_, state)) = row.life.undone.take()
            {
                row.life.state = state;
            }
        }
        self.renew_preview(id);
        self.touch(id, now, true);
        let Some(known) = self.changes.get_mut(change) else { return Err(not_found("change", change)) };
        known.record.status = status;
        Ok(known.record.clone())
    }

    fn branch(&mut self, branch: &NewBranch, now: i64) -> Result<BranchOrigin, StoreError> {
        let new = &branch.conversation;
        let digest = history::branch_digest(branch);
        if let Some(known) = self.conversations.get(&new.id) {
            return match &known.origin {
                Some((origin, known)) if *known == digest => Ok(origin.clone()),
                _ => Err(conflict("conversation", &new.id)),
            };
        }
        let source = self.conv(&branch.from)?;
        let tip = Self::tip_of(source)?;
        let view = match branch.view {
            View::Model => self.view(&branch.from, &tip),
            View::Display => {
                self.rows_of(&branch.from).filter(|row| row.is_visible()).map(|row| self.item(row)).collect()
            }
        };
        let rows = history::plan_branch(&view, branch)?;
        let origin = BranchOrigin { conversation: branch.from.clone(), seq: rows.last().map_or(0, |item| item.seq) };
        if self.sessions.contains_key(&new.id.first_session()) {
            return Err(conflict("session", &new.id));
        }
        let Some(session) = self.sessions.get(&tip).cloned() else { return Err(not_found("session", &tip)) };
        let mut copies = Vec::with_capacity(rows.len());
        for item in &rows {
            copies.push(self.branched(new, item)?);
        }
        self.create(new, now);
        if let Some(conv) = self.conversations.get_mut(&new.id) {
            conv.origin = Some((origin.clone(), digest));
            conv.tip = Some(new.id.first_session());
        }
        self.sessions.insert(
            new.id.first_session(),
            SessionRecord {
                id: new.id.first_session(),
                conversation: new.id.clone(),
                parent: None,
                started_at_ms: now,
                ended_at_ms: None,
                end_reason: None,
                ..session
            },
        );
        let before = self.reserve(&new.id, copies.len());
        for (seq, (mut row, calls)) in (before + 1..).zip(copies) {
            row.seq = seq;
            for (at, mut call) in (seq + 1..).zip(calls) {
                call.result_seq = at;
                self.calls.insert(call.new.call.clone(), call);
            }
            self.insert(row);
        }
        self.renew_preview(&new.id);
        Ok(origin)
    }

    /// A row of a branch, and the calls of a round. Their ids follow from the branch and from what they copy.
    fn branched(&self, new: &crate::session::NewConversation, item: &ViewItem) -> Result<(Row, Vec<Call>), StoreError> {
        let Some(row) = self.rows.get(&item.id) else { return Err(not_found("message", &item.id)) };
        let ids = history::BranchIds::new(&new.id);
        let mut row = Row::clone(row);
        row.conversation = new.id.clone();
        row.session = new.id.first_session();
        row.turn = ids.turn(&item.turn)?;
        row.new.id = ids.message(item.root())?;
        row.life = Life::default();
        row.answers = row.answers.map(|call| ids.call(&call)).transpose()?;
        let known = std::mem::take(&mut row.calls);
        let mut calls = Vec::with_capacity(known.len());
        for id in known {
            let Some(call) = self.calls.get(&id) else { continue };
            let copy = ids.call(&id)?;
            row.calls.push(copy.clone());
            calls.push(Call {
                conversation: new.id.clone(),
                turn: row.turn.clone(),
                assistant: row.new.id.clone(),
                new: NewCall { call: copy, result: ids.message(&call.new.result)?, ..call.new.clone() },
                ..Call::clone(call)
            });
        }
        Ok((row, calls))
    }
}

#[async_trait]
impl HistoryStore for MemoryStore {
    async fn take_compression_lock(&self, fence: &Fence, take: TakeLock) -> Result<LockOutcome, StoreError> {
        let done = self.state().take_lock(fence, take, self.now());
        self.notify();
        done
    }

    async fn renew_compression_lock(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        ttl_ms: u64,
    ) -> Result<(), StoreError> {
        let now = self.now();
        let mut state = self.state();
        state.fenced(fence)?;
        let row = state.held(fence, lock)?;
        let (ttl_ms, expires_ms) = (ms(ttl_ms), now.saturating_add(ms(ttl_ms)));
        if let Some(known) = state.locks.get_mut(lock.session()) {
            known.row = Some(LockRow { ttl_ms, expires_ms, ..row });
        }
        state.touch(fence.conversation(), now, false);
        Ok(())
    }

    async fn release_compression_lock(&self, fence: &Fence, lock: &CompressionLock) -> Result<(), StoreError> {
        let now = self.now();
        let mut state = self.state();
        state.fenced(fence)?;
        if state.held(fence, lock).is_ok() {
            state.end_lock(lock.session(), LockEvent::Release);
        }
        state.touch(fence.conversation(), now, false);
        Ok(())
    }

    async fn fail_compression(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        cooldown_ms: u64,
        error: &str,
    ) -> Result<i64, StoreError> {
        self.state().fail_compression(fence, lock, cooldown_ms, error, self.now())
    }

    async fn rotate(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        rotation: Rotation,
    ) -> Result<HistoryChange, StoreError> {
        let done = self.state().rotate(fence, lock, &rotation, self.now());
        self.notify();
        done
    }

    async fn compact(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        compaction: Compaction,
    ) -> Result<HistoryChange, StoreError> {
        let done = self.state().compact(fence, lock, &compaction, self.now());
        self.notify();
        done
    }

    async fn rewind(&self, fence: &Fence, rewind: Rewind) -> Result<HistoryChange, StoreError> {
        let digest = history::rewind_digest(&rewind, None);
        let done = self.state().rewind(fence, &rewind, digest, self.now());
        self.notify();
        done
    }

    async fn retry(
        &self,
        fence: &Fence,
        rewind: Rewind,
        again: NewAdmission,
    ) -> Result<(HistoryChange, Receipt), StoreError> {
        let done = self.state().retry(fence, &rewind, again, self.now());
        self.notify();
        done
    }

    async fn restore(&self, fence: &Fence, change: &ChangeId) -> Result<HistoryChange, StoreError> {
        let done = self.state().restore(fence, change, self.now());
        self.notify();
        done
    }

    async fn branch(&self, branch: NewBranch) -> Result<BranchOrigin, StoreError> {
        let done = self.state().branch(&branch, self.now());
        self.notify();
        done
    }

    async fn changes(&self, conversation: &ConversationId) -> Result<Vec<HistoryChange>, StoreError> {
        let state = self.state();
        state.conv(conversation)?;
        let mut found: Vec<_> =
            state.changes.values().filter(|change| change.record.conversation == *conversation).collect();
        found.sort_by_key(|change| change.ordinal);
        Ok(found.into_iter().map(|change| change.record.clone()).collect())
    }
}
