//! Composition: from what the user wrote to an engine over real parts.
//!
//! Nothing is opened before it is needed: `hermes tools list` opens no database, `hermes sessions list` needs no model.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hermes_core::{
    Auxiliary, Engine, EngineParts, EngineSettings, SummaryEngine, TaskTimes, ToolHost, ToolSession, ToolSessions,
};
use hermes_providers::aws::AwsCredentials;
use hermes_providers::catalogue::{Catalogue, Modality, Source};
use hermes_providers::{
    ApiMode, ChatModel, HttpChatModel, HttpModelConfig, LlamaModel, PRACTICE, PracticeModel, Profiles, Timeouts,
    Transport, probe_local,
};
use hermes_store::postgres::{PostgresOptions, PostgresStore};
use hermes_store::sqlite::{SqliteOptions, SqliteStore};
use hermes_store::{
    CallId, ClaimPolicy, Clock as _, ConversationId, HostClock, IdSource, OwnerInfo, Store, StoreError, UuidIds,
};
use hermes_tools::builtin::end_leftovers;
use hermes_tools::{
    ApprovalMode, ApprovalPolicy, Executor, ExecutorLimits, PolicyConfig, Presence, SessionConfig,
    TOOLSETS_WITHOUT_TOOLS, ToolRegistry, ToolScope, ToolSelection,
};
use secrecy::ExposeSecret as _;
use tokio::sync::OnceCell;

use crate::allow_list::FileAllowList;
use crate::aws;
use crate::background::Background;
use crate::clock::TokioClock;
use crate::config::{ApprovalsMode, Config, Env, Keys, Lookup, NobodyThere, Scope, StoreUrl, Synchronous, TaskModel};
use crate::doctor;
use crate::fallback;
use crate::hub::{Hub, HubPeople};
use crate::leftovers;
use crate::lent::Lender;
use crate::llama::{self, Llama};
use crate::model::{self, Choice, Known, ModelFlags};
use crate::pools::Pools;
use crate::prompt_source::FilePrompt;
use crate::protocol::{Check, FallbackStatus, ModelStatusResponse, ProviderStatus, RpcError, ToolStatus};
use crate::service::store_error;
use crate::window_file::WindowFile;
use crate::{models, network, providers};

/// What one start of the program asks for, beyond what is configured.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `-m`.
    pub model: Option<String>,
    /// `--provider`.
    pub provider: Option<String>,
    /// `-t`: these toolsets instead of the configured ones.
    pub toolsets: Option<Vec<String>>,
    /// `--max-turns`: most requests of one turn.
    pub max_turns: Option<u64>,
    /// `--yolo`: nobody is asked; hard limits and denials still hold.
    pub yolo: bool,
    /// Working directory of new sessions; none takes the configured one.
    pub cwd: Option<PathBuf>,
    /// Whether somebody can be asked.
    pub attended: bool,
    /// Where new conversations come from (`cli`, `oneshot`, `gateway`).
    pub source: String,
    /// Whether inputs of other processes are run too (a gateway), or only those of this one (a program with a screen).
    pub serves_all: bool,
    /// Whether conversations get titles, and tasks may be given away in the background: only where the program stays after
    /// an answer is there time for them.
    pub titles: bool,
}

/// How a gateway is started.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The environment, as a value.
    pub env: Env,
    /// The profile; none is the default one.
    pub profile: Option<String>,
    /// What this start asks for.
    pub overrides: Overrides,
    /// Whether turns will be run: local servers are looked for only then.
    pub needs_model: bool,
}

/// Everything that a gateway is made of.
pub(crate) struct Parts {
    scope: Scope,
    config: Config,
    keys: Keys,
    overrides: Overrides,
    profiles: Profiles,
    /// Files of the user's that were left out.
    profile_problems: Vec<RpcError>,
    choice: Result<Choice, RpcError>,
    registry: Arc<ToolRegistry>,
    selection: ToolSelection,
    allow_list: Arc<FileAllowList>,
    hub: Arc<Hub>,
    clock: Arc<TokioClock>,
    owner: OnceCell<OwnerInfo>,
    store: OnceCell<Arc<dyn Store>>,
    engine: OnceCell<Engine>,
    background: Background,
    pools: Pools,
    /// What is known of models, with the lists that were kept when the engine was built.
    catalogue: OnceCell<Catalogue>,
    /// The way to all servers, shared by all models.
    transport: Transport,
    /// The server that this program runs itself.
    llama: Llama,
}

