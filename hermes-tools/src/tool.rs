//! The tool contract: what a tool says of itself, what it is given, what it answers.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::approval::{Approver, Authorized, Clarifier, Risk};
use crate::judge::{Judge, Ruling};

/// What may be done with a call whose result was lost in a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplaySafety {
    /// No effect at all: run it again.
    Pure,
    /// The same call twice has the effect of one: run it again.
    Idempotent,
    /// May have an effect that must not happen twice: never run it again.
    Once,
}

/// Which calls of one round may run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Concurrency {
    /// Beside any other shared or path-scoped call.
    Shared,
    /// Beside calls whose paths do not conflict (see [`Tool::paths`]).
    Paths,
    /// Beside none: calls before it end first, calls after it wait.
    Barrier,
}

/// One path that a call reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathUse {
    /// The path as resolved against the session's working directory.
    pub path: PathBuf,
    /// True when the call may change it.
    pub writes: bool,
}

/// What a tool says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// The name that the model calls.
    pub name: String,
    /// The elementary toolset that it belongs to.
    pub toolset: &'static str,
    /// What it does, for the model.
    pub description: String,
    /// A JSON Schema of type `object`.
    pub parameters: Value,
    /// What may be done after a crash.
    pub replay: ReplaySafety,
    /// What may run beside it.
    pub concurrency: Concurrency,
    /// False for tools that wait for people or have their own limit: the batch's time limit does not end them.
    pub timed: bool,
    /// Largest result in characters before it is spilled to a file; `None` = the general budget, `Some(usize::MAX)` =
    /// the tool limits itself.
    pub result_max_chars: Option<usize>,
}

impl ToolSpec {
    /// A tool of a host's own, in the toolset `custom`. What nothing is known of is taken to be dangerous: it is not
    /// run again after a crash and not beside other calls. Say otherwise in the fields.
    #[must_use]
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        Self {
            name: name.into(),
            toolset: "custom",
            description: description.into(),
            parameters,
            replay: ReplaySafety::Once,
            concurrency: Concurrency::Barrier,
            timed: true,
            result_max_chars: None,
        }
    }
}

/// One call with its parsed and coerced arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The caller's id of the call; unique within a conversation.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments: a JSON object that fits the tool's schema.
    pub arguments: Value,
}

/// How a call ended. Every call ends in exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// It did what it says.
    Ok,
    /// It ran and reports a failure.
    Failed,
    /// It was not allowed, and did not run.
    Denied,
    /// The call itself was wrong (unknown tool, bad arguments), and did not run.
    Invalid,
    /// The turn was stopped before it began.
    Skipped,
    /// Its time ran out; it was ended, and may have had a part of its effect.
    TimedOut,
    /// The turn was stopped while it ran; it was ended, and may have had a part of its effect.
    Interrupted,
    /// Nobody knows: the process died while it ran.
    OutcomeUnknown,
}

/// The end of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallReport {
    /// How it ended.
    pub outcome: CallOutcome,
    /// What the model is told.
    pub content: String,
    /// One line for a person (`exit 0, 12 lines`); may be empty.
    pub summary: String,
    /// Facts for clients (diff, exit code, spill path); never shown to the model.
    pub meta: Option<Value>,
}

impl CallReport {
    /// A report with that outcome and text.
    #[must_use]
    pub fn new(outcome: CallOutcome, content: impl Into<String>) -> Self {
        Self { outcome, content: content.into(), summary: String::new(), meta: None }
    }

    /// The same report with a line for a person.
    #[must_use]
    pub fn with_summary(mut self, summary: impl Into<String>) -> Self {
        self.summary = summary.into();
        self
    }
}

/// What a running call tells the screen.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CallProgress {
    /// The call was allowed and begins.
    Started {
        /// One line that shows what is done (`echo hello`).
        label: String,
    },
    /// A person is being asked.
    Waiting {
        /// For what.
        what: String,
    },
    /// A judge has decided, in a person's place.
    Judged {
        /// The judge, for people (`openrouter/small-model`).
        judge: String,
        /// What it said: yes or no.
        ruling: Ruling,
    },
    /// More output of a running command.
    Output {
        /// Text as it came, cleaned of control sequences.
        text: String,
    },
}

/// Whose tools these are. An explicit argument of everything that touches a home; there is no global.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolScope {
    /// The profile's name.
    pub profile: String,
    /// The profile's home; spilled results and process records go below it. `None` when the host has none: results
    /// are then cut and not spilled.
    pub home: Option<PathBuf>,
}

/// What a tool is given beside its call. Cheap to clone.
#[derive(Clone)]
pub struct ToolContext {
    /// Whose tools these are.
    pub scope: Arc<ToolScope>,
    /// State that lives as long as the conversation is worked on in this process: working directory, files that were
    /// read, the todo list, background processes.
    pub session: Arc<crate::session::ToolSession>,
    /// Ends the call when the turn is stopped.
    pub cancel: CancellationToken,
    /// Who is asked for approval.
    pub approver: Arc<dyn Approver>,
    /// Who is asked about dangerous commands before a person is; none asks the person at once. Heard only where the policy's
    /// mode is [`crate::ApprovalMode::Smart`].
    pub judge: Option<Arc<dyn Judge>>,
    /// Who answers questions of the model.
    pub clarifier: Arc<dyn Clarifier>,
    /// Shows progress; never blocks.
    pub progress: Arc<dyn Fn(CallProgress) + Send + Sync>,
}

/// One tool.
#[async_trait]
pub trait Tool: Send + Sync {
    /// What the tool says of itself.
    fn spec(&self) -> &ToolSpec;

    /// The paths that a call reads or writes; asked only of [`Concurrency::Paths`] tools.
    fn paths(&self, _call: &Call, _cx: &ToolContext) -> Vec<PathUse> {
        Vec::new()
    }

    /// What the approval policy has to judge.
    fn risk(&self, call: &Call, cx: &ToolContext) -> Risk;

    /// One line that shows what the call does, for the screen and the approval prompt.
    fn label(&self, call: &Call) -> String;

    /// Longest time in milliseconds that the call may take by its own rules: until then its silence says nothing.
    /// `None` = a timed tool has the batch's time, and the others wait for somebody for as long as it takes.
    fn limit_ms(&self, _call: &Call, _cx: &ToolContext) -> Option<u64> {
        None
    }

    /// Runs the call. Ends soon after `cx.cancel` is cancelled, with what it started gone.
    async fn call(&self, call: Authorized<Call>, cx: &ToolContext) -> CallReport;

    /// Gives the session's state back what an earlier process's result of this tool said (the todo list).
    fn hydrate(&self, _session: &crate::session::ToolSession, _result: &str) {}
}

pub use crate::registry::{ToolRegistry, ToolSelection};
