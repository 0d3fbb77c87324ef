//! Google's service accounts: a key file becomes access tokens of an hour each.
//!
//! The grant is RFC 7523 (`urn:ietf:params:oauth:grant-type:jwt-bearer`) as
//! `developers.google.com/identity/protocols/oauth2/service-account` describes it: a token that this program signs with
//! RS256 is exchanged at the address that the key file names. A file that `gcloud auth application-default login` wrote
//! (`authorized_user`) is taken too: its refresh token stays the same with every use. Neither file is ever written.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;

use crate::credential::fetched::{Fetched, SecretSource};
use crate::credential::refresh::{TOKEN_TIMEOUT_MS, TokenAnswer, read_answer};
use crate::credential::{Fingerprint, Secret};
use crate::error::{ErrorClass, ProviderError};
use crate::http::{Transport, post_form};
use crate::text_file::read_text;

/// The grant of a signed token (RFC 7523, 2.1).
const JWT_GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Longest life of the signed token that Google takes.
const ASSERTION_LIFE_S: u64 = 3_600;
/// Largest key file; a real one has 2 kB.
const FILE_MAX_BYTES: u64 = 64 * 1024;
/// Google's token endpoint, for files that name none.
const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
/// The location whose host has no name of its own.
const GLOBAL: &str = "global";
/// The host of models, behind the location where there is one.
const HOST: &str = "aiplatform.googleapis.com";

/// The table `[service_account]` of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceAccount {
    /// Variables that may hold the path of the key file; the first that is set counts.
    #[serde(default)]
    pub key_file_env: Vec<String>,
    /// The key file when no variable is set. `~/` is the user's directory.
    #[serde(default)]
    pub key_file: Option<String>,
    /// What is asked for, with blanks between.
    pub scope: String,
    /// The address of the models, with `{host}`, `{project}` and `{location}` to be filled in; without it the profile's
    /// address is used.
    #[serde(default)]
    pub address: Option<String>,
    /// Variables that may hold the project; without one the key file's counts.
    #[serde(default)]
    pub project_env: Vec<String>,
    /// Variables that may hold the location; without one it is `global`.
    #[serde(default)]
    pub location_env: Vec<String>,
}

/// What this start of the program knows of a service account.
#[derive(Debug, Clone, Default)]
pub struct ServiceAccountPlace {
    /// The key file; `None`: nobody named one.
    pub key_file: Option<PathBuf>,
    /// The project, when a variable names it.
    pub project: Option<String>,
    /// The location, when a variable names it.
    pub location: Option<String>,
    /// The models' address when a person named one, which then counts.
    pub base_url: Option<String>,
}

/// The source of a service account's tokens.
pub struct ServiceAccountSource {
    account: ServiceAccount,
    place: ServiceAccountPlace,
    transport: Transport,
}

impl fmt::Debug for ServiceAccountSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccountSource").field("place", &self.place).finish_non_exhaustive()
    }
}

/// The parts of a key file that are needed.
#[derive(Deserialize)]
struct KeyFile {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    client_email: String,
    #[serde(default, deserialize_with = "secret")]
    private_key: SecretString,
    private_key_id: Option<String>,
    token_uri: Option<String>,
    project_id: Option<String>,
    quota_project_id: Option<String>,
    #[serde(default)]
    client_id: String,
    #[serde(default, deserialize_with = "secret")]
    client_secret: SecretString,
    #[serde(default, deserialize_with = "secret")]
    refresh_token: SecretString,
}

fn secret<'de, D: serde::Deserializer<'de>>(from: D) -> Result<SecretString, D::Error> {
    String::deserialize(from).map(SecretString::from)
}

fn failed(class: ErrorClass, code: &str, mut message: String) -> ProviderError {
    let code = format!("service_account_{code}");
    message.push_str(&format!(" ({code})"));
    let mut error = ProviderError::new(class, message);
    error.code = Some(code);
    error
}

impl ServiceAccountSource {
    /// Tokens of this account; they are asked for by `transport`.
    #[must_use]
    pub fn new(account: ServiceAccount, place: ServiceAccountPlace, transport: Transport) -> Self {
        Self { account, place, transport }
    }

    async fn file(&self) -> Result<(KeyFile, String), ProviderError> {
        let Some(path) = &self.place.key_file else {
            let names = self.account.key_file_env.join(" or ");
            let message = format!("no key file of a service account is named; set {names}");
            return Err(failed(ErrorClass::Configuration, "missing", message));
        };
        let shown = path.display();
        let unusable = |why: &str| failed(ErrorClass::Configuration, "unreadable", format!("{shown} {why}"));
        let text = read_text(path, FILE_MAX_BYTES).await.map_err(|why| unusable(&format!("cannot be used: {why}")))?;
        let text = text.ok_or_else(|| failed(ErrorClass::Configuration, "missing", format!("{shown} is not there")))?;
        // The parser's own words may hold a piece of the key.
        let file = serde_json::from_str(&text).map_err(|_| unusable("is no key file of a service account"))?;
        Ok((file, shown.to_string()))
    }

