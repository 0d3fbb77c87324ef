//! Background processes of a session: their table, their output, their end.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::group::Group;
use super::spawn::{self, Spawned};

/// Background processes of a session, finished ones that are still listed included.
const PROCESSES_MAX: usize = 64;

/// Output that is kept of each, in bytes (tools reference, 6.2: 200,000 characters).
const BUFFER_BYTES: usize = 200_000;

/// Writes to a process's input that may wait.
const INPUT_QUEUE: usize = 16;

/// Input of a process that is judged together, in bytes.
const WRITTEN_MAX_BYTES: usize = 64 * 1024;

/// Time between TERM and KILL, in milliseconds.
const TERM_GRACE_MS: u64 = 1_000;

/// Silence after the end of a process after which its output is complete, in milliseconds.
const DRAIN_SILENCE_MS: u64 = 300;

/// Size of one read, in bytes.
const READ_BYTES: usize = 16 * 1024;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last output of a process.
#[derive(Default)]
struct Rolling {
    bytes: VecDeque<u8>,
    total: u64,
    /// What was already shown by `poll`, counted from the start of all output.
    seen: u64,
}

impl Rolling {
    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.bytes.extend(bytes);
        let excess = self.bytes.len().saturating_sub(BUFFER_BYTES);
        self.bytes.drain(..excess);
    }

    /// The output from byte `from` on, as far as it is kept, and how many bytes before it are lost.
    fn since(&self, from: u64) -> (String, u64) {
        let first = self.total - self.bytes.len() as u64;
        let start = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX).min(self.bytes.len());
        let bytes: Vec<u8> = self.bytes.range(start..).copied().collect();
        (String::from_utf8_lossy(&bytes).into_owned(), first.saturating_sub(from))
    }
}

/// Something for a process's input.
enum Input {
    Bytes(Vec<u8>, oneshot::Sender<std::io::Result<()>>),
    Close,
}

/// One background process.
pub(crate) struct Process {
    pub(crate) id: String,
    pub(crate) command: String,
    started: Instant,
    output: Mutex<Rolling>,
    /// What was written to its input: a command may be spread over several writes, and what is set in one counts in
    /// the next, so the policy judges all of it.
    written: Mutex<String>,
    exit: watch::Receiver<Option<i32>>,
    input: mpsc::Sender<Input>,
    group: Mutex<Group>,
}

impl Process {
    /// The exit code, when it has ended.
    pub(crate) fn exit(&self) -> Option<i32> {
        *self.exit.borrow()
    }

    /// How long it has been there, in whole seconds.
    pub(crate) fn age_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Output that was not polled yet, and how many bytes before it are lost.
    pub(crate) fn poll(&self) -> (String, u64) {
        let mut output = lock(&self.output);
        let news = output.since(output.seen);
        output.seen = output.total;
        news
    }

    /// All output that is kept, and how many bytes before it are lost.
    pub(crate) fn log(&self) -> (String, u64) {
        lock(&self.output).since(0)
    }

    /// Waits for the end, at most `limit`; the exit code when it has ended.
    pub(crate) async fn wait(&self, limit: Duration) -> Option<i32> {
        let mut exit = self.exit.clone();
        let ended = tokio::time::timeout(limit, exit.wait_for(Option::is_some)).await;
        match ended {
            Ok(Ok(code)) => *code,
            _ => self.exit(),
        }
    }

    /// What the process will have read after `data` is written.
    pub(crate) fn written_with(&self, data: &str) -> String {
        format!("{}{data}", lock(&self.written))
    }

    /// Writes to its input.
    pub(crate) async fn write(&self, data: &str) -> std::io::Result<()> {
        let closed = || std::io::Error::new(std::io::ErrorKind::BrokenPipe, "its input is closed");
        let (tell, told) = oneshot::channel();
        self.input.send(Input::Bytes(data.as_bytes().to_vec(), tell)).await.map_err(|_| closed())?;
        told.await.map_err(|_| closed())??;
        let mut written = lock(&self.written);
        written.push_str(data);
        // Never inside a line: half a command would be judged as another one.
        while written.len() > WRITTEN_MAX_BYTES {
            let Some(end) = written.find('\n') else { break };
            written.drain(..=end);
        }
        Ok(())
    }

    /// Closes its input.
    pub(crate) async fn close(&self) {
        // A process that has ended has no input left to close.
        let _ = self.input.send(Input::Close).await;
    }

    /// Ends it and what it started.
    pub(crate) async fn kill(&self) -> Option<i32> {
        lock(&self.group).terminate();
        if self.wait(Duration::from_millis(TERM_GRACE_MS)).await.is_none() {
            lock(&self.group).kill();
        }
        self.wait(Duration::from_millis(TERM_GRACE_MS)).await
    }
}

/// The background processes of a session. Dropping it kills them.
#[derive(Default)]
pub(crate) struct ProcessTable {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    processes: BTreeMap<String, Arc<Process>>,
    tasks: JoinSet<()>,
    next: u64,
    closed: bool,
}

