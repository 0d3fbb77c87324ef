//! Texts with a NUL.
//!
//! PostgreSQL's `TEXT` holds every character but U+0000, and what users, models and tools wrote must come back as it
//! was (I27). A NUL is stored as [`ESCAPE`] and `0`, and the escape character itself, which nobody uses, twice. The form
//! is reversible and gives equal texts for equal ones, so that it may be compared and indexed.

use std::borrow::Cow;

use crate::error::StoreError;

/// The last private-use character of Unicode.
const ESCAPE: char = '\u{10FFFD}';
/// What stands behind the escape for a NUL.
const NUL: char = '0';

/// A text as it is stored.
pub(super) fn text_in(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\0' => out.extend([ESCAPE, NUL]),
            ESCAPE => out.extend([ESCAPE, ESCAPE]),
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}

/// A stored text as it was written.
pub(super) fn text_out(text: String) -> Result<String, StoreError> {
    if !text.contains(ESCAPE) {
        return Ok(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != ESCAPE {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some(NUL) => out.push('\0'),
            Some(ESCAPE) => out.push(ESCAPE),
            _ => return Err(StoreError::Corrupt { detail: "a text holds an escape that no version wrote".to_owned() }),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i27_every_text_comes_back_as_it_was() {
        let texts = ["", "plain", "\0", "a\0b\0", "\u{10FFFD}", "\u{10FFFD}0", "\0\u{10FFFD}\u{10FFFD}0\0", "0\0"];
        for text in texts {
            let stored = text_in(text);
            assert!(!stored.contains('\0'), "{text:?}");
            assert_eq!(text_out(stored.into_owned()).unwrap(), text);
        }
    }

    #[test]
    fn other_texts_are_stored_as_other_texts() {
        let texts = ["\0", "\u{10FFFD}0", "\u{10FFFD}", "0", "\u{10FFFD}\u{10FFFD}"];
        let stored: std::collections::BTreeSet<_> = texts.iter().map(|text| text_in(text)).collect();
        assert_eq!(stored.len(), texts.len());
    }

    #[test]
    fn a_broken_escape_is_damage() {
        for text in ["\u{10FFFD}", "\u{10FFFD}x"] {
            assert!(matches!(text_out(text.to_owned()), Err(StoreError::Corrupt { .. })), "{text:?}");
        }
    }
}
