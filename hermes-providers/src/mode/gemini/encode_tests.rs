//! Bodies of requests.

use serde_json::json;

use super::*;
use crate::chat::{Completion, Delta};
use crate::mode::StreamEnd;
use crate::profile::{ApiMode, Profiles, Quirks};

fn quirks(profile: &str) -> Quirks {
    Profiles::bundled().unwrap().get(profile).unwrap().quirks.clone()
}

fn options(model: &str) -> WireOptions {
    WireOptions { model: model.into(), issuer: "me".into(), quirks: quirks("gemini") }
}

fn request(messages: Vec<ChatMessage>) -> ChatRequest {
    ChatRequest { system: Bytes::from_static("You are ünï.".as_bytes()), ..ChatRequest::new(messages) }
}

fn text_of(request: &ChatRequest, model: &str) -> String {
    String::from_utf8(encode(request, &options(model)).body.to_vec()).unwrap()
}

fn body_of(request: &ChatRequest, model: &str) -> Value {
    serde_json::from_str(&text_of(request, model)).unwrap()
}

fn tool(name: &str, parameters: Value) -> ToolSchema {
    ToolSchema { name: name.into(), description: "d".into(), parameters }
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }
}

fn answer(text: &str, sidecar: Option<Sidecar>, calls: Vec<ToolCall>) -> ChatMessage {
    ChatMessage::Assistant { text: text.into(), reasoning: None, sidecar, calls }
}

fn result(id: &str, name: &str, is_error: bool, images: Vec<Image>) -> ChatMessage {
    ChatMessage::Tool { call_id: id.into(), name: name.into(), content: "r".into(), is_error, images }
}

fn image(kind: &str) -> Image {
    Image { media_type: kind.into(), data: Bytes::from_static(b"PIX") }
}

