//! How long compressing is left alone after a failure (engine reference, 7.5).
//!
//! The store keeps the time with the session and never shortens it, so that a restart does not forget that a summary
//! model is down. Whatever failed, nothing was lost: the history is as it was.

use hermes_providers::ErrorClass;

use super::CompactError;

/// Waits after time-outs, overloads and answers that are no summary, by how often it failed in this turn.
const SLOW_MS: [u64; 3] = [60_000, 300_000, 900_000];
/// Wait after a lost connection or an answer that cannot be read.
const BROKEN_MS: u64 = 30_000;
/// Wait when the model refuses the key, the money or the request.
const HOPELESS_MS: u64 = 600_000;
/// Wait when a compression would bring nothing.
const NOTHING_MS: u64 = 300_000;

/// The wait after `error`; it is the `failures`-th one in a row (from 1).
pub(crate) fn cooldown_ms(error: &CompactError, failures: u32) -> u64 {
    let step = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX).min(SLOW_MS.len() - 1);
    match error {
        CompactError::Nothing | CompactError::Refused(_) => NOTHING_MS,
        CompactError::NotASummary(_) => SLOW_MS[step],
        CompactError::Model(error) => match error.class {
            ErrorClass::Timeout
            | ErrorClass::RateLimit
            | ErrorClass::UpstreamRateLimit
            | ErrorClass::Overloaded
            | ErrorClass::Unresponsive
            | ErrorClass::ServerError => SLOW_MS[step].max(error.retry_after_ms.unwrap_or(0)),
            ErrorClass::Incomplete | ErrorClass::BadResponse | ErrorClass::EmptyResponse => BROKEN_MS,
            _ => HOPELESS_MS,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hermes_providers::ProviderError;

    #[test]
    fn e37_a_failure_sets_a_cooldown_that_grows() {
        let of = |class| CompactError::Model(ProviderError::new(class, "x"));
        assert_eq!([1, 2, 3, 9].map(|n| cooldown_ms(&of(ErrorClass::Timeout), n)), [60_000, 300_000, 900_000, 900_000]);
        assert_eq!(cooldown_ms(&of(ErrorClass::Incomplete), 3), 30_000);
        assert_eq!(cooldown_ms(&of(ErrorClass::Auth), 1), 600_000);
        assert_eq!(cooldown_ms(&CompactError::Nothing, 1), 300_000);
    }

    #[test]
    fn no_cooldown_is_longer_than_the_store_keeps() {
        let most = hermes_store::limits::COMPRESSION_COOLDOWN_MAX_MS;
        assert!(SLOW_MS.iter().chain(&[BROKEN_MS, HOPELESS_MS, NOTHING_MS]).all(|ms| *ms <= most));
    }
}