/// Something in the configuration that cannot work.
pub(crate) fn wrong(code: &str, message: impl Into<String>) -> RpcError {
    RpcError { code: code.to_owned(), message: message.into(), usage: true }
}

/// A provider that is not known may be one whose file was left out.
pub(crate) fn with_problems(mut error: RpcError, problems: &[RpcError]) -> RpcError {
    for problem in problems.iter().filter(|_| error.code == "HM0207") {
        error.message.push_str(&format!("; {}: {}", problem.code, problem.message));
    }
    error
}

impl Parts {
    /// Reads what is configured and chooses the model.
    pub(crate) async fn gather(launch: Launch) -> Result<(Self, Arc<Hub>), RpcError> {
        let config_error = |error: crate::config::ConfigError| wrong(error.code(), error.to_string());
        let scope = Scope::resolve(&launch.env, launch.profile.as_deref()).map_err(config_error)?;
        let config = Config::load(&scope).map_err(config_error)?;
        let keys = Keys::load(&scope, launch.env.clone()).map_err(config_error)?;
        let home = scope.home.clone();
        let read = tokio::task::spawn_blocking(move || providers::load(&home)).await;
        let (profiles, profile_problems) = read.map_err(|error| wrong("HM0206", error.to_string()))??;
        let transport = network::transport(&scope, &config, &keys).await?;
        let flags = ModelFlags { model: launch.overrides.model.clone(), provider: launch.overrides.provider.clone() };
        let known = Known { config: &config, keys: &keys, profiles: &profiles };
        let mut choice = model::choose(&flags, known, None);
        if matches!(choice, Ok(None)) {
            let local = match model::ports(&launch.env).filter(|_| launch.needs_model) {
                Some(ports) => probe_local(ports).await,
                None => Vec::new(),
            };
            choice = model::choose(&flags, known, Some(&local));
        }
        let choice = choice.map(|found| found.unwrap_or_else(Choice::practice));
        let choice = choice.map_err(|error| with_problems(error, &profile_problems));
        let mut registry = ToolRegistry::with_builtins();
        let registered = registry.register(hermes_core::delegate_tool(&config.delegation));
        registered.map_err(|error| wrong("HM3001", error.to_string()))?;
        let registry = Arc::new(registry);
        let (enabled, disabled) = toolsets(&config, launch.overrides.toolsets.as_ref());
        let selection =
            registry.selection(Some(&enabled), &disabled).map_err(|error| wrong("HM3003", error.to_string()))?;
        let allow_list = Arc::new(FileAllowList::new(scope.run_dir()));
        let hub = Hub::new(allow_list.clone());
        let parts = Self {
            scope,
            config,
            keys,
            overrides: launch.overrides,
            profiles,
            profile_problems,
            choice,
            registry,
            selection,
            allow_list,
            hub: hub.clone(),
            clock: Arc::default(),
            owner: OnceCell::new(),
            store: OnceCell::new(),
            engine: OnceCell::new(),
            background: Background::default(),
            pools: Pools::default(),
            catalogue: OnceCell::new(),
            transport,
            llama: Llama::default(),
        };
        Ok((parts, hub))
    }

    /// The model that was chosen.
    pub(crate) fn choice(&self) -> &Result<Choice, RpcError> {
        &self.choice
    }

    /// Every provider that this program knows.
    pub(crate) fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// What is wrong with profiles of the user's.
    pub(crate) fn profile_problems(&self) -> &[RpcError] {
        &self.profile_problems
    }

    /// Where the user's own profiles are.
    pub(crate) fn providers_folder(&self) -> PathBuf {
        providers::folder(&self.scope.home)
    }

    /// The way to all servers.
    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// What a model is chosen by.
    pub(crate) fn known(&self) -> (&Config, &Keys, &Profiles) {
        (&self.config, &self.keys, &self.profiles)
    }

    /// Whether this is a gateway for all.
    pub(crate) fn serves_all(&self) -> bool {
        self.overrides.serves_all
    }

    pub(crate) fn profile(&self) -> &str {
        &self.scope.profile
    }

