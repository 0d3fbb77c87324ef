//! What is known of models, as people read it.

use hermes_gateway::protocol::{
    Cost, Fact, Hit, Modality, ModelSearchResponse, ModelShowResponse, Prices, Rates, Source,
};

use super::lists::table;
use crate::style::Style;
use crate::text::{harmless, pad};

/// Shown where nothing is known.
const UNKNOWN: &str = "unknown";

/// Models that were found, one on each line.
pub(crate) fn found(found: &ModelSearchResponse, style: Style) -> String {
    if found.models.is_empty() {
        return "No known model has these words in its name.\n".to_owned();
    }
    let head = ["PROVIDER", "MODEL", "WINDOW", "OUTPUT", "READS", "REASONS", "$ IN/OUT PER MILLION", "KNOWN FROM"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(found.models.iter().map(line));
    let mut out = table(&rows, style);
    let more = found.total.saturating_sub(found.models.len());
    if more > 0 {
        out.push_str(&format!("{}\n", style.dim(&format!("{more} more; add words, or --limit {}", found.total))));
    }
    out
}

fn line(hit: &Hit) -> Vec<String> {
    let facts = &hit.facts;
    let prices = facts.prices.as_ref().map_or_else(
        || UNKNOWN.to_owned(),
        |prices| {
            let more = if prices.tiers.is_empty() { "" } else { ", more for long prompts" };
            format!("{} / {}{more}", prices.rates.input, prices.rates.output)
        },
    );
    vec![
        harmless(&hit.provider),
        harmless(&hit.model),
        facts.context_window.map_or_else(|| UNKNOWN.to_owned(), tokens),
        facts.max_output_tokens.map_or_else(|| UNKNOWN.to_owned(), tokens),
        facts.inputs.as_ref().map_or_else(|| UNKNOWN.to_owned(), |inputs| reads(inputs)),
        facts.reasoning.map_or_else(|| UNKNOWN.to_owned(), yes_no),
        prices,
        hit.source.as_str().to_owned(),
    ]
}

/// One model: every fact and who says it.
pub(crate) fn shown(shown: &ModelShowResponse, style: Style) -> String {
    let known = &shown.known;
    let mut out = format!("{} at {}\n", style.bold(&harmless(&shown.model)), harmless(&shown.provider));
    let mut facts = vec![
        ("window", told(known.context_window.as_ref(), |window| format!("{} tokens", tokens(*window)))),
        ("output", told(known.max_output_tokens.as_ref(), |output| format!("at most {} tokens", tokens(*output)))),
        ("reads", told(known.inputs.as_ref(), |inputs| reads(inputs))),
        ("reasons", told(known.reasoning.as_ref(), |reasoning| yes_no(*reasoning))),
        ("tools", told(known.tools.as_ref(), |tools| yes_no(*tools))),
    ];
    match &known.prices {
        None if known.local => facts.push(("price", "nothing is billed: it runs near you".to_owned())),
        None => facts.push(("price", UNKNOWN.to_owned())),
        Some(prices) => facts.extend(prices_of(prices)),
    }
    if let Some(name) = known.known_as.as_ref().filter(|name| !name.eq_ignore_ascii_case(&shown.model)) {
        facts.push(("known as", harmless(name)));
    }
    if !shown.also_at.is_empty() {
        facts.push(("also at", harmless(&shown.also_at.join(", "))));
    }
    if let Some(page) = &known.page {
        facts.push(("page", format!("{} (read {})", harmless(page), harmless(&shown.checked))));
    }
    for (name, value) in facts {
        out.push_str(&format!("{}  {value}\n", pad(name, 8)));
    }
    out
}

fn told<T>(fact: Option<&Fact<T>>, text: impl FnOnce(&T) -> String) -> String {
    fact.map_or_else(|| UNKNOWN.to_owned(), |fact| format!("{} ({})", text(&fact.value), fact.source.as_str()))
}

fn prices_of(prices: &Fact<Prices>) -> Vec<(&'static str, String)> {
    let source = match prices.source {
        Source::Snapshot => "list prices in the bundled catalogue",
        other => other.as_str(),
    };
    let mut lines = vec![("price", format!("{} ({source})", rates(&prices.value.rates)))];
    let mut tiers = prices.value.tiers.clone();
    tiers.sort_by_key(|tier| tier.above);
    for tier in tiers {
        lines.push(("", format!("prompts above {} tokens: {}", tokens(tier.above), rates(&tier.rates))));
    }
    lines
}

fn rates(rates: &Rates) -> String {
    let mut parts = vec![format!("${} in", rates.input), format!("${} out", rates.output)];
    parts.extend(rates.reasoning.map(|price| format!("${price} reasoning")));
    parts.extend(rates.cache_read.map(|price| format!("${price} from cache")));
    parts.extend(rates.cache_write.map(|price| format!("${price} into cache")));
    format!("{} for a million tokens", parts.join(", "))
}

/// What something cost; empty for what nobody bills.
pub(crate) fn cost(cost: &Cost) -> String {
    match cost {
        Cost::Estimated(money) => format!(", about {money}"),
        Cost::AtLeast(money) => format!(", at least {money}"),
        Cost::Included => String::new(),
        _ => ", cost unknown".to_owned(),
    }
}

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

fn reads(inputs: &[Modality]) -> String {
    inputs.iter().map(|input| input.as_str()).collect::<Vec<_>>().join(" ")
}

/// With blanks between thousands: `1 048 576`.
fn tokens(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use hermes_gateway::protocol::{Described, ModelFacts, Tier};

    use super::*;

    fn rates(input: &str, output: &str, read: Option<&str>) -> Rates {
        Rates {
            input: input.parse().unwrap(),
            output: output.parse().unwrap(),
            cache_read: read.map(|price| price.parse().unwrap()),
            ..Rates::default()
        }
    }

    fn prices() -> Prices {
        let tier = Tier { above: 200_000, rates: rates("4", "18", Some("0.4")) };
        Prices { rates: rates("2", "12", Some("0.2")), tiers: vec![tier] }
    }

    #[test]
    fn models_stand_in_columns_and_what_is_not_known_is_said() {
        let known = ModelFacts {
            context_window: Some(1_048_576),
            max_output_tokens: Some(65_536),
            inputs: Some(vec![Modality::Text, Modality::Image]),
            reasoning: Some(true),
            tools: Some(true),
            prices: Some(prices()),
        };
        let hit = |model: &str, facts, source| Hit { provider: "acme".into(), model: model.into(), facts, source };
        let list = ModelSearchResponse {
            models: vec![
                hit("big", known, Source::Snapshot),
                hit("odd\x1b[0m", ModelFacts::default(), Source::Provider),
            ],
            total: 3,
            checked: "2026-12-03".into(),
        };
        insta::assert_snapshot!(found(&list, Style::default()), @r"
        PROVIDER  MODEL    WINDOW     OUTPUT   READS       REASONS  $ IN/OUT PER MILLION                 KNOWN FROM
        acme      big      1 048 576  65 536   text image  yes      2.00 / 12.00, more for long prompts  bundled catalogue
        acme      odd␛[0m  unknown    unknown  unknown     unknown  unknown                              provider's list
        1 more; add words, or --limit 3
        ");
        assert!(found(&ModelSearchResponse::default(), Style::default()).starts_with("No known model"));
    }

    #[test]
    fn a_model_is_shown_with_the_source_of_every_fact() {
        let known = Described {
            known_as: Some("big".into()),
            page: Some("acme.example/pricing".into()),
            context_window: Some(Fact { value: 9000, source: Source::Config }),
            max_output_tokens: Some(Fact { value: 65_536, source: Source::Provider }),
            inputs: Some(Fact { value: vec![Modality::Text], source: Source::Snapshot }),
            reasoning: Some(Fact { value: false, source: Source::Family }),
            prices: Some(Fact { value: prices(), source: Source::Snapshot }),
            ..Described::default()
        };
        let response = ModelShowResponse {
            provider: "acme".into(),
            model: "acme/big".into(),
            known,
            also_at: vec!["openrouter".into()],
            checked: "2026-12-03".into(),
        };
        insta::assert_snapshot!(shown(&response, Style::default()), @r"
        acme/big at acme
        window    9 000 tokens (configuration)
        output    at most 65 536 tokens (provider's list)
        reads     text (bundled catalogue)
        reasons   no (usual in its family)
        tools     unknown
        price     $2.00 in, $12.00 out, $0.20 from cache for a million tokens (list prices in the bundled catalogue)
                  prompts above 200 000 tokens: $4.00 in, $18.00 out, $0.40 from cache for a million tokens
        known as  big
        also at   openrouter
        page      acme.example/pricing (read 2026-12-03)
        ");
        let near = ModelShowResponse { known: Described { local: true, ..Described::default() }, ..response };
        assert!(shown(&near, Style::default()).contains("price     nothing is billed"));
    }

    #[test]
    fn costs_say_how_sure_they_are() {
        let money = "2".parse::<hermes_gateway::protocol::Price>().unwrap().of(1_500_000);
        assert_eq!(cost(&Cost::Estimated(money)), ", about $3.00");
        assert_eq!(cost(&Cost::AtLeast(money)), ", at least $3.00");
        assert_eq!((cost(&Cost::Included), cost(&Cost::Unknown)), (String::new(), ", cost unknown".to_owned()));
    }

    #[test]
    fn thousands_are_kept_apart() {
        for (count, text) in [(0, "0"), (999, "999"), (8192, "8 192"), (1_048_576, "1 048 576")] {
            assert_eq!(tokens(count), text);
        }
    }
}
