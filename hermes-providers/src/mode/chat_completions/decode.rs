//! The bytes of an answer to deltas, in any split.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::chat::{Completion, Delta, Finish, Sidecar, Usage};
use crate::error::{ErrorClass, ProviderError};
use crate::json::{Object, integer, read, string};
use crate::mode::body::{Body, Rest};
use crate::mode::chat_completions::frame::{
    CallPart, Choice, Chunk, FunctionPart, Message, QuickChunk, QuickMessage, content, items,
};
use crate::mode::chat_completions::slots::{Fragment, Slots};
use crate::mode::chat_completions::usage;
use crate::mode::context::DecodeContext;
use crate::mode::{Decoder, StreamEnd};
use crate::sse::Frame;

/// The payload that ends a stream.
const DONE: &str = "[DONE]";

/// Decodes one answer.
#[derive(Debug)]
pub struct ChatDecoder {
    body: Body,
    context: DecodeContext,
    text: String,
    reasoning: String,
    details: Details,
    slots: Slots,
    finish: Option<Finish>,
    usage: Option<Usage>,
    /// The last chunk was usage without choices, which only comes at the end.
    usage_closes: bool,
    served_model: Option<String>,
    /// `[DONE]`, or the end of a whole JSON body.
    end_seen: bool,
    done: bool,
    /// The bytes did not end in order, so that nothing is no empty answer.
    broken: bool,
    progress: u64,
}

impl Decoder for ChatDecoder {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.done {
            return Ok(());
        }
        let mut frames = Vec::new();
        let fed = self.body.push(bytes, &mut frames);
        for frame in frames {
            self.frame(&frame, out)?;
            if self.end_seen {
                out.push(self.complete()?);
                return Ok(());
            }
        }
        fed.map_err(|limit| self.context.error(ErrorClass::Limit, &limit))
    }

    fn finish(&mut self, end: StreamEnd, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.done {
            return Ok(());
        }
        self.broken = end == StreamEnd::Broken;
        match self.body.finish() {
            Rest::Nothing => {}
            Rest::Frame(frame) => self.last_frame(&frame, end, out)?,
            Rest::Json(body) => self.whole_body(&body, out)?,
            Rest::Text(body) => return Err(self.context.no_answer("chat completion", &body)),
        }
        out.push(self.complete()?);
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.done || self.finish.is_some()
    }

    fn progress(&self) -> u64 {
        self.progress
    }
}

impl ChatDecoder {
    /// A decoder for the answer to one request.
    #[must_use]
    pub fn new(context: DecodeContext) -> Self {
        Self {
            body: Body::default(),
            context,
            text: String::new(),
            reasoning: String::new(),
            details: Details::default(),
            slots: Slots::default(),
            finish: None,
            usage: None,
            usage_closes: false,
            served_model: None,
            end_seen: false,
            done: false,
            broken: false,
            progress: 0,
        }
    }

