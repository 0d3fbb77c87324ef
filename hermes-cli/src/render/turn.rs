//! A turn as people see it: the answer as it comes, and one line for each thing that is done.

use std::collections::HashMap;

use hermes_gateway::protocol::{
    CallId, CallOutcome, EndReason, Event, EventKind, ServerMessage, TurnError, TurnResult,
};

use super::Piece;
use crate::exit::failure;
use crate::style::Style;
use crate::text::{Harmless, harmless, one_line};

/// Lines of a running call's output that are shown; the rest is in the transcript.
const CALL_OUTPUT_SHOWN_LINES: usize = 8;
/// Calls whose output is followed at one time.
const CALLS_FOLLOWED: usize = 64;

/// What is shown of a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    /// Text on stdout as it comes; else the final answer at the end.
    pub(crate) stream: bool,
    /// What is done, on stderr.
    pub(crate) activity: bool,
    /// Notices and retries, on stderr.
    pub(crate) notices: bool,
    /// Whether an unfinished answer is shown when the turn failed.
    pub(crate) partial: bool,
    /// Whether stdout is a terminal, so that the answer must not control it.
    pub(crate) clean_answer: bool,
    /// Colours of stderr.
    pub(crate) style: Style,
    /// Columns of a line.
    pub(crate) width: usize,
}

/// Turns the events of one turn into pieces.
#[derive(Debug)]
pub(crate) struct TurnView {
    shown: Shown,
    filter: Harmless,
    /// What was streamed of the answer that is being written.
    answer: String,
    /// Whether stdout is in the middle of a line.
    open_line: bool,
    /// Lines of output shown so far, by call.
    output: HashMap<CallId, usize>,
}

impl TurnView {
    /// For one turn.
    pub(crate) fn new(shown: Shown) -> Self {
        Self { shown, filter: Harmless::default(), answer: String::new(), open_line: false, output: HashMap::new() }
    }

    /// One message of the gateway.
    pub(crate) fn message(&mut self, message: &ServerMessage) -> Vec<Piece> {
        let mut pieces = Vec::new();
        match message {
            ServerMessage::Event(event) => self.event(event, &mut pieces),
            ServerMessage::EventsMissed {} if self.shown.activity || self.shown.stream => {
                self.line(&mut pieces, self.shown.style.warn("! events were missed; what is shown has a gap"));
            }
            _ => {}
        }
        if !self.shown.activity {
            pieces.retain(|piece| !matches!(piece, Piece::Status(_)));
        }
        pieces
    }

