//! The watchdog: a turn that no longer gets on is ended, one that is only quiet is not (E26, E27).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use hermes_core::{Clock as _, EndReason, Engine, TurnResult};
use hermes_providers::{ChatModel, ChatRequest, Delta, DeltaStream, ModelInfo, ProviderError, Script, ScriptedModel};
use hermes_store::{Role, View};
use hermes_tools::scripted::LedgerTool;

use crate::support::{World, ask, calls, model, short};

/// Silence after which a turn is stopped here, in milliseconds of the world's clock: three quarters of a second.
const TIMEOUT_MS: u64 = 150_000;

fn engine(world: &World, model: Arc<dyn ChatModel>, tool: LedgerTool) -> Engine {
    let mut parts = world.parts_with("watched", model, tool, Arc::new(world.store.clone()));
    parts.settings.liveness_timeout_ms = Some(TIMEOUT_MS);
    Engine::new(parts)
}

fn assert_wedged(result: &TurnResult) {
    assert_eq!(result.reason, EndReason::LivenessLost, "{:?}", result.error);
    let error = result.error.as_ref().unwrap();
    assert_eq!(error.code, "HM4023");
    assert!(error.message.contains("the watchdog of this program"), "it names itself: {}", error.message);
    assert!(error.retryable);
}

#[tokio::test]
async fn e26_a_silent_provider_is_stopped_by_a_named_issuer_and_the_session_is_free() {
    for silent in [Script::hang(), Script::hang_at_head(), Script::text_then_hang("half an")] {
        let world = World::new();
        let engine = engine(&world, model([silent, Script::text("never asked")]), world.tool());
        let begun_ms = world.clock.now_ms();
        let result = ask(&engine, None, "go").await;
        assert_wedged(&result);
        assert!(u64::try_from(world.clock.now_ms() - begun_ms).unwrap() >= TIMEOUT_MS, "not before its time");
        let rows = world.rows(&result.conversation, View::Model).await;
        assert_eq!(rows.last().unwrap().role, Role::Assistant, "a closed tail");
        // Whoever comes next need not wait for a lease.
        let next = world.engine("next", model([Script::text("here")]));
        assert_eq!(ask(&next, Some(&result.conversation), "again").await.answer, "here");
    }
}

/// A model whose stream says what keeps a connection open, and nothing else.
struct Pinging(ModelInfo);

#[async_trait]
impl ChatModel for Pinging {
    fn info(&self) -> &ModelInfo {
        &self.0
    }

    async fn stream(&self, _request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        let ping = |number: u32| async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let empty = Delta::Text(String::new());
            let ping = if number.is_multiple_of(2) { empty } else { Delta::CallArguments { index: 0, bytes: 0 } };
            Some((Ok(ping), number + 1))
        };
        Ok(futures::stream::unfold(0, ping).boxed())
    }
}

#[tokio::test]
async fn e26_what_only_keeps_a_connection_open_is_no_progress() {
    let world = World::new();
    let pinging = Arc::new(Pinging(ScriptedModel::test_info()));
    assert_wedged(&ask(&engine(&world, pinging, world.tool()), None, "go").await);
}

#[tokio::test]
async fn e27_a_quiet_tool_without_a_limit_of_its_own_runs_for_three_times_as_long() {
    let world = World::new();
    // Real milliseconds: on the world's clock 200 times as long.
    let tool = world.tool().untimed().delay_ms(3 * TIMEOUT_MS / 200);
    let result = ask(&engine(&world, model([calls("a"), Script::text("done")]), tool), None, "go").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"), "{:?}", result.error);
    assert_eq!(world.ledger.effects().len(), 1);
}

#[tokio::test]
async fn e27_a_tool_that_outlives_its_limit_is_stopped_and_said_to_be() {
    let world = World::new();
    let tool = world.tool().hanging(false);
    let result = ask(&engine(&world, model([calls("a"), Script::text("never asked")]), tool), None, "go").await;
    assert_wedged(&result);
    let rows = world.rows(&result.conversation, View::Model).await;
    assert_eq!(short(&rows)[1..3], ["assistant:[\"act\"]", "tool:interrupted"]);
}
