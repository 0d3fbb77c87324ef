//! What goes from the gateway to its clients: events, and questions that wait for an answer.
//!
//! A client that is too slow misses messages and is told so; it never holds up a turn. Which events it missed is not
//! counted here: each event carries its place, the engine keeps the newest, and `session/events` gives what lies behind a
//! place. Open questions are kept as they were asked, for a client that comes while one waits. A question that nobody can
//! hear, or that nobody answers in time, is answered with no.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hermes_core::{Event, EventSink, People};
use hermes_store::ConversationId;
use hermes_tools::{ApprovalAnswer, ApprovalRequest, Approver, Clarifier, ClarifyAnswer, ClarifyQuestion};
use tokio::sync::{Notify, broadcast, oneshot};

use crate::indexer;
use crate::protocol::ServerMessage;

/// Messages that a client may be behind before it misses some.
pub const CLIENT_BACKLOG_MESSAGES: usize = 8_192;
/// How long the model's questions to the user wait for an answer (`agent.clarify_timeout`).
pub const CLARIFY_TIMEOUT_MS: u64 = 3_600_000;

/// Where patterns that were allowed "always" are kept.
#[async_trait]
pub(crate) trait AllowList: Send + Sync {
    async fn remember(&self, pattern: &str);
}

enum Waiting {
    Approval(oneshot::Sender<ApprovalAnswer>),
    Clarify(oneshot::Sender<Vec<ClarifyAnswer>>),
}

/// A question that is not answered yet.
struct Open {
    conversation: ConversationId,
    /// As clients were asked.
    message: ServerMessage,
    waiting: Waiting,
}

/// The hub of one gateway.
pub(crate) struct Hub {
    messages: broadcast::Sender<ServerMessage>,
    /// Open questions by id. Held for map operations only.
    open: Mutex<HashMap<String, Open>>,
    allow_list: Arc<dyn AllowList>,
    committed: Arc<Notify>,
}

impl Hub {
    pub(crate) fn new(allow_list: Arc<dyn AllowList>) -> Arc<Self> {
        let (messages, _) = broadcast::channel(CLIENT_BACKLOG_MESSAGES);
        Arc::new(Self { messages, open: Mutex::new(HashMap::new()), allow_list, committed: Arc::default() })
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<ServerMessage> {
        self.messages.subscribe()
    }

    /// Is notified when something that can be searched was committed here. No subscription: one that only looks on
    /// would count as a client who could be asked.
    pub(crate) fn committed(&self) -> &Arc<Notify> {
        &self.committed
    }

    fn questions(&self) -> MutexGuard<'_, HashMap<String, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends; false when no client is connected.
    fn send(&self, message: ServerMessage) -> bool {
        self.messages.send(message).is_ok()
    }

    /// The questions of a conversation that wait for an answer now.
    pub(crate) fn open_questions(&self, conversation: &ConversationId) -> Vec<ServerMessage> {
        let open = self.questions();
        open.values().filter(|open| open.conversation == *conversation).map(|open| open.message.clone()).collect()
    }

    /// Asks; false when no client is connected.
    fn put(&self, id: &str, conversation: &ConversationId, message: ServerMessage, waiting: Waiting) -> bool {
        let open = Open { conversation: conversation.clone(), message: message.clone(), waiting };
        self.questions().insert(id.to_owned(), open);
        self.send(message)
    }

    /// Takes a client's answer; false when nobody waits for it any more.
    pub(crate) fn answer_approval(&self, id: &str, answer: ApprovalAnswer) -> bool {
        let mut open = self.questions();
        match open.remove(id) {
            Some(Open { waiting: Waiting::Approval(waiting), .. }) => waiting.send(answer).is_ok(),
            Some(other) => {
                open.insert(id.to_owned(), other);
                false
            }
            None => false,
        }
    }

    /// Takes a client's answers; false when nobody waits for them any more.
    pub(crate) fn answer_clarify(&self, id: &str, answers: Vec<ClarifyAnswer>) -> bool {
        let mut open = self.questions();
        match open.remove(id) {
            Some(Open { waiting: Waiting::Clarify(waiting), .. }) => waiting.send(answers).is_ok(),
            Some(other) => {
                open.insert(id.to_owned(), other);
                false
            }
            None => false,
        }
    }
}

/// Takes a question back when its asker is gone: answered, timed out, or its turn stopped.
struct Asked<'h> {
    hub: &'h Hub,
    id: String,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.hub.questions().remove(&self.id).is_some() {
            self.hub.send(ServerMessage::RequestWithdrawn { id: self.id.clone() });
        }
    }
}

impl EventSink for Hub {
    fn emit(&self, event: Event) {
        if indexer::is_commit(&event.kind) {
            self.committed.notify_one();
        }
        self.send(ServerMessage::Event(event));
    }
}

/// One conversation's way to its people.
struct ConversationPeople {
    hub: Arc<Hub>,
    conversation: ConversationId,
}

/// The people of a gateway are whoever is connected to it.
pub(crate) struct HubPeople(pub(crate) Arc<Hub>);

impl People for HubPeople {
    fn approver(&self, conversation: &ConversationId) -> Arc<dyn Approver> {
        Arc::new(ConversationPeople { hub: self.0.clone(), conversation: conversation.clone() })
    }

