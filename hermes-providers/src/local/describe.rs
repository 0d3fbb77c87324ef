//! What a local server says of one model: how much of its window is really there, whether it sees, calls tools, reasons.
//!
//! Pages: `docs.ollama.com/api` (`/api/show`, `/api/ps`), `lmstudio.ai/docs/developer/rest` (`/api/v0/models`), llama.cpp's
//! `tools/server/README.md` (`/props`), `docs.vllm.ai` (`max_model_len` in `/v1/models`). The window that a server was set
//! to is another number than the one that the model was made for, and only the first one counts: what does not fit into it is
//! refused, or worse, silently forgotten.

use std::time::Duration;

use reqwest::{Client, RequestBuilder};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::http::probe_client;
use crate::local::probe::{LocalModel, who};
use crate::percent;

/// For one description, all its questions together.
pub const DESCRIBE_TIMEOUT_MS: u64 = 2000;
/// Largest answer that is read.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// Asks a server on the user's own computer or network at `base_url` for one model. `provider` is who it should be
/// (`ollama`, `lmstudio`, `llamacpp`, `vllm`); any other name is looked at for what the server says of itself. A server that
/// wants a key is shown the one that requests to it carry anyway.
///
/// `None` when nobody answers in time, or the server does not know the model.
pub async fn describe_local(
    provider: &str,
    base_url: &str,
    model: &str,
    key: Option<&SecretString>,
) -> Option<LocalModel> {
    let limit = Duration::from_millis(DESCRIBE_TIMEOUT_MS);
    let client = Asking { client: probe_client(limit).ok()?, key };
    let root = base_url.trim_end_matches('/');
    let root = root.strip_suffix("/v1").unwrap_or(root);
    let described = async {
        match provider {
            "ollama" => ollama(&client, root, model).await,
            provider => listed(&client, root, provider, model).await,
        }
    };
    timeout(limit, described).await.ok()?
}

/// The answer as JSON, when it is one and a success.
pub(super) async fn json_of(request: RequestBuilder) -> Option<Value> {
    let mut response = request.send().await.ok().filter(|response| response.status().is_success())?;
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.ok()? {
        if body.len() + bytes.len() > MAX_ANSWER_BYTES {
            return None;
        }
        body.extend_from_slice(&bytes);
    }
    serde_json::from_slice(&body).ok()
}

/// Who asks: the client, and the key of the server.
struct Asking<'k> {
    client: Client,
    key: Option<&'k SecretString>,
}

impl Asking<'_> {
    fn with_key(&self, request: RequestBuilder) -> RequestBuilder {
        match self.key {
            Some(key) => request.bearer_auth(key.expose_secret()),
            None => request,
        }
    }

    fn get(&self, url: String) -> RequestBuilder {
        self.with_key(self.client.get(url))
    }

    fn post(&self, url: String) -> RequestBuilder {
        self.with_key(self.client.post(url))
    }
}

async fn ollama(client: &Asking<'_>, root: &str, model: &str) -> Option<LocalModel> {
    let shown = json_of(client.post(format!("{root}/api/show")).json_body(&json!({ "model": model }))).await?;
    let mut found = of_show(model, &shown);
    if let Some(running) = json_of(client.get(format!("{root}/api/ps"))).await {
        // What is loaded now tells more than what the model's file asks for.
        found.context_window = loaded_window(&running, model).or(found.context_window);
    }
    Some(found)
}

async fn listed(client: &Asking<'_>, root: &str, provider: &str, model: &str) -> Option<LocalModel> {
    let list = json_of(client.get(format!("{root}/v1/models"))).await?;
    let entries = list.get("data")?.as_array()?;
    let provider = who(entries, provider);
    if provider == "ollama" {
        return ollama(client, root, model).await;
    }
    let mut models: Vec<LocalModel> = entries.iter().filter_map(of_entry).collect();
    if let Some(path) = more_path(provider)
        && let Some(more) = json_of(client.get(format!("{root}/{path}"))).await
    {
        if is_router(&more) {
            return routed(client, root, models, model).await;
        }
        enrich(&mut models, &more);
    }
    models.into_iter().find(|found| found.id == model)
}

/// One of the models behind a llama.cpp router, which answers for each by itself. One that is not loaded is not loaded for
/// this: how large its window will be is not known then.
async fn routed(client: &Asking<'_>, root: &str, models: Vec<LocalModel>, model: &str) -> Option<LocalModel> {
    let found = models.into_iter().find(|found| found.id == model)?;
    let name = percent::encode(model);
    let props = json_of(client.get(format!("{root}/props?model={name}&autoload=false"))).await;
    let mut one = vec![found];
    if let Some(props) = props {
        enrich(&mut one, &props);
    }
    one.pop()
}

