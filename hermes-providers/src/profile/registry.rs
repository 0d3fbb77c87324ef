//! All known providers, by every name that they answer to.

use std::collections::HashMap;
use std::sync::Arc;

use crate::profile::{KeyRule, Profile, ProfileError, Source};

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
    ("llama-server.toml", include_str!("../../profiles/llama-server.toml")),
    ("anthropic.toml", include_str!("../../profiles/anthropic.toml")),
    ("bedrock.toml", include_str!("../../profiles/bedrock.toml")),
    ("gemini.toml", include_str!("../../profiles/gemini.toml")),
    ("vertex-express.toml", include_str!("../../profiles/vertex-express.toml")),
    ("vertex.toml", include_str!("../../profiles/vertex.toml")),
    ("minimax.toml", include_str!("../../profiles/minimax.toml")),
    ("minimax-cn.toml", include_str!("../../profiles/minimax-cn.toml")),
    ("actual.toml", include_str!("../../profiles/actual.toml")),
    ("ai-gateway.toml", include_str!("../../profiles/ai-gateway.toml")),
    ("alibaba-cn.toml", include_str!("../../profiles/alibaba-cn.toml")),
    ("alibaba-coding-plan-cn.toml", include_str!("../../profiles/alibaba-coding-plan-cn.toml")),
    ("alibaba-coding-plan.toml", include_str!("../../profiles/alibaba-coding-plan.toml")),
    ("alibaba-token-plan-cn.toml", include_str!("../../profiles/alibaba-token-plan-cn.toml")),
    ("alibaba-token-plan.toml", include_str!("../../profiles/alibaba-token-plan.toml")),
    ("alibaba.toml", include_str!("../../profiles/alibaba.toml")),
    ("arcee.toml", include_str!("../../profiles/arcee.toml")),
    ("azure-foundry.toml", include_str!("../../profiles/azure-foundry.toml")),
    ("commandcode-anthropic.toml", include_str!("../../profiles/commandcode-anthropic.toml")),
    ("commandcode.toml", include_str!("../../profiles/commandcode.toml")),
    ("deepinfra.toml", include_str!("../../profiles/deepinfra.toml")),
    ("fireworks.toml", include_str!("../../profiles/fireworks.toml")),
    ("gmi.toml", include_str!("../../profiles/gmi.toml")),
    ("huggingface.toml", include_str!("../../profiles/huggingface.toml")),
    ("kilocode.toml", include_str!("../../profiles/kilocode.toml")),
    ("kimi-code.toml", include_str!("../../profiles/kimi-code.toml")),
    ("kimi-coding-cn.toml", include_str!("../../profiles/kimi-coding-cn.toml")),
    ("kimi-coding.toml", include_str!("../../profiles/kimi-coding.toml")),
    ("meta-ai.toml", include_str!("../../profiles/meta-ai.toml")),
    ("nebius-token-factory.toml", include_str!("../../profiles/nebius-token-factory.toml")),
    ("novita.toml", include_str!("../../profiles/novita.toml")),
    ("nvidia.toml", include_str!("../../profiles/nvidia.toml")),
    ("ollama-cloud.toml", include_str!("../../profiles/ollama-cloud.toml")),
    ("opencode-go.toml", include_str!("../../profiles/opencode-go.toml")),
    ("opencode-zen.toml", include_str!("../../profiles/opencode-zen.toml")),
    ("router.toml", include_str!("../../profiles/router.toml")),
    ("stepfun.toml", include_str!("../../profiles/stepfun.toml")),
    ("tencent-tokenhub.toml", include_str!("../../profiles/tencent-tokenhub.toml")),
    ("tencent-tokenplan.toml", include_str!("../../profiles/tencent-tokenplan.toml")),
    ("upstage.toml", include_str!("../../profiles/upstage.toml")),
    ("xai.toml", include_str!("../../profiles/xai.toml")),
    ("xiaomi.toml", include_str!("../../profiles/xiaomi.toml")),
    ("zai.toml", include_str!("../../profiles/zai.toml")),
    ("custom.toml", include_str!("../../profiles/custom.toml")),
];

/// The profile that takes any address.
pub const CUSTOM: &str = "custom";

/// All known providers, in order of the registry; those of the user come first.
#[derive(Debug, Clone, Default)]
pub struct Profiles {
    list: Vec<Arc<Profile>>,
    names: HashMap<String, usize>,
    /// Bundled ones that one of the user's stands in for.
    hidden: Vec<Arc<Profile>>,
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
        let mut all = Self::default();
        for (file, text) in files {
            all.add(profile(file, text)?)?;
        }
        Ok(all)
    }

    /// These profiles with the user's over them. One of the user's hides the bundled one of the same id, and its names win
    /// over bundled names. A file that cannot be used is left out and told; the others stay.
    ///
    /// The order of discovery is: bundled, then the home; later wins. There are no further layers in this program, because
    /// data needs no packages.
    #[must_use]
    pub fn with_home<'a>(self, files: impl IntoIterator<Item = (&'a str, &'a str)>) -> (Self, Vec<ProfileError>) {
        let (mut home, mut errors) = (Self::default(), Vec::new());
        for (file, text) in files {
            let added = profile(file, text).and_then(|found| {
                let source = Source::File(file.to_owned());
                home.add(Profile { source, ..found })
            });
            errors.extend(added.err());
        }
        for profile in self.list {
            if home.list.iter().any(|own| own.id.eq_ignore_ascii_case(&profile.id)) {
                home.hidden.push(profile);
                continue;
            }
            let at = home.list.len();
            for name in names(&profile) {
                home.names.entry(name).or_insert(at);
            }
            home.list.push(profile);
        }
        (home, errors)
    }

    /// All names or none: a profile that clashes changes nothing.
    fn add(&mut self, profile: Profile) -> Result<(), ProfileError> {
        let at = self.list.len();
        let mut own: Vec<String> = Vec::new();
        for name in std::iter::once(&profile.id).chain(&profile.aliases) {
            let lower = name.to_lowercase();
            let other = self.names.get(&lower).and_then(|first| self.list.get(*first)).map(|first| first.id.clone());
            let first = other.or_else(|| own.contains(&lower).then(|| profile.id.clone()));
            if let Some(first) = first {
                return Err(ProfileError::Clash { name: name.clone(), first, second: profile.id });
            }
            own.push(lower);
        }
        self.names.extend(own.into_iter().map(|name| (name, at)));
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

    /// The bundled profile that one of the user's stands in for.
    #[must_use]
    pub fn hidden(&self, id: &str) -> Option<&Arc<Profile>> {
        self.hidden.iter().find(|profile| profile.id.eq_ignore_ascii_case(id))
    }

    /// Every profile, in order of the registry.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.list.iter()
    }
}

