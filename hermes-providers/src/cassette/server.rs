//! The server that records or replays.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Url};
use secrecy::SecretString;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::cassette::file::{Answered, Asked, Exchange, Piece, Tape};
use crate::cassette::redact::Redactor;
use crate::cassette::{CassetteError, MAX_CASSETTE_BODY_BYTES};
use crate::http::Transport;
use crate::loopback::{Arrived, Connection, Serve, accept};

/// The status of an answer for which nothing was recorded.
const STATUS_UNMATCHED: u16 = 501;
/// The status when the real server cannot be reached.
const STATUS_UNREACHABLE: u16 = 502;
/// Headers that belong to one connection, or that the other side sets itself.
const OF_THE_CONNECTION: &[&str] =
    &["host", "connection", "content-length", "transfer-encoding", "accept-encoding", "keep-alive", "te", "upgrade"];

/// What happened while a cassette ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CassetteReport {
    /// Exchanges that were recorded or replayed.
    pub exchanges: usize,
    /// Exchanges of the file that nobody asked for.
    pub unused: usize,
    /// True when the file was written.
    pub recorded: bool,
}

/// A server on the loopback that records a conversation with a real one, or replays it.
///
/// Its tasks end when it is dropped; [`finish`](Self::finish) writes the file, or says which requests had no answer.
#[derive(Debug)]
pub struct Cassette {
    file: PathBuf,
    port: u16,
    base_path: String,
    shared: Arc<Shared>,
    /// Accepts; owns the tasks of its connections.
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    upstream: Option<(Client, Url)>,
    /// Held for small changes only, never over an await.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tape: Tape,
    /// Which exchanges were replayed.
    used: Vec<bool>,
    in_order: bool,
    unmatched: Vec<String>,
    redactor: Redactor,
}

impl Cassette {
    /// Replays when the file is there, records when it is not.
    ///
    /// # Errors
    /// As [`replay`](Self::replay) and [`record`](Self::record).
    pub async fn open(file: impl AsRef<Path>, upstream: &str, secrets: &[SecretString]) -> Result<Self, CassetteError> {
        match tokio::fs::try_exists(&file).await {
            Ok(true) => Ok(Self::replay(file).await?.hiding(secrets)),
            Ok(false) => Self::record(file, upstream, secrets).await,
            Err(source) => Err(CassetteError::File { file: file.as_ref().to_owned(), source }),
        }
    }

    /// Answers from the file. A request gets the first unused answer to the same request.
    ///
    /// # Errors
    /// The file cannot be read or is no cassette, or there is no port.
    pub async fn replay(file: impl AsRef<Path>) -> Result<Self, CassetteError> {
        let tape = Tape::load(file.as_ref()).await?;
        Self::start(file.as_ref(), tape, None, Redactor::default()).await
    }

    /// Passes requests on to `upstream` (scheme, host, and path as in a base URL) and keeps both sides. `secrets` are texts
    /// that must not be in the file, beside the credentials that are sent.
    ///
    /// # Errors
    /// The address is none, or there is no client for it, or no port.
    pub async fn record(
        file: impl AsRef<Path>,
        upstream: &str,
        secrets: &[SecretString],
    ) -> Result<Self, CassetteError> {
        let wrong =
            || CassetteError::Upstream("the real server's address is not of the kind https://host/v1".to_owned());
        let mut url = Url::parse(upstream).map_err(|_| wrong())?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
            return Err(wrong());
        }
        let base_path = url.path().trim_end_matches('/').to_owned();
        let client = Transport::default().token_client(&url).await;
        let client = client.map_err(|error| CassetteError::Upstream(error.message))?;
        url.set_path("");
        url.set_query(None);
        Self::start(file.as_ref(), Tape::new(base_path), Some((client, url)), Redactor::new(secrets)).await
    }

    async fn start(
        file: &Path,
        tape: Tape,
        upstream: Option<(Client, Url)>,
        redactor: Redactor,
    ) -> Result<Self, CassetteError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(CassetteError::Server)?;
        let port = listener.local_addr().map_err(CassetteError::Server)?.port();
        let base_path = tape.base_path.clone();
        let used = vec![false; tape.exchanges.len()];
        let state = State { tape, used, in_order: false, unmatched: Vec::new(), redactor };
        let shared = Arc::new(Shared { upstream, state: Mutex::new(state) });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { file: file.to_owned(), port, base_path, shared, tasks })
    }

    /// Replays the answers one after the other, whatever is asked: for requests that hold times or random numbers.
    #[must_use]
    pub fn in_order(self) -> Self {
        self.shared.state().in_order = true;
        self
    }

    /// Texts that were replaced in the file stand in today's requests as themselves: those that were named when it was
    /// recorded must be named again. Credentials need not be.
    #[must_use]
    pub fn hiding(self, secrets: &[SecretString]) -> Self {
        self.shared.state().redactor.add_all(secrets);
        self
    }

    /// What to use as the base URL.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, self.base_path)
    }

    /// True while it records.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.shared.upstream.is_some()
    }

    /// Ends the server. A recording is written; answers that are not whole by now are left out.
    ///
    /// # Errors
    /// [`CassetteError::Unmatched`] when requests had no recorded answer, or the file cannot be written.
    pub async fn finish(mut self) -> Result<CassetteReport, CassetteError> {
        self.tasks.shutdown().await;
        let (clean, report) = {
            let state = self.shared.state();
            if !state.unmatched.is_empty() {
                return Err(CassetteError::Unmatched { requests: state.unmatched.clone() });
            }
            let unused = state.used.iter().filter(|used| !**used).count();
            let exchanges = state.tape.exchanges.len() - if self.is_recording() { 0 } else { unused };
            let unused = if self.is_recording() { 0 } else { unused };
            let report = CassetteReport { exchanges, unused, recorded: self.is_recording() };
            if !report.recorded {
                return Ok(report);
            }
            let clean = state.redactor.clean(&state.tape);
            // Looked at once more as a whole: a secret in a place that nobody thought of must not be written.
            let text = serde_json::to_vec(&clean).unwrap_or_default();
            if state.redactor.is_in(&text) {
                return Err(CassetteError::Secret("in a place that is not cleaned"));
            }
            (clean, report)
        };
        clean.save(&self.file).await?;
        Ok(report)
    }
}

