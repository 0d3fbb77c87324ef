//! A write of one store method: a place in the writer's next transaction.
//!
//! The connection that writes belongs to `writer`, which lends it to one method after the other and commits for several
//! at once. For the method it looks like a transaction of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::SqliteConnection;
use tokio::sync::{OwnedMutexGuard, oneshot};

use super::Shared;
use super::writer::{Request, Told};
use crate::error::StoreError;
use crate::ids::ConversationId;
use crate::limits::SQLITE_BUSY_MS;
use crate::patience::WriteKind;

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";

/// How long SQLite itself waits for a lock before it says that the file is busy. Short: it blocks the connection's
/// thread, and the rest of the wait is ours, with jitter, and can be cancelled.
pub(super) const LOCK_WAIT_MS: u64 = 250;
/// Longest pause between two tries.
const PAUSE_MAX_MS: u64 = 20;

const _: () = assert!(LOCK_WAIT_MS * 10 < SQLITE_BUSY_MS);

/// What a method says when it gives the connection back.
pub(super) enum Verdict {
    /// Its changes are to be kept; it waits to be told that they are durable.
    Keep(oneshot::Sender<Told>),
    /// It changed nothing that matters, and waits until what it read is durable.
    Undo(oneshot::Sender<Told>),
    /// It failed, or its caller went away: nothing of it happened, nobody waits.
    Dropped,
}

/// The connection in the hands of a method. It goes back by being dropped, wherever that happens.
///
/// The guard is the loan itself: the mutex is never waited for by two, because the owner touches the connection only
/// after the verdict.
pub(super) struct Loan {
    conn: OwnedMutexGuard<SqliteConnection>,
    verdict: Option<oneshot::Sender<Verdict>>,
    now: i64,
}

impl Loan {
    pub(super) fn new(conn: OwnedMutexGuard<SqliteConnection>, now: i64) -> (Self, oneshot::Receiver<Verdict>) {
        let (verdict, decided) = oneshot::channel();
        (Self { conn, verdict: Some(verdict), now }, decided)
    }

    /// Gives the connection back with a verdict, and returns where the end of the transaction is told.
    fn give_back(mut self, verdict: impl FnOnce(oneshot::Sender<Told>) -> Verdict) -> oneshot::Receiver<Told> {
        let (tell, told) = oneshot::channel();
        if let Some(back) = self.verdict.take() {
            // An owner that is gone drops `tell`, which is what the caller then finds.
            let _ = back.send(verdict(tell));
        }
        told
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(back) = self.verdict.take() {
            let _ = back.send(Verdict::Dropped);
        }
    }
}

/// A write transaction. Dropped without [`WriteTx::commit`] it is rolled back.
///
/// An error that makes a method give up is told at once, also when it follows from a change of the same batch that is
/// not durable yet: an error changes nothing, and whoever repeats the method finds what holds then.
pub(super) struct WriteTx {
    loan: Loan,
    shared: Arc<Shared>,
}

impl WriteTx {
    /// Waits for the connection, as long as the kind of write may.
    pub(super) async fn begin(shared: Arc<Shared>, kind: WriteKind) -> Result<Self, StoreError> {
        #[cfg(feature = "test-util")]
        shared.faults.begin()?;
        let started = Instant::now();
        let (reply, lent) = oneshot::channel();
        let wait = async {
            shared.queue.send(Request::Lend(reply)).await.map_err(|_| closed())?;
            lent.await.map_err(|_| closed())?
        };
        // Dropping the wait takes the request back: the owner sees that nobody listens.
        let loan = match tokio::time::timeout(Duration::from_millis(shared.patience.of(kind)), wait).await {
            Ok(loan) => loan?,
            Err(_) => return Err(StoreError::Busy { waited_ms: waited_ms(started) }),
        };
        Ok(Self { loan, shared })
    }

    /// The time of this change, in milliseconds since the Unix epoch, by the clock of ownership.
    pub(super) fn now(&self) -> i64 {
        self.loan.now
    }

    /// The connection, for the statements of this change.
    pub(super) fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.loan.conn
    }

    /// Says that others may wait for what this change brings about. On this database every COMMIT wakes all of this
    /// process, and other processes look by themselves.
    pub(super) fn announce(&mut self, _: &ConversationId) {}

    /// Makes the change durable and wakes those who wait for one.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        let Self { loan, shared } = self;
        let commit = async move { loan.give_back(Verdict::Keep).await.unwrap_or(Err(StoreError::CommitUnknown)) };
        #[cfg(feature = "test-util")]
        return shared.faults.around(commit).await;
        #[cfg(not(feature = "test-util"))]
        {
            drop(shared);
            commit.await
        }
    }

    /// Ends a transaction that changed nothing. What it read may be told afterwards: it is durable.
    pub(super) async fn rollback(self) -> Result<(), StoreError> {
        self.loan.give_back(Verdict::Undo).await.unwrap_or_else(|_| Err(closed()))
    }
}

/// The error of a store whose writer has ended.
pub(super) fn closed() -> StoreError {
    StoreError::Io { detail: "the store is closed".to_owned() }
}

pub(super) fn waited_ms(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Waits a little before the next try of something that no method waits for, or gives up.
pub(super) async fn pause(started: Instant) -> Result<(), StoreError> {
    let waited_ms = waited_ms(started);
    if waited_ms >= SQLITE_BUSY_MS {
        return Err(StoreError::Busy { waited_ms });
    }
    jitter().await;
    Ok(())
}

/// A short pause of random length, so that two writers do not try in step.
pub(super) async fn jitter() {
    // The last bits of a version 7 UUID are random.
    let pause = u64::from(uuid::Uuid::now_v7().as_bytes()[15]) % PAUSE_MAX_MS + 1;
    tokio::time::sleep(Duration::from_millis(pause)).await;
}
