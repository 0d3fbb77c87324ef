//! Opens another program's database without touching it.
//!
//! Not a byte of it is written, and no lock is taken that would make a running Python program wait:
//!
//! | found | opened |
//! |---|---|
//! | a WAL that another process has open | as it is, read only: readers and the writer do not wait for each other |
//! | no WAL, or an empty one | as something that does not change; a change while it is read is noticed, and the rest is left for the next run |
//! | a WAL or a rollback journal that nobody has open (a crash, a copy) | a copy in our own directory, which SQLite may mend |
//! | no WAL mode, another process at work | as it is, in short reads; a change during a conversation is noticed |

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};

use crate::error::StoreError;

/// How long a read waits for a lock of the Python program.
const LOCK_WAIT_MS: u64 = 5_000;
/// Where a database file says how it is written: 2 is WAL.
const WRITE_VERSION_AT: u64 = 18;

/// How the file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Together with a writer, each conversation in one snapshot.
    Live,
    /// Together with a writer that waits for readers: no snapshot is held.
    Brief,
    /// As something that does not change.
    Still,
    /// A copy of ours.
    Copy,
}

/// A directory that goes when it is not needed any more.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays in the cache directory, where it may be deleted at any time.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a file looked like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    inode: u64,
    size: u64,
    mtime: (i64, i64),
}

fn look(path: &Path) -> Option<Look> {
    let found = std::fs::metadata(path).ok()?;
    Some(Look { inode: found.ino(), size: found.len(), mtime: (found.mtime(), found.mtime_nsec()) })
}

/// The files of a database as they were when it was opened.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    path: PathBuf,
    file: Option<Look>,
    wal: Option<Look>,
}

impl Watch {
    fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), file: look(path), wal: look(&beside(path, "-wal")) }
    }

    /// Fails when somebody wrote since. Blocks.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let now = Self::of(&self.path);
        let wal_size = |wal: Option<Look>| wal.map_or(0, |wal| wal.size);
        if now.file == self.file && wal_size(now.wal) == wal_size(self.wal) {
            return Ok(());
        }
        Err(StoreError::Retryable {
            detail: "the Python program has begun to write; run the import again, it goes on where it stopped"
                .to_owned(),
        })
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn io(path: &Path, error: &std::io::Error) -> StoreError {
    match error.kind() {
        std::io::ErrorKind::NotFound => StoreError::NotFound { what: format!("{}", path.display()) },
        std::io::ErrorKind::StorageFull => StoreError::Full,
        _ => StoreError::Io { detail: format!("{}: {error}", path.display()) },
    }
}

fn is_wal_file(path: &Path) -> Result<bool, StoreError> {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::open(path).map_err(|error| io(path, &error))?;
    let mut head = [0_u8; 1];
    match file.read_exact_at(&mut head, WRITE_VERSION_AT) {
        Ok(()) => Ok(head[0] == 2),
        // An empty file is an empty database; the reader tells that it has no tables.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(io(path, &error)),
    }
}

fn copy_to(path: &Path, scratch: &Path) -> Result<(Scratch, PathBuf), StoreError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let directory = scratch.join(format!("import-{}", uuid::Uuid::now_v7().simple()));
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&directory).map_err(|error| io(&directory, &error))?;
    let held = Scratch(directory.clone());
    let to = directory.join("state.db");
    for suffix in ["", "-wal", "-journal"] {
        let (from, to) = (beside(path, suffix), beside(&to, suffix));
        match std::fs::copy(&from, &to) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !suffix.is_empty() => {}
            Err(error) => return Err(io(&from, &error)),
        }
    }
    Ok((held, to))
}

/// What was opened.
pub(super) struct Opened {
    pub(super) conn: SqliteConnection,
    pub(super) access: Access,
    pub(super) watch: Watch,
    pub(super) scratch: Option<Scratch>,
}

struct Plan {
    access: Access,
    watch: Watch,
    at: PathBuf,
    scratch: Option<Scratch>,
}

fn plan(path: &Path, scratch: &Path) -> Result<Plan, StoreError> {
    crate::sqlite::check_readable(path)?;
    let watch = Watch::of(path);
    let size = |suffix: &str| look(&beside(path, suffix)).map_or(0, |found| found.size);
    let here = |access| Ok(Plan { access, watch: watch.clone(), at: path.to_owned(), scratch: None });
    if is_wal_file(path)? {
        if crate::sqlite::is_open_elsewhere(path) {
            return here(Access::Live);
        }
        if size("-wal") == 0 {
            return here(Access::Still);
        }
    } else if size("-journal") == 0 {
        return here(Access::Brief);
    }
    let (held, at) = copy_to(path, scratch)?;
    // A copy of something that changed meanwhile is a copy of nothing.
    watch.check()?;
    Ok(Plan { access: Access::Copy, watch, at, scratch: Some(held) })
}

/// Opens the database at `path`. `scratch` is a directory of ours.
pub(super) async fn open(path: &Path, scratch: &Path) -> Result<Opened, StoreError> {
    let (path, scratch) = (path.to_owned(), scratch.to_owned());
    let plan = tokio::task::spawn_blocking(move || plan(&path, &scratch))
        .await
        .map_err(|error| StoreError::Io { detail: error.to_string() })??;
    let connect = SqliteConnectOptions::new()
        .filename(&plan.at)
        .read_only(plan.access != Access::Copy)
        .immutable(plan.access == Access::Still)
        .busy_timeout(Duration::from_millis(LOCK_WAIT_MS))
        .foreign_keys(false);
    let conn = connect.connect().await.map_err(super::map)?;
    Ok(Opened { conn, access: plan.access, watch: plan.watch, scratch: plan.scratch })
}
