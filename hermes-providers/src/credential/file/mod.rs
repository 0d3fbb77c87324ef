//! The file `auth.json` of a home: credentials and what they went through, for every process that uses the home.
//!
//! The shape is that of the Python program, version 1, so that both may use one home; fields that this program does not
//! know are kept as they are. A write is a new file, synced and renamed over the old one, and happens under an exclusive
//! lock on `auth.lock`. A file that cannot be understood is never written: every change is refused and says why (B50).
//!
//! Everything in here blocks; call it where that is allowed.

mod entry;
mod write;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

pub use entry::{Entry, EntryKind, RefreshNote};

/// Largest file that is read.
const FILE_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// How long another process may hold the lock. It is held for a read and a write, never for a request.
const LOCK_WAIT_MS: u64 = 15_000;
/// Between two looks at the lock.
const LOCK_POLL_MS: u64 = 20;
/// The version that this program writes.
const VERSION: u64 = 1;

/// Why the file could not be used.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AuthFileError {
    /// It is there and not what it should be. Nothing was written.
    #[error("{path} cannot be understood ({why}); it was left as it is: mend it, or move it away and log in again")]
    Damaged {
        /// Where it is.
        path: String,
        /// What is wrong with it; nothing of its content.
        why: String,
    },
    /// It cannot be read.
    #[error("{path} cannot be read: {why}")]
    Unreadable {
        /// Where it is.
        path: String,
        /// The system's words.
        why: String,
    },
    /// It cannot be written; the old file stands.
    #[error("{path} cannot be written: {why}")]
    Unwritable {
        /// Where it is.
        path: String,
        /// The system's words.
        why: String,
    },
    /// Another process holds the lock.
    #[error("another process holds {path} for longer than {LOCK_WAIT_MS} ms; try again")]
    Busy {
        /// The lock's file.
        path: String,
    },
}

impl AuthFileError {
    /// The stable code; `docs/errors/CODE.md` explains it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "HM2022"
    }
}

/// The file of one home.
#[derive(Debug, Clone)]
pub struct AuthFile {
    path: PathBuf,
}

/// What the file says. Not shown: it holds secrets.
#[derive(Clone, Default)]
pub struct AuthDoc {
    root: Map<String, Value>,
}

impl std::fmt::Debug for AuthDoc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthDoc(..)")
    }
}

impl AuthFile {
    /// The file at this path. It need not be there.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says now. A file that is not there is an empty one.
    ///
    /// # Errors
    /// [`AuthFileError::Damaged`] or [`AuthFileError::Unreadable`].
    pub fn read(&self) -> Result<AuthDoc, AuthFileError> {
        let path = || self.path.display().to_string();
        let unreadable = |error: std::io::Error| AuthFileError::Unreadable { path: path(), why: error.to_string() };
        let file = match std::fs::metadata(&self.path) {
            Ok(about) if !about.is_file() => Err(std::io::Error::other("it is not a file")),
            Ok(_) => File::open(&self.path),
            Err(error) => Err(error),
        };
        let file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(AuthDoc::default()),
            Err(error) => return Err(unreadable(error)),
        };
        let mut bytes = Vec::new();
        file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        let damaged = |why: String| AuthFileError::Damaged { path: path(), why };
        if bytes.len() as u64 > FILE_MAX_BYTES {
            return Err(damaged(format!("it is larger than {FILE_MAX_BYTES} bytes")));
        }
        // The parser's own words may hold a piece of a secret; its place is enough.
        let root: Value = serde_json::from_slice(&bytes)
            .map_err(|error| damaged(format!("no JSON from line {}, column {} on", error.line(), error.column())))?;
        AuthDoc::of(root).map_err(damaged)
    }

    /// Reads, changes and writes the file under the lock. `change` says whether there is anything to write.
    ///
    /// # Errors
    /// [`AuthFileError`]; the old file then stands, byte for byte.
    pub fn update<T>(&self, change: impl FnOnce(&mut AuthDoc) -> (T, bool)) -> Result<T, AuthFileError> {
        self.update_with(change, &mut |_| Ok(()))
    }

    fn update_with<T>(
        &self,
        change: impl FnOnce(&mut AuthDoc) -> (T, bool),
        step: &mut dyn FnMut(write::Step) -> std::io::Result<()>,
    ) -> Result<T, AuthFileError> {
        let _lock = self.lock()?;
        let mut doc = self.read()?;
        let (result, changed) = change(&mut doc);
        if changed {
            let bytes = doc.to_bytes();
            write::replace(&self.path, &bytes, step).map_err(|error| AuthFileError::Unwritable {
                path: self.path.display().to_string(),
                why: error.to_string(),
            })?;
        }
        Ok(result)
    }

    /// The lock; it ends with the value, and with the process however that ends.
    fn lock(&self) -> Result<File, AuthFileError> {
        let path = self.path.with_extension("lock");
        let shown = || path.display().to_string();
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, write::PRIVATE_MODE);
        let unwritable = |error: std::io::Error| AuthFileError::Unwritable { path: shown(), why: error.to_string() };
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            std::fs::create_dir_all(dir).map_err(unwritable)?;
        }
        let file = options.open(&path).map_err(unwritable)?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if begun.elapsed() > Duration::from_millis(LOCK_WAIT_MS) => {
                    return Err(AuthFileError::Busy { path: shown() });
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(LOCK_POLL_MS)),
                Err(TryLockError::Error(error)) => return Err(unwritable(error)),
            }
        }
    }
}

