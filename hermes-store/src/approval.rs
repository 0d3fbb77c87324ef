//! Questions to people: whether a call may run.
//!
//! A turn that needs a person's word asks under its fence, and the question is a row: it survives the client that showed
//! it, the gateway that asked it, and a restart. It is answered once, by somebody who may, and silence is a no (I23).
//!
//! | fact | type | who may write it |
//! |---|---|---|
//! | this call waits for a person's word | [`ApprovalRecord`] | the holder of the [`Fence`], for a call of its running turn |
//! | yes or no | its state, its [`ApprovalAnswer`] | one of the principals that the question names, once, in time |
//! | nobody answered in time | [`ApprovalState::Expired`] | the store, when somebody looks after that time |
//! | it is not asked any more | [`ApprovalState::Withdrawn`] | the holder of the [`Fence`]; the store, when the turn or the call is over |
//!
//! # What is left after a crash
//!
//! | last thing that was committed | what is stored | what the next owner finds, and may do |
//! |---|---|---|
//! | nothing | nothing | ask |
//! | [`ApprovalStore::ask_approval`] | an open question | [`ApprovalStore::approvals_of_turn`] shows it: wait on, or withdraw it and ask again; a person may answer while nobody owns the turn |
//! | [`ApprovalStore::answer_approval`] | the answer, before anybody is told | it holds for that call; asking again with the same id returns it |
//! | [`ApprovalStore::withdraw_approval`] | a question that nobody can answer any more | nothing |
//! | the result of the call, or the end of the turn | an open question about nothing | it is withdrawn when somebody looks; a late answer is refused |
//!
//! Whoever waits for an answer waits for the conversation to change ([`crate::LeaseStore::wait_for_change`]) and reads the
//! question again; at its time it withdraws the question, which tells it what became of it.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{ApprovalId, CallId, ConversationId, TurnId};
use crate::limits::{APPROVAL_SUBJECT_MAX_BYTES, APPROVAL_TTL_MAX_MS, APPROVAL_WORDS_MAX, KEY_MAX_BYTES};
use crate::machine::machine;
use crate::rules::{self, invalid, ms};

/// Where a question stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// Waiting for an answer.
    Open,
    /// Somebody said yes.
    Approved,
    /// Somebody said no.
    Denied,
    /// Nobody said anything in time: no.
    Expired,
    /// Not asked any more: no.
    Withdrawn,
}

/// What can happen to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApprovalEvent {
    /// A yes.
    Approve,
    /// A no.
    Deny,
    /// Its time is over.
    Expire,
    /// It is taken back.
    Withdraw,
}

machine!(
    APPROVAL_MACHINE, "an approval",
    ApprovalState {
        Open => "open", Approved => "approved", Denied => "denied", Expired => "expired", Withdrawn => "withdrawn",
    },
    ApprovalEvent { Approve => "approve", Deny => "deny", Expire => "expire", Withdraw => "withdraw" },
    [
        (Open, Approve, Approved), (Open, Deny, Denied), (Open, Expire, Expired), (Open, Withdraw, Withdrawn),
    ],
);

/// A question to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApproval {
    /// Its id, minted by the caller: the same one again is the same question.
    pub id: ApprovalId,
    /// The call that waits for it. It must be recorded, and have no result yet.
    pub call: CallId,
    /// What would run, for a person to read; at most [`crate::limits::APPROVAL_SUBJECT_MAX_BYTES`].
    pub subject: String,
    /// The ways to say yes (`once`, `session`, `always`), at least one, at most [`crate::limits::APPROVAL_WORDS_MAX`]. No is
    /// always possible.
    pub choices: Vec<String>,
    /// The principals that may answer, at least one, at most [`crate::limits::APPROVAL_WORDS_MAX`].
    pub may_answer: Vec<String>,
    /// How long it stays open, in milliseconds ([`crate::limits::APPROVAL_TTL_MS`] is usual, at most
    /// [`crate::limits::APPROVAL_TTL_MAX_MS`]).
    pub expires_in_ms: u64,
}

