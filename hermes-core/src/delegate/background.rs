//! Children that nobody waits for: runs them, stores their ends, brings the results to their parents.
//!
//! [`Engine::run_delegations`] is one future that a host awaits beside its other work; it looks whenever a task is given
//! away here, and every [`WORK_SWEEP_MS`] at what other processes left. Everything that it does follows from the store:
//!
//! | what is stored | what it does |
//! |---|---|
//! | a child with an input that is not over | runs it, or goes on with it |
//! | a child whose input is over, its delegation not | stores the end |
//! | an end that waits for somebody who brings it | makes it an input of the parent, and runs that |
//!
//! A child that its parent waits for is left to the parent's turn, and is looked after here only when that turn is over
//! without it. Any number of processes may do this over one store: leases and claims let one of them through.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use hermes_store::limits::{RESULT_LEASE_MS, WORK_SWEEP_MS};
use hermes_store::{
    AdmissionId, AdmissionStatus, ConversationFilter, ConversationId, ConversationSummary, DelegationRecord,
    DelegationState, Intent, NewAdmission, StoreError, TurnStatus,
};

use super::{CHILD_SOURCE, Children, Under, result_id, task_of};
use crate::end::Stopper;
use crate::engine::{Engine, EngineError};
use crate::input::Input;
use crate::limits::{BACKGROUND_PARENTS_MAX, CHILD_LOOK_BACK_MS, CHILDREN_LOOKED_AT_MAX};
use crate::persist::persist;
use crate::run::Progress;
use crate::stop::{Cause, Interrupt, StopSignal};

/// Says that background children are run here, until it is dropped.
struct Driver<'e>(&'e AtomicUsize);

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Children {
    fn driver(&self) -> Driver<'_> {
        self.drivers.fetch_add(1, Ordering::AcqRel);
        Driver(&self.drivers)
    }

    /// Whether somebody runs children in the background.
    pub(super) fn are_run(&self) -> bool {
        self.drivers.load(Ordering::Acquire) > 0
    }
}

/// Conversations that one driver works on now.
struct AtWork<'e> {
    children: HashSet<ConversationId>,
    parents: HashSet<AdmissionId>,
    /// Children with which this engine could not get on, and when they are looked at again: a look that finds nothing to
    /// do is over at once, and would be the next one's cause.
    resting: HashMap<ConversationId, i64>,
    running: FuturesUnordered<BoxFuture<'e, Done>>,
    /// The first look sees everything that earlier processes left.
    looked: bool,
}

enum Done {
    /// Whether it is left alone for a while.
    Child(ConversationId, bool),
    Parent(AdmissionId),
}

impl Engine {
    /// Runs tasks that were given away in the background, and brings their results to their parents, until
    /// [`Engine::wind_down`]: to be awaited once by a host whose turns may give tasks away in the background. Without it
    /// the model is told that nothing runs them. The heartbeat beats all the time.
    ///
    /// Dropping it is a crash of the children that run: the next owner goes on with them.
    ///
    /// # Errors
    /// Only when this owner cannot be registered; what fails later is tried again.
    pub async fn run_delegations(&self) -> Result<(), EngineError> {
        let _driver = self.inner().children.driver();
        self.while_beating(async {
            // Boxed: whoever awaits it beside other work would carry its size.
            Box::pin(self.tend()).await;
            Ok(())
        })
        .await
    }

    async fn tend(&self) {
        let inner = self.inner();
        let running = FuturesUnordered::new();
        let mut work = AtWork {
            children: HashSet::new(),
            parents: HashSet::new(),
            resting: HashMap::new(),
            running,
            looked: false,
        };
        loop {
            let is_ending = inner.closing.has_begun();
            if is_ending && work.running.is_empty() {
                return;
            }
            if !is_ending {
                if let Err(error) = self.bring_due(&mut work).await {
                    tracing::warn!(code = error.code(), "results of children are brought later: {error}");
                }
                if let Err(error) = self.begin_due(&mut work).await {
                    tracing::warn!(code = error.code(), "children in the background are run later: {error}");
                }
            }
            let wait = async {
                let looked_for = inner.children.wake.notified();
                inner
                    .closing
                    .unless_begun(async {
                        tokio::select! {
                            biased;
                            () = looked_for => {}
                            () = inner.clock.sleep(WORK_SWEEP_MS) => {}
                        }
                    })
                    .await;
            };
            tokio::select! {
                biased;
                Some(done) = work.running.next(), if !work.running.is_empty() => match done {
                    Done::Child(child, rests) => {
                        work.children.remove(&child);
                        if rests {
                            let sweep = i64::try_from(WORK_SWEEP_MS).unwrap_or(i64::MAX);
                            work.resting.insert(child, inner.clock.now_ms().saturating_add(sweep));
                        }
                    }
                    Done::Parent(input) => {
                        work.parents.remove(&input);
                    }
                },
                () = wait, if !is_ending => {}
            }
        }
    }

