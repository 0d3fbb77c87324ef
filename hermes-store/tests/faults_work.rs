//! Every writing method of workers and delegations with every fault at its COMMIT, enumerated.
//!
//! A method is run once without a fault, and once more with each fault and then again with the same ids. Whoever reads
//! the store afterwards must not be able to tell which of them it was.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::fault::{Fault, Faults};
use hermes_store::{
    ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, DelegationEnd, DelegationId, DelegationOutcome,
    ExecutionId, Fence, Generation, NewDelegation, NewReceipt, NewWorker, OwnerInfo, Presence, RegisterOutcome,
    ResultClaim, Store, StoreError, TurnId, WorkerEnd, WorkerFence, WorkerFilter, WorkerKind, WorkerOutcome,
    WorkerSecret,
};

use support::storage::{Fresh, Storage, assert_complete, memory, postgres, sqlite, strike};

const TTL_MS: u64 = 300_000;

/// How far things are before the method runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// A parent at work, owners that beat.
    Parent,
    /// A worker is registered.
    Registered,
    /// And unknown.
    LostWorker,
    /// A task was given away, and the child is at work.
    Dispatched,
    /// And nobody knows what became of it.
    LostTask,
    /// And it ended.
    Ended,
    /// And somebody carries the result.
    Carried,
}

struct At {
    turn: TurnId,
    parent: Fence,
    child: Option<Fence>,
    worker: Option<WorkerFence>,
    claim: Option<ResultClaim>,
}

impl At {
    fn worker(&self) -> &WorkerFence {
        self.worker.as_ref().unwrap()
    }

    fn child(&self) -> &Fence {
        self.child.as_ref().unwrap()
    }

    fn claim(&self) -> &ResultClaim {
        self.claim.as_ref().unwrap()
    }
}

/// What a repetition after a change that holds finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    /// The same as the first time.
    Fine,
    /// The claim that was lost keeps the result until its time is over; nothing else is different.
    Waits,
}

type Done<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

struct Operation {
    name: &'static str,
    stage: Stage,
    again: Again,
    run: for<'a> fn(&'a dyn Store, &'a At) -> Done<'a>,
}

macro_rules! operations {
    ($($name:ident at $stage:ident, again $again:ident => |$s:ident, $at:ident| $body:expr;)*) => {
        /// Every writing method.
        const OPERATIONS: &[Operation] = &[$(Operation {
            name: stringify!($name),
            stage: Stage::$stage,
            again: Again::$again,
            run: |$s, $at| Box::pin(async move {
                let _ = $at;
                $body.await.map(drop)
            }),
        }),*];
    };
}

operations! {
    register_worker at Parent, again Fine => |s, at| s.register_worker(Some(&at.parent), worker());
    adopt_worker at LostWorker, again Fine => |s, at| async move {
        s.adopt_worker(&execution(), at.worker().generation(), &secret(), &owner("b")).await
    };
    record_receipt at Registered, again Fine => |s, at| s.record_receipt(at.worker(), receipt());
    finish_worker at Registered, again Fine => |s, at| s.finish_worker(at.worker(), worker_end());
    lose_worker at Registered, again Fine => |s, at| s.lose_worker(at.worker());
    resolve_worker at LostWorker, again Fine => |s, at| async move {
        s.resolve_worker(&execution(), at.worker().generation(), worker_end()).await
    };
    sweep_workers at Registered, again Fine => |s, at| s.sweep_workers();
    begin_epoch at Parent, again Fine => |s, at| async move { s.begin_epoch(&owner("a")).await };
    announce at Parent, again Fine => |s, at| async move { s.announce(&info("a"), &presence()).await };
    dispatch at Parent, again Fine => |s, at| s.dispatch(&at.parent, &at.turn, task());
    finish_delegation at Dispatched, again Fine => |s, at| async move {
        s.finish_delegation(at.child(), &delegation(), end()).await
    };
    adopt_delegation at LostTask, again Fine => |s, at| async move {
        s.adopt_delegation(at.child(), &delegation()).await
    };
    lose_delegation at Dispatched, again Fine => |s, at| async move {
        s.lose_delegation(at.child(), &delegation()).await
    };
    resolve_delegation at LostTask, again Fine => |s, at| async move {
        s.resolve_delegation(&delegation(), end()).await
    };
    sweep_delegations at Dispatched, again Fine => |s, at| s.sweep_delegations();
    claim_result at Ended, again Waits => |s, at| async move {
        s.claim_result(&delegation(), &owner("b"), TTL_MS).await
    };
    deliver_result at Carried, again Fine => |s, at| s.deliver_result(at.claim(), input("parent", "d", "result"));
    release_result at Carried, again Fine => |s, at| s.release_result(at.claim());
    collect_result at Ended, again Fine => |s, at| async move {
        s.collect_result(&at.parent, &at.turn, &delegation()).await
    };
}

