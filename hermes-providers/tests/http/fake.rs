//! The fake server, asked by this crate's own client: what is meant arrives, on every wire, as a stream and whole.
//!
//! That the makers' own clients read the same is what `cargo xtask judge providers sdks` shows.

use std::sync::Arc;

use futures::StreamExt as _;
use hermes_providers::aws::{AwsCredentials, AwsEnvKeys, AwsSources};
use hermes_providers::fake::{FakeAnswer, FakeErrorKind, FakeFinish, FakeScript, FakeServer};
use hermes_providers::{
    ApiMode, ChatMessage, ChatModel, ChatRequest, Completion, Delta, ErrorClass, Finish, HttpChatModel,
    HttpModelConfig, Profiles, ProviderError, ToolCall, ToolSchema, Usage,
};
use serde_json::json;

use crate::server::request;

/// What the judges ask, too.
fn script() -> FakeScript {
    serde_json::from_str(include_str!("../fake.json")).unwrap()
}

/// A model on this wire, by the profile of the maker whose wire it is.
fn model(mode: ApiMode, server: &FakeServer) -> HttpChatModel {
    let (profile, model, path) = match mode {
        ApiMode::ChatCompletions => ("deepseek", "deepseek-reasoner", "/v1"),
        ApiMode::Responses => ("openai", "gpt-5-mini", "/v1"),
        ApiMode::AnthropicMessages => ("anthropic", "claude-sonnet-4-6", ""),
        ApiMode::Gemini => ("gemini", "gemini-3-pro-preview", "/v1beta"),
        ApiMode::BedrockConverse => ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", ""),
        other => panic!("no profile for {other:?}"),
    };
    let mut config = HttpModelConfig::new(Profiles::bundled().unwrap().get(profile).unwrap().clone(), model);
    config.base_url = Some(format!("{}{path}", server.base_url()));
    config.api_mode = Some(mode);
    if mode == ApiMode::BedrockConverse {
        config.credentials = Some(Arc::new(AwsCredentials::new(AwsSources {
            keys: Some(AwsEnvKeys {
                access_key_id: "AKTEST".into(),
                secret_access_key: "secret".to_owned().into(),
                session_token: None,
            }),
            region: Some("eu-west-1".into()),
            runtime_url: config.base_url.clone(),
            ..AwsSources::default()
        })));
    } else {
        config.key = Some("any-key".to_owned().into());
    }
    HttpChatModel::new(config).unwrap()
}

fn weather() -> Vec<ToolSchema> {
    let tool = |name: &str| ToolSchema {
        name: name.to_owned(),
        description: format!("Tells {name}."),
        parameters: json!({"type": "object", "properties": {"city": {"type": "string"}}}),
    };
    ["weather", "now"].map(tool).into()
}

/// One answer: the text that streamed, and the end.
async fn answer(model: &HttpChatModel, request: &ChatRequest) -> (String, Result<Completion, ProviderError>) {
    let mut text = String::new();
    let mut stream = match model.stream(request).await {
        Ok(stream) => stream,
        Err(error) => return (text, Err(error)),
    };
    let mut end = None;
    while let Some(delta) = stream.next().await {
        assert!(end.is_none(), "something came behind the end");
        match delta {
            Ok(Delta::Text(more)) => text.push_str(&more),
            Ok(Delta::Done(done)) => end = Some(Ok(*done)),
            Ok(_) => {}
            Err(error) => end = Some(Err(error)),
        }
    }
    (text, end.unwrap())
}

/// The usage as this wire can tell it.
fn told(mode: ApiMode, meant: &Usage) -> Usage {
    let zero = |count: Option<u64>| Some(count.unwrap_or(0));
    let usage = Usage { output: zero(meant.output), input_uncached: zero(meant.input_uncached), ..*meant };
    let cached = Usage { cache_read: zero(meant.cache_read), cache_write: zero(meant.cache_write), ..usage };
    match mode {
        ApiMode::ChatCompletions | ApiMode::Responses => Usage { reasoning: zero(meant.reasoning), ..cached },
        ApiMode::AnthropicMessages => cached,
        ApiMode::BedrockConverse => Usage { reasoning: None, ..cached },
        _ => usage,
    }
}

