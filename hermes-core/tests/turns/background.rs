//! Tasks in the background: nobody waits for them, and each result reaches its parent once, whoever dies in between.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::testing::{Fault, FaultStore};
use hermes_core::{DelegationSettings, EndReason, Engine, EngineParts, Interrupt, Stopper};
use hermes_store::limits::{DELEGATION_UNKNOWN_GRACE_MS, HEARTBEAT_DEAD_MS};
use hermes_store::{
    AdmissionStatus, AdmissionStore as _, ConversationId, DelegationRecord, DelegationState, DelegationStore as _,
    ResultDelivery, Role, Store, View, WorkStore as _,
};
use hermes_tools::ReplaySafety;
use serde_json::{Value, json};

use crate::delegate::{Family, NEWS, conversation, create, delegations, field, parts, told};
use crate::support::{World, ask, check_requests, submission};

pub fn background(mut arguments: Value) -> Value {
    arguments["background"] = json!(true);
    arguments
}

/// Waits until something is so; a test that waits for ever fails by its runner's limit.
pub async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    while !is_so().await {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until every result of this conversation was brought to it and worked on.
pub async fn brought(world: &World, parent: &ConversationId, count: usize) -> Vec<DelegationRecord> {
    until(async || {
        let all = delegations(world, parent).await;
        let mut done = 0;
        for record in &all {
            let Some(input) = &record.delivered_as else { continue };
            let status = world.store.admission(input).await.unwrap().receipt.status;
            done += usize::from(status == AdmissionStatus::Terminal);
        }
        done == count
    })
    .await;
    delegations(world, parent).await
}

/// Texts of the inputs that brought results.
pub async fn news(world: &World, parent: &ConversationId) -> Vec<String> {
    let rows = world.rows(parent, View::Display).await;
    rows.into_iter().filter(|row| row.role == Role::User && row.content.contains(NEWS)).map(|row| row.content).collect()
}

/// Awaits `work` while an engine runs what waits in the background.
pub async fn beside<T>(engine: &Engine, work: impl Future<Output = T>) -> T {
    tokio::select! {
        done = work => done,
        ended = engine.run_delegations() => panic!("{ended:?}"),
    }
}

#[tokio::test]
async fn a_task_in_the_background_is_not_waited_for_and_its_result_is_an_input_of_its_own() {
    let world = World::new();
    let model = Family::new([background(json!({"tasks": [{"goal": "work hard"}, {"goal": "refuse"}]}))]);
    let engine = Engine::new(parts(&world, &model));
    beside(&engine, async {
        let result = ask(&engine, None, "go").await;
        assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"));
        assert_eq!(field(&told(&model)[0], "status"), ["dispatched", "dispatched"]);
        let parent = result.conversation;
        let all = brought(&world, &parent, 2).await;
        assert_eq!(
            all.iter().map(|one| one.state).collect::<Vec<_>>(),
            [DelegationState::Completed, DelegationState::Failed]
        );
        let mut news = news(&world, &parent).await;
        news.sort_by_key(|text| text.contains("refuse"));
        assert!(news[0].contains("Task: work hard") && news[0].ends_with("Result:\nworked"), "{news:?}");
        assert!(news[1].contains("Status: failed") && news[1].contains("HM2001"), "{news:?}");
        // An input like any other: answered, in a history that only grows.
        let rows = world.rows(&parent, View::Display).await;
        assert_eq!(rows.iter().filter(|row| row.content == "noted").count(), 2);
        check_requests(&model.asked());
    })
    .await;
}

#[tokio::test]
async fn without_somebody_who_runs_them_and_over_the_width_nothing_is_given_away() {
    let world = World::new();
    let model = Family::new([background(json!({"goal": "say it"}))]);
    let result = ask(&Engine::new(parts(&world, &model)), None, "go").await;
    assert!(told(&model)[0]["error"].as_str().unwrap().contains("without `background`"));
    assert_eq!(delegations(&world, &result.conversation).await, []);

    let world = World::new();
    let calls = [background(json!({"goal": "hang"})), background(json!({"tasks": [{"goal": "a"}, {"goal": "b"}]}))];
    let model = Family::new(calls);
    let mut parts = parts(&world, &model);
    parts.settings.delegation =
        Some(DelegationSettings { max_concurrent_children: 2, ..DelegationSettings::default() });
    let engine = Engine::new(parts);
    let result = beside(&engine, ask(&engine, None, "go")).await;
    assert!(told(&model)[1]["error"].as_str().unwrap().contains("at most 2"), "{:?}", told(&model));
    assert_eq!(delegations(&world, &result.conversation).await.len(), 1);
}

#[tokio::test]
async fn a_child_in_the_background_outlives_its_parents_turn_and_is_stopped_by_its_own_name() {
    let world = World::new();
    let model = Family::new([background(json!({"goal": "hang"}))]);
    let engine = Engine::new(parts(&world, &model));
    beside(&engine, async {
        let parent = ask(&engine, None, "go").await.conversation;
        assert!(!engine.interrupt(&parent, Stopper::User, Interrupt::Hard), "its turn is over");
        until(async || engine.interrupt_children(&parent, Stopper::User, Interrupt::Hard) == 1).await;
        let all = brought(&world, &parent, 1).await;
        assert_eq!(all[0].state, DelegationState::Cancelled);
        assert!(news(&world, &parent).await[0].contains("Status: interrupted"));
    })
    .await;
}

#[tokio::test]
async fn s43_many_processes_bring_a_result_once() {
    let world = World::new();
    let model = Family::new([background(json!({"tasks": [{"goal": "say a"}, {"goal": "say b"}, {"goal": "say c"}]}))]);
    let engine = |name: &str| {
        let mut parts = world.parts(name, model.clone());
        parts.settings.delegation = Some(DelegationSettings::default());
        Engine::new(parts)
    };
    let (first, second, third) = (engine("a"), engine("b"), engine("c"));
    let work = async {
        let parent = ask(&first, None, "go").await.conversation;
        brought(&world, &parent, 3).await;
        assert_eq!(news(&world, &parent).await.len(), 3);
    };
    beside(&first, Box::pin(beside(&second, Box::pin(beside(&third, work))))).await;
}

#[tokio::test]
async fn i10_an_engine_that_runs_children_in_the_background_is_never_silent() {
    let world = World::faster();
    let model = Family::new([background(json!({"goal": "hang"}))]);
    let engine = Engine::new(parts(&world, &model));
    beside(&engine, async {
        let parent = ask(&engine, None, "go").await.conversation;
        let begun = hermes_core::Clock::now_ms(world.clock.as_ref());
        let long = i64::try_from(HEARTBEAT_DEAD_MS).unwrap() * 5;
        until(async || {
            let owners = world.store.owners().await.unwrap();
            owners.iter().any(|owner| owner.beat_at_ms > begun + long)
        })
        .await;
        assert_eq!(delegations(&world, &parent).await[0].state, DelegationState::Running);
    })
    .await;
}

#[tokio::test]
async fn s17_an_end_in_order_ends_it_too() {
    let world = World::new();
    let model = Family::new([]);
    let engine = Engine::new(parts(&world, &model));
    let (ran, ended) = tokio::join!(engine.run_delegations(), async {
        ask(&engine, None, "go").await;
        engine.wind_down(1_000).await
    });
    ran.unwrap();
    assert!(ended);
}

fn engine(world: &World, name: &str, store: Arc<dyn Store>, model: &Arc<Family>) -> Engine {
    let tool = world.tool().replay(ReplaySafety::Once);
    let mut parts: EngineParts = world.parts_with(name, model.clone(), tool, store);
    parts.settings.delegation = Some(DelegationSettings::default());
    Engine::new(parts)
}

/// The parent's turn, and what follows from it until its results were worked on.
async fn whole(world: &World, engine: &Engine, count: usize) -> Option<EndReason> {
    beside(engine, async {
        let receipt = engine.submit(submission(Some(&conversation()), "r", "go")).await.ok()?.receipt().clone();
        let result = engine.run_until(&receipt.conversation, &receipt.admission).await.ok()?;
        brought(world, &conversation(), count).await;
        Some(result.reason)
    })
    .await
}

#[tokio::test]
async fn i14_a_process_that_dies_anywhere_loses_no_result_and_brings_none_twice() {
    for fault in [Fault::DiesBefore, Fault::DiesAfter] {
        let mut points = 0;
        for at in 0.. {
            let world = World::faster();
            create(&world).await;
            let family = || Family::new([background(json!({"tasks": [{"goal": "work one"}, {"goal": "say two"}]}))]);
            let store = FaultStore::new(Arc::new(world.store.clone()), fault, at);
            let first = engine(&world, "first", store.clone(), &family());
            let died = tokio::select! {
                _ = whole(&world, &first, 2) => false,
                () = store.died() => true,
            };
            drop(first);
            world.dead.0.lock().unwrap().push("first".to_owned());
            if at % 2 == 1 {
                // Somebody noticed long ago, and nobody knew what became of them.
                world.store.sweep_delegations().await.unwrap();
                world.clock.push(i64::try_from(DELEGATION_UNKNOWN_GRACE_MS).unwrap());
            }
            let second = engine(&world, "second", Arc::new(world.store.clone()), &family());
            let what = format!("{fault:?} {at}");
            assert_eq!(whole(&world, &second, 2).await, Some(EndReason::Answered), "{what}");
            let all = delegations(&world, &conversation()).await;
            assert_eq!(all.len(), 2, "{what}: {all:?}");
            for record in &all {
                assert_eq!(record.state, DelegationState::Completed, "{what}: {record:?}");
                let rows = world.rows(&record.child, View::Display).await;
                assert_eq!(rows.iter().filter(|row| row.role == Role::User).count(), 1, "{what}: {record:?}");
            }
            let news = news(&world, &conversation()).await;
            for said in ["worked", "say two: done"] {
                assert_eq!(news.iter().filter(|text| text.contains(said)).count(), 1, "{what}: {news:?}");
            }
            assert!(world.ledger.effects().len() <= 1, "{what}");
            points = at;
            if !died {
                break;
            }
        }
        assert!(points > 30, "only {points} points");
    }
}

#[tokio::test]
async fn t64_the_result_of_a_child_whose_parent_was_closed_is_brought_to_it() {
    for at in 0.. {
        let world = World::faster();
        create(&world).await;
        let family = || Family::new([json!({"goal": "say it"})]);
        let store = FaultStore::new(Arc::new(world.store.clone()), Fault::DiesAfter, at);
        let first = engine(&world, "first", store.clone(), &family());
        tokio::select! {
            _ = whole(&world, &first, 1) => panic!("no write dispatches a child"),
            () = store.died() => {}
        }
        drop(first);
        if delegations(&world, &conversation()).await.is_empty() {
            continue;
        }
        // The wish behind the parent's turn is stale: it is closed, and does not wait for its child any more.
        world.dead.0.lock().unwrap().push("first".to_owned());
        world.clock.push(hermes_core::limits::RESUME_FRESH_MS + 1);
        let second = engine(&world, "second", Arc::new(world.store.clone()), &family());
        let reason = whole(&world, &second, 1).await;
        assert_eq!(reason, Some(EndReason::CrashInterrupted));
        let all = delegations(&world, &conversation()).await;
        assert_eq!((all[0].state, all[0].delivery), (DelegationState::Completed, ResultDelivery::Delivered));
        assert_eq!(news(&world, &conversation()).await.len(), 1);
        return;
    }
}

/// More writes than anybody needs for two children, with all waiting for an owner that is silent.
const WRITES_MAX: i64 = 5_000;

/// Ends when an engine has written too often. It is looked at whenever the work beside it goes on.
async fn spins(store: &FaultStore) {
    let look = |_: &mut std::task::Context<'_>| match store.writes() > WRITES_MAX {
        true => std::task::Poll::Ready(()),
        false => std::task::Poll::Pending,
    };
    std::future::poll_fn(look).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_silent_process_holds_is_not_asked_for_without_a_pause() {
    for at in 0.. {
        let world = World::paused();
        create(&world).await;
        let family = || Family::new([background(json!({"tasks": [{"goal": "work one"}, {"goal": "say two"}]}))]);
        let store = FaultStore::new(Arc::new(world.store.clone()), Fault::DiesAfter, at);
        let first = engine(&world, "first", store.clone(), &family());
        let died = tokio::select! {
            _ = whole(&world, &first, 2) => false,
            () = store.died() => true,
        };
        drop(first);
        // Nobody can prove its death.
        let store = FaultStore::new(Arc::new(world.store.clone()), Fault::DiesBefore, i64::MAX);
        let second = engine(&world, "second", store.clone(), &family());
        // A host works on what waits in its conversations, as also the result that the first one was at.
        let drain = async {
            loop {
                second.drain(&conversation()).await.unwrap();
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
        };
        tokio::select! {
            biased;
            () = spins(&store) => panic!("died behind write {at}: it spins"),
            reason = whole(&world, &second, 2) => assert_eq!(reason, Some(EndReason::Answered), "died behind write {at}"),
            () = drain => {}
        }
        if !died {
            return;
        }
    }
}
