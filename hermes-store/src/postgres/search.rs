//! Search on PostgreSQL: three tables that no other statement reads.
//!
//! Words are made by this crate ([`crate::search::text`]) and stored as a `tsvector` that no parser of PostgreSQL has
//! touched, so that every store finds the same rows. Parts of words need the extension `pg_trgm`; where it is missing and may
//! not be made, they are looked for row by row, and [`IndexStatus::note`] says so.
//!
//! A `tsvector` has room for one megabyte and for 16,383 places. Of a row that is larger the rest is not indexed; a
//! phrase far back in a long row is found by its words, and the last look at the row decides.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Row as _};

use super::PostgresStore;
use super::conn::Conn;
use super::errors::map;
use super::sql::search as rows;
use super::text::text_in;
use crate::error::StoreError;
use crate::ids::ConversationId;
use crate::limits::{
    SEARCH_LOOK_PAGE_ROWS, SEARCH_RANK_MAX_ROWS, SEARCH_STEP_CONVERSATIONS, SEARCH_STEP_MAX_BYTES,
    SEARCH_STEP_MAX_ROWS, SEARCH_STEP_ROWS, SEARCH_STEPS_MAX,
};
use crate::message::Role;
use crate::search::query::Parsed;
use crate::search::text;
use crate::search::{IndexProgress, IndexState, IndexStatus, SearchOrder, SearchPage, SearchQuery, SearchStore};

/// Version of the index's tables and of the words in them. Any other one is thrown away.
const VERSION: &str = "postgres-1";
/// Highest place of a word that a `tsvector` remembers.
const PLACE_MAX: usize = 16_383;
/// Most places of one word that a `tsvector` remembers.
const PLACES_MAX: usize = 255;
/// Most bytes of one `tsvector`, well under PostgreSQL's limit of a megabyte.
const VECTOR_MAX_BYTES: usize = 900_000;

const DROP: [&str; 3] =
    ["DROP TABLE IF EXISTS search_docs", "DROP TABLE IF EXISTS search_marks", "DROP TABLE IF EXISTS search_build"];
const TABLES: [&str; 5] = [
    "CREATE TABLE search_docs (conversation_id TEXT COLLATE \"C\" NOT NULL, seq BIGINT NOT NULL, role TEXT NOT NULL, \
     created_ms BIGINT NOT NULL, body TSVECTOR NOT NULL, folded TEXT COLLATE \"C\", PRIMARY KEY (conversation_id, seq))",
    "CREATE INDEX search_docs_by_body ON search_docs USING gin (body)",
    "CREATE INDEX search_docs_by_time ON search_docs (created_ms, seq, conversation_id)",
    "CREATE TABLE search_marks (conversation_id TEXT COLLATE \"C\" PRIMARY KEY, upto BIGINT NOT NULL)",
    "CREATE TABLE search_build (id BIGINT PRIMARY KEY, place TEXT COLLATE \"C\", has_parts BIGINT NOT NULL)",
];
const EXTENSION: &str = "CREATE EXTENSION IF NOT EXISTS pg_trgm SCHEMA public";
const OPERATORS: &str = "SELECT CAST(n.nspname AS TEXT) FROM pg_opclass o JOIN pg_namespace n ON n.oid = o.opcnamespace \
     WHERE o.opcname = 'gin_trgm_ops' AND has_schema_privilege(n.oid, 'USAGE') LIMIT 1";
const BEGIN_BUILD: &str = "INSERT INTO search_build (id, place, has_parts) VALUES (1, '', $1)";
const BUILD: &str = "SELECT place, has_parts FROM search_build WHERE id = 1";
const SET_PLACE: &str = "UPDATE search_build SET place = $1 WHERE id = 1";
const LOCK: &str = "SELECT steps FROM search_index WHERE id = 1 FOR UPDATE SKIP LOCKED";
const MARK: &str = "SELECT upto FROM search_marks WHERE conversation_id = $1";
const SET_MARK: &str = "INSERT INTO search_marks (conversation_id, upto) VALUES ($1, $2) \
     ON CONFLICT (conversation_id) DO UPDATE SET upto = excluded.upto";
