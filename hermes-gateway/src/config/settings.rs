//! The resolved settings: every field present, with the names and defaults of the Python program.

use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use secrecy::SecretString;

/// `model`: which model is spoken to. A plain text is the name alone.
#[derive(Debug, Clone, Default)]
pub struct ModelSettings {
    /// `model.default` (also `model.name`, `model.model`): the model.
    pub name: Option<String>,
    /// `model.provider`. None also for "auto".
    pub provider: Option<String>,
    /// `model.base_url`.
    pub base_url: Option<String>,
    /// `model.api_key`.
    pub api_key: Option<SecretString>,
    /// `model.api_mode`: how the server is spoken to, e.g. `chat_completions`.
    pub api_mode: Option<String>,
    /// `model.context_length`, in tokens.
    pub context_length: Option<u64>,
    /// `model.max_tokens`: of one answer.
    pub max_tokens: Option<u64>,
}

/// `providers.<id>`.
#[derive(Debug, Clone, Default)]
pub struct ProviderSettings {
    /// The key itself.
    pub api_key: Option<SecretString>,
    /// The address that ends in `/v1`. Also makes an id known that is not built in.
    pub base_url: Option<String>,
    /// The variable that holds the key.
    pub key_env: Option<String>,
    /// How the server is spoken to.
    pub api_mode: Option<String>,
    /// The model when none is named.
    pub default_model: Option<String>,
    /// How long a whole request may take.
    pub request_timeout: Option<Duration>,
    /// How long a stream may be silent.
    pub stale_timeout: Option<Duration>,
    /// `models.<model>`.
    pub models: IndexMap<String, ModelOverrides>,
}

/// `providers.<id>.models.<model>`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelOverrides {
    /// In tokens.
    pub context_length: Option<u64>,
    /// Of one answer.
    pub max_tokens: Option<u64>,
    /// How long a whole request may take.
    pub request_timeout: Option<Duration>,
    /// How long a stream may be silent.
    pub stale_timeout: Option<Duration>,
}

/// An item of `custom_providers`.
#[derive(Debug, Clone)]
pub struct CustomProvider {
    /// Its name; `custom:<name>` means the same.
    pub name: String,
    /// The address, key, mode and models. `default_model` is its `model`.
    pub settings: ProviderSettings,
}

/// `agent`.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// Rounds of one turn; None leaves it to the engine.
    pub max_turns: Option<u32>,
    /// How long one turn may run; None is no limit.
    pub run_budget: Option<Duration>,
    /// Tries of one request, the first one counted.
    pub api_max_retries: u32,
    /// Toolsets that are never offered.
    pub disabled_toolsets: Vec<String>,
    /// How much a model may think; None leaves it to the model.
    pub reasoning_effort: Option<String>,
    /// How long a question to the user waits.
    pub clarify_timeout: Duration,
    /// A sentence about the machine, for the prompt.
    pub environment_hint: String,
    /// Instructions of the user, for the prompt.
    pub system_prompt: String,
}

/// `terminal`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminal {
    /// Where commands start, `~` expanded. None (`.`) is the working directory of the run.
    pub cwd: Option<PathBuf>,
    /// How long a command in the foreground may run.
    pub timeout: Duration,
    /// Variables that commands may see although they look like secrets.
    pub env_passthrough: Vec<String>,
    /// Files that the shell reads first.
    pub shell_init_files: Vec<String>,
    /// Whether the shell reads `~/.bashrc`.
    pub auto_source_bashrc: bool,
    /// Where temporary files go; None is the system's place.
    pub temp_dir: Option<PathBuf>,
}

/// A closed set of words that a setting may hold.
pub(super) trait Words: Copy + 'static {
    /// Each word with its meaning. The first word of a meaning is the one that is shown.
    const WORDS: &'static [(&'static str, Self)];
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $($word:literal)|+,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl Words for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$($(($word, Self::$variant),)+)+];
        }

        impl $name {
            /// The word that stands in the file.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
            }
        }
    };
}

