//! Delegations: a turn of one conversation (the parent) gives a task to another conversation (the child), and goes on.
//!
//! | fact | type | who may write it |
//! |---|---|---|
//! | a task was given away | [`DelegationRecord`] | a turn of the parent, under its [`Fence`], together with the child's first input |
//! | what became of it | [`DelegationEnd`] | the holder of the child's [`Fence`]; a cancel also the holder of the parent's; an operator for an unknown one |
//! | nobody knows what became of it | [`DelegationState::Unknown`] | the sweep, when nobody is at work on it; the holder of the child's [`Fence`] |
//! | who carries the result to the parent | [`ResultClaim`] | the store, to one at a time |
//! | the parent has it | [`ResultDelivery::Delivered`] | the holder of the claim, together with an input of the parent; or a turn of the parent that takes it itself |
//!
//! The end of a delegation is stored once: every write of it is conditional on the state. The delivery is a second
//! machine beside the first: a delegation that was delivered as unknown and ends later keeps its one result and is not
//! delivered again (S43).
//!
//! # What is left after a crash
//!
//! | last thing that was committed | what is stored | what the next owner finds, and may do |
//! |---|---|---|
//! | nothing | nothing | the turn dispatches with the same id; one child input is made |
//! | [`DelegationStore::dispatch`] | a running delegation, a queued input of the child | any gateway may claim the child; the delegation stays running while its input is queued |
//! | the child's turn began | the same, the child's journal | who recovers the child adopts the delegation; when nobody does, the sweep makes it unknown |
//! | the child's turn ended ([`crate::LeaseStore::settle_turn`]) | the same, the child's answer | the owner stores the end; when it is gone, the sweep takes it from the journal |
//! | [`DelegationStore::finish_delegation`] | the result, delivery pending | [`DelegationStore::due_results`] finds it |
//! | [`DelegationStore::claim_result`] | delivery claimed | the claim ends by its time; the next one counts one attempt more |
//! | [`DelegationStore::deliver_result`] | an input of the parent, delivery delivered | nothing to do; a repetition gets the same receipt |
//! | [`DelegationStore::collect_result`] | delivery delivered, with the turn | the same turn takes it again and gets the same result |
//!
//! Whoever waits for a delegation waits for a change of the child ([`crate::LeaseStore::wait_for_change`]): its end counts
//! one there. The parent changes when the result is delivered.
//!
//! Nothing that was not delivered is ever pruned, unless it was given up ([`ResultDelivery::Dropped`]) and is as old as
//! [`crate::limits::DELEGATION_KEEP_MS`]: until then it can be read and taken by a turn.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::admission::{AdmissionOutcome, AdmitOutcome, NewAdmission, Receipt};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{AdmissionId, ConversationId, DelegationId, OwnerId, TurnId};
use crate::limits::{
    DELEGATION_RESULT_MAX_BYTES, DELEGATION_TASK_MAX_BYTES, DELEGATION_UNKNOWN_GRACE_MS, DELEGATIONS_PENDING_MAX,
    RESULT_AGE_MAX_MS, RESULT_ATTEMPTS_MAX,
};
use crate::machine::machine;
use crate::round::words;
use crate::rules::{self, conflict, invalid, ms, not_found};
use crate::session::NewConversation;
use crate::turn::{TurnRecord, TurnStatus};

/// Where a delegation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DelegationState {
    /// The child has the task.
    Running,
    /// The child did it.
    Completed,
    /// The child did not.
    Failed,
    /// It was stopped.
    Cancelled,
    /// Nobody is at work on it, and nobody knows how far it came. It may still end in one of the other ways.
    Unknown,
}

impl DelegationState {
    /// Whether the end is known: it never changes again.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// What can happen to a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DelegationEvent {
    /// The child did it.
    Complete,
    /// The child did not.
    Fail,
    /// It is stopped.
    Cancel,
    /// Nobody is at work on it.
    Lose,
    /// Whoever recovered the child goes on with it.
    Adopt,
}

machine!(
    DELEGATION_MACHINE, "a delegation",
    DelegationState {
        Running => "running", Completed => "completed", Failed => "failed", Cancelled => "cancelled",
        Unknown => "unknown",
    },
    DelegationEvent {
        Complete => "complete", Fail => "fail", Cancel => "cancel", Lose => "lose", Adopt => "adopt",
    },
    [
        (Running, Complete, Completed), (Running, Fail, Failed), (Running, Cancel, Cancelled), (Running, Lose, Unknown),
        (Running, Adopt, Running), (Unknown, Complete, Completed), (Unknown, Fail, Failed),
        (Unknown, Cancel, Cancelled), (Unknown, Adopt, Running),
    ],
);

