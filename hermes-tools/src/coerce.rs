//! Fits a model's arguments to a tool's schema: what is clearly meant is repaired, what is missing or wrong is named.
//!
//! Understood of JSON Schema: `type` (one or a list), `properties`, `required`, `items`, `enum`. Fields that the schema
//! does not know are left as they are.

use serde_json::{Map, Value};

/// Deepest nesting of a schema that is followed. Deeper values are passed as they are.
const MAX_DEPTH: usize = 16;

/// Arguments that fit `schema`, or what is wrong with them, one line for each field.
pub(crate) fn fit(schema: &Value, arguments: Map<String, Value>) -> Result<Value, Vec<String>> {
    let mut problems = Vec::new();
    let fitted = fit_object(schema, arguments, "", 0, &mut problems);
    if problems.is_empty() { Ok(Value::Object(fitted)) } else { Err(problems) }
}

fn fit_object(
    schema: &Value,
    mut object: Map<String, Value>,
    path: &str,
    depth: usize,
    problems: &mut Vec<String>,
) -> Map<String, Value> {
    let required: Vec<&str> =
        schema["required"].as_array().map(|names| names.iter().filter_map(Value::as_str).collect()).unwrap_or_default();
    let Some(properties) = schema["properties"].as_object() else { return object };
    for (name, field) in properties {
        let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let needed = required.contains(&name.as_str());
        let Some(value) = object.remove(name) else {
            if needed {
                problems.push(format!("missing required field \"{full}\" ({})", describe(field)));
            }
            continue;
        };
        if is_absent(&value, field) && !needed {
            continue;
        }
        let value = fit_value(field, value, &full, depth + 1, problems);
        object.insert(name.clone(), value);
    }
    object
}

/// Null, and the word for it where text is not expected, mean "not given".
fn is_absent(value: &Value, schema: &Value) -> bool {
    match value {
        Value::Null => !types(schema).contains(&"null"),
        Value::String(text) => {
            let types = types(schema);
            !types.is_empty() && !types.contains(&"string") && matches!(text.trim(), "null" | "None" | "")
        }
        _ => false,
    }
}

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn fits(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    }
}

fn fit_value(schema: &Value, value: Value, path: &str, depth: usize, problems: &mut Vec<String>) -> Value {
    if depth > MAX_DEPTH {
        return value;
    }
    let kinds = types(schema);
    let value = if kinds.is_empty() || kinds.iter().any(|kind| fits(&value, kind)) {
        value
    } else {
        match kinds.iter().find_map(|kind| repair(&value, kind)) {
            Some(repaired) => repaired,
            None => {
                problems.push(format!("field \"{path}\" must be {}, not {}", kinds.join(" or "), kind_of(&value)));
                return value;
            }
        }
    };
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(&value)
    {
        let names: Vec<String> = allowed.iter().map(Value::to_string).collect();
        problems.push(format!("field \"{path}\" must be one of {}, not {value}", names.join(", ")));
        return value;
    }
    match value {
        Value::Object(object) => Value::Object(fit_object(schema, object, path, depth, problems)),
        Value::Array(items) if schema["items"].is_object() => Value::Array(
            items
                .into_iter()
                .enumerate()
                .map(|(at, item)| fit_value(&schema["items"], item, &format!("{path}[{at}]"), depth + 1, problems))
                .collect(),
        ),
        other => other,
    }
}

