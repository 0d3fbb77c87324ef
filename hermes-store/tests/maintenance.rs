//! Maintenance of a SQLite store: a backup comes back, and no counter with it goes back (I08).

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

use std::path::Path;
use std::sync::Arc;

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous, restore};
use hermes_store::{
    AdmissionStatus, AdmissionStore as _, ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, ExecutionId,
    LeaseStore as _, MaintenanceStore as _, ManualClock, NewWorker, RegisterOutcome, SessionStore as _, StoreError,
    Token, TurnId, WorkStore as _, WorkerKind, WorkerSecret, WorkerState,
};

const NOW_MS: i64 = 1_700_000_000_000;

async fn open(path: &Path) -> SqliteStore {
    let options = SqliteOptions {
        synchronous: Synchronous::Normal,
        ..SqliteOptions::new(path, Arc::new(ManualClock::at(NOW_MS)))
    };
    SqliteStore::open(options).await.unwrap()
}

/// The token of a first lease on a conversation.
async fn token(store: &SqliteStore, name: &str) -> Token {
    store.create_and_admit(new_conversation(name), input(name, &format!("r-{name}"), "x")).await.unwrap();
    let claim = ClaimRequest {
        conversation: ConversationId::parse(name).unwrap(),
        owner: owner("a"),
        turn: TurnId::parse(&format!("t-{name}")).unwrap(),
        ttl_ms: 300_000,
        policy: ClaimPolicy::Any,
    };
    let ClaimOutcome::Turn { fence, .. } = store.claim(claim).await.unwrap() else { panic!("no turn") };
    fence.token()
}

#[tokio::test]
async fn i08_what_only_a_lost_store_knew_begins_above_everything_that_it_can_have_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (path, backup) = (dir.path().join("hermes.db"), dir.path().join("backup.db"));
    let store = open(&path).await;
    store.backup(&backup).await.unwrap();
    // Only the lost file knows this one.
    let lost = token(&store, "c").await;
    let refused = restore(&backup, &path, NOW_MS).await;
    assert!(matches!(refused, Err(StoreError::Invalid { .. })), "restored under an open store: {refused:?}");
    store.close().await;
    std::fs::write(&path, vec![0x55; 8_192]).unwrap();
    let report = restore(&backup, &path, NOW_MS).await.unwrap();
    assert!(report.replaced.is_some() && !report.read_counters, "{report:?}");
    let store = open(&path).await;
    let again = token(&store, "c").await;
    assert!(again > Token(lost.0 + 1_000_000), "{again:?} after {lost:?}");
    store.close().await;
}

#[tokio::test]
async fn i14_what_was_at_work_at_the_backup_is_unknown_and_nothing_runs_again_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (path, backup) = (dir.path().join("hermes.db"), dir.path().join("backup.db"));
    let store = open(&path).await;
    token(&store, "c").await;
    store.admit(input("c", "waits", "y")).await.unwrap();
    let worker = ExecutionId::parse("w").unwrap();
    let new = NewWorker {
        id: worker.clone(),
        kind: WorkerKind::Compute,
        task: "compute:w".to_owned(),
        owner: owner("a"),
        secret: WorkerSecret::random(),
    };
    store.register_worker(None, new.clone()).await.unwrap();
    store.backup(&backup).await.unwrap();
    store.close().await;
    let report = restore(&backup, &path, NOW_MS).await.unwrap();
    assert!(report.read_counters, "{report:?}");
    assert_eq!((report.cancelled, report.unknown, report.workers), (1, 1, 1), "{report:?}");
    let store = open(&path).await;
    let status = async |request: &str| store.admission(&input("c", request, "").id).await.unwrap().receipt.status;
    assert_eq!(status("r-c").await, AdmissionStatus::Unknown);
    assert_eq!(status("waits").await, AdmissionStatus::Terminal);
    assert_eq!(store.worker(&worker).await.unwrap().state, WorkerState::Unknown);
    // The task stays with the one of which nobody knows what became of it.
    let second = NewWorker { id: ExecutionId::parse("w2").unwrap(), ..new };
    assert!(matches!(store.register_worker(None, second).await.unwrap(), RegisterOutcome::Busy(_)));
    store.close().await;
}

#[tokio::test]
async fn i08_counters_that_the_backup_did_not_have_yet_begin_above_those_of_the_lost_store() {
    let dir = tempfile::tempdir().unwrap();
    let (path, backup) = (dir.path().join("hermes.db"), dir.path().join("backup.db"));
    let store = open(&path).await;
    store.backup(&backup).await.unwrap();
    let lost = store.begin_epoch(&owner("a")).await.unwrap();
    let lost_route = store.next_generation("telegram", "chat").await.unwrap();
    store.close().await;
    std::fs::write(&path, vec![0x55; 8_192]).unwrap();
    restore(&backup, &path, NOW_MS).await.unwrap();
    let store = open(&path).await;
    assert!(store.begin_epoch(&owner("b")).await.unwrap() > lost);
    assert!(store.next_generation("telegram", "chat").await.unwrap().0 > lost_route.0 + 1_000_000);
    store.close().await;
}
