//! How a model is spoken to.
//!
//! A program takes a [`ChatModel`], sends a [`ChatRequest`] and reads a stream of [`Delta`]s that ends in exactly one
//! [`Completion`] or one [`ProviderError`]. Which wire that is, is the provider's own matter: profiles are data,
//! codecs are pure (values to bytes, bytes to deltas) and know no sockets, and nothing here retries or sleeps. The
//! class of an error says what may be done about it; doing it is the caller's business.
//!
//! The crate knows nothing of transcripts and tools.

#![allow(clippy::result_large_err, reason = "an error ends a request; moving 160 bytes once is nothing beside it")]

#[cfg(feature = "http")]
pub mod aws;
#[cfg(all(feature = "http", feature = "test-util"))]
pub mod cassette;
pub mod catalogue;
mod chat;
mod classify;
pub mod credential;
mod error;
#[cfg(all(feature = "http", feature = "test-util"))]
pub mod fake;
#[cfg(feature = "http")]
pub mod http;
mod json;
#[cfg(feature = "http")]
mod local;
#[cfg(all(feature = "http", feature = "test-util"))]
mod loopback;
pub mod mode;
mod moment;
mod percent;
mod practice;
mod profile;
pub mod schema;
#[cfg(feature = "test-util")]
mod scripted;
pub mod sse;
#[cfg(feature = "http")]
mod text_file;

pub use chat::{
    ChatMessage, ChatModel, ChatRequest, CompletedCall, Completion, Delta, DeltaStream, Finish, Image, ModelInfo,
    OwnWindow, Sidecar, ToolCall, ToolSchema, Usage,
};
pub use classify::{Failure, Headers, MAX_MESSAGE_BYTES, MAX_RESET_MS, MAX_RETRY_AFTER_MS, classify, redact};
pub use error::{ErrorClass, ProviderError, Remedy};
#[cfg(feature = "http")]
pub use http::{HttpChatModel, HttpModelConfig, Network, Timeouts, Transport};
#[cfg(feature = "http")]
pub use local::{
    DESCRIBE_TIMEOUT_MS, LocalModel, LocalPorts, LocalServer, PROBE_TIMEOUT_MS, describe_local, probe_local,
};
#[cfg(all(feature = "http", unix))]
pub use local::{
    LLAMA_CONTEXT_TOKENS, LLAMA_GROW_WAIT_MS, LLAMA_IDLE_STOP_MS, LLAMA_LOG_BYTES, LLAMA_SERVER,
    LLAMA_START_TIMEOUT_MS, LLAMA_STOP_TIMEOUT_MS, LlamaConfig, LlamaError, LlamaModel, LlamaRuntime, LlamaServer,
    llama_model_name,
};
pub use practice::{PRACTICE, PracticeModel};
pub use profile::{
    ApiMode, AuthHeader, CUSTOM, EmptyContent, Extra, KeyRule, Ladder, MaxTokensField, ModelRule, Patience, Profile,
    ProfileError, Profiles, Quirks, ReasoningEcho, ReasoningField, Source, SystemRole, ToolIds,
};
#[cfg(feature = "test-util")]
pub use scripted::{Script, ScriptedModel};
