//! Admissions: accepted inputs, each with its place in the queue of its conversation.

use serde::{Deserialize, Serialize};

use crate::ids::{AdmissionId, ConversationId, Generation, OwnerId, TurnId};
use crate::machine::machine;
use crate::round::words;

/// What the sender wants done with the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    /// Its own turn, after those before it.
    Queue,
    /// Into the running turn; its own turn when there is none.
    Steer,
    /// In place of the request in flight; its own turn when there is none.
    Redirect,
}

words!(Intent { Queue => "queue", Steer => "steer", Redirect => "redirect" });

/// Where an admission stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionStatus {
    /// Waiting; nothing was begun.
    Queued,
    /// A turn works on it.
    Started,
    /// The journal cannot tell whether it was done. Resolved by an operator with the exact generation.
    Unknown,
    /// Over; see [`AdmissionOutcome`].
    Terminal,
}

/// How an admission ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionOutcome {
    /// Answered.
    Completed,
    /// Stopped.
    Interrupted,
    /// Failed; the turn's end says why.
    Failed,
    /// Taken back before it began.
    Cancelled,
}

words!(AdmissionOutcome {
    Completed => "completed", Interrupted => "interrupted", Failed => "failed", Cancelled => "cancelled",
});

/// What can happen to an admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdmissionEvent {
    /// A turn takes it.
    Claim,
    /// A running turn takes it as a steer: it ends without a turn of its own.
    Take,
    /// Its turn provably did nothing: back into its place.
    Requeue,
    /// Its turn ended.
    Settle,
    /// The sender takes it back.
    Cancel,
    /// The journal cannot tell.
    Lose,
    /// An operator decides an unknown one.
    Resolve,
}

machine!(
    ADMISSION_MACHINE, "an admission",
    AdmissionStatus { Queued => "queued", Started => "started", Unknown => "unknown", Terminal => "terminal" },
    AdmissionEvent {
        Claim => "claim", Take => "take", Requeue => "requeue", Settle => "settle", Cancel => "cancel", Lose => "lose",
        Resolve => "resolve",
    },
    [
        (Queued, Claim, Started), (Queued, Take, Terminal), (Queued, Cancel, Terminal), (Started, Requeue, Queued),
        (Started, Settle, Terminal), (Started, Lose, Unknown), (Unknown, Resolve, Terminal),
    ],
);

/// An input to be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAdmission {
    /// The admission's id, used when the request id is new.
    pub id: AdmissionId,
    /// The conversation.
    pub conversation: ConversationId,
    /// Who sends it.
    pub principal: String,
    /// The sender's own id of the request: the same one again gives the same receipt.
    pub request_id: String,
    /// What is wanted.
    pub intent: Intent,
    /// The input, in the engine's own form (JSON); at most [`crate::limits::PAYLOAD_MAX_BYTES`].
    pub payload: String,
    /// The process that accepted it and means to run it.
    pub submitted_by: OwnerId,
}

/// What the sender is told. The same for every repetition of a request, but for the status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The admission.
    pub admission: AdmissionId,
    /// Its conversation.
    pub conversation: ConversationId,
    /// Its place in the queue: grows, with gaps.
    pub seq: i64,
    /// Where it stands.
    pub status: AdmissionStatus,
    /// How it ended, when it has.
    pub outcome: Option<AdmissionOutcome>,
    /// The generation of its start, when it was started.
    pub generation: Option<Generation>,
    /// Its turn, when it was started.
    pub turn: Option<TurnId>,
}

/// Whether an input is new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmitOutcome {
    /// It is durable now.
    Accepted(Receipt),
    /// It was accepted before.
    Replayed(Receipt),
}

impl AdmitOutcome {
    /// The receipt.
    #[must_use]
    pub fn receipt(&self) -> &Receipt {
        match self {
            Self::Accepted(receipt) | Self::Replayed(receipt) => receipt,
        }
    }
}

/// An admission as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionRecord {
    /// What its sender is told.
    pub receipt: Receipt,
    /// Who sent it.
    pub principal: String,
    /// The sender's own id.
    pub request_id: String,
    /// What is wanted.
    pub intent: Intent,
    /// The input.
    pub payload: String,
    /// The process that accepted it.
    pub submitted_by: OwnerId,
    /// When it was accepted, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
}
