//! `hermes sessions prune`: tells what would go, asks when that is everything, and does it.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use hermes_gateway::protocol::{PruneReport, PruneStep, Request, Response, SessionPruneParams};

use super::{DAY_MS, typed_yes};
use crate::context::Context;
use crate::exit::Fault;
use crate::link::{Link, request};
use crate::text::one_line;

/// Days of idleness when none are named: those of the store's own rules.
const IDLE_DEFAULT_DAYS: u32 = 90;
/// Sessions, newest activity first, among which one that stays is looked for. More pinned ones than this in a row are
/// taken for everything, which only means that a person is asked.
const LOOKED_AT: usize = 200;

/// What is to be pruned, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    /// Only say what would go.
    pub(super) dry_run: bool,
    /// Days of idleness.
    pub(super) days: Option<u32>,
    /// Do not ask.
    pub(super) yes: bool,
}

impl Wish {
    fn params(self, dry_run: bool) -> SessionPruneParams {
        SessionPruneParams { days: self.days, dry_run }
    }
}

/// One line for each session that a rule applies to, until nothing is left for it.
pub(super) async fn prune(wish: Wish, link: &mut Link, context: &Context, out: &mut dyn Write) -> Result<(), Fault> {
    let width = context.terminal.width;
    let plan = one_run(link, wish.params(true)).await?;
    if wish.dry_run {
        lines(&plan, width, out)?;
        let more = if plan.has_more { "at least " } else { "" };
        return Ok(writeln!(out, "{more}{} sessions would be removed, ended or archived.", plan.done.len())?);
    }
    if !plan.done.is_empty() && !wish.yes && !one_stays(wish.days, link).await? {
        let what = counted(&plan);
        if !context.terminal.attended() {
            return Err(Fault::Usage(format!(
                "this would leave no session that is not pinned as it is: {what}. There is no terminal to ask on; \
                 --yes does it without asking, --dry-run shows which"
            )));
        }
        if !typed_yes(format!("No session that is not pinned stays as it is: {what}. Type yes: ")).await? {
            eprintln!("Nothing was pruned.");
            return Ok(());
        }
    }
    let mut count = 0;
    loop {
        let report = one_run(link, wish.params(false)).await?;
        lines(&report, width, out)?;
        count += report.done.len();
        if !report.has_more {
            return Ok(writeln!(out, "{count} sessions were removed, ended or archived.")?);
        }
    }
}

async fn one_run(link: &Link, params: SessionPruneParams) -> Result<PruneReport, Fault> {
    Ok(request!(link, Request::SessionPrune(params), Response::Pruned(report) => report)?)
}

fn lines(report: &PruneReport, width: usize, out: &mut dyn Write) -> io::Result<()> {
    for one in &report.done {
        let step = match one.step {
            PruneStep::Removed => "removed",
            PruneStep::Empty => "removed, empty",
            PruneStep::Ended => "ended",
            PruneStep::Archived => "archived",
        };
        let title = one_line(one.title.as_deref().unwrap_or("-"), width.saturating_sub(60).max(20));
        writeln!(out, "{} {step} ({} rows) {title}", one.conversation, one.messages)?;
    }
    Ok(())
}

/// `2 are removed for good, 1 is ended`.
fn counted(plan: &PruneReport) -> String {
    let count = |steps: &[PruneStep]| plan.done.iter().filter(|one| steps.contains(&one.step)).count();
    let more = if plan.has_more { "at least " } else { "" };
    let parts = [
        (count(&[PruneStep::Removed, PruneStep::Empty]), "removed for good"),
        (count(&[PruneStep::Ended]), "ended (and removed for good by a later prune)"),
        (count(&[PruneStep::Archived]), "archived"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts.map(|(count, what)| format!("{more}{count} would be {what}")).collect();
    parts.join(", ")
}

/// Whether a session that is not pinned is too new for the rules.
async fn one_stays(days: Option<u32>, link: &Link) -> Result<bool, Fault> {
    // No clock need agree with another about this.
    if days == Some(0) {
        return Ok(false);
    }
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let idle_ms = i64::from(days.unwrap_or(IDLE_DEFAULT_DAYS)).saturating_mul(DAY_MS);
    let newer_than_ms = i64::try_from(now_ms).unwrap_or(i64::MAX).saturating_sub(idle_ms);
    let newest = link.list(LOOKED_AT, true).await?;
    Ok(newest.iter().any(|session| !session.flags.pinned && session.last_activity_ms > newer_than_ms))
}

#[cfg(test)]
#[path = "prune_tests.rs"]
mod tests;
