//! The in-memory model: the store's rules written as plainly as they can be, for tests and for comparing others with.
//!
//! One mutex over one plain value; every method of the traits is one critical section, so that it is atomic as a
//! transaction is. A method checks everything before it changes anything. Nothing is written to a disk: a "crash" in
//! a test is dropping the engine and keeping the store.

mod admissions;
mod approval;
mod delegations;
mod delivery;
mod history;
mod inbound;
mod indexed;
mod leases;
mod maintenance;
mod retention;
mod search;
mod sessions;
mod state;
mod transcript;
mod transfer;
mod usage;
mod work;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::owner::LivenessProbe;
use crate::rules::NoProbe;
use crate::time::Clock;
use state::State;

/// A store that lives as long as its handles. Cloning gives another handle of the same store.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    probe: Mutex<Arc<dyn LivenessProbe>>,
    clock: Arc<dyn Clock>,
    changed: Notify,
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// An empty store that reads this clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State::default()),
                probe: Mutex::new(Arc::new(NoProbe)),
                clock,
                changed: Notify::new(),
            }),
        }
    }

    /// Sets how the death of an owner is proved. Without one only its heartbeat tells.
    pub fn set_probe(&self, probe: Arc<dyn LivenessProbe>) {
        *self.shared.probe.lock().unwrap_or_else(PoisonError::into_inner) = probe;
    }

    /// Changes the text of a stored row by hand, which no method of a store ever does: for tests of those who must notice.
    /// False when there is no such row.
    #[cfg(feature = "test-util")]
    pub fn tamper(&self, message: &crate::MessageId, content: &str) -> bool {
        let mut state = self.state();
        state.rows.get_mut(message).map(|row| row.new.content = content.into()).is_some()
    }

    fn probe(&self) -> Arc<dyn LivenessProbe> {
        self.shared.probe.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn now(&self) -> i64 {
        self.shared.clock.now_ms()
    }

    /// The state. A panic while it was held cannot have left half a change: changes come after all checks.
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes everybody who waits for a change.
    fn notify(&self) {
        self.shared.changed.notify_waiters();
    }
}
