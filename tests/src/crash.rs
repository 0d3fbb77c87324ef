//! kill -9 at random points of a turn, then `--continue`: nothing is lost and nothing happens twice.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::home::{Home, finish, lines};
use crate::server::ModelServer;

/// Rounds of the turn that is killed.
pub const ROUNDS: usize = 20;

/// What a series of kills showed.
#[derive(Debug, Default)]
pub struct Report {
    /// Kills that hit a running turn.
    pub kills: usize,
    /// Runs that had ended before the kill.
    pub too_late: usize,
    /// Kills before the input was durable: nothing had happened.
    pub before_durable: usize,
    /// Calls whose outcome the model was told to be unknown.
    pub unknown: usize,
    /// Longest time from the restart to the first request, in milliseconds.
    pub restart_max_ms: u128,
}

/// One kill after `delay`, the restart, and every check.
pub async fn once(server: &ModelServer, delay: Duration, report: &mut Report) -> Result<()> {
    let home = Home::with_server(&server.base_url())?;
    let effects = home.file("effects.txt");
    let prompt = format!("RUN_TOOLS {ROUNDS} CMD{{echo {{i}} >> {}}}CMD", effects.display());
    let mut child = home.spawn(&["-z", &prompt])?;
    tokio::time::sleep(delay).await;
    if child.try_wait()?.is_some() {
        report.too_late += 1;
        return Ok(());
    }
    child.kill().await.context("kill -9")?;
    report.kills += 1;
    let before = lines(&effects);
    server.forget();
    let restarted = Instant::now();
    let run = finish(home.spawn(&["-c", "-z", "and now?"])?).await?;
    if run.code == Some(2) && before.is_empty() && run.stderr.contains("no session") {
        report.before_durable += 1;
        return Ok(());
    }
    ensure!(run.code == Some(0), "after the restart: {run:?}");
    ensure!(run.stdout.trim() == "ok, short answer", "after the restart: {run:?}");
    let first = server.seen().first().context("no request after the restart")?.at;
    report.restart_max_ms = report.restart_max_ms.max(first.duration_since(restarted).as_millis());
    ensure!(server.pair_errors().is_empty(), "{:?}", server.pair_errors());
    let after = lines(&effects);
    let distinct: BTreeSet<&String> = after.iter().collect();
    ensure!(distinct.len() == after.len(), "an effect happened twice: {after:?}");
    ensure!(after.starts_with(&before), "an effect was undone: {before:?} {after:?}");
    check_transcript(&home, &after, report).await
}

/// Every call has exactly one result; what is missing among the effects is said to be unknown or not run.
async fn check_transcript(home: &Home, effects: &[String], report: &mut Report) -> Result<()> {
    let last = home.run(&["sessions", "list", "--json"]).await?;
    ensure!(last.code == Some(0), "{last:?}");
    let id = first_id(&last.stdout).with_context(|| format!("no session in {:?}", last.stdout))?;
    let export = home.run(&["sessions", "export", &id, "--format", "jsonl"]).await?;
    ensure!(export.code == Some(0), "{export:?}");
    let rows: Vec<Value> = export.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let calls: Vec<&str> = rows
        .iter()
        .flat_map(|row| row["calls"].as_array().into_iter().flatten())
        .filter_map(|call| call["id"].as_str())
        .collect();
    let results: Vec<&Value> = rows.iter().filter(|row| row["role"] == "tool").collect();
    ensure!(calls.len() == results.len(), "{} calls, {} results", calls.len(), results.len());
    ensure!(calls.len() == ROUNDS, "{} calls", calls.len());
    for (call, result) in calls.iter().zip(&results) {
        ensure!(result["answers"]["call"] == **call, "{call} is answered by {result}");
    }
    let lost = results.iter().filter(|row| row["answers"]["outcome"] == "outcome_unknown").count();
    let skipped = results.iter().filter(|row| row["answers"]["outcome"] == "skipped").count();
    ensure!(
        effects.len() + lost + skipped >= ROUNDS && effects.len() + skipped <= ROUNDS,
        "{} effects, {lost} unknown, {skipped} not run",
        effects.len()
    );
    report.unknown += lost;
    Ok(())
}

fn first_id(text: &str) -> Option<String> {
    let value: Value = text.lines().find_map(|line| serde_json::from_str(line).ok())?;
    let session = if value.is_array() { value.get(0)?.clone() } else { value };
    session["id"].as_str().map(str::to_owned)
}

/// `kills` kills at points spread over the first `span` of a run by a fixed sequence from `seed`.
pub async fn series(kills: usize, span: Duration, seed: u64) -> Result<Report> {
    let server = ModelServer::start().await?;
    let mut report = Report::default();
    let mut state = seed | 1;
    for _ in 0..kills {
        // xorshift: the points are spread, and the same seed gives the same ones.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let delay = span.mul_f64((state % 10_000) as f64 / 10_000.0);
        once(&server, delay, &mut report).await.with_context(|| format!("killed after {delay:?}: {report:?}"))?;
    }
    Ok(report)
}
