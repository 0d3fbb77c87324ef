//! The content blocks of an answer: put together from a stream, kept in a sidecar, read from it again.
//!
//! A sidecar of this wire is a JSON list of the answer's blocks in the order in which they came. A block has its members
//! in the order in which the provider sent them, and values that came whole keep their bytes; what came in pieces
//! (thinking, text, a signature, the input of a call) is joined and written once. It is written when the answer says more
//! than text and calls can: thinking, redacted thinking, blocks of server tools, citations, another order.
//! What cannot go back is left out when it is written: blank text, and blocks that the stream cut.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::chat::CompletedCall;
use crate::json::{Members, Raw, is_whole_json, items, string};
use crate::mode::turns::KeptBlock;

/// Most blocks of one answer; more is no answer.
pub(super) const MAX_BLOCKS: usize = 4096;

/// Most members of one block. The maker's have six; each delta looks through all of them.
const MAX_MEMBERS: usize = 256;

/// What a block is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockKind {
    Text,
    Thinking,
    RedactedThinking,
    /// A call of one of our tools.
    ToolUse,
    /// Everything else: it is not read.
    Opaque,
}

impl BlockKind {
    pub(super) fn of(word: &str) -> Self {
        match word {
            "text" => Self::Text,
            "thinking" => Self::Thinking,
            "redacted_thinking" => Self::RedactedThinking,
            "tool_use" => Self::ToolUse,
            _ => Self::Opaque,
        }
    }

    pub(super) fn is_thinking(self) -> bool {
        matches!(self, Self::Thinking | Self::RedactedThinking)
    }
}

/// One member of a block while it grows.
#[derive(Debug)]
enum Member {
    /// As it came.
    Raw(String),
    /// Text that came in pieces.
    Text(String),
    /// A list that came in pieces.
    List(Vec<String>),
}

/// One block while it grows.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) kind: BlockKind,
    members: Vec<(String, Member)>,
    /// The block as it came, while nothing was added to it.
    whole: Option<String>,
    /// Position among the answer's calls.
    pub(super) call: Option<usize>,
    /// Input in pieces, of a tool that the server runs itself.
    input: String,
    /// Input of one of our calls came.
    pub(super) has_input: bool,
    /// The provider said that it is complete.
    pub(super) is_closed: bool,
}

impl Block {
    /// A block as it came; `None` for more than [`MAX_MEMBERS`].
    pub(super) fn new(kind: BlockKind, raw: &str, members: &Members<'_>) -> Option<Self> {
        if members.0.len() > MAX_MEMBERS {
            return None;
        }
        let members = members.0.iter().map(|(key, value)| (key.clone(), Member::Raw(value.get().to_owned()))).collect();
        Some(Self { whole: Some(raw.to_owned()), ..Self::of(kind, members) })
    }

    /// A block whose start never came.
    pub(super) fn bare(kind: BlockKind, word: &str) -> Self {
        let members = vec![("type".to_owned(), Member::Raw(format!("\"{word}\"")))];
        Self::of(kind, members)
    }

    fn of(kind: BlockKind, members: Vec<(String, Member)>) -> Self {
        Self { kind, members, whole: None, call: None, input: String::new(), has_input: false, is_closed: false }
    }

    fn member(&mut self, key: &str) -> &mut Member {
        self.whole = None;
        let at = self.members.iter().position(|(known, _)| known == key).unwrap_or(self.members.len());
        if at == self.members.len() {
            self.members.push((key.to_owned(), Member::Raw("null".to_owned())));
        }
        &mut self.members[at].1
    }

    /// More of a text.
    pub(super) fn append(&mut self, key: &str, more: &str) {
        let member = self.member(key);
        match member {
            Member::Text(text) => text.push_str(more),
            Member::Raw(raw) => {
                let begun = serde_json::from_str::<&RawValue>(raw).ok().and_then(string).unwrap_or_default();
                *member = Member::Text(begun + more);
            }
            Member::List(_) => {}
        }
    }

    /// One more element of a list.
    pub(super) fn push(&mut self, key: &str, element: &RawValue) {
        let member = self.member(key);
        if let Member::Raw(raw) = member {
            let begun = items(serde_json::from_str(raw).ok());
            *member = Member::List(begun.into_iter().map(|element| element.get().to_owned()).collect());
        }
        if let Member::List(list) = member {
            list.push(element.get().to_owned());
        }
    }

    /// Whether there is room for a member of this name.
    pub(super) fn has_room(&self, key: &str) -> bool {
        self.members.len() < MAX_MEMBERS || self.members.iter().any(|(known, _)| known == key)
    }

    /// Another value.
    pub(super) fn put(&mut self, key: &str, value: &RawValue) {
        *self.member(key) = Member::Raw(value.get().to_owned());
    }

    /// Whether text and calls say everything that this block says.
    fn is_plain(&self) -> bool {
        let known: &[&str] = match self.kind {
            BlockKind::Text => &["type", "text"],
            BlockKind::ToolUse => &["type", "id", "name", "input"],
            _ => return false,
        };
        let is_empty = |member: &Member| match member {
            Member::Raw(raw) => matches!(raw.as_str(), "null" | "[]" | "{}"),
            Member::Text(text) => text.is_empty(),
            Member::List(list) => list.is_empty(),
        };
        self.members.iter().all(|(key, member)| known.contains(&key.as_str()) || is_empty(member))
    }

    fn is_blank_text(&self) -> bool {
        let text = self.members.iter().find(|(key, _)| key == "text").map(|(_, member)| member);
        self.kind == BlockKind::Text
            && match text {
                Some(Member::Text(text)) => text.trim().is_empty(),
                Some(Member::Raw(raw)) => {
                    let text = serde_json::from_str::<&RawValue>(raw).ok().and_then(string);
                    text.is_none_or(|text| text.trim().is_empty())
                }
                _ => true,
            }
    }

