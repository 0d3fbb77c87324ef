//! Prices of a model, and what a request costs.

use serde::{Deserialize, Serialize};

use crate::catalogue::{Money, Price};
use crate::chat::Usage;

/// What each kind of token costs. A rate that nobody named is `None`, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Input that no cache served.
    pub input: Price,
    /// Output, and reasoning where it has no rate of its own.
    pub output: Price,
    /// Input that a cache served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<Price>,
    /// Input that was written to a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Price>,
    /// Output spent on reasoning, where it costs something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Price>,
}

/// Rates for requests whose prompt is long. They hold for all tokens of such a request, the output among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// For prompts of more than so many tokens, cached ones counted.
    pub above: u64,
    /// What then holds.
    #[serde(flatten)]
    pub rates: Rates,
}

/// The prices of a model at one provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    /// For prompts that no tier is for.
    #[serde(flatten)]
    pub rates: Rates,
    /// For longer ones, in any order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
}

/// What a request cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status", content = "usd")]
#[non_exhaustive]
pub enum Cost {
    /// Computed from list prices; what the provider bills may differ (discounts, priority service, taxes).
    Estimated(Money),
    /// Not less than this: some of the prompts may have been long enough for higher rates.
    AtLeast(Money),
    /// Nothing is billed: the model runs on the user's own computer.
    Included,
    /// A price or a number of tokens is not known. It is not nothing.
    Unknown,
}

impl Cost {
    /// Two requests together: unknown as soon as one is.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Included, known) | (known, Self::Included) => known,
            (Self::Estimated(one), Self::Estimated(two)) => Self::Estimated(one.plus(two)),
            (Self::Estimated(one) | Self::AtLeast(one), Self::Estimated(two) | Self::AtLeast(two)) => {
                Self::AtLeast(one.plus(two))
            }
        }
    }
}

impl Prices {
    /// One price for prompts of every length.
    #[must_use]
    pub fn flat(rates: Rates) -> Self {
        Self { rates, tiers: Vec::new() }
    }

    /// The rates for a prompt of so many tokens.
    #[must_use]
    pub fn rates_for(&self, prompt_tokens: u64) -> &Rates {
        let reached = self.tiers.iter().filter(|tier| prompt_tokens > tier.above);
        reached.max_by_key(|tier| tier.above).map_or(&self.rates, |tier| &tier.rates)
    }

    /// What one request cost: the tier is chosen by its whole prompt. Unknown when the provider did not report the tokens,
    /// or when a kind of token that was used has no rate.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> Cost {
        let (Some(prompt), Some(_)) = (usage.input_total(), usage.output) else { return Cost::Unknown };
        charge(self.rates_for(prompt), usage)
    }

    /// What several requests cost of whose tokens only the sum is known. No prompt is longer than the sum, so that the sum
    /// of short ones has one rate; where a tier may have been reached, the lowest rates give the least that it cost.
    #[must_use]
    pub fn cost_of_sum(&self, usage: &Usage) -> Cost {
        let (Some(prompt), Some(_)) = (usage.input_total(), usage.output) else { return Cost::Unknown };
        match charge(&self.rates, usage) {
            Cost::Estimated(money) if self.tiers.iter().any(|tier| prompt > tier.above) => Cost::AtLeast(money),
            cost => cost,
        }
    }
}

