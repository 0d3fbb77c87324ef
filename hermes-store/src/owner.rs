//! Who may own a lease, and how the death of an owner is proved.

use serde::{Deserialize, Serialize};

use crate::ids::OwnerId;

/// One process that may own leases, with what another process on the same host needs to prove that it is gone.
///
/// A process id alone proves nothing, since ids are used again: the start time and the boot id make it exact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerInfo {
    /// The owner's id, new for every process.
    pub id: OwnerId,
    /// The host's name, and its process-id namespace where the system has them.
    pub host: String,
    /// The host's boot id; empty when the system has none.
    pub boot_id: String,
    /// Process id.
    pub pid: i64,
    /// The process's start time, in the system's own unit (clock ticks since boot on Linux).
    pub pid_start: i64,
}

/// Says whether an owner is provably dead. "Not known" is "no": a live owner is never robbed.
pub trait LivenessProbe: Send + Sync {
    /// True only when the owner's process is proved to be gone.
    fn is_provably_dead(&self, owner: &OwnerInfo) -> bool;
}
