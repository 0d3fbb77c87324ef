//! Delegations: a task for a child, its one end, and the way of its result.

use super::*;
use crate::limits::{
    DELEGATION_KEEP_MS, DELEGATION_TASK_MAX_BYTES, DELEGATION_UNKNOWN_GRACE_MS, DELEGATIONS_KEPT, RESULT_AGE_MAX_MS,
    RESULT_ATTEMPTS_MAX, RESULT_LEASE_MS,
};
use crate::{
    AdmissionStatus, DelegationEnd, DelegationId, DelegationOutcome, DelegationRecord, DelegationState, NewDelegation,
    ResultClaim, ResultDelivery,
};

fn delegation(name: &str) -> DelegationId {
    DelegationId::parse(name).unwrap()
}

fn task(name: &str, child: &str) -> NewDelegation {
    NewDelegation {
        id: delegation(name),
        child: new_conversation(child),
        input: input(child, name, "do it"),
        task: format!("task\0 of {name}"),
    }
}

fn ended(outcome: DelegationOutcome, result: &str) -> DelegationEnd {
    DelegationEnd { outcome, result: result.to_owned() }
}

fn done(result: &str) -> DelegationEnd {
    ended(DelegationOutcome::Completed, result)
}

/// The input that brings the result of a delegation to conversation `parent`.
fn news(parent: &str, name: &str, result: &str) -> NewAdmission {
    NewAdmission { principal: "automation".to_owned(), ..input(parent, name, result) }
}

fn ms(limit: u64) -> i64 {
    i64::try_from(limit).unwrap()
}

/// A parent at work that gave a task away.
async fn dispatched(w: &World, name: &str, child: &str) -> (Fence, TurnId) {
    let (fence, turn, _) = w.begin("parent", "a").await;
    w.store.dispatch(&fence, &turn, task(name, child)).await.unwrap();
    (fence, turn)
}

async fn record(w: &World, name: &str) -> DelegationRecord {
    w.store.delegation(&delegation(name)).await.unwrap()
}

async fn claim(w: &World, name: &str) -> Option<ResultClaim> {
    w.store.claim_result(&delegation(name), &owner("carrier"), RESULT_LEASE_MS).await.unwrap()
}

async fn due(w: &World) -> Vec<String> {
    let due = w.store.due_results(10).await.unwrap();
    due.into_iter().map(|record| record.id.as_str().to_owned()).collect()
}

pub(super) async fn a_task_is_given_away_with_its_input(w: &World) {
    let (fence, turn) = dispatched(w, "d", "child").await;
    w.clock.advance(5);
    let again = w.another().await.dispatch(&fence, &turn, task("d", "child")).await.unwrap();
    assert_eq!(again, record(w, "d").await);
    assert_eq!((again.parent.as_str(), again.child.as_str(), again.turn.clone()), ("parent", "child", turn.clone()));
    assert_eq!((again.state, again.delivery, again.attempts), (DelegationState::Running, ResultDelivery::Pending, 0));
    assert_eq!((again.task.as_str(), again.owner.as_str()), ("task\0 of d", "a"));
    assert_eq!((again.dispatched_at_ms, again.ended_at_ms, again.result.clone()), (START_MS, None, None));
    assert_eq!(w.store.queue(&conv("child")).await.unwrap().len(), 1, "one input");
    // Other content under the same id, and inputs that were used, write nothing.
    let other = NewDelegation { task: "other".to_owned(), ..task("d", "child") };
    assert!(is_conflict(w.store.dispatch(&fence, &turn, other).await));
    let other = NewDelegation { input: input("child", "d", "other"), ..task("d", "child") };
    assert!(is_conflict(w.store.dispatch(&fence, &turn, other).await));
    assert!(is_conflict(w.store.dispatch(&fence, &turn, task("d", "child2")).await));
    let used = NewDelegation { id: delegation("d2"), ..task("d", "child") };
    assert!(is_conflict(w.store.dispatch(&fence, &turn, used).await));
    is_not_found(w.store.delegation(&delegation("d2")).await);
    is_not_found(w.store.conversation(&conv("child2")).await);
    assert!(is_invalid(w.store.dispatch(&fence, &turn, task("d3", "parent")).await), "to itself");
    let elsewhere = NewDelegation { input: input("elsewhere", "d4", "x"), ..task("d4", "child") };
    assert!(is_invalid(w.store.dispatch(&fence, &turn, elsewhere).await));
    let long = NewDelegation { task: "x".repeat(DELEGATION_TASK_MAX_BYTES + 1), ..task("d5", "child") };
    assert!(matches!(w.store.dispatch(&fence, &turn, long).await, Err(StoreError::Limit { .. })));
    // A second task for the same child, and both seen from both sides.
    w.clock.advance(5);
    w.store.dispatch(&fence, &turn, task("e", "child")).await.unwrap();
    for side in ["parent", "child"] {
        let seen = w.store.delegations(&conv(side), 10).await.unwrap();
        assert_eq!(seen.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["e", "d"]);
    }
    assert_eq!(w.store.delegations(&conv("parent"), 1).await.unwrap().len(), 1);
    assert_eq!(w.store.delegations(&conv("nobody"), 1).await.unwrap(), []);
}

