//! Looks after what nobody else comes by for: work whose owner is gone, and what was kept long enough.
//!
//! One task of a program that lives long. Every [`WORK_SWEEP_MS`] it makes workers and delegations of dead owners unknown, so
//! that whoever waits for them is told; more rarely, and not at the same time in every process of a host, it ends questions
//! that nobody answered, makes attempts to send whose time is over ambiguous, and deletes receipts, deliveries and questions
//! that are over for as long as `hermes_store::limits` says. Each is one bounded transaction that any number of processes may
//! run; a failure is left for the next time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hermes_store::limits::{APPROVAL_TTL_MS, PRUNE_MAX_ROWS, SEND_LEASE_MS, WORK_SWEEP_MS};
use hermes_store::{Store, StoreError};
use tokio::time::Instant;

/// Least time between two prunings. What is used finds out itself that its time is over; this is for what nobody looks at.
const PRUNE_PAUSE_MS: u64 = 300_000;
/// Most that is added to it, by chance: gateways that were started together do not stay together.
const PRUNE_JITTER_MS: u64 = 60_000;

const _: () = assert!(WORK_SWEEP_MS * 2 < PRUNE_PAUSE_MS && PRUNE_JITTER_MS < PRUNE_PAUSE_MS);
const _: () = assert!(SEND_LEASE_MS <= PRUNE_PAUSE_MS && APPROVAL_TTL_MS <= PRUNE_PAUSE_MS);

/// How often what is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rhythm {
    pub(crate) sweep: Duration,
    pub(crate) prune: Duration,
    pub(crate) jitter: Duration,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self {
            sweep: Duration::from_millis(WORK_SWEEP_MS),
            prune: Duration::from_millis(PRUNE_PAUSE_MS),
            jitter: Duration::from_millis(PRUNE_JITTER_MS),
        }
    }
}

impl Rhythm {
    fn chance(&self) -> Duration {
        self.jitter.mul_f64(fastrand::f64())
    }
}

/// Keeps house until it is dropped.
pub(crate) async fn run(store: Arc<dyn Store>, rhythm: Rhythm) -> Infallible {
    // The first sweep finds what died with the program before this one.
    let mut prune_at = Instant::now() + rhythm.chance();
    loop {
        sweep(store.as_ref()).await;
        if Instant::now() >= prune_at {
            let is_done = prune(store.as_ref()).await;
            // What one pruning left goes with the next sweep.
            prune_at = Instant::now() + if is_done { rhythm.prune + rhythm.chance() } else { Duration::ZERO };
        }
        tokio::time::sleep(rhythm.sweep).await;
    }
}

/// Looks for work whose owner is gone.
async fn sweep(store: &dyn Store) {
    match store.sweep_workers().await {
        Ok(lost) if lost.is_empty() => {}
        Ok(lost) => tracing::warn!(?lost, "workers whose owner is gone are unknown now"),
        Err(error) => tell("workers", &error),
    }
    match store.sweep_delegations().await {
        Ok(lost) if lost.is_empty() => {}
        Ok(lost) => tracing::warn!(?lost, "delegations whose owner is gone are unknown now"),
        Err(error) => tell("delegations", &error),
    }
}

/// Ends what is overdue and deletes what was kept long enough. False when there is more.
async fn prune(store: &dyn Store) -> bool {
    let receipts = pruned("receipts", store.prune_inbound().await);
    let deliveries = pruned("deliveries", store.prune_deliveries().await);
    let approvals = pruned("approvals", store.prune_approvals().await);
    receipts && deliveries && approvals
}

/// Tells how a pruning went. False when it stopped at its limit.
fn pruned(what: &'static str, rows: Result<u64, StoreError>) -> bool {
    match rows {
        Ok(0) => true,
        Ok(rows) => {
            tracing::debug!(rows, "{what} were kept long enough and are deleted");
            usize::try_from(rows).unwrap_or(usize::MAX) < PRUNE_MAX_ROWS
        }
        Err(error) => {
            tell(what, &error);
            true
        }
    }
}

/// A database that is in use or away is nothing that a person has to know; the next time comes soon.
fn tell(what: &'static str, error: &StoreError) {
    let code = error.code();
    match error {
        StoreError::Busy { .. }
        | StoreError::Retryable { .. }
        | StoreError::Unavailable { .. }
        | StoreError::CommitUnknown => tracing::debug!(code, "{what} are looked after later: {error}"),
        _ => tracing::warn!(code, "{what} could not be looked after: {error}"),
    }
}

#[cfg(test)]
#[path = "housekeeping_tests.rs"]
mod tests;
