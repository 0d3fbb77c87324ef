//! How servers are reached: what `network` of the configuration says, as the one way of a process.

use hermes_providers::{Network, Transport};
use secrecy::ExposeSecret as _;

use crate::compose::wrong;
use crate::config::{Config, ConfigError, Keys, Scope};
use crate::protocol::RpcError;

/// The way to all servers, those that give tokens among them.
///
/// # Errors
/// The file of own authorities cannot be read.
pub(crate) async fn transport(scope: &Scope, config: &Config, keys: &Keys) -> Result<Transport, RpcError> {
    let (proxy, no_proxy) = config.network.proxy_in(keys.env());
    let proxy = proxy.map(|proxy| keys.expand(proxy.expose_secret()).into());
    let mut network = Network { proxy, no_proxy, ..Network::default() };
    if let Some(file) = &config.network.ca_file {
        let path = scope.home.join(file);
        let unreadable = |error: std::io::Error| {
            let error = ConfigError::Unreadable { path: path.clone(), reason: error.to_string() };
            wrong(error.code(), error.to_string())
        };
        network.extra_roots_pem = tokio::fs::read(&path).await.map_err(unreadable)?;
    }
    Ok(Transport::new(network))
}