    /// Who sends inputs through this gateway: the operating system's user, as far as the program knows.
    pub(crate) fn principal(&self) -> String {
        format!("local:{}", self.overrides.source)
    }

    pub(crate) fn model_line(&self) -> String {
        match &self.choice {
            Ok(choice) => choice.line(),
            Err(error) => error.message.clone(),
        }
    }

    /// This process as an owner of leases.
    pub(crate) async fn owner(&self) -> Result<&OwnerInfo, RpcError> {
        let read = || async {
            let ids: &dyn IdSource = &UuidIds;
            let id = ids.owner();
            tokio::task::spawn_blocking(|| OwnerInfo::of_this_process(id))
                .await
                .map_err(|error| wrong("HM0212", format!("this process could not find out who it is: {error}")))
        };
        self.owner.get_or_try_init(read).await
    }

    /// Time.
    pub(crate) fn clock(&self) -> &TokioClock {
        &self.clock
    }

    /// Where things of this profile are.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The file of the store; none when it is on a server.
    pub(crate) fn store_file(&self) -> Option<std::path::PathBuf> {
        match &self.config.store_url {
            Some(StoreUrl::Postgres(_)) => None,
            Some(StoreUrl::Sqlite(path)) => Some(self.scope.home.join(path)),
            None => Some(self.scope.database()),
        }
    }

    /// The store, opened at the first need.
    pub(crate) async fn store(&self) -> Result<Arc<dyn Store>, RpcError> {
        let open = || async {
            let store = self.open_store().await?;
            // A program that runs one command and ends pays nothing for these.
            if self.overrides.serves_all {
                self.background.begin(&store, self.hub.committed());
            }
            Ok(store)
        };
        self.store.get_or_try_init(open).await.cloned()
    }

    async fn open_store(&self) -> Result<Arc<dyn Store>, RpcError> {
        self.scope.ensure_home().map_err(|error| wrong(error.code(), error.to_string()))?;
        if let Some(StoreUrl::Postgres(url)) = &self.config.store_url {
            let store = PostgresStore::connect(PostgresOptions::new(url.expose_secret())).await;
            return Ok(Arc::new(store.map_err(|error| self.not_connected(&error))?));
        }
        let path = self.store_file().unwrap_or_else(|| self.scope.database());
        let mut options = SqliteOptions::new(path, Arc::new(HostClock::new()));
        options.synchronous = match self.config.synchronous {
            Synchronous::Full => hermes_store::sqlite::Synchronous::Full,
            Synchronous::Normal => hermes_store::sqlite::Synchronous::Normal,
        };
        let store = SqliteStore::open(options).await.map_err(|error| store_error(&error))?;
        Ok(Arc::new(store))
    }

    /// An error of the first connection, with where the server's address is set. Later ones find a server that was there.
    fn not_connected(&self, error: &StoreError) -> RpcError {
        let mut told = store_error(error);
        if matches!(error, StoreError::Unavailable { .. } | StoreError::Invalid { .. }) {
            told.message.push_str(&self.config.where_store_url());
        }
        told
    }

    pub(crate) fn engine_if_built(&self) -> Option<Engine> {
        self.engine.get().cloned()
    }

    /// The engine, built at the first need.
    pub(crate) async fn engine(&self) -> Result<Engine, RpcError> {
        self.engine.get_or_try_init(|| self.build_engine()).await.cloned()
    }

