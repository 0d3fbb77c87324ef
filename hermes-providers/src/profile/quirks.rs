//! How the wire of one provider differs from the plain one, as data.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::mode::anthropic_messages::MessagesQuirks;
use crate::mode::bedrock_converse::ConverseQuirks;
use crate::mode::effort::Ladder;
use crate::mode::gemini::GeminiQuirks;
use crate::mode::responses::ResponsesQuirks;
use crate::schema::SchemaDialect;

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
    /// Efforts of models that know other ones; the first that names the model counts.
    pub ladders: Vec<Ladder>,
    /// Efforts that have another name here.
    pub effort_map: BTreeMap<String, String>,
    /// Accepted ids of calls.
    pub tool_ids: ToolIds,
    /// The role of the system prompt.
    pub system_role: SystemRole,
    /// Models (beginnings of the name) that refuse a temperature.
    pub no_temperature_models: Vec<String>,
    /// Models (beginnings of the name; an empty one means every model) that cannot see: pictures become words.
    pub blind_models: Vec<String>,
    /// Whether this model cannot see, by the configuration or the catalogue. Not of a profile.
    #[serde(skip)]
    pub is_blind: bool,
    /// Whether `prompt_cache_key` may be sent.
    pub prompt_cache_key: bool,
    /// How schemas of tools are written; unset: as the wire's maker documents.
    pub schema: Option<SchemaDialect>,
    /// Whether the provider passes requests on to others, so that a 429 may not be about our key.
    pub aggregator: bool,
    /// For the wire of `anthropic_messages`.
    pub messages: MessagesQuirks,
    /// For the wire of `responses`.
    pub responses: ResponsesQuirks,
    /// For the wire of `bedrock_converse`.
    pub converse: ConverseQuirks,
    /// For the wire of `gemini`.
    pub gemini: GeminiQuirks,
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
            ladders: Vec::new(),
            effort_map: BTreeMap::new(),
            tool_ids: ToolIds::default(),
            system_role: SystemRole::default(),
            no_temperature_models: Vec::new(),
            blind_models: Vec::new(),
            is_blind: false,
            prompt_cache_key: false,
            schema: None,
            aggregator: false,
            messages: MessagesQuirks::default(),
            responses: ResponsesQuirks::default(),
            converse: ConverseQuirks::default(),
            gemini: GeminiQuirks::default(),
        }
    }
}
