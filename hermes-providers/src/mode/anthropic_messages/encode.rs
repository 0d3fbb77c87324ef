//! A request to the bytes of its body.
//!
//! The keys have a fixed order and `messages` is the last one; what is special about cache marks stands in the parent.

use std::borrow::Cow;

use crate::chat::{ChatRequest, Image};
use crate::mode::anthropic_messages::blocks::{BlockKind, Kept, read_sidecar};
use crate::mode::anthropic_messages::rules::{ModelRule, Thinking};
use crate::mode::names::NameMap;
use crate::mode::turns::{Piece, Turn, calls_unthought, said, turns};
use crate::mode::writer::{Writer, base64_of};
use crate::mode::{Encoded, WireOptions};
use crate::schema::{SchemaDialect, clean_listing, clean_tool};

/// Output tokens when nobody knows better: room for a large file, and less than any model of today can write.
pub const DEFAULT_MAX_OUTPUT_TOKENS: u64 = 16_384;
/// Most cache marks of one request (the provider refuses more).
pub const MAX_CACHE_MARKS: usize = 4;
/// Marks on the tools and on the system prompt.
const HEAD_MARKS: usize = 2;
const _: () = assert!(HEAD_MARKS < MAX_CACHE_MARKS);

/// The version of the wire.
const VERSION: &str = "2023-06-01";
/// The path of the method. A base URL that ends in `/v1` has the first part of it already.
const PATH: &str = "v1/messages";
const MARK: &str = ",\"cache_control\":{\"type\":\"ephemeral\"}";
/// Longest id of a call that goes out as it is.
const MAX_ID_BYTES: usize = 64;

/// The request for this wire. Pure: the same values give the same bytes.
#[must_use]
pub fn encode(request: &ChatRequest, options: &WireOptions) -> Encoded {
    let rule = ModelRule::of(&options.quirks.messages.rules, &options.model);
    let mut headers = vec![("anthropic-version", VERSION.to_owned())];
    if let Some(rule) = rule.filter(|rule| !rule.betas.is_empty()) {
        headers.push(("anthropic-beta", rule.betas.join(",")));
    }
    let names = NameMap::new(&request.tools);
    let ends = &request.cache_ends[request.cache_ends.len().saturating_sub(MAX_CACHE_MARKS - HEAD_MARKS)..];
    // Only what is signed is taken back; thinking that was cut has no signature.
    let unsigned = options.quirks.messages.unsigned_thinking;
    let goes_back = |block: &Kept<'_>| block.kind != BlockKind::Thinking || block.is_signed || unsigned;
    let turns = turns(request, &options.issuer, ends, read_sidecar, goes_back);
    let dialect = options.quirks.schema.unwrap_or(SchemaDialect::Anthropic);
    let mut out = Document { out: Writer::for_request(request), names: &names, dialect };
    out.head(request, options, rule, &turns);
    out.messages(&turns);
    out.out.raw("}");
    Encoded {
        path: PATH.to_owned(),
        query: "",
        headers,
        accept: "text/event-stream, application/json",
        body: out.out.finish(),
    }
}

struct Document<'a> {
    out: Writer,
    names: &'a NameMap,
    dialect: SchemaDialect,
}

