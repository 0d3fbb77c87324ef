//! The redirect phase: the user speaks while the model is asked, and the request makes room for it.
//!
//! A redirect is an admission like any other ([`hermes_store::Intent::Redirect`]), durable before anybody looks at it.
//! What becomes of it depends on where the turn stands when it is noticed:
//!
//! | the turn | then |
//! |---|---|
//! | asks the model, or waits before it asks again | the request, or the wait, is cut; what came of the answer and the user's words become rows in the transaction that ends the admission; the same step of the budget asks again |
//! | has the whole answer, with calls | the answer stands, its calls run, and the words follow the last result like a steer |
//! | has the whole answer, without calls | the answer stands; the redirect is the next input |
//! | shortens the history, or sums up at the end of its budget | nothing is cut: it waits until this is over |
//! | is stopped | the stop wins: the redirect is the next input |
//! | there is none | it is the next input, in its place in the queue |
//!
//! An answer that crosses a redirect is therefore kept when its end was seen first, and cut otherwise; never both. What
//! was not taken in that one transaction stays queued, so a crash on either side of it neither loses nor repeats it.
//!
//! Every look goes to the store, so it makes no difference which process accepted the redirect. [`noticed`] is polled
//! beside the request, starts no task, and sleeps in the store's own wait for a change.
//!
//! A request that is redirected again and again without one answer would never end: after as many times as a request has
//! attempts the turn ends for a reason of its own, and what was not taken stays queued.

use std::sync::atomic::{AtomicBool, Ordering};

use hermes_providers::ChatMessage;
use hermes_store::{
    AdmissionRecord, AdmissionStatus, ApiContent, ConversationId, Intent, MessageId, MessageKind, NewMessage, Role,
    StoreError,
};

use crate::end::EndReason;
use crate::engine::Inner;
use crate::event::{EventKind, TakenInput};
use crate::image;
use crate::limits::{REDIRECT_WAIT_MS, WAIT_POLL_MS};
use crate::persist::persist;
use crate::projection;
use crate::repetition;
use crate::shown::Shown;
use crate::trail::Trail;
use crate::turn::answer::carry;
use crate::turn::context::user_row;
use crate::turn::{Ending, Tail, Turn};
use crate::watchdog::{Patience, Sign};

/// What the model reads in place of an answer of which nothing had come.
const NOTHING_CAME: &str = "[The user spoke before there was an answer.]";
/// What the model reads in place of an answer that only repeated itself: the text would be an example to go on with.
const DEGENERATED: &str = "[This answer had begun to repeat itself and was not kept.]";
/// What the model reads before the words of a redirect.
const INTERRUPTED: &str = "[The user interrupted the answer above with this message. Go on from here, and follow it where \
                           it differs from what was asked before.]";

/// What a turn knows of its redirects.
#[derive(Debug, Default)]
pub(crate) struct Redirects {
    /// Requests in a row that were cut without one answer.
    pub cut: u32,
    /// Nothing is cut any more: the turn sums up.
    pub closed: bool,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    Over,
    Stopped,
    Redirected,
}

/// Ends when a redirect waits in the conversation. Looks once at first, and then after each change that the store tells
/// of. A store that fails is asked again: it will be heard of where something is written.
async fn noticed(engine: &Inner, conversation: &ConversationId) {
    // Below every revision, so that the first look is taken at once, and no change falls between it and the wait.
    let mut seen = i64::MIN;
    loop {
        match look(engine, conversation, &mut seen).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(code = error.code(), "no look at the queue: {error}");
                engine.clock.sleep(WAIT_POLL_MS).await;
            }
        }
    }
}

async fn look(engine: &Inner, conversation: &ConversationId, seen: &mut i64) -> Result<bool, StoreError> {
    let now = engine.store.wait_for_change(conversation, *seen, REDIRECT_WAIT_MS).await?;
    if now == *seen {
        return Ok(false);
    }
    let queue = engine.store.queue(conversation).await?;
    *seen = now;
    Ok(queue.iter().any(|record| record.intent == Intent::Redirect && record.receipt.status == AdmissionStatus::Queued))
}

