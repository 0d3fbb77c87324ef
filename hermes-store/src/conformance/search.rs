//! Search: the same rows on every store.

use super::{World, call, call_id, completed, conv, input, is_invalid, new_conversation, ok, text};
use crate::limits::{SEARCH_QUERY_MAX_CHARS, SEARCH_TERMS_MAX, SEARCH_TOOL_MAX_CHARS};
use crate::{
    FlagChange, IndexState, MessageKind, NewConversation, NewMessage, Role, SearchOrder, SearchQuery, StoreError,
};

/// The ids of all rows that a query finds, page after page.
async fn all(w: &World, query: SearchQuery) -> Vec<String> {
    let mut found = Vec::new();
    let mut query = query;
    loop {
        let page = w.store.search(query.clone()).await.unwrap();
        found.extend(page.hits.iter().map(|hit| hit.message.as_str().to_owned()));
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => return found,
        }
    }
}

async fn ids(w: &World, query: &str) -> Vec<String> {
    all(w, SearchQuery::text(query)).await
}

pub(super) async fn search_finds_what_people_see(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.clock.advance(5);
    let long = format!("{} The NEEDLE is here {}", "é".repeat(200), "ü".repeat(200));
    let hidden = NewMessage { kind: MessageKind::Hidden, ..text("hidden", Role::User, "needle") };
    w.store.append(&fence, &turn, vec![text("long", Role::Assistant, &long), hidden], None).await.unwrap();
    w.round(&fence, &turn, "round", vec![call("k")]).await;
    w.clock.advance(5);
    w.store.settle_call(&fence, &turn, &call_id("k"), ok("a needle too")).await.unwrap();
    let page = w.store.search(SearchQuery::text(" Needle ")).await.unwrap();
    let hits = page.hits;
    assert_eq!(hits.iter().map(|hit| hit.message.as_str()).collect::<Vec<_>>(), ["k-result", "long"]);
    assert_eq!((hits[0].snippet.as_str(), hits[0].role.as_str()), ("a >>>needle<<< too", "tool"));
    assert!(hits[1].snippet.contains("The >>>NEEDLE<<< is here"), "{:?}", hits[1]);
    assert_eq!((page.next, page.pending), (None, 0));
    for nothing in ["", "  ", "n%dle", "n_edle", "needl", "'needle' hay", "NOT", "*", "\""] {
        assert_eq!(ids(w, nothing).await, [""; 0], "{nothing}");
    }
    let over = SearchQuery::text("x".repeat(SEARCH_QUERY_MAX_CHARS + 1));
    assert!(matches!(w.store.search(over).await, Err(StoreError::Limit { .. })));
    let many = SearchQuery::text("x ".repeat(SEARCH_TERMS_MAX + 1));
    assert!(matches!(w.store.search(many).await, Err(StoreError::Limit { .. })));
    assert!(is_invalid(w.store.search(SearchQuery::text("NOT needle")).await));
    let foreign = SearchQuery { cursor: Some("zzz".to_owned()), ..SearchQuery::text("needle") };
    assert!(is_invalid(w.store.search(foreign).await));
    let other = w.another().await.search(SearchQuery::text("needle")).await.unwrap();
    assert_eq!(other.hits.len(), 2, "another process finds the same");
}

