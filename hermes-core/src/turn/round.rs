//! The round phase: record, execute, settle. Nothing runs before it is written down, and no result is shown to the
//! model before it is stored.
//!
//! Guardrails look at each result before it is stored, and what they and the budget have to say is added to it then:
//! a stored row is never touched again. A turn that they end is ended after the round, when every call has its result.
//!
//! Two equal calls in one answer are both run: to poll twice or to send twice may be meant, and a call that vanished
//! would leave the model with a result that it did not get (E13). What is not meant shows as a streak.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use hermes_providers::{CompletedCall, Completion, ToolCall};
use hermes_store::{
    CallOutcome, CallResult, NewCall, NewMessage, Recorded, RecordedCall, ReplaySafety, Role, Round, SettledCall,
    StoreError,
};
use hermes_tools::{BatchContext, CallObserver, CallProgress, CallReport, Halt, PreparedCall};

use crate::end::EndReason;
use crate::event::{EventKind, PlannedCall};
use crate::guardrail::{Seen, append};
use crate::limits::{CALLS_PER_ROUND_MAX, DEADLINE_WARN_PERCENT, EVENT_PREVIEW_CHARS, INVALID_ROUNDS_MAX};
use crate::persist::persist;
use crate::projection;
use crate::shown::Shown;
use crate::trail::Trail;
use crate::turn::answer::carry;
use crate::turn::{Ending, Turn};
use crate::watchdog::{Patience, Sign, Waiting, patience_of};

/// Characters of a provider's call id that are kept; longer ones are replaced (some wires allow no more than 64).
const CALL_ID_MAX_CHARS: usize = 64;

