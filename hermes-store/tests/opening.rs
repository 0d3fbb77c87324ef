//! What opening a store costs does not grow with the store (I25). The only test of its binary: it counts what its process
//! reads.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

use std::path::Path;
use std::sync::Arc;

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::{
    ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, ManualClock, MessageId, NewMessage, NewSession,
    PromptSnapshot, Role, SessionId, Store, TurnId,
};

/// Bytes that two openings may differ by: a few pages of SQLite.
const SLACK_BYTES: u64 = 64 * 1024;

async fn open(path: &Path) -> SqliteStore {
    let options = SqliteOptions {
        synchronous: Synchronous::Normal,
        ..SqliteOptions::new(path, Arc::new(ManualClock::at(1_700_000_000_000)))
    };
    SqliteStore::open(options).await.unwrap()
}

/// Bytes that this process has read so far, by the kernel's count.
fn bytes_read() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

async fn bytes_to_open(path: &Path) -> u64 {
    let before = bytes_read();
    let store = open(path).await;
    let read = bytes_read() - before;
    store.close().await;
    read
}

async fn fill(store: &dyn Store, conversations: usize, rows: usize) {
    for number in 0..conversations {
        let name = format!("c{number}");
        let conversation = ConversationId::parse(&name).unwrap();
        let turn = TurnId::parse(&format!("t{number}")).unwrap();
        store.create_and_admit(new_conversation(&name), input(&name, "r1", "x")).await.unwrap();
        let claim = ClaimRequest {
            conversation,
            owner: owner("a"),
            turn: turn.clone(),
            ttl_ms: 300_000,
            policy: ClaimPolicy::Any,
        };
        let ClaimOutcome::Turn { fence, .. } = store.claim(claim).await.unwrap() else { panic!("no turn") };
        let session = NewSession {
            id: SessionId::parse(&name).unwrap(),
            parent: None,
            provider: "p".to_owned(),
            model: "m".to_owned(),
            cwd: None,
            prompt: PromptSnapshot::new(vec![b'p'; 10_000]),
            tools: PromptSnapshot::new(&b"[]"[..]),
        };
        let row = |at: usize| {
            NewMessage::text(MessageId::parse(&format!("m{number}-{at}")).unwrap(), Role::User, "x".repeat(300))
        };
        store.open_session(&fence, &turn, session, (0..rows).map(row).collect()).await.unwrap();
    }
}

#[tokio::test]
async fn i25_opening_a_large_store_reads_no_more_than_opening_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let (small, large) = (dir.path().join("small.db"), dir.path().join("large.db"));
    open(&small).await.close().await;
    let store = open(&large).await;
    fill(&store, 200, 100).await;
    store.close().await;
    assert!(std::fs::metadata(&large).unwrap().len() > 5_000_000, "the store is not large");
    // The first opening of a process reads more: whatever it needs once.
    bytes_to_open(&small).await;
    let (of_small, of_large) = (bytes_to_open(&small).await, bytes_to_open(&large).await);
    assert!(of_large <= of_small + SLACK_BYTES, "{of_large} bytes to open 20,000 rows, {of_small} for none");
}
