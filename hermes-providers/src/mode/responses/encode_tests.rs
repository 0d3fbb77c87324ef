//! Bodies of requests.

use serde_json::{Value, json};

use super::*;
use crate::chat::ToolSchema;
use crate::mode::DecodeContext;
use crate::mode::responses::ResponsesQuirks;
use crate::profile::{ApiMode, Quirks};

fn options() -> WireOptions {
    let quirks = Quirks { prompt_cache_key: true, ..Quirks::default() };
    WireOptions { model: "m".into(), issuer: "me".into(), quirks }
}

fn request(messages: Vec<ChatMessage>) -> ChatRequest {
    ChatRequest { system: Bytes::from_static(b"sys"), ..ChatRequest::new(messages) }
}

fn text_of(request: &ChatRequest, options: &WireOptions) -> String {
    String::from_utf8(encode(request, options).body.to_vec()).unwrap()
}

fn input_of(messages: Vec<ChatMessage>, options: &WireOptions) -> Value {
    let body: Value = serde_json::from_str(&text_of(&request(messages), options)).unwrap();
    body["input"].clone()
}

fn answer(text: &str, ids: &[&str], sidecar: Option<Sidecar>) -> ChatMessage {
    let call = |id: &&str| ToolCall { id: (*id).into(), name: "a b".into(), arguments: "{ \"a\":1.50}".into() };
    ChatMessage::Assistant { text: text.into(), reasoning: None, sidecar, calls: ids.iter().map(call).collect() }
}

fn result(id: &str, images: Vec<Image>) -> ChatMessage {
    ChatMessage::Tool { call_id: id.into(), name: "a b".into(), content: "r".into(), is_error: false, images }
}

fn picture() -> Image {
    Image { media_type: "image/png".into(), data: Bytes::from_static(b"png") }
}

