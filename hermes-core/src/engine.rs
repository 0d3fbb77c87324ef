//! The engine: inputs in, turns out.
//!
//! An [`Engine`] accepts inputs ([`Engine::submit`]: durable when it returns) and works on conversations
//! ([`Engine::run_until`], [`Engine::drain`]: futures that the host awaits; the engine starts no task of its own).
//! Whatever is known of a conversation stands in the store, so another engine over the same store, in another process or
//! after a crash, goes on where this one stopped.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hermes_providers::ChatModel;
use hermes_store::limits::HEARTBEAT_MS;
use hermes_store::{
    AdmissionId, AdmitOutcome, ClaimPolicy, ConversationId, IdKind, IdSource, Intent, NewAdmission, NewConversation,
    OwnerId, OwnerInfo, Store, StoreError,
};
use hermes_tools::ToolSession;

use crate::auxiliary::{self, Auxiliary};
use crate::closing::Closing;
use crate::compress::thrash::Thrash;
use crate::compress::{CompressionSettings, ContextEngine};
use crate::delegate::{Children, DelegationSettings};
use crate::end::{Stopper, TurnResult};
use crate::event::{Event, EventSink};
use crate::image;
use crate::input::Input;
use crate::limits;
use crate::metrics::Counters;
use crate::prefix::Prefixes;
use crate::ring::Rings;
use crate::route::Routes;
use crate::run::Progress;
use crate::seams::{Clock, PromptSource, ToolHost};
use crate::stop::{Cause, Interrupt, StopSignal};
use crate::windows::{WindowKeeper, Windows};

/// What an engine may be told about how it works. Every field has the default of the mechanism document.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineSettings {
    /// The profile that new conversations belong to.
    pub profile: String,
    /// Where new conversations come from (`cli`, `oneshot`, ...).
    pub source: String,
    /// Which queued inputs this engine runs.
    pub claim: ClaimPolicy,
    /// Most requests of one turn (`agent.max_turns`); `None` = no limit.
    pub max_iterations: Option<u64>,
    /// Part of [`EngineSettings::max_iterations`], from 0 to 1, after which the model is told once that its steps run
    /// out (`agent.budget_warning_ratio`); `None` = it is not told.
    pub budget_warning_ratio: Option<f64>,
    /// Whether a turn that goes in circles is ended; `None` = where [`People::watching`](crate::People::watching) says
    /// that nobody watches. The model is warned in any case.
    pub guardrail_hard_stop: Option<bool>,
    /// Attempts at one request.
    pub request_attempts: u32,
    /// Time for one turn in milliseconds (`agent.run_budget_seconds`); `None` = no limit.
    pub turn_deadline_ms: Option<u64>,
    /// Time in milliseconds in which nothing of a turn moves before it is stopped as wedged
    /// (`agent.turn_liveness.timeout_s`); `None` = it is not watched.
    pub liveness_timeout_ms: Option<u64>,
    /// Life of a lease that nobody renews, in milliseconds.
    pub lease_ttl_ms: u64,
    /// Time between two renewals, in milliseconds.
    pub lease_refresh_ms: u64,
    /// Longest wait for another owner's turn, in milliseconds.
    pub lease_wait_ms: u64,
    /// Cap on output tokens of one answer.
    pub max_output_tokens: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<f32>,
    /// Reasoning effort.
    pub reasoning_effort: Option<String>,
    /// Most characters of context files; `None` = by the model's window.
    pub context_files_max_chars: Option<usize>,
    /// How histories are shortened. What of it concerns the default [`ContextEngine`] is given to that by
    /// [`Engine::builder`]; who puts [`EngineParts`] together does it himself.
    pub compression: CompressionSettings,
    /// How tasks are given to children; `None` = turns have no tool for it.
    pub delegation: Option<DelegationSettings>,
    /// Whether [`Engine::title`] gives titles (`auxiliary.title_generation.enabled`).
    pub titles: bool,
    /// Whether answers are streamed.
    pub stream: bool,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            profile: "default".to_owned(),
            source: "embedded".to_owned(),
            claim: ClaimPolicy::Any,
            max_iterations: None,
            budget_warning_ratio: None,
            guardrail_hard_stop: None,
            request_attempts: limits::REQUEST_ATTEMPTS_MAX,
            turn_deadline_ms: None,
            liveness_timeout_ms: Some(limits::LIVENESS_TIMEOUT_MS),
            lease_ttl_ms: hermes_store::limits::LEASE_TTL_MS,
            lease_refresh_ms: hermes_store::limits::LEASE_REFRESH_MS,
            lease_wait_ms: hermes_store::limits::LEASE_WAIT_MS,
            max_output_tokens: None,
            temperature: None,
            reasoning_effort: None,
            context_files_max_chars: None,
            compression: CompressionSettings::default(),
            delegation: None,
            titles: true,
            stream: true,
        }
    }
}

