//! Every reason to stop, blocked prompts, cut and malformed calls, the end of a stream; all of it in any split (B1).

use proptest::prelude::*;

use super::*;
use crate::chat::Completion;

type Decoded = (Vec<Delta>, Result<Completion, ErrorClass>);

fn decode_pieces(pieces: &[&[u8]], end: StreamEnd) -> Decoded {
    let context = DecodeContext { stream: true, issuer: "me".into(), ..DecodeContext::default() };
    let mut decoder = GeminiDecoder::new(context);
    let mut out = Vec::new();
    let fed = pieces.iter().try_for_each(|bytes| decoder.push(bytes, &mut out));
    if let Err(error) = fed.and_then(|()| decoder.finish(end, &mut out)) {
        return (out, Err(error.class));
    }
    match out.pop() {
        Some(Delta::Done(done)) => (out, Ok(*done)),
        other => panic!("no end: {other:?}"),
    }
}

fn decode(body: &str) -> Result<Completion, ErrorClass> {
    let whole = decode_pieces(&[body.as_bytes()], StreamEnd::Closed);
    for cut in 0..body.len() {
        let (a, b) = body.as_bytes().split_at(cut);
        assert_eq!(decode_pieces(&[a, b], StreamEnd::Closed), whole, "cut at {cut}");
    }
    whole.1
}

fn answer(parts: &str, reason: &str) -> String {
    format!("data: {{\"candidates\":[{{\"content\":{{\"parts\":[{parts}]}},\"finishReason\":\"{reason}\"}}]}}\n\n")
}

const TEXT: &str = r#"{"text":"hé"}"#;
const CALL: &str = r#"{"functionCall":{"name":"t","args":{ "a":1.0 }},"thoughtSignature":"S"}"#;

#[test]
fn every_reason_to_stop_has_its_own_meaning_and_vouches_for_calls_only_when_it_is_stop() {
    for (reason, finish, with_call) in [
        ("STOP", Finish::Stop, Finish::ToolCalls),
        ("MAX_TOKENS", Finish::Length, Finish::Length),
        ("SAFETY", Finish::ContentFilter, Finish::ContentFilter),
        ("RECITATION", Finish::ContentFilter, Finish::ContentFilter),
        ("BLOCKLIST", Finish::ContentFilter, Finish::ContentFilter),
        ("PROHIBITED_CONTENT", Finish::ContentFilter, Finish::ContentFilter),
        ("SPII", Finish::ContentFilter, Finish::ContentFilter),
        ("IMAGE_SAFETY", Finish::ContentFilter, Finish::ContentFilter),
        ("MODEL_ARMOR", Finish::ContentFilter, Finish::ContentFilter),
        ("MALFORMED_FUNCTION_CALL", Finish::MalformedCall, Finish::MalformedCall),
        ("UNEXPECTED_TOOL_CALL", Finish::MalformedCall, Finish::MalformedCall),
        (
            "TOO_MANY_TOOL_CALLS",
            Finish::Other("too_many_tool_calls".into()),
            Finish::Other("too_many_tool_calls".into()),
        ),
        ("OTHER", Finish::Other("other".into()), Finish::Other("other".into())),
        ("NEW_WORD", Finish::Other("new_word".into()), Finish::Other("new_word".into())),
    ] {
        let done = decode(&answer(TEXT, reason)).unwrap();
        assert_eq!((done.text.as_str(), done.finish), ("hé", finish), "{reason}");
        // B33: a call is whole only in an answer that is.
        let done = decode(&answer(CALL, reason)).unwrap();
        assert_eq!((done.finish, done.calls[0].whole), (with_call, reason == "STOP"), "{reason}");
    }
    assert_eq!(decode(&answer(TEXT, "MISSING_THOUGHT_SIGNATURE")), Err(ErrorClass::SidecarRefused));
    assert_eq!(decode(&answer(TEXT, "MALFORMED_RESPONSE")), Err(ErrorClass::BadResponse));
}