/// How far the way of a result to the parent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultDelivery {
    /// It waits for its end, or for somebody who carries it.
    Pending,
    /// Somebody carries it.
    Claimed,
    /// The parent has it.
    Delivered,
    /// It was given up; a turn of the parent may still take it.
    Dropped,
}

/// What can happen to a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResultDeliveryEvent {
    /// Somebody takes it on, or takes it over when the time of the claim before is over.
    Claim,
    /// It became an input of the parent.
    Deliver,
    /// The claim is given back, or the state of the delegation changed under it.
    Release,
    /// It was tried too often, or is too old.
    Drop,
    /// A turn of the parent takes it itself.
    Collect,
}

machine!(
    RESULT_DELIVERY_MACHINE, "the delivery of a result",
    ResultDelivery { Pending => "pending", Claimed => "claimed", Delivered => "delivered", Dropped => "dropped" },
    ResultDeliveryEvent {
        Claim => "claim", Deliver => "deliver", Release => "release", Drop => "drop", Collect => "collect",
    },
    [
        (Pending, Claim, Claimed), (Pending, Drop, Dropped), (Pending, Collect, Delivered), (Claimed, Claim, Claimed),
        (Claimed, Deliver, Delivered), (Claimed, Release, Pending), (Claimed, Drop, Dropped),
        (Claimed, Collect, Delivered), (Dropped, Collect, Delivered),
    ],
);

/// A task to be given to a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDelegation {
    /// Its id, minted by the caller: the same one again gives the same record.
    pub id: DelegationId,
    /// The child, created unless it exists. Not the parent.
    pub child: NewConversation,
    /// The child's input.
    pub input: NewAdmission,
    /// The task in few words, for people; at most [`crate::limits::DELEGATION_TASK_MAX_BYTES`].
    pub task: String,
}

/// How a delegation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DelegationOutcome {
    /// The child did it.
    Completed,
    /// The child did not.
    Failed,
    /// It was stopped.
    Cancelled,
}

words!(DelegationOutcome { Completed => "completed", Failed => "failed", Cancelled => "cancelled" });

impl DelegationOutcome {
    /// What it means for the state.
    #[must_use]
    pub fn event(self) -> DelegationEvent {
        match self {
            Self::Completed => DelegationEvent::Complete,
            Self::Failed => DelegationEvent::Fail,
            Self::Cancelled => DelegationEvent::Cancel,
        }
    }
}

/// The end of a delegation, with what the parent is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationEnd {
    /// How it ended.
    pub outcome: DelegationOutcome,
    /// What the parent is told; at most [`crate::limits::DELEGATION_RESULT_MAX_BYTES`].
    pub result: String,
}

/// A delegation as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationRecord {
    /// Its id; also the request id of the input that delivers it.
    pub id: DelegationId,
    /// The conversation that gave the task.
    pub parent: ConversationId,
    /// The turn that gave it.
    pub turn: TurnId,
    /// The conversation that has it.
    pub child: ConversationId,
    /// The child's input.
    pub input: AdmissionId,
    /// The task in few words.
    pub task: String,
    /// Who is at work on it: the owner of the dispatching turn, then who adopted it.
    pub owner: OwnerId,
    /// Where it stands.
    pub state: DelegationState,
    /// What the parent is told, when it is over.
    pub result: Option<String>,
    /// How far the delivery is.
    pub delivery: ResultDelivery,
    /// How often a delivery was begun.
    pub attempts: i64,
    /// The parent's input that delivered it.
    pub delivered_as: Option<AdmissionId>,
    /// The parent's turn that took it.
    pub collected_by: Option<TurnId>,
    /// When it was dispatched, in milliseconds since the Unix epoch.
    pub dispatched_at_ms: i64,
    /// When its state last changed.
    pub written_at_ms: i64,
    /// When it ended.
    pub ended_at_ms: Option<i64>,
    /// When it was delivered or taken.
    pub delivered_at_ms: Option<i64>,
}

/// The right to carry one result to its parent. Only a store makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultClaim {
    record: DelegationRecord,
}

impl ResultClaim {
    pub(crate) fn new(record: DelegationRecord) -> Self {
        Self { record }
    }

    /// The delegation as it was when the claim was given. When its state changes, the claim is over.
    #[must_use]
    pub fn record(&self) -> &DelegationRecord {
        &self.record
    }
}

