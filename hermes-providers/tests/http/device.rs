//! Logins with a code against an issuer of raw sockets, with shorter seconds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hermes_providers::Transport;
use hermes_providers::credential::device::{LoggedIn, LoginError, OAuth, begin_login};
use hermes_providers::credential::system_now;
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};

use crate::server::{Act, Seen, Server, response};

/// What a second of the issuer lasts here.
const SECOND: Duration = Duration::from_millis(4);
const BEGUN: &str = r#"{"device_code":"marked-device","user_code":"ABCD-EFGH",
    "verification_uri":"https://issuer.example/device","verification_uri_complete":"https://issuer.example/device?c=1",
    "expires_in":600,"interval":5}"#;
const TOKENS: &str = r#"{"access_token":"marked-at","refresh_token":"marked-rt","expires_in":3600}"#;

fn oauth(server: &Server, pkce: bool) -> OAuth {
    OAuth {
        device_url: format!("http://127.0.0.1:{}/device", server.port),
        token_url: format!("http://127.0.0.1:{}/token", server.port),
        client_id: "client-1".into(),
        scope: "chat offline".into(),
        pkce,
        rotates: true,
        skew_seconds: None,
    }
}

fn json(status: &str, body: &str) -> Vec<Act> {
    vec![response(status, "Content-Type: application/json\r\n", body)]
}

