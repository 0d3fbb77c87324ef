//! Carrying conversations out of a store and into one.
//!
//! [`bundle`] is what a conversation is as values; [`TransferStore`] reads and writes it page by page; `jsonl` is an export
//! as text and the way back; `python` reads the Python program's database as bundles (both with the feature `sqlite`).
//!
//! # What is left after a crash
//!
//! | last thing that was committed | what is stored | what a repetition does |
//! |---|---|---|
//! | nothing | nothing | begins |
//! | [`TransferStore::import`] of some conversations | those, whole | recognises them by their key, goes on with the next |
//!
//! No conversation is ever half there, and none that exists under another key is touched.

pub mod bundle;
mod intake;
#[cfg(feature = "sqlite")]
pub mod jsonl;
#[cfg(feature = "sqlite")]
pub mod python;

use async_trait::async_trait;

use crate::error::StoreError;
use crate::ids::ConversationId;
use bundle::{BundleSource, ExportCursor, ExportPage, ImportKey, ImportOutcome};
pub(crate) use intake::{Intake, Placed, PlacedRow, Totals};

/// Conversations as bundles.
#[async_trait]
pub trait TransferStore: Send + Sync {
    /// Writes a conversation, all of it or nothing. The same key again writes nothing and says whether the conversation
    /// has changed where it comes from. It gets places, tokens and generations that no conversation of its id has ever
    /// had here (I08). A call without a result gets one that says so; the tip session is open.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] and [`StoreError::Limit`] for a bundle that cannot be, those of `source`, and those of the
    /// database. None of them leaves anything.
    async fn import(&self, key: &ImportKey, source: &mut dyn BundleSource) -> Result<ImportOutcome, StoreError>;

    /// A piece of a conversation: from the beginning without a cursor, else from where the last piece ended. Rows that
    /// are written after the beginning are not part of it; what a compression or an undo does meanwhile to rows that
    /// were read already is not noticed.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn export(
        &self,
        conversation: &ConversationId,
        cursor: Option<ExportCursor>,
    ) -> Result<ExportPage, StoreError>;

    /// Conversations by their ids, behind `after`, up to `limit` (at most [`crate::limits::EXPORT_LIST_MAX`]).
    ///
    /// # Errors
    /// Only those of the database.
    async fn export_list(
        &self,
        after: Option<&ConversationId>,
        limit: usize,
    ) -> Result<Vec<ConversationId>, StoreError>;

    /// The conversation that a session or an old id belongs to.
    ///
    /// # Errors
    /// Only those of the database.
    async fn conversation_named(&self, name: &str) -> Result<Option<ConversationId>, StoreError>;
}
