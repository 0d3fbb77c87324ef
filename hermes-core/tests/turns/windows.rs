//! Windows that providers named: adopted, kept, and used by the next engine.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hermes_core::{EndReason, Engine, EventKind, WindowKeeper};
use hermes_providers::{ErrorClass, ModelInfo, Script, ScriptedModel};

use crate::auxiliary::{long, named};
use crate::support::{World, ask, error};

/// Keeps windows in memory, and says how many requests the model had seen by then.
#[derive(Default)]
struct Kept {
    model: Mutex<Option<Arc<ScriptedModel>>>,
    windows: Mutex<Vec<(String, u64, usize)>>,
}

#[async_trait]
impl WindowKeeper for Kept {
    fn known(&self, model: &ModelInfo) -> Option<u64> {
        let kept = self.windows.lock().unwrap();
        kept.iter().find(|(name, ..)| *name == model.model).map(|(_, tokens, _)| *tokens)
    }

    async fn keep(&self, model: &ModelInfo, tokens: u64) {
        let requests = self.model.lock().unwrap().as_ref().map_or(0, |model| model.requests().len());
        self.windows.lock().unwrap().push((model.model.clone(), tokens, requests));
    }
}

fn too_long(limit: u64) -> Script {
    let mut error = error(ErrorClass::ContextOverflow);
    error.context_limit = Some(limit);
    Script::error(error)
}

fn sizes(world: &World) -> Vec<u64> {
    let windows = world.events.all().into_iter().filter_map(|event| match event.kind {
        EventKind::CompressionStarted { window, .. } => Some(window),
        _ => None,
    });
    windows.collect()
}

#[tokio::test]
async fn e43_a_window_that_a_provider_names_is_kept_before_the_request_is_made_again() {
    let world = World::new();
    let answers = (0..5).map(|_| Script::text(long(8_000)));
    let after = [too_long(32_768), Script::text("what was said"), Script::text("done")];
    let model = named("model", 1_000_000, answers.chain(after));
    let kept = Arc::new(Kept { model: Mutex::new(Some(model.clone())), ..Kept::default() });
    let mut parts = world.parts("e", model.clone());
    parts.windows = kept.clone();
    let engine = Engine::new(parts);
    let conversation = ask(&engine, None, "0").await.conversation;
    for n in 1..5 {
        ask(&engine, Some(&conversation), &n.to_string()).await;
    }
    let end = ask(&engine, Some(&conversation), "now").await;
    assert_eq!((end.reason, end.answer.as_str()), (EndReason::Answered, "done"), "{:?}", end.error);
    assert_eq!(model.requests().len(), 8, "refused, summarised, made again once");
    assert_eq!(*kept.windows.lock().unwrap(), [("model".to_owned(), 32_768, 6)], "before the next request");
    assert_eq!(sizes(&world), [32_768]);

    // Another engine needs no refusal: it shortens the history before it asks.
    let scripts = [Script::text(long(12_000)), Script::text(long(12_000)), Script::text("notes"), Script::text("fits")];
    let later = named("model", 1_000_000, scripts);
    let mut parts = world.parts("f", later.clone());
    parts.windows = kept;
    let engine = Engine::new(parts);
    for text in ["a", "b", "c"] {
        assert_eq!(ask(&engine, Some(&conversation), text).await.reason, EndReason::Answered);
    }
    assert_eq!(later.requests().len(), 4);
    assert_eq!(sizes(&world), [32_768, 32_768]);
}

#[tokio::test]
async fn a_summariser_s_word_on_its_window_is_kept_as_its_own() {
    let world = World::new();
    let notes = named("notes", 200_000, [too_long(16_384)]);
    let answers = (0..3).map(|_| Script::text(long(36_000)));
    let after = [Script::text("notes of the chosen"), Script::text("done")];
    let chosen = named("chosen", 131_072, answers.chain(after));
    let kept = Arc::new(Kept::default());
    let mut parts = world.parts("e", chosen);
    parts.windows = kept.clone();
    parts.auxiliary.compression = Some(notes);
    let engine = Engine::new(parts);
    let conversation = ask(&engine, None, "0").await.conversation;
    for text in ["1", "2"] {
        ask(&engine, Some(&conversation), text).await;
    }
    assert_eq!(ask(&engine, Some(&conversation), "3").await.answer, "done");
    let windows = kept.windows.lock().unwrap().clone();
    assert_eq!(windows, [("notes".to_owned(), 16_384, 0)]);
}
