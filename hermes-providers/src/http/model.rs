//! A model behind HTTP.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout, timeout_at};

use crate::chat::{ChatModel, ChatRequest, DeltaStream, ModelInfo};
use crate::classify::{Failure, classify};
use crate::error::{ErrorClass, ProviderError};
use crate::http::body::Reader;
use crate::http::client::Clients;
use crate::http::config::{HttpModelConfig, Timeouts};
use crate::http::failure::{lost_before_answer, transport};
use crate::mode::{self, DecodeContext, Encoded, NameMap, WireOptions};
use crate::profile::{ApiMode, AuthHeader, KeyRule, Profile};

/// Most bytes of an error answer that are read.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// How long an error answer may take to arrive.
const ERROR_BODY_TIMEOUT_MS: u64 = 10_000;

/// A model over HTTP, whatever its wire. Cheap to make: nothing is opened, read or resolved before the first request.
///
/// ```
/// use hermes_providers::{ChatModel, HttpChatModel, HttpModelConfig, Profiles};
///
/// let profiles = Profiles::bundled()?;
/// let profile = profiles.get("llama.cpp").ok_or("no such provider")?;
/// let model = HttpChatModel::new(HttpModelConfig::new(profile.clone(), "smollm2"))?;
/// assert_eq!(model.info().endpoint, "http://127.0.0.1:8080");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HttpChatModel {
    info: ModelInfo,
    mode: ApiMode,
    wire: WireOptions,
    /// Where requests go, without the method's path.
    base: Url,
    headers: HeaderMap,
    key: Option<SecretString>,
    route: String,
    aggregator: bool,
    timeouts: Timeouts,
    max_response_bytes: usize,
    proxy: Option<String>,
    clients: OnceCell<Clients>,
    /// A response was read before, so a connection may be a kept one.
    warm: AtomicBool,
}

impl fmt::Debug for HttpChatModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpChatModel").field("info", &self.info).finish_non_exhaustive()
    }
}

impl HttpChatModel {
    /// A model as configured.
    ///
    /// # Errors
    /// Class `Configuration` when the address is not usable, the model has no name, or a needed key is missing.
    pub fn new(config: HttpModelConfig) -> Result<Self, ProviderError> {
        let profile = config.profile;
        let base = config.base_url.as_deref().map(str::trim).filter(|base| !base.is_empty());
        let base_url = base_url(&profile, base)?;
        if config.model.trim().is_empty() {
            return Err(wrong(&profile, "no model is named; set `model.default` in config.yaml or use -m"));
        }
        let key = config.key.filter(|key| !key.expose_secret().trim().is_empty());
        if profile.key == KeyRule::Required && key.is_none() && base.is_none() {
            return Err(missing_key(&profile));
        }
        let endpoint = base_url.origin().ascii_serialization();
        let timeouts = if profile.local || is_near(&base_url) { Timeouts::local() } else { Timeouts::hosted() };
        Ok(Self {
            headers: headers(&profile, key.as_ref())?,
            wire: WireOptions {
                issuer: Arc::from(format!("{}/{}/{endpoint}/{}", profile.api_mode.as_str(), profile.id, config.model)),
                model: config.model.clone(),
                quirks: profile.quirks.clone(),
            },
            route: format!("{}/{}", profile.id, config.model),
            aggregator: profile.quirks.aggregator,
            info: ModelInfo {
                provider: profile.id.clone(),
                model: config.model,
                endpoint,
                api_mode: profile.api_mode.as_str().to_owned(),
                context_window: config.context_window,
                max_output_tokens: config.max_output_tokens,
            },
            mode: profile.api_mode,
            base: base_url,
            key,
            timeouts: config.timeouts.unwrap_or(timeouts),
            max_response_bytes: config.max_response_bytes,
            proxy: config.proxy,
            clients: OnceCell::new(),
            warm: AtomicBool::new(false),
        })
    }

