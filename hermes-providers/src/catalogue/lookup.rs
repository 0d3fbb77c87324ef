//! The catalogue itself: one question, answered from four sources.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::catalogue::names::{candidates, key};
use crate::catalogue::snapshot::{Family, Snapshot, SnapshotError};
use crate::catalogue::{Cost, Fact, ListedModel, Modality, ModelFacts, Prices, Source};
use crate::chat::Usage;

/// Where a model is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// Id of the profile.
    pub provider: &'a str,
    /// On this computer or near it. What others say of a model of this name says nothing of how it is run here: only the
    /// configuration and the server itself are believed. Nothing is billed.
    pub local: bool,
}

/// What is known of a model at one place, each fact with its source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Described {
    /// The name in the snapshot, when it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_as: Option<String>,
    /// The page that the snapshot's numbers are from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// Most tokens of input and output together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<Fact<u64>>,
    /// Most tokens of output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<Fact<u64>>,
    /// What it reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Fact<Vec<Modality>>>,
    /// Whether it can reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Fact<bool>>,
    /// Whether it can call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Fact<bool>>,
    /// What it costs here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Fact<Prices>>,
    /// Nothing is billed here.
    pub local: bool,
}

impl Described {
    /// Whether it can see pictures; `None` when nobody says.
    #[must_use]
    pub fn sees_images(&self) -> Option<bool> {
        self.inputs.as_ref().map(|inputs| inputs.value.contains(&Modality::Image))
    }

    /// What one request cost.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> Cost {
        self.costed(|prices| prices.cost(usage))
    }

    /// What several requests cost of whose tokens only the sum is known.
    #[must_use]
    pub fn cost_of_sum(&self, usage: &Usage) -> Cost {
        self.costed(|prices| prices.cost_of_sum(usage))
    }

    fn costed(&self, cost: impl FnOnce(&Prices) -> Cost) -> Cost {
        match &self.prices {
            Some(prices) => cost(&prices.value),
            None if self.local => Cost::Included,
            None => Cost::Unknown,
        }
    }

    /// Takes what is not known yet.
    fn add(&mut self, facts: ModelFacts, source: Source) {
        fn fill<T>(place: &mut Option<Fact<T>>, value: Option<T>, source: Source) {
            if let (None, Some(value)) = (&place, value) {
                *place = Some(Fact { value, source });
            }
        }
        fill(&mut self.context_window, facts.context_window, source);
        fill(&mut self.max_output_tokens, facts.max_output_tokens, source);
        fill(&mut self.inputs, facts.inputs, source);
        fill(&mut self.reasoning, facts.reasoning, source);
        fill(&mut self.tools, facts.tools, source);
        fill(&mut self.prices, facts.prices, source);
    }
}

/// A model that a search found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// A provider that has it: the one whose list it is in, or one of the maker's.
    pub provider: String,
    /// Its name there.
    pub model: String,
    /// What is known of it.
    #[serde(flatten)]
    pub facts: ModelFacts,
    /// Who says so.
    pub source: Source,
}

/// The models of one provider's own list.
#[derive(Debug, Clone, Default)]
struct Listed {
    models: Vec<ListedModel>,
    /// By every name that leads to one.
    names: HashMap<String, usize>,
}

/// What is known of models. Cheap to clone.
///
/// ```
/// use hermes_providers::catalogue::{Catalogue, ModelFacts, Place, Source};
///
/// let catalogue = Catalogue::bundled();
/// let place = Place { provider: "anthropic", local: false };
/// let model = catalogue.describe(place, "claude-sonnet-4-6", &ModelFacts::default());
/// let window = model.context_window.ok_or("unknown")?;
/// assert_eq!((window.value, window.source), (1_000_000, Source::Snapshot));
/// assert_eq!(model.sees_images(), Some(true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Catalogue {
    snapshot: Arc<Indexed>,
    listed: HashMap<String, Arc<Listed>>,
}

#[derive(Debug)]
struct Indexed {
    snapshot: Snapshot,
    /// Maker and model, by every name that leads to one; makers' own before hosts'.
    names: HashMap<String, Vec<(usize, usize)>>,
}

