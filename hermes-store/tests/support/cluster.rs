//! A PostgreSQL server of a test's own, which may be stopped and started again.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Where `cargo xtask test` says where `initdb` and `pg_ctl` are.
const BINDIR_VARIABLE: &str = "HERMES_TEST_PG_BINDIR";
/// Who must run them; empty when the current user may.
const USER_VARIABLE: &str = "HERMES_TEST_PG_USER";

/// A server on a socket in a directory of its own. It ends with this value.
pub(crate) struct Cluster {
    programs: PathBuf,
    user: Option<(u32, u32)>,
    dir: TempDir,
}

impl Cluster {
    /// Makes one and starts it.
    ///
    /// # Panics
    /// When the environment does not say where the programs are: a test of PostgreSQL is never skipped.
    pub(crate) fn start() -> Self {
        let Some(programs) = std::env::var_os(BINDIR_VARIABLE).filter(|path| !path.is_empty()) else {
            panic!(
                "{BINDIR_VARIABLE} is not set: run `cargo xtask test`, or `cargo xtask postgres` and export its lines"
            )
        };
        let user = std::env::var(USER_VARIABLE).ok().filter(|name| !name.is_empty()).map(|name| ids_of(&name));
        let dir = tempfile::Builder::new().prefix("hermes-pg-own-").tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        if let Some((user, group)) = user {
            chown(dir.path(), Some(user), Some(group)).unwrap();
        }
        let cluster = Self { programs: programs.into(), user, dir };
        let data = cluster.data();
        let init = ["--username", "hermes", "--auth", "trust", "--no-sync", "--encoding", "UTF8", "--locale", "C"];
        cluster.run("initdb", |command| command.args(init).arg("--pgdata").arg(&data));
        cluster.pg_ctl(&["start"]);
        cluster
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn run(&self, program: &str, set: impl FnOnce(&mut Command) -> &mut Command) {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.dir.path()).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null());
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        let status = set(&mut command).status().unwrap();
        assert!(status.success(), "{program}: {status}");
    }

    /// One word of `pg_ctl`, and its end.
    fn pg_ctl(&self, words: &[&str]) {
        let dir = self.dir.path().display();
        let settings =
            format!("-c listen_addresses= -c unix_socket_directories={dir} -c fsync=off -c max_connections=60");
        let data = self.data();
        self.run("pg_ctl", |command| {
            command.args(words).arg("-w").arg("-D").arg(data).arg("-l").arg(self.dir.path().join("log"));
            command.arg("-o").arg(settings)
        });
    }

    /// Stops the server at once, as a crash would, and starts it again.
    pub(crate) fn crash_and_restart(&self) {
        self.pg_ctl(&["restart", "-m", "immediate"]);
    }

    /// How sqlx reaches it.
    pub(crate) fn url(&self) -> String {
        url_of_socket(self.dir.path())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // In any case the directory goes, and a server without one ends.
        self.pg_ctl(&["stop", "-m", "immediate"]);
    }
}

/// The URL of a server whose socket is in this directory.
pub(crate) fn url_of_socket(directory: &Path) -> String {
    let socket = directory.display().to_string().replace('/', "%2F");
    format!("postgres://hermes@localhost:5432/postgres?host={socket}")
}

fn ids_of(name: &str) -> (u32, u32) {
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name);
    let fields = fields.unwrap_or_else(|| panic!("there is no user {name}"));
    (fields[2].parse().unwrap(), fields[3].parse().unwrap())
}
