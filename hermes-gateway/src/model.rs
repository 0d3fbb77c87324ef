//! Which model: flag, then configuration, then a key in the environment, then a model file that this program shall run, then
//! a local server that answers, then the built-in practice model. A pure decision over what is known; the reason is part of the answer.

use hermes_providers::credential::SeededKey;
use hermes_providers::{ApiMode, CUSTOM, KeyRule, LLAMA_SERVER, LocalPorts, LocalServer, PRACTICE, Profile, Profiles};
use secrecy::{ExposeSecret as _, SecretString};

use crate::compose::wrong;
use crate::config::{Config, Env, FallbackConfig, Keys, ProviderConfig, TaskModel};
use crate::fallback;
use crate::llama;
use crate::protocol::RpcError;

/// What was asked for on the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelFlags {
    pub model: Option<String>,
    pub provider: Option<String>,
}

/// The model that is used, and why.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// Provider id as people know it: a profile's, one of `providers`, or `practice`.
    pub provider: String,
    /// The profile that says how to speak to it.
    pub profile: String,
    pub model: String,
    pub base_url: String,
    pub key: Option<SecretString>,
    /// The credentials that take turns, when the key is not one that the configuration names.
    pub pool: Option<PoolPlan>,
    /// Where the key is from, never the key.
    pub key_source: String,
    /// The wire, where the configuration names one.
    pub api_mode: Option<ApiMode>,
    /// Why, as the rest of a sentence.
    pub reason: String,
    pub context_window: Option<u64>,
}

/// The credentials of one provider that take turns.
#[derive(Debug, Clone)]
pub(crate) struct PoolPlan {
    /// The provider's name in `auth.json`.
    pub provider: String,
    /// Keys of variables.
    pub seeded: Vec<SeededKey>,
}

/// A key, its pool, and where it is from.
type FoundKey = (Option<SecretString>, Option<PoolPlan>, String);

impl Choice {
    /// The model for when there is no other.
    pub(crate) fn practice() -> Self {
        Self {
            provider: PRACTICE.to_owned(),
            profile: PRACTICE.to_owned(),
            model: PRACTICE.to_owned(),
            base_url: String::new(),
            key: None,
            pool: None,
            key_source: String::new(),
            api_mode: None,
            reason: "nothing is configured, no key is set and no local server answers".to_owned(),
            context_window: None,
        }
    }

    pub(crate) fn is_practice(&self) -> bool {
        self.provider == PRACTICE
    }

    /// One line for a person.
    pub(crate) fn line(&self) -> String {
        if self.is_practice() {
            return format!("the built-in practice model ({})", self.reason);
        }
        format!("model {} at {} ({})", self.model, self.provider, self.reason)
    }
}

/// What is known before anybody is asked.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub config: &'a Config,
    pub keys: &'a Keys,
    pub profiles: &'a Profiles,
}

/// The ports on which local servers are looked for; `HERMES_LOCAL_PORTS=off` looks for none (four numbers set them:
/// Ollama, LM Studio, llama.cpp, vLLM).
pub(crate) fn ports(env: &Env) -> Option<LocalPorts> {
    let Some(text) = env.get("HERMES_LOCAL_PORTS") else { return Some(LocalPorts::default()) };
    let numbers: Vec<u16> = text.split(',').filter_map(|part| part.trim().parse().ok()).collect();
    match numbers.as_slice() {
        [ollama, lmstudio, llamacpp, vllm] => {
            Some(LocalPorts { ollama: *ollama, lmstudio: *lmstudio, llamacpp: *llamacpp, vllm: *vllm })
        }
        _ => None,
    }
}

