//! Our client in front of a server: conversations go to the example `wires`, and what it made of the answers comes back.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::script::{Script, Usage};
use crate::judge::child::Running;
use crate::shell;

/// Longest time for all conversations with one server: some hundred requests on loopback take seconds.
const TALK_MAX_S: u64 = 600;
/// What every tool answers.
const RESULT: &str = "fine";
/// What tools the model is told of.
const TOOLS: [&str; 2] = ["weather", "now"];
/// Most tokens of an answer: room for thinking, where a wire reserves it.
const OUTPUT_MAX_TOKENS: u64 = 20_000;

/// One wire, and how it is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wire {
    /// Its name.
    pub(super) mode: &'static str,
    /// The profile of its maker.
    pub(super) provider: &'static str,
    /// The model that is asked for. Each wire has another one.
    pub(super) model: &'static str,
    /// What comes behind the server's address.
    pub(super) path: &'static str,
}

pub(super) const CHAT: Wire =
    Wire { mode: "chat_completions", provider: "deepseek", model: "deepseek-reasoner", path: "/v1" };
pub(super) const RESPONSES: Wire = Wire { mode: "responses", provider: "openai", model: "gpt-5-mini", path: "/v1" };
pub(super) const MESSAGES: Wire =
    Wire { mode: "anthropic_messages", provider: "anthropic", model: "claude-sonnet-4-6", path: "" };
pub(super) const GEMINI: Wire =
    Wire { mode: "gemini", provider: "gemini", model: "gemini-3-pro-preview", path: "/v1beta" };
pub(super) const CONVERSE: Wire = Wire {
    mode: "bedrock_converse",
    provider: "bedrock",
    model: "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    path: "",
};

/// One conversation: a wire, a question of the script, a way.
#[derive(Debug, Clone)]
pub(super) struct Talk {
    pub(super) wire: Wire,
    pub(super) asked: String,
    pub(super) stream: bool,
    /// With marks for a prompt cache.
    pub(super) caches: bool,
}

/// What came back for one request.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Outcome {
    Failed { error: Failed },
    Answered(Box<Answered>),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Failed {
    pub(super) class: String,
    pub(super) message: String,
    pub(super) retry_after_ms: Option<u64>,
    pub(super) streamed_text: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Answered {
    pub(super) text: String,
    pub(super) reasoning: Option<String>,
    pub(super) calls: Vec<AnsweredCall>,
    /// A word, or an object for what has no word.
    pub(super) finish: Value,
    pub(super) usage: Option<Usage>,
    pub(super) sidecar: Option<String>,
    pub(super) streamed_text: String,
    pub(super) streamed_reasoning: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct AnsweredCall {
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) whole: bool,
}

/// Every question of the script on these wires, as a stream and whole, without cache marks on those named last.
pub(super) fn talks(script: &Script, wires: &[Wire], unmarked: &[Wire]) -> Vec<Talk> {
    let mut talks = Vec::new();
    for wire in wires {
        for asked in script.keys() {
            talks.extend([true, false].map(|stream| Talk {
                wire: *wire,
                asked: asked.clone(),
                stream,
                caches: !unmarked.contains(wire),
            }));
        }
    }
    talks
}

/// Holds all conversations with the server at `address`, with this key; the outcomes of each.
pub(super) fn hold(talks: &[Talk], address: &str, key: &str) -> Result<Vec<Vec<Outcome>>> {
    let program = shell::built(&["-p", "hermes-providers", "--example", "wires"])?;
    // Nothing of this process's environment: a proxy has no business with loopback.
    let mut client = Running::start("our client", Command::new(program).env_clear())?;
    for talk in talks {
        client.say(&conversation(talk, address, key).to_string())?;
    }
    let (lines, code, _) = client.finish(Duration::from_secs(TALK_MAX_S))?;
    ensure!(code == Some(0), "our client ended with {code:?}");
    ensure!(lines.len() == talks.len(), "{} conversations were asked for, {} came back", talks.len(), lines.len());
    let read = |line: &crate::judge::child::Line| {
        serde_json::from_str(&line.text).with_context(|| format!("not a line of our client: {}", line.text))
    };
    lines.iter().map(read).collect()
}

fn conversation(talk: &Talk, address: &str, key: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tools = TOOLS.map(|name| json!({"name": name, "description": format!("Tells {name}."), "parameters": schema}));
    let results: serde_json::Map<String, Value> =
        TOOLS.iter().map(|name| ((*name).to_owned(), json!(RESULT))).collect();
    let mut conversation = json!({
        "provider": talk.wire.provider,
        "base_url": format!("{address}{}", talk.wire.path),
        "model": talk.wire.model,
        "mode": talk.wire.mode,
        "asks": [talk.asked],
        "stream": talk.stream,
        "system": "Be good.",
        "tools": tools,
        "results": results,
        "effort": "low",
        "max_output_tokens": OUTPUT_MAX_TOKENS,
        "caches": talk.caches,
    });
    if talk.wire.mode == CONVERSE.mode {
        let keys = json!({"access_key_id": "AKTEST", "secret_access_key": "secret", "region": "eu-west-1"});
        conversation["aws"] = keys;
    } else {
        conversation["key"] = json!(key);
    }
    conversation
}
