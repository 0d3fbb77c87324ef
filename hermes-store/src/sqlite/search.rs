//! Search on SQLite: rows are named by the index, and looked at in the transcript.

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Row as _, SqliteConnection};

use super::SqliteStore;
use super::errors::map;
use super::index::{key_of_time, of_index};
use super::sql::search as rows;
use crate::error::StoreError;
use crate::ids::ConversationId;
use crate::limits::{SEARCH_LOOK_PAGE_ROWS, SEARCH_RANK_MAX_ROWS, SEARCH_STEP_ROWS, SEARCH_STEPS_MAX};
use crate::search::query::Parsed;
use crate::search::{IndexProgress, IndexState, IndexStatus, SearchOrder, SearchPage, SearchQuery, SearchStore};

/// The walk along an index: one statement, made once, and the place that it has come to.
struct Walk {
    sql: String,
    /// Conditions on words and parts, in the order of their parameters.
    matches: Vec<String>,
    order: SearchOrder,
    place: i64,
}

/// The first word of the statements that are made here; all others are constants.
const SELECT: &str = "SELECT";

/// The letter that a cursor begins with.
fn letter(order: SearchOrder) -> char {
    match order {
        SearchOrder::Newest => 'n',
        SearchOrder::Oldest => 'o',
        SearchOrder::Rank => 'r',
    }
}

/// `$1` to `$6` are the filters, `$7` and `$8` the place and the number of rows, the rest is matched.
const FILTERS: &str = "d.id >= $1 AND d.id < $2 AND ($3 = '' OR d.role = $3) AND ($4 = '' OR c.id = $4) \
     AND ($5 = '' OR c.profile = $5) AND ($6 = '' OR c.source = $6)";

impl Walk {
    fn new(query: &SearchQuery, parsed: &Parsed) -> Result<Self, StoreError> {
        let (words, parts) = (parsed.fts5_words(), parsed.fts5_grams());
        // The table that is walked along comes first; its order is that of the keys.
        let (from, key) = match (&words, &parts) {
            (Some(_), _) => ("words w CROSS JOIN docs d ON d.id = w.rowid", "w.rowid"),
            (None, Some(_)) => ("grams w CROSS JOIN docs d ON d.id = w.rowid", "w.rowid"),
            (None, None) => ("docs d", "d.id"),
        };
        let mut conditions = String::new();
        if words.is_some() {
            conditions.push_str("words MATCH $9 AND ");
        } else if parts.is_some() {
            conditions.push_str("grams MATCH $9 AND ");
        }
        if words.is_some() && parts.is_some() {
            conditions.push_str("w.rowid IN (SELECT rowid FROM grams WHERE grams MATCH $10) AND ");
        }
        let base = format!("FROM {from} CROSS JOIN convs c ON c.k = d.conv WHERE {conditions}{FILTERS}");
        // Bounds on the walked table itself let the walk begin and end at them.
        let base = base.replace("d.id >= $1 AND d.id < $2", &format!("{key} >= $1 AND {key} < $2"));
        let order = match (query.order, &words) {
            // Nothing to measure by.
            (SearchOrder::Rank, None) => SearchOrder::Newest,
            (order, _) => order,
        };
        let place = query.place(letter(query.order))?;
        let (sql, start) = match order {
            SearchOrder::Newest => {
                (format!("{SELECT} c.id, d.seq, {key} {base} AND {key} < $7 ORDER BY {key} DESC LIMIT $8"), i64::MAX)
            }
            SearchOrder::Oldest => {
                (format!("{SELECT} c.id, d.seq, {key} {base} AND {key} > $7 ORDER BY {key} LIMIT $8"), -1)
            }
            SearchOrder::Rank => {
                let best = format!(
                    "{SELECT} c.id AS conv, d.seq AS seq, {key} AS place, bm25(words) AS weight {base} \
                     ORDER BY {key} DESC LIMIT {SEARCH_RANK_MAX_ROWS}"
                );
                (format!("{SELECT} conv, seq, place FROM ({best}) ORDER BY weight, place DESC LIMIT $8 OFFSET $7"), 0)
            }
        };
        Ok(Self { sql, matches: words.into_iter().chain(parts).collect(), order, place: place.unwrap_or(start) })
    }

