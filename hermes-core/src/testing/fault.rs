//! A store that fails or dies at a chosen write: every crash point of a scenario can be enumerated.

mod exchange;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use async_trait::async_trait;
use hermes_store::transfer::TransferStore;
use hermes_store::transfer::bundle::{BundleSource, ExportCursor, ExportPage, ImportKey, ImportOutcome};
use hermes_store::{
    AdmissionId, AdmissionRecord, AdmissionStore, AdmitOutcome, BranchOrigin, CallId, CallResult, ChangeId, CheckDepth,
    CheckReport, ClaimOutcome, ClaimRequest, Compaction, CompressionLock, ConversationFilter, ConversationFlags,
    ConversationId, ConversationSummary, DelegationEnd, DelegationId, DelegationRecord, DelegationStore, Epoch,
    EpochRecord, ExecutionId, Fence, FlagChange, Generation, HistoryChange, HistoryStore, IndexProgress, IndexStatus,
    LeaseStore, LockOutcome, MaintenanceStore, MessagePage, NewAdmission, NewBranch, NewConversation, NewDelegation,
    NewMessage, NewReceipt, NewSession, NewWorker, OwnerId, OwnerInfo, OwnerStatus, Planned, Presence, PromptHash,
    PromptSnapshot, PruneReport, PruneRules, Receipt, ReceiptRecord, RecordOutcome, Recorded, RegisterOutcome,
    ResultClaim, Rewind, Rotation, Round, SearchPage, SearchQuery, SearchStore, SessionId, SessionRecord, SessionStore,
    SettledCall, Store, StoreError, StoredMessage, TakeLock, TitleSource, TranscriptStore, TurnEnd, TurnId, TurnRecord,
    UsageDelta, UsageTotals, VacuumOutcome, View, WorkStore, WorkerEnd, WorkerFence, WorkerFilter, WorkerRecord,
    WorkerSecret,
};
use tokio::sync::Notify;

/// What happens at the chosen write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails and changes nothing; so do all later writes.
    FailsBefore,
    /// It fails and changes nothing; later writes work.
    FailsOnce,
    /// It happens and its answer is lost; later writes work.
    AnswerLost,
    /// It does not happen, and nobody can tell: its answer is lost as well; later writes work.
    CommitLost,
    /// The process dies before it.
    DiesBefore,
    /// The process dies after it.
    DiesAfter,
}

/// A store with one fault.
pub struct FaultStore {
    inner: Arc<dyn Store>,
    fault: Fault,
    at: i64,
    left: AtomicI64,
    fails_next: AtomicBool,
    dead: AtomicBool,
    died: Notify,
    working: AtomicUsize,
    waiting: AtomicUsize,
}

/// Counts a call for as long as the store is at it.
struct InFlight<'s>(&'s AtomicUsize);

impl<'s> InFlight<'s> {
    fn begin(count: &'s AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl FaultStore {
    /// A store whose write number `at` (from 0) has the fault.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, fault: Fault, at: i64) -> Arc<Self> {
        Arc::new(Self {
            inner,
            fault,
            at,
            left: AtomicI64::new(at),
            fails_next: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            died: Notify::new(),
            working: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        })
    }

