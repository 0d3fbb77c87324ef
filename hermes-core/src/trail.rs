//! An answer in parts: what the model said before its output limit cut it, and how the next part is joined to it.
//!
//! A cut answer is gone on with by asking: the part and the request to go on are stored as hidden rows, sent, and
//! replayed like any other row, so that request N stays a prefix of request N+1 (I18). What people read is one row: the
//! last one carries the whole text as its `content`, and what the model itself wrote in that row as its `api_content`.
//! So nothing that was sent is ever taken back, and no nudge stands in the transcript that people see (E47).
//!
//! Models like to begin a continuation with the end of what they said. The overlap is taken out where two parts meet,
//! when it is long enough not to be chance ([`SEAM_OVERLAP_MIN_CHARS`]), and nowhere else.

use hermes_store::{MessageKind, Role, StoredMessage, TurnId};

use crate::limits::{SEAM_OVERLAP_MIN_CHARS, SEAM_WINDOW_BYTES};
use crate::nudge::Nudge;

/// The parts so far, joined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Trail {
    text: String,
}

impl Trail {
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// What was said so far.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Adds a part.
    pub(crate) fn push(&mut self, part: &str) {
        let overlap = overlap(&self.text, part);
        self.text.push_str(&part[overlap..]);
    }

    /// The whole text with one more part.
    pub(crate) fn with(&self, part: &str) -> String {
        let mut whole = self.clone();
        whole.push(part);
        whole.text
    }

    /// The trail that a turn's stored rows end with, and how often it was gone on with after a cut.
    pub(crate) fn of_rows(rows: &[StoredMessage], turn: &TurnId) -> (Self, u32) {
        let hidden =
            |row: &&StoredMessage| row.turn == *turn && row.kind == MessageKind::Hidden && row.calls.is_empty();
        let tail: Vec<&StoredMessage> = rows.iter().rev().take_while(hidden).collect();
        let mut trail = Self::default();
        let mut continuations = 0;
        for row in tail.into_iter().rev() {
            match row.role {
                Role::Assistant => trail.push(&row.content),
                _ => continuations += u32::from(Nudge::of(row) == Some(Nudge::GoOn)),
            }
        }
        (trail, continuations)
    }
}

/// Bytes at the beginning of `next` that repeat the end of `before`; 0 when they are too few to be meant.
fn overlap(before: &str, next: &str) -> usize {
    let window = window(before);
    let enough = |common: &str| common.chars().nth(SEAM_OVERLAP_MIN_CHARS - 1).is_some();
    let suffixes = window.char_indices().map(|(at, _)| &window[at..]);
    suffixes.take_while(|suffix| enough(suffix)).find(|suffix| next.starts_with(suffix)).map_or(0, str::len)
}

/// The end of a text that an overlap is looked for in.
fn window(text: &str) -> &str {
    let mut from = text.len().saturating_sub(SEAM_WINDOW_BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// The place where a part that is still arriving meets what was said before: holds it back as long as it may be a
/// repetition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seam {
    before: String,
    held: String,
    open: bool,
}

impl Seam {
    pub(crate) fn after(trail: &Trail) -> Self {
        let before = window(&trail.text).to_owned();
        Self { open: !before.is_empty(), before, held: String::new() }
    }

    /// The part begins anew.
    pub(crate) fn reset(&mut self) {
        self.held.clear();
        self.open = !self.before.is_empty();
    }

    /// More of the part; returns what of it is new and may be shown.
    pub(crate) fn push(&mut self, text: &str) -> String {
        if !self.open {
            return text.to_owned();
        }
        self.held.push_str(text);
        if self.before.char_indices().any(|(at, _)| self.before[at..].starts_with(&self.held)) {
            return String::new();
        }
        self.open = false;
        let held = std::mem::take(&mut self.held);
        held[overlap(&self.before, &held)..].to_owned()
    }

    /// A whole part without what it repeats.
    pub(crate) fn trim<'p>(&self, part: &'p str) -> &'p str {
        &part[overlap(&self.before, part)..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: &str = "and then the fox went home over the hill";

    #[test]
    fn e47_parts_are_joined_and_a_long_overlap_is_taken_out_once() {
        let cases: &[(&str, &str, &str)] = &[
            ("one ", "two", "one two"),
            ("", "two", "two"),
            ("one", "", "one"),
            // Short repetitions are the text's own.
            ("ha ha ", "ha ha ", "ha ha ha ha "),
            (END, END, END),
            (END, &format!("{END} again"), &format!("{END} again")),
            // Not at the seam: stays.
            (&format!("{END}. New."), &format!(" {END}"), &format!("{END}. New. {END}")),
        ];
        for (before, next, want) in cases {
            let mut trail = Trail::default();
            trail.push(before);
            assert_eq!(trail.with(next), *want, "{before:?} + {next:?}");
            trail.push(next);
            assert_eq!(trail.text(), *want);
        }
    }

    #[test]
    fn the_shortest_overlap_that_is_taken_out_has_32_characters() {
        let chars = |n: usize| ('a'..='z').cycle().zip(0..n).map(|(c, n)| if n % 3 == 0 { 'é' } else { c });
        for (count, removed) in [(31, false), (32, true)] {
            let common: String = chars(count).collect();
            let mut trail = Trail::default();
            trail.push(&format!("before. {common}"));
            let whole = trail.with(&format!("{common}, after"));
            assert_eq!(whole.matches(&common).count(), if removed { 1 } else { 2 }, "{count}");
        }
    }

    #[test]
    fn e51_a_part_that_repeats_is_held_back_and_only_what_is_new_is_shown() {
        let mut trail = Trail::default();
        trail.push(&format!("Once upon a time. {END}"));
        let part = format!("{END} and slept.");
        for size in [1, 2, 7, 100] {
            let mut seam = Seam::after(&trail);
            let chars: Vec<char> = part.chars().collect();
            let shown: String = chars.chunks(size).map(|chunk| seam.push(&chunk.iter().collect::<String>())).collect();
            assert_eq!(shown, " and slept.", "in steps of {size}");
            seam.reset();
            assert_eq!(seam.push("Quite different"), "Quite different");
        }
        assert_eq!(Seam::after(&trail).trim(&part), " and slept.");
        assert_eq!(Seam::default().push("x"), "x");
    }
}
