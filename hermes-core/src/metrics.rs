//! Plain counters of one engine, from its beginning.
//!
//! They are counted where events are told, so that each thing is counted once and in one place.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::event::EventKind;

/// What an engine has counted since it was built. Every field only grows; nothing of it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Metrics {
    /// Turns whose end was told.
    pub turns: u64,
    /// Attempts at requests of turns; those beside turns (notes, titles) are not among them.
    pub requests: u64,
    /// Waits before another attempt.
    pub retries: u64,
    /// Calls that ended.
    pub calls: u64,
    /// Histories that were shortened.
    pub compressions: u64,
    /// Windows that were grown in place of that.
    pub windows_grown: u64,
    /// Requests that did not begin with the one before them, without a change of the history that explains it (I18). More
    /// than 0 is a defect of this program, or of a [`ContextEngine`](crate::ContextEngine).
    pub prefix_broken: u64,
    /// Events that were told.
    pub events: u64,
    /// Events that were pushed out of the replay rings.
    pub events_dropped: u64,
}

impl Engine {
    /// What this engine has counted so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let inner = self.inner();
        inner.counters.read(inner.rings.dropped())
    }
}

/// The counters behind [`Metrics`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    turns: AtomicU64,
    requests: AtomicU64,
    retries: AtomicU64,
    calls: AtomicU64,
    compressions: AtomicU64,
    windows_grown: AtomicU64,
    prefix_broken: AtomicU64,
    events: AtomicU64,
}

impl Counters {
    /// Counts what an event tells. Events that a parent shows of its children are not given to it.
    pub(crate) fn saw(&self, kind: &EventKind) {
        self.events.fetch_add(1, Ordering::Relaxed);
        let counter = match kind {
            EventKind::TurnEnded { .. } => &self.turns,
            EventKind::RequestStarted { .. } => &self.requests,
            EventKind::Retrying { .. } => &self.retries,
            EventKind::CallFinished { .. } => &self.calls,
            EventKind::Compressed { .. } => &self.compressions,
            EventKind::WindowGrown { .. } => &self.windows_grown,
            EventKind::PrefixBroken { .. } => &self.prefix_broken,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters now.
    pub(crate) fn read(&self, events_dropped: u64) -> Metrics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            turns: of(&self.turns),
            requests: of(&self.requests),
            retries: of(&self.retries),
            calls: of(&self.calls),
            compressions: of(&self.compressions),
            windows_grown: of(&self.windows_grown),
            prefix_broken: of(&self.prefix_broken),
            events: of(&self.events),
            events_dropped,
        }
    }
}
