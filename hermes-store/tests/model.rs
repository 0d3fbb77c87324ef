//! Random sequences of operations on the model and on each database: the same answers, and the same rows at the end.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

mod support;

use std::sync::Arc;

use hermes_store::conformance::{ListProbe, START_MS, input, new_conversation, owner};
use hermes_store::memory::MemoryStore;
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::{
    AdmissionId, AdmissionOutcome, CallId, CallOutcome, CallResult, ClaimOutcome, ClaimPolicy, ClaimRequest,
    ConversationFilter, ConversationId, Fence, Generation, Intent, ManualClock, MessageId, MessageKind, MessagePage,
    NewAdmission, NewCall, NewMessage, NewSession, OwnerInfo, PromptSnapshot, ReplaySafety, Role, Round, SessionId,
    Store, StoreError, TitleSource, TurnEnd, TurnId, UsageDelta, View,
};
use proptest::prelude::*;

/// Sequences to try. Modest: every pull request waits for them.
const SEQUENCES: u32 = 64;
/// On PostgreSQL each sequence makes its own schema first.
const SEQUENCES_ON_SERVER: u32 = 24;
const STEPS: usize = 60;

#[derive(Debug, Clone)]
enum Op {
    Admit { conversation: u8, request: u8, payload: u8, intent: u8, by: u8 },
    Cancel { conversation: u8, request: u8 },
    Claim { conversation: u8, by: u8, policy: u8 },
    Renew { fence: u8 },
    Release { fence: u8 },
    Adopt { fence: u8 },
    Requeue { fence: u8 },
    SettleTurn { fence: u8, reason: u8, release: bool },
    Lose { fence: u8 },
    Resolve { conversation: u8, request: u8, generation: u8 },
    Open { fence: u8, child: u8 },
    Append { fence: u8, row: u8, content: u8, hidden: bool, usage: u8 },
    Round { fence: u8, round: u8, calls: u8, preset: bool },
    Start { fence: u8, call: u8 },
    Settle { fence: u8, call: u8, content: u8 },
    Steers { fence: u8 },
    Usage { fence: u8, attempt: u8 },
    Title { fence: u8, title: u8, source: u8 },
    Delete { fence: u8 },
    Advance { by: u8 },
    Beat { who: u8 },
    Retire { who: u8 },
    Kill { who: u8 },
}

fn op() -> impl Strategy<Value = Op> {
    // The newest leases are the interesting ones: most operations name the last or the last but one.
    let f = || prop_oneof![4 => Just(0_u8), 1 => Just(1), 1 => 0..4_u8];
    prop_oneof![
        4 => (0..2_u8, 0..5_u8, 0..5_u8, 0..3_u8, 0..2_u8).prop_map(|(conversation, request, payload, intent, by)| {
            Op::Admit { conversation, request, payload: payload / 4, intent, by }
        }),
        1 => (0..2_u8, 0..5_u8).prop_map(|(conversation, request)| Op::Cancel { conversation, request }),
        6 => (0..2_u8, 0..2_u8, 0..4_u8).prop_map(|(conversation, by, policy)| Op::Claim { conversation, by, policy }),
        1 => f().prop_map(|fence| Op::Renew { fence }),
        2 => f().prop_map(|fence| Op::Release { fence }),
        1 => f().prop_map(|fence| Op::Adopt { fence }),
        1 => f().prop_map(|fence| Op::Requeue { fence }),
        3 => (f(), 0..2_u8, any::<bool>()).prop_map(|(fence, reason, release)| Op::SettleTurn { fence, reason, release }),
        1 => f().prop_map(|fence| Op::Lose { fence }),
        1 => (0..2_u8, 0..5_u8, 0..4_u8).prop_map(|(conversation, request, generation)| {
            Op::Resolve { conversation, request, generation }
        }),
        4 => (f(), prop_oneof![4 => Just(0_u8), 1 => 0..3_u8]).prop_map(|(fence, child)| Op::Open { fence, child }),
        3 => (f(), 0..6_u8, 0..4_u8, any::<bool>(), 0..4_u8).prop_map(|(fence, row, content, hidden, usage)| {
            Op::Append { fence, row, content: content / 3, hidden: hidden && row == 5, usage }
        }),
        3 => (f(), 0..3_u8, 1..4_u8, any::<bool>()).prop_map(|(fence, round, calls, preset)| {
            Op::Round { fence, round, calls, preset }
        }),
        2 => (f(), 0..9_u8).prop_map(|(fence, call)| Op::Start { fence, call }),
        4 => (f(), 0..9_u8, 0..4_u8).prop_map(|(fence, call, content)| Op::Settle { fence, call, content: content / 3 }),
        1 => f().prop_map(|fence| Op::Steers { fence }),
        1 => (f(), 0..4_u8).prop_map(|(fence, attempt)| Op::Usage { fence, attempt }),
        1 => (f(), 0..3_u8, 0..3_u8).prop_map(|(fence, title, source)| Op::Title { fence, title, source }),
        1 => f().prop_map(|fence| Op::Delete { fence }),
        2 => (0..6_u8).prop_map(|by| Op::Advance { by }),
        1 => (0..2_u8).prop_map(|who| Op::Beat { who }),
        1 => (0..2_u8).prop_map(|who| Op::Retire { who }),
        1 => (0..2_u8).prop_map(|who| Op::Kill { who }),
    ]
}

