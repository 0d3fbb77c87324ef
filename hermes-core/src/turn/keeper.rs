//! The lease keeper: renews the lease while the turn works, and stops the turn when the lease is gone.
//!
//! The keeper and the turn are polled by the same future, and the turn first. After a sleep of the host the turn would
//! therefore go on for a moment before the keeper looks. So whatever has an effect without a fenced write just before it
//! asks [`Turn::check_lease`]: a request to the model, and a call that is not announced.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use hermes_store::{Fence, StoreError};

use crate::engine::Inner;
use crate::stop::{Cause, Interrupt, StopSignal};
use crate::turn::Turn;

/// Until when a lease stands, as far as this process knows by its own clock. Clones are one.
#[derive(Debug, Clone)]
pub(crate) struct LeaseTime(Arc<AtomicI64>);

impl LeaseTime {
    /// Of a lease that was taken or renewed at `now_ms`.
    pub(crate) fn from_now(now_ms: i64, ttl_ms: u64) -> Self {
        Self(Arc::new(AtomicI64::new(now_ms.saturating_add(clamp(ttl_ms)))))
    }

    fn renewed(&self, asked_ms: i64, ttl_ms: u64) {
        self.0.fetch_max(asked_ms.saturating_add(clamp(ttl_ms)), Ordering::AcqRel);
    }

    fn until_ms(&self) -> i64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Renews until it is dropped. A lost lease stops the turn; the keeper then only waits. `lease` is told of every renewal.
pub(crate) async fn keep(engine: &Inner, fence: Fence, stop: StopSignal, lease: Option<&LeaseTime>) -> Infallible {
    let settings = &engine.settings;
    let clock = engine.clock.as_ref();
    let begun_ms = clock.now_ms();
    let lease = lease.cloned().unwrap_or_else(|| LeaseTime::from_now(begun_ms, settings.lease_ttl_ms));
    let mut next_renewal_ms = begun_ms.saturating_add(clamp(settings.lease_refresh_ms));
    loop {
        let now_ms = clock.now_ms();
        if now_ms < next_renewal_ms {
            clock.sleep(u64::try_from(next_renewal_ms - now_ms).unwrap_or(1)).await;
            continue;
        }
        // A store that does not answer keeps nobody's lease alive.
        let left_ms = u64::try_from(lease.until_ms() - now_ms).unwrap_or_default().max(settings.lease_refresh_ms);
        let renewed = tokio::select! {
            biased;
            renewed = engine.store.renew(&fence, settings.lease_ttl_ms) => renewed,
            () = clock.sleep(left_ms) => Err(StoreError::Busy { waited_ms: left_ms }),
        };
        match renewed {
            Ok(()) => {
                lease.renewed(now_ms, settings.lease_ttl_ms);
                next_renewal_ms = now_ms.saturating_add(clamp(settings.lease_refresh_ms));
            }
            // A locked or unreachable database is borne as long as the lease still stands with a refresh to spare.
            Err(error) if !matches!(error, StoreError::Fenced { .. }) && clock.now_ms() < lease.until_ms() => {
                tracing::warn!(code = error.code(), "the lease could not be renewed: {error}");
                next_renewal_ms = clock.now_ms().saturating_add(clamp(settings.lease_refresh_ms / 10 + 1));
            }
            Err(error) => {
                tracing::warn!(code = error.code(), "the lease is lost: {error}");
                stop.stop(Cause::LeaseLost, Interrupt::Hard);
                return futures::future::pending().await;
            }
        }
    }
}

impl Turn<'_> {
    /// The last look before something begins that no fenced write stands before. A lease that still stands by this
    /// process's clock is believed, so it costs nothing; one past its time, as after a sleep of the host, is renewed
    /// first, which only its owner can.
    ///
    /// # Errors
    /// What the store said; the turn is stopped then.
    pub(crate) async fn check_lease(&self) -> Result<(), StoreError> {
        let now_ms = self.engine.clock.now_ms();
        if now_ms < self.lease.until_ms() {
            return Ok(());
        }
        let ttl_ms = self.engine.settings.lease_ttl_ms;
        let renewed = self.engine.store.renew(&self.fence, ttl_ms).await;
        match &renewed {
            Ok(()) => self.lease.renewed(now_ms, ttl_ms),
            Err(_) => self.stop.stop(Cause::LeaseLost, Interrupt::Hard),
        }
        renewed
    }
}

fn clamp(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
