//! Providers as data: one TOML file each in `profiles/`, one line each in [`BUNDLED`].
//!
//! A profile says where a provider is, which variables may hold its key and how its wire differs. It holds no secret and
//! no client; reading the environment is the caller's business.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Deserialize;

/// The bundled profiles: file name for messages, text. A new provider is one file and one line.
const BUNDLED: &[(&str, &str)] = &[
    ("openai.toml", include_str!("../profiles/openai.toml")),
    ("openrouter.toml", include_str!("../profiles/openrouter.toml")),
    ("groq.toml", include_str!("../profiles/groq.toml")),
    ("deepseek.toml", include_str!("../profiles/deepseek.toml")),
    ("mistral.toml", include_str!("../profiles/mistral.toml")),
    ("together.toml", include_str!("../profiles/together.toml")),
    ("ollama.toml", include_str!("../profiles/ollama.toml")),
    ("lmstudio.toml", include_str!("../profiles/lmstudio.toml")),
    ("vllm.toml", include_str!("../profiles/vllm.toml")),
    ("llamacpp.toml", include_str!("../profiles/llamacpp.toml")),
    ("custom.toml", include_str!("../profiles/custom.toml")),
];

/// The profile that takes any address.
pub const CUSTOM: &str = "custom";

/// The wire that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ApiMode {
    /// `POST /chat/completions`.
    ChatCompletions,
}

impl ApiMode {
    /// The name that profiles and [`ModelInfo`](crate::ModelInfo) use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
        }
    }
}

/// Whether requests need a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyRule {
    /// Without a key nothing is sent.
    Required,
    /// A key is sent when there is one.
    Optional,
}

/// The header that carries the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AuthHeader {
    /// `authorization: Bearer KEY`.
    #[default]
    Bearer,
    /// `x-api-key: KEY`.
    XApiKey,
    /// `x-goog-api-key: KEY`.
    XGoogApiKey,
}

/// The field that caps the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// `max_tokens`, the older and wider known one.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

/// What stands in `content` of an assistant message that has calls and no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptyContent {
    /// `null`.
    #[default]
    Null,
    /// `""`, for servers whose templates fail on null.
    Empty,
}

/// Which readable reasoning goes back with the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEcho {
    /// None.
    #[default]
    None,
    /// As `reasoning_content`.
    ReasoningContent,
    /// As `reasoning_content` and `reasoning`.
    All,
}

/// How a wanted reasoning effort is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningField {
    /// Not at all.
    #[default]
    None,
    /// `"reasoning_effort": "high"`.
    Effort,
    /// `"reasoning": {"effort": "high"}`.
    Object,
    /// `"thinking": {"type": "enabled"}` and `"reasoning_effort"`.
    Thinking,
}

/// Which ids of tool calls a provider accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolIds {
    /// Any.
    #[default]
    Any,
    /// At most 40 bytes (OpenAI).
    Max40,
    /// Exactly nine letters and digits (Mistral).
    Alnum9,
}

/// The role of the system prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SystemRole {
    /// `system`.
    #[default]
    System,
    /// `developer`.
    Developer,
}

/// How a provider's chat-completions wire differs from the plain one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quirks {
    /// The field that caps the output.
    pub max_tokens_field: MaxTokensField,
    /// Whether `stream_options.include_usage` may be sent.
    pub stream_usage: bool,
    /// The content of an assistant message that has only calls.
    pub empty_content: EmptyContent,
    /// Which readable reasoning goes back.
    pub reasoning_echo: ReasoningEcho,
    /// Models (parts of the lower-case name; an empty part means every model) that refuse an assistant message with
    /// calls and without `reasoning_content`; unknown reasoning is then sent as one blank.
    pub echo_pad_models: Vec<String>,
    /// How an effort is written.
    pub reasoning: ReasoningField,
    /// Efforts that the provider knows, weakest first; empty: unknown, pass what is asked.
    pub efforts: Vec<String>,
    /// Efforts that have another name here.
    pub effort_map: BTreeMap<String, String>,
    /// Accepted ids of calls.
    pub tool_ids: ToolIds,
    /// The role of the system prompt.
    pub system_role: SystemRole,
    /// Models (beginnings of the name) that refuse a temperature.
    pub no_temperature_models: Vec<String>,
    /// Whether `prompt_cache_key` may be sent.
    pub prompt_cache_key: bool,
    /// Whether the provider passes requests on to others, so that a 429 may not be about our key.
    pub aggregator: bool,
}

impl Default for Quirks {
    fn default() -> Self {
        Self {
            max_tokens_field: MaxTokensField::default(),
            stream_usage: true,
            empty_content: EmptyContent::default(),
            reasoning_echo: ReasoningEcho::default(),
            echo_pad_models: Vec::new(),
            reasoning: ReasoningField::default(),
            efforts: Vec::new(),
            effort_map: BTreeMap::new(),
            tool_ids: ToolIds::default(),
            system_role: SystemRole::default(),
            no_temperature_models: Vec::new(),
            prompt_cache_key: false,
            aggregator: false,
        }
    }
}

