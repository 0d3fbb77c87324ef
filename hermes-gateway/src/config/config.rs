//! The settings of a profile, resolved: every field is present, defaults are filled in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_core::{CompressionSettings, DelegationSettings};
use hermes_providers::credential::pool::Strategy;
use hermes_store::postgres;
use hermes_tools::JUDGE_REFUSALS_MAX;
use secrecy::{ExposeSecret as _, SecretString};

use super::auxiliary::{AuxiliaryConfig, auxiliary};
use super::compression::compression;
use super::delegation::delegation;
use super::error::ConfigError;
use super::fallback::{FallbackConfig, fallbacks};
use super::files;
use super::llama_server::{LlamaServerConfig, llama_server};
use super::network::{NetworkConfig, network};
use super::raw::{self, Node};
use super::scope::Scope;
use super::values::View;

/// How long a turn may stand still.
const LIVENESS: Duration = Duration::from_millis(hermes_core::limits::LIVENESS_TIMEOUT_MS);
/// `agent.api_max_retries` of the Python program.
const API_MAX_RETRIES: u32 = 3;
/// `terminal.timeout` of the Python program.
const TERMINAL_TIMEOUT_S: u64 = 180;
/// `approvals.timeout` of the Python program.
const APPROVAL_TIMEOUT_S: u64 = 300;
/// `tool_output.max_bytes` of the Python program.
const TOOL_OUTPUT_MAX_BYTES: u64 = 50_000;
/// `context_file_read_timeout` of the Python program.
const CONTEXT_FILE_READ_TIMEOUT_S: u64 = 5;
/// `toolsets` of the Python program.
const DEFAULT_TOOLSET: &str = "hermes-cli";

/// `model`: which model answers and how it is reached.
#[derive(Debug, Clone, Default)]
pub struct ModelConfig {
    /// Provider id; `None` when unset or `auto`.
    pub provider: Option<String>,
    /// Model name as the provider knows it. `model: NAME` sets it too.
    pub default: Option<String>,
    /// Where requests go, without a trailing slash.
    pub base_url: Option<String>,
    /// The key itself. May be `${NAME}`, which stands for that variable.
    pub api_key: Option<SecretString>,
    /// The wire, e.g. `chat_completions`.
    pub api_mode: Option<String>,
    /// Context window in tokens.
    pub context_length: Option<u64>,
    /// Most tokens of one answer.
    pub max_tokens: Option<u64>,
}

/// `providers.<id>`.
#[derive(Debug, Clone, Default)]
pub struct ProviderConfig {
    /// The key itself. May be `${NAME}`.
    pub api_key: Option<SecretString>,
    /// Where requests go, without a trailing slash.
    pub base_url: Option<String>,
    /// Name of the variable that holds the key.
    pub key_env: Option<String>,
    /// Longest whole request.
    pub request_timeout: Option<Duration>,
    /// Longest silence within a stream.
    pub stale_timeout: Option<Duration>,
}

/// `agent`.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// Most model requests of a turn; `None`: no limit.
    pub max_turns: Option<u64>,
    /// Retries of one request after the first attempt.
    pub api_max_retries: u32,
    /// Toolsets that stay off whatever `toolsets` says.
    pub disabled_toolsets: Vec<String>,
    /// Longest turn; `None`: no limit.
    pub run_budget: Option<Duration>,
    /// How long nothing of a turn may move before it is stopped as wedged; `None`: it is not watched.
    pub liveness: Option<Duration>,
    /// Wanted effort in the provider's words, lower case; `none` for no reasoning; `None`: the provider decides.
    pub reasoning_effort: Option<String>,
}

/// `terminal`.
#[derive(Debug, Clone)]
pub struct TerminalConfig {
    /// Where commands start; relative to the working directory of the client.
    pub cwd: PathBuf,
    /// Longest foreground command.
    pub timeout: Duration,
    /// Variables that commands may see although they look like secrets.
    pub env_passthrough: Vec<String>,
}

/// `approvals.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalsMode {
    /// A person is asked.
    Manual,
    /// A judge model decides first; without one, a person is asked.
    Smart,
    /// Nobody is asked.
    Off,
}

impl ApprovalsMode {
    /// As it is written in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Smart => "smart",
            Self::Off => "off",
        }
    }
}

/// What happens to a question when nobody can answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NobodyThere {
    /// It is denied.
    Deny,
    /// It is approved.
    Approve,
}

impl NobodyThere {
    /// As it is written in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Approve => "approve",
        }
    }
}