pub(super) async fn i07_a_delegation_needs_the_fence_of_a_side(w: &World) {
    let (old, turn) = dispatched(w, "d", "child").await;
    let (child, ..) = w.start("child", "a").await;
    let (stranger, ..) = w.begin("stranger", "a").await;
    let id = delegation("d");
    assert!(is_invalid(w.store.finish_delegation(&stranger, &id, done("x")).await));
    assert!(is_invalid(w.store.finish_delegation(&old, &id, done("x")).await), "the parent may only cancel");
    assert!(is_invalid(w.store.adopt_delegation(&old, &id).await));
    assert!(is_invalid(w.store.lose_delegation(&stranger, &id).await));
    is_not_found(w.store.finish_delegation(&child, &delegation("none"), done("x")).await);
    is_not_found(w.store.collect_result(&old, &turn, &delegation("none")).await);
    w.clock.advance(ms(TTL_MS) + 1);
    let ClaimOutcome::Recover { .. } = w.claim("child", "b").await else { panic!("not recovered") };
    let ClaimOutcome::Recover { .. } = w.claim("parent", "b").await else { panic!("not recovered") };
    is_fenced(w.store.finish_delegation(&child, &id, done("late")).await);
    is_fenced(w.store.adopt_delegation(&child, &id).await);
    is_fenced(w.store.lose_delegation(&child, &id).await);
    is_fenced(w.store.dispatch(&old, &turn, task("e", "child")).await);
    is_fenced(w.store.finish_delegation(&old, &id, ended(DelegationOutcome::Cancelled, "")).await);
    is_fenced(w.store.collect_result(&old, &turn, &id).await);
    assert_eq!(record(w, "d").await.state, DelegationState::Running);
}

pub(super) async fn i16_a_delegation_ends_once(w: &World) {
    let (parent, turn) = dispatched(w, "d", "child").await;
    let (child, ..) = w.start("child", "b").await;
    let id = delegation("d");
    assert_eq!(due(w).await, Vec::<String>::new());
    assert_eq!(claim(w, "d").await, None, "nothing to carry yet");
    assert!(is_invalid(w.store.collect_result(&parent, &turn, &id).await), "it runs");
    assert!(is_invalid(w.store.resolve_delegation(&id, done("operator")).await), "it runs");
    w.clock.advance(5);
    let first = w.store.finish_delegation(&child, &id, done("re\0sult")).await.unwrap();
    assert_eq!((first.state, first.result.as_deref()), (DelegationState::Completed, Some("re\0sult")));
    assert_eq!((first.ended_at_ms, first.delivery), (Some(START_MS + 5), ResultDelivery::Pending));
    w.clock.advance(5);
    assert_eq!(w.store.finish_delegation(&child, &id, done("re\0sult")).await.unwrap(), first);
    assert!(is_conflict(w.store.finish_delegation(&child, &id, done("other")).await));
    assert!(is_conflict(w.store.finish_delegation(&child, &id, ended(DelegationOutcome::Failed, "x")).await));
    assert!(is_conflict(w.store.finish_delegation(&parent, &id, ended(DelegationOutcome::Cancelled, "")).await));
    assert!(is_invalid(w.store.adopt_delegation(&child, &id).await));
    assert!(is_invalid(w.store.lose_delegation(&child, &id).await));
    assert!(is_conflict(w.store.resolve_delegation(&id, done("operator")).await));
    assert_eq!(record(w, "d").await, first);
}

