//! The request phase: one answer of the model, whatever it takes within the limits.
//!
//! A lost connection is tried again. What was shown of an answer is not shown twice: the new attempt's text is compared
//! with it, and only where they part is the old text declared void. Every wait in here ends with the turn: a stop and the
//! deadline cut it, and one that would outlast the deadline is not begun. An answer that has become a loop is cut off.
//! A redirect cuts the attempt and the wait ([`super::redirect`]), and nothing else in here.

use futures::StreamExt as _;
use hermes_providers::{ChatMessage, ChatRequest, Completion, Delta, ErrorClass, Finish, ProviderError};

use crate::end::{EndReason, TurnError};
use crate::event::EventKind;
use crate::repetition::LoopWatch;
use crate::retry::{self, Attempt, Decision};
use crate::shown::{Shown, Step};
use crate::tokens::Anchor;
use crate::turn::compress::Trigger;
use crate::turn::fallback::Asked;
use crate::turn::redirect::Waited;
use crate::turn::{Ending, Turn};
use crate::watchdog::Sign;

/// An answer, and what is known beside it.
pub(crate) struct Answer {
    pub completion: Completion,
    /// Text of it was shown in an attempt that failed, and this attempt did not bring it again.
    pub shown_before: bool,
}

/// Why an attempt gave no answer.
enum Failure {
    Stopped,
    Redirected,
    Provider(ProviderError),
    Looping,
}

