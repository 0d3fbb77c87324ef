//! Tests of the pool as tables: states, times, strategies, late answers.

use super::charge::{ENTITLEMENT_REST_MS, PROVIDER_REST_MAX_MS};
use super::*;
use crate::credential::{Next, Secret};
use crate::error::{ErrorClass, ProviderError};

const NOW: i64 = 1_800_000_000_000;

fn row(id: &str, key: &str) -> Row {
    Row { id: id.into(), label: format!("label {id}"), secret: Secret::key(key.into()), ..Row::default() }
}

fn pool(strategy: Strategy, scope: LimitScope, ids: &[&str]) -> Pool {
    let mut pool = Pool::new(strategy, scope);
    pool.replace(ids.iter().map(|id| row(id, &format!("key of {id}"))).collect());
    pool
}

fn two() -> Pool {
    pool(Strategy::FillFirst, LimitScope::Row, &["a", "b"])
}

fn blame(class: ErrorClass, status: u16, code: Option<&str>, retry_after_ms: Option<u64>) -> Blame {
    let mut error = ProviderError::new(class, "the provider's words");
    error.status = Some(status);
    error.code = code.map(str::to_owned);
    error.retry_after_ms = retry_after_ms;
    Blame::of(&error)
}

fn limit() -> Blame {
    blame(ErrorClass::RateLimit, 429, None, None)
}

/// Takes a row, gives it back and tells which it was.
fn turn(pool: &mut Pool, now: i64, dice: u64) -> String {
    let taken = pool.take(now, "m", dice).unwrap();
    pool.release(&taken.ticket);
    taken.ticket.row
}

