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
        (429, r#"{"error":{"message":"You exceeded your current quota, please check your plan"}}"#, Billing),
        (
            429,
            r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota, please check your plan","details":[{"retryDelay":"12s"}]}}]"#,
            RateLimit,
        ),
        (429, r#"{"error":{"message":"The service is overloaded"}}"#, Overloaded),
        (429, "", RateLimit),
        (404, r#"{"error":{"code":"model_not_found","message":"The model `x` does not exist"}}"#, ModelNotFound),
        (404, r#"{"error":{"message":"model \"x\" not found, try pulling it first"}}"#, ModelNotFound),
        (404, r#"{"error":{"message":"No endpoints found matching your data policy"}}"#, Blocked),
        (
            404,
            r#"{"error":{"code":404,"message":"models/x is not found for API version v1beta","status":"NOT_FOUND"}}"#,
            ModelNotFound,
        ),
        (
            404,
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-x does not exist"}}"#,
            ModelNotFound,
        ),
        (404, "page not found", Configuration),
        (409, "", ServerError),
        (408, "", Timeout),
        (407, "<html>who are you?</html>", Configuration),
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
        (400, r#"{"error":{"message":"Your input exceeds the context window of this model"}}"#, ContextOverflow),
        (400, r#"{"error":{"message":"Input is too long for requested model."}}"#, ContextOverflow),
        (
            400,
            r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"code\":\"context_length_exceeded\"}}"}}}"#,
            ContextOverflow,
        ),
        (400, r#"{"error":{"message":"max_tokens=300000 cannot be greater than max_model_len=262144"}}"#, OutputCap),
        (400, r#"{"error":{"message":"unknown parameter: context_window"}}"#, BadRequest),
        (400, r#"{"error":{"message":"the model `x` does not support tools"}}"#, BadRequest),
        (
            400,
            r#"{"error":{"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}"#,
            Blocked,
        ),
        (403, r#"{"error":{"code":"unsupported_country_region_territory","message":"x"}}"#, Blocked),
        (403, r#"{"__type":"com.amazon.coral#AccessDeniedException","Message":"x"}"#, Auth),
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
        (500, r#"{"error":{"type":"invalid_request_error","message":"x"}}"#, BadRequest),
        (500, r#"{"error":{"type":"server_error","message":"the context length is exceeded"}}"#, ContextOverflow),
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
    let nothing = r#"{"error":{"message":"You requested up to 8192 tokens, but can only afford 12"}}"#;
    assert_eq!(self::error(Some(402), nothing, true).class, Billing);
    assert_eq!(self::error(Some(402), "", true).class, Billing);
}

#[test]
fn b37_numbers_come_with_the_error() {
    let body = r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000"}}"#;
    let cap = error(Some(400), body, false);
    assert_eq!((cap.context_limit, cap.output_limit), (Some(200_000), Some(5000)));
    let body = r#"{"error":{"message":"request (9000 tokens) exceeds the available context size (8192 tokens)"}}"#;
    let overflow = error(Some(400), body, false);
    assert_eq!((overflow.class, overflow.context_limit, overflow.output_limit), (ContextOverflow, Some(8192), None));
    assert_eq!((overflow.input_tokens, cap.input_tokens), (Some(9000), Some(195_000)));
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
    for body in [
        "",
        "{}",
        r#"{"error":{"message":"Bad request"}}"#,
        r#"{"error":"limit"}"#,
        r#"{"error":{"message":"max_tokens must be positive"}}"#,
        r#"{"error":{"message":"token limit of the output must be a number"}}"#,
        r#"{"error":{"message":"cannot set the context size here"}}"#,
    ] {
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

/// Inside a 200 there is no status that would say it; an unknown code is taken for the provider's own failure.
#[test]
fn codes_of_a_failed_response_that_no_second_attempt_helps_are_no_failure_of_the_server() {
    for (code, class) in [
        ("bio_policy", ContentPolicy),
        ("misalignment_policy_violation", ContentPolicy),
        ("image_content_policy_violation", ContentPolicy),
        ("invalid_image_format", BadRequest),
        ("image_too_large", BadRequest),
        ("failed_to_download_image", BadRequest),
        ("server_error", ServerError),
        ("vector_store_timeout", ServerError),
    ] {
        let body = format!(r#"{{"error":{{"code":"{code}","message":"no"}}}}"#);
        assert_eq!(error(None, &body, false).class, class, "{code}");
    }
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
                proptest::prop_assert!(error.reset_ms.is_none_or(|wait| wait <= MAX_RESET_MS));
            }
        }
    }
}

#[test]
fn b34_a_long_reset_is_capped_for_who_waits_and_whole_for_who_puts_a_key_aside() {
    let body = r#"{"error":{"type":"usage_limit_reached","message":"x","resets_in_seconds":18000}}"#;
    let error = error(Some(429), body, false);
    assert_eq!((error.retry_after_ms, error.reset_ms), (Some(MAX_RETRY_AFTER_MS), Some(18_000_000)));
}

#[test]
fn b41_a_refused_field_is_named_with_the_error() {
    let body = r#"{"error":{"message":"unrecognized request argument: prompt_cache_key"}}"#;
    let error = error(Some(400), body, false);
    let remedy = crate::Remedy::DropField("prompt_cache_key".into());
    assert_eq!((error.class, error.remedy.as_deref()), (BadRequest, Some(&remedy)));
}

#[test]
fn amazon_names_an_error_in_a_header() {
    let header = |name: &str| (name == "x-amzn-errortype").then(|| "ThrottlingException:http://x/".to_owned());
    let failure = Failure {
        status: Some(400),
        headers: &header,
        body: br#"{"message":"Too many requests"}"#,
        aggregator: false,
        now: SystemTime::UNIX_EPOCH,
        route: "",
        secrets: &[],
    };
    assert_eq!(classify(&failure).class, RateLimit);
}