fn error(code: &str) -> Vec<Act> {
    json("400 Bad Request", &format!(r#"{{"error":"{code}"}}"#))
}

/// An issuer that begins with `begun` and gives these answers to the questions in turn; the last one stays.
async fn issuer(begun: &'static str, answers: Vec<Vec<Act>>) -> Server {
    let count = AtomicUsize::new(0);
    Server::start(move |seen: &Seen| {
        if seen.head.starts_with("post /device") {
            return json("200 OK", begun);
        }
        let at = count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        answers[at].clone()
    })
    .await
}

async fn log_in(server: &Server, pkce: bool) -> Result<LoggedIn, LoginError> {
    let login = begin_login(&oauth(server, pkce), &Transport::default()).await?;
    login.with_second(SECOND).wait(&system_now()).await
}

fn polls(server: &Server) -> Vec<Seen> {
    server.seen().into_iter().filter(|seen| seen.head.starts_with("post /token")).collect()
}

fn field(body: &str, name: &str) -> Option<String> {
    body.split('&').find_map(|part| part.strip_prefix(&format!("{name}="))).map(str::to_owned)
}

#[tokio::test]
async fn a_login_waits_for_the_person_and_proves_that_it_is_the_one_that_began() {
    for pkce in [true, false] {
        let pending = || error("authorization_pending");
        let server = issuer(BEGUN, vec![pending(), pending(), json("200 OK", TOKENS)]).await;
        let before = system_now()();
        let tokens = log_in(&server, pkce).await.unwrap();
        assert_eq!(tokens.access_token.expose_secret(), "marked-at");
        assert_eq!(tokens.refresh_token.unwrap().expose_secret(), "marked-rt");
        assert!(tokens.expires_at_ms.unwrap() >= before + 3_600_000);
        let begun = server.seen()[0].body.clone();
        assert_eq!(field(&begun, "client_id").as_deref(), Some("client-1"));
        assert_eq!(field(&begun, "scope").as_deref(), Some("chat+offline"));
        let polls = polls(&server);
        assert_eq!(polls.len(), 3);
        for poll in &polls {
            let grant = field(&poll.body, "grant_type").unwrap();
            assert_eq!(grant, "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code");
            assert_eq!(field(&poll.body, "device_code").as_deref(), Some("marked-device"));
            let verifier = field(&poll.body, "code_verifier");
            assert_eq!(verifier.is_some(), pkce);
            let challenge = verifier.map(|verifier| {
                use base64::Engine as _;
                base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
            });
            assert_eq!(field(&begun, "code_challenge"), challenge);
            assert_eq!(field(&begun, "code_challenge_method"), pkce.then(|| "S256".to_owned()));
        }
    }
}

#[tokio::test]
async fn slow_down_is_obeyed_for_the_rest_of_the_login() {
    let server = issuer(BEGUN, vec![error("slow_down"), error("authorization_pending"), json("200 OK", TOKENS)]).await;
    let begun = Instant::now();
    log_in(&server, false).await.unwrap();
    // 5 seconds, and 10 twice: a sleep is never shorter than it was asked to be.
    assert!(begun.elapsed() >= SECOND * 25, "{:?}", begun.elapsed());
    assert_eq!(polls(&server).len(), 3);
}

#[tokio::test]
async fn every_end_is_told_and_nothing_is_asked_after_it() {
    for (answer, told) in [
        (error("access_denied"), "refused at the provider"),
        (error("expired_token"), "too old"),
        (error("invalid_client"), "invalid_client"),
        (json("200 OK", r#"{"token_type":"Bearer"}"#), "without an access token"),
        (json("404 Not Found", "marked-page"), "HTTP 404"),
    ] {
        let server = issuer(BEGUN, vec![error("authorization_pending"), answer]).await;
        let error = log_in(&server, true).await.err().unwrap().to_string();
        assert!(error.contains(told) && !error.contains("marked"), "{told}: {error}");
        assert_eq!(polls(&server).len(), 2, "{told}");
    }
}

#[tokio::test]
async fn a_network_that_breaks_or_a_server_in_trouble_ends_no_login_and_is_asked_less_often() {
    let cut = Act::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"access".to_vec());
    let troubles = [vec![Act::Close], json("503 Service Unavailable", ""), vec![cut, Act::Close]];
    let answers = troubles.into_iter().chain([json("200 OK", TOKENS)]).collect();
    let server = issuer(BEGUN, answers).await;
    let begun = Instant::now();
    log_in(&server, false).await.unwrap();
    assert!(begun.elapsed() >= SECOND * (5 + 10 + 20 + 40), "{:?}", begun.elapsed());
    assert_eq!(polls(&server).len(), 4);
}

#[tokio::test]
async fn a_login_that_nobody_confirms_ends_by_itself() {
    let begun =
        r#"{"device_code":"d","user_code":"U","verification_uri":"https://x.example","expires_in":12,"interval":0}"#;
    let server = issuer(begun, vec![error("authorization_pending")]).await;
    let error = log_in(&server, false).await.err().unwrap().to_string();
    assert!(error.contains("nobody confirmed"), "{error}");
    let asked = polls(&server).len();
    assert!((1..12).contains(&asked), "an interval of nothing is a second: asked {asked} times");
}

#[tokio::test]
async fn dropping_a_login_closes_its_connection_and_asks_no_more() {
    let mut server = issuer(BEGUN, vec![vec![Act::AwaitClose]]).await;
    let login = begin_login(&oauth(&server, true), &Transport::default()).await.unwrap().with_second(SECOND);
    let now = system_now();
    let waiting = tokio::spawn(async move { login.wait(&now).await.is_ok() });
    while polls(&server).is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    waiting.abort();
    server.client_closed().await;
    assert_eq!(polls(&server).len(), 1);
}

#[tokio::test]
async fn an_issuer_that_does_not_begin_a_login_is_told_without_its_words() {
    for begun in [
        r#"{"error":"invalid_client","error_description":"marked-words"}"#,
        r#"{"device_code":"d","user_code":"U","verification_uri":"file:///etc/passwd"}"#,
        "marked-page",
        r#"{"device_code":"","user_code":"U","verification_uri":"https://x.example"}"#,
    ] {
        let server = issuer(begun, vec![json("200 OK", TOKENS)]).await;
        let error = log_in(&server, false).await.err().unwrap().to_string();
        assert!(!error.contains("marked"), "{error}");
        assert_eq!(server.seen().len(), 1);
    }
}