pub(super) async fn search_speaks_one_language(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    let rows = [
        ("fox", Role::User, "The quick brown fox; foo::bar() and C++"),
        ("cat", Role::Assistant, "A quick cat — naïve, isn't it? 'quoted' \"double\" a:b (x) {y} ^z"),
        ("cjk", Role::User, "我爱世界和平"),
        ("korean", Role::Assistant, "학교에서 만나요"),
        ("dots", Role::Assistant, "see hermes-store/src/lib.rs at v1.2.3"),
    ];
    let rows = rows.map(|(id, role, content)| text(id, role, content)).to_vec();
    w.store.append(&fence, &turn, rows, None).await.unwrap();
    for (query, want) in [
        ("quick", vec!["cat", "fox"]),
        ("quick AND fox", vec!["fox"]),
        ("quick NOT fox", vec!["cat"]),
        ("fox OR cat", vec!["cat", "fox"]),
        ("fox OR quick NOT naive", vec!["fox"]),
        ("\"quick brown\"", vec!["fox"]),
        ("\"brown quick\"", vec![]),
        ("\"quick brown\" NOT \"brown quick\"", vec!["fox"]),
        ("bro*", vec!["fox"]),
        ("*row*", vec!["fox"]),
        ("*row* quick", vec!["fox"]),
        ("*row* OR cat", vec!["cat", "fox"]),
        ("++", vec!["fox"]),
        ("::", vec!["fox"]),
        ("foo::bar", vec!["fox"]),
        ("NAIVE", vec!["cat"]),
        ("世", vec!["cjk"]),
        ("世界", vec!["cjk"]),
        ("爱世界", vec!["cjk"]),
        ("世和", vec![]),
        ("학교", vec!["korean"]),
        ("lib.rs", vec!["dots"]),
        ("v1.2.3", vec!["dots"]),
        ("hermes-store", vec!["dots"]),
        ("NEAR(quick, fox)", vec![]),
        ("content:quick", vec![]),
        ("a:b {y}", vec!["cat"]),
        ("'quoted'", vec!["cat"]),
        ("x & y | !z <-> :*", vec![]),
        ("'); DROP TABLE messages; --", vec![]),
    ] {
        let mut found = ids(w, query).await;
        found.sort();
        assert_eq!(found, want, "{query}");
    }
}

pub(super) async fn search_keeps_to_its_filters(w: &World) {
    for (name, profile, source) in [("a", "default", "cli"), ("b", "work", "cli"), ("c", "default", "cron")] {
        let new = NewConversation { profile: profile.to_owned(), source: source.to_owned(), ..new_conversation(name) };
        w.store.create_and_admit(new, input(name, "r", "x")).await.unwrap();
        let (fence, turn, _) = w.start(name, "o").await;
        let session = super::session(name, None, name);
        let rows = vec![text(&format!("{name}-1"), Role::User, "needle one")];
        w.store.open_session(&fence, &turn, session, rows).await.unwrap();
        w.clock.advance(1_000);
        let answer = text(&format!("{name}-2"), Role::Assistant, "needle two");
        w.store.append(&fence, &turn, vec![answer], None).await.unwrap();
        w.clock.advance(1_000);
    }
    let needle = || SearchQuery::text("needle");
    assert_eq!(all(w, needle()).await, ["c-2", "c-1", "b-2", "b-1", "a-2", "a-1"]);
    let oldest = SearchQuery { order: SearchOrder::Oldest, limit: 4, ..needle() };
    assert_eq!(all(w, oldest).await, ["a-1", "a-2", "b-1", "b-2", "c-1", "c-2"]);
    let mut ranked = all(w, SearchQuery { order: SearchOrder::Rank, limit: 4, ..needle() }).await;
    ranked.sort();
    assert_eq!(ranked, ["a-1", "a-2", "b-1", "b-2", "c-1", "c-2"]);
    let work = SearchQuery { profile: Some("work".to_owned()), ..needle() };
    assert_eq!(all(w, work).await, ["b-2", "b-1"]);
    let cron = SearchQuery { source: Some("cron".to_owned()), ..needle() };
    assert_eq!(all(w, cron).await, ["c-2", "c-1"]);
    let users = SearchQuery { role: Some(Role::User), ..needle() };
    assert_eq!(all(w, users).await, ["c-1", "b-1", "a-1"]);
    let one = SearchQuery { conversation: Some(conv("a")), neighbours: true, limit: 1, ..needle() };
    let page = w.store.search(one).await.unwrap();
    assert_eq!(page.hits[0].message.as_str(), "a-2");
    assert_eq!(page.hits[0].before.as_ref().map(|row| row.text.as_str()), Some("needle one"));
    assert_eq!(page.hits[0].after, None);
    let start = super::START_MS;
    let window = SearchQuery { since_ms: Some(start + 1_000), until_ms: Some(start + 3_000), ..needle() };
    assert_eq!(all(w, window).await, ["b-1", "a-2"]);
    for limit in 1..=7 {
        assert_eq!(all(w, SearchQuery { limit, ..needle() }).await.len(), 6);
    }
}

