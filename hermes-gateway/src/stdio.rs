//! The protocol as JSON-RPC 2.0 lines over any pair of streams (`docs/protocol.md`).
//!
//! One loop owns everything: it reads lines, runs requests side by side, writes answers and messages. It spawns
//! nothing. A client that does not read makes the loop wait and miss messages (it is told how many), and never holds
//! up a turn.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};

use crate::protocol::{ConversationId, Request, Response, RpcError, ServerMessage, TurnInterruptParams};

/// Longest line that is read. An input may be 8 MiB, and JSON may write one byte as six.
pub const LINE_LIMIT_BYTES: usize = 64 << 20;
/// Requests that may run at one time on one connection.
pub const IN_FLIGHT_LIMIT: usize = 64;
/// How long running requests are waited for after the client has closed its end.
pub const EOF_DRAIN_MS: u64 = 10_000;
/// Conversations of one connection whose turns are stopped at its end. The oldest are forgotten first.
const CONVERSATIONS_MAX: usize = 1_024;

/// The line is no JSON.
pub const PARSE_ERROR: i64 = -32_700;
/// The line is JSON, and no request.
pub const INVALID_REQUEST: i64 = -32_600;
/// There is no such method.
pub const METHOD_NOT_FOUND: i64 = -32_601;
/// The params do not fit the method.
pub const INVALID_PARAMS: i64 = -32_602;
/// The request was understood and failed; `data.code` says why.
pub const APPLICATION_ERROR: i64 = -32_000;

/// Every method that a client may call.
pub const METHODS: &[&str] = &[
    "session/resolve",
    "session/list",
    "session/show",
    "session/events",
    "session/search",
    "session/reindex",
    "session/rename",
    "session/flags",
    "session/undo",
    "session/retry",
    "session/redo",
    "session/compress",
    "session/children",
    "session/stop_child",
    "session/unknown",
    "session/decide",
    "session/branch",
    "session/prune",
    "session/delete",
    "session/export",
    "store/import",
    "store/check",
    "store/backup",
    "store/restore",
    "store/vacuum",
    "prompt/submit",
    "turn/wait",
    "turn/interrupt",
    "turn/resume",
    "approval/respond",
    "clarify/respond",
    "model/status",
    "model/search",
    "model/show",
    "model/refresh",
    "providers/list",
    "tools/list",
    "system/doctor",
];

/// Methods that take no params.
const WITHOUT_PARAMS: &[&str] = &["model/status", "tools/list", "system/doctor"];

/// Runs requests.
pub trait Caller: Send + Sync {
    /// Runs one request. Requests may overlap.
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Response, RpcError>>;
}

/// Gives the messages that the gateway sends of its own accord.
pub trait Inbox: Send {
    /// The next message; `None` when the gateway is gone. Dropping the future loses no message.
    fn next(&mut self) -> BoxFuture<'_, Option<ServerMessage>>;
}

impl Caller for crate::Caller {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Response, RpcError>> {
        let caller = self.clone();
        // The inherent method, not this one.
        #[allow(clippy::large_futures, reason = "it is boxed right here")]
        Box::pin(async move { crate::Caller::call(&caller, request).await })
    }
}

impl Inbox for crate::Client {
    fn next(&mut self) -> BoxFuture<'_, Option<ServerMessage>> {
        Box::pin(crate::Client::next(self))
    }
}

/// Serves one client until it closes its end, then stops the turns that it began and finishes what runs.
///
/// # Errors
/// When the client's streams fail. Its turns were told to stop also then.
pub async fn serve(
    caller: &dyn Caller,
    inbox: &mut dyn Inbox,
    input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut server = Server { caller, output, running: FuturesUnordered::new(), conversations: BTreeSet::new() };
    let served = server.serve(inbox, LineReader::new(input)).await;
    server.stop_turns().await;
    served?;
    server.finish(inbox).await
}

type Running = BoxFuture<'static, (Option<Value>, Result<Response, RpcError>)>;

struct Server<'c, W> {
    caller: &'c dyn Caller,
    output: W,
    running: FuturesUnordered<Running>,
    /// Conversations that this client submitted to.
    conversations: BTreeSet<ConversationId>,
}

