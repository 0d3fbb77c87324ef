//! The end of an engine in order: no new input, no new turn, and a wait for what is under way (S17).

use std::future::Future;

use futures::future::{Either, select};
use hermes_store::{AdmitOutcome, StoreError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::end::Stopper;
use crate::engine::{Engine, EngineError, Submission};
use crate::limits;
use crate::stop::Interrupt;

/// Whether the engine ends, and what still works on its conversations.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    begun: CancellationToken,
    /// Counts futures that the host awaits; no task is spawned on it.
    at_work: TaskTracker,
}

impl Closing {
    /// Whether the end has begun. It is never taken back.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Cancelled when the end begins.
    pub(crate) fn begun(&self) -> &CancellationToken {
        &self.begun
    }

    /// A piece of work that the end waits for, until the token is dropped.
    pub(crate) fn work(&self) -> TaskTrackerToken {
        self.at_work.token()
    }

    /// What comes of a wait, or `None` as soon as the end begins.
    pub(crate) async fn unless_begun<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        self.begun.run_until_cancelled(wait).await
    }

    fn begin(&self) {
        self.begun.cancel();
        self.at_work.close();
    }

    /// Waits until nothing works any more, at most as long as `limit` lasts. Says whether it came to that.
    async fn over_within(&self, limit: impl Future<Output = ()> + Unpin) -> bool {
        let over = self.at_work.wait();
        futures::pin_mut!(over);
        matches!(select(over, limit).await, Either::Left(_))
    }
}

impl Engine {
    /// Drain mode, the first half of an end in order; [`Engine::shutdown`] is the second and retires the owner. From now
    /// on a new input is refused with [`StoreError::Retired`], a repeated request still gets its receipt, and no turn is
    /// begun or recovered: what is queued stays queued for another owner. Turns that run may end by themselves for
    /// `patience_ms` milliseconds; then they are stopped and settle as `stopped_by_shutdown`.
    ///
    /// False when one of them did not end for [`limits::WIND_DOWN_GRACE_MS`] more. The next owner recovers it, and this
    /// one cannot write to it any more when its lease is gone.
    pub async fn wind_down(&self, patience_ms: u64) -> bool {
        let inner = self.inner();
        inner.closing.begin();
        if inner.closing.over_within(inner.clock.sleep(patience_ms)).await {
            return true;
        }
        self.interrupt_all(Stopper::Shutdown, Interrupt::Hard);
        inner.closing.over_within(inner.clock.sleep(limits::WIND_DOWN_GRACE_MS)).await
    }

    /// The answer to a submission while the engine ends: the first receipt of a request that was accepted before.
    pub(crate) async fn repeated(&self, submission: &Submission) -> Result<AdmitOutcome, EngineError> {
        let (Some(conversation), Some(request_id)) = (&submission.conversation, &submission.request_id) else {
            return Err(StoreError::Retired.into());
        };
        let known = self.inner().store.admission_of(conversation, &submission.principal, request_id).await?;
        let known = known.ok_or(StoreError::Retired)?;
        if known.intent != submission.intent || known.payload != submission.input.to_payload() {
            return Err(StoreError::Conflict { what: format!("request {request_id}") }.into());
        }
        Ok(AdmitOutcome::Replayed(known.receipt))
    }
}
