//! Random sequences of operations of workers and delegations on the model and on the databases: the same answers, and
//! the same rows at the end.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

mod support;

use std::sync::Arc;

use hermes_store::conformance::{ListProbe, START_MS, input, new_conversation, owner};
use hermes_store::memory::MemoryStore;
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::{
    AdmissionOutcome, ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, DelegationEnd, DelegationId,
    DelegationOutcome, ExecutionId, Fence, Generation, ManualClock, NewAdmission, NewDelegation, NewReceipt, NewWorker,
    OwnerId, OwnerInfo, Presence, RegisterOutcome, ResultClaim, Store, StoreError, TurnEnd, TurnId, WorkerEnd,
    WorkerFence, WorkerFilter, WorkerKind, WorkerOutcome, WorkerSecret,
};
use proptest::prelude::*;

/// Sequences to try. Modest: every pull request waits for them.
const SEQUENCES: u32 = 64;
/// The same on a server, where each one makes a schema of its own.
const SEQUENCES_ON_SERVER: u32 = 12;
const STEPS: usize = 80;

#[derive(Debug, Clone)]
enum Op {
    Admit { conversation: u8, request: u8 },
    Claim { conversation: u8, by: u8, lease_only: bool },
    Settle { fence: u8, release: bool },
    Release { fence: u8 },
    Delete { fence: u8 },
    Dispatch { fence: u8, delegation: u8, child: u8, other: bool },
    Finish { fence: u8, delegation: u8, outcome: u8, result: u8 },
    AdoptTask { fence: u8, delegation: u8 },
    LoseTask { fence: u8, delegation: u8 },
    ResolveTask { delegation: u8, outcome: u8 },
    Collect { fence: u8, delegation: u8 },
    Carry { delegation: u8, by: u8 },
    Deliver { claim: u8, input: u8 },
    PutBack { claim: u8 },
    Register { fence: Option<u8>, worker: u8, task: u8, by: u8 },
    Adopt { proof: u8, right: bool, by: u8 },
    Receipt { proof: u8, sequence: u8, payload: u8 },
    FinishWorker { proof: u8, outcome: u8 },
    LoseWorker { proof: u8 },
    Resolve { worker: u8, generation: u8 },
    Sweep,
    Begin { who: u8 },
    Announce { who: u8 },
    Beat { who: u8 },
    Retire { who: u8 },
    Kill { who: u8 },
    Advance { by: u8 },
}

fn op() -> impl Strategy<Value = Op> {
    // The newest leases, proofs and claims are the interesting ones.
    let f = || prop_oneof![4 => Just(0_u8), 2 => Just(1), 1 => 0..5_u8];
    let tasks = prop_oneof![
        3 => (f(), 0..4_u8, 0..4_u8, 0..6_u8).prop_map(|(fence, delegation, child, other)| {
            Op::Dispatch { fence, delegation, child: child.min(2), other: other == 5 }
        }),
        3 => (f(), 0..4_u8, 0..3_u8, 0..4_u8).prop_map(|(fence, delegation, outcome, result)| {
            Op::Finish { fence, delegation, outcome, result: result / 3 }
        }),
        1 => (f(), 0..4_u8).prop_map(|(fence, delegation)| Op::AdoptTask { fence, delegation }),
        1 => (f(), 0..4_u8).prop_map(|(fence, delegation)| Op::LoseTask { fence, delegation }),
        1 => (0..4_u8, 0..3_u8).prop_map(|(delegation, outcome)| Op::ResolveTask { delegation, outcome }),
        1 => (f(), 0..4_u8).prop_map(|(fence, delegation)| Op::Collect { fence, delegation }),
        3 => (0..4_u8, 0..2_u8).prop_map(|(delegation, by)| Op::Carry { delegation, by }),
        2 => (f(), 0..6_u8).prop_map(|(claim, input)| Op::Deliver { claim, input: input / 4 }),
        1 => f().prop_map(|claim| Op::PutBack { claim }),
    ];
    let workers = prop_oneof![
        3 => (prop::option::of(f()), 0..3_u8, 0..2_u8, 0..2_u8).prop_map(|(fence, worker, task, by)| {
            Op::Register { fence, worker, task, by }
        }),
        1 => (f(), 0..4_u8, 0..2_u8).prop_map(|(proof, right, by)| Op::Adopt { proof, right: right > 0, by }),
        4 => (f(), 0..5_u8, 0..4_u8).prop_map(|(proof, sequence, payload)| {
            Op::Receipt { proof, sequence, payload: payload / 3 }
        }),
        1 => (f(), 0..4_u8).prop_map(|(proof, outcome)| Op::FinishWorker { proof, outcome }),
        1 => f().prop_map(|proof| Op::LoseWorker { proof }),
        1 => (0..3_u8, 0..4_u8).prop_map(|(worker, generation)| Op::Resolve { worker, generation }),
    ];
    let rest = prop_oneof![
        2 => (0..3_u8, 0..3_u8).prop_map(|(conversation, request)| Op::Admit { conversation, request }),
        5 => (0..3_u8, 0..2_u8, 0..4_u8).prop_map(|(conversation, by, policy)| {
            Op::Claim { conversation, by, lease_only: policy == 0 }
        }),
        2 => (f(), any::<bool>()).prop_map(|(fence, release)| Op::Settle { fence, release }),
        1 => f().prop_map(|fence| Op::Release { fence }),
        1 => f().prop_map(|fence| Op::Delete { fence }),
        2 => Just(Op::Sweep),
        1 => (0..2_u8).prop_map(|who| Op::Begin { who }),
        1 => (0..2_u8).prop_map(|who| Op::Announce { who }),
        1 => (0..2_u8).prop_map(|who| Op::Beat { who }),
        1 => (0..2_u8).prop_map(|who| Op::Retire { who }),
        1 => (0..2_u8).prop_map(|who| Op::Kill { who }),
        3 => (0..6_u8).prop_map(|by| Op::Advance { by }),
    ];
    prop_oneof![3 => tasks, 2 => workers, 3 => rest]
}

