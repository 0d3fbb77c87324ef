//! A compression that a person asks for, outside a turn.
//!
//! It is the work of the compress phase with three differences: it takes the lease itself, a cooldown is not waited out,
//! and that there is nothing to shorten is an answer and no failure that is remembered.

use futures::future::{Either, select};
use hermes_store::{ConversationId, Fence, SessionId, TurnId};
use serde::{Deserialize, Serialize};

use super::compress::{Came, Shortener, Trigger, Wanted, model_rows};
use super::keeper;
use crate::engine::{Engine, EngineError, Inner};
use crate::limits::{FOCUS_MAX_BYTES, UNKNOWN_WINDOW_TOKENS};
use crate::stop::StopSignal;
use crate::tokens;

/// A history that was shortened because a person asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortened {
    /// The session that goes on.
    pub session: SessionId,
    /// Size of the history before, in tokens by estimate.
    pub before: u64,
    /// Size after, by the same estimate.
    pub after: u64,
    /// Rows that the model is no longer shown; people still see them.
    pub rows: u64,
}

impl Engine {
    /// Shortens the history of a conversation now, whatever its size; `focus` says what the notes are to be about. The
    /// conversation is owned meanwhile: an input that comes waits. [`Engine::interrupt`] stops it.
    ///
    /// # Errors
    /// [`EngineError::Busy`] while a turn runs or another process works on the conversation, and when a crash left a turn
    /// open; [`EngineError::NotShortened`] when the history stays as it is; [`EngineError::InputTooLarge`] for a long
    /// `focus`; those of the store. Nothing was changed then.
    pub async fn compress(&self, conversation: &ConversationId, focus: Option<&str>) -> Result<Shortened, EngineError> {
        let focus = focus.map(str::trim).filter(|focus| !focus.is_empty());
        if let Some(focus) = focus.filter(|focus| focus.len() > FOCUS_MAX_BYTES) {
            return Err(EngineError::InputTooLarge { bytes: focus.len(), max: FOCUS_MAX_BYTES });
        }
        self.while_beating(self.compress_now(conversation, focus)).await
    }

    async fn compress_now(&self, conversation: &ConversationId, focus: Option<&str>) -> Result<Shortened, EngineError> {
        let inner = self.inner();
        let stop = StopSignal::default();
        let claim = inner.ids().turn();
        let (working, fence) = inner.own_for_edit(conversation, &claim, &stop).await?;
        let keeper = keeper::keep(inner, fence.clone(), stop.clone(), None);
        // Boxed: the future is large, and everything that waits for it would carry its size.
        let work = Box::pin(inner.shorten_for_person(&fence, &claim, &stop, focus));
        futures::pin_mut!(keeper);
        let done = match select(work, keeper).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => match never {},
        };
        let released = inner.store.release(&fence).await;
        drop(working);
        let done = done?;
        released?;
        Ok(done)
    }
}

impl Inner {
    async fn shorten_for_person(
        &self,
        fence: &Fence,
        claim: &TurnId,
        stop: &StopSignal,
        focus: Option<&str>,
    ) -> Result<Shortened, EngineError> {
        let summary = self.store.conversation(fence.conversation()).await?;
        let stays = |why: &str| Err(EngineError::NotShortened { why: why.to_owned() });
        let Some(session) = summary.tip else { return stays("nothing was said in it yet") };
        let model = self.model_at(self.routes().first(self.clock.now_ms()));
        let window = self.window_of(model.as_ref()).unwrap_or(UNKNOWN_WINDOW_TOKENS);
        let tokens = self.size_of_next(fence.conversation(), &session).await?;
        let mut work = Shortener {
            engine: self,
            model: &model,
            fence,
            turn: claim,
            in_turn: false,
            stop,
            failures: 0,
            used: Vec::new(),
        };
        self.thrash.forget(fence.conversation());
        match work.shorten(Wanted { session, window, tokens, trigger: Trigger::Manual, focus, pass: None }).await? {
            Came::Shorter { change, before, after } => {
                Ok(Shortened { session: change.session, before, after, rows: change.rows })
            }
            Came::NotNow { why } | Came::Same { why } => stays(&why),
            Came::Stopped => stays("it was stopped"),
        }
    }

    /// The size of a request with nothing new in it, in tokens by estimate.
    async fn size_of_next(&self, conversation: &ConversationId, tip: &SessionId) -> Result<u64, EngineError> {
        let tip = self.store.session(tip).await?;
        let of = |bytes: &[u8]| tokens::of_text(&String::from_utf8_lossy(bytes));
        let prompt = of(self.store.prompt(&tip.prompt).await?.bytes());
        let tools = of(self.store.prompt(&tip.tools).await?.bytes());
        let rows = model_rows(self.store.as_ref(), conversation).await?;
        Ok(prompt + tools + tokens::of_rows(&rows))
    }
}
