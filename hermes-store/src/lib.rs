//! The durable, fenced session store: what was said, and who may say the next thing.
//!
//! A conversation is a ledger with one owner at a time. Every write to it carries a [`Fence`], the proof of a lease,
//! and the SQL of that write is conditional on the fence's token: an owner that lost its lease while it slept gets
//! [`StoreError::Fenced`], always, and changes nothing.
//!
//! The crate knows nothing of models, tools or HTTP, and decides nothing about what to do next. It keeps facts:
//!
//! | fact | type | who may write it |
//! |---|---|---|
//! | an input was accepted, and its place in the queue | [`AdmissionRecord`] | anybody, idempotent by request id |
//! | who may advance a conversation | [`Fence`] | the store alone, on a claim |
//! | one execution of one input | [`TurnRecord`] | the holder of the fence |
//! | what happened | [`StoredMessage`] | the holder of the fence |
//! | what a tool call is known to have done | [`JournalCall`] | the holder of the fence |
//! | the bytes of a prompt | [`PromptSnapshot`] | the holder of the fence, by hash |
//! | work beside the turns, and what it said | [`WorkerRecord`], [`ReceiptRecord`] | the holder of the [`WorkerFence`]; see [`work`] |
//! | a task that a conversation gave to another, and its result | [`DelegationRecord`] | see [`delegation`] |
//! | who is there, and the count of starts | [`OwnerStatus`], [`EpochRecord`] | every process for itself; see [`work`] |
//! | which rows a model sees; what was undone or branched off | [`HistoryChange`] | the holder of the fence; see [`history`] |
//! | a message of a platform was received, once | [`InboundReceipt`] | anybody, idempotent by the platform's id; see [`inbound`] |
//! | an answer goes to a person | [`DeliveryRecord`] | the holder of the fence, then of its claim; see [`delivery`] |
//! | a person was asked | [`ApprovalRecord`] | the holder of the fence asks, a person answers; see [`approval`] |
//! | what is kept and for how long | [`PruneReport`] | anybody; see [`retention`] |
//!
//! Beside the facts stand what is made of them and may be lost: the index of [`search`]. [`transfer`] carries conversations
//! between stores, [`maintenance`] looks after a store. What may follow what is drawn in [`machines`].
//!
//! [`Round`] makes "record before you execute" a type: only the store turns `Round<Planned>` into `Round<Recorded>`,
//! only a recorded round can be executed, and only `Round<Settled>` is what a model may see.
//!
//! Three implementations stand behind the same traits: [`memory::MemoryStore`], the model that tests compare with,
//! `sqlite::SqliteStore` (feature `sqlite`) for one host, and `postgres::PostgresStore` (feature `postgres`) for more. The
//! conformance suite (feature `test-util`) runs on all three, and the two databases run the same SQL texts.
//!
//! # Begin
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # async fn f() -> Result<(), hermes_store::StoreError> {
//! use std::sync::Arc;
//! use hermes_store::sqlite::{SqliteOptions, SqliteStore};
//! use hermes_store::{HostClock, SessionStore as _};
//!
//! let store = SqliteStore::open(SqliteOptions::new("hermes.db", Arc::new(HostClock::new()))).await?;
//! for conversation in store.conversations(Default::default()).await? {
//!     println!("{} {}", conversation.id, conversation.title.unwrap_or_default());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The example `ledger` accepts an input, claims it, records a round and settles it, without the rest of Hermes. On a
//! server it is `postgres::PostgresStore::connect(PostgresOptions::new("postgres://..."))`. [`Store`] is all traits
//! together: a program may keep an `Arc<dyn Store>` of either. [`UuidIds`] mints ids.
//!
//! # What is left after a crash
//!
//! Every method of the traits is one transaction: all of it happened or none of it. What the next owner finds depends
//! only on the last method that was committed.
//!
//! | last thing that was committed | what is stored | what the next owner finds, and may do |
//! |---|---|---|
//! | nothing | nothing | the sender repeats its request id; it is accepted once |
//! | [`AdmissionStore::admit`] | a queued input | a claim takes it; the sender that repeats gets the same receipt |
//! | [`LeaseStore::claim`] | a started input, an open turn without rows | [`ClaimOutcome::Recover`] with nothing written: [`LeaseStore::requeue`] puts it back into its place |
//! | [`TranscriptStore::open_session`], a user row | and the row | the same: no model has said anything; the row is recognised by its id when it is written again |
//! | [`TranscriptStore::record_round`] | calls in [`JournalState::Recorded`] | they provably did not begin: run them, or settle them as skipped |
//! | [`TranscriptStore::start_calls`] | calls in [`JournalState::Started`] | by [`ReplaySafety`]: run again what is pure or idempotent; the rest is settled as [`CallOutcome::OutcomeUnknown`], never run again |
//! | [`TranscriptStore::settle_call`] | the result | go on with the calls that are still open |
//! | [`TranscriptStore::append`] of the answer | a final answer, an open turn | [`LeaseStore::settle_turn`] as completed: the answer is the proof |
//! | [`LeaseStore::settle_turn`] | everything | nothing to do |
//! | [`LeaseStore::lose_turn`] | an input in [`AdmissionStatus::Unknown`] | the queue waits for [`AdmissionStore::resolve_unknown`] with the exact generation |
//!
//! [`OpenTurn`] holds all of this for the recovery, read in the transaction that gave the lease. A writer that does not
//! know whether its last commit holds ([`StoreError::CommitUnknown`]) repeats the method with the same ids: what is
//! stored already is recognised, other bytes under the same id are refused.
//!
//! # Ownership
//!
//! A lease ends by [`LeaseStore::release`], by its time, by the proved death of its owner ([`LivenessProbe`]), or by the
//! owner's silence ([`limits::HEARTBEAT_DEAD_MS`]). Tokens give the safety and the clock only the liveness: whoever
//! holds an older token is refused, whatever any clock says. A token without a lease (given back) is refused too. A
//! process that claims what it holds itself gets [`ClaimOutcome::Held`], because it would rob its own running turn, unless it
//! repeats the claim by its id.
//!
//! The store sends no sign of life by itself. Whoever embeds it calls [`LeaseStore::heartbeat`] every
//! [`limits::HEARTBEAT_MS`] for as long as it owns anything, and [`LeaseStore::renew`] every
//! [`limits::LEASE_REFRESH_MS`] during a turn, also while a model or a tool takes long: an owner that is silent for
//! longer is replaced. (`hermes-core` does both.)
//!
//! Ids of rows, calls and turns are minted by the writer and are unique in the store; places (`seq`) of rows are given
//! by the store, grow, and have gaps.

