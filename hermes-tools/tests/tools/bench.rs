//! What the tests share: a place to run calls in, and a witness of what was reported.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hermes_tools::scripted::{FixedApprover, Ledger, context};
use hermes_tools::{
    ApprovalAnswer, ApprovalPolicy, BatchContext, CallObserver, CallOutcome, CallProgress, CallReport, Executor,
    ExecutorLimits, Halt, PolicyConfig, PreparedCall, Tool, ToolContext, ToolRegistry, ToolScope,
};
use tokio_util::sync::CancellationToken;

/// What an observer heard.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Heard {
    Effects(Vec<usize>),
    Settled(usize, CallOutcome),
}

/// Writes down what it hears; fails when it is told to.
#[derive(Default)]
pub(crate) struct Witness {
    pub(crate) heard: Mutex<Vec<Heard>>,
    pub(crate) reports: Mutex<BTreeMap<usize, CallReport>>,
    pub(crate) shown: Mutex<Vec<(usize, CallProgress)>>,
    pub(crate) fail_effects: bool,
    /// The place whose result cannot be written.
    pub(crate) fail_settled: Option<usize>,
    /// Cancelled when the call at this place is settled.
    pub(crate) stop_after: Option<(usize, CancellationToken)>,
}

impl Witness {
    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    pub(crate) fn report(&self, index: usize) -> CallReport {
        self.reports.lock().unwrap().get(&index).cloned().expect("a report")
    }

    pub(crate) fn outcomes(&self) -> Vec<CallOutcome> {
        self.reports.lock().unwrap().values().map(|report| report.outcome).collect()
    }

    pub(crate) fn shown(&self) -> Vec<(usize, CallProgress)> {
        self.shown.lock().unwrap().clone()
    }
}

#[async_trait]
impl CallObserver for Witness {
    async fn before_effect(&self, indexes: &[usize]) -> Result<(), Halt> {
        tokio::task::yield_now().await;
        if self.fail_effects {
            return Err(Halt);
        }
        self.heard.lock().unwrap().push(Heard::Effects(indexes.to_vec()));
        Ok(())
    }

    async fn settled(&self, index: usize, report: CallReport) -> Result<(), Halt> {
        tokio::task::yield_now().await;
        if self.fail_settled == Some(index) {
            return Err(Halt);
        }
        self.heard.lock().unwrap().push(Heard::Settled(index, report.outcome));
        let before = self.reports.lock().unwrap().insert(index, report);
        assert!(before.is_none(), "call {index} was reported twice");
        if let Some((at, token)) = &self.stop_after
            && *at == index
        {
            token.cancel();
        }
        Ok(())
    }

    fn progress(&self, index: usize, progress: CallProgress) {
        self.shown.lock().unwrap().push((index, progress));
    }
}

/// A place to run calls in.
pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) registry: ToolRegistry,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) approver: Arc<FixedApprover>,
    pub(crate) cx: BatchContext,
    pub(crate) limits: ExecutorLimits,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(PolicyConfig::default(), FixedApprover::new(deny()))
    }

    pub(crate) fn with(policy: PolicyConfig, approver: FixedApprover) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["work", "home", "hermes"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let approver = Arc::new(approver);
        let real = dir.path().canonicalize().unwrap();
        let env = BTreeMap::from([
            ("HOME".to_owned(), real.join("home").display().to_string()),
            ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("OPENAI_API_KEY".to_owned(), "sk-secret".to_owned()),
        ]);
        let mut tool = context(real.join("work"), env, approver.clone());
        tool.scope = Arc::new(ToolScope { profile: "test".to_owned(), home: Some(real.join("hermes")) });
        let cx = BatchContext {
            tool,
            policy: Arc::new(ApprovalPolicy::new(policy)),
            context_window: None,
            begin_nothing: CancellationToken::new(),
        };
        let registry = ToolRegistry::with_builtins();
        Self { dir, registry, ledger: Arc::default(), approver, cx, limits: ExecutorLimits::default() }
    }

    pub(crate) fn add(&mut self, tool: impl Tool + 'static) {
        self.registry.register(Arc::new(tool)).unwrap();
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("work")
    }

    pub(crate) fn user_home(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("home")
    }

    pub(crate) fn hermes_home(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("hermes")
    }

    pub(crate) fn context(&self) -> &ToolContext {
        &self.cx.tool
    }

    /// A call; its id is `c` and its place, and for a command more: what a command leaves behind is found by its id on
    /// the whole machine, and other tests run commands at the same time.
    pub(crate) fn call(&self, index: usize, name: &str, arguments: &serde_json::Value) -> PreparedCall {
        static COMMANDS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let id = if name == "terminal" {
            let count = COMMANDS.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            format!("c{index}-{}-{count}", std::process::id())
        } else {
            format!("c{index}")
        };
        match self.registry.prepare(index, &id, name, &arguments.to_string()) {
            Ok(call) => call,
            Err(report) => panic!("{}", report.content),
        }
    }

    pub(crate) fn batch(&self, calls: &[(&str, serde_json::Value)]) -> Vec<PreparedCall> {
        calls.iter().enumerate().map(|(at, (name, arguments))| self.call(at, name, arguments)).collect()
    }

    pub(crate) async fn run(&self, calls: &[(&str, serde_json::Value)], witness: &Witness) -> Result<(), Halt> {
        Executor::new(self.limits.clone()).run(self.batch(calls), &self.cx, witness).await
    }

    /// Runs one call and returns its report.
    pub(crate) async fn one(&self, name: &str, arguments: serde_json::Value) -> CallReport {
        let witness = Witness::default();
        self.run(&[(name, arguments)], &witness).await.unwrap();
        witness.report(0)
    }

    /// Runs one call that must succeed and returns its result.
    pub(crate) async fn ok(&self, name: &str, arguments: serde_json::Value) -> serde_json::Value {
        let report = self.one(name, arguments).await;
        assert_eq!(report.outcome, CallOutcome::Ok, "{}", report.content);
        serde_json::from_str(&report.content).unwrap()
    }
}

pub(crate) fn deny() -> ApprovalAnswer {
    ApprovalAnswer::Deny { reason: String::new() }
}

/// True while a process with this id is there and has not ended.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}

/// Waits until a condition holds; fails after 20 s.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it never came: {what}");
}
