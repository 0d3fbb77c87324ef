//! Writes that are repeated: a COMMIT whose answer was lost, a transaction that the database asks to run again, and one
//! that did not reach a server that is being restarted.
//!
//! Every write of a turn carries ids that its writer minted, so that the store recognises a repetition and changes
//! nothing (I17). Whoever repeats never has to read back first. What is refused for another reason is refused at once.

use hermes_store::StoreError;

use crate::limits::{WRITE_REPEAT_WAIT_MS, WRITE_REPEATS_MAX};
use crate::seams::Clock;

/// Runs `write`, and again while the store says that it may be repeated.
pub(crate) async fn persist<T, F>(clock: &dyn Clock, mut write: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut repeats = 0;
    loop {
        let error = match write().await {
            Ok(done) => return Ok(done),
            Err(error) if may_repeat(&error) => error,
            Err(error) => return Err(error),
        };
        if repeats >= WRITE_REPEATS_MAX {
            return Err(error);
        }
        tracing::debug!(code = error.code(), "a write is repeated: {error}");
        clock.sleep(WRITE_REPEAT_WAIT_MS << repeats).await;
        repeats += 1;
    }
}

/// A lost COMMIT is recognised by its ids; a transaction that was rolled back, or that never reached the server, changed
/// nothing.
fn may_repeat(error: &StoreError) -> bool {
    matches!(error, StoreError::CommitUnknown | StoreError::Retryable { .. } | StoreError::Unavailable { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use std::cell::Cell;

    struct NoTime;

    impl Clock for NoTime {
        fn now_ms(&self) -> i64 {
            0
        }

        fn sleep(&self, _ms: u64) -> BoxFuture<'static, ()> {
            futures::future::ready(()).boxed()
        }
    }

    fn run(errors: u32, make: fn() -> StoreError) -> (Result<(), StoreError>, u32) {
        let tries = Cell::new(0);
        let done = persist(&NoTime, || {
            tries.set(tries.get() + 1);
            let done = if tries.get() > errors { Ok(()) } else { Err(make()) };
            futures::future::ready(done)
        });
        (done.now_or_never().unwrap(), tries.get())
    }

    #[test]
    fn what_may_be_repeated_is_repeated_within_its_limit() {
        assert!(matches!(run(2, || StoreError::CommitUnknown), (Ok(()), 3)));
        assert!(matches!(run(1, || StoreError::Retryable { detail: String::new() }), (Ok(()), 2)));
        let most = WRITE_REPEATS_MAX + 1;
        assert!(
            matches!(run(99, || StoreError::CommitUnknown), (Err(StoreError::CommitUnknown), tries) if tries == most)
        );
        assert!(matches!(run(1, || StoreError::Full), (Err(StoreError::Full), 1)));
    }
}
