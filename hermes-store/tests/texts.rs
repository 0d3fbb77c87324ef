//! Texts of users, models, platforms and tools come back as they were written, whatever is in them, on every store.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

mod support;

use bytes::Bytes;
use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::fault::Faults;
use hermes_store::{
    AdmissionOutcome, AmbiguousPolicy, AnswerOutcome, ApprovalAnswer, ApprovalId, CallId, CallOutcome, CallResult,
    ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationFilter, ConversationId, DeliveryClaim, DeliveryKind,
    DeliveryRequest, ExecutionId, Fence, Generation, Inbound, InboundKey, LockOutcome, MessageId, MessagePage,
    MessageRef, NewAdmission, NewApproval, NewCall, NewConversation, NewDelivery, NewMessage, NewReceipt, NewSession,
    NewWorker, OwnerInfo, Presence, PromptSnapshot, RegisterOutcome, ReplaySafety, Reply, RetryAfter, Role, Round,
    RouteKey, SearchQuery, SessionId, Sidecar, Store, TakeLock, Target, TitleSource, TurnEnd, TurnId, UsageDelta, View,
    WorkerKind, WorkerSecret,
};
use support::storage::{Fresh, memory, postgres, sqlite};

const TTL_MS: u64 = 300_000;
/// A NUL, lone quotes, characters of four bytes, marks of direction, the character that PostgreSQL's form of a NUL uses,
/// patterns of LIKE, and what a statement could end with.
const HOSTILE: &[&str] = &[
    "\0",
    "a\0b\0\0",
    "it's \"so\" `",
    "'; DROP TABLE messages; --",
    "𝕳𓀀😀",
    "\u{202e}txt.exe\u{202c}\u{200f}\u{2067}",
    "\u{10FFFD}",
    "\u{10FFFD}0\0\u{10FFFD}",
    "100%_\\",
    "e\u{301}\u{feff}\r\n\t\u{7f}\u{1b}[31m",
];

struct Case<'a> {
    s: &'a dyn Store,
    text: &'static str,
    conversation: String,
    turn: TurnId,
    fence: Fence,
}

fn target(text: &str) -> Target {
    Target { account: format!("a{text}"), chat: text.to_owned(), thread: text.to_owned() }
}

impl Case<'_> {
    fn id(&self) -> ConversationId {
        ConversationId::parse(&self.conversation).unwrap()
    }

    fn message(&self, name: &str) -> MessageId {
        MessageId::parse(&format!("{}-{name}", self.conversation)).unwrap()
    }

    fn call(&self) -> CallId {
        CallId::parse(&format!("{}-call", self.conversation)).unwrap()
    }

    fn session(&self, model: &str) -> NewSession {
        let text = self.text;
        NewSession {
            id: self.id().first_session(),
            parent: None,
            provider: text.to_owned(),
            model: model.to_owned(),
            cwd: Some(format!("/{text}")),
            prompt: PromptSnapshot::new(Bytes::from(text)),
            tools: PromptSnapshot::new(&b"[]"[..]),
        }
    }
}

