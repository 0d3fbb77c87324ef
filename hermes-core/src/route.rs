//! The routes of an engine: the model that people chose, and those that stand in for it.
//!
//! A turn begins on the first route that is not cooling down, and moves to a later one when its own gives no answer. It
//! never moves back, so that each route is tried at most once between two answers and nothing plays ping-pong. Which
//! route answers is no property of the session: the next turn begins with the chosen one again.

use hermes_providers::ErrorClass;

use crate::limits::{COOLDOWN_BASE_MS, COOLDOWN_MAX_MS};

/// What is known of one route.
#[derive(Debug, Clone, Copy, Default)]
struct Health {
    /// Not asked before this time, in milliseconds of the engine's clock.
    cools_until_ms: i64,
    /// Cooldowns in a row, without an answer in between.
    cooldowns: u32,
}

/// The health of all routes, by their place: 0 is the chosen model.
#[derive(Debug)]
pub(crate) struct Routes(Vec<Health>);

impl Routes {
    pub(crate) fn new(count: usize) -> Self {
        Self(vec![Health::default(); count])
    }

    /// The route that a turn begins on.
    pub(crate) fn first(&self, now_ms: i64) -> usize {
        self.after(None, now_ms).unwrap_or(0)
    }

    /// The route behind `current` that is to be asked next: one that is not cooling down, else none. There is no use in
    /// asking one that said a minute ago that it has nothing left.
    pub(crate) fn next(&self, current: usize, now_ms: i64) -> Option<usize> {
        self.after(Some(current), now_ms)
    }

    fn after(&self, current: Option<usize>, now_ms: i64) -> Option<usize> {
        let from = current.map_or(0, |current| current + 1);
        (from..self.0.len()).find(|route| self.0.get(*route).is_some_and(|health| health.cools_until_ms <= now_ms))
    }

    /// Whether a route is cooling down.
    pub(crate) fn rests(&self, route: usize, now_ms: i64) -> bool {
        self.0.get(route).is_some_and(|health| health.cools_until_ms > now_ms)
    }

    /// A route was left. One whose provider has had enough of us rests: as long as it said, else longer each time.
    pub(crate) fn left(&mut self, route: usize, class: ErrorClass, retry_after_ms: Option<u64>, now_ms: i64) {
        if !matches!(class, ErrorClass::RateLimit | ErrorClass::UpstreamRateLimit | ErrorClass::Billing) {
            return;
        }
        let Some(health) = self.0.get_mut(route) else { return };
        let doubled = COOLDOWN_BASE_MS.saturating_mul(1 << health.cooldowns.min(16)).min(COOLDOWN_MAX_MS);
        let rest_ms = retry_after_ms.unwrap_or(doubled).min(COOLDOWN_MAX_MS);
        health.cools_until_ms = now_ms.saturating_add(i64::try_from(rest_ms).unwrap_or(i64::MAX));
        health.cooldowns = health.cooldowns.saturating_add(1);
    }

    /// A route gave an answer.
    pub(crate) fn answered(&mut self, route: usize) {
        if let Some(health) = self.0.get_mut(route) {
            *health = Health::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_begins_on_the_first_route_that_does_not_rest_and_never_moves_back() {
        let mut routes = Routes::new(3);
        assert_eq!((routes.first(0), routes.next(0, 0), routes.next(2, 0)), (0, Some(1), None));
        routes.left(0, ErrorClass::RateLimit, None, 0);
        assert_eq!((routes.first(0), routes.next(1, 0)), (1, Some(2)));
        routes.left(1, ErrorClass::Billing, None, 0);
        assert_eq!((routes.first(0), routes.next(0, 0)), (2, Some(2)));
        assert_eq!(routes.first(i64::try_from(COOLDOWN_BASE_MS).unwrap()), 0, "the chosen one comes back by itself");
        routes.left(2, ErrorClass::RateLimit, None, 0);
        assert_eq!((routes.first(0), routes.next(0, 0)), (0, None), "when all rest, the chosen one is asked");
    }

    #[test]
    fn e45_a_provider_s_own_time_is_its_rest_and_else_each_rest_is_longer() {
        let mut routes = Routes::new(2);
        routes.left(0, ErrorClass::RateLimit, Some(5_000), 0);
        assert_eq!((routes.first(4_999), routes.first(5_000)), (1, 0));
        let mut now_ms = 5_000;
        for factor in [2, 4, 8] {
            routes.left(0, ErrorClass::RateLimit, None, now_ms);
            let rest_ms = i64::try_from(COOLDOWN_BASE_MS).unwrap() * factor;
            assert_eq!((routes.first(now_ms + rest_ms - 1), routes.first(now_ms + rest_ms)), (1, 0));
            now_ms += rest_ms;
        }
        for _ in 0..40 {
            routes.left(0, ErrorClass::Billing, None, now_ms);
        }
        assert_eq!(routes.first(now_ms + i64::try_from(COOLDOWN_MAX_MS).unwrap()), 0, "the rest has an end");
        routes.answered(0);
        assert_eq!(routes.first(now_ms), 0);
    }

    #[test]
    fn a_failure_that_a_rest_does_not_mend_starts_none() {
        let mut routes = Routes::new(2);
        for class in [ErrorClass::Auth, ErrorClass::ServerError, ErrorClass::ModelNotFound, ErrorClass::Timeout] {
            routes.left(0, class, Some(9_000), 0);
        }
        assert_eq!(routes.first(0), 0);
    }
}
