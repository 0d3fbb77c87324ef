//! A turn's time bounds everything that a turn can wait for.

use std::sync::Arc;

use async_trait::async_trait;
use hermes_core::limits::RETRY_AFTER_CAP_MS;
use hermes_core::{Auxiliary, Clock as _, EndReason, Engine, EngineParts, People};
use hermes_providers::{ChatModel, ErrorClass, Script};
use hermes_store::ConversationId;
use hermes_tools::{
    ApprovalAnswer, ApprovalMode, ApprovalPolicy, ApprovalRequest, Approver, Clarifier, ClarifyAnswer, ClarifyQuestion,
    PolicyConfig, Presence, Risk,
};

use crate::auxiliary::{long, named};
use crate::support::{World, ask, calls, error, model};

/// The time of a turn here.
const DEADLINE_MS: u64 = 60_000;
/// What a turn may take here at most: far more than its time, so that a slow machine does not matter, and far less than
/// what it waits for, which never comes.
const BETWEEN_MS: u64 = 1_500_000;

/// A turn of these parts ends by its deadline, long before what it waits for is over.
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
        assert!(took_ms < BETWEEN_MS, "{what}: {took_ms} ms");
    }
}

fn parts(world: &World, model: Arc<dyn ChatModel>) -> EngineParts {
    world.parts("bounded", model)
}

#[tokio::test]
async fn a_request_and_the_waits_between_requests_end_with_the_turn() {
    for (what, silent) in [
        ("a stream", Script::hang()),
        ("a head", Script::hang_at_head()),
        ("the rest of an answer", Script::text_then_hang("half")),
    ] {
        let world = World::new();
        ends(what, &world, parts(&world, model([silent])), &["go"]).await;
    }
    let world = World::new();
    let mut limited = error(ErrorClass::RateLimit);
    limited.retry_after_ms = Some(RETRY_AFTER_CAP_MS);
    ends("Retry-After", &world, parts(&world, model([Script::error(limited)])), &["go"]).await;
    let world = World::new();
    let down = (0..1_000).map(|_| Script::error(error(ErrorClass::ServerError)));
    let mut backing_off = parts(&world, model(down));
    backing_off.settings.request_attempts = 1_000;
    ends("backoff", &world, backing_off, &["go"]).await;
}

#[tokio::test]
async fn a_model_that_stands_in_has_no_time_of_its_own() {
    let world = World::new();
    let mut parts = parts(&world, model([Script::error(error(ErrorClass::Auth))]));
    parts.fallbacks = vec![named("stands-in", 100_000, [Script::hang()])];
    ends("a fallback", &world, parts, &["go"]).await;
}

#[tokio::test]
async fn a_summary_ends_with_the_turn() {
    let world = World::new();
    let scripts = (0..3).map(|_| Script::text(long(36_000))).chain([Script::hang()]);
    let mut parts = parts(&world, named("chosen", 131_072, scripts));
    let silent = named("notes", 131_072, [Script::hang(), Script::hang(), Script::hang()]);
    parts.auxiliary = Auxiliary { compression: Some(silent), ..Auxiliary::default() };
    ends("notes of a compression", &world, parts, &["first", "second", "third", "fourth"]).await;
}

#[tokio::test]
async fn a_tool_ends_with_the_turn() {
    let world = World::new();
    let tool = world.tool().untimed().hanging(false);
    let parts = world.parts_with("bounded", model([calls("c")]), tool, Arc::new(world.store.clone()));
    ends("a tool", &world, parts, &["go"]).await;
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

#[tokio::test]
async fn a_question_ends_with_the_turn() {
    let world = World::new();
    let tool = world.tool().risk(Risk::Ask { why: "it may hurt".to_owned() });
    let mut parts = world.parts_with("bounded", model([calls("c")]), tool, Arc::new(world.store.clone()));
    let policy = PolicyConfig { mode: ApprovalMode::Prompt, presence: Presence::Attended, ..PolicyConfig::default() };
    parts.tools.policy = Arc::new(ApprovalPolicy::new(policy));
    parts.tools.people = Arc::new(Away);
    ends("a question", &world, parts, &["go"]).await;
}