    fn frame(&mut self, frame: &Frame, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let text = String::from_utf8_lossy(&frame.data);
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }
        if frame.event == "error" {
            return Err(self.context.classified(text));
        }
        if let Some((message, model)) = QuickChunk::parse(text) {
            if self.served_model.is_none() {
                self.served_model = model.map(|model| model.0.into_owned()).filter(|model| !model.is_empty());
            }
            self.usage_closes = false;
            return self.quick(message, out);
        }
        if let Some(chunk) = parse_chunk(text) {
            return self.chunk(&chunk, text, out);
        }
        if text == DONE {
            return self.payload(text, out);
        }
        // Servers that forget the blank line between frames: each line is a payload.
        if text.lines().count() > 1 && text.lines().all(is_payload) {
            return text.lines().try_for_each(|line| self.payload(line, out));
        }
        Err(self.context.not_json(text))
    }

    /// `[DONE]` or one chunk; nothing counts after the end.
    fn payload(&mut self, text: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.end_seen {
            return Ok(());
        }
        match parse_chunk(text) {
            Some(chunk) => self.chunk(&chunk, text, out),
            None => {
                self.end_seen = true;
                self.progress += 1;
                Ok(())
            }
        }
    }

    /// A frame without its closing blank line: what is whole in it is used, the rest is where the connection was cut.
    fn last_frame(&mut self, frame: &Frame, end: StreamEnd, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let text = String::from_utf8_lossy(&frame.data);
        let text = text.trim();
        // Text that never was JSON is an error message and not a cut chunk.
        let never_json = end == StreamEnd::Closed && !text.starts_with(['{', '[']);
        if is_payload(text) || never_json {
            return self.frame(frame, out);
        }
        text.lines().take_while(|line| is_payload(line)).try_for_each(|line| self.payload(line, out))
    }

    fn whole_body(&mut self, body: &[u8], out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let text = String::from_utf8_lossy(body);
        let text = text.trim_start_matches('\u{feff}').trim();
        let mut document = text;
        // Some servers put an error into a list of one.
        let list: Vec<&RawValue> =
            if text.starts_with('[') { serde_json::from_str(text).unwrap_or_default() } else { Vec::new() };
        if let Some(first) = list.first() {
            document = first.get();
        }
        let Some(chunk) = parse_chunk(document) else {
            return Err(self.context.error(ErrorClass::Incomplete, "the answer ended before it was whole"));
        };
        if !chunk.is_error() && chunk.choices.is_none() {
            let said = self.context.clean(document);
            return Err(self
                .context
                .error(ErrorClass::BadResponse, &format!("the answer is no chat completion: {said}")));
        }
        self.end_seen = true;
        self.chunk(&chunk, document, out)
    }

    fn chunk(&mut self, chunk: &Chunk<'_>, text: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let choices = items(chunk.choices);
        let choice: Choice<'_> = read(choices.first().copied());
        let finish = choice.finish_reason.and_then(finish_of);
        if chunk.is_error() || choice.error.is_some() || finish.as_deref() == Some("error") {
            return Err(self.context.classified(text));
        }
        if self.served_model.is_none() {
            self.served_model = chunk.model.and_then(string).filter(|model| !model.is_empty());
        }
        let usage = [chunk.usage, choice.usage].into_iter().flatten().find_map(|raw| {
            let value: Value = serde_json::from_str(raw.get()).ok()?;
            usage::read(&value)
        });
        if let Some(usage) = usage {
            // Some send it in every chunk, growing: the last one counts, nothing is added up (W10).
            self.progress += u64::from(self.usage != Some(usage));
            self.usage = Some(usage);
        }
        self.usage_closes = usage.is_some() && choices.is_empty();
        self.message(&read(choice.delta.or(choice.message)), out)?;
        if let Some(finish) = finish {
            self.progress += 1;
            self.finish = Some(normal_finish(finish));
        }
        Ok(())
    }

    /// What a plain chunk adds.
    fn quick(&mut self, message: QuickMessage<'_>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        self.reasoning(message.reasoning(), out);
        self.text(message.content.as_deref().unwrap_or_default(), out);
        let Some(Object(call)) = message.tool_calls.and_then(|calls| calls.0) else { return Ok(()) };
        let function = call.function.map(|function| function.0).unwrap_or_default();
        let fragment = Fragment {
            index: call.index,
            id: call.id.map(|id| id.0),
            name: function.name.map(|name| name.0),
            arguments: function.arguments.map(|arguments| arguments.0),
        };
        self.call(fragment, out)
    }

    fn reasoning(&mut self, more: &str, out: &mut Vec<Delta>) {
        if !more.is_empty() {
            self.progress += 1;
            self.reasoning.push_str(more);
            self.emit(out, || Delta::Reasoning(more.to_owned()));
        }
    }

    fn text(&mut self, more: &str, out: &mut Vec<Delta>) {
        if !more.is_empty() {
            self.progress += 1;
            self.text.push_str(more);
            self.emit(out, || Delta::Text(more.to_owned()));
        }
    }

    fn message(&mut self, message: &Message<'_>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let (mut text, thought) = content(message.content);
        // Several fields carry the same reasoning; the first that is filled is taken.
        let fields = [message.reasoning_content, message.reasoning, message.reasoning_text];
        let field = fields.into_iter().flatten().filter_map(string).find(|text| !text.is_empty());
        let mut reasoning = field.unwrap_or_default();
        reasoning.push_str(&thought);
        text.push_str(&message.refusal.and_then(string).unwrap_or_default());
        if self.details.add(items(message.reasoning_details)) {
            self.progress += 1;
        }
        self.reasoning(&reasoning, out);
        self.text(&text, out);
        for raw in items(message.tool_calls) {
            let part: CallPart<'_> = read(Some(raw));
            let function: FunctionPart<'_> = read(part.function);
            let fragment = Fragment {
                index: part.index.and_then(integer),
                id: part.id.and_then(|id| string(id).or_else(|| integer(id).map(|id| id.to_string()))).map(Cow::Owned),
                ..function_fragment(&function)
            };
            self.call(fragment, out)?;
        }
        if message.function_call.is_some() {
            let function: FunctionPart<'_> = read(message.function_call);
            self.call(function_fragment(&function), out)?;
        }
        Ok(())
    }

    fn call(&mut self, fragment: Fragment<'_>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let Ok(change) = self.slots.add(fragment) else {
            return Err(self.context.error(ErrorClass::Limit, "the answer holds too many tool calls"));
        };
        if let Some(wire) = change.started {
            self.progress += 1;
            let name = self.context.names.real(&wire).to_owned();
            self.emit(out, || Delta::CallStarted { index: change.at, name });
        }
        if change.bytes > 0 {
            self.progress += 1;
            self.emit(out, || Delta::CallArguments { index: change.at, bytes: change.bytes });
        }
        Ok(())
    }

    fn emit(&self, out: &mut Vec<Delta>, delta: impl FnOnce() -> Delta) {
        if self.context.stream {
            out.push(delta());
        }
    }

    /// The completion, or why there is none. The table stands in the reference of providers, section 3.1.
    fn complete(&mut self) -> Result<Delta, ProviderError> {
        self.done = true;
        let nothing =
            self.text.is_empty() && self.reasoning.is_empty() && self.slots.is_empty() && self.details.is_empty();
        let explicit = self.end_seen || self.usage_closes;
        let stated = self.finish.take();
        if stated.is_none() {
            if nothing && !self.broken {
                return Err(self.context.error(ErrorClass::EmptyResponse, "the answer was empty"));
            }
            if !explicit || !self.slots.all_whole() {
                return Err(self.context.error(ErrorClass::Incomplete, "the stream ended before the answer did"));
            }
        }
        let finish_missing = stated.is_none();
        let cut = stated == Some(Finish::Length);
        let ended = matches!(stated, Some(Finish::Stop | Finish::ToolCalls));
        let calls = std::mem::take(&mut self.slots).finish(&self.context.names, ended, cut);
        let Ok(calls) = calls else {
            return Err(self.context.error(ErrorClass::BadResponse, "the answer holds a tool call without a name"));
        };
        // Many servers say "stop" when they mean that the calls are complete.
        let finish = match stated.unwrap_or(Finish::Stop) {
            Finish::Stop if !calls.is_empty() => Finish::ToolCalls,
            other => other,
        };
        let reasoning = std::mem::take(&mut self.reasoning);
        Ok(Delta::Done(Box::new(Completion {
            text: std::mem::take(&mut self.text),
            reasoning: (!reasoning.is_empty()).then_some(reasoning),
            sidecar: self.details.sidecar(&self.context.issuer),
            calls,
            finish,
            finish_missing,
            usage: self.usage,
            served_model: self.served_model.take(),
        })))
    }
}

