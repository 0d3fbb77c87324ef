//! Requests for tokens go where the configuration says: through the proxy, and directly where it says so.

use std::sync::Arc;
use std::time::Duration;

use hermes_providers::aws::{AwsCredentials, AwsSources, WebIdentity};
use hermes_providers::credential::device::{OAuth, begin_login};
use hermes_providers::credential::file::{AuthFile, Entry, EntryKind};
use hermes_providers::credential::pool::Status;
use hermes_providers::credential::refresh::{HttpTokens, Refresher, TokenEndpoint};
use hermes_providers::credential::service_account::{ServiceAccount, ServiceAccountPlace, ServiceAccountSource};
use hermes_providers::credential::{Credentials as _, Fingerprint, SecretSource as _, system_now};
use hermes_providers::{Network, Transport};

use crate::server::{Act, Server, response};

/// An address in a network of one's own where nobody is: whoever gets an answer got it from the proxy.
const AWAY: &str = "http://10.255.255.1/token";

/// A proxy that answers every kind of token request itself.
async fn proxy() -> Server {
    Server::start(|seen| {
        let keys = "<R><Credentials><AccessKeyId>AS1</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
                    <SessionToken>t</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></R>";
        let body = match seen.body.as_str() {
            body if body.contains("AssumeRole") => keys,
            body if body.contains("grant_type=") => r#"{"access_token":"at-1","refresh_token":"rt-2","expires_in":60}"#,
            _ => r#"{"device_code":"d","user_code":"U","verification_uri":"https://x.example"}"#,
        };
        vec![response("200 OK", "", body)]
    })
    .await
}

fn network(proxy: &Server) -> Network {
    let address = format!("http://user:pass@127.0.0.1:{}", proxy.port);
    Network { proxy: Some(address.into()), connect: Duration::from_millis(200), ..Network::default() }
}

fn oauth(url: &str) -> OAuth {
    OAuth {
        device_url: url.into(),
        token_url: url.into(),
        client_id: "test".into(),
        scope: String::new(),
        pkce: false,
        rotates: true,
        skew_seconds: None,
    }
}

/// A login in a file, and who renews it.
fn login(dir: &tempfile::TempDir, endpoint: TokenEndpoint, transport: &Transport) -> (AuthFile, Refresher) {
    let file = AuthFile::at(dir.path().join("auth.json"));
    let entry = Entry {
        id: "login".into(),
        kind: EntryKind::OAuth,
        access_token: Some("at-0".into()),
        refresh_token: Some("rt-1".into()),
        expires_at_ms: Some(1),
        ..Entry::default()
    };
    file.update(|doc| (doc.put("p", &entry), true)).unwrap();
    let tokens = Arc::new(HttpTokens::new(transport.clone()));
    (file.clone(), Refresher::new(file, endpoint, tokens, system_now()))
}

/// Asks for tokens in every way that there is.
async fn ask_all(url: &str, transport: &Transport) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let mut good = 0;
    good += usize::from(begin_login(&oauth(url), transport).await.is_ok());
    let (_, refresher) = login(&dir, oauth(url).endpoint(), transport);
    good += usize::from(refresher.refresh("p", "login", &Fingerprint::of(&"at-0".into())).await.is_ok());
    let identity = WebIdentity { role_arn: "r".into(), token_file: dir.path().join("token"), session_name: None };
    std::fs::write(&identity.token_file, "web-token").unwrap();
    let sources = AwsSources {
        web_identity: Some(identity),
        sts_url: Some(url.to_owned()),
        transport: transport.clone(),
        ..AwsSources::default()
    };
    good += usize::from(AwsCredentials::new(sources).take("m").await.is_ok());
    let key = serde_json::json!({
        "type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r", "token_uri": url,
    });
    std::fs::write(dir.path().join("key"), key.to_string()).unwrap();
    let account = ServiceAccount {
        key_file_env: Vec::new(),
        key_file: None,
        scope: String::new(),
        address: None,
        project_env: Vec::new(),
        location_env: Vec::new(),
    };
    let place = ServiceAccountPlace { key_file: Some(dir.path().join("key")), ..ServiceAccountPlace::default() };
    good += usize::from(ServiceAccountSource::new(account, place, transport.clone()).fetch().await.is_ok());
    good
}

#[tokio::test]
async fn every_request_for_a_token_goes_through_the_configured_proxy() {
    let proxy = proxy().await;
    assert_eq!(ask_all(AWAY, &Transport::new(network(&proxy))).await, 4);
    let seen = proxy.seen();
    assert_eq!(seen.len(), 4);
    for request in &seen {
        assert!(request.head.starts_with("post http://10.255.255.1/token "), "{}", request.head);
        assert!(request.head.contains("proxy-authorization: basic dxnlcjpwyxnz"), "{}", request.head);
    }
}

#[tokio::test]
async fn what_is_reached_directly_is_not_asked_for_through_the_proxy() {
    let (through, direct) = (proxy().await, proxy().await);
    assert_eq!(ask_all(&direct.base_url(), &Transport::new(network(&through))).await, 4, "this computer");
    assert_eq!((through.seen().len(), direct.seen().len()), (0, 4));
    let excepted = Network { no_proxy: vec!["10.255.255.1".into()], ..network(&through) };
    assert_eq!(ask_all(AWAY, &Transport::new(excepted)).await, 0, "nobody is there");
    assert_eq!(through.seen().len(), 0);
}

#[tokio::test]
async fn b45_a_server_that_does_not_finish_its_handshake_has_provably_not_got_the_token() {
    let silent = Server::always(vec![Act::AwaitClose]).await;
    let impatient = Network { connect: Duration::from_millis(200), ..Network::default() };
    let dir = tempfile::tempdir().unwrap();
    let url = format!("https://127.0.0.1:{}/token", silent.port);
    let (file, refresher) = login(&dir, oauth(&url).endpoint(), &Transport::new(impatient));
    let failed = refresher.refresh("p", "login", &Fingerprint::of(&"at-0".into())).await.unwrap_err();
    let entry = file.read().unwrap().entry("p", "login").unwrap();
    assert_eq!((entry.health.status, entry.refresh), (Status::Ok, None), "{failed}");
    assert!(failed.to_string().contains("no answer of 127.0.0.1"), "{failed}");
}

#[tokio::test]
async fn a_form_is_sent_once_and_follows_no_redirect() {
    let server = Server::start(|seen| {
        let to = if seen.head.starts_with("post /v1") { "/again" } else { "/v1" };
        vec![response("307 Temporary Redirect", &format!("Location: {to}\r\n"), "")]
    })
    .await;
    assert_eq!(ask_all(&server.base_url(), &Transport::default()).await, 0);
    assert_eq!(server.seen().len(), 4);
}
