//! What goes out to people: each answer that is owed, until it was delivered or given up.
//!
//! A delivery is one text for one chat. Nobody has to remember to make it: an input that is received with a
//! [`crate::Reply`] owes an answer, and the transaction that ends its turn, whoever ends it and after whatever crash, turns
//! the reply into a pending delivery. Its text is the answer of the turn, which is durable by then (I15), or a notice of
//! why there is none. A turn that wants to say more, or to split its answer, records deliveries of its own.
//!
//! | fact | type | who may write it |
//! |---|---|---|
//! | this text is owed to this chat | [`DeliveryRecord`] | the end of a turn; the holder of the [`Fence`] with [`DeliveryStore::record_deliveries`] |
//! | somebody is sending it | its state, its attempt | the store alone, on [`DeliveryStore::claim_delivery`] |
//! | it was sent, in part or in whole, or refused | the same | the holder of the [`DeliveryFence`] of the newest attempt |
//! | nobody knows whether it was sent | [`DeliveryState::Ambiguous`] | the store, when the sender is gone or its time is over |
//! | what to do about that | the same | the sender's policy; an operator with the exact attempt |
//!
//! Deliveries of one (account, chat) are sent in the order in which they were recorded, one at a time: one that waits for
//! its next attempt holds up those behind it, one that was given up or left ambiguous does not. Chats do not wait for
//! each other.
//!
//! # What is left after a crash
//!
//! | last thing that was committed | what is stored | what happens next |
//! |---|---|---|
//! | the answer's row | a reply that is owed, an open turn | whoever recovers the turn ends it; that makes the delivery |
//! | [`DeliveryStore::record_deliveries`] | pending deliveries | any sender claims them |
//! | the end of the turn | a pending delivery for each chat that is owed one | any sender claims it |
//! | [`DeliveryStore::claim_delivery`] | an attempt with an owner and a time | once the owner is gone, or the time is over: ambiguous, whether or not the platform got it |
//! | [`DeliveryStore::confirm_part`] | which parts the platform has | the next attempt begins behind them |
//! | [`DeliveryStore::confirm_delivery`] | delivered, with the platform's ids | nothing; kept for [`crate::limits::SEND_KEEP_MS`] |
//! | [`DeliveryStore::fail_delivery`] | not sent, and when to try again; or given up | the next attempt after that time, by whoever claims |
//!
//! At-least-once, and honest about it: an ambiguous delivery is sent again only by a sender that asks for it
//! ([`AmbiguousPolicy::Resend`]) or by an operator, and carries [`DeliveryRecord::may_be_duplicate`] from then on, so that
//! the text can say so.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{ConversationId, DeliveryId, OwnerId, Token, TurnId};
use crate::inbound::Reply;
use crate::limits::{
    ADDRESS_MAX_BYTES, CONTENT_MAX_BYTES, KEY_MAX_BYTES, SEND_ATTEMPTS_MAX, SEND_BACKOFF_MS, SEND_LEASE_MAX_MS,
    SEND_PARTS_MAX, SEND_RETRY_AFTER_MAX_MS, SEND_STALE_MS,
};
use crate::machine::machine;
use crate::round::words;
use crate::rules::{self, invalid, ms};
use crate::turn::TurnEnd;

/// A chat of an account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Target {
    /// The account of the transport that sends, with the transport's name (`telegram:BOT_ID`); at most
    /// [`crate::limits::ADDRESS_MAX_BYTES`].
    pub account: String,
    /// The chat; at most [`crate::limits::ADDRESS_MAX_BYTES`].
    pub chat: String,
    /// The thread in the chat, empty when there is none; at most [`crate::limits::ADDRESS_MAX_BYTES`].
    pub thread: String,
}

impl Target {
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.account.is_empty() {
            return Err(invalid("a target needs the account that sends"));
        }
        rules::limit("the name of an account", self.account.len(), ADDRESS_MAX_BYTES)?;
        rules::limit("the id of a chat", self.chat.len(), ADDRESS_MAX_BYTES)?;
        rules::limit("the id of a thread", self.thread.len(), ADDRESS_MAX_BYTES)
    }
}

