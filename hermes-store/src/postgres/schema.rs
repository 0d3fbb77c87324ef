//! How a schema gets to its newest version: forward only, one transaction, whoever comes first.

use sqlx::{Connection as _, PgConnection, Row as _};

use super::driver::ddl;
use super::errors::{map, map_commit};
use super::sql::schema::{STEPS, known, statements};
use super::write::NOW;
use crate::error::StoreError;

/// The oldest server that is accepted, as `server_version_num` counts.
const SERVER_MIN: i64 = 150_000;
/// Chosen once; no other program takes this advisory lock.
const MIGRATION_LOCK: i64 = 0x6865_726d_6573;

pub(super) const STATUS: &str = "SELECT CAST(current_setting('server_version_num') AS BIGINT), \
     current_setting('server_version'), current_setting('server_encoding'), \
     (SELECT COUNT(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')), \
     (SELECT COUNT(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = $1 AND c.relname = 'schema_version'), \
     (SELECT COUNT(*) FROM pg_catalog.pg_namespace WHERE nspname = $1)";
pub(super) const VERSION: &str = "SELECT COALESCE(MAX(version), 0) FROM schema_version";
pub(super) const NOTE_STEP: &str = "INSERT INTO schema_version (version, applied_ms) VALUES ($1, $2)";
pub(super) const LOCK: &str = "SELECT pg_advisory_xact_lock($1)";

/// What a server and its database say of themselves.
struct Status {
    server: i64,
    server_text: String,
    encoding: String,
    tables: i64,
    is_ours: bool,
    /// The schema is there, maybe empty.
    is_made: bool,
}

async fn status(conn: &mut PgConnection, schema: &str) -> Result<Status, StoreError> {
    let row = sqlx::query(STATUS).bind(schema).fetch_one(conn).await.map_err(map)?;
    Ok(Status {
        server: row.try_get(0).map_err(map)?,
        server_text: row.try_get(1).map_err(map)?,
        encoding: row.try_get(2).map_err(map)?,
        tables: row.try_get(3).map_err(map)?,
        is_ours: row.try_get::<i64, _>(4).map_err(map)? > 0,
        is_made: row.try_get::<i64, _>(5).map_err(map)? > 0,
    })
}

/// Refuses a server, a database and a schema that are none for us, before anything of them is touched.
fn check(found: &Status, schema: &str) -> Result<(), StoreError> {
    if found.server < SERVER_MIN {
        return Err(StoreError::PostgresTooOld { found: found.server_text.clone() });
    }
    if found.encoding != "UTF8" {
        let detail = format!(
            "the database is encoded in {}; make one with createdb --encoding UTF8 --template template0",
            found.encoding
        );
        return Err(StoreError::Invalid { detail });
    }
    if found.tables > 0 && !found.is_ours {
        let detail = format!("the schema {schema} belongs to another program; name another one in the store's options");
        return Err(StoreError::Invalid { detail });
    }
    Ok(())
}

async fn version(conn: &mut PgConnection) -> Result<i64, StoreError> {
    let found: i64 = sqlx::query_scalar(VERSION).fetch_one(conn).await.map_err(map)?;
    match found > known() {
        true => Err(StoreError::TooNew { found, known: known() }),
        false => Ok(found),
    }
}

/// Brings the schema to the newest version. Nothing is written when there is nothing to do.
pub(super) async fn bring_up(conn: &mut PgConnection, schema: &str) -> Result<(), StoreError> {
    let found = status(conn, schema).await?;
    check(&found, schema)?;
    if found.is_ours && version(conn).await? == known() {
        return Ok(());
    }
    migrate(conn, schema).await
}

/// All missing steps in one transaction. Processes that start at once do it one after the other; all but the first
/// find nothing to do.
async fn migrate(conn: &mut PgConnection, schema: &str) -> Result<(), StoreError> {
    let mut tx = conn.begin().await.map_err(map)?;
    sqlx::query(LOCK).bind(MIGRATION_LOCK).execute(&mut *tx).await.map_err(map)?;
    let found = status(&mut tx, schema).await?;
    check(&found, schema)?;
    let version = match found.is_ours {
        true => version(&mut tx).await?,
        false => 0,
    };
    // A role that may not make schemas lives in one that was made for it.
    if !found.is_made {
        // The name was checked to be a plain word.
        let make = sqlx::AssertSqlSafe(format!("CREATE SCHEMA IF NOT EXISTS {schema}"));
        sqlx::query(make).execute(&mut *tx).await.map_err(map)?;
    }
    let now_ms: i64 = sqlx::query_scalar(NOW).fetch_one(&mut *tx).await.map_err(map)?;
    for (number, step) in (1_i64..).zip(STEPS) {
        if number <= version {
            continue;
        }
        for statement in statements(step) {
            sqlx::raw_sql(sqlx::AssertSqlSafe(ddl(statement))).execute(&mut *tx).await.map_err(map)?;
        }
        sqlx::query(NOTE_STEP).bind(number).bind(now_ms).execute(&mut *tx).await.map_err(map)?;
    }
    tx.commit().await.map_err(map_commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine() -> Status {
        Status {
            server: 150_004,
            server_text: "15.4".to_owned(),
            encoding: "UTF8".to_owned(),
            tables: 0,
            is_ours: false,
            is_made: false,
        }
    }

    #[test]
    fn servers_and_schemas_that_are_none_of_ours_are_refused() {
        assert!(check(&fine(), "s").is_ok());
        assert!(check(&Status { tables: 30, is_ours: true, ..fine() }, "s").is_ok());
        let old = check(&Status { server: 140_011, server_text: "14.11".to_owned(), ..fine() }, "s");
        assert!(matches!(old, Err(StoreError::PostgresTooOld { found }) if found == "14.11"));
        let latin = check(&Status { encoding: "LATIN1".to_owned(), ..fine() }, "s");
        assert!(matches!(latin, Err(StoreError::Invalid { detail }) if detail.contains("LATIN1")));
        assert!(matches!(check(&Status { tables: 1, ..fine() }, "s"), Err(StoreError::Invalid { .. })));
    }
}
