//! The import of the Python program's `state.db`, on files that are built as its schema versions have them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::transfer::TransferStore;
use hermes_store::transfer::bundle::RowCounts;
use hermes_store::transfer::python::{ImportReport, PythonStore};
use hermes_store::{
    CallOutcome, ConversationId, HostClock, MessageKind, MessagePage, PromptHash, Role, RowState, SessionId,
    SessionStore, StoreError, StoredMessage, TitleSource, TranscriptStore, View,
};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

/// A time that is believed, in seconds.
const T0: f64 = 1_700_000_000.0;

/// Columns of `sessions` that came later, with the version that has them for sure.
const SESSION_COLUMNS: &[(i64, &str)] = &[
    (16, "cwd TEXT"),
    (17, "git_branch TEXT"),
    (20, "session_key TEXT"),
    (20, "archived INTEGER NOT NULL DEFAULT 0"),
    (20, "profile_name TEXT"),
    (20, "rewind_count INTEGER NOT NULL DEFAULT 0"),
    (23, "pinned INTEGER NOT NULL DEFAULT 0"),
    (23, "title_source TEXT"),
    (27, "hidden INTEGER NOT NULL DEFAULT 0"),
    (27, "last_activity_at REAL"),
    (27, "system_prompt_hash TEXT"),
    (27, "tool_names TEXT"),
    (31, "created_source TEXT"),
    (31, "git_metadata_generation INTEGER NOT NULL DEFAULT 0"),
    (32, "runtime_generation INTEGER"),
    (32, "runtime_revision INTEGER"),
];

/// The same of `messages`.
const MESSAGE_COLUMNS: &[(i64, &str)] = &[
    (16, "platform_message_id TEXT"),
    (16, "observed INTEGER DEFAULT 0"),
    // Without its default, as some files in the wild have it.
    (16, "active INTEGER"),
    (17, "compacted INTEGER NOT NULL DEFAULT 0"),
    (20, "api_content TEXT"),
    (20, "effect_disposition TEXT"),
    (23, "display_kind TEXT"),
    (23, "display_metadata TEXT"),
    (23, "_compressed_summary INTEGER NOT NULL DEFAULT 0"),
    (27, "message_uid TEXT"),
    (27, "display_identity BLOB"),
];

/// A database under construction.
struct Built {
    conn: SqliteConnection,
    version: i64,
    next: i64,
}

