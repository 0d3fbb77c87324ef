//! What only a server can suffer: other processes and hosts, a kill, a restart, a network that is cut, other clocks.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code outside test functions")]

#[path = "postgres/access.rs"]
mod access;
#[path = "postgres/load.rs"]
mod load;
#[path = "postgres/network.rs"]
mod network;
mod support;
#[path = "postgres/waits.rs"]
mod waits;

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::limits::HEARTBEAT_DEAD_MS;
use hermes_store::postgres::{OwnershipClock, PostgresOptions, PostgresStore, Timeouts};
use hermes_store::{
    AdmissionOutcome, AdmissionStore, ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, Fence, IdSource,
    LeaseStore, ManualClock, MessagePage, NewMessage, NewSession, OwnerInfo, PromptSnapshot, Role, SessionStore,
    StoreError, TranscriptStore, TurnEnd, TurnId, UuidIds, View,
};
use support::cluster::{Cluster, url_of_socket};
use support::proxy::{Network, Proxy};
use support::{TestSchema, connection, run, url};

/// Tells the test binary that it is a child, and what to do.
const ROLE: &str = "HERMES_STORE_TEST_ROLE";
const SCHEMA: &str = "HERMES_STORE_TEST_SCHEMA";
const NAME: &str = "HERMES_STORE_TEST_NAME";
/// Inputs that each child of the crowd submits, each with its own request id.
const CROWD_INPUTS: usize = 12;
const CROWD: usize = 3;
/// Longest time that a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// One hour, by which a clock is wrong.
const HOUR_MS: i64 = 3_600_000;
/// How long a test looks whether something that must not happen happens.
const LOOK: Duration = Duration::from_millis(500);

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

fn row(text: &str) -> NewMessage {
    NewMessage::text((&UuidIds as &dyn IdSource).message(), Role::User, text)
}

async fn connect(options: PostgresOptions) -> PostgresStore {
    PostgresStore::connect(options).await.unwrap()
}

/// A store with one input, and its turn in the hands of `who`.
async fn holding(store: &PostgresStore, who: &str) -> (Fence, TurnId) {
    store.heartbeat(&OwnerInfo::of_this_process(owner(who))).await.unwrap();
    store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
    let ClaimOutcome::Turn { fence, admission, .. } = store.claim(claim(who, ClaimPolicy::Any)).await.unwrap() else {
        panic!("no turn")
    };
    let turn = admission.receipt.turn.unwrap();
    store.open_session(&fence, &turn, session(), vec![row("at work")]).await.unwrap();
    (fence, turn)
}

fn spawn_child(role: &str, schema: &str, name: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(SCHEMA, schema)
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
    let name = std::env::var(NAME).unwrap();
    let store = connect(TestSchema::options_of(&url(), &std::env::var(SCHEMA).unwrap())).await;
    match role.as_str() {
        "crowd" => crowd_child(&store, &name).await,
        "holder" => {
            holding(&store, &name).await;
            std::future::pending::<()>().await;
        }
        "opener" => {}
        other => panic!("no role {other}"),
    }
    store.close().await;
}

