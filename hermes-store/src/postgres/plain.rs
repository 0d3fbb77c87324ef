//! A plain append on PostgreSQL: one statement, which is its own transaction, so one round trip instead of five.

use std::time::Duration;

use super::errors::{is_lost, map};
use super::sql::plain::{Append, fence, plain_fence, plain_row, plain_usage};
use super::{OwnershipClock, PostgresStore};
use crate::error::StoreError;
use crate::patience::WriteKind;

/// The time of the change is the database's, unless a test gives one.
const APPEND: &str = concat!(
    "WITH fenced AS (",
    plain_fence!("COALESCE(CAST($3 AS BIGINT), CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT))"),
    " RETURNING id, tip, seq, activity_ms), added AS (",
    plain_row!("activity_ms", " FROM fenced"),
    " RETURNING id), counted AS (",
    plain_usage!(" FROM fenced WHERE TRUE"),
    ") SELECT COUNT(*) FROM added"
);

/// Whether somebody stored a row with this id while the statement waited for the conversation.
fn is_taken(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}

impl PostgresStore {
    /// Does an append if it is plain; false when it is not, and then nothing has changed that the long way would not
    /// find.
    pub(super) async fn append_plain(&self, append: Append) -> Result<bool, StoreError> {
        #[cfg(feature = "test-util")]
        return self.shared.faults.around_plain(self.try_plain(append)).await;
        #[cfg(not(feature = "test-util"))]
        self.try_plain(append).await
    }

    async fn try_plain(&self, append: Append) -> Result<bool, StoreError> {
        let (shared, kind) = (&self.shared, WriteKind::Transcript);
        let waited_ms = shared.patience.of(kind);
        let mut conn = match tokio::time::timeout(Duration::from_millis(waited_ms), shared.pool(kind).conn()).await {
            Ok(Ok(conn)) => conn,
            // Connections of a server that was restarted: the long way tries the next one.
            Ok(Err(error)) if is_lost(&error) => return Ok(false),
            Ok(Err(error)) => return Err(map(error)),
            Err(_) => return Err(shared.no_begin(kind, waited_ms, false)),
        };
        let now = match &shared.clock {
            OwnershipClock::Database => None,
            OwnershipClock::Given(clock) => Some(clock.now_ms()),
        };
        match append.bind(sqlx::query(APPEND), now).fetch_one(&mut conn).await {
            Ok(added) => Ok(super::sql::read::col::<i64>(&added, 0)? == 1),
            // The row may be stored or not. It has an id, by which the long way finds out.
            Err(error) if is_lost(&error) || is_taken(&error) => Ok(false),
            Err(error) => Err(map(error)),
        }
    }
}
