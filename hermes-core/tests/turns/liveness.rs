//! The watchdog: a turn that no longer gets on is ended, one that is only quiet is not (E26, E27). Time is virtual.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use hermes_core::limits::{BACKOFF_CAP_MS, LIVENESS_MARGIN_MS, LIVENESS_POLL_MS, RETRY_AFTER_CAP_MS};
use hermes_core::{Clock as _, EndReason, Engine, EventKind, TurnResult};
use hermes_providers::{
    ChatModel, ChatRequest, Completion, Delta, DeltaStream, ErrorClass, Finish, ModelInfo, ProviderError, Script,
    ScriptedModel,
};
use hermes_store::{AdmissionStore as _, LeaseStore as _, Role, View};
use hermes_tools::scripted::LedgerTool;
use hermes_tools::{Executor, ExecutorLimits};

use crate::support::{World, ask, calls, error, model, short};

/// Silence after which a turn is stopped here.
const TIMEOUT_MS: u64 = 150_000;

fn engine(world: &World, model: Arc<dyn ChatModel>, tool: LedgerTool) -> Engine {
    engine_in(world, model, tool, hermes_tools::BATCH_LIMIT_MS)
}

/// One whose rounds of calls have so much time.
fn engine_in(world: &World, model: Arc<dyn ChatModel>, tool: LedgerTool, batch_limit_ms: u64) -> Engine {
    let mut parts = world.parts_with("watched", model, tool, Arc::new(world.store.clone()));
    parts.settings.liveness_timeout_ms = Some(TIMEOUT_MS);
    parts.tools.executor = Arc::new(Executor::new(ExecutorLimits { batch_limit_ms, ..ExecutorLimits::default() }));
    Engine::new(parts)
}

fn assert_wedged(result: &TurnResult) {
    assert_eq!(result.reason, EndReason::LivenessLost, "{:?}", result.error);
    let error = result.error.as_ref().unwrap();
    assert_eq!(error.code, "HM4023");
    assert!(error.message.contains("the watchdog of this program"), "it names itself: {}", error.message);
    assert!(error.retryable);
}

/// How long the turn of `ask` took, to the millisecond.
async fn timed(world: &World, engine: &Engine) -> (TurnResult, u64) {
    let begun_ms = world.clock.now_ms();
    let result = ask(engine, None, "go").await;
    (result, u64::try_from(world.clock.now_ms() - begun_ms).unwrap())
}

#[tokio::test(start_paused = true)]
async fn e26_a_silent_provider_is_stopped_once_by_a_named_issuer_and_the_session_is_free() {
    for silent in [Script::hang(), Script::hang_at_head(), Script::text_then_hang("half an")] {
        let world = World::paused();
        let model = model([silent, Script::text("never asked")]);
        let (result, took_ms) = timed(&world, &engine(&world, model.clone(), world.tool())).await;
        assert_wedged(&result);
        assert!((TIMEOUT_MS..=TIMEOUT_MS + LIVENESS_POLL_MS).contains(&took_ms), "{took_ms} ms");
        assert_eq!(model.requests().len(), 1);
        let rows = world.rows(&result.conversation, View::Model).await;
        assert_eq!(rows.last().unwrap().role, Role::Assistant, "a closed tail");
        // It is told once, and it is stored once.
        let events = world.events.all();
        let ends: Vec<_> = events.iter().filter(|event| matches!(event.kind, EventKind::TurnEnded { .. })).collect();
        let [end] = ends.as_slice() else { panic!("{ends:?}") };
        let EventKind::TurnEnded { result: told } = &end.kind else { unreachable!() };
        assert_eq!((**told).clone(), result);
        assert_eq!(events.last(), Some(*end), "nothing comes behind the end");
        let stored = world.store.turn(result.turn.as_ref().unwrap()).await.unwrap();
        assert_eq!(stored.reason.as_deref(), Some(EndReason::LivenessLost.as_str()));
        let receipt = world.store.admission(&result.admission).await.unwrap().receipt;
        assert_eq!(receipt.outcome, Some(EndReason::LivenessLost.outcome()));
        // Whoever comes next need not wait for a lease.
        let next = world.engine("next", self::model([Script::text("here")]));
        let asked_ms = world.clock.now_ms();
        assert_eq!(ask(&next, Some(&result.conversation), "again").await.answer, "here");
        assert_eq!(world.clock.now_ms(), asked_ms);
    }
}

