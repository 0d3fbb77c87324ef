//! `hermes completion SHELL`.

use std::io::Write;

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::args::Cli;
use crate::context::Context;
use crate::exit::{Exit, Fault};

/// The shells that are known.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Kind {
    /// Bash.
    Bash,
    /// Zsh.
    Zsh,
    /// Fish.
    Fish,
}

/// Arguments of `hermes completion`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Kind,
}

pub(super) fn run(args: Args, _context: &Context) -> Result<Exit, Fault> {
    let Args { shell } = args;
    std::io::stdout().write_all(&script(shell))?;
    Ok(Exit::Answered)
}

fn script(shell: Kind) -> Vec<u8> {
    let shell = match shell {
        Kind::Bash => Shell::Bash,
        Kind::Zsh => Shell::Zsh,
        Kind::Fish => Shell::Fish,
    };
    // Into memory first: the generator does not survive a reader that goes away.
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "hermes", &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_gets_a_script_that_knows_the_commands() {
        for shell in Kind::value_variants() {
            let script = String::from_utf8(script(*shell)).unwrap();
            for word in ["sessions", "doctor", "oneshot"] {
                assert!(script.contains(word), "{shell:?} {word}");
            }
        }
    }
}
