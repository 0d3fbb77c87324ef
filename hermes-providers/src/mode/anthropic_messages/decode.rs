//! The bytes of an answer to deltas, in any split.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::chat::{Delta, Finish, Sidecar};
use crate::error::{ErrorClass, ProviderError};
use crate::json::{Members, Object, Raw, integer, items, object, read, string};
use crate::mode::answer::Answer;
use crate::mode::anthropic_messages::blocks::{self, Block, BlockKind, MAX_BLOCKS};
use crate::mode::anthropic_messages::event::{Event, QuickDelta};
use crate::mode::anthropic_messages::usage;
use crate::mode::body::{Body, Rest};
use crate::mode::context::DecodeContext;
use crate::mode::{Decoder, StreamEnd};
use crate::sse::Frame;

/// Between the readable reasoning of two blocks.
const PARAGRAPH: &str = "\n\n";

/// Decodes one answer.
#[derive(Debug)]
pub struct MessagesDecoder {
    body: Body,
    context: DecodeContext,
    answer: Answer,
    blocks: Vec<Block>,
    /// The provider's index of each block, beside [`Self::blocks`]. An index that comes again is another block.
    indices: Vec<i64>,
    done: bool,
}

impl Decoder for MessagesDecoder {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.done {
            return Ok(());
        }
        let mut frames = Vec::new();
        let fed = self.body.push(bytes, &mut frames);
        for frame in frames {
            self.frame(&frame, out)?;
            if self.done {
                return Ok(());
            }
        }
        fed.map_err(|limit| self.context.error(ErrorClass::Limit, &limit))
    }

    fn finish(&mut self, end: StreamEnd, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.done {
            return Ok(());
        }
        match self.body.finish() {
            Rest::Nothing => {}
            Rest::Frame(frame) => self.last_frame(&frame, end, out)?,
            Rest::Json(body) => self.whole_body(&body, out)?,
            Rest::Text(body) => return Err(self.context.no_answer("message", &body)),
        }
        if self.done {
            return Ok(());
        }
        // Blocks and a reason to stop without `message_stop` are no whole answer: the provider always sends it.
        self.done = true;
        let is_broken = end == StreamEnd::Broken || !self.blocks.is_empty() || self.answer.finish.is_some();
        Err(self.answer.cut(&self.context, is_broken))
    }

    fn is_finished(&self) -> bool {
        self.done
    }

    fn progress(&self) -> u64 {
        self.answer.progress
    }
}

impl MessagesDecoder {
    /// A decoder for the answer to one request.
    #[must_use]
    pub fn new(context: DecodeContext) -> Self {
        Self {
            body: Body::default(),
            context,
            answer: Answer::default(),
            blocks: Vec::new(),
            indices: Vec::new(),
            done: false,
        }
    }

