//! Recovery of a turn that a crash left open: what the journal proves decides, nothing is guessed.
//!
//! | the journal shows | then |
//! |---|---|
//! | the final answer is stored | the turn is settled as answered |
//! | a closing row is stored | the turn is settled as interrupted |
//! | no round was recorded | the input goes back into its place: nothing happened |
//! | rounds, the last write is fresh | the turn goes on where it stopped |
//! | rounds, stale or begun too often | the turn is closed with a row that says so |
//!
//! A call that is still open is run again when its tool is pure or idempotent and the turn goes on; it is stored as
//! not run when it provably did not begin; otherwise its outcome is unknown, and the model is told.

use hermes_store::{
    CallOutcome, CallResult, Fence, JournalState, MessageKind, MessagePage, OpenTurn, RecordedCall, ReplaySafety, Role,
    StoreError, StoredMessage, TurnEnd, View,
};
use hermes_tools::PreparedCall;

use crate::end::EndReason;
use crate::engine::Inner;
use crate::limits::{RESUME_FRESH_MS, TURN_ATTEMPTS_MAX};
use crate::persist::persist;
use crate::trail::Trail;
use crate::turn::finalize::{boundary_text, closing_row};
use crate::turn::{Ending, Turn};

const NOT_RUN: &str = "Not run: the program died before this call began. Nothing of it happened.";
const UNKNOWN: &str = "Outcome unknown: the program died while this call was running. It may have had all, some or \
none of its effect. Find out what really happened before you try it again.";

/// What becomes of an open turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    Answered,
    Closed,
    Requeue,
    GoOn,
    Close,
}

/// What becomes of an open call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallPlan {
    Rerun,
    NotRun,
    Unknown,
}

/// Decides over an open turn.
pub(crate) fn plan(open: &OpenTurn, now_ms: i64) -> Plan {
    if let Some(row) = open.last_row.as_ref().filter(|row| row.role == Role::Assistant && row.calls.is_empty()) {
        match row.kind {
            MessageKind::Normal => return Plan::Answered,
            MessageKind::Partial | MessageKind::Boundary => return Plan::Closed,
            _ => {}
        }
    }
    // Any other row shows that the model has spoken: a nudge and a steer come after an answer of it.
    let is_input = |row: &StoredMessage| row.id == open.admission.receipt.admission.input_row();
    let nothing_happened = open.calls.is_empty() && open.last_row.as_ref().is_none_or(is_input);
    let may_go_on = open.attempt < TURN_ATTEMPTS_MAX && now_ms.saturating_sub(open.last_write_ms) <= RESUME_FRESH_MS;
    match (nothing_happened, may_go_on) {
        (true, _) if open.attempt == 1 => Plan::Requeue,
        (_, true) => Plan::GoOn,
        (_, false) => Plan::Close,
    }
}

fn plan_call(call: &RecordedCall, goes_on: bool) -> Option<CallPlan> {
    match (call.state, call.new.replay) {
        (JournalState::Settled, _) => None,
        (_, ReplaySafety::Pure | ReplaySafety::Idempotent) if goes_on => Some(CallPlan::Rerun),
        // A pure call has no effect that could be half done.
        (JournalState::Recorded, _) | (_, ReplaySafety::Pure) => Some(CallPlan::NotRun),
        (JournalState::Started, _) => Some(CallPlan::Unknown),
    }
}

impl CallPlan {
    fn result(self) -> CallResult {
        let (outcome, content) = match self {
            Self::NotRun | Self::Rerun => (CallOutcome::Skipped, NOT_RUN),
            Self::Unknown => (CallOutcome::OutcomeUnknown, UNKNOWN),
        };
        CallResult { outcome, content: content.to_owned(), meta: None }
    }
}