fn conversation(number: u8) -> ConversationId {
    ConversationId::parse(["parent", "child", "other"][usize::from(number)]).unwrap()
}

fn who(number: u8) -> OwnerId {
    owner(["a", "b"][usize::from(number)])
}

fn info(number: u8) -> OwnerInfo {
    OwnerInfo { id: who(number), host: "h".to_owned(), boot_id: "b".to_owned(), pid: 1, pid_start: 1 }
}

fn execution(number: u8) -> ExecutionId {
    ExecutionId::parse(&format!("e{number}")).unwrap()
}

fn delegation(number: u8) -> DelegationId {
    DelegationId::parse(&format!("d{number}")).unwrap()
}

fn secret(text: &str) -> WorkerSecret {
    WorkerSecret::parse(&format!("{text:->40}")).unwrap()
}

fn end(outcome: u8, result: u8) -> DelegationEnd {
    let outcome = DelegationOutcome::ALL[usize::from(outcome)];
    DelegationEnd { outcome, result: format!("result {result}") }
}

/// One store under test, with what it gave.
struct Side {
    store: Arc<dyn Store>,
    leases: Vec<(Fence, TurnId)>,
    proofs: Vec<WorkerFence>,
    claims: Vec<ResultClaim>,
}

/// An answer as text, with errors by their code: words may differ, meaning may not.
fn show<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Ok(value) => format!("{value:?}\n"),
        Err(error) => format!("{}\n", error.code()),
    }
}

fn back<T: Clone>(list: &[T], back: u8) -> Option<T> {
    list.get(list.len().checked_sub(1 + usize::from(back))?).cloned()
}

impl Side {
    fn new(store: Arc<dyn Store>) -> Self {
        Self { store, leases: Vec::new(), proofs: Vec::new(), claims: Vec::new() }
    }

    async fn claim(&mut self, request: ClaimRequest) -> String {
        let turn = request.turn.clone();
        let outcome = self.store.claim(request).await;
        match &outcome {
            Ok(ClaimOutcome::Turn { fence, .. } | ClaimOutcome::Leased { fence }) => {
                self.leases.push((fence.clone(), turn));
            }
            Ok(ClaimOutcome::Recover { fence, open }) => self.leases.push((fence.clone(), open.id.clone())),
            _ => {}
        }
        show(outcome)
    }

    async fn apply(&mut self, op: &Op, step: usize) -> String {
        let store = Arc::clone(&self.store);
        let s = store.as_ref();
        match *op {
            Op::Admit { conversation: c, request } => {
                let c = conversation(c);
                let new = NewAdmission { submitted_by: who(0), ..input(c.as_str(), &format!("r{request}"), "x") };
                show(s.create_and_admit(new_conversation(c.as_str()), new).await)
            }
            Op::Claim { conversation: c, by, lease_only } => {
                let policy = if lease_only { ClaimPolicy::LeaseOnly } else { ClaimPolicy::Any };
                let turn = TurnId::parse(&format!("turn-{step}")).unwrap();
                self.claim(ClaimRequest { conversation: conversation(c), owner: who(by), turn, ttl_ms: 60_000, policy })
                    .await
            }
            Op::Sweep => show(s.sweep_workers().await) + &show(s.sweep_delegations().await),
            Op::Begin { who: name } => show(s.begin_epoch(&who(name)).await),
            Op::Announce { who: name } => {
                let presence = Presence { profile: "p".to_owned(), role: format!("role {}", step % 3) };
                show(s.announce(&info(name), &presence).await)
            }
            Op::Beat { who: name } => show(s.heartbeat(&info(name)).await),
            Op::Retire { who: name } => show(s.retire(&who(name)).await),
            Op::Kill { .. } | Op::Advance { .. } => String::new(),
            Op::ResolveTask { delegation: d, outcome } => {
                show(s.resolve_delegation(&delegation(d), end(outcome, 2)).await)
            }
            Op::Carry { .. } | Op::Deliver { .. } | Op::PutBack { .. } => self.carry(op).await,
            Op::Register { .. }
            | Op::Adopt { .. }
            | Op::Receipt { .. }
            | Op::FinishWorker { .. }
            | Op::LoseWorker { .. }
            | Op::Resolve { .. } => self.work(op).await,
            _ => self.fenced(op).await,
        }
    }

