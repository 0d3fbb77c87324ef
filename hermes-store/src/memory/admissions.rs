//! Inputs in the in-memory model.

use async_trait::async_trait;

use super::MemoryStore;
use super::state::{Conv, Row, State};
use crate::admission::{
    AdmissionEvent, AdmissionOutcome, AdmissionRecord, AdmissionStatus, AdmitOutcome, NewAdmission, Receipt,
};
use crate::error::StoreError;
use crate::ids::{AdmissionId, ConversationId, Generation, OwnerId};
use crate::limits::QUEUE_MAX;
use crate::message::{MessageKind, Role, RowState};
use crate::round::JournalState;
use crate::rules::{self, conflict, invalid, not_found};
use crate::session::{ConversationFlags, NewConversation, TitleSource};
use crate::traits::AdmissionStore;
use crate::turn::TurnEnd;

impl State {
    pub(super) fn admit(&mut self, input: NewAdmission, now: i64) -> Result<AdmitOutcome, StoreError> {
        rules::check_admission(&input)?;
        if let Some(known) = self.admission_of(&input.conversation, &input.principal, &input.request_id) {
            if known.intent != input.intent || known.payload != input.payload {
                return Err(conflict("request", &input.request_id));
            }
            return Ok(AdmitOutcome::Replayed(known.receipt.clone()));
        }
        self.conv(&input.conversation)?;
        if self.admissions.contains_key(&input.id) {
            return Err(conflict("admission", &input.id));
        }
        self.check_not_retired(&input.submitted_by)?;
        if i64::try_from(self.waiting(&input.conversation).len()).unwrap_or(i64::MAX) >= QUEUE_MAX {
            return Err(StoreError::Limit {
                what: "the queue of a conversation",
                limit: u64::try_from(QUEUE_MAX).unwrap_or(0),
            });
        }
        let Some(conv) = self.conversations.get_mut(&input.conversation) else {
            return Err(not_found("conversation", &input.conversation));
        };
        conv.counters.place += 1;
        conv.revision += 1;
        conv.activity_ms = now;
        conv.ended = None;
        if std::mem::take(&mut conv.flags.auto_archived) {
            conv.flags.archived = false;
        }
        let receipt = Receipt {
            admission: input.id.clone(),
            conversation: input.conversation,
            seq: conv.counters.place,
            status: AdmissionStatus::Queued,
            outcome: None,
            generation: None,
            turn: None,
        };
        let record = AdmissionRecord {
            receipt: receipt.clone(),
            principal: input.principal,
            request_id: input.request_id,
            intent: input.intent,
            payload: input.payload,
            submitted_by: input.submitted_by,
            created_at_ms: now,
        };
        self.admissions.insert(input.id, record);
        Ok(AdmitOutcome::Accepted(receipt))
    }

    /// What was accepted under this key.
    fn admission_of(&self, conversation: &ConversationId, principal: &str, request: &str) -> Option<&AdmissionRecord> {
        self.admissions.of(conversation).find(|known| known.principal == principal && known.request_id == request)
    }

    /// A process that ends accepts nothing new (S17).
    pub(super) fn check_not_retired(&self, owner: &OwnerId) -> Result<(), StoreError> {
        match self.owners.get(owner) {
            Some(row) if row.retired => Err(StoreError::Retired),
            _ => Ok(()),
        }
    }

    /// Creates a conversation unless it is there. One that was deleted goes on with its old counters (I08).
    pub(super) fn create(&mut self, new: &NewConversation, now: i64) {
        if self.conversations.contains_key(&new.id) {
            return;
        }
        let title = new.title.as_deref().and_then(rules::clean_title);
        let counters = self.tombstones.remove(&new.id).unwrap_or_default();
        let conv = Conv {
            profile: new.profile.clone(),
            source: new.source.clone(),
            title_source: title.is_some().then_some(TitleSource::User),
            title,
            preview: None,
            tip: None,
            open_turn: None,
            revision: 0,
            counters,
            lease: None,
            freed_ms: now,
            created_ms: now,
            activity_ms: now,
            origin: None,
            flags: ConversationFlags::default(),
            ended: None,
        };
        self.conversations.insert(new.id.clone(), conv);
    }

