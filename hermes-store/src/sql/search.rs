//! Search, as far as the transcript has to do with it: what is due to be indexed, the rows themselves, and the last look at
//! a row that an index named. The indexes stand beside each `driver`.

use super::driver::{Backend, Conn, Row, map, text_in};
use super::read::{col, count, id, size, text, text_or_null, word};
use super::schema::Group;
use crate::error::StoreError;
use crate::ids::{ConversationId, MessageId};
use crate::limits::{SEARCH_COUNT_MAX, SEARCH_LOOK_MAX_ROWS, SEARCH_LOOK_PAGE_ROWS, SEARCH_STEP_MAX_BYTES};
use crate::message::Role;
use crate::search::query::Parsed;
use crate::search::{IndexState, Neighbour, SearchHit, SearchOrder, SearchPage, SearchQuery};

/// `conversations.searched`: the revision that the index has seen. `search_outbox`: conversations that are to be looked at
/// anew, because they were deleted. `search_index`: which index belongs to this store, and how many steps it has done.
pub(crate) const TABLES: Group = &[
    "ALTER TABLE conversations ADD COLUMN searched BIGINT NOT NULL DEFAULT -1",
    "CREATE INDEX conversations_to_search ON conversations (id) WHERE searched < revision",
    "CREATE TABLE search_outbox (conversation_id TEXT PRIMARY KEY NOT NULL, entries BIGINT NOT NULL)",
    "CREATE TABLE search_index (id BIGINT PRIMARY KEY NOT NULL, stamp TEXT NOT NULL, steps BIGINT NOT NULL)",
];

/// For the transaction that deletes a conversation.
pub(super) const NOTE_DELETED: &str = "INSERT INTO search_outbox (conversation_id, entries) VALUES ($1, 1) \
     ON CONFLICT (conversation_id) DO UPDATE SET entries = search_outbox.entries + 1";

/// The text of a row, cut when it is huge (1 MiB; 262,144 is `SEARCH_TEXT_MAX_CHARS`).
macro_rules! cut_content {
    ($table:literal) => {
        concat!(
            "CASE WHEN OCTET_LENGTH(",
            $table,
            "content) > 1048576 THEN SUBSTR(",
            $table,
            "content, 1, 262144) ELSE ",
            $table,
            "content END"
        )
    };
}

const _: () = assert!(crate::limits::SEARCH_TEXT_MAX_CHARS == 262_144);

const OUTBOX: &str = "SELECT conversation_id, entries FROM search_outbox ORDER BY conversation_id LIMIT $1";
const DUE: &str = "SELECT id, revision FROM conversations WHERE searched < revision ORDER BY id LIMIT $1";
const AFTER: &str = "SELECT id, revision FROM conversations WHERE id > $1 ORDER BY id LIMIT $2";
const ONE: &str = "SELECT profile, source, revision FROM conversations WHERE id = $1";
const COUNT_DUE: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM conversations WHERE searched < revision LIMIT $1) AS due";
const SIZES: &str = "SELECT seq, CAST(OCTET_LENGTH(content) AS BIGINT) FROM messages WHERE conversation_id = $1 \
     AND seq > $2 AND kind <> 'hidden' AND copy_of IS NULL ORDER BY seq LIMIT $3";
const ROWS: &str = concat!(
    "SELECT seq, role, ",
    cut_content!(""),
    ", created_ms FROM messages WHERE conversation_id = $1 AND seq > $2 AND seq <= $3 AND kind <> 'hidden' \
     AND copy_of IS NULL ORDER BY seq"
);
const OPEN_CALL: &str = "SELECT MIN(result_seq) FROM calls WHERE conversation_id = $1 AND result_seq > $2 \
     AND state <> 'settled'";
const DONE: &str = "UPDATE conversations SET searched = $2 WHERE id = $1 AND searched < $2";
const TAKE_ENTRY: &str = "DELETE FROM search_outbox WHERE conversation_id = $1 AND entries = $2";

