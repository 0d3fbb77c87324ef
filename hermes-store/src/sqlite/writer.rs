//! The one writer of a process: owns the connection that writes, lends it, and commits for everybody at once.
//!
//! A disk gives few syncs per second and many bytes. So one COMMIT serves all writes that are there:
//!
//! 1. BEGIN IMMEDIATE, and a look whether the file is still the one that was opened, before a page of it is written.
//! 2. The connection goes to the first who waits. Its statements are the transaction.
//! 3. While others wait, each gets the connection in turn, inside a savepoint of its own: what it undoes is undone
//!    alone.
//! 4. COMMIT, and the same look again. Only now is anybody told, those included who only read what the others had
//!    written (I01).
//!
//! Writes that are complete when they are given away (`orders`) are executed by the owner itself, several in one message,
//! without a savepoint.
//!
//! Nobody waits for company: a batch is whoever queued up while the COMMIT before it ran. A single writer pays one
//! BEGIN and one COMMIT, as it would alone.
//!
//! No COMMIT moves the log into the file: a checkpoint has a connection of its own, so that no turn waits for one.
//!
//! An error by which SQLite rolls back everything by itself (a full disk, a failing one) takes the savepoints with it.
//! The next statement of the owner then fails, and with it the whole batch: all of its members are told to repeat, and
//! nothing of it is stored. The connection is opened anew after every such error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Row as _, SqliteConnection};
use tokio::sync::{Mutex, Notify, mpsc, oneshot};

use super::clock::FileClock;
use super::errors::{is_busy, map, map_commit};
use super::guard::Watch;
use super::orders::{self, Order};
use super::write::{BEGIN, COMMIT, Loan, Verdict, jitter};
use crate::error::StoreError;
use crate::limits::{BATCH_MAX_WRITES, CHECKPOINT_EVERY_COMMITS, WAL_REST_PAGES};
use crate::time::Clock;

const ROLLBACK: &str = "ROLLBACK";
const SAVE: &str = "SAVEPOINT member";
/// Both in one message to the connection's thread.
const SAVE_NEXT: &str = "RELEASE member; SAVEPOINT member";
const UNDO: &str = "ROLLBACK TO member";
const CHECKPOINT: &str = "PRAGMA wal_checkpoint(PASSIVE)";

/// How a transaction ended.
pub(super) type Told = Result<(), StoreError>;

/// Where the answer to a request for the connection goes.
type Reply = oneshot::Sender<Result<Loan, StoreError>>;

/// What the owner is asked for.
pub(super) enum Request {
    /// The connection, for one write.
    Lend(Reply),
    /// A write that the owner does itself.
    Order(Order),
    /// To end, after all who asked before.
    Close(oneshot::Sender<()>),
}

type Held = Arc<Mutex<SqliteConnection>>;

/// The queue, and what was taken from it and does not belong to what is being done.
pub(super) struct Requests {
    queue: mpsc::Receiver<Request>,
    ahead: Option<Request>,
}

impl Requests {
    pub(super) fn new(queue: mpsc::Receiver<Request>) -> Self {
        Self { queue, ahead: None }
    }

    async fn next(&mut self) -> Option<Request> {
        match self.ahead.take() {
            Some(request) => Some(request),
            None => self.queue.recv().await,
        }
    }

    fn is_empty(&self) -> bool {
        self.ahead.is_none() && self.queue.is_empty()
    }

    /// The next one, if it is there already.
    fn waiting(&mut self) -> Option<Request> {
        self.ahead.take().or_else(|| self.queue.try_recv().ok())
    }

    /// `first` and the orders that wait right behind it, at most `most`.
    fn orders(&mut self, first: Order, most: usize) -> Vec<Order> {
        let mut orders = vec![first];
        while orders.len() < most {
            match self.waiting() {
                Some(Request::Order(order)) => orders.push(order),
                other => {
                    self.ahead = other;
                    break;
                }
            }
        }
        orders
    }
}

/// What the task of the writer needs.
pub(super) struct Writer {
    pub(super) requests: Requests,
    pub(super) connect: SqliteConnectOptions,
    pub(super) watch: Arc<Watch>,
    pub(super) clock: Arc<FileClock>,
    pub(super) changed: Arc<Notify>,
    pub(super) commits: Arc<AtomicU64>,
    pub(super) batch_ms: u64,
}

