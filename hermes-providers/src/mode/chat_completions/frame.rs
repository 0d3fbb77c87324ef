//! One chunk of a stream (or one whole body) as loosely typed values.
//!
//! Every field is raw until it is needed, so a field of an unexpected kind costs that field and not the chunk.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::{Object, One, Raw, Text, object, read, string};

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

/// A chunk in the shape that nearly all of them have, read in one go. Of lists and members it takes the same as [`Chunk`]
/// and what follows from it; a chunk that is anything else is read in that way.
#[derive(Debug, Deserialize)]
pub(super) struct QuickChunk<'a> {
    #[serde(borrow, default)]
    error: Raw<'a>,
    #[serde(borrow, default)]
    object: Option<Text<'a>>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) model: Option<Text<'a>>,
    #[serde(borrow)]
    choices: One<Object<QuickChoice<'a>>>,
    #[serde(borrow, default)]
    usage: Raw<'a>,
}

/// The choice of such a chunk.
#[derive(Debug, Deserialize)]
struct QuickChoice<'a> {
    #[serde(borrow)]
    delta: Object<QuickMessage<'a>>,
    #[serde(borrow, default)]
    message: Raw<'a>,
    #[serde(borrow, default)]
    finish_reason: Raw<'a>,
    #[serde(borrow, default)]
    error: Raw<'a>,
    #[serde(borrow, default)]
    usage: Raw<'a>,
}

/// What it adds.
#[derive(Debug, Deserialize)]
pub(super) struct QuickMessage<'a> {
    #[serde(borrow, default)]
    pub(super) content: Option<Text<'a>>,
    #[serde(borrow, default)]
    refusal: Raw<'a>,
    #[serde(borrow, default)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning_text: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning_details: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<One<Object<QuickCall<'a>>>>,
    #[serde(borrow, default)]
    function_call: Raw<'a>,
}

/// One fragment of a call in it.
#[derive(Debug, Deserialize)]
pub(super) struct QuickCall<'a> {
    #[serde(default)]
    pub(super) index: Option<i64>,
    #[serde(borrow, default)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) function: Option<Object<QuickFunction<'a>>>,
}

/// Its inner part.
#[derive(Debug, Default, Deserialize)]
pub(super) struct QuickFunction<'a> {
    #[serde(borrow, default)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<Text<'a>>,
}

impl<'a> QuickChunk<'a> {
    /// Reads a chunk that is nothing but more text, reasoning or a fragment of a call, and the model's name.
    pub(super) fn parse(text: &'a str) -> Option<(QuickMessage<'a>, Option<Text<'a>>)> {
        let chunk: Self = object(text)?;
        let is_error = |word: &Option<Text<'_>>| word.as_deref() == Some("error");
        let Object(choice) = chunk.choices.0?;
        let has_more =
            chunk.error.is_some() || chunk.usage.is_some() || is_error(&chunk.object) || is_error(&chunk.kind);
        let ends = [choice.message, choice.finish_reason, choice.error, choice.usage].iter().any(Option::is_some);
        let Object(delta) = choice.delta;
        let is_odd = [delta.refusal, delta.reasoning_details, delta.function_call].iter().any(Option::is_some);
        (!has_more && !ends && !is_odd).then_some((delta, chunk.model))
    }
}

impl QuickMessage<'_> {
    /// Several fields carry the same reasoning; the first that is filled is taken.
    pub(super) fn reasoning(&self) -> &str {
        let fields = [&self.reasoning_content, &self.reasoning, &self.reasoning_text];
        fields.into_iter().flatten().map(|text| &**text).find(|text| !text.is_empty()).unwrap_or_default()
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
