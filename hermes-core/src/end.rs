//! How a turn ends: one closed list of reasons, one result structure, whatever happened.

use hermes_store::{AdmissionId, AdmissionOutcome, ConversationId, SessionId, TurnId, UsageTotals};
use serde::{Deserialize, Serialize};

/// Who stopped a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopper {
    /// The user.
    User,
    /// The program: it is shutting down.
    Shutdown,
}

/// Why a turn ended. Closed: there is no "other", and every way to end has its own word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model answered.
    Answered,
    /// The user stopped it.
    StoppedByUser,
    /// The program was shut down in order.
    StoppedByShutdown,
    /// The iteration budget is used up; the answer is the model's summary, if it gave one.
    BudgetExhausted,
    /// The turn's time is over.
    DeadlineExceeded,
    /// Storage failed: nothing was done that is not written down, and nothing is claimed.
    PersistenceFailed,
    /// Another owner took the conversation over.
    LeaseLost,
    /// Nothing of the turn moved for too long; the watchdog of this program stopped it.
    LivenessLost,
    /// Another turn held the conversation for longer than the wait limit; the input stays queued.
    LeaseTimeout,
    /// The key was refused.
    AuthFailed,
    /// No money or plan at the provider.
    BillingFailed,
    /// No such model.
    ModelNotFound,
    /// The provider refuses the content.
    ContentBlocked,
    /// The provider does not accept the request.
    RequestRefused,
    /// The input does not fit the model's window.
    ContextOverflow,
    /// Every attempt failed; the last failure is named.
    RetriesExhausted,
    /// The model answered nothing, more than once.
    EmptyResponse,
    /// The output limit was reached before the answer was whole.
    OutputTruncated,
    /// The model made calls that cannot be read, more than once.
    InvalidCalls,
    /// The turn went in circles where nobody watches, or over a cap, and was ended.
    GuardrailHalt,
    /// The model repeated itself without end; nothing of it was kept.
    RepetitionStopped,
    /// The model thought and never answered.
    ThinkingExhausted,
    /// The connection broke after a part of the answer, more than once; the part was kept.
    PartialAnswer,
    /// The user's words cut the request again and again, and no answer came; what was not read is the next input.
    RedirectLimit,
    /// This program is set up in a way that cannot work.
    Misconfigured,
    /// A crash interrupted it, and going on was not possible or not wanted any more.
    CrashInterrupted,
    /// A guarantee of the program itself was found broken; the turn was ended to protect the transcript.
    InvariantViolated,
}

