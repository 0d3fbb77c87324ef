//! What an error answer means: pure, driven by tables.
//!
//! A structured code decides first, then the status, and words only within what the status allows, because providers
//! use the same words for different things. The result is cleaned of keys and cut.

mod body;
mod limits;
mod redact;
mod remedy;
mod tables;
mod wait;

use std::time::SystemTime;

pub(crate) use body::ErrorBody;
pub use redact::{MAX_MESSAGE_BYTES, redact};
pub(crate) use tables::advice;
pub use wait::{MAX_RESET_MS, MAX_RETRY_AFTER_MS};

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

/// The status with which a proxy asks who one is (RFC 9110, 15.5.8).
const PROXY_LOGIN: u16 = 407;
/// What to do about it.
pub(crate) const PROXY_LOGIN_ADVICE: &str =
    "Write the proxy's name and password into `network.proxy`: http://NAME:PASSWORD@HOST:PORT";

/// An output of fewer tokens than this is no answer: what one can afford is then nothing.
const MIN_AFFORDABLE_TOKENS: u64 = 256;

/// Classifies a failure.
#[must_use]
pub fn classify(failure: &Failure<'_>) -> ProviderError {
    let mut body = ErrorBody::parse(failure.body);
    if body.kind.is_none() {
        // AWS: the type of an error, before an address.
        let kind = (failure.headers)("x-amzn-errortype");
        body.kind = kind.and_then(|kind| kind.split(':').next().map(str::to_owned)).filter(|kind| !kind.is_empty());
    }
    let status = failure.status.filter(|status| *status >= 400).or(body.status);
    let words = body.words();
    let limits = limits::read(&words, &body);
    let reset_ms = wait::reset_ms(status, failure.headers, &body, &words, failure.now);
    let found = Found { status, body: &body, words: &words, limits: &limits, aggregator: failure.aggregator, reset_ms };
    let class = found.class();
    let mut error = ProviderError::new(class, message(class, status, &body, failure));
    error.status = failure.status.or(status);
    error.code = body.code.as_deref().map(|code| redact(code, failure.secrets));
    error.retry_after_ms = reset_ms.map(|wait| wait.min(MAX_RETRY_AFTER_MS));
    error.reset_ms = reset_ms;
    error.remedy = remedy::read(class, &body, &words).map(Box::new);
    if matches!(class, ErrorClass::ContextOverflow | ErrorClass::OutputCap) {
        error.context_limit = limits.context;
        error.input_tokens = limits.input;
    }
    if class == ErrorClass::OutputCap {
        error.output_limit = limits.output;
    }
    failure.route.clone_into(&mut error.route);
    error
}

/// What was read of an answer.
struct Found<'a> {
    status: Option<u16>,
    body: &'a ErrorBody,
    /// Lower case.
    words: &'a str,
    limits: &'a limits::Limits,
    aggregator: bool,
    reset_ms: Option<u64>,
}

