//! What tools know of a conversation in a process that did not run its calls.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hermes_core::testing::parts;
use hermes_core::{EndReason, Engine, EventKind};
use hermes_providers::{ChatModel, Script};
use hermes_store::{ConversationId, View};
use hermes_tools::{
    Authorized, Call, CallOutcome, CallReport, Risk, Tool, ToolContext, ToolRegistry, ToolSession, ToolSpec,
};
use serde_json::json;

use crate::auxiliary::{long, named};
use crate::support::{World, ask};

/// A tool that has a state of its own, and hears what its results once said.
struct Board {
    spec: ToolSpec,
    heard: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Tool for Board {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self, _call: &Call, _cx: &ToolContext) -> Risk {
        Risk::None
    }

    fn label(&self, _call: &Call) -> String {
        "board".to_owned()
    }

    async fn call(&self, _call: Authorized<Call>, _cx: &ToolContext) -> CallReport {
        CallReport::new(CallOutcome::Ok, "state 1")
    }

    fn hydrate(&self, _session: &ToolSession, result: &str) {
        self.heard.lock().unwrap().push(result.to_owned());
    }
}

fn engine(world: &World, name: &str, model: Arc<dyn ChatModel>) -> (Engine, Arc<Mutex<Vec<String>>>) {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut registry = ToolRegistry::new();
    let spec = ToolSpec::new("board", "Keeps a state.", json!({"type": "object", "properties": {}}));
    registry.register(Arc::new(Board { spec, heard: heard.clone() })).unwrap();
    let store = Arc::new(world.store.clone());
    let parts = parts(name, store, model, registry, world.clock.clone(), world.events.clone());
    (Engine::new(parts), heard)
}

/// A conversation whose third turn called the tool, and whose history was shortened since.
async fn shortened(world: &World) -> ConversationId {
    let mut scripts = vec![Script::text("a"), Script::text("b"), Script::calls([("c", "board", "{}")])];
    scripts.extend((0..3).map(|_| Script::text(long(36_000))));
    scripts.extend([Script::text("what was said"), Script::text("done")]);
    let (engine, _) = engine(world, "first", named("chosen", 131_072, scripts));
    let conversation = ask(&engine, None, "first").await.conversation;
    for text in ["second", "call it", "fourth", "fifth", "sixth"] {
        let end = ask(&engine, Some(&conversation), text).await;
        assert_eq!(end.reason, EndReason::Answered, "{:?}", end.error);
    }
    assert!(world.events.all().iter().any(|event| matches!(event.kind, EventKind::Compressed { .. })));
    conversation
}

#[tokio::test]
async fn a_tool_gets_its_state_back_in_another_process_also_after_a_compression() {
    let world = World::new();
    let conversation = shortened(&world).await;
    let in_view = world.rows(&conversation, View::Model).await.iter().any(|row| row.answers.is_some());
    assert!(!in_view, "the compression took the result out of the model's view");
    let (second, heard) = engine(&world, "second", named("chosen", 131_072, [Script::text("a"), Script::text("b")]));
    ask(&second, Some(&conversation), "go on").await;
    assert_eq!(*heard.lock().unwrap(), ["state 1"]);
    ask(&second, Some(&conversation), "and on").await;
    assert_eq!(heard.lock().unwrap().len(), 1, "a process that has the state does not read it again");
}
