//! The transcript in the in-memory model.

use async_trait::async_trait;

use super::MemoryStore;
use super::state::{Call, Digest, Life, Row, State};
use crate::admission::{AdmissionOutcome, AdmissionRecord, AdmissionStatus, Intent};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{CallId, ConversationId, SessionId, TurnId};
use crate::limits::{PAGE_MAX_ROWS, STEERS_MAX};
use crate::message::{MessagePage, NewMessage, RowState, StoredMessage, UsageDelta, View};
use crate::prompt::{PromptHash, PromptSnapshot};
use crate::round::{CallResult, JournalState, Planned, Recorded, Round, SettledCall};
use crate::rules::{self, conflict, invalid, not_found};
use crate::session::{NewSession, SessionRecord};
use crate::traits::TranscriptStore;

impl State {
    fn change_session(&mut self, fence: &Fence, turn: &TurnId, new: NewSession, now: i64) -> Result<(), StoreError> {
        let tip = self.running(fence, turn)?.tip.clone();
        let record = self.sessions.get_mut(&new.id).filter(|_| tip.as_ref() == Some(&new.id));
        let record = record.ok_or_else(|| conflict("session", &new.id))?;
        record.provider = new.provider;
        record.model = new.model;
        record.cwd = new.cwd;
        record.prompt = new.prompt.hash().clone();
        record.tools = new.tools.hash().clone();
        for prompt in [new.prompt, new.tools] {
            self.prompts.insert(prompt.hash().as_str().to_owned(), prompt.bytes().clone());
        }
        self.touch(fence.conversation(), now, true);
        Ok(())
    }

    fn open_session(
        &mut self,
        fence: &Fence,
        turn: &TurnId,
        new: NewSession,
        rows: Vec<NewMessage>,
        now: i64,
    ) -> Result<(), StoreError> {
        rules::check_rows(&rows)?;
        let id = fence.conversation();
        let tip = self.running(fence, turn)?.tip.clone();
        self.fresh(id, &rows)?;
        let record = SessionRecord {
            id: new.id.clone(),
            conversation: id.clone(),
            parent: new.parent.clone(),
            provider: new.provider,
            model: new.model,
            cwd: new.cwd,
            prompt: new.prompt.hash().clone(),
            tools: new.tools.hash().clone(),
            started_at_ms: now,
            ended_at_ms: None,
            end_reason: None,
        };
        if let Some(known) = self.sessions.get(&new.id) {
            let same = SessionRecord { started_at_ms: known.started_at_ms, ..record };
            if *known != same || tip.as_ref() != Some(&new.id) {
                return Err(conflict("session", &new.id));
            }
        } else {
            if new.parent != tip {
                return Err(conflict("the parent of session", &new.id));
            }
            if tip.is_some() {
                return Err(invalid(rules::ONLY_ROTATE));
            }
            if new.id != id.first_session() {
                return Err(invalid("the first session of a conversation has the conversation's id"));
            }
            for prompt in [new.prompt, new.tools] {
                self.prompts.insert(prompt.hash().as_str().to_owned(), prompt.bytes().clone());
            }
            self.sessions.insert(new.id.clone(), record);
            if let Some(conv) = self.conversations.get_mut(id) {
                conv.tip = Some(new.id.clone());
            }
            if let Some(record) = self.turns.get_mut(turn) {
                record.session = Some(new.id.clone());
            }
        }
        self.append(id, &new.id, turn, rows, now)?;
        self.touch(id, now, true);
        Ok(())
    }

    fn tip(&self, fence: &Fence, turn: &TurnId) -> Result<SessionId, StoreError> {
        self.running(fence, turn)?.tip.clone().ok_or_else(|| invalid("the conversation has no session yet; open one"))
    }

