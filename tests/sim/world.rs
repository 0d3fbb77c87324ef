//! A world of one thread: virtual time, one store, scripted models, a tool that writes down what it did, and nodes that
//! come and go.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use hermes_core::testing::{CountedIds, Fault, FaultStore, owner, tool_host};
use hermes_core::{
    Clock, Engine, EngineSettings, Event, EventKind, EventSink, FixedPrompt, Input, Interrupt, PromptMaterial, Stopper,
    Submission, TurnResult,
};
use hermes_providers::{
    ChatMessage, ChatModel, ChatRequest, CompletedCall, Completion, Delta, DeltaStream, ErrorClass, Finish, ModelInfo,
    ProviderError, ScriptedModel,
};
use hermes_store::memory::MemoryStore;
use hermes_store::{
    AdmissionId, ConversationId, Intent, JournalState, LivenessProbe, MessagePage, NewAdmission, NewConversation,
    OwnerId, OwnerInfo, Role, Store, StoredMessage, TranscriptStore as _, View,
};
use hermes_tools::{
    Authorized, Call, CallOutcome, CallReport, Concurrency, PathUse, ReplaySafety, Risk, Tool, ToolContext,
    ToolRegistry, ToolSpec,
};

/// Where virtual time begins, in milliseconds since the Unix epoch.
const START_MS: i64 = 1_000_000_000_000;

/// Virtual time: tokio's, which stands still while anything can run.
#[derive(Debug)]
pub(crate) struct SimClock(tokio::time::Instant);

impl SimClock {
    fn now(&self) -> i64 {
        START_MS + i64::try_from(self.0.elapsed().as_millis()).unwrap()
    }
}

impl Clock for SimClock {
    fn now_ms(&self) -> i64 {
        self.now()
    }

    fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
        tokio::time::sleep(std::time::Duration::from_millis(ms)).boxed()
    }
}

impl hermes_store::Clock for SimClock {
    fn now_ms(&self) -> i64 {
        self.now()
    }
}

/// Names of nodes whose death can be proved.
#[derive(Default)]
pub(crate) struct Dead(Mutex<Vec<String>>);

impl LivenessProbe for Dead {
    fn is_provably_dead(&self, owner: &OwnerInfo) -> bool {
        self.0.lock().unwrap().iter().any(|name| owner.id.as_str().starts_with(&format!("{name}-")))
    }
}

