//! The same scenarios on real databases in real time: SQLite in a file, PostgreSQL in a schema of its own. Time runs faster
//! than it should ([`crate::pace`]), an hour is not waited for, and there are a few crash points of each kind only: all of
//! them are looked at on the in-memory store, with which both databases are compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hermes_core::testing::{Fault, FaultStore};
use hermes_store::postgres::{OwnershipClock, PostgresOptions, PostgresStore};
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::{IdKind, IdSource as _, Store, UuidIds};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::task::JoinHandle;

use crate::bound::simulate;
use crate::model::{Meanwhile, Step};
use crate::pace::Pace;
use crate::scenarios::ALL;
use crate::sweep::{self, FAULTS, NEVER, projection};
use crate::world::{Dead, Ground, Scenario, World};

/// Scenarios that run at the same time.
const LANES: usize = 4;
/// Places at which a process dies, and at which one sleeps, in each scenario.
const PLACES: u64 = 2;
/// Connections of each store.
const CONNECTIONS: u32 = 4;
/// A wait of a model from which on a scenario runs once only, in milliseconds of the scenario.
const SLOW_MS: u64 = 100_000;
/// Where `cargo xtask test` says which server to use.
const URL_VARIABLE: &str = "HERMES_TEST_POSTGRES";

/// A store of a scenario, twice: for the processes, and for those who look on.
type Stores = [Arc<dyn Store>; 2];
/// Makes the stores of one scenario, with this time and these dead.
type Fresh = Arc<dyn Fn(Arc<Pace>, Arc<Dead>) -> BoxFuture<'static, Stores> + Send + Sync>;

/// The ground of one scenario, whose time runs until it is dropped.
struct Running {
    ground: Ground,
    time: JoinHandle<()>,
}

impl Running {
    async fn on(fresh: &Fresh) -> Self {
        let (clock, dead) = (Pace::new(), Arc::new(Dead::default()));
        let [store, lookout] = fresh(clock.clone(), dead.clone()).await;
        let store = FaultStore::new(store, Fault::DiesBefore, NEVER);
        let pushed = clock.clone();
        let pass = move |ms| {
            pushed.push(i64::try_from(ms).unwrap());
            futures::future::ready(()).boxed()
        };
        // A task of its own: whatever is polled together with a scenario is counted as one of its waits.
        let time = tokio::spawn(clock.clone().run(store.clone()));
        Self { ground: Ground { store, lookout, clock, dead, pass: Arc::new(pass), lends: true }, time }
    }

    async fn end(self) {
        self.ground.store.close().await;
        self.ground.lookout.close().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.time.abort();
    }
}

