//! A turn's time bounds everything that a turn can wait for. Time is virtual: how long a turn took is known to the
//! millisecond, and a wait that would never end costs nothing.

use std::sync::Arc;

use async_trait::async_trait;
use hermes_core::limits::{RETRY_AFTER_CAP_MS, TURN_STOP_GRACE_MS};
use hermes_core::{Auxiliary, Clock as _, DelegationSettings, EndReason, Engine, EngineParts, EventKind, People};
use hermes_providers::{ChatModel, ErrorClass, Script};
use hermes_store::{ConversationId, View};
use hermes_tools::scripted::LedgerTool;
use hermes_tools::{
    ApprovalAnswer, ApprovalMode, ApprovalPolicy, ApprovalRequest, Approver, Clarifier, ClarifyAnswer, ClarifyQuestion,
    PolicyConfig, Presence, Risk,
};

use crate::auxiliary::{long, named};
use crate::support::{World, ask, calls, error, model, short};

/// The time of a turn here.
const DEADLINE_MS: u64 = 60_000;
/// What a turn may take over its time: a call is told to end and, when it does not, dropped three seconds later.
const GRACE_MS: u64 = 3_000;
// Nothing here needs the watchdog, which drops a whole turn.
const _: () = assert!(GRACE_MS < TURN_STOP_GRACE_MS);

/// A turn of these parts ends by its deadline, however long it would wait.
async fn ends(what: &str, world: &World, mut parts: EngineParts, inputs: &[&str]) {
    parts.settings.turn_deadline_ms = Some(DEADLINE_MS);
    parts.settings.liveness_timeout_ms = None;
    let engine = Engine::new(parts);
    let mut conversation: Option<ConversationId> = None;
    for (at, input) in inputs.iter().enumerate() {
        let begun_ms = world.clock.now_ms();
        let result = ask(&engine, conversation.as_ref(), input).await;
        conversation = Some(result.conversation.clone());
        if at + 1 < inputs.len() {
            assert_eq!(result.reason, EndReason::Answered, "{what}, input {at}: {:?}", result.error);
            continue;
        }
        assert_eq!(result.reason, EndReason::DeadlineExceeded, "{what}: {:?}", result.error);
        let took_ms = u64::try_from(world.clock.now_ms() - begun_ms).unwrap();
        assert!(took_ms <= DEADLINE_MS + GRACE_MS, "{what}: {took_ms} ms");
    }
    // Everybody finds a turn that was ended, and not one that was dropped.
    let rows = short(&world.rows(&conversation.unwrap(), View::Model).await);
    assert!(rows.last().unwrap().starts_with("assistant/"), "{what}: {rows:?}");
}

fn parts(world: &World, model: Arc<dyn ChatModel>) -> EngineParts {
    world.parts("bounded", model)
}

fn parts_with(world: &World, model: Arc<dyn ChatModel>, tool: LedgerTool) -> EngineParts {
    world.parts_with("bounded", model, tool, Arc::new(world.store.clone()))
}

#[tokio::test(start_paused = true)]
async fn a_request_and_the_waits_between_requests_end_with_the_turn() {
    for (what, silent) in [
        ("a stream", Script::hang()),
        ("a head", Script::hang_at_head()),
        ("the rest of an answer", Script::text_then_hang("half")),
    ] {
        let world = World::paused();
        ends(what, &world, parts(&world, model([silent])), &["go"]).await;
    }
    let world = World::paused();
    let mut limited = error(ErrorClass::RateLimit);
    limited.retry_after_ms = Some(RETRY_AFTER_CAP_MS);
    ends("Retry-After", &world, parts(&world, model([Script::error(limited)])), &["go"]).await;
    let world = World::paused();
    let down = (0..1_000).map(|_| Script::error(error(ErrorClass::ServerError)));
    let mut backing_off = parts(&world, model(down));
    backing_off.settings.request_attempts = 1_000;
    ends("backoff", &world, backing_off, &["go"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_stands_in_has_no_time_of_its_own() {
    for (what, silent) in [("a fallback", Script::hang()), ("its head", Script::hang_at_head())] {
        let world = World::paused();
        let mut parts = parts(&world, model([Script::error(error(ErrorClass::Auth))]));
        parts.fallbacks = vec![named("stands-in", 100_000, [silent])];
        ends(what, &world, parts, &["go"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_summary_ends_with_the_turn() {
    for (what, silent) in [("notes of a compression", Script::hang()), ("their head", Script::hang_at_head())] {
        let world = World::paused();
        let scripts = (0..3).map(|_| Script::text(long(36_000))).chain([Script::hang()]);
        let mut parts = parts(&world, named("chosen", 131_072, scripts));
        let silent = named("notes", 131_072, (0..3).map(|_| silent.clone()));
        parts.auxiliary = Auxiliary { compression: Some(silent), ..Auxiliary::default() };
        ends(what, &world, parts, &["first", "second", "third", "fourth"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_ends_with_the_turn_also_one_that_does_not_listen() {
    for deaf in [false, true] {
        let world = World::paused();
        let tool = world.tool().untimed().hanging(deaf);
        ends(&format!("a tool, deaf: {deaf}"), &world, parts_with(&world, model([calls("c")]), tool), &["go"]).await;
    }
}

/// The task's own turn would have as much time again.
#[tokio::test(start_paused = true)]
async fn a_child_ends_with_the_turn() {
    let world = World::paused();
    let task = Script::calls([("c", "delegate_task", "{\"goal\": \"sleep\"}")]);
    let slow = world.tool().delay_ms(DEADLINE_MS / 2);
    let mut parts = parts_with(&world, model([calls("w"), task, Script::hang()]), slow);
    parts.settings.delegation = Some(DelegationSettings::default());
    ends("a child", &world, parts, &["go"]).await;
    let requests = world.events.all().iter().filter(|e| matches!(e.kind, EventKind::RequestStarted { .. })).count();
    assert_eq!(requests, 3, "the child had asked");
}

/// Somebody who never answers.
struct Away;

#[async_trait]
impl Approver for Away {
    async fn ask(&self, _request: ApprovalRequest) -> ApprovalAnswer {
        std::future::pending().await
    }
}

#[async_trait]
impl Clarifier for Away {
    async fn clarify(&self, _questions: Vec<ClarifyQuestion>) -> Vec<ClarifyAnswer> {
        std::future::pending().await
    }
}

impl People for Away {
    fn approver(&self, _conversation: &ConversationId) -> Arc<dyn Approver> {
        Arc::new(Self)
    }

    fn clarifier(&self, _conversation: &ConversationId) -> Arc<dyn Clarifier> {
        Arc::new(Self)
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_ends_with_the_turn() {
    let world = World::paused();
    let tool = world.tool().risk(Risk::Ask { why: "it may hurt".to_owned() });
    let mut parts = parts_with(&world, model([calls("c")]), tool);
    let policy = PolicyConfig { mode: ApprovalMode::Prompt, presence: Presence::Attended, ..PolicyConfig::default() };
    parts.tools.policy = Arc::new(ApprovalPolicy::new(policy));
    parts.tools.people = Arc::new(Away);
    ends("a question", &world, parts, &["go"]).await;
}