pub(super) async fn a_cancel_takes_the_queued_input_back(w: &World) {
    let (parent, turn) = dispatched(w, "d", "child").await;
    w.store.dispatch(&parent, &turn, task("e", "other")).await.unwrap();
    w.start("other", "b").await;
    let cancelled = || ended(DelegationOutcome::Cancelled, "not wanted");
    for (name, child, status) in [("d", "child", AdmissionStatus::Terminal), ("e", "other", AdmissionStatus::Started)] {
        let seen = w.store.wait_for_change(&conv(child), -1, 0).await.unwrap();
        let record = w.store.finish_delegation(&parent, &delegation(name), cancelled()).await.unwrap();
        assert_eq!(record.state, DelegationState::Cancelled);
        assert_eq!(w.store.admission(&record.input).await.unwrap().receipt.status, status);
        let now = w.store.wait_for_change(&conv(child), -1, 0).await.unwrap();
        assert_eq!(now > seen, status == AdmissionStatus::Terminal);
    }
    assert_eq!(w.claim("child", "b").await, ClaimOutcome::Empty);
}

pub(super) async fn s43_a_result_reaches_the_parent_once(w: &World) {
    let (parent, turn) = dispatched(w, "d", "child").await;
    let (child, ..) = w.start("child", "a").await;
    w.store.finish_delegation(&child, &delegation("d"), done("result")).await.unwrap();
    assert_eq!(due(w).await, ["d"]);
    let first = claim(w, "d").await.unwrap();
    assert_eq!((first.record().attempts, first.record().delivery), (1, ResultDelivery::Claimed));
    assert_eq!(due(w).await, Vec::<String>::new());
    assert_eq!(claim(w, "d").await, None, "somebody carries it");
    assert!(matches!(w.store.collect_result(&parent, &turn, &delegation("d")).await, Err(StoreError::InUse)));
    // Whoever carried it is gone: the next one, and the first one is too late.
    w.clock.advance(ms(RESULT_LEASE_MS));
    assert_eq!(due(w).await, ["d"]);
    let second = claim(w, "d").await.unwrap();
    assert_eq!(second.record().attempts, 2);
    assert!(is_invalid(w.store.deliver_result(&first, news("parent", "d", "result")).await));
    w.store.release_result(&first).await.unwrap();
    assert!(is_invalid(w.store.deliver_result(&second, news("child", "d", "result")).await), "the parent's");
    assert!(is_invalid(w.store.deliver_result(&second, news("parent", "other", "result")).await), "its own id");
    let queue = w.store.queue(&conv("parent")).await.unwrap().len();
    // A claim whose time is over holds as long as nobody took it.
    w.clock.advance(ms(RESULT_LEASE_MS) + 1);
    let told = w.store.deliver_result(&second, news("parent", "d", "result")).await.unwrap();
    let AdmitOutcome::Accepted(receipt) = told else { panic!("{told:?}") };
    let again = w.another().await.deliver_result(&second, news("parent", "d", "result")).await.unwrap();
    assert_eq!(again, AdmitOutcome::Replayed(receipt.clone()));
    assert_eq!(w.store.queue(&conv("parent")).await.unwrap().len(), queue + 1);
    let after = record(w, "d").await;
    assert_eq!((after.delivery, after.delivered_as), (ResultDelivery::Delivered, Some(receipt.admission)));
    assert_eq!(after.delivered_at_ms, Some(START_MS + 2 * ms(RESULT_LEASE_MS) + 1));
    w.store.release_result(&second).await.unwrap();
    assert_eq!(record(w, "d").await.delivery, ResultDelivery::Delivered);
    assert_eq!((due(w).await, claim(w, "d").await), (Vec::new(), None));
    assert!(is_invalid(w.store.collect_result(&parent, &turn, &delegation("d")).await), "it was delivered");
}

pub(super) async fn s43_one_of_many_carriers_gets_the_result(w: &World) {
    dispatched(w, "d", "child").await;
    let (child, ..) = w.start("child", "a").await;
    w.store.finish_delegation(&child, &delegation("d"), done("result")).await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let store = w.another().await;
        tasks.push(tokio::spawn(async move {
            let claim = store.claim_result(&delegation("d"), &owner("x"), RESULT_LEASE_MS).await.unwrap();
            match claim {
                Some(claim) => store.deliver_result(&claim, news("parent", "d", "result")).await.map(Some),
                None => Ok(None),
            }
        }));
    }
    let mut won = 0;
    for task in tasks {
        won += i32::from(task.await.unwrap().unwrap().is_some());
    }
    assert_eq!(won, 1);
    let queue = w.store.queue(&conv("parent")).await.unwrap();
    assert_eq!(queue.iter().filter(|one| one.request_id == "d").count(), 1);
}

