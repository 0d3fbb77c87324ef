//! The credentials of a home, for the person who owns them: `hermes auth`. Reads and writes `auth.json`; no gateway is needed.

use hermes_providers::credential::device::{LoggedIn, Login, begin_login};
use hermes_providers::credential::file::{AuthDoc, AuthFile, AuthFileError, Entry, EntryKind};
use hermes_providers::credential::pool::{Health, Row, Status};
use hermes_providers::credential::{SeededKey, rows, system_now};
use hermes_providers::{Profile, Profiles};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;

use crate::compose::{with_problems, wrong};
use crate::config::dotenv::is_placeholder;
use crate::config::{Config, Env, Keys, Scope};
use crate::lent::Lender;
use crate::protocol::RpcError;
use crate::{network, providers};

/// Longest label, in characters.
const LABEL_MAX_CHARS: usize = 60;
/// The id of what this program does not keep itself.
const ELSEWHERE: &str = "-";
/// Where what a person adds stands: behind the keys of variables, which come first.
const MANUAL_PRIORITY: i64 = 100;

/// One credential, as it is shown. Nothing of its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuthRow {
    /// The provider's id.
    pub provider: String,
    /// Its id among the provider's credentials.
    pub id: String,
    /// What people call it.
    pub label: String,
    /// `api_key` or `oauth`; of others' secrets `external_command`, `external_file` or `service_account`.
    pub kind: String,
    /// `env:NAME`, `manual`, `device_code` and so on; the setting, the command or the file of what is kept elsewhere.
    pub source: String,
    /// `ok`, `exhausted` or `dead`; `ended` for a token that nothing renews, `missing` for a file that is not there.
    pub status: String,
    /// Whether requests are let in with it when its turn comes: a key of the configuration goes before all others, and what
    /// somebody else keeps is asked for when there is nothing else.
    pub used: bool,
    /// When it is free again, in milliseconds since the epoch.
    pub until_ms: Option<i64>,
    /// When its token ends, in milliseconds since the epoch.
    pub expires_at_ms: Option<i64>,
    /// Models that it may not be asked for now.
    pub resting_models: Vec<String>,
    /// Why it is not well.
    pub why: String,
}

/// A login that waits for a person.
pub struct PendingLogin {
    provider: String,
    label: String,
    login: Login,
}

impl PendingLogin {
    /// Where the person goes.
    #[must_use]
    pub fn address(&self) -> &str {
        self.login.verification_uri_complete.as_deref().unwrap_or(&self.login.verification_uri)
    }

    /// What the person types there.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.login.user_code
    }
}

/// The credentials of one home.
pub struct Auth {
    scope: Scope,
    file: AuthFile,
    keys: Keys,
    profiles: Profiles,
    /// What is wrong with profiles of the user's.
    problems: Vec<RpcError>,
    config: Config,
}

fn told(error: &AuthFileError) -> RpcError {
    RpcError { code: error.code().to_owned(), message: error.to_string(), usage: false }
}

impl Auth {
    /// Those of `scope`.
    ///
    /// # Errors
    /// The configuration or `.env` cannot be read.
    pub fn of(scope: &Scope, env: Env) -> Result<Self, RpcError> {
        let config_error = |error: crate::config::ConfigError| wrong(error.code(), error.to_string());
        let (profiles, problems) = providers::load(&scope.home)?;
        Ok(Self {
            scope: scope.clone(),
            file: AuthFile::at(scope.auth_json()),
            keys: Keys::load(scope, env).map_err(config_error)?,
            profiles,
            problems,
            config: Config::load(scope).map_err(config_error)?,
        })
    }

