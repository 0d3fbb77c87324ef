//! A request to the bytes of its body.
//!
//! The keys have a fixed order and `input` is the last one. So the body of a request without its closing `]}` is a byte
//! prefix of the body of the next request of the same conversation, which is what prompt caches live on (I18).

use std::borrow::Cow;

use bytes::Bytes;

use crate::chat::{ChatMessage, ChatRequest, Image, Sidecar, ToolCall};
use crate::mode::effort::{clamp_effort, takes_temperature};
use crate::mode::names::{NameMap, wire_id};
use crate::mode::responses::replay::{Piece, message, read_sidecar};
use crate::mode::writer::{Writer, data_url};
use crate::mode::{Encoded, WireOptions};
use crate::profile::ToolIds;
use crate::schema::{SchemaDialect, clean_listing, clean_tool};

/// The path of the method.
const PATH: &str = "responses";
/// Longest id of a call that goes out as it is.
const MAX_CALL_ID_BYTES: usize = 64;

/// The request for this wire. Pure: the same values give the same bytes.
#[must_use]
pub fn encode(request: &ChatRequest, options: &WireOptions) -> Encoded {
    Encoded {
        path: PATH.to_owned(),
        query: "",
        headers: Vec::new(),
        accept: "text/event-stream, application/json",
        body: body(request, options),
    }
}

fn body(request: &ChatRequest, options: &WireOptions) -> Bytes {
    let names = NameMap::new(&request.tools);
    let out = Writer::for_request(request);
    let mut out = Document { out, options, names: &names, is_first: true, shown: Vec::new() };
    out.head(request);
    out.out.raw(",\"input\":[");
    for message in &request.messages {
        out.message(message);
    }
    out.pictures();
    out.out.raw("]}");
    out.out.finish()
}

struct Document<'a> {
    out: Writer,
    options: &'a WireOptions,
    names: &'a NameMap,
    /// No item was written yet.
    is_first: bool,
    /// Pictures of results that have to follow as a message of the user.
    shown: Vec<&'a Image>,
}

impl<'a> Document<'a> {
    /// Everything before the history.
    fn head(&mut self, request: &ChatRequest) {
        let quirks = &self.options.quirks;
        self.out.raw("{\"model\":");
        self.out.json(&self.options.model);
        self.out.member("stream", &request.stream);
        // The conversation is ours; nothing of it stays with the server.
        self.out.raw(",\"store\":false");
        if !request.system.is_empty() {
            self.out.member("instructions", &*String::from_utf8_lossy(&request.system));
        }
        self.tools(request);
        if let Some(most) = request.max_output_tokens.filter(|_| quirks.responses.output_cap) {
            self.out.member("max_output_tokens", &most);
        }
        if let Some(temperature) = request.temperature.filter(|_| takes_temperature(&self.options.model, quirks)) {
            self.out.member("temperature", &temperature);
        }
        if quirks.responses.reasons(&self.options.model) {
            self.reasoning(request.reasoning_effort.as_deref());
        }
        if let Some(key) = request.cache_key.as_deref().filter(|_| quirks.prompt_cache_key) {
            self.out.member("prompt_cache_key", key);
        }
        if let Some(kept) = quirks.responses.cache_retention.as_deref() {
            self.out.member("prompt_cache_retention", kept);
        }
    }

    fn dialect(&self) -> SchemaDialect {
        self.options.quirks.schema.unwrap_or(SchemaDialect::Plain)
    }

    /// No tools, no field (case W4).
    fn tools(&mut self, request: &ChatRequest) {
        for (at, tool) in request.tools.iter().enumerate() {
            self.out.raw(if at == 0 { ",\"tools\":[" } else { "," });
            self.out.raw("{\"type\":\"function\",\"name\":");
            self.out.json(&*self.names.wire(&tool.name));
            let clean = clean_tool(tool, self.dialect());
            self.out.member("description", &*clean.description);
            // Strict is the default of this wire, and it refuses most schemas.
            self.out.raw(",\"strict\":false");
            self.out.member("parameters", &clean.parameters);
            self.out.raw("}");
        }
        if !request.tools.is_empty() {
            self.out.raw("],\"tool_choice\":\"auto\",\"parallel_tool_calls\":true");
        }
    }