pub(super) async fn search_leaves_out_what_is_put_away_or_hidden(w: &World) {
    for (name, archived, hidden) in [("plain", None, None), ("away", Some(true), None), ("child", None, Some(true))] {
        let (fence, turn, _) = w.begin(name, "o").await;
        let row = text(&format!("{name}-1"), Role::User, "needle");
        w.store.append(&fence, &turn, vec![row], None).await.unwrap();
        w.clock.advance(1_000);
        w.store.set_flags(&fence, FlagChange { archived, hidden, pinned: None }).await.unwrap();
    }
    let needle = || SearchQuery::text("needle");
    assert_eq!(all(w, needle()).await, ["plain-1"]);
    assert_eq!(all(w, SearchQuery { include_archived: true, ..needle() }).await, ["away-1", "plain-1"]);
    assert_eq!(all(w, SearchQuery { include_hidden: true, ..needle() }).await, ["child-1", "plain-1"]);
    let both = SearchQuery { include_archived: true, include_hidden: true, ..needle() };
    assert_eq!(all(w, both).await, ["child-1", "away-1", "plain-1"]);
    let named = SearchQuery { conversation: Some(conv("child")), ..needle() };
    assert_eq!(all(w, named).await, ["child-1"]);
}

pub(super) async fn search_follows_the_conversation(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.round(&fence, &turn, "round", vec![call("k1"), call("k2")]).await;
    w.store.append(&fence, &turn, vec![text("later", Role::User, "needle later")], None).await.unwrap();
    assert_eq!(ids(w, "needle").await, ["later"]);
    // Results come in any order, behind rows that are indexed already.
    w.store.settle_call(&fence, &turn, &call_id("k2"), ok("needle two")).await.unwrap();
    assert_eq!(ids(w, "needle").await.len(), 2);
    let cut = format!("{} needle", "x".repeat(SEARCH_TOOL_MAX_CHARS));
    w.store.settle_call(&fence, &turn, &call_id("k1"), ok(&format!("needle one {cut}"))).await.unwrap();
    let mut found = ids(w, "needle").await;
    found.sort();
    assert_eq!(found, ["k1-result", "k2-result", "later"]);
    assert_eq!(ids(w, "\"x needle\"").await, [""; 0], "the end of a long result is not searched");
    while !w.store.index_step(100).await.unwrap().is_done {}
    w.store.settle_turn(&fence, &turn, completed(), false).await.unwrap();
    w.store.delete_conversation(&fence).await.unwrap();
    assert_eq!(ids(w, "needle").await, [""; 0]);
    // The same id again has rows of its own.
    let (fence, turn, _) = w.begin("c", "a").await;
    w.store.append(&fence, &turn, vec![text("new", Role::User, "needle new")], None).await.unwrap();
    assert_eq!(ids(w, "needle").await, ["new"]);
    assert_eq!(ids(w, "later").await, [""; 0]);
}

pub(super) async fn an_index_is_built_anew(w: &World) {
    for name in ["a", "b", "c"] {
        let (fence, turn, _) = w.begin(name, "o").await;
        let rows = (0..5).map(|n| text(&format!("{name}-{n}"), Role::User, &format!("needle {n}"))).collect();
        w.store.append(&fence, &turn, rows, None).await.unwrap();
    }
    assert_eq!(ids(w, "needle").await.len(), 15);
    w.store.rebuild_index().await.unwrap();
    // Interrupted after a step, and gone on with by somebody else.
    w.store.index_step(4).await.unwrap();
    let other = w.another().await;
    while !other.index_step(4).await.unwrap().is_done {}
    let status = w.store.index_status().await.unwrap();
    assert_eq!((status.state, status.pending), (IndexState::Ready, 0), "{status:?}");
    assert_eq!(ids(w, "needle").await.len(), 15);
    assert!(w.store.index_step(100).await.unwrap().is_done, "nothing is left");
}
