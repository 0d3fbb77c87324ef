//! `auxiliary`: tasks beside the turn, and their models.

use super::error::ConfigError;
use super::values::View;

/// `auxiliary.TASK`: the model of one task. A part that is left out is the chosen model's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskModel {
    /// Provider id; `None` when unset, `auto` or `main`.
    pub provider: Option<String>,
    /// Model name as the provider knows it.
    pub model: Option<String>,
}

impl TaskModel {
    /// Whether it names anything at all.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.provider.is_some() || self.model.is_some()
    }
}

/// `auxiliary`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuxiliaryConfig {
    /// `auxiliary.title_generation.enabled`: whether conversations get titles.
    pub titles: bool,
    /// `auxiliary.title_generation`.
    pub title: TaskModel,
    /// `auxiliary.compression`.
    pub compression: TaskModel,
}

pub(super) fn auxiliary(root: &View<'_>) -> Result<AuxiliaryConfig, ConfigError> {
    let view = root.section("auxiliary")?;
    let title = view.section("title_generation")?;
    let words = [("true", true), ("yes", true), ("on", true), ("false", false), ("no", false), ("off", false)];
    Ok(AuxiliaryConfig {
        titles: title.key("enabled").word(&words, "`true` or `false`")?.unwrap_or(true),
        title: task_model(&title)?,
        compression: task_model(&view.section("compression")?)?,
    })
}

fn task_model(view: &View<'_>) -> Result<TaskModel, ConfigError> {
    let provider = view.key("provider").text("a provider's name, for example `openrouter`")?;
    let model = view.key("model").text("a model name, for example `gpt-5-mini`")?;
    // The words with which the Python program says that there is none.
    let is_none = |name: &String| matches!(name.to_ascii_lowercase().as_str(), "" | "auto" | "main");
    Ok(TaskModel { provider: provider.filter(|name| !is_none(name)), model: model.filter(|name| !name.is_empty()) })
}
