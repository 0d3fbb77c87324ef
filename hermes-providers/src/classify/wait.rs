//! How long a provider asks to wait.
//!
//! Sources, in this order: `retry-after-ms` (OpenAI, Azure), `retry-after` (RFC 9110: seconds or a date), the
//! `x-ratelimit-reset-*` spans of OpenAI (`6m0s`) and the `anthropic-ratelimit-*-reset` moments of Anthropic (RFC 3339),
//! then fields of the body, `google.rpc.RetryInfo` among them, then words. Seen at
//! `platform.openai.com/docs/guides/rate-limits`, `docs.anthropic.com/en/api/rate-limits` and
//! `cloud.google.com/apis/design/errors`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::Headers;
use super::body::{ErrorBody, cut};
use crate::moment::rfc3339;

/// A longer wait is reported as this one: whoever waits that long should rather do something else.
pub const MAX_RETRY_AFTER_MS: u64 = 600_000;
/// Longest time to a reset that is believed: the quotas of a month.
pub const MAX_RESET_MS: u64 = 31 * 24 * 3600 * 1000;
const _: () = assert!(MAX_RETRY_AFTER_MS < MAX_RESET_MS);
/// A number of seconds from here on is a date (2001-09-09), not a span.
const FIRST_DATE_SECONDS: f64 = 1e9;

/// The wait in milliseconds, at most [`MAX_RESET_MS`], from the most exact source that there is. Zero, negative and
/// unreadable ones are ignored.
pub(super) fn reset_ms(
    status: Option<u16>,
    headers: Headers<'_>,
    body: &ErrorBody,
    words: &str,
    now: SystemTime,
) -> Option<u64> {
    let limited = status.is_none_or(|status| matches!(status, 402 | 408 | 429 | 500..=599));
    let from_headers = || {
        headers("retry-after-ms")
            .and_then(|text| span_ms(text.trim().parse::<f64>().ok()? / 1000.0))
            .or_else(|| headers("retry-after").and_then(|text| seconds_or_date(&text, now)))
            .or_else(|| resets(headers, now).filter(|_| status == Some(429)))
    };
    let found = from_headers().or_else(|| if limited { in_body(body, now).or_else(|| in_words(words)) } else { None });
    found.map(|wait| wait.min(MAX_RESET_MS))
}

/// Seconds to milliseconds; only positive, finite spans.
fn span_ms(seconds: f64) -> Option<u64> {
    if !seconds.is_finite() || seconds <= 0.0 {
        return None;
    }
    // Beyond the cap the exact number does not matter, so the cast cannot overflow.
    Some((seconds.min(1e9) * 1000.0).ceil() as u64)
}

fn seconds_or_date(text: &str, now: SystemTime) -> Option<u64> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return number(seconds, now);
    }
    if let Some(date) = httpdate::parse_http_date(text).ok().or_else(|| rfc3339(text)) {
        return until(date, now);
    }
    duration_ms(text)
}

/// A span, or a date in seconds or milliseconds of the Unix epoch.
fn number(value: f64, now: SystemTime) -> Option<u64> {
    if value >= FIRST_DATE_SECONDS {
        let seconds = if value >= FIRST_DATE_SECONDS * 1000.0 { value / 1000.0 } else { value };
        let date = UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
        return until(date, now);
    }
    span_ms(value)
}

fn until(date: SystemTime, now: SystemTime) -> Option<u64> {
    span_ms(date.duration_since(now).ok()?.as_secs_f64())
}

/// The budget that is used up says when, else the one that takes longest.
fn resets(headers: Headers<'_>, now: SystemTime) -> Option<u64> {
    let openai = ["requests", "tokens"].map(|kind| {
        let of = |what: &str| headers(&format!("x-ratelimit-{what}-{kind}"));
        (of("remaining"), of("reset").and_then(|text| duration_ms(text.trim())))
    });
    let anthropic = ["requests", "tokens", "input-tokens", "output-tokens"].map(|kind| {
        let of = |what: &str| headers(&format!("anthropic-ratelimit-{kind}-{what}"));
        (of("remaining"), of("reset").and_then(|text| until(rfc3339(text.trim())?, now)))
    });
    let budgets = || openai.iter().chain(&anthropic);
    let is_empty = |left: &Option<String>| left.as_deref().is_some_and(|left| left.trim() == "0");
    let used_up = budgets().filter(|(left, _)| is_empty(left)).filter_map(|(_, reset)| *reset).max();
    used_up.or_else(|| budgets().filter_map(|(_, reset)| *reset).max())
}

