//! Converse, as Amazon documents it (`Bedrock API reference: Converse, ConverseStream, ConverseStreamOutput`).

use serde_json::{Value, json};

use crate::fake::written::Written;
use crate::fake::{FakeAnswer, FakeError, FakeErrorKind, FakeFinish, FakeRequest, arguments, prompt_tokens};
use crate::mode::bedrock_converse::writing::{event, exception};
use crate::practice::chunks;

pub(super) fn write(answer: &FakeAnswer, request: &FakeRequest) -> Written {
    let written = if request.stream {
        Written::new("application/vnd.amazon.eventstream", frames(answer))
    } else {
        Written::whole(&whole(answer))
    };
    written.with("x-amzn-requestid", request.id(""))
}

/// Status, and the names of the exception in a header and in a stream.
fn words(kind: FakeErrorKind) -> (u16, &'static str, &'static str) {
    match kind {
        FakeErrorKind::RateLimited => (429, "ThrottlingException", "throttlingException"),
        FakeErrorKind::Overloaded => (503, "ServiceUnavailableException", "serviceUnavailableException"),
        FakeErrorKind::Unauthorized => (403, "UnrecognizedClientException", "internalServerException"),
        FakeErrorKind::Invalid => (400, "ValidationException", "validationException"),
    }
}

pub(super) fn refused(error: &FakeError) -> Written {
    let (status, kind, _) = words(error.kind);
    Written::refused(status, &json!({"message": error.message})).with("x-amzn-errortype", kind.to_owned())
}

fn stop_reason(answer: &FakeAnswer) -> &'static str {
    match answer.finish {
        FakeFinish::Whole if answer.calls.is_empty() => "end_turn",
        FakeFinish::Whole => "tool_use",
        FakeFinish::Length => "max_tokens",
        FakeFinish::Filtered => "content_filtered",
    }
}

fn usage(answer: &FakeAnswer) -> Value {
    let usage = &answer.usage;
    let output = usage.output.unwrap_or(0);
    json!({
        "inputTokens": usage.input_uncached.unwrap_or(0),
        "outputTokens": output,
        "totalTokens": prompt_tokens(usage) + output,
        "cacheReadInputTokens": usage.cache_read.unwrap_or(0),
        "cacheWriteInputTokens": usage.cache_write.unwrap_or(0),
    })
}

fn whole(answer: &FakeAnswer) -> Value {
    let mut content = Vec::new();
    if !answer.reasoning.is_empty() {
        let text = json!({"text": answer.reasoning, "signature": answer.proof});
        content.push(json!({"reasoningContent": {"reasoningText": text}}));
    }
    if !answer.text.is_empty() {
        content.push(json!({"text": answer.text}));
    }
    content.extend(
        answer
            .calls
            .iter()
            .map(|call| json!({"toolUse": {"toolUseId": call.id, "name": call.name, "input": arguments(call)}})),
    );
    json!({
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": stop_reason(answer),
        "usage": usage(answer),
        "metrics": {"latencyMs": 1},
    })
}

/// One block; only calls are announced.
fn block(out: &mut Vec<Vec<u8>>, index: usize, start: Option<Value>, deltas: impl IntoIterator<Item = Value>) {
    let mut put = |kind: &str, mut members: Value| {
        members["contentBlockIndex"] = json!(index);
        // The maker fills frames up to hide their lengths.
        members["p"] = json!("abcdefgh");
        out.push(event(kind, &members.to_string()));
    };
    if let Some(start) = start {
        put("contentBlockStart", json!({"start": start}));
    }
    for delta in deltas {
        put("contentBlockDelta", json!({"delta": delta}));
    }
    put("contentBlockStop", json!({}));
}

fn frames(answer: &FakeAnswer) -> Vec<Vec<u8>> {
    let mut out = vec![event("messageStart", &json!({"role": "assistant", "p": "abcd"}).to_string())];
    let mut index = 0;
    if !answer.reasoning.is_empty() {
        let texts = chunks(&answer.reasoning).map(|text| json!({"reasoningContent": {"text": text}}));
        let sign = json!({"reasoningContent": {"signature": answer.proof}});
        block(&mut out, index, None, texts.chain([sign]));
        index += 1;
    }
    if !answer.text.is_empty() {
        block(&mut out, index, None, chunks(&answer.text).map(|text| json!({"text": text})));
        index += 1;
    }
    for call in &answer.calls {
        let start = json!({"toolUse": {"toolUseId": call.id, "name": call.name}});
        let deltas = chunks(&call.arguments).map(|text| json!({"toolUse": {"input": text}}));
        block(&mut out, index, Some(start), deltas);
        index += 1;
    }
    if let Some(error) = &answer.error {
        out.push(exception(words(error.kind).2, &json!({"message": error.message}).to_string()));
        return out;
    }
    out.push(event("messageStop", &json!({"stopReason": stop_reason(answer), "p": "ab"}).to_string()));
    let end = json!({"usage": usage(answer), "metrics": {"latencyMs": 1}, "p": "abc"});
    out.push(event("metadata", &end.to_string()));
    out
}