    async fn build_engine(&self) -> Result<Engine, RpcError> {
        let choice = self.choice.as_ref().map_err(Clone::clone)?;
        self.catalogue.get_or_init(|| models::gather(self)).await;
        let model = self.build_model(choice)?;
        let store = self.store().await?;
        let owner = self.owner().await?.clone();
        let remembered = self.allow_list.load().await;
        let mut allow_list = self.config.command_allowlist.clone();
        allow_list.extend(remembered);
        let settings = EngineSettings {
            profile: self.scope.profile.clone(),
            source: self.overrides.source.clone(),
            claim: if self.overrides.serves_all {
                ClaimPolicy::Any
            } else {
                ClaimPolicy::OwnOrOrphaned { orphan_after_ms: hermes_core::limits::ORPHAN_AFTER_MS }
            },
            max_iterations: self.overrides.max_turns.or(self.config.agent.max_turns),
            request_attempts: self.config.agent.api_max_retries.saturating_add(1),
            compression: self.config.compression.clone(),
            turn_deadline_ms: self.config.agent.run_budget.map(millis),
            liveness_timeout_ms: self.config.agent.liveness.map(millis),
            max_output_tokens: self.config.model.max_tokens,
            reasoning_effort: self.config.agent.reasoning_effort.clone(),
            context_files_max_chars: self
                .config
                .context_file_max_chars
                .map(|chars| usize::try_from(chars).unwrap_or(usize::MAX)),
            titles: self.overrides.titles && self.config.auxiliary.titles && !choice.is_practice(),
            delegation: Some(self.config.delegation.clone()),
            ..EngineSettings::default()
        };
        let auxiliary = self.auxiliary(choice);
        // It has no language: what it said of a command would be no judgement.
        let has_judge = auxiliary.approval.is_some() || !choice.is_practice();
        let windows = Arc::new(WindowFile::open(self.scope.run_dir(), self.clock.clone()).await);
        let engine = Engine::new(EngineParts {
            store,
            model,
            fallbacks: self.fallback_models(),
            auxiliary,
            windows,
            tools: self.tool_host(allow_list, has_judge),
            prompt: Arc::new(FilePrompt {
                profile: self.scope.profile.clone(),
                soul: self.scope.soul(),
                memory: self.scope.memory_md(),
                user: self.scope.user_md(),
                read_timeout: self.config.context_file_read_timeout,
                git: "git".into(),
                clock: self.clock.clone(),
            }),
            events: self.hub.clone(),
            clock: self.clock.clone(),
            ids: Arc::new(UuidIds),
            owner,
            context: Arc::new(SummaryEngine::new(settings.compression.clone())),
            settings,
        });
        if self.overrides.titles {
            self.background.run_delegations(engine.clone());
        }
        Ok(engine)
    }

    /// What `fallback_providers` says; nothing stands in for the practice model.
    fn fallbacks(&self) -> Vec<fallback::Entry> {
        let known = Known { config: &self.config, keys: &self.keys, profiles: &self.profiles };
        let main = self.choice.as_ref().ok().filter(|main| !main.is_practice());
        main.map(|main| fallback::choose_fallbacks(main, known)).unwrap_or_default()
    }

    /// The models that stand in for the chosen one, in their order. An entry that cannot work is left out and told of.
    fn fallback_models(&self) -> Vec<Arc<dyn ChatModel>> {
        let built = |(_, choice): fallback::Entry| match choice.and_then(|choice| self.build_model(&choice)) {
            Ok(model) => Some(model),
            Err(error) => {
                tracing::warn!(code = error.code, "a fallback is not used: {}", error.message);
                None
            }
        };
        self.fallbacks().into_iter().filter_map(built).collect()
    }

    /// The models of tasks beside the turn. A home of the Python program may name providers that only that one has: such a
    /// task asks the turn's model, which works.
    fn auxiliary(&self, main: &Choice) -> Auxiliary {
        let known = Known { config: &self.config, keys: &self.keys, profiles: &self.profiles };
        let of = |task: &str, wanted: &TaskModel| {
            let choice = model::choose_for_task(wanted, main, known)?;
            match choice.and_then(|choice| self.build_model_within(&choice, wanted.timeout)) {
                Ok(model) => Some(model),
                Err(error) => {
                    tracing::warn!(code = error.code, "auxiliary.{task} is not used: {}", error.message);
                    None
                }
            }
        };
        let config = &self.config.auxiliary;
        Auxiliary {
            compression: of("compression", &config.compression),
            title: of("title_generation", &config.title).filter(|_| config.titles),
            approval: of("approval", &config.approval).filter(|_| self.config.approvals.mode == ApprovalsMode::Smart),
            approval_policy: self.config.approvals.smart_policy.clone(),
            times: TaskTimes {
                compression_ms: config.compression.timeout.map(millis),
                title_ms: config.title.timeout.map(millis),
                approval_ms: config.approval.timeout.map(millis),
            },
        }
    }

    fn build_model(&self, choice: &Choice) -> Result<Arc<dyn ChatModel>, RpcError> {
        self.build_model_within(choice, None)
    }