impl NewApproval {
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        rules::limit("the text of a question", self.subject.len(), APPROVAL_SUBJECT_MAX_BYTES)?;
        for (what, words) in
            [("the choices of a question", &self.choices), ("those who may answer a question", &self.may_answer)]
        {
            if words.is_empty() {
                return Err(invalid(format!("{what} are missing; nobody could ever say yes")));
            }
            rules::limit(what, words.len(), APPROVAL_WORDS_MAX)?;
            for word in words {
                rules::limit("a word of a question", word.len(), KEY_MAX_BYTES)?;
            }
        }
        if self.expires_in_ms > APPROVAL_TTL_MAX_MS {
            return Err(StoreError::Limit { what: "the time of a question", limit: APPROVAL_TTL_MAX_MS });
        }
        Ok(())
    }

    pub(crate) fn into_record(self, conversation: &ConversationId, turn: &TurnId, now: i64) -> ApprovalRecord {
        ApprovalRecord {
            id: self.id,
            conversation: conversation.clone(),
            turn: turn.clone(),
            call: self.call,
            subject: self.subject,
            choices: self.choices,
            may_answer: self.may_answer,
            state: ApprovalState::Open,
            answer: None,
            reason: None,
            asked_at_ms: now,
            expires_at_ms: now.saturating_add(ms(self.expires_in_ms)),
            ended_at_ms: None,
        }
    }
}

/// A person's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "word")]
pub enum ApprovalAnswer {
    /// Yes, in one of the ways of the question.
    Approve {
        /// Which.
        choice: String,
    },
    /// No.
    Deny,
}

/// The answer to a question, and who gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenAnswer {
    /// Who.
    pub principal: String,
    /// What.
    pub answer: ApprovalAnswer,
}

/// A question as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRecord {
    /// Its id.
    pub id: ApprovalId,
    /// The conversation.
    pub conversation: ConversationId,
    /// The turn.
    pub turn: TurnId,
    /// The call that waits for it.
    pub call: CallId,
    /// What would run.
    pub subject: String,
    /// The ways to say yes.
    pub choices: Vec<String>,
    /// Who may answer.
    pub may_answer: Vec<String>,
    /// Where it stands. One that is `open` behind its time can only become expired.
    pub state: ApprovalState,
    /// The answer, when there is one.
    pub answer: Option<GivenAnswer>,
    /// Why it was withdrawn.
    pub reason: Option<String>,
    /// When it was asked, in milliseconds since the Unix epoch.
    pub asked_at_ms: i64,
    /// Until when it can be answered.
    pub expires_at_ms: i64,
    /// When it was answered, expired or was withdrawn.
    pub ended_at_ms: Option<i64>,
}

/// Why an answer does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerRefusal {
    /// This principal may not answer it.
    NotAllowed,
    /// It has been answered.
    Answered,
    /// Its time is over.
    Expired,
    /// It is not asked any more.
    Withdrawn,
    /// The yes is none of its choices. It stays open.
    NotAChoice,
}

/// What came of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// It counts, and is durable.
    Accepted(Box<ApprovalRecord>),
    /// The same principal gave the same answer before.
    Replayed(Box<ApprovalRecord>),
    /// It does not count.
    Refused {
        /// Why.
        why: AnswerRefusal,
        /// The question as it stands.
        approval: Box<ApprovalRecord>,
    },
}

impl AnswerOutcome {
    /// The question as it stands.
    #[must_use]
    pub fn approval(&self) -> &ApprovalRecord {
        match self {
            Self::Accepted(approval) | Self::Replayed(approval) | Self::Refused { approval, .. } => approval,
        }
    }
}

/// Why a question ended that was about something that is over.
pub(crate) const OVER: &str = "what it was about is over";

impl ApprovalRecord {
    /// Whether a repeated question is the same.
    pub(crate) fn is_same(&self, new: &Self) -> bool {
        let key = |one: &Self| {
            let life = one.expires_at_ms.saturating_sub(one.asked_at_ms);
            (
                one.conversation.clone(),
                one.turn.clone(),
                one.call.clone(),
                one.choices.clone(),
                one.may_answer.clone(),
                life,
            )
        };
        self.subject == new.subject && key(self) == key(new)
    }

    /// Ends an open question that can have no answer any more: its time, or what it is about, is over.
    pub(crate) fn lapse(&mut self, is_live: bool, now: i64) -> Result<bool, StoreError> {
        if self.state != ApprovalState::Open {
            return Ok(false);
        }
        if now >= self.expires_at_ms {
            self.state = self.state.next(ApprovalEvent::Expire)?;
        } else if !is_live {
            self.state = self.state.next(ApprovalEvent::Withdraw)?;
            self.reason = Some(OVER.to_owned());
        } else {
            return Ok(false);
        }
        self.ended_at_ms = Some(now);
        Ok(true)
    }

