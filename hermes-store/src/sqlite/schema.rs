//! How a file gets to the newest schema: forward only, one transaction, whoever comes first.
//!
//! `PRAGMA user_version` decides at each start whether anything is to be done. The table `schema_version` says for a
//! person when each step was taken.

use sqlx::{Connection as _, Row as _, SqliteConnection};

use super::driver::ddl;
use super::errors::{is_busy, map, map_commit};
use super::sql::schema::{STEPS, known, statements};
use super::write::{BEGIN, pause};
use crate::error::StoreError;
use crate::limits::SQLITE_BUSY_MS;

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
        for statement in statements(step) {
            sqlx::query(sqlx::AssertSqlSafe(ddl(statement))).execute(&mut *tx).await.map_err(map)?;
        }
        sqlx::query(NOTE_STEP).bind(version).bind(now_ms).execute(&mut *tx).await.map_err(map)?;
        // A pragma takes no parameters; the number is our own.
        let stamp = sqlx::AssertSqlSafe(format!("PRAGMA user_version = {version}"));
        sqlx::query(stamp).execute(&mut *tx).await.map_err(map)?;
    }
    tx.commit().await.map_err(map_commit)
}

const _: () = assert!(SQLITE_BUSY_MS > 1_000);
