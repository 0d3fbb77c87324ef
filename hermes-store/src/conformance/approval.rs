//! Questions to people: answered once, by whoever may, in time; silence is no.

use super::{World, call, call_id, completed, conv, is_conflict, is_fenced, is_invalid, is_not_found, ok, owner};
use crate::limits::{APPROVAL_KEEP_MS, APPROVAL_TTL_MAX_MS, APPROVALS_OPEN_MAX};
use crate::{
    AnswerOutcome, AnswerRefusal, ApprovalAnswer, ApprovalId, ApprovalRecord, ApprovalState, ClaimOutcome, Fence,
    NewApproval, StoreError, TurnId,
};

const TTL: u64 = 1_000;

fn id(name: &str) -> ApprovalId {
    ApprovalId::parse(name).unwrap()
}

fn question(name: &str) -> NewApproval {
    NewApproval {
        id: id(name),
        call: call_id("k"),
        subject: "rm -r build".to_owned(),
        choices: vec!["once".to_owned(), "session".to_owned()],
        may_answer: vec!["ann".to_owned(), "bob".to_owned()],
        expires_in_ms: TTL,
    }
}

fn yes() -> ApprovalAnswer {
    ApprovalAnswer::Approve { choice: "once".to_owned() }
}

impl World {
    /// A running turn of `c` with the open call `k`, and a question about it.
    async fn asked(&self) -> (Fence, TurnId, ApprovalRecord) {
        let (fence, turn, _) = self.begin("c", "a").await;
        self.round(&fence, &turn, "round", vec![call("k")]).await;
        let asked = self.store.ask_approval(&fence, &turn, question("q")).await.unwrap();
        (fence, turn, asked)
    }

    async fn answer(&self, name: &str, who: &str, answer: ApprovalAnswer) -> AnswerOutcome {
        self.store.answer_approval(&id(name), who, answer).await.unwrap()
    }

    /// Gives an answer that must be refused; returns why, and how the question stands in the store.
    async fn refused(&self, name: &str, who: &str, answer: ApprovalAnswer) -> (AnswerRefusal, ApprovalState) {
        match self.answer(name, who, answer).await {
            AnswerOutcome::Refused { why, approval } => {
                assert_eq!(self.store.approval(&id(name)).await.unwrap(), *approval);
                (why, approval.state)
            }
            other => panic!("not refused: {other:?}"),
        }
    }

    async fn open_names(&self) -> Vec<String> {
        let open = self.store.open_approvals(Some(&conv("c"))).await.unwrap();
        assert_eq!(self.store.open_approvals(None).await.unwrap(), open);
        open.into_iter().map(|a| a.id.as_str().to_owned()).collect()
    }
}

pub(super) async fn i23_a_question_is_answered_once_by_whoever_may(w: &World) {
    let (_, _, asked) = w.asked().await;
    assert_eq!((asked.state, asked.expires_at_ms - asked.asked_at_ms), (ApprovalState::Open, 1_000));
    assert_eq!(w.open_names().await, ["q"]);
    assert_eq!(w.refused("q", "eve", yes()).await, (AnswerRefusal::NotAllowed, ApprovalState::Open));
    let always = ApprovalAnswer::Approve { choice: "always".to_owned() };
    assert_eq!(w.refused("q", "ann", always).await, (AnswerRefusal::NotAChoice, ApprovalState::Open));
    let seen = w.store.wait_for_change(&conv("c"), -1, 0).await.unwrap();
    let AnswerOutcome::Accepted(approved) = w.answer("q", "ann", yes()).await else { panic!("not accepted") };
    assert_eq!(approved.state, ApprovalState::Approved);
    assert!(w.store.wait_for_change(&conv("c"), seen, 0).await.unwrap() > seen, "whoever waits is woken");
    // Durable before it is told: another handle reads the same.
    assert_eq!(w.another().await.approval(&id("q")).await.unwrap(), *approved);
    assert_eq!(w.answer("q", "ann", yes()).await, AnswerOutcome::Replayed(approved));
    assert_eq!(w.refused("q", "ann", ApprovalAnswer::Deny).await, (AnswerRefusal::Answered, ApprovalState::Approved));
    assert_eq!(w.refused("q", "bob", yes()).await, (AnswerRefusal::Answered, ApprovalState::Approved));
    assert_eq!(w.open_names().await, [""; 0]);
    assert!(is_not_found(w.store.answer_approval(&id("none"), "ann", yes()).await));
}

