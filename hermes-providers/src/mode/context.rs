//! What every decoder must know beside the bytes, and how it words its errors.

use std::sync::Arc;
use std::time::SystemTime;

use secrecy::{ExposeSecret, SecretString};

use crate::classify::{ErrorBody, Failure, advice, classify, redact};
use crate::error::{ErrorClass, ProviderError};
use crate::mode::names::NameMap;

/// What a decoder must know beside the bytes.
#[derive(Debug, Clone, Default)]
pub struct DecodeContext {
    /// The map of the request's tools.
    pub names: NameMap,
    /// Our own name as an issuer of opaque state.
    pub issuer: Arc<str>,
    /// Provider and model, for messages.
    pub route: String,
    /// The provider passes requests on to others, so that a 429 may not be about our key.
    pub aggregator: bool,
    /// Whether deltas are wanted before the completion.
    pub stream: bool,
    /// Texts that no error may show, should a server echo them.
    pub secrets: Vec<SecretString>,
}

impl DecodeContext {
    /// An error of this route: what happened, then what to do.
    pub(crate) fn error(&self, class: ErrorClass, what: &str) -> ProviderError {
        let who = if self.route.is_empty() { "the provider" } else { &self.route };
        let mut error = ProviderError::new(class, format!("{who}: {what}. {}", advice(class)));
        error.route.clone_from(&self.route);
        error
    }

    /// A text of the server as it may be shown.
    pub(crate) fn clean(&self, text: &str) -> String {
        let secrets: Vec<&str> = self.secrets.iter().map(ExposeSecret::expose_secret).collect();
        redact(text, &secrets)
    }

    /// The error for a body that is neither events nor JSON: what it is not, and what it says.
    pub(crate) fn no_answer(&self, what: &str, body: &[u8]) -> ProviderError {
        let said = self.clean(&ErrorBody::parse(body).message);
        self.error(ErrorClass::BadResponse, &format!("the answer is no {what}: {said}"))
    }

    /// The error for a frame that is not JSON.
    pub(crate) fn not_json(&self, text: &str) -> ProviderError {
        let what = format!("the stream holds something that is not JSON: {}", self.clean(text));
        self.error(ErrorClass::BadResponse, &what)
    }

    /// An error inside a 200 is classed like an error answer (B7, B8).
    pub(crate) fn classified(&self, body: &str) -> ProviderError {
        let secrets: Vec<&str> = self.secrets.iter().map(ExposeSecret::expose_secret).collect();
        classify(&Failure {
            status: None,
            headers: &|_| None,
            body: body.as_bytes(),
            aggregator: self.aggregator,
            // Only dates in headers need the time, and a frame has none.
            now: SystemTime::UNIX_EPOCH,
            route: &self.route,
            secrets: &secrets,
        })
    }
}
