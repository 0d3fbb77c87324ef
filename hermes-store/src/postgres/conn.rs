//! Connections whose every answer is waited for at most a bounded time.
//!
//! A network that swallows packets tells nobody: the kernel goes on sending for a quarter of an hour, and the driver waits
//! for as long. So each statement has a limit of the client's own, a little above the one that the server keeps
//! ([`Timeouts`](super::Timeouts)): an answer that did not come by then does not come, the statement fails as
//! [`StoreError::Unavailable`](crate::error::StoreError::Unavailable) (a COMMIT as `CommitUnknown`), and its connection
//! is thrown away at once. The driver has no options for keepalives and `TCP_USER_TIMEOUT` of the client's socket; those
//! of the server's socket are set with the other settings, so that a server forgets a client that vanished.
//!
//! The statements of `sql` are written against [`Conn`] and [`Pool`] as they are against SQLite's own types.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, Stream, StreamExt as _, TryStreamExt as _};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Either, Execute, Executor, PgConnection, PgPool, Postgres, SqlStr};
use tokio::time::{Sleep, sleep, timeout};

use super::RELEASE_MAX_MS;
use super::errors::is_lost;

/// Reads that belong together see one state of the database: what was committed in between is in none of them.
pub(super) const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
const ROLLBACK: &str = "ROLLBACK";

type Answer = Either<PgQueryResult, PgRow>;

/// A connection of a [`Pool`], given back when it is dropped: an open transaction is rolled back before.
pub(super) struct Conn {
    /// Empty only while it is dropped.
    raw: Option<PoolConnection<Postgres>>,
    /// Longest wait for all answers to one statement.
    limit: Duration,
    /// A transaction may be open.
    is_open: bool,
    /// No answer is to be expected of it any more.
    is_lost: bool,
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("is_open", &self.is_open).field("is_lost", &self.is_lost).finish_non_exhaustive()
    }
}

/// The parts of a connection that a statement needs.
struct Parts<'c> {
    raw: &'c mut PgConnection,
    limit: Duration,
    is_lost: &'c mut bool,
}

impl Conn {
    /// Begins a transaction; the words are those of a BEGIN.
    pub(super) async fn begin(&mut self, words: &'static str) -> Result<(), sqlx::Error> {
        // Before the words are sent: whoever is dropped in between may have begun.
        self.is_open = true;
        self.execute(words).await.map(drop)
    }

    /// Ends the transaction with COMMIT or ROLLBACK, within a limit of its own.
    pub(super) async fn end(&mut self, words: &'static str, limit: Duration) -> Result<(), sqlx::Error> {
        let statement_limit = std::mem::replace(&mut self.limit, limit);
        let done = self.execute(words).await;
        self.limit = statement_limit;
        // A COMMIT that the server refused ended the transaction too.
        self.is_open = done.as_ref().is_err_and(is_lost);
        done.map(drop)
    }

    fn parts(&mut self) -> Result<Parts<'_>, sqlx::Error> {
        let Self { raw, limit, is_lost, .. } = self;
        match raw {
            Some(raw) if !*is_lost => Ok(Parts { raw: &mut *raw, limit: *limit, is_lost }),
            _ => Err(sqlx::Error::Io(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        let Some(mut raw) = self.raw.take() else { return };
        let (Ok(runtime), false) = (tokio::runtime::Handle::try_current(), self.is_lost) else {
            // Closed here and now. The server rolls back what was open when it sees the end.
            drop(raw.detach());
            return;
        };
        // As the driver itself does it, but for a bounded time: the pool owns what these tasks hold.
        if self.is_open {
            runtime.spawn(roll_back(Doubtful(Some(raw))));
        } else {
            let back = raw.return_to_pool();
            runtime.spawn(async move { timeout(Duration::from_millis(RELEASE_MAX_MS), back).await });
        }
    }
}

/// A connection that does not go back to its pool unless somebody takes it out of here.
struct Doubtful(Option<PoolConnection<Postgres>>);

impl Drop for Doubtful {
    fn drop(&mut self) {
        if let Some(raw) = self.0.take() {
            drop(raw.detach());
        }
    }
}

/// Rolls back what is open and gives the connection back; one that does not answer in time is closed.
async fn roll_back(mut held: Doubtful) {
    let Some(raw) = &mut held.0 else { return };
    let limit = Duration::from_millis(RELEASE_MAX_MS);
    if !matches!(timeout(limit, raw.execute(ROLLBACK)).await, Ok(Ok(_))) {
        return;
    }
    if let Some(mut raw) = held.0.take() {
        // Dropped in mid test, it is closed.
        let _ = timeout(limit, raw.return_to_pool()).await;
    }
}

fn no_answer(limit: Duration) -> sqlx::Error {
    let what = format!("the server gave no answer in {} ms", limit.as_millis());
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, what))
}

/// The answers to one statement, until its time is over.
struct Bounded<'c> {
    answers: BoxStream<'c, Result<Answer, sqlx::Error>>,
    limit: Duration,
    end: Pin<Box<Sleep>>,
    is_lost: &'c mut bool,
}

