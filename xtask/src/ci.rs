//! `cargo xtask ci`: what a commit must pass, stopping at the first failure.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{shell, test, tidy};

/// One step: its name in the report and its work.
type Step = (&'static str, fn() -> Result<()>);

/// The steps in their order. The last one is the test command of the README and nothing more.
const STEPS: &[Step] = &[
    ("fmt", || shell::run(shell::cargo().args(["fmt", "--all", "--check"]))),
    ("clippy", clippy),
    ("doc", doc),
    ("tidy", || tidy::run(&[])),
    ("test", || test::run(&[])),
];

/// Runs all steps and prints the seconds of each and of all.
///
/// # Errors
/// The first step that failed, by its name.
pub(crate) fn run(_arguments: &[String]) -> Result<()> {
    let started = Instant::now();
    let mut report: Vec<(&str, Duration)> = Vec::new();
    let mut outcome = Ok(());
    for (name, step) in STEPS {
        let step_started = Instant::now();
        outcome = step().with_context(|| format!("step `{name}`"));
        report.push((name, step_started.elapsed()));
        if outcome.is_err() {
            break;
        }
    }
    report.push(("all", started.elapsed()));
    eprintln!("\n{}", table(&report));
    outcome
}

/// One line per step, seconds right-aligned.
fn table(report: &[(&str, Duration)]) -> String {
    report.iter().map(|(name, took)| format!("{name:<8} {:>8.1} s\n", took.as_secs_f64())).collect()
}

/// Lints of all targets, each a failure.
fn clippy() -> Result<()> {
    shell::run(shell::cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ]))
}

/// The documentation builds and every link in it leads somewhere.
fn doc() -> Result<()> {
    shell::run(
        shell::cargo().args(["doc", "--workspace", "--no-deps", "--all-features"]).env("RUSTDOCFLAGS", "-D warnings"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_shows_seconds_with_one_digit() {
        assert_eq!(table(&[("fmt", Duration::from_millis(1250))]), "fmt           1.2 s\n");
    }

    #[test]
    fn the_tests_are_the_last_step() {
        assert_eq!(STEPS.last().unwrap().0, "test");
    }
}
