//! References and `allOf` put in place: one schema becomes one flat map of keywords.

use serde_json::{Map, Value};

use super::notes::{self, json};
use super::rules::Rules;
use super::{MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES};

/// Most references that may be open at once.
const MAX_OPEN_REFS: usize = 48;

/// How far one attempt goes. When a schema turns out to be too large, the next attempt goes less far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    pub(super) repeats: usize,
    pub(super) depth: usize,
}

/// One schema while it is cleaned.
pub(super) struct Cleaner<'a> {
    pub(super) rules: Rules,
    pub(super) root: &'a Value,
    pub(super) reach: Reach,
    /// References whose targets are being written, outermost first.
    pub(super) refs: Vec<String>,
    /// Places looked at so far.
    pub(super) visited: usize,
    nested: usize,
}

enum Followed {
    Target(Value),
    /// It is open already: its type, when it has one.
    Again(Option<Value>),
    Missing,
}

impl<'a> Cleaner<'a> {
    pub(super) fn new(rules: Rules, root: &'a Value, reach: Reach) -> Self {
        Self { rules, root, reach, refs: Vec::new(), visited: 0, nested: 0 }
    }

    /// True when the schema turned out to be too large.
    pub(super) fn is_spent(&self) -> bool {
        self.visited > MAX_SCHEMA_NODES
    }

    /// The keywords of a schema with its references and `allOf` merged in. References that were followed stay open on
    /// `refs` until the caller cuts it back.
    pub(super) fn flatten(&mut self, value: &Value, notes: &mut Vec<String>) -> Map<String, Value> {
        self.visited += 1;
        let Value::Object(own) = value else {
            if *value == Value::Bool(false) {
                notes::add(notes, "No value is allowed here.".to_owned());
            }
            return Map::new();
        };
        if self.is_spent() || self.nested >= MAX_SCHEMA_DEPTH {
            return Map::new();
        }
        self.nested += 1;
        let mut map = own.clone();
        map.remove("allOf");
        for key in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(Value::String(pointer)) = map.remove(key) {
                self.reference(&pointer, &mut map, notes);
            }
        }
        for member in own.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            let more = self.flatten(member, notes);
            merge(&mut map, more, notes);
        }
        self.nested -= 1;
        map
    }

    fn reference(&mut self, pointer: &str, map: &mut Map<String, Value>, notes: &mut Vec<String>) {
        let name = pointer.rsplit('/').next().unwrap_or(pointer).trim_start_matches('#');
        match self.follow(pointer) {
            Followed::Target(target) => {
                self.refs.push(pointer.to_owned());
                let more = self.flatten(&target, notes);
                merge(map, more, notes);
            }
            Followed::Again(kind) => {
                if let Some(kind) = kind {
                    map.entry("type").or_insert(kind);
                }
                let what = if name.is_empty() { "the whole".to_owned() } else { format!("`{name}`") };
                notes::add(notes, format!("The same shape as {what} above."));
            }
            Followed::Missing if name.is_empty() => {}
            Followed::Missing => notes::add(notes, format!("A `{name}`.")),
        }
    }

    fn follow(&self, pointer: &str) -> Followed {
        let Some(path) = pointer.strip_prefix('#') else { return Followed::Missing };
        let found = match path {
            "" => Some(self.root),
            path if path.starts_with('/') => self.root.pointer(&percent_decoded(path)),
            anchor => self.anchored(anchor),
        };
        let Some(target) = found else { return Followed::Missing };
        let open = self.refs.iter().filter(|open| *open == pointer).count();
        // The root is open from the beginning.
        let open = open + usize::from(path.is_empty());
        if open >= self.reach.repeats || self.refs.len() >= MAX_OPEN_REFS {
            let kind = target.get("type").filter(|kind| matches!(kind.as_str(), Some("object")));
            return Followed::Again(kind.cloned());
        }
        Followed::Target(target.clone())
    }

    fn anchored(&self, anchor: &str) -> Option<&'a Value> {
        let all = ["$defs", "definitions"].iter().filter_map(|key| self.root.get(key)?.as_object());
        let is_it = |value: &&Value| {
            ["$anchor", "$dynamicAnchor", "$id", "id"].iter().any(|key| {
                value.get(key).and_then(Value::as_str).is_some_and(|id| id.trim_start_matches('#') == anchor)
            })
        };
        all.flat_map(|defs| defs.values()).find(is_it)
    }
}

