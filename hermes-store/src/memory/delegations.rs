//! Delegations in the in-memory model.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use async_trait::async_trait;

use super::MemoryStore;
use super::state::State;
use crate::admission::{AdmissionEvent, AdmissionOutcome, AdmissionStatus, AdmitOutcome, NewAdmission};
use crate::delegation::{
    self, DelegationEnd, DelegationRecord, DelegationRow, DelegationState, DelegationStore, NewDelegation, ResultClaim,
    ResultDelivery,
};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{AdmissionId, ConversationId, DelegationId, OwnerId, TurnId};
use crate::limits::{DELEGATION_KEEP_MS, DELEGATIONS_KEPT, DELEGATIONS_PENDING_MAX, PAGE_MAX_ROWS, SWEEP_MAX_ROWS};
use crate::owner::LivenessProbe;
use crate::rules::{conflict, invalid, ms, not_found};

/// Every delegation.
pub(super) type Delegations = BTreeMap<DelegationId, DelegationRow>;

impl State {
    fn delegation_row(&self, id: &DelegationId) -> Result<&DelegationRow, StoreError> {
        self.delegations.get(id).ok_or_else(|| not_found("delegation", id))
    }

    /// Stores a row that changed, and returns what is told of it.
    fn keep(&mut self, row: DelegationRow) -> DelegationRecord {
        let record = row.record.clone();
        self.delegations.insert(record.id.clone(), row);
        record
    }

    fn dispatch(
        &mut self,
        fence: &Fence,
        turn: &TurnId,
        new: &NewDelegation,
        now: i64,
    ) -> Result<DelegationRecord, StoreError> {
        self.running(fence, turn)?;
        delegation::check_new(fence, new)?;
        let parent = fence.conversation();
        if let Some(known) = self.delegations.get(&new.id) {
            known.again(fence, turn, new)?;
            let input = self.admissions.get(&known.record.input);
            if input.is_some_and(|a| a.payload != new.input.payload || a.intent != new.input.intent) {
                return Err(conflict("delegation", &new.id));
            }
            let record = known.record.clone();
            self.touch(parent, now, false);
            return Ok(record);
        }
        let open = self.delegations.values().filter(|row| row.record.parent == *parent && !row.is_done()).count();
        if i64::try_from(open).unwrap_or(i64::MAX) >= DELEGATIONS_PENDING_MAX {
            return Err(delegation::too_many());
        }
        self.check_free(&new.input)?;
        self.check_not_retired(&new.input.submitted_by)?;
        self.create(&new.child, now);
        let AdmitOutcome::Accepted(receipt) = self.admit(new.input.clone(), now)? else {
            return Err(conflict("request", &new.input.request_id));
        };
        let row = DelegationRow::new(fence, turn, new, receipt.admission, now);
        let record = self.keep(row);
        self.forget_delivered(parent);
        self.touch(parent, now, false);
        Ok(record)
    }

    /// Refuses an input whose id or request was used before.
    fn check_free(&self, input: &NewAdmission) -> Result<(), StoreError> {
        let same =
            |a: &crate::admission::AdmissionRecord| a.principal == input.principal && a.request_id == input.request_id;
        if self.admissions.of(&input.conversation).any(same) {
            return Err(conflict("request", &input.request_id));
        }
        match self.admissions.contains_key(&input.id) {
            true => Err(conflict("admission", &input.id)),
            false => Ok(()),
        }
    }

    /// Forgets delegations of a parent that nothing waits for, all but the newest.
    fn forget_delivered(&mut self, parent: &ConversationId) {
        let done = self.delegations.values().filter(|row| row.record.parent == *parent && row.is_done());
        let mut done: Vec<_> = done.map(|row| (row.record.ended_at_ms, row.record.id.clone())).collect();
        done.sort_unstable_by_key(|key| Reverse(key.clone()));
        for (_, id) in done.into_iter().skip(DELEGATIONS_KEPT) {
            self.delegations.remove(&id);
        }
    }

    fn finish_delegation(
        &mut self,
        fence: &Fence,
        id: &DelegationId,
        end: &DelegationEnd,
        now: i64,
    ) -> Result<DelegationRecord, StoreError> {
        self.fenced(fence)?;
        let mut row = self.delegation_row(id)?.clone();
        row.check_end(fence, end)?;
        let changed = row.finish(end, now)?;
        if changed && row.is_cancel_of_parent(fence, end) {
            self.take_back(&row.record.input);
        }
        self.touch(fence.conversation(), now, false);
        Ok(self.keep(row))
    }

