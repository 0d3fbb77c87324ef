//! The file of the search index, beside the file of the store: opened when it is first needed, and begun anew when it is
//! missing, of another version, or not this store's.
//!
//! Several processes share it as they share the store. Whoever indexes holds its write lock for one step, reads the
//! transcript while it holds it, and says in the store that the step was done only after the step is on the disk. The
//! two locks are taken in this order only.
//!
//! Times of writing are the keys of the entries (see [`first_key`]), so that "the newest rows with these words" is a
//! walk along the index that stops when it has enough.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Row as _, SqliteConnection, SqlitePool};

use super::errors::{is_busy, map, map_commit};
use super::guard::{self, Identity};
use super::sql::search as rows;
use super::write::BEGIN;
use super::{SqliteStore, WriteKind};
use crate::error::StoreError;
use crate::ids::ConversationId;
use crate::limits::{
    SEARCH_INDEX_READERS, SEARCH_LOCK_WAIT_MS, SEARCH_STEP_CONVERSATIONS, SEARCH_STEP_MAX_BYTES, SEARCH_STEP_MAX_ROWS,
    STATEMENTS_MAX,
};
use crate::message::Role;
use crate::search::{IndexProgress, IndexState, IndexStatus, text};

/// Version of the index's tables and of the words in them. Any other one is thrown away.
const VERSION: i64 = 1;
/// Lower bits of a key that tell rows of one millisecond apart.
const KEY_BITS: u32 = 10;
/// Times beyond this (the year 2109) are taken for it: a key must be a positive number.
const TIME_MAX_MS: i64 = 1 << 42;

const TABLES: [&str; 6] = [
    "CREATE TABLE meta (id INTEGER PRIMARY KEY, stamp TEXT NOT NULL, steps INTEGER NOT NULL, cursor TEXT)",
    "CREATE TABLE convs (k INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, profile TEXT NOT NULL, source TEXT NOT NULL, \
     upto INTEGER NOT NULL)",
    "CREATE TABLE docs (id INTEGER PRIMARY KEY, conv INTEGER NOT NULL, seq INTEGER NOT NULL, role TEXT NOT NULL)",
    "CREATE UNIQUE INDEX docs_by_place ON docs (conv, seq)",
    // Words come cut and folded, with spaces between; this tokenizer only splits at them.
    "CREATE VIRTUAL TABLE words USING fts5(body, content = '', contentless_delete = 1, tokenize = 'ascii')",
    // Which parts stand in a row, without where: the row itself is looked at in the end.
    "CREATE VIRTUAL TABLE grams USING fts5(body, content = '', contentless_delete = 1, detail = none, \
     tokenize = 'trigram case_sensitive 1')",
];
const STATUS: &str = "SELECT (SELECT user_version FROM pragma_user_version), (SELECT COUNT(*) FROM sqlite_master)";
const META: &str = "SELECT stamp, steps, cursor FROM meta WHERE id = 1";
const SET_META: &str = "INSERT INTO meta (id, stamp, steps, cursor) VALUES (1, $1, $2, $3) \
     ON CONFLICT (id) DO UPDATE SET stamp = excluded.stamp, steps = excluded.steps, cursor = excluded.cursor";
const COUNT_DOCS: &str = "SELECT COUNT(*) FROM docs";

const CONV: &str = "SELECT k, upto FROM convs WHERE id = $1";
const ADD_CONV: &str = "INSERT INTO convs (id, profile, source, upto) VALUES ($1, $2, $3, 0) RETURNING k";
const SET_UPTO: &str = "UPDATE convs SET upto = $2 WHERE k = $1";
const DROP_CONV: &str = "DELETE FROM convs WHERE k = $1";
const KNOWN: &str = "SELECT seq FROM docs WHERE conv = $1 AND seq > $2 AND seq <= $3";
const ADD_DOC: &str = "INSERT INTO docs (id, conv, seq, role) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
const LAST_KEY: &str = "SELECT MAX(id) FROM docs WHERE id >= $1 AND id < $2";
const ADD_WORDS: &str = "INSERT INTO words (rowid, body) \
     SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each($1)";
