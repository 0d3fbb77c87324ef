//! Wires, and how a key travels.

use serde::Deserialize;

/// What the Python program calls the Responses wire.
const OLD_RESPONSES: &str = "codex_responses";

/// The wire that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ApiMode {
    /// `POST /chat/completions`.
    ChatCompletions,
    /// `POST /responses`.
    #[serde(alias = "codex_responses")]
    Responses,
    /// `POST /v1/messages`.
    AnthropicMessages,
    /// `POST /model/{model}/converse-stream`.
    BedrockConverse,
    /// `POST models/{model}:streamGenerateContent`.
    Gemini,
}

impl ApiMode {
    /// Every wire, for tests that hold for all of them.
    pub const ALL: &[Self] =
        &[Self::ChatCompletions, Self::Responses, Self::AnthropicMessages, Self::BedrockConverse, Self::Gemini];

    /// The wire of this name, as profiles and configurations write it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = if name == OLD_RESPONSES { Self::Responses.as_str() } else { name };
        Self::ALL.iter().copied().find(|mode| mode.as_str() == name)
    }

    /// The name that profiles and [`ModelInfo`](crate::ModelInfo) use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
            Self::AnthropicMessages => "anthropic_messages",
            Self::BedrockConverse => "bedrock_converse",
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
