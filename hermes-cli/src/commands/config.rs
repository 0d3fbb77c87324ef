//! `hermes config`.

use crate::context::Context;
use crate::exit::{Exit, Fault};

/// Arguments of `hermes config`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(super) fn run(_args: Args, _context: &Context) -> Result<Exit, Fault> {
    Err(Fault::Failed("not wired yet".to_owned()))
}
