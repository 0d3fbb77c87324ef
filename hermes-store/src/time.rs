//! The clock of ownership.
//!
//! Tokens give safety and the clock only liveness: a jump of the wall clock must never let two owners commit, nor make
//! anybody wait for hours. [`HostClock`] therefore reads the wall clock once and then follows the monotonic clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch, as this store counts them.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Now, in milliseconds since the Unix epoch. Never goes back within one clock.
    fn now_ms(&self) -> i64;
}

/// The wall clock at construction, carried on by the monotonic clock.
#[derive(Debug)]
pub struct HostClock {
    anchor_ms: i64,
    started: Instant,
}

impl HostClock {
    /// Reads the wall clock once.
    #[must_use]
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { anchor_ms: i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX), started: Instant::now() }
    }
}

impl Default for HostClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for HostClock {
    fn now_ms(&self) -> i64 {
        self.anchor_ms.saturating_add(i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX))
    }
}

/// A clock that moves only when told to, for tests.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at `now_ms`.
    #[must_use]
    pub fn at(now_ms: i64) -> Self {
        Self(AtomicI64::new(now_ms))
    }

    /// Moves the clock by `ms`, which may be negative.
    pub fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}
