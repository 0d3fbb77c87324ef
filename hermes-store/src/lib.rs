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
//!
//! [`Round`] makes "record before you execute" a type: only the store turns `Round<Planned>` into `Round<Recorded>`,
//! only a recorded round can be executed, and only `Round<Settled>` is what a model may see.
//!
//! Two implementations stand behind the same traits: [`memory::MemoryStore`], the model that tests compare with, and
//! `sqlite::SqliteStore` (feature `sqlite`).

mod admission;
mod error;
mod fence;
mod ids;
pub mod limits;
pub mod memory;
mod message;
mod owner;
mod prompt;
mod round;
mod rules;
mod session;
mod time;
mod traits;
mod turn;

#[cfg(feature = "test-util")]
pub mod conformance;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use admission::{
    AdmissionEvent, AdmissionOutcome, AdmissionRecord, AdmissionStatus, AdmitOutcome, IllegalTransition, Intent,
    NewAdmission, Receipt,
};
pub use error::StoreError;
pub use fence::{ClaimOutcome, ClaimPolicy, ClaimRequest, Fence};
pub use ids::{
    AdmissionId, CallId, ConversationId, Generation, IdKind, IdSource, InvalidId, MessageId, OwnerId, SessionId, Token,
    TurnId, UuidIds,
};
pub use message::{
    ApiContent, MessageKind, MessagePage, NewMessage, Role, RowState, Sidecar, StoredCall, StoredMessage, UsageDelta,
    UsageTotals, View,
};
#[cfg(feature = "sqlite")]
pub use owner::ProcProbe;
pub use owner::{LivenessProbe, OwnerInfo};
pub use prompt::{PromptHash, PromptSnapshot};
pub use round::{
    CallOutcome, CallResult, JournalCall, JournalState, NewCall, Planned, Recorded, RecordedCall, ReplaySafety, Round,
    Settled, SettledCall, Unsettled,
};
pub use session::{
    ConversationFilter, ConversationSummary, NewConversation, NewSession, SearchHit, SessionRecord, TitleSource,
};
pub use time::{Clock, HostClock, ManualClock};
pub use traits::{AdmissionStore, LeaseStore, SessionStore, Store, TranscriptStore};
pub use turn::{OpenTurn, TurnEnd, TurnRecord, TurnStatus};
