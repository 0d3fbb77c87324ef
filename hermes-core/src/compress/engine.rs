//! The seam: who decides when a history is too long, and what it becomes.

use async_trait::async_trait;
use hermes_providers::{Completion, ProviderError};
use hermes_store::StoredMessage;

use super::view::{self, NewView, ViewFault};
use super::{CompressionSettings, plan, summary, threshold};
use crate::tokens;

/// A history that may have to be shortened.
#[derive(Debug, Clone, Copy)]
pub struct History<'r> {
    /// What the model is shown, oldest first, all of it.
    pub rows: &'r [StoredMessage],
    /// The model's window in tokens.
    pub window: u64,
    /// What a person wants the summary to be about, when he said so.
    pub focus: Option<&'r str>,
}

/// Asks the summarising model, once. Usage is counted by whoever implements it.
#[async_trait]
pub trait Summarizer: Send + Sync {
    /// The answer to `request`, under the system prompt `system`, without tools.
    ///
    /// # Errors
    /// Those of the model; a stop and a time-out are [`hermes_providers::ErrorClass::Timeout`].
    async fn summarize(&self, system: &str, request: String) -> Result<Completion, ProviderError>;

    /// The window in tokens that a request must fit into, when it is known.
    fn window(&self) -> Option<u64> {
        None
    }
}

/// Why a history stays as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompactError {
    /// Nothing in it can be shortened.
    #[error("there is nothing to shorten: what is left is the newest part of the conversation")]
    Nothing,
    /// The summarising model failed.
    #[error("the summary failed: {0}")]
    Model(#[from] ProviderError),
    /// The summarising model's answer is none.
    #[error("the summary was {0}")]
    NotASummary(&'static str),
    /// The shortened history may not take the place of the long one.
    #[error("{0}")]
    Refused(#[from] ViewFault),
}

/// Decides when a history is shortened, and makes the shorter one. The engine checks what it makes (smaller, every call
/// with its result, not only a summary) and commits it; an implementation writes nothing.
#[async_trait]
pub trait ContextEngine: Send + Sync {
    /// The number of tokens from which a history is shortened before the next request; `None` for never.
    fn threshold(&self, window: u64, max_output_tokens: Option<u64>) -> Option<u64>;

    /// The shorter history.
    ///
    /// # Errors
    /// [`CompactError`]; the history then stays as it is.
    async fn compact(&self, history: History<'_>, model: &dyn Summarizer) -> Result<NewView, CompactError>;
}

/// The default: head and newest part stay word for word, a model summarises what is between them.
#[derive(Debug, Clone, Default)]
pub struct SummaryEngine {
    settings: CompressionSettings,
}

impl SummaryEngine {
    /// With these settings.
    #[must_use]
    pub fn new(settings: CompressionSettings) -> Self {
        Self { settings }
    }
}

#[async_trait]
impl ContextEngine for SummaryEngine {
    fn threshold(&self, window: u64, max_output_tokens: Option<u64>) -> Option<u64> {
        self.settings.enabled.then(|| threshold::threshold(&self.settings, window, max_output_tokens))
    }

    async fn compact(&self, history: History<'_>, model: &dyn Summarizer) -> Result<NewView, CompactError> {
        let rows = history.rows;
        let Some(plan) = plan::plan(rows, &self.settings, history.window) else {
            return Ok(view::without_pictures(rows).ok_or(CompactError::Nothing)??);
        };
        let middle = &rows[plan.head..plan.tail];
        let budget = summary::budget(tokens::of_rows(middle), history.window);
        let request = summary::request(middle, budget, history.focus, model.window());
        let answer = model.summarize(summary::SYSTEM, request).await?;
        let notes = summary::accept(&answer).map_err(|refusal| CompactError::NotASummary(refusal.as_str()))?;
        Ok(view::build(rows, plan, &notes)?)
    }
}