/// `%24defs` to `$defs`: pointers stand in the fragment of an address.
fn percent_decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = path.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| path.to_owned())
}

/// Both must hold. What cannot be said as one is told.
pub(super) fn merge(into: &mut Map<String, Value>, from: Map<String, Value>, notes: &mut Vec<String>) {
    for (key, value) in from {
        let Some(own) = into.get_mut(&key) else {
            into.insert(key, value);
            continue;
        };
        if *own == value {
            continue;
        }
        match (key.as_str(), own, value) {
            ("properties", Value::Object(own), Value::Object(more)) => {
                for (name, schema) in more {
                    match own.get_mut(&name) {
                        Some(known) if *known != schema => *known = both(known.take(), schema),
                        Some(_) => {}
                        None => {
                            own.insert(name, schema);
                        }
                    }
                }
            }
            ("required", Value::Array(own), Value::Array(more)) => {
                for name in more {
                    if !own.contains(&name) {
                        own.push(name);
                    }
                }
            }
            ("enum", Value::Array(own), Value::Array(more)) => {
                let common: Vec<Value> = own.iter().filter(|value| more.contains(value)).cloned().collect();
                match common.is_empty() {
                    true => notes::add(notes, format!("Also one of: {}.", notes::list(&more))),
                    false => *own = common,
                }
            }
            ("type", own, more) => both_types(own, &more, notes),
            ("minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties", own, more) => {
                if more.as_f64() > own.as_f64() {
                    *own = more;
                }
            }
            ("maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties", own, more) => {
                if more.as_f64().is_some_and(|more| own.as_f64().is_none_or(|own| more < own)) {
                    *own = more;
                }
            }
            ("items" | "additionalProperties", own @ Value::Object(_), more @ Value::Object(_)) => {
                *own = both(own.take(), more);
            }
            ("additionalProperties", own, more) => {
                if *own == Value::Bool(true) {
                    *own = more;
                }
            }
            ("description", Value::String(own), Value::String(more)) => {
                if own.trim().is_empty() {
                    *own = more;
                } else {
                    notes::add(notes, more);
                }
            }
            ("title" | "default" | "example" | "examples" | "nullable", ..) => {}
            (key, _, more) if key.starts_with('$') || key == "definitions" => drop(more),
            (key, _, more) => {
                if let Some(note) = notes::keyword(key, &more) {
                    notes::add(notes, note);
                }
            }
        }
    }
}

fn both(one: Value, two: Value) -> Value {
    Value::Object(Map::from_iter([("allOf".to_owned(), Value::Array(vec![one, two]))]))
}

fn both_types(own: &mut Value, more: &Value, notes: &mut Vec<String>) {
    let of = |value: &Value| match value {
        Value::Array(list) => list.clone(),
        other => vec![other.clone()],
    };
    let (ours, theirs) = (of(own), of(more));
    let has = |list: &[Value], name: &Value| {
        list.contains(name)
            || name.as_str() == Some("integer") && list.iter().any(|kind| kind.as_str() == Some("number"))
    };
    let mut common: Vec<Value> = ours.iter().filter(|kind| has(&theirs, kind)).cloned().collect();
    common.extend(theirs.iter().filter(|kind| has(&ours, kind) && !ours.contains(kind)).cloned());
    match common.len() {
        0 => notes::add(notes, format!("Also of the type {}.", json(more))),
        1 => *own = common.remove(0),
        _ => *own = Value::Array(common),
    }
}
