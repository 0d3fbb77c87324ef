//! A request as it arrived: which wire, which model, and what the user asked.

use serde_json::Value;

use crate::loopback::Arrived;
use crate::percent;
use crate::profile::ApiMode;

/// A request that the fake server answered.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FakeRequest {
    /// The wire, by the path.
    pub mode: ApiMode,
    /// The model's name, from the body or the path.
    pub model: String,
    /// Whether a stream is asked for.
    pub stream: bool,
    /// The text of the last user message.
    pub asked: String,
    /// Results of tools behind that message.
    pub results: usize,
    /// Path and query, as they came.
    pub target: String,
    /// Headers; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Value,
    /// Counts the requests of a server, from 1.
    pub(super) serial: usize,
}

impl FakeRequest {
    /// Reads a request; `None` when its path belongs to no wire or its body is no JSON.
    pub(super) fn read(arrived: Arrived, serial: usize) -> Option<Self> {
        let body: Value = serde_json::from_slice(&arrived.body).ok()?;
        let path = arrived.target.split('?').next().unwrap_or_default();
        let (mode, in_path) = wire_of(path)?;
        let model = in_path.map(|(model, _)| model).or_else(|| Some(body.get("model")?.as_str()?.to_owned()));
        let stream = in_path_streams(path).unwrap_or_else(|| body.get("stream") == Some(&Value::Bool(true)));
        let (asked, results) = last_question(&said(mode, &body));
        Some(Self {
            mode,
            model: model.unwrap_or_default(),
            stream,
            asked,
            results,
            target: arrived.target,
            headers: arrived.headers,
            body,
            serial,
        })
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// An id that no other answer of this server has.
    pub(super) fn id(&self, prefix: &str) -> String {
        format!("{prefix}fake{:08}", self.serial)
    }
}

/// The wire, and model and method where they stand in the path.
fn wire_of(path: &str) -> Option<(ApiMode, Option<(String, String)>)> {
    let last = path.rsplit('/').next().unwrap_or_default();
    if path.ends_with("/chat/completions") {
        return Some((ApiMode::ChatCompletions, None));
    }
    if let ("converse" | "converse-stream", Some((_, rest))) = (last, path.split_once("/model/")) {
        let model = percent::decode(rest.split('/').next().unwrap_or_default());
        return Some((ApiMode::BedrockConverse, Some((model, last.to_owned()))));
    }
    match last {
        "responses" => Some((ApiMode::Responses, None)),
        "messages" => Some((ApiMode::AnthropicMessages, None)),
        _ => {
            let (model, method) = last.rsplit_once(':')?;
            let is_method = matches!(method, "generateContent" | "streamGenerateContent");
            is_method.then(|| (ApiMode::Gemini, Some((percent::decode(model), method.to_owned()))))
        }
    }
}

/// Whether a stream is asked for, where the path says it.
fn in_path_streams(path: &str) -> Option<bool> {
    let method = wire_of(path)?.1?.1;
    Some(matches!(method.as_str(), "converse-stream" | "streamGenerateContent"))
}

/// What matters of a history here.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    User(String),
    Result,
}

/// The last question and how many results came since.
fn last_question(said: &[Said]) -> (String, usize) {
    let mut asked = String::new();
    let mut results = 0;
    for said in said {
        match said {
            Said::User(text) => (asked, results) = (text.clone(), 0),
            Said::Result => results += 1,
        }
    }
    (asked, results)
}

fn said(mode: ApiMode, body: &Value) -> Vec<Said> {
    let list = |name: &str| body.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    match mode {
        ApiMode::ChatCompletions => list("messages").iter().filter_map(of_chat).collect(),
        ApiMode::Responses => match body.get("input").and_then(Value::as_str) {
            Some(text) => vec![Said::User(text.to_owned())],
            None => list("input").iter().filter_map(of_item).collect(),
        },
        ApiMode::AnthropicMessages => list("messages").iter().flat_map(|one| blocks(one, "content")).collect(),
        ApiMode::Gemini => list("contents").iter().flat_map(|one| blocks(one, "parts")).collect(),
        ApiMode::BedrockConverse => list("messages").iter().flat_map(|one| blocks(one, "content")).collect(),
    }
}

fn of_chat(message: &Value) -> Option<Said> {
    match message.get("role")?.as_str()? {
        "user" => Some(Said::User(text(message.get("content")?))),
        "tool" => Some(Said::Result),
        _ => None,
    }
}