/// What happens while a request is under way.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Meanwhile {
    /// Somebody steers.
    Steer(&'static str),
    /// Somebody sends another input.
    Send(&'static str),
    /// Somebody stops the turn.
    Stop(Interrupt),
    /// The program is told to end.
    Shutdown,
    /// Nothing; the model takes this long (milliseconds).
    Wait(u64),
}

/// What the model says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Say {
    /// Calls: (tool, arguments).
    Calls(&'static [(&'static str, &'static str)]),
    /// An answer.
    Text(&'static str),
    /// An answer that was cut at the output limit.
    Cut(&'static str),
    /// Calls whose arguments were cut.
    CutCalls(&'static [(&'static str, &'static str)]),
    /// Nothing.
    Nothing,
    /// The provider withholds the answer.
    Withheld,
    /// A pause in a long answer.
    Pause(&'static str),
}

/// What the summarising model says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Summary {
    /// Notes.
    Notes,
    /// Notes that were cut.
    Cut,
    /// A failure.
    Fails(ErrorClass),
}

/// One answer of a script.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// Failures before it: class and how often.
    pub(crate) fails: Option<(ErrorClass, u32)>,
    /// The connection is lost after this text, once, before it.
    pub(crate) lost_after: Option<&'static str>,
    /// What happens before it is said.
    pub(crate) meanwhile: Option<Meanwhile>,
    /// What is said.
    pub(crate) say: Say,
}

impl Step {
    /// Says it.
    pub(crate) const fn say(say: Say) -> Self {
        Self { fails: None, lost_after: None, meanwhile: None, say }
    }

    /// Fails `times` times first.
    pub(crate) const fn failing(self, class: ErrorClass, times: u32) -> Self {
        Self { fails: Some((class, times)), ..self }
    }

    /// Loses the connection once, after this text.
    pub(crate) const fn lost_after(self, text: &'static str) -> Self {
        Self { lost_after: Some(text), ..self }
    }

    /// With this going on first.
    pub(crate) const fn while_(self, meanwhile: Meanwhile) -> Self {
        Self { meanwhile: Some(meanwhile), ..self }
    }
}

/// A world in which something goes on.
#[derive(Clone)]
pub(crate) struct Scenario {
    /// Its name.
    pub(crate) name: &'static str,
    /// What is sent, in order, before anything runs.
    pub(crate) inputs: &'static [&'static str],
    /// What the model says to each input, by its text.
    pub(crate) script: &'static [(&'static str, &'static [Step])],
    /// How the engines work.
    pub(crate) settings: fn(&mut EngineSettings),
    /// Whether calls of `act` may be repeated.
    pub(crate) replay: ReplaySafety,
    /// Every how many waits a sweep looks at; 1 but for long scenarios. `cargo xtask sim` looks at all.
    pub(crate) stride: usize,
    /// The model's window in tokens.
    pub(crate) window: u64,
    /// What comes of a request for a summary.
    pub(crate) summary: Summary,
    /// How each turn ends when nothing goes wrong, in order.
    pub(crate) ends: &'static [hermes_core::EndReason],
}

/// Everything that outlives a node.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) store: MemoryStore,
    pub(crate) clock: Arc<SimClock>,
    dead: Arc<Dead>,
    /// Ids of calls that had their effect, in order.
    pub(crate) effects: Arc<Mutex<Vec<String>>>,
    /// Requests that reached a model, with the node that sent them.
    pub(crate) requests: Arc<Mutex<Vec<(String, ChatRequest)>>>,
    /// What happened, as text: two runs of one seed write the same.
    pub(crate) trace: Arc<Mutex<Vec<String>>>,
    /// How often a step has failed already.
    failed: Arc<Mutex<HashMap<(String, usize), u32>>>,
}

/// The one conversation of a scenario.
pub(crate) fn conversation() -> ConversationId {
    ConversationId::parse("conv").unwrap()
}

impl World {
    /// A fresh world, with its conversation made and empty.
    pub(crate) async fn new(scenario: &Scenario) -> Self {
        let clock = Arc::new(SimClock(tokio::time::Instant::now()));
        let store = MemoryStore::new(clock.clone());
        let dead = Arc::new(Dead::default());
        store.set_probe(dead.clone());
        let world = Self {
            scenario: scenario.clone(),
            store,
            clock,
            dead,
            effects: Arc::default(),
            requests: Arc::default(),
            trace: Arc::default(),
            failed: Arc::default(),
        };
        world.create().await;
        world
    }

    async fn create(&self) {
        use hermes_store::{AdmissionStore as _, LeaseStore as _};
        let setup = OwnerId::parse("setup").unwrap();
        let id = AdmissionId::parse("setup").unwrap();
        let new = NewConversation { id: conversation(), profile: "sim".into(), source: "sim".into(), title: None };
        let admission = NewAdmission {
            id: id.clone(),
            conversation: conversation(),
            principal: "setup".into(),
            request_id: "setup".into(),
            intent: Intent::Queue,
            payload: "{\"text\":\"x\"}".into(),
            submitted_by: setup.clone(),
        };
        self.store.create_and_admit(new, admission).await.unwrap();
        self.store.cancel(&id).await.unwrap();
        self.store.retire(&setup).await.unwrap();
    }

    /// From now on the death of this node can be proved.
    pub(crate) fn bury(&self, name: &str) {
        self.dead.0.lock().unwrap().push(name.to_owned());
    }

    /// Rows of the conversation.
    pub(crate) async fn rows(&self, view: View) -> Vec<StoredMessage> {
        self.store.messages(&conversation(), view, MessagePage::default()).await.unwrap()
    }

    /// A node with this fault in its store.
    pub(crate) fn node(&self, name: &str, fault: Fault, at: i64) -> Node {
        let store = FaultStore::new(Arc::new(self.store.clone()), fault, at);
        let hands = Arc::new(Hands::default());
        let model = Arc::new(Model {
            info: ModelInfo { context_window: Some(self.scenario.window), ..ScriptedModel::test_info() },
            summary: self.scenario.summary,
            node: name.to_owned(),
            script: self.scenario.script,
            requests: self.requests.clone(),
            failed: self.failed.clone(),
            hands: hands.clone(),
        });
        let mut registry = ToolRegistry::new();
        for (tool, replay) in [("act", self.scenario.replay), ("look", ReplaySafety::Pure)] {
            let tool = SimTool::new(tool, replay, self.store.clone(), self.effects.clone());
            registry.register(Arc::new(tool)).unwrap();
        }
        let mut settings = EngineSettings::default();
        (self.scenario.settings)(&mut settings);
        let clock: Arc<dyn Clock> = self.clock.clone();
        let shared: Arc<dyn Store> = store.clone();
        let engine = Engine::builder(shared, model, clock)
            .tools(tool_host(registry))
            .prompt(Arc::new(FixedPrompt(PromptMaterial {
                date: "2026-12-02".to_owned(),
                ..PromptMaterial::default()
            })))
            .events(Arc::new(Watcher { node: name.to_owned(), store: self.store.clone(), trace: self.trace.clone() }))
            .ids(CountedIds::new(name))
            .owner(owner(name))
            .settings(settings)
            .build();
        *hands.0.lock().unwrap() = Some(engine.clone());
        Node { engine, store, hands, inputs: self.scenario.inputs }
    }
}

/// A process: it sends all inputs (again, after a crash) and works until they are over.
pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<FaultStore>,
    hands: Arc<Hands>,
    inputs: &'static [&'static str],
}

