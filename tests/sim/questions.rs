//! A person who is asked: whether a call may run, and what the model wants to know.
//!
//! What the person does stands in the question, as what the model says stands in its script: `yes after 5000` is a yes after
//! five seconds. So every process of a world has the same person, and checkers know what the answer had to be.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hermes_core::testing::FaultStore;
use hermes_core::{Clock, People};
use hermes_store::transfer::bundle::BundleRow;
use hermes_store::{CallOutcome, ConversationId, ReplaySafety};
use hermes_tools::{
    ApprovalAnswer, ApprovalPolicy, ApprovalRequest, Approver, Clarifier, ClarifyAnswer, ClarifyQuestion, PolicyConfig,
};

use crate::model::Failed;
use crate::world::World;

/// How long an answer is waited for, in milliseconds.
const PATIENCE_MS: u64 = 60_000;

/// What a person does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Allows this call, or answers.
    Yes,
    /// Allows this and its like in this process.
    Session,
    /// Allows this and its like from now on.
    Always,
    /// Refuses, or leaves the question out.
    No,
    /// Says nothing until it is too late.
    Late,
    /// Is not there.
    Gone,
    /// The process that asks dies, once; then it is a yes.
    Dies,
}

impl Reply {
    /// What stands in a question: the reply, and the milliseconds before it.
    fn of(question: &str) -> (Self, u64) {
        let (word, ms) = question.split_once(" after ").unwrap_or((question, "0"));
        let reply = match word {
            "yes" => Self::Yes,
            "session" => Self::Session,
            "always" => Self::Always,
            "no" => Self::No,
            "late" => Self::Late,
            "gone" => Self::Gone,
            "dies" => Self::Dies,
            other => panic!("no reply: {other:?}"),
        };
        (reply, ms.parse().unwrap())
    }

    /// Whether it allows a call.
    fn allows(self) -> bool {
        matches!(self, Self::Yes | Self::Session | Self::Always | Self::Dies)
    }
}

/// A question that was put to a person.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    /// Who asked.
    node: String,
    conversation: ConversationId,
    /// The call that it was about; none for what the model wanted to know.
    call: Option<String>,
    text: String,
    /// What was said, with its number for free answers; none while it waits, and when nothing was said.
    said: Option<(Reply, String)>,
}

/// Every question of a world.
pub(crate) type Asked = Arc<Mutex<Vec<Question>>>;

/// The people of one process.
pub(crate) struct SimPeople {
    pub(crate) node: String,
    pub(crate) asked: Asked,
    /// Which processes died of a question.
    pub(crate) failed: Failed,
    pub(crate) faults: Arc<FaultStore>,
    pub(crate) clock: Arc<dyn Clock>,
}

struct Person {
    people: Arc<SimPeople>,
    conversation: ConversationId,
}

/// The people of an engine are one person per conversation.
pub(crate) struct Crowded(pub(crate) Arc<SimPeople>);

impl Crowded {
    fn person(&self, conversation: &ConversationId) -> Arc<Person> {
        Arc::new(Person { people: self.0.clone(), conversation: conversation.clone() })
    }
}

impl People for Crowded {
    fn approver(&self, conversation: &ConversationId) -> Arc<dyn Approver> {
        self.person(conversation)
    }

    fn clarifier(&self, conversation: &ConversationId) -> Arc<dyn Clarifier> {
        self.person(conversation)
    }

    fn watching(&self, _conversation: &ConversationId) -> bool {
        false
    }
}

impl Person {
    /// Puts a question down; its place.
    fn hear(&self, call: Option<&str>, text: &str) -> usize {
        let mut asked = self.people.asked.lock().unwrap();
        let twice =
            |known: &Question| known.node == self.people.node && call.is_some() && known.call.as_deref() == call;
        assert!(!asked.iter().any(twice), "I23: a process asked twice about {call:?}");
        asked.push(Question {
            node: self.people.node.clone(),
            conversation: self.conversation.clone(),
            call: call.map(str::to_owned),
            text: text.to_owned(),
            said: None,
        });
        asked.len() - 1
    }

    /// What the person does, after its time. None when it says nothing.
    async fn think(&self, place: usize, text: &str) -> Option<(Reply, String)> {
        let (reply, ms) = Reply::of(text);
        self.people.clock.sleep(ms).await;
        match reply {
            Reply::Gone => return None,
            Reply::Late => {
                self.people.clock.sleep(PATIENCE_MS).await;
                return None;
            }
            Reply::Dies => {
                let dies = {
                    let mut failed = self.people.failed.lock().unwrap();
                    let count = failed.entry((format!("{} {text}", self.conversation), usize::MAX)).or_default();
                    *count += 1;
                    *count == 1
                };
                if dies {
                    self.people.faults.kill();
                    futures::future::pending::<()>().await;
                }
            }
            Reply::Yes | Reply::Session | Reply::Always | Reply::No => {}
        }
        let said = (reply, format!("answer number {place}"));
        self.people.asked.lock().unwrap()[place].said = Some(said.clone());
        Some(said)
    }
}

#[async_trait]
impl Approver for Person {
    async fn ask(&self, request: ApprovalRequest) -> ApprovalAnswer {
        let why = request.reasons.first().cloned().unwrap_or_default();
        let place = self.hear(Some(&request.call_id), &why);
        match self.think(place, &why).await {
            Some((Reply::Session, _)) => ApprovalAnswer::Session,
            Some((Reply::Always, _)) => ApprovalAnswer::Always,
            Some((reply, _)) if reply.allows() => ApprovalAnswer::Once,
            _ => ApprovalAnswer::Deny { reason: "not by me".to_owned() },
        }
    }
}

