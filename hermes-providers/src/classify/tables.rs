//! The tables: codes, phrases, advice. Data only; the order of use stands in the parent module.

use crate::error::ErrorClass::{
    self, Auth, BadRequest, BadResponse, Billing, Blocked, Certificate, Configuration, ContentPolicy, ContextOverflow,
    EmptyResponse, Incomplete, Limit, ModelNotFound, OutputCap, Overloaded, PayloadTooLarge, RateLimit, ServerError,
    SidecarRefused, Timeout, Unresponsive, UpstreamRateLimit,
};

/// Structured codes and types, lower case. Vague ones (`invalid_request_error`, `api_error`) are missing on purpose.
const CODES: &[(&str, ErrorClass)] = &[
    ("insufficient_quota", Billing),
    ("billing_not_active", Billing),
    ("billing_error", Billing),
    ("payment_required", Billing),
    ("insufficient_credits", Billing),
    ("no_usable_credits", Billing),
    ("balance_depleted", Billing),
    ("credit_balance_exhausted", Billing),
    ("organization_spend_limit_exceeded", Billing),
    ("organization_usage_limit_exceeded", Billing),
    ("project_spend_limit_exceeded", Billing),
    ("member_spend_cap_exceeded", Billing),
    ("terminal_quota_exhausted", Billing),
    ("model_not_supported_on_free_tier", Billing),
    ("insufficient_credits_for_paid_model", Billing),
    ("free_usage_limit_error", RateLimit),
    ("rate_limit_exceeded", RateLimit),
    ("rate_limit_error", RateLimit),
    ("rate_limited", RateLimit),
    ("too_many_requests", RateLimit),
    ("resource_exhausted", RateLimit),
    ("throttlingexception", RateLimit),
    ("servicequotaexceededexception", RateLimit),
    ("overloaded_error", Overloaded),
    ("overloaded", Overloaded),
    ("engine_overloaded", Overloaded),
    ("upstream_unavailable", Overloaded),
    ("service_unavailable", Overloaded),
    ("unavailable_error", Overloaded),
    ("context_length_exceeded", ContextOverflow),
    ("exceed_context_size_error", ContextOverflow),
    ("max_tokens_exceeded", ContextOverflow),
    ("string_above_max_length", ContextOverflow),
    ("request_too_large", PayloadTooLarge),
    ("model_not_found", ModelNotFound),
    ("model_not_found_error", ModelNotFound),
    ("invalid_model", ModelNotFound),
    ("model_decommissioned", ModelNotFound),
    ("content_filter", ContentPolicy),
    ("content_policy_violation", ContentPolicy),
    ("responsibleaipolicyviolation", ContentPolicy),
    ("data_inspection_failed", ContentPolicy),
    ("invalid_api_key", Auth),
    ("authentication_error", Auth),
    ("invalid_authentication", Auth),
    ("permission_error", Auth),
    ("permission_denied", Auth),
    ("unauthorized", Auth),
    ("unauthenticated", Auth),
    ("unrecognizedclientexception", Auth),
    ("expiredtokenexception", Auth),
    ("invalidsignatureexception", Auth),
    ("incompletesignatureexception", Auth),
    ("unavailable", Overloaded),
    ("serviceunavailableexception", Overloaded),
    ("modelnotreadyexception", Overloaded),
    ("internalserverexception", ServerError),
    ("modelerrorexception", ServerError),
    ("modelstreamerrorexception", ServerError),
    ("server_error", ServerError),
    ("internal", ServerError),
    ("resourcenotfoundexception", ModelNotFound),
    ("invalid_prompt", ContentPolicy),
    ("image_content_policy_violation", ContentPolicy),
    ("bio_policy", ContentPolicy),
    ("misalignment_policy_violation", ContentPolicy),
    // Of a picture: the same one would be refused again.
    ("invalid_image", BadRequest),
    ("invalid_image_format", BadRequest),
    ("invalid_base64_image", BadRequest),
    ("invalid_image_url", BadRequest),
    ("invalid_image_mode", BadRequest),
    ("image_too_large", BadRequest),
    ("image_too_small", BadRequest),
    ("image_parse_error", BadRequest),
    ("image_file_too_large", BadRequest),
    ("image_file_not_found", BadRequest),
    ("unsupported_image_media_type", BadRequest),
    ("empty_image_file", BadRequest),
    ("failed_to_download_image", BadRequest),
    ("unsupported_country_region_territory", Blocked),
    ("modeltimeoutexception", Timeout),
    ("deadline_exceeded", Timeout),
    ("timeout_error", Timeout),
    ("invalid_encrypted_content", SidecarRefused),
    ("timeout", Timeout),
    ("request_timeout", Timeout),
];

