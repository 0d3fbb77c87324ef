//! A `llama-server` (llama.cpp) that this program starts and stops itself.
//!
//! **No port is guessed.** The server is told to take any free one (`--port 0`) and says which one it got; nobody can take it
//! in between, and nothing is sent to a port that our own process did not name.
//!
//! **Nothing is left behind.** A shell stands between us and the server. It holds the reading end of a pipe whose other end
//! only we hold: when we drop it, or die in whatever way, the shell reads its end and ends the server, first politely, then
//! for certain. That needs neither a signal handler nor a list of processes.
//!
//! The options are those of llama.cpp's `tools/server/README.md`: `--model`, `--host`, `--port`, `--ctx-size`; `GET /health`
//! answers 200 once the model is loaded.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Client;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::http::probe_client;

/// From the start to the first good answer of `/health`: large models are read from slow disks.
pub const LLAMA_START_TIMEOUT_MS: u64 = 600_000;
/// From the wish to stop until the process must be gone.
pub const LLAMA_STOP_TIMEOUT_MS: u64 = 15_000;
/// How long a server that was asked to end may take; the script counts in tenths of a second.
const GRACE_TENTHS: u32 = 50;
/// Newest output that is kept for messages.
pub const LLAMA_LOG_BYTES: usize = 16 * 1024;
/// Longest line of output that is looked at.
const MAX_LINE_BYTES: usize = 4096;
/// Between two looks at `/health`.
const HEALTH_PAUSE_MS: u64 = 50;
/// For one look at `/health`.
const HEALTH_TIMEOUT_MS: u64 = 2000;

const _: () = assert!(GRACE_TENTHS as u64 * 100 < LLAMA_STOP_TIMEOUT_MS);

/// The shell between us and the server. `$1` is the grace, the rest the command.
///
/// The server runs with no input of its own. Beside it, a guard waits for the end of ours.
const GUARD: &str = r#"
tenths=$1; shift
exec 3<&0 </dev/null
"$@" 3<&- &
server=$!
{
    read -r _ <&3
    kill -TERM "$server" 2>/dev/null
    while [ "$tenths" -gt 0 ] && kill -0 "$server" 2>/dev/null; do sleep 0.1; tenths=$((tenths - 1)); done
    kill -KILL "$server" 2>/dev/null
} >/dev/null 2>&1 &
guard=$!
exec 3<&-
wait "$server"
code=$?
kill -KILL "$guard" 2>/dev/null
exit "$code"
"#;

/// What is started.
#[derive(Debug, Clone)]
pub struct LlamaServerConfig {
    /// The program: a path, or a name that is looked for in `PATH`.
    pub program: PathBuf,
    /// The model's file.
    pub model: PathBuf,
    /// More arguments, as they are.
    pub args: Vec<OsString>,
    /// Most tokens of input and output together at the start.
    pub context: u64,
    /// To how many tokens the window may be grown; what the memory allows only the user knows.
    pub max_context: u64,
    /// How long the start may take.
    pub start_timeout: Duration,
}

impl LlamaServerConfig {
    /// `llama-server` from `PATH`, with a window that does not grow.
    #[must_use]
    pub fn new(model: impl Into<PathBuf>, context: u64) -> Self {
        Self {
            program: PathBuf::from("llama-server"),
            model: model.into(),
            args: Vec::new(),
            context,
            max_context: context,
            start_timeout: Duration::from_millis(LLAMA_START_TIMEOUT_MS),
        }
    }
}

/// Why there is no server, or not the wanted one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LlamaError {
    /// The shell could not be started.
    #[error("{program} cannot be started: {why}")]
    Start {
        /// What was to be started.
        program: String,
        /// What the system says.
        why: String,
    },
    /// It ended by itself.
    #[error("{program} ended ({status}); its last words: {log}")]
    Ended {
        /// What was started.
        program: String,
        /// How it ended.
        status: String,
        /// The end of its output.
        log: String,
    },
    /// It did not become ready.
    #[error("{program} was not ready within {seconds} s; its last words: {log}")]
    NotReady {
        /// What was started.
        program: String,
        /// The limit.
        seconds: u64,
        /// The end of its output.
        log: String,
    },
    /// The window is as large as it may be.
    #[error("the window of {context} tokens cannot be grown further; `max_context` allows no more")]
    AtLimit {
        /// What it is.
        context: u64,
    },
    /// It is still there after the time that it has to end.
    #[error("{program} did not end within {seconds} s; end it by hand")]
    StillThere {
        /// What was started.
        program: String,
        /// The limit.
        seconds: u64,
    },
}

impl LlamaError {
    /// The stable code; `docs/errors/CODE.md` explains it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Start { .. } => "HM2030",
            Self::Ended { .. } => "HM2031",
            Self::NotReady { .. } => "HM2032",
            Self::AtLimit { .. } => "HM2033",
            Self::StillThere { .. } => "HM2034",
        }
    }
}

/// A running `llama-server`. Dropping it ends the process; [`stop`](Self::stop) waits until it is gone.
#[derive(Debug)]
pub struct LlamaServer {
    config: LlamaServerConfig,
    context: u64,
    running: Running,
}

