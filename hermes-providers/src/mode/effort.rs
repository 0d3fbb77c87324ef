//! How hard a model shall think, and whether it takes a temperature: what several wires ask of a profile.

use serde::Deserialize;

use crate::profile::Quirks;

/// Efforts from weak to strong. A wanted effort that a model lacks becomes the next weaker one that it has.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
/// The effort that asks for no thinking.
const NO_EFFORT: &str = "none";

/// The efforts that some models know.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ladder {
    /// Beginnings of the model's name; an empty one means every model.
    pub models: Vec<String>,
    /// Efforts that they know, weakest first; empty: they refuse the field.
    pub efforts: Vec<String>,
}

/// The effort to send, or `None` when no field shall be sent. Never stronger than asked while a weaker one exists, and
/// never down to `none`.
pub(super) fn clamp_effort<'a>(wanted: &'a str, model: &str, quirks: &'a Quirks) -> Option<&'a str> {
    if let Some(mapped) = quirks.effort_map.get(wanted) {
        return Some(mapped);
    }
    let own = quirks.ladders.iter().find(|ladder| begins(model, &ladder.models));
    let efforts = own.map_or(&quirks.efforts, |ladder| &ladder.efforts);
    // What a provider knows may be unknown; then it is passed on.
    if (own.is_none() && efforts.is_empty()) || efforts.iter().any(|known| known == wanted) {
        return Some(wanted);
    }
    if wanted == NO_EFFORT {
        return None;
    }
    let rung = |name: &str| EFFORTS.iter().position(|effort| *effort == name);
    let usable = || efforts.iter().filter(|known| *known != NO_EFFORT);
    let weaker = usable().rfind(|known| rung(known) <= rung(wanted));
    weaker.or_else(|| usable().next()).map(String::as_str)
}

/// Whether the model accepts a temperature.
pub(super) fn takes_temperature(model: &str, quirks: &Quirks) -> bool {
    !begins(model, &quirks.no_temperature_models)
}

fn begins(model: &str, starts: &[String]) -> bool {
    starts.iter().any(|start| model.starts_with(start.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efforts_are_clamped_to_the_next_weaker_one() {
        let quirks = |efforts: &[&str]| Quirks {
            efforts: efforts.iter().map(|e| (*e).to_owned()).collect(),
            ..Quirks::default()
        };
        let low_high = quirks(&["low", "high"]);
        assert_eq!(clamp_effort("medium", "m", &low_high), Some("low"));
        assert_eq!(clamp_effort("max", "m", &low_high), Some("high"));
        assert_eq!(clamp_effort("minimal", "m", &low_high), Some("low"));
        assert_eq!(clamp_effort("none", "m", &low_high), None);
        assert_eq!(clamp_effort("minimal", "m", &quirks(&["none", "low"])), Some("low"));
        assert_eq!(clamp_effort("high", "m", &quirks(&[])), Some("high"));
    }

    #[test]
    fn a_model_s_own_ladder_goes_before_the_provider_s() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let quirks = Quirks {
            efforts: words(&["low", "medium", "high"]),
            ladders: vec![
                Ladder { models: words(&["new-mini"]), efforts: words(&["high"]) },
                Ladder { models: words(&["new"]), efforts: words(&["none", "low", "xhigh"]) },
                Ladder { models: words(&["plain"]), efforts: Vec::new() },
            ],
            ..Quirks::default()
        };
        for (model, wanted, sent) in [
            ("old", "max", Some("high")),
            ("old", "minimal", Some("low")),
            ("old", "none", None),
            ("new-mini-2", "low", Some("high")),
            ("new-2", "high", Some("low")),
            ("new-2", "max", Some("xhigh")),
            ("new-2", "none", Some("none")),
            ("new-2", "minimal", Some("low")),
            ("plain", "minimal", None),
            ("plain", "none", None),
        ] {
            assert_eq!(clamp_effort(wanted, model, &quirks), sent, "{model} {wanted}");
        }
    }

    #[test]
    fn bundled_profiles_send_only_efforts_that_their_makers_name() {
        let profiles = crate::profile::Profiles::bundled().unwrap();
        let sent = |profile: &str, model: &str, wanted: &str| {
            let quirks = &profiles.get(profile).unwrap().quirks;
            clamp_effort(wanted, model, quirks).map(str::to_owned)
        };
        for (profile, model, wanted, expect) in [
            ("groq", "openai/gpt-oss-120b", "max", Some("high")),
            ("groq", "openai/gpt-oss-120b", "none", None),
            ("groq", "qwen/qwen3-32b", "high", None),
            ("groq", "qwen/qwen3-32b", "none", Some("none")),
            ("groq", "llama-3.3-70b-versatile", "low", None),
            ("meta-ai", "muse-spark-1.3", "none", None),
            ("meta-ai", "muse-spark-1.3", "max", Some("xhigh")),
        ] {
            assert_eq!(sent(profile, model, wanted).as_deref(), expect, "{profile}/{model}, {wanted}");
        }
    }
}