fn names(profile: &Profile) -> Vec<String> {
    std::iter::once(&profile.id).chain(&profile.aliases).map(|name| name.to_lowercase()).collect()
}

/// One profile from its file.
fn profile(file: &str, text: &str) -> Result<Profile, ProfileError> {
    let wrong = |line: usize, message: String| ProfileError::Parse { file: file.to_owned(), line, message };
    let profile: Profile = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        wrong(before.matches('\n').count() + 1, error.message().to_owned())
    })?;
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
    let line_of = |key: &str| text.lines().position(|line| line.trim_start().starts_with(key)).map_or(1, |at| at + 1);
    if let Some(name) = std::iter::once(&profile.id).chain(&profile.aliases).find(|name| !is_name(name)) {
        let line = line_of(if *name == profile.id { "id" } else { "aliases" });
        return Err(wrong(
            line,
            format!("`{name}` is no name: letters, digits and signs without blanks and colons are"),
        ));
    }
    let url = &profile.base_url;
    if !(url.is_empty() || url.starts_with("https://") || url.starts_with("http://")) {
        return Err(wrong(line_of("base_url"), "`base_url` must begin with https:// or http://".to_owned()));
    }
    if url.ends_with('/') {
        return Err(wrong(line_of("base_url"), "`base_url` must not end with a slash".to_owned()));
    }
    #[cfg(feature = "http")]
    if profile.external_login.is_some() && profile.service_account.is_some() {
        let message = "`external_login` and `service_account` are two answers to one question".to_owned();
        return Err(wrong(line_of("[external_login]"), message));
    }
    if profile.key == KeyRule::Required && profile.env_keys.is_empty() {
        let message = "`env_keys` names no variable, but a key is required".to_owned();
        return Err(wrong(line_of("key"), message));
    }
    Ok(profile)
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
            assert!(url.is_empty() || url.starts_with("https://") || profile.local, "{}", profile.id);
            assert!(!url.ends_with('/'), "{}", profile.id);
            assert!(profile.key == KeyRule::Optional || !profile.env_keys.is_empty(), "{}", profile.id);
            assert!(!url.is_empty() || profile.base_url_env.is_some() || profile.managed, "{}", profile.id);
            assert!(!profile.managed || (profile.local && url.is_empty()), "{}", profile.id);
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
        assert!(error.starts_with("a.toml:7: ") && error.contains("tyop"), "{error}");
    }

    #[test]
    fn b38_the_home_wins_over_the_bundle_by_id_and_by_alias() {
        let mine = "id='deepseek'\naliases=['or']\nname='Mine'\napi_mode='chat_completions'\n\
                    base_url='http://127.0.0.1:1/v1'\nkey='optional'\n";
        let (all, errors) = Profiles::bundled().unwrap().with_home([("/h/model-providers/a.toml", mine)]);
        assert_eq!(errors, []);
        assert_eq!(all.get("deepseek").unwrap().name, "Mine");
        assert_eq!(all.get("or").unwrap().name, "Mine", "its aliases win too");
        assert_eq!(all.get("openrouter").unwrap().source, Source::Bundled);
        assert_eq!(all.get("DeepSeek").unwrap().source.to_string(), "/h/model-providers/a.toml");
        assert_eq!(all.hidden("deepseek").unwrap().name, "DeepSeek");
        assert_eq!(all.iter().filter(|profile| profile.id == "deepseek").count(), 1);
        assert_eq!(all.iter().count(), BUNDLED.len());
    }

    #[test]
    fn a_bad_file_of_the_user_is_told_and_stops_nobody_else() {
        let (good, clash) = (toml_of("good", "g"), toml_of("third", "G"));
        let bad = "id = 'bad'\nname = 3\n";
        let slash = toml_of("slash", "s").replace("base_url=''", "base_url='https://x.example/v1/'");
        let files = [("good.toml", good.as_str()), ("bad.toml", bad), ("third.toml", &clash), ("slash.toml", &slash)];
        let (all, errors) = Profiles::bundled().unwrap().with_home(files);
        let told: Vec<String> = errors.iter().map(|error| format!("{} {error}", error.code())).collect();
        assert!(told[0].starts_with("HM2040 bad.toml:2: "), "{told:?}");
        assert!(told[1].starts_with("HM2041 the provider name `G` is claimed by both `good` and `third`"), "{told:?}");
        assert!(told[2].starts_with("HM2040 slash.toml:5: "), "{told:?}");
        assert_eq!(told.len(), 3);
        assert_eq!(all.get("g").unwrap().id, "good");
        assert!(all.get("third").is_none() && all.get("openai").is_some());
    }
}
