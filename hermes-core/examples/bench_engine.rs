//! Measures what the engine adds to a turn: `cargo xtask bench engine`.
//!
//! The store is in memory, the model answers at once and the tool does nothing, so what is left is the engine: building
//! requests, recording, judging, running and settling calls, events. A round is the time from one request to the next.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a bench"
)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::StreamExt as _;
use hermes_core::testing::{FastClock, tool_host};
use hermes_core::{EndReason, Engine, Submission};
use hermes_providers::{
    ChatMessage, ChatModel, ChatRequest, CompletedCall, Completion, Delta, DeltaStream, Finish, ModelInfo,
    ProviderError, ScriptedModel, Usage,
};
use hermes_store::memory::MemoryStore;
use hermes_tools::{Authorized, Call, CallOutcome, CallReport, Risk, Tool, ToolContext, ToolRegistry, ToolSpec};
use serde_json::json;

/// Rounds of the measured turn.
const ROUNDS: usize = 50;
/// Measured turns of each kind.
const TURNS: usize = 40;
/// Size of one tool result.
const RESULT_BYTES: usize = 2_000;
/// Exchanges that the long conversation begins with.
const LONG_EXCHANGES: usize = 200;
/// Size of one input of the long conversation.
const LONG_INPUT_BYTES: usize = 2_000;
/// How many conversations at once are compared.
const CROWDS: [usize; 2] = [10, 1_000];
/// How many conversations there are in all.
const CONVERSATIONS: usize = 1_000;
/// Turns of each conversation.
const CROWD_TURNS: usize = 4;
/// Rounds of each of these turns.
const CROWD_ROUNDS: usize = 5;

/// Answers with a number of rounds of one call, then with a text. It remembers when it was asked.
struct Rounds {
    info: ModelInfo,
    rounds: usize,
    /// Whether it says what a request cost, as most servers do.
    counts: bool,
    asked: Option<Mutex<Vec<Instant>>>,
}

#[async_trait]
impl ChatModel for Rounds {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        if let Some(asked) = &self.asked {
            asked.lock().unwrap().push(Instant::now());
        }
        let since_user = request.messages.iter().rev().take_while(|m| !matches!(m, ChatMessage::User { .. })).count();
        let done = since_user / 2;
        let short = matches!(request.messages.last(), Some(ChatMessage::User { text, .. }) if text.starts_with("fill"));
        let calls: Vec<CompletedCall> = (done < self.rounds && !short)
            .then(|| CompletedCall {
                id: Some(format!("c{}", request.messages.len())),
                name: "note".to_owned(),
                arguments: format!(r#"{{"line":{done}}}"#),
                whole: true,
            })
            .into_iter()
            .collect();
        let (text, finish) =
            if calls.is_empty() { ("done".to_owned(), Finish::Stop) } else { (String::new(), Finish::ToolCalls) };
        let usage = Usage { input_uncached: Some(20_000), output: Some(20), ..Usage::default() };
        let completion = Completion {
            text,
            reasoning: None,
            sidecar: None,
            calls,
            finish,
            finish_missing: false,
            usage: self.counts.then_some(usage),
            served_model: None,
        };
        Ok(futures::stream::iter([Ok(Delta::Done(Box::new(completion)))]).boxed())
    }
}

/// A tool that may have an effect (so it is announced before it runs) and returns [`RESULT_BYTES`].
struct Note(ToolSpec);

