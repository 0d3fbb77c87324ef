//! The SQLite store: one file, several processes, every commit on the disk before it is told.
//!
//! WAL mode with `synchronous=FULL` by default. One connection writes (`writer` owns it, `write` is what a method sees of
//! it), a few read. SQL texts stand in `sql`, which PostgreSQL shares; what really differs is in `errors`, `guard`,
//! `schema` and the search.

mod clock;
mod driver;
mod errors;
mod guard;
mod index;
mod leftovers;
mod maintenance;
mod orders;
mod schema;
mod search;
#[path = "../sql/mod.rs"]
mod sql;
mod write;
mod writer;

pub(crate) use guard::check_readable;
pub use leftovers::{LeftBy, Leftover, leftovers};
pub(crate) use maintenance::is_open_elsewhere;
pub use maintenance::{RestoreReport, restore};

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, SqliteConnection, SqlitePool};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::error::StoreError;
use crate::ids::ConversationId;
use crate::limits::{BATCH_MAX_MS, PAGE_CACHE_KIB, SQLITE_BUSY_MS, STATEMENTS_MAX, WAL_KEEP_BYTES, WRITE_QUEUE_MAX};
use crate::owner::LivenessProbe;
use crate::patience::{Patience, WriteKind};
use crate::time::Clock;
use clock::FileClock;
use errors::map;
pub(crate) use errors::map as map_error;
use guard::Watch;
use write::{LOCK_WAIT_MS, WriteTx};
use writer::{Request, Requests, Writer};

/// Connections that read, unless the options say otherwise.
pub const READERS: u32 = 4;

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// The disk: an accepted input survives a power cut.
    #[default]
    Full,
    /// The operating system: survives a killed process, not a power cut. For tests and throw-away stores.
    Normal,
}

/// How to open a store.
#[derive(Clone)]
pub struct SqliteOptions {
    /// The file.
    pub path: PathBuf,
    /// What a commit waits for.
    pub synchronous: Synchronous,
    /// Most connections that read, opened when they are first needed.
    pub readers: u32,
    /// Whether to make the file, and its directory, when there is none.
    pub create: bool,
    /// The clock of ownership. One that names its host ([`Clock::host`]) is only asked for the host's clocks: the time
    /// is then that of the file, the same for all processes that have it open.
    pub clock: Arc<dyn Clock>,
    /// How the death of an owner is proved.
    pub probe: Arc<dyn LivenessProbe>,
    /// How long each kind of write waits for its turn.
    pub patience: Patience,
    /// Longest time in which writes join one COMMIT, in milliseconds.
    pub batch_ms: u64,
    /// Failures at the COMMITs of this handle, for tests.
    #[cfg(feature = "test-util")]
    pub faults: crate::fault::Faults,
}

impl std::fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("path", &self.path)
            .field("synchronous", &self.synchronous)
            .field("readers", &self.readers)
            .field("create", &self.create)
            .field("patience", &self.patience)
            .field("batch_ms", &self.batch_ms)
            .finish_non_exhaustive()
    }
}

impl SqliteOptions {
    /// The file at `path`, made when there is none, every commit on the disk, deaths proved through `/proc`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            path: path.into(),
            synchronous: Synchronous::Full,
            readers: READERS,
            create: true,
            clock,
            probe: Arc::new(crate::owner::ProcProbe::new()),
            patience: Patience::default(),
            batch_ms: BATCH_MAX_MS,
            #[cfg(feature = "test-util")]
            faults: crate::fault::Faults::default(),
        }
    }
}

/// A store in one SQLite file. Cloning gives another handle of the same connections.
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

