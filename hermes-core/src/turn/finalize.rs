//! The one exit: a closed tail, a settled admission, a released lease, one event, one result.

use hermes_store::{
    ApiContent, MessageId, MessageKind, MessagePage, NewMessage, Role, StoreError, StoredMessage, TurnEnd, View,
};

use crate::end::{EndReason, Stopper, TurnError, TurnResult};
use crate::event::EventKind;
use crate::limits::TURN_STOP_GRACE_MS;
use crate::persist::persist;
use crate::stop::Cause;
use crate::trail::Trail;
use crate::turn::context::{tools_bytes, user_row};
use crate::turn::{Ending, Tail, Turn};

/// What the transcript has of a turn that ends.
enum Written {
    /// Not even its input.
    Nothing,
    /// A tail that still needs a row.
    Open,
    /// All it needs.
    Closed,
}

impl Turn<'_> {
    /// Ends the turn.
    pub(crate) async fn finalize(&self, ending: Ending) -> TurnResult {
        let ending = self.with_trail(ending);
        let ending = match self.close(ending.clone()).await {
            Ok(()) => {
                // A child whose parent lost its lease still has its own, and whoever goes on with both waits for it.
                if ending.reason == EndReason::LeaseLost {
                    self.let_go().await;
                }
                ending
            }
            Err(error) => {
                self.let_go().await;
                after_failed_close(ending, &error)
            }
        };
        self.report(ending)
    }

    fn report(&self, ending: Ending) -> TurnResult {
        let result = TurnResult {
            conversation: self.fence.conversation().clone(),
            session: self.session.clone(),
            turn: Some(self.id.clone()),
            admission: self.admission.receipt.admission.clone(),
            reason: ending.reason,
            answer: ending.answer,
            error: ending.error,
            api_calls: self.api_calls,
            model: self.model_name(),
            usage: self.usage.clone(),
        };
        self.emit(EventKind::TurnEnded { result: Box::new(result.clone()) });
        result
    }

    /// The result of a turn that did not end after it was stopped. It stays open, under a lease that nobody renews: the
    /// next owner finds in the journal what became of it.
    pub(crate) fn given_up(&self) -> TurnResult {
        let cause = self.stop.cause().unwrap_or(Cause::Asked(Stopper::User));
        let mut ending = Ending::stopped(cause, String::new());
        let why = ending.error.take().map_or_else(|| "the turn was stopped".to_owned(), |error| error.message);
        ending.error = Some(TurnError {
            code: ending.reason.code().unwrap_or("HM4023").to_owned(),
            message: format!(
                "{why}; it did not end within {} seconds and was given up; the next turn of this conversation finds out \
                 what became of it",
                TURN_STOP_GRACE_MS / 1_000
            ),
            retryable: ending.reason.may_retry(),
        });
        self.report(ending)
    }

    /// The end could not be written: the turn stays open, and the next owner finds in the journal what became of it. It
    /// need not wait for the lease to expire.
    async fn let_go(&self) {
        if let Err(error) = self.engine.store.release(&self.fence).await {
            tracing::warn!(code = error.code(), "the lease could not be given back: {error}");
        }
    }

    /// Writes the tail, then the turn's end with the admission's and the lease's. An owner that lost its lease writes
    /// nothing.
    async fn close(&self, ending: Ending) -> Result<(), StoreError> {
        if ending.reason == EndReason::LeaseLost {
            return Ok(());
        }
        let clock = self.engine.clock.as_ref();
        match (self.written(ending.reason).await?, self.closing_row(&ending)) {
            (Written::Open, Some(row)) => {
                persist(clock, || self.engine.store.append(&self.fence, &self.id, vec![row.clone()], None)).await?;
            }
            (Written::Nothing, Some(row)) => self.write_unbegun(row).await?,
            _ => {}
        }
        let end = TurnEnd {
            reason: ending.reason.as_str().to_owned(),
            detail: ending.error.as_ref().map(|error| format!("{}: {}", error.code, error.message)),
            outcome: ending.reason.outcome(),
            api_calls: self.api_calls,
        };
        persist(clock, || self.engine.store.settle_turn(&self.fence, &self.id, end.clone(), true)).await
    }

    /// What the transcript has of this turn. After a failed write the store is asked: the write may have happened all the
    /// same.
    async fn written(&self, reason: EndReason) -> Result<Written, StoreError> {
        if reason != EndReason::PersistenceFailed {
            return Ok(if self.session.is_some() { Written::Open } else { Written::Closed });
        }
        let page = MessagePage { limit: 1, from_end: true, ..MessagePage::default() };
        let rows = self.engine.store.messages(self.fence.conversation(), View::Model, page).await?;
        let input = self.admission.receipt.admission.input_row();
        // The input row keeps the turn that wrote it first, when the input was put back into its place after a crash.
        let is_ours = |row: &&StoredMessage| row.turn == self.id || row.id == input;
        Ok(match rows.last().filter(is_ours) {
            None => Written::Nothing,
            Some(row) if row.role != Role::Assistant || !row.calls.is_empty() || row.kind == MessageKind::Hidden => {
                Written::Open
            }
            Some(_) => Written::Closed,
        })
    }

    /// Writes the input that failed before it had a row, with the row that says so: what was accepted stands in the
    /// transcript, whatever became of it (I01), and can be sent again from there.
    async fn write_unbegun(&self, closing: NewMessage) -> Result<(), StoreError> {
        // An input that cannot be read has no row.
        let Ok(input) = user_row(&self.admission, MessageKind::Normal) else { return Ok(()) };
        let (store, clock, rows) = (&self.engine.store, self.engine.clock.as_ref(), vec![input, closing]);
        if store.conversation(self.fence.conversation()).await?.tip.is_some() {
            return persist(clock, || store.append(&self.fence, &self.id, rows.clone(), None)).await;
        }
        let Some(tools) = self.tools.as_ref().and_then(|tools| tools_bytes(&tools.schemas).ok()) else { return Ok(()) };
        let session = self.first_session(tools).await;
        persist(clock, || store.open_session(&self.fence, &self.id, session.clone(), rows.clone())).await
    }

    fn closing_row(&self, ending: &Ending) -> Option<NewMessage> {
        let (kind, text) = match &ending.tail {
            Tail::Closed => return None,
            Tail::Partial(text) => (MessageKind::Partial, text.clone()),
            Tail::Boundary => (MessageKind::Boundary, boundary_text(ending.reason)),
            Tail::Note(text) => (MessageKind::Boundary, text.clone()),
        };
        Some(closing_row(self.engine.ids().message(), kind, &text, &self.trail))
    }

    /// What the result calls the answer: with parts of it that were kept before.
    fn with_trail(&self, mut ending: Ending) -> Ending {
        match &ending.tail {
            Tail::Closed => {}
            Tail::Partial(text) => ending.answer = self.trail.with(text),
            Tail::Boundary | Tail::Note(_) if !self.trail.is_empty() => {
                self.trail.text().clone_into(&mut ending.answer);
            }
            Tail::Boundary | Tail::Note(_) => {}
        }
        ending
    }
}

