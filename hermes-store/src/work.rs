//! Work that runs elsewhere: workers with their receipts, the count of starts, and who is there.
//!
//! A *worker* is one execution of a task beside the turns: a cron job that fires, a child process, a long computation, a
//! kanban card. The store keeps who runs it, how far it came, and what it said, so that a crash of either side leaves a
//! fact and not a guess. It never starts, ends or repeats one.
//!
//! | fact | type | who may write it |
//! |---|---|---|
//! | this task has a worker | [`WorkerRecord`] | whoever registers it; for one of a conversation the holder of the [`Fence`] |
//! | who answers for it now | its generation | the store, on a registration and on an adoption with the secret |
//! | output number n | [`ReceiptRecord`] | the holder of the [`WorkerFence`], in order, once each |
//! | nobody knows what became of it | [`WorkerState::Unknown`] | the sweep, when the owner is gone; the holder of the [`WorkerFence`] |
//! | it is over | [`WorkerEnd`] | the holder of the [`WorkerFence`]; an operator with the exact generation |
//! | this process began | [`EpochRecord`] | every gateway that starts |
//! | what a process is | [`Presence`] | the process itself |
//!
//! A task key is held by one worker that is not over: while one is registered, running or unknown, a second is refused
//! with [`RegisterOutcome::Busy`]. So a worker that cannot be killed keeps its task to itself.
//!
//! # What is left after a crash
//!
//! | last thing that was committed | what is stored | what the next owner finds, and may do |
//! |---|---|---|
//! | nothing | nothing | register it |
//! | [`WorkStore::register_worker`] | a registered worker | the sweep makes it unknown when its owner is gone; nothing was received from it |
//! | [`WorkStore::record_receipt`] number n | receipts 1 to n | who has the secret adopts it and goes on with n + 1; a repeated n gets the stored result |
//! | [`WorkStore::adopt_worker`] | a new generation | the one before is [`StoreError::Fenced`] at its next write |
//! | [`WorkStore::sweep_workers`] | an unknown worker | it is never run again by itself: adopt it with the secret, or [`WorkStore::resolve_worker`] with the exact generation |
//! | [`WorkStore::finish_worker`] | everything | the task is free; the receipts stay for [`crate::limits::WORKER_KEEP_MS`] |
//!
//! Generations of workers come from one counter of the store: they only grow and are never given twice, whatever is
//! deleted (I08).

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{ConversationId, ExecutionId, Generation, InvalidId, OwnerId};
use crate::limits::{KEY_MAX_BYTES, OWNER_KEEP_MS, RECEIPT_MAX_BYTES, RECEIPTS_MAX, SECRET_MIN_BYTES};
use crate::machine::machine;
use crate::owner::OwnerInfo;
use crate::prompt::PromptHash;
use crate::round::words;
use crate::rules::{self, conflict, invalid};

/// What a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerKind {
    /// A cron job that fired.
    Cron,
    /// A process that runs a child conversation.
    Child,
    /// A computation (`execute_code`, a background command).
    Compute,
    /// A kanban card.
    Kanban,
}

words!(WorkerKind { Cron => "cron", Child => "child", Compute => "compute", Kanban => "kanban" });

/// Where a worker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// It was given its task; nothing was received from it.
    Registered,
    /// At work.
    Running,
    /// Its owner is gone, and nobody knows what became of it. Never run again by itself.
    Unknown,
    /// Over; see [`WorkerEnd`].
    Terminal,
}

/// What can happen to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkerEvent {
    /// A receipt of it is stored.
    Record,
    /// Another owner answers for it, by the secret.
    Adopt,
    /// Nobody knows what became of it.
    Lose,
    /// It says that it is over.
    Finish,
    /// An operator decides an unknown one.
    Resolve,
}

machine!(
    WORKER_MACHINE, "a worker",
    WorkerState { Registered => "registered", Running => "running", Unknown => "unknown", Terminal => "terminal" },
    WorkerEvent { Record => "record", Adopt => "adopt", Lose => "lose", Finish => "finish", Resolve => "resolve" },
    [
        (Registered, Record, Running), (Registered, Adopt, Running), (Registered, Lose, Unknown),
        (Registered, Finish, Terminal), (Running, Record, Running), (Running, Adopt, Running), (Running, Lose, Unknown),
        (Running, Finish, Terminal), (Unknown, Adopt, Running), (Unknown, Resolve, Terminal),
    ],
);