impl Turn<'_> {
    /// Records the round, runs its calls and adds both to the history.
    pub(crate) async fn round(&mut self, completion: Completion) -> Result<(), Ending> {
        let usage = self.usage_of(completion.usage);
        let mut assistant = NewMessage::text(self.engine.ids().message(), Role::Assistant, completion.text);
        assistant.reasoning = completion.reasoning;
        assistant.sidecar =
            completion.sidecar.map(|s| hermes_store::Sidecar { issuer: s.issuer.as_ref().to_owned(), bytes: s.bytes });
        assistant.finish = Some("tool_calls".to_owned());
        carry(&self.trail, &mut assistant);
        self.trail = Trail::default();
        self.shown = Shown::default();
        let mut notes = self.due_notes();
        let (mut calls, prepared) = self.plan_calls(completion.calls);
        let all_invalid = prepared.is_empty();
        if all_invalid && let Some(preset) = calls.last_mut().and_then(|call| call.preset.as_mut()) {
            notes.drain(..).for_each(|note| append(preset, &note));
        }
        let planned = Round::plan(self.id.clone(), assistant, calls, Some(usage));
        let recorded = self.persist(|| self.engine.store.record_round(&self.fence, planned.clone())).await?;
        self.announce(&recorded, &prepared);
        let replayed = replayed(&recorded);
        self.budget.refund_round(recorded.calls().iter().map(|call| call.new.name.as_str()));
        let results = self.execute(recorded, prepared, notes).await?;
        self.history.push(replayed);
        self.history.extend(results);
        if let Some(why) = self.guard().halted() {
            return Err(Ending::halted(why));
        }
        self.check_invalid_rounds(all_invalid)
    }

    /// What the model is to be told with the next result: that its steps or its time run out, each once.
    fn due_notes(&mut self) -> Vec<String> {
        let mut notes: Vec<String> = self.budget.warning().into_iter().collect();
        let now_ms = self.engine.clock.now_ms();
        if let Some(deadline_ms) = self.deadline_ms.filter(|_| !self.deadline_told) {
            let (whole, gone) = (deadline_ms - self.begun_ms, now_ms - self.begun_ms);
            if gone.saturating_mul(100) >= whole.saturating_mul(DEADLINE_WARN_PERCENT) {
                self.deadline_told = true;
                let left = (deadline_ms - now_ms).max(0) / 1_000;
                notes.push(format!("Note: about {left} seconds are left for this turn. Finish, and answer."));
            }
        }
        notes
    }

    fn check_invalid_rounds(&mut self, all_invalid: bool) -> Result<(), Ending> {
        if !all_invalid {
            self.invalid_rounds = 0;
            return Ok(());
        }
        self.invalid_rounds += 1;
        if self.invalid_rounds < INVALID_ROUNDS_MAX {
            return Ok(());
        }
        Err(Ending::failed(
            EndReason::InvalidCalls,
            "HM4015",
            format!("the model made {INVALID_ROUNDS_MAX} rounds of calls in a row of which none was valid"),
        ))
    }

    /// Checks each call against the tools of this turn. A call that cannot run gets its result now.
    fn plan_calls(&mut self, calls: Vec<CompletedCall>) -> (Vec<NewCall>, Vec<PreparedCall>) {
        let mut planned = Vec::with_capacity(calls.len());
        let mut prepared = Vec::new();
        for (index, call) in calls.into_iter().enumerate() {
            let id = self.engine.ids().call();
            let provider_id = self.unique_call_id(call.id.as_deref(), index);
            let checked = self.prepare(index, id.as_str(), &call).and_then(|ready| self.admit(ready));
            let (replay, preset) = match &checked {
                Ok(ready) => (replay_of(ready.tool.spec().replay), None),
                Err(report) => {
                    let mut result = result_of(report);
                    let (name, arguments) = (call.name.as_str(), call.arguments.as_str());
                    let seen = Seen { name, arguments, replay: ReplaySafety::Pure, provider_id: &provider_id };
                    self.guard().observe(seen, &mut result);
                    (ReplaySafety::Pure, Some(result))
                }
            };
            planned.push(NewCall {
                call: id,
                result: self.engine.ids().message(),
                provider_id,
                name: call.name,
                arguments: call.arguments,
                replay,
                preset,
            });
            prepared.extend(checked);
        }
        (planned, prepared)
    }

    fn prepare(&self, index: usize, id: &str, call: &CompletedCall) -> Result<PreparedCall, CallReport> {
        let invalid =
            |text: String| CallReport::new(hermes_tools::CallOutcome::Invalid, text).with_summary("invalid call");
        if index >= CALLS_PER_ROUND_MAX {
            return Err(invalid(format!("Not run: at most {CALLS_PER_ROUND_MAX} calls may be made in one answer.")));
        }
        if !call.whole {
            return Err(invalid(
                "Not run: the arguments are not one whole JSON value. Make the call again.".to_owned(),
            ));
        }
        let available = self.tools.as_ref().map_or(&[][..], |tools| &tools.available);
        self.engine.tools.registry.prepare_available(available, index, id, &call.name, &call.arguments)
    }

    /// Asks the guardrails whether the turn may make one more such call.
    fn admit(&self, ready: PreparedCall) -> Result<PreparedCall, CallReport> {
        match self.guard().admit(&ready.call.name, &ready.call.arguments) {
            Ok(()) => Ok(ready),
            Err(text) => Err(CallReport::new(hermes_tools::CallOutcome::Denied, text).with_summary("over the cap")),
        }
    }

    /// An id that pairs call and result in every later request: the provider's own, unless it used that one before, or
    /// it is one that would not come back as it is (blanks, control characters, too long).
    fn unique_call_id(&mut self, wanted: Option<&str>, index: usize) -> String {
        let keeps =
            |id: &str| !id.is_empty() && id.len() <= CALL_ID_MAX_CHARS && id.bytes().all(|b| b.is_ascii_graphic());
        let base = match wanted {
            Some(id) if keeps(id) => id.to_owned(),
            _ => format!("call_{}_{index}", self.call_ids.len()),
        };
        let mut id = base.clone();
        let mut count = 1;
        while !self.call_ids.insert(id.clone()) {
            count += 1;
            let head: String = base.chars().take(CALL_ID_MAX_CHARS - 8).collect();
            id = format!("{head}_{count}");
        }
        id
    }

    fn announce(&self, recorded: &Round<Recorded>, prepared: &[PreparedCall]) {
        let calls = recorded
            .calls()
            .iter()
            .enumerate()
            .map(|(index, call)| PlannedCall {
                call: call.new.call.clone(),
                name: call.new.name.clone(),
                label: prepared
                    .iter()
                    .find(|ready| ready.index == index)
                    .map_or_else(String::new, |ready| ready.tool.label(&ready.call)),
            })
            .collect();
        self.emit(EventKind::RoundRecorded { text: recorded.assistant().content.clone(), calls });
    }

    /// Runs the prepared calls of a recorded round, and returns the results of all its calls as the model is shown
    /// them, in call order.
    async fn execute(
        &self,
        recorded: Round<Recorded>,
        prepared: Vec<PreparedCall>,
        notes: Vec<String>,
    ) -> Result<Vec<hermes_providers::ChatMessage>, Ending> {
        let (proofs, mut reports) = self.run_calls(&recorded, prepared, notes).await?;
        let calls: Vec<NewCall> = recorded.calls().iter().map(|call| call.new.clone()).collect();
        recorded.settle(&proofs).map_err(|unsettled| broken(format!("after a round {unsettled}")))?;
        let mut results = Vec::with_capacity(calls.len());
        for (index, call) in calls.into_iter().enumerate() {
            let result = call.preset.or_else(|| reports.get_mut(index).and_then(Option::take));
            let result = result.ok_or_else(|| broken("a settled call has no result".to_owned()))?;
            results.push(projection::tool(call.provider_id, call.name, result.content, result.outcome));
        }
        Ok(results)
    }

    /// Runs calls of a recorded round and stores each result; `notes` go to the model with the first one.
    pub(crate) async fn run_calls(
        &self,
        recorded: &Round<Recorded>,
        prepared: Vec<PreparedCall>,
        notes: Vec<String>,
    ) -> Result<Settlements, Ending> {
        let Some(tools) = &self.tools else { return Err(broken("a round without tools".to_owned())) };
        let batch_ms = self.engine.tools.executor.limits().batch_limit_ms;
        let patience = prepared.iter().map(|ready| (ready.index, patience_of(ready, &tools.context, batch_ms)));
        let journal = Journal::new(self, recorded, notes, patience.collect());
        if !prepared.is_empty() {
            let batch = BatchContext {
                tool: tools.context.clone(),
                policy: self.engine.tools.policy.clone(),
                context_window: self.engine.window_of(self.model.info()),
                begin_nothing: self.stop.soft().clone(),
            };
            // A failed write is in the journal's hands; the executor has stopped either way.
            let _halted =
                self.beside_children(Box::pin(self.engine.tools.executor.run(prepared, &batch, &journal))).await;
        }
        journal.finish()
    }
}