    fn resolve(
        &mut self,
        id: &AdmissionId,
        generation: Generation,
        end: &TurnEnd,
        now: i64,
    ) -> Result<Receipt, StoreError> {
        let record = self.admissions.get(id).ok_or_else(|| not_found("admission", id))?;
        record.receipt.status.next(AdmissionEvent::Resolve)?;
        let turn = match (&record.receipt.turn, record.receipt.generation) {
            (Some(turn), Some(known)) if known == generation => turn.clone(),
            _ => return Err(invalid(format!("generation {} is not the one that is unknown", generation.0))),
        };
        let conversation = record.receipt.conversation.clone();
        let closing = rules::resolved_row(&conversation, &turn, end)?;
        let open: Vec<_> =
            self.calls_of(&turn).into_iter().filter(|c| c.state != JournalState::Settled).cloned().collect();
        for call in open {
            self.settle(&call.new.call, rules::resolved_result(call.state), now);
        }
        let is_closed =
            |row: &Row| row.new.role == Role::Assistant && row.calls.is_empty() && row.new.kind != MessageKind::Hidden;
        let input = id.input_row();
        let session = match self.rows_of_turn(&turn).next_back() {
            Some(last) => Some(last.session.clone()).filter(|_| !is_closed(last)),
            // The row of an input that was put back into its place and begun again is the earlier turn's.
            None => self
                .rows_of(&conversation)
                .any(|row| row.new.id == input && row.life.state != RowState::Superseded)
                .then(|| self.conversations.get(&conversation).and_then(|conv| conv.tip.clone()))
                .flatten(),
        };
        if let Some(session) = session {
            self.append(&conversation, &session, &turn, vec![closing], now)?;
        }
        self.end_turn(&turn, end, now);
        if let Some(conv) = self.conversations.get_mut(&conversation) {
            conv.revision += 1;
        }
        self.admissions.get(id).map(|a| a.receipt.clone()).ok_or_else(|| not_found("admission", id))
    }
}

#[async_trait]
impl AdmissionStore for MemoryStore {
    async fn admit(&self, input: NewAdmission) -> Result<AdmitOutcome, StoreError> {
        let done = self.state().admit(input, self.now());
        self.notify();
        done
    }

    async fn create_and_admit(
        &self,
        conversation: NewConversation,
        input: NewAdmission,
    ) -> Result<AdmitOutcome, StoreError> {
        if conversation.id != input.conversation {
            return Err(invalid("the input belongs to another conversation than the one to be created"));
        }
        rules::check_admission(&input)?;
        let done = {
            let now = self.now();
            let mut state = self.state();
            let is_new = !state.conversations.contains_key(&conversation.id);
            if is_new && state.admissions.contains_key(&input.id) {
                return Err(conflict("admission", &input.id));
            }
            if is_new {
                state.check_not_retired(&input.submitted_by)?;
            }
            state.create(&conversation, now);
            state.admit(input, now)
        };
        self.notify();
        done
    }

    async fn admission(&self, id: &AdmissionId) -> Result<AdmissionRecord, StoreError> {
        self.state().admissions.get(id).cloned().ok_or_else(|| not_found("admission", id))
    }

    async fn admission_of(
        &self,
        conversation: &ConversationId,
        principal: &str,
        request_id: &str,
    ) -> Result<Option<AdmissionRecord>, StoreError> {
        Ok(self.state().admission_of(conversation, principal, request_id).cloned())
    }

    async fn cancel(&self, id: &AdmissionId) -> Result<Receipt, StoreError> {
        let receipt = {
            let mut state = self.state();
            let record = state.admissions.get_mut(id).ok_or_else(|| not_found("admission", id))?;
            record.receipt.status = record.receipt.status.next(AdmissionEvent::Cancel)?;
            record.receipt.outcome = Some(AdmissionOutcome::Cancelled);
            let receipt = record.receipt.clone();
            if let Some(conv) = state.conversations.get_mut(&receipt.conversation) {
                conv.revision += 1;
            }
            receipt
        };
        self.notify();
        Ok(receipt)
    }

    async fn resolve_unknown(
        &self,
        id: &AdmissionId,
        generation: Generation,
        end: TurnEnd,
    ) -> Result<Receipt, StoreError> {
        let done = self.state().resolve(id, generation, &end, self.now());
        self.notify();
        done
    }
}
