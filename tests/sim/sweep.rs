//! Runs of a scenario, undisturbed and with every disturbance of one kind.

use std::collections::BTreeMap;

use hermes_core::testing::Fault;
use hermes_core::{EndReason, TurnResult};
use hermes_store::{Role, StoredMessage};

use crate::bound::simulate;
use crate::check;
use crate::world::{Killed, Node, Scenario, World};

/// A write number that is never reached.
pub(crate) const NEVER: i64 = i64::MAX;
/// A sleep that is longer than any lease and any heartbeat, in milliseconds.
const LONG_MS: u64 = 3_600_000;

/// Every how many waits of a scenario a sweep looks at.
fn stride(scenario: &Scenario) -> usize {
    // `cargo xtask sim` leaves none out.
    if std::env::var_os("HERMES_SIM_ALL").is_some() { 1 } else { scenario.stride }
}

/// What a run was like.
pub(crate) struct Run {
    /// How the turns of the inputs ended.
    pub(crate) ends: Vec<EndReason>,
    /// How often the first node was polled.
    pub(crate) polls: u64,
    /// How often it wrote.
    pub(crate) writes: i64,
    /// What happened.
    pub(crate) trace: Vec<String>,
}

/// How the life of a process ended.
pub(crate) struct Life {
    /// The results, when it came to the end of its work.
    pub(crate) results: Option<Vec<TurnResult>>,
    /// How often it was polled.
    pub(crate) polls: u64,
    /// How often it wrote.
    pub(crate) writes: i64,
}

/// One process, until its work is done, it dies, or it was polled `polls` times.
pub(crate) async fn live(node: Node, polls: u64) -> Life {
    let mut work = Killed::after(polls, node.work());
    let results = tokio::select! {
        biased;
        () = node.store.died() => None,
        results = &mut work => results,
    };
    Life { results, polls: work.polls(), writes: node.store.writes() }
}

/// One process after the other, until one comes to the end of its work. Each proves the death of the one before and does
/// everything again that a client would.
pub(crate) async fn succeed(world: &World, name: &str) -> Vec<TurnResult> {
    for number in 1.. {
        let name = format!("{name}.{number}");
        if let Some(results) = live(world.node(&name, Fault::DiesBefore, NEVER), u64::MAX).await.results {
            return results;
        }
        world.bury(&name);
        world.pass(world.scenario.rest_ms).await;
    }
    unreachable!()
}

/// Runs a scenario with nothing going wrong but what it says.
pub(crate) async fn undisturbed_in(world: &World) -> Run {
    let first = live(world.node("first", Fault::DiesBefore, NEVER), u64::MAX).await;
    let results = match first.results {
        Some(results) => results,
        None => {
            world.bury("first");
            world.pass(world.scenario.rest_ms).await;
            succeed(world, "second").await
        }
    };
    check::at_rest(world, &results, world.scenario.name).await;
    let mut trace = world.trace.lock().unwrap().clone();
    trace.extend(projection(world).await);
    let ends = results.iter().map(|result| result.reason).collect();
    Run { ends, polls: first.polls, writes: first.writes, trace }
}

/// What the store holds at the end, without ids and times: the same whatever store it is.
pub(crate) async fn projection(world: &World) -> Vec<String> {
    let mut out = Vec::new();
    for conversation in &world.everybody().await {
        for row in world.rows(conversation).await {
            let outcome = row.answers.as_ref().map(|call| call.outcome);
            out.push(format!("{:?} {:?} {} {outcome:?}", row.role, row.kind, row.content));
        }
    }
    out
}

/// The same in a world of its own.
pub(crate) fn undisturbed(scenario: &Scenario) -> Run {
    simulate(scenario.name, async { undisturbed_in(&World::new(scenario).await).await })
}

/// The next processes, and the checks at the end.
async fn recover(world: &World, dead: &str, name: &str, what: &str) {
    world.bury(dead);
    let results = succeed(world, name).await;
    check::at_rest(world, &results, what).await;
    no_input_twice(world, what).await;
}

/// Each input stands in the transcript at most once.
pub(crate) async fn no_input_twice(world: &World, what: &str) {
    let rows = world.rows(world.conversation()).await;
    for input in world.scenario.inputs {
        let times = rows.iter().filter(|row| row.role == Role::User && row.content == *input).count();
        assert!(times <= 1, "{what}: {input:?} stands {times} times in the transcript");
    }
}

/// The process dies at its `at`-th wait; returns the phase that it was in.
pub(crate) async fn killed_at(world: &World, at: u64, what: &str) -> &'static str {
    live(world.node("first", Fault::DiesBefore, NEVER), at).await;
    let phase = phase(&world.trace.lock().unwrap());
    recover(world, "first", "second", what).await;
    phase
}