#[test]
fn b30_a_blocked_prompt_is_refused_content_and_no_empty_answer() {
    let blocked =
        "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"},\"usageMetadata\":{\"promptTokenCount\":4}}\n\n";
    assert_eq!(decode(blocked), Err(ErrorClass::ContentPolicy));
    assert_eq!(
        decode(r#"{"promptFeedback":{"blockReason":"BLOCKLIST"},"candidates":[]}"#),
        Err(ErrorClass::ContentPolicy)
    );
    // Feedback that blocks nothing.
    let fine = "data: {\"promptFeedback\":{\"safetyRatings\":[]}}\n\n";
    assert!(decode(&[fine, &answer(TEXT, "STOP")].concat()).is_ok());
    assert_eq!(decode(fine), Err(ErrorClass::EmptyResponse));
}

#[test]
fn b31_b33_a_malformed_call_is_no_success_and_a_cut_one_is_not_run() {
    let malformed = decode(&answer("", "MALFORMED_FUNCTION_CALL")).unwrap();
    assert_eq!((malformed.finish, malformed.calls.len(), malformed.sidecar), (Finish::MalformedCall, 0, None));
    let cut = decode(&answer(CALL, "MAX_TOKENS")).unwrap();
    assert!(cut.finish == Finish::Length && !cut.calls[0].whole);
    let partial = r#"{"functionCall":{"name":"t","args":{},"willContinue":true}}"#;
    assert!(!decode(&answer(partial, "STOP")).unwrap().calls[0].whole);
    assert_eq!(decode(&answer(r#"{"functionCall":{"args":{}}}"#, "STOP")), Err(ErrorClass::BadResponse));
}

#[test]
fn b32_i19_parts_are_kept_with_their_bytes_and_only_unsigned_text_is_joined() {
    let stream = [
        answer(r#"{"text":"I th","thought":true}"#, ""),
        answer(r#"{"text":"ink","thought":true}"#, ""),
        answer(r#"{"text":"Hel"}"#, ""),
        answer(r#"{"text":"lo"}"#, ""),
        answer(r#"{"text":"","thoughtSignature":"T"}"#, ""),
        answer(&[CALL, r#"{"functionCall":{"id":"i","name":"u"}}"#].join(","), ""),
        answer(r#"{"executableCode":{"language":"PYTHON","code":"1"}}"#, "STOP"),
    ];
    let done = decode(&stream.concat()).unwrap();
    assert_eq!((done.text.as_str(), done.reasoning.as_deref()), ("Hello", Some("I think")));
    let calls: Vec<_> =
        done.calls.iter().map(|call| (call.id.as_deref(), call.arguments.as_str(), call.whole)).collect();
    assert_eq!(calls, [(None, "{ \"a\":1.0 }", true), (Some("i"), "{}", true)]);
    let kept = [
        r#"{"text":"I think","thought":true}"#,
        r#"{"text":"Hello"}"#,
        r#"{"text":"","thoughtSignature":"T"}"#,
        CALL,
        r#"{"functionCall":{"id":"i","name":"u"}}"#,
        r#"{"executableCode":{"language":"PYTHON","code":"1"}}"#,
    ];
    assert_eq!(done.sidecar.unwrap().bytes, format!("[{}]", kept.join(",")));
    assert_eq!(decode(&answer(TEXT, "STOP")).unwrap().sidecar, None, "text alone needs none");
}

#[test]
fn errors_inside_a_200_are_classed_like_answers() {
    let limited = "data: {\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\",\"message\":\"slow down\"}}\n\n";
    assert_eq!(decode(&[&answer(TEXT, ""), limited].concat()), Err(ErrorClass::RateLimit));
    let list = r#"[{"error":{"code":503,"status":"UNAVAILABLE","message":"The model is overloaded."}}]"#;
    assert_eq!(decode(list), Err(ErrorClass::Overloaded));
    assert_eq!(decode("data: upstream timeout\n\n"), Err(ErrorClass::BadResponse));
    assert_eq!(decode("<html>no</html>"), Err(ErrorClass::BadResponse));
    assert_eq!(decode(r#"{"hello":1}"#), Err(ErrorClass::BadResponse));
}

#[test]
fn a_stream_without_its_reason_is_incomplete_and_nothing_at_all_is_empty() {
    assert_eq!(decode(&answer(TEXT, "")), Err(ErrorClass::Incomplete));
    assert_eq!(decode(""), Err(ErrorClass::EmptyResponse));
    let body = answer(TEXT, "STOP");
    let cut = &body.as_bytes()[..body.len() - 9];
    assert_eq!(decode_pieces(&[cut], StreamEnd::Closed).1, Err(ErrorClass::Incomplete));
    assert_eq!(decode_pieces(&[cut], StreamEnd::Broken).1, Err(ErrorClass::Incomplete));
    // Only the blank line is missing.
    assert!(decode(body.trim_end()).is_ok());
}

#[test]
fn b02_b17_other_frames_whole_documents_and_lists_mean_the_same() {
    let whole = decode(&answer(TEXT, "STOP")).unwrap();
    let json = answer(TEXT, "STOP")["data: ".len()..].trim_end().to_owned();
    for body in [
        format!("data:{json}\r\n\r\n"),
        format!("\u{feff}data: {json}\n\n"),
        format!(": comment\n\ndata:\n\ndata: {json}\n\ndata: [DONE]\n\n"),
        json.clone(),
        format!("[{json}]"),
        format!("[{},\n{json}\n]", r#"{"usageMetadata":{}}"#),
    ] {
        assert_eq!(decode(&body), Ok(whole.clone()), "{body}");
    }
}

#[test]
fn every_chunk_may_report_usage_and_the_model_that_answered() {
    let stream = [
        "data: {\"modelVersion\":\"g-1\",\"usageMetadata\":{\"promptTokenCount\":9,\"cachedContentTokenCount\":4}}\n\n",
        &answer(TEXT, "STOP"),
        "data: {\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":2,\"thoughtsTokenCount\":3}}\n\n",
    ];
    let done = decode(&stream.concat()).unwrap();
    let usage = done.usage.unwrap();
    assert_eq!(
        (usage.input_uncached, usage.cache_read, usage.output, usage.reasoning),
        (Some(5), Some(4), Some(5), Some(3))
    );
    assert_eq!(done.served_model.as_deref(), Some("g-1"));
}

proptest! {
    #[test]
    fn b01_i27_any_parts_in_any_split_give_the_same_end_and_no_crash(
        parts in proptest::collection::vec((0usize..8, "[a-z🦀ß\"{}:1]{0,5}"), 0..10),
        cuts in proptest::collection::vec(0usize..1500, 0..8),
    ) {
        let chunks: Vec<String> = parts.iter().map(|(kind, text)| {
            let text = serde_json::to_string(text).unwrap();
            match kind {
                0 => answer(&format!(r#"{{"text":{text}}}"#), ""),
                1 => answer(&format!(r#"{{"text":{text},"thought":true}}"#), ""),
                2 => answer(&format!(r#"{{"text":{text},"thoughtSignature":{text}}}"#), ""),
                3 => answer(&format!(r#"{{"functionCall":{{"name":"t","args":{{"a":{text}}}}},"thoughtSignature":"S"}}"#), ""),
                4 => answer(&format!(r#"{{"new":{text}}}"#), ""),
                5 => format!("data: {{\"usageMetadata\":{{\"promptTokenCount\":{}}}}}\n\n", text.len()),
                6 => ": ping\n\n".to_owned(),
                _ => answer(&format!(r#"{{"functionCall":{{"id":{text},"name":"u"}}}}"#), ""),
            }
        }).collect();
        let body = [chunks.concat(), answer("", "STOP")].concat();
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
        let whole = decode_pieces(&[bytes], StreamEnd::Closed);
        prop_assert_eq!(decode_pieces(&pieces, StreamEnd::Closed), whole.clone());
        let done = whole.1.unwrap();
        if let Some(sidecar) = done.sidecar {
            prop_assert!(serde_json::from_slice::<Vec<serde_json::Value>>(&sidecar.bytes).is_ok(), "{:?}", sidecar.bytes);
        }
    }
}

#[test]
fn a_list_where_an_object_belongs_says_nothing_and_costs_only_itself() {
    let list = r#"{"candidates":[{"content":[[{"text":"no text"}]]}]}"#;
    let candidate = r#"{"candidates":[[{"parts":[{"text":"no text"}]}]]}"#;
    let body = format!("data: {list}\n\ndata: {candidate}\n\n{}", answer(TEXT, "STOP"));
    let done = decode(&body).unwrap();
    assert_eq!((done.text.as_str(), done.finish), ("hé", Finish::Stop));
}