/// Every method that only reads.
const READS: &[&str] = &[
    "present_worker",
    "worker",
    "workers",
    "receipts",
    "current_epoch",
    "owners",
    "due_results",
    "delegation",
    "delegations",
];

fn execution() -> ExecutionId {
    ExecutionId::parse("e").unwrap()
}

fn delegation() -> DelegationId {
    DelegationId::parse("d").unwrap()
}

fn conversation(name: &str) -> ConversationId {
    ConversationId::parse(name).unwrap()
}

fn secret() -> WorkerSecret {
    WorkerSecret::parse(&"s".repeat(40)).unwrap()
}

fn worker() -> NewWorker {
    let task = "cron:job:1".to_owned();
    NewWorker { id: execution(), kind: WorkerKind::Cron, task, owner: owner("gone"), secret: secret() }
}

fn receipt() -> NewReceipt {
    NewReceipt { sequence: 1, payload: "output".to_owned(), result: "thanks".to_owned() }
}

fn worker_end() -> WorkerEnd {
    WorkerEnd { outcome: WorkerOutcome::Completed, detail: None }
}

fn task() -> NewDelegation {
    let child = new_conversation("child");
    NewDelegation { id: delegation(), child, input: input("child", "r", "do it"), task: "a task".to_owned() }
}

fn end() -> DelegationEnd {
    DelegationEnd { outcome: DelegationOutcome::Completed, result: "result".to_owned() }
}

fn info(name: &str) -> OwnerInfo {
    OwnerInfo { id: owner(name), host: "here".to_owned(), boot_id: "boot".to_owned(), pid: 1, pid_start: 1 }
}

fn presence() -> Presence {
    Presence { profile: "default".to_owned(), role: "gateway".to_owned() }
}

async fn start(s: &dyn Store, name: &str) -> (Fence, TurnId) {
    let turn = TurnId::parse(&format!("turn-{name}")).unwrap();
    let request = ClaimRequest {
        conversation: conversation(name),
        owner: owner("gone"),
        turn: turn.clone(),
        ttl_ms: TTL_MS,
        policy: ClaimPolicy::Any,
    };
    match s.claim(request).await.unwrap() {
        ClaimOutcome::Turn { fence, .. } => (fence, turn),
        other => panic!("no turn: {other:?}"),
    }
}

/// Brings a store to a stage.
async fn prepare(s: &dyn Store, stage: Stage) -> At {
    for name in ["a", "gone"] {
        s.heartbeat(&info(name)).await.unwrap();
    }
    s.create_and_admit(new_conversation("parent"), input("parent", "r", "hello")).await.unwrap();
    let (parent, turn) = start(s, "parent").await;
    let mut at = At { turn, parent, child: None, worker: None, claim: None };
    match stage {
        Stage::Parent => return at,
        Stage::Registered | Stage::LostWorker => {
            let RegisterOutcome::Registered(fence) = s.register_worker(Some(&at.parent), worker()).await.unwrap()
            else {
                panic!("busy")
            };
            if stage == Stage::LostWorker {
                s.lose_worker(&fence).await.unwrap();
            }
            at.worker = Some(fence);
            return at;
        }
        _ => {}
    }
    s.dispatch(&at.parent, &at.turn, task()).await.unwrap();
    let (child, _) = start(s, "child").await;
    if stage == Stage::LostTask {
        s.lose_delegation(&child, &delegation()).await.unwrap();
    }
    if stage >= Stage::Ended {
        s.finish_delegation(&child, &delegation(), end()).await.unwrap();
    }
    if stage == Stage::Carried {
        at.claim = s.claim_result(&delegation(), &owner("b"), TTL_MS).await.unwrap();
    }
    at.child = Some(child);
    at
}

/// All that a reader can find out.
async fn look(s: &dyn Store) -> String {
    let everything = WorkerFilter { with_terminal: true, ..WorkerFilter::default() };
    let mut out = format!("{:#?}", s.workers(everything).await);
    out += &format!("{:#?}", s.receipts(&execution(), 0, 10).await.map_err(|error| error.code()));
    out += &format!("{:#?} {:#?}", s.current_epoch().await, s.owners().await);
    out += &format!("{:#?}", s.due_results(10).await);
    for name in ["parent", "child"] {
        out += &format!("{:#?}", s.delegations(&conversation(name), 10).await);
        out += &format!("{:#?}", s.queue(&conversation(name)).await.map_err(|error| error.code()));
        out += &format!("{:#?}", s.conversation(&conversation(name)).await.map_err(|error| error.code()));
    }
    out
}

