//! A write: one transaction on one connection, at the isolation READ COMMITTED.
//!
//! Every method takes the row of its conversation first, which puts the writers of a conversation in a line; what it
//! reads afterwards, it reads as the one before it left it, because each statement of READ COMMITTED looks anew.
//!
//! The time of a change is the database's: hosts whose clocks differ by hours agree about it. It is read in each
//! transaction, behind BEGIN, which costs one short round trip and replaces the test whether the connection still
//! lives. An anchor kept in the process would save it, and would be wrong by hours on a host that slept.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{PgConnection, Postgres, Transaction};

use super::errors::{is_lost, map, map_commit};
use super::{COMMIT_MAX_MS, OwnershipClock, Shared};
use crate::error::StoreError;
use crate::ids::ConversationId;
use crate::patience::WriteKind;

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
pub(super) const NOW: &str = "SELECT CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)";

/// A write transaction. Dropped without [`WriteTx::commit`] it is rolled back.
pub(super) struct WriteTx {
    tx: Transaction<'static, Postgres>,
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
        match tokio::time::timeout(Duration::from_millis(waited_ms), Self::open(&shared, kind)).await {
            Ok(opened) => {
                let (tx, now) = opened?;
                Ok(Self { tx, shared, now, announced: Vec::new() })
            }
            Err(_) => Err(shared.no_connection(kind, waited_ms)),
        }
    }

    async fn open(shared: &Shared, kind: WriteKind) -> Result<(Transaction<'static, Postgres>, i64), StoreError> {
        let pool = shared.pool(kind);
        // Connections of a server that was restarted fail one by one; nothing was done yet, so that the next may do.
        let mut spare = pool.options().get_max_connections();
        loop {
            match Self::try_open(shared, pool).await {
                Ok(opened) => return Ok(opened),
                Err(error) if spare > 0 && is_lost(&error) && pool.size() > 0 => spare -= 1,
                Err(error) => return Err(map(error)),
            }
        }
    }

    async fn try_open(
        shared: &Shared,
        pool: &sqlx::PgPool,
    ) -> Result<(Transaction<'static, Postgres>, i64), sqlx::Error> {
        let mut tx = pool.begin_with(BEGIN).await?;
        let now = match &shared.clock {
            OwnershipClock::Database => sqlx::query_scalar(NOW).fetch_one(&mut *tx).await?,
            OwnershipClock::Given(clock) => clock.now_ms(),
        };
        Ok((tx, now))
    }

    /// The time of this change, in milliseconds since the Unix epoch, by the clock of ownership.
    pub(super) fn now(&self) -> i64 {
        self.now
    }

    /// The connection, for the statements of this change.
    pub(super) fn conn(&mut self) -> &mut PgConnection {
        &mut self.tx
    }

    /// Says that others may wait for what this change brings about in a conversation. They are woken after the COMMIT.
    pub(super) fn announce(&mut self, conversation: &ConversationId) {
        self.announced.push(conversation.clone());
    }

    /// Makes the change durable and wakes those who wait for one.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        let Self { tx, shared, announced, .. } = self;
        let commit = async {
            match tokio::time::timeout(Duration::from_millis(COMMIT_MAX_MS), tx.commit()).await {
                Ok(done) => done.map_err(map_commit),
                Err(_) => Err(StoreError::CommitUnknown),
            }
        };
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
    pub(super) async fn rollback(self) -> Result<(), StoreError> {
        self.tx.rollback().await.map_err(map)
    }
}