fn function_fragment<'a>(function: &FunctionPart<'a>) -> Fragment<'a> {
    Fragment {
        index: None,
        id: None,
        name: function.name.and_then(string).map(Cow::Owned),
        // Some servers send the arguments as an object: its bytes are the arguments.
        arguments: function.arguments.map(|raw| string(raw).map_or(Cow::Borrowed(raw.get()), Cow::Owned)),
    }
}

/// True for `[DONE]` and for a chunk.
fn is_payload(text: &str) -> bool {
    text == DONE || parse_chunk(text).is_some()
}

fn parse_chunk(text: &str) -> Option<Chunk<'_>> {
    // The shape is an object; a derived reader would also take a list.
    if text.starts_with('{') { serde_json::from_str(text).ok() } else { None }
}

/// The word in lower case; servers also send numbers.
fn finish_of(raw: &RawValue) -> Option<String> {
    let word = string(raw).unwrap_or_else(|| raw.get().to_owned());
    let word = word.trim().to_lowercase();
    (!word.is_empty() && word != "null").then_some(word)
}

fn normal_finish(word: String) -> Finish {
    match word.as_str() {
        "stop" | "end" | "eos" | "stop_sequence" | "end_turn" => Finish::Stop,
        "tool_calls" | "function_call" | "tool_use" => Finish::ToolCalls,
        "length" | "max_tokens" | "model_length" => Finish::Length,
        "content_filter" | "safety" => Finish::ContentFilter,
        "pause_turn" => Finish::Pause,
        _ => Finish::Other(word),
    }
}