/// One scenario after the other in a few lanes, each of which has a thread of its own. Returns how many runs there were.
fn run(fresh: &Fresh) -> u64 {
    let (runs, next) = (Arc::new(AtomicU64::new(0)), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let lane = || {
            // One worker; only a read where nothing may be awaited (`crate::parts::at_once`) takes a second one.
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            while let Some(scenario) = ALL.get(next.fetch_add(1, Ordering::SeqCst)) {
                let (fresh, runs) = (fresh.clone(), runs.clone());
                let done = runtime.spawn(async move { points(&fresh, scenario, &runs).await });
                runtime.block_on(done).unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            }
        };
        for lane in [lane; LANES].map(|lane| scope.spawn(lane)) {
            lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    runs.load(Ordering::SeqCst)
}

/// Whether a step of the scenario takes long.
fn is_slow(scenario: &Scenario) -> bool {
    let waits = |step: &Step| matches!(step.meanwhile, Some(Meanwhile::Wait(ms)) if ms > SLOW_MS);
    scenario.script.iter().any(|(_, steps)| steps.iter().any(waits))
}

/// Whether the scenario gives tasks to children, which its name tells.
fn has_children(scenario: &Scenario) -> bool {
    scenario.name.contains("child")
}

/// The scenario undisturbed, and with a few disturbances of each kind.
async fn points(fresh: &Fresh, scenario: &Scenario, runs: &AtomicU64) {
    let name = scenario.name;
    let shared = Running::on(fresh).await;
    let mut last: Option<Running> = None;
    let mut world = async || {
        let number = runs.fetch_add(1, Ordering::SeqCst);
        // Who looks after children looks after those of all worlds of a store.
        let ground = if has_children(scenario) {
            if let Some(last) = last.take() {
                last.end().await;
            }
            last.insert(Running::on(fresh).await).ground.clone()
        } else {
            shared.ground.clone()
        };
        World::on(&ground, scenario, &format!("w{number}-"), &["conv"]).await
    };
    let first = world().await;
    let run = sweep::undisturbed_in(&first).await;
    assert_eq!(run.ends, scenario.ends, "{name}");
    // How far a call gets before the deadline is a matter of the machine, and so is which of several children ends first.
    let is_free = scenario.ends.contains(&hermes_core::EndReason::DeadlineExceeded) || has_children(scenario);
    if !is_free {
        let model = std::thread::scope(|scope| scope.spawn(|| model_of(scenario)).join().unwrap());
        assert_eq!(plain(&projection(&first).await), model, "{name}: not what the in-memory store holds");
    }
    if !is_slow(scenario) && !scenario.held {
        // Where the sweeps leave out some, so does this.
        let step = if scenario.stride > 1 { 2 } else { 1 };
        for place in (0..PLACES).step_by(step) {
            let at = run.polls * (2 * place + 1) / (2 * PLACES);
            sweep::killed_at(&world().await, at, &format!("{name}: killed at wait {at}")).await;
        }
        let faults = i64::try_from(FAULTS.len()).unwrap();
        for (place, fault) in (0..faults).zip(FAULTS).step_by(step) {
            let at = run.writes * (2 * place + 1) / (2 * faults);
            sweep::struck_at(&world().await, fault, at, &format!("{name}: {fault:?} at write {at}")).await;
        }
        let at = run.polls / 2;
        sweep::asleep_at(&world().await, at, &format!("{name}: asleep at wait {at}")).await;
    }
    for ground in last.into_iter().chain([shared]) {
        ground.end().await;
    }
}

/// What the in-memory store holds at the end of a scenario.
fn model_of(scenario: &Scenario) -> Vec<String> {
    plain(&simulate(scenario.name, async {
        let world = World::new(scenario).await;
        sweep::undisturbed_in(&world).await;
        projection(&world).await
    }))
}

/// Rows without the ids of their calls, which count looks at the queue too.
fn plain(rows: &[String]) -> Vec<String> {
    let mark = "-call-";
    let word = |word: &str| {
        let mut parts = word.split(mark);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            // What stands before the mark is the name of a process in a world.
            let kept = out.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '-').len();
            out.truncate(kept);
            out.push_str("call");
            out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
        }
        out
    };
    rows.iter().map(|row| row.split(' ').map(word).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn every_scenario_holds_on_sqlite_in_real_time() {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let files = Arc::new(AtomicU64::new(0));
    let fresh: Fresh = Arc::new(move |clock, dead| {
        let path = directory.path().join(format!("{}.db", files.fetch_add(1, Ordering::SeqCst)));
        async move {
            let options =
                SqliteOptions { synchronous: Synchronous::Normal, probe: dead, ..SqliteOptions::new(path, clock) };
            let store = SqliteStore::open(options.clone()).await.unwrap();
            [Arc::new(store) as Arc<dyn Store>, Arc::new(SqliteStore::open(options).await.unwrap())]
        }
        .boxed()
    });
    let runs = run(&fresh);
    crate::told(runs, "runs", "on SQLite in real time");
}

/// Schemas of the test's own, removed with everything in them at the end.
struct Schemas {
    url: String,
    name: String,
    count: AtomicU64,
}

impl Schemas {
    /// # Panics
    /// When the environment names no server: a test of PostgreSQL is never skipped.
    fn new() -> Self {
        let url = std::env::var(URL_VARIABLE).unwrap_or_default();
        assert!(
            !url.is_empty(),
            "{URL_VARIABLE} is not set: run `cargo xtask test`, or `cargo xtask postgres COMMAND`"
        );
        let id = UuidIds.next(IdKind::Change);
        let name = format!("sim_{}", id.replace(|c: char| !c.is_ascii_alphanumeric(), ""));
        Self { url, name, count: AtomicU64::new(0) }
    }

    /// The name of the next one.
    fn next(&self) -> String {
        format!("{}_{}", self.name, self.count.fetch_add(1, Ordering::SeqCst))
    }
}

impl Drop for Schemas {
    fn drop(&mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options: sqlx::postgres::PgConnectOptions = self.url.parse().unwrap();
            let mut conn = options.connect().await.unwrap();
            // One by one: each table that goes takes a lock of the server until the end of its transaction.
            for number in 0..self.count.load(Ordering::SeqCst) {
                let text =
                    format!("SET client_min_messages TO warning; DROP SCHEMA IF EXISTS {}_{number} CASCADE", self.name);
                sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut conn).await.unwrap();
            }
            conn.close().await.unwrap();
        });
    }
}

#[test]
fn every_scenario_holds_on_postgresql_in_real_time() {
    let schemas = Arc::new(Schemas::new());
    let fresh: Fresh = Arc::new(move |clock, dead| {
        let options = PostgresOptions {
            schema: schemas.next(),
            connections: CONNECTIONS,
            clock: OwnershipClock::Given(clock),
            probe: dead,
            ..PostgresOptions::new(schemas.url.clone())
        };
        async move {
            let store = PostgresStore::connect(options.clone()).await.unwrap();
            [Arc::new(store) as Arc<dyn Store>, Arc::new(PostgresStore::connect(options).await.unwrap())]
        }
        .boxed()
    });
    let runs = run(&fresh);
    drop(fresh);
    crate::told(runs, "runs", "on PostgreSQL in real time");
}
