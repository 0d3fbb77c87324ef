//! Which providers there are: the bundled profiles, and those of the user in `model-providers` of the home, which win.
//!
//! A file of the user's that cannot be used is left out and told; no other provider is touched by it.

use std::path::{Path, PathBuf};

use hermes_providers::{KeyRule, Profile, Profiles};
use secrecy::ExposeSecret as _;

use crate::compose::{Parts, wrong};
use crate::config::{Keys, Lookup};
use crate::lent::Lender;
use crate::llama;
use crate::protocol::{
    ProviderDetail, ProviderValue, ProvidersListParams, ProvidersListResponse, Request, Response, RpcError,
};

/// The folder in the home.
const FOLDER: &str = "model-providers";
/// Largest file of a profile.
const MAX_PROFILE_BYTES: u64 = 256 * 1024;
/// Most files that are read.
const MAX_PROFILE_FILES: usize = 256;

/// Where the user's own profiles are.
pub(crate) fn folder(home: &Path) -> PathBuf {
    home.join(FOLDER)
}

/// All profiles, and what is wrong with files of the user's.
///
/// # Errors
/// A damaged build: a bundled profile that cannot be read.
pub(crate) fn load(home: &Path) -> Result<(Profiles, Vec<RpcError>), RpcError> {
    let bundled = Profiles::bundled().map_err(|error| wrong("HM0206", error.to_string()))?;
    let (files, mut problems) = read(&folder(home));
    let pairs = files.iter().map(|(file, text)| (file.as_str(), text.as_str()));
    let (profiles, errors) = bundled.with_home(pairs);
    problems.extend(errors.iter().map(|error| wrong(error.code(), error.to_string())));
    Ok((profiles, problems))
}

/// The files in order of their names.
fn read(folder: &Path) -> (Vec<(String, String)>, Vec<RpcError>) {
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (files, problems),
        Err(error) => return (files, vec![wrong("HM2040", format!("{}: {error}", folder.display()))]),
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.sort();
    if paths.len() > MAX_PROFILE_FILES {
        let told = format!("{}: more than {MAX_PROFILE_FILES} files; the rest is not read", folder.display());
        problems.push(wrong("HM2040", told));
        paths.truncate(MAX_PROFILE_FILES);
    }
    for path in paths {
        let told = |what: &dyn std::fmt::Display| wrong("HM2040", format!("{}: {what}", path.display()));
        match std::fs::metadata(&path) {
            Ok(known) if known.len() > MAX_PROFILE_BYTES => {
                problems.push(told(&format!("larger than {MAX_PROFILE_BYTES} bytes")));
                continue;
            }
            _ => {}
        }
        match std::fs::read_to_string(&path) {
            Ok(text) => files.push((path.display().to_string(), text)),
            Err(error) => problems.push(told(&error)),
        }
    }
    (files, problems)
}

/// Answers what is asked of providers; any other request is given back.
pub(crate) fn answer(parts: &Parts, request: Request) -> Result<Result<Response, RpcError>, Request> {
    match request {
        Request::ProvidersList(params) => Ok(list(parts, &params).map(Response::Providers)),
        other => Err(other),
    }
}

fn list(parts: &Parts, params: &ProvidersListParams) -> Result<ProvidersListResponse, RpcError> {
    let (_, _, profiles) = parts.known();
    let providers = match params.provider.as_deref() {
        None => profiles.iter().map(|profile| detail(parts, profile)).collect(),
        Some(name) => match profiles.get(name) {
            Some(profile) => vec![detail(parts, profile)],
            None => {
                let known: Vec<&str> = profiles.iter().map(|profile| profile.id.as_str()).collect();
                return Err(wrong("HM0207", format!("provider {name:?} is not known; known are {}", known.join(", "))));
            }
        },
    };
    Ok(ProvidersListResponse {
        providers,
        folder: parts.providers_folder().display().to_string(),
        problems: parts.profile_problems().to_vec(),
    })
}

