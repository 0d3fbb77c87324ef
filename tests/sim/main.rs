//! The simulation: every scenario, and in every scenario every place where a process can die or a write can fail.
//!
//! One thread, virtual time, no file and no socket (but in [`real`]): a run takes milliseconds and is the same every time.
//! The store's rules are those of the in-memory model, which the store's own suite compares with both databases.
//!
//! | sweep | what |
//! |---|---|
//! | [`sweep::awaits`] | the process dies at its k-th wait, for every k; another goes on |
//! | [`sweep::writes`] | every write of the store fails, or loses its answer, or is the last one of its process |
//! | [`sweep::zombies`] | the process stops at its k-th wait, another takes over and finishes, the first wakes |
//! | [`sweep::twice`] | the process dies at its k-th wait and the one after it at its j-th |
//! | [`seeds`] | random scenarios with random disturbances, one process after the other |
//! | [`crowd`] | random worlds of several conversations and several processes at the same time |
//! | [`real`] | the scenarios on SQLite and PostgreSQL, in real time, with a few points of each kind |
//!
//! The eleven checkers, and what looks at people and children:
//!
//! | | what | where |
//! |---|---|---|
//! | a | every accepted input is over, once | `check::accepted_inputs_are_over`, `check::heard_once`, `sweep::no_input_twice` |
//! | b | inputs start in their order | `check::starts_follow_the_queue` |
//! | c | no row of an older start behind one of a newer | `check::generations_grow` |
//! | d | every call has one result, in call order | `check::every_call_has_one_result`, `check::pairs` |
//! | e | a call that runs is stored | `parts::SimTool` (its `call`) |
//! | f | what may happen once does, and nothing is invented | `check::effects_happen_once`, `check::effects_are_in_a_transcript`, `check::late_effects_are_told` |
//! | g | request N begins request N+1 | `check::requests_extend_each_other`, `check::requests_of_all_nodes_agree`, `parts::Watcher` |
//! | h | a shortened history keeps its bytes, and has one child | `check::nothing_is_shown_twice`, `check::no_row_has_changed`, `check::sessions_are_one_line` |
//! | i | nothing is reported before it is stored | `parts::Watcher` (its `ended` and `emit`) |
//! | j | requests are counted, and within the budget | `parts::Watcher` (its `ended`) |
//! | k | every world comes to rest | `bound::simulate` |
//! | m | a call runs by a person's word, which is not forgotten; an answer is told once | `questions::at_rest` |
//! | n | what a person undoes, redoes or tries again is done once or not at all | `rewinds::at_rest` |
//! | l | a task runs once, ends, is told to its parent once, and ends with the turn that waits for it | `family::at_rest`, `family::none_at_work` |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code outside test functions")]

mod bound;
mod check;
mod crowd;
mod family;
mod model;
mod pace;
mod parts;
mod people;
mod questions;
mod real;
mod rewinds;
mod scenarios;
mod schedule;
mod seeds;
mod sweep;
mod world;

use scenarios::ALL;

/// What `cargo xtask sim` reads: how many points or runs there were, and of what.
fn told(count: u64, unit: &str, what: &str) {
    println!("sim: {count} {unit}: {what}");
}

#[test]
fn every_scenario_ends_as_it_says_and_twice_the_same() {
    for scenario in ALL {
        let first = sweep::undisturbed(scenario);
        let again = sweep::undisturbed(scenario);
        assert_eq!(first.ends, scenario.ends, "{}", scenario.name);
        assert_eq!(first.trace, again.trace, "{}", scenario.name);
    }
    told(ALL.len() as u64 * 2, "runs", "scenarios undisturbed, each twice");
}

#[test]
fn every_end_reason_has_a_scenario() {
    for reason in hermes_core::EndReason::ALL {
        let name = scenarios::that_ends(*reason);
        let scenario = ALL.iter().find(|scenario| scenario.name == name);
        assert!(scenario.is_some_and(|scenario| scenario.ends.contains(reason)), "{name} does not end as {reason:?}");
    }
    let names: std::collections::BTreeSet<_> = ALL.iter().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), ALL.len(), "two scenarios with one name");
}

