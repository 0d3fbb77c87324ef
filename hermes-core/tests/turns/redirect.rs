//! The user speaks while the model is asked: the request makes room, and no word is lost or read twice.

use std::sync::Arc;

use hermes_core::testing::{Fault, FaultStore};
use hermes_core::{EndReason, Engine, EventKind, Interrupt, Stopper, Submission, TakenInput, TurnResult};
use hermes_providers::{ChatMessage, ChatModel, ChatRequest, DeltaStream, ErrorClass, ModelInfo, ProviderError};
use hermes_providers::{Script, ScriptedModel};
use hermes_store::{AdmissionOutcome, ConversationId, Intent, MessageKind, Role, SessionStore as _, View};

use crate::support::{World, ask, calls, check_requests, error, model, short, submission};

fn redirect(conversation: &ConversationId, request_id: &str, text: &str) -> Submission {
    Submission { intent: Intent::Redirect, ..submission(Some(conversation), request_id, text) }
}

/// Waits until the model has been asked so often.
async fn asked(model: &ScriptedModel, times: usize) {
    while model.requests().len() < times {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

/// Waits until clients have seen this text.
async fn shown(world: &World, text: &str) {
    let seen = || {
        let events = world.events.all();
        events.iter().any(|event| matches!(&event.kind, EventKind::TextDelta { text: delta } if delta == text))
    };
    while !seen() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

fn last_user(request: &ChatRequest) -> &str {
    match request.messages.last().unwrap() {
        ChatMessage::User { text, .. } => text,
        other => panic!("{other:?}"),
    }
}

/// How often the model was shown a text, in one request.
fn times(request: &ChatRequest, text: &str) -> usize {
    let shows = |message: &&ChatMessage| matches!(message, ChatMessage::User { text: is, .. } if is.contains(text));
    request.messages.iter().filter(shows).count()
}

async fn begin(world: &World, model: Arc<ScriptedModel>) -> (Engine, Submission, ConversationId) {
    let conversation =
        ask(&world.engine("opener", self::model([Script::text("one")])), None, "hello").await.conversation;
    let engine = world.engine("first", model);
    let first = submission(Some(&conversation), "r1", "go");
    (engine, first, conversation)
}

async fn run(engine: &Engine, first: &Submission) -> TurnResult {
    let receipt = engine.submit(first.clone()).await.unwrap().receipt().clone();
    engine.run_until(&receipt.conversation, &receipt.admission).await.unwrap()
}

#[tokio::test]
async fn i04_e20_a_redirect_while_the_answer_streams_keeps_what_came_and_asks_once_more() {
    let world = World::new();
    let model = model([Script::text_then_hang("north is"), Script::text("south then")]);
    let (_, first, conversation) = begin(&world, model.clone()).await;
    let mut parts = world.parts("first", model.clone());
    // The step of the budget is the same: with one step the turn still answers.
    parts.settings.max_iterations = Some(1);
    let engine = Engine::new(parts);
    let speak = async {
        shown(&world, "north is").await;
        engine.submit(redirect(&conversation, "r2", "go south")).await.unwrap().receipt().clone()
    };
    let (result, receipt) = tokio::join!(run(&engine, &first), speak);
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "south then"));
    let events = world.events.all();
    let at = events.iter().position(|event| matches!(event.kind, EventKind::Redirected { .. })).unwrap();
    let inputs = vec![TakenInput { admission: receipt.admission.clone(), text: "go south".into() }];
    assert_eq!(events[at].kind, EventKind::Redirected { inputs, kept: true });
    // A client that does not know the event takes the answer as begun anew.
    assert_eq!(events[at + 1].kind, EventKind::TextRestarted);
    let rows = world.rows(&conversation, View::Display).await;
    assert_eq!(
        short(&rows)[2..],
        ["user/normal:go", "assistant/partial:north is", "user/steer:go south", "assistant/normal:south then"]
    );
    assert!(rows[4].api_content.is_some(), "the model is told that it was interrupted");
    let requests = model.requests();
    assert_eq!(requests.len(), 2, "one retried call");
    check_requests(&requests);
    assert!(last_user(&requests[1]).contains("interrupted") && last_user(&requests[1]).ends_with("go south"));
    let receipt = engine.store().admission(&receipt.admission).await.unwrap().receipt;
    assert_eq!((receipt.outcome, receipt.turn), (Some(AdmissionOutcome::Completed), result.turn));
    assert!(world.store.queue(&conversation).await.unwrap().is_empty());
}

#[tokio::test]
async fn e20_where_nothing_had_come_a_hidden_row_keeps_the_roles_apart() {
    for script in [Script::hang(), Script::hang_at_head()] {
        let world = World::new();
        let model = model([script, Script::text("two"), Script::text("three")]);
        let (engine, first, conversation) = begin(&world, model.clone()).await;
        let speak = async {
            asked(&model, 1).await;
            engine.submit(redirect(&conversation, "r2", "not so")).await.unwrap();
        };
        let (result, ()) = tokio::join!(run(&engine, &first), speak);
        assert_eq!(result.answer, "two");
        let rows = world.rows(&conversation, View::Model).await;
        assert_eq!((rows[3].role, rows[3].kind), (Role::Assistant, MessageKind::Hidden));
        // Another process reads back what this one sent.
        ask(&world.engine("second", model.clone()), Some(&conversation), "then").await;
        check_requests(&model.requests());
    }
}

#[tokio::test]
async fn i04_a_redirect_from_another_process_is_noticed_and_several_are_one_message() {
    let world = World::new();
    let model = model([Script::text_then_hang("north"), Script::text("done")]);
    let (engine, first, conversation) = begin(&world, model.clone()).await;
    let other = world.engine("other", self::model([]));
    let speak = async {
        shown(&world, "north").await;
        // A steer cuts nothing; it comes along when something does.
        let steer = Submission { intent: Intent::Steer, ..redirect(&conversation, "r2", "a hint") };
        other.submit(steer).await.unwrap();
        other.submit(redirect(&conversation, "r3", "go south")).await.unwrap();
    };
    let (result, ()) = tokio::join!(run(&engine, &first), speak);
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"));
    let requests = model.requests();
    check_requests(&requests);
    assert_eq!(requests.len(), 2);
    let words = last_user(&requests[1]);
    assert!(words.find("a hint").unwrap() < words.find("go south").unwrap(), "{words}");
    assert!(world.store.queue(&conversation).await.unwrap().is_empty());
}

#[tokio::test]
async fn i04_a_redirect_while_tools_run_follows_the_last_result_like_a_steer() {
    let world = World::new();
    let model = model([calls("a"), Script::text("done")]);
    let (_, first, conversation) = begin(&world, model.clone()).await;
    let tool = world.tool().delay_ms(30);
    let engine = Engine::new(world.parts_with("first", model.clone(), tool, Arc::new(world.store.clone())));
    let speak = async {
        while world.ledger.events().is_empty() {
            tokio::task::yield_now().await;
        }
        engine.submit(redirect(&conversation, "r2", "go south")).await.unwrap();
    };
    let (result, ()) = tokio::join!(run(&engine, &first), speak);
    assert_eq!(result.reason, EndReason::Answered);
    let requests = model.requests();
    check_requests(&requests);
    assert_eq!(requests.iter().map(|request| times(request, "go south")).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(world.ledger.effects().len(), 1, "no call is cut");
    let events = world.events.all();
    let said = events.iter().filter_map(|event| match &event.kind {
        EventKind::Steered { inputs } => Some(inputs.iter().map(|input| input.text.as_str()).collect::<Vec<_>>()),
        EventKind::Redirected { .. } => panic!("nothing was cut"),
        _ => None,
    });
    assert_eq!(said.collect::<Vec<_>>(), [["go south"]]);
    let rows = short(&world.rows(&conversation, View::Display).await);
    assert_eq!(rows[4..], ["tool:ok", "user/steer:go south", "assistant/normal:done"]);
}

#[tokio::test]
async fn e23_a_wait_before_a_retry_is_cut_by_a_redirect_and_a_stop_in_it_leaves_the_words_queued() {
    for stops in [false, true] {
        let world = World::new();
        let mut slow = error(ErrorClass::RateLimit);
        slow.retry_after_ms = Some(500_000);
        let model = model([Script::error(slow), Script::text("two"), Script::text("three")]);
        let (engine, first, conversation) = begin(&world, model.clone()).await;
        let speak = async {
            while !world.events.all().iter().any(|event| matches!(event.kind, EventKind::Retrying { .. })) {
                tokio::task::yield_now().await;
            }
            if stops {
                engine.interrupt(&conversation, Stopper::User, Interrupt::Soft);
            }
            engine.submit(redirect(&conversation, "r2", "not so")).await.unwrap().receipt().clone()
        };
        let (result, receipt) = tokio::join!(run(&engine, &first), speak);
        let words = engine.store().admission(&receipt.admission).await.unwrap();
        if stops {
            // A stop is never turned into another request, and what was said is not lost with it.
            assert_eq!(result.reason, EndReason::StoppedByUser);
            assert_eq!(model.requests().len(), 1);
            assert_eq!(words.receipt.outcome, None);
            let next = engine.run_until(&conversation, &receipt.admission).await.unwrap();
            assert_eq!(next.answer, "two");
        } else {
            assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "two"));
            assert_eq!(words.receipt.outcome, Some(AdmissionOutcome::Completed));
        }
        check_requests(&model.requests());
        assert_eq!(times(model.requests().last().unwrap(), "not so"), 1);
    }
}

