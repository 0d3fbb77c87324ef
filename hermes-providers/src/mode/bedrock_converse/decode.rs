//! The bytes of an answer to deltas, in any split.
//!
//! | `stopReason` | here |
//! |---|---|
//! | `end_turn`, `stop_sequence` | [`Finish::Stop`] |
//! | `tool_use` | [`Finish::ToolCalls`] |
//! | `max_tokens`, `model_context_window_exceeded` | [`Finish::Length`] |
//! | `guardrail_intervened`, `content_filtered` | [`Finish::ContentFilter`] |
//! | `malformed_tool_use` | [`Finish::MalformedCall`], asked once more; no call beside it is whole |
//! | `malformed_model_output` | an error of class `BadResponse` |
//! | anything else | [`Finish::Other`] |

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::chat::{Delta, Finish, Sidecar};
use crate::error::{ErrorClass, ProviderError};
use crate::json::{Object, Raw, integer, items, object, read, string};
use crate::mode::answer::Answer;
use crate::mode::bedrock_converse::blocks::{self, Block, Held, MAX_BLOCKS, reasoning_of};
use crate::mode::bedrock_converse::event::{
    Content, Event, Message, Output, QuickDelta, Reasoning, ToolUse, routed_to, usage,
};
use crate::mode::bedrock_converse::frame::{Frame, FrameDecoder};
use crate::mode::body::MAX_BODY_BYTES;
use crate::mode::context::DecodeContext;
use crate::mode::{Decoder, StreamEnd};

/// What is kept of a body that is neither frames nor JSON, to quote it.
const MAX_QUOTE_BYTES: usize = 16 * 1024;
/// Between the readable reasoning of two blocks.
const PARAGRAPH: &str = "\n\n";

/// What the body turns out to be; the first byte tells.
#[derive(Debug, Default)]
enum Body {
    #[default]
    Unknown,
    Frames(FrameDecoder),
    Json(Vec<u8>),
    /// A web page or other text: its beginning, and how many bytes there were.
    Text(Vec<u8>, usize),
}

/// Decodes one answer.
#[derive(Debug)]
pub struct ConverseDecoder {
    body: Body,
    context: DecodeContext,
    answer: Answer,
    blocks: Vec<Block>,
    /// `stopReason`, once there was one.
    reason: Option<String>,
    done: bool,
}

impl Decoder for ConverseDecoder {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let Some(first) = bytes.first().filter(|_| !self.done) else { return Ok(()) };
        if matches!(self.body, Body::Unknown) {
            self.body = match first {
                b'{' | b'[' | b' ' | b'\r' | b'\n' | b'\t' => Body::Json(Vec::new()),
                // The length of a frame has 24 bits.
                0 | 1 => Body::Frames(FrameDecoder::default()),
                _ => Body::Text(Vec::new(), 0),
            };
        }
        match &mut self.body {
            Body::Unknown => Ok(()),
            Body::Frames(frames) => {
                let mut frames = std::mem::take(frames);
                let result = self.frames(&mut frames, bytes, out);
                self.body = Body::Frames(frames);
                result
            }
            Body::Json(body) => {
                let size = body.len() + bytes.len();
                body.extend_from_slice(bytes);
                self.bounded(size)
            }
            Body::Text(body, size) => {
                let room = MAX_QUOTE_BYTES.saturating_sub(body.len());
                body.extend_from_slice(&bytes[..bytes.len().min(room)]);
                *size += bytes.len();
                let size = *size;
                self.bounded(size)
            }
        }
    }

    fn finish(&mut self, end: StreamEnd, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.done {
            return Ok(());
        }
        let mut is_cut = end == StreamEnd::Broken;
        match std::mem::take(&mut self.body) {
            Body::Unknown => {}
            Body::Frames(frames) => is_cut |= frames.has_rest(),
            Body::Json(body) => self.whole_body(&body, out)?,
            Body::Text(body, _) => return Err(self.context.no_answer("stream", &body)),
        }
        if self.reason.is_some() {
            // Only the counts are missing.
            return self.complete(out);
        }
        self.done = true;
        Err(self.answer.cut(&self.context, is_cut || !self.blocks.is_empty()))
    }

    fn is_finished(&self) -> bool {
        self.done || self.reason.is_some()
    }

    fn progress(&self) -> u64 {
        self.answer.progress
    }
}

