//! What the models of this wire accept, as data of a profile.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Efforts from weak to strong. A wanted effort that a model lacks becomes the next weaker one that it has.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
/// The effort that asks for no thinking.
const NO_EFFORT: &str = "none";
/// Smallest thinking budget that the API accepts, in tokens.
pub(in crate::mode) const MIN_BUDGET_TOKENS: u64 = 1024;

/// How a model is told to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingStyle {
    /// Not at all: nothing is sent.
    #[default]
    None,
    /// `{"type":"enabled","budget_tokens":N}` with a budget for each effort.
    Budget,
    /// `{"type":"adaptive"}` and `output_config.effort`; can be disabled.
    Adaptive,
    /// Like adaptive, and it cannot be disabled: the weakest effort is the nearest to none.
    Always,
}

/// What some models accept. The first rule of a profile that names the model counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelRule {
    /// Beginnings of the model's name; an empty one means every model.
    pub models: Vec<String>,
    /// How it is told to think.
    pub thinking: ThinkingStyle,
    /// Efforts that it knows, weakest first.
    pub efforts: Vec<String>,
    /// Tokens of thinking by effort, for [`ThinkingStyle::Budget`].
    pub budgets: BTreeMap<String, u64>,
    /// How thinking is shown (`thinking.display`), where that may be said.
    pub display: Option<String>,
    /// Most tokens of output.
    pub max_output_tokens: Option<u64>,
    /// Beta features of the `anthropic-beta` header.
    pub betas: Vec<String>,
}

/// How a provider's messages wire differs from its maker's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MessagesQuirks {
    /// What the models accept; the first rule that names a model counts.
    pub rules: Vec<ModelRule>,
    /// Whether thinking without a signature goes back too (servers that sign nothing).
    pub unsigned_thinking: bool,
    /// Most tokens of output by the configuration, which wins over the rules. Not of a profile.
    #[serde(skip)]
    pub max_output_tokens: Option<u64>,
}

/// What is sent about thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking<'a> {
    /// Nothing: the model does what it does by itself.
    Absent,
    /// `{"type":"disabled"}`.
    Disabled,
    /// `{"type":"enabled","budget_tokens":N}`.
    Budget(u64),
    /// `{"type":"adaptive"}` with an effort.
    Adaptive { effort: &'a str, display: Option<&'a str> },
    /// Only an effort: thinking itself is not to be asked for.
    Effort(&'a str),
}

impl ModelRule {
    /// The rule for a model.
    pub(super) fn of<'a>(rules: &'a [Self], model: &str) -> Option<&'a Self> {
        rules.iter().find(|rule| rule.models.iter().any(|start| model.starts_with(start.as_str())))
    }

    /// What to send for a wanted effort, when the whole answer may have `max_tokens`.
    pub(super) fn thinking(&self, wanted: &str, max_tokens: u64) -> Thinking<'_> {
        let effort = weaker_or_same(wanted, &self.efforts);
        match (self.thinking, effort) {
            (ThinkingStyle::None, _) => Thinking::Absent,
            // Off is where these models are by themselves.
            (ThinkingStyle::Budget, None) => Thinking::Absent,
            (ThinkingStyle::Budget, Some(effort)) => {
                // Thinking counts as output: a quarter of it is kept for the answer.
                let room = max_tokens - max_tokens / 4;
                match self.budgets.get(effort).map(|budget| room.min(*budget)) {
                    Some(budget) if budget >= MIN_BUDGET_TOKENS => Thinking::Budget(budget),
                    _ => Thinking::Absent,
                }
            }
            (ThinkingStyle::Adaptive, None) => Thinking::Disabled,
            (ThinkingStyle::Always, None) => {
                self.efforts.first().map_or(Thinking::Absent, |weak| Thinking::Effort(weak))
            }
            (ThinkingStyle::Adaptive | ThinkingStyle::Always, Some(effort)) => {
                Thinking::Adaptive { effort, display: self.display.as_deref() }
            }
        }
    }
}

/// The wanted effort or the next weaker one that is known, never `none` for one that asks for something; `None` when
/// none is wanted. A word that is no effort of ours is taken for the strongest that is known.
pub(in crate::mode) fn weaker_or_same<'a>(wanted: &str, known: &'a [String]) -> Option<&'a str> {
    if wanted == NO_EFFORT {
        return None;
    }
    let rank = |effort: &str| EFFORTS.iter().position(|known| *known == effort);
    let most = rank(wanted).unwrap_or(EFFORTS.len());
    let fits = |effort: &&String| rank(effort).is_some_and(|at| at <= most);
    known.iter().rev().find(fits).or_else(|| known.first()).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(thinking: ThinkingStyle, efforts: &[&str]) -> ModelRule {
        let budgets = [("low", 4096), ("medium", 8192), ("high", 16_384)];
        ModelRule {
            models: vec![String::new()],
            thinking,
            efforts: efforts.iter().map(|effort| (*effort).to_owned()).collect(),
            budgets: budgets.into_iter().map(|(effort, tokens)| (effort.to_owned(), tokens)).collect(),
            ..ModelRule::default()
        }
    }

    fn check(thinking: ThinkingStyle, wanted: &str, max_tokens: u64, expect: Thinking<'_>) {
        let rule = rule(thinking, &["low", "medium", "high"]);
        assert_eq!(rule.thinking(wanted, max_tokens), expect, "{thinking:?} {wanted} {max_tokens}");
    }

    #[test]
    fn a_wanted_effort_becomes_what_the_model_can_do_and_never_more() {
        use ThinkingStyle as S;
        let adaptive = |effort| Thinking::Adaptive { effort, display: None };
        check(S::Adaptive, "none", 32_000, Thinking::Disabled);
        check(S::Adaptive, "minimal", 32_000, adaptive("low"));
        check(S::Adaptive, "medium", 32_000, adaptive("medium"));
        check(S::Adaptive, "xhigh", 32_000, adaptive("high"));
        check(S::Adaptive, "ultra", 32_000, adaptive("high"));
        check(S::Always, "none", 32_000, Thinking::Effort("low"));
        check(S::Always, "high", 32_000, adaptive("high"));
        check(S::Budget, "none", 32_000, Thinking::Absent);
        check(S::Budget, "low", 32_000, Thinking::Budget(4096));
        check(S::Budget, "max", 32_000, Thinking::Budget(16_384));
        check(S::Budget, "high", 8_000, Thinking::Budget(6_000));
        check(S::Budget, "high", 1_200, Thinking::Absent);
        check(S::None, "high", 32_000, Thinking::Absent);
        assert_eq!(rule(S::Budget, &["max"]).thinking("max", 32_000), Thinking::Absent, "no budget is known");
    }

    #[test]
    fn the_first_rule_that_names_the_model_counts() {
        let named = |start: &str, most| ModelRule {
            models: vec![start.to_owned()],
            max_output_tokens: Some(most),
            ..ModelRule::default()
        };
        let rules = [named("claude-opus-4-5", 1), named("claude-opus-4", 2), named("", 3)];
        let most = |model| ModelRule::of(&rules, model).and_then(|rule| rule.max_output_tokens);
        assert_eq!((most("claude-opus-4-5-x"), most("claude-opus-4-1"), most("x")), (Some(1), Some(2), Some(3)));
        assert_eq!(ModelRule::of(&[], "x"), None);
    }
}
