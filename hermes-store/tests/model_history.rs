//! Random changes of history on every store: the same answers as the model, and the same rows after each.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

mod support;

use std::sync::Arc;

use hermes_store::conformance::{ListProbe, START_MS, input, new_conversation, owner};
use hermes_store::memory::MemoryStore;
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::{
    AdmissionOutcome, CallId, CallOutcome, CallResult, ChangeId, ClaimOutcome, ClaimPolicy, ClaimRequest, Compaction,
    CompressionLock, ConversationFilter, ConversationId, Fence, FlagChange, LockOutcome, ManualClock, MessageId,
    MessageKind, MessagePage, NewBranch, NewCall, NewMessage, NewSession, PromptSnapshot, PruneRules, ReplaySafety,
    Rewind, Role, Rotation, Round, SearchQuery, SessionId, Store, StoreError, StoredMessage, TakeLock, TurnEnd, TurnId,
    View, ViewMark, ViewRow,
};
use proptest::prelude::*;

/// Sequences to try. Modest: every pull request waits for them.
const SEQUENCES: u32 = 48;
/// On PostgreSQL each sequence makes its own schema first.
const SEQUENCES_ON_SERVER: u32 = 16;
const STEPS: usize = 50;

#[derive(Debug, Clone)]
enum Op {
    /// An input, and its turn.
    Begin {
        conversation: u8,
    },
    /// A lease without a turn.
    Lease {
        conversation: u8,
    },
    /// A question, with a round of `calls`, of which the last is left open when `open`.
    Talk {
        calls: u8,
        open: bool,
        hidden: bool,
    },
    /// The turn ends, in one of the ways that there are.
    End {
        how: u8,
    },
    Release,
    Lock {
        holder: u8,
        force: bool,
    },
    Renew {
        back: u8,
    },
    Unlock {
        back: u8,
    },
    Fail {
        back: u8,
    },
    /// A compression that keeps the last rows of the view; with `stale` from a view that is no more.
    Swap {
        in_place: bool,
        keep: u8,
        shorten: bool,
        stale: bool,
        id: u8,
        back: u8,
    },
    Rewind {
        from: u8,
        stale: bool,
        id: u8,
        /// With an input in its place.
        again: bool,
    },
    Restore {
        id: u8,
    },
    Branch {
        conversation: u8,
        display: bool,
        up_to: u8,
        id: u8,
    },
    Flags {
        archived: u8,
        pinned: u8,
    },
    EndConversation,
    Alias {
        name: u8,
    },
    Prune {
        limit: u8,
        dry_run: bool,
        archive: bool,
    },
    Delete,
    Advance {
        by: u8,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..2_u8).prop_map(|conversation| Op::Begin { conversation }),
        4 => (0..2_u8).prop_map(|conversation| Op::Lease { conversation }),
        8 => (0..3_u8, any::<u8>(), any::<u8>()).prop_map(|(calls, open, hidden)| {
            Op::Talk { calls, open: open % 8 == 0, hidden: hidden % 4 == 0 }
        }),
        5 => (0..6_u8).prop_map(|how| Op::End { how }),
        2 => Just(Op::Release),
        5 => (0..3_u8, any::<bool>()).prop_map(|(holder, force)| Op::Lock { holder, force }),
        1 => (0..3_u8).prop_map(|back| Op::Renew { back }),
        1 => (0..3_u8).prop_map(|back| Op::Unlock { back }),
        1 => (0..3_u8).prop_map(|back| Op::Fail { back }),
        8 => (any::<bool>(), 0..7_u8, any::<bool>(), any::<u8>(), 0..8_u8, prop_oneof![6 => Just(0_u8), 1 => 0..3_u8])
            .prop_map(|(in_place, keep, shorten, stale, id, back)| {
                Op::Swap { in_place, keep, shorten, stale: stale % 8 == 0, id, back }
            }),
        8 => (0..9_u8, any::<u8>(), 0..4_u8, any::<u8>()).prop_map(|(from, stale, id, again)| {
            Op::Rewind { from, stale: stale % 8 == 0, id, again: again % 4 == 0 }
        }),
        4 => (0..4_u8).prop_map(|id| Op::Restore { id }),
        2 => (0..2_u8, any::<bool>(), 0..9_u8, 0..3_u8).prop_map(|(conversation, display, up_to, id)| {
            Op::Branch { conversation, display, up_to, id }
        }),
        1 => (0..3_u8, 0..3_u8).prop_map(|(archived, pinned)| Op::Flags { archived, pinned }),
        1 => Just(Op::EndConversation),
        1 => (0..3_u8).prop_map(|name| Op::Alias { name }),
        1 => (0..3_u8, any::<bool>(), any::<bool>()).prop_map(|(limit, dry_run, archive)| {
            Op::Prune { limit, dry_run, archive }
        }),
        1 => Just(Op::Delete),
        2 => (0..5_u8).prop_map(|by| Op::Advance { by }),
    ]
}

