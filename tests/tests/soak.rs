//! A long soak: very many turns on one conversation, with everything that goes wrong on the way.
//!
//! One thread, virtual time, the in-memory store, a model whose answers follow from a seed. On the way: rounds of calls,
//! calls to tools that are not there, cut answers, providers that fail, steers while a model is asked, compressions, writes
//! that fail, writes whose answer is lost, processes that die at a write and are replaced. What is checked:
//!
//! - I18: every request begins with the bytes of the one before, unless the session changed in between;
//! - I13: every request and the whole transcript have each call with its one result, in call order;
//! - I01, I04: every input and every steer came to an end and stands in the transcript once;
//! - I14: no effect happened twice;
//! - what the model is shown stays bounded, and so does what the process holds: its memory (the resident set, in this
//!   process of its own) grows by no more than a small multiple of what the store was given, and a fixed allowance.
//!
//! `HERMES_SOAK_TURNS` and `HERMES_SOAK_SEED` choose another length and another seed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on fails"
)]

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use hermes_core::testing::{CountedIds, Fault, FaultStore, owner, tool_host};
use hermes_core::{
    Auxiliary, Clock, Engine, Event, EventKind, EventSink, FixedPrompt, Input, PromptMaterial, Submission,
};
use hermes_providers::{
    ChatMessage, ChatModel, ChatRequest, CompletedCall, Completion, Delta, DeltaStream, ErrorClass, Finish, ModelInfo,
    ProviderError, ScriptedModel,
};
use hermes_store::memory::MemoryStore;
use hermes_store::{
    AdmissionId, AdmissionStatus, AdmissionStore as _, ConversationId, Intent, LivenessProbe, MessageKind, MessagePage,
    OwnerInfo, Role, SessionId, SessionStore as _, StoredMessage, TranscriptStore as _, View,
};
use hermes_tools::scripted::{Ledger, LedgerTool};
use hermes_tools::{ReplaySafety, ToolRegistry};

/// Turns of the soak.
const TURNS: u64 = 2_000;
/// Most turns of one process, when nothing kills it before.
const TURNS_OF_NODE_MAX: u64 = 30;
/// The model's window in tokens: small, so that the history outgrows it often.
const WINDOW_TOKENS: u64 = 32_768;
/// Most rows that the model may ever be shown: about four windows full of the shortest turns.
const VIEW_MAX_ROWS: usize = 1_000;
/// What the resident set may grow by besides what the store holds, in bytes: engines that are not given back show up in it.
const GROWTH_ALLOWED_BYTES: u64 = 8 * 1024 * 1024;
/// What a byte of a row may cost in the in-memory store: two copies of its text, its ids and its places in indexes.
const BYTES_PER_ROW_BYTE: u64 = 4;

/// How a request for notes begins.
const NOTES_BEGIN: &[u8] = b"You write hand-over notes.";

/// Virtual time: tokio's, which stands still while anything can run.
#[derive(Debug)]
struct VirtualClock(tokio::time::Instant);

impl VirtualClock {
    fn now(&self) -> i64 {
        1_000_000_000_000 + i64::try_from(self.0.elapsed().as_millis()).unwrap()
    }
}

impl Clock for VirtualClock {
    fn now_ms(&self) -> i64 {
        self.now()
    }

    fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
        tokio::time::sleep(std::time::Duration::from_millis(ms)).boxed()
    }
}

impl hermes_store::Clock for VirtualClock {
    fn now_ms(&self) -> i64 {
        self.now()
    }
}

/// Says that owners with these names are dead.
#[derive(Default)]
struct Dead(Mutex<HashSet<String>>);

impl LivenessProbe for Dead {
    fn is_provably_dead(&self, owner: &OwnerInfo) -> bool {
        let name = owner.id.as_str().split('-').next().unwrap_or_default();
        self.0.lock().unwrap().contains(name)
    }
}

/// What happened, in numbers.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    prefixes: AtomicU64,
    compressions: AtomicU64,
    refused: AtomicU64,
    cut: AtomicU64,
    steers: AtomicU64,
    faults: AtomicU64,
    deaths: AtomicU64,
}

fn count(number: &AtomicU64) {
    number.fetch_add(1, Ordering::SeqCst);
}

impl EventSink for Counts {
    fn emit(&self, event: Event) {
        if matches!(event.kind, EventKind::Compressed { .. }) {
            count(&self.compressions);
        }
    }
}

