//! The script that both sides of a judgement mean, and the scripted server that speaks it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::judge::child::{Line, Running};
use crate::shell;

/// The script, relative to the root of the workspace.
const FILE: &str = "hermes-providers/tests/fake.json";
/// Longest start of the scripted server, which opens one socket.
const START_MAX_S: u64 = 60;

/// Answers by question, one for each round of calls.
pub(super) type Script = BTreeMap<String, Vec<Answer>>;

/// What an answer means: the fields of `hermes_providers::fake::FakeAnswer`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Answer {
    pub(super) reasoning: String,
    pub(super) proof: String,
    pub(super) text: String,
    pub(super) calls: Vec<Call>,
    pub(super) finish: Finish,
    pub(super) usage: Usage,
    pub(super) error: Option<Error>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Finish {
    #[default]
    Whole,
    Length,
    Filtered,
}

/// Counts; what is not told counts as nought here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Usage {
    pub(super) input_uncached: Option<u64>,
    pub(super) cache_read: Option<u64>,
    pub(super) cache_write: Option<u64>,
    pub(super) output: Option<u64>,
    pub(super) reasoning: Option<u64>,
}

impl Usage {
    /// All tokens of the prompt.
    pub(super) fn prompt(&self) -> u64 {
        [self.input_uncached, self.cache_read, self.cache_write].into_iter().flatten().sum()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Error {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
    #[serde(default)]
    pub(super) retry_after_s: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ErrorKind {
    RateLimited,
    Overloaded,
    Unauthorized,
    Invalid,
}

impl ErrorKind {
    /// The status that most servers have for it, and the class that our client gives it.
    pub(super) fn status_and_class(self) -> (u16, &'static str) {
        match self {
            Self::RateLimited => (429, "rate_limit"),
            Self::Overloaded => (503, "overloaded"),
            Self::Unauthorized => (401, "auth"),
            Self::Invalid => (400, "bad_request"),
        }
    }
}

/// Where the script is.
pub(super) fn file() -> PathBuf {
    shell::root().join(FILE)
}

/// Reads the script.
pub(super) fn read() -> Result<Script> {
    let text = std::fs::read_to_string(file()).with_context(|| format!("cannot read {FILE}"))?;
    serde_json::from_str(&text).with_context(|| format!("{FILE} is no script"))
}

/// Builds and starts the scripted server; it and its address, without a path.
pub(super) fn serve() -> Result<(Running, String)> {
    let program = shell::built(&["-p", "hermes-providers", "--features", "test-util", "--example", "fake_server"])?;
    serve_with(&program)
}

fn serve_with(program: &Path) -> Result<(Running, String)> {
    let server = Running::start("the scripted server", Command::new(program).arg(file()))?;
    match server.line(Duration::from_secs(START_MAX_S))? {
        Some(Line { text, .. }) => Ok((server, text)),
        None => bail!("the scripted server ended before it answered"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_read_and_has_something_of_everything() {
        let script = read().unwrap();
        let all: Vec<&Answer> = script.values().flatten().collect();
        assert!(all.iter().any(|answer| answer.calls.len() > 1), "parallel calls");
        assert!(all.iter().any(|answer| !answer.reasoning.is_empty() && !answer.proof.is_empty()), "reasoning");
        assert!(all.iter().any(|answer| answer.usage.prompt() > answer.usage.input_uncached.unwrap_or(0)), "caches");
        assert!(script.values().any(|answers| answers.len() > 2), "several rounds");
        for kind in [ErrorKind::RateLimited, ErrorKind::Overloaded, ErrorKind::Unauthorized, ErrorKind::Invalid] {
            assert!(all.iter().any(|answer| answer.error.as_ref().is_some_and(|error| error.kind == kind)), "{kind:?}");
        }
        for finish in [Finish::Whole, Finish::Length, Finish::Filtered] {
            assert!(all.iter().any(|answer| answer.finish == finish), "{finish:?}");
        }
    }
}
