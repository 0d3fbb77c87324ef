//! Windows that providers named when they refused a request as too long.
//!
//! Such a word is believed only downwards: a refused request proves that the window is not larger than was thought. It is
//! kept before the request is made again, so that another process, and the next start, need no refusal of their own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use hermes_providers::ModelInfo;

use crate::limits::KNOWN_WINDOWS_MAX;

/// Keeps what was learned of windows beyond this engine.
#[async_trait]
pub trait WindowKeeper: Send + Sync {
    /// What is kept of a model, in tokens. Asked often: it must neither wait nor read a file.
    fn known(&self, model: &ModelInfo) -> Option<u64>;

    /// Keeps a window. A failure is the keeper's own affair: the engine knows the window all the same.
    async fn keep(&self, model: &ModelInfo, tokens: u64);
}

/// Keeps nothing: what was learned ends with the engine.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWindows;

#[async_trait]
impl WindowKeeper for NoWindows {
    fn known(&self, _model: &ModelInfo) -> Option<u64> {
        None
    }

    async fn keep(&self, _model: &ModelInfo, _tokens: u64) {}
}

/// Provider, model, endpoint: a local server may give the same model another window.
type Key = (String, String, String);

/// What is known of windows.
pub(crate) struct Windows {
    keeper: Arc<dyn WindowKeeper>,
    /// Learned by this engine. Held for map operations only, never over an await.
    learned: Mutex<HashMap<Key, u64>>,
}

impl Windows {
    pub(crate) fn new(keeper: Arc<dyn WindowKeeper>) -> Self {
        Self { keeper, learned: Mutex::default() }
    }

    fn learned(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A model's window in tokens: the smallest that anybody named.
    pub(crate) fn of(&self, model: &ModelInfo) -> Option<u64> {
        let learned = self.learned().get(&key(model)).copied();
        [learned, self.keeper.known(model), model.context_window].into_iter().flatten().min()
    }

    /// Remembers what a provider said, and keeps it.
    pub(crate) async fn learn(&self, model: &ModelInfo, tokens: u64) {
        if tokens == 0 || self.of(model).is_some_and(|known| known <= tokens) {
            return;
        }
        {
            let mut learned = self.learned();
            if learned.len() >= KNOWN_WINDOWS_MAX {
                learned.clear();
            }
            learned.insert(key(model), tokens);
        }
        self.keeper.keep(model, tokens).await;
    }
}

fn key(model: &ModelInfo) -> Key {
    (model.provider.clone(), model.model.clone(), model.endpoint.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[derive(Default)]
    struct Kept(Mutex<Vec<(String, u64)>>);

    #[async_trait]
    impl WindowKeeper for Kept {
        fn known(&self, model: &ModelInfo) -> Option<u64> {
            (model.model == "kept").then_some(8_000)
        }

        async fn keep(&self, model: &ModelInfo, tokens: u64) {
            self.0.lock().unwrap().push((model.model.clone(), tokens));
        }
    }

    fn info(model: &str, endpoint: &str, window: Option<u64>) -> ModelInfo {
        ModelInfo {
            provider: "p".into(),
            model: model.into(),
            endpoint: endpoint.into(),
            api_mode: "chat_completions".into(),
            context_window: window,
            max_output_tokens: None,
        }
    }

    #[test]
    fn e43_a_window_is_believed_downwards_only_and_kept_once() {
        let kept = Arc::new(Kept::default());
        let windows = Windows::new(kept.clone());
        let here = info("m", "http://a", Some(128_000));
        for (said, want) in [(0, 128_000), (200_000, 128_000), (32_768, 32_768), (64_000, 32_768), (32_768, 32_768)] {
            windows.learn(&here, said).now_or_never().unwrap();
            assert_eq!(windows.of(&here), Some(want), "after {said}");
        }
        assert_eq!(*kept.0.lock().unwrap(), [("m".to_owned(), 32_768)]);
        assert_eq!(windows.of(&info("m", "http://b", None)), None, "another server is another window");
    }

    #[test]
    fn what_was_kept_earlier_counts_where_it_is_smaller() {
        let windows = Windows::new(Arc::new(Kept::default()));
        for (window, want) in [(None, 8_000), (Some(4_000), 4_000), (Some(128_000), 8_000)] {
            assert_eq!(windows.of(&info("kept", "", window)), Some(want));
        }
    }
}