/// What every sequence begins with, so that there is a history to be changed.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(), 1..STEPS).prop_map(|rest| {
        let talk = |calls| Op::Talk { calls, open: false, hidden: false };
        let mut ops = vec![Op::Begin { conversation: 0 }, talk(2), talk(0), talk(1)];
        ops.extend(rest);
        ops
    })
}

fn conversation(number: u8) -> ConversationId {
    ConversationId::parse(["c", "d"][usize::from(number)]).unwrap()
}

/// An answer as text, with errors by their code: words may differ, meaning may not.
fn show<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => error.code().to_owned(),
    }
}

fn session(id: SessionId, parent: Option<SessionId>, prompt: &str) -> NewSession {
    NewSession {
        id,
        parent,
        provider: "p".to_owned(),
        model: "m".to_owned(),
        cwd: None,
        prompt: PromptSnapshot::new(prompt.as_bytes().to_vec()),
        tools: PromptSnapshot::new(&b"[]"[..]),
    }
}

fn ended(how: u8) -> TurnEnd {
    let outcome = if how == 0 { AdmissionOutcome::Failed } else { AdmissionOutcome::Completed };
    TurnEnd { reason: "completed".to_owned(), detail: None, outcome, api_calls: 1 }
}

/// One store under test, with the last lease that it gave, the locks, and how often each thing was done.
struct Side {
    store: Arc<dyn Store>,
    lease: Option<(Fence, TurnId)>,
    locks: Vec<CompressionLock>,
    step: usize,
}

impl Side {
    fn new(store: Arc<dyn Store>) -> Self {
        Self { store, lease: None, locks: Vec::new(), step: 0 }
    }

    fn turn(&self) -> TurnId {
        TurnId::parse(&format!("turn-{}", self.step)).unwrap()
    }

    async fn claim(&mut self, conversation: ConversationId, policy: ClaimPolicy) -> String {
        let turn = self.turn();
        let request = ClaimRequest { conversation, owner: owner("a"), turn: turn.clone(), ttl_ms: 60_000, policy };
        let outcome = self.store.claim(request).await;
        match &outcome {
            Ok(ClaimOutcome::Turn { fence, .. } | ClaimOutcome::Leased { fence }) => {
                self.lease = Some((fence.clone(), turn));
            }
            Ok(ClaimOutcome::Recover { fence, open }) => self.lease = Some((fence.clone(), open.id.clone())),
            _ => {}
        }
        show(outcome)
    }

    async fn rows(&self, conversation: &ConversationId, view: View) -> Vec<StoredMessage> {
        self.store.messages(conversation, view, MessagePage::default()).await.unwrap_or_default()
    }

    async fn tip(&self, conversation: &ConversationId) -> SessionId {
        let found = self.store.conversation(conversation).await;
        found.ok().and_then(|found| found.tip).unwrap_or_else(|| conversation.first_session())
    }

    /// The mark of the present view, or of one that is no more.
    async fn mark(&self, conversation: &ConversationId, rows: &[StoredMessage], stale: bool) -> ViewMark {
        let mark = ViewMark::of(self.tip(conversation).await, rows);
        if stale { ViewMark { rows: mark.rows + 1, ..mark } } else { mark }
    }