/// What a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryKind {
    /// The answer of a turn.
    Answer,
    /// Why a turn has no answer: the detail of its end, or the word of its reason, for the sender to put into a sentence.
    Notice,
    /// Something that a turn says beside its answer.
    Message,
}

words!(DeliveryKind { Answer => "answer", Notice => "notice", Message => "message" });

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// Nobody has tried, or it is to be tried again at once.
    Pending,
    /// A sender is at it.
    Attempting,
    /// The platform has it.
    Delivered,
    /// The platform provably does not have it; it is tried again after a while.
    Failed,
    /// A sender began and nobody knows how it ended.
    Ambiguous,
    /// Given up; [`DeliveryRecord::error`] says why.
    Abandoned,
}

/// What can happen to a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryEvent {
    /// A sender takes it.
    Attempt,
    /// The platform has it; also from a sender that was given up and comes back with the truth.
    Confirm,
    /// The platform provably does not have it.
    Fail,
    /// The pause after a failure is over.
    Retry,
    /// The sender is gone, or its time is over.
    Lose,
    /// It is sent again though it may have arrived.
    Resend,
    /// It is given up.
    Abandon,
}

machine!(
    DELIVERY_MACHINE, "a delivery",
    DeliveryState {
        Pending => "pending", Attempting => "attempting", Delivered => "delivered", Failed => "failed",
        Ambiguous => "ambiguous", Abandoned => "abandoned",
    },
    DeliveryEvent {
        Attempt => "attempt", Confirm => "confirm", Fail => "fail", Retry => "retry", Lose => "lose", Resend => "resend",
        Abandon => "abandon",
    },
    [
        (Pending, Attempt, Attempting), (Pending, Abandon, Abandoned), (Attempting, Confirm, Delivered),
        (Attempting, Fail, Failed), (Attempting, Lose, Ambiguous), (Failed, Retry, Pending),
        (Failed, Abandon, Abandoned), (Ambiguous, Confirm, Delivered), (Ambiguous, Fail, Failed),
        (Ambiguous, Resend, Pending), (Ambiguous, Abandon, Abandoned),
    ],
);

impl DeliveryState {
    /// Whether something may still happen to it.
    #[must_use]
    pub fn is_open(self) -> bool {
        !matches!(self, Self::Delivered | Self::Abandoned)
    }
}

/// A text that a turn owes to a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDelivery {
    /// What it is. A turn that records its [`DeliveryKind::Answer`] itself, in parts, gets none made at its end.
    pub kind: DeliveryKind,
    /// Its number among those of the turn of its kind for this chat: the same one again is the same delivery.
    pub part: i64,
    /// The chat.
    pub target: Target,
    /// The platform's id of the message that it answers; at most [`crate::limits::KEY_MAX_BYTES`].
    pub reply_to: Option<String>,
    /// The text, in the engine's own form; at most [`crate::limits::CONTENT_MAX_BYTES`].
    pub content: String,
}

impl NewDelivery {
    /// The id, which follows from what the delivery is: (conversation, turn, kind, part, target).
    pub(crate) fn id(&self, conversation: &ConversationId, turn: &TurnId) -> Result<DeliveryId, StoreError> {
        let Target { account, chat, thread } = &self.target;
        let part = self.part.to_string();
        let parts = [conversation.as_str(), turn.as_str(), self.kind.as_str(), &part, account, chat, thread];
        DeliveryId::parse(&format!("dlv-{}", &rules::digest_of(&parts)[..40]))
            .map_err(|bad| invalid(format!("no id for the delivery: {bad}")))
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.target.check()?;
        rules::limit("the id of a message", self.reply_to.as_ref().map_or(0, String::len), KEY_MAX_BYTES)?;
        rules::limit("the content of a delivery", self.content.len(), CONTENT_MAX_BYTES)
    }

    /// What the end of a turn makes of a reply that is owed: the answer, or the notice why there is none.
    pub(crate) fn of_turn(reply: Reply, answer: Option<&str>, end: &TurnEnd) -> Self {
        let (kind, content) = match answer {
            Some(answer) => (DeliveryKind::Answer, answer),
            None => (DeliveryKind::Notice, end.detail.as_deref().unwrap_or(&end.reason)),
        };
        Self { kind, part: 0, target: reply.target, reply_to: reply.reply_to, content: content.to_owned() }
    }

