//! The look of files: length, white space, module docs, and words that bind the tree to one machine.

use super::{Finding, TextFile};

/// A longer Rust file is a finding: split it.
const FILE_MAX_LINES: usize = 900;

/// A longer Rust file is a note: think of splitting it.
const FILE_NOTE_LINES: usize = 800;

/// Names in a home that stand for anybody, in tests and docs.
const ANYBODY: &[&str] = &["u", "user"];

// Written in two halves, so that this file is not a finding itself.
/// Directories of a machine this project is made on.
const MACHINE_DIRECTORIES: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];
/// Directory of the homes of people.
const HOMES: &str = concat!("/ho", "me/");
/// Hosts of package registries.
const REGISTRIES: &[&str] = &[
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("proxy.golang", ".org"),
    concat!("deb.debian", ".org"),
    concat!("rubygems", ".org"),
];

/// Checks all files.
#[must_use]
pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

/// What is not wrong yet.
#[must_use]
pub(crate) fn notes(files: &[TextFile]) -> Vec<Finding> {
    let long = |file: &&TextFile| (FILE_NOTE_LINES + 1..=FILE_MAX_LINES).contains(&file.text.lines().count());
    let note = |file: &TextFile| {
        let lines = file.text.lines().count();
        Finding::new(&file.path, lines, format!("{lines} lines; think of splitting it before {FILE_MAX_LINES}"))
    };
    files.iter().filter(|file| file.is_rust()).filter(long).map(note).collect()
}

/// Checks one file.
fn check_file(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |line: usize, text: String| findings.push(Finding::new(&file.path, line, text));
    let length = file.text.lines().count();
    if file.is_rust() && length > FILE_MAX_LINES {
        found(length, format!("{length} lines, at most {FILE_MAX_LINES}; split it by concern"));
    }
    if file.is_rust() && !file.text.starts_with("//!") {
        found(1, "no module doc; begin the file with `//!` and say what it is for".into());
    }
    let neat = file.is_rust() || file.path.ends_with(".toml");
    for (index, line) in file.text.lines().enumerate() {
        if neat && line.ends_with([' ', '\t']) {
            found(index + 1, "white space at the end of the line; remove it".into());
        }
        if file.is_rust() && line.contains('\t') {
            found(index + 1, "a tab; use spaces, or `\\t` in a string".into());
        }
        if let Some(path) = machine_path(line) {
            found(index + 1, format!("`{path}` is a path of one machine; use a relative path or a temp directory"));
        }
        // Cargo writes the registry into its lock file; nobody else has to name one.
        let registry = REGISTRIES.iter().find(|host| file.path != "Cargo.lock" && line.contains(**host));
        if let Some(host) = registry {
            found(index + 1, format!("`{host}` is the host of a package registry; leave it out"));
        }
    }
    findings
}

/// The first path of a machine in the line.
fn machine_path(line: &str) -> Option<String> {
    let starts = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.})".contains(c));
    for directory in MACHINE_DIRECTORIES {
        if line.match_indices(directory).any(|(at, _)| starts(at)) {
            return Some((*directory).to_owned());
        }
    }
    line.match_indices(HOMES).filter(|(at, _)| starts(*at)).find_map(|(at, _)| {
        let (name, _) = line[at + HOMES.len()..].split_once('/')?;
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
        (is_name && !ANYBODY.contains(&name)).then(|| format!("{HOMES}{name}/"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines with a finding.
    #[track_caller]
    fn check_lines(path: &str, text: &str, expect: &[usize]) {
        let found = check_file(&TextFile::new(path, text));
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), expect, "{found:?}");
    }

    #[test]
    fn long_files_are_noted_and_then_refused() {
        let file = |lines: usize| TextFile::new("a.rs", &"//! x\n".repeat(lines));
        for (lines, notes_expected, findings) in [(800, 0, 0), (801, 1, 0), (900, 1, 0), (901, 0, 1)] {
            assert_eq!(notes(&[file(lines)]).len(), notes_expected, "{lines}");
            assert_eq!(check(&[file(lines)]).len(), findings, "{lines}");
        }
    }

    #[test]
    fn a_rust_file_begins_with_its_doc() {
        check_lines("a.rs", "use b;\n", &[1]);
        check_lines("a.rs", "//! What it is for.\n", &[]);
    }

    #[test]
    fn white_space_is_neat() {
        check_lines("a.rs", "//! a \nb\n\tc\n", &[1, 3]);
        check_lines("a.toml", "a = 1 \n", &[1]);
        check_lines("a.md", "a  \n\tb\n", &[]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for directory in MACHINE_DIRECTORIES {
            check_lines("a.md", &format!("x\nsee `{directory}x`\n"), &[2]);
            check_lines("a.md", &format!("src{directory}x and {{dir}}{directory}x\n"), &[]);
        }
        check_lines("a.md", &format!("{HOMES}anna/x\n{HOMES}u/x\n{HOMES}<name>/x\n{HOMES}anna\n"), &[1]);
    }

    #[test]
    fn hosts_of_registries_are_found() {
        for host in REGISTRIES {
            check_lines("a.md", &format!("x https://{host}/y\n"), &[1]);
            check_lines("Cargo.lock", &format!("x https://{host}/y\n"), &[]);
        }
    }
}
