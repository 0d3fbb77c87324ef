//! State that lives as long as a conversation is worked on in this process.
//!
//! Locks are short and never held over an await: every method takes one, copies what is asked, and lets go.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// Time that a command gets when the call names none, in milliseconds (tools reference, `terminal`).
const COMMAND_TIMEOUT_MS: u64 = 180_000;

/// Longest time that a foreground command may ask for, in milliseconds.
const COMMAND_TIMEOUT_MAX_MS: u64 = 600_000;

/// Files whose last read is remembered; the oldest are forgotten first.
const READ_FILES_MAX: usize = 4_096;

/// Most characters of a command's output when nothing else is configured (`tool_output.max_bytes`).
pub(crate) const OUTPUT_MAX_CHARS: usize = 50_000;

/// What a session starts with.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// The working directory; absolute.
    pub cwd: PathBuf,
    /// The environment that commands get, before secrets are taken out. `HOME` names the user's home.
    pub env: BTreeMap<String, String>,
    /// Names that are passed to commands although they look like secrets.
    pub env_passthrough: Vec<String>,
    /// Time that a command gets when the call names none, in milliseconds.
    pub command_timeout_ms: u64,
    /// Longest time that a foreground command may ask for, in milliseconds.
    pub command_timeout_max_ms: u64,
    /// Most characters of a command's output that the model is shown (`tool_output.max_bytes`); the rest is in a file.
    pub output_max_chars: usize,
    /// When set, files are written only below this directory.
    pub write_root: Option<PathBuf>,
}

impl SessionConfig {
    /// A configuration with default limits.
    #[must_use]
    pub fn new(cwd: PathBuf, env: BTreeMap<String, String>) -> Self {
        Self {
            cwd,
            env,
            env_passthrough: Vec::new(),
            command_timeout_ms: COMMAND_TIMEOUT_MS,
            command_timeout_max_ms: COMMAND_TIMEOUT_MAX_MS,
            output_max_chars: OUTPUT_MAX_CHARS,
            write_root: None,
        }
    }
}

/// How far one item of the todo list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Being done.
    InProgress,
    /// Done.
    Completed,
    /// Given up.
    Cancelled,
}

/// One item of the todo list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoItem {
    /// Chosen by the model; unique in the list.
    pub id: String,
    /// What is to be done.
    pub content: String,
    /// How far it is.
    pub status: TodoStatus,
    /// The item that this one is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

/// What is known of a file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(not(feature = "builtin"), allow(dead_code))]
pub(crate) struct ReadState {
    /// SHA-256 of the whole file when it was read or written last.
    pub(crate) hash: [u8; 32],
    /// True when the model has seen all of it.
    pub(crate) complete: bool,
}

#[derive(Default)]
struct State {
    cwd: PathBuf,
    read: HashMap<PathBuf, (u64, ReadState)>,
    read_clock: u64,
    todos: Vec<TodoItem>,
    todo_revision: u64,
    approved: Vec<String>,
    /// Refusals by a judge in a row.
    refusals: u32,
}

/// State of one conversation in this process: working directory, files that were read, the todo list, what was allowed
/// for the session, background processes.
///
/// Dropping it kills the background processes; [`ToolSession::shutdown`] does so in an orderly way first.
pub struct ToolSession {
    config: SessionConfig,
    state: Mutex<State>,
    #[cfg(feature = "builtin")]
    pub(crate) processes: crate::builtin::processes::ProcessTable,
}

impl std::fmt::Debug for ToolSession {
    /// Names the working directory only: the environment may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolSession").field("cwd", &self.cwd()).finish_non_exhaustive()
    }
}

