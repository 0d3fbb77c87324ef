//! What a conversation does with its children while they work: it lists, steers and stops its own, and no others.

use std::sync::Arc;

use hermes_core::testing::{Fault, FaultStore};
use hermes_core::{
    ChildState, ChildStop, Clock as _, DelegationSettings, EndReason, Engine, EngineError, EngineParts, EventKind,
};
use hermes_store::limits::WORK_SWEEP_MS;
use hermes_store::{
    AdmissionStatus, AdmissionStore as _, ConversationId, DelegationState, DelegationStore as _, MessageKind,
    ResultDelivery, SessionStore as _, Store, StoreError, View,
};
use hermes_tools::ReplaySafety;
use serde_json::{Value, json};

use crate::background::{background, beside, brought, news, until};
use crate::delegate::{Family, conversation, create, delegations, parts, told};
use crate::support::{World, ask, check_requests, submission};

fn stop(child: &str) -> Value {
    json!({"action": "stop", "subagent_id": child})
}

fn steer(child: &str) -> Value {
    json!({"action": "steer", "subagent_id": child, "message": "mind the step"})
}

/// The first child in a list.
fn listed(told: &Value) -> &Value {
    &told["subagents"][0]
}

#[tokio::test]
async fn a_model_lists_and_stops_a_child_in_the_background_and_hears_no_more_of_it() {
    let world = World::new();
    let list = json!({"action": "list"});
    let model = Family::new([background(json!({"goal": "hang"})), list.clone(), stop("$CHILD"), list, stop("$CHILD")]);
    let engine = Engine::new(parts(&world, &model));
    beside(&engine, async {
        let result = ask(&engine, None, "go").await;
        assert_eq!(result.reason, EndReason::Answered);
        let told = told(&model);
        assert_eq!(listed(&told[1])["task"], "hang");
        let status = listed(&told[1])["status"].as_str().unwrap();
        assert!(["waiting", "running"].contains(&status), "{status}");
        assert_eq!((&told[2]["status"], &told[4]["status"]), (&json!("interrupted"), &json!("interrupted")));
        assert_eq!((&listed(&told[3])["status"], &listed(&told[3])["reported"]), (&json!("interrupted"), &json!(true)));
        let all = delegations(&world, &result.conversation).await;
        assert_eq!((all[0].state, all[0].delivery), (DelegationState::Cancelled, ResultDelivery::Delivered));
        assert_eq!((&all[0].collected_by, &all[0].delivered_as), (&result.turn, &None));
        // The child ends too, and leaves nothing that waits.
        until(async || world.store.conversation(&all[0].child).await.unwrap().pending.is_none()).await;
        assert!(world.store.queue(&result.conversation).await.unwrap().is_empty());
        check_requests(&model.asked());
    })
    .await;
}

