//! `cargo xtask sim`: the simulation of the turn engine, longer than ordinary tests run it.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};

use crate::postgres::TestServer;
use crate::shell;

/// Random worlds when nothing is asked for.
const SEEDS: u64 = 5_000;

/// What is asked for.
#[derive(Debug, PartialEq, Eq, Default)]
struct Wish {
    seeds: Option<u64>,
    seconds: Option<u64>,
    from: Option<u64>,
}

/// Runs every sweep with every crash point, random worlds, the scenarios on both databases, and the whole soak. Prints how
/// many of each there were, what failed, and the seed of the first world that broke a promise.
///
/// # Errors
/// A wrong argument; a failed build; no PostgreSQL server; a broken promise.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let wish = parse(arguments)?;
    let mut command = shell::cargo();
    command.args(["test", "--workspace", "--all-features", "--test", "sim", "--test", "soak", "--", "--nocapture"]);
    command.env("HERMES_SIM_ALL", "1").env_remove("HERMES_SIM_SECONDS");
    command.env("HERMES_SIM_FROM", wish.from.unwrap_or(0).to_string());
    match (wish.seeds, wish.seconds) {
        (None, Some(seconds)) => command.env_remove("HERMES_SIM_SEEDS").env("HERMES_SIM_SECONDS", seconds.to_string()),
        (seeds, seconds) => {
            command.env("HERMES_SIM_SEEDS", seeds.unwrap_or(SEEDS).to_string());
            command.envs(seconds.map(|seconds| ("HERMES_SIM_SECONDS", seconds.to_string())))
        }
    };
    let server = TestServer::get()?;
    command.envs(server.variables()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cargo cannot be started")?;
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line.context("the output of the simulation cannot be read")?;
            println!("{line}");
            tally.hear(&line);
        }
    }
    let status = child.wait().context("the simulation cannot be waited for")?;
    println!("{}", tally.told());
    ensure!(status.success(), "the simulation failed: {status}");
    Ok(())
}

/// What the tests have told so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    points: u64,
    runs: u64,
    failures: u64,
    seed: Option<u64>,
    /// Waits at which a process was killed, by the phase that it was in.
    waits: Vec<(String, u64)>,
}

impl Tally {
    /// Reads one line of output: `sim: 7 points: of what`, `sim: seed 7 failed`, or the end of a test that failed.
    fn hear(&mut self, line: &str) {
        if line.starts_with("test ") && line.ends_with("FAILED") {
            self.failures += 1;
        }
        // A test that runs alone has its name in front of what it tells.
        let Some((_, told)) = line.split_once("sim: ") else { return };
        let mut words = told.split([' ', ':']);
        let first = words.next().unwrap_or_default();
        let second = words.next().unwrap_or_default();
        match (first.parse::<u64>(), second) {
            (Ok(count), "points") => self.points += count,
            (Ok(count), "runs") => self.runs += count,
            (Ok(count), "waits") => {
                let phase = told.split_once(": ").map_or(told, |(_, phase)| phase);
                self.waits.push((phase.to_owned(), count));
            }
            (Err(_), seed) if first == "seed" => self.seed = self.seed.or(seed.parse().ok()),
            _ => {}
        }
    }

    fn told(&self) -> String {
        let Self { points, runs, failures, seed, waits } = self;
        let table: String = waits.iter().map(|(phase, count)| format!("{count:>9}  {phase}\n")).collect();
        let table = if table.is_empty() { table } else { format!("    waits  phase\n{table}") };
        let seed = seed.map_or_else(String::new, |seed| format!("; the first seed that failed is {seed}"));
        format!("{table}{} runs, {points} of them with a crash point; {failures} tests failed{seed}", runs + points)
    }
}

fn parse(arguments: &[String]) -> Result<Wish> {
    let mut wish = Wish::default();
    let mut left = arguments.iter();
    while let Some(word) = left.next() {
        let slot = match word.as_str() {
            "--seeds" => &mut wish.seeds,
            "--seconds" => &mut wish.seconds,
            "--from" => &mut wish.from,
            other => bail!("`{other}` is not known; the arguments are --seeds N, --seconds S and --from SEED"),
        };
        let number = left.next().with_context(|| format!("{word} needs a number"))?;
        *slot = Some(number.parse().with_context(|| format!("{word} needs a number, not `{number}`"))?);
    }
    Ok(wish)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_numbers_with_names() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let wish = Wish { seeds: Some(5), seconds: None, from: Some(7) };
        assert_eq!(parse(&words("--seeds 5 --from 7")).ok(), Some(wish));
        for bad in ["--seeds", "--seeds x", "--sead 5", "5"] {
            assert!(parse(&words(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_the_tests_tell_is_added_up() {
        let mut tally = Tally::default();
        for line in [
            "sim: 7 points: killed",
            "test a ... sim: 5 points: asleep",
            "sim: 4 runs: twice",
            "sim: 99 steps: of some",
            "sim: 3 waits: request: the model is asked",
            "sim: seed 31 failed",
            "sim: seed 40 failed",
            "test a ... FAILED",
            "test b ... ok",
        ] {
            tally.hear(line);
        }
        let waits = vec![("request: the model is asked".to_owned(), 3)];
        assert_eq!(tally, Tally { points: 12, runs: 4, failures: 1, seed: Some(31), waits });
        let told = "    waits  phase\n        3  request: the model is asked\n16 runs, 12 of them with a crash point; 1 tests failed; the first seed that failed is 31";
        assert_eq!(tally.told(), told);
    }
}
