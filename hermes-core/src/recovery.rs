//! What an answer is, and what is done about one that is not whole: pure decisions over small counters.
//!
//! In this order (engine reference, 8.3):
//!
//! | the answer | then | limit | after that |
//! |---|---|---|---|
//! | repeats itself without end | nothing of it is kept | - | [`EndReason::RepetitionStopped`] |
//! | was cut inside a call | never run; the same request again, with more room where the configuration caps it | [`TORN_CALL_RETRIES_MAX`] | [`EndReason::OutputTruncated`] |
//! | has calls that are no JSON | the same request again, in silence | [`SILENT_CALL_REPAIRS_MAX`] | the round is recorded, with errors as results |
//! | was withheld | one other model is asked, where there is one | - | what there is of it is kept, [`EndReason::ContentBlocked`] |
//! | was cut in its text | the part is kept, and gone on with | [`CONTINUATIONS_MAX`] | the parts are one row, [`EndReason::OutputTruncated`] |
//! | was cut before any text | again with less thinking or more room, where there is any | [`THOUGHT_AWAY_RETRIES_MAX`] | [`EndReason::ThinkingExhausted`], without thinking [`EndReason::OutputTruncated`] |
//! | pauses | goes back unchanged | [`PAUSES_MAX`] | its text is the answer; without text [`EndReason::EmptyResponse`] |
//! | announces calls and has none | the same request again | [`MISSING_CALLS_RETRIES_MAX`] | its text is the answer; without text [`EndReason::InvalidCalls`] |
//! | meant to make a call that the provider cannot read | the same request again | [`MALFORMED_CALL_RETRIES_MAX`] | [`EndReason::InvalidCalls`]; its text is kept |
//! | is empty, where text of it had been shown before a failure | that text is kept | - | [`EndReason::PartialAnswer`] |
//! | is empty after results of tools | one nudge | one until the next round | as below |
//! | holds nothing but thinking | again with less thinking | [`THOUGHT_ONLY_RETRIES_MAX`] | another model, else [`EndReason::ThinkingExhausted`] |
//! | is empty | again, after a wait | [`EMPTY_RETRIES_MAX`], or two that provably cost nothing | another model, else [`EndReason::EmptyResponse`] |
//!
//! "The same request again" sends the same bytes, so it cannot break the prefix of the next request (I18). The two steps
//! that put something between, a nudge and a continuation, store it first and never take it back ([`crate::nudge`],
//! [`crate::trail`]).

use hermes_providers::{CompletedCall, Completion, Finish};

use crate::end::EndReason;
use crate::limits::{
    CONTINUATIONS_MAX, EMPTY_PROVEN_MAX, EMPTY_RETRIES_MAX, MALFORMED_CALL_RETRIES_MAX, MISSING_CALLS_RETRIES_MAX,
    OUTPUT_CAP_RAISED_MAX_TOKENS, PAUSES_MAX, SILENT_CALL_REPAIRS_MAX, THOUGHT_AWAY_RETRIES_MAX,
    THOUGHT_ONLY_RETRIES_MAX, TORN_CALL_RETRIES_MAX,
};
use crate::repetition;

/// What an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// It repeats itself without end.
    Looping,
    /// Calls, every one of them readable.
    Round,
    /// A call was cut: by the output limit, or its arguments stop in the middle.
    TornCalls,
    /// A call's arguments are no JSON.
    UnreadableCalls,
    /// The provider withheld it.
    Withheld,
    /// Text that the output limit cut.
    CutText,
    /// The output limit came before any text; thinking used it up, if there was some.
    CutBeforeText {
        /// Whether the model had thought.
        thought: bool,
    },
    /// The provider pauses and wants it back.
    Paused,
    /// Calls are announced and none is there.
    MissingCalls,
    /// A call was meant and cannot be read, says the provider.
    MalformedCall,
    /// Thinking and nothing else.
    ThoughtOnly,
    /// Nothing.
    Empty,
    /// An answer.
    Text,
}