/// `approvals`.
#[derive(Debug, Clone)]
pub struct ApprovalsConfig {
    /// Who is asked.
    pub mode: ApprovalsMode,
    /// How long an answer is waited for; then it is no.
    pub timeout: Duration,
    /// Patterns of commands that are always denied.
    pub deny: Vec<String>,
    /// What the judge is told beside the program's own rules.
    pub smart_policy: Option<String>,
    /// Refusals by the judge in a row after which the model is told to stop; 0 = never.
    pub denial_breaker: u32,
    /// For `hermes -z` and `hermes chat -q`.
    pub single_query_mode: NobodyThere,
    /// For gateways and other runs without a person.
    pub unattended_mode: NobodyThere,
}

/// `database.synchronous`, a setting of this program only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synchronous {
    /// Every commit reaches the disk.
    Full,
    /// The last commits may be lost with the power; nothing is damaged.
    Normal,
}

impl Synchronous {
    /// As it is written in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Normal => "normal",
        }
    }
}

/// `database.url`: where the store is. Shown without its password everywhere, also by `Debug`.
#[derive(Clone)]
pub enum StoreUrl {
    /// `sqlite:PATH`; a relative path is below the home.
    Sqlite(PathBuf),
    /// `postgres://...`.
    Postgres(SecretString),
}

impl StoreUrl {
    /// Reads what stands in the file. `None` for what is no such URL.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return (!path.is_empty()).then(|| Self::Sqlite(PathBuf::from(path)));
        }
        let is_postgres = text.starts_with("postgres://") || text.starts_with("postgresql://");
        (is_postgres && postgres::is_url(text)).then(|| Self::Postgres(SecretString::from(text)))
    }

    /// As a person may see it.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite:{}", path.display()),
            Self::Postgres(url) => postgres::shown_url(url.expose_secret()),
        }
    }
}

impl std::fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

/// All settings of a profile. Secrets never show in `Debug`.
#[derive(Clone)]
pub struct Config {
    /// `model`.
    pub model: ModelConfig,
    /// `providers`, by id as written.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// `credential_pool_strategies`: how the next of several credentials is found, by provider.
    pub strategies: BTreeMap<String, Strategy>,
    /// `fallback_providers`: what stands in, in this order, for a model that gives no answer.
    pub fallbacks: Vec<FallbackConfig>,
    /// `toolsets`.
    pub toolsets: Vec<String>,
    /// `platform_toolsets.cli`: what holds on this screen instead of `toolsets`.
    pub cli_toolsets: Option<Vec<String>>,
    /// `agent`.
    pub agent: AgentConfig,
    /// `auxiliary`.
    pub auxiliary: AuxiliaryConfig,
    /// `compression`.
    pub compression: CompressionSettings,
    /// `delegation`.
    pub delegation: DelegationSettings,
    /// `network`.
    pub network: NetworkConfig,
    /// `llama_server`.
    pub llama_server: LlamaServerConfig,
    /// `terminal`.
    pub terminal: TerminalConfig,
    /// `approvals`.
    pub approvals: ApprovalsConfig,
    /// `command_allowlist`: commands that are never asked about.
    pub command_allowlist: Vec<String>,
    /// `tool_output.max_bytes`: longest tool result that goes to the model whole.
    pub tool_output_max_bytes: u64,
    /// `context_file_max_chars`; `None`: derived from the context window.
    pub context_file_max_chars: Option<u64>,
    /// `context_file_read_timeout`.
    pub context_file_read_timeout: Duration,
    /// `database.synchronous`.
    pub synchronous: Synchronous,
    /// `database.url`; without one the store is a file in the home.
    pub store_url: Option<StoreUrl>,
    /// The file that was read, or would have been.
    pub file: PathBuf,
    /// Everything that the file holds; what this program does not know is kept for `config check`.
    pub(super) tree: Option<Node>,
}

impl Config {
    /// Reads the settings of a profile. A missing or empty file gives the defaults.
    ///
    /// # Errors
    /// [`ConfigError::Unreadable`], [`ConfigError::BrokenYaml`], [`ConfigError::WrongValue`].
    pub fn load(scope: &Scope) -> Result<Self, ConfigError> {
        let file = scope.config_yaml();
        let text = read_text(&file)?.unwrap_or_default();
        Self::parse(&file, &text)
    }

