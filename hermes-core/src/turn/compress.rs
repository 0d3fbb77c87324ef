//! The compress phase: before a request that would not fit, and after one that a provider has refused as too long.
//!
//! ```text
//! load -> threshold -> lock -> rows -> shorter view (a model is asked) -> verified -> one commit -> history read anew
//! ```
//!
//! A crash at any point leaves the old history or the new one. When no shorter view can be had, the turn goes on with
//! the history as it is; whether that still fits is the provider's word.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use futures::StreamExt as _;
use hermes_providers::{ChatRequest, Completion, Delta, ErrorClass, ProviderError, Usage};
use hermes_store::limits::COMPRESSION_LOCK_TTL_MS;
use hermes_store::{
    Compaction, CompressionLock, IdKind, LockOutcome, MessageKind, MessagePage, NewMessage, NewSession, Role, Rotation,
    StoreError, StoredMessage, TakeLock, View, ViewMark, ViewRow,
};

use crate::compress::cooldown::cooldown_ms;
use crate::compress::view::{sizes, verify};
use crate::compress::{CompactError, History, NewView, Summarizer, ViewPart};
use crate::event::EventKind;
use crate::limits::SUMMARY_TIMEOUT_MS;
use crate::persist::persist;
use crate::tokens::{self, Anchor, Load};
use crate::turn::{Ending, Turn};

/// Why a history is shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// It is over the threshold.
    Threshold,
    /// A provider has refused the request as too long: a cooldown is not waited out.
    Overflow,
}