/// Says what an answer is.
pub(crate) fn shape(answer: &Completion) -> Shape {
    let thought = answer.reasoning.as_ref().is_some_and(|text| !text.trim().is_empty());
    let silent = answer.text.trim().is_empty();
    let cut = answer.finish == Finish::Length;
    if repetition::loops(&answer.text) {
        return Shape::Looping;
    }
    if !answer.calls.is_empty() {
        return match () {
            () if cut || answer.calls.iter().any(is_torn) => Shape::TornCalls,
            () if answer.calls.iter().any(|call| !call.whole) => Shape::UnreadableCalls,
            () => Shape::Round,
        };
    }
    match answer.finish {
        Finish::ContentFilter => Shape::Withheld,
        Finish::Length if silent => Shape::CutBeforeText { thought },
        Finish::Length => Shape::CutText,
        // What only the provider can read goes back to it, with text or without.
        Finish::Pause if !silent || answer.sidecar.is_some() => Shape::Paused,
        Finish::ToolCalls => Shape::MissingCalls,
        Finish::MalformedCall => Shape::MalformedCall,
        _ if !silent => Shape::Text,
        _ if thought => Shape::ThoughtOnly,
        _ => Shape::Empty,
    }
}

/// Arguments that stop in the middle. What closes its braces was written to its end, however wrong it is.
fn is_torn(call: &CompletedCall) -> bool {
    !call.whole && !call.arguments.trim_end().ends_with(['}', ']'])
}

/// What is known beside the answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Facts {
    /// It has text.
    pub has_text: bool,
    /// It has none, and clients were shown some before, in an attempt that failed.
    pub shown_before: bool,
    /// The last message of the request is the result of a tool.
    pub after_tools: bool,
    /// It provably cost no output.
    pub no_output: bool,
    /// Thinking can be lowered.
    pub less_thinking: bool,
    /// The output cap can be raised.
    pub more_room: bool,
    /// The model's window has room for a continuation.
    pub window_has_room: bool,
    /// Another model may be asked in place of one that gives such an answer.
    pub another_route: bool,
}

impl Facts {
    /// To another model where there is one, else to the end.
    fn leave(self, reason: EndReason) -> Step {
        if self.another_route { Step::Leave(reason) } else { Step::End(reason) }
    }
}

/// How the same request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Again {
    /// What people are told.
    pub why: &'static str,
    /// Whether to wait first; which retry in a row this is, from 1.
    pub wait: Option<u32>,
    /// With less thinking, where it can be lowered.
    pub less_thinking: bool,
    /// With a higher output cap, where it can be raised.
    pub more_room: bool,
}

/// What is done with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Record its calls, run them.
    Run,
    /// It is the answer.
    Answer,
    /// Keep the part; ask to go on.
    GoOn,
    /// Keep the part; send it back.
    SendBack,
    /// Ask again.
    Again(Again),
    /// Nudge the model to answer after the results of tools.
    Nudge,
    /// Another model is asked; nothing of it is kept. Where there is none after all, the turn ends for this reason.
    Leave(EndReason),
    /// End; its text is kept as far as it goes.
    EndKeeping(EndReason),
    /// End; nothing of it is kept.
    End(EndReason),
}

/// How often each recovery was tried. A round that can be run is progress: what went before it does not count any more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recovery {
    torn: u32,
    unreadable: u32,
    missing: u32,
    malformed: u32,
    thought_only: u32,
    thought_away: u32,
    empty: u32,
    /// Answers in a row that provably cost nothing and ended for the same reason.
    proven: u32,
    proven_finish: Option<Finish>,
    nudged: bool,
    continuations: u32,
    pauses: u32,
}

impl Recovery {
    /// Goes on where the stored rows of an earlier attempt stopped.
    pub(crate) fn resumed(continuations: u32, nudged: bool) -> Self {
        Self { continuations, nudged, ..Self::default() }
    }

    /// Another model is asked: it has its own tries. What stands in the history stays counted.
    pub(crate) fn another_model(&mut self) {
        let Self { nudged, continuations, pauses, .. } = *self;
        *self = Self { nudged, continuations, pauses, ..Self::default() };
    }