/// One provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Canonical id.
    pub id: String,
    /// Other spellings.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// For people.
    pub name: String,
    /// The wire.
    pub api_mode: ApiMode,
    /// Where requests go, without the method's path; empty when only the user can say.
    pub base_url: String,
    /// The environment variable that may hold another base URL.
    #[serde(default)]
    pub base_url_env: Option<String>,
    /// Environment variables that may hold the key, first wins.
    #[serde(default)]
    pub env_keys: Vec<String>,
    /// Whether a key is needed.
    pub key: KeyRule,
    /// The header that carries it.
    #[serde(default)]
    pub auth_header: AuthHeader,
    /// Where a person gets a key or the program.
    #[serde(default)]
    pub signup_url: Option<String>,
    /// The model when the user named none.
    #[serde(default)]
    pub default_model: Option<String>,
    /// Runs on the user's own computer: found by probing, allowed to be slow.
    #[serde(default)]
    pub local: bool,
    /// Headers that go with every request. Never secrets.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// How the wire differs.
    #[serde(default)]
    pub quirks: Quirks,
}

/// A profile that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file is not a profile.
    #[error("{file}: {message}")]
    Parse {
        /// File name.
        file: String,
        /// What the parser said.
        message: String,
    },
    /// Two profiles claim one name.
    #[error("the provider name `{name}` is claimed by both `{first}` and `{second}`; rename one of them")]
    Clash {
        /// The name or alias.
        name: String,
        /// Id of the profile that had it first.
        first: String,
        /// Id of the other one.
        second: String,
    },
}

/// All known providers, in order of the registry.
#[derive(Debug, Clone)]
pub struct Profiles {
    list: Vec<Arc<Profile>>,
    names: HashMap<String, usize>,
}

impl Profiles {
    /// The bundled profiles.
    ///
    /// # Errors
    /// [`ProfileError`] when a bundled file is broken; a test shows that none is.
    pub fn bundled() -> Result<Self, ProfileError> {
        Self::parse(BUNDLED.iter().copied())
    }

    /// Profiles from `(file name, TOML)` pairs.
    ///
    /// # Errors
    /// [`ProfileError`] for a broken file or a name that two profiles claim.
    pub fn parse<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ProfileError> {
        let mut all = Self { list: Vec::new(), names: HashMap::new() };
        for (file, text) in files {
            let profile: Profile = toml::from_str(text)
                .map_err(|error| ProfileError::Parse { file: file.to_owned(), message: error.to_string() })?;
            all.add(profile)?;
        }
        Ok(all)
    }

    fn add(&mut self, profile: Profile) -> Result<(), ProfileError> {
        let at = self.list.len();
        for name in std::iter::once(&profile.id).chain(&profile.aliases) {
            if let Some(first) = self.names.insert(name.to_lowercase(), at) {
                let first = self.list.get(first).map_or_else(|| profile.id.clone(), |owner| owner.id.clone());
                return Err(ProfileError::Clash { name: name.clone(), first, second: profile.id });
            }
        }
        self.list.push(Arc::new(profile));
        Ok(())
    }

    /// The profile of this id or alias, whatever the case. `custom:NAME` is the custom profile.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Profile>> {
        let name = name.trim().to_lowercase();
        let name = if name.starts_with("custom:") { CUSTOM } else { name.as_str() };
        self.names.get(name).and_then(|at| self.list.get(*at))
    }

    /// Every profile, in order of the registry.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundled_profiles_load_and_answer_to_their_names() {
        let all = Profiles::bundled().unwrap();
        for id in
            ["openai", "openrouter", "groq", "deepseek", "mistral", "together", "ollama", "lmstudio", "vllm", "custom"]
        {
            assert_eq!(all.get(id).unwrap().id, id);
        }
        assert_eq!(all.get("LLAMA.cpp").unwrap().id, "llamacpp");
        assert_eq!(all.get("custom:my server").unwrap().id, "custom");
        assert!(all.get("nobody").is_none());
        assert_eq!(all.iter().count(), BUNDLED.len());
    }

    #[test]
    fn every_file_is_in_the_registry() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
        let mut files: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        let mut listed: Vec<String> = BUNDLED.iter().map(|(file, _)| (*file).to_owned()).collect();
        files.sort();
        listed.sort();
        assert_eq!(files, listed);
    }

    #[test]
    fn bundled_profiles_are_sensible() {
        for profile in Profiles::bundled().unwrap().iter() {
            let url = &profile.base_url;
            assert!(profile.id == CUSTOM || url.starts_with("https://") || profile.local, "{}", profile.id);
            assert!(!url.ends_with('/'), "{}", profile.id);
            assert!(profile.key == KeyRule::Optional || !profile.env_keys.is_empty(), "{}", profile.id);
            assert!(profile.key == KeyRule::Optional || profile.default_model.is_some(), "{}", profile.id);
        }
    }

    fn toml_of(id: &str, alias: &str) -> String {
        format!("id='{id}'\naliases=['{alias}']\nname='x'\napi_mode='chat_completions'\nbase_url=''\nkey='optional'\n")
    }

    #[test]
    fn b38_an_alias_clash_is_an_error_that_names_both() {
        let (a, b) = (toml_of("a", "same"), toml_of("b", "SAME"));
        let error = Profiles::parse([("a.toml", a.as_str()), ("b.toml", b.as_str())]).unwrap_err();
        assert_eq!(error, ProfileError::Clash { name: "SAME".into(), first: "a".into(), second: "b".into() });
        let twice = toml_of("a", "A");
        assert!(matches!(Profiles::parse([("a.toml", twice.as_str())]), Err(ProfileError::Clash { .. })));
    }

    #[test]
    fn an_unknown_field_names_the_file() {
        let text = toml_of("a", "b") + "tyop = 1\n";
        let error = Profiles::parse([("a.toml", text.as_str())]).unwrap_err().to_string();
        assert!(error.starts_with("a.toml: ") && error.contains("tyop"), "{error}");
    }
}
