//! Crashes: what is found after one, and that whoever goes on loses nothing and does nothing twice.

use std::future::Future;

use super::*;
use crate::fault::{Fault, Faults};
use crate::limits::{HEARTBEAT_DEAD_MS, LEASE_TTL_MS};
use crate::{AdmissionStatus, JournalState, MessageKind, OpenTurn, PromptHash, SessionId, TurnStatus};

const _: () = assert!(TTL_MS == LEASE_TTL_MS && HEARTBEAT_DEAD_MS < LEASE_TTL_MS);

fn ms(limit: u64) -> i64 {
    i64::try_from(limit).unwrap()
}

impl World {
    /// Runs a write in a process of its own that meets the fault at its COMMIT. The model has no COMMIT: there the write
    /// is left out, or its answer is thrown away, which is what the fault means.
    async fn with_fault<T, F>(&self, fault: Fault, write: impl FnOnce(Arc<dyn Store>) -> F + Send)
    where
        T: std::fmt::Debug + Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        let faults = Faults::default();
        let faulty = self.backend.open_faulty(self.clock.clone(), self.probe.clone(), faults.clone()).await;
        let Some(store) = faulty else {
            if fault != Fault::BeforeCommit {
                write(self.another().await).await.unwrap();
            }
            return;
        };
        faults.arm(fault);
        let done = write(store).await;
        assert!(done.is_err(), "{fault:?}: {done:?}");
        assert_eq!(faults.fired(), 1, "{fault:?}");
    }

    /// Claims a conversation whose owner left a turn open.
    async fn recover(&self, conversation: &str, who: &str) -> (Fence, Box<OpenTurn>) {
        match self.claim(conversation, who).await {
            ClaimOutcome::Recover { fence, open } => (fence, open),
            other => panic!("nothing to recover: {other:?}"),
        }
    }

    async fn status(&self, id: &AdmissionId) -> AdmissionStatus {
        self.store.admission(id).await.unwrap().receipt.status
    }
}

pub(super) async fn s4_a_crash_around_the_commit_of_an_input_admits_it_once(w: &World) {
    for (number, fault) in Fault::ALL.into_iter().enumerate() {
        // The first input of a new conversation, and one more of a known one.
        let name = format!("c{number}");
        for request in ["first", "more"] {
            let submit = |store: Arc<dyn Store>| {
                let (new, input) = (new_conversation(&name), input(&name, request, "hello"));
                async move { store.create_and_admit(new, input).await }
            };
            let before = w.store.queue(&conv(&name)).await.map_or(0, |queue| queue.len());
            w.with_fault(fault, submit).await;
            let held = w.store.queue(&conv(&name)).await.map_or(0, |queue| queue.len());
            assert_eq!(held, before + usize::from(fault != Fault::BeforeCommit), "{fault:?}");
            let stored = w.store.admission(&input(&name, request, "hello").id).await;
            // The sender was told nothing and sends it again, to whatever process there is.
            let again = submit(w.another().await).await.unwrap();
            match fault {
                Fault::BeforeCommit => assert!(matches!(again, AdmitOutcome::Accepted(_)), "{again:?}"),
                _ => assert_eq!(again, AdmitOutcome::Replayed(stored.unwrap().receipt)),
            }
            let third = submit(w.another().await).await.unwrap();
            assert_eq!(third, AdmitOutcome::Replayed(again.receipt().clone()));
            assert_eq!(w.store.queue(&conv(&name)).await.unwrap().len(), before + 1, "{fault:?}");
        }
    }
}