/// What proves that a process may speak for a worker. The store keeps only its SHA-256 digest; `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct WorkerSecret(String);

impl WorkerSecret {
    /// A new secret, of 148 random bits.
    #[must_use]
    pub fn random() -> Self {
        // 74 bits of a version 7 UUID are random.
        Self(format!("{}{}", uuid::Uuid::now_v7().simple(), uuid::Uuid::now_v7().simple()))
    }

    /// A secret that was handed over as text.
    ///
    /// # Errors
    /// [`InvalidId`] when it is shorter than [`SECRET_MIN_BYTES`], or no valid id.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let checked = ExecutionId::parse(text)?;
        if text.len() < SECRET_MIN_BYTES {
            return Err(InvalidId { reason: "it is shorter than 32 bytes" });
        }
        Ok(Self(checked.into()))
    }

    /// The text, to be handed to the worker and to nobody else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What is stored: 64 hex digits.
    pub(crate) fn digest(&self) -> String {
        PromptHash::of(self.0.as_bytes()).as_str().to_owned()
    }
}

impl fmt::Debug for WorkerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerSecret(..)")
    }
}

/// Proof that its holder speaks for one worker: execution, generation, secret. Only a store makes one; every write of
/// a worker takes one, and its SQL is conditional on all three.
///
/// Nobody else can make one:
///
/// ```compile_fail,E0624
/// use hermes_store::{ExecutionId, Generation, WorkerFence};
/// let fence = WorkerFence::new(ExecutionId::parse("e").unwrap(), Generation(1), String::new());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct WorkerFence {
    execution: ExecutionId,
    generation: Generation,
    digest: String,
}

impl WorkerFence {
    pub(crate) fn new(execution: ExecutionId, generation: Generation, digest: String) -> Self {
        Self { execution, generation, digest }
    }

    /// The execution.
    #[must_use]
    pub fn execution(&self) -> &ExecutionId {
        &self.execution
    }

    /// The generation of its owner.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The answer to a writer whose proof does not hold any more.
    pub(crate) fn refused(&self) -> StoreError {
        StoreError::Fenced { held: crate::ids::Token(self.generation.0) }
    }
}

impl fmt::Debug for WorkerFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerFence")
            .field("execution", &self.execution)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// A worker to be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWorker {
    /// Its id, minted by the caller: the same one again gives the same answer.
    pub id: ExecutionId,
    /// What it is.
    pub kind: WorkerKind,
    /// The task that it holds while it is not over (`cron:JOB:INSTANT`, `kanban:CARD`, ...); at most
    /// [`crate::limits::KEY_MAX_BYTES`]. Unique among the workers that are not over.
    pub task: String,
    /// The process that starts it and answers for it. It must send heartbeats.
    pub owner: OwnerId,
    /// What an adoption needs.
    pub secret: WorkerSecret,
}

/// What a registration found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterOutcome {
    /// It is registered.
    Registered(WorkerFence),
    /// The task is held by this worker, which is not over. Nothing was written.
    Busy(Box<WorkerRecord>),
}

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerOutcome {
    /// It did its task.
    Completed,
    /// It did not.
    Failed,
    /// It was stopped.
    Cancelled,
    /// Nobody found out; an operator closed it.
    Lost,
}

words!(WorkerOutcome { Completed => "completed", Failed => "failed", Cancelled => "cancelled", Lost => "lost" });

/// The end of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerEnd {
    /// How it ended.
    pub outcome: WorkerOutcome,
    /// More on it for a person, cleaned of secrets; at most [`crate::limits::RECEIPT_MAX_BYTES`].
    pub detail: Option<String>,
}

/// A worker as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// Its id.
    pub id: ExecutionId,
    /// What it is.
    pub kind: WorkerKind,
    /// Its task.
    pub task: String,
    /// The conversation that it works for, if any.
    pub conversation: Option<ConversationId>,
    /// The process that answers for it.
    pub owner: OwnerId,
    /// Grows with every registration and adoption.
    pub generation: Generation,
    /// Where it stands.
    pub state: WorkerState,
    /// The number of its last receipt; 0 when there is none.
    pub last_sequence: i64,
    /// How it ended, when it has.
    pub end: Option<WorkerEnd>,
    /// When it was registered, in milliseconds since the Unix epoch.
    pub registered_at_ms: i64,
    /// When it was last written to.
    pub written_at_ms: i64,
}

