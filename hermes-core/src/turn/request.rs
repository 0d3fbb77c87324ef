//! The request phase: one answer of the model, whatever it takes within the limits.
//!
//! A lost connection is tried again. What was shown of an answer is not shown twice: the new attempt's text is compared
//! with it, and only where they part is the old text declared void.

use futures::StreamExt as _;
use hermes_providers::{ChatRequest, Completion, Delta, ErrorClass, Finish, ProviderError};

use crate::end::EndReason;
use crate::event::EventKind;
use crate::limits::EMPTY_ANSWERS_MAX;
use crate::retry::{self, Attempt, Decision};
use crate::turn::{Ending, Turn};

/// Why an attempt gave no answer.
enum Failure {
    Stopped,
    Provider(ProviderError),
}

impl Turn<'_> {
    /// Asks the model, with retries.
    pub(crate) async fn request(&mut self) -> Result<Completion, Ending> {
        let request = self.build_request();
        let mut request = request;
        let mut shown = Shown::default();
        let mut output_lowered = false;
        let mut empty = 0;
        let mut number = 0;
        loop {
            number += 1;
            self.api_calls += 1;
            self.emit(EventKind::RequestStarted { number: self.api_calls, model: self.model_name() });
            let error = match self.attempt(&request, &mut shown).await {
                Ok(completion) => return Ok(completion),
                Err(Failure::Stopped) => return Err(self.stopped_while_asking(&shown)),
                Err(Failure::Provider(error)) => error,
            };
            let attempts_max = self.engine.settings.request_attempts;
            let attempt = Attempt { number, max: attempts_max, output_lowered, jitter_permille: self.jitter(number) };
            if error.class == ErrorClass::EmptyResponse {
                empty += 1;
                if empty >= EMPTY_ANSWERS_MAX {
                    return Err(self.failed(EndReason::EmptyResponse, &error, &shown));
                }
            }
            match retry::decide(&error, attempt) {
                Decision::End(reason) => return Err(self.failed(reason, &error, &shown)),
                Decision::LowerOutput { max_output_tokens } => {
                    output_lowered = true;
                    self.max_output_tokens = Some(max_output_tokens);
                    request.max_output_tokens = Some(max_output_tokens);
                }
                Decision::Retry { wait_ms } => {
                    self.emit(EventKind::Retrying {
                        message: error.message.clone(),
                        wait_ms,
                        attempt: number + 1,
                        attempts_max,
                    });
                    self.wait(wait_ms).await.map_err(|()| self.stopped_while_asking(&shown))?;
                }
            }
            shown.next_attempt();
        }
    }

    fn build_request(&self) -> ChatRequest {
        let settings = &self.engine.settings;
        ChatRequest {
            system: self.system.clone(),
            tools: self.tools.as_ref().map(|tools| tools.schemas.clone()).unwrap_or_default(),
            messages: self.history.clone(),
            max_output_tokens: self.max_output_tokens,
            temperature: settings.temperature,
            reasoning_effort: settings.reasoning_effort.clone(),
            stream: settings.stream,
            cache_key: Some(self.fence.conversation().as_str().to_owned()),
        }
    }

    /// One attempt: from the request to the whole answer.
    async fn attempt(&self, request: &ChatRequest, shown: &mut Shown) -> Result<Completion, Failure> {
        let stopped = self.stop.soft().clone();
        let opened = tokio::select! {
            biased;
            () = stopped.cancelled() => return Err(Failure::Stopped),
            opened = self.model.stream(request) => opened,
        };
        let mut stream = opened.map_err(Failure::Provider)?;
        loop {
            let delta = tokio::select! {
                biased;
                () = stopped.cancelled() => return Err(Failure::Stopped),
                delta = stream.next() => delta,
            };
            match delta {
                None => {
                    return Err(Failure::Provider(self.route(ProviderError::new(
                        ErrorClass::Incomplete,
                        "the connection was closed before the answer was whole",
                    ))));
                }
                Some(Err(error)) => return Err(Failure::Provider(error)),
                Some(Ok(Delta::Done(completion))) => {
                    self.show(shown.settle(&completion.text));
                    return self.check(*completion).map_err(Failure::Provider);
                }
                Some(Ok(Delta::Text(text))) => self.show(shown.push(&text)),
                Some(Ok(Delta::Reasoning(text))) => self.emit(EventKind::ReasoningDelta { text }),
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

    /// An answer that says nothing is a failed attempt and not an answer.
    fn check(&self, completion: Completion) -> Result<Completion, ProviderError> {
        let silent = completion.text.trim().is_empty() && completion.calls.is_empty();
        match completion.finish {
            Finish::ToolCalls if completion.calls.is_empty() => Err(self.route(ProviderError::new(
                ErrorClass::Incomplete,
                "the model said that it calls tools, and no call arrived",
            ))),
            Finish::Stop | Finish::Other(_) if silent => {
                Err(self.route(ProviderError::new(ErrorClass::EmptyResponse, "the model answered with nothing")))
            }
            _ => Ok(completion),
        }
    }

    fn route(&self, mut error: ProviderError) -> ProviderError {
        error.route = self.model_name();
        error
    }

    fn failed(&self, reason: EndReason, error: &ProviderError, shown: &Shown) -> Ending {
        // Who failed is part of the explanation; some messages begin with it already.
        let named = error.route.is_empty() || error.message.starts_with(&error.route);
        let message = if named { error.message.clone() } else { format!("{}: {}", error.route, error.message) };
        let mut ending = Ending::failed(reason, error.code(), message);
        let partial = shown.text();
        if !partial.trim().is_empty() {
            ending.answer = partial.to_owned();
            ending.tail = crate::turn::Tail::Partial(partial.to_owned());
        }
        ending
    }

    fn stopped_while_asking(&self, shown: &Shown) -> Ending {
        // The cause is set before the token is cancelled.
        let cause = self.stop.cause().unwrap_or(crate::stop::Cause::Asked(crate::end::Stopper::User));
        Ending::stopped(cause, shown.text().to_owned())
    }

    /// Sleeps, unless the turn is stopped.
    async fn wait(&self, ms: u64) -> Result<(), ()> {
        let stopped = self.stop.soft().clone();
        tokio::select! {
            biased;
            () = stopped.cancelled() => Err(()),
            () = self.engine.clock.sleep(ms) => Ok(()),
        }
    }

    /// A number from 0 to 1,000 that differs between turns and attempts, and is the same in a repeated simulation.
    fn jitter(&self, number: u32) -> u64 {
        let seed = hermes_store::PromptHash::of(format!("{}/{number}", self.id).as_bytes());
        seed.as_str().bytes().fold(0_u64, |sum, byte| (sum * 31 + u64::from(byte)) % 1_001)
    }
}

/// What clients have seen of the answer, over all attempts.
#[derive(Debug, Default)]
struct Shown {
    /// What was shown and not declared void.
    shown: String,
    /// What this attempt has brought.
    current: String,
    /// True while this attempt only repeats what was shown.
    repeating: bool,
}

/// What a client must be told.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    More(String),
    Anew(String),
}

impl Shown {
    fn text(&self) -> &str {
        if self.repeating && self.current.len() < self.shown.len() { &self.shown } else { &self.current }
    }

    fn next_attempt(&mut self) {
        // An attempt that ended while it repeated leaves what was shown before.
        if !self.repeating || self.current.len() > self.shown.len() {
            self.shown = std::mem::take(&mut self.current);
        }
        self.current.clear();
        self.repeating = !self.shown.is_empty();
    }

    fn push(&mut self, text: &str) -> Step {
        self.current.push_str(text);
        if !self.repeating {
            return Step::More(text.to_owned());
        }
        if self.shown.starts_with(&self.current) {
            return Step::Nothing;
        }
        self.repeating = false;
        match self.current.strip_prefix(self.shown.as_str()) {
            Some(more) => Step::More(more.to_owned()),
            None => Step::Anew(self.current.clone()),
        }
    }

    /// The attempt is over and its text is `text`.
    fn settle(&mut self, text: &str) -> Step {
        let before = if self.repeating { self.shown.as_str() } else { self.current.as_str() };
        let step = match text.strip_prefix(before) {
            Some("") => Step::Nothing,
            Some(more) => Step::More(more.to_owned()),
            None => Step::Anew(text.to_owned()),
        };
        self.repeating = false;
        self.current = text.to_owned();
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e51_text_that_was_shown_is_not_shown_twice() {
        let mut shown = Shown::default();
        assert_eq!(shown.push("ok, "), Step::More("ok, ".into()));
        shown.next_attempt();
        assert_eq!(shown.push("ok"), Step::Nothing);
        assert_eq!(shown.text(), "ok, ");
        assert_eq!(shown.push(", short"), Step::More("short".into()));
        assert_eq!(shown.push(" answer"), Step::More(" answer".into()));
        assert_eq!(shown.settle("ok, short answer"), Step::Nothing);
    }

    #[test]
    fn another_text_makes_what_was_shown_void() {
        let mut shown = Shown::default();
        shown.push("one two");
        shown.next_attempt();
        assert_eq!(shown.push("one "), Step::Nothing);
        assert_eq!(shown.push("three"), Step::Anew("one three".into()));
        assert_eq!(shown.settle("one three"), Step::Nothing);
        let mut shorter = Shown::default();
        shorter.push("one two");
        shorter.next_attempt();
        shorter.push("one");
        assert_eq!(shorter.settle("one"), Step::Anew("one".into()));
    }

    #[test]
    fn an_attempt_that_ends_while_it_repeats_keeps_what_was_shown() {
        let mut shown = Shown::default();
        shown.push("one two");
        shown.next_attempt();
        shown.push("one");
        shown.next_attempt();
        assert_eq!(shown.text(), "one two");
        assert_eq!(shown.push("one two three"), Step::More(" three".into()));
    }

    #[test]
    fn a_whole_answer_without_deltas_is_shown_at_its_end() {
        let mut shown = Shown::default();
        assert_eq!(shown.settle("all"), Step::More("all".into()));
    }
}
