//! Messages, as Anthropic documents them (`Messages API`, `Streaming Messages`, `Errors`).

use serde_json::{Value, json};

use crate::fake::written::{Written, named};
use crate::fake::{FakeAnswer, FakeError, FakeErrorKind, FakeFinish, FakeRequest, arguments};
use crate::practice::chunks;

pub(super) fn write(answer: &FakeAnswer, request: &FakeRequest) -> Written {
    let written = if request.stream {
        Written::events(events(answer, request))
    } else {
        Written::whole(&message(answer, request, true))
    };
    written.with("request-id", request.id("req_"))
}

fn words(kind: FakeErrorKind) -> (u16, &'static str) {
    match kind {
        FakeErrorKind::RateLimited => (429, "rate_limit_error"),
        FakeErrorKind::Overloaded => (529, "overloaded_error"),
        FakeErrorKind::Unauthorized => (401, "authentication_error"),
        FakeErrorKind::Invalid => (400, "invalid_request_error"),
    }
}

fn error_object(error: &FakeError, request: &FakeRequest) -> Value {
    let inner = json!({"type": words(error.kind).1, "message": error.message});
    json!({"type": "error", "error": inner, "request_id": request.id("req_")})
}

pub(super) fn refused(error: &FakeError, request: &FakeRequest) -> Written {
    let id = request.id("req_");
    Written::refused(words(error.kind).0, &error_object(error, request)).with("request-id", id)
}

fn stop_reason(answer: &FakeAnswer) -> &'static str {
    match answer.finish {
        FakeFinish::Whole if answer.calls.is_empty() => "end_turn",
        FakeFinish::Whole => "tool_use",
        FakeFinish::Length => "max_tokens",
        FakeFinish::Filtered => "refusal",
    }
}

/// The counts: as they begin, or for the whole answer.
fn usage(answer: &FakeAnswer, is_done: bool) -> Value {
    let usage = &answer.usage;
    let output = if is_done { usage.output.unwrap_or(0) } else { 1 };
    let mut value = json!({
        "input_tokens": usage.input_uncached.unwrap_or(0),
        "cache_creation_input_tokens": usage.cache_write.unwrap_or(0),
        "cache_read_input_tokens": usage.cache_read.unwrap_or(0),
        "output_tokens": output,
    });
    if let Some(thoughts) = usage.reasoning.filter(|_| is_done) {
        value["output_tokens_details"] = json!({"thinking_tokens": thoughts});
    }
    value
}

/// The message: as it begins, or as it ended.
fn message(answer: &FakeAnswer, request: &FakeRequest, is_done: bool) -> Value {
    let content = if is_done { blocks(answer) } else { Vec::new() };
    json!({
        "id": request.id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": if is_done { json!(stop_reason(answer)) } else { Value::Null },
        "stop_sequence": null,
        "usage": usage(answer, is_done),
    })
}

fn blocks(answer: &FakeAnswer) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !answer.reasoning.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": answer.reasoning, "signature": answer.proof}));
    }
    if !answer.text.is_empty() {
        blocks.push(json!({"type": "text", "text": answer.text}));
    }
    blocks.extend(
        answer
            .calls
            .iter()
            .map(|call| json!({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments(call)})),
    );
    blocks
}

fn events(answer: &FakeAnswer, request: &FakeRequest) -> Vec<Vec<u8>> {
    let start = json!({"type": "message_start", "message": message(answer, request, false)});
    let mut out = vec![named(&start)];
    let mut index = 0;
    let mut block = |out: &mut Vec<Vec<u8>>, begun: Value, deltas: Vec<Value>| {
        out.push(named(&json!({"type": "content_block_start", "index": index, "content_block": begun})));
        if index == 0 {
            out.push(named(&json!({"type": "ping"})));
        }
        out.extend(
            deltas.iter().map(|delta| named(&json!({"type": "content_block_delta", "index": index, "delta": delta}))),
        );
        out.push(named(&json!({"type": "content_block_stop", "index": index})));
        index += 1;
    };
    if !answer.reasoning.is_empty() {
        let mut deltas: Vec<Value> =
            chunks(&answer.reasoning).map(|text| json!({"type": "thinking_delta", "thinking": text})).collect();
        deltas.push(json!({"type": "signature_delta", "signature": answer.proof}));
        block(&mut out, json!({"type": "thinking", "thinking": "", "signature": ""}), deltas);
    }
    if !answer.text.is_empty() {
        let deltas = chunks(&answer.text).map(|text| json!({"type": "text_delta", "text": text})).collect();
        block(&mut out, json!({"type": "text", "text": ""}), deltas);
    }
    for call in &answer.calls {
        // An empty piece comes first, as with the maker.
        let pieces = std::iter::once("").chain(chunks(&call.arguments));
        let deltas = pieces.map(|text| json!({"type": "input_json_delta", "partial_json": text})).collect();
        block(&mut out, json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}), deltas);
    }
    if let Some(error) = &answer.error {
        out.push(named(&error_object(error, request)));
        return out;
    }
    out.push(named(&json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason(answer), "stop_sequence": null},
        "usage": usage(answer, true),
    })));
    out.push(named(&json!({"type": "message_stop"})));
    out
}