/// What the one model of a llama.cpp server has, from its `/props`. Nothing when it does not tell.
#[cfg(unix)]
pub(super) async fn served_at(client: &Client, root: &str) -> LocalModel {
    let limit = Duration::from_millis(DESCRIBE_TIMEOUT_MS);
    let props = timeout(limit, json_of(client.get(format!("{root}/props")))).await.ok().flatten();
    let mut one = vec![LocalModel::default()];
    enrich(&mut one, &props.unwrap_or_default());
    one.pop().unwrap_or_default()
}

/// A llama.cpp server without a model of its own.
pub(super) fn is_router(props: &Value) -> bool {
    props.get("role").and_then(Value::as_str) == Some("router")
}

/// Where a server tells more than the list.
pub(super) fn more_path(provider: &str) -> Option<&'static str> {
    match provider {
        "llamacpp" => Some("props"),
        "lmstudio" => Some("api/v0/models"),
        "ollama" => Some("api/ps"),
        _ => None,
    }
}

/// One entry of `/v1/models`.
pub(super) fn of_entry(entry: &Value) -> Option<LocalModel> {
    let id = entry.get("id")?.as_str()?.to_owned();
    let window = ["max_model_len", "context_length", "max_context_length"];
    let trained_window = entry.pointer("/meta/n_ctx_train").and_then(Value::as_u64);
    let set = window.into_iter().find_map(|key| entry.get(key)?.as_u64());
    // Newer llama.cpp servers say here what they were set to.
    let context_window = set.or_else(|| entry.pointer("/meta/n_ctx").and_then(Value::as_u64));
    let context_window = context_window.filter(|tokens| *tokens > 0);
    Some(LocalModel { id, context_window, trained_window, ..LocalModel::default() })
}

/// Adds what `/props` (llama.cpp), `/api/v0/models` (LM Studio) or `/api/ps` (Ollama) tells.
pub(super) fn enrich(models: &mut Vec<LocalModel>, more: &Value) {
    if is_router(more) {
        return;
    }
    if let Some(window) = more.pointer("/default_generation_settings/n_ctx").and_then(Value::as_u64) {
        let flag = |place: &str| more.pointer(place).and_then(Value::as_bool);
        for model in models {
            model.context_window = Some(window).filter(|tokens| *tokens > 0).or(model.context_window);
            model.vision = flag("/modalities/vision");
            model.tools = flag("/chat_template_caps/supports_tools");
        }
        return;
    }
    if more.get("models").is_some() {
        for model in models.iter_mut() {
            model.context_window = loaded_window(more, &model.id).or(model.context_window);
        }
        models.sort_by_key(|model| loaded_window(more, &model.id).is_none());
        return;
    }
    let entries = more.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let entry_of = |id: &str| entries.iter().find(|entry| entry.get("id").and_then(Value::as_str) == Some(id));
    for model in models.iter_mut() {
        if let Some(entry) = entry_of(&model.id) {
            of_lmstudio(model, entry);
        }
    }
    let word = |model: &LocalModel, key: &str| entry_of(&model.id).and_then(|entry| entry.get(key)?.as_str());
    // Models that cannot chat are of no use here.
    models.retain(|model| word(model, "type") != Some("embeddings"));
    models.sort_by_key(|model| word(model, "state") != Some("loaded"));
}

fn of_lmstudio(model: &mut LocalModel, entry: &Value) {
    let number = |key: &str| entry.get(key).and_then(Value::as_u64);
    model.trained_window = number("max_context_length");
    // One that is not loaded is loaded with a setting that nobody tells.
    model.context_window = number("loaded_context_length").or(model.context_window);
    model.vision = entry.get("type").and_then(Value::as_str).map(|kind| kind == "vlm");
    model.tools = entry.get("capabilities").and_then(Value::as_array).map(|words| has(words, "tool_use"));
}

/// `/api/show` of Ollama.
fn of_show(model: &str, shown: &Value) -> LocalModel {
    let info = shown.get("model_info").and_then(Value::as_object);
    let trained_window = info.and_then(|info| {
        info.iter().find(|(name, _)| name.ends_with(".context_length")).and_then(|(_, value)| value.as_u64())
    });
    // Lines like `num_ctx    8192`.
    let parameters = shown.get("parameters").and_then(Value::as_str).unwrap_or_default();
    let mut set = parameters.lines().filter_map(|line| line.trim().strip_prefix("num_ctx"));
    let context_window = set.next().and_then(|number| number.trim().parse().ok());
    let capabilities = shown.get("capabilities").and_then(Value::as_array);
    let can = |word: &str| capabilities.map(|words| has(words, word));
    LocalModel {
        id: model.to_owned(),
        context_window,
        trained_window,
        tools: can("tools"),
        vision: can("vision"),
        reasoning: can("thinking"),
    }
}

