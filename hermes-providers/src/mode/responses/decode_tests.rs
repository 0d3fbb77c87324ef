//! Streams and what they mean: B18 to B21, each cut at every byte (B1).

use super::*;
use crate::chat::{Completion, Usage};
use proptest::prelude::*;

fn run(chunks: &[&[u8]], end: StreamEnd) -> (Vec<Delta>, Result<Completion, ErrorClass>) {
    let context = DecodeContext { stream: true, issuer: "me".into(), ..DecodeContext::default() };
    let mut decoder = ResponsesDecoder::new(context);
    let mut out = Vec::new();
    let fed = chunks.iter().try_for_each(|chunk| decoder.push(chunk, &mut out));
    let fed = fed.and_then(|()| decoder.finish(end, &mut out));
    if let Err(error) = fed {
        return (out, Err(error.class));
    }
    match out.pop() {
        Some(Delta::Done(done)) => (out, Ok(*done)),
        other => panic!("no end: {other:?}"),
    }
}

fn body_of(events: &[&str]) -> String {
    // The type stands twice on this wire.
    let kind = |event: &&str| event.split('"').nth(3).unwrap_or("x").to_owned();
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", kind(event))).collect()
}

fn all_cuts(events: &[&str]) -> (Vec<Delta>, Result<Completion, ErrorClass>) {
    let body = body_of(events);
    let whole = run(&[body.as_bytes()], StreamEnd::Closed);
    for cut in 0..body.len() {
        let (head, tail) = body.as_bytes().split_at(cut);
        assert_eq!(run(&[head, tail], StreamEnd::Closed), whole, "cut at {cut}");
    }
    whole
}

/// A stream that ends well.
fn decode(events: &[&str]) -> Completion {
    all_cuts(events).1.unwrap()
}

const CREATED: &str = r#"{"type":"response.created","response":{"status":"in_progress","model":"served","output":[]}}"#;
const TEXT: &str =
    r#"{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"hé"}"#;
const COMPLETED: &str = r#"{"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":64},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":4}}}}"#;

