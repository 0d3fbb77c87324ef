//! Streams and what they mean: B23, B24, B27, each cut at every byte (B1).

use super::*;
use crate::chat::Completion;
use proptest::prelude::*;

fn decode(chunks: &[&[u8]]) -> (Vec<Delta>, Result<Completion, ErrorClass>) {
    let context = DecodeContext { stream: true, issuer: "me".into(), ..DecodeContext::default() };
    let mut decoder = MessagesDecoder::new(context);
    let mut out = Vec::new();
    let fed = chunks.iter().try_for_each(|chunk| decoder.push(chunk, &mut out));
    let fed = fed.and_then(|()| decoder.finish(StreamEnd::Closed, &mut out));
    if let Err(error) = fed {
        return (out, Err(error.class));
    }
    match out.pop() {
        Some(Delta::Done(done)) => (out, Ok(*done)),
        other => panic!("no end: {other:?}"),
    }
}

fn all_cuts(events: &[&str]) -> Result<Completion, ErrorClass> {
    let body: String = events.iter().map(|event| format!("event: x\ndata: {event}\n\n")).collect();
    let whole = decode(&[body.as_bytes()]);
    for cut in 0..body.len() {
        assert_eq!(decode(&[&body.as_bytes()[..cut], &body.as_bytes()[cut..]]), whole, "cut at {cut}");
    }
    whole.1
}

const START: &str =
    r#"{"type":"message_start","message":{"model":"served","usage":{"input_tokens":9,"output_tokens":1}}}"#;
const TEXT: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
const MORE: &str = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hé"}}"#;
const PING: &str = r#"{"type":"ping"}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn end(reason: &str) -> String {
    format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}},"usage":{{"output_tokens":12}}}}"#)
}

#[test]
fn b24_b27_every_reason_to_stop_has_its_own_meaning() {
    for (reason, finish) in [
        ("end_turn", Finish::Stop),
        ("max_tokens", Finish::Length),
        ("model_context_window_exceeded", Finish::Length),
        ("refusal", Finish::ContentFilter),
        ("pause_turn", Finish::Pause),
        ("compaction", Finish::Pause),
        ("new_word", Finish::Other("new_word".into())),
    ] {
        let done = all_cuts(&[START, PING, TEXT, MORE, &end(reason), STOP]).unwrap();
        assert_eq!((done.text.as_str(), done.finish), ("hé", finish));
        let usage = done.usage.unwrap();
        assert_eq!((usage.input_uncached, usage.output, usage.cache_read), (Some(9), Some(12), None));
        assert_eq!((done.served_model.as_deref(), done.sidecar), (Some("served"), None));
    }
}

#[test]
fn b23_an_error_after_the_start_is_classed_and_a_cut_stream_is_incomplete() {
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    assert_eq!(all_cuts(&[START, error]), Err(ErrorClass::Overloaded));
    assert_eq!(all_cuts(&[START, TEXT, MORE, &end("end_turn")]), Err(ErrorClass::Incomplete));
    assert_eq!(all_cuts(&[]), Err(ErrorClass::EmptyResponse));
}

#[test]
fn b25_thinking_and_calls_are_kept_in_order() {
    let events = [
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"S"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"t","input":{}}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{ \"a\""}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":":1}"}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        &end("tool_use"),
        STOP,
    ];
    let done = all_cuts(&events).unwrap();
    assert_eq!((done.reasoning.as_deref(), done.finish), (Some("hm"), Finish::ToolCalls));
    assert!(done.calls[0].whole && done.calls[0].arguments == "{ \"a\":1}");
    let kept = r#"[{"type":"thinking","thinking":"hm","signature":"S"},{"type":"tool_use","id":"a","name":"t","input":{ "a":1}}]"#;
    assert_eq!(done.sidecar.unwrap().bytes, kept);
}

#[test]
fn a_call_that_was_cut_before_its_arguments_is_not_whole() {
    let call = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"t","input":{}}}"#;
    let stop = r#"{"type":"content_block_stop","index":0}"#;
    assert!(!all_cuts(&[START, call, stop, &end("max_tokens"), STOP]).unwrap().calls[0].whole);
    assert_eq!(all_cuts(&[START, call, stop, &end("tool_use"), STOP]).unwrap().calls[0].arguments, "{}");
}

proptest! {
    #[test]
    fn b01_i27_any_events_in_any_split_give_the_same_end_and_no_crash(
        parts in proptest::collection::vec((0usize..8, 0u8..3, "[a-z🦀ß\"{}:1]{0,5}"), 0..10),
        cuts in proptest::collection::vec(0usize..1500, 0..8),
    ) {
        let mut events = vec![START.to_owned()];
        events.extend(parts.iter().map(|(kind, index, text)| {
            let text = serde_json::to_string(text).unwrap();
            let delta = |inner: String| format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{{inner}}}}}"#);
            let start = |block: String| format!(r#"{{"type":"content_block_start","index":{index},"content_block":{{{block}}}}}"#);
            match kind {
                0 => delta(format!(r#""type":"text_delta","text":{text}"#)),
                1 => delta(format!(r#""type":"thinking_delta","thinking":{text}"#)),
                2 => delta(format!(r#""type":"input_json_delta","partial_json":{text}"#)),
                3 => delta(format!(r#""type":"signature_delta","signature":{text}"#)),
                4 => start(r#""type":"tool_use","id":"a","name":"t","input":{}"#.to_owned()),
                5 => start(r#""type":"server_tool_use","id":"b","name":"s","input":{}"#.to_owned()),
                6 => format!(r#"{{"type":"content_block_stop","index":{index}}}"#),
                _ => PING.to_owned(),
            }
        }));
        events.extend([end("end_turn"), STOP.to_owned()]);
        let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
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
        let whole = decode(&[bytes]);
        prop_assert_eq!(decode(&pieces), whole.clone());
        let done = whole.1.unwrap();
        if let Some(sidecar) = done.sidecar {
            prop_assert!(serde_json::from_slice::<Vec<serde_json::Value>>(&sidecar.bytes).is_ok(), "{:?}", sidecar.bytes);
        }
    }
}

#[test]
fn i26_a_block_of_very_many_members_is_refused_before_it_costs_time() {
    // Each member is looked for among all before it: a frame of the largest size would take minutes.
    let members: String = (0..100_000).map(|nth| format!(",\"m{nth}\":1")).collect();
    let index = r#""index":0"#;
    let start = format!(r#"{{"type":"content_block_start",{index},"content_block":{{"type":"new"{members}}}}}"#);
    let delta = format!(r#"{{"type":"content_block_delta",{index},"delta":{{"type":"new"{members}}}}}"#);
    for events in [vec![START, &start], vec![START, TEXT, &delta]] {
        let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        assert_eq!(decode(&[body.as_bytes()]).1, Err(ErrorClass::Limit));
    }
}
