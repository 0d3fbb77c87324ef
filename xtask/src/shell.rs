//! Running programs, and where the workspace is.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the workspace: the parent of this package, as Cargo names it when it runs this program. What Cargo named
/// when it built it counts only without Cargo: two clones may share a target directory.
#[must_use]
pub(crate) fn root() -> PathBuf {
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().unwrap_or(&here).to_path_buf()
}

/// Makes the root of the workspace the current directory, so that a command works from any directory.
///
/// # Errors
/// The directory is gone, as after a move of the clone without a new build.
pub(crate) fn enter_root() -> Result<()> {
    let root = root();
    std::env::set_current_dir(&root).with_context(|| format!("cannot enter {}", root.display()))
}

/// The Cargo that runs this program, else the one on the path.
#[must_use]
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Shows the command line, runs it and waits. The child writes to the terminal of this process and reads nothing.
///
/// # Errors
/// The program could not be started, or it ended with a code other than zero.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line_of(command);
    eprintln!("$ {line}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Builds one program of the workspace for debugging; where it is, wherever that may be.
///
/// # Errors
/// The build fails, or made no program.
pub(crate) fn built(arguments: &[&str]) -> Result<PathBuf> {
    let mut command = cargo();
    command.arg("build").args(arguments).arg("--message-format=json-render-diagnostics");
    eprintln!("$ {}", line_of(&command));
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("`cargo build {}` failed", arguments.join(" "));
    }
    let told = String::from_utf8_lossy(&output.stdout);
    // Dependencies are told of too, but have no program; the last one is what was asked for.
    let program = told.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message.get("executable")?.as_str()?))
    });
    program.with_context(|| format!("`cargo build {}` made no program", arguments.join(" ")))
}

/// What the program writes to its standard output, as text.
///
/// # Errors
/// The program could not be started, ended with a code other than zero, or wrote something that is not UTF-8.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = line_of(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` wrote something that is not UTF-8"))
}

/// The command line as a person would type it, with the program's name instead of its path.
fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    std::iter::once(name)
        .chain(command.get_args().map(|word| word.to_string_lossy().into_owned()))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace_manifest() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn a_failing_program_is_an_error_that_names_it() {
        let error = output(Command::new("git").arg("no-such-command")).unwrap_err();
        assert!(format!("{error:#}").contains("git no-such-command"), "{error:#}");
    }

    #[test]
    fn the_output_of_a_program_comes_back_as_text() {
        assert!(output(Command::new("git").arg("--version")).unwrap().starts_with("git version"));
    }
}