    fn event(&mut self, event: &Event, pieces: &mut Vec<Piece>) {
        let style = self.shown.style;
        match &event.kind {
            EventKind::TextDelta { text } => self.text(text, pieces),
            EventKind::TextRestarted => self.restarted(pieces),
            EventKind::RoundRecorded { .. } => {
                self.end_line(pieces);
                self.answer.clear();
            }
            EventKind::Steered { inputs } => {
                for input in inputs {
                    self.notice(pieces, &format!("> {}", one_line(&input.text, self.shown.width)));
                }
            }
            // What was shown is kept, or void: the next text is another answer, and the lost connection was none.
            EventKind::Redirected { inputs, kept } => {
                self.end_line(pieces);
                let is_void = !kept && !self.answer.is_empty();
                self.answer.clear();
                let what =
                    if is_void { "the answer was interrupted and dropped" } else { "the answer was interrupted" };
                self.notice(pieces, &format!("! {what}; the model reads the new message"));
                for input in inputs {
                    self.notice(pieces, &format!("> {}", one_line(&input.text, self.shown.width)));
                }
            }
            // What was streamed so far is kept: a cut answer may be gone on with.
            EventKind::RequestStarted { model, .. } => {
                pieces.push(Piece::Status(one_line(&format!("{model} is thinking"), self.status_width())));
            }
            EventKind::CallAnnounced { name } => {
                // The text before a call is whole, and the spinner needs a row of its own.
                if self.shown.activity {
                    self.end_line(pieces);
                }
                pieces.push(Piece::Status(one_line(&format!("preparing {name}"), self.status_width())));
            }
            EventKind::CallStarted { name, label, .. } => {
                pieces.push(Piece::Status(one_line(&format!("{name}: {label}"), self.status_width())));
                let line = self.activity("·", name, label);
                self.activity_line(pieces, line);
            }
            EventKind::CallOutput { call, text } => self.call_output(call, text, pieces),
            // The question itself says more, and to a program nobody is asked.
            EventKind::CallWaiting { what, .. } => {
                pieces.push(Piece::Status(one_line(&format!("waits: {what}"), self.status_width())));
            }
            EventKind::CallJudged { judge, ruling, .. } => {
                let text = format!("! {}, asked in your place, says: {}", harmless(judge), ruling.as_str());
                self.notice(pieces, &text);
            }
            EventKind::CallFinished { call, name, outcome, summary, .. } => {
                self.output.remove(call);
                pieces.push(Piece::Status(String::new()));
                let line = self.activity(&mark(*outcome, style), name, summary);
                self.activity_line(pieces, line);
            }
            EventKind::Retrying { message, wait_ms, attempt, attempts_max } => {
                let wait = seconds(*wait_ms);
                let text = format!("! {}; attempt {attempt} of {attempts_max} in {wait}", harmless(message));
                self.notice(pieces, &text);
            }
            EventKind::WindowGrowing { tokens, window } => {
                let text = format!("the next request has {tokens} tokens; the model's window of {window} is grown");
                pieces.push(Piece::Status(one_line(&text, self.status_width())));
            }
            EventKind::WindowGrown { model, before, after } => {
                let text = format!("! the window of {} was grown from {before} to {after} tokens", harmless(model));
                self.notice(pieces, &text);
            }
            EventKind::Child { event, .. } => {
                if let EventKind::CallStarted { name, label, .. } = &event.kind {
                    let text = format!("a child works, {name}: {label}");
                    pieces.push(Piece::Status(one_line(&text, self.status_width())));
                }
            }
            EventKind::Waiting { reason } => self.notice(pieces, &format!("! {}", harmless(reason))),
            EventKind::Recovered { what } => self.notice(pieces, &format!("! {}", harmless(what))),
            EventKind::Notice { text } => self.notice(pieces, &format!("! {}", harmless(text))),
            EventKind::ReasoningDelta { .. }
            | EventKind::TurnStarted { .. }
            | EventKind::SessionOpened { .. }
            | EventKind::TurnEnded { .. } => {}
            // A newer engine may tell more than this program knows; the transcript has it all.
            _ => {}
        }
    }

    /// The turn was told to stop.
    pub(crate) fn stopping(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        self.end_line(&mut pieces);
        pieces.push(Piece::Status("stopping; once more leaves".to_owned()));
        pieces
    }

    /// The end of the turn: the answer, where it was not shown whole, and what went wrong.
    pub(crate) fn finish(&mut self, result: &TurnResult) -> Vec<Piece> {
        let mut pieces = vec![Piece::Status(String::new())];
        let rest = self.filter.finish();
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        let streamed = std::mem::take(&mut self.answer);
        self.end_line(&mut pieces);
        let whole = matches!(result.reason, EndReason::Answered | EndReason::BudgetExhausted);
        let shown_already = self.shown.stream && streamed.trim() == result.answer.trim();
        if !shown_already && (whole || self.shown.partial) && !result.answer.trim().is_empty() {
            if self.shown.stream && !streamed.trim().is_empty() {
                let note =
                    self.shown.style.dim("(what is shown above may have a gap; this is the answer as it was kept)");
                pieces.push(Piece::Line(note));
            }
            pieces.push(Piece::Text(self.whole_answer(&result.answer)));
        }
        if let Some(text) = failure_of(result) {
            pieces.push(Piece::Line(self.shown.style.bad(&text)));
        }
        pieces
    }

    fn whole_answer(&self, answer: &str) -> String {
        let mut text = if self.shown.clean_answer { harmless(answer) } else { answer.to_owned() };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }

    fn text(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        pieces.push(Piece::Status(String::new()));
        if !self.shown.stream {
            return;
        }
        self.answer.push_str(text);
        let clean = self.filter.push(text);
        if !clean.is_empty() {
            self.open_line = !clean.ends_with('\n');
            pieces.push(Piece::Text(clean));
        }
    }

