//! Maintenance of a SQLite store: a backup comes back, and no counter with it goes back (I08).

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous, restore};
use hermes_store::{
    AdmissionOutcome, AdmissionStatus, AdmissionStore as _, AmbiguousPolicy, ApprovalId, ApprovalState,
    ApprovalStore as _, CallId, ClaimOutcome, ClaimPolicy, ClaimRequest, CompressionLock, ConversationId, DelegationId,
    DelegationState, DelegationStore as _, DeliveryClaim, DeliveryFilter, DeliveryRequest, DeliveryState,
    DeliveryStore as _, ExecutionId, Fence, HistoryStore as _, Inbound, InboundKey, InboundStore as _, LeaseStore as _,
    LockOutcome, MaintenanceStore as _, ManualClock, MessageId, MessageRef, NewApproval, NewCall, NewDelegation,
    NewMessage, NewSession, NewWorker, PromptSnapshot, ReceiveOutcome, RegisterOutcome, ReplaySafety, Reply, Role,
    Round, SessionId, SessionStore as _, StoreError, TakeLock, Target, Token, TranscriptStore as _, TurnEnd, TurnId,
    WorkStore as _, WorkerKind, WorkerSecret, WorkerState,
};

const NOW_MS: i64 = 1_700_000_000_000;

async fn open(path: &Path) -> SqliteStore {
    let options = SqliteOptions {
        synchronous: Synchronous::Normal,
        ..SqliteOptions::new(path, Arc::new(ManualClock::at(NOW_MS)))
    };
    SqliteStore::open(options).await.unwrap()
}

fn conv(name: &str) -> ConversationId {
    ConversationId::parse(name).unwrap()
}

/// Begins turn `t-NAME` on the next input of a conversation.
async fn start(store: &SqliteStore, name: &str) -> (Fence, TurnId) {
    let turn = TurnId::parse(&format!("t-{name}")).unwrap();
    let claim = ClaimRequest {
        conversation: conv(name),
        owner: owner("a"),
        turn: turn.clone(),
        ttl_ms: 300_000,
        policy: ClaimPolicy::Any,
    };
    let ClaimOutcome::Turn { fence, .. } = store.claim(claim).await.unwrap() else { panic!("no turn") };
    (fence, turn)
}

/// A first turn of a new conversation, in the session of its name.
async fn begin(store: &SqliteStore, name: &str) -> (Fence, TurnId) {
    store.create_and_admit(new_conversation(name), input(name, &format!("r-{name}"), "x")).await.unwrap();
    let (fence, turn) = start(store, name).await;
    open_session(store, name, &fence, &turn).await;
    (fence, turn)
}

fn row(id: &str, role: Role, text: &str) -> NewMessage {
    NewMessage::text(MessageId::parse(id).unwrap(), role, text)
}

async fn open_session(store: &SqliteStore, name: &str, fence: &Fence, turn: &TurnId) {
    let session = NewSession {
        id: SessionId::parse(name).unwrap(),
        parent: None,
        provider: "practice".to_owned(),
        model: "practice-1".to_owned(),
        cwd: None,
        prompt: PromptSnapshot::new(&b"prompt"[..]),
        tools: PromptSnapshot::new(&b"[]"[..]),
    };
    let rows = vec![
        row(&format!("m-{name}-0"), Role::User, "question"),
        row(&format!("m-{name}-1"), Role::Assistant, "answer"),
    ];
    store.open_session(fence, turn, session, rows).await.unwrap();
}

async fn settle(store: &SqliteStore, fence: &Fence, turn: &TurnId) {
    let end =
        TurnEnd { reason: "completed".to_owned(), detail: None, outcome: AdmissionOutcome::Completed, api_calls: 1 };
    store.settle_turn(fence, turn, end, true).await.unwrap();
}

fn key(id: &str) -> InboundKey {
    InboundKey { account: "telegram:1".to_owned(), chat: "7".to_owned(), message: MessageRef::Platform(id.to_owned()) }
}

/// Message `id` of chat 7, for conversation `name`; its answer goes back to the chat.
async fn receive(store: &SqliteStore, name: &str, id: &str) -> ReceiveOutcome {
    let target = Target { account: "telegram:1".to_owned(), chat: "7".to_owned(), thread: String::new() };
    let inbound = Inbound {
        key: key(id),
        content: format!("text of {id}"),
        replies: vec![Reply { target, reply_to: None }],
        route: None,
    };
    store.receive(inbound, Some(new_conversation(name)), input(name, id, "x")).await.unwrap()
}

/// The token of a first lease on a conversation.
async fn token(store: &SqliteStore, name: &str) -> Token {
    store.create_and_admit(new_conversation(name), input(name, &format!("r-{name}"), "x")).await.unwrap();
    start(store, name).await.0.token()
}

