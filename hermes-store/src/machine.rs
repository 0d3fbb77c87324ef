//! State machines as tables: what may follow what, written down once.
//!
//! A machine is one list of (state, event, state after it). The transition function is a look-up in that list, the
//! tests walk over every pair of state and event, and the diagrams of [`crate::machines`] are printed from it.

/// An event that the state does not allow. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} that is {state} cannot take {event}")]
pub struct IllegalTransition {
    /// What has the state (`an admission`).
    pub what: &'static str,
    /// The state.
    pub state: &'static str,
    /// The event.
    pub event: &'static str,
}

/// A machine in words, for people and for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// What has the state (`an admission`).
    pub what: &'static str,
    /// Every state; the first is where it begins.
    pub states: &'static [&'static str],
    /// Every event.
    pub events: &'static [&'static str],
    /// (state, event, state after it). A pair that is not here is refused.
    pub edges: &'static [(&'static str, &'static str, &'static str)],
}

impl Machine {
    /// States that nothing leads out of.
    pub fn ends(&self) -> impl Iterator<Item = &'static str> {
        let edges = self.edges;
        self.states.iter().copied().filter(move |state| edges.iter().all(|(from, _, to)| from != state || to == state))
    }

    /// The diagram, in the language of Mermaid.
    #[must_use]
    pub fn diagram(&self) -> String {
        let mut out = String::from("stateDiagram-v2\n");
        if let Some(first) = self.states.first() {
            out.push_str(&format!("    [*] --> {first}\n"));
        }
        for (from, event, to) in self.edges {
            out.push_str(&format!("    {from} --> {to}: {event}\n"));
        }
        for end in self.ends() {
            out.push_str(&format!("    {end} --> [*]\n"));
        }
        out
    }
}

/// Writes a machine down: its words in the database, its table, and the total transition function `next`.
///
/// Both enums are declared by hand (with docs) and are plain: no data in the variants.
macro_rules! machine {
    (
        $name:ident, $what:literal,
        $state:ident { $($s:ident => $sw:literal),* $(,)? },
        $event:ident { $($e:ident => $ew:literal),* $(,)? },
        [$(($from:ident, $on:ident, $to:ident)),* $(,)?] $(,)?
    ) => {
        crate::round::words!($state { $($s => $sw),* });
        crate::round::words!($event { $($e => $ew),* });

        /// The machine in words.
        pub const $name: crate::machine::Machine = crate::machine::Machine {
            what: $what,
            states: &[$($sw),*],
            events: &[$($ew),*],
            edges: &[$(($state::$from.as_str(), $event::$on.as_str(), $state::$to.as_str())),*],
        };

        impl $state {
            /// The state after `event`. Total: every pair has an answer.
            ///
            /// # Errors
            /// [`crate::IllegalTransition`] when the state does not allow the event.
            pub fn next(self, event: $event) -> Result<Self, crate::machine::IllegalTransition> {
                match (self, event) {
                    $(($state::$from, $event::$on) => Ok($state::$to),)*
                    #[allow(unreachable_patterns, reason = "a machine may allow every pair")]
                    (state, event) => Err(crate::machine::IllegalTransition {
                        what: $what,
                        state: state.as_str(),
                        event: event.as_str(),
                    }),
                }
            }
        }
    };
}
pub(crate) use machine;