pub(super) async fn s9_an_old_owner_or_generation_settles_nothing(w: &World) {
    let (old, first, receipt) = w.begin("c", "a").await;
    w.clock.advance(ms(TTL_MS) + 1);
    // The next owner puts the input back and begins it anew: the row is started again, in another generation.
    let (middle, open) = w.recover("c", "b").await;
    assert_eq!(open.id, first);
    w.store.requeue(&middle, &first).await.unwrap();
    w.store.release(&middle).await.unwrap();
    let (newest, second, again) = w.start("c", "b").await;
    assert_eq!(again.admission, receipt.admission);
    assert!(again.generation > receipt.generation);
    let row = w.store.admission(&receipt.admission).await.unwrap();
    let before = w.everything("c").await;
    for release in [true, false] {
        for stale in [&old, &middle] {
            for turn in [&first, &second] {
                assert!(is_fenced(w.store.settle_turn(stale, turn, completed(), release).await));
            }
        }
        // The right owner with the turn of the old generation.
        assert!(is_invalid(w.store.settle_turn(&newest, &first, completed(), release).await));
    }
    assert_eq!(w.store.admission(&receipt.admission).await.unwrap(), row);
    assert_eq!(w.everything("c").await, before);
    assert!(matches!(w.claim("c", "d").await, ClaimOutcome::Held { owner: who, .. } if who == owner("b")));
    w.store.settle_turn(&newest, &second, completed(), true).await.unwrap();
    let over = w.store.admission(&receipt.admission).await.unwrap().receipt;
    assert_eq!((over.turn, over.outcome), (Some(second), Some(AdmissionOutcome::Completed)));
}

pub(super) async fn s10_an_input_of_which_nothing_happened_is_put_back_and_runs_once(w: &World) {
    for (name, with_rows) in [("c", false), ("d", true)] {
        let accepted = w.admit(input(name, "r1", "hello")).await;
        w.admit(input(name, "r2", "later")).await;
        let row = || text(accepted.admission.input_row().as_str(), Role::User, "hello");
        let (old, turn, _) = w.start(name, "a").await;
        if with_rows {
            w.store.open_session(&old, &turn, session(name, None, name), vec![row()]).await.unwrap();
        }
        w.clock.advance(ms(TTL_MS) + 1);
        let (fence, open) = w.recover(name, "b").await;
        // The proof: no call was ever written down, and no answer.
        assert_eq!((open.calls.len(), &open.open_round), (0, &None));
        assert!(open.last_row.as_ref().is_none_or(|row| row.role == Role::User));
        w.store.requeue(&fence, &open.id).await.unwrap();
        w.store.release(&fence).await.unwrap();
        assert_eq!(w.status(&accepted.admission).await, AdmissionStatus::Queued);
        // It runs, before what came later, and once.
        let (fence, again, receipt) = w.start(name, "b").await;
        assert_eq!(receipt.admission, accepted.admission);
        assert_ne!(again, turn);
        if with_rows {
            w.store.append(&fence, &again, vec![row()], None).await.unwrap();
        } else {
            w.store.open_session(&fence, &again, session(name, None, name), vec![row()]).await.unwrap();
        }
        assert_eq!(w.rows(name, View::Model).await.len(), 1, "its row is there once");
        is_fenced(w.store.append(&old, &turn, vec![text("late", Role::Assistant, "x")], None).await);
        w.store.settle_turn(&fence, &again, completed(), true).await.unwrap();
        let (_, _, next) = w.start(name, "b").await;
        assert_ne!(next.admission, accepted.admission);
    }
}

pub(super) async fn s11_what_may_have_happened_is_never_run_again_by_itself(w: &World) {
    let mut at = Vec::new();
    for name in ["c", "d"] {
        let (old, turn, receipt) = w.begin(name, "a").await;
        let key = format!("{name}-k");
        w.round(&old, &turn, &format!("{name}-round"), vec![call(&key)]).await;
        w.store.start_calls(&old, &turn, &[call_id(&key)]).await.unwrap();
        at.push((name, key, receipt));
    }
    w.clock.advance(ms(TTL_MS) + 1);
    for (name, key, receipt) in at {
        let (fence, open) = w.recover(name, "b").await;
        assert_eq!((open.calls[0].state, open.calls[0].outcome), (JournalState::Started, None));
        assert_eq!(open.calls[0].replay, ReplaySafety::Once);
        // Neither back into the queue nor to an end that says nothing of the call.
        assert!(is_invalid(w.store.requeue(&fence, &open.id).await));
        assert!(is_invalid(w.store.settle_turn(&fence, &open.id, completed(), true).await));
        if name == "c" {
            // The journal tells that this one call is open: it gets a result that says so, and the turn goes on.
            w.store.adopt_turn(&fence, &open.id).await.unwrap();
            let unknown = CallResult { outcome: CallOutcome::OutcomeUnknown, ..ok("nobody knows") };
            w.store.settle_call(&fence, &open.id, &call_id(&key), unknown).await.unwrap();
            assert!(is_invalid(w.store.start_calls(&fence, &open.id, &[call_id(&key)]).await), "not begun again");
            assert!(is_conflict(w.store.settle_call(&fence, &open.id, &call_id(&key), ok("done")).await));
            w.store.settle_turn(&fence, &open.id, completed(), true).await.unwrap();
            assert_eq!(w.claim(name, "b").await, ClaimOutcome::Empty);
            continue;
        }
        // Or nobody can go on: unknown, until a person decides.
        w.store.lose_turn(&fence, &open.id).await.unwrap();
        w.store.release(&fence).await.unwrap();
        w.admit(input(name, "next", "x")).await;
        for who in ["a", "b", "z"] {
            w.clock.advance(ms(TTL_MS) * 2);
            for policy in [ClaimPolicy::Any, ClaimPolicy::OwnOrOrphaned { orphan_after_ms: 0 }] {
                let told = w.another().await.claim(w.request(name, who, policy)).await.unwrap();
                assert_eq!(told, ClaimOutcome::Blocked, "{who}");
            }
        }
        assert_eq!(w.status(&receipt.admission).await, AdmissionStatus::Unknown);
        let interrupted = end("operator", AdmissionOutcome::Interrupted);
        w.store.resolve_unknown(&receipt.admission, receipt.generation.unwrap(), interrupted).await.unwrap();
        let (_, _, next) = w.start(name, "b").await;
        assert_ne!(next.admission, receipt.admission);
    }
}