impl Catalogue {
    /// The bundled snapshot and no list.
    #[must_use]
    pub fn bundled() -> Self {
        static BUNDLED: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::of(Snapshot::bundled()));
        BUNDLED.clone()
    }

    /// Another snapshot instead of the bundled one, in the format of `data/models.toml`.
    ///
    /// # Errors
    /// [`SnapshotError`], saying where.
    pub fn from_snapshot(text: &str) -> Result<Self, SnapshotError> {
        Snapshot::parse(text).map(Self::of)
    }

    fn of(snapshot: Snapshot) -> Self {
        let mut names: HashMap<String, Vec<(usize, usize)>> = HashMap::new();
        for (maker_at, maker) in snapshot.makers.iter().enumerate() {
            for (model_at, entry) in maker.models.iter().enumerate() {
                for name in std::iter::once(&entry.id).chain(&entry.also) {
                    names.entry(key(name)).or_default().push((maker_at, model_at));
                }
            }
        }
        Self { snapshot: Arc::new(Indexed { snapshot, names }), listed: HashMap::new() }
    }

    /// The day on which the snapshot's pages were read.
    #[must_use]
    pub fn checked(&self) -> &str {
        &self.snapshot.snapshot.checked
    }

    /// With a provider's own list in the place of the one before.
    #[must_use]
    pub fn with_list(mut self, provider: &str, models: Vec<ListedModel>) -> Self {
        let mut names = HashMap::new();
        for (at, model) in models.iter().enumerate() {
            names.entry(key(&model.id)).or_insert(at);
        }
        // Other spellings after all exact ones. A variant (`:free`) does not stand for the model itself.
        for (at, model) in models.iter().enumerate().filter(|(_, model)| !model.id.contains(':')) {
            for name in candidates(&model.id) {
                names.entry(name).or_insert(at);
            }
        }
        self.listed.insert(provider.to_owned(), Arc::new(Listed { models, names }));
        self
    }

    /// What is known of `model` at `place`. `configured` is what the user says of it.
    #[must_use]
    pub fn describe(&self, place: Place<'_>, model: &str, configured: &ModelFacts) -> Described {
        let mut described = Described { local: place.local, ..Described::default() };
        described.add(configured.clone(), Source::Config);
        let names = candidates(model);
        if let Some(listed) = self.listed.get(place.provider)
            && let Some(at) = names.iter().find_map(|name| listed.names.get(name))
            && let Some(found) = listed.models.get(*at)
        {
            described.add(found.facts.clone(), Source::Provider);
        }
        if place.local {
            return described;
        }
        if let Some((id, page, facts)) = self.in_snapshot(place.provider, &names) {
            described.known_as = Some(id);
            described.page = Some(page);
            described.add(facts, Source::Snapshot);
        }
        if let Some(family) = self.family(&names) {
            described.add(family.facts(), Source::Family);
        }
        described
    }

    /// The facts of the first name that is known: a host's own where it serves the model, else the maker's. Prices are
    /// those of the place only.
    fn in_snapshot(&self, provider: &str, names: &[String]) -> Option<(String, String, ModelFacts)> {
        let makers = &self.snapshot.snapshot.makers;
        for name in names {
            let Some(places) = self.snapshot.names.get(name) else { continue };
            let here = |maker: usize| makers.get(maker).is_some_and(|m| m.providers.iter().any(|id| id == provider));
            let own = |maker: usize| makers.get(maker).is_some_and(|m| !m.host);
            let found = places.iter().find(|(maker, _)| here(*maker)).or_else(|| places.iter().find(|(m, _)| own(*m)));
            let Some((maker_at, model_at)) = found else { continue };
            let maker = makers.get(*maker_at)?;
            let entry = maker.models.get(*model_at)?;
            let mut facts = entry.facts();
            if !here(*maker_at) {
                facts.prices = None;
            }
            return Some((entry.id.clone(), maker.page.clone(), facts));
        }
        None
    }

    /// The family with the longest beginning that fits the plainest name.
    fn family(&self, names: &[String]) -> Option<&Family> {
        let fits = |family: &&Family| names.iter().any(|name| name.starts_with(&family.prefix));
        self.snapshot.snapshot.families.iter().filter(fits).max_by_key(|family| family.prefix.len())
    }

    /// Providers that are known to have this model: those of the snapshot, then those whose lists have it.
    #[must_use]
    pub fn providers_of(&self, model: &str) -> Vec<String> {
        let names = candidates(model);
        let mut found = Vec::new();
        for (maker_at, _) in names.iter().filter_map(|name| self.snapshot.names.get(name)).flatten() {
            let maker = self.snapshot.snapshot.makers.get(*maker_at);
            found.extend(maker.and_then(|maker| maker.providers.first()).cloned());
        }
        let mut listed: Vec<&String> = self.listed.keys().collect();
        listed.sort();
        let has = |provider: &&String| {
            self.listed.get(*provider).is_some_and(|list| names.iter().any(|name| list.names.contains_key(name)))
        };
        found.extend(listed.into_iter().filter(has).cloned());
        let mut seen = std::collections::HashSet::new();
        found.retain(|provider| seen.insert(provider.clone()));
        found
    }

    /// Every model whose name or provider holds all words, whatever the case, in order of provider and name: those of the
    /// lists, and those of the snapshot that are in none. No words: all.
    #[must_use]
    pub fn search(&self, words: &[&str]) -> Vec<Hit> {
        let words: Vec<String> = words.iter().map(|word| key(word)).collect();
        let fits = |provider: &str, model: &str| {
            let text = format!("{} {}", key(provider), key(model));
            words.iter().all(|word| text.contains(word.as_str()))
        };
        let mut hits = Vec::new();
        for (provider, listed) in &self.listed {
            for model in listed.models.iter().filter(|model| fits(provider, &model.id)) {
                let place = Place { provider, local: false };
                let facts = self.describe(place, &model.id, &ModelFacts::default());
                hits.push(hit(provider, &model.id, facts, Source::Provider));
            }
        }
        for maker in &self.snapshot.snapshot.makers {
            let Some(provider) = maker.providers.first() else { continue };
            let listed = self.listed.get(provider);
            for entry in maker.models.iter().filter(|entry| fits(provider, &entry.id)) {
                if listed.is_none_or(|listed| !listed.names.contains_key(&key(&entry.id))) {
                    hits.push(Hit {
                        provider: provider.clone(),
                        model: entry.id.clone(),
                        facts: entry.facts(),
                        source: Source::Snapshot,
                    });
                }
            }
        }
        hits.sort_by(|one, two| (&one.provider, &one.model).cmp(&(&two.provider, &two.model)));
        hits
    }
}