    /// Decides over one answer.
    pub(crate) fn next(&mut self, shape: Shape, finish: &Finish, facts: Facts) -> Step {
        if !matches!(shape, Shape::Empty) {
            (self.proven, self.proven_finish) = (0, None);
        }
        match shape {
            Shape::Looping => Step::End(EndReason::RepetitionStopped),
            Shape::Round => {
                *self = Self { pauses: self.pauses, ..Self::default() };
                Step::Run
            }
            Shape::TornCalls => match again(&mut self.torn, TORN_CALL_RETRIES_MAX) {
                true => ask("a call of the model was cut; it is asked again").with_room(facts.more_room),
                false => Step::End(EndReason::OutputTruncated),
            },
            Shape::UnreadableCalls => match again(&mut self.unreadable, SILENT_CALL_REPAIRS_MAX) {
                true => ask("the model made a call that cannot be read; it is asked again"),
                false => Step::Run,
            },
            Shape::Withheld if facts.another_route => Step::Leave(EndReason::ContentBlocked),
            Shape::Withheld => Step::EndKeeping(EndReason::ContentBlocked),
            Shape::CutText if !facts.window_has_room => Step::EndKeeping(EndReason::ContextOverflow),
            Shape::CutText => match again(&mut self.continuations, CONTINUATIONS_MAX) {
                true => Step::GoOn,
                false => Step::EndKeeping(EndReason::OutputTruncated),
            },
            Shape::CutBeforeText { thought } => self.cut_before_text(thought, facts),
            Shape::Paused => match again(&mut self.pauses, PAUSES_MAX) {
                true => Step::SendBack,
                false => answer_or(EndReason::EmptyResponse, facts),
            },
            Shape::MissingCalls => match again(&mut self.missing, MISSING_CALLS_RETRIES_MAX) {
                true => ask("the model announced a call and made none; it is asked again"),
                false => answer_or(EndReason::InvalidCalls, facts),
            },
            Shape::MalformedCall => match again(&mut self.malformed, MALFORMED_CALL_RETRIES_MAX) {
                true => ask("the model made a call that its provider cannot read; it is asked again"),
                false if facts.has_text => Step::EndKeeping(EndReason::InvalidCalls),
                false => Step::End(EndReason::InvalidCalls),
            },
            Shape::ThoughtOnly | Shape::Empty if facts.shown_before => Step::End(EndReason::PartialAnswer),
            Shape::ThoughtOnly | Shape::Empty if facts.after_tools && !self.nudged => {
                self.nudged = true;
                (self.proven, self.proven_finish) = (0, None);
                Step::Nudge
            }
            Shape::ThoughtOnly => match again(&mut self.thought_only, THOUGHT_ONLY_RETRIES_MAX) {
                true => ask("the model thought and did not answer; it is asked again").thinking_less(facts),
                false => facts.leave(EndReason::ThinkingExhausted),
            },
            Shape::Empty => self.empty(finish, facts),
            Shape::Text => Step::Answer,
        }
    }

    fn cut_before_text(&mut self, thought: bool, facts: Facts) -> Step {
        // The same request with the same room would be cut at the same place.
        let other = facts.less_thinking || facts.more_room;
        if other && again(&mut self.thought_away, THOUGHT_AWAY_RETRIES_MAX) {
            let step = ask("the output limit came before the answer; it is asked again").thinking_less(facts);
            return step.with_room(facts.more_room);
        }
        let thinking = EndReason::ThinkingExhausted;
        Step::End(if thought { thinking } else { EndReason::OutputTruncated })
    }

    fn empty(&mut self, finish: &Finish, facts: Facts) -> Step {
        if facts.no_output {
            let same = self.proven_finish.as_ref() == Some(finish);
            self.proven = if same { self.proven + 1 } else { 1 };
            self.proven_finish = Some(finish.clone());
        }
        if self.proven >= EMPTY_PROVEN_MAX || !again(&mut self.empty, EMPTY_RETRIES_MAX) {
            return facts.leave(EndReason::EmptyResponse);
        }
        Step::Again(Again {
            why: "the model answered with nothing",
            wait: Some(self.empty),
            less_thinking: false,
            more_room: false,
        })
    }
}

/// Counts a try; false when there were enough.
fn again(count: &mut u32, max: u32) -> bool {
    let may = *count < max;
    *count += u32::from(may);
    may
}

/// What there is of it is the answer.
fn answer_or(reason: EndReason, facts: Facts) -> Step {
    if facts.has_text { Step::Answer } else { Step::End(reason) }
}

fn ask(why: &'static str) -> Step {
    Step::Again(Again { why, wait: None, less_thinking: false, more_room: false })
}

impl Step {
    fn with_room(self, more_room: bool) -> Self {
        match self {
            Self::Again(again) => Self::Again(Again { more_room, ..again }),
            other => other,
        }
    }

    fn thinking_less(self, facts: Facts) -> Self {
        match self {
            Self::Again(again) => Self::Again(Again { less_thinking: facts.less_thinking, ..again }),
            other => other,
        }
    }
}

/// The effort that is asked for when a model thought too much. `None` when there is nothing to lower: a model that was
/// not told how much to think may not know the parameter.
pub(crate) fn lower_effort(effort: Option<&str>) -> Option<&'static str> {
    match effort? {
        "max" | "xhigh" | "high" | "medium" => Some("low"),
        _ => None,
    }
}