/// Everything that outlives a process.
struct World {
    store: MemoryStore,
    clock: Arc<VirtualClock>,
    dead: Arc<Dead>,
    ledger: Arc<Ledger>,
    conversation: ConversationId,
    random: Mutex<fastrand::Rng>,
    /// The last request, and the session that it was of.
    last: Mutex<Option<(SessionId, ChatRequest)>>,
    /// What was sent by people: request id, text, and the receipt when there is one.
    sent: Mutex<Vec<(Submission, Option<AdmissionId>)>>,
    counts: Arc<Counts>,
}

impl World {
    fn chance(&self, percent: u32) -> bool {
        self.random.lock().unwrap().u32(0..100) < percent
    }

    fn below(&self, limit: usize) -> usize {
        self.random.lock().unwrap().usize(0..limit)
    }

    /// About so many bytes of words that differ.
    fn words(&self, most: usize) -> String {
        let mut random = self.random.lock().unwrap();
        let bytes = random.usize(1..most);
        let mut text = String::with_capacity(bytes + 8);
        while text.len() < bytes {
            text.push_str(&format!("{:05} ", random.u32(0..100_000)));
        }
        text
    }

    async fn rows(&self, view: View) -> Vec<StoredMessage> {
        let mut rows: Vec<StoredMessage> = Vec::new();
        loop {
            let after_seq = rows.last().map_or(0, |row| row.seq);
            let page = MessagePage { after_seq, ..MessagePage::default() };
            let more = self.store.messages(&self.conversation, view, page).await.unwrap();
            let is_last = more.len() < page.limit;
            rows.extend(more);
            if is_last {
                return rows;
            }
        }
    }

    fn submission(&self, id: &str, intent: Intent) -> Submission {
        Submission {
            conversation: Some(self.conversation.clone()),
            principal: "somebody".to_owned(),
            request_id: Some(id.to_owned()),
            intent,
            input: Input::text(format!("{id}. {}", self.words(600))),
        }
    }
}

/// A process: an engine over a store with one fault.
struct Node {
    engine: Engine,
    model: Arc<Model>,
    store: Arc<FaultStore>,
    name: String,
}

impl Node {
    fn new(world: &Arc<World>, number: u64) -> Self {
        let name = format!("n{number}");
        let fault = [Fault::DiesBefore, Fault::DiesAfter, Fault::AnswerLost, Fault::FailsOnce][world.below(4)];
        let store = FaultStore::new(Arc::new(world.store.clone()), fault, i64::try_from(world.below(400)).unwrap());
        let model = Arc::new(Model {
            info: ModelInfo { context_window: Some(WINDOW_TOKENS), ..ScriptedModel::test_info() },
            world: world.clone(),
            engine: Mutex::default(),
            store: store.clone(),
        });
        let notes = Arc::new(Notes(ModelInfo { model: "notes".into(), ..ScriptedModel::test_info() }, world.clone()));
        let mut registry = ToolRegistry::new();
        let tool = LedgerTool::new("act", world.ledger.clone()).replay(ReplaySafety::Once);
        registry.register(Arc::new(tool)).unwrap();
        let material = PromptMaterial { date: "2026-12-02".to_owned(), ..PromptMaterial::default() };
        let engine = Engine::builder(store.clone(), model.clone(), world.clock.clone())
            .auxiliary(Auxiliary { compression: Some(notes), ..Auxiliary::default() })
            .tools(tool_host(registry))
            .prompt(Arc::new(FixedPrompt(material)))
            .events(world.counts.clone())
            .ids(CountedIds::new(&name))
            .owner(owner(&name))
            .build();
        *model.engine.lock().unwrap() = Some(engine.clone());
        Self { engine, model, store, name }
    }
}

impl Drop for Node {
    /// The engine holds its model, and the model the engine: a process that ends gives both back.
    fn drop(&mut self) {
        *self.model.engine.lock().unwrap() = None;
    }
}

/// Writes the notes of a compression.
struct Notes(ModelInfo, Arc<World>);

#[async_trait]
impl ChatModel for Notes {
    fn info(&self) -> &ModelInfo {
        &self.0
    }

    async fn stream(&self, _request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        if self.1.chance(5) {
            return Err(ProviderError::new(ErrorClass::BadRequest, "injected"));
        }
        Ok(answer(format!("what was said: {}", self.1.words(2_000)), Vec::new(), Finish::Stop))
    }
}

