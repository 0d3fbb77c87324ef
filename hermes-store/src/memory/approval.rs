//! Questions to people, in the in-memory model.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::MemoryStore;
use super::state::State;
use crate::approval::{AnswerOutcome, ApprovalAnswer, ApprovalRecord, ApprovalState, ApprovalStore, NewApproval};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{ApprovalId, CallId, ConversationId, TurnId};
use crate::limits::{APPROVAL_KEEP_MS, APPROVALS_LIST_MAX, APPROVALS_OPEN_MAX};
use crate::round::JournalState;
use crate::rules::{conflict, invalid, ms, not_found};

/// Every question.
pub(super) type Approvals = BTreeMap<ApprovalId, ApprovalRecord>;

impl State {
    /// Whether an answer could still be of use: the turn is running, and the call has no result.
    fn is_live(&self, approval: &ApprovalRecord) -> bool {
        let running = self.conversations.get(&approval.conversation).and_then(|conv| conv.open_turn.as_ref());
        running == Some(&approval.turn) && self.is_unanswered(&approval.turn, &approval.call)
    }

    fn is_unanswered(&self, turn: &TurnId, call: &CallId) -> bool {
        self.calls.get(call).is_some_and(|known| known.turn == *turn && known.state != JournalState::Settled)
    }

    fn ask(&mut self, fence: &Fence, turn: &TurnId, new: NewApproval, now: i64) -> Result<ApprovalRecord, StoreError> {
        self.running(fence, turn)?;
        let record = new.into_record(fence.conversation(), turn, now);
        if let Some(known) = self.approvals.get(&record.id) {
            return match known.is_same(&record) {
                true => Ok(known.clone()),
                false => Err(conflict("approval", &record.id)),
            };
        }
        if !self.is_unanswered(turn, &record.call) {
            return Err(invalid(format!("call {} is not an open call of the turn", record.call)));
        }
        let open = self.approvals.values().filter(|a| a.turn == *turn && a.state == ApprovalState::Open).count();
        if open >= APPROVALS_OPEN_MAX {
            return Err(StoreError::Limit {
                what: "the number of open questions of a turn",
                limit: APPROVALS_OPEN_MAX as u64,
            });
        }
        self.approvals.insert(record.id.clone(), record.clone());
        self.touch(fence.conversation(), now, false);
        Ok(record)
    }

    fn answer_approval(
        &mut self,
        id: &ApprovalId,
        principal: &str,
        answer: &ApprovalAnswer,
        now: i64,
    ) -> Result<AnswerOutcome, StoreError> {
        let record = self.approvals.get(id).cloned().ok_or_else(|| not_found("approval", id))?;
        let is_live = self.is_live(&record);
        let (outcome, is_changed) = record.answer(principal, answer, is_live, now)?;
        if is_changed {
            let record = outcome.approval().clone();
            if let Some(conv) = self.conversations.get_mut(&record.conversation) {
                conv.revision += 1;
            }
            self.approvals.insert(id.clone(), record);
        }
        Ok(outcome)
    }

    fn withdraw(
        &mut self,
        fence: &Fence,
        id: &ApprovalId,
        reason: &str,
        now: i64,
    ) -> Result<ApprovalRecord, StoreError> {
        self.fenced(fence)?;
        let known = self.approvals.get_mut(id).filter(|a| a.conversation == *fence.conversation());
        let known = known.ok_or_else(|| not_found("approval", id))?;
        let is_changed = known.withdraw(reason, now)?;
        let record = known.clone();
        if is_changed {
            self.touch(fence.conversation(), now, false);
        }
        Ok(record)
    }

    /// Ends what cannot be answered any more.
    fn lapse_approvals(&mut self, now: i64) -> Result<(), StoreError> {
        let open: Vec<_> = self.approvals.values().filter(|a| a.state == ApprovalState::Open).cloned().collect();
        for mut one in open {
            if one.lapse(self.is_live(&one), now)? {
                self.approvals.insert(one.id.clone(), one);
            }
        }
        Ok(())
    }
}

fn in_order(mut found: Vec<ApprovalRecord>) -> Vec<ApprovalRecord> {
    found.sort_by_key(|a| (a.asked_at_ms, a.id.clone()));
    found
}

#[async_trait]
impl ApprovalStore for MemoryStore {
    async fn ask_approval(
        &self,
        fence: &Fence,
        turn: &TurnId,
        approval: NewApproval,
    ) -> Result<ApprovalRecord, StoreError> {
        approval.check()?;
        let done = self.state().ask(fence, turn, approval, self.now());
        self.notify();
        done
    }

    async fn answer_approval(
        &self,
        id: &ApprovalId,
        principal: &str,
        answer: ApprovalAnswer,
    ) -> Result<AnswerOutcome, StoreError> {
        let done = self.state().answer_approval(id, principal, &answer, self.now());
        self.notify();
        done
    }

    async fn withdraw_approval(
        &self,
        fence: &Fence,
        id: &ApprovalId,
        reason: &str,
    ) -> Result<ApprovalRecord, StoreError> {
        let done = self.state().withdraw(fence, id, reason, self.now());
        self.notify();
        done
    }

    async fn approval(&self, id: &ApprovalId) -> Result<ApprovalRecord, StoreError> {
        self.state().approvals.get(id).cloned().ok_or_else(|| not_found("approval", id))
    }

    async fn approvals_of_turn(&self, turn: &TurnId) -> Result<Vec<ApprovalRecord>, StoreError> {
        Ok(in_order(self.state().approvals.values().filter(|a| a.turn == *turn).cloned().collect()))
    }

    async fn open_approvals(&self, conversation: Option<&ConversationId>) -> Result<Vec<ApprovalRecord>, StoreError> {
        let mut state = self.state();
        state.lapse_approvals(self.now())?;
        let open = state.approvals.values().filter(|a| a.state == ApprovalState::Open);
        let mut found =
            in_order(open.filter(|a| conversation.is_none_or(|id| *id == a.conversation)).cloned().collect());
        found.truncate(APPROVALS_LIST_MAX);
        Ok(found)
    }

    async fn prune_approvals(&self) -> Result<u64, StoreError> {
        let now = self.now();
        let mut state = self.state();
        state.lapse_approvals(now)?;
        let before = now.saturating_sub(ms(APPROVAL_KEEP_MS));
        let all = state.approvals.len();
        state.approvals.retain(|_, a| a.ended_at_ms.is_none_or(|ended| ended > before));
        Ok((all - state.approvals.len()) as u64)
    }
}