    async fn clients(&self) -> Result<&Clients, ProviderError> {
        let secure =
            self.base.scheme() == "https" || self.proxy.as_deref().is_some_and(|proxy| proxy.starts_with("https"));
        let (connect, proxy) = (self.timeouts.connect, self.proxy.clone());
        let build = || async move {
            if !secure {
                return Clients::build(false, connect, proxy);
            }
            // Reads the system's certificates.
            let built = tokio::task::spawn_blocking(move || Clients::build(true, connect, proxy)).await;
            built.unwrap_or_else(|_| {
                Err(ProviderError::new(ErrorClass::Configuration, "the HTTP client cannot be set up"))
            })
        };
        self.clients.get_or_try_init(build).await
    }

    /// One request until the head of its response; once more on a new connection when a kept one turned out to be
    /// closed and nothing was answered (case W9).
    async fn send(&self, encoded: &Encoded, first_byte: Duration, started: Instant) -> Result<Response, ProviderError> {
        let clients = self.clients().await?;
        let limit = first_byte.min(self.timeouts.total);
        let work = async {
            let warm = self.warm.load(Ordering::Relaxed);
            match self.post(&clients.pooled, encoded).await {
                Err(error) if warm && lost_before_answer(&error) => {
                    tracing::debug!(route = %self.route, "a kept connection was closed; once more on a new one");
                    let client = clients.fresh()?;
                    self.post(&client, encoded).await.map_err(|error| self.lost(error))
                }
                other => other.map_err(|error| self.lost(error)),
            }
        };
        match timeout_at(started + limit, work).await {
            Ok(result) => result,
            Err(_) => {
                let seconds = limit.as_secs_f64();
                let what = format!("{} did not begin to answer within {seconds:.1} s; try again", self.info.endpoint);
                Err(self.error(ErrorClass::Timeout, &what))
            }
        }
    }

    async fn post(&self, client: &Client, encoded: &Encoded) -> Result<Response, reqwest::Error> {
        let mut request = client.post(self.url(encoded)).headers(self.headers.clone());
        request = request.header(ACCEPT, encoded.accept);
        for (name, value) in &encoded.headers {
            request = request.header(*name, value);
        }
        request.body(encoded.body.clone()).send().await
    }

    /// Where this request goes. A base URL that names the method already is taken as it is.
    fn url(&self, encoded: &Encoded) -> Url {
        let mut url = self.base.clone();
        let path = url.path().trim_end_matches('/').to_owned();
        if !path.ends_with(&encoded.path) {
            url.set_path(&format!("{path}/{}", encoded.path));
        }
        if !encoded.query.is_empty() {
            url.set_query(Some(encoded.query));
        }
        url
    }

    fn lost(&self, error: reqwest::Error) -> ProviderError {
        self.with_secrets(|secrets| transport(error, &self.info.endpoint, &self.route, secrets))
    }

    fn with_secrets<T>(&self, work: impl FnOnce(&[&str]) -> T) -> T {
        match &self.key {
            Some(key) => work(&[key.expose_secret()]),
            None => work(&[]),
        }
    }

    fn error(&self, class: ErrorClass, what: &str) -> ProviderError {
        let mut error = ProviderError::new(class, format!("{}: {what}", self.route));
        error.route.clone_from(&self.route);
        error
    }

    /// An answer that is no success.
    async fn refused(&self, mut response: Response) -> ProviderError {
        let status = response.status();
        if status.is_redirection() {
            let host = |url: &Url| url.host_str().unwrap_or_default().to_owned();
            let location = response.headers().get("location").and_then(|value| value.to_str().ok());
            let target = location.and_then(|to| self.base.join(to).ok()).map(|url| host(&url)).unwrap_or_default();
            let what = format!(
                "{} redirects to `{target}`, where the key is not sent; put the right address into `base_url`",
                self.info.endpoint
            );
            let mut error = self.error(ErrorClass::Configuration, &what);
            error.status = Some(status.as_u16());
            return error;
        }
        let mut body = Vec::new();
        let read = async {
            while let Ok(Some(bytes)) = response.chunk().await {
                let room = MAX_ERROR_BYTES - body.len();
                body.extend_from_slice(&bytes[..bytes.len().min(room)]);
                if body.len() == MAX_ERROR_BYTES {
                    break;
                }
            }
        };
        // What has arrived by then is enough to say something.
        let _ = timeout(Duration::from_millis(ERROR_BODY_TIMEOUT_MS), read).await;
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        self.with_secrets(|secrets| {
            classify(&Failure {
                status: Some(status.as_u16()),
                headers: &header,
                body: &body,
                aggregator: self.aggregator,
                now: SystemTime::now(),
                route: &self.route,
                secrets,
            })
        })
    }
}

