//! The search index as a file: damaged, locked, missing, of another version. No conversation notices (S48, I27).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code outside test functions")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::{
    AdmissionStore as _, ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, Fence, HostClock, IdSource,
    IndexState, LeaseStore as _, MessageId, MessagePage, NewMessage, NewSession, PromptSnapshot, Role, SearchPage,
    SearchQuery, SearchStore as _, StoreError, TranscriptStore as _, TurnId, UuidIds, View,
};
use sqlx::ConnectOptions as _;

struct World {
    dir: tempfile::TempDir,
    store: SqliteStore,
    fence: Fence,
    turn: TurnId,
}

fn conversation() -> ConversationId {
    ConversationId::parse("c").unwrap()
}

async fn open(path: &Path) -> SqliteStore {
    let options =
        SqliteOptions { synchronous: Synchronous::Normal, ..SqliteOptions::new(path, Arc::new(HostClock::new())) };
    SqliteStore::open(options).await.unwrap()
}

async fn search(store: &SqliteStore, text: &str) -> SearchPage {
    store.search(SearchQuery { limit: 200, ..SearchQuery::text(text) }).await.unwrap()
}

impl World {
    /// A store with an open turn and some rows, all of them indexed.
    async fn new(rows: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir.path().join("hermes.db")).await;
        store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
        let turn = (&UuidIds as &dyn IdSource).turn();
        let request = ClaimRequest {
            conversation: conversation(),
            owner: owner("o"),
            turn,
            ttl_ms: 300_000,
            policy: ClaimPolicy::Any,
        };
        let ClaimOutcome::Turn { fence, admission, .. } = store.claim(request).await.unwrap() else {
            panic!("no turn")
        };
        let turn = admission.receipt.turn.unwrap();
        let session = NewSession {
            id: conversation().first_session(),
            parent: None,
            provider: "p".to_owned(),
            model: "m".to_owned(),
            cwd: None,
            prompt: PromptSnapshot::new(&b"prompt"[..]),
            tools: PromptSnapshot::new(&b"[]"[..]),
        };
        store.open_session(&fence, &turn, session, vec![]).await.unwrap();
        let world = Self { dir, store, fence, turn };
        for first in (0..rows).step_by(100) {
            world.say(first..rows.min(first + 100)).await;
        }
        while !world.store.index_step(1_000).await.unwrap().is_done {}
        world
    }

    async fn say(&self, numbers: std::ops::Range<usize>) {
        let row = |number: usize| {
            let id = MessageId::parse(&format!("m{number}")).unwrap();
            NewMessage::text(id, Role::User, format!("needle {number} in some hay {}", "hay ".repeat(number % 50)))
        };
        self.store.append(&self.fence, &self.turn, numbers.map(row).collect(), None).await.unwrap();
    }

    fn index(&self) -> PathBuf {
        self.dir.path().join("hermes-search.db")
    }

    /// Turns go on, and everything that was said can be read, whatever the index is like.
    async fn conversations_are_well(&self, rows: usize) {
        let number = rows;
        self.say(number..number + 1).await;
        let page = MessagePage { limit: 10_000, ..MessagePage::default() };
        let found = self.store.messages(&conversation(), View::Model, page).await.unwrap();
        assert_eq!(found.len(), rows + 1);
    }
}

/// What befalls a file.
type Harm = fn(&Path);

fn overwrite(path: &Path, from: usize, to: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let end = to.min(bytes.len());
    bytes[from.min(end)..end].fill(0xa5);
    std::fs::write(path, bytes).unwrap();
}

