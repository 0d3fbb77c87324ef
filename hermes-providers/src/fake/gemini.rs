//! `generateContent`, as Google documents it (`Gemini API reference: Generating content`, `Thought signatures`,
//! `Troubleshooting guide` for errors).

use serde_json::{Value, json};

use crate::fake::written::{Written, data};
use crate::fake::{FakeAnswer, FakeError, FakeErrorKind, FakeFinish, FakeRequest, arguments, prompt_tokens};
use crate::practice::chunks;

pub(super) fn write(answer: &FakeAnswer, request: &FakeRequest) -> Written {
    if request.stream {
        return Written::events(events(answer, request));
    }
    let mut parts = Vec::new();
    if !answer.reasoning.is_empty() {
        parts.push(json!({"text": answer.reasoning, "thought": true}));
    }
    if !answer.text.is_empty() {
        let mut part = json!({"text": answer.text});
        if answer.calls.is_empty() {
            sign(&mut part, answer);
        }
        parts.push(part);
    }
    parts.extend(calls(answer));
    Written::whole(&response(answer, request, &parts, true))
}

fn words(kind: FakeErrorKind) -> (u16, &'static str) {
    match kind {
        FakeErrorKind::RateLimited => (429, "RESOURCE_EXHAUSTED"),
        FakeErrorKind::Overloaded => (503, "UNAVAILABLE"),
        // What this maker answers to a key that is wrong.
        FakeErrorKind::Unauthorized | FakeErrorKind::Invalid => (400, "INVALID_ARGUMENT"),
    }
}

fn error_object(error: &FakeError) -> Value {
    let (code, status) = words(error.kind);
    let mut value = json!({"error": {"code": code, "message": error.message, "status": status}});
    if error.kind == FakeErrorKind::Unauthorized {
        let kind = "type.googleapis.com/google.rpc.ErrorInfo";
        value["error"]["details"] =
            json!([{"@type": kind, "reason": "API_KEY_INVALID", "domain": "googleapis.com", "metadata": {}}]);
    }
    value
}

pub(super) fn refused(error: &FakeError) -> Written {
    Written::refused(words(error.kind).0, &error_object(error))
}

fn finish(answer: &FakeAnswer) -> &'static str {
    match answer.finish {
        FakeFinish::Whole => "STOP",
        FakeFinish::Length => "MAX_TOKENS",
        FakeFinish::Filtered => "SAFETY",
    }
}

/// The signature stands on the first call, or on the last text when there are no calls.
fn sign(part: &mut Value, answer: &FakeAnswer) {
    if !answer.proof.is_empty() {
        part["thoughtSignature"] = json!(answer.proof);
    }
}

fn calls(answer: &FakeAnswer) -> Vec<Value> {
    let mut parts: Vec<Value> = answer
        .calls
        .iter()
        .map(|call| json!({"functionCall": {"id": call.id, "name": call.name, "args": arguments(call)}}))
        .collect();
    if let Some(first) = parts.first_mut() {
        sign(first, answer);
    }
    parts
}

/// One response object. Counts are running totals; all of them stand in the last one.
fn response(answer: &FakeAnswer, request: &FakeRequest, parts: &[Value], is_last: bool) -> Value {
    let usage = &answer.usage;
    let prompt = prompt_tokens(usage);
    let mut counts = json!({"promptTokenCount": prompt, "totalTokenCount": prompt});
    if let Some(cached) = usage.cache_read {
        counts["cachedContentTokenCount"] = json!(cached);
    }
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
    if is_last {
        candidate["finishReason"] = json!(finish(answer));
        let (output, thoughts) = (usage.output.unwrap_or(0), usage.reasoning.unwrap_or(0));
        counts["candidatesTokenCount"] = json!(output.saturating_sub(thoughts));
        counts["totalTokenCount"] = json!(prompt + output);
        // Noughts are left out on this wire.
        if thoughts > 0 {
            counts["thoughtsTokenCount"] = json!(thoughts);
        }
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": counts,
        "modelVersion": request.model,
        "responseId": request.id("resp"),
    })
}

fn events(answer: &FakeAnswer, request: &FakeRequest) -> Vec<Vec<u8>> {
    let mut parts: Vec<Value> = chunks(&answer.reasoning).map(|text| json!({"text": text, "thought": true})).collect();
    parts.extend(chunks(&answer.text).map(|text| json!({"text": text})));
    if answer.calls.is_empty() && !answer.proof.is_empty() {
        // Behind a stream of text the signature comes on an empty part.
        let mut end = json!({"text": ""});
        sign(&mut end, answer);
        parts.push(end);
    }
    parts.extend(calls(answer));
    if let Some(error) = &answer.error {
        let mut out: Vec<Vec<u8>> =
            parts.into_iter().map(|part| data(&response(answer, request, &[part], false))).collect();
        out.push(data(&error_object(error)));
        return out;
    }
    let last = parts.len().saturating_sub(1);
    let step = |(at, part): (usize, Value)| data(&response(answer, request, &[part], at == last));
    parts.into_iter().enumerate().map(step).collect()
}
