//! Runs one round: asks the policy, announces, starts in call order, ends what must end, reports each call once.
//!
//! Calls run as tasks of a [`JoinSet`] that this future owns: dropping it ends them all. Everything that is written
//! down (announcements and results) is done by this future alone, so there is one order of events.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, OptionFuture};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::approval::{Authorized, Denial};
use crate::budget::RoundBudget;
use crate::executor::{BatchContext, CallObserver, Halt, PreparedCall};
use crate::plan;
use crate::policy::{Question, Verdict};
use crate::text::error_json;
use crate::tool::{Call, CallOutcome, CallProgress, CallReport, ReplaySafety};

/// Calls that run at once (mechanism document: 8 workers).
pub const WORKERS: usize = 8;

/// Time that the timed calls of one segment get, in milliseconds (mechanism document: 420 s).
pub const BATCH_LIMIT_MS: u64 = 420_000;

/// Time that a call gets to end after it was told to, in milliseconds. Then it is dropped, which kills what it started.
const STOP_GRACE_MS: u64 = 3_000;

/// Largest result in characters before it is spilled.
const RESULT_MAX_CHARS: usize = 100_000;

/// Largest sum of a round's results in characters.
const ROUND_MAX_CHARS: usize = 200_000;

/// What is shown of a spilled result, in characters.
const PREVIEW_CHARS: usize = 1_500;

/// Progress messages that wait to be shown; more are dropped.
const PROGRESS_QUEUE: usize = 256;

const TIMED_OUT_TEXT: &str =
    "its time ran out while it was running and it was stopped; it may have had a part of its effect";
const INTERRUPTED_TEXT: &str = "it was stopped while running; it may have had a part of its effect";

/// The limits of an [`Executor`].
#[derive(Debug, Clone)]
pub struct ExecutorLimits {
    /// Calls that run at once; at least 1.
    pub workers: usize,
    /// Time for the timed calls of one segment in milliseconds, without the time that people need to answer; 0 = none.
    pub batch_limit_ms: u64,
    /// Time that a call gets to end after it was told to, in milliseconds.
    pub stop_grace_ms: u64,
    /// Largest result in characters.
    pub result_max_chars: usize,
    /// Largest sum of a round's results in characters.
    pub round_max_chars: usize,
    /// What is shown of a spilled result, in characters.
    pub preview_chars: usize,
}

impl Default for ExecutorLimits {
    fn default() -> Self {
        Self {
            workers: WORKERS,
            batch_limit_ms: BATCH_LIMIT_MS,
            stop_grace_ms: STOP_GRACE_MS,
            result_max_chars: RESULT_MAX_CHARS,
            round_max_chars: ROUND_MAX_CHARS,
            preview_chars: PREVIEW_CHARS,
        }
    }
}

/// Runs rounds. It has no state of its own; one can serve any number of conversations.
#[derive(Debug, Clone, Default)]
pub struct Executor {
    limits: ExecutorLimits,
}

impl Executor {
    /// An executor with these limits.
    #[must_use]
    pub fn new(limits: ExecutorLimits) -> Self {
        Self { limits }
    }

    /// Its limits.
    #[must_use]
    pub fn limits(&self) -> &ExecutorLimits {
        &self.limits
    }

    /// Runs a round's calls and reports each of them exactly once to `observer`.
    ///
    /// Ends when every call has its report. A cancelled `cx.tool.cancel` ends running calls (their processes are gone
    /// when this returns) and skips the others; a cancelled `cx.begin_nothing` skips those that have not begun, also one
    /// about which a person is being asked, and lets the others end by themselves.
    ///
    /// # Errors
    /// [`Halt`] when the observer could not write something down: running calls were ended, nothing more was started or
    /// reported.
    pub async fn run(
        &self,
        batch: Vec<PreparedCall>,
        cx: &BatchContext,
        observer: &dyn CallObserver,
    ) -> Result<(), Halt> {
        let mut budget = RoundBudget::new(&self.limits, cx.context_window, &cx.tool.scope);
        for calls in plan::segments(batch, &cx.tool).await {
            let mut segment = Segment::new(&self.limits, cx, observer, &mut budget);
            let result = segment.run(calls).await;
            if result.is_err() {
                segment.end_all().await;
                return result;
            }
        }
        Ok(())
    }
}

