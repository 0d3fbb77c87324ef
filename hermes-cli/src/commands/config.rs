//! `hermes config`. Reads and writes the files itself; no gateway is started.

use std::io::Write;
use std::time::Duration;

use hermes_gateway::config::{Config, ConfigError, Env, Scope, check, edit, written};
use hermes_gateway::protocol::RpcError;
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::exit::{Exit, Fault};
use crate::render::lists::table;
use crate::text::{harmless, one_line};

/// What stands in the place of a secret.
const MASK: &str = "********";

/// Arguments of `hermes config`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Where the configuration file is
    Path,
    /// Every setting that this program uses, with where it comes from
    Show {
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// One setting. Secrets are masked
    Get {
        /// Its name, with dots: agent.max_turns
        key: String,
    },
    /// Change one setting; comments and everything else in the file stay
    Set {
        /// Its name, with dots: agent.max_turns
        key: String,
        /// true, false, null, a number, [a, b], or a text
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Take the value as a text, whatever it looks like
        #[arg(long)]
        text: bool,
    },
    /// Take one setting out of the file
    Unset {
        /// Its name, with dots: agent.max_turns
        key: String,
    },
    /// What in the file has no effect, or not the expected one
    Check,
}

impl From<ConfigError> for Fault {
    fn from(error: ConfigError) -> Self {
        Self::Rpc(RpcError { code: error.code().to_owned(), message: error.to_string(), usage: true })
    }
}

pub(super) fn run(args: Args, context: &Context) -> Result<Exit, Fault> {
    let scope = Scope::resolve(&Env::of_process(), context.profile.as_deref())?;
    execute(args.what, &scope, context, &mut std::io::stdout().lock())
}

fn execute(what: What, scope: &Scope, context: &Context, out: &mut dyn Write) -> Result<Exit, Fault> {
    let file = scope.config_yaml();
    match what {
        What::Path => writeln!(out, "{}", file.display())?,
        What::Show { json } => {
            let config = Config::load(scope)?;
            if json || context.json {
                let all: Map<String, Value> = effective(&config).into_iter().collect();
                context.write_json(out, &all)?;
            } else {
                show(&config, context, out)?;
            }
        }
        What::Get { key } => return get(&Config::load(scope)?, &key, context, out),
        What::Set { key, value, text } => {
            let value = if text { edit::NewValue::Text(value) } else { edit::NewValue::from_word(&value) };
            edit::set(scope, &key, &value)?;
            writeln!(out, "Set {} in {}", harmless(&key), file.display())?;
            // A setting without effect is kept, as the user wants it, and told.
            for finding in check::check(&Config::load(scope)?) {
                // An unknown section is reported once, not for each of its settings.
                if key.strip_prefix(&finding.key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
                    eprintln!("note: {}", harmless(&finding.to_string()));
                }
            }
        }
        What::Unset { key } => {
            edit::unset(scope, &key)?;
            writeln!(out, "{} is not set in {}", harmless(&key), file.display())?;
        }
        What::Check => {
            if !file.exists() {
                writeln!(out, "{} is not there; every setting has its default", file.display())?;
                return Ok(Exit::Answered);
            }
            let findings = check::check(&Config::load(scope)?);
            for finding in &findings {
                writeln!(out, "{}", harmless(&finding.to_string()))?;
            }
            let count = findings.len();
            let end = match count {
                0 => "ok".to_owned(),
                1 => "ok, with 1 note".to_owned(),
                _ => format!("ok, with {count} notes"),
            };
            writeln!(out, "{}: {end}", file.display())?;
        }
    }
    Ok(Exit::Answered)
}

fn show(config: &Config, context: &Context, out: &mut dyn Write) -> Result<(), Fault> {
    let mut rows = vec![["SETTING", "VALUE", "FROM"].map(String::from).to_vec()];
    for (key, value) in effective(config) {
        let from = match written::written(config, &key) {
            Some((_, line)) => format!("line {line}"),
            None if value.is_null() => "not set".to_owned(),
            // `model: NAME` is short for `model.default`.
            None if key == "model.default" => "line of `model`".to_owned(),
            None => "default".to_owned(),
        };
        rows.push(vec![one_line(&key, 48), one_line(&plain(&value), context.terminal.width / 2), from]);
    }
    out.write_all(table(&rows, context.terminal.out_style()).as_bytes())?;
    writeln!(out, "\n{}", config.file.display())?;
    Ok(())
}

