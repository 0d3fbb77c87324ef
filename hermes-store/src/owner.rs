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

#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use proc::ProcProbe;

/// Owners and their proof through Linux's `/proc`.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod proc {
    use std::fs;
    use std::sync::OnceLock;

    use super::{LivenessProbe, OwnerInfo};
    use crate::ids::OwnerId;

    /// Position of the start time among the fields behind the command's closing bracket in `/proc/PID/stat`, counted
    /// from 0 (field 22 of proc(5); the bracket closes field 2).
    const START_FIELD: usize = 19;

    const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

    /// The start time of a process, in clock ticks since boot; `None` when there is no such process.
    fn start_of(pid: i64) -> std::io::Result<Option<i64>> {
        let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // The command may hold spaces and brackets: fields are counted behind its last closing one.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let mut fields = fields.split_whitespace();
        // A zombie has ended: it runs nothing and writes nothing, whether its parent has looked or not.
        if fields.clone().next() == Some("Z") {
            return Ok(None);
        }
        let start = fields.nth(START_FIELD).and_then(|field| field.parse().ok());
        start.map(Some).ok_or_else(|| std::io::Error::from(std::io::ErrorKind::InvalidData))
    }

    fn trimmed(path: &str) -> String {
        fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
    }

    /// The host's name with the namespace of its process ids: the same number means the same process only within both.
    fn host() -> String {
        let name = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let namespace = fs::read_link("/proc/self/ns/pid").map(|link| link.to_string_lossy().into_owned());
        format!("{name} {}", namespace.unwrap_or_default())
    }

    impl OwnerInfo {
        /// This process as an owner. Reads a few files of `/proc`: call it on a blocking thread.
        #[must_use]
        pub fn of_this_process(id: OwnerId) -> Self {
            let pid = i64::from(std::process::id());
            Self {
                id,
                host: host(),
                boot_id: trimmed(BOOT_ID),
                pid,
                pid_start: start_of(pid).ok().flatten().unwrap_or(0),
            }
        }
    }

    /// Proves deaths on this host: the process id is free, or belongs to a process that started at another time, or
    /// the host has been started again since. Of another host, and without `/proc`, nothing is known.
    ///
    /// Reads files, and so blocks; the store calls it on a blocking thread.
    #[derive(Debug, Clone, Default)]
    pub struct ProcProbe {
        /// Name and boot id of this host, read when they are first needed: most starts need no proof.
        here: OnceLock<(String, String)>,
    }

    impl ProcProbe {
        /// A probe for this host.
        #[must_use]
        pub fn new() -> Self {
            Self::default()
        }
    }

    impl LivenessProbe for ProcProbe {
        fn is_provably_dead(&self, owner: &OwnerInfo) -> bool {
            let (host, boot_id) = self.here.get_or_init(|| (host(), trimmed(BOOT_ID)));
            // The name before the space is the host; after a restart the namespace may have another number.
            let name = |host: &str| host.split(' ').next().unwrap_or_default().to_owned();
            if boot_id.is_empty() || owner.boot_id.is_empty() || name(&owner.host) != name(host) {
                return false;
            }
            if owner.boot_id != *boot_id {
                return true;
            }
            if owner.host != *host || owner.pid_start == 0 {
                return false;
            }
            match start_of(owner.pid) {
                Ok(None) => true,
                Ok(Some(start)) => start != owner.pid_start,
                Err(_) => false,
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn me() -> OwnerInfo {
            OwnerInfo::of_this_process(OwnerId::parse("me").unwrap())
        }

        #[cfg(target_os = "linux")]
        #[test]
        fn i10_only_a_proved_death_counts() {
            let probe = ProcProbe::new();
            let alive = me();
            assert!(!probe.is_provably_dead(&alive));
            assert!(
                probe.is_provably_dead(&OwnerInfo { pid_start: alive.pid_start + 1, ..alive.clone() }),
                "id reused"
            );
            assert!(probe.is_provably_dead(&OwnerInfo { boot_id: "other".to_owned(), ..alive.clone() }), "restarted");
            assert!(!probe.is_provably_dead(&OwnerInfo { boot_id: String::new(), ..alive.clone() }), "no boot id");
            assert!(!probe.is_provably_dead(&OwnerInfo { host: "elsewhere x".to_owned(), ..alive.clone() }), "host");
            let name = alive.host.split(' ').next().unwrap();
            let other = OwnerInfo { host: format!("{name} pid:[1]"), pid: 999_999_999, ..alive };
            assert!(!probe.is_provably_dead(&other), "another namespace");
        }

        #[cfg(target_os = "linux")]
        #[test]
        fn i10_a_process_that_has_ended_is_proved_dead() {
            let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
            let pid = i64::from(child.id());
            let owner = OwnerInfo { pid, pid_start: start_of(pid).unwrap().unwrap(), ..me() };
            let probe = ProcProbe::new();
            assert!(!probe.is_provably_dead(&owner));
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(probe.is_provably_dead(&owner));
        }
    }
}
