//! A request to the bytes of its body.
//!
//! The keys have a fixed order and `messages` is the last one; what is special about cache marks stands in the parent.

use std::borrow::Cow;

use crate::chat::{ChatMessage, ChatRequest, Image, Sidecar, ToolCall};
use crate::json::mend_surrogates;
use crate::mode::anthropic_messages::blocks::{BlockKind, Kept, read_sidecar};
use crate::mode::anthropic_messages::rules::{ModelRule, Thinking};
use crate::mode::names::NameMap;
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
/// The wire wants a user's message first; said when the history begins with an answer.
const EARLIER: &str = "(Earlier messages are not shown.)";
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
    let turns = turns(request, options);
    let dialect = options.quirks.schema.unwrap_or(SchemaDialect::Anthropic);
    let mut out = Document { out: Writer::with_capacity(size_hint(request)), names: &names, dialect };
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

/// A guess that saves most reallocations of a large body.
fn size_hint(request: &ChatRequest) -> usize {
    let of = |message: &ChatMessage| match message {
        ChatMessage::User { text, .. } => text.len(),
        ChatMessage::Assistant { text, calls, sidecar, .. } => {
            let calls: usize = calls.iter().map(|call| call.arguments.len() + 128).sum();
            text.len() + calls + sidecar.as_ref().map_or(0, |sidecar| sidecar.bytes.len())
        }
        ChatMessage::Tool { content, .. } => content.len(),
    };
    let text: usize = request.messages.iter().map(of).sum();
    text + text / 8 + request.system.len() + request.tools.len() * 1024 + request.messages.len() * 96 + 1024
}

/// One block as it goes out.
#[derive(Debug, Clone, Copy)]
enum Piece<'a> {
    Text(&'a str),
    Image(&'a Image),
    Call(&'a ToolCall),
    /// A block of our own issuer, byte for byte.
    Kept(Kept<'a>),
    Result {
        id: &'a str,
        /// The tool's real name.
        name: &'a str,
        content: &'a str,
        is_error: bool,
        images: &'a [Image],
    },
}

/// Messages of one role, as one.
#[derive(Debug)]
struct Turn<'a> {
    is_user: bool,
    /// Each with whether a cache may end behind it.
    pieces: Vec<(Piece<'a>, bool)>,
}

/// The history as turns of alternating roles. Results stand first in theirs: directly behind their calls.
fn turns<'a>(request: &'a ChatRequest, options: &WireOptions) -> Vec<Turn<'a>> {
    let mut all: Vec<Turn<'a>> = Vec::new();
    let ends = &request.cache_ends[request.cache_ends.len().saturating_sub(MAX_CACHE_MARKS - HEAD_MARKS)..];
    for (at, message) in request.messages.iter().enumerate() {
        let is_user = !matches!(message, ChatMessage::Assistant { .. });
        let mut pieces = Vec::new();
        match message {
            ChatMessage::User { text, images } => said(text, images, &mut pieces),
            ChatMessage::Assistant { text, sidecar, calls, .. } => {
                answer(text, sidecar.as_ref(), calls, options, &mut pieces);
            }
            ChatMessage::Tool { call_id, name, content, is_error, images } => {
                // A result that reports a failure may hold nothing but text.
                let is_error = *is_error && images.is_empty();
                pieces.push(Piece::Result { id: call_id, name, content, is_error, images });
            }
        }
        if pieces.is_empty() {
            continue;
        }
        if all.is_empty() && !is_user {
            all.push(Turn { is_user: true, pieces: vec![(Piece::Text(EARLIER), false)] });
        }
        if all.last().is_none_or(|turn| turn.is_user != is_user) {
            all.push(Turn { is_user, pieces: Vec::new() });
        }
        let Some(turn) = all.last_mut() else { continue };
        let is_result = |piece: &Piece<'_>| matches!(piece, Piece::Result { .. });
        let results = turn.pieces.iter().take_while(|(piece, _)| is_result(piece)).count();
        let mut place = if pieces.first().is_some_and(is_result) { results } else { turn.pieces.len() };
        for piece in pieces {
            turn.pieces.insert(place, (piece, false));
            place += 1;
        }
        // The blocks of an answer go back as they came, so no mark stands in them.
        if is_user && ends.contains(&at) {
            turn.pieces[place - 1].1 = true;
        }
    }
    all
}

/// Blank text is refused by the wire, so it is never sent.
fn said<'a>(text: &'a str, images: &'a [Image], pieces: &mut Vec<Piece<'a>>) {
    if !text.trim().is_empty() {
        pieces.push(Piece::Text(text));
    }
    pieces.extend(images.iter().map(Piece::Image));
}

