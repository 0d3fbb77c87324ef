//! What requests to one model must do without, learned from its refusals. Pure: the same repairs give the same bytes.
//!
//! A repair holds for the model and not for one request, so that the body of a request stays a prefix of the next one
//! (I18): it changes once, when the refusal comes. Pictures are refused one by one and not as such: what was in the
//! refused request is left out from then on, what comes later is sent.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use serde_json::Value;

use crate::chat::{ChatMessage, ChatRequest, Image};
use crate::error::Remedy;
use crate::json::Members;

/// Members of a body without which it asks for something else. They are never left out.
const NEEDED: &[&str] = &[
    "model",
    "modelId",
    "messages",
    "input",
    "contents",
    "system",
    "instructions",
    "systemInstruction",
    "tools",
    "stream",
];
/// How deep below the top a field is looked for when the server names it alone.
const MAX_DEPTH: usize = 2;
/// Most fields that are left out.
const MAX_FIELDS: usize = 32;
/// Most pictures that are remembered as refused.
const MAX_REFUSED: usize = 4096;
/// What stands where a picture was.
const NO_IMAGE: &str = "[a picture was here that the provider does not accept]";
/// What stands between messages that became one.
const SEAM: &str = "\n\n";
/// The effort that asks for no reasoning, and the weakest that all know.
const LEAST: (&str, &str) = ("none", "low");

/// What requests to one model must do without.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Names that are left out or written differently.
    fields: Vec<(String, Option<String>)>,
    refused: Refused,
    no_tool_images: bool,
    plain_schemas: bool,
    least_reasoning: bool,
    merge_roles: bool,
    no_stream: bool,
}

impl Repairs {
    /// The same and what this remedy wants for a refused request; `None` when that is nothing new.
    #[must_use]
    pub fn with(&self, remedy: &Remedy, request: &ChatRequest) -> Option<Self> {
        let mut new = self.clone();
        match remedy {
            Remedy::DropField(name) => new.field(name, None),
            Remedy::RenameField { from, to } => new.field(from, Some(to.clone())),
            Remedy::DropImages => {
                new.refused.extend(request.messages.iter().flat_map(images).map(|image| mark(&image.data)));
            }
            Remedy::DropToolImages => new.no_tool_images = true,
            Remedy::PlainSchemas => new.plain_schemas = true,
            Remedy::LeastReasoning => new.least_reasoning = true,
            Remedy::MergeRoles => new.merge_roles = true,
            Remedy::WholeAnswer => new.no_stream = true,
        }
        (new != *self).then_some(new)
    }

    fn field(&mut self, name: &str, new: Option<String>) {
        let entry = (name.to_owned(), new);
        let is_needed = name.split('.').next().is_none_or(|first| NEEDED.contains(&first));
        if !is_needed && self.fields.len() < MAX_FIELDS && !self.fields.contains(&entry) {
            self.fields.push(entry);
        }
    }

    /// Whether the answer to this request comes as a stream.
    #[must_use]
    pub fn streams(&self, request: &ChatRequest) -> bool {
        request.stream && !self.no_stream
    }

    /// The request as this model takes it.
    #[must_use]
    pub fn request<'a>(&self, request: &'a ChatRequest) -> Cow<'a, ChatRequest> {
        let plain = Self { fields: self.fields.clone(), ..Self::default() };
        if *self == plain {
            return Cow::Borrowed(request);
        }
        let mut new = request.clone();
        new.stream = self.streams(request);
        if self.least_reasoning && new.reasoning_effort.as_deref() == Some(LEAST.0) {
            new.reasoning_effort = Some(LEAST.1.to_owned());
        }
        if self.plain_schemas {
            let mut tools = new.tools.to_vec();
            tools.iter_mut().for_each(|tool| plain_schema(&mut tool.parameters));
            new.tools = tools.into();
        }
        new.messages.iter_mut().for_each(|message| self.message(message));
        if self.merge_roles {
            merge_users(&mut new);
        }
        Cow::Owned(new)
    }

    fn message(&self, message: &mut ChatMessage) {
        match message {
            ChatMessage::User { text, images } => self.images(text, images, false),
            ChatMessage::Tool { content, images, .. } => self.images(content, images, self.no_tool_images),
            ChatMessage::Assistant { .. } => {}
        }
    }

    fn images(&self, text: &mut String, images: &mut Vec<Image>, all: bool) {
        let before = images.len();
        images.retain(|image| !all && !self.refused.has(mark(&image.data)));
        for _ in images.len()..before {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(NO_IMAGE);
        }
    }

    /// The body without the refused fields; everything else keeps its bytes and its order.
    #[must_use]
    pub fn body(&self, body: Bytes) -> Bytes {
        self.fields.iter().fold(body, |body, (name, new)| {
            let path: Vec<&str> = name.split('.').collect();
            let Ok(text) = std::str::from_utf8(&body) else { return body };
            let depth = if path.len() == 1 { MAX_DEPTH } else { 0 };
            edited(text, &path, new.as_deref(), depth).map_or_else(|| body.clone(), Bytes::from)
        })
    }
}

