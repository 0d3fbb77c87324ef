//! Delegation: a turn gives tasks to children and gets their results.
//!
//! A child is an ordinary conversation of its own (source [`CHILD_SOURCE`]) with one input; it is run by the same engine
//! with fewer tools and its own budget. Every id of it follows from the call that gave the task, so a parent that is
//! recovered finds the child that it had, and whatever is repeated is recognised: the call is idempotent.
//!
//! | module | what it does |
//! |---|---|
//! | `tool` | `delegate_task`: reads the call, dispatches the children, words their results for the model |
//! | `child` | runs the children of a turn beside its calls, stops them with it, stores their ends, takes the results |
//! | `background` | runs the children that no turn waits for, and brings their results to their parents |
//! | `control` | lists, steers and stops the children of a conversation, for its model and for people |
//!
//! What a child may do is written in the payload of its input ([`ChildTask`]), not in the memory of its parent's
//! process: whoever recovers a child gives it the same tools.

mod background;
mod child;
mod control;
mod tool;

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hermes_store::{
    AdmissionId, AdmissionRecord, CallId, ConversationId, DelegationId, DelegationRecord, PromptHash, StoreError,
    TurnId,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::engine::Inner;
use crate::event::{Event, EventKind};
use crate::input::Input;
use crate::limits;

pub(crate) use child::Desk;
pub use control::{Child, ChildState, ChildStop};
pub use tool::delegate_tool;
pub(crate) use tool::{DelegateTool, is_kept_from_children};

/// The source of conversations that are children.
pub const CHILD_SOURCE: &str = "delegate";

/// The tool's name.
pub(crate) const TOOL: &str = "delegate_task";

/// How an engine delegates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationSettings {
    /// Children of one turn that work at once, and tasks of one call (`delegation.max_concurrent_children`).
    pub max_concurrent_children: usize,
    /// How deep children may have children: 1 = a child has none (`delegation.max_spawn_depth`).
    pub max_spawn_depth: u32,
    /// Most requests of one child (`delegation.max_iterations`); `None` = no limit.
    pub max_iterations: Option<u64>,
    /// Text of one result that the parent is shown, in characters (`delegation.max_summary_chars`).
    pub max_summary_chars: usize,
}

impl Default for DelegationSettings {
    fn default() -> Self {
        Self {
            max_concurrent_children: limits::CHILDREN_AT_ONCE_MAX,
            max_spawn_depth: limits::SPAWN_DEPTH_MAX,
            max_iterations: Some(limits::CHILD_ITERATIONS_MAX),
            max_summary_chars: limits::CHILD_SUMMARY_MAX_CHARS,
        }
    }
}

/// What a child's input says beside its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildTask {
    /// 1 for a child of a conversation that is none.
    pub depth: u32,
    /// The tools that it may have: never more than its parent.
    pub tools: Vec<String>,
    /// Where its tools work.
    pub cwd: Option<String>,
    /// The parent does not wait for it.
    pub background: bool,
}

/// What the input of a child says of it; `None` for any other input.
pub(crate) fn task_of(admission: &AdmissionRecord) -> Option<ChildTask> {
    Input::from_payload(&admission.payload).ok()?.child
}

