//! Changing one setting of `config.yaml` without touching anything else in it.
//!
//! The change is made in the text, at the place that the tree knows. Then the new text is read again: it must be the
//! old settings with just this one changed. Otherwise nothing is written and the user is asked to edit by hand.

use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Value};

use super::check;
use super::config::{Config, read_text};
use super::error::ConfigError;
use super::files;
use super::raw::{self, Entry, Kind, Node};
use super::scope::Scope;
use super::settings;

/// Words that YAML 1.1 or 1.2 reads as something else than text.
const RESERVED: [&str; 12] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "~", ".inf", ".nan"];
/// Spaces of one level when the file does not show its own.
const INDENT: usize = 2;

/// What a setting is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewValue {
    /// A text.
    Text(String),
    /// `true`, `false`, `null` or a number, as it is to stand in the file.
    Bare(String),
    /// A list of texts.
    List(Vec<String>),
}

impl NewValue {
    /// What a person means by a word of the command line: `true`, `false`, `null`, a number without leading zeros,
    /// `[a, b]`, and otherwise text.
    #[must_use]
    pub fn from_word(word: &str) -> Self {
        let digits = word.strip_prefix('-').unwrap_or(word);
        let leading_zero = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
        let number = digits.starts_with(|c: char| c.is_ascii_digit())
            && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.')
            && digits.parse::<f64>().is_ok()
            && !digits.ends_with('.')
            && !leading_zero;
        if number || matches!(word, "true" | "false" | "null") {
            return Self::Bare(word.to_owned());
        }
        match word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(items) if !items.contains(['[', ']', '{', '}', '"', '\'']) => Self::List(
                items.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect(),
            ),
            _ => Self::Text(word.to_owned()),
        }
    }

    fn render(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Bare(text) => text.clone(),
            Self::List(items) => format!("[{}]", items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ")),
        }
    }

    fn meaning(&self) -> Value {
        match self {
            Self::Text(text) => word(text),
            Self::Bare(text) if text == "null" => Value::Null,
            Self::Bare(text) => bare(text),
            Self::List(items) => Value::Array(items.iter().map(|item| word(item)).collect()),
        }
    }
}

/// Whether a text needs no quotes and is text for every YAML reader, also in a flow list.
fn is_word(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, '/' | '_' | '.'))
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./@+".contains(c))
        && !RESERVED.contains(&text.to_lowercase().as_str())
        && text.parse::<f64>().is_err()
}

/// JSON quotes are YAML quotes.
fn quoted(text: &str) -> String {
    if is_word(text) { text.to_owned() } else { Value::from(text).to_string() }
}

/// What a text means: without quotes a plain scalar, which is compared as such.
fn word(text: &str) -> Value {
    if is_word(text) { bare(text) } else { Value::from(text) }
}

fn bare(text: &str) -> Value {
    Value::Object(Map::from_iter([("\u{0}plain".to_owned(), Value::from(text))]))
}

/// A tree for comparing: a plain scalar is not the quoted one of the same letters.
fn meaning(node: &Node) -> Value {
    match &node.kind {
        Kind::Null => Value::Null,
        Kind::Scalar { text, plain: true, .. } => bare(text),
        Kind::Scalar { text, .. } => Value::from(text.as_str()),
        Kind::List { items, .. } => Value::Array(items.iter().map(meaning).collect()),
        Kind::Map { entries, .. } => {
            Value::Object(entries.iter().map(|entry| (entry.key.clone(), meaning(&entry.value))).collect())
        }
    }
}

/// Sets `key` (dotted) in the profile's `config.yaml`; makes the file, readable for its owner only, when there is none.
///
/// # Errors
/// [`ConfigError::UnknownKey`] when `key` is no setting of this program or of the Python program and does not stand in
/// the file; [`ConfigError::CannotEdit`] when the rest of the file might change; [`ConfigError::WrongValue`] when the setting
/// cannot have the value; reading and writing errors. The file is then as it was.
pub fn set(scope: &Scope, key: &str, value: &NewValue) -> Result<(), ConfigError> {
    change(scope, key, Some(value)).map(|_| ())
}

/// Takes `key` (dotted) out of the profile's `config.yaml`, and the sections that are empty then. An absent key is no
/// error. Returns whether the file was changed.
///
/// # Errors
/// As [`set`], but for the name: what is not there may have any.
pub fn unset(scope: &Scope, key: &str) -> Result<bool, ConfigError> {
    change(scope, key, None)
}