    /// The provider's own name, and its profile if it has one of its own.
    fn provider(&self, name: &str) -> Result<(String, Option<&Profile>), RpcError> {
        if let Some(profile) = self.profiles.get(name).filter(|profile| profile.id != hermes_providers::CUSTOM) {
            return Ok((profile.id.clone(), Some(profile)));
        }
        let custom = name.strip_prefix("custom:").unwrap_or(name);
        if self.config.providers.contains_key(custom) || name.starts_with("custom") {
            return Ok((custom.to_owned(), None));
        }
        let known: Vec<&str> = self.profiles.iter().map(|profile| profile.id.as_str()).collect();
        let error = wrong("HM0207", format!("provider {name:?} is not known; known are {}", known.join(", ")));
        Err(with_problems(error, &self.problems))
    }

    fn seeded(&self, provider: &str) -> Vec<SeededKey> {
        let of_profile = self.profiles.get(provider).map(|profile| profile.env_keys.clone()).unwrap_or_default();
        let named = self.config.providers.get(provider).and_then(|entry| entry.key_env.clone());
        // The file is read anew each time, and says which of them were removed.
        self.keys.all_seeded(named.iter().chain(&of_profile).map(String::as_str))
    }

    /// Every credential, or those of one provider.
    ///
    /// # Errors
    /// The provider is not known, or the file cannot be understood.
    pub fn list(&self, only: Option<&str>) -> Result<Vec<AuthRow>, RpcError> {
        let doc = self.file.read().map_err(|error| told(&error))?;
        let mut names: Vec<String> = match only {
            Some(name) => vec![self.provider(name)?.0],
            None => {
                let known = self.profiles.iter().map(|profile| profile.id.clone());
                known.chain(self.config.providers.keys().cloned()).chain(doc.providers().map(str::to_owned)).collect()
            }
        };
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Ok(names.iter().flat_map(|name| self.shown(name, &doc, only.is_some())).collect())
    }

    /// Everything that could let a provider in, in the order in which it goes.
    fn shown(&self, provider: &str, doc: &AuthDoc, is_named: bool) -> Vec<AuthRow> {
        let mut all: Vec<AuthRow> = self.configured(provider).into_iter().collect();
        let is_configured = !all.is_empty();
        all.extend(self.pooled(provider, doc).into_iter().map(|row| AuthRow { used: !is_configured, ..row }));
        let lender = Lender { keys: &self.keys, scope: &self.scope };
        let place = self.profiles.get(provider).and_then(|profile| lender.place_of(profile));
        // A file that a bundled profile looks for and that nobody has is no news.
        if let Some(place) = place.filter(|place| place.there || is_named) {
            let status = if place.there { "ok" } else { "missing" };
            let used = all.is_empty();
            all.push(AuthRow { used, ..elsewhere(provider, place.kind, &place.source, status) });
        }
        all
    }

    /// The key that the configuration names.
    fn configured(&self, provider: &str) -> Option<AuthRow> {
        let is_set = |key: &Option<SecretString>| key.as_ref().is_some_and(|key| !key.expose_secret().is_empty());
        let named = self.config.model.provider.as_deref();
        let same =
            |name: &str| name == provider || self.profiles.get(name).is_some_and(|profile| profile.id == provider);
        let source = if named.is_some_and(same) && is_set(&self.config.model.api_key) {
            "model.api_key in config.yaml".to_owned()
        } else if self.config.providers.get(provider).is_some_and(|entry| is_set(&entry.api_key)) {
            format!("providers.{provider}.api_key in config.yaml")
        } else {
            return None;
        };
        Some(elsewhere(provider, "api_key", &source, "ok"))
    }

