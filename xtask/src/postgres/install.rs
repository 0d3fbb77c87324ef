//! Installs Debian's package of PostgreSQL where there is no server, so that the tests need no preparation.
//!
//! The package would make a cluster of its own and start it. A line in a directory of its configuration says not to;
//! the line is there only as long as the installation.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::find::{Binaries, VERSION_MIN};
use super::{succeeds, user};
use crate::shell;

/// The package that makes clusters. It comes first, so that its configuration is there before there is a server.
const COMMON_PACKAGE: &str = "postgresql-common";
/// The package of the server with its extensions, in the version of the distribution.
const SERVER_PACKAGE: &str = "postgresql";
/// Where the line stands that says not to make a cluster.
const NO_CLUSTER_PATH: &str = "/etc/postgresql-common/createcluster.d/hermes-tests.conf";
/// Writes the line into the file that is named behind the script.
const NO_CLUSTER_SCRIPT: &str = r#"mkdir -p "${0%/*}" && echo 'create_main_cluster = false' >"$0""#;
/// How long another installation on this machine is waited for, in seconds.
const APT_WAIT: &str = "DPkg::Lock::Timeout=120";

/// Installs the package and returns its programs.
///
/// # Errors
/// There is no `apt-get`, this is neither root nor can become it, the installation failed, or it is too old.
pub(super) fn install() -> Result<Binaries> {
    let Some(root) = as_root()? else {
        bail!("{}", advice("this user may not install packages"));
    };
    if !succeeds(Command::new("apt-get").arg("--version")) {
        bail!("{}", advice("there is no `apt-get` to install it with"));
    }
    eprintln!("xtask: there is no PostgreSQL {VERSION_MIN} or newer here; installing the package `{SERVER_PACKAGE}`");
    let outcome = perform(root, &mut |words| shell::run(&mut command(words)));
    outcome.with_context(|| advice(&format!("the package `{SERVER_PACKAGE}` could not be installed")))?;
    Binaries::find()?.with_context(|| advice(&format!("the package `{SERVER_PACKAGE}` is too old")))
}

/// What a person can do.
fn advice(cause: &str) -> String {
    format!(
        "the tests need a PostgreSQL server, version {VERSION_MIN} or newer, and {cause}: install it (Debian: `apt-get \
         install {SERVER_PACKAGE}`) or set PG_BINDIR to the directory of `initdb` and `postgres`, or set \
         HERMES_TEST_POSTGRES to the URL of a server for tests"
    )
}

/// The words before a command that make root run it; `None` when this user may not.
fn as_root() -> Result<Option<&'static [&'static str]>> {
    if user::is_root()? {
        return Ok(Some(&[]));
    }
    Ok(succeeds(Command::new("sudo").args(["-n", "true"])).then_some(&["sudo", "-n"]))
}

/// All steps. `run` gets the words of one command.
fn perform(root: &[&str], run: &mut dyn FnMut(&[&str]) -> Result<()>) -> Result<()> {
    let mut as_root = |words: &[&str]| run(&[root, words].concat());
    if as_root(&apt_install(COMMON_PACKAGE)).is_err() {
        // Without lists of packages, or with old ones: both are usual in a container.
        as_root(&["apt-get", "update"])?;
        as_root(&apt_install(COMMON_PACKAGE))?;
    }
    as_root(&["sh", "-c", NO_CLUSTER_SCRIPT, NO_CLUSTER_PATH])?;
    let installed = as_root(&apt_install(SERVER_PACKAGE));
    as_root(&["rm", "-f", NO_CLUSTER_PATH])?;
    installed
}

/// The command that installs a package and asks nothing.
fn apt_install(package: &str) -> [&str; 8] {
    ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-yo", APT_WAIT, "--no-install-recommends", package]
}

/// The command of these words.
fn command(words: &[&str]) -> Command {
    let (program, arguments) = words.split_first().map_or(("true", words), |(program, rest)| (*program, rest));
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands that are run when those fail that `fails` says, and how it ends.
    fn dry_run(root: &[&str], fails: impl Fn(usize, &str) -> bool) -> (Vec<String>, Result<()>) {
        let mut lines = Vec::new();
        let outcome = perform(root, &mut |words| {
            let line = words.join(" ");
            lines.push(line.clone());
            if fails(lines.len(), &line) { bail!("no") } else { Ok(()) }
        });
        (lines, outcome)
    }

    const COMMON: &str = "env DEBIAN_FRONTEND=noninteractive apt-get install -yo DPkg::Lock::Timeout=120 \
                          --no-install-recommends postgresql-common";
    const SERVER: &str = "env DEBIAN_FRONTEND=noninteractive apt-get install -yo DPkg::Lock::Timeout=120 \
                          --no-install-recommends postgresql";

    #[test]
    fn the_package_is_installed_without_a_cluster_of_its_own() {
        let (lines, outcome) = dry_run(&[], |_, _| false);
        outcome.unwrap();
        let file = "/etc/postgresql-common/createcluster.d/hermes-tests.conf";
        assert_eq!(lines, [COMMON, &format!("sh -c {NO_CLUSTER_SCRIPT} {file}"), SERVER, &format!("rm -f {file}")]);
    }

    #[test]
    fn lists_are_fetched_when_the_package_is_not_found_without() {
        let (lines, outcome) = dry_run(&[], |number, _| number == 1);
        outcome.unwrap();
        assert_eq!(lines[..3], [COMMON, "apt-get update", COMMON]);
        let (lines, outcome) = dry_run(&[], |_, line| line == COMMON);
        assert!(outcome.is_err());
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn every_command_of_another_user_goes_through_sudo() {
        let (lines, outcome) = dry_run(&["sudo", "-n"], |number, _| number == 1);
        outcome.unwrap();
        assert!(lines.iter().all(|line| line.starts_with("sudo -n ")), "{lines:?}");
    }

    #[test]
    fn the_line_that_forbids_a_cluster_goes_when_the_installation_fails() {
        let (lines, outcome) = dry_run(&[], |_, line| line == SERVER);
        assert!(outcome.is_err());
        assert_eq!(lines.last().unwrap(), &format!("rm -f {NO_CLUSTER_PATH}"));
    }

    #[test]
    fn the_line_that_forbids_a_cluster_is_written_below_a_new_directory() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("createcluster.d").join("x.conf");
        shell::run(Command::new("sh").args(["-c", NO_CLUSTER_SCRIPT]).arg(&path)).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "create_main_cluster = false\n");
    }

    #[test]
    fn the_advice_says_what_to_install_and_what_to_set() {
        let advice = advice("there is none");
        for word in ["15 or newer", "apt-get install postgresql", "PG_BINDIR", "HERMES_TEST_POSTGRES"] {
            assert!(advice.contains(word), "{word}: {advice}");
        }
    }
}
