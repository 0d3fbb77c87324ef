//! The schema, and how a file gets there: forward only, one transaction, whoever comes first.
//!
//! `PRAGMA user_version` decides at each start whether anything is to be done. The table `schema_version` says for a
//! person when each step was taken.

use sqlx::{Connection as _, Row as _, SqliteConnection};

use super::errors::{is_busy, map, map_commit};
use super::write::{BEGIN, pause};
use crate::error::StoreError;
use crate::limits::SQLITE_BUSY_MS;

/// One step per version: statement `n` of the array leads from version `n` to `n + 1`. A step that was released is
/// never changed.
const STEPS: &[&[&str]] = &[V1];

/// The newest version that this program knows.
pub(super) fn known() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

const V1: &[&str] = &[
    "CREATE TABLE schema_version (version BIGINT PRIMARY KEY, applied_ms BIGINT NOT NULL)",
    "CREATE TABLE conversations (
        id TEXT PRIMARY KEY NOT NULL,
        profile TEXT NOT NULL,
        source TEXT NOT NULL,
        title TEXT,
        title_source TEXT,
        preview TEXT,
        tip TEXT,
        open_turn TEXT,
        revision BIGINT NOT NULL,
        token BIGINT NOT NULL,
        generation BIGINT NOT NULL,
        seq BIGINT NOT NULL,
        place BIGINT NOT NULL,
        lease_owner TEXT,
        lease_expires_ms BIGINT NOT NULL,
        lease_ttl_ms BIGINT NOT NULL,
        freed_ms BIGINT NOT NULL,
        message_count BIGINT NOT NULL,
        created_ms BIGINT NOT NULL,
        activity_ms BIGINT NOT NULL
    )",
    "CREATE INDEX conversations_by_activity ON conversations (activity_ms, id)",
    "CREATE INDEX conversations_by_lease ON conversations (lease_owner) WHERE lease_owner IS NOT NULL",
    "CREATE TABLE tombstones (
        id TEXT PRIMARY KEY NOT NULL,
        token BIGINT NOT NULL,
        generation BIGINT NOT NULL,
        seq BIGINT NOT NULL,
        place BIGINT NOT NULL
    )",
    "CREATE TABLE owners (
        id TEXT PRIMARY KEY NOT NULL,
        host TEXT NOT NULL,
        boot_id TEXT NOT NULL,
        pid BIGINT NOT NULL,
        pid_start BIGINT NOT NULL,
        beat_ms BIGINT NOT NULL,
        retired BIGINT NOT NULL
    )",
    "CREATE TABLE routes (
        source TEXT NOT NULL,
        route_key TEXT NOT NULL,
        generation BIGINT NOT NULL,
        PRIMARY KEY (source, route_key)
    )",
    "CREATE TABLE admissions (
        id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        seq BIGINT NOT NULL,
        principal TEXT NOT NULL,
        request_id TEXT NOT NULL,
        intent TEXT NOT NULL,
        payload TEXT NOT NULL,
        submitted_by TEXT NOT NULL,
        status TEXT NOT NULL,
        outcome TEXT,
        generation BIGINT,
        turn_id TEXT,
        created_ms BIGINT NOT NULL,
        UNIQUE (conversation_id, principal, request_id)
    )",
    "CREATE UNIQUE INDEX admissions_waiting ON admissions (conversation_id, seq) WHERE status <> 'terminal'",
    "CREATE TABLE turns (
        id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        admission_id TEXT NOT NULL,
        session_id TEXT,
        generation BIGINT NOT NULL,
        attempt BIGINT NOT NULL,
        status TEXT NOT NULL,
        reason TEXT,
        detail TEXT,
        api_calls BIGINT NOT NULL,
        first_seq BIGINT NOT NULL,
        started_ms BIGINT NOT NULL,
        ended_ms BIGINT
    )",
    "CREATE INDEX turns_by_conversation ON turns (conversation_id)",
    "CREATE TABLE prompts (hash TEXT PRIMARY KEY NOT NULL, bytes BLOB NOT NULL)",
    "CREATE TABLE sessions (
        id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        parent_id TEXT,
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        cwd TEXT,
        prompt_hash TEXT NOT NULL REFERENCES prompts (hash),
        tools_hash TEXT NOT NULL REFERENCES prompts (hash),
        first_seq BIGINT NOT NULL,
        started_ms BIGINT NOT NULL,
        ended_ms BIGINT,
        end_reason TEXT
    )",
    "CREATE INDEX sessions_by_conversation ON sessions (conversation_id)",
    "CREATE INDEX sessions_by_prompt ON sessions (prompt_hash)",
    "CREATE INDEX sessions_by_tools ON sessions (tools_hash)",
    "CREATE TABLE messages (
        id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        session_id TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        seq BIGINT NOT NULL,
        role TEXT NOT NULL,
        kind TEXT NOT NULL,
        state TEXT NOT NULL,
        content TEXT NOT NULL,
        api_content BLOB,
        reasoning TEXT,
        sidecar_issuer TEXT,
        sidecar BLOB,
        finish TEXT,
        has_calls BIGINT NOT NULL,
        call_id TEXT,
        meta TEXT,
        digest TEXT NOT NULL,
        created_ms BIGINT NOT NULL
    )",
    "CREATE UNIQUE INDEX messages_by_place ON messages (conversation_id, seq)",
    "CREATE INDEX messages_by_turn ON messages (turn_id, seq)",
    "CREATE TABLE calls (
        id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        turn_id TEXT NOT NULL,
        assistant_id TEXT NOT NULL,
        assistant_seq BIGINT NOT NULL,
        result_id TEXT NOT NULL UNIQUE,
        result_seq BIGINT NOT NULL,
        provider_id TEXT NOT NULL,
        name TEXT NOT NULL,
        arguments TEXT NOT NULL,
        replay TEXT NOT NULL,
        state TEXT NOT NULL,
        outcome TEXT,
        digest TEXT,
        written_ms BIGINT NOT NULL
    )",
    "CREATE UNIQUE INDEX calls_by_place ON calls (conversation_id, result_seq)",
    "CREATE INDEX calls_open ON calls (turn_id) WHERE state <> 'settled'",
    "CREATE TABLE usage_log (
        attempt TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        task TEXT NOT NULL,
        input BIGINT NOT NULL,
        output BIGINT NOT NULL,
        cache_read BIGINT NOT NULL,
        cache_write BIGINT NOT NULL,
        reasoning BIGINT NOT NULL,
        known BIGINT NOT NULL
    )",
    "CREATE INDEX usage_by_conversation ON usage_log (conversation_id)",
];

