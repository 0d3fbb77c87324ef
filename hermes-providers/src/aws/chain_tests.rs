//! Where credentials are found, renewed and given up, against files and a server on this computer.

use super::*;
use crate::aws::AwsEnvKeys;
use crate::credential::{Credentials as _, Next, Outcome, Ticket};
use secrecy::ExposeSecret;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt};
use tokio::net::TcpListener;

/// A directory of its own, removed with the value.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

fn shown(ticket: &Ticket) -> String {
    let base = ticket.base_url.as_deref().unwrap_or("-");
    let secret = match &ticket.secret {
        Secret::Key(key) => format!("key {}", key.expose_secret()),
        Secret::Aws { access_key_id, secret_access_key, session_token, region } => {
            let token = session_token.as_ref().map_or("-", |token| token.expose_secret());
            format!("{access_key_id} {} {token} {region}", secret_access_key.expose_secret())
        }
        Secret::None => "none".to_owned(),
    };
    format!("{}: {secret} at {base}", ticket.label)
}

async fn take(sources: AwsSources) -> Result<String, String> {
    let ticket = AwsCredentials::new(sources).take("m").await;
    ticket.map(|ticket| shown(&ticket)).map_err(|error| format!("{:?} {}", error.class, error.message))
}

fn env_keys() -> AwsEnvKeys {
    AwsEnvKeys { access_key_id: "AKENV".into(), secret_access_key: "s1".into(), session_token: Some("t1".into()) }
}

#[tokio::test]
async fn the_first_source_that_is_there_counts() {
    let folder = Folder::new();
    let mut sources = AwsSources {
        bearer: Some("bearer-1".into()),
        keys: Some(env_keys()),
        credentials_file: Some(folder.write(
            "credentials",
            "[default]\naws_access_key_id=AKFILE\naws_secret_access_key=s2\n[work]\naws_access_key_id=AKWORK\naws_secret_access_key=s3\naws_session_token=t3\n",
        )),
        config_file: Some(folder.write("config", "[default]\nregion=eu-west-1\n[profile work]\nregion=ap-south-1\n")),
        ..AwsSources::default()
    };
    let eu = "https://bedrock-runtime.eu-west-1.amazonaws.com";
    assert_eq!(take(sources.clone()).await, Ok(format!("AWS_BEARER_TOKEN_BEDROCK: key bearer-1 at {eu}")));
    sources.bearer = None;
    assert_eq!(take(sources.clone()).await, Ok(format!("AWS_ACCESS_KEY_ID: AKENV s1 t1 eu-west-1 at {eu}")));
    sources.keys = None;
    assert_eq!(take(sources.clone()).await, Ok(format!("profile default: AKFILE s2 - eu-west-1 at {eu}")));
    sources.region = Some("us-west-2".into());
    let us = "https://bedrock-runtime.us-west-2.amazonaws.com";
    assert_eq!(take(sources.clone()).await, Ok(format!("profile default: AKFILE s2 - us-west-2 at {us}")));
    sources.profile = Some("work".into());
    sources.region = None;
    let asia = "https://bedrock-runtime.ap-south-1.amazonaws.com";
    assert_eq!(take(sources.clone()).await, Ok(format!("profile work: AKWORK s3 t3 ap-south-1 at {asia}")));
    // An address of AWS says its region itself; another one says nothing.
    sources.runtime_url = Some("https://bedrock-runtime.sa-east-1.amazonaws.com".into());
    let there = "https://bedrock-runtime.sa-east-1.amazonaws.com";
    assert_eq!(take(sources.clone()).await, Ok(format!("profile work: AKWORK s3 t3 sa-east-1 at {there}")));
    sources.runtime_url = Some("http://127.0.0.1:9".into());
    assert_eq!(take(sources).await, Ok("profile work: AKWORK s3 t3 ap-south-1 at http://127.0.0.1:9".to_owned()));
}

