//! One turn: phases with one exit.
//!
//! ```text
//! context -> loop { step of the budget -> steer -> request (retry, fallback) -> normalise -> round (record, execute, settle) | answer }
//!         -> finalize
//! ```
//!
//! A phase returns its value or an [`Ending`]; whatever the ending, it goes through [`Turn::finalize`], which leaves a
//! tail that the next turn can extend, settles the admission with exactly one reason and gives the lease back.

mod answer;
mod closing;
pub(crate) mod compress;
mod context;
mod fallback;
mod finalize;
mod idle;
mod keeper;
mod manual;
pub(crate) mod recover;
mod redirect;
mod request;
mod round;
mod window;

pub use manual::Shortened;

pub(crate) use keeper::LeaseTime;
pub(crate) use redirect::Redirects;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hermes_providers::{ChatMessage, ChatModel, ToolSchema};
use hermes_store::{AdmissionRecord, Fence, OpenTurn, SessionId, StoreError, TurnId, UsageDelta, UsageTotals};
use hermes_tools::{Tool, ToolContext};

use crate::auxiliary::Used;
use crate::budget::Budget;
use crate::delegate::{ChildTask, Desk};
use crate::end::{EndReason, TurnError, TurnResult};
use crate::engine::{Engine, Inner};
use crate::event::{Event, EventKind};
use crate::guardrail::Guardrails;
use crate::judge::ApprovalJudge;
use crate::recovery::Recovery;
use crate::shown::Shown;
use crate::stop::{Cause, StopSignal};
use crate::trail::Trail;
use crate::watchdog::{self, Pulse};

/// What the transcript still needs when a turn ends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tail {
    /// Nothing: its last row closes it.
    Closed,
    /// A row of the program that says that there is no answer.
    Boundary,
    /// A row of the program that explains why there is no answer, in these words.
    Note(String),
    /// What there is of an answer.
    Partial(String),
}

/// How a turn ends, before it is finalized.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ending {
    pub reason: EndReason,
    pub answer: String,
    pub error: Option<TurnError>,
    pub tail: Tail,
}

impl Ending {
    pub(crate) fn failed(reason: EndReason, code: &str, message: impl Into<String>) -> Self {
        Self {
            reason,
            answer: String::new(),
            error: Some(TurnError { code: code.to_owned(), message: message.into(), retryable: reason.may_retry() }),
            tail: Tail::Boundary,
        }
    }

    /// The model repeats itself without end. Nothing of it is kept: it would be an example to go on with.
    pub(crate) fn looping() -> Self {
        Self::failed(
            EndReason::RepetitionStopped,
            "HM4020",
            "the model had begun to repeat itself without end and was stopped; send the input again",
        )
    }

    /// A guardrail ends the turn. People and the model read why.
    pub(crate) fn halted(why: &str) -> Self {
        let mut ending = Self::failed(
            EndReason::GuardrailHalt,
            "HM4019",
            format!("the turn was ended because it went in circles: {why}"),
        );
        ending.tail = Tail::Note(format!(
            "[This turn was ended by the program because it went in circles: {why}. What was done until then is done. The \
             request is not finished; it is not to be taken up again in the same way.]"
        ));
        ending
    }

    /// A write failed: with the lease gone nothing more may be written; otherwise storage is to blame.
    pub(crate) fn storage(error: &StoreError) -> Self {
        let reason = match error {
            StoreError::Fenced { .. } => EndReason::LeaseLost,
            _ => EndReason::PersistenceFailed,
        };
        Self::failed(reason, error.code(), error.to_string())
    }

    pub(crate) fn stopped(cause: Cause, partial: String) -> Self {
        let reason = cause.reason();
        let error = reason.code().map(|code| TurnError {
            code: code.to_owned(),
            message: stop_message(cause),
            retryable: reason.may_retry(),
        });
        let tail = if partial.trim().is_empty() { Tail::Boundary } else { Tail::Partial(partial.clone()) };
        Self { reason, answer: partial, error, tail }
    }
}

fn stop_message(cause: Cause) -> String {
    let text = match cause {
        Cause::Asked(_) => "the turn was stopped",
        Cause::LeaseLost => {
            "another process has taken this conversation over; this turn was ended without one more write"
        }
        Cause::Deadline => "the time for one turn (agent.run_budget_seconds) is over",
        Cause::Wedged { quiet_ms, last } => {
            return format!(
                "the watchdog of this program stopped the turn: for {} seconds nothing of it moved; the last sign of life \
                 was {last}",
                quiet_ms / 1_000
            );
        }
    };
    text.to_owned()
}

/// The tools of a turn.
pub(crate) struct TurnTools {
    pub available: Vec<Arc<dyn Tool>>,
    pub schemas: Arc<[ToolSchema]>,
    pub context: ToolContext,
    /// Who judges its calls before a person does.
    pub judge: Option<Arc<ApprovalJudge>>,
}

