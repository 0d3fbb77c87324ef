//! The one list of settings that this program reads: how each is shown, which names `config check` and `config set` know.

use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};

use super::config::{Config, ProviderConfig};
use super::fallback::FallbackConfig;
use super::raw::{Entry, Kind, Node};

/// What stands in the place of a secret.
pub const MASK: &str = "********";

/// A name that ends so holds a secret.
const SECRET_ENDS: [&str; 9] =
    ["key", "token", "password", "passwd", "passphrase", "secret", "password_hash", "authorization", "cookie"];
/// Everything below a name that ends so may be a secret.
const SECRET_SECTION_ENDS: [&str; 3] = ["env", "headers", "credentials"];

/// Names without effect that need no mention: the Python program's mark of the file's age.
const QUIET: &str = "_config_version";

/// Settings whose value is a mapping with names that are the user's own.
const MAPPINGS: [&str; 1] = ["credential_pool_strategies"];

/// Whether what stands below this name is a part of its value, and no setting.
pub(super) fn is_mapping(key: &str) -> bool {
    MAPPINGS.contains(&key)
}

/// One setting.
pub(super) struct Setting {
    /// Its name with its sections; `*` stands for the id of a provider.
    key: &'static str,
    /// Other spellings, read in this order when it is not set under its own name.
    also: &'static [&'static str],
    value: Reader,
}

impl Setting {
    fn spellings(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.key).chain(self.also.iter().copied())
    }
}

enum Reader {
    Of(fn(&Config) -> Value),
    OfProvider(fn(&ProviderConfig) -> Value),
}

const fn of(key: &'static str, value: fn(&Config) -> Value) -> Setting {
    Setting { key, also: &[], value: Reader::Of(value) }
}

const fn of_provider(key: &'static str, value: fn(&ProviderConfig) -> Value) -> Setting {
    Setting { key, also: &[], value: Reader::OfProvider(value) }
}

