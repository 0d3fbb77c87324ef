//! A world: one store, one time, scripted models, a tool that writes down what it did, and nodes that come and go.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hermes_core::testing::{CountedIds, Fault, FaultStore, owner, tool_host};
use hermes_core::{
    Clock, DelegationSettings, Engine, EngineSettings, FixedPrompt, PromptMaterial, ToolHost, TurnResult,
};
use hermes_providers::{ChatRequest, ModelInfo, ScriptedModel};
use hermes_store::memory::MemoryStore;
use hermes_store::transfer::bundle::{BundlePart, BundleRow};
use hermes_store::{
    AdmissionId, ClaimPolicy, ClaimRequest, ConversationId, Intent, LivenessProbe, NewAdmission, NewConversation,
    OwnerId, OwnerInfo, Receipt, Store, StoredMessage, TurnId,
};
use hermes_tools::{ReplaySafety, ToolRegistry};

use crate::bound;
use crate::family;
use crate::model::{Failed, Hands, Meanwhile, Model, Say, Script, Step, Summary, submission};
use crate::parts::{Known, SimTool, Watcher, shown};
use crate::people;
use crate::questions::{self, Asked, Crowded, SimPeople};
use crate::rewinds::{self, Act, Said};

/// Where virtual time begins, in milliseconds since the Unix epoch.
const START_MS: i64 = 1_000_000_000_000;
/// An input whose stored form nobody can read.
pub(crate) const UNREADABLE: &str = "unreadable";
/// What an owner that is in the way was asked.
pub(crate) const HELD: &str = "held";
/// How long an owner that is in the way holds a conversation.
const HOLD_MS: u64 = 300_000;
/// Newest lines of the trace that are shown of a world that broke a promise.
const TOLD_MAX_LINES: usize = 60;
/// How much of such a line is shown.
const TOLD_MAX_BYTES: usize = 400;
/// The tool with which a model asks a person.
const CLARIFY: &str = "clarify";
/// Children that work at once.
const CHILDREN_MAX: usize = 3;

/// Virtual time: tokio's, which stands still while anything can run.
#[derive(Debug)]
pub(crate) struct SimClock(tokio::time::Instant);

