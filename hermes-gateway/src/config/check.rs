//! Which names of settings are known, and what `hermes config check` says about the others.

use super::config::Config;
use super::near::{is_slip, near};
use super::raw::{Kind, Mark, Node};
use super::settings;

/// Stands for a dot within a name.
const INNER_DOT: &str = "\u{1}";

/// How many settings of a section are named as examples.
const EXAMPLES: usize = 3;

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
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}: {} ", self.line, self.column, self.key)?;
        match &self.kind {
            FindingKind::NotSupportedYet => f.write_str("is known but not supported yet; it has no effect"),
            FindingKind::Unknown { near } if near.is_empty() => f.write_str("is not a known setting; it has no effect"),
            FindingKind::Unknown { near } => {
                write!(f, "is not a known setting; it has no effect. Did you mean {}?", near.join(" or "))
            }
            FindingKind::Twice => f.write_str("stands twice in its section; the last one counts"),
        }
    }
}

/// What in the file has no effect, or not the expected one, in the order of the file.
#[must_use]
pub fn check(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(root) = &config.tree {
        walk(root, "", &mut findings);
    }
    findings.sort_by_key(|finding| (finding.line, finding.column));
    findings
}

fn walk(node: &Node, above: &str, findings: &mut Vec<Finding>) {
    let Kind::Map { entries, .. } = &node.kind else { return };
    for (at, entry) in entries.iter().enumerate() {
        // A dot inside a name is no level: it is held apart while names are compared.
        let part = entry.key.replace('.', INNER_DOT);
        let key = if above.is_empty() { part } else { format!("{above}.{part}") };
        let Mark { line, column } = entry.key_mark;
        let mut find = |kind| findings.push(Finding { line, column, key: key.replace(INNER_DOT, "."), kind });
        if entries[..at].iter().any(|earlier| earlier.key == entry.key) {
            find(FindingKind::Twice);
        }
        let section = matches!(&entry.value.kind, Kind::Map { entries, .. } if !entries.is_empty());
        if supported(&key) && (!section || settings::is_mapping(&key)) {
            continue;
        }
        let holds_supported = settings::names().any(|name| {
            let depth = key.matches('.').count();
            let front: Vec<&str> = name.split('.').take(depth + 1).collect();
            name.matches('.').count() > depth && matches_name(&front.join("."), &key)
        });
        match python(&key) {
            known if section && (holds_supported || matches!(known, Known::Below)) => {
                walk(&entry.value, &key, findings);
            }
            // An empty section says nothing.
            _ if holds_supported => {}
            Known::Any => match slips(&key) {
                near if near.is_empty() => find(FindingKind::NotSupportedYet),
                near => find(FindingKind::Unknown { near }),
            },
            Known::Setting | Known::Below => find(FindingKind::NotSupportedYet),
            Known::No => find(FindingKind::Unknown { near: near_names(&key) }),
        }
    }
}

fn supported(key: &str) -> bool {
    settings::names().any(|name| matches_name(name, key))
}

/// Whether `key` (dotted) names a setting of this program or of the Python program: something with a value of its own,
/// not a section.
pub(super) fn is_setting(key: &str) -> bool {
    supported(key)
        || match python(key) {
            Known::Setting => true,
            Known::Any => slips(key).is_empty(),
            Known::Below | Known::No => false,
        }
}

/// What may have been meant by a name that no setting has, best first. For a section: settings in it.
pub(super) fn near_names(key: &str) -> Vec<String> {
    let slips = slips(key);
    if !slips.is_empty() {
        return slips;
    }
    let names: Vec<String> = settings::names().map(str::to_owned).chain(all_keys()).collect();
    let known = || names.iter().map(String::as_str);
    let below: Vec<String> =
        known().filter(|name| is_below(name, key)).take(EXAMPLES).map(|name| name.replace('*', "NAME")).collect();
    if below.is_empty() { near(key, known().filter(|name| siblings(name, key))) } else { below }
}

/// The supported names of the same section that differ from `key` by a slip of the hand.
fn slips(key: &str) -> Vec<String> {
    let Some((section, last)) = key.rsplit_once('.') else { return Vec::new() };
    settings::names()
        .filter_map(|name| name.rsplit_once('.'))
        .filter(|(front, end)| matches_name(front, section) && siblings(front, section) && is_slip(last, end))
        .map(|(_, end)| format!("{section}.{end}").replace(INNER_DOT, "."))
        .collect()
}

/// Whether a key is a name, where `*` in the name is any text.
fn matches_name(name: &str, key: &str) -> bool {
    match name.split_once('*') {
        None => name == key,
        Some((front, end)) => key.len() > front.len() + end.len() && key.starts_with(front) && key.ends_with(end),
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
    /// Below a section that takes any name.
    Any,
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
        if any && !rest.is_empty() && (open.is_empty() || is_below(rest, open)) {
            return Known::Any;
        }
        if open == rest {
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
        let below =
            names.split_ascii_whitespace().map(move |name| format!("{section}.{}", name.trim_end_matches(".*")));
        std::iter::once(section.to_owned()).chain(below)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i27_typos_are_told_apart_from_what_is_not_supported_yet() {
        let text = concat!(
            "agent:\n  max_turn: 5\n  stall_guards: true\ncompression:\n  micro_compact: false\n  treshold: 1\n",
            "mcp_servers:\n  x: {command: y}\nzzz: 1\nproviders: {a.b: {key_env: K, models: {m: {}}}}\n",
            "_config_version: 50\nmodel: m\nagent:\n  max_turns: 7\n",
        );
        let found = check(&Config::parse(std::path::Path::new("config.yaml"), text).unwrap());
        let said: Vec<String> = found.iter().map(|finding| format!("{} {:?}", finding.key, finding.kind)).collect();
        let expected = [
            "agent.max_turn Unknown { near: [\"agent.max_turns\"] }",
            "agent.stall_guards NotSupportedYet",
            "compression.micro_compact NotSupportedYet",
            "compression.treshold Unknown { near: [\"compression.threshold\"] }",
            "mcp_servers NotSupportedYet",
            "zzz Unknown { near: [] }",
            "providers.a.b.models NotSupportedYet",
            "agent Twice",
        ];
        assert_eq!(said, expected);
        assert_eq!((found[5].line, found[5].column), (9, 1));
    }

    #[test]
    fn i27_a_slip_below_a_section_that_takes_any_name_is_told() {
        let text = "model: {defualt: m, openai_runtime: x}\nproviders: {a.b: {apikey: k, models: [m]}}\n";
        let found = check(&Config::parse(std::path::Path::new("config.yaml"), text).unwrap());
        let said: Vec<String> = found.iter().map(|finding| format!("{} {:?}", finding.key, finding.kind)).collect();
        let expected = [
            "model.defualt Unknown { near: [\"model.default\"] }",
            "model.openai_runtime NotSupportedYet",
            "providers.a.b.apikey Unknown { near: [\"providers.a.b.api_key\"] }",
            "providers.a.b.models NotSupportedYet",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn names_of_the_python_program_are_known() {
        assert!(matches!(python("compression.threshold"), Known::Setting));
        assert!(matches!(python("compression"), Known::Below));
        assert!(matches!(python("agent.agent_cache"), Known::Below));
        assert!(matches!(python("mcp_servers"), Known::Setting));
        assert!(matches!(python("mcp_servers.files.command"), Known::Any));
        assert!(matches!(python("terminal.docker_env.X"), Known::Any));
        assert!(matches!(python("timezone"), Known::Setting));
        assert!(matches!(python("compression.treshold"), Known::No));
        assert!(matches!(python("nonsense"), Known::No));
    }
}
