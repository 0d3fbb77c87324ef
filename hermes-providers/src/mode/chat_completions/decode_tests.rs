//! Bodies and what they mean: the behaviours B1 to B17, each cut at every byte.

use super::*;
use crate::chat::{CompletedCall, ToolSchema};
use crate::mode::NameMap;
use proptest::prelude::*;

/// Deltas joined as far as a reader cannot tell them apart, and the end.
#[derive(Debug, Clone, PartialEq)]
struct Answer {
    text: String,
    reasoning: String,
    started: Vec<(usize, String)>,
    bytes: usize,
    end: Result<Completion, (ErrorClass, String)>,
}

fn context(names: NameMap, route: &str, stream: bool) -> DecodeContext {
    DecodeContext { names, issuer: "me".into(), route: route.to_owned(), stream, ..DecodeContext::default() }
}

fn decode(chunks: &[&[u8]], end: StreamEnd) -> Answer {
    let tools = [ToolSchema { name: "a b".into(), description: String::new(), parameters: Value::Null }];
    let mut decoder = ChatDecoder::new(context(NameMap::new(&tools), "test/m", true));
    let mut deltas = Vec::new();
    let fed = chunks.iter().try_for_each(|chunk| decoder.push(chunk, &mut deltas));
    let fed = fed.and_then(|()| decoder.finish(end, &mut deltas));
    let mut answer = Answer {
        text: String::new(),
        reasoning: String::new(),
        started: Vec::new(),
        bytes: 0,
        end: Err((ErrorClass::BadResponse, "no end".into())),
    };
    for delta in deltas {
        match delta {
            Delta::Text(text) => answer.text.push_str(&text),
            Delta::Reasoning(text) => answer.reasoning.push_str(&text),
            Delta::CallStarted { index, name } => answer.started.push((index, name)),
            Delta::CallArguments { bytes, .. } => answer.bytes += bytes,
            Delta::Done(completion) => {
                assert!(answer.end.is_err(), "two ends");
                answer.end = Ok(*completion);
            }
        }
    }
    if let Err(error) = fed {
        assert!(answer.end.is_err(), "an error after the end");
        answer.end = Err((error.class, error.message));
    }
    answer
}

/// Decodes in one piece, byte by byte and cut in two at every place; all must agree (B1).
fn all_cuts(body: &str) -> Answer {
    let bytes = body.as_bytes();
    let whole = decode(&[bytes], StreamEnd::Closed);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(decode(&single, StreamEnd::Closed), whole, "byte by byte");
    for cut in 0..bytes.len() {
        assert_eq!(decode(&[&bytes[..cut], &bytes[cut..]], StreamEnd::Closed), whole, "cut at {cut}");
    }
    whole
}