impl SimClock {
    fn now(&self) -> i64 {
        bound::step();
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

impl Dead {
    pub(crate) fn add(&self, name: &str) {
        self.0.lock().unwrap().push(name.to_owned());
    }

    pub(crate) fn remove(&self, name: &str) {
        self.0.lock().unwrap().retain(|dead| dead != name);
    }
}

impl LivenessProbe for Dead {
    fn is_provably_dead(&self, owner: &OwnerInfo) -> bool {
        self.0.lock().unwrap().iter().any(|name| owner.id.as_str().starts_with(&format!("{name}-")))
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
    pub(crate) script: Script,
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
    /// Whether a second model stands by.
    pub(crate) fallback: bool,
    /// Whether another owner holds the conversation at first, and dies in silence.
    pub(crate) held: bool,
    /// How deep tasks may be given away to children; 0 = not at all.
    pub(crate) delegates: u32,
    /// Time between the death of a process and the next one, in milliseconds.
    pub(crate) rest_ms: u64,
    /// What a person wants of the end of the conversation, one after the other, when all inputs are over.
    pub(crate) acts: &'static [Act],
    /// How each turn ends when nothing goes wrong, in order.
    pub(crate) ends: &'static [hermes_core::EndReason],
}

impl Scenario {
    /// Whether an input of it may become one of which nobody knows.
    fn has_unknown(&self) -> bool {
        let loses = |step: &Step| matches!(step.meanwhile, Some(Meanwhile::Lose));
        self.script.iter().any(|(_, steps)| steps.iter().any(loses))
    }

    /// Whether a person is asked in it.
    fn has_questions(&self) -> bool {
        let is_question = |(tool, _): &(&str, &str)| ["ask", CLARIFY].contains(tool);
        let asks = |step: &Step| matches!(step.say, Say::Calls(calls) if calls.iter().any(is_question));
        self.script.iter().any(|(_, steps)| steps.iter().any(asks))
    }
}

/// What worlds may share: a store with its time, and what is known of the dead.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dead: Arc<Dead>,
    /// The same store for reads where nothing may be awaited ([`crate::parts::at_once`]): on a database it has connections
    /// of its own, since those of `store` may be kept by futures that wait for the reader.
    pub(crate) lookout: Arc<dyn Store>,
    /// Lets so many milliseconds go by.
    pub(crate) pass: Pass,
    /// Whether processes share connections of the store, which real ones do not: none may sleep in a call then.
    pub(crate) lends: bool,
}

/// How time goes by where nobody does anything.
pub(crate) type Pass = Arc<dyn Fn(u64) -> BoxFuture<'static, ()> + Send + Sync>;

impl Ground {
    /// The in-memory store in virtual time.
    pub(crate) fn memory() -> Self {
        let clock = Arc::new(SimClock(tokio::time::Instant::now()));
        let store = MemoryStore::new(clock.clone());
        let dead = Arc::new(Dead::default());
        store.set_probe(dead.clone());
        let pass = |ms| tokio::time::sleep(std::time::Duration::from_millis(ms)).boxed();
        let store: Arc<dyn Store> = Arc::new(store);
        Self { lookout: store.clone(), store, clock, dead, pass: Arc::new(pass), lends: false }
    }
}

/// Everything that outlives a node.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lookout: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    dead: Arc<Dead>,
    pass: Pass,
    pub(crate) lends: bool,
    /// What names of this world begin with, where several worlds share a store.
    prefix: String,
    /// The conversations; most worlds have one.
    pub(crate) conversations: Arc<[ConversationId]>,
    /// Ids of calls that had their effect, in order.
    pub(crate) effects: Arc<Mutex<Vec<String>>>,
    /// Requests that reached a model, with the node that sent them.
    pub(crate) requests: Arc<Mutex<Vec<(String, ChatRequest)>>>,
    /// What happened, as text: two runs of one seed write the same.
    pub(crate) trace: Arc<Mutex<Vec<String>>>,
    /// What every row was when it was first seen.
    pub(crate) known: Known,
    /// What people were asked.
    pub(crate) asked: Asked,
    /// What people wanted to be undone.
    pub(crate) wishes: Said,
    /// How often a step has failed already.
    failed: Failed,
    /// Longest time that an answer takes, in milliseconds.
    pub(crate) slow_ms: u64,
}

impl Drop for World {
    /// What happened last, when a promise was broken in it.
    fn drop(&mut self) {
        let Some(trace) = self.trace.lock().ok().filter(|_| std::thread::panicking()) else { return };
        for line in &trace[trace.len().saturating_sub(TOLD_MAX_LINES)..] {
            let end = line.floor_char_boundary(TOLD_MAX_BYTES);
            eprintln!("| {}", &line[..end]);
        }
    }
}

/// The owner that a name stands for.
pub(crate) fn owner_of(name: &str) -> OwnerInfo {
    owner(name)
}

impl World {
    /// A fresh world in virtual time, with its conversation made and empty.
    pub(crate) async fn new(scenario: &Scenario) -> Self {
        Self::on(&Ground::memory(), scenario, "", &["conv"]).await
    }

    /// A world on this ground, with these conversations made and empty.
    pub(crate) async fn on(ground: &Ground, scenario: &Scenario, prefix: &str, names: &[&str]) -> Self {
        let named = |name: &&str| ConversationId::parse(&format!("{prefix}{name}")).unwrap();
        let world = Self {
            scenario: scenario.clone(),
            store: ground.store.clone(),
            lookout: ground.lookout.clone(),
            clock: ground.clock.clone(),
            dead: ground.dead.clone(),
            pass: ground.pass.clone(),
            lends: ground.lends,
            prefix: prefix.to_owned(),
            conversations: names.iter().map(named).collect(),
            effects: Arc::default(),
            requests: Arc::default(),
            trace: Arc::default(),
            known: Arc::new(Mutex::new(BTreeMap::new())),
            asked: Arc::default(),
            wishes: Arc::default(),
            failed: Arc::default(),
            slow_ms: 0,
        };
        for conversation in world.conversations.iter() {
            world.create(conversation).await;
        }
        world
    }

