//! Is this still the file that was opened, and may SQLite's WAL mode be used on it at all?

use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

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

/// WAL needs shared memory and working locks, which these do not give to two hosts.
#[cfg(target_os = "linux")]
fn refuse_network(path: &Path) -> Result<(), StoreError> {
    /// (magic number of statfs(2), name), from linux/magic.h and the file systems' own sources.
    const NETWORK: [(u64, &str); 9] = [
        (0x6969, "NFS"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x517b, "SMB"),
        (0x5346_414f, "AFS"),
        (0x00c3_6400, "Ceph"),
        (0x0bd0_0bd0, "Lustre"),
        // What looks like a local disk and is a host's: WAL was damaged there within a minute (reference, 7 and 8.2).
        (0x6573_5546, "FUSE or virtiofs"),
        (0x0102_1997, "9p"),
    ];
    let found = nix::sys::statfs::statfs(path).map_err(|error| StoreError::Io {
        detail: format!("{}: the file system cannot be asked: {error}", path.display()),
    })?;
    // The kernel's number has 32 bits, whatever the type of the field on this machine.
    #[expect(clippy::cast_sign_loss, reason = "a bit pattern, cut to its 32 bits")]
    let magic = (found.filesystem_type().0 as u64) & 0xffff_ffff;
    match NETWORK.iter().find(|(number, _)| *number == magic) {
        Some((_, name)) => Err(StoreError::Invalid {
            detail: format!(
                "{} is on a network file system ({name}), where SQLite can be damaged; put it on a local disk",
                path.display()
            ),
        }),
        None => Ok(()),
    }
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
}