    /// What is sent to the token endpoint.
    fn form(&self, file: &KeyFile, shown: &str, now: SystemTime) -> Result<Vec<(&'static str, String)>, ProviderError> {
        let unusable = |why: &str| failed(ErrorClass::Configuration, "unreadable", format!("{shown} {why}"));
        match file.kind.as_str() {
            "service_account" => {
                let assertion = sign(file, &self.account.scope, now).map_err(unusable)?;
                Ok(vec![("grant_type", JWT_GRANT.to_owned()), ("assertion", assertion)])
            }
            "authorized_user" if !file.client_id.is_empty() => Ok(vec![
                ("grant_type", "refresh_token".to_owned()),
                ("refresh_token", file.refresh_token.expose_secret().to_owned()),
                ("client_id", file.client_id.clone()),
                ("client_secret", file.client_secret.expose_secret().to_owned()),
            ]),
            _ => Err(unusable(
                "is of a kind that this program does not use; `service_account` and `authorized_user` are",
            )),
        }
    }

    /// Where the models are.
    fn address(&self, file: &KeyFile) -> Result<Option<String>, ProviderError> {
        if self.place.base_url.is_some() {
            return Ok(self.place.base_url.clone());
        }
        let Some(address) = &self.account.address else { return Ok(None) };
        let project = self.place.project.as_ref().or(file.project_id.as_ref()).or(file.quota_project_id.as_ref());
        let project = project.ok_or_else(|| {
            let names = self.account.project_env.join(" or ");
            failed(ErrorClass::Configuration, "missing", format!("no project is named; set {names}"))
        })?;
        let location = self.place.location.as_deref().unwrap_or(GLOBAL);
        // They become a part of a host and of a path.
        let is_plain = |text: &str, more: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || more.contains(c))
        };
        if !is_plain(location, "") || !is_plain(project, ":.") {
            let message = "the project or the location is no name; check the variables that hold them".to_owned();
            return Err(failed(ErrorClass::Configuration, "unreadable", message));
        }
        let host = if location == GLOBAL { HOST.to_owned() } else { format!("{location}-{HOST}") };
        let filled = address.replace("{host}", &host).replace("{project}", project);
        Ok(Some(filled.replace("{location}", location)))
    }
}

/// A token of our own, signed with the account's key (RFC 7515, 7519).
fn sign(file: &KeyFile, scope: &str, now: SystemTime) -> Result<String, &'static str> {
    if file.client_email.is_empty() {
        return Err("names no account");
    }
    let begins = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let header = json!({ "alg": "RS256", "typ": "JWT", "kid": file.private_key_id });
    let claims = json!({
        "iss": file.client_email,
        "scope": scope,
        "aud": file.token_uri.as_deref().unwrap_or(TOKEN_URL),
        "iat": begins,
        "exp": begins.saturating_add(ASSERTION_LIFE_S),
    });
    let encode = |part: &serde_json::Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let mut token = format!("{}.{}", encode(&header), encode(&claims));
    let pem = file.private_key.expose_secret();
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| "holds no private key (PKCS #8 PEM)")?;
    let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der())
        .map_err(|_| "holds a key that is no RSA key of 2048 bits or more")?;
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), token.as_bytes(), &mut signature)
        .map_err(|_| "holds a key that cannot sign")?;
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    Ok(token)
}

#[async_trait]
impl SecretSource for ServiceAccountSource {
    async fn fetch(&self) -> Result<Fetched, ProviderError> {
        let (file, shown) = self.file().await?;
        let base_url = self.address(&file)?;
        let now = SystemTime::now();
        let form = self.form(&file, &shown, now)?;
        let url = file.token_uri.as_deref().unwrap_or(TOKEN_URL);
        let asked = post_form(&self.transport, url, &form, Duration::from_millis(TOKEN_TIMEOUT_MS)).await;
        let (status, body) = asked.map_err(|lost| {
            failed(ErrorClass::Timeout, "unreachable", format!("no token for {shown}: {}", lost.why))
        })?;
        match read_answer(status, &body, &form) {
            TokenAnswer::Tokens { access_token, expires_in_s, .. } => {
                let life = expires_in_s.and_then(|life| u64::try_from(life).ok());
                Ok(Fetched {
                    id: format!("{}:{shown}", Fingerprint::of(&access_token).as_str()),
                    secret: Secret::key(access_token),
                    label: format!("the key file {shown}"),
                    base_url,
                    ends: now.checked_add(Duration::from_secs(life.unwrap_or(ASSERTION_LIFE_S))),
                })
            }
            TokenAnswer::Refused { why } => Err(failed(
                ErrorClass::Auth,
                "refused",
                format!("the account of {shown} is refused ({why}); check the key, and this computer's clock"),
            )),
            TokenAnswer::NotNow { why } if status == 429 => {
                Err(failed(ErrorClass::RateLimit, "unreachable", format!("no token for {shown} now: {why}")))
            }
            TokenAnswer::NotNow { why } | TokenAnswer::Unknown { why } => {
                let class = if status >= 500 { ErrorClass::ServerError } else { ErrorClass::Auth };
                Err(failed(class, "unreachable", format!("no token for {shown}: {why}")))
            }
        }
    }
}
