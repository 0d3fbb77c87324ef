//! What a batch does with those who fail, go away, or only read.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use sqlx::{ConnectOptions as _, Connection as _};
use tokio::task::JoinHandle;

use super::super::{SqliteOptions, SqliteStore, Synchronous};
use crate::admission::{AdmitOutcome, Intent, NewAdmission};
use crate::error::StoreError;
use crate::ids::{AdmissionId, ConversationId, OwnerId};
use crate::limits::WRITE_QUEUE_MAX;
use crate::patience::{Patience, WriteKind};
use crate::session::NewConversation;
use crate::time::ManualClock;
use crate::traits::{AdmissionStore as _, SessionStore as _};

/// Long enough for every member of a test's batch to join, however busy the machine is.
const TEST_BATCH_MS: u64 = 60_000;

fn conversation(name: &str) -> ConversationId {
    ConversationId::parse(name).unwrap()
}

fn new(name: &str) -> NewConversation {
    NewConversation { id: conversation(name), profile: "p".to_owned(), source: "s".to_owned(), title: None }
}

fn input(name: &str, request: &str) -> NewAdmission {
    NewAdmission {
        id: AdmissionId::parse(&format!("{name}-{request}")).unwrap(),
        conversation: conversation(name),
        principal: "me".to_owned(),
        request_id: request.to_owned(),
        intent: Intent::Queue,
        payload: "x".to_owned(),
        submitted_by: OwnerId::parse("o").unwrap(),
    }
}

fn options(dir: &tempfile::TempDir) -> SqliteOptions {
    SqliteOptions {
        synchronous: Synchronous::Normal,
        batch_ms: TEST_BATCH_MS,
        ..SqliteOptions::new(dir.path().join("hermes.db"), std::sync::Arc::new(ManualClock::at(1)))
    }
}

async fn open(dir: &tempfile::TempDir) -> SqliteStore {
    SqliteStore::open(options(dir)).await.unwrap()
}

type Admitted = JoinHandle<Result<AdmitOutcome, StoreError>>;

/// Starts a submission and returns when it waits in the writer's queue, behind `before` others.
async fn queued(store: &SqliteStore, before: usize, name: &'static str, request: &'static str) -> Admitted {
    let task = {
        let store = store.clone();
        tokio::spawn(async move { store.create_and_admit(new(name), input(name, request)).await })
    };
    while WRITE_QUEUE_MAX - store.shared.queue.capacity() <= before {
        tokio::task::yield_now().await;
    }
    task
}

async fn waiting(store: &SqliteStore, name: &str) -> Vec<String> {
    let queue = store.queue(&conversation(name)).await.unwrap_or_default();
    queue.into_iter().map(|admission| admission.request_id).collect()
}

/// A second connection, as another process would have.
async fn raw(path: &Path) -> sqlx::SqliteConnection {
    let connect = sqlx::sqlite::SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_millis(0));
    connect.connect().await.unwrap()
}

#[tokio::test]
async fn those_who_wait_share_one_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    store.create_and_admit(new("a"), input("a", "0")).await.unwrap();
    let first = store.write().await.unwrap();
    let before = store.commits();
    let tasks =
        [queued(&store, 0, "b", "1").await, queued(&store, 1, "c", "1").await, queued(&store, 2, "a", "1").await];
    assert_eq!(waiting(&store, "a").await, ["0"], "nobody sees what is not committed");
    first.commit().await.unwrap();
    for task in tasks {
        assert!(matches!(task.await.unwrap(), Ok(AdmitOutcome::Accepted(_))));
    }
    assert_eq!(store.commits() - before, 1);
    assert_eq!(waiting(&store, "a").await, ["0", "1"]);
}

#[tokio::test]
async fn one_who_fails_undoes_only_his_own() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    store.create_and_admit(new("a"), input("a", "0")).await.unwrap();
    let first = store.write().await.unwrap();
    let before = store.commits();
    let good = queued(&store, 0, "b", "1").await;
    // The id of an admission is taken: the place in the queue was given out, and is taken back.
    let bad = {
        let (store, taken) = (store.clone(), AdmissionId::parse("a-0").unwrap());
        tokio::spawn(
            async move { store.create_and_admit(new("c"), NewAdmission { id: taken, ..input("c", "1") }).await },
        )
    };
    while WRITE_QUEUE_MAX - store.shared.queue.capacity() < 2 {
        tokio::task::yield_now().await;
    }
    let last = queued(&store, 2, "d", "1").await;
    first.commit().await.unwrap();
    good.await.unwrap().unwrap();
    assert!(matches!(bad.await.unwrap(), Err(StoreError::Conflict { .. })));
    last.await.unwrap().unwrap();
    assert_eq!(store.commits() - before, 1);
    assert!(store.conversation(&conversation("c")).await.is_err());
    assert_eq!((waiting(&store, "b").await.len(), waiting(&store, "d").await.len()), (1, 1));
}

