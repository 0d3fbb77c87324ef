//! What to do after a failed request: a pure decision over the class of the failure.

use hermes_providers::{ErrorClass, ProviderError};
use hermes_store::PromptHash;

use crate::end::EndReason;
use crate::limits::{
    BACKOFF_BASE_MS, BACKOFF_CAP_MS, KEY_ROTATIONS_MAX, OUTPUT_CAP_MARGIN_TOKENS, OVERLOAD_ATTEMPTS, RETRY_AFTER_CAP_MS,
};

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Wait, then ask again.
    Retry {
        /// Milliseconds.
        wait_ms: u64,
    },
    /// Ask again at once: another key is ready, or the one that was refused can be renewed.
    Rotate,
    /// Ask again with at most this many output tokens; at most once.
    LowerOutput {
        /// Tokens.
        max_output_tokens: u64,
    },
    /// Ask again without the opaque state of earlier answers; at most once.
    WithoutSidecars,
    /// Let another model stand in; when there is none after all, give up for this reason.
    FallBack(EndReason),
    /// Give up for this reason.
    End(EndReason),
}

/// What is known when the decision is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    /// The attempt that failed, from 1.
    pub number: u32,
    /// Most attempts.
    pub max: u32,
    /// Times that another key was asked with since the last attempt that counts, or since the request began.
    pub rotations: u32,
    /// Whether the output cap was lowered before.
    pub output_lowered: bool,
    /// Whether there is opaque state that was not left out before.
    pub has_sidecars: bool,
    /// Whether another route may be asked.
    pub may_fall_back: bool,
    /// 0 to 1,000: what part of the random half of a wait is taken.
    pub jitter_permille: u64,
}

/// Decides. A model that cannot answer at all is left at once; one that is only tired of us is not waited for while
/// another is there; one that is overloaded gets a second try; the others are left when their tries are used up. Another
/// key of the same provider comes before all of that, and has a bound of its own: it costs none of the attempts (B56).
pub(crate) fn decide(error: &ProviderError, attempt: Attempt) -> Decision {
    if error.another_key && attempt.rotations < KEY_ROTATIONS_MAX {
        return Decision::Rotate;
    }
    let give_up = match error.class {
        ErrorClass::Auth => return attempt.leave(EndReason::AuthFailed),
        ErrorClass::Billing => return attempt.leave(EndReason::BillingFailed),
        ErrorClass::ModelNotFound => return attempt.leave(EndReason::ModelNotFound),
        ErrorClass::ContentPolicy => return attempt.leave(EndReason::ContentBlocked),
        ErrorClass::SidecarRefused if attempt.has_sidecars => return Decision::WithoutSidecars,
        ErrorClass::BadRequest | ErrorClass::SidecarRefused | ErrorClass::Blocked => {
            return attempt.leave(EndReason::RequestRefused);
        }
        ErrorClass::Certificate | ErrorClass::Configuration => return attempt.leave(EndReason::Misconfigured),
        // The history is to be shortened, whoever is asked.
        ErrorClass::ContextOverflow | ErrorClass::PayloadTooLarge => {
            return Decision::End(EndReason::ContextOverflow);
        }
        // The same answer would be as large again.
        ErrorClass::Limit => return Decision::End(EndReason::OutputTruncated),
        ErrorClass::OutputCap => {
            // The input may be as long as it is: nothing of it is taken away on a guess.
            let Some(limit) = error.output_limit else { return attempt.leave(EndReason::RequestRefused) };
            // Providers count a few tokens more than they say: a cap of exactly what is there is refused again.
            let below = limit.saturating_sub(OUTPUT_CAP_MARGIN_TOKENS);
            return if below > 0 && !attempt.output_lowered {
                Decision::LowerOutput { max_output_tokens: below }
            } else {
                Decision::End(EndReason::ContextOverflow)
            };
        }
        ErrorClass::EmptyResponse => EndReason::EmptyResponse,
        ErrorClass::RateLimit
        | ErrorClass::UpstreamRateLimit
        | ErrorClass::Overloaded
        | ErrorClass::ServerError
        | ErrorClass::Timeout
        | ErrorClass::Incomplete
        | ErrorClass::Unresponsive
        | ErrorClass::BadResponse => EndReason::RetriesExhausted,
    };
    let patience = match error.class {
        // Nothing was even sent: whoever else is there is asked at once (B60).
        ErrorClass::RateLimit | ErrorClass::UpstreamRateLimit | ErrorClass::Unresponsive => 1,
        ErrorClass::Overloaded | ErrorClass::Timeout => OVERLOAD_ATTEMPTS,
        _ => attempt.max,
    };
    if attempt.number >= attempt.max || (attempt.may_fall_back && attempt.number >= patience) {
        return attempt.leave(give_up);
    }
    match error.retry_after_ms {
        // Longer than anybody sits in front of a screen: say so now, do not sleep.
        Some(ms) if ms > RETRY_AFTER_CAP_MS => attempt.leave(EndReason::RetriesExhausted),
        Some(ms) => Decision::Retry { wait_ms: ms },
        None => Decision::Retry { wait_ms: backoff_ms(attempt.number, attempt.jitter_permille) },
    }
}

