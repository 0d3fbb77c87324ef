//! Runs the children of a turn: beside its calls, no longer than it, each to one stored end.
//!
//! The tool hands a dispatched child in at the [`Desk`] of its turn and waits; the turn works on the children while the
//! executor works on the calls ([`Turn::beside_children`]). So they are a part of the parent's future, and whatever
//! becomes of the call that waits for one, the turn does not go on before the child has settled.
//!
//! | the parent | then a child |
//! |---|---|
//! | is stopped, or its time is over | is stopped in the same way and settles with the same cause |
//! | has lost its lease, or cannot write | is left as a crash would leave it; whoever recovers the parent goes on with it |
//! | is dropped (a crash) | is dropped too |
//!
//! The end of a delegation follows from what the child stored ([`end_of`]), so it is the same whoever stores it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, Either, select};
use futures::stream::{FuturesUnordered, StreamExt as _};
use hermes_store::limits::{DELEGATION_RESULT_MAX_BYTES, DELEGATION_TASK_MAX_BYTES, PAGE_MAX_ROWS};
use hermes_store::{
    AdmissionOutcome, AdmissionStatus, ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, DelegationEnd,
    DelegationOutcome, DelegationRecord, Fence, FlagChange, Intent, NewAdmission, NewConversation, NewDelegation,
    Receipt, StoreError, TurnId, TurnRecord, TurnStatus,
};
use hermes_tools::{Approver, Clarifier, Tool};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::tool::Task;
use super::{
    CHILD_SOURCE, ChildIds, ChildTask, DelegateTool, DelegationSettings, TOOL, Under, is_kept_from_children, task_of,
};
use crate::builder::Nobody;
use crate::end::{EndReason, Stopper};
use crate::engine::{Engine, EngineError};
use crate::input::Input;
use crate::limits::{CHILD_RECOVERIES_MAX, SUBAGENTS_PER_TURN_MAX, WAIT_POLL_MS};
use crate::persist::persist;
use crate::run::Progress;
use crate::stop::{Cause, Interrupt, StopSignal};
use crate::turn::{Ending, Turn};

const NOT_ENDED: &str = "The task was given up before it was done. A part of it may have been done.";

/// A child that waits for its turn's attention.
struct Job {
    record: DelegationRecord,
    /// The call that waits for it was told to end.
    cancel: CancellationToken,
    done: oneshot::Sender<Option<Entry>>,
}

/// What became of a child.
#[derive(Debug)]
pub(super) struct Entry {
    pub record: DelegationRecord,
    /// The child's turn, when it had one.
    pub turn: Option<TurnRecord>,
}

/// Where the calls of one turn hand their children in.
pub(crate) struct Desk {
    pub(super) engine: Engine,
    pub(super) settings: DelegationSettings,
    pub(super) fence: Fence,
    pub(super) turn: TurnId,
    stop: StopSignal,
    /// How deep its children are.
    depth: u32,
    /// The tools that they may have.
    tools: Vec<String>,
    cwd: Option<String>,
    /// Held for one push or pop, never over an await.
    waiting: Mutex<VecDeque<Job>>,
    arrived: Notify,
}

impl Desk {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Job>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tools of a child that is narrowed to these toolsets.
    fn tools_for(&self, toolsets: Option<&[String]>) -> Result<Vec<String>, String> {
        let Some(names) = toolsets else { return Ok(self.tools.clone()) };
        let registry = &self.engine.inner().tools.registry;
        let selection = registry.selection(Some(names), &[]).map_err(|error| error.to_string())?;
        let selected = registry.select(&selection);
        let is_in = |name: &&String| selected.iter().any(|tool| tool.spec().name == **name);
        Ok(self.tools.iter().filter(is_in).cloned().collect())
    }