const REGISTERED: &str = "SELECT stamp, steps FROM search_index WHERE id = 1";
const REGISTER: &str = "INSERT INTO search_index (id, stamp, steps) VALUES (1, $1, 0) \
     ON CONFLICT (id) DO UPDATE SET stamp = excluded.stamp, steps = excluded.steps";
#[allow(dead_code, reason = "the index of SQLite has a lock of its own")]
const REGISTER_UNLESS: &str = "INSERT INTO search_index (id, stamp, steps) VALUES (1, '', 0) \
     ON CONFLICT (id) DO UPDATE SET steps = search_index.steps";
const COUNT_STEP: &str = "UPDATE search_index SET steps = CASE WHEN steps < $2 THEN $2 ELSE steps END \
     WHERE id = 1 AND stamp = $1";

const HIT: &str = concat!(
    "SELECT m.id, m.role, ",
    cut_content!("m."),
    ", m.created_ms, c.title FROM messages m JOIN conversations c ON c.id = m.conversation_id \
     WHERE m.conversation_id = $1 AND m.seq = $2 AND m.state <> 'superseded' AND m.kind <> 'hidden' \
     AND m.copy_of IS NULL AND ($3 = 1 OR c.archived = 0) AND ($4 = 1 OR c.hidden = 0)"
);
const BEFORE: &str = concat!(
    "SELECT seq, role, ",
    cut_content!(""),
    " FROM messages WHERE conversation_id = $1 AND seq < $2 AND state <> 'superseded' AND kind <> 'hidden' \
     AND copy_of IS NULL ORDER BY seq DESC LIMIT 1"
);
const BEHIND: &str = concat!(
    "SELECT seq, role, ",
    cut_content!(""),
    " FROM messages WHERE conversation_id = $1 AND seq > $2 AND state <> 'superseded' AND kind <> 'hidden' \
     AND copy_of IS NULL ORDER BY seq LIMIT 1"
);
/// Rows without an index: those of the newest conversations first.
const SCAN_ROWS: &str = "SELECT m.conversation_id, m.seq FROM conversations c JOIN messages m ON m.conversation_id = c.id \
     WHERE ($1 = '' OR c.profile = $1) AND ($2 = '' OR c.source = $2) AND ($3 = '' OR c.id = $3) \
     AND ($4 = '' OR m.role = $4) AND m.created_ms >= $5 AND m.created_ms < $6 AND m.kind <> 'hidden' \
     ORDER BY c.activity_ms DESC, c.id DESC, m.seq DESC LIMIT $7 OFFSET $8";

/// A conversation that has something new.
#[derive(Debug, Clone)]
pub(crate) struct Due {
    pub(crate) id: ConversationId,
    pub(crate) revision: i64,
}

/// An entry of the outbox.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) id: ConversationId,
    pub(crate) entries: i64,
}

/// A row to be indexed.
#[derive(Debug, Clone)]
pub(crate) struct Doc {
    pub(crate) seq: i64,
    pub(crate) role: Role,
    pub(crate) content: String,
    pub(crate) created_ms: i64,
}

/// Rows to be indexed, and whether there are more.
#[derive(Debug, Default)]
pub(crate) struct Docs {
    pub(crate) docs: Vec<Doc>,
    /// The last place that was looked at.
    pub(crate) last_seq: i64,
    pub(crate) has_more: bool,
}

/// Where a conversation belongs.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    #[allow(dead_code, reason = "on PostgreSQL the statement that searches reads it itself")]
    pub(crate) profile: String,
    #[allow(dead_code, reason = "on PostgreSQL the statement that searches reads it itself")]
    pub(crate) source: String,
    pub(crate) revision: i64,
}

fn due(row: &Row) -> Result<Due, StoreError> {
    Ok(Due { id: word(row, 0, id(ConversationId::parse))?, revision: col(row, 1)? })
}

