//! What the engine needs of its host: time, files for the prompt, people, tools.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use hermes_store::{CallId, ConversationId};
use hermes_tools::{ApprovalPolicy, Approver, Clarifier, Executor, ToolRegistry, ToolScope, ToolSelection};

pub use hermes_tools::ToolSession;

/// Time. The engine knows no other: neither the wall clock nor a timer of the runtime.
pub trait Clock: Send + Sync {
    /// Now, in milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;

    /// Ends after `ms` milliseconds.
    fn sleep(&self, ms: u64) -> BoxFuture<'static, ()>;
}

/// One file that goes into the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextFile {
    /// The name that the model is told.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// What a prompt is built from, read once per session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PromptMaterial {
    /// Text of `SOUL.md`, when the profile has one.
    pub soul: Option<String>,
    /// How people read what is written (a terminal, a chat), in a sentence for the model.
    pub surface: Option<String>,
    /// What the host adds to every prompt of its own.
    pub instructions: Option<String>,
    /// Project context files, in the order of precedence.
    pub files: Vec<ContextFile>,
    /// What the workspace looks like as the session begins (branch, changes): foreign text.
    pub workspace: Option<String>,
    /// The skills that there are, one line each: foreign text.
    pub skills: Option<String>,
    /// Notes of earlier sessions (`memories/MEMORY.md`).
    pub memory: Option<String>,
    /// What is known of the user (`memories/USER.md`).
    pub user: Option<String>,
    /// Working directory of the session's tools.
    pub cwd: Option<String>,
    /// The profile's name.
    pub profile: String,
    /// Today, as `2026-12-02`.
    pub date: String,
    /// The operating system, as `linux x86_64`.
    pub system: String,
    /// What went wrong while reading (a time-out, an unreadable file), for a person.
    pub notes: Vec<String>,
}

/// Reads the material of a prompt. Bounded in time: what cannot be read is left out with a note.
#[async_trait]
pub trait PromptSource: Send + Sync {
    /// The material for a session in `cwd`.
    async fn material(&self, cwd: Option<&str>) -> PromptMaterial;
}

/// A source without files, for embedders that have none.
#[derive(Debug, Clone, Default)]
pub struct FixedPrompt(pub PromptMaterial);

#[async_trait]
impl PromptSource for FixedPrompt {
    async fn material(&self, _cwd: Option<&str>) -> PromptMaterial {
        self.0.clone()
    }
}

/// Who is asked in a conversation.
pub trait People: Send + Sync {
    /// Who allows calls.
    fn approver(&self, conversation: &ConversationId) -> Arc<dyn Approver>;
    /// Who answers questions of the model.
    fn clarifier(&self, conversation: &ConversationId) -> Arc<dyn Clarifier>;
    /// Whether somebody sees what the conversation does while it does it, and could stop it. Where nobody does, a turn
    /// that goes in circles is ended and not only warned.
    fn watching(&self, _conversation: &ConversationId) -> bool {
        true
    }
}

/// Opens the tools' state of a conversation.
#[async_trait]
pub trait ToolSessions: Send + Sync {
    /// The state of a conversation whose tools work in `cwd` (the host's own directory when none is given).
    async fn open(&self, conversation: &ConversationId, cwd: Option<&str>) -> Arc<ToolSession>;
    /// Ends processes that calls of a dead owner left behind, before their outcome is told. Does nothing where tools
    /// start none.
    async fn end_leftovers(&self, _calls: &[CallId]) {}
    /// Ends what the session started (background processes).
    async fn close(&self, session: Arc<ToolSession>);
}

/// Everything about tools.
#[derive(Clone)]
pub struct ToolHost {
    /// The tools that exist.
    pub registry: Arc<ToolRegistry>,
    /// Those that sessions have.
    pub selection: ToolSelection,
    /// Who runs them.
    pub executor: Arc<Executor>,
    /// Who judges calls.
    pub policy: Arc<ApprovalPolicy>,
    /// Whose tools they are.
    pub scope: Arc<ToolScope>,
    /// Their state per conversation.
    pub sessions: Arc<dyn ToolSessions>,
    /// Who is asked.
    pub people: Arc<dyn People>,
    /// Working directory of new sessions.
    pub cwd: Option<String>,
}
