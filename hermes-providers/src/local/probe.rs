//! Finds model servers on this computer.
//!
//! All known ports are asked at once and the whole look takes at most [`PROBE_TIMEOUT_MS`]: a program that has no model
//! yet must not keep its user waiting for servers that are not there.

use std::time::Duration;

use futures::future::join_all;
use reqwest::Client;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::catalogue::{Modality, ModelFacts};
use crate::http::probe_client;
use crate::local::describe::{enrich, json_of, more_path, of_entry};

/// For the whole look, all servers together.
pub const PROBE_TIMEOUT_MS: u64 = 200;
/// Most models that are reported of one server.
const MAX_MODELS: usize = 1000;

/// Where to look. The defaults are the ports that the servers' own documentation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalPorts {
    /// Ollama.
    pub ollama: u16,
    /// LM Studio.
    pub lmstudio: u16,
    /// llama.cpp's server.
    pub llamacpp: u16,
    /// vLLM.
    pub vllm: u16,
}

impl Default for LocalPorts {
    fn default() -> Self {
        Self { ollama: 11_434, lmstudio: 1234, llamacpp: 8080, vllm: 8000 }
    }
}

/// One model of a local server. What the server does not tell is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalModel {
    /// The name to ask for.
    pub id: String,
    /// Most tokens of input and output together, as the server is set.
    pub context_window: Option<u64>,
    /// What the model was made for; the server may be set to less.
    pub trained_window: Option<u64>,
    /// Whether it can call tools.
    pub tools: Option<bool>,
    /// Whether it can see.
    pub vision: Option<bool>,
    /// Whether it can reason.
    pub reasoning: Option<bool>,
}

impl LocalModel {
    /// As the facts of a provider's own list.
    #[must_use]
    pub fn facts(&self) -> ModelFacts {
        let inputs = |vision: bool| match vision {
            true => vec![Modality::Text, Modality::Image],
            false => vec![Modality::Text],
        };
        ModelFacts {
            context_window: self.context_window,
            inputs: self.vision.map(inputs),
            reasoning: self.reasoning,
            tools: self.tools,
            ..ModelFacts::default()
        }
    }
}

/// A server that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServer {
    /// Id of the profile that fits: what the server says of itself first, its port second.
    pub provider: String,
    /// For [`HttpModelConfig::base_url`](crate::HttpModelConfig).
    pub base_url: String,
    /// What it offers, in its order; those that are loaded first where the server tells.
    pub models: Vec<LocalModel>,
}

/// Asks every port; the servers that answered in time, in the order Ollama, LM Studio, llama.cpp, vLLM.
pub async fn probe_local(ports: LocalPorts) -> Vec<LocalServer> {
    let limit = Duration::from_millis(PROBE_TIMEOUT_MS);
    let until = Instant::now() + limit;
    let Ok(client) = probe_client(limit) else { return Vec::new() };
    let places =
        [("ollama", ports.ollama), ("lmstudio", ports.lmstudio), ("llamacpp", ports.llamacpp), ("vllm", ports.vllm)];
    let looks = places.map(|(expected, port)| look(&client, expected, port, until));
    join_all(looks).await.into_iter().flatten().collect()
}

async fn look(client: &Client, expected: &str, port: u16, until: Instant) -> Option<LocalServer> {
    let root = format!("http://127.0.0.1:{port}");
    let list = timeout_at(until, json_of(client.get(format!("{root}/v1/models")))).await.ok()??;
    let entries = list.get("data")?.as_array()?;
    let provider = who(entries, expected);
    let mut models: Vec<LocalModel> = entries.iter().take(MAX_MODELS).filter_map(of_entry).collect();
    // Only some servers tell more; what does not arrive in time is not waited for.
    if let Some(path) = more_path(provider)
        && let Ok(Some(more)) = timeout_at(until, json_of(client.get(format!("{root}/{path}")))).await
    {
        enrich(&mut models, &more);
    }
    // Whoever takes the first one wants to talk to it.
    models.sort_by_key(|model| makes_vectors(&model.id));
    Some(LocalServer { provider: provider.to_owned(), base_url: format!("{root}/v1"), models })
}

/// Whether a model turns texts into vectors or ranks them, by the names that such models have: most lists do not tell.
fn makes_vectors(id: &str) -> bool {
    let id = id.to_lowercase();
    ["embed", "rerank", "minilm", "bge-"].iter().any(|part| id.contains(part))
}

/// What the server says of itself. One that says nothing known is taken for what its port stands for only when that
/// server says nothing either; else it is just some compatible server.
pub(super) fn who<'a>(entries: &[Value], expected: &'a str) -> &'a str {
    let owner = entries.iter().find_map(|entry| entry.get("owned_by")?.as_str()).unwrap_or_default();
    match owner {
        "library" => "ollama",
        "llamacpp" => "llamacpp",
        "vllm" => "vllm",
        "organization_owner" | "lmstudio" => "lmstudio",
        _ if entries.is_empty() || matches!(expected, "ollama" | "lmstudio") => expected,
        _ => "custom",
    }
}
