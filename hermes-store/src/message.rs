//! Rows of the transcript.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::ids::{CallId, MessageId, SessionId, TurnId};
use crate::round::{CallOutcome, JournalState, ReplaySafety, words};

/// Exact text that a provider was shown in place of `content`, where the two differ. Never parsed, never written again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiContent(pub Bytes);

/// Opaque provider state (signed thinking and the like) with the name of who made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidecar {
    /// Who made it; it is replayed to no other.
    pub issuer: String,
    /// The exact bytes.
    pub bytes: Bytes,
}

/// Who speaks in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user, or the program on his behalf.
    User,
    /// The model.
    Assistant,
    /// A tool.
    Tool,
}

impl Role {
    /// The word that is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// What a row is, beyond its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// An ordinary row.
    Normal,
    /// User text that reached a running turn.
    Steer,
    /// An assistant row that a stop cut short.
    Partial,
    /// An assistant row that the program wrote to close a turn that has no answer.
    Boundary,
    /// A row that the model sees and people do not (a nudge).
    Hidden,
    /// A summary that stands for compacted rows.
    Summary,
}

impl MessageKind {
    /// The word that is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Steer => "steer",
            Self::Partial => "partial",
            Self::Boundary => "boundary",
            Self::Hidden => "hidden",
            Self::Summary => "summary",
        }
    }

    /// Reads the stored word back.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Normal, Self::Steer, Self::Partial, Self::Boundary, Self::Hidden, Self::Summary]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// Whether a row is live. [`crate::history`] has the table of who sees what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// The model sees it.
    Active,
    /// A summary or a copy stands for it; people still see and find it.
    Compacted,
    /// Undone; neither sees it.
    Superseded,
}

words!(RowState { Active => "active", Compacted => "compacted", Superseded => "superseded" });

/// A user or assistant row without calls, to be appended. Rounds have their own way in ([`crate::Round`]).
#[derive(Debug, Clone, PartialEq)]
pub struct NewMessage {
    /// The row's id, minted by the writer.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// What the row is.
    pub kind: MessageKind,
    /// The canonical text, shown to people.
    pub content: String,
    /// What the provider was shown instead, where it differs.
    pub api_content: Option<ApiContent>,
    /// Readable reasoning of an assistant row.
    pub reasoning: Option<String>,
    /// Opaque provider state of an assistant row.
    pub sidecar: Option<Sidecar>,
    /// Why the model stopped, in its own words.
    pub finish: Option<String>,
    /// Facts for display.
    pub meta: Option<Value>,
}

impl NewMessage {
    /// An ordinary row with nothing but its text.
    #[must_use]
    pub fn text(id: MessageId, role: Role, content: impl Into<String>) -> Self {
        Self {
            id,
            role,
            kind: MessageKind::Normal,
            content: content.into(),
            api_content: None,
            reasoning: None,
            sidecar: None,
            finish: None,
            meta: None,
        }
    }

    /// SHA-256 over every field that must replay: the same id with another digest is a conflict (I17).
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let mut field = |bytes: Option<&[u8]>| match bytes {
            Some(bytes) => {
                hash.update((bytes.len() as u64 + 1).to_le_bytes());
                hash.update(bytes);
            }
            None => hash.update(0_u64.to_le_bytes()),
        };
        field(Some(self.role.as_str().as_bytes()));
        field(Some(self.kind.as_str().as_bytes()));
        field(Some(self.content.as_bytes()));
        field(self.api_content.as_ref().map(|a| a.0.as_ref()));
        field(self.reasoning.as_deref().map(str::as_bytes));
        field(self.sidecar.as_ref().map(|s| s.issuer.as_bytes()));
        field(self.sidecar.as_ref().map(|s| s.bytes.as_ref()));
        field(self.finish.as_deref().map(str::as_bytes));
        let digest = hash.finalize();
        crate::prompt::PromptHash::of(&digest).as_str().to_owned()
    }
}

/// One call of a stored assistant row.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredCall {
    /// The store's id of the call.
    pub call: CallId,
    /// The id that the provider knows the call by.
    pub provider_id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, byte for byte as the model wrote them.
    pub arguments: String,
    /// What may be done after a crash.
    pub replay: ReplaySafety,
    /// How far it got.
    pub state: JournalState,
    /// How it ended, when it has.
    pub outcome: Option<CallOutcome>,
}

/// A row as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredMessage {
    /// Place in the conversation: grows, with gaps.
    pub seq: i64,
    /// The row's id.
    pub id: MessageId,
    /// Its session.
    pub session: SessionId,
    /// The turn that wrote it.
    pub turn: TurnId,
    /// The first row of its line, when a compression wrote it as a copy. People see that one, models see this one.
    pub copy_of: Option<MessageId>,
    /// Who speaks.
    pub role: Role,
    /// What the row is.
    pub kind: MessageKind,
    /// Whether it is live.
    pub state: RowState,
    /// The canonical text.
    pub content: String,
    /// What the provider was shown instead, where it differs.
    pub api_content: Option<ApiContent>,
    /// Readable reasoning.
    pub reasoning: Option<String>,
    /// Opaque provider state.
    pub sidecar: Option<Sidecar>,
    /// Why the model stopped.
    pub finish: Option<String>,
    /// The calls of an assistant row, in order.
    pub calls: Vec<StoredCall>,
    /// For a tool row: the call that it answers, the provider's id of it, the tool's name and how it ended.
    pub answers: Option<StoredCall>,
    /// Facts for display.
    pub meta: Option<Value>,
    /// When it was written, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
}

/// Which rows of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// What the next request is built from: active rows of the tip session. Results of calls that are still open are
    /// not among them.
    Model,
    /// What people see: active and compacted rows of all sessions.
    Display,
}

/// One page of rows, by place in the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagePage {
    /// Only rows after this place; 0 from the start.
    pub after_seq: i64,
    /// Most rows, up to [`crate::limits::PAGE_MAX_ROWS`].
    pub limit: usize,
    /// True returns the last rows instead of the first (still oldest first).
    pub from_end: bool,
}

impl Default for MessagePage {
    fn default() -> Self {
        Self { after_seq: 0, limit: crate::limits::PAGE_MAX_ROWS, from_end: false }
    }
}

/// What one request to a model used. Counted once per `attempt`, in the transaction that stores its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageDelta {
    /// Unique per request; a repeated write counts nothing.
    pub attempt: String,
    /// Provider id.
    pub provider: String,
    /// Model name.
    pub model: String,
    /// What it was for; empty = the turn itself.
    pub task: String,
    /// Input tokens that no cache served.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens that a cache served.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens spent on reasoning.
    pub reasoning: u64,
    /// False when the provider reported nothing: the request is counted, its tokens are unknown.
    pub known: bool,
}

/// Sums of [`UsageDelta`] for one model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UsageTotals {
    /// Provider id.
    pub provider: String,
    /// Model name.
    pub model: String,
    /// What it was for; empty = turns.
    pub task: String,
    /// Requests.
    pub requests: u64,
    /// Requests whose tokens are unknown.
    pub unknown: u64,
    /// Input tokens that no cache served.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens that a cache served.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens spent on reasoning.
    pub reasoning: u64,
}