/// The class of a structured code.
pub(super) fn code(code: &str) -> Option<ErrorClass> {
    let code = code.to_lowercase();
    CODES.iter().find(|(known, _)| *known == code).map(|(_, class)| *class)
}

/// Codes that a server puts on its own failure too, when it is the request that is wrong; lower case.
pub(super) const VALIDATION_CODES: &[&str] = &[
    "invalid_request_error",
    "invalid_argument",
    "validation_error",
    "validationexception",
    "bad_request",
    "badrequesterror",
    "unsupported_parameter",
    "unknown_parameter",
];

/// No money, no plan.
pub(super) const BILLING: &[&str] = &[
    "insufficient credits",
    "insufficient balance",
    "insufficient_quota",
    "credit balance",
    "exceeded your current quota",
    "payment required",
    "billing hard limit",
    "hard billing limit",
    "budget limit exceeded",
    "out of funds",
    "account is deactivated",
    "plan does not include",
    "spending-limit",
    "key limit exceeded",
];
/// Words for a quota that may come back.
pub(super) const QUOTA: &[&str] = &["usage limit", "quota"];
/// Words that say that it comes back.
pub(super) const TRANSIENT: &[&str] = &[
    "try again in",
    "retry in",
    "resets in",
    "resets at",
    "reset at",
    "reset in",
    "window",
    "per minute",
    "per hour",
    "per day",
];
/// Too many requests.
pub(super) const RATE: &[&str] = &[
    "rate limit",
    "rate-limit",
    "too many requests",
    "requests per minute",
    "tokens per minute",
    "resource_exhausted",
    "throttlingexception",
    "too many concurrent requests",
];
/// Too much load at the provider.
pub(super) const OVERLOAD: &[&str] =
    &["overloaded", "server overload", "at capacity", "over capacity", "temporarily unavailable", "busy"];
/// An aggregator speaks of the provider behind it.
pub(super) const UPSTREAM: &[&str] = &["provider returned error", "upstream", "rate-limited upstream"];
/// A local server ran out of memory; checked before everything that also speaks of tokens.
pub(super) const OUT_OF_MEMORY: &[&str] =
    &["out of memory", "insufficient memory", "memory guard", "prefill would require"];
/// The input does not fit, and nothing else can be meant.
const OVERFLOW: &[&str] = &[
    "maximum context",
    "maximum prompt length",
    "too many tokens",
    "prompt is too long",
    "input is too long",
    "reduce the length",
    "maximum number of tokens allowed",
    "exceeds the maximum number of input tokens",
    "maximum allowed input length",
    "exceeded model token limit",
    "range of input length",
    "prompt exceeds max length",
    "超过最大长度",
];
/// Words about windows. They mean an overflow only beside a number of it or a word of [`EXCESS`].
const WINDOW: &[&str] = &[
    "context length",
    "context size",
    "context window",
    "context limit",
    "input length",
    "max_model_len",
    "n_ctx",
    "上下文长度",
];
/// Words that say that something is more than it may be.
const EXCESS: &[&str] = &[
    "exceed",
    "too long",
    "too large",
    "larger than",
    "greater than",
    "longer than",
    "over the",
    "overflow",
    "超过",
    "超出",
];

/// True when the words say that the input does not fit. A guess shortens a history, so words that may mean other things
/// are not enough (B40).
pub(super) fn overflows(words: &str, has_window: bool) -> bool {
    contains_any(words, OVERFLOW) || (contains_any(words, WINDOW) && (has_window || contains_any(words, EXCESS)))
}

