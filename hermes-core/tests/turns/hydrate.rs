//! What tools know of a conversation in a process that did not run its calls.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::StreamExt as _;
use hermes_core::testing::{Fault, FaultStore, parts};
use hermes_core::{EndReason, Engine, EventKind};
use hermes_providers::{ChatModel, Script};
use hermes_store::{ConversationId, Store, View};
use hermes_tools::{
    Authorized, Call, CallOutcome, CallReport, Risk, Tool, ToolContext, ToolRegistry, ToolSession, ToolSpec,
};
use serde_json::json;

use crate::auxiliary::{long, named};
use crate::support::{World, ask, submission};

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
    engine_over(world, Arc::new(world.store.clone()), name, model)
}

fn engine_over(
    world: &World,
    store: Arc<dyn Store>,
    name: &str,
    model: Arc<dyn ChatModel>,
) -> (Engine, Arc<Mutex<Vec<String>>>) {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut registry = ToolRegistry::new();
    let spec = ToolSpec::new("board", "Keeps a state.", json!({"type": "object", "properties": {}}));
    registry.register(Arc::new(Board { spec, heard: heard.clone() })).unwrap();
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

#[tokio::test]
async fn a_turn_that_fails_before_the_tools_have_their_state_leaves_it_to_the_next_one() {
    let mut failed = 0;
    for at in 0..12 {
        let world = World::new();
        let scripts = [Script::calls([("c", "board", "{}")]), Script::text("done")];
        let (first, _) = engine(&world, "first", named("chosen", 131_072, scripts));
        let conversation = ask(&first, None, "call it").await.conversation;
        let store = FaultStore::new(Arc::new(world.store.clone()), Fault::FailsOnce, at);
        let scripts = (0..4).map(|_| Script::text("fine"));
        let (second, heard) = engine_over(&world, store, "second", named("chosen", 131_072, scripts));
        let ends: Vec<_> = futures::stream::iter(["go on", "and on"])
            .then(|text| second.ask(submission(Some(&conversation), text, text)))
            .collect()
            .await;
        if !ends[1].as_ref().is_ok_and(|end| end.reason == EndReason::Answered) {
            continue;
        }
        failed += usize::from(ends[0].as_ref().is_ok_and(|end| end.reason == EndReason::PersistenceFailed));
        assert_eq!(*heard.lock().unwrap(), ["state 1"], "a fault at write {at}");
    }
    assert!(failed > 0, "no fault came before the tools had their state");
}
