//! How long a model may be silent: by its family, the effort that is asked for and the size of the prompt.
//!
//! A profile says it for its own models; for the others the tables here hold. All of them are floors: they make the clocks
//! of a request longer and never shorter.

#![cfg_attr(not(feature = "http"), allow(dead_code, reason = "only requests over HTTP have clocks"))]

use std::time::Duration;

use serde::Deserialize;

/// Families that think for long before they speak: beginnings of the lower-case name behind its last slash, and seconds.
/// The span of 180 to 600 seconds is that of the reference (section 8).
const FAMILY_FLOORS_S: &[(&str, u64)] = &[
    ("o1", 600),
    ("o3", 600),
    ("o4", 600),
    ("gpt-5", 300),
    ("gpt-6", 300),
    ("deepseek-r", 600),
    ("deepseek-v4", 300),
    ("qwq", 600),
    ("qwen3", 300),
    ("magistral", 300),
    ("grok-4", 300),
    ("gemini-2.5-pro", 300),
    ("gemini-3", 300),
    ("claude-opus", 300),
    ("claude-fable", 300),
    ("claude-mythos", 300),
    ("kimi-k2", 300),
    ("glm-5", 300),
    ("minimax-m", 300),
];
/// Efforts that make every model think for long, and seconds.
const EFFORT_FLOORS_S: &[(&str, u64)] = &[("high", 300), ("xhigh", 600), ("max", 600)];
/// Prompts of more tokens than this take seconds to be read, largest first.
const PROMPT_FLOORS_S: &[(u64, u64)] = &[(100_000, 300), (50_000, 240)];
/// Bytes of a request that make about one token.
const BYTES_PER_TOKEN: u64 = 4;

/// What a profile says of some of its models.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patience {
    /// Beginnings of the lower-case name behind its last slash; an empty one means every model.
    pub models: Vec<String>,
    /// Seconds that one may be silent, before its first byte and between two changes of its answer.
    pub seconds: u64,
}

/// The longest of the floors that hold for this request. `rules` are the profile's: the first that names the model stands
/// in for the table of families.
pub(crate) fn floor(rules: &[Patience], model: &str, effort: Option<&str>, body_bytes: usize) -> Duration {
    let model = model.rsplit('/').next().unwrap_or_default().to_lowercase();
    let names = |rule: &&Patience| rule.models.iter().any(|start| model.starts_with(start.as_str()));
    let family =
        rules.iter().find(names).map(|rule| rule.seconds).or_else(|| {
            FAMILY_FLOORS_S.iter().find(|(start, _)| model.starts_with(start)).map(|(_, seconds)| *seconds)
        });
    let effort = EFFORT_FLOORS_S.iter().find(|(name, _)| Some(*name) == effort).map(|(_, seconds)| *seconds);
    let tokens = body_bytes as u64 / BYTES_PER_TOKEN;
    let prompt = PROMPT_FLOORS_S.iter().find(|(more_than, _)| tokens > *more_than).map(|(_, seconds)| *seconds);
    Duration::from_secs([family, effort, prompt].into_iter().flatten().max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(model: &str, effort: Option<&str>, tokens: usize, seconds: u64) {
        let rules = [Patience { models: vec!["slow".into(), "o3-mini".into()], seconds: 200 }];
        let bytes = tokens * BYTES_PER_TOKEN as usize;
        assert_eq!(floor(&rules, model, effort, bytes).as_secs(), seconds, "{model} {effort:?} {tokens}");
    }

    #[test]
    fn the_longest_floor_holds() {
        check("plain", None, 0, 0);
        check("plain", Some("medium"), 50_000, 0);
        check("plain", None, 50_001, 240);
        check("plain", None, 100_001, 300);
        check("plain", Some("high"), 50_001, 300);
        check("plain", Some("max"), 0, 600);
        check("openai/O3-pro", None, 0, 600);
        check("gpt-5.2", None, 60_000, 300);
    }

    #[test]
    fn a_profile_knows_its_own_models_better() {
        check("slow-model", None, 0, 200);
        check("o3-mini", None, 0, 200);
        check("o3-mini", None, 100_001, 300);
    }

    #[test]
    fn the_tables_are_in_order() {
        assert!(PROMPT_FLOORS_S.windows(2).all(|pair| pair[0].0 > pair[1].0 && pair[0].1 >= pair[1].1));
        for (start, seconds) in FAMILY_FLOORS_S {
            assert!((180..=600).contains(seconds) && *start == start.to_lowercase(), "{start}");
        }
    }
}
