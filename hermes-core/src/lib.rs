//! How one turn runs.

mod end;
mod event;

pub use end::{EndReason, Stopper, TurnError, TurnResult};
pub use event::{Event, EventKind, EventSink, NoEvents, PlannedCall};
