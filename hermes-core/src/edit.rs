//! A lease for work on a conversation that is no turn: a title, an undo, a compression that a person asked for.
//!
//! Every write to a conversation carries a fencing token (I07), so such work owns the conversation while it writes. It
//! never takes an input from the queue, and it never touches a conversation whose last turn was left open by a crash:
//! that is recovered first, by whoever runs its turns.

use hermes_store::{ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId, Fence, StoreError, TurnId};

use crate::engine::{EngineError, Inner, Working};
use crate::persist::persist;
use crate::stop::StopSignal;

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

    /// Takes a conversation for what a person wants done to it now, in this process and in the store. Nobody waits for a
    /// turn that runs: the person is told.
    ///
    /// # Errors
    /// [`EngineError::Busy`]; those of the store.
    pub(crate) async fn own_for_edit(
        &self,
        conversation: &ConversationId,
        claim: &TurnId,
        stop: &StopSignal,
    ) -> Result<(Working<'_>, Fence), EngineError> {
        let busy = |why| Err(EngineError::Busy { why });
        let Some(working) = self.begin(conversation, stop) else {
            return busy("a turn of this conversation is running; stop it or wait for its end");
        };
        if self.closing.has_begun() {
            return busy("this process is ending");
        }
        match self.lease_for_edit(conversation, claim, self.settings.lease_ttl_ms).await? {
            Lease::Held(fence) => Ok((working, fence)),
            Lease::Busy => busy("another process is working on this conversation"),
            Lease::Crashed => busy("a turn of it was interrupted by a crash; resume it first"),
        }
    }
}
