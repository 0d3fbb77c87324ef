//! Ownership: one owner at a time, and what a lost one may still do, which is nothing.

use std::sync::Arc;

use super::{
    START_MS, TTL_MS, World, call, call_id, completed, conv, end, input, is_fenced, is_invalid, is_not_found,
    new_conversation, ok, owner, session, text, turn_id, usage,
};
use crate::limits::{HEARTBEAT_DEAD_MS, HEARTBEAT_MS};
use crate::{
    AdmissionOutcome, AdmissionStatus, ChangeId, ClaimOutcome, ClaimPolicy, ClaimRequest, Compaction, CompressionLock,
    Fence, FlagChange, JournalState, NewAdmission, Rewind, Role, Rotation, Round, SessionId, TakeLock, TitleSource,
    Token, TurnId, TurnStatus, View, ViewRow,
};

fn ms(limit: u64) -> i64 {
    i64::try_from(limit).unwrap()
}

/// Every method that takes a fence, with the fence of somebody who lost the lease. (Those of workers, delegations,
/// deliveries and approvals have cases of their own.)
async fn every_fenced_write_is_refused(w: &World, old: &Fence, turn: &TurnId, lock: &CompressionLock) {
    let s = &w.store;
    is_fenced(s.renew(old, TTL_MS).await);
    is_fenced(s.adopt_turn(old, turn).await);
    is_fenced(s.requeue(old, turn).await);
    is_fenced(s.settle_turn(old, turn, completed(), true).await);
    is_fenced(s.settle_turn(old, turn, completed(), false).await);
    is_fenced(s.lose_turn(old, turn).await);
    let new = session("c", Some("c"), "late-session");
    is_fenced(s.open_session(old, turn, new.clone(), vec![]).await);
    is_fenced(s.change_session(old, turn, new).await);
    is_fenced(s.append(old, turn, vec![text("late", Role::Assistant, "late")], Some(usage("late"))).await);
    is_fenced(s.append(old, turn, vec![], None).await);
    let round = Round::plan(turn.clone(), text("late", Role::Assistant, ""), vec![call("late")], Some(usage("late")));
    is_fenced(s.record_round(old, round).await);
    is_fenced(s.start_calls(old, turn, &[call_id("k")]).await);
    is_fenced(s.settle_call(old, turn, &call_id("k"), ok("late")).await);
    let make = |_: &[crate::AdmissionRecord]| vec![text("late", Role::User, "late")];
    is_fenced(s.take_steers(old, turn, &make).await);
    is_fenced(s.count_usage(old, usage("late")).await);
    is_fenced(s.set_title(old, "late", TitleSource::User).await);
    is_fenced(s.set_flags(old, FlagChange { pinned: Some(true), ..FlagChange::default() }).await);
    is_fenced(s.end_conversation(old, "late").await);
    is_fenced(s.add_alias(old, &SessionId::parse("late-alias").unwrap()).await);
    is_fenced(s.delete_conversation(old).await);
    every_fenced_change_of_history_is_refused(w, old, turn, lock).await;
    // The only one that is no error, and that must not free the new owner's lease.
    s.release(old).await.unwrap();
}

async fn every_fenced_change_of_history_is_refused(w: &World, old: &Fence, turn: &TurnId, lock: &CompressionLock) {
    let s = &w.store;
    let (id, mark) = (ChangeId::parse("late").unwrap(), w.mark("c").await);
    let rows = vec![ViewRow::New(text("late", Role::User, "s"))];
    let take = TakeLock { session: lock.session().clone(), holder: "late".to_owned(), ttl_ms: TTL_MS, force: true };
    is_fenced(s.take_compression_lock(old, take).await);
    is_fenced(s.renew_compression_lock(old, lock, TTL_MS).await);
    is_fenced(s.release_compression_lock(old, lock).await);
    is_fenced(s.fail_compression(old, lock, TTL_MS, "late").await);
    let child = session("c", Some("c"), "late-session");
    let (of, by) = (mark.clone(), turn.clone());
    is_fenced(s.rotate(old, lock, Rotation { id: id.clone(), turn: by, mark: of, child, rows: rows.clone() }).await);
    let (of, by) = (mark.clone(), turn.clone());
    is_fenced(s.compact(old, lock, Compaction { id: id.clone(), turn: by, mark: of, session: None, rows }).await);
    let from = w.rows("c", View::Model).await[0].id.clone();
    let rewind = Rewind { id: id.clone(), mark, from };
    is_fenced(s.retry(old, rewind.clone(), input("c", "again", "late")).await);
    is_fenced(s.rewind(old, rewind).await);
    is_fenced(s.restore(old, &id).await);
}

