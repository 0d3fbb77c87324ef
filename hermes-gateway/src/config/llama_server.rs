//! `llama_server`: the model server that this program runs itself.

use std::path::PathBuf;
use std::time::Duration;

use hermes_providers::{LLAMA_CONTEXT_TOKENS, LLAMA_IDLE_STOP_MS, LLAMA_START_TIMEOUT_MS};
use serde_json::{Value, json};

use super::error::ConfigError;
use super::settings::{MASK, is_secret};
use super::values::View;

/// The program's name when nobody says another.
const PROGRAM: &str = "llama-server";
/// Arguments that are settings here; an argument would stand against them.
const OURS: [(&str, &str); 8] = [
    ("-m", "model_file"),
    ("--model", "model_file"),
    ("-c", "context_length"),
    ("--ctx-size", "context_length"),
    ("--port", "port"),
    ("--host", "port"),
    ("-hf", "model_file"),
    ("--hf-repo", "model_file"),
];

// A turn that waits for a start is silent, and would be stopped as wedged.
const _: () = assert!(LLAMA_START_TIMEOUT_MS < hermes_core::limits::LIVENESS_TIMEOUT_MS);

/// `llama_server`.
#[derive(Debug, Clone)]
pub struct LlamaServerConfig {
    /// `llama_server.program`: a path, or a name that is looked for in `PATH`.
    pub program: PathBuf,
    /// `llama_server.model_file`; without one this program runs no model.
    pub model_file: Option<PathBuf>,
    /// `llama_server.context_length`: the window at the start, in tokens.
    pub context_length: u64,
    /// `llama_server.max_context_length`: to how many tokens it may be grown; `None`: it is not.
    pub max_context_length: Option<u64>,
    /// `llama_server.args`: more arguments.
    pub args: Vec<String>,
    /// `llama_server.port`; `None`: any free one.
    pub port: Option<u16>,
    /// `llama_server.idle_stop_seconds`: how long nobody asks before it is ended; `None`: it is not.
    pub idle_stop: Option<Duration>,
    /// `llama_server.start_timeout_seconds`.
    pub start_timeout: Duration,
}

impl LlamaServerConfig {
    /// The arguments as a person may see them: what stands behind an option with a secret is hidden.
    pub(super) fn shown_args(&self) -> Value {
        let mut hides = false;
        let shown = |arg: &String| {
            let (name, value) = arg.split_once('=').map_or((arg.as_str(), None), |(name, value)| (name, Some(value)));
            let is_option = arg.starts_with('-');
            let hidden = std::mem::replace(&mut hides, is_option && value.is_none() && is_secret(name));
            match value {
                _ if hidden && !is_option => json!(MASK),
                Some(_) if is_option && is_secret(name) => json!(format!("{name}={MASK}")),
                _ => json!(arg),
            }
        };
        self.args.iter().map(shown).collect()
    }
}

pub(super) fn llama_server(root: &View<'_>) -> Result<LlamaServerConfig, ConfigError> {
    let view = root.section("llama_server")?;
    let tokens = "a number of tokens, for example 32768";
    let path = |key: &str, wanted: &str| Ok(view.key(key).text(wanted)?.filter(|text| !text.is_empty()));
    let context_length = view.key("context_length").positive(tokens)?.unwrap_or(LLAMA_CONTEXT_TOKENS);
    let max = view.key("max_context_length");
    let max_context_length = max.positive(tokens)?;
    if max_context_length.is_some_and(|max| max < context_length) {
        return Err(max.refused(&format!("no less than `llama_server.context_length`, which is {context_length}")));
    }
    let args = view.key("args");
    let list = args.list(false, "a list of arguments, for example `[--n-gpu-layers, \"99\"]`")?.unwrap_or_default();
    let ours = |arg: &String| OURS.iter().find(|(name, _)| arg.split('=').next() == Some(name));
    if let Some((name, setting)) = list.iter().find_map(ours) {
        return Err(args.refused(&format!("a list without `{name}`, which `llama_server.{setting}` stands for")));
    }
    let port = view.key("port");
    let number = port.whole("a port from 1 to 65535, or 0 for any free one")?.unwrap_or(0);
    let number = u16::try_from(number).map_err(|_| port.refused("a port from 1 to 65535, or 0 for any free one"))?;
    let seconds = |key: &str| view.key(key).seconds("a number of seconds, for example 1800");
    Ok(LlamaServerConfig {
        program: path("program", "the path or the name of a program, for example `llama-server`")?
            .map_or_else(|| PathBuf::from(PROGRAM), PathBuf::from),
        model_file: path("model_file", "the path of a model, for example `~/models/small.gguf`")?.map(PathBuf::from),
        context_length,
        max_context_length,
        args: list,
        port: Some(number).filter(|port| *port != 0),
        idle_stop: Some(seconds("idle_stop_seconds")?.unwrap_or(Duration::from_millis(LLAMA_IDLE_STOP_MS)))
            .filter(|idle| !idle.is_zero()),
        start_timeout: seconds("start_timeout_seconds")?
            .filter(|limit| !limit.is_zero())
            .unwrap_or(Duration::from_millis(LLAMA_START_TIMEOUT_MS)),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn read(text: &str) -> Result<LlamaServerConfig, String> {
        let config = Config::parse(Path::new("/h/config.yaml"), &format!("llama_server: {{{text}}}"));
        config.map(|config| config.llama_server).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_is_run_and_nothing_grows_before_somebody_says_so() {
        let standard = read("").unwrap();
        assert_eq!((standard.model_file, standard.max_context_length, standard.port), (None, None, None));
        let written = read("idle_stop_seconds: 0, start_timeout_seconds: 0, port: 0").unwrap();
        assert_eq!((written.idle_stop, written.start_timeout, written.port), (None, standard.start_timeout, None));
    }

    #[test]
    fn i27_what_stands_against_another_setting_is_refused_with_its_line() {
        for (text, told) in [
            ("context_length: 9000, max_context_length: 8000", "no less than `llama_server.context_length`"),
            ("args: [-c, '4096']", "`llama_server.context_length` stands for"),
            ("args: [--port=1]", "`llama_server.port` stands for"),
            ("port: 70000", "from 1 to 65535"),
            ("context_length: 0", "a number of tokens"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains("/h/config.yaml:1") && error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn i24_a_secret_among_the_arguments_is_not_shown() {
        let config = read("args: [--api-key, hunter2, -ngl, '99', --hf-token=hunter3, -x]").unwrap();
        let shown = config.shown_args();
        assert_eq!(shown, json!(["--api-key", MASK, "-ngl", "99", format!("--hf-token={MASK}"), "-x"]));
    }
}
