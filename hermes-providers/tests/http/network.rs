//! What models of a process share: connections, repairs of refused requests, the breaker of a host.

use std::time::Duration;

use hermes_providers::{ErrorClass, HttpChatModel, Timeouts, Transport};

use crate::server::{Act, Server, ask, config, good, response};

fn model(server: &Server, transport: &Transport, change: impl Fn(&mut Timeouts)) -> HttpChatModel {
    let mut config = config(&server.base_url());
    let mut timeouts = Timeouts::hosted();
    change(&mut timeouts);
    config.timeouts = Some(timeouts);
    config.transport = Some(transport.clone());
    HttpChatModel::new(config).unwrap()
}

#[tokio::test]
async fn models_of_one_transport_share_a_connection() {
    let server = Server::always(good("x")).await;
    let transport = Transport::default();
    for _ in 0..3 {
        assert_eq!(ask(&model(&server, &transport, |_| {})).await.0, "x");
    }
    assert!(server.seen().iter().all(|seen| seen.connection == 0), "{:?}", server.seen());
}

#[tokio::test]
async fn b41_a_refused_field_is_left_out_once_and_for_all() {
    let server = Server::start(|seen| {
        if seen.body.contains("stream_options") {
            let body = r#"{"error":{"message":"Unrecognized request argument supplied: stream_options"}}"#;
            vec![response("400 Bad Request", "", body)]
        } else {
            good("x")
        }
    })
    .await;
    let transport = Transport::default();
    assert_eq!(ask(&model(&server, &transport, |_| {})).await.0, "x");
    assert_eq!(server.seen().len(), 2, "one resend");
    assert_eq!(ask(&model(&server, &transport, |_| {})).await.0, "x");
    assert_eq!(server.seen().len(), 3, "it is remembered for the host and the model");
}

#[tokio::test]
async fn b41_a_second_refusal_stands() {
    let body = r#"{"error":{"message":"Unrecognized request argument supplied: stream_options"}}"#;
    let server = Server::always(vec![response("400 Bad Request", "", body)]).await;
    let error = ask(&model(&server, &Transport::default(), |_| {})).await.1.unwrap_err();
    assert_eq!((error.class, server.seen().len()), (ErrorClass::BadRequest, 2));
}

#[tokio::test]
async fn b60_after_five_silent_attempts_nothing_is_sent_to_the_host() {
    let server = Server::always(vec![Act::AwaitClose]).await;
    let transport = Transport::default();
    let impatient = || model(&server, &transport, |timeouts| timeouts.first_byte = Duration::from_millis(100));
    for _ in 0..5 {
        assert_eq!(ask(&impatient()).await.1.unwrap_err().class, ErrorClass::Timeout);
    }
    let sent = server.seen().len();
    let error = ask(&impatient()).await.1.unwrap_err();
    assert_eq!((error.class, server.seen().len()), (ErrorClass::Unresponsive, sent));
    assert!(error.retry_after_ms.is_some_and(|wait| wait <= 60_000), "{error:?}");
}

#[tokio::test]
async fn i26_a_compressed_answer_is_not_unpacked() {
    let server = Server::always(vec![response("200 OK", "Content-Encoding: gzip\r\n", "x")]).await;
    let error = ask(&model(&server, &Transport::default(), |_| {})).await.1.unwrap_err();
    assert!(error.class == ErrorClass::BadResponse && error.message.contains("compressed"), "{error}");
}