    async fn talk(&self, fence: &Fence, turn: &TurnId, calls: u8, open: bool, hidden: bool) -> String {
        let (s, step) = (&self.store, self.step);
        let id = |word: &str| MessageId::parse(&format!("{word}-{step}")).unwrap();
        let mut question = NewMessage::text(id("q"), Role::User, format!("needle {step} {}", "x".repeat(40)));
        if hidden {
            question.kind = MessageKind::Hidden;
        }
        let mut out = if s.conversation(fence.conversation()).await.is_ok_and(|found| found.tip.is_some()) {
            show(s.append(fence, turn, vec![question], None).await)
        } else {
            let first = session(fence.conversation().first_session(), None, "first");
            show(s.open_session(fence, turn, first, vec![question]).await)
        };
        if calls > 0 {
            let call = |number: u8| CallId::parse(&format!("k{number}-{step}")).unwrap();
            let new = |number: u8| NewCall {
                call: call(number),
                result: id(&format!("r{number}")),
                provider_id: format!("p{number}"),
                name: "tool".to_owned(),
                arguments: "{}".to_owned(),
                replay: ReplaySafety::Once,
                preset: None,
            };
            let row = NewMessage::text(id("round"), Role::Assistant, "calls");
            let round = Round::plan(turn.clone(), row, (0..calls).map(new).collect(), None);
            out += &show(s.record_round(fence, round).await);
            for number in (0..calls).rev().skip(usize::from(open)) {
                let content = format!("a long result of needle {number}");
                let result = CallResult { outcome: CallOutcome::Ok, content, meta: None };
                out += &show(s.settle_call(fence, turn, &call(number), result).await);
            }
        }
        let answer = NewMessage::text(id("a"), Role::Assistant, format!("answer {step}"));
        out + &show(s.append(fence, turn, vec![answer], None).await)
    }

    async fn swap(&mut self, op: &Op, fence: &Fence, turn: &TurnId) -> String {
        let Op::Swap { in_place, keep, shorten, stale, id, back } = *op else { panic!("{op:?} is no swap") };
        let c = fence.conversation();
        let tip = self.tip(c).await;
        let holder = format!("swap-{}", self.step);
        let mut out = String::new();
        if back == 0 {
            let take = TakeLock { session: tip, holder, ttl_ms: 30_000, force: true };
            let taken = self.store.take_compression_lock(fence, take).await;
            if let Ok(LockOutcome::Taken(lock)) = &taken {
                self.locks.push(lock.clone());
            }
            out = show(taken);
        }
        let Some(lock) = self.locks.iter().rev().nth(usize::from(back)) else { return out };
        let view = self.rows(c, View::Model).await;
        let mark = self.mark(c, &view, stale).await;
        let summary = MessageId::parse(&format!("sum-{c}-{id}")).unwrap();
        let summary = NewMessage { kind: MessageKind::Summary, ..NewMessage::text(summary, Role::User, "s") };
        let mut rows = vec![ViewRow::New(summary)];
        for row in &view[view.len().saturating_sub(usize::from(keep))..] {
            rows.push(match shorten && row.role == Role::Tool {
                true => ViewRow::Shorten { row: row.id.clone(), content: "cut".to_owned() },
                false => ViewRow::Carry(row.id.clone()),
            });
        }
        let tip = mark.session.clone();
        let id = ChangeId::parse(&format!("swap-{c}-{id}")).unwrap();
        if in_place {
            let session = shorten.then(|| session(tip, None, "again"));
            let compaction = Compaction { id, turn: turn.clone(), mark, session, rows };
            return out + &show(self.store.compact(fence, lock, compaction).await);
        }
        let child = SessionId::parse(&format!("child-{id}")).unwrap();
        let child = session(child, Some(tip), "child");
        out + &show(self.store.rotate(fence, lock, Rotation { id, turn: turn.clone(), mark, child, rows }).await)
    }

