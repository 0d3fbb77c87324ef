//! Titles: given once, after an answer, and never over a person's.

use std::sync::Arc;

use async_trait::async_trait;
use hermes_core::{Auxiliary, EndReason, Engine, EventKind, limits};
use hermes_providers::{
    ChatMessage, ChatModel, ChatRequest, DeltaStream, ErrorClass, Finish, ModelInfo, ProviderError, Script,
    ScriptedModel, Usage,
};
use hermes_store::memory::MemoryStore;
use hermes_store::{
    ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, Fence, LeaseStore as _, OwnerId, SessionStore as _,
    TitleSource, TurnId, UsageTotals, View,
};

use crate::auxiliary::named;
use crate::support::{World, ask, check_requests, error, model};

async fn lease(store: &MemoryStore, conversation: &ConversationId, name: &str) -> Fence {
    let claim = ClaimRequest {
        conversation: conversation.clone(),
        owner: OwnerId::parse(name).unwrap(),
        turn: TurnId::parse(&format!("{name}-edit")).unwrap(),
        ttl_ms: 600_000,
        policy: ClaimPolicy::LeaseOnly,
    };
    let ClaimOutcome::Leased { fence } = store.claim(claim).await.unwrap() else { panic!("no lease") };
    fence
}

async fn rename(store: &MemoryStore, conversation: &ConversationId, title: &str) {
    let fence = lease(store, conversation, "person").await;
    store.set_title(&fence, title, TitleSource::User).await.unwrap();
    store.release(&fence).await.unwrap();
}

async fn title(world: &World, conversation: &ConversationId) -> Option<(String, TitleSource)> {
    let record = world.store.conversation(conversation).await.unwrap();
    record.title.zip(record.title_source)
}

async fn counted(world: &World, conversation: &ConversationId) -> Option<UsageTotals> {
    let sums = world.store.usage(conversation).await.unwrap();
    sums.into_iter().find(|sums| sums.task == "title_generation")
}

fn told(world: &World) -> Vec<String> {
    let titles = world.events.all().into_iter().filter_map(|event| match event.kind {
        EventKind::TitleChanged { title, source: TitleSource::Model } => Some(title),
        _ => None,
    });
    titles.collect()
}

#[tokio::test]
async fn the_first_answer_gets_a_title_once_and_the_transcript_shows_nothing_of_it() {
    let world = World::new();
    let usage = Usage { input_uncached: Some(90), output: Some(5), ..Usage::default() };
    let chosen = model([Script::text("Use a map."), Script::text("\"Maps in Rust.\"\n").with_usage(usage)]);
    let engine = world.engine("e", chosen.clone());
    let first = ask(&engine, None, "How do I count words?").await;
    assert_eq!((first.answer.as_str(), chosen.requests().len()), ("Use a map.", 1), "the answer waits for no title");

    assert_eq!(engine.title(&first.conversation).await.unwrap().as_deref(), Some("Maps in Rust"));
    assert_eq!(title(&world, &first.conversation).await, Some(("Maps in Rust".into(), TitleSource::Model)));
    assert_eq!(told(&world), ["Maps in Rust"]);
    let asked = &chosen.requests()[1];
    assert!(asked.tools.is_empty() && asked.messages.len() == 1);
    let ChatMessage::User { text, .. } = &asked.messages[0] else { panic!("{asked:?}") };
    assert!(text.contains("How do I count words?") && text.contains("Use a map."));
    let sums = counted(&world, &first.conversation).await.unwrap();
    assert_eq!((sums.requests, sums.input, sums.output), (1, 90, 5));

    // Again: nobody is asked, and the next turn goes on as if nothing had been.
    assert_eq!(engine.title(&first.conversation).await.unwrap(), None);
    chosen.push(Script::text("You are welcome."));
    assert_eq!(ask(&engine, Some(&first.conversation), "Thanks").await.answer, "You are welcome.");
    let requests = chosen.requests();
    assert_eq!(requests.len(), 3);
    check_requests(&[requests[0].clone(), requests[2].clone()]);
    assert_eq!(world.rows(&first.conversation, View::Display).await.len(), 4);
}

#[tokio::test]
async fn a_turn_without_an_answer_gets_no_title_and_the_next_one_with_an_answer_does() {
    let world = World::new();
    let chosen = model([Script::error(error(ErrorClass::Auth))]);
    let engine = world.engine("e", chosen.clone());
    let first = ask(&engine, None, "first").await;
    assert_eq!(first.reason, EndReason::AuthFailed);
    assert_eq!(engine.title(&first.conversation).await.unwrap(), None);
    assert_eq!(chosen.requests().len(), 1, "nobody was asked");
    chosen.push(Script::text("an answer"));
    ask(&engine, Some(&first.conversation), "second").await;
    chosen.push(Script::text("A title"));
    assert_eq!(engine.title(&first.conversation).await.unwrap().as_deref(), Some("A title"));
}

/// A model in front of which a person gives a title while it thinks of one.
struct Slow {
    inner: Arc<ScriptedModel>,
    store: MemoryStore,
    conversation: ConversationId,
}

#[async_trait]
impl ChatModel for Slow {
    fn info(&self) -> &ModelInfo {
        self.inner.info()
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        rename(&self.store, &self.conversation, "A person's").await;
        self.inner.stream(request).await
    }
}