#[track_caller]
fn check(mode: ApiMode, asked: &str, meant: &FakeAnswer, done: &Completion) {
    let place = format!("{mode:?}, {asked:?}");
    assert_eq!(done.text, meant.text, "{place}");
    assert_eq!(done.reasoning.as_deref().unwrap_or_default(), meant.reasoning, "{place}");
    let finish = match meant.finish {
        FakeFinish::Whole if meant.calls.is_empty() => Finish::Stop,
        FakeFinish::Whole => Finish::ToolCalls,
        FakeFinish::Length => Finish::Length,
        _ => Finish::ContentFilter,
    };
    assert_eq!((&done.finish, done.finish_missing), (&finish, false), "{place}");
    let calls: Vec<ToolCall> = done
        .calls
        .iter()
        .map(|call| {
            assert!(call.whole, "{place}");
            ToolCall { id: call.id.clone().unwrap(), name: call.name.clone(), arguments: call.arguments.clone() }
        })
        .collect();
    assert_eq!(calls, meant.calls, "{place}");
    assert_eq!(done.usage, Some(told(mode, &meant.usage)), "{place}");
    let kept = done.sidecar.as_ref().map(|sidecar| String::from_utf8_lossy(&sidecar.bytes)).unwrap_or_default();
    let has_proof = mode != ApiMode::ChatCompletions && !meant.proof.is_empty();
    assert!(!has_proof || kept.contains(&meant.proof), "{place}: {kept}");
}

/// Asks, gives every call a result, asks on until the script is at its end.
async fn converse(mode: ApiMode, stream: bool, asked: &str, script: &FakeScript) {
    let server = FakeServer::start(script.clone()).await.unwrap();
    let model = model(mode, &server);
    let mut request = ChatRequest {
        tools: weather().into(),
        messages: vec![ChatMessage::user(asked)],
        stream,
        max_output_tokens: Some(20_000),
        reasoning_effort: Some("low".to_owned()),
        ..request()
    };
    for meant in &script[asked] {
        let (shown, done) = answer(&model, &request).await;
        let done = done.unwrap_or_else(|error| panic!("{mode:?}, {asked:?}: {error}"));
        check(mode, asked, meant, &done);
        assert!(!stream || shown == meant.text, "{mode:?}: {shown:?}");
        request.messages.push(ChatMessage::Assistant {
            text: done.text,
            reasoning: done.reasoning,
            sidecar: done.sidecar,
            calls: meant.calls.clone(),
        });
        request.messages.extend(meant.calls.iter().map(|call| ChatMessage::Tool {
            call_id: call.id.clone(),
            name: call.name.clone(),
            content: "fine".to_owned(),
            is_error: false,
            images: Vec::new(),
        }));
    }
    let seen = server.seen();
    assert_eq!(seen.len(), script[asked].len());
    for request in seen {
        assert_eq!((request.mode, request.stream, request.asked.as_str()), (mode, stream, asked));
    }
}

#[tokio::test]
async fn what_is_meant_arrives_on_every_wire_as_a_stream_and_whole() {
    let script = script();
    let good = |answers: &[FakeAnswer]| answers.iter().all(|answer| answer.error.is_none());
    for (asked, _) in script.iter().filter(|(_, answers)| good(answers)) {
        for mode in ApiMode::ALL {
            for stream in [true, false] {
                converse(*mode, stream, asked, &script).await;
            }
        }
    }
}

#[tokio::test]
async fn every_error_has_its_class_on_every_wire() {
    let script = script();
    let server = FakeServer::start(script.clone()).await.unwrap();
    let all = script.iter().filter_map(|(asked, answers)| Some((asked, &answers[0].text, answers[0].error.clone()?)));
    for (asked, text, error) in all {
        for mode in ApiMode::ALL {
            let class = match error.kind {
                FakeErrorKind::RateLimited => ErrorClass::RateLimit,
                // Without a status, OpenAI has one word for everything that is its own fault.
                FakeErrorKind::Overloaded
                    if !text.is_empty() && matches!(mode, ApiMode::ChatCompletions | ApiMode::Responses) =>
                {
                    ErrorClass::ServerError
                }
                FakeErrorKind::Overloaded => ErrorClass::Overloaded,
                FakeErrorKind::Unauthorized => ErrorClass::Auth,
                _ => ErrorClass::BadRequest,
            };
            let asks = ChatRequest { messages: vec![ChatMessage::user(asked)], ..request() };
            let (shown, end) = answer(&model(*mode, &server), &asks).await;
            let found = end.unwrap_err();
            assert_eq!((found.class, &shown), (class, text), "{mode:?}, {asked:?}: {found}");
            assert_eq!(found.retry_after_ms, error.retry_after_s.map(|seconds| seconds * 1000), "{mode:?}, {asked:?}");
        }
    }
}

#[tokio::test]
async fn what_is_not_scripted_is_refused_in_words() {
    let server = FakeServer::start(FakeScript::new()).await.unwrap();
    for mode in ApiMode::ALL {
        let error = answer(&model(*mode, &server), &request()).await.1.unwrap_err();
        assert!(error.message.contains("nothing is scripted"), "{mode:?}: {error}");
    }
}
