//! Notices that a model has begun to say the same thing over and over.
//!
//! Looks at the end of what was said, and only when much was said ([`REPETITION_MIN_CHARS`]): a short text may repeat
//! itself for good reasons. Two signs count: the end is one short piece repeated without a gap, or nearly all of it are
//! lines that stand there many times.

use std::collections::HashMap;

use crate::limits::{
    REPETITION_CHECK_BYTES, REPETITION_LINE_MIN_TIMES, REPETITION_LINES_PERCENT, REPETITION_MIN_CHARS,
    REPETITION_PERIOD_MAX_BYTES, REPETITION_TAIL_BYTES,
};

/// Watches one text that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct LoopWatch {
    /// The end of the text; at most twice the part that is looked at.
    tail: Vec<u8>,
    chars: usize,
    unchecked_bytes: usize,
}

impl LoopWatch {
    /// More of the text; true when it has become a loop.
    pub(crate) fn push(&mut self, text: &str) -> bool {
        self.chars += text.chars().count();
        self.unchecked_bytes += text.len();
        self.tail.extend_from_slice(text.as_bytes());
        if self.tail.len() > 2 * REPETITION_TAIL_BYTES {
            self.tail.drain(..self.tail.len() - REPETITION_TAIL_BYTES);
        }
        if self.chars <= REPETITION_MIN_CHARS || self.unchecked_bytes < REPETITION_CHECK_BYTES {
            return false;
        }
        self.unchecked_bytes = 0;
        let from = self.tail.len().saturating_sub(REPETITION_TAIL_BYTES);
        tail_loops(&self.tail[from..])
    }
}

/// True when a whole text ends as a loop.
pub(crate) fn loops(text: &str) -> bool {
    // Bytes first: most answers are short, and characters need a walk.
    text.len() > REPETITION_MIN_CHARS
        && text.chars().nth(REPETITION_MIN_CHARS).is_some()
        && tail_loops(&text.as_bytes()[text.len().saturating_sub(REPETITION_TAIL_BYTES)..])
}

fn tail_loops(tail: &[u8]) -> bool {
    period(tail) <= REPETITION_PERIOD_MAX_BYTES || mostly_repeated_lines(tail)
}

/// The length of the shortest piece that `text` is a repetition of (the last one may be cut).
fn period(text: &[u8]) -> usize {
    // The prefix function of Knuth, Morris and Pratt: the longest border of each prefix.
    let mut border = vec![0_usize; text.len()];
    for at in 1..text.len() {
        let mut length = border[at - 1];
        while length > 0 && text[at] != text[length] {
            length = border[length - 1];
        }
        border[at] = length + usize::from(text[at] == text[length]);
    }
    text.len() - border.last().copied().unwrap_or(0)
}

fn mostly_repeated_lines(tail: &[u8]) -> bool {
    let mut times: HashMap<&[u8], usize> = HashMap::new();
    for line in tail.split(|byte| *byte == b'\n') {
        *times.entry(line).or_default() += 1;
    }
    let many = times.iter().filter(|(_, times)| **times >= REPETITION_LINE_MIN_TIMES);
    let repeated: usize = many.map(|(line, times)| (line.len() + 1) * times).sum();
    repeated * 100 >= tail.len() * REPETITION_LINES_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text that does not repeat itself.
    fn prose(chars: usize) -> String {
        let mut seed = 7_u64;
        let mut text = String::new();
        while text.len() < chars {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(&format!("{} ", seed >> 40));
            if seed.is_multiple_of(11) {
                text.push('\n');
            }
        }
        text
    }

    fn check(text: &str, want: bool) {
        assert_eq!(loops(text), want, "{} bytes, beginning {:?}", text.len(), &text[..40]);
        for size in [17, 1_000, 40_000] {
            let mut watch = LoopWatch::default();
            let chars: Vec<char> = text.chars().collect();
            let seen = chars.chunks(size).any(|chunk| watch.push(&chunk.iter().collect::<String>()));
            assert_eq!(seen, want, "in pieces of {size}");
        }
    }

    #[test]
    fn a_loop_is_seen_only_in_a_long_text() {
        check(&"the same again. ".repeat(900), false);
        check(&"the same again. ".repeat(2_000), true);
        check(&"é".repeat(30_000), true);
    }

    #[test]
    fn a_loop_after_a_sound_beginning_is_seen() {
        check(&format!("{}{}", prose(12_000), "I will now check it.\n\n".repeat(1_000)), true);
    }

    #[test]
    fn a_loop_with_a_counter_between_its_lines_is_seen() {
        let text: String = (0..700).map(|n| format!("Let me try this once more, with care.\n{n}\n")).collect();
        check(&text, true);
    }

    #[test]
    fn long_texts_that_only_look_alike_are_no_loop() {
        check(&prose(60_000), false);
        let table: String = (0..2_000).map(|n| format!("| row {n} | value {} | ok |\n", n * 37 % 1_001)).collect();
        check(&table, false);
        let code: String = (0..1_500).map(|n| format!("    case {n}:\n        run({n});\n        break;\n")).collect();
        check(&code, false);
    }
}