    /// Those of variables and of `auth.json`.
    fn pooled(&self, provider: &str, doc: &AuthDoc) -> Vec<AuthRow> {
        let now = system_now()();
        let mut all = rows(provider, &self.seeded(provider), doc, 0);
        all.sort_by(|a, b| (a.priority, &a.id).cmp(&(b.priority, &b.id)));
        let show = |row: Row| {
            let (status, until_ms) = match row.health.status {
                Status::Dead => ("dead", None),
                Status::Exhausted(rest) if rest.until_ms > now => ("exhausted", Some(rest.until_ms)),
                Status::Ok | Status::Exhausted(_) => ("ok", None),
            };
            let entry = doc.entry(provider, &row.id);
            let is_over = entry.as_ref().is_some_and(|entry| {
                entry.refresh_token.is_none() && entry.expires_at_ms.is_some_and(|ends| ends <= now)
            });
            let status = if is_over && status == "ok" { "ended" } else { status };
            let resting = row.health.models.iter().filter(|(_, rest)| rest.until_ms > now);
            let resting_models: Vec<String> = resting.map(|(model, _)| model.clone()).collect();
            let is_well = status == "ok" && resting_models.is_empty();
            AuthRow {
                provider: provider.to_owned(),
                kind: if entry.as_ref().is_some_and(|e| e.kind == EntryKind::OAuth) { "oauth" } else { "api_key" }
                    .into(),
                expires_at_ms: entry.and_then(|entry| entry.expires_at_ms),
                status: status.to_owned(),
                used: true,
                until_ms,
                resting_models,
                why: if is_well { String::new() } else { row.health.why },
                id: row.id,
                label: row.label,
                source: row.source,
            }
        };
        all.into_iter().map(show).collect()
    }

    /// Adds a key, and gives it an id.
    ///
    /// # Errors
    /// The provider is not known, the text is no key, or the file cannot be written.
    pub fn add_key(&self, provider: &str, label: Option<&str>, key: &str) -> Result<AuthRow, RpcError> {
        let (provider, _) = self.provider(provider)?;
        let key = key.trim();
        if is_placeholder(key) || key.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(wrong("HM0211", "what was given is no key: it is too short, an example, or holds blanks"));
        }
        let entry = Entry {
            id: new_id(),
            label: label_of(label, "key"),
            priority: MANUAL_PRIORITY,
            source: "manual".to_owned(),
            access_token: Some(SecretString::from(key.to_owned())),
            ..Entry::default()
        };
        self.put(&provider, &entry)
    }

    fn put(&self, provider: &str, entry: &Entry) -> Result<AuthRow, RpcError> {
        let write = self.file.update(|doc| (doc.put(provider, entry), true));
        write.map_err(|error| told(&error))?;
        let rows = self.list(Some(provider))?;
        rows.into_iter()
            .find(|row| row.id == entry.id)
            .ok_or_else(|| wrong("HM2022", "the new credential is not there"))
    }

    /// Begins a login with a code that is typed elsewhere.
    ///
    /// # Errors
    /// The provider has no such login, or could not be asked.
    pub async fn begin_login(&self, provider: &str, label: Option<&str>) -> Result<PendingLogin, RpcError> {
        let (provider, profile) = self.provider(provider)?;
        let Some(oauth) = profile.and_then(|profile| profile.oauth.clone()) else {
            return Err(wrong(
                "HM0214",
                format!("{provider} has no login that is configured; `hermes auth add {provider}` takes a key"),
            ));
        };
        let transport = network::transport(&self.scope, &self.config, &self.keys).await?;
        let login = begin_login(&oauth, &transport).await.map_err(|error| failed(&error.to_string()))?;
        Ok(PendingLogin { provider, label: label_of(label, "login"), login })
    }

    /// Waits for the person, and keeps what the login brings. A login of the same label is replaced.
    ///
    /// # Errors
    /// The person said no, the time is over, or the file cannot be written.
    pub async fn finish_login(&self, pending: PendingLogin) -> Result<AuthRow, RpcError> {
        let PendingLogin { provider, label, login } = pending;
        let brought = login.wait(&system_now()).await.map_err(|error| failed(&error.to_string()))?;
        let LoggedIn { access_token, refresh_token, expires_at_ms } = brought;
        let doc = self.file.read().map_err(|error| told(&error))?;
        let known = doc.entries(&provider).into_iter().find(|e| e.kind == EntryKind::OAuth && e.label == label);
        let entry = Entry {
            id: known.map_or_else(new_id, |known| known.id),
            label,
            kind: EntryKind::OAuth,
            priority: MANUAL_PRIORITY,
            source: "device_code".to_owned(),
            access_token: Some(access_token),
            refresh_token,
            expires_at_ms,
            ..Entry::default()
        };
        self.put(&provider, &entry)
    }

    /// Takes a credential out: by id, label or source. One of a variable is remembered as removed.
    ///
    /// # Errors
    /// There is no such one, or several; or the file cannot be written.
    pub fn remove(&self, provider: &str, which: &str) -> Result<AuthRow, RpcError> {
        let row = self.find(provider, which)?;
        if row.id == ELSEWHERE {
            let message = format!("{} is kept elsewhere; take it out of there, or change the profile", row.source);
            return Err(wrong("HM0214", message));
        }
        let change = |doc: &mut AuthDoc| {
            if row.source.starts_with("env:") {
                doc.suppress(&row.provider, &row.source, true);
            }
            doc.remove(&row.provider, &row.id);
            ((), true)
        };
        self.file.update(change).map_err(|error| told(&error))?;
        Ok(row)
    }

    /// Forgets what credentials went through, so that they are asked again now; variables that were removed come back.
    ///
    /// # Errors
    /// There is no such one, or the file cannot be written.
    pub fn reset(&self, provider: &str, which: Option<&str>) -> Result<Vec<AuthRow>, RpcError> {
        let (name, _) = self.provider(provider)?;
        let only = which.map(|which| self.find(provider, which)).transpose()?.map(|row| row.id);
        let change = |doc: &mut AuthDoc| {
            for mut entry in doc.entries(&name) {
                if only.as_ref().is_none_or(|id| *id == entry.id) {
                    // Newer than what another process may still know of it.
                    entry.health = Health { changed_at_ms: system_now()(), ..Health::default() };
                    entry.refresh = None;
                    doc.put(&name, &entry);
                }
            }
            for key in self.seeded(&name).iter().filter(|_| only.is_none()) {
                doc.suppress(&name, &key.source(), false);
            }
            ((), true)
        };
        self.file.update(change).map_err(|error| told(&error))?;
        self.list(Some(&name))
    }

    fn find(&self, provider: &str, which: &str) -> Result<AuthRow, RpcError> {
        let rows = self.list(Some(provider))?;
        let is_it = |row: &&AuthRow| {
            row.id == which || row.label == which || row.source.strip_prefix("env:").is_some_and(|name| name == which)
        };
        let mut found = rows.iter().filter(is_it);
        match (found.next(), found.next()) {
            (Some(row), None) => Ok(row.clone()),
            (Some(_), Some(_)) => Err(wrong("HM0214", format!("{which:?} fits several; give the id"))),
            (None, _) => {
                Err(wrong("HM0214", format!("{provider} has no credential {which:?}; `hermes auth list` shows them")))
            }
        }
    }
}

