//! Which names of settings are known, and what `hermes config check` says about the others.

use super::near::near;
use super::yaml::{Kind, Node, Place};

/// Names only; a file of ours.
const KNOWN: &str = include_str!("known_keys.txt");

/// What is to be said about a key that has no effect, or not the expected one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Line in `config.yaml`, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The key with its sections.
    pub key: String,
    /// What is wrong.
    pub kind: FindingKind,
}

/// What is wrong with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FindingKind {
    /// A setting of the Python program that this program does not use yet. It is kept.
    NotSupportedYet,
    /// No setting of this name is known. It is kept.
    Unknown {
        /// Names that look like it.
        near: Vec<String>,
    },
    /// Stands twice in its section: only the last one counts.
    Twice,
    /// The value cannot be used.
    Invalid {
        /// The message of the error.
        message: String,
    },
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let FindingKind::Invalid { message } = &self.kind {
            return f.write_str(message);
        }
        write!(f, "line {}, column {}: {} ", self.line, self.column, self.key)?;
        match &self.kind {
            FindingKind::NotSupportedYet => f.write_str("is known but not supported yet; it has no effect"),
            FindingKind::Unknown { near } if near.is_empty() => f.write_str("is not a known setting; it has no effect"),
            FindingKind::Unknown { near } => {
                write!(f, "is not a known setting; it has no effect. Did you mean {}?", near.join(" or "))
            }
            FindingKind::Twice => f.write_str("stands twice in its section; the last one counts"),
            FindingKind::Invalid { .. } => Ok(()),
        }
    }
}

/// Whether a path is used by this program (as `used` says), one of the Python program, or neither.
pub(super) fn inspect(root: &Node, used: &dyn Fn(&str) -> bool, supported: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    walk(root, "", used, supported, &mut findings);
    findings.sort_by_key(|finding| (finding.line, finding.column));
    findings
}

fn walk(node: &Node, above: &str, used: &dyn Fn(&str) -> bool, supported: &[&str], findings: &mut Vec<Finding>) {
    let Some(entries) = node.entries() else { return };
    for (at, entry) in entries.iter().enumerate() {
        let key = if above.is_empty() { entry.key.clone() } else { format!("{above}.{}", entry.key) };
        let Place { line, column } = entry.key_place;
        let mut find = |kind| findings.push(Finding { line, column, key: key.clone(), kind });
        if entries[..at].iter().any(|earlier| earlier.key == entry.key) {
            find(FindingKind::Twice);
        }
        let section = matches!(&entry.value.kind, Kind::Map { entries, .. } if !entries.is_empty());
        if used(&key) {
            continue;
        }
        match python(&key) {
            Known::Below if section => walk(&entry.value, &key, used, supported, findings),
            // A section of ours alone, or one that holds keys of both.
            _ if section && supported.iter().any(|name| is_below(name, &key)) => {
                walk(&entry.value, &key, used, supported, findings);
            }
            Known::Setting | Known::Below => find(FindingKind::NotSupportedYet),
            Known::No => {
                let names: Vec<String> = all_keys().collect();
                let known = names.iter().map(String::as_str).chain(supported.iter().copied());
                find(FindingKind::Unknown { near: near(&key, known.filter(|name| siblings(name, &key))) });
            }
        }
    }
}

fn is_below(name: &str, section: &str) -> bool {
    name.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
}

/// A mistyped name is looked for at its own depth only.
fn siblings(name: &str, key: &str) -> bool {
    name.matches('.').count() == key.matches('.').count()
}

enum Known {
    Setting,
    /// A section that holds settings.
    Below,
    No,
}

fn python(key: &str) -> Known {
    let (top, rest) = key.split_once('.').unwrap_or((key, ""));
    let Some(names) = lines().find_map(|(section, names)| (section == top).then_some(names)) else {
        return Known::No;
    };
    let mut empty = true;
    for name in names.split_ascii_whitespace() {
        empty = false;
        let (open, any) = match name.strip_suffix('*') {
            Some(open) => (open.trim_end_matches('.'), true),
            None => (name, false),
        };
        if open == rest || (any && (open.is_empty() || is_below(rest, open))) {
            return Known::Setting;
        }
        if rest.is_empty() || is_below(open, rest) {
            return Known::Below;
        }
    }
    if empty && rest.is_empty() { Known::Setting } else { Known::No }
}

fn lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    KNOWN.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_once(' ').unwrap_or((line, "")))
}

/// The sections, and the settings below them.
fn all_keys() -> impl Iterator<Item = String> {
    lines().flat_map(|(section, names)| {
        let below = names.split_ascii_whitespace().map(move |name| format!("{section}.{}", name.trim_end_matches(".*")));
        std::iter::once(section.to_owned()).chain(below)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_python_program_are_known() {
        assert!(matches!(python("compression.threshold"), Known::Setting));
        assert!(matches!(python("compression"), Known::Below));
        assert!(matches!(python("agent.agent_cache"), Known::Below));
        assert!(matches!(python("mcp_servers.files.command"), Known::Setting));
        assert!(matches!(python("terminal.docker_env.X"), Known::Setting));
        assert!(matches!(python("timezone"), Known::Setting));
        assert!(matches!(python("compression.treshold"), Known::No));
        assert!(matches!(python("nonsense"), Known::No));
    }
}
