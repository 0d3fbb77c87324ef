//! An owner that slept past its lease and was replaced: before it could notice, it is about to do something that no write
//! stands before. It looks at its lease first, does nothing, and writes nothing (I09, E25). One that was not replaced
//! takes its lease up again and goes on.
//!
//! The sleep and the robbery happen inside one poll of the turn: its keeper has had no chance to see them.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hermes_core::testing::FastClock;
use hermes_core::{EndReason, Engine, EngineParts, EventKind, People};
use hermes_providers::{
    ChatModel, ChatRequest, DeltaStream, ErrorClass, ModelInfo, ProviderError, Script, ScriptedModel,
};
use hermes_store::limits::LEASE_TTL_MS;
use hermes_store::memory::MemoryStore;
use hermes_store::{
    AdmissionRecord, AdmissionStore as _, ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, Fence,
    LeaseStore as _, MessagePage, OwnerId, StoredMessage, TranscriptStore as _, TurnId, View,
};
use hermes_tools::scripted::NoClarifier;
use hermes_tools::{
    ApprovalAnswer, ApprovalMode, ApprovalPolicy, ApprovalRequest, Approver, Clarifier, PolicyConfig, Presence,
    ReplaySafety, Risk,
};

use crate::support::{World, calls, error, model, submission};

/// What stands in the store.
#[derive(Debug, PartialEq)]
struct Stored {
    rows: Vec<StoredMessage>,
    input: AdmissionRecord,
}

/// Puts the host to sleep, and another owner into its place when it is told to.
struct Night {
    store: MemoryStore,
    clock: Arc<FastClock>,
    replaces: bool,
    /// The new owner's fence, and what it found.
    thief: Mutex<Option<(Fence, Stored)>>,
}

impl Night {
    fn new(world: &World, replaces: bool) -> Arc<Self> {
        let (store, clock) = (world.store.clone(), world.clock.clone());
        Arc::new(Self { store, clock, replaces, thief: Mutex::default() })
    }

    async fn stored(&self, conversation: &ConversationId, claimed: Option<&AdmissionRecord>) -> Stored {
        let rows = self.store.messages(conversation, View::Display, MessagePage::default()).await.unwrap();
        let id = claimed.map(|input| input.receipt.admission.clone());
        let id = id.unwrap_or_else(|| self.thief.lock().unwrap().as_ref().unwrap().1.input.receipt.admission.clone());
        Stored { rows, input: self.store.admission(&id).await.unwrap() }
    }

    async fn falls(&self, conversation: &ConversationId) {
        self.clock.push(i64::try_from(LEASE_TTL_MS).unwrap() + 1);
        if !self.replaces {
            return;
        }
        let claim = ClaimRequest {
            conversation: conversation.clone(),
            owner: OwnerId::parse("thief").unwrap(),
            turn: TurnId::parse("t2").unwrap(),
            ttl_ms: LEASE_TTL_MS,
            policy: ClaimPolicy::Any,
        };
        let ClaimOutcome::Recover { fence, open } = self.store.claim(claim).await.unwrap() else { panic!("held") };
        let found = self.stored(conversation, Some(&open.admission)).await;
        *self.thief.lock().unwrap() = Some((fence, found));
    }

    /// The new owner finds what it found, and its lease stands.
    async fn nothing_changed(&self, conversation: &ConversationId) {
        let now = self.stored(conversation, None).await;
        let (fence, found) = self.thief.lock().unwrap().take().expect("somebody took over");
        assert_eq!(now, found);
        self.store.renew(&fence, LEASE_TTL_MS).await.unwrap();
    }
}

/// A model at whose first request night falls.
struct Nightly {
    night: Arc<Night>,
    model: Arc<ScriptedModel>,
}

#[async_trait]
impl ChatModel for Nightly {
    fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        if self.model.requests().is_empty() {
            let conversation = ConversationId::parse(request.cache_key.as_deref().unwrap()).unwrap();
            self.night.falls(&conversation).await;
        }
        self.model.stream(request).await
    }
}

