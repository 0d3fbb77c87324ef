//! What is started, and why there may be no server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// From the start to the first good answer of `/health`: large models are read from slow disks. A turn that waits for it is
/// silent, so this is below the time after which a silent turn counts as wedged (600 s).
pub const LLAMA_START_TIMEOUT_MS: u64 = 480_000;
/// How long nobody asks before the process is ended and its memory is free again.
pub const LLAMA_IDLE_STOP_MS: u64 = 1_800_000;
/// The window when nobody says how large it shall be: prompt and tools take about a third of it.
pub const LLAMA_CONTEXT_TOKENS: u64 = 16_384;

/// What is started.
#[derive(Debug, Clone)]
pub struct LlamaConfig {
    /// The program: a path, or a name that is looked for in `PATH`.
    pub program: PathBuf,
    /// The model's file.
    pub model: PathBuf,
    /// More arguments, as they are.
    pub args: Vec<OsString>,
    /// The environment of the process; `None` for this process's own. It needs no key of anybody.
    pub env: Option<BTreeMap<String, String>>,
    /// The port; 0 for any free one.
    pub port: u16,
    /// Most tokens of input and output together at the start (`--ctx-size`).
    pub context: u64,
    /// To how many tokens the window may be grown; what the memory allows only the user knows.
    pub max_context: u64,
    /// How long the start may take.
    pub start_timeout: Duration,
    /// How long nobody asks before the process is ended; `None` for never.
    pub idle_stop: Option<Duration>,
}

impl LlamaConfig {
    /// `llama-server` from `PATH` on a free port, with a window that does not grow.
    #[must_use]
    pub fn new(model: impl Into<PathBuf>, context: u64) -> Self {
        Self {
            program: PathBuf::from("llama-server"),
            model: model.into(),
            args: Vec::new(),
            env: None,
            port: 0,
            context,
            max_context: context,
            start_timeout: Duration::from_millis(LLAMA_START_TIMEOUT_MS),
            idle_stop: Some(Duration::from_millis(LLAMA_IDLE_STOP_MS)),
        }
    }

    /// The program, for people.
    pub(super) fn program(&self) -> String {
        self.program.display().to_string()
    }
}

/// What people call the model of a file: its name without `.gguf`.
#[must_use]
pub fn llama_model_name(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Why there is no server, or not the wanted one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LlamaError {
    /// The process could not be made.
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
    /// The window is as large as it may be, or as the server lets it be.
    #[error("the window of {context} tokens cannot be grown further")]
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
    /// Somebody else listens where it was told to.
    #[error("port {port}, on which {program} shall listen, is in use; name another one, or none for a free one")]
    PortTaken {
        /// What was to be started.
        program: String,
        /// The port.
        port: u16,
    },
    /// Others ask it, and it would be taken away from under them.
    #[error("answers were still under way after {seconds} s")]
    InUse {
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
            Self::AtLimit { .. } | Self::InUse { .. } => "HM2033",
            Self::StillThere { .. } => "HM2034",
            Self::PortTaken { .. } => "HM2035",
        }
    }
}