    /// Cancels an input that is still queued.
    fn take_back(&mut self, input: &AdmissionId) {
        let Some(record) = self.admissions.get_mut(input) else { return };
        let Ok(status) = record.receipt.status.next(AdmissionEvent::Cancel) else { return };
        record.receipt.status = status;
        record.receipt.outcome = Some(AdmissionOutcome::Cancelled);
        if let Some(child) = self.conversations.get_mut(&record.receipt.conversation) {
            child.revision += 1;
        }
    }

    /// Whether somebody who lives is, or may soon be, at work on a delegation whose owner is gone.
    fn is_in_hands(&self, row: &DelegationRow, now: i64, probe: &dyn LivenessProbe) -> bool {
        let queued = self.admissions.get(&row.record.input).map(|a| a.receipt.status) == Some(AdmissionStatus::Queued);
        let lease = self.conversations.get(&row.record.child).and_then(|child| child.lease.as_ref());
        let is_live = |owner: &OwnerId| !crate::rules::is_gone(self.owners.get(owner), now, probe);
        queued || lease.is_some_and(|lease| now < lease.expires_ms && is_live(&lease.owner))
    }

    /// What the journal of the child says of the end.
    fn end_by_journal(&self, row: &DelegationRow) -> Option<DelegationEnd> {
        let receipt = &self.admissions.get(&row.record.input)?.receipt;
        let turn = receipt.turn.as_ref().and_then(|turn| self.turn_record(turn));
        delegation::end_by_journal(receipt, turn.as_ref())
    }

    fn sweep_delegations(&mut self, now: i64, probe: &dyn LivenessProbe) -> Result<Vec<DelegationId>, StoreError> {
        let is_running = |row: &&DelegationRow| row.record.state == DelegationState::Running;
        let mut newest: BTreeMap<&OwnerId, i64> = BTreeMap::new();
        for row in self.delegations.values().filter(is_running) {
            let written = newest.entry(&row.record.owner).or_insert(i64::MIN);
            *written = (*written).max(row.record.written_at_ms);
        }
        let gone = |owner: &OwnerId| newest.get(owner).is_some_and(|at| self.is_orphaned(owner, *at, now, probe));
        let orphans = self.delegations.values().filter(is_running).filter(|row| gone(&row.record.owner));
        let orphans: Vec<_> = orphans.cloned().collect();
        let mut lost = Vec::new();
        for mut row in orphans {
            if lost.len() >= SWEEP_MAX_ROWS || self.is_in_hands(&row, now, probe) {
                continue;
            }
            if let Some(end) = self.end_by_journal(&row) {
                row.finish(&end, now)?;
                self.keep(row);
            } else {
                row.lose(now)?;
                lost.push(self.keep(row).id);
            }
        }
        let unknown = self.delegations.values().filter(|row| row.record.state == DelegationState::Unknown);
        let unknown: Vec<_> = unknown.cloned().collect();
        for mut row in unknown {
            if let Some(end) = self.end_by_journal(&row) {
                row.finish(&end, now)?;
                self.keep(row);
            }
        }
        let old = now.saturating_sub(ms(DELEGATION_KEEP_MS));
        self.delegations.retain(|_, row| !row.is_done() || row.record.ended_at_ms.is_some_and(|at| at > old));
        for row in self.delegations.values_mut().filter(|row| row.is_hopeless(now)).take(SWEEP_MAX_ROWS) {
            row.record.delivery = ResultDelivery::Dropped;
            row.claim_expires_ms = 0;
        }
        Ok(lost)
    }

    fn deliver(&mut self, claim: &ResultClaim, input: NewAdmission, now: i64) -> Result<AdmitOutcome, StoreError> {
        delegation::check_delivery(claim, &input)?;
        let mut row = self.delegation_row(&claim.record().id)?.clone();
        let is_new = row.deliver(claim, &input.id, now)?;
        let (id, request) = (input.id.clone(), input.request_id.clone());
        let done = self.admit(input, now)?;
        if done.receipt().admission != id {
            return Err(conflict("request", request));
        }
        if is_new {
            self.keep(row);
        }
        Ok(done)
    }

    /// Refuses to delete a conversation that gave or has a task which is not over.
    pub(super) fn check_delegations_over(&self, id: &ConversationId) -> Result<(), StoreError> {
        let of =
            |row: &&DelegationRow| (row.record.parent == *id || row.record.child == *id) && !row.record.state.is_over();
        match self.delegations.values().find(of) {
            Some(row) => Err(invalid(format!("delegation {} of the conversation is not over", row.record.id))),
            None => Ok(()),
        }
    }

    /// Deletes what a conversation gave away, which is over. What it was given belongs to its parents.
    pub(super) fn delete_delegations(&mut self, id: &ConversationId) {
        self.delegations.retain(|_, row| row.record.parent != *id);
    }
}