impl Turn<'_> {
    /// Ends when a redirect waits that may cut what the turn is at; never where nothing may be cut.
    pub(crate) async fn redirected(&self) {
        if self.redirects.closed {
            return futures::future::pending().await;
        }
        noticed(self.engine, self.fence.conversation()).await;
    }

    /// Sleeps, unless the turn is stopped or redirected.
    pub(crate) async fn wait_to_ask(&self, ms: u64) -> Waited {
        let stopped = self.stop.soft().clone();
        let _waiting = self.pulse.wait(Patience::Ms(ms));
        tokio::select! {
            biased;
            () = stopped.cancelled() => Waited::Stopped,
            () = self.redirected() => Waited::Redirected,
            () = self.engine.clock.sleep(ms) => Waited::Over,
        }
    }

    /// The request was cut. Takes what waits for the turn, behind what there is of the answer. Nothing was taken when the
    /// redirect was taken back meanwhile: the same request goes out again then.
    pub(crate) async fn take_redirects(&mut self) -> Result<(), Ending> {
        // A stop is never turned into another request.
        if self.stop.cause().is_some() {
            return Err(self.stopped_while_asking(&self.shown));
        }
        self.redirects.cut += 1;
        let limit = self.engine.settings.request_attempts;
        if self.redirects.cut > limit {
            return Err(self.redirected_too_often(limit));
        }
        let was_shown = !self.shown.text().is_empty();
        let lead = self.cut_row();
        if !self.take_inputs(lead, true).await? {
            self.shown.next_attempt();
            return Ok(());
        }
        self.trail = Trail::default();
        self.shown = Shown::after(&self.trail);
        if was_shown {
            self.emit(EventKind::TextRestarted);
        }
        Ok(())
    }

    /// Appends what was meant for the running turn, and `lead` before it, in the transaction that ends the admissions.
    /// With `cut` the model is told that it was interrupted. False when there was nothing.
    pub(crate) async fn take_inputs(&mut self, lead: Option<NewMessage>, cut: bool) -> Result<bool, Ending> {
        let rows = |taken: &[AdmissionRecord]| rows_of(taken, lead.as_ref(), cut);
        // Repeated like any write: its rows keep their ids. But a repetition does not find what was taken before it.
        let lost = AtomicBool::new(false);
        let taken = persist(self.engine.clock.as_ref(), || async {
            let taken = self.engine.store.take_steers(&self.fence, &self.id, &rows).await;
            lost.fetch_or(matches!(taken, Err(StoreError::CommitUnknown)), Ordering::Relaxed);
            taken
        })
        .await;
        let taken = self.store(taken)?;
        let kept = lead.as_ref().is_some_and(|row| row.kind == MessageKind::Partial);
        if lost.into_inner() {
            if !self.read_back().await? {
                return Ok(false);
            }
        } else if taken.is_empty() {
            return Ok(false);
        } else {
            self.hear(rows_of(&taken, lead.as_ref(), cut));
        }
        let said = rows_of(&taken, None, false).into_iter().zip(&taken);
        let said = said.map(|(row, admission)| TakenInput::new(admission.receipt.admission.clone(), &row.content));
        let inputs: Vec<_> = said.collect();
        if cut {
            self.emit(EventKind::Redirected { inputs, kept });
        } else if !inputs.is_empty() {
            self.emit(EventKind::Steered { inputs });
        }
        self.pulse.stamp(Sign::Write);
        self.guard().person_spoke();
        Ok(true)
    }

    /// Adds what was taken to the history, in the words of the rows.
    fn hear(&mut self, rows: Vec<NewMessage>) {
        let (answers, words): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.role == Role::Assistant);
        self.history.extend(answers.iter().map(|row| projection::assistant(row, Vec::new())));
        let images = words.iter().flat_map(|row| image::of_sidecar(row.sidecar.as_ref())).collect();
        let words: Vec<String> = words.into_iter().map(sent).collect();
        self.history.push(ChatMessage::User { text: words.join(projection::JOINT), images });
    }

    /// The answer to a COMMIT was lost: the history as the store has it. False when nothing was added to it.
    async fn read_back(&mut self) -> Result<bool, Ending> {
        let before = self.history.len();
        self.load_history().await?;
        Ok(self.history.len() > before)
    }

    /// The row of an answer that was cut. None where nothing came and the model has had the last word, or its tools.
    fn cut_row(&self) -> Option<NewMessage> {
        let text = self.shown.text();
        let id = self.engine.ids().message();
        let has_text = !text.trim().is_empty();
        if has_text && !repetition::loops(text) {
            return Some(partial_row(id, text, &self.trail));
        }
        let why = if has_text { DEGENERATED } else { NOTHING_CAME };
        if !self.trail.is_empty() {
            // People read what was said before, the model why it stops there.
            let mut row = partial_row(id, why, &self.trail);
            self.trail.text().clone_into(&mut row.content);
            return Some(row);
        }
        // Roles alternate: two user messages in a row are refused by strict providers.
        let user_spoke = matches!(self.history.last(), Some(ChatMessage::User { .. }) | None);
        (user_spoke || has_text).then(|| {
            let mut row = NewMessage::text(id, Role::Assistant, why);
            row.kind = MessageKind::Hidden;
            row
        })
    }

    fn redirected_too_often(&self, limit: u32) -> Ending {
        let mut ending = Ending::failed(
            EndReason::RedirectLimit,
            "HM4024",
            format!(
                "the request was redirected more than {limit} times before there was an answer; what was not read yet is \
                 the next input"
            ),
        );
        let text = self.shown.text();
        if !text.trim().is_empty() && !repetition::loops(text) {
            text.clone_into(&mut ending.answer);
            ending.tail = Tail::Partial(text.to_owned());
        }
        ending
    }
}

fn partial_row(id: MessageId, text: &str, trail: &Trail) -> NewMessage {
    let mut row = NewMessage::text(id, Role::Assistant, text);
    row.kind = MessageKind::Partial;
    carry(trail, &mut row);
    row
}

/// The rows of what was taken: what was cut, then the inputs in their order. They are one message to the model
/// ([`projection::messages`]); that it was interrupted is said once, where it begins.
fn rows_of(taken: &[AdmissionRecord], lead: Option<&NewMessage>, cut: bool) -> Vec<NewMessage> {
    let words = taken.iter().enumerate().map(|(at, admission)| {
        // A payload that cannot be read was refused when it was submitted; a row must be made all the same.
        let mut row = user_row(admission, MessageKind::Steer).unwrap_or_else(|_| {
            NewMessage::text(admission.receipt.admission.input_row(), Role::User, admission.payload.clone())
        });
        if cut && at == 0 {
            row.api_content = Some(ApiContent(format!("{INTERRUPTED}\n\n{}", row.content).into()));
        }
        row
    });
    lead.cloned().into_iter().chain(words).collect()
}

/// What the model reads of a user row.
fn sent(row: NewMessage) -> String {
    match row.api_content {
        Some(bytes) => String::from_utf8_lossy(&bytes.0).into_owned(),
        None => row.content,
    }
}
