//! One provider.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::profile::{ApiMode, AuthHeader, KeyRule, Patience, Quirks};

/// One provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Canonical id.
    pub id: String,
    /// Other spellings.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// For people.
    pub name: String,
    /// The wire.
    pub api_mode: ApiMode,
    /// Where requests go, without the method's path; empty when only the user can say.
    pub base_url: String,
    /// The environment variable that may hold another base URL.
    #[serde(default)]
    pub base_url_env: Option<String>,
    /// Environment variables that may hold the key, first wins.
    #[serde(default)]
    pub env_keys: Vec<String>,
    /// Whether a key is needed.
    pub key: KeyRule,
    /// The header that carries it.
    #[serde(default)]
    pub auth_header: AuthHeader,
    /// Where a person gets a key or the program.
    #[serde(default)]
    pub signup_url: Option<String>,
    /// The model when the user named none.
    #[serde(default)]
    pub default_model: Option<String>,
    /// Runs on the user's own computer: found by probing, allowed to be slow.
    #[serde(default)]
    pub local: bool,
    /// This program runs the server itself: it has no address before that.
    #[serde(default)]
    pub managed: bool,
    /// Headers that go with every request. Never secrets.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// What differs for some models; the first rule that names a model counts.
    #[serde(default)]
    pub models: Vec<ModelRule>,
    /// Where the profile is from.
    #[serde(skip)]
    pub source: Source,
    /// How people log in, where the provider lets programs of others do that.
    #[cfg(feature = "http")]
    #[serde(default)]
    pub oauth: Option<crate::credential::device::OAuth>,
    /// Another program's login, which is only read.
    #[cfg(feature = "http")]
    #[serde(default)]
    pub external_login: Option<crate::credential::external::ExternalLogin>,
    /// Google's service accounts.
    #[cfg(feature = "http")]
    #[serde(default)]
    pub service_account: Option<crate::credential::service_account::ServiceAccount>,
    /// How long its models may be silent, where they need longer than others.
    #[serde(default)]
    pub patience: Vec<Patience>,
    /// How the wire differs.
    #[serde(default)]
    pub quirks: Quirks,
}

/// What differs for some models of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRule {
    /// Beginnings of the model's name.
    pub models: Vec<String>,
    /// The wire.
    pub api_mode: ApiMode,
}

/// Where a profile is from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Source {
    /// Part of this program.
    #[default]
    Bundled,
    /// A file of the user's.
    File(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundled => f.write_str("bundled"),
            Self::File(file) => f.write_str(file),
        }
    }
}