impl Stream for Bounded<'_> {
    type Item = Result<Answer, sqlx::Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if *this.is_lost {
            return Poll::Ready(None);
        }
        if let Poll::Ready(answer) = this.answers.poll_next_unpin(cx) {
            *this.is_lost = matches!(&answer, Some(Err(error)) if is_lost(error));
            return Poll::Ready(answer);
        }
        ready!(this.end.as_mut().poll(cx));
        *this.is_lost = true;
        Poll::Ready(Some(Err(no_answer(this.limit))))
    }
}

impl<'c> Executor<'c> for &'c mut Conn {
    type Database = Postgres;

    fn fetch_many<'e, 'q, E>(self, query: E) -> BoxStream<'e, Result<Answer, sqlx::Error>>
    where
        'c: 'e,
        E: Execute<'q, Postgres>,
        'q: 'e,
        E: 'q,
    {
        match self.parts() {
            Ok(Parts { raw, limit, is_lost }) => {
                Box::pin(Bounded { answers: raw.fetch_many(query), limit, end: Box::pin(sleep(limit)), is_lost })
            }
            Err(error) => Box::pin(stream::iter([Err(error)])),
        }
    }

    fn fetch_optional<'e, 'q, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: Execute<'q, Postgres>,
        'q: 'e,
        E: 'q,
    {
        Box::pin(async move {
            let Parts { raw, limit, is_lost: lost } = self.parts()?;
            let answer = timeout(limit, raw.fetch_optional(query)).await.unwrap_or_else(|_| Err(no_answer(limit)));
            *lost = answer.as_ref().is_err_and(is_lost);
            answer
        })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'c: 'e,
    {
        Box::pin(async move {
            let Parts { raw, limit, is_lost: lost } = self.parts()?;
            let prepared = timeout(limit, raw.prepare_with(sql, parameters));
            let prepared = prepared.await.unwrap_or_else(|_| Err(no_answer(limit)));
            *lost = prepared.as_ref().is_err_and(is_lost);
            prepared
        })
    }
}

/// A [`Conn`] as `sql` holds it.
#[derive(Debug)]
pub(super) struct Lent(Conn);

impl Deref for Lent {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.0
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.0
    }
}

/// Connections of one kind.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    raw: PgPool,
    limit: Duration,
}

impl Pool {
    /// Each statement has `limit` for all its answers.
    pub(super) fn new(raw: PgPool, limit: Duration) -> Self {
        Self { raw, limit }
    }

    /// Connections that there are, and those that are being opened.
    pub(super) fn size(&self) -> u32 {
        self.raw.size()
    }

    /// Whether others have all connections, so that whoever waits for one waits for them and not for the network.
    pub(super) fn is_all_in_use(&self) -> bool {
        self.raw.size() >= self.max() && self.raw.num_idle() == 0
    }

    /// Most connections that there may be.
    pub(super) fn max(&self) -> u32 {
        self.raw.options().get_max_connections()
    }

    /// A connection, for a write.
    pub(super) async fn conn(&self) -> Result<Conn, sqlx::Error> {
        let raw = match self.raw.acquire().await {
            // There was room for one: the server cannot be reached.
            Err(sqlx::Error::PoolTimedOut) if !self.is_all_in_use() => {
                return Err(no_answer(self.raw.options().get_acquire_timeout()));
            }
            acquired => acquired?,
        };
        Ok(Conn { raw: Some(raw), limit: self.limit, is_open: false, is_lost: false })
    }

    /// A connection, for reads.
    pub(super) async fn acquire(&self) -> Result<Lent, sqlx::Error> {
        self.conn().await.map(Lent)
    }

    /// A connection, for reads of one state of the database, until it is dropped.
    pub(super) async fn begin(&self) -> Result<Lent, sqlx::Error> {
        let mut conn = self.conn().await?;
        conn.begin(BEGIN_READ).await?;
        Ok(Lent(conn))
    }

    /// Closes all connections, and waits for those that are in use.
    pub(super) async fn close(&self) {
        self.raw.close().await;
    }
}

impl<'p> Executor<'p> for &'p Pool {
    type Database = Postgres;

    fn fetch_many<'e, 'q, E>(self, query: E) -> BoxStream<'e, Result<Answer, sqlx::Error>>
    where
        'p: 'e,
        E: Execute<'q, Postgres>,
        'q: 'e,
        E: 'q,
    {
        let all = async move {
            let mut conn = self.conn().await?;
            let answers: Vec<Answer> = conn.fetch_many(query).try_collect().await?;
            Ok::<_, sqlx::Error>(stream::iter(answers.into_iter().map(Ok)))
        };
        Box::pin(stream::once(all).try_flatten())
    }

    fn fetch_optional<'e, 'q, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'p: 'e,
        E: Execute<'q, Postgres>,
        'q: 'e,
        E: 'q,
    {
        Box::pin(async move { self.conn().await?.fetch_optional(query).await })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'p: 'e,
    {
        Box::pin(async move { self.conn().await?.prepare_with(sql, parameters).await })
    }
}