impl ToolSession {
    /// A new session.
    #[must_use]
    pub fn new(config: SessionConfig) -> Self {
        let state = State { cwd: config.cwd.clone(), ..State::default() };
        Self {
            config,
            state: Mutex::new(state),
            #[cfg(feature = "builtin")]
            processes: crate::builtin::processes::ProcessTable::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment, so the state of a panicked holder is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the session was made with.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// The working directory.
    pub fn cwd(&self) -> PathBuf {
        self.state().cwd.clone()
    }

    /// Changes the working directory.
    pub fn set_cwd(&self, cwd: PathBuf) {
        self.state().cwd = cwd;
    }

    /// The user's home, when the environment names one.
    pub fn home(&self) -> Option<PathBuf> {
        self.config.env.get("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
    }

    /// An absolute path: `~` stands for the home, relative paths start at the working directory, `.` and `..` are
    /// worked out by the text. Links are not followed here.
    pub fn resolve(&self, path: &str) -> PathBuf {
        let expanded = match (path.strip_prefix('~'), self.home()) {
            (Some(""), Some(home)) => home,
            (Some(rest), Some(home)) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
            _ => PathBuf::from(path),
        };
        normalize(&self.cwd().join(expanded))
    }

    /// The todo list and its revision, which grows with every change.
    pub fn todos(&self) -> (Vec<TodoItem>, u64) {
        let state = self.state();
        (state.todos.clone(), state.todo_revision)
    }

    /// Replaces the todo list; returns the new revision.
    pub fn set_todos(&self, todos: Vec<TodoItem>) -> u64 {
        let mut state = self.state();
        state.todos = todos;
        state.todo_revision += 1;
        state.todo_revision
    }

    /// Gives the list of an earlier process back, unless a newer one is there.
    pub fn restore_todos(&self, todos: Vec<TodoItem>, revision: u64) {
        let mut state = self.state();
        if revision >= state.todo_revision {
            state.todos = todos;
            state.todo_revision = revision;
        }
    }

    /// True when a person allowed that pattern for the session.
    pub(crate) fn is_approved(&self, pattern: &str) -> bool {
        self.state().approved.iter().any(|approved| approved == pattern)
    }

    /// Remembers a pattern that was allowed for the session.
    pub(crate) fn approve(&self, pattern: &str) {
        let mut state = self.state();
        if !state.approved.iter().any(|approved| approved == pattern) {
            state.approved.push(pattern.to_owned());
        }
    }

    /// A judge refused a call; says how many refusals in a row there are now.
    pub(crate) fn judge_refused(&self) -> u32 {
        let mut state = self.state();
        state.refusals = state.refusals.saturating_add(1);
        state.refusals
    }

    /// Something was allowed: the next refusal is the first.
    pub(crate) fn forget_refusals(&self) {
        self.state().refusals = 0;
    }

    /// Ends background processes and waits until they are gone.
    pub async fn shutdown(&self) {
        #[cfg(feature = "builtin")]
        self.processes.shutdown().await;
    }
}

#[cfg_attr(not(feature = "builtin"), allow(dead_code))]
impl ToolSession {
    /// What is known of a file that was read; the path is canonical.
    pub(crate) fn read_state(&self, path: &Path) -> Option<ReadState> {
        self.state().read.get(path).map(|(_, state)| state.clone())
    }

    /// Remembers what was read or written.
    pub(crate) fn note_read(&self, path: PathBuf, read: ReadState) {
        let mut state = self.state();
        state.read_clock += 1;
        let clock = state.read_clock;
        state.read.insert(path, (clock, read));
        if state.read.len() > READ_FILES_MAX {
            let oldest = state.read.iter().min_by_key(|(_, (clock, _))| *clock).map(|(path, _)| path.clone());
            if let Some(oldest) = oldest {
                state.read.remove(&oldest);
            }
        }
    }
}

/// Works out `.` and `..` by the text alone.
pub(crate) fn normalize(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !out.pop() {
                    out.push("/");
                }
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> ToolSession {
        let env = BTreeMap::from([("HOME".to_owned(), "/home/u".to_owned())]);
        ToolSession::new(SessionConfig::new(PathBuf::from("/w/d"), env))
    }

    #[test]
    fn paths_are_resolved_against_the_working_directory_and_the_home() {
        let session = session();
        assert_eq!(session.resolve("a/../b"), Path::new("/w/d/b"));
        assert_eq!(session.resolve("~/x"), Path::new("/home/u/x"));
        assert_eq!(session.resolve("~"), Path::new("/home/u"));
        assert_eq!(session.resolve("~other"), Path::new("/w/d/~other"));
        assert_eq!(session.resolve("../../../.."), Path::new("/"));
        assert_eq!(session.resolve("/etc/./x"), Path::new("/etc/x"));
    }

    #[test]
    fn a_restored_todo_list_never_replaces_a_newer_one() {
        let session = session();
        let item = |id: &str| TodoItem {
            id: id.to_owned(),
            content: "c".to_owned(),
            status: TodoStatus::Pending,
            parent: None,
        };
        session.restore_todos(vec![item("old")], 4);
        assert_eq!(session.todos(), (vec![item("old")], 4));
        assert_eq!(session.set_todos(vec![item("new")]), 5);
        session.restore_todos(vec![item("old")], 4);
        assert_eq!(session.todos(), (vec![item("new")], 5));
    }
}
