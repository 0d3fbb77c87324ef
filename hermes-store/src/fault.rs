//! Failures under a store, for tests: what a crash or a lost connection leaves at the moment of a COMMIT.
//!
//! Both SQL back ends take a [`Faults`] in their options and send every COMMIT through [`Faults::around`]. A fault is
//! armed for one COMMIT of one handle and is used up by it, so that a test can enumerate: each method, each fault.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::StoreError;

/// What happens at a COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The change is rolled back, and the caller is told so: [`StoreError::Retryable`].
    BeforeCommit,
    /// The change holds and the answer is lost: [`StoreError::CommitUnknown`].
    ReplyLost,
    /// The change holds, and the process is dead from here on: this write and every later one of the handle fail.
    Dies,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::BeforeCommit, Self::ReplyLost, Self::Dies];
}

#[derive(Debug, Default)]
struct Plan {
    armed: Option<Fault>,
    fired: u64,
    is_dead: bool,
}

/// The faults of one handle. Cloning gives another handle of the same plan; the default one has no fault.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

impl Faults {
    /// The next COMMIT meets this fault.
    pub fn arm(&self, fault: Fault) {
        self.plan().armed = Some(fault);
    }

    /// No COMMIT meets a fault any more. A dead handle stays dead.
    pub fn disarm(&self) {
        self.plan().armed = None;
    }

    /// How many COMMITs met a fault.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.plan().fired
    }

    /// To be asked when a write begins.
    ///
    /// # Errors
    /// [`StoreError::Io`] from a handle whose process is dead.
    pub fn begin(&self) -> Result<(), StoreError> {
        match self.plan().is_dead {
            true => Err(dead()),
            false => Ok(()),
        }
    }

    /// Runs a COMMIT with the armed fault, or without one. A future that is never polled must mean a rollback.
    ///
    /// # Errors
    /// Those of the COMMIT and of the fault.
    pub async fn around(&self, commit: impl Future<Output = Result<(), StoreError>>) -> Result<(), StoreError> {
        self.begin()?;
        let fault = self.take();
        match fault {
            None => commit.await,
            Some(Fault::BeforeCommit) => Err(StoreError::Retryable { detail: "a fault of the test".to_owned() }),
            Some(Fault::ReplyLost) => {
                commit.await?;
                Err(StoreError::CommitUnknown)
            }
            Some(Fault::Dies) => {
                commit.await?;
                self.plan().is_dead = true;
                Err(dead())
            }
        }
    }

    /// The same for a write that commits by itself, unless it turns out that it cannot be done this way (`false`): then
    /// nothing was committed, and the fault stays armed.
    ///
    /// # Errors
    /// Those of the write and of the fault.
    pub async fn around_plain(
        &self,
        write: impl Future<Output = Result<bool, StoreError>>,
    ) -> Result<bool, StoreError> {
        self.begin()?;
        if self.plan().armed == Some(Fault::BeforeCommit) {
            return self.around(async { Ok(()) }).await.map(|()| true);
        }
        match write.await? {
            true => self.around(async { Ok(()) }).await.map(|()| true),
            false => Ok(false),
        }
    }

    fn take(&self) -> Option<Fault> {
        let mut plan = self.plan();
        let fault = plan.armed.take();
        plan.fired += u64::from(fault.is_some());
        fault
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn dead() -> StoreError {
    StoreError::Io { detail: "the process of this handle is dead, says the test".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[tokio::test]
    async fn each_fault_is_used_up_by_one_commit() {
        let commits = AtomicU64::new(0);
        let commit = || async {
            commits.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let faults = Faults::default();
        faults.around(commit()).await.unwrap();
        faults.arm(Fault::BeforeCommit);
        assert!(matches!(faults.around(commit()).await, Err(StoreError::Retryable { .. })));
        assert_eq!(commits.load(Ordering::SeqCst), 1);
        faults.arm(Fault::ReplyLost);
        assert!(matches!(faults.around(commit()).await, Err(StoreError::CommitUnknown)));
        faults.around(commit()).await.unwrap();
        assert_eq!((commits.load(Ordering::SeqCst), faults.fired()), (3, 2));
        faults.arm(Fault::Dies);
        assert!(faults.around(commit()).await.is_err());
        assert!(faults.begin().is_err() && faults.around(commit()).await.is_err());
        assert_eq!(commits.load(Ordering::SeqCst), 4);
    }
}
