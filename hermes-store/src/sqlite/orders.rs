//! Writes that need no answer while they run, several in one message to SQLite's thread.
//!
//! A statement's way to that thread and back costs more than most statements. A method that goes back and forth pays it
//! for each of its statements, and while it is on its way, the thread waits. An [`Order`] is a write that is complete
//! when it is given away: its statements depend on each other only through `changes()`. So one message carries a whole
//! order, or [`CHUNK_MAX`] of them, and with the first of a batch also its BEGIN. When nobody else waits, the COMMIT
//! goes with them too.
//!
//! An order whose conditions fail changes nothing, so that it needs no savepoint. An order that fails with an error takes
//! its transaction with it, and is then done the long way like any that was not plain.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Executor as _, SqliteConnection};
use tokio::sync::oneshot;

use super::SqliteStore;
use super::sql::plain::{Append, fence, plain_fence, plain_row, plain_usage};
use super::write::{BEGIN, COMMIT, closed, waited_ms};
use super::writer::Request;
use crate::error::StoreError;
use crate::patience::WriteKind;

const FENCE: &str = plain_fence!("$3");
const ROW: &str = plain_row!("$3", " FROM conversations WHERE id = $1 AND changes() = 1");
const USAGE: &str = plain_usage!(" WHERE changes() = 1");
/// Parameters of an order.
const PARAMETERS: usize = 29;
/// Statements of an order.
const STATEMENTS: usize = 3;

/// Most orders in one message; smaller ones are powers of two, so that few texts are kept prepared.
const CHUNK_MAX: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: usize = 4;

/// The texts by the number of orders (as a power of two), without and with a BEGIN.
static TEXTS: LazyLock<Vec<[String; 2]>> = LazyLock::new(|| {
    (0..=CHUNK_BITS)
        .map(|bits| {
            let orders: Vec<String> = (0..1 << bits).flat_map(|order| order_texts(order * PARAMETERS)).collect();
            let text = orders.join("; ");
            [text.clone(), format!("{BEGIN}; {text}")]
        })
        .collect()
});

/// A transaction with one order.
static ALONE: LazyLock<String> = LazyLock::new(|| format!("{}; {COMMIT}", TEXTS[0][1]));

/// The statements of one order whose parameters stand behind `offset` others.
fn order_texts(offset: usize) -> [String; STATEMENTS] {
    [FENCE, ROW, USAGE].map(|text| renumbered(text, offset))
}

/// `$N` as `$(N + offset)`: in a message of several statements parameters count through.
fn renumbered(text: &str, offset: usize) -> String {
    let mut parts = text.split('$');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: usize = part[..digits].parse().unwrap_or_default();
        out.push_str(&format!("${}{}", number + offset, &part[digits..]));
    }
    out
}

/// What came of an order: whether it was plain, or an error of its transaction.
pub(super) type Answer = Result<bool, StoreError>;

/// A write that waits in the queue.
pub(super) struct Order {
    append: Box<Append>,
    ticket: Arc<Ticket>,
    answer: oneshot::Sender<Answer>,
}

impl Order {
    /// Takes the order to do it; false when nobody waits for it any more.
    pub(super) fn take(&self) -> bool {
        self.ticket.moves(WAITING, TAKEN)
    }

    /// Puts it back: the database is held by another process, and the patience of the one who waits may end.
    pub(super) fn put_back(&self) {
        if !self.ticket.moves(TAKEN, WAITING) {
            self.ticket.moves(LATE, GIVEN_UP);
        }
    }

    pub(super) fn answer(self, answer: Answer) {
        let _ = self.answer.send(answer);
    }
}

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
/// Taken, but the patience of the one who waits has ended: it is not to be tried again.
const LATE: u8 = 2;
const GIVEN_UP: u8 = 3;

/// Who has an order: the one who waits, or the writer.
struct Ticket(AtomicU8);

impl Ticket {
    fn state(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }

