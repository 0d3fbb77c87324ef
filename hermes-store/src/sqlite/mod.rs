//! The SQLite store: one file, several processes, every commit on the disk before it is told.
//!
//! WAL mode with `synchronous=FULL` by default. One connection writes ([`write`]), a few read. SQL texts stand as
//! constants beside the methods that use them, with `$N` parameters and no SQLite speciality beyond `INSERT ... ON
//! CONFLICT` and `RETURNING`, which PostgreSQL shares; what really differs is in [`errors`], [`guard`], [`schema`] and
//! the search.

mod admissions;
mod errors;
mod guard;
mod leases;
mod read;
mod schema;
mod search;
mod sessions;
mod transcript;
mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};
use tokio::sync::Notify;

use crate::error::StoreError;
use crate::limits::SQLITE_BUSY_MS;
use crate::owner::LivenessProbe;
use crate::time::Clock;
use errors::map;
use guard::Identity;
use write::{LOCK_WAIT_MS, WriteTx};

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
    /// The clock of ownership.
    pub clock: Arc<dyn Clock>,
    /// How the death of an owner is proved.
    pub probe: Arc<dyn LivenessProbe>,
}

impl std::fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("path", &self.path)
            .field("synchronous", &self.synchronous)
            .field("readers", &self.readers)
            .field("create", &self.create)
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
        }
    }
}

/// A store in one SQLite file. Cloning gives another handle of the same connections.
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

struct Shared {
    writer: SqlitePool,
    readers: SqlitePool,
    path: PathBuf,
    identity: Identity,
    clock: Arc<dyn Clock>,
    probe: Arc<dyn LivenessProbe>,
    changed: Notify,
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
        let connect = SqliteConnectOptions::new()
            .filename(&options.path)
            .foreign_keys(true)
            .busy_timeout(Duration::from_millis(LOCK_WAIT_MS))
            .synchronous(match options.synchronous {
                Synchronous::Full => SqliteSynchronous::Full,
                Synchronous::Normal => SqliteSynchronous::Normal,
            });
        let pool = || {
            SqlitePoolOptions::new()
                .min_connections(0)
                .acquire_timeout(Duration::from_millis(SQLITE_BUSY_MS))
                .idle_timeout(None)
                .max_lifetime(None)
                .test_before_acquire(false)
        };
        let shared = Shared {
            writer: pool().max_connections(1).connect_lazy_with(connect.clone()),
            readers: pool().max_connections(options.readers.max(1)).connect_lazy_with(connect.read_only(true)),
            path: options.path,
            identity,
            clock: options.clock,
            probe: options.probe,
            changed: Notify::new(),
        };
        let store = Self { shared: Arc::new(shared) };
        store.bring_up().await?;
        Ok(store)
    }

    async fn bring_up(&self) -> Result<(), StoreError> {
        let mut conn = self.shared.writer.acquire().await.map_err(map)?;
        let status = schema::status(&mut conn).await?;
        guard::check_version(&status.sqlite)?;
        schema::check_known(status.version, status.objects)?;
        if !status.is_wal {
            schema::use_wal(&mut conn).await?;
        }
        if status.version < schema::known() {
            schema::migrate(&mut conn, self.shared.clock.now_ms()).await?;
        }
        Ok(())
    }

    /// Closes all connections. A store that is dropped instead loses nothing; the next start only has more to read.
    pub async fn close(&self) {
        self.shared.readers.close().await;
        self.shared.writer.close().await;
    }

    fn now(&self) -> i64 {
        self.shared.clock.now_ms()
    }

    async fn write(&self) -> Result<WriteTx<'_>, StoreError> {
        WriteTx::begin(&self.shared).await
    }
}
