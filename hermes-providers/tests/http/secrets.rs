//! I24: a key goes to its server and nowhere else.

use hermes_providers::{ChatModel, ErrorClass, HttpChatModel, HttpModelConfig, Network, Profiles, Transport};

use crate::server::{EVENTS, Server, ask, chunk, config, model, request, response, send};

const KEY: &str = "sekrit-key-of-the-test";

fn through(proxy: &str) -> Transport {
    Transport::new(Network { proxy: Some(proxy.to_owned().into()), ..Network::default() })
}

#[tokio::test]
async fn i24_a_server_that_echoes_the_key_does_not_get_it_into_an_error() {
    let frames = [
        format!("data: {{\"error\":{{\"message\":\"bad {KEY}\",\"code\":\"c-{KEY}\"}}}}\n\n"),
        format!("data: not json {KEY}\n\n"),
        format!("{{\"hello\":\"{KEY}\"}}"),
        format!("<html><title>{KEY}</title></html>"),
    ];
    for frame in frames {
        let server = Server::always(vec![send(EVENTS), chunk(frame.as_bytes()), send("0\r\n\r\n")]).await;
        let error = ask(&model(&server)).await.1.unwrap_err();
        assert!(!format!("{error:?} {error}").contains(KEY), "{error:?}");
    }
    let body = format!("{{\"error\":{{\"message\":\"Incorrect key {KEY}\",\"code\":\"{KEY}\"}}}}");
    let server = Server::always(vec![response("401 No", "", &body)]).await;
    let error = ask(&model(&server)).await.1.unwrap_err();
    assert_eq!(error.class, ErrorClass::Auth);
    assert!(!format!("{error:?} {error}").contains(KEY), "{error:?}");
}

#[test]
fn i24_debug_shows_no_key() {
    let mut config = config("http://127.0.0.1:1/v1");
    config.transport = Some(through("http://user:proxy-password@host"));
    let model = HttpChatModel::new(config.clone()).unwrap();
    let shown = format!("{config:?} {model:?} {:?}", model.info());
    assert!(!shown.contains(KEY) && !shown.contains("proxy-password"), "{shown}");
}

#[tokio::test]
async fn i24_a_transport_error_shows_no_key() {
    let mut config = config("http://models.invalid:9/v1?api-key=sekrit-key-of-the-test");
    config.transport = Some(through("http://user:sekrit-key-of-the-test@127.0.0.1:9"));
    let error = HttpChatModel::new(config).unwrap().stream(&request()).await.err().unwrap();
    assert!(!format!("{error:?} {error}").contains(KEY), "{error:?}");
}

#[test]
fn a_key_that_is_no_header_is_refused_without_being_shown() {
    let mut config = config("http://127.0.0.1:1/v1");
    config.key = Some("bad\nkey-value".to_owned().into());
    let error = HttpChatModel::new(config).unwrap_err();
    assert_eq!(error.class, ErrorClass::Configuration);
    assert!(!error.message.contains("key-value"), "{error}");
}

#[test]
fn a_missing_key_says_which_variable_to_set() {
    let profile = Profiles::bundled().unwrap().get("openai").unwrap().clone();
    let error = HttpChatModel::new(HttpModelConfig::new(profile, "gpt-5")).unwrap_err();
    assert_eq!(error.class, ErrorClass::Configuration);
    assert!(error.message.contains("OPENAI_API_KEY"), "{error}");
}
