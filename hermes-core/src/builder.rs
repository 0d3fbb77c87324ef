//! An engine in a few lines: three parts that only the host can give, defaults for the rest.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use hermes_providers::ChatModel;
use hermes_store::{ConversationId, IdSource, OwnerInfo, Store, UuidIds};
use hermes_tools::{
    ApprovalAnswer, ApprovalPolicy, ApprovalRequest, Approver, Clarifier, ClarifyAnswer, ClarifyQuestion, Executor,
    ExecutorLimits, PolicyConfig, Presence, SessionConfig, ToolRegistry, ToolScope, ToolSelection, ToolSession,
};

use crate::auxiliary::Auxiliary;
use crate::compress::{ContextEngine, SummaryEngine};
use crate::end::TurnResult;
use crate::engine::{Engine, EngineError, EngineParts, EngineSettings, Submission};
use crate::event::{EventSink, NoEvents};
use crate::seams::{Clock, FixedPrompt, People, PromptMaterial, PromptSource, ToolHost, ToolSessions};
use crate::windows::{NoWindows, WindowKeeper};

/// Nobody is there: what would be asked is denied, questions stay unanswered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

#[async_trait]
impl Approver for Nobody {
    async fn ask(&self, _request: ApprovalRequest) -> ApprovalAnswer {
        ApprovalAnswer::Deny { reason: "nobody is there who could allow it".to_owned() }
    }
}

#[async_trait]
impl Clarifier for Nobody {
    async fn clarify(&self, questions: Vec<ClarifyQuestion>) -> Vec<ClarifyAnswer> {
        vec![ClarifyAnswer::Unanswered; questions.len()]
    }
}

impl People for Nobody {
    fn approver(&self, _conversation: &ConversationId) -> Arc<dyn Approver> {
        Arc::new(Self)
    }

    fn clarifier(&self, _conversation: &ConversationId) -> Arc<dyn Clarifier> {
        Arc::new(Self)
    }

    fn watching(&self, _conversation: &ConversationId) -> bool {
        false
    }
}

/// One and the same person in every conversation.
struct OnePerson(Arc<dyn Approver>);

impl People for OnePerson {
    fn approver(&self, _conversation: &ConversationId) -> Arc<dyn Approver> {
        self.0.clone()
    }

    fn clarifier(&self, _conversation: &ConversationId) -> Arc<dyn Clarifier> {
        Arc::new(Nobody)
    }
}

/// Tools' state in one directory, with an empty environment: for tools that start no programs.
#[derive(Debug, Clone)]
pub struct PlainSessions {
    /// The directory of sessions that have none of their own.
    pub cwd: PathBuf,
}

#[async_trait]
impl ToolSessions for PlainSessions {
    async fn open(&self, _conversation: &ConversationId, cwd: Option<&str>) -> Arc<ToolSession> {
        let cwd = cwd.map_or_else(|| self.cwd.clone(), PathBuf::from);
        Arc::new(ToolSession::new(SessionConfig::new(cwd, BTreeMap::new())))
    }

    async fn close(&self, session: Arc<ToolSession>) {
        session.shutdown().await;
    }
}

impl ToolHost {
    /// These tools, all of them available, in a session of nobody: what needs approval is denied.
    #[must_use]
    pub fn unattended(registry: ToolRegistry) -> Self {
        let policy = PolicyConfig { presence: Presence::Unattended, ..PolicyConfig::default() };
        Self {
            registry: Arc::new(registry),
            selection: ToolSelection::all(),
            executor: Arc::new(Executor::new(ExecutorLimits::default())),
            policy: Arc::new(ApprovalPolicy::new(policy)),
            scope: Arc::new(ToolScope { profile: "default".to_owned(), home: None }),
            sessions: Arc::new(PlainSessions { cwd: PathBuf::from("/") }),
            people: Arc::new(Nobody),
            cwd: None,
        }
    }

    /// These tools, all of them available, with somebody who is asked what needs approval. Questions of the model stay
    /// unanswered; a host that has more to say fills the fields in.
    #[must_use]
    pub fn attended(registry: ToolRegistry, approver: Arc<dyn Approver>) -> Self {
        let policy = Arc::new(ApprovalPolicy::new(PolicyConfig::default()));
        Self { policy, people: Arc::new(OnePerson(approver)), ..Self::unattended(registry) }
    }
}

