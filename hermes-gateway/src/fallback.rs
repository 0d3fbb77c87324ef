//! The models that stand in: from what `fallback_providers` says to where requests go, and why an entry cannot work.
//!
//! An entry is resolved like the configured model itself, over a configuration in which it stands in `model`'s place: the
//! same rules for names, addresses and keys, and nothing of the chosen model's key or address goes to another provider.

use secrecy::ExposeSecret as _;

use crate::compose::wrong;
use crate::config::{Config, FallbackConfig, Lookup, ModelConfig};
use crate::model::{Choice, Known, ModelFlags, choose};
use crate::protocol::RpcError;

/// One entry, resolved: its place in the file, and where its requests go or why it cannot work.
pub(crate) type Entry = (String, Result<Choice, RpcError>);

/// Every entry in its order: where its requests go, or what is wrong with it. A wrong one is left out of the chain and no
/// reason to refuse work: a home of the Python program may name what only that one has.
pub(crate) fn choose_fallbacks(main: &Choice, known: Known<'_>) -> Vec<Entry> {
    let mut before = vec![main.clone()];
    let mut chain = Vec::with_capacity(known.config.fallbacks.len());
    for entry in &known.config.fallbacks {
        let place = entry.place(&known.config.file);
        let chosen = resolve(entry, known).and_then(|choice| match before.iter().find(|other| same(other, &choice)) {
            None => Ok(choice),
            Some(_) => Err(wrong(
                "HM0208",
                format!(
                    "model {:?} at {} is asked before it already; take the entry out",
                    choice.model, choice.provider
                ),
            )),
        });
        let chosen = chosen.map_err(|error| RpcError { message: format!("{place}: {}", error.message), ..error });
        before.extend(chosen.as_ref().ok().cloned());
        chain.push((place, chosen));
    }
    chain
}

/// What would fail together with the other: same place, same model, same key.
fn same(one: &Choice, other: &Choice) -> bool {
    let key = |choice: &Choice| choice.key.as_ref().map(|key| key.expose_secret().to_owned());
    one.base_url == other.base_url && one.model == other.model && key(one) == key(other)
}

/// Where the requests of one entry go.
pub(crate) fn resolve(entry: &FallbackConfig, known: Known<'_>) -> Result<Choice, RpcError> {
    let model = stand_in(entry, known)?;
    let mut config: Config = known.config.clone();
    config.model = model;
    let chosen = choose(&ModelFlags::default(), Known { config: &config, ..known }, Some(&[]));
    // The rules speak of `model`, in whose place the entry stood.
    let name = |text: String| text.replace("model.", "its ");
    let chosen = chosen.map_err(|error| RpcError { message: name(error.message), ..error })?;
    match chosen {
        // It has no language: what it wrote would stand for an answer.
        Some(choice) if choice.is_practice() => {
            Err(wrong("HM0207", "the practice model cannot stand in for another; name a provider"))
        }
        Some(choice) => Ok(Choice {
            key_source: match (&entry.key_env, entry.api_key.is_some()) {
                (Some(variable), false) => format!("{variable} of its entry"),
                (_, true) => "api_key of its entry".to_owned(),
                (None, false) => choice.key_source,
            },
            reason: "fallback_providers names it".to_owned(),
            ..choice
        }),
        None => Err(wrong("HM0209", "it has no address; write its base_url")),
    }
}