impl AuthDoc {
    fn of(root: Value) -> Result<Self, String> {
        let Value::Object(root) = root else { return Err("it holds no object".to_owned()) };
        for (name, list) in [("credential_pool", false), ("suppressed_sources", false), ("providers", false)] {
            let right = root.get(name).is_none_or(|value| if list { value.is_array() } else { value.is_object() });
            if !right {
                return Err(format!("`{name}` is not an object"));
            }
        }
        let pools = root.get("credential_pool").and_then(Value::as_object);
        if pools.is_some_and(|pools| pools.values().any(|rows| !rows.is_array())) {
            return Err("a provider of `credential_pool` is not a list".to_owned());
        }
        match root.get("version").and_then(Value::as_u64) {
            Some(version) if version > VERSION => Err(format!("its version is {version}, a newer program wrote it")),
            _ => Ok(Self { root }),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut root = self.root.clone();
        root.entry("version").or_insert_with(|| VERSION.into());
        let mut bytes = serde_json::to_vec_pretty(&Value::Object(root)).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// The providers that have entries, in the file's order.
    pub fn providers(&self) -> impl Iterator<Item = &str> {
        let pools = self.root.get("credential_pool").and_then(Value::as_object);
        pools
            .into_iter()
            .flat_map(Map::iter)
            .filter(|(_, rows)| rows.as_array().is_some_and(|rows| !rows.is_empty()))
            .map(|(provider, _)| provider.as_str())
    }

    /// The entries of a provider. One that makes no sense is left out, and kept in the file.
    #[must_use]
    pub fn entries(&self, provider: &str) -> Vec<Entry> {
        let rows = self.root.get("credential_pool").and_then(|pools| pools.get(provider)).and_then(Value::as_array);
        rows.into_iter().flatten().filter_map(Entry::read).collect()
    }

    /// The entry with this id.
    #[must_use]
    pub fn entry(&self, provider: &str, id: &str) -> Option<Entry> {
        self.entries(provider).into_iter().find(|entry| entry.id == id)
    }

    /// Writes an entry: over the one with its id, keeping what this program does not know of it, or behind the others.
    pub fn put(&mut self, provider: &str, entry: &Entry) {
        let Some(rows) = self.rows(provider) else { return };
        let is_it = |row: &Value| row.get("id").and_then(Value::as_str) == Some(entry.id.as_str());
        match rows.iter_mut().find(|row| is_it(row)).and_then(Value::as_object_mut) {
            Some(row) => entry.write(row),
            None => {
                let mut row = Map::new();
                entry.write(&mut row);
                rows.push(Value::Object(row));
            }
        }
    }

    /// Takes an entry out. True when it was there.
    pub fn remove(&mut self, provider: &str, id: &str) -> bool {
        let Some(rows) = self.rows(provider) else { return false };
        let before = rows.len();
        rows.retain(|row| row.get("id").and_then(Value::as_str) != Some(id));
        rows.len() < before
    }

    /// True when a source of a provider was removed by a person and is not to come back by itself.
    #[must_use]
    pub fn is_suppressed(&self, provider: &str, source: &str) -> bool {
        let sources = self.root.get("suppressed_sources").and_then(|all| all.get(provider)).and_then(Value::as_array);
        sources.is_some_and(|sources| sources.iter().any(|known| known.as_str() == Some(source)))
    }

    /// Remembers or forgets that a source was removed.
    pub fn suppress(&mut self, provider: &str, source: &str, suppressed: bool) {
        let all = self.root.entry("suppressed_sources").or_insert_with(|| Value::Object(Map::new()));
        let Some(sources) = all.as_object_mut() else { return };
        let sources = sources.entry(provider).or_insert_with(|| Value::Array(Vec::new()));
        let Some(sources) = sources.as_array_mut() else { return };
        sources.retain(|known| known.as_str() != Some(source));
        if suppressed {
            sources.push(source.into());
        }
    }

    fn rows(&mut self, provider: &str) -> Option<&mut Vec<Value>> {
        let pools = self.root.entry("credential_pool").or_insert_with(|| Value::Object(Map::new())).as_object_mut()?;
        pools.entry(provider).or_insert_with(|| Value::Array(Vec::new())).as_array_mut()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
