//! Simple stand-ins for what a host gives an engine.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use hermes_providers::ChatModel;
use hermes_store::{IdKind, IdSource, OwnerId, OwnerInfo, Store};
use hermes_tools::{ApprovalMode, ApprovalPolicy, PolicyConfig, Presence, ToolRegistry};
use tokio::time::Instant;

use crate::engine::{Engine, EngineParts};
use crate::event::{Event, EventSink};
use crate::seams::{Clock, FixedPrompt, PromptMaterial, ToolHost};

/// A clock on which waits are `speed` times shorter than they say, and that can be pushed forward. It goes by tokio's time:
/// in a runtime whose time is paused it is virtual, and stands still while anything can run.
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

/// Tools without approval, for scripted tools.
#[must_use]
pub fn tool_host(registry: ToolRegistry) -> ToolHost {
    let policy = PolicyConfig { mode: ApprovalMode::Off, presence: Presence::Unattended, ..PolicyConfig::default() };
    ToolHost { policy: Arc::new(ApprovalPolicy::new(policy)), ..ToolHost::unattended(registry) }
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
        tools: tool_host(registry),
        prompt: Arc::new(FixedPrompt(PromptMaterial { date: "2026-12-02".to_owned(), ..PromptMaterial::default() })),
        events,
        ids: CountedIds::new(name),
        owner: owner(name),
        ..Engine::builder(store, model, clock).into_parts()
    }
}
