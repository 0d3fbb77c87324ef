//! What may be done with children while they work: they are listed, told something, and stopped.
//!
//! Two ask for it, and each only about children of its own conversation: the model, by `action` of `delegate_task`, and a
//! person, by [`Engine::children`] and [`Engine::stop_child`]. Everything follows from the store, so it makes no
//! difference which process runs a child: what it is told is a steer of its conversation, taken once (I04); that it is
//! stopped is the stored end of its delegation, and whoever runs it looks at that ([`Engine::until_given_up`]).

use std::convert::Infallible;

use hermes_store::limits::PAGE_MAX_ROWS;
use hermes_store::{
    AdmissionStatus, ConversationId, DelegationEnd, DelegationId, DelegationOutcome, DelegationRecord, DelegationState,
    Intent, NewAdmission, ResultDelivery, StoreError,
};
use hermes_tools::{CallOutcome, CallReport};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::child::Desk;
use super::{CHILD_SOURCE, steer_id};
use crate::edit::Lease;
use crate::end::Stopper;
use crate::engine::{Engine, EngineError};
use crate::input::Input;
use crate::limits::{CHILDREN_LISTED_MAX, REDIRECT_WAIT_MS, TASK_CONTEXT_MAX_CHARS, WAIT_POLL_MS};
use crate::persist::persist;
use crate::stop::Interrupt;

/// The stored end of a child that was stopped.
const STOPPED: &str = "The task was stopped before it was done. A part of it may have been done.";
/// How long a lease is held that only stores such an end.
const STOP_LEASE_MS: u64 = 30_000;

/// How far a child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChildState {
    /// Nobody has begun it.
    Waiting,
    /// It is at work.
    Running,
    /// It did its task.
    Completed,
    /// It did not.
    Failed,
    /// It was stopped.
    Stopped,
    /// Nobody knows.
    Unknown,
}

impl ChildState {
    fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Stopped => "interrupted",
            Self::Unknown => "unknown",
        }
    }
}

/// A child of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// Its delegation, by which it is stopped.
    pub delegation: DelegationId,
    /// Its own conversation.
    pub conversation: ConversationId,
    /// Its task in few words.
    pub task: String,
    /// How far it is.
    pub state: ChildState,
    /// Whether its parent has its result.
    pub reported: bool,
    /// When it was given away, in milliseconds since the Unix epoch.
    pub dispatched_at_ms: i64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<i64>,
}

/// What came of the wish to stop a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChildStop {
    /// It is stopped, or stops now.
    Stopped,
    /// It was over.
    Over,
    /// Another process runs it, and its parent is at work there too: stop the parent's turn, or try again later.
    Busy,
}

impl Engine {
    /// Children of a conversation, the newest first; at most [`CHILDREN_LISTED_MAX`](crate::limits::CHILDREN_LISTED_MAX).
    ///
    /// # Errors
    /// Those of the store.
    pub async fn children(&self, parent: &ConversationId) -> Result<Vec<Child>, EngineError> {
        Ok(self.children_of(parent).await?)
    }

    async fn children_of(&self, parent: &ConversationId) -> Result<Vec<Child>, StoreError> {
        let all = self.inner().store.delegations(parent, PAGE_MAX_ROWS).await?;
        let mut children = Vec::new();
        for record in all.into_iter().filter(|record| record.parent == *parent).take(CHILDREN_LISTED_MAX) {
            let state = self.child_state(&record).await?;
            children.push(Child {
                state,
                reported: record.delivery == ResultDelivery::Delivered,
                delegation: record.id,
                conversation: record.child,
                task: record.task,
                dispatched_at_ms: record.dispatched_at_ms,
                ended_at_ms: record.ended_at_ms,
            });
        }
        Ok(children)
    }

    async fn child_state(&self, record: &DelegationRecord) -> Result<ChildState, StoreError> {
        Ok(match record.state {
            DelegationState::Completed => ChildState::Completed,
            DelegationState::Failed => ChildState::Failed,
            DelegationState::Cancelled => ChildState::Stopped,
            DelegationState::Unknown => ChildState::Unknown,
            DelegationState::Running => match self.inner().store.admission(&record.input).await?.receipt.status {
                AdmissionStatus::Queued => ChildState::Waiting,
                _ => ChildState::Running,
            },
        })
    }

    /// The delegation of a child of this conversation, and of no other.
    async fn own_child(&self, parent: &ConversationId, id: &DelegationId) -> Result<DelegationRecord, StoreError> {
        let record = self.inner().store.delegation(id).await?;
        match record.parent == *parent {
            true => Ok(record),
            false => Err(StoreError::NotFound { what: format!("delegation {id}") }),
        }
    }

