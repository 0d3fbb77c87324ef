//! Answers of all kinds, over a real socket.

use std::time::Duration;

use hermes_providers::{ChatModel, ErrorClass, Finish, HttpChatModel, Timeouts};

use crate::server::{
    Act, END, EVENTS, Server, ask, ask_with, chunk, config, good, model, request, response, send, text_event,
};

#[tokio::test]
async fn a_good_answer_streams_and_the_request_is_what_it_should_be() {
    let server = Server::always(good("hello")).await;
    let (text, done) = ask(&model(&server)).await;
    assert_eq!((text.as_str(), done.unwrap().finish), ("hello", Finish::Stop));
    let seen = server.seen().remove(0);
    assert!(seen.head.starts_with("post /v1/chat/completions http/1.1"), "{}", seen.head);
    assert!(seen.head.contains("authorization: bearer sekrit-key-of-the-test"));
    assert!(seen.body.starts_with(r#"{"model":"test-model","stream":true"#), "{}", seen.body);
    assert!(seen.body.ends_with(r#"{"role":"user","content":"hi"}]}"#), "{}", seen.body);
}

#[tokio::test]
async fn b01_a_stream_in_single_bytes_is_the_same() {
    let body = text_event("ü→🦀") + END;
    let mut acts = vec![send(EVENTS)];
    acts.extend(body.as_bytes().chunks(1).map(chunk));
    acts.push(send("0\r\n\r\n"));
    let server = Server::always(acts).await;
    let (text, done) = ask(&model(&server)).await;
    assert_eq!((text.as_str(), done.unwrap().text.as_str()), ("ü→🦀", "ü→🦀"));
}

#[tokio::test]
async fn b05_a_cut_stream_is_incomplete_and_keeps_its_text() {
    for acts in [
        vec![send(EVENTS), chunk(text_event("part").as_bytes()), Act::Close],
        vec![send(EVENTS), chunk(text_event("part").as_bytes()), send("40\r\ndata: {\"cho"), Act::Close],
        vec![send(EVENTS), chunk(text_event("part").as_bytes()), send("0\r\n\r\n")],
    ] {
        let server = Server::always(acts).await;
        let (text, end) = ask(&model(&server)).await;
        assert_eq!((text.as_str(), end.unwrap_err().class), ("part", ErrorClass::Incomplete));
    }
}

#[tokio::test]
async fn b06_nothing_is_an_empty_response_and_a_cut_nothing_is_incomplete() {
    let server = Server::always(vec![send(EVENTS), send("0\r\n\r\n")]).await;
    assert_eq!(ask(&model(&server)).await.1.unwrap_err().class, ErrorClass::EmptyResponse);
    let server = Server::always(vec![send(EVENTS), Act::Close]).await;
    assert_eq!(ask(&model(&server)).await.1.unwrap_err().class, ErrorClass::Incomplete);
}

#[tokio::test]
async fn b07_an_error_after_text_keeps_the_text() {
    let error = "data: {\"error\":{\"code\":429,\"message\":\"Rate limit exceeded\"}}\n\n";
    let body = text_event("part") + error;
    let server = Server::always(vec![send(EVENTS), chunk(body.as_bytes()), Act::Close]).await;
    let (text, end) = ask(&model(&server)).await;
    assert_eq!((text.as_str(), end.unwrap_err().class), ("part", ErrorClass::RateLimit));
}

#[tokio::test]
async fn b17_a_json_body_is_accepted_and_the_next_answer_streams() {
    let json = r#"{"choices":[{"message":{"content":"whole"},"finish_reason":"stop"}]}"#;
    let server = Server::start(move |seen| match seen.nth {
        0 => vec![response("200 OK", "Content-Type: application/json\r\n", json)],
        _ => good("streamed"),
    })
    .await;
    let model = model(&server);
    assert_eq!(ask(&model).await.0, "whole");
    assert_eq!(ask(&model).await.0, "streamed");
    assert!(server.seen()[1].body.contains("\"stream\":true"));
}

#[tokio::test]
async fn a_request_without_streaming_gets_one_end() {
    let json = r#"{"choices":[{"message":{"content":"whole"},"finish_reason":"length"}]}"#;
    let server = Server::always(vec![response("200 OK", "", json)]).await;
    let mut quiet = request();
    quiet.stream = false;
    let (text, done) = ask_with(&model(&server), &quiet).await;
    let done = done.unwrap();
    assert_eq!((text.as_str(), done.text.as_str(), done.finish), ("", "whole", Finish::Length));
    assert!(server.seen()[0].body.contains("\"stream\":false"));
}

#[tokio::test]
async fn b34_an_error_answer_carries_its_wait() {
    let body = r#"{"error":{"message":"slow down","code":"rate_limit_exceeded"}}"#;
    let server =
        Server::always(vec![response("429 Too Many", "Retry-After-Ms: 250\r\nRetry-After: 2\r\n", body)]).await;
    let error = ask(&model(&server)).await.1.unwrap_err();
    assert_eq!((error.class, error.status, error.retry_after_ms), (ErrorClass::RateLimit, Some(429), Some(250)));
    assert_eq!(error.route, "custom/test-model");
}

fn impatient(server: &Server, change: impl Fn(&mut Timeouts)) -> HttpChatModel {
    let mut config = config(&server.base_url());
    let mut timeouts = Timeouts::hosted();
    change(&mut timeouts);
    config.timeouts = Some(timeouts);
    HttpChatModel::new(config).unwrap()
}

const SHORT: Duration = Duration::from_millis(700);

#[tokio::test]
async fn b57_pings_are_life_but_no_progress() {
    let ping = b"8\r\n: ping\n\n\r\n".to_vec();
    let mut server = Server::always(vec![send(EVENTS), chunk(text_event("a").as_bytes()), Act::Repeat(ping, 10)]).await;
    let model = impatient(&server, |timeouts| timeouts.progress = SHORT);
    let (text, end) = ask(&model).await;
    let error = end.unwrap_err();
    assert_eq!((text.as_str(), error.class), ("a", ErrorClass::Timeout));
    assert!(error.message.contains("did not grow"), "{error}");
    server.client_closed().await;
}

#[tokio::test]
async fn silence_ends_with_the_clock_that_is_meant() {
    let stalled = || vec![send(EVENTS), chunk(text_event("a").as_bytes()), Act::AwaitClose];
    let server = Server::always(stalled()).await;
    let error = ask(&impatient(&server, |timeouts| timeouts.idle = SHORT)).await.1.unwrap_err();
    assert!(error.class == ErrorClass::Timeout && error.message.contains("nothing arrived"), "{error}");

    let server = Server::always(stalled()).await;
    let error = ask(&impatient(&server, |timeouts| timeouts.total = SHORT)).await.1.unwrap_err();
    assert!(error.class == ErrorClass::Timeout && error.message.contains("did not end"), "{error}");

    let server = Server::always(vec![Act::AwaitClose]).await;
    let error = ask(&impatient(&server, |timeouts| timeouts.first_byte = SHORT)).await.1.unwrap_err();
    assert!(error.class == ErrorClass::Timeout && error.message.contains("did not begin"), "{error}");
}

#[tokio::test]
async fn a_finished_answer_does_not_wait_for_a_server_that_hangs_on() {
    let finish = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let body = text_event("a") + finish;
    let server = Server::always(vec![send(EVENTS), chunk(body.as_bytes()), Act::AwaitClose]).await;
    let done = ask(&model(&server)).await.1.unwrap();
    assert_eq!((done.text.as_str(), done.finish_missing), ("a", false));
    let server = Server::always(vec![send(EVENTS), chunk((text_event("a") + END).as_bytes()), Act::AwaitClose]).await;
    assert_eq!(ask(&model(&server)).await.1.unwrap().text, "a");
}

#[tokio::test]
async fn i26_an_answer_over_the_limit_is_an_error() {
    let server = Server::always(vec![send(EVENTS), Act::Repeat(b"8\r\n: ping\n\n\r\n".to_vec(), 0)]).await;
    let mut config = config(&server.base_url());
    config.max_response_bytes = 1000;
    let error = ask(&HttpChatModel::new(config).unwrap()).await.1.unwrap_err();
    assert_eq!(error.class, ErrorClass::Limit);
}

#[tokio::test]
async fn what_is_no_http_or_no_completion_is_said_so() {
    let server = Server::always(vec![send("SSH-2.0-OpenSSH\r\n"), Act::Close]).await;
    assert_eq!(ask(&model(&server)).await.1.unwrap_err().class, ErrorClass::BadResponse);
    let server = Server::always(vec![response("200 OK", "", "<html><title>Login</title></html>")]).await;
    let error = ask(&model(&server)).await.1.unwrap_err();
    assert!(error.class == ErrorClass::BadResponse && error.message.contains("Login"), "{error}");
    let server = Server::always(vec![response("404 Not Found", "", "nope")]).await;
    assert_eq!(ask(&model(&server)).await.1.unwrap_err().class, ErrorClass::Configuration);
}

#[tokio::test]
async fn nobody_there_says_where() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let model = HttpChatModel::new(config(&format!("http://127.0.0.1:{port}/v1"))).unwrap();
    let error = model.stream(&request()).await.err().unwrap();
    assert_eq!(error.class, ErrorClass::Timeout);
    assert!(error.message.contains(&format!("http://127.0.0.1:{port}")), "{error}");
}