const ADD: &str = "INSERT INTO search_docs (conversation_id, seq, role, created_ms, body, folded) \
     VALUES ($1, $2, $3, $4, CAST(CAST($5 AS TEXT) AS TSVECTOR), $6) ON CONFLICT DO NOTHING";
const PURGE: &str = "DELETE FROM search_docs WHERE conversation_id = $1";
const UNMARK: &str = "DELETE FROM search_marks WHERE conversation_id = $1";
const COUNT: &str = "SELECT COUNT(*), CAST(PG_TOTAL_RELATION_SIZE('search_docs') AS BIGINT) FROM search_docs";

/// The first word of the statements that are made here; all others are constants.
const SELECT: &str = "SELECT";

/// A text as a `tsvector` is written: each word with its places.
fn vector(content: &str) -> String {
    let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut bytes = 0;
    for (place, word) in (1..).zip(text::words(content)) {
        bytes += 2;
        if !places.contains_key(&word.text) {
            bytes += word.text.len() + 4;
        }
        if bytes > VECTOR_MAX_BYTES {
            break;
        }
        let of_word = places.entry(word.text).or_default();
        if place <= PLACE_MAX && of_word.len() < PLACES_MAX {
            of_word.push(place);
        }
    }
    let mut out = String::with_capacity(bytes * 2);
    for (word, places) in places {
        let places: Vec<String> = places.iter().map(usize::to_string).collect();
        let colon = if places.is_empty() { "" } else { ":" };
        let _ = write!(out, "'{word}'{colon}{} ", places.join(","));
    }
    out
}

fn of_index(error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt { detail } | StoreError::Io { detail } => StoreError::SearchIndex { detail },
        other => other,
    }
}

fn failed(error: sqlx::Error) -> StoreError {
    of_index(map(error))
}

/// What a step may still write, and what it has come to.
struct Work {
    rows: usize,
    bytes: usize,
    written: u64,
    dues: Vec<rows::Due>,
    entries: Vec<rows::Entry>,
}

impl Work {
    fn is_spent(&self) -> bool {
        self.rows == 0 || self.bytes == 0
    }
}

/// Takes the rows of a conversation that the index does not have. False when the budget was spent before the end.
async fn feed(conn: &mut Conn, due: rows::Due, work: &mut Work) -> Result<bool, StoreError> {
    if rows::home(conn, &due.id).await?.is_none() {
        return Ok(true);
    }
    let mark: Option<i64> =
        sqlx::query_scalar(MARK).bind(due.id.as_str()).fetch_optional(&mut *conn).await.map_err(failed)?;
    let upto = mark.unwrap_or(0);
    let open = rows::open_call(conn, &due.id, upto).await?;
    let (mut after, mut is_end) = (upto, false);
    while !is_end && !work.is_spent() {
        let page = rows::docs(conn, &due.id, after, work.rows).await?;
        for doc in &page.docs {
            let seen = text::searchable(doc.role, &doc.content);
            let folded = (doc.role != Role::Tool).then(|| text::fold(seen));
            let add = sqlx::query(ADD)
                .bind(due.id.as_str())
                .bind(doc.seq)
                .bind(doc.role.as_str())
                .bind(doc.created_ms)
                .bind(vector(seen))
                .bind(folded);
            let added = add.execute(&mut *conn).await.map_err(failed)?.rows_affected();
            work.written += added;
            work.rows -= usize::from(added > 0 && work.rows > 0);
            work.bytes = work.bytes.saturating_sub(doc.content.len());
        }
        after = page.last_seq;
        is_end = !page.has_more;
    }
    let upto = open.map_or(after, |open| after.min(open - 1));
    sqlx::query(SET_MARK).bind(due.id.as_str()).bind(upto).execute(conn).await.map_err(failed)?;
    if is_end {
        work.dues.push(due);
    }
    Ok(is_end)
}

