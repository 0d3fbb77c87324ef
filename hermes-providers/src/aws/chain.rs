//! The chain: where credentials are found, and how temporary ones are renewed.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use secrecy::SecretString;
use tokio::io::AsyncReadExt as _;

use crate::aws::ini::{self, Kind, Section};
use crate::aws::sources::{AwsSources, WebIdentity};
use crate::aws::{DEFAULT_REGION, region_of, runtime_url, sts};
use crate::credential::{Credentials, Next, Outcome, Secret, Ticket};
use crate::error::{ErrorClass, ProviderError};

/// Temporary keys are renewed when they end sooner than this. The request that is signed last may wait that long before
/// AWS reads its signature.
pub const REFRESH_AHEAD_MS: u64 = 300_000;
/// Largest file of profiles.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// What was found.
#[derive(Clone)]
struct Found {
    secret: Secret,
    /// Where it was, for people.
    label: String,
    base_url: Option<String>,
    ends: Option<SystemTime>,
}

impl Found {
    fn ticket(&self) -> Ticket {
        Ticket {
            id: self.id(),
            secret: self.secret.clone(),
            base_url: self.base_url.clone(),
            label: self.label.clone(),
            lease: None,
        }
    }

    /// The place and the key, which is not secret; temporary keys have one each.
    fn id(&self) -> String {
        match &self.secret {
            Secret::Aws { access_key_id, .. } => format!("{}:{access_key_id}", self.label),
            _ => self.label.clone(),
        }
    }

    fn ends_within(&self, span: Duration, now: SystemTime) -> bool {
        self.ends.is_some_and(|ends| ends.duration_since(now).is_ok_and(|left| left < span) || ends <= now)
    }
}

type Finding = BoxFuture<'static, Result<Arc<Found>, ProviderError>>;

#[derive(Default)]
struct State {
    found: Option<Arc<Found>>,
    /// The search that is under way, for all who wait. Theirs: when nobody waits any more it is dropped.
    search: Option<WeakShared<Finding>>,
    /// The credential that AWS refused last.
    refused: Option<String>,
}

/// AWS credentials by the chain of [`AwsSources`]. Nothing is read before the first request; files are read again when
/// AWS refuses what was in them, and temporary keys are renewed [`REFRESH_AHEAD_MS`] before they end. When that fails, the
/// old ones are used until they end.
pub struct AwsCredentials {
    sources: Arc<AwsSources>,
    state: Mutex<State>,
}

impl fmt::Debug for AwsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsCredentials").field("sources", &self.sources).finish_non_exhaustive()
    }
}

impl AwsCredentials {
    /// The chain over these sources.
    #[must_use]
    pub fn new(sources: AwsSources) -> Self {
        Self { sources: Arc::new(sources), state: Mutex::default() }
    }

    /// Held for a few assignments and never over a wait; a panic in between would leave nothing half done.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The search that is under way, or a new one. Whoever waits drives it.
    fn search(&self, state: &mut State) -> Shared<Finding> {
        let running = state.search.as_ref().and_then(WeakShared::upgrade).filter(|search| search.peek().is_none());
        if let Some(search) = running {
            return search;
        }
        let sources = Arc::clone(&self.sources);
        let search = async move { find(&sources).await.map(Arc::new) }.boxed().shared();
        state.search = search.downgrade();
        search
    }
}

#[async_trait]
impl Credentials for AwsCredentials {
    async fn take(&self, _: &str) -> Result<Ticket, ProviderError> {
        let now = SystemTime::now();
        let (search, old) = {
            let mut state = self.state();
            let old = state.found.clone();
            match &old {
                Some(found) if !found.ends_within(Duration::from_millis(REFRESH_AHEAD_MS), now) => {
                    return Ok(found.ticket());
                }
                _ => (self.search(&mut state), old),
            }
        };
        match search.await {
            Ok(found) => {
                self.state().found = Some(Arc::clone(&found));
                Ok(found.ticket())
            }
            Err(error) => match old.filter(|old| !old.ends_within(Duration::ZERO, now)) {
                Some(old) => {
                    tracing::warn!(code = error.code(), "AWS credentials were not renewed: {}", error.message);
                    Ok(old.ticket())
                }
                None => Err(error),
            },
        }
    }

    fn report(&self, ticket: &Ticket, _: &str, outcome: Outcome<'_>) -> Next {
        let mut state = self.state();
        match outcome {
            Outcome::Answered => {
                state.refused = None;
                Next::Same
            }
            Outcome::Failed(error) if error.class == ErrorClass::Auth => {
                // A late answer about keys that were renewed meanwhile says nothing about the new ones.
                if state.found.as_ref().is_none_or(|found| found.id() == ticket.id) {
                    state.found = None;
                }
                let is_first = state.refused.as_deref() != Some(ticket.id.as_str());
                state.refused = Some(ticket.id.clone());
                // What was refused may be out of date: look once more, and no second time for the same.
                if is_first && !matches!(ticket.secret, Secret::Key(_)) { Next::Another } else { Next::Same }
            }
            Outcome::Failed(_) => Next::Same,
        }
    }
}