fn detail(parts: &Parts, profile: &Profile) -> ProviderDetail {
    let (config, keys, profiles) = parts.known();
    let source = profile.source.to_string();
    let entry = config.providers.get(&profile.id);
    let (address, of_address) = match (entry.and_then(|entry| entry.base_url.as_deref()), variable(keys, profile)) {
        (Some(url), _) => (keys.expand(url), format!("providers.{} in config.yaml", profile.id)),
        (None, Some(found)) => found,
        (None, None) => (profile.base_url.clone(), source.clone()),
    };
    let (key, of_key) = key(parts, profile);
    let model = profile.default_model.clone().unwrap_or_default();
    let (wire, of_wire) = wire(profile, &address, &model, &source);
    // A provider whose secret others keep may do without a key, and not without that.
    let needs_none = profile.key == KeyRule::Optional
        && profile.external_login.is_none()
        && profile.service_account.is_none()
        && profile.oauth.is_none();
    let managed = profile.managed.then(|| llama::lack(parts.scope(), config, keys.env()).unwrap_or_default());
    let lacks = match managed {
        Some(lack) => lack,
        None if key.is_empty() && !needs_none => "no key is set".to_owned(),
        None => String::new(),
    };
    let mut values = vec![
        ("address", address, of_address),
        ("wire", wire, of_wire),
        ("key", key, of_key),
        ("key_variables", profile.env_keys.join(", "), source.clone()),
        ("model", model, source.clone()),
        ("signup", profile.signup_url.clone().unwrap_or_default(), source.clone()),
    ];
    if profile.managed {
        values.splice(..1, llama::values(parts.scope(), config, keys.env()));
    }
    let value = |(name, value, source): (&str, String, String)| ProviderValue {
        name: name.to_owned(),
        source: if value.is_empty() { String::new() } else { source },
        value,
    };
    ProviderDetail {
        id: profile.id.clone(),
        name: profile.name.clone(),
        aliases: profile.aliases.clone(),
        source,
        hides_bundled: profiles.hidden(&profile.id).is_some(),
        ready: lacks.is_empty(),
        lacks,
        values: values.into_iter().map(value).collect(),
    }
}

/// The address that a variable sets.
fn variable(keys: &Keys, profile: &Profile) -> Option<(String, String)> {
    let name = profile.base_url_env.as_deref()?;
    let (url, place) = keys.value(name)?;
    Some((keys.expand(url), format!("{name} ({place})")))
}

/// `set` and where; never the key. The order is the one in which requests are let in.
fn key(parts: &Parts, profile: &Profile) -> (String, String) {
    let (config, keys, _) = parts.known();
    let entry = config.providers.get(&profile.id);
    if entry.and_then(|entry| entry.api_key.as_ref()).is_some_and(|key| !key.expose_secret().is_empty()) {
        return ("set".to_owned(), format!("providers.{}.api_key in config.yaml", profile.id));
    }
    let named = entry.and_then(|entry| entry.key_env.as_deref());
    for name in named.into_iter().chain(profile.env_keys.iter().map(String::as_str)) {
        if let Lookup::Found { place, .. } = keys.key(name) {
            return ("set".to_owned(), format!("{name} ({place})"));
        }
    }
    if keys.has_login(&profile.id) {
        return ("set".to_owned(), "auth.json".to_owned());
    }
    let lender = Lender { keys, scope: parts.scope() };
    match lender.place_of(profile) {
        Some(place) if place.there => ("kept elsewhere".to_owned(), format!("{}: {}", place.kind, place.source)),
        _ => (String::new(), String::new()),
    }
}

/// The wire, and whether the host or the profile says so.
fn wire(profile: &Profile, address: &str, model: &str, source: &str) -> (String, String) {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = host.rsplit('@').next().unwrap_or(host).split(':').next().unwrap_or(host);
    let mode = profile.mode_at(host, path, model);
    let of_host = mode != profile.api_mode;
    let from = if of_host { format!("the host {host}, whatever the profile says") } else { source.to_owned() };
    (mode.as_str().to_owned(), from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_without_the_folder_has_the_bundled_providers() {
        let home = tempfile::tempdir().unwrap();
        let (profiles, problems) = load(home.path()).unwrap();
        assert!(problems.is_empty() && profiles.get("openai").is_some());
    }

    #[test]
    fn b38_files_of_the_home_win_and_bad_ones_are_told_with_their_line() {
        let home = tempfile::tempdir().unwrap();
        let folder = folder(home.path());
        std::fs::create_dir(&folder).unwrap();
        let good = "id = 'groq'\nname = 'Mine'\napi_mode = 'chat_completions'\nbase_url = 'https://x.example/v1'\n\
                    key = 'optional'\n";
        std::fs::write(folder.join("a.toml"), good).unwrap();
        std::fs::write(folder.join("b.toml"), "id = 'b'\nwhat = 1\n").unwrap();
        std::fs::write(folder.join("c.txt"), "not a profile").unwrap();
        std::fs::write(folder.join("d.toml"), [0xff, 0xfe]).unwrap();
        let (profiles, problems) = load(home.path()).unwrap();
        assert_eq!(profiles.get("groq").unwrap().name, "Mine");
        let told: Vec<String> = problems.iter().map(|error| format!("{} {}", error.code, error.message)).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told.iter().any(|line| line.contains("b.toml:2: ") && line.starts_with("HM2040")), "{told:?}");
        assert!(told.iter().any(|line| line.contains("d.toml: ")), "{told:?}");
        assert!(profiles.get("openai").is_some());
    }
}