impl Drop for Node {
    fn drop(&mut self) {
        // The model holds the engine that holds the model.
        self.hands.0.lock().unwrap().take();
    }
}

impl Node {
    /// The work of the node, from its start to its end.
    pub(crate) async fn work(&self) -> Vec<TurnResult> {
        let mut receipts = Vec::new();
        for (number, text) in self.inputs.iter().enumerate() {
            receipts.push(loop {
                match self.engine.submit(submission(&format!("input-{number}"), text, Intent::Queue)).await {
                    Ok(outcome) => break outcome.receipt().clone(),
                    // What a client does whose request failed: it sends it again.
                    Err(error) => assert!(error.code().starts_with("HM10"), "{error}"),
                }
            });
        }
        let mut results = Vec::new();
        for receipt in &receipts {
            results.push(loop {
                match self.engine.run_until(&conversation(), &receipt.admission).await {
                    Ok(result) => break result,
                    Err(error) => assert!(error.code().starts_with("HM10"), "{error}"),
                }
            });
        }
        // What was sent meanwhile; a dead owner's work is free when its heartbeat has stopped.
        loop {
            while !matches!(self.engine.drain(&conversation()).await, Ok(None)) {}
            if self.engine.store().queue(&conversation()).await.is_ok_and(|queue| queue.is_empty()) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_secs(10)).await;
        }
        results
    }
}

fn submission(request_id: &str, text: &str, intent: Intent) -> Submission {
    Submission {
        conversation: Some(conversation()),
        principal: "somebody".to_owned(),
        request_id: Some(request_id.to_owned()),
        intent,
        input: Input::text(text),
    }
}

/// Polls a future at most `left` times; then it is dropped, as a killed process drops its work.
pub(crate) struct Killed<'a, T> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
    left: u64,
    polls: u64,
}

impl<'a, T> Killed<'a, T> {
    /// Kills `work` after `left` polls.
    pub(crate) fn after(left: u64, work: impl Future<Output = T> + Send + 'a) -> Self {
        Self { work: Some(Box::pin(work)), left, polls: 0 }
    }

    /// How often it was polled.
    pub(crate) fn polls(&self) -> u64 {
        self.polls
    }

    /// The work, as it stands: it can be gone on with.
    pub(crate) fn revive(&mut self) {
        self.left = u64::MAX;
    }
}

impl<T> Future for Killed<'_, T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls >= self.left {
            return Poll::Ready(None);
        }
        self.polls += 1;
        let Some(work) = &mut self.work else { return Poll::Ready(None) };
        work.as_mut().poll(cx).map(Some)
    }
}

/// The engine's handle for those who act while a request is under way.
#[derive(Default)]
struct Hands(Mutex<Option<Engine>>);

impl Hands {
    fn engine(&self) -> Option<Engine> {
        self.0.lock().unwrap().clone()
    }

    async fn act(&self, meanwhile: Meanwhile, key: &str) {
        let Some(engine) = self.engine() else { return };
        let sent = match meanwhile {
            Meanwhile::Steer(text) => Some((text, Intent::Steer)),
            Meanwhile::Send(text) => Some((text, Intent::Queue)),
            Meanwhile::Stop(how) => {
                engine.interrupt(&conversation(), Stopper::User, how);
                None
            }
            Meanwhile::Shutdown => {
                engine.interrupt_all(Stopper::Shutdown, Interrupt::Hard);
                None
            }
            Meanwhile::Wait(ms) => {
                tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
                None
            }
        };
        let Some((text, intent)) = sent else { return };
        while engine.submit(submission(&format!("meanwhile-{key}"), text, intent)).await.is_err() {}
    }
}