fn get(config: &Config, key: &str, context: &Context, out: &mut dyn Write) -> Result<Exit, Fault> {
    let known = effective(config).into_iter().find(|(name, _)| name == key).map(|(_, value)| value);
    let value = match known {
        Some(Value::Null) => return Err(Fault::Failed(format!("{key} is not set"))),
        Some(value) => value,
        None => match written::written(config, key) {
            Some((value, _)) => value,
            None => {
                return Err(Fault::Usage(format!(
                    "this program has no setting {key}, and the file does not name it; `hermes config show` lists them"
                )));
            }
        },
    };
    let text = plain(&value);
    writeln!(out, "{}", if context.terminal.stdout { harmless(&text) } else { text })?;
    Ok(Exit::Answered)
}

/// A text as it is, anything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Every setting that this program uses, with the value that holds. Secrets are masked.
fn effective(config: &Config) -> Vec<(String, Value)> {
    let secret = |set: bool| if set { json!(MASK) } else { Value::Null };
    let Config { model, agent, terminal, approvals, .. } = config;
    let mut all = vec![
        ("model.provider".to_owned(), json!(model.provider)),
        ("model.default".to_owned(), json!(model.default)),
        ("model.base_url".to_owned(), json!(model.base_url)),
        ("model.api_key".to_owned(), secret(model.api_key.is_some())),
        ("model.api_mode".to_owned(), json!(model.api_mode)),
        ("model.context_length".to_owned(), json!(model.context_length)),
        ("model.max_tokens".to_owned(), json!(model.max_tokens)),
    ];
    for (id, provider) in &config.providers {
        for (name, value) in [
            ("api_key", secret(provider.api_key.is_some())),
            ("base_url", json!(provider.base_url)),
            ("key_env", json!(provider.key_env)),
            ("request_timeout_seconds", seconds(provider.request_timeout)),
            ("stale_timeout_seconds", seconds(provider.stale_timeout)),
        ] {
            all.push((format!("providers.{id}.{name}"), value));
        }
    }
    let rest = [
        ("toolsets", json!(config.toolsets)),
        ("agent.max_turns", json!(agent.max_turns)),
        ("agent.api_max_retries", json!(agent.api_max_retries)),
        ("agent.disabled_toolsets", json!(agent.disabled_toolsets)),
        ("agent.run_budget_seconds", seconds(agent.run_budget)),
        ("agent.reasoning_effort", json!(agent.reasoning_effort)),
        ("terminal.cwd", json!(terminal.cwd.to_string_lossy())),
        ("terminal.timeout", seconds(Some(terminal.timeout))),
        ("terminal.env_passthrough", json!(terminal.env_passthrough)),
        ("approvals.mode", json!(approvals.mode.as_str())),
        ("approvals.timeout", seconds(Some(approvals.timeout))),
        ("approvals.deny", json!(approvals.deny)),
        ("approvals.single_query_mode", json!(approvals.single_query_mode.as_str())),
        ("approvals.unattended_mode", json!(approvals.unattended_mode.as_str())),
        ("command_allowlist", json!(config.command_allowlist)),
        ("tool_output.max_bytes", json!(config.tool_output_max_bytes)),
        ("context_file_max_chars", json!(config.context_file_max_chars)),
        ("context_file_read_timeout", seconds(Some(config.context_file_read_timeout))),
        ("database.synchronous", json!(config.synchronous.as_str())),
    ];
    all.extend(rest.map(|(key, value)| (key.to_owned(), value)));
    all
}

/// Whole seconds as a whole number.
fn seconds(duration: Option<Duration>) -> Value {
    match duration {
        None => Value::Null,
        Some(duration) if duration.subsec_nanos() == 0 => json!(duration.as_secs()),
        Some(duration) => json!(duration.as_secs_f64()),
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