/// Delegations and the way of their results.
#[async_trait]
pub trait DelegationStore: Send + Sync {
    /// Gives a task away: the child, its input and the delegation, in one transaction, by the running turn of the
    /// parent. Forgets old delegations of the parent that are over and were delivered, all but
    /// [`crate::limits::DELEGATIONS_KEPT`].
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Conflict`] for a known id with other content;
    /// [`StoreError::Invalid`] when the child is the parent; [`StoreError::Limit`] when
    /// [`crate::limits::DELEGATIONS_PENDING_MAX`] of the parent are not over or not delivered, when the child's
    /// queue is full, or a text is too long.
    async fn dispatch(&self, fence: &Fence, turn: &TurnId, new: NewDelegation) -> Result<DelegationRecord, StoreError>;

    /// Stores the end of a delegation, once. The child's fence may store any end, the parent's only a cancel, which
    /// takes the child's input back when it is still queued. A claim on the delivery is over. The same end again gives
    /// the same record.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::NotFound`]; [`StoreError::Conflict`] when another end is stored;
    /// [`StoreError::Invalid`] for the fence of another conversation; [`StoreError::Limit`].
    async fn finish_delegation(
        &self,
        fence: &Fence,
        id: &DelegationId,
        end: DelegationEnd,
    ) -> Result<DelegationRecord, StoreError>;

    /// Makes the holder of the child's fence the one who is at work on the delegation, after a recovery of the child.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::NotFound`]; [`StoreError::Invalid`] when it is over, or for the fence of
    /// another conversation.
    async fn adopt_delegation(&self, fence: &Fence, id: &DelegationId) -> Result<DelegationRecord, StoreError>;

    /// Says that nobody knows what became of a running delegation: the child's turn was lost. An unknown one stays so.
    ///
    /// # Errors
    /// As [`DelegationStore::adopt_delegation`].
    async fn lose_delegation(&self, fence: &Fence, id: &DelegationId) -> Result<DelegationRecord, StoreError>;

    /// Decides an unknown delegation, by an operator. The same end again gives the same record.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Invalid`] when it is running; [`StoreError::Conflict`] when another end
    /// is stored; [`StoreError::Limit`].
    async fn resolve_delegation(&self, id: &DelegationId, end: DelegationEnd) -> Result<DelegationRecord, StoreError>;

    /// Looks after delegations whose owner is gone (as in [`crate::WorkStore::sweep_workers`]) while no live owner holds
    /// the child and the child's input is not queued: what the child's journal shows as over ends as it did there, with
    /// the answer of its turn as the result; the rest becomes unknown. One that is unknown already ends so too, when its
    /// input is over.
    ///
    /// Gives up deliveries that were tried [`crate::limits::RESULT_ATTEMPTS_MAX`] times, or once and are older than
    /// [`crate::limits::RESULT_AGE_MAX_MS`]; forgets delegations that ended [`crate::limits::DELEGATION_KEEP_MS`] ago
    /// and were delivered or given up. To be called every [`crate::limits::WORK_SWEEP_MS`]. Returns those that became
    /// unknown, by id.
    ///
    /// # Errors
    /// Only those of the database.
    async fn sweep_delegations(&self) -> Result<Vec<DelegationId>, StoreError>;

    /// Results that wait for somebody who carries them, the oldest first: ended ones, and those that have been unknown
    /// for [`crate::limits::DELEGATION_UNKNOWN_GRACE_MS`]; nobody has a claim on them. At most `limit`, up to
    /// [`crate::limits::SWEEP_MAX_ROWS`].
    ///
    /// # Errors
    /// Only those of the database.
    async fn due_results(&self, limit: usize) -> Result<Vec<DelegationRecord>, StoreError>;

    /// Takes a due delivery on for `lease_ms` ([`crate::limits::RESULT_LEASE_MS`]) and counts the attempt; `None`
    /// when it is not due any more.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn claim_result(
        &self,
        id: &DelegationId,
        owner: &OwnerId,
        lease_ms: u64,
    ) -> Result<Option<ResultClaim>, StoreError>;

    /// Makes the result an input of the parent, in the same transaction that marks it as delivered: exactly once. The
    /// input names the parent, and the delegation's id as its request id. Repeated with the same claim and input it
    /// gives the same receipt. A claim whose time is over holds as long as nobody took it.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] when the claim does not hold any more or the input names something else;
    /// [`StoreError::NotFound`]; as [`crate::AdmissionStore::admit`]. None of them writes.
    async fn deliver_result(&self, claim: &ResultClaim, input: NewAdmission) -> Result<AdmitOutcome, StoreError>;

    /// Gives a claim back: the result can be taken on by another at once, or is given up after its
    /// [`crate::limits::RESULT_ATTEMPTS_MAX`]th attempt. A claim that is over already is no error.
    ///
    /// # Errors
    /// Only those of the database.
    async fn release_result(&self, claim: &ResultClaim) -> Result<(), StoreError>;

    /// Gives the result to the running turn of the parent, which waited for it: it needs no delivery any more. The same
    /// turn gets it again.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::NotFound`] also for a delegation of another parent;
    /// [`StoreError::InUse`] while somebody carries it; [`StoreError::Invalid`] when it is running, or was delivered
    /// or taken by another turn.
    async fn collect_result(
        &self,
        fence: &Fence,
        turn: &TurnId,
        id: &DelegationId,
    ) -> Result<DelegationRecord, StoreError>;

    /// A delegation.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn delegation(&self, id: &DelegationId) -> Result<DelegationRecord, StoreError>;

    /// Delegations that a conversation gave or has, the newest first; at most `limit`, up to
    /// [`crate::limits::PAGE_MAX_ROWS`].
    ///
    /// # Errors
    /// Only those of the database.
    async fn delegations(
        &self,
        conversation: &ConversationId,
        limit: usize,
    ) -> Result<Vec<DelegationRecord>, StoreError>;
}