impl EndReason {
    /// Every reason.
    pub const ALL: &'static [Self] = &[
        Self::Answered,
        Self::StoppedByUser,
        Self::StoppedByShutdown,
        Self::BudgetExhausted,
        Self::DeadlineExceeded,
        Self::PersistenceFailed,
        Self::LeaseLost,
        Self::LivenessLost,
        Self::LeaseTimeout,
        Self::AuthFailed,
        Self::BillingFailed,
        Self::ModelNotFound,
        Self::ContentBlocked,
        Self::RequestRefused,
        Self::ContextOverflow,
        Self::RetriesExhausted,
        Self::EmptyResponse,
        Self::OutputTruncated,
        Self::InvalidCalls,
        Self::GuardrailHalt,
        Self::RepetitionStopped,
        Self::ThinkingExhausted,
        Self::PartialAnswer,
        Self::RedirectLimit,
        Self::Misconfigured,
        Self::CrashInterrupted,
        Self::InvariantViolated,
    ];

    /// The word that is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::StoppedByUser => "stopped_by_user",
            Self::StoppedByShutdown => "stopped_by_shutdown",
            Self::BudgetExhausted => "budget_exhausted",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::PersistenceFailed => "persistence_failed",
            Self::LeaseLost => "lease_lost",
            Self::LivenessLost => "liveness_lost",
            Self::LeaseTimeout => "lease_timeout",
            Self::AuthFailed => "auth_failed",
            Self::BillingFailed => "billing_failed",
            Self::ModelNotFound => "model_not_found",
            Self::ContentBlocked => "content_blocked",
            Self::RequestRefused => "request_refused",
            Self::ContextOverflow => "context_overflow",
            Self::RetriesExhausted => "retries_exhausted",
            Self::EmptyResponse => "empty_response",
            Self::OutputTruncated => "output_truncated",
            Self::InvalidCalls => "invalid_calls",
            Self::GuardrailHalt => "guardrail_halt",
            Self::RepetitionStopped => "repetition_stopped",
            Self::ThinkingExhausted => "thinking_exhausted",
            Self::PartialAnswer => "partial_answer",
            Self::RedirectLimit => "redirect_limit",
            Self::Misconfigured => "misconfigured",
            Self::CrashInterrupted => "crash_interrupted",
            Self::InvariantViolated => "invariant_violated",
        }
    }

    /// Reads the stored word back.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == word)
    }

    /// The stable code of a failure; `docs/errors/CODE.md` explains it. `None` for ends that are no failure.
    #[must_use]
    pub fn code(self) -> Option<&'static str> {
        match self {
            Self::Answered | Self::StoppedByUser | Self::StoppedByShutdown => None,
            Self::BudgetExhausted => Some("HM4001"),
            Self::DeadlineExceeded => Some("HM4002"),
            Self::PersistenceFailed => Some("HM4003"),
            Self::LeaseLost => Some("HM4004"),
            Self::LeaseTimeout => Some("HM4005"),
            Self::AuthFailed => Some("HM4006"),
            Self::BillingFailed => Some("HM4007"),
            Self::ModelNotFound => Some("HM4008"),
            Self::ContentBlocked => Some("HM4009"),
            Self::RequestRefused => Some("HM4010"),
            Self::ContextOverflow => Some("HM4011"),
            Self::RetriesExhausted => Some("HM4012"),
            Self::EmptyResponse => Some("HM4013"),
            Self::OutputTruncated => Some("HM4014"),
            Self::InvalidCalls => Some("HM4015"),
            Self::Misconfigured => Some("HM4016"),
            Self::CrashInterrupted => Some("HM4017"),
            Self::InvariantViolated => Some("HM4018"),
            Self::GuardrailHalt => Some("HM4019"),
            Self::RepetitionStopped => Some("HM4020"),
            Self::ThinkingExhausted => Some("HM4021"),
            Self::PartialAnswer => Some("HM4022"),
            Self::LivenessLost => Some("HM4023"),
            Self::RedirectLimit => Some("HM4024"),
        }
    }

    /// What becomes of the admission.
    #[must_use]
    pub fn outcome(self) -> AdmissionOutcome {
        match self {
            Self::Answered | Self::BudgetExhausted => AdmissionOutcome::Completed,
            Self::StoppedByUser | Self::StoppedByShutdown | Self::CrashInterrupted => AdmissionOutcome::Interrupted,
            _ => AdmissionOutcome::Failed,
        }
    }

    /// Whether the turn may still be open in the store: its end could not be written, or was not this owner's to write.
    /// Whoever claims its conversation then gets the same turn again, so a loop that does waits before.
    pub(crate) fn may_be_open(self) -> bool {
        matches!(self, Self::PersistenceFailed | Self::LeaseLost)
    }

    /// Whether the same input may be sent again as it is, with a chance of another end.
    #[must_use]
    pub fn may_retry(self) -> bool {
        matches!(
            self,
            Self::DeadlineExceeded
                | Self::PersistenceFailed
                | Self::LeaseLost
                | Self::LivenessLost
                | Self::LeaseTimeout
                | Self::RetriesExhausted
                | Self::EmptyResponse
                | Self::RepetitionStopped
                | Self::ThinkingExhausted
                | Self::PartialAnswer
                | Self::RedirectLimit
                | Self::StoppedByShutdown
        )
    }
}

/// What went wrong, for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnError {
    /// The stable code of the cause (of the store, the provider or the turn).
    pub code: String,
    /// What happened and what to do; holds no secret.
    pub message: String,
    /// Whether the same input may be sent again as it is.
    pub retryable: bool,
}

/// The result of a turn: the same structure for every end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnResult {
    /// The conversation.
    pub conversation: ConversationId,
    /// The session, when one was opened.
    pub session: Option<SessionId>,
    /// The turn; none when none was begun.
    pub turn: Option<TurnId>,
    /// The input.
    pub admission: AdmissionId,
    /// The one reason.
    pub reason: EndReason,
    /// The final answer as it stands in the transcript; what there is of it when the turn did not end well.
    pub answer: String,
    /// What went wrong, when something did.
    pub error: Option<TurnError>,
    /// Requests to the model.
    pub api_calls: u64,
    /// Provider and model that answered.
    pub model: String,
    /// Tokens of this turn, when the provider reported them.
    pub usage: UsageTotals,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_one_word_and_every_failure_one_code() {
        let mut words = std::collections::BTreeSet::new();
        let mut codes = std::collections::BTreeSet::new();
        for reason in EndReason::ALL {
            assert!(words.insert(reason.as_str()));
            assert_eq!(EndReason::parse(reason.as_str()), Some(*reason));
            if let Some(code) = reason.code() {
                assert!(codes.insert(code));
            }
            assert_eq!(
                reason.code().is_none(),
                !matches!(reason.outcome(), AdmissionOutcome::Failed)
                    && *reason != EndReason::BudgetExhausted
                    && *reason != EndReason::CrashInterrupted
            );
        }
    }
}
