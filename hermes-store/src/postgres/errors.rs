//! From PostgreSQL's SQLSTATE to [`StoreError`]. By code, never by message text.

use sqlx::error::DatabaseError;

use super::{LOCK_WAIT_MAX_MS, STATEMENT_MAX_MS};
use crate::error::StoreError;

fn code_of(error: &dyn DatabaseError) -> String {
    error.code().map(|code| code.into_owned()).unwrap_or_default()
}

/// The error of a statement. Nothing of its transaction is kept.
#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` wants")]
pub(super) fn map(error: sqlx::Error) -> StoreError {
    match &error {
        // The message only: the detail beside it may quote what a user wrote.
        sqlx::Error::Database(database) => map_code(&code_of(database.as_ref()), database.message().to_owned()),
        // With this kind rustls tells what it does not believe.
        sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::InvalidData => StoreError::Invalid {
            detail: format!(
                "no safe connection to PostgreSQL: {io}; name the authority of the server's certificate with sslrootcert in \
                 the store's URL, and the host as the certificate names it"
            ),
        },
        sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::NotFound => StoreError::Unavailable {
            detail: format!("{io}; is the server running, and are the host and the files of the store's URL there?"),
        },
        sqlx::Error::Io(_) | sqlx::Error::BeginFailed | sqlx::Error::WorkerCrashed | sqlx::Error::Protocol(_) => {
            StoreError::Unavailable { detail: error.to_string() }
        }
        sqlx::Error::PoolTimedOut => StoreError::Busy { waited_ms: super::ACQUIRE_MAX_MS },
        sqlx::Error::PoolClosed => StoreError::Io { detail: "the store is closed".to_owned() },
        sqlx::Error::Tls(_) => StoreError::Invalid {
            detail: format!(
                "no safe connection to PostgreSQL: {error}; look at sslmode and sslrootcert of the store's URL"
            ),
        },
        sqlx::Error::Configuration(_) => {
            StoreError::Invalid { detail: format!("the store's URL cannot be used: {error}") }
        }
        _ => StoreError::Io { detail: error.to_string() },
    }
}

/// The error of a COMMIT. When the connection ended before the answer came, nobody knows whether the change holds.
pub(super) fn map_commit(error: sqlx::Error) -> StoreError {
    match map(error) {
        StoreError::Unavailable { .. } => StoreError::CommitUnknown,
        other => other,
    }
}

/// Whether the connection was lost, so that another one may do.
pub(super) fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::BeginFailed | sqlx::Error::WorkerCrashed | sqlx::Error::Protocol(_) => true,
        sqlx::Error::Database(database) => is_lost_code(&code_of(database.as_ref())),
        _ => false,
    }
}

/// Codes with which the server ends a connection, or says that it takes none.
fn is_lost_code(code: &str) -> bool {
    code.starts_with("08") || matches!(code, "57P01" | "57P02" | "57P03" | "57P04" | "57P05" | "25P03")
}

/// What is wrong when a session is not the store's own. A pooler of transactions hands the store's statements and settings
/// to whoever comes next; nothing else makes a server say this of a statement that the store itself has prepared, or of
/// a table that it has seen when it was opened.
const POOLER: &str = "a pooler before the server (PgBouncer) must pool sessions: pool_mode = session, \
     ignore_startup_parameters = extra_float_digits";

fn map_code(code: &str, detail: String) -> StoreError {
    match code {
        // PgBouncer's word for all that it has to say, also for what passes: a server that it does not reach.
        "08P01" => return StoreError::Unavailable { detail: format!("{detail}; {POOLER}") },
        // A prepared statement that is not there, or is there already.
        "26000" | "42P05" => return StoreError::Invalid { detail: format!("{detail}; {POOLER}") },
        // A table or a schema that is not there.
        "42P01" | "3F000" => {
            return StoreError::Io { detail: format!("{detail} ({code}); if its schema was not removed, {POOLER}") };
        }
        _ => {}
    }
    if is_lost_code(code) {
        return StoreError::Unavailable { detail };
    }
    match code {
        // Serialization, deadlock; and a foreign key, which can only mean that the row was deleted a moment ago.
        "40001" | "40P01" | "23503" => StoreError::Retryable { detail },
        "53100" => StoreError::Full,
        "25006" => StoreError::ReadOnly { detail },
        "55P03" => StoreError::Busy { waited_ms: LOCK_WAIT_MAX_MS },
        "57014" => StoreError::Busy { waited_ms: STATEMENT_MAX_MS },
        // Too many connections.
        "53300" => StoreError::Busy { waited_ms: 0 },
        "23505" => StoreError::Conflict { what: format!("an id ({detail})") },
        "XX001" | "XX002" => StoreError::Corrupt { detail },
        "3D000" => StoreError::Invalid { detail: format!("{detail}; make it with createdb, or name another one") },
        "42501" => {
            StoreError::Invalid { detail: format!("{detail}; give the role of the store's URL the right to it") }
        }
        // What an index or a value holds at most, and a text that is none.
        "22021" | "22P05" | "22001" => StoreError::Invalid { detail },
        _ if code.starts_with("28") => StoreError::Invalid {
            detail: format!("PostgreSQL refused the log-in: {detail}; look at user and password of the store's URL"),
        },
        _ if code.starts_with("54") => {
            StoreError::Invalid { detail: format!("a value is too large for the database: {detail}") }
        }
        _ => StoreError::Io { detail: format!("{detail} ({code})") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_error() {
        let cases = [
            ("40001", "HM1006"),
            ("40P01", "HM1006"),
            ("23503", "HM1006"),
            ("53100", "HM1009"),
            ("57P01", "HM1019"),
            ("57P02", "HM1019"),
            ("57P03", "HM1019"),
            ("08006", "HM1019"),
            ("25P03", "HM1019"),
            ("25006", "HM1010"),
            ("55P03", "HM1005"),
            ("57014", "HM1005"),
            ("53300", "HM1005"),
            ("23505", "HM1002"),
            ("XX001", "HM1008"),
            ("XX002", "HM1008"),
            ("28P01", "HM1015"),
            ("28000", "HM1015"),
            ("3D000", "HM1015"),
            ("54000", "HM1015"),
            ("22021", "HM1015"),
            ("42P01", "HM1016"),
            ("3F000", "HM1016"),
            ("26000", "HM1015"),
            ("42P05", "HM1015"),
            ("08P01", "HM1019"),
        ];
        for (code, want) in cases {
            assert_eq!(map_code(code, String::new()).code(), want, "code {code}");
        }
    }

    #[test]
    fn what_a_pooler_of_transactions_breaks_names_the_pooler() {
        for code in ["26000", "42P05", "42P01", "3F000", "08P01"] {
            let told = map_code(code, "x".to_owned()).to_string();
            assert!(told.contains("pool_mode = session"), "{code}: {told}");
        }
    }

    #[test]
    fn a_connection_that_ends_during_the_commit_leaves_the_change_unknown() {
        let lost = || sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert_eq!(map(lost()).code(), "HM1019");
        assert_eq!(map_commit(lost()).code(), "HM1007");
        assert_eq!(map_commit(sqlx::Error::PoolClosed).code(), "HM1016");
    }
}