/// A delegation with what only the store needs, and what may happen to it: shared by every store.
#[derive(Debug, Clone)]
pub(crate) struct DelegationRow {
    pub(crate) record: DelegationRecord,
    /// When the claim on the delivery ends; 0 when there is none.
    pub(crate) claim_expires_ms: i64,
    /// Who has, or had, the claim.
    pub(crate) claim_owner: Option<OwnerId>,
}

impl DelegationRow {
    pub(crate) fn new(fence: &Fence, turn: &TurnId, new: &NewDelegation, input: AdmissionId, now: i64) -> Self {
        let record = DelegationRecord {
            id: new.id.clone(),
            parent: fence.conversation().clone(),
            turn: turn.clone(),
            child: new.child.id.clone(),
            input,
            task: new.task.clone(),
            owner: fence.owner().clone(),
            state: DelegationState::Running,
            result: None,
            delivery: ResultDelivery::Pending,
            attempts: 0,
            delivered_as: None,
            collected_by: None,
            dispatched_at_ms: now,
            written_at_ms: now,
            ended_at_ms: None,
            delivered_at_ms: None,
        };
        Self { record, claim_expires_ms: 0, claim_owner: None }
    }

    /// The answer to a dispatch under a known id.
    pub(crate) fn again(&self, fence: &Fence, turn: &TurnId, new: &NewDelegation) -> Result<(), StoreError> {
        let known = &self.record;
        let same = known.parent == *fence.conversation()
            && known.turn == *turn
            && known.child == new.child.id
            && known.input == new.input.id
            && known.task == new.task;
        match same {
            true => Ok(()),
            false => Err(conflict("delegation", &new.id)),
        }
    }

    fn foreign(&self) -> StoreError {
        invalid(format!("the lease is not on the conversation that has delegation {}", self.record.id))
    }

    fn check_child(&self, fence: &Fence) -> Result<(), StoreError> {
        match self.record.child == *fence.conversation() {
            true => Ok(()),
            false => Err(self.foreign()),
        }
    }

    /// Whether this fence may store this end.
    pub(crate) fn check_end(&self, fence: &Fence, end: &DelegationEnd) -> Result<(), StoreError> {
        match self.is_cancel_of_parent(fence, end) {
            true => Ok(()),
            false => self.check_child(fence),
        }
    }

    /// Whether the parent stops it: the child's input is taken back too.
    pub(crate) fn is_cancel_of_parent(&self, fence: &Fence, end: &DelegationEnd) -> bool {
        self.record.parent == *fence.conversation() && end.outcome == DelegationOutcome::Cancelled
    }

    fn set(&mut self, state: DelegationState, now: i64) -> Result<(), StoreError> {
        self.record.state = state;
        self.record.written_at_ms = now;
        if self.record.delivery == ResultDelivery::Claimed {
            // Who carries it carries what is not true any more.
            self.record.delivery = self.record.delivery.next(ResultDeliveryEvent::Release)?;
            self.claim_expires_ms = 0;
        }
        Ok(())
    }