/// Submits its own inputs and, twice, one that all children share; then works until nothing is left.
async fn crowd_child(store: &PostgresStore, name: &str) {
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
                let row = row(&format!("{} by {name}", admission.request_id));
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i03_s7_processes_on_one_database_start_each_input_once_and_in_order() {
    let schema = TestSchema::new();
    let children: Vec<_> =
        (0..CROWD).map(|number| spawn_child("crowd", schema.name(), &format!("w{number}"))).collect();
    for mut child in children {
        assert!(tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap().success());
    }
    let store = connect(schema.options()).await;
    assert_eq!(store.queue(&conversation()).await.unwrap(), []);
    let rows = store.messages(&conversation(), View::Display, MessagePage::default()).await.unwrap();
    let mut requests: Vec<_> = rows.iter().map(|row| row.content.split(' ').next().unwrap().to_owned()).collect();
    requests.sort();
    requests.dedup();
    assert_eq!(
        (rows.len(), requests.len()),
        (CROWD * CROWD_INPUTS + 1, CROWD * CROWD_INPUTS + 1),
        "each input ran once"
    );
    let (mut generation, mut place) = (0, 0);
    for row in &rows {
        let turn = store.turn(&row.turn).await.unwrap();
        assert_eq!(turn.generation.0, generation + 1);
        generation = turn.generation.0;
        let seq = store.admission(&turn.admission).await.unwrap().receipt.seq;
        assert!(seq > place, "in the order of acceptance");
        place = seq;
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_at_once_make_one_schema() {
    let schema = TestSchema::new();
    let children: Vec<_> = (0..3).map(|number| spawn_child("opener", schema.name(), &number.to_string())).collect();
    let here = futures_of(4, || connect(schema.options())).await;
    for store in &here {
        assert_eq!(store.conversations(Default::default()).await.unwrap(), []);
        store.close().await;
    }
    for mut child in children {
        assert!(tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap().success());
    }
}

/// Runs so many of one future at once.
async fn futures_of<T, F>(count: usize, make: impl Fn() -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let mut set = tokio::task::JoinSet::new();
    for _ in 0..count {
        set.spawn(make());
    }
    set.join_all().await
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i10_a_killed_process_is_replaced_at_once() {
    let schema = TestSchema::new();
    let store = connect(schema.options()).await;
    let mut child = spawn_child("holder", schema.name(), "holder");
    let deadline = Instant::now() + PATIENCE;
    loop {
        match store.messages(&conversation(), View::Model, MessagePage::default()).await {
            Ok(rows) if !rows.is_empty() => break,
            Ok(_) | Err(StoreError::NotFound { .. }) => {}
            Err(error) => panic!("{error}"),
        }
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
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i09_s20_a_clock_that_is_an_hour_wrong_lets_no_two_owners_commit() {
    for wrong_by in [HOUR_MS, -HOUR_MS] {
        let schema = TestSchema::new();
        let honest = connect(schema.options()).await;
        let (fence, turn) = holding(&honest, "a").await;
        let mut conn = schema.connection().await;
        let database_ms: i64 =
            sqlx::query_scalar("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)")
                .fetch_one(&mut conn)
                .await
                .unwrap();
        let created = honest.conversation(&conversation()).await.unwrap().created_at_ms;
        assert!((created - database_ms).abs() < HOUR_MS / 2, "the time is the database's");
        // A process that decided by a wrong clock of its own would take the lease, or never; what it does, the token
        // keeps the two apart.
        let clock = OwnershipClock::Given(Arc::new(ManualClock::at(database_ms + wrong_by)));
        let wrong = connect(PostgresOptions { clock, ..schema.options() }).await;
        let taken = wrong.claim(claim("b", ClaimPolicy::Any)).await.unwrap();
        let first = honest.append(&fence, &turn, vec![row("by a")], None).await;
        match taken {
            ClaimOutcome::Recover { fence: newer, .. } => {
                assert!(newer.token() > fence.token());
                assert!(matches!(first, Err(StoreError::Fenced { .. })), "{first:?}");
                wrong.append(&newer, &turn, vec![row("by b")], None).await.unwrap();
            }
            ClaimOutcome::Held { .. } => first.unwrap(),
            other => panic!("{other:?}"),
        }
        let rows = honest.messages(&conversation(), View::Model, MessagePage::default()).await.unwrap();
        assert_eq!(rows.len(), 2, "one of the two wrote");
        honest.close().await;
        wrong.close().await;
    }
}

/// As if an owner had fallen silent a while ago.
async fn silence(schema: &TestSchema, who: &str) {
    let mut conn = schema.connection().await;
    let dead_ms = HEARTBEAT_DEAD_MS + 1_000;
    run(&mut conn, &format!("UPDATE owners SET beat_ms = beat_ms - {dead_ms} WHERE id = '{who}'")).await;
}

/// An owner whose death nobody here can prove.
fn far_away(who: &str) -> OwnerInfo {
    let host = "another host".to_owned();
    OwnerInfo { host, boot_id: "b".to_owned(), pid: 1, pid_start: 1, id: owner(who) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i09_a_process_without_network_commits_nothing_and_is_replaced() {
    let schema = TestSchema::new();
    let proxy = Proxy::before(&url()).await;
    let far = connect(PostgresOptions { url: proxy.url(), ..schema.options() }).await;
    let near = connect(schema.options()).await;
    let (fence, turn) = holding(&far, "far").await;
    far.heartbeat(&far_away("far")).await.unwrap();

    proxy.set(Network::Partitioned);
    let writes = {
        let (far, fence, turn) = (far.clone(), fence.clone(), turn.clone());
        tokio::spawn(async move { far.append(&fence, &turn, vec![row("into the void")], None).await })
    };
    tokio::time::sleep(LOOK).await;
    assert!(!writes.is_finished(), "there is nobody to answer");
    let held = near.claim(claim("near", ClaimPolicy::Any)).await.unwrap();
    assert!(matches!(held, ClaimOutcome::Held { .. }), "still within its heartbeat: {held:?}");

    silence(&schema, "far").await;
    let ClaimOutcome::Recover { fence: newer, .. } = near.claim(claim("near", ClaimPolicy::Any)).await.unwrap() else {
        panic!("not taken over")
    };
    near.append(&newer, &turn, vec![row("by near")], None).await.unwrap();

    proxy.set(Network::Whole);
    let late = tokio::time::timeout(PATIENCE, writes).await.unwrap().unwrap();
    assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
    let renewed = far.renew(&fence, 300_000).await;
    assert!(matches!(renewed, Err(StoreError::Fenced { .. })), "{renewed:?}");
    let rows = near.messages(&conversation(), View::Model, MessagePage::default()).await.unwrap();
    let texts: Vec<_> = rows.iter().map(|row| row.content.as_str()).collect();
    assert_eq!(texts, ["at work", "by near"]);
    near.close().await;
    far.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_whose_client_fell_silent_does_not_hold_the_conversation() {
    let schema = TestSchema::new();
    let timeouts = Timeouts { idle_in_transaction_ms: 300, ..Timeouts::default() };
    let store = connect(PostgresOptions { timeouts, ..schema.options() }).await;
    let (fence, turn) = holding(&store, "a").await;
    // What a host leaves that loses the network in mid transaction.
    let mut silent = schema.connection().await;
    run(&mut silent, "SET idle_in_transaction_session_timeout TO 300").await;
    run(&mut silent, "BEGIN").await;
    run(&mut silent, "UPDATE conversations SET revision = revision WHERE id = 'c'").await;
    store.append(&fence, &turn, vec![row("goes on")], None).await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_ends_during_the_commit_leaves_the_change_unknown_and_a_repetition_harmless() {
    let schema = TestSchema::new();
    let proxy = Proxy::before(&url()).await;
    let store = connect(PostgresOptions { url: proxy.url(), ..schema.options() }).await;
    let (fence, turn) = holding(&store, "a").await;
    let written = row("once");
    // Two rows: one alone is a statement of its own, without a COMMIT.
    let rows = vec![written.clone(), row("and more")];
    proxy.set(Network::CutAtCommit);
    let unknown = store.append(&fence, &turn, rows.clone(), None).await;
    assert!(matches!(unknown, Err(StoreError::CommitUnknown)), "{unknown:?}");
    store.append(&fence, &turn, rows, None).await.unwrap();
    let rows = store.messages(&conversation(), View::Model, MessagePage::default()).await.unwrap();
    assert_eq!(rows.iter().filter(|row| row.id == written.id).count(), 1);
    store.close().await;
}

/// Somebody who holds the conversation's row, and the write that waits for it, whose connection is ended.
async fn ended_while_it_waits<T: Send + 'static>(
    schema: &TestSchema,
    write: impl Future<Output = T> + Send + 'static,
) -> (sqlx::PgConnection, tokio::task::JoinHandle<T>) {
    let mut other = schema.connection().await;
    run(&mut other, "BEGIN").await;
    run(&mut other, "UPDATE conversations SET revision = revision WHERE id = 'c'").await;
    let write = tokio::spawn(write);
    let mut admin = connection(&url()).await;
    let end = format!(
        "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
         AND pid IN (SELECT l.pid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation \
         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{}')",
        schema.name()
    );
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ended: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(end.clone())).fetch_one(&mut admin).await.unwrap();
        if ended > 0 {
            return (other, write);
        }
        assert!(Instant::now() < deadline, "it never waited");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_whose_connection_is_ended_changes_nothing_and_says_so() {
    let schema = TestSchema::new();
    let store = connect(schema.options()).await;
    let (fence, turn) = holding(&store, "a").await;
    let write = {
        let (store, fence, turn) = (store.clone(), fence.clone(), turn.clone());
        async move { store.append(&fence, &turn, vec![row("never"), row("at all")], None).await }
    };
    let (mut other, write) = ended_while_it_waits(&schema, write).await;
    let lost = write.await.unwrap();
    assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
    run(&mut other, "ROLLBACK").await;
    store.append(&fence, &turn, vec![row("after it")], None).await.unwrap();
    let rows = store.messages(&conversation(), View::Model, MessagePage::default()).await.unwrap();
    assert_eq!(rows.len(), 2);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_in_one_statement_whose_connection_is_ended_finds_out_what_came_of_it() {
    let schema = TestSchema::new();
    let store = connect(schema.options()).await;
    let (fence, turn) = holding(&store, "a").await;
    let write = {
        let (store, fence, turn) = (store.clone(), fence.clone(), turn.clone());
        async move { store.append(&fence, &turn, vec![row("once")], None).await }
    };
    let (mut other, write) = ended_while_it_waits(&schema, write).await;
    run(&mut other, "ROLLBACK").await;
    write.await.unwrap().unwrap();
    let rows = store.messages(&conversation(), View::Model, MessagePage::default()).await.unwrap();
    let texts: Vec<_> = rows.iter().map(|row| row.content.as_str()).collect();
    assert_eq!(texts, ["at work", "once"]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i01_a_server_that_crashes_under_writers_loses_nothing_that_was_accepted() {
    const WRITERS: usize = 4;
    const INPUTS: usize = 30;
    let cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
    let store = connect(PostgresOptions { connections: 4, ..PostgresOptions::new(cluster.url()) }).await;
    store.create_and_admit(new_conversation("c"), input("c", "first", "x")).await.unwrap();
    let accepted = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (store, accepted) = (store.clone(), Arc::clone(&accepted));
        writers.spawn(async move {
            for number in 0..INPUTS {
                let deadline = Instant::now() + PATIENCE;
                // The same request, as long as nobody knows that it was accepted.
                while let Err(error) = store.admit(input("c", &format!("{writer}-{number}"), "x")).await {
                    let is_passing = matches!(
                        error,
                        StoreError::Unavailable { .. } | StoreError::CommitUnknown | StoreError::Busy { .. }
                    );
                    assert!(is_passing && Instant::now() < deadline, "{error:?}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                accepted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        });
    }
    for crash in 1..=2 {
        while accepted.load(std::sync::atomic::Ordering::SeqCst) < crash * WRITERS * INPUTS / 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::task::block_in_place(|| cluster.crash_and_restart());
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    // A connection of the pool that nobody used since the crash says so once.
    let queue = loop {
        match store.queue(&conversation()).await {
            Err(StoreError::Unavailable { .. }) => {}
            found => break found.unwrap(),
        }
    };
    assert_eq!(queue.len(), WRITERS * INPUTS + 1, "each input once");
    assert!(queue.windows(2).all(|pair| pair[0].receipt.seq < pair[1].receipt.seq));
    // Whoever waits for a change hears of one again: the connection for notifications came back too.
    let seen = loop {
        match store.wait_for_change(&conversation(), -1, 0).await {
            Err(StoreError::Unavailable { .. }) => {}
            found => break found.unwrap(),
        }
    };
    let waiter = {
        let store = store.clone();
        tokio::spawn(async move { store.wait_for_change(&conversation(), seen, 60_000).await })
    };
    while let Err(error) = store.admit(input("c", "last", "x")).await {
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    }
    assert!(waiter.await.unwrap().unwrap() > seen);
    store.close().await;
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_processes_are_told_of_what_they_wait_for() {
    let schema = TestSchema::new();
    let (store, other) = (connect(schema.options()).await, connect(schema.options()).await);
    let mut listener = sqlx::postgres::PgListener::connect(&url()).await.unwrap();
    listener.listen(&format!("hermes_{}", schema.name())).await.unwrap();
    store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
    let told = tokio::time::timeout(PATIENCE, listener.recv()).await.unwrap().unwrap();
    assert!(told.payload().ends_with(":c"), "{}", told.payload());
    // And they need not be told of what nobody waits for.
    let seen = other.wait_for_change(&conversation(), -1, 0).await.unwrap();
    let waiter = tokio::spawn(async move {
        let changed = other.wait_for_change(&conversation(), seen, 60_000).await;
        other.close().await;
        changed
    });
    store.admit(input("c", "r2", "x")).await.unwrap();
    assert!(waiter.await.unwrap().unwrap() > seen);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i10_an_owner_whose_writers_are_all_busy_goes_on_saying_that_it_lives() {
    let schema = TestSchema::new();
    let store = connect(PostgresOptions { connections: 1, ..schema.options() }).await;
    let (fence, turn) = holding(&store, "a").await;
    store.create_and_admit(new_conversation("d"), input("d", "r", "x")).await.unwrap();
    let mut other = schema.connection().await;
    run(&mut other, "BEGIN").await;
    run(&mut other, "UPDATE conversations SET revision = revision WHERE id = 'd'").await;
    let stuck = {
        let store = store.clone();
        tokio::spawn(async move { store.admit(input("d", "r2", "x")).await })
    };
    tokio::time::sleep(LOOK).await;
    assert!(!stuck.is_finished());
    store.heartbeat(&OwnerInfo::of_this_process(owner("a"))).await.unwrap();
    store.renew(&fence, 300_000).await.unwrap();
    run(&mut other, "ROLLBACK").await;
    stuck.await.unwrap().unwrap();
    store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_survives_a_drop_without_close() {
    let schema = TestSchema::new();
    for number in 0..3 {
        let store = connect(schema.options()).await;
        store.create_and_admit(new_conversation("c"), input("c", &format!("r{number}"), "x")).await.unwrap();
        assert_eq!(store.queue(&conversation()).await.unwrap().len(), number + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_closed_says_so() {
    let schema = TestSchema::new();
    let store = connect(schema.options()).await;
    store.close().await;
    let refused = store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await;
    assert!(matches!(refused, Err(StoreError::Io { .. })), "{refused:?}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_and_schemas_that_are_none_of_ours_are_refused_and_left_alone() {
    let schema = TestSchema::new();
    let mut conn = connection(&url()).await;
    run(&mut conn, &format!("CREATE SCHEMA {0}; CREATE TABLE {0}.theirs (id INT)", schema.name())).await;
    let refused = PostgresStore::connect(schema.options()).await;
    assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    run(&mut conn, &format!("DROP SCHEMA {} CASCADE", schema.name())).await;

    connect(schema.options()).await.close().await;
    let mut inside = schema.connection().await;
    run(&mut inside, "INSERT INTO schema_version (version, applied_ms) VALUES (999, 0)").await;
    let refused = PostgresStore::connect(schema.options()).await;
    assert!(matches!(refused, Err(StoreError::TooNew { found: 999, .. })), "{refused:?}");

    let missing = PostgresOptions { url: url().replace("/postgres?", "/no_such_database?"), ..schema.options() };
    let refused = PostgresStore::connect(missing).await;
    assert!(matches!(&refused, Err(StoreError::Invalid { detail }) if detail.contains("createdb")), "{refused:?}");

    let nowhere = tempfile::tempdir().unwrap();
    let nobody = PostgresOptions { url: url_of_socket(nowhere.path()), ..schema.options() };
    let refused = PostgresStore::connect(nobody).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_not_utf_8_is_refused() {
    let cluster_url = url();
    let name = format!("latin_{}", uuid::Uuid::now_v7().simple());
    let mut conn = connection(&cluster_url).await;
    run(&mut conn, &format!("CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")).await;
    let options = PostgresOptions::new(cluster_url.replace("/postgres?", &format!("/{name}?")));
    let refused = PostgresStore::connect(options).await;
    run(&mut conn, &format!("DROP DATABASE {name} WITH (FORCE)")).await;
    assert!(matches!(&refused, Err(StoreError::Invalid { detail }) if detail.contains("LATIN1")), "{refused:?}");
}