impl Turn<'_> {
    /// Asks the model, with retries. When it gives no answer and another may, says which.
    pub(crate) async fn request(&mut self) -> Result<Asked, Ending> {
        let mut shown = std::mem::take(&mut self.shown);
        let mut request = self.build_request();
        let answer = self.ask(&mut request, &mut shown).await;
        self.history = request.messages;
        self.shown = shown;
        answer
    }

    async fn ask(&mut self, request: &mut ChatRequest, shown: &mut Shown) -> Result<Asked, Ending> {
        let mut output_lowered = false;
        let mut broke_off = false;
        let mut number = 0;
        let mut rotations = 0;
        loop {
            number += 1;
            self.check_lease().await.map_err(|error| Ending::storage(&error))?;
            self.api_calls += 1;
            self.emit(EventKind::RequestStarted { number: self.api_calls, model: self.model_name() });
            self.watch_prefix(request).await;
            let attempt = self.attempt(request, shown).await;
            self.pulse.stamp(Sign::Attempt);
            let error = match attempt {
                Ok(completion) => {
                    let silent = completion.text.trim().is_empty();
                    self.count_shortened(completion.usage.and_then(|usage| usage.input_total()));
                    if let Some(input) = completion.usage.and_then(|usage| usage.input_total()) {
                        self.anchor = Some(Anchor { messages: request.messages.len(), input, measured: true });
                    }
                    let answer = Answer { completion, shown_before: silent && broke_off };
                    return Ok(Asked::Answer(Box::new(answer)));
                }
                Err(Failure::Stopped) => return Err(self.stopped_while_asking(shown)),
                Err(Failure::Redirected) => return Ok(Asked::Redirected),
                Err(Failure::Looping) => return Err(Ending::looping()),
                // Some servers say nothing in words of their own: it is an answer all the same.
                Err(Failure::Provider(error)) if error.class == ErrorClass::EmptyResponse => {
                    let answer = Answer { completion: nothing(), shown_before: broke_off };
                    return Ok(Asked::Answer(Box::new(answer)));
                }
                Err(Failure::Provider(error)) => error,
            };
            broke_off |= !shown.text().trim().is_empty();
            let attempts_max = self.engine.settings.request_attempts;
            let attempt = Attempt {
                number,
                max: attempts_max,
                rotations,
                output_lowered,
                has_sidecars: !self.sidecars_left_out && request.messages.iter().any(has_sidecar),
                may_fall_back: self.may_fall_back(error.class),
                jitter_permille: self.jitter(number),
            };
            match retry::decide(&error, attempt) {
                Decision::End(EndReason::ContextOverflow) => {
                    self.history = std::mem::take(&mut request.messages);
                    let has_room = self.make_room_after(&error).await;
                    *request = self.build_request();
                    if !has_room? {
                        return match self.rebuild_with_room(&error) {
                            Some(rebuild) => Ok(Asked::Rebuild(rebuild)),
                            None => Err(self.failed(EndReason::ContextOverflow, &error, shown)),
                        };
                    }
                    number = 0;
                    rotations = 0;
                }
                Decision::FallBack(reason) => {
                    shown.next_attempt();
                    return match self.rebuild_for(&error) {
                        Some(rebuild) => Ok(Asked::Rebuild(rebuild)),
                        None => Err(self.failed(reason, &error, shown)),
                    };
                }
                Decision::End(reason) => return Err(self.failed(reason, &error, shown)),
                Decision::Rotate => {
                    rotations += 1;
                    number -= 1;
                    tracing::info!(route = %error.route, class = ?error.class, "the request goes out with another key");
                }
                Decision::LowerOutput { max_output_tokens } => {
                    output_lowered = true;
                    self.output_lowered = true;
                    self.max_output_tokens = Some(max_output_tokens);
                    request.max_output_tokens = Some(max_output_tokens);
                }
                Decision::WithoutSidecars => {
                    tracing::info!(route = %error.route, "opaque state of earlier answers is refused; once more without it");
                    self.sidecars_left_out = true;
                    request.messages.iter_mut().for_each(leave_sidecar_out);
                }
                Decision::Retry { wait_ms } => {
                    if self.ends_before(wait_ms) {
                        return Err(self.out_of_time(&error, shown));
                    }
                    self.emit(EventKind::Retrying {
                        message: error.message.clone(),
                        wait_ms,
                        attempt: number + 1,
                        attempts_max,
                    });
                    match self.wait_to_ask(wait_ms).await {
                        Waited::Over => {}
                        Waited::Stopped => return Err(self.stopped_while_asking(shown)),
                        Waited::Redirected => return Ok(Asked::Redirected),
                    }
                }
            }
            shown.next_attempt();
        }
    }

    /// The provider says that the request is too long: its word on the window is remembered, and a larger window or a
    /// shorter history made.
    async fn make_room_after(&mut self, error: &ProviderError) -> Result<bool, Ending> {
        if let Some(limit) = error.context_limit {
            self.engine.learn_window(self.model.as_ref(), limit).await;
        }
        self.anchor = None;
        if self.grow_after_refusal(error.input_tokens).await? {
            return Ok(true);
        }
        self.compress(Trigger::Overflow).await
    }

    /// The next request. It takes the history, so that a long one is not copied for each round;
    /// [`Turn::request`] gives it back.
    fn build_request(&mut self) -> ChatRequest {
        let settings = &self.engine.settings;
        ChatRequest {
            system: self.system.clone(),
            tools: self.tools.as_ref().map(|tools| tools.schemas.clone()).unwrap_or_default(),
            cache_ends: crate::cache::ends(&self.history),
            max_output_tokens: self.max_output_tokens,
            temperature: settings.temperature,
            reasoning_effort: self.effort.clone(),
            stream: settings.stream,
            cache_key: Some(self.fence.conversation().as_str().to_owned()),
            ..ChatRequest::new(std::mem::take(&mut self.history))
        }
    }

    /// One attempt: from the request to the whole answer.
    async fn attempt(&self, request: &ChatRequest, shown: &mut Shown) -> Result<Completion, Failure> {
        let stopped = self.stop.soft().clone();
        let redirected = self.redirected();
        futures::pin_mut!(redirected);
        // The look for redirects comes before the model, although it costs two reads of the store also where the model
        // answers at once: behind it, one that waits already would lose to an answer that nobody had asked for by then,
        // and a stream that always has something ready would never let it in.
        let opened = tokio::select! {
            biased;
            () = stopped.cancelled() => return Err(Failure::Stopped),
            () = &mut redirected => return Err(Failure::Redirected),
            opened = self.model.stream(request) => opened,
        };
        let mut stream = opened.map_err(Failure::Provider)?;
        let (mut text_watch, mut thought_watch) = (LoopWatch::default(), LoopWatch::default());
        loop {
            let delta = tokio::select! {
                biased;
                () = stopped.cancelled() => return Err(Failure::Stopped),
                () = &mut redirected => return Err(Failure::Redirected),
                delta = stream.next() => delta,
            };
            if matches!(&delta, Some(Ok(delta)) if is_progress(delta)) {
                self.pulse.stamp(Sign::Delta);
            }
            match delta {
                None => {
                    return Err(Failure::Provider(self.route(ProviderError::new(
                        ErrorClass::Incomplete,
                        "the connection was closed before the answer was whole",
                    ))));
                }
                Some(Err(error)) => return Err(Failure::Provider(error)),
                Some(Ok(Delta::Done(completion))) => {
                    // An answer without text says nothing about text that was shown before.
                    if !completion.text.trim().is_empty() {
                        self.show(shown.settle(&completion.text));
                    }
                    return Ok(*completion);
                }
                Some(Ok(Delta::Text(text))) => {
                    self.show(shown.push(&text));
                    if text_watch.push(&text) {
                        return Err(Failure::Looping);
                    }
                }
                Some(Ok(Delta::Reasoning(text))) => {
                    let looping = thought_watch.push(&text);
                    self.emit(EventKind::ReasoningDelta { text });
                    if looping {
                        return Err(Failure::Looping);
                    }
                }
                Some(Ok(Delta::CallStarted { name, .. })) => self.emit(EventKind::CallAnnounced { name }),
                Some(Ok(_)) => {}
            }
        }
    }

    fn show(&self, step: Step) {
        match step {
            Step::Nothing => {}
            Step::More(text) => self.emit(EventKind::TextDelta { text }),
            Step::Anew(text) => {
                self.emit(EventKind::TextRestarted);
                if !text.is_empty() {
                    self.emit(EventKind::TextDelta { text });
                }
            }
        }
    }

    /// The error with who failed.
    pub(crate) fn route(&self, mut error: ProviderError) -> ProviderError {
        error.route = self.model_name();
        error
    }

    /// True when the turn's time is over before `wait_ms` are.
    pub(crate) fn ends_before(&self, wait_ms: u64) -> bool {
        let until = self.engine.clock.now_ms().saturating_add(i64::try_from(wait_ms).unwrap_or(i64::MAX));
        self.deadline_ms.is_some_and(|deadline| until >= deadline)
    }

    /// To wait would take longer than the turn has: says so now, with what was waited for.
    fn out_of_time(&self, error: &ProviderError, shown: &Shown) -> Ending {
        let mut ending = self.failed(EndReason::DeadlineExceeded, error, shown);
        if let Some(TurnError { code, message, .. }) = &mut ending.error {
            "HM4002".clone_into(code);
            *message =
                format!("the time for one turn (agent.run_budget_seconds) leaves no room for a retry: {message}");
        }
        ending
    }

    pub(crate) fn failed(&self, reason: EndReason, error: &ProviderError, shown: &Shown) -> Ending {
        // Who failed is part of the explanation; some messages begin with it already.
        let named = error.route.is_empty() || error.message.starts_with(&error.route);
        let message = if named { error.message.clone() } else { format!("{}: {}", error.route, error.message) };
        let partial = shown.text();
        let broken = reason == EndReason::RetriesExhausted && !partial.trim().is_empty();
        let reason = if broken { EndReason::PartialAnswer } else { reason };
        let mut ending = Ending::failed(reason, error.code(), message);
        if !partial.trim().is_empty() {
            ending.answer = partial.to_owned();
            ending.tail = crate::turn::Tail::Partial(partial.to_owned());
        }
        ending
    }

    pub(crate) fn stopped_while_asking(&self, shown: &Shown) -> Ending {
        // The cause is set before the token is cancelled.
        let cause = self.stop.cause().unwrap_or(crate::stop::Cause::Asked(crate::end::Stopper::User));
        Ending::stopped(cause, shown.text().to_owned())
    }

    /// A number from 0 to 1,000 that differs between turns and attempts, and is the same in a repeated simulation.
    pub(crate) fn jitter(&self, number: u32) -> u64 {
        retry::jitter(self.id.as_str(), number)
    }
}

fn has_sidecar(message: &ChatMessage) -> bool {
    matches!(message, ChatMessage::Assistant { sidecar: Some(_), .. })
}

/// The stored row keeps it; this turn goes on without.
pub(crate) fn leave_sidecar_out(message: &mut ChatMessage) {
    if let ChatMessage::Assistant { sidecar, .. } = message {
        *sidecar = None;
    }
}

/// An empty piece is what some servers send to keep a connection open.
fn is_progress(delta: &Delta) -> bool {
    match delta {
        Delta::Text(text) | Delta::Reasoning(text) => !text.is_empty(),
        Delta::CallArguments { bytes, .. } => *bytes > 0,
        Delta::CallStarted { .. } | Delta::Done(_) => true,
        _ => false,
    }
}

/// An answer with nothing in it.
fn nothing() -> Completion {
    Completion {
        text: String::new(),
        reasoning: None,
        sidecar: None,
        calls: Vec::new(),
        finish: Finish::Stop,
        finish_missing: false,
        usage: None,
        served_model: None,
    }
}