/// Whether the file is another one now.
fn change(scope: &Scope, key: &str, value: Option<&NewValue>) -> Result<bool, ConfigError> {
    let file = scope.config_yaml();
    let old = read_text(&file)?;
    if value.is_some() {
        known(&file, old.as_deref().unwrap_or_default(), key)?;
    }
    let new = edited(&file, old.as_deref().unwrap_or_default(), key, value)?;
    if old.as_deref().unwrap_or_default() == new {
        return Ok(false);
    }
    if let Err(error) = Config::parse(&file, &new) {
        // A file that was wrong before may still be mended one setting at a time.
        match &error {
            ConfigError::WrongValue { key: wrong, .. } if wrong != key => {}
            _ => return Err(error),
        }
    }
    scope.ensure_home()?;
    if read_text(&file)? != old {
        return Err(refused(&file, key, "another program has just changed it"));
    }
    files::replace(&file, &new)?;
    Ok(true)
}

/// A mistyped name is not written: it would have no effect, and nobody would look for it.
fn known(file: &Path, text: &str, key: &str) -> Result<(), ConfigError> {
    let tree = raw::parse(file, text)?;
    let found = tree.as_ref().and_then(|root| settings::find(root, key));
    if found.is_some() && tree.as_ref().and_then(|root| root.entry_at(&key.split('.').collect::<Vec<_>>())).is_none() {
        return Err(refused(file, key, "a name in it has a dot inside"));
    }
    if found.is_some() || check::is_setting(key) {
        return Ok(());
    }
    Err(ConfigError::UnknownKey { key: key.to_owned(), near: check::near_names(key) })
}

fn refused(file: &Path, key: &str, reason: &str) -> ConfigError {
    ConfigError::CannotEdit { path: file.to_owned(), key: key.to_owned(), reason: reason.to_owned() }
}

/// The text with one setting changed, checked to differ in nothing else.
fn edited(file: &Path, text: &str, key: &str, value: Option<&NewValue>) -> Result<String, ConfigError> {
    let refuse = |reason: &str| refused(file, key, reason);
    let tree = raw::parse(file, text)?;
    let mut path: Vec<&str> = key.split('.').collect();
    let plain = |part: &&str| {
        !part.is_empty() && *part != "<<" && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-/:@".contains(c))
    };
    if !path.iter().all(plain) {
        return Err(refuse("the name is not made of words with dots between them"));
    }
    // `model: NAME` is short for `model: {default: NAME}`.
    let model = tree.as_ref().and_then(|root| own_entry(root, "model")).map(|entry| &entry.value);
    match model.map(|node| &node.kind) {
        Some(Kind::Map { .. }) if path == ["model"] && value.is_some() => path.push("default"),
        Some(Kind::Scalar { .. }) if path == ["model", "default"] => path.truncate(1),
        _ => {}
    }
    let mut wanted = tree.as_ref().map_or(Value::Null, meaning);
    if let Some(Value::Object(map)) = Some(&mut wanted)
        && path.len() == 2
        && path[0] == "model"
        && value.is_some()
        && matches!(model.map(|node| &node.kind), Some(Kind::Scalar { .. }))
        && let Some(name) = map.get("model").cloned()
    {
        map.insert("model".into(), Value::Object(Map::from_iter([("default".to_owned(), name)])));
    }
    let new = match (&tree, value) {
        (None, Some(value)) => append(text, "", &path, value),
        (None, None) => return Ok(text.to_owned()),
        (Some(root), Some(value)) => insert(text, root, &path, value).map_err(refuse)?,
        (Some(root), None) => match remove(text, root, &path).map_err(refuse)? {
            Some(new) => new,
            None => return Ok(text.to_owned()),
        },
    };
    match value {
        Some(value) => put(&mut wanted, &path, value.meaning()),
        None => take(&mut wanted, &path),
    }
    let got = raw::parse(file, &new).ok().map(|tree| tree.as_ref().map_or(Value::Null, meaning));
    let empty = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
    match got {
        Some(got) if got == wanted || (empty(&got) && empty(&wanted)) => Ok(new),
        _ => Err(refuse("its form is one that this program cannot change safely")),
    }
}

fn put(tree: &mut Value, path: &[&str], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        *tree = value;
        return;
    };
    if tree.is_null() {
        *tree = Value::Object(Map::new());
    }
    if let Value::Object(map) = tree {
        put(map.entry(*first).or_insert(Value::Null), rest, value);
    }
}

