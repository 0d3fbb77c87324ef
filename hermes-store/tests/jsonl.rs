//! Exports as text: out of a store, into another, and out of it again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

use std::path::Path;
use std::sync::Arc;

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::memory::MemoryStore;
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::transfer::jsonl::{JsonlStore, export_to};
use hermes_store::{
    AdmissionOutcome, CallId, CallOutcome, CallResult, CheckDepth, ClaimOutcome, ClaimPolicy, ClaimRequest,
    ConversationId, ManualClock, MessageId, NewCall, NewMessage, NewSession, PromptSnapshot, ReplaySafety, Role, Round,
    SessionId, Store, StoreError, TurnEnd, TurnId, UsageDelta,
};

const NOW_MS: i64 = 1_700_000_000_000;

async fn sqlite(dir: &Path) -> SqliteStore {
    let options = SqliteOptions {
        synchronous: Synchronous::Normal,
        ..SqliteOptions::new(dir.join("hermes.db"), Arc::new(ManualClock::at(NOW_MS)))
    };
    SqliteStore::open(options).await.unwrap()
}

fn row(id: &str, role: Role, text: &str) -> NewMessage {
    NewMessage::text(MessageId::parse(id).unwrap(), role, text)
}

/// A conversation with a round, hostile text and usage.
async fn talk(store: &dyn Store, name: &str) {
    let conversation = ConversationId::parse(name).unwrap();
    let turn = TurnId::parse(&format!("turn-{name}")).unwrap();
    store.create_and_admit(new_conversation(name), input(name, &format!("r-{name}"), "hello")).await.unwrap();
    let claim = ClaimRequest {
        conversation: conversation.clone(),
        owner: owner("a"),
        turn: turn.clone(),
        ttl_ms: 300_000,
        policy: ClaimPolicy::Any,
    };
    let ClaimOutcome::Turn { fence, .. } = store.claim(claim).await.unwrap() else { panic!("no turn") };
    let session = NewSession {
        id: SessionId::parse(name).unwrap(),
        parent: None,
        provider: "p".to_owned(),
        model: "m".to_owned(),
        cwd: Some("/srv".to_owned()),
        prompt: PromptSnapshot::new(&b"prompt \xff"[..]),
        tools: PromptSnapshot::new(&b"[]"[..]),
    };
    let user = row(&format!("{name}-u"), Role::User, "line one\nline \u{2028} two \" \\ \u{0} 漢字");
    store.open_session(&fence, &turn, session, vec![user]).await.unwrap();
    let call = NewCall {
        call: CallId::parse(&format!("{name}-call")).unwrap(),
        result: MessageId::parse(&format!("{name}-result")).unwrap(),
        provider_id: "toolu_1".to_owned(),
        name: "shell".to_owned(),
        arguments: "{\"a\": 1}".to_owned(),
        replay: ReplaySafety::Once,
        preset: Some(CallResult { outcome: CallOutcome::Ok, content: "done".to_owned(), meta: None }),
    };
    let usage = UsageDelta {
        attempt: format!("{name}-attempt"),
        provider: "p".to_owned(),
        model: "m".to_owned(),
        task: String::new(),
        input: 7,
        output: 5,
        cache_read: 3,
        cache_write: 0,
        reasoning: 1,
        known: true,
    };
    let assistant = row(&format!("{name}-a"), Role::Assistant, "");
    store.record_round(&fence, Round::plan(turn.clone(), assistant, vec![call], Some(usage))).await.unwrap();
    store.append(&fence, &turn, vec![row(&format!("{name}-b"), Role::Assistant, "bye")], None).await.unwrap();
    let end = TurnEnd { reason: "answered".into(), detail: None, outcome: AdmissionOutcome::Completed, api_calls: 2 };
    store.settle_turn(&fence, &turn, end, true).await.unwrap();
}

async fn export(store: &dyn Store, to: &Path) -> Vec<u8> {
    let mut file = tokio::fs::File::create(to).await.unwrap();
    export_to(store, None, &mut file).await.unwrap();
    drop(file);
    std::fs::read(to).unwrap()
}

#[tokio::test]
async fn an_export_that_is_imported_and_exported_again_is_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let from = sqlite(dir.path()).await;
    for name in ["c1", "c2", "c3"] {
        talk(&from, name).await;
    }
    let path = dir.path().join("export.jsonl");
    let bytes = export(&from, &path).await;
    let other = tempfile::tempdir().unwrap();
    let stores: [Box<dyn Store>; 2] =
        [Box::new(sqlite(other.path()).await), Box::new(MemoryStore::new(Arc::new(ManualClock::at(NOW_MS))))];
    for store in &stores {
        let report = JsonlStore::open(&path).await.unwrap().import_into(store.as_ref(), &mut |_| {}).await.unwrap();
        assert_eq!((report.conversations, report.refused, report.found), (3, 0, report.imported), "{report:?}");
        let again = export(store.as_ref(), &dir.path().join("again.jsonl")).await;
        assert_eq!(String::from_utf8_lossy(&again), String::from_utf8_lossy(&bytes));
        // A repetition finds everything there.
        let report = JsonlStore::open(&path).await.unwrap().import_into(store.as_ref(), &mut |_| {}).await.unwrap();
        assert_eq!((report.conversations, report.same), (0, 3), "{report:?}");
    }
    // A conversation that was born here is not written over.
    let report = JsonlStore::open(&path).await.unwrap().import_into(&from, &mut |_| {}).await.unwrap();
    assert_eq!((report.conversations, report.taken.len()), (0, 3), "{report:?}");
}

