//! The chain: where credentials are found, and how temporary ones are renewed.

use std::path::Path;
use std::time::SystemTime;

use async_trait::async_trait;
use secrecy::SecretString;

use crate::aws::ini::{self, Kind, Section};
use crate::aws::sources::{AwsSources, WebIdentity};
use crate::aws::{DEFAULT_REGION, region_of, runtime_url, sts};
use crate::credential::{Fetched, FetchedCredentials, Secret, SecretSource};
use crate::error::{ErrorClass, ProviderError};
use crate::text_file::read_text;

/// Largest file of profiles.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// AWS credentials by the chain of [`AwsSources`]. Nothing is read before the first request; files are read again when
/// AWS refuses what was in them, and temporary keys are renewed before they end.
pub type AwsCredentials = FetchedCredentials<AwsSources>;

#[async_trait]
impl SecretSource for AwsSources {
    async fn fetch(&self) -> Result<Fetched, ProviderError> {
        find(self).await
    }

    /// A bearer key is what it is.
    fn may_change(&self) -> bool {
        self.bearer.is_none()
    }
}

/// Goes through the chain.
async fn find(sources: &AwsSources) -> Result<Fetched, ProviderError> {
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

    fn found(&self, secret: Secret, label: &str, ends: Option<SystemTime>) -> Fetched {
        // The place and the key, which is not secret; temporary keys have one each.
        let id = match &secret {
            Secret::Aws { access_key_id, .. } => format!("{label}:{access_key_id}"),
            _ => label.to_owned(),
        };
        Fetched { secret, id, label: label.to_owned(), base_url: self.base_url.clone(), ends }
    }

    async fn assume(
        &self,
        identity: &WebIdentity,
        sources: &AwsSources,
        label: &str,
    ) -> Result<Fetched, ProviderError> {
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
                Some(file) => text_of(file, MAX_FILE_BYTES).await?,
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
pub(super) async fn text_of(file: &Path, max_bytes: u64) -> Result<Option<String>, ProviderError> {
    let wrong = |what: String| {
        ProviderError::new(ErrorClass::Configuration, format!("{} cannot be used: {what}", file.display()))
    };
    read_text(file, max_bytes).await.map_err(wrong)
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
