//! A round: one assistant message with its calls and their results, as a typestate.
//!
//! `Round<Planned>` is what a model asked for. [`crate::TranscriptStore::record_round`] makes it durable and returns
//! `Round<Recorded>`, the only kind that can be executed. With one [`SettledCall`] for each call, which only the store
//! hands out, it becomes `Round<Settled>`, the only kind whose results a model may see.
//!
//! A planned round cannot be taken for a recorded one:
//!
//! ```compile_fail,E0308
//! use hermes_store::{Planned, Recorded, Round};
//! fn execute(_: Round<Recorded>) {}
//! fn too_early(round: Round<Planned>) {
//!     execute(round);
//! }
//! ```
//!
//! nor be closed without the store's proofs:
//!
//! ```compile_fail,E0624
//! use hermes_store::{CallId, SettledCall};
//! let proof = SettledCall::new(CallId::parse("c").unwrap());
//! ```

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{CallId, MessageId, TurnId};
use crate::machine::machine;
use crate::message::{NewMessage, UsageDelta};

macro_rules! words {
    ($ty:ident { $($variant:ident => $word:literal),* $(,)? }) => {
        impl $ty {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word that is stored.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            /// Reads the stored word back.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    };
}
pub(crate) use words;

/// What may be done with a call whose result was lost in a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplaySafety {
    /// No effect: run it again.
    Pure,
    /// Twice is once: run it again.
    Idempotent,
    /// Never run it again.
    Once,
}

words!(ReplaySafety { Pure => "pure", Idempotent => "idempotent", Once => "once" });

/// How far a call got, as far as the journal knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalState {
    /// Recorded; provably not begun (calls of pure tools stay here until they are settled).
    Recorded,
    /// About to have an effect, or having it.
    Started,
    /// Its result is stored.
    Settled,
}

/// What can happen to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JournalEvent {
    /// It is about to have an effect; again, when a recovery repeats one that may be repeated.
    Start,
    /// Its result is stored.
    Settle,
}

machine!(
    CALL_MACHINE, "a tool call",
    JournalState { Recorded => "recorded", Started => "started", Settled => "settled" },
    JournalEvent { Start => "start", Settle => "settle" },
    [(Recorded, Start, Started), (Recorded, Settle, Settled), (Started, Start, Started), (Started, Settle, Settled)],
);

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// It did what it says.
    Ok,
    /// It ran and reports a failure.
    Failed,
    /// It was not allowed, and did not run.
    Denied,
    /// The call itself was wrong, and did not run.
    Invalid,
    /// The turn ended before it began.
    Skipped,
    /// Its time ran out; it may have had a part of its effect.
    TimedOut,
    /// It was stopped while it ran; it may have had a part of its effect.
    Interrupted,
    /// The process died while it ran; nobody knows what it did.
    OutcomeUnknown,
}

words!(CallOutcome {
    Ok => "ok", Failed => "failed", Denied => "denied", Invalid => "invalid", Skipped => "skipped",
    TimedOut => "timed_out", Interrupted => "interrupted", OutcomeUnknown => "outcome_unknown",
});

/// The result of a call, to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// How it ended.
    pub outcome: CallOutcome,
    /// What the model is told.
    pub content: String,
    /// Facts for display.
    pub meta: Option<Value>,
}

/// One call of a planned round.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCall {
    /// The store's id of the call, minted by the writer.
    pub call: CallId,
    /// The id of the row that will hold the result.
    pub result: MessageId,
    /// The id that the provider knows the call by; unique within the conversation.
    pub provider_id: String,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments, byte for byte.
    pub arguments: String,
    /// What may be done after a crash.
    pub replay: ReplaySafety,
    /// The result of a call that will not run (invalid): stored together with the round.
    pub preset: Option<CallResult>,
}

/// Not yet durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planned {}
/// Durable; may be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {}
/// Durable with all results; may be shown to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {}

/// One call of a recorded round.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCall {
    /// The call.
    pub new: NewCall,
    /// How far it got when the round was read.
    pub state: JournalState,
}

/// One assistant message with its calls, in the state `S`.
#[derive(Debug, Clone, PartialEq)]
pub struct Round<S> {
    turn: TurnId,
    assistant: NewMessage,
    usage: Option<UsageDelta>,
    calls: Vec<RecordedCall>,
    state: std::marker::PhantomData<S>,
}

/// Proof that the result of a call is stored. Only the store makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledCall {
    call: CallId,
}

impl SettledCall {
    pub(crate) fn new(call: CallId) -> Self {
        Self { call }
    }

    /// The call.
    #[must_use]
    pub fn call(&self) -> &CallId {
        &self.call
    }
}

/// A round was to be closed while a call had no stored result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("call {call} has no stored result")]
pub struct Unsettled {
    /// The first such call.
    pub call: CallId,
}

impl<S> Round<S> {
    /// The turn that the round belongs to.
    #[must_use]
    pub fn turn(&self) -> &TurnId {
        &self.turn
    }

    /// The assistant row.
    #[must_use]
    pub fn assistant(&self) -> &NewMessage {
        &self.assistant
    }

    /// What the request used, if it is to be counted with the round.
    #[must_use]
    pub fn usage(&self) -> Option<&UsageDelta> {
        self.usage.as_ref()
    }

    /// The calls, in the model's order.
    #[must_use]
    pub fn calls(&self) -> &[RecordedCall] {
        &self.calls
    }

    fn into_state<T>(self) -> Round<T> {
        Round {
            turn: self.turn,
            assistant: self.assistant,
            usage: self.usage,
            calls: self.calls,
            state: std::marker::PhantomData,
        }
    }
}

impl Round<Planned> {
    /// What a model asked for, not yet durable.
    #[must_use]
    pub fn plan(turn: TurnId, assistant: NewMessage, calls: Vec<NewCall>, usage: Option<UsageDelta>) -> Self {
        let calls = calls.into_iter().map(|new| RecordedCall { new, state: JournalState::Recorded }).collect();
        Self { turn, assistant, usage, calls, state: std::marker::PhantomData }
    }

    /// The store has committed the round; `states` says how far each call is, in order.
    pub(crate) fn recorded(mut self, states: &[JournalState]) -> Round<Recorded> {
        for (call, state) in self.calls.iter_mut().zip(states) {
            call.state = *state;
        }
        self.into_state()
    }
}

impl Round<Recorded> {
    /// A round as the store reads it back after a crash.
    pub(crate) fn read_back(turn: TurnId, assistant: NewMessage, calls: Vec<RecordedCall>) -> Self {
        Self { turn, assistant, usage: None, calls, state: std::marker::PhantomData }
    }

    /// Closes the round: every call was settled when it was read, or has a proof in `proofs`.
    ///
    /// # Errors
    /// [`Unsettled`] with the first call that has neither.
    pub fn settle(self, proofs: &[SettledCall]) -> Result<Round<Settled>, Unsettled> {
        for call in &self.calls {
            let settled = call.state == JournalState::Settled || proofs.iter().any(|p| p.call == call.new.call);
            if !settled {
                return Err(Unsettled { call: call.new.call.clone() });
            }
        }
        Ok(self.into_state())
    }
}

/// One call in the journal of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalCall {
    /// The call.
    pub call: CallId,
    /// The tool's name.
    pub name: String,
    /// What may be done after a crash.
    pub replay: ReplaySafety,
    /// How far it got.
    pub state: JournalState,
    /// How it ended, when it has.
    pub outcome: Option<CallOutcome>,
}