pub(super) async fn i07_s19_every_write_with_an_old_token_is_refused(w: &World) {
    let (old, turn, _) = w.begin("c", "a").await;
    w.round(&old, &turn, "round", vec![call("k")]).await;
    let lock = w.lock(&old, "me").await;
    w.admit(NewAdmission { intent: crate::Intent::Steer, ..input("c", "steer", "steer") }).await;
    w.clock.advance(ms(TTL_MS) + 1);
    let ClaimOutcome::Recover { fence, .. } = w.claim("c", "b").await else { panic!("not recovered") };
    let before = (w.everything("c").await, w.store.usage(&conv("c")).await.unwrap());
    every_fenced_write_is_refused(w, &old, &turn, &lock).await;
    let after = (w.everything("c").await, w.store.usage(&conv("c")).await.unwrap());
    assert_eq!(after, before, "nothing was written: no row, no column, no count");
    assert!(is_not_found(w.store.tip("late-alias").await));
    w.store.settle_call(&fence, &turn, &call_id("k"), ok("new owner")).await.unwrap();
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    // Nor after the new owner has left, nor when the turn it knew is over with the same reason.
    every_fenced_write_is_refused(w, &old, &turn, &lock).await;
}

pub(super) async fn i08_tokens_and_generations_only_grow(w: &World) {
    let (mut token, mut generation) = (Token(0), None);
    for number in 0..4 {
        w.admit(input("c", &format!("r{number}"), "x")).await;
        let (fence, turn, receipt) = w.start("c", "a").await;
        assert!(fence.token() > token && receipt.generation > generation);
        (token, generation) = (fence.token(), receipt.generation);
        w.store.settle_turn(&fence, &turn, completed(), number % 2 == 0).await.unwrap();
        w.store.release(&fence).await.unwrap();
        let lease = w.lease("c", "b").await;
        assert_eq!(lease.token(), Token(token.0 + 1), "a lease is one token");
        token = lease.token();
        w.store.release(&lease).await.unwrap();
    }
}

pub(super) async fn i09_s21_a_sleeper_that_wakes_changes_nothing(w: &World) {
    let (old, turn, _) = w.begin("c", "a").await;
    w.clock.advance(ms(TTL_MS) * 3);
    let other = w.another().await;
    let ClaimOutcome::Recover { fence, .. } = other.claim(w.request("c", "b", ClaimPolicy::Any)).await.unwrap() else {
        panic!("not recovered")
    };
    let answer = vec![text("answer", Role::Assistant, "of the sleeper")];
    is_fenced(w.store.append(&old, &turn, answer, None).await);
    // Its keeper is told too, and stops the turn.
    is_fenced(w.store.renew(&old, TTL_MS).await);
    other.adopt_turn(&fence, &turn).await.unwrap();
    other.append(&fence, &turn, vec![text("answer", Role::Assistant, "of the new owner")], None).await.unwrap();
    is_fenced(w.store.settle_turn(&old, &turn, completed(), true).await);
    other.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    let record = w.store.turn(&turn).await.unwrap();
    assert_eq!((record.attempt, record.status), (2, TurnStatus::Ended));
    assert_eq!(record.answer.unwrap().content, "of the new owner");
}

pub(super) async fn i10_a_proved_death_frees_the_lease_at_once(w: &World) {
    w.beat("a").await;
    w.begin("c", "a").await;
    assert!(matches!(w.claim("c", "b").await, ClaimOutcome::Held { .. }));
    w.probe.kill(&owner("a"));
    assert!(matches!(w.claim("c", "b").await, ClaimOutcome::Recover { .. }));
}

pub(super) async fn i10_a_silent_owner_is_replaced(w: &World) {
    w.beat("a").await;
    w.begin("c", "a").await;
    w.clock.advance(ms(HEARTBEAT_DEAD_MS));
    assert!(matches!(w.claim("c", "b").await, ClaimOutcome::Held { .. }));
    w.clock.advance(1);
    assert!(matches!(w.claim("c", "b").await, ClaimOutcome::Recover { .. }));
}

