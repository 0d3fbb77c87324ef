//! Maintenance of a SQLite store: a backup comes back, and no counter with it goes back (I08).

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

use std::path::Path;
use std::sync::Arc;

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous, restore};
use hermes_store::{
    AdmissionStore as _, ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, LeaseStore as _,
    MaintenanceStore as _, ManualClock, StoreError, Token, TurnId,
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