    /// The record of it, before anybody has tried.
    pub(crate) fn into_record(
        self,
        id: DeliveryId,
        conversation: &ConversationId,
        turn: &TurnId,
        now: i64,
    ) -> DeliveryRecord {
        DeliveryRecord {
            id,
            conversation: conversation.clone(),
            turn: turn.clone(),
            kind: self.kind,
            part: self.part,
            target: self.target,
            reply_to: self.reply_to,
            content: self.content,
            state: DeliveryState::Pending,
            attempt: 0,
            may_be_duplicate: false,
            platform_ids: Vec::new(),
            error: None,
            not_before_ms: None,
            owner: None,
            lease_expires_ms: None,
            created_at_ms: now,
            ended_at_ms: None,
        }
    }
}

/// Proof of an attempt. Only a store makes one; what a sender says of its attempt is refused when another one has begun
/// since.
///
/// Nobody else can make one:
///
/// ```compile_fail,E0624
/// use hermes_store::{DeliveryFence, DeliveryId};
/// let fence = DeliveryFence::new(DeliveryId::parse("d").unwrap(), 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryFence {
    delivery: DeliveryId,
    attempt: i64,
}

impl DeliveryFence {
    pub(crate) fn new(delivery: DeliveryId, attempt: i64) -> Self {
        Self { delivery, attempt }
    }

    /// The delivery.
    #[must_use]
    pub fn delivery(&self) -> &DeliveryId {
        &self.delivery
    }

    /// The number of the attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> i64 {
        self.attempt
    }
}

/// A delivery as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryRecord {
    /// Its id; follows from conversation, turn, kind, part and target.
    pub id: DeliveryId,
    /// The conversation.
    pub conversation: ConversationId,
    /// The turn.
    pub turn: TurnId,
    /// What it is.
    pub kind: DeliveryKind,
    /// Its number.
    pub part: i64,
    /// The chat.
    pub target: Target,
    /// The platform's id of the message that it answers.
    pub reply_to: Option<String>,
    /// The text.
    pub content: String,
    /// Where it stands.
    pub state: DeliveryState,
    /// Attempts that were begun; the number of the newest.
    pub attempt: i64,
    /// Whether the platform may have it already: the text must say so when it is sent.
    pub may_be_duplicate: bool,
    /// The platform's ids of the messages that it became so far, in order. An attempt begins behind them.
    pub platform_ids: Vec<String>,
    /// What went wrong last, or why it was given up; cleaned of secrets by the sender.
    pub error: Option<String>,
    /// When it is tried again, in milliseconds since the Unix epoch, while it is failed.
    pub not_before_ms: Option<i64>,
    /// Who is sending it, or was when it became ambiguous.
    pub owner: Option<OwnerId>,
    /// Until when its sender has time, in milliseconds since the Unix epoch, while it is attempting.
    pub lease_expires_ms: Option<i64>,
    /// When it was recorded, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
    /// When it was delivered or given up.
    pub ended_at_ms: Option<i64>,
}

/// What a claimer does with a delivery that may have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmbiguousPolicy {
    /// Sends it again, marked.
    Resend,
    /// Leaves it to an operator and goes on with the next one.
    Leave,
}

/// A wish to send something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRequest {
    /// The account that the sender is connected to.
    pub account: String,
    /// The sender. It must send heartbeats, so that its death is noticed before its time is over.
    pub owner: OwnerId,
    /// How long an attempt may take until it counts as lost, in milliseconds; at most
    /// [`crate::limits::SEND_LEASE_MAX_MS`]. Every part that is confirmed begins it anew.
    pub lease_ms: u64,
    /// What to do with one that may have arrived.
    pub ambiguous: AmbiguousPolicy,
}

impl DeliveryRequest {
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        rules::limit("the name of an account", self.account.len(), ADDRESS_MAX_BYTES)?;
        if self.lease_ms > SEND_LEASE_MAX_MS {
            return Err(StoreError::Limit { what: "the time of an attempt", limit: SEND_LEASE_MAX_MS });
        }
        Ok(())
    }
}

