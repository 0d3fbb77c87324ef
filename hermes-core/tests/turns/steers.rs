//! What people say to a running turn is taken in one transaction, and the answer to its COMMIT may be lost: the turn can
//! not tell then whether it was. Either way each word reaches the model once, in this turn, and no request breaks the
//! prefix; what was said of an answer that was cut is kept.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{FutureExt as _, StreamExt as _};
use hermes_core::testing::{Fault, FaultStore};
use hermes_core::{EndReason, Engine, Submission};
use hermes_providers::{
    ChatMessage, ChatModel, ChatRequest, DeltaStream, ModelInfo, ProviderError, Script, ScriptedModel,
};
use hermes_store::{AdmissionOutcome, AdmissionStore as _, ConversationId, Intent, Role, SessionStore as _, View};

use crate::support::{World, ask, calls, check_requests, model, short, submission};

const WORDS: [&str; 3] = ["north", "south", "west"];

fn speech(conversation: &ConversationId, intent: Intent, word: &str) -> Submission {
    Submission { intent, ..submission(Some(conversation), word, word) }
}

fn shown(request: &ChatRequest, word: &str) -> usize {
    let texts = request.messages.iter().filter_map(|message| match message {
        ChatMessage::User { text, .. } => Some(text.matches(word).count()),
        _ => None,
    });
    texts.sum()
}

/// A model to which people say something while it is asked for the first time: to a process of their own.
struct Spoken {
    model: Arc<ScriptedModel>,
    people: Engine,
    intent: Intent,
    words: &'static [&'static str],
}

#[async_trait]
impl ChatModel for Spoken {
    fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        let is_first = self.model.requests().is_empty();
        let stream = self.model.stream(request).await?;
        if !is_first {
            return Ok(stream);
        }
        let conversation = ConversationId::parse(request.cache_key.as_deref().unwrap()).unwrap();
        let (people, intent, words) = (self.people.clone(), self.intent, self.words);
        let speak = async move {
            for word in words {
                people.submit(speech(&conversation, intent, word)).await.unwrap();
            }
        };
        if intent == Intent::Steer {
            speak.await;
            return Ok(stream);
        }
        // They have read something before they speak.
        let half = stream.take(1);
        let silence = speak.then(|()| std::future::pending());
        Ok(half.chain(futures::stream::once(silence)).boxed())
    }
}

/// Runs one input, to which something is said, on a store with this fault, and the next one in another process. How many
/// writes the turn had; what is stored of it in short form.
async fn turn(fault: Fault, at: i64, intent: Intent, words: &'static [&'static str]) -> (bool, Vec<String>) {
    let what = format!("{fault:?} at write {at}");
    let world = World::paused();
    let conversation = ask(&world.engine("opener", model([Script::text("one")])), None, "hello").await.conversation;
    let first = match intent {
        Intent::Steer => calls("a"),
        _ => Script::text_then_hang("half of it"),
    };
    let scripts = model([first, calls("b"), Script::text("done"), Script::text("and on")]);
    let people = world.engine("people", model([]));
    let store = FaultStore::new(Arc::new(world.store.clone()), fault, at);
    let spoken = Arc::new(Spoken { model: scripts.clone(), people, intent, words });
    let engine = Engine::new(world.parts_with("first", spoken, world.tool(), store.clone()));
    // The client's own write may be the one whose answer is lost: it asks again.
    let input = submission(Some(&conversation), "go", "go");
    let receipt = match engine.submit(input.clone()).await {
        Ok(done) => done.receipt().clone(),
        Err(_) => engine.submit(input).await.unwrap().receipt().clone(),
    };
    let result = engine.run_until(&conversation, &receipt.admission).await;
    let result = match result {
        Ok(result) => result,
        Err(_) => engine.run_until(&conversation, &receipt.admission).await.unwrap(),
    };
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"), "{what}: {:?}", result.error);
    for word in words {
        let record = world.store.admission_of(&conversation, "tester", word).await.unwrap().unwrap();
        let (outcome, by) = (record.receipt.outcome, record.receipt.turn);
        assert_eq!((outcome, by), (Some(AdmissionOutcome::Completed), result.turn.clone()), "{what}: {word}");
    }
    assert!(world.store.queue(&conversation).await.unwrap().is_empty(), "{what}");
    ask(&world.engine("second", scripts.clone()), Some(&conversation), "more").await;
    let requests = scripts.requests();
    check_requests(&requests);
    for word in words {
        let seen: Vec<usize> = requests.iter().map(|request| shown(request, word)).collect();
        assert_eq!(seen, [0, 1, 1, 1], "{what}: {word}");
    }
    (store.reached(), short(&world.rows(&conversation, View::Display).await))
}