/// One who waits for the COMMIT.
enum Member {
    Write(oneshot::Sender<Told>),
    Order(Order),
}

impl Member {
    fn tell(self, told: &Told) {
        match self {
            Self::Write(member) => drop(member.send(told.clone())),
            Self::Order(order) => order.answer(told.clone().map(|()| true)),
        }
    }
}

/// The savepoint of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Savepoint {
    None,
    /// Open, with nothing done in it.
    Fresh,
    /// Open, with a member's changes in it.
    Used,
}

/// What came of the beginning of a batch.
enum Began {
    /// A transaction, with or without members.
    Transaction,
    /// Nothing: nobody waits any more, or who waited was told.
    Nothing,
    /// An error, which was told: the connection has seen enough.
    Failed,
}

/// A transaction with its members.
struct Batch {
    conn: Held,
    began: Instant,
    /// Those who wait for the COMMIT.
    members: Vec<Member>,
    savepoint: Savepoint,
}

impl Batch {
    fn new(conn: Held) -> Self {
        Self { conn, began: Instant::now(), members: Vec::new(), savepoint: Savepoint::None }
    }

    fn is_full(&self, batch_ms: u64) -> bool {
        self.members.len() >= BATCH_MAX_WRITES || self.began.elapsed() >= Duration::from_millis(batch_ms)
    }

    async fn run(&self, sql: &'static str) -> Result<(), sqlx::Error> {
        sqlx::query(sql).execute(&mut *self.conn.lock().await).await.map(drop)
    }

    /// Lends the connection and waits for it to come back.
    async fn lend(&self, reply: Reply, clock: &dyn Clock) -> Verdict {
        let guard = Arc::clone(&self.conn).lock_owned().await;
        let (loan, verdict) = Loan::new(guard, clock.now_ms());
        // A caller that went away drops the loan, which gives it back.
        drop(reply.send(Ok(loan)));
        verdict.await.unwrap_or(Verdict::Dropped)
    }

    /// Opens a savepoint for the next member, unless there is one without changes.
    async fn save(&mut self) -> Result<(), sqlx::Error> {
        match self.savepoint {
            Savepoint::None => self.run(SAVE).await?,
            Savepoint::Used => self.run(SAVE_NEXT).await?,
            Savepoint::Fresh => {}
        }
        self.savepoint = Savepoint::Fresh;
        Ok(())
    }

    /// Takes what a later member came to. An error is the end of the batch.
    async fn settle(&mut self, verdict: Verdict) -> Result<(), sqlx::Error> {
        match verdict {
            Verdict::Keep(member) => {
                self.members.push(Member::Write(member));
                self.savepoint = Savepoint::Used;
            }
            Verdict::Undo(member) => {
                self.members.push(Member::Write(member));
                self.run(UNDO).await?;
            }
            Verdict::Dropped => self.run(UNDO).await?,
        }
        Ok(())
    }

    /// Does orders behind other members. An error is the end of the batch; these orders then go the long way.
    async fn execute(&mut self, mut orders: Vec<Order>, now: i64) -> Result<(), sqlx::Error> {
        orders.retain(|order| order.take());
        let done = orders::execute(&mut *self.conn.lock().await, &orders, false, now).await;
        self.sort(orders, done.as_deref().unwrap_or_default());
        // What they changed must outlive the next member's savepoint.
        if self.savepoint == Savepoint::Fresh {
            self.savepoint = Savepoint::Used;
        }
        done.map(drop)
    }

    /// Orders that were plain wait for the COMMIT; the others changed nothing.
    fn sort(&mut self, orders: Vec<Order>, plain: &[bool]) {
        for (at, order) in orders.into_iter().enumerate() {
            match plain.get(at) {
                Some(true) => self.members.push(Member::Order(order)),
                _ => order.answer(Ok(false)),
            }
        }
    }

    fn tell(self, told: &Told) -> Held {
        for member in self.members {
            member.tell(told);
        }
        self.conn
    }
}

