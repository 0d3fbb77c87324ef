//! Several keys of one provider, over sockets and through the file.

use std::sync::Arc;

use hermes_providers::credential::file::{AuthFile, Entry};
use hermes_providers::credential::pool::{LimitScope, Strategy};
use hermes_providers::credential::{KeyPool, KeyPoolConfig, SeededKey, system_now};
use hermes_providers::{ErrorClass, HttpChatModel};

use crate::server::{Server, ask, config, good, response};

fn keys(names: &[&str]) -> Vec<SeededKey> {
    let key = |name: &&str| SeededKey { variable: (*name).to_owned(), key: format!("key-of-{name}").into() };
    names.iter().map(key).collect()
}

fn model(server: &Server, seeded: Vec<SeededKey>, file: Option<AuthFile>) -> HttpChatModel {
    let pool = KeyPool::new(KeyPoolConfig {
        provider: "p".into(),
        seeded,
        file,
        refresher: None,
        strategy: Strategy::FillFirst,
        scope: LimitScope::Row,
        now: system_now(),
    });
    let mut config = config(&server.base_url());
    config.credentials = Some(Arc::new(pool));
    HttpChatModel::new(config).unwrap()
}

/// Which keys a server saw, in order.
fn used(server: &Server) -> Vec<String> {
    let key = |head: &str| head.split("bearer key-of-").nth(1).map(|rest| rest.lines().next().unwrap_or("").to_owned());
    server.seen().iter().map(|seen| key(&seen.head).unwrap_or_default()).collect()
}

#[tokio::test]
async fn b49_every_refusal_leads_to_the_next_key_and_at_the_end_to_the_earliest_time() {
    for (status, class) in [(429, ErrorClass::RateLimit), (402, ErrorClass::Billing), (401, ErrorClass::Auth)] {
        let server = Server::always(vec![response(&format!("{status} X"), "Retry-After: 7\r\n", "{}")]).await;
        let model = model(&server, keys(&["a", "b"]), None);
        let first = ask(&model).await.1.unwrap_err();
        assert!(first.another_key && first.class == class, "{status}");
        let second = ask(&model).await.1.unwrap_err();
        assert!(!second.another_key && second.class == class, "{status}");
        let none = ask(&model).await.1.unwrap_err();
        assert_eq!((none.class, used(&server)), (class, vec!["a".to_owned(), "b".to_owned()]), "{status}");
        assert!(none.retry_after_ms.is_some_and(|ms| ms > 0), "{status}");
        assert!(none.message.contains("every credential of p rests"), "{}", none.message);
    }
}

#[tokio::test]
async fn b48_rests_are_kept_for_the_next_process_and_end_with_another_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = AuthFile::at(dir.path().join("auth.json"));
    let refuse_a = |seen: &crate::server::Seen| {
        if seen.head.contains("key-of-a\r\n") { vec![response("402 X", "", "{}")] } else { good("hello") }
    };
    let server = Server::start(refuse_a).await;
    assert!(ask(&model(&server, keys(&["a", "b"]), Some(file.clone()))).await.1.unwrap_err().another_key);
    // Another process: the key without money is not tried.
    assert_eq!(ask(&model(&server, keys(&["a", "b"]), Some(file.clone()))).await.0, "hello");
    assert_eq!(used(&server), ["a", "b"]);
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert!(!text.contains("key-of"), "keys of variables stay out of the file: {text}");
    // The variable holds another key now.
    let replaced = vec![SeededKey { variable: "a".into(), key: "key-of-c".into() }];
    assert_eq!(ask(&model(&server, replaced, Some(file.clone()))).await.0, "hello");
    // What a person removed stays away.
    file.update(|doc| (doc.suppress("p", "env:b", true), true)).unwrap();
    let error = ask(&model(&server, keys(&["b"]), Some(file))).await.1.unwrap_err();
    assert_eq!(error.class, ErrorClass::Auth);
    assert_eq!(used(&server), ["a", "b", "c"]);
}

#[tokio::test]
async fn b50_a_damaged_file_leaves_keys_of_variables_usable_and_is_told_where_it_matters() {
    let dir = tempfile::tempdir().unwrap();
    let file = AuthFile::at(dir.path().join("auth.json"));
    std::fs::write(file.path(), "{\"cred").unwrap();
    let server = Server::always(good("hello")).await;
    assert_eq!(ask(&model(&server, keys(&["a"]), Some(file.clone()))).await.0, "hello");
    let error = ask(&model(&server, Vec::new(), Some(file.clone()))).await.1.unwrap_err();
    assert!(error.class == ErrorClass::Configuration && error.message.contains("auth.json"), "{}", error.message);
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "{\"cred");
}

#[tokio::test]
async fn an_entry_that_another_process_adds_is_used_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = AuthFile::at(dir.path().join("auth.json"));
    let server = Server::always(good("hello")).await;
    let model = model(&server, Vec::new(), Some(file.clone()));
    assert_eq!(ask(&model).await.1.unwrap_err().class, ErrorClass::Auth);
    let entry = Entry { id: "x".into(), access_token: Some("key-of-x".into()), ..Entry::default() };
    file.update(|doc| (doc.put("p", &entry), true)).unwrap();
    assert_eq!(ask(&model).await.0, "hello");
    assert_eq!(used(&server), ["x"]);
}
