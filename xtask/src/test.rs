//! `cargo xtask test`: every test of the workspace.
//!
//! Uses cargo-nextest when it is installed and Cargo's own runner otherwise; both run the same tests. Those of the store
//! get a PostgreSQL server that lives as long as the run, unless `HERMES_TEST_POSTGRES` names one.

use std::process::Stdio;

use anyhow::Result;

use crate::postgres::TestServer;
use crate::shell;

/// What every step takes, so that the three of them share one build.
const WHOLE_WORKSPACE: [&str; 2] = ["--workspace", "--all-features"];

/// Builds the programs, runs unit and integration tests, then the examples in the docs. With `arguments` (a filter,
/// usually) only the first runner is called, because the doc tests know other arguments.
///
/// # Errors
/// A build or a test failed, or there is no PostgreSQL server and none can be started.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    // Cargo builds the programs of a package for that package's own tests only; the end-to-end tests of `tests` start
    // `hermes` from another package.
    shell::run(shell::cargo().arg("build").args(WHOLE_WORKSPACE).arg("--bins"))?;
    // Lives until the last test is done, also when one fails.
    let server = TestServer::get()?;
    let runner: &[&str] = if has_nextest() { &["nextest", "run"] } else { &["test", "--all-targets"] };
    shell::run(shell::cargo().args(runner).args(WHOLE_WORKSPACE).args(arguments).envs(server.variables()))?;
    if arguments.is_empty() {
        shell::run(shell::cargo().args(["test", "--doc"]).args(WHOLE_WORKSPACE).envs(server.variables()))?;
    }
    Ok(())
}

/// Whether `cargo nextest` can be called here.
fn has_nextest() -> bool {
    let mut probe = shell::cargo();
    probe.args(["nextest", "--version"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}
