//! What comes in and goes out, questions, imports and the index, with every fault at the COMMIT, enumerated.
//!
//! A method is run once without a fault, and once more with each fault and then again with the same ids. Whoever reads
//! the store afterwards must not be able to tell which of them it was.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code outside test functions")]

mod support;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::fault::{Fault, Faults};
use hermes_store::limits::{APPROVAL_KEEP_MS, INBOUND_KEEP_MS, SEND_KEEP_MS};
use hermes_store::memory::MemoryStore;
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::transfer::TransferStore as _;
use hermes_store::transfer::bundle::{BundlePart, BundleSource, ImportKey, ImportOutcome};
use hermes_store::{
    AdmissionOutcome, AmbiguousPolicy, ApprovalAnswer, ApprovalId, CallId, ClaimOutcome, ClaimPolicy, ClaimRequest,
    ConversationFilter, ConversationId, DeliveryClaim, DeliveryDecision, DeliveryFence, DeliveryFilter, DeliveryKind,
    DeliveryRequest, DeliveryState, Fence, Generation, Inbound, InboundKey, LockOutcome, MaintenanceStore as _,
    ManualClock, MessageId, MessageKind, MessagePage, MessageRef, NewApproval, NewCall, NewDelivery, NewMessage,
    NewSession, OwnerInfo, PromptSnapshot, ReceiveOutcome, ReplaySafety, Reply, RetryAfter, Role, Rotation, Round,
    RouteKey, SearchQuery, SessionId, Store, StoreError, TakeLock, Target, TurnEnd, TurnId, VacuumOutcome, View,
    ViewMark, ViewRow,
};

use support::storage::{Fresh, Storage, assert_complete, memory, postgres, sqlite, strike};

const TTL_MS: u64 = 300_000;

/// How far things are before the method runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Nothing is stored, and there is a bundle.
    Nothing,
    /// A message was received.
    Received,
    /// It was taken back long ago.
    Forgotten,
    /// It is being answered, by a call that has begun; a generation of the route was handed out.
    Running,
    /// What was said is in the index.
    Indexed,
    /// A question was asked.
    Asked,
    /// And nobody answered in time.
    Late,
    /// And it was answered long ago.
    Answered,
    /// The turn has ended: its answer is owed.
    Owed,
    /// And is being sent.
    Sending,
    /// And its sender is gone.
    Ambiguous,
    /// And it was delivered long ago.
    Delivered,
}

/// What the caller holds.
struct At {
    fence: Option<Fence>,
    turn: TurnId,
    send: Option<DeliveryFence>,
    generation: Generation,
    parts: Vec<BundlePart>,
}

impl At {
    fn fence(&self) -> &Fence {
        self.fence.as_ref().expect("a stage with a lease")
    }

    fn send(&self) -> &DeliveryFence {
        self.send.as_ref().expect("a stage with an attempt")
    }
}

type Done<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

struct Operation {
    name: &'static str,
    variant: &'static str,
    stage: Stage,
    run: for<'a> fn(&'a dyn Store, &'a At) -> Done<'a>,
}

macro_rules! operations {
    ($($name:ident $variant:literal at $stage:ident => |$s:ident, $at:ident| $body:expr;)*) => {
        /// Every writing method. Each of them may be repeated: the answer is no error.
        const OPERATIONS: &[Operation] = &[$(Operation {
            name: stringify!($name),
            variant: $variant,
            stage: Stage::$stage,
            run: |$s, $at| Box::pin(async move {
                let _ = $at;
                $body.await.map(drop)
            }),
        }),*];
    };
}

