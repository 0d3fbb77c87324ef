//! `config.yaml` as it is written: a tree of texts with their places in the file.
//!
//! The tree keeps every scalar as text. What a text means is decided by the setting that reads it, so `off` can be a
//! mode for one setting and a boolean for another, as people write it for the Python program (YAML 1.1).

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, StructureStyle};

use super::error::ConfigError;

/// The largest `config.yaml`. The Python program's own file with every default written out has 0.1 MiB.
pub(super) const CONFIG_MAX_BYTES: usize = 4 * 1024 * 1024;

/// The most nodes after aliases are copied in: a short file of aliases of aliases must not fill the memory.
const TREE_MAX_NODES: usize = 200_000;

/// Where something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// From 1.
    pub(super) line: usize,
    /// From 1, in characters.
    pub(super) column: usize,
}

/// One value.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) mark: Mark,
    /// Bytes of the file. For a block mapping or list the end is not exact.
    pub(super) range: Range<usize>,
    /// Whether the node stands here itself, and was not copied here by an alias or a merge key.
    pub(super) own: bool,
    /// Whether it has an anchor: aliases elsewhere depend on it.
    pub(super) anchored: bool,
}

#[derive(Clone)]
pub(super) enum Kind {
    /// Nothing, or `null`, or `~`.
    Null,
    /// Any other text.
    Scalar { text: String, plain: bool, block: bool },
    /// A list.
    List { items: Vec<Node>, flow: bool },
    /// A mapping, in order of the file. A key may stand twice: the last counts.
    Map { entries: Vec<Entry>, flow: bool },
}

#[derive(Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_mark: Mark,
    pub(super) key_range: Range<usize>,
    pub(super) value: Node,
}

impl Node {
    /// The last entry of this key.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.kind {
            Kind::Map { entries, .. } => entries.iter().rev().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The entry under a path of keys.
    pub(super) fn entry_at(&self, path: &[&str]) -> Option<&Entry> {
        let (last, sections) = path.split_last()?;
        sections.iter().try_fold(self, |node, key| node.entry(key).map(|entry| &entry.value))?.entry(last)
    }

    /// As JSON, for comparison and display. Plain scalars become what YAML 1.1 says they are.
    pub(super) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value;
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Scalar { text, plain: true, .. } => plain_value(text),
            Kind::Scalar { text, .. } => Value::String(text.clone()),
            Kind::List { items, .. } => Value::Array(items.iter().map(Node::to_json).collect()),
            Kind::Map { entries, .. } => {
                Value::Object(entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json())).collect())
            }
        }
    }

    fn count(&self) -> usize {
        1 + match &self.kind {
            Kind::List { items, .. } => items.iter().map(Node::count).sum(),
            Kind::Map { entries, .. } => entries.iter().map(|entry| entry.value.count()).sum::<usize>(),
            _ => 0,
        }
    }

    fn copied(&self) -> Node {
        Node { own: false, anchored: false, ..self.clone() }
    }
}

/// `true` and `false` in all their YAML 1.1 spellings.
pub(super) fn yaml_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Some(true),
        "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn plain_value(text: &str) -> serde_json::Value {
    if let Some(flag) = yaml_bool(text) {
        return flag.into();
    }
    let looks_numeric = text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | '+' | '.'));
    if looks_numeric {
        if let Ok(whole) = text.parse::<i64>() {
            return whole.into();
        }
        if let Some(number) = text.parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
            return number.into();
        }
    }
    text.into()
}

/// Parses a file's text. `None` for an empty file, or one with only comments.
///
/// # Errors
/// [`ConfigError::BrokenYaml`], or [`ConfigError::WrongValue`] when the file is no mapping.
pub(super) fn parse(path: &Path, text: &str) -> Result<Option<Node>, ConfigError> {
    if text.len() > CONFIG_MAX_BYTES {
        let reason = format!("the file is larger than {CONFIG_MAX_BYTES} bytes");
        return Err(ConfigError::Unreadable { path: path.to_owned(), reason });
    }
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut builder =
        Builder { path, text, open: Vec::new(), anchors: HashMap::new(), nodes: 0, root: None, documents: 0 };
    let mut parser = Parser::new_from_str_with_options(text, options);
    while let Some(next) = parser.next_event() {
        let (event, span) = next.map_err(|error| builder.scan_error(&error))?;
        builder.event(event, &span)?;
    }
    match builder.root {
        None | Some(Node { kind: Kind::Null, .. }) => Ok(None),
        Some(node) if matches!(node.kind, Kind::Map { .. }) => Ok(Some(node)),
        Some(node) => Err(ConfigError::WrongValue {
            path: path.to_owned(),
            line: node.mark.line,
            key: "the whole file".to_owned(),
            found: describe(&node, false),
            wanted: "settings as `name: value` lines".to_owned(),
        }),
    }
}

