//! `network`: how the servers of models are reached.

use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};

use super::env::Env;
use super::error::ConfigError;
use super::values::View;

/// The word for the proxies that the environment names.
const FROM_ENVIRONMENT: &str = "environment";
/// Variables that name a proxy, first wins.
const PROXY_VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
/// Variables that name hosts that are reached directly.
const NO_PROXY_VARIABLES: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// `network`.
#[derive(Debug, Clone, Default)]
pub struct NetworkConfig {
    /// `network.proxy`: an address, or `environment`.
    pub proxy: Option<SecretString>,
    /// `network.no_proxy`: hosts that are reached directly all the same.
    pub no_proxy: Vec<String>,
    /// `network.ca_file`: certificates of own authorities, as PEM, beside the system's.
    pub ca_file: Option<PathBuf>,
}

impl NetworkConfig {
    /// The proxy and the hosts without one, with what the environment says when it is asked.
    pub(crate) fn proxy_in(&self, env: &Env) -> (Option<SecretString>, Vec<String>) {
        let from_env = self.proxy.as_ref().is_some_and(|proxy| proxy.expose_secret().trim() == FROM_ENVIRONMENT);
        if !from_env {
            return (self.proxy.clone(), self.no_proxy.clone());
        }
        let of = |names: &[&str]| names.iter().find_map(|name| env.get(name)).filter(|text| !text.trim().is_empty());
        let direct = of(&NO_PROXY_VARIABLES).unwrap_or_default().split(',').map(str::trim).map(str::to_owned);
        let direct = self.no_proxy.iter().cloned().chain(direct).filter(|host| !host.is_empty()).collect();
        (of(&PROXY_VARIABLES).map(|proxy| proxy.to_owned().into()), direct)
    }
}

pub(super) fn network(root: &View<'_>) -> Result<NetworkConfig, ConfigError> {
    let view = root.section("network")?;
    Ok(NetworkConfig {
        proxy: view.key("proxy").secret()?,
        no_proxy: view
            .key("no_proxy")
            .list(true, "a list of hosts, for example `[internal.example, 10.0.0.0/8]`")?
            .unwrap_or_default(),
        ca_file: view.key("ca_file").text("the path of a PEM file")?.map(PathBuf::from),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn check(text: &str, vars: &[(&str, &str)], proxy: Option<&str>, direct: &[&str]) {
        let config = Config::parse(Path::new("config.yaml"), text).unwrap().network;
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let env = Env { vars, ..Env::default() };
        let (found, hosts) = config.proxy_in(&env);
        assert_eq!(found.as_ref().map(|proxy| proxy.expose_secret()), proxy, "{text}");
        assert_eq!(hosts, direct, "{text}");
    }

    #[test]
    fn a_proxy_is_used_when_it_is_named_and_the_environments_when_it_is_asked_for() {
        let vars = [("HTTPS_PROXY", "http://env:1"), ("NO_PROXY", "a.example, b.example,")];
        check("", &vars, None, &[]);
        check("network: {proxy: 'http://p:1', no_proxy: c.example}", &vars, Some("http://p:1"), &["c.example"]);
        check("network: {proxy: environment}", &vars, Some("http://env:1"), &["a.example", "b.example"]);
        check("network: {proxy: environment, no_proxy: [x]}", &[], None, &["x"]);
    }

    #[test]
    fn i24_a_proxys_password_is_not_shown() {
        let text = "network: {proxy: 'http://user:hunter2@p:1', ca_file: /etc/own.pem}";
        let config = Config::parse(Path::new("config.yaml"), text).unwrap();
        let said = format!("{config:?}{:?}{:?}", config.show(), config.get("network.proxy"));
        assert!(!said.contains("hunter2") && said.contains("own.pem"), "{said}");
    }
}