/// Takes what is due. Returns where the build goes on.
async fn collect(conn: &mut Conn, place: Option<String>, work: &mut Work) -> Result<Option<String>, StoreError> {
    for entry in rows::outbox(conn, SEARCH_STEP_CONVERSATIONS).await? {
        for statement in [PURGE, UNMARK] {
            sqlx::query(statement).bind(entry.id.as_str()).execute(&mut *conn).await.map_err(failed)?;
        }
        if let Some(home) = rows::home(conn, &entry.id).await?
            && !feed(conn, rows::Due { id: entry.id.clone(), revision: home.revision }, work).await?
        {
            return Ok(place);
        }
        work.entries.push(entry);
    }
    for due in rows::dues(conn, SEARCH_STEP_CONVERSATIONS).await? {
        if !feed(conn, due, work).await? {
            return Ok(place);
        }
    }
    let Some(mut place) = place else { return Ok(None) };
    let page = rows::after(conn, &place, SEARCH_STEP_CONVERSATIONS).await?;
    if page.is_empty() {
        return Ok(None);
    }
    for due in page {
        let id = due.id.as_str().to_owned();
        if !feed(conn, due, work).await? {
            break;
        }
        place = id;
    }
    Ok(Some(place))
}

impl PostgresStore {
    /// Makes the tables of the index unless they are there and of this version; with `anew` in any case.
    async fn ensure_index(&self, anew: bool) -> Result<(), StoreError> {
        let mut conn = self.readers().acquire().await.map_err(map)?;
        let known = rows::registered(&mut conn).await?;
        if !anew && known.is_some_and(|(stamp, _)| stamp == VERSION) {
            return Ok(());
        }
        // Without the right to make it, what a person has made is used, or nothing.
        if let Err(error) = sqlx::query(EXTENSION).execute(&mut *conn).await {
            tracing::debug!("the extension pg_trgm was not made: {error}");
        }
        let operators: Option<String> = sqlx::query_scalar(OPERATORS).fetch_optional(&mut *conn).await.map_err(map)?;
        drop(conn);
        let mut tx = self.write().await?;
        // Whoever comes second waits here, and finds the work done.
        rows::register_unless(tx.conn()).await?;
        let known = rows::registered(tx.conn()).await?;
        if !anew && known.is_some_and(|(stamp, _)| stamp == VERSION) {
            return tx.rollback().await;
        }
        for statement in DROP.into_iter().chain(TABLES) {
            sqlx::query(statement).execute(tx.conn()).await.map_err(failed)?;
        }
        if let Some(schema) = &operators {
            let name = schema.replace('"', "\"\"");
            let index =
                format!("CREATE INDEX search_docs_by_part ON search_docs USING gin (folded \"{name}\".gin_trgm_ops)");
            sqlx::query(AssertSqlSafe(index)).execute(tx.conn()).await.map_err(failed)?;
        }
        let begin = sqlx::query(BEGIN_BUILD).bind(i64::from(operators.is_some()));
        begin.execute(tx.conn()).await.map_err(failed)?;
        rows::register(tx.conn(), VERSION).await?;
        tx.commit().await
    }

    async fn build(conn: &mut Conn) -> Result<(Option<String>, bool), StoreError> {
        let row = sqlx::query(BUILD).fetch_one(conn).await.map_err(failed)?;
        Ok((row.try_get(0).map_err(failed)?, row.try_get::<i64, _>(1).map_err(failed)? != 0))
    }

    async fn step(&self, limit: usize) -> Result<IndexProgress, StoreError> {
        self.ensure_index(false).await?;
        let mut conn = self.readers().acquire().await.map_err(map)?;
        let done = IndexProgress { is_done: true, ..IndexProgress::default() };
        if Self::build(&mut conn).await?.0.is_none()
            && rows::dues(&mut conn, 1).await?.is_empty()
            && rows::outbox(&mut conn, 1).await?.is_empty()
        {
            return Ok(done);
        }
        drop(conn);
        let mut tx = self.write().await?;
        let steps: Option<i64> = sqlx::query_scalar(LOCK).fetch_optional(tx.conn()).await.map_err(map)?;
        let Some(steps) = steps else { return Err(StoreError::Busy { waited_ms: 0 }) };
        let (place, _) = Self::build(tx.conn()).await?;
        let mut work = Work {
            rows: limit.clamp(1, SEARCH_STEP_MAX_ROWS),
            bytes: SEARCH_STEP_MAX_BYTES,
            written: 0,
            dues: Vec::new(),
            entries: Vec::new(),
        };
        let place = collect(tx.conn(), place, &mut work).await?;
        sqlx::query(SET_PLACE).bind(&place).execute(tx.conn()).await.map_err(failed)?;
        rows::done(tx.conn(), &work.dues, &work.entries).await?;
        rows::count_step(tx.conn(), VERSION, steps + 1).await?;
        tx.commit().await?;
        let is_done =
            place.is_none() && !work.is_spent() && work.dues.len().max(work.entries.len()) < SEARCH_STEP_CONVERSATIONS;
        Ok(IndexProgress { rows: work.written, conversations: work.dues.len() as u64, is_done })
    }

