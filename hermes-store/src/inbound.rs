//! What comes in from people: which messages were received, and which conversation a chat leads to.
//!
//! A messaging platform sends a message again when it does not see an answer in time, and a transport that starts again
//! reads from its last offset. A message is recognised by its account, its chat and its own id, whatever conversation it
//! would go to now (I05): after a reset, a rotation or a deletion it still runs nothing and gets the first receipt.
//!
//! | fact | type | who may write it |
//! |---|---|---|
//! | this message was received, and became this admission | [`InboundReceipt`] | anybody, once per [`InboundKey`], in the transaction of the admission |
//! | where answers to an admission go | [`Reply`] | whoever received it, with it; the end of its turn makes deliveries of them |
//! | which conversation a chat leads to | [`Route`] | whoever holds a generation that is not older than the present one |
//!
//! # What is left after a crash
//!
//! | last thing that was committed | what is stored | what happens next |
//! |---|---|---|
//! | nothing | nothing | the platform sends the message again; it is received once |
//! | [`InboundStore::receive`] | receipt, admission, replies, and the route if it was new | a redelivery gets [`ReceiveOutcome::Replayed`]; a claim runs the admission |
//! | [`InboundStore::reset_route`] | a new conversation, the route to it, the receipt of the command | a redelivered command gets [`RouteOutcome::Replayed`]; redelivered older messages stay with the old conversation |
//! | the end of the turn | deliveries in place of the replies | see [`crate::DeliveryStore`] |
//! | [`crate::SessionStore::delete_conversation`] | receipts with what their admissions came to; the route leads nowhere | a redelivery still gets its receipt |
//! | [`InboundStore::prune_inbound`] | no receipt older than [`crate::limits::INBOUND_KEEP_MS`] | no platform sends a message again after so long |
//!
//! A transport acknowledges a message (or moves its offset) only after [`InboundStore::receive`] has returned.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::admission::{NewAdmission, Receipt};
use crate::delivery::Target;
use crate::error::StoreError;
use crate::ids::{AdmissionId, ConversationId, Generation};
use crate::limits::{ADDRESS_MAX_BYTES, KEY_MAX_BYTES, REPLIES_MAX};
use crate::prompt::PromptHash;
use crate::rules::{self, invalid};
use crate::session::NewConversation;

/// By what a message is recognised when it comes again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "id")]
pub enum MessageRef {
    /// The platform's own id of the message (or the delivery id of a webhook).
    Platform(String),
    /// The transport's place of it (an update number, a stream offset), where the message has no id.
    Offset(String),
    /// By nothing: should the transport bring it again, it runs again. Only a repetition of the same call, with the same
    /// admission id, is recognised.
    NotIdempotent,
}

impl MessageRef {
    /// The stored form: a word for the kind, and the id.
    pub(crate) fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Platform(id) => ("platform", id),
            Self::Offset(offset) => ("offset", offset),
            Self::NotIdempotent => ("none", ""),
        }
    }

    /// Reads the stored form back.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn from_parts(kind: &str, id: &str) -> Option<Self> {
        match kind {
            "platform" => Some(Self::Platform(id.to_owned())),
            "offset" => Some(Self::Offset(id.to_owned())),
            "none" => Some(Self::NotIdempotent),
            _ => None,
        }
    }
}

/// The key of a message, independent of sessions and conversations.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InboundKey {
    /// The account of the transport that received it, with the transport's name (`telegram:BOT_ID`); at most
    /// [`crate::limits::ADDRESS_MAX_BYTES`].
    pub account: String,
    /// The chat; at most [`crate::limits::ADDRESS_MAX_BYTES`]. Many platforms count message ids per chat.
    pub chat: String,
    /// The message; at most [`crate::limits::KEY_MAX_BYTES`].
    pub message: MessageRef,
}

impl InboundKey {
    /// Digest of the key: what rows are found by. Keys may be long and hostile; digests are neither.
    pub(crate) fn digest(&self, admission: Option<&AdmissionId>) -> String {
        let (kind, id) = self.message.parts();
        let own = match self.message {
            MessageRef::NotIdempotent => admission.map_or("", AdmissionId::as_str),
            MessageRef::Platform(_) | MessageRef::Offset(_) => id,
        };
        rules::digest_of(&[&self.account, &self.chat, kind, own])
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.account.is_empty() {
            return Err(invalid("a message needs the account that received it"));
        }
        rules::limit("the name of an account", self.account.len(), ADDRESS_MAX_BYTES)?;
        rules::limit("the id of a chat", self.chat.len(), ADDRESS_MAX_BYTES)?;
        let (_, id) = self.message.parts();
        if id.is_empty() && self.message != MessageRef::NotIdempotent {
            return Err(invalid("a message id is empty; give the transport's offset, or say that there is none"));
        }
        rules::limit("the id of a message", id.len(), KEY_MAX_BYTES)
    }
}

