//! Work that runs elsewhere: workers, receipts, starts, presence.

use super::*;
use crate::limits::{KEY_MAX_BYTES, OWNER_KEEP_MS, RECEIPT_MAX_BYTES, RECEIPTS_MAX, WORKER_KEEP_MS};
use crate::{
    Epoch, ExecutionId, Generation, NewReceipt, NewWorker, OwnerState, Presence, RecordOutcome, RegisterOutcome,
    WorkerEnd, WorkerFence, WorkerFilter, WorkerKind, WorkerOutcome, WorkerSecret, WorkerState,
};

fn execution(name: &str) -> ExecutionId {
    ExecutionId::parse(name).unwrap()
}

fn secret(name: &str) -> WorkerSecret {
    WorkerSecret::parse(&format!("{name:->40}")).unwrap()
}

fn worker(name: &str, task: &str, who: &str) -> NewWorker {
    NewWorker {
        id: execution(name),
        kind: WorkerKind::Cron,
        task: task.to_owned(),
        owner: owner(who),
        secret: secret(name),
    }
}

fn receipt(sequence: i64, payload: &str, result: &str) -> NewReceipt {
    NewReceipt { sequence, payload: payload.to_owned(), result: result.to_owned() }
}

fn end(outcome: WorkerOutcome) -> WorkerEnd {
    WorkerEnd { outcome, detail: Some("said\0so".to_owned()) }
}

async fn register(w: &World, new: NewWorker) -> WorkerFence {
    match w.store.register_worker(None, new).await.unwrap() {
        RegisterOutcome::Registered(fence) => fence,
        RegisterOutcome::Busy(holder) => panic!("busy: {holder:?}"),
    }
}

async fn state_of(w: &World, name: &str) -> WorkerState {
    w.store.worker(&execution(name)).await.unwrap().state
}

