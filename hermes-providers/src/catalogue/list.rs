//! What providers list of their models, in the shapes that are in use.
//!
//! All shapes are read by one set of rules, field by field; what is missing or implausible stays unknown. Pages:
//! `openrouter.ai/docs/models` (OpenRouter), `platform.claude.com/docs/en/api/models/list` (Anthropic),
//! `ai.google.dev/api/models` (Gemini), `console.groq.com/docs/models` (Groq), `docs.mistral.ai/api` (Mistral),
//! `docs.together.ai/reference/models` (Together), `vercel.com/docs/ai-gateway` (AI Gateway).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalogue::{Modality, ModelFacts, Price, Prices, Rates};

/// Most models of one provider; further ones are left out.
pub const MAX_LISTED_MODELS: usize = 5000;
/// Longest name of a model.
const MAX_NAME_BYTES: usize = 256;
/// Smallest and largest number of tokens that is believed (section 7 of the reference: 1024 to 10 million).
const PLAUSIBLE_TOKENS: std::ops::RangeInclusive<u64> = 1024..=10_000_000;

/// A list that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// Not JSON.
    #[error("the list of models is no JSON")]
    NotJson,
    /// JSON of another kind.
    #[error("the answer holds no list of models")]
    NoList,
}

/// One model of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedModel {
    /// The name to ask for.
    pub id: String,
    /// What the provider says of it.
    #[serde(flatten)]
    pub facts: ModelFacts,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelPage {
    /// Its models, in the provider's order.
    pub models: Vec<ListedModel>,
    /// What to add to the query for the next page: a name and a value, not encoded.
    pub next: Option<(&'static str, String)>,
}

/// Reads one page.
///
/// # Errors
/// [`ListError`] for what is no list of models. Entries without a name are left out.
pub fn parse_model_page(body: &[u8]) -> Result<ModelPage, ListError> {
    let value: Value = serde_json::from_slice(body).map_err(|_| ListError::NotJson)?;
    let entries = value.get("data").or_else(|| value.get("models")).unwrap_or(&value);
    let entries = entries.as_array().ok_or(ListError::NoList)?;
    let models = entries.iter().filter_map(model).take(MAX_LISTED_MODELS).collect();
    Ok(ModelPage { models, next: next(&value) })
}

/// Anthropic: `has_more` and `last_id`. Gemini: `nextPageToken`.
fn next(value: &Value) -> Option<(&'static str, String)> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    if value.get("has_more").and_then(Value::as_bool) == Some(true) {
        return text("last_id").map(|last| ("after_id", last));
    }
    text("nextPageToken").map(|token| ("pageToken", token))
}

fn model(entry: &Value) -> Option<ListedModel> {
    let name = entry.get("id").or_else(|| entry.get("name"))?.as_str()?;
    let id = name.strip_prefix("models/").unwrap_or(name);
    if id.is_empty() || id.len() > MAX_NAME_BYTES {
        return None;
    }
    let facts = ModelFacts {
        context_window: tokens(
            entry,
            &[
                "/context_window",
                "/context_length",
                "/max_context_length",
                "/max_model_len",
                "/max_input_tokens",
                "/inputTokenLimit",
                "/top_provider/context_length",
            ],
        ),
        max_output_tokens: tokens(
            entry,
            &[
                "/max_completion_tokens",
                "/max_output_tokens",
                "/max_output_length",
                "/outputTokenLimit",
                "/top_provider/max_completion_tokens",
                "/max_tokens",
            ],
        ),
        inputs: inputs(entry),
        reasoning: capability(entry, &["reasoning", "thinking"]),
        tools: capability(entry, &["tools", "function_calling", "tool-use"]),
        prices: entry.get("pricing").and_then(prices),
    };
    Some(ListedModel { id: id.to_owned(), facts })
}

fn tokens(entry: &Value, places: &[&str]) -> Option<u64> {
    let plausible = |place: &&str| entry.pointer(place)?.as_u64().filter(|tokens| PLAUSIBLE_TOKENS.contains(tokens));
    places.iter().find_map(plausible)
}

fn inputs(entry: &Value) -> Option<Vec<Modality>> {
    let lists = ["/architecture/input_modalities", "/input_modalities", "/modalities/input"];
    if let Some(words) = lists.iter().find_map(|place| entry.pointer(place)?.as_array()) {
        let known: Vec<Modality> = words.iter().filter_map(|word| Modality::from_word(word.as_str()?)).collect();
        return (!known.is_empty()).then_some(known);
    }
    let images = capability(entry, &["vision", "image_input"])?;
    let mut known = vec![Modality::Text];
    known.extend(images.then_some(Modality::Image));
    known.extend((capability(entry, &["pdf_input"]) == Some(true)).then_some(Modality::Pdf));
    Some(known)
}