/// Every setting that [`Config`] reads, in the order in which they are shown.
static SETTINGS: &[Setting] = &[
    of("model.provider", |config| json!(config.model.provider)),
    Setting { also: &["model.model", "model"], ..of("model.default", |config| json!(config.model.default)) },
    of("model.base_url", |config| json!(config.model.base_url)),
    of("model.api_key", |config| secret(config.model.api_key.as_ref())),
    of("model.api_mode", |config| json!(config.model.api_mode)),
    of("model.context_length", |config| json!(config.model.context_length)),
    of("model.max_tokens", |config| json!(config.model.max_tokens)),
    of("credential_pool_strategies", |config| {
        config.strategies.iter().map(|(id, strategy)| (id.clone(), json!(strategy.name()))).collect()
    }),
    of("fallback_providers", |config| config.fallbacks.iter().map(FallbackConfig::shown).collect()),
    of("toolsets", |config| json!(config.toolsets)),
    of("platform_toolsets.cli", |config| json!(config.cli_toolsets)),
    of("agent.max_turns", |config| json!(config.agent.max_turns)),
    of("agent.api_max_retries", |config| json!(config.agent.api_max_retries)),
    of("agent.disabled_toolsets", |config| json!(config.agent.disabled_toolsets)),
    of("agent.run_budget_seconds", |config| seconds(config.agent.run_budget)),
    of("agent.turn_liveness.timeout_s", |config| seconds(config.agent.liveness)),
    of("agent.reasoning_effort", |config| json!(config.agent.reasoning_effort)),
    of("auxiliary.title_generation.enabled", |config| json!(config.auxiliary.titles)),
    of("auxiliary.title_generation.provider", |config| json!(config.auxiliary.title.provider)),
    of("auxiliary.title_generation.model", |config| json!(config.auxiliary.title.model)),
    of("auxiliary.title_generation.base_url", |config| json!(config.auxiliary.title.base_url)),
    of("auxiliary.title_generation.api_key", |config| secret(config.auxiliary.title.api_key.as_ref())),
    of("auxiliary.title_generation.timeout", |config| seconds(config.auxiliary.title.timeout)),
    of("auxiliary.compression.provider", |config| json!(config.auxiliary.compression.provider)),
    of("auxiliary.compression.model", |config| json!(config.auxiliary.compression.model)),
    of("auxiliary.compression.base_url", |config| json!(config.auxiliary.compression.base_url)),
    of("auxiliary.compression.api_key", |config| secret(config.auxiliary.compression.api_key.as_ref())),
    of("auxiliary.compression.timeout", |config| seconds(config.auxiliary.compression.timeout)),
    of("auxiliary.approval.provider", |config| json!(config.auxiliary.approval.provider)),
    of("auxiliary.approval.model", |config| json!(config.auxiliary.approval.model)),
    of("auxiliary.approval.base_url", |config| json!(config.auxiliary.approval.base_url)),
    of("auxiliary.approval.api_key", |config| secret(config.auxiliary.approval.api_key.as_ref())),
    of("auxiliary.approval.timeout", |config| seconds(config.auxiliary.approval.timeout)),
    of("compression.enabled", |config| json!(config.compression.enabled)),
    of("compression.threshold", |config| json!(share(config.compression.threshold_percent))),
    of("compression.threshold_tokens", |config| json!(config.compression.threshold_tokens)),
    of("compression.protect_first_n", |config| json!(config.compression.protect_first)),
    of("compression.protect_last_n", |config| json!(config.compression.protect_last)),
    of("compression.max_attempts", |config| json!(config.compression.attempts_max)),
    of("compression.in_place", |config| json!(config.compression.in_place)),
    of("compression.idle_compact_after_seconds", |config| {
        seconds(config.compression.idle_after_ms.map(Duration::from_millis))
    }),
    of("delegation.max_concurrent_children", |config| json!(config.delegation.max_concurrent_children)),
    of("delegation.max_spawn_depth", |config| json!(config.delegation.max_spawn_depth)),
    of("delegation.max_iterations", |config| json!(config.delegation.max_iterations)),
    of("delegation.max_summary_chars", |config| json!(config.delegation.max_summary_chars)),
    of("network.proxy", |config| secret(config.network.proxy.as_ref())),
    of("network.no_proxy", |config| json!(config.network.no_proxy)),
    of("network.ca_file", |config| json!(config.network.ca_file)),
    of("llama_server.program", |config| json!(config.llama_server.program.to_string_lossy())),
    of("llama_server.model_file", |config| json!(config.llama_server.model_file)),
    of("llama_server.context_length", |config| json!(config.llama_server.context_length)),
    of("llama_server.max_context_length", |config| json!(config.llama_server.max_context_length)),
    of("llama_server.args", |config| config.llama_server.shown_args()),
    of("llama_server.port", |config| json!(config.llama_server.port)),
    of("llama_server.idle_stop_seconds", |config| seconds(config.llama_server.idle_stop)),
    of("llama_server.start_timeout_seconds", |config| seconds(Some(config.llama_server.start_timeout))),
    of("terminal.cwd", |config| json!(config.terminal.cwd.to_string_lossy())),
    of("terminal.timeout", |config| seconds(Some(config.terminal.timeout))),
    of("terminal.env_passthrough", |config| json!(config.terminal.env_passthrough)),
    of("approvals.mode", |config| json!(config.approvals.mode.as_str())),
    of("approvals.timeout", |config| seconds(Some(config.approvals.timeout))),
    of("approvals.deny", |config| json!(config.approvals.deny)),
    of("approvals.smart_policy", |config| json!(config.approvals.smart_policy)),
    of("approvals.denial_breaker_threshold", |config| json!(config.approvals.denial_breaker)),
    of("approvals.single_query_mode", |config| json!(config.approvals.single_query_mode.as_str())),
    of("approvals.unattended_mode", |config| json!(config.approvals.unattended_mode.as_str())),
    of("command_allowlist", |config| json!(config.command_allowlist)),
    of("tool_output.max_bytes", |config| json!(config.tool_output_max_bytes)),
    of("context_file_max_chars", |config| json!(config.context_file_max_chars)),
    of("context_file_read_timeout", |config| seconds(Some(config.context_file_read_timeout))),
    Setting {
        also: &["store.url"],
        ..of("database.url", |config| json!(config.store_url.as_ref().map(super::config::StoreUrl::shown)))
    },
    of("database.synchronous", |config| json!(config.synchronous.as_str())),
    of_provider("providers.*.api_key", |provider| secret(provider.api_key.as_ref())),
    of_provider("providers.*.base_url", |provider| json!(provider.base_url)),
    of_provider("providers.*.key_env", |provider| json!(provider.key_env)),
    of_provider("providers.*.request_timeout_seconds", |provider| seconds(provider.request_timeout)),
    of_provider("providers.*.stale_timeout_seconds", |provider| seconds(provider.stale_timeout)),
];

/// All names that have an effect or need no mention; `*` stands for any one id.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().flat_map(Setting::spellings).chain(std::iter::once(QUIET))
}

/// A setting for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// Its name with its sections, with dots between them.
    pub key: String,
    /// The value that holds. A secret is [`MASK`]; waits are in seconds. Null when there is no value, unless the file says
    /// so: then its own word, such as `none` or `auto`.
    pub value: Value,
    /// Who says so.
    pub source: Source,
}

/// Where a value is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The file does not say it: the program's own value, which is null where it has none.
    Default,
    /// A line of `config.yaml`, from 1.
    File {
        /// Which line.
        line: usize,
    },
}

