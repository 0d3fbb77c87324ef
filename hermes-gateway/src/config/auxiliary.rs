//! `auxiliary`: tasks beside the turn, and their models.

use std::time::Duration;

use secrecy::SecretString;

use super::error::ConfigError;
use super::values::View;

/// `auxiliary.TASK`: the model of one task. A part that is left out is the chosen model's, but for a key: that goes with
/// its own server only.
#[derive(Debug, Clone, Default)]
pub struct TaskModel {
    /// Provider id; `None` when unset, `auto` or `main`.
    pub provider: Option<String>,
    /// Model name as the provider knows it.
    pub model: Option<String>,
    /// Where requests go, without a trailing slash.
    pub base_url: Option<String>,
    /// The key itself. May be `${NAME}`, which stands for that variable.
    pub api_key: Option<SecretString>,
    /// How long an answer is waited for, retries among it; `None` = as long as is usual for the task.
    pub timeout: Option<Duration>,
}

impl TaskModel {
    /// Whether it names a model, a place or a key at all.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.provider.is_some() || self.model.is_some() || self.base_url.is_some() || self.api_key.is_some()
    }
}

/// `auxiliary`.
#[derive(Debug, Clone)]
pub struct AuxiliaryConfig {
    /// `auxiliary.title_generation.enabled`: whether conversations get titles.
    pub titles: bool,
    /// `auxiliary.title_generation`.
    pub title: TaskModel,
    /// `auxiliary.compression`.
    pub compression: TaskModel,
    /// `auxiliary.approval`: who judges dangerous commands before a person is asked.
    pub approval: TaskModel,
}

pub(super) fn auxiliary(root: &View<'_>) -> Result<AuxiliaryConfig, ConfigError> {
    let view = root.section("auxiliary")?;
    let title = view.section("title_generation")?;
    let words = [("true", true), ("yes", true), ("on", true), ("false", false), ("no", false), ("off", false)];
    Ok(AuxiliaryConfig {
        titles: title.key("enabled").word(&words, "`true` or `false`")?.unwrap_or(true),
        title: task_model(&title)?,
        compression: task_model(&view.section("compression")?)?,
        approval: task_model(&view.section("approval")?)?,
    })
}

fn task_model(view: &View<'_>) -> Result<TaskModel, ConfigError> {
    let provider = view.key("provider").text("a provider's name, for example `openrouter`")?;
    let model = view.key("model").text("a model name, for example `gpt-5-mini`")?;
    let base_url = view.key("base_url").text("an address, for example `http://127.0.0.1:8080/v1`")?;
    let timeout = view.key("timeout").seconds("a number of seconds, for example 30")?;
    // The words with which the Python program says that there is none.
    let is_none = |name: &String| matches!(name.to_ascii_lowercase().as_str(), "" | "auto" | "main");
    Ok(TaskModel {
        provider: provider.filter(|name| !is_none(name)),
        model: model.filter(|name| !name.is_empty()),
        base_url: base_url.map(|url| url.trim_end_matches('/').to_owned()).filter(|url| !url.is_empty()),
        api_key: view.key("api_key").secret()?,
        // No time at all would be no task.
        timeout: timeout.filter(|timeout| !timeout.is_zero()),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Config, MASK};
    use super::*;

    #[test]
    fn each_task_has_its_own_place_key_and_time() {
        let text = "auxiliary:\n  approval: {base_url: 'http://127.0.0.1:9/v1/', model: small, api_key: sk-one, timeout: 2.5}\n  compression: {provider: main, timeout: 0}\n";
        let config = Config::parse(Path::new("/h/config.yaml"), text).unwrap().auxiliary;
        let task = &config.approval;
        assert_eq!((task.base_url.as_deref(), task.model.as_deref()), (Some("http://127.0.0.1:9/v1"), Some("small")));
        assert_eq!(task.timeout, Some(Duration::from_millis(2_500)));
        assert!(task.is_named() && task.api_key.is_some());
        assert!(!config.compression.is_named() && config.compression.timeout.is_none());
        assert!(!config.title.is_named() && config.titles);
    }

    #[test]
    fn i24_a_task_s_key_is_shown_nowhere() {
        let text = "auxiliary:\n  approval: {api_key: sk-secret}\n";
        let config = Config::parse(Path::new("/h/config.yaml"), text).unwrap();
        let said = format!("{config:?}{:?}{:?}", config.show(), config.get("auxiliary.approval.api_key"));
        assert!(said.contains(MASK) && !said.contains("sk-secret"), "{said}");
        for wrong in ["auxiliary: {approval: {api_key: [sk-secret]}}", "auxiliary: {approval: {timeout: sk-secret}}"] {
            let told = Config::parse(Path::new("/h/config.yaml"), wrong).unwrap_err().to_string();
            assert!(!told.contains("[sk-secret"), "{told}");
        }
    }
}
