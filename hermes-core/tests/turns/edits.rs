//! Titles and compressions by hand whose writes fail, or whose process dies at one: the old state or the new one, and the
//! next input is answered.

use std::sync::Arc;

use hermes_core::Engine;
use hermes_core::testing::{Fault, FaultStore};
use hermes_providers::{Script, ScriptedModel};
use hermes_store::{ConversationId, SessionStore as _, View};

use crate::auxiliary::{long, named};
use crate::support::{World, ask, check_pairs, short};

const FAULTS: [Fault; 6] =
    [Fault::FailsBefore, Fault::FailsOnce, Fault::AnswerLost, Fault::CommitLost, Fault::DiesBefore, Fault::DiesAfter];

/// More writes than an edit has.
const WRITES_MAX: i64 = 40;

fn engine(world: &World, name: &str, model: Arc<ScriptedModel>, store: Arc<dyn hermes_store::Store>) -> Engine {
    Engine::new(world.parts_with(name, model, world.tool(), store))
}

/// A conversation of four answered turns of about 8,000 tokens each.
async fn talked(world: &World) -> ConversationId {
    let model = named("model", 131_072, (0..4).map(|_| Script::text(long(8_000))));
    let engine = engine(world, "before", model, Arc::new(world.store.clone()));
    let conversation = ask(&engine, None, "0").await.conversation;
    for n in 1..4 {
        ask(&engine, Some(&conversation), &n.to_string()).await;
    }
    conversation
}

/// Runs `edit` on an engine whose store has this fault at write `at`; whether it came to that.
async fn edited(world: &World, fault: Fault, at: i64, scripts: Vec<Script>, edit: impl AsyncFnOnce(&Engine)) -> bool {
    let store = FaultStore::new(Arc::new(world.store.clone()), fault, at);
    let engine = engine(world, "first", named("model", 131_072, scripts), store.clone());
    tokio::select! {
        () = edit(&engine) => {}
        () = store.died() => {}
    }
    world.dead.0.lock().unwrap().push("first".to_owned());
    store.reached()
}

/// Another process answers the next input, whatever was left behind.
async fn goes_on(world: &World, conversation: &ConversationId, what: &str) {
    let model = named("model", 131_072, [Script::text("on it goes")]);
    let engine = engine(world, "second", model.clone(), Arc::new(world.store.clone()));
    let result = ask(&engine, Some(conversation), "next").await;
    assert_eq!(result.answer, "on it goes", "{what}: {:?}", result.error);
    check_pairs(&model.requests()[0].messages);
}

#[tokio::test]
async fn i20_a_compression_by_hand_that_fails_at_any_write_leaves_the_old_history_or_the_new_one() {
    for fault in FAULTS {
        let mut shorter = 0;
        let mut at = 0;
        loop {
            let world = World::new();
            let conversation = talked(&world).await;
            let old = short(&world.rows(&conversation, View::Model).await);
            let scripts = vec![Script::text("what was said")];
            let reached = edited(&world, fault, at, scripts, async |engine| {
                let _ = engine.compress(&conversation, None).await;
            })
            .await;
            let what = format!("{fault:?} at write {at}");
            let mut shown = world.rows(&conversation, View::Display).await;
            shown.retain(|row| row.kind != hermes_store::MessageKind::Summary);
            assert!(short(&shown) == old, "{what}: people see it all");
            let now = short(&world.rows(&conversation, View::Model).await);
            assert!(now == old || now.len() < old.len(), "{what}: {} rows of {}", now.len(), old.len());
            shorter += usize::from(now != old);
            goes_on(&world, &conversation, &what).await;
            if !reached {
                assert!(now != old, "{what}: without a fault it is shorter");
                break;
            }
            at += 1;
            assert!(at < WRITES_MAX, "{what}: there is no end to its writes");
        }
        assert!(at >= 4 && shorter >= 2, "{fault:?}: {at} writes, {shorter} times shorter");
    }
}

#[tokio::test]
async fn a_title_that_fails_at_any_write_is_given_or_not_and_may_be_given_later() {
    for fault in FAULTS {
        let mut at = 0;
        loop {
            let world = World::new();
            let conversation = talked(&world).await;
            let scripts = vec![Script::text("A title")];
            let reached = edited(&world, fault, at, scripts, async |engine| {
                let _ = engine.title(&conversation).await;
            })
            .await;
            let what = format!("{fault:?} at write {at}");
            goes_on(&world, &conversation, &what).await;
            let later = named("model", 131_072, [Script::text("Another title")]);
            let second = engine(&world, "third", later, Arc::new(world.store.clone()));
            let given = second.title(&conversation).await.unwrap();
            let title = world.store.conversation(&conversation).await.unwrap().title.unwrap();
            assert_eq!(title, if given.is_some() { "Another title" } else { "A title" }, "{what}");
            if !reached {
                assert_eq!(title, "A title", "{what}");
                break;
            }
            at += 1;
            assert!(at < WRITES_MAX, "{what}: there is no end to its writes");
        }
        assert!(at >= 4, "{fault:?}: {at} writes");
    }
}
