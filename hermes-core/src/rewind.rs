//! Undo, redo and retry: what a person takes back of the end of a conversation.
//!
//! Nothing is lost by them: what is undone is neither shown nor sent any more, and comes back by a redo as long as nothing
//! was written behind it. A retry undoes the last input and hands it in again in one transaction, so that no crash leaves
//! one of the two.

use hermes_store::{
    ChangeId, ChangeKind, ChangeStatus, ConversationId, Fence, HistoryChange, IdSource, Intent, MessageId,
    NewAdmission, OwnerId, Receipt, Rewind, Store, StoreError, StoredMessage, ViewMark, nth_last_user_turn,
};

use crate::engine::{Engine, EngineError};
use crate::image::InputImage;
use crate::input::Input;
use crate::persist::persist;
use crate::seams::Clock;
use crate::stop::StopSignal;
use crate::turn::compress::model_rows;

/// What the id of a retry's undo begins with: its first answer does not come back once its input runs again.
const RETRY_MARK: &str = "retry-";

/// What was undone.
#[derive(Debug, Clone, PartialEq)]
pub struct Undone {
    /// The change of the history.
    pub change: HistoryChange,
    /// The first row that was undone: that of the input.
    pub from: MessageId,
    /// The text of the input.
    pub text: String,
    /// Its pictures.
    pub images: Vec<InputImage>,
}

/// The end of a conversation in the hands of whoever holds its lease, with no turn open.
pub struct Rewinder<'a> {
    /// Where it is stored.
    pub store: &'a dyn Store,
    /// Time, for writes that are repeated.
    pub clock: &'a dyn Clock,
    /// New ids.
    pub ids: &'a dyn IdSource,
    /// The lease.
    pub fence: &'a Fence,
}

impl Rewinder<'_> {
    /// Undoes the last `turns` inputs with all that came of them.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] when there are not as many, and those of [`hermes_store::HistoryStore::rewind`]; nothing was
    /// undone then.
    pub async fn undo(&self, turns: usize) -> Result<Undone, StoreError> {
        let (rewind, row) = self.plan(turns, self.ids.change()).await?;
        let change = persist(self.clock, || self.store.rewind(self.fence, rewind.clone())).await?;
        Ok(undone(change, &row))
    }

    /// Takes the last undo back.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] when there is none, or when it is that of a retry whose input runs or waits;
    /// [`StoreError::Stale`] when something was written since; those of the database.
    pub async fn redo(&self) -> Result<HistoryChange, StoreError> {
        let conversation = self.fence.conversation();
        let changes = self.store.changes(conversation).await?;
        let last = changes.iter().rev().find(|change| change.status == ChangeStatus::Applied);
        let last = last
            .filter(|change| change.kind == ChangeKind::Rewind)
            .ok_or_else(|| invalid("there is no undo that could be taken back"))?;
        let is_retry = last.id.as_str().starts_with(RETRY_MARK);
        if is_retry && self.store.conversation(conversation).await?.pending.is_some() {
            return Err(sent_again());
        }
        match persist(self.clock, || self.store.restore(self.fence, &last.id)).await {
            Err(StoreError::Stale { .. }) if is_retry => Err(sent_again()),
            done => done,
        }
    }

    /// Undoes the last input and hands it in again, both or neither. It waits in the queue then, like any input.
    ///
    /// # Errors
    /// As [`Rewinder::undo`] and [`hermes_store::AdmissionStore::admit`]; nothing was undone then.
    pub async fn retry(&self, principal: &str, owner: &OwnerId) -> Result<(Undone, Receipt), StoreError> {
        let id = format!("{RETRY_MARK}{}", self.ids.change());
        let id = ChangeId::parse(&id).map_err(|error| invalid(&format!("the id of the undo: {error}")))?;
        let (rewind, row) = self.plan(1, id).await?;
        let again = NewAdmission {
            id: self.ids.admission(),
            conversation: self.fence.conversation().clone(),
            principal: principal.to_owned(),
            request_id: rewind.id.as_str().to_owned(),
            intent: Intent::Queue,
            payload: Input::text(row.content.clone()).with_images(InputImage::of_row(&row)).to_payload(),
            submitted_by: owner.clone(),
        };
        let retry = || self.store.retry(self.fence, rewind.clone(), again.clone());
        let (change, receipt) = persist(self.clock, retry).await?;
        Ok((undone(change, &row), receipt))
    }

    /// An undo of the view as it is now, and the row that it begins with.
    async fn plan(&self, turns: usize, id: ChangeId) -> Result<(Rewind, StoredMessage), StoreError> {
        let conversation = self.fence.conversation();
        let nothing = || invalid("there is nothing that could be undone");
        let tip = self.store.conversation(conversation).await?.tip.ok_or_else(nothing)?;
        let rows = model_rows(self.store, conversation).await?;
        let from = nth_last_user_turn(&rows, turns.max(1)).ok_or_else(|| match turns {
            0 | 1 => nothing(),
            _ => invalid(&format!("there are fewer than {turns} inputs that could be undone")),
        })?;
        Ok((Rewind { id, mark: ViewMark::of(tip, &rows), from: from.id.clone() }, from.clone()))
    }
}