    /// The first conversation, where there is one only.
    pub(crate) fn conversation(&self) -> &ConversationId {
        &self.conversations[0]
    }

    async fn create(&self, conversation: &ConversationId) {
        let setup = OwnerId::parse(&format!("{conversation}-setup")).unwrap();
        let id = AdmissionId::parse(&format!("{conversation}-setup")).unwrap();
        let new =
            NewConversation { id: conversation.clone(), profile: "sim".into(), source: "sim".into(), title: None };
        let admission = NewAdmission {
            id: id.clone(),
            conversation: conversation.clone(),
            principal: "setup".into(),
            request_id: "setup".into(),
            intent: Intent::Queue,
            payload: format!("{{\"text\":\"{HELD}\"}}"),
            submitted_by: setup.clone(),
        };
        self.store.create_and_admit(new, admission).await.unwrap();
        if self.scenario.held {
            let holder = owner_of(&format!("{}holder", self.prefix));
            self.store.heartbeat(&holder).await.unwrap();
            let request = ClaimRequest {
                conversation: conversation.clone(),
                owner: holder.id,
                turn: TurnId::parse(&format!("{conversation}-holder")).unwrap(),
                ttl_ms: HOLD_MS,
                policy: ClaimPolicy::Any,
            };
            self.store.claim(request).await.unwrap();
        } else {
            self.store.cancel(&id).await.unwrap();
        }
        self.store.retire(&setup).await.unwrap();
    }

    /// From now on the death of this node can be proved.
    pub(crate) fn bury(&self, name: &str) {
        self.dead.add(&format!("{}{name}", self.prefix));
    }

    /// Lets time go by.
    pub(crate) async fn pass(&self, ms: u64) {
        (self.pass)(ms).await;
    }

    /// The conversations and their children.
    pub(crate) async fn everybody(&self) -> Vec<ConversationId> {
        match self.scenario.delegates {
            0 => self.conversations.to_vec(),
            _ => family::everybody(self.store.as_ref(), &self.conversations).await,
        }
    }

    /// Rows that people see.
    pub(crate) async fn rows(&self, conversation: &ConversationId) -> Vec<StoredMessage> {
        shown(self.store.as_ref(), conversation).await
    }

    /// Every row of a conversation, also those that nobody sees any more.
    pub(crate) async fn everything(&self, conversation: &ConversationId) -> Vec<BundleRow> {
        let (mut rows, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.store.export(conversation, cursor).await.unwrap();
            rows.extend(page.parts.into_iter().filter_map(|part| match part {
                BundlePart::Row(row) => Some(*row),
                _ => None,
            }));
            cursor = page.next;
            if cursor.is_none() {
                return rows;
            }
        }
    }

    /// The tools of a node with these hands, and those who are asked about them.
    fn tools(&self, hands: &Arc<Hands>) -> ToolHost {
        let mut registry = ToolRegistry::new();
        for (tool, replay) in [("act", self.scenario.replay), ("look", ReplaySafety::Pure)] {
            registry.register(Arc::new(SimTool::new(tool, replay, self))).unwrap();
        }
        if self.scenario.has_questions() {
            registry.register(Arc::new(SimTool::new("ask", self.scenario.replay, self))).unwrap();
            let clarify = hermes_tools::builtin::all().into_iter().find(|tool| tool.spec().name == CLARIFY);
            registry.register(clarify.unwrap()).unwrap();
        }
        let people = SimPeople {
            node: hands.node.clone(),
            asked: self.asked.clone(),
            failed: self.failed.clone(),
            faults: hands.faults.clone(),
            clock: self.clock.clone(),
        };
        ToolHost {
            policy: Arc::new(questions::policy(&self.asked)),
            people: Arc::new(Crowded(Arc::new(people))),
            ..tool_host(registry)
        }
    }