    /// The settings in a text; `file` is for messages.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let tree = raw::parse(file, text)?;
        let root = View::root(file, tree.as_ref());
        let tool_output = root.section("tool_output")?;
        Ok(Self {
            model: model(&root)?,
            providers: providers(&root)?,
            strategies: strategies(&root)?,
            fallbacks: fallbacks(&root)?,
            cli_toolsets: root
                .section("platform_toolsets")?
                .key("cli")
                .list(true, "a list of toolsets, for example `[file, terminal]`")?,
            toolsets: root
                .key("toolsets")
                .list(true, "a list of names, for example `[hermes-cli]`")?
                .unwrap_or_else(|| vec![DEFAULT_TOOLSET.to_owned()]),
            agent: agent(&root)?,
            auxiliary: auxiliary(&root)?,
            compression: compression(&root)?,
            delegation: delegation(&root)?,
            network: network(&root)?,
            llama_server: llama_server(&root)?,
            terminal: terminal(&root)?,
            approvals: approvals(&root)?,
            command_allowlist: root
                .key("command_allowlist")
                .list(false, "a list of commands, for example `[\"git status\"]`")?
                .unwrap_or_default(),
            tool_output_max_bytes: tool_output
                .key("max_bytes")
                .positive("a number of bytes, for example 50000")?
                .unwrap_or(TOOL_OUTPUT_MAX_BYTES),
            context_file_max_chars: root
                .key("context_file_max_chars")
                .limit("a number of characters, for example 20000, or nothing")?,
            context_file_read_timeout: root
                .key("context_file_read_timeout")
                .seconds("a number of seconds, for example 5.0")?
                .unwrap_or(Duration::from_secs(CONTEXT_FILE_READ_TIMEOUT_S)),
            store_url: match root.section("database")?.key("url").store_url()? {
                Some(url) => Some(url),
                None => root.section("store")?.key("url").store_url()?,
            },
            synchronous: root
                .section("database")?
                .key("synchronous")
                .word(&[("full", Synchronous::Full), ("normal", Synchronous::Normal)], "`full` or `normal`")?
                .unwrap_or(Synchronous::Full),
            file: file.to_owned(),
            tree,
        })
    }
}

/// A whole text file, `None` when there is none.
pub(super) fn read_text(path: &Path) -> Result<Option<String>, ConfigError> {
    let unreadable = |reason: String| ConfigError::Unreadable { path: path.to_owned(), reason };
    let Some(bytes) = files::read(path, raw::CONFIG_MAX_BYTES)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes().iter().take(good).filter(|byte| **byte == b'\n').count();
        unreadable(format!("line {line} is not UTF-8; save the file as UTF-8"))
    })
}

fn model(root: &View<'_>) -> Result<ModelConfig, ConfigError> {
    let view = root.key("model");
    if !view.is_mapping() {
        let default = view.text("a model name, or a mapping with `provider` and `default`")?;
        return Ok(ModelConfig { default, ..ModelConfig::default() });
    }
    let name = "a model name, for example `gpt-5`";
    let default = view.key("default").text(name)?;
    Ok(ModelConfig {
        provider: view
            .key("provider")
            .text("a provider's name, for example `openrouter`")?
            .filter(|provider| !provider.eq_ignore_ascii_case("auto")),
        // `model.model` is an older spelling that the Python program still reads.
        default: match default {
            Some(default) => Some(default),
            None => view.key("model").text(name)?,
        },
        base_url: base_url(&view)?,
        api_key: view.key("api_key").secret()?,
        api_mode: view.key("api_mode").text("the name of a wire, for example `chat_completions`")?,
        context_length: view.key("context_length").limit("a number of tokens, for example 128000")?,
        max_tokens: view.key("max_tokens").limit("a number of tokens, for example 8192")?,
    })
}

fn base_url(view: &View<'_>) -> Result<Option<String>, ConfigError> {
    let url = view.key("base_url").text("an address, for example `http://127.0.0.1:8080/v1`")?;
    Ok(url.map(|url| url.trim_end_matches('/').to_owned()))
}

fn strategies(root: &View<'_>) -> Result<BTreeMap<String, Strategy>, ConfigError> {
    let all = root.section("credential_pool_strategies")?;
    let words = Strategy::NAMES.map(|name| (name, Strategy::named(name).unwrap_or_default()));
    let wanted = "`fill_first`, `round_robin`, `random` or `least_used`";
    let one = |id: &str| Ok(all.key(id).word(&words, wanted)?.map(|strategy| (id.to_owned(), strategy)));
    all.names().into_iter().filter_map(|id| one(id).transpose()).collect()
}

fn providers(root: &View<'_>) -> Result<BTreeMap<String, ProviderConfig>, ConfigError> {
    let all = root.section("providers")?;
    let mut providers = BTreeMap::new();
    for id in all.names() {
        let view = all.section(id)?;
        let wait = "a number of seconds, for example 120";
        let provider = ProviderConfig {
            api_key: view.key("api_key").secret()?,
            base_url: base_url(&view)?,
            key_env: view.key("key_env").text("the name of a variable, for example `MY_API_KEY`")?,
            request_timeout: view.key("request_timeout_seconds").seconds(wait)?.filter(|wait| !wait.is_zero()),
            stale_timeout: view.key("stale_timeout_seconds").seconds(wait)?.filter(|wait| !wait.is_zero()),
        };
        providers.insert(id.to_owned(), provider);
    }
    Ok(providers)
}