#[tokio::test]
async fn i04_a_steer_of_a_model_reaches_its_child_once() {
    let world = World::new();
    let model = Family::new([background(json!({"goal": "work hard"})), steer("$CHILD")]);
    let tool = world.tool().delay_ms(100);
    let mut parts = world.parts_with("e", model.clone(), tool, Arc::new(world.store.clone()));
    parts.settings.delegation = Some(DelegationSettings::default());
    let engine = Engine::new(parts);
    beside(&engine, async {
        let parent = ask(&engine, None, "go").await.conversation;
        assert_eq!(told(&model)[1]["status"], "steered", "{:?}", told(&model));
        let all = brought(&world, &parent, 1).await;
        assert_eq!((all[0].state, all[0].result.as_deref()), (DelegationState::Completed, Some("worked")));
        let rows = world.rows(&all[0].child, View::Display).await;
        let said: Vec<_> = rows.iter().filter(|row| row.kind == MessageKind::Steer).collect();
        assert_eq!(said.len(), 1, "{rows:?}");
        assert!(said[0].content.ends_with("mind the step"), "{}", said[0].content);
        // Who looks on at the parent hears of it too.
        let heard = |kind: &EventKind| match kind {
            EventKind::Child { event, .. } => matches!(event.kind, EventKind::Steered { .. }),
            _ => false,
        };
        assert_eq!(world.events.all().iter().filter(|event| heard(&event.kind)).count(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_conversation_reaches_only_its_own_children() {
    let world = World::new();
    let model = Family::new([background(json!({"goal": "hang"}))]);
    let engine = Engine::new(parts(&world, &model));
    beside(&engine, async {
        let parent = ask(&engine, None, "go").await.conversation;
        let child = delegations(&world, &parent).await[0].clone();
        let name = child.id.as_str();
        let other = Family::new([stop(name), steer(name), stop("nobody"), stop("../x"), json!({"action": "list"})]);
        let mut parts = world.parts("stranger", other.clone());
        parts.settings.delegation = Some(DelegationSettings::default());
        let stranger = ask(&Engine::new(parts), None, "go").await.conversation;
        let told = told(&other);
        for (at, told) in told[..4].iter().enumerate() {
            assert!(told["error"].as_str().unwrap().contains("has no child"), "{at}: {told}");
        }
        assert_eq!(told[4]["subagents"], json!([]));
        // Nor does a person by way of another conversation, nor the child itself.
        for conversation in [&stranger, &child.child] {
            let refused = engine.stop_child(conversation, &child.id).await;
            assert!(matches!(refused, Err(EngineError::Store(StoreError::NotFound { .. }))), "{refused:?}");
            assert_eq!(engine.children(conversation).await.unwrap(), []);
        }
        assert_eq!(world.store.delegation(&child.id).await.unwrap().state, DelegationState::Running);
    })
    .await;
}

#[tokio::test]
async fn a_person_stops_a_child_wherever_it_runs_and_its_parent_is_told() {
    for is_here in [true, false] {
        let world = World::new();
        let model = Family::new([background(json!({"goal": "hang"}))]);
        let engine = |name: &str| {
            let mut parts = world.parts(name, model.clone());
            parts.settings.delegation = Some(DelegationSettings::default());
            Engine::new(parts)
        };
        let (first, second) = (engine("first"), engine("second"));
        beside(&first, async {
            let parent = ask(&first, None, "go").await.conversation;
            until(async || first.children(&parent).await.unwrap()[0].state == ChildState::Running).await;
            let at = if is_here { &first } else { &second };
            let child = at.children(&parent).await.unwrap()[0].clone();
            assert_eq!(at.stop_child(&parent, &child.delegation).await.unwrap(), ChildStop::Stopped, "{is_here}");
            brought(&world, &parent, 1).await;
            let child = second.children(&parent).await.unwrap()[0].clone();
            assert_eq!((child.state, child.reported), (ChildState::Stopped, true), "{is_here}");
            assert_eq!(second.stop_child(&parent, &child.delegation).await.unwrap(), ChildStop::Over, "{is_here}");
            assert!(news(&world, &parent).await[0].contains("Status: interrupted"), "{is_here}");
            // Whoever ran it has stopped.
            until(async || world.store.conversation(&child.conversation).await.unwrap().pending.is_none()).await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_child_that_waits_for_its_turn_is_taken_back() {
    let world = World::new();
    let model = Family::new([background(json!({"goal": "hang"}))]);
    let mut parts = parts(&world, &model);
    parts.settings.delegation =
        Some(DelegationSettings { max_concurrent_children: 1, ..DelegationSettings::default() });
    let engine = Engine::new(parts);
    beside(&engine, async {
        let first = ask(&engine, None, "go").await.conversation;
        until(async || engine.children(&first).await.unwrap()[0].state == ChildState::Running).await;
        // The place is taken: the child of another conversation waits.
        let second = ask(&engine, None, "go").await.conversation;
        let child = engine.children(&second).await.unwrap()[0].clone();
        assert_eq!(child.state, ChildState::Waiting);
        assert_eq!(engine.stop_child(&second, &child.delegation).await.unwrap(), ChildStop::Stopped);
        let all = brought(&world, &second, 1).await;
        assert_eq!(all[0].state, DelegationState::Cancelled);
        assert!(news(&world, &second).await[0].contains("taken back before it began"));
        assert!(world.rows(&child.conversation, View::Display).await.is_empty(), "nothing of it was done");
        assert_eq!(engine.children(&first).await.unwrap()[0].state, ChildState::Running);
    })
    .await;
}

#[tokio::test]
async fn what_a_person_says_to_a_child_that_is_over_is_not_taken_for_a_leftover() {
    let world = World::new();
    let model = Family::new([background(json!({"goal": "say it"}))]);
    let engine = Engine::new(parts(&world, &model));
    beside(&engine, async {
        let parent = ask(&engine, None, "go").await.conversation;
        let child = brought(&world, &parent, 1).await[0].child.clone();
        let receipt = engine.submit(submission(Some(&child), "r2", "and then?")).await.unwrap().receipt().clone();
        let begun = world.clock.now_ms();
        let looks = i64::try_from(WORK_SWEEP_MS).unwrap() * 3;
        until(async || world.clock.now_ms() > begun + looks).await;
        let status = world.store.admission(&receipt.admission).await.unwrap().receipt.status;
        assert_eq!(status, AdmissionStatus::Queued, "it waits for whoever runs it");
        assert_eq!(engine.run_until(&child, &receipt.admission).await.unwrap().reason, EndReason::Answered);
    })
    .await;
}

fn engine(world: &World, name: &str, store: Arc<dyn Store>, model: &Arc<Family>) -> Engine {
    let tool = world.tool().replay(ReplaySafety::Once);
    let mut parts: EngineParts = world.parts_with(name, model.clone(), tool, store);
    parts.settings.delegation = Some(DelegationSettings::default());
    Engine::new(parts)
}

async fn turn(engine: &Engine) -> Option<EndReason> {
    beside(engine, async {
        let receipt = engine.submit(submission(Some(&conversation()), "r", "go")).await.ok()?.receipt().clone();
        Some(engine.run_until(&receipt.conversation, &receipt.admission).await.ok()?.reason)
    })
    .await
}

#[tokio::test]
async fn i14_a_process_that_dies_anywhere_while_it_steers_and_stops_does_both_once() {
    for fault in [Fault::DiesBefore, Fault::DiesAfter] {
        let mut points = 0;
        for at in 0.. {
            let world = World::faster();
            create(&world).await;
            let family = || Family::new([background(json!({"goal": "hang"})), steer("$CHILD"), stop("$CHILD")]);
            let store = FaultStore::new(Arc::new(world.store.clone()), fault, at);
            let first = engine(&world, "first", store.clone(), &family());
            let died = tokio::select! {
                _ = turn(&first) => false,
                () = store.died() => true,
            };
            drop(first);
            world.dead.0.lock().unwrap().push("first".to_owned());
            let model = family();
            let second = engine(&world, "second", Arc::new(world.store.clone()), &model);
            let what = format!("{fault:?} {at}");
            assert_eq!(turn(&second).await, Some(EndReason::Answered), "{what}");
            let all = delegations(&world, &conversation()).await;
            assert_eq!((all.len(), all[0].state), (1, DelegationState::Cancelled), "{what}: {all:?}");
            assert_eq!(all[0].delivery, ResultDelivery::Delivered, "{what}");
            // A process that dies between the end and its taking leaves it to whoever brings results: once all the same.
            assert!(news(&world, &conversation()).await.len() <= 1, "{what}");
            let child: &ConversationId = &all[0].child;
            beside(&second, until(async || world.store.conversation(child).await.unwrap().pending.is_none())).await;
            points = at;
            if !died {
                break;
            }
        }
        assert!(points > 15, "only {points} points");
    }
}