/// The value as `kind` when it is clearly meant so.
fn repair(value: &Value, kind: &str) -> Option<Value> {
    match (kind, value) {
        ("integer", Value::String(text)) => {
            let text = text.trim();
            text.parse::<i64>().ok().map(Value::from).or_else(|| text.parse::<f64>().ok().and_then(whole))
        }
        ("integer", Value::Number(number)) => number.as_f64().and_then(whole),
        ("number", Value::String(text)) => {
            text.trim().parse::<f64>().ok().and_then(serde_json::Number::from_f64).map(Value::Number)
        }
        ("boolean", Value::String(text)) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" => Some(Value::Bool(true)),
            "false" | "no" | "0" => Some(Value::Bool(false)),
            _ => None,
        },
        ("boolean", Value::Number(number)) => match number.as_i64() {
            Some(0) => Some(Value::Bool(false)),
            Some(1) => Some(Value::Bool(true)),
            _ => None,
        },
        ("array", Value::String(text)) => match serde_json::from_str::<Value>(text) {
            Ok(array @ Value::Array(_)) => Some(array),
            Ok(object @ Value::Object(_)) => Some(Value::Array(vec![object])),
            _ => Some(Value::Array(vec![value.clone()])),
        },
        ("array", Value::Null) => None,
        ("array", other) => Some(Value::Array(vec![other.clone()])),
        ("object", Value::String(text)) => serde_json::from_str::<Value>(text).ok().filter(Value::is_object),
        ("string", Value::Number(_) | Value::Bool(_)) => Some(Value::String(value.to_string())),
        _ => None,
    }
}

/// A float without a fraction as an integer, inside the range in which floats are exact.
fn whole(number: f64) -> Option<Value> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "checked: whole and within 2^53")]
    (number.fract() == 0.0 && number.abs() <= EXACT).then(|| Value::from(number as i64))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn describe(schema: &Value) -> String {
    let kinds = types(schema);
    if kinds.is_empty() { "any".to_owned() } else { kinds.join(" or ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "required": ["path"], "properties": {
            "path": {"type": "string"}, "limit": {"type": "integer"}, "deep": {"type": "boolean"},
            "rate": {"type": "number"}, "names": {"type": "array", "items": {"type": "string"}},
            "mode": {"type": "string", "enum": ["a", "b"]},
            "todos": {"type": "array", "items": {"type": "object", "required": ["id"], "properties": {
                "id": {"type": "string"}, "n": {"type": "integer"}}}}}})
    }

    #[track_caller]
    fn check(given: Value, expected: Value) {
        let Value::Object(given) = given else { panic!("an object") };
        assert_eq!(fit(&schema(), given), Ok(expected));
    }

    #[track_caller]
    fn check_wrong(given: Value, expected: &str) {
        let Value::Object(given) = given else { panic!("an object") };
        let problems = fit(&schema(), given).unwrap_err().join("; ");
        assert!(problems.contains(expected), "{problems}");
    }

    #[test]
    fn t9_what_is_clearly_meant_is_repaired() {
        check(json!({"path": "a", "limit": "5"}), json!({"path": "a", "limit": 5}));
        check(json!({"path": "a", "limit": 5.0}), json!({"path": "a", "limit": 5}));
        check(json!({"path": "a", "rate": "0.5"}), json!({"path": "a", "rate": 0.5}));
        check(json!({"path": "a", "deep": "True"}), json!({"path": "a", "deep": true}));
        check(json!({"path": "a", "names": "[\"x\",\"y\"]"}), json!({"path": "a", "names": ["x", "y"]}));
        check(json!({"path": "a", "names": "x"}), json!({"path": "a", "names": ["x"]}));
        check(
            json!({"path": 7, "todos": "{\"id\":1,\"n\":\"2\"}"}),
            json!({"path": "7", "todos": [{"id": "1", "n": 2}]}),
        );
        check(json!({"path": "a", "limit": null, "deep": "null"}), json!({"path": "a"}));
        check(json!({"path": "null", "extra": [1]}), json!({"path": "null", "extra": [1]}));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        check_wrong(json!({}), "missing required field \"path\" (string)");
        check_wrong(json!({"path": ["a"]}), "field \"path\" must be string, not array");
        check_wrong(json!({"path": "a", "limit": "many"}), "field \"limit\" must be integer, not string");
        check_wrong(json!({"path": "a", "mode": "c"}), "must be one of \"a\", \"b\"");
        check_wrong(json!({"path": "a", "todos": [{}]}), "missing required field \"todos[0].id\"");
        check_wrong(json!({"path": null}), "must be string, not null");
    }
}
