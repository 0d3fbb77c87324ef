//! `hermes config`. Reads and writes the files itself; no gateway is started.

use std::io::Write;

use hermes_gateway::config::{Config, ConfigError, Env, Scope, Source, check, edit};
use hermes_gateway::protocol::RpcError;
use serde_json::{Map, Value};

use crate::context::Context;
use crate::exit::{Exit, Fault};
use crate::render::lists::table;
use crate::text::{harmless, one_line};

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
                let all: Map<String, Value> = config.show().into_iter().map(|shown| (shown.key, shown.value)).collect();
                context.write_json(out, &all)?;
            } else {
                show(&config, context, out)?;
            }
        }
        What::Get { key } => return get(&Config::load(scope)?, &key, context, out),
        What::Set { key, value, text } => {
            let value = if text { edit::NewValue::Text(value) } else { one_value(&key, &value)? };
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
            if edit::unset(scope, &key)? {
                writeln!(out, "Took {} out of {}", harmless(&key), file.display())?;
            } else {
                writeln!(out, "{} was not set in {}; nothing was changed", harmless(&key), file.display())?;
            }
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

/// What a word of the command line means. A section in braces is no value: written as a text it would be nonsense.
fn one_value(key: &str, word: &str) -> Result<edit::NewValue, Fault> {
    if word.trim().starts_with('{') && word.trim().ends_with('}') {
        return Err(Fault::Usage(format!(
            "{word} is a section, not one value; set its settings one by one ({key}.NAME), or say --text if it is a text"
        )));
    }
    Ok(edit::NewValue::from_word(word))
}

fn show(config: &Config, context: &Context, out: &mut dyn Write) -> Result<(), Fault> {
    let mut rows = vec![["SETTING", "VALUE", "FROM"].map(String::from).to_vec()];
    for shown in config.show() {
        let from = match shown.source {
            Source::File { line } => format!("line {line}"),
            Source::Default if shown.value.is_null() => "not set".to_owned(),
            Source::Default => "default".to_owned(),
        };
        let value = one_line(&plain(&shown.value), context.terminal.width / 2);
        rows.push(vec![one_line(&shown.key, 48), value, from]);
    }
    out.write_all(table(&rows, context.terminal.out_style()).as_bytes())?;
    writeln!(out, "\n{}", config.file.display())?;
    Ok(())
}

fn get(config: &Config, key: &str, context: &Context, out: &mut dyn Write) -> Result<Exit, Fault> {
    let value = match config.get(key).map(|shown| shown.value) {
        Some(Value::Null) => return Err(Fault::Failed(format!("{key} is not set"))),
        Some(value) => value,
        None => {
            return Err(Fault::Usage(format!(
                "this program has no setting {key}, and the file does not name it; `hermes config show` lists them"
            )));
        }
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

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