/// Why a running call was told to end, or nothing more begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndedBy {
    Stop,
    Limit,
    /// Nothing more begins; what runs was told nothing.
    Quiet,
}

/// A call that runs.
struct Running {
    index: usize,
    id: String,
    own_max: Option<usize>,
    timed: bool,
    cancel: CancellationToken,
    abort: AbortHandle,
    ended_by: Option<EndedBy>,
}

struct Segment<'a> {
    limits: &'a ExecutorLimits,
    cx: &'a BatchContext,
    observer: &'a dyn CallObserver,
    budget: &'a mut RoundBudget,
    tasks: JoinSet<CallReport>,
    running: HashMap<Id, Running>,
    shown: mpsc::Receiver<(usize, CallProgress)>,
    show: mpsc::Sender<(usize, CallProgress)>,
    /// When the time of the timed calls runs out.
    deadline: Option<Instant>,
    /// When calls that were told to end are dropped.
    drop_at: Option<Instant>,
    /// Why nothing more is started.
    closed: Option<EndedBy>,
}

impl<'a> Segment<'a> {
    fn new(
        limits: &'a ExecutorLimits,
        cx: &'a BatchContext,
        observer: &'a dyn CallObserver,
        budget: &'a mut RoundBudget,
    ) -> Self {
        let (show, shown) = mpsc::channel(PROGRESS_QUEUE);
        let limit = Duration::from_millis(limits.batch_limit_ms);
        let deadline = (!limit.is_zero()).then(|| Instant::now() + limit);
        Self {
            limits,
            cx,
            observer,
            budget,
            tasks: JoinSet::new(),
            running: HashMap::new(),
            shown,
            show,
            deadline,
            drop_at: None,
            closed: None,
        }
    }

    async fn run(&mut self, calls: Vec<PreparedCall>) -> Result<(), Halt> {
        let cx = self.cx;
        let mut waiting: VecDeque<PreparedCall> = calls.into();
        let mut asking: Option<Asking<'a>> = None;
        loop {
            if cx.tool.cancel.is_cancelled() && self.closed != Some(EndedBy::Stop) {
                self.close(EndedBy::Stop);
            } else if cx.begin_nothing.is_cancelled() && self.closed.is_none() {
                self.closed = Some(EndedBy::Quiet);
            }
            if self.closed.is_some()
                && let Some(asked) = asking.take()
            {
                self.skip(&asked.call).await?;
            }
            if self.closed.is_none() && asking.is_none() {
                asking = self.start_ready(&mut waiting).await?;
            }
            let none_left = self.closed.is_some() || waiting.is_empty();
            if self.running.is_empty() && asking.is_none() && none_left {
                break;
            }
            let limited =
                asking.is_none() && matches!(self.closed, None | Some(EndedBy::Quiet)) && self.deadline.is_some();
            let answer: OptionFuture<_> = asking.as_mut().map(|asked| &mut asked.answer).into();
            tokio::select! {
                Some(joined) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => self.settle(joined).await?,
                Some(verdict) = answer => {
                    if let Some(asked) = asking.take() {
                        self.answered(asked, verdict).await?;
                    }
                }
                Some((index, progress)) = self.shown.recv() => self.observer.progress(index, progress),
                () = cx.tool.cancel.cancelled(), if self.closed != Some(EndedBy::Stop) => {}
                () = cx.begin_nothing.cancelled(), if self.closed.is_none() => {}
                () = until(self.deadline), if limited => self.close(EndedBy::Limit),
                () = until(self.drop_at), if self.drop_at.is_some() => self.drop_told(),
            }
        }
        for call in waiting {
            self.skip(&call).await?;
        }
        Ok(())
    }

