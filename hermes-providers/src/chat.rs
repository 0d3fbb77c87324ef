//! The contract between an agent and a model: request, deltas, completion.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorClass, ProviderError};

/// One tool, as the model is told of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSchema {
    /// The tool's real name. Codecs clean and shorten it for wires that allow less, and map it back.
    pub name: String,
    /// What the tool does, for the model.
    pub description: String,
    /// A JSON Schema of type `object`.
    pub parameters: serde_json::Value,
}

/// One call that the model made, as it is replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id that pairs the call with its result; unique within the request.
    pub id: String,
    /// The tool's real name.
    pub name: String,
    /// The arguments as the model wrote them, byte for byte. Usually JSON; never parsed and written again.
    pub arguments: String,
}

/// Opaque state that only its issuer understands: signed thinking, encrypted reasoning, thought signatures.
///
/// It is replayed with its bytes and order unchanged, to the same issuer only; another one never sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidecar {
    /// Who made it: wire, provider and model family, e.g. `chat_completions/openrouter`.
    pub issuer: Arc<str>,
    /// The exact bytes.
    pub bytes: Bytes,
}

/// A picture, as it goes to a model that can see.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Image {
    /// `image/png`, `image/jpeg`, `image/webp` or `image/gif`.
    pub media_type: Arc<str>,
    /// The file's bytes.
    pub data: Bytes,
}

/// One message of the history.
#[derive(Debug, Clone, PartialEq)]
pub enum ChatMessage {
    /// What the user (or the program on his behalf) said.
    User {
        /// Text, byte for byte as it was sent the first time.
        text: String,
        /// Pictures, behind the text. A model that cannot see is told in words that there was one.
        images: Vec<Image>,
    },
    /// What the model said.
    Assistant {
        /// Visible text; may be empty when there are calls.
        text: String,
        /// Readable reasoning, for wires that want it echoed.
        reasoning: Option<String>,
        /// Opaque state of the issuer.
        sidecar: Option<Sidecar>,
        /// The calls, in the model's order.
        calls: Vec<ToolCall>,
    },
    /// The result of one call.
    Tool {
        /// [`ToolCall::id`] of the call.
        call_id: String,
        /// The tool's real name.
        name: String,
        /// What the tool answered.
        content: String,
        /// True when the answer reports a failure, for wires that can say so.
        is_error: bool,
        /// Pictures of the result, behind the text.
        images: Vec<Image>,
    },
}

impl ChatMessage {
    /// What the user said, in words alone.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into(), images: Vec::new() }
    }
}

/// What is asked of a model. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ChatRequest {
    /// The system prompt's exact bytes (UTF-8).
    pub system: Bytes,
    /// The tools; an empty list is left out of the wire, not sent as `[]`.
    pub tools: Arc<[ToolSchema]>,
    /// The history, oldest first. Every call has its result.
    pub messages: Vec<ChatMessage>,
    /// Most tokens of the answer, when the caller wants a cap.
    pub max_output_tokens: Option<u64>,
    /// Sampling temperature, when the caller wants one.
    pub temperature: Option<f32>,
    /// Reasoning effort (`none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`), when the caller wants one.
    pub reasoning_effort: Option<String>,
    /// False asks for one whole answer; the stream then has no deltas before the completion.
    pub stream: bool,
    /// Places of messages behind which a prompt cache may end, in order, for wires that want to be told. Wires without such
    /// marks ignore them; no mark changes what the model reads.
    pub cache_ends: Vec<usize>,
    /// A stable key of the conversation, for providers that route by it to keep a cache warm.
    pub cache_key: Option<String>,
}

impl ChatRequest {
    /// A streamed request of these messages and nothing else; set what differs with `ChatRequest { .., ..Self::new(..) }`.
    #[must_use]
    pub fn new(messages: Vec<ChatMessage>) -> Self {
        Self {
            system: Bytes::new(),
            tools: Arc::default(),
            messages,
            max_output_tokens: None,
            temperature: None,
            reasoning_effort: None,
            stream: true,
            cache_ends: Vec::new(),
            cache_key: None,
        }
    }
}

/// Why a model stopped. Nothing unknown is dropped into "stop".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Finish {
    /// The answer is whole.
    Stop,
    /// The model waits for tool results.
    ToolCalls,
    /// The model meant to make a call and wrote none that can be read, in the provider's own judgement (Gemini, Bedrock).
    MalformedCall,
    /// The output limit (or the window) was reached.
    Length,
    /// The provider withheld the answer.
    ContentFilter,
    /// The provider paused a long turn; the assistant message goes back unchanged and the turn goes on.
    Pause,
    /// A word that this program does not know.
    Other(String),
}

