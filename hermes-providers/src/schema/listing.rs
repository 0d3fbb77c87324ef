//! Schemas inside the results of tools that list tools.
//!
//! A model that looks up tools while it works reads their schemas in a result. They are cleaned like those of the
//! request, so that it sees one shape of one tool. Only results of tools whose business is listing are touched: what any
//! other tool answered goes out byte for byte (I19).

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::SchemaDialect;
use super::clean::parameters;
use super::notes;

/// Tools whose results hold schemas of tools.
pub const LISTING_TOOLS: [&str; 2] = ["tool_search", "tool_describe"];

/// Keys under which a schema of arguments stands beside a tool's `name`.
const SCHEMA_KEYS: [&str; 4] = ["parameters", "input_schema", "inputSchema", "parametersJsonSchema"];
/// Deepest nesting that is searched.
const MAX_LISTING_DEPTH: usize = 16;

/// The result of this tool with the schemas in it cleaned; the same bytes when the tool lists no tools or the result holds
/// no schema. Pure, and cleaning twice changes nothing.
#[must_use]
pub fn clean_listing<'a>(tool: &str, content: &'a str, dialect: SchemaDialect) -> Cow<'a, str> {
    if !LISTING_TOOLS.contains(&tool) {
        return Cow::Borrowed(content);
    }
    let Ok(mut value) = serde_json::from_str::<Value>(content) else { return Cow::Borrowed(content) };
    let mut changed = false;
    visit(&mut value, dialect, 0, &mut changed);
    if changed { Cow::Owned(value.to_string()) } else { Cow::Borrowed(content) }
}

fn visit(value: &mut Value, dialect: SchemaDialect, depth: usize, changed: &mut bool) {
    if depth > MAX_LISTING_DEPTH {
        return;
    }
    match value {
        Value::Array(list) => list.iter_mut().for_each(|member| visit(member, dialect, depth + 1, changed)),
        Value::Object(map) => {
            if map.get("name").is_some_and(Value::is_string) {
                for key in SCHEMA_KEYS {
                    clean(map, key, dialect, changed);
                }
            }
            for (key, member) in map.iter_mut() {
                if !SCHEMA_KEYS.contains(&key.as_str()) {
                    visit(member, dialect, depth + 1, changed);
                }
            }
        }
        _ => {}
    }
}

fn clean(map: &mut Map<String, Value>, key: &str, dialect: SchemaDialect, changed: &mut bool) {
    let Some(schema) = map.get(key).filter(|schema| schema.is_object()) else { return };
    let (cleaned, note) = parameters(schema, dialect);
    if cleaned == *schema && note.is_empty() {
        return;
    }
    *changed = true;
    map.insert(key.to_owned(), cleaned);
    if !note.is_empty() {
        let own = map.get("description").and_then(Value::as_str).unwrap_or_default();
        let told = notes::join(own, &[note]);
        map.insert("description".to_owned(), told.into());
    }
}
