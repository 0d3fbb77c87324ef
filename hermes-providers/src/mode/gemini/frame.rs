//! One chunk of a stream (or one whole answer) as loosely typed values.
//!
//! Every field is raw until it is needed, so a field of an unexpected kind costs that field and not the chunk.

use serde::Deserialize;

use crate::json::{Raw, object};

/// The top level.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Chunk<'a> {
    #[serde(borrow, default)]
    pub(super) error: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) candidates: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) prompt_feedback: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) usage_metadata: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) model_version: Raw<'a>,
}

impl Chunk<'_> {
    /// True when the chunk is an error, whatever else it holds.
    pub(super) fn is_error(&self) -> bool {
        self.error.is_some_and(|raw| !matches!(raw.get(), "{}" | "\"\"" | "false" | "[]"))
    }

    /// True for what this wire calls an answer, or a part of one.
    pub(super) fn is_answer(&self) -> bool {
        self.candidates.is_some() || self.prompt_feedback.is_some() || self.usage_metadata.is_some()
    }
}

/// One candidate; only the first one is read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    #[serde(borrow, default)]
    pub(super) content: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) finish_message: Raw<'a>,
}

/// What a candidate adds.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Content<'a> {
    #[serde(borrow, default)]
    pub(super) parts: Raw<'a>,
}

/// Why there is no candidate.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Feedback<'a> {
    #[serde(borrow, default)]
    pub(super) block_reason: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) block_reason_message: Raw<'a>,
}

/// A chunk, when the text is one.
pub(super) fn chunk(text: &str) -> Option<Chunk<'_>> {
    object(text)
}