pub(super) async fn s43_a_late_owner_of_an_unknown_one_ends_it_once(w: &World) {
    w.beat("a").await;
    dispatched(w, "d", "child").await;
    let (child, ..) = w.start("child", "a").await;
    assert_eq!(w.store.sweep_delegations().await.unwrap(), []);
    w.probe.kill(&owner("a"));
    assert_eq!(w.store.sweep_delegations().await.unwrap(), [delegation("d")]);
    assert_eq!(w.another().await.sweep_delegations().await.unwrap(), []);
    assert_eq!(record(w, "d").await.state, DelegationState::Unknown);
    // The parent is told that nobody knows, but not before whoever recovers the child had time for it.
    assert_eq!(claim(w, "d").await, None);
    w.clock.advance(ms(DELEGATION_UNKNOWN_GRACE_MS));
    assert_eq!(due(w).await, ["d"]);
    let stale = claim(w, "d").await.unwrap();
    assert_eq!(stale.record().state, DelegationState::Unknown);
    // It ends while somebody carries "unknown": that claim is over.
    w.store.finish_delegation(&child, &delegation("d"), done("late")).await.unwrap();
    assert!(is_invalid(w.store.deliver_result(&stale, news("parent", "d", "unknown")).await));
    let fresh = claim(w, "d").await.unwrap();
    assert_eq!(fresh.record().result.as_deref(), Some("late"));
    w.store.deliver_result(&fresh, news("parent", "d", "late")).await.unwrap();
    assert!(is_conflict(w.store.finish_delegation(&child, &delegation("d"), done("later")).await));
}

pub(super) async fn s43_a_delivered_one_is_never_opened_again(w: &World) {
    let (parent, _) = dispatched(w, "d", "child").await;
    let (child, ..) = w.start("child", "a").await;
    let id = delegation("d");
    assert_eq!(w.store.lose_delegation(&child, &id).await.unwrap().state, DelegationState::Unknown);
    let lost = w.store.lose_delegation(&child, &id).await.unwrap();
    assert_eq!(lost.state, DelegationState::Unknown);
    w.clock.advance(ms(DELEGATION_UNKNOWN_GRACE_MS));
    let carried = claim(w, "d").await.unwrap();
    w.store.deliver_result(&carried, news("parent", "d", "unknown")).await.unwrap();
    let record = w.store.finish_delegation(&child, &id, done("late")).await.unwrap();
    assert_eq!((record.state, record.delivery), (DelegationState::Completed, ResultDelivery::Delivered));
    assert_eq!((due(w).await, claim(w, "d").await), (Vec::new(), None));
    let queue = w.store.queue(&conv("parent")).await.unwrap();
    assert_eq!(queue.iter().filter(|one| one.request_id == "d").count(), 1);
    drop(parent);
}

pub(super) async fn a_recovered_child_keeps_its_delegation(w: &World) {
    for who in ["a", "b"] {
        w.beat(who).await;
    }
    let (parent, turn) = dispatched(w, "d", "child").await;
    w.store.dispatch(&parent, &turn, task("queued", "other")).await.unwrap();
    w.start("child", "a").await;
    w.probe.kill(&owner("a"));
    let ClaimOutcome::Recover { fence, .. } = w.claim("child", "b").await else { panic!("not recovered") };
    // A live owner holds the child; the other child's input provably did not begin.
    assert_eq!(w.store.sweep_delegations().await.unwrap(), []);
    let adopted = w.store.adopt_delegation(&fence, &delegation("d")).await.unwrap();
    assert_eq!((adopted.owner.as_str(), adopted.state), ("b", DelegationState::Running));
    w.store.release(&fence).await.unwrap();
    assert_eq!(w.store.sweep_delegations().await.unwrap(), []);
    w.probe.kill(&owner("b"));
    assert_eq!(w.store.sweep_delegations().await.unwrap(), [delegation("d")]);
    // Unknown, and recovered after all.
    let ClaimOutcome::Recover { fence, .. } = w.claim("child", "c").await else { panic!("not recovered") };
    w.store.adopt_delegation(&fence, &delegation("d")).await.unwrap();
    assert_eq!(record(w, "d").await.state, DelegationState::Running);
    let (other, ..) = w.start("other", "c").await;
    w.store.release(&other).await.unwrap();
    assert_eq!(w.store.sweep_delegations().await.unwrap(), [delegation("queued")]);
    let decided = w.store.resolve_delegation(&delegation("queued"), ended(DelegationOutcome::Failed, "gone")).await;
    assert_eq!(decided.unwrap().state, DelegationState::Failed);
}