#[tokio::test]
async fn what_is_missing_or_not_done_here_is_said() {
    let folder = Folder::new();
    let with = |config: &str, profile: Option<&str>| AwsSources {
        config_file: Some(folder.write("config", config)),
        credentials_file: Some(folder.path().join("nothing")),
        profile: profile.map(str::to_owned),
        ..AwsSources::default()
    };
    let said = |result: Result<String, String>| result.unwrap_err();
    let error = said(take(AwsSources::default()).await);
    assert!(error.starts_with("Configuration") && error.contains("AWS_BEARER_TOKEN_BEDROCK"), "{error}");
    let error = said(take(with("[default]\nregion=x-1\n", Some("gone"))).await);
    assert!(error.contains("no AWS profile `gone`"), "{error}");
    let error = said(take(with("[default]\nsso_session = corp\n", None)).await);
    assert!(error.contains("single sign-on") && error.contains("export-credentials"), "{error}");
    let error = said(take(with("[profile p]\nrole_arn=r\nsource_profile=default\n", Some("p"))).await);
    assert!(error.contains("another profile's role"), "{error}");
    // A directory where a file should be stops only who needs the file.
    let mut broken = AwsSources { config_file: Some(folder.path()), ..AwsSources::default() };
    assert!(said(take(broken.clone()).await).contains("cannot be used"));
    broken.keys = Some(env_keys());
    assert!(take(broken).await.is_ok());
}

#[test]
fn variables_are_read_through_what_the_caller_gives() {
    let variable = |name: &str| {
        Some(match name {
            "AWS_ACCESS_KEY_ID" => " AK ".to_owned(),
            "AWS_SECRET_ACCESS_KEY" => "marked-secret".to_owned(),
            "AWS_SESSION_TOKEN" => "  ".to_owned(),
            "AWS_DEFAULT_REGION" => "eu-north-1".to_owned(),
            "AWS_CONFIG_FILE" => "/elsewhere".to_owned(),
            "AWS_BEARER_TOKEN_BEDROCK" => "marked-bearer".to_owned(),
            _ => return None,
        })
    };
    let sources = AwsSources::from_variables(&variable, Some(Path::new("/somebody")));
    let keys = sources.keys.clone().unwrap();
    assert_eq!((keys.access_key_id.as_str(), keys.session_token.is_none()), ("AK", true));
    assert_eq!(sources.region.as_deref(), Some("eu-north-1"));
    assert_eq!(sources.config_file.as_deref(), Some(Path::new("/elsewhere")));
    assert_eq!(sources.credentials_file.as_deref(), Some(Path::new("/somebody/.aws/credentials")));
    let shown = format!("{sources:?} {keys:?} {:?}", AwsCredentials::new(sources.clone()));
    assert!(!shown.contains("marked"), "{shown}");
    assert_eq!(AwsSources::from_variables(&|_| None, None).credentials_file, None);
}

/// A token exchange that answers what the test says; counts and keeps what came.
struct Exchange {
    url: String,
    seen: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Exchange {
    /// `answer` gives status and body for the nth request, from 0.
    async fn start(answer: impl Fn(usize) -> (u16, String) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://127.0.0.1:{}/", listener.local_addr().unwrap().port());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            for nth in 0.. {
                let Ok((mut socket, _)) = listener.accept().await else { break };
                let mut bytes = Vec::new();
                let mut buffer = [0; 4096];
                while let Ok(got @ 1..) = socket.read(&mut buffer).await {
                    bytes.extend_from_slice(&buffer[..got]);
                    if String::from_utf8_lossy(&bytes).contains("WebIdentityToken=") {
                        break;
                    }
                }
                log.lock().unwrap().push(String::from_utf8_lossy(&bytes).into_owned());
                let (status, body) = answer(nth);
                let head =
                    format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                let _ = socket.write_all(format!("{head}{body}").as_bytes()).await;
            }
        });
        Self { url, seen, task }
    }

    fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    fn sources(&self, token_file: PathBuf) -> AwsSources {
        let identity = WebIdentity { role_arn: "arn:aws:iam::1:role/r".into(), token_file, session_name: None };
        AwsSources {
            web_identity: Some(identity),
            region: Some("eu-west-1".into()),
            sts_url: Some(self.url.clone()),
            ..AwsSources::default()
        }
    }
}

/// Keys with this number that end that many seconds from now.
fn keys(number: usize, seconds: u64) -> (u16, String) {
    let ends = crate::aws::time::stamp(SystemTime::now() + Duration::from_secs(seconds));
    let (date, time) = ends.split_at(8);
    let ends =
        format!("{}-{}-{}T{}:{}:{}Z", &date[..4], &date[4..6], &date[6..8], &time[1..3], &time[3..5], &time[5..7]);
    let body = format!(
        "<R><Credentials><AccessKeyId>AS{number}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
         <SessionToken>t</SessionToken><Expiration>{ends}</Expiration></Credentials></R>"
    );
    (200, body)
}