pub(super) async fn i23_silence_is_no(w: &World) {
    w.asked().await;
    w.clock.advance(1_000);
    assert_eq!(w.refused("q", "ann", yes()).await, (AnswerRefusal::Expired, ApprovalState::Expired));
    // A clock that goes back brings it not to life again.
    w.clock.advance(-1_000);
    assert_eq!(w.refused("q", "ann", yes()).await, (AnswerRefusal::Expired, ApprovalState::Expired));
    assert_eq!(w.open_names().await, [""; 0]);
}

pub(super) async fn i23_a_withdrawn_question_is_never_approved(w: &World) {
    let (fence, turn, _) = w.asked().await;
    for reason in ["stopped", "again"] {
        let withdrawn = w.store.withdraw_approval(&fence, &id("q"), reason).await.unwrap();
        assert_eq!((withdrawn.state, withdrawn.reason.as_deref()), (ApprovalState::Withdrawn, Some("stopped")));
    }
    assert_eq!(w.refused("q", "ann", yes()).await, (AnswerRefusal::Withdrawn, ApprovalState::Withdrawn));
    // Whoever withdraws too late learns the answer; behind its time it is expired.
    w.store.ask_approval(&fence, &turn, question("q2")).await.unwrap();
    w.answer("q2", "bob", ApprovalAnswer::Deny).await;
    assert_eq!(w.store.withdraw_approval(&fence, &id("q2"), "x").await.unwrap().state, ApprovalState::Denied);
    w.store.ask_approval(&fence, &turn, question("q3")).await.unwrap();
    w.clock.advance(1_000);
    assert_eq!(w.store.withdraw_approval(&fence, &id("q3"), "x").await.unwrap().state, ApprovalState::Expired);
    assert!(is_not_found(w.store.withdraw_approval(&fence, &id("none"), "x").await));
    w.admit(super::input("d", "r", "x")).await;
    let other = w.lease("d", "a").await;
    assert!(is_not_found(w.store.withdraw_approval(&other, &id("q3"), "x").await), "of another conversation");
}

pub(super) async fn i23_an_answer_about_something_that_is_over_is_refused(w: &World) {
    let (fence, turn, _) = w.asked().await;
    w.store.ask_approval(&fence, &turn, question("q2")).await.unwrap();
    w.store.settle_call(&fence, &turn, &call_id("k"), ok("done without")).await.unwrap();
    assert_eq!(w.refused("q", "ann", yes()).await, (AnswerRefusal::Withdrawn, ApprovalState::Withdrawn));
    assert_eq!(w.open_names().await, [""; 0], "the other one is about the same call");
    assert!(is_invalid(w.store.ask_approval(&fence, &turn, question("q3")).await));
    w.round(&fence, &turn, "round2", vec![call("k2")]).await;
    let second = NewApproval { call: call_id("k2"), ..question("q4") };
    w.store.ask_approval(&fence, &turn, second).await.unwrap();
    w.store.lose_turn(&fence, &turn).await.unwrap();
    assert_eq!(w.refused("q4", "ann", yes()).await, (AnswerRefusal::Withdrawn, ApprovalState::Withdrawn));
    let states: Vec<_> = w.store.approvals_of_turn(&turn).await.unwrap().iter().map(|a| a.state).collect();
    assert_eq!(states, [ApprovalState::Withdrawn; 3]);
}

