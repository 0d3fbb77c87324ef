//! `fallback_providers`: the models that stand in, in their order, for a chosen one that gives no answer.

use std::path::Path;

use secrecy::SecretString;
use serde_json::{Value, json};

use super::error::ConfigError;
use super::settings::MASK;
use super::values::View;

/// The most models that may stand in. Each is asked once between two answers: a longer list is a wait without an end.
const FALLBACKS_MAX: usize = 16;

/// One entry of `fallback_providers`.
#[derive(Debug, Clone, Default)]
pub struct FallbackConfig {
    /// Provider id; `None` when only an address is given.
    pub provider: Option<String>,
    /// Model name as the provider knows it; `None` for the provider's own default.
    pub model: Option<String>,
    /// Where requests go, without a trailing slash.
    pub base_url: Option<String>,
    /// The key itself. May be `${NAME}`, which stands for that variable.
    pub api_key: Option<SecretString>,
    /// Name of the variable that holds the key.
    pub key_env: Option<String>,
    /// The wire, e.g. `chat_completions`.
    pub api_mode: Option<String>,
    /// Context window in tokens.
    pub context_length: Option<u64>,
    /// The line of `config.yaml` at which the entry begins, from 1.
    pub line: usize,
}

impl FallbackConfig {
    /// As it stands in the file, without its key.
    pub(super) fn shown(&self) -> Value {
        let mut shown = serde_json::Map::new();
        let texts = [
            ("provider", &self.provider),
            ("model", &self.model),
            ("base_url", &self.base_url),
            ("key_env", &self.key_env),
            ("api_mode", &self.api_mode),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                shown.insert(name.to_owned(), json!(value));
            }
        }
        if self.api_key.is_some() {
            shown.insert("api_key".to_owned(), json!(MASK));
        }
        if let Some(length) = self.context_length {
            shown.insert("context_length".to_owned(), json!(length));
        }
        Value::Object(shown)
    }

    /// Where the entry is, for people.
    #[must_use]
    pub fn place(&self, file: &Path) -> String {
        format!("fallback_providers in {}, line {}", file.display(), self.line)
    }
}

pub(super) fn fallbacks(root: &View<'_>) -> Result<Vec<FallbackConfig>, ConfigError> {
    let wanted = "a list of models, for example `[{provider: openrouter, model: NAME}]`";
    let entries = root.key("fallback_providers").mappings(FALLBACKS_MAX, wanted)?;
    entries.iter().map(entry).collect()
}

fn entry(view: &View<'_>) -> Result<FallbackConfig, ConfigError> {
    let either = |names: [&str; 2], wanted: &str| -> Result<Option<String>, ConfigError> {
        match view.key(names[0]).text(wanted)? {
            Some(text) => Ok(Some(text)),
            None => view.key(names[1]).text(wanted),
        }
    };
    let url = view.key("base_url").text("an address, for example `http://127.0.0.1:8080/v1`")?;
    let found = FallbackConfig {
        provider: view.key("provider").text("a provider's name, for example `openrouter`")?,
        model: view.key("model").text("a model name, for example `gpt-5`")?,
        base_url: url.map(|url| url.trim_end_matches('/').to_owned()),
        api_key: view.key("api_key").secret()?,
        key_env: either(["key_env", "api_key_env"], "the name of a variable, for example `MY_API_KEY`")?,
        api_mode: either(["api_mode", "transport"], "the name of a wire, for example `chat_completions`")?,
        context_length: view.key("context_length").limit("a number of tokens, for example 128000")?,
        line: view.line(),
    };
    if found.provider.is_none() && found.base_url.is_none() {
        return Err(
            view.refused("`provider: NAME`, or `base_url: ADDRESS` for a server of your own, and `model: NAME`")
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn read(text: &str) -> Result<Vec<FallbackConfig>, String> {
        Config::parse(Path::new("/h/config.yaml"), text).map(|config| config.fallbacks).map_err(|e| e.to_string())
    }

    #[test]
    fn entries_are_read_in_their_order_with_their_lines() {
        let text = "model: m\nfallback_providers:\n  - provider: groq\n    model: small\n  - base_url: http://127.0.0.1:9/v1/\n    model: own\n    api_key_env: MY_KEY\n    context_length: 8192\n  -\n";
        let found = read(text).unwrap();
        assert_eq!(found.len(), 2, "an empty entry says nothing");
        assert_eq!(
            (found[0].provider.as_deref(), found[0].model.as_deref(), found[0].line),
            (Some("groq"), Some("small"), 3)
        );
        assert_eq!(found[1].base_url.as_deref(), Some("http://127.0.0.1:9/v1"));
        assert_eq!(
            (found[1].key_env.as_deref(), found[1].context_length, found[1].line),
            (Some("MY_KEY"), Some(8192), 5)
        );
        // One mapping is a list of one; nothing is none.
        assert_eq!(read("fallback_providers: {provider: groq, model: x}").unwrap().len(), 1);
        for none in ["fallback_providers:", "fallback_providers: []", ""] {
            assert!(read(none).unwrap().is_empty(), "{none:?}");
        }
    }

    #[test]
    fn i27_a_broken_entry_names_the_file_the_line_and_what_to_write() {
        for (text, line, wanted) in [
            ("model: m\nfallback_providers: groq\n", 2, "[{provider: openrouter"),
            ("fallback_providers:\n  - provider: groq\n  - groq\n", 3, "[{provider: openrouter"),
            ("fallback_providers:\n  - provider: groq\n  - model: m\n", 3, "`provider: NAME`"),
            ("fallback_providers:\n  - provider: [groq]\n", 2, "a provider's name"),
            ("fallback_providers:\n  - provider: groq\n    context_length: much\n", 3, "a number of tokens"),
        ] {
            let told = read(text).unwrap_err();
            assert!(told.contains(&format!("/h/config.yaml:{line}: ")), "{text:?}: {told}");
            assert!(told.contains(wanted), "{text:?}: {told}");
        }
        let many = format!("fallback_providers: [{}]", "{provider: groq}, ".repeat(FALLBACKS_MAX + 1));
        assert!(read(&many).unwrap_err().contains("at most 16"), "{}", read(&many).unwrap_err());
    }

    #[test]
    fn i24_a_key_is_shown_nowhere() {
        let text = "fallback_providers:\n  - {provider: groq, model: m, api_key: sk-secret}\n";
        let config = Config::parse(Path::new("/h/config.yaml"), text).unwrap();
        let said = format!("{config:?}{:?}{:?}", config.show(), config.get("fallback_providers"));
        assert!(said.contains(MASK) && !said.contains("sk-secret"), "{said}");
        let told = read("fallback_providers: [sk-secret]").unwrap_err();
        assert!(!told.contains("sk-secret"), "{told}");
    }
}
