//! The round phase: record, execute, settle. Nothing runs before it is written down, and no result is shown to the
//! model before it is stored.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use hermes_providers::{CompletedCall, Completion, ToolCall};
use hermes_store::{
    CallId, CallOutcome, CallResult, NewCall, NewMessage, Recorded, ReplaySafety, Role, Round, SettledCall, StoreError,
};
use hermes_tools::{BatchContext, CallObserver, CallProgress, CallReport, Halt, PreparedCall};

use crate::end::EndReason;
use crate::event::{EventKind, PlannedCall};
use crate::limits::{CALLS_PER_ROUND_MAX, EVENT_PREVIEW_CHARS, INVALID_ROUNDS_MAX};
use crate::projection;
use crate::turn::{Ending, Turn};

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
        let (calls, prepared) = self.plan_calls(completion.calls);
        let all_invalid = prepared.is_empty();
        let planned = Round::plan(self.id.clone(), assistant, calls, Some(usage));
        let recorded = self.store(self.engine.store.record_round(&self.fence, planned).await)?;
        self.announce(&recorded, &prepared);
        let replayed = replayed(&recorded);
        let results = self.execute(recorded, prepared).await?;
        self.history.push(replayed);
        self.history.extend(results);
        self.check_invalid_rounds(all_invalid)
    }

    fn check_invalid_rounds(&mut self, all_invalid: bool) -> Result<(), Ending> {
        if !all_invalid {
            self.counters.invalid_rounds = 0;
            return Ok(());
        }
        self.counters.invalid_rounds += 1;
        if self.counters.invalid_rounds < INVALID_ROUNDS_MAX {
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
            let checked = self.prepare(index, id.as_str(), &call);
            let (replay, preset) = match &checked {
                Ok(ready) => (replay_of(ready.tool.spec().replay), None),
                Err(report) => (ReplaySafety::Pure, Some(result_of(report))),
            };
            planned.push(NewCall {
                call: id,
                result: self.engine.ids().message(),
                provider_id: self.unique_call_id(call.id.as_deref(), index),
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

    /// An id that pairs call and result in every later request: the provider's own, unless it used that one before.
    fn unique_call_id(&mut self, wanted: Option<&str>, index: usize) -> String {
        let base = match wanted {
            Some(id) if !id.is_empty() && id.chars().count() <= CALL_ID_MAX_CHARS => id.to_owned(),
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
    ) -> Result<Vec<hermes_providers::ChatMessage>, Ending> {
        let (proofs, mut reports) = self.run_calls(&recorded, prepared).await?;
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

    /// Runs calls of a recorded round and stores each result.
    pub(crate) async fn run_calls(
        &self,
        recorded: &Round<Recorded>,
        prepared: Vec<PreparedCall>,
    ) -> Result<Settlements, Ending> {
        let Some(tools) = &self.tools else { return Err(broken("a round without tools".to_owned())) };
        let journal = Journal::new(self, recorded);
        if !prepared.is_empty() {
            let batch = BatchContext {
                tool: tools.context.clone(),
                policy: self.engine.tools.policy.clone(),
                context_window: self.model.info().context_window,
            };
            // A failed write is in the journal's hands; the executor has stopped either way.
            let _halted = self.engine.tools.executor.run(prepared, &batch, &journal).await;
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
    calls: Vec<(CallId, String)>,
    state: Mutex<JournalState>,
}

#[derive(Default)]
struct JournalState {
    failure: Option<StoreError>,
    proofs: Vec<SettledCall>,
    reports: Vec<Option<CallResult>>,
}

/// Proofs of stored results, and the results by place.
pub(crate) type Settlements = (Vec<SettledCall>, Vec<Option<CallResult>>);

impl<'t> Journal<'t> {
    fn new(turn: &'t Turn<'t>, recorded: &Round<Recorded>) -> Self {
        let calls: Vec<_> =
            recorded.calls().iter().map(|call| (call.new.call.clone(), call.new.name.clone())).collect();
        let reports = vec![None; calls.len()];
        Self { turn, calls, state: Mutex::new(JournalState { reports, ..JournalState::default() }) }
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

    fn call(&self, index: usize) -> Result<&(CallId, String), Halt> {
        self.calls.get(index).ok_or(Halt)
    }
}

#[async_trait]
impl CallObserver for Journal<'_> {
    async fn before_effect(&self, indexes: &[usize]) -> Result<(), Halt> {
        let calls =
            indexes.iter().map(|index| self.call(*index).map(|(id, _)| id.clone())).collect::<Result<Vec<_>, _>>()?;
        let turn = self.turn;
        let started = turn.engine.store.start_calls(&turn.fence, &turn.id, &calls).await;
        started.map_err(|error| self.fail(error))
    }

    async fn settled(&self, index: usize, report: CallReport) -> Result<(), Halt> {
        let (id, name) = self.call(index)?;
        let turn = self.turn;
        let result = result_of(&report);
        let proof = turn
            .engine
            .store
            .settle_call(&turn.fence, &turn.id, id, result.clone())
            .await
            .map_err(|error| self.fail(error))?;
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.proofs.push(proof);
            if let Some(slot) = state.reports.get_mut(index) {
                *slot = Some(result);
            }
        }
        turn.emit(EventKind::CallFinished {
            call: id.clone(),
            name: name.clone(),
            outcome: outcome_of(report.outcome),
            summary: report.summary,
            preview: report.content.chars().take(EVENT_PREVIEW_CHARS).collect(),
        });
        Ok(())
    }

    fn progress(&self, index: usize, progress: CallProgress) {
        let Ok((call, name)) = self.call(index) else { return };
        let call = call.clone();
        self.turn.emit(match progress {
            CallProgress::Started { label } => EventKind::CallStarted { call, name: name.clone(), label },
            CallProgress::Waiting { what } => EventKind::CallWaiting { call, what },
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