pub(super) async fn i06_what_the_child_is_known_to_have_done_is_its_end(w: &World) {
    w.beat("a").await;
    let (parent, turn) = dispatched(w, "d", "child").await;
    for (name, child) in [("failed", "c1"), ("stopped", "c2"), ("silent", "c3"), ("later", "c4"), ("back", "c5")] {
        w.store.dispatch(&parent, &turn, task(name, child)).await.unwrap();
    }
    let ends = [
        ("child", Some("the answer"), completed()),
        ("c1", None, TurnEnd { detail: Some("no model".to_owned()), ..super::end("failed", AdmissionOutcome::Failed) }),
        ("c2", None, super::end("interrupted", AdmissionOutcome::Interrupted)),
        ("c3", None, completed()),
    ];
    for (child, answer, end) in ends {
        let (fence, turn, _) = w.start(child, "a").await;
        let rows = answer.map(|answer| text(&format!("answer-{child}"), Role::Assistant, answer));
        let new = session(child, None, child);
        w.store.open_session(&fence, &turn, new, rows.into_iter().collect()).await.unwrap();
        w.store.settle_turn(&fence, &turn, end, true).await.unwrap();
    }
    let (late, late_turn, lost) = w.start("c4", "a").await;
    w.store.lose_turn(&late, &late_turn).await.unwrap();
    w.store.cancel(&record(w, "back").await.input).await.unwrap();
    assert_eq!(w.store.sweep_delegations().await.unwrap(), [], "its owner lives and may say more");
    assert_eq!(record(w, "d").await.state, DelegationState::Running);
    w.probe.kill(&owner("a"));
    // Only where the journal cannot tell it is unknown: an answer that is not there, a turn that was lost.
    assert_eq!(w.store.sweep_delegations().await.unwrap(), [delegation("later"), delegation("silent")]);
    let wants = [
        ("d", DelegationState::Completed, "the answer"),
        ("failed", DelegationState::Failed, "no model"),
        ("stopped", DelegationState::Cancelled, "interrupted"),
        ("back", DelegationState::Cancelled, "The task was taken back before it began."),
    ];
    for (name, state, result) in wants {
        let found = record(w, name).await;
        assert_eq!((found.state, found.result.as_deref()), (state, Some(result)), "{name}");
    }
    // An operator decides the lost input: that is the end of the delegation too.
    let end = super::end("operator", AdmissionOutcome::Interrupted);
    w.store.resolve_unknown(&lost.admission, lost.generation.unwrap(), end).await.unwrap();
    assert_eq!(w.store.sweep_delegations().await.unwrap(), []);
    assert_eq!(record(w, "later").await.state, DelegationState::Cancelled);
    assert_eq!(record(w, "silent").await.state, DelegationState::Unknown);
}

pub(super) async fn a_turn_may_take_the_result_itself(w: &World) {
    let (parent, turn) = dispatched(w, "d", "child").await;
    let (child, child_turn, _) = w.start("child", "a").await;
    let id = delegation("d");
    w.store.finish_delegation(&child, &id, done("result")).await.unwrap();
    is_not_found(w.store.collect_result(&child, &child_turn, &id).await);
    assert!(is_invalid(w.store.collect_result(&child, &turn, &id).await), "not a turn of this conversation");
    let taken = w.store.collect_result(&parent, &turn, &id).await.unwrap();
    assert_eq!((taken.result.as_deref(), taken.delivery), (Some("result"), ResultDelivery::Delivered));
    assert_eq!(w.store.collect_result(&parent, &turn, &id).await.unwrap(), taken, "the same turn again");
    assert_eq!((due(w).await, claim(w, "d").await), (Vec::new(), None));
    w.store.settle_turn(&parent, &turn, completed(), true).await.unwrap();
    let (parent, turn, _) = w.begin("parent", "a").await;
    assert!(is_invalid(w.store.collect_result(&parent, &turn, &id).await), "another turn took it");
}

