//! Workers, starts and presence in the in-memory model.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use async_trait::async_trait;

use super::MemoryStore;
use super::state::State;
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{ConversationId, ExecutionId, Generation, OwnerId};
use crate::limits::{OWNER_KEEP_MS, PAGE_MAX_ROWS, SWEEP_MAX_ROWS, WORKER_KEEP_MS};
use crate::owner::{LivenessProbe, OwnerInfo};
use crate::rules::{self, OwnerRow, invalid, ms, not_found};
use crate::work::{
    self, Epoch, EpochRecord, NewReceipt, NewWorker, OwnerState, OwnerStatus, Presence, ReceiptRecord, ReceiptStep,
    RecordOutcome, RegisterOutcome, WorkStore, WorkerEnd, WorkerFence, WorkerFilter, WorkerRecord, WorkerRow,
    WorkerSecret,
};

/// What runs elsewhere.
#[derive(Debug, Default)]
pub(super) struct Work {
    workers: BTreeMap<ExecutionId, WorkerRow>,
    receipts: BTreeMap<(ExecutionId, i64), ReceiptRecord>,
    /// The last generation that any worker got.
    generation: i64,
    epoch: Option<EpochRecord>,
    presence: BTreeMap<OwnerId, (Presence, i64)>,
}

impl State {
    fn worker_row(&mut self, id: &ExecutionId) -> Result<&mut WorkerRow, StoreError> {
        self.work.workers.get_mut(id).ok_or_else(|| not_found("worker", id))
    }

    /// The row of a worker for a writer with a proof: one that is gone takes the proof with it.
    fn proved_row(&mut self, fence: &WorkerFence) -> Result<&mut WorkerRow, StoreError> {
        self.work.workers.get_mut(fence.execution()).ok_or_else(|| fence.refused())
    }

    fn register(&mut self, fence: Option<&Fence>, new: &NewWorker, now: i64) -> Result<RegisterOutcome, StoreError> {
        let conversation = match fence {
            Some(fence) => {
                self.fenced(fence)?;
                Some(fence.conversation().clone())
            }
            None => None,
        };
        if let Some(known) = self.work.workers.get(&new.id) {
            return known.again(new, conversation.as_ref()).map(RegisterOutcome::Registered);
        }
        if let Some(holder) = self.work.workers.values().find(|row| row.record.task == new.task && !row.is_over()) {
            return Ok(RegisterOutcome::Busy(Box::new(holder.record.clone())));
        }
        self.work.generation += 1;
        let row = WorkerRow::new(new, conversation.clone(), self.work.generation, now);
        let proof = row.fence();
        self.work.workers.insert(new.id.clone(), row);
        if let Some(conversation) = conversation {
            self.touch(&conversation, now, false);
        }
        Ok(RegisterOutcome::Registered(proof))
    }

    fn record_receipt(&mut self, fence: &WorkerFence, new: NewReceipt, now: i64) -> Result<RecordOutcome, StoreError> {
        let step = self.proved_row(fence)?.record(fence, new.sequence, now)?;
        let key = (fence.execution().clone(), new.sequence);
        if step == ReceiptStep::Known {
            let known = self.work.receipts.get(&key).cloned();
            return work::replay(fence.execution(), &new, known.ok_or_else(|| not_found("receipt", new.sequence))?);
        }
        let digest = new.digest();
        let record = ReceiptRecord { sequence: new.sequence, digest, result: new.result, recorded_at_ms: now };
        self.work.receipts.insert(key, record.clone());
        Ok(RecordOutcome::Recorded(record))
    }

    /// Whether an owner is gone; one without a row when it wrote nothing for long.
    pub(super) fn is_orphaned(&self, owner: &OwnerId, written_ms: i64, now: i64, probe: &dyn LivenessProbe) -> bool {
        match self.owners.get(owner) {
            Some(row) => rules::is_gone(Some(row), now, probe),
            None => work::is_forgotten(written_ms, now),
        }
    }

