//! Inputs: accepted once, started in order, never lost.

use super::{
    World, completed, conv, end, input, is_conflict, is_fenced, is_invalid, is_not_found, message_id, new_conversation,
    ok, owner, session, text,
};
use crate::limits::{KEY_MAX_BYTES, PAYLOAD_MAX_BYTES, QUEUE_MAX};
use crate::{
    AdmissionOutcome, AdmissionStatus, AdmitOutcome, CallOutcome, ClaimOutcome, ClaimPolicy, Generation, Intent,
    MessageKind, NewAdmission, NewMessage, Role, StoreError, View,
};

pub(super) async fn i01_an_accepted_input_is_seen_by_every_handle(w: &World) {
    let receipt = w.admit(input("c", "r1", "hello")).await;
    assert_eq!(receipt.status, AdmissionStatus::Queued);
    let other = w.another().await;
    let record = other.admission(&receipt.admission).await.unwrap();
    assert_eq!((record.receipt, record.payload.as_str()), (receipt, "hello"));
    assert_eq!(other.queue(&conv("c")).await.unwrap().len(), 1);
}

pub(super) async fn i02_s1_the_same_request_gives_the_same_receipt(w: &World) {
    let first = w.admit(input("c", "r1", "hello")).await;
    // The sender that saw no answer mints a new admission id, or not.
    let again = NewAdmission { id: crate::AdmissionId::parse("other").unwrap(), ..input("c", "r1", "hello") };
    for input in [input("c", "r1", "hello"), again] {
        assert_eq!(w.another().await.admit(input).await.unwrap(), AdmitOutcome::Replayed(first.clone()));
    }
    assert_eq!(w.store.queue(&conv("c")).await.unwrap().len(), 1, "one row");
    assert!(is_not_found(w.store.admission(&crate::AdmissionId::parse("other").unwrap()).await));
    let (fence, turn, started) = w.start("c", "a").await;
    assert_eq!(w.store.admit(input("c", "r1", "hello")).await.unwrap().receipt(), &started);
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    let over = w.store.admit(input("c", "r1", "hello")).await.unwrap().receipt().clone();
    assert_eq!((over.status, over.outcome), (AdmissionStatus::Terminal, Some(AdmissionOutcome::Completed)));
    assert_eq!(w.store.queue(&conv("c")).await.unwrap(), []);
}

pub(super) async fn i02_s2_other_content_under_the_same_request_writes_nothing(w: &World) {
    w.admit(input("c", "r1", "hello")).await;
    let before = w.store.wait_for_change(&conv("c"), -1, 0).await.unwrap();
    let steer = NewAdmission { intent: Intent::Steer, ..input("c", "r1", "hello") };
    for other in [input("c", "r1", "bye"), steer] {
        assert!(is_conflict(w.store.admit(other).await));
    }
    // The same admission id for another request.
    let taken = NewAdmission { request_id: "r2".to_owned(), ..input("c", "r1", "hello") };
    assert!(is_conflict(w.store.admit(taken.clone()).await));
    let elsewhere = NewAdmission { conversation: conv("d"), ..taken };
    assert!(is_conflict(w.store.create_and_admit(new_conversation("d"), elsewhere).await));
    assert!(is_not_found(w.store.conversation(&conv("d")).await));
    assert_eq!(w.store.queue(&conv("c")).await.unwrap().len(), 1);
    assert_eq!(w.store.wait_for_change(&conv("c"), -1, 0).await.unwrap(), before);
}

pub(super) async fn s3_concurrent_submits_of_one_request_make_one_row(w: &World) {
    let (x, y) = (w.another().await, w.another().await);
    let submit = |store: std::sync::Arc<dyn crate::Store>| async move {
        store.create_and_admit(new_conversation("c"), input("c", "r1", "hello")).await.unwrap()
    };
    let all = tokio::join!(submit(x.clone()), submit(y.clone()), submit(x), submit(y));
    let all = [all.0, all.1, all.2, all.3];
    assert_eq!(all.iter().filter(|one| matches!(one, AdmitOutcome::Accepted(_))).count(), 1);
    assert!(all.iter().all(|one| one.receipt() == all[0].receipt()));
    assert_eq!(w.store.queue(&conv("c")).await.unwrap().len(), 1);
}