pub(super) async fn s12_a_turn_that_had_its_answer_is_settled_from_the_transcript(w: &World) {
    let (old, turn, receipt) = w.begin("c", "a").await;
    w.round(&old, &turn, "round", vec![call("k")]).await;
    w.store.settle_call(&old, &turn, &call_id("k"), ok("1")).await.unwrap();
    w.store.append(&old, &turn, vec![text("answer", Role::Assistant, "forty-two")], None).await.unwrap();
    w.clock.advance(ms(TTL_MS) + 1);
    let before = w.rows("c", View::Display).await;
    let (fence, open) = w.recover("c", "b").await;
    assert_eq!((&open.id, &open.open_round), (&turn, &None));
    let last = open.last_row.unwrap();
    assert_eq!((last.role, last.kind, last.calls.len()), (Role::Assistant, MessageKind::Normal, 0), "the final answer");
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    let record = w.store.turn(&turn).await.unwrap();
    assert_eq!((record.status, record.answer.unwrap().content.as_str()), (TurnStatus::Ended, "forty-two"));
    let over = w.store.admission(&receipt.admission).await.unwrap().receipt;
    assert_eq!((over.status, over.outcome), (AdmissionStatus::Terminal, Some(AdmissionOutcome::Completed)));
    assert_eq!(w.rows("c", View::Display).await, before, "nothing was said twice");
    assert_eq!(w.claim("c", "b").await, ClaimOutcome::Empty);
    is_fenced(w.store.settle_turn(&old, &turn, completed(), true).await);
}

pub(super) async fn s23_a_dead_holder_is_replaced_within_its_lease_and_sooner_with_proof(w: &World) {
    // Nobody knows its process: its lease alone says when it may be replaced.
    w.begin("c", "nameless").await;
    let waiter = w.another().await;
    let ask = async |conversation: &str| waiter.claim(w.request(conversation, "b", ClaimPolicy::Any)).await.unwrap();
    let ClaimOutcome::Held { expires_at_ms, .. } = ask("c").await else { panic!("robbed") };
    assert_eq!(expires_at_ms, w.clock_ms() + ms(TTL_MS));
    w.clock.advance(ms(TTL_MS) - 1);
    assert!(matches!(ask("c").await, ClaimOutcome::Held { .. }));
    w.clock.advance(1);
    assert!(matches!(ask("c").await, ClaimOutcome::Recover { .. }), "its time is over, and no process was looked at");
    // Sooner: its heart stopped, long before the lease ends.
    w.beat("silent").await;
    w.begin("d", "silent").await;
    w.clock.advance(ms(HEARTBEAT_DEAD_MS) + 1);
    assert!(matches!(ask("d").await, ClaimOutcome::Recover { .. }));
    // At once: its death is proved.
    w.beat("killed").await;
    w.begin("e", "killed").await;
    assert!(matches!(ask("e").await, ClaimOutcome::Held { .. }));
    w.probe.kill(&owner("killed"));
    assert!(matches!(ask("e").await, ClaimOutcome::Recover { .. }));
}