fn conversation(number: u8) -> ConversationId {
    ConversationId::parse(["c", "d"][usize::from(number)]).unwrap()
}

fn who(number: u8) -> hermes_store::OwnerId {
    owner(["a", "b"][usize::from(number)])
}

/// One store under test, with the leases that it gave.
struct Side {
    store: Arc<dyn Store>,
    leases: Vec<(Fence, TurnId)>,
}

/// An answer as text, with errors by their code: words may differ, meaning may not.
fn show<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => error.code().to_owned(),
    }
}

fn session(conversation: &ConversationId, child: u8) -> NewSession {
    let name = |number: u8| match number {
        0 => conversation.first_session(),
        other => SessionId::parse(&format!("{conversation}-{other}")).unwrap(),
    };
    NewSession {
        id: name(child),
        parent: (child > 0).then(|| name(child - 1)),
        provider: "p".to_owned(),
        model: format!("m{child}"),
        cwd: None,
        prompt: PromptSnapshot::new(format!("prompt {child}").into_bytes()),
        tools: PromptSnapshot::new(&b"[]"[..]),
    }
}

fn usage(attempt: String) -> UsageDelta {
    UsageDelta {
        attempt,
        provider: "p".to_owned(),
        model: "m".to_owned(),
        task: String::new(),
        input: 1,
        output: 2,
        cache_read: 3,
        cache_write: 4,
        reasoning: 5,
        known: true,
    }
}

fn round(
    conversation: &ConversationId,
    turn: &TurnId,
    number: u8,
    calls: u8,
    preset: bool,
) -> Round<hermes_store::Planned> {
    let result = || CallResult { outcome: CallOutcome::Invalid, content: "no such tool".to_owned(), meta: None };
    let calls = (0..calls).map(|index| NewCall {
        call: CallId::parse(&format!("{conversation}-k{}", number * 3 + index)).unwrap(),
        result: MessageId::parse(&format!("{conversation}-r{}", number * 3 + index)).unwrap(),
        provider_id: format!("p{index}"),
        name: "tool".to_owned(),
        arguments: "{}".to_owned(),
        replay: ReplaySafety::Once,
        preset: (preset && index == 0).then(result),
    });
    let row = MessageId::parse(&format!("{conversation}-round{number}")).unwrap();
    let usage = Some(usage(format!("{conversation}-round{number}")));
    Round::plan(turn.clone(), NewMessage::text(row, Role::Assistant, "calls"), calls.collect(), usage)
}

impl Side {
    fn lease(&self, back: u8) -> Option<(Fence, TurnId)> {
        let at = self.leases.len().checked_sub(1 + usize::from(back))?;
        self.leases.get(at).cloned()
    }

    async fn claim(&mut self, request: ClaimRequest) -> String {
        let turn = request.turn.clone();
        let outcome = self.store.claim(request).await;
        match &outcome {
            Ok(ClaimOutcome::Turn { fence, .. }) => self.leases.push((fence.clone(), turn)),
            Ok(ClaimOutcome::Recover { fence, open }) => self.leases.push((fence.clone(), open.id.clone())),
            Ok(ClaimOutcome::Leased { fence }) => self.leases.push((fence.clone(), turn)),
            _ => {}
        }
        show(outcome)
    }