/// A conversation whose input came through a chat with this text in every place.
async fn begin<'a>(s: &'a dyn Store, number: usize, text: &'static str) -> Case<'a> {
    let name = format!("c{number}");
    let route = RouteKey { source: text.to_owned(), key: text.to_owned() };
    assert_eq!(s.next_generation(text, &format!("k{text}")).await.unwrap(), Generation(1));
    assert_eq!(s.next_generation(text, &format!("k{text}")).await.unwrap(), Generation(2));
    let inbound = Inbound {
        key: InboundKey {
            account: format!("a{text}"),
            chat: text.to_owned(),
            message: MessageRef::Platform(text.to_owned()),
        },
        content: text.to_owned(),
        replies: vec![Reply { target: target(text), reply_to: Some(text.to_owned()) }],
        route: Some((route.clone(), Generation(0))),
    };
    let new = NewConversation { profile: format!("p{text}"), source: text.to_owned(), ..new_conversation(&name) };
    let admission = NewAdmission { principal: text.to_owned(), ..input(&name, &format!("r{number}"), text) };
    let admission = NewAdmission { request_id: text.to_owned(), ..admission };
    for _ in 0..2 {
        s.receive(inbound.clone(), Some(new.clone()), admission.clone()).await.unwrap();
    }
    s.admit(admission.clone()).await.unwrap();
    assert_eq!(s.inbound(&inbound.key).await.unwrap().unwrap().key, inbound.key);
    let stored = s.route(&route).await.unwrap();
    assert_eq!((stored.key, stored.generation), (route, Generation(1)));
    let queue = s.queue(&ConversationId::parse(&name).unwrap()).await.unwrap();
    assert_eq!(queue.len(), 1);
    assert_eq!((&*queue[0].principal, &*queue[0].request_id, &*queue[0].payload), (text, text, text));
    let turn = TurnId::parse(&format!("turn-{number}")).unwrap();
    let request = ClaimRequest {
        conversation: ConversationId::parse(&name).unwrap(),
        owner: owner("a"),
        turn: turn.clone(),
        ttl_ms: TTL_MS,
        policy: ClaimPolicy::Any,
    };
    let ClaimOutcome::Turn { fence, .. } = s.claim(request).await.unwrap() else { panic!("no turn") };
    Case { s, text, conversation: name, turn, fence }
}

async fn transcript(case: &Case<'_>) {
    let Case { s, text, turn, fence, .. } = case;
    let user = NewMessage::text(case.message("u"), Role::User, format!("u{text}"));
    for _ in 0..2 {
        s.open_session(fence, turn, case.session("m"), vec![user.clone()]).await.unwrap();
    }
    s.change_session(fence, turn, case.session(text)).await.unwrap();
    let session = s.session(&case.id().first_session()).await.unwrap();
    assert_eq!((&*session.provider, &*session.model, session.cwd), (*text, *text, Some(format!("/{text}"))));
    let assistant = NewMessage {
        reasoning: Some((*text).to_owned()),
        finish: Some((*text).to_owned()),
        sidecar: Some(Sidecar { issuer: (*text).to_owned(), bytes: Bytes::from(*text) }),
        meta: Some(serde_json::json!({ *text: text })),
        ..NewMessage::text(case.message("a"), Role::Assistant, *text)
    };
    let call = NewCall {
        call: case.call(),
        result: case.message("result"),
        provider_id: (*text).to_owned(),
        name: (*text).to_owned(),
        arguments: (*text).to_owned(),
        replay: ReplaySafety::Once,
        preset: None,
    };
    let usage = UsageDelta {
        attempt: format!("{text}{}", case.conversation),
        provider: (*text).to_owned(),
        model: (*text).to_owned(),
        task: (*text).to_owned(),
        input: 1,
        output: 1,
        cache_read: 0,
        cache_write: 0,
        reasoning: 0,
        known: true,
    };
    s.record_round(fence, Round::plan(turn.clone(), assistant.clone(), vec![call.clone()], Some(usage))).await.unwrap();
    let used = s.usage(&case.id()).await.unwrap();
    assert_eq!((&*used[0].provider, &*used[0].model, &*used[0].task), (*text, *text, *text));
    question(case).await;
    s.start_calls(fence, turn, &[case.call()]).await.unwrap();
    let result =
        CallResult { outcome: CallOutcome::Ok, content: (*text).to_owned(), meta: Some(serde_json::json!([text])) };
    for _ in 0..2 {
        s.settle_call(fence, turn, &case.call(), result.clone()).await.unwrap();
    }
    let rows = s.messages(&case.id(), View::Model, MessagePage::default()).await.unwrap();
    let contents: Vec<_> = rows.iter().map(|row| row.content.as_str()).collect();
    assert_eq!(contents, [&*format!("u{text}"), text, text]);
    let row = &rows[1];
    assert_eq!((row.reasoning.as_deref(), row.finish.as_deref()), (Some(*text), Some(*text)));
    assert_eq!((&row.sidecar, &row.meta), (&assistant.sidecar, &assistant.meta));
    let stored = &row.calls[0];
    assert_eq!((&*stored.provider_id, &*stored.name, &*stored.arguments), (*text, *text, *text));
}