    /// Starts waiting calls in call order while there is room, up to the first that a person has to be asked about.
    /// Calls that were allowed together are announced together.
    async fn start_ready(&mut self, waiting: &mut VecDeque<PreparedCall>) -> Result<Option<Asking<'a>>, Halt> {
        let cx = self.cx;
        let mut allowed = Vec::new();
        let mut asking = None;
        while self.running.len() + allowed.len() < self.limits.workers.max(1) {
            let Some(call) = waiting.pop_front() else { break };
            match cx.policy.judge(&call, &cx.tool).await {
                Verdict::Allow(authorized) => allowed.push((call, authorized)),
                Verdict::Deny(denial) => self.deny(&call, denial).await?,
                Verdict::Ask(question) => {
                    asking = Some(self.ask(call, question));
                    break;
                }
            }
        }
        self.begin(allowed).await?;
        Ok(asking)
    }

    fn ask(&self, call: PreparedCall, question: Question) -> Asking<'a> {
        let cx = self.cx;
        let context = self.context_of(call.index, cx.tool.cancel.clone());
        let asked = call.clone();
        let answer = async move { cx.policy.ask(&asked, &context, question).await }.boxed();
        Asking { call, answer, since: Instant::now() }
    }

    /// Shows what calls had to say until now.
    fn show_waiting(&mut self) {
        while let Ok((index, progress)) = self.shown.try_recv() {
            self.observer.progress(index, progress);
        }
    }

    async fn answered(&mut self, asked: Asking<'a>, verdict: Result<Authorized<Call>, Denial>) -> Result<(), Halt> {
        self.show_waiting();
        // The time that a person needed is not the batch's.
        if let Some(deadline) = &mut self.deadline {
            *deadline += asked.since.elapsed();
        }
        // A stop that came with the answer counts more than the answer.
        if self.cx.tool.cancel.is_cancelled() || self.cx.begin_nothing.is_cancelled() {
            return self.skip(&asked.call).await;
        }
        match verdict {
            Ok(authorized) => self.begin(vec![(asked.call, authorized)]).await,
            Err(denial) => self.deny(&asked.call, denial).await,
        }
    }

    /// Announces calls, waits until that is durable, and starts them.
    async fn begin(&mut self, calls: Vec<(PreparedCall, Authorized<Call>)>) -> Result<(), Halt> {
        let effects: Vec<usize> = calls
            .iter()
            .filter(|(call, _)| call.tool.spec().replay != ReplaySafety::Pure)
            .map(|(call, _)| call.index)
            .collect();
        if !effects.is_empty() {
            self.observer.before_effect(&effects).await?;
        } else if !calls.is_empty() {
            self.observer.may_begin().await?;
        }
        for (call, authorized) in calls {
            let spec = call.tool.spec();
            let label = call.tool.label(&call.call);
            self.observer.progress(call.index, CallProgress::Started { label });
            let cancel = self.cx.tool.cancel.child_token();
            let context = self.context_of(call.index, cancel.clone());
            let (own_max, timed) = (spec.result_max_chars, spec.timed);
            let tool = call.tool.clone();
            let abort = self.tasks.spawn(async move { tool.call(authorized, &context).await });
            let (index, id) = (call.index, call.call.id);
            let running = Running { index, id, own_max, timed, cancel, abort: abort.clone(), ended_by: None };
            self.running.insert(abort.id(), running);
        }
        Ok(())
    }

    fn context_of(&self, index: usize, cancel: CancellationToken) -> crate::tool::ToolContext {
        let show = self.show.clone();
        let mut context = self.cx.tool.clone();
        context.cancel = cancel;
        context.progress = Arc::new(move |progress| {
            // Lossy by contract: a full queue drops it.
            let _ = show.try_send((index, progress));
        });
        context
    }

    async fn settle(&mut self, joined: Result<(Id, CallReport), JoinError>) -> Result<(), Halt> {
        let (id, ended) = match joined {
            Ok((id, report)) => (id, Ok(report)),
            Err(error) => (error.id(), Err(error)),
        };
        let Some(running) = self.running.remove(&id) else { return Ok(()) };
        if self.running.values().all(|running| running.ended_by.is_none()) {
            self.drop_at = None;
        }
        self.show_waiting();
        let report = match ended {
            Ok(report) => relabel(report, running.ended_by),
            Err(error) if error.is_panic() => {
                tracing::error!(call = %running.id, "a tool panicked");
                failure(
                    CallOutcome::Failed,
                    "the tool failed inside (a defect of the tool); it may have had a part of its effect",
                )
            }
            Err(_) => match running.ended_by {
                Some(EndedBy::Limit) => failure(CallOutcome::TimedOut, TIMED_OUT_TEXT),
                _ => failure(CallOutcome::Interrupted, INTERRUPTED_TEXT),
            },
        };
        let report = self.budget.fit(&running.id, running.own_max, report).await;
        self.observer.settled(running.index, report).await
    }

    async fn deny(&mut self, call: &PreparedCall, denial: Denial) -> Result<(), Halt> {
        let report = failure(CallOutcome::Denied, &denial.message).with_summary("denied");
        self.report_unstarted(call, report).await
    }

    async fn skip(&mut self, call: &PreparedCall) -> Result<(), Halt> {
        let why = match self.closed {
            Some(EndedBy::Limit) => "the time of this round ran out before it began; nothing happened",
            _ => "the turn was stopped before it began; nothing happened",
        };
        self.report_unstarted(call, failure(CallOutcome::Skipped, why).with_summary("skipped")).await
    }

    async fn report_unstarted(&mut self, call: &PreparedCall, report: CallReport) -> Result<(), Halt> {
        let report = self.budget.fit(&call.call.id, None, report).await;
        self.observer.settled(call.index, report).await
    }

    /// Starts nothing more and tells running calls to end: all of them, or the timed ones.
    fn close(&mut self, why: EndedBy) {
        self.closed = Some(why);
        for running in self.running.values_mut() {
            if running.ended_by.is_none() && (why == EndedBy::Stop || running.timed) {
                running.ended_by = Some(why);
                running.cancel.cancel();
            }
        }
        let grace = Duration::from_millis(self.limits.stop_grace_ms);
        self.drop_at.get_or_insert_with(|| Instant::now() + grace);
    }

    /// Drops the calls that were told to end and did not.
    fn drop_told(&mut self) {
        self.drop_at = None;
        for running in self.running.values().filter(|running| running.ended_by.is_some()) {
            running.abort.abort();
        }
    }

    /// Ends everything without reports: the observer can no longer take them.
    async fn end_all(&mut self) {
        self.close(EndedBy::Stop);
        let grace = Duration::from_millis(self.limits.stop_grace_ms);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all).await.is_err() {
            self.tasks.shutdown().await;
        }
    }
}

/// A call that waits for a person's answer.
struct Asking<'a> {
    call: PreparedCall,
    answer: BoxFuture<'a, Result<Authorized<Call>, Denial>>,
    since: Instant,
}

/// Waits for a time that may not be set; the callers' guards see to it that it is.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn failure(outcome: CallOutcome, text: &str) -> CallReport {
    CallReport::new(outcome, error_json(text))
}

/// A call that was told to end because of the time limit and says so is a time-out; one that finished all the same
/// keeps its own report.
fn relabel(mut report: CallReport, ended_by: Option<EndedBy>) -> CallReport {
    if report.outcome == CallOutcome::Interrupted && ended_by == Some(EndedBy::Limit) {
        report.outcome = CallOutcome::TimedOut;
    }
    report
}
