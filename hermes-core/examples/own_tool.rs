//! A tool of your own that a person must allow.
//!
//! `cargo run -p hermes-core --example own_tool`

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use hermes_core::hermes_providers::{Script, ScriptedModel};
use hermes_core::hermes_store::memory::MemoryStore;
use hermes_core::hermes_tools::{
    ApprovalAnswer, ApprovalRequest, Approver, Authorized, Call, CallOutcome, CallReport, Risk, Tool, ToolContext,
    ToolRegistry, ToolSpec,
};
use hermes_core::{Engine, TokioClock, ToolHost, TurnResult};
use serde_json::json;

/// Sends a postcard. What is sent is gone: after a crash in the middle it is never sent again by itself.
struct Postcard(ToolSpec);

#[async_trait]
impl Tool for Postcard {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn risk(&self, _call: &Call, _cx: &ToolContext) -> Risk {
        Risk::Ask { why: "sends a postcard".to_owned() }
    }

    fn label(&self, call: &Call) -> String {
        format!("postcard to {}", call.arguments["to"])
    }

    async fn call(&self, call: Authorized<Call>, _cx: &ToolContext) -> CallReport {
        // The arguments fit the schema; only an allowed call comes this far.
        CallReport::new(CallOutcome::Ok, format!("sent to {}", call.get().arguments["to"]))
    }
}

/// Asks at the terminal. Yours may ask in a window or in a chat.
struct Terminal;

#[async_trait]
impl Approver for Terminal {
    async fn ask(&self, request: ApprovalRequest) -> ApprovalAnswer {
        let mut line = String::new();
        let question = format!("{} ({}). Allow it? [y/N] ", request.subject, request.reasons.join(", "));
        let asked = std::io::stdout().write_all(question.as_bytes()).and_then(|()| std::io::stdout().flush());
        match asked.and_then(|()| std::io::stdin().read_line(&mut line)) {
            Ok(_) if line.trim() == "y" => ApprovalAnswer::Once,
            _ => ApprovalAnswer::Deny { reason: "the user said no".to_owned() },
        }
    }
}

/// A turn in which the model wants to send a postcard, and `approver` is asked.
pub async fn send(approver: Arc<dyn Approver>) -> Result<TurnResult, Box<dyn Error>> {
    let parameters = json!({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]});
    let mut tools = ToolRegistry::new();
    tools.register(Arc::new(Postcard(ToolSpec::new("postcard", "Sends a postcard.", parameters))))?;
    // Stands for a real model: it calls the tool, then says what it did.
    let model = ScriptedModel::new(ScriptedModel::test_info());
    model.push(Script::calls([("call_1", "postcard", r#"{"to": "Ada"}"#)]));
    model.push(Script::text("I have tried to send it."));
    let clock = TokioClock::new();
    let engine = Engine::builder(Arc::new(MemoryStore::new(clock.clone())), Arc::new(model), clock)
        .tools(ToolHost::attended(tools, approver))
        .build();
    Ok(engine.ask("Send Ada a postcard.").await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let result = send(Arc::new(Terminal)).await?;
    Ok(writeln!(std::io::stdout(), "{}", result.answer)?)
}
