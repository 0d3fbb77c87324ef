//! Follows one turn from its acceptance to its end: shows what happens, puts questions, passes on wishes to stop.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use hermes_gateway::protocol::{
    AdmissionId, ApprovalRespondParams, ClarifyRespondParams, ConversationId, Cursor, Event, EventKind, Replay,
    Request, Response, RpcError, ServerMessage, SessionEventsParams, SessionEventsResponse, TurnInterruptParams,
    TurnResult,
};
use tokio::time::Instant;

use crate::ask::{Answer, Answered, Asker, Question, refused};
use crate::exit::Fault;
use crate::link::{Link, request, wrong_response};
use crate::render::turn::TurnView;
use crate::render::{Piece, json};
use crate::screen::Screen;
use crate::signals::{Stop, Stops};

/// How long a second Ctrl-C means "leave", in an interactive session.
pub(crate) const LEAVE_WINDOW_MS: u64 = 2_000;
/// How long the last messages of a turn are waited for after its end is known.
const DRAIN_MS: u64 = 300;
/// Time between two frames of the spinner.
const SPINNER_MS: u64 = 120;
/// Questions that may wait for the person; more are refused.
const QUESTIONS_MAX: usize = 32;
/// Questions that were put and are remembered: one that is told again is not put twice.
const QUESTIONS_KNOWN_MAX: usize = 256;

/// How a turn is shown.
pub(crate) enum View {
    /// To a person.
    Person(TurnView),
    /// To a program: JSON lines.
    Json,
}

impl View {
    fn message(&mut self, message: &ServerMessage) -> Vec<Piece> {
        match self {
            Self::Person(view) => view.message(message),
            Self::Json => json::message(message).into_iter().collect(),
        }
    }
}

/// What a second wish to stop means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// One-shot: leave, whenever it comes.
    Leave,
    /// Interactive: leave when it comes soon after the first.
    LeaveSoon,
}

/// What was accepted, and how its end is asked for.
pub(crate) struct Followed {
    /// Its conversation.
    pub(crate) conversation: ConversationId,
    /// Asks for the end.
    pub(crate) wait: Request,
}

/// How following ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The turn is over; `None` when there was none to go on with.
    Over(Option<Box<TurnResult>>),
    /// The gateway could not tell.
    Refused(RpcError),
    /// The person left, or the reader of stdout did. The turn was told to stop and may still run.
    Left,
}

/// How following ended, and whether the program shall end too.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How.
    pub(crate) end: End,
    /// Whether the system asked the program to stop.
    pub(crate) leave: bool,
    /// Whether the reader of stdout went away.
    pub(crate) broken_pipe: bool,
}

/// Everything that following needs besides the turn.
pub(crate) struct Desk<'a> {
    /// The gateway.
    pub(crate) link: &'a mut Link,
    /// Where it is shown.
    pub(crate) screen: &'a mut Screen,
    /// How it is shown.
    pub(crate) view: &'a mut View,
    /// Wishes to stop.
    pub(crate) stops: &'a mut dyn Stops,
    /// Who answers questions; nobody refuses them all.
    pub(crate) asker: Option<&'a mut dyn Asker>,
    /// What a second wish to stop means.
    pub(crate) patience: Patience,
}

struct Asking {
    question: Question,
    withdrawn: Arc<AtomicBool>,
    answer: BoxFuture<'static, Answered>,
}

struct State {
    conversation: ConversationId,
    waiting: VecDeque<Question>,
    asking: Option<Asking>,
    stopped_at: Option<Instant>,
    leave: bool,
    broken_pipe: bool,
    /// Set when the end of the turn was shown as an event.
    ended: Option<AdmissionId>,
    /// The place of the newest event that was shown.
    seen: Cursor,
    /// The newest questions that were put.
    put: VecDeque<String>,
}

impl State {
    /// Whether an event was not shown yet. One that is told again after a gap is still on its way too.
    fn is_new(&mut self, event: &Event) -> bool {
        if event.at.epoch == self.seen.epoch && event.at.seq <= self.seen.seq && !event.at.is_none() {
            return false;
        }
        self.seen = event.at;
        true
    }

    /// Whether a question is new. One that is told again after a gap is on its way too.
    fn is_put_first(&mut self, id: &str) -> bool {
        if self.put.iter().any(|known| known == id) {
            return false;
        }
        if self.put.len() >= QUESTIONS_KNOWN_MAX {
            self.put.pop_front();
        }
        self.put.push_back(id.to_owned());
        true
    }

    /// A question is not open any more.
    fn withdraw(&mut self, id: &str) {
        self.waiting.retain(|question| question.id() != id);
        if let Some(asking) = self.asking.as_ref().filter(|asking| asking.question.id() == id) {
            asking.withdrawn.store(true, Ordering::Relaxed);
        }
    }

    /// Every question but these is not open any more.
    fn keep_questions(&mut self, open: &[ServerMessage]) {
        let ids: Vec<&str> = open.iter().filter_map(asked).collect();
        let asking = self.asking.as_ref().map(|asking| &asking.question);
        let known: Vec<String> = self.waiting.iter().chain(asking).map(|question| question.id().to_owned()).collect();
        for id in known.iter().filter(|id| !ids.contains(&id.as_str())) {
            self.withdraw(id);
        }
    }
}