fn events(chunks: &[&str]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

fn delta(inner: &str) -> String {
    format!(r#"{{"model":"served","choices":[{{"index":0,"delta":{inner},"finish_reason":null}}]}}"#)
}

fn end(finish: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{finish}"}}]}}"#)
}

const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}"#;

fn stream(deltas: &[&str], finish: &str) -> String {
    let mut chunks: Vec<String> = deltas.iter().map(|inner| delta(inner)).collect();
    chunks.push(end(finish));
    chunks.push(USAGE.into());
    chunks.push("[DONE]".into());
    events(&chunks.iter().map(String::as_str).collect::<Vec<_>>())
}

fn calls(body: &str) -> Vec<(Option<String>, String, String, bool)> {
    let done = all_cuts(body).end.unwrap();
    done.calls.into_iter().map(|CompletedCall { id, name, arguments, whole }| (id, name, arguments, whole)).collect()
}

fn call(id: Option<&str>, name: &str, arguments: &str, whole: bool) -> (Option<String>, String, String, bool) {
    (id.map(Into::into), name.into(), arguments.into(), whole)
}

fn class(body: &str) -> ErrorClass {
    all_cuts(body).end.unwrap_err().0
}

#[test]
fn b01_any_cut_gives_the_same_answer() {
    let body = stream(&[r#"{"content":"ü→🦀 "}"#, r#"{"content":"日本"}"#, r#"{"reasoning":"思"}"#], "stop");
    let answer = all_cuts(&body);
    assert_eq!((answer.text.as_str(), answer.reasoning.as_str()), ("ü→🦀 日本", "思"));
    assert_eq!(answer.end.unwrap().text, "ü→🦀 日本");
}

#[test]
fn b02_line_ends_blanks_and_a_byte_order_mark_change_nothing() {
    let plain = stream(&[r#"{"content":"a"}"#, r#"{"content":" b"}"#], "stop");
    let expect = all_cuts(&plain);
    for variant in [
        plain.replace("data: ", "data:"),
        plain.replace('\n', "\r\n"),
        plain.replace('\n', "\r"),
        format!("\u{feff}{plain}"),
        plain.replace("\n\n", "\n"),
    ] {
        assert_eq!(all_cuts(&variant), expect, "{variant:?}");
    }
}

#[test]
fn b03_comments_and_empty_frames_are_no_progress() {
    let mut decoder = ChatDecoder::new(context(NameMap::default(), "", true));
    let mut out = Vec::new();
    decoder.push(b": OPENROUTER PROCESSING\n\ndata:\n\ndata: \n\nevent: ping\ndata: {}\n\n", &mut out).unwrap();
    decoder.push(events(&[&delta(r#"{"role":"assistant","content":""}"#)]).as_bytes(), &mut out).unwrap();
    assert!(out.is_empty() && decoder.progress() == 0);
    decoder.push(events(&[&delta(r#"{"content":"x"}"#)]).as_bytes(), &mut out).unwrap();
    assert!(out.len() == 1 && decoder.progress() == 1);
}

#[test]
fn b04_text_finish_usage_and_done_make_one_message() {
    let done = all_cuts(&stream(&[r#"{"content":"hi"}"#], "stop")).end.unwrap();
    assert_eq!((done.text.as_str(), &done.finish, done.finish_missing), ("hi", &Finish::Stop, false));
    assert_eq!(done.usage.unwrap().output, Some(3));
    assert_eq!(done.served_model.as_deref(), Some("served"));
}

#[test]
fn b05_an_end_needs_a_finish_reason_or_a_mark() {
    let hi = delta(r#"{"content":"hi"}"#);
    assert!(!all_cuts(&events(&[&hi, &end("stop")])).end.unwrap().finish_missing);
    assert_eq!(class(&events(&[&hi])), ErrorClass::Incomplete);
    let broken = decode(&[events(&[&hi, &end("stop")]).as_bytes()], StreamEnd::Broken);
    assert_eq!(broken.end.unwrap().finish, Finish::Stop);
    let cut = events(&[&hi]) + "data: {\"choices\":[{\"del";
    assert_eq!(all_cuts(&cut).end.unwrap_err().0, ErrorClass::Incomplete);
}

#[test]
fn w08_an_explicit_end_without_a_finish_reason_is_marked() {
    let hi = delta(r#"{"content":"hi"}"#);
    for body in [
        events(&[&hi, USAGE, "[DONE]"]),
        events(&[&hi, USAGE]),
        events(&[&hi, "[DONE]"]),
        events(&[&hi]) + "data: [DONE]",
    ] {
        let done = all_cuts(&body).end.unwrap();
        assert_eq!((done.finish, done.finish_missing), (Finish::Stop, true), "{body}");
    }
    // Usage in every chunk is no end.
    let running = r#"{"choices":[{"delta":{"content":"hi"}}],"usage":{"completion_tokens":1}}"#;
    assert_eq!(class(&events(&[running])), ErrorClass::Incomplete);
    // A cut call is not saved by a mark.
    let part = delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":"{\"x"}}]}"#);
    assert_eq!(class(&events(&[&part, "[DONE]"])), ErrorClass::Incomplete);
}

#[test]
fn b06_nothing_at_all_is_an_empty_response() {
    for body in ["", "\n\n", ": ping\n\n", "data:\n\n", "data: [DONE]\n\n"] {
        assert_eq!(class(body), ErrorClass::EmptyResponse, "{body:?}");
    }
    assert_eq!(class(&events(&[USAGE, "[DONE]"])), ErrorClass::EmptyResponse);
}

#[test]
fn b07_an_error_frame_in_a_200_is_classed_like_an_answer() {
    let frame = r#"{"error":{"code":429,"message":"Rate limit exceeded"},"choices":[{"finish_reason":"error"}]}"#;
    assert_eq!(class(&events(&[&delta(r#"{"content":"x"}"#), frame])), ErrorClass::RateLimit);
    let inner = r#"{"choices":[{"delta":{},"finish_reason":"error","error":{"code":503,"message":"x"}}]}"#;
    assert_eq!(class(&events(&[inner])), ErrorClass::Overloaded);
    assert_eq!(class("event: error\ndata: {\"message\":\"overloaded\"}\n\n"), ErrorClass::Overloaded);
    let kept = all_cuts(&events(&[&delta(r#"{"content":"x"}"#), frame]));
    assert_eq!(kept.text, "x", "text before the error is kept");
}

#[test]
fn b08_a_vllm_error_frame_is_an_error() {
    assert_eq!(class(&events(&[r#"{"object":"error","message":"bad thing","code":400}"#])), ErrorClass::BadRequest);
}

#[test]
fn b09_a_frame_that_is_not_json_is_quoted_without_keys() {
    let (class, message) = all_cuts("data: upstream timeout sk-abcdef123456\n\n").end.unwrap_err();
    assert_eq!(class, ErrorClass::BadResponse);
    assert!(message.contains("upstream timeout") && !message.contains("sk-abc"), "{message}");
    let long = format!("data: {}\n\n", "x".repeat(10_000));
    assert!(decode(&[long.as_bytes()], StreamEnd::Closed).end.unwrap_err().1.len() < 2200);
}

#[test]
fn b10_fragments_make_one_call() {
    let body = stream(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"pa"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"th\":\"a"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]}"#,
        ],
        "tool_calls",
    );
    assert_eq!(calls(&body), [call(Some("a"), "read", r#"{"path":"a"}"#, true)]);
    let answer = all_cuts(&body);
    assert_eq!((answer.started, answer.bytes), (vec![(0, "read".into())], 12));
}

#[test]
fn b11_another_id_at_a_used_index_is_another_call() {
    let one = |index: u8, id: &str, n: u8| {
        format!(
            r#"{{"tool_calls":[{{"index":{index},"id":"{id}","function":{{"name":"t","arguments":"{{\"n\":{n}}}"}}}}]}}"#
        )
    };
    let body = stream(&[&one(0, "a", 1), &one(0, "b", 2), &one(1, "c", 3)], "tool_calls");
    let expect = [
        call(Some("a"), "t", r#"{"n":1}"#, true),
        call(Some("b"), "t", r#"{"n":2}"#, true),
        call(Some("c"), "t", r#"{"n":3}"#, true),
    ];
    assert_eq!(calls(&body), expect);
}

#[test]
fn b12_calls_without_id_and_index_are_told_apart() {
    let one = |n: u8| format!(r#"{{"tool_calls":[{{"function":{{"name":"t","arguments":"{{\"n\":{n}}}"}}}}]}}"#);
    let body = stream(&[&one(1), &one(2)], "stop");
    assert_eq!(calls(&body), [call(None, "t", r#"{"n":1}"#, true), call(None, "t", r#"{"n":2}"#, true)]);
    assert_eq!(all_cuts(&body).end.unwrap().finish, Finish::ToolCalls);
}

#[test]
fn b13_skipped_indices_leave_no_empty_call() {
    let one = |index: u8| {
        format!(
            r#"{{"tool_calls":[{{"index":{index},"id":"i{index}","function":{{"name":"t{index}","arguments":"{{}}"}}}}]}}"#
        )
    };
    let body = stream(&[&one(0), &one(2)], "tool_calls");
    assert_eq!(calls(&body), [call(Some("i0"), "t0", "{}", true), call(Some("i2"), "t2", "{}", true)]);
}

#[test]
fn b14_cut_arguments_are_not_whole() {
    let part = r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":"{\"path\":\"a\""}}]}"#;
    let done = all_cuts(&stream(&[part], "length")).end.unwrap();
    assert_eq!((done.finish, done.calls[0].whole), (Finish::Length, false));
    assert_eq!(done.calls[0].arguments, r#"{"path":"a""#);
    let nameless = r#"{"tool_calls":[{"index":0,"id":"a"}]}"#;
    assert!(all_cuts(&stream(&[nameless], "length")).end.unwrap().calls.is_empty());
    assert_eq!(class(&stream(&[nameless], "tool_calls")), ErrorClass::BadResponse);
}

#[test]
fn b15_a_repeated_name_is_one_name() {
    for ids in [("\"id\":\"a\",", "\"id\":\"a\","), ("\"id\":\"a\",", ""), ("", "")] {
        let part = |id: &str, arguments: &str| {
            format!(r#"{{"tool_calls":[{{"index":0,{id}"function":{{"name":"read","arguments":"{arguments}"}}}}]}}"#)
        };
        let body = stream(&[&part(ids.0, "{\\\"a\\\":"), &part(ids.1, "1}")], "tool_calls");
        let id = (!ids.0.is_empty()).then_some("a");
        assert_eq!(calls(&body), [call(id, "read", r#"{"a":1}"#, true)]);
    }
}

#[test]
fn b16_content_parts_and_reasoning_are_kept_apart() {
    let body = stream(
        &[
            r#"{"reasoning_content":"think"}"#,
            r#"{"content":[{"type":"text","text":"a"},{"type":"thinking","thinking":[{"type":"text","text":"!"}]}]}"#,
            r#"{"content":["b",{"type":"text","text":"c"}],"reasoning":null}"#,
        ],
        "stop",
    );
    let done = all_cuts(&body).end.unwrap();
    assert_eq!((done.text.as_str(), done.reasoning.as_deref()), ("abc", Some("think!")));
}

#[test]
fn b17_a_whole_json_body_is_an_answer() {
    let body = r#" {"model":"m","choices":[{"message":{"role":"assistant","content":"hi","reasoning":"r","tool_calls":
        [{"id":"a","type":"function","function":{"name":"t","arguments":"{}"}}]},"finish_reason":"tool_calls"}],
        "usage":{"prompt_tokens":1,"completion_tokens":2}} "#;
    let answer = all_cuts(body);
    assert_eq!((answer.text.as_str(), answer.started.len()), ("hi", 1));
    let done = answer.end.unwrap();
    assert_eq!((done.finish, done.calls.len(), done.usage.unwrap().output), (Finish::ToolCalls, 1, Some(2)));
    assert_eq!(class(r#"{"error":{"message":"x","code":"context_length_exceeded"}}"#), ErrorClass::ContextOverflow);
    assert_eq!(class(r#"[{"error":{"code":429,"message":"x"}}]"#), ErrorClass::RateLimit);
    assert_eq!(class(r#"{"choices":[{"mess"#), ErrorClass::Incomplete);
    assert_eq!(class(r#"{"hello":"world"}"#), ErrorClass::BadResponse);
    assert_eq!(class(r#"{"choices":[]}"#), ErrorClass::EmptyResponse);
    assert_eq!(class("<html><title>Hi</title></html>"), ErrorClass::BadResponse);
}

#[test]
fn a_request_without_streaming_has_no_delta_before_the_end() {
    let mut decoder = ChatDecoder::new(context(NameMap::default(), "", false));
    let mut out = Vec::new();
    decoder.push(br#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#, &mut out).unwrap();
    decoder.finish(StreamEnd::Closed, &mut out).unwrap();
    assert!(matches!(out.as_slice(), [Delta::Done(done)] if done.text == "hi"));
}

#[test]
fn w03_a_wire_name_comes_back_as_the_real_one() {
    let tools = [ToolSchema { name: "a b".into(), description: String::new(), parameters: Value::Null }];
    let wire = NameMap::new(&tools).wire("a b").into_owned();
    let body = stream(
        &[&format!(r#"{{"tool_calls":[{{"id":"x","function":{{"name":"{wire}","arguments":"{{}}"}}}}]}}"#)],
        "stop",
    );
    assert_eq!(calls(&body)[0].1, "a b");
}

#[test]
fn w06_the_cap_before_any_text_is_length_and_not_empty() {
    let done = all_cuts(&stream(&[r#"{"content":""}"#], "length")).end.unwrap();
    assert_eq!((done.finish, done.text.as_str()), (Finish::Length, ""));
}

#[test]
fn w10_growing_usage_counts_once() {
    let chunk = |n: u8| {
        format!(
            r#"{{"choices":[{{"delta":{{"content":"x"}}}}],"usage":{{"prompt_tokens":5,"completion_tokens":{n}}}}}"#
        )
    };
    let done = all_cuts(&events(&[&chunk(1), &chunk(2), &end("stop"), "[DONE]"])).end.unwrap();
    assert_eq!((done.usage.unwrap().input_uncached, done.usage.unwrap().output), (Some(5), Some(2)));
}

#[test]
fn finish_words_are_mapped_and_unknown_ones_kept() {
    for (word, expect) in [
        ("STOP", Finish::Stop),
        ("end", Finish::Stop),
        ("function_call", Finish::ToolCalls),
        ("max_tokens", Finish::Length),
        ("content_filter", Finish::ContentFilter),
        ("weird", Finish::Other("weird".into())),
    ] {
        assert_eq!(all_cuts(&stream(&[r#"{"content":"x"}"#], word)).end.unwrap().finish, expect);
    }
    let number = r#"{"choices":[{"delta":{"content":"x"},"finish_reason":1}]}"#;
    assert_eq!(all_cuts(&events(&[number])).end.unwrap().finish, Finish::Other("1".into()));
}

#[test]
fn c7_half_an_emoji_and_broken_utf8_do_not_stop_a_stream() {
    let done = all_cuts(&stream(&[r#"{"content":"a\ud83e"}"#, r#"{"content":"\u0000b"}"#], "stop")).end.unwrap();
    assert_eq!(done.text, "a\u{fffd}\0b");
    let mut bytes = events(&[&delta(r#"{"content":"xQx"}"#), &end("stop")]).into_bytes();
    let at = bytes.iter().position(|byte| *byte == b'Q').unwrap();
    bytes[at] = 0xff;
    assert_eq!(decode(&[&bytes], StreamEnd::Closed).text, "x\u{fffd}x");
}

#[test]
fn calls_of_odd_servers() {
    let object = r#"{"tool_calls":[{"id":"a","function":{"name":"t","arguments":{"x": 1.0}}}]}"#;
    assert_eq!(calls(&stream(&[object], "stop")), [call(Some("a"), "t", r#"{"x": 1.0}"#, true)]);
    let none = r#"{"tool_calls":[{"id":"a","function":{"name":"t"}}]}"#;
    assert_eq!(calls(&stream(&[none], "tool_calls")), [call(Some("a"), "t", "{}", true)]);
    let twice = r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":"{\"n\":1}"}},{"index":1,"id":"a","function":{"name":"t","arguments":"{\"n\":2}"}}]}"#;
    assert_eq!(
        calls(&stream(&[twice], "tool_calls")),
        [call(Some("a"), "t", r#"{"n":1}"#, true), call(None, "t", r#"{"n":2}"#, true)]
    );
    let again = r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":"{\"n\":1}"}}]}"#;
    assert_eq!(calls(&stream(&[again, again], "tool_calls")).len(), 1);
    let legacy = r#"{"function_call":{"name":"t","arguments":"{}"}}"#;
    assert_eq!(calls(&stream(&[legacy], "function_call")), [call(None, "t", "{}", true)]);
}

#[test]
fn i19_reasoning_details_are_kept_for_their_issuer() {
    let body = stream(
        &[
            r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"\u00e9x", "n":1.0}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.text","text":"a","index":1}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.text","text":"b","signature":"s","index":1}],"content":"x"}"#,
        ],
        "stop",
    );
    let sidecar = all_cuts(&body).end.unwrap().sidecar.unwrap();
    assert_eq!(&*sidecar.issuer, "me");
    assert_eq!(
        String::from_utf8_lossy(&sidecar.bytes),
        concat!(
            r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"\u00e9x", "n":1.0},"#,
            r#"{"type":"reasoning.text","text":"ab","index":1,"signature":"s"}]}"#
        )
    );
}

proptest! {
    #[test]
    fn b01_any_split_gives_the_same_deltas(
        parts in proptest::collection::vec((0usize..10, "[a-z🦀ß\"\\\\]{0,5}"), 0..8),
        cuts in proptest::collection::vec(0usize..2000, 0..10),
        tail in 0usize..3,
    ) {
        let chunks: Vec<String> = parts.iter().map(|(kind, text)| {
            let text = serde_json::to_string(text).unwrap();
            match kind {
                0 => delta(&format!(r#"{{"content":{text}}}"#)),
                1 => delta(&format!(r#"{{"reasoning":{text}}}"#)),
                2..=5 => delta(&format!(r#"{{"tool_calls":[{{"index":{},"function":{{"arguments":{text}}}}}]}}"#, kind % 2)),
                6 => delta(&format!(r#"{{"tool_calls":[{{"index":0,"id":{text},"function":{{"name":"t"}}}}]}}"#)),
                7 => USAGE.into(),
                8 => r#"{"error":{"message":"x"}}"#.into(),
                _ => text,
            }
        }).collect();
        let mut body = events(&chunks.iter().map(String::as_str).collect::<Vec<_>>());
        body.push_str([&events(&[&end("stop"), "[DONE]"]), "data: [DO", ""][tail]);
        let bytes = body.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut start = 0;
        for cut in cuts {
            pieces.push(&bytes[start..cut]);
            start = cut;
        }
        pieces.push(&bytes[start..]);
        prop_assert_eq!(decode(&pieces, StreamEnd::Closed), decode(&[bytes], StreamEnd::Closed));
    }
}

proptest! {
    #[test]
    fn i27_no_bytes_can_crash_the_decoder(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        inner in "[\\[\\]{}\":,a-z0-9\\\\ué🦀 ]{0,80}",
    ) {
        let frame = format!("data: {{\"choices\":[{{\"delta\":{{{inner}}}}}],\"error\":{inner}}}\n\n");
        let string = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{inner}\"}}}}]}}\n\n");
        for body in [bytes.as_slice(), inner.as_bytes(), frame.as_bytes(), string.as_bytes()] {
            // Whatever it is, there is exactly one end.
            let answer = decode(&[body], StreamEnd::Closed);
            prop_assert_ne!(answer.end, Err((ErrorClass::BadResponse, "no end".to_owned())));
        }
    }
}

#[test]
fn a_list_where_an_object_belongs_says_nothing_and_costs_only_itself() {
    let list = r#"{"choices":[{"delta":["no text"]}]}"#;
    let choice = r#"{"choices":[[{"content":"no text"}]]}"#;
    let call = r#"{"choices":[{"delta":{"content":"hi","tool_calls":[[0,"c",["t","{}"]]]}}]}"#;
    let body = events(&[list, choice, call, r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#, "[DONE]"]);
    let answer = all_cuts(&body);
    let done = answer.end.unwrap();
    assert_eq!((done.text.as_str(), done.finish), ("hi", Finish::Stop));
}
