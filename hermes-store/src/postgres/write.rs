//! A write: one transaction on one connection, at the isolation READ COMMITTED.
//!
//! Every method takes the row of its conversation first, which puts the writers of a conversation in a line; what it
//! reads afterwards, it reads as the one before it left it, because each statement of READ COMMITTED looks anew.
//!
//! The time of a change is the database's: hosts whose clocks differ by hours agree about it. It is read in each
//! transaction, behind BEGIN, which costs one short round trip and replaces the test whether the connection still
//! lives. An anchor kept in the process would save it, and would be wrong by hours on a host that slept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::conn::{Conn, Pool};
use super::errors::{is_lost, map, map_commit};
use super::{OwnershipClock, Shared};
use crate::error::StoreError;
use crate::ids::ConversationId;
use crate::patience::WriteKind;

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";
pub(super) const NOW: &str = "SELECT CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)";

/// A write transaction. Dropped without [`WriteTx::commit`] it is rolled back.
pub(super) struct WriteTx {
    conn: Conn,
    shared: Arc<Shared>,
    now: i64,
    announced: Vec<ConversationId>,
}

impl WriteTx {
    /// Waits for a connection, as long as the kind of write may. Signs of life have connections of their own, so that
    /// busy writers never make an owner look dead.
    pub(super) async fn begin(shared: Arc<Shared>, kind: WriteKind) -> Result<Self, StoreError> {
        #[cfg(feature = "test-util")]
        shared.faults.begin()?;
        let waited_ms = shared.patience.of(kind);
        // Whether a connection was there, so that it is the server or the network that does not answer.
        let is_sent = AtomicBool::new(false);
        match tokio::time::timeout(Duration::from_millis(waited_ms), Self::open(&shared, kind, &is_sent)).await {
            Ok(opened) => {
                let (conn, now) = opened?;
                Ok(Self { conn, shared, now, announced: Vec::new() })
            }
            Err(_) => Err(shared.no_begin(kind, waited_ms, is_sent.into_inner())),
        }
    }

    async fn open(shared: &Shared, kind: WriteKind, is_sent: &AtomicBool) -> Result<(Conn, i64), StoreError> {
        let pool = shared.pool(kind);
        // Connections of a server that was restarted fail one by one; nothing was done yet, so that the next may do.
        let mut spare = pool.max();
        loop {
            match Self::try_open(shared, pool, is_sent).await {
                Ok(opened) => return Ok(opened),
                Err(error) if spare > 0 && is_lost(&error) && pool.size() > 0 => spare -= 1,
                Err(error) => return Err(map(error)),
            }
        }
    }

    async fn try_open(shared: &Shared, pool: &Pool, is_sent: &AtomicBool) -> Result<(Conn, i64), sqlx::Error> {
        let mut conn = pool.conn().await?;
        is_sent.store(true, Ordering::Relaxed);
        conn.begin(BEGIN).await?;
        let now = match &shared.clock {
            OwnershipClock::Database => sqlx::query_scalar(NOW).fetch_one(&mut conn).await?,
            OwnershipClock::Given(clock) => clock.now_ms(),
        };
        Ok((conn, now))
    }

    /// The time of this change, in milliseconds since the Unix epoch, by the clock of ownership.
    pub(super) fn now(&self) -> i64 {
        self.now
    }

    /// The connection, for the statements of this change.
    pub(super) fn conn(&mut self) -> &mut Conn {
        &mut self.conn
    }

    /// Says that others may wait for what this change brings about in a conversation. They are woken after the COMMIT.
    pub(super) fn announce(&mut self, conversation: &ConversationId) {
        self.announced.push(conversation.clone());
    }

    /// Makes the change durable and wakes those who wait for one.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        let Self { mut conn, shared, announced, .. } = self;
        let limit = Duration::from_millis(shared.timeouts.commit_ms);
        let commit = async { conn.end(COMMIT, limit).await.map_err(map_commit) };
        #[cfg(feature = "test-util")]
        let done = shared.faults.around(commit).await;
        #[cfg(not(feature = "test-util"))]
        let done = commit.await;
        // Also when the answer was lost: whoever is woken for nothing looks, and waits again.
        if matches!(done, Ok(()) | Err(StoreError::CommitUnknown)) {
            for conversation in announced {
                shared.wakes.changed(conversation);
            }
        }
        done
    }

    /// Ends a transaction that changed nothing.
    pub(super) async fn rollback(mut self) -> Result<(), StoreError> {
        let limit = Duration::from_millis(self.shared.timeouts.commit_ms);
        self.conn.end(ROLLBACK, limit).await.map_err(map)
    }
}
