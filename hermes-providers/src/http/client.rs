//! HTTP clients: rustls with ring, HTTP/1.1, no proxy unless asked, no key to another host.
//!
//! A client for `http://` loads no root certificates, because reading them costs more than the rest of a short program's
//! start. A client for `https://` is built with the first request, on a thread that may block.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, ClientBuilder, Proxy, StatusCode, Url, redirect};
use rustls::ClientConfig;
use rustls::crypto::ring;

use crate::error::{ErrorClass, ProviderError};
use crate::http::config::CONNECT_TIMEOUT_MS;

/// Most redirects of one request; all stay on the same origin.
const MAX_REDIRECTS: usize = 3;
/// Idle connections are closed after this time. Shorter than most servers' own limit, so that a request seldom meets a
/// connection that the server is just closing.
const POOL_IDLE_MS: u64 = 50_000;

/// A client that keeps connections, and what is needed to make one that does not.
#[derive(Debug)]
pub(super) struct Clients {
    pub(super) pooled: Client,
    tls: ClientConfig,
    connect: Duration,
    proxy: Option<String>,
}

impl Clients {
    /// Builds for URLs of this scheme. Blocks on files when `secure`.
    pub(super) fn build(secure: bool, connect: Duration, proxy: Option<String>) -> Result<Self, ProviderError> {
        let tls = tls_config(secure)?;
        let pooled = finish(with_proxy(builder(tls.clone(), connect), proxy.as_deref())?)?;
        Ok(Self { pooled, tls, connect, proxy })
    }

    /// A client whose first request opens a new connection.
    pub(super) fn fresh(&self) -> Result<Client, ProviderError> {
        let builder = builder(self.tls.clone(), self.connect).pool_max_idle_per_host(0);
        finish(with_proxy(builder, self.proxy.as_deref())?)
    }
}

/// A client for short looks at servers on this computer: no TLS, no redirects, no proxy.
pub(crate) fn probe_client(connect: Duration) -> Result<Client, ProviderError> {
    finish(builder(tls_config(false)?, connect).redirect(redirect::Policy::none()))
}

/// A client for one exchange of a token, with no connection kept. `secure` for an `https` address: that reads the system's
/// certificates, on a thread that may block.
pub(crate) async fn token_client(secure: bool, proxy: Option<&str>) -> Result<Client, ProviderError> {
    let proxy = proxy.map(str::to_owned);
    let build = move || {
        let builder = builder(tls_config(secure)?, Duration::from_millis(CONNECT_TIMEOUT_MS))
            .pool_max_idle_per_host(0)
            .redirect(redirect::Policy::none());
        finish(with_proxy(builder, proxy.as_deref())?)
    };
    if !secure {
        return build();
    }
    let built = tokio::task::spawn_blocking(build).await;
    built.unwrap_or_else(|_| Err(configuration("the HTTP client cannot be set up")))
}

fn builder(tls: ClientConfig, connect: Duration) -> ClientBuilder {
    Client::builder()
        .tls_backend_preconfigured(tls)
        .http1_only()
        .no_proxy()
        .connect_timeout(connect)
        .pool_idle_timeout(Duration::from_millis(POOL_IDLE_MS))
        .retry(reqwest::retry::never())
        .redirect(redirect::Policy::custom(same_origin))
        .user_agent(concat!("hermes/", env!("CARGO_PKG_VERSION")))
}

fn with_proxy(builder: ClientBuilder, proxy: Option<&str>) -> Result<ClientBuilder, ProviderError> {
    let Some(url) = proxy else { return Ok(builder) };
    let proxy = Proxy::all(url).map_err(|_| configuration("the proxy's address is not a URL"))?;
    Ok(builder.proxy(proxy))
}

fn finish(builder: ClientBuilder) -> Result<Client, ProviderError> {
    builder
        .build()
        .map_err(|error| configuration(&format!("the HTTP client cannot be set up: {}", error.without_url())))
}

fn configuration(message: &str) -> ProviderError {
    ProviderError::new(ErrorClass::Configuration, message)
}

fn tls_config(secure: bool) -> Result<ClientConfig, ProviderError> {
    let provider = Arc::new(ring::default_provider());
    let certificate = |error: rustls::Error| {
        ProviderError::new(ErrorClass::Certificate, format!("the system's root certificates cannot be used: {error}"))
    };
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(certificate)?;
    let mut config = if secure {
        let verifier = rustls_platform_verifier::Verifier::new(provider).map_err(certificate)?;
        // The name of the method is about verifiers in general; this one is the platform's own.
        config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
    } else {
        config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Follows only what keeps method, body and origin. Everything else ends with the redirect as the answer.
fn same_origin(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps_body = matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let previous = attempt.previous();
    let same = previous.last().is_some_and(|from| origin(from) == origin(attempt.url()));
    if keeps_body && same && previous.len() <= MAX_REDIRECTS { attempt.follow() } else { attempt.stop() }
}

fn origin(url: &Url) -> (&str, Option<&str>, Option<u16>) {
    (url.scheme(), url.host_str(), url.port_or_known_default())
}
