//! The examples do what they say.

#![allow(dead_code, reason = "the examples' own `main`")]

use std::sync::{Arc, Mutex};

use hermes_core::EndReason;
use hermes_tools::ApprovalAnswer;
use hermes_tools::scripted::FixedApprover;

#[path = "../../examples/minimal_chat.rs"]
mod minimal_chat;
#[path = "../../examples/own_context_engine.rs"]
mod own_context_engine;
#[path = "../../examples/own_tool.rs"]
mod own_tool;

#[tokio::test]
async fn the_minimal_chat_shows_the_answer_as_it_comes() {
    let shown = Arc::new(Mutex::new(String::new()));
    let sink = shown.clone();
    let result = minimal_chat::chat(move |text| sink.lock().unwrap().push_str(text)).await.unwrap();
    assert_eq!(result.reason, EndReason::Answered);
    assert!(!result.answer.is_empty());
    assert_eq!(*shown.lock().unwrap(), result.answer);
}

#[tokio::test]
async fn ones_own_tool_runs_when_it_is_allowed() {
    for answer in [ApprovalAnswer::Once, ApprovalAnswer::Deny { reason: "no".to_owned() }] {
        let approver = Arc::new(FixedApprover::new(answer));
        let result = own_tool::send(approver.clone()).await.unwrap();
        assert_eq!((result.reason, result.api_calls), (EndReason::Answered, 2));
        let asked = approver.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].reasons, ["sends a postcard"]);
    }
}

#[tokio::test]
async fn ones_own_context_engine_shortens_a_long_history() {
    assert!(own_context_engine::talk(2).await.unwrap().is_empty());
    assert!(!own_context_engine::talk(12).await.unwrap().is_empty());
}
