//! Measures the store beside raw commits of the same database in the same run: `cargo xtask bench store`.
//!
//! Ratios matter and not seconds: the machines are noisy. Rows beside PostgreSQL are printed when `HERMES_TEST_POSTGRES`
//! names a server; `HERMES_BENCH_ROWS` sets how many rows the large store has.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "a program that cannot go on stops")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hermes_store::postgres::{PostgresOptions, PostgresStore};
use hermes_store::sqlite::{SqliteOptions, SqliteStore};
use hermes_store::{
    AdmissionId, AdmissionOutcome, ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, Fence, HostClock, Intent,
    MessageId, MessagePage, NewAdmission, NewConversation, NewMessage, NewSession, OwnerId, PromptSnapshot, Role,
    SearchQuery, SessionId, Store, TurnEnd, TurnId, View,
};
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

/// Content of every appended row, in bytes.
const CONTENT_BYTES: usize = 400;
/// Time for one throughput figure.
const RUN: Duration = Duration::from_secs(2);
/// Throughput figures of each side, taken in turns.
const PAIRS: usize = 5;
/// Commits whose latency is measured.
const LATENCIES: usize = 2_000;
/// Into how many parts they are cut, taken in turns with those by hand.
const ROUNDS: usize = 20;
/// Rows of the large store, unless the environment says otherwise.
const LARGE_ROWS: u64 = 1_000_000;
/// Rows of one session of the large store.
const SESSION_ROWS: u64 = 100;

/// The commits of the store by hand, in the store's own tables: what an append costs without its guarantees.
const RAW_CONVERSATION: &str = "INSERT INTO conversations (id, profile, source, tip, revision, token, generation, seq, \
     place, lease_owner, lease_expires_ms, lease_ttl_ms, freed_ms, message_count, created_ms, activity_ms) \
     VALUES ($1, 'bench', 'bench', $1, 1, 1, 1, 0, 1, 'raw', 0, 0, 0, 0, 0, 0)";
const RAW_COUNT: &str = "UPDATE conversations SET seq = seq + 1, message_count = message_count + 1, \
     activity_ms = activity_ms + 1 WHERE id = $1 RETURNING seq";
const RAW_INSERT: &str = "INSERT INTO messages (id, conversation_id, session_id, turn_id, seq, role, kind, state, \
     content, has_calls, digest, created_ms) VALUES ($1, $2, $2, $2, $3, 'user', 'normal', 'active', $4, 0, 'd', 0)";

fn text() -> String {
    "the quick brown fox jumps over the lazy dog ".repeat(CONTENT_BYTES / 44 + 1).chars().take(CONTENT_BYTES).collect()
}

fn id() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn p50(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// A conversation with an input, and the claim of its turn.
async fn admit(store: &dyn Store) -> ClaimRequest {
    let conversation = ConversationId::parse(&id()).unwrap();
    let owner = OwnerId::parse("bench").unwrap();
    let new =
        NewConversation { id: conversation.clone(), profile: "bench".into(), source: "bench".into(), title: None };
    let admission = NewAdmission {
        id: AdmissionId::parse(&id()).unwrap(),
        conversation: conversation.clone(),
        principal: "bench".into(),
        request_id: id(),
        intent: Intent::Queue,
        payload: "{}".into(),
        submitted_by: owner.clone(),
    };
    store.create_and_admit(new, admission).await.unwrap();
    let turn = TurnId::parse(&id()).unwrap();
    ClaimRequest { conversation, owner, turn, ttl_ms: 600_000, policy: ClaimPolicy::Any }
}

/// A conversation with an open turn.
async fn begin(store: &dyn Store) -> (Fence, TurnId) {
    let claim = admit(store).await;
    let (conversation, turn) = (claim.conversation.clone(), claim.turn.clone());
    let ClaimOutcome::Turn { fence, .. } = store.claim(claim).await.unwrap() else { panic!("not claimed") };
    let session = NewSession {
        id: SessionId::parse(conversation.as_str()).unwrap(),
        parent: None,
        provider: "p".into(),
        model: "m".into(),
        cwd: None,
        prompt: PromptSnapshot::new(&b"prompt"[..]),
        tools: PromptSnapshot::new(&b"[]"[..]),
    };
    store.open_session(&fence, &turn, session, vec![row()]).await.unwrap();
    (fence, turn)
}

fn row() -> NewMessage {
    NewMessage::text(MessageId::parse(&id()).unwrap(), Role::User, text())
}

/// Times of some appends to one conversation.
async fn latencies(store: &dyn Store, fence: &Fence, turn: &TurnId) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..LATENCIES / ROUNDS {
        let started = Instant::now();
        store.append(fence, turn, vec![row()], None).await.unwrap();
        times.push(started.elapsed());
    }
    times
}