#[tokio::test]
async fn i04_a_redirect_without_a_turn_is_the_next_input_once_also_after_a_restart() {
    for restarts in [false, true] {
        let world = World::new();
        let (mut engine, _, conversation) = begin(&world, model([Script::text("two"), Script::text("three")])).await;
        // A turn has answered; one input and then the redirect wait.
        engine.submit(submission(Some(&conversation), "r2", "first")).await.unwrap();
        let late = redirect(&conversation, "r3", "then this");
        let receipt = engine.submit(late.clone()).await.unwrap().receipt().clone();
        if restarts {
            drop(engine);
            world.dead.0.lock().unwrap().push("first".to_owned());
            engine = world.engine("second", model([Script::text("two"), Script::text("three")]));
        }
        engine.drain(&conversation).await.unwrap();
        assert_eq!(engine.submit(late).await.unwrap().receipt().admission, receipt.admission);
        let rows = short(&world.rows(&conversation, View::Display).await);
        let words: Vec<_> = rows.iter().filter(|row| row.ends_with("then this")).collect();
        assert_eq!(words.len(), 1, "{rows:?}");
        assert!(world.store.queue(&conversation).await.unwrap().is_empty());
    }
}

/// A model whose every request is redirected by the user before an answer comes.
struct Restless {
    info: ModelInfo,
    engine: std::sync::Mutex<Option<Engine>>,
    /// Requests from this one on are answered.
    answers_from: usize,
    requests: std::sync::Mutex<Vec<ChatRequest>>,
}