    fn moves(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Takes an order back that nobody waits for any more, unless it is being done.
struct Waits(Arc<Ticket>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.moves(WAITING, GIVEN_UP);
    }
}

impl SqliteStore {
    /// Does an append if it is plain; false when it is not, and then nothing has changed.
    pub(super) async fn append_plain(&self, append: Append) -> Result<bool, StoreError> {
        #[cfg(feature = "test-util")]
        return self.shared.faults.around_plain(self.order(append)).await;
        #[cfg(not(feature = "test-util"))]
        self.order(append).await
    }

    async fn order(&self, append: Append) -> Answer {
        let started = Instant::now();
        let patience = Duration::from_millis(self.shared.patience.of(WriteKind::Transcript));
        let ticket = Arc::new(Ticket(AtomicU8::new(WAITING)));
        let waits = Waits(Arc::clone(&ticket));
        let (answer, mut answered) = oneshot::channel();
        let order = Order { append: Box::new(append), ticket, answer };
        let wait = async {
            self.shared.queue.send(Request::Order(order)).await.map_err(|_| closed())?;
            Ok::<_, StoreError>((&mut answered).await)
        };
        let busy = || StoreError::Busy { waited_ms: waited_ms(started) };
        let told = match tokio::time::timeout(patience, wait).await {
            Ok(told) => told?,
            Err(_) if waits.0.moves(WAITING, GIVEN_UP) => return Err(busy()),
            // It is being done: whatever comes of it must be known.
            Err(_) => {
                waits.0.moves(TAKEN, LATE);
                answered.await
            }
        };
        match (told, waits.0.state()) {
            (Ok(answer), _) => answer,
            (Err(_), GIVEN_UP) => Err(busy()),
            (Err(_), WAITING) => Err(closed()),
            (Err(_), _) => Err(StoreError::CommitUnknown),
        }
    }
}

/// Executes orders in the transaction that is open, or that begins with them. Says of each whether it was plain.
///
/// # Errors
/// The transaction must be given up.
pub(super) async fn execute(
    conn: &mut SqliteConnection,
    orders: &[Order],
    begins: bool,
    now: i64,
) -> Result<Vec<bool>, sqlx::Error> {
    let mut plain = Vec::with_capacity(orders.len());
    let (mut rest, mut begins) = (orders, begins);
    while !rest.is_empty() {
        let bits = rest.len().min(CHUNK_MAX).ilog2();
        let (chunk, behind) = rest.split_at(1 << bits);
        let done = message(conn, chunk, TEXTS[bits as usize][usize::from(begins)].as_str(), now).await?;
        // BEGIN speaks too, with the number of the statement before it.
        let done = done.get(usize::from(begins)..).unwrap_or_default();
        plain.extend(done.chunks(STATEMENTS).map(is_plain));
        (rest, begins) = (behind, false);
    }
    Ok(plain)
}

/// Executes one order in a transaction of its own, which is committed when this returns. Says whether it was plain;
/// one that was not changed nothing.
///
/// # Errors
/// Those of the order and of the COMMIT; a transaction may still be open.
pub(super) async fn execute_alone(conn: &mut SqliteConnection, order: &Order, now: i64) -> Result<bool, sqlx::Error> {
    let changed = message(conn, std::slice::from_ref(order), ALONE.as_str(), now).await?;
    Ok(changed.get(1..).is_some_and(is_plain))
}

/// Whether an order was plain, by the number of rows that each of its statements changed.
fn is_plain(changed: &[u64]) -> bool {
    changed.first() == Some(&1)
}

/// How many rows each statement of the message changed; one that changes none says the number of the one before.
async fn message(
    conn: &mut SqliteConnection,
    chunk: &[Order],
    text: &'static str,
    now: i64,
) -> Result<Vec<u64>, sqlx::Error> {
    // Only texts of this file, put together above.
    let query = sqlx::query(AssertSqlSafe(text));
    let query = chunk.iter().fold(query, |query, order| order.append.bind(query, Some(now)));
    // No statement here returns rows.
    let changed = conn.fetch_many(query).try_filter_map(|said| async move { Ok(said.left()) });
    changed.map_ok(|said| said.rows_affected()).try_collect().await
}

#[cfg(test)]
mod tests;