async fn throughput(store: Arc<dyn Store>, conversations: usize) -> f64 {
    let mut owned = Vec::new();
    for _ in 0..conversations {
        owned.push(begin(store.as_ref()).await);
    }
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (fence, turn) in owned {
        let store = store.clone();
        tasks.spawn(async move {
            let mut done = 0_u64;
            while started.elapsed() < RUN {
                store.append(&fence, &turn, vec![row()], None).await.unwrap();
                done += 1;
            }
            done
        });
    }
    let done: u64 = tasks.join_all().await.into_iter().sum();
    done as f64 / started.elapsed().as_secs_f64()
}

async fn turns(store: &dyn Store) -> f64 {
    let mut times = Vec::new();
    for _ in 0..LATENCIES / 4 {
        let claim = admit(store).await;
        let turn = claim.turn.clone();
        let started = Instant::now();
        let ClaimOutcome::Turn { fence, .. } = store.claim(claim).await.unwrap() else { panic!("not claimed") };
        let end =
            TurnEnd { reason: "answered".into(), detail: None, outcome: AdmissionOutcome::Completed, api_calls: 0 };
        store.settle_turn(&fence, &turn, end, true).await.unwrap();
        times.push(started.elapsed());
    }
    p50(times)
}

/// A connection that does the same commits by hand.
macro_rules! raw {
    ($name:ident, $conn:ty, $begin:literal) => {
        struct $name {
            conn: $conn,
            conversation: String,
        }

        impl $name {
            async fn new(mut conn: $conn) -> Self {
                let conversation = id();
                sqlx::query(RAW_CONVERSATION).bind(&conversation).execute(&mut conn).await.unwrap();
                Self { conn, conversation }
            }
        }

        impl Raw for $name {
            async fn commit(&mut self) {
                let Self { conn, conversation } = self;
                let conversation = conversation.as_str();
                sqlx::query($begin).execute(&mut *conn).await.unwrap();
                let seq: i64 = sqlx::query_scalar(RAW_COUNT).bind(conversation).fetch_one(&mut *conn).await.unwrap();
                let insert = sqlx::query(RAW_INSERT).bind(id()).bind(conversation).bind(seq).bind(text());
                insert.execute(&mut *conn).await.unwrap();
                sqlx::query("COMMIT").execute(&mut *conn).await.unwrap();
            }
        }
    };
}
raw!(RawSqlite, sqlx::SqliteConnection, "BEGIN IMMEDIATE");
raw!(RawPostgres, sqlx::PgConnection, "BEGIN");

trait Raw {
    async fn commit(&mut self);
}

fn print(what: &str, ours: f64, raw: f64, unit: &str) {
    let ratio = ours / raw;
    println!("{what:<44} {ours:>10.2} {unit:<5} raw {raw:>9.2} {unit:<5} ratio {ratio:>6.2}");
}

async fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(SqliteOptions::new(path, Arc::new(HostClock::new()))).await.unwrap()
}

/// The store beside raw commits, in turns, so that both see the same machine. Medians.
async fn compare(store: Arc<dyn Store>, name: &str, mut raw: impl Raw) {
    let (fence, turn) = begin(store.as_ref()).await;
    let (mut ours, mut by_hand) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.extend(latencies(store.as_ref(), &fence, &turn).await);
        for _ in 0..LATENCIES / ROUNDS {
            let started = Instant::now();
            raw.commit().await;
            by_hand.push(started.elapsed());
        }
    }
    print(&format!("{name}: append, 1 conversation, p50"), p50(ours), p50(by_hand), "ms");
    for conversations in [1, 16, 256] {
        let (mut ours, mut by_hand) = (Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            ours.push(throughput(store.clone(), conversations).await);
            let (begun, mut done) = (Instant::now(), 0_u64);
            while begun.elapsed() < RUN {
                raw.commit().await;
                done += 1;
            }
            by_hand.push(done as f64 / begun.elapsed().as_secs_f64());
        }
        let what = format!("{name}: appends, {conversations} conversations");
        print(&what, median(ours), median(by_hand), "1/s");
    }
    println!("{:<44} {:>10.2} ms", format!("{name}: claim + settle, p50"), turns(store.as_ref()).await);
}

