//! What the program says to the model in the user's place.
//!
//! A nudge is a hidden user row: stored before it is sent, replayed in every later request, never shown to people. It
//! could not be sent without being stored, since the next request would then not begin with the bytes of this one (I18).
//! Which nudge a row is stands in its `meta`, so nobody has to recognise it by its text.

use hermes_store::{MessageId, MessageKind, NewMessage, Role, StoredMessage};
use serde_json::json;

/// The field of `meta` that names a nudge.
const META_KEY: &str = "nudge";

/// A nudge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nudge {
    /// Go on with an answer that the output limit cut.
    GoOn,
    /// Nothing came after the results of tools.
    AnswerAfterTools,
    /// The budget is used up: sum up.
    Summarise,
}

impl Nudge {
    const ALL: [Self; 3] = [Self::GoOn, Self::AnswerAfterTools, Self::Summarise];

    fn word(self) -> &'static str {
        match self {
            Self::GoOn => "go_on",
            Self::AnswerAfterTools => "answer_after_tools",
            Self::Summarise => "summarise",
        }
    }

    /// What the model reads.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::GoOn => {
                "Your answer reached the output limit and was cut. Go on with it exactly where it stops: do not repeat \
                 what is there, and do not introduce the rest."
            }
            Self::AnswerAfterTools => {
                "The results of your calls are there, and no answer came. Go on with the work, or give your answer."
            }
            Self::Summarise => {
                "The limit on steps for this turn is reached. Do not call any tool. Say in a few sentences what was \
                 done, what was found, and what is left to do."
            }
        }
    }

    /// The row.
    pub(crate) fn row(self, id: MessageId) -> NewMessage {
        let mut row = NewMessage::text(id, Role::User, self.text());
        row.kind = MessageKind::Hidden;
        row.meta = Some(json!({ META_KEY: self.word() }));
        row
    }

    /// Which nudge a stored row is.
    pub(crate) fn of(row: &StoredMessage) -> Option<Self> {
        if row.kind != MessageKind::Hidden || row.role != Role::User {
            return None;
        }
        let word = row.meta.as_ref()?.get(META_KEY)?.as_str()?;
        Self::ALL.into_iter().find(|nudge| nudge.word() == word)
    }
}
