//! The bundled snapshot: `data/models.toml`.

use serde::Deserialize;

use crate::catalogue::{Modality, ModelFacts, Prices};

static TEXT: &str = include_str!("../../data/models.toml");

/// The snapshot's file is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model snapshot cannot be read: {0}")]
pub struct SnapshotError(pub String);

/// Everything that is bundled.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Snapshot {
    /// The day on which the pages were read, `2026-12-03`.
    pub checked: String,
    /// Whose models.
    #[serde(default, rename = "maker")]
    pub makers: Vec<Maker>,
    /// What is usual where a model is not listed.
    #[serde(default, rename = "family")]
    pub families: Vec<Family>,
}

/// Models that one maker serves, or that one host serves of others.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Maker {
    /// Its id, for messages.
    #[cfg_attr(not(test), expect(dead_code, reason = "names the section for people and in tests"))]
    pub id: String,
    /// The page with the numbers.
    pub page: String,
    /// The providers whose prices these are.
    pub providers: Vec<String>,
    /// True for a host: its facts hold at these providers only.
    #[serde(default)]
    pub host: bool,
    /// The models.
    pub models: Vec<Entry>,
}

/// One model of a maker.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    /// Its name at the maker.
    pub id: String,
    /// Other names for the same model.
    #[serde(default)]
    pub also: Vec<String>,
    /// Tokens.
    pub window: Option<u64>,
    /// Tokens.
    pub output: Option<u64>,
    /// What it reads.
    pub reads: Option<Vec<Modality>>,
    /// Whether it can reason.
    pub reasoning: Option<bool>,
    /// Whether it can call tools; almost all can, so that only "no" is written.
    #[serde(default = "yes")]
    pub tools: bool,
    /// Dollars for a million tokens.
    pub price: Option<Prices>,
}

fn yes() -> bool {
    true
}

/// What is usual of models whose names begin alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Family {
    /// The beginning.
    pub prefix: String,
    /// Tokens.
    pub window: Option<u64>,
    /// Tokens.
    pub output: Option<u64>,
    /// What they read.
    pub reads: Option<Vec<Modality>>,
    /// Whether they can reason.
    pub reasoning: Option<bool>,
    /// Whether they can call tools.
    pub tools: Option<bool>,
}

impl Snapshot {
    /// The one in this program.
    /// A broken file would fail a test and is no reason to stop a program.
    pub(super) fn bundled() -> Self {
        Self::parse(TEXT).unwrap_or_default()
    }

    pub(super) fn parse(text: &str) -> Result<Self, SnapshotError> {
        toml::from_str(text).map_err(|error| SnapshotError(error.to_string()))
    }
}

impl Entry {
    pub(super) fn facts(&self) -> ModelFacts {
        ModelFacts {
            context_window: self.window,
            max_output_tokens: self.output,
            inputs: self.reads.clone(),
            reasoning: self.reasoning,
            tools: Some(self.tools),
            prices: self.price.clone(),
        }
    }
}

impl Family {
    pub(super) fn facts(&self) -> ModelFacts {
        ModelFacts {
            context_window: self.window,
            max_output_tokens: self.output,
            inputs: self.reads.clone(),
            reasoning: self.reasoning,
            tools: self.tools,
            prices: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::Profiles;
    use crate::catalogue::names::key;

    fn snapshot() -> Snapshot {
        Snapshot::parse(TEXT).unwrap()
    }

    #[test]
    fn no_two_models_of_one_place_have_the_same_name() {
        let mut owners = HashMap::new();
        for maker in &snapshot().makers {
            let place = if maker.host { maker.id.clone() } else { String::new() };
            for entry in &maker.models {
                for name in std::iter::once(&entry.id).chain(&entry.also) {
                    let before = owners.insert((place.clone(), key(name)), format!("{}/{}", maker.id, entry.id));
                    assert_eq!(before, None, "{} has the name {name} too", entry.id);
                }
            }
        }
        assert!(owners.len() > 150, "{}", owners.len());
    }

    #[test]
    fn the_numbers_are_plausible() {
        for maker in &snapshot().makers {
            assert!(!maker.page.is_empty() && !maker.models.is_empty(), "{}", maker.id);
            for entry in &maker.models {
                let window = entry.window.unwrap_or(4096);
                assert!((2048..=10_000_000).contains(&window), "{}", entry.id);
                assert!(entry.output.is_none_or(|output| output <= window), "{}", entry.id);
                assert!(entry.reads.as_ref().is_none_or(|reads| reads.contains(&Modality::Text)), "{}", entry.id);
                let Some(prices) = &entry.price else { continue };
                let mut last = prices.rates;
                for tier in &prices.tiers {
                    assert!(tier.above < window, "{}: no prompt reaches this tier", entry.id);
                    assert!(tier.rates.input >= last.input && tier.rates.output >= last.output, "{}", entry.id);
                    assert_eq!(tier.rates.cache_read.is_some(), last.cache_read.is_some(), "{}", entry.id);
                    assert_eq!(tier.rates.cache_write.is_some(), last.cache_write.is_some(), "{}", entry.id);
                    last = tier.rates;
                }
                let rates = prices.rates;
                assert!(rates.output >= rates.input, "{}: output cheaper than input", entry.id);
                assert!(rates.cache_read.is_none_or(|read| read <= rates.input), "{}: dear cache", entry.id);
            }
        }
    }

    /// The maker counts written tokens apart, for all of its models (its client for Python wants the count in every answer).
    #[test]
    fn what_openai_writes_to_a_cache_has_a_price_wherever_reading_has_one() {
        use crate::catalogue::Cost;
        use crate::chat::Usage;

        let usage = Usage { input_uncached: Some(10), cache_write: Some(1_000), output: Some(1), ..Usage::default() };
        let snapshot = snapshot();
        let openai = snapshot.makers.iter().find(|maker| maker.id == "openai").unwrap();
        let mut priced = 0;
        for entry in &openai.models {
            let Some(prices) = entry.price.as_ref().filter(|prices| prices.rates.cache_read.is_some()) else {
                continue;
            };
            assert!(matches!(prices.cost(&usage), Cost::Estimated(_)), "{}", entry.id);
            assert!(prices.tiers.iter().all(|tier| tier.rates.cache_write.is_some()), "{}", entry.id);
            priced += 1;
        }
        assert!(priced > 20, "{priced}");
    }

    #[test]
    fn every_maker_is_reached_by_a_known_provider_or_only_by_its_models_names() {
        let profiles = Profiles::bundled().unwrap();
        for maker in snapshot().makers.iter().filter(|maker| maker.host) {
            assert!(maker.providers.iter().any(|id| profiles.get(id).is_some()), "{}", maker.id);
        }
        let main = snapshot().makers;
        for id in ["openai", "anthropic", "deepseek", "mistral", "minimax"] {
            assert!(main.iter().any(|maker| maker.providers.iter().any(|provider| provider == id)), "{id}");
        }
    }

    #[test]
    fn families_are_told_apart_by_their_beginning() {
        let mut prefixes: Vec<String> = snapshot().families.iter().map(|family| family.prefix.clone()).collect();
        let count = prefixes.len();
        assert!(prefixes.iter().all(|prefix| *prefix == key(prefix)));
        prefixes.sort();
        prefixes.dedup();
        assert_eq!(prefixes.len(), count);
    }
}