/// Which workers to list, the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerFilter {
    /// Only those of this kind.
    pub kind: Option<WorkerKind>,
    /// Only those of this conversation.
    pub conversation: Option<ConversationId>,
    /// Also those that are over.
    pub with_terminal: bool,
    /// Most rows, up to [`crate::limits::PAGE_MAX_ROWS`].
    pub limit: usize,
}

impl Default for WorkerFilter {
    fn default() -> Self {
        Self { kind: None, conversation: None, with_terminal: false, limit: 100 }
    }
}

/// One output of a worker, to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewReceipt {
    /// Its number: 1 for the first, then one more each time.
    pub sequence: i64,
    /// What the worker sent. Only its digest is stored: an equal one is the same receipt. At most
    /// [`crate::limits::RECEIPT_MAX_BYTES`].
    pub payload: String,
    /// What it is told for it, now and at every repetition. At most [`crate::limits::RECEIPT_MAX_BYTES`].
    pub result: String,
}

impl NewReceipt {
    pub(crate) fn digest(&self) -> String {
        PromptHash::of(self.payload.as_bytes()).as_str().to_owned()
    }
}

/// A receipt as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptRecord {
    /// Its number.
    pub sequence: i64,
    /// SHA-256 of what was sent, as 64 hex digits.
    pub digest: String,
    /// What the worker was told.
    pub result: String,
    /// When it was stored, in milliseconds since the Unix epoch.
    pub recorded_at_ms: i64,
}

/// Whether a receipt is new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordOutcome {
    /// It is durable now.
    Recorded(ReceiptRecord),
    /// It was stored before; this is what was stored.
    Replayed(ReceiptRecord),
}

impl RecordOutcome {
    /// The receipt.
    #[must_use]
    pub fn receipt(&self) -> &ReceiptRecord {
        match self {
            Self::Recorded(receipt) | Self::Replayed(receipt) => receipt,
        }
    }
}

/// A count of starts: grows by one with every instance that begins, never reset (I08).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub i64);

/// The newest start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Its number.
    pub epoch: Epoch,
    /// The process that began it.
    pub instance: OwnerId,
    /// When, in milliseconds since the Unix epoch.
    pub begun_at_ms: i64,
}

/// What an owner says of itself, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// The profile that it serves.
    pub profile: String,
    /// What it is (`gateway`, `cli`, `worker`).
    pub role: String,
}

/// How an owner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerState {
    /// It sends heartbeats.
    Alive,
    /// Its last heartbeat is older than [`crate::limits::HEARTBEAT_DEAD_MS`].
    Silent,
    /// Its process is provably gone.
    Dead,
    /// It ended in order.
    Retired,
}

/// An owner that the store knows. Rows are kept for [`crate::limits::OWNER_KEEP_MS`] after the last heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerStatus {
    /// The process: its id is the instance.
    pub info: OwnerInfo,
    /// What it said of itself, if it did.
    pub presence: Option<Presence>,
    /// When it announced itself first, in milliseconds since the Unix epoch.
    pub started_at_ms: Option<i64>,
    /// When its last heartbeat came.
    pub beat_at_ms: i64,
    /// How it is.
    pub state: OwnerState,
}

/// Workers, receipts, starts, and who is there.
#[async_trait]
pub trait WorkStore: Send + Sync {
    /// Registers a worker, with a new generation. One of a conversation needs the fence. The same id with the same
    /// content, by the owner that still answers for it, gives the same answer.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Conflict`] for a known id with other content or another owner;
    /// [`StoreError::Limit`]; [`StoreError::Retryable`] when the task became free in this moment.
    async fn register_worker(&self, fence: Option<&Fence>, new: NewWorker) -> Result<RegisterOutcome, StoreError>;

    /// The proof of a worker for a process that was handed the secret, such as the worker itself. Writes nothing.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Invalid`] when secret or generation are not the right ones.
    async fn present_worker(
        &self,
        id: &ExecutionId,
        generation: Generation,
        secret: &WorkerSecret,
    ) -> Result<WorkerFence, StoreError>;