#[tokio::test(start_paused = true)]
async fn i04_i17_i18_steers_whose_commit_lost_its_answer_reach_the_model_once_in_their_turn() {
    for words in [&WORDS[..1], &WORDS[..]] {
        let (_, want) = turn(Fault::AnswerLost, i64::MAX, Intent::Steer, words).await;
        for fault in [Fault::AnswerLost, Fault::CommitLost] {
            for at in 0.. {
                let (reached, rows) = turn(fault, at, Intent::Steer, words).await;
                assert_eq!(rows, want, "{fault:?} at write {at}");
                if !reached {
                    assert!(at > 12, "only {at} points");
                    break;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn i04_i17_i18_a_redirect_whose_commit_lost_its_answer_keeps_what_it_cut_and_is_read_once() {
    for words in [&WORDS[..1], &WORDS[..]] {
        let (_, want) = turn(Fault::AnswerLost, i64::MAX, Intent::Redirect, words).await;
        assert!(want.contains(&"assistant/partial:half of it".to_owned()), "{want:?}");
        for fault in [Fault::AnswerLost, Fault::CommitLost] {
            for at in 0.. {
                let (reached, rows) = turn(fault, at, Intent::Redirect, words).await;
                assert_eq!(rows, want, "{fault:?} at write {at}");
                if !reached {
                    assert!(at > 10, "only {at} points");
                    break;
                }
            }
        }
    }
}

/// Between the lost answer and the repetition somebody speaks once more.
#[tokio::test(start_paused = true)]
async fn i04_i18_what_is_said_between_a_lost_commit_and_its_repetition_is_read_once_too() {
    let mut met = 0;
    for fault in [Fault::AnswerLost, Fault::CommitLost] {
        for at in 0.. {
            let world = World::paused();
            let opener = world.engine("opener", model([Script::text("one")]));
            let conversation = ask(&opener, None, "hello").await.conversation;
            let scripts = model([calls("a"), calls("b"), Script::text("done"), Script::text("two"), Script::text("x")]);
            let people = world.engine("people", model([]));
            let store = FaultStore::new(Arc::new(world.store.clone()), fault, at);
            let words = &WORDS[..1];
            let spoken =
                Arc::new(Spoken { model: scripts.clone(), people: people.clone(), intent: Intent::Steer, words });
            let engine = Engine::new(world.parts_with("first", spoken, world.tool(), store.clone()));
            let receipt = people.submit(submission(Some(&conversation), "go", "go")).await.unwrap().receipt().clone();
            let speak = async {
                while !store.reached() {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                people.submit(speech(&conversation, Intent::Steer, WORDS[1])).await.unwrap();
                std::future::pending::<()>().await;
            };
            let run = async {
                match engine.run_until(&conversation, &receipt.admission).await {
                    Ok(result) => result,
                    Err(_) => engine.run_until(&conversation, &receipt.admission).await.unwrap(),
                }
            };
            let result = tokio::select! {
                result = run => result,
                () = speak => unreachable!(),
            };
            assert_eq!(result.reason, EndReason::Answered, "{fault:?} at write {at}");
            if !store.reached() {
                break;
            }
            // What came too late for the turn is the next input.
            let second = world.engine("second", scripts.clone());
            second.drain(&conversation).await.unwrap();
            let requests = scripts.requests();
            check_requests(&requests);
            let rows = world.rows(&conversation, View::Display).await;
            let said = |word: &str| rows.iter().filter(|row| row.role == Role::User && row.content == word).count();
            for word in &WORDS[..2] {
                let spoken = world.store.admission_of(&conversation, "tester", word).await.unwrap().is_some();
                assert_eq!(said(word), usize::from(spoken), "{fault:?} at write {at}: {word}");
                met += usize::from(spoken && *word == WORDS[1]);
                assert!(shown(requests.last().unwrap(), word) <= 1, "{fault:?} at write {at}: {word}");
            }
        }
    }
    assert!(met >= 10, "{met}");
}
