//! Is this still the file that was opened, and may SQLite's WAL mode be used on it at all?
//!
//! A store is three files: the database, and beside it the log (`-wal`), in which a commit stands until it is moved over,
//! and the index of the log with the locks of all processes (`-shm`). A process that has one of them open goes on to
//! write into it when its name is gone or leads elsewhere; what it commits then is nobody's, and two processes that
//! look into different ones damage the file. [`Watch`] looks in every COMMIT, on the thread of the connection and before
//! a page of it is written, and turns it into a rollback.

use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::{SqliteConnection, SqlitePool};

use super::errors::map;
use crate::error::StoreError;

/// Only the user may read what was said.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// The oldest SQLite without the WAL-reset bug.
const OLDEST_SQLITE: (u32, u32, u32) = (3, 51, 3);

/// Which file a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(metadata: &std::fs::Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

fn io(path: &Path, error: &std::io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::NotFound => StoreError::NotFound { what: format!("the database {}", path.display()) },
        ErrorKind::StorageFull => StoreError::Full,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            StoreError::ReadOnly { detail: format!("{}: {error}", path.display()) }
        }
        _ => StoreError::Io { detail: format!("{}: {error}", path.display()) },
    }
}

/// Makes the file (and its directory) when `create` says so, checks the file system, and returns the file's identity.
/// The file is never opened here once it exists: closing a second descriptor of it would drop SQLite's locks.
///
/// Blocks; call it on a blocking thread.
pub(super) fn prepare(path: &Path, create: bool) -> Result<Identity, StoreError> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound && create => {
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                let mut builder = std::fs::DirBuilder::new();
                builder.recursive(true).mode(DIRECTORY_MODE).create(parent).map_err(|error| io(parent, &error))?;
            }
            let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path);
            match made {
                Ok(_file) => {}
                // Another process was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io(path, &error)),
            }
            std::fs::metadata(path).map_err(|error| io(path, &error))?
        }
        Err(error) => return Err(io(path, &error)),
    };
    if !metadata.is_file() {
        return Err(StoreError::Invalid { detail: format!("{} is not a file", path.display()) });
    }
    refuse_network(path)?;
    Ok(Identity::of(&metadata))
}

/// Fails when the path no longer leads to the file that was opened (D1): what SQLite would write is nobody's any more.
pub(super) async fn check(path: PathBuf, opened: Identity) -> Result<(), StoreError> {
    match tokio::fs::metadata(&path).await {
        Ok(metadata) if Identity::of(&metadata) == opened => Ok(()),
        Ok(_) => Err(StoreError::Replaced),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(StoreError::Replaced),
        Err(error) => Err(io(&path, &error)),
    }
}

/// The databases that this process has open, once for each handle.
static OPEN_HERE: Mutex<Vec<Identity>> = Mutex::new(Vec::new());

/// One entry of [`OPEN_HERE`], as long as it lives.
#[derive(Debug)]
struct OpenHere(Identity);

impl OpenHere {
    fn new(opened: Identity) -> Self {
        OPEN_HERE.lock().unwrap_or_else(PoisonError::into_inner).push(opened);
        Self(opened)
    }
}

impl Drop for OpenHere {
    fn drop(&mut self) {
        let mut open = OPEN_HERE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = open.iter().position(|other| *other == self.0) {
            open.swap_remove(at);
        }
    }
}

/// Refuses to read a file by hand that is no regular one (a pipe would be waited for without end), or that is a store
/// which this process has open: to close a second descriptor of it would end the locks by which other processes know,
/// and the last of those would take its log away. Blocks.
pub(crate) fn check_readable(path: &Path) -> Result<(), StoreError> {
    let found = std::fs::metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => StoreError::NotFound { what: path.display().to_string() },
        _ => io(path, &error),
    })?;
    if !found.is_file() {
        return Err(StoreError::Invalid { detail: format!("{} is not a file", path.display()) });
    }
    if OPEN_HERE.lock().unwrap_or_else(PoisonError::into_inner).contains(&Identity::of(&found)) {
        return Err(StoreError::Invalid {
            detail: format!("{} is a store that this process has open; it is no export", path.display()),
        });
    }
    Ok(())
}