operations! {
    receive "the first of a chat" at Nothing => |s, at|
        s.receive(message("m1"), Some(new_conversation("c")), input("c", "m1", "hello"));
    receive "one more" at Running => |s, at| s.receive(message("m2"), None, input("c", "m2", "more"));
    receive "an edited one" at Received => |s, at| {
        let edited = Inbound { content: "edited".to_owned(), ..message("m1") };
        s.receive(edited, None, input("c", "m1-again", "edited"))
    };
    receive "one that nothing names" at Running => |s, at| {
        let key = InboundKey { message: MessageRef::NotIdempotent, ..message("m3").key };
        s.receive(Inbound { key, ..message("m3") }, None, input("c", "m3", "once"))
    };
    prune_inbound "" at Forgotten => |s, at| s.prune_inbound();
    set_route "" at Running => |s, at| async move { s.set_route(&route(), at.generation, &conv("c")).await };
    reset_route "by a command" at Received => |s, at| async move {
        s.reset_route(&route(), Generation(1), new_conversation("new"), Some(message("command").key)).await
    };
    reset_route "by nothing that has a name" at Received => |s, at| async move {
        s.reset_route(&route(), Generation(1), new_conversation("new"), None).await
    };
    record_deliveries "" at Running => |s, at| s.record_deliveries(at.fence(), &at.turn, messages());
    claim_delivery "" at Owed => |s, at| s.claim_delivery(request("b", AmbiguousPolicy::Leave));
    claim_delivery "of one whose sender is gone" at Ambiguous => |s, at|
        s.claim_delivery(request("b", AmbiguousPolicy::Resend));
    confirm_part "" at Sending => |s, at| s.confirm_part(at.send(), 0, "platform-1", 60_000);
    confirm_delivery "" at Sending => |s, at| s.confirm_delivery(at.send());
    confirm_delivery "by a sender that was given up" at Ambiguous => |s, at| s.confirm_delivery(at.send());
    fail_delivery "for now" at Sending => |s, at| s.fail_delivery(at.send(), "slow down", RetryAfter::Backoff);
    fail_delivery "for ever" at Sending => |s, at| s.fail_delivery(at.send(), "no such chat", RetryAfter::Never);
    decide_delivery "to send it again" at Ambiguous => |s, at| async move {
        s.decide_delivery(at.send().delivery(), 1, DeliveryDecision::Resend).await
    };
    decide_delivery "that it has arrived" at Ambiguous => |s, at| async move {
        s.decide_delivery(at.send().delivery(), 1, DeliveryDecision::Delivered).await
    };
    decide_delivery "to give it up" at Ambiguous => |s, at| async move {
        s.decide_delivery(at.send().delivery(), 1, DeliveryDecision::Abandon("why not".to_owned())).await
    };
    prune_deliveries "" at Delivered => |s, at| s.prune_deliveries();
    ask_approval "" at Running => |s, at| s.ask_approval(at.fence(), &at.turn, question());
    answer_approval "with yes" at Asked => |s, at| async move { s.answer_approval(&question().id, "ann", yes()).await };
    answer_approval "with no" at Asked => |s, at| async move {
        s.answer_approval(&question().id, "ann", ApprovalAnswer::Deny).await
    };
    answer_approval "too late" at Late => |s, at| async move { s.answer_approval(&question().id, "ann", yes()).await };
    withdraw_approval "" at Asked => |s, at| async move {
        s.withdraw_approval(at.fence(), &question().id, "never mind").await
    };
    open_approvals "" at Late => |s, at| s.open_approvals(None);
    prune_approvals "" at Answered => |s, at| s.prune_approvals();
    import "" at Nothing => |s, at| async move { s.import(&key("h"), &mut Parts::all(&at.parts)).await };
    index_step "" at Running => |s, at| s.index_step(100);
    rebuild_index "" at Indexed => |s, at| s.rebuild_index();
}

/// Every method that only reads, of the traits that this file is about, and those that have tests of their own below.
const READS: &[&str] = &[
    "inbound",
    "route",
    "delivery",
    "deliveries",
    "approval",
    "approvals_of_turn",
    "export",
    "export_list",
    "conversation_named",
    // The source of a bundle.
    "next",
    "index_status",
    "search",
    "check",
    "backup",
    "vacuum",
    "close",
];

fn conv(name: &str) -> ConversationId {
    ConversationId::parse(name).unwrap()
}

fn turn(name: &str) -> TurnId {
    TurnId::parse(name).unwrap()
}