    fn restarted(&mut self, pieces: &mut Vec<Piece>) {
        let shown = !self.answer.is_empty();
        self.answer.clear();
        if shown {
            let note = self.shown.style.warn("! the connection was lost; the answer begins anew");
            self.line(pieces, note);
        }
    }

    fn call_output(&mut self, call: &CallId, text: &str, pieces: &mut Vec<Piece>) {
        if !self.shown.activity || (self.output.len() >= CALLS_FOLLOWED && !self.output.contains_key(call)) {
            return;
        }
        let width = self.shown.width.saturating_sub(6);
        let count = self.output.entry(call.clone()).or_insert(0);
        let mut lines = Vec::new();
        for line in text.lines() {
            *count += 1;
            if *count <= CALL_OUTPUT_SHOWN_LINES {
                lines.push(format!("  │ {}", one_line(line, width)));
            } else if *count == CALL_OUTPUT_SHOWN_LINES + 1 {
                lines.push("  │ …".to_owned());
            }
        }
        if !lines.is_empty() {
            let text = self.shown.style.dim(&lines.join("\n"));
            self.activity_line(pieces, text);
        }
    }

    fn activity(&self, mark: &str, name: &str, text: &str) -> String {
        let name = one_line(name, 32);
        let room = self.shown.width.saturating_sub(crate::text::columns(&name) + 5);
        format!("{mark} {}  {}", self.shown.style.name(&name), one_line(text, room)).trim_end().to_owned()
    }

    fn activity_line(&mut self, pieces: &mut Vec<Piece>, line: String) {
        if self.shown.activity {
            self.line(pieces, line);
        }
    }

    fn notice(&mut self, pieces: &mut Vec<Piece>, text: &str) {
        if self.shown.notices {
            self.line(pieces, self.shown.style.warn(text));
        }
    }

    fn line(&mut self, pieces: &mut Vec<Piece>, line: String) {
        self.end_line(pieces);
        pieces.push(Piece::Line(line));
    }

    fn end_line(&mut self, pieces: &mut Vec<Piece>) {
        if std::mem::take(&mut self.open_line) {
            pieces.push(Piece::Text("\n".to_owned()));
        }
    }

    fn status_width(&self) -> usize {
        // The spinner and a space stand before it, and the cursor behind it.
        self.shown.width.saturating_sub(4)
    }
}

/// What a person reads about a turn that did not end with an answer.
pub(crate) fn failure_of(result: &TurnResult) -> Option<String> {
    match result.reason {
        EndReason::Answered => return None,
        EndReason::StoppedByUser => return Some("stopped".to_owned()),
        EndReason::StoppedByShutdown => return Some("stopped: the program was shut down".to_owned()),
        _ => {}
    }
    let own = result.reason.code().unwrap_or_default();
    let (code, message, retryable) = match &result.error {
        Some(TurnError { code, message, retryable }) => {
            (if code.is_empty() { own } else { code.as_str() }, harmless(message), *retryable)
        }
        None => {
            (own, format!("the turn ended: {}", result.reason.as_str().replace('_', " ")), result.reason.may_retry())
        }
    };
    let hint = match result.reason {
        // A part of it ran, and to send the input again does that part again.
        EndReason::CrashInterrupted => format!(
            "\n  what it did before stays done; `hermes sessions show {}` shows it, look before the input is sent again",
            result.conversation
        ),
        _ if retryable => "\n  the same input may be sent again".to_owned(),
        _ => String::new(),
    };
    Some(format!("{}{hint}", failure(code, &message)))
}

fn mark(outcome: CallOutcome, style: Style) -> String {
    match outcome {
        CallOutcome::Ok => style.good("✓"),
        CallOutcome::Failed | CallOutcome::Invalid => style.bad("✗"),
        CallOutcome::Denied | CallOutcome::Skipped => style.warn("⊘"),
        CallOutcome::TimedOut | CallOutcome::Interrupted => style.warn("◼"),
        CallOutcome::OutcomeUnknown => style.warn("?"),
    }
}

fn seconds(ms: u64) -> String {
    if ms < 1000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1000, ms % 1000 / 100) }
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
