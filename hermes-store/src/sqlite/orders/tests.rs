//! Orders beside lent connections in one batch, and what becomes of those whose batch or whose caller fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::{ConnectOptions as _, Connection as _};
use tokio::task::JoinHandle;

use super::super::{SqliteOptions, SqliteStore, Synchronous};
use super::renumbered;
use crate::admission::{Intent, NewAdmission};
use crate::error::StoreError;
use crate::fence::{ClaimOutcome, ClaimPolicy, ClaimRequest, Fence};
use crate::ids::{AdmissionId, ConversationId, MessageId, OwnerId, SessionId, TurnId};
use crate::limits::WRITE_QUEUE_MAX;
use crate::message::{MessagePage, NewMessage, Role, View};
use crate::patience::Patience;
use crate::prompt::PromptSnapshot;
use crate::session::{NewConversation, NewSession};
use crate::time::ManualClock;
use crate::traits::{AdmissionStore as _, LeaseStore as _, SessionStore as _, TranscriptStore as _};

/// Long enough for every member of a test's batch to join, however busy the machine is.
const TEST_BATCH_MS: u64 = 60_000;

fn options(dir: &tempfile::TempDir) -> SqliteOptions {
    SqliteOptions {
        synchronous: Synchronous::Normal,
        batch_ms: TEST_BATCH_MS,
        ..SqliteOptions::new(dir.path().join("hermes.db"), Arc::new(ManualClock::at(1)))
    }
}

async fn open(dir: &tempfile::TempDir) -> SqliteStore {
    SqliteStore::open(options(dir)).await.unwrap()
}

fn row(id: &str) -> NewMessage {
    NewMessage::text(MessageId::parse(id).unwrap(), Role::User, format!("row {id}"))
}

/// A conversation with a running turn and one row.
async fn holding(store: &SqliteStore, name: &str) -> (Fence, TurnId) {
    let conversation = ConversationId::parse(name).unwrap();
    let owner = OwnerId::parse("o").unwrap();
    let new =
        NewConversation { id: conversation.clone(), profile: "p".to_owned(), source: "s".to_owned(), title: None };
    let input = NewAdmission {
        id: AdmissionId::parse(&format!("{name}-a")).unwrap(),
        conversation: conversation.clone(),
        principal: "me".to_owned(),
        request_id: "r".to_owned(),
        intent: Intent::Queue,
        payload: "x".to_owned(),
        submitted_by: owner.clone(),
    };
    store.create_and_admit(new, input).await.unwrap();
    let turn = TurnId::parse(&format!("{name}-t")).unwrap();
    let claim = ClaimRequest { conversation, owner, turn: turn.clone(), ttl_ms: 60_000, policy: ClaimPolicy::Any };
    let ClaimOutcome::Turn { fence, .. } = store.claim(claim).await.unwrap() else { panic!("not claimed") };
    let session = NewSession {
        id: SessionId::parse(name).unwrap(),
        parent: None,
        provider: "p".to_owned(),
        model: "m".to_owned(),
        cwd: None,
        prompt: PromptSnapshot::new(&b"prompt"[..]),
        tools: PromptSnapshot::new(&b"[]"[..]),
    };
    store.open_session(&fence, &turn, session, vec![row(&format!("{name}-0"))]).await.unwrap();
    (fence, turn)
}

type Appended = JoinHandle<Result<(), StoreError>>;

/// Starts an append and returns when it waits in the writer's queue, behind `before` others.
async fn queued(store: &SqliteStore, before: usize, of: &(Fence, TurnId), rows: Vec<NewMessage>) -> Appended {
    let task = {
        let (store, (fence, turn)) = (store.clone(), of.clone());
        tokio::spawn(async move { store.append(&fence, &turn, rows, None).await })
    };
    while WRITE_QUEUE_MAX - store.shared.queue.capacity() <= before {
        tokio::task::yield_now().await;
    }
    task
}

async fn ids(store: &SqliteStore, of: &(Fence, TurnId)) -> Vec<String> {
    let rows = store.messages(of.0.conversation(), View::Model, MessagePage::default()).await.unwrap();
    rows.into_iter().map(|row| row.id.as_str().to_owned()).collect()
}

