//! `terminal`: runs a shell command.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::arguments::{failed, flag, number, text};
use super::capture::Capture;
use super::leftover::end_leftovers;
use super::marker::Marker;
use super::spawn::{self, Spawned};
use crate::approval::{Authorized, Risk};
use crate::session::SessionConfig;
use crate::text::{clean_controls, cut_chars, error_json, head_tail, strip_ansi};
use crate::tool::{
    Call, CallOutcome, CallProgress, CallReport, Concurrency, ReplaySafety, Tool, ToolContext, ToolSpec,
};

/// Part of a cut output that is its beginning, in percent.
const HEAD_PERCENT: usize = 40;

/// Time that a process group gets between TERM and KILL, in milliseconds.
const TERM_GRACE_MS: u64 = 500;

/// Silence after which the output of an ended command is taken as complete although something still holds the pipe, in
/// milliseconds.
const DRAIN_SILENCE_MS: u64 = 300;

/// Longest wait for late output of an ended command, in milliseconds.
const DRAIN_MAX_MS: u64 = 2_000;

/// Size of one read from the pipe, in bytes.
const READ_BYTES: usize = 64 * 1024;

/// Exit code of a command whose time ran out, as `timeout` gives it.
const EXIT_TIMED_OUT: i32 = 124;

/// Exit code of a command that was stopped by the user.
const EXIT_INTERRUPTED: i32 = 130;

/// Longest label, in characters.
const LABEL_MAX_CHARS: usize = 200;

/// The time that a call asks for in milliseconds; one above the limit of the foreground runs in the background.
fn wanted_ms(call: &Call, config: &SessionConfig) -> u64 {
    match number(call, "timeout", 0) {
        0 => config.command_timeout_ms,
        seconds => seconds.saturating_mul(1_000),
    }
}

/// Runs shell commands.
pub(super) struct Terminal {
    spec: ToolSpec,
}

impl Terminal {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The shell command (bash)."},
                "background": {"type": "boolean", "default": false, "description":
                    "Start it and return at once with a session_id for process_manage. For servers and long jobs."},
                "timeout": {"type": "integer", "minimum": 1, "description":
                    "Seconds after which it is ended (default 180, at most 600 in the foreground)."},
                "workdir": {"type": "string", "description":
                    "Directory for this command only. Otherwise the directory that the last cd left."}
            },
            "required": ["command"]
        });
        let description = "Runs a shell command and returns its output and exit code. The working directory carries \
            over between calls; variables do not. Standard input is empty. Use read_file, write_file, patch and \
            search_files for files; use background=true instead of & or nohup.";
        Self {
            spec: ToolSpec {
                name: "terminal".to_owned(),
                toolset: "terminal",
                description: description.to_owned(),
                parameters,
                replay: ReplaySafety::Once,
                concurrency: Concurrency::Barrier,
                // It has its own limit, which is longer than a batch's.
                timed: false,
                result_max_chars: None,
            },
        }
    }

    async fn foreground(&self, call: &Call, cx: &ToolContext, limit: Duration) -> CallReport {
        let workdir = workdir(call, cx);
        let tracked = text(call, "workdir").is_empty();
        // A directory that an earlier command went into and that is gone since must not end every later command.
        let gone = tracked && !tokio::fs::metadata(&workdir).await.is_ok_and(|at| at.is_dir());
        let workdir = if gone { cx.session.config().cwd.clone() } else { workdir };
        let marker = Marker::new(fingerprint(&call.id));
        let script = marker.script(text(call, "command"));
        let env = spawn::environment(cx.session.config(), &call.id);
        let spawned = match spawn::spawn(&script, &workdir, &env, false) {
            Ok(spawned) => spawned,
            Err(error) => return not_started(&error, &workdir),
        };
        let path = cx.scope.home.as_ref().map(|home| {
            let name: String =
                call.id.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(64).collect();
            home.join("cache").join("terminal").join(format!("{name}-{:016x}.txt", fingerprint(&workdir)))
        });
        let mut sink = Sink { capture: Capture::new(path), marker, cx, cut: Vec::new() };
        let end = follow(spawned, &mut sink, limit).await;
        if !matches!(end, End::Exit(_)) {
            // What left the group on its own (`setsid`) still has the call's id.
            end_leftovers(vec![call.id.clone()]).await;
        }
        let (mut capture, cwd) = sink.finish().await;
        if let (true, Some(cwd)) = (tracked, cwd) {
            cx.session.set_cwd(cwd);
        }
        let mut output = capture.text().0;
        if gone {
            output
                .insert_str(0, &format!("[the former working directory is gone; this ran in {}]\n", workdir.display()));
        }
        report(call, end, output, &mut capture, cx.session.config().output_max_chars).await
    }
}