fn answer(text: String, calls: Vec<CompletedCall>, finish: Finish) -> DeltaStream {
    let completion = Completion {
        text: text.clone(),
        reasoning: None,
        sidecar: None,
        calls,
        finish,
        finish_missing: false,
        usage: None,
        served_model: None,
    };
    futures::stream::iter(vec![Ok(Delta::Text(text)), Ok(Delta::Done(Box::new(completion)))]).boxed()
}

/// Answers by chance, and checks what it is asked.
struct Model {
    info: ModelInfo,
    world: Arc<World>,
    /// The engine that asks, for those who steer meanwhile.
    engine: Mutex<Option<Engine>>,
    store: Arc<FaultStore>,
}

impl Model {
    /// I13 and I18 of one request.
    async fn check(&self, request: &ChatRequest) {
        count(&self.world.counts.requests);
        check_pairs(&request.messages);
        let known = self.world.last.lock().unwrap().as_ref().map(|(session, _)| session.clone());
        let tip = match known {
            // The in-memory store counts all rows of a conversation when it is asked for one: not at each request.
            Some(known) if self.world.store.session(&known).await.unwrap().ended_at_ms.is_none() => known,
            _ => self.world.store.conversation(&self.world.conversation).await.unwrap().tip.unwrap(),
        };
        let mut last = self.world.last.lock().unwrap();
        if let Some((session, before)) = last.as_ref()
            && *session == tip
        {
            count(&self.world.counts.prefixes);
            assert_eq!(before.system, request.system);
            assert_eq!(before.tools, request.tools);
            let differs = before.messages.iter().zip(&request.messages).position(|(a, b)| a != b);
            assert!(
                differs.is_none() && before.messages.len() <= request.messages.len(),
                "I18: {} messages, then {}; message {differs:?} differs",
                before.messages.len(),
                request.messages.len()
            );
        }
        *last = Some((tip, request.clone()));
    }

    /// Somebody steers, until it is known that it was accepted.
    async fn steer(&self) {
        let Some(engine) = self.engine.lock().unwrap().clone() else { return };
        let place = {
            let mut sent = self.world.sent.lock().unwrap();
            let submission = self.world.submission(&format!("steer-{}", sent.len()), Intent::Steer);
            sent.push((submission, None));
            sent.len() - 1
        };
        count(&self.world.counts.steers);
        send(&self.world, &engine, place).await;
    }
}

#[async_trait]
impl ChatModel for Model {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        let world = &self.world;
        // It is asked for the notes too, when the model for them fails.
        if request.system.starts_with(NOTES_BEGIN) {
            return Ok(answer(world.words(2_000), Vec::new(), Finish::Stop));
        }
        self.check(request).await;
        if world.chance(8) {
            self.steer().await;
        }
        if world.chance(2) {
            count(&world.counts.faults);
            self.store.fail_next();
        }
        if world.chance(4) {
            count(&world.counts.refused);
            let class = [ErrorClass::ServerError, ErrorClass::Overloaded, ErrorClass::RateLimit][world.below(3)];
            return Err(ProviderError::new(class, "injected"));
        }
        if world.chance(3) {
            count(&world.counts.cut);
            return Ok(answer(world.words(400), Vec::new(), Finish::Length));
        }
        if world.chance(55) {
            return Ok(answer(world.words(2_400), Vec::new(), Finish::Stop));
        }
        let calls = (0..=world.below(3)).map(|at| CompletedCall {
            // Providers use their ids again.
            id: Some(format!("call_{at}")),
            name: if world.chance(3) { "nothing" } else { "act" }.to_owned(),
            arguments: format!("{{\"text\":\"{}\"}}", world.words(300)),
            whole: true,
        });
        Ok(answer(String::new(), calls.collect(), Finish::ToolCalls))
    }
}

/// Every call is followed by its one result, in call order, before anything else.
fn check_pairs(messages: &[ChatMessage]) {
    let (mut open, mut seen) = (VecDeque::new(), HashSet::new());
    for message in messages {
        match message {
            ChatMessage::Tool { call_id, .. } => {
                assert_eq!(open.pop_front(), Some(call_id.as_str()), "I13: a result out of its place");
            }
            ChatMessage::Assistant { calls, .. } => {
                assert!(open.is_empty(), "I13: calls without a result: {open:?}");
                for call in calls {
                    assert!(seen.insert(call.id.as_str()), "I13: call id {} twice", call.id);
                    open.push_back(call.id.as_str());
                }
            }
            ChatMessage::User { .. } => assert!(open.is_empty(), "I13: calls without a result: {open:?}"),
        }
    }
    assert!(open.is_empty(), "I13: calls without a result: {open:?}");
}

