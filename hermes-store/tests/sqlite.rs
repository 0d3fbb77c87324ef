//! What only a file can suffer: other processes, a kill, a replacement, a version from the future.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::transfer::jsonl::JsonlStore;
use hermes_store::transfer::python::PythonStore;
use hermes_store::{
    AdmissionOutcome, AdmissionStatus, AdmissionStore, ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId,
    HostClock, IdSource, LeaseStore, MessagePage, NewMessage, NewSession, OwnerInfo, ProcProbe, PromptSnapshot, Role,
    SessionStore, StoreError, TranscriptStore, TurnEnd, UuidIds, View,
};

/// Tells the test binary that it is a child, and what to do.
const ROLE: &str = "HERMES_STORE_TEST_ROLE";
const FILE: &str = "HERMES_STORE_TEST_FILE";
const NAME: &str = "HERMES_STORE_TEST_NAME";
/// Inputs that each child of the crowd submits, each with its own request id.
const CROWD_INPUTS: usize = 12;
const CROWD: usize = 3;

fn options(path: &Path) -> SqliteOptions {
    SqliteOptions {
        synchronous: Synchronous::Normal,
        probe: Arc::new(ProcProbe::new()),
        ..SqliteOptions::new(path, Arc::new(HostClock::new()))
    }
}

async fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(options(path)).await.unwrap()
}

fn conversation() -> ConversationId {
    ConversationId::parse("c").unwrap()
}

fn claim(who: &str, policy: ClaimPolicy) -> ClaimRequest {
    let turn = (&UuidIds as &dyn IdSource).turn();
    ClaimRequest { conversation: conversation(), owner: owner(who), turn, ttl_ms: 300_000, policy }
}

fn completed() -> TurnEnd {
    TurnEnd { reason: "completed".to_owned(), detail: None, outcome: AdmissionOutcome::Completed, api_calls: 0 }
}

fn session() -> NewSession {
    NewSession {
        id: conversation().first_session(),
        parent: None,
        provider: "p".to_owned(),
        model: "m".to_owned(),
        cwd: None,
        prompt: PromptSnapshot::new(&b"prompt"[..]),
        tools: PromptSnapshot::new(&b"[]"[..]),
    }
}

fn spawn_child(role: &str, path: &Path, name: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(FILE, path)
        .env(NAME, name)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Not a test: what the children of the tests below do. Without a role it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = std::env::var_os(FILE).unwrap();
    let name = std::env::var(NAME).unwrap();
    match role.as_str() {
        "crowd" => crowd_child(Path::new(&path), &name).await,
        "holder" => holder_child(Path::new(&path), &name).await,
        "opener" => drop(open(Path::new(&path)).await),
        "closer" => open(Path::new(&path)).await.close().await,
        other => panic!("no role {other}"),
    }
}

/// Submits its own inputs and, twice, one that all children share; then works until nothing is left.
async fn crowd_child(path: &Path, name: &str) {
    let store = open(path).await;
    store.heartbeat(&OwnerInfo::of_this_process(owner(name))).await.unwrap();
    for _ in 0..2 {
        store.create_and_admit(new_conversation("c"), input("c", "shared", "shared")).await.unwrap();
    }
    for number in 0..CROWD_INPUTS {
        store.admit(input("c", &format!("{name}-{number}"), "x")).await.unwrap();
    }
    loop {
        match store.claim(claim(name, ClaimPolicy::Any)).await.unwrap() {
            ClaimOutcome::Turn { fence, admission, .. } => {
                let turn = admission.receipt.turn.clone().unwrap();
                let text = format!("{} by {name}", admission.request_id);
                let row = NewMessage::text((&UuidIds as &dyn IdSource).message(), Role::User, text);
                if store.conversation(&conversation()).await.unwrap().tip.is_none() {
                    store.open_session(&fence, &turn, session(), vec![row]).await.unwrap();
                } else {
                    store.append(&fence, &turn, vec![row], None).await.unwrap();
                }
                store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
            }
            ClaimOutcome::Held { .. } => {
                let seen = store.wait_for_change(&conversation(), -1, 0).await.unwrap();
                store.wait_for_change(&conversation(), seen, 50).await.unwrap();
            }
            ClaimOutcome::Empty => break,
            other => panic!("{other:?}"),
        }
    }
    store.close().await;
}

