//! A turn that ignores a hard stop, because something in it never comes back: it is dropped after its grace, and the next
//! owner finds in the journal what became of it. It is a crash that leaves the process alive.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hermes_core::limits::TURN_STOP_GRACE_MS;
use hermes_core::testing::{Fault, FaultStore};
use hermes_core::{
    Clock as _, CompactError, ContextEngine, EndReason, Engine, EngineParts, EventKind, History, Interrupt, NewView,
    PromptMaterial, PromptSource, Stopper, Summarizer, TurnResult,
};
use hermes_store::{
    AdmissionStatus, AdmissionStore as _, CallOutcome, ConversationId, Role, SessionStore as _, StoredMessage, View,
};
use hermes_tools::{Authorized, Call, CallReport, Risk, Tool, ToolContext, ToolRegistry, ToolSpec};

use crate::crashes;
use crate::support::{RoundsModel, World, check_requests, submission};

/// The time of a turn here.
const DEADLINE_MS: u64 = 60_000;

fn told_given_up(events: &[hermes_core::Event], result: &TurnResult) {
    let error = result.error.as_ref().unwrap();
    assert!(error.message.contains("was given up"), "{error:?}");
    let ends = events.iter().filter(|event| matches!(event.kind, EventKind::TurnEnded { .. })).count();
    assert_eq!(ends, 1, "it is told once");
}

/// Every call has its one result, in call order; the input and its answer stand there once.
async fn whole(world: &World, conversation: &ConversationId, calls: usize, what: &str) -> Vec<StoredMessage> {
    let rows = world.rows(conversation, View::Display).await;
    let made: Vec<_> = rows.iter().flat_map(|row| row.calls.iter().map(|call| call.call.clone())).collect();
    let results: Vec<_> = rows.iter().filter_map(|row| row.answers.as_ref().map(|call| call.call.clone())).collect();
    assert_eq!(made, results, "{what}");
    let of = |role: Role| rows.iter().filter(|row| row.role == role && row.calls.is_empty()).count();
    assert_eq!((of(Role::User), made.len(), of(Role::Assistant)), (1, calls, 1), "{what}: {rows:?}");
    assert!(world.store.queue(conversation).await.unwrap().is_empty(), "{what}");
    rows
}

/// Never comes back the first time.
#[derive(Default)]
struct Stuck(AtomicBool);

