//! `cargo xtask sim`: the simulation of the turn engine, longer than ordinary tests run it.

use anyhow::{Context as _, Result, bail};

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

/// Runs every sweep with every crash point, then random worlds. Prints how many of each there were, and the seed of the
/// first world that broke a promise.
///
/// # Errors
/// A wrong argument; a failed build; a broken promise.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let wish = parse(arguments)?;
    let mut command = shell::cargo();
    command.args(["test", "--workspace", "--all-features", "--test", "sim", "--", "--nocapture"]);
    command.env("HERMES_SIM_ALL", "1").env_remove("HERMES_SIM_SECONDS");
    command.env("HERMES_SIM_FROM", wish.from.unwrap_or(0).to_string());
    match (wish.seeds, wish.seconds) {
        (None, Some(seconds)) => command.env_remove("HERMES_SIM_SEEDS").env("HERMES_SIM_SECONDS", seconds.to_string()),
        (seeds, seconds) => {
            command.env("HERMES_SIM_SEEDS", seeds.unwrap_or(SEEDS).to_string());
            command.envs(seconds.map(|seconds| ("HERMES_SIM_SECONDS", seconds.to_string())))
        }
    };
    shell::run(&mut command)
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
}
