//! The seam for a judge: who is asked about a dangerous command before a person is (`approvals.mode: smart`).
//!
//! A judge stands behind everything that never runs and everything that the configuration denies, and before the person:
//! it can spare a question, and it can say no. It is asked only where a person could be asked too, about one command,
//! and what it allows is allowed once. Whatever is not a clear yes or no is a question to the person (I23).

use std::path::PathBuf;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::approval::Denial;

/// Longest command that a judge is asked about, in bytes; a person is asked about longer ones at once. A judge that
/// reads a long script in a hurry is easily led.
pub const JUDGED_COMMAND_MAX_BYTES: usize = 16 * 1024;

/// Refusals by a judge in a row after which the model is told to stop (`approvals.denial_breaker_threshold`, 3).
pub const JUDGE_REFUSALS_MAX: u32 = 3;

/// One command that was recognised as dangerous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgeCase {
    /// The call's id.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// What would run, without its comments: they do nothing, and may speak to the judge. Foreign text.
    pub command: String,
    /// Where it would run.
    pub workdir: PathBuf,
    /// What was recognised as dangerous. May quote the command.
    pub reasons: Vec<String>,
}

/// What a judge says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// It may run, this once.
    Approve,
    /// It may not run.
    Deny,
    /// A person is to decide. Everything that is unclear is this.
    Escalate,
}

impl Ruling {
    /// As it is written where machines read it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
            Self::Escalate => "escalate",
        }
    }
}

/// A ruling, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What is said.
    pub ruling: Ruling,
    /// The judge, for people (`openrouter/small-model`); empty when nobody said anything.
    pub judge: String,
    /// Why a person is asked, for a log; empty where the ruling says it all.
    pub note: String,
}

impl Judgement {
    /// A person decides, because of this.
    #[must_use]
    pub fn escalate(judge: impl Into<String>, note: impl Into<String>) -> Self {
        Self { ruling: Ruling::Escalate, judge: judge.into(), note: note.into() }
    }
}

/// Rules on a dangerous command.
#[async_trait]
pub trait Judge: Send + Sync {
    /// The ruling. Bounded in time by whoever implements it; a failure of any kind is [`Ruling::Escalate`]. A yes or a no
    /// is written down, with whose it is, before this returns it.
    async fn judge(&self, case: JudgeCase) -> Judgement;
}

/// What the model is told of a refusal; `refusals` in a row are there with this one, and `most` of them are one too many
/// (0: never).
pub(crate) fn refusal(judge: &str, reasons: &[String], refusals: u32, most: u32) -> Denial {
    let why = reasons.join("; ");
    let message = if most > 0 && refusals >= most {
        format!(
            "not allowed: the approval judge ({judge}) refused it ({why}), the {refusals}. refusal in a row. It was not \
             run. Stop here: make no further call of this kind in any form. Tell the user what you wanted to do and why, \
             and wait for an answer."
        )
    } else {
        format!(
            "not allowed: the approval judge ({judge}) refused it ({why}). It was not run. Do not try it again in another \
             form; take a way without it, or leave it and say so to the user, who can do it himself or set approvals.mode to \
             manual to be asked."
        )
    };
    Denial { message, hard: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_too_many_refusals_in_a_row_tells_the_model_to_stop() {
        let told = |refusals, most| refusal("p/m", &["recursive".to_owned()], refusals, most).message;
        for (refusals, most, stops) in [(1, 3, false), (2, 3, false), (3, 3, true), (4, 3, true), (9, 0, false)] {
            let text = told(refusals, most);
            assert_eq!(text.contains("Stop here"), stops, "{refusals} of {most}: {text}");
            assert!(text.contains("p/m") && text.contains("recursive") && text.contains("not run"), "{text}");
        }
    }
}
