//! Google's service accounts against a token endpoint of raw sockets.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hermes_providers::credential::service_account::{ServiceAccount, ServiceAccountPlace, ServiceAccountSource};
use hermes_providers::credential::{Credentials, FetchedCredentials, Next, Outcome, Secret, SecretSource as _};
use hermes_providers::{ErrorClass, Profiles, ProviderError, Transport};
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::server::{Act, Server, response};

/// Made for this test; it opens nothing anywhere.
const PEM: &str = include_str!("keys/service-account.pem");

fn account() -> ServiceAccount {
    Profiles::bundled().unwrap().get("vertex").unwrap().service_account.clone().unwrap()
}

fn key_file(dir: &Path, change: impl FnOnce(&mut Value), server: &Server) -> PathBuf {
    let mut file = json!({
        "type": "service_account", "project_id": "my-project", "private_key_id": "key-1", "private_key": PEM,
        "client_email": "robot@my-project.example", "token_uri": server.base_url(),
    });
    change(&mut file);
    let path = dir.join("key.json");
    std::fs::write(&path, file.to_string()).unwrap();
    path
}

fn source(key_file: PathBuf) -> ServiceAccountSource {
    let place = ServiceAccountPlace { key_file: Some(key_file), ..ServiceAccountPlace::default() };
    ServiceAccountSource::new(account(), place, Transport::default())
}

fn token(number: usize, life_s: u32) -> Vec<Act> {
    let body = format!(r#"{{"access_token":"ya29.marked-{number}","expires_in":{life_s},"token_type":"Bearer"}}"#);
    vec![response("200 OK", "Content-Type: application/json\r\n", &body)]
}

fn field(body: &str, name: &str) -> String {
    let value = body.split('&').find_map(|part| part.strip_prefix(&format!("{name}="))).unwrap_or_default();
    value.replace("%3A", ":").replace("%2F", "/")
}

#[tokio::test]
async fn a_key_file_becomes_a_token_by_an_assertion_that_its_public_key_confirms() {
    let server = Server::always(token(1, 3600)).await;
    let dir = tempfile::tempdir().unwrap();
    let path = key_file(dir.path(), |_| {}, &server);
    let before = std::fs::read(&path).unwrap();
    let found = source(path.clone()).fetch().await.unwrap();
    assert!(matches!(&found.secret, Secret::Key(key) if key.expose_secret() == "ya29.marked-1"));
    let address = "https://aiplatform.googleapis.com/v1/projects/my-project/locations/global/publishers/google";
    assert_eq!(found.base_url.as_deref(), Some(address));
    assert_eq!(std::fs::read(&path).unwrap(), before, "the key file is only read");

    let body = &server.seen()[0].body;
    assert_eq!(field(body, "grant_type"), "urn:ietf:params:oauth:grant-type:jwt-bearer");
    let assertion = field(body, "assertion");
    let parts: Vec<&str> = assertion.split('.').collect();
    let read = |part: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
    assert_eq!(read(parts[0]), json!({ "alg": "RS256", "typ": "JWT", "kid": "key-1" }));
    let claims = read(parts[1]);
    assert_eq!(claims["iss"], "robot@my-project.example");
    assert_eq!(claims["aud"], server.base_url());
    assert_eq!(claims["scope"], "https://www.googleapis.com/auth/cloud-platform");
    assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 3600);
    let der = PrivatePkcs8KeyDer::from_pem_slice(PEM.as_bytes()).unwrap();
    let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key());
    let signed = format!("{}.{}", parts[0], parts[1]);
    public.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(parts[2]).unwrap()).unwrap();
}

