//! `process_manage`: looks after background processes.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;

use super::arguments::{done, failed, number, size, text};
use super::processes::Process;
use crate::approval::{Authorized, Risk};
use crate::session::OUTPUT_MAX_CHARS;
use crate::text::{clean_controls, head_tail, strip_ansi};
use crate::tool::{Call, CallOutcome, CallReport, Concurrency, ReplaySafety, Tool, ToolContext, ToolSpec};

/// Lines that `log` shows when the call names no limit.
const LOG_LINES: usize = 200;

/// How long `wait` waits when the call names no time, in seconds.
const WAIT_S: u64 = 60;

/// Longest `wait`, in seconds.
const WAIT_MAX_S: u64 = 600;

/// Manages background processes.
pub(super) struct ProcessManage {
    spec: ToolSpec,
}

impl ProcessManage {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ["list", "poll", "log", "wait", "kill", "write", "submit", "close"],
                    "description": "list all; poll new output; log kept output; wait for the end; kill; write text to \
                        its input; submit a line; close its input"},
                "session_id": {"type": "string", "description": "The id that terminal returned."},
                "data": {"type": "string", "description": "For write and submit."},
                "timeout": {"type": "integer", "minimum": 1, "description": "For wait: seconds (default 60)."},
                "offset": {"type": "integer", "description": "For log: first line from 0; default: the last lines."},
                "limit": {"type": "integer", "minimum": 1, "description": "For log: number of lines (default 200)."}
            },
            "required": ["action"]
        });
        Self {
            spec: ToolSpec {
                name: "process_manage".to_owned(),
                toolset: "terminal",
                description: "Looks after processes that terminal started with background=true.".to_owned(),
                parameters,
                replay: ReplaySafety::Once,
                concurrency: Concurrency::Barrier,
                // `wait` has its own limit.
                timed: false,
                result_max_chars: None,
            },
        }
    }
}

#[async_trait]
impl Tool for ProcessManage {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// What is written to a process may be a command for a shell that it runs, so it is judged as one.
    fn risk(&self, call: &Call, cx: &ToolContext) -> Risk {
        if !matches!(text(call, "action"), "write" | "submit") {
            return Risk::None;
        }
        let data = text(call, "data");
        let command = match cx.session.processes.find(text(call, "session_id")) {
            Some(process) => process.written_with(data),
            None => return Risk::None,
        };
        Risk::Command { command, workdir: cx.session.cwd() }
    }

    fn limit_ms(&self, call: &Call, _cx: &ToolContext) -> Option<u64> {
        Some(number(call, "timeout", WAIT_S).clamp(1, WAIT_MAX_S) * 1_000)
    }

    fn label(&self, call: &Call) -> String {
        format!("{} {}", text(call, "action"), text(call, "session_id")).trim_end().to_owned()
    }

    async fn call(&self, call: Authorized<Call>, cx: &ToolContext) -> CallReport {
        let call = call.into_inner();
        let action = text(&call, "action");
        if action == "list" {
            let all: Vec<_> = cx.session.processes.list().iter().map(|process| describe(process)).collect();
            return done(&json!({ "processes": all }), format!("{} processes", all.len()));
        }
        let Some(process) = cx.session.processes.find(text(&call, "session_id")) else {
            let known: Vec<String> = cx.session.processes.list().iter().map(|process| process.id.clone()).collect();
            return failed(format!("there is no such background process; known: {}", known.join(", ")));
        };
        match action {
            "poll" => with_output(&process, process.poll()),
            "log" => log(&call, &process),
            "wait" => {
                let limit = Duration::from_secs(number(&call, "timeout", WAIT_S).clamp(1, WAIT_MAX_S));
                tokio::select! {
                    _ = process.wait(limit) => with_output(&process, process.poll()),
                    () = cx.cancel.cancelled() => {
                        CallReport::new(CallOutcome::Interrupted, crate::text::error_json("stopped waiting; the process runs on"))
                    }
                }
            }
            "kill" => {
                process.kill().await;
                with_output(&process, process.poll())
            }
            "close" => {
                process.close().await;
                done(&describe(&process), "input closed")
            }
            "write" | "submit" => {
                let mut data = text(&call, "data").to_owned();
                if action == "submit" {
                    data.push('\n');
                }
                let written = tokio::select! {
                    written = process.write(&data) => written,
                    () = cx.cancel.cancelled() => {
                        let why = "it was stopped while writing; a part may have been written";
                        return CallReport::new(CallOutcome::Interrupted, crate::text::error_json(why));
                    }
                };
                match written {
                    Ok(()) => done(&describe(&process), format!("{} bytes written", data.len())),
                    Err(error) => failed(format!("nothing was written: {error}")),
                }
            }
            other => failed(format!("unknown action {other:?}")),
        }
    }
}

fn describe(process: &Process) -> serde_json::Value {
    let mut about = json!({
        "session_id": process.id,
        "command": process.command,
        "status": if process.exit().is_some() { "exited" } else { "running" },
        "age_seconds": process.age_s(),
    });
    if let Some(code) = process.exit() {
        about["exit_code"] = json!(code);
    }
    about
}

fn with_output(process: &Process, (output, lost): (String, u64)) -> CallReport {
    let mut about = describe(process);
    let clean = clean_controls(&strip_ansi(&output)).into_owned();
    about["output"] = match head_tail(&clean, OUTPUT_MAX_CHARS, 0) {
        None => json!(clean),
        Some(cut) => json!(format!("[{} characters left out; see log]\n{}", cut.omitted, cut.tail)),
    };
    if lost > 0 {
        about["lost_bytes"] = json!(lost);
    }
    let summary = match process.exit() {
        Some(code) => format!("exit {code}"),
        None => "running".to_owned(),
    };
    done(&about, summary)
}

fn log(call: &Call, process: &Process) -> CallReport {
    let (output, lost) = process.log();
    let lines: Vec<&str> = output.lines().collect();
    let limit = size(call, "limit", LOG_LINES).max(1);
    let start = match &call.arguments["offset"] {
        serde_json::Value::Null => lines.len().saturating_sub(limit),
        _ => size(call, "offset", 0).min(lines.len()),
    };
    let end = start.saturating_add(limit).min(lines.len());
    let mut report = with_output(process, (lines[start..end].join("\n"), lost));
    report.summary = format!("lines {start} to {end} of {}", lines.len());
    report
}
