//! Renews an access token, once for all processes of a home.
//!
//! A refresh token that its issuer replaces with each use must not be sent twice: whoever sends an old one may lose the
//! whole login. So who wants to send one writes down first that it will (`refresh_started` in the entry), under the lock
//! of the file; the lock is given back before the request. Others see the note and wait for its end. The answer and the
//! end of the note are one write.
//!
//! | what happened | what the file says | what is done |
//! |---|---|---|
//! | the answer came and was written | new tokens, no note | everybody uses them (B42) |
//! | the request was provably not sent, or the endpoint said "not now" | the old tokens, no note | the old access token until it ends (B45) |
//! | the endpoint refused the token for good | dead, and why | a person logs in (B44) |
//! | the process was killed, or no answer came | dead: begun then, by whom, outcome unknown | a person logs in (B43) |
//!
//! An issuer whose refresh tokens stay the same (`rotates: false`) loses nothing by a second request: a note that is left
//! over is taken over.

mod journal;
mod token;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use secrecy::{ExposeSecret as _, SecretString};

use crate::credential::file::AuthFile;
use crate::credential::{Fingerprint, Now};

use journal::{Begun, Journal};
pub(crate) use token::read as read_answer;
pub use token::{HttpTokens, TokenAnswer, TokenClient};

/// How long before its end a token is renewed, where a provider does not say (reference 5.5).
pub const SKEW_MS: i64 = 120_000;
/// Longest request to a token endpoint.
pub const TOKEN_TIMEOUT_MS: u64 = 30_000;
/// The same for a client of another kind, which has its own limit: this one is for a client without.
const ASK_TIMEOUT_MS: u64 = TOKEN_TIMEOUT_MS + 5_000;
/// How long others wait for a note's end before they take its process for dead.
pub const NOTE_TTL_MS: i64 = 60_000;
/// Between two looks at the note of another process.
const NOTE_POLL_MS: u64 = 50;

const _: () = assert!((ASK_TIMEOUT_MS as i64) < NOTE_TTL_MS);

/// Where a token is renewed.
#[derive(Clone)]
pub struct TokenEndpoint {
    /// The token endpoint (RFC 6749, 3.2).
    pub url: String,
    /// This program's id at the issuer.
    pub client_id: String,
    /// For issuers that want one even of programs that cannot keep it.
    pub client_secret: Option<SecretString>,
    /// The issuer replaces the refresh token with each use. When unsure: yes.
    pub rotates: bool,
    /// How long before its end a token is renewed, in milliseconds.
    pub skew_ms: i64,
    /// Lifetime of a note, in milliseconds; [`NOTE_TTL_MS`] but in tests.
    pub note_ttl_ms: i64,
}

impl fmt::Debug for TokenEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenEndpoint").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

/// Why a token was not renewed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RefreshFailure {
    /// Not this time; what there is stays as it is.
    #[error("{why}")]
    NotNow {
        /// Without secrets.
        why: String,
    },
    /// Never again: a person has to log in. The file says why.
    #[error("{why}")]
    Dead {
        /// Without secrets.
        why: String,
    },
}

type Running = Shared<BoxFuture<'static, Result<(), RefreshFailure>>>;

/// Renews the tokens of one file.
#[derive(Clone)]
pub struct Refresher {
    shared: Arc<Parts>,
}

struct Parts {
    journal: Journal,
    endpoint: TokenEndpoint,
    client: Arc<dyn TokenClient>,
    /// What this process is renewing. A request that is given up does not end its renewal: a token that was sent and
    /// whose answer nobody reads is lost.
    running: Mutex<HashMap<(String, String), Running>>,
}

impl fmt::Debug for Refresher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refresher").field("endpoint", &self.shared.endpoint).finish_non_exhaustive()
    }
}

impl Refresher {
    /// For the entries of `file`.
    #[must_use]
    pub fn new(file: AuthFile, endpoint: TokenEndpoint, client: Arc<dyn TokenClient>, now: Now) -> Self {
        let journal = Journal { file, now };
        Self { shared: Arc::new(Parts { journal, endpoint, client, running: Mutex::default() }) }
    }

    /// How long before its end a token is renewed.
    #[must_use]
    pub fn skew_ms(&self) -> i64 {
        self.shared.endpoint.skew_ms
    }

    /// Gets a newer access token than `old` for an entry: from the file, from another process that is getting one, or from
    /// the issuer.
    ///
    /// # Errors
    /// [`RefreshFailure`].
    pub async fn refresh(&self, provider: &str, id: &str, old: &Fingerprint) -> Result<(), RefreshFailure> {
        let key = (provider.to_owned(), id.to_owned());
        let running = {
            let mut all = self.shared.running.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, running| running.peek().is_none());
            let begin = || {
                let (parts, key, old) = (Arc::clone(&self.shared), key.clone(), old.clone());
                // Its owner is `running`; `close` waits for it.
                let task = tokio::spawn(async move { parts.renew(&key.0, &key.1, &old).await });
                let lost = |_| RefreshFailure::NotNow { why: "the renewal was given up".to_owned() };
                task.map(move |done| done.map_err(lost)?).boxed().shared()
            };
            all.entry(key.clone()).or_insert_with(begin).clone()
        };
        running.await
    }

    /// Waits for every renewal that is under way; each ends within the time of its request.
    pub async fn close(&self) {
        let all: Vec<Running> = {
            let running = self.shared.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.values().cloned().collect()
        };
        futures::future::join_all(all).await;
    }
}

impl Parts {
    async fn renew(&self, provider: &str, id: &str, old: &Fingerprint) -> Result<(), RefreshFailure> {
        loop {
            match self.journal.begin(provider, id, old, &self.endpoint).await? {
                Begun::Newer => return Ok(()),
                Begun::Another => tokio::time::sleep(Duration::from_millis(NOTE_POLL_MS)).await,
                Begun::Mine { attempt, refresh_token } => {
                    let answer = self.ask(&refresh_token).await;
                    let (spent, rotates) = (Fingerprint::of(&refresh_token), self.endpoint.rotates);
                    return self.journal.end(provider, id, &attempt, &spent, answer, rotates).await;
                }
            }
        }
    }

    async fn ask(&self, refresh_token: &SecretString) -> TokenAnswer {
        let endpoint = &self.endpoint;
        let mut form = vec![
            ("grant_type", "refresh_token".to_owned()),
            ("refresh_token", refresh_token.expose_secret().to_owned()),
            ("client_id", endpoint.client_id.clone()),
        ];
        if let Some(secret) = &endpoint.client_secret {
            form.push(("client_secret", secret.expose_secret().to_owned()));
        }
        let answer = self.client.ask(&endpoint.url, &form);
        match tokio::time::timeout(Duration::from_millis(ASK_TIMEOUT_MS), answer).await {
            Ok(answer) => answer,
            Err(_) => {
                TokenAnswer::Unknown { why: format!("the token endpoint did not answer within {ASK_TIMEOUT_MS} ms") }
            }
        }
    }
}