    /// Stores the end; false when it is stored already.
    pub(crate) fn finish(&mut self, end: &DelegationEnd, now: i64) -> Result<bool, StoreError> {
        let event = end.outcome.event();
        let Ok(state) = self.record.state.next(event) else {
            let same =
                self.record.state.as_str() == end.outcome.as_str() && self.record.result.as_ref() == Some(&end.result);
            return match same {
                true => Ok(false),
                false => Err(conflict("the end of delegation", &self.record.id)),
            };
        };
        self.set(state, now)?;
        self.record.result = Some(end.result.clone());
        self.record.ended_at_ms = Some(now);
        Ok(true)
    }

    /// As [`DelegationRow::finish`], for an operator.
    pub(crate) fn resolve(&mut self, end: &DelegationEnd, now: i64) -> Result<bool, StoreError> {
        if self.record.state == DelegationState::Running {
            return Err(invalid(format!(
                "delegation {} is running; only an unknown one can be decided",
                self.record.id
            )));
        }
        self.finish(end, now)
    }

    pub(crate) fn adopt(&mut self, fence: &Fence, now: i64) -> Result<(), StoreError> {
        self.check_child(fence)?;
        let state = self.record.state.next(DelegationEvent::Adopt)?;
        self.set(state, now)?;
        self.record.owner = fence.owner().clone();
        Ok(())
    }

    /// Makes it unknown by the child's fence; false when it is already.
    pub(crate) fn lose_by(&mut self, fence: &Fence, now: i64) -> Result<bool, StoreError> {
        self.check_child(fence)?;
        if self.record.state == DelegationState::Unknown {
            return Ok(false);
        }
        self.lose(now)?;
        Ok(true)
    }

    pub(crate) fn lose(&mut self, now: i64) -> Result<(), StoreError> {
        let state = self.record.state.next(DelegationEvent::Lose)?;
        self.set(state, now)
    }

    fn is_free(&self, now: i64) -> bool {
        match self.record.delivery {
            ResultDelivery::Pending => true,
            ResultDelivery::Claimed => self.claim_expires_ms <= now,
            ResultDelivery::Delivered | ResultDelivery::Dropped => false,
        }
    }

    /// Whether the delivery waits for somebody.
    pub(crate) fn is_due(&self, now: i64) -> bool {
        let is_ready = match self.record.state {
            DelegationState::Running => false,
            DelegationState::Unknown => {
                self.record.written_at_ms.saturating_add(ms(DELEGATION_UNKNOWN_GRACE_MS)) <= now
            }
            _ => true,
        };
        is_ready && self.is_free(now) && self.record.attempts < RESULT_ATTEMPTS_MAX
    }

    /// Takes the delivery on; false when it is not due.
    pub(crate) fn claim(&mut self, owner: &OwnerId, lease_ms: u64, now: i64) -> Result<bool, StoreError> {
        if !self.is_due(now) {
            return Ok(false);
        }
        self.record.delivery = self.record.delivery.next(ResultDeliveryEvent::Claim)?;
        self.record.attempts += 1;
        self.claim_expires_ms = now.saturating_add(ms(lease_ms));
        self.claim_owner = Some(owner.clone());
        Ok(true)
    }

    fn is_claimed_by(&self, claim: &ResultClaim) -> bool {
        self.record.delivery == ResultDelivery::Claimed && self.record.attempts == claim.record.attempts
    }

    /// Marks it as delivered by this input; false when it was so before.
    pub(crate) fn deliver(&mut self, claim: &ResultClaim, input: &AdmissionId, now: i64) -> Result<bool, StoreError> {
        if self.record.delivered_as.as_ref() == Some(input) {
            return Ok(false);
        }
        if !self.is_claimed_by(claim) {
            return Err(invalid(format!("the claim on delegation {} is over; look again what is due", self.record.id)));
        }
        self.record.delivery = self.record.delivery.next(ResultDeliveryEvent::Deliver)?;
        self.record.delivered_as = Some(input.clone());
        self.record.delivered_at_ms = Some(now);
        self.claim_expires_ms = 0;
        Ok(true)
    }

    /// Gives the claim back; false when it is over already.
    pub(crate) fn release(&mut self, claim: &ResultClaim) -> Result<bool, StoreError> {
        if !self.is_claimed_by(claim) {
            return Ok(false);
        }
        let event = match self.record.attempts >= RESULT_ATTEMPTS_MAX {
            true => ResultDeliveryEvent::Drop,
            false => ResultDeliveryEvent::Release,
        };
        self.record.delivery = self.record.delivery.next(event)?;
        self.claim_expires_ms = 0;
        Ok(true)
    }

