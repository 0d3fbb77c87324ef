//! What holds for many: the limit of a queue.

use super::*;
use hermes_store::AdmitOutcome;
use hermes_store::limits::QUEUE_MAX;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i26_the_limit_of_a_queue_is_exact_for_many_who_admit_at_once() {
    const HANDLES: usize = 4;
    const EACH: usize = 10;
    const LEFT: usize = 7;
    let schema = TestSchema::new();
    let first = connect(schema.options()).await;
    first.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
    // All places but a few, written as admissions are.
    let mut conn = schema.connection().await;
    let filled = QUEUE_MAX - 1 - i64::try_from(LEFT).unwrap();
    run(
        &mut conn,
        &format!(
            "INSERT INTO admissions (id, conversation_id, seq, principal, request_id, intent, payload, submitted_by, \
             status, created_ms) SELECT 'fill-' || n, 'c', 1 + n, 'p', 'fill-' || n, 'queue', 'x', 'o', 'queued', 1 \
             FROM generate_series(1, {filled}) AS n; \
             UPDATE conversations SET place = place + {filled} WHERE id = 'c'"
        ),
    )
    .await;
    let mut admits = tokio::task::JoinSet::new();
    for handle in 0..HANDLES {
        let store = connect(schema.options()).await;
        for number in 0..EACH {
            let store = store.clone();
            admits.spawn(async move { store.admit(input("c", &format!("{handle}-{number}"), "x")).await });
        }
    }
    let mut accepted = 0;
    for done in admits.join_all().await {
        match done {
            Ok(AdmitOutcome::Accepted(_)) => accepted += 1,
            Err(StoreError::Limit { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(accepted, LEFT);
    let waiting: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM admissions WHERE status <> 'terminal'")
        .fetch_one(&mut conn)
        .await
        .unwrap();
    assert_eq!(waiting, QUEUE_MAX);
    // What was accepted before is told again all the same; there is room again when one is taken back.
    let again = first.admit(input("c", "r", "x")).await.unwrap();
    let AdmitOutcome::Replayed(receipt) = again else { panic!("{again:?}") };
    first.cancel(&receipt.admission).await.unwrap();
    let room = first.admit(input("c", "room", "x")).await.unwrap();
    assert!(matches!(room, AdmitOutcome::Accepted(_)), "{room:?}");
    first.close().await;
}
