//! One chunk of a stream (or one whole body) as loosely typed values.
//!
//! Every field is raw until it is needed, so a field of an unexpected kind costs that field and not the chunk.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::{Raw, read, string};

/// The top level.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow, default)]
    pub(super) error: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) object: Raw<'a>,
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) model: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) choices: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) usage: Raw<'a>,
}

impl Chunk<'_> {
    /// True when the chunk is an error, whatever else it holds.
    pub(super) fn is_error(&self) -> bool {
        let named = |raw: Raw<'_>| raw.and_then(string).is_some_and(|text| text == "error");
        let filled = self.error.is_some_and(|raw| !matches!(raw.get(), "{}" | "\"\"" | "false" | "[]"));
        filled || named(self.object) || named(self.kind)
    }
}

/// One choice; only the first one is read.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(borrow, default)]
    pub(super) delta: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) message: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) error: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) usage: Raw<'a>,
}

/// What a choice adds.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    pub(super) content: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) refusal: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_text: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_details: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) function_call: Raw<'a>,
}

/// One fragment of a call.
#[derive(Debug, Default, Deserialize)]
pub(super) struct CallPart<'a> {
    #[serde(borrow, default)]
    pub(super) index: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) id: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) function: Raw<'a>,
}

/// The inner part of a call.
#[derive(Debug, Default, Deserialize)]
pub(super) struct FunctionPart<'a> {
    #[serde(borrow, default)]
    pub(super) name: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) arguments: Raw<'a>,
}

/// A part of a content list.
#[derive(Debug, Default, Deserialize)]
struct ContentPart<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    text: Raw<'a>,
    #[serde(borrow, default)]
    thinking: Raw<'a>,
    #[serde(borrow, default)]
    reasoning: Raw<'a>,
    #[serde(borrow, default)]
    refusal: Raw<'a>,
}

/// The members of a list, or the value itself when it is no list.
pub(super) fn items<'a>(raw: Raw<'a>) -> Vec<&'a RawValue> {
    let Some(raw) = raw else { return Vec::new() };
    match serde_json::from_str::<Vec<&'a RawValue>>(raw.get()) {
        Ok(items) => items,
        Err(_) if raw.get().starts_with('{') => vec![raw],
        Err(_) => Vec::new(),
    }
}

/// Text and reasoning of `content`, which is a string or a list of parts (B16).
pub(super) fn content(raw: Raw<'_>) -> (String, String) {
    let Some(raw) = raw else { return Default::default() };
    if let Some(text) = string(raw) {
        return (text, String::new());
    }
    let (mut text, mut reasoning) = (String::new(), String::new());
    for item in items(Some(raw)) {
        if let Some(plain) = string(item) {
            text.push_str(&plain);
            continue;
        }
        let part: ContentPart<'_> = read(Some(item));
        let kind = part.kind.and_then(string).unwrap_or_default();
        let thought = part.thinking.or(part.reasoning);
        if thought.is_some() || kind.contains("thinking") || kind.contains("reasoning") {
            let (inner, nested) = content(thought.or(part.text));
            reasoning.push_str(&inner);
            reasoning.push_str(&nested);
        } else if let Some(more) = part.text.or(part.refusal).and_then(string) {
            text.push_str(&more);
        }
    }
    (text, reasoning)
}
