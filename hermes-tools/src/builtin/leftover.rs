//! Processes that a dead program left behind.
//!
//! Every command has the id of its call in its environment ([`CALL_ID_VARIABLE`]), and so have the processes that it
//! starts. After `kill -9` nobody ends them; the next owner of the conversation does, before it tells the model what
//! is known of the call, so that nothing goes on behind its back.

use std::collections::BTreeSet;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid, getpgrp};

/// The variable that names a command's call.
pub const CALL_ID_VARIABLE: &str = "HERMES_CALL_ID";

/// Ends every process of this user that belongs to one of these calls; returns how many process groups were ended.
/// Systems without `/proc` have nothing to look at, and return 0.
pub async fn end_leftovers(call_ids: Vec<String>) -> usize {
    if call_ids.is_empty() {
        return 0;
    }
    tokio::task::spawn_blocking(move || end(&call_ids)).await.unwrap_or(0)
}

fn end(call_ids: &[String]) -> usize {
    let wanted: Vec<Vec<u8>> = call_ids.iter().map(|id| format!("{CALL_ID_VARIABLE}={id}").into_bytes()).collect();
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
    let mut groups = BTreeSet::new();
    let mut alone = Vec::new();
    for entry in processes.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // Other users' processes cannot be read, and are none of ours.
        let Ok(environ) = std::fs::read(entry.path().join("environ")) else { continue };
        if !environ.split(|byte| *byte == 0).any(|variable| wanted.iter().any(|wanted| wanted == variable)) {
            continue;
        }
        match getpgid(Some(Pid::from_raw(pid))) {
            // A command leads a group of its own; a group that this program is in is never ended.
            Ok(group) if group != getpgrp() && group.as_raw() > 1 => drop(groups.insert(group)),
            _ => alone.push(Pid::from_raw(pid)),
        }
    }
    for group in &groups {
        let _ = killpg(*group, Signal::SIGKILL);
    }
    for pid in &alone {
        if pid.as_raw() != i32::try_from(std::process::id()).unwrap_or(0) {
            let _ = kill(*pid, Signal::SIGKILL);
        }
    }
    groups.len() + alone.len()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};

    use super::*;

    #[tokio::test]
    async fn processes_of_the_named_calls_are_ended_and_no_others() {
        let start = |id: &str| {
            let mut command = std::process::Command::new("sleep");
            command.arg("600").env(CALL_ID_VARIABLE, id).process_group(0).spawn().unwrap()
        };
        let unique = format!("left-{}", std::process::id());
        let (mut ours, mut other) = (start(&unique), start(&format!("{unique}-other")));
        // The new environment is there once the child has begun to run `sleep`.
        while end_leftovers(vec![unique.clone()]).await == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(ours.wait().unwrap().signal(), Some(9));
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(end_leftovers(Vec::new()).await, 0);
    }
}
