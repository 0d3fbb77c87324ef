//! What the repository of a working directory looks like when a session begins: branch, changes, newest commits.
//!
//! It is asked of `git` itself, once per session, and stands in the session's prompt as it was. No command of the
//! repository's own configuration is run, nothing is locked or written, and what does not come in time is left out.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

/// Longest wait for `git`, in milliseconds.
pub(crate) const PROBE_MS: u64 = 2_500;
/// Most that is read of what `git` says, in bytes; what is behind it is not counted.
const OUTPUT_MAX_BYTES: u64 = 1024 * 1024;
/// Newest commits that are shown.
const COMMITS: &str = "-3";
/// Most characters of a line that is shown.
const LINE_MAX_CHARS: usize = 120;

/// The snapshot of the repository at `root`. `None` when `git` is not there or knows nothing of it.
///
/// # Errors
/// What to tell a person, when `git` does not answer in time.
pub(crate) async fn snapshot(git: &Path, root: &Path, patience: Duration) -> Result<Option<String>, String> {
    let status = run(git, root, &["status", "--porcelain=v2", "--branch"]);
    let log = run(git, root, &["log", COMMITS, "--format=%h %s"]);
    let both = async { tokio::join!(status, log) };
    match tokio::time::timeout(patience, both).await {
        Ok((Some(status), log)) => Ok(Some(render(root, &status, log.as_deref().unwrap_or_default()))),
        Ok((None, _)) => Ok(None),
        Err(_) => Err(format!(
            "the state of the repository {} was left out of the prompt: git did not say it within {} s",
            root.display(),
            patience.as_secs_f32()
        )),
    }
}

/// What `git` prints; `None` when it fails. A process whose future is dropped is ended.
async fn run(git: &Path, root: &Path, args: &[&str]) -> Option<String> {
    let mut child = Command::new(git)
        // A file system monitor is a command that the repository names.
        .args(["--no-pager", "-c", "core.fsmonitor=false", "-c", "log.showSignature=false", "-C"])
        .arg(root)
        .args(args)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .ok()?;
    let mut said = Vec::new();
    let out = child.stdout.take()?;
    out.take(OUTPUT_MAX_BYTES).read_to_end(&mut said).await.ok()?;
    let is_whole = (said.len() as u64) < OUTPUT_MAX_BYTES;
    // One that still writes would wait for a reader.
    if is_whole && !child.wait().await.ok()?.success() {
        return None;
    }
    Some(String::from_utf8_lossy(&said).into_owned())
}

/// The lines of the prompt, from `git status --porcelain=v2 --branch` and `git log --format="%h %s"`.
fn render(root: &Path, status: &str, log: &str) -> String {
    let header = |name: &str| status.lines().find_map(|line| line.strip_prefix("# branch.")?.strip_prefix(name));
    let mut out = format!("Repository: {}\n", root.display());
    let branch = match header("head ") {
        Some("(detached)") => format!("none (detached at {})", header("oid ").unwrap_or_default()),
        Some(branch) => branch.to_owned(),
        None => "unknown".to_owned(),
    };
    out.push_str(&format!("Branch: {}", short(&branch)));
    if let Some(upstream) = header("upstream ") {
        let (ahead, behind) = header("ab ").and_then(|ab| ab.split_once(' ')).unwrap_or(("+0", "-0"));
        let (ahead, behind) = (ahead.trim_start_matches('+'), behind.trim_start_matches('-'));
        out.push_str(&format!(", {ahead} ahead of and {behind} behind {}", short(upstream)));
    }
    let count = |kinds: &[char]| status.lines().filter(|line| line.starts_with(kinds)).count();
    let (changed, unmerged, untracked) = (count(&['1', '2']), count(&['u']), count(&['?']));
    out.push_str(&match changed + unmerged + untracked {
        0 => "\nChanges: none".to_owned(),
        _ => format!("\nChanges: {changed} changed, {unmerged} in conflict, {untracked} untracked"),
    });
    if !log.trim().is_empty() {
        out.push_str("\nNewest commits:");
        log.lines().for_each(|line| out.push_str(&format!("\n- {}", short(line))));
    }
    out
}

fn short(line: &str) -> String {
    line.chars().take(LINE_MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const STATUS: &str = "# branch.oid 1111111111111111111111111111111111111111\n# branch.head main\n\
        # branch.upstream origin/main\n# branch.ab +2 -1\n1 .M N... 100644 100644 100644 a a src/lib.rs\n\
        2 R. N... 100644 100644 100644 a a R100 b\tc\nu UU N... 1 2 3 4 a b c d\n? new.txt\n? other.txt\n";

    /// A program in the place of git.
    fn script(dir: &Path, body: &str) -> std::path::PathBuf {
        let path = dir.join("git");
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn branch_changes_and_commits_are_told_in_few_lines() {
        let text = render(Path::new("/srv/app"), STATUS, "1111111 Add a thing\n2222222 Mend it\n");
        assert_eq!(
            text,
            "Repository: /srv/app\nBranch: main, 2 ahead of and 1 behind origin/main\n\
             Changes: 2 changed, 1 in conflict, 2 untracked\nNewest commits:\n- 1111111 Add a thing\n- 2222222 Mend it"
        );
        let bare = render(Path::new("/r"), "# branch.oid (initial)\n# branch.head main\n", "");
        assert_eq!(bare, "Repository: /r\nBranch: main\nChanges: none");
        let loose = render(Path::new("/r"), "# branch.oid abc\n# branch.head (detached)\n", &"x".repeat(500));
        assert!(loose.contains("detached at abc") && loose.lines().all(|line| line.chars().count() < 150), "{loose}");
    }

    #[tokio::test]
    async fn what_git_says_is_taken_and_what_it_refuses_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let body = "case \"$*\" in *status*) printf '# branch.head dev\\n? a\\n';; *) echo 'abc one';; esac";
        let git = script(dir.path(), body);
        let patience = Duration::from_secs(30);
        let text = snapshot(&git, dir.path(), patience).await.unwrap().unwrap();
        assert!(text.contains("Branch: dev") && text.contains("1 untracked") && text.contains("- abc one"), "{text}");
        let git = script(dir.path(), "exit 128");
        assert_eq!(snapshot(&git, dir.path(), patience).await, Ok(None));
        assert_eq!(snapshot(&dir.path().join("none"), dir.path(), patience).await, Ok(None));
    }

    #[tokio::test]
    async fn e32_a_git_that_hangs_does_not_hold_up_the_prompt() {
        let dir = tempfile::tempdir().unwrap();
        let git = script(dir.path(), "exec sleep 600");
        let told = snapshot(&git, dir.path(), Duration::from_millis(50)).await;
        assert!(told.is_err_and(|note| note.contains("left out")));
    }
}
