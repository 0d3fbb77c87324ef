//! Keeps the search index up to date in a program that lives long.
//!
//! Nobody waits for it: a search brings the index up to date itself, within limits. It is what keeps these limits from being
//! reached, after a long turn, an import, or the first start on a store that was never indexed.
//!
//! It is woken when the engine says that something is durable, and looks now and then for what other processes wrote. It
//! waits for a burst to be over, works in small steps, and rests after each for at least as long as the step took, so that a
//! turn that commits at the same time finds the disk free half of the time at least.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use hermes_core::EventKind;
use hermes_store::limits::{SEARCH_LOCK_WAIT_MS, SEARCH_STEP_ROWS};
use hermes_store::{SearchStore, StoreError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Pause after something was committed, in which more is collected: a turn with quick tools costs one step, not one for
/// each round.
const INDEX_GATHER_MS: u64 = 2_000;
/// Time between two looks for what other processes wrote.
const INDEX_POLL_MS: u64 = 60_000;
/// Least rest between two steps.
const INDEX_BREATH_MS: u64 = 20;
/// Most steps of one round, each of at most [`SEARCH_STEP_ROWS`] rows: 20,000 rows.
const INDEX_ROUND_STEPS: usize = 40;
/// Rest after a round that did not come to the end.
const INDEX_ROUND_PAUSE_MS: u64 = 1_000;
/// First rest when the index or the store is in use or away; doubled each time.
const INDEX_RETRY_MS: u64 = 1_000;
/// Longest such rest, and the rest after any other failure.
const INDEX_RETRY_MAX_MS: u64 = 60_000;
/// Rest while the index is damaged. It is built anew by a command only (HM1021), which fills it itself.
const INDEX_DAMAGED_MS: u64 = 600_000;

const _: () = assert!(INDEX_GATHER_MS < INDEX_POLL_MS && INDEX_POLL_MS < INDEX_DAMAGED_MS);
const _: () = assert!(SEARCH_LOCK_WAIT_MS < INDEX_RETRY_MS && INDEX_RETRY_MS < INDEX_RETRY_MAX_MS);

/// How fast the index is filled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) gather: Duration,
    pub(crate) poll: Duration,
    pub(crate) breath: Duration,
    pub(crate) step_rows: usize,
    pub(crate) round_steps: usize,
    pub(crate) round_pause: Duration,
    pub(crate) retry: Duration,
    pub(crate) retry_max: Duration,
    pub(crate) damaged: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            gather: Duration::from_millis(INDEX_GATHER_MS),
            poll: Duration::from_millis(INDEX_POLL_MS),
            breath: Duration::from_millis(INDEX_BREATH_MS),
            step_rows: SEARCH_STEP_ROWS,
            round_steps: INDEX_ROUND_STEPS,
            round_pause: Duration::from_millis(INDEX_ROUND_PAUSE_MS),
            retry: Duration::from_millis(INDEX_RETRY_MS),
            retry_max: Duration::from_millis(INDEX_RETRY_MAX_MS),
            damaged: Duration::from_millis(INDEX_DAMAGED_MS),
        }
    }
}

/// Whether an event says that there may be rows which the index does not know. What this does not name is found by the poll.
pub(crate) fn is_commit(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::SessionOpened { .. }
            | EventKind::RoundRecorded { .. }
            | EventKind::CallFinished { .. }
            | EventKind::Recovered { .. }
            | EventKind::Compressed { .. }
            | EventKind::TurnEnded { .. }
    )
}

/// Fills the index until it is dropped. Dropping it in a step loses nothing: the step is made again.
pub(crate) async fn run(store: Arc<dyn SearchStore>, committed: Arc<Notify>, pace: Pace) -> Infallible {
    let mut trouble = Trouble::default();
    // Whoever opened the store has something better to do with it first.
    tokio::time::sleep(pace.gather).await;
    loop {
        // What was committed until now is seen by this round.
        let _ = committed.notified().now_or_never();
        match round(store.as_ref(), &pace).await {
            Ok(is_done) => {
                trouble.is_over();
                if is_done {
                    tokio::select! {
                        () = committed.notified() => {}
                        () = tokio::time::sleep(pace.poll) => {}
                    }
                    tokio::time::sleep(pace.gather).await;
                } else {
                    tokio::time::sleep(pace.round_pause).await;
                }
            }
            Err(error) => tokio::time::sleep(trouble.meet(&error, &pace)).await,
        }
    }
}

/// A few steps. True when nothing is left to do.
async fn round(store: &dyn SearchStore, pace: &Pace) -> Result<bool, StoreError> {
    for _ in 0..pace.round_steps {
        let begun = Instant::now();
        let progress = store.index_step(pace.step_rows).await?;
        if progress.is_done {
            return Ok(true);
        }
        tokio::time::sleep(pace.breath.max(begun.elapsed())).await;
    }
    Ok(false)
}

/// What went wrong since the last round that worked.
#[derive(Debug, Default)]
struct Trouble {
    /// The codes that were told in the log: each once, however long it lasts.
    told: Vec<&'static str>,
    /// The last rest of those that are doubled.
    retry: Option<Duration>,
}

impl Trouble {
    fn is_over(&mut self) {
        if !self.told.is_empty() {
            tracing::info!("the search index is kept up to date again");
        }
        *self = Self::default();
    }

    /// Tells an error where it is to be told, and says how long to rest.
    fn meet(&mut self, error: &StoreError, pace: &Pace) -> Duration {
        let code = error.code();
        match error {
            StoreError::Busy { .. }
            | StoreError::Retryable { .. }
            | StoreError::Unavailable { .. }
            | StoreError::CommitUnknown => {
                let rest = self.retry.map_or(pace.retry, |last| last.saturating_mul(2)).min(pace.retry_max);
                self.retry = Some(rest);
                tracing::debug!(code, "the search index is brought up to date later: {error}");
                return rest;
            }
            _ => {}
        }
        if self.told.contains(&code) {
            tracing::debug!(code, "the search index is still not kept up to date: {error}");
        } else {
            self.told.push(code);
            // The message of a damaged index names the command that builds it anew.
            tracing::warn!(code, "the search index is not kept up to date: {error}");
        }
        if matches!(error, StoreError::SearchIndex { .. }) { pace.damaged } else { pace.retry_max }
    }
}

#[cfg(test)]
#[path = "indexer_tests.rs"]
mod tests;
