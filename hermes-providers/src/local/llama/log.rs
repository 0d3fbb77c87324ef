//! What a server says: the newest of it, and the port that it names.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::sync::watch;

/// Newest output that is kept for messages.
pub const LLAMA_LOG_BYTES: usize = 16 * 1024;
/// Longest line of output that is looked at.
const MAX_LINE_BYTES: usize = 4096;
/// Lines of a message.
const TAIL_LINES: usize = 3;

/// The newest lines.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Lines and their bytes together. Held for a push only, never over an await.
    lines: Mutex<(VecDeque<String>, usize)>,
}

impl Log {
    fn held(&self) -> MutexGuard<'_, (VecDeque<String>, usize)> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, line: String) {
        let mut held = self.held();
        let (lines, bytes) = &mut *held;
        *bytes += line.len();
        lines.push_back(line);
        while *bytes > LLAMA_LOG_BYTES {
            let Some(oldest) = lines.pop_front() else { break };
            *bytes -= oldest.len();
        }
    }

    /// Everything that is kept.
    pub(super) fn text(&self) -> String {
        self.held().0.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// What fits into a message.
    pub(super) fn tail(&self) -> String {
        let held = self.held();
        let last: Vec<&str> = held.0.iter().rev().take(TAIL_LINES).map(|line| line.trim()).collect();
        let said = last.into_iter().rev().collect::<Vec<_>>().join(" | ");
        if said.is_empty() { "none".to_owned() } else { said }
    }
}

/// Reads output to its end: keeps the newest of it, and tells the port once it is named.
pub(super) async fn read(pipe: impl AsyncRead + Unpin, log: Arc<Log>, tell: Arc<watch::Sender<Option<u16>>>) {
    let mut reader = BufReader::with_capacity(MAX_LINE_BYTES, pipe);
    let mut line = Vec::new();
    loop {
        let (taken, is_line) = match reader.fill_buf().await {
            Ok([]) | Err(_) => break,
            Ok(bytes) => match bytes.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    line.extend_from_slice(&bytes[..end]);
                    (end + 1, true)
                }
                None => {
                    line.extend_from_slice(bytes);
                    (bytes.len(), line.len() >= MAX_LINE_BYTES)
                }
            },
        };
        reader.consume(taken);
        if is_line {
            let text = String::from_utf8_lossy(&line).into_owned();
            if let Some(port) = listening_port(&text) {
                tell.send_replace(Some(port));
            }
            log.add(text);
            line.clear();
        }
    }
    if !line.is_empty() {
        log.add(String::from_utf8_lossy(&line).into_owned());
    }
}

/// The port in `server is listening on http://127.0.0.1:8080 - ...` or `HTTP server is listening, ..., port: 8080, ...`.
fn listening_port(line: &str) -> Option<u16> {
    let (_, behind) = line.split_once("listening")?;
    let number = ["http://127.0.0.1:", "port: ", "port="].iter().find_map(|mark| behind.split_once(mark))?.1;
    let digits = number.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_what_the_server_says() {
        for (line, want) in [
            ("main: server is listening on http://127.0.0.1:41231 - starting the main loop", Some(41_231)),
            ("HTTP server is listening, hostname: 127.0.0.1, port: 8081, http threads: 3", Some(8081)),
            ("listening, port=9 ", Some(9)),
            ("listening on http://127.0.0.1:0", None),
            ("load: http://127.0.0.1:5 is a link", None),
            ("listening on http://127.0.0.1:99999", None),
        ] {
            assert_eq!(listening_port(line), want, "{line}");
        }
    }

    #[test]
    fn the_log_keeps_the_newest_lines_within_its_bytes() {
        let log = Log::default();
        assert_eq!(log.tail(), "none");
        for n in 0..10_000 {
            log.add(format!("line {n}"));
        }
        assert!(log.text().len() < LLAMA_LOG_BYTES + 2000);
        assert_eq!(log.tail(), "line 9997 | line 9998 | line 9999");
    }
}