/// A directory with a new store, where its file is, and where its backup is to be.
async fn world() -> (tempfile::TempDir, PathBuf, PathBuf, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let (path, backup) = (dir.path().join("hermes.db"), dir.path().join("backup.db"));
    let store = open(&path).await;
    (dir, path, backup, store)
}

fn damage(path: &Path) {
    std::fs::write(path, vec![0x55; 8_192]).unwrap();
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

#[tokio::test]
async fn i14_nothing_that_was_open_at_the_backup_is_sent_asked_or_carried_by_itself() {
    let (_dir, path, backup, store) = world().await;
    // An answer that is to be sent.
    receive(&store, "sends", "1").await;
    let (fence, turn) = start(&store, "sends").await;
    open_session(&store, "sends", &fence, &turn).await;
    settle(&store, &fence, &turn).await;
    // A question, and two tasks that were given away, of which one has begun.
    let (fence, turn) = begin(&store, "asks").await;
    let call = NewCall {
        call: CallId::parse("k").unwrap(),
        result: MessageId::parse("k-result").unwrap(),
        provider_id: "p".to_owned(),
        name: "terminal".to_owned(),
        arguments: "{}".to_owned(),
        replay: ReplaySafety::Once,
        preset: None,
    };
    let round = Round::plan(turn.clone(), row("round", Role::Assistant, ""), vec![call], None);
    store.record_round(&fence, round).await.unwrap();
    let question = NewApproval {
        id: ApprovalId::parse("q").unwrap(),
        call: CallId::parse("k").unwrap(),
        subject: "rm -r build".to_owned(),
        choices: vec!["once".to_owned()],
        may_answer: vec!["ann".to_owned()],
        expires_in_ms: 600_000,
    };
    store.ask_approval(&fence, &turn, question).await.unwrap();
    for child in ["runs", "waits"] {
        let task = NewDelegation {
            id: DelegationId::parse(child).unwrap(),
            child: new_conversation(child),
            input: input(child, "task", "do it"),
            task: "do it".to_owned(),
        };
        store.dispatch(&fence, &turn, task).await.unwrap();
    }
    start(&store, "runs").await;
    store.backup(&backup).await.unwrap();
    store.close().await;

    let report = restore(&backup, &path, NOW_MS).await.unwrap();
    assert_eq!((report.deliveries, report.approvals, report.delegations), (1, 1, 2), "{report:?}");
    let store = open(&path).await;
    let sent = store.deliveries(DeliveryFilter::default()).await.unwrap();
    assert_eq!(sent.iter().map(|one| one.state).collect::<Vec<_>>(), [DeliveryState::Ambiguous]);
    let request = DeliveryRequest {
        account: "telegram:1".to_owned(),
        owner: owner("b"),
        lease_ms: 60_000,
        ambiguous: AmbiguousPolicy::Leave,
    };
    let claimed = store.claim_delivery(request).await.unwrap();
    assert!(matches!(claimed, DeliveryClaim::Idle { .. }), "{claimed:?}");
    assert_eq!(store.open_approvals(None).await.unwrap(), []);
    let asked = store.approval(&ApprovalId::parse("q").unwrap()).await.unwrap();
    assert_eq!(asked.state, ApprovalState::Withdrawn);
    for (child, state) in [("runs", DelegationState::Unknown), ("waits", DelegationState::Cancelled)] {
        let given = store.delegation(&DelegationId::parse(child).unwrap()).await.unwrap();
        assert_eq!(given.state, state, "{child}");
    }
    assert_eq!(store.due_results(10).await.unwrap(), []);
    let waited = store.admission(&input("waits", "task", "").id).await.unwrap().receipt;
    assert_eq!((waited.status, waited.outcome), (AdmissionStatus::Terminal, Some(AdmissionOutcome::Cancelled)));
    let checked = store.check(hermes_store::CheckDepth::Full).await.unwrap();
    assert!(checked.is_sound(), "{checked:?}");
    store.close().await;
}

/// Restores a backup twice, at these times, over files that cannot be read; returns what each store handed out.
async fn handed_out_after_each(times_ms: &[i64]) -> Vec<[i64; 4]> {
    let (_dir, path, backup, store) = world().await;
    token(&store, "old").await;
    store.backup(&backup).await.unwrap();
    store.close().await;
    let mut seen = Vec::new();
    for now_ms in times_ms {
        damage(&path);
        restore(&backup, &path, *now_ms).await.unwrap();
        let store = open(&path).await;
        let lease = ClaimRequest {
            conversation: conv("old"),
            owner: owner("a"),
            turn: TurnId::parse("again").unwrap(),
            ttl_ms: 300_000,
            policy: ClaimPolicy::LeaseOnly,
        };
        let old = match store.claim(lease).await.unwrap() {
            ClaimOutcome::Leased { fence } | ClaimOutcome::Recover { fence, .. } => fence.token(),
            other => panic!("no lease: {other:?}"),
        };
        let new = token(&store, "new").await;
        let epoch = store.begin_epoch(&owner("a")).await.unwrap();
        let route = store.next_generation("telegram", "chat").await.unwrap();
        seen.push([old.0, new.0, epoch.0, route.0]);
        store.close().await;
    }
    seen
}

#[tokio::test]
async fn i08_one_backup_restored_again_and_again_hands_out_nothing_twice() {
    // The second row: the clock of the host is set back by years, but not that of the files.
    for times_ms in [[2_000_000_000_000, 2_000_000_000_001, 2_000_000_100_000], [NOW_MS, NOW_MS - 1, NOW_MS - 2]] {
        let seen = handed_out_after_each(&times_ms).await;
        for (before, after) in seen.iter().zip(&seen[1..]) {
            assert!(before.iter().zip(after).all(|(before, after)| before < after), "{times_ms:?}: {seen:?}");
        }
        assert!(seen.iter().flatten().all(|count| *count < 1 << 53), "{seen:?}");
    }
}

#[tokio::test]
async fn i05_a_message_that_only_the_lost_store_received_runs_again_only_if_it_never_began() {
    let (_dir, path, backup, store) = world().await;
    store.backup(&backup).await.unwrap();
    receive(&store, "done", "1").await;
    let (fence, turn) = start(&store, "done").await;
    open_session(&store, "done", &fence, &turn).await;
    settle(&store, &fence, &turn).await;
    receive(&store, "gone", "2").await;
    let (fence, turn) = start(&store, "gone").await;
    settle(&store, &fence, &turn).await;
    let lease = ClaimRequest {
        conversation: conv("gone"),
        owner: owner("a"),
        turn: TurnId::parse("delete").unwrap(),
        ttl_ms: 300_000,
        policy: ClaimPolicy::LeaseOnly,
    };
    let ClaimOutcome::Leased { fence } = store.claim(lease).await.unwrap() else { panic!("no lease") };
    store.delete_conversation(&fence).await.unwrap();
    receive(&store, "runs", "3").await;
    start(&store, "runs").await;
    receive(&store, "back", "4").await;
    store.cancel(&input("back", "4", "").id).await.unwrap();
    receive(&store, "waits", "5").await;
    store.close().await;

    let report = restore(&backup, &path, NOW_MS).await.unwrap();
    assert!(report.read_counters, "{report:?}");
    assert_eq!(report.receipts, 4, "{report:?}");
    let store = open(&path).await;
    let rows = [
        ("done", "1", AdmissionOutcome::Completed),
        ("gone", "2", AdmissionOutcome::Completed),
        ("runs", "3", AdmissionOutcome::Interrupted),
        ("back", "4", AdmissionOutcome::Cancelled),
    ];
    for (name, id, outcome) in rows {
        // Also for another conversation.
        let ReceiveOutcome::Replayed(receipt) = receive(&store, "other", id).await else { panic!("{name} runs again") };
        let admission = receipt.admission.unwrap();
        assert_eq!((admission.status, admission.outcome), (AdmissionStatus::Terminal, Some(outcome)), "{name}");
        assert_eq!(receipt.conversation, conv(name));
    }
    let again = receive(&store, "waits", "5").await;
    assert!(matches!(again, ReceiveOutcome::Accepted(_)), "an input that never began is lost: {again:?}");
    assert!(store.check(hermes_store::CheckDepth::Full).await.unwrap().is_sound());
    store.close().await;
}

/// Takes the compression lock of session `c`.
async fn lock(store: &SqliteStore, fence: &Fence, holder: &str) -> CompressionLock {
    let session = SessionId::parse("c").unwrap();
    let take = TakeLock { session, holder: holder.to_owned(), ttl_ms: 60_000, force: false };
    match store.take_compression_lock(fence, take).await.unwrap() {
        LockOutcome::Taken(lock) => lock,
        other => panic!("not taken: {other:?}"),
    }
}

#[tokio::test]
async fn i08_a_lock_on_a_session_that_only_the_lost_store_knew_begins_above_its_tokens() {
    for is_readable in [true, false] {
        let (_dir, path, backup, store) = world().await;
        store.backup(&backup).await.unwrap();
        let mut tokens = Vec::new();
        let (fence, _) = begin(&store, "c").await;
        for holder in ["one", "two"] {
            let lock = lock(&store, &fence, holder).await;
            store.release_compression_lock(&fence, &lock).await.unwrap();
            tokens.push(lock.token());
        }
        store.close().await;
        if !is_readable {
            damage(&path);
        }
        assert_eq!(restore(&backup, &path, NOW_MS).await.unwrap().read_counters, is_readable);
        let store = open(&path).await;
        let (fence, _) = begin(&store, "c").await;
        let again = lock(&store, &fence, "three").await;
        assert!(tokens.iter().all(|lost| again.token() > Token(lost.0 + 1_000_000)), "{again:?} after {tokens:?}");
        store.close().await;
    }
}