fn call() -> CallId {
    CallId::parse("call-1").unwrap()
}

fn row(id: &str, role: Role) -> NewMessage {
    NewMessage::text(MessageId::parse(id).unwrap(), role, format!("words of {id}"))
}

fn end() -> TurnEnd {
    let reason = "completed".to_owned();
    TurnEnd { reason, detail: None, outcome: AdmissionOutcome::Completed, api_calls: 1 }
}

fn target(chat: &str) -> Target {
    Target { account: "telegram:1".to_owned(), chat: chat.to_owned(), thread: String::new() }
}

fn route() -> RouteKey {
    RouteKey { source: "telegram".to_owned(), key: "7".to_owned() }
}

fn message(id: &str) -> Inbound {
    let message = MessageRef::Platform(id.to_owned());
    Inbound {
        key: InboundKey { account: "telegram:1".to_owned(), chat: "7".to_owned(), message },
        content: format!("text of {id}"),
        replies: vec![Reply { target: target("7"), reply_to: Some(id.to_owned()) }],
        route: (id == "m1").then(|| (route(), Generation(0))),
    }
}

fn messages() -> Vec<NewDelivery> {
    let new = |part, chat| NewDelivery {
        kind: DeliveryKind::Message,
        part,
        target: target(chat),
        reply_to: None,
        content: format!("part {part}"),
    };
    vec![new(0, "8"), new(1, "8"), new(0, "7")]
}

fn request(who: &str, ambiguous: AmbiguousPolicy) -> DeliveryRequest {
    DeliveryRequest { account: "telegram:1".to_owned(), owner: owner(who), lease_ms: 60_000, ambiguous }
}

fn question() -> NewApproval {
    NewApproval {
        id: ApprovalId::parse("q").unwrap(),
        call: call(),
        subject: "rm -r build".to_owned(),
        choices: vec!["once".to_owned()],
        may_answer: vec!["ann".to_owned()],
        expires_in_ms: 60_000,
    }
}

fn yes() -> ApprovalAnswer {
    ApprovalAnswer::Approve { choice: "once".to_owned() }
}

