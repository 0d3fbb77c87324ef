//! The run loop: what an engine does with a conversation, one look at a time.
//!
//! A look ([`Engine::step`]) claims what waits and runs it as one turn, or recovers what a crash left open, or says why it
//! does neither. While anything is run, the engine beats.

use std::sync::Mutex;

use futures::future::BoxFuture;
use hermes_store::{
    AdmissionId, AdmissionOutcome, AdmissionRecord, AdmissionStatus, CallId, ClaimOutcome, ClaimRequest,
    ConversationId, Fence, OpenTurn, TurnId, UsageTotals,
};

use crate::budget::Budget;
use crate::delegate::task_of;
use crate::end::{EndReason, TurnError, TurnResult};
use crate::engine::{Engine, EngineError};
use crate::event::{Event, EventKind};
use crate::guardrail::Guardrails;
use crate::limits;
use crate::persist::persist;
use crate::recovery::Recovery;
use crate::shown::Shown;
use crate::stop::StopSignal;
use crate::trail::Trail;
use crate::turn::{LeaseTime, Redirects, Turn, recover};
use crate::watchdog::Pulse;

/// What one look at a conversation led to.
pub(crate) enum Progress {
    /// A turn ended.
    Ended(Box<TurnResult>),
    /// Something was recovered; look again.
    Again,
    /// Nothing for this engine now.
    Idle,
    /// Somebody else is at work.
    Busy(&'static str),
}

/// Runs a turn, boxed: its future is large, and everything that waits for it would carry its size. The turn stands in it
/// once; a future that takes its turn as an argument holds it twice. What an earlier owner left is boxed for the same
/// reason: each of the five futures between here and its use would carry its kilobyte to the end of the turn.
fn run(mut turn: Turn<'_>, open: Option<Box<OpenTurn>>) -> BoxFuture<'_, TurnResult> {
    Box::pin(async move { turn.run(open).await })
}

impl Engine {
    pub(crate) async fn while_beating<T>(
        &self,
        work: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let _work = self.inner().closing.work();
        self.inner().register().await?;
        let beat = self.inner().beat();
        futures::pin_mut!(work, beat);
        match futures::future::select(work, beat).await {
            futures::future::Either::Left((result, _)) => result,
            futures::future::Either::Right((never, _)) => match never {},
        }
    }

    pub(crate) async fn run_until_over(
        &self,
        conversation: &ConversationId,
        admission: &AdmissionId,
    ) -> Result<TurnResult, EngineError> {
        let inner = self.inner();
        let give_up_ms =
            inner.clock.now_ms().saturating_add(i64::try_from(inner.settings.lease_wait_ms).unwrap_or(i64::MAX));
        let mut seen = 0;
        let mut told = false;
        loop {
            let busy = match self.step(conversation, StopSignal::default()).await? {
                Progress::Ended(result) if result.admission == *admission => return Ok(*result),
                Progress::Ended(result) if result.reason.may_be_open() => {
                    inner.clock.sleep(limits::WAIT_POLL_MS).await;
                    "the end of an earlier turn cannot be stored"
                }
                Progress::Ended(_) | Progress::Again => continue,
                Progress::Idle => "another process has it",
                Progress::Busy(why) => why,
            };
            let record = inner.store.admission(admission).await?;
            if matches!(record.receipt.status, AdmissionStatus::Terminal | AdmissionStatus::Unknown) {
                return self.result_of(&record).await;
            }
            if inner.closing.has_begun() {
                return Ok(TurnResult { reason: EndReason::StoppedByShutdown, error: None, ..self.unstarted(&record) });
            }
            if inner.clock.now_ms() >= give_up_ms {
                return Ok(self.unstarted(&record));
            }
            if !told {
                told = true;
                self.note(conversation, EventKind::Waiting { reason: busy.to_owned() });
            }
            let change = inner.store.wait_for_change(conversation, seen, limits::WAIT_POLL_MS);
            if let Some(change) = inner.closing.unless_begun(change).await {
                seen = change?;
            }
        }
    }

    fn note(&self, conversation: &ConversationId, kind: EventKind) {
        self.inner().emit(Event::new(conversation.clone(), None, kind));
    }

    /// One look at a conversation: claims and runs one turn, or recovers one, or says why not.
    /// `signal` stops it.
    pub(crate) async fn step(
        &self,
        conversation: &ConversationId,
        signal: StopSignal,
    ) -> Result<Progress, EngineError> {
        let inner = self.inner();
        let Some(working) = inner.begin(conversation, &signal) else {
            return Ok(Progress::Busy("another turn of this conversation is running"));
        };
        // Behind the signal: who ends the engine sees either this look, or that it claims nothing.
        if inner.closing.has_begun() {
            return Ok(Progress::Busy("this process is ending"));
        }
        let request = ClaimRequest {
            conversation: conversation.clone(),
            owner: inner.owner.id.clone(),
            turn: inner.ids().turn(),
            ttl_ms: inner.settings.lease_ttl_ms,
            policy: inner.settings.claim,
        };
        let turn = request.turn.clone();
        let progress = match persist(inner.clock.as_ref(), || inner.store.claim(request.clone())).await? {
            ClaimOutcome::Turn { fence, admission, .. } => {
                self.note(
                    conversation,
                    EventKind::TurnStarted { admission: admission.receipt.admission.clone(), attempt: 1 },
                );
                let result = run(self.turn(fence, turn, *admission, signal), None).await;
                Progress::Ended(Box::new(result))
            }
            ClaimOutcome::Recover { fence, open } => Box::pin(self.recover(fence, open, signal)).await?,
            ClaimOutcome::Leased { fence } => {
                inner.store.release(&fence).await?;
                Progress::Idle
            }
            ClaimOutcome::Empty => Progress::Idle,
            ClaimOutcome::NotMine => Progress::Busy("an input of another process stands before it"),
            ClaimOutcome::Blocked => Progress::Busy("an earlier input has an unknown outcome and waits for a decision"),
            ClaimOutcome::Held { .. } => Progress::Busy("another process is working on this conversation"),
        };
        drop(working);
        Ok(progress)
    }

    async fn recover(&self, fence: Fence, open: Box<OpenTurn>, signal: StopSignal) -> Result<Progress, EngineError> {
        let inner = self.inner();
        let plan = recover::plan(&open, inner.clock.now_ms());
        self.note(fence.conversation(), EventKind::Recovered { what: recover::describe(plan, &open) });
        let calls: Vec<CallId> = open.calls.iter().map(|call| call.call.clone()).collect();
        if !calls.is_empty() {
            inner.tools.sessions.end_leftovers(&calls).await;
        }
        match plan {
            recover::Plan::Requeue => {
                persist(inner.clock.as_ref(), || inner.store.requeue(&fence, &open.id)).await?;
                inner.store.release(&fence).await?;
                Ok(Progress::Again)
            }
            recover::Plan::GoOn => {
                persist(inner.clock.as_ref(), || inner.store.adopt_turn(&fence, &open.id)).await?;
                self.note(
                    fence.conversation(),
                    EventKind::TurnStarted {
                        admission: open.admission.receipt.admission.clone(),
                        attempt: open.attempt + 1,
                    },
                );
                let turn = self.turn(fence, open.id.clone(), open.admission.clone(), signal);
                Ok(Progress::Ended(Box::new(run(turn, Some(open)).await)))
            }
            recover::Plan::Answered | recover::Plan::Closed | recover::Plan::Close => {
                recover::close(inner, &fence, &open, plan).await?;
                Ok(Progress::Ended(Box::new(self.result_of(&open.admission).await?)))
            }
        }
    }

    fn turn(&self, fence: Fence, id: TurnId, admission: AdmissionRecord, stop: StopSignal) -> Turn<'_> {
        let inner = self.inner();
        let settings = &inner.settings;
        let begun_ms = inner.clock.now_ms();
        let time = |ms: u64| begun_ms.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX));
        let deadline_ms = settings.turn_deadline_ms.map(time);
        let watched = inner.tools.people.watching(fence.conversation());
        let hard_stop = settings.guardrail_hard_stop.unwrap_or(!watched);
        let route = inner.routes().first(begun_ms);
        let child = task_of(&admission);
        let max_iterations = match &child {
            Some(_) => settings.delegation.clone().unwrap_or_default().max_iterations,
            None => settings.max_iterations,
        };
        Turn {
            host: self.clone(),
            child,
            desk: None,
            engine: inner,
            model: inner.model_at(route),
            route,
            refused: false,
            fence,
            id,
            admission,
            stop,
            pulse: Pulse::new(inner.clock.clone()),
            lease: LeaseTime::from_now(begun_ms, settings.lease_ttl_ms),
            session: None,
            tools: None,
            system: bytes::Bytes::new(),
            history: Vec::new(),
            call_ids: std::collections::HashSet::new(),
            anchor: None,
            compressions: 0,
            window_stays: false,
            api_calls: 0,
            budget: Budget::new(max_iterations, settings.budget_warning_ratio),
            begun_ms,
            deadline_ms,
            deadline_told: false,
            max_output_tokens: settings.max_output_tokens,
            times_raised: 0,
            output_lowered: false,
            sidecars_left_out: false,
            effort: settings.reasoning_effort.clone(),
            usage: UsageTotals::default(),
            recovery: Recovery::default(),
            invalid_rounds: 0,
            trail: Trail::default(),
            shown: Shown::default(),
            redirects: Redirects::default(),
            guard: Mutex::new(Guardrails::new(hard_stop)),
        }
    }

    /// The result of a turn that ran elsewhere or earlier, from what is stored of it.
    async fn result_of(&self, admission: &AdmissionRecord) -> Result<TurnResult, EngineError> {
        let record = self.inner().store.admission(&admission.receipt.admission).await?;
        let mut result = self.unstarted(&record);
        let Some(turn) = &record.receipt.turn else { return Ok(result) };
        let turn = self.inner().store.turn(turn).await?;
        result.turn = Some(turn.id);
        result.session = turn.session;
        result.api_calls = turn.api_calls;
        result.answer = turn.answer.map(|row| row.content).unwrap_or_default();
        result.reason = turn.reason.as_deref().and_then(EndReason::parse).unwrap_or(EndReason::CrashInterrupted);
        result.error = result.reason.code().map(|code| TurnError {
            code: code.to_owned(),
            message: turn.detail.unwrap_or_else(|| "the turn ended without an answer".to_owned()),
            retryable: result.reason.may_retry(),
        });
        Ok(result)
    }

    /// The result for an input that no turn of this engine worked on.
    fn unstarted(&self, record: &AdmissionRecord) -> TurnResult {
        let info = self.inner().model.info();
        let (reason, message) = match record.receipt.status {
            AdmissionStatus::Terminal if record.receipt.outcome == Some(AdmissionOutcome::Cancelled) => {
                (EndReason::StoppedByUser, "")
            }
            AdmissionStatus::Terminal => (EndReason::CrashInterrupted, "the input was taken back before it was begun"),
            AdmissionStatus::Unknown => {
                (EndReason::CrashInterrupted, "nobody knows whether this input was worked on; it waits for a decision")
            }
            _ => (
                EndReason::LeaseTimeout,
                "another turn of this conversation did not end in time; the input stays in the queue",
            ),
        };
        TurnResult {
            conversation: record.receipt.conversation.clone(),
            session: None,
            turn: None,
            admission: record.receipt.admission.clone(),
            reason,
            answer: String::new(),
            error: reason.code().map(|code| TurnError {
                code: code.to_owned(),
                message: message.to_owned(),
                retryable: reason.may_retry(),
            }),
            api_calls: 0,
            model: format!("{}/{}", info.provider, info.model),
            usage: UsageTotals::default(),
        }
    }
}
