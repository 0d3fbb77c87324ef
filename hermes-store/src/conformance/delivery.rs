//! What comes in from people and goes out to them: each message once, each answer until it was delivered or given up.

use super::{
    World, completed, conv, end, input, is_conflict, is_fenced, is_invalid, is_not_found, new_conversation, owner,
    text, turn_id,
};
use crate::limits::{
    ADDRESS_MAX_BYTES, INBOUND_KEEP_MS, REPLIES_MAX, SEND_ATTEMPTS_MAX, SEND_BACKOFF_MS, SEND_KEEP_MS, SEND_KEEP_ROWS,
    SEND_LEASE_MAX_MS, SEND_STALE_MS,
};
use crate::{
    AdmissionId, AdmissionOutcome, AdmissionStatus, AmbiguousPolicy, ClaimPolicy, DeliveryClaim, DeliveryDecision,
    DeliveryFence, DeliveryFilter, DeliveryKind, DeliveryRecord, DeliveryRequest, DeliveryState, Fence, Generation,
    Inbound, InboundKey, InboundReceipt, MessageRef, NewAdmission, NewDelivery, ReceiveOutcome, Reply, RetryAfter,
    Role, Route, RouteKey, RouteOutcome, Store, StoreError, Target, TurnId,
};

const LEASE_MS: u64 = 60_000;
const FAILED: &str = "failed";

fn target(chat: &str) -> Target {
    Target { account: "telegram:1".to_owned(), chat: chat.to_owned(), thread: String::new() }
}

/// Message `id` of chat `chat`, whose answer goes back there.
fn message(chat: &str, id: &str) -> Inbound {
    Inbound {
        key: InboundKey {
            account: "telegram:1".to_owned(),
            chat: chat.to_owned(),
            message: MessageRef::Platform(id.to_owned()),
        },
        content: format!("text of {id}"),
        replies: vec![Reply { target: target(chat), reply_to: Some(id.to_owned()) }],
        route: None,
    }
}

fn route_key() -> RouteKey {
    RouteKey { source: "telegram".to_owned(), key: "7".to_owned() }
}

fn accepted(outcome: ReceiveOutcome) -> InboundReceipt {
    match outcome {
        ReceiveOutcome::Accepted(receipt) => receipt,
        other => panic!("not accepted: {other:?}"),
    }
}

fn replayed(outcome: ReceiveOutcome) -> InboundReceipt {
    match outcome {
        ReceiveOutcome::Replayed(receipt) => receipt,
        other => panic!("not replayed: {other:?}"),
    }
}

fn set(outcome: RouteOutcome) -> Route {
    match outcome {
        RouteOutcome::Set(route) => route,
        other => panic!("not set: {other:?}"),
    }
}

impl World {
    /// Receives a message into a conversation that is made for it.
    async fn receive(&self, inbound: Inbound, conversation: &str, request: &str) -> ReceiveOutcome {
        let new = Some(new_conversation(conversation));
        self.store.receive(inbound, new, input(conversation, request, "hello")).await.unwrap()
    }

    /// A turn on message `id` of chat 7 that has said `answer`.
    async fn answered(&self, conversation: &str, id: &str, answer: &str) -> (Fence, TurnId) {
        accepted(self.receive(message("7", id), conversation, id).await);
        let (fence, turn, _) = self.start(conversation, "a").await;
        let rows = vec![text(&self.fresh("answer"), Role::Assistant, answer)];
        if self.store.conversation(&conv(conversation)).await.unwrap().tip.is_none() {
            let new = super::session(conversation, None, conversation);
            self.store.open_session(&fence, &turn, new, rows).await.unwrap();
        } else {
            self.store.append(&fence, &turn, rows, None).await.unwrap();
        }
        (fence, turn)
    }

    /// The delivery of a turn that answered message `id` of chat 7.
    async fn owed(&self, conversation: &str, id: &str) -> DeliveryRecord {
        let (fence, turn) = self.answered(conversation, id, id).await;
        self.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
        let all = self.deliveries(conversation).await;
        all.into_iter().find(|d| d.turn == turn).expect("a settled turn owes its answer")
    }

    async fn deliveries(&self, conversation: &str) -> Vec<DeliveryRecord> {
        let filter = DeliveryFilter { conversation: Some(conv(conversation)), ..DeliveryFilter::default() };
        self.store.deliveries(filter).await.unwrap()
    }