fn id_of(ticket: &Ticket) -> &str {
    match &ticket.secret {
        Secret::Aws { access_key_id, .. } => access_key_id,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_web_identity_is_exchanged_once_for_all_who_wait_and_kept() {
    let folder = Folder::new();
    let exchange = Exchange::start(|nth| keys(nth, 3600)).await;
    let credentials = AwsCredentials::new(exchange.sources(folder.write("token", "to/ken\n")));
    let all = futures::future::join_all((0..20).map(|_| credentials.take("m"))).await;
    for ticket in &all {
        assert_eq!(id_of(ticket.as_ref().unwrap()), "AS0");
    }
    assert_eq!(id_of(&credentials.take("m").await.unwrap()), "AS0");
    assert_eq!(exchange.count(), 1);
    let seen = exchange.seen.lock().unwrap()[0].clone();
    let form = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr\
        &RoleSessionName=hermes&WebIdentityToken=to%2Fken";
    assert!(seen.ends_with(form) && !seen.to_lowercase().contains("authorization"), "{seen}");
}

#[tokio::test]
async fn keys_are_renewed_before_they_end_and_old_ones_serve_until_then() {
    let folder = Folder::new();
    let token = folder.write("token", "token");
    // The first keys end within the time ahead, so each request looks for new ones.
    let exchange = Exchange::start(|nth| match nth {
        0 => keys(0, 60),
        1 => (503, "busy".to_owned()),
        _ => keys(nth, 3600),
    })
    .await;
    let credentials = AwsCredentials::new(exchange.sources(token.clone()));
    let ids = [
        id_of(&credentials.take("m").await.unwrap()).to_owned(),
        id_of(&credentials.take("m").await.unwrap()).to_owned(),
        id_of(&credentials.take("m").await.unwrap()).to_owned(),
        id_of(&credentials.take("m").await.unwrap()).to_owned(),
    ];
    assert_eq!((ids, exchange.count()), (["AS0", "AS0", "AS2", "AS2"].map(str::to_owned), 3));
    // Keys that have ended serve nobody.
    let refused = "<E><Code>ExpiredTokenException</Code><Message>token</Message></E>";
    let ended = Exchange::start(move |nth| if nth == 0 { keys(0, 0) } else { (400, refused.to_owned()) }).await;
    let credentials = AwsCredentials::new(ended.sources(token));
    credentials.take("m").await.unwrap();
    let error = credentials.take("m").await.unwrap_err();
    assert_eq!((error.class, error.code.as_deref()), (ErrorClass::Auth, Some("ExpiredTokenException")));
}

#[tokio::test]
async fn a_search_whose_only_waiter_left_does_not_hold_up_the_next_one() {
    let folder = Folder::new();
    let exchange = Exchange::start(|nth| keys(nth, 3600)).await;
    let credentials = AwsCredentials::new(exchange.sources(folder.write("token", "token")));
    let first = credentials.take("m");
    assert!(futures::FutureExt::now_or_never(first).is_none());
    assert!(credentials.take("m").await.is_ok());
}

#[tokio::test]
async fn refused_keys_are_read_again_once() {
    let folder = Folder::new();
    let file = |id: &str| {
        let text = format!("[default]\naws_access_key_id={id}\naws_secret_access_key=s\n");
        folder.write("credentials", &text)
    };
    let sources = AwsSources { credentials_file: Some(file("AK1")), ..AwsSources::default() };
    let credentials = AwsCredentials::new(sources);
    let auth = ProviderError::new(ErrorClass::Auth, "no");
    let busy = ProviderError::new(ErrorClass::RateLimit, "wait");
    let first = credentials.take("m").await.unwrap();
    assert_eq!(credentials.report(&first, "m", Outcome::Failed(&busy)), Next::Same);
    // Somebody renews the file; without a refusal nobody looks.
    file("AK2");
    assert_eq!(id_of(&credentials.take("m").await.unwrap()), "AK1");
    assert_eq!(credentials.report(&first, "m", Outcome::Failed(&auth)), Next::Another);
    let second = credentials.take("m").await.unwrap();
    assert_eq!(id_of(&second), "AK2");
    // A late refusal of the old keys leaves the new ones alone.
    assert_eq!(credentials.report(&first, "m", Outcome::Failed(&auth)), Next::Same);
    assert_eq!(credentials.report(&second, "m", Outcome::Failed(&auth)), Next::Another);
    let again = credentials.take("m").await.unwrap();
    assert_eq!(id_of(&again), "AK2");
    assert_eq!(credentials.report(&again, "m", Outcome::Failed(&auth)), Next::Same, "the same keys a second time");
    assert_eq!(credentials.report(&again, "m", Outcome::Answered), Next::Same);
    assert_eq!(credentials.report(&again, "m", Outcome::Failed(&auth)), Next::Another);
}