    /// Writes the block; `input` takes the place of that of a call.
    fn write(&self, input: Option<&str>, out: &mut String) {
        if let Some(whole) = self.whole.as_deref().filter(|_| input.is_none()) {
            return out.push_str(whole);
        }
        let mut first = true;
        let mut key_of = |key: &str, out: &mut String| {
            out.push(if std::mem::take(&mut first) { '{' } else { ',' });
            out.push_str(&json(key));
            out.push(':');
        };
        for (key, member) in &self.members {
            key_of(key, out);
            match member {
                Member::Raw(_) if key == "input" && input.is_some() => out.push_str(input.unwrap_or_default()),
                Member::Raw(raw) => out.push_str(raw),
                Member::Text(text) => out.push_str(&json(text)),
                Member::List(list) => {
                    out.push('[');
                    out.push_str(&list.join(","));
                    out.push(']');
                }
            }
        }
        if let Some(input) = input.filter(|_| !self.members.iter().any(|(key, _)| key == "input")) {
            key_of("input", out);
            out.push_str(input);
        }
        out.push('}');
    }
}

/// A text as JSON; cannot fail for a string.
fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// The sidecar's bytes; `None` when text and calls say everything.
pub(super) fn sidecar(blocks: &[Block], calls: &[CompletedCall]) -> Option<String> {
    if is_plain(blocks) {
        return None;
    }
    let mut out = String::from("[");
    for block in blocks {
        let call = block.call.and_then(|at| calls.get(at));
        // The input as it came, when it came in pieces.
        let input = call.map(|call| call.arguments.as_str()).filter(|_| block.whole_input().is_none());
        let is_cut = match block.kind {
            BlockKind::Text => block.is_blank_text(),
            // What was cut has no signature yet; its reader sees that.
            BlockKind::Thinking => false,
            BlockKind::ToolUse => call.is_none_or(|call| !call.whole || !call.arguments.trim_start().starts_with('{')),
            BlockKind::RedactedThinking | BlockKind::Opaque => !block.is_closed,
        };
        if is_cut {
            continue;
        }
        if out.len() > 1 {
            out.push(',');
        }
        block.write(input, &mut out);
    }
    out.push(']');
    (out.len() > 2).then_some(out)
}

impl Block {
    /// The input of a call, when the whole of it came with the block's start.
    pub(super) fn whole_input(&self) -> Option<&str> {
        let input = self.members.iter().find(|(key, _)| key == "input");
        match input {
            Some((_, Member::Raw(raw))) if raw.starts_with('{') && raw[1..].trim_start() != "}" => Some(raw),
            _ => None,
        }
    }

    /// More input. That of the block's start counts no more.
    pub(super) fn more_input(&mut self, more: &str) {
        self.has_input = true;
        if self.kind == BlockKind::Opaque {
            self.input.push_str(more);
        }
        if self.whole_input().is_some() {
            *self.member("input") = Member::Raw("{}".to_owned());
        }
    }

    /// The provider says that the block is complete.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        let input = std::mem::take(&mut self.input);
        if input.trim().is_empty() {
            return;
        }
        // An input that is no JSON cannot go back, and so its block cannot.
        self.is_closed = is_whole_json(&input);
        if self.is_closed {
            *self.member("input") = Member::Raw(input);
        }
    }

    /// Whether a text of this name has not begun.
    pub(super) fn lacks(&self, key: &str) -> bool {
        match self.members.iter().find(|(known, _)| known == key) {
            Some((_, Member::Text(text))) => text.is_empty(),
            Some((_, Member::Raw(raw))) => matches!(raw.as_str(), "null" | "\"\""),
            _ => true,
        }
    }
}

/// At most one text, then calls, and nothing in them that we do not know.
fn is_plain(blocks: &[Block]) -> bool {
    let mut texts = 0;
    let mut calls = 0;
    for block in blocks.iter().filter(|block| !block.is_blank_text()) {
        match block.kind {
            BlockKind::Text if calls == 0 => texts += 1,
            BlockKind::ToolUse => calls += 1,
            _ => return false,
        }
        if texts > 1 || !block.is_plain() {
            return false;
        }
    }
    true
}

/// One block as it goes back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept<'a> {
    pub(super) kind: BlockKind,
    /// The exact bytes.
    pub(super) raw: &'a str,
    /// The id, of a call.
    id: Raw<'a>,
    /// Whether thinking is signed.
    pub(super) is_signed: bool,
}

impl KeptBlock for Kept<'_> {
    fn is_call(&self) -> bool {
        self.kind == BlockKind::ToolUse
    }

    fn call_id(&self) -> Option<String> {
        self.id.and_then(string)
    }

    fn is_thinking(&self) -> bool {
        self.kind.is_thinking()
    }
}

/// The blocks of a sidecar; nothing for bytes that are none.
pub(super) fn read_sidecar(bytes: &[u8]) -> Vec<Kept<'_>> {
    let Ok(raws) = serde_json::from_slice::<Vec<&RawValue>>(bytes) else { return Vec::new() };
    let kept = raws.into_iter().filter_map(|raw| {
        let members = Members::read(raw.get())?;
        let kind = BlockKind::of(&members.get("type").and_then(string)?);
        let signature = members.get("signature").and_then(string);
        let is_signed = signature.is_some_and(|signature| !signature.is_empty());
        Some(Kept { kind, raw: raw.get(), id: members.get("id"), is_signed })
    });
    kept.collect()
}