#[tokio::test]
async fn i27_a_broken_line_is_told_and_loses_only_its_conversation() {
    let dir = tempfile::tempdir().unwrap();
    let from = sqlite(dir.path()).await;
    for name in ["c1", "c2", "c3"] {
        talk(&from, name).await;
    }
    let path = dir.path().join("export.jsonl");
    let text = String::from_utf8(export(&from, &path).await).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let second = lines.iter().position(|line| line.contains("\"id\":\"c2\"")).unwrap();
    let mut broken = lines.clone();
    broken[second + 2] = "{\"type\":\"session\",";
    // And the end of the last one is missing.
    broken.pop();
    std::fs::write(&path, broken.join("\n")).unwrap();
    let store = MemoryStore::new(Arc::new(ManualClock::at(NOW_MS)));
    let report = JsonlStore::open(&path).await.unwrap().import_into(&store, &mut |_| {}).await.unwrap();
    assert_eq!((report.conversations, report.refused), (1, 2), "{report:?}");
    assert!(report.failed[0].contains(&format!("line {}", second + 3)), "{report:?}");
    assert!(report.failed[1].contains("its end is missing"), "{report:?}");
}

#[tokio::test]
async fn a_copy_of_a_row_that_does_not_come_refuses_its_conversation() {
    let dir = tempfile::tempdir().unwrap();
    let from = sqlite(dir.path()).await;
    talk(&from, "c1").await;
    let path = dir.path().join("export.jsonl");
    let text = String::from_utf8(export(&from, &path).await).unwrap();
    // Of nothing, of itself, of a row of another conversation; and of one that came, which is as it must be.
    for (first, imported) in [("nowhere", 0), ("c1-b", 0), ("c2-u", 0), ("c1-u", 1)] {
        let copy = format!("\"id\":\"c1-b\",\"copy_of\":\"{first}\",");
        std::fs::write(&path, text.replace("\"id\":\"c1-b\",", &copy)).unwrap();
        let other = tempfile::tempdir().unwrap();
        let store = sqlite(other.path()).await;
        talk(&store, "c2").await;
        let report = JsonlStore::open(&path).await.unwrap().import_into(&store, &mut |_| {}).await.unwrap();
        assert_eq!((report.conversations, report.refused), (imported, 1 - imported), "{first}: {report:?}");
        let store: &dyn Store = &store;
        let check = store.check(CheckDepth::Full).await.unwrap();
        assert!(check.is_sound(), "{first}: {check:?}");
    }
}

#[tokio::test]
async fn usage_beyond_every_number_leaves_its_conversation_readable() {
    let dir = tempfile::tempdir().unwrap();
    let from = sqlite(dir.path()).await;
    talk(&from, "c1").await;
    let path = dir.path().join("export.jsonl");
    let text = String::from_utf8(export(&from, &path).await).unwrap();
    let usage = text.lines().find(|line| line.contains("\"type\":\"usage\"")).unwrap();
    let huge = usage.replace("\"input\":7", &format!("\"input\":{}", u64::MAX));
    assert_ne!(huge, usage);
    std::fs::write(&path, text.replace(usage, &format!("{huge}\n{huge}"))).unwrap();
    let other = tempfile::tempdir().unwrap();
    let stores: [Box<dyn Store>; 2] =
        [Box::new(sqlite(other.path()).await), Box::new(MemoryStore::new(Arc::new(ManualClock::at(NOW_MS))))];
    for store in stores {
        let report = JsonlStore::open(&path).await.unwrap().import_into(store.as_ref(), &mut |_| {}).await.unwrap();
        assert_eq!((report.conversations, report.refused), (1, 0), "{report:?}");
        let totals = store.usage(&ConversationId::parse("c1").unwrap()).await.unwrap();
        assert_eq!((totals[0].input, totals[0].output), (2 << 40, 10));
        export(store.as_ref(), &dir.path().join("again.jsonl")).await;
    }
}

#[tokio::test]
async fn what_is_no_export_is_refused_before_anything_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    for (text, code) in [
        ("", "HM1015"),
        ("hello\n", "HM1015"),
        ("{\"type\":\"hermes_export\",\"version\":99}\n", "HM1012"),
        ("{\"type\":\"hermes_export\",\"version\":1}\n{\"type\":\"end\",\"rows\":0}\n", "HM1015"),
    ] {
        std::fs::write(&path, text).unwrap();
        let refused = JsonlStore::open(&path).await.map(drop);
        assert_eq!(refused.map_err(|error| error.code()), Err(code), "{text:?}");
    }
    let gone = JsonlStore::open(&dir.path().join("gone")).await.map(drop);
    assert!(matches!(gone, Err(StoreError::NotFound { .. })), "{gone:?}");
}