    /// Makes `owner` answer for a worker, with a new generation; the one before is fenced. The receipts go on behind
    /// [`WorkerRecord::last_sequence`]. The same adoption again gives the same answer.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Invalid`] when secret or generation are not the right ones, or the
    /// worker is over (S42).
    async fn adopt_worker(
        &self,
        id: &ExecutionId,
        generation: Generation,
        secret: &WorkerSecret,
        owner: &OwnerId,
    ) -> Result<(WorkerFence, WorkerRecord), StoreError>;

    /// Stores an output of a worker: number n only after n - 1, once each (S41).
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Conflict`] when the number has another digest; [`StoreError::Invalid`]
    /// for a number that is not the next one, and for a worker that is unknown (adopt it first) or over;
    /// [`StoreError::Limit`] for more than [`crate::limits::RECEIPTS_MAX`] or a text that is too long.
    async fn record_receipt(&self, fence: &WorkerFence, receipt: NewReceipt) -> Result<RecordOutcome, StoreError>;

    /// Ends a worker and frees its task. The same end again is no error.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Invalid`] when it is unknown, or over in another way.
    async fn finish_worker(&self, fence: &WorkerFence, end: WorkerEnd) -> Result<WorkerRecord, StoreError>;

    /// Says that nobody knows what became of a worker, though its owner lives: it cannot be killed, or its last word
    /// was lost. An unknown one stays so.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Invalid`] when it is over.
    async fn lose_worker(&self, fence: &WorkerFence) -> Result<WorkerRecord, StoreError>;

    /// Decides an unknown worker and frees its task. The same end again is no error.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Invalid`] when it is not unknown, or the generation is not the exact
    /// one.
    async fn resolve_worker(
        &self,
        id: &ExecutionId,
        generation: Generation,
        end: WorkerEnd,
    ) -> Result<WorkerRecord, StoreError>;

    /// Makes workers unknown whose owner is provably dead, silent or retired, and forgets those that were over for
    /// [`crate::limits::WORKER_KEEP_MS`]. An owner without a row counts as gone when it wrote nothing for
    /// [`crate::limits::OWNER_KEEP_MS`]. To be called every [`crate::limits::WORK_SWEEP_MS`]. Returns those that became
    /// unknown, by id.
    ///
    /// # Errors
    /// Only those of the database.
    async fn sweep_workers(&self) -> Result<Vec<ExecutionId>, StoreError>;

    /// A worker.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn worker(&self, id: &ExecutionId) -> Result<WorkerRecord, StoreError>;

    /// Workers, the newest first.
    ///
    /// # Errors
    /// Only those of the database.
    async fn workers(&self, filter: WorkerFilter) -> Result<Vec<WorkerRecord>, StoreError>;

    /// Receipts of a worker behind number `after`, in their order; at most `limit`, up to
    /// [`crate::limits::PAGE_MAX_ROWS`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn receipts(&self, id: &ExecutionId, after: i64, limit: usize) -> Result<Vec<ReceiptRecord>, StoreError>;

    /// Counts a start. The instance that began the newest epoch gets the same number again.
    ///
    /// # Errors
    /// Only those of the database.
    async fn begin_epoch(&self, instance: &OwnerId) -> Result<Epoch, StoreError>;

    /// The newest start; `None` when there was none.
    ///
    /// # Errors
    /// Only those of the database.
    async fn current_epoch(&self) -> Result<Option<EpochRecord>, StoreError>;

    /// Sends a heartbeat, and says what this owner is.
    ///
    /// # Errors
    /// [`StoreError::Limit`] for words over [`crate::limits::KEY_MAX_BYTES`].
    async fn announce(&self, owner: &OwnerInfo, presence: &Presence) -> Result<(), StoreError>;

    /// Every owner that the store knows, the newest heartbeat first; at most [`crate::limits::PAGE_MAX_ROWS`].
    ///
    /// # Errors
    /// Only those of the database.
    async fn owners(&self) -> Result<Vec<OwnerStatus>, StoreError>;
}

