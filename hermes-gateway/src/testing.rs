//! What the tests of this crate share.

use std::sync::Arc;
use std::time::Duration;

use hermes_store::conformance::{input, new_conversation};
use hermes_store::{
    ClaimOutcome, ClaimPolicy, ClaimRequest, Fence, IdSource, NewMessage, NewSession, OwnerId, OwnerInfo,
    PromptSnapshot, Role, SessionId, Store, TurnId, UuidIds,
};

/// Longest wait for something that must come; far above what any test needs.
const COMES_MAX_S: u64 = 60;

/// Waits until something is so.
pub(crate) async fn wait_until(mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(COMES_MAX_S), wait).await.expect("it does not come");
}

/// An owner that no probe knows.
pub(crate) fn owner(name: &str) -> OwnerInfo {
    OwnerInfo {
        id: OwnerId::parse(name).unwrap(),
        host: "elsewhere".to_owned(),
        boot_id: "boot".to_owned(),
        pid: 1,
        pid_start: 1,
    }
}

/// A conversation with a running turn of owner `a`, and so many rows that say "needle".
pub(crate) async fn converse(store: &Arc<dyn Store>, name: &str, rows: usize) -> (Fence, TurnId) {
    let ids: &dyn IdSource = &UuidIds;
    let owner = owner("a");
    store.heartbeat(&owner).await.unwrap();
    let input = input(name, "1", "hello");
    let conversation = input.conversation.clone();
    store.create_and_admit(new_conversation(name), input).await.unwrap();
    let turn = ids.turn();
    let claim =
        ClaimRequest { conversation, owner: owner.id, turn: turn.clone(), ttl_ms: 300_000, policy: ClaimPolicy::Any };
    let ClaimOutcome::Turn { fence, .. } = store.claim(claim).await.unwrap() else { panic!("no turn") };
    let session = NewSession {
        // The first session of a conversation has its id.
        id: SessionId::parse(name).unwrap(),
        parent: None,
        provider: "practice".to_owned(),
        model: "practice-1".to_owned(),
        cwd: None,
        prompt: PromptSnapshot::new(&b"prompt"[..]),
        tools: PromptSnapshot::new(&b"[]"[..]),
    };
    let rows = (0..rows).map(|n| NewMessage::text(ids.message(), Role::User, format!("needle {n}"))).collect();
    store.open_session(&fence, &turn, session, rows).await.unwrap();
    (fence, turn)
}