#[async_trait::async_trait]
impl ChatModel for Restless {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        let number = {
            let mut requests = self.requests.lock().unwrap();
            requests.push(request.clone());
            requests.len()
        };
        if number >= self.answers_from {
            return self::model([Script::text("at last")]).stream(request).await;
        }
        let engine = self.engine.lock().unwrap().clone().unwrap();
        let conversation = ConversationId::parse(request.cache_key.as_deref().unwrap()).unwrap();
        engine.submit(redirect(&conversation, &format!("word-{number}"), &format!("word {number}"))).await.unwrap();
        futures::future::pending().await
    }
}

#[tokio::test]
async fn e19_a_request_that_is_redirected_too_often_ends_the_turn_and_loses_no_word() {
    let world = World::new();
    let conversation = ask(&world.engine("opener", model([Script::text("one")])), None, "hello").await.conversation;
    let restless = Arc::new(Restless {
        info: ScriptedModel::test_info(),
        engine: std::sync::Mutex::default(),
        answers_from: 4,
        requests: std::sync::Mutex::default(),
    });
    let mut parts = world.parts("first", restless.clone());
    parts.settings.request_attempts = 2;
    let engine = Engine::new(parts);
    *restless.engine.lock().unwrap() = Some(engine.clone());
    let result = run(&engine, &submission(Some(&conversation), "r1", "go")).await;
    assert_eq!(result.reason, EndReason::RedirectLimit);
    assert_eq!(result.error.unwrap().code, "HM4024");
    assert_eq!(restless.requests.lock().unwrap().len(), 3);
    let queue = world.store.queue(&conversation).await.unwrap();
    assert_eq!(queue.iter().map(|record| record.request_id.as_str()).collect::<Vec<_>>(), ["word-3"]);
    let next = engine.drain(&conversation).await.unwrap().unwrap();
    assert_eq!((next.reason, next.answer.as_str()), (EndReason::Answered, "at last"));
    restless.engine.lock().unwrap().take();
    let requests = restless.requests.lock().unwrap();
    check_requests(&requests);
    for word in ["word 1", "word 2", "word 3"] {
        assert_eq!(times(requests.last().unwrap(), word), 1, "{word}");
    }
}

