//! Children in a world: who they are, and what must hold of them when it has come to rest.
//!
//! A task that was given away is a conversation of its own, so everything that [`crate::check`] demands of conversations
//! holds of children too. What is here is about parents and children together.

use hermes_core::{EndReason, Engine};
use hermes_store::limits::WORK_SWEEP_MS;
use hermes_store::{
    AdmissionStatus, CallOutcome, ConversationId, DelegationRecord, DelegationState, ResultDelivery, Role, Store,
    StoredMessage,
};

use crate::world::World;
use crate::{check, rewinds};

/// How the result of a task in the background begins.
pub(crate) const NEWS: &str = "a task that you gave away in the background";
/// The input that stands for results of children in scripts.
pub(crate) const NEWS_INPUT: &str = "news of a child";
/// Time between two looks at what was said to children, in milliseconds.
const SPOKEN_LOOK_MS: u64 = 10_000;
/// Delegations of one conversation that are looked at; no world has as many.
const DELEGATIONS_MAX: usize = 1_000;

/// Every task that was given away by these conversations and by their children, parents before children.
pub(crate) async fn delegations(store: &dyn Store, roots: &[ConversationId]) -> Vec<DelegationRecord> {
    let mut waiting: Vec<ConversationId> = roots.iter().rev().cloned().collect();
    let mut found = Vec::new();
    while let Some(parent) = waiting.pop() {
        let mut given = store.delegations(&parent, DELEGATIONS_MAX).await.unwrap();
        given.retain(|record| record.parent == parent);
        given.sort_by(|a, b| a.id.cmp(&b.id));
        waiting.extend(given.iter().rev().map(|record| record.child.clone()));
        found.extend(given);
    }
    found
}

/// These conversations and all their children.
pub(crate) async fn everybody(store: &dyn Store, roots: &[ConversationId]) -> Vec<ConversationId> {
    let children = delegations(store, roots).await.into_iter().map(|record| record.child);
    roots.iter().cloned().chain(children).collect()
}

/// What of the tasks is still open, in words; empty when all of them ended and their parents know it.
pub(crate) async fn open(store: &dyn Store, roots: &[ConversationId]) -> Vec<String> {
    let mut found = Vec::new();
    for record in delegations(store, roots).await {
        let is_told =
            record.state.is_over() && matches!(record.delivery, ResultDelivery::Delivered | ResultDelivery::Dropped);
        if !is_told || !store.queue(&record.child).await.unwrap().is_empty() {
            found.push(format!("{} {:?} {:?}", record.id, record.state, record.delivery));
        }
    }
    found
}

/// What a host does beside its turns: runs tasks in the background, sweeps those of dead owners, and works on what people
/// said to children whose task is over, which is no part of any task. Never ends, but in order.
pub(crate) async fn look_after(engine: &Engine, clock: &dyn hermes_core::Clock, roots: &[ConversationId]) {
    let run = async {
        loop {
            if engine.run_delegations().await.is_ok() {
                return;
            }
            clock.sleep(1_000).await;
        }
    };
    let sweep = async {
        loop {
            clock.sleep(WORK_SWEEP_MS).await;
            let _ = engine.store().sweep_delegations().await;
        }
    };
    let answer = async {
        loop {
            clock.sleep(SPOKEN_LOOK_MS).await;
            let store = engine.store().as_ref();
            for record in delegations(store, roots).await.into_iter().filter(|record| record.state.is_over()) {
                if !store.queue(&record.child).await.unwrap().is_empty() {
                    let _ = engine.drain(&record.child).await;
                }
            }
        }
    };
    // A host that ends in order does nothing more of it.
    futures::future::select(Box::pin(run), Box::pin(futures::future::join(sweep, answer))).await;
}

/// (l) A task runs once, its end is stored and told to the parent once; nothing of it is left open.
pub(crate) async fn at_rest(world: &World, what: &str) {
    let store = world.store.as_ref();
    let all = delegations(store, &world.conversations).await;
    for record in &all {
        let what = format!("{what}: the child {}", record.child);
        assert!(record.state.is_over(), "{what} is orphaned: {record:?}");
        assert_eq!(record.delivery, ResultDelivery::Delivered, "{what}: {record:?}");
        let task = store.admission(&record.input).await.unwrap();
        check::conversation_at_rest(world, &record.child, std::slice::from_ref(&task), &what).await;
        let rows = world.rows(&record.child).await;
        let is_task = |row: &&StoredMessage| row.role == Role::User && row.content.contains("\n\nTask:\n");
        assert!(rows.iter().filter(is_task).count() <= 1, "{what} was given its task twice");
        told_once(world, record, &what).await;
    }
}

/// (l) The parent is told once what came of a task: by the call that waited for it, or by an input. It may not be told
/// when its own turn could not go on, and then that turn says so.
async fn told_once(world: &World, record: &DelegationRecord, what: &str) {
    let again = rewinds::again(world, &record.parent).await;
    let mut rows = world.everything(&record.parent).await;
    rows.retain(|row| row.copy_of.is_none() && !again.contains(&row.id));
    let by_calls = rows.iter().filter(|row| row.answers.is_some() && is_result_of(record, &row.content)).count();
    let by_news = rows.iter().filter(|row| row.role == Role::User && is_news_of(record, &row.content)).count();
    assert!(by_calls + by_news <= 1, "{what}: told by {by_calls} calls and {by_news} inputs: {record:?}");
    if by_calls + by_news == 1 {
        return;
    }
    if let Some(input) = &record.delivered_as {
        let input = world.store.admission(input).await.unwrap();
        assert_eq!(input.receipt.status, AdmissionStatus::Terminal, "{what}");
        let turn = world.store.turn(input.receipt.turn.as_ref().unwrap()).await.unwrap();
        assert_eq!(turn.reason.as_deref(), Some(EndReason::PersistenceFailed.as_str()), "{what}: not told: {turn:?}");
        return;
    }
    let call = record.id.as_str().rsplit_once('.').unwrap().0;
    let answer = rows.iter().filter_map(|row| row.answers.as_ref()).find(|answer| answer.call.as_str() == call);
    let outcome = answer.map(|answer| answer.outcome);
    let is_unknown = matches!(outcome, Some(CallOutcome::OutcomeUnknown | CallOutcome::Interrupted));
    assert!(is_unknown, "{what}: not told: {record:?} {answer:?}");
}

fn is_news_of(record: &DelegationRecord, text: &str) -> bool {
    text.contains(NEWS) && text.contains(&format!("\nConversation: {}\n", record.child))
}

/// Whether the result of a call tells the end of this task, and not only that it was given away.
fn is_result_of(record: &DelegationRecord, text: &str) -> bool {
    let Ok(told) = serde_json::from_str::<serde_json::Value>(text.split("\n\n[").next().unwrap_or(text)) else {
        return false;
    };
    let entries = told["results"].as_array().cloned().unwrap_or_default();
    entries.iter().any(|entry| entry["conversation"] == record.child.as_str() && entry["status"] != "dispatched")
}

/// (l) A turn that ended in order has left no child at work that it waited for.
pub(crate) async fn none_at_work(store: &dyn Store, conversation: &ConversationId, turn: &hermes_store::TurnId) {
    let given = store.delegations(conversation, DELEGATIONS_MAX).await.unwrap();
    for record in given.iter().filter(|record| record.parent == *conversation && record.turn == *turn) {
        let task = store.admission(&record.input).await.unwrap();
        if task.payload.contains("\"background\":true") {
            continue;
        }
        assert!(
            record.state != DelegationState::Running,
            "the turn {turn} is over, and its child works on: {record:?}"
        );
    }
}
