//! `POST /responses`: items instead of messages, encrypted reasoning that goes back, events that are told apart by type.
//!
//! Checked against the maker's pages on developers.openai.com, `api/reference/resources/responses` (create, streaming
//! events) and `api/docs/guides/{reasoning,conversation-state,function-calling}`, and against docs.x.ai,
//! `developers/advanced-api-usage/troubleshooting-reasoning` and `developers/model-capabilities/text/best-practices`.
//!
//! What is special here:
//!
//! - The conversation is ours (`store: false`), so nothing is referred to by a server's id. Reasoning goes back as the
//!   item itself with its `encrypted_content`, without its `id`, in its old place between messages and calls; so an answer
//!   with reasoning keeps a sidecar, see `replay.rs` (I19).
//! - Messages have a `phase`, which the newer models want to hear again. What a model says to itself on its way
//!   (`commentary`, `analysis`) is shown as reasoning; the answer is the rest.
//! - The end is `response.completed`, `response.incomplete` or `response.failed`; a stream without one of them was cut,
//!   whatever came before (B20).
//! - An item is what its `response.output_item.done` says. The list in the last event is only read for what is missing,
//!   because some servers send it empty (B19). A call of which neither arguments nor an end came is not whole (B21).
//! - Ids of items are worth nothing: some servers make new ones for each event, see `slots.rs` (B18).
//! - `event: error` is often followed by `response.failed`, which says more; so it waits for that one.

mod decode;
mod encode;
mod event;
mod quirks;
mod replay;
mod slots;
mod usage;

pub use decode::ResponsesDecoder;
pub use encode::encode;
pub use quirks::ResponsesQuirks;
