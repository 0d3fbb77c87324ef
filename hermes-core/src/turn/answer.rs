//! The normalise phase: what an answer means for the turn, and the way out when it is the final one.
//!
//! The decisions stand in [`crate::recovery`]; this file does what they say.

use hermes_providers::{ChatMessage, Completion, ErrorClass, Finish, ProviderError};
use hermes_store::{ApiContent, MessageKind, NewMessage, Role};

use crate::end::{EndReason, TurnError};
use crate::event::EventKind;
use crate::limits::{CONTINUATION_ROOM_MIN_TOKENS, EMPTY_RETRIES_MAX};
use crate::nudge::Nudge;
use crate::projection;
use crate::recovery::{self, Again, Facts, Shape, Step};
use crate::retry;
use crate::shown::Shown;
use crate::trail::Trail;
use crate::turn::redirect::Waited;
use crate::turn::request::Answer;
use crate::turn::{Ending, Tail, Turn};

impl Turn<'_> {
    /// Deals with one answer; `Some` ends the turn.
    pub(crate) async fn take_answer(&mut self, answer: Answer) -> Result<Option<Ending>, Ending> {
        let Answer { completion, shown_before } = answer;
        let shape = recovery::shape(&completion);
        let facts = self.facts(&completion, shape, shown_before);
        match self.recovery.next(shape, &completion.finish, facts) {
            Step::Run => self.round(completion).await.map(|()| None),
            Step::Answer => self.answer(completion, None).await.map(Some),
            Step::GoOn => self.go_on(completion).await.map(|()| None),
            Step::SendBack => self.send_back(completion).await.map(|()| None),
            Step::Again(again) => self.again(&completion, again).await.map(|()| None),
            Step::Nudge => self.nudge(&completion).await.map(|()| None),
            Step::Leave(reason) => self.leave_model(&completion, shape, reason).await,
            Step::EndKeeping(reason) => self.keep_partial(completion, reason).await.map(Some),
            Step::End(reason) => {
                self.count_lost(&completion).await?;
                Ok(Some(self.without_answer(&completion, reason)))
            }
        }
    }

    fn facts(&self, completion: &Completion, shape: Shape, shown_before: bool) -> Facts {
        let usage = completion.usage.unwrap_or_default();
        let used = usage.input_total().zip(usage.output).map(|(input, output)| input.saturating_add(output));
        Facts {
            has_text: !completion.text.trim().is_empty(),
            shown_before,
            after_tools: matches!(self.history.last(), Some(ChatMessage::Tool { .. })),
            no_output: usage.output == Some(0),
            less_thinking: recovery::lower_effort(self.effort.as_deref()).is_some(),
            more_room: self.raised_cap().is_some(),
            // What nobody has measured is tried.
            window_has_room: used
                .zip(self.engine.room_of(self.model.as_ref()))
                .is_none_or(|(used, window)| used.saturating_add(CONTINUATION_ROOM_MIN_TOKENS) <= window),
            another_route: self.may_fall_back(class_without_answer(shape)),
        }
    }

    /// A model that gives no answer is left for the next one; the step that its last try took is given back.
    async fn leave_model(
        &mut self,
        completion: &Completion,
        shape: Shape,
        reason: EndReason,
    ) -> Result<Option<Ending>, Ending> {
        self.count_lost(completion).await?;
        let Some(rebuild) = self.rebuild_for(&no_answer(shape)) else {
            return Ok(Some(self.without_answer(completion, reason)));
        };
        self.rebuild(rebuild);
        self.recovery.another_model();
        self.budget.refund();
        self.shown.next_attempt();
        Ok(None)
    }

    /// The next higher output cap, when there is one.
    fn raised_cap(&self) -> Option<u64> {
        let cap = self.engine.settings.max_output_tokens;
        let raised = recovery::raised_cap(cap, self.times_raised + 1, self.model.info().max_output_tokens);
        raised.filter(|raised| !self.output_lowered && Some(*raised) > self.max_output_tokens)
    }

    fn raise_cap(&mut self) {
        if let Some(raised) = self.raised_cap() {
            self.times_raised += 1;
            self.max_output_tokens = Some(raised);
        }
    }

    /// The final answer: durable before it is reported (I15). With parts of it kept before, people read one row.
    pub(crate) async fn answer(
        &mut self,
        completion: Completion,
        over_budget: Option<TurnError>,
    ) -> Result<Ending, Ending> {
        let mut row = self.assistant_row(&completion, MessageKind::Normal);
        carry(&self.trail, &mut row);
        let answer = row.content.clone();
        let usage = self.usage_of(completion.usage);
        self.persist(|| self.engine.store.append(&self.fence, &self.id, vec![row.clone()], Some(usage.clone())))
            .await?;
        let reason = if over_budget.is_some() { EndReason::BudgetExhausted } else { EndReason::Answered };
        Ok(Ending { reason, answer, error: over_budget, tail: Tail::Closed })
    }

    /// An answer that was cut: kept as far as it goes, and not called complete.
    async fn keep_partial(&mut self, completion: Completion, reason: EndReason) -> Result<Ending, Ending> {
        let mut ending = self.without_answer(&completion, reason);
        if completion.text.trim().is_empty() {
            self.count_lost(&completion).await?;
            return Ok(ending);
        }
        let mut row = self.assistant_row(&completion, MessageKind::Partial);
        carry(&self.trail, &mut row);
        ending.answer.clone_from(&row.content);
        ending.tail = Tail::Closed;
        let usage = self.usage_of(completion.usage);
        self.persist(|| self.engine.store.append(&self.fence, &self.id, vec![row.clone()], Some(usage.clone())))
            .await?;
        Ok(ending)
    }

    /// The end of a turn whose model did not answer, or not wholly.
    fn without_answer(&self, completion: &Completion, reason: EndReason) -> Ending {
        let (code, message) = match reason {
            EndReason::RepetitionStopped => return Ending::looping(),
            EndReason::OutputTruncated => return truncated(completion),
            EndReason::EmptyResponse => {
                return self.failed(reason, &self.route(no_answer(Shape::Empty)), &Shown::default());
            }
            EndReason::PartialAnswer => {
                let text = self.shown.text().to_owned();
                let message = "the connection broke in the middle of the answer, and the rest of it did not come";
                return Ending { tail: Tail::Partial(text), ..Ending::failed(reason, "HM4022", message) };
            }
            EndReason::ContentBlocked => ("HM4009", "the provider withheld the answer (content filter)"),
            EndReason::ContextOverflow => {
                ("HM4011", "the model's window is full; the answer ends where it was cut, and nothing more fits")
            }
            EndReason::ThinkingExhausted => (
                "HM4021",
                "the model thought and did not answer, more than once; ask for less at once, lower its thinking \
                 (agent.reasoning_effort), or raise model.max_tokens",
            ),
            _ => ("HM4015", "the model announced calls and made none, more than once"),
        };
        Ending::failed(reason, code, message)
    }

    /// Keeps the part of an answer that was cut, and asks for the rest. Both rows are written together: a part without
    /// its nudge is never read back.
    async fn go_on(&mut self, completion: Completion) -> Result<(), Ending> {
        let part = self.assistant_row(&completion, MessageKind::Hidden);
        let nudge = Nudge::GoOn.row(self.engine.ids().message());
        let messages = [projection::assistant(&part, Vec::new()), projection::user(nudge.content.clone())];
        let usage = self.usage_of(completion.usage);
        let rows = [part, nudge];
        self.persist(|| self.engine.store.append(&self.fence, &self.id, rows.to_vec(), Some(usage.clone()))).await?;
        self.history.extend(messages);
        self.kept(&completion.text);
        self.raise_cap();
        self.budget.allow_grace();
        Ok(())
    }

    /// A provider that pauses a long answer gets it back unchanged and goes on.
    async fn send_back(&mut self, completion: Completion) -> Result<(), Ending> {
        let row = self.assistant_row(&completion, MessageKind::Hidden);
        let usage = self.usage_of(completion.usage);
        let message = projection::assistant(&row, Vec::new());
        self.persist(|| self.engine.store.append(&self.fence, &self.id, vec![row.clone()], Some(usage.clone())))
            .await?;
        self.history.push(message);
        self.kept(&completion.text);
        Ok(())
    }

    fn kept(&mut self, part: &str) {
        self.trail.push(part);
        self.shown = Shown::after(&self.trail);
    }

    /// The answer is not taken: the same request goes out again, after a wait where one helps.
    async fn again(&mut self, completion: &Completion, again: Again) -> Result<(), Ending> {
        self.count_lost(completion).await?;
        self.shown.next_attempt();
        if again.less_thinking
            && let Some(effort) = recovery::lower_effort(self.effort.as_deref())
        {
            self.effort = Some(effort.to_owned());
        }
        if again.more_room {
            self.raise_cap();
        }
        let Some(number) = again.wait else {
            self.emit(EventKind::Notice { text: again.why.to_owned() });
            return Ok(());
        };
        let wait_ms = retry::backoff_ms(number, self.jitter(number));
        if self.ends_before(wait_ms) {
            let message =
                format!("the time for one turn (agent.run_budget_seconds) leaves no room for a retry: {}", again.why);
            return Err(Ending::failed(EndReason::DeadlineExceeded, "HM4002", message));
        }
        self.emit(EventKind::Retrying {
            message: again.why.to_owned(),
            wait_ms,
            attempt: number + 1,
            attempts_max: EMPTY_RETRIES_MAX + 1,
        });
        match self.wait_to_ask(wait_ms).await {
            // The next request sees the redirect before it is sent.
            Waited::Over | Waited::Redirected => Ok(()),
            Waited::Stopped => Err(self.stopped_while_asking(&self.shown)),
        }
    }

    /// Nothing came after the results of tools: says so to the model, in a row that stays.
    async fn nudge(&mut self, completion: &Completion) -> Result<(), Ending> {
        let nudge = Nudge::AnswerAfterTools.row(self.engine.ids().message());
        let message = projection::user(nudge.content.clone());
        let usage = self.usage_of(completion.usage);
        self.persist(|| self.engine.store.append(&self.fence, &self.id, vec![nudge.clone()], Some(usage.clone())))
            .await?;
        self.history.push(message);
        self.shown.next_attempt();
        self.budget.allow_grace();
        Ok(())
    }

    pub(crate) async fn count_lost(&mut self, completion: &Completion) -> Result<(), Ending> {
        let usage = self.usage_of(completion.usage);
        self.persist(|| self.engine.store.count_usage(&self.fence, usage.clone())).await
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

/// An answer that is none, as the failure of its provider.
fn no_answer(shape: Shape) -> ProviderError {
    let text = match shape {
        Shape::Withheld => "the answer was withheld (content filter)",
        _ => "the model answered with nothing",
    };
    ProviderError::new(class_without_answer(shape), text)
}

/// Its class, which is asked for with every answer.
fn class_without_answer(shape: Shape) -> ErrorClass {
    if shape == Shape::Withheld { ErrorClass::ContentPolicy } else { ErrorClass::EmptyResponse }
}

/// Gives a row what was said before it: people read all of it here, the model reads what it wrote in this row.
pub(crate) fn carry(trail: &Trail, row: &mut NewMessage) {
    if trail.is_empty() {
        return;
    }
    let whole = trail.with(&row.content);
    let own = std::mem::replace(&mut row.content, whole);
    row.api_content = Some(ApiContent(own.into()));
}

fn truncated(completion: &Completion) -> Ending {
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

fn finish_word(finish: &Finish) -> &str {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::MalformedCall => "malformed_call",
        Finish::Length => "length",
        Finish::ContentFilter => "content_filter",
        Finish::Pause => "pause",
        Finish::Other(word) => word,
        _ => "unknown",
    }
}