impl Serve for Shared {
    async fn serve(&self, connection: &mut Connection, arrived: Arrived) -> io::Result<()> {
        let headers = self.state().redactor.learn(&arrived.headers, &arrived.target);
        let request = Asked {
            method: arrived.method.clone(),
            target: arrived.target.clone(),
            headers,
            body: Piece::of(&arrived.body),
        };
        match &self.upstream {
            Some((client, url)) => self.pass_on(client, url, connection, arrived, request).await,
            None => self.answer(connection, request).await,
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, connection: &mut Connection, mut request: Asked) -> io::Result<()> {
        let found = {
            let mut state = self.state();
            state.redactor.clone().clean_request(&mut request);
            state.find(&request)
        };
        let Some(answer) = found else {
            let what = format!("the cassette has no answer for {}", request.line());
            return problem(connection, STATUS_UNMATCHED, &what).await;
        };
        connection.begin(answer.status, &answer.headers).await?;
        for piece in answer.pieces.iter().filter_map(Piece::bytes) {
            connection.piece(&piece).await?;
        }
        connection.end().await
    }

    async fn pass_on(
        &self,
        client: &Client,
        url: &Url,
        connection: &mut Connection,
        arrived: Arrived,
        request: Asked,
    ) -> io::Result<()> {
        let target = format!("{}{}", url.as_str().trim_end_matches('/'), arrived.target);
        let method = Method::from_bytes(arrived.method.as_bytes()).unwrap_or(Method::POST);
        let sent = client.request(method, target).headers(passed_on(&arrived.headers)).body(arrived.body).send().await;
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => {
                let what = format!("the real server cannot be reached: {}", error.without_url());
                return problem(connection, STATUS_UNREACHABLE, &what).await;
            }
        };
        let status = response.status().as_u16();
        let headers: BTreeMap<String, String> = response
            .headers()
            .iter()
            .filter(|(name, _)| Redactor::keeps_of_answer(name.as_str()))
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
            .collect();
        connection.begin(status, &headers).await?;
        let (mut pieces, mut size) = (Vec::new(), 0);
        while let Some(bytes) = response.chunk().await.map_err(|error| io::Error::other(error.without_url()))? {
            size += bytes.len();
            if size > MAX_CASSETTE_BODY_BYTES {
                return Err(io::Error::other("the answer is too large for a cassette"));
            }
            connection.piece(&bytes).await?;
            pieces.push(Piece::of(&bytes));
        }
        // Kept before its end is told: who has seen the end may finish the cassette.
        let response = Answered { status, headers, pieces };
        self.state().tape.exchanges.push(Exchange { request, response });
        connection.end().await
    }
}

impl State {
    /// The answer that comes next for this request.
    fn find(&mut self, request: &Asked) -> Option<Answered> {
        let unused = |at: &usize| self.used.get(*at) == Some(&false);
        let mut places = (0..self.tape.exchanges.len()).filter(unused);
        let fits = |at: &usize| {
            self.in_order || self.tape.exchanges.get(*at).is_some_and(|exchange| exchange.request.is_like(request))
        };
        let Some(at) = places.find(fits) else {
            self.unmatched.push(request.line());
            return None;
        };
        if let Some(used) = self.used.get_mut(at) {
            *used = true;
        }
        self.tape.exchanges.get(at).map(|exchange| exchange.response.clone())
    }
}

/// An answer of the cassette itself, in the shape that most providers give errors.
async fn problem(connection: &mut Connection, status: u16, what: &str) -> io::Result<()> {
    let headers = BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())]);
    connection.begin(status, &headers).await?;
    connection.piece(json!({"error": {"message": what, "type": "cassette"}}).to_string().as_bytes()).await?;
    connection.end().await
}

fn passed_on(headers: &[(String, String)]) -> HeaderMap {
    let legal = headers.iter().filter(|(name, _)| !OF_THE_CONNECTION.contains(&name.as_str()));
    legal
        .filter_map(|(name, value)| {
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?))
        })
        .collect()
}