    /// Gives task number `number` of a call away. The same one again finds what it gave before, whatever has changed
    /// since.
    ///
    /// # Errors
    /// What the model is told; nothing was given away.
    pub(super) async fn dispatch(
        &self,
        call: &str,
        number: usize,
        task: &Task,
        background: bool,
    ) -> Result<DelegationRecord, String> {
        let inner = self.engine.inner();
        let told = |error: StoreError| format!("{}: {error}", error.code());
        let ids = ChildIds::of(call, number).ok_or("the call has no usable id")?;
        match inner.store.delegation(&ids.delegation).await {
            Ok(known) if known.turn == self.turn => return Ok(known),
            Ok(_) => return Err("the id of the call was used before".to_owned()),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(told(error)),
        }
        if self.waiting().len() >= SUBAGENTS_PER_TURN_MAX as usize {
            return Err(format!("{SUBAGENTS_PER_TURN_MAX} tasks wait already"));
        }
        let tools = self.tools_for(task.toolsets.as_deref())?;
        let child = ChildTask { depth: self.depth, tools, cwd: self.cwd.clone(), background };
        let input = Input { child: Some(child), ..Input::text(task.text()) };
        let mut short = task.goal.clone();
        short.truncate(short.floor_char_boundary(DELEGATION_TASK_MAX_BYTES));
        let new = NewDelegation {
            id: ids.delegation.clone(),
            child: NewConversation {
                id: ids.child.clone(),
                profile: inner.settings.profile.clone(),
                source: CHILD_SOURCE.to_owned(),
                title: None,
            },
            input: NewAdmission {
                id: ids.input,
                conversation: ids.child,
                principal: CHILD_SOURCE.to_owned(),
                request_id: ids.delegation.as_str().to_owned(),
                intent: Intent::Queue,
                payload: input.to_payload(),
                submitted_by: self.fence.owner().clone(),
            },
            task: short,
        };
        let dispatch = || inner.store.dispatch(&self.fence, &self.turn, new.clone());
        persist(inner.clock.as_ref(), dispatch).await.map_err(told)
    }

    /// Whether `count` tasks of a call may go to the background. What was given away before stays so.
    ///
    /// # Errors
    /// What the model is told.
    pub(super) async fn check_background(&self, call: &str, count: usize) -> Result<(), String> {
        let inner = self.engine.inner();
        let ids = ChildIds::of(call, 0).ok_or("the call has no usable id")?;
        let all = inner.store.delegations(self.fence.conversation(), PAGE_MAX_ROWS).await;
        let all = all.map_err(|error| format!("{}: {error}", error.code()))?;
        if all.iter().any(|record| record.id == ids.delegation) {
            return Ok(());
        }
        if !inner.children.are_run() {
            return Err("nothing runs tasks in the background here; call it without `background`".to_owned());
        }
        let parent = self.fence.conversation();
        let open = all.iter().filter(|record| record.parent == *parent && !record.state.is_over()).count();
        let max = self.settings.max_concurrent_children;
        match open + count > max {
            true => {
                Err(format!("{open} tasks of this conversation are at work, and at most {max} may be; wait for them"))
            }
            false => Ok(()),
        }
    }

    /// Says that a task waits in the background.
    pub(super) fn wake_background(&self) {
        self.engine.inner().children.wake.notify_one();
    }

    /// Has a child worked on. `None` comes back when its end could not be stored.
    pub(super) fn hand_in(
        &self,
        record: DelegationRecord,
        cancel: CancellationToken,
    ) -> impl Future<Output = Option<Entry>> + use<> {
        let (done, ended) = oneshot::channel();
        self.waiting().push_back(Job { record, cancel, done });
        self.arrived.notify_one();
        async move { ended.await.ok().flatten() }
    }

    /// Whether the parent can still write.
    fn is_lost(&self, job: &Job) -> bool {
        match self.stop.cause() {
            Some(cause) => cause == Cause::LeaseLost,
            // The call was ended and the turn was not: a write of it has failed.
            None => job.cancel.is_cancelled(),
        }
    }

    fn is_stopped(&self, job: &Job) -> bool {
        self.stop.cause().is_some() || job.cancel.is_cancelled()
    }

    /// Stops a child as its parent is stopped. Never ends.
    async fn pass_on(&self, job: &Job, child: &StopSignal) -> Infallible {
        tokio::select! {
            biased;
            () = self.stop.soft().cancelled() => {}
            () = job.cancel.cancelled() => {}
        }
        let cause = || self.stop.cause().filter(|_| !self.is_lost(job)).unwrap_or(Cause::LeaseLost);
        if !self.stop.hard().is_cancelled() && !job.cancel.is_cancelled() {
            child.stop(cause(), Interrupt::Soft);
            tokio::select! {
                biased;
                () = self.stop.hard().cancelled() => {}
                () = job.cancel.cancelled() => {}
            }
        }
        child.stop(cause(), Interrupt::Hard);
        futures::future::pending().await
    }

