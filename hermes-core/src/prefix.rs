//! Whether each request of a session begins with the one before it, byte for byte (I18), and if not, at which message.
//!
//! Of each session's last request there is one number for the system prompt and one for each message.
//! Only an engine's own memory has them: the first request of a session in a process is compared with nothing. What
//! explains a difference is not counted: a rotation opens another session, and a compaction or an undo stands among the
//! changes of the history. Tools are compared when a session is opened again (`turn/context.rs`), and a change is told.
//!
//! Every message is hashed once, when it is new. At the first request of a turn, whose history was read anew, all of it is
//! hashed; within a turn only what is new and the last messages before it, which are the ones that a defect would touch.
//! Builds with debug assertions hash all of it each time, so that every test of a turn guards the whole.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hermes_providers::{ChatMessage, ChatRequest, Image};
use hermes_store::{ChangeKind, SessionId, TurnId};

use crate::event::EventKind;
use crate::limits::{PREFIX_HASHES_MAX, PREFIX_SESSIONS_MAX};
use crate::turn::Turn;

/// Messages before the new ones that are hashed again within a turn.
const TAIL_MESSAGES: usize = 2;

/// The last request of one session.
#[derive(Debug, Default)]
struct Sent {
    turn: Option<TurnId>,
    system: u64,
    messages: Vec<u64>,
    /// How many changes of its history were accepted as a reason for a difference.
    explained: usize,
}

/// Where a request parts from the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Difference {
    /// The place of the message, from 0; none for the system prompt.
    message_index: Option<usize>,
    role: &'static str,
    why: &'static str,
}

/// The last requests of the sessions that an engine has worked on.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    /// Held for map operations only, never over an await.
    sent: Mutex<Sessions>,
}

#[derive(Debug, Default)]
struct Sessions {
    by_session: HashMap<SessionId, Sent>,
    hashes: usize,
}

impl Prefixes {
    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, session: &SessionId) -> Option<Sent> {
        let mut sessions = self.lock();
        let sent = sessions.by_session.remove(session)?;
        sessions.hashes = sessions.hashes.saturating_sub(sent.messages.len());
        Some(sent)
    }

    /// Keeps it, in place of others when there are too many: the next requests of those are compared with nothing.
    fn put(&self, session: SessionId, sent: Sent) {
        let mut sessions = self.lock();
        sessions.hashes += sent.messages.len();
        while sessions.by_session.len() >= PREFIX_SESSIONS_MAX
            || (sessions.hashes > PREFIX_HASHES_MAX && !sessions.by_session.is_empty())
        {
            let Some(victim) = sessions.by_session.keys().next().cloned() else { break };
            let freed = sessions.by_session.remove(&victim).map_or(0, |sent| sent.messages.len());
            sessions.hashes = sessions.hashes.saturating_sub(freed);
        }
        sessions.by_session.insert(session, sent);
    }
}

impl Turn<'_> {
    /// Compares the request with the session's last one. It stops nothing: the answer is as good, it only costs more.
    pub(crate) async fn watch_prefix(&self, request: &ChatRequest) {
        let Some(session) = &self.session else { return };
        let prefixes = &self.engine.prefixes;
        if self.sidecars_left_out {
            // The provider's refusal explains the difference, in this turn and to the next one, which has all again.
            prefixes.take(session);
            return;
        }
        let Some(mut sent) = prefixes.take(session) else {
            let mut sent = Sent::default();
            sent.replace(&self.id, request);
            return prefixes.put(session.clone(), sent);
        };
        if let Some(difference) = sent.follow(&self.id, request) {
            // Boxed: it is rare, and every turn would carry its size.
            Box::pin(self.prefix_differs(session, &mut sent, difference)).await;
            sent.replace(&self.id, request);
        }
        prefixes.put(session.clone(), sent);
    }

    /// Tells of a difference, unless a change of the history explains it.
    async fn prefix_differs(&self, session: &SessionId, sent: &mut Sent, difference: Difference) {
        let conversation = self.fence.conversation();
        let changes = match self.engine.store.changes(conversation).await {
            Ok(changes) => changes,
            Err(error) => {
                tracing::debug!(code = error.code(), "changes of the history could not be read: {error}");
                return;
            }
        };
        let explains = |kind: ChangeKind| matches!(kind, ChangeKind::Compaction | ChangeKind::Rewind);
        let count = changes.iter().filter(|change| change.session == *session && explains(change.kind)).count();
        if count > std::mem::replace(&mut sent.explained, count) {
            return;
        }
        let Difference { message_index, role, why } = difference;
        let message_index = message_index.map(|index| index as u64);
        tracing::warn!(
            %conversation, %session, message_index, role,
            "a request does not begin with the one before it ({why}): what the provider had cached is lost"
        );
        self.emit(EventKind::PrefixBroken { message_index, role: role.to_owned(), why: why.to_owned() });
    }
}