/// The row that closes a turn without an answer. Parts of one that were kept before are shown to people in it; the
/// model, who has them, reads only `text`.
pub(crate) fn closing_row(id: MessageId, kind: MessageKind, text: &str, trail: &Trail) -> NewMessage {
    let mut row = NewMessage::text(id, Role::Assistant, text);
    row.kind = kind;
    if trail.is_empty() {
        return row;
    }
    row.content = if kind == MessageKind::Partial { trail.with(text) } else { trail.text().to_owned() };
    row.kind = MessageKind::Partial;
    row.api_content = Some(ApiContent(text.to_owned().into()));
    row
}

/// What the model reads in place of an answer. It says that the request was not done, so that it is neither taken for
/// done nor run together with the next one.
pub(crate) fn boundary_text(reason: EndReason) -> String {
    let why = match reason {
        EndReason::StoppedByUser => "the user stopped it",
        EndReason::StoppedByShutdown => "the program was shut down",
        EndReason::CrashInterrupted => "the program died while it was being worked on",
        EndReason::BudgetExhausted => "its limit on steps was reached",
        EndReason::DeadlineExceeded => "its time was over",
        EndReason::LivenessLost => "it no longer got on, and the program stopped it",
        EndReason::RepetitionStopped => "the answer had begun to repeat itself without end, and nothing of it was kept",
        EndReason::EmptyResponse | EndReason::ThinkingExhausted => "no answer came",
        EndReason::RedirectLimit => "the user interrupted it again and again",
        _ => "it failed",
    };
    format!("[This request was not finished: {why}. It is not to be taken up again unless the user asks for it.]")
}

/// The end could not be written. An answer that is durable stays an answer: the next owner settles the rest. A lost
/// lease is the reason whatever went before; otherwise storage is.
fn after_failed_close(ending: Ending, error: &StoreError) -> Ending {
    tracing::warn!(code = error.code(), "the end of the turn could not be written: {error}");
    let failure = Ending::storage(error);
    if ending.reason == EndReason::Answered && failure.reason != EndReason::LeaseLost {
        return ending;
    }
    if failure.reason == EndReason::LeaseLost || ending.error.is_none() {
        return Ending { answer: ending.answer, ..failure };
    }
    ending
}
