//! The compress phase: before a request that would not fit, and after one that a provider has refused as too long. Where the
//! window can be grown, that goes first (`turn/window.rs`).
//!
//! ```text
//! load -> threshold -> lock -> rows -> shorter view (a model is asked) -> verified -> one commit -> history read anew
//! ```
//!
//! A crash at any point leaves the old history or the new one. When no shorter view can be had, the turn goes on with
//! the history as it is; whether that still fits is the provider's word. The work itself is [`Shortener`]: it is the same
//! when a person asks for it outside a turn (`turn/manual.rs`).

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use hermes_providers::{ChatModel, Completion, ProviderError};
use hermes_store::limits::COMPRESSION_LOCK_TTL_MS;
use hermes_store::{
    Compaction, CompressionLock, ConversationId, Fence, HistoryChange, IdKind, LockOutcome, MessageKind, MessagePage,
    NewMessage, NewSession, Role, Rotation, SessionId, Store, StoreError, StoredMessage, TakeLock, TurnId, UsageDelta,
    View, ViewMark, ViewRow,
};

use crate::auxiliary::{self, Desk, Task, Used};
use crate::compress::cooldown::cooldown_ms;
use crate::compress::thrash::{self, Pass, Record, THRASH_WAIT_MS};
use crate::compress::view::{sizes, verify};
use crate::compress::{CompactError, History, NewView, Summarizer, ViewPart, summariser_ceiling};
use crate::engine::Inner;
use crate::event::{Event, EventKind};
use crate::limits::AUXILIARY_ROUTES_MAX;
use crate::persist::persist;
use crate::stop::StopSignal;
use crate::tokens::{self, Anchor, Load};
use crate::turn::{Ending, Turn};
use crate::watchdog::Patience;

/// Why no compression is begun for a while.
const IN_VAIN: &str = "two compressions in a row made this history hardly shorter";

/// The lock outlasts what is waited for under it by as much.
const LOCK_MARGIN_MS: u64 = 60_000;

impl Trigger {
    /// Whether a cooldown is not waited out.
    fn is_pressing(self) -> bool {
        matches!(self, Self::Overflow | Self::Manual)
    }
}

/// Why a history is shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// It is over the threshold.
    Threshold,
    /// A provider has refused the request as too long: a cooldown is not waited out.
    Overflow,
    /// The conversation was quiet for long.
    Idle,
    /// A person asked for it: a cooldown is not waited out.
    Manual,
}

