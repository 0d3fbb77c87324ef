//! Every writing method of the store with every fault at its COMMIT, enumerated.
//!
//! A method is run once without a fault, and once more with each fault and then again with the same ids, as its caller
//! is told to. Whoever reads the store afterwards must not be able to tell which of them it was.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code outside test functions")]

mod support;

use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::fault::{Fault, Faults};
use hermes_store::{
    AdmissionOutcome, CallId, CallOutcome, CallResult, ChangeId, ClaimOutcome, ClaimPolicy, ClaimRequest, Compaction,
    CompressionLock, ConversationId, Fence, FlagChange, Generation, Intent, LockOutcome, MessageId, MessageKind,
    MessagePage, NewAdmission, NewBranch, NewCall, NewMessage, NewSession, OwnerInfo, PromptSnapshot, PruneRules,
    ReplaySafety, Rewind, Role, Rotation, Round, SessionId, Store, StoreError, TakeLock, TitleSource, TurnEnd, TurnId,
    UsageDelta, View, ViewMark, ViewRow,
};

use support::storage::{Fresh, Storage, assert_complete, memory, postgres, sqlite, strike};

const TTL_MS: u64 = 300_000;

/// How far the conversation is before the method runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Nothing is stored.
    Nothing,
    /// An input waits.
    Admitted,
    /// Its turn was claimed.
    Claimed,
    /// With a session and a user row.
    Opened,
    /// With a round of one call.
    Recorded,
    /// Which has begun.
    Started,
    /// And has its result.
    Settled,
    /// The answer is stored.
    Answered,
    /// The turn has ended and the lease is held.
    Ended,
    /// Nobody knows what became of the turn.
    Lost,
    /// The turn has ended, and the lock on the compression is held.
    Locked,
    /// The turn has ended and was undone.
    Rewound,
    /// The conversation is over, and nobody holds it.
    Over,
}

/// What the caller holds.
struct At {
    fence: Option<Fence>,
    turn: TurnId,
    lock: Option<CompressionLock>,
    mark: Option<ViewMark>,
}

impl At {
    fn fence(&self) -> &Fence {
        self.fence.as_ref().expect("a stage with a lease")
    }

    fn lock(&self) -> &CompressionLock {
        self.lock.as_ref().expect("a stage with a lock")
    }

    fn mark(&self) -> ViewMark {
        self.mark.clone().expect("a stage whose turn has ended")
    }
}

/// What a repetition after a change that holds is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    /// The same as the first time.
    Fine,
    /// That it cannot be done any more: the caller reads back what holds.
    Refused(&'static str),
    /// A number that was never given out before: the lost one is not used again.
    Grows,
}

type Done<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

struct Operation {
    name: &'static str,
    stage: Stage,
    again: Again,
    run: for<'a> fn(&'a dyn Store, &'a At) -> Done<'a>,
}

macro_rules! operations {
    ($($name:ident at $stage:ident, again $again:expr => |$s:ident, $at:ident| $body:expr;)*) => {
        /// Every writing method.
        const OPERATIONS: &[Operation] = &[$(Operation {
            name: stringify!($name),
            stage: Stage::$stage,
            again: $again,
            run: |$s, $at| Box::pin(async move {
                let _ = $at;
                $body.await.map(drop)
            }),
        }),*];
    };
}

