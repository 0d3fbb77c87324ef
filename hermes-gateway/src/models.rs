//! What is known of models here: the bundled catalogue, and the lists of providers that are kept in `cache/models` of the
//! home, one file each.
//!
//! Nobody is asked unless a person wishes it: a turn begins with what is known.

use std::path::PathBuf;

use hermes_providers::catalogue::{
    Catalogue, Cost, Described, ListPlace, ListedModel, ModelFacts, Place, Refreshed, Source, cached_list, refresh_list,
};
use hermes_providers::credential::Secret;
use hermes_providers::http::is_near_address;
use hermes_providers::{PRACTICE, Usage, describe_local};
use hermes_store::{Clock as _, HostClock, UsageTotals};

use crate::compose::{Parts, wrong};
use crate::model::{Choice, Known, ModelFlags, choose};
use crate::protocol::{
    ModelRefreshParams, ModelRefreshResponse, ModelSearchParams, ModelSearchResponse, ModelShowParams,
    ModelShowResponse, Request, Response, RpcError,
};

/// Models of a search when nobody says how many.
const SEARCH_LIMIT: usize = 100;
/// Longest name of a provider that has a file.
const MAX_FILE_NAME_BYTES: usize = 64;

/// Answers what is asked of models; any other request is given back.
pub(crate) async fn answer(parts: &Parts, request: Request) -> Result<Result<Response, RpcError>, Request> {
    Ok(match request {
        Request::ModelSearch(params) => Ok(Response::Models(search(parts, &params).await)),
        Request::ModelShow(params) => show(parts, params).await.map(|shown| Response::ModelShown(Box::new(shown))),
        Request::ModelRefresh(params) => refresh(parts, params).await.map(Response::ModelsRefreshed),
        other => return Err(other),
    })
}

/// What is known of a model that was chosen; what the configuration says of it goes first.
pub(crate) fn described(parts: &Parts, catalogue: &Catalogue, choice: &Choice) -> Described {
    let configured = ModelFacts { context_window: choice.context_window, ..ModelFacts::default() };
    let local = is_local(parts, &choice.profile, &choice.base_url);
    let mut known = catalogue.describe(Place { provider: &choice.provider, local }, &choice.model, &configured);
    // A server that was found by looking for one told its window when it was found.
    let (config, ..) = parts.known();
    if let Some(window) = known.context_window.as_mut().filter(|_| choice.context_window != config.model.context_length)
        && parts.profiles().get(&choice.profile).is_some_and(|profile| profile.local && !profile.managed)
    {
        window.source = Source::Provider;
    }
    known
}

/// Everything that is known before a turn: the lists that are kept, and what a local server that is used says of its model.
pub(crate) async fn gather(parts: &Parts) -> Catalogue {
    let catalogue = with_all_cached(parts).await;
    // What this program runs itself tells its window when it runs.
    let local = |choice: &&Choice| !parts.is_managed(choice) && is_local(parts, &choice.profile, &choice.base_url);
    let Some(choice) = parts.choice().as_ref().ok().filter(local) else { return catalogue };
    match describe_local(&choice.profile, &choice.base_url, &choice.model, choice.key.as_ref()).await {
        None => catalogue,
        Some(told) => {
            let facts = told.facts();
            catalogue.with_list(&choice.provider, vec![ListedModel { id: told.id, facts }])
        }
    }
}

/// What the recorded usage of a conversation cost, entry by entry.
pub(crate) async fn costs(parts: &Parts, usage: &[UsageTotals]) -> Vec<Cost> {
    let catalogue = with_all_cached(parts).await;
    let (config, ..) = parts.known();
    let of = |totals: &UsageTotals| {
        if totals.provider == PRACTICE {
            return Cost::Included;
        }
        if totals.unknown > 0 {
            return Cost::Unknown;
        }
        let entry = config.providers.get(&totals.provider).and_then(|entry| entry.base_url.as_deref());
        let local = is_local(parts, &totals.provider, entry.unwrap_or_default());
        let known =
            catalogue.describe(Place { provider: &totals.provider, local }, &totals.model, &ModelFacts::default());
        known.cost_of_sum(&Usage {
            input_uncached: Some(totals.input),
            cache_read: Some(totals.cache_read),
            cache_write: Some(totals.cache_write),
            output: Some(totals.output),
            reasoning: Some(totals.reasoning),
        })
    };
    usage.iter().map(of).collect()
}

/// Runs near the user: its own settings decide, and nothing is billed.
fn is_local(parts: &Parts, profile: &str, base_url: &str) -> bool {
    parts.profiles().get(profile).is_some_and(|profile| profile.local) || is_near_address(base_url)
}

async fn search(parts: &Parts, params: &ModelSearchParams) -> ModelSearchResponse {
    let catalogue = with_all_cached(parts).await;
    let words: Vec<&str> = params.words.iter().flat_map(|words| words.split_whitespace()).collect();
    let mut models = catalogue.search(&words);
    let total = models.len();
    models.truncate(if params.limit == 0 { SEARCH_LIMIT } else { params.limit });
    ModelSearchResponse { models, total, checked: catalogue.checked().to_owned() }
}

