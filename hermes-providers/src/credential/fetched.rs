//! [`Credentials`] over a secret that somebody else keeps: fetched at the first need, kept in memory while it is good, and
//! never written.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};

use crate::credential::{Credentials, Next, Outcome, Secret, Ticket};
use crate::error::{ErrorClass, ProviderError};

/// A secret is fetched anew when it ends sooner than this. The request that is sent last may wait that long before its
/// server looks at the secret.
pub const REFRESH_AHEAD_MS: u64 = 300_000;

/// A secret as it was found.
#[derive(Clone)]
pub struct Fetched {
    /// What is sent.
    pub secret: Secret,
    /// Which one it is: another secret has another id. Not secret.
    pub id: String,
    /// Where it was, for people. Not secret.
    pub label: String,
    /// Where it is good, when not at the profile's address.
    pub base_url: Option<String>,
    /// When it ends; `None`: when a server refuses it.
    pub ends: Option<SystemTime>,
}

impl Fetched {
    fn ticket(&self) -> Ticket {
        Ticket {
            id: self.id.clone(),
            secret: self.secret.clone(),
            base_url: self.base_url.clone(),
            label: self.label.clone(),
            lease: None,
        }
    }

    fn ends_within(&self, span: Duration, now: SystemTime) -> bool {
        self.ends.is_some_and(|ends| ends.duration_since(now).is_ok_and(|left| left < span) || ends <= now)
    }
}

/// Where a secret is fetched.
#[async_trait]
pub trait SecretSource: fmt::Debug + Send + Sync + 'static {
    /// Fetches it. Dropping the future ends the attempt and leaves nothing behind.
    ///
    /// # Errors
    /// There is none, or it could not be had; the class says whether it pays to try again.
    async fn fetch(&self) -> Result<Fetched, ProviderError>;

    /// Whether another look may bring another secret.
    fn may_change(&self) -> bool {
        true
    }
}

type Fetching = BoxFuture<'static, Result<Arc<Fetched>, ProviderError>>;

#[derive(Default)]
struct State {
    found: Option<Arc<Fetched>>,
    /// The fetch that is under way, for all who wait. Theirs: when nobody waits any more it is dropped.
    fetching: Option<WeakShared<Fetching>>,
    /// The secret that was refused last.
    refused: Option<String>,
    /// Counts fetches, so that a slow waiter does not put an older secret over a newer one.
    fetches: u64,
}

/// The credentials of one source. Nothing is read before the first request. One fetch serves all who wait; the secret is
/// fetched anew [`REFRESH_AHEAD_MS`] before it ends, and once when a server refuses it. When that fails, the old one is
/// used until it ends.
pub struct FetchedCredentials<S> {
    source: Arc<S>,
    state: Mutex<State>,
}

impl<S: fmt::Debug> fmt::Debug for FetchedCredentials<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchedCredentials").field("source", &self.source).finish_non_exhaustive()
    }
}

impl<S: SecretSource> FetchedCredentials<S> {
    /// Those of this source.
    #[must_use]
    pub fn new(source: S) -> Self {
        Self { source: Arc::new(source), state: Mutex::default() }
    }

    /// Held for a few assignments and never over a wait; a panic in between would leave nothing half done.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fetch that is under way, or a new one, and its number. Whoever waits drives it.
    fn fetching(&self, state: &mut State) -> (Shared<Fetching>, u64) {
        let running = state.fetching.as_ref().and_then(WeakShared::upgrade).filter(|fetch| fetch.peek().is_none());
        if let Some(fetch) = running {
            return (fetch, state.fetches);
        }
        let source = Arc::clone(&self.source);
        let fetch = async move { source.fetch().await.map(Arc::new) }.boxed().shared();
        state.fetching = fetch.downgrade();
        state.fetches += 1;
        (fetch, state.fetches)
    }
}

#[async_trait]
impl<S: SecretSource> Credentials for FetchedCredentials<S> {
    async fn take(&self, _: &str) -> Result<Ticket, ProviderError> {
        let now = SystemTime::now();
        let ((fetch, number), old) = {
            let mut state = self.state();
            let old = state.found.clone();
            match &old {
                Some(found) if !found.ends_within(Duration::from_millis(REFRESH_AHEAD_MS), now) => {
                    return Ok(found.ticket());
                }
                _ => (self.fetching(&mut state), old),
            }
        };
        match fetch.await {
            Ok(found) => {
                let mut state = self.state();
                if state.fetches == number {
                    state.found = Some(Arc::clone(&found));
                }
                Ok(found.ticket())
            }
            Err(error) => match old.filter(|old| !old.ends_within(Duration::ZERO, now)) {
                Some(old) => {
                    tracing::warn!(code = error.code(), "{} was not renewed: {}", old.label, error.message);
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
                // A late answer about a secret that was renewed meanwhile says nothing about the new one.
                if state.found.as_ref().is_none_or(|found| found.id == ticket.id) {
                    state.found = None;
                }
                let is_first = state.refused.as_deref() != Some(ticket.id.as_str());
                state.refused = Some(ticket.id.clone());
                // What was refused may be out of date: look once more, and no second time for the same.
                if is_first && self.source.may_change() { Next::Another } else { Next::Same }
            }
            Outcome::Failed(_) => Next::Same,
        }
    }
}
