//! `cargo xtask bench`: builds what a user runs, in release mode, and measures it.
//!
//! To add a bench: write its function in a module of its own, add one line to [`BENCHES`].

use std::time::Instant;

use anyhow::{Result, bail};

use crate::shell;

/// One measurement.
struct Bench {
    /// The word on the command line.
    name: &'static str,
    /// One line for the list.
    about: &'static str,
    /// Whether it measures the release build of `hermes`, which is then built before.
    of_program: bool,
    /// The work; prints its figures.
    run: fn() -> Result<()>,
}

/// Every bench besides the build itself, in the order they run.
const BENCHES: &[Bench] = &[
    Bench {
        name: "program",
        about: "start, one-shot turn, tool round and memory of the whole program against the scripted server",
        of_program: true,
        run: program,
    },
    Bench {
        name: "store",
        about: "commits beside raw ones, opening and searching a large store, on SQLite and PostgreSQL",
        of_program: false,
        run: store,
    },
    Bench {
        name: "engine",
        about: "what the engine adds to a round, and 1,000 conversations at once, on the in-memory store",
        of_program: false,
        run: engine,
    },
    Bench {
        name: "providers",
        about: "the decoder of each wire beside plain parses of the same JSON, and the time from a socket to a delta",
        of_program: false,
        run: providers,
    },
];

/// The decoders on long streams, and one model over a real socket.
fn providers() -> Result<()> {
    let mut command = shell::cargo();
    command.args([
        "run",
        "--release",
        "-p",
        "hermes-providers",
        "--features",
        "test-util",
        "--example",
        "bench_providers",
    ]);
    shell::run(&mut command)
}

/// The engine alone: a model that answers at once, a tool that does nothing, a store in memory.
fn engine() -> Result<()> {
    shell::run(shell::cargo().args([
        "run",
        "--release",
        "-p",
        "hermes-core",
        "--all-features",
        "--example",
        "bench_engine",
    ]))
}

/// The store beside raw commits of the same databases.
fn store() -> Result<()> {
    let server = crate::postgres::TestServer::get()?;
    let mut command = shell::cargo();
    command.args(["run", "--release", "-p", "hermes-store", "--all-features", "--example", "bench_store"]);
    command.envs(server.variables());
    shell::run(&mut command)
}

/// The whole program against the scripted server.
fn program() -> Result<()> {
    shell::run(shell::cargo().args(["build", "--release", "-p", "hermes-tests", "--bin", "bench"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| shell::root().join("target"), Into::into);
    let release = target.join("release");
    shell::run(std::process::Command::new(release.join("bench")).env("HERMES_BIN", release.join("hermes")))
}

/// Builds in release mode, prints the wall seconds of the build, runs all benches or the named one.
///
/// # Errors
/// There is no bench of that name, the build failed, or a bench failed.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [word] if word == "--list" => {
            print!("{}", list());
            Ok(())
        }
        [] => {
            build()?;
            BENCHES.iter().try_for_each(|bench| (bench.run)())
        }
        [name] if name == BUILD => build(),
        [name] => {
            let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
                bail!("there is no bench `{name}`; the benches are:\n{}", list());
            };
            if bench.of_program {
                build()?;
            }
            (bench.run)()
        }
        _ => bail!("one name or none, got {}", arguments.len()),
    }
}

/// The name of the build among the benches.
const BUILD: &str = "build";

/// One line per bench.
fn list() -> String {
    let line = |(name, about): (&str, &str)| format!("{name:<16} {about}\n");
    let benches = BENCHES.iter().map(|bench| (bench.name, bench.about));
    std::iter::once((BUILD, "the release build of `hermes`, from what is built already"))
        .chain(benches)
        .map(line)
        .collect()
}

/// Builds `hermes` in release mode.
fn build() -> Result<()> {
    let started = Instant::now();
    shell::run(shell::cargo().args(["build", "--release", "--bin", "hermes"]))?;
    println!("{BUILD:<16} {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_the_build_and_every_bench() {
        let list = list();
        assert_eq!(list.lines().count(), BENCHES.len() + 1);
        assert!(list.starts_with("build "));
    }

    #[test]
    fn an_unknown_bench_is_an_error_before_anything_is_built() {
        let error = run(&["no-such-bench".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("no-such-bench") && error.contains("build "), "{error}");
    }
}
