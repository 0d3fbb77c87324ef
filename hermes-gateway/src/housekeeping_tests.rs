//! Housekeeping over a real file, and over a store that fails.

use hermes_core::testing::{Fault, FaultStore};
use hermes_store::conformance::{input, new_conversation};
use hermes_store::limits::INBOUND_KEEP_MS;
use hermes_store::memory::MemoryStore;
use hermes_store::sqlite::{SqliteOptions, SqliteStore};
use hermes_store::{
    ApprovalId, ApprovalState, CallId, ClaimOutcome, ClaimPolicy, ClaimRequest, DelegationId, DelegationState,
    ExecutionId, Inbound, InboundKey, ManualClock, MessageId, MessageRef, NewApproval, NewCall, NewDelegation,
    NewMessage, NewWorker, ReplaySafety, Role, Round, TurnId, WorkerKind, WorkerSecret, WorkerState,
};

use super::*;
use crate::testing::{converse, owner, wait_until};

/// A time after which everything is overdue.
const LATER_MS: i64 = INBOUND_KEEP_MS as i64 + 1;

fn message() -> InboundKey {
    InboundKey { account: "t".to_owned(), chat: "1".to_owned(), message: MessageRef::Platform("m".to_owned()) }
}

fn worker() -> ExecutionId {
    ExecutionId::parse("w").unwrap()
}

fn question() -> ApprovalId {
    ApprovalId::parse("q").unwrap()
}

fn delegation() -> DelegationId {
    DelegationId::parse("d").unwrap()
}

/// What a process leaves that dies now: a worker, a delegation at work, an open question, a message that is dealt with.
async fn leave(store: &Arc<dyn Store>) {
    let (fence, turn) = converse(store, "c", 1).await;
    let new = NewWorker {
        id: worker(),
        kind: WorkerKind::Cron,
        task: "job".to_owned(),
        owner: owner("a").id,
        secret: WorkerSecret::random(),
    };
    store.register_worker(None, new).await.unwrap();
    let call = CallId::parse("k").unwrap();
    let new = NewCall {
        call: call.clone(),
        result: MessageId::parse("k-result").unwrap(),
        provider_id: "p".to_owned(),
        name: "terminal".to_owned(),
        arguments: "{}".to_owned(),
        replay: ReplaySafety::Once,
        preset: None,
    };
    let text = NewMessage::text(MessageId::parse("round").unwrap(), Role::Assistant, "");
    store.record_round(&fence, Round::plan(turn.clone(), text, vec![new], None)).await.unwrap();
    let asked = NewApproval {
        id: question(),
        call,
        subject: "rm -r build".to_owned(),
        choices: vec!["once".to_owned()],
        may_answer: vec!["ann".to_owned()],
        expires_in_ms: APPROVAL_TTL_MS,
    };
    store.ask_approval(&fence, &turn, asked).await.unwrap();
    let child = input("child", "1", "look");
    let claim = ClaimRequest {
        conversation: child.conversation.clone(),
        owner: owner("a").id,
        turn: TurnId::parse("child-turn").unwrap(),
        ttl_ms: 300_000,
        policy: ClaimPolicy::Any,
    };
    let new =
        NewDelegation { id: delegation(), child: new_conversation("child"), input: child, task: "look".to_owned() };
    store.dispatch(&fence, &turn, new).await.unwrap();
    assert!(matches!(store.claim(claim).await.unwrap(), ClaimOutcome::Turn { .. }));
    let inbound = Inbound { key: message(), content: "hi".to_owned(), replies: vec![], route: None };
    let dealt_with = input("in", "1", "hi");
    let admission = dealt_with.id.clone();
    store.receive(inbound, Some(new_conversation("in")), dealt_with).await.unwrap();
    store.cancel(&admission).await.unwrap();
}

/// How many of the four things that are overdue are not looked after yet.
async fn left(store: &Arc<dyn Store>) -> usize {
    let worker = store.worker(&worker()).await.unwrap().state == WorkerState::Unknown;
    let delegation = store.delegation(&delegation()).await.unwrap().state == DelegationState::Unknown;
    let approval = store.approval(&question()).await.unwrap().state == ApprovalState::Expired;
    let receipt = store.inbound(&message()).await.unwrap().is_none();
    [worker, delegation, approval, receipt].into_iter().filter(|is_done| !is_done).count()
}

#[tokio::test]
async fn what_a_dead_process_left_is_looked_after_in_a_real_file() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_000_000));
    let options = SqliteOptions::new(dir.path().join("hermes.db"), clock.clone());
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(options).await.unwrap());
    leave(&store).await;
    let ms = Duration::from_millis;
    let rhythm = Rhythm { sweep: ms(2), prune: ms(5), jitter: ms(2) };
    let running = tokio::spawn(run(store.clone(), rhythm));
    tokio::time::sleep(ms(20)).await;
    assert_eq!(left(&store).await, 4, "its owner lives, and nothing is overdue");
    clock.advance(LATER_MS);
    wait_until(async || left(&store).await == 0).await;
    running.abort();
    store.close().await;
}

#[tokio::test(start_paused = true)]
async fn sweeps_come_every_half_minute_and_prunings_seldom() {
    let store = MemoryStore::new(Arc::new(ManualClock::at(1_000_000)));
    let counted = FaultStore::new(Arc::new(store), Fault::FailsBefore, i64::MAX);
    let work = run(counted.clone(), Rhythm::default());
    let _ = tokio::time::timeout(Duration::from_millis(3_600_000 - 1), work).await;
    let prunings = counted.writes() - 120 * 2;
    // Every five or six minutes, rounded up to a sweep; three writes each.
    assert!((8 * 3..=12 * 3).contains(&prunings), "{prunings}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_any_part_ends_nothing() {
    for at in 0..5 {
        let clock = Arc::new(ManualClock::at(1_000_000));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
        leave(&store).await;
        clock.advance(LATER_MS);
        let rhythm = Rhythm { jitter: Duration::ZERO, ..Rhythm::default() };
        let failing = FaultStore::new(store.clone(), Fault::FailsOnce, at);
        let first = tokio::time::timeout(Duration::from_millis(1_000), run(failing.clone(), rhythm)).await;
        assert!(first.is_err() && failing.writes() == 5, "the others are done all the same");
        let failing = FaultStore::new(store.clone(), Fault::FailsOnce, at);
        let _ = tokio::time::timeout(Duration::from_millis(PRUNE_PAUSE_MS * 2), run(failing, rhythm)).await;
        assert_eq!(left(&store).await, 0, "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_long_is_tried_again_at_the_same_pace() {
    let store = MemoryStore::new(Arc::new(ManualClock::at(1_000_000)));
    let failing = FaultStore::new(Arc::new(store), Fault::FailsBefore, 0);
    let work = run(failing.clone(), Rhythm::default());
    assert!(tokio::time::timeout(Duration::from_millis(3_600_000 - 1), work).await.is_err());
    assert!(failing.writes() >= 120 * 2 + 8 * 3);
}

#[test]
fn a_pruning_that_stopped_at_its_limit_is_not_over() {
    let limit = PRUNE_MAX_ROWS as u64;
    assert!(pruned("x", Ok(0)) && pruned("x", Ok(limit - 1)) && !pruned("x", Ok(limit)));
    assert!(pruned("x", Err(StoreError::Full)), "it waits as long as after a good one");
}