#[async_trait]
impl Tool for Terminal {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self, call: &Call, cx: &ToolContext) -> Risk {
        Risk::Command { command: text(call, "command").to_owned(), workdir: workdir(call, cx) }
    }

    fn limit_ms(&self, call: &Call, cx: &ToolContext) -> Option<u64> {
        let config = cx.session.config();
        Some(wanted_ms(call, config).min(config.command_timeout_max_ms))
    }

    fn label(&self, call: &Call) -> String {
        cut_chars(text(call, "command"), LABEL_MAX_CHARS).into_owned()
    }

    async fn call(&self, call: Authorized<Call>, cx: &ToolContext) -> CallReport {
        let call = call.into_inner();
        let command = text(&call, "command");
        if command.trim().is_empty() {
            return failed("the command is empty; nothing was run");
        }
        if command.contains('\0') {
            return failed("the command holds a NUL character; nothing was run");
        }
        let config = cx.session.config();
        let limit_ms = wanted_ms(&call, config);
        if flag(&call, "background") || limit_ms > config.command_timeout_max_ms {
            let env = spawn::environment(config, &call.id);
            return match cx.session.processes.start(command, &workdir(&call, cx), &env) {
                Ok(id) => {
                    let note = "It runs in the background. Look at it with process_manage (poll, log, wait, kill).";
                    let content = json!({"session_id": id, "status": "running", "note": note});
                    CallReport::new(CallOutcome::Ok, content.to_string()).with_summary(format!("started {id}"))
                }
                Err(error) => failed(format!("it was not started: {error}")),
            };
        }
        if let Some(why) = background_by_hand(command) {
            return failed(why);
        }
        self.foreground(&call, cx, Duration::from_millis(limit_ms)).await
    }
}

fn workdir(call: &Call, cx: &ToolContext) -> PathBuf {
    match text(call, "workdir") {
        "" => cx.session.cwd(),
        dir => cx.session.resolve(dir),
    }
}

/// Ways to leave something running that nobody would own.
fn background_by_hand(command: &str) -> Option<&'static str> {
    let end = command.trim_end();
    let first = end.split_whitespace().next().unwrap_or("");
    let trailing = end.ends_with('&') && !end.ends_with("&&") && !end.ends_with(">&");
    (trailing || matches!(first, "nohup" | "setsid" | "disown")).then_some(
        "nothing was run: use background=true instead of &, nohup, setsid or disown; then process_manage can show and \
         end it",
    )
}

fn not_started(error: &std::io::Error, workdir: &std::path::Path) -> CallReport {
    if workdir.is_dir() {
        failed(format!("the command could not be started: {error}"))
    } else {
        failed(format!("the working directory {} does not exist; give workdir", workdir.display()))
    }
}

/// How a command ended.
#[derive(Clone, Copy)]
enum End {
    Exit(i32),
    TimedOut(Duration),
    Interrupted,
    Lost,
}

/// Where a command's output goes: into the capture and to the screen.
struct Sink<'a> {
    capture: Capture,
    marker: Marker,
    cx: &'a ToolContext,
    /// The beginning of a character whose rest has not come.
    cut: Vec<u8>,
}

impl Sink<'_> {
    async fn take(&mut self, bytes: &[u8]) {
        let bytes = self.marker.filter(bytes);
        self.push(&bytes).await;
    }

    async fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.capture.push(bytes).await;
        let mut seen = std::mem::take(&mut self.cut);
        seen.extend_from_slice(bytes);
        if let Err(error) = std::str::from_utf8(&seen)
            && error.error_len().is_none()
        {
            self.cut = seen.split_off(error.valid_up_to());
        }
        let text = String::from_utf8_lossy(&seen);
        let text = clean_controls(&strip_ansi(&text)).into_owned();
        if !text.is_empty() {
            (self.cx.progress)(CallProgress::Output { text });
        }
    }

    /// What was captured, and the command's last working directory.
    async fn finish(mut self) -> (Capture, Option<PathBuf>) {
        let (rest, cwd) = self.marker.finish();
        self.push(&rest).await;
        (self.capture, cwd)
    }
}

/// Reads a command's output until it ends, or ends it.
async fn follow(spawned: Spawned, sink: &mut Sink<'_>, limit: Duration) -> End {
    let Spawned { mut child, mut group, mut output, .. } = spawned;
    let mut buffer = vec![0; READ_BYTES];
    let deadline = Instant::now() + limit;
    let mut open = true;
    let end = loop {
        tokio::select! {
            // Output last: a command that never stops printing must not keep the others from being heard.
            biased;
            () = sink.cx.cancel.cancelled() => break End::Interrupted,
            () = tokio::time::sleep_until(deadline) => break End::TimedOut(limit),
            status = child.wait() => break status.map_or(End::Lost, |status| End::Exit(spawn::exit_code(status))),
            read = output.read(&mut buffer), if open => match read {
                Ok(n) if n > 0 => sink.take(&buffer[..n]).await,
                _ => open = false,
            },
        }
    };
    match end {
        // Ended by itself. What it left behind on purpose stays.
        End::Exit(_) => group.let_go(),
        _ => {
            group.terminate();
            let gone = tokio::time::timeout(Duration::from_millis(TERM_GRACE_MS), child.wait()).await;
            group.kill();
            if gone.is_err()
                && let Err(error) = child.wait().await
            {
                tracing::warn!(%error, "a killed command could not be waited for");
            }
        }
    }
    let drain_end = Instant::now() + Duration::from_millis(DRAIN_MAX_MS);
    while open {
        let silence = Instant::now() + Duration::from_millis(DRAIN_SILENCE_MS);
        match tokio::time::timeout_at(silence.min(drain_end), output.read(&mut buffer)).await {
            Ok(Ok(n)) if n > 0 => sink.take(&buffer[..n]).await,
            _ => open = false,
        }
        if Instant::now() >= drain_end {
            open = false;
        }
    }
    end
}

