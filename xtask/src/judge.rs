//! `cargo xtask judge NAME`: slow checks against real parts, which are not part of `ci`.
//!
//! To add a judge: write its function in a module of its own, add one line to [`JUDGES`].

use anyhow::{Result, bail};

mod child;
mod local_model;
mod providers;
mod python;
mod turn;

/// The judges: the word on the command line and the work, which gets the words behind it.
const JUDGES: &[(&str, Judge)] = &[("local-model", local_model::run), ("providers", providers::run)];

/// The work of a judge.
type Judge = fn(&[String]) -> Result<()>;

/// Runs the named judge.
///
/// # Errors
/// No name, an unknown name, or the judge's own verdict.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let Some((name, rest)) = arguments.split_first() else {
        bail!("name a judge; {}", known());
    };
    match JUDGES.iter().find(|(word, _)| word == name) {
        Some((_, judge)) => judge(rest),
        None => bail!("there is no judge `{name}`; {}", known()),
    }
}

/// The known judges, for an error.
fn known() -> String {
    let names: Vec<&str> = JUDGES.iter().map(|(name, _)| *name).collect();
    format!("known are: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_judge_is_an_error_that_lists_the_known_ones() {
        let error = run(&["no-such-judge".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("no-such-judge") && error.contains(&known()), "{error}");
        assert!(run(&[]).unwrap_err().to_string().contains(&known()));
    }
}