pub(super) async fn i03_inputs_start_in_their_order(w: &World) {
    for request in ["r1", "r2", "r3"] {
        w.admit(input("c", request, request)).await;
    }
    let mut last = 0;
    for request in ["r1", "r2", "r3"] {
        let (fence, turn, receipt) = w.start("c", "a").await;
        assert!(receipt.seq > last);
        last = receipt.seq;
        assert_eq!(w.store.admission(&receipt.admission).await.unwrap().request_id, request);
        // While it runs nothing else starts.
        assert!(matches!(w.claim("c", "b").await, ClaimOutcome::Held { .. }));
        w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    }
    assert_eq!(w.claim("c", "a").await, ClaimOutcome::Empty);
}

pub(super) async fn s5_a_later_input_waits_until_the_earlier_one_is_over(w: &World) {
    let first = w.admit(input("c", "r1", "x")).await;
    w.admit(input("c", "r2", "x")).await;
    let policies = [ClaimPolicy::Any, ClaimPolicy::OwnOrOrphaned { orphan_after_ms: 0 }, ClaimPolicy::LeaseOnly];
    let (mut fence, mut turn, _) = w.start("c", "a").await;
    for round in 0..2 {
        // At work.
        for (who, policy) in ["a", "b"].into_iter().flat_map(|who| policies.map(|policy| (who, policy))) {
            let told = w.store.claim(w.request("c", who, policy)).await.unwrap();
            assert!(matches!(told, ClaimOutcome::Held { .. }), "{told:?}");
        }
        // Left open.
        w.store.release(&fence).await.unwrap();
        for policy in policies {
            let told = w.store.claim(w.request("c", "b", policy)).await.unwrap();
            let ClaimOutcome::Recover { fence: found, open } = told else { panic!("{told:?}") };
            assert_eq!((&open.id, &open.admission.receipt.admission), (&turn, &first.admission));
            fence = found;
            if policy != ClaimPolicy::LeaseOnly {
                w.store.release(&fence).await.unwrap();
            }
        }
        // Back in its place: it is the first again.
        if round == 0 {
            w.store.requeue(&fence, &turn).await.unwrap();
            w.store.release(&fence).await.unwrap();
            let (next, again, receipt) = w.start("c", "a").await;
            assert_eq!(receipt.admission, first.admission);
            (fence, turn) = (next, again);
        }
    }
    // Nobody knows what became of it.
    w.store.lose_turn(&fence, &turn).await.unwrap();
    w.store.release(&fence).await.unwrap();
    assert_eq!(w.claim("c", "b").await, ClaimOutcome::Blocked);
    let generation = w.store.admission(&first.admission).await.unwrap().receipt.generation.unwrap();
    let failed = end("operator", AdmissionOutcome::Failed);
    w.store.resolve_unknown(&first.admission, generation, failed).await.unwrap();
    let (_, _, second) = w.start("c", "b").await;
    assert!(second.seq > first.seq);
    assert_eq!(w.store.admission(&second.admission).await.unwrap().request_id, "r2");
}

pub(super) async fn s6_a_blocked_conversation_delays_no_other(w: &World) {
    w.admit(input("c", "r1", "x")).await;
    w.admit(input("d", "r1", "x")).await;
    let (fence, turn, _) = w.start("c", "a").await;
    w.store.lose_turn(&fence, &turn).await.unwrap();
    w.store.release(&fence).await.unwrap();
    w.admit(input("c", "r2", "x")).await;
    assert_eq!(w.claim("c", "a").await, ClaimOutcome::Blocked);
    w.start("d", "a").await;
}

pub(super) async fn s8_a_started_input_cannot_be_cancelled(w: &World) {
    let first = w.admit(input("c", "r1", "x")).await;
    let second = w.admit(input("c", "r2", "x")).await;
    let cancelled = w.store.cancel(&second.admission).await.unwrap();
    assert_eq!(cancelled.status, AdmissionStatus::Terminal);
    assert_eq!(cancelled.outcome, Some(AdmissionOutcome::Cancelled));
    let (fence, turn, _) = w.start("c", "a").await;
    assert!(is_invalid(w.store.cancel(&first.admission).await));
    assert!(is_invalid(w.store.cancel(&second.admission).await));
    assert!(is_not_found(w.store.cancel(&crate::AdmissionId::parse("none").unwrap()).await));
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    assert_eq!(w.claim("c", "a").await, ClaimOutcome::Empty, "a cancelled input never runs");
}

