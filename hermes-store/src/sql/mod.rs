//! What both SQL back ends share: statements and the methods that use them.
//!
//! This folder is compiled twice, as a child of `sqlite` and as a child of `postgres`. Everything here is written
//! against the names of `super::driver`, which each back end defines: its connection, its row, its write transaction.
//! So there is one SQL text per statement, in the subset that both databases share (`$N` parameters, `RETURNING`,
//! `INSERT ... ON CONFLICT`), and no statement pays for an abstraction at run time. What really differs (how a
//! transaction begins, error codes, full-text search, notifications) stands beside each `driver`.

use super::driver;

mod admissions;
mod branch;
mod delegations;
mod history;
mod leases;
mod locks;
pub(super) mod read;
pub(super) mod schema;
mod sessions;
mod transcript;
mod view;
mod work;
