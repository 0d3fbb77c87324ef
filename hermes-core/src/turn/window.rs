//! The window phase: a model that this program runs itself is given a larger window before its history is shortened.
//!
//! It is the last resort before a compression: nothing of the history is lost by it, but the server starts anew, and what it
//! had cached is gone. It costs no step of the budget and no attempt. When the window stays as it is, the history is
//! shortened as ever; the turn does not try again.

use std::sync::Arc;

use hermes_providers::{ErrorClass, OwnWindow, ProviderError};

use crate::event::EventKind;
use crate::limits::{WINDOW_GROWTH_MAX_MS, WINDOW_GROWTH_PARTS};
use crate::turn::{Ending, Turn};
use crate::watchdog::Patience;

impl Turn<'_> {
    /// Grows the window, where that lifts the size from which the history is shortened; false when it stays as it is.
    pub(crate) async fn grow_before_compression(&mut self) -> Result<bool, Ending> {
        let Some(own) = self.model.own_window() else { return Ok(false) };
        let needed = self.load();
        let reachable = self.wanted_for(needed).min(own.max);
        // A threshold that the user has set in tokens, or a small summariser, is not lifted by any window.
        if self.threshold_with(reachable) <= self.threshold_with(own.tokens) {
            return Ok(false);
        }
        self.grow(own, needed).await
    }

    /// Grows the window after a request that was refused as too long; false when it stays as it is. `counted` is the size
    /// of that request, where the provider told it.
    pub(crate) async fn grow_after_refusal(&mut self, counted: Option<u64>) -> Result<bool, Ending> {
        let Some(own) = self.model.own_window() else { return Ok(false) };
        let needed = counted.unwrap_or(0).max(self.load()).max(own.tokens);
        self.grow(own, needed).await
    }

    /// The window that has room for a request of this size, and for what follows it.
    fn wanted_for(&self, needed: u64) -> u64 {
        needed.saturating_mul(WINDOW_GROWTH_PARTS).saturating_add(self.max_output_tokens.unwrap_or(0))
    }

    async fn grow(&mut self, own: OwnWindow, needed: u64) -> Result<bool, Ending> {
        if self.window_stays || own.max <= own.tokens {
            return Ok(false);
        }
        self.emit(EventKind::WindowGrowing { tokens: needed, window: own.tokens });
        let (model, wanted) = (Arc::clone(&self.model), self.wanted_for(needed));
        let stopped = self.stop.soft().clone();
        // Silence has a reason meanwhile.
        let waiting = self.pulse.wait(Patience::Ms(WINDOW_GROWTH_MAX_MS));
        let grown = tokio::select! {
            biased;
            () = stopped.cancelled() => None,
            () = self.engine.clock.sleep(WINDOW_GROWTH_MAX_MS) => {
                Some(Err(ProviderError::new(ErrorClass::Timeout, "its server did not come back in time")))
            }
            grown = model.grow_window(own.tokens, wanted) => Some(grown),
        };
        drop(waiting);
        match grown {
            None => self.check_stop().map(|()| false),
            Some(Ok(after)) if after > own.tokens => {
                let model = self.model_name();
                tracing::info!(model, before = own.tokens, after, "the window was grown");
                self.emit(EventKind::WindowGrown { model, before: own.tokens, after });
                Ok(true)
            }
            Some(stayed) => {
                self.window_stays = true;
                let why = stayed.map_or_else(|error| error.message, |_| "it came back no larger".to_owned());
                let model = self.model_name();
                let text = format!("the window of {model} stays at {} tokens: {why}", own.tokens);
                self.emit(EventKind::Notice { text });
                Ok(false)
            }
        }
    }
}
