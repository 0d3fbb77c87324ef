//! Turns: one execution of one admission each.

use serde::{Deserialize, Serialize};

use crate::admission::{AdmissionOutcome, AdmissionRecord};
use crate::ids::{AdmissionId, ConversationId, Generation, SessionId, TurnId};
use crate::machine::machine;
use crate::message::StoredMessage;
use crate::round::{JournalCall, Recorded, Round};

/// Whether a turn is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    /// At work, or left open by a crash.
    Running,
    /// Over.
    Ended,
}

/// What can happen to a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnEvent {
    /// A recovery goes on with it.
    Adopt,
    /// It is over: settled, put back, or lost.
    End,
}

machine!(
    TURN_MACHINE, "a turn",
    TurnStatus { Running => "running", Ended => "ended" },
    TurnEvent { Adopt => "adopt", End => "end" },
    [(Running, Adopt, Running), (Running, End, Ended)],
);

/// How a turn ended, to be stored. The reason's words are the engine's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEnd {
    /// The engine's end reason (a word of its closed list).
    pub reason: String,
    /// More on it for a person, cleaned of secrets.
    pub detail: Option<String>,
    /// What becomes of the admission.
    pub outcome: AdmissionOutcome,
    /// Requests to a model.
    pub api_calls: u64,
}

/// A turn as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnRecord {
    /// The turn.
    pub id: TurnId,
    /// Its conversation.
    pub conversation: ConversationId,
    /// Its admission.
    pub admission: AdmissionId,
    /// Its session, once it has one.
    pub session: Option<SessionId>,
    /// The generation of its start.
    pub generation: Generation,
    /// How often it was begun: 1, and one more for each recovery that went on with it.
    pub attempt: i64,
    /// Whether it is over.
    pub status: TurnStatus,
    /// Why it ended.
    pub reason: Option<String>,
    /// More on it.
    pub detail: Option<String>,
    /// Requests to a model.
    pub api_calls: u64,
    /// When it began, in milliseconds since the Unix epoch.
    pub started_at_ms: i64,
    /// When it ended.
    pub ended_at_ms: Option<i64>,
    /// The row with the final answer, if there is one.
    pub answer: Option<StoredMessage>,
}

/// A turn that an earlier owner left open: everything that the journal knows of it.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenTurn {
    /// The turn.
    pub id: TurnId,
    /// Its input.
    pub admission: AdmissionRecord,
    /// Its generation.
    pub generation: Generation,
    /// Its session, once it has one.
    pub session: Option<SessionId>,
    /// How often it was begun.
    pub attempt: i64,
    /// When it began, in milliseconds since the Unix epoch.
    pub started_at_ms: i64,
    /// When its last row was written, in milliseconds since the Unix epoch.
    pub last_write_ms: i64,
    /// The calls of its rounds, in order.
    pub calls: Vec<JournalCall>,
    /// Its last round, when a call of it has no stored result.
    pub open_round: Option<Round<Recorded>>,
    /// Its last row, if it wrote any: an assistant row without calls that is [`crate::MessageKind::Normal`] is the
    /// final answer.
    pub last_row: Option<StoredMessage>,
}
