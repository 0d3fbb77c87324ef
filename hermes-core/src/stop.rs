//! How a running turn is told to stop, and by whom.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::end::{EndReason, Stopper};

/// How a turn is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Calls that run may end by themselves; nothing new begins.
    Soft,
    /// What runs is ended now.
    Hard,
}

/// Why a turn has to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Asked(Stopper),
    LeaseLost,
    Deadline,
    /// The watchdog: nothing moved for so long, since the last sign of life.
    Wedged {
        quiet_ms: u64,
        last: &'static str,
    },
}

impl Cause {
    pub(crate) fn reason(self) -> EndReason {
        match self {
            Self::Asked(Stopper::User) => EndReason::StoppedByUser,
            Self::Asked(Stopper::Shutdown) => EndReason::StoppedByShutdown,
            Self::LeaseLost => EndReason::LeaseLost,
            Self::Deadline => EndReason::DeadlineExceeded,
            Self::Wedged { .. } => EndReason::LivenessLost,
        }
    }
}

/// The stop signal of one turn. The first cause wins, but for a lost lease, which wins over all: whoever lost it must
/// not write one more row.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopSignal {
    cause: Arc<Mutex<Option<Cause>>>,
    soft: CancellationToken,
    hard: CancellationToken,
}

impl StopSignal {
    pub(crate) fn stop(&self, cause: Cause, how: Interrupt) {
        {
            let mut slot = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
            if slot.is_none() || cause == Cause::LeaseLost {
                *slot = Some(cause);
            }
        }
        self.soft.cancel();
        if how == Interrupt::Hard {
            self.hard.cancel();
        }
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancelled by every stop: requests and waits end.
    pub(crate) fn soft(&self) -> &CancellationToken {
        &self.soft
    }

    /// Cancelled by a hard stop: running calls end.
    pub(crate) fn hard(&self) -> &CancellationToken {
        &self.hard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_wins_but_for_a_lost_lease() {
        let signal = StopSignal::default();
        assert_eq!(signal.cause(), None);
        signal.stop(Cause::Asked(Stopper::User), Interrupt::Soft);
        signal.stop(Cause::Deadline, Interrupt::Hard);
        assert_eq!(signal.cause(), Some(Cause::Asked(Stopper::User)));
        signal.stop(Cause::LeaseLost, Interrupt::Hard);
        assert_eq!(signal.cause(), Some(Cause::LeaseLost));
        assert!(signal.hard().is_cancelled());
    }
}