/// Checks the key of a command that moves a route. It has no admission that could name it.
pub(crate) fn check_command(by: Option<&InboundKey>) -> Result<(), StoreError> {
    let Some(by) = by else { return Ok(()) };
    if by.message == MessageRef::NotIdempotent {
        return Err(invalid("a command without an id cannot be recognised; give no key for it"));
    }
    by.check()
}

/// Where an answer is to go.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reply {
    /// The chat.
    pub target: Target,
    /// The platform's id of the message that is answered, if the answer is to refer to it; at most
    /// [`crate::limits::KEY_MAX_BYTES`].
    pub reply_to: Option<String>,
}

/// What names a chat for the purpose of finding its conversation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RouteKey {
    /// Where it comes from (`telegram`); at most [`crate::limits::KEY_MAX_BYTES`].
    pub source: String,
    /// The chat within it, as its profile keys it; at most [`crate::limits::KEY_MAX_BYTES`].
    pub key: String,
}

impl RouteKey {
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        rules::limit("the source of a route", self.source.len(), KEY_MAX_BYTES)?;
        rules::limit("the key of a route", self.key.len(), KEY_MAX_BYTES)
    }
}

/// Where a chat leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The chat.
    pub key: RouteKey,
    /// Its conversation. None before its first message, and after the conversation was deleted.
    pub conversation: Option<ConversationId>,
    /// The generation under which this was set; 0 when it never was. Grows with every change, never reset (I08).
    pub generation: Generation,
}

/// What came of setting a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteOutcome {
    /// It leads there now. The same call again gives the same answer.
    Set(Route),
    /// A newer generation has set it; this is how it stands. Nothing was written.
    Stale(Route),
    /// The command that asked for it was received before; this is how the route stands. Nothing was written.
    Replayed(Route),
}

/// A message that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbound {
    /// Its key.
    pub key: InboundKey,
    /// What the person sent, in a form that is the same at every redelivery and differs after an edit (the text and the
    /// ids of its attachments, without times). Only its digest is stored.
    pub content: String,
    /// Where the answer goes; at most [`crate::limits::REPLIES_MAX`], each chat once.
    pub replies: Vec<Reply>,
    /// The route by which the conversation was found, as the caller saw it: the message is refused when it has been
    /// moved since, and a route that leads nowhere is set to the conversation of the input.
    pub route: Option<(RouteKey, Generation)>,
}

impl Inbound {
    pub(crate) fn digest(&self) -> String {
        PromptHash::of(self.content.as_bytes()).as_str().to_owned()
    }

    pub(crate) fn check(&self, conversation: Option<&NewConversation>, input: &NewAdmission) -> Result<(), StoreError> {
        self.key.check()?;
        if conversation.is_some_and(|new| new.id != input.conversation) {
            return Err(invalid("the input belongs to another conversation than the one to be created"));
        }
        if let Some((route, _)) = &self.route {
            route.check()?;
        }
        rules::limit("the number of replies to an input", self.replies.len(), REPLIES_MAX)?;
        for (index, reply) in self.replies.iter().enumerate() {
            reply.target.check()?;
            rules::limit("the id of a message", reply.reply_to.as_ref().map_or(0, String::len), KEY_MAX_BYTES)?;
            if self.replies[..index].iter().any(|earlier| earlier.target == reply.target) {
                return Err(invalid("an answer can go to a chat only once; name each chat once"));
            }
        }
        rules::check_admission(input)
    }
}

/// The receipt of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboundReceipt {
    /// Its key.
    pub key: InboundKey,
    /// The conversation that it went to, which may have been deleted since.
    pub conversation: ConversationId,
    /// The admission that it became, as it stands now (or stood when its conversation was deleted); none for a command
    /// that moved a route.
    pub admission: Option<Receipt>,
    /// How often it was edited after it was received.
    pub edits: i64,
    /// When it was received first, in milliseconds since the Unix epoch.
    pub received_at_ms: i64,
}

/// What came of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiveOutcome {
    /// It is durable now, and waits in the queue of its conversation.
    Accepted(InboundReceipt),
    /// It was received before. Nothing was written.
    Replayed(InboundReceipt),
    /// It was received before with other content: the person edited it. No second turn is made of it; the receipt is
    /// the first one.
    Edited {
        /// The first receipt.
        receipt: InboundReceipt,
        /// Whether this edit is told for the first time, and not a redelivery of the last one.
        is_new: bool,
    },
    /// The route leads elsewhere by now. Nothing was written: look where it goes, and receive the message again.
    Moved(Route),
}