/// The three files of an open store, as they were when it was opened.
///
/// SQLite removes log and index when the last connection of all processes is closed. While this is in use, one of the
/// readers stays open, so that it does not: what is gone was taken by somebody else.
#[derive(Debug)]
pub(super) struct Watch {
    files: [(PathBuf, Identity); 3],
    /// Whether a name of the log or its index was found to lead to another file.
    is_foreign: AtomicBool,
    /// Why the last COMMIT was turned into a rollback.
    refusal: Mutex<Option<StoreError>>,
    _open: OpenHere,
}

/// Makes a connection open the log, at the price of one look at the schema.
const LOOK: &str = "SELECT COUNT(*) FROM sqlite_master WHERE name = 'schema_version'";

impl Watch {
    /// Watches the database at `path`, which was `opened`, and what stands beside it. `readers` get their first
    /// connection, and keep it.
    ///
    /// # Errors
    /// [`StoreError::Replaced`] when that happened since it was opened, and those of the database.
    pub(super) async fn begin(path: &Path, opened: Identity, readers: &SqlitePool) -> Result<Arc<Self>, StoreError> {
        let _: i64 = sqlx::query_scalar(LOOK).fetch_one(readers).await.map_err(map)?;
        let path = path.to_owned();
        let look = tokio::task::spawn_blocking(move || {
            let beside = |suffix: &str| {
                let mut name = path.clone().into_os_string();
                name.push(suffix);
                let path = PathBuf::from(name);
                let identity = identity(&path)?.ok_or(StoreError::Replaced)?;
                Ok::<_, StoreError>((path, identity))
            };
            let [wal, shm] = [beside("-wal")?, beside("-shm")?];
            let is_foreign = AtomicBool::new(false);
            let files = [(path, opened), wal, shm];
            let watch = Self { files, is_foreign, refusal: Mutex::new(None), _open: OpenHere::new(opened) };
            watch.look()?;
            Ok(Arc::new(watch))
        });
        look.await.map_err(|error| StoreError::Io { detail: error.to_string() })?
    }

    /// Fails when a name no longer leads to the file that was opened (D1, S49).
    pub(super) async fn check(self: &Arc<Self>) -> Result<(), StoreError> {
        let watch = Arc::clone(self);
        let look = tokio::task::spawn_blocking(move || watch.look());
        look.await.map_err(|error| StoreError::Io { detail: error.to_string() })?
    }

    /// Lets no COMMIT of this connection pass after a name leads elsewhere.
    ///
    /// Three calls of stat(2) on the thread that SQLite works on anyway cost a few microseconds; the same look from a
    /// thread of its own, beside the COMMIT, cost half a commit on two cores.
    ///
    /// # Errors
    /// Those of the connection.
    pub(super) async fn stand_by(self: &Arc<Self>, conn: &mut SqliteConnection) -> Result<(), StoreError> {
        let watch = Arc::clone(self);
        let mut handle = conn.lock_handle().await.map_err(map)?;
        handle.set_commit_hook(move || match watch.look() {
            Ok(()) => true,
            Err(error) => {
                *watch.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                false
            }
        });
        Ok(())
    }

    /// Why the COMMIT that failed just now was refused, if it was by [`Watch::stand_by`].
    pub(super) fn refusal(&self) -> Option<StoreError> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn look(&self) -> Result<(), StoreError> {
        let mut is_same = true;
        for (number, (path, opened)) in self.files.iter().enumerate() {
            match identity(path)? {
                Some(found) if found == *opened => {}
                Some(_) if number > 0 => {
                    self.is_foreign.store(true, Ordering::Relaxed);
                    is_same = false;
                }
                _ => is_same = false,
            }
        }
        if is_same { Ok(()) } else { Err(StoreError::Replaced) }
    }

    /// Keeps a connection from being closed when a close would do harm, and says whether it would. To be called after
    /// a look found something.
    ///
    /// The last close moves the log into the file and removes it by its name. When log and index are merely gone, moving
    /// saves what was committed: nobody else has opened the store since, or there would be new ones. When there are
    /// new ones, it would write old pages over newer ones. Then this connection stays, and with it its hold on the
    /// file, until the process ends; there is at most one, since none is opened any more.
    pub(super) fn spare<T>(&self, conn: &Arc<T>) -> bool {
        let is_foreign = self.is_foreign.load(Ordering::Relaxed);
        if is_foreign {
            std::mem::forget(Arc::clone(conn));
        }
        is_foreign
    }
}