fn role(word: &str) -> Option<Role> {
    [Role::User, Role::Assistant, Role::Tool].into_iter().find(|role| role.as_str() == word)
}

/// Entries of the outbox.
pub(crate) async fn outbox(conn: &mut Conn, limit: usize) -> Result<Vec<Entry>, StoreError> {
    let rows = sqlx::query(OUTBOX).bind(size(limit)).fetch_all(conn).await.map_err(map)?;
    let entry = |row: &Row| Ok(Entry { id: word(row, 0, id(ConversationId::parse))?, entries: col(row, 1)? });
    rows.iter().map(entry).collect()
}

/// Conversations whose newest revision was not searched.
pub(crate) async fn dues(conn: &mut Conn, limit: usize) -> Result<Vec<Due>, StoreError> {
    sqlx::query(DUE).bind(size(limit)).fetch_all(conn).await.map_err(map)?.iter().map(due).collect()
}

/// All conversations in the order of their ids, for an index that is built anew.
pub(crate) async fn after(conn: &mut Conn, id: &str, limit: usize) -> Result<Vec<Due>, StoreError> {
    sqlx::query(AFTER).bind(id).bind(size(limit)).fetch_all(conn).await.map_err(map)?.iter().map(due).collect()
}

/// How many conversations are due, up to a limit.
pub(crate) async fn count_due(conn: &mut Conn) -> Result<u64, StoreError> {
    let row = sqlx::query(COUNT_DUE).bind(size(SEARCH_COUNT_MAX)).fetch_one(conn).await.map_err(map)?;
    count(&row, 0)
}

/// Where a conversation belongs; `None` when it was deleted.
pub(crate) async fn home(conn: &mut Conn, id: &ConversationId) -> Result<Option<Home>, StoreError> {
    let row = sqlx::query(ONE).bind(id.as_str()).fetch_optional(conn).await.map_err(map)?;
    row.map(|row| Ok(Home { profile: text(&row, 0)?, source: text(&row, 1)?, revision: col(&row, 2)? })).transpose()
}

/// Rows behind a place, as many as fit into a number and into [`SEARCH_STEP_MAX_BYTES`]; one fits always.
pub(crate) async fn docs(conn: &mut Conn, id: &ConversationId, after: i64, limit: usize) -> Result<Docs, StoreError> {
    let sizes = sqlx::query(SIZES).bind(id.as_str()).bind(after).bind(size(limit)).fetch_all(&mut *conn).await;
    let sizes = sizes.map_err(map)?;
    let mut left = SEARCH_STEP_MAX_BYTES as u64;
    let mut last_seq = after;
    let mut taken = 0;
    for row in &sizes {
        let bytes = count(row, 1)?;
        if taken > 0 && bytes > left {
            break;
        }
        left = left.saturating_sub(bytes);
        taken += 1;
        last_seq = col(row, 0)?;
    }
    if taken == 0 {
        return Ok(Docs { last_seq, ..Docs::default() });
    }
    let rows = sqlx::query(ROWS).bind(id.as_str()).bind(after).bind(last_seq).fetch_all(conn).await.map_err(map)?;
    let doc = |row: &Row| {
        Ok(Doc {
            seq: col(row, 0)?,
            role: word(row, 1, role)?,
            // A huge text may be cut within what stands for a NUL; what is left of it is then not searched.
            content: text(row, 2).unwrap_or_default(),
            created_ms: col(row, 3)?,
        })
    };
    let docs = rows.iter().map(doc).collect::<Result<_, StoreError>>()?;
    Ok(Docs { docs, last_seq, has_more: taken < sizes.len() || sizes.len() == limit })
}

/// The first place behind `after` where the result of a call is still to come.
pub(crate) async fn open_call(conn: &mut Conn, id: &ConversationId, after: i64) -> Result<Option<i64>, StoreError> {
    sqlx::query_scalar(OPEN_CALL).bind(id.as_str()).bind(after).fetch_one(conn).await.map_err(map)
}