#[tokio::test]
async fn a_title_that_a_person_gave_before_or_meanwhile_stays() {
    let world = World::new();
    let engine = world.engine("e", model([Script::text("one"), Script::text("two")]));
    let before = ask(&engine, None, "x").await.conversation;
    let meanwhile = ask(&engine, None, "y").await.conversation;
    rename(&world.store, &before, "Mine").await;
    assert_eq!(engine.title(&before).await.unwrap(), None);
    assert_eq!(title(&world, &before).await, Some(("Mine".into(), TitleSource::User)));

    let inner = named("titles", 64_000, [Script::text("The model's")]);
    let slow = Slow { inner, store: world.store.clone(), conversation: meanwhile.clone() };
    let mut parts = world.parts("f", model([]));
    parts.auxiliary = Auxiliary { title: Some(Arc::new(slow)), ..Auxiliary::default() };
    let engine = Engine::new(parts);
    assert_eq!(engine.title(&meanwhile).await.unwrap(), None);
    assert_eq!(title(&world, &meanwhile).await, Some(("A person's".into(), TitleSource::User)));
    assert_eq!(told(&world).len(), 0);
    assert_eq!(counted(&world, &meanwhile).await.unwrap().requests, 1, "it was paid for all the same");
}

#[tokio::test]
async fn titles_can_be_switched_off() {
    let world = World::new();
    let chosen = model([Script::text("one")]);
    let mut parts = world.parts("e", chosen.clone());
    parts.settings.titles = false;
    let engine = Engine::new(parts);
    let conversation = ask(&engine, None, "x").await.conversation;
    assert_eq!(engine.title(&conversation).await.unwrap(), None);
    assert_eq!(chosen.requests().len(), 1);
}

#[tokio::test]
async fn a_model_that_gives_no_title_costs_no_more_than_its_limit() {
    let world = World::new();
    let chosen = model([Script::text("an answer")]);
    let none = ["", "...", "An essay. ", "cut"];
    let scripts = (0..20).map(|n| match none[n % none.len()] {
        "cut" => Script::text("A title that was").with_finish(Finish::Length),
        "An essay. " => Script::text("An essay. ".repeat(50)),
        text => Script::text(text),
    });
    let titles = named("titles", 64_000, scripts);
    let mut parts = world.parts("e", chosen.clone());
    parts.auxiliary = Auxiliary { title: Some(titles.clone()), ..Auxiliary::default() };
    let engine = Engine::new(parts);
    let conversation = ask(&engine, None, "x").await.conversation;
    for _ in 0..20 {
        assert_eq!(engine.title(&conversation).await.unwrap(), None);
    }
    assert_eq!(titles.requests().len() as u64, limits::TITLE_REQUESTS_MAX);
    assert_eq!(counted(&world, &conversation).await.unwrap().requests, limits::TITLE_REQUESTS_MAX);
    assert_eq!(title(&world, &conversation).await, None);
}

#[tokio::test]
async fn a_title_waits_for_the_turn_that_runs_and_the_turn_does_not_wait_for_it() {
    let world = World::new();
    let titles = named("titles", 64_000, [Script::text("A title")]);
    let chosen = model([Script::text("one")]);
    let mut parts = world.parts("e", chosen.clone());
    parts.auxiliary = Auxiliary { title: Some(titles), ..Auxiliary::default() };
    let engine = Engine::new(parts);
    let conversation = ask(&engine, None, "x").await.conversation;
    let fence = lease(&world.store, &conversation, "other").await;
    let giving = engine.title(&conversation);
    let freeing = async {
        world.store.renew(&fence, 600_000).await.unwrap();
        hermes_core::Clock::sleep(world.clock.as_ref(), limits::TITLE_RETRY_MS * 3).await;
        assert_eq!(title(&world, &conversation).await, None);
        world.store.release(&fence).await.unwrap();
    };
    let (given, ()) = futures::join!(giving, freeing);
    assert_eq!(given.unwrap().as_deref(), Some("A title"));

    // The lease is free again at once.
    chosen.push(Script::text("two"));
    assert_eq!(ask(&engine, Some(&conversation), "y").await.answer, "two");
}

#[tokio::test]
async fn an_engine_that_ends_waits_for_no_title_and_counts_what_was_asked() {
    let world = World::new();
    let engine = world.engine("e", model([Script::text("one"), Script::hang()]));
    let conversation = ask(&engine, None, "x").await.conversation;
    let begun = hermes_core::Clock::now_ms(world.clock.as_ref());
    let ending = async {
        hermes_core::Clock::sleep(world.clock.as_ref(), 1_000).await;
        engine.wind_down(600_000).await
    };
    let (given, ended) = futures::join!(engine.title(&conversation), ending);
    assert_eq!((given.unwrap(), ended), (None, true));
    let took = hermes_core::Clock::now_ms(world.clock.as_ref()) - begun;
    assert!(took < i64::try_from(limits::TITLE_TIMEOUT_MS).unwrap(), "{took} ms");
    assert_eq!(engine.title(&conversation).await.unwrap(), None);
    assert_eq!(counted(&world, &conversation).await.map(|sums| sums.requests), Some(1));
}

#[tokio::test]
async fn a_conversation_that_is_gone_or_has_no_row_gets_none() {
    let world = World::new();
    let engine = world.engine("e", model([]));
    let gone = ConversationId::parse("gone").unwrap();
    assert_eq!(engine.title(&gone).await.unwrap_err().code(), "HM1003");
    let receipt = engine.submit("waits".into()).await.unwrap().receipt().clone();
    assert_eq!(engine.title(&receipt.conversation).await.unwrap(), None);
}