    /// The next rows, and the place behind them.
    async fn next(
        &mut self,
        conn: &mut SqliteConnection,
        query: &SearchQuery,
    ) -> Result<Vec<rows::Candidate>, StoreError> {
        let mut statement = sqlx::query(AssertSqlSafe(self.sql.as_str()))
            .bind(query.since_ms.map_or(0, key_of_time))
            .bind(query.until_ms.map_or(i64::MAX, key_of_time))
            .bind(query.role.map_or("", crate::message::Role::as_str))
            .bind(query.conversation.as_ref().map_or("", ConversationId::as_str))
            .bind(query.profile.as_deref().unwrap_or_default())
            .bind(query.source.as_deref().unwrap_or_default())
            .bind(self.place)
            .bind(i64::try_from(SEARCH_LOOK_PAGE_ROWS).unwrap_or(i64::MAX));
        for condition in &self.matches {
            statement = statement.bind(condition);
        }
        let found = statement.fetch_all(conn).await.map_err(|error| of_index(map(error)))?;
        let mut out = Vec::with_capacity(found.len());
        for row in &found {
            let get = |error| of_index(map(error));
            let id: &str = row.try_get(0).map_err(get)?;
            let key: i64 = row.try_get(2).map_err(get)?;
            self.place = if self.order == SearchOrder::Rank { self.place + 1 } else { key };
            // What is no id is damage, and leads to no row.
            if let Ok(id) = ConversationId::parse(id) {
                out.push((id, row.try_get(1).map_err(get)?, self.place));
            }
        }
        Ok(out)
    }
}

impl SqliteStore {
    /// Brings the index up to date, within limits. Says how it is.
    async fn catch_up(&self) -> Result<IndexState, StoreError> {
        for _ in 0..SEARCH_STEPS_MAX {
            match self.step(SEARCH_STEP_ROWS).await {
                Ok(progress) if progress.is_done => return Ok(IndexState::Ready),
                // Another process is at work on it, or it was begun anew: what is there can be read.
                Ok(_) | Err(StoreError::Busy { .. } | StoreError::Retryable { .. }) => {}
                Err(StoreError::SearchIndex { detail }) => {
                    tracing::warn!("the search index cannot be used: {detail}");
                    return Ok(IndexState::Unusable);
                }
                // The store cannot be written just now; the index may be read all the same.
                Err(error) => {
                    tracing::debug!("the search index was not brought up to date: {error}");
                    break;
                }
            }
        }
        Ok(IndexState::Ready)
    }

    async fn search_index(&self, query: &SearchQuery, parsed: &Parsed) -> Result<SearchPage, StoreError> {
        let index = self.index().await?;
        let mut conn = index.pool.acquire().await.map_err(|error| of_index(map(error)))?;
        let mut reader = self.readers().acquire().await.map_err(map)?;
        let mut walk = Walk::new(query, parsed)?;
        let mut found = rows::Found::default();
        loop {
            let candidates = walk.next(&mut conn, query).await?;
            if candidates.is_empty() || found.look(&mut reader, query, parsed, &candidates).await? {
                break;
            }
        }
        let state = self.index_state(&mut conn).await?;
        let pending = rows::count_due(&mut reader).await?;
        Ok(found.page(query, letter(query.order), state, pending))
    }
}

#[async_trait]
impl SearchStore for SqliteStore {
    async fn search(&self, query: SearchQuery) -> Result<SearchPage, StoreError> {
        let parsed = Parsed::parse(&query.text)?;
        if parsed.is_empty() {
            return Ok(SearchPage { hits: Vec::new(), next: None, index: IndexState::Ready, pending: 0 });
        }
        let is_scan = query.cursor.as_ref().is_some_and(|cursor| cursor.starts_with(rows::SCAN));
        if is_scan || self.catch_up().await? == IndexState::Unusable {
            return self.search_rows(&query, &parsed).await;
        }
        match self.search_index(&query, &parsed).await {
            // A page of the damaged part is read only now. A search that is under way is told; a new one goes on without.
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
        self.rebuild().await
    }

    async fn index_status(&self) -> Result<IndexStatus, StoreError> {
        self.look_at_index().await
    }
}