    /// Works on a child until its input is over, or its parent is stopped and nothing of it runs here.
    async fn until_over(&self, job: &Job) -> Result<(), EngineError> {
        let inner = self.engine.inner();
        let DelegationRecord { child, input, .. } = &job.record;
        let mut seen = 0;
        let mut recoveries = 0;
        while !self.is_stopped(job) {
            let signal = StopSignal::default();
            let step = pin!(self.engine.step(child, signal.clone()));
            let progress = match select(step, pin!(self.pass_on(job, &signal))).await {
                Either::Left((progress, _)) => progress?,
                Either::Right((never, _)) => match never {},
            };
            let mut is_left_open = false;
            match progress {
                Progress::Ended(result) if result.admission == *input => {
                    is_left_open = result.reason != EndReason::LeaseLost;
                }
                Progress::Ended(result) => {
                    if result.reason.may_be_open() {
                        inner.clock.sleep(WAIT_POLL_MS).await;
                    }
                    continue;
                }
                Progress::Again => continue,
                Progress::Idle | Progress::Busy(_) => {}
            }
            let status = inner.store.admission(input).await?.receipt.status;
            if matches!(status, AdmissionStatus::Terminal | AdmissionStatus::Unknown) || inner.closing.has_begun() {
                return Ok(());
            }
            if is_left_open {
                // Its end could not be written, and its lease was given back: it goes on where it stopped.
                recoveries += 1;
                if recoveries > CHILD_RECOVERIES_MAX {
                    return Ok(());
                }
                continue;
            }
            let stopped = pin!(async {
                tokio::select! {
                    biased;
                    () = self.stop.soft().cancelled() => {}
                    () = job.cancel.cancelled() => {}
                }
            });
            if let Either::Left((change, _)) =
                select(inner.store.wait_for_change(child, seen, WAIT_POLL_MS), stopped).await
            {
                seen = change?;
            }
        }
        Ok(())
    }

    /// Works on a child, and takes its result into the parent's turn.
    async fn work_on(&self, job: &Job) -> Result<Option<Entry>, EngineError> {
        let inner = self.engine.inner();
        let record = &job.record;
        if !record.state.is_over() {
            let under =
                Under { parent: record.parent.clone(), turn: record.turn.clone(), delegation: record.id.clone() };
            let shown = inner.children.show(&record.child, under);
            let worked = self.until_over(job).await;
            drop(shown);
            inner.close_tool_session(&record.child).await;
            if self.is_lost(job) {
                return Ok(None);
            }
            if let Err(error) = worked {
                tracing::warn!(code = error.code(), "a child could not be worked on: {error}");
            }
        }
        let (record, turn) = self.engine.end_delegation(&record.id).await?;
        let record = match record.state.is_over() {
            true => record,
            false => self.give_up(&record).await?,
        };
        let collect = || inner.store.collect_result(&self.fence, &self.turn, &record.id);
        let record = match persist(inner.clock.as_ref(), collect).await {
            // It was brought to the parent before: as an input, while nobody worked on this call.
            Err(StoreError::InUse | StoreError::Invalid { .. }) => record,
            collected => collected?,
        };
        Ok(Some(Entry { record, turn }))
    }

    /// The parent does not wait for it any more. What is not begun of it never is.
    async fn give_up(&self, record: &DelegationRecord) -> Result<DelegationRecord, StoreError> {
        let inner = self.engine.inner();
        let end = DelegationEnd { outcome: DelegationOutcome::Cancelled, result: NOT_ENDED.to_owned() };
        let finish = || inner.store.finish_delegation(&self.fence, &record.id, end.clone());
        match persist(inner.clock.as_ref(), finish).await {
            Err(StoreError::Conflict { .. }) => inner.store.delegation(&record.id).await,
            done => done,
        }
    }
}

/// A child from its hand-in to its answer. Boxed here, with its type named: a child's turn may have children itself.
fn run(desk: Arc<Desk>, job: Job) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut entry = None;
        for _ in 0..=CHILD_RECOVERIES_MAX {
            match desk.work_on(&job).await {
                Ok(worked) => {
                    entry = worked;
                    break;
                }
                Err(error) => {
                    tracing::warn!(code = error.code(), "the end of a child could not be stored: {error}");
                }
            }
        }
        // Nobody waits for it when the call was ended; its result is stored.
        let _ = job.done.send(entry);
    })
}