impl Writer {
    /// Serves until the last handle is gone or somebody closes the store. `conn` is the connection that made the
    /// schema.
    pub(super) async fn run(mut self, conn: SqliteConnection) {
        let mut conn = Some(Arc::new(Mutex::new(conn)));
        let mut closing = Vec::new();
        let (due, dues) = mpsc::channel(1);
        let rest = Arc::new(AtomicBool::new(false));
        let checkpoints =
            tokio::spawn(checkpoint(dues, self.connect.clone(), Arc::clone(&self.watch), Arc::clone(&rest)));
        let mut checkpointed = 0;
        while let Some(request) = self.requests.next().await {
            let commits = self.commits.load(Ordering::Relaxed);
            if commits.saturating_sub(checkpointed) >= CHECKPOINT_EVERY_COMMITS {
                checkpointed = commits;
                // One that is under way is enough.
                let _ = due.try_send(());
            }
            if rest.swap(false, Ordering::Relaxed)
                && let Some(conn) = &conn
                && self.watch.check().await.is_ok()
                && let Err(error) = sqlx::query(CHECKPOINT).execute(&mut *conn.lock().await).await
            {
                tracing::debug!("the rest of a checkpoint failed: {error}");
            }
            match request {
                // Whoever asked before is served; nobody can ask any more.
                Request::Close(done) => {
                    self.requests.queue.close();
                    closing.push(done);
                }
                Request::Lend(reply) => conn = self.serve(conn, reply, &mut closing).await,
                Request::Order(order) => conn = self.serve_orders(conn, order, &mut closing).await,
            }
        }
        drop(due);
        let _ = checkpoints.await;
        close(conn).await;
        for done in closing {
            let _ = done.send(());
        }
    }

    /// One batch, begun for `reply`. Returns the connection if it can be used again.
    async fn serve(
        &mut self,
        conn: Option<Held>,
        reply: Reply,
        closing: &mut Vec<oneshot::Sender<()>>,
    ) -> Option<Held> {
        let conn = match conn {
            Some(conn) => conn,
            None => match self.open().await {
                Ok(conn) => conn,
                Err(error) => {
                    let _ = reply.send(Err(error));
                    return None;
                }
            },
        };
        match self.begin(&conn, &reply).await {
            Ok(true) => {}
            Ok(false) => return Some(conn),
            Err(error) => {
                let _ = reply.send(Err(error));
                close(Some(conn)).await;
                return None;
            }
        }
        let mut batch = Batch::new(conn);
        match batch.lend(reply, self.clock.as_ref()).await {
            Verdict::Keep(member) => batch.members.push(Member::Write(member)),
            // What it read was durable before it read it.
            Verdict::Undo(member) => return finish_alone(batch, Some(member)).await,
            Verdict::Dropped => return finish_alone(batch, None).await,
        }
        let joined = self.join(&mut batch, closing).await;
        self.commit(batch, joined).await
    }

    /// One batch, begun with orders. Returns the connection if it can be used again.
    async fn serve_orders(
        &mut self,
        conn: Option<Held>,
        first: Order,
        closing: &mut Vec<oneshot::Sender<()>>,
    ) -> Option<Held> {
        let orders = self.requests.orders(first, BATCH_MAX_WRITES);
        let conn = match conn {
            Some(conn) => conn,
            None => match self.open().await {
                Ok(conn) => conn,
                Err(error) => {
                    orders.into_iter().for_each(|order| order.answer(Err(error.clone())));
                    return None;
                }
            },
        };
        let mut batch = Batch::new(conn);
        match self.begin_with(&mut batch, orders).await {
            Began::Nothing => return Some(batch.conn),
            Began::Failed => {
                close(Some(batch.conn)).await;
                return None;
            }
            Began::Transaction if batch.members.is_empty() => return finish_alone(batch, None).await,
            Began::Transaction => {}
        }
        let joined = self.join(&mut batch, closing).await;
        self.commit(batch, joined).await
    }

