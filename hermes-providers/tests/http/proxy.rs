//! A proxy: tunnels for `https`, whole addresses for `http`, and who is never asked for there.

use hermes_providers::{ErrorClass, HttpChatModel, Network, Transport};

use crate::server::{Act, Server, ask, config, good, response, send};
use crate::tls::{Authority, secure_model};

/// A name that no resolver knows: whoever reaches it went through the proxy.
const NAME: &str = "api.example.test";
const OPENED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

fn through(proxy: &Server, login: &str, network: Network) -> Network {
    Network { proxy: Some(format!("http://{login}127.0.0.1:{}", proxy.port).into()), ..network }
}

/// A model at an address without TLS, behind a proxy.
fn plain_model(base_url: &str, network: Network) -> HttpChatModel {
    let mut config = config(base_url);
    config.transport = Some(Transport::new(network));
    HttpChatModel::new(config).unwrap()
}

#[tokio::test]
async fn an_https_server_is_reached_through_a_tunnel_that_never_sees_the_key() {
    let own = Authority::new();
    let server = Server::start_secure(own.acceptor(NAME, &["http/1.1"]), |_| good("far")).await;
    let port = server.port;
    let proxy = Server::start(move |_| vec![send(OPENED), Act::Tunnel(port)]).await;
    let model = secure_model(NAME, port, through(&proxy, "me:p%40ss@", own.trusted()));
    for _ in 0..2 {
        assert_eq!(ask(&model).await.0, "far");
    }
    let tunnels = proxy.seen();
    assert_eq!(tunnels.len(), 1, "the tunnel is kept like any connection");
    assert!(tunnels[0].head.starts_with(&format!("connect {NAME}:{port} http/1.1")), "{}", tunnels[0].head);
    // me:p@ss
    assert!(tunnels[0].head.contains("proxy-authorization: basic bwu6cebzcw=="), "{}", tunnels[0].head);
    assert!(!tunnels[0].head.contains("sekrit"), "{}", tunnels[0].head);
    let seen = server.seen();
    assert!(seen.iter().all(|seen| seen.head.contains("sekrit") && !seen.head.contains("proxy-authorization")));
}

#[tokio::test]
async fn the_certificate_behind_a_tunnel_is_the_server_s() {
    let own = Authority::new();
    let server = Server::start_secure(own.acceptor("someone.else.test", &["http/1.1"]), |_| good("far")).await;
    let port = server.port;
    let proxy = Server::start(move |_| vec![send(OPENED), Act::Tunnel(port)]).await;
    let error = ask(&secure_model(NAME, port, through(&proxy, "", own.trusted()))).await.1.unwrap_err();
    assert_eq!(error.class, ErrorClass::Certificate, "{error}");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn an_http_server_is_asked_for_by_its_whole_address() {
    let proxy = Server::always(good("near")).await;
    let model = plain_model(&format!("http://{NAME}/v1"), through(&proxy, "", Network::default()));
    assert_eq!(ask(&model).await.0, "near");
    let seen = proxy.seen().remove(0);
    assert!(seen.head.starts_with(&format!("post http://{NAME}/v1/chat/completions http/1.1")), "{}", seen.head);
}

#[tokio::test]
async fn what_is_named_in_no_proxy_and_this_computer_are_reached_directly() {
    let proxy = Server::always(good("proxied")).await;
    let server = Server::always(good("direct")).await;
    // On Linux, 0.0.0.0 is a way to this computer that nobody takes for it.
    let other = format!("http://0.0.0.0:{}/v1", server.port);
    let all = through(&proxy, "", Network::default());
    assert_eq!(ask(&plain_model(&other, all.clone())).await.0, "proxied");
    let some = Network { no_proxy: vec!["0.0.0.0".to_owned()], ..all.clone() };
    assert_eq!(ask(&plain_model(&other, some)).await.0, "direct");
    assert_eq!(ask(&plain_model(&server.base_url(), all.clone())).await.0, "direct");
    let named = Network { no_proxy: vec!["example.test".to_owned()], ..all };
    let error = ask(&plain_model(&format!("http://{NAME}:9/v1"), named)).await.1.unwrap_err();
    assert_eq!(error.class, ErrorClass::Timeout, "a name below it is looked for directly: {error}");
    assert_eq!(proxy.seen().len(), 1);
}

#[tokio::test]
async fn a_proxy_that_refuses_or_is_away_is_told_and_its_password_is_not() {
    let own = Authority::new();
    for (status, class) in [
        ("407 Proxy Authentication Required", ErrorClass::Configuration),
        ("403 Forbidden", ErrorClass::Timeout),
        ("502 Bad Gateway", ErrorClass::Timeout),
    ] {
        let proxy = Server::always(vec![response(status, "", "no"), Act::Close]).await;
        let model = secure_model(NAME, 443, through(&proxy, "me:hush@", own.trusted()));
        let error = ask(&model).await.1.unwrap_err();
        assert_eq!(error.class, class, "{status}: {error}");
        assert!(!error.message.contains("hush"), "{error}");
    }
    let plain = Server::always(vec![response("407 Proxy Authentication Required", "", "no")]).await;
    let model = plain_model(&format!("http://{NAME}/v1"), through(&plain, "", Network::default()));
    let error = ask(&model).await.1.unwrap_err();
    assert!(error.class == ErrorClass::Configuration && error.message.contains("network.proxy"), "{error}");

    let nobody = Network { proxy: Some("http://me:hush@127.0.0.1:9".to_owned().into()), ..Network::default() };
    let error = ask(&plain_model(&format!("http://{NAME}/v1"), nobody)).await.1.unwrap_err();
    assert!(error.class == ErrorClass::Timeout && !error.message.contains("hush"), "{error}");
}