/// What the journal of a child says of the end of its delegation; `None` when it is not over, or nobody knows.
fn end_of(input: &Receipt, turn: Option<&TurnRecord>) -> Option<DelegationEnd> {
    let said = |turn: &TurnRecord| turn.detail.clone().or_else(|| turn.reason.clone()).unwrap_or_default();
    let (outcome, mut result) = match (input.outcome?, turn) {
        (AdmissionOutcome::Cancelled, _) => {
            (DelegationOutcome::Cancelled, "The task was taken back before it began.".to_owned())
        }
        (_, Some(turn)) if turn.status != TurnStatus::Ended => return None,
        (AdmissionOutcome::Completed, Some(turn)) => (
            DelegationOutcome::Completed,
            turn.answer.as_ref().map_or_else(|| said(turn), |answer| answer.content.clone()),
        ),
        (AdmissionOutcome::Failed, Some(turn)) => (DelegationOutcome::Failed, said(turn)),
        (AdmissionOutcome::Interrupted, Some(turn)) => (DelegationOutcome::Cancelled, said(turn)),
        (_, None) => return None,
    };
    result.truncate(result.floor_char_boundary(DELEGATION_RESULT_MAX_BYTES));
    Some(DelegationEnd { outcome, result })
}

impl Engine {
    /// Stops the children of a conversation that this engine runs, also those in the background, which a stop of the
    /// parent's turn leaves alone. Returns how many there were.
    pub fn interrupt_children(&self, parent: &ConversationId, stopper: Stopper, how: Interrupt) -> usize {
        let children = self.inner().children.of(parent);
        children.iter().filter(|child| self.interrupt(child, stopper, how)).count()
    }

    /// Stores the end of a delegation whose child is over, by a lease on the child. Returns it as it is stored then, with
    /// the child's turn.
    pub(super) async fn end_delegation(
        &self,
        id: &hermes_store::DelegationId,
    ) -> Result<(DelegationRecord, Option<TurnRecord>), StoreError> {
        let inner = self.inner();
        let clock = inner.clock.as_ref();
        let record = inner.store.delegation(id).await?;
        let receipt = inner.store.admission(&record.input).await?.receipt;
        let turn = match &receipt.turn {
            Some(turn) => Some(inner.store.turn(turn).await?),
            None => None,
        };
        let Some(end) = end_of(&receipt, turn.as_ref()).filter(|_| !record.state.is_over()) else {
            return Ok((record, turn));
        };
        let request = ClaimRequest {
            conversation: record.child.clone(),
            owner: inner.owner_id().clone(),
            turn: inner.ids().turn(),
            ttl_ms: inner.settings.lease_ttl_ms,
            policy: ClaimPolicy::LeaseOnly,
        };
        let fence = match persist(clock, || inner.store.claim(request.clone())).await? {
            ClaimOutcome::Leased { fence } => fence,
            ClaimOutcome::Recover { fence, .. } => {
                inner.store.release(&fence).await?;
                return Ok((record, turn));
            }
            _ => return Ok((record, turn)),
        };
        let ended = persist(clock, || inner.store.finish_delegation(&fence, id, end.clone())).await;
        persist(clock, || inner.store.release(&fence)).await?;
        match ended {
            // Somebody else found it over before.
            Err(StoreError::Conflict { .. }) => Ok((inner.store.delegation(id).await?, turn)),
            ended => Ok((ended?, turn)),
        }
    }
}