/// A row for what is neither in a variable nor in `auth.json`.
fn elsewhere(provider: &str, kind: &str, source: &str, status: &str) -> AuthRow {
    AuthRow {
        provider: provider.to_owned(),
        id: ELSEWHERE.to_owned(),
        label: "kept elsewhere".to_owned(),
        kind: kind.to_owned(),
        source: source.to_owned(),
        status: status.to_owned(),
        used: true,
        until_ms: None,
        expires_at_ms: None,
        resting_models: Vec::new(),
        why: String::new(),
    }
}

/// How long it is until a time, for people.
#[must_use]
pub fn wait(until_ms: i64) -> String {
    let seconds = (until_ms - system_now()()).max(0) / 1_000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn failed(message: &str) -> RpcError {
    RpcError { code: "HM2023".to_owned(), message: message.to_owned(), usage: false }
}

fn label_of(label: Option<&str>, usual: &str) -> String {
    let label: String =
        label.unwrap_or(usual).trim().chars().filter(|c| !c.is_control()).take(LABEL_MAX_CHARS).collect();
    if label.is_empty() { usual.to_owned() } else { label }
}

/// Six hexadecimal digits, as the Python program's.
fn new_id() -> String {
    format!("{:06x}", fastrand::u32(..) & 0x00ff_ffff)
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
