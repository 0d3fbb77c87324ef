//! Conversations that are recorded and replayed.

use std::path::PathBuf;
use std::time::Duration;

use hermes_providers::cassette::{Cassette, CassetteError};
use hermes_providers::{ChatMessage, ErrorClass, HttpChatModel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::{END, EVENTS, Server, ask, ask_with, chunk, config, good, request, response, send, text_event};

const KEY: &str = "sekrit-key-of-the-test";

fn file(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("tapes/hello.json")
}

fn model(cassette: &Cassette) -> HttpChatModel {
    HttpChatModel::new(config(&cassette.base_url())).unwrap()
}

/// A server that echoes the key, cut in two, and refuses the second request of a kind.
async fn real() -> Server {
    Server::start(|seen| {
        if seen.body.contains("too much") {
            return vec![response("429 Too Many", "Retry-After: 7\r\nSet-Cookie: session=sekrit-cookie\r\n", "{}")];
        }
        let (front, end) = KEY.split_at(8);
        vec![
            send(EVENTS),
            chunk(text_event("your key: ").as_bytes()),
            chunk(format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{front}").as_bytes()),
            chunk(format!("{end}\"}}}}]}}\n\n").as_bytes()),
            chunk(END.as_bytes()),
            send("0\r\n\r\n"),
        ]
    })
    .await
}

#[tokio::test]
async fn what_was_recorded_is_replayed_without_the_real_server() {
    let (dir, server) = (tempfile::tempdir().unwrap(), real().await);
    let cassette = Cassette::open(file(&dir), &server.base_url(), &[]).await.unwrap();
    assert!(cassette.is_recording());
    let (text, _) = ask(&model(&cassette)).await;
    assert_eq!(text, format!("your key: {KEY}"), "while it records, nothing is changed");
    let mut refused = request();
    refused.messages = vec![ChatMessage::user("too much")];
    let (_, error) = ask_with(&model(&cassette), &refused).await;
    let class = |error: Result<_, hermes_providers::ProviderError>| {
        let error = error.unwrap_err();
        (error.class, error.retry_after_ms)
    };
    assert_eq!(class(error), (ErrorClass::RateLimit, Some(7000)));
    let report = cassette.finish().await.unwrap();
    assert_eq!((report.exchanges, report.recorded), (2, true));
    assert!(server.seen()[0].head.contains(KEY), "the real server was let in");
    let kept = std::fs::read_to_string(file(&dir)).unwrap();
    for secret in [KEY, "sekrit", "cookie"] {
        assert!(!kept.contains(secret), "{secret} in {kept}");
    }
    let asked = server.seen().len();

    let cassette = Cassette::open(file(&dir), &server.base_url(), &[]).await.unwrap();
    assert!(!cassette.is_recording());
    // In another order: each request finds its own answer.
    let (_, error) = ask_with(&model(&cassette), &refused).await;
    assert_eq!(class(error), (ErrorClass::RateLimit, Some(7000)));
    let (text, done) = ask(&model(&cassette)).await;
    assert_eq!((text.as_str(), done.is_ok()), ("your key: [redacted]", true));
    let report = cassette.finish().await.unwrap();
    assert_eq!((report.exchanges, report.unused, report.recorded), (2, 0, false));
    assert_eq!(server.seen().len(), asked, "nothing left this computer's cassette");
}

#[tokio::test]
async fn the_pieces_of_an_answer_stay_as_they_were() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::always(good("hello")).await);
    let cassette = Cassette::record(file(&dir), &server.base_url(), &[]).await.unwrap();
    ask(&model(&cassette)).await.1.unwrap();
    cassette.finish().await.unwrap();
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(file(&dir)).unwrap()).unwrap();
    let pieces = kept["exchanges"][0]["response"]["pieces"].as_array().unwrap().clone();
    let whole: String = pieces.iter().map(|piece| piece["text"].as_str().unwrap()).collect();
    assert_eq!(whole, format!("{}{END}", text_event("hello")));
    assert_eq!(kept["exchanges"][0]["response"]["headers"]["content-type"], "text/event-stream");
    assert_eq!(kept["exchanges"][0]["request"]["headers"].get("authorization"), None);
}