/// An answer: from the sidecar where it is ours, else from what everybody can read.
fn answer<'a>(
    text: &'a str,
    sidecar: Option<&'a Sidecar>,
    calls: &'a [ToolCall],
    options: &WireOptions,
    pieces: &mut Vec<Piece<'a>>,
) {
    let own = sidecar.filter(|sidecar| sidecar.issuer == options.issuer);
    let kept = own.map(|sidecar| read_sidecar(&sidecar.bytes)).unwrap_or_default();
    if kept.is_empty() {
        said(text, &[], pieces);
        pieces.extend(calls.iter().map(Piece::Call));
        return;
    }
    let uses = kept.iter().filter(|block| block.kind == BlockKind::ToolUse).count();
    let mut left: Vec<&ToolCall> = calls.iter().collect();
    let mut nth = 0;
    for block in kept {
        match block.kind {
            // Only what is signed is taken back; thinking that was cut has no signature.
            BlockKind::Thinking if !block.is_signed && !options.quirks.messages.unsigned_thinking => {}
            BlockKind::ToolUse => {
                let id = block.id();
                let known = left.iter().position(|call| Some(&call.id) == id.as_ref());
                let renamed = calls.get(nth).filter(|_| known.is_none() && uses == calls.len());
                nth += 1;
                if let Some(at) = known {
                    left.remove(at);
                    pieces.push(Piece::Kept(block));
                } else if let Some(call) = renamed {
                    // It got another id from us, which its result has too.
                    left.retain(|other| other.id != call.id);
                    pieces.push(Piece::Call(call));
                }
                // A call that is not in the history has no result: it cannot go back.
            }
            _ => pieces.push(Piece::Kept(block)),
        }
    }
    pieces.extend(left.into_iter().map(Piece::Call));
    // Thinking alone is no message of this wire.
    if pieces.iter().all(|piece| matches!(piece, Piece::Kept(block) if block.kind.is_thinking())) {
        pieces.clear();
    }
}

/// Whether the newest answer made calls without thinking first: another issuer's, whose thinking is not ours to send.
/// With a thinking budget the wire refuses that.
fn calls_unthought(turns: &[Turn<'_>]) -> bool {
    let Some(turn) = turns.iter().rev().find(|turn| !turn.is_user) else { return false };
    let is_call = |piece: &Piece<'_>| match piece {
        Piece::Call(_) => true,
        Piece::Kept(block) => block.kind == BlockKind::ToolUse,
        _ => false,
    };
    let thinks = |piece: &Piece<'_>| matches!(piece, Piece::Kept(block) if block.kind.is_thinking());
    turn.pieces.iter().any(|(piece, _)| is_call(piece)) && !turn.pieces.first().is_some_and(|(piece, _)| thinks(piece))
}

struct Document<'a> {
    out: Writer,
    names: &'a NameMap,
    dialect: SchemaDialect,
}

impl Document<'_> {
    fn head(&mut self, request: &ChatRequest, options: &WireOptions, rule: Option<&ModelRule>, turns: &[Turn<'_>]) {
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

    fn messages(&mut self, turns: &[Turn<'_>]) {
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

    fn piece(&mut self, piece: &Piece<'_>, marked: bool) {
        match piece {
            Piece::Kept(block) => return self.out.raw(block.raw),
            Piece::Text(text) => self.text(text),
            Piece::Image(image) => self.image(image),
            Piece::Call(call) => {
                self.out.raw("{\"type\":\"tool_use\",\"id\":");
                self.out.json(&*word_id(&call.id));
                self.out.member("name", &*self.names.wire(&call.name));
                self.input(&call.arguments);
            }
            Piece::Result { id, name, content, is_error, images } => {
                self.out.raw("{\"type\":\"tool_result\",\"tool_use_id\":");
                self.out.json(&*word_id(id));
                if *is_error {
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

    /// The arguments as they are when they are an object; the wire takes nothing else, so others go in one.
    fn input(&mut self, arguments: &str) {
        let is_object = arguments.trim_start().starts_with('{') && crate::json::is_whole_json(arguments);
        if is_object {
            self.out.raw(",\"input\":");
            self.out.raw(&mend_surrogates(arguments));
        } else if arguments.trim().is_empty() {
            self.out.raw(",\"input\":{}");
        } else {
            self.out.raw(",\"input\":{\"arguments\":");
            self.out.json(arguments);
            self.out.raw("}");
        }
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
