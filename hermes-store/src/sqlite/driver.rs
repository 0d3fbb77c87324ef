//! The names that `sql` is written against, for SQLite.

use std::borrow::Cow;

use crate::error::StoreError;

pub(super) use super::SqliteStore as Backend;
pub(super) use super::errors::map;
pub(super) use super::write::WriteTx;

/// The database driver.
pub(super) type Db = sqlx::Sqlite;
/// A connection.
pub(super) type Conn = sqlx::SqliteConnection;
/// A row of an answer.
pub(super) type Row = sqlx::sqlite::SqliteRow;

/// Longest pause between two looks for a change that another process made: nobody wakes us for those.
pub(super) const POLL_MAX_MS: u64 = 250;

/// The end of a look for the rows that a change is about to write: here nothing, since there is one writer at a time.
macro_rules! locked {
    () => {
        ""
    };
}
pub(super) use locked;

/// The end of a look at a row that must stay as it is until the COMMIT: here nothing, as above.
macro_rules! kept {
    () => {
        ""
    };
}
pub(super) use kept;

/// A text as it is stored: here as it is.
pub(super) fn text_in(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

/// A stored text as it was written.
pub(super) fn text_out(text: String) -> Result<String, StoreError> {
    Ok(text)
}

/// A statement of the schema in this database's words.
pub(super) fn ddl(statement: &str) -> String {
    statement.to_owned()
}