impl ConverseDecoder {
    /// A decoder for the answer to one request.
    #[must_use]
    pub fn new(context: DecodeContext) -> Self {
        Self {
            body: Body::default(),
            context,
            answer: Answer::default(),
            blocks: Vec::new(),
            reason: None,
            done: false,
        }
    }

    /// Refuses a body that is no stream and goes on and on.
    fn bounded(&self, size: usize) -> Result<(), ProviderError> {
        if size <= MAX_BODY_BYTES {
            return Ok(());
        }
        Err(self.context.error(ErrorClass::Limit, &format!("the answer is larger than {MAX_BODY_BYTES} bytes")))
    }

    fn frames(&mut self, frames: &mut FrameDecoder, bytes: &[u8], out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        frames.feed(bytes);
        while !self.done {
            match frames.next() {
                Ok(Some(frame)) => self.frame(&frame, out)?,
                Ok(None) => break,
                Err(fault) => return Err(self.context.error(ErrorClass::BadResponse, &fault.to_string())),
            }
        }
        Ok(())
    }

    fn frame(&mut self, frame: &Frame<'_>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        match frame.message_type {
            "exception" => return Err(self.exception(frame)),
            "error" => return Err(self.failure(frame.error_code, frame.error_message)),
            _ => {}
        }
        let text = String::from_utf8_lossy(frame.payload);
        if frame.event_type == "contentBlockDelta"
            && let Some(quick) = object::<QuickDelta<'_>>(&text)
        {
            return self.quick(quick, out);
        }
        match object::<Event<'_>>(&text) {
            Some(event) => self.event(frame.event_type, &event, out),
            None => Ok(()),
        }
    }

    /// An error inside a 200.
    fn exception(&self, frame: &Frame<'_>) -> ProviderError {
        let payload: Value = serde_json::from_slice(frame.payload).unwrap_or_default();
        let text = |key: &str| payload.get(key).and_then(Value::as_str).unwrap_or_default();
        let message = [text("message"), text("Message"), text("originalMessage")];
        let message: Vec<&str> = message.into_iter().filter(|text| !text.is_empty()).collect();
        self.failure(frame.exception_type, &message.join(": "))
    }

    fn failure(&self, code: &str, message: &str) -> ProviderError {
        let mut error = json!({"code": code, "message": message});
        if let Some(status) = status_of(code) {
            error["status"] = Value::from(status);
        }
        self.context.classified(&json!({"error": error}).to_string())
    }

    fn quick(&mut self, quick: QuickDelta<'_>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let index = Some(quick.content_block_index);
        let Object(delta) = quick.delta;
        if let Some(text) = delta.text {
            self.text(index, &text, out)?;
        }
        match delta.tool_use {
            Some(Object(more)) => self.input(index, &more.input, out),
            None => Ok(()),
        }
    }

    fn event(&mut self, kind: &str, event: &Event<'_>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let index = event.content_block_index.and_then(integer);
        match kind {
            "contentBlockStart" => self.start(index, event.start, out),
            "contentBlockDelta" => self.delta(index, &read(event.delta), out),
            "contentBlockStop" => {
                self.stop(index);
                Ok(())
            }
            "messageStop" => {
                let word = event.stop_reason.and_then(string).unwrap_or_default();
                self.answer.progress += 1;
                self.reason = Some(word);
                Ok(())
            }
            "metadata" => {
                self.answer.usage = usage(event.usage).or(self.answer.usage);
                self.answer.served_model = routed_to(event.trace);
                if self.reason.is_some() { self.complete(out) } else { Ok(()) }
            }
            // The start of the message, and events that this program does not know.
            _ => Ok(()),
        }
    }

    /// One document for a whole answer.
    fn whole_body(&mut self, body: &[u8], out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let text = String::from_utf8_lossy(body);
        let text = text.trim();
        let Some(whole) = object::<Event<'_>>(text).filter(|_| serde_json::from_str::<&RawValue>(text).is_ok()) else {
            return Err(self.context.error(ErrorClass::Incomplete, "the answer ended before it was whole"));
        };
        if whole.output.is_none() && whole.stop_reason.is_none() {
            let error = self.context.classified(text);
            let is_error = text.contains("\"message\"") || text.contains("\"__type\"") || text.contains("\"error\"");
            if is_error {
                return Err(error);
            }
            let said = self.context.clean(text);
            return Err(self.context.error(ErrorClass::BadResponse, &format!("the answer is no message: {said}")));
        }
        let output: Output<'_> = read(whole.output);
        let message: Message<'_> = read(output.message);
        for raw in items(message.content) {
            self.whole_block(raw, out)?;
        }
        self.answer.usage = usage(whole.usage);
        self.answer.served_model = routed_to(whole.trace);
        self.reason = whole.stop_reason.and_then(string);
        Ok(())
    }

    fn whole_block(&mut self, raw: &RawValue, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let content: Content<'_> = read(Some(raw));
        let index = i64::try_from(self.blocks.len()).unwrap_or(i64::MAX);
        let call: ToolUse<'_> = read(content.tool_use);
        if content.tool_use.is_some() && !call.is_servers() {
            self.call(index, &call, out)?;
            if let Some(input) = call.input {
                self.input(Some(index), input.get(), out)?;
            }
        } else if content.text.is_some() || content.reasoning_content.is_some() {
            self.delta(Some(index), &content, out)?;
        } else {
            self.add(Block::new(index, Held::Raw(raw.get().to_owned())))?;
        }
        self.stop(Some(index));
        Ok(())
    }

    fn start(&mut self, index: Option<i64>, start: Raw<'_>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let content: Content<'_> = read(start);
        let index = index.unwrap_or_else(|| self.blocks.last().map_or(0, |last| last.index + 1));
        self.answer.progress += 1;
        match content.tool_use {
            Some(_) => self.call(index, &read(content.tool_use), out),
            None => self.add(Block::new(index, Held::Unknown)),
        }
    }

    fn call(&mut self, index: i64, call: &ToolUse<'_>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if call.is_servers() {
            return self.add(Block::new(index, Held::Servers));
        }
        let Some(name) = call.name.and_then(string).filter(|name| !name.is_empty()) else {
            return Err(self.context.error(ErrorClass::BadResponse, "the answer holds a tool call without a name"));
        };
        let id = call.tool_use_id.and_then(string).unwrap_or_default();
        let at = self.answer.start_call(&self.context, Some(id.clone()), &name, out)?;
        self.add(Block::new(index, Held::Call { at, id, name }))
    }

    fn add(&mut self, block: Block) -> Result<(), ProviderError> {
        if self.blocks.len() >= MAX_BLOCKS {
            return Err(self.context.error(ErrorClass::Limit, "the answer holds too many blocks"));
        }
        self.blocks.push(block);
        Ok(())
    }

    /// The open block of this index; without an index the last block. Blocks of text and reasoning have no start.
    fn block(&mut self, index: Option<i64>) -> Result<usize, ProviderError> {
        let last = self.blocks.len().checked_sub(1);
        let found = match index {
            Some(index) => self.blocks.iter().rposition(|block| block.index == index && !block.is_closed),
            None => last,
        };
        match found {
            Some(at) => Ok(at),
            None => {
                let index = index.unwrap_or(0);
                self.add(Block::new(index, Held::Unknown))?;
                Ok(self.blocks.len() - 1)
            }
        }
    }

    fn text(&mut self, index: Option<i64>, text: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if text.is_empty() {
            return Ok(());
        }
        let at = self.block(index)?;
        if let Some(held) = self.blocks[at].text() {
            held.push_str(text);
        } else {
            // Text at the index of another kind of block: a block of its own.
            let index = self.blocks[at].index;
            self.add(Block::new(index, Held::Text(text.to_owned())))?;
        }
        self.answer.text(&self.context, text, out);
        Ok(())
    }

    fn delta(&mut self, index: Option<i64>, delta: &Content<'_>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if let Some(text) = delta.text.and_then(string) {
            self.text(index, &text, out)?;
        }
        if delta.tool_use.is_some() {
            let call: ToolUse<'_> = read(delta.tool_use);
            let more = call.input.map(|raw| string(raw).unwrap_or_else(|| raw.get().to_owned()));
            self.input(index, &more.unwrap_or_default(), out)?;
        }
        if delta.reasoning_content.is_some() {
            let content: Reasoning<'_> = read(delta.reasoning_content);
            self.reasoning(index, &content, out)?;
        }
        Ok(())
    }

    fn reasoning(
        &mut self,
        index: Option<i64>,
        content: &Reasoning<'_>,
        out: &mut Vec<Delta>,
    ) -> Result<(), ProviderError> {
        let (text, signature, redacted) = reasoning_of(content);
        let at = self.block(index)?;
        let is_first = self.blocks[at].is_unknown();
        let is_opaque = !signature.is_empty() || redacted.is_some();
        if !self.blocks[at].reason(&text, &signature, redacted) {
            return Ok(());
        }
        // A signature shows nothing and is progress all the same.
        self.answer.progress += u64::from(is_opaque);
        if is_first && !text.is_empty() && !self.answer.reasoning.is_empty() {
            self.answer.reasoning(&self.context, PARAGRAPH, out);
        }
        self.answer.reasoning(&self.context, &text, out);
        Ok(())
    }

    /// More input of a call.
    fn input(&mut self, index: Option<i64>, text: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if text.is_empty() {
            return Ok(());
        }
        let at = self.block(index)?;
        let call = match self.blocks[at].held {
            Held::Call { at: call, .. } => call,
            Held::Servers => {
                self.answer.progress += 1;
                return Ok(());
            }
            _ => {
                let what = "the answer holds input of an unknown tool call";
                return Err(self.context.error(ErrorClass::BadResponse, what));
            }
        };
        self.blocks[at].has_input = true;
        self.answer.arguments(&self.context, call, text, out);
        Ok(())
    }

    fn stop(&mut self, index: Option<i64>) {
        let found = match index {
            Some(index) => self.blocks.iter_mut().rev().find(|block| block.index == index),
            None => self.blocks.last_mut(),
        };
        if let Some(block) = found.filter(|block| !block.is_closed) {
            block.is_closed = true;
            self.answer.progress += 1;
        }
    }

    /// The provider has said why it stopped.
    fn complete(&mut self, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        self.done = true;
        let word = self.reason.take().unwrap_or_default();
        let finish = self.finish_of(&word)?;
        let may_run = matches!(finish, Finish::Stop | Finish::ToolCalls | Finish::Length);
        for block in self.blocks.iter().filter(|block| may_run && block.is_closed) {
            // Of a call that was cut before its first argument nothing is known; it does not become one without any.
            if let Held::Call { at, .. } = block.held
                && (block.has_input || finish != Finish::Length)
            {
                self.answer.close_call(&self.context, at, None, out);
            }
        }
        let mut end = self.answer.complete(None, finish);
        if let Delta::Done(completion) = &mut end {
            completion.finish_missing = word.is_empty();
            completion.sidecar = blocks::sidecar(&self.blocks, &completion.calls)
                .map(|bytes| Sidecar { issuer: Arc::clone(&self.context.issuer), bytes: Bytes::from(bytes) });
        }
        self.blocks = Vec::new();
        out.push(end);
        Ok(())
    }

    fn finish_of(&self, word: &str) -> Result<Finish, ProviderError> {
        Ok(match word {
            "" | "end_turn" | "stop_sequence" => Finish::Stop,
            "tool_use" => Finish::ToolCalls,
            "max_tokens" | "model_context_window_exceeded" => Finish::Length,
            "guardrail_intervened" | "content_filtered" => Finish::ContentFilter,
            "malformed_tool_use" => Finish::MalformedCall,
            "malformed_model_output" => {
                let mut error = self.context.error(ErrorClass::BadResponse, "the model's answer was malformed");
                error.code = Some(word.to_owned());
                return Err(error);
            }
            other => Finish::Other(other.to_owned()),
        })
    }
}

/// The status that the maker documents for an exception.
fn status_of(exception: &str) -> Option<u16> {
    let name = exception.to_ascii_lowercase();
    Some(match name.as_str() {
        "validationexception" => 400,
        "accessdeniedexception" | "expiredtokenexception" => 403,
        "resourcenotfoundexception" => 404,
        "modeltimeoutexception" => 408,
        "modelstreamerrorexception" | "modelerrorexception" => 424,
        "throttlingexception" | "modelnotreadyexception" => 429,
        "internalserverexception" => 500,
        "serviceunavailableexception" => 503,
        _ => return None,
    })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
