//! A model behind a `llama-server` of our own: started with the first request, started again when it ended, and grown when
//! a conversation outgrows its window.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::chat::{ChatModel, ChatRequest, DeltaStream, ModelInfo};
use crate::error::{ErrorClass, ProviderError};
use crate::http::{HttpChatModel, HttpModelConfig};
use crate::local::managed::{LlamaError, LlamaServer, LlamaServerConfig};

/// The provider id of models that this program runs itself.
pub const LLAMA_SERVER: &str = "llama-server";
/// Most requests at once; the server has its own limit and lets others wait.
const MAX_REQUESTS: u32 = 256;
/// How long a window that should grow waits for requests under way: they would be cut.
const GROW_WAIT_MS: u64 = 30_000;

/// A model that this program runs. Its process ends with the value, or with the program in whatever way.
pub struct LlamaModel {
    info: ModelInfo,
    config: LlamaServerConfig,
    http: HttpModelConfig,
    /// Held for moves only, never over an await.
    state: Mutex<State>,
    /// One place for each request under way; who changes the server takes all.
    places: Arc<Semaphore>,
    /// Who starts the server.
    starter: Semaphore,
}

#[derive(Default)]
struct State {
    /// Out of here while somebody starts or grows it: dropped there, it ends, and the next request starts it anew.
    server: Option<LlamaServer>,
    /// The model at the server's address.
    model: Option<(String, Arc<HttpChatModel>)>,
    /// The window when it was grown.
    grown: Option<u64>,
}

impl fmt::Debug for LlamaModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlamaModel").field("info", &self.info).finish_non_exhaustive()
    }
}

impl LlamaModel {
    /// Nothing is started yet. `http` is how to speak to it: the profile, clocks, limits; its address is set by us.
    #[must_use]
    pub fn new(config: LlamaServerConfig, http: HttpModelConfig) -> Self {
        let info = ModelInfo {
            provider: LLAMA_SERVER.to_owned(),
            model: http.model.clone(),
            endpoint: String::new(),
            api_mode: http.profile.api_mode.as_str().to_owned(),
            context_window: Some(config.context),
            max_output_tokens: http.max_output_tokens,
        };
        let places = Arc::new(Semaphore::new(usize::try_from(MAX_REQUESTS).unwrap_or(1)));
        Self { info, config, http, state: Mutex::default(), places, starter: Semaphore::new(1) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The model, with its server running.
    async fn ready(&self) -> Result<Arc<HttpChatModel>, ProviderError> {
        let _one = self.starter.acquire().await;
        let known = self.state().server.take();
        let server = match known {
            Some(mut server) => server.revive().await.map(|()| server),
            None => {
                let context = self.state().grown.unwrap_or(self.config.context);
                LlamaServer::start(LlamaServerConfig { context, ..self.config.clone() }).await
            }
        };
        let server = server.map_err(|error| self.failed(&error))?;
        let address = server.base_url();
        let mut state = self.state();
        state.server = Some(server);
        if let Some((_, model)) = state.model.as_ref().filter(|(known, _)| *known == address) {
            return Ok(Arc::clone(model));
        }
        let mut http = self.http.clone();
        http.base_url = Some(address.clone());
        let model = Arc::new(HttpChatModel::new(http)?);
        state.model = Some((address, Arc::clone(&model)));
        Ok(model)
    }

    fn failed(&self, error: &LlamaError) -> ProviderError {
        let mut told = ProviderError::new(ErrorClass::Configuration, format!("{error} ({})", error.code()));
        told.route = format!("{LLAMA_SERVER}/{}", self.info.model);
        told
    }
}

/// What people call the model of a file: its name without `.gguf`.
#[must_use]
pub fn llama_model_name(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[async_trait]
impl ChatModel for LlamaModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let model = self.ready().await?;
        let deltas = model.stream(request).await?;
        // The place is kept as long as the answer is read.
        let held = deltas.map(move |delta| {
            let _place = &place;
            delta
        });
        Ok(held.boxed())
    }

    fn grown_window(&self) -> Option<u64> {
        self.state().grown
    }

    async fn grow_window(&self, wanted: u64) -> Option<u64> {
        if self.state().grown.unwrap_or(self.config.context) >= self.config.max_context {
            return None;
        }
        let all = timeout(Duration::from_millis(GROW_WAIT_MS), self.places.acquire_many(MAX_REQUESTS)).await;
        let _all = all.ok()?.ok()?;
        let server = self.state().server.take();
        let mut server = server?;
        match server.grow(wanted).await {
            Ok(context) => {
                let mut state = self.state();
                state.server = Some(server);
                state.grown = Some(context);
                Some(context)
            }
            Err(error) => {
                tracing::warn!(code = error.code(), "the window was not grown: {error}");
                // Should it not run any more, the next request starts it.
                self.state().server = Some(server);
                None
            }
        }
    }
}
