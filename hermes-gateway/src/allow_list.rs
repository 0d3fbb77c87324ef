//! Patterns that were allowed "always", one a line in `run/allowed.txt` of the home.
//!
//! They stand beside the user's own `command_allowlist`, so that his `config.yaml` is never rewritten by an answer at a
//! prompt.

use std::path::PathBuf;

use async_trait::async_trait;
use tokio::io::AsyncWriteExt as _;

use crate::hub::AllowList;

/// Longest pattern that is remembered, in bytes.
const PATTERN_MAX_BYTES: usize = 1_024;

/// The list in a file.
pub(crate) struct FileAllowList {
    dir: PathBuf,
}

impl FileAllowList {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn file(&self) -> PathBuf {
        self.dir.join("allowed.txt")
    }

    /// What was remembered; nothing when there is no such file.
    pub(crate) async fn load(&self) -> Vec<String> {
        let Ok(text) = tokio::fs::read_to_string(self.file()).await else { return Vec::new() };
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    }

    async fn append(&self, pattern: &str) -> std::io::Result<()> {
        tokio::fs::create_dir_all(&self.dir).await?;
        let mut options = tokio::fs::OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        let mut file = options.open(self.file()).await?;
        // One write, so that two processes do not mix their lines.
        file.write_all(format!("{pattern}\n").as_bytes()).await?;
        file.sync_data().await
    }
}

#[async_trait]
impl AllowList for FileAllowList {
    async fn remember(&self, pattern: &str) {
        let single_line = !pattern.contains(['\n', '\r']) && pattern.len() <= PATTERN_MAX_BYTES;
        if !single_line || self.load().await.iter().any(|known| known == pattern) {
            return;
        }
        if let Err(error) = self.append(pattern).await {
            tracing::warn!("an allowed pattern could not be remembered: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn patterns_are_remembered_once_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let list = FileAllowList::new(dir.path().join("run"));
        assert!(list.load().await.is_empty());
        list.remember("git push").await;
        list.remember("git push").await;
        list.remember("two\nlines").await;
        assert_eq!(list.load().await, ["git push"]);
    }
}