/// What a claim found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryClaim {
    /// Send this, and say how it ended.
    Send {
        /// The proof of the attempt.
        fence: DeliveryFence,
        /// The delivery.
        delivery: Box<DeliveryRecord>,
    },
    /// Nothing can be sent now.
    Idle {
        /// The next time at which something may change by itself (a pause or an attempt ends), in milliseconds since the
        /// Unix epoch.
        next_at_ms: Option<i64>,
    },
}

/// When a failed attempt is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAfter {
    /// After the pause of [`crate::limits::SEND_BACKOFF_MS`].
    Backoff,
    /// After what the platform asked for, in milliseconds; cut at [`crate::limits::SEND_RETRY_AFTER_MAX_MS`].
    Given(u64),
    /// Never: the chat is gone, the text was refused for good, or is not to be sent after all.
    Never,
}

/// What an operator decides about a delivery that is not at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryDecision {
    /// An ambiguous one is sent again, marked.
    Resend,
    /// An ambiguous one has arrived.
    Delivered,
    /// It is given up, for this reason.
    Abandon(String),
}

/// Which deliveries to list, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryFilter {
    /// Only those of this conversation.
    pub conversation: Option<ConversationId>,
    /// Only those of this account.
    pub account: Option<String>,
    /// Only those that are not over.
    pub open_only: bool,
    /// Most rows, up to [`crate::limits::SEND_LIST_MAX`].
    pub limit: usize,
}

impl Default for DeliveryFilter {
    fn default() -> Self {
        Self { conversation: None, account: None, open_only: false, limit: 100 }
    }
}

/// Why a delivery is given up unasked.
pub(crate) const TOO_OLD: &str = "it is too old to be sent";
/// What is known of an attempt whose sender is gone.
pub(crate) const LOST: &str = "its sender stopped before it could say whether it was sent";
const USED_UP: &str = "its attempts are used up";

/// What a claimer does with the first open delivery of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Takes it.
    Take,
    /// Its sender is gone: it is ambiguous.
    Lose,
    /// Gives it up.
    Abandon(&'static str),
    /// Leaves the chat alone: it is being sent, or waits.
    Leave,
}

impl DeliveryRecord {
    /// The time after which it is tried again. A clock that went back must not make it wait for hours (D3).
    pub(crate) fn is_waiting(&self, now: i64) -> bool {
        let latest = now.saturating_add(ms(SEND_RETRY_AFTER_MAX_MS));
        self.state == DeliveryState::Failed && self.not_before_ms.is_some_and(|at| now < at && at <= latest)
    }

    /// Whether its sender's time is over.
    pub(crate) fn is_overdue(&self, now: i64) -> bool {
        self.lease_expires_ms.is_none_or(|at| at <= now)
    }

    /// What is to be done with it, as the first of its chat.
    pub(crate) fn step(&self, now: i64, is_owner_gone: bool) -> Step {
        if self.state == DeliveryState::Attempting {
            return if is_owner_gone || self.is_overdue(now) { Step::Lose } else { Step::Leave };
        }
        if now.saturating_sub(self.created_at_ms) > ms(SEND_STALE_MS) {
            return Step::Abandon(TOO_OLD);
        }
        if self.attempt >= SEND_ATTEMPTS_MAX {
            return Step::Abandon(USED_UP);
        }
        if self.is_waiting(now) { Step::Leave } else { Step::Take }
    }

    /// A sender takes it.
    pub(crate) fn begin(&mut self, request: &DeliveryRequest, now: i64) -> Result<DeliveryFence, StoreError> {
        match self.state {
            DeliveryState::Failed => self.state = self.state.next(DeliveryEvent::Retry)?,
            DeliveryState::Ambiguous => self.resend()?,
            _ => {}
        }
        self.state = self.state.next(DeliveryEvent::Attempt)?;
        self.attempt += 1;
        self.not_before_ms = None;
        self.owner = Some(request.owner.clone());
        self.lease_expires_ms = Some(now.saturating_add(ms(request.lease_ms)));
        Ok(DeliveryFence::new(self.id.clone(), self.attempt))
    }

    fn resend(&mut self) -> Result<(), StoreError> {
        self.state = self.state.next(DeliveryEvent::Resend)?;
        self.may_be_duplicate = true;
        self.owner = None;
        Ok(())
    }