impl<W: AsyncWrite + Unpin> Server<'_, W> {
    /// Until the client closes its end.
    async fn serve<R: AsyncBufRead + Unpin>(
        &mut self,
        inbox: &mut dyn Inbox,
        mut lines: LineReader<R>,
    ) -> io::Result<()> {
        let mut open = true;
        loop {
            tokio::select! {
                line = lines.next() => match line? {
                    Line::End => return Ok(()),
                    Line::TooLong => {
                        let text = format!("the line is longer than {} MiB", LINE_LIMIT_BYTES >> 20);
                        self.error(Value::Null, PARSE_ERROR, &text, None).await?;
                    }
                    Line::Text(line) => self.line(&line).await?,
                },
                Some((id, result)) = self.running.next() => self.answer(id, result).await?,
                message = inbox.next(), if open => match message {
                    Some(message) => self.message(&message).await?,
                    None => open = false,
                },
            }
        }
    }

    /// One line of the client.
    async fn line(&mut self, line: &[u8]) -> io::Result<()> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let call = match read_call(line) {
            Ok(call) => call,
            Err(Refusal { id, code, message }) => {
                return self.error(id.unwrap_or(Value::Null), code, &message, None).await;
            }
        };
        let Call { id, request } = call;
        if self.running.len() >= IN_FLIGHT_LIMIT {
            let error = RpcError {
                code: "HM0290".to_owned(),
                message: format!("{IN_FLIGHT_LIMIT} requests are running already; send this one again later"),
                usage: false,
            };
            return self.answer(id, Err(error)).await;
        }
        if let Request::TurnResume(params) = &request {
            self.remember(params.conversation.clone());
        }
        let running = self.caller.call(request);
        self.running.push(Box::pin(async move { (id, running.await) }));
        Ok(())
    }

    /// The end of one request. A notification (no id) is never answered.
    async fn answer(&mut self, id: Option<Value>, result: Result<Response, RpcError>) -> io::Result<()> {
        if let Ok(Response::Submitted(submitted)) = &result {
            self.remember(submitted.receipt.conversation.clone());
        }
        let Some(id) = id else { return Ok(()) };
        match result {
            Ok(result) => self.write(&Success { jsonrpc: VERSION, id, result: &result }).await,
            Err(error) => {
                let data = ErrorData { code: &error.code, usage: error.usage };
                self.error(id, APPLICATION_ERROR, &error.message, Some(data)).await
            }
        }
    }

    fn remember(&mut self, conversation: ConversationId) {
        if self.conversations.len() >= CONVERSATIONS_MAX {
            self.conversations.pop_first();
        }
        self.conversations.insert(conversation);
    }

    async fn message(&mut self, message: &ServerMessage) -> io::Result<()> {
        self.write(&Notification { jsonrpc: VERSION, message }).await
    }

    async fn error(&mut self, id: Value, code: i64, message: &str, data: Option<ErrorData<'_>>) -> io::Result<()> {
        self.write(&Failure { jsonrpc: VERSION, id, error: ErrorObject { code, message, data } }).await
    }

    async fn write<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.output.write_all(&line).await?;
        self.output.flush().await
    }

    /// Stops the turns that this client began.
    async fn stop_turns(&mut self) {
        for conversation in std::mem::take(&mut self.conversations) {
            // One that has ended already is no error, and nobody is there to hear of another.
            let _ = self.caller.call(Request::TurnInterrupt(TurnInterruptParams { conversation })).await;
        }
    }

    /// Finishes what runs, and writes what is still to be said to a client that may still listen.
    async fn finish(&mut self, inbox: &mut dyn Inbox) -> io::Result<()> {
        let until = tokio::time::Instant::now() + Duration::from_millis(EOF_DRAIN_MS);
        let mut open = true;
        while !self.running.is_empty() {
            tokio::select! {
                Some((id, result)) = self.running.next() => {
                    // An input may have been accepted after the end was seen.
                    self.answer(id, result).await?;
                    self.stop_turns().await;
                }
                message = inbox.next(), if open => match message {
                    Some(message) => self.message(&message).await?,
                    None => open = false,
                },
                () = tokio::time::sleep_until(until) => break,
            }
        }
        Ok(())
    }
}

const VERSION: &str = "2.0";

#[derive(Serialize)]
struct Success<'a> {
    jsonrpc: &'static str,
    id: Value,
    result: &'a Response,
}

#[derive(Serialize)]
struct Failure<'a> {
    jsonrpc: &'static str,
    id: Value,
    error: ErrorObject<'a>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    code: i64,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<ErrorData<'a>>,
}

#[derive(Serialize)]
struct ErrorData<'a> {
    code: &'a str,
    usage: bool,
}

#[derive(Serialize)]
struct Notification<'a> {
    jsonrpc: &'static str,
    #[serde(flatten)]
    message: &'a ServerMessage,
}

#[derive(Debug)]
struct Call {
    /// None for a notification.
    id: Option<Value>,
    request: Request,
}