/// The parts of an engine.
#[derive(Clone)]
pub struct EngineParts {
    /// Where facts are kept.
    pub store: Arc<dyn Store>,
    /// The model that turns talk to.
    pub model: Arc<dyn ChatModel>,
    /// Models that stand in for it when it gives no answer, in their order.
    pub fallbacks: Vec<Arc<dyn ChatModel>>,
    /// Models of tasks beside the turn.
    pub auxiliary: Auxiliary,
    /// Who keeps what was learned of models' windows.
    pub windows: Arc<dyn WindowKeeper>,
    /// Everything about tools.
    pub tools: ToolHost,
    /// Where prompts come from.
    pub prompt: Arc<dyn PromptSource>,
    /// Who hears events.
    pub events: Arc<dyn EventSink>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// New ids.
    pub ids: Arc<dyn IdSource>,
    /// This process as an owner of leases.
    pub owner: OwnerInfo,
    /// Who shortens histories that are too long.
    pub context: Arc<dyn ContextEngine>,
    /// How to work.
    pub settings: EngineSettings,
}

/// An input that could not be accepted, or a conversation that could not be worked on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The input is empty.
    #[error("the input is empty; write something")]
    EmptyInput,
    /// The input is too large.
    #[error("the input has {bytes} bytes, and {max} are allowed; put it into a file and name the file")]
    InputTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// More pictures than an input may have.
    #[error(
        "the input has {count} pictures of {bytes} bytes together; {} pictures of {} bytes together are allowed: make them smaller, or send them in several inputs",
        limits::IMAGES_MAX,
        limits::IMAGES_TOTAL_MAX_BYTES
    )]
    TooManyImages {
        /// How many.
        count: usize,
        /// Their bytes together.
        bytes: usize,
    },
    /// A picture that is none, or of a kind that models do not take.
    #[error("picture {number} of the input is no PNG, JPEG, GIF or WebP file; convert it")]
    NotAnImage {
        /// Its place, from 1.
        number: usize,
    },
    /// The conversation is worked on by somebody else.
    #[error("the conversation is busy: {why}")]
    Busy {
        /// By whom, and what to do.
        why: &'static str,
    },
    /// A history that a person wanted to be shortened stays as it is.
    #[error("the history was not shortened: {why}")]
    NotShortened {
        /// Why.
        why: String,
    },
}

impl EngineError {
    /// The stable code; `docs/errors/CODE.md` explains it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::EmptyInput => "HM4101",
            Self::InputTooLarge { .. } => "HM4102",
            Self::Busy { .. } => "HM4103",
            Self::NotShortened { .. } => "HM4104",
            Self::TooManyImages { .. } => "HM4105",
            Self::NotAnImage { .. } => "HM4106",
        }
    }
}

/// An input with its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The conversation; `None` begins a new one.
    pub conversation: Option<ConversationId>,
    /// Who sends it.
    pub principal: String,
    /// The sender's own id of the request; `None` makes a new one, and a repetition is then not recognised.
    pub request_id: Option<String>,
    /// What is wanted.
    pub intent: Intent,
    /// The input.
    pub input: Input,
}

impl Submission {
    /// A new conversation that begins with this text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            conversation: None,
            principal: "host".to_owned(),
            request_id: None,
            intent: Intent::Queue,
            input: Input::text(text),
        }
    }

    /// The same as the next input of a conversation.
    #[must_use]
    pub fn in_conversation(mut self, conversation: ConversationId) -> Self {
        self.conversation = Some(conversation);
        self
    }
}

/// What the tools of one conversation know in this process.
struct ToolState {
    session: Arc<ToolSession>,
    /// They were given back what their results said before this process had it.
    is_whole: bool,
}

