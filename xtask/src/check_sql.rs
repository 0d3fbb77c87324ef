//! `cargo xtask check-sql`: every SQL text of the store can be prepared on the database that it is for.
//!
//! The work is a test of the store, which finds the texts in the source, so that `cargo xtask test` does it too. Here it
//! runs alone.

use anyhow::Result;

use crate::postgres::TestServer;
use crate::shell;

/// Prepares the statements on a SQLite file and on a PostgreSQL server that is thrown away.
///
/// # Errors
/// A statement that a database refuses, or there is no PostgreSQL server and none can be started.
pub(crate) fn run(_arguments: &[String]) -> Result<()> {
    // Lives until the test is done.
    let server = TestServer::get()?;
    let test = ["test", "--package", "hermes-store", "--all-features", "--test", "check_sql"];
    shell::run(shell::cargo().args(test).envs(server.variables()))
}