/// A worker with what only the store needs, and what may happen to it: shared by every store.
#[derive(Debug, Clone)]
pub(crate) struct WorkerRow {
    pub(crate) record: WorkerRecord,
    /// Digest of the secret.
    pub(crate) digest: String,
    /// The generation that the last adoption named.
    pub(crate) adopted_from: Option<Generation>,
}

/// What a receipt means for a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiptStep {
    /// It is the next one.
    Next,
    /// It was stored before: compare the digests.
    Known,
}

impl WorkerRow {
    pub(crate) fn new(new: &NewWorker, conversation: Option<ConversationId>, generation: i64, now: i64) -> Self {
        let record = WorkerRecord {
            id: new.id.clone(),
            kind: new.kind,
            task: new.task.clone(),
            conversation,
            owner: new.owner.clone(),
            generation: Generation(generation),
            state: WorkerState::Registered,
            last_sequence: 0,
            end: None,
            registered_at_ms: now,
            written_at_ms: now,
        };
        Self { record, digest: new.secret.digest(), adopted_from: None }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.record.state == WorkerState::Terminal
    }

    /// Whether the sweep looks at it: it is at work as far as the store knows.
    pub(crate) fn may_be_lost(&self) -> bool {
        self.record.state.next(WorkerEvent::Lose).is_ok()
    }

    pub(crate) fn fence(&self) -> WorkerFence {
        WorkerFence::new(self.record.id.clone(), self.record.generation, self.digest.clone())
    }

    /// The answer to a registration under a known id.
    pub(crate) fn again(
        &self,
        new: &NewWorker,
        conversation: Option<&ConversationId>,
    ) -> Result<WorkerFence, StoreError> {
        let same = self.record.kind == new.kind
            && self.record.task == new.task
            && self.record.owner == new.owner
            && self.record.conversation.as_ref() == conversation
            && self.digest == new.secret.digest();
        match same {
            true => Ok(self.fence()),
            false => Err(conflict("worker", &new.id)),
        }
    }

    fn is_proved(&self, generation: Generation, secret: &WorkerSecret) -> bool {
        self.record.generation == generation && self.digest == secret.digest()
    }

    fn unproved(&self) -> StoreError {
        invalid(format!("the secret or the generation is not that of worker {}", self.record.id))
    }

    pub(crate) fn present(&self, generation: Generation, secret: &WorkerSecret) -> Result<WorkerFence, StoreError> {
        match self.is_proved(generation, secret) {
            true => Ok(self.fence()),
            false => Err(self.unproved()),
        }
    }

    /// Whether this adoption was done already (false: it may be done), or why it is refused.
    pub(crate) fn was_adopted(
        &self,
        generation: Generation,
        secret: &WorkerSecret,
        owner: &OwnerId,
    ) -> Result<bool, StoreError> {
        let again = self.adopted_from == Some(generation) && self.record.owner == *owner;
        if again && self.digest == secret.digest() {
            return Ok(true);
        }
        if !self.is_proved(generation, secret) {
            return Err(self.unproved());
        }
        self.record.state.next(WorkerEvent::Adopt)?;
        Ok(false)
    }

    pub(crate) fn adopt(&mut self, owner: &OwnerId, next: Generation, now: i64) -> Result<(), StoreError> {
        self.record.state = self.record.state.next(WorkerEvent::Adopt)?;
        self.adopted_from = Some(self.record.generation);
        self.record.generation = next;
        self.record.owner = owner.clone();
        self.record.written_at_ms = now;
        Ok(())
    }

    pub(crate) fn check(&self, fence: &WorkerFence) -> Result<(), StoreError> {
        match self.record.generation == fence.generation && self.digest == fence.digest {
            true => Ok(()),
            false => Err(fence.refused()),
        }
    }

    /// Takes receipt number `sequence`.
    pub(crate) fn record(&mut self, fence: &WorkerFence, sequence: i64, now: i64) -> Result<ReceiptStep, StoreError> {
        self.check(fence)?;
        if (1..=self.record.last_sequence).contains(&sequence) {
            return Ok(ReceiptStep::Known);
        }
        let state = self.record.state.next(WorkerEvent::Record)?;
        let next = self.record.last_sequence + 1;
        if sequence != next {
            return Err(invalid(format!(
                "receipt {sequence} of worker {} is not the next one, {next}",
                self.record.id
            )));
        }
        if sequence > RECEIPTS_MAX {
            return Err(StoreError::Limit { what: "the receipts of a worker", limit: RECEIPTS_MAX.unsigned_abs() });
        }
        self.record.state = state;
        self.record.last_sequence = sequence;
        self.record.written_at_ms = now;
        Ok(ReceiptStep::Next)
    }

