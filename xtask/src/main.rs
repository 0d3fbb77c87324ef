//! `cargo xtask COMMAND`: everything this repository automates, in Rust, without another tool to install.
//!
//! One module per command. To add one: write the module, add one line to [`COMMANDS`].

use std::process::ExitCode;

use anyhow::Result;

mod bench;
mod check_sql;
mod ci;
mod codegen;
mod fuzz;
mod judge;
mod postgres;
mod shell;
mod sim;
mod test;
mod tidy;

/// One word of `cargo xtask`.
struct Command {
    /// The word itself.
    name: &'static str,
    /// What follows the word, for the help.
    arguments: &'static str,
    /// One line for the help.
    about: &'static str,
    /// The work. Gets what follows the word.
    run: fn(&[String]) -> Result<()>,
}

/// Every command, in the order of the help.
const COMMANDS: &[Command] = &[
    Command { name: "test", arguments: "[ARGS]", about: "run all tests; ARGS go to the test runner", run: test::run },
    Command {
        name: "postgres",
        arguments: "[COMMAND]",
        about: "run a PostgreSQL for tests, until Ctrl-C or for the time of COMMAND",
        run: postgres::run,
    },
    Command {
        name: "check-sql",
        arguments: "",
        about: "prepare every statement of the store on both databases",
        run: check_sql::run,
    },
    Command {
        name: "ci",
        arguments: "",
        about: "format, lint, docs, tidy, tests: what a commit must pass",
        run: ci::run,
    },
    Command { name: "tidy", arguments: "", about: "the rules of this repository no other tool knows", run: tidy::run },
    Command { name: "codegen", arguments: "", about: "write the generated files", run: codegen::run },
    Command { name: "bench", arguments: "[--list] [NAME]", about: "measure, in release mode", run: bench::run },
    Command {
        name: "sim",
        arguments: "[--seeds N]",
        about: "simulate crashes at every wait, then random worlds (--seconds S, --from SEED)",
        run: sim::run,
    },
    Command {
        name: "fuzz",
        arguments: "[TARGET]",
        about: "fuzz what reads other programs' bytes (--seconds S; needs cargo-fuzz)",
        run: fuzz::run,
    },
    Command {
        name: "judge",
        arguments: "NAME",
        about: "run a judge: a slow check that is not part of ci",
        run: judge::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let word = arguments.first().map_or("help", String::as_str);
    if matches!(word, "help" | "-h" | "--help") {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == word) else {
        eprintln!("xtask: there is no command `{word}`\n\n{}", help());
        return ExitCode::from(2);
    };
    match shell::enter_root().and_then(|()| (command.run)(arguments.get(1..).unwrap_or_default())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {word}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The text of `cargo xtask help`.
fn help() -> String {
    let mut text = String::from("cargo xtask COMMAND\n\n");
    for Command { name, arguments, about, .. } in COMMANDS {
        let call = format!("{name} {arguments}");
        text.push_str(&format!("  {call:<24} {about}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_command_once() {
        let help = help();
        for command in COMMANDS {
            assert_eq!(help.matches(&format!("\n  {} ", command.name)).count(), 1, "{}", command.name);
        }
    }
}
