//! A PostgreSQL server that is thrown away: what the tests of the store run against, and `cargo xtask postgres`.
//!
//! One [`Cluster`] is one `initdb` in a temporary directory and one server on a Unix socket there, which believes
//! everybody who reaches it, and on a port of the loopback interface that the system chose, which wants TLS and a password.
//! Between this program and the server stands a small shell script, the guard. It reads from a pipe whose other end
//! only this program holds, so it notices every end of this program, also Ctrl-C and `kill -9`, and then stops the
//! server and removes the directory. No signal has to be caught for that.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::shell;

mod find;
mod install;
mod tls;
mod user;

use find::Binaries;
use user::User;

/// Where the tests find a server: a URL as sqlx reads it. Who sets it gives a server of their own.
const URL_VARIABLE: &str = "HERMES_TEST_POSTGRES";
/// Where a test that starts, stops and restarts a server of its own finds `initdb`, `postgres` and `pg_ctl`.
const BINDIR_VARIABLE: &str = "HERMES_TEST_PG_BINDIR";
/// The name of the user who must run these programs; empty when the current one may.
const USER_VARIABLE: &str = "HERMES_TEST_PG_USER";
/// The directory of the certificates, as [`tls::directory`] says. The server has the port of the URL also on the loopback
/// interface, where it takes TLS and passwords only, under the name `localhost`.
const TLS_VARIABLE: &str = "HERMES_TEST_PG_TLS";

/// The superuser of the cluster. Everybody who reaches the socket is believed.
const SUPERUSER: &str = "hermes";
/// Who may come in: over the socket everybody, over the network who speaks TLS and knows a password.
const ACCESS: &str = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
/// Servers that are tried, each on another port: somebody may take a port between its choice and its use.
const PORTS_MAX: u32 = 5;
/// Connections of all tests that run at one time, with a lot of room.
const CONNECTIONS_MAX: u16 = 200;
/// Memory for pages, in MB; the databases of the tests are small.
const SHARED_BUFFERS_MB: u16 = 32;

/// Longest path of a socket: `sun_path` has 108 bytes on Linux and 104 on others, and the last one is a zero.
const SOCKET_PATH_MAX_BYTES: usize = 103;
/// Longest start of the server: it takes 0.2 s on two idle cores.
const START_MAX_S: u64 = 60;
/// What the server says of a port that somebody has.
const PORT_TAKEN: &str = "could not create any TCP/IP sockets";
/// How often a start or an end is looked at.
const LOOK_EVERY_MS: u64 = 20;
/// How long a server may take for an orderly stop before it is stopped at once, and after that before it is killed.
const STOP_MAX_S: u64 = 10;
/// When the guard itself is given up: after all its steps.
const GUARD_END_MAX_S: u64 = 3 * STOP_MAX_S;
/// How much of the server's log an error shows.
const LOG_TAIL_MAX_LINES: usize = 20;

/// The guard. Its words: the directory, the seconds of a stop, the command of the server. The owner's end is the end of
/// the input; the server's own end leaves the directory, so that the owner can read the log. Usually the part that
/// watches is killed when the server has stopped; it comes to its end when somebody killed the other part.
const GUARD: &str = r#"
directory=$1 seconds=$2
shift 2
exec 3<&0 </dev/null
"$@" 3<&- &
server=$!
(
    read -r _ <&3
    : >"$directory/stop"
    trap 'kill $!; exit' TERM
    for signal in INT QUIT KILL; do
        kill -$signal $server || break
        sleep "$seconds" &
        wait $!
    done
    rm -rf "$directory"
) &
watch=$!
exec 3<&-
wait $server
code=$?
kill $watch
if [ -e "$directory/stop" ]; then
    cd /
    rm -rf "$directory"
fi
exit $code
"#;

/// A running server and its directory. Dropping it stops the one and removes the other.
#[derive(Debug)]
pub(crate) struct Cluster {
    binaries: Binaries,
    user: Option<User>,
    port: u16,
    guard: Child,
    // Last, so that it is removed after the guard has ended, should the guard have failed to.
    directory: TempDir,
}

impl Cluster {
    /// Finds or installs the programs, makes a cluster and starts its server; returns when it answers.
    ///
    /// # Errors
    /// There are no programs and they cannot be installed, there is no user for the server, or it does not start.
    pub(crate) fn start() -> Result<Self> {
        let binaries = match Binaries::find()? {
            Some(binaries) => binaries,
            None => install::install()?,
        };
        let user = User::for_server()?;
        let directory = directory(user.as_ref())?;
        Self::init(&binaries, user.as_ref(), directory.path())?;
        let port = Self::choose_port(directory.path())?;
        let guard = Self::guard(&binaries, user.as_ref(), directory.path())?;
        let mut cluster = Self { binaries, user, port, guard, directory };
        for tried in 1.. {
            match cluster.wait_until_ready() {
                Ok(()) => break,
                Err(error) if tried >= PORTS_MAX || !error.to_string().contains(PORT_TAKEN) => return Err(error),
                Err(_) => {
                    let directory = cluster.directory.path();
                    cluster.port = Self::choose_port(directory)?;
                    cluster.guard = Self::guard(&cluster.binaries, cluster.user.as_ref(), directory)?;
                }
            }
        }
        Ok(cluster)
    }

