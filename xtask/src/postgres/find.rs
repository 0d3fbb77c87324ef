//! Where the programs of a PostgreSQL server are on this machine.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::shell;

/// The oldest server that the store supports, by its major version.
pub(super) const VERSION_MIN: u32 = 15;
/// What a directory must hold to be a server.
const PROGRAMS: [&str; 3] = ["initdb", "postgres", "pg_ctl"];
/// The variable that names the directory. Nothing else is looked at when it is set.
const OVERRIDE_VARIABLE: &str = "PG_BINDIR";
/// Where Debian keeps the servers, each in `VERSION/bin`, and none of them on the path.
const DEBIAN_DIRECTORY: &str = "/usr/lib/postgresql";

/// A directory with the programs of one server, new enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binaries {
    directory: PathBuf,
    version: u32,
}

impl Binaries {
    /// The directory of the variable `PG_BINDIR`, else the first on the path, else the newest of Debian's; `None` when
    /// there is no server or only old ones.
    ///
    /// # Errors
    /// `PG_BINDIR` is set and has no server that is new enough.
    pub(super) fn find() -> Result<Option<Self>> {
        if let Some(directory) = std::env::var_os(OVERRIDE_VARIABLE).filter(|directory| !directory.is_empty()) {
            return Self::named(PathBuf::from(directory), version_of).map(Some);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut candidates = on_path(&path);
        candidates.extend(of_debian(Path::new(DEBIAN_DIRECTORY)));
        Ok(Self::first(candidates, version_of))
    }

    /// The server in the directory that somebody named.
    fn named(directory: PathBuf, version_of: impl Fn(&Path) -> Option<u32>) -> Result<Self> {
        match version_of(&directory) {
            Some(version) if version >= VERSION_MIN => Ok(Self { directory, version }),
            Some(version) => bail!("{OVERRIDE_VARIABLE} is PostgreSQL {version}; {VERSION_MIN} or newer is needed"),
            None => bail!("{OVERRIDE_VARIABLE}={} does not hold {}", directory.display(), PROGRAMS.join(", ")),
        }
    }

    /// The first directory with a server that is new enough.
    fn first(candidates: Vec<PathBuf>, version_of: impl Fn(&Path) -> Option<u32>) -> Option<Self> {
        candidates.into_iter().find_map(|directory| {
            let version = version_of(&directory).filter(|version| *version >= VERSION_MIN)?;
            Some(Self { directory, version })
        })
    }

    /// Where the programs are.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of one program.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Display for Binaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL {} ({})", self.version, self.directory.display())
    }
}

/// The absolute directories of a search path, in its order.
fn on_path(path: &OsStr) -> Vec<PathBuf> {
    std::env::split_paths(path).filter(|directory| directory.is_absolute()).collect()
}

/// The `bin` directories below Debian's, newest version first. No directory, no servers.
fn of_debian(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.into_iter().map(|(_, directory)| directory).collect()
}

/// The major version of the server in the directory; `None` when a program is missing or does not run.
fn version_of(directory: &Path) -> Option<u32> {
    let complete = PROGRAMS.iter().all(|program| directory.join(program).is_file());
    let told = complete.then(|| shell::output(Command::new(directory.join("postgres")).arg("--version")))?;
    major_version(&told.ok()?)
}

/// The major version in what `postgres --version` writes.
fn major_version(told: &str) -> Option<u32> {
    let (_, version) = told.split_once("(PostgreSQL) ")?;
    let end = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server of version N in every directory whose name is N.
    fn by_name(directory: &Path) -> Option<u32> {
        directory.file_name()?.to_str()?.parse().ok()
    }

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn the_major_version_is_read_from_what_the_server_says() {
        for (told, expect) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", Some(15)),
            ("postgres (PostgreSQL) 18beta1\n", Some(18)),
            ("postgres (PostgreSQL) 17", Some(17)),
            ("postgres (PostgreSQL) devel\n", None),
            ("something else 15\n", None),
        ] {
            assert_eq!(major_version(told), expect, "{told}");
        }
    }

    #[test]
    fn the_first_one_that_is_new_enough_is_taken() {
        let found = Binaries::first(paths(&["/usr/bin", "/a/14", "/a/16", "/a/17"]), by_name).unwrap();
        assert_eq!(found, Binaries { directory: "/a/16".into(), version: 16 });
        assert_eq!(Binaries::first(paths(&["/usr/bin", "/a/14"]), by_name), None);
    }

    #[test]
    fn a_named_directory_must_hold_a_server_that_is_new_enough() {
        assert_eq!(Binaries::named("/a/15".into(), by_name).unwrap().program("initdb"), Path::new("/a/15/initdb"));
        let old = Binaries::named("/a/14".into(), by_name).unwrap_err().to_string();
        assert!(old.contains("PG_BINDIR is PostgreSQL 14"), "{old}");
        let none = Binaries::named("/usr/bin".into(), by_name).unwrap_err().to_string();
        assert!(none.contains("/usr/bin does not hold initdb, postgres, pg_ctl"), "{none}");
    }

    #[test]
    fn versions_of_debian_are_ordered_as_numbers() {
        let base = tempfile::tempdir().unwrap();
        for name in ["9.6", "9", "15", "17", "common"] {
            std::fs::create_dir(base.path().join(name)).unwrap();
        }
        let names = ["17/bin", "15/bin", "9/bin"].map(|name| base.path().join(name));
        assert_eq!(of_debian(base.path()), names);
        assert_eq!(of_debian(&base.path().join("missing")), paths(&[]));
    }

    #[test]
    fn a_relative_directory_on_the_path_is_not_looked_at() {
        assert_eq!(on_path(OsStr::new("/a:b:/c:")), paths(&["/a", "/c"]));
    }

    #[test]
    fn a_directory_without_the_programs_is_no_server() {
        assert_eq!(version_of(tempfile::tempdir().unwrap().path()), None);
    }
}