    async fn apply(&mut self, op: &Op, step: usize) -> String {
        self.step = step;
        match *op {
            Op::Begin { conversation: number } => {
                let c = conversation(number);
                let new = input(c.as_str(), &format!("r{step}"), "payload");
                let mut out = show(self.store.create_and_admit(new_conversation(c.as_str()), new).await);
                out += &self.claim(c, ClaimPolicy::Any).await;
                return out;
            }
            Op::Lease { conversation: number } => {
                return self.claim(conversation(number), ClaimPolicy::LeaseOnly).await;
            }
            Op::Branch { conversation: number, display, up_to, id } => {
                let from = conversation(number);
                let view = if display { View::Display } else { View::Model };
                let rows = self.rows(&from, view).await;
                let up_to = rows.get(usize::from(up_to)).map(|row| row.id.clone());
                let new = new_conversation(&format!("branch-{id}"));
                return show(self.store.branch(NewBranch { conversation: new, from, view, up_to }).await);
            }
            Op::Prune { limit, dry_run, archive } => {
                let rules = PruneRules {
                    idle_ms: 1_000_000,
                    archive_ms: archive.then_some(500_000),
                    every_ms: 10_000,
                    limit: usize::from(limit),
                    dry_run,
                };
                return show(self.store.prune(rules).await);
            }
            _ => {}
        }
        let Some((fence, turn)) = self.lease.clone() else { return String::new() };
        self.apply_fenced(op, &fence, &turn).await
    }

    async fn apply_fenced(&mut self, op: &Op, fence: &Fence, turn: &TurnId) -> String {
        let (s, c) = (self.store.clone(), fence.conversation());
        let flag = |number: u8| (number > 0).then_some(number == 2);
        let lock = |back: u8| self.locks.iter().rev().nth(usize::from(back)).cloned();
        let undo = |id: u8| ChangeId::parse(&format!("undo-{c}-{id}")).unwrap();
        match *op {
            Op::Talk { calls, open, hidden } => self.talk(fence, turn, calls, open, hidden).await,
            Op::End { how: 4 } => show(s.requeue(fence, turn).await),
            Op::End { how: 5 } => show(s.lose_turn(fence, turn).await),
            Op::End { how } => show(s.settle_turn(fence, turn, ended(how), how == 1).await),
            Op::Release => show(s.release(fence).await),
            Op::Lock { holder, force } => {
                let take = TakeLock { session: self.tip(c).await, holder: format!("h{holder}"), ttl_ms: 30_000, force };
                let taken = s.take_compression_lock(fence, take).await;
                if let Ok(LockOutcome::Taken(lock)) = &taken {
                    self.locks.push(lock.clone());
                }
                show(taken)
            }
            Op::Renew { back } => match lock(back) {
                Some(lock) => show(s.renew_compression_lock(fence, &lock, 40_000).await),
                None => String::new(),
            },
            Op::Unlock { back } => match lock(back) {
                Some(lock) => show(s.release_compression_lock(fence, &lock).await),
                None => String::new(),
            },
            Op::Fail { back } => match lock(back) {
                Some(lock) => show(s.fail_compression(fence, &lock, 50_000, "no answer").await),
                None => String::new(),
            },
            Op::Swap { .. } => self.swap(op, fence, turn).await,
            Op::Rewind { from, stale, id, again } => {
                // Mostly a person undoes a turn that is over.
                let over = if id > 0 { show(s.settle_turn(fence, turn, ended(2), false).await) } else { String::new() };
                let view = self.rows(c, View::Model).await;
                let Some(row) = view.iter().rev().nth(usize::from(from)) else { return String::new() };
                let mark = self.mark(c, &view, stale).await;
                let rewind = Rewind { id: undo(id), mark, from: row.id.clone() };
                over + &match again {
                    false => show(s.rewind(fence, rewind).await),
                    true => show(s.retry(fence, rewind, input(c.as_str(), &format!("again-{id}"), "payload")).await),
                }
            }
            Op::Restore { id } => show(s.restore(fence, &undo(id)).await),
            Op::Flags { archived, pinned } => {
                let change = FlagChange { archived: flag(archived), pinned: flag(pinned), hidden: None };
                show(s.set_flags(fence, change).await)
            }
            Op::EndConversation => show(s.end_conversation(fence, "done").await),
            Op::Alias { name } => {
                let name = SessionId::parse(["old", "d", "branch-0"][usize::from(name)]).unwrap();
                show(s.add_alias(fence, &name).await)
            }
            Op::Delete => show(s.delete_conversation(fence).await),
            _ => String::new(),
        }
    }