/// Goes through the chain.
async fn find(sources: &AwsSources) -> Result<Found, ProviderError> {
    let name = sources.profile.as_deref().unwrap_or("default");
    // A file that nobody needs must not stop anything; a profile that was named must be there.
    let profile = Profile::read(sources, name).await;
    let of_profile = profile.as_ref().ok().and_then(|profile| profile.member("region")).map(str::to_owned);
    let at = Place::of(sources, of_profile);
    if let Some(bearer) = &sources.bearer {
        return Ok(at.found(Secret::key(bearer.clone()), "AWS_BEARER_TOKEN_BEDROCK", None));
    }
    if let Some(keys) = &sources.keys {
        let secret = at.secret(&keys.access_key_id, keys.secret_access_key.clone(), keys.session_token.clone());
        return Ok(at.found(secret, "AWS_ACCESS_KEY_ID", None));
    }
    if let Some(identity) = &sources.web_identity {
        return at.assume(identity, sources, "AWS_WEB_IDENTITY_TOKEN_FILE").await;
    }
    let profile = profile?;
    let label = format!("profile {name}");
    if let Some(identity) = profile.web_identity() {
        return at.assume(&identity, sources, &label).await;
    }
    if let Some((id, secret)) = profile.member("aws_access_key_id").zip(profile.member("aws_secret_access_key")) {
        let token = profile.member("aws_session_token").map(|token| SecretString::from(token.to_owned()));
        return Ok(at.found(at.secret(id, SecretString::from(secret.to_owned()), token), &label, None));
    }
    Err(profile.nothing(name, sources.profile.is_some()))
}

/// Region and address.
struct Place {
    region: String,
    base_url: Option<String>,
}

impl Place {
    /// The region of the address, of the environment, of the profile, or the first one.
    fn of(sources: &AwsSources, of_profile: Option<String>) -> Self {
        let host = sources.runtime_url.as_deref().and_then(|url| url.split_once("://")).map(|(_, rest)| rest);
        let host = host.and_then(|rest| rest.split(['/', ':', '?']).next());
        let region = host.and_then(region_of).map(str::to_owned);
        let region = region.or_else(|| sources.region.clone()).or(of_profile);
        let region = region.unwrap_or_else(|| DEFAULT_REGION.to_owned());
        let base_url = sources.runtime_url.clone().or_else(|| Some(runtime_url(&region)));
        Self { region, base_url }
    }

    fn secret(&self, id: &str, secret: SecretString, token: Option<SecretString>) -> Secret {
        Secret::Aws {
            access_key_id: id.to_owned(),
            secret_access_key: secret,
            session_token: token,
            region: self.region.clone(),
        }
    }

    fn found(&self, secret: Secret, label: &str, ends: Option<SystemTime>) -> Found {
        Found { secret, label: label.to_owned(), base_url: self.base_url.clone(), ends }
    }

    async fn assume(&self, identity: &WebIdentity, sources: &AwsSources, label: &str) -> Result<Found, ProviderError> {
        let url = sources.sts_url.as_deref();
        let session = sts::assume_role(identity, &self.region, url, &sources.transport).await?;
        let secret = self.secret(&session.access_key_id, session.secret_access_key, Some(session.session_token));
        Ok(self.found(secret, label, Some(session.ends)))
    }
}

/// One profile of both files.
#[derive(Default)]
struct Profile {
    credentials: Option<Section>,
    config: Option<Section>,
}

impl Profile {
    async fn read(sources: &AwsSources, name: &str) -> Result<Self, ProviderError> {
        let mut profile = Self::default();
        for (file, kind) in [(&sources.credentials_file, Kind::Credentials), (&sources.config_file, Kind::Config)] {
            let Some(text) = (match file {
                Some(file) => read_text(file, MAX_FILE_BYTES).await?,
                None => None,
            }) else {
                continue;
            };
            let section = ini::profile(&text, kind, name);
            match kind {
                Kind::Credentials => profile.credentials = section,
                Kind::Config => profile.config = section,
            }
        }
        Ok(profile)
    }

    /// The file of credentials wins.
    fn member(&self, key: &str) -> Option<&str> {
        let both = [&self.credentials, &self.config];
        let member = both.into_iter().flatten().find_map(|section| section.get(key));
        member.map(String::as_str).filter(|value| !value.is_empty())
    }

    fn web_identity(&self) -> Option<WebIdentity> {
        let (role_arn, token_file) = self.member("role_arn").zip(self.member("web_identity_token_file"))?;
        Some(WebIdentity {
            role_arn: role_arn.to_owned(),
            token_file: token_file.into(),
            session_name: self.member("role_session_name").map(str::to_owned),
        })
    }

    /// Why there are no credentials, and what to do.
    fn nothing(&self, name: &str, is_named: bool) -> ProviderError {
        const OTHERS: [(&str, &str); 4] = [
            ("sso_session", "single sign-on"),
            ("sso_start_url", "single sign-on"),
            ("credential_process", "a credential process"),
            ("source_profile", "another profile's role"),
        ];
        let other = OTHERS.iter().find(|(key, _)| self.member(key).is_some());
        let what = match other {
            Some((_, kind)) => format!(
                "the AWS profile `{name}` uses {kind}, which this program does not do itself; run \
                 `aws configure export-credentials --profile {name} --format env` and put what it says into .env"
            ),
            None if is_named && self.credentials.is_none() && self.config.is_none() => {
                format!("there is no AWS profile `{name}`; check AWS_PROFILE")
            }
            None => "no AWS credentials; set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and \
                     AWS_SECRET_ACCESS_KEY, in .env, or run `aws configure`"
                .to_owned(),
        };
        ProviderError::new(ErrorClass::Configuration, what)
    }
}

/// The text of a file; `None` when it is not there.
pub(super) async fn read_text(file: &Path, max_bytes: u64) -> Result<Option<String>, ProviderError> {
    let read = async {
        let mut bytes = Vec::new();
        tokio::fs::File::open(file).await?.take(max_bytes + 1).read_to_end(&mut bytes).await?;
        Ok::<_, io::Error>(bytes)
    };
    let wrong = |what: &str| {
        ProviderError::new(ErrorClass::Configuration, format!("{} cannot be used: {what}", file.display()))
    };
    match read.await {
        Ok(bytes) if bytes.len() as u64 > max_bytes => Err(wrong("it is too large")),
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| wrong("it is no text")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrong(&error.to_string())),
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
