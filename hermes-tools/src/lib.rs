//! What an agent can do, and what it is allowed to do.
//!
//! Three questions are kept apart, each with one place: is a tool *registered* ([`ToolRegistry`]), is it *available* to
//! this session ([`ToolSelection`]), and is this *call allowed* ([`ApprovalPolicy`]). Only the policy makes an
//! [`Authorized`] call, and nothing but an authorized call opens a tool: background commands, wrappers and scripts have no
//! other way in.
//!
//! The [`Executor`] runs one round's calls: compatible ones side by side, others one after the other, results always
//! by their place in the round. It tells a [`CallObserver`] before a call may have an effect and when its result is
//! known, so that the owner of the transcript can write both down; it stops when the observer cannot.
//!
//! The crate knows nothing of transcripts and models.

mod approval;
mod budget;
#[cfg(feature = "builtin")]
pub mod builtin;
mod coerce;
mod command;
mod executor;
mod judge;
mod paths;
mod plan;
mod policy;
mod registry;
mod run;
#[cfg(feature = "test-util")]
pub mod scripted;
mod session;
#[cfg_attr(not(feature = "builtin"), allow(dead_code))]
mod text;
mod tool;
mod toolsets;

pub use approval::{
    ApprovalAnswer, ApprovalMode, ApprovalPolicy, ApprovalRequest, Approver, Authorized, Clarifier, ClarifyAnswer,
    ClarifyQuestion, Denial, Presence, Risk,
};
pub use executor::{BatchContext, CallObserver, Executor, Halt, PreparedCall};
pub use judge::{JUDGE_REFUSALS_MAX, JUDGED_COMMAND_MAX_BYTES, Judge, JudgeCase, Judgement, Ruling};
pub use policy::{DEFAULT_APPROVAL_TIMEOUT_MS, PolicyConfig};
pub use registry::{RegisterError, SelectionError};
pub use run::{BATCH_LIMIT_MS, ExecutorLimits, WORKERS};
pub use session::{SessionConfig, TodoItem, TodoStatus, ToolSession};
pub use tool::{
    Call, CallOutcome, CallProgress, CallReport, Concurrency, PathUse, ReplaySafety, Tool, ToolContext, ToolRegistry,
    ToolScope, ToolSelection, ToolSpec,
};
pub use toolsets::TOOLSETS_WITHOUT_TOOLS;