    /// Begins children that wait, as many as may work at once.
    async fn begin_due<'e>(&'e self, work: &mut AtWork<'e>) -> Result<(), StoreError> {
        let inner = self.inner();
        let filter = ConversationFilter {
            profile: Some(inner.settings.profile.clone()),
            source: Some(CHILD_SOURCE.to_owned()),
            limit: CHILDREN_LOOKED_AT_MAX,
            ..ConversationFilter::default()
        };
        let look_back = i64::try_from(CHILD_LOOK_BACK_MS).unwrap_or(i64::MAX);
        let since = if work.looked { inner.clock.now_ms().saturating_sub(look_back) } else { i64::MIN };
        let wide = inner.settings.delegation.clone().unwrap_or_default().max_concurrent_children.max(1);
        let found = inner.store.conversations(filter).await?;
        let now_ms = inner.clock.now_ms();
        work.resting.retain(|_, until_ms| *until_ms > now_ms);
        // The oldest first.
        for child in found.into_iter().rev() {
            if work.children.len() >= wide {
                return Ok(());
            }
            let is_old = child.pending.is_none() && child.last_activity_ms < since;
            if is_old || work.children.contains(&child.id) || work.resting.contains_key(&child.id) {
                continue;
            }
            if let Some(record) = self.due_delegation(&child).await? {
                work.children.insert(child.id.clone());
                work.running.push(Box::pin(async move {
                    let child = record.child.clone();
                    let rests = self.tend_child(record).await;
                    Done::Child(child, rests)
                }));
            }
        }
        work.looked = true;
        Ok(())
    }

    /// What is to be done for a child; `None` when it is done, or its parent's turn does it.
    async fn due_delegation(&self, child: &ConversationSummary) -> Result<Option<DelegationRecord>, StoreError> {
        let Some(record) = self.inner().delegation_of(&child.id).await? else { return Ok(None) };
        if record.state.is_over() && (child.pending.is_none() || self.is_spoken_to(&child.id).await?) {
            return Ok(None);
        }
        Ok((!self.is_waited_for(&record).await?).then_some(record))
    }

    /// Whether what is next in a child is a person's: it is nothing that the task left open.
    async fn is_spoken_to(&self, child: &ConversationId) -> Result<bool, StoreError> {
        let queue = self.inner().store.queue(child).await?;
        Ok(queue.first().is_some_and(|next| next.principal != CHILD_SOURCE))
    }

    /// Whether a turn of the parent waits for this child, or will when it is recovered.
    async fn is_waited_for(&self, record: &DelegationRecord) -> Result<bool, StoreError> {
        let inner = self.inner();
        let input = inner.store.admission(&record.input).await?;
        if task_of(&input).is_none_or(|task| task.background) {
            return Ok(false);
        }
        Ok(inner.store.turn(&record.turn).await?.status == TurnStatus::Running)
    }

    /// Whether an unknown end may become known here: its child is not over, and is gone on with.
    async fn may_still_end(&self, record: &DelegationRecord) -> Result<bool, StoreError> {
        if record.state.is_over() {
            return Ok(false);
        }
        let status = self.inner().store.admission(&record.input).await?.receipt.status;
        Ok(matches!(status, AdmissionStatus::Queued | AdmissionStatus::Started))
    }

    /// Runs a child and stores its end. True when that could not be done now: somebody else has the child, maybe an owner
    /// that died and is not known to be dead yet, or the store failed. It rests then; without a pause the next look would
    /// do the same at once, for as long as that lasts.
    async fn tend_child(&self, record: DelegationRecord) -> bool {
        let inner = self.inner();
        let under = Under { parent: record.parent.clone(), turn: record.turn.clone(), delegation: record.id.clone() };
        let shown = inner.children.show(&record.child, under);
        let worked = if record.state.is_over() {
            self.step_after_end(&record).await
        } else {
            tokio::select! {
                biased;
                worked = self.run_until_over(&record.child, &record.input) => worked.map(|_| false),
                never = self.until_given_up(&record) => match never {},
            }
        };
        drop(shown);
        inner.close_tool_session(&record.child).await;
        let ended = match worked {
            Ok(rests) => {
                let ended = self.end_delegation(&record.id).await;
                ended.map(|(now, _)| rests || !now.state.is_over()).map_err(EngineError::from)
            }
            Err(error) => Err(error),
        };
        ended.unwrap_or_else(|error| {
            tracing::warn!(code = error.code(), "a child in the background is gone on with later: {error}");
            true
        })
    }

    /// A look at a child whose delegation is over. A task that was given up is closed, and nothing more is done of it;
    /// what came behind the task (somebody spoke to the child, or a child of its own has ended) is run like any input.
    /// True when nothing can be done here now.
    async fn step_after_end(&self, record: &DelegationRecord) -> Result<bool, EngineError> {
        let signal = StopSignal::default();
        if self.inner().store.admission(&record.input).await?.receipt.status != AdmissionStatus::Terminal {
            signal.stop(Cause::Asked(Stopper::User), Interrupt::Hard);
        }
        Ok(match self.step(&record.child, signal).await? {
            Progress::Ended(result) => result.reason.may_be_open(),
            Progress::Again => false,
            Progress::Idle | Progress::Busy(_) => true,
        })
    }

    /// Brings results that wait to their parents, and runs the inputs that they became.
    async fn bring_due<'e>(&'e self, work: &mut AtWork<'e>) -> Result<(), StoreError> {
        let inner = self.inner();
        for record in inner.store.due_results(CHILDREN_LOOKED_AT_MAX).await? {
            if work.parents.len() >= BACKGROUND_PARENTS_MAX {
                return Ok(());
            }
            if self.is_waited_for(&record).await? || self.may_still_end(&record).await? {
                continue;
            }
            let parent = record.parent.clone();
            match self.bring(&record).await {
                Ok(Some(input)) => {
                    work.parents.insert(input.clone());
                    work.running.push(Box::pin(async move {
                        if let Err(error) = self.run_until_over(&parent, &input).await {
                            tracing::warn!(code = error.code(), "the result of a child waits in the queue: {error}");
                        }
                        Done::Parent(input)
                    }));
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(code = error.code(), "the result of {} was not brought: {error}", record.id);
                }
            }
        }
        Ok(())
    }

    /// Makes a result an input of the parent, once whoever tries and however often.
    async fn bring(&self, due: &DelegationRecord) -> Result<Option<AdmissionId>, StoreError> {
        let inner = self.inner();
        let Some(claim) = inner.store.claim_result(&due.id, inner.owner_id(), RESULT_LEASE_MS).await? else {
            return Ok(None);
        };
        let max_chars = inner.settings.delegation.clone().unwrap_or_default().max_summary_chars;
        let Some(id) = result_id(&due.id) else { return Ok(None) };
        let input = NewAdmission {
            id,
            conversation: due.parent.clone(),
            principal: CHILD_SOURCE.to_owned(),
            request_id: due.id.as_str().to_owned(),
            intent: Intent::Queue,
            payload: Input::text(news(claim.record(), max_chars)).to_payload(),
            submitted_by: inner.owner_id().clone(),
        };
        let delivered = persist(inner.clock.as_ref(), || inner.store.deliver_result(&claim, input.clone())).await;
        if delivered.is_err() {
            inner.store.release_result(&claim).await?;
        }
        Ok(Some(delivered?.receipt().admission.clone()))
    }
}

/// What the parent is told. It follows from the record alone.
fn news(record: &DelegationRecord, max_chars: usize) -> String {
    let status = match record.state {
        DelegationState::Completed => "completed",
        DelegationState::Failed => "failed",
        DelegationState::Cancelled => "interrupted",
        DelegationState::Running | DelegationState::Unknown => {
            "unknown: the program that worked on it died, and nobody knows how far it came"
        }
    };
    let text = record.result.as_deref().unwrap_or_default();
    let shown: String = text.chars().take(max_chars).collect();
    let cut = if shown.len() < text.len() { "\n[The rest is in the child's conversation.]" } else { "" };
    let task = record.task.lines().next().unwrap_or_default();
    format!(
        "[This is no message of the user: a task that you gave away in the background has ended.]\n\
         Task: {task}\nConversation: {}\nStatus: {status}\n\nResult:\n{shown}{cut}",
        record.child
    )
}
