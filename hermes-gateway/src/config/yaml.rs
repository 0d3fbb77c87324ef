//! A YAML file as a tree that knows where every key and value stands.
//!
//! Scalars keep the text that was written: whether `off`, `012` or `1` is a word, a number or a switch is decided by
//! the setting that is read, not by the YAML schema. The editor uses the byte ranges.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};
use serde_json::Value;

use super::ConfigError;

/// A configuration file may have at most so many bytes. A real one has some ten thousand.
pub(super) const CONFIG_MAX_BYTES: usize = 4 * 1024 * 1024;
/// After aliases are followed, at most so many nodes: a file of aliases of aliases is no configuration.
const CONFIG_MAX_NODES: usize = 200_000;

/// A place in the file, both from 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// One node.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) place: Place,
    /// Bytes of the node's own text. Empty for a value that is not written.
    pub(super) bytes: Range<usize>,
    /// Has an anchor or a tag, so its text is more than its value.
    pub(super) marked: bool,
    /// Came from an alias: its text stands elsewhere.
    pub(super) alias: bool,
    pub(super) kind: Kind,
}

/// What a node is.
#[derive(Clone)]
pub(super) enum Kind {
    /// A scalar: its text, and whether it was written without quotes.
    Scalar { text: String, plain: bool, block: bool },
    /// A list.
    List { items: Vec<Node>, flow: bool },
    /// A mapping, in written order. Of two equal keys the last counts.
    Map { entries: Vec<Entry>, flow: bool },
}

/// One key of a mapping with its value.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_place: Place,
    pub(super) key_bytes: Range<usize>,
    pub(super) value: Node,
}

impl Node {
    fn null(place: Place, at: usize) -> Self {
        let kind = Kind::Scalar { text: String::new(), plain: true, block: false };
        Self { place, bytes: at..at, marked: false, alias: false, kind }
    }

    /// Nothing, `~` or `null` without quotes.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true, .. }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The entries of a mapping.
    pub(super) fn entries(&self) -> Option<&[Entry]> {
        match &self.kind {
            Kind::Map { entries, .. } => Some(entries),
            _ => None,
        }
    }

    /// The entry of a key. Of two equal keys the last counts, as for the Python program.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries()?.iter().rev().find(|entry| entry.key == key)
    }

    /// The node below a path.
    pub(super) fn at<'a>(&'a self, path: &[&str]) -> Option<&'a Node> {
        path.iter().try_fold(self, |node, key| node.entry(key).map(|entry| &entry.value))
    }

    /// What is here, for a message: `is a list`.
    pub(super) fn describe(&self) -> String {
        match &self.kind {
            Kind::Scalar { .. } if self.is_null() => "is empty".into(),
            Kind::Scalar { text, .. } => format!("is {text:?}"),
            Kind::List { .. } => "is a list".into(),
            Kind::Map { .. } => "is a section with keys".into(),
        }
    }

    /// The node as JSON, for a reader who wants to see it.
    pub(super) fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Scalar { text, plain, .. } => scalar_json(text, *plain),
            Kind::List { items, .. } => Value::Array(items.iter().map(Node::to_json).collect()),
            Kind::Map { entries, .. } => {
                Value::Object(entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json())).collect())
            }
        }
    }

    /// Puts the keys of `<<` beside the others, which go before them.
    fn merge(&mut self) {
        match &mut self.kind {
            Kind::Scalar { .. } => {}
            Kind::List { items, .. } => items.iter_mut().for_each(Node::merge),
            Kind::Map { entries, .. } => {
                entries.iter_mut().for_each(|entry| entry.value.merge());
                let mut merged = Vec::new();
                entries.retain(|entry| {
                    let parts = match &entry.value.kind {
                        _ if entry.key != "<<" => return true,
                        Kind::Map { entries, .. } => vec![entries],
                        Kind::List { items, .. } => items
                            .iter()
                            .filter_map(|item| match &item.kind {
                                Kind::Map { entries, .. } => Some(entries),
                                _ => None,
                            })
                            .collect(),
                        Kind::Scalar { .. } => return true,
                    };
                    merged.extend(parts.into_iter().flatten().cloned());
                    false
                });
                for entry in merged {
                    if !entries.iter().any(|known| known.key == entry.key) {
                        entries.push(entry);
                    }
                }
            }
        }
    }
}