pub(super) async fn s26_a_crash_after_a_recorded_call_invents_no_result(w: &World) {
    for (number, fault) in Fault::ALL.into_iter().enumerate() {
        let name = format!("c{number}");
        let (old, turn, _) = w.begin(&name, "a").await;
        let key = format!("{name}-k");
        let plan = {
            let row = text(&format!("{name}-round"), Role::Assistant, "");
            Round::plan(turn.clone(), row, vec![call(&key)], Some(usage(&name)))
        };
        let fence = old.clone();
        w.with_fault(fault, |store| async move { store.record_round(&fence, plan).await }).await;
        // It is durable before anything can have run, or it is not there at all.
        let is_there = fault != Fault::BeforeCommit;
        let check = |rows: Vec<StoredMessage>| {
            assert_eq!(rows.len(), 1 + usize::from(is_there), "{fault:?}");
            assert!(rows.iter().all(|row| row.role != Role::Tool && row.answers.is_none()), "{fault:?}");
            for call in rows.iter().flat_map(|row| &row.calls) {
                assert_eq!((call.state, call.outcome), (JournalState::Recorded, None), "{fault:?}");
            }
        };
        check(w.rows(&name, View::Model).await);
        w.clock.advance(ms(TTL_MS) + 1);
        let (fence, open) = w.recover(&name, "b").await;
        assert_eq!(open.calls.len(), usize::from(is_there));
        assert_eq!(open.open_round.is_some(), is_there);
        check(w.rows(&name, View::Model).await);
        check(w.rows(&name, View::Display).await);
        let Some(round) = open.open_round else { continue };
        assert!(round.settle(&[]).is_err(), "no result, no settled round");
        // Begun, and then the next crash: still no result of its own accord.
        w.store.start_calls(&fence, &turn, &[call_id(&key)]).await.unwrap();
        w.clock.advance(ms(TTL_MS) + 1);
        let (_, open) = w.recover(&name, "d").await;
        assert_eq!((open.calls[0].state, open.calls[0].outcome), (JournalState::Started, None));
        let rows = w.rows(&name, View::Model).await;
        assert!(rows.iter().all(|row| row.answers.is_none()));
    }
}

pub(super) async fn s27_what_could_not_be_stored_is_in_no_view_and_the_turn_can_end(w: &World) {
    let (fence, turn, receipt) = w.begin("c", "a").await;
    let round = w.round(&fence, &turn, "round", vec![call("k")]).await;
    let before = w.rows("c", View::Model).await;
    // A result: without its proof the round is never one that a model may see.
    let (held, running) = (fence.clone(), turn.clone());
    w.with_fault(Fault::BeforeCommit, |store| async move {
        store.settle_call(&held, &running, &call_id("k"), ok("in memory only")).await
    })
    .await;
    assert!(round.clone().settle(&[]).is_err());
    assert_eq!(w.rows("c", View::Model).await, before);
    // An answer, and a round: nothing to execute comes back.
    let (held, running) = (fence.clone(), turn.clone());
    w.with_fault(Fault::BeforeCommit, |store| async move {
        store.append(&held, &running, vec![text("answer", Role::Assistant, "lost")], Some(usage("a1"))).await
    })
    .await;
    let plan = Round::plan(turn.clone(), text("round2", Role::Assistant, ""), vec![call("k2")], Some(usage("a2")));
    let held = fence.clone();
    w.with_fault(Fault::BeforeCommit, |store| async move { store.record_round(&held, plan).await }).await;
    assert_eq!(w.rows("c", View::Model).await, before);
    assert_eq!(w.rows("c", View::Display).await, before);
    assert_eq!(w.store.usage(&conv("c")).await.unwrap(), []);
    // The turn ends with what is stored: the call gets a result that says so, and the next request is built from rows.
    let unknown = CallResult { outcome: CallOutcome::OutcomeUnknown, ..ok("nobody knows") };
    let proof = w.store.settle_call(&fence, &turn, &call_id("k"), unknown).await.unwrap();
    assert!(round.settle(&[proof]).is_ok());
    w.store.settle_turn(&fence, &turn, end("persistence_failed", AdmissionOutcome::Failed), true).await.unwrap();
    let record = w.store.turn(&turn).await.unwrap();
    assert_eq!((record.reason.as_deref(), record.answer), (Some("persistence_failed"), None));
    let over = w.store.admission(&receipt.admission).await.unwrap().receipt;
    assert_eq!(over.outcome, Some(AdmissionOutcome::Failed));
    let contents: Vec<_> = w.rows("c", View::Model).await.into_iter().map(|row| row.content).collect();
    assert_eq!(contents, ["hello", "", "nobody knows"]);
}

