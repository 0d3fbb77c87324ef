//! Connections: kept, lost, redirected, cancelled.

use futures::StreamExt;
use hermes_providers::{ChatModel, Delta, ErrorClass, HttpChatModel};

use crate::server::{Act, EVENTS, Server, ask, chunk, config, good, model, request, response, send, text_event};

#[tokio::test]
async fn a_connection_is_used_again() {
    let server = Server::always(good("x")).await;
    let model = model(&server);
    for _ in 0..3 {
        assert_eq!(ask(&model).await.0, "x");
    }
    let seen = server.seen();
    assert!(seen.iter().all(|seen| seen.connection == 0) && seen.len() == 3, "{seen:?}");
}

#[tokio::test]
async fn w09_a_kept_connection_that_died_costs_one_retry_on_a_new_one() {
    let server = Server::start(|seen| match (seen.connection, seen.nth) {
        (0, 1) => vec![Act::Close],
        _ => good("x"),
    })
    .await;
    let model = model(&server);
    assert_eq!(ask(&model).await.0, "x");
    assert_eq!(ask(&model).await.0, "x");
    let seen: Vec<_> = server.seen().iter().map(|seen| (seen.connection, seen.nth)).collect();
    assert_eq!(seen, [(0, 0), (0, 1), (1, 0)]);
}

#[tokio::test]
async fn w09_a_connection_that_was_closed_between_two_requests_is_not_missed() {
    let server = Server::start(|_| good("x").into_iter().chain([Act::Close]).collect()).await;
    let model = model(&server);
    for _ in 0..3 {
        assert_eq!(ask(&model).await.0, "x");
    }
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn w09_a_connection_that_dies_twice_is_an_error() {
    let server = Server::start(|seen| match (seen.connection, seen.nth) {
        (0, 0) => good("x"),
        _ => vec![Act::Close],
    })
    .await;
    let model = model(&server);
    assert_eq!(ask(&model).await.0, "x");
    assert_eq!(ask(&model).await.1.unwrap_err().class, ErrorClass::Timeout);
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn w09_nothing_is_repeated_on_a_first_connection_or_after_a_byte() {
    let server = Server::always(vec![Act::Close]).await;
    assert_eq!(ask(&model(&server)).await.1.unwrap_err().class, ErrorClass::Timeout);
    assert_eq!(server.seen().len(), 1, "a new connection that fails is not tried again");

    let server = Server::start(|seen| match seen.nth {
        0 => good("x"),
        _ => vec![send(EVENTS), chunk(text_event("part").as_bytes()), Act::Close],
    })
    .await;
    let model = model(&server);
    assert_eq!(ask(&model).await.0, "x");
    assert_eq!(ask(&model).await.1.unwrap_err().class, ErrorClass::Incomplete);
    assert_eq!(server.seen().len(), 2, "an answer that had begun is not asked for again");
}

#[tokio::test]
async fn b53_a_redirect_to_another_host_gets_no_request_and_no_key() {
    let other = Server::always(good("stolen")).await;
    let location = format!("Location: http://127.0.0.1:{}/v1/chat/completions\r\n", other.port);
    for status in ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let server = Server::always(vec![response(status, &location, "")]).await;
        let error = ask(&model(&server)).await.1.unwrap_err();
        assert_eq!(error.class, ErrorClass::Configuration, "{status}");
        assert!(error.message.contains("base_url"), "{error}");
    }
    assert!(other.seen().is_empty());
}

#[tokio::test]
async fn a_redirect_within_the_server_keeps_method_body_and_key() {
    let server = Server::start(|seen| {
        if seen.head.starts_with("post /v1/") {
            vec![response("307 Temporary Redirect", "Location: /v2/chat/completions\r\n", "")]
        } else {
            good("x")
        }
    })
    .await;
    assert_eq!(ask(&model(&server)).await.0, "x");
    let seen = server.seen();
    assert_eq!(seen[0].body, seen[1].body);
    assert!(seen[1].head.starts_with("post /v2/") && seen[1].head.contains("authorization: bearer"));
    let server = Server::always(vec![response("307 Temporary Redirect", "Location: /v1/again\r\n", "")]).await;
    assert_eq!(ask(&model(&server)).await.1.unwrap_err().class, ErrorClass::Configuration, "no endless loop");
}

#[tokio::test]
async fn b59_dropping_the_stream_closes_the_connection() {
    let mut server = Server::always(vec![send(EVENTS), chunk(text_event("a").as_bytes()), Act::AwaitClose]).await;
    let model = model(&server);
    let mut stream = model.stream(&request()).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(Delta::Text(_)))));
    drop(stream);
    server.client_closed().await;
}

#[tokio::test]
async fn b59_dropping_the_request_closes_the_connection() {
    let mut server = Server::always(vec![Act::AwaitClose]).await;
    let model = model(&server);
    let asked = request();
    tokio::select! {
        _ = model.stream(&asked) => panic!("nobody answered"),
        () = async { while server.seen().is_empty() { tokio::task::yield_now().await; } } => {}
    }
    server.client_closed().await;
}

#[test]
fn a_model_is_made_without_a_runtime_and_without_reading_certificates() {
    let model = HttpChatModel::new(config("https://example.invalid/v1/")).unwrap();
    assert_eq!(model.info().endpoint, "https://example.invalid");
    assert_eq!(model.info().api_mode, "chat_completions");
}

#[test]
fn addresses_that_cannot_work_are_refused_at_once() {
    for address in ["", "  ", "example.com/v1", "ftp://x/v1", "http://user:pw@host/v1", "http://", "::"] {
        let error = HttpChatModel::new(config(address)).unwrap_err();
        assert_eq!(error.class, ErrorClass::Configuration, "{address}");
        assert!(error.message.contains("base_url") && !error.message.contains("pw"), "{error}");
    }
}