/// One turn at work.
pub(crate) struct Turn<'e> {
    /// The engine as a handle, for children.
    pub host: Engine,
    /// What this turn may do, when it is a child's.
    pub child: Option<ChildTask>,
    /// Where its calls hand children in, when it may have some.
    pub desk: Option<Arc<Desk>>,
    pub engine: &'e Inner,
    /// The model of the route.
    pub model: Arc<dyn ChatModel>,
    /// The route that is asked: 0 is the chosen model, the others stand in for it.
    pub route: usize,
    /// A provider has refused to speak of this.
    pub refused: bool,
    pub fence: Fence,
    pub id: TurnId,
    pub admission: AdmissionRecord,
    pub stop: StopSignal,
    /// Where its signs of life go.
    pub pulse: Pulse,
    /// Until when its lease stands by this process's own clock.
    pub lease: LeaseTime,
    /// Set by the context phase.
    pub session: Option<SessionId>,
    pub tools: Option<TurnTools>,
    pub system: bytes::Bytes,
    pub history: Vec<ChatMessage>,
    /// Ids of calls that the history holds: a provider that uses one again gets another.
    pub call_ids: HashSet<String>,
    /// What a provider said of the size of this history.
    pub anchor: Option<crate::tokens::Anchor>,
    /// How often this turn has tried to shorten its history.
    pub compressions: u32,
    /// The window of this route's model could not be grown; this turn does not try again.
    pub window_stays: bool,
    pub api_calls: u64,
    pub budget: Budget,
    pub begun_ms: i64,
    pub deadline_ms: Option<i64>,
    /// The model was told that the time runs out.
    pub deadline_told: bool,
    pub max_output_tokens: Option<u64>,
    /// How often the output cap was raised after an answer was cut.
    pub times_raised: u32,
    /// The provider has said how much output fits: the cap is not raised any more.
    pub output_lowered: bool,
    /// The provider refused opaque state of earlier answers: those of before go out without it for the rest of the turn.
    pub sidecars_left_out: bool,
    /// How much the model is asked to think.
    pub effort: Option<String>,
    pub usage: UsageTotals,
    pub recovery: Recovery,
    /// Rounds in a row without one valid call.
    pub invalid_rounds: u32,
    /// Parts of an answer that was cut.
    pub trail: Trail,
    /// What clients have seen of the answer that is asked for.
    pub shown: Shown,
    /// Requests that the user's words cut.
    pub redirects: Redirects,
    /// Held for one look at a result, never over an await.
    pub guard: Mutex<Guardrails>,
}

impl Turn<'_> {
    /// Runs the turn from its input, or from where an earlier owner left it.
    pub(crate) async fn run(&mut self, open: Option<Box<OpenTurn>>) -> TurnResult {
        let (engine, stop, pulse, deadline_ms) = (self.engine, self.stop.clone(), self.pulse.clone(), self.deadline_ms);
        let lease = self.lease.clone();
        let keeper = keeper::keep(engine, self.fence.clone(), stop.clone(), Some(&lease));
        let timeout_ms = engine.settings.liveness_timeout_ms;
        let watchdog = watchdog::watch(engine.clock.as_ref(), &pulse, &stop, timeout_ms, deadline_ms);
        let ended = {
            let work = async {
                let ending = match self.work(open).await {
                    Ok(ending) | Err(ending) => ending,
                };
                self.count_judged();
                self.finalize(ending).await
            };
            futures::pin_mut!(keeper, watchdog, work);
            tokio::select! {
                biased;
                result = work => Some(result),
                // What ignores even a hard stop is dropped here, with everything in it.
                () = watchdog => None,
                // The keeper never ends; it is dropped with the turn.
                never = keeper => match never {},
            }
        };
        ended.unwrap_or_else(|| self.given_up())
    }

    async fn work(&mut self, open: Option<Box<OpenTurn>>) -> Result<Ending, Ending> {
        let is_new = open.is_none();
        self.open_context(open).await?;
        if is_new {
            self.compress_when_idle().await?;
        }
        loop {
            self.check_stop()?;
            if !self.budget.take() {
                return self.closing_summary().await;
            }
            self.take_steers().await?;
            let answer = self.answer_of_any().await?;
            if let Some(ending) = self.take_answer(answer).await? {
                return Ok(ending);
            }
        }
    }

    /// Ends the turn here when somebody asked for it.
    pub(crate) fn check_stop(&self) -> Result<(), Ending> {
        match self.stop.cause() {
            Some(cause) => Err(Ending::stopped(cause, String::new())),
            None => Ok(()),
        }
    }

    pub(crate) fn guard(&self) -> MutexGuard<'_, Guardrails> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Provider and model, for people.
    pub(crate) fn model_name(&self) -> String {
        format!("{}/{}", self.model.info().provider, self.model.info().model)
    }

    pub(crate) fn emit(&self, kind: EventKind) {
        self.engine.emit(Event::new(self.fence.conversation().clone(), Some(self.id.clone()), kind));
    }

    /// Adds what a request used to the turn's own sums, and makes the value that the store counts.
    pub(crate) fn usage_of(&mut self, usage: Option<hermes_providers::Usage>) -> UsageDelta {
        let delta = Used { info: self.model.info().clone(), usage }.delta(self.engine.ids(), "");
        self.usage.provider.clone_from(&delta.provider);
        self.usage.model.clone_from(&delta.model);
        self.add_usage(&delta);
        delta
    }

    /// Adds what a request used to the turn's own sums, whoever was asked.
    pub(crate) fn add_usage(&mut self, delta: &UsageDelta) {
        let sums = &mut self.usage;
        sums.requests += 1;
        sums.unknown += u64::from(!delta.known);
        sums.input += delta.input;
        sums.output += delta.output;
        sums.cache_read += delta.cache_read;
        sums.cache_write += delta.cache_write;
        sums.reasoning += delta.reasoning;
    }
}
