//! The seams. One method is one transaction named after a fact; there is no `begin` and no `commit` to forget.
//!
//! After a crash at any point of a method, all of it happened or none of it. A method that writes rows with ids minted
//! by the caller may be repeated: what is there already is recognised (I17).

use async_trait::async_trait;

use crate::admission::{AdmissionRecord, AdmitOutcome, NewAdmission, Receipt};
use crate::approval::ApprovalStore;
use crate::delegation::DelegationStore;
use crate::delivery::DeliveryStore;
use crate::error::StoreError;
use crate::fence::{ClaimOutcome, ClaimRequest, Fence};
use crate::history::{
    BranchOrigin, Compaction, CompressionLock, HistoryChange, LockOutcome, NewBranch, Rewind, Rotation, TakeLock,
};
use crate::ids::{AdmissionId, CallId, ChangeId, ConversationId, Generation, OwnerId, SessionId, TurnId};
use crate::inbound::InboundStore;
use crate::maintenance::MaintenanceStore;
use crate::message::{MessagePage, NewMessage, StoredMessage, UsageDelta, UsageTotals, View};
use crate::owner::OwnerInfo;
use crate::prompt::{PromptHash, PromptSnapshot};
use crate::retention::{PruneReport, PruneRules};
use crate::round::{CallResult, Planned, Recorded, Round, SettledCall};
use crate::search::SearchStore;
use crate::session::{
    ConversationFilter, ConversationFlags, ConversationSummary, FlagChange, NewConversation, NewSession, Resolved,
    ResolvedBy, SessionRecord, TitleSource,
};
use crate::transfer::TransferStore;
use crate::turn::{TurnEnd, TurnRecord};
use crate::work::WorkStore;

/// Inputs: accepted once, in order.
#[async_trait]
pub trait AdmissionStore: Send + Sync {
    /// Makes an input durable and gives it its place. The same (principal, conversation, request id) with the same
    /// content returns the first receipt.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] for the same request id with other content, [`StoreError::NotFound`] for an unknown
    /// conversation, [`StoreError::Retired`] when the owner that submits was retired meanwhile,
    /// [`StoreError::Limit`] for a full queue or a payload that is too large. None of them writes.
    async fn admit(&self, input: NewAdmission) -> Result<AdmitOutcome, StoreError>;

    /// Creates the conversation unless it exists, and makes its input durable, in one transaction.
    ///
    /// # Errors
    /// As [`AdmissionStore::admit`], but for the unknown conversation.
    async fn create_and_admit(
        &self,
        conversation: NewConversation,
        input: NewAdmission,
    ) -> Result<AdmitOutcome, StoreError>;

    /// Where an admission stands.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn admission(&self, id: &AdmissionId) -> Result<AdmissionRecord, StoreError>;

    /// What was accepted under the key of a request; `None` when nothing was.
    ///
    /// # Errors
    /// Only those of the database.
    async fn admission_of(
        &self,
        conversation: &ConversationId,
        principal: &str,
        request_id: &str,
    ) -> Result<Option<AdmissionRecord>, StoreError>;

    /// Takes a queued admission back. One that was begun is refused.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] when it was begun or is over, [`StoreError::NotFound`].
    async fn cancel(&self, id: &AdmissionId) -> Result<Receipt, StoreError>;

    /// Decides an `unknown` admission: closes its turn with `end` and lets the queue go on.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] when it is not unknown or the generation is not the exact one.
    async fn resolve_unknown(
        &self,
        id: &AdmissionId,
        generation: Generation,
        end: TurnEnd,
    ) -> Result<Receipt, StoreError>;
}