pub(super) async fn s24_a_wait_that_runs_out_leaves_the_input_in_its_place(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    let waiting = w.admit(NewAdmission { submitted_by: owner("b"), ..input("c", "r2", "x") }).await;
    let other = w.another().await;
    let before = w.everything("c").await;
    let seen = other.wait_for_change(&conv("c"), -1, 0).await.unwrap();
    // The wait ends without an answer. Whoever goes on all the same is told that the conversation is held.
    assert_eq!(other.wait_for_change(&conv("c"), seen, 1).await.unwrap(), seen);
    for policy in [ClaimPolicy::Any, ClaimPolicy::OwnOrOrphaned { orphan_after_ms: 0 }, ClaimPolicy::LeaseOnly] {
        let told = other.claim(w.request("c", "b", policy)).await.unwrap();
        assert!(matches!(&told, ClaimOutcome::Held { owner: who, .. } if *who == owner("a")), "{told:?}");
    }
    assert_eq!(w.everything("c").await, before, "nothing was taken and nothing was written");
    assert_eq!(w.store.admission(&waiting.admission).await.unwrap().receipt, waiting);
    // It runs when its turn comes, and after the one before it.
    w.store.append(&fence, &turn, vec![text("answer", Role::Assistant, "done")], None).await.unwrap();
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    let (_, _, started) = w.start("c", "b").await;
    assert_eq!(started.admission, waiting.admission);
    // Or its sender takes it back, and is told so.
    let refused = w.admit(input("c", "r3", "x")).await;
    let receipt = other.cancel(&refused.admission).await.unwrap();
    assert_eq!(receipt.outcome, Some(AdmissionOutcome::Cancelled));
}

pub(super) async fn s25_a_stop_ends_its_own_generation_and_not_the_next(w: &World) {
    for request in ["r1", "r2", "r3"] {
        w.admit(input("c", request, "x")).await;
    }
    let stopped = || end("stopped_by_user", AdmissionOutcome::Interrupted);
    // It is started, and nothing of it exists yet: no session, no row.
    let (fence, turn, first) = w.start("c", "a").await;
    w.store.settle_turn(&fence, &turn, stopped(), true).await.unwrap();
    let over = w.store.admission(&first.admission).await.unwrap().receipt;
    assert_eq!((over.outcome, over.generation), (Some(AdmissionOutcome::Interrupted), first.generation));
    assert_eq!(w.rows("c", View::Display).await, []);
    // The next one begins, and the stop that comes once more, with its own turn, does not reach it.
    let (next, running, second) = w.start("c", "b").await;
    assert!(second.generation > first.generation);
    is_fenced(w.store.settle_turn(&fence, &turn, stopped(), true).await);
    is_fenced(w.store.settle_turn(&fence, &running, stopped(), true).await);
    w.store.settle_turn(&next, &turn, stopped(), true).await.unwrap();
    assert_eq!(w.store.admission(&second.admission).await.unwrap().receipt, second);
    assert!(matches!(w.claim("c", "d").await, ClaimOutcome::Held { .. }), "its lease is as it was");
    w.store.open_session(&next, &running, session("c", None, "c"), vec![]).await.unwrap();
    w.store.settle_turn(&next, &running, completed(), true).await.unwrap();
    // One that waits is stopped by taking it back: it never starts, and those behind it do.
    let last = w.admit(input("c", "r4", "x")).await;
    let third = w.store.queue(&conv("c")).await.unwrap().remove(0).receipt;
    w.store.cancel(&third.admission).await.unwrap();
    let (_, _, started) = w.start("c", "a").await;
    assert_eq!(started.admission, last.admission);
}

pub(super) async fn c4_the_same_text_twice_is_two_inputs(w: &World) {
    let one = w.admit(input("c", "r1", "yes")).await;
    let two = w.admit(input("c", "r2", "yes")).await;
    assert!(one.seq < two.seq);
    assert_eq!(w.store.queue(&conv("c")).await.unwrap().len(), 2);
}