fn session(name: &str, parent: Option<&str>) -> NewSession {
    NewSession {
        id: SessionId::parse(name).unwrap(),
        parent: parent.map(|parent| SessionId::parse(parent).unwrap()),
        provider: "p".to_owned(),
        model: "m".to_owned(),
        cwd: None,
        prompt: PromptSnapshot::new(&b"prompt"[..]),
        tools: PromptSnapshot::new(&b"[]"[..]),
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
    Round::plan(turn.clone(), row("a1", Role::Assistant), vec![call], None)
}

fn info(name: &str) -> OwnerInfo {
    OwnerInfo { id: owner(name), host: "here".to_owned(), boot_id: "boot".to_owned(), pid: 1, pid_start: 1 }
}

async fn start(s: &dyn Store, conversation: &str, turn: &TurnId) -> Fence {
    let request = ClaimRequest {
        conversation: conv(conversation),
        owner: owner("a"),
        turn: turn.clone(),
        ttl_ms: TTL_MS,
        policy: ClaimPolicy::Any,
    };
    match s.claim(request).await.unwrap() {
        ClaimOutcome::Turn { fence, .. } => fence,
        other => panic!("no turn: {other:?}"),
    }
}

/// The parts of a bundle, up to a place where the source fails, if any.
struct Parts(VecDeque<BundlePart>, bool);

impl Parts {
    fn all(parts: &[BundlePart]) -> Self {
        Self(parts.iter().cloned().collect(), false)
    }

    fn until(parts: &[BundlePart], end: usize) -> Self {
        Self(parts[..end].iter().cloned().collect(), true)
    }
}

#[async_trait]
impl BundleSource for Parts {
    async fn next(&mut self) -> Result<Option<BundlePart>, StoreError> {
        match self.0.pop_front() {
            None if self.1 => Err(StoreError::Io { detail: "the file ends here".to_owned() }),
            part => Ok(part),
        }
    }
}

fn key(id: &str) -> ImportKey {
    ImportKey { source: "elsewhere".to_owned(), id: id.to_owned(), fingerprint: "1".to_owned() }
}

async fn export(s: &dyn Store, name: &str) -> Vec<BundlePart> {
    let (mut parts, mut cursor) = (Vec::new(), None);
    loop {
        let page = s.export(&conv(name), cursor).await.unwrap();
        parts.extend(page.parts);
        cursor = page.next;
        if cursor.is_none() {
            return parts;
        }
    }
}

/// A conversation of two sessions, as our own export has it.
async fn bundle(name: &str) -> Vec<BundlePart> {
    let s = MemoryStore::new(Arc::new(ManualClock::at(0)));
    let s: &dyn Store = &s;
    let (turn, by_hand) = (turn(&format!("{name}-turn")), turn(&format!("{name}-by-hand")));
    let row = |id: &str, role| NewMessage { id: MessageId::parse(&format!("{name}-{id}")).unwrap(), ..row(id, role) };
    s.create_and_admit(new_conversation(name), input(name, "r", "x")).await.unwrap();
    let fence = start(s, name, &turn).await;
    let rows = ["u1", "u2", "u3"].map(|id| row(id, Role::User)).into();
    s.open_session(&fence, &turn, session(name, None), rows).await.unwrap();
    s.append(&fence, &turn, vec![row("a", Role::Assistant)], None).await.unwrap();
    s.settle_turn(&fence, &turn, end(), false).await.unwrap();
    let tip = SessionId::parse(name).unwrap();
    let take = TakeLock { session: tip.clone(), holder: "x".to_owned(), ttl_ms: TTL_MS, force: false };
    let LockOutcome::Taken(lock) = s.take_compression_lock(&fence, take).await.unwrap() else { panic!("no lock") };
    let shown = s.messages(&conv(name), View::Model, MessagePage::default()).await.unwrap();
    let summary = NewMessage { kind: MessageKind::Summary, ..row("s", Role::User) };
    let rotation = Rotation {
        id: hermes_store::ChangeId::parse(&format!("{name}-change")).unwrap(),
        turn: by_hand,
        mark: ViewMark::of(tip, &shown),
        child: session(&format!("{name}.2"), Some(name)),
        rows: vec![ViewRow::New(summary), ViewRow::Carry(row("a", Role::Assistant).id)],
    };
    s.rotate(&fence, &lock, rotation).await.unwrap();
    export(s, name).await
}

/// Brings a store to a stage.
async fn prepare(storage: &dyn Storage, s: &dyn Store, stage: Stage) -> At {
    let turn = turn("turn-1");
    let mut at = At { fence: None, turn: turn.clone(), send: None, generation: Generation(0), parts: Vec::new() };
    let later = |ms: u64| storage.setting().clock.advance(i64::try_from(ms).unwrap() + 1);
    if stage == Stage::Nothing {
        at.parts = bundle("h").await;
        return at;
    }
    let admission = input("c", "m1", "hello");
    s.receive(message("m1"), Some(new_conversation("c")), admission.clone()).await.unwrap();
    if stage == Stage::Forgotten {
        s.cancel(&admission.id).await.unwrap();
        later(INBOUND_KEEP_MS);
    }
    if stage < Stage::Running {
        return at;
    }
    for name in ["a", "b"] {
        s.heartbeat(&info(name)).await.unwrap();
    }
    at.generation = s.next_generation("telegram", "7").await.unwrap();
    let fence = start(s, "c", &turn).await;
    at.fence = Some(fence.clone());
    s.open_session(&fence, &turn, session("c", None), vec![row("u1", Role::User)]).await.unwrap();
    if stage >= Stage::Owed {
        s.append(&fence, &turn, vec![row("answer", Role::Assistant)], None).await.unwrap();
        s.settle_turn(&fence, &turn, end(), false).await.unwrap();
        at.send = send(storage, s, stage).await;
        if stage == Stage::Delivered {
            s.confirm_delivery(at.send()).await.unwrap();
            later(SEND_KEEP_MS);
        }
        return at;
    }
    s.record_round(&fence, round(&turn)).await.unwrap();
    s.start_calls(&fence, &turn, &[call()]).await.unwrap();
    if stage == Stage::Indexed {
        while !s.index_step(100).await.unwrap().is_done {}
    }
    if stage >= Stage::Asked {
        s.ask_approval(&fence, &turn, question()).await.unwrap();
    }
    match stage {
        Stage::Late => later(question().expires_in_ms),
        Stage::Answered => {
            s.answer_approval(&question().id, "ann", yes()).await.unwrap();
            later(APPROVAL_KEEP_MS);
        }
        _ => {}
    }
    at
}

/// Takes the delivery that is owed, and loses its sender if that is wanted.
async fn send(storage: &dyn Storage, s: &dyn Store, stage: Stage) -> Option<DeliveryFence> {
    if stage == Stage::Owed {
        return None;
    }
    let claim = s.claim_delivery(request("a", AmbiguousPolicy::Leave)).await.unwrap();
    let DeliveryClaim::Send { fence, .. } = claim else { panic!("nothing to send: {claim:?}") };
    if stage == Stage::Ambiguous {
        storage.setting().probe.kill(&owner("a"));
        let idle = s.claim_delivery(request("b", AmbiguousPolicy::Leave)).await.unwrap();
        assert!(matches!(idle, DeliveryClaim::Idle { .. }), "{idle:?}");
        assert_eq!(s.delivery(fence.delivery()).await.unwrap().state, DeliveryState::Ambiguous);
    }
    Some(fence)
}

/// All that a reader can find out.
async fn look(s: &dyn Store) -> String {
    let mut out = String::new();
    let mut note = |what: &str, found: &dyn std::fmt::Debug| writeln!(out, "{what}: {found:#?}").unwrap();
    let code = |error: StoreError| error.code();
    for id in ["m1", "m2", "m3", "command"] {
        note(id, &s.inbound(&message(id).key).await.map_err(code));
    }
    note("route", &s.route(&route()).await.map_err(code));
    note("deliveries", &s.deliveries(DeliveryFilter::default()).await.map_err(code));
    note("questions", &s.approvals_of_turn(&turn("turn-1")).await.map_err(code));
    note("conversations", &s.conversations(ConversationFilter::default()).await.map_err(code));
    for name in ["c", "new", "h", "i"] {
        note(name, &s.conversation(&conv(name)).await.map_err(code));
        note("queue", &s.queue(&conv(name)).await.map_err(code));
        note("rows", &s.messages(&conv(name), View::Display, MessagePage::default()).await.map_err(code));
        note("lineage", &s.lineage(&conv(name)).await.map_err(code));
        note("named", &s.conversation_named(&format!("{name}.2")).await.map_err(code));
    }
    note("list", &s.export_list(None, 10).await.map_err(code));
    let index = s.index_status().await.map_err(code).map(|status| (status.state, status.rows, status.pending));
    note("index", &index);
    // The last: a search brings the index up to date.
    note("search", &s.search(SearchQuery::text("words")).await.map_err(code));
    out
}

/// Runs a method with a fault, if any, and then again with the same ids; what is there afterwards.
async fn run(operation: &Operation, fault: Option<Fault>, fresh: Fresh) -> String {
    let (storage, faults) = (fresh(), Faults::default());
    let storage = storage.as_ref();
    let name = format!("{} {}", operation.name, operation.variant);
    let mut store = storage.open(&faults).await;
    let at = prepare(storage, store.as_ref(), operation.stage).await;
    if let Some(fault) = fault {
        let handle = Arc::clone(&store);
        let call = (operation.run)(handle.as_ref(), &at);
        store = strike(storage, (Arc::clone(&handle), faults), fault, &name, call).await;
    }
    let told = (operation.run)(store.as_ref(), &at).await;
    told.unwrap_or_else(|error| panic!("{name} with {fault:?}: {error}"));
    look(store.as_ref()).await
}

/// What is there at a stage. A look brings the index up to date, so that the storage is of no use behind it.
async fn untouched(stage: Stage, fresh: Fresh) -> String {
    let storage = fresh();
    let store = storage.open(&Faults::default()).await;
    prepare(storage.as_ref(), store.as_ref(), stage).await;
    look(store.as_ref()).await
}

async fn check_all(fresh: Fresh) {
    for operation in OPERATIONS {
        let (before, want) = (untouched(operation.stage, fresh).await, run(operation, None, fresh).await);
        // Memory has no index.
        let is_seen = fresh().is_hooked() || !operation.name.contains("index");
        assert!(!is_seen || before != want, "{} {} changes nothing that is seen", operation.name, operation.variant);
        for fault in Fault::ALL {
            let found = run(operation, Some(fault), fresh).await;
            assert_eq!(found, want, "{} {} with {fault:?}", operation.name, operation.variant);
        }
    }
}

#[tokio::test]
async fn i17_every_operation_of_delivery_with_every_fault_on_sqlite() {
    check_all(sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i17_every_operation_of_delivery_with_every_fault_on_postgres() {
    check_all(postgres).await;
}

#[tokio::test]
async fn i17_every_operation_of_delivery_with_every_fault_in_memory() {
    check_all(memory).await;
}

#[test]
fn no_method_of_delivery_is_forgotten() {
    let texts = [
        include_str!("../src/inbound.rs"),
        include_str!("../src/delivery.rs"),
        include_str!("../src/approval.rs"),
        include_str!("../src/search.rs"),
        include_str!("../src/maintenance.rs"),
        include_str!("../src/transfer/mod.rs"),
        include_str!("../src/transfer/bundle.rs"),
    ];
    // Tests inside these files are no methods of a trait.
    let texts = texts.map(|text| text.split("#[cfg(test)]\nmod tests").next().unwrap());
    assert_complete(&texts, &OPERATIONS.iter().map(|operation| operation.name).collect(), READS);
}

/// A claim whose answer was lost cannot be given back: nobody knows whether it was sent. It says so after its time.
async fn lost_claim(fresh: Fresh) {
    for fault in [Fault::ReplyLost, Fault::Dies] {
        let (storage, faults) = (fresh(), Faults::default());
        let store = storage.open(&faults).await;
        prepare(storage.as_ref(), store.as_ref(), Stage::Owed).await;
        let call = async { store.claim_delivery(request("a", AmbiguousPolicy::Leave)).await.map(drop) };
        let store = strike(storage.as_ref(), (Arc::clone(&store), faults), fault, "claim_delivery", call).await;
        let idle = store.claim_delivery(request("b", AmbiguousPolicy::Resend)).await.unwrap();
        assert!(matches!(idle, DeliveryClaim::Idle { next_at_ms: Some(_) }), "{idle:?}");
        storage.setting().clock.advance(60_001);
        let claim = store.claim_delivery(request("b", AmbiguousPolicy::Resend)).await.unwrap();
        let DeliveryClaim::Send { fence, delivery } = claim else { panic!("nothing to send: {claim:?}") };
        assert_eq!((fence.attempt(), delivery.may_be_duplicate), (2, true));
        store.confirm_delivery(&fence).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s44_a_claim_whose_answer_was_lost_is_ambiguous_after_its_time() {
    for fresh in [memory as Fresh, sqlite, postgres] {
        lost_claim(fresh).await;
    }
}

/// An import that ends at any part leaves nothing, and does all of it when it is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s50_an_import_that_is_cut_at_any_part_leaves_nothing() {
    let parts = bundle("h").await;
    for fresh in [memory as Fresh, sqlite, postgres] {
        let (storage, clean) = (fresh(), fresh());
        let store = storage.open(&Faults::default()).await;
        let clean = clean.open(&Faults::default()).await;
        // The first look makes the index.
        look(store.as_ref()).await;
        look(clean.as_ref()).await;
        let nothing = look(store.as_ref()).await;
        for end in 0..parts.len() {
            let told = store.import(&key("h"), &mut Parts::until(&parts, end)).await;
            assert!(told.is_err(), "{end} parts: {told:?}");
            assert_eq!(look(store.as_ref()).await, nothing, "{end} parts");
        }
        for store in [&store, &clean] {
            store.import(&key("h"), &mut Parts::all(&parts)).await.unwrap();
        }
        assert_eq!(look(store.as_ref()).await, look(clean.as_ref()).await);
        assert_eq!(export(store.as_ref(), "h").await, parts);
        store.close().await;
        clean.close().await;
    }
}

/// Of several conversations those that were imported stay, and the repetition goes on behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s50_an_import_of_many_goes_on_where_it_was_interrupted() {
    let bundles = [("h", bundle("h").await), ("i", bundle("i").await)];
    for fresh in [memory as Fresh, sqlite, postgres] {
        for fault in Fault::ALL {
            let (storage, faults) = (fresh(), Faults::default());
            let store = storage.open(&faults).await;
            store.import(&key("h"), &mut Parts::all(&bundles[0].1)).await.unwrap();
            let call = async { store.import(&key("i"), &mut Parts::all(&bundles[1].1)).await.map(drop) };
            let store = strike(storage.as_ref(), (Arc::clone(&store), faults), fault, "import", call).await;
            let mut outcomes = Vec::new();
            for (name, parts) in &bundles {
                outcomes.push(store.import(&key(name), &mut Parts::all(parts)).await.unwrap());
                assert_eq!(&export(store.as_ref(), name).await, parts);
            }
            assert!(matches!(outcomes[0], ImportOutcome::Same { .. }), "{fault:?}: {outcomes:?}");
            let is_done = matches!(outcomes[1], ImportOutcome::Same { .. });
            assert_eq!(is_done, fault != Fault::BeforeCommit, "{fault:?}: {outcomes:?}");
        }
    }
}

/// A search brings the index up to date on its way. What befalls that is no matter of whoever searches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s48_a_search_whose_index_meets_a_fault_finds_the_row_the_next_time() {
    for fresh in [sqlite as Fresh, postgres] {
        for fault in Fault::ALL {
            let (storage, faults) = (fresh(), Faults::default());
            let store = storage.open(&faults).await;
            prepare(storage.as_ref(), store.as_ref(), Stage::Running).await;
            faults.arm(fault);
            let first = store.search(SearchQuery::text("words")).await;
            assert_eq!(faults.fired(), 1);
            let store = match fault {
                Fault::Dies => storage.open(&Faults::default()).await,
                _ => store,
            };
            let found = store.search(SearchQuery::text("words")).await.unwrap();
            assert_eq!((found.hits.len(), found.pending), (2, 0), "{fault:?}, after {first:?}");
        }
    }
}

async fn file(dir: &tempfile::TempDir, faults: &Faults) -> SqliteStore {
    let clock = Arc::new(ManualClock::at(0));
    let options = SqliteOptions {
        synchronous: Synchronous::Normal,
        faults: faults.clone(),
        ..SqliteOptions::new(dir.path().join("hermes.db"), clock)
    };
    SqliteStore::open(options).await.unwrap()
}

/// A vacuum first writes down that it was done, and then does it: a fault between the two costs nothing but time.
#[tokio::test]
async fn every_fault_of_a_vacuum_leaves_a_sound_store() {
    for fault in Fault::ALL {
        let (dir, faults) = (tempfile::tempdir().unwrap(), Faults::default());
        let store = file(&dir, &faults).await;
        store.import(&key("h"), &mut Parts::all(&bundle("h").await)).await.unwrap();
        // The first look brings the index up to date.
        look(&store).await;
        let before = look(&store).await;
        faults.arm(fault);
        assert!(store.vacuum(true).await.is_err());
        drop(store);
        let store = file(&dir, &Faults::default()).await;
        let done = store.vacuum(true).await.unwrap();
        assert!(matches!(done, VacuumOutcome::Done { .. }), "{fault:?}: {done:?}");
        assert!(store.check(hermes_store::CheckDepth::Full).await.unwrap().is_sound());
        assert_eq!(look(&store).await, before, "{fault:?}");
    }
}

/// Whatever stops a backup, the file has its name only when it is whole, and nothing half is left beside it.
#[tokio::test]
async fn a_backup_that_fails_leaves_no_half_file() {
    let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = file(&dir, &Faults::default()).await;
    store.import(&key("h"), &mut Parts::all(&bundle("h").await)).await.unwrap();
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(to.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
        names.sort();
        names
    };
    // The name is taken: before the copy, and by somebody who came while it was made.
    let taken = to.path().join("taken.db");
    std::fs::write(&taken, b"mine").unwrap();
    let told = store.backup(&taken).await;
    assert!(matches!(told, Err(StoreError::Invalid { .. })), "{told:?}");
    assert_eq!((std::fs::read(&taken).unwrap(), names().len()), (b"mine".to_vec(), 1));
    // The place is no place.
    assert!(store.backup(&taken.join("below.db")).await.is_err());
    assert!(store.backup(&to.path().join("missing/below.db")).await.is_err());
    assert_eq!(names().len(), 1);
    // A caller that gives up in the middle, at any point: no file under the name, or the whole one.
    for polls in 0..40 {
        let path = to.path().join(format!("given-up-{polls}.db"));
        let mut backup = Box::pin(store.backup(&path));
        for _ in 0..polls {
            if futures_once(backup.as_mut()).await {
                break;
            }
        }
        drop(backup);
        if path.exists() {
            let options = SqliteOptions::new(&path, Arc::new(ManualClock::at(0)));
            let copy = SqliteStore::open(options).await.unwrap();
            assert_eq!(export(&copy, "h").await, bundle("h").await, "{polls}");
            copy.close().await;
        }
    }
    // And the next one goes through.
    let whole = to.path().join("whole.db");
    store.backup(&whole).await.unwrap();
    let copy = SqliteStore::open(SqliteOptions::new(&whole, Arc::new(ManualClock::at(0)))).await.unwrap();
    assert!(copy.check(hermes_store::CheckDepth::Full).await.unwrap().is_sound());
    let partial: Vec<_> = names().into_iter().filter(|name| name.to_string_lossy().contains(".partial-")).collect();
    assert_eq!(partial, [] as [std::ffi::OsString; 0], "half a copy was left");
}

/// Polls once, and gives others a moment. Whether it has ended.
async fn futures_once<F: Future<Output = Result<(), StoreError>>>(mut future: Pin<&mut F>) -> bool {
    let polled = std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context))).await;
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    polled.is_ready()
}

