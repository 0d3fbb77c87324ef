//! The `hermes` program: the screen and the keyboard of a gateway.
//!
//! It knows no sessions, tools or models of its own: it sends requests of the gateway's protocol and shows what comes
//! back. Nothing is done before the arguments are read, and a command that needs no gateway starts none.

mod args;
mod ask;
mod commands;
mod context;
mod echo;
mod exit;
mod follow;
mod interactive;
mod link;
mod open;
mod render;
mod screen;
mod signals;
mod style;
mod talk;
mod terminal;
mod text;

#[cfg(test)]
mod testing;

use clap::Parser;

use crate::args::{Cli, check_text};
use crate::context::Context;
use crate::exit::{Exit, Fault};
use crate::talk::Plan;
use crate::terminal::Terminal;

fn main() {
    let exit = match Cli::try_parse() {
        Ok(cli) => run(cli),
        Err(error) => {
            // Help and version come as "errors" with code 0. A reader that went away is no reason to complain.
            let _ = error.print();
            std::process::exit(error.exit_code());
        }
    };
    std::process::exit(exit.code());
}

fn run(cli: Cli) -> Exit {
    let terminal = Terminal::detect();
    match dispatch(cli, terminal) {
        Ok(exit) => exit,
        Err(fault) => {
            if let Some(message) = fault.message() {
                let message = if terminal.stderr { text::harmless(&message) } else { message };
                // Nobody reads stderr: nothing is left that could be told.
                let _ = std::io::Write::write_fmt(
                    &mut std::io::stderr(),
                    format_args!("{}\n", terminal.err_style().bad(&message)),
                );
            }
            fault.exit()
        }
    }
}

fn dispatch(cli: Cli, terminal: Terminal) -> Result<Exit, Fault> {
    let Cli { session, oneshot, json, profile, command } = cli;
    let context = Context { session, json, profile, terminal };
    match (command, oneshot) {
        (Some(_), Some(_)) => Err(Fault::Usage("-z and a command cannot stand together".to_owned())),
        (Some(command), None) => command.run(&context),
        (None, Some(text)) => {
            check_text("-z", &text)?;
            talk::run(&context, &context.session, Plan::one_shot(text, json))
        }
        (None, None) => talk::run(&context, &context.session, Plan::chat(None, false, json)),
    }
}
