//! `cargo xtask tidy`: the rules of this repository that no other tool knows.
//!
//! Each rule is a function from files to findings. To add one: write it in a module here, add one line to [`CHECKS`].

use std::fmt;
use std::process::Command;

use anyhow::{Result, bail};

use crate::{codegen, shell};

mod behaviours;
pub(crate) mod codes;
mod invariants;
mod layers;
mod names;
mod source;
mod text;

/// One file of the repository that is text.
#[derive(Debug, Clone)]
pub(crate) struct TextFile {
    /// Path from the root of the repository, with `/`.
    pub(crate) path: String,
    /// The file as it is.
    pub(crate) text: String,
}

impl TextFile {
    /// A file of this path and text; nothing is read.
    #[must_use]
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// Whether this is a Rust file.
    #[must_use]
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// One thing that is wrong, and what to do. Shown as `file:line: text`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    text: String,
}

impl Finding {
    /// A finding at a line, counted from 1.
    #[must_use]
    pub(crate) fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.text)
    }
}

/// A rule: from all files to what is wrong with them.
type Check = fn(&[TextFile]) -> Vec<Finding>;

/// Every rule that fails the command.
const CHECKS: &[Check] =
    &[layers::check, names::check, text::check, codes::check, invariants::check, behaviours::check, codegen::check];

/// Checks the tree. Findings go to the standard output, notes and counts to the standard error.
///
/// # Errors
/// There is a finding, or the files cannot be listed.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if let Some(argument) = arguments.first() {
        bail!("`tidy` takes no argument, got `{argument}`");
    }
    let files = files()?;
    for note in text::notes(&files).into_iter().chain(behaviours::open()) {
        eprintln!("note: {note}");
    }
    let planned = invariants::planned(&files);
    eprintln!("tidy: {} files, {planned} invariants whose test is planned with a later issue", files.len());
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&files)).collect();
    findings.sort_by(|a, b| (&a.path, a.line, &a.text).cmp(&(&b.path, b.line, &b.text)));
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    Ok(())
}

/// All text files that Git knows or would add, in the order of their paths.
///
/// # Errors
/// Git is missing or this is no clone.
pub(crate) fn files() -> Result<Vec<TextFile>> {
    // A clone made by another user (a CI runner, say) is still the clone this program was built from.
    let list = ["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = shell::output(Command::new("git").args(list).current_dir(shell::root()))?;
    let mut paths: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    // What is deleted but not yet committed, and what is not UTF-8, has no text to check.
    let read = |path: &str| Some(TextFile::new(path, &std::fs::read_to_string(shell::root().join(path)).ok()?));
    Ok(paths.into_iter().filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_that_an_editor_can_follow() {
        assert_eq!(Finding::new("a/b.rs", 7, "wrong; do this").to_string(), "a/b.rs:7: wrong; do this");
    }
}
