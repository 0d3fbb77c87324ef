//! `hermes import`.

use std::io::{self, Write};
use std::path::PathBuf;

use hermes_gateway::protocol::{ImportReport, Request, Response, RowCounts, StorePathParams};

use crate::context::Context;
use crate::exit::{Exit, Fault};
use crate::link::request;
use crate::text::harmless;

/// Arguments of `hermes import`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The Python program's state.db or home directory (neither is written to), or an export of this program
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args, context: &Context) -> Result<Exit, Fault> {
    let Args { path, json } = args;
    let path = absolute(&path)?;
    let select = context.session.select.clone();
    context.ask(&select, false, async |link| {
        let params = StorePathParams { path: path.clone() };
        let report = request!(link, Request::StoreImport(params), Response::Imported(report) => report)?;
        let mut out = io::stdout().lock();
        if json || context.json {
            context.write_json(&mut out, &report)?;
        } else {
            write(&mut out, &report)?;
        }
        Ok(if report.is_complete() { Exit::Answered } else { Exit::Failed })
    })
}

/// The path as the gateway finds it, wherever that was started.
pub(super) fn absolute(path: &std::path::Path) -> Result<String, Fault> {
    let path = std::path::absolute(path).map_err(|error| Fault::Failed(format!("{}: {error}", path.display())))?;
    path.into_os_string()
        .into_string()
        .map_err(|path| Fault::Usage(format!("the path {} is not UTF-8", path.display())))
}

/// A table for a person: what was found, and what became of it.
fn write(out: &mut dyn Write, report: &ImportReport) -> io::Result<()> {
    if report.version > 0 {
        writeln!(out, "schema {}, {} sessions", report.version, report.sessions)?;
    }
    writeln!(out, "{:<20} {:>9} {:>9} {:>9} {:>9}", "rows", "live", "compacted", "rewound", "all")?;
    let mut line = |name: &str, rows: &RowCounts| {
        let RowCounts { active, compacted, superseded } = rows;
        writeln!(out, "{name:<20} {active:>9} {compacted:>9} {superseded:>9} {:>9}", rows.total())
    };
    line("in the file", &report.found)?;
    line("imported now", &report.imported)?;
    line("imported before", &report.known)?;
    line("left out", &report.left)?;
    writeln!(
        out,
        "conversations: {} imported now, {} here before, {} left out",
        report.conversations, report.same, report.refused
    )?;
    if report.added > 0 {
        writeln!(out, "{} rows were added, so that each call has its result", report.added)?;
    }
    let lists = [
        ("has gone on there since it was imported; not touched", &report.changed),
        ("not imported, its id is in use here", &report.taken),
        ("not imported", &report.failed),
    ];
    for (why, names) in lists {
        for name in names {
            writeln!(out, "{why}: {}", harmless(name))?;
        }
    }
    for (heading, notes) in [("mended or noticed", &report.notes), ("not carried", &report.left_behind)] {
        for (what, count) in &notes.0 {
            writeln!(out, "{heading}: {count} {}", harmless(what))?;
        }
    }
    out.flush()
}
