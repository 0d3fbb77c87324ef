//! Responses, as OpenAI documents them (`API reference, Responses: the response object` and `Streaming events`).

use serde_json::{Value, json};

use crate::chat::ToolCall;
use crate::fake::chat_completions::{CREATED_S, code};
use crate::fake::written::{Written, named};
use crate::fake::{FakeAnswer, FakeFinish, FakeRequest, prompt_tokens};
use crate::practice::chunks;

pub(super) fn write(answer: &FakeAnswer, request: &FakeRequest) -> Written {
    if !request.stream {
        return Written::whole(&response(answer, request, true));
    }
    let mut stream = Stream { out: Vec::new() };
    stream.events(answer, request);
    Written::events(stream.out)
}

/// The response object: as it begins, or as it ended.
fn response(answer: &FakeAnswer, request: &FakeRequest, is_done: bool) -> Value {
    let (status, reason) = match answer.finish {
        _ if !is_done => ("in_progress", Value::Null),
        FakeFinish::Whole => ("completed", Value::Null),
        FakeFinish::Length => ("incomplete", json!({"reason": "max_output_tokens"})),
        FakeFinish::Filtered => ("incomplete", json!({"reason": "content_filter"})),
    };
    let output = if is_done { items(answer, request) } else { Vec::new() };
    json!({
        "id": request.id("resp_"),
        "object": "response",
        "created_at": CREATED_S,
        "status": status,
        "background": false,
        "error": null,
        "incomplete_details": reason,
        "instructions": request.body.get("instructions"),
        "max_output_tokens": request.body.get("max_output_tokens"),
        "max_tool_calls": null,
        "model": request.model,
        "output": output,
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "prompt_cache_key": null,
        "reasoning": {"effort": null, "summary": null},
        "safety_identifier": null,
        "service_tier": "default",
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": if is_done { usage(answer) } else { Value::Null },
        "user": null,
        "metadata": {},
    })
}

fn usage(answer: &FakeAnswer) -> Value {
    let usage = &answer.usage;
    let (input, output) = (prompt_tokens(usage), usage.output.unwrap_or(0));
    let (cached, written) = (usage.cache_read.unwrap_or(0), usage.cache_write.unwrap_or(0));
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning.unwrap_or(0)},
        "total_tokens": input + output,
    })
}

fn reasoning(answer: &FakeAnswer, request: &FakeRequest, is_done: bool) -> Value {
    let summary = json!([{"type": "summary_text", "text": answer.reasoning}]);
    let mut item = json!({"id": request.id("rs_"), "type": "reasoning", "summary": []});
    if is_done && !answer.reasoning.is_empty() {
        item["summary"] = summary;
    }
    let wanted = request.body.get("include").and_then(Value::as_array);
    if wanted.is_some_and(|all| all.iter().any(|one| one == "reasoning.encrypted_content")) {
        // It grows while the model thinks, so the two differ.
        item["encrypted_content"] = json!(if is_done { &answer.proof } else { "" });
    }
    item
}

fn message(answer: &FakeAnswer, request: &FakeRequest, is_done: bool) -> Value {
    let status = match answer.finish {
        _ if !is_done => "in_progress",
        FakeFinish::Whole => "completed",
        FakeFinish::Length | FakeFinish::Filtered => "incomplete",
    };
    let content = if is_done { vec![part(&answer.text)] } else { Vec::new() };
    json!({"id": request.id("msg_"), "type": "message", "status": status, "content": content, "role": "assistant"})
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text})
}

fn call_item(call: &ToolCall, at: usize, request: &FakeRequest, is_done: bool) -> Value {
    json!({
        "id": request.id(&format!("fc_{at}_")),
        "type": "function_call",
        "status": if is_done { "completed" } else { "in_progress" },
        "arguments": if is_done { call.arguments.as_str() } else { "" },
        "call_id": call.id,
        "name": call.name,
    })
}

fn has_reasoning(answer: &FakeAnswer) -> bool {
    !answer.reasoning.is_empty() || !answer.proof.is_empty()
}