fn added(index: u8, item: &str) -> String {
    format!(r#"{{"type":"response.output_item.added","output_index":{index},"item":{{{item}}}}}"#)
}

fn done(index: u8, item: &str) -> String {
    format!(r#"{{"type":"response.output_item.done","output_index":{index},"item":{{{item}}}}}"#)
}

fn arguments_delta(index: u8, id: &str, delta: &str) -> String {
    let delta = serde_json::to_string(delta).unwrap();
    format!(
        r#"{{"type":"response.function_call_arguments.delta","output_index":{index},"item_id":"{id}","delta":{delta}}}"#
    )
}

fn incomplete(reason: &str) -> String {
    format!(
        r#"{{"type":"response.incomplete","response":{{"status":"incomplete","incomplete_details":{{"reason":{reason}}}}}}}"#
    )
}

fn calls_of(done: &Completion) -> Vec<(Option<&str>, &str, &str, bool)> {
    done.calls.iter().map(|call| (call.id.as_deref(), &*call.name, &*call.arguments, call.whole)).collect()
}

#[test]
fn text_usage_model_and_end() {
    let whole = r#""type":"message","id":"m","content":[{"type":"output_text","text":"hé🦀"}]"#;
    let done = decode(&[CREATED, TEXT, &done(0, whole), COMPLETED]);
    assert_eq!((done.text.as_str(), &done.finish, &done.sidecar), ("hé🦀", &Finish::Stop, &None));
    assert_eq!((done.served_model.as_deref(), done.finish_missing), (Some("served"), false));
    let usage = Usage {
        input_uncached: Some(36),
        cache_read: Some(64),
        cache_write: None,
        output: Some(9),
        reasoning: Some(4),
    };
    assert_eq!(done.usage, Some(usage));
}

#[test]
fn b18_a_call_is_one_call_whatever_its_item_is_called() {
    let events = [
        &added(0, r#""type":"function_call","id":"x","name":"t","arguments":"""#),
        &arguments_delta(0, "y", "{ \"a\""),
        &arguments_delta(0, "w", ":1.50}"),
        &done(0, r#""type":"function_call","id":"z","call_id":"c","name":"t","arguments":"{ \"a\":1.50}""#),
    ];
    let events: Vec<&str> = events.iter().map(|event| event.as_str()).chain([COMPLETED]).collect();
    let done = decode(&events);
    assert_eq!(calls_of(&done), [(Some("c"), "t", "{ \"a\":1.50}", true)]);
    assert_eq!(done.finish, Finish::ToolCalls);
}

#[test]
fn parallel_calls_with_one_place_with_one_id_or_without_ids_stay_apart() {
    let call = |id: &str, name: &str, arguments: &str| {
        let arguments = serde_json::to_string(arguments).unwrap();
        format!(r#""type":"function_call",{id}"name":"{name}","arguments":{arguments}"#)
    };
    let two = |places: [u8; 2], ids: [&str; 2], items: [&str; 2], interleaved: bool| {
        let of = |at: usize, arguments: &str| call(ids[at], ["one", "two"][at], arguments);
        let first = [added(places[0], &of(0, "")), arguments_delta(places[0], items[0], "{\"a\":1}")];
        let second = [added(places[1], &of(1, "")), arguments_delta(places[1], items[1], "{\"b\":2}")];
        let ends = [done(places[0], &of(0, "{\"a\":1}")), done(places[1], &of(1, "{\"b\":2}"))];
        let [first_end, second_end] = ends;
        let mut events: Vec<String> = first.into();
        if interleaved {
            events.extend(second);
            events.extend([first_end, second_end]);
        } else {
            events.push(first_end);
            events.extend(second);
            events.push(second_end);
        }
        events.push(COMPLETED.to_owned());
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        decode(&events)
    };
    let arguments = |done: &Completion| {
        let all = calls_of(done);
        let all: Vec<(String, String, bool)> =
            all.into_iter().map(|(_, name, arguments, whole)| (name.into(), arguments.into(), whole)).collect();
        all
    };
    let expect = [("one".to_owned(), "{\"a\":1}".to_owned(), true), ("two".to_owned(), "{\"b\":2}".to_owned(), true)];
    let own = [r#""id":"i1","call_id":"c1","#, r#""id":"i2","call_id":"c2","#];
    let same = [r#""id":"i","call_id":"c","#; 2];
    for (places, ids, items, interleaved) in [
        ([0, 1], own, ["i1", "i2"], true),
        ([0, 0], own, ["i1", "i2"], true),
        ([0, 0], own, ["p", "q"], false),
        ([0, 1], own, ["p", "q"], true),
        ([0, 1], same, ["i", "i"], false),
        ([0, 1], same, ["q", "r"], true),
        ([0, 1], ["", ""], ["", ""], true),
        ([0, 0], ["", ""], ["", ""], false),
    ] {
        let done = two(places, ids, items, interleaved);
        assert_eq!(arguments(&done), expect, "{places:?} {ids:?} {items:?} {interleaved}");
        let all: Vec<_> = done.calls.iter().filter_map(|call| call.id.clone()).collect();
        // An id that was there before pairs nothing.
        assert_eq!(all.len(), if ids == own { 2 } else { usize::from(ids == same) });
    }
}

#[test]
fn b19_an_empty_list_at_the_end_takes_nothing_away_and_a_full_one_adds_what_is_missing() {
    let message = r#""type":"message","content":[{"type":"output_text","text":"hi"}]"#;
    let call = r#""type":"function_call","call_id":"c","name":"t","arguments":"{}""#;
    let kept = decode(&[&done(0, message), &done(1, call), COMPLETED]);
    assert_eq!((kept.text.as_str(), calls_of(&kept)), ("hi", vec![(Some("c"), "t", "{}", true)]));
    let full = format!(r#"{{"type":"response.completed","response":{{"output":[{{{message}}},{{{call}}}]}}}}"#);
    let delta = r#"{"type":"response.output_text.delta","delta":"h"}"#;
    for events in [vec![full.as_str()], vec![delta, full.as_str()], vec![&done(1, call), full.as_str()]] {
        let late = decode(&events);
        assert_eq!((&late.text, &late.calls), (&kept.text, &kept.calls), "{events:?}");
    }
}

#[test]
fn b20_an_end_that_is_missing_or_is_a_failure() {
    let message = done(0, r#""type":"message","content":[{"type":"output_text","text":"hé"}]"#);
    for events in [vec![CREATED, TEXT], vec![TEXT, &message], vec![TEXT, &message, "[DONE]"]] {
        let (deltas, end) = all_cuts(&events);
        assert_eq!((deltas, end), (vec![Delta::Text("hé".into())], Err(ErrorClass::Incomplete)));
    }
    assert_eq!(all_cuts(&[]).1, Err(ErrorClass::EmptyResponse));
    assert_eq!(run(&[], StreamEnd::Broken).1, Err(ErrorClass::Incomplete));
    let failed = |error: &str| {
        let event = format!(r#"{{"type":"response.failed","response":{{"status":"failed","error":{error}}}}}"#);
        all_cuts(&[TEXT, &event]).1.unwrap_err()
    };
    assert_eq!(failed(r#"{"code":"rate_limit_exceeded","message":"slow down"}"#), ErrorClass::RateLimit);
    assert_eq!(failed(r#"{"code":"server_error","message":"x"}"#), ErrorClass::ServerError);
    assert_eq!(failed("null"), ErrorClass::ServerError);
    let cancelled = r#"{"type":"response.completed","response":{"status":"cancelled"}}"#;
    assert_eq!(all_cuts(&[TEXT, cancelled]).1, Err(ErrorClass::Incomplete));
}

#[test]
fn an_error_waits_for_the_event_that_explains_it() {
    let plain = r#"{"type":"error","code":"insufficient_quota","message":"You exceeded it","param":null}"#;
    let nested = r#"{"type":"error","error":{"type":"x","code":"insufficient_quota","message":"You exceeded it"}}"#;
    let vague = r#"{"type":"error","message":"An error occurred"}"#;
    let failed = r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"x"}}}"#;
    let vague_failure = r#"{"type":"response.failed","response":{"error":{"code":"server_error","message":"x"}}}"#;
    for (events, class) in [
        (vec![plain], ErrorClass::Billing),
        (vec![nested], ErrorClass::Billing),
        (vec![plain, vague_failure], ErrorClass::Billing),
        (vec![vague, failed], ErrorClass::RateLimit),
        (vec![vague], ErrorClass::ServerError),
        (vec![plain, COMPLETED], ErrorClass::Billing),
        (vec![r#"{"error":{"code":"insufficient_quota"}}"#], ErrorClass::Billing),
    ] {
        let (deltas, end) = all_cuts(&[&[TEXT], events.as_slice()].concat());
        assert_eq!((deltas.len(), end), (1, Err(class)), "{events:?}");
    }
    // The reader does not wait for the explanation as long as for an answer.
    let mut decoder = ResponsesDecoder::new(DecodeContext::default());
    let mut out = Vec::new();
    decoder.push(body_of(&[plain]).as_bytes(), &mut out).unwrap();
    assert!(decoder.is_finished() && out.is_empty());
    assert_eq!(decoder.finish(StreamEnd::Broken, &mut out).unwrap_err().class, ErrorClass::Billing);
}

#[test]
fn b21_a_call_whose_arguments_never_came_is_not_whole() {
    let call = added(0, r#""type":"function_call","call_id":"c","name":"t","arguments":"""#);
    assert_eq!(calls_of(&decode(&[&call, COMPLETED])), [(Some("c"), "t", "", false)]);
    // The provider's own word that there are none is another thing.
    let bare = done(0, r#""type":"function_call","call_id":"c","name":"t","arguments":"""#);
    assert_eq!(calls_of(&decode(&[&call, &bare, COMPLETED])), [(Some("c"), "t", "{}", true)]);
    let said =
        r#"{"type":"response.function_call_arguments.done","output_index":0,"item_id":"q","arguments":"{\"a\":1}"}"#;
    assert_eq!(calls_of(&decode(&[&call, said, COMPLETED])), [(Some("c"), "t", "{\"a\":1}", true)]);
    // Nor is one that was cut.
    let cut = done(0, r#""type":"function_call","call_id":"c","name":"t","status":"incomplete","arguments":"{}""#);
    for events in [[&call, &cut], [&call, &bare]] {
        let found = decode(&[events[0], events[1], &incomplete("\"max_output_tokens\"")]);
        assert_eq!((found.calls[0].whole, found.finish), (false, Finish::Length));
    }
    // Arguments may come before the name, but one must come.
    let early = arguments_delta(0, "x", "{}");
    let named = done(0, r#""type":"function_call","id":"x","call_id":"c","name":"t""#);
    assert_eq!(calls_of(&decode(&[&early, &named, COMPLETED])), [(Some("c"), "t", "{}", true)]);
    assert_eq!(all_cuts(&[&early, COMPLETED]).1, Err(ErrorClass::BadResponse));
}

#[test]
fn no_reason_becomes_stop() {
    for (reason, finish) in [
        ("\"max_output_tokens\"", Finish::Length),
        ("\"content_filter\"", Finish::ContentFilter),
        ("\"New_Reason\"", Finish::Other("new_reason".into())),
        ("null", Finish::Other("incomplete".into())),
    ] {
        let done = decode(&[TEXT, &incomplete(reason)]);
        assert_eq!((done.text.as_str(), done.finish), ("hé", finish));
    }
    // What the answer says of itself goes before what the event is called.
    let told = r#"{"type":"response.completed","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#;
    assert_eq!(decode(&[TEXT, told]).finish, Finish::Length);
}

#[test]
fn a_refusal_is_shown_and_is_no_answer() {
    let refusal =
        r#"{"type":"response.refusal.delta","item_id":"m","output_index":0,"content_index":0,"delta":"I will not"}"#;
    let item = done(0, r#""type":"message","id":"m","content":[{"type":"refusal","refusal":"I will not."}]"#);
    for events in [vec![refusal, item.as_str(), COMPLETED], vec![item.as_str(), COMPLETED]] {
        let done = decode(&events);
        assert_eq!((done.text.as_str(), done.finish), ("I will not.", Finish::ContentFilter));
    }
    let both =
        done(0, r#""type":"message","content":[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"b"}]"#);
    assert_eq!(decode(&[&both, COMPLETED]).finish, Finish::Stop);
}

#[test]
fn i19_reasoning_and_phases_are_kept_in_order() {
    let reasoning =
        r#"{"id":"rs","type":"reasoning","summary":[{"type":"summary_text","text":"one"}], "encrypted_content":"E=="}"#;
    let kept = r#"{"type":"reasoning","summary":[{"type":"summary_text","text":"one"}],"encrypted_content":"E=="}"#;
    let summary = |index: u8, text: &str| {
        format!(
            r#"{{"type":"response.reasoning_summary_text.delta","item_id":"rs","output_index":0,"summary_index":{index},"delta":"{text}"}}"#
        )
    };
    let events = [
        added(0, r#""type":"reasoning","id":"rs","encrypted_content":"part""#),
        summary(0, "o"),
        summary(0, "ne"),
        summary(1, "two"),
        format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{reasoning}}}"#),
        added(1, r#""type":"message","id":"m1","phase":"commentary","content":[]"#),
        r#"{"type":"response.output_text.delta","item_id":"m1","output_index":1,"delta":"look"}"#.to_owned(),
        done(
            1,
            r#""type":"message","id":"m1","phase":"commentary","content":[{"type":"output_text","text":"looking"}]"#,
        ),
        done(2, r#""type":"function_call","call_id":"c","name":"t","arguments":"{}""#),
        done(3, r#""type":"message","phase":"final_answer","content":[{"type":"output_text","text":"so"}]"#),
        done(4, r#""type":"message","phase":"final_answer","content":[{"type":"output_text","text":"it is"}]"#),
        // Without its state, reasoning is of no use to a server that stores nothing; nor is what was cut.
        done(5, r#""type":"reasoning","id":"rs_2","summary":[]"#),
        done(6, r#""type":"reasoning","id":"rs_3","status":"incomplete","encrypted_content":"cut""#),
        COMPLETED.to_owned(),
    ];
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let (deltas, end) = all_cuts(&events);
    let end = end.unwrap();
    assert_eq!(end.reasoning.as_deref(), Some("one\n\ntwo\n\nlooking"));
    assert_eq!(end.text, "so\n\nit is");
    let shown: String =
        deltas.iter().filter_map(|d| if let Delta::Text(t) = d { Some(t.as_str()) } else { None }).collect();
    assert_eq!(shown, end.text);
    let message = |text: &str, phase: &str| {
        format!(
            r#"{{"type":"message","role":"assistant","content":[{{"type":"output_text","text":"{text}"}}],"phase":"{phase}"}}"#
        )
    };
    let expect = [
        kept.to_owned(),
        message("looking", "commentary"),
        r#"{"type":"function_call"}"#.to_owned(),
        message("so", "final_answer"),
        message("it is", "final_answer"),
    ];
    let sidecar = end.sidecar.unwrap();
    assert_eq!(
        (&*sidecar.issuer, String::from_utf8(sidecar.bytes.to_vec()).unwrap()),
        ("me", format!("[{}]", expect.join(",")))
    );
}

#[test]
fn the_state_of_reasoning_and_the_order_may_come_with_the_last_event_only() {
    let last = r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"reasoning","id":"r9","summary":[],"encrypted_content":"E"},{"type":"message","id":"m9","content":[{"type":"output_text","text":"hé"}]}]}}"#;
    let open = done(0, r#""type":"reasoning","id":"r1","summary":[{"text":"hm"}]"#);
    for events in [vec![TEXT, last], vec![&open, TEXT, last], vec![last]] {
        let done = decode(&events);
        assert_eq!(done.text, "hé");
        let bytes = done.sidecar.unwrap().bytes;
        assert!(
            bytes.starts_with(br#"[{"type":"reasoning","summary":[],"encrypted_content":"E"},{"type":"message""#),
            "{bytes:?}"
        );
    }
}

#[test]
fn b17_one_document_for_a_stream_is_an_answer_too() {
    let of = |document: &str| {
        let whole = run(&[document.as_bytes()], StreamEnd::Closed).1;
        for cut in 0..document.len() {
            let (head, tail) = document.as_bytes().split_at(cut);
            assert_eq!(run(&[head, tail], StreamEnd::Closed).1, whole, "cut at {cut}");
        }
        whole
    };
    let output = r#""output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]},{"type":"function_call","call_id":"c","name":"t","arguments":{"a":1}}]"#;
    let done =
        of(&format!(r#"{{"object":"response","model":"served","status":"completed","error":null,{output}}}"#)).unwrap();
    assert_eq!((done.text.as_str(), done.finish_missing), ("hi", false));
    assert_eq!(calls_of(&done), [(Some("c"), "t", "{\"a\":1}", true)]);
    assert!(of(&format!("{{{output}}}")).unwrap().finish_missing);
    for (document, class) in [
        (r#"{"status":"failed","output":[],"error":{"code":"rate_limit_exceeded"}}"#, ErrorClass::RateLimit),
        (r#"{"error":{"code":"insufficient_quota"}}"#, ErrorClass::Billing),
        (r#"[{"error":{"code":"insufficient_quota"}}]"#, ErrorClass::Billing),
        (r#"{"status":"in_progress","output":[]}"#, ErrorClass::Incomplete),
        (r#"{"status":"completed","output":["#, ErrorClass::Incomplete),
        (r#"{"choices":[{"message":{"content":"hi"}}]}"#, ErrorClass::BadResponse),
        ("<html>no</html>", ErrorClass::BadResponse),
        ("data: upstream timeout\n\n", ErrorClass::BadResponse),
    ] {
        assert_eq!(of(document), Err(class), "{document}");
    }
}

#[test]
fn i26_an_answer_without_end_is_refused() {
    let mut decoder = ResponsesDecoder::new(DecodeContext::default());
    let mut out = Vec::new();
    let event = body_of(&[&done(0, r#""type":"web_search_call""#)]);
    let refused = (0..5000).find_map(|_| decoder.push(event.as_bytes(), &mut out).err());
    assert_eq!(refused.map(|error| error.class), Some(ErrorClass::Limit));
}

proptest! {
    #[test]
    fn b01_i27_any_events_in_any_split_give_the_same_end_and_no_crash(
        parts in proptest::collection::vec((0usize..10, 0u8..3, "[a-z🦀ß\"{}:1]{0,5}"), 0..12),
        cuts in proptest::collection::vec(0usize..1500, 0..8),
    ) {
        let events: Vec<String> = parts.iter().map(|(kind, index, text)| {
            let quoted = serde_json::to_string(text).unwrap();
            let delta = |what: &str| {
                format!(r#"{{"type":"response.{what}.delta","output_index":{index},"item_id":{quoted},"delta":{quoted}}}"#)
            };
            match kind {
                0 => delta("output_text"),
                1 => delta("refusal"),
                2 => delta("reasoning_summary_text"),
                3 => delta("reasoning_text"),
                4 => added(*index, r#""type":"function_call","name":"t""#),
                5 => arguments_delta(*index, "x", text),
                6 => done(*index, &format!(r#""type":"function_call","name":"t","call_id":{quoted},"arguments":{quoted}"#)),
                7 => done(*index, &format!(r#""type":"reasoning","encrypted_content":{quoted}"#)),
                8 => added(*index, r#""type":"message","phase":"commentary""#),
                _ => done(*index, &format!(r#""type":"message","phase":{quoted},"content":{quoted}"#)),
            }
        }).chain([COMPLETED.to_owned()]).collect();
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let body = body_of(&events);
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
        let whole = run(&[bytes], StreamEnd::Closed);
        prop_assert_eq!(run(&pieces, StreamEnd::Closed), whole.clone());
        let Ok(done) = whole.1 else { return Ok(()) };
        let shown: String =
            whole.0.iter().filter_map(|d| if let Delta::Text(t) = d { Some(t.as_str()) } else { None }).collect();
        prop_assert_eq!(&shown, &done.text);
        if let Some(sidecar) = done.sidecar {
            prop_assert!(serde_json::from_slice::<Vec<serde_json::Value>>(&sidecar.bytes).is_ok(), "{:?}", sidecar.bytes);
        }
    }
}

#[test]
fn i26_a_last_event_of_very_many_items_is_read_in_time() {
    // Items none of which says which one it is: many of them, and one more than there may be.
    let end = |count| {
        let items = vec![r#"{"type":"message","content":[]}"#; count].join(",");
        format!(r#"{{"type":"response.completed","response":{{"status":"completed","output":[{items}]}}}}"#)
    };
    let body = body_of(&[CREATED, TEXT, &end(500)]);
    let done = run(&[body.as_bytes()], StreamEnd::Closed).1.unwrap();
    assert_eq!(done.text, "hé");
    let body = body_of(&[&end(4097)]);
    assert_eq!(run(&[body.as_bytes()], StreamEnd::Closed).1, Err(ErrorClass::Limit));
}