impl Shown {
    fn of(key: String, value: Value, said: Option<&Entry>) -> Self {
        let Some(entry) = said else { return Self { key, value, source: Source::Default } };
        let value = if value.is_null() { entry.value.to_json() } else { value };
        Self { key, value, source: Source::File { line: entry.key_mark.line } }
    }
}

impl Config {
    /// Every setting that this program uses, with the value that holds and its source. Those of providers are there for
    /// the providers that the file names.
    #[must_use]
    pub fn show(&self) -> Vec<Shown> {
        let mut all = Vec::new();
        for setting in SETTINGS {
            if let Reader::Of(value) = setting.value {
                let value = value(self);
                let paths = setting.spellings().map(|name| name.split('.').collect::<Vec<_>>());
                let said = paths.filter_map(|path| self.said(&path, &value)).next();
                all.push(Shown::of(setting.key.to_owned(), value, said));
            }
        }
        for (id, provider) in &self.providers {
            for setting in SETTINGS {
                if let Reader::OfProvider(value) = setting.value {
                    let value = value(provider);
                    let path: Vec<&str> =
                        setting.key.split('.').map(|part| if part == "*" { id } else { part }).collect();
                    let said = self.said(&path, &value);
                    all.push(Shown::of(path.join("."), value, said));
                }
            }
        }
        all
    }

    /// One setting: the value that holds when this program uses it, otherwise what the file says under this name, which
    /// may be a whole section. `None` when neither is so. Secrets are masked.
    #[must_use]
    pub fn get(&self, dotted: &str) -> Option<Shown> {
        if let Some(shown) = self.show().into_iter().find(|shown| shown.key == dotted) {
            return Some(shown);
        }
        let entry = find(self.tree.as_ref()?, dotted)?;
        let last = dotted.rsplit('.').next().unwrap_or_default();
        let hidden = is_secret(last) || dotted.split('.').any(is_secret_section);
        let value = masked(hidden, entry.value.to_json());
        Some(Shown { key: dotted.to_owned(), value, source: Source::File { line: entry.key_mark.line } })
    }

    /// The entry with which the file says a setting. An empty text says nothing, except that a list is empty.
    fn said(&self, path: &[&str], value: &Value) -> Option<&Entry> {
        let entry = self.tree.as_ref()?.entry_at(path)?;
        let says = match &entry.value.kind {
            Kind::Null => false,
            Kind::Scalar { text, .. } => value.is_array() || !text.trim().is_empty(),
            Kind::List { .. } => true,
            // `model` is a section here, and not the name of a model; some values are mappings themselves.
            Kind::Map { .. } => value.is_object(),
        };
        says.then_some(entry)
    }
}

/// The entry under a dotted name. Names with dots inside are found too.
pub(super) fn find<'a>(node: &'a Node, dotted: &str) -> Option<&'a Entry> {
    if let Some(entry) = node.entry(dotted) {
        return Some(entry);
    }
    let dots = dotted.match_indices('.').map(|(at, _)| at);
    dots.filter_map(|at| Some((node.entry(&dotted[..at])?, &dotted[at + 1..])))
        .find_map(|(entry, rest)| find(&entry.value, rest))
}

/// A share in percent as the part of 1 that people write.
fn share(percent: u64) -> f64 {
    // At most 100, which every number holds.
    f64::from(u32::try_from(percent).unwrap_or(u32::MAX)) / 100.0
}

/// Whole seconds as a whole number.
fn seconds(wait: Option<Duration>) -> Value {
    match wait {
        None => Value::Null,
        Some(wait) if wait.subsec_nanos() == 0 => json!(wait.as_secs()),
        Some(wait) => json!(wait.as_secs_f64()),
    }
}

fn secret(key: Option<&SecretString>) -> Value {
    if key.is_some() { json!(MASK) } else { Value::Null }
}

fn ends(name: &str, ends: &[&str]) -> bool {
    let name = name.to_lowercase();
    ends.iter().any(|end| name.ends_with(end))
}

pub(super) fn is_secret(name: &str) -> bool {
    ends(name, &SECRET_ENDS)
}

fn is_secret_section(name: &str) -> bool {
    // `key_env` names a variable.
    ends(name, &SECRET_SECTION_ENDS) && !ends(name, &["key_env"])
}

/// Whether a text is a URL with a password in it.
fn holds_password(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) || rest.contains("password=")
}

fn masked(hidden: bool, value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let below = |key: &str| hidden || is_secret(key) || is_secret_section(key);
            Value::Object(map.into_iter().map(|(key, value)| (key.clone(), masked(below(&key), value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(|item| masked(hidden, item)).collect()),
        Value::String(_) | Value::Number(_) if hidden => Value::from(MASK),
        Value::String(text) if holds_password(&text) => Value::from(MASK),
        value => value,
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