fn undone(change: HistoryChange, row: &StoredMessage) -> Undone {
    Undone { change, from: row.id.clone(), text: row.content.clone(), images: InputImage::of_row(row) }
}

fn invalid(detail: &str) -> StoreError {
    StoreError::Invalid { detail: detail.to_owned() }
}

fn sent_again() -> StoreError {
    invalid(
        "the last undo was that of a retry, whose input was sent again: the first answer cannot be brought back behind \
         the new one. Undo the new one, or take it back while it waits",
    )
}

impl Engine {
    /// Undoes the last `turns` inputs of a conversation with all that came of them: no request contains them any more, and
    /// people do not see them. What tools did stays done.
    ///
    /// # Errors
    /// [`EngineError::Busy`] while a turn runs or another process works on the conversation, and when a crash left a turn
    /// open; those of [`Rewinder::undo`]. Nothing was undone then, unless the store could not tell.
    pub async fn undo(&self, conversation: &ConversationId, turns: usize) -> Result<Undone, EngineError> {
        self.rewound(conversation, async |rewinder| rewinder.undo(turns).await).await
    }

    /// Takes the last undo of a conversation back, when nothing was written since.
    ///
    /// # Errors
    /// [`EngineError::Busy`] as in [`Engine::undo`]; those of [`Rewinder::redo`].
    pub async fn redo(&self, conversation: &ConversationId) -> Result<HistoryChange, EngineError> {
        self.rewound(conversation, async |rewinder| rewinder.redo().await).await
    }

    /// Undoes the last input of a conversation and hands it in again for `principal`, both or neither. It is to be run
    /// then like any input ([`Engine::run_until`]).
    ///
    /// # Errors
    /// [`EngineError::Busy`] as in [`Engine::undo`]; those of [`Rewinder::retry`].
    pub async fn retry(
        &self,
        conversation: &ConversationId,
        principal: &str,
    ) -> Result<(Undone, Receipt), EngineError> {
        let owner = self.inner().owner_id();
        self.rewound(conversation, async |rewinder| rewinder.retry(principal, owner).await).await
    }

    async fn rewound<T>(
        &self,
        conversation: &ConversationId,
        work: impl AsyncFnOnce(Rewinder<'_>) -> Result<T, StoreError>,
    ) -> Result<T, EngineError> {
        let inner = self.inner();
        self.while_beating(async {
            let (working, fence) =
                inner.own_for_edit(conversation, &inner.ids().turn(), &StopSignal::default()).await?;
            let (store, clock) = (inner.store.as_ref(), inner.clock.as_ref());
            let done = work(Rewinder { store, clock, ids: inner.ids(), fence: &fence }).await;
            // What was done is told whatever becomes of the lease, which ends by itself.
            if let Err(error) = store.release(&fence).await {
                tracing::warn!(code = error.code(), "the lease of an undo was not given back: {error}");
            }
            drop(working);
            Ok(done?)
        })
        .await
    }
}
