//! The bytes of an answer to deltas, in any split.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::chat::{Delta, Finish, Sidecar};
use crate::error::{ErrorClass, ProviderError};
use crate::json::{object, read, string};
use crate::mode::answer::Answer;
use crate::mode::body::{Body, Rest};
use crate::mode::context::DecodeContext;
use crate::mode::responses::event::{About, Event, Item, Kind, QuickDelta, Response, arguments};
use crate::mode::responses::replay::{self, BETWEEN, without_id};
use crate::mode::responses::slots::{Readable, Slots, TooMany};
use crate::mode::responses::usage;
use crate::mode::{Decoder, StreamEnd};
use crate::sse::Frame;

/// What more of an item came.
#[derive(Debug, Clone, Copy)]
enum Grows {
    Text,
    Refusal,
    Reasoning(Readable),
    Arguments,
}

impl Grows {
    /// By the type of the event.
    fn of(kind: &str) -> Option<Self> {
        Some(match kind {
            "response.output_text.delta" => Self::Text,
            "response.refusal.delta" => Self::Refusal,
            "response.reasoning_summary_text.delta" => Self::Reasoning(Readable::Summary),
            "response.reasoning_text.delta" => Self::Reasoning(Readable::Full),
            "response.function_call_arguments.delta" => Self::Arguments,
            _ => return None,
        })
    }
}

/// Decodes one answer.
#[derive(Debug)]
pub struct ResponsesDecoder {
    body: Body,
    context: DecodeContext,
    answer: Answer,
    slots: Slots,
    /// An error event that `response.failed` may still explain.
    held: Option<String>,
    done: bool,
}

impl Decoder for ResponsesDecoder {
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
            Rest::Text(body) => return Err(self.context.no_answer("response", &body)),
        }
        if self.done {
            return Ok(());
        }
        self.done = true;
        if let Some(told) = self.held.take() {
            return Err(self.context.classified(&told));
        }
        // Items without the end of the answer are no whole answer: the provider always sends it.
        let is_broken = end == StreamEnd::Broken || !self.slots.0.is_empty();
        Err(self.answer.cut(&self.context, is_broken))
    }

    fn is_finished(&self) -> bool {
        // Behind an error only its explanation may come.
        self.done || self.held.is_some()
    }

    fn progress(&self) -> u64 {
        self.answer.progress
    }
}

