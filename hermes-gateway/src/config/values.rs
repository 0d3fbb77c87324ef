//! Reading one setting: what its text means, or what should be written instead.

use std::path::Path;
use std::time::Duration;

use secrecy::SecretString;

use super::config::StoreUrl;
use super::error::ConfigError;
use super::raw::{Kind, Node, describe, yaml_bool};

/// The longest wait that a setting may ask for: one year, far below what timers overflow at.
const WAIT_MAX_SECONDS: f64 = 366.0 * 86_400.0;

#[cfg(test)]
thread_local! {
    /// The names of the settings that were read on this thread.
    pub(super) static READ: std::cell::RefCell<std::collections::BTreeSet<String>> = const { std::cell::RefCell::new(std::collections::BTreeSet::new()) };
}

/// A place in the tree and its dotted name. A place that is missing or empty reads as `None` everywhere.
#[derive(Clone)]
pub(super) struct View<'a> {
    file: &'a Path,
    name: String,
    node: Option<&'a Node>,
}

impl<'a> View<'a> {
    pub(super) fn root(file: &'a Path, node: Option<&'a Node>) -> Self {
        Self { file, name: String::new(), node }
    }

    /// A setting of this mapping.
    pub(super) fn key(&self, key: &str) -> Self {
        let name = if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) };
        let node = self.node.and_then(|node| node.entry(key)).map(|entry| &entry.value);
        Self { file: self.file, name, node: node.filter(|node| !matches!(node.kind, Kind::Null)) }
    }

    /// A group of settings of this mapping: anything but a mapping is an error.
    pub(super) fn section(&self, key: &str) -> Result<Self, ConfigError> {
        let view = self.key(key);
        match view.node {
            Some(node) if !matches!(node.kind, Kind::Map { .. }) => {
                Err(view.wrong(false, &format!("a mapping: `{key}:` and its settings indented below it")))
            }
            _ => Ok(view),
        }
    }

    /// The names in this mapping, each once, in order of the file.
    pub(super) fn names(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        if let Some(Node { kind: Kind::Map { entries, .. }, .. }) = self.node {
            for entry in entries {
                if !names.contains(&entry.key.as_str()) {
                    names.push(&entry.key);
                }
            }
        }
        names
    }

    pub(super) fn is_mapping(&self) -> bool {
        matches!(self.node, Some(Node { kind: Kind::Map { .. }, .. }))
    }

    /// Every reader of a setting says so, for the test that the list of settings is whole.
    fn note(&self) {
        #[cfg(test)]
        READ.with_borrow_mut(|read| read.insert(self.name.clone()));
    }

    fn scalar(&self, secret: bool, wanted: &str) -> Result<Option<&'a str>, ConfigError> {
        self.note();
        match self.node.map(|node| &node.kind) {
            None => Ok(None),
            Some(Kind::Scalar { text, .. }) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.wrong(secret, wanted)),
        }
    }

    /// A text; an empty one is `None`, as in the Python program.
    pub(super) fn text(&self, wanted: &str) -> Result<Option<String>, ConfigError> {
        Ok(self.scalar(false, wanted)?.map(str::to_owned))
    }

    /// A secret; it never gets into an error.
    pub(super) fn secret(&self) -> Result<Option<SecretString>, ConfigError> {
        Ok(self.scalar(true, "the key as one text, in quotes")?.map(SecretString::from))
    }

    /// Where the store is. The URL may hold a password, and never gets into an error.
    pub(super) fn store_url(&self) -> Result<Option<StoreUrl>, ConfigError> {
        let wanted = "`sqlite:PATH`, or `postgres://USER@HOST/DATABASE` with what else the server needs";
        let Some(text) = self.scalar(true, wanted)? else { return Ok(None) };
        StoreUrl::parse(text).map(Some).ok_or_else(|| self.wrong(true, wanted))
    }

    /// A whole number that is not negative. `300.0` and `10_000` are whole numbers too.
    pub(super) fn whole(&self, wanted: &str) -> Result<Option<u64>, ConfigError> {
        let Some(text) = self.scalar(false, wanted)? else { return Ok(None) };
        whole_number(text).map(Some).ok_or_else(|| self.wrong(false, wanted))
    }

    /// A whole number of at least one.
    pub(super) fn positive(&self, wanted: &str) -> Result<Option<u64>, ConfigError> {
        match self.whole(wanted)? {
            Some(0) => Err(self.wrong(false, wanted)),
            other => Ok(other),
        }
    }

    /// A limit: `none`, `unlimited`, 0 and negative numbers mean that there is none.
    pub(super) fn limit(&self, wanted: &str) -> Result<Option<u64>, ConfigError> {
        let Some(text) = self.scalar(false, wanted)? else { return Ok(None) };
        if matches!(text.to_ascii_lowercase().as_str(), "none" | "unlimited" | "inf" | ".inf" | "infinite") {
            return Ok(None);
        }
        let size = text.strip_prefix('-');
        match whole_number(size.unwrap_or(text)) {
            Some(number) => Ok(Some(number).filter(|number| *number > 0 && size.is_none())),
            None => Err(self.wrong(false, wanted)),
        }
    }

    /// A wait in seconds that is not negative and may have a fraction.
    pub(super) fn seconds(&self, wanted: &str) -> Result<Option<Duration>, ConfigError> {
        let Some(text) = self.scalar(false, wanted)? else { return Ok(None) };
        match text.parse::<f64>() {
            Ok(number) if (0.0..=WAIT_MAX_SECONDS).contains(&number) => Ok(Some(Duration::from_secs_f64(number))),
            Ok(number) if number > WAIT_MAX_SECONDS => {
                Err(self.wrong(false, &format!("{wanted}, and at most {WAIT_MAX_SECONDS} (a year)")))
            }
            _ => Err(self.wrong(false, wanted)),
        }
    }

    /// Texts. A single text is a list of one; with `commas` it is split at commas.
    pub(super) fn list(&self, commas: bool, wanted: &str) -> Result<Option<Vec<String>>, ConfigError> {
        self.note();
        let Some(node) = self.node else { return Ok(None) };
        let items = match &node.kind {
            Kind::Null => return Ok(None),
            Kind::Scalar { text, .. } if commas => text.split(',').map(str::to_owned).collect(),
            Kind::Scalar { text, .. } => vec![text.clone()],
            Kind::Map { .. } => return Err(self.wrong(false, wanted)),
            Kind::List { items, .. } => {
                let mut texts = Vec::with_capacity(items.len());
                for (at, item) in items.iter().enumerate() {
                    match &item.kind {
                        Kind::Scalar { text, .. } => texts.push(text.clone()),
                        Kind::Null => {}
                        _ => {
                            let name = format!("{}[{at}]", self.name);
                            return Err(Self { file: self.file, name, node: Some(item) }.wrong(false, wanted));
                        }
                    }
                }
                texts
            }
        };
        Ok(Some(items.into_iter().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).collect()))
    }

    /// Mappings; a single one is a list of one, and empty items say nothing.
    pub(super) fn mappings(&self, most: usize, wanted: &str) -> Result<Vec<Self>, ConfigError> {
        self.note();
        let Some(node) = self.node else { return Ok(Vec::new()) };
        let items = match &node.kind {
            Kind::Null => &[],
            Kind::Scalar { text, .. } if text.trim().is_empty() => &[],
            Kind::Scalar { .. } => return Err(self.wrong(false, wanted)),
            Kind::Map { .. } => std::slice::from_ref(node),
            Kind::List { items, .. } => items.as_slice(),
        };
        if items.len() > most {
            return Err(self.wrong(false, &format!("{wanted}, and at most {most}")));
        }
        let mut views = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            let view = Self { file: self.file, name: format!("{}[{at}]", self.name), node: Some(item) };
            match item.kind {
                Kind::Null => {}
                Kind::Map { .. } => views.push(view),
                _ => return Err(view.wrong(false, wanted)),
            }
        }
        Ok(views)
    }

    /// The line at which it stands, from 1.
    pub(super) fn line(&self) -> usize {
        self.node.map_or(1, |node| node.mark.line)
    }

    /// The error for something that does not stand in it.
    pub(super) fn refused(&self, wanted: &str) -> ConfigError {
        self.wrong(false, wanted)
    }

    /// One of a few words, whatever the case. YAML's boolean `off` (`false`, `no`) is the word `off` where there is one.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)], wanted: &str) -> Result<Option<T>, ConfigError> {
        let Some(text) = self.scalar(false, wanted)? else { return Ok(None) };
        let find = |word: &str| words.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, value)| *value);
        let found = find(text).or_else(|| if yaml_bool(text) == Some(false) { find("off") } else { None });
        found.map(Some).ok_or_else(|| self.wrong(false, wanted))
    }

    fn wrong(&self, secret: bool, wanted: &str) -> ConfigError {
        // People write `providers.groq: sk-...`: what stands there by mistake may be a key.
        let secret = secret || ["providers.", "fallback_providers"].iter().any(|front| self.name.starts_with(front));
        ConfigError::WrongValue {
            path: self.file.to_owned(),
            line: self.line(),
            key: self.name.clone(),
            found: self.node.map_or_else(|| "missing".to_owned(), |node| describe(node, secret)),
            wanted: wanted.to_owned(),
        }
    }
}

