//! A history that is shortened because a person asks for it.

use std::sync::Arc;

use hermes_core::{Engine, EngineError, EngineParts, EventKind, Interrupt, Stopper, Submission, limits};
use hermes_providers::{ChatMessage, ErrorClass, Script, ScriptedModel};
use hermes_store::{
    ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, LeaseStore as _, MessageKind, OwnerId, SessionStore as _,
    TurnId, View,
};

use crate::auxiliary::{long, named};
use crate::support::{World, ask, check_pairs, check_requests, error, model, short};

/// A conversation of four turns with answers of about 8,000 tokens: far from any threshold, and more than its newest
/// part.
async fn talked(
    world: &World,
    settings: impl FnOnce(&mut EngineParts),
) -> (Engine, Arc<ScriptedModel>, ConversationId) {
    let chosen = named("chosen", 131_072, (0..4).map(|_| Script::text(long(8_000))));
    let mut parts = world.parts("e", chosen.clone());
    settings(&mut parts);
    let engine = Engine::new(parts);
    let conversation = ask(&engine, None, "first").await.conversation;
    for text in ["second", "third", "fourth"] {
        ask(&engine, Some(&conversation), text).await;
    }
    (engine, chosen, conversation)
}

fn code(result: Result<hermes_core::Shortened, EngineError>) -> String {
    let error = result.unwrap_err();
    format!("{} {error}", error.code())
}

#[tokio::test]
async fn i20_a_person_shortens_a_history_with_a_focus_and_the_next_turn_goes_on_with_it() {
    for in_place in [false, true] {
        let world = World::new();
        let (engine, chosen, conversation) =
            talked(&world, |parts| parts.settings.compression.in_place = in_place).await;
        let before = world.store.conversation(&conversation).await.unwrap();
        let shown = world.rows(&conversation, View::Display).await;
        chosen.push(Script::text("what was said"));
        let done = engine.compress(&conversation, Some("  the numbers ")).await.unwrap();
        assert!(done.after < done.before && done.rows > 0, "{done:?}");
        let asked = chosen.requests().pop().unwrap();
        let ChatMessage::User { text, .. } = &asked.messages[0] else { panic!("{asked:?}") };
        assert!(text.ends_with("Give most of the room to this: the numbers"));

        let after = world.store.conversation(&conversation).await.unwrap();
        assert_eq!(after.tip.as_ref(), Some(&done.session));
        assert_eq!(after.tip == before.tip, in_place, "in place: {in_place}");
        assert_eq!((after.model.as_deref(), &after.title), (Some("chosen"), &before.title));
        let mut now = world.rows(&conversation, View::Display).await;
        now.retain(|row| row.kind != MessageKind::Summary);
        assert!(short(&now) == short(&shown), "people see it all");
        let events: Vec<_> = world.events.all().into_iter().filter(|event| event.turn.is_none()).collect();
        assert!(matches!(events[events.len() - 2].kind, EventKind::CompressionStarted { .. }), "{events:?}");
        assert!(matches!(events[events.len() - 1].kind, EventKind::Compressed { .. }), "{events:?}");
        let sums = world.store.usage(&conversation).await.unwrap();
        assert_eq!(sums.iter().filter(|sums| sums.task == "compression").map(|sums| sums.requests).sum::<u64>(), 1);

        [Script::text("five"), Script::text("six")].into_iter().for_each(|script| chosen.push(script));
        assert_eq!(ask(&engine, Some(&conversation), "fifth").await.answer, "five");
        assert_eq!(ask(&engine, Some(&conversation), "sixth").await.answer, "six");
        let requests = chosen.requests();
        check_requests(&requests[5..]);
        assert!(requests[5].messages.len() < 9, "{}", requests[5].messages.len());
    }
}

#[tokio::test]
async fn what_cannot_be_shortened_is_said_and_not_remembered_as_a_failure() {
    let world = World::new();
    let chosen = model([Script::text("one")]);
    let engine = world.engine("e", chosen.clone());
    let conversation = ask(&engine, None, "x").await.conversation;
    let said = code(engine.compress(&conversation, None).await);
    assert!(said.starts_with("HM4104") && said.contains("nothing to shorten"), "{said}");
    assert_eq!(chosen.requests().len(), 1, "no model was asked");
    let fence = lease(&world, &conversation).await;
    world.store.release(&fence).await.unwrap();

    let waiting = engine.submit(Submission::text("waits")).await.unwrap().receipt().conversation.clone();
    assert!(code(engine.compress(&waiting, None).await).contains("nothing was said"));
    let focus = "x".repeat(limits::FOCUS_MAX_BYTES + 1);
    assert!(code(engine.compress(&conversation, Some(&focus)).await).starts_with("HM4102"));
    let gone = ConversationId::parse("gone").unwrap();
    assert!(code(engine.compress(&gone, None).await).starts_with("HM1003"));
}