/// Ownership: leases, heartbeats, turns.
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// Registers an owner, or renews its heartbeat: to be called every [`crate::limits::HEARTBEAT_MS`] while it owns
    /// anything. One that is silent for [`crate::limits::HEARTBEAT_DEAD_MS`] loses its leases to whoever claims.
    ///
    /// # Errors
    /// Only those of the database.
    async fn heartbeat(&self, owner: &OwnerInfo) -> Result<(), StoreError>;

    /// Removes an owner that ends in order.
    ///
    /// # Errors
    /// Only those of the database.
    async fn retire(&self, owner: &OwnerId) -> Result<(), StoreError>;

    /// Takes the lease if it is free, expired, or its owner is provably dead or silent, and with it the head of the
    /// queue; or says why not. A new lease has a token one above every earlier one (I08).
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for an unknown conversation.
    async fn claim(&self, request: ClaimRequest) -> Result<ClaimOutcome, StoreError>;

    /// Lengthens the lease to `ttl_ms` from now. Works on a lease that has expired and that nobody took.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    async fn renew(&self, fence: &Fence, ttl_ms: u64) -> Result<(), StoreError>;

    /// Gives the lease back. A lease that was lost already is no error.
    ///
    /// # Errors
    /// Only those of the database.
    async fn release(&self, fence: &Fence) -> Result<(), StoreError>;

    /// Goes on with a turn that an earlier owner left open: its attempt counter grows by one.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Invalid`] when the turn is over.
    async fn adopt_turn(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError>;

    /// Puts the admission of an open turn back into its place: provably nothing of it happened. The turn ends.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Invalid`] when the turn is over or has recorded a round.
    async fn requeue(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError>;

    /// Ends a turn and its admission together. With `release` the lease is given back in the same transaction.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Invalid`] when the turn is over already with another reason, or a call of
    /// it has no stored result (I13).
    async fn settle_turn(&self, fence: &Fence, turn: &TurnId, end: TurnEnd, release: bool) -> Result<(), StoreError>;

    /// Says that the journal cannot tell what became of an open turn's admission.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Invalid`] when the turn is over.
    async fn lose_turn(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError>;

    /// A turn.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn turn(&self, id: &TurnId) -> Result<TurnRecord, StoreError>;

    /// Waits until the conversation changes after the revision `seen`, or `max_wait_ms` have passed; returns its
    /// revision now. With `seen` below the revision it returns at once.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn wait_for_change(
        &self,
        conversation: &ConversationId,
        seen: i64,
        max_wait_ms: u64,
    ) -> Result<i64, StoreError>;
}

/// The transcript: what happened.
#[async_trait]
pub trait TranscriptStore: Send + Sync {
    /// Opens the first session of a conversation (prompt bytes, session row, and the tip, in this order, one
    /// transaction) and appends its first rows. A later one is opened by [`HistoryStore::rotate`].
    ///
    /// # Errors
    /// [`StoreError::Fenced`], [`StoreError::Conflict`]; [`StoreError::Invalid`] when the conversation has a session.
    async fn open_session(
        &self,
        fence: &Fence,
        turn: &TurnId,
        session: NewSession,
        rows: Vec<NewMessage>,
    ) -> Result<(), StoreError>;

    /// Gives the tip session another model, prompt, tool list or directory, because one of them was changed on purpose.
    /// Its rows and its parent stay. `session.id` names the tip; `session.parent` is not looked at.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Conflict`] when `session.id` is not the tip.
    async fn change_session(&self, fence: &Fence, turn: &TurnId, session: NewSession) -> Result<(), StoreError>;

    /// Appends rows to the tip session, and counts the usage of the request that made them.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Conflict`] for a known id with other bytes.
    async fn append(
        &self,
        fence: &Fence,
        turn: &TurnId,
        rows: Vec<NewMessage>,
        usage: Option<UsageDelta>,
    ) -> Result<(), StoreError>;

    /// Makes an assistant message with its calls durable, before any of them may have an effect (I12). The places of
    /// the results are reserved in call order. Results of calls with a preset are stored in the same transaction.
    ///
    /// # Errors
    /// [`StoreError::Fenced`], [`StoreError::Conflict`].
    async fn record_round(&self, fence: &Fence, round: Round<Planned>) -> Result<Round<Recorded>, StoreError>;

    /// Writes down that these calls are about to have an effect.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Invalid`] for a call that is settled.
    async fn start_calls(&self, fence: &Fence, turn: &TurnId, calls: &[CallId]) -> Result<(), StoreError>;

    /// Stores the result of a call, once.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Conflict`] when another result is stored.
    async fn settle_call(
        &self,
        fence: &Fence,
        turn: &TurnId,
        call: &CallId,
        result: CallResult,
    ) -> Result<SettledCall, StoreError>;

    /// Appends queued steers and redirects of the conversation as user rows of the running turn and ends their
    /// admissions, in one transaction: each reaches the model exactly once. `rows` makes the rows of all that are taken,
    /// which are never none; it may put a row before them, as what a redirect cut off. Returns the admissions, oldest
    /// first.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    async fn take_steers(
        &self,
        fence: &Fence,
        turn: &TurnId,
        rows: &(dyn for<'a> Fn(&'a [AdmissionRecord]) -> Vec<NewMessage> + Send + Sync),
    ) -> Result<Vec<AdmissionRecord>, StoreError>;

    /// Counts the usage of a request whose answer was not stored.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    async fn count_usage(&self, fence: &Fence, usage: UsageDelta) -> Result<(), StoreError>;

    /// Rows of a conversation, oldest first.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn messages(
        &self,
        conversation: &ConversationId,
        view: View,
        page: MessagePage,
    ) -> Result<Vec<StoredMessage>, StoreError>;

    /// The bytes of a prompt.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Corrupt`] when the bytes do not have their hash.
    async fn prompt(&self, hash: &PromptHash) -> Result<PromptSnapshot, StoreError>;
}