operations! {
    admit at Admitted, again Again::Fine => |s, at| s.admit(input("c", "r2", "more"));
    create_and_admit at Nothing, again Again::Fine => |s, at|
        s.create_and_admit(new_conversation("c"), input("c", "r1", "hello"));
    cancel at Admitted, again Again::Refused("HM1015") => |s, at| s.cancel(&input("c", "r1", "").id);
    resolve_unknown at Lost, again Again::Refused("HM1015") => |s, at|
        s.resolve_unknown(&input("c", "r1", "").id, Generation(1), end("resolved"));
    heartbeat at Admitted, again Again::Fine => |s, at| async move { s.heartbeat(&info()).await };
    retire at Claimed, again Again::Fine => |s, at| async move { s.retire(&owner("a")).await };
    claim at Admitted, again Again::Fine => |s, at| s.claim(request("a", &at.turn));
    renew at Claimed, again Again::Fine => |s, at| s.renew(at.fence(), TTL_MS * 2);
    release at Claimed, again Again::Fine => |s, at| s.release(at.fence());
    adopt_turn at Opened, again Again::Grows => |s, at| s.adopt_turn(at.fence(), &at.turn);
    requeue at Opened, again Again::Refused("HM1015") => |s, at| s.requeue(at.fence(), &at.turn);
    settle_turn at Answered, again Again::Fine => |s, at|
        s.settle_turn(at.fence(), &at.turn, end("completed"), true);
    lose_turn at Started, again Again::Fine => |s, at| s.lose_turn(at.fence(), &at.turn);
    open_session at Claimed, again Again::Fine => |s, at|
        s.open_session(at.fence(), &at.turn, session("m"), vec![row("u1", Role::User)]);
    change_session at Opened, again Again::Fine => |s, at|
        s.change_session(at.fence(), &at.turn, session("other"));
    append at Settled, again Again::Fine => |s, at|
        s.append(at.fence(), &at.turn, vec![row("a2", Role::Assistant)], Some(usage("attempt-2")));
    record_round at Opened, again Again::Fine => |s, at| s.record_round(at.fence(), round(&at.turn));
    start_calls at Recorded, again Again::Fine => |s, at| async move {
        s.start_calls(at.fence(), &at.turn, &[call()]).await
    };
    settle_call at Started, again Again::Fine => |s, at| async move {
        s.settle_call(at.fence(), &at.turn, &call(), result()).await
    };
    take_steers at Opened, again Again::Fine => |s, at| async move {
        let one = |steer: &hermes_store::AdmissionRecord| row(steer.receipt.admission.as_str(), Role::User);
        s.take_steers(at.fence(), &at.turn, &|taken| taken.iter().map(one).collect()).await
    };
    count_usage at Opened, again Again::Fine => |s, at| s.count_usage(at.fence(), usage("attempt-3"));
    set_title at Opened, again Again::Fine => |s, at| s.set_title(at.fence(), "A title", TitleSource::User);
    delete_conversation at Ended, again Again::Fine => |s, at| s.delete_conversation(at.fence());
    set_flags at Ended, again Again::Fine => |s, at|
        s.set_flags(at.fence(), FlagChange { pinned: Some(true), ..FlagChange::default() });
    end_conversation at Ended, again Again::Fine => |s, at| async move {
        s.end_conversation(at.fence(), "idle").await
    };
    add_alias at Ended, again Again::Fine => |s, at| async move {
        s.add_alias(at.fence(), &SessionId::parse("an-old-id").unwrap()).await
    };
    prune at Over, again Again::Fine => |s, at| s.prune(PruneRules { idle_ms: 0, every_ms: 0, ..PruneRules::default() });
    take_compression_lock at Ended, again Again::Fine => |s, at| s.take_compression_lock(at.fence(), take());
    renew_compression_lock at Locked, again Again::Fine => |s, at| async move {
        s.renew_compression_lock(at.fence(), at.lock(), TTL_MS).await
    };
    release_compression_lock at Locked, again Again::Fine => |s, at| async move {
        s.release_compression_lock(at.fence(), at.lock()).await
    };
    fail_compression at Locked, again Again::Refused("HM1018") => |s, at|
        s.fail_compression(at.fence(), at.lock(), 60_000, "the model was slow");
    rotate at Locked, again Again::Fine => |s, at| s.rotate(at.fence(), at.lock(), rotation(at));
    compact at Locked, again Again::Fine => |s, at| s.compact(at.fence(), at.lock(), compaction(at));
    rewind at Ended, again Again::Fine => |s, at| s.rewind(at.fence(), rewind(at));
    retry at Ended, again Again::Fine => |s, at| s.retry(at.fence(), rewind(at), input("c", "r3", "again"));
    restore at Rewound, again Again::Fine => |s, at| async move { s.restore(at.fence(), &change()).await.map(drop) };
    branch at Ended, again Again::Fine => |s, at| s.branch(branch());
    next_generation at Nothing, again Again::Grows => |s, at| s.next_generation("cli", "key");
}

