//! What goes out, and that it is a prefix of what goes out next.

use super::*;
use crate::chat::ToolSchema;
use crate::chat::{Sidecar, ToolCall};
use crate::mode::turns::EARLIER;
use crate::profile::Profiles;
use bytes::Bytes;
use serde_json::Value;

const CLAUDE: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";

fn options(model: &str) -> WireOptions {
    let quirks = Profiles::bundled().unwrap().get("bedrock").unwrap().quirks.clone();
    WireOptions { model: model.to_owned(), issuer: "me".into(), quirks }
}

fn tool(name: &str) -> ToolSchema {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    ToolSchema { name: name.to_owned(), description: "Does it.".to_owned(), parameters }
}

fn request(messages: Vec<ChatMessage>) -> ChatRequest {
    ChatRequest {
        system: Bytes::from_static(b"Be brief."),
        tools: vec![tool("read"), tool("a.b")].into(),
        ..ChatRequest::new(messages)
    }
}

fn assistant(text: &str, calls: &[(&str, &str, &str)]) -> ChatMessage {
    let calls = calls.iter().map(|(id, name, arguments)| ToolCall {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
    });
    ChatMessage::Assistant { text: text.to_owned(), reasoning: None, sidecar: None, calls: calls.collect() }
}

fn result(id: &str, content: &str, is_error: bool) -> ChatMessage {
    let (call_id, name, content) = (id.to_owned(), "read".to_owned(), content.to_owned());
    ChatMessage::Tool { call_id, name, content, is_error, images: Vec::new() }
}

fn body(request: &ChatRequest, model: &str) -> Value {
    serde_json::from_slice(&encode(request, &options(model)).body).unwrap()
}