impl Turn<'_> {
    /// Keeps a child out of the lists of conversations, from its beginning: people did not begin it.
    pub(crate) async fn hide_child(&self) -> Result<(), Ending> {
        if self.child.is_none() {
            return Ok(());
        }
        let hidden = FlagChange { hidden: Some(true), ..FlagChange::default() };
        self.persist(|| self.engine.store.set_flags(&self.fence, hidden)).await.map(|_| ())
    }

    /// Where a child's tools work from its beginning.
    pub(crate) fn child_cwd(&self) -> Option<String> {
        self.child.as_ref().and_then(|child| child.cwd.clone())
    }

    /// Who allows this turn's calls. A child asks nobody: what needs a person is denied.
    pub(crate) fn approver(&self) -> Arc<dyn Approver> {
        match &self.child {
            Some(_) => Arc::new(Nobody),
            None => self.engine.tools.people.approver(self.fence.conversation()),
        }
    }

    /// Who answers this turn's questions.
    pub(crate) fn clarifier(&self) -> Arc<dyn Clarifier> {
        match &self.child {
            Some(_) => Arc::new(Nobody),
            None => self.engine.tools.people.clarifier(self.fence.conversation()),
        }
    }

    /// What a turn of a child may do whose input is not its task: somebody speaks to it, or a child of its own has ended.
    /// It is what the task says, so that nobody gives it more tools, and its session keeps those that it has.
    pub(crate) async fn know_child(&mut self, source: &str) -> Result<(), Ending> {
        if source != CHILD_SOURCE || self.child.is_some() {
            return Ok(());
        }
        let known = self.store(self.engine.delegation_of(self.fence.conversation()).await)?;
        if let Some(record) = known {
            self.child = task_of(&self.store(self.engine.store.admission(&record.input).await)?);
        }
        Ok(())
    }

    /// The tools of this turn, by name: a child has fewer, and whoever may have children has the tool for it.
    pub(crate) fn equip(&mut self, source: &str, cwd: Option<String>) -> Vec<Arc<dyn Tool>> {
        let host = &self.engine.tools;
        let mut available = host.registry.select(&host.selection);
        if source == CHILD_SOURCE && self.child.is_none() {
            // Its delegation was forgotten long ago.
            let tools = available.iter().map(|tool| tool.spec().name.clone()).collect();
            self.child = Some(ChildTask { depth: u32::MAX, tools, cwd: None, background: false });
        }
        if let Some(child) = &self.child {
            available.retain(|tool| !is_kept_from_children(tool.spec()) && child.tools.contains(&tool.spec().name));
        }
        let depth = self.child.as_ref().map_or(0, |child| child.depth);
        let child_may_delegate = self.child.as_ref().is_some_and(|child| child.tools.iter().any(|name| name == TOOL));
        let is_allowed = |settings: &DelegationSettings| {
            depth < settings.max_spawn_depth
                && self.child.as_ref().is_none_or(|child| child.tools.iter().any(|name| name == TOOL))
        };
        // A host that registers the tool selects it like any other; else the setting alone offers it.
        let registered = host.registry.get(TOOL).is_some();
        let selected = available.iter().any(|tool| tool.spec().name == TOOL) || child_may_delegate;
        available.retain(|tool| tool.spec().name != TOOL);
        let settings = self.engine.settings.delegation.clone().filter(|_| selected || !registered);
        let Some(settings) = settings.filter(is_allowed) else { return available };
        let mut tools: Vec<String> = available
            .iter()
            .map(|tool| tool.spec())
            .filter(|spec| !is_kept_from_children(spec))
            .map(|spec| spec.name.clone())
            .collect();
        if depth.saturating_add(1) < settings.max_spawn_depth {
            tools.push(TOOL.to_owned());
        }
        let desk = Arc::new(Desk {
            engine: self.host.clone(),
            settings: settings.clone(),
            fence: self.fence.clone(),
            turn: self.id.clone(),
            stop: self.stop.clone(),
            depth: depth.saturating_add(1),
            tools,
            cwd,
            waiting: Mutex::default(),
            arrived: Notify::new(),
        });
        self.desk = Some(desk.clone());
        let place = available.partition_point(|tool| tool.spec().name.as_str() < TOOL);
        available.insert(place, Arc::new(DelegateTool::new(&settings, desk)));
        available
    }

    /// Runs calls, and beside them the children that they hand in, until both are over.
    pub(crate) async fn beside_children<T>(&self, calls: impl Future<Output = T>) -> T {
        let Some(desk) = &self.desk else { return calls.await };
        let mut calls = pin!(calls);
        let mut ended = None;
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < desk.settings.max_concurrent_children.max(1) {
                let Some(job) = desk.waiting().pop_front() else { break };
                running.push(run(desk.clone(), job));
            }
            if running.is_empty()
                && let Some(ended) = ended.take()
            {
                return ended;
            }
            tokio::select! {
                biased;
                done = &mut calls, if ended.is_none() => ended = Some(done),
                Some(()) = running.next(), if !running.is_empty() => {}
                () = desk.arrived.notified() => {}
            }
        }
    }
}
