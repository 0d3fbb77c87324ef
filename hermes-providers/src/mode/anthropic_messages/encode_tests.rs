//! Bodies of requests.

use serde_json::{Value, json};

use super::*;
use crate::chat::{ChatMessage, Sidecar, ToolCall};
use crate::mode::StreamEnd;
use crate::mode::turns::EARLIER;
use crate::profile::Quirks;

fn options() -> WireOptions {
    WireOptions { model: "m".into(), issuer: "me".into(), quirks: Quirks::default() }
}

fn request(messages: Vec<ChatMessage>, cache_ends: Vec<usize>) -> ChatRequest {
    ChatRequest { system: bytes::Bytes::from_static(b"sys"), cache_ends, ..ChatRequest::new(messages) }
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

/// What the decoder makes of a whole message with these blocks.
fn received(blocks: &str, reason: &str) -> crate::chat::Completion {
    let whole = format!(r#"{{"type":"message","content":[{blocks}],"stop_reason":"{reason}","usage":null}}"#);
    let context = crate::mode::DecodeContext { issuer: "me".into(), ..crate::mode::DecodeContext::default() };
    let mut decoder = crate::mode::decoder(crate::profile::ApiMode::AnthropicMessages, context);
    let mut out = Vec::new();
    decoder.push(whole.as_bytes(), &mut out).unwrap();
    decoder.finish(StreamEnd::Closed, &mut out).unwrap();
    match out.pop() {
        Some(crate::chat::Delta::Done(done)) => *done,
        other => panic!("no end: {other:?}"),
    }
}

fn said_again(done: crate::chat::Completion) -> ChatMessage {
    let calls = done.calls.into_iter().map(|made| ToolCall {
        id: made.id.unwrap_or_default(),
        name: made.name,
        arguments: made.arguments,
    });
    let calls = calls.collect();
    ChatMessage::Assistant { text: done.text, reasoning: done.reasoning, sidecar: done.sidecar, calls }
}

const SERVER_TOOLS: &str = concat!(
    r#"{"type":"text","text":"I look."},"#,
    r#"{"type":"server_tool_use","id":"srv","name":"web_search","input":{ "query":"x"}},"#,
    r#"{"type":"web_search_tool_result","tool_use_id":"srv","content":[{"type":"web_search_result","encrypted_content":"E"}]},"#,
    r#"{"type":"text","text":"Found.","citations":[{"type":"web_search_result_location","encrypted_index":"I"}]}"#
);

#[test]
fn b24_a_paused_turn_with_a_server_s_tools_goes_back_unchanged_as_the_last_message() {
    let done = received(SERVER_TOOLS, "pause_turn");
    assert_eq!((done.text.as_str(), done.calls.len(), &done.finish), ("I look.Found.", 0, &crate::chat::Finish::Pause));
    let body = text_of(&request(vec![ChatMessage::user("x"), said_again(done.clone())], vec![]));
    assert!(body.ends_with(&format!("{{\"role\":\"assistant\",\"content\":[{SERVER_TOOLS}]}}]}}")), "{body}");
    // The next part of it is the same turn: neighbours of one role are one message.
    let more = received(r#"{"type":"text","text":"Done."}"#, "end_turn");
    let history = vec![ChatMessage::user("x"), said_again(done), said_again(more), ChatMessage::user("y")];
    let body = text_of(&request(history, vec![]));
    assert!(body.contains(&format!("[{SERVER_TOOLS},{{\"type\":\"text\",\"text\":\"Done.\"}}]")), "{body}");
}

#[test]
fn i21_nothing_opaque_reaches_another_issuer() {
    let thinking = r#"{"type":"thinking","thinking":"hm","signature":"S"},{"type":"redacted_thinking","data":"D"},"#;
    let mut done = received(&[thinking, SERVER_TOOLS].concat(), "end_turn");
    let own = text_of(&request(vec![ChatMessage::user("x"), said_again(done.clone())], vec![]));
    assert!(own.contains(thinking) && own.contains("\"E\""), "{own}");
    done.sidecar.as_mut().unwrap().issuer = "other".into();
    let body: Value =
        serde_json::from_str(&text_of(&request(vec![ChatMessage::user("x"), said_again(done)], vec![]))).unwrap();
    assert_eq!(body["messages"][1]["content"], json!([{"type":"text","text":"I look.Found."}]));
}

#[test]
fn redacted_thinking_alone_before_a_call_goes_back_in_its_place() {
    let blocks = r#"{"type":"redacted_thinking","data":"D"},{"type":"tool_use","id":"a","name":"t","input":{}}"#;
    let done = received(blocks, "tool_use");
    assert_eq!((done.reasoning.as_deref(), done.calls.len()), (None, 1));
    let body = text_of(&request(vec![ChatMessage::user("x"), said_again(done), result("a")], vec![]));
    assert!(body.contains(&format!("\"content\":[{blocks}]")), "{body}");
}

fn image(kind: &str) -> Image {
    Image { media_type: kind.into(), data: bytes::Bytes::from_static(b"PIX") }
}

#[test]
fn pictures_stand_behind_the_text_also_inside_results() {
    let look = ChatMessage::Tool {
        call_id: "a".into(),
        name: "t".into(),
        content: "r".into(),
        is_error: true,
        images: vec![image("image/gif")],
    };
    let user = ChatMessage::User { text: "see".into(), images: vec![image("image/png")] };
    let body: Value = serde_json::from_str(&text_of(&request(vec![user, call("a", None), look], vec![]))).unwrap();
    let picture = |kind: &str| json!({"type":"image","source":{"type":"base64","media_type":kind,"data":"UElY"}});
    assert_eq!(body["messages"][0]["content"], json!([{"type":"text","text":"see"}, picture("image/png")]));
    // A result that reports a failure may hold nothing but text, so with a picture it reports none.
    assert_eq!(
        body["messages"][2]["content"],
        json!([{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"r"}, picture("image/gif")]}])
    );
}

#[test]
fn there_are_never_more_than_four_cache_marks_and_the_newest_ends_keep_theirs() {
    let tool = |name: &str| crate::chat::ToolSchema {
        name: name.into(),
        description: String::new(),
        parameters: json!({"type":"object","properties":{}}),
    };
    let history: Vec<ChatMessage> = (0..9).map(|n| ChatMessage::user(format!("m{n}"))).collect();
    let mut request = request(history, (0..9).collect());
    request.tools = vec![tool("a"), tool("b")].into();
    let body: Value = serde_json::from_str(&text_of(&request)).unwrap();
    assert_eq!(text_of(&request).matches(MARK).count(), MAX_CACHE_MARKS);
    let marked = |value: &Value| value.get("cache_control").is_some();
    assert!(!marked(&body["tools"][0]) && marked(&body["tools"][1]) && marked(&body["system"][0]));
    let blocks = body["messages"][0]["content"].as_array().unwrap();
    let ends: Vec<usize> = (0..9).filter(|at| marked(&blocks[*at])).collect();
    assert_eq!(ends, [7, 8]);
    request.cache_ends.clear();
    assert_eq!(text_of(&request).matches(MARK).count(), 0, "nobody asked for a cache");
}

/// `thinking`, `output_config`, `temperature`, `max_tokens` and the betas of a request to a model of the maker.
fn head(model: &str, effort: Option<&str>) -> (Value, Value, Value, Value, Option<String>) {
    let quirks = crate::profile::Profiles::bundled().unwrap().get("anthropic").unwrap().quirks.clone();
    let options = WireOptions { model: model.into(), issuer: "me".into(), quirks };
    let mut request = request(vec![ChatMessage::user("x")], vec![]);
    (request.temperature, request.reasoning_effort) = (Some(0.5), effort.map(str::to_owned));
    let encoded = encode(&request, &options);
    assert_eq!(encoded.headers[0], ("anthropic-version", "2023-06-01".to_owned()));
    let beta = encoded.headers.iter().find(|(name, _)| *name == "anthropic-beta").map(|(_, value)| value.clone());
    let body: Value = serde_json::from_slice(&encoded.body).unwrap();
    let of = |key: &str| body[key].clone();
    (of("thinking"), of("output_config"), of("temperature"), of("max_tokens"), beta)
}

#[test]
fn thinking_is_said_in_the_way_of_each_family_with_its_betas_and_never_beside_a_temperature() {
    let interleaved = Some("interleaved-thinking-2025-05-14".to_owned());
    let (half, null) = (json!(0.5), Value::Null);
    let budget = |tokens: u64| json!({"type":"enabled","budget_tokens":tokens});
    let adaptive = json!({"type":"adaptive","display":"summarized"});
    let effort = |word: &str| json!({"effort":word});
    let off = json!({"type":"disabled"});
    for (model, wanted, thinking, output, temperature, most, beta) in [
        ("claude-3-haiku-20240307", Some("high"), &null, null.clone(), &half, 4096, None),
        ("claude-sonnet-4-5", None, &null, null.clone(), &half, 64_000, interleaved.clone()),
        ("claude-sonnet-4-5", Some("high"), &budget(16_384), null.clone(), &null, 64_000, interleaved.clone()),
        ("claude-opus-4-1", Some("max"), &budget(16_384), null.clone(), &null, 32_000, interleaved.clone()),
        ("claude-sonnet-4-6", Some("minimal"), &adaptive, effort("low"), &null, 128_000, None),
        ("claude-sonnet-4-6", Some("none"), &off, null.clone(), &half, 128_000, None),
        ("claude-opus-4-8", Some("xhigh"), &adaptive, effort("xhigh"), &null, 128_000, None),
        ("claude-opus-4-8", None, &null, null.clone(), &null, 128_000, None),
        ("claude-opus-5-5", Some("none"), &null, effort("low"), &null, 128_000, None),
        ("another-model", Some("high"), &null, null.clone(), &half, 16_384, None),
    ] {
        let expect = (thinking.clone(), output, temperature.clone(), json!(most), beta);
        assert_eq!(head(model, wanted), expect, "{model} {wanted:?}");
    }
}

#[test]
fn a_history_that_begins_with_an_answer_gets_a_user_s_word_first_and_blank_text_is_not_sent() {
    let body: Value =
        serde_json::from_str(&text_of(&request(vec![ChatMessage::user(" \n"), call("a", None), result("a")], vec![])))
            .unwrap();
    assert_eq!(body["messages"][0], json!({"role":"user","content":[{"type":"text","text":EARLIER}]}));
    assert_eq!(body["messages"].as_array().unwrap().len(), 3);
}

#[test]
fn thinking_without_a_signature_goes_back_only_where_nothing_is_signed() {
    let done = received(r#"{"type":"thinking","thinking":"hm"},{"type":"text","text":"so"}"#, "end_turn");
    let request = request(vec![ChatMessage::user("x"), said_again(done)], vec![]);
    assert!(!text_of(&request).contains("hm"));
    let mut unsigned = options();
    unsigned.quirks.messages.unsigned_thinking = true;
    let body = encode(&request, &unsigned).body;
    assert!(
        String::from_utf8(body.to_vec()).unwrap().contains(r#"{"type":"thinking","thinking":"hm"},{"type":"text","#)
    );
}

#[test]
fn a_budget_is_not_asked_for_while_the_newest_calls_were_made_without_thinking() {
    let quirks = crate::profile::Profiles::bundled().unwrap().get("anthropic").unwrap().quirks.clone();
    let options = WireOptions { model: "claude-sonnet-4-5".into(), issuer: "me".into(), quirks };
    let thinking = |messages| {
        let request = ChatRequest { reasoning_effort: Some("high".into()), ..request(messages, vec![]) };
        serde_json::from_slice::<Value>(&encode(&request, &options).body).unwrap()["thinking"].is_object()
    };
    let foreign = vec![ChatMessage::user("x"), call("a", None), result("a")];
    assert!(thinking(vec![ChatMessage::user("x")]) && !thinking(foreign.clone()));
    let own = received(
        r#"{"type":"thinking","thinking":"hm","signature":"S"},{"type":"tool_use","id":"b","name":"t","input":{}}"#,
        "tool_use",
    );
    assert!(thinking([foreign, vec![said_again(own), result("b")]].concat()));
}

#[test]
fn tools_have_legal_names_and_always_a_schema() {
    let tool = |name: &str, description: &str, parameters: Value| crate::chat::ToolSchema {
        name: name.into(),
        description: description.into(),
        parameters,
    };
    let mut request = request(vec![ChatMessage::user("x")], vec![]);
    request.tools = vec![tool("a b", "does", json!({"type":"object"})), tool("c", " ", Value::Null)].into();
    let body: Value = serde_json::from_str(&text_of(&request)).unwrap();
    let names = NameMap::new(&request.tools);
    assert_eq!(body["tools"][0]["name"], *names.wire("a b"));
    assert_eq!(body["tools"][0]["description"], "does");
    assert_eq!((&body["tools"][1]["name"], body["tools"][1].get("description")), (&json!("c"), None));
    assert!(body["tools"].as_array().unwrap().iter().all(|tool| tool["input_schema"]["type"] == "object"));
    request.tools = vec![].into();
    assert!(!text_of(&request).contains("tools"));
}