    /// Its sender is gone.
    pub(crate) fn lose(&mut self) -> Result<(), StoreError> {
        self.state = self.state.next(DeliveryEvent::Lose)?;
        self.lease_expires_ms = None;
        self.error = Some(LOST.to_owned());
        Ok(())
    }

    pub(crate) fn abandon(&mut self, why: &str, now: i64) -> Result<(), StoreError> {
        self.state = self.state.next(DeliveryEvent::Abandon)?;
        self.not_before_ms = None;
        self.error = Some(match self.error.take() {
            Some(last) => format!("{why}; before that: {last}"),
            None => why.to_owned(),
        });
        self.ended_at_ms = Some(now);
        Ok(())
    }

    /// What a sender says holds only for the newest attempt.
    fn is_of(&self, fence: &DeliveryFence) -> Result<(), StoreError> {
        match self.attempt == fence.attempt {
            true => Ok(()),
            false => Err(StoreError::Fenced { held: Token(fence.attempt) }),
        }
    }

    /// One part has arrived. False when that was known.
    pub(crate) fn confirm_part(
        &mut self,
        fence: &DeliveryFence,
        index: usize,
        id: &str,
        lease_ms: u64,
        now: i64,
    ) -> Result<bool, StoreError> {
        self.is_of(fence)?;
        rules::limit("the id of a message", id.len(), KEY_MAX_BYTES)?;
        rules::limit("the number of parts of a delivery", index.saturating_add(1), SEND_PARTS_MAX)?;
        match self.platform_ids.get(index) {
            Some(known) if known == id => return Ok(false),
            Some(_) => return Err(rules::conflict("part", index)),
            None if index > self.platform_ids.len() => {
                return Err(invalid(format!("part {index} comes before part {}", self.platform_ids.len())));
            }
            None => {}
        }
        // An attempt that was given up comes back with the truth, but not to life.
        match self.state {
            DeliveryState::Attempting => {
                self.lease_expires_ms = Some(now.saturating_add(ms(lease_ms.min(SEND_LEASE_MAX_MS))));
            }
            DeliveryState::Ambiguous => {}
            _ => return Err(StoreError::Fenced { held: Token(fence.attempt) }),
        }
        self.platform_ids.push(id.to_owned());
        Ok(true)
    }

    /// Everything has arrived. False when that was known.
    pub(crate) fn confirm(&mut self, fence: &DeliveryFence, now: i64) -> Result<bool, StoreError> {
        self.is_of(fence)?;
        if self.state == DeliveryState::Delivered {
            return Ok(false);
        }
        self.arrive(now)?;
        Ok(true)
    }

    fn arrive(&mut self, now: i64) -> Result<(), StoreError> {
        self.state = self.state.next(DeliveryEvent::Confirm)?;
        self.lease_expires_ms = None;
        self.error = None;
        self.ended_at_ms = Some(now);
        Ok(())
    }

    /// It provably was not sent. False when that was known.
    pub(crate) fn fail(
        &mut self,
        fence: &DeliveryFence,
        error: &str,
        retry: RetryAfter,
        now: i64,
    ) -> Result<bool, StoreError> {
        self.is_of(fence)?;
        if self.state == DeliveryState::Failed || self.state == DeliveryState::Abandoned {
            return Ok(false);
        }
        self.state = self.state.next(DeliveryEvent::Fail)?;
        self.lease_expires_ms = None;
        self.owner = None;
        self.error = Some(rules::cut(error, KEY_MAX_BYTES));
        let nth = usize::try_from(self.attempt).unwrap_or(usize::MAX).saturating_sub(1);
        let pause = match retry {
            RetryAfter::Backoff => SEND_BACKOFF_MS.get(nth).copied(),
            RetryAfter::Given(given) => Some(given.min(SEND_RETRY_AFTER_MAX_MS)),
            RetryAfter::Never => {
                self.abandon("it cannot be sent", now)?;
                return Ok(true);
            }
        };
        match pause.filter(|_| self.attempt < SEND_ATTEMPTS_MAX) {
            Some(pause) => self.not_before_ms = Some(now.saturating_add(ms(pause))),
            None => self.abandon(USED_UP, now)?,
        }
        Ok(true)
    }