    /// Takes an answer that [`ApprovalRecord::lapse`] came before. `Ok(Some)` refuses it.
    pub(crate) fn take(
        &mut self,
        principal: &str,
        answer: &ApprovalAnswer,
        now: i64,
    ) -> Result<Option<AnswerRefusal>, StoreError> {
        let event = match (self.state, answer) {
            (ApprovalState::Approved | ApprovalState::Denied, _) => return Ok(Some(AnswerRefusal::Answered)),
            (ApprovalState::Expired, _) => return Ok(Some(AnswerRefusal::Expired)),
            (ApprovalState::Withdrawn, _) => return Ok(Some(AnswerRefusal::Withdrawn)),
            (ApprovalState::Open, ApprovalAnswer::Approve { choice }) if !self.choices.contains(choice) => {
                return Ok(Some(AnswerRefusal::NotAChoice));
            }
            (ApprovalState::Open, ApprovalAnswer::Approve { .. }) => ApprovalEvent::Approve,
            (ApprovalState::Open, ApprovalAnswer::Deny) => ApprovalEvent::Deny,
        };
        self.state = self.state.next(event)?;
        self.answer = Some(GivenAnswer { principal: principal.to_owned(), answer: answer.clone() });
        self.ended_at_ms = Some(now);
        Ok(None)
    }

    /// What an answer does, and whether the record changed.
    pub(crate) fn answer(
        mut self,
        principal: &str,
        answer: &ApprovalAnswer,
        is_live: bool,
        now: i64,
    ) -> Result<(AnswerOutcome, bool), StoreError> {
        if !self.may_answer.iter().any(|name| name == principal) {
            let why = AnswerRefusal::NotAllowed;
            return Ok((AnswerOutcome::Refused { why, approval: Box::new(self) }, false));
        }
        let given = GivenAnswer { principal: principal.to_owned(), answer: answer.clone() };
        if self.answer.as_ref() == Some(&given) {
            return Ok((AnswerOutcome::Replayed(Box::new(self)), false));
        }
        let lapsed = self.lapse(is_live, now)?;
        Ok(match self.take(principal, answer, now)? {
            Some(why) => (AnswerOutcome::Refused { why, approval: Box::new(self) }, lapsed),
            None => (AnswerOutcome::Accepted(Box::new(self)), true),
        })
    }

    /// Takes the question back, unless it is over already. False when it was.
    pub(crate) fn withdraw(&mut self, reason: &str, now: i64) -> Result<bool, StoreError> {
        if self.state != ApprovalState::Open {
            return Ok(false);
        }
        if self.lapse(true, now)? {
            return Ok(true);
        }
        self.state = self.state.next(ApprovalEvent::Withdraw)?;
        self.reason = Some(rules::cut(reason, KEY_MAX_BYTES));
        self.ended_at_ms = Some(now);
        Ok(true)
    }
}

/// Questions to people.
#[async_trait]
pub trait ApprovalStore: Send + Sync {
    /// Asks. The same question again returns it as it stands, with its answer if it has one.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Invalid`] when the call is not one of the running turn or has its result;
    /// [`StoreError::Conflict`] for a known id with another question; [`StoreError::Limit`] for a text that is too long, or
    /// more than [`crate::limits::APPROVALS_OPEN_MAX`] open questions of the turn.
    async fn ask_approval(
        &self,
        fence: &Fence,
        turn: &TurnId,
        approval: NewApproval,
    ) -> Result<ApprovalRecord, StoreError>;

    /// Answers, once: the answer is durable before this returns. Takes no fence, as an input takes none; it wakes those who
    /// wait for the conversation. A question that is behind its time, or whose turn or call is over, ends here and is
    /// never approved (I23).
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn answer_approval(
        &self,
        id: &ApprovalId,
        principal: &str,
        answer: ApprovalAnswer,
    ) -> Result<AnswerOutcome, StoreError>;

