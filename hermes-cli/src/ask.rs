//! Questions to the person at the terminal: approvals, and what the model wants to know.
//!
//! How an answer is understood is pure and strict: nothing but a clear word approves. The terminal part reads lines with
//! an editor that can be told to give up, because a question may be withdrawn while it is open.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use hermes_gateway::protocol::{ApprovalAnswer, ApprovalRequest, ClarifyAnswer, ClarifyQuestion};
use reedline::{Prompt, PromptEditMode, PromptHistorySearch, Reedline, Signal};

use crate::style::Style;
use crate::text::{harmless, one_line};

/// Lines of a command that are shown in a question; a longer one says how many are not shown.
const SUBJECT_SHOWN_LINES: usize = 40;
/// Longest reason that is passed on to the model.
const REASON_MAX_CHARS: usize = 500;

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    /// May this be done?
    Approval(ApprovalRequest),
    /// The model wants to know something.
    Clarify {
        /// The id to answer with.
        id: String,
        /// The questions.
        questions: Vec<ClarifyQuestion>,
    },
}

impl Question {
    /// The id to answer with.
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Approval(request) => &request.id,
            Self::Clarify { id, .. } => id,
        }
    }
}

/// What a person answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// To an approval.
    Approval(ApprovalAnswer),
    /// To a clarification: one for each question.
    Clarify(Vec<ClarifyAnswer>),
    /// The question was withdrawn; nobody waits for an answer.
    Withdrawn,
}

/// An answer, and whether the person wants the turn to stop as well (Ctrl-C).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answered {
    /// The answer.
    pub(crate) answer: Answer,
    /// Whether the turn shall stop.
    pub(crate) stop: bool,
}

/// Puts questions to a person.
pub(crate) trait Asker: Send {
    /// Asks one question; gives up when `withdrawn` becomes true.
    fn ask(&mut self, question: Question, withdrawn: Arc<AtomicBool>) -> BoxFuture<'static, Answered>;
}

/// How an answer to an approval is understood; `None` when it is not clear, and the question is put again.
pub(crate) fn understand_approval(line: &str) -> Option<ApprovalAnswer> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let alone = rest.trim().is_empty();
    match word.to_lowercase().as_str() {
        "y" | "yes" | "once" if alone => Some(ApprovalAnswer::Once),
        "s" | "session" if alone => Some(ApprovalAnswer::Session),
        "a" | "always" if alone => Some(ApprovalAnswer::Always),
        "n" | "no" | "deny" => {
            let reason = harmless(rest.trim()).chars().take(REASON_MAX_CHARS).collect();
            Some(ApprovalAnswer::Deny { reason })
        }
        _ => None,
    }
}

/// How an answer to one question of the model is understood; `None` when it is not clear.
pub(crate) fn understand_clarify(question: &ClarifyQuestion, line: &str) -> Option<ClarifyAnswer> {
    let line = line.trim();
    if line.is_empty() {
        return Some(ClarifyAnswer::Skipped);
    }
    let answered = |text: &str| Some(ClarifyAnswer::Answered { text: text.to_owned() });
    if question.choices.is_empty() {
        return answered(line);
    }
    let numbers: Option<Vec<usize>> =
        line.split([',', ' ']).filter(|part| !part.is_empty()).map(|part| part.parse().ok()).collect();
    match numbers {
        // Digits choose by number; any other text is an answer in the person's own words.
        None => answered(line),
        Some(numbers) if numbers.len() > 1 && !question.multi_select => None,
        Some(numbers) => {
            let chosen: Option<Vec<&str>> = numbers
                .into_iter()
                .map(|number| question.choices.get(number.checked_sub(1)?).map(String::as_str))
                .collect();
            chosen.filter(|chosen| !chosen.is_empty()).and_then(|chosen| answered(&chosen.join(", ")))
        }
    }
}

/// An approval as it is shown.
pub(crate) fn approval_text(request: &ApprovalRequest, style: Style, width: usize) -> String {
    let mut out = format!("{}\n", style.warn(&format!("{} wants to do this:", one_line(&request.tool, 40))));
    let subject = harmless(&request.subject);
    let count = subject.lines().count();
    for line in subject.lines().take(SUBJECT_SHOWN_LINES) {
        out.push_str(&format!("  {}\n", style.bold(line)));
    }
    if count > SUBJECT_SHOWN_LINES {
        out.push_str(&style.bad(&format!("  ... and {} lines more that are not shown\n", count - SUBJECT_SHOWN_LINES)));
    }
    for reason in &request.reasons {
        out.push_str(&format!("  because: {}\n", one_line(reason, width.saturating_sub(11))));
    }
    out.push_str(&style.dim(&format!(
        "  y = this once, s = for this session, a = always, n [why] = no; s and a allow: {}\n  no answer within {} s means no\n",
        one_line(&request.pattern, width.saturating_sub(64).max(20)),
        request.timeout_ms / 1000
    )));
    out
}

