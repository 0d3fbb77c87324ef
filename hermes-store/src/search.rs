//! Search over everything that was said.
//!
//! # What the index is, and what it is not
//!
//! The index is a copy that can be thrown away. It says in which rows a word *may* stand; whether a row is found is
//! decided by the row itself, as it stands in the transcript when the search is made. So an index that is behind, or
//! that holds rows which were undone, deleted or damaged since, can make a search miss a row that was just written, and
//! never makes it show one that people do not see. What a row says never changes, so that a compaction, a rewind or a
//! restored rewind needs no new entry.
//!
//! No turn writes to it. A conversation's row counts its changes (`revision`), and beside this counter stands the one
//! that the index has seen (`searched`): whatever lies between is the outbox, complete by construction and free of
//! statements of its own. Only a deleted conversation, which has no row, leaves an entry (`search_outbox`).
//! [`SearchStore::index_step`] takes what is due and is run by whoever embeds the store, after activity; a search runs a
//! few steps itself, so that one finds what one has just written.
//!
//! On SQLite the index is a file of its own beside the store (`hermes.db` has `hermes-search.db`): its writer's lock is
//! not the store's, it may be deleted at any time, and nothing that befalls it reaches a conversation (S48). On
//! PostgreSQL it is a few tables that no other statement reads.
//!
//! # What is left after a crash
//!
//! | the last thing that was committed | what is stored | what the next step does |
//! |---|---|---|
//! | a row of the transcript | a revision above the one that was searched | indexes it |
//! | the entries of a step, in the index | entries, and how far each conversation was read | finds them there, writes nothing twice |
//! | that the step was done, in the store | the revision that was searched | goes on |
//! | a rebuild that was begun | an empty index that knows where to go on | goes on from there |
//! | the deletion of a conversation | an entry of the outbox | removes what the index has of it |
//!
//! An index that lost its last commits (a power cut on a disk that lies, a copy from a backup) is noticed by its counter of
//! steps, which may not be behind the store's, and built anew. One of another version, or of another store, is too.
//!
//! # Order and pages
//!
//! [`SearchOrder::Newest`] and [`SearchOrder::Oldest`] go by the time of writing and stop as soon as the page is full.
//! [`SearchOrder::Rank`] looks at the newest [`limits::SEARCH_RANK_MAX_ROWS`](crate::limits::SEARCH_RANK_MAX_ROWS) rows
//! that hold the words. A page that looked at many rows without filling has a cursor to go on with.

pub(crate) mod query;
pub(crate) mod text;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::ids::{ConversationId, MessageId};
use crate::limits::{SEARCH_MAX_HITS, SEARCH_NEIGHBOUR_CHARS};
use crate::message::Role;
use crate::round::words;

/// In which order hits come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchOrder {
    /// The best match first, by the database's own measure.
    Rank,
    /// The newest first.
    #[default]
    Newest,
    /// The oldest first.
    Oldest,
}

words!(SearchOrder { Rank => "rank", Newest => "newest", Oldest => "oldest" });

/// What to look for, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    /// The query, at most [`crate::limits::SEARCH_QUERY_MAX_CHARS`]: words, `"phrases"`, `pre*`, `*part*`, AND, OR, NOT.
    /// Parts of words are not looked for in results of tools. What is no query (`(`, an open quote) is read as words.
    pub text: String,
    /// Only conversations of this profile.
    pub profile: Option<String>,
    /// Only conversations from this source.
    pub source: Option<String>,
    /// Only what this one said.
    pub role: Option<Role>,
    /// Only this conversation.
    pub conversation: Option<ConversationId>,
    /// Only rows written at this time or later, in milliseconds since the Unix epoch.
    pub since_ms: Option<i64>,
    /// Only rows written before this time.
    pub until_ms: Option<i64>,
    /// Also conversations that were archived.
    pub include_archived: bool,
    /// Also conversations that are hidden, such as children that were given a task. One that is named by
    /// [`SearchQuery::conversation`] is looked through in any case.
    pub include_hidden: bool,
    /// In which order.
    pub order: SearchOrder,
    /// Whether each hit brings the rows before and after it.
    pub neighbours: bool,
    /// Most hits, up to [`crate::limits::SEARCH_MAX_HITS`].
    pub limit: usize,
    /// [`SearchPage::next`] of the page before, with the same query.
    pub cursor: Option<String>,
}