pub(super) async fn limits_of_inputs_are_kept(w: &World) {
    assert!(is_not_found(w.store.admit(input("c", "r", "x")).await));
    let big = NewAdmission { payload: "x".repeat(PAYLOAD_MAX_BYTES + 1), ..input("c", "r", "x") };
    let key = NewAdmission { request_id: "x".repeat(KEY_MAX_BYTES + 1), ..input("c", "r", "x") };
    for over in [big, key] {
        let refused = w.store.create_and_admit(new_conversation("c"), over).await;
        assert!(matches!(refused, Err(StoreError::Limit { .. })), "{refused:?}");
    }
    assert!(is_not_found(w.store.conversation(&conv("c")).await));
    assert!(is_invalid(w.store.create_and_admit(new_conversation("d"), input("c", "r", "x")).await));
    for number in 0..QUEUE_MAX {
        w.admit(input("c", &format!("r{number}"), "x")).await;
    }
    let refused = w.store.admit(input("c", "one-more", "x")).await;
    assert!(matches!(refused, Err(StoreError::Limit { .. })), "{refused:?}");
    // A repetition is answered although the queue is full.
    assert!(matches!(w.store.admit(input("c", "r0", "x")).await.unwrap(), AdmitOutcome::Replayed(_)));
}

pub(super) async fn i06_a_requeued_input_keeps_its_place(w: &World) {
    let (fence, turn, receipt) = w.begin("c", "a").await;
    let row = w.rows("c", View::Model).await.remove(0);
    w.admit(input("c", "later", "x")).await;
    w.store.requeue(&fence, &turn).await.unwrap();
    assert!(is_invalid(w.store.requeue(&fence, &turn).await));
    w.store.release(&fence).await.unwrap();
    let queued = w.store.admission(&receipt.admission).await.unwrap().receipt;
    assert_eq!((queued.status, queued.seq, queued.turn), (AdmissionStatus::Queued, receipt.seq, None));
    assert_eq!(w.store.turn(&turn).await.unwrap().reason.as_deref(), Some("requeued"));
    let (fence, turn, again) = w.start("c", "b").await;
    assert_eq!(again.admission, receipt.admission);
    assert!(again.generation > receipt.generation, "the generation of the first start is not used again");
    // The user row has the same id: it is there once, in its old place.
    let repeated = text(row.id.as_str(), Role::User, "hello");
    w.store.append(&fence, &turn, vec![repeated], None).await.unwrap();
    assert_eq!(w.rows("c", View::Model).await, [row]);
    w.round(&fence, &turn, "round", vec![super::call("k")]).await;
    assert!(is_invalid(w.store.requeue(&fence, &turn).await), "a round was recorded");
    assert_eq!(w.store.admission(&receipt.admission).await.unwrap().receipt.status, AdmissionStatus::Started);
}

pub(super) async fn i06_s13_resolving_needs_the_exact_generation(w: &World) {
    w.admit(input("c", "r1", "x")).await;
    w.admit(input("c", "r2", "x")).await;
    let (fence, turn, receipt) = w.start("c", "a").await;
    let generation = receipt.generation.unwrap();
    let failed = || end("operator", AdmissionOutcome::Failed);
    assert!(is_invalid(w.store.resolve_unknown(&receipt.admission, generation, failed()).await));
    w.store.lose_turn(&fence, &turn).await.unwrap();
    w.store.lose_turn(&fence, &turn).await.unwrap();
    assert!(is_invalid(w.store.settle_turn(&fence, &turn, completed(), true).await));
    w.store.release(&fence).await.unwrap();
    for wrong in [Generation(generation.0 - 1), Generation(generation.0 + 1)] {
        assert!(is_invalid(w.store.resolve_unknown(&receipt.admission, wrong, failed()).await));
    }
    assert_eq!(w.claim("c", "a").await, ClaimOutcome::Blocked);
    let resolved = w.store.resolve_unknown(&receipt.admission, generation, failed()).await.unwrap();
    assert_eq!((resolved.status, resolved.outcome), (AdmissionStatus::Terminal, Some(AdmissionOutcome::Failed)));
    assert!(is_invalid(w.store.resolve_unknown(&receipt.admission, generation, failed()).await));
    assert_eq!(w.store.turn(&turn).await.unwrap().reason.as_deref(), Some("operator"));
    let (_, _, next) = w.start("c", "a").await;
    assert_ne!(next.admission, receipt.admission);
}

