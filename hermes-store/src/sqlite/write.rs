//! The one way to a write: one connection, one transaction at a time, `BEGIN IMMEDIATE`.
//!
//! A pool of exactly one connection is the queue of the writers of this process; SQLite's lock is the queue between
//! processes. A deferred transaction that reads first and writes later is refused by SQLite when somebody wrote in
//! between, so that no write begins deferred.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::{Sqlite, SqliteConnection, Transaction};

use super::errors::{is_busy, map, map_commit};
use super::{Shared, guard};
use crate::error::StoreError;
use crate::limits::SQLITE_BUSY_MS;

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";

/// How long SQLite itself waits for a lock before it says that the file is busy. Short: it blocks the connection's
/// thread, and the rest of the wait is ours, with jitter, and can be cancelled.
pub(super) const LOCK_WAIT_MS: u64 = 250;
/// Longest pause between two tries.
const PAUSE_MAX_MS: u64 = 20;

const _: () = assert!(LOCK_WAIT_MS * 10 < SQLITE_BUSY_MS);

/// A write transaction. Dropped without [`WriteTx::commit`] it is rolled back.
pub(super) struct WriteTx {
    tx: Transaction<'static, Sqlite>,
    shared: Arc<Shared>,
    now: i64,
}

impl WriteTx {
    pub(super) async fn begin(shared: Arc<Shared>) -> Result<Self, StoreError> {
        let started = Instant::now();
        loop {
            match shared.writer.begin_with(BEGIN).await {
                Ok(tx) => {
                    // With the lock held, and before the first page is written.
                    guard::check(shared.path.clone(), shared.identity).await?;
                    let now = shared.clock.now_ms();
                    return Ok(Self { tx, shared, now });
                }
                Err(error) if is_busy(&error) => pause(started).await?,
                Err(error) => return Err(map(error)),
            }
        }
    }

    /// The time of this change, in milliseconds since the Unix epoch, by the clock of ownership.
    pub(super) fn now(&self) -> i64 {
        self.now
    }

    /// The connection, for the statements of this change.
    pub(super) fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.tx
    }

    /// Makes the change durable and wakes those who wait for one.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        self.tx.commit().await.map_err(map_commit)?;
        self.shared.changed.notify_waiters();
        Ok(())
    }

    /// Ends a transaction that changed nothing.
    pub(super) async fn rollback(self) -> Result<(), StoreError> {
        self.tx.rollback().await.map_err(map)
    }
}

/// Waits a little before the next try, or gives up.
pub(super) async fn pause(started: Instant) -> Result<(), StoreError> {
    let waited_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    if waited_ms >= SQLITE_BUSY_MS {
        return Err(StoreError::Busy { waited_ms });
    }
    // The last bits of a version 7 UUID are random: enough to keep two writers from trying in step.
    let jitter = u64::from(uuid::Uuid::now_v7().as_bytes()[15]) % PAUSE_MAX_MS + 1;
    tokio::time::sleep(Duration::from_millis(jitter)).await;
    Ok(())
}
