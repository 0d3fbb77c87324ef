//! The wires that models are spoken to over: each a pure encoder (request to bytes) and a push decoder (bytes to deltas).
//!
//! Nothing in here knows a socket, a clock or a key. [`encode`] and [`decoder`] choose by [`ApiMode`].

mod answer;
pub mod anthropic_messages;
pub mod bedrock_converse;
mod body;
pub mod chat_completions;
mod context;
pub(crate) mod effort;
pub mod gemini;
mod images;
mod names;
mod repair;
pub mod responses;
mod turns;
mod writer;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::chat::{ChatRequest, Delta};
use crate::error::ProviderError;
use crate::profile::{ApiMode, Quirks};

pub use body::MAX_BODY_BYTES;
pub use context::DecodeContext;
pub use names::{MAX_TOOL_NAME_BYTES, NameMap};
pub use repair::Repairs;

/// What an encoder must know beside the request.
#[derive(Debug, Clone)]
pub struct WireOptions {
    /// The model's name at the provider.
    pub model: String,
    /// Our name as an issuer of opaque state: wire, provider, server and model. Only a sidecar with exactly this issuer
    /// is replayed.
    pub issuer: Arc<str>,
    /// How the provider differs.
    pub quirks: Quirks,
}

/// A request as it goes out, but for the address and the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// What comes behind the base URL, without a slash at its beginning: `chat/completions`. Percent-encoded.
    pub path: String,
    /// The query, without its question mark; empty for none.
    pub query: &'static str,
    /// Headers of the wire beside the content type; names in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// What the answer may be: the `accept` header.
    pub accept: &'static str,
    /// The body.
    pub body: Bytes,
}

/// How the bytes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// In order: the server closed the body.
    Closed,
    /// The connection broke, or waiting was given up.
    Broken,
}

/// Push decoder of one answer: [`push`](Self::push) bytes until it yields [`Delta::Done`], or [`finish`](Self::finish).
pub trait Decoder: Send + fmt::Debug {
    /// Takes more bytes and adds what they mean to `out`, [`Delta::Done`] last when the answer says itself that it has
    /// ended. What came before an error is in `out` too. Behind the end, bytes are ignored.
    ///
    /// # Errors
    /// [`ProviderError`] for an error frame, a broken frame or an exceeded limit; the decoder is of no use afterwards.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<Delta>) -> Result<(), ProviderError>;

    /// The bytes have ended: adds what is left, the completion last. Nothing when [`Delta::Done`] was given before.
    ///
    /// # Errors
    /// [`ProviderError`] of class `Incomplete` for an answer without its end, `EmptyResponse` for nothing at all, or
    /// what [`push`](Self::push) may give.
    fn finish(&mut self, end: StreamEnd, out: &mut Vec<Delta>) -> Result<(), ProviderError>;

    /// True when the provider said why the model stopped: whatever is missing now is only usage and the mark of the end.
    fn is_finished(&self) -> bool;

    /// Grows whenever the answer changes. Comments, pings and empty chunks leave it alone.
    fn progress(&self) -> u64;
}

/// A request for this wire. Pure: the same values give the same bytes.
///
/// # Errors
/// Class `BadRequest` for what this wire cannot carry.
pub fn encode(mode: ApiMode, request: &ChatRequest, options: &WireOptions) -> Result<Encoded, ProviderError> {
    let request = &*images::readable(mode, request, options);
    match mode {
        ApiMode::ChatCompletions => Ok(chat_completions::encode(request, options)),
        ApiMode::Gemini => Ok(gemini::encode(request, options)),
        ApiMode::Responses => Ok(responses::encode(request, options)),
        ApiMode::AnthropicMessages => Ok(anthropic_messages::encode(request, options)),
        ApiMode::BedrockConverse => Ok(bedrock_converse::encode(request, options)),
    }
}

/// The decoder for an answer over this wire.
#[must_use]
pub fn decoder(mode: ApiMode, context: DecodeContext) -> Box<dyn Decoder> {
    match mode {
        ApiMode::ChatCompletions => Box::new(chat_completions::ChatDecoder::new(context)),
        ApiMode::Gemini => Box::new(gemini::GeminiDecoder::new(context)),
        ApiMode::Responses => Box::new(responses::ResponsesDecoder::new(context)),
        ApiMode::AnthropicMessages => Box::new(anthropic_messages::MessagesDecoder::new(context)),
        ApiMode::BedrockConverse => Box::new(bedrock_converse::ConverseDecoder::new(context)),
    }
}