fn charge(rates: &Rates, usage: &Usage) -> Cost {
    let output = usage.output.unwrap_or(0);
    // Reasoning is a part of the output.
    let reasoning = usage.reasoning.unwrap_or(0).min(output);
    let parts = [
        (usage.input_uncached.unwrap_or(0), Some(rates.input)),
        (usage.cache_read.unwrap_or(0), rates.cache_read),
        (usage.cache_write.unwrap_or(0), rates.cache_write),
        (output - reasoning, Some(rates.output)),
        (reasoning, rates.reasoning.or(Some(rates.output))),
    ];
    let mut sum = Money::default();
    for (tokens, price) in parts {
        match price {
            _ if tokens == 0 => {}
            Some(price) => sum = sum.plus(price.of(tokens)),
            None => return Cost::Unknown,
        }
    }
    Cost::Estimated(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(text: &str) -> Price {
        text.parse().unwrap()
    }

    fn rates(input: &str, output: &str, read: Option<&str>, write: Option<&str>) -> Rates {
        Rates {
            input: price(input),
            output: price(output),
            cache_read: read.map(price),
            cache_write: write.map(price),
            reasoning: None,
        }
    }

    fn usage(input: u64, read: u64, write: u64, output: u64, reasoning: u64) -> Usage {
        Usage {
            input_uncached: Some(input),
            cache_read: Some(read),
            cache_write: Some(write),
            output: Some(output),
            reasoning: Some(reasoning),
        }
    }

    fn shown(cost: Cost) -> String {
        match cost {
            Cost::Estimated(money) => money.to_string(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn every_kind_of_token_has_its_own_rate() {
        let prices = Prices::flat(rates("3", "15", Some("0.30"), Some("3.75")));
        assert_eq!(shown(prices.cost(&usage(1_000_000, 0, 0, 0, 0))), "$3.00");
        assert_eq!(shown(prices.cost(&usage(0, 1_000_000, 0, 0, 0))), "$0.30");
        assert_eq!(shown(prices.cost(&usage(0, 0, 1_000_000, 0, 0))), "$3.75");
        assert_eq!(shown(prices.cost(&usage(1000, 2000, 400, 300, 100))), "$0.0096");
        let thinking = Prices::flat(Rates { reasoning: Some(price("40")), ..rates("1", "4", None, None) });
        assert_eq!(shown(thinking.cost(&usage(0, 0, 0, 1_000_000, 500_000))), "$22.00");
        // More reasoning than output is a slip of the provider's; nothing is charged twice.
        assert_eq!(shown(thinking.cost(&usage(0, 0, 0, 1_000_000, 9_000_000))), "$40.00");
    }

    #[test]
    fn a_long_prompt_changes_the_rate_of_the_whole_request() {
        let long = Tier { above: 200_000, rates: rates("4", "18", Some("0.4"), None) };
        let longest = Tier { above: 500_000, rates: rates("8", "36", None, None) };
        let prices = Prices { rates: rates("2", "12", Some("0.2"), None), tiers: vec![longest, long] };
        assert_eq!(shown(prices.cost(&usage(100_000, 100_000, 0, 1000, 0))), "$0.232");
        assert_eq!(shown(prices.cost(&usage(100_001, 100_000, 0, 1000, 0))), "$0.458004");
        assert_eq!(shown(prices.cost(&usage(500_001, 0, 0, 0, 0))), "$4.000008");
        assert_eq!(prices.cost(&usage(500_000, 1, 0, 0, 0)), Cost::Unknown, "the tier names no rate for the cache");
    }

    #[test]
    fn what_is_not_known_is_unknown_and_not_nothing() {
        let prices = Prices::flat(rates("3", "15", None, None));
        assert_eq!(prices.cost(&usage(1, 1, 0, 1, 0)), Cost::Unknown);
        assert_eq!(prices.cost(&usage(1, 0, 1, 1, 0)), Cost::Unknown);
        assert_eq!(prices.cost(&Usage::default()), Cost::Unknown);
        assert_eq!(prices.cost(&Usage { input_uncached: Some(5), ..Usage::default() }), Cost::Unknown);
        assert_eq!(prices.cost(&Usage { output: Some(5), ..Usage::default() }), Cost::Unknown);
        assert!(matches!(prices.cost(&usage(0, 0, 0, 0, 0)), Cost::Estimated(money) if money == Money::default()));
    }

    #[test]
    fn of_a_sum_the_least_is_known_where_a_tier_may_have_been_reached() {
        let tier = Tier { above: 200_000, rates: rates("4", "18", None, None) };
        let prices = Prices { rates: rates("2", "12", None, None), tiers: vec![tier] };
        assert_eq!(shown(prices.cost_of_sum(&usage(200_000, 0, 0, 0, 0))), "$0.40");
        assert_eq!(prices.cost_of_sum(&usage(1_000_000, 0, 0, 0, 0)), Cost::AtLeast(price("2").of(1_000_000)));
        assert_eq!(prices.cost_of_sum(&usage(1, 1, 0, 0, 0)), Cost::Unknown);
        assert_eq!(
            shown(Prices::flat(rates("2", "12", None, None)).cost_of_sum(&usage(9_000_000, 0, 0, 0, 0))),
            "$18.00"
        );
    }

    #[test]
    fn costs_add_up_and_one_unknown_makes_the_sum_unknown() {
        let two = Cost::Estimated(price("2").of(1_000_000));
        assert_eq!(shown(two.plus(two)), "$4.00");
        assert_eq!(shown(two.plus(Cost::Included)), "$2.00");
        assert_eq!(two.plus(Cost::Unknown), Cost::Unknown);
        let least = Cost::AtLeast(price("1").of(1_000_000));
        assert_eq!(two.plus(least), Cost::AtLeast(price("3").of(1_000_000)));
        assert_eq!(Cost::Included.plus(least), least);
        assert_eq!(Cost::Included.plus(Cost::Included), Cost::Included);
        assert_eq!(serde_json::to_string(&two).unwrap(), r#"{"status":"estimated","usd":"2.00"}"#);
    }
}
