//! A model server on a free port of the loopback, speaking the OpenAI wire, scripted by [`crate::plan`].
//!
//! It keeps every request's bytes and time, and refuses a request whose calls and results do not pair. With a window it is a
//! `llama-server`: it tells it, counts what it is sent, and refuses what does not fit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::plan::{Fault, Plan, pair_error, plan};

/// One request that arrived.
#[derive(Debug, Clone)]
pub struct Seen {
    /// When its last byte had arrived.
    pub at: Instant,
    /// The body, byte for byte.
    pub body: Vec<u8>,
    /// The header `Authorization`.
    pub authorization: Option<String>,
    /// When the last byte of the answer was written.
    pub answered: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    seen: Vec<Seen>,
    used: HashMap<(String, Fault), u32>,
    pair_errors: Vec<String>,
    /// The window of a `llama-server`, in tokens.
    window: Option<u64>,
}

/// Bytes of a request that count as one token.
const TOKEN_BYTES: usize = 4;
/// What a server without a window says that it was sent, in tokens.
const PROMPT_TOKENS: u64 = 100;

/// A running server; it ends with this value.
#[derive(Debug)]
pub struct ModelServer {
    state: Arc<Mutex<State>>,
    port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ModelServer {
    /// Starts a server.
    pub async fn start() -> Result<Self> {
        Self::begin(0, State::default()).await
    }

    /// Starts one that speaks as a `llama-server` with this window does. Port 0 is any free one.
    pub async fn start_llama(port: u16, window: u64) -> Result<Self> {
        Self::begin(port, State { window: Some(window), ..State::default() }).await
    }

    async fn begin(port: u16, state: State) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let state = shared.clone();
                connections.spawn(async move {
                    // A client that goes away is part of the tests.
                    let _ = serve(stream, state).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { state, port, task })
    }

    /// The address for `base_url`.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.state).seen.clone()
    }

    /// What was wrong with requests so far.
    pub fn pair_errors(&self) -> Vec<String> {
        lock(&self.state).pair_errors.clone()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        lock(&self.state).seen.clear();
    }
}

struct Request {
    path: String,
    body: Vec<u8>,
    authorization: Option<String>,
}

async fn read_request(reader: &mut BufReader<tokio::net::tcp::OwnedReadHalf>) -> Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).context("no path")?.to_owned();
    let mut length = 0;
    let mut authorization = None;
    loop {
        line.clear();
        reader.read_line(&mut line).await?;
        let header = line.trim();
        if header.is_empty() {
            break;
        }
        let Some((name, value)) = header.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        } else if name.eq_ignore_ascii_case("authorization") {
            authorization = Some(value.trim().to_owned());
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await?;
    Ok(Some(Request { path, body, authorization }))
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) -> Result<()> {
    stream.set_nodelay(true)?;
    let (read, mut write) = stream.into_split();
    let mut reader = BufReader::new(read);
    while let Some(request) = read_request(&mut reader).await? {
        let window = lock(&state).window;
        let sent = window.map_or(PROMPT_TOKENS, |_| (request.body.len() / TOKEN_BYTES) as u64);
        if let Some((status, told)) = window.and_then(|window| of_llama(&request.path, window, sent)) {
            respond(&mut write, status, "", &told).await?;
            continue;
        }
        if !request.path.ends_with("/chat/completions") {
            let models = json!({"object": "list", "data": [{"id": "fake-model", "object": "model"}]});
            respond(&mut write, 200, "", &models).await?;
            continue;
        }
        let at = Instant::now();
        let value: Value = serde_json::from_slice(&request.body)?;
        let problem = pair_error(&value);
        let (serial, fault, plan) = {
            let mut state = lock(&state);
            let Request { body, authorization, .. } = request;
            state.seen.push(Seen { at, body, authorization, answered: None });
            state.pair_errors.extend(problem.clone());
            let serial = state.seen.len() as u64;
            let plan = plan(&value, serial);
            let fault = plan.faults.iter().find_map(|(fault, budget)| {
                let used = state.used.entry((plan.key.clone(), *fault)).or_default();
                (*used < *budget).then(|| {
                    *used += 1;
                    *fault
                })
            });
            (serial, fault, plan)
        };
        if let Some(problem) = problem {
            let body = json!({"error": {"message": problem, "type": "invalid_request_error", "code": "bad_pairs"}});
            respond(&mut write, 400, "", &body).await?;
            continue;
        }
        tokio::time::sleep(Duration::from_millis(plan.slow_ms)).await;
        let keep = answer(&mut write, &value, fault, plan, (serial, sent)).await?;
        if let Some(seen) = lock(&state).seen.get_mut(usize::try_from(serial)? - 1) {
            seen.answered = Some(Instant::now());
        }
        if !keep {
            break;
        }
    }
    Ok(())
}

