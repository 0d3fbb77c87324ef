//! `POST /model/{modelId}/converse-stream` and `/converse`, the wire of Amazon Bedrock for all its models.
//!
//! Checked against the maker's public pages on docs.aws.amazon.com: `bedrock/latest/APIReference/API_runtime_Converse`,
//! `.../API_runtime_ConverseStream`, `.../API_runtime_ConverseStreamOutput` (events and exceptions),
//! `.../API_runtime_MessageStopEvent` (reasons to stop), `.../API_runtime_ReasoningContentBlockDelta`,
//! `.../API_runtime_TokenUsage`, `bedrock/latest/userguide/prompt-caching`, `nova/latest/nova2-userguide` (effort) and
//! `lexv2/latest/dg/event-stream-encoding` (the frames).
//!
//! What is special here:
//!
//! - The stream is binary: frames with two checksums each, see `frame.rs`. Errors come as frames inside a 200.
//! - Blocks are told apart by `contentBlockIndex`; two calls may grow at the same time (B29).
//! - Reasoning is signed (or encrypted), and the signature covers what stands before it. An answer with reasoning keeps a
//!   sidecar: the list of its blocks in order, sent back unchanged to its issuer and to nobody else (I19).
//! - A cache mark is a block of its own behind the one that it ends. Taking the marks out of two requests of one
//!   conversation leaves bytes of which one is a prefix of the other but for its closing brackets (I18). Only models whose
//!   rule says so get marks: others refuse the request.
//! - Calls in the history need a list of tools, also when none is offered: the tools that the history names are then
//!   listed as not available.

mod blocks;
mod decode;
mod encode;
mod event;
mod frame;
mod rules;
#[cfg(any(test, feature = "test-util"))]
pub mod writing;

pub use decode::ConverseDecoder;
pub use encode::{MAX_CACHE_MARKS, encode};
pub use frame::{MAX_FRAME_BYTES, MAX_FRAME_HEADER_BYTES};
pub use rules::{ConverseQuirks, ConverseRule, ConverseThinking, Guardrail};