    /// A node with this fault in its store.
    pub(crate) fn node(&self, name: &str, fault: Fault, at: i64) -> Node {
        let name = format!("{}{name}", self.prefix);
        let store = FaultStore::new(self.store.clone(), fault, at);
        let hands = Arc::new(Hands {
            node: name.clone(),
            engine: Mutex::default(),
            faults: store.clone(),
            store: self.store.clone(),
            dead: self.dead.clone(),
            clock: self.clock.clone(),
            trace: self.trace.clone(),
            roots: self.conversations.clone(),
        });
        let mut settings = EngineSettings::default();
        (self.scenario.settings)(&mut settings);
        if self.scenario.delegates > 0 {
            settings.delegation = Some(DelegationSettings {
                max_concurrent_children: CHILDREN_MAX,
                max_spawn_depth: self.scenario.delegates,
                max_iterations: settings.max_iterations,
                ..DelegationSettings::default()
            });
        }
        let watcher = Watcher::new(&name, self, settings.max_iterations);
        let shared: Arc<dyn Store> = store.clone();
        let mut builder = Engine::builder(shared, self.model(&name, &hands, "scripted"), self.clock.clone())
            .tools(self.tools(&hands))
            .prompt(Arc::new(FixedPrompt(PromptMaterial {
                date: "2026-12-02".to_owned(),
                ..PromptMaterial::default()
            })))
            .events(Arc::new(watcher))
            .ids(CountedIds::new(&name))
            .owner(owner(&name))
            .settings(settings);
        if self.scenario.fallback {
            builder = builder.fallback(self.model(&name, &hands, "stand-in"));
        }
        let engine = builder.build();
        *hands.engine.lock().unwrap() = Some(engine.clone());
        Node {
            name,
            engine,
            store,
            hands,
            conversation: self.conversation().clone(),
            conversations: self.conversations.clone(),
            clock: self.clock.clone(),
            inputs: self.scenario.inputs,
            delegates: self.scenario.delegates > 0,
            decides: self.scenario.has_unknown(),
            wishes: self.wishes.clone(),
            acts: self.scenario.acts,
        }
    }

    fn model(&self, node: &str, hands: &Arc<Hands>, model: &str) -> Arc<Model> {
        Arc::new(Model {
            info: ModelInfo {
                context_window: Some(self.scenario.window),
                model: model.to_owned(),
                ..ScriptedModel::test_info()
            },
            summary: self.scenario.summary,
            node: node.to_owned(),
            script: self.scenario.script,
            requests: self.requests.clone(),
            failed: self.failed.clone(),
            hands: hands.clone(),
            slow_ms: self.slow_ms,
        })
    }
}

/// A process: it sends all inputs (again, after a crash) and works until they are over.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) engine: Engine,
    pub(crate) store: Arc<FaultStore>,
    hands: Arc<Hands>,
    conversation: ConversationId,
    conversations: Arc<[ConversationId]>,
    clock: Arc<dyn Clock>,
    inputs: &'static [&'static str],
    delegates: bool,
    /// Somebody decides about what is unknown.
    decides: bool,
    /// What people wanted to be undone.
    wishes: Said,
    acts: &'static [Act],
}

impl Drop for Node {
    fn drop(&mut self) {
        // The model holds the engine that holds the model.
        self.hands.engine.lock().unwrap().take();
    }
}

impl Node {
    /// The work of the node, from its start to its end.
    pub(crate) async fn work(&self) -> Vec<TurnResult> {
        let work = std::pin::pin!(self.answer());
        match futures::future::select(work, std::pin::pin!(self.look_after())).await {
            futures::future::Either::Left((results, _)) => results,
            futures::future::Either::Right(_) => panic!("a host gave up looking after its children"),
        }
    }