pub(super) async fn i10_a_live_owner_is_never_replaced(w: &World) {
    w.beat("a").await;
    let (fence, _, _) = w.begin("c", "a").await;
    for _ in 0..40 {
        w.clock.advance(ms(HEARTBEAT_MS));
        w.beat("a").await;
        w.store.renew(&fence, TTL_MS).await.unwrap();
        let held = w.claim("c", "b").await;
        assert!(matches!(&held, ClaimOutcome::Held { owner: who, .. } if *who == owner("a")), "{held:?}");
    }
    // One that never registered cannot be proved dead, and its lease ends by its time.
    w.begin("d", "unregistered").await;
    w.probe.kill(&owner("unregistered"));
    w.clock.advance(ms(TTL_MS) - 1);
    assert!(matches!(w.claim("d", "b").await, ClaimOutcome::Held { .. }));
    w.clock.advance(1);
    assert!(matches!(w.claim("d", "b").await, ClaimOutcome::Recover { .. }));
}

pub(super) async fn i10_a_retired_owner_leaves_nothing_behind(w: &World) {
    w.beat("a").await;
    let (fence, _, _) = w.begin("c", "a").await;
    w.store.retire(&owner("a")).await.unwrap();
    assert!(matches!(w.claim("c", "b").await, ClaimOutcome::Recover { .. }));
    is_fenced(w.store.renew(&fence, TTL_MS).await);
}

pub(super) async fn i11_a_released_lease_is_free_at_once(w: &World) {
    w.admit(input("c", "r1", "x")).await;
    let (fence, turn, _) = w.start("c", "a").await;
    let request = w.request("c", "a", ClaimPolicy::LeaseOnly);
    assert!(matches!(w.store.claim(request).await.unwrap(), ClaimOutcome::Held { .. }), "nobody waits for himself");
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    let lease = w.lease("c", "b").await;
    w.store.release(&lease).await.unwrap();
    w.store.release(&lease).await.unwrap();
    w.lease("c", "a").await;
    is_not_found(w.store.claim(w.request("none", "a", ClaimPolicy::Any)).await);
}

pub(super) async fn d3_a_clock_that_goes_back_lets_nobody_wait_for_hours(w: &World) {
    w.beat("a").await;
    let (fence, turn, _) = w.begin("c", "a").await;
    w.clock.advance(-2 * 3_600_000);
    let ClaimOutcome::Held { expires_at_ms, .. } = w.claim("c", "b").await else { panic!("robbed") };
    assert_eq!(expires_at_ms, START_MS - 2 * 3_600_000 + ms(TTL_MS));
    // The owner goes on as if nothing had happened.
    w.store.append(&fence, &turn, vec![text("on", Role::Assistant, "on")], None).await.unwrap();
    w.clock.advance(ms(HEARTBEAT_DEAD_MS));
    assert!(matches!(w.claim("c", "b").await, ClaimOutcome::Held { .. }));
    // Silent since the jump: replaced after the ordinary time.
    w.clock.advance(1);
    assert!(matches!(w.claim("c", "b").await, ClaimOutcome::Recover { .. }));
    is_fenced(w.store.append(&fence, &turn, vec![text("late", Role::Assistant, "late")], None).await);
}

pub(super) async fn s7_one_of_many_claimers_gets_the_input(w: &World) {
    w.admit(input("c", "r1", "x")).await;
    let mut claims = Vec::new();
    for number in 0..6 {
        let store: Arc<dyn crate::Store> = w.another().await;
        let request = w.request("c", &format!("w{number}"), ClaimPolicy::Any);
        claims.push(tokio::spawn(async move { store.claim(request).await.unwrap() }));
    }
    let mut won = 0;
    for claim in claims {
        match claim.await.unwrap() {
            ClaimOutcome::Turn { generation, .. } => {
                won += 1;
                assert_eq!(generation.0, 1);
            }
            other => assert!(matches!(other, ClaimOutcome::Held { .. }), "{other:?}"),
        }
    }
    assert_eq!(won, 1);
}

pub(super) async fn s22_an_expired_lease_that_nobody_took_lives_on(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.clock.advance(ms(TTL_MS) + 5);
    w.store.append(&fence, &turn, vec![text("row", Role::Assistant, "x")], None).await.unwrap();
    w.clock.advance(ms(TTL_MS) - 1);
    assert!(matches!(w.claim("c", "b").await, ClaimOutcome::Held { .. }), "the write renewed it");
    w.clock.advance(10);
    w.store.renew(&fence, TTL_MS).await.unwrap();
    assert!(matches!(w.claim("c", "b").await, ClaimOutcome::Held { .. }));
}

