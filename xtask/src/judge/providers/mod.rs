//! `cargo xtask judge providers [PART]...`: the wires judged by servers and clients that nobody here wrote.
//!
//! Our client speaks to servers of others, and clients of others to our scripted server; both sides mean the same script
//! (`hermes-providers/tests/fake.json`), so every field can be compared.
//!
//! To add a part: write its function in a module of its own, add one line to [`PARTS`].

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::shell;

mod aimock;
mod litellm;
mod script;
mod sdks;
mod talk;
mod verdict;

/// The parts: the word on the command line and the work.
const PARTS: &[(&str, Part)] = &[
    ("sdks", sdks::run),
    ("aimock", aimock::run),
    ("litellm", litellm::run),
    ("local-model", || super::local_model::run(&[])),
];

/// The work of a part.
type Part = fn() -> Result<()>;

/// Where the parts keep what they install, relative to the root of the workspace.
const PLACE: &str = "target/judge/providers";

/// Runs the named parts, or all of them.
///
/// # Errors
/// An unknown part, or the verdict of one. The others run all the same.
pub(super) fn run(arguments: &[String]) -> Result<()> {
    let known: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = arguments.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no part `{unknown}`; known are: {}", known.join(", "));
    }
    let mut failed = Vec::new();
    for (name, part) in PARTS {
        if !arguments.is_empty() && !arguments.iter().any(|wanted| wanted == name) {
            continue;
        }
        println!("\n== {name}");
        let started = Instant::now();
        match part() {
            Ok(()) => println!("{name}: passed in {} s", started.elapsed().as_secs()),
            Err(error) => {
                println!("{name}: failed after {} s: {error:#}", started.elapsed().as_secs());
                failed.push(*name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// The place of a part. Made when it is not there.
fn place(part: &str) -> Result<PathBuf> {
    let place = shell::root().join(PLACE).join(part);
    std::fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_part_is_an_error_that_lists_the_known_ones() {
        let error = run(&["no-such-part".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("no-such-part") && error.contains("sdks, aimock"), "{error}");
    }
}