    fn sweep_workers(&mut self, now: i64, probe: &dyn LivenessProbe) -> Result<Vec<ExecutionId>, StoreError> {
        let old = now.saturating_sub(ms(WORKER_KEEP_MS));
        self.work.workers.retain(|_, row| !row.is_over() || row.record.written_at_ms > old);
        let workers = &self.work.workers;
        self.work.receipts.retain(|(id, _), _| workers.contains_key(id));
        let mut newest: BTreeMap<&OwnerId, i64> = BTreeMap::new();
        for row in self.work.workers.values().filter(|row| row.may_be_lost()) {
            let written = newest.entry(&row.record.owner).or_insert(i64::MIN);
            *written = (*written).max(row.record.written_at_ms);
        }
        let gone =
            |owner: &OwnerId| newest.get(owner).is_some_and(|written| self.is_orphaned(owner, *written, now, probe));
        let orphans = self.work.workers.values().filter(|row| row.may_be_lost() && gone(&row.record.owner));
        let lost: Vec<_> = orphans.map(|row| row.record.id.clone()).take(SWEEP_MAX_ROWS).collect();
        for id in &lost {
            self.worker_row(id)?.lose(now)?;
        }
        Ok(lost)
    }

    /// Refuses to delete a conversation whose worker is not over.
    pub(super) fn check_workers_over(&self, id: &ConversationId) -> Result<(), StoreError> {
        let of = |row: &&WorkerRow| row.record.conversation.as_ref() == Some(id) && !row.is_over();
        match self.work.workers.values().find(of) {
            Some(row) => Err(invalid(format!("worker {} of the conversation is not over", row.record.id))),
            None => Ok(()),
        }
    }

    /// Deletes the workers of a conversation, which are over.
    pub(super) fn delete_workers(&mut self, id: &ConversationId) {
        self.work.workers.retain(|_, row| row.record.conversation.as_ref() != Some(id));
        let workers = &self.work.workers;
        self.work.receipts.retain(|(id, _), _| workers.contains_key(id));
    }

    /// What an owner said of itself goes with its row.
    pub(super) fn forget_presence(&mut self) {
        let owners = &self.owners;
        self.work.presence.retain(|id, _| owners.contains_key(id));
    }

    fn owner_status(&self, row: &OwnerRow, now: i64, probe: &dyn LivenessProbe) -> OwnerStatus {
        let said = self.work.presence.get(&row.info.id);
        let state = match () {
            () if row.retired => OwnerState::Retired,
            () if probe.is_provably_dead(&row.info) => OwnerState::Dead,
            () if row.is_gone_by_time(now) => OwnerState::Silent,
            () => OwnerState::Alive,
        };
        OwnerStatus {
            info: row.info.clone(),
            presence: said.map(|(presence, _)| presence.clone()),
            started_at_ms: said.map(|(_, started)| *started),
            beat_at_ms: row.beat_ms,
            state,
        }
    }
}

#[async_trait]
impl WorkStore for MemoryStore {
    async fn register_worker(&self, fence: Option<&Fence>, new: NewWorker) -> Result<RegisterOutcome, StoreError> {
        work::check_new(&new)?;
        let done = self.state().register(fence, &new, self.now());
        self.notify();
        done
    }

    async fn present_worker(
        &self,
        id: &ExecutionId,
        generation: Generation,
        secret: &WorkerSecret,
    ) -> Result<WorkerFence, StoreError> {
        self.state().worker_row(id)?.present(generation, secret)
    }

    async fn adopt_worker(
        &self,
        id: &ExecutionId,
        generation: Generation,
        secret: &WorkerSecret,
        owner: &OwnerId,
    ) -> Result<(WorkerFence, WorkerRecord), StoreError> {
        let now = self.now();
        let mut state = self.state();
        if !state.worker_row(id)?.was_adopted(generation, secret, owner)? {
            state.work.generation += 1;
            let next = Generation(state.work.generation);
            state.worker_row(id)?.adopt(owner, next, now)?;
        }
        let row = state.worker_row(id)?;
        Ok((row.fence(), row.record.clone()))
    }

    async fn record_receipt(&self, fence: &WorkerFence, receipt: NewReceipt) -> Result<RecordOutcome, StoreError> {
        work::check_receipt(&receipt)?;
        self.state().record_receipt(fence, receipt, self.now())
    }

    async fn finish_worker(&self, fence: &WorkerFence, end: WorkerEnd) -> Result<WorkerRecord, StoreError> {
        work::check_end(&end)?;
        let now = self.now();
        let mut state = self.state();
        let row = state.proved_row(fence)?;
        row.finish(fence, &end, now)?;
        Ok(row.record.clone())
    }