    fn clarifier(&self, conversation: &ConversationId) -> Arc<dyn Clarifier> {
        Arc::new(ConversationPeople { hub: self.0.clone(), conversation: conversation.clone() })
    }
}

#[async_trait]
impl Approver for ConversationPeople {
    async fn ask(&self, request: ApprovalRequest) -> ApprovalAnswer {
        let (sender, answer) = oneshot::channel();
        let wait = Duration::from_millis(request.timeout_ms);
        let asked = Asked { hub: &self.hub, id: request.id.clone() };
        let id = request.id.clone();
        let message = ServerMessage::ApprovalRequested { conversation: self.conversation.clone(), request };
        if !self.hub.put(&id, &self.conversation, message, Waiting::Approval(sender)) {
            return ApprovalAnswer::Deny { reason: "nobody is connected who could allow it".to_owned() };
        }
        let answered = tokio::time::timeout(wait, answer).await;
        drop(asked);
        match answered {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => ApprovalAnswer::Deny { reason: "the question was withdrawn".to_owned() },
            Err(_) => ApprovalAnswer::Deny { reason: "nobody answered in time".to_owned() },
        }
    }

    async fn remember(&self, pattern: &str) {
        self.hub.allow_list.remember(pattern).await;
    }
}

#[async_trait]
impl Clarifier for ConversationPeople {
    async fn clarify(&self, questions: Vec<ClarifyQuestion>) -> Vec<ClarifyAnswer> {
        let nobody = vec![ClarifyAnswer::Unanswered; questions.len()];
        let (sender, answers) = oneshot::channel();
        let id = uuid::Uuid::now_v7().simple().to_string();
        let asked = Asked { hub: &self.hub, id: id.clone() };
        let conversation = self.conversation.clone();
        let message = ServerMessage::ClarifyRequested { conversation, id: id.clone(), questions };
        if !self.hub.put(&id, &self.conversation, message, Waiting::Clarify(sender)) {
            return nobody;
        }
        let answered = tokio::time::timeout(Duration::from_millis(CLARIFY_TIMEOUT_MS), answers).await;
        drop(asked);
        match answered {
            // One answer for each question, whatever the client sent.
            Ok(Ok(mut given)) => {
                given.resize(nobody.len(), ClarifyAnswer::Unanswered);
                given
            }
            _ => nobody,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Forget;

    #[async_trait]
    impl AllowList for Forget {
        async fn remember(&self, _pattern: &str) {}
    }

    fn people() -> (Arc<Hub>, Arc<dyn Approver>) {
        let hub = Hub::new(Arc::new(Forget));
        let approver = HubPeople(hub.clone()).approver(&ConversationId::parse("c").unwrap());
        (hub, approver)
    }

    fn request(timeout_ms: u64) -> ApprovalRequest {
        ApprovalRequest {
            id: "q1".into(),
            call_id: "call".into(),
            tool: "terminal".into(),
            subject: "rm -r x".into(),
            reasons: vec![],
            pattern: "rm".into(),
            timeout_ms,
        }
    }

    #[tokio::test]
    async fn i23_without_a_client_the_answer_is_no() {
        let (_hub, approver) = people();
        assert!(matches!(approver.ask(request(60_000)).await, ApprovalAnswer::Deny { .. }));
    }

    #[tokio::test]
    async fn i23_silence_is_no_and_a_late_answer_is_not_taken() {
        let (hub, approver) = people();
        let mut client = hub.subscribe();
        assert!(matches!(approver.ask(request(10)).await, ApprovalAnswer::Deny { .. }));
        assert!(matches!(client.recv().await, Ok(ServerMessage::ApprovalRequested { .. })));
        assert!(matches!(client.recv().await, Ok(ServerMessage::RequestWithdrawn { .. })));
        assert!(!hub.answer_approval("q1", ApprovalAnswer::Once));
    }

    #[tokio::test]
    async fn i28_a_client_that_comes_while_a_question_waits_can_ask_for_it_and_answer() {
        let (hub, approver) = people();
        let conversation = ConversationId::parse("c").unwrap();
        let gone = hub.subscribe();
        let asking = tokio::spawn(async move { approver.ask(request(60_000)).await });
        while hub.open_questions(&conversation).is_empty() {
            tokio::task::yield_now().await;
        }
        drop(gone);
        let _back = hub.subscribe();
        let open = hub.open_questions(&conversation);
        assert!(
            matches!(&open[..], [ServerMessage::ApprovalRequested { request, .. }] if request.id == "q1"),
            "{open:?}"
        );
        assert!(hub.open_questions(&ConversationId::parse("other").unwrap()).is_empty());
        assert!(hub.answer_approval("q1", ApprovalAnswer::Once));
        assert_eq!(asking.await.unwrap(), ApprovalAnswer::Once);
        assert!(hub.open_questions(&conversation).is_empty());
    }

    #[tokio::test]
    async fn an_answer_reaches_the_one_who_asked_once() {
        let (hub, approver) = people();
        let _client = hub.subscribe();
        let asking = tokio::spawn(async move { approver.ask(request(60_000)).await });
        while !hub.answer_approval("q1", ApprovalAnswer::Session) {
            tokio::task::yield_now().await;
        }
        assert_eq!(asking.await.unwrap(), ApprovalAnswer::Session);
        assert!(!hub.answer_approval("q1", ApprovalAnswer::Once));
    }
}