impl LlamaServer {
    /// Starts a server and waits until its model is loaded. Dropping the future ends what was started.
    ///
    /// # Errors
    /// [`LlamaError`] with the end of the server's own output.
    pub async fn start(config: LlamaServerConfig) -> Result<Self, LlamaError> {
        let context = config.context;
        let running = Running::start(&config, context, 0).await?;
        Ok(Self { config, context, running })
    }

    /// Where requests go, for [`HttpModelConfig::base_url`](crate::HttpModelConfig).
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.running.port)
    }

    /// Most tokens of input and output together, as it was started.
    #[must_use]
    pub fn context(&self) -> u64 {
        self.context
    }

    /// True while the process is there.
    pub fn is_running(&mut self) -> bool {
        matches!(self.running.child.try_wait(), Ok(None))
    }

    /// True when it can take requests.
    pub async fn is_healthy(&self) -> bool {
        is_healthy(&self.running.client, self.running.port).await
    }

    /// The newest part of what the server said.
    #[must_use]
    pub fn log(&self) -> String {
        self.running.log.text()
    }

    /// Starts the server again at the same address with a window of at least `wanted` tokens: twice the old one, or more
    /// when that is not enough, and never more than `max_context`. What the server had cached is gone. Requests under way
    /// are cut: to be called between two.
    ///
    /// # Errors
    /// [`LlamaError::AtLimit`] when the window is as large as it may be, and the server stays as it is; others when it does
    /// not come back: it is then started with the old window once more.
    pub async fn grow(&mut self, wanted: u64) -> Result<u64, LlamaError> {
        let larger = wanted.max(self.context.saturating_mul(2)).min(self.config.max_context);
        if larger <= self.context {
            return Err(LlamaError::AtLimit { context: self.context });
        }
        match self.restart(larger).await {
            Ok(()) => {
                self.context = larger;
                Ok(larger)
            }
            Err(error) => {
                // Too large for the memory, most likely. What worked before works again.
                self.restart(self.context).await?;
                Err(error)
            }
        }
    }

    /// Starts a server that ended by itself again.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn revive(&mut self) -> Result<(), LlamaError> {
        if self.is_running() {
            return Ok(());
        }
        self.restart(self.context).await
    }

    /// Ends the server and waits until it is gone.
    ///
    /// # Errors
    /// [`LlamaError::StillThere`].
    pub async fn stop(mut self) -> Result<(), LlamaError> {
        self.running.end(&self.config).await
    }

    async fn restart(&mut self, context: u64) -> Result<(), LlamaError> {
        self.running.end(&self.config).await?;
        // The same port, since models know it. Should somebody have taken it, the server says so and ends.
        self.running = Running::start(&self.config, context, self.running.port).await?;
        Ok(())
    }
}

/// One process.
#[derive(Debug)]
struct Running {
    child: Child,
    /// Held open as long as the server shall live.
    life: Option<ChildStdin>,
    port: u16,
    log: Arc<Log>,
    client: Client,
    /// The tasks that read what the server says; they end with it, or with this.
    _readers: JoinSet<()>,
}

impl Running {
    async fn start(config: &LlamaServerConfig, context: u64, port: u16) -> Result<Self, LlamaError> {
        let until = Instant::now() + config.start_timeout;
        let start = |why: String| LlamaError::Start { program: program(config), why };
        let client = probe_client(Duration::from_millis(HEALTH_TIMEOUT_MS)).map_err(|error| start(error.message))?;
        let mut child = command(config, context, port).spawn().map_err(|error| start(error.to_string()))?;
        let life = child.stdin.take();
        let log = Arc::new(Log::default());
        let (tell, mut told) = watch::channel(None);
        let tell = Arc::new(tell);
        let mut readers = JoinSet::new();
        if let Some(out) = child.stdout.take() {
            readers.spawn(read(out, Arc::clone(&log), Arc::clone(&tell)));
        }
        if let Some(err) = child.stderr.take() {
            readers.spawn(read(err, Arc::clone(&log), tell));
        }
        let mut running = Self { child, life, port, log, client, _readers: readers };
        let not_ready = |running: &Self| LlamaError::NotReady {
            program: program(config),
            seconds: config.start_timeout.as_secs(),
            log: running.log.tail(),
        };
        let named = async move { told.wait_for(Option::is_some).await.ok().and_then(|port| *port) };
        let ready = async {
            tokio::select! {
                status = running.child.wait() => return Err(ended(config, status.ok(), &running.log).await),
                port = named => running.port = port.unwrap_or_default(),
            }
            while !is_healthy(&running.client, running.port).await {
                tokio::select! {
                    status = running.child.wait() => return Err(ended(config, status.ok(), &running.log).await),
                    () = sleep(Duration::from_millis(HEALTH_PAUSE_MS)) => {}
                }
            }
            Ok(())
        };
        match timeout_at(until, ready).await {
            Ok(Ok(())) => Ok(running),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let error = not_ready(&running);
                running.end(config).await?;
                Err(error)
            }
        }
    }

    async fn end(&mut self, config: &LlamaServerConfig) -> Result<(), LlamaError> {
        drop(self.life.take());
        let limit = Duration::from_millis(LLAMA_STOP_TIMEOUT_MS);
        match timeout(limit, self.child.wait()).await {
            Ok(_) => Ok(()),
            Err(_) => Err(LlamaError::StillThere { program: program(config), seconds: limit.as_secs() }),
        }
    }
}