pub(super) async fn s41_receipts_come_in_order_and_once(w: &World) {
    let fence = register(w, worker("e", "cron:job:1", "a")).await;
    assert_eq!(state_of(w, "e").await, WorkerState::Registered);
    assert!(is_invalid(w.store.record_receipt(&fence, receipt(2, "two", "r")).await), "1 is missing");
    assert!(is_invalid(w.store.record_receipt(&fence, receipt(0, "zero", "r")).await));
    assert_eq!(state_of(w, "e").await, WorkerState::Registered);
    w.clock.advance(5);
    let first = w.store.record_receipt(&fence, receipt(1, "one\0", "told\0 1")).await.unwrap();
    let RecordOutcome::Recorded(stored) = first else { panic!("{first:?}") };
    assert_eq!((stored.sequence, stored.result.as_str(), stored.digest.len()), (1, "told\0 1", 64));
    w.store.record_receipt(&fence, receipt(2, "two", "told 2")).await.unwrap();
    // The same again gets what was stored, whatever it would be told now.
    let again = w.another().await.record_receipt(&fence, receipt(1, "one\0", "another word")).await.unwrap();
    assert_eq!(again, RecordOutcome::Replayed(stored.clone()));
    assert!(is_conflict(w.store.record_receipt(&fence, receipt(1, "other", "told\0 1")).await));
    assert!(is_invalid(w.store.record_receipt(&fence, receipt(4, "four", "r")).await));
    let record = w.store.worker(&execution("e")).await.unwrap();
    assert_eq!((record.state, record.last_sequence, record.kind), (WorkerState::Running, 2, WorkerKind::Cron));
    assert_eq!((record.registered_at_ms, record.written_at_ms), (START_MS, START_MS + 5));
    let all = w.store.receipts(&execution("e"), 0, 10).await.unwrap();
    assert_eq!(all.iter().map(|one| one.sequence).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(w.store.receipts(&execution("e"), 1, 10).await.unwrap().len(), 1);
    assert_eq!(w.store.receipts(&execution("e"), 0, 1).await.unwrap(), [stored]);
    assert!(is_not_found(w.store.receipts(&execution("none"), 0, 1).await));
}

pub(super) async fn s41_a_receipt_is_answered_after_the_end(w: &World) {
    let fence = register(w, worker("e", "t", "a")).await;
    w.store.record_receipt(&fence, receipt(1, "one", "told")).await.unwrap();
    let record = w.store.finish_worker(&fence, end(WorkerOutcome::Completed)).await.unwrap();
    assert_eq!((record.state, record.end.clone()), (WorkerState::Terminal, Some(end(WorkerOutcome::Completed))));
    w.clock.advance(5);
    assert_eq!(w.store.finish_worker(&fence, end(WorkerOutcome::Completed)).await.unwrap(), record);
    assert!(is_invalid(w.store.finish_worker(&fence, end(WorkerOutcome::Failed)).await));
    let again = w.store.record_receipt(&fence, receipt(1, "one", "told")).await.unwrap();
    assert!(matches!(again, RecordOutcome::Replayed(_)));
    assert!(is_invalid(w.store.record_receipt(&fence, receipt(2, "two", "told")).await));
    assert!(is_invalid(w.store.lose_worker(&fence).await));
}

pub(super) async fn s42_an_adoption_needs_secret_and_generation(w: &World) {
    let old = register(w, worker("e", "t", "a")).await;
    w.store.record_receipt(&old, receipt(1, "one", "told 1")).await.unwrap();
    let (id, generation) = (execution("e"), old.generation());
    let next = Generation(generation.0 + 1);
    assert!(is_invalid(w.store.adopt_worker(&id, generation, &secret("wrong"), &owner("b")).await));
    assert!(is_invalid(w.store.adopt_worker(&id, next, &secret("e"), &owner("b")).await));
    assert!(is_not_found(w.store.adopt_worker(&execution("none"), generation, &secret("e"), &owner("b")).await));
    let before = w.store.worker(&id).await.unwrap();
    assert_eq!((before.owner.as_str(), before.generation), ("a", generation));
    let (new, record) = w.store.adopt_worker(&id, generation, &secret("e"), &owner("b")).await.unwrap();
    assert!(new.generation() > generation);
    assert_eq!((record.owner.as_str(), record.last_sequence, record.state), ("b", 1, WorkerState::Running));
    // A lost answer: the same adoption again.
    let (again, _) = w.store.adopt_worker(&id, generation, &secret("e"), &owner("b")).await.unwrap();
    assert_eq!(again, new);
    assert!(is_invalid(w.store.adopt_worker(&id, generation, &secret("e"), &owner("c")).await), "an old generation");
    // The one before is fenced; the sequence goes on.
    is_fenced(w.store.record_receipt(&old, receipt(2, "two", "late")).await);
    is_fenced(w.store.record_receipt(&old, receipt(1, "one", "told 1")).await);
    is_fenced(w.store.finish_worker(&old, end(WorkerOutcome::Completed)).await);
    is_fenced(w.store.lose_worker(&old).await);
    assert!(is_conflict(w.store.record_receipt(&new, receipt(1, "again", "told")).await), "no number twice");
    w.store.record_receipt(&new, receipt(2, "two", "told 2")).await.unwrap();
    w.store.finish_worker(&new, end(WorkerOutcome::Completed)).await.unwrap();
    assert!(is_invalid(w.store.adopt_worker(&id, new.generation(), &secret("e"), &owner("c")).await), "it is over");
}

pub(super) async fn s42_a_proof_is_given_to_who_has_the_secret(w: &World) {
    let fence = register(w, worker("e", "t", "a")).await;
    let store = w.another().await;
    let shown = store.present_worker(&execution("e"), fence.generation(), &secret("e")).await.unwrap();
    assert_eq!(shown, fence);
    assert!(is_invalid(store.present_worker(&execution("e"), fence.generation(), &secret("f")).await));
    assert!(is_invalid(store.present_worker(&execution("e"), Generation(99), &secret("e")).await));
    assert!(is_not_found(store.present_worker(&execution("none"), fence.generation(), &secret("e")).await));
    store.record_receipt(&shown, receipt(1, "one", "told")).await.unwrap();
}

/// What a scheduler does for a due slot, with the two ledgers that the store has for it: the input of the slot is named by
/// (job, instant), and so is the worker that runs it. The tables of cron itself come with cron.
pub(super) async fn s45_two_schedulers_of_one_instant_run_it_once(w: &World) {
    const INSTANT: &str = "2026-12-02T15:00Z";
    let fire = |instant: &str, who: &str| crate::NewAdmission {
        id: AdmissionId::parse(&w.fresh("fire")).unwrap(),
        principal: "cron:job".to_owned(),
        submitted_by: owner(who),
        ..input("c", instant, "do it")
    };
    let mut tasks = Vec::new();
    for who in ["a", "b", "a", "b"] {
        let (store, input) = (w.another().await, fire(INSTANT, who));
        tasks.push(tokio::spawn(async move {
            store.create_and_admit(new_conversation("c"), input).await.unwrap().receipt().clone()
        }));
    }
    let mut receipts = Vec::new();
    for task in tasks {
        receipts.push(task.await.unwrap());
    }
    assert!(receipts.iter().all(|receipt| *receipt == receipts[0]));
    assert_eq!(w.store.queue(&conv("c")).await.unwrap().len(), 1);
    // A scheduler that looks at the slot when it is over finds that too; the next instant is another row.
    let (fence, turn, _) = w.start("c", "a").await;
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    let late = w.another().await.admit(fire(INSTANT, "b")).await.unwrap();
    assert!(matches!(&late, AdmitOutcome::Replayed(receipt) if receipt.turn == Some(turn)), "{late:?}");
    assert_eq!(w.claim("c", "b").await, ClaimOutcome::Empty);
    let next = w.store.admit(fire("2026-12-02T16:00Z", "b")).await.unwrap();
    assert!(matches!(next, AdmitOutcome::Accepted(_)));
    // A job that is a program: one execution under the name of its slot, also when the first one is over.
    let slot = "cron.job.2026-12-02T15-00Z";
    let of = |who: &str| NewWorker { secret: secret(who), ..worker(slot, "cron:job", who) };
    let proof = register(w, of("a")).await;
    assert!(is_conflict(w.another().await.register_worker(None, of("b")).await));
    w.store.finish_worker(&proof, end(WorkerOutcome::Completed)).await.unwrap();
    assert!(is_conflict(w.another().await.register_worker(None, of("b")).await), "the slot was run");
    let record = w.store.worker(&execution(slot)).await.unwrap();
    assert_eq!((record.owner, record.state), (owner("a"), WorkerState::Terminal));
}

pub(super) async fn s46_a_task_has_one_worker_that_is_not_over(w: &World) {
    let fence = register(w, worker("e", "kanban:card", "a")).await;
    let busy = |outcome| match outcome {
        RegisterOutcome::Busy(holder) => (holder.id.as_str().to_owned(), holder.state),
        RegisterOutcome::Registered(fence) => panic!("{fence:?}"),
    };
    let second = || worker("f", "kanban:card", "b");
    let other = w.another().await;
    let registered = other.register_worker(None, second()).await.unwrap();
    assert_eq!(busy(registered), ("e".to_owned(), WorkerState::Registered));
    w.store.record_receipt(&fence, receipt(1, "x", "y")).await.unwrap();
    assert_eq!(busy(other.register_worker(None, second()).await.unwrap()).1, WorkerState::Running);
    // It cannot be killed: nobody knows what it does, and nobody else begins.
    assert_eq!(w.store.lose_worker(&fence).await.unwrap().state, WorkerState::Unknown);
    assert_eq!(w.store.lose_worker(&fence).await.unwrap().state, WorkerState::Unknown);
    assert_eq!(busy(other.register_worker(None, second()).await.unwrap()).1, WorkerState::Unknown);
    assert!(is_invalid(w.store.record_receipt(&fence, receipt(2, "x", "y")).await), "adopt it first");
    assert!(is_invalid(w.store.finish_worker(&fence, end(WorkerOutcome::Completed)).await));
    is_not_found(w.store.worker(&execution("f")).await);
    // An operator decides, with the exact generation.
    let id = execution("e");
    let wrong = Generation(fence.generation().0 + 1);
    assert!(is_invalid(w.store.resolve_worker(&id, wrong, end(WorkerOutcome::Lost)).await));
    let record = w.store.resolve_worker(&id, fence.generation(), end(WorkerOutcome::Lost)).await.unwrap();
    assert_eq!(record.state, WorkerState::Terminal);
    let again = w.store.resolve_worker(&id, fence.generation(), end(WorkerOutcome::Lost)).await.unwrap();
    assert_eq!(again, record);
    assert!(is_invalid(w.store.resolve_worker(&id, fence.generation(), end(WorkerOutcome::Failed)).await));
    let next = register(w, second()).await;
    assert!(next.generation() > fence.generation(), "generations only grow");
    assert!(is_invalid(w.store.resolve_worker(&execution("f"), next.generation(), end(WorkerOutcome::Lost)).await));
}

pub(super) async fn s46_one_of_many_registers_the_task(w: &World) {
    let mut tasks = Vec::new();
    for number in 0..8 {
        let store = w.another().await;
        let new = worker(&format!("e{number}"), "t", "a");
        tasks.push(tokio::spawn(async move { store.register_worker(None, new).await.unwrap() }));
    }
    let mut won = 0;
    for task in tasks {
        won += i32::from(matches!(task.await.unwrap(), RegisterOutcome::Registered(_)));
    }
    assert_eq!(won, 1);
    assert_eq!(w.store.workers(WorkerFilter::default()).await.unwrap().len(), 1);
}

pub(super) async fn i17_a_registration_may_be_repeated(w: &World) {
    let fence = register(w, worker("e", "t", "a")).await;
    assert_eq!(register(w, worker("e", "t", "a")).await, fence);
    for other in [
        worker("e", "t2", "a"),
        worker("e", "t", "b"),
        NewWorker { kind: WorkerKind::Child, ..worker("e", "t", "a") },
        NewWorker { secret: secret("f"), ..worker("e", "t", "a") },
    ] {
        assert!(is_conflict(w.store.register_worker(None, other).await));
    }
    let lease = {
        w.admit(input("c", "r", "x")).await;
        w.lease("c", "a").await
    };
    assert!(is_conflict(w.store.register_worker(Some(&lease), worker("e", "t", "a")).await), "of no conversation");
}

pub(super) async fn s39_a_conversation_with_a_worker_is_not_deleted(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    let RegisterOutcome::Registered(proof) =
        w.store.register_worker(Some(&fence), worker("e", "t", "a")).await.unwrap()
    else {
        panic!("busy")
    };
    w.store.record_receipt(&proof, receipt(1, "x", "y")).await.unwrap();
    w.store.settle_turn(&fence, &turn, completed(), false).await.unwrap();
    assert!(is_invalid(w.store.delete_conversation(&fence).await));
    w.store.lose_worker(&proof).await.unwrap();
    assert!(is_invalid(w.store.delete_conversation(&fence).await), "unknown is not over");
    w.store.resolve_worker(&execution("e"), proof.generation(), end(WorkerOutcome::Lost)).await.unwrap();
    w.store.delete_conversation(&fence).await.unwrap();
    is_not_found(w.store.worker(&execution("e")).await);
    is_fenced(w.store.record_receipt(&proof, receipt(1, "x", "y")).await);
    is_fenced(w.store.register_worker(Some(&fence), worker("f", "t", "a")).await);
    let next = register(w, worker("e", "t", "a")).await;
    assert!(next.generation() > proof.generation(), "generations outlive their conversation");
}

pub(super) async fn i07_a_worker_of_a_conversation_needs_its_fence(w: &World) {
    let (old, ..) = w.begin("c", "a").await;
    w.clock.advance(i64::try_from(TTL_MS).unwrap() + 1);
    let ClaimOutcome::Recover { fence, .. } = w.claim("c", "b").await else { panic!("not recovered") };
    is_fenced(w.store.register_worker(Some(&old), worker("e", "t", "a")).await);
    w.store.register_worker(Some(&fence), worker("e", "t", "b")).await.unwrap();
    let of = |name: &str| WorkerFilter { conversation: Some(conv(name)), ..WorkerFilter::default() };
    assert_eq!(w.store.workers(of("c")).await.unwrap().len(), 1);
    assert_eq!(w.store.workers(of("d")).await.unwrap(), []);
}

pub(super) async fn i10_workers_of_an_owner_that_is_gone_become_unknown(w: &World) {
    for who in ["silent", "dead", "alive", "retired"] {
        w.beat(who).await;
        register(w, worker(&format!("of-{who}"), who, who)).await;
    }
    register(w, worker("of-nobody", "nobody", "nobody")).await;
    assert_eq!(w.store.sweep_workers().await.unwrap(), []);
    w.probe.kill(&owner("dead"));
    w.store.retire(&owner("retired")).await.unwrap();
    let lost = w.store.sweep_workers().await.unwrap();
    assert_eq!(lost, [execution("of-dead"), execution("of-retired")]);
    assert_eq!(w.another().await.sweep_workers().await.unwrap(), []);
    w.clock.advance(31_000);
    w.beat("alive").await;
    assert_eq!(w.store.sweep_workers().await.unwrap(), [execution("of-silent")]);
    // Of an owner that the store does not know, only long silence tells.
    w.clock.advance(i64::try_from(OWNER_KEEP_MS).unwrap());
    w.beat("alive").await;
    assert_eq!(w.store.sweep_workers().await.unwrap(), [execution("of-nobody")]);
    assert_eq!(state_of(w, "of-alive").await, WorkerState::Registered);
    // What is unknown can be adopted by who has the secret, and goes on.
    let lost = w.store.worker(&execution("of-silent")).await.unwrap();
    assert_eq!(lost.state, WorkerState::Unknown);
    let (fence, _) =
        w.store.adopt_worker(&lost.id, lost.generation, &secret("of-silent"), &owner("alive")).await.unwrap();
    w.store.record_receipt(&fence, receipt(1, "x", "y")).await.unwrap();
    assert_eq!(w.store.sweep_workers().await.unwrap(), []);
}

pub(super) async fn workers_are_listed_and_forgotten(w: &World) {
    let first = register(w, worker("e", "t1", "a")).await;
    w.clock.advance(1);
    register(w, NewWorker { kind: WorkerKind::Compute, ..worker("f", "t2", "a") }).await;
    w.clock.advance(1);
    register(w, NewWorker { kind: WorkerKind::Kanban, ..worker("g", "t3", "a") }).await;
    w.store.record_receipt(&first, receipt(1, "x", "y")).await.unwrap();
    w.store.finish_worker(&first, end(WorkerOutcome::Failed)).await.unwrap();
    let names = |filter: WorkerFilter| async move {
        let found = w.store.workers(filter).await.unwrap();
        found.into_iter().map(|record| record.id.as_str().to_owned()).collect::<Vec<_>>()
    };
    let all = || WorkerFilter { with_terminal: true, ..WorkerFilter::default() };
    assert_eq!(names(WorkerFilter::default()).await, ["g", "f"]);
    assert_eq!(names(all()).await, ["g", "f", "e"]);
    assert_eq!(names(WorkerFilter { limit: 1, ..all() }).await, ["g"]);
    assert_eq!(names(WorkerFilter { kind: Some(WorkerKind::Compute), ..all() }).await, ["f"]);
    w.beat("a").await;
    w.clock.advance(i64::try_from(WORKER_KEEP_MS).unwrap() - 1);
    w.beat("a").await;
    w.store.sweep_workers().await.unwrap();
    assert_eq!(names(all()).await.len(), 3);
    w.clock.advance(1);
    w.store.sweep_workers().await.unwrap();
    assert_eq!(names(all()).await, ["g", "f"], "only what is over is forgotten");
    is_not_found(w.store.receipts(&execution("e"), 0, 1).await);
}

pub(super) async fn limits_of_workers_are_kept(w: &World) {
    let limited = |result: Result<RecordOutcome, StoreError>| matches!(result, Err(StoreError::Limit { .. }));
    let long = worker("e", &"x".repeat(KEY_MAX_BYTES + 1), "a");
    assert!(matches!(w.store.register_worker(None, long).await, Err(StoreError::Limit { .. })));
    let fence = register(w, worker("e", "t", "a")).await;
    let big = "x".repeat(RECEIPT_MAX_BYTES + 1);
    assert!(limited(w.store.record_receipt(&fence, receipt(1, &big, "r")).await));
    assert!(limited(w.store.record_receipt(&fence, receipt(1, "p", &big)).await));
    let detail = WorkerEnd { outcome: WorkerOutcome::Failed, detail: Some(big) };
    assert!(matches!(w.store.finish_worker(&fence, detail).await, Err(StoreError::Limit { .. })));
    assert!(is_invalid(w.store.record_receipt(&fence, receipt(RECEIPTS_MAX + 1, "p", "r")).await));
    assert_eq!(state_of(w, "e").await, WorkerState::Registered);
}

pub(super) async fn i08_epochs_only_grow(w: &World) {
    assert_eq!(w.store.current_epoch().await.unwrap(), None);
    assert_eq!(w.store.begin_epoch(&owner("one")).await.unwrap(), Epoch(1));
    w.clock.advance(5);
    // The answer was lost: the same start is not counted twice.
    assert_eq!(w.store.begin_epoch(&owner("one")).await.unwrap(), Epoch(1));
    assert_eq!(w.another().await.begin_epoch(&owner("two")).await.unwrap(), Epoch(2));
    let newest = w.store.current_epoch().await.unwrap().unwrap();
    assert_eq!((newest.epoch, newest.instance.as_str(), newest.begun_at_ms), (Epoch(2), "two", START_MS + 5));
    w.clock.advance(-1_000);
    assert_eq!(w.store.begin_epoch(&owner("one")).await.unwrap(), Epoch(3));
    let mut tasks = Vec::new();
    for number in 0..4 {
        let store = w.another().await;
        tasks.push(tokio::spawn(async move { store.begin_epoch(&owner(&format!("n{number}"))).await.unwrap().0 }));
    }
    let mut epochs = BTreeSet::new();
    for task in tasks {
        epochs.insert(task.await.unwrap());
    }
    assert_eq!(epochs, BTreeSet::from([4, 5, 6, 7]));
}

pub(super) async fn owners_say_what_they_are(w: &World) {
    let info = |name: &str| OwnerInfo {
        id: owner(name),
        host: "here".to_owned(),
        boot_id: "boot".to_owned(),
        pid: 7,
        pid_start: 8,
    };
    let presence = || Presence { profile: "work".to_owned(), role: "gateway".to_owned() };
    assert_eq!(w.store.owners().await.unwrap(), []);
    w.beat("plain").await;
    for name in ["dead", "retired", "silent", "alive"] {
        w.clock.advance(1);
        w.store.announce(&info(name), &presence()).await.unwrap();
    }
    w.clock.advance(31_000);
    w.store.announce(&info("alive"), &presence()).await.unwrap();
    w.beat("retired").await;
    w.store.retire(&owner("retired")).await.unwrap();
    w.beat("dead").await;
    w.probe.kill(&owner("dead"));
    let found = w.another().await.owners().await.unwrap();
    let states: Vec<_> = found.iter().map(|one| (one.info.id.as_str(), one.state)).collect();
    let want = [
        ("retired", OwnerState::Retired),
        ("dead", OwnerState::Dead),
        ("alive", OwnerState::Alive),
        ("silent", OwnerState::Silent),
        ("plain", OwnerState::Silent),
    ];
    assert_eq!(states, want);
    let alive = &found[2];
    assert_eq!((alive.presence.clone(), alive.info.clone()), (Some(presence()), info("alive")));
    assert_eq!(alive.started_at_ms, Some(START_MS + 4), "the first announcement");
    assert_eq!(alive.beat_at_ms, START_MS + 31_004);
    assert_eq!((found[4].presence.clone(), found[4].started_at_ms), (None, None));
    let long = Presence { role: "x".repeat(KEY_MAX_BYTES + 1), ..presence() };
    assert!(matches!(w.store.announce(&info("alive"), &long).await, Err(StoreError::Limit { .. })));
}