    /// BEGIN IMMEDIATE with the first orders in one message, as long as somebody waits for them. When only one does, the
    /// COMMIT goes with it.
    async fn begin_with(&self, batch: &mut Batch, mut orders: Vec<Order>) -> Began {
        loop {
            orders.retain(|order| order.take());
            if orders.is_empty() {
                return Began::Nothing;
            }
            batch.began = Instant::now();
            let is_alone = orders.len() == 1 && self.requests.is_empty();
            let begin = async {
                let mut conn = batch.conn.lock().await;
                self.clock.settle(&mut conn).await?;
                match &orders[..] {
                    [order] if is_alone => {
                        let is_plain = orders::execute_alone(&mut conn, order, self.clock.now_ms()).await?;
                        Ok(vec![is_plain])
                    }
                    orders => orders::execute(&mut conn, orders, true, self.clock.now_ms()).await,
                }
            };
            match begin.await {
                Ok(plain) if is_alone => {
                    self.committed();
                    for (order, is_plain) in orders.into_iter().zip(plain) {
                        order.answer(Ok(is_plain));
                    }
                    return Began::Nothing;
                }
                Ok(plain) => {
                    batch.sort(orders, &plain);
                    return Began::Transaction;
                }
                Err(error) if is_busy(&error) => {
                    // There is no transaction, unless it was not the BEGIN that was refused.
                    let _ = batch.run(ROLLBACK).await;
                    orders.iter().for_each(|order| order.put_back());
                    jitter().await;
                }
                Err(error) => {
                    self.fail(batch, orders, error, is_alone).await;
                    return Began::Failed;
                }
            }
        }
    }

    /// Tells what became of first orders that an error ended.
    async fn fail(&self, batch: &mut Batch, orders: Vec<Order>, error: sqlx::Error, with_commit: bool) {
        let refusal = self.watch.refusal();
        if refusal.is_some() {
            self.leave(&batch.conn).await;
        }
        // Only a COMMIT can leave it open whether it was done.
        match (refusal, map_commit(error)) {
            (Some(told), _) => orders.into_iter().for_each(|order| order.answer(Err(told.clone()))),
            (None, told @ StoreError::CommitUnknown) if with_commit => {
                orders.into_iter().for_each(|order| order.answer(Err(told.clone())));
            }
            (None, error) => {
                tracing::debug!("orders failed, and go the long way: {error}");
                batch.sort(orders, &[]);
            }
        }
    }

    /// Counts a COMMIT, and wakes who waits for one.
    fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// BEGIN IMMEDIATE, as long as somebody waits for it; false when nobody does any more.
    async fn begin(&self, conn: &Held, reply: &Reply) -> Result<bool, StoreError> {
        while !reply.is_closed() {
            let begin = async {
                let mut conn = conn.lock().await;
                self.clock.settle(&mut conn).await?;
                sqlx::query(BEGIN).execute(&mut *conn).await
            };
            match begin.await {
                Ok(_) => return Ok(true),
                Err(error) if is_busy(&error) => jitter().await,
                Err(error) => return Err(map(error)),
            }
        }
        Ok(false)
    }

    /// Lets those join who wait already, within the limits.
    async fn join(&mut self, batch: &mut Batch, closing: &mut Vec<oneshot::Sender<()>>) -> Result<(), sqlx::Error> {
        while !batch.is_full(self.batch_ms) {
            match self.requests.waiting() {
                Some(Request::Lend(reply)) if reply.is_closed() => {}
                Some(Request::Order(order)) => {
                    let most = BATCH_MAX_WRITES - batch.members.len();
                    let orders = self.requests.orders(order, most);
                    batch.execute(orders, self.clock.now_ms()).await?;
                }
                Some(Request::Lend(reply)) => {
                    // On an error the reply is dropped with the request; the caller must not take that for a close.
                    if let Err(error) = batch.save().await {
                        let _ = reply.send(Err(again()));
                        return Err(error);
                    }
                    let verdict = batch.lend(reply, self.clock.as_ref()).await;
                    batch.settle(verdict).await?;
                }
                Some(Request::Close(done)) => {
                    self.requests.queue.close();
                    closing.push(done);
                }
                None => break,
            }
        }
        Ok(())
    }