    /// A model whose clocks do not run out before `patience` does.
    fn build_model_within(&self, choice: &Choice, patience: Option<Duration>) -> Result<Arc<dyn ChatModel>, RpcError> {
        if choice.provider == PRACTICE {
            return Ok(Arc::new(PracticeModel::new()));
        }
        let profile = self.profiles.get(&choice.profile).cloned().ok_or_else(|| {
            wrong("HM0207", format!("provider {:?} is not known; `hermes model` lists those that are", choice.provider))
        })?;
        let local = profile.local;
        let signs = choice.api_mode.unwrap_or(profile.api_mode) == ApiMode::BedrockConverse;
        let mut config = HttpModelConfig::new(profile, choice.model.clone());
        config.base_url = (!choice.base_url.is_empty()).then(|| choice.base_url.clone());
        config.api_mode = choice.api_mode;
        config.key.clone_from(&choice.key);
        if let Some(plan) = &choice.pool {
            let strategy = self.config.strategies.get(&plan.provider).copied().unwrap_or_default();
            config.credentials = Some(self.pools.of(plan, &config.profile, &self.scope, strategy, &self.transport));
        } else if choice.key.is_none() {
            let lender = Lender { keys: &self.keys, scope: &self.scope };
            config.credentials = self.pools.lent(lender, choice, &config.profile, &self.transport);
        }
        if signs {
            let (mut sources, address) = aws::sources(choice, &config.profile.base_url, &self.keys);
            config.base_url = address.or(config.base_url);
            sources.transport = self.transport.clone();
            // Several bearer keys have a pool already; without any the chain signs.
            if config.credentials.is_none() || choice.key.is_none() {
                config.credentials = Some(Arc::new(AwsCredentials::new(sources)));
            }
        }
        let known = models::described(self, self.catalogue.get().unwrap_or(&Catalogue::bundled()), choice);
        config.context_window = known.context_window.map(|fact| fact.value);
        config.max_output_tokens = known.max_output_tokens.map(|fact| fact.value);
        // What is only usual in a family hides no picture from a model.
        let reads = known.inputs.filter(|inputs| inputs.source != Source::Family);
        config.sees_images = reads.map(|inputs| inputs.value.contains(&Modality::Image));
        config.transport = Some(self.transport.clone());
        config.timeouts = self.timeouts(&choice.provider, local);
        if let Some(patience) = patience {
            let usual = if local { Timeouts::local() } else { Timeouts::hosted() };
            config.timeouts = Some(config.timeouts.unwrap_or(usual).at_least(patience));
        }
        if config.profile.managed {
            return self.managed_model(config);
        }
        let model = HttpChatModel::new(config).map_err(|error| wrong(error.code(), error.message))?;
        Ok(Arc::new(model))
    }

    /// A model of the server that this program runs; whoever asks for one shares the process.
    fn managed_model(&self, config: HttpModelConfig) -> Result<Arc<dyn ChatModel>, RpcError> {
        let runtime = self.llama.of(&self.scope, &self.config, self.keys.env())?;
        match llama::model_name(&self.config) {
            Some(name) if name == config.model => Ok(Arc::new(LlamaModel::new(runtime, config))),
            _ => Err(llama::no_such_model(&self.config, &config.model)),
        }
    }

    /// The clocks of a provider, where the configuration sets them.
    fn timeouts(&self, provider: &str, local: bool) -> Option<Timeouts> {
        let configured = self.config.providers.get(provider)?;
        let mut timeouts = if local { Timeouts::local() } else { Timeouts::hosted() };
        if let Some(stale) = configured.stale_timeout {
            timeouts.first_byte = stale;
            timeouts.idle = stale;
            timeouts.progress = stale;
            // What a person set is neither cut nor stretched.
            timeouts.adapts = false;
        }
        if let Some(total) = configured.request_timeout {
            timeouts.total = total;
            timeouts.whole = total;
        }
        Some(timeouts)
    }

