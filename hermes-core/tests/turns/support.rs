//! A deterministic model, a strict checker of requests and transcripts, and engines over one store.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::StreamExt as _;
use hermes_core::testing::{FastClock, RecordedEvents, parts};
use hermes_core::{Engine, EngineParts, Event, EventKind, Input, Submission, TurnResult};
use hermes_providers::{
    ChatMessage, ChatModel, ChatRequest, CompletedCall, Completion, Delta, DeltaStream, ErrorClass, Finish, ModelInfo,
    ProviderError, Script, ScriptedModel,
};
use hermes_store::memory::MemoryStore;
use hermes_store::{ConversationId, Intent, LivenessProbe, MessagePage, OwnerInfo, Role, Store, StoredMessage, View};
use hermes_tools::ToolRegistry;
use hermes_tools::scripted::{Ledger, LedgerTool};

/// Answers with `rounds` rounds of `calls_per_round` calls of tool `act`, then with `done`: it depends on nothing but the
/// request.
pub struct RoundsModel {
    info: ModelInfo,
    pub rounds: usize,
    pub calls_per_round: usize,
    pub requests: Mutex<Vec<ChatRequest>>,
}

impl RoundsModel {
    pub fn new(rounds: usize, calls_per_round: usize) -> Arc<Self> {
        Arc::new(Self { info: ScriptedModel::test_info(), rounds, calls_per_round, requests: Mutex::default() })
    }
}

#[async_trait]
impl ChatModel for RoundsModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        check_pairs(&request.messages);
        self.requests.lock().unwrap().push(request.clone());
        let last_user = request.messages.iter().rposition(|m| matches!(m, ChatMessage::User { .. })).unwrap();
        let done = request.messages[last_user..]
            .iter()
            .filter(|m| matches!(m, ChatMessage::Assistant { calls, .. } if !calls.is_empty()))
            .count();
        let calls: Vec<CompletedCall> = if done < self.rounds {
            (0..self.calls_per_round)
                .map(|n| CompletedCall {
                    id: Some(format!("p-{done}-{n}")),
                    name: "act".to_owned(),
                    // No two calls alike: a model that goes in circles is another test's.
                    arguments: format!("{{\"n\": {}}}", done * self.calls_per_round + n),
                    whole: true,
                })
                .collect()
        } else {
            Vec::new()
        };
        let finish = if calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
        let text = if calls.is_empty() { "done".to_owned() } else { String::new() };
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
        let deltas = vec![Ok(Delta::Text(text)), Ok(Delta::Done(Box::new(completion)))];
        Ok(futures::stream::iter(deltas).boxed())
    }
}

/// Fails unless every call is followed by exactly one result, in call order, before anything else: what the strictest
/// provider demands.
pub fn check_pairs(messages: &[ChatMessage]) {
    let mut open: std::collections::VecDeque<String> = std::collections::VecDeque::new();
    let mut seen = std::collections::HashSet::new();
    let mut last_was_user = false;
    for message in messages {
        match message {
            ChatMessage::Assistant { calls, .. } => {
                assert!(open.is_empty(), "calls without a result: {open:?}");
                last_was_user = false;
                for call in calls {
                    assert!(seen.insert(call.id.clone()), "call id {} twice", call.id);
                    open.push_back(call.id.clone());
                }
            }
            ChatMessage::Tool { call_id, .. } => {
                assert_eq!(open.pop_front().as_ref(), Some(call_id), "a result out of its place");
            }
            ChatMessage::User { text, .. } => {
                assert!(!text.is_empty());
                assert!(open.is_empty(), "calls without a result: {open:?}");
                assert!(!last_was_user, "two user messages in a row");
                last_was_user = true;
            }
        }
    }
    assert!(open.is_empty(), "calls without a result: {open:?}");
}

