//! What is happening now. Lossy by contract: the transcript says what happened.
//!
//! An event that concerns a row is emitted only after that row is durable; deltas of a running answer concern no row.

use hermes_store::{AdmissionId, CallId, CallOutcome, ConversationId, DelegationId, SessionId, TitleSource, TurnId};
use hermes_tools::Ruling;
use serde::{Deserialize, Serialize};

use crate::end::TurnResult;
use crate::limits::TAKEN_SHOWN_MAX_CHARS;
use crate::ring::Cursor;

/// One event of one conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The conversation.
    pub conversation: ConversationId,
    /// The turn; none for events outside a turn.
    pub turn: Option<TurnId>,
    /// Its place among the conversation's events, which the engine gives it when it is told.
    #[serde(default, skip_serializing_if = "Cursor::is_none")]
    pub at: Cursor,
    /// What happens.
    #[serde(flatten)]
    pub kind: EventKind,
}

impl Event {
    /// An event that has no place yet.
    #[must_use]
    pub fn new(conversation: ConversationId, turn: Option<TurnId>, kind: EventKind) -> Self {
        Self { conversation, turn, at: Cursor::default(), kind }
    }
}

impl TakenInput {
    /// Of an input with this text.
    pub(crate) fn new(admission: AdmissionId, text: &str) -> Self {
        Self { admission, text: text.chars().take(TAKEN_SHOWN_MAX_CHARS).collect() }
    }
}

/// One call of a recorded round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedCall {
    /// The call.
    pub call: CallId,
    /// The tool.
    pub name: String,
    /// One line that shows what is done (`echo hello`).
    pub label: String,
}

/// An input that a running turn took in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenInput {
    /// The input.
    pub admission: AdmissionId,
    /// What was said, cut to [`TAKEN_SHOWN_MAX_CHARS`](crate::limits::TAKEN_SHOWN_MAX_CHARS); the transcript has it all.
    pub text: String,
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The input waits: another turn of the conversation runs somewhere.
    Waiting {
        /// For what, for a person.
        reason: String,
    },
    /// A turn began.
    TurnStarted {
        /// Its input.
        admission: AdmissionId,
        /// How often it was begun; above 1 after a crash.
        attempt: i64,
    },
    /// A turn that a crash left open was dealt with.
    Recovered {
        /// What was done, for a person.
        what: String,
    },
    /// A session was opened.
    SessionOpened {
        /// The session.
        session: SessionId,
        /// Provider and model.
        model: String,
    },
    /// A request goes to the model.
    RequestStarted {
        /// Count of requests in this turn, from 1.
        number: u64,
        /// Provider and model.
        model: String,
    },
    /// More of the answer.
    TextDelta {
        /// Text, to be appended.
        text: String,
    },
    /// More reasoning.
    ReasoningDelta {
        /// Text, to be appended.
        text: String,
    },
    /// The answer begins anew after a lost connection: what was shown of it is void.
    TextRestarted,
    /// People spoke, and the running turn reads it with its next request; the answer is not cut.
    Steered {
        /// What was said, oldest first.
        inputs: Vec<TakenInput>,
    },
    /// People spoke, and the request was cut for it: the model is asked anew. Where text of the cut answer was shown,
    /// [`EventKind::TextRestarted`] follows.
    Redirected {
        /// What was said, oldest first. Empty when the answer of the store was lost: then only the transcript has it.
        inputs: Vec<TakenInput>,
        /// Whether what was shown of the cut answer stands in the transcript, as a row of its own before the inputs. Else
        /// it is void.
        kept: bool,
    },
    /// The model is writing a call.
    CallAnnounced {
        /// The tool.
        name: String,
    },
    /// The calls of a round are durable and will run.
    RoundRecorded {
        /// Text that the model wrote before them.
        text: String,
        /// The calls, in order.
        calls: Vec<PlannedCall>,
    },
    /// A call begins.
    CallStarted {
        /// The call.
        call: CallId,
        /// The tool.
        name: String,
        /// What is done.
        label: String,
    },
    /// A call waits for a person.
    CallWaiting {
        /// The call.
        call: CallId,
        /// For what.
        what: String,
    },
    /// A judge has decided about a call, in a person's place, and that is durable.
    CallJudged {
        /// The call.
        call: CallId,
        /// The judge (`openrouter/small-model`).
        judge: String,
        /// What it said: yes or no.
        ruling: Ruling,
    },
    /// More output of a running call.
    CallOutput {
        /// The call.
        call: CallId,
        /// Text, to be appended.
        text: String,
    },
    /// A call ended, and its result is durable.
    CallFinished {
        /// The call.
        call: CallId,
        /// The tool.
        name: String,
        /// How it ended.
        outcome: CallOutcome,
        /// One line for a person.
        summary: String,
        /// What the model is told, cut.
        preview: String,
    },
    /// The model's window is being grown, so that the history need not be shortened. Its server starts anew, which takes as
    /// long as loading the model does.
    WindowGrowing {
        /// Size of the next request in tokens.
        tokens: u64,
        /// The window in tokens.
        window: u64,
    },
    /// The model has a larger window.
    WindowGrown {
        /// Provider and model.
        model: String,
        /// The window before, in tokens.
        before: u64,
        /// The window now, in tokens.
        after: u64,
    },
    /// The history is being shortened.
    CompressionStarted {
        /// Size of the next request in tokens.
        tokens: u64,
        /// The model's window in tokens.
        window: u64,
    },
    /// The history was shortened; the old rows are still shown to people.
    Compressed {
        /// The session that goes on.
        session: SessionId,
        /// Size of the history before, in tokens by estimate.
        before: u64,
        /// Size after, by the same estimate.
        after: u64,
    },
    /// The conversation has another title, and it is durable.
    TitleChanged {
        /// The title.
        title: String,
        /// Who gave it.
        source: TitleSource,
    },
    /// Something went wrong and is tried again.
    Retrying {
        /// What went wrong, for a person.
        message: String,
        /// Wait before the next attempt, in milliseconds.
        wait_ms: u64,
        /// Which attempt comes next, from 2.
        attempt: u32,
        /// Most attempts.
        attempts_max: u32,
    },
    /// A request did not begin with the one before it (I18), and nothing explains it: what the provider had cached is paid
    /// for again. Nothing is wrong with the answer; it is a defect that should be reported.
    PrefixBroken {
        /// The first message that differs, from 0; none when the system prompt does.
        message_index: Option<u64>,
        /// Whose message stands there now: `system`, `user`, `assistant`, `tool`; `none` when there is none.
        role: String,
        /// What differs, for a person.
        why: String,
    },
    /// Something that a person should know.
    Notice {
        /// The text.
        text: String,
    },
    /// Something happens in a child of this turn; it is told in the child's conversation too. The pieces of its running
    /// answers and outputs are told only there.
    Child {
        /// The delegation: the id of the call that gave the task, a dot, and the task's place in it, from 0.
        delegation: DelegationId,
        /// The event of the child.
        event: Box<Event>,
    },
    /// The turn is over.
    TurnEnded {
        /// How.
        result: Box<TurnResult>,
    },
}

/// Takes events, those of one conversation in the order of their places. Infallible and never blocking: a slow reader loses
/// events, never the turn. It is called where the engine tells them one after another, and does not call the engine.
pub trait EventSink: Send + Sync {
    /// Takes one event.
    fn emit(&self, event: Event);
}

/// A function is a sink.
impl<F: Fn(Event) + Send + Sync> EventSink for F {
    fn emit(&self, event: Event) {
        self(event);
    }
}

/// Drops every event.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn emit(&self, _event: Event) {}
}
