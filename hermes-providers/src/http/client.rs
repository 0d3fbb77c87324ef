//! HTTP clients: rustls with ring, HTTP/2 where the server offers it, no proxy unless asked, no key to another host.
//!
//! A client for `http://` loads no root certificates, because reading them costs more than the rest of a short program's
//! start. A client for `https://` is built with the first request, on a thread that may block. Compressed answers are not
//! asked for, so no answer grows when it is read.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, ClientBuilder, NoProxy, Proxy, StatusCode, Url, redirect};
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};

use crate::error::{ErrorClass, ProviderError};
use crate::http::config::CONNECT_TIMEOUT_MS;

/// Most redirects of one request; all stay on the same origin.
const MAX_REDIRECTS: usize = 3;
/// Idle connections are closed after this time. Shorter than most servers' own limit, so that a request seldom meets a
/// connection that the server is just closing.
const POOL_IDLE_MS: u64 = 50_000;
/// An HTTP/2 connection on which an answer is awaited is asked for a sign of life this often,
const PING_INTERVAL_MS: u64 = 30_000;
/// and given up when none comes for so long.
const PING_TIMEOUT_MS: u64 = 20_000;
/// Most certificates of an own authority's file.
const MAX_EXTRA_ROOTS: usize = 1024;
/// What is never asked for through a proxy: this computer, and addresses that exist on its own link only, where clouds
/// answer their machines.
const NEVER_PROXIED: &str = "localhost,127.0.0.0/8,::1,169.254.0.0/16,fe80::/10,fd00:ec2::/32";
/// Longest handshake before a token is asked for. Well below the time for the whole exchange, so that a server that cannot
/// be reached is told apart from one that may have got the token.
const TOKEN_CONNECT_MAX_MS: u64 = 10_000;

/// How servers are reached. The default: directly, and the system's certificates are trusted.
#[derive(Clone)]
pub struct Network {
    /// URL of a proxy (`http://` or `https://`, a name and a password before the host when it wants them). Proxies that
    /// the system's environment names are not used unless they are put here. This computer is never asked for there.
    pub proxy: Option<SecretString>,
    /// Hosts that are reached directly all the same: names (with all below them), addresses, networks (`10.0.0.0/8`).
    pub no_proxy: Vec<String>,
    /// Certificates of authorities that are trusted beside the system's, as PEM.
    pub extra_roots_pem: Vec<u8>,
    /// For the TCP and TLS handshakes.
    pub connect: Duration,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            proxy: None,
            no_proxy: Vec::new(),
            extra_roots_pem: Vec::new(),
            connect: Duration::from_millis(CONNECT_TIMEOUT_MS),
        }
    }
}

impl fmt::Debug for Network {
    /// Leaves the proxy's address out, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("proxy", &self.proxy.as_ref().map(|_| "set"))
            .field("no_proxy", &self.no_proxy)
            .field("extra_roots_pem_bytes", &self.extra_roots_pem.len())
            .field("connect", &self.connect)
            .finish()
    }
}

impl Network {
    /// Whether a request to this URL needs certificates: to the server or to the proxy.
    pub(super) fn is_secure(&self, url: &Url) -> bool {
        let proxy = self.proxy.as_ref().map(|proxy| proxy.expose_secret().trim().to_ascii_lowercase());
        url.scheme() == "https" || proxy.is_some_and(|proxy| proxy.starts_with("https:"))
    }