#[tokio::test]
async fn a_first_one_who_keeps_nothing_leaves_the_others_their_own_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    for gives_up in [true, false] {
        let mut first = store.write().await.unwrap();
        sqlx::query("DELETE FROM admissions").execute(first.conn()).await.unwrap();
        let name = if gives_up { "a" } else { "b" };
        let task = queued(&store, 0, name, "1").await;
        match gives_up {
            true => drop(first),
            false => first.rollback().await.unwrap(),
        }
        task.await.unwrap().unwrap();
        assert_eq!(waiting(&store, name).await, ["1"]);
        assert_eq!(waiting(&store, "a").await, ["1"], "nothing was deleted");
    }
}

/// Makes the COMMIT of a transaction fail: a reference that leads nowhere is found at its end.
async fn spoil(tx: &mut super::super::write::WriteTx) {
    sqlx::query("PRAGMA defer_foreign_keys = ON").execute(tx.conn()).await.unwrap();
    sqlx::query(
        "INSERT INTO turns (id, conversation_id, admission_id, generation, attempt, status, api_calls, first_seq, \
         started_ms) VALUES ('t', 'nowhere', 'a', 1, 1, 'running', 0, 0, 0)",
    )
    .execute(tx.conn())
    .await
    .unwrap();
}

#[tokio::test]
async fn i01_a_commit_that_fails_is_told_to_all_who_wrote_and_to_all_who_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let mut first = store.write().await.unwrap();
    spoil(&mut first).await;
    let wrote = queued(&store, 0, "a", "1").await;
    // The same request again: a replayed receipt is as good as an accepted one, and must be as durable.
    let read = queued(&store, 1, "a", "1").await;
    let failed = first.commit().await;
    assert!(failed.is_err());
    for told in [wrote.await.unwrap(), read.await.unwrap()] {
        assert_eq!(told.unwrap_err().code(), failed.as_ref().unwrap_err().code());
    }
    assert!(store.conversation(&conversation("a")).await.is_err());
    // The writer goes on.
    store.create_and_admit(new("a"), input("a", "1")).await.unwrap();
    assert_eq!(waiting(&store, "a").await, ["1"]);
}

#[tokio::test]
async fn i02_a_receipt_replayed_within_a_batch_is_told_after_its_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let first = store.write().await.unwrap();
    let before = store.commits();
    let tasks =
        [queued(&store, 0, "a", "1").await, queued(&store, 1, "a", "1").await, queued(&store, 2, "a", "1").await];
    first.commit().await.unwrap();
    let mut accepted = 0;
    for task in tasks {
        accepted += usize::from(matches!(task.await.unwrap().unwrap(), AdmitOutcome::Accepted(_)));
    }
    assert_eq!((accepted, store.commits() - before), (1, 1));
    assert_eq!(waiting(&store, "a").await, ["1"]);
}

#[tokio::test]
async fn d2_an_error_that_rolls_everything_back_leaves_nothing_half() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    store.create_and_admit(new("a"), input("a", "0")).await.unwrap();
    let mut first = store.write().await.unwrap();
    sqlx::query("PRAGMA max_page_count = 64").execute(first.conn()).await.unwrap();
    let small = queued(&store, 0, "b", "1").await;
    let large = {
        let store = store.clone();
        let huge = NewAdmission { payload: "x".repeat(1 << 20), ..input("c", "1") };
        tokio::spawn(async move { store.create_and_admit(new("c"), huge).await })
    };
    while WRITE_QUEUE_MAX - store.shared.queue.capacity() < 2 {
        tokio::task::yield_now().await;
    }
    let after = queued(&store, 2, "d", "1").await;
    let kept = first.commit().await;
    assert!(matches!(large.await.unwrap(), Err(StoreError::Full)));
    // SQLite took the savepoints of the others with it, so that they are told to repeat; or it did not, and they hold.
    let b = small.await.unwrap();
    assert_eq!(kept.is_ok(), b.is_ok(), "one transaction, one end");
    if let Err(error) = &b {
        assert!(matches!(error, StoreError::Retryable { .. }), "{error:?}");
    }
    assert_eq!(waiting(&store, "b").await.len(), usize::from(b.is_ok()));
    let d = after.await.unwrap();
    assert_eq!(waiting(&store, "d").await.len(), usize::from(d.is_ok()));
    assert_eq!(waiting(&store, "c").await, [""; 0]);
    for name in ["b", "d"] {
        store.create_and_admit(new(name), input(name, "1")).await.unwrap();
        assert_eq!(waiting(&store, name).await, ["1"]);
    }
}

