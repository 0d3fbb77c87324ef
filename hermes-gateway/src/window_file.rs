//! Windows of models that providers named, one JSON object a line in `run/windows.jsonl` of the home.
//!
//! The file is read once, at the start, and only appended to: a later line about the same model holds. It may be deleted
//! at any time; the next refusal names the window again.
//!
//! A server near the user is started anew with another window at any time, and says what it has now: where that is known,
//! what it said earlier does not count.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use hermes_core::{Clock, WindowKeeper};
use hermes_providers::ModelInfo;
use hermes_providers::http::is_near_address;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;

/// Most of the file that is read, in bytes: some hundred lines. A longer one is begun anew.
const FILE_MAX_BYTES: u64 = 64 * 1_024;
/// Life of a line: a provider may have given a model more room meanwhile.
const KEPT_MAX_MS: i64 = 30 * 24 * 60 * 60 * 1_000;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    provider: String,
    model: String,
    endpoint: String,
    tokens: u64,
    learned_at_ms: i64,
}

type Key = (String, String, String);

impl Line {
    fn key(&self) -> Key {
        (self.provider.clone(), self.model.clone(), self.endpoint.clone())
    }
}

/// The windows in a file.
pub(crate) struct WindowFile {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
    /// Held for map operations only, never over an await.
    known: Mutex<HashMap<Key, u64>>,
}

impl WindowFile {
    /// What the file in this directory holds; nothing when there is none, and no line that cannot be read.
    pub(crate) async fn open(dir: PathBuf, clock: Arc<dyn Clock>) -> Self {
        let file = Self { dir, clock, known: Mutex::default() };
        let size = tokio::fs::metadata(file.path()).await.map_or(0, |found| found.len());
        if size > FILE_MAX_BYTES {
            if let Err(error) = tokio::fs::remove_file(file.path()).await {
                tracing::warn!("{} is too long and could not be removed: {error}", file.path().display());
            }
            return file;
        }
        let text = tokio::fs::read_to_string(file.path()).await.unwrap_or_default();
        let oldest_ms = file.clock.now_ms().saturating_sub(KEPT_MAX_MS);
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let lines = lines.filter(|line| line.learned_at_ms >= oldest_ms && line.tokens > 0);
        let known = lines.map(|line| (line.key(), line.tokens)).collect();
        *file.lines() = known;
        file
    }

    fn path(&self) -> PathBuf {
        self.dir.join("windows.jsonl")
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn append(&self, line: &Line) -> std::io::Result<()> {
        tokio::fs::create_dir_all(&self.dir).await?;
        let text = serde_json::to_string(line)?;
        let mut options = tokio::fs::OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        let mut file = options.open(self.path()).await?;
        // One write, so that two processes do not mix their lines.
        file.write_all(format!("{text}\n").as_bytes()).await?;
        file.sync_data().await
    }
}

#[async_trait]
impl WindowKeeper for WindowFile {
    fn known(&self, model: &ModelInfo) -> Option<u64> {
        if model.context_window.is_some() && is_near_address(&model.endpoint) {
            return None;
        }
        let key = (model.provider.clone(), model.model.clone(), model.endpoint.clone());
        self.lines().get(&key).copied()
    }

    async fn keep(&self, model: &ModelInfo, tokens: u64) {
        let line = Line {
            provider: model.provider.clone(),
            model: model.model.clone(),
            endpoint: model.endpoint.clone(),
            tokens,
            learned_at_ms: self.clock.now_ms(),
        };
        self.lines().insert(line.key(), tokens);
        if let Err(error) = self.append(&line).await {
            tracing::warn!("the window of {} could not be kept: {error}", line.model);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;

    use super::*;

    struct At(i64);

    impl Clock for At {
        fn now_ms(&self) -> i64 {
            self.0
        }

        fn sleep(&self, _ms: u64) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    fn model(endpoint: &str) -> ModelInfo {
        ModelInfo {
            provider: "custom".into(),
            model: "m".into(),
            endpoint: endpoint.into(),
            api_mode: "chat_completions".into(),
            context_window: None,
            max_output_tokens: None,
        }
    }

    async fn open(dir: &tempfile::TempDir, now_ms: i64) -> WindowFile {
        WindowFile::open(dir.path().join("run"), Arc::new(At(now_ms))).await
    }

    #[tokio::test]
    async fn e43_a_window_is_known_after_a_restart_for_its_server_and_for_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let file = open(&dir, 5).await;
        assert_eq!(file.known(&model("http://a")), None);
        for tokens in [64_000, 32_768] {
            file.keep(&model("http://a"), tokens).await;
        }
        for (now_ms, want) in [(6, Some(32_768)), (5 + KEPT_MAX_MS, Some(32_768)), (6 + KEPT_MAX_MS, None)] {
            assert_eq!(open(&dir, now_ms).await.known(&model("http://a")), want, "at {now_ms}");
        }
        assert_eq!(open(&dir, 6).await.known(&model("http://b")), None);
    }

    #[tokio::test]
    async fn what_a_server_near_the_user_has_now_goes_before_what_it_had() {
        let dir = tempfile::tempdir().unwrap();
        let file = open(&dir, 5).await;
        let (near, far) = (model("http://127.0.0.1:8080"), model("https://models.example"));
        for server in [&near, &far] {
            file.keep(server, 8_192).await;
            assert_eq!(file.known(server), Some(8_192), "while nobody tells it");
        }
        let says = |model: ModelInfo| ModelInfo { context_window: Some(32_768), ..model };
        assert_eq!(file.known(&says(near)), None, "it was started with a larger window");
        assert_eq!(file.known(&says(far)), Some(8_192));
    }

    #[tokio::test]
    async fn i27_a_damaged_or_huge_file_loses_its_own_lines_only_and_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        open(&dir, 5).await.keep(&model("http://a"), 32_768).await;
        let path = dir.path().join("run/windows.jsonl");
        let good = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{{half\n\n{good}{{\"tokens\": -1}}\n")).unwrap();
        assert_eq!(open(&dir, 6).await.known(&model("http://a")), Some(32_768));
        std::fs::write(&path, vec![b'x'; usize::try_from(FILE_MAX_BYTES).unwrap() + 1]).unwrap();
        assert_eq!(open(&dir, 6).await.known(&model("http://a")), None);
        assert!(!path.exists());
    }
}
