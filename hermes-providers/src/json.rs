//! Small JSON helpers that forgive what servers really send.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// True when `text` is exactly one JSON value, blanks around it allowed.
pub(crate) fn is_whole_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// The string that `raw` holds, or `None` for another kind of value. Halves of surrogate pairs, which JSON can write but
/// no UTF-8 text can hold, become U+FFFD (case C7).
pub(crate) fn string(raw: &RawValue) -> Option<String> {
    let text = raw.get();
    if !text.starts_with('"') {
        return None;
    }
    serde_json::from_str(text).or_else(|_| serde_json::from_str(&mend_surrogates(text))).ok()
}

/// The integer that `raw` holds, also when it is written as a string.
pub(crate) fn integer(raw: &RawValue) -> Option<i64> {
    let text = raw.get().trim_matches('"');
    text.parse().ok()
}

/// Replaces `\uXXXX` escapes that are half a pair.
pub(crate) fn mend_surrogates(text: &str) -> Cow<'_, str> {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return Cow::Borrowed(text);
    }
    let unit = |at: usize| text.get(at..at + 6)?.strip_prefix("\\u").and_then(|hex| u16::from_str_radix(hex, 16).ok());
    let mut out = String::with_capacity(text.len());
    let (mut at, mut kept) = (0, 0);
    let bytes = text.as_bytes();
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            Some(0xd800..=0xdfff) => {
                out.push_str(&text[kept..at]);
                out.push_str("\\ufffd");
                at += 6;
                kept = at;
            }
            // A backslash and what it escapes; `\\u` must not be taken for an escape.
            _ => at += 2,
        }
    }
    out.push_str(&text[kept..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expect: Option<&str>) {
        let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
        assert_eq!(string(&raw).as_deref(), expect, "{json}");
    }

    #[test]
    fn c7_half_an_emoji_is_no_crash() {
        check(r#""a\ud83e\udd80b""#, Some("a🦀b"));
        check(r#""a\ud83e""#, Some("a\u{fffd}"));
        check(r#""\udd80a\ud83e\ud83e\udd80""#, Some("\u{fffd}a\u{fffd}🦀"));
        check(r#""\\ud83e\ud83e""#, Some("\\ud83e\u{fffd}"));
        check(r#""nul \u0000""#, Some("nul \0"));
        check("5", None);
    }

    #[test]
    fn integers_may_be_strings() {
        let value = |json: &str| integer(&serde_json::from_str::<Box<RawValue>>(json).unwrap());
        assert_eq!((value("5"), value("\"5\""), value("null"), value("\"x\"")), (Some(5), Some(5), None, None));
    }
}