impl Turn<'_> {
    /// Makes room when the next request would be over the threshold: grows the window where this program can, and
    /// shortens the history otherwise.
    pub(crate) async fn preflight(&mut self) -> Result<(), Ending> {
        while self.compress_threshold().is_some_and(|threshold| self.load() >= threshold) {
            if !self.grow_before_compression().await? && !self.compress(Trigger::Threshold).await? {
                break;
            }
        }
        Ok(())
    }

    /// The size from which the next request is shortened; `None` for never.
    pub(crate) fn compress_threshold(&self) -> Option<u64> {
        self.threshold_with(self.window()?)
    }

    /// The same if the model's window were this one.
    pub(crate) fn threshold_with(&self, window: u64) -> Option<u64> {
        let threshold = self.engine.context.threshold(window, self.max_output_tokens)?;
        // What the summarising model cannot read as a whole is shortened before it grows further.
        let summariser = self.engine.auxiliary.of(Task::Compression);
        let summariser = summariser.and_then(|model| self.engine.window_of(model.as_ref()));
        Some(summariser.map_or(threshold, |window| threshold.min(summariser_ceiling(window))))
    }

    /// The model's window: its own where this program runs it, what its provider last said, else what is known of it.
    pub(crate) fn window(&self) -> Option<u64> {
        self.engine.window_of(self.model.as_ref())
    }

    /// The size of the next request in tokens. What was counted for it is not counted again: a round costs as much in a
    /// long history as in a short one, also where the provider reports no usage.
    pub(crate) fn load(&mut self) -> u64 {
        let tools = self.tools.as_ref().map(|tools| tools.schemas.clone()).unwrap_or_default();
        let Load { tokens, measured } = tokens::load(&self.system, &tools, &self.history, self.anchor);
        self.anchor = Some(Anchor { messages: self.history.len(), input: tokens, measured });
        tokens
    }

    /// Shortens the history; false when it stays as it is.
    pub(crate) async fn compress(&mut self, trigger: Trigger) -> Result<bool, Ending> {
        let (Some(session), Some(window)) = (self.session.clone(), self.window()) else { return Ok(false) };
        if self.compressions >= self.engine.settings.compression.attempts_max {
            return Ok(false);
        }
        let counted = self.anchor.filter(|anchor| anchor.measured).map(|_| self.load());
        let tokens = self.load();
        self.know_thrash(tokens).await?;
        let blocked = !trigger.is_pressing() && self.engine.thrash.take_block(self.fence.conversation());
        if blocked && self.stop_shortening(session.clone()).await? {
            return Ok(false);
        }
        let pass = Pass { before: counted, threshold: self.compress_threshold().unwrap_or(window) };
        let wanted = Wanted { session, window, tokens, trigger, focus: None, pass: Some(pass) };
        let mut work = Shortener {
            engine: self.engine,
            model: &self.model,
            fence: &self.fence,
            turn: &self.id,
            in_turn: true,
            stop: &self.stop,
            failures: self.compressions,
            used: Vec::new(),
        };
        // The notes have a time of their own.
        let waiting = self.pulse.wait(Patience::Ms(notes_ms(self.engine)));
        let came = work.shorten(wanted).await;
        drop(waiting);
        for delta in std::mem::take(&mut work.used) {
            self.api_calls += 1;
            self.add_usage(&delta);
        }
        let came = self.store(came)?;
        self.compressions += u32::from(!matches!(came, Came::NotNow { .. }));
        if matches!(came, Came::Shorter { .. }) {
            self.engine.thrash.shortened(self.fence.conversation(), pass);
        }
        match came {
            Came::Shorter { change, .. } => self.go_on_with(change).await.map(|()| true),
            // A stop that came meanwhile ends the turn with the old history.
            Came::Stopped => self.check_stop().map(|()| false),
            Came::NotNow { .. } | Came::Same { .. } => Ok(false),
        }
    }

    /// Reads what another process, or this one long ago, has written down of compressions that brought too little.
    async fn know_thrash(&self, tokens: u64) -> Result<(), Ending> {
        let conversation = self.fence.conversation();
        if !self.engine.thrash.knows(conversation) {
            let rows = self.store(model_rows(self.engine.store.as_ref(), conversation).await)?;
            self.engine.thrash.learn(conversation, Record::of_rows(&rows, tokens));
        }
        Ok(())
    }

    /// Two compressions in a row brought too little: for a while none is tried, and that is remembered with the session.
    /// False when this session has been left alone for such a while already: one may try.
    async fn stop_shortening(&mut self, session: SessionId) -> Result<bool, Ending> {
        let (store, clock) = (&self.engine.store, self.engine.clock.as_ref());
        let holder = self.engine.ids.next(IdKind::Attempt);
        let take = TakeLock { session, holder, ttl_ms: COMPRESSION_LOCK_TTL_MS, force: false };
        let taken = self.store(persist(clock, || store.take_compression_lock(&self.fence, take.clone())).await)?;
        // Whoever else shortens it, or waits, has its reasons.
        let LockOutcome::Taken(lock) = taken else { return Ok(true) };
        if lock.is_after_wait() {
            self.store(store.release_compression_lock(&self.fence, &lock).await)?;
            return Ok(false);
        }
        let failed = store.fail_compression(&self.fence, &lock, THRASH_WAIT_MS, IN_VAIN).await;
        self.store(failed)?;
        let text = format!(
            "{IN_VAIN}; for {} minutes none is begun by itself. A new session begins with an empty history.",
            THRASH_WAIT_MS / 60_000
        );
        self.emit(EventKind::Notice { text });
        Ok(true)
    }

    /// A provider has counted a request: what was shortened before it was worth it or not.
    pub(crate) fn count_shortened(&self, tokens: Option<u64>) {
        if let Some(tokens) = tokens {
            self.engine.thrash.counted(self.fence.conversation(), tokens);
        }
    }

    /// The turn goes on with the shorter history, and the prompt that was built for it.
    async fn go_on_with(&mut self, change: HistoryChange) -> Result<(), Ending> {
        let store = &self.engine.store;
        let tip = self.store(store.session(&change.session).await)?;
        let prompt = self.store(store.prompt(&tip.prompt).await)?;
        self.system = prompt.bytes().clone();
        self.session = Some(change.session);
        self.anchor = None;
        self.load_history().await
    }
}

/// What is to be shortened.
pub(crate) struct Wanted<'w> {
    /// The tip.
    pub session: SessionId,
    /// The model's window in tokens.
    pub window: u64,
    /// The size of the next request in tokens.
    pub tokens: u64,
    pub trigger: Trigger,
    /// What the notes are to be about.
    pub focus: Option<&'w str>,
    /// By what it will be judged; none when a person asked for it.
    pub pass: Option<Pass>,
}

/// What came of it.
pub(crate) enum Came {
    /// The new history is durable.
    Shorter {
        change: HistoryChange,
        /// Size of the history before, in tokens by estimate.
        before: u64,
        /// Size after, by the same estimate.
        after: u64,
    },
    /// Nothing was tried: somebody else does it, or a failure is waited out.
    NotNow { why: String },
    /// The history stays as it is.
    Same { why: String },
    /// It was stopped; the history stays as it is.
    Stopped,
}

