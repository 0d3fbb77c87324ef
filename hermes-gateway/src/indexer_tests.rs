//! The indexer over real files, and over a script of what can go wrong.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use hermes_store::sqlite::{SqliteOptions, SqliteStore};
use hermes_store::{IndexProgress, IndexState, IndexStatus, ManualClock, SearchPage, SearchQuery, Store};
use tracing_subscriber::fmt::MakeWriter;

use super::*;
use crate::testing::{converse, wait_until};

/// Everything at once; what is slow here never comes.
fn quick() -> Pace {
    let ms = Duration::from_millis;
    Pace {
        gather: ms(1),
        poll: ms(3_600_000),
        breath: ms(1),
        step_rows: 7,
        round_steps: 3,
        round_pause: ms(1),
        retry: ms(1),
        retry_max: ms(5),
        damaged: ms(1),
    }
}

async fn open(dir: &Path) -> Arc<dyn Store> {
    let options = SqliteOptions::new(dir.join("hermes.db"), Arc::new(ManualClock::at(1_000_000)));
    Arc::new(SqliteStore::open(options).await.unwrap())
}

async fn is_indexed(store: &Arc<dyn Store>, rows: u64) -> bool {
    let status = store.index_status().await.unwrap();
    status.state == IndexState::Ready && status.pending == 0 && status.rows == rows
}

#[tokio::test]
async fn what_was_committed_is_indexed_in_small_steps_without_a_search() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    converse(&store, "before", 50).await;
    let committed = Arc::new(Notify::new());
    let running = tokio::spawn(run(store.clone(), committed.clone(), quick()));
    wait_until(async || is_indexed(&store, 50).await).await;
    converse(&store, "after", 30).await;
    committed.notify_one();
    wait_until(async || is_indexed(&store, 80).await).await;
    running.abort();
    store.close().await;
}

#[tokio::test]
async fn what_another_process_wrote_is_found_by_looking() {
    let dir = tempfile::tempdir().unwrap();
    let (store, other) = (open(dir.path()).await, open(dir.path()).await);
    let pace = Pace { poll: Duration::from_millis(5), ..quick() };
    let running = tokio::spawn(run(store.clone(), Arc::default(), pace));
    converse(&other, "c", 20).await;
    wait_until(async || is_indexed(&store, 20).await).await;
    running.abort();
    store.close().await;
    other.close().await;
}

#[tokio::test]
async fn an_indexer_that_is_dropped_anywhere_leaves_an_index_that_is_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    converse(&store, "c", 200).await;
    for ms in 0..30 {
        let work = run(store.clone(), Arc::default(), quick());
        let _ = tokio::time::timeout(Duration::from_millis(ms), work).await;
    }
    store.close().await;
    let store = open(dir.path()).await;
    let running = tokio::spawn(run(store.clone(), Arc::default(), quick()));
    wait_until(async || is_indexed(&store, 200).await).await;
    running.abort();
    store.close().await;
}

/// Counts the steps of a store.
struct Counted(Arc<dyn Store>, Mutex<u64>);

#[async_trait]
impl SearchStore for Counted {
    async fn search(&self, query: SearchQuery) -> Result<SearchPage, StoreError> {
        self.0.search(query).await
    }

    async fn index_step(&self, limit: usize) -> Result<IndexProgress, StoreError> {
        *self.1.lock().unwrap() += 1;
        self.0.index_step(limit).await
    }

    async fn rebuild_index(&self) -> Result<(), StoreError> {
        self.0.rebuild_index().await
    }

    async fn index_status(&self) -> Result<IndexStatus, StoreError> {
        self.0.index_status().await
    }
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines_with(&self, word: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap();
        text.lines().filter(|line| line.contains(word)).map(str::to_owned).collect()
    }

    /// Takes what this thread logs until the guard is dropped.
    fn begin(&self) -> tracing::subscriber::DefaultGuard {
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(self.clone());
        tracing::subscriber::set_default(subscriber.finish())
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn s48_a_damaged_index_is_told_once_and_filled_again_after_the_command() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hermes-search.db"), vec![7; 8_192]).unwrap();
    let store = open(dir.path()).await;
    converse(&store, "c", 20).await;
    let log = Log::default();
    let _guard = log.begin();
    let counted = Arc::new(Counted(store.clone(), Mutex::new(0)));
    let running = tokio::spawn(run(counted.clone(), Arc::default(), quick()));
    wait_until(async || *counted.1.lock().unwrap() > 5).await;
    let told = log.lines_with("WARN");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("HM1021") && told[0].contains("`hermes sessions reindex`"), "{told:?}");
    // The command: it throws the file away, and whoever is first fills the new one.
    store.rebuild_index().await.unwrap();
    wait_until(async || is_indexed(&store, 20).await).await;
    wait_until(async || log.lines_with("up to date again").len() == 1).await;
    running.abort();
    store.close().await;
}