#[test]
fn i20_histories_that_outgrow_their_window_are_shortened_more_than_once() {
    for scenario in
        ALL.iter().filter(|scenario| scenario.name.contains("outgrows") || scenario.name.contains("in place"))
    {
        let trace = sweep::undisturbed(scenario).trace;
        let times = trace.iter().filter(|line| line.contains("Compressed {")).count();
        assert!(times >= 2, "{}: {times}", scenario.name);
    }
}

/// Phases of a turn in which processes are killed (`sweep::phase`).
const PHASES: usize = 9;

#[test]
fn i01_i06_i13_i14_i16_a_crash_at_every_wait_loses_nothing_and_repeats_nothing() {
    let mut phases = std::collections::BTreeMap::new();
    ALL.iter().for_each(|scenario| sweep::awaits(scenario, &mut phases));
    for (phase, waits) in &phases {
        told(*waits, "waits", phase);
    }
    let points: u64 = phases.values().sum();
    told(points, "points", "the process is killed at a wait");
    assert!(phases.len() >= PHASES, "phases without a wait: only {:?}", phases.keys());
    assert!(points > 1_000, "only {points} crash points");
}

#[test]
fn i12_i15_i17_every_write_may_fail_lose_its_answer_or_be_the_last() {
    let points: u64 = ALL.iter().map(sweep::writes).sum();
    told(points, "points", "a write fails, loses its answer, or is the last one");
    assert!(points > 1_000, "only {points} faults");
}

#[test]
fn i07_i09_a_process_that_slept_past_its_lease_changes_nothing_when_it_wakes() {
    let points: u64 = ALL.iter().map(sweep::zombies).sum();
    told(points, "points", "the process sleeps past its lease and wakes");
    assert!(points > 500, "only {points} zombies");
}

#[test]
fn i06_a_second_crash_during_recovery_changes_nothing_of_the_promise() {
    let points: u64 = ALL.iter().map(|scenario| sweep::twice(scenario, 401)).sum();
    told(points, "points", "the process that recovers is killed too");
    assert!(points > 500, "only {points} pairs");
}

/// How many random worlds an ordinary run looks at. `HERMES_SIM_SEEDS`, `HERMES_SIM_SECONDS` and `HERMES_SIM_FROM` make it
/// longer (`cargo xtask sim`).
const SEEDS: u64 = 400;
/// The same of worlds with several nodes and conversations.
const CROWDS: u64 = 150;

/// Runs `world` for one seed after the other, each twice, and returns how many there were and the sum of their sizes.
fn seeds(usual: u64, world: impl Fn(u64) -> (Vec<String>, u64) + std::panic::RefUnwindSafe) -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let from = number("HERMES_SIM_FROM").unwrap_or(0);
    let seconds = number("HERMES_SIM_SECONDS");
    let seeds = number("HERMES_SIM_SEEDS").unwrap_or(if seconds.is_some() { u64::MAX } else { usual });
    let begun = std::time::Instant::now();
    let (mut worlds, mut size, mut most) = (0, 0, 0);
    for seed in from..from.saturating_add(seeds) {
        if seconds.is_some_and(|seconds| begun.elapsed().as_secs() >= seconds) {
            break;
        }
        let run = || std::panic::catch_unwind(|| world(seed));
        let Ok((first, steps)) = run() else {
            println!("sim: seed {seed} failed");
            panic!("seed {seed} failed: HERMES_SIM_FROM={seed} HERMES_SIM_SEEDS=1");
        };
        let again = run().map(|(trace, _)| trace).unwrap_or_default();
        let differs = first.iter().zip(&again).find(|(first, again)| first != again);
        assert!(first == again, "seed {seed} is not the same twice: {differs:#?}");
        worlds += 1;
        size += steps;
        most = most.max(bound::steps());
    }
    told(most, "steps", "the longest of these worlds");
    (worlds, size)
}

#[test]
fn random_worlds_keep_every_promise_and_are_the_same_twice() {
    let (worlds, _) = seeds(SEEDS, |seed| (seeds::run(seed), 0));
    told(worlds * 2, "runs", "random worlds of one conversation, each twice");
}

#[test]
fn several_nodes_and_conversations_keep_every_promise_and_are_the_same_twice() {
    let (worlds, steps) = seeds(CROWDS, crowd::run);
    told(worlds * 2, "runs", "random worlds of three nodes and three conversations, each twice");
    told(steps, "steps", "somebody of several went on");
}
