//! What a command knows of its surroundings, and how it gets a gateway.

use std::io::Write;

use serde::Serialize;

use crate::args::{SelectArgs, SessionArgs};
use crate::exit::{Exit, Fault};
use crate::link::Link;
use crate::open::{LaunchPlan, open};
use crate::signals::{ProcessSignals, Stops, patiently};
use crate::terminal::Terminal;

/// Threads of the engine. The client has its own: a terminal that is slow to take text must not hold a turn up.
const WORKER_THREADS: usize = 2;

/// What a command knows of its surroundings.
#[derive(Debug)]
pub(crate) struct Context {
    /// Flags before the command's name.
    pub(crate) session: SessionArgs,
    /// `--json` before the command's name.
    pub(crate) json: bool,
    /// The profile.
    pub(crate) profile: Option<String>,
    /// What this process is connected to.
    pub(crate) terminal: Terminal,
}

impl Context {
    /// Runs something that waits.
    ///
    /// # Errors
    /// Its own, or that the system gives no threads.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(WORKER_THREADS).enable_all().build()?;
        let result = runtime.block_on(future);
        // A thread that still reads a terminal or a pipe cannot be waited for.
        runtime.shutdown_background();
        result
    }

    /// Starts a gateway, asks it something, shuts it down. A wish to stop ends the question. `needs_model` says whether
    /// it matters which model would be used.
    ///
    /// # Errors
    /// Those of the gateway's start and of `question`.
    pub(crate) fn ask(
        &self,
        select: &SelectArgs,
        needs_model: bool,
        question: impl AsyncFnOnce(&mut Link) -> Result<Exit, Fault>,
    ) -> Result<Exit, Fault> {
        self.block_on(async {
            let mut stops = ProcessSignals::listen()?;
            let plan = LaunchPlan {
                profile: self.profile.clone(),
                select: select.clone(),
                attended: false,
                titles: false,
                needs_model,
            };
            let (opened, stop) = patiently(&mut stops, open(plan)).await;
            let mut opened = opened?;
            let result = if stop.is_some() {
                Err(Fault::Interrupted)
            } else {
                tokio::select! {
                    result = question(&mut opened.link) => result,
                    _ = stops.next() => Err(Fault::Interrupted),
                }
            };
            patiently(&mut stops, opened.shutdown()).await;
            result
        })
    }

    /// Writes a value as one line of JSON.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn write_json(&self, out: &mut dyn Write, value: &impl Serialize) -> Result<(), Fault> {
        let mut text = serde_json::to_string(value).map_err(|error| Fault::Failed(error.to_string()))?;
        text.push('\n');
        Ok(out.write_all(text.as_bytes())?)
    }
}