impl Found<'_> {
    fn says(&self, phrases: &[&str]) -> bool {
        tables::contains_any(self.words, phrases)
    }

    fn overflows(&self) -> bool {
        tables::overflows(self.words, self.limits.context.is_some())
    }

    /// A request that does not fit has one code for two cases; the numbers tell them apart.
    fn overflow(&self) -> ErrorClass {
        if self.limits.output.is_some() { ErrorClass::OutputCap } else { ErrorClass::ContextOverflow }
    }

    /// A structured code, then the status, then words.
    fn class(&self) -> ErrorClass {
        match (self.status, self.body.codes().find_map(tables::code)) {
            // Some providers say "rate limit" for one request that is too large for any minute.
            (Some(413), _) => return ErrorClass::PayloadTooLarge,
            (_, Some(ErrorClass::ContextOverflow)) => return self.overflow(),
            (Some(429), Some(ErrorClass::RateLimit)) => return self.limited(),
            // A gateway's own failure has a code that says no more than the status does.
            (Some(500..), Some(ErrorClass::ServerError)) => {}
            (None | Some(400..=599), Some(class)) => return class,
            _ => {}
        }
        match self.status {
            Some(400 | 422) => self.refused(),
            Some(401) => ErrorClass::Auth,
            Some(402) => self.unpaid(),
            Some(403) => self.forbidden(),
            Some(404 | 405) => self.missing(),
            // No provider asks so, but a proxy on the way.
            Some(PROXY_LOGIN) => ErrorClass::Configuration,
            Some(408) => ErrorClass::Timeout,
            Some(429) => self.limited(),
            // Held by another request of the same moment, or too early: the next one passes.
            Some(409 | 425 | 499) => ErrorClass::ServerError,
            Some(503) if self.says(tables::FIREWALL) => ErrorClass::Blocked,
            Some(503 | 529) => ErrorClass::Overloaded,
            Some(500..) => self.failed(),
            Some(400..=499) => ErrorClass::BadRequest,
            _ => self.by_words(),
        }
    }

    /// 400 and 422.
    fn refused(&self) -> ErrorClass {
        if self.says(tables::SIDECAR) {
            ErrorClass::SidecarRefused
        } else if self.says(tables::CONTENT_POLICY) {
            ErrorClass::ContentPolicy
        } else if self.says(tables::OUT_OF_MEMORY) {
            ErrorClass::Overloaded
        } else if self.limits.output.is_some() || self.overflows() {
            self.overflow()
        } else if self.says(tables::BAD_KEY) {
            ErrorClass::Auth
        } else if self.says(tables::REGION) {
            ErrorClass::Blocked
        } else if tables::lacks_model(self.words) {
            ErrorClass::ModelNotFound
        } else if self.says(tables::BILLING) {
            ErrorClass::Billing
        } else {
            ErrorClass::BadRequest
        }
    }

    /// 402.
    fn unpaid(&self) -> ErrorClass {
        if self.limits.output.is_some_and(|cap| cap >= MIN_AFFORDABLE_TOKENS) {
            ErrorClass::OutputCap
        } else if self.says(tables::QUOTA) && self.says(tables::TRANSIENT) {
            ErrorClass::RateLimit
        } else {
            ErrorClass::Billing
        }
    }

    /// 403.
    fn forbidden(&self) -> ErrorClass {
        if self.says(tables::FIREWALL) || self.says(tables::REGION) {
            ErrorClass::Blocked
        } else if self.says(tables::BILLING) {
            ErrorClass::Billing
        } else if self.says(tables::CONTENT_POLICY) {
            ErrorClass::ContentPolicy
        } else if tables::lacks_model(self.words) {
            ErrorClass::ModelNotFound
        } else {
            ErrorClass::Auth
        }
    }

    /// 404 and 405.
    fn missing(&self) -> ErrorClass {
        if self.says(tables::DATA_POLICY) {
            ErrorClass::Blocked
        } else if self.says(tables::BILLING) {
            ErrorClass::Billing
        } else if tables::lacks_model(self.words) {
            ErrorClass::ModelNotFound
        } else {
            // Not the model but the address: the route itself does not exist.
            ErrorClass::Configuration
        }
    }

    /// 429 may mean four things. A quota that comes back is no lack of money, whatever the words are.
    fn limited(&self) -> ErrorClass {
        if self.says(tables::BILLING) && !self.says(tables::TRANSIENT) && self.reset_ms.is_none() {
            ErrorClass::Billing
        } else if self.says(tables::OVERLOAD) {
            ErrorClass::Overloaded
        } else if self.aggregator && (self.body.upstream || self.says(tables::UPSTREAM)) {
            ErrorClass::UpstreamRateLimit
        } else {
            ErrorClass::RateLimit
        }
    }

    /// 5xx, but for what is overload by its number.
    fn failed(&self) -> ErrorClass {
        let is_validation = |code: &str| tables::VALIDATION_CODES.contains(&code.to_lowercase().as_str());
        if self.says(tables::OUT_OF_MEMORY) {
            ErrorClass::Overloaded
        } else if self.overflows() {
            self.overflow()
        } else if self.body.codes().any(is_validation) {
            ErrorClass::BadRequest
        } else {
            ErrorClass::ServerError
        }
    }

    /// An error in a stream without a code and without a status: only plain words are left.
    fn by_words(&self) -> ErrorClass {
        if self.says(tables::OUT_OF_MEMORY) || self.says(tables::OVERLOAD) {
            ErrorClass::Overloaded
        } else if self.says(tables::RATE) {
            let upstream = self.aggregator && self.says(tables::UPSTREAM);
            if upstream { ErrorClass::UpstreamRateLimit } else { ErrorClass::RateLimit }
        } else if self.overflows() {
            self.overflow()
        } else if self.says(tables::CONTENT_POLICY) {
            ErrorClass::ContentPolicy
        } else if self.says(tables::BILLING) {
            ErrorClass::Billing
        } else if self.says(tables::BAD_KEY) {
            ErrorClass::Auth
        } else if tables::lacks_model(self.words) {
            ErrorClass::ModelNotFound
        } else {
            ErrorClass::ServerError
        }
    }
}

/// What happened, in the provider's words, and what to do.
fn message(class: ErrorClass, status: Option<u16>, body: &ErrorBody, failure: &Failure<'_>) -> String {
    let advice = if status == Some(PROXY_LOGIN) { PROXY_LOGIN_ADVICE } else { advice(class) };
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
