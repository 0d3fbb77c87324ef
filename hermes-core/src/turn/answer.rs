//! The normalise phase: what an answer means for the turn, and the way out when it is the final one.

use hermes_providers::{Completion, Finish};
use hermes_store::{MessageKind, NewMessage, Role};

use crate::end::{EndReason, TurnError};
use crate::event::EventKind;
use crate::limits::{PAUSES_MAX, SILENT_CALL_REPAIRS_MAX};
use crate::projection;
use crate::turn::{Ending, Tail, Turn};

/// What the model is told when its budget is used up.
const SUMMARY_REQUEST: &str = "The limit on steps for this turn is reached. Do not call any tool. Say in a few \
sentences what was done, what was found, and what is left to do.";

impl Turn<'_> {
    /// Deals with one answer; `Some` ends the turn.
    pub(crate) async fn take_completion(&mut self, completion: Completion) -> Result<Option<Ending>, Ending> {
        if !completion.calls.is_empty() {
            let unreadable = completion.finish == Finish::Length || completion.calls.iter().any(|call| !call.whole);
            if unreadable && self.counters.silent_repairs < SILENT_CALL_REPAIRS_MAX {
                self.counters.silent_repairs += 1;
                self.count_lost(&completion).await?;
                self.emit(EventKind::Notice {
                    text: "the model made a call that cannot be read; it is asked again".to_owned(),
                });
                return Ok(None);
            }
            if completion.finish == Finish::Length {
                return Err(self.truncated(&completion));
            }
            self.round(completion).await?;
            return Ok(None);
        }
        match &completion.finish {
            Finish::Length => self.keep_partial(completion, EndReason::OutputTruncated).await.map(Some),
            Finish::ContentFilter => self.keep_partial(completion, EndReason::ContentBlocked).await.map(Some),
            Finish::Pause => self.pause(completion).await,
            Finish::Stop | Finish::ToolCalls | Finish::Other(_) => self.answer(completion, None).await.map(Some),
            _ => self.answer(completion, None).await.map(Some),
        }
    }

    /// The final answer: durable before it is reported (I15).
    async fn answer(&mut self, completion: Completion, over_budget: Option<TurnError>) -> Result<Ending, Ending> {
        let row = self.assistant_row(&completion, MessageKind::Normal);
        let usage = self.usage_of(completion.usage);
        self.store(self.engine.store.append(&self.fence, &self.id, vec![row], Some(usage)).await)?;
        let reason = if over_budget.is_some() { EndReason::BudgetExhausted } else { EndReason::Answered };
        Ok(Ending { reason, answer: completion.text, error: over_budget, tail: Tail::Closed })
    }

    /// An answer that was cut: kept as far as it goes, and not called complete.
    async fn keep_partial(&mut self, completion: Completion, reason: EndReason) -> Result<Ending, Ending> {
        let mut ending = match reason {
            EndReason::ContentBlocked => {
                Ending::failed(reason, "HM4009", "the provider withheld the answer (content filter)")
            }
            _ => self.truncated(&completion),
        };
        if completion.text.trim().is_empty() {
            self.count_lost(&completion).await?;
            return Ok(ending);
        }
        let row = self.assistant_row(&completion, MessageKind::Partial);
        let usage = self.usage_of(completion.usage);
        self.store(self.engine.store.append(&self.fence, &self.id, vec![row], Some(usage)).await)?;
        ending.answer = completion.text;
        ending.tail = Tail::Closed;
        Ok(ending)
    }

    fn truncated(&self, completion: &Completion) -> Ending {
        let what = if !completion.calls.is_empty() {
            "while it was writing a tool call, which was not run"
        } else if completion.text.trim().is_empty() {
            "before any text (a model that reasons may have used all of it up)"
        } else {
            "before the answer was whole"
        };
        Ending::failed(
            EndReason::OutputTruncated,
            "HM4014",
            format!("the model reached its output limit {what}; ask for less at once, or raise model.max_tokens"),
        )
    }

    /// A provider that pauses a long answer gets it back unchanged and goes on.
    async fn pause(&mut self, completion: Completion) -> Result<Option<Ending>, Ending> {
        self.counters.pauses += 1;
        if self.counters.pauses > PAUSES_MAX {
            return self.answer(completion, None).await.map(Some);
        }
        let row = self.assistant_row(&completion, MessageKind::Hidden);
        let usage = self.usage_of(completion.usage);
        let message = projection::assistant(&row, Vec::new());
        self.store(self.engine.store.append(&self.fence, &self.id, vec![row], Some(usage)).await)?;
        self.history.push(message);
        Ok(None)
    }

    /// The iteration budget is used up: one more request, for a summary.
    pub(crate) async fn closing_summary(&mut self) -> Result<Ending, Ending> {
        let steps = self.iterations;
        let nudge = {
            let mut row = NewMessage::text(self.engine.ids().message(), Role::User, SUMMARY_REQUEST);
            row.kind = MessageKind::Hidden;
            row
        };
        self.store(self.engine.store.append(&self.fence, &self.id, vec![nudge], None).await)?;
        self.history.push(projection::user(SUMMARY_REQUEST.to_owned()));
        let error = TurnError {
            code: "HM4001".to_owned(),
            message: format!("the limit of {steps} steps for one turn is reached (agent.max_turns, --max-turns)"),
            retryable: false,
        };
        let mut completion = self.request().await?;
        // The tools stay in the request, since its first bytes must not change; calls are simply not taken.
        completion.calls.clear();
        if completion.text.trim().is_empty() {
            self.count_lost(&completion).await?;
            return Ok(Ending {
                reason: EndReason::BudgetExhausted,
                answer: String::new(),
                error: Some(error),
                tail: Tail::Boundary,
            });
        }
        self.answer(completion, Some(error)).await
    }

    async fn count_lost(&mut self, completion: &Completion) -> Result<(), Ending> {
        let usage = self.usage_of(completion.usage);
        self.store(self.engine.store.count_usage(&self.fence, usage).await)
    }

    fn assistant_row(&self, completion: &Completion, kind: MessageKind) -> NewMessage {
        let mut row = NewMessage::text(self.engine.ids().message(), Role::Assistant, completion.text.clone());
        row.kind = kind;
        row.reasoning.clone_from(&completion.reasoning);
        row.sidecar = completion
            .sidecar
            .as_ref()
            .map(|s| hermes_store::Sidecar { issuer: s.issuer.as_ref().to_owned(), bytes: s.bytes.clone() });
        row.finish = Some(finish_word(&completion.finish).to_owned());
        row
    }
}

fn finish_word(finish: &Finish) -> &str {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
        Finish::ContentFilter => "content_filter",
        Finish::Pause => "pause",
        Finish::Other(word) => word,
        _ => "unknown",
    }
}
