//! [`Credentials`] over a pool whose state is shared with other processes through `auth.json`.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

use crate::credential::file::{AuthDoc, AuthFile, AuthFileError, Entry};
use crate::credential::pool::{Blame, Health, LimitScope, NoneFree, Pool, Rest, RestReason, Row, Strategy, TicketId};
use crate::credential::refresh::{RefreshFailure, Refresher};
use crate::credential::{Credentials, Next, Outcome, Secret, SeededKey, Ticket};
use crate::error::{ErrorClass, ProviderError};

/// After a renewal that did not work this time.
const RENEWAL_REST_MS: i64 = 60_000;
/// Rows that are looked at for one ticket, renewals among them; one more than any pool has is enough.
const LOOKS_MAX: usize = 64;

/// The time in milliseconds since the epoch.
pub type Now = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The system's clock.
#[must_use]
pub fn system_now() -> Now {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

/// What a [`KeyPool`] is made of.
pub struct KeyPoolConfig {
    /// The provider's id: its name in the file.
    pub provider: String,
    /// Keys of variables.
    pub seeded: Vec<SeededKey>,
    /// The file; `None` keeps everything in memory.
    pub file: Option<AuthFile>,
    /// Renews tokens; without it a token that ended is over.
    pub refresher: Option<Refresher>,
    /// How the next row is found.
    pub strategy: Strategy,
    /// What a limit is for.
    pub scope: LimitScope,
    /// The time.
    pub now: Now,
}

/// The credentials of one provider.
pub struct KeyPool {
    shared: Arc<Shared>,
}

struct Shared {
    provider: String,
    seeded: Vec<SeededKey>,
    file: Option<AuthFile>,
    refresher: Option<Refresher>,
    now: Now,
    state: Mutex<State>,
}

struct State {
    pool: Pool,
    /// What the file says of each row's health, as far as this process knows.
    written: HashMap<String, Health>,
    /// The file as it was read.
    mark: Option<Mark>,
    /// Until when a row is not renewed again after it did not work.
    renew_not_before: HashMap<String, i64>,
}

/// Tells one state of the file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl fmt::Debug for KeyPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPool").field("provider", &self.shared.provider).finish_non_exhaustive()
    }
}