/// The window of a loaded model in `/api/ps` of Ollama.
fn loaded_window(running: &Value, model: &str) -> Option<u64> {
    let is_it = |entry: &&Value| {
        let name = |key: &str| entry.get(key).and_then(Value::as_str);
        [name("model"), name("name")]
            .into_iter()
            .flatten()
            .any(|name| name == model || name == format!("{model}:latest"))
    };
    running.get("models")?.as_array()?.iter().find(is_it)?.get("context_length")?.as_u64()
}

fn has(words: &[Value], wanted: &str) -> bool {
    words.iter().any(|word| word.as_str() == Some(wanted))
}

/// A JSON body without the client library's own feature for it.
trait JsonBody {
    fn json_body(self, value: &Value) -> Self;
}

impl JsonBody for RequestBuilder {
    fn json_body(self, value: &Value) -> Self {
        self.header(reqwest::header::CONTENT_TYPE, "application/json").body(value.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_s_window_is_the_one_that_is_set_and_not_the_one_of_training() {
        let shown = json!({
            "parameters": "stop \"<|x|>\"\nnum_ctx                        8192\ntemperature 1",
            "model_info": {"general.architecture": "llama", "llama.context_length": 131_072},
            "capabilities": ["completion", "tools"],
        });
        let found = of_show("m", &shown);
        assert_eq!((found.context_window, found.trained_window), (Some(8192), Some(131_072)));
        assert_eq!((found.tools, found.vision, found.reasoning), (Some(true), Some(false), Some(false)));
        let silent = of_show("m", &json!({"model_info": {"llama.context_length": 131_072}}));
        assert_eq!((silent.context_window, silent.tools), (None, None), "what is not set is not known");
    }

    #[test]
    fn llama_cpp_tells_window_sight_and_tools_in_its_properties() {
        let mut models = vec![of_entry(&json!({"id": "a", "meta": {"n_ctx_train": 8192}})).unwrap()];
        assert_eq!(models[0].context_window, None, "what it was made for is not what it is set to");
        let newer = of_entry(&json!({"id": "a", "meta": {"n_ctx_train": 8192, "n_ctx": 2048}})).unwrap();
        assert_eq!(newer.context_window, Some(2048));
        let props = json!({"default_generation_settings": {"n_ctx": 4096}, "modalities": {"vision": true},
                           "chat_template_caps": {"supports_tools": false}});
        enrich(&mut models, &props);
        assert_eq!((models[0].context_window, models[0].trained_window), (Some(4096), Some(8192)));
        assert_eq!((models[0].vision, models[0].tools), (Some(true), Some(false)));
        let router = json!({"role": "router", "default_generation_settings": {"n_ctx": 0}});
        enrich(&mut models, &router);
        assert_eq!(models[0].context_window, Some(4096), "a router has no window of its own");
        enrich(&mut models, &json!({"default_generation_settings": {"n_ctx": 0}}));
        assert_eq!(models[0].context_window, Some(4096), "none is no window");
    }

    #[test]
    fn lm_studio_tells_what_is_loaded() {
        let mut models: Vec<LocalModel> =
            ["e", "a", "b"].iter().filter_map(|id| of_entry(&json!({ "id": id }))).collect();
        let more = json!({"data": [
            {"id": "e", "type": "embeddings"},
            {"id": "a", "type": "llm", "max_context_length": 100_000, "capabilities": []},
            {"id": "b", "type": "vlm", "state": "loaded", "loaded_context_length": 9000, "max_context_length": 100_000,
             "capabilities": ["tool_use"]},
        ]});
        enrich(&mut models, &more);
        let told: Vec<_> = models.iter().map(|m| (m.id.as_str(), m.context_window, m.vision, m.tools)).collect();
        assert_eq!(told, [("b", Some(9000), Some(true), Some(true)), ("a", None, Some(false), Some(false))]);
        assert_eq!(models[1].trained_window, Some(100_000));
    }

    #[test]
    fn a_loaded_model_of_ollama_tells_its_window() {
        let running = json!({"models": [{"name": "m:latest", "model": "m:latest", "context_length": 4096}]});
        assert_eq!(loaded_window(&running, "m"), Some(4096));
        assert_eq!(loaded_window(&running, "other"), None);
    }
}
