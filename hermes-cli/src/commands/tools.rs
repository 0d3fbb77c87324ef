//! `hermes tools list`.

use std::io::Write;

use hermes_gateway::protocol::{Request, Response};

use crate::args::SelectArgs;
use crate::context::Context;
use crate::exit::{Exit, Fault};
use crate::link::{Link, request};
use crate::render::lists;

/// Arguments of `hermes tools`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Which tools there are, and which sessions have
    List {
        #[command(flatten)]
        select: SelectArgs,
        /// As one JSON array
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(args: Args, context: &Context) -> Result<Exit, Fault> {
    let What::List { select, json } = args.what;
    let select = select.or(&context.session.select);
    context.ask(&select, false, async |link| list(link, json || context.json, context, &mut std::io::stdout()).await)
}

async fn list(link: &mut Link, json: bool, context: &Context, out: &mut dyn Write) -> Result<Exit, Fault> {
    let tools = request!(link, Request::ToolsList, Response::Tools(list) => list)?;
    if json {
        context.write_json(out, &tools)?;
    } else {
        let (style, width) = (context.terminal.out_style(), context.terminal.width);
        out.write_all(lists::tools(&tools, style, width).as_bytes())?;
    }
    Ok(Exit::Answered)
}
