//! A home of its own for each test, and the real program run in it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// Longest run of the program in a test, in seconds; far above what any test needs.
const RUN_MAX_S: u64 = 120;

/// The program as it was built with these tests.
///
/// # Errors
/// It was not built.
pub fn hermes() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("HERMES_BIN") {
        return Ok(PathBuf::from(path));
    }
    let exe = std::env::current_exe()?;
    let found = exe.ancestors().skip(1).take(3).map(|dir| dir.join("hermes")).find(|path| path.is_file());
    found.context("the program `hermes` was not built beside the tests; run `cargo build --workspace --bins` first")
}

/// A temporary home with its working directory.
#[derive(Debug)]
pub struct Home {
    dir: tempfile::TempDir,
}

/// How a run ended.
#[derive(Debug)]
pub struct Run {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Home {
    /// A home without configuration.
    pub fn empty() -> Result<Self> {
        let home = Self { dir: tempfile::tempdir()? };
        std::fs::create_dir_all(home.path())?;
        std::fs::create_dir_all(home.work())?;
        Ok(home)
    }

    /// A home that talks to a scripted server, without approvals.
    pub fn with_server(base_url: &str) -> Result<Self> {
        let home = Self::empty()?;
        home.configure(&format!(
            "model: {{provider: custom, base_url: \"{base_url}\", default: fake-model, api_key: test-key-1}}\napprovals: {{mode: \"off\"}}\n"
        ))?;
        Ok(home)
    }

    /// Writes `config.yaml`.
    pub fn configure(&self, yaml: &str) -> Result<()> {
        Ok(std::fs::write(self.path().join("config.yaml"), yaml)?)
    }

    /// The home.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// The working directory.
    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// The program with these arguments, not yet started. Nothing of the tests' own environment goes in.
    pub fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(hermes()?);
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.dir.path())
            .env("HERMES_HOME", self.path())
            .env("HERMES_LOCAL_PORTS", "off")
            .current_dir(self.work())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Ok(command)
    }

    /// Starts the program.
    pub fn spawn(&self, args: &[&str]) -> Result<Child> {
        Ok(self.command(args)?.spawn()?)
    }

    /// Runs the program to its end.
    pub async fn run(&self, args: &[&str]) -> Result<Run> {
        finish(self.spawn(args)?).await
    }

    /// Runs the program with a standard input.
    pub async fn run_with(&self, args: &[&str], stdin: &[u8]) -> Result<Run> {
        let mut child = self.command(args)?.stdin(Stdio::piped()).spawn()?;
        let mut pipe = child.stdin.take().context("no standard input")?;
        pipe.write_all(stdin).await?;
        drop(pipe);
        finish(child).await
    }

    /// A file in the working directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.work().join(name)
    }
}

/// Waits for the end of a program.
pub async fn finish(child: Child) -> Result<Run> {
    let wait = tokio::time::timeout(Duration::from_secs(RUN_MAX_S), child.wait_with_output());
    let Ok(output) = wait.await else { bail!("the program did not end within {RUN_MAX_S} s") };
    let output = output?;
    Ok(Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// The lines of a file; none when there is no file.
pub fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
