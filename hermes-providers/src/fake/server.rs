//! The server: finds what a request means to ask, and has it answered by its wire.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::fake::written::Written;
use crate::fake::{
    FakeAnswer, FakeError, FakeErrorKind, FakeRequest, FakeScript, anthropic_messages, bedrock_converse,
    chat_completions, gemini, responses,
};
use crate::loopback::{Arrived, Connection, Serve, accept};
use crate::profile::ApiMode;

/// Requests that are kept for [`FakeServer::seen`]; the oldest go first.
pub const FAKE_SEEN_MAX: usize = 1024;

/// A running server. It ends with this value.
#[derive(Debug)]
pub struct FakeServer {
    port: u16,
    shared: Arc<Shared>,
    /// Accepts; owns the tasks of its connections.
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    script: FakeScript,
    requests: AtomicUsize,
    /// Held for small changes only, never over an await.
    seen: Mutex<VecDeque<FakeRequest>>,
}

impl FakeServer {
    /// Starts on a free port of the loopback.
    ///
    /// # Errors
    /// There is none.
    pub async fn start(script: FakeScript) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared { script, requests: AtomicUsize::new(0), seen: Mutex::default() });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { port, shared, _tasks: tasks })
    }

    /// The address, without a path: any path whose end belongs to a wire will do.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The newest requests, oldest first.
    #[must_use]
    pub fn seen(&self) -> Vec<FakeRequest> {
        self.shared.seen().iter().cloned().collect()
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, VecDeque<FakeRequest>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the script has for this request.
    fn answer(&self, request: &FakeRequest) -> FakeAnswer {
        let answers = self.script.get(request.asked.trim()).map(Vec::as_slice).unwrap_or_default();
        let mut results = request.results;
        for answer in answers {
            match results.checked_sub(answer.calls.len()) {
                Some(rest) if results > 0 && !answer.calls.is_empty() => results = rest,
                _ => return answer.clone(),
            }
        }
        let message = format!("nothing is scripted for {:?} with {} results", request.asked, request.results);
        let error = FakeError { kind: FakeErrorKind::Invalid, message, retry_after_s: None };
        FakeAnswer { error: Some(error), ..FakeAnswer::default() }
    }
}

impl Serve for Shared {
    async fn serve(&self, connection: &mut Connection, arrived: Arrived) -> io::Result<()> {
        let serial = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let line = format!("{} {}", arrived.method, arrived.target);
        let written = match FakeRequest::read(arrived, serial) {
            Some(request) => {
                let written = write(&self.answer(&request), &request);
                let mut seen = self.seen();
                if seen.len() == FAKE_SEEN_MAX {
                    seen.pop_front();
                }
                seen.push_back(request);
                written
            }
            None => Written::refused(404, &json!({"error": {"message": format!("no wire has `{line}`")}})),
        };
        let headers: Vec<(String, String)> =
            written.headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        connection.begin(written.status, headers.iter().map(|(name, value)| (name, value))).await?;
        for piece in &written.pieces {
            connection.piece(piece).await?;
        }
        connection.end().await
    }
}

/// The answer on the wire of the request.
fn write(answer: &FakeAnswer, request: &FakeRequest) -> Written {
    // An error is the whole answer when nothing comes before it, and when nothing could: whole answers have no middle.
    if let Some(error) = &answer.error
        && (!request.stream || (answer.text.is_empty() && answer.calls.is_empty() && answer.reasoning.is_empty()))
    {
        let refused = match request.mode {
            ApiMode::ChatCompletions | ApiMode::Responses => chat_completions::refused(error),
            ApiMode::AnthropicMessages => anthropic_messages::refused(error, request),
            ApiMode::Gemini => gemini::refused(error),
            ApiMode::BedrockConverse => bedrock_converse::refused(error),
        };
        return match error.retry_after_s {
            Some(seconds) => refused.with("retry-after", seconds.to_string()),
            None => refused,
        };
    }
    match request.mode {
        ApiMode::ChatCompletions => chat_completions::write(answer, request),
        ApiMode::Responses => responses::write(answer, request),
        ApiMode::AnthropicMessages => anthropic_messages::write(answer, request),
        ApiMode::Gemini => gemini::write(answer, request),
        ApiMode::BedrockConverse => bedrock_converse::write(answer, request),
    }
}
