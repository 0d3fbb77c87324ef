//! A lease for work on a conversation that is no turn: a title, a compression that a person asked for.
//!
//! Every write to a conversation carries a fencing token (I07), so such work owns the conversation while it writes. It
//! never takes an input from the queue, and it never touches a conversation whose last turn was left open by a crash:
//! that is recovered first, by whoever runs its turns.

use hermes_store::{ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, Fence, StoreError, TurnId};

use crate::engine::Inner;
use crate::persist::persist;

/// What came of a wish to own a conversation.
#[derive(Debug)]
pub(crate) enum Lease {
    /// It is owned, until it is released or has not been renewed for long.
    Held(Fence),
    /// Somebody else is at work on it.
    Busy,
    /// A crash left its last turn open; the lease was given back.
    Crashed,
}

impl Inner {
    /// Takes the lease of a conversation without an input, under the id `claim`.
    pub(crate) async fn lease_for_edit(
        &self,
        conversation: &ConversationId,
        claim: &TurnId,
        ttl_ms: u64,
    ) -> Result<Lease, StoreError> {
        let request = ClaimRequest {
            conversation: conversation.clone(),
            owner: self.owner.id.clone(),
            turn: claim.clone(),
            ttl_ms,
            policy: ClaimPolicy::LeaseOnly,
        };
        match persist(self.clock.as_ref(), || self.store.claim(request.clone())).await? {
            ClaimOutcome::Leased { fence } => Ok(Lease::Held(fence)),
            ClaimOutcome::Recover { fence, .. } => {
                self.store.release(&fence).await?;
                Ok(Lease::Crashed)
            }
            _ => Ok(Lease::Busy),
        }
    }
}
