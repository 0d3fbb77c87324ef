//! Windows that grow: what is tried before a history is shortened, for models that this program runs itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use hermes_core::limits::WINDOW_GROWTH_MAX_MS;
use hermes_core::{
    Clock as _, CompressionSettings, EndReason, Engine, EventKind, Interrupt, Stopper, SummaryEngine, TurnResult,
};
use hermes_providers::{
    ChatModel, ChatRequest, DeltaStream, ErrorClass, ModelInfo, OwnWindow, ProviderError, Script, ScriptedModel,
};
use hermes_store::ConversationId;

use crate::auxiliary::{long, named};
use crate::support::{World, ask, check_requests, error, submission};

/// The window that everything begins with; its history is shortened from 27,852 tokens on.
const WINDOW: u64 = 32_768;
/// The answer of a turn, in tokens: the fourth turn is over the threshold before it asks.
const ANSWER_TOKENS: usize = 9_500;

/// What happens when the window is to be grown.
enum Grows {
    /// It is as large as was wanted, or twice as large, and no larger than it may be.
    Yes,
    No(&'static str),
    Never,
}

/// A scripted model with a window of its own.
struct Growing {
    inner: Arc<ScriptedModel>,
    window: Mutex<OwnWindow>,
    /// Each wish: the window that it began from, and what was wanted.
    asked: Mutex<Vec<(u64, u64)>>,
    plan: Mutex<VecDeque<Grows>>,
    /// As its server has one process, one grows it at a time.
    one: tokio::sync::Mutex<()>,
}

impl Growing {
    fn new(max: u64, scripts: impl IntoIterator<Item = Script>) -> Arc<Self> {
        Arc::new(Self {
            inner: named("own", WINDOW, scripts),
            window: Mutex::new(OwnWindow { tokens: WINDOW, max }),
            asked: Mutex::default(),
            plan: Mutex::default(),
            one: tokio::sync::Mutex::default(),
        })
    }

