//! Holds conversations that are given as JSON, on any wire with any server, and writes down what came back.
//!
//! Reads one conversation from each line of its input and writes one JSON list for each: every answer, or the error that
//! ended it. Calls of tools get the results that the conversation names, and the model is asked on.
//!
//! ```text
//! echo '{"provider":"custom","base_url":"http://127.0.0.1:8080/v1","model":"any","asks":["Hello?"]}' \
//!     | cargo run -p hermes-providers --example wires
//! ```

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::sync::Arc;

use futures::StreamExt as _;
use hermes_providers::aws::{AwsCredentials, AwsEnvKeys, AwsSources};
use hermes_providers::{
    ApiMode, ChatMessage, ChatModel, ChatRequest, Completion, Delta, HttpChatModel, HttpModelConfig, Profiles,
    ProviderError, ToolCall, ToolSchema,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Most rounds of calls behind one question.
const ROUNDS_MAX: usize = 8;

/// One conversation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Conversation {
    provider: String,
    base_url: String,
    model: String,
    asks: Vec<String>,
    /// The wire; without it, what the profile says.
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    key: Option<String>,
    /// Signs with these instead of sending a key.
    #[serde(default)]
    aws: Option<AwsKeys>,
    #[serde(default = "yes")]
    stream: bool,
    #[serde(default)]
    system: String,
    #[serde(default)]
    tools: Vec<ToolSchema>,
    /// What each tool answers, by its name.
    #[serde(default)]
    results: BTreeMap<String, String>,
    #[serde(default)]
    effort: Option<String>,
    #[serde(default)]
    max_output_tokens: Option<u64>,
    /// Marks the history for a prompt cache.
    #[serde(default)]
    caches: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AwsKeys {
    access_key_id: String,
    secret_access_key: String,
    region: String,
}

fn yes() -> bool {
    true
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in std::io::stdin().lock().lines() {
        let conversation: Conversation = serde_json::from_str(&line?)?;
        println!("{}", Value::Array(hold(&conversation).await?));
    }
    Ok(())
}

/// Every answer, as JSON.
async fn hold(conversation: &Conversation) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let model = model(conversation)?;
    let mut request = ChatRequest {
        system: conversation.system.clone().into(),
        tools: conversation.tools.clone().into(),
        max_output_tokens: conversation.max_output_tokens,
        reasoning_effort: conversation.effort.clone(),
        stream: conversation.stream,
        ..ChatRequest::new(Vec::new())
    };
    let mut told = Vec::new();
    for ask in &conversation.asks {
        request.messages.push(ChatMessage::user(ask.as_str()));
        for _ in 0..ROUNDS_MAX {
            if conversation.caches {
                request.cache_ends = vec![request.messages.len() - 1];
            }
            let mut deltas = Deltas::default();
            let done = match answer(&model, &request, &mut deltas).await {
                Ok(done) => done,
                Err(error) => {
                    told.push(of_error(&error, &deltas));
                    return Ok(told);
                }
            };
            told.push(of_completion(&done, &deltas));
            let is_last = done.calls.is_empty();
            extend(&mut request.messages, done, conversation);
            if is_last {
                break;
            }
        }
    }
    Ok(told)
}

fn model(conversation: &Conversation) -> Result<HttpChatModel, Box<dyn std::error::Error>> {
    let profile = Profiles::bundled()?.get(&conversation.provider).cloned().ok_or("no such provider")?;
    let mut config = HttpModelConfig::new(profile, conversation.model.as_str());
    config.base_url = Some(conversation.base_url.clone());
    config.api_mode = match &conversation.mode {
        Some(mode) => Some(ApiMode::named(mode).ok_or("no such wire")?),
        None => None,
    };
    config.key = conversation.key.clone().map(Into::into);
    if let Some(keys) = &conversation.aws {
        config.credentials = Some(Arc::new(AwsCredentials::new(AwsSources {
            keys: Some(AwsEnvKeys {
                access_key_id: keys.access_key_id.clone(),
                secret_access_key: keys.secret_access_key.clone().into(),
                session_token: None,
            }),
            region: Some(keys.region.clone()),
            runtime_url: Some(conversation.base_url.clone()),
            ..AwsSources::default()
        })));
    }
    Ok(HttpChatModel::new(config)?)
}

/// What came before the end.
#[derive(Debug, Default)]
struct Deltas {
    text: String,
    reasoning: String,
    count: usize,
}

async fn answer(
    model: &HttpChatModel,
    request: &ChatRequest,
    deltas: &mut Deltas,
) -> Result<Completion, ProviderError> {
    let mut stream = model.stream(request).await?;
    let mut end = None;
    while let Some(delta) = stream.next().await {
        match delta? {
            Delta::Text(more) => deltas.text.push_str(&more),
            Delta::Reasoning(more) => deltas.reasoning.push_str(&more),
            Delta::Done(done) => {
                end = Some(*done);
                continue;
            }
            _ => {}
        }
        deltas.count += 1;
    }
    // The contract of a stream: exactly one end.
    end.ok_or_else(|| ProviderError::new(hermes_providers::ErrorClass::Incomplete, "the stream had no end"))
}

/// The answer, and a result for each of its calls.
fn extend(messages: &mut Vec<ChatMessage>, done: Completion, conversation: &Conversation) {
    let nth = messages.len();
    let calls: Vec<ToolCall> = done
        .calls
        .into_iter()
        .enumerate()
        .map(|(at, call)| {
            let id = call.id.unwrap_or_else(|| format!("call_{nth}_{at}"));
            ToolCall { id, name: call.name, arguments: call.arguments }
        })
        .collect();
    let results = calls.iter().map(|call| ChatMessage::Tool {
        call_id: call.id.clone(),
        name: call.name.clone(),
        content: conversation.results.get(&call.name).cloned().unwrap_or_default(),
        is_error: false,
        images: Vec::new(),
    });
    let results: Vec<ChatMessage> = results.collect();
    let (text, reasoning, sidecar) = (done.text, done.reasoning, done.sidecar);
    messages.push(ChatMessage::Assistant { text, reasoning, sidecar, calls });
    messages.extend(results);
}

fn of_completion(done: &Completion, deltas: &Deltas) -> Value {
    let calls = done
        .calls
        .iter()
        .map(|call| json!({"id": call.id, "name": call.name, "arguments": call.arguments, "whole": call.whole}));
    json!({
        "text": done.text,
        "reasoning": done.reasoning,
        "calls": calls.collect::<Vec<_>>(),
        "finish": done.finish,
        "finish_missing": done.finish_missing,
        "usage": done.usage,
        "served_model": done.served_model,
        "sidecar": done.sidecar.as_ref().map(|sidecar| String::from_utf8_lossy(&sidecar.bytes)),
        "deltas": deltas.count,
        "streamed_text": deltas.text,
        "streamed_reasoning": deltas.reasoning,
    })
}

fn of_error(error: &ProviderError, deltas: &Deltas) -> Value {
    json!({"error": {
        "class": error.class,
        "message": error.message,
        "status": error.status,
        "code": error.code,
        "retry_after_ms": error.retry_after_ms,
        "streamed_text": deltas.text,
    }})
}