fn broken(what: String) -> Ending {
    Ending::failed(EndReason::InvariantViolated, "HM4018", what)
}

/// The assistant message of a round, as it is replayed.
fn replayed(recorded: &Round<Recorded>) -> hermes_providers::ChatMessage {
    let calls = recorded
        .calls()
        .iter()
        .map(|call| ToolCall {
            id: call.new.provider_id.clone(),
            name: call.new.name.clone(),
            arguments: call.new.arguments.clone(),
        })
        .collect();
    projection::assistant(recorded.assistant(), calls)
}

/// Writes down what the executor reports, before anything else happens with it.
struct Journal<'t> {
    turn: &'t Turn<'t>,
    calls: &'t [RecordedCall],
    /// How long each call may be silent, by its place.
    patience: HashMap<usize, Option<Patience>>,
    state: Mutex<JournalState>,
}

#[derive(Default)]
struct JournalState {
    failure: Option<StoreError>,
    proofs: Vec<SettledCall>,
    reports: Vec<Option<CallResult>>,
    /// What goes to the model with the next result.
    notes: Vec<String>,
    /// Calls that run and may be silent, by their place.
    running: HashMap<usize, Waiting>,
}

/// Proofs of stored results, and the results by place.
pub(crate) type Settlements = (Vec<SettledCall>, Vec<Option<CallResult>>);

impl<'t> Journal<'t> {
    fn new(
        turn: &'t Turn<'t>,
        recorded: &'t Round<Recorded>,
        notes: Vec<String>,
        patience: HashMap<usize, Option<Patience>>,
    ) -> Self {
        let calls = recorded.calls();
        let reports = vec![None; calls.len()];
        Self { turn, calls, patience, state: Mutex::new(JournalState { reports, notes, ..JournalState::default() }) }
    }

