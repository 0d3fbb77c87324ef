//! From a server's write to the delta: a raw TCP server writes frames that hold the time of the write.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use hermes_providers::{
    ApiMode, CUSTOM, ChatMessage, ChatModel, ChatRequest, Delta, HttpChatModel, HttpModelConfig, Profiles,
};
use tokio::io::AsyncReadExt;

/// Frames of one answer.
const FRAMES: usize = 2_000;
/// Between two frames, so that each finds the reader waiting.
const PAUSE: Duration = Duration::from_micros(500);

/// The clock of both sides.
fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap()
}

/// Writes one answer to one connection. The time stands between two signs that are nowhere else: `@123@`.
fn serve(listener: &TcpListener, with_head: bool) {
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_nodelay(true).unwrap();
    if with_head {
        read_request(&mut socket);
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n").unwrap();
    }
    for _ in 0..FRAMES {
        thread::sleep(PAUSE);
        let at = now();
        let frame = format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"@{at}@\"}}}}]}}\n\n");
        socket.write_all(frame.as_bytes()).unwrap();
    }
    socket.write_all(b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n").unwrap();
}

fn read_request(socket: &mut TcpStream) {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    // The request has no `}` before its end but those of its body, which ends with the messages.
    while !all.ends_with(b"]}") {
        let read = socket.read(&mut buffer).unwrap();
        assert!(read > 0, "the client went away");
        all.extend_from_slice(&buffer[..read]);
    }
}

fn age(text: &str) -> Option<u64> {
    let at = text.split('@').nth(1)?.parse::<u64>().ok()?;
    Some(now() - at)
}

/// Measures the socket alone, then the socket with everything above it, in one runtime.
pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let alone = runtime.block_on(alone());
    let whole = runtime.block_on(whole());
    for (what, ages) in [("the socket alone", &alone), ("to the delta", &whole)] {
        println!("{what:<20} p50 {:>6.1} µs   p99 {:>6.1} µs", at(ages, 50), at(ages, 99));
    }
    println!(
        "{:<20} p50 {:>6.1} µs   p99 {:>6.1} µs",
        "added",
        at(&whole, 50) - at(&alone, 50),
        at(&whole, 99) - at(&alone, 99)
    );
}

/// A percentile in microseconds; the ages are in order.
fn at(ages: &[u64], percent: usize) -> f64 {
    ages[ages.len() * percent / 100] as f64 / 1e3
}

async fn alone() -> Vec<u64> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || serve(&listener, false));
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut buffer = [0; 4096];
    let mut ages = Vec::with_capacity(FRAMES);
    loop {
        let read = socket.read(&mut buffer).await.unwrap();
        if read == 0 {
            break;
        }
        ages.extend(age(std::str::from_utf8(&buffer[..read]).unwrap()));
    }
    server.join().unwrap();
    ages.sort_unstable();
    ages
}

async fn whole() -> Vec<u64> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || serve(&listener, true));
    let profile = Profiles::bundled().unwrap().get(CUSTOM).unwrap().clone();
    let mut config = HttpModelConfig::new(profile, "m");
    config.base_url = Some(format!("http://{address}/v1"));
    config.api_mode = Some(ApiMode::ChatCompletions);
    let model = HttpChatModel::new(config).unwrap();
    let request =
        ChatRequest { system: Bytes::from_static(b"s"), ..ChatRequest::new(vec![ChatMessage::user("hello")]) };
    let mut answer = model.stream(&request).await.unwrap();
    let mut ages = Vec::with_capacity(FRAMES);
    while let Some(delta) = answer.next().await {
        if let Delta::Text(text) = delta.unwrap() {
            ages.extend(age(&text));
        }
    }
    server.join().unwrap();
    assert!(ages.len() > FRAMES / 2, "{} deltas", ages.len());
    ages.sort_unstable();
    ages
}
