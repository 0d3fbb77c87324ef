//! A token endpoint (RFC 6749, 3.2, 5.1 and 5.2: rfc-editor.org/rfc/rfc6749).

use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use serde_json::Value;

use crate::classify::redact;
use crate::credential::refresh::TOKEN_TIMEOUT_MS;
use crate::http::{Transport, post_form};

/// Answers of an endpoint that say that the token will never be taken again (RFC 6749, 5.2, and what issuers add).
const TERMINAL: [&str; 6] = [
    "invalid_grant",
    "unauthorized_client",
    "invalid_client",
    "refresh_token_reused",
    "token_revoked",
    "token_invalidated",
];

/// What came of a request for a token.
#[derive(Clone)]
#[non_exhaustive]
pub enum TokenAnswer {
    /// Tokens.
    Tokens {
        /// What requests are let in with.
        access_token: SecretString,
        /// What renews it; none keeps the one that was sent.
        refresh_token: Option<SecretString>,
        /// How long it lasts, in seconds.
        expires_in_s: Option<i64>,
    },
    /// Never again. The issuer's code.
    Refused {
        /// Without secrets.
        why: String,
    },
    /// The request was not sent, or was answered without being done: the token is as good as before.
    NotNow {
        /// Without secrets.
        why: String,
    },
    /// It may have been done or not.
    Unknown {
        /// Without secrets.
        why: String,
    },
}

/// Asks a token endpoint. One request, never a repetition of it.
#[async_trait]
pub trait TokenClient: Send + Sync {
    /// Sends the form.
    async fn ask(&self, url: &str, form: &[(&str, String)]) -> TokenAnswer;
}

/// Over HTTP, by the way that leads to all servers.
#[derive(Debug, Clone, Default)]
pub struct HttpTokens {
    transport: Transport,
}

impl HttpTokens {
    /// By this way.
    #[must_use]
    pub fn new(transport: Transport) -> Self {
        Self { transport }
    }
}

#[async_trait]
impl TokenClient for HttpTokens {
    async fn ask(&self, url: &str, form: &[(&str, String)]) -> TokenAnswer {
        match post_form(&self.transport, url, form, Duration::from_millis(TOKEN_TIMEOUT_MS)).await {
            Ok((status, body)) => read(status, &body, form),
            Err(failed) if failed.sent => TokenAnswer::Unknown { why: failed.why },
            Err(failed) => TokenAnswer::NotNow { why: failed.why },
        }
    }
}

/// What an answer means. Nothing of the tokens is in `why`.
#[must_use]
pub(crate) fn read(status: u16, body: &[u8], form: &[(&str, String)]) -> TokenAnswer {
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let text = |name: &str| value.as_ref()?.get(name)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    if (200..300).contains(&status) {
        let Some(access_token) = text("access_token") else {
            return TokenAnswer::Unknown { why: format!("HTTP {status} without an access token") };
        };
        let number = |value: &Value| value.as_i64().or_else(|| value.as_str()?.parse().ok());
        return TokenAnswer::Tokens {
            access_token: access_token.into(),
            refresh_token: text("refresh_token").map(SecretString::from),
            expires_in_s: value.as_ref().and_then(|value| value.get("expires_in")).and_then(number),
        };
    }
    // Some issuers put the code into an object.
    let nested = || value.as_ref()?.get("error")?.get("code")?.as_str().map(str::to_owned);
    let code = text("error").or_else(nested).unwrap_or_default();
    let secrets: Vec<&str> =
        form.iter().filter(|(name, _)| *name != "grant_type").map(|(_, value)| value.as_str()).collect();
    let why = redact(&format!("HTTP {status} {code}"), &secrets).trim().to_owned();
    match status {
        400 | 401 | 403 if TERMINAL.contains(&code.as_str()) => TokenAnswer::Refused { why },
        // A server in between cannot say whether the issuer behind it was reached; the issuer itself answers 5xx too.
        502 | 504 => TokenAnswer::Unknown { why },
        _ => TokenAnswer::NotNow { why },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_its_meaning() {
        let table = [
            (200, r#"{"access_token":"a","expires_in":60}"#, "tokens"),
            (200, r#"{"token":"a"}"#, "unknown"),
            (200, "<html>", "unknown"),
            (400, r#"{"error":"invalid_grant","error_description":"marked-1"}"#, "refused"),
            (401, r#"{"error":{"code":"refresh_token_reused"}}"#, "refused"),
            (400, r#"{"error":"temporarily_unavailable"}"#, "not now"),
            (429, "", "not now"),
            (500, "", "not now"),
            (503, "marked-1", "not now"),
            (504, "", "unknown"),
        ];
        for (status, body, want) in table {
            let form = [("grant_type", "refresh_token".to_owned()), ("refresh_token", "marked-1".to_owned())];
            let (got, why) = match read(status, body.as_bytes(), &form) {
                TokenAnswer::Tokens { .. } => ("tokens", String::new()),
                TokenAnswer::Refused { why } => ("refused", why),
                TokenAnswer::NotNow { why } => ("not now", why),
                TokenAnswer::Unknown { why } => ("unknown", why),
            };
            assert_eq!(got, want, "{status} {body}");
            assert!(!why.contains("marked"), "{why}");
        }
    }
}
