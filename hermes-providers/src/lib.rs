//! How a model is spoken to.
//!
//! A program takes a [`ChatModel`], sends a [`ChatRequest`] and reads a stream of [`Delta`]s that ends in exactly one
//! [`Completion`] or one [`ProviderError`]. Which wire that is, is the provider's own matter: profiles are data,
//! codecs are pure (values to bytes, bytes to deltas) and know no sockets, and nothing here retries or sleeps. The
//! class of an error says what may be done about it; doing it is the caller's business.
//!
//! The crate knows nothing of transcripts and tools.

mod chat;
mod error;
mod json;
#[cfg(feature = "test-util")]
mod scripted;

pub use chat::{
    CacheMarker, ChatMessage, ChatModel, ChatRequest, Completion, CompletedCall, Delta, DeltaStream, Finish, ModelInfo,
    Sidecar, ToolCall, ToolSchema, Usage,
};
pub use error::{ErrorClass, ProviderError};
#[cfg(feature = "test-util")]
pub use scripted::{Script, ScriptedModel};