impl Note {
    fn new() -> Self {
        let parameters = json!({"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]});
        Self(ToolSpec::new("note", "Writes a line down.", parameters))
    }
}

#[async_trait]
impl Tool for Note {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn risk(&self, _call: &Call, _cx: &ToolContext) -> Risk {
        Risk::None
    }

    fn label(&self, call: &Call) -> String {
        call.arguments["line"].to_string()
    }

    async fn call(&self, call: Authorized<Call>, _cx: &ToolContext) -> CallReport {
        let line = call.get().arguments["line"].to_string();
        CallReport::new(CallOutcome::Ok, line.repeat(RESULT_BYTES / line.len()))
    }
}

fn engine(model: Arc<Rounds>) -> Engine {
    let clock = FastClock::new(1);
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let mut tools = ToolRegistry::new();
    tools.register(Arc::new(Note::new())).unwrap();
    Engine::builder(store, model, clock).tools(tool_host(tools)).build()
}

fn model(rounds: usize, counts: bool, watched: bool) -> Arc<Rounds> {
    let asked = watched.then(Mutex::default);
    Arc::new(Rounds { info: ScriptedModel::test_info(), rounds, counts, asked })
}

async fn turn(engine: &Engine, submission: Submission) -> hermes_store::ConversationId {
    let receipt = engine.submit(submission).await.unwrap().receipt().clone();
    let result = engine.run_until(&receipt.conversation, &receipt.admission).await.unwrap();
    assert_eq!(result.reason, EndReason::Answered, "{:?}", result.error);
    receipt.conversation
}

fn p50(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// The median round in microseconds, of the first tenth of the rounds of each turn, of all, and of the last tenth.
async fn rounds(counts: bool, exchanges: usize) -> [f64; 3] {
    let model = model(ROUNDS, counts, true);
    let asked = model.asked.as_ref().unwrap();
    let engine = engine(model.clone());
    let (mut first, mut all, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let mut submission = Submission::text("go");
        for number in 0..exchanges {
            let text = format!("fill {number} {}", "x".repeat(LONG_INPUT_BYTES));
            let conversation = turn(&engine, Submission { input: hermes_core::Input::text(text), ..submission }).await;
            submission = Submission::text("go").in_conversation(conversation);
        }
        asked.lock().unwrap().clear();
        turn(&engine, submission).await;
        let gaps: Vec<Duration> = asked.lock().unwrap().windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps.len(), ROUNDS);
        first.extend_from_slice(&gaps[..ROUNDS / 10]);
        last.extend_from_slice(&gaps[ROUNDS - ROUNDS / 10..]);
        all.extend(gaps);
    }
    [p50(first), p50(all), p50(last)]
}

/// Runs [`CONVERSATIONS`], so many of them at once: microseconds of the machine for one turn.
async fn crowd(at_once: usize) -> f64 {
    let engine = engine(model(CROWD_ROUNDS, true, false));
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..at_once {
        let engine = engine.clone();
        tasks.spawn(async move {
            for _ in 0..CONVERSATIONS / at_once {
                let mut conversation = None;
                for _ in 0..CROWD_TURNS {
                    conversation = Some(turn(&engine, Submission { conversation, ..Submission::text("go") }).await);
                }
            }
        });
    }
    tasks.join_all().await;
    started.elapsed().as_secs_f64() * 1e6 / (CONVERSATIONS * CROWD_TURNS) as f64
}

/// The most megabytes that this process had in memory; 0 where the kernel does not say.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) * 1_024.0 / 1e6
}

/// The whole of one crowd, in a process of its own.
fn run_crowd(at_once: usize) {
    let all_cores = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let each = all_cores.block_on(crowd(at_once));
    println!("{at_once:>5} at once {each:>47.0} {:>12.0}", peak_mb());
}

fn main() {
    if let Some(at_once) = std::env::args().nth(1) {
        return run_crowd(at_once.parse().unwrap());
    }
    let alone = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    println!(
        "{:<58} {:>9} {:>9} {:>9}",
        "engine, in-memory store, microseconds per round, p50", "first", "all", "last"
    );
    let cases = [
        ("a turn of 50 rounds", true, 0),
        ("the same, of a server that does not count tokens", false, 0),
        ("the same after 200 exchanges (400 kB)", true, LONG_EXCHANGES),
        ("the same after 200 exchanges, tokens not counted", false, LONG_EXCHANGES),
    ];
    for (what, counts, exchanges) in cases {
        let [first, all, last] = alone.block_on(rounds(counts, exchanges));
        println!("{what:<58} {first:>9.0} {all:>9.0} {last:>9.0}");
    }
    println!("\n{:<36} {:>24} {:>12}", "1,000 conversations of 4 turns", "microseconds per turn", "peak MB");
    // In turns: the machine is noisy.
    for at_once in CROWDS.into_iter().cycle().take(CROWDS.len() * 3) {
        let status = std::process::Command::new(std::env::current_exe().unwrap()).arg(at_once.to_string()).status();
        assert!(status.unwrap().success());
    }
}