/// Sends what stands in this place until it was accepted; what was accepted before is accepted again (I02).
async fn send(world: &World, engine: &Engine, place: usize) {
    loop {
        let submission = world.sent.lock().unwrap()[place].0.clone();
        if let Ok(outcome) = engine.submit(submission).await {
            world.sent.lock().unwrap()[place].1 = Some(outcome.receipt().admission.clone());
            return;
        }
    }
}

/// The first thing that was sent and is not over; `None` when everything is.
async fn open(world: &World) -> Option<usize> {
    let sent: Vec<Option<AdmissionId>> = world.sent.lock().unwrap().iter().map(|(_, id)| id.clone()).collect();
    let from = sent.len().saturating_sub(40);
    for (place, id) in sent.into_iter().enumerate().skip(from) {
        let Some(id) = id else { return Some(place) };
        if world.store.admission(&id).await.unwrap().receipt.status != AdmissionStatus::Terminal {
            return Some(place);
        }
    }
    None
}

/// Runs what is open; false when the process died or cannot go on, and another must.
async fn run(world: &World, node: &Node) -> bool {
    let work = async {
        while let Some(place) = open(world).await {
            send(world, &node.engine, place).await;
            let id = world.sent.lock().unwrap()[place].1.clone().unwrap();
            if node.engine.run_until(&world.conversation, &id).await.is_err() {
                return false;
            }
            if world.store.admission(&id).await.unwrap().receipt.status != AdmissionStatus::Terminal {
                return false;
            }
        }
        true
    };
    tokio::select! {
        biased;
        () = node.store.died() => false,
        done = work => done,
    }
}

/// The resident set of this process in bytes, where the system tells it.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4_096)
}

async fn stored_bytes(world: &World) -> u64 {
    let rows = world.rows(View::Display).await;
    let calls = |row: &StoredMessage| row.calls.iter().map(|call| call.arguments.len()).sum::<usize>();
    rows.iter().map(|row| (row.content.len() + calls(row) + 300) as u64).sum()
}

async fn create(world: &World) {
    use hermes_store::{LeaseStore as _, NewAdmission, NewConversation, OwnerId};
    let (setup, id) = (OwnerId::parse("setup").unwrap(), AdmissionId::parse("setup").unwrap());
    let conversation = world.conversation.clone();
    let new = NewConversation { id: conversation.clone(), profile: "soak".into(), source: "soak".into(), title: None };
    let admission = NewAdmission {
        id: id.clone(),
        conversation,
        principal: "setup".into(),
        request_id: "setup".into(),
        intent: Intent::Queue,
        payload: "{\"text\":\"x\"}".into(),
        submitted_by: setup.clone(),
    };
    world.store.create_and_admit(new, admission).await.unwrap();
    world.store.cancel(&id).await.unwrap();
    world.store.retire(&setup).await.unwrap();
}

/// I01, I04, I13, I14 of the whole transcript.
async fn check_transcript(world: &World) {
    let rows = world.rows(View::Display).await;
    let inputs = rows.iter().filter(|row| row.role == Role::User);
    let inputs: Vec<&str> = inputs
        .filter(|row| matches!(row.kind, MessageKind::Normal | MessageKind::Steer))
        .map(|row| row.content.as_str())
        .collect();
    let found: HashSet<&str> = inputs.iter().copied().collect();
    assert_eq!(found.len(), inputs.len(), "I01, I04: an input stands twice in the transcript");
    let sent = world.sent.lock().unwrap().clone();
    assert!(found.len() <= sent.len(), "I01: {} inputs were sent, {} are there", sent.len(), found.len());
    for (sent, id) in sent {
        let receipt = world.store.admission(&id.unwrap()).await.unwrap().receipt;
        assert_eq!(receipt.status, AdmissionStatus::Terminal, "{receipt:?}");
        let is_there = found.contains(sent.input.text.as_str());
        assert!(is_there, "I01, I04: lost: {:?}, {receipt:?}", sent.request_id);
    }
    let calls: Vec<_> = rows.iter().flat_map(|row| row.calls.iter().map(|call| &call.call)).collect();
    let results: Vec<_> = rows.iter().filter_map(|row| row.answers.as_ref().map(|call| &call.call)).collect();
    assert!(calls == results, "I13: {} calls, {} results", calls.len(), results.len());
    let effects = world.ledger.effects();
    let distinct: HashSet<&String> = effects.iter().collect();
    assert_eq!(distinct.len(), effects.len(), "I14: an effect happened twice");
}