type Answer = Result<IndexProgress, StoreError>;

/// Answers steps as it is told, each after its time; then nothing is left to do.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<(u64, Answer)>>,
    at: Mutex<Vec<Instant>>,
}

impl Script {
    fn new(answers: impl IntoIterator<Item = (u64, Answer)>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), at: Mutex::default() })
    }

    /// Milliseconds before each step since the one before, or since `begun`.
    fn pauses(&self, begun: Instant) -> Vec<u128> {
        let mut last = begun;
        let at = self.at.lock().unwrap();
        at.iter().map(|at| (*at - std::mem::replace(&mut last, *at)).as_millis()).collect()
    }
}

#[async_trait]
impl SearchStore for Script {
    async fn search(&self, _query: SearchQuery) -> Result<SearchPage, StoreError> {
        panic!("the indexer does not search")
    }

    async fn index_step(&self, _limit: usize) -> Answer {
        self.at.lock().unwrap().push(Instant::now());
        let next = self.answers.lock().unwrap().pop_front();
        let (takes_ms, answer) = next.unwrap_or((0, done()));
        tokio::time::sleep(Duration::from_millis(takes_ms)).await;
        answer
    }

    async fn rebuild_index(&self) -> Result<(), StoreError> {
        panic!("the index is built anew by a command only")
    }

    async fn index_status(&self) -> Result<IndexStatus, StoreError> {
        panic!("the indexer does not ask")
    }
}

fn done() -> Answer {
    Ok(IndexProgress { is_done: true, ..IndexProgress::default() })
}

fn more() -> Answer {
    Ok(IndexProgress { rows: 500, conversations: 1, is_done: false })
}

/// The pauses before the steps within so many milliseconds.
async fn pauses(script: &Arc<Script>, committed: Arc<Notify>, for_ms: u64) -> Vec<u128> {
    let begun = Instant::now();
    let work = run(script.clone(), committed, Pace::default());
    let _ = tokio::time::timeout(Duration::from_millis(for_ms), work).await;
    script.pauses(begun)
}

#[tokio::test(start_paused = true)]
async fn a_store_in_use_or_away_is_tried_again_more_and_more_seldom() {
    let busy = || (0, Err(StoreError::Busy { waited_ms: 250 }));
    let away = || (0, Err(StoreError::Unavailable { detail: "away".to_owned() }));
    let answers = [busy(), away(), busy(), away(), busy(), away(), busy(), away(), (0, done()), busy()];
    let got = pauses(&Script::new(answers), Arc::default(), 320_000).await;
    let after_success = u128::from(INDEX_POLL_MS + INDEX_GATHER_MS);
    let want = [2_000, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, after_success, 1_000];
    assert_eq!(got[..11], want);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_index_is_left_alone_for_long_whatever_is_committed() {
    let damaged = || (0, Err(StoreError::SearchIndex { detail: "damaged".to_owned() }));
    let committed = Arc::new(Notify::new());
    committed.notify_one();
    let got = pauses(&Script::new([damaged(), damaged()]), committed, 1_270_000).await;
    assert_eq!(got, [2_000, 600_000, 600_000, 62_000]);
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_commits_is_one_step_and_a_quiet_time_one_look() {
    let committed = Arc::new(Notify::new());
    let script = Script::new([]);
    let burst = async {
        tokio::time::sleep(Duration::from_millis(10_000)).await;
        for _ in 0..5 {
            committed.notify_one();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let (got, ()) = tokio::join!(pauses(&script, committed.clone(), 80_000), burst);
    assert_eq!(got, [2_000, 10_000, 62_000]);
}

#[tokio::test(start_paused = true)]
async fn a_long_build_rests_as_long_as_it_works_and_longer_after_a_round() {
    let slow = (0..INDEX_ROUND_STEPS).map(|_| (300, more()));
    let got = pauses(&Script::new(slow.chain([(0, more()), (0, done())])), Arc::default(), 30_000).await;
    let mut want = vec![600; INDEX_ROUND_STEPS];
    want[0] = 2_000;
    want.extend([600 + u128::from(INDEX_ROUND_PAUSE_MS), u128::from(INDEX_BREATH_MS)]);
    assert_eq!(got, want);
}
