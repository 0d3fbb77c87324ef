//! What the Python program's columns mean.
//!
//! Years of versions have written them: JSON inside of JSON, text that is no UTF-8, times of other centuries. Nothing
//! here fails; what cannot be read is kept as the text that it is.

use serde_json::Value;

/// A content that begins with this is JSON: the parts of a message with pictures, or a text that began with it itself.
const JSON_CONTENT: &str = "\0json:";
/// The earliest time that is believed, in seconds: 2000-01-01. Before it no model could be spoken to.
const EARLIEST_S: f64 = 946_684_800.0;
/// The latest time that is believed, in seconds: 2100-01-01.
const LATEST_S: f64 = 4_102_444_800.0;
/// Most strings that are unpacked of one another. Two were seen.
const LAYERS_MAX: usize = 4;

/// A text column. True when something of it was no UTF-8 (lone surrogates) and is now U+FFFD.
pub(super) fn text(bytes: Vec<u8>) -> (String, bool) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, false),
        Err(bad) => (String::from_utf8_lossy(bad.as_bytes()).into_owned(), true),
    }
}

/// JSON text. Python writes lone surrogates as escapes, which no JSON reader takes.
pub(super) fn json(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().or_else(|| serde_json::from_str(&without_lone_surrogates(text)).ok())
}

/// JSON that may have been packed into a string, and that into another.
pub(super) fn json_layers(text: &str) -> Option<Value> {
    let mut value = json(text)?;
    for _ in 1..LAYERS_MAX {
        match &value {
            Value::String(inner) => match json(inner) {
                Some(next) => value = next,
                None => return Some(value),
            },
            _ => return Some(value),
        }
    }
    Some(value)
}

/// Replaces `\ud800` and the like by `\ufffd` where they stand alone.
fn without_lone_surrogates(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let mut copied = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        let Some(unit) = escape_at(text, at) else {
            at += 2;
            continue;
        };
        let is_high = (0xd800..0xdc00).contains(&unit);
        let is_pair = is_high && escape_at(text, at + 6).is_some_and(|low| (0xdc00..0xe000).contains(&low));
        if is_pair {
            at += 12;
            continue;
        }
        if (0xd800..0xe000).contains(&unit) {
            out.push_str(&text[copied..at]);
            out.push_str("\\ufffd");
            copied = at + 6;
        }
        at += 6;
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    out
}

fn escape_at(text: &str, at: usize) -> Option<u32> {
    let escape = text.get(at..at + 6)?;
    let digits = escape.strip_prefix("\\u")?;
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

/// What a message says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Content {
    /// Its text; of parts, the texts of them.
    pub(super) text: String,
    /// Its parts, when it has some.
    pub(super) parts: Option<Value>,
}

/// Reads a content column.
pub(super) fn content(raw: String) -> Content {
    let Some(packed) = raw.strip_prefix(JSON_CONTENT) else { return Content { text: raw, parts: None } };
    match json(packed) {
        Some(Value::String(text)) => Content { text, parts: None },
        Some(parts @ (Value::Array(_) | Value::Object(_))) => {
            Content { text: text_of_parts(&parts), parts: Some(parts) }
        }
        Some(other) => Content { text: other.to_string(), parts: None },
        None => Content { text: raw, parts: None },
    }
}

fn text_of_parts(parts: &Value) -> String {
    let one = |part: &Value| match part {
        Value::String(text) => text.clone(),
        Value::Object(fields) => match fields.get("text") {
            Some(Value::String(text)) => text.clone(),
            _ => format!("[{}]", fields.get("type").and_then(Value::as_str).unwrap_or("part")),
        },
        other => other.to_string(),
    };
    match parts {
        Value::Array(parts) => parts.iter().map(one).collect::<Vec<_>>().join("\n"),
        other => one(other),
    }
}

/// Seconds since the Unix epoch as milliseconds; nothing for a time that cannot be.
pub(super) fn time_ms(seconds: Option<f64>) -> Option<i64> {
    let seconds = seconds.filter(|s| (EARLIEST_S..LATEST_S).contains(s))?;
    #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
    Some((seconds * 1000.0).round() as i64)
}

