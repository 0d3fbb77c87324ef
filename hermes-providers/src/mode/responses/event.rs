//! One event of a stream, one whole answer, one item, as loosely typed values.
//!
//! Every field is raw until it is needed, so a field of an unexpected kind costs that field and not the event.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::{Raw, Text, integer, items, object, read, string};

/// The top level of an event.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    item_id: Raw<'a>,
    #[serde(borrow, default)]
    output_index: Raw<'a>,
    #[serde(borrow, default)]
    call_id: Raw<'a>,
    #[serde(borrow, default)]
    summary_index: Raw<'a>,
    #[serde(borrow, default)]
    content_index: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) delta: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) name: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) arguments: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) item: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) response: Raw<'a>,
    #[serde(borrow, default)]
    error: Raw<'a>,
    #[serde(borrow, default)]
    object: Raw<'a>,
}

impl<'a> Event<'a> {
    /// Reads an event; `None` for what is no JSON object.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        object(text)
    }

    /// The type, which stands in the JSON and again in the `event` field; either may be missing.
    pub(super) fn kind(&self, name: &'a str) -> Cow<'a, str> {
        self.kind.and_then(word).unwrap_or(Cow::Borrowed(name))
    }

    /// Whether it tells an error, whatever it says of its type. `response.failed` is none of these: its error lies deeper.
    pub(super) fn is_error(&self, kind: &str) -> bool {
        let is_named = self.object.and_then(word).is_some_and(|object| object == "error");
        // Events with a type may have an empty member of this name.
        matches!(kind, "error" | "response.error") || is_named || (self.kind.is_none() && is_filled(self.error))
    }

    /// Which item it is about.
    pub(super) fn about(&self) -> About<'a> {
        About {
            call_id: self.call_id.and_then(name),
            id: self.item_id.and_then(name),
            index: self.output_index.and_then(integer),
        }
    }

    /// Which part of the item it is about.
    pub(super) fn part(&self) -> i64 {
        self.summary_index.or(self.content_index).and_then(integer).unwrap_or(0)
    }
}

/// A delta in the shape that nearly all of them have, read in one go.
#[derive(Debug, Deserialize)]
pub(super) struct QuickDelta<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow, default)]
    item_id: Option<Text<'a>>,
    #[serde(default)]
    output_index: Option<i64>,
    #[serde(borrow, default)]
    call_id: Option<Text<'a>>,
    #[serde(default)]
    summary_index: Option<i64>,
    #[serde(default)]
    content_index: Option<i64>,
    #[serde(borrow)]
    pub(super) delta: Cow<'a, str>,
}

impl<'a> QuickDelta<'a> {
    /// Which part of the item it is about.
    pub(super) fn part(&self) -> i64 {
        self.summary_index.or(self.content_index).unwrap_or(0)
    }

    /// Which item it is about, and what came.
    pub(super) fn split(self) -> (About<'a>, Cow<'a, str>) {
        let named = |name: Option<Text<'a>>| name.map(|name| name.0).filter(|name| !name.is_empty());
        let about = About { call_id: named(self.call_id), id: named(self.item_id), index: self.output_index };
        (about, self.delta)
    }
}

/// What names an item.
#[derive(Debug, Default)]
pub(super) struct About<'a> {
    pub(super) call_id: Option<Cow<'a, str>>,
    pub(super) id: Option<Cow<'a, str>>,
    /// Its place in the output.
    pub(super) index: Option<i64>,
}

/// The answer as a whole, as the first and the last events carry it and as it stands alone.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Response<'a> {
    #[serde(borrow, default)]
    status: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) error: Raw<'a>,
    #[serde(borrow, default)]
    incomplete_details: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) output: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) usage: Raw<'a>,
    #[serde(borrow, default)]
    model: Raw<'a>,
}

impl Response<'_> {
    /// The status in lower case; empty when there is none.
    pub(super) fn status(&self) -> String {
        self.status.and_then(string).unwrap_or_default().trim().to_lowercase()
    }

    /// Why the answer is not complete, in lower case.
    pub(super) fn reason(&self) -> Option<String> {
        let details: Details<'_> = read(self.incomplete_details);
        let reason = details.reason.and_then(string)?.trim().to_lowercase();
        (!reason.is_empty()).then_some(reason)
    }

    pub(super) fn has_error(&self) -> bool {
        is_filled(self.error)
    }

    pub(super) fn model(&self) -> Option<String> {
        self.model.and_then(string).filter(|model| !model.is_empty())
    }
}