/// A model whose stream brings these pieces, one at a time.
struct Trickling {
    info: ModelInfo,
    every_ms: u64,
    pieces: fn(u32) -> Delta,
}

impl Trickling {
    fn new(every_ms: u64, pieces: fn(u32) -> Delta) -> Arc<Self> {
        Arc::new(Self { info: ScriptedModel::test_info(), every_ms, pieces })
    }
}

#[async_trait]
impl ChatModel for Trickling {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, _request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        let (every, pieces) = (Duration::from_millis(self.every_ms), self.pieces);
        let piece = move |number: u32| async move {
            tokio::time::sleep(every).await;
            Some((Ok(pieces(number)), number + 1))
        };
        Ok(futures::stream::unfold(0, piece).boxed())
    }
}

#[tokio::test(start_paused = true)]
async fn e26_what_only_keeps_a_connection_open_is_no_progress() {
    let world = World::paused();
    let pinging = Trickling::new(1_000, |number| {
        let empty = Delta::Text(String::new());
        if number.is_multiple_of(2) { empty } else { Delta::CallArguments { index: 0, bytes: 0 } }
    });
    let (result, took_ms) = timed(&world, &engine(&world, pinging, world.tool())).await;
    assert_wedged(&result);
    assert!((TIMEOUT_MS..=TIMEOUT_MS + LIVENESS_POLL_MS).contains(&took_ms), "{took_ms} ms");
}

/// A whole answer of text.
fn whole(text: &str) -> Completion {
    Completion {
        text: text.to_owned(),
        reasoning: None,
        sidecar: None,
        calls: Vec::new(),
        finish: Finish::Stop,
        finish_missing: false,
        usage: None,
        served_model: None,
    }
}

/// Ten pieces of each kind that is progress, each just before a turn without one would be stopped.
#[tokio::test(start_paused = true)]
async fn a_slow_answer_that_gets_on_is_waited_for_however_long_it_takes() {
    const EVERY_MS: u64 = TIMEOUT_MS - LIVENESS_POLL_MS;
    const PIECES: u32 = 40;
    let world = World::paused();
    let slow = Trickling::new(EVERY_MS, |number| match number {
        0..10 => Delta::Reasoning("y".to_owned()),
        10..20 => Delta::Text("x".to_owned()),
        20..30 => Delta::CallStarted { index: 0, name: "act".to_owned() },
        30..PIECES => Delta::CallArguments { index: 0, bytes: 1 },
        _ => Delta::Done(Box::new(whole("xxxxxxxxxx"))),
    });
    let (result, took_ms) = timed(&world, &engine(&world, slow, world.tool())).await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "xxxxxxxxxx"), "{:?}", result.error);
    assert_eq!(took_ms, EVERY_MS * u64::from(PIECES + 1));
}

#[tokio::test(start_paused = true)]
async fn a_wait_before_another_attempt_is_no_silence_however_long_a_provider_asks_for() {
    const { assert!(RETRY_AFTER_CAP_MS > 2 * TIMEOUT_MS) };
    let world = World::paused();
    let mut limited = error(ErrorClass::RateLimit);
    limited.retry_after_ms = Some(RETRY_AFTER_CAP_MS);
    let model = model([Script::error(limited.clone()), Script::error(limited), Script::text("at last")]);
    let (result, took_ms) = timed(&world, &engine(&world, model.clone(), world.tool())).await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "at last"), "{:?}", result.error);
    assert!(took_ms >= 2 * RETRY_AFTER_CAP_MS, "{took_ms} ms");
    assert_eq!(model.requests().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn waits_of_the_program_s_own_between_attempts_are_no_silence_in_their_sum() {
    let world = World::paused();
    let down = (0..30).map(|_| Script::error(error(ErrorClass::ServerError)));
    let mut parts = world.parts("watched", model(down.chain([Script::text("up again")])));
    // Shorter than the longest wait.
    parts.settings.liveness_timeout_ms = Some(BACKOFF_CAP_MS / 2);
    parts.settings.request_attempts = 100;
    let (result, took_ms) = timed(&world, &Engine::new(parts)).await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "up again"), "{:?}", result.error);
    assert!(took_ms > 20 * BACKOFF_CAP_MS, "{took_ms} ms");
}

