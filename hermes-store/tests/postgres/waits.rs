//! Changes that waited for a row: what they saw before they waited may not hold any more.

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::limits::HEARTBEAT_DEAD_MS;
use hermes_store::{
    AdmissionStatus, AdmissionStore, AmbiguousPolicy, DeliveryClaim, DeliveryId, DeliveryRequest, DeliveryState,
    DeliveryStore, ExecutionId, LeaseStore, NewWorker, OwnerInfo, WorkStore, WorkerKind, WorkerSecret, WorkerState,
};

use super::support::{TestSchema, connection, run, url};
use super::{Duration, Instant, LOOK, PATIENCE, connect, far_away};

/// Returns as soon as a statement waits for a row of the schema.
async fn somebody_waits(schema: &TestSchema) {
    let mut admin = connection(&url()).await;
    let look = format!(
        "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid IN (SELECT l.pid FROM pg_locks l \
         JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{}')",
        schema.name()
    );
    let deadline = Instant::now() + PATIENCE;
    loop {
        let waiting: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(look.clone())).fetch_one(&mut admin).await.unwrap();
        if waiting > 0 {
            return;
        }
        assert!(Instant::now() < deadline, "nobody waited");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s42_a_worker_that_is_adopted_while_a_sweep_waits_is_not_lost() {
    let schema = TestSchema::new();
    let store = connect(schema.options()).await;
    store.heartbeat(&far_away("gone")).await.unwrap();
    store.heartbeat(&OwnerInfo::of_this_process(owner("alive"))).await.unwrap();
    let id = ExecutionId::parse("w").unwrap();
    let new = NewWorker {
        id: id.clone(),
        kind: WorkerKind::Cron,
        task: "t".to_owned(),
        owner: owner("gone"),
        secret: WorkerSecret::random(),
    };
    store.register_worker(None, new).await.unwrap();
    let mut other = schema.connection().await;
    let dead_ms = HEARTBEAT_DEAD_MS + 1_000;
    run(&mut other, &format!("UPDATE owners SET beat_ms = beat_ms - {dead_ms} WHERE id = 'gone'")).await;
    run(&mut other, "BEGIN").await;
    run(&mut other, "UPDATE worker_executions SET owner = 'alive', generation = generation + 1 WHERE id = 'w'").await;
    let sweep = {
        let store = store.clone();
        tokio::spawn(async move { store.sweep_workers().await })
    };
    somebody_waits(&schema).await;
    run(&mut other, "COMMIT").await;
    assert_eq!(sweep.await.unwrap().unwrap(), []);
    assert_eq!(store.worker(&id).await.unwrap().state, WorkerState::Registered);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_that_is_confirmed_while_a_claim_waits_is_not_sent_again() {
    let schema = TestSchema::new();
    let store = connect(schema.options()).await;
    store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
    let mut other = schema.connection().await;
    run(&mut other, "INSERT INTO delivery_lanes (account, chat, place) VALUES ('a', '7', 1)").await;
    run(
        &mut other,
        "INSERT INTO deliveries (id, conversation_id, turn_id, kind, part, account, chat, thread, content, place, state, \
         is_open, attempt, is_duplicate, platform_ids, owner, lease_expires_ms, created_ms) SELECT 'd', 'c', 't', \
         'answer', 0, 'a', '7', '', 'hi', 1, 'attempting', 1, 1, 0, '[]', 'gone', created_ms - 1, created_ms \
         FROM conversations WHERE id = 'c'",
    )
    .await;
    run(&mut other, "BEGIN").await;
    let confirm = "UPDATE deliveries SET state = 'delivered', is_open = 0, ended_ms = created_ms WHERE id = 'd'";
    run(&mut other, confirm).await;
    let claim = {
        let store = store.clone();
        let request = DeliveryRequest {
            account: "a".to_owned(),
            owner: owner("b"),
            lease_ms: 60_000,
            ambiguous: AmbiguousPolicy::Resend,
        };
        tokio::spawn(async move { store.claim_delivery(request).await })
    };
    somebody_waits(&schema).await;
    run(&mut other, "COMMIT").await;
    let claim = claim.await.unwrap().unwrap();
    assert!(matches!(claim, DeliveryClaim::Idle { next_at_ms: None }), "{claim:?}");
    let delivery = store.delivery(&DeliveryId::parse("d").unwrap()).await.unwrap();
    assert_eq!((delivery.state, delivery.attempt), (DeliveryState::Delivered, 1));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i08_a_conversation_that_is_made_while_its_namesake_is_deleted_begins_above_its_counters() {
    let schema = TestSchema::new();
    let store = connect(schema.options()).await;
    store.create_and_admit(new_conversation("c"), input("c", "r1", "x")).await.unwrap();
    let mut other = schema.connection().await;
    run(&mut other, "DELETE FROM admissions").await;
    run(&mut other, "BEGIN").await;
    run(&mut other, "INSERT INTO tombstones (id, token, generation, seq, place) VALUES ('c', 50, 51, 52, 53)").await;
    run(&mut other, "DELETE FROM conversations WHERE id = 'c'").await;
    let again = {
        let store = store.clone();
        tokio::spawn(async move { store.create_and_admit(new_conversation("c"), input("c", "r2", "x")).await })
    };
    somebody_waits(&schema).await;
    run(&mut other, "COMMIT").await;
    again.await.unwrap().unwrap();
    let counters = "SELECT token, generation, seq, place FROM conversations WHERE id = 'c'";
    let counters: (i64, i64, i64, i64) = sqlx::query_as(counters).fetch_one(&mut other).await.unwrap();
    assert_eq!(counters, (50, 51, 52, 54));
    store.close().await;
}

/// Changes of many rows take them in one order, whatever order they lie in: two of them wait for each other and never
/// crosswise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_rows_are_taken_in_one_order() {
    let schema = TestSchema::new();
    let store = connect(schema.options()).await;
    let mut other = schema.connection().await;
    for id in ["b", "a"] {
        let insert = format!(
            "INSERT INTO owners (id, host, boot_id, pid, pid_start, beat_ms, retired) VALUES ('{id}', 'h', 'b', 1, 1, 0, 0)"
        );
        run(&mut other, &insert).await;
    }
    run(&mut other, "BEGIN; SELECT id FROM owners WHERE id = 'a' FOR UPDATE").await;
    // A beat forgets both.
    let beat = {
        let store = store.clone();
        tokio::spawn(async move { store.heartbeat(&OwnerInfo::of_this_process(owner("me"))).await })
    };
    somebody_waits(&schema).await;
    // It waits for the first and does not hold the second: with that in hand it would be a deadlock.
    run(&mut other, "SELECT id FROM owners WHERE id = 'b' FOR UPDATE NOWAIT; COMMIT").await;
    beat.await.unwrap().unwrap();
    store.close().await;
}

/// S17: what is being admitted while its owner retires is there when the retirement returns; nothing comes behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retirement_waits_for_what_its_owner_is_admitting() {
    let schema = TestSchema::new();
    let store = connect(schema.options()).await;
    store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
    let me = input("c", "s", "y");
    store.heartbeat(&OwnerInfo::of_this_process(me.submitted_by.clone())).await.unwrap();
    // An admission under the same key, which is taken back: ours has looked at its owner, and is not in yet.
    let mut other = schema.connection().await;
    run(&mut other, "BEGIN").await;
    run(
        &mut other,
        &format!(
            "INSERT INTO admissions (id, conversation_id, seq, principal, request_id, intent, payload, submitted_by, status, \
             created_ms) VALUES ('other', 'c', 99, '{}', '{}', 'queue', 'x', 'o', 'queued', 1)",
            me.principal, me.request_id
        ),
    )
    .await;
    let admit = {
        let (store, me) = (store.clone(), me.clone());
        tokio::spawn(async move { store.admit(me).await })
    };
    somebody_waits(&schema).await;
    let retire = {
        let (store, id) = (store.clone(), me.submitted_by.clone());
        tokio::spawn(async move { store.retire(&id).await })
    };
    tokio::time::sleep(LOOK).await;
    assert!(!retire.is_finished(), "an input of a retired owner came after its retirement");
    run(&mut other, "ROLLBACK").await;
    let admitted = admit.await.unwrap().unwrap();
    retire.await.unwrap().unwrap();
    // The input is not lost: it waits for whoever comes.
    let record = store.admission(&admitted.receipt().admission).await.unwrap();
    assert_eq!(record.receipt.status, AdmissionStatus::Queued);
    assert_eq!(store.admit(input("c", "t", "z")).await.unwrap_err().code(), "HM1022");
    store.close().await;
}