impl SearchQuery {
    /// A query over everything, newest first.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            profile: None,
            source: None,
            role: None,
            conversation: None,
            since_ms: None,
            until_ms: None,
            include_archived: false,
            include_hidden: false,
            order: SearchOrder::default(),
            neighbours: false,
            limit: 20,
            cursor: None,
        }
    }

    /// Whether hidden conversations are looked through.
    pub(crate) fn looks_at_hidden(&self) -> bool {
        self.include_hidden || self.conversation.is_some()
    }

    /// Hits of one page.
    pub(crate) fn page_size(&self) -> usize {
        self.limit.clamp(1, SEARCH_MAX_HITS)
    }

    /// The place that the page before ended at; `kind` says what it counts.
    pub(crate) fn place(&self, kind: char) -> Result<Option<i64>, StoreError> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let place = cursor.strip_prefix(kind).and_then(|place| place.parse().ok());
        let detail = "the cursor is of another search, or the index has changed since; search again without it";
        place.map(Some).ok_or_else(|| StoreError::Invalid { detail: detail.to_owned() })
    }
}

/// A row beside one that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its place.
    pub seq: i64,
    /// Who speaks (`user`, `assistant`, `tool`).
    pub role: String,
    /// What it says, in one line, cut to [`crate::limits::SEARCH_NEIGHBOUR_CHARS`].
    pub text: String,
}

impl Neighbour {
    pub(crate) fn new(seq: i64, role: &str, content: &str) -> Self {
        let head: String = content.chars().take(SEARCH_NEIGHBOUR_CHARS).collect();
        let head = head.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
        Self { seq, role: role.to_owned(), text: head.collect::<Vec<_>>().join(" ") }
    }
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
    /// About 40 words around the first match, in one line, with `>>>` and `<<<` about each match.
    pub snippet: String,
    /// When the row was written, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
    /// The row before it that people see, when it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Neighbour>,
    /// The row after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Neighbour>,
}

/// How the index is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IndexState {
    /// Complete, but for what is due.
    Ready,
    /// Being built for the first time, or anew.
    Building,
    /// Damaged, or not to be opened: a search looks through the newest rows one by one.
    Unusable,
}

words!(IndexState { Ready => "ready", Building => "building", Unusable => "unusable" });

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchPage {
    /// The rows.
    pub hits: Vec<SearchHit>,
    /// Where the next page begins. There may be one after a page that is not full: a search looks at
    /// [`crate::limits::SEARCH_LOOK_MAX_ROWS`] rows at most. `None` says that nothing is left.
    pub next: Option<String>,
    /// How the index is.
    pub index: IndexState,
    /// Conversations that have rows which the index does not know yet, counted up to
    /// [`crate::limits::SEARCH_COUNT_MAX`].
    pub pending: u64,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IndexProgress {
    /// Rows that were written to the index, or removed from it.
    pub rows: u64,
    /// Conversations that were brought up to date.
    pub conversations: u64,
    /// Nothing is left to do.
    pub is_done: bool,
}

/// How the index stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexStatus {
    /// How it is.
    pub state: IndexState,
    /// Rows in it.
    pub rows: u64,
    /// Conversations that are due, counted up to [`crate::limits::SEARCH_COUNT_MAX`].
    pub pending: u64,
    /// Its size on the disk, in bytes, where it can be told.
    pub bytes: Option<u64>,
    /// Whether parts of words (`*part*`) are indexed; otherwise rows are looked through for them.
    pub has_parts: bool,
    /// What is wrong, or missing.
    pub note: Option<String>,
}

/// Search, and its index.
#[async_trait]
pub trait SearchStore: Send + Sync {
    /// Rows that people see and that the query finds, each logical message once (S35). Runs up to
    /// [`crate::limits::SEARCH_STEPS_MAX`] steps of the index first.
    ///
    /// # Errors
    /// [`StoreError::Limit`] for a query that is too long or has too many terms; [`StoreError::Invalid`] for one that
    /// only says what must not be there, and for a cursor of another search. A damaged or locked index is no error.
    async fn search(&self, query: SearchQuery) -> Result<SearchPage, StoreError>;

    /// One transaction of the index: takes what is due, up to `limit` rows (at most
    /// [`crate::limits::SEARCH_STEP_MAX_ROWS`]).
    ///
    /// # Errors
    /// [`StoreError::SearchIndex`] when the index is damaged or cannot be opened, [`StoreError::Busy`] when another
    /// process is at work on it.
    async fn index_step(&self, limit: usize) -> Result<IndexProgress, StoreError>;

    /// Throws the index away, damaged or not, and begins a new one. [`SearchStore::index_step`] fills it, and goes on
    /// where it was after an interruption.
    ///
    /// # Errors
    /// Those of the database and of the file system.
    async fn rebuild_index(&self) -> Result<(), StoreError>;

    /// How the index stands. A damaged one is no error.
    ///
    /// # Errors
    /// Only those of the store itself.
    async fn index_status(&self) -> Result<IndexStatus, StoreError>;
}