pub(super) async fn a_result_that_cannot_be_delivered_is_given_up(w: &World) {
    let (parent, turn) = dispatched(w, "d", "child").await;
    w.store.dispatch(&parent, &turn, task("old", "child")).await.unwrap();
    w.store.dispatch(&parent, &turn, task("waits", "child")).await.unwrap();
    let (child, ..) = w.start("child", "a").await;
    for name in ["d", "old", "waits"] {
        w.store.finish_delegation(&child, &delegation(name), done("result")).await.unwrap();
    }
    for attempt in 1..=RESULT_ATTEMPTS_MAX {
        let claim = claim(w, "d").await.unwrap();
        assert_eq!(claim.record().attempts, attempt);
        w.store.release_result(&claim).await.unwrap();
        w.store.release_result(&claim).await.unwrap();
    }
    assert_eq!((record(w, "d").await.delivery, claim(w, "d").await), (ResultDelivery::Dropped, None));
    let tried = claim(w, "old").await.unwrap();
    w.store.release_result(&tried).await.unwrap();
    w.clock.advance(ms(RESULT_AGE_MAX_MS));
    w.store.sweep_delegations().await.unwrap();
    assert_eq!(record(w, "old").await.delivery, ResultDelivery::Dropped);
    // One that nobody tried to deliver is not given up, however long all gateways were off.
    assert_eq!(due(w).await, ["waits"]);
    // A turn may still take what was given up.
    let taken = w.store.collect_result(&parent, &turn, &delegation("d")).await.unwrap();
    assert_eq!(taken.delivery, ResultDelivery::Delivered);
    // The last attempt whose carrier is gone is given up by the sweep.
    for _ in 0..RESULT_ATTEMPTS_MAX {
        assert!(claim(w, "waits").await.is_some());
        w.clock.advance(ms(RESULT_LEASE_MS));
    }
    assert_eq!(claim(w, "waits").await, None);
    assert_eq!(record(w, "waits").await.delivery, ResultDelivery::Claimed);
    w.store.sweep_delegations().await.unwrap();
    assert_eq!(record(w, "waits").await.delivery, ResultDelivery::Dropped);
}

pub(super) async fn an_undelivered_result_is_never_forgotten(w: &World) {
    let (parent, turn) = dispatched(w, "kept", "child").await;
    let (child, ..) = w.start("child", "a").await;
    w.store.finish_delegation(&child, &delegation("kept"), done("result")).await.unwrap();
    for number in 0..=DELEGATIONS_KEPT {
        let name = format!("d{number:02}");
        w.clock.advance(1);
        w.store.dispatch(&parent, &turn, task(&name, "child")).await.unwrap();
        w.store.finish_delegation(&child, &delegation(&name), done("result")).await.unwrap();
        w.store.collect_result(&parent, &turn, &delegation(&name)).await.unwrap();
    }
    // The next dispatch forgets the oldest that was delivered.
    w.store.dispatch(&parent, &turn, task("next", "child")).await.unwrap();
    is_not_found(w.store.delegation(&delegation("d00")).await);
    record(w, "d01").await;
    assert_eq!(w.store.delegations(&conv("parent"), 1_000).await.unwrap().len(), DELEGATIONS_KEPT + 2);
    w.clock.advance(ms(DELEGATION_KEEP_MS));
    w.store.sweep_delegations().await.unwrap();
    let left = w.store.delegations(&conv("parent"), 1_000).await.unwrap();
    assert_eq!(left.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["next", "kept"]);
    assert_eq!(due(w).await, ["kept"]);
}

pub(super) async fn s39_a_conversation_with_a_delegation_is_not_deleted(w: &World) {
    let (parent, turn) = dispatched(w, "d", "child").await;
    let (child, child_turn, _) = w.start("child", "a").await;
    w.store.settle_turn(&parent, &turn, completed(), false).await.unwrap();
    w.store.settle_turn(&child, &child_turn, completed(), false).await.unwrap();
    assert!(is_invalid(w.store.delete_conversation(&parent).await));
    assert!(is_invalid(w.store.delete_conversation(&child).await));
    w.store.finish_delegation(&child, &delegation("d"), done("result")).await.unwrap();
    // The result belongs to the parent: it outlives the child, and goes with the parent.
    w.store.delete_conversation(&child).await.unwrap();
    assert_eq!(due(w).await, ["d"]);
    w.store.delete_conversation(&parent).await.unwrap();
    is_not_found(w.store.delegation(&delegation("d")).await);
    assert_eq!(due(w).await, Vec::<String>::new());
}
