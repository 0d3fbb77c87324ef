//! Where AWS credentials may be.

use std::fmt;
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use crate::http::Transport;

/// Keys of the environment.
#[derive(Clone)]
pub struct AwsEnvKeys {
    /// `AWS_ACCESS_KEY_ID`.
    pub access_key_id: String,
    /// `AWS_SECRET_ACCESS_KEY`.
    pub secret_access_key: SecretString,
    /// `AWS_SESSION_TOKEN`, of temporary keys.
    pub session_token: Option<SecretString>,
}

/// A role that a token from a file lets one take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebIdentity {
    /// `AWS_ROLE_ARN`.
    pub role_arn: String,
    /// `AWS_WEB_IDENTITY_TOKEN_FILE`; read anew for each renewal, because its owner renews it too.
    pub token_file: PathBuf,
    /// `AWS_ROLE_SESSION_NAME`.
    pub session_name: Option<String>,
}

/// Where AWS credentials may be. The first of these that is there counts: bearer key, keys of the environment, web identity
/// of the environment, the profile of the files.
#[derive(Clone, Default)]
pub struct AwsSources {
    /// A Bedrock API key (`AWS_BEARER_TOKEN_BEDROCK`), which needs no signature.
    pub bearer: Option<SecretString>,
    /// Keys of the environment.
    pub keys: Option<AwsEnvKeys>,
    /// The web identity of the environment.
    pub web_identity: Option<WebIdentity>,
    /// The profile of the files (`AWS_PROFILE`); `None`: `default`.
    pub profile: Option<String>,
    /// `~/.aws/credentials`.
    pub credentials_file: Option<PathBuf>,
    /// `~/.aws/config`.
    pub config_file: Option<PathBuf>,
    /// The region (`AWS_REGION`), which wins over the one of the profile.
    pub region: Option<String>,
    /// Where tokens are exchanged (`AWS_ENDPOINT_URL_STS`); `None`: at the region's own address.
    pub sts_url: Option<String>,
    /// Where the models are (`base_url` of the configuration, `AWS_ENDPOINT_URL_BEDROCK_RUNTIME`); `None`: at the region's
    /// own address.
    pub runtime_url: Option<String>,
    /// How the exchange of tokens is reached; the process's own.
    pub transport: Transport,
}

impl fmt::Debug for AwsEnvKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AwsEnvKeys(..)")
    }
}

impl fmt::Debug for AwsSources {
    /// Leaves the keys out, and addresses too, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsSources")
            .field("bearer", &self.bearer.is_some())
            .field("keys", &self.keys.is_some())
            .field("web_identity", &self.web_identity)
            .field("profile", &self.profile)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl AwsSources {
    /// The sources that these variables name; `home` is the user's home directory, where the files are when no variable
    /// says otherwise. Blank variables count as unset.
    ///
    /// ```
    /// use hermes_providers::aws::AwsSources;
    ///
    /// let variable = |name: &str| (name == "AWS_REGION").then(|| "eu-west-1".to_owned());
    /// let sources = AwsSources::from_variables(&variable, Some("/home/somebody".as_ref()));
    /// assert_eq!(sources.region.as_deref(), Some("eu-west-1"));
    /// assert!(sources.config_file.is_some_and(|file| file.ends_with(".aws/config")));
    /// ```
    #[must_use]
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<String>, home: Option<&Path>) -> Self {
        let get = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let file =
            |name: &str, usual: &str| get(name).map(PathBuf::from).or_else(|| Some(home?.join(".aws").join(usual)));
        let secret = |name: &str| get(name).map(SecretString::from);
        let keys = get("AWS_ACCESS_KEY_ID").zip(secret("AWS_SECRET_ACCESS_KEY"));
        let identity = get("AWS_ROLE_ARN").zip(get("AWS_WEB_IDENTITY_TOKEN_FILE"));
        Self {
            bearer: secret("AWS_BEARER_TOKEN_BEDROCK"),
            keys: keys.map(|(access_key_id, secret_access_key)| AwsEnvKeys {
                access_key_id,
                secret_access_key,
                session_token: secret("AWS_SESSION_TOKEN"),
            }),
            web_identity: identity.map(|(role_arn, token_file)| WebIdentity {
                role_arn,
                token_file: PathBuf::from(token_file),
                session_name: get("AWS_ROLE_SESSION_NAME"),
            }),
            profile: get("AWS_PROFILE").or_else(|| get("AWS_DEFAULT_PROFILE")),
            credentials_file: file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config_file: file("AWS_CONFIG_FILE", "config"),
            region: get("AWS_REGION").or_else(|| get("AWS_DEFAULT_REGION")),
            sts_url: get("AWS_ENDPOINT_URL_STS"),
            runtime_url: get("AWS_ENDPOINT_URL_BEDROCK_RUNTIME"),
            transport: Transport::default(),
        }
    }
}
