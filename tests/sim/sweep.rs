//! Runs of a scenario, undisturbed and with every disturbance of one kind.

use std::time::Duration;

use hermes_core::testing::Fault;
use hermes_core::{EndReason, TurnResult};
use hermes_store::{Role, View};

use crate::check;
use crate::world::{Killed, Node, Scenario, World};

/// Virtual time after which a world that is not at rest hangs.
const BOUND: Duration = Duration::from_secs(24 * 3_600);
/// A write number that is never reached.
pub(crate) const NEVER: i64 = i64::MAX;
/// A sleep that is longer than any lease and any heartbeat.
const LONG: Duration = Duration::from_secs(3_600);

/// Every how many waits of a scenario a sweep looks at.
fn stride(scenario: &Scenario) -> usize {
    // `cargo xtask sim` leaves none out.
    if std::env::var_os("HERMES_SIM_ALL").is_some() { 1 } else { scenario.stride }
}

/// What a run was like.
pub(crate) struct Run {
    /// How the turns of the inputs ended.
    pub(crate) ends: Vec<EndReason>,
    /// How often the node was polled.
    pub(crate) polls: u64,
    /// How often it wrote.
    pub(crate) writes: i64,
    /// What happened.
    pub(crate) trace: Vec<String>,
}

/// Runs `work` on one thread with virtual time.
pub(crate) fn simulate<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { tokio::time::timeout(BOUND, work).await.expect("the world does not come to rest") })
}

/// Runs a scenario with nothing going wrong.
pub(crate) fn undisturbed(scenario: &Scenario) -> Run {
    simulate(async {
        let world = World::new(scenario).await;
        let node = world.node("first", Fault::DiesBefore, NEVER);
        let mut work = Killed::after(u64::MAX, node.work());
        let results = (&mut work).await.unwrap();
        let polls = work.polls();
        drop(work);
        check::at_rest(&world, &results, scenario.name).await;
        finish(&world, &node, results, polls).await
    })
}

async fn finish(world: &World, node: &Node, results: Vec<TurnResult>, polls: u64) -> Run {
    let mut trace = world.trace.lock().unwrap().clone();
    for row in world.rows(View::Display).await {
        trace.push(format!("{} {:?} {:?} {}", row.seq, row.role, row.kind, row.content));
    }
    Run { ends: results.iter().map(|result| result.reason).collect(), polls, writes: node.store.writes(), trace }
}

/// The next process: it proves the death of the one before and does everything again that a client would.
async fn succeed(world: &World, dead: &str, name: &str, what: &str) {
    world.bury(dead);
    let node = world.node(name, Fault::DiesBefore, NEVER);
    let results = node.work().await;
    check::at_rest(world, &results, what).await;
    no_input_twice(world, what).await;
}

/// Each input stands in the transcript at most once.
async fn no_input_twice(world: &World, what: &str) {
    let rows = world.rows(View::Display).await;
    for input in world.scenario.inputs {
        let times = rows.iter().filter(|row| row.role == Role::User && row.content == *input).count();
        assert!(times <= 1, "{what}: {input:?} stands {times} times in the transcript");
    }
}

/// The process dies at every wait; returns how many there were.
pub(crate) fn awaits(scenario: &Scenario) -> u64 {
    let polls = undisturbed(scenario).polls;
    let mut points = 0;
    for at in (0..polls).step_by(stride(scenario)) {
        points += 1;
        let what = format!("{}: killed at wait {at}", scenario.name);
        simulate(async {
            let world = World::new(scenario).await;
            let node = world.node("first", Fault::DiesBefore, NEVER);
            Killed::after(at, node.work()).await;
            drop(node);
            succeed(&world, "first", "second", &what).await;
        });
    }
    points
}

/// Every write fails in every way; returns how many faults there were.
pub(crate) fn writes(scenario: &Scenario) -> u64 {
    let writes = undisturbed(scenario).writes;
    let mut points = 0;
    let faults = [Fault::FailsOnce, Fault::AnswerLost, Fault::DiesBefore, Fault::DiesAfter];
    for fault in faults {
        for at in (0..writes).step_by(stride(scenario)) {
            points += 1;
            let what = format!("{}: {fault:?} at write {at}", scenario.name);
            simulate(async {
                let world = World::new(scenario).await;
                let node = world.node("first", fault, at);
                tokio::select! {
                    biased;
                    () = node.store.died() => {}
                    _ = node.work() => {}
                }
                drop(node);
                succeed(&world, "first", "second", &what).await;
            });
        }
    }
    points
}

/// The process stops at every wait while another takes over, and then wakes; returns how many there were.
pub(crate) fn zombies(scenario: &Scenario) -> u64 {
    let polls = undisturbed(scenario).polls;
    let mut points = 0;
    for at in (0..polls).step_by(stride(scenario)) {
        points += 1;
        let what = format!("{}: asleep at wait {at}", scenario.name);
        simulate(async {
            let world = World::new(scenario).await;
            let sleeper = world.node("first", Fault::DiesBefore, NEVER);
            let mut work = Killed::after(at, sleeper.work());
            if (&mut work).await.is_some() {
                return;
            }
            tokio::time::advance(LONG).await;
            let node = world.node("second", Fault::DiesBefore, NEVER);
            let results = node.work().await;
            check::at_rest(&world, &results, &what).await;
            let before = world.rows(View::Display).await;
            let effects = world.effects.lock().unwrap().len();
            work.revive();
            (&mut work).await;
            assert_eq!(before, world.rows(View::Display).await, "{what}: the sleeper wrote");
            check::late_effects_are_told(&world, effects, &what).await;
            no_input_twice(&world, &what).await;
        });
    }
    points
}

/// The process dies at every `every`-th wait, and the one that recovers at every wait of its own; returns how many pairs
/// there were.
pub(crate) fn twice(scenario: &Scenario, every: usize) -> u64 {
    let polls = undisturbed(scenario).polls;
    let mut pairs = 0;
    for first in (0..polls).step_by(every * stride(scenario)) {
        for second in (0..).step_by(stride(scenario)) {
            let what = format!("{}: killed at wait {first}, and the next one at {second}", scenario.name);
            let reached = simulate(async {
                let world = World::new(scenario).await;
                let node = world.node("first", Fault::DiesBefore, NEVER);
                Killed::after(first, node.work()).await;
                drop(node);
                world.bury("first");
                let node = world.node("second", Fault::DiesBefore, NEVER);
                let ended = Killed::after(second, node.work()).await.is_some();
                drop(node);
                succeed(&world, "second", "third", &what).await;
                !ended
            });
            if !reached {
                break;
            }
            pairs += 1;
        }
    }
    pairs
}