/// Changes of history. [`crate::history`] says what each of them means.
#[async_trait]
pub trait HistoryStore: Send + Sync {
    /// Takes the lock on the compression of the tip session, or says who holds it, or until when a failure is waited
    /// out. The same holder again gets the same lock, with a new life. Ends with the lease.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Stale`] when the session is not the tip; [`StoreError::Limit`] for a holder
    /// that is too long.
    async fn take_compression_lock(&self, fence: &Fence, take: TakeLock) -> Result<LockOutcome, StoreError>;

    /// Lengthens a lock to `ttl_ms` from now. Works on one that has expired and that nobody took.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::LockLost`].
    async fn renew_compression_lock(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        ttl_ms: u64,
    ) -> Result<(), StoreError>;

    /// Gives a lock back. One that was lost already is no error.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    async fn release_compression_lock(&self, fence: &Fence, lock: &CompressionLock) -> Result<(), StoreError>;

    /// Writes down that a compression failed, so that none is tried for `cooldown_ms` (at most
    /// [`crate::limits::COMPRESSION_COOLDOWN_MAX_MS`]; a longer wait that is stored already stays), and gives the lock
    /// back. Returns when the next one may be tried, in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::LockLost`].
    async fn fail_compression(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        cooldown_ms: u64,
        error: &str,
    ) -> Result<i64, StoreError>;

    /// Closes the tip session with `compression`, opens its child with the rows of the change and those that arrived
    /// after its mark, and moves the tip. The parent's rows become `compacted` and keep their bytes; the title stays.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::LockLost`]; [`StoreError::Stale`] when the view is not the one of the mark;
    /// [`StoreError::Conflict`] for an id that is in use; [`StoreError::Invalid`] when the new view is not smaller or
    /// splits a call from its result, when a call is open, or while an input is unknown.
    async fn rotate(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        rotation: Rotation,
    ) -> Result<HistoryChange, StoreError>;

    /// The same in place: the session stays, its rows become `compacted`, the new ones stand behind them.
    ///
    /// # Errors
    /// As [`HistoryStore::rotate`].
    async fn compact(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        compaction: Compaction,
    ) -> Result<HistoryChange, StoreError>;

    /// Undoes the end of the view. Its rows become `superseded`: neither a model nor a person sees them.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Stale`] when the view is not exactly the one of the mark;
    /// [`StoreError::Conflict`] for an id that is in use; [`StoreError::Invalid`] while a turn is open or an input is
    /// unknown, for a row that is not in the view or is a result, and beyond a summary.
    async fn rewind(&self, fence: &Fence, rewind: Rewind) -> Result<HistoryChange, StoreError>;

    /// Undoes the end of the view and accepts an input in its place, in one transaction: whoever looks sees both or
    /// neither. Repeating it changes nothing.
    ///
    /// # Errors
    /// As [`HistoryStore::rewind`] and [`AdmissionStore::admit`]; nothing was undone and nothing accepted then.
    async fn retry(
        &self,
        fence: &Fence,
        rewind: Rewind,
        again: NewAdmission,
    ) -> Result<(HistoryChange, Receipt), StoreError>;

    /// Takes a rewind back: exactly its rows are as they were. Taking it back twice is taking it back once.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::NotFound`]; [`StoreError::Stale`] when something was written since, or a
    /// later change holds; [`StoreError::Invalid`] for a compression, and while a turn is open.
    async fn restore(&self, fence: &Fence, change: &ChangeId) -> Result<HistoryChange, StoreError>;

    /// Creates a conversation that begins with the rows of another one, with the same prompt and tools. The other one
    /// is only read. Repeating it changes nothing.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for the other conversation or its row; [`StoreError::Conflict`] when the new id is in
    /// use; [`StoreError::Limit`] for more than [`crate::limits::BRANCH_MAX_ROWS`] rows; [`StoreError::Invalid`] when
    /// there is no session yet, a call among the rows is open, or the last row splits a round.
    async fn branch(&self, branch: NewBranch) -> Result<BranchOrigin, StoreError>;

    /// Changes of a conversation, in their order.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn changes(&self, conversation: &ConversationId) -> Result<Vec<HistoryChange>, StoreError>;
}

