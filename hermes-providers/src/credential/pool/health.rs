//! What a credential went through: well, resting until a time, or dead until a person does something.

use std::collections::BTreeMap;

/// Most models that a row remembers rests of; the one that ends first gives way.
const MODELS_MAX: usize = 64;
/// Longest text of why, in bytes.
const WHY_MAX_BYTES: usize = 300;

/// Why a row rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestReason {
    /// Too many requests.
    Limit,
    /// No money or no plan.
    Billing,
    /// The secret was refused.
    Refused,
    /// The model is not for this row.
    Entitlement,
    /// Its renewal did not work this time.
    Renewal,
}

impl RestReason {
    /// As it is written down.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "rate_limit",
            Self::Billing => "billing",
            Self::Refused => "auth",
            Self::Entitlement => "model_entitlement",
            Self::Renewal => "renewal",
        }
    }

    /// What [`as_str`](Self::as_str) gives; what others wrote is a limit.
    #[must_use]
    pub fn written(text: &str) -> Self {
        match text {
            "billing" => Self::Billing,
            "auth" => Self::Refused,
            "model_entitlement" => Self::Entitlement,
            "renewal" => Self::Renewal,
            _ => Self::Limit,
        }
    }
}

/// A time without requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// When it ends, in milliseconds since the epoch.
    pub until_ms: i64,
    /// Why.
    pub reason: RestReason,
}

/// The three states of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    /// Ready.
    #[default]
    Ok,
    /// Used up for now: ready again at the end of the rest.
    Exhausted(Rest),
    /// Never ready again by itself.
    Dead,
}

/// The state of a row and how it came to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Now.
    pub status: Status,
    /// Rests of single models.
    pub models: BTreeMap<String, Rest>,
    /// Why it is not well, in the provider's words, without secrets.
    pub why: String,
    /// When it changed, in milliseconds since the epoch.
    pub changed_at_ms: i64,
    /// Limits in a row without an answer between.
    pub limits: u32,
    /// The secret was refused and is to be renewed before the row is used again.
    pub renew: bool,
    /// The secret is there because the one before was refused.
    pub renewed_after_refusal: bool,
    /// The last ticket that was out when the row's rest began.
    pub rested_at_ticket: u64,
}

impl Health {
    /// True when only a person can make it work again.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.status == Status::Dead
    }

    /// True when the provider refused the secret and another was not there yet.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.renew
    }

    /// The rest that keeps a request to `model` from being sent now. A dead row rests for ever.
    #[must_use]
    pub fn rest_for(&self, model: &str, now_ms: i64) -> Option<Rest> {
        let of_row = match self.status {
            Status::Ok => None,
            Status::Exhausted(rest) => Some(rest),
            Status::Dead => Some(Rest { until_ms: i64::MAX, reason: RestReason::Refused }),
        };
        let of_model = self.models.get(model).copied();
        of_row.into_iter().chain(of_model).filter(|rest| rest.until_ms > now_ms).max_by_key(|rest| rest.until_ms)
    }

    pub(super) fn answered(&mut self) {
        self.limits = 0;
        self.renewed_after_refusal = false;
    }

    /// Rests the row. A rest that lasts longer already stays.
    pub(super) fn rest(&mut self, now_ms: i64, rest: Rest, ticket: u64) {
        let longer = matches!(self.status, Status::Exhausted(old) if old.until_ms >= rest.until_ms);
        if self.is_dead() || longer {
            return;
        }
        self.status = Status::Exhausted(rest);
        self.rested_at_ticket = ticket;
        self.changed_at_ms = now_ms;
    }

    pub(super) fn rest_model(&mut self, now_ms: i64, model: &str, rest: Rest, ticket: u64) {
        self.models.retain(|_, rest| rest.until_ms > now_ms);
        if self.models.len() >= MODELS_MAX {
            let first = self.models.iter().min_by_key(|(_, rest)| rest.until_ms).map(|(name, _)| name.clone());
            first.and_then(|name| self.models.remove(&name));
        }
        let until_ms = self.models.get(model).map_or(rest.until_ms, |old| old.until_ms.max(rest.until_ms));
        self.models.insert(model.to_owned(), Rest { until_ms, ..rest });
        self.rested_at_ticket = ticket;
        self.changed_at_ms = now_ms;
    }

    pub(super) fn die(&mut self, now_ms: i64, why: &str) {
        self.status = Status::Dead;
        self.explain(now_ms, why);
    }

    pub(super) fn explain(&mut self, now_ms: i64, why: &str) {
        let end = (0..=WHY_MAX_BYTES.min(why.len())).rev().find(|at| why.is_char_boundary(*at)).unwrap_or(0);
        why[..end].clone_into(&mut self.why);
        self.changed_at_ms = now_ms;
    }
}