/// The entry as if it were `model`.
fn stand_in(entry: &FallbackConfig, known: Known<'_>) -> Result<ModelConfig, RpcError> {
    let main = &known.config.model;
    let variable = match entry.key_env.as_deref().filter(|_| entry.api_key.is_none()) {
        None => None,
        Some(name) => match known.keys.key(name) {
            Lookup::Found { key, .. } => Some(key),
            Lookup::Placeholder | Lookup::Missing => {
                let file = known.keys.file().display();
                return Err(wrong("HM0211", format!("{name} is not set: write it in {file} or into the environment")));
            }
        },
    };
    // Another model of the same server: its address and its key are the chosen model's. A server of its own has its own.
    let inherits = entry.base_url.is_none() && entry.provider.is_some() && entry.provider == main.provider;
    let from_main = main.clone();
    let own_key = entry.api_key.clone().or(variable);
    Ok(ModelConfig {
        provider: entry.provider.clone().filter(|name| !name.eq_ignore_ascii_case("auto")),
        default: entry.model.clone(),
        base_url: entry.base_url.clone().or_else(|| from_main.base_url.filter(|_| inherits)),
        api_key: own_key.or_else(|| from_main.api_key.filter(|_| inherits)),
        api_mode: entry.api_mode.clone().or_else(|| from_main.api_mode.filter(|_| inherits)),
        context_length: entry.context_length,
        max_tokens: None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hermes_providers::Profiles;

    use super::*;
    use crate::config::{DotEnv, Env, Keys};

    fn chain(yaml: &str, vars: &[(&str, &str)]) -> Vec<String> {
        let config = Config::parse(Path::new("/h/config.yaml"), yaml).unwrap();
        let profiles = Profiles::bundled().unwrap();
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let env = Env { vars, user_home: None, cwd: "/".into() };
        let keys = Keys::of(DotEnv::parse(""), env, "/h/.env".into());
        let known = Known { config: &config, keys: &keys, profiles: &profiles };
        let main = choose(&ModelFlags::default(), known, Some(&[])).unwrap().unwrap();
        let told = |(_, chosen): (String, Result<Choice, RpcError>)| match chosen {
            Ok(choice) => {
                let key = choice.key.map_or_else(String::new, |key| key.expose_secret().to_owned());
                format!("{}/{} {} {key} {:?}", choice.provider, choice.model, choice.base_url, choice.context_window)
            }
            Err(error) => format!("{} {}", error.code, error.message),
        };
        choose_fallbacks(&main, known).into_iter().map(told).collect()
    }

    const MAIN: &str =
        "model: {provider: custom, base_url: 'http://a:1/v1', default: m, api_key: key-of-a, context_length: 9000}\n";

    #[test]
    fn an_entry_has_its_own_provider_s_address_and_key() {
        let yaml = format!(
            "{MAIN}providers: {{mine: {{base_url: 'http://c:1/v1', api_key: key-of-c}}}}\nfallback_providers:\n  - {{provider: openai, model: x}}\n  - {{provider: mine, model: y, context_length: 70000}}\n  - {{provider: custom, base_url: 'http://b:1/v1', model: z, key_env: KEY_OF_B}}\n"
        );
        let found = chain(&yaml, &[("OPENAI_API_KEY", "key-of-openai"), ("KEY_OF_B", "sk-9f8a7b6c5d")]);
        assert!(found[0].starts_with("openai/x https://") && found[0].ends_with("key-of-openai None"), "{}", found[0]);
        assert_eq!(found[1], "mine/y http://c:1/v1 key-of-c Some(70000)");
        assert_eq!(found[2], "custom/z http://b:1/v1 sk-9f8a7b6c5d None");
    }

    #[test]
    fn i24_b55_the_chosen_model_s_key_goes_to_its_own_server_only() {
        let yaml = format!(
            "{MAIN}fallback_providers:\n  - {{provider: custom, base_url: 'http://b:1/v1', model: z}}\n  - {{base_url: 'http://c:1/v1', model: z}}\n  - {{provider: custom, model: smaller}}\n"
        );
        assert_eq!(
            chain(&yaml, &[]),
            [
                "custom/z http://b:1/v1  None",
                "custom/z http://c:1/v1  None",
                "custom/smaller http://a:1/v1 key-of-a None"
            ]
        );
    }

    #[test]
    fn i27_an_entry_that_cannot_work_says_where_it_is_and_what_to_do() {
        let yaml = format!(
            "{MAIN}fallback_providers:\n  - {{provider: nobody, model: x}}\n  - {{provider: openai, model: x}}\n  - {{provider: openai, model: x, key_env: NOT_SET}}\n  - {{provider: practice}}\n  - {{provider: custom, model: m}}\n  - {{base_url: 'http://b:1/v1'}}\n  - {{base_url: 'http://b:1/v1', model: x, api_mode: smoke_signals}}\n"
        );
        let found = chain(&yaml, &[]);
        let codes = ["HM0207", "HM0211", "HM0211", "HM0207", "HM0208", "HM0210", "HM0213"];
        for (at, (code, told)) in codes.iter().zip(&found).enumerate() {
            let front = format!("{code} fallback_providers in /h/config.yaml, line {}: ", at + 3);
            assert!(told.starts_with(&front), "{told}");
        }
        assert!(found[2].contains("NOT_SET"), "{}", found[2]);
    }
}
