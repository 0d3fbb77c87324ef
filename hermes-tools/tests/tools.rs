//! Tools, executor and policy together, with real processes and files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "tools/bench.rs"]
mod bench;
#[path = "tools/executor.rs"]
mod executor;
#[path = "tools/files.rs"]
mod files;
#[path = "tools/judge.rs"]
mod judge;
#[path = "tools/policy.rs"]
mod policy;
#[path = "tools/registry.rs"]
mod registry;
#[path = "tools/terminal.rs"]
mod terminal;