/// Fills a store by hand with conversations of `SESSION_ROWS` rows.
async fn fill(path: &Path, rows: u64) {
    let mut conn = SqliteConnectOptions::new().filename(path).synchronous(SqliteSynchronous::Off).foreign_keys(false);
    conn = conn.journal_mode(SqliteJournalMode::Wal);
    let mut conn = sqlx::SqliteConnection::connect_with(&conn).await.unwrap();
    let sessions = rows / SESSION_ROWS;
    for statement in [
        format!(
            "INSERT INTO conversations (id, profile, source, tip, revision, token, generation, seq, place, \
             lease_expires_ms, lease_ttl_ms, freed_ms, message_count, created_ms, activity_ms) \
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {sessions}) \
             SELECT 'c' || i, 'bench', 'bench', 'c' || i, 1, 1, 1, {SESSION_ROWS}, 1, 0, 0, 0, {SESSION_ROWS}, i, i FROM n"
        ),
        "INSERT OR IGNORE INTO prompts (hash, bytes) VALUES ('h', x'00')".to_owned(),
        format!(
            "INSERT INTO sessions (id, conversation_id, provider, model, prompt_hash, tools_hash, first_seq, started_ms) \
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {sessions}) \
             SELECT 'c' || i, 'c' || i, 'p', 'm', 'h', 'h', 0, i FROM n"
        ),
        format!(
            "INSERT INTO messages (id, conversation_id, session_id, turn_id, seq, role, kind, state, content, has_calls, \
             digest, created_ms) WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {} - 1) \
             SELECT 'm' || i, 'c' || (i / {SESSION_ROWS} + 1), 'c' || (i / {SESSION_ROWS} + 1), 't', \
             i % {SESSION_ROWS} + 1, CASE i % 2 WHEN 0 THEN 'user' ELSE 'assistant' END, 'normal', 'active', \
             'row ' || i || ' says something about topic ' || (i % 977) || ' and word' || (i % 100003), 0, 'd', i FROM n",
            sessions * SESSION_ROWS
        ),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut conn).await.unwrap();
    }
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

/// Resident memory of this process in megabytes.
fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("VmRSS: 0 kB");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(0.0) / 1_024.0
}

async fn measure_open(path: &Path) {
    let before = resident_mb();
    let mut times = Vec::new();
    for _ in 0..11 {
        let started = Instant::now();
        let store = open(path).await;
        times.push(started.elapsed());
        store.close().await;
    }
    println!("{:<44} {:>10.2} ms    {:>6.1} MB more", "open, p50", p50(times), resident_mb() - before);
}

async fn large(dir: &Path, rows: u64) {
    let path = dir.join("large.db");
    open(&path).await.close().await;
    println!("an empty store:");
    measure_open(&path).await;
    let started = Instant::now();
    fill(&path, rows).await;
    let size = std::fs::metadata(&path).map_or(0, |found| found.len()) / 1_048_576;
    println!(
        "{rows} rows in {} sessions ({size} MB, filled in {:.0} s):",
        rows / SESSION_ROWS,
        started.elapsed().as_secs_f64()
    );
    measure_open(&path).await;
    let opened = open(&path).await;
    let store: &dyn Store = &opened;
    let (fence, turn) = begin(store).await;
    for _ in 0..50 {
        store.append(&fence, &turn, (0..100).map(|_| row()).collect(), None).await.unwrap();
    }
    let mut times = Vec::new();
    for _ in 0..20 {
        let started = Instant::now();
        store.conversation(fence.conversation()).await.unwrap();
        let page = MessagePage { limit: 200, from_end: true, ..MessagePage::default() };
        assert_eq!(store.messages(fence.conversation(), View::Model, page).await.unwrap().len(), 200);
        times.push(started.elapsed());
    }
    println!("{:<44} {:>10.2} ms", "tip and last 200 of 5,000 rows, p50", p50(times));
    let started = Instant::now();
    while !store.index_step(5_000).await.unwrap().is_done {}
    println!("{:<44} {:>10.1} s", "building the search index", started.elapsed().as_secs_f64());
    for query in ["word4711", "topic AND word4711", "\"something about\"", "somethi*"] {
        let mut times = Vec::new();
        for _ in 0..5 {
            let started = Instant::now();
            store.search(SearchQuery::text(query)).await.unwrap();
            times.push(started.elapsed());
        }
        println!("{:<44} {:>10.2} ms", format!("search {query}, p50"), p50(times));
    }
}

#[tokio::main]
async fn main() {
    // On a worker, as the tasks of a program are: the main thread is woken across threads for every answer.
    tokio::spawn(run()).await.unwrap();
}

async fn run() {
    let dir = tempfile::tempdir().unwrap();
    let raw_path = dir.path().join("raw.db");
    open(&raw_path).await.close().await;
    let options = SqliteConnectOptions::new()
        .filename(&raw_path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let raw = RawSqlite::new(sqlx::SqliteConnection::connect_with(&options).await.unwrap()).await;
    compare(Arc::new(open(&dir.path().join("hermes.db")).await), "SQLite", raw).await;
    if let Ok(url) = std::env::var("HERMES_TEST_POSTGRES") {
        let store = PostgresStore::connect(PostgresOptions::new(&url)).await.unwrap();
        let raw = RawPostgres::new(sqlx::PgConnection::connect(&url).await.unwrap()).await;
        compare(Arc::new(store), "PostgreSQL", raw).await;
    }
    let rows = std::env::var("HERMES_BENCH_ROWS").ok().and_then(|rows| rows.parse().ok()).unwrap_or(LARGE_ROWS);
    large(dir.path(), rows).await;
}
