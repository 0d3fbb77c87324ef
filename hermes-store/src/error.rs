//! What can go wrong in a store, each with a stable code and a page in `docs/errors`.

use crate::ids::Token;

/// An operation of the store that failed. Unless the variant says otherwise, nothing was changed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The writer's lease was taken over or given back. It must stop its turn at once.
    #[error("the lease of token {} is no longer held: it was given back, or another owner has taken over", .held.0)]
    Fenced {
        /// The token that the writer carried.
        held: Token,
    },
    /// The same key was used before with other content.
    #[error("{what} was used before with other content; use a new id, or send the same content again")]
    Conflict {
        /// Which key.
        what: String,
    },
    /// No such row.
    #[error("{what} was not found")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// Another owner is at work on this conversation.
    #[error("the conversation is in use by another process; try again when its turn has ended")]
    InUse,
    /// Another process held the write lock for longer than the named limit.
    #[error("the database was locked by another process for {waited_ms} ms; try again")]
    Busy {
        /// How long was waited, in milliseconds.
        waited_ms: u64,
    },
    /// The transaction was rolled back and may be repeated as it is.
    #[error("the database asked to repeat the operation: {detail}")]
    Retryable {
        /// The database's own words.
        detail: String,
    },
    /// The connection was lost during COMMIT: read back by your own unique key, never repeat blindly.
    #[error("the connection was lost while the change was being committed; whether it holds is not known yet")]
    CommitUnknown,
    /// The file is damaged.
    #[error("the database is damaged: {detail}")]
    Corrupt {
        /// The database's own words.
        detail: String,
    },
    /// No space is left.
    #[error("no space is left for the database; free some space and go on, nothing accepted was lost")]
    Full,
    /// The file cannot be written.
    #[error("the database cannot be written: {detail}")]
    ReadOnly {
        /// The database's own words.
        detail: String,
    },
    /// The file, or the log beside it, was replaced or deleted under a running process. Seen at the end of a
    /// transaction, it leaves open whether the file holds the change: read it back after the restart.
    #[error("the database file was replaced or deleted while it was open; restart the program")]
    Replaced,
    /// A newer version of the program wrote the file.
    #[error("the database has schema {found}, and this program knows up to {known}; use a newer program")]
    TooNew {
        /// The file's schema version.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The linked SQLite has the WAL-reset bug.
    #[error("SQLite {found} is too old; 3.51.3 or newer is needed (older ones can damage a database in WAL mode)")]
    SqliteTooOld {
        /// The version that is linked.
        found: String,
    },
    /// The PostgreSQL server is too old.
    #[error("PostgreSQL {found} is too old; 15 or newer is needed")]
    PostgresTooOld {
        /// The server's version.
        found: String,
    },
    /// The database server cannot be reached, or ended the connection before COMMIT was sent.
    #[error("the database server cannot be reached, or ended the connection: {detail}; try again when it is back")]
    Unavailable {
        /// The driver's or the server's own words.
        detail: String,
    },
    /// A limit of `limits` was exceeded.
    #[error("{what} exceeds the limit of {limit}")]
    Limit {
        /// What is too large or too many.
        what: &'static str,
        /// The limit, in the unit of its constant.
        limit: u64,
    },
    /// The history is no longer the one that the change was made from. Read it again, and decide again.
    #[error("the history of the conversation has changed since it was read ({what}); read it again")]
    Stale {
        /// What differs.
        what: String,
    },
    /// The lock on the compression of the session was taken by another compressor, or its lease is over.
    #[error("the compression was given up: its lock is held no more; the conversation is as it was")]
    LockLost,
    /// The process that accepts the input is ending: its owner is retired. Nothing was accepted.
    #[error("this process is ending and accepts no new input; send it again when the program is back")]
    Retired,
    /// A request that can never succeed: the message says what to change.
    #[error("{detail}")]
    Invalid {
        /// What is wrong and what to do.
        detail: String,
    },
    /// The search index is damaged or cannot be opened. It is a copy: nothing of any conversation is in danger.
    #[error(
        "the search index cannot be used ({detail}); no conversation is harmed; `hermes sessions reindex` builds it anew"
    )]
    SearchIndex {
        /// The database's own words.
        detail: String,
    },
    /// Anything else that the database or the file system reported.
    #[error("the database failed: {detail}")]
    Io {
        /// The database's own words.
        detail: String,
    },
}

/// A refused transition is a request that cannot succeed as it is.
impl From<crate::machine::IllegalTransition> for StoreError {
    fn from(refused: crate::machine::IllegalTransition) -> Self {
        Self::Invalid { detail: refused.to_string() }
    }
}

impl StoreError {
    /// The stable code; `docs/errors/CODE.md` explains it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Fenced { .. } => "HM1001",
            Self::Conflict { .. } => "HM1002",
            Self::NotFound { .. } => "HM1003",
            Self::InUse => "HM1004",
            Self::Busy { .. } => "HM1005",
            Self::Retryable { .. } => "HM1006",
            Self::CommitUnknown => "HM1007",
            Self::Corrupt { .. } => "HM1008",
            Self::Full => "HM1009",
            Self::ReadOnly { .. } => "HM1010",
            Self::Replaced => "HM1011",
            Self::TooNew { .. } => "HM1012",
            Self::SqliteTooOld { .. } => "HM1013",
            Self::Limit { .. } => "HM1014",
            Self::Invalid { .. } => "HM1015",
            Self::Io { .. } => "HM1016",
            Self::Stale { .. } => "HM1017",
            Self::LockLost => "HM1018",
            Self::Unavailable { .. } => "HM1019",
            Self::PostgresTooOld { .. } => "HM1020",
            Self::SearchIndex { .. } => "HM1021",
            Self::Retired => "HM1022",
        }
    }
}
