//! What an engine of a simulated world is given: a tool that writes down what it did, and somebody who looks at the store
//! whenever something is reported.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::FutureExt as _;
use hermes_core::{Clock, EndReason, Event, EventKind, EventSink, TurnResult};
use hermes_store::{
    ChangeKind, ConversationId, JournalState, MessageId, MessagePage, Role, Store, StoredMessage, TurnId, View,
};
use hermes_tools::{
    Authorized, Call, CallOutcome, CallReport, Concurrency, PathUse, ReplaySafety, Risk, Tool, ToolContext, ToolSpec,
};

use crate::family;

/// Lets everything else run once.
pub(crate) async fn breathe() {
    let mut done = false;
    futures::future::poll_fn(|cx| {
        if std::mem::replace(&mut done, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// Reads the store where nothing may be awaited: the in-memory one answers at once, for a database a thread waits.
pub(crate) fn at_once<T>(work: impl Future<Output = T>) -> T {
    let handle = tokio::runtime::Handle::current();
    match handle.runtime_flavor() {
        tokio::runtime::RuntimeFlavor::CurrentThread => work.now_or_never().expect("the store makes a reader wait"),
        _ => tokio::task::block_in_place(|| handle.block_on(work)),
    }
}

/// The rows that people see.
pub(crate) async fn shown(store: &dyn Store, conversation: &ConversationId) -> Vec<StoredMessage> {
    let page = MessagePage { from_end: true, ..MessagePage::default() };
    store.messages(conversation, View::Display, page).await.unwrap()
}

/// A tool that looks into the store before its effect: its call must be there (I12).
pub(crate) struct SimTool {
    spec: ToolSpec,
    store: Arc<dyn Store>,
    conversations: Arc<[ConversationId]>,
    effects: Arc<Mutex<Vec<String>>>,
    clock: Arc<dyn Clock>,
    has_children: bool,
}

impl SimTool {
    pub(crate) fn new(name: &str, replay: ReplaySafety, world: &crate::world::World) -> Self {
        let spec = ToolSpec {
            name: name.to_owned(),
            toolset: "sim",
            description: "Does something.".to_owned(),
            parameters: serde_json::json!({"type": "object"}),
            replay,
            concurrency: if replay == ReplaySafety::Pure { Concurrency::Shared } else { Concurrency::Barrier },
            timed: true,
            result_max_chars: None,
        };
        Self {
            spec,
            store: world.store.clone(),
            conversations: world.conversations.clone(),
            effects: world.effects.clone(),
            clock: world.clock.clone(),
            has_children: world.scenario.delegates > 0,
        }
    }

    async fn state_of(&self, call: &str) -> Option<JournalState> {
        let conversations = match self.has_children {
            true => family::everybody(self.store.as_ref(), &self.conversations).await,
            false => self.conversations.to_vec(),
        };
        for conversation in &conversations {
            let rows = shown(self.store.as_ref(), conversation).await;
            let found = rows.iter().flat_map(|row| &row.calls).find(|made| made.call.as_str() == call);
            if let Some(found) = found {
                return Some(found.state);
            }
        }
        None
    }
}

#[async_trait]
impl Tool for SimTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn paths(&self, _call: &Call, _cx: &ToolContext) -> Vec<PathUse> {
        Vec::new()
    }

    /// A call of `ask` needs a person's word; what the person says to it stands in the call.
    fn risk(&self, call: &Call, _cx: &ToolContext) -> Risk {
        match (self.spec.name.as_str(), call.arguments["why"].as_str()) {
            ("ask", Some(why)) => Risk::Ask { why: why.to_owned() },
            _ => Risk::None,
        }
    }

    fn label(&self, call: &Call) -> String {
        format!("{} {}", call.name, call.id)
    }

    async fn call(&self, call: Authorized<Call>, cx: &ToolContext) -> CallReport {
        let call = call.into_inner();
        let state = self.state_of(&call.id).await;
        // A process that slept between its announcement and the effect may find the call settled as unknown.
        let announced = match self.spec.replay {
            ReplaySafety::Pure => state.is_some(),
            _ => matches!(state, Some(JournalState::Started | JournalState::Settled)),
        };
        assert!(announced, "I12: {} runs and the journal says {state:?}", call.id);
        breathe().await;
        if let Some(ms) = call.arguments["ms"].as_u64() {
            tokio::select! {
                biased;
                () = cx.cancel.cancelled() => return CallReport::new(CallOutcome::Interrupted, "stopped"),
                () = self.clock.sleep(ms) => {}
            }
        }
        self.effects.lock().unwrap().push(call.id.clone());
        breathe().await;
        match call.arguments["fail"].as_bool() {
            Some(true) => CallReport::new(CallOutcome::Failed, "it failed"),
            _ => {
                let size = call.arguments["size"].as_u64().unwrap_or(0);
                let text = format!("done {}{}", call.id, "x".repeat(usize::try_from(size).unwrap()));
                CallReport::new(CallOutcome::Ok, text)
            }
        }
    }
}

/// What was seen of a turn in one process.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    requests: u64,
    rounds: u64,
    compressions: u64,
}

/// What a row was when it was first seen, as text.
pub(crate) type Known = Arc<Mutex<BTreeMap<MessageId, (ConversationId, String)>>>;

/// Everything of a row that must never change.
pub(crate) fn bytes_of(row: &StoredMessage) -> String {
    let calls: Vec<_> = row.calls.iter().map(|c| (&c.call, &c.provider_id, &c.name, &c.arguments)).collect();
    let answers = row.answers.as_ref().map(|call| (&call.call, call.outcome));
    let texts = (&row.content, &row.api_content, &row.reasoning, &row.sidecar);
    format!("{} {:?} {:?} {} {} {texts:?} {calls:?} {answers:?}", row.seq, row.role, row.kind, row.session, row.turn)
}

/// Writes events down, and checks that what is reported is durable (I13, I15), that no row changes (I20), and that a turn
/// has no more steps than it may have.
pub(crate) struct Watcher {
    pub(crate) node: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) trace: Arc<Mutex<Vec<String>>>,
    pub(crate) known: Known,
    /// Steps that one turn may have.
    pub(crate) steps_max: Option<u64>,
    has_children: bool,
    seen: Mutex<BTreeMap<TurnId, Seen>>,
}

impl Watcher {
    pub(crate) fn new(node: &str, world: &crate::world::World, steps_max: Option<u64>) -> Self {
        Self {
            node: node.to_owned(),
            store: world.lookout.clone(),
            trace: world.trace.clone(),
            known: world.known.clone(),
            steps_max,
            has_children: world.scenario.delegates > 0,
            seen: Mutex::default(),
        }
    }

    fn rows(&self, conversation: &ConversationId) -> Vec<StoredMessage> {
        at_once(shown(self.store.as_ref(), conversation))
    }

    /// Whether something of the conversation was undone: another process may have taken away what this one tells of late.
    fn is_undone(&self, conversation: &ConversationId) -> bool {
        let changes = at_once(self.store.changes(conversation)).unwrap();
        changes.iter().any(|change| change.kind == ChangeKind::Rewind)
    }

    /// The rows now; each that was seen before has the bytes that it had (checker h).
    fn known_rows(&self, conversation: &ConversationId) -> Vec<StoredMessage> {
        let rows = self.rows(conversation);
        let mut known = self.known.lock().unwrap();
        for row in &rows {
            let bytes = bytes_of(row);
            let before = known.entry(row.id.clone()).or_insert_with(|| (conversation.clone(), bytes.clone()));
            assert_eq!(before.1, bytes, "I20: the row {} was changed", row.id);
        }
        rows
    }

    fn count(&self, turn: &TurnId, add: fn(&mut Seen)) {
        add(self.seen.lock().unwrap().entry(turn.clone()).or_default());
    }

    /// (i) Nothing is reported as said that is not stored. (j) Requests are counted, and steps are within the budget.
    fn ended(&self, conversation: &ConversationId, result: &TurnResult) {
        let rows = self.known_rows(conversation);
        let is_whole = matches!(result.reason, EndReason::Answered | EndReason::BudgetExhausted);
        if is_whole && !result.answer.is_empty() {
            let said = rows.iter().any(|row| row.role == Role::Assistant && row.content == result.answer);
            assert!(
                said || self.is_undone(conversation),
                "I15: an answer was reported before its row: {:?}",
                result.answer
            );
        }
        let Some(turn) = &result.turn else { return };
        let seen = self.seen.lock().unwrap().remove(turn).unwrap_or_default();
        if seen.compressions == 0 {
            assert_eq!(result.api_calls, seen.requests, "the requests of {turn} are not counted right");
        }
        assert!(result.api_calls >= seen.requests, "a request of {turn} was not counted");
        if let Some(max) = self.steps_max {
            // The step of grace is one more.
            assert!(seen.rounds <= max + 1, "{turn} had {} rounds, and {max} are allowed", seen.rounds);
        }
        let stored = at_once(self.store.turn(turn)).unwrap();
        if self.has_children && stored.reason.as_deref() == Some(result.reason.as_str()) {
            at_once(family::none_at_work(self.store.as_ref(), conversation, turn));
        }
        // A turn that this process could not write the end of was ended by another one, maybe for the same reason.
        if result.reason == EndReason::Answered && stored.reason.as_deref() == Some(result.reason.as_str()) {
            assert_eq!(stored.api_calls, result.api_calls, "{turn}");
        }
    }
}

impl EventSink for Watcher {
    fn emit(&self, event: Event) {
        let conversation = &event.conversation;
        let turn = event.turn.as_ref();
        match &event.kind {
            EventKind::TurnEnded { result } => self.ended(conversation, result),
            EventKind::PrefixBroken { .. } => panic!("I18: {event:?}"),
            EventKind::CallFinished { call, .. } => {
                let rows = self.rows(conversation);
                let stored = rows.iter().any(|row| row.answers.as_ref().is_some_and(|answer| answer.call == *call));
                assert!(stored || self.is_undone(conversation), "I13: a result was reported before its row: {call}");
            }
            EventKind::RoundRecorded { calls, .. } => {
                let rows = self.rows(conversation);
                let made: Vec<_> = rows.iter().flat_map(|row| &row.calls).map(|call| &call.call).collect();
                assert!(
                    calls.iter().all(|call| made.contains(&&call.call)) || self.is_undone(conversation),
                    "I12: a round was reported before its row"
                );
                self.count(turn.unwrap(), |seen| seen.rounds += 1);
            }
            EventKind::RequestStarted { .. } => self.count(turn.unwrap(), |seen| seen.requests += 1),
            EventKind::CompressionStarted { .. } => {
                self.known_rows(conversation);
                // One that a person asked for has no turn.
                turn.inspect(|turn| self.count(turn, |seen| seen.compressions += 1));
            }
            _ => {}
        }
        let line = format!("{}: {conversation}: {:?}", self.node, event.kind);
        self.trace.lock().unwrap().push(line);
    }
}
