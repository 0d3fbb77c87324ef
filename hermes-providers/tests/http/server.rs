//! A server of raw sockets that does to each request what the test says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use hermes_providers::{
    CUSTOM, ChatMessage, ChatModel, ChatRequest, Completion, Delta, HttpChatModel, HttpModelConfig, Profiles,
    ProviderError,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// One step of an answer.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Send(Vec<u8>),
    /// Sends the same again and again until the client goes away.
    Repeat(Vec<u8>, u64),
    /// Waits until the client closes, then tells it.
    AwaitClose,
    /// Closes the connection.
    Close,
    /// Passes everything on to this port of this computer and back, until either side closes.
    Tunnel(u16),
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) connection: usize,
    /// Position among the requests of its connection.
    pub(crate) nth: usize,
    /// Request line and headers, lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) struct Server {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    closed: mpsc::Receiver<()>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Starts a server; `plan` says what each request gets.
    pub(crate) async fn start(plan: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::start_with(None, plan).await
    }

    /// The same behind TLS.
    pub(crate) async fn start_secure(
        tls: TlsAcceptor,
        plan: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(Some(tls), plan).await
    }

    async fn start_with(tls: Option<TlsAcceptor>, plan: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (tell, closed) = mpsc::channel(16);
        let (plan, log) = (Arc::new(plan), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            for connection in 0.. {
                let Ok((socket, _)) = listener.accept().await else { break };
                let (plan, log, tell) = (Arc::clone(&plan), Arc::clone(&log), tell.clone());
                let tls = tls.clone();
                connections.spawn(async move {
                    socket.set_nodelay(true).unwrap();
                    // The client may go away at any time; that is no fault of the test.
                    let _ = match tls {
                        None => serve(socket, connection, &*plan, &log, &tell).await,
                        Some(tls) => match tls.accept(socket).await {
                            Ok(socket) => serve(socket, connection, &*plan, &log, &tell).await,
                            Err(refused) => Err(refused),
                        },
                    };
                });
            }
        });
        Self { port, seen, closed, task }
    }

    /// The same answer for every request.
    pub(crate) async fn always(acts: Vec<Act>) -> Self {
        Self::start(move |_| acts.clone()).await
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until a connection in [`Act::AwaitClose`] or [`Act::Repeat`] was closed by the client.
    pub(crate) async fn client_closed(&mut self) {
        tokio::time::timeout(Duration::from_secs(30), self.closed.recv()).await.expect("the client stayed");
    }
}

async fn serve(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    plan: &(impl Fn(&Seen) -> Vec<Act> + ?Sized),
    log: &Mutex<Vec<Seen>>,
    tell: &mpsc::Sender<()>,
) -> std::io::Result<()> {
    for nth in 0.. {
        let Some((head, body)) = read_request(&mut socket).await? else { return Ok(()) };
        let seen = Seen { connection, nth, head, body };
        log.lock().unwrap().push(seen.clone());
        for act in plan(&seen) {
            match act {
                Act::Send(bytes) => {
                    socket.write_all(&bytes).await?;
                    socket.flush().await?;
                }
                Act::Repeat(bytes, ms) => {
                    while socket.write_all(&bytes).await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(ms)).await;
                    }
                    let _ = tell.send(()).await;
                    return Ok(());
                }
                Act::AwaitClose => {
                    while matches!(socket.read(&mut [0; 256]).await, Ok(1..)) {}
                    let _ = tell.send(()).await;
                    return Ok(());
                }
                Act::Close => return Ok(()),
                Act::Tunnel(port) => {
                    let mut target = TcpStream::connect(("127.0.0.1", port)).await?;
                    return tokio::io::copy_bidirectional(&mut socket, &mut target).await.map(drop);
                }
            }
        }
    }
    Ok(())
}

async fn read_request(socket: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<(String, String)>> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let got = socket.read(&mut buffer).await?;
        if got == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(&buffer[..got]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return Ok(Some((head, body.to_owned())));
        }
    }
}

/// The head of an event stream.
pub(crate) const EVENTS: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

pub(crate) fn send(text: &str) -> Act {
    Act::Send(text.as_bytes().to_vec())
}

/// One chunk of a chunked body.
pub(crate) fn chunk(bytes: &[u8]) -> Act {
    Act::Send([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())
}

/// A whole response of a known length.
pub(crate) fn response(status: &str, headers: &str, body: &str) -> Act {
    send(&format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()))
}

pub(crate) fn text_event(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

/// Finish reason and `[DONE]`.
pub(crate) const END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// A whole good answer.
pub(crate) fn good(text: &str) -> Vec<Act> {
    vec![send(EVENTS), chunk(text_event(text).as_bytes()), chunk(END.as_bytes()), send("0\r\n\r\n")]
}

pub(crate) fn config(base_url: &str) -> HttpModelConfig {
    let profile = Profiles::bundled().unwrap().get(CUSTOM).unwrap().clone();
    let mut config = HttpModelConfig::new(profile, "test-model");
    config.base_url = Some(base_url.to_owned());
    config.key = Some("sekrit-key-of-the-test".to_owned().into());
    config
}

pub(crate) fn model(server: &Server) -> HttpChatModel {
    HttpChatModel::new(config(&server.base_url())).unwrap()
}

pub(crate) fn request() -> ChatRequest {
    ChatRequest { system: Bytes::from_static(b"sys"), ..ChatRequest::new(vec![ChatMessage::user("hi")]) }
}

/// The visible text that streamed, and the end.
pub(crate) async fn ask(model: &HttpChatModel) -> (String, Result<Completion, ProviderError>) {
    ask_with(model, &request()).await
}

pub(crate) async fn ask_with(
    model: &HttpChatModel,
    request: &ChatRequest,
) -> (String, Result<Completion, ProviderError>) {
    let mut text = String::new();
    let mut stream = match model.stream(request).await {
        Ok(stream) => stream,
        Err(error) => return (text, Err(error)),
    };
    while let Some(delta) = stream.next().await {
        match delta {
            Ok(Delta::Text(more)) => text.push_str(&more),
            Ok(Delta::Done(done)) => {
                assert!(stream.next().await.is_none(), "something came after the end");
                return (text, Ok(*done));
            }
            Ok(_) => {}
            Err(error) => {
                assert!(stream.next().await.is_none(), "something came after the error");
                return (text, Err(error));
            }
        }
    }
    panic!("the stream ended without an end")
}
