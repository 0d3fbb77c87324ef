//! A provider's credentials as a value: which one is next, and what an answer does to the one that was used.
//!
//! Pure: the time and the dice are arguments, nothing is read and nothing waits. What a row went through belongs to its
//! secret: a row whose secret was replaced begins anew (B48), and an answer to an older secret changes nothing (B47).

mod charge;
mod choose;
mod health;
mod row;

#[cfg(test)]
mod tests;

pub use charge::Blame;
pub use choose::Strategy;
pub use health::{Health, Rest, RestReason, Status};
pub use row::{LimitScope, Row, TicketId};

/// The credentials of one provider, in order of their priority.
#[derive(Debug, Default)]
pub struct Pool {
    rows: Vec<Row>,
    strategy: Strategy,
    scope: LimitScope,
    /// Grows with every ticket: answers that were asked for before a row's rest began add nothing to it.
    tickets: u64,
    /// The row that was taken last, for [`Strategy::RoundRobin`].
    last: Option<String>,
    /// Counts changes of health, so that somebody can write them down.
    changes: u64,
}

/// A row that may be used now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// For [`Pool::charge`], [`Pool::answered`] and [`Pool::release`].
    pub ticket: TicketId,
    /// Its secret is over or was refused: renew it before it is sent.
    pub needs_renewal: bool,
}

/// Why there is no row to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoneFree {
    /// There is no row at all.
    Empty,
    /// Every row that lives rests; the first is free at `until_ms`.
    Resting {
        /// Milliseconds since the epoch.
        until_ms: i64,
        /// What people call the row that is free first.
        label: String,
        /// Why that one rests.
        reason: RestReason,
    },
    /// No row will work again by itself.
    Dead {
        /// What people call the first of them.
        label: String,
        /// Why it is dead.
        why: String,
    },
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new(strategy: Strategy, scope: LimitScope) -> Self {
        Self { strategy, scope, ..Self::default() }
    }

    /// The rows, first the one of the highest priority.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// How often the health of a row changed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The row that a ticket is for, if it still has the secret of the ticket.
    #[must_use]
    pub fn row_of(&self, ticket: &TicketId) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == ticket.row && row.fingerprint() == ticket.fingerprint)
    }

    /// Puts these rows in the place of all. One that is here with the same id and the same secret keeps what it went
    /// through in this process, unless the new one knows more; leases stay with the row.
    pub fn replace(&mut self, rows: Vec<Row>) {
        let mut old = std::mem::take(&mut self.rows);
        self.rows = rows;
        self.rows.sort_by(|a, b| (a.priority, &a.id).cmp(&(b.priority, &b.id)));
        for row in &mut self.rows {
            let Some(at) = old.iter().position(|old| old.id == row.id) else { continue };
            let before = old.swap_remove(at);
            row.leases = before.leases;
            row.uses = row.uses.max(before.uses);
            if before.fingerprint() == row.fingerprint() && before.health.changed_at_ms >= row.health.changed_at_ms {
                row.health = before.health;
            } else if before.health.is_refused() && row.renewable {
                // The secret was renewed because the old one was refused: if this is refused too, it rests.
                row.health.renewed_after_refusal = true;
            }
        }
    }

    /// Takes the next row for a request to `model`. `dice` is any number, for [`Strategy::Random`].
    ///
    /// # Errors
    /// [`NoneFree`].
    pub fn take(&mut self, now_ms: i64, model: &str, dice: u64) -> Result<Taken, NoneFree> {
        let free: Vec<usize> =
            (0..self.rows.len()).filter(|at| self.rows[*at].health.rest_for(model, now_ms).is_none()).collect();
        if free.is_empty() {
            return Err(self.none_free(now_ms, model));
        }
        // A soft lease: a row that nobody uses goes first, and nobody waits for one.
        let unused: Vec<usize> = free.iter().copied().filter(|at| self.rows[*at].leases == 0).collect();
        let among = if unused.is_empty() { &free } else { &unused };
        let at = choose::choose(self.strategy, &self.rows, among, self.last.as_deref(), dice);
        self.tickets += 1;
        let row = &mut self.rows[at];
        row.leases += 1;
        row.uses += 1;
        self.last = Some(row.id.clone());
        let ticket = TicketId { row: row.id.clone(), fingerprint: row.fingerprint(), number: self.tickets };
        Ok(Taken { ticket, needs_renewal: row.needs_renewal(now_ms) })
    }

    /// A ticket is used no more, whatever came of it.
    pub fn release(&mut self, ticket: &TicketId) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.id == ticket.row) {
            row.leases = row.leases.saturating_sub(1);
        }
    }

    /// A whole answer came.
    pub fn answered(&mut self, ticket: &TicketId) {
        for row in self.rows.iter_mut().filter(|row| row.fingerprint() == ticket.fingerprint) {
            row.health.answered();
        }
    }

    /// True when a row could be taken now for `model`.
    #[must_use]
    pub fn has_free(&self, now_ms: i64, model: &str) -> bool {
        self.rows.iter().any(|row| row.health.rest_for(model, now_ms).is_none())
    }

    /// Nothing will renew this row again: a person has to log in.
    pub fn kill(&mut self, row: &str, now_ms: i64, why: &str) {
        if let Some(row) = self.rows.iter_mut().find(|known| known.id == row) {
            row.health.die(now_ms, why);
            self.changes += 1;
        }
    }

    /// Rests a row, whatever its secret; for renewals that fail without a reason to give the row up.
    pub fn rest(&mut self, row: &str, now_ms: i64, rest: Rest) {
        if let Some(row) = self.rows.iter_mut().find(|known| known.id == row) {
            row.health.rest(now_ms, rest, self.tickets);
            self.changes += 1;
        }
    }

    fn none_free(&self, now_ms: i64, model: &str) -> NoneFree {
        let Some(first) = self.rows.first() else { return NoneFree::Empty };
        let resting = self.rows.iter().filter(|row| !row.health.is_dead());
        let earliest = resting
            .filter_map(|row| Some((row.health.rest_for(model, now_ms)?, row)))
            .min_by_key(|(rest, _)| rest.until_ms);
        match earliest {
            Some((rest, row)) => {
                NoneFree::Resting { until_ms: rest.until_ms, label: row.label.clone(), reason: rest.reason }
            }
            None => NoneFree::Dead { label: first.label.clone(), why: first.health.why.clone() },
        }
    }
}