#[async_trait]
impl ChatModel for HttpChatModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        let started = Instant::now();
        let encoded = mode::encode(self.mode, request, &self.wire)?;
        let first_byte = if request.stream { self.timeouts.first_byte } else { self.timeouts.whole };
        let response = self.send(&encoded, first_byte, started).await?;
        self.warm.store(true, Ordering::Relaxed);
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let decoder = mode::decoder(
            self.mode,
            DecodeContext {
                names: NameMap::new(&request.tools),
                issuer: Arc::clone(&self.wire.issuer),
                route: self.route.clone(),
                aggregator: self.aggregator,
                stream: request.stream,
                secrets: self.key.clone().into_iter().collect(),
            },
        );
        let route = self.route.clone();
        let reader =
            Reader::new(response, decoder, self.timeouts, request.stream, route, self.max_response_bytes, started);
        Ok(reader.into_stream())
    }
}

fn wrong(profile: &Profile, what: &str) -> ProviderError {
    let mut error = ProviderError::new(ErrorClass::Configuration, format!("{}: {what}", profile.name));
    error.route.clone_from(&profile.id);
    error
}

fn missing_key(profile: &Profile) -> ProviderError {
    let names = profile.env_keys.join(" or ");
    let from = profile.signup_url.as_deref().map(|url| format!(" (get one at {url})")).unwrap_or_default();
    wrong(profile, &format!("no API key; set {names} in .env{from}, or name another model with -m or model.default"))
}

fn base_url(profile: &Profile, base: Option<&str>) -> Result<Url, ProviderError> {
    let base = base.unwrap_or(&profile.base_url);
    if base.is_empty() {
        return Err(wrong(profile, "no address; set `model.base_url` in config.yaml, e.g. http://127.0.0.1:8080/v1"));
    }
    let bad = || wrong(profile, "`base_url` is not an address of the kind https://host/v1");
    let mut url = Url::parse(base).map_err(|_| bad())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(bad());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong(profile, "`base_url` must not hold a user name or password; give the key as `api_key`"));
    }
    url.set_fragment(None);
    Ok(url)
}

fn headers(profile: &Profile, key: Option<&SecretString>) -> Result<HeaderMap, ProviderError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in &profile.headers {
        let parsed = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(value).ok());
        let Some((name, value)) = parsed else {
            return Err(wrong(profile, &format!("the header `{name}` of the profile is not legal")));
        };
        headers.insert(name, value);
    }
    if let Some(key) = key {
        let key = key.expose_secret().trim();
        let (name, text) = match profile.auth_header {
            AuthHeader::Bearer => (AUTHORIZATION, format!("Bearer {key}")),
            AuthHeader::XApiKey => (HeaderName::from_static("x-api-key"), key.to_owned()),
            AuthHeader::XGoogApiKey => (HeaderName::from_static("x-goog-api-key"), key.to_owned()),
        };
        let mut value = HeaderValue::from_str(&text)
            .map_err(|_| wrong(profile, "the API key holds a character that no key has; copy it once more"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// True for this computer and private networks, where slow servers are common.
fn is_near(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified(),
        Ok(IpAddr::V6(ip)) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
        Err(_) => host == "localhost" || host.ends_with(".localhost") || host.ends_with(".local"),
    }
}
