//! `POST /v1/messages`, the wire of Anthropic and of those that copy it.
//!
//! Checked against the maker's public pages on platform.claude.com: `docs/en/api/messages` (fields of request and answer),
//! `docs/en/build-with-claude/streaming` (events), `.../handling-stop-reasons`, `.../prompt-caching`,
//! `.../extended-thinking`, `.../adaptive-thinking`, `.../effort`, `.../thinking-troubleshooting` (what each model
//! accepts), `.../preserved-thinking` (a thinking block is tied to what came before it) and `docs/en/api/errors`; for
//! MiniMax against `docs/api-reference/text-anthropic-api` on platform.minimax.io.
//!
//! What is special here:
//!
//! - Thinking is signed, and the signature covers what stands before it. So an answer with thinking (or with any block
//!   that is not plain text and calls) keeps a sidecar: the list of its blocks in the order in which they came, each with
//!   its members as received. It goes back unchanged to its issuer and to nobody else (I19); see `blocks.rs`.
//! - Cache marks stand inside the blocks that they end. They move from request to request, so they must be nothing but an
//!   addition: every content is a list of blocks, also a single text, and a mark is one more member at the end of its
//!   block. Taking the marks out of two requests of one conversation leaves bytes of which one is a prefix of the other
//!   but for its closing brackets (I18). The provider's cache goes by the content of the blocks up to a mark, of which
//!   the mark itself is no part.
//! - The output cap is required, so there is always one: the caller's, the configuration's, the rule's for the model, or
//!   [`DEFAULT_MAX_OUTPUT_TOKENS`].
//! - How a model is told to think depends on its family: data in the profile, see [`ModelRule`].

mod blocks;
mod decode;
mod encode;
mod event;
mod rules;
mod usage;

pub(super) use encode::word_id;
pub(super) use rules::{MIN_BUDGET_TOKENS, weaker_or_same};

pub use decode::MessagesDecoder;
pub use encode::{DEFAULT_MAX_OUTPUT_TOKENS, MAX_CACHE_MARKS, encode};
pub use rules::{MessagesQuirks, ModelRule, ThinkingStyle};
