//! What clients have seen of an answer, over all attempts at it: nothing is shown twice (E51).

use crate::trail::{Seam, Trail};

/// What clients have seen of the answer that is being asked for.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// What stands before this part: earlier parts of the same answer, shown and kept.
    lead: String,
    /// Where this part meets them.
    seam: Seam,
    /// What was shown of this part and not declared void.
    shown: String,
    /// What this attempt has brought.
    current: String,
    /// True while this attempt only repeats what was shown.
    repeating: bool,
}

/// What a client must be told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    More(String),
    /// What was shown is void; this is all of it.
    Anew(String),
}

impl Shown {
    /// Nothing yet of the next part of an answer; of a new answer when the trail is empty.
    pub(crate) fn after(trail: &Trail) -> Self {
        Self { lead: trail.text().to_owned(), seam: Seam::after(trail), ..Self::default() }
    }

    /// What clients have before them of this part.
    pub(crate) fn text(&self) -> &str {
        if self.repeating && self.current.len() < self.shown.len() { &self.shown } else { &self.current }
    }

    /// The answer of this attempt is not taken, or it failed: another one follows.
    pub(crate) fn next_attempt(&mut self) {
        // An attempt that ended while it repeated leaves what was shown before.
        if !self.repeating || self.current.len() > self.shown.len() {
            self.shown = std::mem::take(&mut self.current);
        }
        self.current.clear();
        self.seam.reset();
        self.repeating = !self.shown.is_empty();
    }

    /// More of this attempt.
    pub(crate) fn push(&mut self, text: &str) -> Step {
        let text = self.seam.push(text);
        if text.is_empty() {
            return Step::Nothing;
        }
        self.current.push_str(&text);
        if !self.repeating {
            return Step::More(text);
        }
        if self.shown.starts_with(&self.current) {
            return Step::Nothing;
        }
        self.repeating = false;
        match self.current.strip_prefix(self.shown.as_str()) {
            Some(more) => Step::More(more.to_owned()),
            None => Step::Anew(format!("{}{}", self.lead, self.current)),
        }
    }

    /// The attempt is over and its text is `text`.
    pub(crate) fn settle(&mut self, text: &str) -> Step {
        let text = self.seam.trim(text);
        let before = if self.repeating { self.shown.as_str() } else { self.current.as_str() };
        let step = match text.strip_prefix(before) {
            Some("") => Step::Nothing,
            Some(more) => Step::More(more.to_owned()),
            None => Step::Anew(format!("{}{text}", self.lead)),
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

    #[test]
    fn a_part_that_is_void_is_shown_again_together_with_what_stands_before_it() {
        let mut trail = Trail::default();
        trail.push("Part one. ");
        let mut shown = Shown::after(&trail);
        assert_eq!(shown.push("Port"), Step::More("Port".into()));
        shown.next_attempt();
        assert_eq!(shown.push("Second."), Step::Anew("Part one. Second.".into()));
        assert_eq!(shown.text(), "Second.");
    }
}
