//! `cargo xtask fuzz`: the fuzz targets of `hermes-providers/fuzz`, one after the other.
//!
//! They need `cargo-fuzz`, which is no part of the tree, and run on the compiler that builds the tree: without a sanitizer
//! (there is no unsafe code to look at) nothing but the coverage options is unstable, which `RUSTC_BOOTSTRAP` allows.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::shell;

/// Where the targets live.
const HOME: &str = "hermes-providers/fuzz";
/// How long a target runs when nothing is said.
const SECONDS: u64 = 240;
/// The longest input; a longer one finds nothing that this does not, and more slowly.
const INPUT_BYTES_MAX: usize = 4096;
/// How long one input may take. Work that grows with the square of its input shows here.
const INPUT_SECONDS_MAX: u64 = 20;

/// A target, and the feature that it needs.
const TARGETS: &[(&str, Option<&str>)] = &[
    ("chat_completions", None),
    ("anthropic_messages", None),
    ("responses", None),
    ("gemini", None),
    ("bedrock_converse", None),
    ("sse", None),
    ("event_stream", None),
    ("schema", None),
    ("waits", None),
    ("repairs", None),
    ("auth", Some("auth")),
];

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    target: Option<String>,
    seconds: u64,
}

/// Runs the named target, or all of them, for this long each. What it finds is left in `hermes-providers/fuzz/artifacts`,
/// and fails the command.
///
/// # Errors
/// A wrong argument; `cargo-fuzz` is missing; a failed build; a finding.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let wish = parse(arguments)?;
    if shell::output(shell::cargo().args(["fuzz", "--version"])).is_err() {
        bail!("cargo-fuzz is missing; `cargo install cargo-fuzz` installs it, and it needs a C++ compiler");
    }
    let home = shell::root().join(HOME);
    // The versions of the tree, so that what is fuzzed is what is built.
    std::fs::copy(shell::root().join("Cargo.lock"), home.join("Cargo.lock")).context("Cargo.lock cannot be copied")?;
    let chosen = |name: &str| wish.target.as_deref().is_none_or(|wanted| wanted == name);
    TARGETS.iter().filter(|(name, _)| chosen(name)).try_for_each(|(name, feature)| {
        let corpus = home.join("corpus").join(name);
        std::fs::create_dir_all(&corpus).with_context(|| format!("cannot make {}", corpus.display()))?;
        shell::run(&mut command(&home, name, *feature, wish.seconds))
    })
}

/// One run of one target.
fn command(home: &Path, name: &str, feature: Option<&str>, seconds: u64) -> Command {
    let mut command = shell::cargo();
    command.current_dir(home).env("RUSTC_BOOTSTRAP", "1");
    command.args(["fuzz", "run", "--sanitizer", "none", "--fuzz-dir", "."]);
    command.args(feature.map(|feature| format!("--features={feature}")));
    command.args([name.to_owned(), format!("corpus/{name}"), format!("seeds/{name}"), "--".to_owned()]);
    command.args(["-dict=words.dict".to_owned(), "-print_final_stats=1".to_owned()]);
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    command.arg(format!("-max_len={INPUT_BYTES_MAX}"));
    command
}

fn parse(arguments: &[String]) -> Result<Wish> {
    let mut wish = Wish { target: None, seconds: SECONDS };
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        if word == "--seconds" {
            let number = rest.next().context("`--seconds` needs a number")?;
            wish.seconds = number.parse().with_context(|| format!("`{number}` is no number of seconds"))?;
        } else if TARGETS.iter().any(|(name, _)| name == word) && wish.target.is_none() {
            wish.target = Some(word.clone());
        } else {
            let all: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
            bail!("there is no fuzz target `{word}`; the targets are: {}", all.join(", "));
        }
    }
    Ok(wish)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_and_a_time_are_understood_and_nothing_else() {
        let wish = |words: &[&str]| parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(wish(&[]).unwrap(), Wish { target: None, seconds: SECONDS });
        let expect = Wish { target: Some("sse".to_owned()), seconds: 5 };
        assert_eq!(wish(&["sse", "--seconds", "5"]).unwrap(), expect);
        for wrong in [&["x"][..], &["sse", "sse"], &["--seconds"], &["--seconds", "x"]] {
            assert!(wish(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_target_has_its_file_and_its_seeds_and_every_file_is_a_target() {
        let home = shell::root().join(HOME);
        let mut files: Vec<String> = std::fs::read_dir(home.join("fuzz_targets"))
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let mut names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        assert_eq!(files, names);
        for name in names {
            assert!(std::fs::read_dir(home.join("seeds").join(name)).unwrap().next().is_some(), "{name}");
        }
    }
}