/// Starts a turn, says so with a row, and sleeps until it is killed.
async fn holder_child(path: &Path, name: &str) {
    let store = open(path).await;
    store.heartbeat(&OwnerInfo::of_this_process(owner(name))).await.unwrap();
    let ClaimOutcome::Turn { fence, admission, .. } = store.claim(claim(name, ClaimPolicy::Any)).await.unwrap() else {
        panic!("no turn")
    };
    let row = NewMessage::text((&UuidIds as &dyn IdSource).message(), Role::User, "at work");
    let turn = admission.receipt.turn.unwrap();
    store.open_session(&fence, &turn, session(), vec![row]).await.unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i03_s7_processes_on_one_file_start_each_input_once_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hermes.db");
    let children: Vec<_> = (0..CROWD).map(|number| spawn_child("crowd", &path, &format!("w{number}"))).collect();
    for mut child in children {
        let status = tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap();
        assert!(status.success());
    }
    let store = open(&path).await;
    // The last child may have left before the inputs of another were accepted, but never before its own were done.
    assert_eq!(store.queue(&conversation()).await.unwrap(), []);
    let rows = store.messages(&conversation(), View::Display, MessagePage::default()).await.unwrap();
    assert_eq!(rows.len(), CROWD * CROWD_INPUTS + 1);
    let mut requests: Vec<_> = rows.iter().map(|row| row.content.split(' ').next().unwrap().to_owned()).collect();
    requests.sort();
    requests.dedup();
    assert_eq!(requests.len(), CROWD * CROWD_INPUTS + 1, "each input ran once");
    let mut generation = 0;
    let mut place = 0;
    for row in &rows {
        let turn = store.turn(&row.turn).await.unwrap();
        assert_eq!(turn.generation.0, generation + 1);
        generation = turn.generation.0;
        let seq = store.admission(&turn.admission).await.unwrap().receipt.seq;
        assert!(seq > place, "in the order of acceptance");
        place = seq;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i10_a_killed_process_is_replaced_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hermes.db");
    let store = open(&path).await;
    store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
    let mut child = spawn_child("holder", &path, "holder");
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.messages(&conversation(), View::Model, MessagePage::default()).await.unwrap().is_empty() {
        assert!(Instant::now() < deadline, "the child never began");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let held = store.claim(claim("me", ClaimPolicy::Any)).await.unwrap();
    assert!(matches!(held, ClaimOutcome::Held { .. }), "{held:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    let ClaimOutcome::Recover { open, .. } = store.claim(claim("me", ClaimPolicy::Any)).await.unwrap() else {
        panic!("not taken over")
    };
    assert_eq!(open.last_row.unwrap().content, "at work");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d1_a_replaced_file_stops_every_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hermes.db");
    let store = open(&path).await;
    store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
    let backup = dir.path().join("backup.db");
    open(&backup).await.close().await;
    std::fs::rename(&backup, &path).unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = store.admit(input("c", "r2", "x")).await;
    assert!(matches!(refused, Err(StoreError::Replaced)), "{refused:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    std::fs::remove_file(&path).unwrap();
    let refused = store.claim(claim("a", ClaimPolicy::Any)).await;
    assert!(matches!(refused, Err(StoreError::Replaced)), "{refused:?}");
}

#[tokio::test]
async fn d1_a_store_that_is_taken_for_an_export_keeps_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hermes.db");
    let store = open(&path).await;
    store.create_and_admit(new_conversation("c"), input("c", "1", "x")).await.unwrap();
    let link = dir.path().join("state.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for path in [&path, &link] {
        let python = PythonStore::open(path, dir.path()).await.map(drop);
        assert!(matches!(python, Err(StoreError::Invalid { .. })), "{python:?}");
        let export = JsonlStore::open(path).await.map(drop);
        assert!(matches!(export, Err(StoreError::Invalid { .. })), "{export:?}");
    }
    // Had one of them closed the file, the locks of this process would be gone, and a second one that ends takes the
    // log for its own.
    assert!(spawn_child("closer", &path, "other").wait().unwrap().success());
    store.admit(input("c", "2", "x")).await.unwrap();
    store.close().await;
    // Nobody has it open any more: it is only no export.
    assert!(PythonStore::open(&path, dir.path()).await.is_err());
    assert!(JsonlStore::open(&path).await.is_err());
}

#[tokio::test]
async fn a_pipe_is_no_export_and_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let export = JsonlStore::open(&pipe).await.map(drop);
    assert!(matches!(export, Err(StoreError::Invalid { .. })), "{export:?}");
    let python = PythonStore::open(&pipe, dir.path()).await.map(drop);
    assert!(matches!(python, Err(StoreError::Invalid { .. })), "{python:?}");
}

#[tokio::test]
async fn what_was_committed_survives_a_drop_without_close() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/hermes.db");
    for number in 0..5 {
        let store = open(&path).await;
        store.create_and_admit(new_conversation("c"), input("c", &format!("r{number}"), "x")).await.unwrap();
        assert_eq!(store.queue(&conversation()).await.unwrap().len(), number + 1);
    }
    let record = open(&path).await.queue(&conversation()).await.unwrap().remove(0);
    assert_eq!(record.receipt.status, AdmissionStatus::Queued);
}

