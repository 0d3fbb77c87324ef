//! Turns with the practice model.

use super::*;
use crate::chat::{ToolCall, ToolSchema};

const ALL: [&str; 5] = ["terminal", "read_file", "write_file", "search_files", "todo_list"];

fn request(tools: &[&str], text: &str) -> ChatRequest {
    let schema = |name: &&str| ToolSchema {
        name: (*name).to_owned(),
        description: String::new(),
        parameters: serde_json::json!({"type": "object"}),
    };
    ChatRequest {
        tools: tools.iter().map(schema).collect::<Vec<_>>().into(),
        ..ChatRequest::new(vec![ChatMessage::user(text)])
    }
}

async fn ask(request: &ChatRequest) -> Completion {
    let deltas: Vec<Delta> =
        PracticeModel::new().stream(request).await.unwrap().map(|delta| delta.unwrap()).collect().await;
    let streamed: String = deltas
        .iter()
        .filter_map(|delta| match delta {
            Delta::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let Some(Delta::Done(done)) = deltas.into_iter().last() else { panic!("no end") };
    assert_eq!(streamed, done.text);
    assert_eq!(done.usage, None);
    *done
}

/// Adds the answer and one result for each of its calls.
fn go_on(request: &mut ChatRequest, done: &Completion, results: &[(&str, bool)]) {
    let calls: Vec<ToolCall> = done
        .calls
        .iter()
        .map(|call| ToolCall {
            id: call.id.clone().unwrap(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        })
        .collect();
    request.messages.push(ChatMessage::Assistant {
        text: done.text.clone(),
        reasoning: None,
        sidecar: None,
        calls: calls.clone(),
    });
    for (call, (content, is_error)) in calls.iter().zip(results) {
        request.messages.push(ChatMessage::Tool {
            call_id: call.id.clone(),
            name: call.name.clone(),
            content: (*content).to_owned(),
            is_error: *is_error,
            images: Vec::new(),
        });
    }
}

#[tokio::test]
async fn a_command_is_run_and_its_output_shown() {
    let mut request = request(&ALL, "run: echo hello");
    let done = ask(&request).await;
    assert_eq!(done.finish, Finish::ToolCalls);
    assert_eq!(
        (done.calls[0].name.as_str(), done.calls[0].arguments.as_str()),
        ("terminal", r#"{"command":"echo hello"}"#)
    );
    go_on(&mut request, &done, &[(r#"{"output":"hello\n","exit_code":0}"#, false)]);
    let done = ask(&request).await;
    assert_eq!(done.finish, Finish::Stop);
    assert_eq!(done.text, "The command `echo hello` printed:\n\n```\nhello\n```");
}

#[tokio::test]
async fn lines_go_out_together_and_then_makes_rounds_with_new_ids() {
    let mut request = request(&ALL, "run: a\nread: b\nthen\nwrite: c: d");
    let first = ask(&request).await;
    assert_eq!(first.calls.len(), 2);
    go_on(&mut request, &first, &[(r#"{"output":"","exit_code":0}"#, false), (r#"{"content":"1|x"}"#, false)]);
    let second = ask(&request).await;
    assert_eq!(second.calls[0].name, "write_file");
    assert_eq!(second.calls[0].arguments, r#"{"path":"c","content":"d"}"#);
    assert!(first.calls.iter().all(|call| call.id != second.calls[0].id));
    go_on(&mut request, &second, &[(r#"{"bytes_written":1}"#, false)]);
    let end = ask(&request).await.text;
    assert_eq!(
        end,
        "The command `a` printed nothing.\n\nReading `b` gave:\n\n```\n1|x\n```\n\nWriting `c` worked (1 bytes)."
    );
}

#[tokio::test]
async fn a_failure_is_reported_and_stops_the_rest() {
    let mut request = request(&ALL, "run: false\nthen\nrun: never");
    let done = ask(&request).await;
    go_on(&mut request, &done, &[(r#"{"error":"The user denied it."}"#, true)]);
    let done = ask(&request).await;
    assert!(done.calls.is_empty());
    assert_eq!(
        done.text,
        "The command `false` failed: The user denied it.\n\nBecause of that I did not go on with `run: never`."
    );
}

#[tokio::test]
async fn an_exit_code_is_told() {
    let mut request = request(&ALL, "run: x");
    let done = ask(&request).await;
    go_on(&mut request, &done, &[(r#"{"output":"oops ``` end","exit_code":2}"#, true)]);
    let text = ask(&request).await.text;
    assert_eq!(text, "The command `x` printed and ended with exit code 2:\n\n````\noops ``` end\n````");
}

#[tokio::test]
async fn a_missing_tool_is_named() {
    let done = ask(&request(&["read_file"], "run: ls\nread: x")).await;
    assert_eq!(done.calls.len(), 1);
    let done = ask(&request(&[], "run: ls")).await;
    assert_eq!(done.text, "I cannot do `run: ls`: the tool `terminal` is not offered to me.");
}

#[tokio::test]
async fn everything_else_gets_an_honest_help() {
    for text in ["help", "", "Why is the sky blue?"] {
        let done = ask(&request(&ALL, text)).await;
        assert!(done.text.contains("practice model") && done.text.contains("hermes model"), "{}", done.text);
        assert_eq!(done.finish, Finish::Stop);
    }
}

#[tokio::test]
async fn the_next_message_is_a_new_request() {
    let mut request = request(&ALL, "run: a");
    let done = ask(&request).await;
    go_on(&mut request, &done, &[(r#"{"output":"x","exit_code":0}"#, false)]);
    request.messages.push(ChatMessage::user("run: b"));
    let done = ask(&request).await;
    assert_eq!(done.calls[0].id.as_deref(), Some("practice_2"));
}