impl Turn<'_> {
    /// Shortens the history when the next request would be over the threshold.
    pub(crate) async fn preflight(&mut self) -> Result<(), Ending> {
        let Some(window) = self.window() else { return Ok(()) };
        let Some(threshold) = self.engine.context.threshold(window, self.max_output_tokens) else { return Ok(()) };
        while self.load() >= threshold {
            if !self.compress(Trigger::Threshold).await? {
                break;
            }
        }
        Ok(())
    }

    /// The model's window: what its provider last said, else what is known of it.
    fn window(&self) -> Option<u64> {
        self.engine.window_of(self.model.info())
    }

    /// The size of the next request in tokens. What was counted for it is not counted again: a round costs as much in a
    /// long history as in a short one, also where the provider reports no usage.
    fn load(&mut self) -> u64 {
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
        let take = TakeLock {
            session,
            holder: self.engine.ids.next(IdKind::Attempt),
            ttl_ms: COMPRESSION_LOCK_TTL_MS,
            force: trigger == Trigger::Overflow,
        };
        let LockOutcome::Taken(lock) =
            self.persist(|| self.engine.store.take_compression_lock(&self.fence, take.clone())).await?
        else {
            return Ok(false);
        };
        self.compressions += 1;
        let tokens = self.load();
        self.emit(EventKind::CompressionStarted { tokens, window });
        let rows = self.model_rows().await?;
        let asker = Asker { turn: self, used: Mutex::default() };
        let made = self.engine.context.compact(History { rows: &rows, window, focus: None }, &asker).await;
        let used = asker.used.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.count_summaries(used).await?;
        // A stop that came meanwhile ends the turn with the old history.
        if let Err(stopped) = self.check_stop() {
            self.store(self.engine.store.release_compression_lock(&self.fence, &lock).await)?;
            return Err(stopped);
        }
        match made.and_then(|view| Ok(verify(&rows, &view).map(|()| view)?)) {
            Ok(view) => self.commit(&lock, &rows, view).await,
            Err(error) => self.leave(&lock, &error).await,
        }
    }

    /// All rows that the model is shown.
    async fn model_rows(&self) -> Result<Vec<StoredMessage>, Ending> {
        let mut rows: Vec<StoredMessage> = Vec::new();
        loop {
            let after_seq = rows.last().map_or(0, |row| row.seq);
            let page = MessagePage { after_seq, ..MessagePage::default() };
            let more = self.engine.store.messages(self.fence.conversation(), View::Model, page).await;
            let more = self.store(more)?;
            let is_last = more.len() < page.limit;
            rows.extend(more);
            if is_last {
                return Ok(rows);
            }
        }
    }

    async fn count_summaries(&mut self, used: Vec<Option<Usage>>) -> Result<(), Ending> {
        for usage in used {
            self.api_calls += 1;
            let mut delta = self.usage_of(usage);
            "compression".clone_into(&mut delta.task);
            self.persist(|| self.engine.store.count_usage(&self.fence, delta.clone())).await?;
        }
        Ok(())
    }

    /// One transaction: the parent is closed, the child has its prompt and its rows, the tip moves.
    async fn commit(&mut self, lock: &CompressionLock, rows: &[StoredMessage], view: NewView) -> Result<bool, Ending> {
        let (before, after) = sizes(rows, &view);
        let mark = ViewMark::of(lock.session().clone(), rows);
        let session = self.next_session(lock).await?;
        let (id, turn) = (self.engine.ids().change(), self.id.clone());
        let rows = self.view_rows(rows, view);
        let (store, clock) = (&self.engine.store, self.engine.clock.as_ref());
        let done = match self.engine.settings.compression.in_place {
            true => {
                let change = Compaction { id, turn, mark, session: Some(session), rows };
                persist(clock, || store.compact(&self.fence, lock, change.clone())).await
            }
            false => {
                let change = Rotation { id, turn, mark, child: session, rows };
                persist(clock, || store.rotate(&self.fence, lock, change.clone())).await
            }
        };
        let change = match done {
            Ok(change) => change,
            Err(error @ (StoreError::Stale { .. } | StoreError::LockLost | StoreError::Invalid { .. })) => {
                self.emit(EventKind::Notice { text: format!("the history was not shortened: {error}") });
                return Ok(false);
            }
            Err(error) => return Err(Ending::storage(&error)),
        };
        let tip = self.store(store.session(&change.session).await)?;
        let prompt = self.store(store.prompt(&tip.prompt).await)?;
        self.system = prompt.bytes().clone();
        self.session = Some(change.session.clone());
        self.anchor = None;
        self.load_history().await?;
        self.emit(EventKind::Compressed { session: change.session, before, after });
        Ok(true)
    }

    /// The session that goes on: the prompt is built anew, since its bytes change anyway.
    async fn next_session(&self, lock: &CompressionLock) -> Result<NewSession, Ending> {
        let tip = self.store(self.engine.store.session(lock.session()).await)?;
        let tools = self.tools.as_ref().map(|tools| tools.schemas.clone()).unwrap_or_default();
        let info = self.model.info();
        let in_place = self.engine.settings.compression.in_place;
        Ok(NewSession {
            id: if in_place { tip.id.clone() } else { self.engine.ids().session() },
            parent: if in_place { tip.parent } else { Some(tip.id) },
            provider: info.provider.clone(),
            model: info.model.clone(),
            prompt: self.build_prompt(tip.cwd.as_deref()).await,
            cwd: tip.cwd,
            tools: super::context::tools_bytes(&tools)?,
        })
    }

    fn view_rows(&self, rows: &[StoredMessage], view: NewView) -> Vec<ViewRow> {
        let made = |part: ViewPart| match part {
            ViewPart::Summary { content } => {
                let mut row = NewMessage::text(self.engine.ids().message(), Role::User, content);
                row.kind = MessageKind::Summary;
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

    /// The history stays as it is; for a while none is tried again.
    async fn leave(&mut self, lock: &CompressionLock, error: &CompactError) -> Result<bool, Ending> {
        let wait_ms = cooldown_ms(error, self.compressions);
        let text = error.to_string();
        self.store(self.engine.store.fail_compression(&self.fence, lock, wait_ms, &text).await.map(|_| ()))?;
        if !matches!(error, CompactError::Nothing) {
            self.emit(EventKind::Notice { text: format!("the history was not shortened: {text}") });
        }
        Ok(false)
    }
}

/// Asks the turn's model for a summary.
struct Asker<'t, 'e> {
    turn: &'t Turn<'e>,
    /// What each request used. Held for one push, never over an await.
    used: Mutex<Vec<Option<Usage>>>,
}

#[async_trait]
impl Summarizer for Asker<'_, '_> {
    async fn summarize(&self, system: &str, request: String) -> Result<Completion, ProviderError> {
        let turn = self.turn;
        let request = ChatRequest {
            system: bytes::Bytes::copy_from_slice(system.as_bytes()),
            tools: std::sync::Arc::default(),
            messages: vec![crate::projection::user(request)],
            max_output_tokens: None,
            temperature: None,
            reasoning_effort: None,
            stream: turn.engine.settings.stream,
            cache_key: None,
        };
        let stopped = turn.stop.soft().clone();
        let late = || ProviderError::new(ErrorClass::Timeout, "no summary came in time");
        let answer = tokio::select! {
            biased;
            () = stopped.cancelled() => Err(late()),
            () = turn.engine.clock.sleep(SUMMARY_TIMEOUT_MS) => Err(late()),
            answer = whole(turn, &request) => answer,
        };
        let usage = answer.as_ref().ok().and_then(|completion| completion.usage);
        self.used.lock().unwrap_or_else(PoisonError::into_inner).push(usage);
        answer
    }
}

/// One whole answer; nothing of it is shown.
async fn whole(turn: &Turn<'_>, request: &ChatRequest) -> Result<Completion, ProviderError> {
    let mut stream = turn.model.stream(request).await?;
    while let Some(delta) = stream.next().await {
        if let Delta::Done(completion) = delta? {
            return Ok(*completion);
        }
    }
    Err(ProviderError::new(ErrorClass::Incomplete, "the connection was closed before the summary was whole"))
}