async fn question(case: &Case<'_>) {
    let Case { s, text, turn, fence, .. } = case;
    let id = ApprovalId::parse(&format!("q-{}", case.conversation)).unwrap();
    let new = NewApproval {
        id: id.clone(),
        call: case.call(),
        subject: (*text).to_owned(),
        choices: vec![(*text).to_owned()],
        may_answer: vec![(*text).to_owned()],
        expires_in_ms: TTL_MS,
    };
    for _ in 0..2 {
        s.ask_approval(fence, turn, new.clone()).await.unwrap();
    }
    let answer = ApprovalAnswer::Approve { choice: (*text).to_owned() };
    let told = s.answer_approval(&id, text, answer.clone()).await.unwrap();
    assert!(matches!(told, AnswerOutcome::Accepted(_)), "{told:?}");
    let stored = s.approval(&id).await.unwrap();
    let given = stored.answer.unwrap();
    assert_eq!((&*stored.subject, &stored.choices, &stored.may_answer), (*text, &new.choices, &new.may_answer));
    assert_eq!((&*given.principal, given.answer), (*text, answer));
}

/// Ends the turn and sends its answer.
async fn delivery(case: &Case<'_>) {
    let Case { s, text, turn, fence, .. } = case;
    let said = NewMessage::text(case.message("answer"), Role::Assistant, format!("answer{text}"));
    s.append(fence, turn, vec![said], None).await.unwrap();
    let new = NewDelivery {
        kind: DeliveryKind::Message,
        part: 0,
        target: target(text),
        reply_to: Some((*text).to_owned()),
        content: (*text).to_owned(),
    };
    for _ in 0..2 {
        s.record_deliveries(fence, turn, vec![new.clone()]).await.unwrap();
    }
    let end = TurnEnd {
        reason: (*text).to_owned(),
        detail: Some((*text).to_owned()),
        outcome: AdmissionOutcome::Completed,
        api_calls: 1,
    };
    for _ in 0..2 {
        s.settle_turn(fence, turn, end.clone(), false).await.unwrap();
    }
    let ended = s.turn(turn).await.unwrap();
    assert_eq!((ended.reason.as_deref(), ended.detail.as_deref()), (Some(*text), Some(*text)));
    for content in [(*text).to_owned(), format!("answer{text}")] {
        let request = DeliveryRequest {
            account: format!("a{text}"),
            owner: owner("a"),
            lease_ms: TTL_MS.min(60_000),
            ambiguous: AmbiguousPolicy::Leave,
        };
        let DeliveryClaim::Send { fence, delivery } = s.claim_delivery(request).await.unwrap() else {
            panic!("nothing to send for {text:?}")
        };
        assert_eq!((&delivery.target, &delivery.content), (&target(text), &content));
        assert_eq!(delivery.reply_to.as_deref(), Some(*text));
        s.confirm_part(&fence, 0, text, 60_000).await.unwrap();
        s.fail_delivery(&fence, text, RetryAfter::Never).await.unwrap();
        let stored = s.delivery(&delivery.id).await.unwrap();
        assert_eq!(stored.platform_ids, [*text]);
        assert!(stored.error.unwrap().ends_with(text));
    }
}