const ADD_GRAMS: &str = "INSERT INTO grams (rowid, body) \
     SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each($1)";
const DOCS_OF: &str = "SELECT id FROM docs WHERE conv = $1 LIMIT $2";
const DROP_DOC: [&str; 3] =
    ["DELETE FROM words WHERE rowid = $1", "DELETE FROM grams WHERE rowid = $1", "DELETE FROM docs WHERE id = $1"];

/// The index of one store.
pub(super) struct IndexFile {
    path: PathBuf,
    opened: Mutex<Option<Arc<Opened>>>,
}

/// An index that is open, checked, and this store's.
pub(super) struct Opened {
    pub(super) pool: SqlitePool,
    identity: Identity,
    stamp: String,
}

/// Where an index stands.
struct Meta {
    stamp: String,
    steps: i64,
    /// The conversation that a build goes on behind; `None` when it has seen all.
    cursor: Option<String>,
}

/// What a step may still write.
struct Budget {
    rows: usize,
    bytes: usize,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.rows == 0 || self.bytes == 0
    }
}

/// What a step has come to.
#[derive(Default)]
struct Work {
    docs: Vec<(i64, rows::Doc)>,
    dues: Vec<rows::Due>,
    entries: Vec<rows::Entry>,
    removed: u64,
}

/// Says of an error that it is the index's.
pub(super) fn of_index(error: StoreError) -> StoreError {
    match error {
        StoreError::Busy { .. } | StoreError::Retryable { .. } | StoreError::SearchIndex { .. } => error,
        other => StoreError::SearchIndex { detail: other.to_string() },
    }
}

fn failed(error: sqlx::Error) -> StoreError {
    of_index(map(error))
}

/// The key that a row of this time has, unless another row has it.
fn first_key(created_ms: i64, seq: i64) -> i64 {
    (created_ms.clamp(0, TIME_MAX_MS) << KEY_BITS) | (seq & ((1 << KEY_BITS) - 1))
}

/// The lowest key of a time.
pub(super) fn key_of_time(ms: i64) -> i64 {
    first_key(ms, 0)
}