pub(crate) struct Inner {
    pub store: Arc<dyn Store>,
    pub model: Arc<dyn ChatModel>,
    fallbacks: Vec<Arc<dyn ChatModel>>,
    /// Which routes rest. Held for one look or change, never over an await.
    routes: Mutex<Routes>,
    pub auxiliary: Auxiliary,
    /// Which models of tasks rest. Held for one look or change, never over an await.
    resting: Mutex<Routes>,
    pub tools: ToolHost,
    pub prompt: Arc<dyn PromptSource>,
    events: Arc<dyn EventSink>,
    /// The newest events, with their places.
    pub rings: Rings,
    pub counters: Counters,
    /// What was sent last, by session.
    pub prefixes: Prefixes,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdSource>,
    pub owner: OwnerInfo,
    pub context: Arc<dyn ContextEngine>,
    pub settings: EngineSettings,
    pub windows: Windows,
    /// Which compressions brought too little.
    pub thrash: Thrash,
    registered: AtomicBool,
    /// When the last beat was written, by the host's clock.
    beaten_ms: AtomicI64,
    /// Conversations that this engine works on now. Held for map operations only, never over an await.
    running: Mutex<HashMap<ConversationId, StopSignal>>,
    /// Tools' state by conversation. Held for map operations only, never over an await.
    sessions: Mutex<HashMap<ConversationId, ToolState>>,
    pub closing: Closing,
    /// The children that work here now.
    pub children: Children,
}

impl Inner {
    /// Tells an event, once it has its place.
    pub(crate) fn emit(&self, event: Event) {
        self.counters.saw(&event.kind);
        self.tell(event);
    }

    fn tell(&self, mut event: Event) {
        let in_order = self.rings.in_order();
        self.rings.push(&mut event);
        let outer = self.children.outer(&event);
        self.events.emit(event);
        drop(in_order);
        // A child of a child is shown to its grandparent too: no deeper than children may be.
        if let Some(outer) = outer {
            self.tell(outer);
        }
    }

