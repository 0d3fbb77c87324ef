//! Small JSON helpers that forgive what servers really send.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A member that may be missing, with its bytes as they stand.
pub(crate) type Raw<'a> = Option<&'a RawValue>;

/// A string, borrowed when it has no escapes. (Serde gives an owned one for a `Cow` inside an `Option`.)
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The one member of a list that has one or none; a longer list is an error.
#[derive(Debug)]
pub(crate) struct One<T>(pub(crate) Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for One<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct First<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for First<T> {
            type Value = One<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of one")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let first = list.next_element()?;
                match list.next_element::<IgnoredAny>()? {
                    Some(_) => Err(serde::de::Error::custom("a list of more than one")),
                    None => Ok(One(first)),
                }
            }
        }
        deserializer.deserialize_seq(First(PhantomData))
    }
}

/// An object of this shape, where a derived reader would also take a list of its members.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Shape<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Shape(PhantomData))
    }
}

/// An object of this shape; `None` for anything else.
pub(crate) fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    // A derived reader would also take a list.
    if text.starts_with('{') { serde_json::from_str(text).ok() } else { None }
}

/// Reads an object of this shape, or its default when the value is another thing.
pub(crate) fn read<'a, T: Deserialize<'a> + Default>(raw: Raw<'a>) -> T {
    raw.and_then(|raw| object(raw.get())).unwrap_or_default()
}

/// The members of a list; none for another kind of value.
pub(crate) fn items<'a>(raw: Raw<'a>) -> Vec<&'a RawValue> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// The members of an object in their order, with their values as they stand.
#[derive(Debug, Default)]
pub(crate) struct Members<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads an object; `None` for anything else.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The first value of this name.
    pub(crate) fn get(&self, name: &str) -> Raw<'a> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

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