pub(super) async fn own_inputs_first_and_orphans_after_a_while(w: &World) {
    let policy = ClaimPolicy::OwnOrOrphaned { orphan_after_ms: 1_000 };
    w.beat("a").await;
    w.admit(input("c", "r1", "x")).await;
    assert_eq!(w.store.claim(w.request("c", "b", policy)).await.unwrap(), ClaimOutcome::NotMine);
    w.clock.advance(1_000);
    assert_eq!(w.store.claim(w.request("c", "b", policy)).await.unwrap(), ClaimOutcome::NotMine);
    let ClaimOutcome::Turn { fence, admission, .. } = w.store.claim(w.request("c", "a", policy)).await.unwrap() else {
        panic!("its own")
    };
    w.admit(input("c", "r2", "x")).await;
    w.clock.advance(5_000);
    let turn = admission.receipt.turn.unwrap();
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    // Its owner was at work until now: the second input was not left.
    assert_eq!(w.store.claim(w.request("c", "b", policy)).await.unwrap(), ClaimOutcome::NotMine);
    w.clock.advance(1_001);
    let ClaimOutcome::Turn { fence, admission, .. } = w.store.claim(w.request("c", "b", policy)).await.unwrap() else {
        panic!("an orphan")
    };
    let turn = admission.receipt.turn.unwrap();
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    w.admit(input("c", "r3", "x")).await;
    w.probe.kill(&owner("a"));
    let dead = w.store.claim(w.request("c", "b", policy)).await.unwrap();
    assert!(matches!(dead, ClaimOutcome::Turn { .. }), "{dead:?}");
}

pub(super) async fn a_crashed_turn_is_found_by_the_next_claim(w: &World) {
    let (old, turn, receipt) = w.begin("c", "a").await;
    w.round(&old, &turn, "one", vec![call("k0")]).await;
    w.store.settle_call(&old, &turn, &call_id("k0"), ok("fine")).await.unwrap();
    w.clock.advance(10);
    w.round(&old, &turn, "two", vec![call("k1"), call("k2")]).await;
    w.clock.advance(10);
    w.store.start_calls(&old, &turn, &[call_id("k1")]).await.unwrap();
    w.clock.advance(ms(TTL_MS) + 1);
    for policy in [ClaimPolicy::LeaseOnly, ClaimPolicy::OwnOrOrphaned { orphan_after_ms: 1 << 40 }, ClaimPolicy::Any] {
        let other = w.another().await;
        let ClaimOutcome::Recover { fence, open } = other.claim(w.request("c", "b", policy)).await.unwrap() else {
            panic!("{policy:?}")
        };
        assert_eq!((&open.id, &open.admission.receipt.admission), (&turn, &receipt.admission));
        assert_eq!((open.attempt, open.started_at_ms, open.last_write_ms), (1, START_MS, START_MS + 20));
        let states: Vec<_> = open.calls.iter().map(|call| (call.call.as_str().to_owned(), call.state)).collect();
        let want = [("k0", JournalState::Settled), ("k1", JournalState::Started), ("k2", JournalState::Recorded)];
        assert_eq!(states, want.map(|(call, state)| (call.to_owned(), state)));
        let round = open.open_round.clone().unwrap();
        assert_eq!((round.assistant().id.as_str(), round.calls().len()), ("two", 2));
        assert_eq!(round.calls()[0].state, JournalState::Started);
        assert_eq!(round.calls()[0].new, call("k1"));
        assert_eq!(open.last_row.as_ref().unwrap().id.as_str(), "two");
        assert_eq!(open.session.as_ref().unwrap().as_str(), "c");
        other.release(&fence).await.unwrap();
    }
    let ClaimOutcome::Recover { fence, .. } = w.claim("c", "b").await else { panic!("not recovered") };
    w.store.adopt_turn(&fence, &turn).await.unwrap();
    for call in ["k1", "k2"] {
        w.store.settle_call(&fence, &turn, &call_id(call), ok("recovered")).await.unwrap();
    }
    w.store.append(&fence, &turn, vec![text("answer", Role::Assistant, "done")], None).await.unwrap();
    w.store.release(&fence).await.unwrap();
    let ClaimOutcome::Recover { fence, open } = w.claim("c", "d").await else { panic!("not recovered") };
    assert_eq!((open.attempt, open.open_round), (2, None));
    assert_eq!(open.last_row.unwrap().content, "done");
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    assert_eq!(w.claim("c", "d").await, ClaimOutcome::Empty);
}