/// A scalar as JSON: only a plain one can be something else than text.
pub(super) fn scalar_json(text: &str, plain: bool) -> Value {
    if !plain {
        return Value::String(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    // `012` is a code or an octal number, depending on whom one asks: it stays text.
    let leading_zero = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    if !leading_zero && digits.starts_with(|c: char| c.is_ascii_digit()) {
        if let Ok(number) = text.parse::<i64>() {
            return number.into();
        }
        if let Some(number) = text.parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
            return Value::Number(number);
        }
    }
    Value::String(text.to_owned())
}

/// The tree of a text, as it counts: aliases followed, `<<` merged.
///
/// # Errors
/// [`ConfigError::Syntax`] with the place, [`ConfigError::TooLarge`].
pub(super) fn parse(text: &str, path: &Path) -> Result<Node, ConfigError> {
    let mut node = parse_written(text, path)?;
    node.merge();
    Ok(node)
}

/// The tree of a text as it is written: aliases followed, `<<` still a key.
///
/// # Errors
/// As [`parse`].
pub(super) fn parse_written(text: &str, path: &Path) -> Result<Node, ConfigError> {
    if text.len() > CONFIG_MAX_BYTES {
        let limit = format!("{CONFIG_MAX_BYTES} bytes");
        return Err(ConfigError::TooLarge { path: path.to_owned(), limit });
    }
    let mut builder = Builder { path, stack: Vec::new(), anchors: HashMap::new(), nodes: 0, root: None };
    for next in Parser::new_from_str(text) {
        let (event, span) = next.map_err(|error| {
            let mark = error.marker();
            let advice = advise(text, mark.line());
            builder.syntax(Place { line: mark.line(), column: mark.col() + 1 }, error.kind().to_string(), advice)
        })?;
        builder.take(event, &span)?;
    }
    Ok(builder.root.unwrap_or_else(|| Node::null(Place { line: 1, column: 1 }, text.len())))
}

/// What usually helps at this line.
fn advise(text: &str, line: usize) -> String {
    let near = line.saturating_sub(2);
    let lines: Vec<&str> = text.lines().skip(near).take(3).collect();
    if lines.iter().any(|line| line.trim_start_matches(' ').starts_with('\t')) {
        return "Indent with spaces, not with tabs".into();
    }
    "Look at this line and the one above it: keys of one section begin in the same column, a key is followed by \
     ': ', and a text with ': ', ' #' or a leading *, &, @, % or [ needs quotes"
        .into()
}

enum Open {
    List { start: Node, items: Vec<Node> },
    Map { start: Node, entries: Vec<Entry>, key: Option<(String, Place, Range<usize>)> },
}

struct Builder<'a> {
    path: &'a Path,
    /// Open collections with the number of their anchor, 0 for none.
    stack: Vec<(Open, usize)>,
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    root: Option<Node>,
}

