//! `hermes doctor`.

use std::io::Write;

use hermes_gateway::protocol::{CheckState, Request, Response};

use crate::context::Context;
use crate::exit::{Exit, Fault};
use crate::link::{Link, request};
use crate::render::lists;

/// Arguments of `hermes doctor`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Args {
    /// As one JSON array
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args, context: &Context) -> Result<Exit, Fault> {
    let Args { json } = args;
    let select = context.session.select.clone();
    context.ask(&select, true, async |link| check(link, json || context.json, context, &mut std::io::stdout()).await)
}

/// 1 when something does not work.
async fn check(link: &mut Link, json: bool, context: &Context, out: &mut dyn Write) -> Result<Exit, Fault> {
    let checks = request!(link, Request::SystemDoctor, Response::Doctor(checks) => checks)?;
    if json {
        context.write_json(out, &checks)?;
    } else {
        out.write_all(lists::checks(&checks, context.terminal.out_style()).as_bytes())?;
    }
    let broken = checks.iter().any(|check| check.state == CheckState::Failed);
    Ok(if broken { Exit::Failed } else { Exit::Answered })
}
