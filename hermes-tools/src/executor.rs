//! The executor's contract: what it is given, what it reports. The planning stands in `plan`, the running in `run`.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::approval::ApprovalPolicy;
use crate::tool::{Call, CallProgress, CallReport, Tool, ToolContext};

pub use crate::run::Executor;

/// A call that was checked against the registry and its tool's schema, and may be judged and run.
#[derive(Clone)]
pub struct PreparedCall {
    /// The call's place in its round, from 0.
    pub index: usize,
    /// The call with parsed arguments.
    pub call: Call,
    /// The tool that it names.
    pub tool: Arc<dyn Tool>,
}

/// The observer could not write something down: nothing more may run or be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Halt;

/// Hears of each call before it may have an effect and when its result is known.
///
/// The owner of the transcript implements it. Results arrive in the order in which calls end; the place in the
/// transcript is the owner's business.
#[async_trait]
pub trait CallObserver: Send + Sync {
    /// The calls at these places are about to run: they were allowed, and nothing of them has happened yet. Returns
    /// when that is durable. Calls of [`crate::ReplaySafety::Pure`] tools are not announced.
    async fn before_effect(&self, indexes: &[usize]) -> Result<(), Halt>;

    /// Calls without an effect are about to begin: the last moment to say that nothing may begin any more.
    async fn may_begin(&self) -> Result<(), Halt> {
        Ok(())
    }

    /// The call at this place has ended; exactly once for each call of the batch. Returns when that is durable.
    async fn settled(&self, index: usize, report: CallReport) -> Result<(), Halt>;

    /// Something to show; never blocks, may be lost.
    fn progress(&self, index: usize, progress: CallProgress);
}

/// What one round's calls run in.
#[derive(Clone)]
pub struct BatchContext {
    /// The context that each call gets a copy of (its `progress` is replaced by one that names the call).
    pub tool: ToolContext,
    /// Who judges.
    pub policy: Arc<ApprovalPolicy>,
    /// The model's window in tokens, by which result budgets are scaled; `None` when unknown.
    pub context_window: Option<u64>,
    /// Cancelled when nothing more may begin, while what runs may end by itself. `tool.cancel` ends what runs too.
    pub begin_nothing: CancellationToken,
}