/// A call as a model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawCall {
    /// The ids under which a result may name it; the first is the provider's.
    pub(super) ids: Vec<String>,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// The calls of an assistant row; nothing when the text is not a list of calls.
pub(super) fn calls(text: &str) -> Option<Vec<RawCall>> {
    match json_layers(text)? {
        Value::Null => Some(Vec::new()),
        Value::Array(calls) => calls.iter().map(one_call).collect(),
        call @ Value::Object(_) => Some(vec![one_call(&call)?]),
        _ => None,
    }
}

fn one_call(value: &Value) -> Option<RawCall> {
    let packed;
    let value = match value {
        Value::String(text) => {
            packed = json_layers(text)?;
            &packed
        }
        other => other,
    };
    let fields = value.as_object()?;
    let function = fields.get("function").and_then(Value::as_object).unwrap_or(fields);
    let name = function.get("name").and_then(Value::as_str)?;
    let arguments = match function.get("arguments") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "{}".to_owned(),
        Some(other) => other.to_string(),
    };
    let mut ids: Vec<String> = Vec::new();
    for key in ["id", "call_id", "tool_call_id"] {
        if let Some(id) = fields.get(key).and_then(Value::as_str).filter(|id| !id.is_empty())
            && !ids.iter().any(|known| known == id)
        {
            ids.push(id.to_owned());
        }
    }
    Some(RawCall { ids, name: name.to_owned(), arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_text_parts_or_a_text_that_looks_like_parts() {
        for (raw, text, has_parts) in [
            ("plain", "plain", false),
            ("\0json:[{\"type\":\"text\",\"text\":\"hi\"},{\"type\":\"image_url\"}]", "hi\n[image_url]", true),
            ("\0json:\"\\u0000json:[1]\"", "\0json:[1]", false),
            ("\0json:{broken", "\0json:{broken", false),
            ("\0json:\"lone \\ud800 here\"", "lone \u{fffd} here", false),
            ("\0json:[\"pair \\ud83d\\ude00\", \"\\ude00\"]", "pair 😀\n\u{fffd}", true),
            ("", "", false),
        ] {
            let found = content(raw.to_owned());
            assert_eq!((found.text.as_str(), found.parts.is_some()), (text, has_parts), "{raw:?}");
        }
    }

    #[test]
    fn calls_may_be_packed_more_than_once_and_keep_their_arguments() {
        let plain =
            r#"[{"id":"a","call_id":"b","type":"function","function":{"name":"terminal","arguments":"{\"x\": 1}"}}]"#;
        let want = vec![RawCall {
            ids: vec!["a".to_owned(), "b".to_owned()],
            name: "terminal".to_owned(),
            arguments: "{\"x\": 1}".to_owned(),
        }];
        assert_eq!(calls(plain), Some(want.clone()));
        let twice = serde_json::to_string(plain).unwrap();
        assert_eq!(calls(&twice), Some(want.clone()));
        assert_eq!(calls(&serde_json::to_string(&twice).unwrap()), Some(want));
        assert_eq!(calls("null"), Some(vec![]));
        assert_eq!(calls(r#"[{"name":"f","arguments":{"a":1}}]"#).unwrap()[0].arguments, "{\"a\":1}");
        for bad in ["", "no", "[7]", "[{\"id\":\"x\"}]", "3"] {
            assert_eq!(calls(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_of_other_centuries_are_not_believed() {
        assert_eq!(time_ms(Some(1_700_000_000.123_4)), Some(1_700_000_000_123));
        for silly in [0.0, -1.0, 1e300, f64::NAN, f64::INFINITY, 1_700_000_000_123.0, 12.5] {
            assert_eq!(time_ms(Some(silly)), None, "{silly}");
        }
        assert_eq!(time_ms(None), None);
    }

    #[test]
    fn i27_text_that_is_not_utf8_is_kept_as_far_as_it_is() {
        assert_eq!(text(b"ok \xc3\xbc".to_vec()), ("ok ü".to_owned(), false));
        let (found, scrubbed) = text(b"lone \xed\xa0\x80 end".to_vec());
        assert!(scrubbed && found.starts_with("lone ") && found.ends_with(" end"), "{found}");
    }
}