    /// The result as it is stored and shown.
    fn result(&self, call: &NewCall, report: &CallReport) -> CallResult {
        let mut result = result_of(report);
        let (name, arguments) = (call.name.as_str(), call.arguments.as_str());
        let seen = Seen { name, arguments, replay: call.replay, provider_id: &call.provider_id };
        self.turn.guard().observe(seen, &mut result);
        let notes = std::mem::take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).notes);
        notes.iter().for_each(|note| append(&mut result, note));
        result
    }

    fn finish(self) -> Result<Settlements, Ending> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        match state.failure {
            Some(error) => Err(Ending::storage(&error)),
            None => Ok((state.proofs, state.reports)),
        }
    }

    fn fail(&self, error: StoreError) -> Halt {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failure.get_or_insert(error);
        Halt
    }

    fn call(&self, index: usize) -> Result<&'t NewCall, Halt> {
        self.calls.get(index).map(|call| &call.new).ok_or(Halt)
    }
}

#[async_trait]
impl CallObserver for Journal<'_> {
    async fn before_effect(&self, indexes: &[usize]) -> Result<(), Halt> {
        let calls =
            indexes.iter().map(|index| self.call(*index).map(|new| new.call.clone())).collect::<Result<Vec<_>, _>>()?;
        let turn = self.turn;
        let clock = turn.engine.clock.as_ref();
        let started = persist(clock, || turn.engine.store.start_calls(&turn.fence, &turn.id, &calls)).await;
        started.map_err(|error| self.fail(error))
    }

    async fn may_begin(&self) -> Result<(), Halt> {
        self.turn.check_lease().await.map_err(|error| self.fail(error))
    }

    async fn settled(&self, index: usize, report: CallReport) -> Result<(), Halt> {
        let call = self.call(index)?;
        let waiting = self.state.lock().unwrap_or_else(PoisonError::into_inner).running.remove(&index);
        drop(waiting);
        let id = &call.call;
        let turn = self.turn;
        let result = self.result(call, &report);
        let preview = result.content.chars().take(EVENT_PREVIEW_CHARS).collect();
        let store = &turn.engine.store;
        let settled =
            persist(turn.engine.clock.as_ref(), || store.settle_call(&turn.fence, &turn.id, id, result.clone()));
        let proof = settled.await.map_err(|error| self.fail(error))?;
        turn.pulse.stamp(Sign::Write);
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.proofs.push(proof);
            if let Some(slot) = state.reports.get_mut(index) {
                *slot = Some(result);
            }
        }
        turn.emit(EventKind::CallFinished {
            call: id.clone(),
            name: call.name.clone(),
            outcome: outcome_of(report.outcome),
            summary: report.summary,
            preview,
        });
        Ok(())
    }

    fn progress(&self, index: usize, progress: CallProgress) {
        let Ok(NewCall { call, name, .. }) = self.call(index) else { return };
        let call = call.clone();
        self.turn.pulse.stamp(Sign::Call);
        if let (CallProgress::Started { .. }, Some(patience)) =
            (&progress, self.patience.get(&index).copied().flatten())
        {
            let waiting = self.turn.pulse.wait(patience);
            self.state.lock().unwrap_or_else(PoisonError::into_inner).running.insert(index, waiting);
        }
        self.turn.emit(match progress {
            CallProgress::Started { label } => EventKind::CallStarted { call, name: name.clone(), label },
            CallProgress::Waiting { what } => EventKind::CallWaiting { call, what },
            CallProgress::Judged { judge, ruling } => EventKind::CallJudged { call, judge, ruling },
            CallProgress::Output { text } => EventKind::CallOutput { call, text },
            _ => return,
        });
    }
}

fn result_of(report: &CallReport) -> CallResult {
    CallResult { outcome: outcome_of(report.outcome), content: report.content.clone(), meta: report.meta.clone() }
}

fn replay_of(replay: hermes_tools::ReplaySafety) -> ReplaySafety {
    match replay {
        hermes_tools::ReplaySafety::Pure => ReplaySafety::Pure,
        hermes_tools::ReplaySafety::Idempotent => ReplaySafety::Idempotent,
        hermes_tools::ReplaySafety::Once => ReplaySafety::Once,
    }
}

fn outcome_of(outcome: hermes_tools::CallOutcome) -> CallOutcome {
    use hermes_tools::CallOutcome as T;
    match outcome {
        T::Ok => CallOutcome::Ok,
        T::Failed => CallOutcome::Failed,
        T::Denied => CallOutcome::Denied,
        T::Invalid => CallOutcome::Invalid,
        T::Skipped => CallOutcome::Skipped,
        T::TimedOut => CallOutcome::TimedOut,
        T::Interrupted => CallOutcome::Interrupted,
        T::OutcomeUnknown => CallOutcome::OutcomeUnknown,
    }
}