    /// Takes a question back, and returns it as it stands then: withdrawn, or expired, or answered before. `reason` is cut
    /// at [`crate::limits::KEY_MAX_BYTES`].
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::NotFound`], also for one of another conversation.
    async fn withdraw_approval(
        &self,
        fence: &Fence,
        id: &ApprovalId,
        reason: &str,
    ) -> Result<ApprovalRecord, StoreError>;

    /// A question as it was written last.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn approval(&self, id: &ApprovalId) -> Result<ApprovalRecord, StoreError>;

    /// Every question of a turn, oldest first.
    ///
    /// # Errors
    /// Only those of the database.
    async fn approvals_of_turn(&self, turn: &TurnId) -> Result<Vec<ApprovalRecord>, StoreError>;

    /// The questions that can be answered now, of one conversation or of all, oldest first, at most
    /// [`crate::limits::APPROVALS_LIST_MAX`]: what a client that reconnects has to show. Ends those that cannot be any
    /// more.
    ///
    /// # Errors
    /// Only those of the database.
    async fn open_approvals(&self, conversation: Option<&ConversationId>) -> Result<Vec<ApprovalRecord>, StoreError>;

    /// Ends open questions as [`ApprovalStore::open_approvals`] does, and deletes those that are over for longer than
    /// [`crate::limits::APPROVAL_KEEP_MS`]. Returns how many were deleted.
    ///
    /// # Errors
    /// Only those of the database.
    async fn prune_approvals(&self) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> ApprovalRecord {
        let new = NewApproval {
            id: ApprovalId::parse("q").unwrap(),
            call: CallId::parse("k").unwrap(),
            subject: "rm -r build".to_owned(),
            choices: vec!["once".to_owned()],
            may_answer: vec!["ann".to_owned()],
            expires_in_ms: 100,
        };
        new.check().unwrap();
        new.into_record(&ConversationId::parse("c").unwrap(), &TurnId::parse("t").unwrap(), 0)
    }

    fn yes() -> ApprovalAnswer {
        ApprovalAnswer::Approve { choice: "once".to_owned() }
    }

    fn refusal(outcome: (AnswerOutcome, bool)) -> (AnswerRefusal, ApprovalState, bool) {
        match outcome {
            (AnswerOutcome::Refused { why, approval }, changed) => (why, approval.state, changed),
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn i23_nothing_but_a_timely_yes_of_somebody_who_may_approves() {
        let one = open();
        let ask =
            |who: &str, answer: &ApprovalAnswer, is_live, now| one.clone().answer(who, answer, is_live, now).unwrap();
        assert!(
            matches!(ask("ann", &yes(), true, 99), (AnswerOutcome::Accepted(a), true) if a.state == ApprovalState::Approved)
        );
        assert!(
            matches!(ask("ann", &ApprovalAnswer::Deny, true, 99), (AnswerOutcome::Accepted(a), true) if a.state == ApprovalState::Denied)
        );
        assert_eq!(refusal(ask("bob", &yes(), true, 1)), (AnswerRefusal::NotAllowed, ApprovalState::Open, false));
        assert_eq!(refusal(ask("ann", &yes(), true, 100)), (AnswerRefusal::Expired, ApprovalState::Expired, true));
        assert_eq!(refusal(ask("ann", &yes(), false, 1)), (AnswerRefusal::Withdrawn, ApprovalState::Withdrawn, true));
        let always = ApprovalAnswer::Approve { choice: "always".to_owned() };
        assert_eq!(refusal(ask("ann", &always, true, 1)), (AnswerRefusal::NotAChoice, ApprovalState::Open, false));
    }

    #[test]
    fn i23_no_state_but_open_leads_to_approved() {
        for state in ApprovalState::ALL.iter().copied().filter(|state| *state != ApprovalState::Open) {
            for event in ApprovalEvent::ALL.iter().copied() {
                assert!(state.next(event).is_err(), "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn a_question_that_nobody_could_answer_is_refused() {
        let new = |choices: &[&str], may: &[&str], expires_in_ms| NewApproval {
            id: ApprovalId::parse("q").unwrap(),
            call: CallId::parse("k").unwrap(),
            subject: String::new(),
            choices: choices.iter().map(|&c| c.to_owned()).collect(),
            may_answer: may.iter().map(|&c| c.to_owned()).collect(),
            expires_in_ms,
        };
        assert!(new(&["once"], &["ann"], 0).check().is_ok());
        assert!(new(&[], &["ann"], 0).check().is_err());
        assert!(new(&["once"], &[], 0).check().is_err());
        assert!(new(&["once"], &["ann"], APPROVAL_TTL_MAX_MS + 1).check().is_err());
    }
}
