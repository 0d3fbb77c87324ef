//! A request to the bytes of its body.
//!
//! The keys have a fixed order and `contents` is the last one. So the body of a request without its closing `]}]}` is a
//! byte prefix of the body of the next request of the same conversation, which is what prompt caches live on (I18).

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::chat::{ChatMessage, ChatRequest, Image, Sidecar, ToolCall, ToolSchema};
use crate::mode::gemini::parts::{Call, Replay, replay};
use crate::mode::gemini::quirks::{Family, Thinking};
use crate::mode::names::{NameMap, wire_id};
use crate::mode::turns::EARLIER;
use crate::mode::writer::{Writer, base64_of};
use crate::mode::{Encoded, WireOptions};
use crate::percent;
use crate::schema::{SchemaDialect, clean_listing, clean_tool};

/// What stands for the signature of a call that another model made. The maker documents it for histories that were not
/// made by Gemini ("Thought signatures", questions and answers).
pub const SKIP_SIGNATURE: &str = "skip_thought_signature_validator";
/// Stands for a message without text and pictures: a part without text is refused.
const NO_TEXT: &str = " ";
/// Beginnings of names that say themselves which collection they are of.
const COLLECTIONS: [&str; 2] = ["models/", "tunedModels/"];

const USER: &str = "user";
const MODEL: &str = "model";

/// The request for this wire. Pure: the same values give the same bytes.
#[must_use]
pub fn encode(request: &ChatRequest, options: &WireOptions) -> Encoded {
    let (method, query, accept) = if request.stream {
        ("streamGenerateContent", "alt=sse", "text/event-stream, application/json")
    } else {
        ("generateContent", "", "application/json")
    };
    Encoded {
        path: format!("{}:{method}", resource(&options.model)),
        query,
        headers: Vec::new(),
        accept,
        body: body(request, options),
    }
}

/// The model as a path, percent-encoded.
fn resource(model: &str) -> String {
    let known = COLLECTIONS.iter().find_map(|start| Some((*start, model.strip_prefix(start)?)));
    let (collection, name) = known.unwrap_or((COLLECTIONS[0], model));
    format!("{collection}{}", percent::encode(name))
}

fn body(request: &ChatRequest, options: &WireOptions) -> Bytes {
    let names = NameMap::new(&request.tools);
    let mut out = Document {
        out: Writer::for_request(request),
        options,
        family: options.quirks.gemini.family(&options.model),
        names: &names,
        role: None,
        calls: HashMap::new(),
    };
    out.head(request);
    out.out.raw("\"contents\":[");
    for message in &request.messages {
        out.message(message);
    }
    out.out.raw(if out.role.is_some() { "]}]}" } else { "]}" });
    out.out.finish()
}

/// How a call went out, so that its result names it in the same way.
struct SentCall {
    id: Option<String>,
    name: String,
}

struct Document<'a> {
    out: Writer,
    options: &'a WireOptions,
    family: Option<&'a Family>,
    names: &'a NameMap,
    /// The role of the content that is open. Neighbours of one role share it.
    role: Option<&'static str>,
    /// The calls of the last message of the model, by their id of ours.
    calls: HashMap<&'a str, SentCall>,
}

impl<'a> Document<'a> {
    /// Everything before the history. Each member ends in a comma.
    fn head(&mut self, request: &ChatRequest) {
        self.out.raw("{");
        if !request.system.is_empty() {
            self.out.raw("\"systemInstruction\":{\"parts\":[{\"text\":");
            self.out.json(&*String::from_utf8_lossy(&request.system));
            self.out.raw("}]},");
        }
        self.tools(&request.tools);
        let mut config = Vec::new();
        let model = &self.options.model;
        let quirks = &self.options.quirks;
        let refuses = quirks.no_temperature_models.iter().any(|start| model.starts_with(start.as_str()));
        if let Some(temperature) = request.temperature.filter(|_| !refuses) {
            config.push(format!("\"temperature\":{}", Value::from(temperature)));
        }
        if let Some(most) = request.max_output_tokens {
            config.push(format!("\"maxOutputTokens\":{most}"));
        }
        let thinking = self.family.and_then(|family| family.thinking(request.reasoning_effort.as_deref()));
        if let Some(thinking) = thinking {
            config.push(format!("\"thinkingConfig\":{}", thinking_config(thinking)));
        }
        if !config.is_empty() {
            self.out.raw("\"generationConfig\":{");
            self.out.raw(&config.join(","));
            self.out.raw("},");
        }
    }