/// Fails unless `shorter` is a prefix of `longer`, message by message (I18).
pub fn check_prefix(shorter: &ChatRequest, longer: &ChatRequest) {
    assert_eq!(shorter.system, longer.system);
    assert_eq!(shorter.tools, longer.tools);
    assert!(
        longer.messages.starts_with(&shorter.messages),
        "not a prefix:\n{:#?}\n{:#?}",
        shorter.messages,
        longer.messages
    );
}

/// Says that owners with these names are dead.
pub struct DeadNames(pub Mutex<Vec<String>>);

impl LivenessProbe for DeadNames {
    fn is_provably_dead(&self, owner: &OwnerInfo) -> bool {
        self.0.lock().unwrap().iter().any(|name| owner.id.as_str().starts_with(&format!("{name}-")))
    }
}

/// One store, one ledger, and the engines that come and go over them.
pub struct World {
    pub store: MemoryStore,
    pub clock: Arc<FastClock>,
    pub dead: Arc<DeadNames>,
    pub ledger: Arc<Ledger>,
    pub events: Arc<RecordedEvents>,
}

impl World {
    pub fn new() -> Self {
        Self::at_speed(200)
    }

    /// One whose waits are hardly felt, for tests that run very many turns.
    pub fn faster() -> Self {
        Self::at_speed(5_000)
    }

    /// One whose time is tokio's own, for tests that begin with paused time: waits cost nothing, and how long something
    /// took is known to the millisecond.
    pub fn paused() -> Self {
        Self::at_speed(1)
    }

    fn at_speed(speed: u32) -> Self {
        let clock = FastClock::new(speed);
        let store = MemoryStore::new(clock.clone());
        let dead = Arc::new(DeadNames(Mutex::default()));
        store.set_probe(dead.clone());
        Self { store, clock, dead, ledger: Arc::default(), events: Arc::default() }
    }

    pub fn tool(&self) -> LedgerTool {
        LedgerTool::new("act", self.ledger.clone())
    }

    pub fn parts_with(
        &self,
        name: &str,
        model: Arc<dyn ChatModel>,
        tool: LedgerTool,
        store: Arc<dyn Store>,
    ) -> EngineParts {
        let mut registry = ToolRegistry::new();
        registry.register(Arc::new(tool)).unwrap();
        parts(name, store, model, registry, self.clock.clone(), self.events.clone())
    }

    pub fn parts(&self, name: &str, model: Arc<dyn ChatModel>) -> EngineParts {
        self.parts_with(name, model, self.tool(), Arc::new(self.store.clone()))
    }

    pub fn engine(&self, name: &str, model: Arc<dyn ChatModel>) -> Engine {
        Engine::new(self.parts(name, model))
    }

    /// Makes a conversation's transcript longer by at least `count` rows of plain exchanges.
    pub async fn fill(&self, conversation: &ConversationId, count: usize) {
        use hermes_store::{
            AdmissionId, AdmissionOutcome, AdmissionStore as _, ClaimOutcome, ClaimPolicy, ClaimRequest,
            LeaseStore as _, MessageId, NewAdmission, NewMessage, OwnerId, TranscriptStore as _, TurnEnd, TurnId,
        };
        let owner = OwnerId::parse("filler").unwrap();
        let turn = TurnId::parse("filler-turn").unwrap();
        let admission = NewAdmission {
            id: AdmissionId::parse("filler").unwrap(),
            conversation: conversation.clone(),
            principal: "filler".into(),
            request_id: "filler".into(),
            intent: Intent::Queue,
            payload: "{\"text\":\"x\"}".into(),
            submitted_by: owner.clone(),
        };
        self.store.admit(admission).await.unwrap();
        let claim = ClaimRequest {
            conversation: conversation.clone(),
            owner,
            turn: turn.clone(),
            ttl_ms: 300_000,
            policy: ClaimPolicy::Any,
        };
        let ClaimOutcome::Turn { fence, .. } = self.store.claim(claim).await.unwrap() else { panic!("not claimed") };
        let rows = (0..count + count % 2)
            .map(|n| {
                let role = if n % 2 == 0 { Role::User } else { Role::Assistant };
                NewMessage::text(MessageId::parse(&format!("fill-{n}")).unwrap(), role, n.to_string())
            })
            .collect();
        self.store.append(&fence, &turn, rows, None).await.unwrap();
        let end =
            TurnEnd { reason: "answered".into(), detail: None, outcome: AdmissionOutcome::Completed, api_calls: 0 };
        self.store.settle_turn(&fence, &turn, end, true).await.unwrap();
    }

