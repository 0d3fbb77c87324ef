//! Login on another device: the device authorization grant (RFC 8628: rfc-editor.org/rfc/rfc8628), with PKCE (RFC 7636) for
//! issuers that want it. Configured per profile; this program shows itself under its own client id and no other's.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::classify::redact;
use crate::credential::Now;
use crate::credential::refresh::{NOTE_TTL_MS, SKEW_MS, TokenAnswer, TokenEndpoint, read_answer};
use crate::http::{Transport, post_form};

/// The grant's name (RFC 8628, 3.4).
const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Between two questions when the issuer says nothing (RFC 8628, 3.2).
const INTERVAL_S: u64 = 5;
/// Shortest time between two questions, whatever an issuer says: without one, "0" would be a flood.
const INTERVAL_MIN_S: u64 = 1;
/// What "slow down" adds (RFC 8628, 3.5).
const SLOW_DOWN_S: u64 = 5;
/// Longest time between two questions.
const INTERVAL_MAX_S: u64 = 60;
/// Longest login.
const LOGIN_MAX_S: u64 = 1_800;
/// Longest single request.
const REQUEST_TIMEOUT_MS: u64 = 30_000;
/// Bytes of the PKCE verifier before they are written as text: 43 characters (RFC 7636, 4.1).
const VERIFIER_BYTES: usize = 32;

/// How people log in at a provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuth {
    /// The device authorization endpoint.
    pub device_url: String,
    /// The token endpoint.
    pub token_url: String,
    /// The id that the issuer gave to the user or to this program.
    pub client_id: String,
    /// What is asked for, with blanks between.
    #[serde(default)]
    pub scope: String,
    /// Whether the issuer wants PKCE.
    #[serde(default)]
    pub pkce: bool,
    /// Whether each use of a refresh token gives another one. When unsure: yes.
    #[serde(default = "yes")]
    pub rotates: bool,
    /// How long before its end a token is renewed, in seconds.
    #[serde(default)]
    pub skew_seconds: Option<u32>,
}

fn yes() -> bool {
    true
}

impl OAuth {
    /// Where its tokens are renewed.
    #[must_use]
    pub fn endpoint(&self) -> TokenEndpoint {
        TokenEndpoint {
            url: self.token_url.clone(),
            client_id: self.client_id.clone(),
            client_secret: None,
            rotates: self.rotates,
            skew_ms: self.skew_seconds.map_or(SKEW_MS, |seconds| i64::from(seconds) * 1_000),
            note_ttl_ms: NOTE_TTL_MS,
        }
    }
}

/// What a login brought.
#[derive(Clone)]
pub struct LoggedIn {
    /// What requests are let in with.
    pub access_token: SecretString,
    /// What renews it.
    pub refresh_token: Option<SecretString>,
    /// When it ends, in milliseconds since the epoch.
    pub expires_at_ms: Option<i64>,
}

/// Why there was no login. Nothing secret is in it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct LoginError(pub String);

/// A login that waits for a person.
pub struct Login {
    oauth: OAuth,
    device_code: SecretString,
    verifier: Option<SecretString>,
    interval_s: u64,
    expires_s: u64,
    /// What a second of the two lasts.
    second: Duration,
    transport: Transport,
    /// Where the person goes.
    pub verification_uri: String,
    /// The same with the code in it, when the issuer gives one.
    pub verification_uri_complete: Option<String>,
    /// What the person types there.
    pub user_code: String,
}

/// Begins a login.
///
/// # Errors
/// The issuer could not be asked, or answered otherwise than RFC 8628 says.
pub async fn begin_login(oauth: &OAuth, transport: &Transport) -> Result<Login, LoginError> {
    let verifier = if oauth.pkce { Some(verifier()?) } else { None };
    let mut form = vec![("client_id", oauth.client_id.clone())];
    if !oauth.scope.is_empty() {
        form.push(("scope", oauth.scope.clone()));
    }
    if let Some(verifier) = &verifier {
        form.push(("code_challenge", challenge(verifier)));
        form.push(("code_challenge_method", "S256".to_owned()));
    }
    let limit = Duration::from_millis(REQUEST_TIMEOUT_MS);
    let asked = post_form(transport, &oauth.device_url, &form, limit).await;
    let (status, body) = asked.map_err(|failed| LoginError(failed.why))?;
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |name: &str| value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let uri = text("verification_uri").or_else(|| text("verification_url"));
    let (Some(device_code), Some(user_code), Some(verification_uri)) = (text("device_code"), text("user_code"), uri)
    else {
        let code = redact(&text("error").unwrap_or_default(), &[]);
        return Err(LoginError(format!("the issuer did not begin a login (HTTP {status} {code})")));
    };
    // A person is asked to open it; a browser does more with other addresses than show a page.
    let is_page = |text: &str| text.starts_with("https://") || text.starts_with("http://");
    if !is_page(&verification_uri) {
        return Err(LoginError("the issuer names no page to open".to_owned()));
    }
    let seconds = |name: &str, usual: u64| value.get(name).and_then(Value::as_u64).unwrap_or(usual);
    Ok(Login {
        oauth: oauth.clone(),
        device_code: device_code.into(),
        verifier,
        interval_s: seconds("interval", INTERVAL_S).clamp(INTERVAL_MIN_S, INTERVAL_MAX_S),
        expires_s: seconds("expires_in", LOGIN_MAX_S).min(LOGIN_MAX_S),
        second: Duration::from_secs(1),
        transport: transport.clone(),
        verification_uri,
        verification_uri_complete: text("verification_uri_complete").filter(|text| is_page(text)),
        user_code,
    })
}