    async fn apply(&mut self, op: &Op, step: usize) -> String {
        match *op {
            Op::Admit { conversation: c, request, payload, intent, by } => {
                let c = conversation(c);
                let new = NewAdmission {
                    intent: Intent::ALL[usize::from(intent)],
                    submitted_by: who(by),
                    ..input(c.as_str(), &format!("r{request}"), &format!("payload {payload}"))
                };
                show(self.store.create_and_admit(new_conversation(c.as_str()), new).await)
            }
            Op::Cancel { conversation: c, request } => {
                let id = AdmissionId::parse(&format!("adm-{}-r{request}", conversation(c))).unwrap();
                show(self.store.cancel(&id).await)
            }
            Op::Claim { conversation: c, by, policy } => {
                let policy = match policy {
                    0 => ClaimPolicy::LeaseOnly,
                    1 => ClaimPolicy::OwnOrOrphaned { orphan_after_ms: 20_000 },
                    _ => ClaimPolicy::Any,
                };
                let turn = TurnId::parse(&format!("turn-{step}")).unwrap();
                let conversation = conversation(c);
                self.claim(ClaimRequest { conversation, owner: who(by), turn, ttl_ms: 60_000, policy }).await
            }
            Op::Resolve { conversation: c, request, generation } => {
                let id = AdmissionId::parse(&format!("adm-{}-r{request}", conversation(c))).unwrap();
                show(self.store.resolve_unknown(&id, Generation(i64::from(generation)), end("operator")).await)
            }
            Op::Beat { who: name } => {
                let id = who(name);
                let info = OwnerInfo { id, host: "h".to_owned(), boot_id: "b".to_owned(), pid: 1, pid_start: 1 };
                show(self.store.heartbeat(&info).await)
            }
            Op::Retire { who: name } => show(self.store.retire(&who(name)).await),
            Op::Advance { .. } | Op::Kill { .. } => String::new(),
            _ => self.apply_fenced(op).await,
        }
    }

    async fn apply_fenced(&mut self, op: &Op) -> String {
        let (Op::Renew { fence }
        | Op::Release { fence }
        | Op::Adopt { fence }
        | Op::Requeue { fence }
        | Op::SettleTurn { fence, .. }
        | Op::Lose { fence }
        | Op::Open { fence, .. }
        | Op::Append { fence, .. }
        | Op::Round { fence, .. }
        | Op::Start { fence, .. }
        | Op::Settle { fence, .. }
        | Op::Steers { fence }
        | Op::Usage { fence, .. }
        | Op::Title { fence, .. }
        | Op::Delete { fence }) = op
        else {
            panic!("{op:?} has no fence")
        };
        let Some((fence, turn)) = self.lease(*fence) else { return String::new() };
        let (s, c) = (&self.store, fence.conversation().clone());
        let call = |number: u8| CallId::parse(&format!("{c}-k{number}")).unwrap();
        match *op {
            Op::Renew { .. } => show(s.renew(&fence, 60_000).await),
            Op::Release { .. } => show(s.release(&fence).await),
            Op::Adopt { .. } => show(s.adopt_turn(&fence, &turn).await),
            Op::Requeue { .. } => show(s.requeue(&fence, &turn).await),
            Op::SettleTurn { reason, release, .. } => {
                let end = end(["completed", "failed"][usize::from(reason)]);
                show(s.settle_turn(&fence, &turn, end, release).await)
            }
            Op::Lose { .. } => show(s.lose_turn(&fence, &turn).await),
            Op::Open { child, .. } => show(s.open_session(&fence, &turn, session(&c, child), vec![]).await),
            Op::Append { row, content, hidden, usage: attempt, .. } => {
                let role = if row % 2 == 0 { Role::User } else { Role::Assistant };
                let id = MessageId::parse(&format!("{c}-m{row}")).unwrap();
                let mut new = NewMessage::text(id, role, format!("needle {content}"));
                if hidden {
                    new.kind = MessageKind::Hidden;
                }
                let counted = (attempt > 0).then(|| usage(format!("{c}-u{attempt}")));
                show(s.append(&fence, &turn, vec![new], counted).await)
            }
            Op::Round { round: number, calls, preset, .. } => {
                show(s.record_round(&fence, round(&c, &turn, number, calls, preset)).await)
            }
            Op::Start { call: number, .. } => show(s.start_calls(&fence, &turn, &[call(number)]).await),
            Op::Settle { call: number, content, .. } => {
                let result = CallResult { outcome: CallOutcome::Ok, content: format!("result {content}"), meta: None };
                show(s.settle_call(&fence, &turn, &call(number), result).await)
            }
            Op::Steers { .. } => {
                let one = |a: &hermes_store::AdmissionRecord| {
                    let id = MessageId::parse(&format!("{c}-steer-{}", a.request_id)).unwrap();
                    NewMessage { kind: MessageKind::Steer, ..NewMessage::text(id, Role::User, a.payload.clone()) }
                };
                let make = |taken: &[hermes_store::AdmissionRecord]| taken.iter().map(one).collect();
                show(s.take_steers(&fence, &turn, &make).await)
            }
            Op::Usage { attempt, .. } => show(s.count_usage(&fence, usage(format!("{c}-u{attempt}"))).await),
            Op::Title { title, source, .. } => {
                let title = ["one", "two", "\u{0}"][usize::from(title)];
                show(s.set_title(&fence, title, TitleSource::ALL[usize::from(source)]).await)
            }
            Op::Delete { .. } => show(s.delete_conversation(&fence).await),
            _ => unreachable!("not fenced"),
        }
    }