    async fn lose_worker(&self, fence: &WorkerFence) -> Result<WorkerRecord, StoreError> {
        let now = self.now();
        let mut state = self.state();
        let row = state.proved_row(fence)?;
        row.check(fence)?;
        row.lose(now)?;
        Ok(row.record.clone())
    }

    async fn resolve_worker(
        &self,
        id: &ExecutionId,
        generation: Generation,
        end: WorkerEnd,
    ) -> Result<WorkerRecord, StoreError> {
        work::check_end(&end)?;
        let now = self.now();
        let mut state = self.state();
        let row = state.worker_row(id)?;
        row.resolve(generation, &end, now)?;
        Ok(row.record.clone())
    }

    async fn sweep_workers(&self) -> Result<Vec<ExecutionId>, StoreError> {
        let probe = self.probe();
        self.state().sweep_workers(self.now(), probe.as_ref())
    }

    async fn worker(&self, id: &ExecutionId) -> Result<WorkerRecord, StoreError> {
        Ok(self.state().worker_row(id)?.record.clone())
    }

    async fn workers(&self, filter: WorkerFilter) -> Result<Vec<WorkerRecord>, StoreError> {
        let state = self.state();
        let wanted = |row: &&WorkerRow| {
            (filter.with_terminal || !row.is_over())
                && filter.kind.is_none_or(|kind| kind == row.record.kind)
                && (filter.conversation.is_none() || filter.conversation == row.record.conversation)
        };
        let mut found: Vec<_> = state.work.workers.values().filter(wanted).map(|row| row.record.clone()).collect();
        found.sort_by_key(|record| Reverse((record.registered_at_ms, record.id.clone())));
        found.truncate(filter.limit.min(PAGE_MAX_ROWS));
        Ok(found)
    }

    async fn receipts(&self, id: &ExecutionId, after: i64, limit: usize) -> Result<Vec<ReceiptRecord>, StoreError> {
        let mut state = self.state();
        state.worker_row(id)?;
        let range = (id.clone(), i64::MIN)..=(id.clone(), i64::MAX);
        let found = state.work.receipts.range(range).map(|(_, receipt)| receipt).filter(|one| one.sequence > after);
        Ok(found.take(limit.min(PAGE_MAX_ROWS)).cloned().collect())
    }

    async fn begin_epoch(&self, instance: &OwnerId) -> Result<Epoch, StoreError> {
        let now = self.now();
        let mut state = self.state();
        let last = state.work.epoch.as_ref();
        if let Some(last) = last.filter(|last| last.instance == *instance) {
            return Ok(last.epoch);
        }
        let epoch = Epoch(last.map_or(0, |last| last.epoch.0) + 1);
        state.work.epoch = Some(EpochRecord { epoch, instance: instance.clone(), begun_at_ms: now });
        Ok(epoch)
    }

    async fn current_epoch(&self) -> Result<Option<EpochRecord>, StoreError> {
        Ok(self.state().work.epoch.clone())
    }

    async fn announce(&self, owner: &OwnerInfo, presence: &Presence) -> Result<(), StoreError> {
        work::check_presence(presence)?;
        let now = self.now();
        let mut state = self.state();
        let is_known = state.owners.contains_key(&owner.id);
        let started = state.work.presence.get(&owner.id).filter(|_| is_known).map_or(now, |(_, started)| *started);
        state.work.presence.insert(owner.id.clone(), (presence.clone(), started));
        state.owners.insert(owner.id.clone(), OwnerRow { info: owner.clone(), beat_ms: now, retired: false });
        state.owners.retain(|_, row| row.beat_ms > now.saturating_sub(ms(OWNER_KEEP_MS)));
        state.forget_presence();
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<OwnerStatus>, StoreError> {
        let (now, probe) = (self.now(), self.probe());
        let state = self.state();
        let mut found: Vec<_> = state.owners.values().map(|row| state.owner_status(row, now, probe.as_ref())).collect();
        found.sort_by_key(|status| Reverse((status.beat_at_ms, status.info.id.clone())));
        found.truncate(PAGE_MAX_ROWS);
        Ok(found)
    }
}
