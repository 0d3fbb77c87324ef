//! What all models of a process share: the HTTP clients, and what is known of each host.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Client, Url};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::error::{ErrorClass, ProviderError};
use crate::http::breaker::Breaker;
use crate::http::client::{Clients, Network, token_client};
use crate::mode::Repairs;

/// Hosts that are remembered. More are served as well, with a memory of their own that ends with the model.
const MAX_HOSTS: usize = 256;
/// Models of one host of which it is remembered what they refuse.
const MAX_MODELS: usize = 256;

/// The one way to all servers. Cheap to make and to clone: nothing is opened or read before the first request. Give the
/// same one to every model of a process: they share connections, and the knowledge that a host gives no answer.
#[derive(Clone, Default)]
pub struct Transport(Arc<Shared>);

#[derive(Default)]
struct Shared {
    network: Network,
    plain: OnceCell<Clients>,
    secure: OnceCell<Clients>,
    hosts: Mutex<HashMap<String, Arc<Host>>>,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("network", &self.0.network).finish_non_exhaustive()
    }
}

impl Transport {
    /// Servers are reached like this.
    #[must_use]
    pub fn new(network: Network) -> Self {
        Self(Arc::new(Shared { network, ..Shared::default() }))
    }

    /// The clients for this URL, built at the first need.
    pub(super) async fn clients(&self, url: &Url) -> Result<&Clients, ProviderError> {
        let shared = &self.0;
        if !shared.network.is_secure(url) {
            return shared.plain.get_or_try_init(|| async { Clients::build(false, &shared.network) }).await;
        }
        let build = || async {
            let network = shared.network.clone();
            on_a_thread(move || Clients::build(true, &network)).await
        };
        shared.secure.get_or_try_init(build).await
    }

    /// A client for one exchange of a token at this address; it keeps no connection and follows no redirect.
    pub(crate) async fn token_client(&self, url: &Url) -> Result<Client, ProviderError> {
        let network = self.0.network.clone();
        if !network.is_secure(url) {
            return token_client(false, &network);
        }
        on_a_thread(move || token_client(true, &network)).await
    }

    /// What is known of the host of this URL.
    pub(super) fn host(&self, url: &Url) -> Arc<Host> {
        let mut hosts = self.0.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let origin = url.origin().ascii_serialization();
        if let Some(host) = hosts.get(&origin) {
            return Arc::clone(host);
        }
        if hosts.len() >= MAX_HOSTS {
            hosts.retain(|_, host| Arc::strong_count(host) > 1);
        }
        let host = Arc::new(Host::default());
        if hosts.len() < MAX_HOSTS {
            hosts.insert(origin, Arc::clone(&host));
        }
        host
    }
}

/// Reads the system's certificates where that may block.
async fn on_a_thread<T: Send + 'static>(
    build: impl FnOnce() -> Result<T, ProviderError> + Send + 'static,
) -> Result<T, ProviderError> {
    let built = tokio::task::spawn_blocking(build).await;
    built.unwrap_or_else(|_| Err(ProviderError::new(ErrorClass::Configuration, "the HTTP client cannot be set up")))
}

/// What is known of one host: scheme, name and port.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// A response was read before, so a connection may be a kept one.
    warm: AtomicBool,
    breaker: Mutex<Breaker>,
    /// What its models have refused, by name.
    repairs: Mutex<HashMap<String, Repairs>>,
}

impl Host {
    pub(super) fn is_warm(&self) -> bool {
        self.warm.load(Ordering::Relaxed)
    }

    pub(super) fn warmed(&self) {
        self.warm.store(true, Ordering::Relaxed);
    }

    /// Whether an attempt may be made now; else how long the host is left alone.
    pub(super) fn admit(&self) -> Result<(), Duration> {
        self.breaker().admit(Instant::now())
    }

    /// It gave an answer, be it an error.
    pub(super) fn answered(&self) {
        self.breaker().answered();
    }

    /// A clock ran out.
    pub(super) fn stale(&self) {
        self.breaker().stale(Instant::now());
    }

    /// What requests to this model must do without.
    pub(super) fn repairs(&self, model: &str) -> Repairs {
        let repairs = self.repairs.lock().unwrap_or_else(PoisonError::into_inner);
        repairs.get(model).cloned().unwrap_or_default()
    }

    /// The same from now on.
    pub(super) fn set_repairs(&self, model: &str, new: Repairs) {
        let mut repairs = self.repairs.lock().unwrap_or_else(PoisonError::into_inner);
        if repairs.len() < MAX_MODELS || repairs.contains_key(model) {
            repairs.insert(model.to_owned(), new);
        }
    }

    fn breaker(&self) -> std::sync::MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i25_the_memory_of_hosts_has_an_end_and_keeps_those_in_use() {
        let transport = Transport::default();
        let url = |n: usize| Url::parse(&format!("http://h{n}.invalid/v1")).unwrap();
        let kept = transport.host(&url(0));
        for n in 0..3 * MAX_HOSTS {
            transport.host(&url(n));
        }
        assert!(transport.0.hosts.lock().unwrap().len() <= MAX_HOSTS);
        assert!(Arc::ptr_eq(&kept, &transport.host(&url(0))), "it is in use");
        assert!(!Arc::ptr_eq(&kept, &transport.host(&Url::parse("http://h0.invalid:81/").unwrap())));
    }
}