    fn tool_host(&self, allow_list: Vec<String>, has_judge: bool) -> ToolHost {
        let approvals = &self.config.approvals;
        let nobody_there =
            if self.overrides.serves_all { approvals.unattended_mode } else { approvals.single_query_mode };
        let unattended_approves = nobody_there == NobodyThere::Approve && !self.overrides.attended;
        let off = self.overrides.yolo || approvals.mode == ApprovalsMode::Off || unattended_approves;
        let asks = match approvals.mode {
            ApprovalsMode::Smart if has_judge => ApprovalMode::Smart,
            _ => ApprovalMode::Prompt,
        };
        let policy = PolicyConfig {
            mode: if off { ApprovalMode::Off } else { asks },
            presence: if self.overrides.attended { Presence::Attended } else { Presence::Unattended },
            allow_list,
            deny: approvals.deny.clone(),
            timeout_ms: millis(approvals.timeout),
            judge_refusals_max: approvals.denial_breaker,
        };
        let cwd = self.working_directory();
        ToolHost {
            registry: self.registry.clone(),
            selection: self.selection.clone(),
            executor: Arc::new(Executor::new(ExecutorLimits::default())),
            policy: Arc::new(ApprovalPolicy::new(policy)),
            scope: Arc::new(ToolScope { profile: self.scope.profile.clone(), home: Some(self.scope.home.clone()) }),
            sessions: Arc::new(LocalSessions {
                cwd: cwd.clone(),
                env: self.keys.env().vars.clone(),
                passthrough: self.config.terminal.env_passthrough.clone(),
                timeout_ms: millis(self.config.terminal.timeout),
                output_max_chars: usize::try_from(self.config.tool_output_max_bytes).unwrap_or(usize::MAX),
            }),
            people: Arc::new(HubPeople(self.hub.clone())),
            cwd: Some(cwd.display().to_string()),
        }
    }

    fn working_directory(&self) -> PathBuf {
        let configured = self.overrides.cwd.clone().unwrap_or_else(|| self.config.terminal.cwd.clone());
        self.keys.env().cwd.join(configured).components().collect()
    }

    pub(crate) async fn model_status(&self) -> ModelStatusResponse {
        let local = match model::ports(self.keys.env()) {
            Some(ports) => probe_local(ports).await,
            None => Vec::new(),
        };
        let (provider, model, base_url, reason, key_source) = match &self.choice {
            Ok(c) => (c.provider.clone(), c.model.clone(), self.address(c), c.reason.clone(), c.key_source.clone()),
            Err(error) => (String::new(), String::new(), String::new(), error.message.clone(), String::new()),
        };
        let mut providers: Vec<ProviderStatus> = self
            .profiles
            .iter()
            .map(|profile| ProviderStatus {
                id: profile.id.clone(),
                name: profile.name.clone(),
                env_keys: profile.env_keys.clone(),
                ready: (profile.managed && llama::lack(&self.scope, &self.config, self.keys.env()).is_none())
                    || local.iter().any(|server| server.provider == profile.id)
                    || self.keys.has_login(&profile.id)
                    || profile.env_keys.iter().any(|name| matches!(self.keys.key(name), Lookup::Found { .. })),
            })
            .collect();
        providers.push(ProviderStatus {
            id: PRACTICE.to_owned(),
            name: "Practice model (no network, no language ability)".to_owned(),
            env_keys: Vec::new(),
            ready: true,
        });
        let fallbacks = self.fallbacks().into_iter().map(|(_, choice)| match choice {
            Ok(choice) => FallbackStatus {
                base_url: self.address(&choice),
                provider: choice.provider,
                model: choice.model,
                key_source: choice.key_source,
                problem: None,
            },
            Err(error) => FallbackStatus { problem: Some(error), ..FallbackStatus::default() },
        });
        ModelStatusResponse { provider, model, base_url, reason, key_source, fallbacks: fallbacks.collect(), providers }
    }

    /// Where requests of a model go, for people.
    fn address(&self, choice: &Choice) -> String {
        match self.is_managed(choice) {
            true => "this computer, by a server that is started with the first request".to_owned(),
            false => choice.base_url.clone(),
        }
    }

    /// Whether this program runs the model's server itself.
    pub(crate) fn is_managed(&self, choice: &Choice) -> bool {
        self.profiles.get(&choice.profile).is_some_and(|profile| profile.managed)
    }

