//! Parts for tests: a fast clock, counted ids, recorded events, a store that fails or dies at a chosen write.

#![allow(clippy::disallowed_methods, reason = "what stands behind the seams in tests")]

mod fault;
mod parts;

pub use fault::{Fault, FaultStore};
pub use parts::{CountedIds, FastClock, RecordedEvents, owner, parts, tool_host};
