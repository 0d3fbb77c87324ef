//! Streams and what they mean: B28, B29 and the rest of this wire, each cut at every byte.

use super::*;
use crate::chat::{CompletedCall, Completion};
use crate::mode::bedrock_converse::writing::{event, frame};
use proptest::prelude::*;

fn decode(chunks: &[&[u8]]) -> (Vec<Delta>, Result<Completion, ProviderError>) {
    let context = DecodeContext { stream: true, issuer: "me".into(), ..DecodeContext::default() };
    let mut decoder = ConverseDecoder::new(context);
    let mut out = Vec::new();
    let fed = chunks.iter().try_for_each(|chunk| decoder.push(chunk, &mut out));
    let fed = fed.and_then(|()| decoder.finish(StreamEnd::Closed, &mut out));
    if let Err(error) = fed {
        return (out, Err(error));
    }
    match out.pop() {
        Some(Delta::Done(done)) => (out, Ok(*done)),
        other => panic!("no end: {other:?}"),
    }
}

fn shown(result: &(Vec<Delta>, Result<Completion, ProviderError>)) -> String {
    format!("{:?}", (&result.0, result.1.as_ref().map_err(|error| (error.class, &error.message))))
}

fn all_cuts(frames: &[Vec<u8>]) -> Result<Completion, ProviderError> {
    let body = frames.concat();
    let whole = decode(&[&body]);
    for cut in 0..=body.len() {
        assert_eq!(shown(&decode(&[&body[..cut], &body[cut..]])), shown(&whole), "cut at {cut}");
    }
    whole.1
}

