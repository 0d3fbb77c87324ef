//! Steps and time of a turn: what uses them, what gives them back, what is told, and how a turn ends without them.

use std::sync::Arc;

use async_trait::async_trait;
use hermes_core::testing::{FastClock, Fault, FaultStore, parts};
use hermes_core::{EndReason, Engine, EngineSettings, EventKind};
use hermes_providers::{
    ChatModel, ChatRequest, DeltaStream, ErrorClass, Finish, ModelInfo, ProviderError, Script, ScriptedModel,
};
use hermes_store::{MessageKind, Store, View};
use hermes_tools::ToolRegistry;
use hermes_tools::scripted::LedgerTool;

use crate::crashes::create;
use crate::support::{RoundsModel, World, ask, calls, check_requests, error, model, results, short, submission};

fn steps(max: u64) -> EngineSettings {
    EngineSettings { max_iterations: Some(max), ..EngineSettings::default() }
}

fn engine(world: &World, model: &Arc<ScriptedModel>, settings: EngineSettings) -> Engine {
    let mut parts = world.parts("e", model.clone());
    parts.settings = settings;
    Engine::new(parts)
}

#[tokio::test]
async fn e17_an_empty_summary_is_asked_for_once_more() {
    for (empties, answer) in [(1, "summary"), (2, "")] {
        let world = World::new();
        let summaries = (0..empties).map(|_| calls("x")).chain([Script::text("summary"), Script::text("fine")]);
        let model = model([calls("a"), calls("b")].into_iter().chain(summaries));
        let engine = engine(&world, &model, steps(2));
        let result = ask(&engine, None, "go").await;
        assert_eq!((result.reason, result.answer.as_str()), (EndReason::BudgetExhausted, answer));
        assert_eq!((result.api_calls, world.ledger.effects().len()), (4, 2), "no call of a summary is run");
        let rows = world.rows(&result.conversation, View::Display).await;
        assert!(rows.last().unwrap().calls.is_empty());
        ask(&engine, Some(&result.conversation), "more").await;
        check_requests(&model.requests());
    }
}

#[tokio::test]
async fn a_budget_that_ends_in_a_cut_answer_keeps_its_parts() {
    let world = World::new();
    let cut = |text: &str| Script::text(text).with_finish(Finish::Length);
    let model = model([cut("One, "), cut("two, "), Script::text("fine")]);
    let engine = engine(&world, &model, steps(1));
    // The second part is the grace step; a third one is not asked for.
    let result = ask(&engine, None, "go").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::BudgetExhausted, "One, two, "));
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!(short(&rows)[1..], ["assistant/partial:One, two, "]);
    ask(&engine, Some(&result.conversation), "more").await;
    check_requests(&model.requests());
}

#[tokio::test]
async fn the_answer_to_a_nudge_is_heard_though_the_budget_is_used_up() {
    let world = World::new();
    let model = model([calls("a"), Script::text(""), Script::text("done")]);
    let result = ask(&engine(&world, &model, steps(2)), None, "go").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"));
}

#[tokio::test]
async fn e18_rounds_of_execute_code_alone_use_no_step() {
    let world = World::new();
    let mut registry = ToolRegistry::new();
    registry.register(Arc::new(LedgerTool::new("execute_code", world.ledger.clone()))).unwrap();
    registry.register(Arc::new(world.tool())).unwrap();
    let code = |n: usize| Script::calls([(format!("c{n}"), "execute_code", format!("{{\"n\":{n}}}"))]);
    let scripts = (0..10).map(code).chain([calls("a"), calls("b"), Script::text("summary")]);
    let model = model(scripts);
    let store = Arc::new(world.store.clone());
    let mut parts = parts("e", store, model.clone(), registry, world.clock.clone(), world.events.clone());
    parts.settings = steps(2);
    let result = ask(&Engine::new(parts), None, "go").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::BudgetExhausted, "summary"));
    assert_eq!((result.api_calls, world.ledger.effects().len()), (13, 12));
}

#[tokio::test]
async fn the_model_is_told_once_that_its_steps_run_out() {
    let world = World::new();
    let call = |n: usize| Script::calls([(format!("c{n}"), "act", format!("{{\"n\":{n}}}"))]);
    let model = model((0..4).map(call).chain([Script::text("done")]));
    let settings = EngineSettings { budget_warning_ratio: Some(0.5), ..steps(5) };
    assert_eq!(ask(&engine(&world, &model, settings), None, "go").await.reason, EndReason::Answered);
    let requests = model.requests();
    let told: Vec<bool> = results(&requests[4]).iter().map(|text| text.contains("3 of the 5 steps")).collect();
    assert_eq!(told, [false, false, true, false]);
    check_requests(&requests);
}

/// Pushes the clock forward with each request.
struct SlowModel {
    inner: Arc<ScriptedModel>,
    clock: Arc<FastClock>,
    by_ms: i64,
}

#[async_trait]
impl ChatModel for SlowModel {
    fn info(&self) -> &ModelInfo {
        self.inner.info()
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        self.clock.push(self.by_ms);
        self.inner.stream(request).await
    }
}