    /// What a host does beside its turns. Never ends.
    pub(crate) async fn look_after(&self) {
        let children = async {
            if self.delegates {
                family::look_after(&self.engine, self.clock.as_ref(), &self.conversations).await;
            }
            futures::future::pending::<()>().await;
        };
        let decisions = async {
            if self.decides {
                people::decide(&self.engine, self.clock.as_ref(), &self.conversations).await;
            }
            futures::future::pending::<()>().await;
        };
        futures::join!(children, decisions);
    }

    async fn answer(&self) -> Vec<TurnResult> {
        let mut receipts = Vec::new();
        for (number, text) in self.inputs.iter().enumerate() {
            receipts.push(self.send(&format!("input-{number}"), text).await);
        }
        let mut results = Vec::new();
        for receipt in &receipts {
            results.push(loop {
                match self.engine.run_until(&self.conversation, &receipt.admission).await {
                    Ok(result) => break result,
                    Err(error) => assert!(error.code().starts_with("HM10"), "{error}"),
                }
            });
        }
        self.come_to_rest().await;
        while rewinds::next(&self.engine, self.clock.as_ref(), &self.wishes, &self.conversation, self.acts).await {
            self.come_to_rest().await;
        }
        results
    }

    /// Works on what was sent meanwhile; a dead owner's work is free when its heartbeat has stopped.
    async fn come_to_rest(&self) {
        loop {
            while !matches!(self.engine.drain(&self.conversation).await, Ok(None)) {}
            let store = self.engine.store();
            let is_empty = store.queue(&self.conversation).await.is_ok_and(|queue| queue.is_empty());
            if is_empty && (!self.delegates || family::open(store.as_ref(), &self.conversations).await.is_empty()) {
                return;
            }
            self.clock.sleep(10_000).await;
        }
    }

    /// What a client does: when its request fails, it sends it again.
    async fn send(&self, request: &str, text: &str) -> Receipt {
        loop {
            if text == UNREADABLE {
                let admission = NewAdmission {
                    id: AdmissionId::parse(&format!("{}-unreadable", self.name)).unwrap(),
                    conversation: self.conversation.clone(),
                    principal: "somebody".to_owned(),
                    request_id: request.to_owned(),
                    intent: Intent::Queue,
                    payload: "{".to_owned(),
                    submitted_by: owner_of(&self.name).id,
                };
                match self.engine.store().admit(admission).await {
                    Ok(outcome) => return outcome.receipt().clone(),
                    Err(error) => assert!(error.code().starts_with("HM10"), "{error}"),
                }
                continue;
            }
            match self.engine.submit(submission(&self.conversation, request, text, Intent::Queue)).await {
                Ok(outcome) => return outcome.receipt().clone(),
                Err(error) => assert!(error.code().starts_with("HM10"), "{error}"),
            }
        }
    }
}

/// Polls a future at most `left` times; then it is dropped, as a killed process drops its work.
pub(crate) struct Killed<'a, T> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
    left: u64,
    polls: u64,
    /// Where it must not stop.
    spared: Option<Arc<FaultStore>>,
}

impl<'a, T> Killed<'a, T> {
    /// Kills `work` after `left` polls.
    pub(crate) fn after(left: u64, work: impl Future<Output = T> + Send + 'a) -> Self {
        Self { work: Some(Box::pin(work)), left, polls: 0, spared: None }
    }

    /// The same, but not in a call of this store, where it might keep what others wait for.
    pub(crate) fn outside_calls(mut self, store: &Arc<FaultStore>) -> Self {
        self.spared = Some(store.clone());
        self
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
        let is_spared = self.spared.as_ref().is_some_and(|store| store.is_working() || store.is_waiting());
        if self.polls >= self.left && !is_spared {
            return Poll::Ready(None);
        }
        self.polls += 1;
        let Some(work) = &mut self.work else { return Poll::Ready(None) };
        work.as_mut().poll(cx).map(Some)
    }
}
