//! Google's own wire: `POST models/{model}:streamGenerateContent` and `:generateContent`.
//!
//! Checked against the maker's pages "Generating content" (ai.google.dev/api/generate-content: request, candidate,
//! `FinishReason`, `PromptFeedback`, `UsageMetadata`), "Caching" (ai.google.dev/api/caching: `Content`, `Part`,
//! `FunctionCall`, `FunctionResponse`, `FunctionDeclaration`), "Thought signatures", "Thinking" and "Function calling"
//! (ai.google.dev/gemini-api/docs/...).
//!
//! Unlike other wires it has no mark of the end (the last chunk carries `finishReason`, then the body closes), a call
//! arrives whole, and the model's opaque state is a `thoughtSignature` in any part, which has to go back in that part.

mod decode;
mod encode;
mod frame;
mod parts;
mod quirks;
mod usage;

pub use decode::GeminiDecoder;
pub use encode::{SKIP_SIGNATURE, encode};
pub use quirks::{Family, GeminiQuirks};