    async fn carry(&mut self, op: &Op) -> String {
        let store = Arc::clone(&self.store);
        match *op {
            Op::Carry { delegation: d, by } => {
                let claim = store.claim_result(&delegation(d), &who(by), 30_000).await;
                self.claims.extend(claim.as_ref().ok().cloned().flatten());
                show(claim)
            }
            Op::Deliver { claim, input: number } => {
                let Some(claim) = back(&self.claims, claim) else { return String::new() };
                let (parent, id) = (claim.record().parent.as_str(), claim.record().id.as_str());
                // Usually the right one; sometimes one that was used for something else.
                let new = input(parent, if number == 0 { id } else { "r0" }, "news");
                show(store.deliver_result(&claim, new).await)
            }
            Op::PutBack { claim } => match back(&self.claims, claim) {
                Some(claim) => show(store.release_result(&claim).await),
                None => String::new(),
            },
            _ => panic!("{op:?} carries nothing"),
        }
    }

    async fn work(&mut self, op: &Op) -> String {
        let store = Arc::clone(&self.store);
        let s = store.as_ref();
        match *op {
            Op::Register { fence, worker, task, by } => {
                let lease = fence.and_then(|fence| back(&self.leases, fence));
                let new = NewWorker {
                    id: execution(worker),
                    kind: WorkerKind::ALL[usize::from(worker)],
                    task: format!("task {task}"),
                    owner: who(by),
                    secret: secret("right"),
                };
                let outcome = s.register_worker(lease.as_ref().map(|(fence, _)| fence), new).await;
                if let Ok(RegisterOutcome::Registered(proof)) = &outcome {
                    self.proofs.push(proof.clone());
                }
                show(outcome)
            }
            Op::Resolve { worker, generation } => {
                let end = WorkerEnd { outcome: WorkerOutcome::Lost, detail: None };
                let known = s.worker(&execution(worker)).await.map_or(0, |record| record.generation.0);
                let generation = Generation(known - i64::from(generation / 3));
                show(s.resolve_worker(&execution(worker), generation, end).await)
            }
            Op::Adopt { proof, .. }
            | Op::Receipt { proof, .. }
            | Op::FinishWorker { proof, .. }
            | Op::LoseWorker { proof } => {
                let Some(proof) = back(&self.proofs, proof) else { return String::new() };
                self.prove(op, proof).await
            }
            _ => panic!("{op:?} is no work"),
        }
    }

    async fn prove(&mut self, op: &Op, proof: WorkerFence) -> String {
        let s = Arc::clone(&self.store);
        match *op {
            Op::Adopt { right, by, .. } => {
                let secret = secret(if right { "right" } else { "wrong" });
                let outcome = s.adopt_worker(proof.execution(), proof.generation(), &secret, &who(by)).await;
                if let Ok((proof, _)) = &outcome {
                    self.proofs.push(proof.clone());
                }
                show(outcome) + &show(s.present_worker(proof.execution(), proof.generation(), &secret).await)
            }
            Op::Receipt { sequence, payload, .. } => {
                let payload = format!("payload {payload}");
                let new = NewReceipt { sequence: i64::from(sequence), payload, result: "told".to_owned() };
                show(s.record_receipt(&proof, new).await)
            }
            Op::FinishWorker { outcome, .. } => {
                let end = WorkerEnd { outcome: WorkerOutcome::ALL[usize::from(outcome)], detail: None };
                show(s.finish_worker(&proof, end).await)
            }
            _ => show(s.lose_worker(&proof).await),
        }
    }

