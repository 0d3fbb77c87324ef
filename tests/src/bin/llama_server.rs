//! An executable that speaks as llama.cpp's `llama-server` does: its options, what it writes, its endpoints. It has no model;
//! [`hermes_tests::server`] answers.
//!
//! Beside the options of the real one: `--log FILE` gets a line `PID CTX_SIZE` with each start, and with `--breaks-above N` a
//! larger window does not fit into its memory.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use hermes_tests::server::ModelServer;

#[derive(Default)]
struct Options {
    model: Option<PathBuf>,
    port: u16,
    context: u64,
    log: Option<PathBuf>,
    breaks_above: Option<u64>,
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options> {
    let mut found = Options::default();
    while let Some(name) = args.next() {
        let value = args.next().with_context(|| format!("{name} has no value"))?;
        match name.as_str() {
            "--model" => found.model = Some(value.into()),
            "--host" if value == "127.0.0.1" => {}
            "--port" => found.port = value.parse()?,
            "--ctx-size" => found.context = value.parse()?,
            "--log" => found.log = Some(value.into()),
            "--breaks-above" => found.breaks_above = Some(value.parse()?),
            other => bail!("error: invalid argument: {other}"),
        }
    }
    Ok(found)
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = options(std::env::args().skip(1))?;
    let model = options.model.context("no model is named")?;
    std::fs::metadata(&model).with_context(|| format!("failed to open {}", model.display()))?;
    if options.breaks_above.is_some_and(|most| options.context > most) {
        bail!("failed to allocate the KV cache: out of memory for {} tokens", options.context);
    }
    if let Some(log) = &options.log {
        let mut log = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        writeln!(log, "{} {}", std::process::id(), options.context)?;
    }
    let server = ModelServer::start_llama(options.port, options.context).await?;
    let address = server.base_url();
    eprintln!("main: server is listening on {} - starting the main loop", address.trim_end_matches("/v1"));
    std::future::pending().await
}