/// Polls a future at most `polls` times and drops it; true when it had ended.
async fn cancelled_after<F: Future>(future: F, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            // With the last poll gone nobody would wake us: look again at once.
            Poll::Pending => {
                if left == 0 {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_caller_that_goes_away_at_any_moment_neither_wedges_nor_halves_anything() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    for polls in 0..200 {
        let name = format!("c{polls}");
        // In a batch with others, so that it is now the first and now a later member.
        let others: Vec<_> = (0..2)
            .map(|number| {
                let (store, name) = (store.clone(), format!("o{polls}-{number}"));
                tokio::spawn(async move { store.create_and_admit(new(&name), input(&name, "1")).await })
            })
            .collect();
        if polls % 2 == 0 {
            tokio::task::yield_now().await;
        }
        let ended = cancelled_after(store.create_and_admit(new(&name), input(&name, "1")), polls).await;
        for other in others {
            assert!(matches!(other.await.unwrap(), Ok(AdmitOutcome::Accepted(_))));
        }
        // All of it or nothing of it: the conversation is there exactly if its input is.
        let is_there = store.conversation(&conversation(&name)).await.is_ok();
        assert_eq!(waiting(&store, &name).await.len(), usize::from(is_there));
        assert!(is_there || !ended);
        if ended && polls > 20 {
            return;
        }
    }
    panic!("a submission needs fewer polls than that");
}

#[tokio::test]
async fn a_caller_that_gave_up_waiting_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let patience = Patience { beat_ms: 30, ..Patience::default() };
    let store = SqliteStore::open(SqliteOptions { patience, ..options(&dir) }).await.unwrap();
    let first = store.write().await.unwrap();
    let refused = store.write_within(WriteKind::Beat).await.map(drop);
    assert!(matches!(refused, Err(StoreError::Busy { waited_ms }) if waited_ms >= 30), "{refused:?}");
    let task = queued(&store, 1, "a", "1").await;
    first.commit().await.unwrap();
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn s47_a_lock_of_30_seconds_is_waited_for_and_one_of_90_is_busy() {
    /// A thirtieth of the real times.
    const SCALE: u64 = 30;
    let dir = tempfile::tempdir().unwrap();
    let patience = Patience::default().scaled_down(SCALE);
    let store = SqliteStore::open(SqliteOptions { patience, ..options(&dir) }).await.unwrap();
    let mut other = raw(&dir.path().join("hermes.db")).await;

    let lock = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let task = {
        let store = store.clone();
        tokio::spawn(async move { store.create_and_admit(new("a"), input("a", "1")).await })
    };
    tokio::time::sleep(Duration::from_millis(30_000 / SCALE)).await;
    lock.rollback().await.unwrap();
    task.await.unwrap().unwrap();

    let lock = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let started = Instant::now();
    let refused = store.admit(input("a", "2")).await;
    assert!(matches!(refused, Err(StoreError::Busy { .. })), "{refused:?}");
    assert!(started.elapsed() >= Duration::from_millis(60_000 / SCALE), "it gave up too early");
    // Reading went on, and what was there is there.
    assert_eq!(waiting(&store, "a").await, ["1"]);
    lock.rollback().await.unwrap();
    store.admit(input("a", "2")).await.unwrap();
}

#[tokio::test]
async fn closing_serves_who_asked_before_and_refuses_who_asks_after() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let first = store.write().await.unwrap();
    let task = queued(&store, 0, "a", "1").await;
    let closing = {
        let store = store.clone();
        tokio::spawn(async move { store.close().await })
    };
    while WRITE_QUEUE_MAX - store.shared.queue.capacity() < 2 {
        tokio::task::yield_now().await;
    }
    first.commit().await.unwrap();
    task.await.unwrap().unwrap();
    closing.await.unwrap();
    let refused = store.admit(input("a", "2")).await;
    assert!(matches!(refused, Err(StoreError::Io { .. })), "{refused:?}");
    let again = open(&dir).await;
    assert_eq!(waiting(&again, "a").await, ["1"]);
}

#[tokio::test]
async fn the_writer_ends_with_the_last_handle() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    store.create_and_admit(new("a"), input("a", "1")).await.unwrap();
    drop(store);
    // Only who is alone may leave WAL mode.
    let mut other = raw(&dir.path().join("hermes.db")).await;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let mode: Result<String, _> = sqlx::query_scalar("PRAGMA journal_mode = DELETE").fetch_one(&mut other).await;
        if mode.is_ok_and(|mode| mode == "delete") {
            return;
        }
        assert!(Instant::now() < deadline, "somebody still holds the file");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