impl Login {
    /// The same with shorter seconds, for tests.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn with_second(self, second: Duration) -> Self {
        Self { second, ..self }
    }

    /// Waits until the person has said yes or no. Dropping the future ends the login.
    ///
    /// # Errors
    /// The person said no, the time is over, or the issuer refuses.
    pub async fn wait(self, now: &Now) -> Result<LoggedIn, LoginError> {
        let seconds = |count: u64| self.second.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let end = tokio::time::Instant::now() + seconds(self.expires_s);
        let mut interval_s = self.interval_s;
        let mut form = vec![
            ("grant_type", GRANT.to_owned()),
            ("device_code", self.device_code.expose_secret().to_owned()),
            ("client_id", self.oauth.client_id.clone()),
        ];
        if let Some(verifier) = &self.verifier {
            form.push(("code_verifier", verifier.expose_secret().to_owned()));
        }
        loop {
            let interval = seconds(interval_s);
            if tokio::time::Instant::now() + interval >= end {
                return Err(LoginError("nobody confirmed the login in time; begin again".to_owned()));
            }
            tokio::time::sleep(interval).await;
            let limit = Duration::from_millis(REQUEST_TIMEOUT_MS);
            let asked = post_form(&self.transport, &self.oauth.token_url, &form, limit).await;
            let answer = asked.map_or(Poll::Away, |(status, body)| poll(status, &body, &form));
            match answer {
                Poll::Pending => {}
                Poll::SlowDown => interval_s = (interval_s + SLOW_DOWN_S).min(INTERVAL_MAX_S),
                // RFC 8628, 3.5: after a lost connection ask less often.
                Poll::Away => interval_s = (interval_s * 2).min(INTERVAL_MAX_S),
                Poll::Over(error) => return Err(error),
                Poll::Tokens { access_token, refresh_token, expires_in_s } => {
                    let at = |seconds: i64| now().saturating_add(seconds.saturating_mul(1_000));
                    return Ok(LoggedIn { access_token, refresh_token, expires_at_ms: expires_in_s.map(at) });
                }
            }
        }
    }
}

/// What an answer to one question means (RFC 8628, 3.5).
enum Poll {
    Pending,
    SlowDown,
    /// The issuer cannot be asked now.
    Away,
    Tokens {
        access_token: SecretString,
        refresh_token: Option<SecretString>,
        expires_in_s: Option<i64>,
    },
    Over(LoginError),
}

fn poll(status: u16, body: &[u8], form: &[(&str, String)]) -> Poll {
    let over = |why: &str| Poll::Over(LoginError(why.to_owned()));
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    match value.get("error").and_then(Value::as_str).unwrap_or_default() {
        "authorization_pending" => return Poll::Pending,
        "slow_down" => return Poll::SlowDown,
        "access_denied" => return over("the login was refused at the provider"),
        "expired_token" => return over("the code is too old; begin again"),
        _ => {}
    }
    match read_answer(status, body, form) {
        TokenAnswer::Tokens { access_token, refresh_token, expires_in_s } => {
            Poll::Tokens { access_token, refresh_token, expires_in_s }
        }
        // A server in trouble says nothing of the person's answer.
        _ if status == 429 || status >= 500 => Poll::Away,
        TokenAnswer::Refused { why } | TokenAnswer::NotNow { why } | TokenAnswer::Unknown { why } => {
            Poll::Over(LoginError(format!("the issuer gave no token: {why}")))
        }
    }
}

fn verifier() -> Result<SecretString, LoginError> {
    let mut bytes = [0_u8; VERIFIER_BYTES];
    let random = ring::rand::SystemRandom::new();
    ring::rand::SecureRandom::fill(&random, &mut bytes)
        .map_err(|_| LoginError("the system gives no random numbers".to_owned()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes).into())
}

/// RFC 7636, 4.2, method S256.
fn challenge(verifier: &SecretString) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.expose_secret().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_that_of_the_standard_s_example() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into();
        assert_eq!(challenge(&verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn a_verifier_is_new_each_time_and_long_enough() {
        let (one, other) = (super::verifier().unwrap(), super::verifier().unwrap());
        assert_ne!(one.expose_secret(), other.expose_secret());
        assert_eq!(one.expose_secret().len(), 43);
    }
}
