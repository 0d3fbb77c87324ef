//! Programs that a judge starts: each has an owner that ends it, and its lines come with the time they came at.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Lines that wait to be read; when they are more, the program waits.
const LINES_MAX: usize = 1024;
/// How often a program that should end is looked at.
const LOOK_EVERY_MS: u64 = 20;
/// How long a program may take to end after its input ended, before it is killed.
const END_MAX_S: u64 = 5;

/// A line of standard output and when it came, counted from the start of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Without its end.
    pub(super) text: String,
    /// Since the start.
    pub(super) after: Duration,
}

/// A running program. Dropping it closes its input, waits [`END_MAX_S`] and kills it then.
pub(super) struct Running {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<std::io::Result<Line>>,
    started: Instant,
}

impl Running {
    /// Starts the program with pipes for input and output; standard error is what the command says.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(name: &str, command: &mut Command) -> Result<Self> {
        let started = Instant::now();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let (sender, lines) = sync_channel(LINES_MAX);
        // Ends with the program's output, or when nobody takes the lines any more.
        thread::spawn(move || {
            for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
                let after = started.elapsed();
                if sender.send(line.map(|text| Line { text, after })).is_err() {
                    return;
                }
            }
        });
        Ok(Self { name: name.to_owned(), child, stdin, lines, started })
    }

    /// Writes one line to the input.
    ///
    /// # Errors
    /// The program reads no more.
    pub(super) fn say(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().with_context(|| format!("the input of {} is closed", self.name))?;
        writeln!(stdin, "{line}").with_context(|| format!("{} reads no more", self.name))
    }

    /// The next line; `None` at the end of the output.
    ///
    /// # Errors
    /// None came before `limit` since the start was over, or it is not UTF-8.
    pub(super) fn line(&self, limit: Duration) -> Result<Option<Line>> {
        match self.lines.recv_timeout(limit.saturating_sub(self.started.elapsed())) {
            Ok(line) => Ok(Some(line.with_context(|| format!("cannot read what {} writes", self.name))?)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!("{} did not answer within {} s", self.name, limit.as_secs()),
        }
    }

    /// Closes the input, takes all lines and waits for the end: the lines, the exit code (`None` after a signal) and
    /// the time from start to end.
    ///
    /// # Errors
    /// It did not end before `limit` since its start was over (it is killed then), or wrote what is not UTF-8.
    pub(super) fn finish(mut self, limit: Duration) -> Result<(Vec<Line>, Option<i32>, Duration)> {
        self.stdin = None;
        let mut lines = Vec::new();
        while let Some(line) = self.line(limit)? {
            lines.push(line);
        }
        let Some(code) = self.end(limit.saturating_sub(self.started.elapsed()))? else {
            bail!("{} did not end within {} s", self.name, limit.as_secs());
        };
        Ok((lines, code, self.started.elapsed()))
    }

    /// Whether it ended by itself.
    ///
    /// # Errors
    /// The system does not say.
    pub(super) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.end(Duration::ZERO)?.is_some())
    }

    /// Waits at most `limit` for the end; the exit code, or `None` while it still runs.
    fn end(&mut self, limit: Duration) -> Result<Option<Option<i32>>> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().with_context(|| format!("cannot wait for {}", self.name))? {
                return Ok(Some(status.code()));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(LOOK_EVERY_MS));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Without input a program that is asked for nothing more ends by itself; the others are killed.
        let asked = self.stdin.take().is_some();
        let limit = Duration::from_secs(if asked { END_MAX_S } else { 0 });
        if !matches!(self.end(limit), Ok(Some(_))) {
            // It may end at this very moment, which is what is wanted.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far above what any of these programs takes.
    const LIMIT: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Running {
        Running::start("sh", Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn lines_and_the_exit_code_come_back() {
        let (lines, code, total) = shell("echo a; echo b; exit 3").finish(LIMIT).unwrap();
        assert_eq!(lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(code, Some(3));
        assert!(lines.iter().all(|line| line.after <= total));
    }

    #[test]
    fn finish_ends_the_input_behind_what_was_said() {
        let mut running = shell("cat; echo done");
        running.say("hello").unwrap();
        let (lines, code, _) = running.finish(LIMIT).unwrap();
        assert_eq!(lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), ["hello", "done"]);
        assert_eq!(code, Some(0));
    }

    #[test]
    fn a_program_that_does_not_end_is_an_error_and_is_gone() {
        let running = shell("exec sleep 1000");
        let id = running.child.id().to_string();
        let error = running.finish(Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("sh did not answer"), "{error}");
        let alive = Command::new("kill").args(["-0", &id]).stderr(Stdio::null()).status().unwrap();
        assert!(!alive.success(), "process {id} still runs");
    }

    #[test]
    fn dropping_ends_a_program_that_waits_for_its_input() {
        let running = shell("echo ready; cat");
        assert_eq!(running.line(LIMIT).unwrap().unwrap().text, "ready");
        let id = running.child.id().to_string();
        drop(running);
        let alive = Command::new("kill").args(["-0", &id]).stderr(Stdio::null()).status().unwrap();
        assert!(!alive.success(), "process {id} still runs");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = Running::start("the thing", &mut Command::new("no-such-program-here")).err().unwrap();
        assert!(error.to_string().contains("the thing"), "{error}");
    }
}