    /// Stops a child of a conversation, wherever it runs: one that only waits is taken back, one that this engine runs is
    /// interrupted with its own children, and the end of one that another process runs is stored, which that process
    /// sees. Its result reaches the parent as any other does.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] also for a child of another conversation; those of the store.
    pub async fn stop_child(&self, parent: &ConversationId, id: &DelegationId) -> Result<ChildStop, EngineError> {
        self.while_beating(async { Ok(self.stop_own(parent, id).await?) }).await
    }

    async fn stop_own(&self, parent: &ConversationId, id: &DelegationId) -> Result<ChildStop, StoreError> {
        let inner = self.inner();
        let record = self.own_child(parent, id).await?;
        if self.end_delegation(id).await?.0.state.is_over() {
            return Ok(ChildStop::Over);
        }
        if inner.store.cancel(&record.input).await.is_ok() {
            self.end_delegation(id).await?;
            return Ok(ChildStop::Stopped);
        }
        if self.interrupt_child(&record) {
            return Ok(ChildStop::Stopped);
        }
        let claim = inner.ids().turn();
        let Lease::Held(fence) = inner.lease_for_edit(parent, &claim, STOP_LEASE_MS).await? else {
            return Ok(ChildStop::Busy);
        };
        let finish = || inner.store.finish_delegation(&fence, id, stopped());
        let ended = persist(inner.clock.as_ref(), finish).await;
        inner.store.release(&fence).await?;
        match ended {
            Err(StoreError::Conflict { .. }) => Ok(ChildStop::Over),
            ended => ended.map(|_| ChildStop::Stopped),
        }
    }

    /// Interrupts a child that this engine runs, with those that it gave away itself.
    fn interrupt_child(&self, record: &DelegationRecord) -> bool {
        let runs = self.interrupt(&record.child, Stopper::User, Interrupt::Hard);
        let below = self.interrupt_children(&record.child, Stopper::User, Interrupt::Hard);
        runs || below > 0
    }

    /// Stops a child that this engine runs when its delegation has ended without it: its parent, in any process, does not
    /// want it any more. Never ends.
    pub(super) async fn until_given_up(&self, record: &DelegationRecord) -> Infallible {
        let inner = self.inner();
        let mut seen = i64::MIN;
        loop {
            let look = async {
                let now = inner.store.wait_for_change(&record.child, seen, REDIRECT_WAIT_MS).await?;
                if now == seen {
                    return Ok(false);
                }
                seen = now;
                Ok::<bool, StoreError>(inner.store.delegation(&record.id).await?.state.is_over())
            };
            match look.await {
                Ok(true) => {
                    self.interrupt_child(record);
                    return futures::future::pending().await;
                }
                Ok(false) => {}
                Err(_) => inner.clock.sleep(WAIT_POLL_MS).await,
            }
        }
    }
}

fn stopped() -> DelegationEnd {
    DelegationEnd { outcome: DelegationOutcome::Cancelled, result: STOPPED.to_owned() }
}

/// What a call wants to do with children that there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Control {
    List,
    Steer { child: String, message: String },
    Stop { child: String },
}

impl Control {
    /// Of a call's arguments; `None` when it gives tasks away.
    pub(super) fn read(arguments: &Value) -> Result<Option<Self>, String> {
        let text = |name: &str| arguments[name].as_str().unwrap_or_default().trim().to_owned();
        let child = || match text("subagent_id") {
            id if id.is_empty() => Err("it needs a subagent_id; action \"list\" shows them".to_owned()),
            id => Ok(id),
        };
        match text("action").as_str() {
            "" | "spawn" => Ok(None),
            "list" => Ok(Some(Self::List)),
            "stop" => Ok(Some(Self::Stop { child: child()? })),
            "steer" => {
                let (child, message) = (child()?, text("message"));
                let chars = message.chars().count();
                match chars {
                    0 => Err("a steer needs a message".to_owned()),
                    1..=TASK_CONTEXT_MAX_CHARS => Ok(Some(Self::Steer { child, message })),
                    _ => Err(format!("the message has {chars} characters, and {TASK_CONTEXT_MAX_CHARS} are allowed")),
                }
            }
            other => Err(format!("there is no action {other:?}: spawn, list, steer, stop")),
        }
    }
}

fn told(error: &StoreError) -> String {
    format!("{}: {error}", error.code())
}

fn report(value: &Value, summary: String) -> CallReport {
    let mut report = CallReport::new(CallOutcome::Ok, value.to_string());
    report.summary = summary;
    report
}

impl Desk {
    /// Does what a call wants. Doing it again is doing it once.
    ///
    /// # Errors
    /// What the model is told.
    pub(super) async fn control(&self, call: &str, control: &Control) -> Result<CallReport, String> {
        match control {
            Control::List => self.list().await,
            Control::Steer { child, message } => self.steer(call, &self.own(child).await?, message).await,
            Control::Stop { child } => self.stop(&self.own(child).await?).await,
        }
    }