impl KeyPool {
    /// A pool. Nothing is read before the first ticket.
    #[must_use]
    pub fn new(config: KeyPoolConfig) -> Self {
        let state = State {
            pool: Pool::new(config.strategy, config.scope),
            written: HashMap::new(),
            mark: None,
            renew_not_before: HashMap::new(),
        };
        let shared = Shared {
            provider: config.provider,
            seeded: config.seeded,
            file: config.file,
            refresher: config.refresher,
            now: config.now,
            state: Mutex::new(state),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Waits for renewals that are under way, and writes down what is not written yet.
    pub async fn close(&self) {
        if let Some(refresher) = &self.shared.refresher {
            refresher.close().await;
        }
        self.shared.write_down().await;
    }
}

/// The rows of a provider: those of the variables, and those of the file whose secret is in it.
#[must_use]
pub fn rows(provider: &str, seeded: &[SeededKey], doc: &AuthDoc, skew_ms: i64) -> Vec<Row> {
    let entries = doc.entries(provider);
    let known = |id: &str| entries.iter().find(|entry| entry.id == id);
    let from_variables = seeded.iter().zip(0_i64..).filter_map(|(key, at)| {
        let id = key.source();
        let secret = Secret::key(key.key.clone());
        let mut row =
            Row { label: key.variable.clone(), priority: at, source: id.clone(), secret, id, ..Row::default() };
        if doc.is_suppressed(provider, &row.source) {
            return None;
        }
        if let Some(entry) = known(&row.id) {
            row.uses = entry.request_count;
            if entry.fingerprint.as_ref() == Some(&row.fingerprint()) {
                row.health = entry.health.clone();
            }
        }
        Some(row)
    });
    let own = entries.iter().filter(|entry| entry.access_token.is_some() || entry.refresh_token.is_some());
    from_variables.chain(own.map(|entry| entry.row(skew_ms))).collect()
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what other processes wrote.
    async fn read_again(&self) -> Result<(), AuthFileError> {
        let known = self.state().mark;
        let Some(file) = self.file.clone() else {
            if known.is_none() {
                self.take_in(&AuthDoc::default(), Mark { modified: None, bytes: 0 });
            }
            return Ok(());
        };
        let look = tokio::task::spawn_blocking(move || {
            let mark = std::fs::metadata(file.path())
                .map_or(Mark { modified: None, bytes: 0 }, |m| Mark { modified: m.modified().ok(), bytes: m.len() });
            if known == Some(mark) { Ok(None) } else { file.read().map(|doc| Some((doc, mark))) }
        });
        match look.await {
            Ok(Ok(Some((doc, mark)))) => {
                self.take_in(&doc, mark);
                Ok(())
            }
            Ok(Ok(None)) | Err(_) => Ok(()),
            Ok(Err(error)) => {
                // Keys of variables work without the file.
                if known.is_none() {
                    self.take_in(&AuthDoc::default(), Mark { modified: None, bytes: u64::MAX });
                }
                Err(error)
            }
        }
    }

    fn take_in(&self, doc: &AuthDoc, mark: Mark) {
        let skew = self.refresher.as_ref().map_or(0, Refresher::skew_ms);
        let mut rows = rows(&self.provider, &self.seeded, doc, skew);
        if self.refresher.is_none() {
            rows.iter_mut().for_each(|row| row.renewable = false);
        }
        let mut state = self.state();
        state.written = rows.iter().map(|row| (row.id.clone(), row.health.clone())).collect();
        state.pool.replace(rows);
        state.mark = Some(mark);
    }

    /// Writes changed health into the file. What cannot be written is lost with this process, and no request fails for it.
    async fn write_down(&self) {
        let Some(file) = self.file.clone() else { return };
        let changed: Vec<Row> = {
            let mut state = self.state();
            let State { pool, written, .. } = &mut *state;
            let differs = |row: &&Row| {
                let told = written.get(&row.id);
                told.map_or(row.health != Health::default(), |told| {
                    (&told.status, &told.models) != (&row.health.status, &row.health.models)
                })
            };
            let changed: Vec<Row> = pool.rows().iter().filter(differs).cloned().collect();
            written.extend(changed.iter().map(|row| (row.id.clone(), row.health.clone())));
            changed
        };
        if changed.is_empty() {
            return;
        }
        let provider = self.provider.clone();
        let write = move || file.update(|doc| (changed.iter().for_each(|row| note(doc, &provider, row)), true));
        match tokio::task::spawn_blocking(write).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(code = error.code(), "the state of credentials is not written down: {error}");
            }
            Err(_) => tracing::warn!("the state of credentials is not written down"),
        }
    }

    /// Renews the secret of a row. False when another row has to do.
    async fn renew(&self, taken: &TicketId) -> bool {
        let now = (self.now)();
        let still_good = |state: &State| {
            let row = state.pool.rows().iter().find(|row| row.id == taken.row);
            row.is_some_and(|row| {
                let skew = self.refresher.as_ref().map_or(0, Refresher::skew_ms);
                let ends = row.renew_at_ms.map_or(i64::MAX, |at| at + skew);
                !row.secret.is_none() && !row.health.is_refused() && ends > now
            })
        };
        let Some(refresher) = &self.refresher else { return false };
        let (good, too_early) = {
            let state = self.state();
            (still_good(&state), state.renew_not_before.get(&taken.row).is_some_and(|until| *until > now))
        };
        if too_early && good {
            return true;
        }
        match refresher.refresh(&self.provider, &taken.row, &taken.fingerprint).await {
            Ok(()) => {
                self.state().mark = None;
                let _ = self.read_again().await;
                false
            }
            Err(failure) => {
                let why = failure.to_string();
                tracing::warn!(provider = %self.provider, row = %taken.row, "a token was not renewed: {why}");
                let mut state = self.state();
                match failure {
                    RefreshFailure::Dead { .. } => state.pool.kill(&taken.row, now, &why),
                    RefreshFailure::NotNow { .. } if good => {
                        state.renew_not_before.insert(taken.row.clone(), now + RENEWAL_REST_MS);
                        return true;
                    }
                    RefreshFailure::NotNow { .. } => {
                        let rest = Rest { until_ms: now + RENEWAL_REST_MS, reason: RestReason::Renewal };
                        state.pool.rest(&taken.row, now, rest);
                    }
                }
                false
            }
        }
    }