    pub async fn rows(&self, conversation: &ConversationId, view: View) -> Vec<StoredMessage> {
        use hermes_store::TranscriptStore as _;
        self.store.messages(conversation, view, MessagePage::default()).await.unwrap()
    }
}

/// Every test guards I18: no engine of it may have seen a request that does not begin with the one before it. A test that
/// breaks it on purpose hears events with an ear of its own.
impl Drop for World {
    fn drop(&mut self) {
        let events = self.events.all();
        let broken = events.iter().find(|event| matches!(event.kind, EventKind::PrefixBroken { .. }));
        assert!(std::thread::panicking() || broken.is_none(), "I18: {broken:?}");
    }
}

pub fn submission(conversation: Option<&ConversationId>, request_id: &str, text: &str) -> Submission {
    Submission {
        conversation: conversation.cloned(),
        principal: "tester".to_owned(),
        request_id: Some(request_id.to_owned()),
        intent: Intent::Queue,
        input: Input::text(text),
    }
}

/// Submits and runs one input.
pub async fn ask(engine: &Engine, conversation: Option<&ConversationId>, text: &str) -> TurnResult {
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let id = format!("ask-{}", COUNT.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
    let receipt = engine.submit(submission(conversation, &id, text)).await.unwrap().receipt().clone();
    engine.run_until(&receipt.conversation, &receipt.admission).await.unwrap()
}

/// Rows in a short form: `user:hi`, `assistant:[act act]`, `tool:ok`, `assistant:done`.
pub fn short(rows: &[StoredMessage]) -> Vec<String> {
    rows.iter()
        .map(|row| match row.role {
            Role::Assistant if !row.calls.is_empty() => {
                format!("assistant:{:?}", row.calls.iter().map(|c| c.name.as_str()).collect::<Vec<_>>())
            }
            Role::Tool => {
                let outcome = row.answers.as_ref().and_then(|call| call.outcome);
                format!("tool:{}", outcome.map_or("?", |o| o.as_str()))
            }
            role => format!("{}/{}:{}", role.as_str(), row.kind.as_str(), row.content),
        })
        .collect()
}

/// A model that plays these answers.
pub fn model(scripts: impl IntoIterator<Item = Script>) -> Arc<ScriptedModel> {
    let model = ScriptedModel::new(ScriptedModel::test_info());
    for script in scripts {
        model.push(script);
    }
    Arc::new(model)
}

pub fn error(class: ErrorClass) -> ProviderError {
    ProviderError::new(class, "injected")
}

/// One call of tool `act` without arguments.
pub fn calls(id: &str) -> Script {
    Script::calls([(id, "act", "{}")])
}

/// Fails unless all requests are accepted by a strict provider, and each is a prefix of the next (I18).
pub fn check_requests(requests: &[ChatRequest]) {
    for request in requests {
        check_pairs(&request.messages);
    }
    for pair in requests.windows(2) {
        check_prefix(&pair[0], &pair[1]);
    }
}

/// What clients have before them of the answer: deltas, without what was declared void.
pub fn streamed(events: &[Event]) -> String {
    let mut shown = String::new();
    for event in events {
        match &event.kind {
            EventKind::TextDelta { text } => shown.push_str(text),
            EventKind::TextRestarted | EventKind::RoundRecorded { .. } => shown.clear(),
            _ => {}
        }
    }
    shown
}

/// Every tool result that a request shows, in order.
pub fn results(request: &ChatRequest) -> Vec<&str> {
    let texts = request.messages.iter().filter_map(|message| match message {
        ChatMessage::Tool { content, .. } => Some(content.as_str()),
        _ => None,
    });
    texts.collect()
}
