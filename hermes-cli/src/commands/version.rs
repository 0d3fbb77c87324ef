//! `hermes version`.

use std::io::Write;

use crate::context::Context;
use crate::exit::{Exit, Fault};

/// Arguments of `hermes version`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(super) fn run(_args: Args, _context: &Context) -> Result<Exit, Fault> {
    writeln!(std::io::stdout(), "hermes {}", env!("CARGO_PKG_VERSION"))?;
    Ok(Exit::Answered)
}
