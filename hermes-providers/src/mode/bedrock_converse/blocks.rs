//! The content blocks of an answer: put together, kept in a sidecar, read from it again.
//!
//! A sidecar of this wire is a JSON list of the blocks as they go back, in the order in which they came. It is written
//! when the answer says more than text and calls can: signed or encrypted reasoning, blocks that this program does not
//! know, another order. Reasoning without a signature is not kept: only what is signed is taken back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::chat::CompletedCall;
use crate::json::{object, read, string};
use crate::mode::bedrock_converse::event::{Content, Reasoning, ToolUse};
use crate::mode::turns::KeptBlock;

/// Most blocks of one answer; more is no answer.
pub(super) const MAX_BLOCKS: usize = 4096;

/// What a block holds.
#[derive(Debug)]
pub(super) enum Held {
    /// Nothing yet that tells.
    Unknown,
    Text(String),
    Reasoning {
        text: String,
        signature: String,
        /// Encrypted reasoning in base64, one member for each piece.
        redacted: Vec<String>,
    },
    /// A call: its position among the answer's calls, its id and its name on the wire.
    Call {
        at: usize,
        id: String,
        name: String,
    },
    /// Of a tool that the provider runs itself: not shown, and not put together.
    Servers,
    /// A whole block as it came.
    Raw(String),
}

/// One block while it grows.
#[derive(Debug)]
pub(super) struct Block {
    /// The provider's index.
    pub(super) index: i64,
    pub(super) held: Held,
    /// Input of a call came.
    pub(super) has_input: bool,
    /// The provider said that it is complete.
    pub(super) is_closed: bool,
}

impl Block {
    pub(super) fn new(index: i64, held: Held) -> Self {
        Self { index, held, has_input: false, is_closed: false }
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.held, Held::Unknown)
    }

    /// Makes text of a block of unknown kind.
    pub(super) fn text(&mut self) -> Option<&mut String> {
        if self.is_unknown() {
            self.held = Held::Text(String::new());
        }
        match &mut self.held {
            Held::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Adds reasoning. Returns false for a block that is none.
    pub(super) fn reason(&mut self, more: &str, sign: &str, encrypted: Option<String>) -> bool {
        if self.is_unknown() {
            self.held = Held::Reasoning { text: String::new(), signature: String::new(), redacted: Vec::new() };
        }
        let Held::Reasoning { text, signature, redacted } = &mut self.held else { return false };
        text.push_str(more);
        signature.push_str(sign);
        redacted.extend(encrypted.filter(|piece| !piece.is_empty()));
        true
    }

    /// The block as it goes back; `None` when it cannot.
    fn write(&self, calls: &[CompletedCall]) -> Option<String> {
        let json = |text: &str| Value::from(text).to_string();
        match &self.held {
            Held::Unknown | Held::Servers => None,
            Held::Text(text) if text.trim().is_empty() => None,
            Held::Text(text) => Some(format!("{{\"text\":{}}}", json(text))),
            Held::Reasoning { redacted, .. } if !redacted.is_empty() => {
                let data = join(redacted);
                Some(format!("{{\"reasoningContent\":{{\"redactedContent\":{}}}}}", json(&data)))
            }
            Held::Reasoning { signature, .. } if signature.is_empty() => None,
            Held::Reasoning { text, signature, .. } => {
                let (text, signature) = (json(text), json(signature));
                Some(format!(
                    "{{\"reasoningContent\":{{\"reasoningText\":{{\"text\":{text},\"signature\":{signature}}}}}}}"
                ))
            }
            Held::Call { at, id, name } => {
                // A call that was cut is not run and so has no result of its own: it goes back as the history has it.
                let call = calls.get(*at).filter(|call| call.whole && call.arguments.trim_start().starts_with('{'))?;
                let (id, name, input) = (json(id), json(name), &call.arguments);
                Some(format!("{{\"toolUse\":{{\"toolUseId\":{id},\"name\":{name},\"input\":{input}}}}}"))
            }
            Held::Raw(raw) => Some(raw.clone()),
        }
    }

    /// Whether text and calls say everything that this block says.
    fn is_plain(&self) -> bool {
        match &self.held {
            Held::Unknown | Held::Servers | Held::Text(_) | Held::Call { .. } => true,
            Held::Reasoning { signature, redacted, .. } => signature.is_empty() && redacted.is_empty(),
            Held::Raw(_) => false,
        }
    }
}

/// Encrypted bytes that came in pieces, each in base64 of its own.
fn join(pieces: &[String]) -> String {
    if let [one] = pieces {
        return one.clone();
    }
    let bytes: Result<Vec<Vec<u8>>, _> = pieces.iter().map(|piece| STANDARD.decode(piece)).collect();
    // Pieces that are no base64 by themselves are one text that was cut.
    bytes.map_or_else(|_| pieces.concat(), |bytes| STANDARD.encode(bytes.concat()))
}

/// The sidecar's bytes; `None` when text and calls say everything.
pub(super) fn sidecar(blocks: &[Block], calls: &[CompletedCall]) -> Option<String> {
    let mut texts = 0;
    let mut seen_call = false;
    let mut plain = true;
    for block in blocks {
        plain &= block.is_plain();
        match &block.held {
            Held::Text(text) if !text.trim().is_empty() => {
                texts += 1;
                plain &= texts == 1 && !seen_call;
            }
            Held::Call { .. } => seen_call = true,
            _ => {}
        }
    }
    if plain {
        return None;
    }
    let written: Vec<String> = blocks.iter().filter_map(|block| block.write(calls)).collect();
    (!written.is_empty()).then(|| format!("[{}]", written.join(",")))
}

/// One block as it goes back.
#[derive(Debug, Clone)]
pub(super) struct Kept<'a> {
    /// The exact bytes.
    pub(super) raw: &'a str,
    pub(super) is_reasoning: bool,
    /// The id, of a call.
    pub(super) call_id: Option<String>,
}

impl KeptBlock for Kept<'_> {
    fn is_call(&self) -> bool {
        self.call_id.is_some()
    }

    fn call_id(&self) -> Option<String> {
        self.call_id.clone()
    }

    fn is_thinking(&self) -> bool {
        self.is_reasoning
    }
}

/// The blocks of a sidecar; nothing for bytes that are none.
pub(super) fn read_sidecar(bytes: &[u8]) -> Vec<Kept<'_>> {
    let Ok(raws) = serde_json::from_slice::<Vec<&RawValue>>(bytes) else { return Vec::new() };
    let kept = raws.into_iter().filter_map(|raw| {
        let content: Content<'_> = object(raw.get())?;
        let call: ToolUse<'_> = read(content.tool_use);
        let is_ours = content.tool_use.is_some() && !call.is_servers();
        let call_id = is_ours.then(|| call.tool_use_id.and_then(string).unwrap_or_default());
        Some(Kept { raw: raw.get(), is_reasoning: content.reasoning_content.is_some(), call_id })
    });
    kept.collect()
}

/// What a `reasoningContent` says: text, signature, encrypted bytes.
pub(super) fn reasoning_of(content: &Reasoning<'_>) -> (String, String, Option<String>) {
    let inner: Reasoning<'_> = read(content.reasoning_text);
    let text = content.text.or(inner.text).and_then(string).unwrap_or_default();
    let signature = content.signature.or(inner.signature).and_then(string).unwrap_or_default();
    (text, signature, content.redacted_content.and_then(string))
}
