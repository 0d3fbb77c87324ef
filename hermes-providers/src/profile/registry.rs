//! All known providers, by every name that they answer to.

use std::collections::HashMap;
use std::sync::Arc;

use crate::profile::{Profile, ProfileError};

/// The bundled profiles: file name for messages, text. A new provider is one file and one line.
const BUNDLED: &[(&str, &str)] = &[
    ("openai.toml", include_str!("../../profiles/openai.toml")),
    ("openrouter.toml", include_str!("../../profiles/openrouter.toml")),
    ("groq.toml", include_str!("../../profiles/groq.toml")),
    ("deepseek.toml", include_str!("../../profiles/deepseek.toml")),
    ("mistral.toml", include_str!("../../profiles/mistral.toml")),
    ("together.toml", include_str!("../../profiles/together.toml")),
    ("ollama.toml", include_str!("../../profiles/ollama.toml")),
    ("lmstudio.toml", include_str!("../../profiles/lmstudio.toml")),
    ("vllm.toml", include_str!("../../profiles/vllm.toml")),
    ("llamacpp.toml", include_str!("../../profiles/llamacpp.toml")),
    ("anthropic.toml", include_str!("../../profiles/anthropic.toml")),
    ("bedrock.toml", include_str!("../../profiles/bedrock.toml")),
    ("gemini.toml", include_str!("../../profiles/gemini.toml")),
    ("vertex-express.toml", include_str!("../../profiles/vertex-express.toml")),
    ("minimax.toml", include_str!("../../profiles/minimax.toml")),
    ("minimax-cn.toml", include_str!("../../profiles/minimax-cn.toml")),
    ("custom.toml", include_str!("../../profiles/custom.toml")),
];

/// The profile that takes any address.
pub const CUSTOM: &str = "custom";

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
    use crate::profile::KeyRule;

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