/// Shortens the history of a conversation whose lease is held.
pub(crate) struct Shortener<'t> {
    pub engine: &'t Inner,
    /// The turn's model: its window and its prompt are meant, and it is asked when no other model writes the notes.
    pub model: &'t Arc<dyn ChatModel>,
    pub fence: &'t Fence,
    /// The id that new rows are stored under.
    pub turn: &'t TurnId,
    /// Whether a turn runs: events then name it.
    pub in_turn: bool,
    pub stop: &'t StopSignal,
    /// How often it failed before, in a row.
    pub failures: u32,
    /// What the requests used; it is counted in the store already.
    pub used: Vec<UsageDelta>,
}

impl Shortener<'_> {
    /// Shortens the history, if it can.
    pub(crate) async fn shorten(&mut self, wanted: Wanted<'_>) -> Result<Came, StoreError> {
        let store = &self.engine.store;
        let take = TakeLock {
            session: wanted.session.clone(),
            holder: self.engine.ids.next(IdKind::Attempt),
            ttl_ms: COMPRESSION_LOCK_TTL_MS.max(notes_ms(self.engine).saturating_add(LOCK_MARGIN_MS)),
            force: wanted.trigger.is_pressing(),
        };
        let clock = self.engine.clock.as_ref();
        let lock = match persist(clock, || store.take_compression_lock(self.fence, take.clone())).await? {
            LockOutcome::Taken(lock) => lock,
            other => return Ok(Came::NotNow { why: not_taken(&other).to_owned() }),
        };
        self.emit(EventKind::CompressionStarted { tokens: wanted.tokens, window: wanted.window });
        let rows = model_rows(self.engine.store.as_ref(), self.fence.conversation()).await?;
        let made = self.ask(&rows, &wanted).await?;
        if self.stop.cause().is_some() {
            store.release_compression_lock(self.fence, &lock).await?;
            return Ok(Came::Stopped);
        }
        match made.and_then(|view| Ok(verify(&rows, &view).map(|()| view)?)) {
            Ok(view) => self.commit(&lock, &rows, view, wanted.pass).await,
            Err(error) => self.leave(&lock, &error, wanted.trigger).await,
        }
    }

    fn emit(&self, kind: EventKind) {
        let turn = self.in_turn.then(|| self.turn.clone());
        self.engine.emit(Event::new(self.fence.conversation().clone(), turn, kind));
    }

    /// The shorter view; what was asked for it is counted, whatever came of it.
    async fn ask(
        &mut self,
        rows: &[StoredMessage],
        wanted: &Wanted<'_>,
    ) -> Result<Result<NewView, CompactError>, StoreError> {
        let desk = Desk { engine: self.engine, task: Task::Compression, main: self.model, stopped: self.stop.soft() };
        let asker = Asker { desk, used: Mutex::default() };
        let history = History { rows, window: wanted.window, focus: wanted.focus };
        let made = self.engine.context.compact(history, &asker).await;
        let used = asker.used.into_inner().unwrap_or_else(PoisonError::into_inner);
        for used in used {
            let delta = used.delta(self.engine.ids(), Task::Compression.name());
            self.used.push(delta.clone());
            let clock = self.engine.clock.as_ref();
            persist(clock, || self.engine.store.count_usage(self.fence, delta.clone())).await?;
        }
        Ok(made)
    }

    /// One transaction: the parent is closed, the child has its prompt and its rows, the tip moves.
    async fn commit(
        &self,
        lock: &CompressionLock,
        rows: &[StoredMessage],
        view: NewView,
        pass: Option<Pass>,
    ) -> Result<Came, StoreError> {
        let (before, after) = sizes(rows, &view);
        let mark = ViewMark::of(lock.session().clone(), rows);
        let session = self.next_session(lock).await?;
        let (id, turn) = (self.engine.ids().change(), self.turn.clone());
        let rows = self.view_rows(rows, view, pass);
        let (store, clock) = (&self.engine.store, self.engine.clock.as_ref());
        let done = match self.engine.settings.compression.in_place {
            true => {
                let change = Compaction { id, turn, mark, session: Some(session), rows };
                persist(clock, || store.compact(self.fence, lock, change.clone())).await
            }
            false => {
                let change = Rotation { id, turn, mark, child: session, rows };
                persist(clock, || store.rotate(self.fence, lock, change.clone())).await
            }
        };
        match done {
            Ok(change) => {
                self.emit(EventKind::Compressed { session: change.session.clone(), before, after });
                Ok(Came::Shorter { change, before, after })
            }
            Err(error @ (StoreError::Stale { .. } | StoreError::LockLost | StoreError::Invalid { .. })) => {
                Ok(self.same(error.to_string(), true))
            }
            Err(error) => Err(error),
        }
    }

    /// The session that goes on: the prompt is built anew, since its bytes change anyway. Model, tools and directory
    /// are those of the session, also while another model stands in.
    async fn next_session(&self, lock: &CompressionLock) -> Result<NewSession, StoreError> {
        let store = &self.engine.store;
        let tip = store.session(lock.session()).await?;
        let tools = store.prompt(&tip.tools).await?;
        let has_tools = !matches!(tools.bytes().as_ref(), b"" | b"[]");
        let (prompt, notes) =
            super::context::prompt_of(self.engine, self.model.as_ref(), has_tools, tip.cwd.as_deref()).await;
        for text in notes {
            self.emit(EventKind::Notice { text });
        }
        let in_place = self.engine.settings.compression.in_place;
        Ok(NewSession {
            id: if in_place { tip.id.clone() } else { self.engine.ids().session() },
            parent: if in_place { tip.parent } else { Some(tip.id) },
            provider: tip.provider,
            model: tip.model,
            prompt,
            cwd: tip.cwd,
            tools,
        })
    }

    fn view_rows(&self, rows: &[StoredMessage], view: NewView, pass: Option<Pass>) -> Vec<ViewRow> {
        let fact = thrash::fact(self.engine.thrash.strikes(self.fence.conversation()), pass);
        let made = |part: ViewPart| match part {
            ViewPart::Summary { content } => {
                let mut row = NewMessage::text(self.engine.ids().message(), Role::User, content);
                row.kind = MessageKind::Summary;
                row.meta = Some(fact.clone());
                Some(ViewRow::New(row))
            }
            ViewPart::Carried { index, content } => {
                let row = rows.get(index)?.id.clone();
                Some(content.map_or_else(
                    || ViewRow::Carry(row.clone()),
                    |content| ViewRow::Shorten { row: row.clone(), content },
                ))
            }
        };
        view.rows.into_iter().filter_map(made).collect()
    }

    /// The history stays as it is; for a while none is tried again. That there is nothing to shorten says nothing about
    /// a later time, when a person or a pause asked too early.
    async fn leave(&self, lock: &CompressionLock, error: &CompactError, trigger: Trigger) -> Result<Came, StoreError> {
        let is_nothing = matches!(error, CompactError::Nothing);
        let text = error.to_string();
        if matches!(error, CompactError::Refused(_)) {
            self.engine.thrash.refused(self.fence.conversation());
        }
        if is_nothing && matches!(trigger, Trigger::Manual | Trigger::Idle) {
            self.engine.store.release_compression_lock(self.fence, lock).await?;
        } else {
            let wait_ms = cooldown_ms(error, self.failures + 1);
            self.engine.store.fail_compression(self.fence, lock, wait_ms, &text).await?;
        }
        Ok(self.same(text, !is_nothing))
    }

    fn same(&self, why: String, tell: bool) -> Came {
        if tell {
            self.emit(EventKind::Notice { text: format!("the history was not shortened: {why}") });
        }
        Came::Same { why }
    }
}

