//! `hermes chat`.

use crate::args::{SessionArgs, check_text};
use crate::context::Context;
use crate::exit::{Exit, Fault};
use crate::talk::{self, Plan};

/// Arguments of `hermes chat`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) session: SessionArgs,

    /// Answer this text and leave
    #[arg(short = 'q', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) query: Option<String>,

    /// Only the answer on stdout, and `session_id: ID` as the last line on stderr
    #[arg(short = 'Q', long)]
    pub(crate) quiet: bool,

    /// One JSON object on each line of stdout: the events, the result last
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) json: bool,
}

pub(super) fn run(args: Args, context: &Context) -> Result<Exit, Fault> {
    if let Some(text) = &args.query {
        check_text("-q", text)?;
    }
    let session = args.session.or(&context.session);
    talk::run(context, &session, Plan::chat(args.query, args.quiet, args.json || context.json))
}
