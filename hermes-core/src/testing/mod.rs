//! Parts for tests: a fast clock, counted ids, recorded events, a store that fails or dies at a chosen write.

mod fault;
mod parts;

pub use fault::{Fault, FaultStore};
pub use parts::{CountedIds, FastClock, NoPeople, RecordedEvents, TestSessions, owner, parts, tool_host};