    /// Whether the delivery is to be given up.
    pub(crate) fn is_hopeless(&self, now: i64) -> bool {
        let since = self.record.ended_at_ms.unwrap_or(self.record.written_at_ms);
        let is_old = since.saturating_add(ms(RESULT_AGE_MAX_MS)) <= now && self.record.attempts > 0;
        self.record.state != DelegationState::Running
            && self.is_free(now)
            && (self.record.attempts >= RESULT_ATTEMPTS_MAX || is_old)
    }

    /// Takes the result into a turn of the parent; false when that turn has it already.
    pub(crate) fn collect(&mut self, fence: &Fence, turn: &TurnId, now: i64) -> Result<bool, StoreError> {
        let record = &self.record;
        if record.parent != *fence.conversation() {
            return Err(not_found("delegation", &record.id));
        }
        if record.collected_by.as_ref() == Some(turn) {
            return Ok(false);
        }
        if record.state == DelegationState::Running {
            return Err(invalid(format!("delegation {} is running", record.id)));
        }
        if record.delivery == ResultDelivery::Claimed && !self.is_free(now) {
            return Err(StoreError::InUse);
        }
        self.record.delivery = self.record.delivery.next(ResultDeliveryEvent::Collect)?;
        self.record.collected_by = Some(turn.clone());
        self.record.delivered_at_ms = Some(now);
        self.claim_expires_ms = 0;
        Ok(true)
    }

    /// Whether nothing waits for it any more: it may be forgotten.
    pub(crate) fn is_done(&self) -> bool {
        self.record.state.is_over()
            && matches!(self.record.delivery, ResultDelivery::Delivered | ResultDelivery::Dropped)
    }
}

/// What the journal of the child says of the end of a delegation whose input is over; `None` when it cannot tell.
pub(crate) fn end_by_journal(input: &Receipt, turn: Option<&TurnRecord>) -> Option<DelegationEnd> {
    let said = |turn: &TurnRecord| turn.detail.clone().or_else(|| turn.reason.clone()).unwrap_or_default();
    let (outcome, result) = match (input.outcome?, turn) {
        (AdmissionOutcome::Cancelled, _) => {
            (DelegationOutcome::Cancelled, "The task was taken back before it began.".to_owned())
        }
        // A steer is over before the turn that took it is.
        (_, Some(turn)) if turn.status != TurnStatus::Ended => return None,
        (AdmissionOutcome::Completed, Some(turn)) => (DelegationOutcome::Completed, turn.answer.clone()?.content),
        (AdmissionOutcome::Failed, Some(turn)) => (DelegationOutcome::Failed, said(turn)),
        (AdmissionOutcome::Interrupted, Some(turn)) => (DelegationOutcome::Cancelled, said(turn)),
        (_, None) => return None,
    };
    (result.len() <= DELEGATION_RESULT_MAX_BYTES).then_some(DelegationEnd { outcome, result })
}

/// Checks a dispatch before anything is written.
pub(crate) fn check_new(fence: &Fence, new: &NewDelegation) -> Result<(), StoreError> {
    if new.child.id == *fence.conversation() {
        return Err(invalid("a conversation cannot delegate to itself"));
    }
    if new.input.conversation != new.child.id {
        return Err(invalid("the input belongs to another conversation than the child"));
    }
    rules::limit("the description of a task", new.task.len(), DELEGATION_TASK_MAX_BYTES)?;
    rules::check_admission(&new.input)
}

pub(crate) fn check_end(end: &DelegationEnd) -> Result<(), StoreError> {
    rules::limit("the result of a delegation", end.result.len(), DELEGATION_RESULT_MAX_BYTES)
}

/// Checks the input that delivers a result.
pub(crate) fn check_delivery(claim: &ResultClaim, input: &NewAdmission) -> Result<(), StoreError> {
    if input.conversation != claim.record.parent || input.request_id != claim.record.id.as_str() {
        return Err(invalid("the input that delivers a result names its parent, and its delegation as the request id"));
    }
    rules::check_admission(input)
}

/// The error of a conversation that has given as much away as it may.
pub(crate) fn too_many() -> StoreError {
    StoreError::Limit { what: "the delegations of a conversation", limit: DELEGATIONS_PENDING_MAX.unsigned_abs() }
}
