//! The care of a SQLite file that is in use: what a check finds in a damaged one, a backup while others write, and when
//! the file is made smaller.

#![cfg(all(feature = "sqlite", feature = "test-util"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::{
    AdmissionOutcome, AdmissionStore as _, CallId, CallOutcome, CallResult, CheckDepth, ClaimOutcome, ClaimPolicy,
    ClaimRequest, ConversationId, Fence, LeaseStore as _, MaintenanceStore as _, ManualClock, MessageId, MessagePage,
    NewCall, NewMessage, NewSession, PromptSnapshot, ReplaySafety, Role, Round, SessionId, SessionStore as _,
    TranscriptStore as _, TurnEnd, TurnId, VacuumOutcome, View,
};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

const NOW_MS: i64 = 1_700_000_000_000;
/// Tells the test binary that it is a second process, and which file it opens.
const STORE: &str = "HERMES_STORE_TEST_STORE";
/// What the second process says when it has the file open.
const OPEN: &str = "the file is open";

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

fn row(id: &str, role: Role, text: &str) -> NewMessage {
    NewMessage::text(MessageId::parse(id).unwrap(), role, text)
}

async fn begin(store: &SqliteStore, name: &str) -> (Fence, TurnId) {
    store.create_and_admit(new_conversation(name), input(name, "r", "x")).await.unwrap();
    let turn = TurnId::parse(&format!("t-{name}")).unwrap();
    let claim = ClaimRequest {
        conversation: conv(name),
        owner: owner("a"),
        turn: turn.clone(),
        ttl_ms: 300_000,
        policy: ClaimPolicy::Any,
    };
    let ClaimOutcome::Turn { fence, .. } = store.claim(claim).await.unwrap() else { panic!("no turn") };
    let session = NewSession {
        id: SessionId::parse(name).unwrap(),
        parent: None,
        provider: "practice".to_owned(),
        model: "practice-1".to_owned(),
        cwd: None,
        prompt: PromptSnapshot::new(&b"prompt"[..]),
        tools: PromptSnapshot::new(&b"[]"[..]),
    };
    let rows = vec![row(&format!("{name}-question"), Role::User, "question")];
    store.open_session(&fence, &turn, session, rows).await.unwrap();
    (fence, turn)
}

async fn settle(store: &SqliteStore, fence: &Fence, turn: &TurnId) {
    let end =
        TurnEnd { reason: "completed".to_owned(), detail: None, outcome: AdmissionOutcome::Completed, api_calls: 1 };
    store.settle_turn(fence, turn, end, true).await.unwrap();
}

/// Conversation `c` with one round of one call, and conversation `d`; both turns are over.
async fn sound(path: &Path) {
    let store = open(path).await;
    let (fence, turn) = begin(&store, "c").await;
    let call = NewCall {
        call: CallId::parse("k").unwrap(),
        result: MessageId::parse("k-result").unwrap(),
        provider_id: "p".to_owned(),
        name: "terminal".to_owned(),
        arguments: "{}".to_owned(),
        replay: ReplaySafety::Once,
        preset: None,
    };
    let id = call.call.clone();
    let round = Round::plan(turn.clone(), row("round", Role::Assistant, ""), vec![call], None);
    store.record_round(&fence, round).await.unwrap();
    store.start_calls(&fence, &turn, std::slice::from_ref(&id)).await.unwrap();
    let result = CallResult { outcome: CallOutcome::Ok, content: "done".to_owned(), meta: None };
    store.settle_call(&fence, &turn, &id, result).await.unwrap();
    settle(&store, &fence, &turn).await;
    let (fence, turn) = begin(&store, "d").await;
    settle(&store, &fence, &turn).await;
    let report = store.check(CheckDepth::Full).await.unwrap();
    assert!(report.is_sound(), "{report:?}");
    store.close().await;
}

/// What is done to a sound file, and what a check must find then (among what follows from it).
const DAMAGES: &[(&str, &str)] = &[
    (
        "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'conversations_by_lease'",
        "pages or indexes of the file are damaged",
    ),
    ("INSERT INTO aliases VALUES ('x', 'nobody')", "rows refer to something that is not there"),
    ("UPDATE prompts SET bytes = x'00'", "prompts do not have their hash"),
    ("UPDATE calls SET state = 'started'", "calls of a turn that is over have no result"),
    ("DELETE FROM messages WHERE call_id = 'k'", "results are not stored, though their call says so"),
    ("DELETE FROM calls", "results answer no call"),
    ("UPDATE calls SET result_seq = result_seq + 100", "results are not in the place that was kept for them"),
    ("UPDATE calls SET assistant_seq = result_seq", "calls do not stand behind their round"),
    ("UPDATE conversations SET seq = 0", "rows stand beyond the last place of their conversation"),
    (
        "UPDATE messages SET session_id = 'd' WHERE conversation_id = 'c'",
        "rows are of a session of another conversation",
    ),
    ("UPDATE messages SET copy_of = 'nothing' WHERE id = 'c-question'", "copies have no first row"),
    ("UPDATE conversations SET message_count = message_count + 1", "conversations count their rows wrongly"),
    (
        "UPDATE conversations SET tip = 'none' WHERE id = 'c'",
        "conversations have a tip that is no open session of theirs",
    ),
    ("UPDATE sessions SET parent_id = 'd' WHERE id = 'c'", "sessions have a parent in no, or in another, conversation"),
    (
        "CREATE TEMP TABLE one AS SELECT * FROM sessions WHERE id = 'c'; \
         UPDATE one SET parent_id = 'c', id = 'x'; INSERT INTO sessions SELECT * FROM one; \
         UPDATE one SET id = 'y'; INSERT INTO sessions SELECT * FROM one",
        "sessions have more than one child",
    ),
    (
        "UPDATE conversations SET open_turn = 'none' WHERE id = 'c'",
        "conversations are said to have a turn at work that is not",
    ),
    ("UPDATE admissions SET status = 'started'", "inputs were begun and belong to no open turn"),
    ("INSERT INTO tombstones VALUES ('c', 1000000, 0, 0, 0)", "counters went back"),
];

