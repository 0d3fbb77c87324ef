//! Scripted tools and people, for tests.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::approval::{
    ApprovalAnswer, ApprovalRequest, Approver, Authorized, Clarifier, ClarifyAnswer, ClarifyQuestion, Risk,
};
use crate::tool::{Call, CallOutcome, CallReport, Concurrency, PathUse, ReplaySafety, Tool, ToolContext, ToolSpec};

/// Something that a [`LedgerTool`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerEvent {
    /// The call with this id began.
    Began(String),
    /// The call with this id had its effect.
    Effect(String),
    /// The call with this id was told to end before its effect.
    Stopped(String),
}

/// What the tools that share it did.
#[derive(Debug, Default)]
pub struct Ledger {
    events: Mutex<Vec<LedgerEvent>>,
    running: AtomicUsize,
    most: AtomicUsize,
}

impl Ledger {
    /// Everything that happened, in order.
    pub fn events(&self) -> Vec<LedgerEvent> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The ids of the calls that had their effect, in order.
    pub fn effects(&self) -> Vec<String> {
        let of = |event| if let LedgerEvent::Effect(id) = event { Some(id) } else { None };
        self.events().into_iter().filter_map(of).collect()
    }

    /// Most calls that ran at once.
    pub fn most_at_once(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    fn note(&self, event: LedgerEvent) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

/// What a [`LedgerTool`] does when it is called.
#[derive(Debug, Clone)]
enum Behaviour {
    Answer(String),
    Fail(String),
    Hang { deaf: bool },
    Panic,
}

/// A tool that writes down what it does. Its argument `delay_ms` overrides the delay, its argument `path` names what it
/// touches.
pub struct LedgerTool {
    spec: ToolSpec,
    ledger: Arc<Ledger>,
    behaviour: Behaviour,
    delay_ms: u64,
    limit_ms: Option<u64>,
    writes: bool,
    risk: Risk,
}

impl LedgerTool {
    /// A tool that answers `done` at once, may not be repeated, and is a barrier.
    pub fn new(name: &str, ledger: Arc<Ledger>) -> Self {
        let parameters = json!({"type": "object", "properties": {
            "path": {"type": "string"}, "delay_ms": {"type": "integer"}, "text": {"type": "string"}}});
        let spec = ToolSpec {
            name: name.to_owned(),
            toolset: "scripted",
            description: "Writes down that it was called.".to_owned(),
            parameters,
            replay: ReplaySafety::Once,
            concurrency: Concurrency::Barrier,
            timed: true,
            result_max_chars: None,
        };
        let behaviour = Behaviour::Answer("done".to_owned());
        Self { spec, ledger, behaviour, delay_ms: 0, limit_ms: None, writes: true, risk: Risk::None }
    }

    /// With this replay safety.
    #[must_use]
    pub fn replay(mut self, replay: ReplaySafety) -> Self {
        self.spec.replay = replay;
        self
    }

    /// With this concurrency.
    #[must_use]
    pub fn concurrency(mut self, concurrency: Concurrency) -> Self {
        self.spec.concurrency = concurrency;
        self
    }

    /// Not ended by the batch's time limit.
    #[must_use]
    pub fn untimed(mut self) -> Self {
        self.spec.timed = false;
        self
    }

    /// Reads its path instead of writing it.
    #[must_use]
    pub fn reading(mut self) -> Self {
        self.writes = false;
        self
    }

    /// Asks the policy to judge this.
    #[must_use]
    pub fn risk(mut self, risk: Risk) -> Self {
        self.risk = risk;
        self
    }

    /// Takes this long (milliseconds) before its effect.
    #[must_use]
    pub fn delay_ms(mut self, delay_ms: u64) -> Self {
        self.delay_ms = delay_ms;
        self
    }

    /// Says that its calls may take so long (milliseconds) by its own rules, whatever the batch's time is.
    #[must_use]
    pub fn limited_to_ms(mut self, limit_ms: u64) -> Self {
        self.limit_ms = Some(limit_ms);
        self
    }

    /// Answers with this text.
    #[must_use]
    pub fn answering(mut self, text: &str) -> Self {
        self.behaviour = Behaviour::Answer(text.to_owned());
        self
    }

    /// Has its effect and reports a failure.
    #[must_use]
    pub fn failing(mut self, text: &str) -> Self {
        self.behaviour = Behaviour::Fail(text.to_owned());
        self
    }

    /// Never ends by itself; `deaf` also when it is told to.
    #[must_use]
    pub fn hanging(mut self, deaf: bool) -> Self {
        self.behaviour = Behaviour::Hang { deaf };
        self
    }

    /// Panics.
    #[must_use]
    pub fn panicking(mut self) -> Self {
        self.behaviour = Behaviour::Panic;
        self
    }
}

/// Counts a running call, also when it is dropped.
struct Seat<'a>(&'a Ledger);

impl<'a> Seat<'a> {
    fn take(ledger: &'a Ledger) -> Self {
        let now = ledger.running.fetch_add(1, Ordering::SeqCst) + 1;
        ledger.most.fetch_max(now, Ordering::SeqCst);
        Self(ledger)
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Tool for LedgerTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn paths(&self, call: &Call, cx: &ToolContext) -> Vec<PathUse> {
        let path = call.arguments["path"].as_str().map(|path| cx.session.resolve(path));
        path.map(|path| PathUse { path, writes: self.writes }).into_iter().collect()
    }

    fn risk(&self, _call: &Call, _cx: &ToolContext) -> Risk {
        self.risk.clone()
    }

    fn label(&self, call: &Call) -> String {
        format!("{} {}", call.name, call.id)
    }

    fn limit_ms(&self, _call: &Call, _cx: &ToolContext) -> Option<u64> {
        self.limit_ms
    }

    #[expect(clippy::panic, reason = "a scripted panic is what a test asks for")]
    async fn call(&self, call: Authorized<Call>, cx: &ToolContext) -> CallReport {
        let call = call.into_inner();
        let _seat = Seat::take(&self.ledger);
        self.ledger.note(LedgerEvent::Began(call.id.clone()));
        let delay_ms = call.arguments["delay_ms"].as_u64().unwrap_or(self.delay_ms);
        let stopped = async {
            match self.behaviour {
                Behaviour::Hang { deaf: true } => std::future::pending().await,
                _ => cx.cancel.cancelled().await,
            }
        };
        let work = async {
            if let Behaviour::Hang { .. } = self.behaviour {
                std::future::pending::<()>().await;
            }
            if delay_ms > 0 {
                tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            }
        };
        tokio::select! {
            biased;
            () = stopped => {
                self.ledger.note(LedgerEvent::Stopped(call.id));
                return CallReport::new(CallOutcome::Interrupted, "stopped");
            }
            () = work => {}
        }
        self.ledger.note(LedgerEvent::Effect(call.id.clone()));
        match &self.behaviour {
            Behaviour::Panic => panic!("scripted"),
            Behaviour::Fail(text) => CallReport::new(CallOutcome::Failed, text.clone()),
            Behaviour::Answer(text) => {
                let text = call.arguments["text"].as_str().unwrap_or(text).to_owned();
                CallReport::new(CallOutcome::Ok, text)
            }
            Behaviour::Hang { .. } => CallReport::new(CallOutcome::Ok, Value::Null.to_string()),
        }
    }
}

/// Gives prepared answers and writes down what it was asked. When they are used up, the last one counts on.
pub struct FixedApprover {
    answers: Mutex<VecDeque<ApprovalAnswer>>,
    asked: Mutex<Vec<ApprovalRequest>>,
    remembered: Mutex<Vec<String>>,
    think_ms: u64,
}

impl FixedApprover {
    /// Always gives this answer.
    pub fn new(answer: ApprovalAnswer) -> Self {
        Self::sequence([answer])
    }