pub(super) async fn s14_resolving_closes_the_transcript(w: &World) {
    let (fence, turn, receipt) = w.begin("c", "a").await;
    w.round(&fence, &turn, "round", vec![super::call("k1"), super::call("k2"), super::call("k3")]).await;
    w.store.start_calls(&fence, &turn, &[super::call_id("k1"), super::call_id("k2")]).await.unwrap();
    w.store.settle_call(&fence, &turn, &super::call_id("k1"), ok("done")).await.unwrap();
    w.store.lose_turn(&fence, &turn).await.unwrap();
    w.store.release(&fence).await.unwrap();
    let failed = end("operator", AdmissionOutcome::Failed);
    w.store.resolve_unknown(&receipt.admission, receipt.generation.unwrap(), failed).await.unwrap();
    let rows = w.rows("c", View::Model).await;
    let outcomes: Vec<_> = rows.iter().filter_map(|row| row.answers.as_ref()).map(|call| call.outcome).collect();
    let want = [CallOutcome::Ok, CallOutcome::OutcomeUnknown, CallOutcome::Skipped];
    assert_eq!(outcomes, want.map(Some));
    let last = rows.last().unwrap();
    assert_eq!((last.role, last.kind), (Role::Assistant, MessageKind::Boundary));
    assert_eq!(w.store.conversation(&conv("c")).await.unwrap().messages, rows.len() as u64);

    // An input that was put back into its place and begun again has a row, which is the earlier turn's.
    w.admit(input("d", "r", "hello")).await;
    let (fence, turn, receipt) = w.start("d", "a").await;
    let row = text(receipt.admission.input_row().as_str(), Role::User, "hello");
    w.store.open_session(&fence, &turn, super::session("d", None, "d"), vec![row]).await.unwrap();
    w.store.requeue(&fence, &turn).await.unwrap();
    w.store.release(&fence).await.unwrap();
    let (fence, turn, receipt) = w.start("d", "a").await;
    w.store.lose_turn(&fence, &turn).await.unwrap();
    w.store.release(&fence).await.unwrap();
    let failed = end("operator", AdmissionOutcome::Failed);
    w.store.resolve_unknown(&receipt.admission, receipt.generation.unwrap(), failed).await.unwrap();
    let rows = w.rows("d", View::Model).await;
    let kinds: Vec<_> = rows.iter().map(|row| (row.role, row.kind)).collect();
    assert_eq!(kinds, [(Role::User, MessageKind::Normal), (Role::Assistant, MessageKind::Boundary)]);
    assert_eq!(w.store.conversation(&conv("d")).await.unwrap().messages, 2);
    // The next turn can go on.
    w.begin("c", "b").await;
}

