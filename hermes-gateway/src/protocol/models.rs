//! What is asked of models, and what is told of them.

use serde::{Deserialize, Serialize};

pub use hermes_providers::catalogue::{
    Cost, Described, Fact, Hit, Modality, ModelFacts, Money, Price, Prices, Rates, Source, Tier,
};

/// Params of `model/search`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelSearchParams {
    /// Words that the name of a model or its provider must hold; none finds all.
    #[serde(default)]
    pub words: Vec<String>,
    /// Most models; 0 = 100.
    #[serde(default)]
    pub limit: usize,
}

/// Models that were found, in order of provider and name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelSearchResponse {
    /// At most as many as asked for.
    pub models: Vec<Hit>,
    /// How many there are.
    pub total: usize,
    /// The day on which the bundled catalogue was made, `2026-12-03`.
    pub checked: String,
}

/// Params of `model/show`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelShowParams {
    /// The model; none is the one in use.
    #[serde(default)]
    pub model: Option<String>,
    /// Where; none is the provider in use when it has the model, else one that has it.
    #[serde(default)]
    pub provider: Option<String>,
}

/// What is known of one model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelShowResponse {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Every fact with its source.
    pub known: Described,
    /// Other providers that have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_at: Vec<String>,
    /// The day on which the bundled catalogue was made.
    pub checked: String,
}

/// Params of `model/refresh`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelRefreshParams {
    /// Whose list; none is the provider's in use.
    #[serde(default)]
    pub provider: Option<String>,
}

/// A provider's list of models, after it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelRefreshResponse {
    /// The provider.
    pub provider: String,
    /// How many models it lists.
    pub models: usize,
    /// False when the provider said that nothing changed.
    pub changed: bool,
}