    /// What an operator decides. False when it is so already.
    pub(crate) fn decide(&mut self, attempt: i64, decision: &DeliveryDecision, now: i64) -> Result<bool, StoreError> {
        if self.attempt != attempt {
            return Err(invalid(format!("attempt {attempt} is not the newest of the delivery; look at it again")));
        }
        match decision {
            DeliveryDecision::Resend => {
                if self.state == DeliveryState::Pending && self.may_be_duplicate {
                    return Ok(false);
                }
                self.resend()?;
            }
            DeliveryDecision::Delivered => match self.state {
                DeliveryState::Delivered => return Ok(false),
                DeliveryState::Ambiguous => self.arrive(now)?,
                _ => return Err(invalid("only a delivery that may have arrived can be said to have arrived")),
            },
            DeliveryDecision::Abandon(why) => {
                if self.state == DeliveryState::Abandoned {
                    return Ok(false);
                }
                self.abandon(&rules::cut(why, KEY_MAX_BYTES), now)?;
            }
        }
        Ok(true)
    }
}

/// What goes out.
#[async_trait]
pub trait DeliveryStore: Send + Sync {
    /// Records what the running turn owes beside the answer that its end makes, or the answer in parts of its own. The same
    /// again changes nothing. May be sent before the turn ends: record only what is durable.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Conflict`] for a known (turn, kind, part, target) with another text;
    /// [`StoreError::Limit`] for a text that is too long, or more than [`crate::limits::SEND_OPEN_MAX`] open deliveries of
    /// the conversation.
    async fn record_deliveries(
        &self,
        fence: &Fence,
        turn: &TurnId,
        deliveries: Vec<NewDelivery>,
    ) -> Result<Vec<DeliveryRecord>, StoreError>;

    /// Takes the first delivery of a chat of the account that can be sent now, the oldest of them first. On the way an
    /// attempt whose sender is gone becomes ambiguous, and what is older than [`crate::limits::SEND_STALE_MS`] or has had
    /// [`crate::limits::SEND_ATTEMPTS_MAX`] attempts is given up.
    ///
    /// # Errors
    /// [`StoreError::Limit`] for a time over [`crate::limits::SEND_LEASE_MAX_MS`].
    async fn claim_delivery(&self, request: DeliveryRequest) -> Result<DeliveryClaim, StoreError>;

    /// One more part (number `index`, from 0) has arrived under the platform's id. Gives the attempt `lease_ms` from now.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when another attempt has begun or it is over; [`StoreError::Conflict`] for a known part with
    /// another id; [`StoreError::Invalid`] for a part that is not the next one; [`StoreError::Limit`].
    async fn confirm_part(
        &self,
        fence: &DeliveryFence,
        index: usize,
        platform_id: &str,
        lease_ms: u64,
    ) -> Result<(), StoreError>;

    /// Everything has arrived. Taken also from a sender whose attempt became ambiguous. The same again is no error.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when another attempt has begun; [`StoreError::Invalid`] when it failed or was given up;
    /// [`StoreError::NotFound`].
    async fn confirm_delivery(&self, fence: &DeliveryFence) -> Result<(), StoreError>;

    /// The platform provably does not have it (a time-out proves nothing: say nothing, and it becomes ambiguous). Tried
    /// again after a pause, or given up: by [`RetryAfter::Never`], and after the last attempt. `error` is for people, cut
    /// at [`crate::limits::KEY_MAX_BYTES`].
    ///
    /// # Errors
    /// As [`DeliveryStore::confirm_delivery`].
    async fn fail_delivery(&self, fence: &DeliveryFence, error: &str, retry: RetryAfter) -> Result<(), StoreError>;

    /// Decides a delivery that nobody sends. `attempt` is the number of the attempt that was looked at.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] when another attempt has begun, or the state does not allow it; [`StoreError::NotFound`].
    async fn decide_delivery(
        &self,
        id: &DeliveryId,
        attempt: i64,
        decision: DeliveryDecision,
    ) -> Result<DeliveryRecord, StoreError>;

    /// A delivery.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn delivery(&self, id: &DeliveryId) -> Result<DeliveryRecord, StoreError>;

    /// Deliveries, newest first.
    ///
    /// # Errors
    /// Only those of the database.
    async fn deliveries(&self, filter: DeliveryFilter) -> Result<Vec<DeliveryRecord>, StoreError>;