    /// Gives these answers in order.
    pub fn sequence(answers: impl IntoIterator<Item = ApprovalAnswer>) -> Self {
        Self {
            answers: Mutex::new(answers.into_iter().collect()),
            asked: Mutex::default(),
            remembered: Mutex::default(),
            think_ms: 0,
        }
    }

    /// Needs this long (milliseconds) for an answer.
    #[must_use]
    pub fn thinking_ms(mut self, think_ms: u64) -> Self {
        self.think_ms = think_ms;
        self
    }

    /// What was asked so far.
    pub fn asked(&self) -> Vec<ApprovalRequest> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was to be remembered so far.
    pub fn remembered(&self) -> Vec<String> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Approver for FixedApprover {
    async fn ask(&self, request: ApprovalRequest) -> ApprovalAnswer {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        if self.think_ms > 0 {
            tokio::time::sleep(Duration::from_millis(self.think_ms)).await;
        }
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let last = answers.len() == 1;
        let answer = if last { answers.front().cloned() } else { answers.pop_front() };
        answer.unwrap_or_else(|| ApprovalAnswer::Deny { reason: String::new() })
    }

    async fn remember(&self, pattern: &str) {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).push(pattern.to_owned());
    }
}

/// Nobody is there to answer the model's questions.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoClarifier;

#[async_trait]
impl Clarifier for NoClarifier {
    async fn clarify(&self, questions: Vec<ClarifyQuestion>) -> Vec<ClarifyAnswer> {
        questions.iter().map(|_| ClarifyAnswer::Unanswered).collect()
    }
}

/// A context for tests: a session in `cwd` with `env`, this approver, nobody to clarify, no screen.
pub fn context(
    cwd: PathBuf,
    env: std::collections::BTreeMap<String, String>,
    approver: Arc<dyn Approver>,
) -> ToolContext {
    ToolContext {
        scope: Arc::new(crate::tool::ToolScope { profile: "test".to_owned(), home: None }),
        session: Arc::new(crate::session::ToolSession::new(crate::session::SessionConfig::new(cwd, env))),
        cancel: tokio_util::sync::CancellationToken::new(),
        approver,
        judge: None,
        clarifier: Arc::new(NoClarifier),
        progress: Arc::new(|_| {}),
    }
}