fn take(tree: &mut Value, path: &[&str]) {
    let (Some((first, rest)), Value::Object(map)) = (path.split_first(), tree) else { return };
    if let Some(below) = map.get_mut(*first)
        && !rest.is_empty()
    {
        take(below, rest);
        if !below.as_object().is_some_and(Map::is_empty) {
            return;
        }
    }
    map.shift_remove(*first);
}

fn own_entry<'a>(node: &'a Node, key: &str) -> Option<&'a Entry> {
    match &node.kind {
        Kind::Map { entries, .. } => entries.iter().rev().find(|entry| entry.key == key),
        _ => None,
    }
}

/// The end of the text of a node, without line ends and comments after it.
fn end_of(node: &Node) -> usize {
    match &node.kind {
        Kind::Map { entries, flow: false } => entries.iter().map(entry_end).max().unwrap_or(node.range.start),
        Kind::List { items, flow: false } => items
            .iter()
            .map(|item| if item.own { end_of(item) } else { item.range.end })
            .max()
            .unwrap_or(node.range.end),
        _ => node.range.end,
    }
}

fn entry_end(entry: &Entry) -> usize {
    if entry.value.own { end_of(&entry.value).max(entry.key_range.end) } else { entry.key_range.end }
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |at| at + 1)
}

/// The start of the line after a place; a place at the start of a line, as after a block text, is one itself.
fn next_line(text: &str, at: usize) -> usize {
    if at > 0 && text.as_bytes()[at - 1] == b'\n' {
        return at;
    }
    text[at..].find('\n').map_or(text.len(), |found| at + found + 1)
}

fn eol(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Lines for a path, one level deeper each.
fn lines(text: &str, indent: &str, path: &[&str], value: &NewValue) -> String {
    let mut lines = String::new();
    for (depth, part) in path.iter().enumerate() {
        let space = " ".repeat(depth * INDENT);
        let value = if depth + 1 == path.len() { format!(" {}", value.render()) } else { String::new() };
        lines.push_str(&format!("{indent}{space}{}:{value}{}", quoted(part), eol(text)));
    }
    lines
}

fn append(text: &str, indent: &str, path: &[&str], value: &NewValue) -> String {
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { eol(text) };
    format!("{text}{gap}{}", lines(text, indent, path, value))
}

fn spliced(text: &str, range: Range<usize>, new: &str) -> String {
    format!("{}{new}{}", &text[..range.start], &text[range.end..])
}

/// `{a: {b: value}}` without the outer braces.
fn flow(path: &[&str], value: &NewValue) -> String {
    match path.split_first() {
        Some((first, [])) => format!("{}: {}", quoted(first), value.render()),
        Some((first, rest)) => format!("{}: {{{}}}", quoted(first), flow(rest, value)),
        None => value.render(),
    }
}

fn insert(text: &str, root: &Node, path: &[&str], value: &NewValue) -> Result<String, &'static str> {
    const SHARED: &str = "the place is shared by an alias (`*name`, `<<`)";
    let mut node = root;
    for (depth, part) in path.iter().enumerate() {
        if !node.own {
            return Err(SHARED);
        }
        let rest = &path[depth..];
        let Kind::Map { entries, flow: is_flow } = &node.kind else {
            return into_scalar(text, node, rest, value);
        };
        let mut same = entries.iter().filter(|entry| entry.key == *part);
        match (same.next(), same.next()) {
            (Some(_), Some(_)) => return Err("the key stands there twice"),
            (Some(entry), None) if depth + 1 == path.len() => return replaced(text, entry, value),
            (Some(entry), None) if matches!(entry.value.kind, Kind::Null) && entry.value.own && !*is_flow => {
                let at = next_line(text, entry.key_range.end);
                let line = text[entry.key_range.end..at].split('#').next().unwrap_or_default().trim();
                if line != ":" {
                    return Err("`null` stands where a section must be");
                }
                let space = " ".repeat(entry.key_range.start - line_start(text, entry.key_range.start) + INDENT);
                return Ok(insert_lines(text, at, &lines(text, &space, &path[depth + 1..], value)));
            }
            (Some(entry), None) => node = &entry.value,
            (None, _) if *is_flow => {
                let close = node.range.end.checked_sub(1).filter(|&at| text.as_bytes().get(at) == Some(&b'}'));
                let close = close.ok_or("the end of the section is not clear")?;
                let body = text[node.range.start + 1..close].trim_end();
                let comma = if entries.is_empty() || body.ends_with(',') { "" } else { ", " };
                let at = node.range.start + 1 + body.len();
                return Ok(spliced(text, at..at, &format!("{comma}{}", flow(rest, value))));
            }
            (None, _) => {
                let own: Vec<&Entry> =
                    entries.iter().filter(|entry| node.range.start <= entry.key_range.start).collect();
                let first = own.first().ok_or(SHARED)?;
                let start = line_start(text, first.key_range.start);
                let indent = &text[start..first.key_range.start];
                if !indent.bytes().all(|b| b == b' ') {
                    return Err("the section begins in the middle of a line");
                }
                let end = own.iter().map(|entry| entry_end(entry)).max().unwrap_or(first.key_range.end);
                return Ok(insert_lines(text, next_line(text, end), &lines(text, indent, rest, value)));
            }
        }
    }
    Err("the key has no name")
}

