//! One credential of a pool.

use std::fmt;

use crate::credential::pool::Health;
use crate::credential::{Fingerprint, Secret};

/// What a limit of requests is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LimitScope {
    /// The whole row.
    #[default]
    Row,
    /// The row, for the one model that was asked (Anthropic counts each model by itself).
    Model,
}

/// One credential.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// Its id in the pool.
    pub id: String,
    /// What people call it. Not secret.
    pub label: String,
    /// Lower goes first.
    pub priority: i64,
    /// Where it is from: `manual`, `env:NAME`, `device_code` and so on. Not secret.
    pub source: String,
    /// What is sent. [`Secret::None`] for a row whose secret has to be fetched first.
    pub secret: Secret,
    /// Where it is good, when not at the profile's address.
    pub base_url: Option<String>,
    /// The secret can be renewed without a person.
    pub renewable: bool,
    /// When the secret is renewed if it can be, in milliseconds since the epoch: a while before it ends.
    pub renew_at_ms: Option<i64>,
    /// What it went through.
    pub health: Health,
    /// Tickets that were taken and not given back, in this process.
    pub leases: u32,
    /// How often it was taken.
    pub uses: u64,
}

impl Row {
    /// Names the secret.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        match &self.secret {
            Secret::None => Fingerprint::default(),
            Secret::Key(key) => Fingerprint::of(key),
            Secret::Aws { secret_access_key, .. } => Fingerprint::of(secret_access_key),
        }
    }

    /// True when the secret is to be renewed before it is sent.
    #[must_use]
    pub fn needs_renewal(&self, now_ms: i64) -> bool {
        let over = self.renew_at_ms.is_some_and(|at| at <= now_ms);
        self.renewable && (over || self.secret.is_none() || self.health.is_refused())
    }
}

/// Which row was used, with which secret, and when in the order of all tickets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketId {
    /// The row.
    pub row: String,
    /// Its secret at that time.
    pub fingerprint: Fingerprint,
    /// Its place in the order of all tickets of the pool.
    pub number: u64,
}

impl fmt::Display for TicketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.number, self.fingerprint.as_str(), self.row)
    }
}

impl TicketId {
    /// Reads what [`Display`](fmt::Display) wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        let number = parts.next()?.parse().ok()?;
        let fingerprint = Fingerprint::written(parts.next()?);
        Some(Self { row: parts.next()?.to_owned(), fingerprint, number })
    }
}
