//! The table of answers and their classes.

use super::*;
use crate::error::ErrorClass::*;

fn error(status: Option<u16>, body: &str, aggregator: bool) -> ProviderError {
    classify(&Failure {
        status,
        headers: &|_| None,
        body: body.as_bytes(),
        aggregator,
        now: SystemTime::UNIX_EPOCH,
        route: "test/m",
        secrets: &["the-very-key"],
    })
}

#[test]
fn answers_have_the_class_that_says_what_to_do() {
    let table: &[(u16, &str, ErrorClass)] = &[
        (401, "", Auth),
        (403, r#"{"error":{"message":"no"}}"#, Auth),
        (403, "<html><script src=/cdn-cgi/challenge-platform/x></script></html>", Blocked),
        (403, r#"{"error":{"message":"Key limit exceeded"}}"#, Billing),
        (403, r#"{"error":{"code":"upstream_unavailable","message":"x"}}"#, Overloaded),
        (402, r#"{"error":{"message":"Insufficient credits"}}"#, Billing),
        (402, r#"{"error":{"message":"usage limit reached, try again in 5 minutes"}}"#, RateLimit),
        (429, r#"{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}"#, Billing),
        (
            429,
            r#"{"error":{"type":"rate_limit_error","code":"rate_limit_exceeded","message":"Rate limit"}}"#,
            RateLimit,
        ),
        (429, r#"{"error":{"message":"The service is overloaded"}}"#, Overloaded),
        (429, "", RateLimit),
        (404, r#"{"error":{"code":"model_not_found","message":"The model `x` does not exist"}}"#, ModelNotFound),
        (404, r#"{"error":{"message":"model \"x\" not found, try pulling it first"}}"#, ModelNotFound),
        (404, r#"{"error":{"message":"No endpoints found matching your data policy"}}"#, Blocked),
        (404, "page not found", Configuration),
        (408, "", Timeout),
        (413, r#"{"error":{"code":"rate_limit_exceeded","message":"Request too large for model"}}"#, PayloadTooLarge),
        (400, r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#, ContextOverflow),
        (
            400,
            r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000"}}"#,
            OutputCap,
        ),
        (
            400,
            r#"{"error":{"type":"exceed_context_size_error","message":"x","n_ctx":8192,"n_prompt_tokens":9000}}"#,
            ContextOverflow,
        ),
        (400, r#"{"error":{"code":"content_filter","message":"x"}}"#, ContentPolicy),
        (400, r#"{"error":{"message":"unrecognized request argument: prompt_cache_key"}}"#, BadRequest),
        (
            400,
            r#"{"error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `signature` in `thinking` block"}}"#,
            SidecarRefused,
        ),
        (
            400,
            r#"[{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"Thought signature is not valid"}}]"#,
            SidecarRefused,
        ),
        (400, r#"{"error":{"code":"invalid_encrypted_content","message":"x"}}"#, SidecarRefused),
        (400, "", BadRequest),
        (400, r#"{"error":{"message":"Invalid value for max_tokens"}}"#, BadRequest),
        (400, r#"{"error":{"message":"API key not valid. Please pass a valid API key."}}"#, Auth),
        (422, r#"{"detail":[{"msg":"field required"}]}"#, BadRequest),
        (500, "", ServerError),
        (500, r#"{"error":{"message":"CUDA out of memory"}}"#, Overloaded),
        (502, "<html><title>Bad gateway</title></html>", ServerError),
        (503, "", Overloaded),
        (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Overloaded),
        (418, "", BadRequest),
        (520, "", ServerError),
    ];
    for (status, body, class) in table {
        assert_eq!(error(Some(*status), body, false).class, *class, "{status} {body}");
    }
}

#[test]
fn b35_an_aggregators_upstream_limit_is_not_about_our_key() {
    let body = r#"{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"x is rate-limited","provider_name":"P"}}}"#;
    assert_eq!(error(Some(429), body, true).class, UpstreamRateLimit);
    assert_eq!(error(Some(429), body, false).class, RateLimit);
    assert_eq!(
        error(Some(429), r#"{"error":{"message":"Rate limit exceeded: free-models-per-day"}}"#, true).class,
        RateLimit
    );
}

#[test]
fn b36_what_one_can_afford_is_an_output_cap() {
    let body = r#"{"error":{"message":"This request requires more credits. You requested up to 8192 tokens, but can only afford 1200"}}"#;
    let error = error(Some(402), body, true);
    assert_eq!((error.class, error.output_limit), (OutputCap, Some(1200)));
}

#[test]
fn b37_numbers_come_with_the_error() {
    let body = r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000"}}"#;
    let cap = error(Some(400), body, false);
    assert_eq!((cap.context_limit, cap.output_limit), (Some(200_000), Some(5000)));
    let body = r#"{"error":{"message":"request (9000 tokens) exceeds the available context size (8192 tokens)"}}"#;
    let overflow = error(Some(400), body, false);
    assert_eq!((overflow.class, overflow.context_limit, overflow.output_limit), (ContextOverflow, Some(8192), None));
}

#[test]
fn b39_a_firewall_page_is_not_shown_and_not_the_keys_fault() {
    let error =
        error(Some(403), "<!DOCTYPE html><html><title>Just a moment...</title>cdn-cgi/challenge-platform", false);
    assert_eq!(error.class, Blocked);
    assert!(!error.message.contains('<') && error.message.contains("Just a moment"), "{}", error.message);
}

#[test]
fn b40_a_plain_400_is_no_overflow() {
    for body in ["", "{}", r#"{"error":{"message":"Bad request"}}"#, r#"{"error":"limit"}"#] {
        assert_eq!(error(Some(400), body, false).class, BadRequest, "{body}");
    }
}

#[test]
fn frames_are_classed_by_the_status_inside() {
    let frame = r#"{"error":{"code":429,"message":"Rate limit exceeded"},"choices":[{"finish_reason":"error"}]}"#;
    assert_eq!(error(None, frame, false).class, RateLimit);
    assert_eq!(error(None, r#"{"object":"error","message":"bad","code":400}"#, false).class, BadRequest);
    assert_eq!(error(None, r#"{"error":"the model is overloaded"}"#, false).class, Overloaded);
    assert_eq!(error(None, r#"{"error":{"message":"boom"}}"#, false).class, ServerError);
}

#[test]
fn i24_no_key_is_in_an_error() {
    let error = error(Some(401), r#"{"error":{"message":"Incorrect API key the-very-key or sk-abc123def456"}}"#, false);
    assert!(!format!("{error:?} {error}").contains("the-very-key"));
    assert!(!error.message.contains("sk-abc"), "{}", error.message);
    assert!(error.message.contains("Check the API key"), "{}", error.message);
}

proptest::proptest! {
    #[test]
    fn i27_no_body_can_crash_the_classifier(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        words in "(context length|try again in|sk-|bearer|[0-9]{1,25}|tokens|>|\\+| |,|[.]|é|🦀|\"|\\{|[a-z]{1,3}){0,30}",
        status in 300u16..600,
    ) {
        let json = serde_json::json!({"error": {"message": words, "code": status}}).to_string();
        let header = |_: &str| Some(words.clone());
        for body in [bytes.as_slice(), words.as_bytes(), json.as_bytes()] {
            for status in [None, Some(status)] {
                let error = classify(&Failure {
                    status,
                    headers: &header,
                    body,
                    aggregator: true,
                    now: SystemTime::UNIX_EPOCH,
                    route: "r",
                    secrets: &["x"],
                });
                proptest::prop_assert!(error.message.len() < MAX_MESSAGE_BYTES + 300);
                proptest::prop_assert!(error.retry_after_ms.is_none_or(|wait| wait <= MAX_RETRY_AFTER_MS));
            }
        }
    }
}
