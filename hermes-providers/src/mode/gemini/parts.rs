//! The parts of a model's message: read while they arrive, kept for the way back, and replayed.
//!
//! A sidecar of this wire is the JSON list of the parts, in their order. Each keeps its bytes; only neighbours that are
//! nothing but unsigned text are joined, because a stream cuts text anywhere. The maker forbids to join a signed part
//! with another one.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::chat::{Sidecar, ToolCall};
use crate::json::{Raw, read, string};
use crate::mode::names::NameMap;

/// One part.
#[derive(Debug, Default)]
pub(super) struct Part<'a> {
    text: Raw<'a>,
    /// A summary of the model's thoughts.
    pub(super) is_thought: bool,
    signature: Raw<'a>,
    call: Raw<'a>,
    /// There is a member that this program does not read.
    has_other: bool,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Key {
    Text,
    Thought,
    ThoughtSignature,
    FunctionCall,
    #[serde(other)]
    Other,
}

struct PartVisitor;

impl<'de> Visitor<'de> for PartVisitor {
    type Value = Part<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut part = Part::default();
        while let Some(key) = map.next_key()? {
            match key {
                Key::Text => part.text = map.next_value()?,
                Key::Thought => part.is_thought = map.next_value::<Raw<'de>>()?.is_some_and(|raw| raw.get() == "true"),
                Key::ThoughtSignature => part.signature = map.next_value()?,
                Key::FunctionCall => part.call = map.next_value()?,
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                    part.has_other = true;
                }
            }
        }
        Ok(part)
    }
}

impl<'de> Deserialize<'de> for Part<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PartVisitor)
    }
}

impl Part<'_> {
    /// Text of the answer or of a thought.
    pub(super) fn text(&self) -> String {
        self.text.and_then(string).unwrap_or_default()
    }

    /// The call, when the part is one.
    pub(super) fn call(&self) -> Option<Call> {
        self.call.map(Call::read)
    }

    /// True for a part that says nothing at all.
    pub(super) fn is_empty(&self) -> bool {
        self.is_plain() && self.text().is_empty()
    }

    fn is_signed(&self) -> bool {
        self.signature.and_then(string).is_some_and(|signature| !signature.is_empty())
    }

    fn is_plain(&self) -> bool {
        !self.is_signed() && self.call.is_none() && !self.has_other
    }
}

/// A call that the model made. It arrives whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Models before Gemini 3 give none.
    pub(super) id: Option<String>,
    /// The name on the wire; empty when there was none.
    pub(super) name: String,
    /// The arguments' exact bytes; a call without `args` has none, which is the empty object.
    pub(super) arguments: String,
    /// False when more of the arguments was to follow.
    pub(super) is_whole: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCall<'a> {
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    name: Raw<'a>,
    #[serde(borrow, default)]
    args: Raw<'a>,
    #[serde(borrow, default)]
    partial_args: Raw<'a>,
    #[serde(borrow, default)]
    will_continue: Raw<'a>,
}

impl Call {
    fn read(raw: &RawValue) -> Self {
        let call: RawCall<'_> = read(Some(raw));
        let arguments = call.args.filter(|args| args.get() != "null");
        Self {
            id: call.id.and_then(string).filter(|id| !id.is_empty()),
            name: call.name.and_then(string).unwrap_or_default(),
            arguments: arguments.map_or_else(|| "{}".to_owned(), |args| args.get().to_owned()),
            is_whole: call.partial_args.is_none() && call.will_continue.is_none_or(|raw| raw.get() != "true"),
        }
    }
}

/// The parts of one answer, as they are kept.
#[derive(Debug, Default)]
pub(super) struct Kept {
    parts: Vec<KeptPart>,
    /// There is something that the text alone does not say.
    is_needed: bool,
}

#[derive(Debug)]
enum KeptPart {
    Exact(String),
    /// Joined neighbours of unsigned text.
    Text {
        text: String,
        is_thought: bool,
    },
}

impl Kept {
    /// Keeps a part. An unsigned part without text says nothing, and the server refuses it.
    pub(super) fn add(&mut self, raw: &RawValue, part: &Part<'_>) {
        if !part.is_plain() {
            self.is_needed = true;
            return self.parts.push(KeptPart::Exact(raw.get().to_owned()));
        }
        let more = part.text();
        if more.is_empty() {
            return;
        }
        self.is_needed |= part.is_thought;
        match self.parts.last_mut() {
            Some(KeptPart::Text { text, is_thought }) if *is_thought == part.is_thought => text.push_str(&more),
            _ => self.parts.push(KeptPart::Text { text: more, is_thought: part.is_thought }),
        }
    }

    /// The sidecar; none for an answer that is nothing but unsigned text.
    pub(super) fn sidecar(&self, issuer: &Arc<str>) -> Option<Sidecar> {
        if !self.is_needed {
            return None;
        }
        let mut out = String::from("[");
        for (at, part) in self.parts.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            match part {
                KeptPart::Exact(raw) => out.push_str(raw),
                KeptPart::Text { text, is_thought } => {
                    out.push_str("{\"text\":");
                    out.push_str(&serde_json::to_string(text).unwrap_or_default());
                    out.push_str(if *is_thought { ",\"thought\":true}" } else { "}" });
                }
            }
        }
        out.push(']');
        Some(Sidecar { issuer: Arc::clone(issuer), bytes: Bytes::from(out) })
    }
}

/// A part as it goes back.
#[derive(Debug)]
pub(super) struct Replayed<'a> {
    /// The exact bytes of the part, an object.
    pub(super) raw: &'a str,
    /// The call in it.
    pub(super) call: Option<Call>,
}

/// The parts of a stored message, and whether any of them is signed.
#[derive(Debug)]
pub(super) struct Replay<'a> {
    pub(super) parts: Vec<Replayed<'a>>,
    pub(super) is_signed: bool,
}

/// What a sidecar of our own holds, when it still is this message: the same text and the same calls. A message that was
/// changed since goes out as what it is now.
pub(super) fn replay<'a>(bytes: &'a [u8], text: &str, calls: &[ToolCall], names: &NameMap) -> Option<Replay<'a>> {
    let raws: Vec<&RawValue> = serde_json::from_slice(bytes).ok()?;
    let mut replay = Replay { parts: Vec::with_capacity(raws.len()), is_signed: false };
    let mut said = String::new();
    let mut rest = calls.iter();
    for raw in raws {
        let part: Part<'_> = serde_json::from_str(raw.get()).ok()?;
        replay.is_signed |= part.is_signed();
        let call = part.call();
        if let Some(call) = &call {
            let stored = rest.next()?;
            if stored.arguments != call.arguments || stored.name != names.real(&call.name) {
                return None;
            }
        }
        if !part.is_thought {
            said.push_str(&part.text());
        }
        replay.parts.push(Replayed { raw: raw.get(), call });
    }
    (rest.next().is_none() && said == text && !replay.parts.is_empty()).then_some(replay)
}