/// Decides. `None` means that only a local server or the practice model is left: ask again with what the probe found.
pub(crate) fn choose(
    flags: &ModelFlags,
    known: Known<'_>,
    local: Option<&[LocalServer]>,
) -> Result<Option<Choice>, RpcError> {
    let config = known.config;
    let facts = Facts { flags, config, keys: known.keys, profiles: known.profiles, api_mode: api_mode(config)? };
    if let Some(name) = &flags.provider {
        return facts.explicit(name, "--provider", local);
    }
    if let Some(name) = config.model.provider.as_ref().filter(|name| !matches!(name.as_str(), "" | "auto")) {
        return facts.explicit(name, "config.yaml", local);
    }
    if let Some(base_url) = facts.base_url_of_config() {
        let known = facts.profile_at(&base_url).unwrap_or(CUSTOM);
        return facts.explicit(known, "config.yaml names its base_url", local);
    }
    if let Some(choice) = facts.by_key()? {
        return Ok(Some(choice));
    }
    if let Some(choice) = facts.by_model_file()? {
        return Ok(Some(choice));
    }
    let Some(servers) = local else { return Ok(None) };
    if let Some(choice) = facts.by_server(servers, None) {
        return Ok(Some(choice));
    }
    match facts.wanted_model() {
        Some(model) => Err(wrong(
            "HM0208",
            format!(
                "model {model:?} was asked for, but no provider is known for it: name one with --provider or model.provider \
                 in {}, or set a key such as OPENAI_API_KEY in {}",
                config.file.display(),
                config.file.with_file_name(".env").display()
            ),
        )),
        None => Ok(Some(Choice::practice())),
    }
}

/// The wire that the configuration names.
fn api_mode(config: &Config) -> Result<Option<ApiMode>, RpcError> {
    let Some(name) = config.model.api_mode.as_deref().filter(|name| !matches!(*name, "" | "auto")) else {
        return Ok(None);
    };
    let known: Vec<&str> = ApiMode::ALL.iter().map(|mode| mode.as_str()).collect();
    ApiMode::named(name).map(Some).ok_or_else(|| {
        wrong(
            "HM0213",
            format!(
                "model.api_mode {name:?} in {} is not known; known are {}, so write one of them or take the line out",
                config.file.display(),
                known.join(", ")
            ),
        )
    })
}

/// The model of a task beside the turn; `None` when it has none of its own. One that is named without a provider is the
/// chosen provider's, unless it has an address of its own: no key of the chosen one goes there (I24).
pub(crate) fn choose_for_task(wanted: &TaskModel, main: &Choice, known: Known<'_>) -> Option<Result<Choice, RpcError>> {
    if !wanted.is_named() {
        return None;
    }
    if wanted.base_url.is_some() {
        let entry = FallbackConfig {
            provider: wanted.provider.clone(),
            model: wanted.model.clone().or_else(|| (!main.is_practice()).then(|| main.model.clone())),
            base_url: wanted.base_url.clone(),
            api_key: wanted.api_key.clone(),
            ..FallbackConfig::default()
        };
        let chosen = fallback::resolve(&entry, known);
        return Some(chosen.map(|choice| Choice { reason: "auxiliary names it".to_owned(), ..choice }));
    }
    let chosen = choose_by_name(wanted, main, known)?;
    let Some(key) = &wanted.api_key else { return Some(chosen) };
    let key = SecretString::from(known.keys.expand(key.expose_secret()));
    let source = "api_key of its entry".to_owned();
    Some(chosen.map(|choice| Choice { key: Some(key), pool: None, key_source: source, ..choice }))
}

fn choose_by_name(wanted: &TaskModel, main: &Choice, known: Known<'_>) -> Option<Result<Choice, RpcError>> {
    let same = wanted.model.as_deref().is_none_or(|model| model == main.model);
    let Some(provider) = &wanted.provider else {
        let model = wanted.model.clone().unwrap_or_else(|| main.model.clone());
        // What is known of one model's window says nothing of another's.
        let context_window = main.context_window.filter(|_| same);
        return (!main.is_practice()).then(|| Ok(Choice { model, context_window, ..main.clone() }));
    };
    let flags = ModelFlags { model: wanted.model.clone(), provider: Some(provider.clone()) };
    let chosen = choose(&flags, known, Some(&[])).and_then(|choice| {
        choice.ok_or_else(|| wrong("HM0208", format!("provider {provider:?} has no address; set one in providers")))
    });
    // It has no language: what it wrote would stand for something.
    let chosen = Some(chosen).filter(|chosen| !chosen.as_ref().is_ok_and(Choice::is_practice))?;
    Some(chosen.map(|choice| Choice { context_window: choice.context_window.filter(|_| same), ..choice }))
}

