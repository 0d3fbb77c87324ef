//! Changes that waited for a row: what they saw before they waited may not hold any more.

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::limits::HEARTBEAT_DEAD_MS;
use hermes_store::{
    AdmissionStore, AmbiguousPolicy, DeliveryClaim, DeliveryId, DeliveryRequest, DeliveryState, DeliveryStore,
    ExecutionId, LeaseStore, NewWorker, OwnerInfo, WorkStore, WorkerKind, WorkerSecret, WorkerState,
};

use super::support::{TestSchema, connection, run, url};
use super::{Duration, Instant, PATIENCE, connect, far_away};

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