/// Conversations and sessions.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Conversations, newest activity first.
    ///
    /// # Errors
    /// Only those of the database.
    async fn conversations(&self, filter: ConversationFilter) -> Result<Vec<ConversationSummary>, StoreError>;

    /// One conversation.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn conversation(&self, id: &ConversationId) -> Result<ConversationSummary, StoreError>;

    /// A session.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn session(&self, id: &SessionId) -> Result<SessionRecord, StoreError>;

    /// Gives a title, cleaned (control, zero-width and direction marks out, cut to
    /// [`crate::limits::TITLE_MAX_CHARS`]). A weaker source than the present one changes nothing. Returns the title
    /// that holds.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Invalid`] when nothing is left of it.
    async fn set_title(&self, fence: &Fence, title: &str, source: TitleSource) -> Result<String, StoreError>;

    /// Sets flags. Returns those that hold.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    async fn set_flags(&self, fence: &Fence, change: FlagChange) -> Result<ConversationFlags, StoreError>;

    /// Ends a conversation until its next input. The first reason stays.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Invalid`] while a turn is open; [`StoreError::Limit`] for a long reason.
    async fn end_conversation(&self, fence: &Fence, reason: &str) -> Result<(), StoreError>;

    /// Sessions of a conversation, from the first to the tip.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn lineage(&self, conversation: &ConversationId) -> Result<Vec<SessionRecord>, StoreError>;

    /// The conversation, with its tip, of an id: its own, that of any of its sessions however old, or another id that it
    /// is known by. The one resolver: whoever resumes, lists, searches or exports by an id asks here (S36).
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn tip(&self, id: &str) -> Result<ConversationSummary, StoreError>;

    /// Gives the conversation one more id that it is known by. Giving it again changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Conflict`] when another conversation has this id.
    async fn add_alias(&self, fence: &Fence, alias: &SessionId) -> Result<(), StoreError>;

    /// What a text stands for: an id in one of the ways of [`SessionStore::tip`], else the beginning of one, else a title.
    ///
    /// # Errors
    /// Only those of the database.
    async fn resolve(&self, text: &str, profile: Option<&str>) -> Result<Resolved, StoreError> {
        match self.tip(text).await {
            Ok(found) if profile.is_none_or(|profile| profile == found.profile) => {
                return Ok(Resolved::One { by: ResolvedBy::Id, found: Box::new(found) });
            }
            Ok(_) | Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let of_profile = || ConversationFilter {
            profile: profile.map(str::to_owned),
            limit: crate::limits::RESOLVE_MAX,
            ..ConversationFilter::default()
        };
        if ConversationId::parse(text).is_ok() {
            let filter = ConversationFilter { id_prefix: Some(text.to_owned()), ..of_profile() };
            let found = self.conversations(filter).await?;
            if !found.is_empty() {
                return Ok(resolved(ResolvedBy::Prefix, found));
            }
        }
        let filter = ConversationFilter { title: Some(text.to_owned()), ..of_profile() };
        Ok(resolved(ResolvedBy::Title, self.conversations(filter).await?))
    }

    /// Lets go of what the rules say, each conversation in a transaction of its own. [`crate::retention`] has the rules.
    ///
    /// # Errors
    /// Only those of the database. What was done before one stays done.
    async fn prune(&self, rules: PruneRules) -> Result<PruneReport, StoreError>;

    /// Deletes a conversation with all its rows. Its tokens and generations stay, so that neither is ever used again
    /// (I08).
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Invalid`] when an admission, a worker or a delegation of it is not over.
    async fn delete_conversation(&self, fence: &Fence) -> Result<(), StoreError>;

    /// Sums of what a conversation used, by model.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn usage(&self, conversation: &ConversationId) -> Result<Vec<UsageTotals>, StoreError>;

    /// The counter of a (source, key) route, grown by one: never handed out twice, never reset (I08).
    ///
    /// # Errors
    /// Only those of the database.
    async fn next_generation(&self, source: &str, key: &str) -> Result<Generation, StoreError>;

    /// Admissions of a conversation that are not over, in their order.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn queue(&self, conversation: &ConversationId) -> Result<Vec<AdmissionRecord>, StoreError>;
}

/// What the conversations that a name fits mean.
fn resolved(by: ResolvedBy, mut candidates: Vec<ConversationSummary>) -> Resolved {
    match candidates.len() {
        0 => Resolved::Nothing,
        1 => Resolved::One { by, found: Box::new(candidates.swap_remove(0)) },
        _ => Resolved::Many { by, candidates },
    }
}

/// A whole store.
pub trait Store:
    AdmissionStore
    + LeaseStore
    + TranscriptStore
    + HistoryStore
    + SessionStore
    + WorkStore
    + DelegationStore
    + InboundStore
    + DeliveryStore
    + ApprovalStore
    + TransferStore
    + SearchStore
    + MaintenanceStore
{
}

impl<T> Store for T where
    T: AdmissionStore
        + LeaseStore
        + TranscriptStore
        + HistoryStore
        + SessionStore
        + WorkStore
        + DelegationStore
        + InboundStore
        + DeliveryStore
        + ApprovalStore
        + TransferStore
        + SearchStore
        + MaintenanceStore
{
}