impl Inner {
    /// The delegation that a conversation is the child of; none of one that people began, and when it was forgotten.
    pub(crate) async fn delegation_of(&self, child: &ConversationId) -> Result<Option<DelegationRecord>, StoreError> {
        // Their ids are the same text ([`ChildIds`]); a child may have given many tasks away itself.
        let Ok(id) = DelegationId::parse(child.as_str()) else { return Ok(None) };
        match self.store.delegation(&id).await {
            Ok(record) => Ok(Some(record).filter(|record| record.child == *child)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The ids of task number `number` of a call: all the same text.
pub(crate) struct ChildIds {
    pub delegation: DelegationId,
    pub child: ConversationId,
    pub input: AdmissionId,
}

impl ChildIds {
    /// `CALL.NUMBER`; where that is too long for an id, its digest.
    pub(crate) fn of(call: &str, number: usize) -> Option<Self> {
        let plain = format!("{call}.{number}");
        let text = match CallId::parse(&plain) {
            Ok(_) => plain,
            Err(_) => digest(&plain),
        };
        Some(Self {
            delegation: DelegationId::parse(&text).ok()?,
            child: ConversationId::parse(&text).ok()?,
            input: AdmissionId::parse(&text).ok()?,
        })
    }
}

/// The id of the input that brings a result to its parent.
fn result_id(delegation: &DelegationId) -> Option<AdmissionId> {
    let plain = format!("{delegation}.result");
    AdmissionId::parse(&plain).or_else(|_| AdmissionId::parse(&digest(&plain))).ok()
}

/// The id of the input that a call steers a child with.
fn steer_id(call: &str) -> Option<AdmissionId> {
    let plain = format!("{call}.steer");
    AdmissionId::parse(&plain).or_else(|_| AdmissionId::parse(&digest(&plain))).ok()
}

fn digest(text: &str) -> String {
    format!("task-{}", PromptHash::of(text.as_bytes()).as_str())
}

/// Where the events of a child are shown too.
#[derive(Debug, Clone)]
pub(crate) struct Under {
    pub parent: ConversationId,
    pub turn: TurnId,
    pub delegation: DelegationId,
}

/// What an engine knows of the children that it runs now.
#[derive(Debug, Default)]
pub(crate) struct Children {
    /// By child. Held for map operations only, never over an await.
    under: Mutex<HashMap<ConversationId, Under>>,
    /// A task was given away in the background.
    wake: Notify,
    /// How many run such tasks.
    drivers: AtomicUsize,
}

impl Children {
    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationId, Under>> {
        self.under.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The event of a child as its parent's: `None` for what is no child, and for the pieces of a running answer or
    /// output, of which there are too many.
    pub(crate) fn outer(&self, event: &Event) -> Option<Event> {
        if matches!(
            event.kind,
            EventKind::TextDelta { .. } | EventKind::ReasoningDelta { .. } | EventKind::CallOutput { .. }
        ) {
            return None;
        }
        let under = self.lock().get(&event.conversation)?.clone();
        let kind = EventKind::Child { delegation: under.delegation, event: Box::new(event.clone()) };
        Some(Event::new(under.parent, Some(under.turn), kind))
    }

    /// The children of a conversation that work here now.
    fn of(&self, parent: &ConversationId) -> Vec<ConversationId> {
        self.lock().iter().filter(|(_, under)| under.parent == *parent).map(|(child, _)| child.clone()).collect()
    }

    /// Shows the events of `child` under its parent until the guard is dropped.
    pub(crate) fn show(&self, child: &ConversationId, under: Under) -> Shown<'_> {
        self.lock().insert(child.clone(), under);
        Shown { children: self, child: child.clone() }
    }
}

/// Takes a child off the list, however its work ends.
pub(crate) struct Shown<'e> {
    children: &'e Children,
    child: ConversationId,
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.children.lock().remove(&self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_of_a_child_is_told_whole_under_its_parent_but_for_pieces_of_text() {
        let children = Children::default();
        let ids = ChildIds::of("call-7", 2).unwrap();
        let parent = ConversationId::parse("parent").unwrap();
        let turn = TurnId::parse("turn").unwrap();
        let event = |kind| Event::new(ids.child.clone(), None, kind);
        let notice = event(EventKind::Notice { text: "hm".to_owned() });
        assert_eq!(children.outer(&notice), None, "it is nobody's child");
        let under = Under { parent: parent.clone(), turn, delegation: ids.delegation.clone() };
        let shown = children.show(&ids.child, under);
        let outer = children.outer(&notice).unwrap();
        let json = serde_json::to_string(&outer).unwrap();
        assert_eq!(
            json,
            "{\"conversation\":\"parent\",\"turn\":\"turn\",\"type\":\"child\",\"delegation\":\"call-7.2\",\"event\":\
             {\"conversation\":\"call-7.2\",\"turn\":null,\"type\":\"notice\",\"text\":\"hm\"}}"
        );
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), outer);
        assert_eq!(children.outer(&event(EventKind::TextDelta { text: "hm".to_owned() })), None);
        assert_eq!(children.of(&parent), std::slice::from_ref(&ids.child));
        drop(shown);
        assert_eq!((children.outer(&notice), children.of(&parent)), (None, Vec::new()));
    }

    #[test]
    fn ids_follow_from_the_call_and_always_fit() {
        let ids = ChildIds::of("call-7", 2).unwrap();
        assert_eq!(
            (ids.delegation.as_str(), ids.child.as_str(), ids.input.as_str()),
            ("call-7.2", "call-7.2", "call-7.2")
        );
        let long = "x".repeat(128);
        let (first, second) = (ChildIds::of(&long, 0).unwrap(), ChildIds::of(&long, 1).unwrap());
        assert_ne!(first.child, second.child);
        assert_eq!(first.child, ChildIds::of(&long, 0).unwrap().child);
    }
}