/// The whole output.
fn items(answer: &FakeAnswer, request: &FakeRequest) -> Vec<Value> {
    let mut items = Vec::new();
    if has_reasoning(answer) {
        items.push(reasoning(answer, request, true));
    }
    if !answer.text.is_empty() {
        items.push(message(answer, request, true));
    }
    items.extend(answer.calls.iter().enumerate().map(|(at, call)| call_item(call, at, request, true)));
    items
}

struct Stream {
    out: Vec<Vec<u8>>,
}

impl Stream {
    /// Each event has its type twice and a number.
    fn event(&mut self, kind: &str, mut members: Value) {
        members["type"] = json!(kind);
        members["sequence_number"] = json!(self.out.len());
        self.out.push(named(&members));
    }

    fn events(&mut self, answer: &FakeAnswer, request: &FakeRequest) {
        let begun = response(answer, request, false);
        self.event("response.created", json!({"response": begun}));
        self.event("response.in_progress", json!({"response": begun}));
        let mut index = 0;
        if has_reasoning(answer) {
            self.reasoning(answer, request);
            index += 1;
        }
        if !answer.text.is_empty() {
            self.message(index, answer, request);
            index += 1;
        }
        for (at, call) in answer.calls.iter().enumerate() {
            self.call(index + at, at, call, request);
        }
        if let Some(error) = &answer.error {
            let members = json!({"code": code(error.kind), "message": error.message, "param": null});
            self.event("error", members);
            return;
        }
        let kind = match answer.finish {
            FakeFinish::Whole => "response.completed",
            FakeFinish::Length | FakeFinish::Filtered => "response.incomplete",
        };
        self.event(kind, json!({"response": response(answer, request, true)}));
    }

    fn item(&mut self, kind: &str, index: usize, item: &Value) {
        self.event(kind, json!({"output_index": index, "item": item}));
    }

    fn reasoning(&mut self, answer: &FakeAnswer, request: &FakeRequest) {
        self.item("response.output_item.added", 0, &reasoning(answer, request, false));
        if !answer.reasoning.is_empty() {
            let at = |mut members: Value| {
                members["item_id"] = json!(request.id("rs_"));
                members["output_index"] = json!(0);
                members["summary_index"] = json!(0);
                members
            };
            let part = |text: &str| json!({"part": {"type": "summary_text", "text": text}});
            self.event("response.reasoning_summary_part.added", at(part("")));
            for text in chunks(&answer.reasoning) {
                self.event("response.reasoning_summary_text.delta", at(json!({"delta": text})));
            }
            self.event("response.reasoning_summary_text.done", at(json!({"text": answer.reasoning})));
            self.event("response.reasoning_summary_part.done", at(part(&answer.reasoning)));
        }
        self.item("response.output_item.done", 0, &reasoning(answer, request, true));
    }

    fn message(&mut self, index: usize, answer: &FakeAnswer, request: &FakeRequest) {
        self.item("response.output_item.added", index, &message(answer, request, false));
        let at = |mut members: Value| {
            members["item_id"] = json!(request.id("msg_"));
            members["output_index"] = json!(index);
            members["content_index"] = json!(0);
            members
        };
        self.event("response.content_part.added", at(json!({"part": part("")})));
        for text in chunks(&answer.text) {
            self.event("response.output_text.delta", at(json!({"delta": text, "logprobs": []})));
        }
        if answer.error.is_some() {
            return;
        }
        self.event("response.output_text.done", at(json!({"text": answer.text, "logprobs": []})));
        self.event("response.content_part.done", at(json!({"part": part(&answer.text)})));
        self.item("response.output_item.done", index, &message(answer, request, true));
    }

    fn call(&mut self, index: usize, at: usize, call: &ToolCall, request: &FakeRequest) {
        let begun = call_item(call, at, request, false);
        let id = begun["id"].clone();
        self.item("response.output_item.added", index, &begun);
        for text in chunks(&call.arguments) {
            let members = json!({"item_id": id, "output_index": index, "delta": text});
            self.event("response.function_call_arguments.delta", members);
        }
        let members = json!({"item_id": id, "output_index": index, "arguments": call.arguments});
        self.event("response.function_call_arguments.done", members);
        self.item("response.output_item.done", index, &call_item(call, at, request, true));
    }
}