/// Every method that only reads: without a COMMIT there is no fault.
const READS: &[&str] = &[
    "admission",
    "admission_of",
    "turn",
    "wait_for_change",
    "messages",
    "prompt",
    "conversations",
    "conversation",
    "session",
    "lineage",
    "tip",
    "resolve",
    "changes",
    "usage",
    "queue",
];

fn conv() -> ConversationId {
    ConversationId::parse("c").unwrap()
}

fn call() -> CallId {
    CallId::parse("call-1").unwrap()
}

fn row(id: &str, role: Role) -> NewMessage {
    NewMessage::text(MessageId::parse(id).unwrap(), role, format!("text of {id}"))
}

fn end(reason: &str) -> TurnEnd {
    TurnEnd { reason: reason.to_owned(), detail: None, outcome: AdmissionOutcome::Completed, api_calls: 2 }
}

fn info() -> OwnerInfo {
    OwnerInfo { id: owner("a"), host: "here".to_owned(), boot_id: "boot".to_owned(), pid: 1, pid_start: 1 }
}

fn request(who: &str, turn: &TurnId) -> ClaimRequest {
    ClaimRequest {
        conversation: conv(),
        owner: owner(who),
        turn: turn.clone(),
        ttl_ms: TTL_MS,
        policy: ClaimPolicy::Any,
    }
}

fn session(model: &str) -> NewSession {
    NewSession {
        id: SessionId::parse("c").unwrap(),
        parent: None,
        provider: "p".to_owned(),
        model: model.to_owned(),
        cwd: None,
        prompt: PromptSnapshot::new(&b"prompt"[..]),
        tools: PromptSnapshot::new(&b"[]"[..]),
    }
}

fn change() -> ChangeId {
    ChangeId::parse("change-1").unwrap()
}

/// The turn of rows that no turn writes.
fn by_hand() -> TurnId {
    TurnId::parse("by-hand").unwrap()
}

fn take() -> TakeLock {
    TakeLock { session: SessionId::parse("c").unwrap(), holder: "one attempt".to_owned(), ttl_ms: TTL_MS, force: false }
}

/// A summary and the answer: less than the question, the round and the answer.
fn smaller() -> Vec<ViewRow> {
    let summary = NewMessage { kind: MessageKind::Summary, ..row("s", Role::User) };
    vec![ViewRow::New(summary), ViewRow::Carry(MessageId::parse("a2").unwrap())]
}

fn rotation(at: &At) -> Rotation {
    let child = NewSession {
        id: SessionId::parse("child").unwrap(),
        parent: Some(SessionId::parse("c").unwrap()),
        ..session("m")
    };
    Rotation { id: change(), turn: by_hand(), mark: at.mark(), child, rows: smaller() }
}

fn compaction(at: &At) -> Compaction {
    Compaction { id: change(), turn: by_hand(), mark: at.mark(), session: None, rows: smaller() }
}

fn rewind(at: &At) -> Rewind {
    Rewind { id: change(), mark: at.mark(), from: MessageId::parse("u1").unwrap() }
}

fn branch() -> NewBranch {
    NewBranch { conversation: new_conversation("b"), from: conv(), view: View::Model, up_to: None }
}

fn usage(attempt: &str) -> UsageDelta {
    UsageDelta {
        attempt: attempt.to_owned(),
        provider: "p".to_owned(),
        model: "m".to_owned(),
        task: String::new(),
        input: 7,
        output: 5,
        cache_read: 0,
        cache_write: 0,
        reasoning: 0,
        known: true,
    }
}

fn round(turn: &TurnId) -> Round<hermes_store::Planned> {
    let call = NewCall {
        call: call(),
        result: MessageId::parse("result-1").unwrap(),
        provider_id: "toolu_1".to_owned(),
        name: "shell".to_owned(),
        arguments: "{}".to_owned(),
        replay: ReplaySafety::Once,
        preset: None,
    };
    Round::plan(turn.clone(), row("a1", Role::Assistant), vec![call], Some(usage("attempt-1")))
}

fn result() -> CallResult {
    CallResult { outcome: CallOutcome::Ok, content: "done".to_owned(), meta: None }
}

