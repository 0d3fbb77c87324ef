//! Random sequences of operations of messages, deliveries and questions on the model and on the databases: the same
//! answers, and the same rows at the end.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

mod support;

use std::sync::Arc;

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::fault::Faults;
use hermes_store::{
    AdmissionOutcome, AmbiguousPolicy, ApprovalAnswer, ApprovalId, CallId, CallOutcome, CallResult, ClaimOutcome,
    ClaimPolicy, ClaimRequest, ConversationId, DeliveryClaim, DeliveryDecision, DeliveryFence, DeliveryFilter,
    DeliveryKind, DeliveryRequest, Fence, Generation, Inbound, InboundKey, MessageId, MessageRef, NewApproval, NewCall,
    NewDelivery, NewMessage, NewSession, OwnerInfo, PromptSnapshot, ReplaySafety, Reply, RetryAfter, Role, Round,
    RouteKey, Store, StoreError, Target, TurnEnd, TurnId,
};
use proptest::prelude::*;
use support::storage::{Storage, memory, postgres, sqlite};

/// Sequences to try. Modest: every pull request waits for them.
const SEQUENCES: u32 = 64;
/// The same on a server, where each one makes a schema of its own.
const SEQUENCES_ON_SERVER: u32 = 12;
const STEPS: usize = 80;
/// Times that pass: a moment, an attempt, a question, a pause, what is kept, and back.
const TIMES_MS: [i64; 7] = [1, 5_000, 61_000, 400_000, 90_000_000, 3_000_000_000, -50_000];

#[derive(Debug, Clone)]
enum Op {
    Receive { message: u8, conversation: u8, edited: bool, chat: u8, seen: Option<u8> },
    Next { chat: u8 },
    SetRoute { chat: u8, generation: u8, conversation: u8 },
    Reset { chat: u8, seen: u8, conversation: u8, command: Option<u8> },
    Claim { conversation: u8, by: u8 },
    Begin { fence: u8 },
    Call { fence: u8 },
    Settle { fence: u8, failed: bool, release: bool },
    Delete { fence: u8 },
    Record { fence: u8, part: u8, chat: u8, text: u8 },
    Send { by: u8, resend: bool },
    Part { send: u8, index: u8, id: u8 },
    Confirm { send: u8 },
    Fail { send: u8, retry: u8 },
    Decide { send: u8, attempt: u8, decision: u8 },
    Ask { fence: u8, question: u8, call: u8, life: u8 },
    Answer { question: u8, who: u8, answer: u8 },
    Withdraw { fence: u8, question: u8 },
    Open { conversation: Option<u8> },
    Prune,
    Kill { who: u8 },
    Beat { who: u8 },
    Advance { by: u8 },
}

fn op() -> impl Strategy<Value = Op> {
    // The newest leases and attempts are the interesting ones.
    let f = || prop_oneof![4 => Just(0_u8), 2 => Just(1), 1 => 0..5_u8];
    let inbound = prop_oneof![
        5 => (0..5_u8, 0..2_u8, 0..5_u8, 0..2_u8, prop::option::of(0..3_u8)).prop_map(
            |(message, conversation, edited, chat, seen)| Op::Receive {
                message, conversation, edited: edited == 0, chat, seen
            }
        ),
        1 => (0..2_u8).prop_map(|chat| Op::Next { chat }),
        1 => (0..2_u8, 0..4_u8, 0..2_u8).prop_map(|(chat, generation, conversation)| {
            Op::SetRoute { chat, generation, conversation }
        }),
        1 => (0..2_u8, 0..4_u8, 0..2_u8, prop::option::of(0..3_u8)).prop_map(
            |(chat, seen, conversation, command)| Op::Reset { chat, seen, conversation, command }
        ),
    ];
    let turns = prop_oneof![
        5 => (0..2_u8, 0..2_u8).prop_map(|(conversation, by)| Op::Claim { conversation, by }),
        3 => f().prop_map(|fence| Op::Begin { fence }),
        2 => f().prop_map(|fence| Op::Call { fence }),
        4 => (f(), 0..4_u8, any::<bool>()).prop_map(|(fence, failed, release)| {
            Op::Settle { fence, failed: failed == 0, release }
        }),
        1 => f().prop_map(|fence| Op::Delete { fence }),
    ];
    let deliveries = prop_oneof![
        3 => (f(), 0..3_u8, 0..2_u8, 0..4_u8).prop_map(|(fence, part, chat, text)| {
            Op::Record { fence, part, chat, text: text / 3 }
        }),
        5 => (0..2_u8, any::<bool>()).prop_map(|(by, resend)| Op::Send { by, resend }),
        2 => (f(), 0..3_u8, 0..2_u8).prop_map(|(send, index, id)| Op::Part { send, index, id }),
        2 => f().prop_map(|send| Op::Confirm { send }),
        2 => (f(), 0..3_u8).prop_map(|(send, retry)| Op::Fail { send, retry }),
        2 => (f(), 0..4_u8, 0..3_u8).prop_map(|(send, attempt, decision)| Op::Decide { send, attempt, decision }),
    ];
    let questions = prop_oneof![
        3 => (f(), 0..3_u8, 0..4_u8, 0..2_u8).prop_map(|(fence, question, call, life)| {
            Op::Ask { fence, question, call: call / 3, life }
        }),
        3 => (0..3_u8, 0..3_u8, 0..3_u8).prop_map(|(question, who, answer)| Op::Answer { question, who, answer }),
        1 => (f(), 0..3_u8).prop_map(|(fence, question)| Op::Withdraw { fence, question }),
        1 => prop::option::of(0..2_u8).prop_map(|conversation| Op::Open { conversation }),
    ];
    let rest = prop_oneof![
        1 => Just(Op::Prune),
        1 => (0..2_u8).prop_map(|who| Op::Kill { who }),
        1 => (0..2_u8).prop_map(|who| Op::Beat { who }),
        3 => (0..7_u8).prop_map(|by| Op::Advance { by }),
    ];
    prop_oneof![3 => inbound, 3 => turns, 4 => deliveries, 2 => questions, 2 => rest]
}

