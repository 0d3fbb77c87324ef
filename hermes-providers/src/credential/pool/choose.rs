//! Which of several free rows is next.

use crate::credential::pool::Row;

/// How the next row is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Strategy {
    /// The first until it rests: what a provider keeps of a prompt stays of use.
    #[default]
    FillFirst,
    /// The one behind the last.
    RoundRobin,
    /// Any.
    Random,
    /// The one that was taken least often.
    LeastUsed,
}

impl Strategy {
    /// The names that the configuration knows.
    pub const NAMES: [&'static str; 4] = ["fill_first", "round_robin", "random", "least_used"];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FillFirst => "fill_first",
            Self::RoundRobin => "round_robin",
            Self::Random => "random",
            Self::LeastUsed => "least_used",
        }
    }

    /// The strategy of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "fill_first" => Some(Self::FillFirst),
            "round_robin" => Some(Self::RoundRobin),
            "random" => Some(Self::Random),
            "least_used" => Some(Self::LeastUsed),
            _ => None,
        }
    }
}

/// One of `among`, which are places in `rows` in their order and not empty.
pub(super) fn choose(strategy: Strategy, rows: &[Row], among: &[usize], last: Option<&str>, dice: u64) -> usize {
    let first = among.first().copied().unwrap_or_default();
    match strategy {
        Strategy::FillFirst => first,
        Strategy::RoundRobin => {
            let last = last.and_then(|id| rows.iter().position(|row| row.id == id));
            let behind = |at: &usize| last.is_some_and(|last| *at > last);
            among.iter().copied().find(behind).unwrap_or(first)
        }
        Strategy::Random => {
            let count = u64::try_from(among.len()).unwrap_or(1).max(1);
            let at = usize::try_from(dice % count).unwrap_or_default();
            among.get(at).copied().unwrap_or(first)
        }
        Strategy::LeastUsed => among.iter().copied().min_by_key(|at| rows[*at].uses).unwrap_or(first),
    }
}
