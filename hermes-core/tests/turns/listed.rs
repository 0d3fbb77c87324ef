//! Behaviours of the reference's list (E1-E55) that no other file shows. `cargo xtask tidy` asks for one test of each.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hermes_core::{EndReason, Engine, PromptMaterial, PromptSource};
use hermes_providers::{
    ChatMessage, ChatModel, ChatRequest, DeltaStream, ErrorClass, ModelInfo, ProviderError, Script, ScriptedModel,
};
use hermes_store::memory::MemoryStore;
use hermes_store::{ConversationId, Intent, MessagePage, SessionStore as _, StoredMessage, TranscriptStore as _, View};

use crate::auxiliary::{long, named};
use crate::support::{World, ask, calls, check_prefix, check_requests, error, model, short, submission};

/// A model that looks into the store when it is asked: what is durable before a request.
struct Looking {
    model: Arc<ScriptedModel>,
    store: MemoryStore,
    conversation: ConversationId,
    seen: Mutex<Vec<Vec<String>>>,
}

impl Looking {
    fn new(world: &World, conversation: &ConversationId, model: Arc<ScriptedModel>) -> Arc<Self> {
        let (store, conversation) = (world.store.clone(), conversation.clone());
        Arc::new(Self { model, store, conversation, seen: Mutex::default() })
    }
}

#[async_trait]
impl ChatModel for Looking {
    fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        let rows: Vec<StoredMessage> =
            self.store.messages(&self.conversation, View::Model, MessagePage::default()).await.unwrap();
        self.seen.lock().unwrap().push(short(&rows));
        self.model.stream(request).await
    }
}

/// A prompt whose memory is written to while sessions run.
#[derive(Default)]
struct Notebook(Mutex<String>);

#[async_trait]
impl PromptSource for Notebook {
    async fn material(&self, _cwd: Option<&str>) -> PromptMaterial {
        let memory = Some(self.0.lock().unwrap().clone());
        PromptMaterial { memory, date: "2026-12-02".to_owned(), ..PromptMaterial::default() }
    }
}

fn users(request: &ChatRequest, wanted: &str) -> usize {
    request.messages.iter().filter(|m| matches!(m, ChatMessage::User { text, .. } if text.contains(wanted))).count()
}

#[tokio::test]
async fn e01_the_user_s_row_is_durable_before_a_model_is_asked() {
    let world = World::new();
    let engine = world.engine("first", model([Script::text("one")]));
    let conversation = ask(&engine, None, "hello").await.conversation;
    let looking = Looking::new(&world, &conversation, model([Script::text("two")]));
    ask(&world.engine("second", looking.clone()), Some(&conversation), "and now").await;
    let seen = looking.seen.lock().unwrap();
    assert_eq!(*seen, [["user/normal:hello", "assistant/normal:one", "user/normal:and now"]]);
}

/// The Python program holds a steer in memory until the tools are done; here it is an admission from the start, and its
/// row is made of it after the last result.
#[tokio::test]
async fn i04_e21_a_steer_that_comes_while_tools_run_follows_the_last_result_and_is_sent_once() {
    let world = World::new();
    let conversation = ask(&world.engine("first", model([Script::text("one")])), None, "hello").await.conversation;
    let script = [Script::calls([("a", "act", "{\"n\":1}"), ("b", "act", "{\"n\":2}")]), calls("c"), Script::text("x")];
    let looking = Looking::new(&world, &conversation, model(script));
    let tool = world.tool().delay_ms(30);
    let engine = Engine::new(world.parts_with("e", looking.clone(), tool, Arc::new(world.store.clone())));
    let begun = engine.submit(submission(Some(&conversation), "r1", "go")).await.unwrap().receipt().clone();
    let steering = async {
        while world.ledger.events().is_empty() {
            tokio::task::yield_now().await;
        }
        let mut steer = submission(Some(&conversation), "r2", "a hint");
        steer.intent = Intent::Steer;
        engine.submit(steer).await.unwrap();
    };
    let (result, ()) = tokio::join!(engine.run_until(&conversation, &begun.admission), steering);
    assert_eq!(result.unwrap().reason, EndReason::Answered);
    let seen = looking.seen.lock().unwrap()[1].clone();
    assert_eq!(seen[4..], ["tool:ok", "tool:ok", "user/steer:a hint"], "durable before the next request");
    let requests = looking.model.requests();
    assert_eq!(requests.iter().map(|request| users(request, "a hint")).collect::<Vec<_>>(), [0, 1, 1]);
    check_requests(&requests);
    assert!(world.store.queue(&conversation).await.unwrap().is_empty());
}