fn whole_number(text: &str) -> Option<u64> {
    let text = text.replace('_', "");
    let text = text.strip_prefix('+').unwrap_or(&text);
    let digits = text.split_once('.').map_or(text, |(whole, rest)| {
        if !rest.is_empty() && rest.bytes().all(|byte| byte == b'0') { whole } else { text }
    });
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::raw::parse;

    fn with<T>(value: &str, read: impl Fn(View<'_>) -> T) -> T {
        let path = Path::new("c.yaml");
        let tree = parse(path, &format!("x: {value}\n")).unwrap();
        read(View::root(path, tree.as_ref()).key("x"))
    }

    #[test]
    fn limits_have_many_ways_to_say_none() {
        for none in ["", "null", "~", "none", "None", "unlimited", "0", "-1", "-10", "'0'"] {
            assert_eq!(with(none, |view| view.limit("").unwrap()), None, "{none:?}");
        }
        for (text, number) in [("90", 90), ("'90'", 90), ("90.0", 90), ("1_000", 1000), ("+5", 5)] {
            assert_eq!(with(text, |view| view.limit("").unwrap()), Some(number), "{text:?}");
        }
        for wrong in ["many", "1.5", "[1]", "{a: 1}", "1e3", "--1", "99999999999999999999"] {
            assert!(with(wrong, |view| view.limit("a number").is_err()), "{wrong:?}");
        }
    }

    #[test]
    fn seconds_may_have_a_fraction_and_must_be_finite() {
        assert_eq!(with("2.5", |view| view.seconds("").unwrap()), Some(Duration::from_millis(2500)));
        assert_eq!(with("0", |view| view.seconds("").unwrap()), Some(Duration::ZERO));
        for wrong in ["-1", "inf", ".inf", "nan", "1e30", "soon"] {
            assert!(with(wrong, |view| view.seconds("").is_err()), "{wrong:?}");
        }
    }

    #[test]
    fn a_wait_that_is_too_long_is_refused_with_the_longest() {
        let told = |value: &str| with(value, |view| view.seconds("a number").unwrap_err().to_string());
        assert!(told("99999999").ends_with("write a number, and at most 31622400 (a year)"), "{}", told("99999999"));
        assert!(told("-1").ends_with("write a number"), "{}", told("-1"));
    }

    #[test]
    fn off_without_quotes_is_the_word_off() {
        let words = [("manual", 1), ("off", 2)];
        for (text, value) in [("off", 2), ("\"off\"", 2), ("false", 2), ("no", 2), ("MANUAL", 1)] {
            assert_eq!(with(text, |view| view.word(&words, "").unwrap()), Some(value), "{text:?}");
        }
        assert!(with("on", |view| view.word(&words, "").is_err()));
    }

    #[test]
    fn lists_take_a_single_text_too() {
        let list = |value: &str, commas| with(value, |view| view.list(commas, "").unwrap());
        assert_eq!(list("[a, ' b ', 3, ~, '']", false), Some(vec!["a".into(), "b".into(), "3".into()]));
        assert_eq!(list("\"a, b\"", true), Some(vec!["a".into(), "b".into()]));
        assert_eq!(list("\"a, b\"", false), Some(vec!["a, b".into()]));
        assert_eq!(list("[]", false), Some(vec![]));
        assert!(with("[[a]]", |view| view.list(false, "").is_err()));
    }

    #[test]
    fn i24_a_wrong_secret_is_not_shown() {
        let error = with("{sk-1234: sk-5678}", |view| view.secret().unwrap_err().to_string());
        assert!(!error.contains("sk-"), "{error}");
    }
}