    async fn ask_to_send(&self, who: &str, ambiguous: AmbiguousPolicy) -> DeliveryClaim {
        let request =
            DeliveryRequest { account: "telegram:1".to_owned(), owner: owner(who), lease_ms: LEASE_MS, ambiguous };
        self.store.claim_delivery(request).await.unwrap()
    }

    async fn send(&self, who: &str) -> (DeliveryFence, DeliveryRecord) {
        match self.ask_to_send(who, AmbiguousPolicy::Resend).await {
            DeliveryClaim::Send { fence, delivery } => (fence, *delivery),
            other => panic!("nothing to send: {other:?}"),
        }
    }

    async fn idle(&self, who: &str, ambiguous: AmbiguousPolicy) -> Option<i64> {
        match self.ask_to_send(who, ambiguous).await {
            DeliveryClaim::Idle { next_at_ms } => next_at_ms,
            other => panic!("not idle: {other:?}"),
        }
    }
}

pub(super) async fn i05_a_redelivered_message_gets_its_first_receipt(w: &World) {
    let first = accepted(w.receive(message("7", "m1"), "c", "r1").await);
    let other = w.another().await;
    // Whatever the redelivery brings along: another admission id, another request id, another conversation.
    for (conversation, request) in [("c", "r1"), ("c", "r2"), ("d", "r1")] {
        let again = input(conversation, request, "hello again");
        let outcome = other.receive(message("7", "m1"), Some(new_conversation(conversation)), again).await.unwrap();
        assert_eq!(replayed(outcome), first);
    }
    assert_eq!(other.queue(&conv("c")).await.unwrap().len(), 1);
    assert!(is_not_found(other.conversation(&conv("d")).await));
    // Another chat counts its messages by itself, and so does another account.
    let elsewhere =
        Inbound { key: InboundKey { account: "telegram:2".to_owned(), ..first.key.clone() }, ..message("7", "m1") };
    accepted(w.receive(message("8", "m1"), "c", "r3").await);
    accepted(w.receive(elsewhere, "c", "r4").await);
    assert_eq!(other.inbound(&first.key).await.unwrap(), Some(first));
    assert_eq!(other.inbound(&message("7", "m9").key).await.unwrap(), None);
}

pub(super) async fn s15_a_redelivery_after_a_reset_or_a_deletion_runs_nothing(w: &World) {
    let (fence, turn) = w.answered("c", "m1", "done").await;
    w.store.settle_turn(&fence, &turn, completed(), false).await.unwrap();
    let receipt = replayed(w.receive(message("7", "m1"), "c2", "r1").await);
    let admission = receipt.admission.clone().unwrap();
    assert_eq!(admission.outcome, Some(AdmissionOutcome::Completed));
    assert_eq!((receipt.conversation.as_str(), admission.turn), ("c", Some(turn)));
    w.store.delete_conversation(&fence).await.unwrap();
    assert_eq!(replayed(w.receive(message("7", "m1"), "c2", "r1").await), receipt);
    assert!(is_not_found(w.store.conversation(&conv("c2")).await));
    // The conversation under its old id does not bring it back either.
    accepted(w.receive(message("7", "m2"), "c", "m2").await);
    assert_eq!(replayed(w.receive(message("7", "m1"), "c", "m1").await), receipt);
}

