//! Care of a whole store: is it sound, a copy of it, its size.
//!
//! | what | while turns run | what it changes |
//! |---|---|---|
//! | [`MaintenanceStore::check`] | yes | nothing |
//! | [`MaintenanceStore::backup`] | yes: it is the store of one moment | nothing; writes a new file |
//! | [`MaintenanceStore::vacuum`] | refused, and while another process has the file open | the file's size |
//! | `sqlite::restore` | refused: nobody may have the store open | the whole file; the old one stays beside it |
//!
//! PostgreSQL has its own tools for all but the check.

use std::path::Path;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// How thorough a check is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckDepth {
    /// Everything but the order of the database's own indexes.
    #[default]
    Quick,
    /// Everything. Reads each page several times.
    Full,
}

/// Something that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What.
    pub what: String,
    /// How often.
    pub count: u64,
    /// One of them.
    pub example: Option<String>,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CheckReport {
    /// Conversations that were looked at.
    pub conversations: u64,
    /// Rows that were looked at.
    pub rows: u64,
    /// Calls that were looked at.
    pub calls: u64,
    /// Prompts whose bytes were hashed.
    pub prompts: u64,
    /// What is wrong; empty when the store is sound.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    pub(crate) fn add(&mut self, what: &str, count: u64, example: Option<String>) {
        if count > 0 {
            self.findings.push(Finding { what: what.to_owned(), count, example });
        }
    }
}

/// What a vacuum did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum VacuumOutcome {
    /// The file was written anew.
    Done {
        /// How much smaller it is, in bytes.
        freed_bytes: u64,
    },
    /// Too little of it is free.
    NotNeeded {
        /// How much, in percent.
        free_percent: u64,
    },
    /// The last one was not long ago.
    TooSoon {
        /// When the next one may be, in milliseconds since the Unix epoch.
        not_before_ms: i64,
    },
    /// A turn is at work.
    TurnRuns {
        /// In which conversation.
        conversation: String,
    },
    /// Another process has the file open; its writes would wait for all of the time.
    OpenElsewhere,
}

/// Care of a whole store.
#[async_trait]
pub trait MaintenanceStore: Send + Sync {
    /// Looks whether the file and what stands in it are as they must be: each call with its one result, places, counts,
    /// tips, parents, copies, and the hashes of prompts.
    ///
    /// # Errors
    /// Those of the database; what is wrong with the content is in the report.
    async fn check(&self, depth: CheckDepth) -> Result<CheckReport, StoreError>;

    /// Writes the store of this moment to a new file that only its user can read, and waits until it is on the disk.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] when the file is there already, and for stores that are no file; those of the file system.
    async fn backup(&self, to: &Path) -> Result<(), StoreError>;

    /// Makes the file smaller when more than [`crate::limits::VACUUM_FREE_PERCENT`] of it are free and the last time is
    /// [`crate::limits::VACUUM_EVERY_MS`] ago, and no other process has it open. With `force` only a running turn is a
    /// reason not to.
    ///
    /// # Errors
    /// [`StoreError::Busy`]; [`StoreError::Invalid`] for stores that are no file.
    async fn vacuum(&self, force: bool) -> Result<VacuumOutcome, StoreError>;

    /// Ends what the store runs for itself and closes its connections, after what is under way. A store that is dropped
    /// instead loses nothing.
    async fn close(&self);
}
