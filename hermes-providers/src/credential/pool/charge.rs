//! What a failed attempt does to the row that was used. Times are those of the provider reference, 5.3 and 5.4.

use crate::credential::Next;
use crate::credential::pool::{LimitScope, Pool, Rest, RestReason, TicketId};
use crate::error::{ErrorClass, ProviderError};

/// After the provider refused the secret (401).
pub(super) const REFUSED_REST_MS: i64 = 300_000;
/// After a limit whose end the provider did not tell, and after anything else that is the row's fault.
pub(super) const LIMIT_REST_MS: i64 = 3_600_000;
/// The same for the only row there is, unless it is about money: nothing else could be asked meanwhile.
pub(super) const SOLE_REST_MS: i64 = 60_000;
/// After the first limit in a row without a time: the others go first, and then the row has its second chance.
pub(super) const FIRST_LIMIT_REST_MS: i64 = 5_000;
/// A model that is not for this row: a year.
pub(super) const ENTITLEMENT_REST_MS: i64 = 365 * 24 * 3_600_000;
/// Longest rest that a provider's own time makes: a broken clock there must not lock a row for years.
pub(super) const PROVIDER_REST_MAX_MS: i64 = 8 * 24 * 3_600_000;
/// Codes that say that a secret will never be good again (reference 5.3). `invalid_token` is not among them: a token
/// that is merely over is called so too (RFC 6750, 3.1).
pub(super) const TERMINAL_CODES: [&str; 5] =
    ["token_invalidated", "token_revoked", "invalid_grant", "unauthorized_client", "refresh_token_reused"];

const _: () = assert!(FIRST_LIMIT_REST_MS < SOLE_REST_MS && SOLE_REST_MS < REFUSED_REST_MS);
const _: () = assert!(REFUSED_REST_MS < LIMIT_REST_MS && LIMIT_REST_MS < PROVIDER_REST_MAX_MS);

/// What of an error concerns the credential.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blame {
    /// The class; `None`: the credential has nothing to do with it.
    pub class: Option<ErrorClass>,
    /// HTTP status.
    pub status: Option<u16>,
    /// The provider's own code.
    pub code: Option<String>,
    /// When the provider says that it is over, in milliseconds from now.
    pub retry_after_ms: Option<u64>,
    /// The provider's words, without secrets.
    pub why: String,
}

impl Blame {
    /// Of an error.
    #[must_use]
    pub fn of(error: &ProviderError) -> Self {
        let concerns = match error.class {
            ErrorClass::Auth | ErrorClass::Billing | ErrorClass::RateLimit => true,
            // Not for this key; that there is no such model at all is said with 404.
            ErrorClass::ModelNotFound => error.status == Some(403),
            _ => false,
        };
        Self {
            class: concerns.then_some(error.class),
            status: error.status,
            code: error.code.clone(),
            retry_after_ms: error.retry_after_ms,
            why: error.message.clone(),
        }
    }
}

impl Pool {
    /// Charges an error to the row that was used, however late it comes, and to every row with the same secret.
    pub fn charge(&mut self, now_ms: i64, ticket: &TicketId, model: &str, blame: &Blame) -> Next {
        let Some(class) = blame.class else { return Next::Same };
        let sole = self.rows.len() == 1;
        let mut hit = false;
        let (scope, tickets) = (self.scope, self.tickets);
        for row in self.rows.iter_mut().filter(|row| row.fingerprint() == ticket.fingerprint) {
            hit = true;
            let renewable = row.renewable;
            let health = &mut row.health;
            let terminal = blame.code.as_deref().is_some_and(|code| TERMINAL_CODES.contains(&code));
            let provider =
                blame.retry_after_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX).min(PROVIDER_REST_MAX_MS));
            match class {
                ErrorClass::Auth if terminal => health.die(now_ms, &blame.why),
                ErrorClass::Auth if blame.status != Some(403) && renewable && !health.renewed_after_refusal => {
                    health.renew = true;
                    health.explain(now_ms, &blame.why);
                }
                ErrorClass::Auth => {
                    let usual = if blame.status == Some(403) { LIMIT_REST_MS } else { REFUSED_REST_MS };
                    let usual = if sole { SOLE_REST_MS } else { usual };
                    let rest = Rest { until_ms: now_ms + provider.unwrap_or(usual), reason: RestReason::Refused };
                    health.rest(now_ms, rest, tickets);
                    health.explain(now_ms, &blame.why);
                }
                ErrorClass::Billing => {
                    let until_ms = now_ms + provider.unwrap_or(LIMIT_REST_MS);
                    health.rest(now_ms, Rest { until_ms, reason: RestReason::Billing }, tickets);
                    health.explain(now_ms, &blame.why);
                }
                ErrorClass::ModelNotFound if sole => {}
                ErrorClass::ModelNotFound => {
                    let rest = Rest { until_ms: now_ms + ENTITLEMENT_REST_MS, reason: RestReason::Entitlement };
                    health.rest_model(now_ms, model, rest, tickets);
                    health.explain(now_ms, &blame.why);
                }
                _ => {
                    // One burst of requests is one limit, however many of them are refused.
                    if ticket.number > health.rested_at_ticket {
                        health.limits = health.limits.saturating_add(1);
                    }
                    let usual = match (sole, health.limits) {
                        (true, 0..=1) => 0,
                        (true, _) => SOLE_REST_MS,
                        (false, 0..=1) => FIRST_LIMIT_REST_MS,
                        (false, _) => LIMIT_REST_MS,
                    };
                    let rest = Rest { until_ms: now_ms + provider.unwrap_or(usual), reason: RestReason::Limit };
                    match scope {
                        LimitScope::Row => health.rest(now_ms, rest, tickets),
                        LimitScope::Model => health.rest_model(now_ms, model, rest, tickets),
                    }
                    health.explain(now_ms, &blame.why);
                }
            }
        }
        if hit {
            self.changes += 1;
        }
        // A limit of the only row is waited for with the same one: it is free again at once, and asking at once is no use.
        let other = self.rows.iter().any(|row| {
            let same = row.id == ticket.row && row.fingerprint() == ticket.fingerprint;
            row.health.rest_for(model, now_ms).is_none() && (!same || row.needs_renewal(now_ms))
        });
        if other { Next::Another } else { Next::Same }
    }
}
