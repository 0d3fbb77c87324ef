//! Starts a shell command in a process group of its own, both outputs in one pipe.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, ChildStdin, Command};

use super::group::Group;
use super::leftover::CALL_ID_VARIABLE;
use crate::session::SessionConfig;

/// Shells in the order in which they are tried.
const SHELLS: &[&str] = &["bash", "sh"];

/// A command that runs.
pub(super) struct Spawned {
    pub(super) child: Child,
    pub(super) group: Group,
    pub(super) output: Receiver,
    /// Present when it was asked for.
    pub(super) stdin: Option<ChildStdin>,
}

/// Starts `script` in `cwd`. Standard input is empty unless `with_stdin`.
pub(super) fn spawn(
    script: &str,
    cwd: &Path,
    env: &BTreeMap<String, String>,
    with_stdin: bool,
) -> std::io::Result<Spawned> {
    let mut missing = None;
    for shell in SHELLS {
        match spawn_with(shell, script, cwd, env, with_stdin) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => missing = Some(error),
            other => return other,
        }
    }
    Err(missing.unwrap_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound)))
}

fn spawn_with(
    shell: &str,
    script: &str,
    cwd: &Path,
    env: &BTreeMap<String, String>,
    with_stdin: bool,
) -> std::io::Result<Spawned> {
    let (reader, writer) = std::io::pipe()?;
    let mut command = Command::new(shell);
    command
        .arg("-c")
        .arg(script)
        .current_dir(cwd)
        .env_clear()
        .envs(env)
        .stdin(if with_stdin { Stdio::piped() } else { Stdio::null() })
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    // The command holds our ends of the pipe; without them the reader sees the end when the last writer is gone.
    drop(command);
    let group = Group::new(child.id().unwrap_or(0));
    let stdin = child.stdin.take();
    let output = Receiver::from_owned_fd(OwnedFd::from(reader))?;
    Ok(Spawned { child, group, output, stdin })
}

/// The environment of a command: the session's, without what looks like a secret, and with the id of its call.
pub(super) fn environment(config: &SessionConfig, call_id: &str) -> BTreeMap<String, String> {
    let mut env: BTreeMap<String, String> = config
        .env
        .iter()
        .filter(|(name, _)| !is_secret_name(name) || config.env_passthrough.contains(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    env.insert(CALL_ID_VARIABLE.to_owned(), call_id.to_owned());
    env
}

/// Names of variables that hold secrets by their form: what is started for the user does not get them.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let ends = ["_API_KEY", "_APIKEY", "_TOKEN", "_KEY", "_PASS", "_CREDENTIALS", "_PAT"];
    let holds = ["SECRET", "PASSWORD", "PASSWD", "PRIVATE_KEY"];
    matches!(name.as_str(), "API_KEY" | "TOKEN" | "APIKEY")
        || ends.iter().any(|end| name.ends_with(end))
        || holds.iter().any(|part| name.contains(part))
}

/// The exit code as a shell gives it: 128 plus the signal for a killed process.
pub(super) fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t40_secrets_are_recognised_by_their_names() {
        for name in
            ["OPENAI_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "my_api_key", "X_SECRET_Y"]
        {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["PATH", "HOME", "KEYBOARD", "TOKENIZERS_PARALLELISM", "SSH_AUTH_SOCK", "LANG"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