/// Values of columns as SQL literals.
type Fields<'a> = &'a [(&'a str, String)];

fn quoted(text: &str) -> String {
    format!("CAST(X'{}' AS TEXT)", text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>())
}

impl Built {
    async fn new(path: &Path, version: i64) -> Self {
        let connect = SqliteConnectOptions::new().filename(path).create_if_missing(true).foreign_keys(false);
        let mut built = Self { conn: connect.connect().await.unwrap(), version, next: 1 };
        let late = |columns: &[(i64, &str)]| {
            let there = columns.iter().filter(|(since, _)| *since <= version);
            there.map(|(_, column)| format!(", {column}")).collect::<String>()
        };
        built.run("PRAGMA journal_mode = WAL").await;
        built.run("CREATE TABLE schema_version (version INTEGER NOT NULL)").await;
        built.run(&format!("INSERT INTO schema_version VALUES ({version})")).await;
        built
            .run(&format!(
                "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT, \
                 model_config TEXT, system_prompt TEXT, parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, \
                 end_reason TEXT, message_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0, output_tokens INTEGER \
                 DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0, cache_write_tokens INTEGER DEFAULT 0, reasoning_tokens \
                 INTEGER DEFAULT 0, api_call_count INTEGER DEFAULT 0, billing_provider TEXT, title TEXT{})",
                late(SESSION_COLUMNS)
            ))
            .await;
        built
            .run(&format!(
                "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT \
                 NULL, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, \
                 token_count INTEGER, finish_reason TEXT, reasoning TEXT, reasoning_content TEXT, reasoning_details TEXT, \
                 codex_reasoning_items TEXT, codex_message_items TEXT{})",
                late(MESSAGE_COLUMNS)
            ))
            .await;
        built.run("CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT)").await;
        built.run("CREATE TABLE compression_locks (session_id TEXT PRIMARY KEY, holder TEXT)").await;
        built.run("INSERT INTO compression_locks VALUES ('x', 'y')").await;
        if version >= 20 {
            built
                .run(
                    "CREATE TABLE session_model_usage (session_id TEXT, model TEXT, billing_provider TEXT NOT NULL DEFAULT \
                     '', task TEXT NOT NULL DEFAULT '', api_call_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0, \
                     output_tokens INTEGER DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0, cache_write_tokens INTEGER \
                     DEFAULT 0, reasoning_tokens INTEGER DEFAULT 0)",
                )
                .await;
        }
        if version >= 27 {
            built.run("CREATE TABLE system_prompts (hash TEXT PRIMARY KEY, prompt TEXT NOT NULL)").await;
        }
        if version >= 32 {
            built.run("CREATE TABLE session_admissions (seq INTEGER PRIMARY KEY, admission_id TEXT)").await;
            built.run("INSERT INTO session_admissions VALUES (1, 'a'), (2, 'b')").await;
            built.run("INSERT INTO state_meta VALUES ('store_instance_id', 'abc'), ('goal:s', '{}')").await;
        }
        built
    }

    async fn run(&mut self, sql: &str) {
        sqlx::query(sqlx::AssertSqlSafe(sql.to_owned())).execute(&mut self.conn).await.unwrap();
    }

    fn has(&self, columns: &[(i64, &str)], name: &str) -> bool {
        let late = columns.iter().find(|(_, column)| column.split(' ').next() == Some(name));
        late.is_none_or(|(since, _)| *since <= self.version)
    }

    async fn insert(&mut self, table: &str, columns: &[(i64, &str)], fields: Fields<'_>) {
        let there: Vec<_> = fields.iter().filter(|(name, _)| self.has(columns, name)).collect();
        let names: Vec<&str> = there.iter().map(|(name, _)| *name).collect();
        let values: Vec<&str> = there.iter().map(|(_, value)| value.as_str()).collect();
        self.run(&format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", "))).await;
    }

    async fn session(&mut self, id: &str, parent: Option<&str>, end: Option<&str>, more: Fields<'_>) {
        let mut fields = vec![
            ("id", quoted(id)),
            ("source", quoted("cli")),
            ("model", quoted("some-model")),
            ("billing_provider", quoted("some-provider")),
            ("parent_session_id", parent.map_or("NULL".to_owned(), quoted)),
            ("started_at", format!("{}", T0 + self.next as f64)),
            ("ended_at", end.map_or("NULL".to_owned(), |_| format!("{}", T0 + 500.0))),
            ("end_reason", end.map_or("NULL".to_owned(), quoted)),
        ];
        fields.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
        fields.extend(more.iter().cloned());
        self.insert("sessions", SESSION_COLUMNS, &fields).await;
    }

    /// A row; its number.
    async fn message(&mut self, session: &str, role: &str, content: &str, more: Fields<'_>) -> i64 {
        let mut fields = vec![
            ("session_id", quoted(session)),
            ("role", quoted(role)),
            ("content", quoted(content)),
            ("timestamp", format!("{}", T0 + self.next as f64)),
            ("active", "1".to_owned()),
        ];
        fields.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
        fields.extend(more.iter().cloned());
        self.insert("messages", MESSAGE_COLUMNS, &fields).await;
        self.next += 1;
        self.next - 1
    }

    async fn close(self) {
        self.conn.close().await.unwrap();
    }
}