/// What comes in.
#[async_trait]
pub trait InboundStore: Send + Sync {
    /// Makes a message durable: its receipt, its admission, where answers go, with the conversation unless it exists,
    /// in one transaction. One key makes one admission, however many receive it at once and whatever conversation each
    /// of them names (I05, S15). An admission that is known already by its own request id is replayed as it is.
    ///
    /// # Errors
    /// As [`crate::AdmissionStore::admit`] (without a conversation to create) or
    /// [`crate::AdmissionStore::create_and_admit`]; [`StoreError::Limit`] and [`StoreError::Invalid`] for a key or replies
    /// that cannot be used. None of them writes: the message may come again.
    async fn receive(
        &self,
        inbound: Inbound,
        conversation: Option<NewConversation>,
        input: NewAdmission,
    ) -> Result<ReceiveOutcome, StoreError>;

    /// The receipt of a message, if it was received; never one of [`MessageRef::NotIdempotent`].
    ///
    /// # Errors
    /// Only those of the database.
    async fn inbound(&self, key: &InboundKey) -> Result<Option<InboundReceipt>, StoreError>;

    /// Deletes receipts older than [`crate::limits::INBOUND_KEEP_MS`] whose admission is over (and its turn with it), at
    /// most [`crate::limits::PRUNE_MAX_ROWS`] of them. Returns how many.
    ///
    /// # Errors
    /// Only those of the database.
    async fn prune_inbound(&self) -> Result<u64, StoreError>;

    /// Where a chat leads. One that was never set leads nowhere, with generation 0.
    ///
    /// # Errors
    /// Only those of the database.
    async fn route(&self, key: &RouteKey) -> Result<Route, StoreError>;

    /// Makes a chat lead to a conversation, under a generation of [`crate::SessionStore::next_generation`]. A generation
    /// below the one that set it last changes nothing.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for an unknown conversation; [`StoreError::Conflict`] when the same generation set another
    /// one; [`StoreError::Invalid`] for a generation that was never handed out.
    async fn set_route(
        &self,
        key: &RouteKey,
        generation: Generation,
        conversation: &ConversationId,
    ) -> Result<RouteOutcome, StoreError>;

    /// A reset: creates the new conversation (unless it exists) and makes the chat lead to it under a new generation, in
    /// one transaction. `seen` is the generation that the caller saw: of two resets at once one moves the route. `by` is
    /// the key of the message that asked for it: redelivered, it moves nothing.
    ///
    /// # Errors
    /// [`StoreError::Limit`] and [`StoreError::Invalid`] for keys that cannot be used.
    async fn reset_route(
        &self,
        key: &RouteKey,
        seen: Generation,
        conversation: NewConversation,
        by: Option<InboundKey>,
    ) -> Result<RouteOutcome, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(message: MessageRef) -> InboundKey {
        InboundKey { account: "telegram:1".to_owned(), chat: "7".to_owned(), message }
    }

    #[test]
    fn i05_keys_of_different_messages_have_different_digests() {
        let a = AdmissionId::parse("a").unwrap();
        let one = |account: &str, chat: &str, message| {
            InboundKey { account: account.to_owned(), chat: chat.to_owned(), message }.digest(Some(&a))
        };
        let platform = |id: &str| MessageRef::Platform(id.to_owned());
        let all = [
            one("t", "7", platform("1")),
            one("t", "71", platform("")),
            one("t7", "", platform("1")),
            one("t", "7", MessageRef::Offset("1".to_owned())),
            one("t", "7", MessageRef::NotIdempotent),
            one("t", "7", platform("a")),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn s16_a_message_without_a_name_has_the_key_of_its_admission() {
        let [a, b] = ["a", "b"].map(|id| AdmissionId::parse(id).unwrap());
        let none = key(MessageRef::NotIdempotent);
        assert_ne!(none.digest(Some(&a)), none.digest(Some(&b)));
        let named = key(MessageRef::Offset("9".to_owned()));
        assert_eq!(named.digest(Some(&a)), named.digest(Some(&b)));
    }

    #[test]
    fn i27_keys_that_cannot_be_used_are_refused() {
        let bad = [
            key(MessageRef::Platform(String::new())),
            key(MessageRef::Offset(String::new())),
            key(MessageRef::Platform("x".repeat(KEY_MAX_BYTES + 1))),
            InboundKey { account: String::new(), ..key(MessageRef::NotIdempotent) },
            InboundKey { chat: "x".repeat(ADDRESS_MAX_BYTES + 1), ..key(MessageRef::NotIdempotent) },
        ];
        for key in bad {
            assert!(key.check().is_err(), "{key:?}");
        }
        assert!(key(MessageRef::NotIdempotent).check().is_ok());
    }
}
