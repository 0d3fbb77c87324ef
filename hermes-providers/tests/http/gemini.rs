//! Google's own wire over a real socket.

use hermes_providers::{ErrorClass, Finish, HttpChatModel, HttpModelConfig, Profiles};

use crate::server::{Act, EVENTS, Server, ask, chunk, response, send};

const TEXT: &str = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"ü→🦀\"}]}}]}\n\n";
const END: &str = "data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":3}}\n\n";

fn model(profile: &str, base_url: &str) -> HttpChatModel {
    let profile = Profiles::bundled().unwrap().get(profile).unwrap().clone();
    let mut config = HttpModelConfig::new(profile, "gemini-2.5-flash");
    config.base_url = Some(base_url.to_owned());
    config.key = Some("sekrit-key-of-the-test".to_owned().into());
    HttpChatModel::new(config).unwrap()
}

async fn server(body: &str) -> Server {
    let mut acts = vec![send(EVENTS)];
    acts.extend(body.as_bytes().chunks(1).map(chunk));
    acts.push(send("0\r\n\r\n"));
    Server::always(acts).await
}

#[tokio::test]
async fn b01_an_answer_in_single_bytes_is_whole_and_its_request_is_what_the_maker_wants() {
    let server = server(&[TEXT, END].concat()).await;
    for profile in ["google", "vertex-express"] {
        let (text, done) = ask(&model(profile, &server.base_url())).await;
        let done = done.unwrap();
        assert_eq!((text.as_str(), done.text.as_str(), done.finish), ("ü→🦀", "ü→🦀", Finish::Stop));
        let head = server.seen().pop().unwrap().head;
        let line = "post /v1/models/gemini-2.5-flash:streamgeneratecontent?alt=sse http/1.1";
        assert!(head.starts_with(line) && head.contains("x-goog-api-key: sekrit-key-of-the-test"), "{head}");
        assert!(!head.contains("authorization"), "{head}");
    }
}

#[tokio::test]
async fn b30_b31_what_is_no_answer_has_its_class_or_its_word() {
    let blocked = server("data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n").await;
    assert_eq!(ask(&model("gemini", &blocked.base_url())).await.1.unwrap_err().class, ErrorClass::ContentPolicy);
    let malformed = server("data: {\"candidates\":[{\"finishReason\":\"MALFORMED_FUNCTION_CALL\"}]}\n\n").await;
    assert_eq!(ask(&model("gemini", &malformed.base_url())).await.1.unwrap().finish, Finish::MalformedCall);
}

#[tokio::test]
async fn a_stream_that_is_closed_before_its_reason_is_incomplete() {
    let cut = Server::always(vec![send(EVENTS), chunk(TEXT.as_bytes()), Act::Close]).await;
    let (text, end) = ask(&model("gemini", &cut.base_url())).await;
    assert_eq!((text.as_str(), end.unwrap_err().class), ("ü→🦀", ErrorClass::Incomplete));
}

#[tokio::test]
async fn b26_a_refused_signature_is_told_apart_from_other_bad_requests() {
    let body = r#"{"error":{"code":400,"message":"Function call is missing a thought_signature in functionCall parts.","status":"INVALID_ARGUMENT"}}"#;
    let acts = vec![response("400 Bad Request", "content-type: application/json\r\n", body)];
    let server = Server::always(acts).await;
    let error = ask(&model("gemini", &server.base_url())).await.1.unwrap_err();
    assert_eq!((error.class, server.seen().len()), (ErrorClass::SidecarRefused, 1), "the caller decides: {error}");
}