    /// True while the store below is at a read or a write: it may hold what others wait for, a connection or a place in
    /// the row for one, or the lock of a write.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.working.load(Ordering::SeqCst) > 0
    }

    /// True while a call waits for a change of a conversation: it reads the store now and then.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// The next write fails and changes nothing, besides the fault that was chosen.
    pub fn fail_next(&self) {
        self.fails_next.store(true, Ordering::SeqCst);
    }

    /// The write behind so many others has the fault.
    pub fn fail_at(&self, at: i64) {
        self.left.store(at, Ordering::SeqCst);
    }

    /// The process dies now: no later write comes to an end.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.died.notify_one();
    }

    /// Ends when the process would be dead: what runs on this store must be dropped then.
    pub async fn died(&self) {
        self.died.notified().await;
    }

    /// How many writes there were so far.
    #[must_use]
    pub fn writes(&self) -> i64 {
        self.at - self.left.load(Ordering::SeqCst)
    }

    /// True when the chosen write was reached.
    #[must_use]
    pub fn reached(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    async fn die<T>(&self) -> T {
        self.died.notify_one();
        futures::future::pending().await
    }

    async fn write<T>(&self, work: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
        // A write takes time: the process may die before it and after it.
        yield_once().await;
        let done = self.disturbed(counted(&self.working, work)).await;
        yield_once().await;
        done
    }

    async fn disturbed<T>(&self, work: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        let injected = || StoreError::Io { detail: "injected fault".to_owned() };
        if self.dead.load(Ordering::SeqCst) {
            return self.die().await;
        }
        if self.fails_next.swap(false, Ordering::SeqCst) {
            return Err(injected());
        }
        match (self.fault, left) {
            (_, 1..) => work.await,
            (Fault::FailsBefore, _) => Err(injected()),
            (Fault::FailsOnce, 0) => Err(injected()),
            (Fault::AnswerLost, 0) => {
                let _ = work.await;
                Err(StoreError::CommitUnknown)
            }
            (Fault::CommitLost, 0) => Err(StoreError::CommitUnknown),
            (Fault::FailsOnce | Fault::AnswerLost | Fault::CommitLost, _) => work.await,
            (Fault::DiesAfter, 0) => {
                let _ = work.await;
                self.die().await
            }
            (Fault::DiesBefore | Fault::DiesAfter, _) => self.die().await,
        }
    }
}

async fn counted<T>(count: &AtomicUsize, work: impl Future<Output = T>) -> T {
    let _in_flight = InFlight::begin(count);
    work.await
}

