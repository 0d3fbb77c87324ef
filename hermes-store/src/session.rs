//! Conversations and their sessions.

use serde::{Deserialize, Serialize};

use crate::admission::AdmissionStatus;
use crate::ids::{ConversationId, MessageId, SessionId};
use crate::prompt::{PromptHash, PromptSnapshot};
use crate::round::words;

/// A conversation to be created, before its first input. Creating an existing one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewConversation {
    /// Its id, and that of its first session.
    pub id: ConversationId,
    /// The profile that it belongs to.
    pub profile: String,
    /// Where it comes from (`cli`, `oneshot`, `api_server`, ...).
    pub source: String,
    /// A title, when one is given from the start.
    pub title: Option<String>,
}

/// A session to be opened, with the prompt that all its requests begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// Its id.
    pub id: SessionId,
    /// The session that it goes on from.
    pub parent: Option<SessionId>,
    /// Provider id.
    pub provider: String,
    /// Model name.
    pub model: String,
    /// Working directory of its tools.
    pub cwd: Option<String>,
    /// The system prompt.
    pub prompt: PromptSnapshot,
    /// The canonical bytes of its tool list.
    pub tools: PromptSnapshot,
}

/// A session as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its id.
    pub id: SessionId,
    /// Its conversation.
    pub conversation: ConversationId,
    /// The session that it goes on from.
    pub parent: Option<SessionId>,
    /// Provider id.
    pub provider: String,
    /// Model name.
    pub model: String,
    /// Working directory of its tools.
    pub cwd: Option<String>,
    /// Hash of the system prompt.
    pub prompt: PromptHash,
    /// Hash of the tool list.
    pub tools: PromptHash,
    /// When it was opened, in milliseconds since the Unix epoch.
    pub started_at_ms: i64,
    /// When it was closed.
    pub ended_at_ms: Option<i64>,
    /// Why it was closed (`compression`, `prompt_changed`).
    pub end_reason: Option<String>,
}

/// Who gave a title. A weaker source never replaces a stronger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TitleSource {
    /// Cut from the first input.
    Derived,
    /// Written by a model.
    Model,
    /// Given by the user.
    User,
}

words!(TitleSource { Derived => "derived", Model => "model", User => "user" });

/// Which conversations to list, newest activity first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationFilter {
    /// Only those of this profile.
    pub profile: Option<String>,
    /// Only those from this source.
    pub source: Option<String>,
    /// Only those whose last activity is older than this, in milliseconds since the Unix epoch: the next page.
    pub before_ms: Option<i64>,
    /// Only those whose id begins with this text.
    pub id_prefix: Option<String>,
    /// Only those with exactly this title (after cleaning).
    pub title: Option<String>,
    /// Most rows, up to [`crate::limits::PAGE_MAX_ROWS`].
    pub limit: usize,
}

impl Default for ConversationFilter {
    fn default() -> Self {
        Self { profile: None, source: None, before_ms: None, id_prefix: None, title: None, limit: 50 }
    }
}

/// A conversation in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationSummary {
    /// Its id.
    pub id: ConversationId,
    /// Its last session, once it has one.
    pub tip: Option<SessionId>,
    /// The profile.
    pub profile: String,
    /// Where it comes from.
    pub source: String,
    /// Its title.
    pub title: Option<String>,
    /// Who gave the title.
    pub title_source: Option<TitleSource>,
    /// Provider and model of the tip.
    pub provider: Option<String>,
    /// Model of the tip.
    pub model: Option<String>,
    /// Working directory of the tip.
    pub cwd: Option<String>,
    /// Rows that people see.
    pub messages: u64,
    /// The first input, cut.
    pub preview: Option<String>,
    /// When it was created, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
    /// When it was last written to.
    pub last_activity_ms: i64,
    /// The status of the oldest admission that is not over, if any.
    pub pending: Option<AdmissionStatus>,
}

/// One row that a search found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchHit {
    /// The conversation.
    pub conversation: ConversationId,
    /// Its title.
    pub title: Option<String>,
    /// The row.
    pub message: MessageId,
    /// Its place.
    pub seq: i64,
    /// Who speaks (`user`, `assistant`, `tool`).
    pub role: String,
    /// Text around the match, with `>>>` and `<<<` about it.
    pub snippet: String,
    /// When the row was written, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
}