impl Stuck {
    async fn once(&self) {
        if !self.0.swap(true, Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl PromptSource for Stuck {
    async fn material(&self, _cwd: Option<&str>) -> PromptMaterial {
        self.once().await;
        PromptMaterial::default()
    }
}

#[async_trait]
impl ContextEngine for Stuck {
    fn threshold(&self, _window: u64, _max_output_tokens: Option<u64>) -> Option<u64> {
        Some(1)
    }

    async fn compact(&self, _history: History<'_>, _model: &dyn Summarizer) -> Result<NewView, CompactError> {
        self.once().await;
        Err(CompactError::Nothing)
    }
}

/// Runs an input into what is stuck, and then again, on the same engine or on another one.
async fn stuck(what: &str, same_engine: bool, stick: fn(&mut EngineParts)) {
    let world = World::paused();
    let model = RoundsModel::new(1, 1);
    let mut parts = world.parts("first", model.clone());
    parts.settings.turn_deadline_ms = Some(DEADLINE_MS);
    stick(&mut parts);
    let engine = Engine::new(parts);
    let receipt = engine.submit(submission(None, "r", "go")).await.unwrap().receipt().clone();
    let begun_ms = world.clock.now_ms();
    let result = engine.run_until(&receipt.conversation, &receipt.admission).await.unwrap();
    let took_ms = u64::try_from(world.clock.now_ms() - begun_ms).unwrap();
    assert_eq!((result.reason, took_ms), (EndReason::DeadlineExceeded, DEADLINE_MS + TURN_STOP_GRACE_MS), "{what}");
    told_given_up(&world.events.all(), &result);
    let status = world.store.admission(&receipt.admission).await.unwrap().receipt.status;
    assert_eq!(status, AdmissionStatus::Started, "{what}: nothing is written in its name");
    let next = if same_engine { engine } else { world.engine("second", model.clone()) };
    let result = next.run_until(&receipt.conversation, &receipt.admission).await.unwrap();
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"), "{what}: {:?}", result.error);
    whole(&world, &receipt.conversation, 1, what).await;
    check_requests(&model.requests.lock().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_ignores_its_deadline_is_dropped_after_the_grace_and_its_input_answered_once() {
    for same_engine in [false, true] {
        stuck("the prompt's material", same_engine, |parts| parts.prompt = Arc::new(Stuck::default())).await;
        stuck("the context engine", same_engine, |parts| parts.context = Arc::new(Stuck::default())).await;
    }
}

/// A database that no longer answers, from one write on: the turn is ended without it.
#[tokio::test(start_paused = true)]
async fn i01_i13_i14_a_store_that_stops_answering_at_any_write_of_a_turn_holds_it_only_for_the_grace() {
    let mut points = 0;
    for fault in [Fault::DiesBefore, Fault::DiesAfter] {
        for at in 0.. {
            let what = format!("{fault:?} at write {at}");
            let world = World::paused();
            let conversation = crashes::create(&world).await;
            let model = RoundsModel::new(2, 2);
            let store = FaultStore::new(Arc::new(world.store.clone()), fault, at);
            let mut parts = world.parts_with("first", model.clone(), world.tool(), store.clone());
            parts.settings.turn_deadline_ms = Some(DEADLINE_MS);
            let engine = Engine::new(parts);
            let claimed = || world.events.all().iter().any(|event| matches!(event.kind, EventKind::TurnStarted { .. }));
            let work = async {
                let receipt =
                    engine.submit(submission(Some(&conversation), "request-1", "go")).await?.receipt().clone();
                engine.run_until(&conversation, &receipt.admission).await
            };
            // Longer than anything in a turn may take: it was stopped, and given up.
            let ended = tokio::time::timeout(Duration::from_millis(DEADLINE_MS + TURN_STOP_GRACE_MS + 1), work).await;
            if !store.reached() {
                break;
            }
            match ended {
                Ok(result) => told_given_up(&world.events.all(), &result.unwrap()),
                // Before the turn and behind it there is none that could be dropped.
                Err(_) => assert!(!claimed(), "{what}: the turn is still there"),
            }
            points += 1;
            drop(engine);
            let next = RoundsModel::new(2, 2);
            let second = world.engine("second", next.clone());
            let again = submission(Some(&conversation), "request-1", "go");
            let receipt = second.submit(again).await.unwrap().receipt().clone();
            let result = second.run_until(&conversation, &receipt.admission).await.unwrap();
            assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"), "{what}");
            whole(&world, &conversation, 4, &what).await;
            let effects = world.ledger.effects();
            assert_eq!(effects.iter().collect::<HashSet<_>>().len(), effects.len(), "{what}: an effect twice");
            check_requests(&next.requests.lock().unwrap());
        }
    }
    assert!(points >= 20, "only {points} points");
}

/// Blocks the thread that it runs on until it is released, whatever it is told.
struct Blocking {
    spec: ToolSpec,
    began: Arc<AtomicBool>,
    released: Arc<AtomicBool>,
}

#[async_trait]
impl Tool for Blocking {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self, _call: &Call, _cx: &ToolContext) -> Risk {
        Risk::None
    }

    fn label(&self, call: &Call) -> String {
        call.name.clone()
    }

    async fn call(&self, _call: Authorized<Call>, _cx: &ToolContext) -> CallReport {
        self.began.store(true, Ordering::SeqCst);
        while !self.released.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        CallReport::new(hermes_tools::CallOutcome::Ok, "too late")
    }
}

/// In real time, on the fast clock: a thread cannot be blocked where time is virtual. Nothing here depends on how long
/// anything takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i13_i14_a_turn_whose_tool_blocks_its_thread_is_dropped_and_its_call_is_said_to_be_unknown() {
    let world = World::faster();
    let (began, released) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let schema = serde_json::json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let tool =
        Blocking { spec: ToolSpec::new("act", "Blocks.", schema), began: began.clone(), released: released.clone() };
    let mut registry = ToolRegistry::new();
    registry.register(Arc::new(tool)).unwrap();
    let (store, model) = (Arc::new(world.store.clone()), RoundsModel::new(1, 1));
    let (clock, events) = (world.clock.clone(), world.events.clone());
    let mut parts = hermes_core::testing::parts("first", store, model, registry, clock, events);
    // A machine that is slow here must not be taken for a turn that does not get on.
    parts.settings.liveness_timeout_ms = None;
    let first = Engine::new(parts);
    let receipt = first.submit(submission(None, "r", "go")).await.unwrap().receipt().clone();
    let stop = async {
        while !began.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        assert!(first.interrupt(&receipt.conversation, Stopper::User, Interrupt::Hard));
    };
    let (result, ()) = tokio::join!(first.run_until(&receipt.conversation, &receipt.admission), stop);
    let result = result.unwrap();
    assert_eq!(result.reason, EndReason::StoppedByUser);
    told_given_up(&world.events.all(), &result);
    let second = RoundsModel::new(1, 1);
    let next = world.engine("second", second.clone());
    let result = next.run_until(&receipt.conversation, &receipt.admission).await.unwrap();
    // Its thread is still at work; what it does now is nobody's any more.
    released.store(true, Ordering::SeqCst);
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"), "{:?}", result.error);
    let rows = whole(&world, &receipt.conversation, 1, "a tool").await;
    let call = rows.iter().find_map(|row| row.answers.as_ref()).unwrap();
    assert_eq!(call.outcome, Some(CallOutcome::OutcomeUnknown));
    assert_eq!(world.ledger.events(), [], "it is not run again");
}
