//! A network that swallows what it is given: nobody is told, and nobody waits for ever.

use super::*;
use hermes_store::Patience;

/// Short ones, for a test that has no minute.
fn impatient() -> Timeouts {
    Timeouts {
        acquire_ms: 5_000,
        statement_ms: 1_000,
        answer_ms: 500,
        commit_ms: 1_000,
        listen_test_ms: 300,
        ..Timeouts::default()
    }
}

/// What a call may say whose COMMIT was not sent.
fn is_passing(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { .. } | StoreError::Busy { .. } | StoreError::Retryable { .. })
}

/// Calls until the network lets it through.
async fn at_last<T, F>(call: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(done) => return done,
            Err(error) => assert!(is_passing(&error) && Instant::now() < deadline, "{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_network_swallows_everything_ends_as_unavailable_and_changes_nothing() {
    let schema = TestSchema::new();
    // The tables are made with more patience.
    connect(schema.options()).await.close().await;
    let proxy = Proxy::before(&url()).await;
    let patience = Patience::default().scaled_down(20);
    let options = PostgresOptions { url: proxy.url(), timeouts: impatient(), patience, ..schema.options() };
    let store = connect(options).await;
    let (fence, turn) = holding(&store, "a").await;
    let never = row("never");
    proxy.set(Network::Partitioned);
    let write = store.append(&fence, &turn, vec![never.clone()], None);
    let lost = tokio::time::timeout(PATIENCE, write).await.expect("it must end").unwrap_err();
    assert!(matches!(lost, StoreError::Unavailable { .. }), "{lost:?}");
    // The same for reads, for signs of life, and for opening.
    let read = tokio::time::timeout(PATIENCE, store.queue(&conversation())).await.expect("it must end");
    assert!(is_passing(read.as_ref().unwrap_err()), "{read:?}");
    let me = OwnerInfo::of_this_process(owner("a"));
    let beat = store.heartbeat(&me);
    let beat = tokio::time::timeout(PATIENCE, beat).await.expect("it must end");
    assert!(is_passing(beat.as_ref().unwrap_err()), "{beat:?}");
    let another = PostgresStore::connect(PostgresOptions { url: proxy.url(), ..schema.options() });
    let another = tokio::time::timeout(PATIENCE, another).await.expect("it must end");
    assert!(matches!(another, Err(StoreError::Unavailable { .. })), "{another:?}");

    proxy.set(Network::Whole);
    at_last(|| store.append(&fence, &turn, vec![row("after it")], None)).await;
    let rows = store.messages(&conversation(), View::Model, MessagePage::default()).await.unwrap();
    let texts: Vec<_> = rows.iter().map(|row| row.content.as_str()).collect();
    assert_eq!(texts, ["at work", "after it"]);
    tokio::time::timeout(PATIENCE, store.close()).await.expect("it must end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_swallowed_leaves_the_change_unknown_and_a_repetition_harmless() {
    let schema = TestSchema::new();
    connect(schema.options()).await.close().await;
    let proxy = Proxy::before(&url()).await;
    let store = connect(PostgresOptions { url: proxy.url(), timeouts: impatient(), ..schema.options() }).await;
    let (fence, turn) = holding(&store, "a").await;
    let written = row("once");
    // Two rows: one alone is a statement of its own, without a COMMIT.
    let rows = vec![written.clone(), row("and more")];
    proxy.set(Network::SwallowAtCommit);
    let write = store.append(&fence, &turn, rows.clone(), None);
    let unknown = tokio::time::timeout(PATIENCE, write).await.expect("it must end");
    assert!(matches!(unknown, Err(StoreError::CommitUnknown)), "{unknown:?}");
    at_last(|| store.append(&fence, &turn, rows.clone(), None)).await;
    let rows = store.messages(&conversation(), View::Model, MessagePage::default()).await.unwrap();
    assert_eq!(rows.iter().filter(|row| row.id == written.id).count(), 1);
    tokio::time::timeout(PATIENCE, store.close()).await.expect("it must end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_goes_on_when_its_connections_are_swallowed_and_hears_again_on_new_ones() {
    let schema = TestSchema::new();
    let proxy = Proxy::before(&url()).await;
    let near = connect(schema.options()).await;
    let far = connect(PostgresOptions { url: proxy.url(), timeouts: impatient(), ..schema.options() }).await;
    near.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
    let seen = far.wait_for_change(&conversation(), -1, 0).await.unwrap();
    let listening = |times: usize| {
        let proxy = &proxy;
        async move {
            let deadline = Instant::now() + PATIENCE;
            while proxy.listens() < times {
                assert!(Instant::now() < deadline, "nobody listens for the {times}. time");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    listening(1).await;
    proxy.swallow_connections();
    near.admit(input("c", "r2", "x")).await.unwrap();
    // Nobody was told; it looks by itself.
    let c = conversation();
    let changed = at_last(|| far.wait_for_change(&c, seen, 60_000)).await;
    assert!(changed > seen);
    listening(2).await;
    near.close().await;
    tokio::time::timeout(PATIENCE, far.close()).await.expect("it must end");
}
