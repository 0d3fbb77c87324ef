//! From SQLite's result codes to [`StoreError`]. By code, never by message text.

use sqlx::error::DatabaseError;

use crate::error::StoreError;

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const IOERR: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const TOOBIG: i32 = 18;
const CONSTRAINT: i32 = 19;
const NOTADB: i32 = 26;
const BUSY_SNAPSHOT: i32 = BUSY | (2 << 8);
const READONLY_DBMOVED: i32 = READONLY | (4 << 8);
const IOERR_FSYNC: i32 = IOERR | (4 << 8);
const IOERR_DIR_FSYNC: i32 = IOERR | (5 << 8);
const IOERR_CORRUPTFS: i32 = IOERR | (33 << 8);

/// SQLite keeps the primary code in the lowest byte of an extended one.
const PRIMARY_MASK: i32 = 0xff;

fn code_of(error: &dyn DatabaseError) -> i32 {
    error.code().and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// The error of a statement.
#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` wants")]
pub(crate) fn map(error: sqlx::Error) -> StoreError {
    match &error {
        sqlx::Error::Database(database) => map_code(code_of(database.as_ref()), database.to_string()),
        sqlx::Error::PoolTimedOut => StoreError::Busy { waited_ms: crate::limits::SQLITE_BUSY_MS },
        sqlx::Error::PoolClosed => StoreError::Io { detail: "the store is closed".to_owned() },
        _ => StoreError::Io { detail: error.to_string() },
    }
}

/// The error of a COMMIT. When the log could not be synced, or the connection's thread is gone, nobody knows whether
/// the change holds.
pub(super) fn map_commit(error: sqlx::Error) -> StoreError {
    match &error {
        sqlx::Error::WorkerCrashed => StoreError::CommitUnknown,
        sqlx::Error::Database(database) if matches!(code_of(database.as_ref()), IOERR_FSYNC | IOERR_DIR_FSYNC) => {
            StoreError::CommitUnknown
        }
        _ => map(error),
    }
}

fn map_code(code: i32, detail: String) -> StoreError {
    match code {
        BUSY_SNAPSHOT => return StoreError::Retryable { detail },
        READONLY_DBMOVED => return StoreError::Replaced,
        IOERR_CORRUPTFS => return StoreError::Corrupt { detail },
        _ => {}
    }
    match code & PRIMARY_MASK {
        BUSY | LOCKED => StoreError::Busy { waited_ms: 0 },
        READONLY => StoreError::ReadOnly { detail },
        CORRUPT | NOTADB => StoreError::Corrupt { detail },
        FULL => StoreError::Full,
        CONSTRAINT => StoreError::Conflict { what: format!("an id ({detail})") },
        TOOBIG => StoreError::Invalid { detail: format!("a value is too large for the database: {detail}") },
        _ => StoreError::Io { detail },
    }
}

/// Whether another process holds the lock and the statement may be tried again.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(database) => matches!(code_of(database.as_ref()) & PRIMARY_MASK, BUSY | LOCKED),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_error() {
        let cases = [
            (5, "HM1005"),
            (6, "HM1005"),
            (517, "HM1006"),
            (8, "HM1010"),
            (776, "HM1010"),
            (1032, "HM1011"),
            (10, "HM1016"),
            (266, "HM1016"),
            (8458, "HM1008"),
            (11, "HM1008"),
            (267, "HM1008"),
            (26, "HM1008"),
            (13, "HM1009"),
            (14, "HM1016"),
            (18, "HM1015"),
            (2067, "HM1002"),
            (1, "HM1016"),
        ];
        for (code, want) in cases {
            assert_eq!(map_code(code, String::new()).code(), want, "code {code}");
        }
    }
}
