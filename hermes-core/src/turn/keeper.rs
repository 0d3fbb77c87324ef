//! The lease keeper: renews the lease while the turn works, and stops the turn when the lease or its time is gone.

use std::convert::Infallible;

use hermes_store::{Fence, StoreError};

use crate::engine::Inner;
use crate::stop::{Cause, Interrupt, StopSignal};

/// Renews until it is dropped. A lost lease and a passed deadline stop the turn; the keeper then only waits.
pub(crate) async fn keep(engine: &Inner, fence: Fence, stop: StopSignal, deadline_ms: Option<i64>) -> Infallible {
    let settings = &engine.settings;
    let begun_ms = engine.clock.now_ms();
    let mut good_until_ms = begun_ms.saturating_add(clamp(settings.lease_ttl_ms));
    let mut next_renewal_ms = begun_ms.saturating_add(clamp(settings.lease_refresh_ms));
    loop {
        let now = engine.clock.now_ms();
        let mut wake_ms = next_renewal_ms;
        if let Some(deadline) = deadline_ms.filter(|_| stop.cause().is_none()) {
            if now >= deadline {
                stop.stop(Cause::Deadline, Interrupt::Hard);
                continue;
            }
            wake_ms = wake_ms.min(deadline);
        }
        if now < wake_ms {
            engine.clock.sleep(u64::try_from(wake_ms - now).unwrap_or(1)).await;
            continue;
        }
        match engine.store.renew(&fence, settings.lease_ttl_ms).await {
            Ok(()) => {
                good_until_ms = now.saturating_add(clamp(settings.lease_ttl_ms));
                next_renewal_ms = now.saturating_add(clamp(settings.lease_refresh_ms));
            }
            // A locked or unreachable database is borne as long as the lease still stands with a refresh to spare.
            Err(error) if !matches!(error, StoreError::Fenced { .. }) && engine.clock.now_ms() < good_until_ms => {
                tracing::warn!(code = error.code(), "the lease could not be renewed: {error}");
                next_renewal_ms = engine.clock.now_ms().saturating_add(clamp(settings.lease_refresh_ms / 10 + 1));
            }
            Err(error) => {
                tracing::warn!(code = error.code(), "the lease is lost: {error}");
                stop.stop(Cause::LeaseLost, Interrupt::Hard);
                return futures::future::pending().await;
            }
        }
    }
}

fn clamp(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