/// The same message by two senders of one request: what a fault hides from one, the other one is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i05_a_redelivery_after_a_lost_answer_gets_the_first_receipt() {
    for fresh in [memory as Fresh, sqlite, postgres] {
        for fault in Fault::ALL {
            let (storage, faults) = (fresh(), Faults::default());
            let store = storage.open(&faults).await;
            let receive = |store: Arc<dyn Store>, conversation: &'static str, request: &'static str| async move {
                let new = Some(new_conversation(conversation));
                store.receive(message("m1"), new, input(conversation, request, "hello")).await
            };
            let call = async { receive(Arc::clone(&store), "c", "r1").await.map(drop) };
            let store = strike(storage.as_ref(), (Arc::clone(&store), faults), fault, "receive", call).await;
            // The platform brings it again, to another process with other ids.
            let again = receive(Arc::clone(&store), "d", "r2").await.unwrap();
            let (ReceiveOutcome::Accepted(receipt) | ReceiveOutcome::Replayed(receipt)) = again else {
                panic!("{again:?}")
            };
            let first = if fault == Fault::BeforeCommit { "d" } else { "c" };
            assert_eq!(receipt.conversation, conv(first), "{fault:?}");
            assert_eq!(store.queue(&conv(first)).await.unwrap().len(), 1);
            let all = store.conversations(ConversationFilter::default()).await.unwrap();
            assert_eq!(all.len(), 1, "{fault:?}");
        }
    }
}