    /// Everything that can be read.
    async fn view(&self) -> String {
        let s = &self.store;
        let mut out = show(s.conversations(ConversationFilter::default()).await);
        let query = SearchQuery { limit: 100, include_archived: true, ..SearchQuery::text("NEEDLE") };
        out += &show(s.search(query).await.map(|page| page.hits));
        for name in ["c", "d", "branch-0", "branch-1", "branch-2"] {
            let c = ConversationId::parse(name).unwrap();
            for view in [View::Model, View::Display] {
                out += &show(s.messages(&c, view, MessagePage::default()).await);
                out += &show(s.messages(&c, view, MessagePage { from_end: true, limit: 3, after_seq: 2 }).await);
            }
            out += &show(s.changes(&c).await);
            out += &show(s.lineage(&c).await);
            out += &show(s.queue(&c).await);
            out += &show(s.wait_for_change(&c, -1, 0).await);
        }
        for id in ["old", "d", "child-swap-c-0", "branch-0", "none"] {
            out += &show(s.tip(id).await);
        }
        if let Some((_, turn)) = &self.lease {
            out += &show(s.turn(turn).await);
        }
        out
    }
}

/// A view is what a model can be shown: every call has its results right behind it (I13), whatever was done.
fn check_pairs(rows: &[StoredMessage]) {
    let mut due: Vec<CallId> = Vec::new();
    for row in rows {
        match &row.answers {
            Some(answers) => assert_eq!(Some(&answers.call), (!due.is_empty()).then(|| due.remove(0)).as_ref()),
            None => {
                assert_eq!(due, [], "a call without its result");
                let settled = |call: &&hermes_store::StoredCall| call.outcome.is_some();
                due = row.calls.iter().filter(settled).map(|call| call.call.clone()).collect();
            }
        }
    }
    assert_eq!(due, [], "a call without its result");
}

async fn compare(ops: &[Op], store: Arc<dyn Store>, clock: &Arc<ManualClock>) {
    let mut model = Side::new(Arc::new(MemoryStore::new(clock.clone())));
    let mut other = Side::new(store);
    for (step, op) in ops.iter().enumerate() {
        if let Op::Advance { by } = *op {
            clock.advance([1, 20_000, 70_000, 2_000_000, -50_000][usize::from(by)]);
        }
        let (want, got) = (model.apply(op, step).await, other.apply(op, step).await);
        assert_eq!(want, got, "step {step}: {op:?}");
        if step % 5 == 4 {
            assert_eq!(model.view().await, other.view().await, "after step {step}: {op:?}");
        }
        for number in 0..2 {
            check_pairs(&model.rows(&conversation(number), View::Model).await);
        }
    }
    assert_eq!(model.view().await, other.view().await);
}

async fn on_sqlite(ops: &[Op]) {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(START_MS));
    let options = SqliteOptions {
        synchronous: Synchronous::Normal,
        probe: Arc::new(ListProbe::default()),
        ..SqliteOptions::new(dir.path().join("hermes.db"), clock.clone())
    };
    let store = SqliteStore::open(options).await.unwrap();
    compare(ops, Arc::new(store.clone()), &clock).await;
    store.close().await;
}

async fn on_postgres(ops: &[Op]) {
    let schema = support::TestSchema::new();
    let clock = Arc::new(ManualClock::at(START_MS));
    let store = schema.open(clock.clone(), Arc::new(ListProbe::default())).await;
    compare(ops, Arc::new(store.clone()), &clock).await;
    store.close().await;
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: SEQUENCES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_changes_history_as_the_model_does(ops in ops()) {
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
    fn postgres_changes_history_as_the_model_does(ops in ops()) {
        runtime().block_on(on_postgres(&ops));
    }
}
