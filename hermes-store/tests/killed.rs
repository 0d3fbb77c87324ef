//! Processes that are killed while many conversations append at once: what was told to be stored is there, once.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::{
    AdmissionStore as _, ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, Fence, HostClock, IdSource,
    LeaseStore as _, MessageId, MessagePage, NewMessage, NewSession, OwnerInfo, PromptSnapshot, Role,
    SessionStore as _, TranscriptStore as _, TurnId, UsageDelta, UuidIds, View,
};
use sqlx::ConnectOptions as _;

/// Tells the test binary that it is a child, and what to do.
const ROLE: &str = "HERMES_STORE_TEST_ROLE";
const FILE: &str = "HERMES_STORE_TEST_FILE";
const NAME: &str = "HERMES_STORE_TEST_NAME";
/// Processes that write into one file, and are killed together.
const PROCESSES: usize = 2;
/// Conversations of each process.
const CONVERSATIONS: usize = 12;
/// Times that processes are started and killed.
const ROUNDS: usize = 3;
/// Rows that must have been told to be stored before the kill.
const TOLD_MIN: usize = 300;

async fn open(path: &Path) -> SqliteStore {
    let options =
        SqliteOptions { synchronous: Synchronous::Normal, ..SqliteOptions::new(path, Arc::new(HostClock::new())) };
    SqliteStore::open(options).await.unwrap()
}