impl IndexFile {
    /// The index of the store at `store`; nothing is opened yet.
    pub(super) fn beside(store: &Path) -> Self {
        let stem = store.file_stem().map(std::ffi::OsStr::to_os_string).unwrap_or_default();
        let mut name = stem;
        name.push("-search.db");
        Self { path: store.with_file_name(name), opened: Mutex::new(None) }
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Arc<Opened>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what is open. The next use opens it again.
    pub(super) async fn close(&self) {
        let opened = self.slot().take();
        if let Some(opened) = opened {
            opened.pool.close().await;
        }
    }

    /// Removes the file with what SQLite keeps beside it.
    async fn remove(&self) -> Result<(), StoreError> {
        self.close().await;
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut path = self.path.clone().into_os_string();
            path.push(suffix);
            match tokio::fs::remove_file(&path).await {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let detail = format!("{} cannot be removed: {error}", self.path.display());
                    return Err(StoreError::SearchIndex { detail });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The size of the file and of what stands beside it, in bytes.
    async fn bytes(&self) -> Option<u64> {
        let mut wal = self.path.clone().into_os_string();
        wal.push("-wal");
        let beside = tokio::fs::metadata(wal).await.map_or(0, |file| file.len());
        tokio::fs::metadata(&self.path).await.ok().map(|file| file.len() + beside)
    }
}

async fn connect(path: &Path) -> Result<(SqlitePool, Identity), StoreError> {
    let target = path.to_owned();
    let prepared = tokio::task::spawn_blocking(move || guard::prepare(&target, true)).await;
    let identity = prepared.map_err(|error| StoreError::Io { detail: error.to_string() })?.map_err(of_index)?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(Duration::from_millis(SEARCH_LOCK_WAIT_MS))
        .journal_mode(SqliteJournalMode::Wal)
        // The store is told that a step is done; so the step must be on the disk.
        .synchronous(SqliteSynchronous::Full)
        .statement_cache_capacity(STATEMENTS_MAX);
    let pool = SqlitePoolOptions::new()
        .max_connections(SEARCH_INDEX_READERS)
        .min_connections(0)
        .acquire_timeout(Duration::from_millis(SEARCH_LOCK_WAIT_MS.saturating_mul(4)))
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_lazy_with(options);
    Ok((pool, identity))
}

async fn meta(conn: &mut SqliteConnection) -> Result<Meta, StoreError> {
    let row = sqlx::query(META).fetch_optional(conn).await.map_err(failed)?;
    let missing = || StoreError::SearchIndex { detail: "the index does not say where it stands".to_owned() };
    let row = row.ok_or_else(missing)?;
    let col = |error| failed(error);
    Ok(Meta {
        stamp: row.try_get(0).map_err(col)?,
        steps: row.try_get(1).map_err(col)?,
        cursor: row.try_get(2).map_err(col)?,
    })
}

async fn set_meta(conn: &mut SqliteConnection, meta: &Meta) -> Result<(), StoreError> {
    let set = sqlx::query(SET_META).bind(&meta.stamp).bind(meta.steps).bind(&meta.cursor);
    set.execute(conn).await.map(drop).map_err(failed)
}

/// Makes an empty index: its tables, and the beginning of a build.
async fn found(conn: &mut SqliteConnection, stamp: &str) -> Result<(), StoreError> {
    for table in TABLES {
        sqlx::query(table).execute(&mut *conn).await.map_err(failed)?;
    }
    let version = sqlx::AssertSqlSafe(format!("PRAGMA user_version = {VERSION}"));
    sqlx::query(version).execute(&mut *conn).await.map_err(failed)?;
    set_meta(conn, &Meta { stamp: stamp.to_owned(), steps: 0, cursor: Some(String::new()) }).await
}

/// What a look at a file came to.
enum Checked {
    Ours(String),
    /// Another version, another store's, or behind the store: of no use.
    Useless,
}

impl SqliteStore {
    /// The index, opened, checked, and registered as this store's.
    pub(super) async fn index(&self) -> Result<Arc<Opened>, StoreError> {
        let file = &self.shared.index;
        let opened = file.slot().clone();
        if let Some(opened) = opened {
            if guard::check(file.path.clone(), opened.identity).await.is_ok() {
                return Ok(opened);
            }
            // It was deleted, or begun anew by another process.
            file.close().await;
        }
        for _ in 0..2 {
            let (pool, identity) = connect(&file.path).await?;
            match self.check_index(&pool).await {
                Ok(Checked::Ours(stamp)) => {
                    let opened = Arc::new(Opened { pool, identity, stamp });
                    *file.slot() = Some(Arc::clone(&opened));
                    return Ok(opened);
                }
                Ok(Checked::Useless) => {
                    pool.close().await;
                    file.remove().await?;
                }
                Err(error) => {
                    pool.close().await;
                    return Err(error);
                }
            }
        }
        Err(StoreError::Retryable { detail: "another process began the search index anew".to_owned() })
    }

    async fn check_index(&self, pool: &SqlitePool) -> Result<Checked, StoreError> {
        let mut conn = pool.acquire().await.map_err(failed)?;
        let mut tx = begin(&mut conn).await?;
        let status = sqlx::query(STATUS).fetch_one(&mut *tx).await.map_err(failed)?;
        let (version, objects): (i64, i64) = (status.try_get(0).map_err(failed)?, status.try_get(1).map_err(failed)?);
        let mut reader = self.readers().acquire().await.map_err(map)?;
        let known = rows::registered(&mut reader).await?;
        drop(reader);
        if objects == 0 {
            let stamp = uuid::Uuid::now_v7().simple().to_string();
            found(&mut tx, &stamp).await?;
            // Told first: an index that was never registered is thrown away when it is next opened.
            let mut write = self.write_within(WriteKind::Normal).await?;
            rows::register(write.conn(), &stamp).await?;
            write.commit().await?;
            tx.commit().await.map_err(|error| of_index(map_commit(error)))?;
            return Ok(Checked::Ours(stamp));
        }
        if version != VERSION {
            return Ok(Checked::Useless);
        }
        let meta = meta(&mut tx).await?;
        match known {
            Some((stamp, steps)) if stamp == meta.stamp && steps <= meta.steps => Ok(Checked::Ours(stamp)),
            _ => Ok(Checked::Useless),
        }
    }

    /// How the index is, by its own words.
    pub(super) async fn index_state(&self, conn: &mut SqliteConnection) -> Result<IndexState, StoreError> {
        Ok(match meta(conn).await?.cursor {
            Some(_) => IndexState::Building,
            None => IndexState::Ready,
        })
    }

    /// One step of the index.
    pub(super) async fn step(&self, limit: usize) -> Result<IndexProgress, StoreError> {
        let index = self.index().await?;
        let mut reader = self.readers().acquire().await.map_err(map)?;
        let mut conn = index.pool.acquire().await.map_err(failed)?;
        if meta(&mut conn).await?.cursor.is_none()
            && rows::dues(&mut reader, 1).await?.is_empty()
            && rows::outbox(&mut reader, 1).await?.is_empty()
        {
            return Ok(IndexProgress { is_done: true, ..IndexProgress::default() });
        }
        let mut tx = begin(&mut conn).await?;
        let mut meta = meta(&mut tx).await?;
        if meta.stamp != index.stamp {
            return Err(StoreError::Retryable { detail: "the search index was begun anew".to_owned() });
        }
        let mut budget = Budget { rows: limit.clamp(1, SEARCH_STEP_MAX_ROWS), bytes: SEARCH_STEP_MAX_BYTES };
        let mut work = Work::default();
        collect(&mut tx, &mut reader, &mut meta, &mut budget, &mut work).await?;
        let written = write(&mut tx, std::mem::take(&mut work.docs)).await?;
        meta.steps += 1;
        set_meta(&mut tx, &meta).await?;
        tx.commit().await.map_err(|error| of_index(map_commit(error)))?;

        let mut told = self.write_within(WriteKind::Normal).await?;
        if !rows::count_step(told.conn(), &meta.stamp, meta.steps).await? {
            return Err(StoreError::Retryable { detail: "the search index was begun anew".to_owned() });
        }
        rows::done(told.conn(), &work.dues, &work.entries).await?;
        told.commit().await?;
        let is_done = meta.cursor.is_none()
            && !budget.is_spent()
            && work.dues.len().max(work.entries.len()) < SEARCH_STEP_CONVERSATIONS;
        Ok(IndexProgress { rows: written + work.removed, conversations: work.dues.len() as u64, is_done })
    }

    /// Throws the index away and begins an empty one.
    pub(super) async fn rebuild(&self) -> Result<(), StoreError> {
        self.shared.index.remove().await?;
        self.index().await.map(drop)
    }

    /// How the index stands.
    pub(super) async fn look_at_index(&self) -> Result<IndexStatus, StoreError> {
        let mut reader = self.readers().acquire().await.map_err(map)?;
        let pending = rows::count_due(&mut reader).await?;
        let bytes = self.shared.index.bytes().await;
        let look = async {
            let index = self.index().await?;
            let mut conn = index.pool.acquire().await.map_err(failed)?;
            let state = self.index_state(&mut conn).await?;
            let docs: i64 = sqlx::query_scalar(COUNT_DOCS).fetch_one(&mut *conn).await.map_err(failed)?;
            Ok((state, u64::try_from(docs).unwrap_or(0)))
        };
        let (state, docs, note) = match look.await {
            Ok((state, docs)) => (state, docs, None),
            Err(error @ StoreError::SearchIndex { .. }) => (IndexState::Unusable, 0, Some(error.to_string())),
            Err(error @ (StoreError::Busy { .. } | StoreError::Retryable { .. })) => {
                (IndexState::Building, 0, Some(error.to_string()))
            }
            Err(error) => return Err(error),
        };
        Ok(IndexStatus { state, rows: docs, pending, bytes, has_parts: true, note })
    }
}

/// The write lock of the index, waited for as long as its connection waits.
async fn begin(conn: &mut SqliteConnection) -> Result<sqlx::Transaction<'_, sqlx::Sqlite>, StoreError> {
    use sqlx::Connection as _;
    match conn.begin_with(BEGIN).await {
        Ok(tx) => Ok(tx),
        Err(error) if is_busy(&error) => Err(StoreError::Busy { waited_ms: SEARCH_LOCK_WAIT_MS }),
        Err(error) => Err(failed(error)),
    }
}

/// Takes what is due: deleted conversations, changed ones, and those that a build has not come to.
async fn collect(
    tx: &mut SqliteConnection,
    reader: &mut SqliteConnection,
    meta: &mut Meta,
    budget: &mut Budget,
    work: &mut Work,
) -> Result<(), StoreError> {
    for entry in rows::outbox(reader, SEARCH_STEP_CONVERSATIONS).await? {
        if !purge(tx, &entry.id, budget, work).await? {
            return Ok(());
        }
        // The same id may have been begun again, and indexed, before the entry was seen.
        if let Some(home) = rows::home(reader, &entry.id).await?
            && !feed(tx, reader, rows::Due { id: entry.id.clone(), revision: home.revision }, budget, work).await?
        {
            return Ok(());
        }
        work.entries.push(entry);
    }
    for due in rows::dues(reader, SEARCH_STEP_CONVERSATIONS).await? {
        if !feed(tx, reader, due, budget, work).await? {
            return Ok(());
        }
    }
    if let Some(cursor) = meta.cursor.clone() {
        let page = rows::after(reader, &cursor, SEARCH_STEP_CONVERSATIONS).await?;
        if page.is_empty() {
            meta.cursor = None;
        }
        for due in page {
            let id = due.id.as_str().to_owned();
            if !feed(tx, reader, due, budget, work).await? {
                return Ok(());
            }
            meta.cursor = Some(id);
        }
    }
    Ok(())
}

/// Removes what the index has of a conversation. False when the budget was spent before the end.
async fn purge(
    tx: &mut SqliteConnection,
    id: &ConversationId,
    budget: &mut Budget,
    work: &mut Work,
) -> Result<bool, StoreError> {
    let Some(conv) = sqlx::query(CONV).bind(id.as_str()).fetch_optional(&mut *tx).await.map_err(failed)? else {
        return Ok(true);
    };
    let k: i64 = conv.try_get(0).map_err(failed)?;
    let most = i64::try_from(budget.rows).unwrap_or(i64::MAX);
    let docs: Vec<i64> = sqlx::query_scalar(DOCS_OF).bind(k).bind(most).fetch_all(&mut *tx).await.map_err(failed)?;
    for doc in &docs {
        for statement in DROP_DOC {
            sqlx::query(statement).bind(doc).execute(&mut *tx).await.map_err(failed)?;
        }
    }
    budget.rows -= docs.len();
    work.removed += docs.len() as u64;
    if budget.is_spent() {
        // What is read again is found as it was; only the entries of this conversation must not come back half.
        sqlx::query(SET_UPTO).bind(k).bind(0).execute(tx).await.map_err(failed)?;
        return Ok(false);
    }
    sqlx::query(DROP_CONV).bind(k).execute(tx).await.map_err(failed)?;
    Ok(true)
}

/// Takes the rows of a conversation that the index does not have. False when the budget was spent before the end.
async fn feed(
    tx: &mut SqliteConnection,
    reader: &mut SqliteConnection,
    due: rows::Due,
    budget: &mut Budget,
    work: &mut Work,
) -> Result<bool, StoreError> {
    // Deleted since: its entry in the outbox says the rest.
    let Some(home) = rows::home(reader, &due.id).await? else { return Ok(true) };
    let conv = sqlx::query(CONV).bind(due.id.as_str()).fetch_optional(&mut *tx).await.map_err(failed)?;
    let (k, upto): (i64, i64) = match conv {
        Some(row) => (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?),
        None => {
            let add = sqlx::query_scalar(ADD_CONV).bind(due.id.as_str()).bind(&home.profile).bind(&home.source);
            (add.fetch_one(&mut *tx).await.map_err(failed)?, 0)
        }
    };
    // Results come after rows that stand behind them; where one is missing, all behind it is looked at again.
    let open = rows::open_call(reader, &due.id, upto).await?;
    let mut after = upto;
    let mut is_end = false;
    while !is_end && !budget.is_spent() {
        let page = rows::docs(reader, &due.id, after, budget.rows).await?;
        let known: Vec<i64> = sqlx::query_scalar(KNOWN)
            .bind(k)
            .bind(after)
            .bind(page.last_seq)
            .fetch_all(&mut *tx)
            .await
            .map_err(failed)?;
        for doc in page.docs.into_iter().filter(|doc| !known.contains(&doc.seq)) {
            budget.rows = budget.rows.saturating_sub(1);
            budget.bytes = budget.bytes.saturating_sub(doc.content.len());
            work.docs.push((k, doc));
        }
        after = page.last_seq;
        is_end = !page.has_more;
    }
    let upto = open.map_or(after, |open| after.min(open - 1));
    sqlx::query(SET_UPTO).bind(k).bind(upto).execute(tx).await.map_err(failed)?;
    if is_end {
        work.dues.push(due);
    }
    Ok(is_end)
}

/// Writes entries, in the order of their keys: FTS5 collects entries in memory as long as their keys grow.
async fn write(tx: &mut SqliteConnection, docs: Vec<(i64, rows::Doc)>) -> Result<u64, StoreError> {
    let mut keyed = Vec::with_capacity(docs.len());
    for (k, doc) in docs {
        if let Some(key) = add_doc(tx, k, &doc).await? {
            keyed.push((key, doc));
        }
    }
    if keyed.is_empty() {
        return Ok(0);
    }
    keyed.sort_unstable_by_key(|(key, _)| *key);
    let mut words = Vec::with_capacity(keyed.len());
    let mut grams = Vec::new();
    for (key, doc) in &keyed {
        let seen = text::searchable(doc.role, &doc.content);
        words.push((key, text::joined(&text::words(seen))));
        if doc.role != Role::Tool {
            grams.push((key, text::fold(seen)));
        }
    }
    for (statement, entries) in [(ADD_WORDS, &words), (ADD_GRAMS, &grams)] {
        let json = serde_json::to_string(entries).map_err(|error| StoreError::Io { detail: error.to_string() })?;
        sqlx::query(statement).bind(json).execute(&mut *tx).await.map_err(failed)?;
    }
    Ok(keyed.len() as u64)
}

/// Gives a row its key; `None` when the index has the row.
async fn add_doc(tx: &mut SqliteConnection, k: i64, doc: &rows::Doc) -> Result<Option<i64>, StoreError> {
    let mut key = first_key(doc.created_ms, doc.seq);
    let mut jump: i64 = 1 << KEY_BITS;
    loop {
        let add = sqlx::query(ADD_DOC).bind(key).bind(k).bind(doc.seq).bind(doc.role.as_str());
        if add.execute(&mut *tx).await.map_err(failed)?.rows_affected() > 0 {
            return Ok(Some(key));
        }
        let known = sqlx::query(KNOWN).bind(k).bind(doc.seq - 1).bind(doc.seq).fetch_optional(&mut *tx).await;
        if known.map_err(failed)?.is_some() {
            return Ok(None);
        }
        // Many rows of one millisecond (an import): the next free key, looked for in ever wider steps.
        let end = key.saturating_add(jump);
        let last: Option<i64> =
            sqlx::query_scalar(LAST_KEY).bind(key).bind(end).fetch_one(&mut *tx).await.map_err(failed)?;
        key = last.map_or(end, |last| last + 1);
        jump = jump.saturating_mul(2).min(1 << 40);
    }
}