fn text(index: u32, text: &str) -> Vec<u8> {
    let text = Value::from(text);
    event("contentBlockDelta", &format!(r#"{{"contentBlockIndex":{index},"delta":{{"text":{text}}},"p":"abc"}}"#))
}

fn call(index: u32, id: &str, name: &str) -> Vec<u8> {
    let payload = json!({"contentBlockIndex": index, "start": {"toolUse": {"toolUseId": id, "name": name}}});
    event("contentBlockStart", &payload.to_string())
}

fn input(index: u32, input: &str) -> Vec<u8> {
    let payload = json!({"contentBlockIndex": index, "delta": {"toolUse": {"input": input}}});
    event("contentBlockDelta", &payload.to_string())
}

fn reasoning(index: u32, member: &str, value: &str) -> Vec<u8> {
    let payload = json!({"contentBlockIndex": index, "delta": {"reasoningContent": {member: value}}});
    event("contentBlockDelta", &payload.to_string())
}

fn stop(index: u32) -> Vec<u8> {
    event("contentBlockStop", &format!(r#"{{"contentBlockIndex":{index}}}"#))
}

fn start() -> Vec<u8> {
    event("messageStart", r#"{"role":"assistant","p":"abcdef"}"#)
}

fn end(reason: &str) -> Vec<u8> {
    event("messageStop", &json!({"stopReason": reason}).to_string())
}

fn metadata() -> Vec<u8> {
    event(
        "metadata",
        r#"{"usage":{"inputTokens":7,"outputTokens":12,"totalTokens":112,"cacheReadInputTokens":90,"cacheWriteInputTokens":3},"metrics":{"latencyMs":9}}"#,
    )
}

fn exception(kind: &str, message: &str) -> Vec<u8> {
    let headers = [(":exception-type", kind), (":content-type", "application/json"), (":message-type", "exception")];
    frame(&headers, json!({"message": message}).to_string().as_bytes())
}

fn whole(id: &str, name: &str, arguments: &str) -> CompletedCall {
    CompletedCall { id: Some(id.into()), name: name.into(), arguments: arguments.into(), whole: true }
}

#[test]
fn b28_b29_every_reason_to_stop_has_its_own_meaning() {
    for (reason, finish) in [
        ("end_turn", Finish::Stop),
        ("stop_sequence", Finish::Stop),
        ("tool_use", Finish::ToolCalls),
        ("max_tokens", Finish::Length),
        ("model_context_window_exceeded", Finish::Length),
        ("guardrail_intervened", Finish::ContentFilter),
        ("content_filtered", Finish::ContentFilter),
        ("malformed_tool_use", Finish::MalformedCall),
        ("something_new", Finish::Other("something_new".into())),
    ] {
        let done = all_cuts(&[start(), text(0, "hé"), text(0, "→"), stop(0), end(reason), metadata()]).unwrap();
        assert_eq!((done.text.as_str(), done.finish, done.sidecar), ("hé→", finish, None), "{reason}");
        assert_eq!((done.finish_missing, done.calls.len()), (false, 0));
        let usage = done.usage.unwrap();
        assert_eq!((usage.input_uncached, usage.cache_read, usage.cache_write), (Some(7), Some(90), Some(3)));
        assert_eq!((usage.output, usage.input_total()), (Some(12), Some(100)));
    }
    let malformed = all_cuts(&[start(), text(0, "x"), end("malformed_model_output"), metadata()]).unwrap_err();
    assert_eq!(malformed.class, ErrorClass::BadResponse);
}

#[test]
fn b28_a_stream_that_is_damaged_or_cut_is_no_answer() {
    let mut damaged = [start(), text(0, "hello"), stop(0)].concat();
    let at = damaged.len() - stop(0).len() - 6;
    damaged[at] ^= 1;
    let (shown, error) = decode(&[&damaged]);
    assert_eq!((shown.len(), error.unwrap_err().class), (0, ErrorClass::BadResponse));

    assert_eq!(all_cuts(&[]).unwrap_err().class, ErrorClass::EmptyResponse);
    assert_eq!(all_cuts(&[start(), text(0, "he")]).unwrap_err().class, ErrorClass::Incomplete);
    assert_eq!(all_cuts(&[start(), text(0, "he"), stop(0)]).unwrap_err().class, ErrorClass::Incomplete);
    let half = start();
    assert_eq!(decode(&[&half[..20]]).1.unwrap_err().class, ErrorClass::Incomplete);
    // Without the counts the answer is whole all the same.
    let done = all_cuts(&[start(), text(0, "he"), stop(0), end("end_turn")]).unwrap();
    assert_eq!((done.text.as_str(), done.usage), ("he", None));
}

#[test]
fn b28_exceptions_inside_a_200_have_the_class_of_their_name() {
    for (kind, message, class) in [
        ("throttlingException", "Too many tokens, please wait before trying again.", ErrorClass::RateLimit),
        ("serviceUnavailableException", "down", ErrorClass::Overloaded),
        ("internalServerException", "oops", ErrorClass::ServerError),
        ("modelStreamErrorException", "the model failed", ErrorClass::ServerError),
        ("modelTimeoutException", "slow", ErrorClass::Timeout),
        ("validationException", "Malformed input request", ErrorClass::BadRequest),
        ("validationException", "Input is too long for requested model.", ErrorClass::ContextOverflow),
        ("brandNewException", "what", ErrorClass::ServerError),
    ] {
        let error = all_cuts(&[start(), text(0, "he"), exception(kind, message)]).unwrap_err();
        assert_eq!(error.class, class, "{kind}");
        assert!(error.message.contains(message.trim_end_matches('.')), "{}", error.message);
    }
    let headers = [(":message-type", "error"), (":error-code", "InternalError"), (":error-message", "it broke")];
    let error = all_cuts(&[start(), frame(&headers, b"")]).unwrap_err();
    assert!(error.message.contains("it broke"), "{}", error.message);
}

#[test]
fn b29_two_calls_that_grow_at_the_same_time_have_their_own_inputs() {
    let frames = [
        start(),
        text(0, "I look."),
        stop(0),
        call(1, "a", "read"),
        call(2, "b", "list"),
        input(1, "{\"pa"),
        input(2, "{\"x"),
        input(1, "th\":\"a\"}"),
        input(2, "\": 2}"),
        stop(2),
        stop(1),
        call(3, "c", "now"),
        stop(3),
        end("tool_use"),
        metadata(),
    ];
    let done = all_cuts(&frames).unwrap();
    let expect =
        vec![whole("a", "read", r#"{"path":"a"}"#), whole("b", "list", r#"{"x": 2}"#), whole("c", "now", "{}")];
    assert_eq!((done.calls, done.finish, done.sidecar), (expect, Finish::ToolCalls, None));
}

#[test]
fn b29_a_call_that_is_malformed_or_cut_is_never_run() {
    let run = |reason: &str, frames: &[Vec<u8>]| {
        let done = all_cuts(&[&[start(), call(0, "a", "read")], frames, &[end(reason), metadata()]].concat()).unwrap();
        (done.finish, done.calls[0].whole)
    };
    let malformed = Finish::MalformedCall;
    assert_eq!(run("malformed_tool_use", &[input(0, "{}"), stop(0)]), (malformed, false));
    assert_eq!(run("max_tokens", &[input(0, "{\"path\":\"a"), stop(0)]), (Finish::Length, false));
    assert_eq!(run("max_tokens", &[stop(0)]), (Finish::Length, false));
    assert_eq!(run("tool_use", &[input(0, "{}")]), (Finish::ToolCalls, false), "never closed");
    let lost = all_cuts(&[start(), input(4, "{}"), stop(4), end("tool_use")]).unwrap_err();
    assert_eq!(lost.class, ErrorClass::BadResponse);
    let nameless = event("contentBlockStart", r#"{"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"a"}}}"#);
    assert_eq!(all_cuts(&[start(), nameless]).unwrap_err().class, ErrorClass::BadResponse);
}

#[test]
fn a_tool_that_the_provider_runs_itself_is_no_call_of_ours() {
    let start_of =
        r#"{"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"s","name":"search","type":"server_tool_use"}}}"#;
    let result = r#"{"contentBlockIndex":1,"start":{"toolResult":{"toolUseId":"s","type":"x"}}}"#;
    let frames = [
        start(),
        event("contentBlockStart", start_of),
        input(0, "{\"q\":1}"),
        stop(0),
        event("contentBlockStart", result),
        event("contentBlockDelta", r#"{"contentBlockIndex":1,"delta":{"toolResult":[{"text":"found"}]}}"#),
        stop(1),
        text(2, "Found."),
        stop(2),
        end("end_turn"),
    ];
    let done = all_cuts(&frames).unwrap();
    assert_eq!((done.text.as_str(), done.calls.len(), done.finish, done.sidecar), ("Found.", 0, Finish::Stop, None));
    let whole = r#"{"output":{"message":{"content":[{"toolUse":{"toolUseId":"s","name":"n","input":{},"type":"server_tool_use"}},{"text":"x"}]}},"stopReason":"end_turn"}"#;
    let done = all_cuts(&[whole.as_bytes().to_vec()]).unwrap();
    assert!(done.calls.is_empty() && done.sidecar.is_some());
}

#[test]
fn i19_signed_reasoning_is_kept_with_its_bytes_and_its_place() {
    let frames = [
        start(),
        reasoning(0, "text", "let me "),
        reasoning(0, "text", "see \"it\""),
        reasoning(0, "signature", "Sig/+=="),
        stop(0),
        reasoning(1, "redactedContent", "AAEC"),
        reasoning(1, "redactedContent", "Aw=="),
        stop(1),
        reasoning(2, "text", "more"),
        reasoning(2, "signature", "T"),
        stop(2),
        text(3, "Done."),
        stop(3),
        call(4, "a", "read"),
        input(4, "{ \"p\" : 1 }"),
        stop(4),
        end("tool_use"),
        metadata(),
    ];
    let done = all_cuts(&frames).unwrap();
    assert_eq!(done.reasoning.as_deref(), Some("let me see \"it\"\n\nmore"));
    let sidecar = done.sidecar.unwrap();
    assert_eq!(&*sidecar.issuer, "me");
    let expect = concat!(
        r#"[{"reasoningContent":{"reasoningText":{"text":"let me see \"it\"","signature":"Sig/+=="}}},"#,
        r#"{"reasoningContent":{"redactedContent":"AAECAw=="}},"#,
        r#"{"reasoningContent":{"reasoningText":{"text":"more","signature":"T"}}},"#,
        r#"{"text":"Done."},{"toolUse":{"toolUseId":"a","name":"read","input":{ "p" : 1 }}}]"#
    );
    assert_eq!(std::str::from_utf8(&sidecar.bytes).unwrap(), expect);
    // Unsigned reasoning is shown and not kept.
    let done =
        all_cuts(&[start(), reasoning(0, "text", "hm"), stop(0), text(1, "x"), stop(1), end("end_turn")]).unwrap();
    assert_eq!((done.reasoning.as_deref(), done.sidecar), (Some("hm"), None));
}

#[test]
fn b17_a_whole_answer_is_one_too() {
    let body = r#" {"metrics":{"latencyMs":1},"output":{"message":{"role":"assistant","content":[
        {"reasoningContent":{"reasoningText":{"text":"hm","signature":"S"}}},
        {"text":"Hé"},
        {"citationsContent":{"content":[]}},
        {"toolUse":{"toolUseId":"a","name":"read","input":{"path": "x"}}}]}},
        "stopReason":"tool_use","usage":{"inputTokens":3,"outputTokens":4,"totalTokens":7},
        "trace":{"promptRouter":{"invokedModelId":"routed"}}}"#;
    let done = all_cuts(&[body.as_bytes().to_vec()]).unwrap();
    assert_eq!((done.text.as_str(), done.reasoning.as_deref()), ("Hé", Some("hm")));
    assert_eq!(done.calls, vec![whole("a", "read", r#"{"path": "x"}"#)]);
    assert_eq!(done.served_model.as_deref(), Some("routed"));
    assert_eq!(done.usage.unwrap().cache_read, None);
    let sidecar = done.sidecar.unwrap();
    let kept = blocks::read_sidecar(&sidecar.bytes);
    let kinds: Vec<_> = kept.iter().map(|block| (block.is_reasoning, block.call_id.as_deref())).collect();
    assert_eq!(kinds, [(true, None), (false, None), (false, None), (false, Some("a"))]);
    assert_eq!(kept[2].raw, r#"{"citationsContent":{"content":[]}}"#);
}

#[test]
fn what_is_no_answer_is_an_error_that_says_what_came() {
    let error = |body: &str| decode(&[body.as_bytes()]).1.unwrap_err();
    assert_eq!(error(r#"{"output":{"mess"#).class, ErrorClass::Incomplete);
    assert_eq!(error(r#"{"output":{"message":{"content":[{"text":"x"}]}}}"#).class, ErrorClass::Incomplete);
    assert_eq!(error(r#"{"hello":1}"#).class, ErrorClass::BadResponse);
    assert!(error(r#"{"message":"no such thing"}"#).message.contains("no such thing"));
    let page = error("<html><title>Proxy</title></html>");
    assert!(page.class == ErrorClass::BadResponse && page.message.contains("Proxy"), "{}", page.message);
    assert_eq!(error("data: {}\n\n").class, ErrorClass::BadResponse);
}

proptest! {
    #[test]
    fn b28_any_split_gives_the_same_deltas(
        pieces in prop::collection::vec((0..4_u32, 0..6_u8, "[a-zé\"\\\\{}]{0,6}"), 0..12),
        reason in prop::sample::select(vec!["end_turn", "tool_use", "max_tokens", "malformed_tool_use"]),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ends in any::<bool>(),
    ) {
        let mut body = start();
        for (index, kind, word) in &pieces {
            body.extend(match kind {
                0 => text(*index, word),
                1 => reasoning(*index, "text", word),
                2 => reasoning(*index, "signature", word),
                3 => call(*index, word, "tool"),
                4 => stop(*index),
                _ => event("ping", word),
            });
        }
        if ends {
            body.extend([end(reason), metadata()].concat());
        }
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        places.extend([0, body.len()]);
        places.sort_unstable();
        let chunks: Vec<&[u8]> = places.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
        prop_assert_eq!(shown(&decode(&chunks)), shown(&decode(&[&body])));
    }

    #[test]
    fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..200), zero in any::<bool>()) {
        let body = if zero { [&[0, 0, 0][..], &body].concat() } else { body };
        let _ = decode(&[&body]);
    }
}
