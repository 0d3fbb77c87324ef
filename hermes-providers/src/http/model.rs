//! A model behind HTTP.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::StreamExt as _;
use reqwest::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, timeout, timeout_at};

use crate::aws::clock_error_ms;
use crate::chat::{ChatModel, ChatRequest, Delta, DeltaStream, ModelInfo};
use crate::classify::{Failure, classify};
use crate::credential::{Credentials, FixedKey, Next, Outcome, Secret, Ticket};
use crate::error::{ErrorClass, ProviderError};
use crate::http::authorize::{Covered, authorize};
use crate::http::body::{Reader, Reading};
use crate::http::breaker::BREAKER_STALE_ATTEMPTS;
use crate::http::config::{HttpModelConfig, MAX_REQUEST_BYTES, Timeouts};
use crate::http::failure::{lost_before_answer, transport};
use crate::http::transport::{Host, Transport};
use crate::mode::{self, DecodeContext, Encoded, NameMap, WireOptions};
use crate::profile::{self, ApiMode, KeyRule, Profile};

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
    profile: Arc<Profile>,
    credentials: Arc<dyn Credentials>,
    route: String,
    aggregator: bool,
    timeouts: Timeouts,
    max_response_bytes: usize,
    transport: Transport,
    host: Arc<Host>,
    /// How far this computer's clock is behind the server's, in milliseconds, as far as signatures have shown it.
    clock_error_ms: AtomicI64,
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
        let credentials = match config.credentials {
            Some(credentials) => credentials,
            None => fixed(&profile, config.key, base.is_some(), &base_url)?,
        };
        let endpoint = base_url.origin().ascii_serialization();
        let transport = config.transport.unwrap_or_default();
        let at_host = || profile.mode_at(base_url.host_str().unwrap_or_default(), base_url.path(), &config.model);
        let mode = config.api_mode.unwrap_or_else(at_host);
        let timeouts = if profile.local || is_near(&base_url) { Timeouts::local() } else { Timeouts::hosted() };
        Ok(Self {
            headers: headers(&profile)?,
            wire: WireOptions {
                issuer: Arc::from(format!("{}/{}/{endpoint}/{}", mode.as_str(), profile.id, config.model)),
                model: config.model.clone(),
                quirks: wire_quirks(&profile, config.max_output_tokens, config.sees_images),
            },
            route: format!("{}/{}", profile.id, config.model),
            aggregator: profile.quirks.aggregator,
            info: ModelInfo {
                provider: profile.id.clone(),
                model: config.model,
                endpoint,
                api_mode: mode.as_str().to_owned(),
                context_window: config.context_window,
                max_output_tokens: config.max_output_tokens,
            },
            mode,
            credentials,
            timeouts: config.timeouts.unwrap_or(timeouts),
            max_response_bytes: config.max_response_bytes,
            host: transport.host(&base_url),
            transport,
            clock_error_ms: AtomicI64::new(0),
            base: base_url,
            profile,
        })
    }

    /// The request as this model takes it.
    fn encode(&self, request: &ChatRequest) -> Result<Encoded, ProviderError> {
        let repairs = self.host.repairs(&self.info.model);
        let mut encoded = mode::encode(self.mode, &repairs.request(request), &self.wire)?;
        encoded.body = repairs.body(encoded.body);
        if encoded.body.len() > MAX_REQUEST_BYTES {
            let what = format!("the request is larger than {MAX_REQUEST_BYTES} bytes; shorten the conversation");
            return Err(self.error(ErrorClass::PayloadTooLarge, &what));
        }
        Ok(encoded)
    }

    /// Whether the answer comes as a stream, as far as this model is known to give one.
    fn streams(&self, request: &ChatRequest) -> bool {
        self.host.repairs(&self.info.model).streams(request)
    }

    /// The request once more as it may pass after this refusal; `None` when nothing can be changed.
    fn repaired(&self, request: &ChatRequest, refused: &Encoded, error: &ProviderError) -> Option<Encoded> {
        let remedy = error.remedy.as_deref()?;
        let known = self.host.repairs(&self.info.model);
        self.host.set_repairs(&self.info.model, known.with(remedy, request)?);
        let again = self.encode(request).ok().filter(|again| again != refused);
        match &again {
            Some(_) => {
                tracing::info!(route = %self.route, ?remedy, "the provider refused this; it is left out from now on");
            }
            None => self.host.set_repairs(&self.info.model, known),
        }
        again
    }

    /// A response to one request that was not refused for what can be changed. Its head, at least, has arrived.
    async fn response(
        &self,
        request: &ChatRequest,
        mut encoded: Encoded,
        ticket: &Ticket,
        timeouts: &Timeouts,
        started: Instant,
    ) -> Result<Response, ProviderError> {
        let before = self.host.repairs(&self.info.model);
        let (mut is_repaired, mut knows_time) = (false, false);
        loop {
            let first_byte = if self.streams(request) { timeouts.first_byte } else { timeouts.whole };
            let response = self.send(&encoded, ticket, first_byte, started).await?;
            self.host.warmed();
            if response.status().is_success() {
                return self.readable(response);
            }
            self.host.answered();
            // A refused signature never reached the model, so this is no second attempt at it. Once.
            if !knows_time && self.learns_time(ticket, &response) {
                knows_time = true;
                continue;
            }
            let error = self.refused(ticket, response).await;
            if is_repaired {
                // It was not that.
                if matches!(error.class, ErrorClass::BadRequest | ErrorClass::Auth) {
                    self.host.set_repairs(&self.info.model, before);
                }
                return Err(error);
            }
            match self.repaired(request, &encoded, &error) {
                Some(again) => (encoded, is_repaired) = (again, true),
                None => return Err(error),
            }
        }
    }

    /// A body that is packed was not asked for, and is not unpacked: nothing says how large it would become.
    fn readable(&self, response: Response) -> Result<Response, ProviderError> {
        let packed = response.headers().get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
        if packed {
            return Err(self.error(ErrorClass::BadResponse, "the answer is compressed, which was not asked for"));
        }
        Ok(response)
    }

    /// One request until the head of its response; once more on a new connection when a kept one turned out to be
    /// closed and nothing was answered (case W9).
    async fn send(
        &self,
        encoded: &Encoded,
        ticket: &Ticket,
        first_byte: Duration,
        started: Instant,
    ) -> Result<Response, ProviderError> {
        let head = self.head(encoded, ticket)?;
        let clients = self.transport.clients(&head.0).await?;
        let limit = first_byte.min(self.timeouts.total);
        let work = async {
            let warm = self.host.is_warm();
            match post(&clients.pooled, &head, encoded).await {
                Err(error) if warm && lost_before_answer(&error) => {
                    tracing::debug!(route = %self.route, "a kept connection was closed; once more on a new one");
                    let client = clients.fresh()?;
                    post(&client, &head, encoded).await.map_err(|error| self.lost(ticket, error))
                }
                other => other.map_err(|error| self.lost(ticket, error)),
            }
        };
        match timeout_at(started + limit, work).await {
            Ok(result) => result,
            Err(_) => {
                self.host.stale();
                let seconds = limit.as_secs_f64();
                let what = format!("{} did not begin to answer within {seconds:.1} s; try again", self.info.endpoint);
                Err(self.error(ErrorClass::Timeout, &what))
            }
        }
    }

    /// Nothing is sent to a host that gave no answer again and again.
    fn admit(&self) -> Result<(), ProviderError> {
        self.host.admit().map_err(|left| {
            let seconds = left.as_secs_f64();
            let what = format!(
                "{} gave no answer {BREAKER_STALE_ATTEMPTS} times in a row and is left alone for {seconds:.0} s",
                self.info.endpoint
            );
            let mut error = self.error(ErrorClass::Unresponsive, &what);
            error.retry_after_ms = Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
            error
        })
    }

    /// Where this request goes, and all its headers.
    fn head(&self, encoded: &Encoded, ticket: &Ticket) -> Result<(Url, HeaderMap), ProviderError> {
        let base = match ticket.base_url.as_deref() {
            Some(base) => base_url(&self.profile, Some(base))?,
            None => self.base.clone(),
        };
        let url = method_url(base, encoded);
        let mut headers = self.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static(encoded.accept));
        for (name, value) in &encoded.headers {
            let value = HeaderValue::from_str(value)
                .map_err(|_| wrong(&self.profile, &format!("the header `{name}` of the request is not legal")))?;
            headers.insert(*name, value);
        }
        let covered = Covered { method: "POST", url: &url, body: &encoded.body, now: self.now() };
        authorize(&self.profile, &ticket.secret, &mut headers, covered).map_err(|what| wrong(&self.profile, what))?;
        Ok((url, headers))
    }

    /// The time by the server's clock, as far as it is known.
    fn now(&self) -> SystemTime {
        let error = self.clock_error_ms.load(Ordering::Relaxed);
        let span = Duration::from_millis(error.unsigned_abs());
        let now = SystemTime::now();
        let corrected = if error < 0 { now.checked_sub(span) } else { now.checked_add(span) };
        corrected.unwrap_or(now)
    }

    /// Whether a signature was refused because this computer's clock is wrong; then the server's counts from now on.
    fn learns_time(&self, ticket: &Ticket, response: &Response) -> bool {
        if !matches!(ticket.secret, Secret::Aws { .. }) || !response.status().is_client_error() {
            return false;
        }
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let known = self.clock_error_ms.load(Ordering::Relaxed);
        match clock_error_ms(header("x-amzn-errortype"), header("date"), self.now()) {
            Some(more) => {
                tracing::warn!(route = %self.route, ms = more, "this computer's clock is wrong; the server's is used");
                self.clock_error_ms.store(known.saturating_add(more), Ordering::Relaxed);
                true
            }
            None => false,
        }
    }

    fn lost(&self, ticket: &Ticket, error: reqwest::Error) -> ProviderError {
        with_secrets(ticket, |secrets| transport(error, &self.info.endpoint, &self.route, secrets))
    }

    /// The error of an attempt, reported and marked when another credential is there.
    async fn charged(&self, ticket: &Ticket, error: ProviderError) -> ProviderError {
        let error = charge(self.credentials.as_ref(), ticket, &self.info.model, error);
        self.credentials.settle().await;
        error
    }

    fn of_route(&self, mut error: ProviderError) -> ProviderError {
        error.route.clone_from(&self.route);
        error
    }

    fn error(&self, class: ErrorClass, what: &str) -> ProviderError {
        let mut error = ProviderError::new(class, format!("{}: {what}", self.route));
        error.route.clone_from(&self.route);
        error
    }

    /// An answer that is no success.
    async fn refused(&self, ticket: &Ticket, mut response: Response) -> ProviderError {
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
        with_secrets(ticket, |secrets| {
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
        self.admit()?;
        let encoded = self.encode(request)?;
        let effort = request.reasoning_effort.as_deref();
        let floor = profile::floor(&self.profile.patience, &self.info.model, effort, encoded.body.len());
        let timeouts = self.timeouts.raised(floor);
        let ticket = self.credentials.take(&self.info.model).await.map_err(|error| self.of_route(error))?;
        let response = match self.response(request, encoded, &ticket, &timeouts, started).await {
            Ok(response) => response,
            Err(error) => return Err(self.charged(&ticket, error).await),
        };
        let decoder = mode::decoder(
            self.mode,
            DecodeContext {
                names: NameMap::new(&request.tools),
                issuer: Arc::clone(&self.wire.issuer),
                route: self.route.clone(),
                aggregator: self.aggregator,
                stream: request.stream,
                secrets: ticket.secret.texts(),
            },
        );
        let reading = Reading {
            timeouts,
            host: Arc::clone(&self.host),
            stream: self.streams(request),
            route: self.route.clone(),
            max_bytes: self.max_response_bytes,
            started,
        };
        let reader = Reader::new(response, decoder, reading);
        let (credentials, model) = (Arc::clone(&self.credentials), self.info.model.clone());
        // The ticket lives as long as the answer is read.
        let reported = reader.into_stream().map(move |item| match item {
            Ok(Delta::Done(done)) => {
                credentials.report(&ticket, &model, Outcome::Answered);
                Ok(Delta::Done(done))
            }
            Ok(delta) => Ok(delta),
            Err(error) => Err(charge(credentials.as_ref(), &ticket, &model, error)),
        });
        Ok(reported.boxed())
    }
}

/// Reports an error to the credential that was used.
fn charge(credentials: &dyn Credentials, ticket: &Ticket, model: &str, mut error: ProviderError) -> ProviderError {
    error.another_key = credentials.report(ticket, model, Outcome::Failed(&error)) == Next::Another;
    // Of several keys the one that was refused is named (B46).
    let is_its = matches!(error.class, ErrorClass::Auth | ErrorClass::Billing);
    if is_its && !error.another_key && !ticket.label.is_empty() {
        error.message = format!("{} (the credential {:?})", error.message, ticket.label);
    }
    error
}

async fn post(client: &Client, head: &(Url, HeaderMap), encoded: &Encoded) -> Result<Response, reqwest::Error> {
    let (url, headers) = head.clone();
    client.post(url).headers(headers).body(encoded.body.clone()).send().await
}

/// A base URL that names the method already is taken as it is.
fn method_url(mut url: Url, encoded: &Encoded) -> Url {
    let path = url.path().trim_end_matches('/').to_owned();
    if !path.ends_with(&encoded.path) {
        // A base URL may end in the version that the method's path begins with.
        let rest = encoded.path.strip_prefix("v1/").filter(|_| path.ends_with("/v1"));
        url.set_path(&format!("{path}/{}", rest.unwrap_or(&encoded.path)));
    }
    if !encoded.query.is_empty() {
        url.set_query(Some(encoded.query));
    }
    url
}

fn with_secrets<T>(ticket: &Ticket, work: impl FnOnce(&[&str]) -> T) -> T {
    let texts = ticket.secret.texts();
    let texts: Vec<&str> = texts.iter().map(ExposeSecret::expose_secret).collect();
    work(&texts)
}

/// The simple case: one key, or none where none is needed.
fn fixed(
    profile: &Profile,
    key: Option<SecretString>,
    is_elsewhere: bool,
    base_url: &Url,
) -> Result<Arc<dyn Credentials>, ProviderError> {
    let secret = key.map(Secret::key).unwrap_or_default();
    if profile.key == KeyRule::Required && secret.is_none() && !is_elsewhere {
        return Err(missing_key(profile));
    }
    // A key that cannot be sent is said now and not with the first request.
    authorize(profile, &secret, &mut HeaderMap::new(), Covered::get(base_url)).map_err(|what| wrong(profile, what))?;
    Ok(Arc::new(FixedKey::new(secret)))
}

/// The profile's, and what the configuration knows better.
fn wire_quirks(profile: &Profile, max_output_tokens: Option<u64>, sees_images: Option<bool>) -> crate::profile::Quirks {
    let mut quirks = profile.quirks.clone();
    quirks.messages.max_output_tokens = max_output_tokens;
    quirks.is_blind = sees_images == Some(false);
    quirks
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

fn headers(profile: &Profile) -> Result<HeaderMap, ProviderError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in &profile.headers {
        let parsed = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(value).ok());
        let Some((name, value)) = parsed else {
            return Err(wrong(profile, &format!("the header `{name}` of the profile is not legal")));
        };
        headers.insert(name, value);
    }
    Ok(headers)
}

/// True for this computer and private networks, where slow servers are common.
pub(super) fn is_near(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified(),
        Ok(IpAddr::V6(ip)) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
        Err(_) => host == "localhost" || host.ends_with(".localhost") || host.ends_with(".local"),
    }
}