#[async_trait]
impl Clarifier for Person {
    async fn clarify(&self, questions: Vec<ClarifyQuestion>) -> Vec<ClarifyAnswer> {
        let mut answers = Vec::new();
        for question in questions {
            let place = self.hear(None, &question.question);
            answers.push(match self.think(place, &question.question).await {
                Some((Reply::No, _)) => ClarifyAnswer::Skipped,
                Some((_, text)) => ClarifyAnswer::Answered { text },
                None => ClarifyAnswer::Unanswered,
            });
        }
        answers
    }
}

/// Who judges calls in a process: what was allowed "always" before is known to it.
pub(crate) fn policy(asked: &Asked) -> ApprovalPolicy {
    let always = |question: &Question| matches!(question.said, Some((Reply::Always, _)));
    let asked = asked.lock().unwrap();
    let known = asked.iter().filter(|question| always(question));
    let allow_list = known.map(|question| format!("ask: {}", question.text)).collect();
    ApprovalPolicy::new(PolicyConfig { allow_list, timeout_ms: PATIENCE_MS, ..PolicyConfig::default() })
}

/// (m) A call runs by a person's word only; a word that was given is not forgotten; what a person answered is told to the
/// model once.
pub(crate) async fn at_rest(world: &World, what: &str) {
    let asked = world.asked.lock().unwrap().clone();
    for conversation in &world.everybody().await {
        let rows = world.everything(conversation).await;
        calls_ran_by_a_word(world, &asked, &rows, what);
        answers_are_told_once(conversation, &asked, &rows, what);
    }
}

fn calls_ran_by_a_word(world: &World, asked: &[Question], rows: &[BundleRow], what: &str) {
    let effects = world.effects.lock().unwrap();
    for call in rows.iter().filter(|row| row.copy_of.is_none()).flat_map(|row| &row.calls) {
        if call.name != "ask" {
            continue;
        }
        let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
        let why = arguments["why"].as_str().unwrap();
        let about = |question: &&Question| question.call.as_deref() == Some(call.id.as_str());
        let word = asked.iter().filter(about).find_map(|question| question.said.as_ref().map(|(reply, _)| *reply));
        let like = asked
            .iter()
            .any(|question| question.text == why && matches!(question.said, Some((Reply::Session | Reply::Always, _))));
        let has_happened = effects.iter().any(|effect| effect == call.id.as_str());
        let is_allowed = word.is_some_and(Reply::allows) || like;
        assert!(!has_happened || is_allowed, "{what}: I23: {} ({why}) ran by nobody's word", call.id);
        let answer = rows.iter().filter_map(|row| row.answers.as_ref()).find(|answer| answer.call == call.id);
        let Some(outcome) = answer.map(|answer| answer.outcome) else { continue };
        if word.is_some_and(Reply::allows) {
            assert_ne!(outcome, CallOutcome::Denied, "{what}: the yes to {} ({why}) is forgotten", call.id);
        }
        if !is_allowed {
            let is_told = matches!(outcome, CallOutcome::Denied | CallOutcome::Skipped);
            assert!(is_told, "{what}: {} ({why}) was not allowed and ended as {outcome:?}", call.id);
        }
    }
}

fn answers_are_told_once(conversation: &ConversationId, asked: &[Question], rows: &[BundleRow], what: &str) {
    let calls: Vec<_> = rows.iter().filter(|row| row.copy_of.is_none()).flat_map(|row| &row.calls).collect();
    // One that is no tool of its conversation, as in children, is no question.
    let calls = || calls.iter().filter(|call| call.name == "clarify" && call.replay == ReplaySafety::Once);
    let free = |question: &&Question| question.call.is_none() && question.conversation == *conversation;
    let results = || rows.iter().filter(|row| row.copy_of.is_none() && row.answers.is_some());
    let mut untold = 0;
    for question in asked.iter().filter(free) {
        let Some((reply, text)) = &question.said else { continue };
        if *reply == Reply::No {
            continue;
        }
        let marked = format!("\"{text}\"");
        let times = results().filter(|row| row.content.contains(&marked)).count();
        assert!(times <= 1, "{what}: {text:?} is told {times} times");
        untold += usize::from(times == 0);
    }
    // A process that died, or was stopped, with the answer in its hands: the call says that nobody knows.
    let unknown = |call: &&&hermes_store::transfer::bundle::BundleCall| {
        let answer = rows.iter().filter_map(|row| row.answers.as_ref()).find(|answer| answer.call == call.id);
        answer.is_some_and(|answer| matches!(answer.outcome, CallOutcome::OutcomeUnknown | CallOutcome::Interrupted))
    };
    let lost = calls().filter(unknown).count();
    assert!(untold <= lost, "{what}: {untold} answers are told to nobody, and {lost} calls have an unknown outcome");
    let asked = asked.iter().filter(free).count();
    let of = |arguments: &str| serde_json::from_str::<serde_json::Value>(arguments).unwrap();
    let made: usize = calls().filter_map(|call| of(&call.arguments)["questions"].as_array().map(Vec::len)).sum();
    assert!(asked <= made, "{what}: {asked} questions were put, and the model had {made}");
}