const STATUS: &str = "SELECT sqlite_version(), (SELECT user_version FROM pragma_user_version), \
     (SELECT journal_mode FROM pragma_journal_mode), (SELECT COUNT(*) FROM sqlite_master)";
const COUNT_OBJECTS: &str = "SELECT COUNT(*) FROM sqlite_master";
const USER_VERSION: &str = "SELECT user_version FROM pragma_user_version";
const NOTE_STEP: &str = "INSERT INTO schema_version (version, applied_ms) VALUES ($1, $2)";

/// What a file says of itself when it is opened.
pub(super) struct FileStatus {
    pub(super) sqlite: String,
    pub(super) version: i64,
    pub(super) is_wal: bool,
    pub(super) objects: i64,
}

/// Reads the three facts that decide about a start, in one statement.
pub(super) async fn status(conn: &mut SqliteConnection) -> Result<FileStatus, StoreError> {
    let row = sqlx::query(STATUS).fetch_one(conn).await.map_err(map)?;
    Ok(FileStatus {
        sqlite: row.try_get(0).map_err(map)?,
        version: row.try_get(1).map_err(map)?,
        is_wal: row.try_get::<String, _>(2).map_err(map)?.eq_ignore_ascii_case("wal"),
        objects: row.try_get(3).map_err(map)?,
    })
}

/// Refuses a file of a newer program, and one of another program, before anything of it is touched.
pub(super) fn check_known(found: i64, objects: i64) -> Result<(), StoreError> {
    if found > known() {
        return Err(StoreError::TooNew { found, known: known() });
    }
    if found == 0 && objects > 0 {
        return Err(StoreError::Invalid {
            detail: "the file is a database of another program; give another path".to_owned(),
        });
    }
    Ok(())
}

/// Switches the file to WAL. The switch needs the file for itself for a moment, and SQLite's own patience does not
/// cover it.
pub(super) async fn use_wal(conn: &mut SqliteConnection) -> Result<(), StoreError> {
    let started = std::time::Instant::now();
    loop {
        match sqlx::query("PRAGMA journal_mode = WAL").fetch_one(&mut *conn).await {
            Ok(row) => {
                let mode: String = row.try_get(0).map_err(map)?;
                return match mode.eq_ignore_ascii_case("wal") {
                    true => Ok(()),
                    false => Err(StoreError::Invalid {
                        detail: format!(
                            "the file system allows only SQLite's {mode} mode; put the file on a local disk"
                        ),
                    }),
                };
            }
            Err(error) if is_busy(&error) => pause(started).await?,
            Err(error) => return Err(map(error)),
        }
    }
}

/// Brings the file to the newest version, in one write transaction. Processes that start at once do it one after the
/// other; all but the first find nothing to do.
pub(super) async fn migrate(conn: &mut SqliteConnection, now_ms: i64) -> Result<(), StoreError> {
    let started = std::time::Instant::now();
    let mut tx = loop {
        match conn.begin_with(BEGIN).await {
            Ok(tx) => break tx,
            Err(error) if is_busy(&error) => pause(started).await?,
            Err(error) => return Err(map(error)),
        }
    };
    let found: i64 = sqlx::query_scalar(USER_VERSION).fetch_one(&mut *tx).await.map_err(map)?;
    let objects: i64 = sqlx::query_scalar(COUNT_OBJECTS).fetch_one(&mut *tx).await.map_err(map)?;
    check_known(found, objects)?;
    for (version, step) in (1_i64..).zip(STEPS) {
        if version <= found {
            continue;
        }
        for statement in *step {
            sqlx::query(*statement).execute(&mut *tx).await.map_err(map)?;
        }
        sqlx::query(NOTE_STEP).bind(version).bind(now_ms).execute(&mut *tx).await.map_err(map)?;
        // A pragma takes no parameters; the number is our own.
        let stamp = sqlx::AssertSqlSafe(format!("PRAGMA user_version = {version}"));
        sqlx::query(stamp).execute(&mut *tx).await.map_err(map)?;
    }
    tx.commit().await.map_err(map_commit)
}

const _: () = assert!(SQLITE_BUSY_MS > 1_000);
