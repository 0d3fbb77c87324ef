//! `hermes model`: which one is used, and what is known of models.

use std::io::Write;

use hermes_gateway::protocol::{ModelRefreshParams, ModelSearchParams, ModelShowParams, Request, Response};

use crate::args::SelectArgs;
use crate::context::Context;
use crate::exit::{Exit, Fault};
use crate::link::{Link, request};
use crate::render::{lists, models};

/// Arguments of `hermes model`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(flatten)]
    select: SelectArgs,
    /// As one JSON object
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Find models by words of their names and providers: windows, limits, prices
    Search {
        /// Words that all must be there; none lists every known model
        words: Vec<String>,
        /// Most models
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// What is known of one model, and from where
    Show {
        /// The model; the one in use when left out
        model: Option<String>,
        /// The provider
        #[arg(long, value_name = "ID")]
        provider: Option<String>,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Ask a provider for its list of models, and keep it
    Refresh {
        /// The provider; the one in use when left out
        provider: Option<String>,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(args: Args, context: &Context) -> Result<Exit, Fault> {
    let select = args.select.or(&context.session.select);
    let json = args.json || context.json;
    let out = &mut std::io::stdout();
    let Some(what) = args.what else {
        return context.ask(&select, true, async |link| used(link, json, context, out).await);
    };
    match what {
        What::Search { words, limit, json: own } => {
            let params = ModelSearchParams { words, limit: usize::try_from(limit).unwrap_or(usize::MAX) };
            context.ask(&select, false, async |link| search(link, params, json || own, context, out).await)
        }
        What::Show { model, provider, json: own } => {
            // Which one is used matters only when it is the one that is meant.
            let needs_model = model.is_none();
            let provider = provider.or_else(|| context.session.select.provider.clone());
            let params = ModelShowParams { model, provider };
            context.ask(&select, needs_model, async |link| show(link, params, json || own, context, out).await)
        }
        What::Refresh { provider, json: own } => {
            let needs_model = provider.is_none();
            let params = ModelRefreshParams { provider };
            context.ask(&select, needs_model, async |link| refresh(link, params, json || own, context, out).await)
        }
    }
}

async fn used(link: &mut Link, json: bool, context: &Context, out: &mut dyn Write) -> Result<Exit, Fault> {
    let status = link.model().await?;
    if json {
        context.write_json(out, &status)?;
    } else {
        out.write_all(lists::model(&status, context.terminal.out_style()).as_bytes())?;
    }
    Ok(Exit::Answered)
}

/// 1 when nothing was found.
async fn search(
    link: &mut Link,
    params: ModelSearchParams,
    json: bool,
    context: &Context,
    out: &mut dyn Write,
) -> Result<Exit, Fault> {
    let found = request!(link, Request::ModelSearch(params), Response::Models(found) => found)?;
    if json {
        context.write_json(out, &found)?;
    } else {
        out.write_all(models::found(&found, context.terminal.out_style()).as_bytes())?;
    }
    Ok(if found.models.is_empty() { Exit::Failed } else { Exit::Answered })
}

async fn show(
    link: &mut Link,
    params: ModelShowParams,
    json: bool,
    context: &Context,
    out: &mut dyn Write,
) -> Result<Exit, Fault> {
    let shown = request!(link, Request::ModelShow(params), Response::ModelShown(shown) => *shown)?;
    if json {
        context.write_json(out, &shown)?;
    } else {
        out.write_all(models::shown(&shown, context.terminal.out_style()).as_bytes())?;
    }
    Ok(Exit::Answered)
}

async fn refresh(
    link: &mut Link,
    params: ModelRefreshParams,
    json: bool,
    context: &Context,
    out: &mut dyn Write,
) -> Result<Exit, Fault> {
    let done = request!(link, Request::ModelRefresh(params), Response::ModelsRefreshed(done) => done)?;
    if json {
        context.write_json(out, &done)?;
    } else {
        let news = if done.changed { "" } else { ", unchanged" };
        writeln!(out, "{} lists {} models{news}", crate::text::harmless(&done.provider), done.models)?;
    }
    Ok(Exit::Answered)
}