fn conversation(number: u8) -> ConversationId {
    ConversationId::parse(["c", "d"][usize::from(number)]).unwrap()
}

fn info(number: u8) -> OwnerInfo {
    let id = owner(["a", "b"][usize::from(number)]);
    OwnerInfo { id, host: "h".to_owned(), boot_id: "b".to_owned(), pid: 1, pid_start: 1 }
}

fn target(chat: u8) -> Target {
    Target { account: "t".to_owned(), chat: format!("chat-{chat}"), thread: String::new() }
}

fn route(chat: u8) -> RouteKey {
    RouteKey { source: "t".to_owned(), key: format!("chat-{chat}") }
}

fn key(message: &str) -> InboundKey {
    let message = MessageRef::Platform(message.to_owned());
    InboundKey { account: "t".to_owned(), chat: "7".to_owned(), message }
}

fn question(number: u8) -> ApprovalId {
    ApprovalId::parse(&format!("q{number}")).unwrap()
}

fn call(turn: &TurnId, number: u8) -> CallId {
    CallId::parse(&format!("{turn}-call-{number}")).unwrap()
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

/// One store under test, with what it gave.
struct Side {
    storage: Box<dyn Storage>,
    store: Arc<dyn Store>,
    leases: Vec<(Fence, TurnId)>,
    sends: Vec<DeliveryFence>,
    turns: Vec<TurnId>,
}

impl Side {
    async fn new(storage: Box<dyn Storage>) -> Self {
        let store = storage.open(&Faults::default()).await;
        Self { storage, store, leases: Vec::new(), sends: Vec::new(), turns: Vec::new() }
    }

    async fn apply(&mut self, op: &Op, step: usize) -> String {
        let store = Arc::clone(&self.store);
        let s = store.as_ref();
        match *op {
            Op::Receive { .. } | Op::Next { .. } | Op::SetRoute { .. } | Op::Reset { .. } => inbound(s, op, step).await,
            Op::Claim { conversation: c, by } => self.claim(c, by, step).await,
            Op::Send { by, resend } => {
                let ambiguous = if resend { AmbiguousPolicy::Resend } else { AmbiguousPolicy::Leave };
                let owner = info(by).id;
                let request = DeliveryRequest { account: "t".to_owned(), owner, lease_ms: 60_000, ambiguous };
                let claim = s.claim_delivery(request).await;
                if let Ok(DeliveryClaim::Send { fence, .. }) = &claim {
                    self.sends.push(fence.clone());
                }
                show(claim)
            }
            Op::Part { send, .. } | Op::Confirm { send } | Op::Fail { send, .. } | Op::Decide { send, .. } => {
                match back(&self.sends, send) {
                    Some(fence) => sending(s, op, &fence).await,
                    None => String::new(),
                }
            }
            Op::Answer { question: q, who, answer } => {
                let answer = match answer {
                    0 => ApprovalAnswer::Deny,
                    1 => ApprovalAnswer::Approve { choice: "once".to_owned() },
                    _ => ApprovalAnswer::Approve { choice: "never heard of".to_owned() },
                };
                show(s.answer_approval(&question(q), ["ann", "bob", "eve"][usize::from(who)], answer).await)
            }
            Op::Open { conversation: c } => show(s.open_approvals(c.map(conversation).as_ref()).await),
            Op::Prune => {
                show(s.prune_inbound().await) + &show(s.prune_deliveries().await) + &show(s.prune_approvals().await)
            }
            Op::Beat { who } => show(s.heartbeat(&info(who)).await),
            Op::Kill { who } => {
                self.storage.setting().probe.kill(&info(who).id);
                String::new()
            }
            Op::Advance { by } => {
                self.storage.setting().clock.advance(TIMES_MS[usize::from(by)]);
                String::new()
            }
            Op::Begin { fence }
            | Op::Call { fence }
            | Op::Settle { fence, .. }
            | Op::Delete { fence }
            | Op::Record { fence, .. }
            | Op::Ask { fence, .. }
            | Op::Withdraw { fence, .. } => match back(&self.leases, fence) {
                Some((fence, turn)) => fenced(s, op, &fence, &turn).await,
                None => String::new(),
            },
        }
    }

    async fn claim(&mut self, c: u8, by: u8, step: usize) -> String {
        let turn = TurnId::parse(&format!("turn-{step}")).unwrap();
        let request = ClaimRequest {
            conversation: conversation(c),
            owner: info(by).id,
            turn: turn.clone(),
            ttl_ms: 300_000,
            policy: ClaimPolicy::Any,
        };
        let outcome = self.store.claim(request).await;
        match &outcome {
            Ok(ClaimOutcome::Turn { fence, .. }) => {
                self.turns.push(turn.clone());
                self.leases.push((fence.clone(), turn));
            }
            Ok(ClaimOutcome::Recover { fence, open }) => self.leases.push((fence.clone(), open.id.clone())),
            _ => {}
        }
        show(outcome)
    }

    /// Everything that can be read.
    async fn view(&self) -> String {
        let s = &self.store;
        let mut out = show(s.deliveries(DeliveryFilter::default()).await);
        let open = DeliveryFilter { open_only: true, account: Some("t".to_owned()), ..DeliveryFilter::default() };
        out += &show(s.deliveries(open).await);
        for number in 0..5 {
            out += &show(s.inbound(&key(&format!("m{number}"))).await);
            out += &show(s.inbound(&key(&format!("command-{number}"))).await);
            out += &show(s.approval(&question(number)).await);
        }
        for number in 0..2 {
            let c = conversation(number);
            out += &show(s.route(&route(number)).await);
            out += &show(s.queue(&c).await);
            out += &show(s.conversation(&c).await);
            out += &show(s.wait_for_change(&c, -1, 0).await);
            let filter = DeliveryFilter { conversation: Some(c), ..DeliveryFilter::default() };
            out += &show(s.deliveries(filter).await);
        }
        for turn in &self.turns {
            out += &show(s.approvals_of_turn(turn).await);
        }
        out
    }
}

async fn inbound(s: &dyn Store, op: &Op, step: usize) -> String {
    match *op {
        Op::Receive { message, conversation: c, edited, chat, seen } => {
            let c = conversation(c);
            let new = Inbound {
                key: key(&format!("m{message}")),
                content: if edited { format!("edit {}", step % 2) } else { "text".to_owned() },
                replies: vec![Reply { target: target(chat), reply_to: Some(format!("m{message}")) }],
                route: seen.map(|seen| (route(chat), Generation(i64::from(seen)))),
            };
            let made = (!step.is_multiple_of(3)).then(|| new_conversation(c.as_str()));
            show(s.receive(new, made, input(c.as_str(), &format!("r{}", step % 40), "x")).await)
        }
        Op::Next { chat } => show(s.next_generation("t", &format!("chat-{chat}")).await),
        Op::SetRoute { chat, generation, conversation: c } => {
            show(s.set_route(&route(chat), Generation(i64::from(generation)), &conversation(c)).await)
        }
        Op::Reset { chat, seen, conversation: c, command } => {
            let by = command.map(|command| key(&format!("command-{command}")));
            let new = new_conversation(conversation(c).as_str());
            show(s.reset_route(&route(chat), Generation(i64::from(seen)), new, by).await)
        }
        _ => panic!("{op:?} does not come in"),
    }
}

async fn sending(s: &dyn Store, op: &Op, fence: &DeliveryFence) -> String {
    match *op {
        Op::Part { index, id, .. } => {
            show(s.confirm_part(fence, usize::from(index), &format!("p{index}-{id}"), 30_000).await)
        }
        Op::Confirm { .. } => show(s.confirm_delivery(fence).await),
        Op::Fail { retry, .. } => {
            let retry = [RetryAfter::Backoff, RetryAfter::Given(20_000), RetryAfter::Never][usize::from(retry)];
            show(s.fail_delivery(fence, "it did not work", retry).await)
        }
        Op::Decide { attempt, decision, .. } => {
            let decision = match decision {
                0 => DeliveryDecision::Resend,
                1 => DeliveryDecision::Delivered,
                _ => DeliveryDecision::Abandon("enough".to_owned()),
            };
            show(s.decide_delivery(fence.delivery(), fence.attempt() + i64::from(attempt / 3), decision).await)
        }
        _ => panic!("{op:?} sends nothing"),
    }
}

async fn fenced(s: &dyn Store, op: &Op, fence: &Fence, turn: &TurnId) -> String {
    let row = |name: &str, role| {
        let id = MessageId::parse(&format!("{turn}-{name}")).unwrap();
        NewMessage::text(id, role, format!("{name} of {turn}"))
    };
    match *op {
        Op::Begin { .. } => {
            let session = NewSession {
                id: fence.conversation().first_session(),
                parent: None,
                provider: "p".to_owned(),
                model: "m".to_owned(),
                cwd: None,
                prompt: PromptSnapshot::new(&b"prompt"[..]),
                tools: PromptSnapshot::new(&b"[]"[..]),
            };
            show(s.open_session(fence, turn, session, Vec::new()).await)
        }
        Op::Call { .. } => {
            let new = NewCall {
                call: call(turn, 0),
                result: MessageId::parse(&format!("{turn}-result")).unwrap(),
                provider_id: "toolu".to_owned(),
                name: "shell".to_owned(),
                arguments: "{}".to_owned(),
                replay: ReplaySafety::Once,
                preset: None,
            };
            show(s.record_round(fence, Round::plan(turn.clone(), row("round", Role::Assistant), vec![new], None)).await)
        }
        Op::Settle { failed, release, .. } => {
            let outcome = if failed { AdmissionOutcome::Failed } else { AdmissionOutcome::Completed };
            let result = CallResult { outcome: CallOutcome::Ok, content: "done".to_owned(), meta: None };
            let settled = show(s.settle_call(fence, turn, &call(turn, 0), result).await);
            let said = show(s.append(fence, turn, vec![row("answer", Role::Assistant)], None).await);
            let end = TurnEnd { reason: format!("{outcome:?}"), detail: None, outcome, api_calls: 1 };
            settled + &said + &show(s.settle_turn(fence, turn, end, release).await)
        }
        Op::Delete { .. } => show(s.delete_conversation(fence).await),
        Op::Record { part, chat, text, .. } => {
            let new = NewDelivery {
                kind: DeliveryKind::Message,
                part: i64::from(part),
                target: target(chat),
                reply_to: None,
                content: format!("text {text}"),
            };
            show(s.record_deliveries(fence, turn, vec![new]).await)
        }
        Op::Ask { question: q, call: k, life, .. } => {
            let new = NewApproval {
                id: question(q),
                call: call(turn, k),
                subject: "rm -r build".to_owned(),
                choices: vec!["once".to_owned()],
                may_answer: vec!["ann".to_owned(), "bob".to_owned()],
                expires_in_ms: [4_000, 60_000][usize::from(life)],
            };
            show(s.ask_approval(fence, turn, new).await)
        }
        Op::Withdraw { question: q, .. } => show(s.withdraw_approval(fence, &question(q), "never mind").await),
        _ => panic!("{op:?} has no fence"),
    }
}

async fn compare(ops: &[Op], storage: Box<dyn Storage>) {
    let (mut model, mut other) = (Side::new(memory()).await, Side::new(storage).await);
    for (step, op) in ops.iter().enumerate() {
        let (want, got) = (model.apply(op, step).await, other.apply(op, step).await);
        assert_eq!(want, got, "step {step}: {op:?}");
        if step % 10 == 9 {
            assert_eq!(model.view().await, other.view().await, "after step {step}: {op:?}");
        }
    }
    assert_eq!(model.view().await, other.view().await);
    other.store.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: SEQUENCES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_keeps_deliveries_as_the_model_does(ops in proptest::collection::vec(op(), 1..STEPS)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(compare(&ops, sqlite()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: SEQUENCES_ON_SERVER, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn postgres_keeps_deliveries_as_the_model_does(ops in proptest::collection::vec(op(), 1..STEPS)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(compare(&ops, postgres()));
    }
}