async fn show(parts: &Parts, params: ModelShowParams) -> Result<ModelShowResponse, RpcError> {
    let chosen = parts.choice();
    let Some(model) = params.model else {
        let choice = chosen.as_ref().map_err(Clone::clone)?;
        return Ok(ModelShowResponse {
            provider: choice.provider.clone(),
            model: choice.model.clone(),
            known: described(parts, &gather(parts).await, choice),
            also_at: Vec::new(),
            checked: Catalogue::bundled().checked().to_owned(),
        });
    };
    let catalogue = with_all_cached(parts).await;
    let mut also_at = catalogue.providers_of(&model);
    let in_use = chosen.as_ref().ok().filter(|choice| also_at.contains(&choice.provider) || also_at.is_empty());
    let provider = match (params.provider, in_use) {
        (Some(named), _) => parts.profiles().get(&named).map_or(named.clone(), |profile| profile.id.clone()),
        (None, Some(choice)) => choice.provider.clone(),
        (None, None) => also_at.first().cloned().unwrap_or_else(|| PRACTICE.to_owned()),
    };
    also_at.retain(|other| *other != provider);
    let base_url = in_use.filter(|choice| choice.provider == provider).map(|choice| choice.base_url.clone());
    let local = is_local(parts, &provider, &base_url.unwrap_or_default());
    let known = catalogue.describe(Place { provider: &provider, local }, &model, &ModelFacts::default());
    Ok(ModelShowResponse { provider, model, known, also_at, checked: catalogue.checked().to_owned() })
}

async fn refresh(parts: &Parts, params: ModelRefreshParams) -> Result<ModelRefreshResponse, RpcError> {
    let choice = match params.provider {
        None => parts.choice().clone()?,
        Some(provider) => {
            // Any model will do: it is its provider that is asked.
            let flags = ModelFlags { provider: Some(provider.clone()), model: Some("any".to_owned()) };
            let (config, keys, profiles) = parts.known();
            let chosen = choose(&flags, Known { config, keys, profiles }, Some(&[]))?;
            chosen.ok_or_else(|| {
                wrong("HM0209", format!("provider {provider:?} has no address; set its base_url in `providers`"))
            })?
        }
    };
    let (Some(place), Some(file)) = (place_of(parts, &choice), file_of(parts, &choice.provider)) else {
        return Err(wrong("HM0207", format!("provider {:?} has no list of models", choice.provider)));
    };
    let done = refresh_list(&place, &file, HostClock::new().now_ms(), true).await;
    let done = done.map_err(|error| wrong(error.code(), error.message))?;
    if let Refreshed::Stale(_, error) = done {
        return Err(RpcError { code: error.code().to_owned(), message: error.message, usage: false });
    }
    let changed = matches!(done, Refreshed::New(_));
    Ok(ModelRefreshResponse { provider: choice.provider, models: done.into_list().models.len(), changed })
}

/// Where the list of a provider is asked for; `None` for one that has no network.
fn place_of(parts: &Parts, choice: &Choice) -> Option<ListPlace> {
    let profile = parts.profiles().get(&choice.profile).filter(|profile| !profile.managed)?.clone();
    Some(ListPlace {
        profile,
        base_url: (!choice.base_url.is_empty()).then(|| choice.base_url.clone()),
        secret: choice.key.clone().map(Secret::key).unwrap_or_default(),
        transport: parts.transport().clone(),
    })
}

/// The file of a provider's list; `None` when its name cannot be one.
fn file_of(parts: &Parts, provider: &str) -> Option<PathBuf> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let good = !provider.is_empty() && provider.len() <= MAX_FILE_NAME_BYTES && provider.bytes().all(plain);
    good.then(|| parts.scope().cache_dir().join("models").join(format!("{provider}.json")))
}

/// With every list that is kept, of the places where the providers are now.
async fn with_all_cached(parts: &Parts) -> Catalogue {
    let mut catalogue = Catalogue::bundled();
    let any = tokio::fs::metadata(parts.scope().cache_dir().join("models")).await.is_ok();
    for profile in parts.profiles().iter().filter(|_| any) {
        let Some(file) = file_of(parts, &profile.id) else { continue };
        let chosen = parts.choice().as_ref().ok().filter(|choice| choice.provider == profile.id);
        let base_url = chosen.map(|choice| choice.base_url.clone()).filter(|base| !base.is_empty());
        let place = ListPlace {
            profile: profile.clone(),
            base_url,
            secret: Secret::None,
            transport: parts.transport().clone(),
        };
        if let Some(list) = cached_list(&place, &file).await {
            catalogue = catalogue.with_list(&profile.id, list.models);
        }
    }
    catalogue
}