/// The longest time that notes may take, whoever is asked for them.
fn notes_ms(engine: &Inner) -> u64 {
    engine.auxiliary.limit_ms(Task::Compression).saturating_mul(AUXILIARY_ROUTES_MAX)
}

fn not_taken(outcome: &LockOutcome) -> &'static str {
    match outcome {
        LockOutcome::Cooling { .. } => "it failed a short time ago, and is not tried again yet",
        _ => "it is being shortened already",
    }
}

/// All rows that the model is shown.
pub(crate) async fn model_rows(
    store: &dyn Store,
    conversation: &ConversationId,
) -> Result<Vec<StoredMessage>, StoreError> {
    let mut page = MessagePage::default();
    // Nearly every history is one page, which is not copied.
    let mut rows = store.messages(conversation, View::Model, page).await?;
    let mut got = rows.len();
    while got >= page.limit {
        page.after_seq = rows.last().map_or(0, |row| row.seq);
        let more = store.messages(conversation, View::Model, page).await?;
        got = more.len();
        rows.extend(more);
    }
    Ok(rows)
}

/// Asks for the notes.
struct Asker<'t> {
    desk: Desk<'t>,
    /// What each request used. Held for one extension, never over an await.
    used: Mutex<Vec<Used>>,
}

#[async_trait]
impl Summarizer for Asker<'_> {
    async fn summarize(&self, system: &str, request: String) -> Result<Completion, ProviderError> {
        let request = auxiliary::request(system, request, None, self.desk.engine.settings.stream);
        let (answer, used) = self.desk.ask(&request).await;
        self.used.lock().unwrap_or_else(PoisonError::into_inner).extend(used);
        answer
    }

    fn window(&self) -> Option<u64> {
        self.desk.window()
    }
}