#[tokio::test]
async fn a_person_does_not_wait_out_a_cooldown() {
    let world = World::new();
    let (engine, chosen, conversation) = talked(&world, |_| {}).await;
    let rows = short(&world.rows(&conversation, View::Model).await);
    for class in [ErrorClass::Auth, ErrorClass::Billing] {
        chosen.push(Script::error(error(class)));
        let said = code(engine.compress(&conversation, None).await);
        assert!(said.starts_with("HM4104") && said.contains("the summary failed"), "{said}");
    }
    assert!(short(&world.rows(&conversation, View::Model).await) == rows, "nothing was changed");
    chosen.push(Script::text("what was said"));
    engine.compress(&conversation, None).await.unwrap();
}

async fn lease(world: &World, conversation: &ConversationId) -> hermes_store::Fence {
    let claim = ClaimRequest {
        conversation: conversation.clone(),
        owner: OwnerId::parse("other").unwrap(),
        turn: TurnId::parse("other-edit").unwrap(),
        ttl_ms: 600_000,
        policy: ClaimPolicy::LeaseOnly,
    };
    let ClaimOutcome::Leased { fence } = world.store.claim(claim).await.unwrap() else { panic!("no lease") };
    fence
}

#[tokio::test]
async fn while_a_turn_runs_or_another_process_is_at_work_it_is_refused() {
    let world = World::new();
    let (engine, chosen, conversation) = talked(&world, |_| {}).await;
    chosen.push(Script::hang());
    let turn = ask(&engine, Some(&conversation), "fifth");
    let asked = async {
        while chosen.requests().len() < 5 {
            tokio::task::yield_now().await;
        }
        let said = code(engine.compress(&conversation, None).await);
        engine.interrupt(&conversation, Stopper::User, Interrupt::Hard);
        said
    };
    let (_, said) = futures::join!(turn, asked);
    assert!(said.starts_with("HM4103") && said.contains("is running"), "{said}");

    let fence = lease(&world, &conversation).await;
    let said = code(engine.compress(&conversation, None).await);
    assert!(said.starts_with("HM4103") && said.contains("another process"), "{said}");
    world.store.release(&fence).await.unwrap();
    chosen.push(Script::text("what was said"));
    engine.compress(&conversation, None).await.unwrap();
}

#[tokio::test]
async fn e24_a_stop_while_the_notes_are_written_changes_nothing_and_gives_the_lease_back() {
    let world = World::new();
    let (engine, chosen, conversation) = talked(&world, |_| {}).await;
    let rows = short(&world.rows(&conversation, View::Model).await);
    chosen.push(Script::hang());
    let stopping = async {
        while chosen.requests().len() < 5 {
            tokio::task::yield_now().await;
        }
        assert!(engine.interrupt(&conversation, Stopper::User, Interrupt::Hard));
    };
    let (done, ()) = futures::join!(engine.compress(&conversation, None), stopping);
    assert!(code(done).contains("it was stopped"));
    assert!(short(&world.rows(&conversation, View::Model).await) == rows, "nothing was changed");
    chosen.push(Script::text("five"));
    assert_eq!(ask(&engine, Some(&conversation), "fifth").await.answer, "five");
}

/// In the Python program a lock that another holds makes a turn end as deferred. Here whoever shortens a history holds the
/// lease of its conversation: a turn waits for it and never meets a lock of another.
#[tokio::test]
async fn e39_an_input_that_comes_meanwhile_waits_and_is_answered_on_the_shorter_history() {
    let world = World::new();
    let (engine, chosen, conversation) = talked(&world, |_| {}).await;
    [Script::text("what was said"), Script::text("five")].into_iter().for_each(|script| chosen.push(script));
    let (done, turn) = futures::join!(engine.compress(&conversation, None), ask(&engine, Some(&conversation), "fifth"));
    done.unwrap();
    assert_eq!(turn.answer, "five", "{:?}", turn.error);
    let last = chosen.requests().pop().unwrap();
    check_pairs(&last.messages);
    assert!(last.messages.len() < 9);
}