/// An answer of this wire, as the decoder gives it.
fn decoded(output: &str) -> crate::chat::Completion {
    let whole = format!(r#"{{"object":"response","status":"completed","error":null,"output":[{output}]}}"#);
    let context = DecodeContext { issuer: "me".into(), ..DecodeContext::default() };
    let mut decoder = crate::mode::decoder(ApiMode::Responses, context);
    let mut out = Vec::new();
    decoder.push(whole.as_bytes(), &mut out).unwrap();
    decoder.finish(crate::mode::StreamEnd::Closed, &mut out).unwrap();
    let Some(crate::chat::Delta::Done(done)) = out.pop() else { panic!("no end") };
    *done
}

const REASONING: &str = r#"{"id":"rs_1","type":"reasoning","summary":[ {"type":"summary_text","text":"h\u006d"} ],"encrypted_content":"gA=="}"#;
const KEPT: &str =
    r#"{"type":"reasoning","summary":[ {"type":"summary_text","text":"h\u006d"} ],"encrypted_content":"gA=="}"#;

#[test]
fn the_keys_have_a_fixed_order() {
    let mut full = request(vec![ChatMessage::user("hi")]);
    let parameters = json!({"type": "object"});
    full.tools = vec![ToolSchema { name: "t".into(), description: "d".into(), parameters }].into();
    full.temperature = Some(0.5);
    full.max_output_tokens = Some(9);
    full.reasoning_effort = Some("high".into());
    full.cache_key = Some("k".into());
    assert_eq!(
        text_of(&full, &options()),
        r#"{"model":"m","stream":true,"store":false,"instructions":"sys","#.to_owned()
            + r#""tools":[{"type":"function","name":"t","description":"d","strict":false,"parameters":{"type":"object","properties":{}}}],"#
            + r#""tool_choice":"auto","parallel_tool_calls":true,"max_output_tokens":9,"temperature":0.5,"#
            + r#""reasoning":{"effort":"high","summary":"auto"},"include":["reasoning.encrypted_content"],"#
            + r#""prompt_cache_key":"k","#
            + r#""input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}]}"#
    );
}

#[test]
fn what_a_provider_or_a_model_does_not_take_is_not_sent() {
    let mut full = request(vec![ChatMessage::user("hi")]);
    full.max_output_tokens = Some(9);
    full.reasoning_effort = Some("none".into());
    full.cache_key = Some("k".into());
    let body = |quirks: Quirks| -> Value {
        let options = WireOptions { model: "Plain-4".into(), issuer: "me".into(), quirks };
        serde_json::from_str(&text_of(&full, &options)).unwrap()
    };
    let plain = ResponsesQuirks {
        plain_models: vec!["plain".into()],
        output_cap: false,
        cache_retention: Some("24h".into()),
        ..ResponsesQuirks::default()
    };
    let told = body(Quirks { responses: plain, ..Quirks::default() });
    for key in ["tools", "tool_choice", "parallel_tool_calls", "reasoning", "include", "max_output_tokens"] {
        assert_eq!(told.get(key), None, "{key}");
    }
    assert_eq!((told.get("prompt_cache_key"), &told["prompt_cache_retention"]), (None, &json!("24h")));
    // No thinking, no summary of it.
    assert_eq!(body(Quirks::default())["reasoning"], json!({"effort": "none"}));
    let off = ResponsesQuirks { reasoning_summary: false, encrypted_reasoning: false, ..ResponsesQuirks::default() };
    let told = body(Quirks { responses: off, efforts: vec!["low".into()], ..Quirks::default() });
    assert_eq!((told.get("reasoning"), told.get("include")), (None, None));
}

#[test]
fn each_message_becomes_items() {
    let long = "x".repeat(65);
    let history = vec![
        ChatMessage::User { text: "see".into(), images: vec![picture()] },
        ChatMessage::User { text: String::new(), images: vec![picture()] },
        answer("so", &["c1", &long], None),
        result("c1", vec![picture()]),
        result(&long, vec![]),
        answer("", &[], None),
        ChatMessage::user(""),
    ];
    let image = json!({"type":"input_image","detail":"auto","image_url":"data:image/png;base64,cG5n"});
    let found = input_of(history.clone(), &options());
    let short = found[4]["call_id"].as_str().unwrap().to_owned();
    assert!(short.len() <= MAX_CALL_ID_BYTES);
    let name = NameMap::default().wire("a b").into_owned();
    let call = |id: &str| json!({"type":"function_call","call_id":id,"name":name,"arguments":"{ \"a\":1.50}"});
    let expect = json!([
        {"type":"message","role":"user","content":[{"type":"input_text","text":"see"},image]},
        {"type":"message","role":"user","content":[image]},
        {"type":"message","role":"assistant","content":[{"type":"output_text","text":"so"}]},
        call("c1"),
        call(&short),
        {"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"r"},image]},
        {"type":"function_call_output","call_id":short,"output":"r"},
        {"type":"message","role":"user","content":[{"type":"input_text","text":""}]},
    ]);
    assert_eq!(found, expect);
    // Where results hold no pictures, they stand behind the round.
    let mut options = options();
    options.quirks.responses.tool_images = false;
    let found = input_of(history, &options);
    assert_eq!(found[5], json!({"type":"function_call_output","call_id":"c1","output":"r"}));
    assert_eq!(found[7], json!({"type":"message","role":"user","content":[image]}));
    assert_eq!((&found[8], found.as_array().unwrap().len()), (&expect[7], 9));
}

#[test]
fn i18_each_body_is_a_byte_prefix_of_the_next() {
    let done =
        decoded(&format!(r#"{REASONING},{{"type":"function_call","call_id":"c1","name":"t","arguments":"{{}}"}}"#));
    let rounds = [
        vec![ChatMessage::user("hi 🦀")],
        vec![answer("", &["c1"], done.sidecar), result("c1", vec![picture()])],
        vec![answer("done", &[], None), ChatMessage::user("go")],
        vec![answer("", &["c2", "c3"], None), result("c2", vec![]), result("c3", vec![picture()])],
        vec![answer("end", &[], None), ChatMessage::user("x")],
    ];
    for tool_images in [true, false] {
        let mut options = options();
        options.quirks.responses.tool_images = tool_images;
        let mut all = request(Vec::new());
        all.cache_key = Some("k".into());
        let mut before: Option<String> = None;
        for round in rounds.clone() {
            all.messages.extend(round);
            let now = text_of(&all, &options);
            if let Some(before) = before {
                assert!(now.starts_with(before.strip_suffix("]}").unwrap()), "{before}\n{now}");
            }
            before = Some(now);
        }
    }
}

#[test]
fn b22_i19_reasoning_goes_back_byte_for_byte_and_to_its_issuer_only() {
    let message = r#"{"id":"msg_1","type":"message","role":"assistant","status":"completed","phase":"commentary","content":[{"type":"output_text","text":"wait","annotations":[]}]}"#;
    let call = r#"{"id":"fc_1","type":"function_call","call_id":"c1","name":"t","arguments":"{ \"a\":1.50}"}"#;
    let done = decoded(&format!("{REASONING},{message},{call}"));
    assert_eq!((done.text.as_str(), done.reasoning.as_deref()), ("", Some("hm\n\nwait")));
    let sent = |sidecar: Option<Sidecar>, options: &WireOptions| {
        text_of(&request(vec![ChatMessage::user("x"), answer("", &["c1"], sidecar), result("c1", vec![])]), options)
    };
    let sidecar = done.sidecar.unwrap();
    let body = sent(Some(sidecar.clone()), &options());
    let wait = r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"wait"}],"phase":"commentary"}"#;
    assert!(body.contains(&format!(r#"{KEPT},{wait},{{"type":"function_call","call_id":"c1","#)), "{body}");
    assert!(body.contains(r#""arguments":"{ \"a\":1.50}""#), "{body}");
    // Another issuer sees what everybody can read, and behind it the first one gets the same bytes again.
    let other = WireOptions { issuer: "other".into(), ..options() };
    assert_eq!(sent(Some(sidecar.clone()), &other), sent(None, &other));
    assert_eq!(sent(Some(sidecar), &options()), body);
}

#[test]
fn a_phase_is_said_again_and_reasoning_that_nothing_follows_is_not() {
    let message =
        r#"{"id":"m","type":"message","phase":"final_answer","content":[{"type":"output_text","text":"hi"}]}"#;
    let done = decoded(&format!("{REASONING},{message},{REASONING}"));
    let history = vec![ChatMessage::user("x"), answer("hi", &[], done.sidecar), ChatMessage::user("y")];
    let found = input_of(history, &options());
    assert_eq!(found[1], serde_json::from_str::<Value>(KEPT).unwrap());
    assert_eq!(found[2]["phase"], "final_answer");
    assert_eq!(found.as_array().unwrap().len(), 4);
    // Reasoning alone is nothing to go on with.
    let done = decoded(REASONING);
    assert!(done.sidecar.is_some());
    let found = input_of(vec![ChatMessage::user("x"), answer("", &[], done.sidecar)], &options());
    assert_eq!(found.as_array().unwrap().len(), 1);
}
