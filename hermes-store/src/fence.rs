//! The proof of a lease, and how one is claimed.

use crate::admission::AdmissionRecord;
use crate::ids::{ConversationId, Generation, OwnerId, Token, TurnId};
use crate::turn::OpenTurn;

/// Proof of a lease on one conversation. Only a store makes one; every write to the conversation takes one.
///
/// Holding a fence proves that the lease *was* granted. Whether it still holds is checked by the SQL of each write: a
/// write with a token that is not the newest changes nothing and returns [`crate::StoreError::Fenced`].
///
/// Nobody else can make one:
///
/// ```compile_fail,E0624
/// use hermes_store::{ConversationId, Fence, OwnerId, Token};
/// let conversation = ConversationId::parse("c").unwrap();
/// let fence = Fence::new(conversation, OwnerId::parse("me").unwrap(), Token(7));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    conversation: ConversationId,
    owner: OwnerId,
    token: Token,
}

impl Fence {
    pub(crate) fn new(conversation: ConversationId, owner: OwnerId, token: Token) -> Self {
        Self { conversation, owner, token }
    }

    /// The conversation.
    #[must_use]
    pub fn conversation(&self) -> &ConversationId {
        &self.conversation
    }

    /// The owner.
    #[must_use]
    pub fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// The token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }
}

/// Which admission at the head of the queue a claimer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimPolicy {
    /// Whoever accepted it (a gateway).
    Any,
    /// Those that this owner accepted, and those whose owner is dead or has left them waiting for longer than
    /// `orphan_after_ms` without a lease being held (a program that runs one conversation in its own directory and
    /// with its own screen).
    OwnOrOrphaned {
        /// How long, in milliseconds.
        orphan_after_ms: u64,
    },
    /// No admission: only the lease, for recovery and for edits.
    LeaseOnly,
}

/// A wish to own a conversation for one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The conversation.
    pub conversation: ConversationId,
    /// Who wants it.
    pub owner: OwnerId,
    /// The id of this claim, and of the turn when an admission is claimed. While the lease is held, the same owner with the
    /// same id is told the same again: a claim whose answer was lost may be repeated.
    pub turn: TurnId,
    /// Life of the lease unless renewed, in milliseconds.
    pub ttl_ms: u64,
    /// Which admission.
    pub policy: ClaimPolicy,
}

/// What a claim found. Exactly one transaction, whatever the answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimOutcome {
    /// The lease is held, and this admission is started.
    Turn {
        /// The lease.
        fence: Fence,
        /// The input.
        admission: Box<AdmissionRecord>,
        /// Its generation.
        generation: Generation,
    },
    /// The lease is held; an earlier owner left a turn open, which must be recovered before anything else.
    Recover {
        /// The lease.
        fence: Fence,
        /// What is known of that turn.
        open: Box<OpenTurn>,
    },
    /// The lease is held ([`ClaimPolicy::LeaseOnly`]) and there is nothing to recover.
    Leased {
        /// The lease.
        fence: Fence,
    },
    /// Nothing waits; no lease was taken.
    Empty,
    /// The head of the queue belongs to another live owner; no lease was taken.
    NotMine,
    /// The head of the queue is `unknown` and waits for an operator; no lease was taken.
    Blocked,
    /// Another owner holds the lease.
    Held {
        /// Who.
        owner: OwnerId,
        /// When it ends unless renewed, in milliseconds since the Unix epoch.
        expires_at_ms: i64,
    },
}