fn agent(root: &View<'_>) -> Result<AgentConfig, ConfigError> {
    let view = root.section("agent")?;
    let retries = view.key("api_max_retries").whole("a number of retries, for example 3")?;
    let effort = view.key("reasoning_effort").text("an effort, for example `medium`, or `none`")?;
    Ok(AgentConfig {
        max_turns: view.key("max_turns").limit("a number of requests, for example 90, or `none`")?,
        api_max_retries: retries.map_or(API_MAX_RETRIES, |retries| u32::try_from(retries).unwrap_or(u32::MAX)),
        disabled_toolsets: view
            .key("disabled_toolsets")
            .list(true, "a list of names, for example `[terminal]`")?
            .unwrap_or_default(),
        run_budget: view
            .key("run_budget_seconds")
            .seconds("a number of seconds, for example 600")?
            .filter(|budget| !budget.is_zero()),
        liveness: view
            .section("turn_liveness")?
            .key("timeout_s")
            .seconds("a number of seconds, for example 600, or 0 to watch nothing")?
            .map_or(Some(LIVENESS), |timeout| Some(timeout).filter(|timeout| !timeout.is_zero())),
        reasoning_effort: effort.map(|effort| match raw::yaml_bool(&effort) {
            Some(false) => "none".to_owned(),
            _ => effort.to_lowercase(),
        }),
    })
}

fn terminal(root: &View<'_>) -> Result<TerminalConfig, ConfigError> {
    let view = root.section("terminal")?;
    Ok(TerminalConfig {
        cwd: view.key("cwd").text("a directory")?.unwrap_or_else(|| ".".to_owned()).into(),
        timeout: view
            .key("timeout")
            .seconds("a number of seconds, for example 180")?
            .filter(|timeout| !timeout.is_zero())
            .unwrap_or(Duration::from_secs(TERMINAL_TIMEOUT_S)),
        env_passthrough: view
            .key("env_passthrough")
            .list(true, "a list of variable names, for example `[MY_TOKEN]`")?
            .unwrap_or_default(),
    })
}

fn approvals(root: &View<'_>) -> Result<ApprovalsConfig, ConfigError> {
    let view = root.section("approvals")?;
    let modes = [("manual", ApprovalsMode::Manual), ("smart", ApprovalsMode::Smart), ("off", ApprovalsMode::Off)];
    let nobody = |key: &str| -> Result<NobodyThere, ConfigError> {
        let words = [("deny", NobodyThere::Deny), ("approve", NobodyThere::Approve)];
        Ok(view.key(key).word(&words, "`deny` or `approve`")?.unwrap_or(NobodyThere::Deny))
    };
    Ok(ApprovalsConfig {
        mode: view.key("mode").word(&modes, "`manual`, `smart` or `off`")?.unwrap_or(ApprovalsMode::Smart),
        timeout: view
            .key("timeout")
            .seconds("a number of seconds, for example 300")?
            .unwrap_or(Duration::from_secs(APPROVAL_TIMEOUT_S)),
        deny: view.key("deny").list(false, "a list of command patterns")?.unwrap_or_default(),
        smart_policy: view.key("smart_policy").text("rules for the judge, in words")?,
        denial_breaker: view
            .key("denial_breaker_threshold")
            .whole("a number of refusals, for example 3")?
            .map_or(JUDGE_REFUSALS_MAX, |number| u32::try_from(number).unwrap_or(u32::MAX)),
        single_query_mode: nobody("single_query_mode")?,
        unattended_mode: nobody("unattended_mode")?,
    })
}

/// Shows the resolved settings without any secret and without the unknown ones, which may be secrets.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("file", &self.file)
            .field("model", &self.model)
            .field("providers", &self.providers)
            .field("fallbacks", &self.fallbacks)
            .field("toolsets", &self.toolsets)
            .field("cli_toolsets", &self.cli_toolsets)
            .field("agent", &self.agent)
            .field("auxiliary", &self.auxiliary)
            .field("compression", &self.compression)
            .field("delegation", &self.delegation)
            .field("network", &self.network)
            .field("terminal", &self.terminal)
            .field("approvals", &self.approvals)
            .field("synchronous", &self.synchronous)
            .field("store_url", &self.store_url)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
