//! Python environments of judges: pinned packages below the judge's own place.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

/// What an environment was made of, in it; written last, so a half made one has none.
const STAMP: &str = "installed.txt";

/// The Python of the environment in `place`, with these packages (name and version) in it. What is there from the last
/// time is used again.
///
/// # Errors
/// There is no Python, or a package cannot be installed.
pub(super) fn environment(place: &Path, packages: &[(&str, &str)], options: &[&str]) -> Result<PathBuf> {
    std::fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
    let venv = place.join("venv");
    let python = venv.join("bin").join("python");
    let wanted: Vec<String> = packages.iter().map(|(name, version)| format!("{name}=={version}")).collect();
    let stamp = format!("{}\n", [options.join(" "), wanted.join("\n")].join("\n"));
    // One whose base Python is gone has no pip that runs.
    let runs = shell::output(Command::new(&python).args(["-m", "pip", "--version"])).is_ok();
    if runs && std::fs::read_to_string(venv.join(STAMP)).is_ok_and(|found| found == stamp) {
        return Ok(python);
    }
    if let Err(error) = shell::output(Command::new("python3").arg("--version")) {
        bail!("`python3` (3.10 or newer) is needed and does not run; install it: {error:#}");
    }
    // What another pin left behind goes, too.
    shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))
        .context("cannot make a Python environment; some systems have `venv` in a package of its own")?;
    let pip = ["-m", "pip", "install", "--disable-pip-version-check", "-q"];
    shell::run(Command::new(&python).args(pip).args(options).args(&wanted))
        .context("cannot install the pinned packages; there may be no wheel for this system or Python")?;
    std::fs::write(venv.join(STAMP), stamp).context("cannot write the stamp of the environment")?;
    Ok(python)
}