fn spawn_child(path: &Path, name: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(ROLE, "appender")
        .env(FILE, path)
        .env(NAME, name)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Not a test: what the children of the test below do. Without a role it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(_) = std::env::var(ROLE) else { return };
    let path = std::env::var_os(FILE).unwrap();
    let name = std::env::var(NAME).unwrap();
    let store = open(Path::new(&path)).await;
    store.heartbeat(&OwnerInfo::of_this_process(owner(&name))).await.unwrap();
    let tasks: Vec<_> = (0..CONVERSATIONS)
        .map(|number| {
            let told = Path::new(&path).with_extension(format!("{name}-{number}.told"));
            tokio::spawn(append_until_killed(store.clone(), name.clone(), number, told))
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn holding(store: &SqliteStore, who: &str, name: &str) -> (Fence, TurnId) {
    store.create_and_admit(new_conversation(name), input(name, "r", "x")).await.unwrap();
    let turn = (&UuidIds as &dyn IdSource).turn();
    let conversation = ConversationId::parse(name).unwrap();
    let claim = ClaimRequest {
        conversation: conversation.clone(),
        owner: owner(who),
        turn: turn.clone(),
        ttl_ms: 300_000,
        policy: ClaimPolicy::Any,
    };
    let ClaimOutcome::Turn { fence, .. } = store.claim(claim).await.unwrap() else { panic!("no turn") };
    let session = NewSession {
        id: conversation.first_session(),
        parent: None,
        provider: "p".to_owned(),
        model: "m".to_owned(),
        cwd: None,
        prompt: PromptSnapshot::new(&b"prompt"[..]),
        tools: PromptSnapshot::new(&b"[]"[..]),
    };
    store.open_session(&fence, &turn, session, Vec::new()).await.unwrap();
    (fence, turn)
}

fn row(id: &str) -> NewMessage {
    NewMessage::text(MessageId::parse(id).unwrap(), Role::User, format!("row {id}"))
}

fn usage(id: &str) -> UsageDelta {
    UsageDelta {
        attempt: id.to_owned(),
        provider: "p".to_owned(),
        model: "m".to_owned(),
        task: "t".to_owned(),
        input: 1,
        output: 1,
        cache_read: 0,
        cache_write: 0,
        reasoning: 0,
        known: true,
    }
}

/// Appends one row after the other, and writes down the ids of those that were told to be stored. Every third brings
/// two rows. In conversations with an odd number, callers give up in the middle and repeat what they may have done.
async fn append_until_killed(store: SqliteStore, who: String, number: usize, told: std::path::PathBuf) {
    let name = format!("{who}-{number}");
    let (fence, turn) = holding(&store, &who, &name).await;
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(told).unwrap();
    for at in 0_u64.. {
        let id = format!("{name}-{at}");
        let mut rows = vec![row(&id)];
        if at % 3 == 2 {
            rows.push(row(&format!("{id}b")));
        }
        if number % 2 == 1 && at % 4 == 1 {
            let append = store.append(&fence, &turn, rows.clone(), Some(usage(&id)));
            let _ = tokio::time::timeout(Duration::from_millis(at % 5), append).await;
        }
        store.append(&fence, &turn, rows.clone(), Some(usage(&id))).await.unwrap();
        let lines: String = rows.iter().map(|row| format!("{}\n", row.id)).collect();
        file.write_all(lines.as_bytes()).unwrap();
    }
}

fn told(path: &Path, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path.with_extension(format!("{name}.told"))).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn i01_processes_that_are_killed_under_many_appends_lose_nothing_and_store_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hermes.db");
    open(&path).await.close().await;
    for round in 0..ROUNDS {
        let names: Vec<String> = (0..PROCESSES).map(|process| format!("r{round}p{process}")).collect();
        let mut children: Vec<Child> = names.iter().map(|name| spawn_child(&path, name)).collect();
        let of = |name: &String| (0..CONVERSATIONS).map(move |number| (number, format!("{name}-{number}"))).collect();
        let conversations: Vec<(usize, String)> = names.iter().flat_map(|name| -> Vec<_> { of(name) }).collect();
        while conversations.iter().map(|(_, name)| told(&path, name).len()).sum::<usize>() < TOLD_MIN {
            assert!(children.iter_mut().all(|child| child.try_wait().unwrap().is_none()), "a child ended by itself");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let store = open(&path).await;
        for (number, name) in &conversations {
            verify(&store, &path, *number, name).await;
        }
        store.close().await;
    }
    sound(&path).await;
}

async fn verify(store: &SqliteStore, path: &Path, number: usize, name: &str) {
    let told = told(path, name);
    let conversation = ConversationId::parse(name).unwrap();
    if told.is_empty() {
        return;
    }
    let rows = store.messages(&conversation, View::Display, MessagePage::default()).await.unwrap();
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{name}: twice");
    // In their order, and behind the last at most the append that was not told.
    assert_eq!(ids[..told.len()], told, "{name}");
    assert!(ids.len() <= told.len() + 2, "{name}: {ids:?}");
    assert_eq!(store.conversation(&conversation).await.unwrap().messages, u64::try_from(rows.len()).unwrap());
    let places: Vec<i64> = rows.iter().map(|row| row.seq).collect();
    if number.is_multiple_of(2) {
        assert!(places.iter().copied().eq(1..=i64::try_from(rows.len()).unwrap()), "{name}: {places:?}");
    } else {
        assert!(places.is_sorted_by(|before, after| before < after), "{name}: {places:?}");
    }
}

/// The file is whole, and the usage of each append that is stored is counted once.
async fn sound(path: &Path) {
    let mut conn = sqlx::sqlite::SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    let check: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut conn).await.unwrap();
    assert_eq!(check, "ok");
    let rows: Vec<(String, String)> =
        sqlx::query_as("SELECT conversation_id, id FROM messages").fetch_all(&mut conn).await.unwrap();
    let mut appends: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (conversation, id) in rows {
        appends.entry(conversation).or_default().insert(id.trim_end_matches('b').to_owned());
    }
    let counted: Vec<(String, String)> =
        sqlx::query_as("SELECT conversation_id, attempt FROM usage_log").fetch_all(&mut conn).await.unwrap();
    let counted_rows = counted.len();
    let mut usages: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (conversation, attempt) in counted {
        usages.entry(conversation).or_default().insert(attempt);
    }
    assert_eq!(usages.values().map(BTreeSet::len).sum::<usize>(), counted_rows, "usage twice");
    assert_eq!(appends, usages);
}