    fn record_round(&mut self, fence: &Fence, round: Round<Planned>, now: i64) -> Result<Round<Recorded>, StoreError> {
        rules::check_round(&round)?;
        let id = fence.conversation();
        let turn = round.turn().clone();
        let session = self.tip(fence, &turn)?;
        let calls: Vec<_> = round.calls().iter().map(|call| &call.new).collect();
        let digest = Digest::of(&rules::round_digest(round.assistant(), &calls));
        if let Some(known) = self.rows.get(&round.assistant().id) {
            if known.digest != digest || known.conversation != *id || known.turn != turn {
                return Err(conflict("message", &round.assistant().id));
            }
            let states: Vec<_> =
                calls.iter().map(|c| self.calls.get(&c.call).map_or(JournalState::Recorded, |k| k.state)).collect();
            // A repetition reserves places as the first time did: gaps are allowed, a second look is not needed.
            self.reserve(id, states.len() + 1);
            self.touch(id, now, true);
            return Ok(round.recorded(&states));
        }
        self.fresh(id, std::slice::from_ref(round.assistant()))?;
        for call in &calls {
            if self.calls.contains_key(&call.call)
                || self.rows.contains_key(&call.result)
                || self.calls.result_is(&call.result)
            {
                return Err(conflict("call", &call.call));
            }
        }
        self.count(id, round.usage());
        let first = self.reserve(id, calls.len() + 1) + 1;
        self.insert(Row {
            conversation: id.clone(),
            session,
            turn: turn.clone(),
            seq: first,
            digest,
            new: round.assistant().clone().into(),
            calls: calls.iter().map(|call| call.call.clone()).collect(),
            answers: None,
            created_ms: now,
            life: Life::default(),
        });
        let mut states = Vec::with_capacity(calls.len());
        for (seq, call) in (first + 1..).zip(calls) {
            let stored = Call {
                conversation: id.clone(),
                turn: turn.clone(),
                assistant: round.assistant().id.clone(),
                new: crate::round::NewCall { preset: None, ..call.clone() },
                result_seq: seq,
                state: JournalState::Recorded,
                outcome: None,
                digest: None,
                written_ms: now,
            };
            self.calls.insert(call.call.clone(), stored);
            states.push(JournalState::Recorded);
            if let (Some(preset), Some(state)) = (call.preset.clone(), states.last_mut()) {
                self.settle(&call.call, preset, now);
                *state = JournalState::Settled;
            }
        }
        self.touch(id, now, true);
        Ok(round.recorded(&states))
    }

    /// A call of this turn.
    fn call(&self, fence: &Fence, turn: &TurnId, id: &CallId) -> Result<&Call, StoreError> {
        self.calls
            .get(id)
            .map(Box::as_ref)
            .filter(|call| call.turn == *turn && call.conversation == *fence.conversation())
            .ok_or_else(|| not_found("call", id))
    }

    fn start_calls(&mut self, fence: &Fence, turn: &TurnId, ids: &[CallId], now: i64) -> Result<(), StoreError> {
        self.running(fence, turn)?;
        for id in ids {
            if self.call(fence, turn, id)?.state == JournalState::Settled {
                return Err(invalid(format!("call {id} has a stored result; it must not run again")));
            }
        }
        for id in ids {
            if let Some(call) = self.calls.get_mut(id) {
                call.state = JournalState::Started;
                call.written_ms = now;
            }
        }
        self.touch(fence.conversation(), now, true);
        Ok(())
    }

    fn settle_call(
        &mut self,
        fence: &Fence,
        turn: &TurnId,
        id: &CallId,
        result: CallResult,
        now: i64,
    ) -> Result<SettledCall, StoreError> {
        rules::check_result(&result)?;
        self.running(fence, turn)?;
        let call = self.call(fence, turn, id)?;
        match &call.digest {
            Some(known) if *known != Digest::of(&rules::result_digest(result.outcome, &result.content)) => {
                return Err(conflict("the result of call", id));
            }
            Some(_) => {}
            None => self.settle(id, result, now),
        }
        self.touch(fence.conversation(), now, true);
        Ok(SettledCall::new(id.clone()))
    }