impl From<&str> for Submission {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Submission {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl Engine {
    /// Accepts an input and works until it is over: [`Engine::submit`] and [`Engine::run_until`] in one, for hosts with
    /// nothing to do between them. A text alone begins a new conversation; how it went is in the result.
    ///
    /// # Errors
    /// Those of [`Engine::submit`] (nothing was accepted then) and of [`Engine::run_until`] (the input stays queued).
    pub async fn ask(&self, submission: impl Into<Submission>) -> Result<TurnResult, EngineError> {
        let accepted = self.submit(submission.into()).await?;
        let receipt = accepted.receipt();
        self.run_until(&receipt.conversation, &receipt.admission).await
    }
}

/// Builds an [`Engine`]. Begin with [`Engine::builder`].
pub struct EngineBuilder {
    parts: EngineParts,
    /// The host brought its own way of shortening histories.
    own_context: bool,
}

impl Engine {
    /// An engine over a store, a model and a clock. Without more it has no tools, reads no files and tells nobody; and as
    /// nobody can prove the death of such an owner, a crash leaves its conversations owned until its heartbeat has been
    /// missing for [`HEARTBEAT_DEAD_MS`](hermes_store::limits::HEARTBEAT_DEAD_MS). A process over a file or a server says
    /// who it is, and is replaced at once: [`EngineBuilder::owner`].
    #[must_use]
    pub fn builder(store: Arc<dyn Store>, model: Arc<dyn ChatModel>, clock: Arc<dyn Clock>) -> EngineBuilder {
        let ids: &dyn IdSource = &UuidIds;
        // Such an owner is never provably dead; after a crash its leases are free when its heartbeat has stopped.
        let owner = OwnerInfo { id: ids.owner(), host: String::new(), boot_id: String::new(), pid: 0, pid_start: 0 };
        EngineBuilder {
            parts: EngineParts {
                store,
                model,
                tools: ToolHost::unattended(ToolRegistry::new()),
                prompt: Arc::new(FixedPrompt(PromptMaterial::default())),
                events: Arc::new(NoEvents),
                clock,
                ids: Arc::new(UuidIds),
                owner,
                fallbacks: Vec::new(),
                auxiliary: Auxiliary::default(),
                windows: Arc::new(NoWindows),
                context: Arc::new(SummaryEngine::default()),
                settings: EngineSettings::default(),
            },
            own_context: false,
        }
    }
}

impl EngineBuilder {
    /// With one model more that stands in when those before it give no answer.
    #[must_use]
    pub fn fallback(mut self, model: Arc<dyn ChatModel>) -> Self {
        self.parts.fallbacks.push(model);
        self
    }

    /// Keeping what was learned of models' windows.
    #[must_use]
    pub fn windows(mut self, windows: Arc<dyn WindowKeeper>) -> Self {
        self.parts.windows = windows;
        self
    }

    /// With these models for tasks beside the turn.
    #[must_use]
    pub fn auxiliary(mut self, auxiliary: Auxiliary) -> Self {
        self.parts.auxiliary = auxiliary;
        self
    }

    /// With these tools.
    #[must_use]
    pub fn tools(mut self, tools: ToolHost) -> Self {
        self.parts.tools = tools;
        self
    }

    /// With prompts from this source.
    #[must_use]
    pub fn prompt(mut self, prompt: Arc<dyn PromptSource>) -> Self {
        self.parts.prompt = prompt;
        self
    }

    /// Tells what happens.
    #[must_use]
    pub fn events(mut self, events: Arc<dyn EventSink>) -> Self {
        self.parts.events = events;
        self
    }

    /// With ids from this source.
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn IdSource>) -> Self {
        self.parts.ids = ids;
        self
    }

    /// As this owner of leases: one whose death can be proved is replaced at once. On Linux that is
    /// `OwnerInfo::of_this_process(UuidIds.owner())`, with a store that keeps a file or speaks to a server.
    #[must_use]
    pub fn owner(mut self, owner: OwnerInfo) -> Self {
        self.parts.owner = owner;
        self
    }

    /// Shortening histories in this way. Without it they are shortened by [`SummaryEngine`], as
    /// [`EngineSettings::compression`] says.
    #[must_use]
    pub fn context(mut self, context: Arc<dyn ContextEngine>) -> Self {
        self.parts.context = context;
        self.own_context = true;
        self
    }

    /// Working in this way.
    #[must_use]
    pub fn settings(mut self, settings: EngineSettings) -> Self {
        self.parts.settings = settings;
        self
    }

    /// The parts as they are set so far.
    #[must_use]
    pub fn into_parts(mut self) -> EngineParts {
        if !self.own_context {
            self.parts.context = Arc::new(SummaryEngine::new(self.parts.settings.compression.clone()));
        }
        self.parts
    }

    /// The engine. Nothing is read or written yet.
    #[must_use]
    pub fn build(self) -> Engine {
        Engine::new(self.into_parts())
    }
}

#[cfg(test)]
mod tests {
    use hermes_providers::PracticeModel;
    use hermes_store::memory::MemoryStore;

    use super::*;
    use crate::clock::TokioClock;
    use crate::compress::CompressionSettings;

    fn builder() -> EngineBuilder {
        let clock = TokioClock::new();
        Engine::builder(Arc::new(MemoryStore::new(clock.clone())), Arc::new(PracticeModel::new()), clock)
    }

    #[test]
    fn what_is_said_of_compression_counts_in_whatever_order_and_yields_to_the_host_s_own_way() {
        let with = |compression| EngineSettings { compression, ..EngineSettings::default() };
        let off = CompressionSettings { enabled: false, ..CompressionSettings::default() };
        let low = CompressionSettings { threshold_tokens: Some(1_000), ..CompressionSettings::default() };
        let threshold = |builder: EngineBuilder| builder.into_parts().context.threshold(131_072, None);
        assert_eq!(threshold(builder()), Some(98_304));
        assert_eq!(threshold(builder().settings(with(off.clone()))), None);
        assert_eq!(threshold(builder().settings(with(low.clone()))), Some(1_000));
        let own = || Arc::new(SummaryEngine::new(low.clone()));
        assert_eq!(threshold(builder().context(own()).settings(with(off.clone()))), Some(1_000));
        assert_eq!(threshold(builder().settings(with(off)).context(own())), Some(1_000));
    }
}