/// `20ms`, `1s`, `6m0s`, `1h2m`, `7.66s`, `4hr 5min`; a bare number is seconds.
fn duration_ms(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let value: f64 = rest[..end].parse().ok()?;
        rest = rest[end..].trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        seconds += value
            * match &rest[..end] {
                "ms" | "millis" | "milliseconds" => 0.001,
                "" | "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
                "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
                "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
                "d" | "day" | "days" => 86_400.0,
                _ => return None,
            };
        rest = rest[end..].trim_start_matches([' ', ',']);
    }
    span_ms(seconds)
}

fn in_body(body: &ErrorBody, now: SystemTime) -> Option<u64> {
    let value = |value: &Value| match value {
        Value::Number(value) => value.as_f64().and_then(|value| number(value, now)),
        Value::String(text) => seconds_or_date(text, now),
        _ => None,
    };
    let millis = body.field("retry_after_ms").and_then(Value::as_f64).and_then(|ms| span_ms(ms / 1000.0));
    let keys = ["retry_after", "retry_after_seconds", "resets_in_seconds", "reset_in_seconds", "resets_at", "reset_at"];
    let details = || {
        let details = body.field("details")?.as_array()?;
        let info = details.iter().find_map(|detail| detail.get("retryDelay"));
        info.or_else(|| details.iter().find_map(|detail| detail.pointer("/metadata/quotaResetDelay"))).and_then(value)
    };
    millis.or_else(|| keys.into_iter().find_map(|key| body.field(key).and_then(value))).or_else(details)
}

/// `try again in 7.66s`, `retry after 5 seconds`, `resets in 4hr 5min`, `"retrydelay": "12s"`.
fn in_words(words: &str) -> Option<u64> {
    WAIT_BEFORE.iter().find_map(|phrase| {
        let rest = &words[words.find(phrase)? + phrase.len()..];
        let rest = rest.trim_start_matches(['"', ':', ' ', '\\']);
        // The longest beginning that reads as a duration: "4hr 5min" of "4hr 5min, or".
        let stop = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | ' '))).unwrap_or(rest.len());
        let mut text = cut(&rest[..stop], MAX_WORDS_BYTES);
        loop {
            text = text.trim_end_matches(['.', ' ']);
            if let Some(wait) = duration_ms(text) {
                return Some(wait);
            }
            text = &text[..text.rfind(' ')?];
        }
    })
}