impl ResponsesDecoder {
    /// A decoder for the answer to one request.
    #[must_use]
    pub fn new(context: DecodeContext) -> Self {
        Self {
            body: Body::default(),
            context,
            answer: Answer::default(),
            slots: Slots::default(),
            held: None,
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
            self.hold(text);
            return Ok(());
        }
        if self.quick(text, out)? {
            return Ok(());
        }
        if let Some(event) = Event::parse(text) {
            return self.event(&event, &frame.event, text, out);
        }
        // Servers that forget the blank line between frames: each line is an event.
        // (Looked at twice rather than kept: events are ten times as large as the lines of a bad server.)
        if text.lines().nth(1).is_some() && text.lines().all(|line| Event::parse(line).is_some()) {
            for (event, line) in text.lines().filter_map(|line| Event::parse(line).zip(Some(line))) {
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
        if Event::parse(text).is_some() || never_json {
            return self.frame(frame, out);
        }
        for line in text.lines() {
            let Some(event) = Event::parse(line) else { break };
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
        let Ok(raw) = serde_json::from_str::<&RawValue>(document) else {
            return Err(self.context.error(ErrorClass::Incomplete, "the answer ended before it was whole"));
        };
        let response: Response<'_> = read(Some(raw));
        let status = response.status();
        if response.output.is_none() && !matches!(status.as_str(), "failed" | "incomplete" | "cancelled") {
            if Event::parse(document).is_some_and(|event| event.is_error("")) {
                return Err(self.context.classified(document));
            }
            let said = self.context.clean(document);
            return Err(self.context.error(ErrorClass::BadResponse, &format!("the answer is no response: {said}")));
        }
        self.end(&response, &status, out)
    }

    /// The deltas of text, reasoning and arguments, in one reading. False when it is anything else.
    fn quick(&mut self, text: &str, out: &mut Vec<Delta>) -> Result<bool, ProviderError> {
        let Some(delta) = object::<QuickDelta<'_>>(text) else { return Ok(false) };
        let Some(grows) = Grows::of(&delta.kind) else { return Ok(false) };
        let part = delta.part();
        let (about, more) = delta.split();
        self.grow(grows, &about, part, &more, out)?;
        Ok(true)
    }

    fn event(&mut self, event: &Event<'_>, name: &str, text: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let kind = event.kind(name);
        if event.is_error(&kind) {
            self.hold(text);
            return Ok(());
        }
        if let Some(grows) = Grows::of(&kind) {
            let more = event.delta.and_then(string).unwrap_or_default();
            return self.grow(grows, &event.about(), event.part(), &more, out);
        }
        match &*kind {
            "response.created" | "response.in_progress" => {
                let response: Response<'_> = read(event.response);
                self.answer.served_model = response.model().or(self.answer.served_model.take());
                Ok(())
            }
            "response.output_item.added" => self.added(event, out),
            "response.output_item.done" => {
                let Some(raw) = event.item else { return Ok(()) };
                let item: Item<'_> = read(Some(raw));
                let about = item.about(event.about().index);
                let at = self.slots.of_done(item.kind(), &about).map_err(|limit| self.too_many(&limit))?;
                self.item(at, &item, raw, out)
            }
            "response.function_call_arguments.done" => self.arguments_done(event, out),
            "response.completed" | "response.done" => self.end(&read(event.response), "completed", out),
            "response.incomplete" => self.end(&read(event.response), "incomplete", out),
            "response.failed" => self.end(&read(event.response), "failed", out),
            "response.cancelled" => self.end(&read(event.response), "cancelled", out),
            // What repeats what other events say, and events that this program does not know: new ones are promised.
            _ => Ok(()),
        }
    }

    /// An error that waits for its explanation.
    fn hold(&mut self, text: &str) {
        self.answer.progress += 1;
        self.held.get_or_insert_with(|| text.to_owned());
    }

    fn too_many(&self, _: &TooMany) -> ProviderError {
        self.context.error(ErrorClass::Limit, "the answer holds too many items")
    }

    /// An item begins.
    fn added(&mut self, event: &Event<'_>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let item: Item<'_> = read(event.item);
        let about = item.about(event.about().index);
        let at = self.slots.of_added(item.kind(), &about).map_err(|limit| self.too_many(&limit))?;
        self.answer.progress += 1;
        let slot = &mut self.slots.0[at];
        slot.phase = slot.phase.take().or(item.phase().map(Cow::into_owned));
        if slot.kind == Kind::Call {
            self.name(at, item.name.and_then(string), out)?;
        }
        Ok(())
    }

    /// The name of a call is known: it begins for the reader.
    fn name(&mut self, at: usize, name: Option<String>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let slot = &mut self.slots.0[at];
        if let Some(call) = slot.call {
            self.answer.call_id(call, slot.call_id().unwrap_or_default());
            return Ok(());
        }
        let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(()) };
        let id = slot.call_id().map(str::to_owned);
        let call = self.answer.start_call(&self.context, id, &name, out)?;
        slot.call = Some(call);
        let early = std::mem::take(&mut slot.early);
        self.answer.arguments(&self.context, call, &early, out);
        Ok(())
    }

    /// More of an item.
    fn grow(
        &mut self,
        grows: Grows,
        about: &About<'_>,
        part: i64,
        more: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ProviderError> {
        if more.is_empty() {
            return Ok(());
        }
        let kind = match grows {
            Grows::Text | Grows::Refusal => Kind::Message,
            Grows::Reasoning(_) => Kind::Reasoning,
            Grows::Arguments => Kind::Call,
        };
        let Some(at) = self.slots.of_delta(kind, about).map_err(|limit| self.too_many(&limit))? else { return Ok(()) };
        match grows {
            Grows::Text => self.text(at, more, false, out),
            Grows::Refusal => self.text(at, more, true, out),
            Grows::Reasoning(readable) => self.reasoning(at, (readable, part), more, out),
            Grows::Arguments => self.arguments(at, more, out),
        }
        Ok(())
    }

    /// More text of a message.
    fn text(&mut self, at: usize, more: &str, is_refusal: bool, out: &mut Vec<Delta>) {
        if more.is_empty() {
            return;
        }
        let slot = &mut self.slots.0[at];
        let is_first = slot.text.is_empty();
        slot.is_refusal = is_refusal && (is_first || slot.is_refusal);
        slot.text.push_str(more);
        if slot.is_thought() {
            if is_first && !self.answer.reasoning.is_empty() {
                self.answer.reasoning(&self.context, BETWEEN, out);
            }
            return self.answer.reasoning(&self.context, more, out);
        }
        if is_first && !self.answer.text.is_empty() {
            self.answer.text(&self.context, BETWEEN, out);
        }
        self.answer.text(&self.context, more, out);
    }

    /// More readable reasoning.
    fn reasoning(&mut self, at: usize, part: (Readable, i64), more: &str, out: &mut Vec<Delta>) {
        let slot = &mut self.slots.0[at];
        if slot.part.is_some_and(|(readable, _)| readable != part.0) {
            self.answer.progress += 1;
            return;
        }
        if slot.part != Some(part) && !self.answer.reasoning.is_empty() {
            self.answer.reasoning(&self.context, BETWEEN, out);
        }
        slot.part = Some(part);
        self.answer.reasoning(&self.context, more, out);
    }

    /// More arguments of a call.
    fn arguments(&mut self, at: usize, more: &str, out: &mut Vec<Delta>) {
        let slot = &mut self.slots.0[at];
        slot.has_arguments |= !more.trim().is_empty();
        match slot.call {
            Some(call) => self.answer.arguments(&self.context, call, more, out),
            None => {
                slot.early.push_str(more);
                self.answer.progress += 1;
            }
        }
    }

    fn arguments_done(&mut self, event: &Event<'_>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let found = self.slots.of_delta(Kind::Call, &event.about()).map_err(|limit| self.too_many(&limit))?;
        let Some(at) = found else { return Ok(()) };
        self.name(at, event.name.and_then(string), out)?;
        self.settle(at, arguments(event.arguments));
        Ok(())
    }

    /// The provider says that a call is complete. Its arguments are what it says now, or else what came before.
    fn settle(&mut self, at: usize, whole: Option<String>) {
        self.answer.progress += 1;
        let slot = &mut self.slots.0[at];
        slot.is_settled = true;
        if let Some(whole) = whole.filter(|whole| !whole.trim().is_empty()) {
            slot.has_arguments = true;
            slot.whole = Some(whole);
        }
    }

    /// The provider gives an item as a whole.
    fn item(&mut self, at: usize, item: &Item<'_>, raw: &RawValue, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.slots.0[at].is_done {
            return Ok(());
        }
        self.answer.progress += 1;
        let slot = &mut self.slots.0[at];
        slot.is_done = true;
        match slot.kind {
            Kind::Message => {
                // Text that was shown as an answer stays one, and the other way round.
                if slot.text.is_empty() || item.is_thought() == slot.is_thought() {
                    slot.phase = item.phase().map(Cow::into_owned).or(slot.phase.take());
                }
                self.rest_of_message(at, item, out);
            }
            Kind::Reasoning => {
                if slot.part.is_none() {
                    for (nth, text) in (0..).zip(item.reasoning()) {
                        self.reasoning(at, (Readable::Summary, nth), &text, out);
                    }
                }
                self.keep(at, item, raw);
            }
            Kind::Call => {
                self.name(at, item.name.and_then(string), out)?;
                if item.is_complete() {
                    self.settle(at, arguments(item.arguments));
                }
            }
            Kind::Other => self.keep(at, item, raw),
        }
        Ok(())
    }

    /// What no delta brought of a message.
    fn rest_of_message(&mut self, at: usize, item: &Item<'_>, out: &mut Vec<Delta>) {
        let (whole, is_refusal) = item.message();
        let slot = &self.slots.0[at];
        let is_last = self.answer.text.ends_with(&slot.text) || slot.is_thought();
        if let Some(rest) = whole.strip_prefix(slot.text.as_str()).filter(|_| is_last) {
            self.text(at, rest, is_refusal, out);
        }
    }

    /// Keeps an opaque item as it goes back. What was cut, or holds nothing but an id, does not.
    fn keep(&mut self, at: usize, item: &Item<'_>, raw: &RawValue) {
        let slot = &mut self.slots.0[at];
        if slot.raw.is_none() && item.is_complete() && item.is_worth_keeping() {
            slot.raw = without_id(raw);
        }
    }

    /// The list of items in the last event: what is missing, and the order. Returns the slots in that order.
    fn output(&mut self, response: &Response<'_>, out: &mut Vec<Delta>) -> Result<Vec<usize>, ProviderError> {
        let mut order = Vec::new();
        let mut taken = Vec::new();
        for (item, raw) in replay::output(response.output) {
            let kind = item.kind();
            let about = item.about(None);
            let at = self.slots.of_output(kind, &about, &taken).map_err(|limit| self.too_many(&limit))?;
            order.push(at);
            taken.resize(self.slots.0.len(), false);
            taken[at] = true;
            self.item(at, &item, raw, out)?;
            if matches!(kind, Kind::Reasoning | Kind::Other) {
                // The state of an item may come with the last event only.
                self.keep(at, &item, raw);
            }
        }
        // A list that leaves items out says nothing about their order.
        if order.len() != self.slots.0.len() {
            order = (0..self.slots.0.len()).collect();
        }
        Ok(order)
    }

    /// The answer has ended; `word` is how the event (or the document) calls it.
    fn end(&mut self, response: &Response<'_>, word: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let status = response.status();
        let told =
            if matches!(status.as_str(), "failed" | "incomplete" | "cancelled") { status.as_str() } else { word };
        if told == "failed" || response.has_error() || self.held.is_some() {
            return Err(self.failed(response));
        }
        let finish = match told {
            "" | "completed" => Finish::Stop,
            "incomplete" => normal_reason(response.reason().as_deref()),
            "cancelled" => return Err(self.context.error(ErrorClass::Incomplete, "the provider cancelled the answer")),
            _ => return Err(self.context.error(ErrorClass::Incomplete, "the answer ended before it was whole")),
        };
        self.answer.served_model = response.model().or(self.answer.served_model.take());
        self.answer.usage = response.usage.and_then(usage::read).or(self.answer.usage);
        let order = self.output(response, out)?;
        self.complete(&order, finish, told.is_empty(), out)
    }

    fn complete(
        &mut self,
        order: &[usize],
        finish: Finish,
        finish_missing: bool,
        out: &mut Vec<Delta>,
    ) -> Result<(), ProviderError> {
        let is_cut = finish != Finish::Stop;
        for slot in self.slots.0.iter().filter(|slot| slot.kind == Kind::Call) {
            let Some(call) = slot.call else {
                return Err(self.context.error(ErrorClass::BadResponse, "the answer holds a tool call without a name"));
            };
            // Of a call that was cut before its first argument nothing is known; it does not become one without any.
            if slot.is_settled && (slot.has_arguments || !is_cut) {
                self.answer.close_call(&self.context, call, slot.whole.as_deref(), out);
            }
        }
        let mut said = self.slots.0.iter().filter(|slot| !slot.text.is_empty() && !slot.is_thought()).peekable();
        let is_refused = said.peek().is_some() && said.all(|slot| slot.is_refusal) && !self.answer.has_calls();
        let finish = if is_refused && !is_cut { Finish::ContentFilter } else { finish };
        let kept = replay::sidecar(order.iter().filter_map(|at| self.slots.0.get(*at)));
        let sidecar = kept.map(|bytes| Sidecar { issuer: Arc::clone(&self.context.issuer), bytes: Bytes::from(bytes) });
        let mut end = self.answer.complete(sidecar, finish);
        if let Delta::Done(completion) = &mut end {
            completion.finish_missing = finish_missing;
        }
        self.done = true;
        self.slots = Slots::default();
        out.push(end);
        Ok(())
    }

    /// Why the provider failed, from the event that says more.
    fn failed(&mut self, response: &Response<'_>) -> ProviderError {
        let told = response.error.filter(|_| response.has_error());
        let told = told.map(|raw| self.context.classified(&format!("{{\"error\":{}}}", raw.get())));
        let held = self.held.take().map(|text| self.context.classified(&text));
        match (told, held) {
            (Some(told), Some(held)) if told.class == ErrorClass::ServerError => held,
            (Some(told), _) => told,
            (None, Some(held)) => held,
            (None, None) => self.context.error(ErrorClass::ServerError, "the provider failed and does not say why"),
        }
    }
}

/// Why an answer is not complete; nothing becomes "stop".
fn normal_reason(reason: Option<&str>) -> Finish {
    match reason {
        Some("max_output_tokens" | "max_tokens" | "length") => Finish::Length,
        Some("content_filter") => Finish::ContentFilter,
        Some(other) => Finish::Other(other.to_owned()),
        None => Finish::Other("incomplete".to_owned()),
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
