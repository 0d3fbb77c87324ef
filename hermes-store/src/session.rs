//! Conversations and their sessions.

use serde::{Deserialize, Serialize};

use crate::admission::AdmissionStatus;
use crate::ids::{ConversationId, SessionId};
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
    /// With `before_ms`: also those of exactly this time whose id is smaller. Without it, a page that ends between two
    /// conversations of one millisecond loses the rest of them.
    pub before_id: Option<ConversationId>,
    /// Only archived ones, or only others.
    pub archived: Option<bool>,
    /// Only pinned ones, or only others.
    pub pinned: Option<bool>,
    /// Only hidden ones, or only others.
    pub hidden: Option<bool>,
    /// Only those whose tip works in this directory or below it.
    pub cwd: Option<String>,
    /// Only those with so many rows that people see.
    pub min_messages: u64,
    /// Only those with this text in the title or the id, without regard to the case of ASCII letters.
    pub text: Option<String>,
    /// Only those whose id begins with this text.
    pub id_prefix: Option<String>,
    /// Only those with exactly this title (after cleaning).
    pub title: Option<String>,
    /// Most rows, up to [`crate::limits::PAGE_MAX_ROWS`].
    pub limit: usize,
}

impl Default for ConversationFilter {
    fn default() -> Self {
        Self {
            profile: None,
            source: None,
            before_ms: None,
            before_id: None,
            archived: None,
            pinned: None,
            hidden: None,
            cwd: None,
            min_messages: 0,
            text: None,
            id_prefix: None,
            title: None,
            limit: 50,
        }
    }
}

impl ConversationFilter {
    /// Whether a conversation comes behind the last one of the page before.
    pub(crate) fn is_after_cursor(&self, id: &ConversationId, activity_ms: i64) -> bool {
        let Some(before) = self.before_ms else { return true };
        activity_ms < before || (activity_ms == before && self.before_id.as_ref().is_some_and(|last| id < last))
    }

    /// Whether a conversation has the size, the place and the text that are looked for.
    pub(crate) fn fits(&self, found: &ConversationSummary) -> bool {
        let below = |dir: &str, path: &str| {
            let dir = dir.trim_end_matches('/');
            path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let has = |text: &str, part: &str| text.to_ascii_lowercase().contains(&part.to_ascii_lowercase());
        found.messages >= self.min_messages
            && self.cwd.as_ref().is_none_or(|dir| found.cwd.as_ref().is_some_and(|path| below(dir, path)))
            && self.text.as_ref().is_none_or(|part| {
                has(found.id.as_str(), part) || found.title.as_ref().is_some_and(|title| has(title, part))
            })
    }
}

/// What a person marked a conversation with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConversationFlags {
    /// Out of the way; found when it is asked for.
    pub archived: bool,
    /// It was archived by a rule: the next input takes it out again.
    pub auto_archived: bool,
    /// Kept for ever, and first in lists that care.
    pub pinned: bool,
    /// In no list.
    pub hidden: bool,
}

/// Flags to be set; what is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlagChange {
    /// [`ConversationFlags::archived`]; a person's word ends [`ConversationFlags::auto_archived`].
    pub archived: Option<bool>,
    /// [`ConversationFlags::pinned`].
    pub pinned: Option<bool>,
    /// [`ConversationFlags::hidden`].
    pub hidden: Option<bool>,
}

impl FlagChange {
    /// The flags after the change.
    #[must_use]
    pub fn apply(self, flags: ConversationFlags) -> ConversationFlags {
        ConversationFlags {
            archived: self.archived.unwrap_or(flags.archived),
            auto_archived: self.archived.is_none() && flags.auto_archived,
            pinned: self.pinned.unwrap_or(flags.pinned),
            hidden: self.hidden.unwrap_or(flags.hidden),
        }
    }
}

/// What a name was recognised by, the most exact first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedBy {
    /// The id of the conversation, of any of its sessions, or another id that it is known by.
    Id,
    /// The beginning of its id.
    Prefix,
    /// Its title.
    Title,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// One conversation.
    One {
        /// How it was recognised.
        by: ResolvedBy,
        /// The conversation, with its tip.
        found: Box<ConversationSummary>,
    },
    /// More than one. A command that changes or removes something must refuse such a name; one that only opens a
    /// conversation may take the first and say so.
    Many {
        /// How they were recognised.
        by: ResolvedBy,
        /// The first of them, newest activity first, at most [`crate::limits::RESOLVE_MAX`].
        candidates: Vec<ConversationSummary>,
    },
    /// None.
    Nothing,
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
    /// What it was marked with.
    #[serde(default)]
    pub flags: ConversationFlags,
    /// When it was ended, in milliseconds since the Unix epoch; a new input opens it again.
    #[serde(default)]
    pub ended_at_ms: Option<i64>,
    /// The conversation that it was branched off from.
    #[serde(default)]
    pub branched_from: Option<ConversationId>,
}
