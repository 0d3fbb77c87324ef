//! Leaves a host alone that gives no answer again and again (B60).
//!
//! Only attempts that a clock ended count: a host that answers, with whatever error, is there. After a while one attempt
//! is let through; its answer closes the breaker, its silence opens it for twice as long.

use std::time::Duration;

use tokio::time::Instant;

/// Attempts in a row without an answer after which a host is left alone.
pub const BREAKER_STALE_ATTEMPTS: u32 = 5;
/// For how long at first.
pub const BREAKER_OPEN_MS: u64 = 60_000;
/// And at most.
pub const BREAKER_OPEN_MAX_MS: u64 = 600_000;
const _: () = assert!(BREAKER_OPEN_MS <= BREAKER_OPEN_MAX_MS);

/// The breaker of one host.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// Attempts in a row that ended without an answer.
    stale: u32,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    span: Duration,
    /// An attempt was let through.
    trying: bool,
}

impl Breaker {
    /// Whether an attempt may be made now; else how long the host is still left alone.
    pub(super) fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if now < open.until {
            return Err(open.until - now);
        }
        // This one tries; when it is given up without an end, the next one may after the same time.
        open.until = now + open.span;
        open.trying = true;
        Ok(())
    }

    /// The host answered.
    pub(super) fn answered(&mut self) {
        *self = Self::default();
    }

    /// A clock ran out.
    pub(super) fn stale(&mut self, now: Instant) {
        let Some(open) = &mut self.open else {
            self.stale += 1;
            if self.stale >= BREAKER_STALE_ATTEMPTS {
                let span = Duration::from_millis(BREAKER_OPEN_MS);
                self.open = Some(Open { until: now + span, span, trying: false });
            }
            return;
        };
        // Attempts that were on their way when it opened say nothing new.
        if std::mem::take(&mut open.trying) {
            open.span = (open.span * 2).min(Duration::from_millis(BREAKER_OPEN_MAX_MS));
            open.until = now + open.span;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Duration = Duration::from_millis(BREAKER_OPEN_MS);

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..BREAKER_STALE_ATTEMPTS {
            assert_eq!(breaker.admit(now), Ok(()));
            breaker.stale(now);
        }
        breaker
    }

    #[test]
    fn b60_five_in_a_row_open_it_and_an_answer_in_between_does_not() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for _ in 0..3 {
            for _ in 1..BREAKER_STALE_ATTEMPTS {
                breaker.stale(now);
            }
            assert_eq!(breaker.admit(now), Ok(()));
            breaker.answered();
        }
        assert_eq!(opened(now).admit(now), Err(OPEN));
    }

    #[test]
    fn b60_one_attempt_is_let_through_and_its_answer_closes_it() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let later = now + OPEN;
        assert_eq!(breaker.admit(later), Ok(()));
        assert_eq!(breaker.admit(later), Err(OPEN), "one at a time");
        breaker.answered();
        assert_eq!((breaker.admit(later), breaker.admit(later)), (Ok(()), Ok(())));
    }

    #[test]
    fn b60_silence_of_that_attempt_doubles_the_time_up_to_the_cap() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        let mut spans = Vec::new();
        for _ in 0..5 {
            let left = breaker.admit(now).unwrap_err();
            spans.push(left.as_secs());
            now += left;
            assert_eq!(breaker.admit(now), Ok(()));
            breaker.stale(now);
            breaker.stale(now);
        }
        assert_eq!(spans, [60, 120, 240, 480, 600], "late ones do not count");
    }

    #[test]
    fn an_attempt_that_was_given_up_does_not_keep_it_open_for_ever() {
        let now = Instant::now();
        let mut breaker = opened(now);
        assert_eq!(breaker.admit(now + OPEN), Ok(()));
        assert_eq!(breaker.admit(now + OPEN + OPEN), Ok(()));
    }
}