    async fn fenced(&mut self, op: &Op) -> String {
        let (Op::Settle { fence, .. }
        | Op::Release { fence }
        | Op::Delete { fence }
        | Op::Dispatch { fence, .. }
        | Op::Finish { fence, .. }
        | Op::AdoptTask { fence, .. }
        | Op::LoseTask { fence, .. }
        | Op::Collect { fence, .. }) = op
        else {
            panic!("{op:?} has no fence")
        };
        let Some((fence, turn)) = back(&self.leases, *fence) else { return String::new() };
        let s = &self.store;
        match *op {
            Op::Settle { release, .. } => {
                let outcome = AdmissionOutcome::Completed;
                let end = TurnEnd { reason: "completed".to_owned(), detail: None, outcome, api_calls: 1 };
                show(s.settle_turn(&fence, &turn, end, release).await)
            }
            Op::Release { .. } => show(s.release(&fence).await),
            Op::Delete { .. } => show(s.delete_conversation(&fence).await),
            Op::Dispatch { delegation: d, child, other, .. } => {
                let child = conversation(child);
                let payload = if other { "other" } else { "do it" };
                let new = NewDelegation {
                    id: delegation(d),
                    child: new_conversation(child.as_str()),
                    input: input(child.as_str(), &format!("d{d}"), payload),
                    task: "task".to_owned(),
                };
                show(s.dispatch(&fence, &turn, new).await)
            }
            Op::Finish { delegation: d, outcome, result, .. } => {
                show(s.finish_delegation(&fence, &delegation(d), end(outcome, result)).await)
            }
            Op::AdoptTask { delegation: d, .. } => show(s.adopt_delegation(&fence, &delegation(d)).await),
            Op::LoseTask { delegation: d, .. } => show(s.lose_delegation(&fence, &delegation(d)).await),
            Op::Collect { delegation: d, .. } => show(s.collect_result(&fence, &turn, &delegation(d)).await),
            _ => panic!("{op:?} is done elsewhere"),
        }
    }

    /// Everything that can be read.
    async fn view(&self) -> String {
        let s = &self.store;
        let mut out = show(s.workers(WorkerFilter { with_terminal: true, ..WorkerFilter::default() }).await);
        out += &show(s.workers(WorkerFilter::default()).await);
        for number in 0..3 {
            let c = conversation(number);
            out += &show(s.receipts(&execution(number), 0, 10).await);
            out += &show(s.workers(WorkerFilter { conversation: Some(c.clone()), ..WorkerFilter::default() }).await);
            out += &show(s.delegations(&c, 10).await);
            out += &show(s.queue(&c).await);
            out += &show(s.conversation(&c).await);
            out += &show(s.wait_for_change(&c, -1, 0).await);
        }
        for number in 0..4 {
            out += &show(s.delegation(&delegation(number)).await);
        }
        out += &show(s.due_results(10).await);
        out += &show(s.current_epoch().await);
        out + &show(s.owners().await)
    }
}

async fn compare(ops: &[Op], store: Arc<dyn Store>, clock: &ManualClock, probe: Arc<ListProbe>, model: MemoryStore) {
    model.set_probe(probe.clone());
    let mut model = Side::new(Arc::new(model));
    let mut other = Side::new(store);
    for (step, op) in ops.iter().enumerate() {
        match *op {
            Op::Advance { by } => clock.advance([1, 500, 15_000, 40_000, 100_000_000, -50_000][usize::from(by)]),
            Op::Kill { who: name } => probe.kill(&who(name)),
            _ => {}
        }
        let (want, got) = (model.apply(op, step).await, other.apply(op, step).await);
        assert_eq!(want, got, "step {step}: {op:?}");
        if step % 10 == 9 {
            assert_eq!(model.view().await, other.view().await, "after step {step}: {op:?}");
        }
    }
    assert_eq!(model.view().await, other.view().await);
}

async fn on_sqlite(ops: &[Op]) {
    let dir = tempfile::tempdir().unwrap();
    let (clock, probe) = (Arc::new(ManualClock::at(START_MS)), Arc::new(ListProbe::default()));
    let options = SqliteOptions {
        synchronous: Synchronous::Normal,
        probe: probe.clone(),
        ..SqliteOptions::new(dir.path().join("hermes.db"), clock.clone())
    };
    let sqlite = SqliteStore::open(options).await.unwrap();
    compare(ops, Arc::new(sqlite.clone()), &clock, probe, MemoryStore::new(clock.clone())).await;
    sqlite.close().await;
}

async fn on_postgres(ops: &[Op]) {
    let schema = support::TestSchema::new();
    let (clock, probe) = (Arc::new(ManualClock::at(START_MS)), Arc::new(ListProbe::default()));
    let store = schema.open(clock.clone(), probe.clone()).await;
    compare(ops, Arc::new(store), &clock, probe, MemoryStore::new(clock.clone())).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: SEQUENCES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_keeps_work_as_the_model_does(ops in proptest::collection::vec(op(), 1..STEPS)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(on_sqlite(&ops));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: SEQUENCES_ON_SERVER, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn postgres_keeps_work_as_the_model_does(ops in proptest::collection::vec(op(), 1..STEPS)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(on_postgres(&ops));
    }
}