/// Which file a path leads to; `None` when to none. Blocks.
fn identity(path: &Path) -> Result<Option<Identity>, StoreError> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(Identity::of(&metadata))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io(path, &error)),
    }
}

/// WAL needs shared memory and working locks, which these do not give to two hosts.
#[cfg(target_os = "linux")]
fn refuse_network(path: &Path) -> Result<(), StoreError> {
    let found = nix::sys::statfs::statfs(path).map_err(|error| StoreError::Io {
        detail: format!("{}: the file system cannot be asked: {error}", path.display()),
    })?;
    // The kernel's number has 32 bits, whatever the type of the field on this machine.
    #[expect(clippy::cast_sign_loss, reason = "a bit pattern, cut to its 32 bits")]
    let magic = (found.filesystem_type().0 as u64) & 0xffff_ffff;
    judge(path, magic)
}

/// What is said of a file system with this magic number.
#[cfg(target_os = "linux")]
fn judge(path: &Path, magic: u64) -> Result<(), StoreError> {
    /// (magic number of statfs(2), name), from linux/magic.h and the file systems' own sources.
    const REFUSED: [(u64, &str); 16] = [
        (0x6969, "NFS"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x517b, "SMB"),
        (0x5346_414f, "AFS"),
        (0x6b41_4653, "AFS"),
        (0x7375_7245, "Coda"),
        (0x00c3_6400, "Ceph"),
        (0x0bd0_0bd0, "Lustre"),
        (0x7461_636f, "OCFS2"),
        (0x0116_1970, "GFS2"),
        // What looks like a local disk and is a host's: WAL was damaged there within a minute (reference, 7 and 8.2).
        (0x6573_5546, "FUSE or virtiofs"),
        (0x0102_1997, "9p"),
        (0x786f_4256, "a shared folder of VirtualBox"),
        (0xbacb_acbc, "a shared folder of VMware"),
        (0x7c7c_6673, "a shared folder of Parallels"),
    ];
    /// The Python program keeps WAL away from it (reference, 7). It is local and has both locks and shared memory, and
    /// there are computers that have nothing else: a warning with a way out.
    const ZFS: u64 = 0x2fc1_2fc1;
    if let Some((_, name)) = REFUSED.iter().find(|(number, _)| *number == magic) {
        return Err(StoreError::Invalid {
            detail: format!(
                "{} is on a network file system ({name}), where SQLite can be damaged; put it on a local disk, or keep \
                 the store in PostgreSQL",
                path.display()
            ),
        });
    }
    if magic == ZFS {
        tracing::warn!(
            "{} is on ZFS, where SQLite's log mode is not trusted by all; keep backups, and should the store ever be \
             found damaged, put it on another file system (ext4, XFS) or into PostgreSQL",
            path.display()
        );
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn refuse_network(_path: &Path) -> Result<(), StoreError> {
    Ok(())
}

/// Refuses a SQLite with the WAL-reset bug.
pub(super) fn check_version(found: &str) -> Result<(), StoreError> {
    let mut parts = found.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    let version = (next(), next(), next());
    if version < OLDEST_SQLITE {
        return Err(StoreError::SqliteTooOld { found: found.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sqlite_with_the_wal_reset_bug_is_refused() {
        for bad in ["3.51.2", "3.50.9", "3.7.0", "2.8.17", ""] {
            assert!(matches!(check_version(bad), Err(StoreError::SqliteTooOld { .. })), "{bad}");
        }
        for good in ["3.51.3", "3.52.0", "4.0.0"] {
            assert!(check_version(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn a_new_file_is_readable_by_its_user_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/hermes.db");
        prepare(&path, true).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, FILE_MODE);
        assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, DIRECTORY_MODE);
        assert!(matches!(prepare(&dir.path().join("none.db"), false), Err(StoreError::NotFound { .. })));
        assert!(matches!(prepare(dir.path(), true), Err(StoreError::Invalid { .. })));
    }

    async fn open(path: &Path) -> crate::sqlite::SqliteStore {
        let clock = Arc::new(crate::time::ManualClock::at(1));
        crate::sqlite::SqliteStore::open(crate::sqlite::SqliteOptions::new(path, clock)).await.unwrap()
    }

    fn beside(path: &Path, suffix: &str) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    }

    const COUNT: &str = "SELECT COUNT(*) FROM routes";

    async fn add(store: &crate::sqlite::SqliteStore, key: &str) -> Result<(), StoreError> {
        let mut tx = store.write().await?;
        let add = sqlx::query("INSERT INTO routes (source, route_key, generation) VALUES ('s', $1, 1)").bind(key);
        add.execute(tx.conn()).await.unwrap();
        tx.commit().await
    }

    async fn count(store: &crate::sqlite::SqliteStore) -> i64 {
        sqlx::query_scalar(COUNT).fetch_one(store.readers()).await.unwrap()
    }

    fn is_replaced(told: &Result<(), StoreError>) -> bool {
        matches!(told, Err(StoreError::Replaced))
    }

    #[tokio::test]
    async fn s49_a_log_or_its_index_that_was_deleted_stops_every_write_and_loses_nothing() {
        for suffixes in [&["-wal"][..], &["-shm"], &["-wal", "-shm"]] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("hermes.db");
            let store = open(&path).await;
            add(&store, "kept").await.unwrap();
            for suffix in suffixes {
                std::fs::remove_file(beside(&path, suffix)).unwrap();
            }
            for _ in 0..2 {
                let told = add(&store, "lost").await;
                assert!(is_replaced(&told), "{suffixes:?}: {told:?}");
            }
            assert!(suffixes.iter().all(|suffix| !beside(&path, suffix).exists()), "{suffixes:?}: none made anew");
            // What had been told to be durable was moved into the file.
            store.close().await;
            let again = open(&path).await;
            assert_eq!(count(&again).await, 1, "{suffixes:?}");
            add(&again, "next").await.unwrap();
        }
    }

    #[tokio::test]
    async fn s49_a_log_that_was_replaced_stops_every_write_and_is_left_alone() {
        for suffix in ["-wal", "-shm"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("hermes.db");
            let store = open(&path).await;
            add(&store, "kept").await.unwrap();
            let other = beside(&path, ".other");
            std::fs::copy(beside(&path, suffix), &other).unwrap();
            std::fs::rename(&other, beside(&path, suffix)).unwrap();
            let before = (std::fs::read(&path).unwrap(), std::fs::read(beside(&path, suffix)).unwrap());
            let told = add(&store, "lost").await;
            assert!(is_replaced(&told), "{suffix}: {told:?}");
            store.close().await;
            let after = (std::fs::read(&path).unwrap(), std::fs::read(beside(&path, suffix)).unwrap());
            assert!(before == after, "{suffix}: a close wrote into a file that somebody else uses");
        }
    }

    #[tokio::test]
    async fn s49_a_log_that_is_deleted_in_a_transaction_is_seen_before_it_is_told_to_be_durable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hermes.db");
        let store = open(&path).await;
        let mut tx = store.write().await.unwrap();
        sqlx::query("INSERT INTO routes (source, route_key, generation) VALUES ('s', 'k', 1)")
            .execute(tx.conn())
            .await
            .unwrap();
        std::fs::remove_file(beside(&path, "-wal")).unwrap();
        let told = tx.commit().await;
        assert!(is_replaced(&told), "{told:?}");
    }

    #[tokio::test]
    async fn what_other_handles_do_to_the_log_in_the_ordinary_way_is_borne() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hermes.db");
        let store = open(&path).await;
        for number in 0..20 {
            let other = open(&path).await;
            add(&other, &format!("o{number}")).await.unwrap();
            other.close().await;
            add(&store, &format!("s{number}")).await.unwrap();
            let mut conn = store.readers().acquire().await.unwrap();
            sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut *conn).await.ok();
        }
        assert_eq!(count(&store).await, 40);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn network_file_systems_are_refused_and_local_ones_are_not() {
        let path = Path::new("hermes.db");
        for magic in [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997, 0x786f_4256] {
            let told = judge(path, magic);
            assert!(matches!(&told, Err(StoreError::Invalid { detail }) if detail.contains("local disk")), "{magic:x}");
        }
        // ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS.
        for magic in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1] {
            assert!(judge(path, magic).is_ok(), "{magic:x}");
        }
    }
}