fn hit(provider: &str, model: &str, facts: Described, source: Source) -> Hit {
    Hit {
        provider: provider.to_owned(),
        model: model.to_owned(),
        facts: ModelFacts {
            context_window: facts.context_window.map(|fact| fact.value),
            max_output_tokens: facts.max_output_tokens.map(|fact| fact.value),
            inputs: facts.inputs.map(|fact| fact.value),
            reasoning: facts.reasoning.map(|fact| fact.value),
            tools: facts.tools.map(|fact| fact.value),
            prices: facts.prices.map(|fact| fact.value),
        },
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNAPSHOT: &str = r#"
        checked = "2026-12-03"
        [[maker]]
        id = "acme"
        page = "acme.example/pricing"
        providers = ["acme"]
        models = [
            { id = "one-2", window = 200_000, output = 8000, reads = ["text", "image"], price = { input = "1", output = "4" } },
            { id = "one-2-mini", also = ["one-mini"], window = 100_000 },
        ]
        [[maker]]
        id = "host"
        page = "host.example/pricing"
        providers = ["host"]
        host = true
        models = [{ id = "acme/one-2", window = 64_000, price = { input = "2", output = "8" } }]
        [[family]]
        prefix = "one-"
        window = 32_000
        output = 4000
        [[family]]
        prefix = "one-9"
        window = 500_000
    "#;

    fn catalogue() -> Catalogue {
        Catalogue::from_snapshot(SNAPSHOT).unwrap()
    }

    fn at(provider: &str) -> Place<'_> {
        Place { provider, local: false }
    }

    fn window(catalogue: &Catalogue, place: Place<'_>, model: &str, configured: Option<u64>) -> Option<(u64, Source)> {
        let configured = ModelFacts { context_window: configured, ..ModelFacts::default() };
        catalogue.describe(place, model, &configured).context_window.map(|fact| (fact.value, fact.source))
    }

    fn listed(id: &str, context: u64) -> ListedModel {
        ListedModel { id: id.into(), facts: ModelFacts { context_window: Some(context), ..ModelFacts::default() } }
    }

    #[test]
    fn the_sources_are_asked_in_their_order() {
        let bare = catalogue();
        let full = catalogue().with_list("acme", vec![listed("one-2", 150_000)]);
        let place = at("acme");
        assert_eq!(window(&full, place, "one-2", Some(9000)), Some((9000, Source::Config)));
        assert_eq!(window(&full, place, "one-2", None), Some((150_000, Source::Provider)));
        assert_eq!(window(&bare, place, "one-2", None), Some((200_000, Source::Snapshot)));
        assert_eq!(window(&bare, place, "one-3", None), Some((32_000, Source::Family)));
        assert_eq!(window(&bare, place, "one-9-large", None), Some((500_000, Source::Family)), "the longest beginning");
        assert_eq!(window(&bare, place, "two", None), None, "nobody knows, and no number is made up");
    }

    #[test]
    fn facts_come_from_different_sources_one_by_one() {
        let full = catalogue().with_list("acme", vec![listed("one-2", 150_000)]);
        let found = full.describe(at("acme"), "one-2-20260101", &ModelFacts::default());
        assert_eq!(found.known_as.as_deref(), Some("one-2"));
        assert_eq!(found.context_window.unwrap().source, Source::Provider);
        assert_eq!(found.max_output_tokens, Some(Fact { value: 8000, source: Source::Snapshot }));
        assert_eq!(found.sees_images(), Some(true));
        let mini = full.describe(at("acme"), "one-mini", &ModelFacts::default());
        assert_eq!(mini.known_as.as_deref(), Some("one-2-mini"));
        assert_eq!(mini.max_output_tokens.unwrap().source, Source::Family);
        assert_eq!(mini.sees_images(), None);
    }

    #[test]
    fn prices_hold_where_they_were_named_only() {
        let catalogue = catalogue();
        let usage = Usage { input_uncached: Some(1_000_000), output: Some(0), ..Usage::default() };
        let cost = |provider| match catalogue.describe(at(provider), "acme/one-2", &ModelFacts::default()).cost(&usage)
        {
            Cost::Estimated(money) => money.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(cost("acme"), "$1.00");
        assert_eq!(cost("host"), "$2.00");
        assert_eq!(cost("another"), "Unknown");
        assert_eq!(window(&catalogue, at("host"), "acme/one-2", None), Some((64_000, Source::Snapshot)));
        assert_eq!(window(&catalogue, at("another"), "acme/one-2", None), Some((200_000, Source::Snapshot)));
    }

    #[test]
    fn near_servers_are_believed_and_nobody_else_is() {
        let near = Place { provider: "acme", local: true };
        let catalogue = catalogue();
        assert_eq!(window(&catalogue, near, "one-2", None), None);
        assert_eq!(window(&catalogue, near, "one-2", Some(4096)), Some((4096, Source::Config)));
        let told = catalogue.with_list("acme", vec![listed("one-2", 8192)]);
        assert_eq!(window(&told, near, "one-2", None), Some((8192, Source::Provider)));
        let usage = Usage { input_uncached: Some(5), output: Some(5), ..Usage::default() };
        assert_eq!(told.describe(near, "one-2", &ModelFacts::default()).cost(&usage), Cost::Included);
    }

    #[test]
    fn a_variant_in_a_list_does_not_stand_for_the_model() {
        let list = vec![listed("acme/one-2:free", 1), listed("acme/one-2-20260101", 2), listed("acme/one-2", 3)];
        let catalogue = catalogue().with_list("or", list);
        let of = |model| window(&catalogue, at("or"), model, None).map(|(value, _)| value);
        assert_eq!((of("acme/one-2:free"), of("acme/one-2"), of("acme/one-2-20260101")), (Some(1), Some(3), Some(2)));
        assert_eq!(of("one-2"), Some(2), "the first that has this name when its date is left out");
    }

    #[test]
    fn a_search_finds_all_words_and_prefers_lists() {
        let catalogue = catalogue().with_list("acme", vec![listed("One-2", 150_000), listed("other", 1)]);
        let found = |words: &[&str]| -> Vec<String> {
            let hits = catalogue.search(words);
            hits.iter().map(|hit| format!("{}/{} {:?}", hit.provider, hit.model, hit.source)).collect()
        };
        assert_eq!(
            found(&["one", "ACME"]),
            ["acme/One-2 Provider", "acme/one-2-mini Snapshot", "host/acme/one-2 Snapshot"]
        );
        assert_eq!(found(&["mini"]), ["acme/one-2-mini Snapshot"]);
        assert_eq!(found(&["nothing"]), [] as [&str; 0]);
        assert_eq!(found(&[]).len(), 4);
        let facts = &catalogue.search(&["one", "acme"])[0].facts;
        assert_eq!((facts.context_window, facts.max_output_tokens), (Some(150_000), Some(8000)));
    }

    #[test]
    fn who_has_a_model_is_known_from_the_snapshot_and_from_lists() {
        let catalogue = catalogue().with_list("or", vec![listed("acme/one-2", 3)]);
        assert_eq!(catalogue.providers_of("one-2-20260101"), ["acme", "or"]);
        assert_eq!(catalogue.providers_of("acme/one-2"), ["host", "acme", "or"]);
        assert_eq!(catalogue.providers_of("nothing"), [] as [&str; 0]);
    }

    #[test]
    fn a_broken_snapshot_says_where() {
        let error = Catalogue::from_snapshot("checked = \"x\"\n[[maker]]\nid = 5").unwrap_err();
        assert!(error.to_string().contains("line 3"), "{error}");
    }
}
