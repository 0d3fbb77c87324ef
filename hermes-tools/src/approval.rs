//! Who may do what: the one place that turns a call into an [`Authorized`] call.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use crate::policy::ApprovalPolicy;

/// What a tool asks the policy to judge.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Risk {
    /// Nothing that needs a judgement (a todo list, a question to the user).
    None,
    /// Reads a file.
    Read {
        /// The path, resolved.
        path: std::path::PathBuf,
    },
    /// Changes files.
    Write {
        /// The paths, resolved.
        paths: Vec<std::path::PathBuf>,
    },
    /// Runs a shell command.
    Command {
        /// The whole command text.
        command: String,
        /// Where it would run, resolved.
        workdir: std::path::PathBuf,
    },
    /// Something else that a person must allow: to send a message, to spend money. Denied where nobody is there.
    Ask {
        /// Why, for the person who is asked (`sends a message to a stranger`). "Session" and "always" allow later
        /// calls of the same tool for the same reason.
        why: String,
    },
}

/// How questions are answered in general (`approvals.mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalMode {
    /// Ask a person about what is dangerous (`manual`).
    Prompt,
    /// Ask the judge about dangerous commands first (`smart`), and a person about what it leaves open; without a judge, a
    /// person. Everything else is as in [`ApprovalMode::Prompt`]: a judge is asked only where a person could be.
    Smart,
    /// Ask nobody; hard limits and `deny` still hold (`off`, `--yolo`).
    Off,
}

/// Whether somebody is there to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// Somebody can be asked.
    Attended,
    /// Nobody can: what would be asked is denied.
    Unattended,
}

/// One question to a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// New for every question.
    pub id: String,
    /// The call's id.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// What would be done, whole (the command, the path).
    pub subject: String,
    /// Why it is asked: what was recognised as dangerous.
    pub reasons: Vec<String>,
    /// What "session" and "always" would allow from then on.
    pub pattern: String,
    /// How long an answer is waited for, in milliseconds. No answer means no.
    pub timeout_ms: u64,
}

/// A person's answer. A lost client and a time-out are [`ApprovalAnswer::Deny`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "choice")]
pub enum ApprovalAnswer {
    /// This call only.
    Once,
    /// Calls of the same pattern for the rest of the conversation in this process.
    Session,
    /// Calls of the same pattern from now on; the host writes it to the allow-list.
    Always,
    /// No.
    Deny {
        /// What to tell the model; may be empty.
        reason: String,
    },
}

/// Asks a person.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Asks and waits. Implementations may end early with a denial; the policy bounds the wait by the request's
    /// `timeout_ms` and takes silence for no.
    async fn ask(&self, request: ApprovalRequest) -> ApprovalAnswer;

    /// Writes a pattern that was allowed "always" where later processes find it.
    async fn remember(&self, _pattern: &str) {}
}

/// One question of the model to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClarifyQuestion {
    /// The question.
    pub question: String,
    /// Answers to choose from; empty asks for free text.
    pub choices: Vec<String>,
    /// True when several may be chosen.
    pub multi_select: bool,
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum ClarifyAnswer {
    /// The user's words.
    Answered {
        /// What he said or chose.
        text: String,
    },
    /// The user left it out.
    Skipped,
    /// Nobody answered in time, or nobody is there.
    Unanswered,
}

/// Puts questions of the model to the user.
#[async_trait]
pub trait Clarifier: Send + Sync {
    /// Asks all questions and returns one answer for each, in order.
    async fn clarify(&self, questions: Vec<ClarifyQuestion>) -> Vec<ClarifyAnswer>;
}

/// Why a call may not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// What the model is told.
    pub message: String,
    /// True when no mode and no answer could have allowed it.
    pub hard: bool,
}

/// Proof that the policy allowed exactly this value. Only [`ApprovalPolicy`] makes one:
///
/// ```compile_fail,E0624
/// let call = hermes_tools::Authorized::seal("rm -rf /");
/// ```
#[derive(Debug)]
pub struct Authorized<T> {
    value: T,
}

impl<T> Authorized<T> {
    /// Wraps a value that was judged. Private to the crate on purpose.
    pub(crate) fn seal(value: T) -> Self {
        Self { value }
    }

    /// What was allowed.
    pub fn get(&self) -> &T {
        &self.value
    }

    /// What was allowed, by value.
    pub fn into_inner(self) -> T {
        self.value
    }
}