/// What a `llama-server` with this window says of itself, and of a request of so many tokens that does not fit.
fn of_llama(path: &str, window: u64, sent: u64) -> Option<(u16, Value)> {
    match path {
        "/health" => Some((200, json!({"status": "ok"}))),
        "/props" => Some((200, json!({"default_generation_settings": {"n_ctx": window}, "total_slots": 1}))),
        path if path.ends_with("/chat/completions") && sent >= window => {
            let message = format!("request ({sent} tokens) exceeds the available context size ({window} tokens)");
            let error = json!({"code": 400, "type": "exceed_context_size_error", "message": message,
                               "n_prompt_tokens": sent, "n_ctx": window});
            Some((400, json!({ "error": error })))
        }
        _ => None,
    }
}

async fn respond(write: &mut tokio::net::tcp::OwnedWriteHalf, status: u16, extra: &str, body: &Value) -> Result<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{extra}\r\n",
        body.len()
    );
    write.write_all(format!("{head}{body}").as_bytes()).await?;
    Ok(())
}

/// Writes the answer; false when the connection is to be closed.
async fn answer(
    write: &mut tokio::net::tcp::OwnedWriteHalf,
    request: &Value,
    fault: Option<Fault>,
    plan: Plan,
    (serial, sent): (u64, u64),
) -> Result<bool> {
    let error =
        |kind: &str, code: &str, message: &str| json!({"error": {"type": kind, "code": code, "message": message}});
    let refused = match fault {
        Some(Fault::F429) => {
            Some((429, "Retry-After: 1\r\n", error("rate_limit_error", "rate_limit_exceeded", "injected")))
        }
        Some(Fault::F500) => Some((500, "", error("server_error", "internal_error", "injected"))),
        Some(Fault::F503) => Some((503, "", error("server_error", "overloaded", "injected"))),
        Some(Fault::FAuth) => {
            Some((401, "", error("authentication_error", "invalid_api_key", "Incorrect API key provided")))
        }
        Some(Fault::FCtx) => Some((
            400,
            "",
            error(
                "invalid_request_error",
                "context_length_exceeded",
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 99999 tokens.",
            ),
        )),
        _ => None,
    };
    if let Some((status, extra, body)) = refused {
        respond(write, status, extra, &body).await?;
        return Ok(true);
    }
    write
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await?;
    if fault == Some(Fault::FHang) {
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        return Ok(false);
    }
    let events = events(request, fault, &plan, (serial, sent));
    let cut = matches!(fault, Some(Fault::FCut | Fault::FStall));
    let kept = if cut { (events.len() / 2).max(2) } else { events.len() };
    for batch in events[..kept.min(events.len())].chunks(64) {
        let text: String = batch.iter().map(|event| format!("{:x}\r\n{event}\r\n", event.len())).collect();
        write.write_all(text.as_bytes()).await?;
    }
    if fault == Some(Fault::FStall) {
        tokio::time::sleep(Duration::from_secs(3_600)).await;
    }
    if cut {
        return Ok(false);
    }
    write.write_all(b"0\r\n\r\n").await?;
    Ok(true)
}

fn events(request: &Value, fault: Option<Fault>, plan: &Plan, (serial, sent): (u64, u64)) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        let body = json!({
            "id": format!("chatcmpl-{serial}"),
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": request["model"],
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        });
        format!("data: {body}\n\n")
    };
    let empty = fault == Some(Fault::FEmpty);
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    if !empty {
        events.extend(plan.chunks.iter().map(|text| chunk(json!({"content": text}), Value::Null)));
        for (at, (id, command)) in plan.calls.iter().enumerate() {
            let mut arguments = match plan.tool {
                Some(_) => command.clone(),
                None => json!({"command": command}).to_string(),
            };
            let name = plan.tool.as_deref().unwrap_or("terminal");
            if fault == Some(Fault::FBadJson) {
                arguments.truncate(arguments.len() - 1);
                arguments.push_str(",,");
            }
            let head = json!({"index": at, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
            events.push(chunk(json!({"tool_calls": [head]}), Value::Null));
            let rest = json!({"index": at, "function": {"arguments": arguments}});
            events.push(chunk(json!({"tool_calls": [rest]}), Value::Null));
        }
    }
    let calls = !empty && !plan.calls.is_empty();
    events.push(chunk(json!({}), json!(if calls { "tool_calls" } else { "stop" })));
    let usage = json!({"prompt_tokens": sent, "completion_tokens": 10, "total_tokens": sent + 10});
    events.push(format!("data: {}\n\n", json!({"choices": [], "usage": usage})));
    events.push("data: [DONE]\n\n".to_owned());
    events
}