/// A model whose answer follows from the request, but for failures, which are counted in the world.
struct Model {
    info: ModelInfo,
    summary: Summary,
    node: String,
    script: &'static [(&'static str, &'static [Step])],
    requests: Arc<Mutex<Vec<(String, ChatRequest)>>>,
    failed: Arc<Mutex<HashMap<(String, usize), u32>>>,
    hands: Arc<Hands>,
}

impl Model {
    /// The input that is worked on, and how often the model has spoken since.
    fn place(&self, request: &ChatRequest) -> (&'static str, &'static [Step], usize) {
        let found = request.messages.iter().enumerate().rev().find_map(|(at, message)| match message {
            ChatMessage::User { text, .. } => {
                self.script.iter().find(|(input, _)| is_input(text, input)).map(|(input, steps)| (at, *input, *steps))
            }
            _ => None,
        });
        let (at, input, steps) = found.expect("a request without a scripted input");
        let spoken = request.messages[at..].iter().filter(|m| matches!(m, ChatMessage::Assistant { .. })).count();
        (input, steps, spoken)
    }

    /// Counts one failure of a step; false when it has failed often enough.
    fn fail(&self, key: &str, slot: usize, times: u32) -> bool {
        let mut failed = self.failed.lock().unwrap();
        let count = failed.entry((key.to_owned(), slot)).or_default();
        *count += 1;
        *count <= times
    }
}

#[async_trait]
impl ChatModel for Model {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        crate::check::pairs(&request.messages);
        if request.tools.is_empty() {
            tokio::task::yield_now().await;
            return match self.summary {
                Summary::Notes => Ok(slowly(answer(Say::Text("what was done: much"), "summary"))),
                Summary::Cut => Ok(slowly(answer(Say::Cut("what was"), "summary"))),
                Summary::Fails(class) => Err(ProviderError::new(class, "scripted")),
            };
        }
        self.requests.lock().unwrap().push((self.node.clone(), request.clone()));
        tokio::task::yield_now().await;
        let (input, steps, spoken) = self.place(request);
        let step = steps.get(spoken).copied().unwrap_or(Step::say(Say::Text("nothing more is scripted")));
        let key = format!("{input}-{spoken}");
        if let Some((class, times)) = step.fails
            && self.fail(&key, 0, times)
        {
            return Err(ProviderError::new(class, "scripted"));
        }
        if let Some(text) = step.lost_after
            && self.fail(&key, 1, 1)
        {
            return Ok(slowly(vec![Ok(Delta::Text(text.to_owned()))]));
        }
        if let Some(meanwhile) = step.meanwhile {
            self.hands.act(meanwhile, &key).await;
        }
        Ok(slowly(answer(step.say, &key)))
    }
}

/// A message with this input, alone or behind a summary.
fn is_input(text: &str, input: &str) -> bool {
    text == input || text.strip_suffix(input).is_some_and(|before| before.ends_with("\n\n") || before.ends_with(":\n"))
}

/// A stream that lets others run before every item.
fn slowly(items: Vec<Result<Delta, ProviderError>>) -> DeltaStream {
    futures::stream::iter(items)
        .then(|item| async {
            tokio::task::yield_now().await;
            item
        })
        .boxed()
}

fn answer(say: Say, key: &str) -> Vec<Result<Delta, ProviderError>> {
    let made = |calls: &[(&str, &str)], whole: bool| {
        let one = |(number, (name, arguments)): (usize, &(&str, &str))| CompletedCall {
            id: Some(format!("{key}-{number}")),
            name: (*name).to_owned(),
            arguments: (*arguments).to_owned(),
            whole,
        };
        calls.iter().enumerate().map(one).collect::<Vec<_>>()
    };
    let (text, calls, finish) = match say {
        Say::Calls(calls) => ("", made(calls, true), Finish::ToolCalls),
        Say::CutCalls(calls) => ("", made(calls, false), Finish::Length),
        Say::Text(text) => (text, Vec::new(), Finish::Stop),
        Say::Cut(text) => (text, Vec::new(), Finish::Length),
        Say::Nothing => ("", Vec::new(), Finish::Stop),
        Say::Withheld => ("", Vec::new(), Finish::ContentFilter),
        Say::Pause(text) => (text, Vec::new(), Finish::Pause),
    };
    let mut out = Vec::new();
    if !text.is_empty() {
        let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
        out.extend([text[..middle].to_owned(), text[middle..].to_owned()].map(|part| Ok(Delta::Text(part))));
    }
    out.push(Ok(Delta::Done(Box::new(Completion {
        text: text.to_owned(),
        reasoning: None,
        sidecar: None,
        calls,
        finish,
        finish_missing: false,
        usage: None,
        served_model: None,
    }))));
    out
}

