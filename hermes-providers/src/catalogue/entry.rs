//! What is known of one model, and from where.

use serde::{Deserialize, Serialize};

use crate::catalogue::Prices;

/// What a model reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Modality {
    /// Text.
    Text,
    /// Pictures.
    Image,
    /// Sound.
    Audio,
    /// Moving pictures.
    Video,
    /// PDF documents.
    Pdf,
}

impl Modality {
    /// From the word that lists use (`image`, `file`, ...); `None` for one that says nothing here.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "text" => Self::Text,
            "image" => Self::Image,
            "audio" => Self::Audio,
            "video" => Self::Video,
            "pdf" | "file" => Self::Pdf,
            _ => return None,
        })
    }

    /// The word for people and files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
            Self::Pdf => "pdf",
        }
    }
}

/// What one source says of one model. What it does not say is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelFacts {
    /// Most tokens of input and output together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Most tokens of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// What it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Vec<Modality>>,
    /// Whether it can reason before it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<bool>,
    /// Whether it can call tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// What it costs here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
}

/// Who says so, in the order in which they are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// The user's configuration.
    Config,
    /// The provider's own list of models.
    Provider,
    /// The bundled snapshot.
    Snapshot,
    /// What is usual in the model's family.
    Family,
}

impl Source {
    /// For people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "configuration",
            Self::Provider => "provider's list",
            Self::Snapshot => "bundled catalogue",
            Self::Family => "usual in its family",
        }
    }
}

/// One fact and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact<T> {
    /// What is so.
    pub value: T,
    /// Who says it.
    pub source: Source,
}
