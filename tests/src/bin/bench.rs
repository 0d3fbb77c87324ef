//! `bench [RUNS]`: the figures of the whole program against the scripted server: start to the first request, a whole
//! one-shot turn, time of one tool round, peak memory. Medians; noise is shown by minimum and maximum.
//!
//! Called by `cargo xtask bench`, which builds the release program first and names it in `HERMES_BIN`.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hermes_tests::home::{Home, hermes};
use hermes_tests::server::ModelServer;

/// Rounds of the long turn.
const ROUNDS: usize = 50;

#[derive(Default)]
struct Figures {
    first_request_ms: Vec<f64>,
    whole_ms: Vec<f64>,
    round_ms: Vec<f64>,
    tool_ms: Vec<f64>,
    memory_mb: Vec<f64>,
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

fn show(name: &str, values: &mut [f64], aim: &str) {
    values.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return };
    println!(
        "{name:<44} {:>8.2}   (min {first:.2}, max {last:.2}, n {}) {aim}",
        values[values.len() / 2],
        values.len()
    );
}

/// Runs the program and returns its whole time, the time to its first request, and its peak memory in MB.
async fn run(home: &Home, server: &ModelServer, args: &[&str]) -> Result<(f64, f64, f64)> {
    server.forget();
    let begun = Instant::now();
    let mut child = home.spawn(args)?;
    let pid = child.id().context("the program is gone")?;
    let mut peak = 0.0_f64;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            () = tokio::time::sleep(Duration::from_millis(2)) => {
                // The kernel keeps the peak itself; the last look before the end counts.
                let text = tokio::fs::read_to_string(format!("/proc/{pid}/status")).await.unwrap_or_default();
                let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                let kb = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
                peak = peak.max(kb.unwrap_or(0.0) / 1_024.0);
            }
        }
    };
    let whole = ms(begun.elapsed());
    ensure!(status.success(), "{args:?} ended with {status}");
    let first = server.seen().first().context("no request")?.at;
    Ok((whole, ms(first.duration_since(begun)), peak))
}

#[tokio::main]
async fn main() -> Result<()> {
    let runs: usize = std::env::args().nth(1).map(|arg| arg.parse()).transpose()?.unwrap_or(15);
    println!("program: {}", hermes()?.display());
    let server = ModelServer::start().await?;
    let home = Home::with_server(&server.base_url())?;
    let mut figures = Figures::default();
    run(&home, &server, &["-z", "warm up"]).await?;
    let long = format!("RUN_TOOLS {ROUNDS}");
    for _ in 0..runs {
        let (whole, first, _) = run(&home, &server, &["-z", "hello"]).await?;
        figures.whole_ms.push(whole);
        figures.first_request_ms.push(first);
        let (_, _, memory) = run(&home, &server, &["-z", &long]).await?;
        figures.memory_mb.push(memory);
        let seen = server.seen();
        ensure!(seen.len() == ROUNDS + 1, "{} requests", seen.len());
        for pair in seen.windows(2) {
            let answered = pair[0].answered.context("a request without an answer")?;
            figures.round_ms.push(ms(pair[1].at.duration_since(answered)));
        }
        // What the tool's own process costs on this machine, in the same minute.
        for _ in 0..5 {
            let begun = Instant::now();
            let output = tokio::process::Command::new("bash").args(["-c", "echo hi-0"]).output().await?;
            ensure!(output.status.success(), "bash does not work");
            figures.tool_ms.push(ms(begun.elapsed()));
        }
    }
    show("start to first request, ms", &mut figures.first_request_ms, "aim 30");
    show("whole one-shot turn, ms", &mut figures.whole_ms, "");
    show("tool round (echo, synchronous=FULL), ms", &mut figures.round_ms, "aim: tool's own process + 5");
    show("  of it the tool's own process, ms", &mut figures.tool_ms, "");
    show("peak memory of a 50-round turn, MB", &mut figures.memory_mb, "aim 30");
    Ok(())
}
