//! One `llama-server` (llama.cpp) that this program starts and ends itself.
//!
//! **No port is guessed.** Unless the user names one, the server is told to take any free one (`--port 0`) and says which one
//! it got; nobody can take it in between, and nothing is sent to a port that our own process did not name. A port that the
//! user names is looked at first: llama.cpp's HTTP library shares its ports (`SO_REUSEPORT`), so two servers would each get
//! half of the requests.
//!
//! **Nothing is left behind.** A shell stands between us and the server. It holds the reading end of a pipe whose other end
//! only we hold: when we drop it, or die in whatever way, the shell reads its end and ends the server, first politely, then
//! for certain. That needs neither a signal handler nor a list of processes.
//!
//! The options are those of llama.cpp's `tools/server/README.md`: `--model`, `--host`, `--port`, `--ctx-size`; `GET /health`
//! answers 200 once the model is loaded, and `GET /props` says how many tokens one conversation really has: `--parallel`
//! divides the window, and a model that was made for less gets less.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::config::{LlamaConfig, LlamaError};
use super::log::{Log, read};
use crate::http::probe_client;
use crate::local::describe::served_at;

/// From the wish to stop until the process must be gone.
pub const LLAMA_STOP_TIMEOUT_MS: u64 = 15_000;
/// How long a server that was asked to end may take; the script counts in tenths of a second.
const GRACE_TENTHS: u32 = 50;
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

/// A running `llama-server`. Dropping it ends the process; [`stop`](Self::stop) waits until it is gone.
#[derive(Debug)]
pub struct LlamaServer {
    program: String,
    child: Child,
    /// Held open as long as the server shall live.
    life: Option<ChildStdin>,
    port: u16,
    context: u64,
    window: u64,
    sees_images: Option<bool>,
    begun: Instant,
    log: Arc<Log>,
    client: Client,
    /// The tasks that read what the server says; they end with it, or with this.
    _readers: JoinSet<()>,
}

impl LlamaServer {
    /// Starts a server with a window of `context` tokens and waits until its model is loaded. Dropping the future ends what
    /// was started.
    ///
    /// # Errors
    /// [`LlamaError`] with the end of the server's own output.
    pub async fn start(config: &LlamaConfig, context: u64) -> Result<Self, LlamaError> {
        let program = config.program();
        let until = Instant::now() + config.start_timeout;
        let cannot = |why: String| LlamaError::Start { program: program.clone(), why };
        // Nobody may stand there: a second one would listen beside it.
        if config.port != 0 && TcpListener::bind(("127.0.0.1", config.port)).await.is_err() {
            return Err(LlamaError::PortTaken { program, port: config.port });
        }
        let client = probe_client(Duration::from_millis(HEALTH_TIMEOUT_MS)).map_err(|error| cannot(error.message))?;
        let mut child = command(config, context).spawn().map_err(|error| cannot(error.to_string()))?;
        let life = child.stdin.take();
        let log = Arc::new(Log::default());
        let (tell, told) = watch::channel(Some(config.port).filter(|port| *port != 0));
        let tell = Arc::new(tell);
        let mut readers = JoinSet::new();
        if let Some(out) = child.stdout.take() {
            readers.spawn(read(out, Arc::clone(&log), Arc::clone(&tell)));
        }
        if let Some(err) = child.stderr.take() {
            readers.spawn(read(err, Arc::clone(&log), tell));
        }
        let mut server = Self {
            program,
            child,
            life,
            port: 0,
            context,
            window: context,
            sees_images: None,
            begun: Instant::now(),
            log,
            client,
            _readers: readers,
        };
        match timeout_at(until, server.until_ready(told)).await {
            Ok(Ok(())) => Ok(server),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let seconds = config.start_timeout.as_secs();
                let error = LlamaError::NotReady { program: server.program.clone(), seconds, log: server.log.tail() };
                server.stop().await?;
                Err(error)
            }
        }
    }

    async fn until_ready(&mut self, mut told: watch::Receiver<Option<u16>>) -> Result<(), LlamaError> {
        let named = async { told.wait_for(Option::is_some).await.ok().and_then(|port| *port) };
        tokio::select! {
            status = self.child.wait() => return Err(self.last_words(status.ok()).await),
            port = named => self.port = port.unwrap_or_default(),
        }
        while !self.is_healthy().await {
            tokio::select! {
                status = self.child.wait() => return Err(self.last_words(status.ok()).await),
                () = sleep(Duration::from_millis(HEALTH_PAUSE_MS)) => {}
            }
        }
        let told = served_at(&self.client, &self.root()).await;
        self.window = told.context_window.unwrap_or(self.context);
        self.sees_images = told.vision;
        self.begun = Instant::now();
        Ok(())
    }

    fn root(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Where requests go, for [`HttpModelConfig::base_url`](crate::HttpModelConfig).
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.root())
    }

    /// The window that it was started with, in tokens.
    #[must_use]
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Most tokens of input and output together that one conversation has, as the server says.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Whether the model sees pictures, when the server tells.
    #[must_use]
    pub fn sees_images(&self) -> Option<bool> {
        self.sees_images
    }

    /// How long it has been ready.
    #[must_use]
    pub fn ran_for(&self) -> Duration {
        self.begun.elapsed()
    }

    /// True while the process is there.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// True when it can take requests.
    pub async fn is_healthy(&self) -> bool {
        let look = self.client.get(format!("{}/health", self.root())).send();
        let answer = timeout(Duration::from_millis(HEALTH_TIMEOUT_MS), look).await;
        answer.is_ok_and(|answer| answer.is_ok_and(|answer| answer.status().is_success()))
    }

    /// The newest part of what the server said.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until the process ends by itself, and says how it did. Dropping the future changes nothing.
    pub async fn ended(&mut self) -> LlamaError {
        let status = self.child.wait().await.ok();
        self.last_words(status).await
    }

    /// Ends the server and waits until it is gone.
    ///
    /// # Errors
    /// [`LlamaError::StillThere`].
    pub async fn stop(mut self) -> Result<(), LlamaError> {
        drop(self.life.take());
        let limit = Duration::from_millis(LLAMA_STOP_TIMEOUT_MS);
        match timeout(limit, self.child.wait()).await {
            Ok(_) => Ok(()),
            Err(_) => Err(LlamaError::StillThere { program: self.program, seconds: limit.as_secs() }),
        }
    }

    /// The error for a server that ended; what it said is read to the end first, as far as that comes at once.
    async fn last_words(&self, status: Option<ExitStatus>) -> LlamaError {
        sleep(Duration::from_millis(HEALTH_PAUSE_MS)).await;
        let status = status.map_or_else(|| "in an unknown way".to_owned(), |status| status.to_string());
        LlamaError::Ended { program: self.program.clone(), status, log: self.log.tail() }
    }
}

fn command(config: &LlamaConfig, context: u64) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(GUARD).arg("llama-server").arg(GRACE_TENTHS.to_string());
    command.arg(&config.program).arg("--model").arg(&config.model);
    command.args(["--host", "127.0.0.1", "--port"]).arg(config.port.to_string());
    command.arg("--ctx-size").arg(context.to_string()).args(&config.args);
    if let Some(env) = &config.env {
        command.env_clear().envs(env);
    }
    // A group of its own: what a terminal sends to us on Ctrl-C is not meant for it.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}