words! {
    /// `approvals.mode`.
    ApprovalMode {
        /// A person is asked about a dangerous command.
        Manual = "manual",
        /// A second model judges first.
        Smart = "smart",
        /// Nobody is asked. YAML reads a bare `off` as false, so false means the same.
        Off = "off" | "false" | "no",
    }
}
words! {
    /// What is answered when nobody can be asked.
    AutoAnswer {
        /// The command is refused.
        Deny = "deny",
        /// The command runs.
        Approve = "approve" | "allow",
    }
}
words! {
    /// `database.synchronous`: ours, how often SQLite waits for the disk.
    Synchronous {
        /// Nothing acknowledged is lost on power failure.
        Full = "full",
        /// Faster; the last transactions can be lost on power failure, not on a crash.
        Normal = "normal",
    }
}
words! {
    /// `display.busy_input_mode`: what an input does while a turn runs.
    BusyInput {
        /// It stops the turn.
        Interrupt = "interrupt",
        /// It waits.
        Queue = "queue",
        /// It is handed to the running turn.
        Steer = "steer",
    }
}
words! {
    /// `display.resume_display`: what is shown of a continued session.
    ResumeDisplay {
        /// Its last exchanges.
        Full = "full",
        /// One line.
        Minimal = "minimal",
        /// Nothing.
        None = "none" | "off" | "false",
    }
}

/// `approvals`, and `command_allowlist`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approvals {
    /// Who is asked.
    pub mode: ApprovalMode,
    /// How long a question waits; then the answer is no.
    pub timeout: Duration,
    /// Patterns of commands that are always refused.
    pub deny: Vec<String>,
    /// The answer for `-q` without a terminal.
    pub single_query_mode: AutoAnswer,
    /// The answer when no person is connected.
    pub unattended_mode: AutoAnswer,
    /// The answer for scheduled jobs.
    pub cron_mode: AutoAnswer,
    /// `command_allowlist`: what was allowed for ever.
    pub allowlist: Vec<String>,
}

/// `tool_output`: how much of a result a model sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolOutput {
    /// Bytes of one result.
    pub max_bytes: usize,
    /// Lines of one result.
    pub max_lines: usize,
    /// Characters of one line.
    pub max_line_length: usize,
}

/// `memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Whether `memories/MEMORY.md` is used.
    pub memory_enabled: bool,
    /// Whether `memories/USER.md` is used.
    pub user_profile_enabled: bool,
    /// Characters of the first.
    pub memory_char_limit: usize,
    /// Characters of the second.
    pub user_char_limit: usize,
}

/// `display`: what a command line shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Display {
    /// Fewer lines.
    pub compact: bool,
    /// What an input does while a turn runs.
    pub busy_input_mode: BusyInput,
    /// What is shown of a continued session.
    pub resume_display: ResumeDisplay,
    /// Exchanges shown of a continued session.
    pub resume_exchanges: usize,
    /// Whether the thinking of a model is shown.
    pub show_reasoning: bool,
    /// Whether the price is shown.
    pub show_cost: bool,
    /// Whether changes of files are shown as a diff.
    pub inline_diffs: bool,
    /// Whether times are shown.
    pub timestamps: bool,
    /// How times are shown (strftime).
    pub timestamp_format: String,
    /// Whether the terminal bell rings at the end of a turn.
    pub bell_on_complete: bool,
    /// Whether the terminal bell rings at a question.
    pub bell_on_prompt: bool,
    /// Characters of a tool's arguments that are shown; 0 is as many as fit.
    pub tool_preview_length: usize,
    /// Whether typed lines are remembered.
    pub persist_prompts: bool,
}

/// `database`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Database {
    /// How often SQLite waits for the disk.
    pub synchronous: Synchronous,
}

/// `sessions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sessions {
    /// Rows that a continued session loads.
    pub max_resume_messages: usize,
    /// Rows that an export holds.
    pub max_export_messages: usize,
}