/// What a soak showed.
struct Shown {
    counts: Arc<Counts>,
    view_max: usize,
    growth: Option<(u64, u64)>,
}

async fn soak(seed: u64, turns: u64) -> Shown {
    let clock = Arc::new(VirtualClock(tokio::time::Instant::now()));
    let store = MemoryStore::new(clock.clone());
    let dead = Arc::new(Dead::default());
    store.set_probe(dead.clone());
    let world = Arc::new(World {
        store,
        clock,
        dead,
        ledger: Arc::default(),
        conversation: ConversationId::parse("soak").unwrap(),
        random: Mutex::new(fastrand::Rng::with_seed(seed)),
        last: Mutex::default(),
        sent: Mutex::default(),
        counts: Arc::default(),
    });
    create(&world).await;
    let mut nodes = 0;
    let mut node = Node::new(&world, nodes);
    let (mut view_max, mut early, mut left) = (0, None, TURNS_OF_NODE_MAX);
    for turn in 0..turns {
        left -= 1;
        if left == 0 {
            // An end in order: another process goes on.
            node.engine.shutdown().await;
            nodes += 1;
            node = Node::new(&world, nodes);
            left = 1 + world.below(TURNS_OF_NODE_MAX as usize) as u64;
        }
        let submission = world.submission(&format!("input-{turn}"), Intent::Queue);
        world.sent.lock().unwrap().push((submission, None));
        let mut tries = 0;
        while !run(&world, &node).await {
            tries += 1;
            assert!(tries < 40, "turn {turn} does not come to an end");
            count(&world.counts.deaths);
            world.dead.0.lock().unwrap().insert(node.name.clone());
            nodes += 1;
            node = Node::new(&world, nodes);
        }
        if turn % 50 == 49 {
            view_max = view_max.max(world.rows(View::Model).await.len());
        }
        if turn == turns / 4 {
            early = resident_bytes().zip(Some(stored_bytes(&world).await));
        }
    }
    check_transcript(&world).await;
    let late = resident_bytes().zip(Some(stored_bytes(&world).await));
    let growth = early.zip(late).map(|((r1, s1), (r2, s2))| (r2.saturating_sub(r1), s2 - s1));
    Shown { counts: world.counts.clone(), view_max, growth }
}

#[test]
fn i18_i20_very_many_turns_on_one_conversation_keep_every_promise_and_stay_flat() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let turns = number("HERMES_SOAK_TURNS").unwrap_or(TURNS);
    let seed = number("HERMES_SOAK_SEED").unwrap_or(4);
    let begun = std::time::Instant::now();
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(soak(seed, turns))
    };
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    let again = format!("HERMES_SOAK_SEED={seed} HERMES_SOAK_TURNS={turns}");
    let Ok(Shown { counts, view_max, growth }) = done else { panic!("the soak failed: {again}") };
    println!("{turns} turns in {:?} ({again}): {counts:?}, at most {view_max} rows in view", begun.elapsed());
    assert!(view_max <= VIEW_MAX_ROWS, "{view_max} rows in view: {again}");
    if let Some((grown, stored)) = growth {
        println!(
            "the resident set grew by {grown} bytes in the last three quarters, the store by {stored} bytes of rows"
        );
        let allowed = stored * BYTES_PER_ROW_BYTE + GROWTH_ALLOWED_BYTES;
        assert!(grown <= allowed, "it grew by {grown} bytes, {allowed} are allowed: {again}");
    }
    let seen = |number: &AtomicU64| number.load(Ordering::SeqCst);
    if turns >= TURNS {
        let all = [&counts.compressions, &counts.refused, &counts.cut, &counts.steers, &counts.faults, &counts.deaths];
        assert!(all.iter().all(|number| seen(number) >= 5), "something hardly happened: {counts:?}");
    }
    assert!(seen(&counts.prefixes) * 10 >= seen(&counts.requests) * 8, "{counts:?}");
}
