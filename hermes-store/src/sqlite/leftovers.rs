//! What restores and backups leave beside a store: told to a person, never removed by the program.
//!
//! | name | left by |
//! |---|---|
//! | `STORE.replaced-MS` with `-wal` and `-shm` | every restore: the file that was there, for who wants it back |
//! | `STORE.restore-ID` | a restore that was killed before its copy was in its place |
//! | `ANY.partial-ID`, a directory | a backup into the store's directory that was killed |
//!
//! The last two are also there while a restore or a backup is at work.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::maintenance::{PARTIAL_WORD, REPLACED_WORD, RESTORE_WORD, beside};
use crate::shell;

/// Most names of a directory that are looked at.
const NAMES_MAX: usize = 10_000;
/// Most files of one that are counted.
const FILES_MAX: usize = 100;
/// Length of the ids in names: a UUID without hyphens.
const ID_LEN: usize = 32;

/// Who left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftBy {
    /// A restore that was done: this is the store that it put aside.
    Replaced,
    /// A restore that did not finish, or is at work.
    Restore,
    /// A backup that did not finish, or is at work.
    Backup,
}

/// Something that lies beside a store and is not a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Who left it.
    pub by: LeftBy,
    /// It, and the files that belong to it.
    pub paths: Vec<PathBuf>,
    /// Bytes of all of them.
    pub bytes: u64,
    /// When it was left, in milliseconds since the Unix epoch; 0 when the system does not say.
    pub since_ms: i64,
}

impl Leftover {
    /// The command for a shell that removes it.
    #[must_use]
    pub fn removal(&self) -> String {
        let words: Vec<String> = self.paths.iter().map(|path| shell::word(path)).collect();
        let flag = if self.by == LeftBy::Backup { " -r" } else { "" };
        format!("rm{flag} -- {}", words.join(" "))
    }
}

/// What lies beside the store at `store`, the oldest first. What cannot be read is left out: this is no check of the disk.
/// Blocks for the time of reading one directory.
#[must_use]
pub fn leftovers(store: &Path) -> Vec<Leftover> {
    let Some(name) = store.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let directory = store.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<Leftover> = entries
        .take(NAMES_MAX)
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let file = entry.file_name();
            let (by, replaced_ms) = who(name, file.to_str()?)?;
            of(by, replaced_ms, &entry.path())
        })
        .collect();
    found.sort_by_key(|one| one.since_ms);
    found
}

/// What a name says; the time too, when it has one.
fn who(store: &str, name: &str) -> Option<(LeftBy, Option<i64>)> {
    let is_id = |id: &str| id.len() == ID_LEN && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some((_, id)) = name.rsplit_once(PARTIAL_WORD)
        && is_id(id)
    {
        return Some((LeftBy::Backup, None));
    }
    let rest = name.strip_prefix(store)?;
    if let Some(ms) = rest.strip_prefix(REPLACED_WORD) {
        // The logs behind it belong to it and are no leftovers of their own.
        return ms.parse().ok().map(|ms| (LeftBy::Replaced, Some(ms)));
    }
    is_id(rest.strip_prefix(RESTORE_WORD)?).then_some((LeftBy::Restore, None))
}

fn of(by: LeftBy, replaced_ms: Option<i64>, path: &Path) -> Option<Leftover> {
    // Not through a link: what it leads to is not ours.
    let facts = std::fs::symlink_metadata(path).ok()?;
    if facts.is_dir() != (by == LeftBy::Backup) || facts.is_symlink() {
        return None;
    }
    let changed_ms = facts.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let changed_ms = changed_ms.and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or_default();
    let mut paths = vec![path.to_owned()];
    if by != LeftBy::Backup {
        let logs = ["-wal", "-shm", "-journal"].map(|suffix| beside(path, suffix));
        paths.extend(logs.into_iter().filter(|log| log.is_file()));
    }
    let size = |path: &PathBuf| std::fs::symlink_metadata(path).map_or(0, |facts| facts.len());
    let bytes = match by {
        LeftBy::Backup => std::fs::read_dir(path)
            .map(|files| files.take(FILES_MAX).filter_map(Result::ok).map(|file| size(&file.path())).sum())
            .unwrap_or_default(),
        LeftBy::Replaced | LeftBy::Restore => paths.iter().map(size).sum(),
    };
    Some(Leftover { by, paths, bytes, since_ms: replaced_ms.unwrap_or(changed_ms) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_store_itself_leaves_is_named_and_with_all_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let id = "0193a0b1c2d37e5f8a9b0c1d2e3f4a5b";
        for (name, text) in [
            ("hermes.db", "the store"),
            ("hermes.db-wal", "its log"),
            ("hermes-search.db", "its index"),
            ("hermes.db.replaced-1700000000000", "old"),
            ("hermes.db.replaced-1700000000000-wal", "log"),
            (&format!("hermes.db.restore-{id}"), "copy"),
            // Somebody else's.
            ("hermes.db.replaced-by-me", "x"),
            ("hermes.db.restore-later", "x"),
            (&format!("monday.db.partial-{}", "x".repeat(ID_LEN)), "x"),
            (&format!("note.partial-{id}"), "a file, where a directory would be ours"),
        ] {
            std::fs::write(at(name), text).unwrap();
        }
        let partial = at(&format!("monday.db.partial-{id}"));
        std::fs::create_dir(&partial).unwrap();
        std::fs::write(partial.join("copy.db"), "half").unwrap();
        std::os::unix::fs::symlink(at("hermes.db"), at("hermes.db.replaced-1")).unwrap();

        let found = leftovers(&at("hermes.db"));
        let said: Vec<(LeftBy, usize, u64)> = found.iter().map(|one| (one.by, one.paths.len(), one.bytes)).collect();
        assert_eq!(said.len(), 3, "{found:?}");
        assert_eq!((found[0].by, found[0].since_ms), (LeftBy::Replaced, 1_700_000_000_000));
        for expected in [(LeftBy::Replaced, 2, 6), (LeftBy::Restore, 1, 4), (LeftBy::Backup, 1, 4)] {
            assert!(said.contains(&expected), "{said:?}");
        }
        let old = at("hermes.db.replaced-1700000000000");
        assert_eq!(found[0].removal(), format!("rm -- {} {}-wal", old.display(), old.display()));
        let backup = found.iter().find(|one| one.by == LeftBy::Backup).unwrap();
        assert_eq!(backup.removal(), format!("rm -r -- {}", partial.display()));
    }
}