async fn lists(case: &Case<'_>) {
    let Case { s, text, fence, .. } = case;
    let title = s.set_title(fence, &format!("T{text}"), TitleSource::User).await.unwrap();
    let filter = ConversationFilter {
        profile: Some(format!("p{text}")),
        source: Some((*text).to_owned()),
        title: Some(title.clone()),
        cwd: Some(format!("/{text}")),
        ..ConversationFilter::default()
    };
    let found = s.conversations(filter).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].id, found[0].title.as_ref()), (&case.id(), Some(&title)));
    assert_eq!((&*found[0].profile, &*found[0].source), (&*format!("p{text}"), *text));
    let part = ConversationFilter { text: Some((*text).to_owned()), ..ConversationFilter::default() };
    s.conversations(part).await.unwrap();
    let query = SearchQuery {
        profile: Some(format!("p{text}")),
        source: Some((*text).to_owned()),
        ..SearchQuery::text("u OR answer OR word")
    };
    s.search(query).await.unwrap();
    assert!(s.tip(text).await.is_err() && s.conversation_named(text).await.unwrap().is_none());
    let session = SessionId::parse(&case.conversation).unwrap();
    let take = TakeLock { session, holder: (*text).to_owned(), ttl_ms: TTL_MS, force: false };
    let LockOutcome::Taken(lock) = s.take_compression_lock(fence, take.clone()).await.unwrap() else {
        panic!("no lock")
    };
    s.fail_compression(fence, &lock, 60_000, text).await.unwrap();
    let LockOutcome::Cooling { error, .. } = s.take_compression_lock(fence, take).await.unwrap() else {
        panic!("not cooling")
    };
    assert_eq!(error.unwrap(), text.chars().filter(|c| !c.is_control()).collect::<String>());
    s.end_conversation(fence, text).await.unwrap();
}

async fn work(case: &Case<'_>) {
    let Case { s, text, fence, .. } = case;
    let id = ExecutionId::parse(&format!("e-{}", case.conversation)).unwrap();
    let new = NewWorker {
        id: id.clone(),
        kind: WorkerKind::Cron,
        task: format!("task{text}"),
        owner: owner("a"),
        secret: WorkerSecret::parse(&"s".repeat(40)).unwrap(),
    };
    let RegisterOutcome::Registered(proof) = s.register_worker(Some(fence), new).await.unwrap() else { panic!("busy") };
    let receipt = NewReceipt { sequence: 1, payload: (*text).to_owned(), result: (*text).to_owned() };
    for _ in 0..2 {
        s.record_receipt(&proof, receipt.clone()).await.unwrap();
    }
    assert_eq!(s.receipts(&id, 0, 10).await.unwrap()[0].result, *text);
    assert_eq!(s.worker(&id).await.unwrap().task, format!("task{text}"));
    let info =
        OwnerInfo { id: owner("odd"), host: (*text).to_owned(), boot_id: (*text).to_owned(), pid: 1, pid_start: 1 };
    s.heartbeat(&info).await.unwrap();
    s.announce(&info, &Presence { profile: (*text).to_owned(), role: (*text).to_owned() }).await.unwrap();
    let owners = s.owners().await.unwrap();
    assert!(format!("{owners:?}").contains(&format!("{text:?}")), "{owners:?}");
}

async fn every_text(fresh: Fresh) {
    let storage = fresh();
    let store = storage.open(&Faults::default()).await;
    let s = store.as_ref();
    let info = OwnerInfo { id: owner("a"), host: "h".to_owned(), boot_id: "b".to_owned(), pid: 1, pid_start: 1 };
    s.heartbeat(&info).await.unwrap();
    for (number, text) in HOSTILE.iter().enumerate() {
        let case = begin(s, number, text).await;
        transcript(&case).await;
        delivery(&case).await;
        work(&case).await;
        lists(&case).await;
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i27_every_text_comes_back_as_it_was_in_memory() {
    every_text(memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i27_every_text_comes_back_as_it_was_on_sqlite() {
    every_text(sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i27_every_text_comes_back_as_it_was_on_postgres() {
    every_text(postgres).await;
}
