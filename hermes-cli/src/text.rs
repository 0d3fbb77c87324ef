//! Text that is safe to show: what a model or a tool wrote never controls the terminal.

use unicode_width::UnicodeWidthChar;

/// Makes text harmless, piece by piece.
///
/// Control characters become visible ones (ESC becomes U+241B), so no sequence can move the cursor, set a title or
/// change a colour. A carriage return before a line feed is dropped; alone it would overwrite the line, and is shown.
/// Characters that reorder text (bidirectional controls) are replaced, because they can make a command look like
/// another one.
#[derive(Debug, Default)]
pub(crate) struct Harmless {
    held_return: bool,
}

impl Harmless {
    /// One more piece.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            if std::mem::take(&mut self.held_return) && c != '\n' {
                out.push('\u{240d}');
            }
            match c {
                '\r' => self.held_return = true,
                '\n' | '\t' => out.push(c),
                '\0'..='\x1f' => out.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}')),
                '\x7f' => out.push('\u{2421}'),
                '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
                _ => out.push(c),
            }
        }
        out
    }

    /// The end of the text.
    pub(crate) fn finish(&mut self) -> &'static str {
        if std::mem::take(&mut self.held_return) { "\u{240d}" } else { "" }
    }
}

/// Makes a whole text harmless. See [`Harmless`].
pub(crate) fn harmless(text: &str) -> String {
    let mut filter = Harmless::default();
    let mut out = filter.push(text);
    out.push_str(filter.finish());
    out
}

/// A harmless text on one line, of at most `width` columns; what is cut shows as `…`.
pub(crate) fn one_line(text: &str, width: usize) -> String {
    // Only the beginning can be shown, however long the text is.
    let limit = width.saturating_mul(8).saturating_add(8);
    let head: String = text.chars().take(limit).collect();
    let cut = head.len() < text.len() && !text[head.len()..].trim().is_empty();
    let clean = harmless(&head);
    let flat = clean.split_whitespace().collect::<Vec<_>>().join(" ");
    if !cut && columns(&flat) <= width {
        return flat;
    }
    let mut out = String::new();
    let mut used = 0;
    for c in flat.chars() {
        used += c.width().unwrap_or(0);
        if used >= width.max(1) {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// How many columns a text takes.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// A text with spaces behind it, up to `width` columns.
pub(crate) fn pad(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(columns(text));
    format!("{text}{}", " ".repeat(missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_become_visible_characters() {
        assert_eq!(harmless("\x1b[31mred\x1b[0m"), "\u{241b}[31mred\u{241b}[0m");
        assert_eq!(harmless("\x1b]0;title\x07"), "\u{241b}]0;title\u{2407}");
        assert_eq!(harmless("a\u{9b}31m"), "a\u{fffd}31m");
        assert_eq!(harmless("x\x08\x7f"), "x\u{2408}\u{2421}");
    }

    #[test]
    fn no_control_character_survives() {
        let every: String = (0..0x300u32).filter_map(char::from_u32).collect();
        assert!(harmless(&every).chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
    }

    #[test]
    fn a_carriage_return_is_dropped_before_a_line_feed_and_shown_alone() {
        assert_eq!(harmless("a\r\nb"), "a\nb");
        assert_eq!(harmless("rm -rf /\rls"), "rm -rf /\u{240d}ls");
        assert_eq!(harmless("end\r"), "end\u{240d}");
    }

    #[test]
    fn a_line_end_split_over_two_pieces_is_one_line_end() {
        let mut filter = Harmless::default();
        assert_eq!(filter.push("a\r"), "a");
        assert_eq!(filter.push("\nb"), "\nb");
        assert_eq!(filter.finish(), "");
    }

    #[test]
    fn text_direction_cannot_be_turned() {
        assert_eq!(harmless("echo \u{202e}fr"), "echo \u{fffd}fr");
    }

    #[test]
    fn a_long_text_is_cut_to_its_width() {
        assert_eq!(one_line("hello", 5), "hello");
        assert_eq!(one_line("hello!", 5), "hell…");
        assert_eq!(one_line("a\n  b\tc", 10), "a b c");
        assert_eq!(one_line("日本語", 6), "日本語");
        assert_eq!(one_line("日本語", 5), "日本…");
        assert_eq!(one_line(&"x".repeat(100_000), 5), "xxxx…");
        assert_eq!(one_line("aaaa", 3), "aa…");
        assert_eq!(one_line("", 3), "");
        for width in 1..12 {
            assert!(columns(&one_line("日本 aa 語 bbbb", width)) <= width, "width {width}");
        }
    }
}
