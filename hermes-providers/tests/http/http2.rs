//! HTTP/2 over TLS, where the server offers it: one connection for many requests, resets, and servers that go away.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use hermes_providers::{ChatModel as _, Delta, ErrorClass, HttpChatModel};
use http::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::server::{END, Server, ask, good, request, text_event};
use crate::tls::{Authority, secure_model};

/// What a request gets.
#[derive(Clone, Copy)]
enum Act {
    /// A whole answer.
    Answer,
    /// A part of one, then a reset of the stream.
    Cut(Reason),
    /// A reset before any answer.
    Reset(Reason),
    /// The whole connection ends, after a part of the answer or before it.
    GoAway { after_part: bool },
    /// An answer, and no further request on this connection.
    Last,
    /// A part of an answer, then silence until the client gives up.
    Hang,
}

struct Http2 {
    port: u16,
    /// The connection of each request, in order.
    seen: Arc<Mutex<Vec<usize>>>,
    /// Streams that the client gave up, with its reason.
    given_up: mpsc::Receiver<Reason>,
    task: JoinHandle<()>,
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Http2 {
    /// The `n`th request, counted from 0 over all connections, gets what `plan` says.
    async fn start(tls: TlsAcceptor, plan: fn(usize) -> Act) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (tell, given_up) = mpsc::channel(16);
        let log = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            for connection in 0.. {
                let Ok((socket, _)) = listener.accept().await else { break };
                let (tls, log, tell) = (tls.clone(), Arc::clone(&log), tell.clone());
                connections.spawn(async move {
                    // The client may go away at any time; that is no fault of the test.
                    let _ = serve(tls, socket, connection, plan, &log, &tell).await;
                });
            }
        });
        Self { port, seen, given_up, task }
    }

    fn connections(&self) -> Vec<usize> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(
    tls: TlsAcceptor,
    socket: TcpStream,
    connection: usize,
    plan: fn(usize) -> Act,
    log: &Mutex<Vec<usize>>,
    tell: &mpsc::Sender<Reason>,
) -> Result<(), h2::Error> {
    let socket = tls.accept(socket).await.map_err(|_| Reason::CONNECT_ERROR)?;
    assert_eq!(socket.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut http = h2::server::handshake(socket).await?;
    let mut answers = JoinSet::new();
    while let Some(accepted) = http.accept().await {
        let (request, respond) = accepted?;
        let nth = {
            let mut log = log.lock().unwrap();
            log.push(connection);
            log.len() - 1
        };
        let act = plan(nth);
        match act {
            Act::GoAway { after_part: false } => http.abrupt_shutdown(Reason::INTERNAL_ERROR),
            Act::Last => http.graceful_shutdown(),
            _ => {}
        }
        let tell = tell.clone();
        let ends = matches!(act, Act::GoAway { after_part: true });
        let answered = answer(request, respond, act, tell);
        if ends {
            // The part has to be on its way before the connection ends.
            answered.await?;
            let _ = futures::future::poll_immediate(http.accept()).await;
            http.abrupt_shutdown(Reason::INTERNAL_ERROR);
        } else {
            answers.spawn(answered);
        }
    }
    Ok(())
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    act: Act,
    tell: mpsc::Sender<Reason>,
) -> Result<(), h2::Error> {
    if let Act::Reset(reason) = act {
        respond.send_reset(reason);
        return Ok(());
    }
    if matches!(act, Act::GoAway { after_part: false }) {
        return Ok(());
    }
    let mut body = request.into_body();
    if !matches!(act, Act::GoAway { .. }) {
        while let Some(bytes) = body.data().await {
            body.flow_control().release_capacity(bytes?.len())?;
        }
    }
    let head = Response::builder().header("content-type", "text/event-stream").body(()).unwrap();
    let mut out = respond.send_response(head, false)?;
    out.send_data(text_event("part").into(), false)?;
    match act {
        Act::Answer | Act::Last => out.send_data(END.into(), true)?,
        Act::Cut(reason) => {
            // A reset overtakes what is still to be written.
            tokio::time::sleep(Duration::from_millis(200)).await;
            out.send_reset(reason);
        }
        Act::Hang => {
            let reason = std::future::poll_fn(|context| out.poll_reset(context)).await?;
            let _ = tell.send(reason).await;
        }
        Act::Reset(_) | Act::GoAway { .. } => {}
    }
    Ok(())
}

async fn start(plan: fn(usize) -> Act) -> (Http2, HttpChatModel) {
    let own = Authority::new();
    let server = Http2::start(own.acceptor("127.0.0.1", &["h2", "http/1.1"]), plan).await;
    let model = secure_model("127.0.0.1", server.port, own.trusted());
    (server, model)
}

#[tokio::test]
async fn requests_one_by_one_and_side_by_side_share_one_http2_connection() {
    let (server, model) = start(|_| Act::Answer).await;
    for _ in 0..2 {
        assert_eq!(ask(&model).await.1.unwrap().text, "part");
    }
    let all = futures::future::join_all((0..8).map(|_| ask(&model))).await;
    assert!(all.into_iter().all(|(text, end)| text == "part" && end.is_ok()));
    assert_eq!(server.connections(), [0; 10]);
}

#[tokio::test]
async fn a_server_without_http2_is_spoken_to_in_http1() {
    let own = Authority::new();
    let server = Server::start_secure(own.acceptor("127.0.0.1", &["http/1.1"]), |_| good("old")).await;
    let model = secure_model("127.0.0.1", server.port, own.trusted());
    assert_eq!(ask(&model).await.0, "old");
    assert!(server.seen()[0].head.contains("http/1.1"));
}

#[tokio::test]
async fn a_reset_before_an_answer_may_be_tried_again_and_leaves_the_connection_alone() {
    for reason in [Reason::REFUSED_STREAM, Reason::INTERNAL_ERROR, Reason::ENHANCE_YOUR_CALM] {
        let (server, model) = match reason {
            Reason::REFUSED_STREAM => {
                start(|nth| if nth == 0 { Act::Reset(Reason::REFUSED_STREAM) } else { Act::Answer }).await
            }
            Reason::INTERNAL_ERROR => {
                start(|nth| if nth == 0 { Act::Reset(Reason::INTERNAL_ERROR) } else { Act::Answer }).await
            }
            _ => start(|nth| if nth == 0 { Act::Reset(Reason::ENHANCE_YOUR_CALM) } else { Act::Answer }).await,
        };
        let error = ask(&model).await.1.unwrap_err();
        assert_eq!(error.class, ErrorClass::Timeout, "{reason}: {error}");
        assert!(error.message.contains("try again"), "{error}");
        assert_eq!(ask(&model).await.1.unwrap().text, "part");
        assert_eq!(server.connections(), [0, 0], "{reason}");
    }
}

#[tokio::test]
async fn a_reset_in_an_answer_keeps_the_text_and_is_no_end() {
    let (server, model) = start(|nth| if nth == 0 { Act::Cut(Reason::INTERNAL_ERROR) } else { Act::Answer }).await;
    let (text, end) = ask(&model).await;
    assert_eq!((text.as_str(), end.unwrap_err().class), ("part", ErrorClass::Incomplete));
    assert_eq!(ask(&model).await.1.unwrap().text, "part");
    assert_eq!(server.connections(), [0, 0]);
}

#[tokio::test]
async fn a_connection_that_goes_away_is_replaced_and_its_answers_are_no_end() {
    let (server, model) = start(|nth| if nth == 0 { Act::GoAway { after_part: false } } else { Act::Answer }).await;
    let error = ask(&model).await.1.unwrap_err();
    assert_eq!(error.class, ErrorClass::Timeout, "{error}");
    assert_eq!(ask(&model).await.1.unwrap().text, "part");
    assert_eq!(server.connections(), [0, 1]);

    let (server, model) = start(|nth| if nth == 0 { Act::GoAway { after_part: true } } else { Act::Answer }).await;
    let error = ask(&model).await.1.unwrap_err();
    assert!(matches!(error.class, ErrorClass::Incomplete | ErrorClass::Timeout), "{error}");
    assert_eq!(ask(&model).await.1.unwrap().text, "part");
    assert_eq!(server.connections(), [0, 1]);
}

#[tokio::test]
async fn an_orderly_farewell_costs_no_answer() {
    let (server, model) = start(|nth| if nth == 0 { Act::Last } else { Act::Answer }).await;
    for _ in 0..3 {
        assert_eq!(ask(&model).await.1.unwrap().text, "part");
    }
    let connections = server.connections();
    assert!(connections.len() == 3 && connections[1..] == [1, 1], "{connections:?}");
}

#[tokio::test]
async fn b59_dropping_an_answer_resets_its_stream_and_nothing_else() {
    let (mut server, model) = start(|nth| if nth == 0 { Act::Hang } else { Act::Answer }).await;
    let asked = request();
    let mut stream = model.stream(&asked).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(Delta::Text(_)))));
    drop(stream);
    let reason = tokio::time::timeout(Duration::from_secs(30), server.given_up.recv()).await.expect("it was kept");
    assert_eq!(reason, Some(Reason::CANCEL));
    assert_eq!(ask(&model).await.1.unwrap().text, "part");
    assert_eq!(server.connections(), [0, 0]);
}