/// The log is written back first, so that the harm is in what is read.
fn harms() -> [(&'static str, Harm); 7] {
    [
        ("its head is overwritten", |path| overwrite(path, 0, 100)),
        ("its first page is overwritten behind the head", |path| overwrite(path, 100, 4_096)),
        ("all pages but the first are overwritten", |path| overwrite(path, 4_096, usize::MAX)),
        ("a part in the middle is overwritten", |path| {
            let length = usize::try_from(std::fs::metadata(path).unwrap().len()).unwrap();
            overwrite(path, length / 4, length * 3 / 4);
        }),
        ("it is cut in half", |path| {
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        }),
        ("it is a text", |path| std::fs::write(path, "this is no database\n".repeat(1_000)).unwrap()),
        ("it is a directory", |path| {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i27_s48_a_damaged_index_harms_no_conversation_and_is_built_anew() {
    for (what, harm) in harms() {
        let world = World::new(300).await;
        world.store.close().await;
        harm(&world.index());
        let store = open(&world.dir.path().join("hermes.db")).await;
        let world = World { store, ..world };
        world.conversations_are_well(300).await;
        // Found with an index or without, and never a wrong row; damage that no page of the search met is not noticed.
        let page = search(&world.store, "needle 299").await;
        assert!(page.hits.iter().all(|hit| hit.message.as_str() == "m299"), "{what}: {page:?}");
        if page.index == IndexState::Unusable {
            assert_eq!(page.hits.len(), 1, "{what}: looked through row by row");
        }
        let _ = world.store.index_step(1_000).await;
        world.store.index_status().await.unwrap();
        if what == "it is a directory" {
            // This one is no index of ours to remove.
            assert!(matches!(world.store.rebuild_index().await, Err(StoreError::SearchIndex { .. })));
            std::fs::remove_dir(world.index()).unwrap();
        }
        world.store.rebuild_index().await.unwrap();
        while !world.store.index_step(100).await.unwrap().is_done {}
        let page = search(&world.store, "needle 300").await;
        assert_eq!((page.hits.len(), page.index, page.pending), (1, IndexState::Ready, 0), "{what}");
        assert_eq!(world.store.index_status().await.unwrap().rows, 301, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s48_an_index_damaged_under_a_running_store_harms_no_conversation() {
    let world = World::new(300).await;
    overwrite(&world.index(), 0, usize::MAX);
    world.conversations_are_well(300).await;
    let page = search(&world.store, "needle 299").await;
    assert!(page.hits.iter().all(|hit| hit.message.as_str() == "m299"), "{page:?}");
    world.store.rebuild_index().await.unwrap();
    while !world.store.index_step(1_000).await.unwrap().is_done {}
    assert_eq!(search(&world.store, "needle 300").await.hits.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s48_a_deleted_index_is_begun_anew() {
    let world = World::new(50).await;
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", world.index().display()));
    }
    world.conversations_are_well(50).await;
    let page = search(&world.store, "needle 50").await;
    assert_eq!((page.hits.len(), page.index), (1, IndexState::Ready));
    assert_eq!(search(&world.store, "needle").await.hits.len(), 51);
}

async fn run_sql(path: &Path, sql: &'static str) {
    use sqlx::Connection as _;
    let mut conn = sqlx::sqlite::SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    sqlx::query(sql).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_of_another_version_another_store_or_another_time_is_thrown_away() {
    for sql in [
        "PRAGMA user_version = 99",
        "UPDATE meta SET stamp = 'of another store'",
        "UPDATE meta SET steps = 0; DELETE FROM words; DELETE FROM docs",
    ] {
        let world = World::new(50).await;
        world.store.close().await;
        run_sql(&world.index(), sql).await;
        let store = open(&world.dir.path().join("hermes.db")).await;
        assert_eq!(search(&store, "needle").await.hits.len(), 50, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s48_a_locked_index_harms_no_conversation() {
    use sqlx::Connection as _;
    let world = World::new(50).await;
    let mut other = sqlx::sqlite::SqliteConnectOptions::new().filename(world.index()).connect().await.unwrap();
    let lock = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    world.conversations_are_well(50).await;
    let page = search(&world.store, "needle").await;
    assert_eq!(page.hits.len(), 50, "what is indexed is found");
    assert_eq!(page.pending, 1, "and it is said that something is missing");
    assert!(matches!(world.store.index_step(100).await, Err(StoreError::Busy { .. })));
    lock.rollback().await.unwrap();
    assert_eq!(search(&world.store, "needle").await.hits.len(), 51);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_on_one_file_share_an_index() {
    let world = World::new(20).await;
    let other = open(&world.dir.path().join("hermes.db")).await;
    for number in 20..60 {
        world.say(number..number + 1).await;
        let store = if number % 2 == 0 { &world.store } else { &other };
        assert_eq!(search(store, &format!("\"needle {number}\"")).await.hits.len(), 1, "{number}");
        if number == 40 {
            other.rebuild_index().await.unwrap();
        }
    }
    let (a, b) = tokio::join!(search(&world.store, "needle"), search(&other, "needle"));
    assert_eq!((a.hits.len(), b.hits.len()), (60, 60));
}