/// Says that these revisions were searched, and that these entries were done.
pub(crate) async fn done(conn: &mut Conn, dues: &[Due], entries: &[Entry]) -> Result<(), StoreError> {
    for due in dues {
        sqlx::query(DONE).bind(due.id.as_str()).bind(due.revision).execute(&mut *conn).await.map_err(map)?;
    }
    for entry in entries {
        let take = sqlx::query(TAKE_ENTRY).bind(entry.id.as_str()).bind(entry.entries);
        take.execute(&mut *conn).await.map_err(map)?;
    }
    Ok(())
}

/// The index that belongs to this store, and its steps.
pub(crate) async fn registered(conn: &mut Conn) -> Result<Option<(String, i64)>, StoreError> {
    let row = sqlx::query(REGISTERED).fetch_optional(conn).await.map_err(map)?;
    row.map(|row| Ok((col(&row, 0)?, col(&row, 1)?))).transpose()
}

/// From now on this index, without a step, belongs to the store.
pub(crate) async fn register(conn: &mut Conn, stamp: &str) -> Result<(), StoreError> {
    sqlx::query(REGISTER).bind(stamp).execute(conn).await.map(drop).map_err(map)
}

/// Takes the row that says which index belongs to the store, made when there is none.
#[allow(dead_code, reason = "the index of SQLite has a lock of its own")]
pub(crate) async fn register_unless(conn: &mut Conn) -> Result<(), StoreError> {
    sqlx::query(REGISTER_UNLESS).execute(conn).await.map(drop).map_err(map)
}

/// Counts a step of an index. False when another one belongs to the store by now.
pub(crate) async fn count_step(conn: &mut Conn, stamp: &str, steps: i64) -> Result<bool, StoreError> {
    let counted = sqlx::query(COUNT_STEP).bind(stamp).bind(steps).execute(conn).await.map_err(map)?;
    Ok(counted.rows_affected() > 0)
}

/// The last look at a row that an index named: whether people see it, and the query finds it.
pub(crate) async fn hit(
    conn: &mut Conn,
    query: &SearchQuery,
    parsed: &Parsed,
    place: (&ConversationId, i64),
) -> Result<Option<SearchHit>, StoreError> {
    let (conversation, seq) = place;
    let row = sqlx::query(HIT)
        .bind(conversation.as_str())
        .bind(seq)
        .bind(i64::from(query.include_archived))
        .bind(i64::from(query.looks_at_hidden()));
    let Some(row) = row.fetch_optional(&mut *conn).await.map_err(map)? else { return Ok(None) };
    let speaker: Role = word(&row, 1, role)?;
    let created_at_ms: i64 = col(&row, 3)?;
    let is_wanted = query.role.is_none_or(|role| role == speaker)
        && query.since_ms.is_none_or(|since| created_at_ms >= since)
        && query.until_ms.is_none_or(|until| created_at_ms < until);
    let content = text(&row, 2).unwrap_or_default();
    let Some(snippet) = is_wanted.then(|| parsed.snippet(speaker, &content)).flatten() else { return Ok(None) };
    let mut hit = SearchHit {
        conversation: conversation.clone(),
        title: text_or_null(&row, 4)?,
        message: word(&row, 0, id(MessageId::parse))?,
        seq,
        role: speaker.as_str().to_owned(),
        snippet,
        created_at_ms,
        before: None,
        after: None,
    };
    if query.neighbours {
        hit.before = neighbour(conn, BEFORE, place).await?;
        hit.after = neighbour(conn, BEHIND, place).await?;
    }
    Ok(Some(hit))
}

async fn neighbour(
    conn: &mut Conn,
    statement: &'static str,
    place: (&ConversationId, i64),
) -> Result<Option<Neighbour>, StoreError> {
    let row = sqlx::query(statement).bind(place.0.as_str()).bind(place.1).fetch_optional(conn).await.map_err(map)?;
    row.map(|row| Ok(Neighbour::new(col(&row, 0)?, col(&row, 1)?, &text(&row, 2).unwrap_or_default()))).transpose()
}

