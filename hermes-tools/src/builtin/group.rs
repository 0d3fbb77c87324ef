//! A process group that is gone when its owner is.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Kills the group when it is dropped, unless it was let go.
#[derive(Debug)]
pub(super) struct Group {
    id: Option<Pid>,
}

impl Group {
    /// The group that the process with this id leads.
    pub(super) fn new(leader: u32) -> Self {
        Self { id: i32::try_from(leader).ok().filter(|id| *id > 1).map(Pid::from_raw) }
    }

    /// Asks the group to end.
    pub(super) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Ends the group.
    pub(super) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Leaves the group alone from now on: its leader ended by itself, and its id may become another's.
    pub(super) fn let_go(&mut self) {
        self.id = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(id) = self.id {
            // No such group: it is gone already, which is what was wanted.
            let _ = killpg(id, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