/// The output cap after `times` answers were cut: twice as much each time. `None` when it cannot be raised: there is no
/// cap, or the model has no more (`model_max` tokens).
pub(crate) fn raised_cap(cap: Option<u64>, times: u32, model_max: Option<u64>) -> Option<u64> {
    let cap = cap?;
    let most = OUTPUT_CAP_RAISED_MAX_TOKENS.max(cap.saturating_mul(2)).min(model_max.unwrap_or(u64::MAX));
    let raised = cap.saturating_mul(1 << times.min(16)).min(most);
    (raised > cap).then_some(raised)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(text: &str, thought: &str, calls: &[(&str, bool)], finish: Finish) -> Completion {
        let call = |(arguments, whole): &(&str, bool)| CompletedCall {
            id: None,
            name: "act".into(),
            arguments: (*arguments).to_owned(),
            whole: *whole,
        };
        Completion {
            text: text.into(),
            reasoning: (!thought.is_empty()).then(|| thought.to_owned()),
            sidecar: None,
            calls: calls.iter().map(call).collect(),
            finish,
            finish_missing: false,
            usage: None,
            served_model: None,
        }
    }

    #[test]
    fn every_answer_has_one_shape() {
        use Finish as F;
        const GOOD: (&str, bool) = ("{}", true);
        let looping = "again and again. ".repeat(2_000);
        type Row<'t> = (&'t str, &'t str, &'t [(&'t str, bool)], Finish, Shape);
        let table: Vec<Row<'_>> = vec![
            ("hi", "", &[], F::Stop, Shape::Text),
            ("hi", "hm", &[], F::Other("eos".into()), Shape::Text),
            ("", "", &[], F::Stop, Shape::Empty),
            (" \n", "", &[], F::Other("eos".into()), Shape::Empty),
            ("", "hm", &[], F::Stop, Shape::ThoughtOnly),
            ("hi", "", &[], F::Length, Shape::CutText),
            ("", "", &[], F::Length, Shape::CutBeforeText { thought: false }),
            ("", "hm", &[], F::Length, Shape::CutBeforeText { thought: true }),
            ("ha", "", &[], F::ContentFilter, Shape::Withheld),
            ("ha", "", &[], F::Pause, Shape::Paused),
            ("", "", &[], F::Pause, Shape::Empty),
            ("ha", "", &[], F::ToolCalls, Shape::MissingCalls),
            ("", "", &[], F::ToolCalls, Shape::MissingCalls),
            ("hi", "", &[GOOD], F::ToolCalls, Shape::Round),
            ("", "", &[GOOD], F::Stop, Shape::Round),
            ("", "", &[GOOD], F::Length, Shape::TornCalls),
            // E10: arguments that stop in the middle, whatever the finish says.
            ("", "", &[GOOD, ("{\"a\":1", false)], F::ToolCalls, Shape::TornCalls),
            ("", "", &[("{\"a\":1,,} ", false)], F::ToolCalls, Shape::UnreadableCalls),
            (&looping, "", &[], F::Stop, Shape::Looping),
            (&looping, "", &[], F::Length, Shape::Looping),
        ];
        for (text, thought, calls, finish, want) in table {
            let answer = completion(text, thought, calls, finish.clone());
            assert_eq!(shape(&answer), want, "{:?} {finish:?}", text.get(..20));
        }
    }

    fn room() -> Facts {
        Facts { window_has_room: true, ..Facts::default() }
    }

    /// Steps for the same answer again and again, up to the first that is no retry.
    fn ladder(shape: Shape, facts: Facts) -> (usize, Step) {
        let mut recovery = Recovery::default();
        for count in 0..20 {
            match recovery.next(shape, &Finish::Stop, facts) {
                Step::Again(_) | Step::GoOn | Step::SendBack => {}
                step => return (count, step),
            }
        }
        panic!("{shape:?} never ends");
    }

    #[test]
    fn every_ladder_has_its_limit_and_its_end() {
        use EndReason as R;
        let lower = Facts { less_thinking: true, ..room() };
        let text = Facts { has_text: true, ..room() };
        let other = Facts { another_route: true, ..room() };
        let table = [
            (Shape::Looping, room(), 0, Step::End(R::RepetitionStopped)),
            (Shape::TornCalls, room(), 4, Step::End(R::OutputTruncated)),
            (Shape::UnreadableCalls, room(), 2, Step::Run),
            (Shape::Withheld, room(), 0, Step::EndKeeping(R::ContentBlocked)),
            (Shape::CutText, room(), 3, Step::EndKeeping(R::OutputTruncated)),
            (Shape::CutText, Facts::default(), 0, Step::EndKeeping(R::ContextOverflow)),
            (Shape::CutBeforeText { thought: true }, room(), 0, Step::End(R::ThinkingExhausted)),
            (Shape::CutBeforeText { thought: true }, lower, 1, Step::End(R::ThinkingExhausted)),
            (Shape::CutBeforeText { thought: false }, room(), 0, Step::End(R::OutputTruncated)),
            (Shape::Paused, text, 8, Step::Answer),
            (Shape::Paused, room(), 8, Step::End(R::EmptyResponse)),
            (Shape::MissingCalls, text, 3, Step::Answer),
            (Shape::MissingCalls, room(), 3, Step::End(R::InvalidCalls)),
            (Shape::MalformedCall, text, 1, Step::EndKeeping(R::InvalidCalls)),
            (Shape::MalformedCall, room(), 1, Step::End(R::InvalidCalls)),
            (Shape::ThoughtOnly, room(), 2, Step::End(R::ThinkingExhausted)),
            (Shape::Empty, room(), 3, Step::End(R::EmptyResponse)),
            (Shape::Empty, Facts { no_output: true, ..room() }, 1, Step::End(R::EmptyResponse)),
            (Shape::Empty, Facts { shown_before: true, ..room() }, 0, Step::End(R::PartialAnswer)),
            (Shape::Empty, Facts { after_tools: true, ..room() }, 0, Step::Nudge),
            (Shape::ThoughtOnly, Facts { after_tools: true, ..room() }, 0, Step::Nudge),
            (Shape::Withheld, other, 0, Step::Leave(R::ContentBlocked)),
            (Shape::ThoughtOnly, other, 2, Step::Leave(R::ThinkingExhausted)),
            (Shape::Empty, other, 3, Step::Leave(R::EmptyResponse)),
            (Shape::Empty, Facts { no_output: true, ..other }, 1, Step::Leave(R::EmptyResponse)),
            (Shape::CutBeforeText { thought: true }, other, 0, Step::End(R::ThinkingExhausted)),
            (Shape::Text, room(), 0, Step::Answer),
            (Shape::Round, room(), 0, Step::Run),
        ];
        for (shape, facts, retries, end) in table {
            assert_eq!(ladder(shape, facts), (retries, end), "{shape:?} {facts:?}");
        }
    }

    #[test]
    fn e50_after_tools_there_is_one_nudge_until_the_next_round() {
        let mut recovery = Recovery::default();
        let after = Facts { after_tools: true, ..room() };
        let mut next = |shape, facts| recovery.next(shape, &Finish::Stop, facts);
        assert_eq!(next(Shape::Empty, after), Step::Nudge);
        assert!(matches!(next(Shape::Empty, room()), Step::Again(_)));
        assert!(matches!(next(Shape::Empty, after), Step::Again(_)), "not a second time");
        assert_eq!(next(Shape::Round, after), Step::Run);
        assert_eq!(next(Shape::ThoughtOnly, after), Step::Nudge);
        let mut resumed = Recovery::resumed(0, true);
        assert!(matches!(resumed.next(Shape::Empty, &Finish::Stop, after), Step::Again(_)));
    }

    #[test]
    fn e49_only_the_same_finish_twice_proves_that_a_third_answer_would_be_empty() {
        let mut recovery = Recovery::default();
        let proven = Facts { no_output: true, ..room() };
        let other = Finish::Other("eos".into());
        assert!(matches!(recovery.next(Shape::Empty, &Finish::Stop, proven), Step::Again(_)));
        assert!(matches!(recovery.next(Shape::Empty, &other, proven), Step::Again(_)));
        assert_eq!(recovery.next(Shape::Empty, &other, proven), Step::End(EndReason::EmptyResponse));
    }

    #[test]
    fn thinking_is_lowered_only_where_it_was_set_and_a_cap_raised_only_where_there_is_one() {
        assert_eq!(
            [Some("max"), Some("medium"), Some("low"), Some("none"), None].map(lower_effort),
            [Some("low"), Some("low"), None, None, None]
        );
        assert_eq!(raised_cap(None, 1, None), None);
        assert_eq!(
            [1, 2, 3, 9].map(|times| raised_cap(Some(1_000), times, None)),
            [Some(2_000), Some(4_000), Some(8_000), Some(32_768)]
        );
        assert_eq!(raised_cap(Some(30_000), 5, None), Some(60_000), "twice the cap at least");
        assert_eq!(raised_cap(Some(4_096), 1, Some(4_096)), None);
    }
}