    fn frame(&mut self, frame: &Frame, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let text = String::from_utf8_lossy(&frame.data);
        let text = text.trim();
        // Some proxies end every stream like this, whatever its wire.
        if text.is_empty() || text == "[DONE]" {
            return Ok(());
        }
        if frame.event == "error" {
            return Err(self.context.classified(text));
        }
        if self.quick(text, out) {
            return Ok(());
        }
        if let Some(event) = object::<Event<'_>>(text) {
            return self.event(&event, &frame.event, text, out);
        }
        // Servers that forget the blank line between frames: each line is an event.
        // (Looked at twice rather than kept: events are ten times as large as the lines of a bad server.)
        if text.lines().nth(1).is_some() && text.lines().all(|line| object::<Event<'_>>(line).is_some()) {
            for (event, line) in text.lines().filter_map(|line| object::<Event<'_>>(line).zip(Some(line))) {
                if !self.done {
                    self.event(&event, "", line, out)?;
                }
            }
            return Ok(());
        }
        Err(self.context.not_json(text))
    }

    /// A frame without its closing blank line: used when it is whole, else it is where the connection was cut.
    fn last_frame(&mut self, frame: &Frame, end: StreamEnd, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let text = String::from_utf8_lossy(&frame.data);
        let text = text.trim();
        // Text that never was JSON is an error message and not a cut event.
        let never_json = end == StreamEnd::Closed && !text.starts_with('{');
        if object::<Event<'_>>(text).is_some() || never_json {
            return self.frame(frame, out);
        }
        for line in text.lines() {
            let Some(event) = object::<Event<'_>>(line) else { break };
            if !self.done {
                self.event(&event, "", line, out)?;
            }
        }
        Ok(())
    }

    /// One document for a whole answer.
    fn whole_body(&mut self, body: &[u8], out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let text = String::from_utf8_lossy(body);
        let text = text.trim_start_matches('\u{feff}').trim();
        // Some servers put an error into a list of one.
        let list: Vec<&RawValue> =
            if text.starts_with('[') { serde_json::from_str(text).unwrap_or_default() } else { Vec::new() };
        let document = list.first().map_or(text, |first| first.get());
        let Some(message) = object::<Event<'_>>(document) else {
            return Err(self.context.error(ErrorClass::Incomplete, "the answer ended before it was whole"));
        };
        if is_error(&message) {
            return Err(self.context.classified(document));
        }
        if message.content.is_none() {
            let said = self.context.clean(document);
            return Err(self.context.error(ErrorClass::BadResponse, &format!("the answer is no message: {said}")));
        }
        self.answer.served_model = message.model.and_then(string).filter(|model| !model.is_empty());
        usage::overwrite(&mut self.answer.usage, message.usage);
        for raw in items(message.content) {
            self.start(raw, None, out)?;
            self.stop(None, out);
        }
        self.stop_reason(message.stop_reason);
        if self.answer.finish.is_none() {
            return Err(self.context.error(ErrorClass::Incomplete, "the answer does not say why it ended"));
        }
        self.complete(out);
        Ok(())
    }

    /// The deltas of text, thinking and input, in one reading. False when it is anything else.
    fn quick(&mut self, text: &str, out: &mut Vec<Delta>) -> bool {
        let Some(event) = object::<QuickDelta<'_>>(text) else { return false };
        if event.kind != "content_block_delta" {
            return false;
        }
        let index = i64::try_from(event.index).ok();
        let Object(delta) = event.delta;
        let (text, thinking, input) = (delta.text, delta.thinking, delta.partial_json);
        match (&*delta.kind, text, thinking, input) {
            ("text_delta", Some(text), None, None) => self.text(index, &text, out),
            ("thinking_delta", None, Some(text), None) => self.thinking(index, &text, out),
            ("input_json_delta", None, None, Some(text)) => self.input(index, &text, out),
            _ => return false,
        }
        true
    }

    fn event(&mut self, event: &Event<'_>, name: &str, text: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if is_error(event) {
            return Err(self.context.classified(text));
        }
        let index = event.index.and_then(integer);
        let kind = event.kind.and_then(string);
        match kind.as_deref().unwrap_or(name) {
            "message_start" => {
                let message: Event<'_> = read(event.message);
                self.answer.served_model = message.model.and_then(string).filter(|model| !model.is_empty());
                usage::overwrite(&mut self.answer.usage, message.usage);
                Ok(())
            }
            "content_block_start" => match event.content_block {
                Some(block) => self.start(block, index, out),
                None => Ok(()),
            },
            "content_block_delta" => self.delta(event.delta, index, out),
            "content_block_stop" => {
                self.stop(index, out);
                Ok(())
            }
            "message_delta" => {
                let before = self.answer.usage;
                usage::overwrite(&mut self.answer.usage, event.usage);
                self.answer.progress += u64::from(before != self.answer.usage);
                let delta: Event<'_> = read(event.delta);
                self.stop_reason(delta.stop_reason);
                Ok(())
            }
            "message_stop" => {
                self.complete(out);
                Ok(())
            }
            // Pings, and events that this program does not know: the maker says that there will be some.
            _ => Ok(()),
        }
    }

    /// A block begins; `index` is `None` in a whole answer.
    fn start(&mut self, raw: &RawValue, index: Option<i64>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.blocks.len() >= MAX_BLOCKS {
            return Err(self.context.error(ErrorClass::Limit, "the answer holds too many blocks"));
        }
        let Some(members) = Members::read(raw.get()) else { return Ok(()) };
        let text_of = |key: &str| members.get(key).and_then(string);
        let kind = BlockKind::of(&text_of("type").unwrap_or_default());
        let Some(mut block) = Block::new(kind, raw.get(), &members) else {
            return Err(self.context.error(ErrorClass::Limit, "a block of the answer holds too many members"));
        };
        self.answer.progress += 1;
        if kind == BlockKind::ToolUse {
            let Some(name) = text_of("name").filter(|name| !name.is_empty()) else {
                return Err(self.context.error(ErrorClass::BadResponse, "the answer holds a tool call without a name"));
            };
            block.call = Some(self.answer.start_call(&self.context, text_of("id"), &name, out)?);
        }
        self.add(block, index);
        match kind {
            BlockKind::Text => self.answer.text(&self.context, &text_of("text").unwrap_or_default(), out),
            BlockKind::Thinking => self.reasoning(&text_of("thinking").unwrap_or_default(), out),
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, block: Block, index: Option<i64>) {
        self.blocks.push(block);
        self.indices.push(index.unwrap_or(-1));
    }

    /// The latest block of this index; without an index the last block.
    fn at(&self, index: Option<i64>) -> Option<usize> {
        match index {
            Some(index) => self.indices.iter().rposition(|known| *known == index),
            None => self.blocks.len().checked_sub(1),
        }
    }

    /// The block that text of this kind belongs to; one whose start never came is begun.
    fn open(&mut self, index: Option<i64>, kind: BlockKind, word: &str) -> Option<&mut Block> {
        let at = match self.at(index) {
            Some(at) => at,
            None if self.blocks.len() < MAX_BLOCKS => {
                self.add(Block::bare(kind, word), index);
                self.blocks.len() - 1
            }
            None => return None,
        };
        self.blocks.get_mut(at)
    }

    fn text(&mut self, index: Option<i64>, text: &str, out: &mut Vec<Delta>) {
        if text.is_empty() {
            return;
        }
        if let Some(block) = self.open(index, BlockKind::Text, "text") {
            block.append("text", text);
            self.answer.text(&self.context, text, out);
        }
    }

    fn thinking(&mut self, index: Option<i64>, text: &str, out: &mut Vec<Delta>) {
        if text.is_empty() {
            return;
        }
        if let Some(block) = self.open(index, BlockKind::Thinking, "thinking") {
            let is_first = block.lacks("thinking");
            block.append("thinking", text);
            if is_first {
                self.reasoning(text, out);
            } else {
                self.answer.reasoning(&self.context, text, out);
            }
        }
    }

    /// The first readable reasoning of a block.
    fn reasoning(&mut self, text: &str, out: &mut Vec<Delta>) {
        if !text.is_empty() && !self.answer.reasoning.is_empty() {
            self.answer.reasoning(&self.context, PARAGRAPH, out);
        }
        self.answer.reasoning(&self.context, text, out);
    }

    /// More input of a call; that of a server's own tool stays in its block.
    fn input(&mut self, index: Option<i64>, text: &str, out: &mut Vec<Delta>) {
        let Some(block) = self.at(index).and_then(|at| self.blocks.get_mut(at)).filter(|_| !text.is_empty()) else {
            return;
        };
        block.more_input(text);
        match block.call {
            Some(call) => self.answer.arguments(&self.context, call, text, out),
            None => self.answer.progress += 1,
        }
    }

    /// A delta of any kind. Of those that this program does not know, texts grow and other values are replaced.
    fn delta(&mut self, raw: Raw<'_>, index: Option<i64>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let Some(members) = raw.and_then(|raw| Members::read(raw.get())) else { return Ok(()) };
        let text_of = |key: &str| members.get(key).and_then(string).unwrap_or_default();
        match text_of("type").as_str() {
            "text_delta" => {
                self.text(index, &text_of("text"), out);
                return Ok(());
            }
            "thinking_delta" => {
                self.thinking(index, &text_of("thinking"), out);
                return Ok(());
            }
            "input_json_delta" => {
                self.input(index, &text_of("partial_json"), out);
                return Ok(());
            }
            _ => {}
        }
        let Some(block) = self.at(index).and_then(|at| self.blocks.get_mut(at)) else { return Ok(()) };
        for (key, value) in members.0.iter().filter(|(key, _)| key != "type") {
            self.answer.progress += 1;
            if !block.has_room(if key == "citation" { "citations" } else { key }) {
                return Err(self.context.error(ErrorClass::Limit, "a block of the answer holds too many members"));
            }
            match (key.as_str(), string(value)) {
                // A signature comes in one piece, and `""` stands in its place until then.
                ("signature", _) => block.put(key, value),
                ("citation", _) => block.push("citations", value),
                (_, Some(more)) => block.append(key, &more),
                (_, None) => block.put(key, value),
            }
        }
        Ok(())
    }

    fn stop(&mut self, index: Option<i64>, out: &mut Vec<Delta>) {
        let Some(block) = self.at(index).and_then(|at| self.blocks.get_mut(at)) else { return };
        if block.is_closed {
            return;
        }
        block.close();
        self.answer.progress += 1;
        if let (Some(call), Some(input)) = (block.call, block.whole_input()) {
            self.answer.arguments(&self.context, call, input, out);
            block.has_input = true;
        }
    }

    fn stop_reason(&mut self, raw: Raw<'_>) {
        let Some(word) = raw.and_then(string).filter(|word| !word.trim().is_empty()) else { return };
        self.answer.progress += 1;
        self.answer.finish = Some(normal_finish(word));
    }

    /// The answer is whole. Without a reason it is, too: the provider closed it itself.
    fn complete(&mut self, out: &mut Vec<Delta>) {
        self.done = true;
        let stated = self.answer.finish.take();
        let is_cut = !matches!(stated, None | Some(Finish::Stop | Finish::ToolCalls | Finish::Pause));
        for block in &self.blocks {
            let Some(call) = block.call.filter(|_| block.is_closed) else { continue };
            // Of a call that was cut before its first argument nothing is known; it does not become one without any.
            if block.has_input || !is_cut {
                self.answer.close_call(&self.context, call, None, out);
            }
        }
        let finish_missing = stated.is_none();
        let mut end = self.answer.complete(None, stated.unwrap_or(Finish::Stop));
        if let Delta::Done(completion) = &mut end {
            completion.finish_missing = finish_missing;
            completion.sidecar = blocks::sidecar(&self.blocks, &completion.calls)
                .map(|bytes| Sidecar { issuer: Arc::clone(&self.context.issuer), bytes: Bytes::from(bytes) });
        }
        self.blocks = Vec::new();
        out.push(end);
    }
}

fn is_error(event: &Event<'_>) -> bool {
    let named = event.kind.and_then(string).is_some_and(|kind| kind == "error");
    named || event.error.is_some_and(|raw| !matches!(raw.get(), "{}" | "\"\"" | "false" | "[]"))
}

/// Every word of the maker's list; nothing else becomes one of them.
fn normal_finish(word: String) -> Finish {
    match word.as_str() {
        "end_turn" | "stop_sequence" => Finish::Stop,
        "tool_use" => Finish::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "refusal" => Finish::ContentFilter,
        // Both want the answer back as it is.
        "pause_turn" | "compaction" => Finish::Pause,
        _ => Finish::Other(word),
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