#[tokio::test]
async fn i04_e22_a_steer_after_the_answer_is_the_next_input_once_also_after_a_restart() {
    for restarts in [false, true] {
        let world = World::new();
        let mut engine = world.engine("first", model([Script::text("one"), Script::text("two")]));
        let conversation = ask(&engine, None, "hello").await.conversation;
        let mut late = submission(Some(&conversation), "r2", "a late hint");
        late.intent = Intent::Steer;
        let receipt = engine.submit(late.clone()).await.unwrap().receipt().clone();
        if restarts {
            drop(engine);
            world.dead.0.lock().unwrap().push("first".to_owned());
            engine = world.engine("second", model([Script::text("two")]));
        }
        engine.drain(&conversation).await.unwrap();
        // The client asks again, as one does that has heard nothing.
        assert_eq!(engine.submit(late).await.unwrap().receipt().admission, receipt.admission);
        let result = engine.run_until(&conversation, &receipt.admission).await.unwrap();
        assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "two"), "restarts: {restarts}");
        let rows = short(&world.rows(&conversation, View::Display).await);
        assert_eq!(rows.iter().filter(|row| row.ends_with("a late hint")).count(), 1, "{rows:?}");
        assert_eq!(rows.last().unwrap(), "assistant/normal:two");
    }
}

#[tokio::test]
async fn e29_what_is_written_to_the_memory_changes_the_prompt_at_the_next_compression_and_once() {
    let world = World::new();
    let chosen = named("chosen", 131_072, (0..4).map(|_| Script::text(long(8_000))));
    let notebook = Arc::new(Notebook::default());
    *notebook.0.lock().unwrap() = "likes tea".to_owned();
    let mut parts = world.parts("e", chosen.clone());
    parts.prompt = notebook.clone();
    let engine = Engine::new(parts);
    let conversation = ask(&engine, None, "0").await.conversation;
    *notebook.0.lock().unwrap() = "likes coffee".to_owned();
    for text in ["1", "2", "3"] {
        ask(&engine, Some(&conversation), text).await;
    }
    check_requests(&chosen.requests());
    for script in ["what was said", "four", "five"] {
        chosen.push(Script::text(script));
    }
    engine.compress(&conversation, None).await.unwrap();
    *notebook.0.lock().unwrap() = "likes water".to_owned();
    ask(&engine, Some(&conversation), "4").await;
    ask(&engine, Some(&conversation), "5").await;
    let requests = chosen.requests();
    let (before, after) = (&requests[0], &requests[5..]);
    let system = |request: &ChatRequest| String::from_utf8(request.system.to_vec()).unwrap();
    assert!(system(before).contains("likes tea") && system(&after[0]).contains("likes coffee"));
    check_prefix(&after[0], &after[1]);
}

/// The Python program shortens in place by default; here that is the option, and the default opens a new session. Either
/// way nothing is inserted again by later turns.
#[tokio::test]
async fn e40_turns_after_a_compression_add_their_own_rows_and_no_other() {
    for in_place in [true, false] {
        let world = World::new();
        let chosen = named("chosen", 131_072, (0..4).map(|_| Script::text(long(8_000))));
        let mut parts = world.parts("e", chosen.clone());
        parts.settings.compression.in_place = in_place;
        let engine = Engine::new(parts);
        let conversation = ask(&engine, None, "0").await.conversation;
        for text in ["1", "2", "3"] {
            ask(&engine, Some(&conversation), text).await;
        }
        chosen.push(Script::text("what was said"));
        engine.compress(&conversation, None).await.unwrap();
        let after = short(&world.rows(&conversation, View::Model).await);
        assert!(after.len() < 8, "{}", after.len());
        for n in 4..7 {
            chosen.push(Script::text(format!("answer {n}")));
            ask(&engine, Some(&conversation), &n.to_string()).await;
        }
        let rows = short(&world.rows(&conversation, View::Model).await);
        let own = (4..7).flat_map(|n| [format!("user/normal:{n}"), format!("assistant/normal:answer {n}")]);
        let want: Vec<String> = after.into_iter().chain(own).collect();
        assert!(rows == want, "in place: {in_place}");
    }
}

#[tokio::test]
async fn e44_an_output_cap_is_lowered_below_what_is_there_and_the_history_stays() {
    let world = World::new();
    let mut too_much = error(ErrorClass::OutputCap);
    too_much.output_limit = Some(1_000);
    let model = model([Script::error(too_much), Script::text("ok")]);
    let mut parts = world.parts("e", model.clone());
    parts.settings.max_output_tokens = Some(8_000);
    let result = ask(&Engine::new(parts), None, "go").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "ok"));
    let requests = model.requests();
    assert_eq!(requests.iter().map(|request| request.max_output_tokens).collect::<Vec<_>>(), [Some(8_000), Some(936)]);
    assert_eq!(requests[0].messages, requests[1].messages);
}
