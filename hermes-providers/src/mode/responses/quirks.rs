//! How a provider's Responses wire differs from its maker's, as data of a profile.

use serde::Deserialize;

/// What a provider's Responses wire takes. The defaults are those of the wire's maker.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResponsesQuirks {
    /// Models (parts of the lower-case name; an empty part means every model) that do not reason: they refuse
    /// `reasoning` and the wish for encrypted reasoning.
    pub plain_models: Vec<String>,
    /// Models (parts of the lower-case name) that speak chat completions only, also where a host would speak this wire.
    pub chat_models: Vec<String>,
    /// Whether encrypted reasoning may be asked for (`include`).
    pub encrypted_reasoning: bool,
    /// Whether a readable summary of the reasoning may be asked for.
    pub reasoning_summary: bool,
    /// Whether `max_output_tokens` may be sent.
    pub output_cap: bool,
    /// How long a prompt cache shall live (`prompt_cache_retention`), e.g. `24h`; unset sends nothing.
    pub cache_retention: Option<String>,
    /// Whether the result of a tool may hold pictures. Where not, they follow it as a message of the user.
    pub tool_images: bool,
}

impl Default for ResponsesQuirks {
    fn default() -> Self {
        Self {
            plain_models: Vec::new(),
            chat_models: Vec::new(),
            encrypted_reasoning: true,
            reasoning_summary: true,
            output_cap: true,
            cache_retention: None,
            tool_images: true,
        }
    }
}

impl ResponsesQuirks {
    /// Whether the model reasons, or may.
    pub(super) fn reasons(&self, model: &str) -> bool {
        !has_part(model, &self.plain_models)
    }

    /// Whether the model is one that speaks chat completions only.
    pub(crate) fn is_chat_model(&self, model: &str) -> bool {
        has_part(model, &self.chat_models)
    }
}

fn has_part(model: &str, parts: &[String]) -> bool {
    let model = model.to_lowercase();
    parts.iter().any(|part| model.contains(part.as_str()))
}