fn history() -> Vec<ChatMessage> {
    vec![
        ChatMessage::user("Look."),
        assistant("I do.", &[("t1", "read", r#"{ "path" : "x" }"#), ("t2", "a.b", "")]),
        result("t2", "two", true),
        result("t1", "", false),
        ChatMessage::user("And?"),
        assistant("Nothing.", &[]),
        ChatMessage::user("Thanks."),
    ]
}

#[test]
fn a_request_is_what_the_maker_wants() {
    let image = Image { media_type: "image/png".into(), data: Bytes::from_static(b"png") };
    let odd = Image { media_type: "image/tiff".into(), data: Bytes::from_static(b"x") };
    let mut messages = history();
    messages.push(ChatMessage::User { text: " ".into(), images: vec![image, odd] });
    let mut request = request(messages);
    request.max_output_tokens = Some(100);
    request.temperature = Some(0.5);
    let encoded = encode(&request, &options(CLAUDE));
    assert_eq!(encoded.path, "model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream");
    assert_eq!((encoded.query, encoded.headers.len()), ("", 0));
    let body: Value = serde_json::from_slice(&encoded.body).unwrap();
    let hashed = body["toolConfig"]["tools"][1]["toolSpec"]["name"].clone();
    let schema = tool("x").parameters;
    assert_eq!(
        body,
        json!({
            "inferenceConfig": {"maxTokens": 100, "temperature": 0.5},
            "additionalModelRequestFields": {"anthropic_beta": ["interleaved-thinking-2025-05-14"]},
            "toolConfig": {"tools": [
                {"toolSpec": {"name": "read", "description": "Does it.", "inputSchema": {"json": schema.clone()}}},
                {"toolSpec": {"name": hashed.clone(), "description": "Does it.", "inputSchema": {"json": schema}}},
            ]},
            "system": [{"text": "Be brief."}],
            "messages": [
                {"role": "user", "content": [{"text": "Look."}]},
                {"role": "assistant", "content": [
                    {"text": "I do."},
                    {"toolUse": {"toolUseId": "t1", "name": "read", "input": {"path": "x"}}},
                    {"toolUse": {"toolUseId": "t2", "name": hashed, "input": {}}},
                ]},
                {"role": "user", "content": [
                    {"toolResult": {"toolUseId": "t2", "content": [{"text": "two"}], "status": "error"}},
                    {"toolResult": {"toolUseId": "t1", "content": [{"text": "(empty)"}]}},
                    {"text": "And?"},
                ]},
                {"role": "assistant", "content": [{"text": "Nothing."}]},
                {"role": "user", "content": [
                    {"text": "Thanks."},
                    {"image": {"format": "png", "source": {"bytes": "cG5n"}}},
                    {"text": "[A picture of the kind image/tiff, which this model cannot see.]"},
                ]},
            ],
        })
    );
    request.stream = false;
    let arn = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc";
    let encoded = encode(&request, &options(arn));
    let path = "model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A123456789012%3Aapplication-inference-profile%2Fabc/converse";
    assert_eq!((encoded.path.as_str(), encoded.accept), (path, "application/json"));
}

/// Without marks and without what closes the body.
fn bare(request: &ChatRequest, model: &str) -> String {
    let body = encode(request, &options(model)).body;
    let text = std::str::from_utf8(&body).unwrap().replace(&format!(",{MARK}"), "");
    text.trim_end_matches(['}', ']']).to_owned()
}

#[test]
fn i18_a_request_is_a_prefix_of_the_next_and_marks_are_nothing_but_additions() {
    let all = history();
    for model in [CLAUDE, "amazon.nova-pro-v1:0", "mistral.mistral-large-2407-v1:0"] {
        let mut before = String::new();
        for count in 1..=all.len() {
            let mut request = request(all[..count].to_vec());
            let unmarked = bare(&request, model);
            assert!(unmarked.starts_with(&before), "{before}\n{unmarked}");
            before.clone_from(&unmarked);
            request.cache_ends = (0..count).collect();
            assert_eq!(bare(&request, model), unmarked, "marks change nothing else");
            let body = encode(&request, &options(model)).body;
            let marks = std::str::from_utf8(&body).unwrap().matches(MARK).count();
            assert!(marks <= MAX_CACHE_MARKS, "{marks}");
            let expect = match model {
                CLAUDE => 2..=4,
                "amazon.nova-pro-v1:0" => 1..=3,
                _ => 0..=0,
            };
            assert!(expect.contains(&marks), "{model}: {marks}");
        }
    }
}

#[test]
fn i19_kept_blocks_go_back_unchanged_to_their_issuer_only() {
    let raw = r#"[{"reasoningContent":{"reasoningText":{"text":"h\u00e9","signature":"S/+="}}},{"text":"a"},{"toolUse":{"toolUseId":"t1","name":"read","input":{ "p":1 }}}]"#;
    let mut message = assistant("a", &[("t1", "read", "{ \"p\":1 }")]);
    let mut keep = |issuer: &str| {
        let ChatMessage::Assistant { sidecar, .. } = &mut message else { unreachable!() };
        *sidecar = Some(Sidecar { issuer: issuer.into(), bytes: Bytes::from_static(raw.as_bytes()) });
        let request = request(vec![ChatMessage::user("x"), message.clone(), result("t1", "r", false)]);
        String::from_utf8(encode(&request, &options(CLAUDE)).body.to_vec()).unwrap()
    };
    assert!(keep("me").contains(&format!(r#"{{"role":"assistant","content":{raw}}}"#)));
    let other = keep("another");
    assert!(!other.contains("reasoningContent") && other.contains(r#""toolUseId":"t1""#), "{other}");
}

#[test]
fn a_kept_call_that_got_another_id_or_left_the_history_is_not_sent_as_it_was() {
    let raw =
        r#"[{"reasoningContent":{"redactedContent":"AA=="}},{"toolUse":{"toolUseId":"old","name":"read","input":{}}}]"#;
    let send = |calls: &[(&str, &str, &str)]| {
        let mut message = assistant("", calls);
        let ChatMessage::Assistant { sidecar, .. } = &mut message else { unreachable!() };
        *sidecar = Some(Sidecar { issuer: "me".into(), bytes: Bytes::from_static(raw.as_bytes()) });
        body(&request(vec![ChatMessage::user("x"), message, ChatMessage::user("y")]), CLAUDE)["messages"].clone()
    };
    assert_eq!(send(&[("new", "read", "{}")])[1]["content"][1]["toolUse"]["toolUseId"], "new");
    let gone = send(&[]);
    assert_eq!(
        gone,
        json!([{"role": "user", "content": [{"text": "x"}, {"text": "y"}]}]),
        "reasoning alone is nothing"
    );
}

#[test]
fn thinking_is_told_as_the_family_wants_it() {
    let told = |model: &str, effort: &str| {
        let mut request = request(vec![ChatMessage::user("x")]);
        request.reasoning_effort = Some(effort.to_owned());
        request.temperature = Some(0.3);
        let mut body = body(&request, model);
        (body["additionalModelRequestFields"].take(), body["inferenceConfig"].take())
    };
    let (fields, config) = told(CLAUDE, "high");
    assert_eq!(fields["thinking"], json!({"type": "enabled", "budget_tokens": 16384}));
    assert_eq!(config, json!({"maxTokens": 32000}), "no temperature beside thinking");
    let (fields, _) = told("global.anthropic.claude-opus-4-6-v1", "max");
    assert_eq!(fields, json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}));
    assert_eq!(told("anthropic.claude-opus-4-6-v1", "none").0, json!({"thinking": {"type": "disabled"}}));
    let (fields, config) = told("us.amazon.nova-2-lite-v1:0", "max");
    assert_eq!(fields, json!({"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}));
    assert_eq!(config, Value::Null);
    assert_eq!(told("openai.gpt-oss-120b-1:0", "low").0, json!({"reasoning_effort": "low"}));
    assert_eq!(told("meta.llama3-1-8b-instruct-v1:0", "high").0, Value::Null);
    // Calls of another issuer came without thinking: a budget would be refused.
    let mut request = request(history()[..4].to_vec());
    request.reasoning_effort = Some("high".to_owned());
    assert_eq!(body(&request, CLAUDE)["additionalModelRequestFields"].get("thinking"), None);
}

#[test]
fn calls_in_the_history_bring_their_tools_when_none_is_offered() {
    let mut request = request(history());
    request.tools = Vec::new().into();
    let tools = body(&request, CLAUDE)["toolConfig"]["tools"].clone();
    assert_eq!(tools[0]["toolSpec"]["name"], "read");
    assert_eq!(tools[0]["toolSpec"]["description"], GONE);
    assert_eq!(tools.as_array().map(Vec::len), Some(2));
    request.messages = vec![ChatMessage::user("x")];
    assert_eq!(body(&request, CLAUDE).get("toolConfig"), None);
}

#[test]
fn a_guardrail_of_the_profile_goes_with_every_request() {
    let mut options = options(CLAUDE);
    let text = "guardrail = {id = 'g1', version = '2', shows_early = true}";
    options.quirks.converse.guardrail =
        toml::from_str::<crate::mode::bedrock_converse::ConverseQuirks>(text).unwrap().guardrail;
    let mut request = request(vec![ChatMessage::user("x")]);
    let mut sent = |stream| {
        request.stream = stream;
        let body: Value = serde_json::from_slice(&encode(&request, &options).body).unwrap();
        body["guardrailConfig"].clone()
    };
    let whole = json!({"guardrailIdentifier": "g1", "guardrailVersion": "2"});
    assert_eq!(sent(false), whole);
    assert_eq!(sent(true)["streamProcessingMode"], "async");
}

#[test]
fn a_history_that_begins_with_an_answer_is_opened() {
    let body = body(&request(vec![assistant("a", &[]), ChatMessage::user("b")]), CLAUDE);
    assert_eq!(body["messages"][0], json!({"role": "user", "content": [{"text": EARLIER}]}));
}