/// Rows without an index, `skip` of them left out.
pub(crate) async fn scan(
    conn: &mut Conn,
    query: &SearchQuery,
    skip: i64,
    limit: usize,
) -> Result<Vec<(ConversationId, i64)>, StoreError> {
    let rows = sqlx::query(SCAN_ROWS)
        .bind(text_in(query.profile.as_deref().unwrap_or_default()))
        .bind(text_in(query.source.as_deref().unwrap_or_default()))
        .bind(query.conversation.as_ref().map_or("", ConversationId::as_str))
        .bind(query.role.map_or("", Role::as_str))
        .bind(query.since_ms.unwrap_or(i64::MIN))
        .bind(query.until_ms.unwrap_or(i64::MAX))
        .bind(size(limit))
        .bind(skip)
        .fetch_all(conn)
        .await
        .map_err(map)?;
    rows.iter().map(|row| Ok((word(row, 0, id(ConversationId::parse))?, col(row, 1)?))).collect()
}

/// A row that may be found: its conversation, its place there, and where the search goes on behind it.
pub(crate) type Candidate = (ConversationId, i64, i64);

/// What the cursor of a search without an index begins with.
pub(crate) const SCAN: char = 's';

/// What was found so far.
#[derive(Default)]
pub(crate) struct Found {
    hits: Vec<SearchHit>,
    looked: usize,
    /// Set when the page is full, or enough rows were looked at.
    stopped: Option<i64>,
}

impl Found {
    /// Looks at rows until the page is full. True when it is, or when it is enough.
    pub(crate) async fn look(
        &mut self,
        reader: &mut Conn,
        query: &SearchQuery,
        parsed: &Parsed,
        candidates: &[Candidate],
    ) -> Result<bool, StoreError> {
        for (conversation, seq, place) in candidates {
            self.looked += 1;
            self.hits.extend(hit(reader, query, parsed, (conversation, *seq)).await?);
            if self.hits.len() >= query.page_size() || self.looked >= SEARCH_LOOK_MAX_ROWS {
                self.stopped = Some(*place);
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn page(mut self, query: &SearchQuery, kind: char, index: IndexState, pending: u64) -> SearchPage {
        // Rows of one time are told apart as every store does.
        let key = |hit: &SearchHit| (hit.created_at_ms, hit.seq, hit.conversation.clone());
        match query.order {
            SearchOrder::Newest => self.hits.sort_by_key(|hit| std::cmp::Reverse(key(hit))),
            SearchOrder::Oldest => self.hits.sort_by_key(key),
            SearchOrder::Rank => {}
        }
        SearchPage { hits: self.hits, next: self.stopped.map(|place| format!("{kind}{place}")), index, pending }
    }
}

impl Backend {
    /// Without an index: the rows of the newest conversations, one by one.
    pub(crate) async fn search_rows(&self, query: &SearchQuery, parsed: &Parsed) -> Result<SearchPage, StoreError> {
        let mut reader = self.readers().acquire().await.map_err(map)?;
        let mut place = query.place(SCAN)?.unwrap_or(0);
        let mut found = Found::default();
        loop {
            let page = scan(&mut reader, query, place, SEARCH_LOOK_PAGE_ROWS).await?;
            let numbered = (place + 1..).zip(page);
            let candidates: Vec<Candidate> = numbered.map(|(place, (id, seq))| (id, seq, place)).collect();
            let Some(last) = candidates.last() else { break };
            place = last.2;
            if found.look(&mut reader, query, parsed, &candidates).await? {
                break;
            }
        }
        let pending = count_due(&mut reader).await?;
        Ok(found.page(query, SCAN, IndexState::Unusable, pending))
    }
}