    fn then(self: Arc<Self>, plan: impl IntoIterator<Item = Grows>) -> Arc<Self> {
        self.plan.lock().unwrap().extend(plan);
        self
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

#[async_trait]
impl ChatModel for Growing {
    fn info(&self) -> &ModelInfo {
        self.inner.info()
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        self.inner.stream(request).await
    }

    fn own_window(&self) -> Option<OwnWindow> {
        Some(*self.window.lock().unwrap())
    }

    async fn grow_window(&self, from: u64, wanted: u64) -> Result<u64, ProviderError> {
        self.asked.lock().unwrap().push((from, wanted));
        let _one = self.one.lock().await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let next = self.plan.lock().unwrap().pop_front().unwrap_or(Grows::Yes);
        match next {
            Grows::Never => std::future::pending().await,
            Grows::No(why) => Err(ProviderError::new(ErrorClass::Configuration, why)),
            Grows::Yes => {
                let mut window = self.window.lock().unwrap();
                if window.tokens == from {
                    window.tokens = wanted.max(from * 2).min(window.max);
                }
                Ok(window.tokens)
            }
        }
    }
}

fn answers(count: usize) -> impl Iterator<Item = Script> {
    (0..count).map(|_| Script::text(long(ANSWER_TOKENS)))
}

fn engine(world: &World, model: &Arc<Growing>) -> Engine {
    Engine::new(world.parts("e", model.clone()))
}

/// Three turns, whose history makes the next request too large for the first window.
async fn three_turns(engine: &Engine) -> ConversationId {
    let conversation = ask(engine, None, "0").await.conversation;
    for text in ["1", "2"] {
        assert_eq!(ask(engine, Some(&conversation), text).await.reason, EndReason::Answered);
    }
    conversation
}

/// What was done to windows and histories, in order.
fn done(world: &World) -> Vec<String> {
    let told = |kind: EventKind| match kind {
        EventKind::WindowGrowing { window, .. } => Some(format!("growing {window}")),
        EventKind::WindowGrown { before, after, .. } => Some(format!("{before} to {after}")),
        EventKind::Compressed { .. } => Some("shortened".to_owned()),
        EventKind::Notice { text } => Some(text),
        _ => None,
    };
    world.events.all().into_iter().filter_map(|event| told(event.kind)).collect()
}

fn assert_answered(result: &TurnResult, answer: &str) {
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, answer), "{:?}", result.error);
}

#[tokio::test]
async fn a_window_is_grown_before_the_history_is_shortened_and_costs_no_step() {
    let world = World::new();
    let model = Growing::new(131_072, answers(3).chain([Script::text("done")]));
    let mut parts = world.parts("e", model.clone());
    // The one step that a turn has is still there after it.
    parts.settings.max_iterations = Some(1);
    let engine = Engine::new(parts);
    let conversation = three_turns(&engine).await;
    let end = ask(&engine, Some(&conversation), "now").await;
    assert_answered(&end, "done");
    assert_eq!(end.api_calls, 1);
    let [(from, wanted)] = model.asked.lock().unwrap()[..] else { panic!("asked once") };
    assert_eq!(from, WINDOW);
    assert!((57_000..70_000).contains(&wanted), "room for as much again: {wanted}");
    assert_eq!(done(&world), [format!("growing {WINDOW}"), format!("{WINDOW} to {}", wanted.max(WINDOW * 2))]);
    let metrics = engine.metrics();
    assert_eq!((metrics.windows_grown, metrics.compressions), (1, 0));
    let requests = model.inner.requests();
    assert_eq!(requests.len(), 4, "nobody was asked for notes");
    check_requests(&requests);
}

#[tokio::test]
async fn what_the_largest_window_cannot_hold_is_shortened_in_it() {
    let world = World::new();
    let scripts = answers(6).chain([Script::text("notes"), Script::text("done")]);
    let model = Growing::new(65_536, scripts);
    let engine = engine(&world, &model);
    let conversation = three_turns(&engine).await;
    for text in ["3", "4", "5"] {
        ask(&engine, Some(&conversation), text).await;
    }
    assert_answered(&ask(&engine, Some(&conversation), "now").await, "done");
    assert_eq!(done(&world), [format!("growing {WINDOW}"), format!("{WINDOW} to 65536"), "shortened".to_owned()]);
    assert_eq!(model.asked(), 1, "at its limit nobody is asked to grow it");
}

#[tokio::test]
async fn a_window_that_stays_is_told_of_and_tried_once_in_a_turn() {
    let world = World::new();
    let after =
        [Script::text("notes"), Script::error(error(ErrorClass::ContextOverflow)), Script::text("shorter notes")];
    let scripts = answers(3).chain(after).chain([Script::text("done"), Script::text("next")]);
    let model = Growing::new(131_072, scripts).then([Grows::No("there is no memory for it")]);
    let engine = engine(&world, &model);
    let conversation = three_turns(&engine).await;
    let end = ask(&engine, Some(&conversation), "now").await;
    assert!(matches!(end.reason, EndReason::Answered | EndReason::ContextOverflow), "{:?}", end.error);
    assert_eq!(model.asked(), 1, "a refusal in the same turn does not try again");
    let told = done(&world);
    assert_eq!(told[0], format!("growing {WINDOW}"));
    assert!(told[1].contains("own stays at 32768 tokens: there is no memory for it"), "{told:?}");
    assert_eq!(told[2], "shortened");
}

#[tokio::test]
async fn what_tools_have_added_in_a_turn_grows_the_window_between_two_requests() {
    let world = World::new();
    let round = |n: usize| Script::calls([(format!("c{n}"), "act", format!("{{\"n\": {n}}}"))]).with_text(long(15_000));
    let model = Growing::new(131_072, [round(1), round(2), Script::text("done")]);
    let engine = engine(&world, &model);
    let end = ask(&engine, None, "go").await;
    assert_answered(&end, "done");
    assert_eq!((end.api_calls, world.ledger.effects().len()), (3, 2));
    assert_eq!((model.asked(), engine.metrics().compressions), (1, 0));
    check_requests(&model.inner.requests());
}

#[tokio::test]
async fn a_refusal_of_the_server_grows_the_window_and_the_same_request_goes_out_again() {
    for enabled in [true, false] {
        let world = World::new();
        let mut refusal = error(ErrorClass::ContextOverflow);
        (refusal.context_limit, refusal.input_tokens) = (Some(WINDOW), Some(40_000));
        let model = Growing::new(131_072, [Script::error(refusal), Script::text("done")]);
        let mut parts = world.parts("e", model.clone());
        parts.settings.compression.enabled = enabled;
        parts.context = Arc::new(SummaryEngine::new(parts.settings.compression.clone()));
        let engine = Engine::new(parts);
        assert_answered(&ask(&engine, None, "go").await, "done");
        assert_eq!(*model.asked.lock().unwrap(), [(WINDOW, 80_000)], "what the server counted has room twice");
        assert_eq!(done(&world), [format!("growing {WINDOW}"), format!("{WINDOW} to 80000")]);
        check_requests(&model.inner.requests());
        assert_eq!(model.own_window().unwrap().tokens, 80_000, "its word on the old window is not held against it");
    }
}

#[tokio::test]
async fn a_threshold_that_the_user_set_in_tokens_is_not_lifted_by_a_window() {
    let world = World::new();
    let model = Growing::new(131_072, answers(3).chain([Script::text("notes"), Script::text("done")]));
    let mut parts = world.parts("e", model.clone());
    parts.settings.compression =
        CompressionSettings { threshold_tokens: Some(25_000), ..CompressionSettings::default() };
    parts.context = Arc::new(SummaryEngine::new(parts.settings.compression.clone()));
    let engine = Engine::new(parts);
    let conversation = three_turns(&engine).await;
    assert_answered(&ask(&engine, Some(&conversation), "now").await, "done");
    assert_eq!((model.asked(), done(&world)), (0, vec!["shortened".to_owned()]));
}

#[tokio::test]
async fn two_conversations_that_ask_at_once_get_one_larger_window() {
    let world = World::new();
    let model = Growing::new(131_072, answers(6).chain([Script::text("done"), Script::text("done")]));
    let engine = engine(&world, &model);
    let (one, two) = (three_turns(&engine).await, three_turns(&engine).await);
    let (a, b) = tokio::join!(ask(&engine, Some(&one), "now"), ask(&engine, Some(&two), "now"));
    assert_answered(&a, "done");
    assert_answered(&b, "done");
    let asked = model.asked.lock().unwrap().clone();
    assert!(asked.iter().all(|(from, _)| *from == WINDOW), "{asked:?}");
    let sizes = world.events.all().into_iter().filter_map(|event| match event.kind {
        EventKind::WindowGrown { after, .. } => Some(after),
        _ => None,
    });
    let now = model.own_window().unwrap().tokens;
    assert!(sizes.clone().count() == asked.len() && sizes.clone().all(|after| after == now), "{asked:?}");
    assert_eq!(engine.metrics().compressions, 0);
}

#[tokio::test(start_paused = true)]
async fn a_growth_that_never_ends_is_left_for_a_compression_and_is_no_silence() {
    let world = World::paused();
    let scripts = answers(3).chain([Script::text("notes"), Script::text("done")]);
    let model = Growing::new(131_072, scripts).then([Grows::Never]);
    let mut parts = world.parts("e", model.clone());
    parts.settings.liveness_timeout_ms = Some(WINDOW_GROWTH_MAX_MS / 4);
    let engine = Engine::new(parts);
    let conversation = three_turns(&engine).await;
    let begun_ms = world.clock.now_ms();
    assert_answered(&ask(&engine, Some(&conversation), "now").await, "done");
    let took_ms = u64::try_from(world.clock.now_ms() - begun_ms).unwrap();
    assert_eq!(took_ms / 1_000, WINDOW_GROWTH_MAX_MS / 1_000);
    assert_eq!(done(&world).last().unwrap(), "shortened");
}

#[tokio::test]
async fn a_stop_ends_the_wait_and_the_next_turn_grows_the_window() {
    let world = World::new();
    let model = Growing::new(131_072, answers(3).chain([Script::text("done")])).then([Grows::Never]);
    let engine = engine(&world, &model);
    let conversation = three_turns(&engine).await;
    let sent = engine.submit(submission(Some(&conversation), "stopped", "now")).await.unwrap().receipt().clone();
    let stop = async {
        while !model.plan.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert!(engine.interrupt(&conversation, Stopper::User, Interrupt::Soft));
    };
    let (end, ()) = tokio::join!(engine.run_until(&conversation, &sent.admission), stop);
    assert_eq!(end.unwrap().reason, EndReason::StoppedByUser);
    assert_answered(&ask(&engine, Some(&conversation), "again").await, "done");
    assert_eq!((model.asked(), engine.metrics().windows_grown), (2, 1));
}

#[tokio::test]
async fn a_stand_in_whose_window_may_grow_has_room_for_what_the_chosen_one_refuses() {
    let world = World::new();
    let chosen = named("chosen", 60_000, [Script::error(error(ErrorClass::ContextOverflow))]);
    let own = Growing::new(131_072, [Script::text("from the own one")]);
    let mut parts = world.parts("e", chosen);
    parts.fallbacks.push(own.clone());
    let end = ask(&Engine::new(parts), None, "go").await;
    assert_answered(&end, "from the own one");
}
