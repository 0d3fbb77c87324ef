//! Keeps what a command prints: all of it in a file, its beginning and end in memory.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt;

/// Beginning that is kept in memory, in bytes. Larger than what is ever shown of it.
const HEAD_BYTES: usize = 256 * 1024;

/// End that is kept in memory, in bytes.
const TAIL_BYTES: usize = 256 * 1024;

/// Largest file of one command's output, in bytes. More is counted and not kept.
const FILE_MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Output of one command.
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    /// Where the file would be.
    path: Option<PathBuf>,
    file: Option<tokio::fs::File>,
    in_file: u64,
}

impl Capture {
    /// A capture whose file, once one is needed, is at `path`.
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), total: 0, path, file: None, in_file: 0 }
    }

    /// Takes more output.
    pub(super) async fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = HEAD_BYTES.saturating_sub(self.head.len());
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        if rest.is_empty() {
            self.head.extend_from_slice(head);
            return;
        }
        // What does not fit into memory goes to the file first; the head is written there when the file is made.
        self.head.extend_from_slice(head);
        if self.file.is_none() {
            self.open().await;
        }
        self.write(rest).await;
        let keep = rest.len().min(TAIL_BYTES);
        let excess = (self.tail.len() + keep).saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        self.tail.extend(&rest[rest.len() - keep..]);
    }

    async fn open(&mut self) {
        let Some(path) = self.path.take() else { return };
        match create_private(&path).await {
            Ok(file) => {
                self.file = Some(file);
                self.path = Some(path);
                let head = std::mem::take(&mut self.head);
                self.write(&head).await;
                self.head = head;
            }
            Err(error) => tracing::warn!(%error, "the output of a command cannot be kept in a file"),
        }
    }

    async fn write(&mut self, bytes: &[u8]) {
        let Some(file) = &mut self.file else { return };
        let room = usize::try_from(FILE_MAX_BYTES.saturating_sub(self.in_file)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        match file.write_all(bytes).await {
            Ok(()) => self.in_file += bytes.len() as u64,
            Err(error) => {
                tracing::warn!(%error, "the output of a command could not be written down");
                self.file = None;
                self.path = None;
            }
        }
    }

    /// Bytes that were printed.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// What is in memory as text: all of it, or beginning and end with the number of bytes between them.
    pub(super) fn text(&self) -> (String, u64) {
        let held = (self.head.len() + self.tail.len()) as u64;
        let between = self.total - held;
        let mut bytes = self.head.clone();
        if between > 0 {
            bytes.extend_from_slice(format!("\n[{between} bytes left out here]\n").as_bytes());
        }
        bytes.extend(&self.tail);
        (String::from_utf8_lossy(&bytes).into_owned(), between)
    }

    /// Makes sure that all output is in the file; returns where and how much of it.
    pub(super) async fn persist(&mut self) -> Option<(PathBuf, u64)> {
        if self.file.is_none() {
            self.open().await;
        }
        let flushed = match &mut self.file {
            Some(file) => file.flush().await.is_ok(),
            None => false,
        };
        if flushed { self.path.clone().map(|path| (path, self.in_file)) } else { None }
    }
}

async fn create_private(path: &Path) -> std::io::Result<tokio::fs::File> {
    if let Some(dir) = path.parent() {
        tokio::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).await?;
    }
    tokio::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn t44_everything_is_in_the_file_and_both_ends_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture = Capture::new(Some(dir.path().join("d/out.txt")));
        let mut all = Vec::new();
        for n in 0..200u32 {
            let lines: String = (n * 1_000..(n + 1) * 1_000).map(|line| format!("line {line}\n")).collect();
            all.extend_from_slice(lines.as_bytes());
            capture.push(lines.as_bytes()).await;
        }
        let (path, kept) = capture.persist().await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), all);
        assert_eq!(kept, all.len() as u64);
        let (text, between) = capture.text();
        assert!(text.starts_with("line 0\n") && text.ends_with("line 199999\n") && between > 0);
    }

    #[tokio::test]
    async fn a_small_output_makes_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture = Capture::new(Some(dir.path().join("d/out.txt")));
        capture.push(b"hello").await;
        assert_eq!(capture.text(), ("hello".to_owned(), 0));
        assert!(!dir.path().join("d").exists());
        assert!(Capture::new(None).persist().await.is_none());
    }
}