/// The host of an address, without its port.
fn host_of(url: &str) -> Option<&str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next()?.rsplit('@').next()?.split(':').next()?;
    (!host.is_empty()).then_some(host)
}

struct Facts<'a> {
    flags: &'a ModelFlags,
    config: &'a Config,
    keys: &'a Keys,
    profiles: &'a Profiles,
    /// What `model.api_mode` says.
    api_mode: Option<ApiMode>,
}

impl Facts<'_> {
    fn wanted_model(&self) -> Option<&String> {
        self.flags.model.as_ref().or(self.config.model.default.as_ref()).filter(|model| !model.is_empty())
    }

    fn base_url_of_config(&self) -> Option<String> {
        self.config.model.base_url.as_ref().map(|url| self.keys.expand(url)).filter(|url| !url.is_empty())
    }

    /// The provider that an address belongs to, so that its key goes with it; the user's own machine belongs to none.
    fn profile_at(&self, base_url: &str) -> Option<&str> {
        let host = host_of(base_url)?;
        let of = |profile: &&std::sync::Arc<Profile>| !profile.local && host_of(&profile.base_url) == Some(host);
        self.profiles.iter().find(of).map(|profile| profile.id.as_str())
    }

    /// The provider was named.
    fn explicit(&self, name: &str, by: &str, local: Option<&[LocalServer]>) -> Result<Option<Choice>, RpcError> {
        if name == PRACTICE {
            return Ok(Some(Choice { reason: format!("{by} names it"), ..Choice::practice() }));
        }
        let custom = name.strip_prefix("custom:").unwrap_or(name);
        let entry = self.config.providers.get(name).or_else(|| self.config.providers.get(custom));
        let profile = match (self.profiles.get(name), entry) {
            (Some(profile), _) => profile,
            (None, Some(_)) => self.custom_profile()?,
            (None, None) if name.starts_with("custom:") => self.custom_profile()?,
            (None, None) => return Err(self.unknown(name)),
        };
        // What `model` says of key and address belongs to the provider that `model` names, and to no other (I21).
        let of_model = self.flags.provider.is_none()
            || self.config.model.provider.as_deref().is_some_and(|own| own == name || self.same(own, profile));
        let base_url = self.base_url(profile, entry, of_model);
        if profile.managed {
            return self.managed(profile, by, base_url.as_deref(), of_model).map(Some);
        }
        if base_url.is_none() && profile.local {
            let Some(servers) = local else { return Ok(None) };
            if let Some(choice) = self.by_server(servers, Some(profile)) {
                return Ok(Some(choice));
            }
        }
        let Some(base_url) = base_url.or_else(|| (!profile.base_url.is_empty()).then(|| profile.base_url.clone()))
        else {
            return Err(wrong(
                "HM0209",
                format!(
                    "provider {name:?} needs an address: set model.base_url in {} (for example http://127.0.0.1:8080/v1)",
                    self.config.file.display()
                ),
            ));
        };
        let model = self.flags.model.clone().or_else(|| self.config.model.default.clone().filter(|_| of_model));
        let Some(model) = model.or_else(|| profile.default_model.clone()) else {
            return Err(wrong(
                "HM0210",
                format!(
                    "no model is named for provider {name:?}: use -m, or model.default in {}",
                    self.config.file.display()
                ),
            ));
        };
        let (key, pool, key_source) = self.find_key(name, profile, entry, of_model)?;
        Ok(Some(Choice {
            provider: if entry.is_some() && self.profiles.get(name).is_none() {
                name.to_owned()
            } else {
                profile.id.clone()
            },
            profile: profile.id.clone(),
            model,
            base_url,
            key,
            pool,
            key_source,
            api_mode: self.api_mode.filter(|_| of_model),
            reason: if by.contains(' ') { by.to_owned() } else { format!("{by} names the provider") },
            context_window: self.config.model.context_length.filter(|_| of_model),
        }))
    }

    /// A model that this program runs itself: the one of the file, by whichever of its names it was asked for.
    fn managed(&self, profile: &Profile, by: &str, base_url: Option<&str>, of_model: bool) -> Result<Choice, RpcError> {
        if let Some(base_url) = base_url {
            return Err(wrong(
                "HM0215",
                format!(
                    "provider {:?} is started by this program and has no address: take base_url ({base_url}) out, or name the                      provider `llamacpp`, which is for a server that runs already",
                    profile.id
                ),
            ));
        }
        let model = llama::model_name(self.config).ok_or_else(|| llama::no_model_file(self.config))?;
        let asked = self.flags.model.as_ref().or(self.config.model.default.as_ref().filter(|_| of_model));
        if let Some(asked) = asked.filter(|asked| !llama::is_model(self.config, asked)) {
            return Err(llama::no_such_model(self.config, asked));
        }
        let (key, pool, key_source) = self.find_key(&profile.id, profile, None, of_model)?;
        Ok(Choice {
            provider: profile.id.clone(),
            profile: profile.id.clone(),
            model,
            base_url: String::new(),
            key,
            pool,
            key_source,
            api_mode: None,
            reason: if by.contains(' ') { by.to_owned() } else { format!("{by} names the provider") },
            context_window: Some(self.config.llama_server.context_length),
        })
    }

    /// A model file decides, unless another model is wanted.
    fn by_model_file(&self) -> Result<Option<Choice>, RpcError> {
        let Some(profile) = self.profiles.get(LLAMA_SERVER).filter(|profile| profile.managed) else { return Ok(None) };
        let wanted = self.wanted_model().is_none_or(|model| llama::is_model(self.config, model));
        if self.config.llama_server.model_file.is_none() || !wanted {
            return Ok(None);
        }
        self.managed(profile, "llama_server.model_file is set", None, true).map(Some)
    }

    fn same(&self, name: &str, profile: &Profile) -> bool {
        self.profiles.get(name).is_some_and(|other| other.id == profile.id)
    }

    fn custom_profile(&self) -> Result<&std::sync::Arc<Profile>, RpcError> {
        self.profiles.get(CUSTOM).ok_or_else(|| wrong("HM0207", "the profile `custom` is missing from this program"))
    }

    fn unknown(&self, name: &str) -> RpcError {
        let known: Vec<&str> = self.profiles.iter().map(|profile| profile.id.as_str()).collect();
        wrong("HM0207", format!("provider {name:?} is not known; known are {} and {PRACTICE}", known.join(", ")))
    }

    /// The address that was set on purpose.
    fn base_url(&self, profile: &Profile, entry: Option<&ProviderConfig>, of_model: bool) -> Option<String> {
        let of_config = self.config.model.base_url.clone().filter(|_| of_model);
        of_config
            .or_else(|| entry.and_then(|entry| entry.base_url.clone()))
            .or_else(|| {
                profile.base_url_env.as_deref().and_then(|name| self.keys.value(name)).map(|(url, _)| url.to_owned())
            })
            .map(|url| self.keys.expand(&url))
            .filter(|url| !url.is_empty())
    }

    fn find_key(
        &self,
        name: &str,
        profile: &Profile,
        entry: Option<&ProviderConfig>,
        of_model: bool,
    ) -> Result<FoundKey, RpcError> {
        // `${NAME}` in the file stands for that variable, as it does for the Python program.
        let expand = |key: &SecretString| SecretString::from(self.keys.expand(key.expose_secret()));
        if let Some(key) = self.config.model.api_key.as_ref().filter(|_| of_model) {
            return Ok((Some(expand(key)), None, "model.api_key in config.yaml".to_owned()));
        }
        if let Some(key) = entry.and_then(|entry| entry.api_key.as_ref()) {
            return Ok((Some(expand(key)), None, format!("providers.{name}.api_key in config.yaml")));
        }
        let named = entry.and_then(|entry| entry.key_env.as_deref());
        let variables = named.into_iter().chain(profile.env_keys.iter().map(String::as_str));
        let owner = if profile.id == CUSTOM { name } else { profile.id.as_str() };
        if let Some(found) = self.pooled(owner, variables) {
            return Ok(found);
        }
        if profile.key != KeyRule::Required {
            return Ok((None, None, String::new()));
        }
        Err(wrong(
            "HM0211",
            format!(
                "provider {name:?} needs a key: set {} in {} or in the environment",
                profile.env_keys.join(" or "),
                self.config.file.with_file_name(".env").display()
            ),
        ))
    }

    /// The credentials of variables and of `auth.json`, when there is one.
    fn pooled<'v>(&self, owner: &str, variables: impl IntoIterator<Item = &'v str>) -> Option<FoundKey> {
        let seeded = self.keys.seeded(owner, variables);
        let source = match seeded.first() {
            Some(first) => {
                let place = self.keys.value(&first.variable).map_or("environment", |(_, place)| place);
                format!("{} ({place})", first.variable)
            }
            None if self.keys.has_login(owner) => "auth.json".to_owned(),
            None => return None,
        };
        let key = seeded.first().map(|first| first.key.clone());
        Some((key, Some(PoolPlan { provider: owner.to_owned(), seeded }), source))
    }

    /// A key in the environment decides.
    fn by_key(&self) -> Result<Option<Choice>, RpcError> {
        // A key of a provider that has no model of its own decides nothing while no model is named: many programs set such
        // variables for themselves.
        let names_model = self.wanted_model().is_some();
        let usable = |profile: &&std::sync::Arc<Profile>| {
            !profile.base_url.is_empty() && (names_model || profile.default_model.is_some())
        };
        let mut keyed = self.profiles.iter().filter(usable).filter_map(|profile| {
            Some((profile, self.pooled(&profile.id, profile.env_keys.iter().map(String::as_str))?))
        });
        let Some((profile, (key, pool, key_source))) = keyed.next() else { return Ok(None) };
        let variable = key_source.split(' ').next().unwrap_or_default().to_owned();
        let others: Vec<&str> = keyed.map(|(profile, ..)| profile.id.as_str()).collect();
        let Some(model) = self.wanted_model().cloned().or_else(|| profile.default_model.clone()) else {
            return Err(wrong(
                "HM0210",
                format!(
                    "{variable} is set, but no model is named for {}: use -m, or model.default in {}",
                    profile.id,
                    self.config.file.display()
                ),
            ));
        };
        let also =
            if others.is_empty() { String::new() } else { format!("; keys are also set for {}", others.join(", ")) };
        Ok(Some(Choice {
            provider: profile.id.clone(),
            profile: profile.id.clone(),
            model,
            base_url: self.base_url(profile, None, false).unwrap_or_else(|| profile.base_url.clone()),
            key,
            pool,
            reason: if variable == "auth.json" {
                format!("auth.json has a credential for it{also}")
            } else {
                format!("{variable} is set{also}")
            },
            key_source,
            api_mode: self.api_mode,
            context_window: self.config.model.context_length,
        }))
    }

    /// A local server that answers decides.
    fn by_server(&self, servers: &[LocalServer], only: Option<&Profile>) -> Option<Choice> {
        let server = servers.iter().find(|server| only.is_none_or(|profile| profile.id == server.provider))?;
        let profile = self.profiles.get(&server.provider)?;
        let wanted = self.wanted_model();
        let found = match wanted {
            Some(name) => server.models.iter().find(|model| model.id == *name),
            None => server.models.first(),
        };
        let model = wanted.cloned().or_else(|| found.map(|model| model.id.clone()))?;
        let window = found.and_then(|model| model.context_window);
        Some(Choice {
            provider: profile.id.clone(),
            profile: profile.id.clone(),
            model,
            base_url: server.base_url.clone(),
            key: None,
            pool: None,
            key_source: String::new(),
            api_mode: self.api_mode,
            reason: format!("{} answers at {}", profile.name, server.base_url),
            context_window: self.config.model.context_length.or(window),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hermes_providers::LocalModel;

    use super::*;

    fn run(yaml: &str, flags: (Option<&str>, Option<&str>), keys: &[&str], local: Option<&[LocalServer]>) -> String {
        let config = Config::parse(Path::new("/h/config.yaml"), yaml).unwrap();
        let flags = ModelFlags { model: flags.0.map(str::to_owned), provider: flags.1.map(str::to_owned) };
        let profiles = Profiles::bundled().unwrap();
        let vars = keys.iter().map(|name| ((*name).to_owned(), "sk-9f8a7b6c5d".to_owned())).collect();
        let env = Env { vars, user_home: None, cwd: "/".into() };
        let keys = Keys::of(crate::config::DotEnv::parse(""), env, "/h/.env".into());
        let known = Known { config: &config, keys: &keys, profiles: &profiles };
        match choose(&flags, known, local) {
            Ok(Some(choice)) => {
                format!("{}/{} {} {}", choice.provider, choice.model, choice.base_url, choice.key_source)
            }
            Ok(None) => "probe".to_owned(),
            Err(error) => error.code,
        }
    }

    fn ollama() -> Vec<LocalServer> {
        vec![LocalServer {
            provider: "ollama".into(),
            base_url: "http://127.0.0.1:11434/v1".into(),
            models: vec![LocalModel { id: "small".into(), context_window: Some(4096), ..LocalModel::default() }],
        }]
    }

    #[test]
    fn flag_then_configuration_then_key_then_server_then_practice() {
        let configured = "model: {provider: custom, base_url: 'http://127.0.0.1:9/v1', default: m, api_key: k}";
        let both = ["OPENAI_API_KEY", "GROQ_API_KEY"];
        let server = ollama();
        // A flag wins, and the configured provider's key and address do not go with it.
        assert!(run(configured, (Some("x"), Some("groq")), &both, None).starts_with("groq/x https://"));
        assert_eq!(run(configured, (Some("x"), Some("groq")), &[], None), "HM0211");
        assert_eq!(
            run(configured, (None, None), &both, None),
            "custom/m http://127.0.0.1:9/v1 model.api_key in config.yaml"
        );
        assert!(run(configured, (Some("other"), None), &both, None).starts_with("custom/other "));
        assert!(run("model: named", (None, None), &["OPENAI_API_KEY"], None).starts_with("openai/named "));
        assert_eq!(run("", (None, None), &[], None), "probe");
        assert_eq!(run("", (None, None), &[], Some(&server)), "ollama/small http://127.0.0.1:11434/v1 ");
        assert!(run("", (None, None), &[], Some(&[])).starts_with("practice/practice"));
        assert!(run("", (None, Some("practice")), &both, None).starts_with("practice/practice"));
    }

    #[test]
    fn a_task_has_the_model_that_it_is_given_and_its_provider_s_key() {
        let yaml = "model: {provider: groq, default: big, context_length: 9000}\nproviders: {groq: {api_key: sk-groq}}";
        let config = Config::parse(Path::new("/h/config.yaml"), yaml).unwrap();
        let profiles = Profiles::bundled().unwrap();
        let vars = [("OPENAI_API_KEY".to_owned(), "sk-9f8a7b6c5d".to_owned())].into();
        let env = Env { vars, user_home: None, cwd: "/".into() };
        let keys = Keys::of(crate::config::DotEnv::parse(""), env, "/h/.env".into());
        let known = Known { config: &config, keys: &keys, profiles: &profiles };
        let main = choose(&ModelFlags::default(), known, None).unwrap().unwrap();
        let of = |provider: Option<&str>, model: Option<&str>| {
            let (provider, model) = (provider.map(str::to_owned), model.map(str::to_owned));
            let wanted = TaskModel { provider, model, ..TaskModel::default() };
            match choose_for_task(&wanted, &main, known) {
                None => "none".to_owned(),
                Some(Err(error)) => error.code,
                Some(Ok(choice)) => {
                    format!("{}/{} {:?} {}", choice.provider, choice.model, choice.context_window, choice.key_source)
                }
            }
        };
        assert_eq!(of(None, None), "none");
        assert_eq!(of(None, Some("small")), "groq/small None providers.groq.api_key in config.yaml");
        assert_eq!(of(Some("groq"), Some("big")), "groq/big Some(9000) providers.groq.api_key in config.yaml");
        // Another provider gets its own key, and no model of the first one.
        assert!(of(Some("openai"), Some("mini")).starts_with("openai/mini None OPENAI_API_KEY"));
        assert_eq!(of(Some("anthropic-of-nobody"), None), "HM0207");
        assert_eq!(of(Some("practice"), None), "none");
    }

    #[test]
    fn i24_a_task_with_an_address_of_its_own_gets_its_own_key_and_no_other() {
        let yaml = "model: {provider: custom, base_url: 'http://a:1/v1', default: m, api_key: key-of-a}";
        let config = Config::parse(Path::new("/h/config.yaml"), yaml).unwrap();
        let vars = [("OWN".to_owned(), "sk-9f8a7b6c5d".to_owned())].into();
        let env = Env { vars, user_home: None, cwd: "/".into() };
        let keys = Keys::of(crate::config::DotEnv::parse(""), env, "/h/.env".into());
        let profiles = Profiles::bundled().unwrap();
        let known = Known { config: &config, keys: &keys, profiles: &profiles };
        let main = choose(&ModelFlags::default(), known, Some(&[])).unwrap().unwrap();
        let of = |base_url: Option<&str>, model: Option<&str>, key: Option<&str>| {
            let wanted = TaskModel {
                base_url: base_url.map(str::to_owned),
                model: model.map(str::to_owned),
                api_key: key.map(SecretString::from),
                ..TaskModel::default()
            };
            let choice = choose_for_task(&wanted, &main, known).unwrap().unwrap();
            let key = choice.key.map_or_else(String::new, |key| key.expose_secret().to_owned());
            format!("{} {} {key}", choice.base_url, choice.model)
        };
        assert_eq!(of(Some("http://b:1/v1"), Some("small"), None), "http://b:1/v1 small ");
        assert_eq!(of(Some("http://b:1/v1"), None, Some("${OWN}")), "http://b:1/v1 m sk-9f8a7b6c5d");
        assert_eq!(of(None, Some("small"), Some("${OWN}")), "http://a:1/v1 small sk-9f8a7b6c5d");
        assert_eq!(of(None, None, Some("own")), "http://a:1/v1 m own");
    }

    #[test]
    fn a_model_file_is_run_when_it_is_named_or_nothing_else_decides() {
        let file = "llama_server: {model_file: /models/small-q4.gguf}";
        let run_it = "llama-server/small-q4  ";
        let server = ollama();
        for (yaml, flags, keys, want) in [
            (file, (None, None), &[][..], run_it),
            (file, (None, Some("llama-server")), &[], run_it),
            (file, (Some("small-q4"), None), &[], run_it),
            (file, (Some("small-q4.gguf"), Some("llama-server")), &[], run_it),
            (file, (Some("other"), Some("llama-server")), &[], "HM0210"),
            (file, (None, Some("ollama")), &[], "ollama/small http://127.0.0.1:11434/v1 "),
            ("", (None, Some("llama-server")), &[], "HM0215"),
            ("model: {provider: llama-server, base_url: 'http://127.0.0.1:1/v1'}", (None, None), &[], "HM0215"),
        ] {
            assert_eq!(run(yaml, flags, keys, Some(&server)), want, "{yaml} {flags:?}");
        }
        assert!(run(file, (None, None), &["OPENAI_API_KEY"], None).starts_with("openai/"), "a key goes first");
        assert_eq!(run(file, (Some("small"), None), &[], Some(&server)), "ollama/small http://127.0.0.1:11434/v1 ");
    }

    #[test]
    fn what_cannot_work_says_so_with_a_code() {
        assert_eq!(run("", (None, Some("nobody")), &[], None), "HM0207");
        assert_eq!(run("", (Some("m"), Some("custom")), &[], None), "HM0209");
        assert_eq!(run("", (Some("m"), None), &[], Some(&[])), "HM0208");
        assert_eq!(run("model: {base_url: 'http://127.0.0.1:9/v1'}", (None, None), &[], None), "HM0210");
    }

    #[test]
    fn the_python_program_s_example_with_an_address_takes_the_key_of_its_provider() {
        let yaml = "model: {default: 'a/b', provider: auto, base_url: 'https://openrouter.ai/api/v1'}";
        assert_eq!(
            run(yaml, (None, None), &["OPENROUTER_API_KEY"], None),
            "openrouter/a/b https://openrouter.ai/api/v1 OPENROUTER_API_KEY (environment)"
        );
        assert_eq!(run(yaml, (None, None), &[], None), "HM0211");
        // No key goes to a host that only looks like the provider's (I24).
        let other = "model: {default: 'a/b', base_url: 'https://openrouter.ai.example/v1'}";
        assert!(run(other, (None, None), &["OPENROUTER_API_KEY"], None).starts_with("custom/a/b "));
    }

    #[test]
    fn a_wire_of_the_configuration_is_taken_and_an_unknown_one_refused() {
        let yaml = |mode: &str| {
            format!("model: {{provider: custom, base_url: 'http://127.0.0.1:9/v1', default: m, api_mode: {mode}}}")
        };
        let of = |mode: &str, provider: Option<&str>| {
            let config = Config::parse(Path::new("/h/config.yaml"), &yaml(mode)).unwrap();
            let vars = [("GROQ_API_KEY".to_owned(), "sk-9f8a7b6c5d".to_owned())].into();
            let env = Env { vars, user_home: None, cwd: "/".into() };
            let keys = Keys::of(crate::config::DotEnv::parse(""), env, "/h/.env".into());
            let profiles = Profiles::bundled().unwrap();
            let known = Known { config: &config, keys: &keys, profiles: &profiles };
            let flags = ModelFlags { model: None, provider: provider.map(str::to_owned) };
            choose(&flags, known, None).unwrap().unwrap().api_mode
        };
        assert_eq!(of("anthropic_messages", None), Some(ApiMode::AnthropicMessages));
        assert_eq!(of("codex_responses", None), Some(ApiMode::Responses));
        assert_eq!(of("auto", None), None);
        // It says how the configured provider is spoken to, and no other (I21).
        assert_eq!(of("responses", Some("groq")), None);
        assert_eq!(run(&yaml("smoke_signals"), (None, None), &[], None), "HM0213");
    }

    #[test]
    fn a_variable_in_the_file_stands_for_its_value() {
        let yaml =
            "model: {provider: custom, default: m, base_url: 'http://${HOST_OF_MINE}/v1', api_key: '${KEY_OF_MINE}'}";
        let config = Config::parse(Path::new("/h/config.yaml"), yaml).unwrap();
        let vars = [("HOST_OF_MINE", "127.0.0.1:9"), ("KEY_OF_MINE", "sk-123456")];
        let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let env = Env { vars, user_home: None, cwd: "/".into() };
        let keys = Keys::of(crate::config::DotEnv::parse(""), env, "/h/.env".into());
        let profiles = Profiles::bundled().unwrap();
        let known = Known { config: &config, keys: &keys, profiles: &profiles };
        let choice = choose(&ModelFlags::default(), known, None).unwrap().unwrap();
        assert_eq!(choice.base_url, "http://127.0.0.1:9/v1");
        assert_eq!(choice.key.unwrap().expose_secret(), "sk-123456");
    }

    #[test]
    fn an_endpoint_of_the_user_s_own_is_named_by_its_id() {
        let yaml =
            "model: {provider: mine, default: m}\nproviders: {mine: {base_url: 'http://10.0.0.1/v1', api_key: kkkkkk}}";
        assert_eq!(
            run(yaml, (None, None), &[], None),
            "mine/m http://10.0.0.1/v1 providers.mine.api_key in config.yaml"
        );
    }
}
