//! How models of this wire differ, as data of a profile.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Efforts from weak to strong.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// How a provider's Gemini wire differs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GeminiQuirks {
    /// Families of models; the first that fits a model's name counts. A model of no family is asked in the plainest way.
    pub families: Vec<Family>,
    /// The server refuses `id` in calls and results.
    pub no_call_ids: bool,
}

/// What is common to some models.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Family {
    /// Parts of the lower-case name of a model; an empty part fits every model.
    pub models: Vec<String>,
    /// Effort to `thinkingLevel` (Gemini 3 and later). Empty: the family has no levels.
    pub levels: BTreeMap<String, String>,
    /// Effort to `thinkingBudget` in tokens (Gemini 2.5); 0 switches thinking off, -1 leaves it to the model. Empty: the
    /// family has no budgets.
    pub budgets: BTreeMap<String, i64>,
    /// The first call of a step must carry a signature (Gemini 3 and later).
    pub signed_calls: bool,
    /// Pictures of a result may stand inside `functionResponse` (Gemini 3 and later); else they stand behind it.
    pub result_images: bool,
}

/// How much a model shall think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking<'a> {
    /// As much as it does by itself.
    Default,
    /// By a level.
    Level(&'a str),
    /// By a budget of tokens.
    Budget(i64),
}

impl GeminiQuirks {
    /// The family of a model.
    pub(super) fn family(&self, model: &str) -> Option<&Family> {
        let model = model.to_lowercase();
        self.families.iter().find(|family| family.models.iter().any(|part| model.contains(part.as_str())))
    }
}

impl Family {
    /// What to say about thinking; `None` for models that do not think, which refuse the field.
    pub(super) fn thinking(&self, wanted: Option<&str>) -> Option<Thinking<'_>> {
        if self.levels.is_empty() && self.budgets.is_empty() {
            return None;
        }
        let Some(wanted) = wanted else { return Some(Thinking::Default) };
        let level = pick(&self.levels, wanted).map(|level| Thinking::Level(level.as_str()));
        let budget = || pick(&self.budgets, wanted).map(|budget| Thinking::Budget(*budget));
        level.or_else(budget).or(Some(Thinking::Default))
    }
}

/// The rung for an effort: never stronger than asked while a weaker one exists, and never down to `none` unless asked.
/// A model that cannot stop thinking thinks as little as it can.
fn pick<'a, V>(ladder: &'a BTreeMap<String, V>, wanted: &str) -> Option<&'a V> {
    if let Some(exact) = ladder.get(wanted) {
        return Some(exact);
    }
    let at = EFFORTS.iter().position(|effort| *effort == wanted)?;
    let rung = |effort: &&str| ladder.get(*effort).filter(|_| *effort != "none");
    EFFORTS[..at].iter().rev().find_map(rung).or_else(|| EFFORTS[at..].iter().find_map(rung))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(levels: &[&str], wanted: &str, expect: Option<&str>) {
        let levels = levels.iter().map(|level| ((*level).to_owned(), (*level).to_owned())).collect();
        let family = Family { levels, ..Family::default() };
        let expect = expect.map_or(Thinking::Default, Thinking::Level);
        assert_eq!(family.thinking(Some(wanted)), Some(expect), "{wanted}");
    }

    #[test]
    fn an_effort_becomes_the_next_weaker_rung() {
        let ladder = ["low", "medium", "high"];
        check(&ladder, "medium", Some("medium"));
        check(&ladder, "max", Some("high"));
        check(&["low", "high"], "medium", Some("low"));
        check(&ladder, "minimal", Some("low"));
        check(&ladder, "none", Some("low"));
        check(&["none", "low"], "none", Some("none"));
        check(&["none", "low"], "minimal", Some("low"));
        check(&ladder, "a lot", None);
    }

    #[test]
    fn a_family_without_a_ladder_is_told_nothing() {
        assert_eq!(Family::default().thinking(Some("high")), None);
        assert_eq!(Family::default().thinking(None), None);
    }
}