#[test]
fn parameters_of_the_second_order_stand_behind_those_of_the_first() {
    assert_eq!(renumbered("A $1, $29 WHERE b = $3", 0), "A $1, $29 WHERE b = $3");
    assert_eq!(renumbered("A $1, $29 WHERE b = $3", 29), "A $30, $58 WHERE b = $32");
}

#[tokio::test]
async fn orders_and_lent_connections_share_one_commit_in_the_order_of_their_coming() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let held = [holding(&store, "a").await, holding(&store, "b").await];
    let first = store.write().await.unwrap();
    let before = store.commits();
    let mut tasks = Vec::new();
    for number in 1..=40 {
        // Every seventh one is no order: it brings two rows.
        let of = &held[number % 2];
        let name = of.0.conversation().as_str();
        let mut rows = vec![row(&format!("{name}-{number}"))];
        if number % 7 == 0 {
            rows.push(row(&format!("{name}-{number}-b")));
        }
        tasks.push(queued(&store, number - 1, of, rows).await);
    }
    first.commit().await.unwrap();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(store.commits() - before, 1);
    for (at, of) in held.iter().enumerate() {
        let name = of.0.conversation().as_str();
        let mut expected = vec![format!("{name}-0")];
        for number in (1..=40).filter(|number| number % 2 == at) {
            expected.push(format!("{name}-{number}"));
            if number % 7 == 0 {
                expected.push(format!("{name}-{number}-b"));
            }
        }
        assert_eq!(ids(&store, of).await, expected);
        let record = store.conversation(of.0.conversation()).await.unwrap();
        assert_eq!(record.messages, u64::try_from(expected.len()).unwrap());
    }
}

#[tokio::test]
async fn an_order_outlives_the_one_behind_it_that_undoes_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let held = holding(&store, "a").await;
    let first = store.write().await.unwrap();
    let tasks = [
        // A lent connection that fails leaves a savepoint with nothing in it.
        queued(&store, 0, &held, vec![row("a-1"), NewMessage { content: "other".to_owned(), ..row("a-0") }]).await,
        queued(&store, 1, &held, vec![row("a-2")]).await,
        queued(&store, 2, &held, vec![row("a-3"), NewMessage { content: "other".to_owned(), ..row("a-0") }]).await,
        queued(&store, 3, &held, vec![row("a-4")]).await,
    ];
    first.commit().await.unwrap();
    let mut ends = Vec::new();
    for task in tasks {
        ends.push(task.await.unwrap().is_ok());
    }
    assert_eq!(ends, [false, true, false, true]);
    assert_eq!(ids(&store, &held).await, ["a-0", "a-2", "a-4"]);
}

#[tokio::test]
async fn what_is_not_plain_is_answered_as_ever() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let held = holding(&store, "a").await;
    let (fence, turn) = &held;
    // The same row again, and another one under its id.
    store.append(fence, turn, vec![row("a-0")], None).await.unwrap();
    let other = NewMessage { content: "other".to_owned(), ..row("a-0") };
    assert!(matches!(store.append(fence, turn, vec![other], None).await, Err(StoreError::Conflict { .. })));
    let stranger = TurnId::parse("nobody").unwrap();
    assert!(store.append(fence, &stranger, vec![row("a-1")], None).await.is_err());
    assert_eq!(ids(&store, &held).await, ["a-0"]);
    assert_eq!(store.conversation(fence.conversation()).await.unwrap().messages, 1);
}

#[tokio::test]
async fn i01_a_commit_that_fails_is_told_to_orders_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let held = holding(&store, "a").await;
    let mut first = store.write().await.unwrap();
    sqlx::query("PRAGMA defer_foreign_keys = ON").execute(first.conn()).await.unwrap();
    sqlx::query(
        "INSERT INTO turns (id, conversation_id, admission_id, generation, attempt, status, api_calls, first_seq, \
         started_ms) VALUES ('t', 'nowhere', 'a', 1, 1, 'running', 0, 0, 0)",
    )
    .execute(first.conn())
    .await
    .unwrap();
    let order = queued(&store, 0, &held, vec![row("a-1")]).await;
    let failed = first.commit().await.unwrap_err();
    assert_eq!(order.await.unwrap().unwrap_err().code(), failed.code());
    assert_eq!(ids(&store, &held).await, ["a-0"]);
    store.append(&held.0, &held.1, vec![row("a-1")], None).await.unwrap();
    assert_eq!(ids(&store, &held).await, ["a-0", "a-1"]);
}

