//! The clock of ownership on one SQLite file: several processes of a host agree about now, whatever the wall clock says
//! to each of them, and a host that slept robs nobody.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::limits::{HEARTBEAT_DEAD_MS, LEASE_TTL_MS};
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::{
    AdmissionStore, ClaimOutcome, ClaimPolicy, ClaimRequest, Clock as _, ConversationId, Fence, HostClock, HostTime,
    IdSource, LeaseStore, LivenessProbe, ManualHost, MessagePage, NewMessage, NewSession, OwnerInfo, ProcProbe,
    PromptSnapshot, Role, SessionStore, SinceBoot, StoreError, SystemHost, TranscriptStore, TurnId, UuidIds, View,
};

/// Tells the test binary that it is a child, and what to do.
const ROLE: &str = "HERMES_STORE_TEST_ROLE";
const FILE: &str = "HERMES_STORE_TEST_FILE";
/// How far the child's wall clock is ahead, in milliseconds.
const AHEAD: &str = "HERMES_STORE_TEST_AHEAD";

const HOUR_MS: i64 = 3_600_000;
const DEAD_MS: i64 = HEARTBEAT_DEAD_MS as i64;
/// What the wall clock says at the begin of a test: 2 December 2026.
const WALL_MS: i64 = 1_796_169_600_000;
/// How long the host is up at the begin of a test.
const UP_MS: i64 = 9_000_000;

/// Proves nothing: only the clock decides.
#[derive(Debug)]
struct NoProof;

impl LivenessProbe for NoProof {
    fn is_provably_dead(&self, _: &OwnerInfo) -> bool {
        false
    }
}

fn host() -> ManualHost {
    ManualHost::new(Some("boot-1"), UP_MS, WALL_MS)
}

/// A handle as a process of `host` has it, with a wall clock of its own.
async fn open_on(path: &Path, host: Arc<dyn HostTime>) -> SqliteStore {
    let options = SqliteOptions {
        synchronous: Synchronous::Normal,
        probe: Arc::new(NoProof),
        ..SqliteOptions::new(path, Arc::new(HostClock::on(host)))
    };
    SqliteStore::open(options).await.unwrap()
}

async fn open(path: &Path, host: &ManualHost) -> SqliteStore {
    open_on(path, Arc::new(host.clone())).await
}

fn conversation() -> ConversationId {
    ConversationId::parse("c").unwrap()
}

fn me(name: &str) -> OwnerInfo {
    OwnerInfo { id: owner(name), host: "h".to_owned(), boot_id: "boot-1".to_owned(), pid: 1, pid_start: 1 }
}