/// The phase of a turn that a process was in which has told this: what was begun and not ended last.
fn phase(told: &[String]) -> &'static str {
    let kind = |line: &String| {
        let kind = line.splitn(3, ": ").nth(2).unwrap_or_default();
        Some(match kind.split([' ', '(']).next().unwrap_or_default() {
            "TurnStarted" | "Recovered" | "SessionOpened" => "context: prompt, session, history, steers",
            "RequestStarted" | "TextDelta" | "ReasoningDelta" | "TextRestarted" => "request: the model is asked",
            "Retrying" => "retry: before another attempt",
            "Redirected" => "redirect: before the request that follows",
            "RoundRecorded" | "CallAnnounced" | "CallStarted" | "CallOutput" => "round: calls run",
            "CallWaiting" | "CallJudged" => "question: a person is asked",
            "CallFinished" | "Steered" => "between rounds: results are stored",
            "CompressionStarted" => "compression: notes are made",
            "Compressed" => "compression: before the next request",
            "TurnEnded" => "between turns: the next input, or people",
            _ => return None,
        })
    };
    told.iter().rev().find_map(kind).unwrap_or("admission: before the first turn")
}

/// Its `at`-th write has this fault. A process that only saw a failure goes on until it ends.
pub(crate) async fn struck_at(world: &World, fault: Fault, at: i64, what: &str) {
    live(world.node("first", fault, at), u64::MAX).await;
    recover(world, "first", "second", what).await;
}

/// The rows of all conversations and their children.
async fn all_rows(world: &World) -> Vec<StoredMessage> {
    let mut rows = Vec::new();
    for conversation in &world.everybody().await {
        rows.extend(world.rows(conversation).await);
    }
    rows
}

/// The process stops at its `at`-th wait for an hour, another takes over, and then it wakes. False when its life was
/// shorter.
pub(crate) async fn asleep_at(world: &World, at: u64, what: &str) -> bool {
    let sleeper = world.node("first", Fault::DiesBefore, NEVER);
    let mut work = Killed::after(at, sleeper.work());
    if world.lends {
        work = work.outside_calls(&sleeper.store);
    }
    let over = tokio::select! {
        biased;
        () = sleeper.store.died() => true,
        results = &mut work => results.is_some(),
    };
    if over {
        return false;
    }
    world.pass(LONG_MS).await;
    let results = succeed(world, "second").await;
    check::at_rest(world, &results, what).await;
    let before = all_rows(world).await;
    let effects = world.effects.lock().unwrap().len();
    work.revive();
    tokio::select! {
        biased;
        () = sleeper.store.died() => {}
        _ = &mut work => {}
    }
    let after = all_rows(world).await;
    let new: Vec<_> = after.iter().filter(|row| !before.contains(row)).collect();
    assert_eq!(before, after, "{what}: the sleeper wrote {new:?}\n{}", world.trace.lock().unwrap().join("\n"));
    check::late_effects_are_told(world, effects, what).await;
    no_input_twice(world, what).await;
    true
}

/// The process dies at every wait; counts them by the phase that it was in.
pub(crate) fn awaits(scenario: &Scenario, phases: &mut BTreeMap<&'static str, u64>) {
    let polls = undisturbed(scenario).polls;
    for at in (0..polls).step_by(stride(scenario)) {
        let what = format!("{}: killed at wait {at}", scenario.name);
        let phase = simulate(&what, async { killed_at(&World::new(scenario).await, at, &what).await });
        *phases.entry(phase).or_default() += 1;
    }
}

/// How a write goes wrong.
pub(crate) const FAULTS: [Fault; 4] = [Fault::FailsOnce, Fault::AnswerLost, Fault::DiesBefore, Fault::DiesAfter];

/// Every write fails in every way; returns how many faults there were.
pub(crate) fn writes(scenario: &Scenario) -> u64 {
    let writes = undisturbed(scenario).writes;
    let mut points = 0;
    for fault in FAULTS {
        for at in (0..writes).step_by(stride(scenario)) {
            points += 1;
            let what = format!("{}: {fault:?} at write {at}", scenario.name);
            simulate(&what, async { struck_at(&World::new(scenario).await, fault, at, &what).await });
        }
    }
    points
}

/// The process stops at every wait while another takes over, and then wakes; returns how many there were.
pub(crate) fn zombies(scenario: &Scenario) -> u64 {
    let polls = undisturbed(scenario).polls;
    let mut points = 0;
    for at in (0..polls).step_by(stride(scenario)) {
        let what = format!("{}: asleep at wait {at}", scenario.name);
        let slept = simulate(&what, async { asleep_at(&World::new(scenario).await, at, &what).await });
        points += u64::from(slept);
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
            let reached = simulate(&what, async {
                let world = World::new(scenario).await;
                live(world.node("first", Fault::DiesBefore, NEVER), first).await;
                world.bury("first");
                let next = live(world.node("second", Fault::DiesBefore, NEVER), second).await;
                recover(&world, "second", "third", &what).await;
                next.results.is_none() && next.polls >= second
            });
            if !reached {
                break;
            }
            pairs += 1;
        }
    }
    pairs
}
