//! `hermes store`.

use std::io::{self, Write};
use std::path::PathBuf;

use hermes_gateway::protocol::{
    CheckReport, Request, Response, RestoreReport, StoreCheckParams, StorePathParams, StoreVacuumParams, VacuumOutcome,
};

use super::import::absolute;
use crate::context::Context;
use crate::exit::{Exit, Fault};
use crate::link::{Link, request};
use crate::render::timestamp;
use crate::text::harmless;

/// Arguments of `hermes store`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Look whether the file and everything in it is as it must be
    Check {
        /// Read everything several times
        #[arg(long)]
        full: bool,
    },
    /// Write the store of this moment to a new file, while turns run
    Backup {
        /// The file; it must not exist yet
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Put a backup in the place of the store. The old file is kept beside it
    Restore {
        /// The backup
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Make the file smaller, when enough of it is free
    Vacuum {
        /// Also when it is not worth it, or was done not long ago
        #[arg(long)]
        force: bool,
    },
}

pub(super) fn run(args: Args, context: &Context) -> Result<Exit, Fault> {
    let Args { what } = args;
    if let What::Restore { yes: false, .. } = what {
        return Err(Fault::Usage(
            "a restore puts another file in the place of the store; say that you mean it with --yes".to_owned(),
        ));
    }
    let select = context.session.select.clone();
    context.ask(&select, false, async |link| execute(&what, link, context, &mut io::stdout().lock()).await)
}

async fn execute(what: &What, link: &mut Link, context: &Context, out: &mut dyn Write) -> Result<Exit, Fault> {
    let mut exit = Exit::Answered;
    match what {
        What::Check { full } => {
            let params = StoreCheckParams { full: *full };
            let report = request!(link, Request::StoreCheck(params), Response::Checked(report) => report)?;
            if !report.is_sound() {
                exit = Exit::Failed;
            }
            match context.json {
                true => context.write_json(out, &report)?,
                false => checked(out, &report)?,
            }
        }
        What::Backup { file } => {
            let params = StorePathParams { path: absolute(file)? };
            request!(link, Request::StoreBackup(params), Response::BackedUp => ())?;
            writeln!(out, "Written to {}", harmless(&file.display().to_string()))?;
        }
        What::Restore { file, .. } => {
            let params = StorePathParams { path: absolute(file)? };
            let report = request!(link, Request::StoreRestore(params), Response::Restored(report) => report)?;
            restored(out, &report)?;
        }
        What::Vacuum { force } => {
            let params = StoreVacuumParams { force: *force };
            let done = request!(link, Request::StoreVacuum(params), Response::Vacuumed(done) => done)?;
            vacuumed(out, &done)?;
        }
    }
    out.flush()?;
    Ok(exit)
}

fn checked(out: &mut dyn Write, report: &CheckReport) -> io::Result<()> {
    let CheckReport { conversations, rows, calls, prompts, findings } = report;
    writeln!(out, "{conversations} conversations, {rows} rows, {calls} calls, {prompts} prompts")?;
    for finding in findings {
        let example =
            finding.example.as_deref().map(|id| format!(" (for example {})", harmless(id))).unwrap_or_default();
        writeln!(out, "wrong: {} times {}{example}", finding.count, finding.what)?;
    }
    if findings.is_empty() {
        writeln!(out, "Everything is as it must be.")?;
    }
    Ok(())
}

fn restored(out: &mut dyn Write, report: &RestoreReport) -> io::Result<()> {
    writeln!(out, "The backup is in its place.")?;
    if let Some(kept) = &report.replaced {
        writeln!(out, "The file that was there is now {}", harmless(&kept.display().to_string()))?;
    }
    if report.cancelled > 0 {
        writeln!(
            out,
            "{} inputs that waited were cancelled: they may have been run since the backup",
            report.cancelled
        )?;
    }
    if report.unknown > 0 {
        writeln!(
            out,
            "{} inputs were at work when the backup was made; what became of them is not known",
            report.unknown
        )?;
    }
    let others = [
        (
            report.deliveries,
            "messages were not sent yet; they may have been since, and are not sent again by themselves",
        ),
        (report.approvals, "open questions were withdrawn"),
        (report.workers, "workers were at work; what became of them is not known"),
        (report.delegations, "tasks that were given away are over or unknown; their results are not carried further"),
        (report.receipts, "messages had come in since the backup; a platform that sends one again runs nothing"),
    ];
    for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "{count} {what}")?;
    }
    if report.replaced.is_some() && !report.read_counters {
        writeln!(out, "That file could not be read: messages that a platform sends again may run again")?;
    }
    Ok(())
}

fn vacuumed(out: &mut dyn Write, done: &VacuumOutcome) -> io::Result<()> {
    match done {
        VacuumOutcome::Done { freed_bytes } => writeln!(out, "The file is {freed_bytes} bytes smaller."),
        VacuumOutcome::NotNeeded { free_percent } => {
            writeln!(out, "Not needed: {free_percent} % of the file are free. --force does it all the same.")
        }
        VacuumOutcome::TooSoon { not_before_ms } => {
            writeln!(
                out,
                "Not now: it is done again from {} on. --force does it all the same.",
                timestamp(*not_before_ms)
            )
        }
        VacuumOutcome::TurnRuns { conversation } => {
            writeln!(out, "Not now: a turn is at work in {}.", harmless(conversation))
        }
        VacuumOutcome::OpenElsewhere => {
            writeln!(out, "Not now: another process has the file open. --force does it all the same.")
        }
        _ => writeln!(out, "Not done."),
    }
}