#[tokio::test]
async fn an_order_that_fails_goes_the_long_way_on_a_new_connection() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let held = holding(&store, "a").await;
    let mut first = store.write().await.unwrap();
    sqlx::query("PRAGMA max_page_count = 120").execute(first.conn()).await.unwrap();
    first.commit().await.unwrap();
    let huge = NewMessage { content: "x".repeat(1 << 21), ..row("a-1") };
    // The limit holds for the connection that failed; a full disk would refuse the long way too.
    store.append(&held.0, &held.1, vec![huge], None).await.unwrap();
    store.append(&held.0, &held.1, vec![row("a-2")], None).await.unwrap();
    assert_eq!(ids(&store, &held).await, ["a-0", "a-1", "a-2"]);
}

#[tokio::test]
async fn an_order_waits_for_another_process_as_long_as_its_kind_may() {
    let dir = tempfile::tempdir().unwrap();
    /// The real times by this.
    const SCALE: u64 = 60;
    let patience = Patience::default().scaled_down(SCALE);
    let store = SqliteStore::open(SqliteOptions { patience, ..options(&dir) }).await.unwrap();
    let held = holding(&store, "a").await;
    let connect = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path().join("hermes.db"));
    let mut other = connect.busy_timeout(Duration::from_millis(0)).connect().await.unwrap();

    let lock = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let started = Instant::now();
    let refused = store.append(&held.0, &held.1, vec![row("a-1")], None).await;
    assert!(matches!(refused, Err(StoreError::Busy { .. })), "{refused:?}");
    assert!(started.elapsed() >= Duration::from_millis(60_000 / SCALE), "it gave up too early");
    let task = {
        let (store, (fence, turn)) = (store.clone(), held.clone());
        tokio::spawn(async move { store.append(&fence, &turn, vec![row("a-2")], None).await })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!task.is_finished());
    lock.rollback().await.unwrap();
    task.await.unwrap().unwrap();
    // The one that gave up was not done later.
    assert_eq!(ids(&store, &held).await, ["a-0", "a-2"]);
}

#[tokio::test]
async fn an_order_whose_caller_goes_away_is_done_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let held = holding(&store, "a").await;
    for polls in 0..12 {
        let id = format!("a-{}", polls + 1);
        let before = ids(&store, &held).await.len();
        {
            let append = store.append(&held.0, &held.1, vec![row(&id)], None);
            let mut append = std::pin::pin!(append);
            for _ in 0..polls {
                if futures::poll!(append.as_mut()).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        // Whatever was begun has ended when this has.
        store.append(&held.0, &held.1, vec![row(&format!("b-{polls}"))], None).await.unwrap();
        let after = ids(&store, &held).await;
        assert_eq!(after.len(), before + 1 + usize::from(after.contains(&id)));
        let record = store.conversation(held.0.conversation()).await.unwrap();
        assert_eq!(record.messages, u64::try_from(after.len()).unwrap());
    }
}

#[tokio::test]
async fn closing_ends_orders_that_were_given_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let held = holding(&store, "a").await;
    let first = store.write().await.unwrap();
    let order = queued(&store, 0, &held, vec![row("a-1")]).await;
    let closing = {
        let store = store.clone();
        tokio::spawn(async move { store.close().await })
    };
    first.commit().await.unwrap();
    order.await.unwrap().unwrap();
    closing.await.unwrap();
    assert!(store.append(&held.0, &held.1, vec![row("a-2")], None).await.is_err());
    let again = open(&dir).await;
    assert_eq!(ids(&again, &held).await, ["a-0", "a-1"]);
}
