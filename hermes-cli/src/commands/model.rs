//! `hermes model`.

use std::io::Write;

use crate::args::SelectArgs;
use crate::context::Context;
use crate::exit::{Exit, Fault};
use crate::link::Link;
use crate::render::lists;

/// Arguments of `hermes model`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    select: SelectArgs,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args, context: &Context) -> Result<Exit, Fault> {
    let select = args.select.or(&context.session.select);
    context
        .ask(&select, true, async |link| show(link, args.json || context.json, context, &mut std::io::stdout()).await)
}

async fn show(link: &mut Link, json: bool, context: &Context, out: &mut dyn Write) -> Result<Exit, Fault> {
    let status = link.model().await?;
    if json {
        context.write_json(out, &status)?;
    } else {
        out.write_all(lists::model(&status, context.terminal.out_style()).as_bytes())?;
    }
    Ok(Exit::Answered)
}