/// A span follows one of these (lower case).
const WAIT_BEFORE: &[&str] = &[
    "try again in ",
    "try again after ",
    "retry after ",
    "retry in ",
    "resets in ",
    "reset in ",
    "wait for ",
    "please wait ",
    "quotaresetdelay",
    "retrydelay",
];
/// Most bytes behind such a phrase that are read as a span.
const MAX_WORDS_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(pairs: &[(&str, &str)], body: &str) -> Option<u64> {
        let pairs: Vec<(String, String)> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let headers = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        let body = ErrorBody::parse(body.as_bytes());
        let now = UNIX_EPOCH + Duration::from_secs(1_445_412_480);
        reset_ms(Some(429), &headers, &body, &body.words(), now)
    }

    #[test]
    fn b34_headers_give_the_wait() {
        assert_eq!(wait(&[("retry-after-ms", "250"), ("retry-after", "2")], ""), Some(250));
        assert_eq!(wait(&[("retry-after", "2")], ""), Some(2000));
        assert_eq!(wait(&[("retry-after", "0.5")], ""), Some(500));
        assert_eq!(wait(&[("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT")], ""), Some(30_000));
        assert_eq!(wait(&[("retry-after", "Wed, 21 Oct 2015 07:00:00 GMT")], ""), None);
        assert_eq!(wait(&[("x-ratelimit-reset-tokens", "6m0s")], ""), Some(360_000));
        assert_eq!(wait(&[("x-ratelimit-reset-requests", "20ms")], ""), Some(20));
        let both = [
            ("x-ratelimit-reset-requests", "6m0s"),
            ("x-ratelimit-reset-tokens", "1s"),
            ("x-ratelimit-remaining-tokens", "0"),
        ];
        assert_eq!(wait(&both, ""), Some(1000));
    }

    #[test]
    fn b34_senseless_waits_are_ignored_or_capped() {
        for text in ["-1", "0", "NaN", "inf", "soon", ""] {
            assert_eq!(wait(&[("retry-after", text)], ""), None, "{text}");
            assert_eq!(wait(&[("x-ratelimit-reset-tokens", text)], ""), None, "{text}");
        }
        assert_eq!(wait(&[("retry-after-ms", "-1"), ("retry-after", "3")], ""), Some(3000));
        assert_eq!(wait(&[("retry-after", "864000")], ""), Some(864_000_000));
        assert_eq!(wait(&[("retry-after", "86400000")], ""), Some(MAX_RESET_MS));
        assert_eq!(wait(&[("retry-after", "1e300")], ""), None, "a moment that no clock can say");
    }

    #[test]
    fn b34_anthropic_says_the_moment_of_each_budget() {
        let at = |name: &'static str, text: &'static str| [(name, text)];
        assert_eq!(wait(&at("anthropic-ratelimit-requests-reset", "2015-10-21T07:28:30Z"), ""), Some(30_000));
        assert_eq!(wait(&at("anthropic-ratelimit-tokens-reset", "2015-10-21T09:28:01.5+02:00"), ""), Some(1500));
        assert_eq!(wait(&at("anthropic-ratelimit-tokens-reset", "2015-10-21T07:00:00Z"), ""), None, "it is over");
        for text in ["soon", "2015-10-21", "2015-13-21T07:28:30Z", "2015-10-21T07:28:30", "T:Z", "-1-1-1T1:1:1+1:1"] {
            assert_eq!(wait(&[("anthropic-ratelimit-requests-reset", text)], ""), None, "{text}");
        }
        let budgets = [
            ("anthropic-ratelimit-requests-remaining", "7"),
            ("anthropic-ratelimit-requests-reset", "2015-10-21T07:30:00Z"),
            ("anthropic-ratelimit-input-tokens-remaining", "0"),
            ("anthropic-ratelimit-input-tokens-reset", "2015-10-21T07:28:10Z"),
        ];
        assert_eq!(wait(&budgets, ""), Some(10_000), "the budget that is used up counts");
    }

    #[test]
    fn bodies_and_words_give_the_wait() {
        assert_eq!(wait(&[], r#"{"error":{"retry_after":3}}"#), Some(3000));
        assert_eq!(wait(&[], r#"{"error":{"resets_at":1445412490}}"#), Some(10_000));
        assert_eq!(wait(&[], r#"{"error":{"details":[{"retryDelay":"12s"}]}}"#), Some(12_000));
        assert_eq!(wait(&[], r#"{"error":{"resets_at":"2015-10-21T07:28:30Z"}}"#), Some(30_000));
        let google = r#"[{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED","details":[
            {"@type":"type.googleapis.com/google.rpc.Help","links":[]},
            {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"30s"}]}}]"#;
        assert_eq!(wait(&[], google), Some(30_000));
        let info =
            r#"{"error":{"details":[{"reason":"RATE_LIMIT_EXCEEDED","metadata":{"quotaResetDelay":"1m2.5s"}}]}}"#;
        assert_eq!(wait(&[], info), Some(62_500));
        let openai = "Rate limit reached for gpt-5 in organization o on tokens per min (TPM): Limit 1, Used 1. Please try again in 6m0s.";
        assert_eq!(wait(&[], openai), Some(360_000));
        assert_eq!(wait(&[], "Please try again in 20ms."), Some(20));
        assert_eq!(wait(&[], "Please retry in 12.5s."), Some(12_500));
        assert_eq!(wait(&[], "Please try again in 7.66s. Visit"), Some(7660));
        assert_eq!(wait(&[], "retry after 5 seconds"), Some(5000));
        assert_eq!(wait(&[], "your limit resets in 4min 5s, sorry"), Some(245_000));
        assert_eq!(wait(&[], "try again in a moment"), None);
    }
}