/// Runs a turn that is redirected once, on a store with a fault; false when the fault was not reached.
async fn redirected_and_dies(world: &World, conversation: &ConversationId, fault: Fault, at: i64) -> bool {
    let model = model([Script::text_then_hang("north is"), Script::text("done")]);
    let store = FaultStore::new(Arc::new(world.store.clone()), fault, at);
    let engine = Engine::new(world.parts_with("first", model, world.tool(), store.clone()));
    // The words come from a process that stays alive.
    let other = world.engine("other", self::model([]));
    let speak = async {
        shown(world, "north is").await;
        other.submit(redirect(conversation, "r2", "go south")).await.unwrap();
    };
    let work = async {
        let receipt = engine.submit(submission(Some(conversation), "r1", "go")).await?.receipt().clone();
        engine.run_until(conversation, &receipt.admission).await
    };
    let speaking = async {
        speak.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = work => {}
        () = speaking => {}
        () = store.died() => {}
    }
    store.reached()
}

#[tokio::test]
async fn i04_i01_a_fault_at_any_write_of_a_redirected_turn_loses_no_word_and_repeats_none() {
    let mut points = 0;
    for fault in [Fault::DiesBefore, Fault::DiesAfter, Fault::FailsOnce, Fault::AnswerLost, Fault::CommitLost] {
        for at in 0.. {
            let world = World::faster();
            let opener = world.engine("opener", model([Script::text("one")]));
            let conversation = ask(&opener, None, "hello").await.conversation;
            let what = format!("{fault:?} at write {at}");
            let reached = redirected_and_dies(&world, &conversation, fault, at).await;
            if !reached {
                break;
            }
            points += 1;
            world.dead.0.lock().unwrap().push("first".to_owned());
            let next = model((0..4).map(|_| Script::text("done")));
            let second = world.engine("second", next.clone());
            for request in [submission(Some(&conversation), "r1", "go"), redirect(&conversation, "r2", "go south")] {
                let receipt = second.submit(request).await.unwrap().receipt().clone();
                second.run_until(&conversation, &receipt.admission).await.unwrap();
            }
            let rows = short(&world.rows(&conversation, View::Display).await);
            for words in [":go", ":go south"] {
                let count = rows.iter().filter(|row| row.starts_with("user") && row.ends_with(words)).count();
                // The first input's own row may be what could not be written; its turn has failed for that then.
                let unwritten = fault == Fault::FailsOnce && words == ":go" && count == 0;
                assert!(count == 1 || unwritten, "{what}: {words}: {rows:?}");
            }
            assert!(world.store.queue(&conversation).await.unwrap().is_empty(), "{what}");
            ask(&second, Some(&conversation), "and").await;
            check_requests(&next.requests());
        }
    }
    assert!(points >= 20, "only {points} points");
}