impl Turn<'_> {
    /// Settles the calls of the round that was open when the earlier owner died.
    pub(crate) async fn recover_calls(&mut self, open: OpenTurn) -> Result<(), Ending> {
        let Some(round) = open.open_round else { return Ok(()) };
        let mut again: Vec<PreparedCall> = Vec::new();
        let mut settled_now = Vec::new();
        for (index, call) in round.calls().iter().enumerate() {
            let Some(mut plan) = plan_call(call, true) else { continue };
            if plan == CallPlan::Rerun {
                let id = call.new.call.as_str();
                let available = self.tools.as_ref().map_or(&[][..], |tools| &tools.available);
                let registry = &self.engine.tools.registry;
                match registry.prepare_available(available, index, id, &call.new.name, &call.new.arguments) {
                    Ok(prepared) => again.push(prepared),
                    // The tool is gone since. What was begun may have happened.
                    Err(_) if call.state == JournalState::Started && call.new.replay != ReplaySafety::Pure => {
                        plan = CallPlan::Unknown;
                    }
                    Err(_) => plan = CallPlan::NotRun,
                }
            }
            if plan != CallPlan::Rerun {
                settled_now.push((call.new.call.clone(), plan.result()));
            }
        }
        for (call, result) in settled_now {
            self.persist(|| self.engine.store.settle_call(&self.fence, &self.id, &call, result.clone())).await?;
        }
        if again.is_empty() {
            return Ok(());
        }
        // The history is loaded from the store afterwards, with these results in their places.
        self.run_calls(&round, again, Vec::new()).await.map(|_| ())
    }
}

/// Ends a turn that is not gone on with. Returns its reason.
pub(crate) async fn close(engine: &Inner, fence: &Fence, open: &OpenTurn, plan: Plan) -> Result<EndReason, StoreError> {
    let clock = engine.clock.as_ref();
    let reason = if plan == Plan::Answered { EndReason::Answered } else { EndReason::CrashInterrupted };
    if let Some(round) = &open.open_round {
        for call in round.calls() {
            if let Some(plan) = plan_call(call, false) {
                persist(clock, || engine.store.settle_call(fence, &open.id, &call.new.call, plan.result())).await?;
            }
        }
    }
    if plan == Plan::Close && open.session.is_some() {
        let trail = stored_trail(engine, fence, open).await?;
        let row = closing_row(engine.ids().message(), MessageKind::Boundary, &boundary_text(reason), &trail);
        persist(clock, || engine.store.append(fence, &open.id, vec![row.clone()], None)).await?;
    }
    let end = TurnEnd {
        reason: reason.as_str().to_owned(),
        detail: reason.code().map(|code| format!("{code}: the program died while the turn was at work")),
        outcome: reason.outcome(),
        api_calls: 0,
    };
    persist(clock, || engine.store.settle_turn(fence, &open.id, end.clone(), true)).await?;
    Ok(reason)
}

/// The parts of a cut answer that the turn ended with: people have not seen them yet.
async fn stored_trail(engine: &Inner, fence: &Fence, open: &OpenTurn) -> Result<Trail, StoreError> {
    if open.last_row.as_ref().is_none_or(|row| row.kind != MessageKind::Hidden) {
        return Ok(Trail::default());
    }
    let page = MessagePage { from_end: true, ..MessagePage::default() };
    let rows = engine.store.messages(fence.conversation(), View::Model, page).await?;
    Ok(Trail::of_rows(&rows, &open.id).0)
}

/// What was done, for a person.
pub(crate) fn describe(plan: Plan, open: &OpenTurn) -> String {
    match plan {
        Plan::Answered => "an earlier turn had answered when the program died; it is settled".to_owned(),
        Plan::Closed => "an earlier turn was being closed when the program died; it is settled".to_owned(),
        Plan::Requeue => "an earlier input had not been begun when the program died; it is run now".to_owned(),
        Plan::GoOn => {
            let calls = open.open_round.as_ref().map_or(0, |round| {
                round.calls().iter().filter(|call| plan_call(call, true) == Some(CallPlan::Unknown)).count()
            });
            match calls {
                0 => "the turn that the program died in goes on where it stopped".to_owned(),
                n => format!(
                    "the turn that the program died in goes on where it stopped; the outcome of {n} call(s) is not known"
                ),
            }
        }
        Plan::Close => "the turn that the program died in was closed without an answer".to_owned(),
    }
}