pub(super) async fn i17_a_question_may_be_repeated(w: &World) {
    let (fence, turn, asked) = w.asked().await;
    let before = w.store.wait_for_change(&conv("c"), -1, 0).await.unwrap();
    w.clock.advance(10);
    assert_eq!(w.store.ask_approval(&fence, &turn, question("q")).await.unwrap(), asked);
    assert_eq!(w.store.wait_for_change(&conv("c"), -1, 0).await.unwrap(), before);
    let others = [
        NewApproval { subject: "rm -r /".to_owned(), ..question("q") },
        NewApproval { choices: vec!["always".to_owned()], ..question("q") },
        NewApproval { may_answer: vec!["eve".to_owned()], ..question("q") },
    ];
    for other in others {
        assert!(is_conflict(w.store.ask_approval(&fence, &turn, other).await));
    }
    let bad = [
        NewApproval { choices: Vec::new(), ..question("q2") },
        NewApproval { may_answer: Vec::new(), ..question("q2") },
        NewApproval { expires_in_ms: APPROVAL_TTL_MAX_MS + 1, ..question("q2") },
        NewApproval { call: call_id("none"), ..question("q2") },
    ];
    for bad in bad {
        let refused = w.store.ask_approval(&fence, &turn, bad).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. } | StoreError::Limit { .. })), "{refused:?}");
    }
    for number in 1..APPROVALS_OPEN_MAX {
        w.store.ask_approval(&fence, &turn, question(&format!("more-{number}"))).await.unwrap();
    }
    let over = w.store.ask_approval(&fence, &turn, question("over")).await;
    assert!(matches!(over, Err(StoreError::Limit { .. })), "{over:?}");
    w.answer("q", "ann", yes()).await;
    assert_eq!(w.store.ask_approval(&fence, &turn, question("q")).await.unwrap().state, ApprovalState::Approved);
}

pub(super) async fn the_next_owner_finds_the_questions_of_its_turn(w: &World) {
    let (dead, turn, asked) = w.asked().await;
    w.beat("a").await;
    w.probe.kill(&owner("a"));
    let ClaimOutcome::Recover { fence, open } = w.claim("c", "b").await else { panic!("nothing to recover") };
    assert_eq!(open.id, turn);
    assert_eq!(w.store.approvals_of_turn(&turn).await.unwrap(), [asked]);
    assert!(is_fenced(w.store.withdraw_approval(&dead, &id("q"), "x").await));
    assert!(is_fenced(w.store.ask_approval(&dead, &turn, question("q2")).await));
    // A person may answer while the turn changes hands; the answer is for the call, whoever runs it.
    assert!(matches!(w.answer("q", "ann", yes()).await, AnswerOutcome::Accepted(_)));
    assert_eq!(w.store.ask_approval(&fence, &turn, question("q")).await.unwrap().state, ApprovalState::Approved);
}

pub(super) async fn i23_one_of_many_answers_counts(w: &World) {
    w.asked().await;
    let (x, y) = (w.another().await, w.another().await);
    let answer = |store: std::sync::Arc<dyn crate::Store>, who: &'static str, answer: ApprovalAnswer| async move {
        store.answer_approval(&id("q"), who, answer).await.unwrap()
    };
    let all = tokio::join!(
        answer(x.clone(), "ann", yes()),
        answer(y.clone(), "bob", ApprovalAnswer::Deny),
        answer(x, "bob", yes()),
        answer(y, "ann", ApprovalAnswer::Deny),
    );
    let all = [all.0, all.1, all.2, all.3];
    assert_eq!(all.iter().filter(|one| matches!(one, AnswerOutcome::Accepted(_))).count(), 1);
    let stored = w.store.approval(&id("q")).await.unwrap();
    assert!(all.iter().all(|one| *one.approval() == stored), "everybody is told the same");
}

pub(super) async fn questions_are_pruned_and_deleted_with_their_conversation(w: &World) {
    let (fence, turn, _) = w.asked().await;
    w.store.ask_approval(&fence, &turn, question("q2")).await.unwrap();
    w.answer("q", "ann", yes()).await;
    w.clock.advance(i64::try_from(APPROVAL_KEEP_MS).unwrap());
    // The unanswered one ends only now.
    assert_eq!(w.store.prune_approvals().await.unwrap(), 1);
    assert!(is_not_found(w.store.approval(&id("q")).await));
    assert_eq!(w.store.approval(&id("q2")).await.unwrap().state, ApprovalState::Expired);
    w.store.settle_call(&fence, &turn, &call_id("k"), ok("x")).await.unwrap();
    w.store.settle_turn(&fence, &turn, completed(), false).await.unwrap();
    w.store.delete_conversation(&fence).await.unwrap();
    assert!(is_not_found(w.store.approval(&id("q2")).await));
}