impl Document<'_> {
    fn head(
        &mut self,
        request: &ChatRequest,
        options: &WireOptions,
        rule: Option<&ModelRule>,
        turns: &[Turn<'_, Kept<'_>>],
    ) {
        let quirks = &options.quirks;
        let most = request
            .max_output_tokens
            .or(quirks.messages.max_output_tokens)
            .or(rule.and_then(|rule| rule.max_output_tokens));
        let most = most.unwrap_or(DEFAULT_MAX_OUTPUT_TOKENS);
        self.out.raw("{\"model\":");
        self.out.json(&options.model);
        self.out.member("max_tokens", &most);
        self.out.member("stream", &request.stream);
        let wanted = request.reasoning_effort.as_deref().zip(rule);
        let mut thinking = wanted.map_or(Thinking::Absent, |(wanted, rule)| rule.thinking(wanted, most));
        if matches!(thinking, Thinking::Budget(_)) && calls_unthought(turns) {
            thinking = Thinking::Absent;
        }
        self.thinking(thinking);
        let refuses = quirks.no_temperature_models.iter().any(|start| options.model.starts_with(start.as_str()));
        let free = matches!(thinking, Thinking::Absent | Thinking::Disabled) && !refuses;
        if let Some(temperature) = request.temperature.filter(|_| free) {
            self.out.member("temperature", &temperature.clamp(0.0, 1.0));
        }
        let marked = !request.cache_ends.is_empty();
        self.tools(request, marked);
        if !request.system.trim_ascii().is_empty() {
            self.out.raw(",\"system\":[");
            self.text(&String::from_utf8_lossy(&request.system));
            self.end(marked);
            self.out.raw("]");
        }
    }

    fn thinking(&mut self, thinking: Thinking<'_>) {
        match thinking {
            Thinking::Absent => {}
            Thinking::Disabled => self.out.raw(",\"thinking\":{\"type\":\"disabled\"}"),
            Thinking::Budget(tokens) => {
                self.out.raw(",\"thinking\":{\"type\":\"enabled\"");
                self.out.member("budget_tokens", &tokens);
                self.out.raw("}");
            }
            Thinking::Adaptive { effort, display } => {
                self.out.raw(",\"thinking\":{\"type\":\"adaptive\"");
                if let Some(display) = display {
                    self.out.member("display", display);
                }
                self.out.raw("}");
                self.effort(effort);
            }
            Thinking::Effort(effort) => self.effort(effort),
        }
    }

    fn effort(&mut self, effort: &str) {
        self.out.raw(",\"output_config\":{\"effort\":");
        self.out.json(effort);
        self.out.raw("}");
    }

    /// No tools, no field (case W4).
    fn tools(&mut self, request: &ChatRequest, marked: bool) {
        for (at, tool) in request.tools.iter().enumerate() {
            self.out.raw(if at == 0 { ",\"tools\":[" } else { "," });
            self.out.raw("{\"name\":");
            self.out.json(&*self.names.wire(&tool.name));
            let clean = clean_tool(tool, self.dialect);
            if !clean.description.trim().is_empty() {
                self.out.member("description", &*clean.description);
            }
            self.out.member("input_schema", &clean.parameters);
            self.end(marked && at + 1 == request.tools.len());
        }
        if !request.tools.is_empty() {
            self.out.raw("]");
        }
    }

    fn messages(&mut self, turns: &[Turn<'_, Kept<'_>>]) {
        self.out.raw(",\"messages\":[");
        for (at, turn) in turns.iter().enumerate() {
            self.out.raw(if at == 0 { "" } else { "," });
            self.out.raw(if turn.is_user { "{\"role\":\"user\"" } else { "{\"role\":\"assistant\"" });
            self.out.raw(",\"content\":[");
            for (nth, (piece, marked)) in turn.pieces.iter().enumerate() {
                self.out.raw(if nth == 0 { "" } else { "," });
                self.piece(piece, *marked);
            }
            self.out.raw("]}");
        }
        self.out.raw("]");
    }

    fn piece(&mut self, piece: &Piece<'_, Kept<'_>>, marked: bool) {
        match piece {
            Piece::Kept(block) => return self.out.raw(block.raw),
            Piece::Text(text) => self.text(text),
            Piece::Image(image) => self.image(image),
            Piece::Call(call) => {
                self.out.raw("{\"type\":\"tool_use\",\"id\":");
                self.out.json(&*word_id(&call.id));
                self.out.member("name", &*self.names.wire(&call.name));
                self.out.input(&call.arguments);
            }
            Piece::Result { id, name, content, is_error, images } => {
                self.out.raw("{\"type\":\"tool_result\",\"tool_use_id\":");
                self.out.json(&*word_id(id));
                // A result that reports a failure may hold nothing but text.
                if *is_error && images.is_empty() {
                    self.out.member("is_error", &true);
                }
                self.result(&clean_listing(name, content, self.dialect), images);
            }
        }
        self.end(marked);
    }

    /// An open text block; [`Self::end`] closes it.
    fn text(&mut self, text: &str) {
        self.out.raw("{\"type\":\"text\",\"text\":");
        self.out.json(text);
    }

    fn image(&mut self, image: &Image) {
        self.out.raw("{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":");
        self.out.json(&*image.media_type);
        self.out.member("data", &base64_of(image));
        self.out.raw("}");
    }

    /// What a tool answered; nothing for nothing.
    fn result(&mut self, content: &str, images: &[Image]) {
        let mut pieces = Vec::new();
        said(content, images, &mut pieces);
        for (at, piece) in pieces.iter().enumerate() {
            self.out.raw(if at == 0 { ",\"content\":[" } else { "," });
            self.piece(piece, false);
        }
        if !pieces.is_empty() {
            self.out.raw("]");
        }
    }

    /// Closes a block. A mark is its last member, so that taking it away changes nothing else.
    fn end(&mut self, marked: bool) {
        if marked {
            self.out.raw(MARK);
        }
        self.out.raw("}");
    }
}

/// The id of a call in the letters that this wire takes. The call and its result get the same one.
pub(in crate::mode) fn word_id(id: &str) -> Cow<'_, str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !id.is_empty() && id.len() <= MAX_ID_BYTES && id.chars().all(is_word) {
        return Cow::Borrowed(id);
    }
    // The wire name of a tool follows the same rule: clean, at most 64 bytes, and a hash of the whole.
    let name = format!("{id}.");
    Cow::Owned(NameMap::default().wire(&name).into_owned())
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