async fn claim(store: &SqliteStore, who: &str) -> ClaimOutcome {
    let request = ClaimRequest {
        conversation: conversation(),
        owner: owner(who),
        turn: (&UuidIds as &dyn IdSource).turn(),
        ttl_ms: LEASE_TTL_MS,
        policy: ClaimPolicy::Any,
    };
    store.claim(request).await.unwrap()
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

/// Beats, accepts an input and begins its turn.
async fn begin(store: &SqliteStore, who: &str) -> (Fence, TurnId) {
    store.heartbeat(&me(who)).await.unwrap();
    store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
    let ClaimOutcome::Turn { fence, admission, .. } = claim(store, who).await else { panic!("no turn") };
    (fence, admission.receipt.turn.unwrap())
}

async fn write(store: &SqliteStore, fence: &Fence, turn: &TurnId) -> Result<(), StoreError> {
    let row = NewMessage::text((&UuidIds as &dyn IdSource).message(), Role::User, "hello");
    store.open_session(fence, turn, session(), vec![row]).await.map(drop)
}

async fn is_held(store: &SqliteStore, who: &str) -> bool {
    match claim(store, who).await {
        ClaimOutcome::Held { .. } => true,
        ClaimOutcome::Recover { .. } => false,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn s20_i10_a_jump_between_two_opens_robs_no_live_owner() {
    for jump_ms in [HOUR_MS, -HOUR_MS, 0] {
        let dir = tempfile::tempdir().unwrap();
        let (path, host) = (dir.path().join("hermes.db"), host());
        let first = open(&path, &host).await;
        let (fence, turn) = begin(&first, "a").await;
        host.jump(jump_ms);
        let second = open(&path, &host).await;
        second.heartbeat(&me("b")).await.unwrap();
        assert!(is_held(&second, "b").await, "{jump_ms}");
        write(&first, &fence, &turn).await.unwrap();

        // It goes on so, as long as the first one beats, long past any lease of a clock that is an hour off.
        for _ in 0..100 {
            host.pass(DEAD_MS - 1);
            first.heartbeat(&me("a")).await.unwrap();
            first.renew(&fence, LEASE_TTL_MS).await.unwrap();
            assert!(is_held(&second, "b").await, "{jump_ms}");
        }
        // And it does not hide a death: neither for an hour longer, nor at all.
        host.pass(DEAD_MS + 1);
        assert!(!is_held(&second, "b").await, "{jump_ms}");
        let refused = first.renew(&fence, LEASE_TTL_MS).await;
        assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{jump_ms}: {refused:?}");
    }
}

#[tokio::test]
async fn s20_two_handles_whose_wall_clocks_differ_never_both_commit() {
    for ahead_ms in [HOUR_MS, -HOUR_MS] {
        let dir = tempfile::tempdir().unwrap();
        let (path, host) = (dir.path().join("hermes.db"), host());
        let first = open(&path, &host).await;
        let second = open(&path, &host.with_wall_ahead(ahead_ms)).await;
        let (fence, turn) = begin(&first, "a").await;
        assert!(is_held(&second, "b").await, "{ahead_ms}");
        // The first one is stopped for as long as its beats count, and nothing else is.
        host.pass(DEAD_MS + 1);
        assert!(!is_held(&second, "b").await, "{ahead_ms}");
        let refused = write(&first, &fence, &turn).await;
        assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{ahead_ms}: {refused:?}");
        // Each sees the other's time as its own: the first one does not rob the second now.
        second.heartbeat(&me("b")).await.unwrap();
        assert!(is_held(&first, "a").await, "{ahead_ms}");
    }
}

#[tokio::test]
async fn i10_a_host_that_slept_robs_no_live_owner() {
    let dir = tempfile::tempdir().unwrap();
    let (path, host) = (dir.path().join("hermes.db"), host());
    let first = open(&path, &host).await;
    let second = open(&path, &host).await;
    let (fence, turn) = begin(&first, "a").await;
    second.heartbeat(&me("b")).await.unwrap();
    for _ in 0..3 {
        // Longer than any beat and any lease; the one that waits wakes first, and looks before anybody has beaten.
        host.sleep(8 * HOUR_MS);
        assert!(is_held(&second, "b").await);
        // One that was opened after the sleep counts it no second time, and robs nobody either.
        let third = open(&path, &host).await;
        assert!(is_held(&third, "d").await);
        host.pass(1_000);
        first.heartbeat(&me("a")).await.unwrap();
        first.renew(&fence, LEASE_TTL_MS).await.unwrap();
    }
    write(&first, &fence, &turn).await.unwrap();
    // What passed before the sleep counts: a silent owner is as silent as it was.
    first.heartbeat(&me("a")).await.unwrap();
    host.pass(DEAD_MS - 1_000);
    host.sleep(HOUR_MS);
    assert!(is_held(&second, "b").await);
    host.pass(2_000);
    assert!(!is_held(&second, "b").await);
}

#[tokio::test]
async fn i10_a_sleep_that_several_wake_from_at_once_is_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let (path, host) = (dir.path().join("hermes.db"), host());
    let first = open(&path, &host).await;
    let second = open(&path, &host).await;
    begin(&first, "a").await;
    second.heartbeat(&me("b")).await.unwrap();
    host.pass(DEAD_MS / 2);
    host.sleep(HOUR_MS);
    // Both write, and so both see the sleep; "a" itself never beats again.
    assert!(is_held(&second, "b").await);
    first.heartbeat(&me("x")).await.unwrap();
    host.pass(DEAD_MS / 2 + 1);
    assert!(!is_held(&second, "b").await, "twice the sleep would have made it look alive");
}

#[tokio::test]
async fn s20_a_start_of_the_host_with_a_wrong_clock_goes_on_behind_what_was_seen() {
    let dir = tempfile::tempdir().unwrap();
    let (path, before) = (dir.path().join("hermes.db"), host());
    let store = open(&path, &before).await;
    begin(&store, "a").await;
    store.close().await;
    let newest = before.wall_ms();
    // Started again, with a clock that is an hour behind, and one that was never set at all.
    for (boot, wall_ms) in [("boot-2", newest - HOUR_MS), ("boot-3", 0)] {
        let after = ManualHost::new(Some(boot), 10, wall_ms);
        let store = open(&path, &after).await;
        store.heartbeat(&me("b")).await.unwrap();
        let ClaimOutcome::Held { expires_at_ms, .. } = claim(&store, "b").await else { panic!("{boot}") };
        assert!(expires_at_ms <= newest + LEASE_TTL_MS as i64, "{boot}");
        after.pass(1_000);
        store.admit(input("c", boot, "x")).await.unwrap();
        let queue = store.queue(&conversation()).await.unwrap();
        assert!(queue.iter().all(|record| record.created_at_ms >= newest), "{boot}: {queue:?}");
        store.close().await;
    }
    // The dead owner's silence has been counted meanwhile, and its conversation is free.
    let after = ManualHost::new(Some("boot-4"), 10, newest + HOUR_MS);
    assert!(!is_held(&open(&path, &after).await, "b").await);
}

#[tokio::test]
async fn a_host_that_does_not_name_its_starts_goes_by_its_own_clock() {
    let dir = tempfile::tempdir().unwrap();
    let (path, host) = (dir.path().join("hermes.db"), ManualHost::new(None, UP_MS, WALL_MS));
    let first = open(&path, &host).await;
    begin(&first, "a").await;
    assert!(is_held(&open(&path, &host).await, "b").await);
    assert_eq!(first.queue(&conversation()).await.unwrap()[0].created_at_ms, WALL_MS);
}

/// This host, with a wall clock that is read ahead of the real one.
#[derive(Debug)]
struct Ahead(i64);

impl HostTime for Ahead {
    fn boot_id(&self) -> Option<&str> {
        // One boot for every child, whether or not this machine has `/proc`; the clocks are its own.
        Some("boot-of-this-machine")
    }

    fn since_boot(&self) -> SinceBoot {
        SystemHost::new().since_boot()
    }

    fn wall_ms(&self) -> i64 {
        SystemHost::new().wall_ms() + self.0
    }
}

fn spawn_child(role: &str, path: &Path, ahead_ms: i64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(FILE, path)
        .env(AHEAD, ahead_ms.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Not a test: what the children of the test below do. Without a role it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = std::env::var_os(FILE).unwrap();
    let ahead_ms: i64 = std::env::var(AHEAD).unwrap().parse().unwrap();
    assert_eq!(role, "owner");
    let store = open_on(Path::new(&path), Arc::new(Ahead(ahead_ms))).await;
    let beat = OwnerInfo::of_this_process(owner("a"));
    store.heartbeat(&beat).await.unwrap();
    store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
    let ClaimOutcome::Turn { fence, admission, .. } = claim(&store, "a").await else { panic!("no turn") };
    write(&store, &fence, &admission.receipt.turn.unwrap()).await.unwrap();
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        store.heartbeat(&beat).await.unwrap();
        store.renew(&fence, LEASE_TTL_MS).await.unwrap();
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s20_i10_two_processes_with_an_hour_between_their_wall_clocks_agree() {
    for ahead_ms in [HOUR_MS, -HOUR_MS] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hermes.db");
        let mut other = spawn_child("owner", &path, ahead_ms);
        let options = SqliteOptions {
            synchronous: Synchronous::Normal,
            probe: Arc::new(ProcProbe::new()),
            ..SqliteOptions::new(&path, Arc::new(HostClock::on(Arc::new(Ahead(0)))))
        };
        let store = SqliteStore::open(options).await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let page = MessagePage::default;
        while store.messages(&conversation(), View::Model, page()).await.map_or(true, |rows| rows.is_empty()) {
            assert!(Instant::now() < deadline, "the child never began");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for _ in 0..5 {
            let ClaimOutcome::Held { expires_at_ms, .. } = claim(&store, "b").await else {
                panic!("{ahead_ms}: robbed")
            };
            // Its lease is of the time that both have, which is the one that the child read first.
            let here = HostClock::on(Arc::new(Ahead(ahead_ms))).now_ms();
            assert!((expires_at_ms - here).abs() < HOUR_MS / 2, "{ahead_ms}: {expires_at_ms} {here}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(other.try_wait().unwrap().is_none(), "{ahead_ms}: the owner went on undisturbed");
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!is_held(&store, "b").await, "{ahead_ms}: a dead one is replaced at once");
    }
}