    /// One COMMIT for all, and then the news for all.
    async fn commit(&self, batch: Batch, joined: Result<(), sqlx::Error>) -> Option<Held> {
        let committed = match joined {
            Ok(()) => match (batch.run(COMMIT).await, self.watch.refusal()) {
                (Err(_), Some(refusal)) => {
                    self.leave(&batch.conn).await;
                    Err(refusal)
                }
                (committed, _) => committed.map_err(map_commit),
            },
            Err(_) => Err(again()),
        };
        if committed.is_ok() {
            self.committed();
            return Some(batch.tell(&committed));
        }
        // Whatever SQLite has rolled back by itself, a closed connection has no transaction.
        let Batch { conn, members, .. } = batch;
        close(Some(conn)).await;
        for member in members {
            member.tell(&committed);
        }
        None
    }

    /// What is still to be done for a file that is no longer the one that was opened: nothing when there is a new one
    /// in its place, and else to save what was committed before.
    async fn leave(&self, conn: &Held) {
        if self.watch.spare(conn) {
            return;
        }
        let mut conn = conn.lock().await;
        // Without a transaction there is nothing to roll back.
        let _ = sqlx::query(ROLLBACK).execute(&mut *conn).await;
        if let Err(error) = sqlx::query(CHECKPOINT).execute(&mut *conn).await {
            tracing::warn!("what was committed could not be moved out of a log that was deleted: {error}");
        }
    }

    async fn open(&self) -> Result<Held, StoreError> {
        self.watch.check().await?;
        let mut conn = self.connect.connect().await.map_err(map)?;
        self.watch.stand_by(&mut conn).await?;
        Ok(Arc::new(Mutex::new(conn)))
    }
}

/// Moves what was committed from the log into the file, on a connection of its own: no COMMIT waits for it, and it waits
/// for nobody (PASSIVE). Ends with the writer.
///
/// While writes go on, the log is never wholly in the file, and only a log that is begins anew. When it has grown large,
/// `rest` asks the writer to move the little that is left between two batches.
async fn checkpoint(
    mut due: mpsc::Receiver<()>,
    connect: SqliteConnectOptions,
    watch: Arc<Watch>,
    rest: Arc<AtomicBool>,
) {
    let mut conn: Option<SqliteConnection> = None;
    while due.recv().await.is_some() {
        // Pages of a log that is nobody's any more must not come over those of another one.
        if watch.check().await.is_err() {
            continue;
        }
        let mut open = match conn.take() {
            Some(open) => open,
            None => match connect.connect().await {
                Ok(open) => open,
                Err(error) => {
                    tracing::debug!("no connection for a checkpoint: {error}");
                    continue;
                }
            },
        };
        match sqlx::query(CHECKPOINT).fetch_one(&mut open).await.and_then(|row| row.try_get::<i64, _>(1)) {
            Ok(pages) => {
                conn = Some(open);
                rest.store(pages >= WAL_REST_PAGES, Ordering::Relaxed);
            }
            // The log grows until the next one succeeds; nothing is lost.
            Err(error) => tracing::debug!("a checkpoint failed: {error}"),
        }
    }
    if let Some(open) = conn {
        let _ = open.close().await;
    }
}

/// The error of everybody whose batch SQLite rolled back.
fn again() -> StoreError {
    StoreError::Retryable { detail: "a write of the same transaction met an error that rolled it back".to_owned() }
}

/// Ends a transaction of one member that keeps nothing.
async fn finish_alone(batch: Batch, member: Option<oneshot::Sender<Told>>) -> Option<Held> {
    let undone = batch.run(ROLLBACK).await;
    if let Some(member) = member {
        let _ = member.send(Ok(()));
    }
    match undone {
        Ok(()) => Some(batch.conn),
        // SQLite had rolled back already, or cannot: either way this connection has seen enough.
        Err(_) => {
            close(Some(batch.conn)).await;
            None
        }
    }
}

/// Closes a connection, and waits until its locks are gone.
async fn close(conn: Option<Held>) {
    let Some(conn) = conn.and_then(Arc::into_inner) else { return };
    if let Err(error) = conn.into_inner().close().await {
        tracing::debug!("the connection that writes did not close in order: {error}");
    }
}

#[cfg(test)]
mod tests;
