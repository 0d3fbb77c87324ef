//! A server on the loopback that speaks all five wires as their makers document them, for tests.
//!
//! A test says what is meant ([`FakeAnswer`]), and [`FakeServer`] writes it as each maker would: the frames of a stream
//! with everything in them that the maker sends, or one whole answer. The wire follows from the path of a request, and the
//! answer from the text of the last user message, for which a [`FakeScript`] has one answer for each round of tool calls.
//!
//! The makers' own clients for Python read it (`cargo xtask judge providers sdks`), so what a test learns here holds for
//! the wire and not only for this program's idea of it.
//!
//! ```
//! use hermes_providers::fake::{FakeAnswer, FakeScript, FakeServer};
//! # use futures::StreamExt as _;
//! # use hermes_providers::{ApiMode, ChatMessage, ChatModel, ChatRequest, Delta, HttpChatModel, HttpModelConfig, Profiles};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let answer = FakeAnswer { text: "Hello!".into(), ..FakeAnswer::default() };
//! let server = FakeServer::start(FakeScript::from([("Hi".to_owned(), vec![answer])])).await?;
//!
//! let profile = Profiles::bundled()?.get("anthropic").ok_or("no such profile")?.clone();
//! let mut config = HttpModelConfig::new(profile, "claude-sonnet-4-6");
//! config.base_url = Some(server.base_url());
//! config.key = Some("any".to_owned().into());
//! let model = HttpChatModel::new(config)?;
//! # let request = ChatRequest::new(vec![ChatMessage::user("Hi")]);
//! let mut deltas = model.stream(&request).await?;
//! # let mut text = String::new();
//! while let Some(delta) = deltas.next().await {
//!     if let Delta::Done(done) = delta? {
//!         assert_eq!(done.text, "Hello!");
//! #       text = done.text;
//!     }
//! }
//! # assert_eq!(text, "Hello!");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod anthropic_messages;
mod asked;
mod bedrock_converse;
mod chat_completions;
mod gemini;
mod responses;
mod server;
mod written;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::chat::{ToolCall, Usage};

pub use asked::FakeRequest;
pub use server::{FAKE_SEEN_MAX, FakeServer};

/// Answers by the text of the last user message: the first one at once, each further one when all calls of those before
/// it have their results.
pub type FakeScript = BTreeMap<String, Vec<FakeAnswer>>;

/// What an answer means. Its parts come in this order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FakeAnswer {
    /// Readable reasoning; none when empty.
    pub reasoning: String,
    /// What the maker knows its reasoning by, in Base64: the signature of a block, the encrypted content of an item. Chat
    /// completions have no such thing, and elsewhere it comes only where there is something that it belongs to.
    pub proof: String,
    /// Visible text; none when empty.
    pub text: String,
    /// Calls of tools. Their arguments are JSON.
    pub calls: Vec<ToolCall>,
    /// Why the model stopped.
    pub finish: FakeFinish,
    /// What it cost. Counts that a wire has no place for are left out of it.
    pub usage: Usage,
    /// What goes wrong, behind everything above: with text or calls before it, inside of a stream that began well.
    pub error: Option<FakeError>,
}

/// Why a model stopped, in the words that all wires have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FakeFinish {
    /// The answer is whole, or the model waits for results when it has calls.
    #[default]
    Whole,
    /// The cap on output was reached.
    Length,
    /// The maker withheld the rest.
    Filtered,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FakeError {
    /// The kind, for which each wire has a status and a word.
    pub kind: FakeErrorKind,
    /// The message for people.
    pub message: String,
    /// The header `retry-after` in seconds, where the error is the whole answer.
    #[serde(default)]
    pub retry_after_s: Option<u64>,
}

/// Kinds of errors that all wires have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FakeErrorKind {
    /// Too many requests.
    RateLimited,
    /// No room for any request.
    Overloaded,
    /// The key is wrong.
    Unauthorized,
    /// The request is wrong.
    Invalid,
}

/// All tokens of the prompt, for the wires that count those of the cache among them.
fn prompt_tokens(usage: &Usage) -> u64 {
    usage.input_total().unwrap_or(0)
}

/// The arguments as a value, for the wires that have no text of them.
fn arguments(call: &ToolCall) -> serde_json::Value {
    serde_json::from_str(&call.arguments).unwrap_or_default()
}