fn insert_lines(text: &str, at: usize, lines: &str) -> String {
    let gap = if at == text.len() && !text.is_empty() && !text.ends_with('\n') { eol(text) } else { "" };
    spliced(text, at..at, &format!("{gap}{lines}"))
}

/// `model: NAME` grows into a section; any other scalar is not one.
fn into_scalar(text: &str, node: &Node, rest: &[&str], value: &NewValue) -> Result<String, &'static str> {
    match &node.kind {
        Kind::Null if node.range.is_empty() => Ok(append(text, "", rest, value)),
        Kind::Scalar { block: false, .. } if rest.len() == 1 && !node.anchored => {
            let name = &text[node.range.clone()];
            Ok(spliced(text, node.range.clone(), &format!("{{default: {name}, {}}}", flow(rest, value))))
        }
        _ => Err("a value stands where a section must be"),
    }
}

fn replaced(text: &str, entry: &Entry, value: &NewValue) -> Result<String, &'static str> {
    let old = &entry.value;
    if !old.own || old.anchored {
        return Err("the value is shared by an alias or has an anchor");
    }
    match &old.kind {
        Kind::Null | Kind::Scalar { .. } if text[old.range.clone()].trim().is_empty() => {
            let colon = text[entry.key_range.end..].find(':').ok_or("the value has no clear place")?;
            let at = entry.key_range.end + colon + 1;
            Ok(spliced(text, at..at, &format!(" {}", value.render())))
        }
        Kind::Scalar { block: true, .. } => Err("a text of several lines stands there"),
        Kind::Null | Kind::Scalar { .. } => Ok(spliced(text, old.range.clone(), &value.render())),
        Kind::List { flow: true, .. } if !text[old.range.clone()].contains('#') => {
            Ok(spliced(text, old.range.clone(), &value.render()))
        }
        Kind::List { .. } => Err("a list over several lines stands there"),
        Kind::Map { .. } => Err("a section with keys of its own stands there"),
    }
}

fn remove(text: &str, root: &Node, path: &[&str]) -> Result<Option<String>, &'static str> {
    // The outermost section that would be empty goes as a whole.
    let (mut node, mut doomed) = (root, None);
    for part in path {
        if !node.own {
            return Err("the place is shared by an alias (`*name`, `<<`)");
        }
        let Some(entry) = own_entry(node, part) else { return Ok(None) };
        let Kind::Map { entries, flow } = &node.kind else { return Ok(None) };
        if entries.iter().filter(|other| other.key == *part).count() > 1 {
            return Err("the key stands there twice");
        }
        if doomed.is_none() || entries.len() > 1 {
            doomed = Some((entry, entries, *flow));
        }
        node = &entry.value;
    }
    let Some((entry, entries, flow)) = doomed else { return Ok(None) };
    if flow {
        return remove_from_flow(text, entry, entries).map(Some);
    }
    let (start, end) = (line_start(text, entry.key_range.start), next_line(text, entry_end(entry)));
    if !text[start..entry.key_range.start].bytes().all(|b| b == b' ') {
        return Err("the key begins in the middle of a line");
    }
    if text[start..end].lines().any(|line| line.trim_start().starts_with('#')) {
        return Err("there are comments inside");
    }
    Ok(Some(spliced(text, start..end, "")))
}

fn remove_from_flow(text: &str, entry: &Entry, entries: &[Entry]) -> Result<String, &'static str> {
    let at = entries.iter().position(|other| other.key_range == entry.key_range).ok_or("the key has no clear place")?;
    let range = match (at.checked_sub(1).and_then(|before| entries.get(before)), entries.get(at + 1)) {
        (_, Some(next)) => entry.key_range.start..next.key_range.start,
        (Some(before), None) => entry_end(before)..entry_end(entry),
        (None, None) => entry.key_range.start..entry_end(entry),
    };
    Ok(spliced(text, range, ""))
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