/// What the decoder makes of an answer with these parts.
fn received(parts: &str) -> Completion {
    let whole = format!(r#"{{"candidates":[{{"content":{{"parts":[{parts}]}},"finishReason":"STOP"}}]}}"#);
    let context = crate::mode::DecodeContext { issuer: "me".into(), ..crate::mode::DecodeContext::default() };
    let mut decoder = crate::mode::decoder(ApiMode::Gemini, context);
    let mut out = Vec::new();
    decoder.push(whole.as_bytes(), &mut out).unwrap();
    decoder.finish(StreamEnd::Closed, &mut out).unwrap();
    match out.pop() {
        Some(Delta::Done(done)) => *done,
        other => panic!("no end: {other:?}"),
    }
}

/// The history after that answer and its results; ids are the provider's or ours.
fn history(done: Completion) -> Vec<ChatMessage> {
    let calls: Vec<ToolCall> = done
        .calls
        .iter()
        .enumerate()
        .map(|(at, made)| call(&made.id.clone().unwrap_or(format!("our-{at}")), &made.name, &made.arguments))
        .collect();
    let results: Vec<ChatMessage> = calls.iter().map(|call| result(&call.id, &call.name, false, vec![])).collect();
    let mut all = vec![ChatMessage::user("x"), answer(&done.text, done.sidecar, calls)];
    all.extend(results);
    all
}

#[test]
fn b32_i19_every_part_goes_back_with_its_own_bytes_and_its_own_signature() {
    let parts = concat!(
        r#"{"thought":true,"text":"h\u006d"},{"text":"so", "thoughtSignature":"T"},"#,
        r#"{"functionCall":{"name":"a","args":{ "x":1.0 }},"thoughtSignature":"S"},"#,
        r#"{"functionCall":{"id":"two","name":"b","args":{}}}"#
    );
    let done = received(parts);
    assert_eq!((done.text.as_str(), done.reasoning.as_deref(), done.calls.len()), ("so", Some("hm"), 2));
    let body = text_of(&request(history(done.clone())), "gemini-3-pro-preview");
    let kept = parts.replace("{\"thought\":true,\"text\":\"h\\u006d\"}", "{\"text\":\"hm\",\"thought\":true}");
    assert!(body.contains(&format!("{{\"role\":\"model\",\"parts\":[{kept}]}}")), "{body}");
    // Results name their calls as the model did: with an id where it gave one.
    let results = r#"{"functionResponse":{"name":"a","response":{"output":"r"}}},{"functionResponse":{"id":"two","name":"b","response":{"output":"r"}}}"#;
    assert!(body.contains(results), "{body}");
    assert!(!body.contains(SKIP_SIGNATURE));
    // I21: nothing of it reaches another issuer.
    let mut foreign = history(done);
    if let ChatMessage::Assistant { sidecar: Some(sidecar), .. } = &mut foreign[1] {
        sidecar.issuer = "other".into();
    }
    let body = text_of(&request(foreign), "gemini-2.5-pro");
    assert!(!body.contains("\"S\"") && !body.contains("\"T\"") && !body.contains("hm"), "{body}");
}

#[test]
fn b32_a_foreign_call_gets_the_documented_stand_in_where_signatures_are_wanted() {
    let calls = vec![call("c1", "a", "{\"x\":1}"), call("c2", "b", " ")];
    let messages = vec![ChatMessage::user("x"), answer("", None, calls)];
    let body = body_of(&request(messages.clone()), "gemini-3-flash-preview");
    assert_eq!(
        body["contents"][1]["parts"],
        json!([
            {"functionCall":{"id":"c1","name":"a","args":{"x":1}},"thoughtSignature":SKIP_SIGNATURE},
            {"functionCall":{"id":"c2","name":"b","args":{}}},
        ])
    );
    assert!(!text_of(&request(messages), "gemini-2.5-flash").contains("thoughtSignature"));
    // Our own state from which the signature was lost on its way.
    let done = received(r#"{"functionCall":{"name":"a","args":{}}}"#);
    let parts = &body_of(&request(history(done)), "gemini-3-flash-preview")["contents"][1]["parts"];
    assert_eq!(parts[0]["thoughtSignature"], SKIP_SIGNATURE);
}

#[test]
fn a_message_that_was_changed_since_goes_out_as_what_it_is() {
    let done = received(
        r#"{"text":"so","thoughtSignature":"T"},{"functionCall":{"name":"a","args":{}},"thoughtSignature":"S"}"#,
    );
    let mut changed = history(done);
    if let ChatMessage::Assistant { text, .. } = &mut changed[1] {
        text.push('!');
    }
    let body = text_of(&request(changed), "gemini-3-pro-preview");
    assert!(body.contains("so!") && !body.contains("\"T\"") && !body.contains("\"S\""), "{body}");
}

#[test]
fn i18_a_request_begins_like_the_one_before() {
    let mut messages = vec![ChatMessage::user("x")];
    let done =
        received(r#"{"functionCall":{"name":"a","args":{}},"thoughtSignature":"S"},{"functionCall":{"name":"b"}}"#);
    let steps = [
        history(done)[1..].to_vec(),
        vec![answer("said", None, vec![])],
        vec![ChatMessage::User { text: "see".into(), images: vec![image("image/png")] }],
        vec![ChatMessage::user("and more")],
        vec![answer("", None, vec![call("c", "a", "{}")])],
        vec![result("c", "a", true, vec![image("image/png")])],
    ];
    for model in ["gemini-3-pro-preview", "gemini-2.5-flash"] {
        let mut before = text_of(&request(messages.clone()), model);
        for step in &steps {
            messages.extend(step.clone());
            let next = text_of(&request(messages.clone()), model);
            assert!(next.starts_with(before.strip_suffix("]}]}").unwrap()), "{before}\n{next}");
            before = next;
        }
        messages.truncate(1);
    }
}

#[test]
fn the_head_says_what_the_family_of_the_model_knows() {
    let config = |model: &str, effort: Option<&str>| {
        let mut request = request(vec![ChatMessage::user("x")]);
        request.reasoning_effort = effort.map(str::to_owned);
        body_of(&request, model)["generationConfig"]["thinkingConfig"].clone()
    };
    for (model, effort, expect) in [
        ("gemini-3-pro-preview", None, json!({"includeThoughts":true})),
        ("gemini-3-pro-preview", Some("medium"), json!({"includeThoughts":true,"thinkingLevel":"low"})),
        ("gemini-3.1-pro-preview", Some("medium"), json!({"includeThoughts":true,"thinkingLevel":"medium"})),
        ("gemini-3-flash-preview", Some("max"), json!({"includeThoughts":true,"thinkingLevel":"high"})),
        ("gemini-3.5-flash", Some("none"), json!({"includeThoughts":true,"thinkingLevel":"minimal"})),
        ("models/gemini-2.5-flash", Some("none"), json!({"thinkingBudget":0})),
        ("gemini-2.5-pro", Some("none"), json!({"includeThoughts":true,"thinkingBudget":128})),
        ("gemini-2.5-pro", Some("xhigh"), json!({"includeThoughts":true,"thinkingBudget":24576})),
        ("gemini-2.0-flash", Some("high"), Value::Null),
        ("gemma-3-27b-it", None, Value::Null),
    ] {
        assert_eq!(config(model, effort), expect, "{model} {effort:?}");
    }
    let mut all = request(vec![ChatMessage::user("x")]);
    (all.temperature, all.max_output_tokens) = (Some(0.5), Some(9));
    all.tools = vec![
        tool("a b", json!({"type":"object","properties":{"p":{"type":"string"}}})),
        tool("none", json!({"type":"object","properties":{}})),
    ]
    .into();
    let body = body_of(&all, "gemini-2.0-flash");
    let names = NameMap::new(&all.tools);
    assert_eq!(
        body,
        json!({
            "systemInstruction": {"parts":[{"text":"You are ünï."}]},
            "tools": [{"functionDeclarations":[
                {"name":names.wire("a b"),"description":"d","parametersJsonSchema":{"type":"object","properties":{"p":{"type":"string"}}}},
                {"name":"none","description":"d"},
            ]}],
            "toolConfig": {"functionCallingConfig":{"mode":"AUTO"}},
            "generationConfig": {"temperature":0.5,"maxOutputTokens":9},
            "contents": [{"role":"user","parts":[{"text":"x"}]}],
        })
    );
    let plain = body_of(&request(vec![]), "gemini-2.0-flash");
    assert_eq!((&plain["tools"], &plain["toolConfig"], &plain["contents"]), (&Value::Null, &Value::Null, &json!([])));
}

#[test]
fn pictures_of_results_stand_inside_them_where_the_family_takes_that_and_else_behind() {
    let messages = vec![
        ChatMessage::User { text: String::new(), images: vec![image("image/png")] },
        answer("", None, vec![call("c", "look", "{}")]),
        result("c", "look", false, vec![image("image/jpeg"), image("image/webp")]),
    ];
    let inline = |kind: &str| json!({"inlineData":{"mimeType":kind,"data":"UElY"}});
    let body = body_of(&request(messages.clone()), "gemini-3-pro-preview");
    assert_eq!(body["contents"][0]["parts"], json!([inline("image/png")]));
    assert_eq!(
        body["contents"][2]["parts"],
        json!([{"functionResponse":{"id":"c","name":"look","response":{"output":"r"},"parts":[inline("image/jpeg"),inline("image/webp")]}}])
    );
    let body = body_of(&request(messages), "gemini-2.5-pro");
    assert_eq!(
        body["contents"][2]["parts"],
        json!([{"functionResponse":{"id":"c","name":"look","response":{"output":"r"}}},inline("image/jpeg"),inline("image/webp")])
    );
}

#[test]
fn results_say_failures_and_roles_alternate_from_a_user_on() {
    let messages = vec![
        answer("", None, vec![call("c", "a b", "not json")]),
        result("c", "a b", true, vec![]),
        ChatMessage::user("steer"),
        ChatMessage::user(""),
        answer("", None, vec![]),
        answer("done", None, vec![]),
    ];
    let body = body_of(&request(messages), "gemini-2.5-pro");
    let name = NameMap::default().wire("a b").into_owned();
    assert_eq!(
        body["contents"],
        json!([
            {"role":"user","parts":[{"text":EARLIER}]},
            {"role":"model","parts":[{"functionCall":{"id":"c","name":name,"args":{"arguments":"not json"}}}]},
            {"role":"user","parts":[
                {"functionResponse":{"id":"c","name":name,"response":{"error":"r"}}},
                {"text":"steer"},
                {"text":NO_TEXT},
            ]},
            {"role":"model","parts":[{"text":"done"}]},
        ])
    );
}

#[test]
fn the_path_names_the_model_and_the_method() {
    let mut request = request(vec![ChatMessage::user("x")]);
    let path = |request: &ChatRequest, model: &str| {
        let encoded = encode(request, &options(model));
        (encoded.path, encoded.query)
    };
    assert_eq!(path(&request, "g-1.5"), ("models/g-1.5:streamGenerateContent".to_owned(), "alt=sse"));
    assert_eq!(
        path(&request, "tunedModels/a b?"),
        ("tunedModels/a%20b%3F:streamGenerateContent".to_owned(), "alt=sse")
    );
    request.stream = false;
    assert_eq!(path(&request, "models/g"), ("models/g:generateContent".to_owned(), ""));
}

#[test]
fn a_server_that_knows_no_ids_gets_none() {
    let options = WireOptions { quirks: quirks("vertex-express"), ..options("gemini-2.5-pro") };
    let messages =
        vec![ChatMessage::user("x"), answer("", None, vec![call("c", "a", "{}")]), result("c", "a", false, vec![])];
    let body = encode(&request(messages), &options).body;
    assert!(!String::from_utf8(body.to_vec()).unwrap().contains("\"id\""));
}
