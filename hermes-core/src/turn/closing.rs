//! The closing phase: what a turn says when its budget is used up.
//!
//! One request more, for a summary, and a second one when it is empty. The tools stay in the request, since its first
//! bytes must not change (I18); calls are simply not taken. The request for it is a nudge, so it is stored and replayed.

use hermes_providers::ChatMessage;

use crate::end::{EndReason, TurnError};
use crate::limits::SUMMARY_ATTEMPTS_MAX;
use crate::nudge::Nudge;
use crate::projection;
use crate::repetition;
use crate::turn::{Ending, Tail, Turn};

impl Turn<'_> {
    /// The budget is used up: ends the turn, with a summary when there is something to sum up.
    pub(crate) async fn closing_summary(&mut self) -> Result<Ending, Ending> {
        // There is no step left for an answer to a redirect: it is the next input.
        self.redirects.closed = true;
        let error = TurnError {
            code: "HM4001".to_owned(),
            message: format!(
                "the limit of {} steps for one turn is reached (agent.max_turns, --max-turns)",
                self.budget.used()
            ),
            retryable: false,
        };
        let silent = Ending {
            reason: EndReason::BudgetExhausted,
            answer: String::new(),
            error: Some(error.clone()),
            tail: Tail::Boundary,
        };
        // Where the model has not spoken since it was last spoken to there is nothing to sum up, and strict providers
        // refuse two user messages in a row.
        if matches!(self.history.last(), Some(ChatMessage::User { .. }) | None) {
            return Ok(silent);
        }
        let nudge = Nudge::Summarise.row(self.engine.ids().message());
        let message = projection::user(nudge.content.clone());
        self.persist(|| self.engine.store.append(&self.fence, &self.id, vec![nudge.clone()], None)).await?;
        self.history.push(message);
        for _ in 0..SUMMARY_ATTEMPTS_MAX {
            let mut completion = self.answer_of_any().await?.completion;
            if !completion.calls.is_empty() {
                // Opaque state may speak of the calls; a message without them goes without it.
                completion.calls.clear();
                completion.sidecar = None;
            }
            if !completion.text.trim().is_empty() && !repetition::loops(&completion.text) {
                return self.answer(completion, Some(error)).await;
            }
            self.count_lost(&completion).await?;
            self.shown.next_attempt();
        }
        Ok(silent)
    }
}