#[tokio::test]
async fn files_that_are_none_of_ours_are_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hermes.db");
    let missing = SqliteOptions { create: false, ..options(&path) };
    assert!(matches!(SqliteStore::open(missing).await, Err(StoreError::NotFound { .. })));
    std::fs::write(
        &path,
        b"this is a text and no database, and longer than a header of one hundred bytes, so that it is \
        looked at as what it is",
    )
    .unwrap();
    let refused = SqliteStore::open(options(&path)).await;
    assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "{refused:?}");

    // Another program's database.
    let foreign = dir.path().join("state.db");
    run_sql(&foreign, "CREATE TABLE sessions (id TEXT)").await;
    let before = std::fs::read(&foreign).unwrap();
    let refused = SqliteStore::open(options(&foreign)).await;
    assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    assert_eq!(std::fs::read(&foreign).unwrap(), before);

    // One from the future.
    let newer = dir.path().join("newer.db");
    open(&newer).await.close().await;
    run_sql(&newer, "PRAGMA user_version = 999").await;
    let refused = SqliteStore::open(options(&newer)).await;
    assert!(matches!(refused, Err(StoreError::TooNew { found: 999, .. })), "{refused:?}");
}

async fn run_sql(path: &Path, sql: &'static str) {
    use sqlx::{ConnectOptions as _, Connection as _};
    let connect = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut conn = connect.connect().await.unwrap();
    sqlx::query(sql).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_prompt_is_never_handed_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hermes.db");
    let store = open(&path).await;
    store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
    let ClaimOutcome::Turn { fence, admission, .. } = store.claim(claim("a", ClaimPolicy::Any)).await.unwrap() else {
        panic!("no turn")
    };
    store.open_session(&fence, &admission.receipt.turn.unwrap(), session(), vec![]).await.unwrap();
    let hash = PromptSnapshot::new(&b"prompt"[..]).hash().clone();
    assert!(store.prompt(&hash).await.is_ok());
    run_sql(&path, "UPDATE prompts SET bytes = x'00' WHERE bytes = CAST('prompt' AS BLOB)").await;
    let refused = store.prompt(&hash).await;
    assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_at_once_make_one_schema() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hermes.db");
    let children: Vec<_> = (0..3).map(|number| spawn_child("opener", &path, &number.to_string())).collect();
    let handles: Vec<_> = (0..4)
        .map(|_| {
            let path = path.clone();
            tokio::spawn(async move { open(&path).await })
        })
        .collect();
    for handle in handles {
        let store = handle.await.unwrap();
        assert_eq!(store.conversations(Default::default()).await.unwrap(), []);
    }
    for mut child in children {
        assert!(tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s47_a_writer_waits_for_another_process_lock() {
    use sqlx::{ConnectOptions as _, Connection as _};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hermes.db");
    let store = open(&path).await;
    let mut other = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    let lock = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let writer = {
        let store = store.clone();
        tokio::spawn(async move { store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await })
    };
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!writer.is_finished(), "it waits");
    // Reading goes on meanwhile.
    assert_eq!(store.conversations(Default::default()).await.unwrap(), []);
    lock.rollback().await.unwrap();
    writer.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_moved_into_the_file_while_writes_go_on() {
    const WRITES: usize = 1_500;
    const PAYLOAD_BYTES: usize = 40_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hermes.db");
    let store = open(&path).await;
    for number in 0..WRITES {
        let name = format!("c{}", number % 5);
        let accepted = input(&name, &format!("r{number}"), &"x".repeat(PAYLOAD_BYTES));
        store.create_and_admit(new_conversation(&name), accepted).await.unwrap();
    }
    let log = std::fs::metadata(dir.path().join("hermes.db-wal")).unwrap().len();
    let written = (WRITES * PAYLOAD_BYTES) as u64;
    // A log that nobody moves has nearly twice that, with its whole pages.
    assert!(log < written, "the log has {log} bytes after {written} were written");
    store.close().await;
}