#[derive(Debug)]
struct Refusal {
    id: Option<Value>,
    code: i64,
    message: String,
}

#[derive(serde::Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// Reads one line into a request, or into the error that the client gets.
fn read_call(line: &[u8]) -> Result<Call, Refusal> {
    let refuse = |id: Option<Value>, code: i64, message: String| Refusal { id, code, message };
    let text = std::str::from_utf8(line)
        .map_err(|error| refuse(None, PARSE_ERROR, format!("the line is not valid UTF-8: {error}")))?;
    let whole: &RawValue = serde_json::from_str(text)
        .map_err(|error| refuse(None, PARSE_ERROR, format!("the line is not JSON: {error}")))?;
    if whole.get().trim_start().starts_with('[') {
        return Err(refuse(None, INVALID_REQUEST, "batches are not supported; send one request on each line".into()));
    }
    let envelope: Envelope<'_> = serde_json::from_str(text)
        .map_err(|error| refuse(None, INVALID_REQUEST, format!("the line is not a request: {error}")))?;
    let id = match envelope.id.map(|raw| serde_json::from_str::<Value>(raw.get())) {
        None => None,
        Some(Ok(id @ (Value::String(_) | Value::Number(_)))) => Some(id),
        Some(_) => return Err(refuse(None, INVALID_REQUEST, "id must be a text or a number".into())),
    };
    if envelope.jsonrpc.is_none_or(|raw| raw.get() != "\"2.0\"") {
        return Err(refuse(id, INVALID_REQUEST, "jsonrpc must be \"2.0\"".into()));
    }
    let Some(Ok(method)) = envelope.method.map(|raw| serde_json::from_str::<String>(raw.get())) else {
        return Err(refuse(id, INVALID_REQUEST, "method must be a text".into()));
    };
    if !METHODS.contains(&method.as_str()) {
        return Err(refuse(id, METHOD_NOT_FOUND, "there is no such method".to_owned()));
    }
    let params = match envelope.params.map(|raw| serde_json::from_str::<Value>(raw.get())) {
        None | Some(Ok(Value::Null)) => Map::new(),
        Some(Ok(Value::Object(params))) => params,
        Some(_) => return Err(refuse(id, INVALID_PARAMS, "params must be an object".into())),
    };
    match read_request(&method, params) {
        Ok(request) => Ok(Call { id, request }),
        Err(message) => Err(refuse(id, INVALID_PARAMS, format!("{method}: {message}"))),
    }
}

fn read_request(method: &str, params: Map<String, Value>) -> Result<Request, String> {
    let mut request = Map::new();
    request.insert("method".to_owned(), Value::String(method.to_owned()));
    if WITHOUT_PARAMS.contains(&method) {
        if let Some(name) = params.keys().next() {
            return Err(format!("it takes no params, and has {name}"));
        }
    } else {
        request.insert("params".to_owned(), Value::Object(params));
    }
    serde_json::from_value(Value::Object(request)).map_err(|error| error.to_string())
}

enum Line {
    Text(Vec<u8>),
    TooLong,
    End,
}

/// Reads lines of a limited length. Dropping [`LineReader::next`] loses nothing.
struct LineReader<R> {
    input: R,
    line: Vec<u8>,
    /// In the rest of a line that is too long.
    skipping: bool,
}

impl<R: AsyncBufRead + Unpin> LineReader<R> {
    fn new(input: R) -> Self {
        Self { input, line: Vec::new(), skipping: false }
    }

    async fn next(&mut self) -> io::Result<Line> {
        loop {
            // Waits here only; what follows is done in one go, so that nothing is taken and then forgotten.
            let bytes = self.input.fill_buf().await?;
            if bytes.is_empty() {
                let whole = std::mem::take(&mut self.line);
                // A last line without its end is still a line.
                return Ok(if whole.is_empty() { Line::End } else { Line::Text(whole) });
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            let taken = end.map_or(bytes.len(), |end| end + 1);
            let fits = !self.skipping && self.line.len() + piece.len() <= LINE_LIMIT_BYTES;
            if fits {
                self.line.extend_from_slice(piece);
            }
            self.input.consume(taken);
            if !fits && !self.skipping {
                self.skipping = true;
                self.line = Vec::new();
            }
            if end.is_some() {
                return Ok(if std::mem::take(&mut self.skipping) {
                    Line::TooLong
                } else {
                    Line::Text(std::mem::take(&mut self.line))
                });
            }
        }
    }
}

#[cfg(test)]
#[path = "stdio_tests.rs"]
mod tests;