fn program(config: &LlamaServerConfig) -> String {
    config.program.display().to_string()
}

fn command(config: &LlamaServerConfig, context: u64, port: u16) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(GUARD).arg("llama-server").arg(GRACE_TENTHS.to_string());
    command.arg(&config.program).arg("--model").arg(&config.model);
    command.args(["--host", "127.0.0.1", "--port"]).arg(port.to_string());
    command.arg("--ctx-size").arg(context.to_string()).args(&config.args);
    // A group of its own: what a terminal sends to us on Ctrl-C is not meant for it.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The error for a server that ended; what it said is read to the end first, as far as that comes at once.
async fn ended(config: &LlamaServerConfig, status: Option<ExitStatus>, log: &Log) -> LlamaError {
    sleep(Duration::from_millis(HEALTH_PAUSE_MS)).await;
    let status = status.map_or_else(|| "in an unknown way".to_owned(), |status| status.to_string());
    LlamaError::Ended { program: program(config), status, log: log.tail() }
}

async fn is_healthy(client: &Client, port: u16) -> bool {
    let look = client.get(format!("http://127.0.0.1:{port}/health")).send();
    let answer = timeout(Duration::from_millis(HEALTH_TIMEOUT_MS), look).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|answer| answer.status().is_success()))
}

/// Reads output to its end: keeps the newest of it, and tells the port once it is named.
async fn read(pipe: impl AsyncRead + Unpin, log: Arc<Log>, tell: Arc<watch::Sender<Option<u16>>>) {
    let mut reader = BufReader::with_capacity(MAX_LINE_BYTES, pipe);
    let mut line = Vec::new();
    loop {
        let (taken, is_line) = match reader.fill_buf().await {
            Ok([]) | Err(_) => break,
            Ok(bytes) => match bytes.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    line.extend_from_slice(&bytes[..end]);
                    (end + 1, true)
                }
                None => {
                    line.extend_from_slice(bytes);
                    (bytes.len(), line.len() >= MAX_LINE_BYTES)
                }
            },
        };
        reader.consume(taken);
        if is_line {
            let text = String::from_utf8_lossy(&line).into_owned();
            if let Some(port) = listening_port(&text) {
                tell.send_replace(Some(port));
            }
            log.add(text);
            line.clear();
        }
    }
    if !line.is_empty() {
        log.add(String::from_utf8_lossy(&line).into_owned());
    }
}

/// The port in `server is listening on http://127.0.0.1:8080 - ...` or `HTTP server is listening, ..., port: 8080, ...`.
fn listening_port(line: &str) -> Option<u16> {
    let (_, behind) = line.split_once("listening")?;
    let number = ["http://127.0.0.1:", "port: ", "port="].iter().find_map(|mark| behind.split_once(mark))?.1;
    let digits = number.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|port| *port != 0)
}

/// The newest lines.
#[derive(Debug, Default)]
struct Log {
    /// Lines and their bytes together. Held for a push only, never over an await.
    lines: Mutex<(VecDeque<String>, usize)>,
}

impl Log {
    fn add(&self, line: String) {
        let mut held = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let (lines, bytes) = &mut *held;
        *bytes += line.len();
        lines.push_back(line);
        while *bytes > LLAMA_LOG_BYTES {
            let Some(oldest) = lines.pop_front() else { break };
            *bytes -= oldest.len();
        }
    }

    fn text(&self) -> String {
        let held = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        held.0.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// What fits into a message.
    fn tail(&self) -> String {
        let held = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let last: Vec<&str> = held.0.iter().rev().take(3).map(|line| line.trim()).collect();
        let said = last.into_iter().rev().collect::<Vec<_>>().join(" | ");
        if said.is_empty() { "none".to_owned() } else { said }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_what_the_server_says() {
        for (line, want) in [
            ("main: server is listening on http://127.0.0.1:41231 - starting the main loop", Some(41_231)),
            ("HTTP server is listening, hostname: 127.0.0.1, port: 8081, http threads: 3", Some(8081)),
            ("listening, port=9 ", Some(9)),
            ("listening on http://127.0.0.1:0", None),
            ("load: http://127.0.0.1:5 is a link", None),
            ("listening on http://127.0.0.1:99999", None),
        ] {
            assert_eq!(listening_port(line), want, "{line}");
        }
    }

    #[test]
    fn the_log_keeps_the_newest_lines_within_its_bytes() {
        let log = Log::default();
        assert_eq!(log.tail(), "none");
        for n in 0..10_000 {
            log.add(format!("line {n}"));
        }
        assert!(log.text().len() < LLAMA_LOG_BYTES + 2000);
        assert_eq!(log.tail(), "line 9997 | line 9998 | line 9999");
    }
}