#[tokio::test]
async fn the_model_is_told_once_that_its_time_runs_out() {
    const HOUR_MS: u64 = 3_600_000;
    let world = World::new();
    let call = |n: usize| Script::calls([(format!("c{n}"), "act", format!("{{\"n\":{n}}}"))]);
    let inner = model((0..3).map(call).chain([Script::text("done")]));
    let slow = SlowModel { inner: inner.clone(), clock: world.clock.clone(), by_ms: 1_600_000 };
    let mut parts = world.parts("e", Arc::new(slow));
    parts.settings.turn_deadline_ms = Some(2 * HOUR_MS);
    // A pushed clock has passed the lease: it is renewed when the keeper wakes.
    let result = ask(&Engine::new(parts), None, "go").await;
    assert_eq!(result.reason, EndReason::Answered);
    let requests = inner.requests();
    let told: Vec<bool> = results(&requests[3]).iter().map(|text| text.contains("seconds are left")).collect();
    assert_eq!(told.iter().filter(|told| **told).count(), usize::from(told[2]), "{told:?}");
    check_requests(&requests);
}

#[tokio::test]
async fn no_retry_waits_past_the_deadline() {
    let world = World::new();
    let mut busy = error(ErrorClass::RateLimit);
    busy.retry_after_ms = Some(600_000);
    let model = model([Script::error(busy), Script::text("too late")]);
    let settings = EngineSettings { turn_deadline_ms: Some(60_000), ..EngineSettings::default() };
    let result = ask(&engine(&world, &model, settings), None, "go").await;
    assert_eq!((result.reason, result.api_calls), (EndReason::DeadlineExceeded, 1));
    let failure = result.error.unwrap();
    assert_eq!(failure.code, "HM4002");
    assert!(failure.message.contains("injected"), "the cause is named: {}", failure.message);
    assert!(!world.events.all().iter().any(|e| matches!(e.kind, EventKind::Retrying { .. })));
}

#[tokio::test]
async fn the_deadline_bounds_every_nested_retry() {
    let limit_ms = 40_000;
    let fail = || Script::error(error(ErrorClass::ServerError));
    let table: Vec<Vec<Script>> = vec![
        (0..200).map(|_| fail()).collect(),
        // Empty answers and failures in turns, in a continuation, after a round.
        [calls("a"), Script::text("").with_finish(Finish::Stop)]
            .into_iter()
            .chain((0..200).flat_map(|_| [fail(), Script::text("")]))
            .collect(),
        [Script::text("One, ").with_finish(Finish::Length)].into_iter().chain((0..200).map(|_| fail())).collect(),
    ];
    for (case, scripts) in table.into_iter().enumerate() {
        let world = World::new();
        let model = model(scripts);
        let settings =
            EngineSettings { turn_deadline_ms: Some(limit_ms), request_attempts: 1_000, ..EngineSettings::default() };
        let result = ask(&engine(&world, &model, settings), None, "go").await;
        let may_end = [EndReason::DeadlineExceeded, EndReason::EmptyResponse];
        assert!(may_end.contains(&result.reason), "{case}: {:?}", result.reason);
        let waited: u64 = world
            .events
            .all()
            .iter()
            .filter_map(|e| if let EventKind::Retrying { wait_ms, .. } = e.kind { Some(wait_ms) } else { None })
            .sum();
        assert!(waited < limit_ms, "{case}: {waited} ms of waits in {limit_ms} ms");
    }
}

#[tokio::test]
async fn a_stream_that_outlasts_the_deadline_is_kept_as_far_as_it_came() {
    let world = World::new();
    let model = model([Script::text_then_hang("so far")]);
    let settings = EngineSettings { turn_deadline_ms: Some(5_000), ..EngineSettings::default() };
    let result = ask(&engine(&world, &model, settings), None, "go").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::DeadlineExceeded, "so far"));
    let rows = world.rows(&result.conversation, View::Display).await;
    assert_eq!(rows.last().unwrap().kind, MessageKind::Partial);
}

#[tokio::test]
async fn a_crash_makes_no_budget_new() {
    let mut resumed = 0;
    for at in 0.. {
        let world = World::new();
        let conversation = create(&world).await;
        let parts = |name: &str, store: Arc<dyn Store>| {
            let mut parts = world.parts_with(name, RoundsModel::new(9, 1), world.tool(), store);
            parts.settings = steps(3);
            Engine::new(parts)
        };
        let run = async |engine: Engine| {
            let receipt = engine.submit(submission(Some(&conversation), "r", "go")).await?.receipt().clone();
            engine.run_until(&conversation, &receipt.admission).await
        };
        let store = FaultStore::new(Arc::new(world.store.clone()), Fault::DiesAfter, at);
        let died = tokio::select! {
            _ = run(parts("first", store.clone())) => false,
            () = store.died() => true,
        };
        world.dead.0.lock().unwrap().push("first".to_owned());
        let before = world.ledger.effects().len();
        let end = run(parts("second", Arc::new(world.store.clone()))).await.unwrap();
        assert!(world.ledger.effects().len() <= 3, "{} effects, death behind write {at}", world.ledger.effects().len());
        // A death behind the row that closes the turn leaves nothing to go on with.
        let is_over = matches!(end.reason, EndReason::BudgetExhausted | EndReason::CrashInterrupted);
        assert!(is_over, "{:?}, death behind write {at}", end.reason);
        resumed += usize::from(died && (1..3).contains(&before));
        if !died {
            break;
        }
    }
    assert!(resumed > 3, "only {resumed} turns were gone on with");
}
