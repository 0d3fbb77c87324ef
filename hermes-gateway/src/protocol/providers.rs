//! What is asked of providers, and what is told of them.

use serde::{Deserialize, Serialize};

use super::RpcError;

/// Params of `providers/list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProvidersListParams {
    /// Only the provider of this id or alias.
    #[serde(default)]
    pub provider: Option<String>,
}

/// The providers that this program knows, and which of their files cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProvidersListResponse {
    /// In the order in which a key decides between them: the user's first.
    pub providers: Vec<ProviderDetail>,
    /// The folder of the user's own profiles.
    pub folder: String,
    /// Files that were left out, each with its line and reason.
    pub problems: Vec<RpcError>,
}

/// One provider, with the source of each value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProviderDetail {
    /// Its id.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Its other names.
    pub aliases: Vec<String>,
    /// `bundled`, or the file that it is from.
    pub source: String,
    /// Whether a bundled profile of this id is not used, because the user's stands in for it.
    pub hides_bundled: bool,
    /// Whether it can be asked: a key was found or none is needed, and what this program runs itself can be started.
    pub ready: bool,
    /// What it lacks to be ready; empty when it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lacks: String,
    /// What is used, in an order for people. Never a key: only where it is from.
    pub values: Vec<ProviderValue>,
}

/// One value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProviderValue {
    /// `address`, `wire`, `key`, `model`, `key_variables` or `signup`; `program`, `model_file` and `window` of a server that
    /// this program runs itself, in place of an address.
    pub name: String,
    /// The value; empty when there is none.
    pub value: String,
    /// Where it is from: a profile's source, `config.yaml`, a variable with its place, or the host; empty for no value.
    pub source: String,
}