/// Another handle of a storage whose owner `gone` is provably dead.
async fn open(storage: &dyn Storage, faults: &Faults) -> Arc<dyn Store> {
    storage.setting().probe.kill(&owner("gone"));
    storage.open(faults).await
}

/// Runs a method with a fault, if any, and then again with the same ids; what is there before and afterwards.
async fn run(operation: &Operation, fault: Option<Fault>, fresh: Fresh) -> (String, String) {
    let (storage, faults) = (fresh(), Faults::default());
    let mut store = open(storage.as_ref(), &faults).await;
    let at = prepare(store.as_ref(), operation.stage).await;
    let before = look(store.as_ref()).await;
    if let Some(fault) = fault {
        let handle = Arc::clone(&store);
        let call = (operation.run)(handle.as_ref(), &at);
        store = strike(storage.as_ref(), (store, faults), fault, operation.name, call).await;
    }
    let told = (operation.run)(store.as_ref(), &at).await;
    told.unwrap_or_else(|error| panic!("{} with {fault:?}: {error}", operation.name));
    (before, look(store.as_ref()).await)
}

async fn check_all(fresh: Fresh) {
    for operation in OPERATIONS {
        let (before, want) = run(operation, None, fresh).await;
        assert_ne!(before, want, "{} changes nothing that is seen", operation.name);
        for fault in Fault::ALL {
            let (_, found) = run(operation, Some(fault), fresh).await;
            // A repetition counts one change more of the conversation, which nobody reads here.
            assert_eq!(found, want, "{} with {fault:?}", operation.name);
        }
    }
    assert_eq!(OPERATIONS.iter().filter(|operation| operation.again == Again::Waits).count(), 1);
}

#[tokio::test]
async fn i17_every_operation_of_work_with_every_fault_on_sqlite() {
    check_all(sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i17_every_operation_of_work_with_every_fault_on_postgres() {
    check_all(postgres).await;
}

#[tokio::test]
async fn i17_every_operation_of_work_with_every_fault_in_memory() {
    check_all(memory).await;
}

#[tokio::test]
async fn s43_a_claim_whose_answer_was_lost_ends_by_its_time() {
    for fault in [Fault::ReplyLost, Fault::Dies] {
        let (storage, faults) = (sqlite(), Faults::default());
        let store = open(storage.as_ref(), &faults).await;
        prepare(store.as_ref(), Stage::Ended).await;
        faults.arm(fault);
        assert!(store.claim_result(&delegation(), &owner("b"), TTL_MS).await.is_err());
        let store = open(storage.as_ref(), &Faults::default()).await;
        assert_eq!(store.claim_result(&delegation(), &owner("b"), TTL_MS).await.unwrap(), None);
        storage.setting().clock.advance(i64::try_from(TTL_MS).unwrap());
        let claim = store.claim_result(&delegation(), &owner("b"), TTL_MS).await.unwrap().unwrap();
        assert_eq!(claim.record().attempts, 2);
        store.deliver_result(&claim, input("parent", "d", "result")).await.unwrap();
    }
}

#[tokio::test]
async fn i08_a_generation_of_a_worker_is_never_given_out_again() {
    let storage = sqlite();
    let mut last = Generation(0);
    for (number, fault) in Fault::ALL.into_iter().enumerate() {
        let faults = Faults::default();
        let store = open(storage.as_ref(), &faults).await;
        let new = |half: &str| NewWorker {
            id: ExecutionId::parse(&format!("e{number}{half}")).unwrap(),
            task: format!("t{number}{half}"),
            ..worker()
        };
        faults.arm(fault);
        assert!(store.register_worker(None, new("a")).await.is_err());
        let store = open(storage.as_ref(), &Faults::default()).await;
        let mut generations = Vec::new();
        for half in ["a", "b"] {
            let RegisterOutcome::Registered(fence) = store.register_worker(None, new(half)).await.unwrap() else {
                panic!("busy")
            };
            generations.push(fence.generation());
        }
        assert!(last < generations[0] && generations[0] < generations[1], "{fault:?}");
        last = generations[1];
    }
}

#[test]
fn no_method_of_work_is_forgotten() {
    let texts = [include_str!("../src/work.rs"), include_str!("../src/delegation.rs")];
    assert_complete(&texts, &OPERATIONS.iter().map(|operation| operation.name).collect(), READS);
}