impl Sent {
    /// Takes the place of the last request; says where it does not begin with that.
    fn follow(&mut self, turn: &TurnId, request: &ChatRequest) -> Option<Difference> {
        let same_turn = self.turn.as_ref() == Some(turn) && !cfg!(debug_assertions);
        if same_turn && self.may_follow(request) {
            // The system prompt changes within a turn only by a compression, which changes the messages too.
            self.messages.extend(request.messages.iter().skip(self.messages.len()).map(of_message));
            return None;
        }
        let mut is = Self { explained: self.explained, ..Self::default() };
        is.replace(turn, request);
        let difference = self.difference(&is, request);
        *self = is;
        difference
    }

    /// Whether the messages that were sent last are still in their places.
    fn may_follow(&self, request: &ChatRequest) -> bool {
        let known = self.messages.len();
        let tail = known.saturating_sub(TAIL_MESSAGES)..known;
        let was = self.messages.get(tail.clone()).unwrap_or_default();
        let is = request.messages.get(tail).map(|tail| tail.iter().map(of_message));
        is.is_some_and(|is| is.eq(was.iter().copied()))
    }

    fn replace(&mut self, turn: &TurnId, request: &ChatRequest) {
        self.turn = Some(turn.clone());
        self.system = Hash::default().bytes(&request.system).end();
        self.messages.clear();
        self.messages.extend(request.messages.iter().map(of_message));
    }

    fn difference(&self, is: &Self, request: &ChatRequest) -> Option<Difference> {
        if self.system != is.system {
            return Some(Difference { message_index: None, role: "system", why: "the system prompt changed" });
        }
        let same = self.messages.iter().zip(&is.messages).take_while(|(was, is)| was == is).count();
        if same == self.messages.len() {
            return None;
        }
        let (role, why) = match request.messages.get(same) {
            Some(ChatMessage::User { .. }) => ("user", "the message changed"),
            Some(ChatMessage::Assistant { .. }) => ("assistant", "the message changed"),
            Some(ChatMessage::Tool { .. }) => ("tool", "the message changed"),
            None => ("none", "the message is not there any more"),
        };
        Some(Difference { message_index: Some(same), role, why })
    }
}

fn of_message(message: &ChatMessage) -> u64 {
    let hash = Hash::default();
    match message {
        ChatMessage::User { text, images } => hash.tag(1).text(text).images(images),
        ChatMessage::Assistant { text, reasoning, sidecar, calls } => {
            let mut hash = hash.tag(2).text(text).text(reasoning.as_deref().unwrap_or_default());
            if let Some(sidecar) = sidecar {
                hash = hash.tag(4).text(&sidecar.issuer).bytes(&sidecar.bytes);
            }
            calls.iter().fold(hash, |hash, call| hash.tag(5).text(&call.id).text(&call.name).text(&call.arguments))
        }
        ChatMessage::Tool { call_id, name, content, is_error, images } => {
            hash.tag(3).text(call_id).text(name).text(content).tag(u64::from(*is_error)).images(images)
        }
    }
    .end()
}

/// A quick hash of 64 bits, eight bytes at a time. It finds defects, not attackers: who can choose messages so that two
/// of them collide has gained nothing.
#[derive(Debug, Clone, Copy, Default)]
struct Hash(u64);

impl Hash {
    /// An odd number with about as many ones as zeros (the golden ratio).
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    fn tag(self, word: u64) -> Self {
        Self((self.0.rotate_left(23) ^ word).wrapping_mul(Self::FACTOR))
    }

    fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    fn images(self, images: &[Image]) -> Self {
        images.iter().fold(self, |hash, image| hash.tag(6).text(&image.media_type).bytes(&image.data))
    }

    /// The length goes first: two fields never look like one.
    fn bytes(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let hash = words.iter().fold(self.tag(bytes.len() as u64), |hash, word| hash.tag(u64::from_le_bytes(*word)));
        rest.iter().fold(hash, |hash, byte| hash.tag(u64::from(*byte)))
    }

