//! `session/retry`: the last input of a session is undone and handed in again, whole or not at all.
//!
//! The undo and the acceptance are two transactions under one lease; the undo has the mark of a retry in its id.
//!
//! | the process was killed | what is stored | what then happens |
//! |---|---|---|
//! | before the undo | nothing new | nothing |
//! | between the two | an undo with the mark, nothing behind it, no input that waits | whoever next opens or writes to the session takes the undo back ([`mend`]), and tells |
//! | behind the acceptance | an input that waits | it is run like any other |
//!
//! A retry that is at work holds the lease, so that it is never taken for one that was killed.

use hermes_core::InputImage;
use hermes_store::{
    ChangeId, ChangeKind, ChangeStatus, ConversationId, Fence, HistoryChange, IdSource, MessagePage, Store, StoreError,
    UuidIds, View,
};

use crate::compose::Parts;
use crate::protocol::RpcError;
use crate::service::store_error;
use crate::sessions::{edit, undo};

/// What the id of a retry's undo begins with.
const MARK: &str = "retry-";

/// What a person is told when a retry was taken back.
pub(crate) const MENDED: &str =
    "a retry of this session was cut off before its input was sent again; the input and its answer are back";

/// A last input that was undone, and not yet handed in again. Its lease goes with [`Undone::settle`]; when that never
/// comes, with its time.
pub(crate) struct Undone {
    fence: Fence,
    change: ChangeId,
    /// The input.
    pub(crate) text: String,
    /// Its pictures.
    pub(crate) images: Vec<InputImage>,
}

impl Undone {
    /// Undoes the last input of a session.
    ///
    /// # Errors
    /// When a turn of it is at work, or there is nothing to undo.
    pub(crate) async fn of(parts: &Parts, conversation: &ConversationId) -> Result<Self, RpcError> {
        let store = parts.store().await?;
        let store = store.as_ref();
        mend(parts, store, conversation).await;
        let ids: &dyn IdSource = &UuidIds;
        let change = ChangeId::parse(&format!("{MARK}{}", ids.change()))
            .map_err(|error| store_error(&StoreError::Invalid { detail: format!("the id of the undo: {error}") }))?;
        let fence = edit(parts, store, conversation).await?;
        match undo(store, &fence, conversation, 1, change.clone()).await {
            Ok((done, images)) => Ok(Self { fence, change, text: done.text, images }),
            Err(error) => {
                store.release(&fence).await.map_err(|error| store_error(&error))?;
                Err(store_error(&error))
            }
        }
    }

    /// Lets go of the session. An input that was not accepted again is back as it was.
    ///
    /// # Errors
    /// Why it was not accepted; those of the store.
    pub(crate) async fn settle<T>(self, store: &dyn Store, accepted: Result<T, RpcError>) -> Result<T, RpcError> {
        let back = match &accepted {
            Ok(_) => Ok(()),
            Err(_) => store.restore(&self.fence, &self.change).await.map(drop),
        };
        let released = store.release(&self.fence).await;
        back.and(released).map_err(|error| store_error(&error))?;
        accepted
    }
}

/// Takes back what a retry that was killed has undone. Returns whether there was one. What cannot be looked at now is looked
/// at the next time: the work itself does not wait for it.
pub(crate) async fn mend(parts: &Parts, store: &dyn Store, conversation: &ConversationId) -> bool {
    match try_mend(parts, store, conversation).await {
        Ok(mended) => mended,
        Err(error) => {
            tracing::warn!(code = error.code(), "what a retry has undone could not be looked at: {error}");
            false
        }
    }
}

async fn try_mend(parts: &Parts, store: &dyn Store, conversation: &ConversationId) -> Result<bool, StoreError> {
    if cut_off(store, conversation).await?.is_none() {
        return Ok(false);
    }
    // In use: a retry that is at work, or a turn, which writes behind the undo.
    let Ok(fence) = edit(parts, store, conversation).await else { return Ok(false) };
    let mended = match cut_off(store, conversation).await {
        Ok(Some(change)) => store.restore(&fence, &change).await.map(|_| true),
        Ok(None) => Ok(false),
        Err(error) => Err(error),
    };
    store.release(&fence).await?;
    mended
}

/// The undo of a retry, when it is the last thing that happened to a session and nothing waits in it.
async fn cut_off(store: &dyn Store, conversation: &ConversationId) -> Result<Option<ChangeId>, StoreError> {
    let Some(last) = store.changes(conversation).await?.pop().filter(is_undo_of_a_retry) else { return Ok(None) };
    let page = MessagePage { after_seq: last.last_seq, limit: 1, from_end: false };
    if !store.messages(conversation, View::Display, page).await?.is_empty() {
        return Ok(None);
    }
    let waits = store.conversation(conversation).await?.pending.is_some();
    Ok((!waits).then_some(last.id))
}

/// Whether a change is a retry's undo that holds.
pub(crate) fn is_undo_of_a_retry(change: &HistoryChange) -> bool {
    change.kind == ChangeKind::Rewind && change.status == ChangeStatus::Applied && change.id.as_str().starts_with(MARK)
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