mod admission;
pub mod approval;
pub mod delegation;
pub mod delivery;
mod error;
mod fence;
pub mod history;
mod ids;
pub mod inbound;
pub mod limits;
mod machine;
pub mod machines;
pub mod maintenance;
pub mod memory;
mod message;
mod owner;
mod patience;
mod prompt;
pub mod retention;
mod round;
mod rules;
pub mod search;
mod session;
#[cfg(feature = "sqlite")]
mod shell;
mod time;
mod traits;
pub mod transfer;
mod turn;
pub mod work;

#[cfg(feature = "test-util")]
pub mod conformance;
#[cfg(feature = "test-util")]
pub mod fault;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use admission::{
    ADMISSION_MACHINE, AdmissionEvent, AdmissionOutcome, AdmissionRecord, AdmissionStatus, AdmitOutcome, Intent,
    NewAdmission, Receipt,
};
pub use approval::{
    APPROVAL_MACHINE, AnswerOutcome, AnswerRefusal, ApprovalAnswer, ApprovalEvent, ApprovalRecord, ApprovalState,
    ApprovalStore, GivenAnswer, NewApproval,
};
pub use delegation::{
    DELEGATION_MACHINE, DelegationEnd, DelegationEvent, DelegationOutcome, DelegationRecord, DelegationState,
    DelegationStore, NewDelegation, RESULT_DELIVERY_MACHINE, ResultClaim, ResultDelivery, ResultDeliveryEvent,
};
pub use delivery::{
    AmbiguousPolicy, DELIVERY_MACHINE, DeliveryClaim, DeliveryDecision, DeliveryEvent, DeliveryFence, DeliveryFilter,
    DeliveryKind, DeliveryRecord, DeliveryRequest, DeliveryState, DeliveryStore, NewDelivery, RetryAfter, Target,
};
pub use error::StoreError;
pub use fence::{ClaimOutcome, ClaimPolicy, ClaimRequest, Fence};
pub use history::{
    BranchOrigin, CHANGE_MACHINE, ChangeEvent, ChangeKind, ChangeStatus, Compaction, CompressionLock, HistoryChange,
    LOCK_MACHINE, LockEvent, LockOutcome, LockState, NewBranch, Rewind, Rotation, TakeLock, ViewMark, ViewRow,
    nth_last_user_turn,
};
pub use ids::{
    AdmissionId, ApprovalId, CallId, ChangeId, ConversationId, DelegationId, DeliveryId, ExecutionId, Generation,
    IdKind, IdSource, InvalidId, MessageId, OwnerId, SessionId, Token, TurnId, UuidIds,
};
pub use inbound::{
    Inbound, InboundKey, InboundReceipt, InboundStore, MessageRef, ReceiveOutcome, Reply, Route, RouteKey, RouteOutcome,
};
pub use machine::{IllegalTransition, Machine};
pub use maintenance::{CheckDepth, CheckReport, Finding, MaintenanceStore, VacuumOutcome};
pub use message::{
    ApiContent, MessageKind, MessagePage, NewMessage, Role, RowState, Sidecar, StoredCall, StoredMessage, UsageDelta,
    UsageTotals, View,
};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use owner::ProcProbe;
pub use owner::{LivenessProbe, OwnerInfo};
pub use patience::{Patience, WriteKind};
pub use prompt::{PromptHash, PromptSnapshot};
pub use retention::{
    CONVERSATION_MACHINE, ConversationEvent, ConversationStatus, PruneReport, PruneRules, PruneStep, Pruned,
};
pub use round::{
    CALL_MACHINE, CallOutcome, CallResult, JournalCall, JournalEvent, JournalState, NewCall, Planned, Recorded,
    RecordedCall, ReplaySafety, Round, Settled, SettledCall, Unsettled,
};
pub use search::{
    IndexProgress, IndexState, IndexStatus, Neighbour, SearchHit, SearchOrder, SearchPage, SearchQuery, SearchStore,
};
pub use session::{
    ConversationFilter, ConversationFlags, ConversationSummary, FlagChange, NewConversation, NewSession, Resolved,
    ResolvedBy, SessionRecord, TitleSource,
};
pub use time::{Clock, HostClock, HostTime, ManualClock, ManualHost, SinceBoot, SystemHost};
pub use traits::{AdmissionStore, HistoryStore, LeaseStore, SessionStore, Store, TranscriptStore};
pub use turn::{OpenTurn, TURN_MACHINE, TurnEnd, TurnEvent, TurnRecord, TurnStatus};
pub use work::{
    Epoch, EpochRecord, NewReceipt, NewWorker, OwnerState, OwnerStatus, Presence, ReceiptRecord, RecordOutcome,
    RegisterOutcome, WORKER_MACHINE, WorkStore, WorkerEnd, WorkerEvent, WorkerFence, WorkerFilter, WorkerKind,
    WorkerOutcome, WorkerRecord, WorkerSecret, WorkerState,
};