/// One question of the model as it is shown.
pub(crate) fn clarify_text(question: &ClarifyQuestion, style: Style) -> String {
    let mut out = format!("{}\n", style.bold(&harmless(&question.question)));
    for (number, choice) in question.choices.iter().enumerate() {
        out.push_str(&format!("  {}. {}\n", number + 1, harmless(choice)));
    }
    let hint = match (question.choices.is_empty(), question.multi_select) {
        (true, _) => "  Enter alone leaves it open",
        (false, false) => "  a number, or your own words; Enter alone leaves it open",
        (false, true) => "  numbers with commas between, or your own words; Enter alone leaves it open",
    };
    out.push_str(&style.dim(hint));
    out.push('\n');
    out
}

/// Asks on the terminal of this process.
pub(crate) struct TerminalAsker {
    /// Colours of the questions.
    pub(crate) style: Style,
    /// Columns of a line.
    pub(crate) width: usize,
}

impl Asker for TerminalAsker {
    fn ask(&mut self, question: Question, withdrawn: Arc<AtomicBool>) -> BoxFuture<'static, Answered> {
        let (style, width) = (self.style, self.width);
        let fallback = question.clone();
        Box::pin(async move {
            // Reading keys blocks a thread; the editor looks at `withdrawn` several times a second.
            let asked = tokio::task::spawn_blocking(move || ask_blocking(&question, &withdrawn, style, width)).await;
            asked.unwrap_or_else(|_| refused(&fallback, false))
        })
    }
}

/// The answer of somebody who cannot or does not want to answer: no.
pub(crate) fn refused(question: &Question, stop: bool) -> Answered {
    let answer = match question {
        Question::Approval(_) => Answer::Approval(ApprovalAnswer::Deny { reason: String::new() }),
        Question::Clarify { questions, .. } => {
            Answer::Clarify(questions.iter().map(|_| ClarifyAnswer::Unanswered).collect())
        }
    };
    Answered { answer, stop }
}

fn ask_blocking(question: &Question, withdrawn: &Arc<AtomicBool>, style: Style, width: usize) -> Answered {
    forget_typed_ahead();
    let mut reader = LineReader {
        editor: Reedline::create().with_break_signal(Arc::clone(withdrawn)).with_ansi_colors(style.colour),
        withdrawn: Arc::clone(withdrawn),
    };
    let end = |line: Line| match line {
        Line::Withdrawn => Answered { answer: Answer::Withdrawn, stop: false },
        Line::Stop => refused(question, true),
        Line::End | Line::Text(_) => refused(question, false),
    };
    match question {
        Question::Approval(request) => {
            eprint!("{}", approval_text(request, style, width));
            loop {
                match reader.read("allow? [y/s/a/n] ") {
                    Line::Text(line) => match understand_approval(&line) {
                        Some(answer) => return Answered { answer: Answer::Approval(answer), stop: false },
                        None => eprintln!("Please type y, s, a or n."),
                    },
                    other => return end(other),
                }
            }
        }
        Question::Clarify { questions, .. } => {
            let mut answers = Vec::with_capacity(questions.len());
            for one in questions {
                eprint!("{}", clarify_text(one, style));
                let answer = loop {
                    match reader.read("answer> ") {
                        Line::Text(line) => match understand_clarify(one, &line) {
                            Some(answer) => break answer,
                            None => eprintln!("Please type a number from 1 to {}.", one.choices.len()),
                        },
                        // Ctrl-D: the rest stays open, and the turn goes on.
                        Line::End => break ClarifyAnswer::Skipped,
                        other => return end(other),
                    }
                };
                answers.push(answer);
            }
            Answered { answer: Answer::Clarify(answers), stop: false }
        }
    }
}

/// Takes away keys that were pressed before the question was shown: they cannot be meant for it.
fn forget_typed_ahead() {
    if crossterm::terminal::enable_raw_mode().is_ok() {
        while crossterm::event::poll(std::time::Duration::ZERO).unwrap_or(false) {
            if crossterm::event::read().is_err() {
                break;
            }
        }
        let _ = crossterm::terminal::disable_raw_mode();
    }
}

enum Line {
    Text(String),
    Stop,
    End,
    Withdrawn,
}

struct LineReader {
    editor: Reedline,
    withdrawn: Arc<AtomicBool>,
}

impl LineReader {
    fn read(&mut self, prompt: &'static str) -> Line {
        if self.withdrawn.load(Ordering::Relaxed) {
            return Line::Withdrawn;
        }
        match self.editor.read_line(&PlainPrompt(prompt)) {
            Ok(Signal::Success(line)) => Line::Text(line),
            Ok(Signal::CtrlC) => Line::Stop,
            Ok(Signal::ExternalBreak(_)) => {
                eprintln!();
                Line::Withdrawn
            }
            // A terminal that cannot be read gives no answer, which means no.
            Ok(_) | Err(_) => Line::End,
        }
    }
}

/// A prompt that is just its text.
pub(crate) struct PlainPrompt(pub(crate) &'static str);

impl Prompt for PlainPrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.0)
    }
    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
    fn render_prompt_indicator(&self, _mode: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("… ")
    }
    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("(search: {}) ", search.term))
    }
}

#[cfg(test)]
#[path = "ask_tests.rs"]
mod tests;