#[async_trait]
impl DelegationStore for MemoryStore {
    async fn dispatch(&self, fence: &Fence, turn: &TurnId, new: NewDelegation) -> Result<DelegationRecord, StoreError> {
        let done = self.state().dispatch(fence, turn, &new, self.now());
        self.notify();
        done
    }

    async fn finish_delegation(
        &self,
        fence: &Fence,
        id: &DelegationId,
        end: DelegationEnd,
    ) -> Result<DelegationRecord, StoreError> {
        delegation::check_end(&end)?;
        let done = self.state().finish_delegation(fence, id, &end, self.now());
        self.notify();
        done
    }

    async fn adopt_delegation(&self, fence: &Fence, id: &DelegationId) -> Result<DelegationRecord, StoreError> {
        let now = self.now();
        let mut state = self.state();
        state.fenced(fence)?;
        let mut row = state.delegation_row(id)?.clone();
        row.adopt(fence, now)?;
        state.touch(fence.conversation(), now, false);
        Ok(state.keep(row))
    }

    async fn lose_delegation(&self, fence: &Fence, id: &DelegationId) -> Result<DelegationRecord, StoreError> {
        let now = self.now();
        let mut state = self.state();
        state.fenced(fence)?;
        let mut row = state.delegation_row(id)?.clone();
        row.lose_by(fence, now)?;
        state.touch(fence.conversation(), now, false);
        Ok(state.keep(row))
    }

    async fn resolve_delegation(&self, id: &DelegationId, end: DelegationEnd) -> Result<DelegationRecord, StoreError> {
        delegation::check_end(&end)?;
        let now = self.now();
        let mut state = self.state();
        let mut row = state.delegation_row(id)?.clone();
        row.resolve(&end, now)?;
        Ok(state.keep(row))
    }

    async fn sweep_delegations(&self) -> Result<Vec<DelegationId>, StoreError> {
        let probe = self.probe();
        self.state().sweep_delegations(self.now(), probe.as_ref())
    }

    async fn due_results(&self, limit: usize) -> Result<Vec<DelegationRecord>, StoreError> {
        let now = self.now();
        let state = self.state();
        let due = state.delegations.values().filter(|row| row.is_due(now));
        let mut due: Vec<_> = due.map(|row| row.record.clone()).collect();
        due.sort_by_key(|record| (record.written_at_ms, record.id.clone()));
        due.truncate(limit.min(SWEEP_MAX_ROWS));
        Ok(due)
    }

    async fn claim_result(
        &self,
        id: &DelegationId,
        owner: &OwnerId,
        lease_ms: u64,
    ) -> Result<Option<ResultClaim>, StoreError> {
        let now = self.now();
        let mut state = self.state();
        let mut row = state.delegation_row(id)?.clone();
        if !row.claim(owner, lease_ms, now)? {
            return Ok(None);
        }
        Ok(Some(ResultClaim::new(state.keep(row))))
    }

    async fn deliver_result(&self, claim: &ResultClaim, input: NewAdmission) -> Result<AdmitOutcome, StoreError> {
        let done = self.state().deliver(claim, input, self.now());
        self.notify();
        done
    }

    async fn release_result(&self, claim: &ResultClaim) -> Result<(), StoreError> {
        let mut state = self.state();
        if let Some(row) = state.delegations.get_mut(&claim.record().id) {
            row.release(claim)?;
        }
        Ok(())
    }

    async fn collect_result(
        &self,
        fence: &Fence,
        turn: &TurnId,
        id: &DelegationId,
    ) -> Result<DelegationRecord, StoreError> {
        let now = self.now();
        let mut state = self.state();
        state.running(fence, turn)?;
        let mut row = state.delegation_row(id)?.clone();
        row.collect(fence, turn, now)?;
        state.touch(fence.conversation(), now, false);
        Ok(state.keep(row))
    }

    async fn delegation(&self, id: &DelegationId) -> Result<DelegationRecord, StoreError> {
        Ok(self.state().delegation_row(id)?.record.clone())
    }

    async fn delegations(
        &self,
        conversation: &ConversationId,
        limit: usize,
    ) -> Result<Vec<DelegationRecord>, StoreError> {
        let state = self.state();
        let of = |row: &&DelegationRow| row.record.parent == *conversation || row.record.child == *conversation;
        let mut found: Vec<_> = state.delegations.values().filter(of).map(|row| row.record.clone()).collect();
        found.sort_by_key(|record| Reverse((record.dispatched_at_ms, record.id.clone())));
        found.truncate(limit.min(PAGE_MAX_ROWS));
        Ok(found)
    }
}