fn calls(ids: &[&str]) -> (&'static str, String) {
    let one =
        |id: &&str| format!(r#"{{"id": "{id}", "function": {{"name": "terminal", "arguments": "{{\"n\": 1}}"}}}}"#);
    ("tool_calls", quoted(&format!("[{}]", ids.iter().map(one).collect::<Vec<_>>().join(", "))))
}

const COMPACTED: [(&str, &str); 2] = [("active", "0"), ("compacted", "1")];
const REWOUND: [(&str, &str); 2] = [("active", "0"), ("compacted", "0")];

fn flags(flags: [(&'static str, &str); 2], more: Vec<(&'static str, String)>) -> Vec<(&'static str, String)> {
    flags.iter().map(|(name, value)| (*name, (*value).to_owned())).chain(more).collect()
}

/// A file with everything that was seen: both shapes of compression, lost pairs, and odd values.
async fn build(path: &Path, version: i64) {
    let mut b = Built::new(path, version).await;
    // Compression in place.
    let config = quoted(r#"{"provider": "configured"}"#);
    b.session(
        "inplace",
        None,
        None,
        &[
            ("title", quoted("In place #2")),
            ("system_prompt", quoted("inline prompt")),
            ("model_config", config),
            ("archived", "1".to_owned()),
            ("pinned", "1".to_owned()),
            ("title_source", quoted("llm")),
            ("input_tokens", "7".to_owned()),
            ("api_call_count", "2".to_owned()),
        ],
    )
    .await;
    b.message("inplace", "user", "first question", &flags(COMPACTED, vec![])).await;
    b.message("inplace", "assistant", "", &flags(COMPACTED, vec![calls(&["c1"])])).await;
    b.message("inplace", "tool", "old result", &flags(COMPACTED, vec![("tool_call_id", quoted("c1"))])).await;
    b.message("inplace", "user", "undone", &flags(REWOUND, vec![])).await;
    b.message("inplace", "user", "the summary", &[("_compressed_summary", "1".to_owned())]).await;
    b.message("inplace", "assistant", "", &[calls(&["c2", "c3"])]).await;
    b.message(
        "inplace",
        "tool",
        "second",
        &[("tool_call_id", quoted("c3")), ("effect_disposition", quoted("unknown"))],
    )
    .await;
    b.message("inplace", "tool", "first", &[("tool_call_id", quoted("c2"))]).await;
    b.message(
        "inplace",
        "assistant",
        "answer",
        &[("api_content", quoted("answer as sent")), ("reasoning_details", quoted("[{\"signature\": \"s\"}]"))],
    )
    .await;
    // A chain of rotations, with a copied row, and children that are none of it.
    b.session("root", None, Some("compression"), &[("title", "NULL".to_owned())]).await;
    b.message("root", "user", "in the root", &[]).await;
    b.message("root", "assistant", "kept answer", &[("timestamp", format!("{}", T0 + 77.0))]).await;
    b.session("middle", Some("root"), Some("compression"), &[]).await;
    b.message("middle", "user", "in the middle", &[]).await;
    b.session("tip", Some("middle"), Some("agent_close"), &[("title", quoted("Rotated"))]).await;
    b.message("tip", "assistant", "kept answer", &[("timestamp", format!("{}", T0 + 77.0))]).await;
    b.message("tip", "user", "in the tip", &[]).await;
    b.session("branch", Some("root"), None, &[("model_config", quoted(r#"{"_branched_from": "root"}"#))]).await;
    b.message("branch", "user", "branched", &[]).await;
    b.session(
        "task",
        Some("inplace"),
        None,
        &[("source", quoted("subagent")), ("model_config", quoted(r#""{\"_delegate_from\": \"inplace\"}""#))],
    )
    .await;
    b.message("task", "user", "delegated", &[]).await;
    b.session("tool child", Some("root"), None, &[("source", quoted("tool"))]).await;
    b.message("tool child", "user", "of a tool", &[]).await;
    // Cycles, odd ids, odd values.
    b.session("cycle-a", Some("cycle-b"), Some("compression"), &[]).await;
    b.session("cycle-b", Some("cycle-a"), Some("compression"), &[]).await;
    b.message("cycle-b", "user", "round and round", &[]).await;
    b.session("../odd id\n", None, None, &[("title", quoted("\u{202e}odd")), ("started_at", "-5".to_owned())]).await;
    let odd = "../odd id\n";
    b.message(odd, "user", "\0json:[{\"type\": \"text\", \"text\": \"look\"}, {\"type\": \"image_url\"}]", &[]).await;
    b.message(odd, "user", "\0json:\"\\u0000json: is text\"", &[]).await;
    b.message(odd, "user", "x", &[("content", "CAST(X'6c6f6e6520eda080' AS TEXT)".to_owned())]).await;
    b.message(odd, "user", "x", &[("content", "NULL".to_owned()), ("active", "NULL".to_owned())]).await;
    b.message(odd, "user", "late", &[("timestamp", "1e300".to_owned())]).await;
    b.message(
        odd,
        "assistant",
        "",
        &[(
            "tool_calls",
            quoted(
                "\"[{\\\"id\\\": \\\"d1\\\", \\\"function\\\": {\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {}}}]\"",
            ),
        )],
    )
    .await;
    b.message(odd, "user", "interrupted", &[]).await;
    b.message(odd, "tool", "lost", &[("tool_call_id", quoted("nobody")), ("tool_name", quoted("terminal"))]).await;
    b.message(odd, "assistant", "unreadable", &[("tool_calls", quoted("{nonsense"))]).await;
    b.message(odd, "user", "with facts", &[("display_metadata", quoted("\"{\\\"k\\\": 1}\""))]).await;
    b.message(odd, "session_meta", "no place here", &[]).await;
    b.message("nobody's", "user", "without a session", &[]).await;
    if version >= 27 {
        let hash = PromptHash::of("stored prompt".as_bytes());
        b.run(&format!(
            "INSERT INTO system_prompts VALUES ('{}', 'stored prompt'), ('t', '[\"terminal\"]')",
            hash.as_str()
        ))
        .await;
        b.run(&format!(
            "UPDATE sessions SET system_prompt = NULL, system_prompt_hash = '{}', tool_names = 't' WHERE id = 'tip'",
            hash.as_str()
        ))
        .await;
    }
    if version >= 20 {
        b.run(
            "INSERT INTO session_model_usage (session_id, model, billing_provider, task, api_call_count, input_tokens) \
               VALUES ('root', 'm1', 'p', '', 3, 30), ('tip', 'm1', 'p', '', 2, 20), ('tip', 'm2', 'p', 'title', 1, 5)",
        )
        .await;
    }
    b.close().await;
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn home(&self) -> PathBuf {
        let home = self.dir.path().join("home");
        std::fs::create_dir_all(&home).unwrap();
        home
    }

    fn file(&self) -> PathBuf {
        self.home().join("state.db")
    }

    async fn store(&self) -> SqliteStore {
        let path = self.dir.path().join("ours").join("hermes.db");
        let options =
            SqliteOptions { synchronous: Synchronous::Normal, ..SqliteOptions::new(path, Arc::new(HostClock::new())) };
        SqliteStore::open(options).await.unwrap()
    }

    async fn open(&self) -> PythonStore {
        PythonStore::open(&self.home(), &self.dir.path().join("scratch")).await.unwrap()
    }

    async fn import(&self, store: &dyn TransferStore) -> ImportReport {
        let mut python = self.open().await;
        let report = python.import_into(store, "default", &mut |_| {}).await.unwrap();
        python.close().await;
        report
    }

    /// Every file of the home with its bytes.
    fn bytes(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files: Vec<_> = std::fs::read_dir(self.home())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect();
        files.sort();
        files
    }
}

fn id(name: &str) -> ConversationId {
    ConversationId::parse(name).unwrap()
}

async fn rows(store: &SqliteStore, name: &str, view: View) -> Vec<StoredMessage> {
    store.messages(&id(name), view, MessagePage::default()).await.unwrap()
}

fn texts(rows: &[StoredMessage]) -> Vec<&str> {
    rows.iter().map(|row| row.content.as_str()).collect()
}

/// Live, compacted and rewound rows in the file, counted as the Python program reads them.
const FOUND: RowCounts = RowCounts { active: 26, compacted: 3, superseded: 1 };

async fn check_version(version: i64) {
    let place = Place::new();
    build(&place.file(), version).await;
    let before = place.bytes();
    let store = place.store().await;
    let report = place.import(&store).await;
    assert_eq!(place.bytes(), before, "not a byte is written");
    assert_eq!(report.version, version);
    let found = if version >= 17 { FOUND } else { RowCounts { active: 26, compacted: 0, superseded: 4 } };
    assert_eq!(report.found, found);
    let mut counted = report.imported;
    counted.merge(report.known);
    counted.merge(report.left);
    assert_eq!(counted, report.found, "every row is accounted for");
    assert_eq!((report.left.total(), report.known.total()), (2, 0), "{report:?}");
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(report.added, 2, "{report:?}");
    assert_eq!((report.sessions, report.conversations), (10, 7), "{report:?}");
    let mut stored = RowCounts::default();
    for conversation in store.export_list(None, 100).await.unwrap() {
        let page = store.export(&conversation, None).await.unwrap();
        for part in page.parts {
            if let hermes_store::transfer::bundle::BundlePart::Row(row) = part {
                stored.add(row.state);
            }
        }
    }
    let mut want = report.imported;
    want.active += report.added;
    assert_eq!(stored, want);
    check_shapes(&store, version).await;
    // Once more: nothing.
    let again = place.import(&store).await;
    assert_eq!((again.conversations, again.same, again.known), (0, 7, report.imported), "{again:?}");
    assert_eq!(again.added, 0);
}

async fn check_shapes(store: &SqliteStore, version: i64) {
    let summary = store.conversation(&id("inplace")).await.unwrap();
    assert_eq!(summary.title.as_deref(), Some("In place #2"));
    assert_eq!(summary.flags.archived, version >= 20);
    assert_eq!(summary.flags.pinned, version >= 23);
    let source = if version >= 23 { TitleSource::Model } else { TitleSource::User };
    assert_eq!(summary.title_source, Some(source));
    let model = rows(store, "inplace", View::Model).await;
    assert_eq!(texts(&model), ["the summary", "", "first", "second", "answer"]);
    assert_eq!(model[1].calls[0].arguments, "{\"n\": 1}");
    let outcome = if version >= 20 { CallOutcome::OutcomeUnknown } else { CallOutcome::Ok };
    assert_eq!(model[3].answers.as_ref().unwrap().outcome, Some(outcome));
    if version >= 23 {
        assert_eq!(model[0].kind, MessageKind::Summary);
    }
    if version >= 20 {
        assert_eq!(model[4].api_content.as_ref().unwrap().0.as_ref(), b"answer as sent");
    }
    assert!(model[4].sidecar.is_some());
    let tip = store.session(&SessionId::parse("inplace").unwrap()).await.unwrap();
    assert_eq!(store.prompt(&tip.prompt).await.unwrap().bytes().as_ref(), b"inline prompt");
    let usage = store.usage(&id("inplace")).await.unwrap();
    assert_eq!((usage[0].requests, usage[0].input), (2, 7));

    let rotated = store.conversation(&id("root")).await.unwrap();
    assert_eq!(rotated.title.as_deref(), Some("Rotated"));
    assert_eq!(rotated.tip.as_ref().map(SessionId::as_str), Some("tip"));
    for old in ["root", "middle", "tip"] {
        assert_eq!(store.conversation_named(old).await.unwrap(), Some(id("root")), "{old}");
    }
    assert_eq!(texts(&rows(store, "root", View::Model).await), ["kept answer", "in the tip"]);
    let shown = rows(store, "root", View::Display).await;
    assert_eq!(texts(&shown), ["in the root", "kept answer", "in the middle", "in the tip"], "each row once");
    let tip = store.session(&SessionId::parse("tip").unwrap()).await.unwrap();
    assert_eq!((tip.parent.as_ref().map(SessionId::as_str), tip.ended_at_ms), (Some("middle"), None));
    let root = store.session(&SessionId::parse("root").unwrap()).await.unwrap();
    assert_eq!(root.end_reason.as_deref(), Some("compression"));
    if version >= 27 {
        assert_eq!(store.prompt(&tip.prompt).await.unwrap().bytes().as_ref(), b"stored prompt");
        assert_eq!(store.prompt(&tip.tools).await.unwrap().bytes().as_ref(), b"[\"terminal\"]");
    }
    if version >= 20 {
        let usage = store.usage(&id("root")).await.unwrap();
        let sums: Vec<_> =
            usage.iter().map(|one| (one.model.as_str(), one.task.as_str(), one.requests, one.input)).collect();
        assert_eq!(sums, [("m1", "", 5, 50), ("m2", "title", 1, 5)]);
    }
    for alone in ["branch", "task"] {
        assert_eq!(store.conversation(&id(alone)).await.unwrap().messages, 1, "{alone}");
    }
    let tool = store.conversation_named("tool child").await.unwrap().unwrap();
    assert_eq!(store.conversation(&tool).await.unwrap().source, "tool");

    let odd = store.conversation_named("../odd id\n").await.unwrap().unwrap();
    let odd = store.messages(&odd, View::Display, MessagePage::default()).await.unwrap();
    let interrupted = odd.iter().position(|row| row.content == "interrupted").unwrap();
    assert_eq!(texts(&odd[..5]), ["look\n[image_url]", "\0json: is text", &odd[2].content, "", "late"]);
    assert!(odd[2].content.starts_with("lone \u{fffd}"));
    assert_eq!(odd[4].created_at_ms, odd[3].created_at_ms);
    assert_eq!(odd[interrupted - 1].answers.as_ref().unwrap().outcome, Some(CallOutcome::OutcomeUnknown));
    assert_eq!((odd[interrupted + 1].calls.len(), texts(&odd[interrupted + 2..][..1])), (1, vec!["lost"]));
    assert!(odd.iter().all(|row| row.role != Role::Tool || row.answers.is_some()));
    assert!(odd.iter().all(|row| row.state == RowState::Active));
}

#[tokio::test]
async fn s50_version_16_is_imported_as_it_is() {
    check_version(16).await;
}

#[tokio::test]
async fn s50_version_20_is_imported_as_it_is() {
    check_version(20).await;
}

#[tokio::test]
async fn s50_version_23_is_imported_as_it_is() {
    check_version(23).await;
}

#[tokio::test]
async fn s50_version_27_is_imported_as_it_is() {
    check_version(27).await;
}

#[tokio::test]
async fn s50_version_31_is_imported_as_it_is() {
    check_version(31).await;
}

#[tokio::test]
async fn s50_version_32_is_imported_as_it_is() {
    check_version(32).await;
}

#[tokio::test]
async fn a_store_of_this_program_is_not_imported_and_the_right_commands_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("hermes.db");
    let options = SqliteOptions::new(own.clone(), Arc::new(HostClock::new()));
    SqliteStore::open(options).await.unwrap().close().await;
    // The file itself, the home that holds it, and a copy under another name.
    let copy = dir.path().join("monday.db");
    std::fs::copy(&own, &copy).unwrap();
    for (path, command) in [
        (own.as_path(), "hermes sessions export --all"),
        (dir.path(), "hermes store backup copy.db"),
        (copy.as_path(), "hermes store restore"),
    ] {
        let told = PythonStore::open(path, &dir.path().join("cache")).await.map(drop).unwrap_err().to_string();
        assert!(told.contains("a store of this program") && told.contains(command), "{told}");
    }
}

#[tokio::test]
async fn what_is_not_carried_is_told() {
    let place = Place::new();
    build(&place.file(), 32).await;
    std::fs::create_dir_all(place.home().join("cron")).unwrap();
    std::fs::write(place.home().join("cron/jobs.json"), "{}").unwrap();
    let store = place.store().await;
    let report = place.import(&store).await;
    let told = |what: &str| report.left_behind.0.get(what).copied().unwrap_or(0);
    assert_eq!((told("admissions"), told("compression locks"), told("records goal:*")), (2, 1, 1));
    assert_eq!(told("rows whose session is not there"), 1);
    assert_eq!(told("rows of the role \"session_meta\""), 1);
    assert_eq!(told("cron jobs (file cron/jobs.json)"), 1);
}

#[tokio::test]
async fn a_running_program_is_read_beside_and_what_it_adds_is_told() {
    let place = Place::new();
    build(&place.file(), 23).await;
    // The Python program is at work: its last rows are in the WAL.
    let connect = SqliteConnectOptions::new().filename(place.file());
    let mut live = connect.connect().await.unwrap();
    let insert = "INSERT INTO messages (session_id, role, content, timestamp, active) VALUES ('branch', 'user', 'live', 1700000900, 1)";
    sqlx::query(insert).execute(&mut live).await.unwrap();
    let store = place.store().await;
    assert!(place.import(&store).await.is_complete());
    assert_eq!(texts(&rows(&store, "branch", View::Model).await), ["branched", "live"]);
    sqlx::query(insert).execute(&mut live).await.unwrap();
    let again = place.import(&store).await;
    assert_eq!((again.changed, again.same), (vec!["branch".to_owned()], 6));
    assert_eq!(rows(&store, "branch", View::Model).await.len(), 2, "what is here is left alone");
    live.close().await.unwrap();
}

#[tokio::test]
async fn a_log_that_a_crash_left_is_read_from_a_copy() {
    let place = Place::new();
    let built = Place::new();
    build(&built.file(), 23).await;
    let mut live = SqliteConnectOptions::new().filename(built.file()).connect().await.unwrap();
    sqlx::query("UPDATE sessions SET title = 'in the log' WHERE id = 'branch'").execute(&mut live).await.unwrap();
    for suffix in ["", "-wal"] {
        let name = format!("state.db{suffix}");
        std::fs::copy(built.home().join(&name), place.home().join(&name)).unwrap();
    }
    live.close().await.unwrap();
    let before = place.bytes();
    let store = place.store().await;
    assert!(place.import(&store).await.is_complete());
    assert_eq!(place.bytes(), before, "not a byte is written, no file is left");
    assert_eq!(store.conversation(&id("branch")).await.unwrap().title.as_deref(), Some("in the log"));
    assert_eq!(std::fs::read_dir(place.dir.path().join("scratch")).unwrap().count(), 0);
}

#[tokio::test]
async fn other_files_are_refused_with_the_reason() {
    let place = Place::new();
    let scratch = place.dir.path().join("scratch");
    let open = async |path: &Path| PythonStore::open(path, &scratch).await;
    assert!(matches!(open(&place.home()).await, Err(StoreError::NotFound { .. })));
    std::fs::write(place.home().join("text"), "no database, but long enough to be read as one. ".repeat(50)).unwrap();
    assert!(matches!(open(&place.home().join("text")).await, Err(StoreError::Corrupt { .. })));
    for (version, want) in [(15, "HM1015"), (33, "HM1012")] {
        let path = place.home().join(format!("{version}.db"));
        Built::new(&path, version).await.close().await;
        assert_eq!(open(&path).await.unwrap_err().code(), want);
    }
    let ours = place.store().await;
    ours.close().await;
    assert!(matches!(open(&place.dir.path().join("ours/hermes.db")).await, Err(StoreError::Invalid { .. })));
}