#[tokio::test]
async fn a_token_is_kept_renewed_before_its_end_and_once_when_it_is_refused() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let next = move || count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    // The second one ends within the time ahead.
    let server = Server::start(move |_| match next() {
        1 => token(1, 60),
        number => token(number, 3600),
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let credentials = FetchedCredentials::new(source(key_file(dir.path(), |_| {}, &server)));
    let (one, other) = tokio::join!(credentials.take("m"), credentials.take("m"));
    let (first, other) = (one.unwrap(), other.unwrap());
    assert_eq!((first.id.as_str(), server.seen().len()), (other.id.as_str(), 1), "one request serves all who wait");
    let refused = ProviderError::new(ErrorClass::Auth, "401");
    assert_eq!(credentials.report(&first, "m", Outcome::Failed(&refused)), Next::Another);
    let second = credentials.take("m").await.unwrap();
    let third = credentials.take("m").await.unwrap();
    assert!(first.id != second.id && second.id != third.id, "{} {} {}", first.id, second.id, third.id);
    assert_eq!(credentials.take("m").await.unwrap().id, third.id);
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn a_file_of_a_person_s_own_login_is_taken_too_and_not_written() {
    let server = Server::always(token(1, 3600)).await;
    let dir = tempfile::tempdir().unwrap();
    let path = key_file(
        dir.path(),
        |file| {
            *file = json!({
                "type": "authorized_user", "client_id": "id-1", "client_secret": "s-1", "refresh_token": "rt-1",
                "quota_project_id": "mine", "token_uri": file["token_uri"],
            });
        },
        &server,
    );
    let found = source(path).fetch().await.unwrap();
    assert!(found.base_url.unwrap().contains("/projects/mine/"));
    let body = server.seen()[0].body.clone();
    assert_eq!((field(&body, "grant_type"), field(&body, "refresh_token")), ("refresh_token".into(), "rt-1".into()));
}

#[tokio::test]
async fn what_is_wrong_is_told_with_a_code_and_without_a_piece_of_the_key() {
    let refusal = r#"{"error":"invalid_grant","error_description":"marked-words"}"#;
    let answers: [(&str, Vec<Act>, &str, ErrorClass); 5] = [
        ("400", vec![response("400 X", "", refusal)], "service_account_refused", ErrorClass::Auth),
        ("429", vec![response("429 X", "", "{}")], "service_account_unreachable", ErrorClass::RateLimit),
        ("503", vec![response("503 X", "", "{}")], "service_account_unreachable", ErrorClass::ServerError),
        ("cut", vec![Act::Close], "service_account_unreachable", ErrorClass::Timeout),
        (
            "moved",
            vec![response("307 X", "Location: /elsewhere\r\n", "")],
            "service_account_unreachable",
            ErrorClass::Auth,
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (name, acts, code, class) in answers {
        let server = Server::always(acts).await;
        let error = source(key_file(dir.path(), |_| {}, &server)).fetch().await.err().unwrap();
        assert_eq!((error.code.as_deref(), error.class), (Some(code), class), "{name}: {error}");
        assert_eq!(server.seen().len(), 1, "{name}: nothing is sent twice or elsewhere");
        assert!(!error.message.contains("marked"), "{error}");
    }
    let server = Server::always(token(1, 3600)).await;
    type Change = fn(&mut Value);
    let broken: [(&str, Change); 5] = [
        ("no key", |file| file["private_key"] = "marked-key".into()),
        ("no account", |file| file["client_email"] = "".into()),
        ("another kind", |file| file["type"] = "external_account".into()),
        ("no object", |file| *file = json!(["marked-key"])),
        ("a bad project", |file| file["project_id"] = "a/../b".into()),
    ];
    for (name, change) in broken {
        let error = source(key_file(dir.path(), change, &server)).fetch().await.err().unwrap();
        assert_eq!(
            (error.class, error.code.as_deref()),
            (ErrorClass::Configuration, Some("service_account_unreadable")),
            "{name}"
        );
        assert!(!error.message.contains("marked"), "{name}: {error}");
    }
    let missing = source(dir.path().join("nothing")).fetch().await.err().unwrap();
    assert_eq!(missing.code.as_deref(), Some("service_account_missing"));
    assert_eq!(server.seen().len(), 0);
}