impl ProcessTable {
    /// Starts a command; returns the id by which it is known.
    pub(crate) fn start(&self, command: &str, cwd: &Path, env: &BTreeMap<String, String>) -> std::io::Result<String> {
        let mut inner = lock(&self.inner);
        if inner.closed {
            return Err(std::io::Error::other("the session has ended"));
        }
        while inner.tasks.try_join_next().is_some() {}
        if inner.processes.len() >= PROCESSES_MAX {
            // The oldest that has ended makes room.
            let ended = inner.processes.values().filter(|process| process.exit().is_some());
            let oldest = ended.max_by_key(|process| process.started.elapsed()).map(|process| process.id.clone());
            match oldest {
                Some(id) => inner.processes.remove(&id),
                None => {
                    let text =
                        format!("{PROCESSES_MAX} background processes are running, which is the limit; end one first");
                    return Err(std::io::Error::other(text));
                }
            };
        }
        let spawned = spawn::spawn(command, cwd, env, true)?;
        inner.next += 1;
        let id = format!("proc_{}", inner.next);
        let (tell, exit) = watch::channel(None);
        let (input, inputs) = mpsc::channel(INPUT_QUEUE);
        let Spawned { child, group, output, stdin } = spawned;
        let process = Arc::new(Process {
            id: id.clone(),
            command: command.to_owned(),
            started: Instant::now(),
            output: Mutex::default(),
            written: Mutex::default(),
            exit,
            input,
            group: Mutex::new(group),
        });
        inner.tasks.spawn(own(process.clone(), child, output, stdin, inputs, tell));
        inner.processes.insert(id.clone(), process);
        Ok(id)
    }

    /// All of them, in the order of their start.
    pub(crate) fn list(&self) -> Vec<Arc<Process>> {
        let mut all: Vec<_> = lock(&self.inner).processes.values().cloned().collect();
        all.sort_by_key(|process| process.started);
        all
    }

    /// The one with this id, or the only one whose id begins so.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Process>> {
        let inner = lock(&self.inner);
        if let Some(process) = inner.processes.get(id) {
            return Some(process.clone());
        }
        let mut near = inner.processes.values().filter(|process| !id.is_empty() && process.id.starts_with(id));
        match (near.next(), near.next()) {
            (Some(only), None) => Some(only.clone()),
            _ => None,
        }
    }

    /// Ends all of them and waits until they are gone.
    pub(crate) async fn shutdown(&self) {
        let (processes, mut tasks) = {
            let mut inner = lock(&self.inner);
            inner.closed = true;
            (std::mem::take(&mut inner.processes), std::mem::take(&mut inner.tasks))
        };
        futures::future::join_all(processes.values().map(|process| process.kill())).await;
        tasks.shutdown().await;
    }
}

impl Drop for ProcessTable {
    fn drop(&mut self) {
        // The groups kill themselves when the last holder is dropped; a caller may still hold one, so not left to that.
        for process in lock(&self.inner).processes.values() {
            lock(&process.group).kill();
        }
    }
}

/// Looks after one process until it has ended.
async fn own(
    process: Arc<Process>,
    mut child: tokio::process::Child,
    mut output: tokio::net::unix::pipe::Receiver,
    mut stdin: Option<ChildStdin>,
    mut inputs: mpsc::Receiver<Input>,
    tell: watch::Sender<Option<i32>>,
) {
    let mut buffer = vec![0; READ_BYTES];
    let mut open = true;
    let status = loop {
        tokio::select! {
            read = output.read(&mut buffer), if open => match read {
                Ok(n) if n > 0 => lock(&process.output).push(&buffer[..n]),
                _ => open = false,
            },
            Some(input) = inputs.recv() => match input {
                Input::Close => stdin = None,
                Input::Bytes(bytes, told) => {
                    let written = write_input(&mut stdin, &bytes, &mut output, &mut buffer, &process).await;
                    // Nobody waits for the answer any more: then nobody needs it.
                    let _ = told.send(written);
                }
            },
            status = child.wait() => break status,
        }
    };
    // What it started ends with it: a background process that leaves others behind is nobody's.
    {
        let mut group = lock(&process.group);
        group.kill();
        group.let_go();
    }
    while open {
        let read = tokio::time::timeout(Duration::from_millis(DRAIN_SILENCE_MS), output.read(&mut buffer)).await;
        match read {
            Ok(Ok(n)) if n > 0 => lock(&process.output).push(&buffer[..n]),
            _ => open = false,
        }
    }
    tell.send_replace(Some(status.map_or(-1, spawn::exit_code)));
}

/// Writes while it goes on reading: a process that prints before it reads must not hang both.
async fn write_input(
    stdin: &mut Option<ChildStdin>,
    bytes: &[u8],
    output: &mut tokio::net::unix::pipe::Receiver,
    buffer: &mut [u8],
    process: &Process,
) -> std::io::Result<()> {
    let Some(stdin) = stdin else {
        return Err(std::io::Error::new(std::io::ErrorKind::BrokenPipe, "its input is closed"));
    };
    let write = async {
        stdin.write_all(bytes).await?;
        stdin.flush().await
    };
    tokio::pin!(write);
    loop {
        tokio::select! {
            written = &mut write => return written,
            Ok(n) = output.read(buffer) => {
                if n == 0 {
                    return write.await;
                }
                lock(&process.output).push(&buffer[..n]);
            }
        }
    }
}