/// What a node is, for a message. `secret` hides the text.
pub(super) fn describe(node: &Node, secret: bool) -> String {
    const SHOWN_MAX_CHARS: usize = 40;
    match &node.kind {
        Kind::Null => "empty".to_owned(),
        Kind::List { .. } => "a list".to_owned(),
        Kind::Map { .. } => "a mapping".to_owned(),
        Kind::Scalar { .. } if secret => "a text".to_owned(),
        Kind::Scalar { text, .. } if text.chars().count() > SHOWN_MAX_CHARS => "a long text".to_owned(),
        Kind::Scalar { text, .. } => format!("`{}`", text.escape_debug()),
    }
}

/// A collection whose end has not come yet.
struct Open {
    node: Node,
    anchor: usize,
    /// The key that waits for its value, in a mapping.
    key: Option<(String, Mark, Range<usize>)>,
}

struct Builder<'a> {
    path: &'a Path,
    text: &'a str,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    root: Option<Node>,
    documents: usize,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), ConfigError> {
        let mark = Mark { line: span.start.line(), column: span.start.col() + 1 };
        let range = span.byte_range().unwrap_or(0..0);
        let node = |kind, anchor: usize| Node { kind, mark, range: range.clone(), own: true, anchored: anchor != 0 };
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(self.broken(
                        mark,
                        "a second document begins",
                        "Remove the `---` line and merge both parts",
                    ));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                let kind = if plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL") {
                    Kind::Null
                } else {
                    let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                    Kind::Scalar { text: text.into_owned(), plain, block }
                };
                self.finish(node(kind, anchor), anchor)?;
            }
            Event::SequenceStart(style, anchor, _) => {
                let kind = Kind::List { items: Vec::new(), flow: style == StructureStyle::Flow };
                self.open.push(Open { node: node(kind, anchor), anchor, key: None });
            }
            Event::MappingStart(style, anchor, _) => {
                let kind = Kind::Map { entries: Vec::new(), flow: style == StructureStyle::Flow };
                self.open.push(Open { node: node(kind, anchor), anchor, key: None });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(mut open) = self.open.pop() {
                    open.node.range.end = open.node.range.end.max(range.end);
                    merge_keys(&mut open.node);
                    self.finish(open.node, open.anchor)?;
                }
            }
            Event::Alias(id) => {
                let Some(target) = self.anchors.get(&id) else {
                    return Err(self.broken(
                        mark,
                        "an alias of a value that is not complete",
                        "Write the value itself",
                    ));
                };
                let copy = Node { mark, range, ..target.copied() };
                self.nodes += copy.count();
                self.finish(copy, 0)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A node is complete: it goes into the collection around it.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), ConfigError> {
        self.nodes += 1;
        if self.nodes > TREE_MAX_NODES {
            return Err(self.broken(node.mark, "too many values", "Write fewer aliases"));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
            self.nodes += node.count();
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut open.node.kind {
            Kind::List { items, .. } => items.push(node),
            Kind::Map { entries, .. } => match open.key.take() {
                Some((key, key_mark, key_range)) => entries.push(Entry { key, key_mark, key_range, value: node }),
                None => {
                    let key = match node.kind {
                        Kind::Scalar { text, .. } => text,
                        Kind::Null => self.text.get(node.range.clone()).unwrap_or_default().to_owned(),
                        _ => {
                            let advice =
                                "Write a plain name before the colon, and put values that begin with `{` in quotes";
                            return Err(self.broken(node.mark, "the name of a setting is a list or a mapping", advice));
                        }
                    };
                    open.key = Some((key, node.mark, node.range));
                }
            },
            _ => {}
        }
        Ok(())
    }

    fn broken(&self, mark: Mark, reason: &str, advice: &str) -> ConfigError {
        ConfigError::BrokenYaml {
            path: self.path.to_owned(),
            line: mark.line,
            column: mark.column,
            reason: reason.to_owned(),
            advice: advice.to_owned(),
        }
    }

    fn scan_error(&self, error: &ScanError) -> ConfigError {
        let mark = Mark { line: error.marker().line().max(1), column: error.marker().col() + 1 };
        let around = |line: usize| self.text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        let has_tab = |line: usize| around(line).chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t');
        let advice = if has_tab(mark.line) || has_tab(mark.line.saturating_sub(1)) {
            "YAML takes no tabs for indentation: use spaces"
        } else if around(mark.line).matches(": ").count() > 1 {
            "Put a value that holds `: ` in quotes"
        } else {
            "Look at this line and the one before it for wrong indentation, a missing quote or bracket, or a value that \
             needs quotes"
        };
        self.broken(mark, &error.info(), advice)
    }
}

