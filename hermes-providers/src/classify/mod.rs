//! What an error answer means: pure, driven by tables.
//!
//! A structured code decides first, then the status, and words only within what the status allows, because providers
//! use the same words for different things. The result is cleaned of keys and cut.

mod body;
mod limits;
mod redact;
mod tables;
mod wait;

use std::time::SystemTime;

pub(crate) use body::ErrorBody;
pub use redact::{MAX_MESSAGE_BYTES, redact};
pub(crate) use tables::advice;
pub use wait::MAX_RETRY_AFTER_MS;

use crate::error::{ErrorClass, ProviderError};

/// Looks a response header up by its lower-case name.
pub type Headers<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What is known of a failed request.
pub struct Failure<'a> {
    /// HTTP status; `None` for an error inside a stream.
    pub status: Option<u16>,
    /// Response headers.
    pub headers: Headers<'a>,
    /// The body or the frame.
    pub body: &'a [u8],
    /// The provider passes requests on to others.
    pub aggregator: bool,
    /// The moment of the answer, for dates in it.
    pub now: SystemTime,
    /// Provider and model, for the message.
    pub route: &'a str,
    /// Exact texts that must not show: the key.
    pub secrets: &'a [&'a str],
}

/// Classifies a failure.
#[must_use]
pub fn classify(failure: &Failure<'_>) -> ProviderError {
    let body = ErrorBody::parse(failure.body);
    let status = failure.status.filter(|status| *status >= 400).or(body.status);
    let words = body.words();
    let limits = limits::read(&words, &body);
    let class = class_of(status, &body, &words, failure.aggregator, &limits);
    let mut error = ProviderError::new(class, message(class, status, &body, failure));
    error.status = failure.status.or(status);
    error.code = body.code.as_deref().map(|code| redact(code, failure.secrets));
    error.retry_after_ms = wait::retry_after_ms(status, failure.headers, &body, &words, failure.now);
    if matches!(class, ErrorClass::ContextOverflow | ErrorClass::OutputCap) {
        error.context_limit = limits.context;
    }
    if class == ErrorClass::OutputCap {
        error.output_limit = limits.output;
    }
    failure.route.clone_into(&mut error.route);
    error
}

fn class_of(
    status: Option<u16>,
    body: &ErrorBody,
    words: &str,
    aggregator: bool,
    limits: &limits::Limits,
) -> ErrorClass {
    // A request that does not fit has one code for two cases; the numbers tell them apart.
    let overflow = || if limits.output.is_some() { ErrorClass::OutputCap } else { ErrorClass::ContextOverflow };
    let by_code = [body.code.as_deref(), body.kind.as_deref()].into_iter().flatten().find_map(tables::code);
    match (status, by_code) {
        // Some providers say "rate limit" for one request that is too large for any minute.
        (Some(413), _) => return ErrorClass::PayloadTooLarge,
        (_, Some(ErrorClass::ContextOverflow)) => return overflow(),
        (Some(429), Some(ErrorClass::RateLimit)) => return limited(body, words, aggregator),
        (None | Some(400..=599), Some(class)) => return class,
        _ => {}
    }
    let says = |phrases: &[&str]| tables::contains_any(words, phrases);
    match status {
        Some(400 | 422) if says(tables::SIDECAR) => ErrorClass::SidecarRefused,
        Some(400 | 422) if says(tables::CONTENT_POLICY) => ErrorClass::ContentPolicy,
        Some(400 | 422) if says(tables::OUT_OF_MEMORY) => ErrorClass::Overloaded,
        Some(400 | 422) if limits.output.is_some() || says(tables::OVERFLOW) => overflow(),
        Some(400 | 422) if says(tables::BAD_KEY) => ErrorClass::Auth,
        Some(400 | 422) if says(tables::MODEL) => ErrorClass::ModelNotFound,
        Some(400 | 422) if says(tables::BILLING) => ErrorClass::Billing,
        Some(401) => ErrorClass::Auth,
        Some(402) if limits.output.is_some() => ErrorClass::OutputCap,
        Some(402) if says(tables::QUOTA) && says(tables::TRANSIENT) => ErrorClass::RateLimit,
        Some(402) => ErrorClass::Billing,
        Some(403) if says(tables::FIREWALL) => ErrorClass::Blocked,
        Some(403) if says(tables::BILLING) => ErrorClass::Billing,
        Some(403) if says(tables::CONTENT_POLICY) => ErrorClass::ContentPolicy,
        Some(403) if says(tables::MODEL) => ErrorClass::ModelNotFound,
        Some(403) => ErrorClass::Auth,
        Some(404) if says(tables::DATA_POLICY) => ErrorClass::Blocked,
        Some(404) if says(tables::BILLING) => ErrorClass::Billing,
        Some(404) if says(tables::MODEL) => ErrorClass::ModelNotFound,
        // Not the model but the address: the route itself does not exist.
        Some(404 | 405) => ErrorClass::Configuration,
        Some(408) => ErrorClass::Timeout,
        Some(429) => limited(body, words, aggregator),
        Some(500 | 502 | 504) if says(tables::OUT_OF_MEMORY) => ErrorClass::Overloaded,
        Some(500 | 502 | 504) if says(tables::OVERFLOW) => overflow(),
        Some(503) if says(tables::FIREWALL) => ErrorClass::Blocked,
        Some(503 | 529) => ErrorClass::Overloaded,
        Some(500..) => ErrorClass::ServerError,
        Some(400..=499) => ErrorClass::BadRequest,
        _ => by_words(words, aggregator, overflow),
    }
}

/// A 429 may mean four things.
fn limited(body: &ErrorBody, words: &str, aggregator: bool) -> ErrorClass {
    let says = |phrases: &[&str]| tables::contains_any(words, phrases);
    if says(tables::BILLING) && !says(tables::TRANSIENT) {
        ErrorClass::Billing
    } else if says(tables::OVERLOAD) {
        ErrorClass::Overloaded
    } else if aggregator && (body.upstream || says(tables::UPSTREAM)) {
        ErrorClass::UpstreamRateLimit
    } else {
        ErrorClass::RateLimit
    }
}

/// An error in a stream without a code and without a status: only plain words are left.
fn by_words(words: &str, aggregator: bool, overflow: impl Fn() -> ErrorClass) -> ErrorClass {
    let says = |phrases: &[&str]| tables::contains_any(words, phrases);
    if says(tables::OUT_OF_MEMORY) || says(tables::OVERLOAD) {
        ErrorClass::Overloaded
    } else if says(tables::RATE) {
        if aggregator && says(tables::UPSTREAM) { ErrorClass::UpstreamRateLimit } else { ErrorClass::RateLimit }
    } else if says(tables::OVERFLOW) {
        overflow()
    } else if says(tables::CONTENT_POLICY) {
        ErrorClass::ContentPolicy
    } else if says(tables::BILLING) {
        ErrorClass::Billing
    } else {
        ErrorClass::ServerError
    }
}

/// What happened, in the provider's words, and what to do.
fn message(class: ErrorClass, status: Option<u16>, body: &ErrorBody, failure: &Failure<'_>) -> String {
    let advice = advice(class);
    let who = if failure.route.is_empty() { "The provider" } else { failure.route };
    let status = status.map(|status| format!(" (HTTP {status})")).unwrap_or_default();
    let said = redact(body.message.trim(), failure.secrets);
    let said = said.trim_end_matches('.');
    if said.is_empty() {
        format!("{who} answered with an error{status}. {advice}")
    } else {
        format!("{who} answered{status}: {said}. {advice}")
    }
}

#[cfg(test)]
mod tests;