    fn dialect(&self) -> SchemaDialect {
        self.options.quirks.schema.unwrap_or(SchemaDialect::Gemini)
    }

    /// No tools, no field.
    fn tools(&mut self, tools: &[ToolSchema]) {
        for (at, tool) in tools.iter().enumerate() {
            self.out.raw(if at == 0 { "\"tools\":[{\"functionDeclarations\":[" } else { "," });
            self.out.raw("{\"name\":");
            self.out.json(&*self.names.wire(&tool.name));
            let clean = clean_tool(tool, self.dialect());
            self.out.member("description", &*clean.description);
            if takes_arguments(&clean.parameters) {
                let field = match self.dialect() {
                    SchemaDialect::OpenApi => "parameters",
                    _ => "parametersJsonSchema",
                };
                self.out.member(field, &clean.parameters);
            }
            self.out.raw("}");
        }
        if !tools.is_empty() {
            self.out.raw("]}],\"toolConfig\":{\"functionCallingConfig\":{\"mode\":\"AUTO\"}},");
        }
    }

    /// Begins a part of this role.
    fn part(&mut self, role: &'static str) {
        if self.role.is_none() && role == MODEL {
            self.text(USER, EARLIER);
        }
        match self.role.replace(role) {
            Some(open) if open == role => return self.out.raw(","),
            Some(_) => self.out.raw("]},"),
            None => {}
        }
        self.out.raw("{\"role\":\"");
        self.out.raw(role);
        self.out.raw("\",\"parts\":[");
    }

    fn text(&mut self, role: &'static str, text: &str) {
        self.part(role);
        self.out.raw("{\"text\":");
        self.out.json(text);
        self.out.raw("}");
    }

    fn message(&mut self, message: &'a ChatMessage) {
        match message {
            ChatMessage::User { text, images } => {
                if !text.is_empty() || images.is_empty() {
                    self.text(USER, if text.is_empty() { NO_TEXT } else { text });
                }
                self.images(images);
            }
            ChatMessage::Assistant { text, sidecar, calls, .. } => self.assistant(text, sidecar.as_ref(), calls),
            ChatMessage::Tool { call_id, name, content, is_error, images } => {
                self.result(call_id, name, content, *is_error, images);
            }
        }
    }

    fn images(&mut self, images: &[Image]) {
        for image in images {
            self.part(USER);
            self.image(image);
        }
    }

    fn image(&mut self, image: &Image) {
        self.out.raw("{\"inlineData\":{\"mimeType\":");
        self.out.json(&*image.media_type);
        // Base64 needs no escapes.
        self.out.raw(",\"data\":\"");
        self.out.raw(&base64_of(image));
        self.out.raw("\"}}");
    }

    /// Our own parts go back as they came. Another issuer's state never goes out.
    fn assistant(&mut self, text: &str, sidecar: Option<&Sidecar>, calls: &'a [ToolCall]) {
        self.calls.clear();
        let own = sidecar.filter(|sidecar| sidecar.issuer == self.options.issuer);
        if let Some(replay) = own.and_then(|own| replay(&own.bytes, text, calls, self.names)) {
            return self.replay(replay, calls);
        }
        if !text.is_empty() {
            self.text(MODEL, text);
        }
        let needs_signature = self.needs_signature();
        for (at, call) in calls.iter().enumerate() {
            self.foreign_call(call, needs_signature && at == 0);
        }
    }

    fn needs_signature(&self) -> bool {
        self.family.is_some_and(|family| family.signed_calls)
    }

    fn replay(&mut self, replay: Replay<'_>, calls: &'a [ToolCall]) {
        // A server in between may have lost the signatures of this message; without one the request would be refused.
        let mut unsigned = self.needs_signature() && !replay.is_signed;
        let mut calls = calls.iter();
        for part in replay.parts {
            self.part(MODEL);
            let object = part.raw.strip_suffix('}').filter(|_| unsigned && part.call.is_some());
            match object {
                Some(object) => {
                    unsigned = false;
                    self.out.raw(object);
                    self.skip_signature();
                    self.out.raw("}");
                }
                None => self.out.raw(part.raw),
            }
            if let Some((call, Call { id, name, .. })) = part.call.and_then(|sent| Some((calls.next()?, sent))) {
                self.calls.insert(&call.id, SentCall { id, name });
            }
        }
    }

