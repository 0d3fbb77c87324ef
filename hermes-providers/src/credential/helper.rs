//! Runs another program whose output is a secret.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;

use crate::classify::redact;

/// Largest output that is read; tokens have a few kB.
const OUTPUT_MAX_BYTES: u64 = 64 * 1024;
/// What is kept of the program's complaints.
const COMPLAINT_MAX_BYTES: u64 = 2 * 1024;
/// What is shown of them.
const COMPLAINT_MAX_CHARS: usize = 200;

/// A program and all that it gets. Its input is empty, and of the environment it sees only what stands here.
#[derive(Debug, Clone)]
pub(crate) struct Helper<'a> {
    pub(crate) program: &'a str,
    pub(crate) args: &'a [String],
    /// The whole environment.
    pub(crate) env: &'a [(String, String)],
    /// From the start to the end of its output.
    pub(crate) limit: Duration,
}

/// Why there is no output.
#[derive(Debug)]
pub(crate) enum HelperFailure {
    /// It could not be started, or its output not be read.
    NotRun(io::Error),
    /// It ended with a failure; how, and its last words without secrets.
    Failed { status: String, said: String },
    /// It took too long and was ended.
    Late,
    /// It wrote more than anybody would.
    TooLarge,
    /// What it wrote is no text.
    NoText,
}

impl HelperFailure {
    /// What happened, as the end of a sentence that names the program.
    pub(crate) fn why(&self, limit: Duration) -> String {
        match self {
            Self::NotRun(error) => format!("cannot be run: {error}"),
            Self::Failed { status, said } if said.is_empty() => format!("failed ({status})"),
            Self::Failed { status, said } => format!("failed ({status}): {said}"),
            Self::Late => format!("was not done within {} s and was ended", limit.as_secs_f64()),
            Self::TooLarge => format!("wrote more than {OUTPUT_MAX_BYTES} bytes"),
            Self::NoText => "wrote something that is no text".to_owned(),
        }
    }
}

impl Helper<'_> {
    /// Runs it to its end and gives what it wrote. Dropping the future ends the program.
    pub(crate) async fn run(&self) -> Result<String, HelperFailure> {
        let mut command = Command::new(self.program);
        command.args(self.args).env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(HelperFailure::NotRun)?;
        let (out, complaints) = (child.stdout.take(), child.stderr.take());
        let work = async {
            let (out, said) = tokio::try_join!(output(out), last_words(complaints))?;
            let status = child.wait().await.map_err(HelperFailure::NotRun)?;
            if !status.success() {
                return Err(HelperFailure::Failed { status: status.to_string(), said });
            }
            String::from_utf8(out).map_err(|_| HelperFailure::NoText)
        };
        // The child is ended with `child`, which goes out of scope here.
        timeout(self.limit, work).await.unwrap_or(Err(HelperFailure::Late))
    }
}

async fn output(pipe: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, HelperFailure> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(OUTPUT_MAX_BYTES + 1).read_to_end(&mut bytes).await.map_err(HelperFailure::NotRun)?;
    }
    if bytes.len() as u64 > OUTPUT_MAX_BYTES { Err(HelperFailure::TooLarge) } else { Ok(bytes) }
}

/// The last line of the complaints' beginning; the rest is read and thrown away, so that the program can go on.
async fn last_words(pipe: Option<impl AsyncRead + Unpin>) -> Result<String, HelperFailure> {
    let Some(mut pipe) = pipe else { return Ok(String::new()) };
    let mut bytes = Vec::new();
    (&mut pipe).take(COMPLAINT_MAX_BYTES).read_to_end(&mut bytes).await.map_err(HelperFailure::NotRun)?;
    tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await.map_err(HelperFailure::NotRun)?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let plain: String = line.chars().filter(|c| !c.is_control()).take(COMPLAINT_MAX_CHARS).collect();
    Ok(redact(&plain, &[]))
}
