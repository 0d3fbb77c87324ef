//! Simple stand-ins for what a host gives an engine.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::future::BoxFuture;
use hermes_providers::ChatModel;
use hermes_store::{ConversationId, IdKind, IdSource, OwnerId, OwnerInfo, Store};
use hermes_tools::{
    ApprovalAnswer, ApprovalMode, ApprovalPolicy, ApprovalRequest, Approver, Clarifier, ClarifyAnswer, ClarifyQuestion,
    Executor, ExecutorLimits, PolicyConfig, Presence, SessionConfig, ToolRegistry, ToolScope, ToolSelection,
    ToolSession,
};

use crate::engine::{EngineParts, EngineSettings};
use crate::event::{Event, EventSink};
use crate::seams::{Clock, FixedPrompt, People, PromptMaterial, ToolHost, ToolSessions};

/// A clock on which waits are `speed` times shorter than they say, and that can be pushed forward.
#[derive(Debug)]
pub struct FastClock {
    begun: Instant,
    speed: u32,
    pushed_ms: AtomicI64,
}

impl FastClock {
    /// A clock that runs `speed` times as fast as the real one.
    #[must_use]
    pub fn new(speed: u32) -> Arc<Self> {
        Arc::new(Self { begun: Instant::now(), speed, pushed_ms: AtomicI64::new(1_000_000_000_000) })
    }

    /// Pushes the clock forward; waits that run are not shortened.
    pub fn push(&self, ms: i64) {
        self.pushed_ms.fetch_add(ms, Ordering::SeqCst);
    }

    fn now(&self) -> i64 {
        let elapsed = i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.pushed_ms.load(Ordering::SeqCst) + elapsed * i64::from(self.speed)
    }
}

impl Clock for FastClock {
    fn now_ms(&self) -> i64 {
        self.now()
    }

    fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
        let real = Duration::from_millis(ms) / self.speed;
        Box::pin(tokio::time::sleep(real))
    }
}

impl hermes_store::Clock for FastClock {
    fn now_ms(&self) -> i64 {
        self.now()
    }
}

/// Ids `PREFIX-kind-1`, `PREFIX-kind-2`, ...
#[derive(Debug)]
pub struct CountedIds {
    prefix: String,
    count: AtomicU64,
}

impl CountedIds {
    /// A counter of its own; engines over one store need different prefixes.
    #[must_use]
    pub fn new(prefix: &str) -> Arc<Self> {
        Arc::new(Self { prefix: prefix.to_owned(), count: AtomicU64::new(0) })
    }
}

impl IdSource for CountedIds {
    fn next(&self, kind: IdKind) -> String {
        format!("{}-{kind:?}-{}", self.prefix, self.count.fetch_add(1, Ordering::SeqCst) + 1).to_lowercase()
    }
}

/// Keeps every event.
#[derive(Debug, Default)]
pub struct RecordedEvents(Mutex<Vec<Event>>);

impl RecordedEvents {
    /// What was emitted so far.
    #[must_use]
    pub fn all(&self) -> Vec<Event> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl EventSink for RecordedEvents {
    fn emit(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

/// Nobody is there.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPeople;

#[async_trait]
impl Approver for NoPeople {
    async fn ask(&self, _request: ApprovalRequest) -> ApprovalAnswer {
        ApprovalAnswer::Deny { reason: "nobody is there".to_owned() }
    }
}

#[async_trait]
impl Clarifier for NoPeople {
    async fn clarify(&self, questions: Vec<ClarifyQuestion>) -> Vec<ClarifyAnswer> {
        vec![ClarifyAnswer::Unanswered; questions.len()]
    }
}

impl People for NoPeople {
    fn approver(&self, _conversation: &ConversationId) -> Arc<dyn Approver> {
        Arc::new(Self)
    }

    fn clarifier(&self, _conversation: &ConversationId) -> Arc<dyn Clarifier> {
        Arc::new(Self)
    }
}

/// Tools' state in a fixed directory with an empty environment.
#[derive(Debug, Clone)]
pub struct TestSessions(pub PathBuf);

#[async_trait]
impl ToolSessions for TestSessions {
    async fn open(&self, _conversation: &ConversationId, cwd: Option<&str>) -> Arc<ToolSession> {
        let cwd = cwd.map_or_else(|| self.0.clone(), PathBuf::from);
        Arc::new(ToolSession::new(SessionConfig::new(cwd, std::collections::BTreeMap::new())))
    }

    async fn close(&self, session: Arc<ToolSession>) {
        session.shutdown().await;
    }
}

/// Tools without approval, for scripted tools.
#[must_use]
pub fn tool_host(registry: ToolRegistry) -> ToolHost {
    let policy = PolicyConfig { mode: ApprovalMode::Off, presence: Presence::Unattended, ..PolicyConfig::default() };
    ToolHost {
        registry: Arc::new(registry),
        selection: ToolSelection::all(),
        executor: Arc::new(Executor::new(ExecutorLimits::default())),
        policy: Arc::new(ApprovalPolicy::new(policy)),
        scope: Arc::new(ToolScope { profile: "test".to_owned(), home: None }),
        sessions: Arc::new(TestSessions(PathBuf::from("/"))),
        people: Arc::new(NoPeople),
        cwd: None,
    }
}

/// An owner with a process that cannot be proved dead.
#[must_use]
pub fn owner(name: &str) -> OwnerInfo {
    let ids = CountedIds::new(name);
    let ids: &dyn IdSource = ids.as_ref();
    let id: OwnerId = ids.owner();
    OwnerInfo { id, host: "test-host".to_owned(), boot_id: "test-boot".to_owned(), pid: 1, pid_start: 1 }
}

/// The parts of an engine for tests, all of them replaceable.
#[must_use]
pub fn parts(
    name: &str,
    store: Arc<dyn Store>,
    model: Arc<dyn ChatModel>,
    registry: ToolRegistry,
    clock: Arc<FastClock>,
    events: Arc<RecordedEvents>,
) -> EngineParts {
    EngineParts {
        store,
        model,
        tools: tool_host(registry),
        prompt: Arc::new(FixedPrompt(PromptMaterial { date: "2026-12-02".to_owned(), ..PromptMaterial::default() })),
        events,
        clock,
        ids: CountedIds::new(name),
        owner: owner(name),
        settings: EngineSettings::default(),
    }
}
