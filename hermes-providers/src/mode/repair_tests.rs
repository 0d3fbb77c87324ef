//! What is left out, and what stays byte for byte.

use serde_json::json;

use super::*;
use crate::chat::ToolSchema;

fn request(messages: Vec<ChatMessage>) -> ChatRequest {
    ChatRequest {
        system: Bytes::from_static(b"sys"),
        reasoning_effort: Some("none".into()),
        ..ChatRequest::new(messages)
    }
}

fn answer() -> ChatMessage {
    ChatMessage::Assistant { text: "t".into(), reasoning: None, sidecar: None, calls: Vec::new() }
}

fn image(data: &'static [u8]) -> Image {
    Image { media_type: "image/png".into(), data: Bytes::from_static(data) }
}

fn learned(remedies: &[Remedy], from: &ChatRequest) -> Repairs {
    remedies.iter().fold(Repairs::default(), |repairs, remedy| repairs.with(remedy, from).unwrap())
}

fn check(name: &str, body: &str, expect: &str) {
    let repairs = learned(&[Remedy::DropField(name.into())], &request(Vec::new()));
    assert_eq!(repairs.body(Bytes::copy_from_slice(body.as_bytes())), expect, "{name}");
}

#[test]
fn b41_a_field_goes_and_everything_else_keeps_its_bytes() {
    let body = r#"{"model":"m","stream_options":{"include_usage":true},"n":1.0,"messages":[{"a":"\u00e9"}]}"#;
    check("stream_options", body, r#"{"model":"m","n":1.0,"messages":[{"a":"\u00e9"}]}"#);
    check(
        "stream_options.include_usage",
        body,
        r#"{"model":"m","stream_options":{},"n":1.0,"messages":[{"a":"\u00e9"}]}"#,
    );
    check("other", body, body);
    check("stream_options.other", body, body);
    check("thinkingConfig", r#"{"generationConfig":{"x":1,"thinkingConfig":{}}}"#, r#"{"generationConfig":{"x":1}}"#);
    check("a", r#"{"messages":[{"a":1}]}"#, r#"{"messages":[{"a":1}]}"#);
    check("a", "no object", "no object");
}

#[test]
fn a_field_gets_its_other_name() {
    let remedy = Remedy::RenameField { from: "max_tokens".into(), to: "max_completion_tokens".into() };
    let body = learned(&[remedy], &request(Vec::new())).body(Bytes::from_static(br#"{"max_tokens":5,"messages":[]}"#));
    assert_eq!(body, r#"{"max_completion_tokens":5,"messages":[]}"#);
}

#[test]
fn what_a_request_is_about_is_never_left_out() {
    for name in NEEDED {
        assert_eq!(Repairs::default().with(&Remedy::DropField((*name).into()), &request(Vec::new())), None);
    }
    assert_eq!(Repairs::default().with(&Remedy::DropField("messages.0.name".into()), &request(Vec::new())), None);
}

#[test]
fn pictures_become_words() {
    let user = |images| ChatMessage::User { text: "look".into(), images };
    let old = request(vec![user(vec![image(b"bad")])]);
    let repairs = learned(&[Remedy::DropImages], &old);
    let repaired = repairs.request(&request(vec![user(vec![image(b"bad"), image(b"good")])])).into_owned();
    assert_eq!(
        repaired.messages,
        [ChatMessage::User { text: format!("look\n{NO_IMAGE}"), images: vec![image(b"good")] }]
    );

    let tool = |images| ChatMessage::Tool {
        call_id: "c".into(),
        name: "t".into(),
        content: String::new(),
        is_error: false,
        images,
    };
    let all = request(vec![tool(vec![image(b"x")]), user(vec![image(b"y")])]);
    let repaired = learned(&[Remedy::DropToolImages], &all).request(&all).into_owned();
    assert_eq!(images(&repaired.messages[0]).len() + images(&repaired.messages[1]).len(), 1);
    assert!(matches!(&repaired.messages[0], ChatMessage::Tool { content, .. } if content == NO_IMAGE));
}

#[test]
fn schemas_lose_what_a_grammar_cannot_hold() {
    let mut schema = json!({"type": "object", "properties": {
        "pattern": {"type": "string", "pattern": "^a$", "default": {"format": "x"}},
        "list": {"type": "array", "items": [{"format": "uri"}]},
    }});
    plain_schema(&mut schema);
    let expect = json!({"type": "object", "properties": {
        "pattern": {"type": "string", "default": {"format": "x"}},
        "list": {"type": "array", "items": [{}]},
    }});
    assert_eq!(schema, expect);
    let mut asked = request(Vec::new());
    asked.tools =
        vec![ToolSchema { name: "t".into(), description: String::new(), parameters: json!({"format": "x"}) }].into();
    assert_eq!(learned(&[Remedy::PlainSchemas], &asked).request(&asked).tools[0].parameters, json!({}));
}

#[test]
fn neighbours_of_one_role_become_one_message() {
    let mut asked = request(vec![ChatMessage::user("a"), ChatMessage::user("b"), answer(), ChatMessage::user("c")]);
    asked.cache_ends = vec![1, 3];
    let merged = learned(&[Remedy::MergeRoles], &asked).request(&asked).into_owned();
    assert_eq!(merged.messages.len(), 3);
    assert_eq!(merged.messages[0], ChatMessage::user("a\n\nb"));
    assert_eq!(merged.cache_ends, [0, 2]);
}

#[test]
fn the_weakest_effort_stands_in_for_none_alone() {
    let asked = request(Vec::new());
    let repairs = learned(&[Remedy::LeastReasoning], &asked);
    assert_eq!(repairs.request(&asked).reasoning_effort.as_deref(), Some("low"));
    let high = ChatRequest { reasoning_effort: Some("high".into()), ..asked };
    assert_eq!(repairs.request(&high).reasoning_effort.as_deref(), Some("high"));
}

#[test]
fn without_repairs_nothing_is_copied() {
    let asked = request(vec![ChatMessage::user("a")]);
    assert!(matches!(Repairs::default().request(&asked), Cow::Borrowed(_)));
    let repairs = learned(&[Remedy::DropField("x".into())], &asked);
    assert!(matches!(repairs.request(&asked), Cow::Borrowed(_)));
}

#[test]
fn i25_the_memory_of_refused_parts_has_an_end() {
    let mut refused = Refused::default();
    refused.extend(0..2 * MAX_REFUSED as u64);
    assert!(refused.marks.len() <= MAX_REFUSED && refused.has(2 * MAX_REFUSED as u64 - 1) && !refused.has(0));
}