    /// Writes the data directory, the certificates and who may come in.
    fn init(binaries: &Binaries, user: Option<&User>, directory: &Path) -> Result<()> {
        let mut initdb = command(&binaries.program("initdb"), user, directory);
        initdb.arg("--pgdata").arg(directory.join("data"));
        initdb.args(["--username", SUPERUSER, "--auth", "trust", "--no-sync", "--no-instructions"]);
        // Sorted by bytes, as SQLite sorts. Letters are those of Unicode: with plain `C`, trigrams would be of ASCII only.
        initdb.args(["--encoding", "UTF8", "--locale", "C", "--lc-ctype", "C.UTF-8"]);
        shell::output(&mut initdb)?;
        tls::make(directory, user)?;
        let access_path = directory.join("data").join("pg_hba.conf");
        std::fs::write(&access_path, ACCESS).with_context(|| format!("cannot write {}", access_path.display()))
    }

    /// Lets the system choose a port, and writes the settings with it.
    fn choose_port(directory: &Path) -> Result<u16> {
        let chosen = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let port = chosen.context("there is no free port on the loopback interface")?.port();
        let settings_path = directory.join("data").join("postgresql.auto.conf");
        std::fs::write(&settings_path, settings(directory, port))
            .with_context(|| format!("cannot write {}", settings_path.display()))?;
        Ok(port)
    }

    /// Starts the guard, which starts the server.
    fn guard(binaries: &Binaries, user: Option<&User>, directory: &Path) -> Result<Child> {
        let log = std::fs::File::create(directory.join("log")).context("cannot make the log of PostgreSQL")?;
        let mut guard = command(Path::new("sh"), user, directory);
        guard.args(["-c", GUARD, "guard"]).arg(directory).arg(STOP_MAX_S.to_string());
        // Should somebody kill the guard, then the system tells the server.
        let death_signal = ["setpriv", "--pdeathsig", "INT"];
        if succeeds(Command::new(death_signal[0]).args(&death_signal[1..]).arg("true")) {
            guard.args(death_signal);
        }
        guard.arg(binaries.program("postgres")).arg("-D").arg(directory.join("data"));
        // A group of its own: Ctrl-C at the terminal is for the tests, the guard ends after them.
        guard.process_group(0);
        guard.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        guard.spawn().context("cannot start the guard of PostgreSQL")
    }

    /// Waits until the server says in its lock file that it takes connections, as `pg_ctl` does.
    fn wait_until_ready(&mut self) -> Result<()> {
        let lock_path = self.directory.path().join("data").join("postmaster.pid");
        let until = Instant::now() + Duration::from_secs(START_MAX_S);
        loop {
            if std::fs::read_to_string(&lock_path).is_ok_and(|text| is_ready(&text)) {
                return Ok(());
            }
            if let Some(status) = self.guard.try_wait().context("cannot look after the guard of PostgreSQL")? {
                bail!("PostgreSQL did not start: {status}{}", self.log_tail());
            }
            if Instant::now() >= until {
                bail!("PostgreSQL did not start within {START_MAX_S} s{}", self.log_tail());
            }
            thread::sleep(Duration::from_millis(LOOK_EVERY_MS));
        }
    }

    /// The end of the log, for an error.
    fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL_MAX_LINES)..];
        tail.iter().map(|line| format!("\n  {line}")).collect()
    }

    /// How sqlx reaches the database `postgres` as the superuser.
    #[must_use]
    pub(crate) fn url(&self) -> String {
        url(self.directory.path(), self.port)
    }

    /// What the tests find in their environment.
    #[must_use]
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let tls = tls::directory(self.directory.path()).to_string_lossy().into_owned();
        let mut variables = vec![(URL_VARIABLE, self.url()), (TLS_VARIABLE, tls)];
        variables.extend(program_variables(&self.binaries, self.user.as_ref()));
        variables
    }

    /// Waits at most `limit` for the end of the guard.
    fn guard_end(&mut self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            // An error means that there is no such child any more, which nobody but this owner can have brought about.
            match self.guard.try_wait() {
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(LOOK_EVERY_MS)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        if self.guard_end(Duration::from_secs(GUARD_END_MAX_S)).is_none() {
            // It may end at this very moment, which is what is wanted.
            let _ = self.guard.kill();
            let _ = self.guard.wait();
        }
    }
}

/// The server of a test run: somebody's own, or one that lives as long as this value.
#[derive(Debug)]
pub(crate) struct TestServer {
    variables: Vec<(&'static str, String)>,
    _cluster: Option<Cluster>,
}

impl TestServer {
    /// The server that the environment names; without one a [`Cluster`] of its own.
    ///
    /// # Errors
    /// Those of [`Cluster::start`].
    pub(crate) fn get() -> Result<Self> {
        if std::env::var_os(URL_VARIABLE).is_some_and(|url| !url.is_empty()) {
            eprintln!("xtask: the tests use the server of {URL_VARIABLE}");
            return Ok(Self { variables: missing_program_variables()?, _cluster: None });
        }
        let cluster = Cluster::start()?;
        eprintln!("xtask: the tests use {} from {}", cluster.url(), cluster.binaries);
        Ok(Self { variables: cluster.variables(), _cluster: Some(cluster) })
    }

