//! The names that `sql` is written against, for PostgreSQL.

pub(super) use super::PostgresStore as Backend;
pub(super) use super::conn::Conn;
pub(super) use super::errors::map;
pub(super) use super::text::{text_in, text_out};
pub(super) use super::write::WriteTx;

/// The database driver.
pub(super) type Db = sqlx::Postgres;
/// A row of an answer.
pub(super) type Row = sqlx::postgres::PgRow;

/// Longest pause between two looks for a change that another process made. A notification comes first, as a rule; the
/// look is for the one that was lost with its connection.
pub(super) const POLL_MAX_MS: u64 = 1_000;

/// The end of a look for the rows that a change is about to write. Behind an ORDER BY it takes them in one order: two
/// changes of many rows then wait for each other, and never crosswise, which the server would end as a deadlock.
macro_rules! locked {
    () => {
        " FOR UPDATE"
    };
}
pub(super) use locked;

/// The end of a look at a row that must stay as it is until the COMMIT. Who changes it waits, who looks too does not.
macro_rules! kept {
    () => {
        " FOR SHARE"
    };
}
pub(super) use kept;

/// A statement of the schema in this database's words: bytes are `BYTEA`, and texts are sorted and compared by their
/// bytes, as SQLite does, whatever the language of the database.
pub(super) fn ddl(statement: &str) -> String {
    let mut out = String::with_capacity(statement.len() + 64);
    let mut word = String::new();
    for c in statement.chars().chain(std::iter::once(' ')) {
        if c.is_ascii_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        match word.as_str() {
            "BLOB" => out.push_str("BYTEA"),
            "TEXT" => out.push_str("TEXT COLLATE \"C\""),
            other => out.push_str(other),
        }
        word.clear();
        out.push(c);
    }
    out.truncate(out.len() - 1);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_the_schema_are_translated_as_whole_words() {
        assert_eq!(
            ddl("CREATE TABLE t (id TEXT PRIMARY KEY, CONTEXT_TEXT BIGINT, b BLOB NOT NULL)"),
            "CREATE TABLE t (id TEXT COLLATE \"C\" PRIMARY KEY, CONTEXT_TEXT BIGINT, b BYTEA NOT NULL)"
        );
        assert_eq!(ddl("CREATE INDEX i ON t (id)"), "CREATE INDEX i ON t (id)");
    }
}
