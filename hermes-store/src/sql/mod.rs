//! What both SQL back ends share: statements and the methods that use them.
//!
//! This folder is compiled twice, as a child of `sqlite` and as a child of `postgres`. Everything here is written
//! against the names of `super::driver`, which each back end defines: its connection, its row, its write transaction.
//! So there is one SQL text per statement, in the subset that both databases share (`$N` parameters, `RETURNING`,
//! `INSERT ... ON CONFLICT`), and no statement pays for an abstraction at run time. What really differs (how a
//! transaction begins, error codes, full-text search, notifications) stands beside each `driver`.

use super::driver;

mod admissions;
mod approval;
mod branch;
mod delegations;
mod delivery;
mod fenced;
mod history;
mod inbound;
mod journal;
mod leases;
mod locks;
mod maintenance;
mod opening;
pub(super) mod plain;
pub(super) mod read;
mod retention;
mod rows;
pub(super) mod schema;
pub(super) mod search;
mod sessions;
mod transcript;
mod transfer;
mod view;
mod work;