/// Brings a store to a stage.
async fn prepare(s: &dyn Store, stage: Stage) -> At {
    let turn = TurnId::parse("turn-1").unwrap();
    let mut at = At { fence: None, turn: turn.clone(), lock: None, mark: None };
    if stage == Stage::Nothing {
        return at;
    }
    s.create_and_admit(new_conversation("c"), input("c", "r1", "hello")).await.unwrap();
    if stage == Stage::Admitted {
        return at;
    }
    s.heartbeat(&info()).await.unwrap();
    let ClaimOutcome::Turn { fence, .. } = s.claim(request("a", &turn)).await.unwrap() else { panic!("no turn") };
    at.fence = Some(fence.clone());
    if stage == Stage::Claimed {
        return at;
    }
    s.open_session(&fence, &turn, session("m"), vec![row("u1", Role::User)]).await.unwrap();
    if stage == Stage::Opened {
        // Something for the steers to take.
        s.admit(NewAdmission { intent: Intent::Steer, ..input("c", "steer", "left") }).await.unwrap();
        return at;
    }
    s.record_round(&fence, round(&turn)).await.unwrap();
    if stage == Stage::Recorded {
        return at;
    }
    s.start_calls(&fence, &turn, &[call()]).await.unwrap();
    if stage == Stage::Lost {
        s.lose_turn(&fence, &turn).await.unwrap();
    }
    if matches!(stage, Stage::Started | Stage::Lost) {
        return at;
    }
    s.settle_call(&fence, &turn, &call(), result()).await.unwrap();
    if stage == Stage::Settled {
        return at;
    }
    s.append(&fence, &turn, vec![row("a2", Role::Assistant)], None).await.unwrap();
    if stage == Stage::Answered {
        return at;
    }
    s.settle_turn(&fence, &turn, end("completed"), false).await.unwrap();
    let rows = s.messages(&conv(), View::Model, MessagePage::default()).await.unwrap();
    at.mark = Some(ViewMark::of(SessionId::parse("c").unwrap(), &rows));
    match stage {
        Stage::Locked => {
            let LockOutcome::Taken(lock) = s.take_compression_lock(&fence, take()).await.unwrap() else {
                panic!("the lock is not free")
            };
            at.lock = Some(lock);
        }
        Stage::Rewound => drop(s.rewind(&fence, rewind(&at)).await.unwrap()),
        Stage::Over => {
            s.end_conversation(&fence, "idle").await.unwrap();
            s.release(&fence).await.unwrap();
        }
        _ => {}
    }
    at
}

/// All that a reader can find out, and last what a claim by somebody else is told.
async fn look(s: &dyn Store, at: &At) -> String {
    let mut out = String::new();
    let mut note = |what: &str, found: &dyn std::fmt::Debug| writeln!(out, "{what}: {found:#?}").unwrap();
    note("conversation", &s.conversation(&conv()).await.map_err(|error| error.code()));
    note("queue", &s.queue(&conv()).await.map_err(|error| error.code()));
    for request in ["r1", "r2", "r3", "steer"] {
        let id = input("c", request, "").id;
        note(request, &s.admission(&id).await.map_err(|error| error.code()));
    }
    for view in [View::Display, View::Model] {
        note("rows", &s.messages(&conv(), view, MessagePage::default()).await.map_err(|error| error.code()));
    }
    note("turn", &s.turn(&at.turn).await.map_err(|error| error.code()));
    note("session", &s.session(&SessionId::parse("c").unwrap()).await.map_err(|error| error.code()));
    note("lineage", &s.lineage(&conv()).await.map_err(|error| error.code()));
    note("changes", &s.changes(&conv()).await.map_err(|error| error.code()));
    note("alias", &s.tip("an-old-id").await.map_err(|error| error.code()));
    note("branch", &s.conversation(&ConversationId::parse("b").unwrap()).await.map_err(|error| error.code()));
    note("usage", &s.usage(&conv()).await.map_err(|error| error.code()));
    note("claim", &s.claim(request("z", &TurnId::parse("turn-z").unwrap())).await.map_err(|error| error.code()));
    out
}

