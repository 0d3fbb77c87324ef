//! Finds model servers on this computer.
//!
//! All known ports are asked at once and the whole look takes at most [`PROBE_TIMEOUT_MS`]: a program that has no model
//! yet must not keep its user waiting for servers that are not there.

use std::time::Duration;

use futures::future::join_all;
use reqwest::Client;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::http::probe_client;

/// For the whole look, all servers together.
pub const PROBE_TIMEOUT_MS: u64 = 200;
/// Largest answer that is read.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
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

/// One model of a local server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalModel {
    /// The name to ask for.
    pub id: String,
    /// Most tokens of input and output together, when the server tells.
    pub context_window: Option<u64>,
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
    let list = timeout_at(until, get(client, &format!("{root}/v1/models"))).await.ok()??;
    let entries = list.get("data")?.as_array()?;
    let provider = who(entries, expected);
    let mut models: Vec<LocalModel> = entries.iter().take(MAX_MODELS).filter_map(model).collect();
    // Only some servers tell more; what does not arrive in time is not waited for.
    let extra = match provider {
        "llamacpp" => Some("props"),
        "lmstudio" => Some("api/v0/models"),
        _ => None,
    };
    if let Some(path) = extra
        && let Ok(Some(more)) = timeout_at(until, get(client, &format!("{root}/{path}"))).await
    {
        enrich(&mut models, &more);
    }
    Some(LocalServer { provider: provider.to_owned(), base_url: format!("{root}/v1"), models })
}

async fn get(client: &Client, url: &str) -> Option<Value> {
    let mut response = client.get(url).send().await.ok().filter(|response| response.status().is_success())?;
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.ok()? {
        if body.len() + bytes.len() > MAX_ANSWER_BYTES {
            return None;
        }
        body.extend_from_slice(&bytes);
    }
    serde_json::from_slice(&body).ok()
}

/// What the server says of itself. One that says nothing known is taken for what its port stands for only when that
/// server says nothing either; else it is just some compatible server.
fn who<'a>(entries: &[Value], expected: &'a str) -> &'a str {
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

fn model(entry: &Value) -> Option<LocalModel> {
    let id = entry.get("id")?.as_str()?.to_owned();
    let window = ["max_model_len", "context_length", "max_context_length"];
    let window = window.into_iter().find_map(|key| entry.get(key)?.as_u64());
    // What a llama.cpp model was trained with; the server's own setting may replace it below.
    let trained = || entry.pointer("/meta/n_ctx_train")?.as_u64();
    Some(LocalModel { id, context_window: window.or_else(trained) })
}

/// llama.cpp tells its window in `/props`, LM Studio the windows and what is loaded in `/api/v0/models`.
fn enrich(models: &mut Vec<LocalModel>, more: &Value) {
    if let Some(window) = more.pointer("/default_generation_settings/n_ctx").and_then(Value::as_u64) {
        models.iter_mut().for_each(|model| model.context_window = Some(window));
        return;
    }
    let entries = more.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let entry_of = |model: &LocalModel| {
        entries.iter().find(|entry| entry.get("id").and_then(Value::as_str) == Some(model.id.as_str()))
    };
    let number = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_u64);
    for model in models.iter_mut() {
        if let Some(entry) = entry_of(model) {
            let window = number(entry, "loaded_context_length").or_else(|| number(entry, "max_context_length"));
            model.context_window = window.or(model.context_window);
        }
    }
    let word = |model: &LocalModel, key: &str| entry_of(model).and_then(|entry| entry.get(key)?.as_str());
    // Models that cannot chat are of no use here.
    models.retain(|model| word(model, "type") != Some("embeddings"));
    models.sort_by_key(|model| word(model, "state") != Some("loaded"));
}
