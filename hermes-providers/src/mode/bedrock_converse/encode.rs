//! A request to the bytes of its body.
//!
//! The keys have a fixed order and `messages` is the last one; what is special about cache marks stands in the parent.

use serde_json::json;

use crate::chat::{ChatMessage, ChatRequest, Image};
use crate::mode::anthropic_messages::word_id;
use crate::mode::bedrock_converse::blocks::{Kept, read_sidecar};
use crate::mode::bedrock_converse::rules::{ConverseRule, Thinking};
use crate::mode::names::NameMap;
use crate::mode::turns::{Piece, Turn, calls_unthought, said, turns};
use crate::mode::writer::{Writer, base64_of};
use crate::mode::{Encoded, WireOptions};
use crate::percent;
use crate::schema::{SchemaDialect, clean_listing, clean_tool};

/// Most cache marks of one request (the provider refuses more).
pub const MAX_CACHE_MARKS: usize = 4;
/// Marks on the tools and on the system prompt.
const HEAD_MARKS: usize = 2;
const _: () = assert!(HEAD_MARKS < MAX_CACHE_MARKS);

const MARK: &str = "{\"cachePoint\":{\"type\":\"default\"}}";
/// Stands for what a tool did not say: blank text is refused.
const NO_TEXT: &str = "(empty)";
/// What a tool of the history is described as when no tool is offered.
const GONE: &str = "Not available now. Do not call it.";
/// Efforts of Nova that allow neither a cap nor a temperature.
const NOVA_FREE: &str = "high";

/// The request for this wire. Pure: the same values give the same bytes.
#[must_use]
pub fn encode(request: &ChatRequest, options: &WireOptions) -> Encoded {
    let (method, accept) = if request.stream {
        ("converse-stream", "application/vnd.amazon.eventstream, application/json")
    } else {
        ("converse", "application/json")
    };
    let rule = ConverseRule::of(&options.quirks.converse.rules, &options.model);
    let names = NameMap::new(&request.tools);
    let most = if rule.is_some_and(|rule| rule.caches) { MAX_CACHE_MARKS - HEAD_MARKS } else { 0 };
    let ends = &request.cache_ends[request.cache_ends.len().saturating_sub(most)..];
    let turns = turns(request, &options.issuer, ends, read_sidecar, |_| true);
    let dialect = options.quirks.schema.unwrap_or(SchemaDialect::Bedrock);
    let mut out = Document { out: Writer::for_request(request), names: &names, dialect };
    out.out.raw("{");
    out.head(request, options, rule, &turns);
    out.messages(&turns);
    out.out.raw("}");
    Encoded {
        path: format!("model/{}/{method}", percent::encode(&options.model)),
        query: "",
        headers: Vec::new(),
        accept,
        body: out.out.finish(),
    }
}

struct Document<'a> {
    out: Writer,
    names: &'a NameMap,
    dialect: SchemaDialect,
}

