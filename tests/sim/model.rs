//! A model whose answers stand in a script, and what happens while it is asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::StreamExt as _;
use hermes_core::testing::FaultStore;
use hermes_core::{Clock, Engine, Input, Interrupt, Stopper, Submission};
use hermes_providers::{
    ChatMessage, ChatModel, ChatRequest, CompletedCall, Completion, Delta, DeltaStream, ErrorClass, Finish, ModelInfo,
    ProviderError,
};
use hermes_store::{ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, Intent, Store, TurnId};

use crate::family::{NEWS, NEWS_INPUT};
use crate::parts::breathe;
use crate::world::Dead;

/// What happens while a request is under way. A disturbance of the second group happens once, not when the request is
/// sent again.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Meanwhile {
    /// Somebody steers.
    Steer(&'static str),
    /// Somebody speaks in place of the answer, which does not come.
    Redirect(&'static str),
    /// Somebody sends another input.
    Send(&'static str),
    /// Somebody stops the turn.
    Stop(Interrupt),
    /// Somebody stops the turns of the conversations that people began.
    StopParent(Interrupt),
    /// The program is told to end.
    Shutdown,
    /// Nothing; the model takes this long (milliseconds).
    Wait(u64),
    /// The process dies.
    Die,
    /// Another owner takes the conversation over and gives it back.
    Rob,
    /// The same, and that owner cannot tell what became of the turn: a person must decide.
    Lose,
    /// The next write fails.
    FailWrite,
}

/// What the model says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Say {
    /// Calls: (tool, arguments).
    Calls(&'static [(&'static str, &'static str)]),
    /// An answer.
    Text(&'static str),
    /// An answer that was cut at the output limit.
    Cut(&'static str),
    /// Calls whose arguments were cut.
    CutCalls(&'static [(&'static str, &'static str)]),
    /// Calls whose arguments are whole and no JSON.
    BadCalls(&'static [(&'static str, &'static str)]),
    /// Calls are announced and none comes.
    NoCalls,
    /// Nothing.
    Nothing,
    /// Thoughts and no answer.
    Thought,
    /// The same words without end.
    Loop,
    /// The provider withholds the answer.
    Withheld,
    /// A pause in a long answer.
    Pause(&'static str),
}

/// What the summarising model says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Summary {
    /// Notes.
    Notes,
    /// Notes that were cut.
    Cut,
    /// A failure.
    Fails(ErrorClass),
}

/// One answer of a script.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// Failures before it: class and how often.
    pub(crate) fails: Option<(ErrorClass, u32)>,
    /// The connection is lost after this text, once, before it.
    pub(crate) lost_after: Option<&'static str>,
    /// What happens before it is said.
    pub(crate) meanwhile: Option<Meanwhile>,
    /// What is said.
    pub(crate) say: Say,
}

impl Step {
    /// Says it.
    pub(crate) const fn say(say: Say) -> Self {
        Self { fails: None, lost_after: None, meanwhile: None, say }
    }

    /// Fails `times` times first.
    pub(crate) const fn failing(self, class: ErrorClass, times: u32) -> Self {
        Self { fails: Some((class, times)), ..self }
    }

    /// Loses the connection once, after this text.
    pub(crate) const fn lost_after(self, text: &'static str) -> Self {
        Self { lost_after: Some(text), ..self }
    }

    /// With this going on first.
    pub(crate) const fn while_(self, meanwhile: Meanwhile) -> Self {
        Self { meanwhile: Some(meanwhile), ..self }
    }
}

/// What is said to news of a child where the script does not say it.
const NOTED: &[Step] = &[Step::say(Say::Text("noted"))];
/// How long a model that is redirected says nothing, in milliseconds: longer than a redirect needs to be noticed.
const REDIRECTED_MS: u64 = 60_000;
/// How often somebody who acts while a request is under way sends what failed.
const TRIES: usize = 20;

/// The scripts of a world: what is said to each input, by its text.
pub(crate) type Script = &'static [(&'static str, &'static [Step])];

/// How often a step has failed already, by conversation, place and kind of failure.
pub(crate) type Failed = Arc<Mutex<HashMap<(String, usize), u32>>>;

/// Those who act while a request is under way.
pub(crate) struct Hands {
    /// The name of the node.
    pub(crate) node: String,
    /// The engine that asks; none when its node is gone.
    pub(crate) engine: Mutex<Option<Engine>>,
    /// The store of the node.
    pub(crate) faults: Arc<FaultStore>,
    /// The store of the world.
    pub(crate) store: Arc<dyn Store>,
    /// Whose death can be proved.
    pub(crate) dead: Arc<Dead>,
    /// The time of the world.
    pub(crate) clock: Arc<dyn Clock>,
    /// What happened.
    pub(crate) trace: Arc<Mutex<Vec<String>>>,
    /// The conversations that people began.
    pub(crate) roots: Arc<[ConversationId]>,
}

impl Hands {
    async fn act(&self, conversation: &ConversationId, meanwhile: Meanwhile, key: &str) {
        let Some(engine) = self.engine.lock().unwrap().clone() else { return };
        let sent = match meanwhile {
            Meanwhile::Steer(text) => Some((text, Intent::Steer)),
            Meanwhile::Redirect(text) => Some((text, Intent::Redirect)),
            Meanwhile::Send(text) => Some((text, Intent::Queue)),
            Meanwhile::Stop(how) => {
                engine.interrupt(conversation, Stopper::User, how);
                None
            }
            Meanwhile::StopParent(how) => {
                for root in self.roots.iter() {
                    engine.interrupt(root, Stopper::User, how);
                }
                None
            }
            Meanwhile::Shutdown => {
                engine.interrupt_all(Stopper::Shutdown, Interrupt::Hard);
                None
            }
            Meanwhile::Wait(ms) => {
                self.clock.sleep(ms).await;
                None
            }
            Meanwhile::Die => {
                self.faults.kill();
                futures::future::pending().await
            }
            Meanwhile::Rob | Meanwhile::Lose => {
                self.rob(conversation, matches!(meanwhile, Meanwhile::Lose)).await;
                None
            }
            Meanwhile::FailWrite => {
                self.faults.fail_next();
                None
            }
        };
        let Some((text, intent)) = sent else { return };
        let wish = submission(conversation, &format!("meanwhile-{key}"), text, intent);
        // A node that is leaving takes nothing in any more.
        for _ in 0..TRIES {
            if engine.submit(wish.clone()).await.is_ok() {
                break;
            }
        }
        if intent == Intent::Redirect {
            self.clock.sleep(REDIRECTED_MS).await;
        }
    }

    /// Another owner takes the node for dead, looks at its turn and leaves; with `loses` it gives the turn up as unknown.
    async fn rob(&self, conversation: &ConversationId, loses: bool) {
        let robber = crate::world::owner_of(&format!("{}-robber", self.node));
        self.store.heartbeat(&robber).await.unwrap();
        self.dead.add(&self.node);
        let request = ClaimRequest {
            conversation: conversation.clone(),
            owner: robber.id.clone(),
            turn: TurnId::parse(&format!("{}-robber-turn", self.node)).unwrap(),
            ttl_ms: 60_000,
            policy: ClaimPolicy::Any,
        };
        let claimed = self.store.claim(request).await.unwrap();
        self.dead.remove(&self.node);
        if let ClaimOutcome::Recover { fence, open } = claimed {
            if loses {
                self.store.lose_turn(&fence, &open.id).await.unwrap();
            }
            self.trace.lock().unwrap().push(format!("{}: {conversation}: is robbed", self.node));
            self.store.release(&fence).await.unwrap();
        }
        self.store.retire(&robber.id).await.unwrap();
    }
}

/// Who says something in a world.
pub(crate) const PRINCIPAL: &str = "somebody";

/// An input of somebody.
pub(crate) fn submission(conversation: &ConversationId, request: &str, text: &str, intent: Intent) -> Submission {
    Submission {
        conversation: Some(conversation.clone()),
        principal: PRINCIPAL.to_owned(),
        request_id: Some(request.to_owned()),
        intent,
        input: Input::text(text),
    }
}

/// A model whose answer follows from the request, but for failures, which are counted in the world.
pub(crate) struct Model {
    pub(crate) info: ModelInfo,
    pub(crate) summary: Summary,
    pub(crate) node: String,
    pub(crate) script: Script,
    pub(crate) requests: Arc<Mutex<Vec<(String, ChatRequest)>>>,
    pub(crate) failed: Failed,
    pub(crate) hands: Arc<Hands>,
    /// Longest time that an answer takes, in milliseconds; 0 where nothing else goes on.
    pub(crate) slow_ms: u64,
}

impl Model {
    /// The input that is worked on, and how often the model has spoken since.
    fn place(&self, request: &ChatRequest) -> (String, &'static [Step], usize) {
        let found = request.messages.iter().enumerate().rev().find_map(|(at, message)| match message {
            ChatMessage::User { text, .. } if text.contains(NEWS) => {
                let steps =
                    self.script.iter().find(|(input, _)| *input == NEWS_INPUT).map_or(NOTED, |(_, steps)| *steps);
                // Which child it is: two results in one conversation are two inputs.
                let child = text.rsplit("\nConversation: ").next().and_then(|rest| rest.lines().next());
                Some((at, format!("{NEWS_INPUT} {}", child.unwrap_or_default()), steps))
            }
            ChatMessage::User { text, .. } => {
                let found = self.script.iter().find(|(input, _)| is_input(text, input));
                found.map(|(input, steps)| (at, (*input).to_owned(), *steps))
            }
            _ => None,
        });
        let (at, input, steps) =
            found.unwrap_or_else(|| panic!("a request without a scripted input: {:?}", request.messages));
        let spoken = request.messages[at..].iter().filter(|m| matches!(m, ChatMessage::Assistant { .. })).count();
        (input, steps, spoken)
    }

    /// Counts one failure of a step; false when it has failed often enough.
    fn fail(&self, key: &str, slot: usize, times: u32) -> bool {
        let mut failed = self.failed.lock().unwrap();
        let count = failed.entry((key.to_owned(), slot)).or_default();
        *count += 1;
        *count <= times
    }

    /// How long the answer takes: another time for each, and the same whenever a world runs again.
    async fn think(&self, key: &str) {
        if self.slow_ms > 0 {
            let sum = key.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
            self.hands.clock.sleep(sum % self.slow_ms + 1).await;
        }
        breathe().await;
    }
}

#[async_trait]
impl ChatModel for Model {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        crate::check::pairs(&request.messages);
        if request.tools.is_empty() {
            self.think("summary").await;
            return match self.summary {
                Summary::Notes => Ok(slowly(answer(Say::Text("what was done: much"), "summary"))),
                Summary::Cut => Ok(slowly(answer(Say::Cut("what was"), "summary"))),
                Summary::Fails(class) => Err(ProviderError::new(class, "scripted")),
            };
        }
        self.requests.lock().unwrap().push((self.node.clone(), request.clone()));
        let conversation = ConversationId::parse(request.cache_key.as_deref().unwrap()).unwrap();
        let (input, steps, spoken) = self.place(request);
        let step = steps.get(spoken).copied().unwrap_or(Step::say(Say::Text("nothing more is scripted")));
        let key = format!("{input}-{spoken}");
        let counted = format!("{conversation}/{key}");
        self.think(&counted).await;
        if let Some((class, times)) = step.fails
            && self.fail(&counted, 0, times)
        {
            return Err(ProviderError::new(class, "scripted"));
        }
        if let Some(text) = step.lost_after
            && self.fail(&counted, 1, 1)
        {
            return Ok(slowly(vec![Ok(Delta::Text(text.to_owned()))]));
        }
        let once =
            matches!(step.meanwhile, Some(Meanwhile::Die | Meanwhile::Rob | Meanwhile::Lose | Meanwhile::FailWrite));
        if let Some(meanwhile) = step.meanwhile
            && (!once || self.fail(&counted, 2, 1))
        {
            // Once for all news: a world in which each sends what gives a task away would never come to rest.
            let cause = if input.starts_with(NEWS_INPUT) { format!("{NEWS_INPUT}-{spoken}") } else { key.clone() };
            self.hands.act(&conversation, meanwhile, &cause).await;
        }
        Ok(slowly(answer(step.say, &key)))
    }
}

/// A message with this input, alone or behind a summary.
fn is_input(text: &str, input: &str) -> bool {
    text == input
        || text
            .strip_suffix(input)
            .is_some_and(|before| ["\n\n", ":\n", ":]\n"].iter().any(|end| before.ends_with(end)))
}

/// A stream that lets others run before every item.
fn slowly(items: Vec<Result<Delta, ProviderError>>) -> DeltaStream {
    futures::stream::iter(items)
        .then(|item| async {
            breathe().await;
            item
        })
        .boxed()
}

fn made(calls: &[(&str, &str)], key: &str, whole: bool) -> Vec<CompletedCall> {
    let one = |(number, (name, arguments)): (usize, &(&str, &str))| CompletedCall {
        id: Some(format!("{key}-{number}")),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
        whole,
    };
    calls.iter().enumerate().map(one).collect()
}

fn answer(say: Say, key: &str) -> Vec<Result<Delta, ProviderError>> {
    let looping = "and so on, and on, ".repeat(2_000);
    let (text, calls, finish) = match say {
        Say::Calls(calls) => ("", made(calls, key, true), Finish::ToolCalls),
        Say::CutCalls(calls) => ("", made(calls, key, false), Finish::Length),
        Say::BadCalls(calls) => ("", made(calls, key, false), Finish::ToolCalls),
        Say::NoCalls => ("", Vec::new(), Finish::ToolCalls),
        Say::Text(text) => (text, Vec::new(), Finish::Stop),
        Say::Cut(text) => (text, Vec::new(), Finish::Length),
        Say::Nothing | Say::Thought => ("", Vec::new(), Finish::Stop),
        Say::Loop => (looping.as_str(), Vec::new(), Finish::Stop),
        Say::Withheld => ("", Vec::new(), Finish::ContentFilter),
        Say::Pause(text) => (text, Vec::new(), Finish::Pause),
    };
    let mut out = Vec::new();
    if !text.is_empty() {
        let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
        out.extend([text[..middle].to_owned(), text[middle..].to_owned()].map(|part| Ok(Delta::Text(part))));
    }
    out.push(Ok(Delta::Done(Box::new(Completion {
        text: text.to_owned(),
        reasoning: matches!(say, Say::Thought).then(|| "let me see".to_owned()),
        sidecar: None,
        calls,
        finish,
        finish_missing: false,
        usage: None,
        served_model: None,
    }))));
    out
}