    fn take_steers(
        &mut self,
        fence: &Fence,
        turn: &TurnId,
        make: &(dyn for<'a> Fn(&'a [AdmissionRecord]) -> Vec<NewMessage> + Send + Sync),
        now: i64,
    ) -> Result<Vec<AdmissionRecord>, StoreError> {
        let id = fence.conversation();
        self.running(fence, turn)?;
        let mut steers: Vec<AdmissionRecord> = self
            .waiting(id)
            .into_iter()
            .filter(|a| {
                a.receipt.status == AdmissionStatus::Queued && matches!(a.intent, Intent::Steer | Intent::Redirect)
            })
            .take(STEERS_MAX)
            .cloned()
            .collect();
        if steers.is_empty() {
            return Ok(steers);
        }
        let session = self.tip(fence, turn)?;
        let rows = make(&steers);
        rules::check_rows(&rows)?;
        self.append(id, &session, turn, rows, now)?;
        let generation = self.turns.get(turn).map(|record| record.generation);
        for steer in &mut steers {
            steer.receipt.status = AdmissionStatus::Terminal;
            steer.receipt.outcome = Some(AdmissionOutcome::Completed);
            steer.receipt.turn = Some(turn.clone());
            steer.receipt.generation = generation;
            self.admissions.insert(steer.receipt.admission.clone(), steer.clone());
        }
        self.touch(id, now, true);
        Ok(steers)
    }

    fn messages(&self, id: &ConversationId, view: View, page: MessagePage) -> Result<Vec<StoredMessage>, StoreError> {
        let tip = self.conv(id)?.tip.as_ref();
        let limit = page.limit.min(PAGE_MAX_ROWS);
        let wanted = |row: &&Row| match view {
            View::Model => Some(&row.session) == tip && row.life.state == RowState::Active,
            View::Display => row.is_visible(),
        };
        let session = tip.filter(|_| view == View::Model);
        let rows = self.rows.behind(id, session, page.after_seq).filter(wanted);
        let mut out: Vec<_> = match page.from_end {
            false => rows.take(limit).map(|row| self.stored(row)).collect(),
            true => rows.rev().take(limit).map(|row| self.stored(row)).collect(),
        };
        if page.from_end {
            out.reverse();
        }
        Ok(out)
    }
}

#[async_trait]
impl TranscriptStore for MemoryStore {
    async fn open_session(
        &self,
        fence: &Fence,
        turn: &TurnId,
        session: NewSession,
        rows: Vec<NewMessage>,
    ) -> Result<(), StoreError> {
        let done = self.state().open_session(fence, turn, session, rows, self.now());
        self.notify();
        done
    }

    async fn change_session(&self, fence: &Fence, turn: &TurnId, session: NewSession) -> Result<(), StoreError> {
        let done = self.state().change_session(fence, turn, session, self.now());
        self.notify();
        done
    }

    async fn append(
        &self,
        fence: &Fence,
        turn: &TurnId,
        rows: Vec<NewMessage>,
        usage: Option<UsageDelta>,
    ) -> Result<(), StoreError> {
        rules::check_rows(&rows)?;
        {
            let now = self.now();
            let mut state = self.state();
            let session = state.tip(fence, turn)?;
            state.append(fence.conversation(), &session, turn, rows, now)?;
            state.count(fence.conversation(), usage.as_ref());
            state.touch(fence.conversation(), now, true);
        }
        self.notify();
        Ok(())
    }

    async fn record_round(&self, fence: &Fence, round: Round<Planned>) -> Result<Round<Recorded>, StoreError> {
        let done = self.state().record_round(fence, round, self.now());
        self.notify();
        done
    }

    async fn start_calls(&self, fence: &Fence, turn: &TurnId, calls: &[CallId]) -> Result<(), StoreError> {
        let done = self.state().start_calls(fence, turn, calls, self.now());
        self.notify();
        done
    }

    async fn settle_call(
        &self,
        fence: &Fence,
        turn: &TurnId,
        call: &CallId,
        result: CallResult,
    ) -> Result<SettledCall, StoreError> {
        let done = self.state().settle_call(fence, turn, call, result, self.now());
        self.notify();
        done
    }

    async fn take_steers(
        &self,
        fence: &Fence,
        turn: &TurnId,
        rows: &(dyn for<'a> Fn(&'a [AdmissionRecord]) -> Vec<NewMessage> + Send + Sync),
    ) -> Result<Vec<AdmissionRecord>, StoreError> {
        let done = self.state().take_steers(fence, turn, rows, self.now());
        self.notify();
        done
    }

    async fn count_usage(&self, fence: &Fence, usage: UsageDelta) -> Result<(), StoreError> {
        {
            let mut state = self.state();
            state.fenced(fence)?;
            state.count(fence.conversation(), Some(&usage));
            state.touch(fence.conversation(), self.now(), false);
        }
        self.notify();
        Ok(())
    }

    async fn messages(
        &self,
        conversation: &ConversationId,
        view: View,
        page: MessagePage,
    ) -> Result<Vec<StoredMessage>, StoreError> {
        self.state().messages(conversation, view, page)
    }

    async fn prompt(&self, hash: &PromptHash) -> Result<PromptSnapshot, StoreError> {
        let bytes = self.state().prompts.get(hash.as_str()).cloned();
        let found = PromptSnapshot::new(bytes.ok_or_else(|| not_found("prompt", hash.as_str()))?);
        if found.hash() != hash {
            return Err(StoreError::Corrupt { detail: format!("prompt {} has other bytes", hash.as_str()) });
        }
        Ok(found)
    }
}
