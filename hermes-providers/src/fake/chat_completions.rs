//! Chat completions, as OpenAI documents them (`API reference, Chat: the chat completion object, the chat completion chunk
//! object`), with `reasoning_content`, which others add (`DeepSeek API docs, Reasoning Model`).

use serde_json::{Value, json};

use crate::fake::written::{Written, data};
use crate::fake::{FakeAnswer, FakeError, FakeErrorKind, FakeFinish, FakeRequest, prompt_tokens};
use crate::practice::chunks;

/// The time of every answer, in seconds of Unix time.
pub(super) const CREATED_S: u64 = 1_750_000_000;

pub(super) fn write(answer: &FakeAnswer, request: &FakeRequest) -> Written {
    if request.stream { Written::events(events(answer, request)) } else { Written::whole(&whole(answer, request)) }
}

/// Status, type and code of an error, which the Responses wire shares.
fn words(kind: FakeErrorKind) -> (u16, &'static str, &'static str) {
    match kind {
        FakeErrorKind::RateLimited => (429, "requests", "rate_limit_exceeded"),
        FakeErrorKind::Overloaded => (503, "server_error", "server_error"),
        FakeErrorKind::Unauthorized => (401, "invalid_request_error", "invalid_api_key"),
        FakeErrorKind::Invalid => (400, "invalid_request_error", "invalid_value"),
    }
}

/// The code of an error.
pub(super) fn code(kind: FakeErrorKind) -> &'static str {
    words(kind).2
}

fn error_object(error: &FakeError) -> Value {
    let (_, kind, code) = words(error.kind);
    json!({"error": {"message": error.message, "type": kind, "param": null, "code": code}})
}

pub(super) fn refused(error: &FakeError) -> Written {
    Written::refused(words(error.kind).0, &error_object(error))
}

fn finish(answer: &FakeAnswer) -> &'static str {
    match answer.finish {
        FakeFinish::Whole if answer.calls.is_empty() => "stop",
        FakeFinish::Whole => "tool_calls",
        FakeFinish::Length => "length",
        FakeFinish::Filtered => "content_filter",
    }
}

fn usage(answer: &FakeAnswer) -> Value {
    let usage = &answer.usage;
    let (prompt, output) = (prompt_tokens(usage), usage.output.unwrap_or(0));
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read.unwrap_or(0),
            "cache_write_tokens": usage.cache_write.unwrap_or(0),
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning.unwrap_or(0),
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    })
}

fn whole(answer: &FakeAnswer, request: &FakeRequest) -> Value {
    let text = if answer.text.is_empty() { Value::Null } else { json!(answer.text) };
    let mut message = json!({"role": "assistant", "content": text, "refusal": null, "annotations": []});
    if !answer.reasoning.is_empty() {
        message["reasoning_content"] = json!(answer.reasoning);
    }
    if !answer.calls.is_empty() {
        let calls = answer.calls.iter().map(|call| {
            json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
        });
        message["tool_calls"] = calls.collect();
    }
    json!({
        "id": request.id("chatcmpl-"),
        "object": "chat.completion",
        "created": CREATED_S,
        "model": request.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish(answer)}],
        "usage": usage(answer),
        "service_tier": "default",
        "system_fingerprint": "fp_fake",
    })
}

fn events(answer: &FakeAnswer, request: &FakeRequest) -> Vec<Vec<u8>> {
    let counts = request.body.pointer("/stream_options/include_usage") == Some(&Value::Bool(true));
    let chunk = |choices: Value, usage: Value| {
        let mut chunk = json!({
            "id": request.id("chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": CREATED_S,
            "model": request.model,
            "service_tier": "default",
            "system_fingerprint": "fp_fake",
            "choices": choices,
        });
        if counts {
            chunk["usage"] = usage;
        }
        data(&chunk)
    };
    let step = |delta: Value, finish: Value| {
        chunk(json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]), Value::Null)
    };
    let more = |delta: Value| step(delta, Value::Null);
    let mut out = vec![more(json!({"role": "assistant", "content": "", "refusal": null}))];
    out.extend(chunks(&answer.reasoning).map(|text| more(json!({"reasoning_content": text}))));
    out.extend(chunks(&answer.text).map(|text| more(json!({"content": text}))));
    for (at, call) in answer.calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        let head = json!({"index": at, "id": call.id, "type": "function", "function": function});
        out.push(more(json!({"tool_calls": [head]})));
        out.extend(
            chunks(&call.arguments)
                .map(|text| more(json!({"tool_calls": [{"index": at, "function": {"arguments": text}}]}))),
        );
    }
    if let Some(error) = &answer.error {
        out.push(data(&error_object(error)));
        return out;
    }
    out.push(step(json!({}), json!(finish(answer))));
    if counts {
        out.push(chunk(json!([]), usage(answer)));
    }
    out.push(b"data: [DONE]\n\n".to_vec());
    out
}
