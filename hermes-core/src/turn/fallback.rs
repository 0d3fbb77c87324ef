//! The fallback phase: another model stands in for one that gives no answer.
//!
//! The request phase returns a [`Rebuild`] instead of an answer, and the normalise phase makes one of an answer that is
//! empty or withheld again and again. It is the only value that leads to another route and back to preflight, with
//! everything that belonged to the old route put away: its limits, its word on the size of the history, its output cap.
//! The messages are encoded anew from the canonical history, so that nothing private of one provider reaches another
//! (I21). The session's prompt and tools are the same bytes.

use hermes_providers::{ErrorClass, ProviderError};

use crate::event::EventKind;
use crate::turn::request::Answer;
use crate::turn::{Ending, Turn};

/// The turn goes on with another route. Made by [`Turn::rebuild_for`] alone.
#[derive(Debug)]
#[must_use]
pub(crate) struct Rebuild {
    route: usize,
    /// Why, for people.
    why: String,
}

/// What the request phase came to.
pub(crate) enum Asked {
    /// An answer.
    Answer(Box<Answer>),
    /// None from this route.
    Rebuild(Rebuild),
    /// None yet: the user spoke.
    Redirected,
}

impl Turn<'_> {
    /// An answer, of whichever route gives one.
    pub(crate) async fn answer_of_any(&mut self) -> Result<Answer, Ending> {
        loop {
            self.preflight().await?;
            match self.request().await? {
                Asked::Answer(answer) => {
                    self.engine.routes().answered(self.route);
                    self.redirects.cut = 0;
                    return Ok(*answer);
                }
                Asked::Rebuild(rebuild) => self.rebuild(rebuild),
                // The same step of the budget asks again.
                Asked::Redirected => self.take_redirects().await?,
            }
        }
    }

    /// Whether there is a route to fall back to after a failure of this class. What one provider refuses to speak of, one other
    /// may be asked, and no third.
    pub(crate) fn may_fall_back(&self, class: ErrorClass) -> bool {
        let refused = class == ErrorClass::ContentPolicy && self.refused;
        !refused && self.engine.routes().next(self.route, self.engine.clock.now_ms()).is_some()
    }

    /// The next route, and why.
    pub(crate) fn rebuild_for(&mut self, error: &ProviderError) -> Option<Rebuild> {
        let now_ms = self.engine.clock.now_ms();
        let route = {
            let mut routes = self.engine.routes();
            routes.left(self.route, error.class, error.retry_after_ms, now_ms);
            routes.next(self.route, now_ms)?
        };
        self.refused |= error.class == ErrorClass::ContentPolicy;
        Some(Rebuild { route, why: error.message.clone() })
    }

    /// The same, if the next route has room for a history that this one has refused as too long.
    pub(crate) fn rebuild_with_room(&mut self, error: &ProviderError) -> Option<Rebuild> {
        let window = self.engine.window_of(self.model.as_ref())?;
        let next = self.engine.routes().next(self.route, self.engine.clock.now_ms())?;
        let larger = self.engine.room_of(self.engine.model_at(next).as_ref()).is_some_and(|room| room > window);
        if larger { self.rebuild_for(error) } else { None }
    }

    /// Takes the route, with everything that belonged to the old one put away.
    pub(crate) fn rebuild(&mut self, rebuild: Rebuild) {
        let Rebuild { route, why } = rebuild;
        let was = self.model_name();
        self.route = route;
        self.model = self.engine.model_at(route);
        let settings = &self.engine.settings;
        self.max_output_tokens = settings.max_output_tokens;
        self.effort.clone_from(&settings.reasoning_effort);
        self.output_lowered = false;
        self.sidecars_left_out = false;
        self.times_raised = 0;
        self.anchor = None;
        self.compressions = 0;
        self.window_stays = false;
        self.emit(EventKind::Notice {
            text: format!("{was} gives no answer ({why}); {} stands in", self.model_name()),
        });
    }
}
