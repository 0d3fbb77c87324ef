//! The `llama-server` that this program runs: one process for all models and conversations of a gateway.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use hermes_providers::{LlamaConfig, LlamaRuntime, llama_model_name};
use hermes_tools::builtin::is_secret_name;

use crate::compose::wrong;
use crate::config::{Config, Env, Scope};
use crate::protocol::{Check, CheckState, RpcError};

/// The process, when somebody has asked for it.
#[derive(Debug, Default)]
pub(crate) struct Llama {
    runtime: OnceLock<Arc<LlamaRuntime>>,
}

impl Llama {
    /// The process of this gateway; it is begun by the first request.
    pub(crate) fn of(&self, scope: &Scope, config: &Config, env: &Env) -> Result<Arc<LlamaRuntime>, RpcError> {
        let model = model_file(scope, config, env)?;
        let settings = &config.llama_server;
        let make = || {
            Arc::new(LlamaRuntime::new(LlamaConfig {
                program: program(scope, config, env),
                args: settings.args.iter().map(Into::into).collect(),
                env: Some(environment(env)),
                port: settings.port.unwrap_or(0),
                max_context: settings.max_context_length.unwrap_or(settings.context_length),
                start_timeout: settings.start_timeout,
                idle_stop: settings.idle_stop,
                ..LlamaConfig::new(model, settings.context_length)
            }))
        };
        Ok(Arc::clone(self.runtime.get_or_init(make)))
    }

    /// Ends the process and waits until it is gone.
    pub(crate) async fn close(&self) {
        if let Some(runtime) = self.runtime.get() {
            runtime.close().await;
        }
    }
}