async fn report(call: &Call, end: End, output: String, capture: &mut Capture, max_chars: usize) -> CallReport {
    let clean = clean_controls(&strip_ansi(&output)).into_owned();
    let mut content = json!({});
    let mut meta = json!({});
    let shown = match head_tail(&clean, max_chars, HEAD_PERCENT) {
        None => clean,
        Some(cut) => {
            let note = match capture.persist().await {
                Some((path, kept)) => {
                    content["full_output"] = json!(path.to_string_lossy());
                    meta["spill_path"] = json!(path.to_string_lossy());
                    meta["spill_bytes"] = json!(kept);
                    format!("{} bytes in all, kept in {}", capture.total(), path.display())
                }
                None => format!("{} bytes in all, not kept", capture.total()),
            };
            format!("{}\n\n[{} characters left out here; {note}]\n\n{}", cut.head, cut.omitted, cut.tail)
        }
    };
    let lines = shown.lines().count();
    content["output"] = json!(shown);
    let (outcome, code, summary) = match end {
        End::Exit(code) => {
            if let Some(note) = exit_note(text(call, "command"), code) {
                content["exit_code_meaning"] = json!(note);
            }
            let outcome = if code == 0 { CallOutcome::Ok } else { CallOutcome::Failed };
            (outcome, code, format!("exit {code}, {lines} lines"))
        }
        End::TimedOut(limit) => {
            let seconds = limit.as_secs_f64();
            content["error"] = json!(format!(
                "its time of {seconds} s ran out; it and what it started were ended; it may have had a part of its effect"
            ));
            (CallOutcome::TimedOut, EXIT_TIMED_OUT, format!("timed out after {seconds} s"))
        }
        End::Interrupted => {
            content["error"] = json!("it was stopped while running; it may have had a part of its effect");
            (CallOutcome::Interrupted, EXIT_INTERRUPTED, "stopped".to_owned())
        }
        End::Lost => {
            let text = error_json("nobody could wait for the command; how it ended is not known");
            return CallReport::new(CallOutcome::OutcomeUnknown, text);
        }
    };
    content["exit_code"] = json!(code);
    meta["exit_code"] = json!(code);
    let content = match content {
        Value::Object(map) if map.is_empty() => String::new(),
        other => other.to_string(),
    };
    let mut report = CallReport::new(outcome, content).with_summary(summary);
    report.meta = Some(meta);
    report
}

/// What exit codes mean that are no failure.
fn exit_note(command: &str, code: i32) -> Option<&'static str> {
    let last = command.rsplit(['|', ';', '&', '\n']).find(|part| !part.trim().is_empty())?;
    let program = last.split_whitespace().next()?.rsplit('/').next()?;
    match (program, code) {
        ("grep" | "egrep" | "fgrep" | "rg", 1) => Some("no line matched (not an error)"),
        ("diff" | "cmp", 1) => Some("the files differ (not an error)"),
        ("test" | "[", 1) => Some("the condition is false (not an error)"),
        (_, 126) => Some("the program could not be executed"),
        (_, 127) => Some("there is no such program"),
        (_, 137) => Some("it was killed (signal 9), perhaps for lack of memory"),
        (_, 139) => Some("it crashed (signal 11)"),
        _ => None,
    }
}

/// A number that differs for other values; it has to be unlikely in output, not secret.
fn fingerprint(value: &impl std::hash::Hash) -> u64 {
    use std::hash::BuildHasher;
    std::collections::hash_map::RandomState::new().hash_one(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_running_by_hand_is_refused() {
        for command in ["sleep 9 &", "nohup x", "setsid y ", "a; b &  "] {
            assert!(background_by_hand(command).is_some(), "{command}");
        }
        for command in ["a && b", "(sleep 60 &) ; echo hi", "echo '&'", "ls"] {
            assert!(background_by_hand(command).is_none(), "{command}");
        }
    }

    #[test]
    fn exit_codes_that_are_no_failure_are_explained() {
        assert!(exit_note("cat x | grep y", 1).is_some());
        assert!(exit_note("/usr/bin/diff a b", 1).is_some());
        assert!(exit_note("make", 1).is_none());
    }
}