    fn through_proxy(&self, builder: ClientBuilder) -> Result<ClientBuilder, ProviderError> {
        let Some(proxy) = &self.proxy else { return Ok(builder) };
        let bad = || configuration("the proxy's address is not one of the kind http://host:port");
        let url = Url::parse(proxy.expose_secret().trim()).map_err(|_| bad())?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
            return Err(bad());
        }
        let direct = std::iter::once(NEVER_PROXIED).chain(self.no_proxy.iter().map(String::as_str));
        let direct = NoProxy::from_string(&direct.collect::<Vec<_>>().join(","));
        Ok(builder.proxy(Proxy::all(url).map_err(|_| bad())?.no_proxy(direct)))
    }

    fn extra_roots(&self) -> Result<Vec<CertificateDer<'static>>, ProviderError> {
        let bad = |what: &str| {
            ProviderError::new(ErrorClass::Certificate, format!("the file of own certificate authorities {what}"))
        };
        let roots: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(&self.extra_roots_pem).take(MAX_EXTRA_ROOTS).collect();
        let roots = roots.map_err(|_| bad("is not PEM"))?;
        if roots.is_empty() && !self.extra_roots_pem.is_empty() {
            return Err(bad("holds no certificate"));
        }
        Ok(roots)
    }
}

/// A client that keeps connections, and what is needed to make one that does not.
#[derive(Debug)]
pub(super) struct Clients {
    pub(super) pooled: Client,
    tls: ClientConfig,
    network: Network,
}

impl Clients {
    /// Builds for URLs that need certificates or for those that do not. Blocks on files when `secure`.
    pub(super) fn build(secure: bool, network: &Network) -> Result<Self, ProviderError> {
        let tls = tls_config(secure, network)?;
        let pooled = finish(network.through_proxy(builder(tls.clone(), network.connect))?)?;
        Ok(Self { pooled, tls, network: network.clone() })
    }

    /// A client whose first request opens a new connection.
    pub(super) fn fresh(&self) -> Result<Client, ProviderError> {
        let builder = builder(self.tls.clone(), self.network.connect).pool_max_idle_per_host(0);
        finish(self.network.through_proxy(builder)?)
    }
}

/// A client for short looks at servers on this computer: no TLS, no redirects, no proxy.
pub(crate) fn probe_client(connect: Duration) -> Result<Client, ProviderError> {
    finish(builder(tls_config(false, &Network::default())?, connect).redirect(redirect::Policy::none()))
}

/// A client for one exchange of a token: no connection is kept, no redirect followed. Blocks on files when `secure`.
pub(super) fn token_client(secure: bool, network: &Network) -> Result<Client, ProviderError> {
    let connect = network.connect.min(Duration::from_millis(TOKEN_CONNECT_MAX_MS));
    let builder =
        builder(tls_config(secure, network)?, connect).pool_max_idle_per_host(0).redirect(redirect::Policy::none());
    finish(network.through_proxy(builder)?)
}

fn builder(tls: ClientConfig, connect: Duration) -> ClientBuilder {
    Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .connect_timeout(connect)
        .pool_idle_timeout(Duration::from_millis(POOL_IDLE_MS))
        .http2_keep_alive_interval(Duration::from_millis(PING_INTERVAL_MS))
        .http2_keep_alive_timeout(Duration::from_millis(PING_TIMEOUT_MS))
        .retry(reqwest::retry::never())
        .redirect(redirect::Policy::custom(same_origin))
        .user_agent(concat!("hermes/", env!("CARGO_PKG_VERSION")))
}

fn finish(builder: ClientBuilder) -> Result<Client, ProviderError> {
    builder
        .build()
        .map_err(|error| configuration(&format!("the HTTP client cannot be set up: {}", error.without_url())))
}

fn configuration(message: &str) -> ProviderError {
    ProviderError::new(ErrorClass::Configuration, message)
}

fn tls_config(secure: bool, network: &Network) -> Result<ClientConfig, ProviderError> {
    let provider = Arc::new(ring::default_provider());
    let certificate = |error: rustls::Error| {
        ProviderError::new(ErrorClass::Certificate, format!("the system's root certificates cannot be used: {error}"))
    };
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(certificate)?;
    let mut config = if secure {
        let roots = network.extra_roots()?;
        let verifier =
            rustls_platform_verifier::Verifier::new_with_extra_roots(roots, provider).map_err(certificate)?;
        // The name of the method is about verifiers in general; this one is the platform's own.
        config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
    } else {
        config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
    };
    // The server chooses. Without TLS, HTTP/1.1 is spoken.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
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