    /// Which routes rest.
    pub(crate) fn routes(&self) -> MutexGuard<'_, Routes> {
        lock(&self.routes)
    }

    /// Which models of tasks beside the turn rest.
    pub(crate) fn resting(&self) -> MutexGuard<'_, Routes> {
        lock(&self.resting)
    }

    /// The model of a route.
    pub(crate) fn model_at(&self, route: usize) -> Arc<dyn ChatModel> {
        let fallback = route.checked_sub(1).and_then(|at| self.fallbacks.get(at));
        fallback.unwrap_or(&self.model).clone()
    }

    /// This process as an owner of leases.
    pub(crate) fn owner_id(&self) -> &OwnerId {
        &self.owner.id
    }

    /// Takes a conversation for one piece of work in this process, which `signal` stops; none while there is another.
    pub(crate) fn begin(&self, conversation: &ConversationId, signal: &StopSignal) -> Option<Working<'_>> {
        let mut running = lock(&self.running);
        if running.contains_key(conversation) {
            return None;
        }
        running.insert(conversation.clone(), signal.clone());
        Some(Working { inner: self, conversation: conversation.clone() })
    }

    pub(crate) fn ids(&self) -> &dyn IdSource {
        self.ids.as_ref()
    }

    /// The tools' state of a conversation, opened at its first turn here.
    pub(crate) async fn tool_session(&self, conversation: &ConversationId, cwd: Option<&str>) -> Arc<ToolSession> {
        if let Some(known) = lock(&self.sessions).get(conversation) {
            return known.session.clone();
        }
        let session = self.tools.sessions.open(conversation, cwd).await;
        let evicted = {
            let mut sessions = lock(&self.sessions);
            let full = sessions.len() >= limits::TOOL_SESSIONS_MAX;
            let victim = if full {
                let running = lock(&self.running);
                sessions.keys().find(|id| !running.contains_key(*id)).cloned()
            } else {
                None
            };
            let evicted = victim.and_then(|id| sessions.remove(&id));
            let state = ToolState { session: session.clone(), is_whole: false };
            sessions.insert(conversation.clone(), state);
            evicted
        };
        if let Some(old) = evicted {
            self.tools.sessions.close(old.session).await;
        }
        session
    }

    /// Whether the tools of a conversation know here what their results said.
    pub(crate) fn knows_its_state(&self, conversation: &ConversationId) -> bool {
        lock(&self.sessions).get(conversation).is_some_and(|known| known.is_whole)
    }

    /// They were told. Until then every turn tells them, also behind one that failed before it came to that.
    pub(crate) fn state_is_known(&self, conversation: &ConversationId) {
        if let Some(known) = lock(&self.sessions).get_mut(conversation) {
            known.is_whole = true;
        }
    }

    /// Ends what the tools of a conversation started that is not worked on any more.
    pub(crate) async fn close_tool_session(&self, conversation: &ConversationId) {
        let known = lock(&self.sessions).remove(conversation);
        if let Some(known) = known {
            self.tools.sessions.close(known.session).await;
        }
    }

    /// A model's window in tokens, when it is known.
    pub(crate) fn window_of(&self, model: &dyn ChatModel) -> Option<u64> {
        model.own_window().map(|own| own.tokens).or_else(|| self.windows.of(model.info()))
    }

    /// The window that a model may come to have.
    pub(crate) fn room_of(&self, model: &dyn ChatModel) -> Option<u64> {
        model.own_window().map(|own| own.max).or_else(|| self.windows.of(model.info()))
    }

    /// Remembers what a provider said of a window. A model that this program runs itself knows its own.
    pub(crate) async fn learn_window(&self, model: &dyn ChatModel, tokens: u64) {
        if model.own_window().is_none() {
            self.windows.learn(model.info(), tokens).await;
        }
    }

    /// Whether others see this owner as alive until its next beat. While it has nothing to do it does not beat.
    fn is_known(&self) -> bool {
        let silent_ms = self.clock.now_ms().saturating_sub(self.beaten_ms.load(Ordering::Acquire));
        self.registered.load(Ordering::Acquire) && u64::try_from(silent_ms).unwrap_or(0) <= HEARTBEAT_MS
    }

    /// Makes this owner known, at first and after it was silent: before it owns anything, or another one would take it
    /// for dead (I10). A beat waits for a locked database only as long as one beat is worth; this one stands before an
    /// input and waits as long as that would (S47).
    pub(crate) async fn register(&self) -> Result<(), StoreError> {
        let patience_ms = i64::try_from(hermes_store::limits::SQLITE_BUSY_MS).unwrap_or(i64::MAX);
        let begun_ms = self.clock.now_ms();
        while !self.is_known() && !self.closing.has_begun() {
            let waited_ms = self.clock.now_ms().saturating_sub(begun_ms);
            match self.heartbeat().await {
                Err(StoreError::Busy { .. }) if waited_ms < patience_ms => {}
                Err(StoreError::Busy { .. }) => {
                    return Err(StoreError::Busy { waited_ms: u64::try_from(waited_ms).unwrap_or_default() });
                }
                done => done?,
            }
        }
        Ok(())
    }

    async fn heartbeat(&self) -> Result<(), StoreError> {
        // An end waits for a beat that is under way, and none comes behind it: it would take the retirement back.
        let _work = self.closing.work();
        if self.closing.has_begun() && !self.registered.load(Ordering::Acquire) {
            return Ok(());
        }
        let now_ms = self.clock.now_ms();
        self.store.heartbeat(&self.owner).await?;
        self.beaten_ms.store(now_ms, Ordering::Release);
        self.registered.store(true, Ordering::Release);
        Ok(())
    }

    /// Beats until it is dropped. A beat that fails is tried again with the next one: leases have their own keeper.
    pub(crate) async fn beat(&self) -> std::convert::Infallible {
        loop {
            self.clock.sleep(HEARTBEAT_MS).await;
            if let Err(error) = self.heartbeat().await {
                tracing::warn!(code = error.code(), "the heartbeat could not be written: {error}");
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a conversation from the running ones, however its work ends.
pub(crate) struct Working<'e> {
    inner: &'e Inner,
    conversation: ConversationId,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        lock(&self.inner.running).remove(&self.conversation);
    }
}

/// The turn engine. Cheap to clone; all clones are one engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

impl Engine {
    /// An engine of these parts. Nothing is read or written yet.
    #[must_use]
    pub fn new(parts: EngineParts) -> Self {
        let inner = Inner {
            store: parts.store,
            routes: Mutex::new(Routes::new(parts.fallbacks.len() + 1)),
            model: parts.model,
            fallbacks: parts.fallbacks,
            auxiliary: parts.auxiliary,
            resting: Mutex::new(auxiliary::healthy()),
            tools: parts.tools,
            prompt: parts.prompt,
            events: parts.events,
            rings: Rings::new(&parts.owner.id, parts.clock.now_ms()),
            counters: Counters::default(),
            prefixes: Prefixes::default(),
            clock: parts.clock,
            ids: parts.ids,
            owner: parts.owner,
            context: parts.context,
            settings: parts.settings,
            windows: Windows::new(parts.windows),
            thrash: Thrash::default(),
            registered: AtomicBool::new(false),
            beaten_ms: AtomicI64::new(i64::MIN),
            running: Mutex::new(HashMap::new()),
            sessions: Mutex::new(HashMap::new()),
            closing: Closing::default(),
            children: Children::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// The store that this engine works on.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// The model that turns talk to.
    #[must_use]
    pub fn model(&self) -> &Arc<dyn ChatModel> {
        &self.inner.model
    }

    /// Accepts an input. It is durable when this returns, and will be run once, whatever happens to this process.
    ///
    /// # Errors
    /// [`EngineError::EmptyInput`], [`EngineError::InputTooLarge`], [`StoreError::Retired`] after
    /// [`Engine::wind_down`], and those of
    /// [`hermes_store::AdmissionStore::admit`]; nothing was accepted then.
    pub async fn submit(&self, submission: Submission) -> Result<AdmitOutcome, EngineError> {
        let inner = &self.inner;
        let Input { text, images, .. } = &submission.input;
        if text.trim().is_empty() && images.is_empty() {
            return Err(EngineError::EmptyInput);
        }
        image::check(images)?;
        if text.len() > limits::INPUT_MAX_BYTES {
            return Err(EngineError::InputTooLarge { bytes: text.len(), max: limits::INPUT_MAX_BYTES });
        }
        inner.register().await?;
        // What comes past this line while the end begins is refused in its transaction, if it comes too late (S17).
        if inner.closing.has_begun() {
            return self.repeated(&submission).await;
        }
        let conversation = submission.conversation.clone().unwrap_or_else(|| inner.ids().conversation());
        let admission = NewAdmission {
            id: inner.ids().admission(),
            conversation: conversation.clone(),
            principal: submission.principal,
            request_id: submission.request_id.unwrap_or_else(|| inner.ids.next(IdKind::Admission)),
            intent: submission.intent,
            payload: submission.input.to_payload(),
            submitted_by: inner.owner.id.clone(),
        };
        if submission.conversation.is_some() {
            return Ok(inner.store.admit(admission).await?);
        }
        let new = NewConversation {
            id: conversation,
            profile: inner.settings.profile.clone(),
            source: inner.settings.source.clone(),
            title: None,
        };
        Ok(inner.store.create_and_admit(new, admission).await?)
    }

    /// Works on a conversation until this admission is over, and says how it ended. What stands before it in the queue
    /// is run first, or waited for, as [`EngineSettings::claim`] says.
    ///
    /// # Errors
    /// Those of the store; the input stays queued then.
    pub async fn run_until(
        &self,
        conversation: &ConversationId,
        admission: &AdmissionId,
    ) -> Result<TurnResult, EngineError> {
        self.while_beating(self.run_until_over(conversation, admission)).await
    }

    /// Works on a conversation until nothing of it waits for this engine: its queue, and turns that a crash left
    /// open. Returns the last result.
    ///
    /// # Errors
    /// Those of the store; what waits stays queued then.
    pub async fn drain(&self, conversation: &ConversationId) -> Result<Option<TurnResult>, EngineError> {
        self.while_beating(async {
            let mut last = None;
            loop {
                match self.step(conversation, StopSignal::default()).await? {
                    Progress::Ended(result) => {
                        // A turn that cannot write would be claimed and fail for ever.
                        let stuck = result.reason.may_be_open();
                        last = Some(*result);
                        if stuck {
                            return Ok(last);
                        }
                    }
                    Progress::Again => {}
                    Progress::Idle | Progress::Busy(_) => return Ok(last),
                }
            }
        })
        .await
    }

    /// Stops the turn that this engine runs in a conversation. False when it runs none.
    pub fn interrupt(&self, conversation: &ConversationId, stopper: Stopper, how: Interrupt) -> bool {
        let signal = lock(&self.inner.running).get(conversation).cloned();
        signal.inspect(|signal| signal.stop(Cause::Asked(stopper), how)).is_some()
    }

    /// Stops every turn that this engine runs.
    pub fn interrupt_all(&self, stopper: Stopper, how: Interrupt) {
        // In the order of their ids: a simulation is the same twice.
        let signals: BTreeMap<_, _> = lock(&self.inner.running).clone().into_iter().collect();
        for signal in signals.into_values() {
            signal.stop(Cause::Asked(stopper), how);
        }
    }

    /// Ends what the tools started and takes this owner off the list. Turns must have ended before:
    /// [`Engine::wind_down`].
    pub async fn shutdown(&self) {
        let sessions: Vec<_> = lock(&self.inner.sessions).drain().map(|(_, known)| known.session).collect();
        for session in sessions {
            self.inner.tools.sessions.close(session).await;
        }
        if self.inner.registered.swap(false, Ordering::AcqRel)
            && let Err(error) = self.inner.store.retire(&self.inner.owner.id).await
        {
            tracing::warn!(code = error.code(), "this process could not be taken off the list of owners: {error}");
        }
    }
}
