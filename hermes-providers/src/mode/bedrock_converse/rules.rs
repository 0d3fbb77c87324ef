//! What the models behind this wire accept, as data of a profile.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::mode::anthropic_messages::{MIN_BUDGET_TOKENS, weaker_or_same};

/// How a model is told to think, in `additionalModelRequestFields`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConverseThinking {
    /// Not at all: nothing is sent.
    #[default]
    None,
    /// `thinking` with a budget for each effort (Claude before 4.6).
    Budget,
    /// `thinking` adaptive and `output_config.effort` (Claude from 4.6); can be disabled.
    Adaptive,
    /// `reasoning_effort` (models of OpenAI).
    Effort,
    /// `reasoningConfig.maxReasoningEffort` (Nova 2).
    Nova,
}

/// What some models accept. The first rule of a profile that names the model counts; a model without a rule gets no
/// cache marks and is told nothing of thinking.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConverseRule {
    /// Beginnings of the model's name, without an ARN's beginning and without the prefix of an inference profile (`us.`).
    pub models: Vec<String>,
    /// How it is told to think.
    pub thinking: ConverseThinking,
    /// Efforts that it knows, weakest first.
    pub efforts: Vec<String>,
    /// Tokens of thinking by effort, for [`ConverseThinking::Budget`].
    pub budgets: BTreeMap<String, u64>,
    /// Most tokens of output, sent when nobody else says. Bedrock reserves them from the quota of a minute, so it is not
    /// simply the most that the model can do.
    pub max_output_tokens: Option<u64>,
    /// Beta features (`anthropic_beta`).
    pub betas: Vec<String>,
    /// Whether `cachePoint` is accepted in the system prompt and in messages.
    pub caches: bool,
    /// Whether `cachePoint` is accepted in the list of tools too.
    pub caches_tools: bool,
    /// Whether a temperature is refused.
    pub no_temperature: bool,
}

/// How this wire differs between models.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConverseQuirks {
    /// What the models accept; the first rule that names a model counts.
    pub rules: Vec<ConverseRule>,
    /// The guardrail that looks at every request and answer, for accounts that must have one.
    pub guardrail: Option<Guardrail>,
}

/// A guardrail of the account (`guardrailConfig`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guardrail {
    /// Its id or ARN.
    pub id: String,
    /// Its version: a number, or `DRAFT`.
    pub version: String,
    /// Whether text streams before it was looked at (`async`); the answer may then be withheld in its middle.
    #[serde(default)]
    pub shows_early: bool,
}

/// What is sent about thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking<'a> {
    /// Nothing.
    Absent,
    /// `thinking` of type `disabled`.
    Disabled,
    /// `thinking` of type `enabled` with this budget.
    Budget(u64),
    /// `thinking` of type `adaptive` with an effort.
    Adaptive(&'a str),
    /// `reasoning_effort`.
    Effort(&'a str),
    /// `reasoningConfig`.
    Nova(&'a str),
}

impl ConverseRule {
    /// The rule for a model.
    pub(super) fn of<'a>(rules: &'a [Self], model: &str) -> Option<&'a Self> {
        let name = plain_name(model);
        rules.iter().find(|rule| rule.models.iter().any(|start| name.starts_with(start.as_str())))
    }

    /// What to send for a wanted effort, when the whole answer may have `max_tokens`.
    pub(super) fn thinking(&self, wanted: &str, max_tokens: Option<u64>) -> Thinking<'_> {
        match (self.thinking, weaker_or_same(wanted, &self.efforts)) {
            (ConverseThinking::Adaptive, None) => Thinking::Disabled,
            (ConverseThinking::None, _) | (_, None) => Thinking::Absent,
            (ConverseThinking::Budget, Some(effort)) => {
                // Thinking counts as output: a quarter of it is kept for the answer.
                let room = max_tokens.map_or(0, |most| most - most / 4);
                match self.budgets.get(effort).map(|budget| room.min(*budget)) {
                    Some(budget) if budget >= MIN_BUDGET_TOKENS => Thinking::Budget(budget),
                    _ => Thinking::Absent,
                }
            }
            (ConverseThinking::Adaptive, Some(effort)) => Thinking::Adaptive(effort),
            (ConverseThinking::Effort, Some(effort)) => Thinking::Effort(effort),
            (ConverseThinking::Nova, Some(effort)) => Thinking::Nova(effort),
        }
    }
}

/// The model's name without what stands before it: the beginning of an ARN, and the place of an inference profile, which
/// is a word of letters and hyphens (`us.`, `us-gov.`, `global.`) before the maker and the name.
fn plain_name(model: &str) -> &str {
    let name = if model.starts_with("arn:") { model.rsplit('/').next().unwrap_or(model) } else { model };
    match name.split_once('.') {
        Some((place, rest)) if PLACES.contains(&place) => rest,
        _ => name,
    }
}

/// Places of inference profiles that serve several regions.
const PLACES: [&str; 9] = ["us", "us-gov", "eu", "apac", "global", "jp", "au", "ca", "sa"];

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(thinking: ConverseThinking) -> ConverseRule {
        ConverseRule {
            models: vec!["anthropic.claude".to_owned()],
            thinking,
            efforts: ["low", "medium", "high"].map(str::to_owned).to_vec(),
            budgets: [("low".to_owned(), 4096), ("high".to_owned(), 16_384)].into(),
            ..ConverseRule::default()
        }
    }

    #[test]
    fn a_model_is_known_by_its_plain_name() {
        for (model, plain) in [
            ("anthropic.claude-x-v1:0", "anthropic.claude-x-v1:0"),
            ("us.anthropic.claude-x", "anthropic.claude-x"),
            ("us-gov.anthropic.claude-x", "anthropic.claude-x"),
            ("global.amazon.nova-2-lite-v1:0", "amazon.nova-2-lite-v1:0"),
            ("arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-x", "anthropic.claude-x"),
            ("arn:aws:bedrock:us-east-1::foundation-model/openai.gpt-oss", "openai.gpt-oss"),
            ("arn:aws:bedrock:us-east-1:1:application-inference-profile/abc123", "abc123"),
        ] {
            assert_eq!(plain_name(model), plain, "{model}");
        }
        let rules = [rule(ConverseThinking::Budget)];
        assert!(ConverseRule::of(&rules, "eu.anthropic.claude-x").is_some());
        assert!(ConverseRule::of(&rules, "amazon.nova-pro-v1:0").is_none());
    }

    #[test]
    fn a_wanted_effort_becomes_what_the_model_can_do_and_never_more() {
        use ConverseThinking as T;
        let check = |style, wanted, most, expect| assert_eq!(rule(style).thinking(wanted, most), expect, "{wanted}");
        check(T::Budget, "high", Some(32_000), Thinking::Budget(16_384));
        check(T::Budget, "high", Some(8_000), Thinking::Budget(6_000));
        check(T::Budget, "high", None, Thinking::Absent);
        check(T::Budget, "none", Some(32_000), Thinking::Absent);
        check(T::Adaptive, "max", None, Thinking::Adaptive("high"));
        check(T::Adaptive, "none", None, Thinking::Disabled);
        check(T::Effort, "minimal", None, Thinking::Effort("low"));
        check(T::Nova, "medium", None, Thinking::Nova("medium"));
        check(T::None, "high", Some(32_000), Thinking::Absent);
    }
}
