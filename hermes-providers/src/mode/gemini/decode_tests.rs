//! Blocked prompts, calls that were cut, and the end of a stream.

use super::*;

fn decode(body: &str) -> Result<crate::chat::Completion, ErrorClass> {
    let mut whole = None;
    for size in [body.len(), 1, 7] {
        let mut decoder = GeminiDecoder::new(DecodeContext { issuer: "me".into(), ..DecodeContext::default() });
        let mut out = Vec::new();
        let fed = body.as_bytes().chunks(size).try_for_each(|bytes| decoder.push(bytes, &mut out));
        let end = fed.and_then(|()| decoder.finish(StreamEnd::Closed, &mut out)).map_err(|error| error.class);
        let end = end.map(|()| match out.pop() {
            Some(Delta::Done(done)) => *done,
            other => panic!("{other:?}"),
        });
        assert_eq!(whole.get_or_insert_with(|| end.clone()), &end, "pieces of {size}");
    }
    whole.unwrap()
}

fn answer(parts: &str, reason: &str) -> String {
    format!("data: {{\"candidates\":[{{\"content\":{{\"parts\":[{parts}]}},\"finishReason\":\"{reason}\"}}]}}\n\n")
}

#[test]
fn b30_b31_b33_and_an_end_without_a_reason() {
    let blocked = "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n";
    assert_eq!(decode(blocked).unwrap_err(), ErrorClass::ContentPolicy);
    assert_eq!(decode(&answer("", "MALFORMED_FUNCTION_CALL")).unwrap().finish, Finish::MalformedCall);
    let call = r#"{"functionCall":{"name":"t","args":{ "a":1.0 }},"thoughtSignature":"S"}"#;
    let done = decode(&answer(call, "STOP")).unwrap();
    assert_eq!((done.calls[0].arguments.as_str(), done.calls[0].whole), ("{ \"a\":1.0 }", true));
    assert_eq!(done.sidecar.unwrap().bytes, format!("[{call}]"));
    let cut = decode(&answer(call, "MAX_TOKENS")).unwrap();
    assert!(cut.finish == Finish::Length && !cut.calls[0].whole);
    assert_eq!(decode(&answer("{\"text\":\"a\"}", "")).unwrap_err(), ErrorClass::Incomplete);
}