/// `reasoning_details`: opaque parts that must go back. Fragments of one part are joined, whole ones keep their bytes.
#[derive(Debug, Default)]
struct Details {
    parts: Vec<Detail>,
}

#[derive(Debug)]
struct Detail {
    key: Option<(String, String)>,
    raw: String,
    /// Filled from the second fragment on.
    merged: Option<serde_json::Map<String, Value>>,
}

/// Members that arrive in pieces.
const GROWING: [&str; 4] = ["text", "summary", "data", "signature"];
/// Most parts that are kept.
const MAX_DETAILS: usize = 4096;

impl Details {
    /// Adds fragments; true when there were any.
    fn add(&mut self, raws: Vec<&RawValue>) -> bool {
        let any = !raws.is_empty();
        for raw in raws {
            let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(raw.get()) else { continue };
            let text = |key: &str| fields.get(key).map(ToString::to_string);
            let key = text("index").zip(text("type"));
            let open = self.parts.iter().rposition(|part| key.is_some() && part.key == key);
            match open {
                Some(at) => self.parts[at].merge(&fields),
                None if self.parts.len() < MAX_DETAILS => {
                    self.parts.push(Detail { key, raw: raw.get().to_owned(), merged: None });
                }
                None => {}
            }
        }
        any
    }

    fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    fn sidecar(&self, issuer: &Arc<str>) -> Option<Sidecar> {
        if self.parts.is_empty() {
            return None;
        }
        let parts: Vec<String> = self
            .parts
            .iter()
            .map(|part| {
                part.merged.as_ref().and_then(|map| serde_json::to_string(map).ok()).unwrap_or_else(|| part.raw.clone())
            })
            .collect();
        let bytes = Bytes::from(format!("{{\"reasoning_details\":[{}]}}", parts.join(",")));
        Some(Sidecar { issuer: Arc::clone(issuer), bytes })
    }
}

impl Detail {
    fn merge(&mut self, more: &serde_json::Map<String, Value>) {
        let raw = &self.raw;
        let map = self.merged.get_or_insert_with(|| serde_json::from_str(raw).unwrap_or_default());
        for (key, value) in more {
            match (map.get_mut(key), value) {
                (_, Value::Null) => {}
                (Some(Value::String(old)), Value::String(new)) if GROWING.contains(&key.as_str()) => old.push_str(new),
                _ => {
                    map.insert(key.clone(), value.clone());
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