struct Shared {
    /// To the task that writes. It ends when the last handle is dropped, and with it this end of the queue.
    queue: mpsc::Sender<Request>,
    readers: SqlitePool,
    path: PathBuf,
    patience: Patience,
    probe: Arc<dyn LivenessProbe>,
    changed: Arc<Notify>,
    commits: Arc<AtomicU64>,
    /// Search. Nothing else reads it.
    index: index::IndexFile,
    #[cfg(feature = "test-util")]
    faults: crate::fault::Faults,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens a store, and brings its file to the newest schema.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without `create`, [`StoreError::TooNew`], [`StoreError::SqliteTooOld`],
    /// [`StoreError::Corrupt`] for a file that is no database, [`StoreError::Invalid`] for a network file system or
    /// another program's database, and those of the file system.
    pub async fn open(options: SqliteOptions) -> Result<Self, StoreError> {
        let (path, create) = (options.path.clone(), options.create);
        let identity = tokio::task::spawn_blocking(move || guard::prepare(&path, create))
            .await
            .map_err(|error| StoreError::Io { detail: error.to_string() })??;
        let connect = connect_options(&options);
        let mut conn = connect.connect().await.map_err(map)?;
        bring_up(&mut conn, options.clock.as_ref()).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(options.readers.max(1))
            .min_connections(0)
            .acquire_timeout(Duration::from_millis(SQLITE_BUSY_MS))
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_lazy_with(connect.clone().read_only(true));
        let (queue, requests) = mpsc::channel(WRITE_QUEUE_MAX);
        let changed = Arc::new(Notify::new());
        let commits = Arc::new(AtomicU64::new(0));
        let watch = Watch::begin(&options.path, identity, &readers).await?;
        watch.stand_by(&mut conn).await?;
        let writer = Writer {
            requests: Requests::new(requests),
            connect,
            watch,
            clock: Arc::new(FileClock::new(options.clock)),
            changed: Arc::clone(&changed),
            commits: Arc::clone(&commits),
            batch_ms: options.batch_ms,
        };
        // Owned through its queue: it ends with the last handle, or by `close`.
        drop(tokio::spawn(writer.run(conn)));
        let shared = Shared {
            index: index::IndexFile::beside(&options.path),
            queue,
            readers,
            path: options.path,
            patience: options.patience,
            probe: options.probe,
            changed,
            commits,
            #[cfg(feature = "test-util")]
            faults: options.faults,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Ends all writes that were begun, and closes all connections; later writes are refused. A store that is dropped
    /// instead loses nothing; the next start only has more to read.
    pub async fn close(&self) {
        self.shared.index.close().await;
        self.shared.readers.close().await;
        let (done, closed) = oneshot::channel();
        if self.shared.queue.send(Request::Close(done)).await.is_ok() {
            // An error says that the writer has ended already.
            let _ = closed.await;
        }
    }

    /// COMMITs of this handle's writer so far. Fewer than writes when several share one.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// Connections that read.
    fn readers(&self) -> &SqlitePool {
        &self.shared.readers
    }

    /// How deaths are proved.
    fn probe(&self) -> Arc<dyn LivenessProbe> {
        Arc::clone(&self.shared.probe)
    }

    /// Told of every change that this process makes.
    fn changed(&self, _: &ConversationId) -> &Notify {
        &self.shared.changed
    }

    /// A write of the transcript, of an input or a turn.
    async fn write(&self) -> Result<WriteTx, StoreError> {
        self.write_within(WriteKind::Transcript).await
    }

    /// A write with the patience of its kind.
    async fn write_within(&self, kind: WriteKind) -> Result<WriteTx, StoreError> {
        WriteTx::begin(Arc::clone(&self.shared), kind).await
    }
}

fn connect_options(options: &SqliteOptions) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(&options.path)
        .foreign_keys(true)
        .busy_timeout(Duration::from_millis(LOCK_WAIT_MS))
        .statement_cache_capacity(STATEMENTS_MAX)
        // No COMMIT does the work of a checkpoint: the writer has somebody for it.
        .pragma("wal_autocheckpoint", "0")
        .pragma("cache_size", format!("-{PAGE_CACHE_KIB}"))
        .pragma("journal_size_limit", WAL_KEEP_BYTES.to_string())
        .synchronous(match options.synchronous {
            Synchronous::Full => SqliteSynchronous::Full,
            Synchronous::Normal => SqliteSynchronous::Normal,
        })
}

/// Refuses what this program must not touch, and brings the file to the newest schema.
async fn bring_up(conn: &mut SqliteConnection, clock: &dyn Clock) -> Result<(), StoreError> {
    let status = schema::status(conn).await?;
    guard::check_version(&status.sqlite)?;
    schema::check_known(status.version, status.objects)?;
    if !status.is_wal {
        schema::use_wal(conn).await?;
    }
    if status.version < sql::schema::known() {
        schema::migrate(conn, clock.now_ms()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{AdmissionStatus, Intent, NewAdmission};
    use crate::ids::{AdmissionId, ConversationId, OwnerId};
    use crate::session::NewConversation;
    use crate::time::ManualClock;
    use crate::traits::{AdmissionStore as _, SessionStore as _};

    fn new() -> NewConversation {
        NewConversation {
            id: ConversationId::parse("c").unwrap(),
            profile: "p".to_owned(),
            source: "s".to_owned(),
            title: None,
        }
    }

    fn input(number: usize, payload: String) -> NewAdmission {
        NewAdmission {
            id: AdmissionId::parse(&format!("a{number}")).unwrap(),
            conversation: ConversationId::parse("c").unwrap(),
            principal: "me".to_owned(),
            request_id: format!("r{number}"),
            intent: Intent::Queue,
            payload,
            submitted_by: OwnerId::parse("o").unwrap(),
        }
    }

    async fn pragma(store: &SqliteStore, text: &'static str) {
        let mut tx = store.write().await.unwrap();
        sqlx::query(text).execute(tx.conn()).await.unwrap();
        tx.rollback().await.unwrap();
    }

    async fn open(dir: &tempfile::TempDir) -> SqliteStore {
        SqliteStore::open(SqliteOptions::new(dir.path().join("hermes.db"), Arc::new(ManualClock::at(1)))).await.unwrap()
    }

    #[tokio::test]
    async fn d2_a_full_disk_loses_nothing_that_was_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir).await;
        store.create_and_admit(new(), input(0, "first".to_owned())).await.unwrap();
        // SQLite says "full" at its own limit of pages as it does when the disk is.
        pragma(&store, "PRAGMA max_page_count = 64").await;
        let mut accepted = 1;
        let refused = loop {
            match store.admit(input(accepted, "x".repeat(40_000))).await {
                Ok(_) => accepted += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, StoreError::Full), "{refused:?}");
        assert_eq!(store.queue(&ConversationId::parse("c").unwrap()).await.unwrap().len(), accepted);
        // Space was freed. (A connection that met the error is opened anew, with SQLite's ordinary limit.)
        pragma(&store, "PRAGMA max_page_count = 100000").await;
        store.admit(input(accepted, "x".repeat(40_000))).await.unwrap();
    }

    #[tokio::test]
    async fn a_read_only_database_says_so_and_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir).await;
        store.create_and_admit(new(), input(0, "first".to_owned())).await.unwrap();
        pragma(&store, "PRAGMA query_only = ON").await;
        let refused = store.admit(input(1, "second".to_owned())).await;
        assert!(matches!(refused, Err(StoreError::ReadOnly { .. })), "{refused:?}");
        let first = store.admission(&AdmissionId::parse("a0").unwrap()).await.unwrap();
        assert_eq!(first.receipt.status, AdmissionStatus::Queued);
    }

    #[tokio::test]
    async fn every_commit_waits_for_the_disk_unless_told_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hermes.db");
        for (synchronous, want) in [(Synchronous::Full, 2_i64), (Synchronous::Normal, 1)] {
            let options = SqliteOptions { synchronous, ..SqliteOptions::new(&path, Arc::new(ManualClock::at(1))) };
            let store = SqliteStore::open(options).await.unwrap();
            let mut tx = store.write().await.unwrap();
            let found: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(tx.conn()).await.unwrap();
            let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(tx.conn()).await.unwrap();
            assert_eq!((found, mode.as_str()), (want, "wal"));
        }
    }

    #[tokio::test]
    async fn a_dropped_write_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir).await;
        store.create_and_admit(new(), input(0, "first".to_owned())).await.unwrap();
        {
            let mut tx = store.write().await.unwrap();
            sqlx::query("DELETE FROM admissions").execute(tx.conn()).await.unwrap();
        }
        assert!(store.admission(&AdmissionId::parse("a0").unwrap()).await.is_ok());
        store.admit(input(1, "second".to_owned())).await.unwrap();
    }
}