    fn refused(&self, none: NoneFree) -> ProviderError {
        let provider = &self.provider;
        let login = format!("`hermes auth add {provider}` or `hermes auth login {provider}`");
        let (class, message, until) = match none {
            NoneFree::Empty => (ErrorClass::Auth, format!("{provider} has no credential; {login} gives it one"), None),
            NoneFree::Dead { label, why } => {
                let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
                (
                    ErrorClass::Auth,
                    format!("the credential {label:?} of {provider} is of no use any more{why}; {login}"),
                    None,
                )
            }
            NoneFree::Resting { until_ms, label, reason } => {
                let seconds = (until_ms - (self.now)()).max(0) / 1_000;
                let class = match reason {
                    RestReason::Billing => ErrorClass::Billing,
                    RestReason::Refused => ErrorClass::Auth,
                    RestReason::Entitlement => ErrorClass::ModelNotFound,
                    RestReason::Limit | RestReason::Renewal => ErrorClass::RateLimit,
                };
                let message = format!(
                    "every credential of {provider} rests; {label:?} is free first, in {seconds} s ({}); `hermes auth reset \
                     {provider}` asks again now",
                    reason.as_str()
                );
                (class, message, Some(until_ms))
            }
        };
        let mut error = ProviderError::new(class, message);
        error.retry_after_ms = until.and_then(|until| u64::try_from(until - (self.now)()).ok());
        error
    }
}

/// Writes a row's health into its entry; a key of a variable has an entry without a secret.
fn note(doc: &mut AuthDoc, provider: &str, row: &Row) {
    let entry = doc.entry(provider, &row.id);
    let entry = match entry {
        Some(mut entry) if entry.access_token.is_some() => {
            let same = entry.row(0).fingerprint() == row.fingerprint();
            if same {
                entry.health.clone_from(&row.health);
            }
            entry.request_count = entry.request_count.max(row.uses);
            entry
        }
        _ if !row.source.starts_with("env:") => return,
        _ => Entry {
            id: row.id.clone(),
            label: row.label.clone(),
            priority: row.priority,
            source: row.source.clone(),
            fingerprint: Some(row.fingerprint()),
            health: row.health.clone(),
            request_count: row.uses,
            ..Entry::default()
        },
    };
    doc.put(provider, &entry);
}

/// Gives the row back when the ticket goes.
struct Lease {
    shared: Arc<Shared>,
    ticket: TicketId,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.state().pool.release(&self.ticket);
    }
}

#[async_trait]
impl Credentials for KeyPool {
    async fn take(&self, model: &str) -> Result<Ticket, ProviderError> {
        let shared = &self.shared;
        shared.write_down().await;
        let damaged = shared.read_again().await.err();
        // A token that is short-lived from its birth is used as it is: it is renewed once for a ticket.
        let mut renewed: Vec<String> = Vec::new();
        for _ in 0..LOOKS_MAX {
            let taken = shared.state().pool.take((shared.now)(), model, fastrand::u64(..));
            let taken = match taken {
                Ok(taken) => taken,
                Err(NoneFree::Empty) if damaged.is_some() => {
                    let why = damaged.map(|error| error.to_string()).unwrap_or_default();
                    return Err(ProviderError::new(ErrorClass::Configuration, why));
                }
                Err(none) => {
                    shared.write_down().await;
                    return Err(shared.refused(none));
                }
            };
            let lease = Lease { shared: Arc::clone(shared), ticket: taken.ticket.clone() };
            if taken.needs_renewal && !renewed.contains(&taken.ticket.row) {
                let as_it_is = shared.renew(&taken.ticket).await;
                renewed.push(taken.ticket.row.clone());
                if !as_it_is {
                    continue;
                }
            }
            let state = shared.state();
            let Some(row) = state.pool.row_of(&taken.ticket) else { continue };
            let ticket = Ticket {
                id: taken.ticket.to_string(),
                secret: row.secret.clone(),
                base_url: row.base_url.clone(),
                label: row.label.clone(),
                lease: Some(Box::new(lease)),
            };
            drop(state);
            return Ok(ticket);
        }
        Err(ProviderError::new(ErrorClass::Auth, format!("no credential of {} could be renewed", shared.provider)))
    }

    fn report(&self, ticket: &Ticket, model: &str, outcome: Outcome<'_>) -> Next {
        let Some(id) = TicketId::parse(&ticket.id) else { return Next::Same };
        let mut state = self.shared.state();
        match outcome {
            Outcome::Answered => {
                state.pool.answered(&id);
                Next::Same
            }
            Outcome::Failed(error) => state.pool.charge((self.shared.now)(), &id, model, &Blame::of(error)),
        }
    }

    async fn settle(&self) {
        self.shared.write_down().await;
    }
}
