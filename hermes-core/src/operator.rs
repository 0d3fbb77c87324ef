//! What a person decides about inputs: takes a waiting one back, and says what became of one of which nobody knows.
//!
//! An input is `unknown` when its turn began and no journal can tell what came of it (I06). It blocks its conversation,
//! since whatever is done next may build on it, until somebody who can look into the world has decided. The decision
//! names the exact generation that was looked at: one that was made about an older start decides nothing.

use hermes_store::{
    AdmissionId, AdmissionOutcome, AdmissionStatus, ConversationId, Generation, JournalState, MessagePage, Receipt,
    StoreError, TurnEnd, TurnId, View,
};
use serde::{Deserialize, Serialize};

use crate::end::EndReason;
use crate::engine::{Engine, EngineError};
use crate::input::Input;
use crate::limits::UNKNOWN_LOOK_MAX_ROWS;

/// What became of an input of which nobody knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// What it asked for was done.
    Done,
    /// It was tried, and failed.
    Failed,
    /// It was given up before it was done.
    GivenUp,
}

impl Decision {
    fn outcome(self) -> AdmissionOutcome {
        match self {
            Self::Done => AdmissionOutcome::Completed,
            Self::Failed => AdmissionOutcome::Failed,
            Self::GivenUp => AdmissionOutcome::Interrupted,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Done => "a person decided that it was done",
            Self::Failed => "a person decided that it failed",
            Self::GivenUp => "a person gave it up",
        }
    }
}

/// An input that waits for a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownInput {
    /// The input.
    pub admission: AdmissionId,
    /// The start of it that a decision is about.
    pub generation: Generation,
    /// The turn that began.
    pub turn: TurnId,
    /// What was asked.
    pub text: String,
    /// The calls of its turn of which no result is stored, in their order.
    pub calls: Vec<UnknownCall>,
}

/// A call of which no result is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownCall {
    /// The tool.
    pub name: String,
    /// The arguments, as the model wrote them.
    pub arguments: String,
    /// Whether it was begun: only then it may have had an effect.
    pub was_begun: bool,
}

impl Engine {
    /// Takes an input back that waits in its queue.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] when it was begun or is over (a running turn is stopped by [`Engine::interrupt`]),
    /// [`StoreError::NotFound`], and those of the database.
    pub async fn cancel(&self, admission: &AdmissionId) -> Result<Receipt, EngineError> {
        Ok(self.inner().store.cancel(admission).await?)
    }

    /// The inputs of a conversation that wait for a decision, with what the journal shows of them.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and those of the database.
    pub async fn unknown(&self, conversation: &ConversationId) -> Result<Vec<UnknownInput>, EngineError> {
        let store = &self.inner().store;
        let mut found = Vec::new();
        for record in store.queue(conversation).await? {
            let receipt = record.receipt;
            if receipt.status != AdmissionStatus::Unknown {
                continue;
            }
            // One that is unknown was begun; the store keeps both together.
            let (Some(turn), Some(generation)) = (receipt.turn, receipt.generation) else { continue };
            let calls = self.open_calls(conversation, &turn).await?;
            let text = Input::from_payload(&record.payload).map_or(record.payload, |input| input.text);
            found.push(UnknownInput { admission: receipt.admission, generation, turn, text, calls });
        }
        Ok(found)
    }

    async fn open_calls(&self, conversation: &ConversationId, turn: &TurnId) -> Result<Vec<UnknownCall>, StoreError> {
        // Nothing was written behind it: its conversation is blocked.
        let page = MessagePage { from_end: true, limit: UNKNOWN_LOOK_MAX_ROWS, ..MessagePage::default() };
        let rows = self.inner().store.messages(conversation, View::Display, page).await?;
        let calls = rows.into_iter().filter(|row| row.turn == *turn).flat_map(|row| row.calls);
        let open = calls.filter(|call| call.state != JournalState::Settled);
        let told = open.map(|call| UnknownCall {
            was_begun: call.state == JournalState::Started,
            name: call.name,
            arguments: call.arguments,
        });
        Ok(told.collect())
    }

    /// Decides what became of an input of which nobody knew. Its turn is closed, its open calls are stored as of unknown
    /// outcome, and the queue goes on.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] when it is not unknown, or was begun again since: look at [`Engine::unknown`] once more;
    /// and those of the database.
    pub async fn resolve(
        &self,
        admission: &AdmissionId,
        generation: Generation,
        decision: Decision,
    ) -> Result<Receipt, EngineError> {
        let end = TurnEnd {
            reason: EndReason::CrashInterrupted.as_str().to_owned(),
            detail: Some(decision.words().to_owned()),
            outcome: decision.outcome(),
            api_calls: 0,
        };
        Ok(self.inner().store.resolve_unknown(admission, generation, end).await?)
    }
}