/// The store's share of a drain. What waited for the row of the conversation while the owner was retired looks at the
/// owner behind the wait, in its own transaction.
pub(super) async fn s17_a_retired_owner_accepts_nothing_new_and_loses_nothing(w: &World) {
    let by = |name: &str, input: NewAdmission| NewAdmission { submitted_by: owner(name), ..input };
    let (old, other) = (w.another().await, w.another().await);
    w.beat("a").await;
    w.beat("b").await;
    let first = w.admit(input("c", "r1", "hello")).await;
    let before = old.wait_for_change(&conv("c"), -1, 0).await.unwrap();
    w.store.retire(&owner("a")).await.unwrap();
    let is_refused = |result: Result<AdmitOutcome, StoreError>| match result {
        Err(error @ StoreError::Retired) => error.code() == "HM1022",
        other => panic!("expected Retired, got {other:?}"),
    };
    // Nothing new, on no way, and nothing is left of it.
    assert!(is_refused(old.admit(input("c", "r2", "more")).await));
    assert!(is_refused(old.create_and_admit(new_conversation("c"), input("c", "r2", "more")).await));
    assert!(is_refused(old.create_and_admit(new_conversation("d"), input("d", "r1", "more")).await));
    assert!(is_not_found(w.store.conversation(&conv("d")).await));
    assert_eq!(w.store.wait_for_change(&conv("c"), -1, 0).await.unwrap(), before);
    assert_eq!(old.admission_of(&conv("c"), "user", "r2").await.unwrap(), None);
    // What was accepted stays accepted, and is no other request.
    assert_eq!(old.admit(input("c", "r1", "hello")).await.unwrap(), AdmitOutcome::Replayed(first.clone()));
    assert!(is_conflict(old.admit(input("c", "r1", "bye")).await));
    let known = old.admission_of(&conv("c"), "user", "r1").await.unwrap().unwrap();
    assert_eq!((known.receipt.clone(), known.payload.as_str()), (first.clone(), "hello"));
    assert_eq!(old.admission_of(&conv("c"), "other", "r1").await.unwrap(), None);
    // Another owner accepts and runs, also what the first one left, and its own inputs come behind it.
    let next = other.admit(by("b", input("c", "r2", "more"))).await.unwrap();
    let own = ClaimPolicy::OwnOrOrphaned { orphan_after_ms: 1_000_000_000 };
    for receipt in [&first, next.receipt()] {
        let request = w.request("c", "b", own);
        let turn = request.turn.clone();
        let ClaimOutcome::Turn { fence, admission, .. } = other.claim(request).await.unwrap() else {
            panic!("what a retired owner left waits for nobody");
        };
        assert_eq!(admission.receipt.admission, receipt.admission);
        other.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    }
    // An owner that comes back accepts again.
    w.beat("a").await;
    assert!(matches!(old.admit(input("c", "r3", "again")).await, Ok(AdmitOutcome::Accepted(_))));
}

pub(super) async fn i04_s18_a_steer_is_taken_once(w: &World) {
    let (fence, turn, receipt) = w.begin("c", "a").await;
    let one = |admission: &crate::AdmissionRecord| NewMessage {
        kind: MessageKind::Steer,
        ..NewMessage::text(message_id(&format!("row-{}", admission.request_id)), Role::User, admission.payload.clone())
    };
    let make = |taken: &[crate::AdmissionRecord]| taken.iter().map(one).collect();
    assert_eq!(w.store.take_steers(&fence, &turn, &make).await.unwrap(), []);
    w.admit(input("c", "q", "queued")).await;
    for request in ["s1", "s2"] {
        w.admit(NewAdmission { intent: Intent::Steer, ..input("c", request, request) }).await;
    }
    let taken = w.store.take_steers(&fence, &turn, &make).await.unwrap();
    assert_eq!(taken.iter().map(|a| a.payload.as_str()).collect::<Vec<_>>(), ["s1", "s2"]);
    for steer in &taken {
        assert_eq!(steer.receipt.outcome, Some(AdmissionOutcome::Completed));
        assert_eq!((&steer.receipt.turn, steer.receipt.generation), (&Some(turn.clone()), receipt.generation));
        assert_eq!(&w.store.admission(&steer.receipt.admission).await.unwrap(), steer);
    }
    assert_eq!(w.store.take_steers(&fence, &turn, &make).await.unwrap(), []);
    // What was taken is bound to this generation: nobody takes it again, whoever recovers the turn or repeats the input.
    let again = NewAdmission { intent: Intent::Steer, ..input("c", "s1", "s1") };
    assert_eq!(w.store.admit(again).await.unwrap(), AdmitOutcome::Replayed(taken[0].receipt.clone()));
    w.store.release(&fence).await.unwrap();
    let ClaimOutcome::Recover { fence, .. } = w.claim("c", "b").await else { panic!("not recovered") };
    w.store.adopt_turn(&fence, &turn).await.unwrap();
    assert_eq!(w.store.take_steers(&fence, &turn, &make).await.unwrap(), []);
    let texts: Vec<_> = w.rows("c", View::Model).await.into_iter().map(|row| row.content).collect();
    assert_eq!(texts, ["hello", "s1", "s2"]);
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    // A steer that no turn was there for becomes a turn of its own, after those before it.
    w.admit(NewAdmission { intent: Intent::Steer, ..input("c", "s3", "s3") }).await;
    // And so does a redirect.
    w.admit(NewAdmission { intent: Intent::Redirect, ..input("c", "r", "r") }).await;
    let mut last = receipt.generation;
    for request in ["q", "s3", "r"] {
        let (fence, turn, receipt) = w.start("c", "a").await;
        assert_eq!(w.store.admission(&receipt.admission).await.unwrap().request_id, request);
        assert!(receipt.generation > last);
        last = receipt.generation;
        w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
        let over = w.store.admission(&receipt.admission).await.unwrap().receipt;
        assert_eq!((over.turn, over.generation), (Some(turn), receipt.generation));
    }
    assert_eq!(w.claim("c", "a").await, ClaimOutcome::Empty, "none of them comes again");
}