#[derive(Debug, Default, Deserialize)]
struct Details<'a> {
    #[serde(borrow, default)]
    reason: Raw<'a>,
}

/// The kinds of items that mean something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Reasoning,
    Call,
    /// Anything else, among it opaque items that go back.
    Other,
}

/// An item of the output.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Item<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    call_id: Raw<'a>,
    #[serde(borrow, default)]
    status: Raw<'a>,
    #[serde(borrow, default)]
    phase: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) name: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) arguments: Raw<'a>,
    #[serde(borrow, default)]
    content: Raw<'a>,
    #[serde(borrow, default)]
    summary: Raw<'a>,
    #[serde(borrow, default)]
    encrypted_content: Raw<'a>,
}

impl<'a> Item<'a> {
    pub(super) fn kind(&self) -> Kind {
        match self.kind.and_then(word).as_deref() {
            Some("message") => Kind::Message,
            Some("reasoning") => Kind::Reasoning,
            Some("function_call") => Kind::Call,
            _ => Kind::Other,
        }
    }

    pub(super) fn about(&self, index: Option<i64>) -> About<'a> {
        About { call_id: self.call_id.and_then(name), id: self.id.and_then(name), index }
    }

    /// Whether the provider finished it: an answer that was cut ends with an item that is not.
    pub(super) fn is_complete(&self) -> bool {
        self.status.and_then(word).is_none_or(|status| status == "completed")
    }

    pub(super) fn phase(&self) -> Option<Cow<'a, str>> {
        self.phase.and_then(name)
    }

    /// Whether a message is what the model says to itself on its way.
    pub(super) fn is_thought(&self) -> bool {
        self.phase().is_some_and(|phase| is_thought(&phase))
    }

    /// The text of a message, and whether nothing but a refusal is in it.
    pub(super) fn message(&self) -> (String, bool) {
        if let Some(text) = self.content.and_then(string) {
            return (text, false);
        }
        let mut all = String::new();
        let mut is_refusal = false;
        let mut is_text = false;
        for raw in items(self.content) {
            let part: Part<'_> = read(Some(raw));
            match (part.text.and_then(string), part.refusal.and_then(string)) {
                (Some(text), _) => {
                    is_text |= !text.is_empty();
                    all.push_str(&text);
                }
                (None, Some(refusal)) => {
                    is_refusal |= !refusal.is_empty();
                    all.push_str(&refusal);
                }
                (None, None) => {}
            }
        }
        (all, is_refusal && !is_text)
    }

    /// The readable parts of reasoning: its summary, or the reasoning itself where there is none.
    pub(super) fn reasoning(&self) -> Vec<String> {
        let texts = |list: Raw<'_>| -> Vec<String> {
            let of = |raw: &&RawValue| read::<Part<'_>>(Some(raw)).text.and_then(string);
            items(list).iter().filter_map(of).filter(|text| !text.is_empty()).collect()
        };
        let summary = texts(self.summary);
        if summary.is_empty() { texts(self.content) } else { summary }
    }

    /// Whether there is anything in it that a server without memory can use: its own encrypted state, or open reasoning.
    pub(super) fn is_worth_keeping(&self) -> bool {
        let is_encrypted = self.encrypted_content.and_then(name).is_some();
        is_encrypted || (self.kind() == Kind::Reasoning && !items(self.content).is_empty())
    }
}

/// Whether a message of this phase is no part of the visible answer.
pub(super) fn is_thought(phase: &str) -> bool {
    matches!(phase, "commentary" | "analysis")
}

/// A part of a message or of reasoning.
#[derive(Debug, Default, Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Raw<'a>,
    #[serde(borrow, default)]
    refusal: Raw<'a>,
}

/// Arguments: a string, and from some servers the object itself.
pub(super) fn arguments(raw: Raw<'_>) -> Option<String> {
    let raw = raw?;
    string(raw).or_else(|| raw.get().starts_with('{').then(|| raw.get().to_owned()))
}

/// A string, borrowed when it has no escapes.
fn word(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"').and_then(|text| text.strip_suffix('"'))?;
    if inner.contains('\\') { string(raw).map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

/// A string that names something: not empty.
fn name(raw: &RawValue) -> Option<Cow<'_, str>> {
    word(raw).filter(|text| !text.is_empty())
}

fn is_filled(raw: Raw<'_>) -> bool {
    raw.is_some_and(|raw| !matches!(raw.get(), "null" | "{}" | "\"\"" | "false" | "[]"))
}
