//! The wire of Anthropic over a real socket.

use hermes_providers::{ErrorClass, HttpChatModel, HttpModelConfig, Profiles};

use crate::server::{Act, EVENTS, Server, ask, chunk, send};

const START: &str =
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3}}}\n\n";
const TEXT: &str =
    "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"ü→🦀\"}}\n\n";
const END: &str = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n";

fn model(profile: &str, base_url: &str) -> HttpChatModel {
    let profile = Profiles::bundled().unwrap().get(profile).unwrap().clone();
    let mut config = HttpModelConfig::new(profile, "claude-sonnet-4-6");
    config.base_url = Some(base_url.to_owned());
    config.key = Some("sekrit-key-of-the-test".to_owned().into());
    HttpChatModel::new(config).unwrap()
}

#[tokio::test]
async fn b01_a_message_in_single_bytes_is_whole_and_its_request_is_what_the_maker_wants() {
    let body = [START, TEXT, END].concat();
    let mut acts = vec![send(EVENTS)];
    acts.extend(body.as_bytes().chunks(1).map(chunk));
    acts.push(send("0\r\n\r\n"));
    let server = Server::always(acts).await;
    // With the version in the address and without it.
    let bare = server.base_url().trim_end_matches("/v1").to_owned();
    for (profile, base, key) in [
        ("anthropic", server.base_url(), "x-api-key: sekrit-key-of-the-test"),
        ("minimax", bare, "authorization: bearer sekrit-key-of-the-test"),
    ] {
        let (text, done) = ask(&model(profile, &base)).await;
        assert_eq!((text.as_str(), done.unwrap().text.as_str()), ("ü→🦀", "ü→🦀"));
        let head = server.seen().pop().unwrap().head;
        assert!(head.starts_with("post /v1/messages http/1.1"), "{head}");
        assert!(head.contains(key) && head.contains("anthropic-version: 2023-06-01"), "{head}");
    }
}

#[tokio::test]
async fn b23_an_error_inside_a_200_keeps_the_text_and_its_class() {
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let server = Server::always(vec![send(EVENTS), chunk([START, TEXT, error].concat().as_bytes()), Act::Close]).await;
    let (text, end) = ask(&model("anthropic", &server.base_url())).await;
    assert_eq!((text.as_str(), end.unwrap_err().class), ("ü→🦀", ErrorClass::Overloaded));
}
