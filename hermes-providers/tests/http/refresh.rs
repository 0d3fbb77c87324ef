//! Tokens that several processes renew, some of which are killed.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hermes_providers::credential::file::{AuthFile, Entry, EntryKind};
use hermes_providers::credential::pool::{LimitScope, Status, Strategy};
use hermes_providers::credential::refresh::{HttpTokens, NOTE_TTL_MS, Refresher, TokenEndpoint};
use hermes_providers::credential::{Credentials, KeyPool, KeyPoolConfig, Secret, system_now};
use hermes_providers::{ErrorClass, HttpChatModel};
use secrecy::ExposeSecret as _;

use crate::server::{Act, Seen, Server, ask, config, good, response};

/// Tells the test binary that it is a child, and what it works on.
const FILE: &str = "HERMES_REFRESH_TEST_FILE";
const URL: &str = "HERMES_REFRESH_TEST_URL";
/// How many refresh tokens the processes spend; the issue's number is 1000.
const ROUNDS: &str = "HERMES_REFRESH_ROUNDS";
const ROUNDS_USUAL: usize = 30;
/// Longest test, in seconds.
const TEST_MAX_S: u64 = 900;
const HOUR_MS: i64 = 3_600_000;

/// A token endpoint that gives each refresh token's successor and counts how often each was spent.
#[derive(Default)]
struct Issuer {
    /// By refresh token.
    spent: Mutex<HashMap<String, u32>>,
    issued: Mutex<u32>,
}

impl Issuer {
    fn login(&self) -> String {
        let mut issued = self.issued.lock().unwrap();
        *issued += 1;
        format!("rt-{issued}")
    }

    fn spends(&self) -> usize {
        self.spent.lock().unwrap().len()
    }

