//! Lists of models over a socket, kept in a file.

use std::path::PathBuf;

use hermes_providers::catalogue::{
    LIST_RETRY_MS, LIST_TTL_MS, ListPlace, MAX_LIST_BYTES, MAX_LIST_PAGES, ModelList, Refreshed, cached_list,
    refresh_list,
};
use hermes_providers::credential::Secret;
use hermes_providers::{ErrorClass, Profiles, Transport};

use crate::server::{Act, Server, response};

const NOW_MS: i64 = 1_800_000_000_000;

fn place(profile: &str, base_url: String) -> ListPlace {
    let profile = Profiles::bundled().unwrap().get(profile).unwrap().clone();
    ListPlace {
        profile,
        base_url: Some(base_url),
        secret: Secret::key("sk-secret-123".to_owned().into()),
        transport: Transport::default(),
    }
}

fn file(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("models/acme.json")
}

fn ids(list: &ModelList) -> Vec<&str> {
    list.models.iter().map(|model| model.id.as_str()).collect()
}

fn listing(id: &str) -> String {
    format!(r#"{{"data":[{{"id":"{id}","context_length":8192}}]}}"#)
}

#[tokio::test]
async fn a_list_is_asked_for_once_and_again_when_it_is_old_with_its_mark() {
    let server = Server::start(|seen| {
        if seen.head.contains("if-none-match: \"v1\"") {
            return vec![response("304 Not Modified", "ETag: \"v1\"\r\n", "")];
        }
        vec![response("200 OK", "ETag: \"v1\"\r\n", &listing("one"))]
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let (place, file) = (place("custom", server.base_url()), file(&dir));
    let first = refresh_list(&place, &file, NOW_MS, false).await.unwrap();
    assert!(matches!(&first, Refreshed::New(list) if ids(list) == ["one"]), "{first:?}");
    let again = refresh_list(&place, &file, NOW_MS + LIST_TTL_MS - 1, false).await.unwrap();
    assert!(matches!(again, Refreshed::Kept(_)));
    assert_eq!(server.seen().len(), 1, "a young list is not asked for");
    let later = NOW_MS + LIST_TTL_MS;
    let old = refresh_list(&place, &file, later, false).await.unwrap();
    assert!(matches!(&old, Refreshed::Unchanged(list) if ids(list) == ["one"] && list.checked_at_ms == later));
    assert!(matches!(refresh_list(&place, &file, later + 1, false).await.unwrap(), Refreshed::Kept(_)));
    assert!(matches!(refresh_list(&place, &file, later + 1, true).await.unwrap(), Refreshed::Unchanged(_)));
    assert_eq!(server.seen().len(), 3);
    assert!(server.seen()[0].head.starts_with("get /v1/models http/1.1"));
    assert!(server.seen()[0].head.contains("authorization: bearer sk-secret-123"));
    assert!(!std::fs::read_to_string(&file).unwrap().contains("sk-secret"), "no key in the file");
}

#[tokio::test]
async fn pages_are_read_to_the_last_and_no_further_than_the_limit() {
    let server = Server::start(|seen| {
        let body = if seen.head.contains("after_id=b%2f1") {
            r#"{"data":[{"id":"c"}],"has_more":false}"#.to_owned()
        } else {
            r#"{"data":[{"id":"a"},{"id":"b/1"}],"has_more":true,"last_id":"b/1"}"#.to_owned()
        };
        vec![response("200 OK", "ETag: \"page\"\r\n", &body)]
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let place_a = place("anthropic", format!("http://127.0.0.1:{}", server.port));
    let list = refresh_list(&place_a, &file(&dir), NOW_MS, false).await.unwrap().into_list();
    assert_eq!(ids(&list), ["a", "b/1", "c"]);
    let head = &server.seen()[0].head;
    assert!(head.starts_with("get /v1/models?limit=1000 "), "{head}");
    assert!(head.contains("anthropic-version: 2023-06-01") && head.contains("x-api-key: sk-secret-123"), "{head}");
    refresh_list(&place_a, &file(&dir), NOW_MS, true).await.unwrap();
    assert!(!server.seen()[2].head.contains("if-none-match"), "the mark of one page is not that of the list");

    let endless = r#"{"data":[{"id":"x"}],"has_more":true,"last_id":"x"}"#;
    let endless = Server::always(vec![response("200 OK", "", endless)]).await;
    let list = refresh_list(&place("anthropic", endless.base_url()), &file(&dir), NOW_MS, false).await.unwrap();
    assert_eq!(list.into_list().models.len(), MAX_LIST_PAGES);
}

#[tokio::test]
async fn a_server_that_fails_leaves_what_was_known_and_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(&dir);
    let server = Server::start(|seen| match (seen.connection, seen.nth) {
        (0, 0) => vec![response("200 OK", "", &listing("one"))],
        _ => vec![response("503 Service Unavailable", "", r#"{"error":{"message":"no sk-secret-123"}}"#)],
    })
    .await;
    let place = place("custom", server.base_url());
    refresh_list(&place, &file, NOW_MS, false).await.unwrap();
    let later = NOW_MS + LIST_TTL_MS;
    let Refreshed::Stale(list, error) = refresh_list(&place, &file, later, false).await.unwrap() else {
        panic!("the server failed")
    };
    assert_eq!((ids(&list), error.class, error.status), (vec!["one"], ErrorClass::Overloaded, Some(503)));
    assert!(!error.message.contains("sk-secret"), "{}", error.message);
    let asked = server.seen().len();
    assert!(matches!(refresh_list(&place, &file, later + LIST_RETRY_MS - 1, false).await.unwrap(), Refreshed::Kept(_)));
    assert_eq!(server.seen().len(), asked);
    assert!(matches!(refresh_list(&place, &file, later + LIST_RETRY_MS, false).await.unwrap(), Refreshed::Stale(..)));
    assert_eq!(ids(&cached_list(&place, &file).await.unwrap()), ["one"]);
}

#[tokio::test]
async fn answers_that_are_no_lists_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let huge = format!("[\"{}\"]", "x".repeat(MAX_LIST_BYTES));
    for (body, class) in
        [("<html>", ErrorClass::BadResponse), ("{}", ErrorClass::BadResponse), (&huge, ErrorClass::Limit)]
    {
        let server = Server::always(vec![response("200 OK", "", body)]).await;
        let error = refresh_list(&place("custom", server.base_url()), &file(&dir), NOW_MS, false).await.unwrap_err();
        assert_eq!(error.class, class);
        assert!(!file(&dir).exists());
    }
    let broken = Server::always(vec![Act::Close]).await;
    assert!(refresh_list(&place("custom", broken.base_url()), &file(&dir), NOW_MS, false).await.is_err());
}

#[tokio::test]
async fn a_broken_file_is_put_aside_and_another_server_s_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(&dir);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "{ half").unwrap();
    let server = Server::always(vec![response("200 OK", "", &listing("one"))]).await;
    let here = place("custom", server.base_url());
    assert!(matches!(refresh_list(&here, &file, NOW_MS, false).await.unwrap(), Refreshed::New(_)));
    assert_eq!(std::fs::read_to_string(dir.path().join("models/acme.json.broken")).unwrap(), "{ half");
    let other = Server::always(vec![response("200 OK", "", &listing("two"))]).await;
    let there = place("custom", other.base_url());
    assert_eq!(cached_list(&there, &file).await, None);
    let list = refresh_list(&there, &file, NOW_MS, false).await.unwrap().into_list();
    assert_eq!(ids(&list), ["two"]);
    let left: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "nothing unfinished is left: {left:?}");
}
