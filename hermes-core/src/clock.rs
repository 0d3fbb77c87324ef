//! The clock of an ordinary program. The engine itself knows only the seam.

use std::sync::Arc;

use futures::future::BoxFuture;
use hermes_store::{Clock as _, HostClock, HostTime};

use crate::seams::Clock;

/// The host's clock (anchored once, then monotonic) and the timer of the Tokio runtime that it is used in. It is the
/// clock of an engine and of a store.
#[derive(Debug, Default)]
pub struct TokioClock(HostClock);

impl TokioClock {
    /// A clock to be shared.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }
}

impl Clock for TokioClock {
    fn now_ms(&self) -> i64 {
        self.0.now_ms()
    }

    fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
        Box::pin(HostClock::sleep(ms))
    }
}

impl hermes_store::Clock for TokioClock {
    fn now_ms(&self) -> i64 {
        self.0.now_ms()
    }

    fn host(&self) -> Option<Arc<dyn HostTime>> {
        self.0.host()
    }
}
