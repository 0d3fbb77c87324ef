//! `hermes providers`: which providers there are, and where each of their values is from.

use std::io::Write;

use hermes_gateway::protocol::{ProvidersListParams, ProvidersListResponse, Request, Response};

use crate::args::SelectArgs;
use crate::context::Context;
use crate::exit::{Exit, Fault};
use crate::link::{Link, request};
use crate::render::providers;

/// Arguments of `hermes providers`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Every provider, and where its profile is from
    List {
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// One provider, and where each of its values is from
    Show {
        /// Its id or one of its other names
        provider: String,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Read the profiles in the home again and tell what is wrong with them
    Check {
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// How an answer is shown.
type Render = fn(&ProvidersListResponse, crate::style::Style) -> String;

pub(super) fn run(args: Args, context: &Context) -> Result<Exit, Fault> {
    let select = SelectArgs::default().or(&context.session.select);
    let (provider, json, render, check): (_, _, Render, _) = match args.what {
        What::List { json } => (None, json, providers::list, false),
        What::Show { provider, json } => (Some(provider), json, providers::show, false),
        What::Check { json } => (None, json, providers::check, true),
    };
    let json = json || context.json;
    context.ask(&select, false, async |link| {
        let found = ask(link, ProvidersListParams { provider }).await?;
        let mut out = std::io::stdout();
        if json {
            context.write_json(&mut out, &found)?;
        } else {
            out.write_all(render(&found, context.terminal.out_style()).as_bytes())?;
        }
        Ok(if check && !found.problems.is_empty() { Exit::Failed } else { Exit::Answered })
    })
}

async fn ask(link: &mut Link, params: ProvidersListParams) -> Result<ProvidersListResponse, Fault> {
    Ok(request!(link, Request::ProvidersList(params), Response::Providers(found) => found)?)
}