pub(super) async fn an_unknown_head_blocks_but_a_lease_is_given(w: &World) {
    let (fence, turn, receipt) = w.begin("c", "a").await;
    w.store.lose_turn(&fence, &turn).await.unwrap();
    assert!(is_invalid(w.store.append(&fence, &turn, vec![], None).await), "the turn is out of its hands");
    w.store.release(&fence).await.unwrap();
    assert_eq!(w.store.admission(&receipt.admission).await.unwrap().receipt.status, AdmissionStatus::Unknown);
    assert_eq!(w.store.conversation(&conv("c")).await.unwrap().pending, Some(AdmissionStatus::Unknown));
    assert_eq!(w.claim("c", "b").await, ClaimOutcome::Blocked);
    let lease = w.lease("c", "b").await;
    w.store.set_title(&lease, "still editable", TitleSource::User).await.unwrap();
    assert!(is_invalid(w.store.delete_conversation(&lease).await));
    w.store.release(&lease).await.unwrap();
    let interrupted = end("operator", AdmissionOutcome::Interrupted);
    w.store.resolve_unknown(&receipt.admission, receipt.generation.unwrap(), interrupted).await.unwrap();
    assert_eq!(w.claim("c", "b").await, ClaimOutcome::Empty);
}

pub(super) async fn a_waiter_sees_the_change(w: &World) {
    w.admit(input("c", "r1", "x")).await;
    let seen = w.store.wait_for_change(&conv("c"), -1, 60_000).await.unwrap();
    assert_eq!(w.store.wait_for_change(&conv("c"), seen, 1).await.unwrap(), seen, "nothing changed");
    is_not_found(w.store.wait_for_change(&conv("none"), 0, 1).await);
    for store in [Arc::clone(&w.store), w.another().await] {
        let seen = w.store.wait_for_change(&conv("c"), -1, 0).await.unwrap();
        let waiter = w.another().await;
        let wait = tokio::spawn(async move { waiter.wait_for_change(&conv("c"), seen, 60_000).await.unwrap() });
        tokio::task::yield_now().await;
        let request = ClaimRequest { turn: turn_id("t"), ..w.request("c", "a", ClaimPolicy::LeaseOnly) };
        let ClaimOutcome::Leased { fence } = store.claim(request).await.unwrap() else { panic!("no lease") };
        assert!(wait.await.unwrap() > seen);
        store.release(&fence).await.unwrap();
    }
}

pub(super) async fn i11_a_claim_whose_answer_was_lost_may_be_repeated(w: &World) {
    w.store.create_and_admit(new_conversation("c"), input("c", "r1", "hello")).await.unwrap();
    let claim = ClaimRequest {
        conversation: conv("c"),
        owner: owner("a"),
        turn: TurnId::parse("t1").unwrap(),
        ttl_ms: TTL_MS,
        policy: ClaimPolicy::Any,
    };
    let first = w.store.claim(claim.clone()).await.unwrap();
    assert!(matches!(first, ClaimOutcome::Turn { .. }), "{first:?}");
    let ClaimOutcome::Turn { fence, admission, generation } = w.store.claim(claim.clone()).await.unwrap() else {
        panic!("not recognised")
    };
    let ClaimOutcome::Turn { fence: told, admission: accepted, generation: begun } = first else { panic!() };
    assert_eq!((&fence, &admission.receipt, generation), (&told, &accepted.receipt, begun));
    // Another claim of the same process does not rob it, nor does the same id of another process.
    let other = ClaimRequest { turn: TurnId::parse("t2").unwrap(), ..claim.clone() };
    assert!(matches!(w.store.claim(other).await.unwrap(), ClaimOutcome::Held { .. }));
    let foreign = ClaimRequest { owner: owner("b"), ..claim.clone() };
    assert!(matches!(w.store.claim(foreign).await.unwrap(), ClaimOutcome::Held { .. }));
    // A lease that was given back is not held any more.
    w.store.release(&fence).await.unwrap();
    let recovery = ClaimRequest { turn: TurnId::parse("t3").unwrap(), ..claim };
    let ClaimOutcome::Recover { fence, .. } = w.store.claim(recovery.clone()).await.unwrap() else { panic!() };
    assert!(fence.token() > told.token());
    let ClaimOutcome::Recover { fence: again, .. } = w.store.claim(recovery).await.unwrap() else { panic!() };
    assert_eq!(again, fence);
}