/// Everything of a conversation that a request is made from, one piece for the head and one for each row.
async fn wire(store: &dyn Store, conversation: &str) -> Vec<Vec<u8>> {
    let tip = store.conversation(&conv(conversation)).await.unwrap().tip.unwrap();
    let session = store.session(&tip).await.unwrap();
    let (prompt, tools) = (store.prompt(&session.prompt).await.unwrap(), store.prompt(&session.tools).await.unwrap());
    let mut pieces = vec![[prompt.bytes().as_ref(), tools.bytes().as_ref()].concat()];
    for row in store.messages(&conv(conversation), View::Model, MessagePage::default()).await.unwrap() {
        let calls: Vec<_> = row.calls.iter().map(|call| (&call.provider_id, &call.name, &call.arguments)).collect();
        let answers = row.answers.as_ref().map(|call| &call.provider_id);
        let piece = format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} {calls:?} {answers:?}",
            row.role, row.kind, row.content, row.api_content, row.reasoning, row.sidecar
        );
        pieces.push(piece.into_bytes());
    }
    pieces
}

fn hash(pieces: &[Vec<u8>]) -> PromptHash {
    PromptHash::of(&pieces.concat())
}

pub(super) async fn s31_a_resume_has_the_same_prefix_as_the_last_request(w: &World) {
    let (old, turn, receipt) = w.begin("c", "a").await;
    let mut sent = vec![hash(&wire(w.store.as_ref(), "c").await)];
    for number in 0..3 {
        let (one, two) = (format!("k{number}"), format!("l{number}"));
        let row = NewMessage {
            api_content: Some(crate::ApiContent(bytes::Bytes::from_static(b"{ \"wire\" :\xff 1e2 }"))),
            reasoning: Some("because".to_owned()),
            sidecar: Some(crate::Sidecar {
                issuer: "practice".to_owned(),
                bytes: bytes::Bytes::from_static(&[0, 0xff, b'{']),
            }),
            ..text(&format!("round{number}"), Role::Assistant, "let me see")
        };
        let plan = Round::plan(turn.clone(), row, vec![call(&one), call(&two)], None);
        w.store.record_round(&old, plan).await.unwrap();
        for key in [&two, &one] {
            w.store.settle_call(&old, &turn, &call_id(key), ok(&format!("result of {key}"))).await.unwrap();
        }
        sent.push(hash(&wire(w.store.as_ref(), "c").await));
    }
    let lengths = [2, 5, 8, 11];
    // The process dies; whoever resumes has every request of it as a prefix.
    w.clock.advance(ms(TTL_MS) + 1);
    let other = w.another().await;
    let (fence, open) = w.recover("c", "b").await;
    let is_prefix = async |store: &dyn Store| {
        let pieces = wire(store, "c").await;
        lengths.iter().zip(&sent).all(|(length, sent)| hash(&pieces[..*length]) == *sent)
    };
    assert!(is_prefix(other.as_ref()).await);
    w.store.adopt_turn(&fence, &open.id).await.unwrap();
    w.store.append(&fence, &turn, vec![text("answer", Role::Assistant, "done")], None).await.unwrap();
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    assert!(is_prefix(other.as_ref()).await);
    // And so has the next turn, whatever else was done to the conversation.
    let (fence, _, next) = w.begin("c", "d").await;
    assert_ne!(next.admission, receipt.admission);
    w.store.set_title(&fence, "another title", crate::TitleSource::User).await.unwrap();
    assert!(is_prefix(w.another().await.as_ref()).await);
    let tip = w.store.conversation(&conv("c")).await.unwrap().tip.unwrap();
    assert_eq!(tip, SessionId::parse("c").unwrap());
}
