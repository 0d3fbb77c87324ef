//! A model of the server that this program runs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;

use super::config::LlamaError;
use super::runtime::LlamaRuntime;
use super::worker::{Served, Unready};
use crate::chat::{ChatModel, ChatRequest, DeltaStream, ModelInfo, OwnWindow};
use crate::error::{ErrorClass, ProviderError};
use crate::http::{HttpChatModel, HttpModelConfig};

/// The provider id of models that this program runs itself.
pub const LLAMA_SERVER: &str = "llama-server";

/// A model that this program runs. Several may share one [`LlamaRuntime`].
pub struct LlamaModel {
    info: ModelInfo,
    runtime: Arc<LlamaRuntime>,
    http: HttpModelConfig,
    /// The model at the address of a start. Held for moves only, never over an await.
    at: Mutex<Option<(u64, Arc<HttpChatModel>)>>,
}

impl fmt::Debug for LlamaModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlamaModel").field("info", &self.info).finish_non_exhaustive()
    }
}

impl LlamaModel {
    /// Nothing is started yet. `http` is how to speak to it: the profile, clocks, limits; address and transport are the
    /// server's own.
    #[must_use]
    pub fn new(runtime: Arc<LlamaRuntime>, http: HttpModelConfig) -> Self {
        let info = ModelInfo {
            provider: http.profile.id.clone(),
            model: http.model.clone(),
            endpoint: String::new(),
            api_mode: http.profile.api_mode.as_str().to_owned(),
            context_window: Some(runtime.config().context),
            max_output_tokens: http.max_output_tokens,
        };
        Self { info, runtime, http, at: Mutex::default() }
    }

    fn at(&self) -> MutexGuard<'_, Option<(u64, Arc<HttpChatModel>)>> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The model where the server is now. Each start has a transport of its own: what was learned of a host that is gone
    /// does not count, and no proxy is asked for the way to this computer.
    fn model_of(&self, served: &Served) -> Result<Arc<HttpChatModel>, ProviderError> {
        if let Some((_, model)) = self.at().as_ref().filter(|(number, _)| *number == served.number) {
            return Ok(Arc::clone(model));
        }
        let mut http = self.http.clone();
        http.base_url = Some(served.base_url.clone());
        http.sees_images = served.sees_images.or(http.sees_images);
        http.transport = None;
        let model = Arc::new(HttpChatModel::new(http)?);
        *self.at() = Some((served.number, Arc::clone(&model)));
        Ok(model)
    }

    fn route(&self) -> String {
        format!("{}/{}", self.info.provider, self.info.model)
    }

    fn error(&self, class: ErrorClass, error: &LlamaError) -> ProviderError {
        let mut told = ProviderError::new(class, format!("{error} ({})", error.code()));
        told.route = self.route();
        told
    }

    /// One that has run before may run again; one that never did is set up wrong.
    fn unready(&self, unready: &Unready) -> ProviderError {
        let class = if unready.has_run { ErrorClass::ServerError } else { ErrorClass::Configuration };
        let mut told = self.error(class, &unready.error);
        told.retry_after_ms = unready.rest.map(millis_up).filter(|_| unready.has_run);
        told
    }
}

/// Rounded up: whoever waits so long does not come too early.
fn millis_up(rest: Duration) -> u64 {
    u64::try_from(rest.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Says with a failure what it says about the server.
async fn explained(runtime: &LlamaRuntime, number: u64, mut error: ProviderError) -> ProviderError {
    if let Some(window) = error.context_limit {
        runtime.refused_above(window);
    }
    let is_lost = matches!(error.class, ErrorClass::Incomplete | ErrorClass::Timeout | ErrorClass::BadResponse);
    if is_lost && let Some(why) = runtime.why_ended(number).await {
        error.message.push_str(&format!("; {why} ({})", why.code()));
    }
    error
}

#[async_trait]
impl ChatModel for LlamaModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        let place = self.runtime.place().await.map_err(|error| self.error(ErrorClass::Configuration, &error))?;
        let served = self.runtime.ready().await.map_err(|unready| self.unready(&unready))?;
        let number = served.number;
        let deltas = match self.model_of(&served)?.stream(request).await {
            Ok(deltas) => deltas,
            Err(error) => return Err(explained(&self.runtime, number, error).await),
        };
        let runtime = Arc::clone(&self.runtime);
        let held = deltas.then(move |delta| {
            // The place is kept as long as the answer is read.
            let _place = &place;
            let runtime = Arc::clone(&runtime);
            async move {
                match delta {
                    Err(error) => Err(explained(&runtime, number, error).await),
                    delta => delta,
                }
            }
        });
        Ok(held.boxed())
    }

    fn own_window(&self) -> Option<OwnWindow> {
        Some(self.runtime.window())
    }

    async fn grow_window(&self, from: u64, wanted: u64) -> Result<u64, ProviderError> {
        let grown = self.runtime.grow(from, wanted).await;
        grown.map_err(|error| self.error(ErrorClass::Configuration, &error))
    }
}