    pub(crate) fn tools_list(&self) -> Vec<ToolStatus> {
        let enabled = self.registry.select(&self.selection);
        self.registry
            .select(&ToolSelection::all())
            .iter()
            .map(|tool| {
                let spec = tool.spec();
                let first = spec.description.split_once(". ").map_or(spec.description.as_str(), |(first, _)| first);
                ToolStatus {
                    name: spec.name.clone(),
                    toolset: spec.toolset.to_owned(),
                    description: first.lines().next().unwrap_or_default().trim_end_matches('.').to_owned(),
                    enabled: enabled.iter().any(|tool| tool.spec().name == spec.name),
                }
            })
            .collect()
    }

    pub(crate) async fn doctor(&self) -> Vec<Check> {
        let store = self.store().await.map(|_| ());
        let (choice, cwd) = (&self.choice, self.working_directory());
        let mut checks = doctor::checks(&self.scope, &self.config, (choice, &self.fallbacks()), &store, &cwd);
        let is_chosen = choice.as_ref().is_ok_and(|choice| self.is_managed(choice));
        checks.extend(llama::check(&self.scope, &self.config, self.keys.env(), is_chosen));
        if let Some(file) = self.store_file() {
            let look = tokio::task::spawn_blocking(move || hermes_store::sqlite::leftovers(&file));
            checks.extend(leftovers::checks(&look.await.unwrap_or_default(), HostClock::new().now_ms()));
        }
        checks
    }

    /// Ends what was opened.
    pub(crate) async fn close(&self) {
        self.background.end().await;
        if let Some(engine) = self.engine.get() {
            engine.shutdown().await;
        }
        self.llama.close().await;
        self.pools.close().await;
        if let Some(store) = self.store.get() {
            store.close().await;
        }
    }
}

/// The toolsets that are on and off. What was typed must exist here; a home may name what only the Python program has.
fn toolsets(config: &Config, typed: Option<&Vec<String>>) -> (Vec<String>, Vec<String>) {
    let here = |names: &[String]| -> Vec<String> {
        names.iter().filter(|name| !TOOLSETS_WITHOUT_TOOLS.contains(&name.as_str())).cloned().collect()
    };
    let written = config.cli_toolsets.as_ref().unwrap_or(&config.toolsets);
    (typed.cloned().unwrap_or_else(|| here(written)), here(&config.agent.disabled_toolsets))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Tools that work on this machine, with the environment that the program was started with.
struct LocalSessions {
    cwd: PathBuf,
    env: std::collections::BTreeMap<String, String>,
    passthrough: Vec<String>,
    timeout_ms: u64,
    output_max_chars: usize,
}

#[async_trait]
impl ToolSessions for LocalSessions {
    async fn open(&self, _conversation: &ConversationId, cwd: Option<&str>) -> Arc<ToolSession> {
        // A directory that is gone since gives way to the present one; commands in it could only fail.
        let stored = match cwd {
            Some(cwd) if tokio::fs::try_exists(cwd).await.unwrap_or(false) => PathBuf::from(cwd),
            _ => self.cwd.clone(),
        };
        let mut config = SessionConfig::new(stored, self.env.clone());
        config.env_passthrough.clone_from(&self.passthrough);
        config.command_timeout_ms = self.timeout_ms;
        config.output_max_chars = self.output_max_chars;
        Arc::new(ToolSession::new(config))
    }

    async fn end_leftovers(&self, calls: &[CallId]) {
        let ended = end_leftovers(calls.iter().map(|call| call.as_str().to_owned()).collect()).await;
        if ended > 0 {
            tracing::info!("{ended} process groups of a dead owner's calls were ended");
        }
    }

    async fn close(&self, session: Arc<ToolSession>) {
        session.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_home_of_the_python_program_narrows_the_tools_and_may_name_what_is_not_here() {
        let on = |yaml: &str, typed: Option<&[&str]>| {
            let config = Config::parse(Path::new("/h/config.yaml"), yaml).unwrap();
            let typed = typed.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
            toolsets(&config, typed.as_ref())
        };
        let python = "toolsets: [hermes-cli]\nplatform_toolsets: {cli: [file, web, browser], telegram: [terminal]}";
        assert_eq!(on(python, None).0, ["file"]);
        assert_eq!(on(python, Some(&["web"])).0, ["web"], "what is typed is checked as it is");
        assert_eq!(on("agent: {disabled_toolsets: [memory, terminal]}", None).1, ["terminal"]);
        assert_eq!(on("", None).0, ["hermes-cli"]);
    }
}