    /// Everything that can be read.
    async fn view(&self) -> String {
        let s = &self.store;
        let mut out = show(s.conversations(ConversationFilter::default()).await);
        out += &show(
            s.search(hermes_store::SearchQuery { limit: 100, ..hermes_store::SearchQuery::text("NEEDLE") })
                .await
                .map(|page| page.hits),
        );
        for number in 0..2 {
            let c = conversation(number);
            for view in [View::Model, View::Display] {
                for from_end in [false, true] {
                    let page = MessagePage { from_end, limit: 5, after_seq: 1 };
                    out += &show(s.messages(&c, view, page).await);
                    out += &show(s.messages(&c, view, MessagePage::default()).await);
                }
            }
            out += &show(s.queue(&c).await);
            out += &show(s.usage(&c).await);
            out += &show(s.wait_for_change(&c, -1, 0).await);
            out += &show(s.session(&c.first_session()).await);
            for request in 0..5 {
                let id = AdmissionId::parse(&format!("adm-{c}-r{request}")).unwrap();
                out += &show(s.admission(&id).await);
            }
        }
        for (_, turn) in &self.leases {
            out += &show(s.turn(turn).await);
        }
        out
    }
}

fn end(reason: &str) -> TurnEnd {
    let outcome = if reason == "completed" { AdmissionOutcome::Completed } else { AdmissionOutcome::Failed };
    TurnEnd { reason: reason.to_owned(), detail: None, outcome, api_calls: 3 }
}

/// The clock and the probe that both sides share.
fn world() -> (Arc<ManualClock>, Arc<ListProbe>) {
    (Arc::new(ManualClock::at(START_MS)), Arc::new(ListProbe::default()))
}

async fn on_sqlite(ops: &[Op]) {
    let dir = tempfile::tempdir().unwrap();
    let (clock, probe) = world();
    let options = SqliteOptions {
        synchronous: Synchronous::Normal,
        probe: probe.clone(),
        ..SqliteOptions::new(dir.path().join("hermes.db"), clock.clone())
    };
    let store = SqliteStore::open(options).await.unwrap();
    compare(ops, Arc::new(store.clone()), &clock, &probe).await;
    store.close().await;
}

async fn on_postgres(ops: &[Op]) {
    let schema = support::TestSchema::new();
    let (clock, probe) = world();
    let store = schema.open(clock.clone(), probe.clone()).await;
    compare(ops, Arc::new(store.clone()), &clock, &probe).await;
    store.close().await;
}

async fn compare(ops: &[Op], store: Arc<dyn Store>, clock: &Arc<ManualClock>, probe: &Arc<ListProbe>) {
    let memory = MemoryStore::new(clock.clone());
    memory.set_probe(probe.clone());
    let mut model = Side { store: Arc::new(memory), leases: Vec::new() };
    let mut file = Side { store, leases: Vec::new() };
    for (step, op) in ops.iter().enumerate() {
        match *op {
            Op::Advance { by } => clock.advance([1, 500, 15_000, 40_000, 70_000, -50_000][usize::from(by)]),
            Op::Kill { who: name } => probe.kill(&who(name)),
            _ => {}
        }
        let (want, got) = (model.apply(op, step).await, file.apply(op, step).await);
        assert_eq!(want, got, "step {step}: {op:?}");
        if step % 10 == 9 {
            assert_eq!(model.view().await, file.view().await, "after step {step}: {op:?}");
        }
    }
    assert_eq!(model.view().await, file.view().await);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: SEQUENCES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_answers_as_the_model_does(ops in proptest::collection::vec(op(), 1..STEPS)) {
        runtime().block_on(on_sqlite(&ops));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: SEQUENCES_ON_SERVER,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn postgres_answers_as_the_model_does(ops in proptest::collection::vec(op(), 1..STEPS)) {
        runtime().block_on(on_postgres(&ops));
    }
}