/// A tool that looks into the store before its effect: its call must be there (I12).
struct SimTool {
    spec: ToolSpec,
    store: MemoryStore,
    effects: Arc<Mutex<Vec<String>>>,
}

impl SimTool {
    fn new(name: &str, replay: ReplaySafety, store: MemoryStore, effects: Arc<Mutex<Vec<String>>>) -> Self {
        let spec = ToolSpec {
            name: name.to_owned(),
            toolset: "sim",
            description: "Does something.".to_owned(),
            parameters: serde_json::json!({"type": "object"}),
            replay,
            concurrency: if replay == ReplaySafety::Pure { Concurrency::Shared } else { Concurrency::Barrier },
            timed: true,
            result_max_chars: None,
        };
        Self { spec, store, effects }
    }

    fn state_of(&self, call: &str) -> Option<JournalState> {
        let page = MessagePage { from_end: true, ..MessagePage::default() };
        let conversation = conversation();
        let rows = self.store.messages(&conversation, View::Display, page);
        let rows = rows.now_or_never()?.ok()?;
        rows.iter().flat_map(|row| &row.calls).find(|made| made.call.as_str() == call).map(|made| made.state)
    }
}

#[async_trait]
impl Tool for SimTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn paths(&self, _call: &Call, _cx: &ToolContext) -> Vec<PathUse> {
        Vec::new()
    }

    fn risk(&self, _call: &Call, _cx: &ToolContext) -> Risk {
        Risk::None
    }

    fn label(&self, call: &Call) -> String {
        format!("{} {}", call.name, call.id)
    }

    async fn call(&self, call: Authorized<Call>, cx: &ToolContext) -> CallReport {
        let call = call.into_inner();
        let state = self.state_of(&call.id);
        // A process that slept between its announcement and the effect may find the call settled as unknown.
        let announced = match self.spec.replay {
            ReplaySafety::Pure => state.is_some(),
            _ => matches!(state, Some(JournalState::Started | JournalState::Settled)),
        };
        assert!(announced, "I12: {} runs and the journal says {state:?}", call.id);
        tokio::task::yield_now().await;
        if let Some(ms) = call.arguments["ms"].as_u64() {
            tokio::select! {
                biased;
                () = cx.cancel.cancelled() => return CallReport::new(CallOutcome::Interrupted, "stopped"),
                () = tokio::time::sleep(std::time::Duration::from_millis(ms)) => {}
            }
        }
        self.effects.lock().unwrap().push(call.id.clone());
        tokio::task::yield_now().await;
        match call.arguments["fail"].as_bool() {
            Some(true) => CallReport::new(CallOutcome::Failed, "it failed"),
            _ => {
                let size = call.arguments["size"].as_u64().unwrap_or(0);
                let text = format!("done {}{}", call.id, "x".repeat(usize::try_from(size).unwrap()));
                CallReport::new(CallOutcome::Ok, text)
            }
        }
    }
}

/// Writes events down, and checks that a row is durable before its event (I15).
struct Watcher {
    node: String,
    store: MemoryStore,
    trace: Arc<Mutex<Vec<String>>>,
}

impl EventSink for Watcher {
    fn emit(&self, event: Event) {
        match &event.kind {
            EventKind::TurnEnded { result } if result.reason == hermes_core::EndReason::Answered => {
                let rows = self.rows();
                let said = rows.iter().any(|row| row.role == Role::Assistant && row.content == result.answer);
                assert!(said, "I15: an answer was reported before its row: {:?}", result.answer);
            }
            EventKind::CallFinished { call, .. } => {
                let rows = self.rows();
                let stored = rows.iter().any(|row| row.answers.as_ref().is_some_and(|answer| answer.call == *call));
                assert!(stored, "I13: a result was reported before its row: {call}");
            }
            _ => {}
        }
        self.trace.lock().unwrap().push(format!("{}: {:?}", self.node, event.kind));
    }
}

impl Watcher {
    fn rows(&self) -> Vec<StoredMessage> {
        let page = MessagePage { from_end: true, ..MessagePage::default() };
        let conversation = conversation();
        let rows = self.store.messages(&conversation, View::Display, page);
        rows.now_or_never().and_then(Result::ok).unwrap_or_default()
    }
}