impl Attempt {
    /// To another route where there is one, else to the end.
    fn leave(self, reason: EndReason) -> Decision {
        if self.may_fall_back { Decision::FallBack(reason) } else { Decision::End(reason) }
    }
}

/// The wait after attempt `number` (from 1): base · 2^(n-1) up to the cap, and up to a half of it more.
pub(crate) fn backoff_ms(number: u32, jitter_permille: u64) -> u64 {
    let doubled = BACKOFF_BASE_MS.saturating_mul(1 << number.saturating_sub(1).min(16)).min(BACKOFF_CAP_MS);
    doubled + doubled * jitter_permille.min(1_000) / 2_000
}

/// A number from 0 to 1,000 that differs between seeds and attempts, and is the same for the same ones: a repeated
/// simulation waits as long. The seed is an id of who waits.
pub(crate) fn jitter(seed: &str, number: u32) -> u64 {
    let hash = PromptHash::of(format!("{seed}/{number}").as_bytes());
    hash.as_str().bytes().fold(0_u64, |sum, byte| (sum * 31 + u64::from(byte)) % 1_001)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(number: u32) -> Attempt {
        Attempt {
            number,
            max: 4,
            rotations: 0,
            output_lowered: false,
            has_sidecars: false,
            may_fall_back: false,
            jitter_permille: 0,
        }
    }

    #[test]
    fn every_class_has_the_stated_decision() {
        use EndReason as R;
        use ErrorClass as C;
        let table: &[(C, Option<R>, R)] = &[
            // class, end at the first attempt (None: retry), end at the last
            (C::Auth, Some(R::AuthFailed), R::AuthFailed),
            (C::Billing, Some(R::BillingFailed), R::BillingFailed),
            (C::RateLimit, None, R::RetriesExhausted),
            (C::UpstreamRateLimit, None, R::RetriesExhausted),
            (C::Overloaded, None, R::RetriesExhausted),
            (C::ServerError, None, R::RetriesExhausted),
            (C::Timeout, None, R::RetriesExhausted),
            (C::Incomplete, None, R::RetriesExhausted),
            (C::EmptyResponse, None, R::EmptyResponse),
            (C::ContextOverflow, Some(R::ContextOverflow), R::ContextOverflow),
            (C::OutputCap, Some(R::RequestRefused), R::RequestRefused),
            (C::PayloadTooLarge, Some(R::ContextOverflow), R::ContextOverflow),
            (C::ModelNotFound, Some(R::ModelNotFound), R::ModelNotFound),
            (C::ContentPolicy, Some(R::ContentBlocked), R::ContentBlocked),
            (C::BadRequest, Some(R::RequestRefused), R::RequestRefused),
            (C::SidecarRefused, Some(R::RequestRefused), R::RequestRefused),
            (C::Blocked, Some(R::RequestRefused), R::RequestRefused),
            (C::Certificate, Some(R::Misconfigured), R::Misconfigured),
            (C::BadResponse, None, R::RetriesExhausted),
            (C::Unresponsive, None, R::RetriesExhausted),
            (C::Limit, Some(R::OutputTruncated), R::OutputTruncated),
            (C::Configuration, Some(R::Misconfigured), R::Misconfigured),
        ];
        for (class, first, last) in table {
            let error = ProviderError::new(*class, "x");
            match (decide(&error, attempt(1)), first) {
                (Decision::End(reason), Some(want)) => assert_eq!(reason, *want, "{class:?}"),
                (Decision::Retry { .. }, None) => {}
                (other, _) => panic!("{class:?}: {other:?}"),
            }
            assert_eq!(decide(&error, attempt(4)), Decision::End(*last), "{class:?}");
        }
    }

    #[test]
    fn e45_a_provider_s_own_waiting_time_wins_and_a_hopeless_one_ends_the_turn() {
        let mut error = ProviderError::new(ErrorClass::RateLimit, "x");
        error.retry_after_ms = Some(7_000);
        assert_eq!(decide(&error, attempt(1)), Decision::Retry { wait_ms: 7_000 });
        error.retry_after_ms = Some(RETRY_AFTER_CAP_MS + 1);
        assert_eq!(decide(&error, attempt(1)), Decision::End(EndReason::RetriesExhausted));
    }

    #[test]
    fn b56_another_key_comes_first_costs_no_attempt_and_has_its_own_bound() {
        for class in [ErrorClass::RateLimit, ErrorClass::Auth, ErrorClass::Billing, ErrorClass::ModelNotFound] {
            let mut error = ProviderError::new(class, "x");
            error.another_key = true;
            for number in 1..=4 {
                let attempt = Attempt { may_fall_back: true, ..attempt(number) };
                assert_eq!(decide(&error, attempt), Decision::Rotate, "{class:?}");
                let spent = Attempt { rotations: KEY_ROTATIONS_MAX, ..attempt };
                assert_ne!(decide(&error, spent), Decision::Rotate, "{class:?}");
            }
        }
    }

    #[test]
    fn every_class_has_its_moment_for_another_route() {
        use ErrorClass as C;
        let table = [
            (C::Auth, Some(1)),
            (C::Billing, Some(1)),
            (C::ModelNotFound, Some(1)),
            (C::ContentPolicy, Some(1)),
            (C::BadRequest, Some(1)),
            (C::SidecarRefused, Some(1)),
            (C::Blocked, Some(1)),
            (C::Certificate, Some(1)),
            (C::Configuration, Some(1)),
            (C::OutputCap, Some(1)),
            (C::RateLimit, Some(1)),
            (C::UpstreamRateLimit, Some(1)),
            (C::Unresponsive, Some(1)),
            (C::Overloaded, Some(2)),
            (C::Timeout, Some(2)),
            (C::ServerError, Some(4)),
            (C::Incomplete, Some(4)),
            (C::BadResponse, Some(4)),
            (C::ContextOverflow, None),
            (C::PayloadTooLarge, None),
            (C::Limit, None),
        ];
        for (class, left_at) in table {
            let error = ProviderError::new(class, "x");
            let left = (1..=4).find(|number| {
                let attempt = Attempt { may_fall_back: true, ..attempt(*number) };
                matches!(decide(&error, attempt), Decision::FallBack(_))
            });
            assert_eq!(left, left_at, "{class:?}");
        }
    }

    #[test]
    fn jitter_is_the_same_for_the_same_seed_and_spreads_over_its_range() {
        let of = |seed: &str| (1..=200).map(|number| jitter(seed, number)).collect::<Vec<_>>();
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
        assert!(of("a").iter().all(|permille| *permille <= 1_000));
        for part in 0..4 {
            assert!(of("a").iter().any(|permille| permille / 251 == part), "a quarter of the range is never taken");
        }
    }

    #[test]
    fn waits_double_up_to_the_cap() {
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 60].map(|n| backoff_ms(n, 0)),
            [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
        );
        assert_eq!(backoff_ms(1, 1_000), 3_000);
    }

    #[test]
    fn b36_what_one_can_afford_is_asked_for_once() {
        let mut error = ProviderError::new(ErrorClass::OutputCap, "can only afford 1200");
        error.output_limit = Some(1_200);
        let Decision::LowerOutput { max_output_tokens } = decide(&error, attempt(1)) else { panic!("not lowered") };
        assert!((1..=1_200).contains(&max_output_tokens), "{max_output_tokens}");
        let again = Attempt { output_lowered: true, ..attempt(2) };
        assert!(matches!(decide(&error, again), Decision::End(_)));
        let plain = ProviderError::new(ErrorClass::Billing, "no money");
        assert_eq!(decide(&plain, attempt(1)), Decision::End(EndReason::BillingFailed));
    }

    #[test]
    fn b60_a_host_that_is_left_alone_is_waited_for_only_when_nobody_else_is_there() {
        let mut error = ProviderError::new(ErrorClass::Unresponsive, "x");
        error.retry_after_ms = Some(50_000);
        assert_eq!(decide(&error, attempt(1)), Decision::Retry { wait_ms: 50_000 });
        let other = Attempt { may_fall_back: true, ..attempt(1) };
        assert_eq!(decide(&error, other), Decision::FallBack(EndReason::RetriesExhausted));
    }

    #[test]
    fn e44_an_output_cap_is_lowered_once_and_below_what_is_there() {
        let mut error = ProviderError::new(ErrorClass::OutputCap, "x");
        error.output_limit = Some(1_000);
        assert_eq!(decide(&error, attempt(1)), Decision::LowerOutput { max_output_tokens: 936 });
        let again = Attempt { output_lowered: true, ..attempt(2) };
        assert_eq!(decide(&error, again), Decision::End(EndReason::ContextOverflow));
        error.output_limit = Some(OUTPUT_CAP_MARGIN_TOKENS);
        assert_eq!(decide(&error, attempt(1)), Decision::End(EndReason::ContextOverflow));
    }
}