    fn close(&mut self, event: WorkerEvent, end: &WorkerEnd, now: i64) -> Result<bool, StoreError> {
        if self.record.end.as_ref() == Some(end) {
            return Ok(false);
        }
        self.record.state = self.record.state.next(event)?;
        self.record.end = Some(end.clone());
        self.record.written_at_ms = now;
        Ok(true)
    }

    /// Ends it; false when it ended so before.
    pub(crate) fn finish(&mut self, fence: &WorkerFence, end: &WorkerEnd, now: i64) -> Result<bool, StoreError> {
        self.check(fence)?;
        self.close(WorkerEvent::Finish, end, now)
    }

    /// Decides an unknown one; false when it was decided so before.
    pub(crate) fn resolve(&mut self, generation: Generation, end: &WorkerEnd, now: i64) -> Result<bool, StoreError> {
        if self.record.generation != generation {
            return Err(invalid(format!("generation {} is not the one that is unknown", generation.0)));
        }
        self.close(WorkerEvent::Resolve, end, now)
    }

    /// Makes it unknown; false when it is already.
    pub(crate) fn lose(&mut self, now: i64) -> Result<bool, StoreError> {
        if self.record.state == WorkerState::Unknown {
            return Ok(false);
        }
        self.record.state = self.record.state.next(WorkerEvent::Lose)?;
        self.record.written_at_ms = now;
        Ok(true)
    }
}

/// The answer to a receipt whose number is stored.
pub(crate) fn replay(id: &ExecutionId, new: &NewReceipt, known: ReceiptRecord) -> Result<RecordOutcome, StoreError> {
    match known.digest == new.digest() {
        true => Ok(RecordOutcome::Replayed(known)),
        false => Err(conflict(&format!("receipt {} of worker", new.sequence), id)),
    }
}

pub(crate) fn check_new(new: &NewWorker) -> Result<(), StoreError> {
    rules::limit("the task of a worker", new.task.len(), KEY_MAX_BYTES)
}

pub(crate) fn check_receipt(new: &NewReceipt) -> Result<(), StoreError> {
    rules::limit("the payload of a receipt", new.payload.len(), RECEIPT_MAX_BYTES)?;
    rules::limit("the result of a receipt", new.result.len(), RECEIPT_MAX_BYTES)
}

pub(crate) fn check_end(end: &WorkerEnd) -> Result<(), StoreError> {
    rules::limit("the detail of an end", end.detail.as_ref().map_or(0, String::len), RECEIPT_MAX_BYTES)
}

pub(crate) fn check_presence(presence: &Presence) -> Result<(), StoreError> {
    rules::limit("the name of a profile", presence.profile.len(), KEY_MAX_BYTES)?;
    rules::limit("the role of an owner", presence.role.len(), KEY_MAX_BYTES)
}

/// Whether work of an owner without a row is orphaned: rows of owners that beat are never removed.
pub(crate) fn is_forgotten(written_ms: i64, now: i64) -> bool {
    now.saturating_sub(written_ms) > rules::ms(OWNER_KEEP_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i24_a_secret_is_not_shown() {
        let secret = WorkerSecret::random();
        assert_eq!(format!("{secret:?}"), "WorkerSecret(..)");
        let fence = WorkerFence::new(ExecutionId::parse("e").unwrap(), Generation(3), secret.digest());
        assert!(!format!("{fence:?}").contains(&secret.digest()));
        assert_ne!(secret, WorkerSecret::random());
        assert_ne!(secret.digest(), secret.expose());
    }

    #[test]
    fn a_handed_over_secret_is_checked() {
        let secret = WorkerSecret::random();
        assert_eq!(WorkerSecret::parse(secret.expose()).unwrap(), secret);
        for bad in ["", "short", &"x".repeat(SECRET_MIN_BYTES - 1), &"ü".repeat(40), &"x".repeat(129)] {
            assert!(WorkerSecret::parse(bad).is_err(), "{bad:?}");
        }
    }
}