    fn end(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(Self::FACTOR);
        mixed ^ (mixed >> 29)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hermes_providers::{Sidecar, ToolCall};

    use super::*;

    fn user(text: &str) -> ChatMessage {
        crate::projection::user(text.to_owned())
    }

    fn said(text: &str) -> ChatMessage {
        ChatMessage::Assistant { text: text.to_owned(), reasoning: None, sidecar: None, calls: Vec::new() }
    }

    fn request(messages: Vec<ChatMessage>) -> ChatRequest {
        let mut request = crate::auxiliary::request("system", String::new(), None, false);
        request.messages = messages;
        request
    }

    fn turn(name: &str) -> TurnId {
        TurnId::parse(name).unwrap()
    }

    fn sent(messages: Vec<ChatMessage>) -> Sent {
        let mut sent = Sent::default();
        sent.replace(&turn("t1"), &request(messages));
        sent
    }

    #[test]
    fn i18_a_request_that_goes_on_differs_nowhere_and_one_that_does_not_is_named_by_message() {
        let old = || vec![user("a"), said("b"), user("c")];
        let mut longer = old();
        longer.extend([said("d"), user("e")]);
        assert_eq!(sent(old()).follow(&turn("t1"), &request(old())), None, "the same request again");
        assert_eq!(sent(old()).follow(&turn("t2"), &request(longer.clone())), None);

        for (index, role) in [(0, "user"), (1, "assistant"), (2, "user")] {
            let mut broken = longer.clone();
            let (ChatMessage::User { text, .. } | ChatMessage::Assistant { text, .. }) = &mut broken[index] else {
                panic!()
            };
            text.push(' ');
            let difference = sent(old()).follow(&turn("t2"), &request(broken)).unwrap();
            assert_eq!((difference.message_index, difference.role), (Some(index), role));
        }
        let shorter = sent(old()).follow(&turn("t2"), &request(old()[..2].to_vec())).unwrap();
        assert_eq!((shorter.message_index, shorter.role), (Some(2), "none"));
        let mut other = request(longer);
        other.system = "another".into();
        let system = sent(old()).follow(&turn("t2"), &other).unwrap();
        assert_eq!((system.message_index, system.role), (None, "system"));
    }

    #[test]
    fn i18_within_a_turn_the_last_messages_are_looked_at_again() {
        let sent = sent(vec![user("a"), said("b"), user("c")]);
        let with = |a: &str, c: &str| request(vec![user(a), said("b"), user(c), said("d")]);
        assert!(sent.may_follow(&with("a", "c")));
        assert!(!sent.may_follow(&with("a", "c2")));
        assert!(!sent.may_follow(&request(vec![user("a"), said("b")])), "a shorter one does not follow");
        assert!(sent.may_follow(&with("x", "c")), "it is seen with the next turn");
    }

    #[test]
    fn every_field_of_a_message_counts() {
        let call = |id: &str, name: &str, arguments: &str| ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
        let full = |reasoning: Option<&str>, issuer: &str, bytes: &'static [u8], calls| ChatMessage::Assistant {
            text: "t".to_owned(),
            reasoning: reasoning.map(str::to_owned),
            sidecar: Some(Sidecar { issuer: Arc::from(issuer), bytes: bytes.into() }),
            calls,
        };
        let tool = |id: &str, name: &str, content: &str, is_error| ChatMessage::Tool {
            call_id: id.to_owned(),
            name: name.to_owned(),
            content: content.to_owned(),
            is_error,
            images: Vec::new(),
        };
        let all = [
            user("t"),
            said("t"),
            user("t\0"),
            full(None, "i", b"s", vec![]),
            full(Some("r"), "i", b"s", vec![]),
            full(None, "is", b"", vec![]),
            full(None, "i", b"S", vec![]),
            full(None, "i", b"s", vec![call("a", "b", "c")]),
            full(None, "i", b"s", vec![call("ab", "", "c")]),
            full(None, "i", b"s", vec![call("a", "b", "c"), call("a", "b", "c")]),
            tool("a", "b", "c", false),
            tool("a", "b", "c", true),
            tool("a", "bc", "", false),
            tool("a", "b", "a long text of many bytes, the last of which differs 1", false),
            tool("a", "b", "a long text of many bytes, the last of which differs 2", false),
        ];
        let hashes: std::collections::HashSet<u64> = all.iter().map(of_message).collect();
        assert_eq!(hashes.len(), all.len());
    }

    #[test]
    fn i25_only_so_much_is_remembered() {
        let prefixes = Prefixes::default();
        for n in 0..PREFIX_SESSIONS_MAX + 10 {
            prefixes.put(SessionId::parse(&format!("s{n}")).unwrap(), sent(vec![user("a")]));
        }
        let held = || {
            let sessions = prefixes.lock();
            (sessions.by_session.len(), sessions.hashes)
        };
        assert_eq!(held(), (PREFIX_SESSIONS_MAX, PREFIX_SESSIONS_MAX));
        let long = Sent { messages: vec![0; PREFIX_HASHES_MAX], ..Sent::default() };
        let id = SessionId::parse("long").unwrap();
        prefixes.put(id.clone(), long);
        assert_eq!(held(), (1, PREFIX_HASHES_MAX));
        assert!(prefixes.take(&id).is_some());
        assert!(prefixes.take(&id).is_none());
        assert_eq!(held(), (0, 0));
    }
}