/// Refused content.
pub(super) const CONTENT_POLICY: &[&str] = &[
    "content_filter",
    "content management policy",
    "responsibleaipolicyviolation",
    "violates our usage policies",
    "flagged for possible cybersecurity risk",
    "data_inspection_failed",
    "content exists risk",
    "new_sensitive",
    "requires moderation",
];
/// No such model, or not with this key.
const MODEL: &[&str] = &[
    "model_not_found",
    "no such model",
    "unknown model",
    "is not a valid model",
    "model not found",
    "not found, try pulling it first",
    "no endpoints found",
    "model does not exist",
    "invalid model name",
    "invalid model id",
    "the provided model identifier is invalid",
    "with on-demand throughput",
    "not a chat model",
    "is not found for api version",
    "model is not supported when using",
];
/// The same beside the word `model`; alone they are said of many things.
const GONE: &[&str] = &[
    "does not exist",
    "doesn't exist",
    "do not have access",
    "don't have access",
    "does not have access",
    "has been deprecated",
    "has been decommissioned",
];

/// True when the words say that there is no such model.
pub(super) fn lacks_model(words: &str) -> bool {
    contains_any(words, MODEL) || (words.contains("model") && contains_any(words, GONE))
}

/// A wrong key that is not answered with 401.
pub(super) const BAD_KEY: &[&str] = &["api key not valid", "invalid api key", "incorrect api key"];
/// Opaque state that the provider does not take back, in the words of Anthropic, Google and OpenAI.
pub(super) const SIDECAR: &[&str] = &[
    "invalid `signature` in `thinking` block",
    "invalid signature in thinking block",
    "blocks in the latest assistant message cannot be modified",
    "must start with a thinking block",
    "thought signature is not valid",
    "thought_signature is not valid",
    "missing a thought_signature",
    "missing a `thought_signature`",
    "encrypted content could not be verified",
    "encrypted content could not be decrypted",
];
/// Pages of firewalls.
pub(super) const FIREWALL: &[&str] = &[
    "cdn-cgi/challenge-platform",
    "__cf_chl",
    "sorry, you have been blocked",
    "attention required! | cloudflare",
    "just a moment...",
];
/// Not from this country.
pub(super) const REGION: &[&str] = &["user location is not supported", "country, region, or territory not supported"];
/// The account's own privacy settings refuse.
pub(super) const DATA_POLICY: &[&str] = &["data policy", "guardrail restrictions"];

/// True when `words` (lower case) holds one of the phrases.
pub(super) fn contains_any(words: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| words.contains(phrase))
}

/// What a person can do about it.
pub(crate) fn advice(class: ErrorClass) -> &'static str {
    match class {
        Auth => "Check the API key of this provider (its variable in .env, or `api_key` in config.yaml)",
        Billing => "Add credit or a plan at the provider, or name another model with -m or model.default",
        RateLimit => "Wait a little, or name another model with -m or model.default",
        UpstreamRateLimit => "The provider behind the aggregator is limited; wait, or choose another model",
        Overloaded => "The provider has too much to do; try again in a moment",
        ServerError => "The fault is at the provider; try again in a moment",
        Timeout => "Try again; check the network and the address of the server",
        Incomplete => "Try again",
        EmptyResponse => "Try again, or choose another model",
        ContextOverflow => {
            "The conversation is too long for this model: compress it, start a new one or take a larger model"
        }
        OutputCap => "Ask for fewer output tokens (`max_tokens`)",
        PayloadTooLarge => "The request is too large for this provider: shorten the conversation",
        ModelNotFound => "Check the model's name; `hermes model` lists what there is",
        ContentPolicy => "The provider refuses this content; say it differently or choose another provider",
        BadRequest => "The provider does not accept the request; another model may, and a report of this is welcome",
        SidecarRefused => "Start a new session if this stays; the provider does not take its own earlier thinking back",
        Blocked => "A firewall or a policy in between refuses the request; the key is not at fault",
        Certificate => {
            "The server's certificate cannot be verified; check the clock, the address and a proxy in between"
        }
        BadResponse => "Check that the address is one of an OpenAI-compatible server",
        Unresponsive => "Wait a little, check whether the server runs, or name another model with -m or model.default",
        Limit => "The answer is larger than this program accepts",
        Configuration => "Check `base_url`: it usually ends in /v1",
    }
}