    /// What the tests must find in their environment besides what is there.
    #[must_use]
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        self.variables.clone()
    }
}

/// For somebody's own server: where the programs are, if they are and nobody said it.
fn missing_program_variables() -> Result<Vec<(&'static str, String)>> {
    if std::env::var_os(BINDIR_VARIABLE).is_some() {
        return Ok(Vec::new());
    }
    let Some(binaries) = Binaries::find()? else {
        return Ok(Vec::new());
    };
    Ok(program_variables(&binaries, User::for_server()?.as_ref()))
}

/// Where the programs are and who must run them.
fn program_variables(binaries: &Binaries, user: Option<&User>) -> Vec<(&'static str, String)> {
    let directory = binaries.directory().to_string_lossy().into_owned();
    let name = user.map_or_else(String::new, |user| user.name().to_owned());
    vec![(BINDIR_VARIABLE, directory), (USER_VARIABLE, name)]
}

/// `cargo xtask postgres`: a cluster until Ctrl-C or the end of the input, or for the time of one command.
///
/// # Errors
/// Those of [`Cluster::start`], or the command failed.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let cluster = Cluster::start()?;
    if let Some((program, rest)) = arguments.split_first() {
        return shell::run(Command::new(program).args(rest).envs(cluster.variables()));
    }
    println!("{}\n", cluster.url());
    for (name, value) in cluster.variables() {
        println!("export {name}='{value}'");
    }
    println!("\n{} runs until Ctrl-C or the end of the input", cluster.binaries);
    let mut sink = [0; 1024];
    let mut input = std::io::stdin().lock();
    while input.read(&mut sink).context("cannot read the input")? > 0 {}
    Ok(())
}

/// A new directory that the server's user owns, with a path that is short enough for a socket.
fn directory(user: Option<&User>) -> Result<TempDir> {
    let mut parent = std::env::temp_dir();
    // Another user may not be able to enter what the environment names.
    if user.is_some()
        || !is_plain(&parent)
        || socket_path(&parent.join("hermes-pg-123456")).len() > SOCKET_PATH_MAX_BYTES
    {
        parent = PathBuf::from("/tmp");
    }
    let directory = tempfile::Builder::new()
        .prefix("hermes-pg-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(&parent)
        .with_context(|| format!("cannot make a directory in {}", parent.display()))?;
    ensure!(socket_path(directory.path()).len() <= SOCKET_PATH_MAX_BYTES, "{} is too long", directory.path().display());
    if let Some(user) = user {
        user.own(directory.path())?;
    }
    Ok(directory)
}

/// Whether the path can stand in the settings and in a shell without quotes.
fn is_plain(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b)))
}

/// The longest path that the server's socket may have.
fn socket_path(directory: &Path) -> String {
    format!("{}/.s.PGSQL.{}", directory.display(), u16::MAX)
}

/// What differs from the settings that `initdb` writes. A crash of the machine may cost the data, a crash of the server
/// costs nothing: a commit still waits for its write, only not for the disk.
fn settings(directory: &Path, port: u16) -> String {
    format!(
        "listen_addresses = '{}'\nunix_socket_directories = '{}'\nport = {port}\nmax_connections = {CONNECTIONS_MAX}\n\
         shared_buffers = '{SHARED_BUFFERS_MB}MB'\nfsync = off\nfull_page_writes = off\nsynchronous_commit = on\n\
         log_timezone = 'UTC'\ntimezone = 'UTC'\npassword_encryption = 'scram-sha-256'\n{}",
        Ipv4Addr::LOCALHOST,
        directory.display(),
        tls::settings(directory)
    )
}

/// The URL of a server whose socket is in the directory. The host before the path counts for nothing then.
fn url(directory: &Path, port: u16) -> String {
    let socket = percent_encoded(&directory.to_string_lossy());
    format!("postgres://{SUPERUSER}@{}:{port}/postgres?host={socket}", tls::HOST)
}

/// The text as a value in the query of a URL.
fn percent_encoded(text: &str) -> String {
    let is_free = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes().map(|b| if is_free(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Whether the text of `postmaster.pid` says that the server takes connections: its eighth line is the state.
fn is_ready(lock: &str) -> bool {
    lock.lines().nth(7).is_some_and(|state| state.trim() == "ready")
}

/// A command in the directory, as the user, that sees nothing of PostgreSQL or of a language in the environment.
fn command(program: &Path, user: Option<&User>, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_for_postgres(name)) {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C");
    if let Some(user) = user {
        user.become_in(&mut command);
    }
    command
}

/// Whether PostgreSQL reads the variable, or it makes its messages speak another language.
fn is_for_postgres(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("PG") || name.starts_with("LC_") || name.starts_with("LANG"))
}

/// Whether the command can be started and ends well. It says and reads nothing.
fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests;