/// The id of the question that a message asks.
fn asked(message: &ServerMessage) -> Option<&str> {
    match message {
        ServerMessage::ApprovalRequested { request, .. } => Some(&request.id),
        ServerMessage::ClarifyRequested { id, .. } => Some(id),
        _ => None,
    }
}

impl Desk<'_> {
    /// Follows a turn to its end.
    ///
    /// # Errors
    /// When stdout cannot be written for another reason than a reader that went away.
    pub(crate) async fn follow(&mut self, followed: Followed, early: Option<Stop>) -> Result<Outcome, Fault> {
        let mut state = State {
            conversation: followed.conversation,
            waiting: VecDeque::new(),
            asking: None,
            stopped_at: None,
            leave: false,
            broken_pipe: false,
            ended: None,
            seen: Cursor::default(),
            put: VecDeque::new(),
        };
        let mut wait = self.link.call(followed.wait);
        if let Some(stop) = early {
            self.stop(&mut state, stop).await;
        }
        let waited = self.until_over(&mut state, &mut wait).await;
        let end = match waited {
            Ok(Some(end)) => {
                let drained = self.drain(&mut state, &end).await;
                self.close_question(&mut state).await;
                drained?;
                end
            }
            Ok(None) => {
                self.close_question(&mut state).await;
                End::Left
            }
            Err(fault) => {
                self.close_question(&mut state).await;
                return Err(fault);
            }
        };
        Ok(Outcome { end, leave: state.leave, broken_pipe: state.broken_pipe })
    }

    /// The end; `None` when the person left before it.
    async fn until_over(
        &mut self,
        state: &mut State,
        wait: &mut BoxFuture<'static, Result<Response, RpcError>>,
    ) -> Result<Option<End>, Fault> {
        let mut tick = tokio::time::interval(Duration::from_millis(SPINNER_MS));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut connected = true;
        loop {
            tokio::select! {
                biased;
                stop = self.stops.next() => {
                    if !self.stop(state, stop).await {
                        return Ok(None);
                    }
                }
                answered = answer_of(&mut state.asking) => self.answered(state, answered).await?,
                message = self.link.messages.next(), if connected => match message {
                    Some(message) => self.message(state, message).await?,
                    None => connected = false,
                },
                ended = &mut *wait => {
                    return Ok(Some(match ended {
                        Ok(Response::Turn(result)) => End::Over(result),
                        Ok(_) => End::Refused(wrong_response("Response::Turn")),
                        Err(error) => End::Refused(error),
                    }));
                }
                _ = tick.tick(), if self.screen.spins() => self.screen.tick(),
            }
        }
    }

    /// Shows what was sent before the end and is still on its way.
    async fn drain(&mut self, state: &mut State, end: &End) -> Result<(), Fault> {
        let End::Over(Some(result)) = end else { return Ok(()) };
        let until = Instant::now() + Duration::from_millis(DRAIN_MS);
        while state.ended.as_ref() != Some(&result.admission) {
            match tokio::time::timeout_at(until, self.link.messages.next()).await {
                Ok(Some(message)) => self.message(state, message).await?,
                Ok(None) | Err(_) => break,
            }
        }
        Ok(())
    }

    async fn message(&mut self, state: &mut State, message: ServerMessage) -> Result<(), Fault> {
        match message {
            ServerMessage::Event(event) if event.conversation == state.conversation => {
                if !state.is_new(&event) {
                    return Ok(());
                }
                if let EventKind::TurnEnded { result } = &event.kind {
                    state.ended = Some(result.admission.clone());
                }
                self.show(state, &ServerMessage::Event(event)).await
            }
            ServerMessage::EventsMissed {} => self.catch_up(state).await,
            ServerMessage::ApprovalRequested { conversation, request } if conversation == state.conversation => {
                self.question(state, Question::Approval(request)).await
            }
            ServerMessage::ClarifyRequested { conversation, id, questions } if conversation == state.conversation => {
                self.question(state, Question::Clarify { id, questions }).await
            }
            ServerMessage::RequestWithdrawn { id } => {
                state.withdraw(&id);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Messages were missed: gets the events behind the newest one that was shown. Where they are not kept any more the
    /// gap is told, and the answer comes whole from the transcript with the turn's result.
    async fn catch_up(&mut self, state: &mut State) -> Result<(), Fault> {
        let params = SessionEventsParams { conversation: state.conversation.clone(), after: state.seen };
        let Ok(missed) = self.missed(params).await else {
            return self.show(state, &ServerMessage::EventsMissed {}).await;
        };
        match missed.replay {
            Replay::Events { events, .. } => {
                for event in events {
                    Box::pin(self.message(state, ServerMessage::Event(event))).await?;
                }
            }
            // What is still on its way here is shown all the same.
            Replay::Gap { .. } => self.show(state, &ServerMessage::EventsMissed {}).await?,
        }
        state.keep_questions(&missed.questions);
        for question in missed.questions {
            Box::pin(self.message(state, question)).await?;
        }
        Ok(())
    }

    async fn missed(&self, params: SessionEventsParams) -> Result<SessionEventsResponse, RpcError> {
        request!(self.link, Request::SessionEvents(params), Response::Events(missed) => missed)
    }

    async fn show(&mut self, state: &mut State, message: &ServerMessage) -> Result<(), Fault> {
        if state.broken_pipe {
            return Ok(());
        }
        let pieces = self.view.message(message);
        match self.screen.show(pieces).map_err(Fault::from) {
            Err(Fault::BrokenPipe) => {
                // Nobody reads any more: the turn is stopped in order, and its end is waited for.
                state.broken_pipe = true;
                self.interrupt(state).await;
                Ok(())
            }
            other => other,
        }
    }

    /// Passes a wish to stop on. False when it means to leave at once.
    async fn stop(&mut self, state: &mut State, stop: Stop) -> bool {
        let now = Instant::now();
        let again = match (self.patience, state.stopped_at) {
            (_, None) => false,
            (Patience::Leave, Some(_)) => true,
            (Patience::LeaveSoon, Some(before)) => now - before <= Duration::from_millis(LEAVE_WINDOW_MS),
        };
        if again {
            state.leave = true;
            return false;
        }
        state.stopped_at = Some(now);
        state.leave |= stop == Stop::System;
        if let Some(asking) = &state.asking {
            asking.withdrawn.store(true, Ordering::Relaxed);
        }
        self.interrupt(state).await;
        if let View::Person(view) = &mut self.view {
            self.screen.show(view.stopping()).ok();
        }
        true
    }

    async fn interrupt(&mut self, state: &State) {
        let params = TurnInterruptParams { conversation: state.conversation.clone() };
        // When this fails the turn goes on, and its end is still waited for; a second wish leaves.
        if let Err(error) = self.link.call(Request::TurnInterrupt(params)).await {
            self.screen.note(&format!("! the turn could not be stopped: {}", error.message));
        }
    }

    async fn question(&mut self, state: &mut State, question: Question) -> Result<(), Fault> {
        if !state.is_put_first(question.id()) {
            return Ok(());
        }
        if self.asker.is_none() || state.waiting.len() >= QUESTIONS_MAX || state.stopped_at.is_some() {
            let answer = refused(&question, false).answer;
            return self.respond(&question, answer).await;
        }
        state.waiting.push_back(question);
        self.ask_next(state)
    }

    fn ask_next(&mut self, state: &mut State) -> Result<(), Fault> {
        if state.asking.is_some() {
            return Ok(());
        }
        let (Some(asker), Some(question)) = (self.asker.as_mut(), state.waiting.pop_front()) else {
            return Ok(self.screen.release()?);
        };
        self.screen.hold();
        let withdrawn = Arc::new(AtomicBool::new(false));
        let answer = asker.ask(question.clone(), Arc::clone(&withdrawn));
        state.asking = Some(Asking { question, withdrawn, answer });
        Ok(())
    }

    async fn answered(&mut self, state: &mut State, answered: Answered) -> Result<(), Fault> {
        if let Some(asking) = state.asking.take() {
            self.respond(&asking.question, answered.answer).await?;
        }
        if answered.stop {
            self.refuse_waiting(state).await?;
            self.screen.release()?;
            self.stop(state, Stop::Keyboard).await;
            return Ok(());
        }
        self.ask_next(state)
    }

    async fn refuse_waiting(&mut self, state: &mut State) -> Result<(), Fault> {
        while let Some(question) = state.waiting.pop_front() {
            let answer = refused(&question, false).answer;
            self.respond(&question, answer).await?;
        }
        Ok(())
    }

    async fn respond(&mut self, question: &Question, answer: Answer) -> Result<(), Fault> {
        let id = question.id().to_owned();
        let request = match answer {
            Answer::Approval(answer) => Request::ApprovalRespond(ApprovalRespondParams { id, answer }),
            Answer::Clarify(answers) => Request::ClarifyRespond(ClarifyRespondParams { id, answers }),
            Answer::Withdrawn => return Ok(()),
        };
        match self.link.call(request).await {
            Ok(Response::Accepted { taken: false }) => {
                self.screen.note("! the answer came too late: the question was not open any more");
            }
            Ok(_) => {}
            Err(error) => self.screen.note(&format!("! the answer was not taken: {}", error.message)),
        }
        Ok(())
    }

    /// Gives the terminal back, whatever is open.
    async fn close_question(&mut self, state: &mut State) {
        state.waiting.clear();
        if let Some(asking) = state.asking.take() {
            asking.withdrawn.store(true, Ordering::Relaxed);
            asking.answer.await;
        }
        // A stdout that nobody reads is found by the next write.
        let _ = self.screen.release();
    }
}

async fn answer_of(asking: &mut Option<Asking>) -> Answered {
    match asking {
        Some(asking) => asking.answer.as_mut().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
