//! What the practice model says: results as they are, failures as failures, help.

use serde_json::Value;

use super::plan::{Plan, Step};
use crate::chat::{ChatMessage, ToolCall};

/// Most characters of one result that are shown.
const MAX_SHOWN_CHARS: usize = 4000;
/// Most lines of the request that are quoted back.
const MAX_QUOTED_LINES: usize = 3;
/// Most characters of such a line.
const MAX_QUOTED_CHARS: usize = 80;

const HELP: &str = "\
I am the built-in practice model: a small program without any language ability. I am here so that you can try the tools, \
the approvals and the sessions without a network. These lines I understand, each on a line of its own:

  run: ls -la                 runs a command
  read: README.md             reads a file
  write: notes.txt: hello     writes a file
  search: TODO                searches files
  todo: milk; bread           keeps a list

Several lines are done together; a line `then` between them means one after the other.

To talk to a real model, do one of these and start again:
  - put a key into the environment or into .env of the Hermes home, for example OPENAI_API_KEY, OPENROUTER_API_KEY, \
GROQ_API_KEY, DEEPSEEK_API_KEY or MISTRAL_API_KEY
  - start a local server (Ollama, LM Studio, llama.cpp or vLLM); it is found by itself
  - set model.provider, model.base_url and model.default in config.yaml
  - run `hermes model`, which lists the providers and says what each of them needs";

/// The final text of a turn.
pub(super) fn write(plan: &Plan, since: &[ChatMessage], missing: &[&Step], left: &[&Step]) -> String {
    let mut parts: Vec<String> = results(since);
    for step in missing {
        parts.push(format!("I cannot do `{}`: the tool `{}` is not offered to me.", line(step), step.tool()));
    }
    if !left.is_empty() {
        let lines: Vec<String> = left.iter().map(|step| format!("`{}`", line(step))).collect();
        parts.push(format!("Because of that I did not go on with {}.", lines.join(", ")));
    }
    if parts.is_empty() {
        return HELP.to_owned();
    }
    if !plan.unknown.is_empty() {
        let lines: Vec<String> =
            plan.unknown.iter().take(MAX_QUOTED_LINES).map(|line| format!("`{}`", quoted(line))).collect();
        parts.push(format!("I did not understand {}; `help` lists what I understand.", lines.join(", ")));
    }
    parts.join("\n\n")
}

/// One paragraph for each result, in the order of the calls.
fn results(since: &[ChatMessage]) -> Vec<String> {
    let calls = since.iter().filter_map(|message| match message {
        ChatMessage::Assistant { calls, .. } => Some(calls),
        _ => None,
    });
    let result_of = |id: &str| {
        since.iter().find_map(|message| match message {
            ChatMessage::Tool { call_id, content, is_error, .. } if call_id == id => {
                Some((content.as_str(), *is_error))
            }
            _ => None,
        })
    };
    calls
        .flatten()
        .filter_map(|call| result_of(&call.id).map(|(content, error)| result(call, content, error)))
        .collect()
}

fn result(call: &ToolCall, content: &str, is_error: bool) -> String {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    let argument = |key: &str| quoted(arguments.get(key).and_then(Value::as_str).unwrap_or_default());
    let json: Value = serde_json::from_str(content).unwrap_or_default();
    let field = |key: &str| json.get(key).and_then(Value::as_str);
    let what = match call.name.as_str() {
        "terminal" => format!("The command `{}`", argument("command")),
        "read_file" => format!("Reading `{}`", argument("path")),
        "write_file" => format!("Writing `{}`", argument("path")),
        "search_files" => format!("The search for `{}`", argument("pattern")),
        other => format!("The tool `{other}`"),
    };
    let code = json.get("exit_code").and_then(Value::as_i64).filter(|code| *code != 0);
    let output = field("output").filter(|output| !output.trim().is_empty());
    if let Some(error) = field("error") {
        let printed = output.map(|output| format!(" It had printed:\n\n{}", block(output))).unwrap_or_default();
        return format!("{what} failed: {}.{printed}", shown(error.trim_end_matches('.')));
    }
    if call.name == "terminal" && json.is_object() {
        let code = code.map(|code| format!(" and ended with exit code {code}")).unwrap_or_default();
        return match output {
            Some(output) => format!("{what} printed{code}:\n\n{}", block(output)),
            None => format!("{what} printed nothing{code}."),
        };
    }
    if is_error {
        return format!("{what} failed:\n\n{}", block(content));
    }
    match call.name.as_str() {
        "write_file" => {
            let bytes = json.get("bytes_written").and_then(Value::as_u64);
            let bytes = bytes.map(|bytes| format!(" ({bytes} bytes)")).unwrap_or_default();
            format!("{what} worked{bytes}.")
        }
        _ => format!("{what} gave:\n\n{}", block(field("content").unwrap_or(content))),
    }
}

/// A step as the user would write it.
fn line(step: &Step) -> String {
    match step {
        Step::Run(command) => format!("run: {}", quoted(command)),
        Step::Read(path) => format!("read: {}", quoted(path)),
        Step::Write { path, .. } => format!("write: {}", quoted(path)),
        Step::Search(pattern) => format!("search: {}", quoted(pattern)),
        Step::Todo(items) => format!("todo: {}", quoted(&items.join("; "))),
    }
}

fn quoted(text: &str) -> String {
    let cut: String = text.chars().take(MAX_QUOTED_CHARS).collect();
    if cut.len() < text.len() { format!("{cut}…") } else { cut }
}

fn shown(text: &str) -> String {
    let cut: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    if cut.len() == text.len() {
        return cut;
    }
    let more = text.chars().count() - MAX_SHOWN_CHARS;
    format!("{cut}\n… ({more} more characters)")
}

/// A fence longer than any in the text.
fn block(text: &str) -> String {
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}\n{}\n{fence}", shown(text.trim_end()))
}