#[tokio::test(start_paused = true)]
async fn silence_behind_a_wait_counts_from_its_end() {
    let world = World::paused();
    let mut limited = error(ErrorClass::RateLimit);
    limited.retry_after_ms = Some(RETRY_AFTER_CAP_MS);
    let model = model([Script::error(limited), Script::hang_at_head()]);
    let (result, took_ms) = timed(&world, &engine(&world, model, world.tool())).await;
    assert_wedged(&result);
    let wait_ms = RETRY_AFTER_CAP_MS + TIMEOUT_MS;
    assert!((wait_ms..wait_ms + 2 * LIVENESS_POLL_MS).contains(&took_ms), "{took_ms} ms");
}

#[tokio::test(start_paused = true)]
async fn e27_a_quiet_tool_without_a_limit_of_its_own_runs_for_three_times_as_long() {
    let world = World::paused();
    let tool = world.tool().untimed().delay_ms(3 * TIMEOUT_MS);
    let result = ask(&engine(&world, model([calls("a"), Script::text("done")]), tool), None, "go").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"), "{:?}", result.error);
    assert_eq!(world.ledger.effects().len(), 1);
}

/// A tool that never ends: the watchdog bears it for its limit, whose ever that is, and a margin.
async fn stopped_after(tool: impl Fn(&World) -> LedgerTool, batch_limit_ms: u64) -> u64 {
    let world = World::paused();
    let tool = tool(&world).hanging(false);
    let model = model([calls("a"), Script::text("never asked")]);
    let (result, took_ms) = timed(&world, &engine_in(&world, model, tool, batch_limit_ms)).await;
    assert_wedged(&result);
    let rows = world.rows(&result.conversation, View::Model).await;
    assert_eq!(short(&rows)[1..3], ["assistant:[\"act\"]", "tool:interrupted"]);
    took_ms
}

#[tokio::test(start_paused = true)]
async fn e27_a_tool_that_outlives_its_limit_is_stopped_and_said_to_be() {
    let near = |took_ms: u64, wanted_ms: u64| {
        assert!((wanted_ms..=wanted_ms + LIVENESS_POLL_MS).contains(&took_ms), "{took_ms} ms, not {wanted_ms}");
    };
    // No batch bounds an untimed tool. Without a limit of its own it is waited for, see above; with one, for that long.
    let long = |world: &World| world.tool().untimed().limited_to_ms(4 * TIMEOUT_MS);
    near(stopped_after(long, hermes_tools::BATCH_LIMIT_MS).await, 4 * TIMEOUT_MS + LIVENESS_MARGIN_MS);
    // A short limit makes nobody more impatient than with any other silence.
    let short = |world: &World| world.tool().untimed().limited_to_ms(1_000);
    near(stopped_after(short, hermes_tools::BATCH_LIMIT_MS).await, TIMEOUT_MS);
    // Also where the batch would have borne it for longer: its own word counts.
    let timed = |world: &World| world.tool().limited_to_ms(1_000);
    near(stopped_after(timed, 100 * TIMEOUT_MS).await, TIMEOUT_MS);
}

#[tokio::test(start_paused = true)]
async fn e27_a_tool_s_own_limit_counts_more_than_the_batch_s_also_when_it_is_longer() {
    // The batch's time would end its patience long before the tool is done; the batch itself does not end an untimed one.
    let world = World::paused();
    let tool = world.tool().untimed().limited_to_ms(5 * TIMEOUT_MS).delay_ms(4 * TIMEOUT_MS);
    let model = model([calls("a"), Script::text("done")]);
    let (result, took_ms) = timed(&world, &engine_in(&world, model, tool, 1_000)).await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"), "{:?}", result.error);
    assert_eq!((took_ms, world.ledger.effects().len()), (4 * TIMEOUT_MS, 1));
}