    /// Brings the index up to date, within limits. False when it cannot be used.
    async fn catch_up(&self) -> Result<bool, StoreError> {
        for _ in 0..SEARCH_STEPS_MAX {
            match self.step(SEARCH_STEP_ROWS).await {
                Ok(progress) if progress.is_done => return Ok(true),
                Ok(_) | Err(StoreError::Busy { .. } | StoreError::Retryable { .. }) => {}
                Err(StoreError::SearchIndex { detail }) => {
                    tracing::warn!("the search index cannot be used: {detail}");
                    return Ok(false);
                }
                Err(error) => {
                    tracing::debug!("the search index was not brought up to date: {error}");
                    break;
                }
            }
        }
        Ok(true)
    }

    async fn search_index(&self, query: &SearchQuery, parsed: &Parsed) -> Result<SearchPage, StoreError> {
        let mut conn = self.readers().acquire().await.map_err(map)?;
        let (build, has_parts) = Self::build(&mut conn).await?;
        let words = parsed.tsquery();
        let parts = parsed.parts().filter(|_| has_parts);
        let sql = statement(query, words.is_some(), parts.as_deref());
        let mut place = query.place('p')?.unwrap_or(0);
        let mut found = rows::Found::default();
        loop {
            let mut statement = sqlx::query(AssertSqlSafe(sql.as_str()))
                .bind(query.since_ms.unwrap_or(i64::MIN))
                .bind(query.until_ms.unwrap_or(i64::MAX))
                .bind(query.role.map_or("", Role::as_str))
                .bind(query.conversation.as_ref().map_or("", ConversationId::as_str))
                .bind(text_in(query.profile.as_deref().unwrap_or_default()))
                .bind(text_in(query.source.as_deref().unwrap_or_default()))
                .bind(place)
                .bind(i64::try_from(SEARCH_LOOK_PAGE_ROWS).unwrap_or(i64::MAX));
            if let Some(words) = &words {
                statement = statement.bind(words);
            }
            for part in parts.iter().flatten().flatten() {
                let escaped = part.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
                statement = statement.bind(format!("%{escaped}%"));
            }
            let named = statement.fetch_all(&mut *conn).await.map_err(failed)?;
            let mut candidates: Vec<rows::Candidate> = Vec::with_capacity(named.len());
            for row in &named {
                place += 1;
                if let Ok(id) = ConversationId::parse(row.try_get(0).map_err(failed)?) {
                    candidates.push((id, row.try_get(1).map_err(failed)?, place));
                }
            }
            if named.is_empty() || found.look(&mut conn, query, parsed, &candidates).await? {
                break;
            }
        }
        let state = if build.is_some() { IndexState::Building } else { IndexState::Ready };
        let pending = rows::count_due(&mut conn).await?;
        Ok(found.page(query, 'p', state, pending))
    }
}