#[tokio::test(start_paused = true)]
async fn i09_e25_a_replaced_owner_that_wakes_asks_no_model_again_and_writes_nothing() {
    // The same model once more, or another one at once.
    for (class, replaces) in [
        (ErrorClass::ServerError, true),
        (ErrorClass::Auth, true),
        (ErrorClass::ServerError, false),
        (ErrorClass::Auth, false),
    ] {
        let world = World::paused();
        let night = Night::new(&world, replaces);
        let first = model([Script::error(error(class)), Script::text("here")]);
        let second = model([Script::text("here")]);
        let nightly = Nightly { night: night.clone(), model: first.clone() };
        let mut parts = world.parts("sleeper", Arc::new(nightly));
        parts.fallbacks = vec![second.clone()];
        let (result, conversation) = run(parts).await;
        let asked = first.requests().len() + second.requests().len();
        if replaces {
            assert_eq!((result.reason, asked), (EndReason::LeaseLost, 1), "{class:?}");
            night.nothing_changed(&conversation).await;
        } else {
            assert_eq!((result.reason, result.answer.as_str(), asked), (EndReason::Answered, "here", 2), "{class:?}");
        }
        ends_once(&world);
    }
}

/// Night falls while somebody is asked, who then says yes.
struct Late(Arc<Night>);

struct LateOne(Arc<Night>, ConversationId);

impl People for Late {
    fn approver(&self, conversation: &ConversationId) -> Arc<dyn Approver> {
        Arc::new(LateOne(self.0.clone(), conversation.clone()))
    }

    fn clarifier(&self, _conversation: &ConversationId) -> Arc<dyn Clarifier> {
        Arc::new(NoClarifier)
    }
}

#[async_trait]
impl Approver for LateOne {
    async fn ask(&self, _request: ApprovalRequest) -> ApprovalAnswer {
        self.0.falls(&self.1).await;
        ApprovalAnswer::Once
    }
}

#[tokio::test(start_paused = true)]
async fn i09_e25_a_replaced_owner_that_wakes_begins_no_call_not_even_one_that_only_reads() {
    for (replay, replaces) in [
        (ReplaySafety::Pure, true),
        (ReplaySafety::Idempotent, true),
        (ReplaySafety::Once, true),
        (ReplaySafety::Pure, false),
    ] {
        let world = World::paused();
        let night = Night::new(&world, replaces);
        let asked = model([calls("c"), Script::text("here")]);
        let tool = world.tool().replay(replay).risk(Risk::Ask { why: "it may hurt".to_owned() });
        let mut parts = world.parts_with("sleeper", asked.clone(), tool, Arc::new(world.store.clone()));
        let attended = Presence::Attended;
        let policy = PolicyConfig { mode: ApprovalMode::Prompt, presence: attended, ..PolicyConfig::default() };
        parts.tools.policy = Arc::new(ApprovalPolicy::new(policy));
        parts.tools.people = Arc::new(Late(night.clone()));
        let (result, conversation) = run(parts).await;
        if replaces {
            assert_eq!((result.reason, asked.requests().len()), (EndReason::LeaseLost, 1), "{replay:?}");
            assert_eq!(world.ledger.events(), [], "{replay:?}");
            night.nothing_changed(&conversation).await;
            let events = world.events.all();
            let began = events.iter().any(|event| matches!(event.kind, EventKind::CallStarted { .. }));
            assert!(!began, "{replay:?}: nobody is told that it runs");
        } else {
            assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "here"));
            assert_eq!(world.ledger.effects().len(), 1);
        }
        ends_once(&world);
    }
}

async fn run(parts: EngineParts) -> (hermes_core::TurnResult, ConversationId) {
    let engine = Engine::new(parts);
    let receipt = engine.submit(submission(None, "r", "go")).await.unwrap().receipt().clone();
    let result = engine.run_until(&receipt.conversation, &receipt.admission).await.unwrap();
    (result, receipt.conversation)
}

fn ends_once(world: &World) {
    let events = world.events.all();
    let ends = events.iter().filter(|event| matches!(event.kind, EventKind::TurnEnded { .. })).count();
    assert_eq!(ends, 1);
}
