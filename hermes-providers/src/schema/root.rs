//! The top of a schema: always an object, without combiners; what they say is put into the properties and told.

use serde_json::{Map, Value};

use super::MAX_SCHEMA_DEPTH;
use super::clean::{Place, describe, is_null, list_of, only_requires};
use super::flatten::{Cleaner, merge};
use super::notes::{self, json};

/// The schema of arguments, and what must be told beside it.
pub(super) fn root(cleaner: &mut Cleaner<'_>) -> (Value, String) {
    let mut place = Place::default();
    let schema = cleaner.root;
    place.map = cleaner.flatten(schema, &mut place.notes);
    for _ in 0..MAX_SCHEMA_DEPTH {
        if !union(cleaner, &mut place) {
            break;
        }
    }
    let kind = place.map.remove("type");
    let names_object = |kind: &Value| {
        let is = |value: &Value| {
            value.as_str().is_some_and(|name| matches!(name.to_lowercase().as_str(), "object" | "dict"))
        };
        is(kind) || kind.as_array().is_some_and(|list| list.iter().any(is))
    };
    let is_object = kind.as_ref().is_none_or(names_object) || place.map.contains_key("properties");
    if !is_object {
        notes::add(&mut place.notes, format!("The arguments: {}.", json(schema)));
        place.map.retain(|key, _| key == "description");
    }
    for (key, told) in [("enum", "One of"), ("const", "Always")] {
        if let Some(value) = place.map.remove(key).filter(|value| *value != Value::Array(Vec::new())) {
            notes::add(&mut place.notes, format!("{told}: {}.", json(&value)));
        }
    }
    write(cleaner, place)
}

fn write(cleaner: &mut Cleaner<'_>, mut place: Place) -> (Value, String) {
    let mut members = Map::new();
    place.is_root_object();
    cleaner.object(&mut members, &mut place, 0);
    if cleaner.rules.empty_properties && !members.contains_key("properties") {
        members.shift_insert(0, "properties".to_owned(), Value::Object(Map::new()));
    }
    let own = place.map.remove("description");
    let words = cleaner.keywords(&mut place, 0);
    let mut out = Map::from_iter([("type".to_owned(), Value::from("object"))]);
    if let Some(own) = own.as_ref().and_then(Value::as_str).filter(|own| !own.trim().is_empty()) {
        if cleaner.rules.at_root.is_none_or(|at| at.contains(&"description")) {
            let told = std::mem::take(&mut place.notes);
            place.map.insert("description".to_owned(), own.into());
            describe(&mut out, &place);
            place.notes = told;
        } else {
            place.notes.insert(0, own.trim().to_owned());
        }
    }
    out.extend(words);
    out.extend(members);
    (Value::Object(out), notes::join("", &place.notes))
}

/// Puts one `anyOf` or `oneOf` of the top into its properties; false when there is none.
fn union(cleaner: &mut Cleaner<'_>, place: &mut Place) -> bool {
    let mut list = list_of(&mut place.map, "anyOf");
    if list.is_empty() {
        list = list_of(&mut place.map, "oneOf");
    }
    if list.is_empty() {
        return false;
    }
    let (mut forms, mut needs) = (Vec::new(), Vec::new());
    for member in &list {
        let flat = cleaner.flatten(member, &mut place.notes);
        if is_null(&flat) {
            continue;
        }
        match only_requires(&flat) {
            Some(names) => needs.push(names),
            None => forms.push(flat),
        }
    }
    if !needs.is_empty() {
        notes::add(&mut place.notes, format!("Give at least one of: {}.", needs.join("; ")));
    }
    if forms.len() == 1 {
        if let Some(only) = forms.pop() {
            merge(&mut place.map, only, &mut place.notes);
        }
    } else if !forms.is_empty() {
        join(place, &forms);
    }
    true
}

/// Several forms as one: all their properties, what all of them require, and the forms in words.
fn join(place: &mut Place, forms: &[Map<String, Value>]) {
    let mut told = Vec::new();
    let mut properties: Vec<(String, Vec<Value>)> = Vec::new();
    let mut common: Option<Vec<Value>> = None;
    for form in forms {
        told.push(in_words(form));
        for (name, schema) in form.get("properties").and_then(Value::as_object).into_iter().flatten() {
            match properties.iter_mut().find(|(known, _)| known == name) {
                Some((_, schemas)) if schemas.contains(schema) => {}
                Some((_, schemas)) => schemas.push(schema.clone()),
                None => properties.push((name.clone(), vec![schema.clone()])),
            }
        }
        let required = form.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        common = Some(match common {
            None => required,
            Some(known) => known.into_iter().filter(|name| required.contains(name)).collect(),
        });
    }
    let is_closed = forms.iter().all(|form| form.get("additionalProperties") == Some(&Value::Bool(false)));
    let mut more = Map::new();
    let as_one = |(name, mut schemas): (String, Vec<Value>)| {
        let schema = if schemas.len() == 1 {
            schemas.remove(0)
        } else {
            Value::Object(Map::from_iter([("anyOf".to_owned(), Value::Array(schemas))]))
        };
        (name, schema)
    };
    more.insert("properties".to_owned(), Value::Object(properties.into_iter().map(as_one).collect()));
    more.insert("required".to_owned(), Value::Array(common.unwrap_or_default()));
    if is_closed {
        more.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    let forms: Vec<String> = told.iter().enumerate().map(|(at, words)| format!("({}) {words}", at + 1)).collect();
    notes::add(&mut place.notes, format!("The arguments have one of these forms: {}.", forms.join("; ")));
    merge(&mut place.map, more, &mut place.notes);
}

/// One form in words: its fixed values, what it needs, what it may have.
fn in_words(form: &Map<String, Value>) -> String {
    let mut parts = Vec::new();
    let properties = form.get("properties").and_then(Value::as_object);
    let required = form.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|list| list.iter().any(|other| other == name));
    let (mut needs, mut takes) = (Vec::new(), Vec::new());
    for (name, schema) in properties.into_iter().flatten() {
        let one = schema.get("enum").and_then(Value::as_array).filter(|list| list.len() == 1).map(|list| &list[0]);
        match schema.get("const").or(one) {
            Some(value) => parts.push(format!("`{name}` is {}", json(value))),
            None if is_required(name) => needs.push(format!("`{name}`")),
            None => takes.push(format!("`{name}`")),
        }
    }
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if properties.is_none_or(|all| !all.contains_key(name)) {
            needs.push(format!("`{name}`"));
        }
    }
    if !needs.is_empty() {
        parts.push(format!("needs {}", needs.join(" and ")));
    }
    if !takes.is_empty() {
        parts.push(format!("may have {}", takes.join(" and ")));
    }
    if parts.is_empty() {
        return json(&Value::Object(form.clone()));
    }
    parts.join(", ")
}
