//! A clock for real databases: it runs faster than it should, and stands still while the database works. So the patience of
//! an engine is spent on what the scenario says and never on a busy machine: a database that takes a second for an answer
//! would use up a minute of it otherwise.
//!
//! A task of the runtime on whose only thread the scenario runs moves it on. When the machine lets that thread wait, the
//! clock waits with it, and between two steps everything that can run has run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hermes_core::Clock;
use hermes_core::testing::FaultStore;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Where its time begins, in milliseconds since the Unix epoch.
const START_MS: i64 = 1_000_000_000_000;
/// How much faster than it should time runs.
const SPEED: u32 = 100;
/// Real time between two steps, in milliseconds.
const STEP_MS: u64 = 1;
/// Most real time that a step makes up for: a thread that had to wait longer has missed it.
const STEP_MAX: Duration = Duration::from_millis(5);

/// Waits by the time at which they end, and their number.
type Waits = BTreeMap<(i64, u64), oneshot::Sender<()>>;

/// The clock.
pub(crate) struct Pace {
    now_ms: AtomicI64,
    waits: Mutex<(u64, Waits)>,
}

impl Pace {
    /// A clock that stands still until [`Pace::run`].
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { now_ms: AtomicI64::new(START_MS), waits: Mutex::default() })
    }

    /// Lets time run while this store does not work. Never ends.
    pub(crate) async fn run(self: Arc<Self>, store: Arc<FaultStore>) {
        let mut last = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(STEP_MS)).await;
            let now = Instant::now();
            let real = (now - last).min(STEP_MAX);
            last = now;
            if !store.is_working() {
                self.push(i64::try_from((real * SPEED).as_millis()).unwrap());
            }
        }
    }

    /// Pushes the clock forward, past the end of waits.
    pub(crate) fn push(&self, ms: i64) {
        let now = self.now_ms.fetch_add(ms, Ordering::SeqCst) + ms;
        let mut waits = self.waits.lock().unwrap();
        let later = waits.1.split_off(&(now + 1, 0));
        for (_, over) in std::mem::replace(&mut waits.1, later) {
            // Whoever waited may be gone.
            let _ = over.send(());
        }
    }
}

impl Clock for Pace {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
        let (over, wait) = oneshot::channel();
        let mut waits = self.waits.lock().unwrap();
        let end = Clock::now_ms(self).saturating_add(i64::try_from(ms).unwrap_or(i64::MAX));
        let number = waits.0;
        waits.0 += 1;
        waits.1.insert((end, number), over);
        wait.map(|_| ()).boxed()
    }
}

impl hermes_store::Clock for Pace {
    fn now_ms(&self) -> i64 {
        Clock::now_ms(self)
    }
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace").field("now_ms", &self.now_ms).finish_non_exhaustive()
    }
}