impl Builder<'_> {
    fn syntax(&self, place: Place, why: String, advice: String) -> ConfigError {
        let why = why.trim_end_matches('.').to_owned();
        ConfigError::Syntax { path: self.path.to_owned(), line: place.line, column: place.column, why, advice }
    }

    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), ConfigError> {
        let place = Place { line: span.start.line(), column: span.start.col() + 1 };
        let bytes = span.byte_range().unwrap_or(0..0);
        let node = |kind, anchor: usize, tag: bool| Node {
            place,
            bytes: bytes.clone(),
            marked: anchor != 0 || tag,
            alias: false,
            kind,
        };
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                return Err(self.syntax(
                    place,
                    "a second document begins here".into(),
                    "Remove the line '---' and what follows, or make it part of the first".into(),
                ));
            }
            Event::Scalar(text, style, anchor, tag) => {
                // `!!str 012` says that it is text.
                let plain = style == ScalarStyle::Plain && tag.is_none();
                let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                let kind = Kind::Scalar { text: text.into_owned(), plain, block };
                self.put(node(kind, anchor, tag.is_some()), anchor)?;
            }
            Event::SequenceStart(style, anchor, tag) => {
                let kind = Kind::List { items: Vec::new(), flow: style == StructureStyle::Flow };
                let start = node(kind, anchor, tag.is_some());
                self.stack.push((Open::List { start, items: Vec::new() }, anchor));
            }
            Event::MappingStart(style, anchor, tag) => {
                let kind = Kind::Map { entries: Vec::new(), flow: style == StructureStyle::Flow };
                let start = node(kind, anchor, tag.is_some());
                self.stack.push((Open::Map { start, entries: Vec::new(), key: None }, anchor));
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some((open, anchor)) = self.stack.pop() else { return Ok(()) };
                let mut done = match open {
                    Open::List { mut start, items } => {
                        start.kind = Kind::List { flow: matches!(start.kind, Kind::List { flow: true, .. }), items };
                        start
                    }
                    Open::Map { mut start, entries, .. } => {
                        start.kind = Kind::Map { flow: matches!(start.kind, Kind::Map { flow: true, .. }), entries };
                        start
                    }
                };
                done.bytes = done.bytes.start..bytes.end.max(done.bytes.start);
                self.put(done, anchor)?;
            }
            Event::Alias(id) => {
                // An alias inside its own anchor has no target yet.
                let Some((mut target, size)) = self.anchors.get(&id).cloned() else {
                    let advice = "Write the value out instead of the alias".into();
                    return Err(self.syntax(place, "an alias stands inside its own anchor".into(), advice));
                };
                self.count(size)?;
                (target.place, target.bytes, target.alias) = (place, bytes.clone(), true);
                self.put(target, 0)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize) -> Result<(), ConfigError> {
        self.nodes += nodes;
        if self.nodes > CONFIG_MAX_NODES {
            let limit = format!("{CONFIG_MAX_NODES} values");
            return Err(ConfigError::TooLarge { path: self.path.to_owned(), limit });
        }
        Ok(())
    }

    fn put(&mut self, node: Node, anchor: usize) -> Result<(), ConfigError> {
        self.count(1)?;
        if anchor != 0 {
            let size = size_of(&node);
            self.count(size)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some((Open::List { items, .. }, _)) => items.push(node),
            Some((Open::Map { entries, key, .. }, _)) => match key.take() {
                Some((key, key_place, key_bytes)) => entries.push(Entry { key, key_place, key_bytes, value: node }),
                None => match &node.kind {
                    Kind::Scalar { text, .. } => *key = Some((text.clone(), node.place, node.bytes)),
                    _ => {
                        let place = node.place;
                        let advice = "A key must be one word or a quoted text".into();
                        return Err(self.syntax(place, "a list or section stands where a key must be".into(), advice));
                    }
                },
            },
        }
        Ok(())
    }
}

fn size_of(node: &Node) -> usize {
    match &node.kind {
        Kind::Scalar { .. } => 1,
        Kind::List { items, .. } => 1 + items.iter().map(size_of).sum::<usize>(),
        Kind::Map { entries, .. } => 1 + entries.iter().map(|entry| 1 + size_of(&entry.value)).sum::<usize>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Node {
        parse(text, Path::new("config.yaml")).unwrap()
    }

    #[test]
    fn places_and_bytes_point_at_the_text() {
        let text = "# é\na:\n  b: 'x y' # c\n";
        let tree = tree(text);
        let value = tree.at(&["a", "b"]).unwrap();
        assert_eq!((value.place.line, value.place.column), (3, 6));
        assert_eq!(&text[value.bytes.clone()], "'x y'");
    }

    #[test]
    fn scalars_keep_their_text() {
        let json = tree("a: 012\nb: off\nc: 1\nd: '1'\ne:\nf: 1.5\ng: ~\n").to_json();
        assert_eq!(json.to_string(), r#"{"a":"012","b":"off","c":1,"d":"1","e":null,"f":1.5,"g":null}"#);
    }

    #[test]
    fn aliases_and_merges_count() {
        let json = tree("a: &x {p: 1, q: 2}\nb: *x\nc:\n  <<: *x\n  q: 3\n").to_json();
        assert_eq!(json["b"]["p"], 1);
        assert_eq!(json["c"]["p"], 1);
        assert_eq!(json["c"]["q"], 3);
    }

    #[test]
    fn i27_aliases_of_aliases_are_refused_and_not_expanded() {
        let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for n in 1..12 {
            let many = vec![format!("*a{}", n - 1); 10].join(",");
            text.push_str(&format!("a{n}: &a{n} [{many}]\n"));
        }
        let error = parse(&text, Path::new("c")).err().unwrap();
        assert_eq!(error.code(), "HM0107");
    }

    #[test]
    fn i27_broken_yaml_says_where_and_what_to_do() {
        for text in ["a: [1, 2\nb: 3\n", "a:\n\tb: 1\n", "a: 1\n b: 2\n", "a: 'x\n", "a: 1\n---\nb: 2\n", "? [a]\n: b\n"] {
            match parse(text, Path::new("config.yaml")) {
                Err(ConfigError::Syntax { line, column, advice, .. }) => {
                    assert!(line >= 1 && column >= 1 && !advice.is_empty(), "{text:?}");
                }
                _ => panic!("{text:?} must be refused"),
            }
        }
    }
}