/// The environment of the process: this program's own, without keys, of which it needs none.
fn environment(env: &Env) -> BTreeMap<String, String> {
    let plain = env.vars.iter().filter(|(name, _)| !is_secret_name(name));
    plain.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The program: a name without a folder is left to `PATH`.
fn program(scope: &Scope, config: &Config, env: &Env) -> PathBuf {
    let program = &config.llama_server.program;
    if is_name(program) { program.clone() } else { scope.place(env, program) }
}

fn is_name(program: &Path) -> bool {
    program.components().count() == 1 && !program.starts_with("~") && !program.starts_with("/")
}

fn model_file(scope: &Scope, config: &Config, env: &Env) -> Result<PathBuf, RpcError> {
    let file = config.llama_server.model_file.as_deref().ok_or_else(|| no_model_file(config))?;
    Ok(scope.place(env, file))
}

/// Nobody has said which model is run.
pub(crate) fn no_model_file(config: &Config) -> RpcError {
    let text = format!(
        "this program would run the model itself, but none is named: set llama_server.model_file in {} to a .gguf file, or \
         name another provider (`llamacpp` for a server that runs already)",
        config.file.display()
    );
    wrong("HM0215", text)
}

/// The name of the model that is run, when one is.
pub(crate) fn model_name(config: &Config) -> Option<String> {
    config.llama_server.model_file.as_deref().map(llama_model_name)
}

/// Whether a person means the model of the file: by its name, with or without its ending, or by its path.
pub(crate) fn is_model(config: &Config, asked: &str) -> bool {
    let Some(file) = config.llama_server.model_file.as_deref() else { return false };
    let is_file = file.file_name().is_some_and(|name| name == asked);
    asked == llama_model_name(file) || is_file || Path::new(asked) == file
}

/// Another model than the one of the file was asked for.
pub(crate) fn no_such_model(config: &Config, asked: &str) -> RpcError {
    let text = format!(
        "model {asked:?} was asked for, but this program runs {:?} (llama_server.model_file in {}): leave the name out, or name \
         the other file there",
        model_name(config).unwrap_or_default(),
        config.file.display()
    );
    wrong("HM0210", text)
}

/// What is wrong with what is set up; `None` when it can be started, as far as that is known before.
pub(crate) fn lack(scope: &Scope, config: &Config, env: &Env) -> Option<String> {
    let file = match model_file(scope, config, env) {
        Ok(file) => file,
        Err(_) => return Some("llama_server.model_file is not set".to_owned()),
    };
    if !file.is_file() {
        return Some(format!("{} (llama_server.model_file) is no file", file.display()));
    }
    let program = program(scope, config, env);
    match found(&program, env) {
        Some(_) => None,
        None if is_name(&program) => Some(format!("{} (llama_server.program) is not in PATH", program.display())),
        None => Some(format!("{} (llama_server.program) cannot be run", program.display())),
    }
}

/// Where the program is.
fn found(program: &Path, env: &Env) -> Option<PathBuf> {
    let runs =
        |path: &Path| path.metadata().is_ok_and(|known| known.is_file() && known.permissions().mode() & 0o111 != 0);
    if !is_name(program) {
        return Some(program.to_owned()).filter(|path| runs(path));
    }
    std::env::split_paths(env.get("PATH").unwrap_or_default())
        .map(|folder| folder.join(program))
        .find(|path| runs(path))
}

/// Values for people, each with what sets it.
pub(crate) fn values(scope: &Scope, config: &Config, env: &Env) -> Vec<(&'static str, String, String)> {
    let settings = &config.llama_server;
    let source = |key: &str| {
        let shown = config.get(&format!("llama_server.{key}")).map(|shown| shown.source);
        match shown {
            Some(crate::config::Source::File { line }) => format!("config.yaml, line {line}"),
            _ => "default".to_owned(),
        }
    };
    let program = program(scope, config, env);
    let program = found(&program, env).unwrap_or(program);
    let file = model_file(scope, config, env).map(|file| file.display().to_string()).unwrap_or_default();
    let window = match settings.max_context_length.filter(|max| *max > settings.context_length) {
        Some(max) => format!("{} tokens, grown to {max} at most", settings.context_length),
        None => format!("{} tokens", settings.context_length),
    };
    vec![
        ("program", program.display().to_string(), source("program")),
        ("model_file", file, source("model_file")),
        ("window", window, source("context_length")),
    ]
}

/// What `hermes doctor` says of it. Where it is not the chosen model, nothing is broken by what it lacks.
pub(crate) fn check(scope: &Scope, config: &Config, env: &Env, is_chosen: bool) -> Option<Check> {
    let name = model_name(config);
    if name.is_none() && !is_chosen {
        return None;
    }
    let (state, detail) = match lack(scope, config, env) {
        Some(lack) if is_chosen => (CheckState::Failed, lack),
        Some(lack) => (CheckState::Note, format!("cannot be started: {lack}")),
        None => {
            let told = values(scope, config, env).into_iter().map(|(_, value, _)| value).collect::<Vec<_>>().join(", ");
            (CheckState::Ok, format!("{told}; it is started with the first request"))
        }
    };
    Some(Check { name: "llama-server".to_owned(), state, detail })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_up(yaml: &str, path: &Path) -> (Scope, Config, Env) {
        let scope = Scope { profile: "default".into(), home: path.join("home") };
        let config = Config::parse(&path.join("home/config.yaml"), yaml).unwrap();
        let vars = [
            ("PATH", path.join("bin").display().to_string()),
            ("SOME_API_KEY", "sk-9f8a7b6c5d".to_owned()),
            ("LLAMA_ARG_THREADS", "2".to_owned()),
        ];
        let vars = vars.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        (scope, config, Env { vars, user_home: Some(path.join("user")), cwd: path.into() })
    }

    fn lack_of(yaml: &str, path: &Path) -> String {
        let (scope, config, env) = set_up(yaml, path);
        lack(&scope, &config, &env).unwrap_or_default()
    }

    #[test]
    fn what_it_lacks_is_told_one_thing_after_another() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["home", "bin", "user/models"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        assert!(lack_of("", dir.path()).contains("model_file is not set"));
        let yaml = "llama_server: {model_file: ~/models/m.gguf}";
        assert!(lack_of(yaml, dir.path()).contains("user/models/m.gguf"));
        std::fs::write(dir.path().join("user/models/m.gguf"), "").unwrap();
        assert!(lack_of(yaml, dir.path()).contains("is not in PATH"));
        let program = dir.path().join("bin/llama-server");
        std::fs::write(&program, "").unwrap();
        assert!(lack_of(yaml, dir.path()).contains("is not in PATH"), "what may not be run is no program");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(lack_of(yaml, dir.path()), "");
        let other = "llama_server: {model_file: ~/models/m.gguf, program: tools/x}";
        assert!(lack_of(other, dir.path()).contains("home/tools/x"), "what is relative is below the home");
    }

    #[test]
    fn i24_the_process_gets_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let (_, _, env) = set_up("", dir.path());
        let names: Vec<String> = environment(&env).into_keys().collect();
        assert_eq!(names, ["LLAMA_ARG_THREADS", "PATH"]);
    }
}