    fn answer(&self, seen: &Seen) -> Vec<Act> {
        let token = seen.body.split('&').find_map(|part| part.strip_prefix("refresh_token=")).unwrap().to_owned();
        let times = {
            let mut spent = self.spent.lock().unwrap();
            *spent.entry(token).and_modify(|times| *times += 1).or_insert(1)
        };
        if times > 1 {
            return vec![response("400 X", "", r#"{"error":"invalid_grant"}"#)];
        }
        let next = self.login();
        let body = format!(r#"{{"access_token":"at-of-{next}","refresh_token":"{next}","expires_in":3600}}"#);
        vec![response("200 OK", "Content-Type: application/json\r\n", &body)]
    }
}

async fn issuer() -> (Arc<Issuer>, Server) {
    let issuer = Arc::new(Issuer::default());
    let answers = Arc::clone(&issuer);
    let server = Server::start(move |seen| answers.answer(seen)).await;
    (issuer, server)
}

fn put(file: &AuthFile, refresh_token: &str, expires_at_ms: i64) {
    let entry = Entry {
        id: "login".into(),
        label: "the login".into(),
        kind: EntryKind::OAuth,
        source: "device_code".into(),
        access_token: Some("at-old".into()),
        refresh_token: Some(refresh_token.into()),
        expires_at_ms: Some(expires_at_ms),
        ..Entry::default()
    };
    file.update(|doc| (doc.put("p", &entry), true)).unwrap();
}

fn entry(file: &AuthFile) -> Entry {
    file.read().unwrap().entry("p", "login").unwrap()
}

fn pool(file: &AuthFile, url: &str, skew_ms: i64, rotates: bool) -> KeyPool {
    let endpoint = TokenEndpoint {
        url: url.to_owned(),
        client_id: "test".into(),
        client_secret: None,
        rotates,
        skew_ms,
        note_ttl_ms: NOTE_TTL_MS,
    };
    KeyPool::new(KeyPoolConfig {
        provider: "p".into(),
        seeded: Vec::new(),
        file: Some(file.clone()),
        refresher: Some(Refresher::new(file.clone(), endpoint, Arc::new(HttpTokens::default()), system_now())),
        strategy: Strategy::FillFirst,
        scope: LimitScope::Row,
        now: system_now(),
    })
}

async fn token(pool: &KeyPool) -> String {
    match pool.take("m").await.unwrap().secret {
        Secret::Key(key) => key.expose_secret().to_owned(),
        other => panic!("{other:?}"),
    }
}

fn home() -> (tempfile::TempDir, AuthFile) {
    let dir = tempfile::tempdir().unwrap();
    let file = AuthFile::at(dir.path().join("auth.json"));
    (dir, file)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b42_two_users_of_an_ended_token_send_one_request_and_use_what_it_brings() {
    let (issuer, server) = issuer().await;
    let (_dir, file) = home();
    put(&file, &issuer.login(), 1);
    let (one, other) = (pool(&file, &server.base_url(), 0, true), pool(&file, &server.base_url(), 0, true));
    let (a, b, c) = tokio::join!(token(&one), token(&other), token(&one));
    assert_eq!([a.as_str(), b.as_str(), c.as_str()], ["at-of-rt-2"; 3]);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_request_that_is_given_up_does_not_lose_the_token_that_it_asked_for() {
    let (issuer, server) = issuer().await;
    let (_dir, file) = home();
    put(&file, &issuer.login(), 1);
    let pool = pool(&file, &server.base_url(), 0, true);
    let _ = tokio::time::timeout(Duration::from_millis(1), pool.take("m")).await;
    assert_eq!(token(&pool).await, "at-of-rt-2");
    pool.close().await;
    assert_eq!((server.seen().len(), entry(&file).refresh), (1, None));
}

#[tokio::test]
async fn b43_a_renewal_without_an_end_is_explained_and_its_token_is_not_sent_again() {
    let (issuer, server) = issuer().await;
    let (_dir, file) = home();
    put(&file, &issuer.login(), 1);
    // What a process leaves that is killed after its request: a note of a process that is no more.
    let text = std::fs::read_to_string(file.path()).unwrap();
    let note =
        r#""refresh_started": {"fingerprint": "FP", "attempt": "1", "begun_at_ms": 5, "until_ms": 6, "pid": 1}, "id""#;
    let spent = hermes_providers::credential::Fingerprint::of(&"rt-1".into());
    std::fs::write(file.path(), text.replace("\"id\"", &note.replace("FP", spent.as_str()))).unwrap();
    for _ in 0..3 {
        let error = pool(&file, &server.base_url(), 0, true).take("m").await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Auth);
        assert!(error.message.contains("process 1") && error.message.contains("log in"), "{}", error.message);
    }
    assert_eq!((server.seen().len(), entry(&file).health.status), (0, Status::Dead));
    // A new login revives it (B44).
    file.update(|doc| (doc.remove("p", "login"), true)).unwrap();
    put(&file, &issuer.login(), 1);
    assert_eq!(token(&pool(&file, &server.base_url(), 0, true)).await, "at-of-rt-3");
}

#[tokio::test]
async fn b44_a_refused_refresh_token_is_dead_in_every_later_process() {
    let refusal = response("400 Bad Request", "", r#"{"error":"invalid_grant"}"#);
    let server = Server::always(vec![refusal]).await;
    let (_dir, file) = home();
    put(&file, "rt-old", 1);
    for _ in 0..2 {
        let error = pool(&file, &server.base_url(), 0, true).take("m").await.unwrap_err();
        assert!(error.class == ErrorClass::Auth && error.message.contains("invalid_grant"), "{}", error.message);
    }
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn b45_an_endpoint_that_is_away_costs_nothing_until_the_token_really_ends() {
    let server = Server::always(vec![response("503 Service Unavailable", "", "")]).await;
    let (_dir, file) = home();
    let now = system_now()();
    put(&file, "rt-1", now + HOUR_MS);
    let early = pool(&file, &server.base_url(), 2 * HOUR_MS, true);
    assert_eq!((token(&early).await, token(&early).await), ("at-old".to_owned(), "at-old".to_owned()));
    assert_eq!(server.seen().len(), 1, "the endpoint is left alone for a while");
    assert_eq!((entry(&file).health.status, entry(&file).refresh), (Status::Ok, None));
    put(&file, "rt-1", now - 1);
    let error = pool(&file, &server.base_url(), 0, true).take("m").await.unwrap_err();
    assert_eq!(error.class, ErrorClass::RateLimit);
    // Nobody listens: provably not sent.
    put(&file, "rt-1", now + HOUR_MS);
    let nobody = pool(&file, "http://127.0.0.1:1/token", 2 * HOUR_MS, true);
    assert_eq!(token(&nobody).await, "at-old");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_end_with_a_reason_unless_tokens_last() {
    for rotates in [true, false] {
        let server = Server::always(vec![Act::Close]).await;
        let (_dir, file) = home();
        put(&file, "rt-1", 1);
        pool(&file, &server.base_url(), 0, rotates).take("m").await.unwrap_err();
        assert_eq!(entry(&file).health.is_dead(), rotates);
        assert_eq!(entry(&file).health.why.contains("not known"), rotates);
    }
}

#[tokio::test]
async fn b46_a_refused_token_is_renewed_and_the_request_sent_again_once() {
    let (issuer, tokens) = issuer().await;
    for (fails, names) in [(false, 1), (true, 2)] {
        let server = Server::start(move |seen| {
            let old = seen.head.contains("bearer at-old") || fails;
            if old { vec![response("401 Unauthorized", "", "{}")] } else { good("hello") }
        })
        .await;
        let (_dir, file) = home();
        put(&file, &issuer.login(), system_now()() + HOUR_MS);
        let mut config = config(&server.base_url());
        config.credentials = Some(Arc::new(pool(&file, &tokens.base_url(), 0, true)));
        let model = HttpChatModel::new(config).unwrap();
        let first = ask(&model).await.1.unwrap_err();
        assert!(first.another_key, "it can be renewed");
        let (text, second) = ask(&model).await;
        assert_eq!(text, if fails { "" } else { "hello" });
        if fails {
            let error = second.unwrap_err();
            assert!(!error.another_key && error.message.contains("\"the login\""), "{}", error.message);
        }
        assert_eq!((server.seen().len(), tokens.seen().len()), (2, names));
    }
}

fn spawn_child(file: &AuthFile, url: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["refresh::child", "--exact", "--nocapture"])
        .env(FILE, file.path())
        .env(URL, url)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Not a test: what the processes of the test below do, until the file is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let (Some(path), Ok(url)) = (std::env::var_os(FILE), std::env::var(URL)) else { return };
    let file = AuthFile::at(Path::new(&path));
    while file.path().exists() {
        // Every ticket needs a newer token than the one before.
        let pool = pool(&file, &url, 2 * HOUR_MS, true);
        for _ in 0..20 {
            if pool.take("m").await.is_err() {
                break;
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_under_random_kills_spend_no_token_twice_and_lose_none_without_a_reason() {
    let rounds = std::env::var(ROUNDS).ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS_USUAL);
    let (issuer, server) = issuer().await;
    let (_dir, file) = home();
    put(&file, &issuer.login(), 1);
    let (mut logins, mut reasons, mut kills) = (1_u32, Vec::new(), 0_u32);
    let begun = Instant::now();
    let work = tokio::task::spawn_blocking({
        let (issuer, file, url) = (Arc::clone(&issuer), file.clone(), server.base_url());
        move || {
            let mut children = [spawn_child(&file, &url), spawn_child(&file, &url)];
            while issuer.spends() < rounds && begun.elapsed() < Duration::from_secs(TEST_MAX_S) {
                let before = issuer.spends();
                // A kill comes after a few renewals, wherever the process is then.
                let wanted = before + fastrand::usize(1..20);
                while issuer.spends() < wanted.min(rounds) && begun.elapsed() < Duration::from_secs(TEST_MAX_S) {
                    let found = entry(&file);
                    if found.health.is_dead() {
                        reasons.push(found.health.why);
                        logins += 1;
                        // As `hermes auth login` does.
                        file.update(|doc| (doc.remove("p", "login"), true)).unwrap();
                        put(&file, &issuer.login(), 1);
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
                std::thread::sleep(Duration::from_micros(fastrand::u64(0..4_000)));
                let at = fastrand::usize(0..2);
                children[at].kill().unwrap();
                children[at].wait().unwrap();
                kills += 1;
                children[at] = spawn_child(&file, &url);
            }
            for child in &mut children {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            (logins, reasons, kills)
        }
    });
    let (logins, mut reasons, kills) = work.await.unwrap();
    // The last kills may have left a note: the next user explains it.
    let last = pool(&file, &server.base_url(), 2 * HOUR_MS, true).take("m").await;
    if last.is_err() {
        reasons.push(entry(&file).health.why);
    }
    let spent = issuer.spent.lock().unwrap().clone();
    let twice: Vec<_> = spent.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "spent twice: {twice:?}");
    assert!(spent.len() >= rounds, "only {} of {rounds} tokens were spent", spent.len());
    // Every issued token was spent, is in the file, or was lost in a renewal whose reason is on record.
    let issued = *issuer.issued.lock().unwrap();
    let kept = entry(&file).refresh_token.unwrap().expose_secret().to_owned();
    let lost =
        (1..=issued).map(|number| format!("rt-{number}")).filter(|rt| !spent.contains_key(rt) && *rt != kept).count();
    assert!(lost <= reasons.len(), "{lost} tokens are lost, {} reasons are known", reasons.len());
    assert!(reasons.iter().all(|why| why.contains("not known") && why.contains("process")), "{reasons:?}");
    println!(
        "{} spent, {kills} kills, {logins} logins, {lost} lost, {} reasons, {:.1} s",
        spent.len(),
        reasons.len(),
        begun.elapsed().as_secs_f64()
    );
}
