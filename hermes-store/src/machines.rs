//! Every state machine of the store, with its diagram.
//!
#![doc = include_str!("machines.md")]

use crate::machine::Machine;

/// Every machine of the store.
pub const ALL: &[&Machine] = &[
    &crate::ADMISSION_MACHINE,
    &crate::TURN_MACHINE,
    &crate::CALL_MACHINE,
    &crate::CONVERSATION_MACHINE,
    &crate::CHANGE_MACHINE,
    &crate::LOCK_MACHINE,
    &crate::WORKER_MACHINE,
    &crate::DELEGATION_MACHINE,
    &crate::RESULT_DELIVERY_MACHINE,
    &crate::DELIVERY_MACHINE,
    &crate::APPROVAL_MACHINE,
];

/// The page `machines.md`: one diagram for each machine, printed from its table.
#[must_use]
pub fn page() -> String {
    let mut out = String::from(
        "State machines of the store, printed from their tables by `cargo run -p hermes-store --example machines`.\n\n\
         A pair of state and event that is not drawn is refused with [`crate::IllegalTransition`] and changes nothing.\n",
    );
    for machine in ALL {
        let (first, rest) = machine.what.split_at(machine.what.find(' ').map_or(0, |at| at + 1));
        let title = if rest.is_empty() { first } else { rest };
        out.push_str(&format!("\n# {title}\n\n```mermaid\n{}```\n", machine.diagram()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_printed_from_the_tables() {
        assert!(
            page() == include_str!("machines.md"),
            "src/machines.md is out of date: cargo run -p hermes-store --example machines"
        );
    }

    #[test]
    fn every_machine_is_sound() {
        for machine in ALL {
            let mut pairs = std::collections::BTreeSet::new();
            for (from, event, to) in machine.edges {
                assert!(pairs.insert((from, event)), "{}: {from} + {event} is given twice", machine.what);
                assert!(machine.states.contains(from) && machine.states.contains(to), "{}", machine.what);
                assert!(machine.events.contains(event), "{}", machine.what);
            }
            let mut reached = std::collections::BTreeSet::from([machine.states[0]]);
            for _ in machine.states {
                let next: Vec<_> =
                    machine.edges.iter().filter(|(from, ..)| reached.contains(from)).map(|(.., to)| *to).collect();
                reached.extend(next);
            }
            assert_eq!(reached.len(), machine.states.len(), "{}: a state is never reached", machine.what);
            assert!(machine.ends().next().is_some(), "{}: nothing ends", machine.what);
        }
    }

    /// Every pair of every machine, against its table.
    macro_rules! total {
        ($test:ident, $machine:expr, $state:ident, $event:ident) => {
            #[test]
            fn $test() {
                for state in crate::$state::ALL.iter().copied() {
                    for event in crate::$event::ALL.iter().copied() {
                        let pair = (state.as_str(), event.as_str());
                        let want = $machine.edges.iter().find(|(from, on, _)| (*from, *on) == pair).map(|edge| edge.2);
                        assert_eq!(state.next(event).ok().map(crate::$state::as_str), want, "{pair:?}");
                    }
                }
            }
        };
    }

    total!(admissions_are_total, crate::ADMISSION_MACHINE, AdmissionStatus, AdmissionEvent);
    total!(turns_are_total, crate::TURN_MACHINE, TurnStatus, TurnEvent);
    total!(calls_are_total, crate::CALL_MACHINE, JournalState, JournalEvent);
    total!(conversations_are_total, crate::CONVERSATION_MACHINE, ConversationStatus, ConversationEvent);
    total!(changes_are_total, crate::CHANGE_MACHINE, ChangeStatus, ChangeEvent);
    total!(locks_are_total, crate::LOCK_MACHINE, LockState, LockEvent);
    total!(workers_are_total, crate::WORKER_MACHINE, WorkerState, WorkerEvent);
    total!(delegations_are_total, crate::DELEGATION_MACHINE, DelegationState, DelegationEvent);
    total!(results_are_total, crate::RESULT_DELIVERY_MACHINE, ResultDelivery, ResultDeliveryEvent);
    total!(deliveries_are_total, crate::DELIVERY_MACHINE, DeliveryState, DeliveryEvent);
    total!(approvals_are_total, crate::APPROVAL_MACHINE, ApprovalState, ApprovalEvent);
}