    async fn own(&self, child: &str) -> Result<DelegationRecord, String> {
        let none = || format!("this conversation has no child {child:?}; action \"list\" shows those that it has");
        let id = DelegationId::parse(child).map_err(|_| none())?;
        match self.engine.own_child(self.fence.conversation(), &id).await {
            Err(StoreError::NotFound { .. }) => Err(none()),
            found => found.map_err(|error| told(&error)),
        }
    }

    async fn list(&self) -> Result<CallReport, String> {
        let children = self.engine.children_of(self.fence.conversation()).await.map_err(|error| told(&error))?;
        let open = children.iter().filter(|child| matches!(child.state, ChildState::Waiting | ChildState::Running));
        let summary = format!("{} children, {} at work", children.len(), open.count());
        let shown = children.iter().map(|child| {
            json!({"subagent_id": child.delegation.as_str(), "status": child.state.word(), "task": child.task,
                "reported": child.reported})
        });
        Ok(report(&json!({"subagents": shown.collect::<Vec<_>>()}), summary))
    }

    async fn steer(&self, call: &str, record: &DelegationRecord, message: &str) -> Result<CallReport, String> {
        let store = &self.engine.inner().store;
        let id = steer_id(call).ok_or("the call has no usable id")?;
        // A repetition finds what it said before, whatever the child has done since.
        let known = store.admission(&id).await.is_ok();
        if !known && self.engine.end_delegation(&record.id).await.map_err(|error| told(&error))?.0.state.is_over() {
            return Err("it has ended, and reads nothing more".to_owned());
        }
        let text = format!("[The conversation that gave you the task adds something to it.]\n{message}");
        let input = NewAdmission {
            request_id: id.as_str().to_owned(),
            id,
            conversation: record.child.clone(),
            principal: CHILD_SOURCE.to_owned(),
            intent: Intent::Steer,
            payload: Input::text(text).to_payload(),
            submitted_by: self.fence.owner().clone(),
        };
        let admit = || store.admit(input.clone());
        persist(self.engine.inner().clock.as_ref(), admit).await.map_err(|error| told(&error))?;
        let value = json!({"subagent_id": record.id.as_str(), "status": "steered",
            "note": "It reads this with its next step; if it ends before, nobody does."});
        Ok(report(&value, "steered".to_owned()))
    }

    /// Stops a child and takes its end: nothing of it comes later.
    async fn stop(&self, record: &DelegationRecord) -> Result<CallReport, String> {
        let ended = self.stop_and_collect(record).await.map_err(|error| told(&error))?;
        let state = self.engine.child_state(&ended).await.map_err(|error| told(&error))?;
        let value = json!({"subagent_id": ended.id.as_str(), "status": state.word(), "summary": ended.result});
        Ok(report(&value, state.word().to_owned()))
    }

    async fn stop_and_collect(&self, record: &DelegationRecord) -> Result<DelegationRecord, StoreError> {
        let inner = self.engine.inner();
        let clock = inner.clock.as_ref();
        let mut ended = self.engine.end_delegation(&record.id).await?.0;
        if !ended.state.is_over() {
            // The end first: what the interrupted child says of itself comes behind it.
            let finish = || inner.store.finish_delegation(&self.fence, &record.id, stopped());
            ended = match persist(clock, finish).await {
                Err(StoreError::Conflict { .. }) => inner.store.delegation(&record.id).await?,
                done => done?,
            };
            self.engine.interrupt_child(record);
        }
        let collect = || inner.store.collect_result(&self.fence, &self.turn, &record.id);
        match persist(clock, collect).await {
            // Somebody brings it, or has brought it.
            Err(StoreError::InUse | StoreError::Invalid { .. }) => Ok(ended),
            collected => collected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_an_action_gives_tasks_away() {
        assert_eq!(Control::read(&json!({"goal": "x"})), Ok(None));
        assert_eq!(Control::read(&json!({"action": "spawn", "goal": "x"})), Ok(None));
        assert_eq!(Control::read(&json!({"action": "list"})), Ok(Some(Control::List)));
        let stop = Control::Stop { child: "c.0".into() };
        assert_eq!(Control::read(&json!({"action": "stop", "subagent_id": " c.0 "})), Ok(Some(stop)));
    }

    #[test]
    fn what_an_action_needs_is_told() {
        for (arguments, part) in [
            (json!({"action": "kill"}), "no action"),
            (json!({"action": "stop"}), "subagent_id"),
            (json!({"action": "steer", "message": "x"}), "subagent_id"),
            (json!({"action": "steer", "subagent_id": "c.0", "message": " "}), "needs a message"),
            (
                json!({"action": "steer", "subagent_id": "c", "message": "x".repeat(TASK_CONTEXT_MAX_CHARS + 1)}),
                "allowed",
            ),
        ] {
            let error = Control::read(&arguments).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