#[test]
fn every_error_rests_the_row_as_long_as_the_reference_says() {
    use ErrorClass as C;
    const S: i64 = 1_000;
    // class, status, code, the provider's own time; then the rest of one of several and of the only row, in ms.
    type Case = (C, u16, Option<&'static str>, Option<u64>, Option<i64>, Option<i64>);
    let table: &[Case] = &[
        (C::Auth, 401, None, None, Some(300 * S), Some(60 * S)),
        (C::Auth, 403, None, None, Some(3_600 * S), Some(60 * S)),
        (C::Billing, 402, None, None, Some(3_600 * S), Some(3_600 * S)),
        (C::Billing, 429, Some("insufficient_quota"), None, Some(3_600 * S), Some(3_600 * S)),
        (C::RateLimit, 429, None, Some(7_000), Some(7 * S), Some(7 * S)),
        (C::RateLimit, 429, None, Some(86_400_000), Some(86_400 * S), Some(86_400 * S)),
        (C::RateLimit, 429, None, Some(u64::MAX), Some(PROVIDER_REST_MAX_MS), Some(PROVIDER_REST_MAX_MS)),
        // The first one in a row without a time: the others go first.
        (C::RateLimit, 429, None, None, Some(5 * S), None),
        (C::ModelNotFound, 403, None, None, Some(ENTITLEMENT_REST_MS), None),
        (C::ModelNotFound, 404, None, None, None, None),
        (C::UpstreamRateLimit, 429, None, Some(9_000), None, None),
        (C::Overloaded, 503, None, Some(9_000), None, None),
        (C::ServerError, 500, None, None, None, None),
        (C::Timeout, 408, None, None, None, None),
        (C::Blocked, 403, None, None, None, None),
        (C::BadRequest, 400, None, None, None, None),
        (C::ContextOverflow, 400, None, None, None, None),
    ];
    for (class, status, code, after, several, sole) in table {
        for (ids, want) in [(&["a", "b"][..], several), (&["a"][..], sole)] {
            let mut pool = pool(Strategy::FillFirst, LimitScope::Row, ids);
            let taken = pool.take(NOW, "m", 0).unwrap();
            let next = pool.charge(NOW, &taken.ticket, "m", &blame(*class, *status, *code, *after));
            let rest = pool.rows()[0].health.rest_for("m", NOW).map(|rest| rest.until_ms - NOW);
            assert_eq!(rest, *want, "{class:?} {status} {ids:?}");
            let rotates = ids.len() > 1 && several.is_some();
            assert_eq!(next == Next::Another, rotates, "{class:?} {status} {ids:?}");
        }
    }
}

#[test]
fn b39_an_error_that_is_not_the_key_s_changes_nothing() {
    let mut pool = two();
    let taken = pool.take(NOW, "m", 0).unwrap();
    pool.charge(NOW, &taken.ticket, "m", &blame(ErrorClass::Blocked, 403, None, None));
    assert_eq!((pool.changes(), pool.rows()[0].health.status), (0, Status::Ok));
}

#[test]
fn a_second_limit_in_a_row_rests_for_an_hour_and_an_answer_between_forgives() {
    let mut pool = two();
    let mut now = NOW;
    let rest = |pool: &mut Pool, now: i64| {
        let taken = pool.take(now, "m", 0).unwrap();
        assert_eq!(taken.ticket.row, "a");
        pool.charge(now, &taken.ticket, "m", &limit());
        pool.release(&taken.ticket);
        pool.rows()[0].health.rest_for("m", now).unwrap().until_ms - now
    };
    assert_eq!(rest(&mut pool, now), 5_000);
    now += 5_000;
    let taken = pool.take(now, "m", 0).unwrap();
    pool.answered(&taken.ticket);
    pool.release(&taken.ticket);
    assert_eq!(rest(&mut pool, now), 5_000);
    now += 5_000;
    assert_eq!(rest(&mut pool, now), 3_600_000);
}

#[test]
fn a_burst_of_refused_requests_is_one_limit() {
    let mut pool = pool(Strategy::FillFirst, LimitScope::Row, &["a"]);
    let burst: Vec<Taken> = (0..5).map(|_| pool.take(NOW, "m", 0).unwrap()).collect();
    for taken in &burst {
        pool.charge(NOW, &taken.ticket, "m", &blame(ErrorClass::RateLimit, 429, None, Some(100)));
    }
    assert_eq!(pool.rows()[0].health.limits, 1);
}

#[test]
fn b47_a_late_limit_is_charged_to_the_key_that_was_used() {
    let mut pool = two();
    let late = pool.take(NOW, "m", 0).unwrap();
    pool.charge(NOW, &late.ticket, "m", &blame(ErrorClass::RateLimit, 429, None, Some(1_000)));
    assert_eq!(turn(&mut pool, NOW, 0), "b");
    pool.charge(NOW, &late.ticket, "m", &blame(ErrorClass::RateLimit, 429, None, Some(60_000)));
    assert!(pool.rows()[1].health.rest_for("m", NOW).is_none());
    assert_eq!(pool.rows()[0].health.rest_for("m", NOW).unwrap().until_ms, NOW + 60_000);
    // The secret was replaced meanwhile: the answer to the old one says nothing of the new one.
    pool.replace(vec![row("a", "another key"), row("b", "key of b")]);
    pool.charge(NOW, &late.ticket, "m", &blame(ErrorClass::Auth, 401, Some("token_revoked"), None));
    assert_eq!(pool.rows()[0].health.status, Status::Ok);
}

#[test]
fn b48_a_replaced_secret_has_no_rest_and_an_unchanged_one_keeps_it() {
    let mut pool = two();
    for id in ["a", "b"] {
        let taken = pool.take(NOW, "m", 0).unwrap();
        assert_eq!(taken.ticket.row, id);
        pool.charge(NOW, &taken.ticket, "m", &blame(ErrorClass::Billing, 402, None, None));
    }
    pool.replace(vec![row("a", "a new key"), row("b", "key of b")]);
    assert_eq!(turn(&mut pool, NOW, 0), "a");
    assert!(matches!(pool.rows()[1].health.status, Status::Exhausted(_)));
}

#[test]
fn b49_when_all_rest_the_earliest_time_is_told_and_dead_rows_do_not_count() {
    let mut pool = pool(Strategy::FillFirst, LimitScope::Row, &["a", "b", "c"]);
    let charges = [
        blame(ErrorClass::RateLimit, 429, None, Some(90_000)),
        blame(ErrorClass::RateLimit, 429, None, Some(30_000)),
        blame(ErrorClass::Auth, 401, Some("token_revoked"), None),
    ];
    for charge in &charges {
        let taken = pool.take(NOW, "m", 0).unwrap();
        pool.charge(NOW, &taken.ticket, "m", charge);
    }
    let told = NoneFree::Resting { until_ms: NOW + 30_000, label: "label b".into(), reason: RestReason::Limit };
    assert_eq!(pool.take(NOW, "m", 0), Err(told));
    assert_eq!(turn(&mut pool, NOW + 30_000, 0), "b");
    assert_eq!(Pool::default().take(NOW, "m", 0), Err(NoneFree::Empty));
}

#[test]
fn b44_a_dead_row_is_never_chosen_until_its_secret_is_another() {
    let mut pool = pool(Strategy::FillFirst, LimitScope::Row, &["a"]);
    let taken = pool.take(NOW, "m", 0).unwrap();
    pool.charge(NOW, &taken.ticket, "m", &blame(ErrorClass::Auth, 401, Some("token_revoked"), None));
    let never = i64::MAX - 1;
    assert!(matches!(pool.take(never, "m", 0), Err(NoneFree::Dead { why, .. }) if why == "the provider's words"));
    pool.replace(vec![row("a", "key of a")]);
    assert!(pool.take(never, "m", 0).is_err(), "the same secret is still dead");
    pool.replace(vec![row("a", "a new login")]);
    assert!(pool.take(NOW, "m", 0).is_ok());
}

#[test]
fn a_limit_of_one_model_leaves_the_others_of_the_row() {
    let mut pool = pool(Strategy::FillFirst, LimitScope::Model, &["a", "b"]);
    let taken = pool.take(NOW, "big", 0).unwrap();
    pool.charge(NOW, &taken.ticket, "big", &blame(ErrorClass::RateLimit, 429, None, Some(60_000)));
    pool.release(&taken.ticket);
    assert_eq!(pool.take(NOW, "small", 0).unwrap().ticket.row, "a");
    assert_eq!(pool.take(NOW, "big", 0).unwrap().ticket.row, "b");
}

#[test]
fn b46_a_refused_token_is_renewed_once_and_then_rests() {
    let token = |key: &str| Row { renewable: true, ..row("a", key) };
    let mut pool = Pool::new(Strategy::FillFirst, LimitScope::Row);
    pool.replace(vec![token("old"), row("b", "key of b")]);
    let refused = blame(ErrorClass::Auth, 401, Some("invalid_token"), None);
    let first = pool.take(NOW, "m", 0).unwrap();
    assert!(!first.needs_renewal);
    assert_eq!(pool.charge(NOW, &first.ticket, "m", &refused), Next::Another);
    pool.release(&first.ticket);
    let second = pool.take(NOW, "m", 0).unwrap();
    assert!(second.needs_renewal && second.ticket.row == "a");
    pool.release(&second.ticket);
    pool.replace(vec![token("new"), row("b", "key of b")]);
    let third = pool.take(NOW, "m", 0).unwrap();
    assert!(!third.needs_renewal && third.ticket.row == "a");
    assert_eq!(pool.charge(NOW, &third.ticket, "m", &refused), Next::Another);
    pool.release(&third.ticket);
    assert_eq!(pool.rows()[0].health.rest_for("m", NOW).unwrap().until_ms, NOW + 300_000);
    assert_eq!(turn(&mut pool, NOW, 0), "b");
    // An answer makes the next refusal a first one again.
    pool.replace(vec![token("newer"), row("b", "key of b")]);
    let fourth = pool.take(NOW + 300_000, "m", 0).unwrap();
    pool.answered(&fourth.ticket);
    pool.charge(NOW + 300_000, &fourth.ticket, "m", &refused);
    assert!(pool.rows()[0].needs_renewal(NOW + 300_000));
}

#[test]
fn a_token_is_renewed_a_while_before_it_ends() {
    let mut pool = Pool::new(Strategy::FillFirst, LimitScope::Row);
    pool.replace(vec![Row { renewable: true, renew_at_ms: Some(NOW), ..row("a", "token") }]);
    assert!(!pool.take(NOW - 1, "m", 0).unwrap().needs_renewal);
    assert!(pool.take(NOW, "m", 0).unwrap().needs_renewal);
}

#[test]
fn rows_with_the_same_secret_are_charged_together() {
    let mut pool = Pool::new(Strategy::FillFirst, LimitScope::Row);
    pool.replace(vec![row("a", "one key"), row("b", "one key"), row("c", "another")]);
    let taken = pool.take(NOW, "m", 0).unwrap();
    assert_eq!(pool.charge(NOW, &taken.ticket, "m", &limit()), Next::Another);
    assert_eq!(turn(&mut pool, NOW, 0), "c");
}

#[test]
fn strategies_choose_as_they_are_called() {
    let order = |strategy, dice: &[u64]| {
        let mut pool = pool(strategy, LimitScope::Row, &["a", "b", "c"]);
        dice.iter().map(|dice| turn(&mut pool, NOW, *dice)).collect::<String>()
    };
    assert_eq!(order(Strategy::FillFirst, &[0; 4]), "aaaa");
    assert_eq!(order(Strategy::RoundRobin, &[0; 5]), "abcab");
    assert_eq!(order(Strategy::Random, &[2, 0, 1, 5]), "cabc");
    assert_eq!(order(Strategy::LeastUsed, &[0; 5]), "abcab");
    for name in Strategy::NAMES {
        assert!(Strategy::named(name).is_some(), "{name}");
    }
    assert_eq!(Strategy::named("other"), None);
}

#[test]
fn a_row_in_use_gives_way_to_one_that_is_not_and_nobody_waits() {
    let mut pool = two();
    let rows: Vec<String> = (0..3).map(|_| pool.take(NOW, "m", 0).unwrap().ticket.row).collect();
    assert_eq!(rows, ["a", "b", "a"]);
    assert_eq!(pool.rows()[0].leases, 2);
}

#[test]
fn priority_goes_before_the_order_of_ids() {
    let mut pool = Pool::new(Strategy::FillFirst, LimitScope::Row);
    pool.replace(vec![Row { priority: 2, ..row("a", "1") }, Row { priority: 1, ..row("z", "2") }]);
    assert_eq!(turn(&mut pool, NOW, 0), "z");
}

#[test]
fn a_ticket_s_id_is_read_as_it_was_written_and_names_no_secret() {
    let ticket = TicketId { row: "env:A/B".into(), fingerprint: row("a", "marked").fingerprint(), number: 7 };
    let text = ticket.to_string();
    assert_eq!(TicketId::parse(&text), Some(ticket));
    assert!(!text.contains("marked"));
    assert_eq!(TicketId::parse("x"), None);
}
