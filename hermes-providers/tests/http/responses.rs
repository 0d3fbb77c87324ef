//! The Responses wire over a real socket.

use hermes_providers::{ApiMode, ErrorClass, HttpChatModel, HttpModelConfig, Profiles};

use crate::server::{Act, EVENTS, Server, ask, chunk, send};

const TEXT: &str =
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"ü→🦀\"}\n\n";
const END: &str = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[]}}\n\n";

fn model(base_url: Option<&str>, mode: Option<ApiMode>) -> HttpChatModel {
    let profile = Profiles::bundled().unwrap().get("openai").unwrap().clone();
    let mut config = HttpModelConfig::new(profile, "gpt-5-mini");
    config.base_url = base_url.map(str::to_owned);
    config.api_mode = mode;
    config.key = Some("sekrit-key-of-the-test".to_owned().into());
    HttpChatModel::new(config).unwrap()
}

#[tokio::test]
async fn b01_a_response_in_single_bytes_is_whole_and_its_request_is_what_the_maker_wants() {
    let body = [TEXT, END].concat();
    let mut acts = vec![send(EVENTS)];
    acts.extend(body.as_bytes().chunks(1).map(chunk));
    acts.push(send("0\r\n\r\n"));
    let server = Server::always(acts).await;
    let (text, done) = ask(&model(Some(&server.base_url()), Some(ApiMode::Responses))).await;
    assert_eq!((text.as_str(), done.unwrap().text.as_str()), ("ü→🦀", "ü→🦀"));
    let seen = server.seen().pop().unwrap();
    assert!(seen.head.starts_with("post /v1/responses http/1.1"), "{}", seen.head);
    assert!(seen.head.contains("authorization: bearer sekrit-key-of-the-test"), "{}", seen.head);
    let expect = r#"{"model":"gpt-5-mini","stream":true,"store":false,"instructions":"sys","reasoning":{"summary":"auto"},"include":["reasoning.encrypted_content"],"input":["#;
    assert!(seen.body.starts_with(expect), "{}", seen.body);
}

#[tokio::test]
async fn b20_a_cut_response_is_incomplete_and_an_error_inside_a_200_has_its_class() {
    let cut = Server::always(vec![send(EVENTS), chunk(TEXT.as_bytes()), send("0\r\n\r\n")]).await;
    let (text, end) = ask(&model(Some(&cut.base_url()), Some(ApiMode::Responses))).await;
    assert_eq!((text.as_str(), end.unwrap_err().class), ("ü→🦀", ErrorClass::Incomplete));
    let error = "event: error\ndata: {\"type\":\"error\",\"code\":\"insufficient_quota\",\"message\":\"no money\"}\n\n";
    let failed = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\",\"message\":\"x\"}}}\n\n";
    let all = [TEXT, error, failed].concat();
    let server = Server::always(vec![send(EVENTS), chunk(all.as_bytes()), Act::Close]).await;
    let (text, end) = ask(&model(Some(&server.base_url()), Some(ApiMode::Responses))).await;
    assert_eq!((text.as_str(), end.unwrap_err().class), ("ü→🦀", ErrorClass::Billing));
}

#[test]
fn the_host_decides_the_wire_and_the_user_before_it() {
    use hermes_providers::ChatModel as _;
    let of = |base_url, mode| model(base_url, mode).info().api_mode.clone();
    assert_eq!(of(None, None), "responses");
    assert_eq!(of(Some("https://proxy.example/v1"), None), "chat_completions");
    assert_eq!(of(None, Some(ApiMode::ChatCompletions)), "chat_completions");
}
