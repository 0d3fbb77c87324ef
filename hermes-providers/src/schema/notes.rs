//! What a schema cannot say, in words for the model.

use serde_json::Value;

use super::MAX_RULE_BYTES;

/// Keywords that say nothing to a model, or whose meaning is gone once references are in place.
const SILENT: [&str; 22] = [
    "$schema",
    "$id",
    "id",
    "$anchor",
    "$comment",
    "$defs",
    "definitions",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "$vocabulary",
    "title",
    "readOnly",
    "writeOnly",
    "discriminator",
    "xml",
    "externalDocs",
    "nullable",
    "propertyOrdering",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "allOf",
];

/// Keywords of JSON Schema that are told as they are.
const TOLD_AS_JSON: [&str; 14] = [
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contains",
    "oneOf",
    "anyOf",
];

/// A value as short JSON.
pub(super) fn json(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > MAX_RULE_BYTES {
        let mut cut = MAX_RULE_BYTES;
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        text.truncate(cut);
        text.push('…');
    }
    text
}

/// Values as a list.
pub(super) fn list(values: &[Value]) -> String {
    let mut out = String::new();
    for value in values {
        let more = json(value);
        if out.len() + more.len() > MAX_RULE_BYTES {
            return out + ", …";
        }
        out.push_str(if out.is_empty() { "" } else { ", " });
        out.push_str(&more);
    }
    out
}

/// A keyword that the dialect lacks; `None` when there is nothing to tell.
pub(super) fn keyword(key: &str, value: &Value) -> Option<String> {
    if SILENT.contains(&key) || key.starts_with("x-") || value.is_null() && key != "default" {
        return None;
    }
    let text = json(value);
    Some(match key {
        "additionalProperties" => match value {
            Value::Bool(_) => return None,
            _ => format!("Further properties are allowed; each is: {text}."),
        },
        "format" => format!("Format: {}.", value.as_str().unwrap_or(&text)),
        "pattern" => format!("Pattern: {}.", value.as_str().map_or(text.clone(), |text| format!("`{text}`"))),
        "minLength" => format!("At least {text} characters."),
        "maxLength" => format!("At most {text} characters."),
        "minimum" => format!("At least {text}."),
        "maximum" => format!("At most {text}."),
        "exclusiveMinimum" if value.is_number() => format!("More than {text}."),
        "exclusiveMaximum" if value.is_number() => format!("Less than {text}."),
        "exclusiveMinimum" | "exclusiveMaximum" => return None,
        "multipleOf" => format!("A multiple of {text}."),
        "minItems" => format!("At least {text} items."),
        "maxItems" => format!("At most {text} items."),
        "uniqueItems" if *value == Value::Bool(true) => "No item twice.".to_owned(),
        "minProperties" => format!("At least {text} properties."),
        "maxProperties" => format!("At most {text} properties."),
        "default" => format!("Default: {text}."),
        "example" => format!("Example: {text}."),
        "examples" => format!("Examples: {text}."),
        "deprecated" if *value == Value::Bool(true) => "Deprecated.".to_owned(),
        "required" if *value == Value::Bool(true) => "Required.".to_owned(),
        key if TOLD_AS_JSON.contains(&key) => format!("Rule `{key}`: {text}."),
        // Unknown words have no meaning that anybody agreed on.
        _ => return None,
    })
}

/// Adds a sentence, once.
pub(super) fn add(notes: &mut Vec<String>, note: String) {
    if !note.is_empty() && !notes.contains(&note) {
        notes.push(note);
    }
}

/// A description with its notes behind it.
pub(super) fn join(description: &str, notes: &[String]) -> String {
    let mut out = description.trim().to_owned();
    for note in notes {
        if !out.contains(note.as_str()) {
            out.push_str(if out.is_empty() { "" } else { " " });
            out.push_str(note);
        }
    }
    out
}