#[tokio::test]
async fn a_check_finds_each_kind_of_damage() {
    let dir = tempfile::tempdir().unwrap();
    let first = dir.path().join("sound.db");
    sound(&first).await;
    for (index, (damage, expected)) in DAMAGES.iter().enumerate() {
        let path = dir.path().join(format!("{index}.db"));
        std::fs::copy(&first, &path).unwrap();
        let options = SqliteConnectOptions::new().filename(&path).foreign_keys(false);
        let mut conn = options.pragma("ignore_check_constraints", "ON").connect().await.unwrap();
        sqlx::raw_sql(*damage).execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        let store = open(&path).await;
        let report = store.check(CheckDepth::Full).await.unwrap();
        let found = report.findings.iter().find(|finding| finding.what == *expected);
        let Some(found) = found else { panic!("not found after {damage}: {report:?}") };
        assert!(found.count > 0 && found.example.is_some(), "{found:?}");
        store.close().await;
    }
    // No kind of finding is forgotten: those of the back end, and those of the content.
    let own = ["pages or indexes", "rows refer to", "prompts do not"];
    let of_content = include_str!("../src/sql/maintenance.rs").matches("\"SELECT COUNT(*), MIN(").count();
    assert_eq!(DAMAGES.len(), own.len() + of_content);
}

async fn texts(store: &SqliteStore, name: &str) -> Vec<String> {
    let rows = store.messages(&conv(name), View::Display, MessagePage::default()).await.unwrap();
    rows.into_iter().map(|row| row.content).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_made_while_others_write_is_the_store_of_one_moment() {
    const NAMES: [&str; 4] = ["c0", "c1", "c2", "c3"];
    const ROWS: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("hermes.db")).await;
    let mut writers = tokio::task::JoinSet::new();
    for name in NAMES {
        let (fence, turn) = begin(&store, name).await;
        let store = store.clone();
        writers.spawn(async move {
            for at in 0..ROWS {
                let rows = vec![row(&format!("{name}-{at}"), Role::Assistant, &format!("{name} {at}"))];
                store.append(&fence, &turn, rows, None).await.unwrap();
            }
        });
    }
    let backups: Vec<_> = (0..4).map(|at| dir.path().join(format!("backup-{at}.db"))).collect();
    for backup in &backups {
        store.backup(backup).await.unwrap();
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    for backup in &backups {
        let copy = open(backup).await;
        let report = copy.check(CheckDepth::Full).await.unwrap();
        assert!(report.is_sound(), "{report:?}");
        for name in NAMES {
            let (all, then) = (texts(&store, name).await, texts(&copy, name).await);
            assert!(!then.is_empty() && all.starts_with(&then), "{name}: {then:?} of {all:?}");
        }
        copy.close().await;
    }
    store.close().await;
}

/// Makes conversations with long rows and deletes them.
async fn write_and_delete(store: &SqliteStore, prefix: &str) {
    for number in 0..20 {
        let name = format!("{prefix}{number}");
        let (fence, turn) = begin(store, &name).await;
        let rows = vec![row(&format!("{name}-long"), Role::Assistant, &"x".repeat(100_000))];
        store.append(&fence, &turn, rows, None).await.unwrap();
        settle(store, &fence, &turn).await;
    }
    // Only then: what is deleted at once makes room for the next.
    for number in 0..20 {
        let name = format!("{prefix}{number}");
        let lease = ClaimRequest {
            conversation: conv(&name),
            owner: owner("a"),
            turn: TurnId::parse(&format!("del-{name}")).unwrap(),
            ttl_ms: 300_000,
            policy: ClaimPolicy::LeaseOnly,
        };
        let ClaimOutcome::Leased { fence } = store.claim(lease).await.unwrap() else { panic!("no lease") };
        store.delete_conversation(&fence).await.unwrap();
    }
}

/// Not a test of its own: the second process of the next one.
#[tokio::test]
async fn a_second_process() {
    let Ok(path) = std::env::var(STORE) else { return };
    let store = open(Path::new(&path)).await;
    println!("\n{OPEN}");
    // Until the first process closes its end, or dies.
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_file_gets_smaller_when_no_other_process_has_it_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hermes.db");
    let store = open(&path).await;
    write_and_delete(&store, "c").await;
    let mut second = Command::new(std::env::current_exe().unwrap())
        .args(["a_second_process", "--exact", "--nocapture"])
        .env(STORE, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(second.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim() != OPEN {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "the second process ended");
    }
    assert_eq!(store.vacuum(false).await.unwrap(), VacuumOutcome::OpenElsewhere);
    drop(second.stdin.take());
    assert!(second.wait().unwrap().success());
    let before = std::fs::metadata(&path).unwrap().len();
    let VacuumOutcome::Done { freed_bytes } = store.vacuum(false).await.unwrap() else { panic!("not done") };
    let after = std::fs::metadata(&path).unwrap().len();
    assert!(freed_bytes > 1_000_000 && after + 1_000_000 < before, "{before} to {after}, {freed_bytes} freed");
    assert!(matches!(store.vacuum(true).await.unwrap(), VacuumOutcome::Done { .. }));
    assert!(store.check(CheckDepth::Full).await.unwrap().is_sound());
    store.close().await;
}