impl Document<'_> {
    /// Everything before the history. Each member ends in a comma.
    fn head(
        &mut self,
        request: &ChatRequest,
        options: &WireOptions,
        rule: Option<&ConverseRule>,
        turns: &[Turn<'_, Kept<'_>>],
    ) {
        let quirks = &options.quirks;
        // What the model can do is for all wires; here it is reserved, so the rule's smaller cap counts.
        let usual = [quirks.messages.max_output_tokens, rule.and_then(|rule| rule.max_output_tokens)];
        let most = request.max_output_tokens.or_else(|| usual.into_iter().flatten().min());
        let wanted = request.reasoning_effort.as_deref().zip(rule);
        let mut thinking = wanted.map_or(Thinking::Absent, |(wanted, rule)| rule.thinking(wanted, most));
        if matches!(thinking, Thinking::Budget(_)) && calls_unthought(turns) {
            thinking = Thinking::Absent;
        }
        let free = thinking == Thinking::Nova(NOVA_FREE);
        let thinks = !matches!(thinking, Thinking::Absent | Thinking::Disabled | Thinking::Effort(_));
        let refuses = rule.is_some_and(|rule| rule.no_temperature) || thinks;
        let temperature = request.temperature.filter(|_| !refuses).map(|warm| warm.clamp(0.0, 1.0));
        let mut config = serde_json::Map::new();
        if let Some(most) = most.filter(|_| !free) {
            config.insert("maxTokens".to_owned(), json!(most));
        }
        if let Some(temperature) = temperature {
            config.insert("temperature".to_owned(), json!(temperature));
        }
        if !config.is_empty() {
            self.out.raw("\"inferenceConfig\":");
            self.out.json(&config);
            self.out.raw(",");
        }
        self.fields(thinking, rule);
        if let Some(guardrail) = &quirks.converse.guardrail {
            let mut config = json!({"guardrailIdentifier": guardrail.id, "guardrailVersion": guardrail.version});
            if guardrail.shows_early && request.stream {
                config["streamProcessingMode"] = json!("async");
            }
            self.out.raw("\"guardrailConfig\":");
            self.out.json(&config);
            self.out.raw(",");
        }
        let marked = !request.cache_ends.is_empty() && rule.is_some_and(|rule| rule.caches);
        self.tools(request, turns, marked && rule.is_some_and(|rule| rule.caches_tools));
        if !request.system.trim_ascii().is_empty() {
            self.out.raw("\"system\":[");
            self.text(&String::from_utf8_lossy(&request.system));
            self.mark(marked);
            self.out.raw("],");
        }
    }

    /// What is not the same for all models.
    fn fields(&mut self, thinking: Thinking<'_>, rule: Option<&ConverseRule>) {
        let mut fields = serde_json::Map::new();
        let mut put = |key: &str, value| fields.insert(key.to_owned(), value);
        match thinking {
            Thinking::Absent => {}
            Thinking::Disabled => drop(put("thinking", json!({"type": "disabled"}))),
            Thinking::Budget(tokens) => drop(put("thinking", json!({"type": "enabled", "budget_tokens": tokens}))),
            Thinking::Adaptive(effort) => {
                put("thinking", json!({"type": "adaptive"}));
                put("output_config", json!({"effort": effort}));
            }
            Thinking::Effort(effort) => drop(put("reasoning_effort", json!(effort))),
            Thinking::Nova(effort) => {
                put("reasoningConfig", json!({"type": "enabled", "maxReasoningEffort": effort}));
            }
        }
        if let Some(rule) = rule.filter(|rule| !rule.betas.is_empty()) {
            put("anthropic_beta", json!(rule.betas));
        }
        if !fields.is_empty() {
            self.out.raw("\"additionalModelRequestFields\":");
            self.out.json(&fields);
            self.out.raw(",");
        }
    }

    /// No tools, no field; unless the history has calls, which the wire refuses without one.
    fn tools(&mut self, request: &ChatRequest, turns: &[Turn<'_, Kept<'_>>], marked: bool) {
        let mut first = true;
        for tool in request.tools.iter() {
            let clean = clean_tool(tool, self.dialect);
            let description = if clean.description.trim().is_empty() { &tool.name } else { &*clean.description };
            self.tool(&self.names.wire(&tool.name), description, &clean.parameters, &mut first);
        }
        if first {
            for name in called(request, turns) {
                self.tool(&self.names.wire(name), GONE, &serde_json::Value::Null, &mut first);
            }
        }
        if !first {
            self.mark(marked);
            self.out.raw("]},");
        }
    }

    fn tool(&mut self, name: &str, description: &str, schema: &serde_json::Value, first: &mut bool) {
        self.out.raw(if std::mem::take(first) { "\"toolConfig\":{\"tools\":[" } else { "," });
        self.out.raw("{\"toolSpec\":{\"name\":");
        self.out.json(name);
        self.out.member("description", description);
        self.out.raw(",\"inputSchema\":{\"json\":");
        match schema.is_object() {
            true => self.out.json(schema),
            false => self.out.raw("{\"type\":\"object\",\"properties\":{}}"),
        }
        self.out.raw("}}}");
    }

    fn messages(&mut self, turns: &[Turn<'_, Kept<'_>>]) {
        self.out.raw("\"messages\":[");
        for (at, turn) in turns.iter().enumerate() {
            self.out.raw(if at == 0 { "" } else { "," });
            self.out.raw(if turn.is_user { "{\"role\":\"user\"" } else { "{\"role\":\"assistant\"" });
            self.out.raw(",\"content\":[");
            for (nth, (piece, marked)) in turn.pieces.iter().enumerate() {
                self.out.raw(if nth == 0 { "" } else { "," });
                self.piece(piece);
                self.mark(*marked);
            }
            self.out.raw("]}");
        }
        self.out.raw("]");
    }

    fn piece(&mut self, piece: &Piece<'_, Kept<'_>>) {
        match piece {
            Piece::Text(text) => self.text(text),
            Piece::Image(image) => self.image(image),
            Piece::Kept(block) => self.out.raw(block.raw),
            Piece::Call(call) => {
                self.out.raw("{\"toolUse\":{\"toolUseId\":");
                self.out.json(&*word_id(&call.id));
                self.out.member("name", &*self.names.wire(&call.name));
                self.out.input(&call.arguments);
                self.out.raw("}}");
            }
            Piece::Result { id, name, content, is_error, images } => {
                self.out.raw("{\"toolResult\":{\"toolUseId\":");
                self.out.json(&*word_id(id));
                self.out.raw(",\"content\":[");
                let mut pieces = Vec::new();
                let content = clean_listing(name, content, self.dialect);
                said(&content, images, &mut pieces);
                if pieces.is_empty() {
                    pieces.push(Piece::Text(NO_TEXT));
                }
                for (at, piece) in pieces.iter().enumerate() {
                    self.out.raw(if at == 0 { "" } else { "," });
                    self.piece(piece);
                }
                self.out.raw(if *is_error { "],\"status\":\"error\"}}" } else { "]}}" });
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.out.raw("{\"text\":");
        self.out.json(text);
        self.out.raw("}");
    }

    /// A picture of a kind that the wire knows; of another one the model is told in words.
    fn image(&mut self, image: &Image) {
        let format = match &*image.media_type {
            "image/png" => "png",
            "image/jpeg" => "jpeg",
            "image/gif" => "gif",
            "image/webp" => "webp",
            other => return self.text(&format!("[A picture of the kind {other}, which this model cannot see.]")),
        };
        self.out.raw("{\"image\":{\"format\":\"");
        self.out.raw(format);
        // Base64 needs no escapes.
        self.out.raw("\",\"source\":{\"bytes\":\"");
        self.out.raw(&base64_of(image));
        self.out.raw("\"}}}");
    }

    /// A mark behind a block, so that taking it away changes nothing else.
    fn mark(&mut self, marked: bool) {
        if marked {
            self.out.raw(",");
            self.out.raw(MARK);
        }
    }
}

/// The names of the history's calls, each once, in order.
fn called<'a>(request: &'a ChatRequest, turns: &[Turn<'_, Kept<'_>>]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    if !turns.iter().flat_map(|turn| &turn.pieces).any(|(piece, _)| piece.is_call() || piece.is_result()) {
        return names;
    }
    for message in &request.messages {
        let called: Vec<&str> = match message {
            ChatMessage::Assistant { calls, .. } => calls.iter().map(|call| call.name.as_str()).collect(),
            ChatMessage::Tool { name, .. } => vec![name.as_str()],
            ChatMessage::User { .. } => continue,
        };
        for name in called {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