    fn foreign_call(&mut self, call: &'a ToolCall, sign: bool) {
        let id = (!self.options.quirks.gemini.no_call_ids)
            .then(|| wire_id(&call.id, self.options.quirks.tool_ids).into_owned());
        let name = self.names.wire(&call.name).into_owned();
        self.part(MODEL);
        self.out.raw("{\"functionCall\":{");
        self.id_and_name(id.as_deref(), &name);
        self.out.raw(",\"args\":");
        self.out.raw(&object_of(&call.arguments));
        self.out.raw("}");
        if sign {
            self.skip_signature();
        }
        self.out.raw("}");
        self.calls.insert(&call.id, SentCall { id, name });
    }

    fn skip_signature(&mut self) {
        self.out.member("thoughtSignature", SKIP_SIGNATURE);
    }

    fn id_and_name(&mut self, id: Option<&str>, name: &str) {
        if let Some(id) = id {
            self.out.raw("\"id\":");
            self.out.json(id);
            self.out.raw(",");
        }
        self.out.raw("\"name\":");
        self.out.json(name);
    }

    fn result(&mut self, call_id: &str, name: &str, content: &str, is_error: bool, images: &[Image]) {
        self.part(USER);
        self.out.raw("{\"functionResponse\":{");
        match self.calls.remove(call_id) {
            Some(sent) => self.id_and_name(sent.id.as_deref(), &sent.name),
            None => {
                let id = wire_id(call_id, self.options.quirks.tool_ids);
                let name = self.names.wire(name);
                self.id_and_name(Some(&*id).filter(|_| !self.options.quirks.gemini.no_call_ids), &name);
            }
        }
        self.out.raw(if is_error { ",\"response\":{\"error\":" } else { ",\"response\":{\"output\":" });
        self.out.json(&*clean_listing(name, content, self.dialect()));
        self.out.raw("}");
        let inside = self.family.is_some_and(|family| family.result_images);
        for (at, image) in images.iter().enumerate().filter(|_| inside) {
            self.out.raw(if at == 0 { ",\"parts\":[" } else { "," });
            self.image(image);
        }
        self.out.raw(if inside && !images.is_empty() { "]}}" } else { "}}" });
        if !inside {
            self.images(images);
        }
    }
}

fn thinking_config(thinking: Thinking<'_>) -> String {
    match thinking {
        Thinking::Default => r#"{"includeThoughts":true}"#.to_owned(),
        Thinking::Level(level) => format!(r#"{{"includeThoughts":true,"thinkingLevel":{}}}"#, Value::from(level)),
        // There is no summary of no thoughts.
        Thinking::Budget(0) => r#"{"thinkingBudget":0}"#.to_owned(),
        Thinking::Budget(tokens) => format!(r#"{{"includeThoughts":true,"thinkingBudget":{tokens}}}"#),
    }
}

/// False for a tool without arguments: the field is left unset then, as the maker says.
fn takes_arguments(schema: &Value) -> bool {
    const SAYS_NOTHING: [&str; 6] = ["type", "title", "description", "additionalProperties", "required", "$schema"];
    let Some(schema) = schema.as_object() else { return false };
    let has_properties = schema.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
    let says_more = schema.keys().any(|key| key != "properties" && !SAYS_NOTHING.contains(&key.as_str()));
    has_properties || says_more || schema.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false))
}

/// Arguments as an object, byte for byte when they are one. What is no object cannot be said on this wire, so it goes as
/// text in one.
fn object_of(arguments: &str) -> Cow<'_, str> {
    let trimmed = arguments.trim();
    if trimmed.is_empty() {
        Cow::Borrowed("{}")
    } else if trimmed.starts_with('{') && serde_json::from_str::<&RawValue>(trimmed).is_ok() {
        Cow::Borrowed(trimmed)
    } else {
        Cow::Owned(format!("{{\"arguments\":{}}}", Value::from(arguments)))
    }
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