/// What a list says of a capability: a flag of its own, one in `capabilities` (with or without `supported` in it), or a
/// word in a list of words, which says no by its absence.
fn capability(entry: &Value, names: &[&str]) -> Option<bool> {
    for name in names {
        let flag = entry.get(name).or_else(|| entry.get("capabilities")?.get(name));
        let flag = flag.and_then(|flag| flag.as_bool().or_else(|| flag.get("supported")?.as_bool()));
        if flag.is_some() {
            return flag;
        }
    }
    let lists = ["supported_parameters", "supported_features", "tags"];
    let words: Vec<&Vec<Value>> = lists.iter().filter_map(|list| entry.get(list)?.as_array()).collect();
    if words.is_empty() {
        return None;
    }
    let has = |word: &Value| word.as_str().is_some_and(|word| names.contains(&word));
    Some(words.iter().any(|list| list.iter().any(has)))
}

/// Texts are dollars for one token, numbers are dollars for a million. A price without input and output is none; a
/// negative one is the word of a router that decides later.
fn prices(pricing: &Value) -> Option<Prices> {
    let rate = |names: &[&str]| {
        let found = names.iter().find_map(|name| pricing.get(name))?;
        match found {
            Value::String(text) => Price::from_usd_per_token(text).ok(),
            // The shortest text of a number that was written with few decimals is that text again.
            Value::Number(number) => number.to_string().trim_end_matches(".0").parse().ok(),
            _ => None,
        }
    };
    // For these a zero means "no such price", for input and output it means free.
    let extra = |names: &[&str]| rate(names).filter(|price| *price > Price::default());
    Some(Prices::flat(Rates {
        input: rate(&["prompt", "input"])?,
        output: rate(&["completion", "output"])?,
        cache_read: extra(&["input_cache_read", "input_cache_reads", "cached_input"]),
        cache_write: extra(&["input_cache_write", "input_cache_writes"]),
        reasoning: extra(&["internal_reasoning"]),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(json: &str) -> ListedModel {
        parse_model_page(json.as_bytes()).unwrap().models.remove(0)
    }

    #[test]
    fn openrouter_s_list_tells_everything() {
        let found = one(r#"{"data":[{"id":"acme/one","context_length":200000,
            "architecture":{"input_modalities":["text","image","file"]},
            "top_provider":{"context_length":180000,"max_completion_tokens":64000},
            "pricing":{"prompt":"0.000003","completion":"0.000015","input_cache_read":"0.0000003","image":"0.0048",
                       "input_cache_write":"0.00000375","internal_reasoning":"0"},
            "supported_parameters":["tools","reasoning","temperature"]}]}"#);
        assert_eq!((found.id.as_str(), found.facts.context_window), ("acme/one", Some(200_000)));
        assert_eq!(found.facts.max_output_tokens, Some(64_000));
        assert_eq!(found.facts.inputs, Some(vec![Modality::Text, Modality::Image, Modality::Pdf]));
        assert_eq!((found.facts.reasoning, found.facts.tools), (Some(true), Some(true)));
        let rates = found.facts.prices.unwrap().rates;
        assert_eq!((rates.input.to_string(), rates.output.to_string()), ("3.00".into(), "15.00".into()));
        assert_eq!(rates.cache_read.unwrap().to_string(), "0.30");
        assert_eq!(rates.cache_write.unwrap().to_string(), "3.75");
        assert_eq!(rates.reasoning, None);
    }

    #[test]
    fn a_router_s_price_is_unknown_and_a_free_one_is_nothing() {
        let router = one(r#"{"data":[{"id":"auto","pricing":{"prompt":"-1","completion":"-1"}}]}"#);
        assert_eq!(router.facts.prices, None);
        let free = one(r#"{"data":[{"id":"x:free","pricing":{"prompt":"0","completion":"0"}}]}"#);
        assert_eq!(free.facts.prices.unwrap().rates, Rates::default());
    }

    #[test]
    fn anthropic_s_list_has_pages_and_capabilities() {
        let page = parse_model_page(
            br#"{"data":[{"id":"claude-x","type":"model","max_input_tokens":1000000,"max_tokens":128000,
                "capabilities":{"image_input":{"supported":true},"pdf_input":{"supported":true},"thinking":{"supported":false}}}],
                "has_more":true,"first_id":"claude-x","last_id":"claude-x"}"#,
        )
        .unwrap();
        assert_eq!(page.next, Some(("after_id", "claude-x".to_owned())));
        let facts = &page.models[0].facts;
        assert_eq!((facts.context_window, facts.max_output_tokens), (Some(1_000_000), Some(128_000)));
        assert_eq!(facts.inputs, Some(vec![Modality::Text, Modality::Image, Modality::Pdf]));
        assert_eq!((facts.reasoning, facts.tools), (Some(false), None));
        let last = parse_model_page(br#"{"data":[],"has_more":false,"last_id":"claude-x"}"#).unwrap();
        assert_eq!(last, ModelPage::default());
    }

    #[test]
    fn gemini_s_list_has_names_with_a_front() {
        let page = parse_model_page(
            br#"{"models":[{"name":"models/gemini-x","inputTokenLimit":1048576,"outputTokenLimit":65536,"thinking":true}],
                "nextPageToken":"abc"}"#,
        )
        .unwrap();
        assert_eq!(page.next, Some(("pageToken", "abc".to_owned())));
        assert_eq!(page.models[0].id, "gemini-x");
        assert_eq!(page.models[0].facts.reasoning, Some(true));
        assert_eq!(page.models[0].facts.max_output_tokens, Some(65_536));
    }

    #[test]
    fn other_shapes_are_read_too() {
        let groq =
            one(r#"{"object":"list","data":[{"id":"l","context_window":131072,"max_completion_tokens":32768}]}"#);
        assert_eq!((groq.facts.context_window, groq.facts.max_output_tokens), (Some(131_072), Some(32_768)));
        let mistral = one(
            r#"{"data":[{"id":"m","max_context_length":32768,"capabilities":{"vision":false,"function_calling":true}}]}"#,
        );
        assert_eq!(mistral.facts.inputs, Some(vec![Modality::Text]));
        assert_eq!(mistral.facts.tools, Some(true));
        let together = one(r#"[{"id":"t","context_length":8192,"pricing":{"input":0.88,"output":3,"hourly":0}}]"#);
        let rates = together.facts.prices.unwrap().rates;
        assert_eq!((rates.input.to_string(), rates.output.to_string()), ("0.88".into(), "3.00".into()));
        let vercel =
            one(r#"{"data":[{"id":"v","context_window":200000,"max_tokens":64000,"tags":["vision","tool-use"],
                "pricing":{"input":"0.000001","output":"0.000005","input_cache_read":"0.0000001"}}]}"#);
        assert_eq!((vercel.facts.reasoning, vercel.facts.tools), (Some(false), Some(true)));
        assert_eq!(vercel.facts.inputs, Some(vec![Modality::Text, Modality::Image]));
        assert_eq!(vercel.facts.prices.unwrap().rates.cache_read.unwrap().to_string(), "0.10");
        let openai = one(r#"{"object":"list","data":[{"id":"gpt-x","object":"model","owned_by":"openai"}]}"#);
        assert_eq!(openai.facts, ModelFacts::default());
    }

    #[test]
    fn broken_lists_are_refused_and_broken_entries_left_out() {
        assert_eq!(parse_model_page(b"<html>"), Err(ListError::NotJson));
        for body in ["{}", r#"{"data":{}}"#, r#"{"error":{"message":"no"}}"#, "7"] {
            assert_eq!(parse_model_page(body.as_bytes()), Err(ListError::NoList), "{body}");
        }
        let odd = r#"[null, 5, {"id":7}, {"id":""}, {"id":"a","context_length":3}, {"id":"b","context_length":-8}]"#;
        let models = parse_model_page(odd.as_bytes()).unwrap().models;
        assert_eq!(models.len(), 2);
        assert!(
            models.iter().all(|model| model.facts.context_window.is_none()),
            "implausible numbers are not believed"
        );
    }

    #[test]
    fn what_was_read_can_be_kept_as_json() {
        let found = one(r#"[{"id":"t","context_length":8192,"pricing":{"input":0.88,"output":3}}]"#);
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(text, r#"{"id":"t","context_window":8192,"prices":{"input":"0.88","output":"3.00"}}"#);
        assert_eq!(serde_json::from_str::<ListedModel>(&text).unwrap(), found);
    }
}
