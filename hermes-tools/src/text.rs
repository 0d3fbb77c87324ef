//! Making text safe to store and to show, and cutting it.

use std::borrow::Cow;

/// Longest error text that a model is shown, in characters (tools reference, section 2).
const ERROR_MAX_CHARS: usize = 2_048;

/// A failure as every tool reports it: `{"error": "..."}`.
pub(crate) fn error_json(message: &str) -> String {
    serde_json::json!({ "error": cut_chars(message, ERROR_MAX_CHARS) }).to_string()
}

/// The first `max` characters, with an ellipsis when something was left out.
pub(crate) fn cut_chars(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        None => Cow::Borrowed(text),
        Some((at, _)) => Cow::Owned(format!("{}…", &text[..at])),
    }
}

/// The byte offset of character `n` from the start (the length when there are fewer).
fn offset_of(text: &str, n: usize) -> usize {
    text.char_indices().nth(n).map_or(text.len(), |(at, _)| at)
}

/// The byte offset at which the last `n` characters begin.
fn offset_from_end(text: &str, n: usize) -> usize {
    if n == 0 {
        return text.len();
    }
    text.char_indices().rev().nth(n - 1).map_or(0, |(at, _)| at)
}

/// Head and tail of a text that is too long.
pub(crate) struct HeadTail<'a> {
    /// The beginning.
    pub(crate) head: &'a str,
    /// Characters left out between the two.
    pub(crate) omitted: usize,
    /// The end.
    pub(crate) tail: &'a str,
}

/// Splits a text longer than `max` characters into a head of `head_percent` of `max` and a tail of the rest; `None`
/// when it fits. Never cuts inside a character.
pub(crate) fn head_tail(text: &str, max: usize, head_percent: usize) -> Option<HeadTail<'_>> {
    if text.len() <= max {
        return None;
    }
    let total = text.chars().count();
    if total <= max {
        return None;
    }
    let head_chars = max * head_percent / 100;
    let head = &text[..offset_of(text, head_chars)];
    let tail = &text[offset_from_end(text, max - head_chars)..];
    Some(HeadTail { head, omitted: total - max, tail })
}

/// Replaces NUL and other control characters (all but tab, line feed and carriage return) by visible signs, so that a
/// result can be stored by every database and cannot steer a terminal.
pub(crate) fn clean_controls(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe_control) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if is_unsafe_control(c) { picture(c) } else { c }).collect())
}

fn is_unsafe_control(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r')
}

/// The Unicode "control picture" of a control character.
fn picture(c: char) -> char {
    match c as u32 {
        code @ 0..=0x1f => char::from_u32(0x2400 + code).unwrap_or(char::REPLACEMENT_CHARACTER),
        0x7f => '\u{2421}',
        _ => char::REPLACEMENT_CHARACTER,
    }
}

/// Removes terminal control sequences (CSI, OSC and other strings, two-byte escapes).
pub(crate) fn strip_ansi(text: &str) -> Cow<'_, str> {
    if !text.contains(['\u{1b}', '\u{9b}']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{9b}' => skip_csi(&mut chars),
            '\u{1b}' => match chars.next() {
                Some('[') => skip_csi(&mut chars),
                Some(']' | 'P' | 'X' | '^' | '_') => skip_string(&mut chars),
                Some('(' | ')' | '*' | '+' | '#' | ' ' | '%') => {
                    chars.next();
                }
                _ => {}
            },
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}

fn skip_csi(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(&c) = chars.peek() {
        if !('\u{20}'..='\u{7e}').contains(&c) {
            return;
        }
        chars.next();
        if ('\u{40}'..='\u{7e}').contains(&c) {
            return;
        }
    }
}

fn skip_string(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(c) = chars.next() {
        match c {
            '\u{7}' | '\u{9c}' | '\n' => return,
            '\u{1b}' => {
                chars.next();
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_visible_signs() {
        assert_eq!(clean_controls("a\0b\tc\n\u{1b}d\u{7f}\u{85}"), "a␀b\tc\n␛d␡\u{fffd}");
        assert!(matches!(clean_controls("plain\r\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn terminal_sequences_are_removed() {
        assert_eq!(strip_ansi("\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;title\u{7}x\u{1b}(By"), "red xy");
    }

    #[test]
    fn c7_a_cut_never_splits_a_character() {
        let text = "😀".repeat(10);
        let cut = head_tail(&text, 4, 40).unwrap();
        assert_eq!((cut.head, cut.omitted, cut.tail), ("😀", 6, "😀😀😀"));
        assert!(head_tail(&text, 10, 40).is_none());
        assert_eq!(cut_chars(&text, 2), "😀😀…");
    }
}