    /// Makes attempts whose time is over ambiguous, gives up what is older than [`crate::limits::SEND_STALE_MS`] and nobody sends, and deletes what is over for longer
    /// than [`crate::limits::SEND_KEEP_MS`], or beyond the newest [`crate::limits::SEND_KEEP_ROWS`] of its conversation.
    /// Returns how many were deleted.
    ///
    /// # Errors
    /// Only those of the database.
    async fn prune_deliveries(&self) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> DeliveryRequest {
        DeliveryRequest {
            account: "t".to_owned(),
            owner: OwnerId::parse("a").unwrap(),
            lease_ms: 1_000,
            ambiguous: AmbiguousPolicy::Resend,
        }
    }

    fn new(part: i64) -> DeliveryRecord {
        let (c, t) = (ConversationId::parse("c").unwrap(), TurnId::parse("t").unwrap());
        let target = Target { account: "t".to_owned(), chat: "7".to_owned(), thread: String::new() };
        let new = NewDelivery { kind: DeliveryKind::Answer, part, target, reply_to: None, content: "hi".to_owned() };
        new.check().unwrap();
        let id = new.id(&c, &t).unwrap();
        new.into_record(id, &c, &t, 0)
    }

    #[test]
    fn s44_only_the_newest_attempt_is_heard() {
        let mut one = new(0);
        let first = one.begin(&request(), 0).unwrap();
        assert_eq!(one.step(999, false), Step::Leave);
        assert_eq!(one.step(1_000, false), Step::Lose);
        assert_eq!(one.step(1, true), Step::Lose);
        one.lose().unwrap();
        let second = one.begin(&request(), 2_000).unwrap();
        assert!(one.may_be_duplicate);
        assert!(matches!(one.confirm(&first, 2_000), Err(StoreError::Fenced { .. })));
        assert!(matches!(one.fail(&first, "x", RetryAfter::Backoff, 2_000), Err(StoreError::Fenced { .. })));
        assert!(one.confirm(&second, 2_000).unwrap());
        assert!(!one.confirm(&second, 2_000).unwrap());
    }

    #[test]
    fn attempts_are_used_up_after_three() {
        let mut one = new(0);
        for pause in [SEND_BACKOFF_MS[0], SEND_BACKOFF_MS[1]] {
            let fence = one.begin(&request(), 0).unwrap();
            one.fail(&fence, "no", RetryAfter::Backoff, 0).unwrap();
            assert_eq!((one.state, one.not_before_ms), (DeliveryState::Failed, Some(ms(pause))));
            assert_eq!((one.step(0, false), one.step(ms(pause), false)), (Step::Leave, Step::Take));
        }
        let fence = one.begin(&request(), 0).unwrap();
        one.fail(&fence, "no", RetryAfter::Given(5), 0).unwrap();
        assert_eq!(one.state, DeliveryState::Abandoned);
        assert_eq!(one.error.as_deref(), Some("its attempts are used up; before that: no"));
    }

    #[test]
    fn d3_a_clock_that_goes_back_makes_no_delivery_wait_for_hours() {
        let mut one = new(0);
        let fence = one.begin(&request(), 10_000_000).unwrap();
        one.fail(&fence, "slow down", RetryAfter::Given(u64::MAX), 10_000_000).unwrap();
        assert_eq!(one.step(10_000_000, false), Step::Leave);
        assert_eq!(one.step(10_000_000 - 3_600_000, false), Step::Take);
    }

    #[test]
    fn parts_come_in_order_and_once() {
        let mut one = new(0);
        let fence = one.begin(&request(), 0).unwrap();
        assert!(one.confirm_part(&fence, 0, "m1", 500, 10).unwrap());
        assert!(!one.confirm_part(&fence, 0, "m1", 500, 10).unwrap());
        assert_eq!(one.lease_expires_ms, Some(510));
        assert!(one.confirm_part(&fence, 0, "m2", 500, 10).is_err());
        assert!(one.confirm_part(&fence, 2, "m3", 500, 10).is_err());
        assert_eq!(one.platform_ids, ["m1"]);
    }

    #[test]
    fn different_parts_and_chats_have_different_ids() {
        assert_ne!(new(0).id, new(1).id);
        assert_eq!(new(1).id, new(1).id);
    }
}