/// Tokens of one request, in one normal form for all providers. What a provider does not report is `None`, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens that no cache served.
    pub input_uncached: Option<u64>,
    /// Input tokens that a cache served.
    pub cache_read: Option<u64>,
    /// Input tokens written to a cache.
    pub cache_write: Option<u64>,
    /// All output tokens, reasoning among them.
    pub output: Option<u64>,
    /// Output tokens spent on reasoning.
    pub reasoning: Option<u64>,
}

impl Usage {
    /// All input tokens, or `None` when the provider reported none.
    #[must_use]
    pub fn input_total(&self) -> Option<u64> {
        match (self.input_uncached, self.cache_read, self.cache_write) {
            (None, None, None) => None,
            (a, b, c) => Some(a.unwrap_or(0) + b.unwrap_or(0) + c.unwrap_or(0)),
        }
    }
}

/// One call of a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedCall {
    /// The provider's id; `None` when it sent none.
    pub id: Option<String>,
    /// The tool's real name (mapped back where the wire needed another one).
    pub name: String,
    /// The arguments, byte for byte.
    pub arguments: String,
    /// True when the arguments are one whole JSON value. A call that is not whole is never executed.
    pub whole: bool,
}

/// One answer, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// Visible text.
    pub text: String,
    /// Readable reasoning, kept apart from the text.
    pub reasoning: Option<String>,
    /// Opaque state to be replayed to the same issuer.
    pub sidecar: Option<Sidecar>,
    /// The calls, in the model's order.
    pub calls: Vec<CompletedCall>,
    /// Why the model stopped.
    pub finish: Finish,
    /// True when the end was explicit (`[DONE]` or usage) but no finish reason was sent (case W8).
    pub finish_missing: bool,
    /// What it cost, when the provider said so.
    pub usage: Option<Usage>,
    /// The model that really answered, when the provider said so.
    pub served_model: Option<String>,
}

/// One step of an answer. A stream yields any number of deltas and then exactly one [`Delta::Done`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Delta {
    /// More visible text.
    Text(String),
    /// More readable reasoning.
    Reasoning(String),
    /// The model has begun a call; the name is known.
    CallStarted {
        /// Position of the call in the answer, from 0.
        index: usize,
        /// The tool's real name.
        name: String,
    },
    /// More arguments of a call arrived (counted, not shown): progress for watchdogs.
    CallArguments {
        /// Position of the call in the answer.
        index: usize,
        /// Bytes that arrived.
        bytes: usize,
    },
    /// The end: the whole answer once more, normalised.
    Done(Box<Completion>),
}

/// Deltas, then exactly one `Done` or one error. Dropping the stream cancels the request and closes its connection.
pub type DeltaStream = BoxStream<'static, Result<Delta, ProviderError>>;

/// What is known of a model before it is asked.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Canonical id of the provider, e.g. `openai`.
    pub provider: String,
    /// The model's name at the provider.
    pub model: String,
    /// Scheme, host and port that requests go to; empty for a model inside this process.
    pub endpoint: String,
    /// The wire: `chat_completions`, ... or `practice`.
    pub api_mode: String,
    /// Most tokens of input and output together, when known.
    pub context_window: Option<u64>,
    /// Most tokens of output, when known.
    pub max_output_tokens: Option<u64>,
}

impl fmt::Debug for ModelInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({} at {})", self.provider, self.model, self.api_mode, self.endpoint)
    }
}

/// The window of a model that this program runs itself, in tokens of input and output together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnWindow {
    /// What it is now.
    pub tokens: u64,
    /// How large it may be made; no less than `tokens`.
    pub max: u64,
}

/// A model that can be spoken to. One request is one attempt: no retry, no fallback, no sleep in here.
#[async_trait]
pub trait ChatModel: Send + Sync {
    /// What is known of the model.
    fn info(&self) -> &ModelInfo;

    /// Sends one request. The future ends when the response's head has arrived; the stream then yields the answer.
    ///
    /// # Errors
    /// [`ProviderError`] with its class; the same errors may also come out of the stream.
    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError>;

    /// The window of a model that this program runs itself, as it is now; `None` for all others, whose window [`ModelInfo`]
    /// and what their provider says tell. Cheap.
    fn own_window(&self) -> Option<OwnWindow> {
        None
    }

    /// Makes the window larger, to `wanted` tokens where that can be: the last resort before a history is shortened. The
    /// window as it is then. `from` is what the caller took it for: when another one has grown it meanwhile, nothing is done.
    ///
    /// May take as long as starting the model does. Answers under way are waited for and not cut. Dropping the future leaves
    /// a model that works.
    ///
    /// # Errors
    /// The window stays as it is, which is so for every model without an [`own_window`](Self::own_window).
    async fn grow_window(&self, from: u64, wanted: u64) -> Result<u64, ProviderError> {
        let _ = (from, wanted);
        Err(ProviderError::new(
            ErrorClass::Configuration,
            "this program does not run the model and cannot grow its window",
        ))
    }
}
