//! The same scenarios on real databases in real time: SQLite in a file, PostgreSQL in a schema of its own. Time runs
//! [`SPEED`] times as fast as it should, an hour is not waited for, and there are a few crash points of each kind only: all
//! of them are looked at on the in-memory store, with which both databases are compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hermes_core::testing::FastClock;
use hermes_store::postgres::{OwnershipClock, PostgresOptions, PostgresStore};
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::{IdKind, IdSource as _, UuidIds};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::bound::simulate;
use crate::model::{Meanwhile, Step};
use crate::scenarios::ALL;
use crate::sweep::{self, FAULTS, projection};
use crate::world::{Dead, Ground, Scenario, World};

/// How much faster than it should time runs.
const SPEED: u32 = 100;
/// The same where one owner waits for another: each look takes its time, whatever the clock says.
const SPEED_HELD: u32 = 10;
/// Scenarios that run at the same time.
const LANES: usize = 4;
/// Places at which a process dies, and at which one sleeps, in each scenario.
const PLACES: u64 = 2;
/// A wait of a model from which on a scenario runs once only, in milliseconds of the scenario.
const SLOW_MS: u64 = 100_000;
/// Where `cargo xtask test` says which server to use.
const URL_VARIABLE: &str = "HERMES_TEST_POSTGRES";

/// Makes a ground for one scenario.
type Fresh = Arc<dyn Fn(Arc<FastClock>, Arc<Dead>) -> BoxFuture<'static, Ground> + Send + Sync>;

fn ground(store: Arc<dyn hermes_store::Store>, clock: Arc<FastClock>, dead: Arc<Dead>) -> Ground {
    let pushed = clock.clone();
    let pass = move |ms| {
        pushed.push(i64::try_from(ms).unwrap());
        futures::future::ready(()).boxed()
    };
    Ground { store, clock, dead, pass: Arc::new(pass) }
}

/// One scenario after the other in a few lanes. Returns how many runs there were.
fn run(fresh: &Fresh) -> u64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(LANES).enable_all().build().unwrap();
    let runs = Arc::new(AtomicU64::new(0));
    runtime.block_on(async {
        let lanes = Arc::new(Semaphore::new(LANES));
        let mut all = JoinSet::new();
        for scenario in ALL {
            let (fresh, lanes, runs) = (fresh.clone(), lanes.clone(), runs.clone());
            all.spawn(async move {
                let _lane = lanes.acquire().await.unwrap();
                let speed = if scenario.held { SPEED_HELD } else { SPEED };
                let (clock, dead) = (FastClock::new(speed), Arc::new(Dead::default()));
                let ground = fresh(clock.clone(), dead.clone()).await;
                points(&ground, scenario, &runs).await;
            });
        }
        while let Some(done) = all.join_next().await {
            if let Err(error) = done {
                std::panic::resume_unwind(error.into_panic());
            }
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
async fn points(ground: &Ground, scenario: &Scenario, runs: &AtomicU64) {
    let name = scenario.name;
    let world = async |scenario: &Scenario| {
        let number = runs.fetch_add(1, Ordering::SeqCst);
        World::on(ground, scenario, &format!("w{number}-"), &["conv"]).await
    };
    let first = world(scenario).await;
    let run = sweep::undisturbed_in(&first).await;
    assert_eq!(run.ends, scenario.ends, "{name}");
    // How far a call gets before the deadline is a matter of the machine, and so is which of several children ends first.
    let is_free = scenario.ends.contains(&hermes_core::EndReason::DeadlineExceeded) || has_children(scenario);
    if !is_free {
        let model = std::thread::scope(|scope| scope.spawn(|| model_of(scenario)).join().unwrap());
        assert_eq!(plain(&projection(&first).await), model, "{name}: not what the in-memory store holds");
    }
    // Who looks after children looks after those of all worlds of a store: one that was left by a world that died is run in
    // the next one, whose journal does not know it.
    if is_slow(scenario) || scenario.held || has_children(scenario) {
        return;
    }
    // Where the sweeps leave out some, so does this.
    let step = if scenario.stride > 1 { 2 } else { 1 };
    for place in (0..PLACES).step_by(step) {
        let at = run.polls * (2 * place + 1) / (2 * PLACES);
        let world = world(scenario).await;
        sweep::killed_at(&world, at, &format!("{name}: killed at wait {at}")).await;
    }
    let faults = i64::try_from(FAULTS.len()).unwrap();
    for (place, fault) in (0..faults).zip(FAULTS).step_by(step) {
        let at = run.writes * (2 * place + 1) / (2 * faults);
        let world = world(scenario).await;
        sweep::struck_at(&world, fault, at, &format!("{name}: {fault:?} at write {at}")).await;
    }
    let at = run.polls / 2;
    let world = world(scenario).await;
    sweep::asleep_at(&world, at, &format!("{name}: asleep at wait {at}")).await;
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
            let options = SqliteOptions {
                synchronous: Synchronous::Normal,
                probe: dead.clone(),
                ..SqliteOptions::new(path, clock.clone())
            };
            ground(Arc::new(SqliteStore::open(options).await.unwrap()), clock, dead)
        }
        .boxed()
    });
    let runs = run(&fresh);
    crate::told(runs, "runs", "on SQLite in real time");
}

/// A schema of the test's own, removed with everything in it at the end.
struct Schema {
    url: String,
    name: String,
}

impl Schema {
    /// # Panics
    /// When the environment names no server: a test of PostgreSQL is never skipped.
    fn new() -> Self {
        let url = std::env::var(URL_VARIABLE).unwrap_or_default();
        assert!(
            !url.is_empty(),
            "{URL_VARIABLE} is not set: run `cargo xtask test`, or `cargo xtask postgres COMMAND`"
        );
        let id = UuidIds.next(IdKind::Change);
        Self { url, name: format!("sim_{}", id.replace(|c: char| !c.is_ascii_alphanumeric(), "")) }
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options: sqlx::postgres::PgConnectOptions = self.url.parse().unwrap();
            let mut conn = options.connect().await.unwrap();
            let text = format!("SET client_min_messages TO warning; DROP SCHEMA IF EXISTS {} CASCADE", self.name);
            sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut conn).await.unwrap();
            conn.close().await.unwrap();
        });
    }
}

#[test]
fn every_scenario_holds_on_postgresql_in_real_time() {
    let schema = Schema::new();
    let (url, name) = (schema.url.clone(), schema.name.clone());
    let fresh: Fresh = Arc::new(move |clock, dead| {
        let options = PostgresOptions {
            schema: name.clone(),
            connections: 4,
            clock: OwnershipClock::Given(clock.clone()),
            probe: dead.clone(),
            ..PostgresOptions::new(url.clone())
        };
        async move { ground(Arc::new(PostgresStore::connect(options).await.unwrap()), clock, dead) }.boxed()
    });
    let runs = run(&fresh);
    crate::told(runs, "runs", "on PostgreSQL in real time");
}