pub(super) async fn s15_concurrent_receives_of_one_message_make_one_admission(w: &World) {
    let (x, y) = (w.another().await, w.another().await);
    let receive = |store: std::sync::Arc<dyn Store>, number: usize| async move {
        let conversation = ["c", "d"][number % 2];
        let new = Some(new_conversation(conversation));
        store.receive(message("7", "m1"), new, input(conversation, &format!("r{number}"), "hello")).await.unwrap()
    };
    let all = tokio::join!(receive(x.clone(), 0), receive(y.clone(), 1), receive(x, 2), receive(y, 3));
    let all = [all.0, all.1, all.2, all.3];
    assert_eq!(all.iter().filter(|one| matches!(one, ReceiveOutcome::Accepted(_))).count(), 1);
    let admissions: std::collections::BTreeSet<AdmissionId> = all
        .into_iter()
        .map(|one| match one {
            ReceiveOutcome::Accepted(receipt) | ReceiveOutcome::Replayed(receipt) => {
                receipt.admission.unwrap().admission
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(admissions.len(), 1);
}

pub(super) async fn s16_a_message_without_an_id_has_an_offset_or_none(w: &World) {
    let with = |message_ref: MessageRef| Inbound {
        key: InboundKey { message: message_ref, ..message("7", "x").key },
        ..message("7", "x")
    };
    let offset = || with(MessageRef::Offset("41".to_owned()));
    let first = accepted(w.receive(offset(), "c", "r1").await);
    assert_eq!(replayed(w.receive(offset(), "c", "r2").await), first);
    // Without either, only the repetition of the same call is recognised.
    let none = || with(MessageRef::NotIdempotent);
    let one = accepted(w.receive(none(), "c", "r3").await);
    assert_eq!(replayed(w.receive(none(), "c", "r3").await), one);
    accepted(w.receive(none(), "c", "r4").await);
    assert_eq!(w.store.queue(&conv("c")).await.unwrap().len(), 3);
    assert_eq!(w.store.inbound(&none().key).await.unwrap(), None);
}

pub(super) async fn i05_an_edited_message_is_no_second_turn(w: &World) {
    let first = accepted(w.receive(message("7", "m1"), "c", "r1").await);
    let edit = |words: &str| Inbound { content: words.to_owned(), ..message("7", "m1") };
    for (words, want_new, edits) in [("one", true, 1), ("one", false, 1), ("two", true, 2)] {
        match w.receive(edit(words), "c", "r2").await {
            ReceiveOutcome::Edited { receipt, is_new } => {
                assert_eq!((is_new, receipt.edits), (want_new, edits), "{words}");
                assert_eq!(receipt.admission, first.admission);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(replayed(w.receive(message("7", "m1"), "c", "r3").await).edits, 2);
    assert_eq!(w.store.queue(&conv("c")).await.unwrap().len(), 1);
}

pub(super) async fn i01_a_message_that_is_refused_may_come_again(w: &World) {
    w.admit(input("c", "r1", "hello")).await;
    // Its admission id is taken: nothing of it is written, and the message itself is not counted as received.
    let taken = NewAdmission { request_id: "r9".to_owned(), ..input("c", "r1", "hello") };
    assert!(is_conflict(w.store.receive(message("7", "m1"), None, taken).await));
    assert!(is_not_found(w.store.receive(message("7", "m1"), None, input("nowhere", "r1", "hello")).await));
    let mut twice = message("7", "m1");
    twice.replies.push(twice.replies[0].clone());
    let mut many = message("7", "m1");
    many.replies = (0..=REPLIES_MAX).map(|n| Reply { target: target(&n.to_string()), reply_to: None }).collect();
    let mut long = message("7", "m1");
    long.key.chat = "x".repeat(ADDRESS_MAX_BYTES + 1);
    for bad in [twice, many, long] {
        let refused = w.store.receive(bad, None, input("c", "r2", "hello")).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. } | StoreError::Limit { .. })), "{refused:?}");
    }
    // What was admitted without a message is replayed by its request id, and writes no receipt.
    let known = w.store.receive(message("7", "m1"), None, input("c", "r1", "hello")).await.unwrap();
    assert_eq!(replayed(known).admission.unwrap().admission.as_str(), "adm-c-r1");
    assert_eq!(w.store.inbound(&message("7", "m1").key).await.unwrap(), None);
    accepted(w.store.receive(message("7", "m1"), None, input("c", "r2", "hello")).await.unwrap());
}

pub(super) async fn i05_receipts_are_kept_until_no_platform_sends_again(w: &World) {
    accepted(w.receive(message("7", "m1"), "c", "m1").await);
    accepted(w.receive(message("7", "m2"), "c", "m2").await);
    let (fence, turn, _) = w.start("c", "a").await;
    w.clock.advance(i64::try_from(INBOUND_KEEP_MS).unwrap() - 1);
    assert_eq!(w.store.prune_inbound().await.unwrap(), 0);
    w.clock.advance(1);
    // One is being worked on, the other waits.
    assert_eq!(w.store.prune_inbound().await.unwrap(), 0);
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    assert_eq!(w.store.prune_inbound().await.unwrap(), 1);
    assert_eq!(w.store.inbound(&message("7", "m1").key).await.unwrap(), None);
    replayed(w.receive(message("7", "m2"), "c", "m9").await);
}

pub(super) async fn s15_a_route_leads_where_its_newest_generation_says(w: &World) {
    let key = route_key();
    assert_eq!(
        w.store.route(&key).await.unwrap(),
        Route { key: key.clone(), conversation: None, generation: Generation(0) }
    );
    let routed = |id: &str, seen| Inbound { route: Some((route_key(), Generation(seen))), ..message("7", id) };
    accepted(w.receive(routed("m1", 0), "c", "r1").await);
    let first = w.store.route(&key).await.unwrap();
    assert_eq!((first.conversation.clone(), first.generation), (Some(conv("c")), Generation(1)));
    accepted(w.receive(routed("m2", 1), "c", "r2").await);
    assert_eq!(w.store.route(&key).await.unwrap(), first);
    // The reset, and a message that was on its way to the old conversation.
    let command = || Some(message("7", "reset").key);
    let reset = w.store.reset_route(&key, Generation(1), new_conversation("d"), command()).await.unwrap();
    let second = set(reset);
    assert_eq!((second.conversation.clone(), second.generation), (Some(conv("d")), Generation(2)));
    assert!(w.store.conversation(&conv("d")).await.is_ok());
    assert_eq!(w.receive(routed("m3", 1), "c", "r3").await, ReceiveOutcome::Moved(second.clone()));
    assert_eq!(w.receive(routed("m3", 2), "c", "r3").await, ReceiveOutcome::Moved(second.clone()));
    accepted(w.receive(routed("m3", 2), "d", "r3").await);
    // The command comes again; an old message comes again, to the new conversation.
    let again = w.store.reset_route(&key, Generation(2), new_conversation("e"), command()).await.unwrap();
    assert_eq!(again, RouteOutcome::Replayed(second.clone()));
    let receipt = replayed(w.receive(routed("m1", 2), "d", "r9").await);
    assert_eq!(receipt.conversation, conv("c"));
    let by = w.store.inbound(&command().unwrap()).await.unwrap().unwrap();
    assert_eq!((by.conversation, by.admission), (conv("d"), None));
    // Two resets that saw the same: one moves.
    let late = w.store.reset_route(&key, Generation(1), new_conversation("e"), None).await.unwrap();
    assert_eq!(late, RouteOutcome::Stale(second.clone()));
    assert!(is_not_found(w.store.conversation(&conv("e")).await));
    // The reset whose answer was lost.
    let repeated = w.store.reset_route(&key, Generation(1), new_conversation("d"), None).await.unwrap();
    assert_eq!(set(repeated), second);
}

pub(super) async fn i08_an_old_generation_never_moves_a_route(w: &World) {
    let key = route_key();
    for name in ["c", "d"] {
        w.admit(input(name, "r1", "x")).await;
    }
    assert!(is_invalid(w.store.set_route(&key, Generation(1), &conv("c")).await), "never handed out");
    let one = w.store.next_generation(&key.source, &key.key).await.unwrap();
    let two = w.store.next_generation(&key.source, &key.key).await.unwrap();
    let routed = set(w.store.set_route(&key, two, &conv("d")).await.unwrap());
    assert_eq!(w.store.set_route(&key, one, &conv("c")).await.unwrap(), RouteOutcome::Stale(routed.clone()));
    assert_eq!(set(w.store.set_route(&key, two, &conv("d")).await.unwrap()), routed);
    assert!(is_conflict(w.store.set_route(&key, two, &conv("c")).await));
    assert!(is_not_found(w.store.set_route(&key, two, &conv("nowhere")).await));
    // Its conversation goes: the route leads nowhere, and its generation stays.
    let fence = w.lease("d", "a").await;
    let head = w.store.queue(&conv("d")).await.unwrap().remove(0);
    w.store.cancel(&head.receipt.admission).await.unwrap();
    w.store.delete_conversation(&fence).await.unwrap();
    let left = w.store.route(&key).await.unwrap();
    assert_eq!((left.conversation, left.generation), (None, two));
    let stale = Inbound { route: Some((key.clone(), one)), ..message("7", "m1") };
    assert!(matches!(w.receive(stale, "e", "r1").await, ReceiveOutcome::Moved(_)));
    let fresh = Inbound { route: Some((key.clone(), two)), ..message("7", "m1") };
    accepted(w.receive(fresh, "e", "r1").await);
    let three = w.store.route(&key).await.unwrap();
    assert_eq!((three.conversation, three.generation > two), (Some(conv("e")), true));
    assert!(w.store.next_generation(&key.source, &key.key).await.unwrap() > three.generation);
}

pub(super) async fn i15_an_answer_that_is_owed_is_recorded_with_the_end_of_its_turn(w: &World) {
    let (fence, turn) = w.answered("c", "m1", "the answer").await;
    assert_eq!(w.deliveries("c").await, [], "nothing is owed before the turn ends");
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    let all = w.another().await.deliveries(DeliveryFilter::default()).await.unwrap();
    assert_eq!(all.len(), 1);
    let one = &all[0];
    assert_eq!(
        (one.kind, one.state, one.content.as_str()),
        (DeliveryKind::Answer, DeliveryState::Pending, "the answer")
    );
    assert_eq!((&one.target, one.reply_to.as_deref(), &one.turn), (&target("7"), Some("m1"), &turn));
    assert_eq!(w.store.delivery(&one.id).await.unwrap(), *one);
}

pub(super) async fn i15_whoever_ends_the_turn_the_answer_is_owed(w: &World) {
    // A crash between the answer and the end: the next owner ends the turn, and knows nothing of deliveries.
    let (_, turn) = w.answered("c", "m1", "the answer").await;
    w.probe.kill(&owner("a"));
    w.beat("a").await;
    let fence = match w.claim("c", "b").await {
        crate::ClaimOutcome::Recover { fence, .. } => fence,
        other => panic!("{other:?}"),
    };
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    assert_eq!(w.deliveries("c").await[0].content, "the answer");
    // An operator closes one that nobody could judge.
    let (fence, turn) = w.answered("d", "m2", "half").await;
    w.store.lose_turn(&fence, &turn).await.unwrap();
    assert_eq!(w.deliveries("d").await, []);
    let record = w.store.turn(&turn).await.unwrap();
    w.store.resolve_unknown(&record.admission, record.generation, end(FAILED, AdmissionOutcome::Failed)).await.unwrap();
    let notice = &w.deliveries("d").await[0];
    assert_eq!((notice.kind, notice.content.as_str()), (DeliveryKind::Notice, FAILED));
    // One that is put back owes its answer still.
    accepted(w.receive(message("7", "m3"), "e", "m3").await);
    let (fence, turn, _) = w.start("e", "b").await;
    w.store.requeue(&fence, &turn).await.unwrap();
    let next = turn_id("next");
    let request = crate::ClaimRequest { turn: next.clone(), ..w.request("e", "b", ClaimPolicy::Any) };
    w.store.release(&fence).await.unwrap();
    let outcome = w.store.claim(request).await.unwrap();
    let crate::ClaimOutcome::Turn { fence, .. } = outcome else { panic!("{outcome:?}") };
    w.store.settle_turn(&fence, &next, end(FAILED, AdmissionOutcome::Failed), true).await.unwrap();
    let owed = w.deliveries("e").await;
    assert_eq!((owed.len(), owed[0].turn.clone()), (1, next));
}

pub(super) async fn i04_a_steer_from_another_chat_gets_the_answer_too(w: &World) {
    let (fence, turn) = w.answered("c", "m1", "first").await;
    for (chat, id) in [("8", "m2"), ("7", "m3")] {
        let steer = NewAdmission { intent: crate::Intent::Steer, ..input("c", id, "and that") };
        accepted(w.store.receive(message(chat, id), None, steer).await.unwrap());
    }
    let one = |a: &crate::AdmissionRecord| text(&format!("steer-{}", a.request_id), Role::User, &a.payload);
    let make = |taken: &[crate::AdmissionRecord]| taken.iter().map(one).collect();
    assert_eq!(w.store.take_steers(&fence, &turn, &make).await.unwrap().len(), 2);
    let row = text("final", Role::Assistant, "both");
    w.store.append(&fence, &turn, vec![row], None).await.unwrap();
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    let mut owed: Vec<_> =
        w.deliveries("c").await.into_iter().map(|d| (d.target.chat, d.reply_to.unwrap(), d.content)).collect();
    owed.sort();
    let want = [("7", "m1", "both"), ("8", "m2", "both")].map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(owed, want, "each chat once, as its first input asked");
}

pub(super) async fn i17_a_recorded_delivery_may_be_repeated(w: &World) {
    let (fence, turn) = w.answered("c", "m1", "one two").await;
    let part = |number: i64, words: &str| NewDelivery {
        kind: DeliveryKind::Answer,
        part: number,
        target: target("7"),
        reply_to: None,
        content: words.to_owned(),
    };
    let parts = || vec![part(0, "one"), part(1, "two")];
    let first = w.store.record_deliveries(&fence, &turn, parts()).await.unwrap();
    assert_eq!(w.store.record_deliveries(&fence, &turn, parts()).await.unwrap(), first);
    assert!(is_conflict(w.store.record_deliveries(&fence, &turn, vec![part(1, "other")]).await));
    let aside = NewDelivery { kind: DeliveryKind::Message, ..part(0, "by the way") };
    w.store.record_deliveries(&fence, &turn, vec![aside]).await.unwrap();
    w.store.settle_turn(&fence, &turn, completed(), false).await.unwrap();
    assert_eq!(w.deliveries("c").await.len(), 3, "the turn's own parts are its answer");
    assert!(is_invalid(w.store.record_deliveries(&fence, &turn, parts()).await), "the turn is over");
    // In the order in which they were recorded.
    for want in ["one", "two", "by the way"] {
        let (sent, delivery) = w.send("s").await;
        assert_eq!(delivery.content, want);
        w.store.confirm_delivery(&sent).await.unwrap();
    }
    w.store.release(&fence).await.unwrap();
    w.lease("c", "b").await;
    assert!(is_fenced(w.store.record_deliveries(&fence, &turn, parts()).await));
}

pub(super) async fn s44_a_delivery_is_sent_once_and_says_what_became_of_it(w: &World) {
    let owed = w.owed("c", "m1").await;
    let (fence, delivery) = w.send("s").await;
    assert_eq!((&delivery.id, delivery.state, delivery.attempt), (&owed.id, DeliveryState::Attempting, 1));
    assert!(!delivery.may_be_duplicate);
    assert_eq!(w.idle("s", AmbiguousPolicy::Resend).await, delivery.lease_expires_ms);
    w.store.confirm_part(&fence, 0, "p1", LEASE_MS).await.unwrap();
    w.store.confirm_part(&fence, 0, "p1", LEASE_MS).await.unwrap();
    assert!(is_conflict(w.store.confirm_part(&fence, 0, "p2", LEASE_MS).await));
    assert!(is_invalid(w.store.confirm_part(&fence, 2, "p3", LEASE_MS).await));
    for _ in 0..2 {
        w.store.confirm_delivery(&fence).await.unwrap();
    }
    let done = w.another().await.delivery(&owed.id).await.unwrap();
    assert_eq!((done.state, done.platform_ids.as_slice()), (DeliveryState::Delivered, ["p1".to_owned()].as_slice()));
    assert_eq!(w.idle("s", AmbiguousPolicy::Resend).await, None);
    assert!(is_invalid(w.store.fail_delivery(&fence, "late", RetryAfter::Backoff).await));
}

pub(super) async fn s44_a_crash_between_send_and_ack_is_ambiguous_and_resent_only_by_policy(w: &World) {
    let owed = w.owed("c", "m1").await;
    w.beat("s").await;
    let (dead, _) = w.send("s").await;
    w.store.confirm_part(&dead, 0, "p1", LEASE_MS).await.unwrap();
    w.probe.kill(&owner("s"));
    // A claimer that leaves such alone finds nothing to do, and the doubt is written down.
    assert_eq!(w.idle("t", AmbiguousPolicy::Leave).await, None);
    assert_eq!(w.store.delivery(&owed.id).await.unwrap().state, DeliveryState::Ambiguous);
    let (fence, delivery) = w.send("t").await;
    assert!(delivery.may_be_duplicate);
    assert_eq!((delivery.attempt, delivery.platform_ids.as_slice()), (2, ["p1".to_owned()].as_slice()));
    assert!(is_fenced(w.store.confirm_delivery(&dead).await));
    assert!(is_fenced(w.store.confirm_part(&dead, 1, "p2", LEASE_MS).await));
    assert!(is_fenced(w.store.fail_delivery(&dead, "x", RetryAfter::Never).await));
    w.store.confirm_delivery(&fence).await.unwrap();
    assert!(w.store.delivery(&owed.id).await.unwrap().may_be_duplicate);
}

pub(super) async fn s44_a_slow_sender_comes_back_with_the_truth(w: &World) {
    let (sent, failed) = (w.owed("c", "m1").await, w.owed("d", "m2").await);
    let (first, _) = w.send("s").await;
    w.clock.advance(i64::try_from(LEASE_MS).unwrap());
    assert!(matches!(w.ask_to_send("t", AmbiguousPolicy::Leave).await, DeliveryClaim::Send { .. }), "the next goes on");
    assert_eq!(w.store.delivery(&sent.id).await.unwrap().state, DeliveryState::Ambiguous);
    w.store.confirm_delivery(&first).await.unwrap();
    assert_eq!(w.store.delivery(&sent.id).await.unwrap().state, DeliveryState::Delivered);
    w.clock.advance(i64::try_from(LEASE_MS).unwrap());
    assert_eq!(w.idle("t", AmbiguousPolicy::Leave).await, None);
    let late = DeliveryFence::new(failed.id.clone(), 1);
    w.store.fail_delivery(&late, "never connected", RetryAfter::Given(5)).await.unwrap();
    let now = w.store.delivery(&failed.id).await.unwrap();
    assert_eq!((now.state, now.may_be_duplicate), (DeliveryState::Failed, false));
}

pub(super) async fn s44_an_operator_decides_about_the_exact_attempt(w: &World) {
    let owed = w.owed("c", "m1").await;
    w.send("s").await;
    assert!(is_invalid(w.store.decide_delivery(&owed.id, 1, DeliveryDecision::Abandon("x".to_owned())).await));
    w.clock.advance(i64::try_from(LEASE_MS).unwrap());
    w.idle("t", AmbiguousPolicy::Leave).await;
    assert!(is_invalid(w.store.decide_delivery(&owed.id, 0, DeliveryDecision::Resend).await));
    for _ in 0..2 {
        let again = w.store.decide_delivery(&owed.id, 1, DeliveryDecision::Resend).await.unwrap();
        assert_eq!((again.state, again.may_be_duplicate), (DeliveryState::Pending, true));
    }
    let DeliveryClaim::Send { fence, .. } = w.ask_to_send("t", AmbiguousPolicy::Leave).await else {
        panic!("not sent")
    };
    w.clock.advance(i64::try_from(LEASE_MS).unwrap());
    w.idle("t", AmbiguousPolicy::Leave).await;
    let arrived = w.store.decide_delivery(&owed.id, fence.attempt(), DeliveryDecision::Delivered).await.unwrap();
    assert_eq!(arrived.state, DeliveryState::Delivered);
    assert!(is_invalid(w.store.decide_delivery(&owed.id, 2, DeliveryDecision::Resend).await));
    let unknown = crate::DeliveryId::parse("none").unwrap();
    assert!(is_not_found(w.store.decide_delivery(&unknown, 0, DeliveryDecision::Resend).await));
}

pub(super) async fn deliveries_of_a_chat_are_sent_in_order_and_chats_do_not_wait(w: &World) {
    w.owed("c", "m1").await;
    w.owed("d", "m2").await;
    accepted(w.receive(message("8", "m3"), "e", "m3").await);
    let (fence, turn, _) = w.start("e", "a").await;
    w.store.settle_turn(&fence, &turn, end(FAILED, AdmissionOutcome::Failed), true).await.unwrap();
    let (first, delivery) = w.send("s").await;
    assert_eq!(delivery.content, "m1");
    // The chat is busy; another one is not.
    let (other, delivery) = w.send("t").await;
    assert_eq!(delivery.target.chat, "8");
    w.store.confirm_delivery(&other).await.unwrap();
    w.store.fail_delivery(&first, "slow down", RetryAfter::Backoff).await.unwrap();
    // A failure holds up those behind it until its pause is over.
    let pause = i64::try_from(SEND_BACKOFF_MS[0]).unwrap();
    let next = w.idle("s", AmbiguousPolicy::Resend).await.unwrap();
    assert_eq!(next, w.store.delivery(first.delivery()).await.unwrap().created_at_ms + pause);
    w.clock.advance(pause);
    let (first, delivery) = w.send("s").await;
    assert_eq!((delivery.content.as_str(), delivery.attempt, delivery.may_be_duplicate), ("m1", 2, false));
    w.store.fail_delivery(&first, "the chat is gone", RetryAfter::Never).await.unwrap();
    assert_eq!(w.store.delivery(first.delivery()).await.unwrap().state, DeliveryState::Abandoned);
    assert_eq!(w.send("s").await.1.content, "m2");
    // Another account's sender sees none of it.
    let request = DeliveryRequest {
        account: "telegram:2".to_owned(),
        owner: owner("s"),
        lease_ms: LEASE_MS,
        ambiguous: AmbiguousPolicy::Resend,
    };
    assert_eq!(w.store.claim_delivery(request.clone()).await.unwrap(), DeliveryClaim::Idle { next_at_ms: None });
    let long = DeliveryRequest { lease_ms: SEND_LEASE_MAX_MS + 1, ..request };
    assert!(matches!(w.store.claim_delivery(long).await, Err(StoreError::Limit { .. })));
}

pub(super) async fn s44_one_of_many_senders_gets_the_delivery(w: &World) {
    let owed = w.owed("c", "m1").await;
    let (x, y) = (w.another().await, w.another().await);
    let claim = |store: std::sync::Arc<dyn Store>, who: &'static str| async move {
        let request = DeliveryRequest {
            account: "telegram:1".to_owned(),
            owner: owner(who),
            lease_ms: LEASE_MS,
            ambiguous: AmbiguousPolicy::Resend,
        };
        store.claim_delivery(request).await.unwrap()
    };
    let all = tokio::join!(claim(x.clone(), "s"), claim(y.clone(), "t"), claim(x, "u"), claim(y, "v"));
    let got = [all.0, all.1, all.2, all.3].iter().filter(|one| matches!(one, DeliveryClaim::Send { .. })).count();
    assert_eq!((got, w.store.delivery(&owed.id).await.unwrap().attempt), (1, 1));
}

pub(super) async fn deliveries_are_given_up_and_pruned_within_their_limits(w: &World) {
    let owed = w.owed("c", "m1").await;
    for attempt in 1..=SEND_ATTEMPTS_MAX {
        let (fence, _) = w.send("s").await;
        assert_eq!(fence.attempt(), attempt);
        w.clock.advance(i64::try_from(LEASE_MS).unwrap());
    }
    assert_eq!(w.idle("s", AmbiguousPolicy::Resend).await, None, "three lost attempts are all");
    let gone = w.store.delivery(&owed.id).await.unwrap();
    assert_eq!((gone.state, gone.attempt), (DeliveryState::Abandoned, SEND_ATTEMPTS_MAX));
    // Too old, found by a claim or by the sweep.
    let stale = i64::try_from(SEND_STALE_MS).unwrap() + 1;
    let (one, two) = (w.owed("c", "m2").await, w.owed("d", "m3").await);
    w.clock.advance(stale);
    assert_eq!(w.store.prune_deliveries().await.unwrap(), 0);
    for id in [one.id, two.id] {
        assert_eq!(w.store.delivery(&id).await.unwrap().state, DeliveryState::Abandoned);
    }
    let last = w.owed("c", "m4").await;
    w.clock.advance(stale);
    assert_eq!(w.idle("s", AmbiguousPolicy::Resend).await, None);
    assert_eq!(w.store.delivery(&last.id).await.unwrap().state, DeliveryState::Abandoned);
    w.clock.advance(i64::try_from(SEND_KEEP_MS).unwrap() - stale);
    assert_eq!(w.store.prune_deliveries().await.unwrap(), 3);
    w.clock.advance(stale);
    assert_eq!(w.store.prune_deliveries().await.unwrap(), 1);
    assert_eq!(w.store.deliveries(DeliveryFilter::default()).await.unwrap(), []);
}

pub(super) async fn the_newest_deliveries_of_a_conversation_are_kept(w: &World) {
    let (fence, turn) = w.answered("c", "m1", "x").await;
    let many = |n: usize| NewDelivery {
        kind: DeliveryKind::Message,
        part: i64::try_from(n).unwrap(),
        target: target("7"),
        reply_to: None,
        content: n.to_string(),
    };
    let all = (0..SEND_KEEP_ROWS + 3).map(many).collect();
    let all = w.store.record_deliveries(&fence, &turn, all).await.unwrap();
    for (n, one) in all.iter().enumerate() {
        if n % 100 == 0 {
            w.clock.advance(1);
        }
        w.store.decide_delivery(&one.id, 0, DeliveryDecision::Abandon("not wanted".to_owned())).await.unwrap();
    }
    assert_eq!(w.store.prune_deliveries().await.unwrap(), 3);
    assert!(w.store.delivery(&all[SEND_KEEP_ROWS + 2].id).await.is_ok());
}

pub(super) async fn a_conversation_is_not_deleted_while_it_is_being_sent(w: &World) {
    let owed = w.owed("c", "m1").await;
    let (sent, _) = w.send("s").await;
    let fence = w.lease("c", "a").await;
    assert!(is_invalid(w.store.delete_conversation(&fence).await));
    w.store.fail_delivery(&sent, "no", RetryAfter::Backoff).await.unwrap();
    w.store.delete_conversation(&fence).await.unwrap();
    assert!(is_not_found(w.store.delivery(&owed.id).await));
    assert_eq!(w.idle("s", AmbiguousPolicy::Resend).await, None);
    assert!(is_not_found(w.store.confirm_delivery(&sent).await));
    let receipt = w.store.inbound(&message("7", "m1").key).await.unwrap().unwrap();
    assert_eq!(receipt.admission.unwrap().status, AdmissionStatus::Terminal);
}