/// Lets everything else run once.
async fn yield_once() {
    let mut done = false;
    futures::future::poll_fn(|cx| {
        if std::mem::replace(&mut done, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

#[async_trait]
impl AdmissionStore for FaultStore {
    async fn admit(&self, input: NewAdmission) -> Result<AdmitOutcome, StoreError> {
        self.write(self.inner.admit(input)).await
    }

    async fn create_and_admit(
        &self,
        conversation: NewConversation,
        input: NewAdmission,
    ) -> Result<AdmitOutcome, StoreError> {
        self.write(self.inner.create_and_admit(conversation, input)).await
    }

    async fn admission(&self, id: &AdmissionId) -> Result<AdmissionRecord, StoreError> {
        counted(&self.working, self.inner.admission(id)).await
    }

    async fn admission_of(
        &self,
        conversation: &ConversationId,
        principal: &str,
        request_id: &str,
    ) -> Result<Option<AdmissionRecord>, StoreError> {
        counted(&self.working, self.inner.admission_of(conversation, principal, request_id)).await
    }

    async fn cancel(&self, id: &AdmissionId) -> Result<Receipt, StoreError> {
        self.write(self.inner.cancel(id)).await
    }

    async fn resolve_unknown(
        &self,
        id: &AdmissionId,
        generation: Generation,
        end: TurnEnd,
    ) -> Result<Receipt, StoreError> {
        self.write(self.inner.resolve_unknown(id, generation, end)).await
    }
}

#[async_trait]
impl LeaseStore for FaultStore {
    async fn heartbeat(&self, owner: &OwnerInfo) -> Result<(), StoreError> {
        self.write(self.inner.heartbeat(owner)).await
    }

    async fn retire(&self, owner: &OwnerId) -> Result<(), StoreError> {
        self.write(self.inner.retire(owner)).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.write(self.inner.claim(request)).await
    }

    async fn renew(&self, fence: &Fence, ttl_ms: u64) -> Result<(), StoreError> {
        self.write(self.inner.renew(fence, ttl_ms)).await
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        self.write(self.inner.release(fence)).await
    }

    async fn adopt_turn(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError> {
        self.write(self.inner.adopt_turn(fence, turn)).await
    }

    async fn requeue(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError> {
        self.write(self.inner.requeue(fence, turn)).await
    }

    async fn settle_turn(&self, fence: &Fence, turn: &TurnId, end: TurnEnd, release: bool) -> Result<(), StoreError> {
        self.write(self.inner.settle_turn(fence, turn, end, release)).await
    }

    async fn lose_turn(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError> {
        self.write(self.inner.lose_turn(fence, turn)).await
    }

    async fn turn(&self, id: &TurnId) -> Result<TurnRecord, StoreError> {
        counted(&self.working, self.inner.turn(id)).await
    }

    async fn wait_for_change(
        &self,
        conversation: &ConversationId,
        seen: i64,
        max_wait_ms: u64,
    ) -> Result<i64, StoreError> {
        counted(&self.waiting, self.inner.wait_for_change(conversation, seen, max_wait_ms)).await
    }
}

#[async_trait]
impl TranscriptStore for FaultStore {
    async fn open_session(
        &self,
        fence: &Fence,
        turn: &TurnId,
        session: NewSession,
        rows: Vec<NewMessage>,
    ) -> Result<(), StoreError> {
        self.write(self.inner.open_session(fence, turn, session, rows)).await
    }

    async fn change_session(&self, fence: &Fence, turn: &TurnId, session: NewSession) -> Result<(), StoreError> {
        self.write(self.inner.change_session(fence, turn, session)).await
    }

    async fn append(
        &self,
        fence: &Fence,
        turn: &TurnId,
        rows: Vec<NewMessage>,
        usage: Option<UsageDelta>,
    ) -> Result<(), StoreError> {
        self.write(self.inner.append(fence, turn, rows, usage)).await
    }

    async fn record_round(&self, fence: &Fence, round: Round<Planned>) -> Result<Round<Recorded>, StoreError> {
        self.write(self.inner.record_round(fence, round)).await
    }

    async fn start_calls(&self, fence: &Fence, turn: &TurnId, calls: &[CallId]) -> Result<(), StoreError> {
        self.write(self.inner.start_calls(fence, turn, calls)).await
    }

    async fn settle_call(
        &self,
        fence: &Fence,
        turn: &TurnId,
        call: &CallId,
        result: CallResult,
    ) -> Result<SettledCall, StoreError> {
        self.write(self.inner.settle_call(fence, turn, call, result)).await
    }

    async fn take_steers(
        &self,
        fence: &Fence,
        turn: &TurnId,
        rows: &(dyn for<'a> Fn(&'a [AdmissionRecord]) -> Vec<NewMessage> + Send + Sync),
    ) -> Result<Vec<AdmissionRecord>, StoreError> {
        self.write(self.inner.take_steers(fence, turn, rows)).await
    }

    async fn count_usage(&self, fence: &Fence, usage: UsageDelta) -> Result<(), StoreError> {
        self.write(self.inner.count_usage(fence, usage)).await
    }

    async fn messages(
        &self,
        conversation: &ConversationId,
        view: View,
        page: MessagePage,
    ) -> Result<Vec<StoredMessage>, StoreError> {
        counted(&self.working, self.inner.messages(conversation, view, page)).await
    }

    async fn prompt(&self, hash: &PromptHash) -> Result<PromptSnapshot, StoreError> {
        counted(&self.working, self.inner.prompt(hash)).await
    }
}

#[async_trait]
impl HistoryStore for FaultStore {
    async fn take_compression_lock(&self, fence: &Fence, take: TakeLock) -> Result<LockOutcome, StoreError> {
        self.write(self.inner.take_compression_lock(fence, take)).await
    }

    async fn renew_compression_lock(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        ttl_ms: u64,
    ) -> Result<(), StoreError> {
        self.write(self.inner.renew_compression_lock(fence, lock, ttl_ms)).await
    }

    async fn release_compression_lock(&self, fence: &Fence, lock: &CompressionLock) -> Result<(), StoreError> {
        self.write(self.inner.release_compression_lock(fence, lock)).await
    }

    async fn fail_compression(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        cooldown_ms: u64,
        error: &str,
    ) -> Result<i64, StoreError> {
        self.write(self.inner.fail_compression(fence, lock, cooldown_ms, error)).await
    }

    async fn rotate(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        rotation: Rotation,
    ) -> Result<HistoryChange, StoreError> {
        self.write(self.inner.rotate(fence, lock, rotation)).await
    }

    async fn compact(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        compaction: Compaction,
    ) -> Result<HistoryChange, StoreError> {
        self.write(self.inner.compact(fence, lock, compaction)).await
    }

    async fn rewind(&self, fence: &Fence, rewind: Rewind) -> Result<HistoryChange, StoreError> {
        self.write(self.inner.rewind(fence, rewind)).await
    }

    async fn retry(
        &self,
        fence: &Fence,
        rewind: Rewind,
        again: NewAdmission,
    ) -> Result<(HistoryChange, Receipt), StoreError> {
        self.write(self.inner.retry(fence, rewind, again)).await
    }

    async fn restore(&self, fence: &Fence, change: &ChangeId) -> Result<HistoryChange, StoreError> {
        self.write(self.inner.restore(fence, change)).await
    }

    async fn branch(&self, branch: NewBranch) -> Result<BranchOrigin, StoreError> {
        self.write(self.inner.branch(branch)).await
    }

    async fn changes(&self, conversation: &ConversationId) -> Result<Vec<HistoryChange>, StoreError> {
        counted(&self.working, self.inner.changes(conversation)).await
    }
}

#[async_trait]
impl SessionStore for FaultStore {
    async fn conversations(&self, filter: ConversationFilter) -> Result<Vec<ConversationSummary>, StoreError> {
        counted(&self.working, self.inner.conversations(filter)).await
    }

    async fn conversation(&self, id: &ConversationId) -> Result<ConversationSummary, StoreError> {
        counted(&self.working, self.inner.conversation(id)).await
    }

    async fn session(&self, id: &SessionId) -> Result<SessionRecord, StoreError> {
        counted(&self.working, self.inner.session(id)).await
    }

    async fn set_title(&self, fence: &Fence, title: &str, source: TitleSource) -> Result<String, StoreError> {
        self.write(self.inner.set_title(fence, title, source)).await
    }

    async fn set_flags(&self, fence: &Fence, change: FlagChange) -> Result<ConversationFlags, StoreError> {
        self.write(self.inner.set_flags(fence, change)).await
    }

    async fn end_conversation(&self, fence: &Fence, reason: &str) -> Result<(), StoreError> {
        self.write(self.inner.end_conversation(fence, reason)).await
    }

    async fn lineage(&self, conversation: &ConversationId) -> Result<Vec<SessionRecord>, StoreError> {
        counted(&self.working, self.inner.lineage(conversation)).await
    }

    async fn tip(&self, id: &str) -> Result<ConversationSummary, StoreError> {
        counted(&self.working, self.inner.tip(id)).await
    }

    async fn add_alias(&self, fence: &Fence, alias: &SessionId) -> Result<(), StoreError> {
        self.write(self.inner.add_alias(fence, alias)).await
    }

    async fn prune(&self, rules: PruneRules) -> Result<PruneReport, StoreError> {
        self.write(self.inner.prune(rules)).await
    }

    async fn delete_conversation(&self, fence: &Fence) -> Result<(), StoreError> {
        self.write(self.inner.delete_conversation(fence)).await
    }

    async fn usage(&self, conversation: &ConversationId) -> Result<Vec<UsageTotals>, StoreError> {
        counted(&self.working, self.inner.usage(conversation)).await
    }

    async fn next_generation(&self, source: &str, key: &str) -> Result<Generation, StoreError> {
        self.write(self.inner.next_generation(source, key)).await
    }

    async fn queue(&self, conversation: &ConversationId) -> Result<Vec<AdmissionRecord>, StoreError> {
        counted(&self.working, self.inner.queue(conversation)).await
    }
}

#[async_trait]
impl WorkStore for FaultStore {
    async fn register_worker(&self, fence: Option<&Fence>, new: NewWorker) -> Result<RegisterOutcome, StoreError> {
        self.write(self.inner.register_worker(fence, new)).await
    }

    async fn present_worker(
        &self,
        id: &ExecutionId,
        generation: Generation,
        secret: &WorkerSecret,
    ) -> Result<WorkerFence, StoreError> {
        counted(&self.working, self.inner.present_worker(id, generation, secret)).await
    }

    async fn adopt_worker(
        &self,
        id: &ExecutionId,
        generation: Generation,
        secret: &WorkerSecret,
        owner: &OwnerId,
    ) -> Result<(WorkerFence, WorkerRecord), StoreError> {
        self.write(self.inner.adopt_worker(id, generation, secret, owner)).await
    }

    async fn record_receipt(&self, fence: &WorkerFence, receipt: NewReceipt) -> Result<RecordOutcome, StoreError> {
        self.write(self.inner.record_receipt(fence, receipt)).await
    }

    async fn finish_worker(&self, fence: &WorkerFence, end: WorkerEnd) -> Result<WorkerRecord, StoreError> {
        self.write(self.inner.finish_worker(fence, end)).await
    }

    async fn lose_worker(&self, fence: &WorkerFence) -> Result<WorkerRecord, StoreError> {
        self.write(self.inner.lose_worker(fence)).await
    }

    async fn resolve_worker(
        &self,
        id: &ExecutionId,
        generation: Generation,
        end: WorkerEnd,
    ) -> Result<WorkerRecord, StoreError> {
        self.write(self.inner.resolve_worker(id, generation, end)).await
    }

    async fn sweep_workers(&self) -> Result<Vec<ExecutionId>, StoreError> {
        self.write(self.inner.sweep_workers()).await
    }

    async fn worker(&self, id: &ExecutionId) -> Result<WorkerRecord, StoreError> {
        counted(&self.working, self.inner.worker(id)).await
    }

    async fn workers(&self, filter: WorkerFilter) -> Result<Vec<WorkerRecord>, StoreError> {
        counted(&self.working, self.inner.workers(filter)).await
    }

    async fn receipts(&self, id: &ExecutionId, after: i64, limit: usize) -> Result<Vec<ReceiptRecord>, StoreError> {
        counted(&self.working, self.inner.receipts(id, after, limit)).await
    }

    async fn begin_epoch(&self, instance: &OwnerId) -> Result<Epoch, StoreError> {
        self.write(self.inner.begin_epoch(instance)).await
    }

    async fn current_epoch(&self) -> Result<Option<EpochRecord>, StoreError> {
        counted(&self.working, self.inner.current_epoch()).await
    }

    async fn announce(&self, owner: &OwnerInfo, presence: &Presence) -> Result<(), StoreError> {
        self.write(self.inner.announce(owner, presence)).await
    }

    async fn owners(&self) -> Result<Vec<OwnerStatus>, StoreError> {
        counted(&self.working, self.inner.owners()).await
    }
}

#[async_trait]
impl DelegationStore for FaultStore {
    async fn dispatch(&self, fence: &Fence, turn: &TurnId, new: NewDelegation) -> Result<DelegationRecord, StoreError> {
        self.write(self.inner.dispatch(fence, turn, new)).await
    }

    async fn finish_delegation(
        &self,
        fence: &Fence,
        id: &DelegationId,
        end: DelegationEnd,
    ) -> Result<DelegationRecord, StoreError> {
        self.write(self.inner.finish_delegation(fence, id, end)).await
    }

    async fn adopt_delegation(&self, fence: &Fence, id: &DelegationId) -> Result<DelegationRecord, StoreError> {
        self.write(self.inner.adopt_delegation(fence, id)).await
    }

    async fn lose_delegation(&self, fence: &Fence, id: &DelegationId) -> Result<DelegationRecord, StoreError> {
        self.write(self.inner.lose_delegation(fence, id)).await
    }

    async fn resolve_delegation(&self, id: &DelegationId, end: DelegationEnd) -> Result<DelegationRecord, StoreError> {
        self.write(self.inner.resolve_delegation(id, end)).await
    }

    async fn sweep_delegations(&self) -> Result<Vec<DelegationId>, StoreError> {
        self.write(self.inner.sweep_delegations()).await
    }

    async fn due_results(&self, limit: usize) -> Result<Vec<DelegationRecord>, StoreError> {
        counted(&self.working, self.inner.due_results(limit)).await
    }

    async fn claim_result(
        &self,
        id: &DelegationId,
        owner: &OwnerId,
        lease_ms: u64,
    ) -> Result<Option<ResultClaim>, StoreError> {
        self.write(self.inner.claim_result(id, owner, lease_ms)).await
    }

    async fn deliver_result(&self, claim: &ResultClaim, input: NewAdmission) -> Result<AdmitOutcome, StoreError> {
        self.write(self.inner.deliver_result(claim, input)).await
    }

    async fn release_result(&self, claim: &ResultClaim) -> Result<(), StoreError> {
        self.write(self.inner.release_result(claim)).await
    }

    async fn collect_result(
        &self,
        fence: &Fence,
        turn: &TurnId,
        id: &DelegationId,
    ) -> Result<DelegationRecord, StoreError> {
        self.write(self.inner.collect_result(fence, turn, id)).await
    }

    async fn delegation(&self, id: &DelegationId) -> Result<DelegationRecord, StoreError> {
        counted(&self.working, self.inner.delegation(id)).await
    }

    async fn delegations(
        &self,
        conversation: &ConversationId,
        limit: usize,
    ) -> Result<Vec<DelegationRecord>, StoreError> {
        counted(&self.working, self.inner.delegations(conversation, limit)).await
    }
}

#[async_trait]
impl TransferStore for FaultStore {
    async fn import(&self, key: &ImportKey, source: &mut dyn BundleSource) -> Result<ImportOutcome, StoreError> {
        self.write(self.inner.import(key, source)).await
    }

    async fn export(
        &self,
        conversation: &ConversationId,
        cursor: Option<ExportCursor>,
    ) -> Result<ExportPage, StoreError> {
        counted(&self.working, self.inner.export(conversation, cursor)).await
    }

    async fn export_list(
        &self,
        after: Option<&ConversationId>,
        limit: usize,
    ) -> Result<Vec<ConversationId>, StoreError> {
        counted(&self.working, self.inner.export_list(after, limit)).await
    }

    async fn conversation_named(&self, name: &str) -> Result<Option<ConversationId>, StoreError> {
        counted(&self.working, self.inner.conversation_named(name)).await
    }
}

/// The index is a copy: a fault of it is none of the turn's, and its steps are not counted as writes.
#[async_trait]
impl SearchStore for FaultStore {
    async fn search(&self, query: SearchQuery) -> Result<SearchPage, StoreError> {
        counted(&self.working, self.inner.search(query)).await
    }

    async fn index_step(&self, limit: usize) -> Result<IndexProgress, StoreError> {
        counted(&self.working, self.inner.index_step(limit)).await
    }

    async fn rebuild_index(&self) -> Result<(), StoreError> {
        counted(&self.working, self.inner.rebuild_index()).await
    }

    async fn index_status(&self) -> Result<IndexStatus, StoreError> {
        counted(&self.working, self.inner.index_status()).await
    }
}

#[async_trait]
impl MaintenanceStore for FaultStore {
    async fn check(&self, depth: CheckDepth) -> Result<CheckReport, StoreError> {
        counted(&self.working, self.inner.check(depth)).await
    }

    async fn backup(&self, to: &std::path::Path) -> Result<(), StoreError> {
        counted(&self.working, self.inner.backup(to)).await
    }

    async fn vacuum(&self, force: bool) -> Result<VacuumOutcome, StoreError> {
        self.write(self.inner.vacuum(force)).await
    }

    async fn close(&self) {
        counted(&self.working, self.inner.close()).await;
    }
}