pub(super) async fn i04_a_redirect_is_taken_once_with_what_it_cut_off(w: &World) {
    let (fence, turn, receipt) = w.begin("c", "a").await;
    for (intent, request) in
        [(Intent::Redirect, "r1"), (Intent::Queue, "q"), (Intent::Steer, "s"), (Intent::Redirect, "r2")]
    {
        w.admit(NewAdmission { intent, ..input("c", request, request) }).await;
    }
    let make = |taken: &[crate::AdmissionRecord]| {
        let cut =
            NewMessage { kind: MessageKind::Partial, ..NewMessage::text(message_id("cut"), Role::Assistant, "so f") };
        let one = |a: &crate::AdmissionRecord| NewMessage {
            kind: MessageKind::Steer,
            ..NewMessage::text(message_id(&format!("row-{}", a.request_id)), Role::User, a.payload.clone())
        };
        std::iter::once(cut).chain(taken.iter().map(one)).collect()
    };
    let taken = w.store.take_steers(&fence, &turn, &make).await.unwrap();
    assert_eq!(taken.iter().map(|a| a.payload.as_str()).collect::<Vec<_>>(), ["r1", "s", "r2"]);
    for admission in &taken {
        assert_eq!(admission.receipt.outcome, Some(AdmissionOutcome::Completed));
        assert_eq!((&admission.receipt.turn, admission.receipt.generation), (&Some(turn.clone()), receipt.generation));
        assert_eq!(&w.store.admission(&admission.receipt.admission).await.unwrap(), admission);
    }
    // Nothing is left to take: nothing is written, not even what would stand before it.
    assert_eq!(w.store.take_steers(&fence, &turn, &make).await.unwrap(), []);
    let texts: Vec<_> = w.rows("c", View::Model).await.into_iter().map(|row| row.content).collect();
    assert_eq!(texts, ["hello", "so f", "r1", "s", "r2"]);
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
}

pub(super) async fn i27_hostile_content_is_kept_as_it_is(w: &World) {
    let nasty = ["nul \0 in the middle", "👩‍👩‍👧‍👦🇩🇪", "{not json", "'; DROP TABLE messages; --", "\u{202e}abc", "%_\\", ""];
    let line = "x".repeat(5_000_000);
    for (number, content) in nasty.iter().copied().chain([line.as_str()]).enumerate() {
        let name = format!("c{number}");
        let request =
            NewAdmission { principal: content[..content.len().min(40)].to_owned(), ..input(&name, "r", content) };
        w.admit(request.clone()).await;
        let (fence, turn, receipt) = w.start(&name, "a").await;
        let record = w.another().await.admission(&receipt.admission).await.unwrap();
        assert!(record.payload == content && record.principal == request.principal, "payload {number}");
        let row = text(&format!("row{number}"), Role::User, content);
        w.store.open_session(&fence, &turn, session(&name, None, &name), vec![row]).await.unwrap();
        w.round(&fence, &turn, &format!("round{number}"), vec![super::call(&format!("k{number}"))]).await;
        let call = super::call_id(&format!("k{number}"));
        w.store.settle_call(&fence, &turn, &call, ok(content)).await.unwrap();
        let rows = w.rows(&name, View::Model).await;
        assert!(rows[0].content == content && rows[2].content == content, "content {number}");
        w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    }
    let found = async |text: &str| w.store.search(crate::SearchQuery::text(text)).await.unwrap().hits.len();
    assert_eq!(found("in the MIDDLE").await, 2, "search looks beyond a NUL");
    assert_eq!(found("%_\\").await, 1, "wild cards are plain text, which is not looked for in tool rows");
    assert!(w.store.retire(&owner("nobody")).await.is_ok());
}
