//! Typed ids. An id is never a bare `String` in a signature.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits::ID_MAX_BYTES;

/// An id that cannot be used: empty, too long, or with a character outside `[A-Za-z0-9._:-]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid id: {reason}")]
pub struct InvalidId {
    /// What is wrong with it; never quotes the id itself, which may be hostile.
    pub reason: &'static str,
}

fn check(text: &str) -> Result<(), InvalidId> {
    if text.is_empty() {
        return Err(InvalidId { reason: "it is empty" });
    }
    if text.len() > ID_MAX_BYTES {
        return Err(InvalidId { reason: "it is longer than 128 bytes" });
    }
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-')) {
        return Err(InvalidId { reason: "only letters, digits, '.', '_', ':' and '-' are allowed" });
    }
    Ok(())
}

macro_rules! id_type {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and wraps a text.
            ///
            /// # Errors
            /// [`InvalidId`] when the text is empty, longer than 128 bytes, or has a character outside
            /// `[A-Za-z0-9._:-]`.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                check(text)?;
                Ok(Self(Arc::from(text)))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), &self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }
    };
}

id_type!(
    /// What a person sees as one chat. Equal to the id of its first session; never changes.
    ConversationId
);
id_type!(
    /// One segment of a conversation; compression closes it and opens a child.
    SessionId
);
id_type!(
    /// One accepted input.
    AdmissionId
);
id_type!(
    /// One execution of one admission.
    TurnId
);
id_type!(
    /// One row of the transcript. Minted by the writer, so that a repeated write is recognised.
    MessageId
);
id_type!(
    /// One tool call, unique in the store whatever id the model gave it.
    CallId
);
id_type!(
    /// One process (or one worker in it) that may own leases.
    OwnerId
);
id_type!(
    /// One change of history (a rotation, a compaction, a rewind). Minted by the writer.
    ChangeId
);
id_type!(
    /// One execution of a task by a worker.
    ExecutionId
);
id_type!(
    /// One task that a conversation gave to another.
    DelegationId
);
id_type!(
    /// One text that is owed to a chat. Follows from what it is.
    DeliveryId
);
id_type!(
    /// One question to a person. Minted by whoever asks.
    ApprovalId
);

impl ConversationId {
    /// The id of the conversation's first session: the same text.
    #[must_use]
    pub fn first_session(&self) -> SessionId {
        SessionId(self.0.clone())
    }
}

impl AdmissionId {
    /// The id of the row that holds this input: the same text, so that a turn that is begun again writes the same row.
    #[must_use]
    pub fn input_row(&self) -> MessageId {
        MessageId(self.0.clone())
    }
}

/// A fencing token: grows by one with every lease of a conversation; never reset, reused or pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub i64);

/// A counter of starts of one conversation: grows by one with every claimed admission. Resolving an `unknown` needs
/// the exact value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub i64);

/// What an id is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdKind {
    /// [`ConversationId`]
    Conversation,
    /// [`SessionId`]
    Session,
    /// [`AdmissionId`]
    Admission,
    /// [`TurnId`]
    Turn,
    /// [`MessageId`]
    Message,
    /// [`CallId`]
    Call,
    /// [`OwnerId`]
    Owner,
    /// [`ChangeId`]
    Change,
    /// [`ExecutionId`]
    Execution,
    /// [`DelegationId`]
    Delegation,
    /// [`ApprovalId`]
    Approval,
    /// The id of one request to a model, by which usage is counted once.
    Attempt,
}

/// Where new ids come from: random in production, a counter in tests. A `&dyn IdSource` mints typed ids: `ids.turn()`,
/// `ids.message()` and so on, as [`UuidIds`] itself does.
pub trait IdSource: Send + Sync {
    /// A text that no earlier call returned, valid for every id type.
    fn next(&self, kind: IdKind) -> String;
}

macro_rules! mint {
    ($($fn_name:ident $kind:ident $ty:ident),* $(,)?) => {
        impl dyn IdSource + '_ {
            $(
                #[doc = concat!("A new [`", stringify!($ty), "`].")]
                #[must_use]
                pub fn $fn_name(&self) -> $ty {
                    // A source that breaks its contract must not stop a gateway: the text is cleaned, not trusted.
                    let text = self.next(IdKind::$kind);
                    $ty::parse(&text).unwrap_or_else(|_| $ty(Arc::from(clean(&text).as_str())))
                }
            )*
        }

        impl UuidIds {
            $(
                #[doc = concat!("A new [`", stringify!($ty), "`].")]
                #[must_use]
                pub fn $fn_name(&self) -> $ty {
                    (self as &dyn IdSource).$fn_name()
                }
            )*
        }
    };
}

mint!(
    conversation Conversation ConversationId,
    session Session SessionId,
    admission Admission AdmissionId,
    turn Turn TurnId,
    message Message MessageId,
    call Call CallId,
    owner Owner OwnerId,
    change Change ChangeId,
    execution Execution ExecutionId,
    delegation Delegation DelegationId,
    approval Approval ApprovalId,
);

fn clean(text: &str) -> String {
    let mut out: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-') { c } else { '_' })
        .take(ID_MAX_BYTES)
        .collect();
    if out.is_empty() {
        out.push('_');
    }
    out
}

/// Version 7 UUIDs without dashes: unique over hosts, sorted by time of creation.
#[derive(Debug, Clone, Copy, Default)]
pub struct UuidIds;

impl IdSource for UuidIds {
    fn next(&self, _kind: IdKind) -> String {
        uuid::Uuid::now_v7().simple().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i27_hostile_ids_are_refused() {
        for bad in ["", "a b", "../x", "a/b", "a\0b", "ü", "a\nb", &"x".repeat(129)] {
            assert!(SessionId::parse(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "call_1", "a.b:c-D9", &"x".repeat(128)] {
            assert_eq!(SessionId::parse(good).unwrap().as_str(), good);
        }
        assert!(serde_json::from_str::<TurnId>("\"a b\"").is_err());
    }

    #[test]
    fn uuid_ids_are_valid_and_differ() {
        let ids: &dyn IdSource = &UuidIds;
        assert_ne!(ids.turn(), ids.turn());
        assert_ne!(UuidIds.turn(), UuidIds.turn());
    }
}
