//! What is let go after a while, and what never is.
//!
//! A conversation is `open` until somebody ends it or the rules below do; a new input opens it again. Only an ended one
//! is ever removed, as a whole: all its sessions, rows and receipts, or none of them. What counts from then on are its
//! counters, which stay ([`crate::SessionStore::delete_conversation`]).
//!
//! | rule | applies to | by default |
//! |---|---|---|
//! | remove | ended, and idle since, for [`PruneRules::idle_ms`] | 90 days |
//! | remove an empty one | nothing was ever accepted or written, for [`crate::limits::PRUNE_EMPTY_MS`] | 24 hours |
//! | end | open, and idle for [`PruneRules::idle_ms`]: it gets a whole new time before it is removed | 90 days |
//! | archive | idle for [`PruneRules::archive_ms`]; a new input takes it out again | off |
//!
//! No rule touches a conversation that is pinned, that somebody holds a lease on, that has an open turn, an input that is
//! not over, or work of a worker or a delegation that is not over (S39). The store is its own writer here: in the
//! transaction of each single conversation it checks that nobody owns it.

use serde::{Deserialize, Serialize};

use crate::ids::ConversationId;
use crate::limits::{PRUNE_EVERY_MS, PRUNE_IDLE_MS, PRUNE_MAX_CONVERSATIONS};
use crate::machine::machine;

/// Whether a conversation is at work or at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationStatus {
    /// It may go on at any time.
    Open,
    /// It was ended; a new input opens it again.
    Ended,
    /// It was removed. Its counters stay.
    Gone,
}

/// What can happen to a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConversationEvent {
    /// It is ended. The first reason stays.
    End,
    /// An input is accepted.
    Admit,
    /// A person removes it.
    Delete,
    /// It was idle for too long.
    Prune,
}

machine!(
    CONVERSATION_MACHINE, "a conversation",
    ConversationStatus { Open => "open", Ended => "ended", Gone => "gone" },
    ConversationEvent { End => "end", Admit => "admit", Delete => "delete", Prune => "prune" },
    [
        (Open, End, Ended), (Open, Admit, Open), (Open, Delete, Gone), (Ended, End, Ended), (Ended, Admit, Open),
        (Ended, Delete, Gone), (Ended, Prune, Gone),
    ],
);

/// The reason of a conversation that the rules ended.
pub const END_IDLE: &str = "idle";

/// When what is let go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneRules {
    /// How long a conversation must be idle, in milliseconds.
    pub idle_ms: u64,
    /// Archive what is idle for this long, in milliseconds; nothing without it.
    pub archive_ms: Option<u64>,
    /// Least time between two runs, in milliseconds. A run that its limit stopped may go on at once.
    pub every_ms: u64,
    /// Most conversations of one call, up to [`PRUNE_MAX_CONVERSATIONS`].
    pub limit: usize,
    /// Only say what would go, whenever the last run was.
    pub dry_run: bool,
}

impl Default for PruneRules {
    fn default() -> Self {
        Self {
            idle_ms: PRUNE_IDLE_MS,
            archive_ms: None,
            every_ms: PRUNE_EVERY_MS,
            limit: PRUNE_MAX_CONVERSATIONS,
            dry_run: false,
        }
    }
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PruneStep {
    /// Removed after its time.
    Removed,
    /// Removed because nothing ever was in it.
    Empty,
    /// Ended.
    Ended,
    /// Archived.
    Archived,
}

impl PruneStep {
    /// In the order in which they are taken: what was ended just now is not removed in the same run.
    pub(crate) const ALL: [Self; 4] = [Self::Removed, Self::Empty, Self::Ended, Self::Archived];
}

/// One conversation that a rule applies to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pruned {
    /// The conversation.
    pub conversation: ConversationId,
    /// What was done, or would be.
    pub step: PruneStep,
    /// Its title.
    pub title: Option<String>,
    /// Rows that people see.
    pub messages: u64,
    /// When it was last written to, in milliseconds since the Unix epoch.
    pub last_activity_ms: i64,
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PruneReport {
    /// False when the last run was not long ago: nothing was looked at.
    pub is_due: bool,
    /// What was done, or would be.
    pub done: Vec<Pruned>,
    /// True when the limit stopped it; the next call goes on.
    pub has_more: bool,
}

/// Checks the reason of an end.
pub(crate) fn check_reason(reason: &str) -> Result<(), crate::error::StoreError> {
    crate::rules::limit("the reason of an end", reason.len(), crate::limits::END_REASON_MAX_BYTES)
}