/// Copies what `<<: *base` names into the mapping, before its own entries, so that those win.
fn merge_keys(node: &mut Node) {
    let Kind::Map { entries, .. } = &mut node.kind else { return };
    if !entries.iter().any(|entry| entry.key == "<<") {
        return;
    }
    let mut all = Vec::new();
    for merge in entries.iter().filter(|entry| entry.key == "<<") {
        let sources: Vec<&Node> = match &merge.value.kind {
            Kind::List { items, .. } => items.iter().rev().collect(),
            _ => vec![&merge.value],
        };
        for source in sources {
            if let Kind::Map { entries, .. } = &source.kind {
                all.extend(entries.iter().map(|entry| Entry { value: entry.value.copied(), ..entry.clone() }));
            }
        }
    }
    all.extend(entries.drain(..).filter(|entry| entry.key != "<<"));
    *entries = all;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Node {
        parse(Path::new("config.yaml"), text).unwrap().unwrap()
    }

    impl Node {
        fn at(&self, path: &[&str]) -> Option<&Node> {
            self.entry_at(path).map(|entry| &entry.value)
        }
    }

    fn error(text: &str) -> ConfigError {
        parse(Path::new("config.yaml"), text).err().unwrap()
    }

    #[test]
    fn scalars_keep_their_text_and_their_place() {
        let root = tree("a:\n  b: off\n  c: 'x'\n");
        let b = root.at(&["a", "b"]).unwrap();
        assert_eq!((b.mark.line, b.mark.column, b.range.clone()), (2, 6, 8..11));
        assert_eq!(root.to_json(), serde_json::json!({"a": {"b": false, "c": "x"}}));
    }

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        assert_eq!(tree("a: 1\na: 2\n").at(&["a"]).unwrap().to_json(), 2);
    }

    #[test]
    fn aliases_and_merge_keys_are_followed() {
        let root = tree("base: &b {x: 1, y: 2}\nsub:\n  <<: *b\n  y: 3\nsame: *b\n");
        assert_eq!(root.at(&["sub"]).unwrap().entry("x").unwrap().value.to_json(), 1);
        assert_eq!(root.at(&["sub", "y"]).unwrap().to_json(), 3);
        assert!(!root.at(&["same"]).unwrap().own);
    }

    #[test]
    fn empty_files_are_no_tree() {
        for text in ["", "\n", "# only a comment\n", "---\n", "\u{feff}", "null"] {
            assert!(parse(Path::new("c"), text).unwrap().is_none(), "{text:?}");
        }
    }

    #[test]
    fn i27_broken_yaml_gives_line_column_and_advice() {
        for (text, at, advice) in [
            ("a:\n\tb: 1\n", 2, "tabs"),
            ("a: b: c\n", 1, "quotes"),
            ("a: [1, 2\nb: 3\n", 2, "bracket"),
            ("a: 'x\n", 2, "quote"),
            ("a: 1\n---\nb: 2\n", 2, "merge"),
            ("{a: 1}: 2\n", 1, "plain name"),
            ("a: *nothing\n", 1, ""),
        ] {
            let ConfigError::BrokenYaml { line, column, advice: got, .. } = error(text) else { panic!("{text:?}") };
            assert!(line.abs_diff(at) <= 1 && column >= 1, "{text:?}: {line}:{column}");
            assert!(got.contains(advice), "{text:?}: {got}");
        }
    }

    #[test]
    fn i27_aliases_of_aliases_do_not_fill_the_memory() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let alias = format!("*a{}", level - 1);
            text.push_str(&format!("a{level}: &a{level} [{}]\n", [alias.as_str(); 10].join(", ")));
        }
        assert_eq!(error(&text).code(), "HM0105");
    }

    #[test]
    fn i27_deep_nesting_is_an_error_and_no_crash() {
        assert_eq!(error(&"[".repeat(100_000)).code(), "HM0105");
        assert_eq!(error(&format!("a: {}", "{a: ".repeat(100_000))).code(), "HM0105");
    }

    #[test]
    fn a_file_that_is_a_list_is_refused() {
        assert_eq!(error("- a\n").code(), "HM0106");
    }
}
