//! Bodies of requests.

use serde_json::{Value, json};

use super::*;
use crate::mode::StreamEnd;
use crate::profile::Quirks;

fn options() -> WireOptions {
    WireOptions { model: "m".into(), issuer: "me".into(), quirks: Quirks::default() }
}

fn request(messages: Vec<ChatMessage>, cache_ends: Vec<usize>) -> ChatRequest {
    ChatRequest {
        system: bytes::Bytes::from_static(b"sys"),
        tools: vec![].into(),
        messages,
        max_output_tokens: None,
        temperature: None,
        reasoning_effort: None,
        stream: true,
        cache_ends,
        cache_key: None,
    }
}

fn text_of(request: &ChatRequest) -> String {
    let body = encode(request, &options()).body;
    String::from_utf8(body.to_vec()).unwrap()
}

fn call(id: &str, sidecar: Option<Sidecar>) -> ChatMessage {
    let call = ToolCall { id: id.into(), name: "t".into(), arguments: "{ \"a\":1}".into() };
    ChatMessage::Assistant { text: "so".into(), reasoning: None, sidecar, calls: vec![call] }
}

fn result(id: &str) -> ChatMessage {
    ChatMessage::Tool { call_id: id.into(), name: "t".into(), content: "r".into(), is_error: true, images: vec![] }
}

#[test]
fn results_stand_behind_their_calls_and_roles_alternate() {
    let history = vec![
        ChatMessage::user("x"),
        ChatMessage::user(" "),
        call("a:1", None),
        ChatMessage::user("steer"),
        result("a:1"),
    ];
    let body: Value = serde_json::from_str(&text_of(&request(history, vec![]))).unwrap();
    let id = &body["messages"][1]["content"][1]["id"];
    assert_eq!(body["max_tokens"], DEFAULT_MAX_OUTPUT_TOKENS);
    assert_eq!(
        body["messages"],
        json!([
            {"role":"user","content":[{"type":"text","text":"x"}]},
            {"role":"assistant","content":[{"type":"text","text":"so"},{"type":"tool_use","id":id,"name":"t","input":{"a":1}}]},
            {"role":"user","content":[
                {"type":"tool_result","tool_use_id":id,"is_error":true,"content":[{"type":"text","text":"r"}]},
                {"type":"text","text":"steer"}
            ]},
        ])
    );
}

#[test]
fn i18_without_its_marks_a_request_begins_like_the_one_before() {
    let mut history = vec![ChatMessage::user("x")];
    let first = text_of(&request(history.clone(), vec![0]));
    history.extend([call("a", None), result("a")]);
    let second = text_of(&request(history, vec![0, 2]));
    assert_eq!((first.matches(MARK).count(), second.matches(MARK).count()), (2, 3));
    let (first, second) = (first.replace(MARK, ""), second.replace(MARK, ""));
    assert!(second.starts_with(first.strip_suffix("]}").unwrap()), "{first}\n{second}");
}

#[test]
fn b25_i19_thinking_goes_back_as_it_came_and_to_its_issuer_only() {
    let blocks = r#"{"type":"thinking", "thinking":"h\u006d","signature":"S"},{"type":"redacted_thinking","data":"D"},{"type":"tool_use","id":"a","name":"t","input":{ "a":1}}"#;
    let whole = format!(r#"{{"type":"message","content":[{blocks}],"stop_reason":"tool_use","usage":null}}"#);
    let context = crate::mode::DecodeContext { issuer: "me".into(), ..crate::mode::DecodeContext::default() };
    let mut decoder = crate::mode::decoder(crate::profile::ApiMode::AnthropicMessages, context);
    let mut out = Vec::new();
    decoder.push(whole.as_bytes(), &mut out).unwrap();
    decoder.finish(StreamEnd::Closed, &mut out).unwrap();
    let Some(crate::chat::Delta::Done(done)) = out.pop() else { panic!("no end") };
    let mine = done.sidecar.clone().unwrap();
    let body = text_of(&request(vec![ChatMessage::user("x"), call("a", Some(mine.clone())), result("a")], vec![]));
    assert!(body.contains(&format!("\"content\":[{blocks}]")), "{body}");
    let other = Sidecar { issuer: "other".into(), ..mine };
    let body = text_of(&request(vec![ChatMessage::user("x"), call("a", Some(other)), result("a")], vec![]));
    assert!(!body.contains("thinking") && body.contains("tool_use"), "{body}");
}
