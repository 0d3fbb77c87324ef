//! What went wrong at a provider, as a class that says what may be done about it.

use serde::{Deserialize, Serialize};

/// The class of a failure. Closed: a caller's decision table covers every one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The key is wrong, expired or missing (401, 403 without a better reason).
    Auth,
    /// No money or no plan (402, `insufficient_quota`).
    Billing,
    /// Too many requests for this key; wait.
    RateLimit,
    /// An aggregator's upstream is limited; the key is healthy.
    UpstreamRateLimit,
    /// The provider is overloaded (503, 529); same key, wait.
    Overloaded,
    /// The provider failed (500, 502, 504 and unknown shapes).
    ServerError,
    /// Nothing came in time, or the connection could not be made.
    Timeout,
    /// The stream ended before the answer did.
    Incomplete,
    /// A 200 with nothing in it.
    EmptyResponse,
    /// The input does not fit the window.
    ContextOverflow,
    /// Input and wanted output together do not fit: ask for less output.
    OutputCap,
    /// The request body is too large (413).
    PayloadTooLarge,
    /// No such model, or not for this key.
    ModelNotFound,
    /// The provider refuses the content.
    ContentPolicy,
    /// The provider does not accept the request's shape (400, 422).
    BadRequest,
    /// The provider does not take back opaque state of its own: signed thinking, encrypted reasoning, thought signatures.
    /// The same request without any may pass.
    SidecarRefused,
    /// A firewall or a policy in between refuses; the key is healthy.
    Blocked,
    /// The certificate could not be verified.
    Certificate,
    /// The answer was not what the wire promises.
    BadResponse,
    /// A limit of this program was exceeded (response size, line length).
    Limit,
    /// This host gave no answer several times in a row and is left alone for a while; nothing was sent.
    Unresponsive,
    /// This program is set up in a way that cannot work (bad URL, missing key).
    Configuration,
}

/// What may be changed in a request that was refused, so that it passes. Each is tried once; a second refusal stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Remedy {
    /// Leave this field out. Outer fields stand before inner ones: `stream_options.include_usage`.
    DropField(String),
    /// Write the field under another name.
    RenameField {
        /// The name that was refused.
        from: String,
        /// The one that the server wants.
        to: String,
    },
    /// Send no pictures: one is too large, or broken, or this model sees none.
    DropImages,
    /// Send no pictures in results of tools.
    DropToolImages,
    /// Send schemas of tools without `pattern` and `format`, which a grammar cannot hold.
    PlainSchemas,
    /// Ask for the weakest reasoning instead of none.
    LeastReasoning,
    /// Send neighbours of one role as one message.
    MergeRoles,
    /// Ask for one whole answer: this credential may not have it as a stream.
    WholeAnswer,
}

/// A failed request. The message is cleaned of keys and cut; nothing in here is secret.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ProviderError {
    /// What may be done about it.
    pub class: ErrorClass,
    /// For a person: what happened and what to do.
    pub message: String,
    /// HTTP status, when there was one.
    pub status: Option<u16>,
    /// The provider's own structured code, when there was one.
    pub code: Option<String>,
    /// How long the provider asks to wait, in milliseconds, at most [`MAX_RETRY_AFTER_MS`](crate::MAX_RETRY_AFTER_MS).
    pub retry_after_ms: Option<u64>,
    /// The same without that cap, for whoever puts a credential aside until then.
    pub reset_ms: Option<u64>,
    /// The window that the provider reported, in tokens.
    pub context_limit: Option<u64>,
    /// The size of the input that the provider counted, in tokens.
    pub input_tokens: Option<u64>,
    /// The output cap that would fit, in tokens, when the provider reported enough to compute it.
    pub output_limit: Option<u64>,
    /// What may be changed in the request so that it passes, once.
    pub remedy: Option<Box<Remedy>>,
    /// Another key is ready, or this one was renewed: the same request may go out again at once.
    pub another_key: bool,
    /// Provider and model, for messages.
    pub route: String,
}

impl ProviderError {
    /// A failure of `class` with a message for a person.
    #[must_use]
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            status: None,
            code: None,
            retry_after_ms: None,
            reset_ms: None,
            context_limit: None,
            input_tokens: None,
            output_limit: None,
            remedy: None,
            another_key: false,
            route: String::new(),
        }
    }

    /// The stable code; `docs/errors/CODE.md` explains it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self.class {
            ErrorClass::Auth => "HM2001",
            ErrorClass::Billing => "HM2002",
            ErrorClass::RateLimit => "HM2003",
            ErrorClass::UpstreamRateLimit => "HM2004",
            ErrorClass::Overloaded => "HM2005",
            ErrorClass::ServerError => "HM2006",
            ErrorClass::Timeout => "HM2007",
            ErrorClass::Incomplete => "HM2008",
            ErrorClass::EmptyResponse => "HM2009",
            ErrorClass::ContextOverflow => "HM2010",
            ErrorClass::OutputCap => "HM2011",
            ErrorClass::PayloadTooLarge => "HM2012",
            ErrorClass::ModelNotFound => "HM2013",
            ErrorClass::ContentPolicy => "HM2014",
            ErrorClass::BadRequest => "HM2015",
            ErrorClass::Blocked => "HM2016",
            ErrorClass::Certificate => "HM2017",
            ErrorClass::BadResponse => "HM2018",
            ErrorClass::Limit => "HM2019",
            ErrorClass::Configuration => "HM2020",
            ErrorClass::SidecarRefused => "HM2021",
            ErrorClass::Unresponsive => "HM2025",
        }
    }
}
