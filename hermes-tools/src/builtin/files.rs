//! Reading and replacing files: whole or not at all, links and modes kept.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::paths;

/// Largest file that the file tools take into memory, in bytes.
pub(super) const FILE_MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The byte-order mark of UTF-8.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// Beginning that is looked at for NUL bytes to tell binary files, in bytes.
const BINARY_PROBE_BYTES: usize = 8 * 1024;

/// Similar names that an error proposes.
const NEAR_FILES: usize = 3;

/// Why a file could not be read or replaced.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("{} does not exist{hint}", path.display())]
    Missing { path: PathBuf, hint: String },
    #[error("{} is a directory", .0.display())]
    Directory(PathBuf),
    #[error("{} is not a regular file", .0.display())]
    Special(PathBuf),
    #[error("{} is {size} bytes, more than {FILE_MAX_BYTES}; use terminal or search_files", path.display())]
    TooLarge { path: PathBuf, size: u64 },
    #[error("{} changed on disk since it was read; read it again", .0.display())]
    Changed(PathBuf),
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
}

/// A file as it is on disk.
pub(super) struct Loaded {
    /// The path with links followed.
    pub(super) real: PathBuf,
    pub(super) bytes: Vec<u8>,
    pub(super) hash: [u8; 32],
}

/// SHA-256.
pub(super) fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// True when it holds a NUL near its beginning.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(BINARY_PROBE_BYTES)].contains(&0)
}

/// Reads a regular file.
pub(super) fn load(path: &Path) -> Result<Loaded, FileError> {
    let real = paths::real_blocking(path);
    let fail = |error| FileError::Io { path: real.clone(), error };
    let meta = match std::fs::metadata(&real) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(FileError::Missing { path: path.to_owned(), hint: near_names(path) });
        }
        Err(error) => return Err(fail(error)),
    };
    if meta.is_dir() {
        return Err(FileError::Directory(real));
    }
    if !meta.is_file() {
        return Err(FileError::Special(real));
    }
    if meta.len() > FILE_MAX_BYTES {
        return Err(FileError::TooLarge { path: real, size: meta.len() });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
    let file = std::fs::File::open(&real).map_err(fail)?;
    // One byte more than allowed, so that a file that grows meanwhile is noticed.
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(FileError::TooLarge { path: real, size: bytes.len() as u64 });
    }
    let hash = hash(&bytes);
    Ok(Loaded { real, bytes, hash })
}

/// Names of the same directory that differ little from what was asked for.
fn near_names(path: &Path) -> String {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return String::new();
    };
    let wanted = fold(name);
    let Ok(entries) = std::fs::read_dir(dir) else {
        return format!(" (nor does its directory {})", dir.display());
    };
    let mut near: Vec<String> = entries
        .flatten()
        .take(10_000)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|other| {
            let other = fold(other);
            !other.is_empty() && (other == wanted || other.contains(&wanted) || wanted.contains(&other))
        })
        .collect();
    near.sort();
    near.truncate(NEAR_FILES);
    if near.is_empty() { String::new() } else { format!("; similar: {}", near.join(", ")) }
}

/// A name without case, spaces, signs and accents that are easily mistaken.
fn fold(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Replaces a file's content in one step, or makes the file: a temporary file beside it is written, made durable and
/// renamed. Mode and link are kept. With `expected`, the file must still have that hash (`None` inside: must not exist).
pub(super) fn replace(real: &Path, bytes: &[u8], expected: Option<[u8; 32]>) -> Result<(), FileError> {
    use std::os::unix::fs::PermissionsExt;
    let fail = |error| FileError::Io { path: real.to_owned(), error };
    let dir = real.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(dir).map_err(fail)?;
    let permissions = match std::fs::metadata(real) {
        Ok(meta) if meta.is_dir() => return Err(FileError::Directory(real.to_owned())),
        Ok(meta) if !meta.is_file() => return Err(FileError::Special(real.to_owned())),
        Ok(meta) => Some(meta.permissions()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(fail(error)),
    };
    let mut temp = tempfile::Builder::new()
        .prefix(".hermes-")
        // As for any new file; the process's umask takes its part.
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(dir)
        .map_err(fail)?;
    temp.write_all(bytes).map_err(fail)?;
    if let Some(permissions) = permissions.clone() {
        temp.as_file().set_permissions(permissions).map_err(fail)?;
    }
    temp.as_file().sync_all().map_err(fail)?;
    match expected {
        Some(expected) => {
            if load(real)?.hash != expected {
                return Err(FileError::Changed(real.to_owned()));
            }
            temp.persist(real).map_err(|error| fail(error.error))?;
        }
        None => {
            temp.persist_noclobber(real).map_err(|error| match error.error.kind() {
                std::io::ErrorKind::AlreadyExists => FileError::Changed(real.to_owned()),
                _ => fail(error.error),
            })?;
        }
    }
    // The rename is durable when the directory is; a file system that cannot do that is not our failure.
    if let Ok(dir) = std::fs::File::open(dir) {
        let _ = dir.sync_all();
    }
    Ok(())
}