/// Runs a method with a fault, and again with the same ids; what is there afterwards.
async fn faulted(storage: &dyn Storage, operation: &Operation, fault: Fault) -> String {
    let name = operation.name;
    let faults = Faults::default();
    let store = storage.open(&faults).await;
    let at = prepare(store.as_ref(), operation.stage).await;
    let call = (operation.run)(store.as_ref(), &at);
    let store = strike(storage, (Arc::clone(&store), faults), fault, name, call).await;
    let again = (operation.run)(store.as_ref(), &at).await;
    match operation.again {
        Again::Refused(code) if fault != Fault::BeforeCommit => {
            assert_eq!(again.map_err(|error| error.code()), Err(code), "{name} with {fault:?}");
        }
        _ => again.unwrap_or_else(|error| panic!("{name} with {fault:?}: {error}")),
    }
    look(store.as_ref(), &at).await
}

async fn check(operation: &Operation, fresh: Fresh) {
    let storage = fresh();
    let store = storage.open(&Faults::default()).await;
    let at = prepare(store.as_ref(), operation.stage).await;
    let before = look_only(store.as_ref(), &at).await;
    (operation.run)(store.as_ref(), &at).await.unwrap_or_else(|error| panic!("{}: {error}", operation.name));
    let want = look(store.as_ref(), &at).await;
    if !matches!(
        operation.name,
        "heartbeat"
            | "next_generation"
            | "renew"
            | "release"
            | "retire"
            | "claim"
            | "take_compression_lock"
            | "renew_compression_lock"
            | "release_compression_lock"
            | "fail_compression"
            | "add_alias"
            | "branch"
    ) {
        assert_ne!(before, look_only(store.as_ref(), &at).await, "{} changes nothing that is seen", operation.name);
    }
    for fault in Fault::ALL {
        let found = faulted(fresh().as_ref(), operation, fault).await;
        match operation.again {
            Again::Grows => assert_eq!(without_counts(&found), without_counts(&want), "{} {fault:?}", operation.name),
            _ => assert_eq!(found, want, "{} with {fault:?}", operation.name),
        }
    }
}

/// As [`look`], without the claim.
async fn look_only(s: &dyn Store, at: &At) -> String {
    let mut out = String::new();
    write!(
        out,
        "{:?} {:?} {:?} {:?} {:?} {:?}",
        s.conversation(&conv()).await.map_err(|error| error.code()),
        s.queue(&conv()).await.map_err(|error| error.code()),
        s.messages(&conv(), View::Display, MessagePage::default()).await.map_err(|error| error.code()),
        s.turn(&at.turn).await.map_err(|error| error.code()),
        s.session(&SessionId::parse("c").unwrap()).await.map_err(|error| error.code()),
        s.usage(&conv()).await.map_err(|error| error.code()),
    )
    .unwrap();
    out
}

/// A counter that a lost answer made one larger is no difference.
fn without_counts(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("attempt: ")).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn i17_every_operation_with_every_fault_on_sqlite() {
    for operation in OPERATIONS {
        check(operation, sqlite).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i17_every_operation_with_every_fault_on_postgres() {
    for operation in OPERATIONS {
        check(operation, postgres).await;
    }
}

#[tokio::test]
async fn i17_every_operation_with_every_fault_in_memory() {
    for operation in OPERATIONS {
        check(operation, memory).await;
    }
}

#[tokio::test]
async fn i08_a_generation_whose_answer_was_lost_is_never_given_out_again() {
    let storage = sqlite();
    let mut last = Generation(0);
    for fault in Fault::ALL {
        let faults = Faults::default();
        let store = storage.open(&faults).await;
        let before = store.next_generation("cli", "key").await.unwrap();
        faults.arm(fault);
        assert!(store.next_generation("cli", "key").await.is_err());
        let after = storage.open(&Faults::default()).await.next_generation("cli", "key").await.unwrap();
        let lost = i64::from(fault != Fault::BeforeCommit);
        assert_eq!((before.0, after.0), (last.0 + 1, before.0 + 1 + lost), "{fault:?}");
        last = after;
    }
}

#[test]
fn no_method_is_forgotten() {
    let written = OPERATIONS.iter().map(|operation| operation.name).collect();
    assert_complete(&[include_str!("../src/traits.rs")], &written, READS);
}