#[tokio::test]
async fn a_request_that_was_not_recorded_is_told_and_fails_the_test() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::always(good("hello")).await);
    let cassette = Cassette::record(file(&dir), &server.base_url(), &[]).await.unwrap();
    ask(&model(&cassette)).await.1.unwrap();
    cassette.finish().await.unwrap();
    let mut other = request();
    other.messages = vec![ChatMessage::user("something else")];
    let cassette = Cassette::replay(file(&dir)).await.unwrap();
    let (_, answer) = ask_with(&model(&cassette), &other).await;
    assert!(answer.unwrap_err().message.contains("the cassette has no answer"));
    let error = cassette.finish().await.unwrap_err();
    assert!(
        matches!(&error, CassetteError::Unmatched { requests } if requests[0].contains("something else")),
        "{error}"
    );
    // Where requests cannot be the same, their order decides.
    let cassette = Cassette::replay(file(&dir)).await.unwrap().in_order();
    assert_eq!(ask_with(&model(&cassette), &other).await.0, "hello");
    assert!(ask_with(&model(&cassette), &other).await.1.is_err(), "there is one answer only");
    assert!(cassette.finish().await.is_err());
}

#[tokio::test]
async fn texts_that_are_named_stay_out_and_match_again_when_they_are_named_again() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::always(good("for account-4711")).await);
    let secrets = ["account-4711".to_owned().into()];
    let mut asked = request();
    asked.messages = vec![ChatMessage::user("I am account-4711")];
    let cassette = Cassette::open(file(&dir), &server.base_url(), &secrets).await.unwrap();
    ask_with(&model(&cassette), &asked).await.1.unwrap();
    cassette.finish().await.unwrap();
    assert!(!std::fs::read_to_string(file(&dir)).unwrap().contains("4711"));
    let cassette = Cassette::open(file(&dir), &server.base_url(), &secrets).await.unwrap();
    assert_eq!(ask_with(&model(&cassette), &asked).await.0, "for [redacted]");
    cassette.finish().await.unwrap();
}

#[tokio::test]
async fn a_real_server_that_is_not_there_is_an_error_and_no_exchange() {
    let dir = tempfile::tempdir().unwrap();
    let cassette = Cassette::record(file(&dir), "http://127.0.0.1:1/v1", &[]).await.unwrap();
    let (_, answer) = ask(&model(&cassette)).await;
    assert_eq!(answer.unwrap_err().status, Some(502));
    assert_eq!(cassette.finish().await.unwrap().exchanges, 0);
    for address in ["", "no address", "ftp://h/"] {
        assert!(matches!(Cassette::record(file(&dir), address, &[]).await, Err(CassetteError::Upstream(_))));
    }
}

#[tokio::test]
async fn broken_files_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tape.json");
    assert!(matches!(Cassette::replay(&path).await, Err(CassetteError::File { .. })));
    for text in ["{", "{}", r#"{"version":9,"base_path":"","exchanges":[]}"#] {
        std::fs::write(&path, text).unwrap();
        assert!(matches!(Cassette::replay(&path).await, Err(CassetteError::Format { .. })), "{text}");
    }
}

#[tokio::test]
async fn any_client_may_ask_chunked_bodies_and_broken_requests_too() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::always(vec![response("200 OK", "", "yes")]).await);
    let cassette = Cassette::record(file(&dir), &server.base_url(), &[]).await.unwrap();
    let talk = async |text: &str| {
        let address = cassette.base_url().replace("http://", "").replace("/v1", "");
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        socket.write_all(text.as_bytes()).await.unwrap();
        let mut seen = Vec::new();
        let read = async {
            let mut buffer = [0; 1024];
            while let Ok(1..) = socket.read(&mut buffer).await.inspect(|got| seen.extend_from_slice(&buffer[..*got])) {
                if seen.ends_with(b"0\r\n\r\n") {
                    break;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), read).await.unwrap();
        String::from_utf8(seen).unwrap()
    };
    let chunked =
        "POST /v1/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n";
    assert!(talk(chunked).await.contains("yes"));
    for broken in ["nonsense\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: many\r\n\r\n", "GET / HTTP/1.1\r\nx\r\n\r\n"]
    {
        assert_eq!(talk(broken).await, "", "{broken}");
    }
    cassette.finish().await.unwrap();
    let kept = std::fs::read_to_string(file(&dir)).unwrap();
    assert!(kept.contains("\"text\": \"abcde\""), "{kept}");
}