    fn reasoning(&mut self, wanted: Option<&str>) {
        let quirks = &self.options.quirks;
        let effort = wanted.and_then(|wanted| clamp_effort(wanted, &self.options.model, quirks));
        let is_off = effort == Some("none");
        let summary = quirks.responses.reasoning_summary && !is_off;
        if effort.is_some() || summary {
            self.out.raw(",\"reasoning\":{");
            if let Some(effort) = effort {
                self.out.raw("\"effort\":");
                self.out.json(effort);
            }
            if summary {
                self.out.raw(if effort.is_some() { "," } else { "" });
                self.out.raw("\"summary\":\"auto\"");
            }
            self.out.raw("}");
        }
        // Also when it shall not think now: what was thought before goes back.
        if quirks.responses.encrypted_reasoning {
            self.out.raw(",\"include\":[\"reasoning.encrypted_content\"]");
        }
    }

    fn message(&mut self, message: &'a ChatMessage) {
        match message {
            ChatMessage::User { text, images } => {
                self.pictures();
                self.said(text, images.iter());
            }
            ChatMessage::Assistant { text, sidecar, calls, .. } => {
                self.pictures();
                self.answer(text, sidecar.as_ref(), calls);
            }
            ChatMessage::Tool { call_id, name, content, images, .. } => {
                self.result(call_id, &clean_listing(name, content, self.dialect()), images);
            }
        }
    }

    /// An item begins.
    fn item(&mut self, text: &str) {
        if !std::mem::take(&mut self.is_first) {
            self.out.raw(",");
        }
        self.out.raw(text);
    }

    fn said<'b>(&mut self, text: &str, images: impl Iterator<Item = &'b Image>) {
        self.item("{\"type\":\"message\",\"role\":\"user\",\"content\":[");
        self.parts(text, images);
        self.out.raw("]}");
    }

    /// Text and pictures as parts. Text that is empty is left out where a picture stands for it.
    fn parts<'b>(&mut self, text: &str, images: impl Iterator<Item = &'b Image>) {
        let mut images = images.peekable();
        let mut is_first = true;
        if !text.is_empty() || images.peek().is_none() {
            self.out.raw("{\"type\":\"input_text\",\"text\":");
            self.out.json(text);
            self.out.raw("}");
            is_first = false;
        }
        for image in images {
            self.out.raw(if std::mem::take(&mut is_first) { "" } else { "," });
            self.out.raw("{\"type\":\"input_image\",\"detail\":\"auto\",\"image_url\":");
            self.out.json(&data_url(image));
            self.out.raw("}");
        }
    }

    /// An answer: from the sidecar where it is ours, else from what everybody can read.
    fn answer(&mut self, text: &str, sidecar: Option<&Sidecar>, calls: &[ToolCall]) {
        let own = sidecar.filter(|sidecar| sidecar.issuer == self.options.issuer);
        match own.and_then(|own| read_sidecar(&own.bytes, text, calls)) {
            Some(pieces) => {
                for piece in pieces {
                    match piece {
                        Piece::Raw(raw) => self.item(raw),
                        Piece::Call(call) => self.call(call),
                    }
                }
            }
            None => {
                if !text.is_empty() {
                    self.item(&message(text, None));
                }
                for call in calls {
                    self.call(call);
                }
            }
        }
    }

    fn call(&mut self, call: &ToolCall) {
        self.item("{\"type\":\"function_call\",\"call_id\":");
        self.out.json(&*self.call_id(&call.id));
        self.out.member("name", &*self.names.wire(&call.name));
        self.out.member("arguments", &call.arguments);
        self.out.raw("}");
    }

    fn result(&mut self, id: &str, content: &str, images: &'a [Image]) {
        self.item("{\"type\":\"function_call_output\",\"call_id\":");
        self.out.json(&*self.call_id(id));
        if images.is_empty() || !self.options.quirks.responses.tool_images {
            self.out.member("output", content);
            self.shown.extend(images);
        } else {
            self.out.raw(",\"output\":[");
            self.parts(content, images.iter());
            self.out.raw("]");
        }
        self.out.raw("}");
    }

    /// Pictures of the results before, where results hold none: they stand behind the last of their round.
    fn pictures(&mut self) {
        let shown = std::mem::take(&mut self.shown);
        if !shown.is_empty() {
            self.said("", shown.into_iter());
        }
    }

    /// The id of a call as the server takes it. The call and its result get the same one.
    fn call_id<'b>(&self, id: &'b str) -> Cow<'b, str> {
        match self.options.quirks.tool_ids {
            ToolIds::Alnum9 => wire_id(id, ToolIds::Alnum9),
            _ if id.len() > MAX_CALL_ID_BYTES => wire_id(id, ToolIds::Max40),
            _ => Cow::Borrowed(id),
        }
    }
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
