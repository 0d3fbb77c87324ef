//! What an HTTP model is made of.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use crate::credential::Credentials;
use crate::http::transport::Transport;
use crate::profile::{ApiMode, Profile};

/// For the TCP and TLS handshakes.
pub const CONNECT_TIMEOUT_MS: u64 = 30_000;
/// From the request to the head of the response. Hosted models queue for a while under load.
pub const FIRST_BYTE_TIMEOUT_MS: u64 = 180_000;
/// Between two bytes of any kind, pings and comments among them.
pub const IDLE_TIMEOUT_MS: u64 = 120_000;
/// Between two changes of the answer: pings and comments do not count.
pub const PROGRESS_TIMEOUT_MS: u64 = 180_000;
/// Servers on the user's own computer may evaluate a long prompt for a quarter of an hour.
pub const LOCAL_TIMEOUT_MS: u64 = 900_000;
/// For a whole answer without streaming.
pub const WHOLE_TIMEOUT_MS: u64 = 600_000;
/// For a request from start to end.
pub const TOTAL_TIMEOUT_MS: u64 = 1_800_000;
/// Largest request. More than any provider takes.
pub const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;
/// Largest response, all bytes of the body counted. It is never compressed, so this is what memory may be asked for.
pub const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;

const _: () = assert!(IDLE_TIMEOUT_MS <= PROGRESS_TIMEOUT_MS);
const _: () = assert!(LOCAL_TIMEOUT_MS < TOTAL_TIMEOUT_MS && WHOLE_TIMEOUT_MS < TOTAL_TIMEOUT_MS);

/// The clocks of one request. The answer ends with class `Timeout` when one of them runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the head of the response.
    pub first_byte: Duration,
    /// Between two bytes.
    pub idle: Duration,
    /// Between two changes of the answer.
    pub progress: Duration,
    /// A whole answer without streaming, instead of the three above.
    pub whole: Duration,
    /// Everything together.
    pub total: Duration,
    /// Whether a model's family, the effort and the size of a prompt make `first_byte`, `idle` and `progress` longer.
    pub adapts: bool,
}

impl Timeouts {
    /// For a hosted provider.
    #[must_use]
    pub const fn hosted() -> Self {
        Self {
            first_byte: Duration::from_millis(FIRST_BYTE_TIMEOUT_MS),
            idle: Duration::from_millis(IDLE_TIMEOUT_MS),
            progress: Duration::from_millis(PROGRESS_TIMEOUT_MS),
            whole: Duration::from_millis(WHOLE_TIMEOUT_MS),
            total: Duration::from_millis(TOTAL_TIMEOUT_MS),
            adapts: true,
        }
    }

    /// The same, none of whose clocks runs out before `patience` does.
    #[must_use]
    pub fn at_least(self, patience: Duration) -> Self {
        let longer = |clock: Duration| clock.max(patience);
        Self {
            first_byte: longer(self.first_byte),
            idle: longer(self.idle),
            progress: longer(self.progress),
            whole: longer(self.whole),
            total: longer(self.total),
            adapts: self.adapts,
        }
    }

    /// The same for a request that needs this long, where they adapt. Everything together stays as it is.
    #[must_use]
    pub fn raised(self, floor: Duration) -> Self {
        if !self.adapts {
            return self;
        }
        let longer = |clock: Duration| clock.max(floor);
        Self {
            first_byte: longer(self.first_byte),
            idle: longer(self.idle),
            progress: longer(self.progress),
            whole: longer(self.whole),
            ..self
        }
    }

    /// For a server on the user's own computer.
    #[must_use]
    pub const fn local() -> Self {
        let slow = Duration::from_millis(LOCAL_TIMEOUT_MS);
        Self { first_byte: slow, idle: slow, progress: slow, whole: slow, ..Self::hosted() }
    }
}

/// What [`HttpChatModel`](crate::HttpChatModel) needs. Start from [`new`](Self::new) and set what differs.
#[derive(Clone)]
pub struct HttpModelConfig {
    /// The provider.
    pub profile: Arc<Profile>,
    /// Where requests go, without the method's path; `None`: where the profile says.
    pub base_url: Option<String>,
    /// The model's name at the provider.
    pub model: String,
    /// The wire, where the user names one; `None`: what the host is known for, else what the profile says.
    pub api_mode: Option<ApiMode>,
    /// The key, when there is one and no more.
    pub key: Option<SecretString>,
    /// Who says which key is used, instead of `key`.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// `None`: by where the server is.
    pub timeouts: Option<Timeouts>,
    /// Most tokens of input and output together, when known.
    pub context_window: Option<u64>,
    /// Most tokens of output, when known.
    pub max_output_tokens: Option<u64>,
    /// The way to servers, shared by all models of a process; `None`: one of its own.
    pub transport: Option<Transport>,
    /// False for a model that cannot see, when that is known: pictures become words. `None`: as the profile says.
    pub sees_images: Option<bool>,
    /// Largest response in bytes.
    pub max_response_bytes: usize,
}

impl HttpModelConfig {
    /// Everything as the profile says, without a key.
    #[must_use]
    pub fn new(profile: Arc<Profile>, model: impl Into<String>) -> Self {
        Self {
            profile,
            base_url: None,
            model: model.into(),
            api_mode: None,
            key: None,
            credentials: None,
            timeouts: None,
            context_window: None,
            max_output_tokens: None,
            transport: None,
            sees_images: None,
            max_response_bytes: MAX_RESPONSE_BYTES,
        }
    }
}

impl fmt::Debug for HttpModelConfig {
    /// Leaves the key out, and addresses too, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpModelConfig")
            .field("provider", &self.profile.id)
            .field("model", &self.model)
            .field("key", &self.key.as_ref().map(|_| "set"))
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}