fn of_item(item: &Value) -> Option<Said> {
    let kind = item.get("type").and_then(Value::as_str);
    match item.get("role").and_then(Value::as_str) {
        Some("user") => Some(Said::User(text(item.get("content")?))),
        _ => (kind == Some("function_call_output")).then_some(Said::Result),
    }
}

/// What a user's message of blocks says: its results, then its text.
fn blocks(message: &Value, name: &str) -> Vec<Said> {
    // Google allows a content without a role, and results in one of their own.
    let is_users = message.get("role").and_then(Value::as_str).is_none_or(|role| matches!(role, "user" | "function"));
    let Some(content) = message.get(name).filter(|_| is_users) else { return Vec::new() };
    let all = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let is_result = |block: &&Value| {
        let kind = block.get("type").and_then(Value::as_str);
        kind == Some("tool_result") || ["toolResult", "functionResponse"].iter().any(|key| block.get(key).is_some())
    };
    let mut out: Vec<Said> = all.iter().filter(is_result).map(|_| Said::Result).collect();
    let text = text(content);
    if !text.is_empty() {
        out.push(Said::User(text));
    }
    out
}

/// A text, or all texts of a list of parts.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(target: &str, body: &Value) -> FakeRequest {
        let arrived = Arrived {
            method: "POST".into(),
            target: target.into(),
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        };
        FakeRequest::read(arrived, 1).unwrap()
    }

    #[test]
    fn every_wire_is_known_by_its_path_and_its_question_is_found() {
        let converse = json!({"messages": [
            {"role": "user", "content": [{"text": "q"}]},
            {"role": "assistant", "content": [{"toolUse": {}}]},
            {"role": "user", "content": [{"toolResult": {}}, {"toolResult": {}}, {"cachePoint": {}}]},
        ]});
        let gemini = json!({"contents": [
            {"parts": [{"text": "q"}]},
            {"role": "model", "parts": [{"text": "no question"}, {"functionCall": {}}]},
            {"role": "user", "parts": [{"functionResponse": {}}, {"functionResponse": {}}]},
        ]});
        let messages = json!({"model": "m", "stream": true, "messages": [
            {"role": "user", "content": "old"},
            {"role": "user", "content": [{"type": "text", "text": "q"}]},
            {"role": "assistant", "content": "x"},
            {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "r"}]}]},
            {"role": "user", "content": [{"type": "tool_result"}]},
        ]});
        let chat = json!({"model": "m", "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "q"}]},
            {"role": "tool", "content": "r"},
            {"role": "tool", "content": "r"},
        ]});
        let items = json!({"model": "m", "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
            {"type": "function_call_output"},
            {"type": "function_call_output"},
        ]});
        for (target, body, mode, model, stream) in [
            ("/model/a.b-v1%3A0/converse", converse.clone(), ApiMode::BedrockConverse, "a.b-v1:0", false),
            ("/model/m/converse-stream", converse, ApiMode::BedrockConverse, "m", true),
            ("/v1beta/models/m:generateContent", gemini.clone(), ApiMode::Gemini, "m", false),
            ("/v1beta/models/m:streamGenerateContent?alt=sse", gemini, ApiMode::Gemini, "m", true),
            ("/v1/messages?beta=true", messages, ApiMode::AnthropicMessages, "m", true),
            ("/v1/chat/completions", chat, ApiMode::ChatCompletions, "m", false),
            ("/v1/responses", items, ApiMode::Responses, "m", false),
        ] {
            let request = read(target, &body);
            assert_eq!((request.mode, request.model.as_str(), request.stream), (mode, model, stream), "{target}");
            assert_eq!((request.asked.as_str(), request.results), ("q", 2), "{target}");
        }
        assert_eq!(read("/v1/responses", &json!({"input": "q"})).asked, "q");
        assert_eq!(wire_of("/v1/models"), None);
        assert_eq!(wire_of("/v1/models/m:countTokens"), None);
    }

    #[test]
    fn a_question_behind_results_begins_anew() {
        let body = json!({"messages": [
            {"role": "user", "content": "one"},
            {"role": "user", "content": [{"type": "tool_result"}, {"type": "text", "text": "two"}]},
        ]});
        let request = read("/v1/messages", &body);
        assert_eq!((request.asked.as_str(), request.results), ("two", 0));
    }
}
