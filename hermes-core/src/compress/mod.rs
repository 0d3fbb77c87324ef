//! Compression: the one thing that changes what the model is shown of the past (I20).
//!
//! ```text
//! load > threshold -> lock -> plan (head | middle | tail) -> summary of the middle -> verified view -> one commit
//! ```
//!
//! Everything here is a pure function of rows, sizes and settings; asking a model for the summary and committing the
//! view are the turn's work (`turn/compress.rs`). A view that is not smaller, not pair-complete or not whole is never
//! committed, and when no summary can be had, nothing is lost: the history stays as it is.
//!
//! | file | what |
//! |---|---|
//! | `engine` | the seam: an embedder may bring another way of shortening |
//! | `threshold` | when a history is too long for its window |
//! | `plan` | what is kept, what is summarised; never cuts a call from its result |
//! | `prune` | repeated and old tool results, shortened without a model |
//! | `summary` | what the summarising model is asked, and what counts as an answer |
//! | `view` | the new history, and the proof that it may be committed |
//! | `cooldown` | how long it is left alone after a failure |
//! | `thrash` | which compressions brought too little, and when further ones wait |

pub(crate) mod cooldown;
mod engine;
mod plan;
mod prune;
mod summary;
pub(crate) mod thrash;
mod threshold;
pub(crate) mod view;

pub(crate) use threshold::summariser_ceiling;

pub use engine::{CompactError, ContextEngine, History, Summarizer, SummaryEngine};
pub use view::{NewView, ViewFault, ViewPart};

/// What a compression is told. Every field has the default of the mechanism document.
#[derive(Debug, Clone, PartialEq)]
pub struct CompressionSettings {
    /// Whether histories are compressed at all (`compression.enabled`).
    pub enabled: bool,
    /// Share of the input window, in percent, from which a history is compressed (`compression.threshold`).
    pub threshold_percent: u64,
    /// The same as a number of tokens, when it is lower (`compression.threshold_tokens`).
    pub threshold_tokens: Option<u64>,
    /// Rows at the start that the first compression keeps (`compression.protect_first_n`).
    pub protect_first: usize,
    /// Rows at the end that are kept where they fit (`compression.protect_last_n`).
    pub protect_last: usize,
    /// Compressions that one turn may try (`compression.max_attempts`).
    pub attempts_max: u32,
    /// True flags the rows of the session as compacted instead of opening a child session (`compression.in_place`).
    pub in_place: bool,
    /// Pause in milliseconds after which a turn begins with a compression (`compression.idle_compact_after_seconds`);
    /// `None` = never.
    pub idle_after_ms: Option<u64>,
}

impl Default for CompressionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            threshold_percent: 50,
            threshold_tokens: None,
            protect_first: 3,
            protect_last: 20,
            attempts_max: 3,
            in_place: false,
            idle_after_ms: None,
        }
    }
}