/// The statement that names rows: `$1` to `$6` are the filters, `$7` and `$8` the place and the number of rows.
fn statement(query: &SearchQuery, has_words: bool, parts: Option<&[Vec<String>]>) -> String {
    let mut conditions = String::from(
        "d.created_ms >= $1 AND d.created_ms < $2 AND ($3 = '' OR d.role = $3) AND ($4 = '' OR d.conversation_id = $4) \
         AND ($5 = '' OR c.profile = $5) AND ($6 = '' OR c.source = $6)",
    );
    let mut next = 9;
    if has_words {
        conditions.push_str(" AND d.body @@ CAST(CAST($9 AS TEXT) AS TSQUERY)");
        next += 1;
    }
    if let Some(clauses) = parts {
        let clauses: Vec<String> = clauses
            .iter()
            .map(|all| {
                let all: Vec<String> = all
                    .iter()
                    .map(|_| {
                        next += 1;
                        format!("d.folded LIKE ${}", next - 1)
                    })
                    .collect();
                format!("({})", all.join(" AND "))
            })
            .collect();
        let _ = write!(conditions, " AND ({})", clauses.join(" OR "));
    }
    let base = format!("FROM search_docs d JOIN conversations c ON c.id = d.conversation_id WHERE {conditions}");
    let key = |direction: &str| format!("d.created_ms {direction}, d.seq {direction}, d.conversation_id {direction}");
    match query.order {
        SearchOrder::Rank if has_words => format!(
            "{SELECT} conversation_id, seq FROM ({SELECT} d.conversation_id, d.seq, d.created_ms, \
             ts_rank(d.body, CAST(CAST($9 AS TEXT) AS TSQUERY)) AS weight {base} ORDER BY {} \
             LIMIT {SEARCH_RANK_MAX_ROWS}) best ORDER BY weight DESC, created_ms DESC, seq DESC, conversation_id \
             OFFSET $7 LIMIT $8",
            key("DESC")
        ),
        SearchOrder::Oldest => {
            format!("{SELECT} d.conversation_id, d.seq {base} ORDER BY {} OFFSET $7 LIMIT $8", key("ASC"))
        }
        SearchOrder::Newest | SearchOrder::Rank => {
            format!("{SELECT} d.conversation_id, d.seq {base} ORDER BY {} OFFSET $7 LIMIT $8", key("DESC"))
        }
    }
}

#[async_trait]
impl SearchStore for PostgresStore {
    async fn search(&self, query: SearchQuery) -> Result<SearchPage, StoreError> {
        let parsed = Parsed::parse(&query.text)?;
        if parsed.is_empty() {
            return Ok(SearchPage { hits: Vec::new(), next: None, index: IndexState::Ready, pending: 0 });
        }
        let is_scan = query.cursor.as_ref().is_some_and(|cursor| cursor.starts_with(rows::SCAN));
        if is_scan || !self.catch_up().await? {
            return self.search_rows(&query, &parsed).await;
        }
        match self.search_index(&query, &parsed).await {
            Err(StoreError::SearchIndex { detail }) if query.cursor.is_none() => {
                tracing::warn!("the search index cannot be used: {detail}");
                self.search_rows(&query, &parsed).await
            }
            other => other,
        }
    }

    async fn index_step(&self, limit: usize) -> Result<IndexProgress, StoreError> {
        self.step(limit).await
    }

    async fn rebuild_index(&self) -> Result<(), StoreError> {
        self.ensure_index(true).await
    }

    async fn index_status(&self) -> Result<IndexStatus, StoreError> {
        let mut conn = self.readers().acquire().await.map_err(map)?;
        let pending = rows::count_due(&mut conn).await?;
        drop(conn);
        let look = async {
            self.ensure_index(false).await?;
            let mut conn = self.readers().acquire().await.map_err(map)?;
            let (build, has_parts) = Self::build(&mut conn).await?;
            let row = sqlx::query(COUNT).fetch_one(&mut *conn).await.map_err(failed)?;
            let number = |at| row.try_get::<i64, _>(at).map_err(failed).map(|n| u64::try_from(n).unwrap_or(0));
            let note = "parts of words are looked for row by row: the extension pg_trgm is not there; a superuser makes \
                        it with CREATE EXTENSION pg_trgm, and `hermes sessions reindex` uses it";
            Ok(IndexStatus {
                state: if build.is_some() { IndexState::Building } else { IndexState::Ready },
                rows: number(0)?,
                pending,
                bytes: Some(number(1)?),
                has_parts,
                note: (!has_parts).then(|| note.to_owned()),
            })
        };
        match look.await {
            Err(error @ StoreError::SearchIndex { .. }) => Ok(IndexStatus {
                state: IndexState::Unusable,
                rows: 0,
                pending,
                bytes: None,
                has_parts: false,
                note: Some(error.to_string()),
            }),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_holds_words_with_their_places() {
        assert_eq!(vector("b a b"), "'a':2 'b':1,3 ");
        assert_eq!(vector("++"), "");
        assert!(vector(&"世界和平".repeat(100_000)).len() < VECTOR_MAX_BYTES);
    }
}