fn images(message: &ChatMessage) -> &[Image] {
    match message {
        ChatMessage::User { images, .. } | ChatMessage::Tool { images, .. } => images,
        ChatMessage::Assistant { .. } => &[],
    }
}

fn merge_users(request: &mut ChatRequest) {
    let mut ends = std::mem::take(&mut request.cache_ends);
    let mut out: Vec<ChatMessage> = Vec::with_capacity(request.messages.len());
    for (at, message) in std::mem::take(&mut request.messages).into_iter().enumerate() {
        match (out.last_mut(), message) {
            (Some(ChatMessage::User { text, images }), ChatMessage::User { text: more, images: more_images }) => {
                text.push_str(SEAM);
                text.push_str(&more);
                images.extend(more_images);
                // Places behind this message move with it.
                ends.iter_mut().filter(|end| **end >= at).for_each(|end| *end = end.saturating_sub(1));
            }
            (_, message) => out.push(message),
        }
    }
    request.cache_ends = ends;
    request.messages = out;
}

/// Takes `pattern` and `format` out of a schema and all schemas in it; a property of such a name stays.
fn plain_schema(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for key in ["pattern", "format"] {
                if members.get(key).is_some_and(Value::is_string) {
                    members.shift_remove(key);
                }
            }
            for (key, value) in members {
                match (key.as_str(), value) {
                    ("properties" | "$defs" | "definitions" | "patternProperties", Value::Object(named)) => {
                        named.values_mut().for_each(plain_schema);
                    }
                    ("enum" | "const" | "default" | "examples", _) => {}
                    (_, value) => plain_schema(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(plain_schema),
        _ => {}
    }
}

/// The object with the field of this path left out or renamed; `None` when it has none. A name alone is looked for in
/// `depth` levels of objects below too.
fn edited(text: &str, path: &[&str], new: Option<&str>, depth: usize) -> Option<String> {
    let (first, rest) = path.split_first()?;
    let Members(members) = Members::read(text)?;
    let has = members.iter().any(|(name, _)| name == first);
    let mut changed = false;
    let mut out = String::with_capacity(text.len());
    for (name, raw) in &members {
        let mut name: &str = name;
        let mut value = Cow::Borrowed(raw.get());
        if name == *first && rest.is_empty() {
            changed = true;
            match new {
                Some(new) => name = new,
                None => continue,
            }
        } else {
            let inner = match (name == *first, depth) {
                (true, _) => edited(raw.get(), rest, new, 0),
                (false, 1..) if !has && !NEEDED.contains(&name) => edited(raw.get(), path, new, depth - 1),
                _ => None,
            };
            if let Some(inner) = inner {
                changed = true;
                value = Cow::Owned(inner);
            }
        }
        out.push(if out.is_empty() { '{' } else { ',' });
        out.push_str(&serde_json::to_string(name).ok()?);
        out.push(':');
        out.push_str(&value);
    }
    if out.is_empty() {
        out.push('{');
    }
    out.push('}');
    changed.then_some(out)
}

/// Marks of pictures that were refused; the oldest are forgotten first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Refused {
    marks: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Refused {
    fn extend(&mut self, marks: impl Iterator<Item = u64>) {
        for mark in marks {
            if self.marks.insert(mark) {
                self.order.push_back(mark);
            }
            if self.order.len() > MAX_REFUSED
                && let Some(oldest) = self.order.pop_front()
            {
                self.marks.remove(&oldest);
            }
        }
    }

    fn has(&self, mark: u64) -> bool {
        self.marks.contains(&mark)
    }
}

fn mark(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
