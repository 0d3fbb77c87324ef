//! Small questions beside the requests of a conversation: a list of models, a server's description of itself.
//!
//! They go out over the shared transport, with the profile's key, and are bounded in time and size.

use std::time::{Duration, SystemTime};

use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH};
use reqwest::{Client, StatusCode, Url};
use secrecy::ExposeSecret;
use tokio::time::timeout;

use crate::classify::{Failure, classify};
use crate::credential::Secret;
use crate::error::{ErrorClass, ProviderError};
use crate::http::authorize::{Covered, authorize};
use crate::http::failure::transport;
use crate::http::model::is_near;
use crate::http::transport::Transport;
use crate::profile::{ApiMode, Profile};

/// The version of its interface that Anthropic wants named with every request.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// True for an address on this computer or in a private network, where slow servers with settings of their own are common.
#[must_use]
pub fn is_near_address(address: &str) -> bool {
    Url::parse(address).is_ok_and(|url| is_near(&url))
}

/// Bounds of one question.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GetLimits {
    /// From its start to the last byte.
    pub time: Duration,
    /// Largest answer.
    pub bytes: usize,
}

/// What came back.
#[derive(Debug)]
pub(crate) enum Got {
    /// A new answer and its mark, when the server gave one.
    Body { bytes: Vec<u8>, etag: Option<String> },
    /// The answer with the mark that was sent is still right.
    Unchanged,
}

/// Asks one server.
pub(crate) struct Getter<'a> {
    client: Client,
    profile: &'a Profile,
    secret: &'a Secret,
    route: String,
}

impl<'a> Getter<'a> {
    /// Asks servers like the one of `url`. Reads the system's certificates when that is encrypted.
    ///
    /// # Errors
    /// Class `Configuration` or `Certificate`.
    pub(crate) async fn new(
        profile: &'a Profile,
        secret: &'a Secret,
        url: &Url,
        transport: &Transport,
    ) -> Result<Self, ProviderError> {
        let clients = transport.clients(url).await?;
        Ok(Self { client: clients.pooled.clone(), profile, secret, route: profile.id.clone() })
    }

    /// One question. `etag` is the mark of the answer that the caller has.
    ///
    /// # Errors
    /// [`ProviderError`] with its class; `Limit` when the answer is too large, `Timeout` when it is late.
    pub(crate) async fn get(&self, url: &Url, etag: Option<&str>, limits: GetLimits) -> Result<Got, ProviderError> {
        let late = || {
            let message = format!("{}: no answer within {:.1} s", self.route, limits.time.as_secs_f64());
            self.of_route(ProviderError::new(ErrorClass::Timeout, message))
        };
        timeout(limits.time, self.get_patiently(url, etag, limits.bytes)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn get_patiently(&self, url: &Url, etag: Option<&str>, max_bytes: usize) -> Result<Got, ProviderError> {
        let texts = self.secret.texts();
        let secrets: Vec<&str> = texts.iter().map(ExposeSecret::expose_secret).collect();
        let endpoint = url.origin().ascii_serialization();
        let lost = |error| transport(error, &endpoint, &self.route, &secrets);
        let mut response = self.client.get(url.clone()).headers(self.headers(url, etag)?).send().await.map_err(lost)?;
        let status = response.status();
        if status == StatusCode::NOT_MODIFIED && etag.is_some() {
            return Ok(Got::Unchanged);
        }
        let mark = response.headers().get("etag").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let headers = response.headers().clone();
        let mut body = Vec::new();
        while let Some(bytes) = response.chunk().await.map_err(lost)? {
            if body.len() + bytes.len() > max_bytes {
                let message = format!("{}: the answer is larger than {max_bytes} bytes", self.route);
                return Err(self.of_route(ProviderError::new(ErrorClass::Limit, message)));
            }
            body.extend_from_slice(&bytes);
        }
        if status.is_success() {
            return Ok(Got::Body { bytes: body, etag: mark });
        }
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Err(classify(&Failure {
            status: Some(status.as_u16()),
            headers: &header,
            body: &body,
            aggregator: false,
            now: SystemTime::now(),
            route: &self.route,
            secrets: &secrets,
        }))
    }

    fn headers(&self, url: &Url, etag: Option<&str>) -> Result<HeaderMap, ProviderError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        for (name, value) in &self.profile.headers {
            // An illegal one is told when a model is made.
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
                headers.insert(name, value);
            }
        }
        if self.profile.api_mode == ApiMode::AnthropicMessages {
            headers.insert("anthropic-version", HeaderValue::from_static(ANTHROPIC_VERSION));
        }
        if let Some(value) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            headers.insert(IF_NONE_MATCH, value);
        }
        authorize(self.profile, self.secret, &mut headers, Covered::get(url)).map_err(|what| {
            let message = format!("{}: {what}", self.profile.name);
            self.of_route(ProviderError::new(ErrorClass::Configuration, message))
        })?;
        Ok(headers)
    }

    fn of_route(&self, mut error: ProviderError) -> ProviderError {
        error.route.clone_from(&self.route);
        error
    }
}

#[cfg(test)]
mod tests {
    use super::is_near_address;

    #[test]
    fn near_is_this_computer_and_private_networks() {
        for near in ["http://127.0.0.1:8080/v1", "http://localhost", "http://192.168.1.5/v1", "http://[::1]:1/"] {
            assert!(is_near_address(near), "{near}");
        }
        for far in ["https://api.openai.com/v1", "http://8.8.8.8", "no address", ""] {
            assert!(!is_near_address(far), "{far}");
        }
    }
}
