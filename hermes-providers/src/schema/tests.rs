//! What comes out, case by case and for random schemas.

#![allow(clippy::needless_pass_by_value, reason = "literals read best without borrows")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::rules::STRUCTURE;
use super::*;

fn check(dialect: SchemaDialect, schema: Value, expect: Value) {
    check_note(dialect, schema, expect, "");
}

fn check_note(dialect: SchemaDialect, schema: Value, expect: Value, note: &str) {
    let (cleaned, told) = clean_parameters(&schema, dialect);
    assert_eq!(cleaned, expect, "{dialect:?}: {cleaned:#}");
    assert_eq!(told, note, "{dialect:?}");
    assert_eq!(clean_parameters(&cleaned, dialect).0, cleaned, "{dialect:?}: once more");
}

/// One property `p` of a schema.
fn check_property(dialect: SchemaDialect, schema: Value, expect: Value) {
    let of = |schema: Value| json!({"type": "object", "properties": {"p": schema}});
    check(dialect, of(schema), of(expect));
}

use SchemaDialect::{Anthropic, Bedrock, Gemini, Local, OpenApi, Plain};

#[test]
fn references_are_put_in_place() {
    let schema = json!({
        "$schema": "x",
        "type": "object",
        "properties": {"to": {"$ref": "#/$defs/Address", "description": "Where to."}},
        "$defs": {"Address": {"title": "Address", "type": "object", "properties": {"city": {"type": "string"}}}},
        "required": ["to"],
    });
    for dialect in [Plain, Anthropic, Gemini, OpenApi, Bedrock, Local] {
        check(
            dialect,
            schema.clone(),
            json!({
                "type": "object",
                "properties": {
                    "to": {"type": "object", "description": "Where to.", "properties": {"city": {"type": "string"}}}
                },
                "required": ["to"],
            }),
        );
    }
}

#[test]
fn a_reference_in_a_circle_ends_in_words() {
    let schema = json!({
        "type": "object",
        "properties": {"tree": {"$ref": "#/definitions/Node"}},
        "definitions": {"Node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "next": {"$ref": "#/definitions/Node"}},
        }},
    });
    let inner = json!({"type": "object", "description": "The same shape as `Node` above."});
    let level = |next: Value| json!({"type": "object", "properties": {"name": {"type": "string"}, "next": next}});
    check_property(Plain, json!({"type": "object"}), json!({"type": "object"}));
    check(Plain, schema, json!({"type": "object", "properties": {"tree": level(level(inner))}}));
    let whole = json!({"type": "object", "properties": {"p": {"$ref": "#"}}});
    let inner = json!({"type": "object", "description": "The same shape as the whole above."});
    check(Plain, whole, json!({"type": "object", "properties": {"p": {"type": "object", "properties": {"p": inner}}}}));
}

#[test]
fn a_reference_to_nowhere_is_anything_with_its_name() {
    check_property(Plain, json!({"$ref": "other.json#/Pet"}), json!({"description": "A `Pet`."}));
}

#[test]
fn references_that_grow_without_end_stay_small() {
    let mut defs = serde_json::Map::new();
    for at in 0..12 {
        let all: Vec<Value> = (0..12).map(|to| json!({"$ref": format!("#/$defs/d{to}")})).collect();
        defs.insert(format!("d{at}"), json!({"type": "object", "properties": {"a": {"anyOf": all}}}));
    }
    let schema = json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/d0"}}, "$defs": defs});
    for dialect in SchemaDialect::ALL {
        let (cleaned, _) = clean_parameters(&schema, *dialect);
        assert!(cleaned.to_string().len() < 200_000, "{dialect:?}");
        assert_eq!(clean_parameters(&cleaned, *dialect).0, cleaned, "{dialect:?}");
    }
}

#[test]
fn null_is_said_in_each_dialect() {
    for schema in [
        json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        json!({"type": ["string", "null"]}),
        json!({"type": "string", "nullable": true}),
        json!({"oneOf": [{"type": "null"}, {"type": "string"}]}),
    ] {
        check_property(Plain, schema.clone(), json!({"type": ["string", "null"]}));
        check_property(Gemini, schema.clone(), json!({"type": ["string", "null"]}));
        check_property(OpenApi, schema.clone(), json!({"type": "string", "nullable": true}));
        check_property(Bedrock, schema.clone(), json!({"type": "string", "description": "May be null."}));
        check_property(Local, schema, json!({"type": "string", "description": "May be null."}));
    }
    check_property(Plain, json!({"enum": ["a", null]}), json!({"type": ["string", "null"], "enum": ["a", null]}));
    check_property(OpenApi, json!({"enum": ["a", null]}), json!({"type": "string", "nullable": true, "enum": ["a"]}));
}

#[test]
fn several_types_become_a_union_where_a_list_is_not_known() {
    let schema = json!({"type": ["string", "integer"], "minLength": 2, "description": "d"});
    check_property(Plain, schema.clone(), json!({"type": ["string", "integer"], "description": "d", "minLength": 2}));
    check_property(
        OpenApi,
        schema.clone(),
        json!({"description": "d", "anyOf": [{"type": "string", "minLength": 2}, {"type": "integer"}]}),
    );
    check_property(
        Gemini,
        schema,
        json!({
            "description": "d",
            "anyOf": [{"type": "string", "description": "At least 2 characters."}, {"type": "integer"}]
        }),
    );
}

#[test]
fn empty_lists_are_left_out() {
    let schema =
        json!({"type": "object", "properties": {"p": {"type": "string", "enum": []}}, "required": [], "anyOf": []});
    check(Plain, schema, json!({"type": "object", "properties": {"p": {"type": "string"}}}));
    check(Plain, json!({"type": "object"}), json!({"type": "object", "properties": {}}));
    check(OpenApi, json!({"type": "object", "properties": {}, "required": []}), json!({"type": "object"}));
    check(Plain, Value::Null, json!({"type": "object", "properties": {}}));
}

#[test]
fn a_missing_type_is_read_from_the_other_words() {
    check_property(Plain, json!({"minLength": 1}), json!({"type": "string", "minLength": 1}));
    check_property(
        Plain,
        json!({"properties": {"a": {"const": 1}}}),
        json!({"type": "object", "properties": {"a": {"type": "integer", "enum": [1]}}}),
    );
    check_property(Plain, json!({"items": {"type": "string"}}), json!({"type": "array", "items": {"type": "string"}}));
    check_property(Plain, json!({"type": "array"}), json!({"type": "array", "items": {}}));
    check_property(Plain, json!({"description": "x"}), json!({"description": "x"}));
    check_property(
        OpenApi,
        json!({}),
        json!({"anyOf": [
            {"type": "string"}, {"type": "number"}, {"type": "boolean"}, {"type": "object"},
            {"type": "array", "items": {"type": "string"}}
        ]}),
    );
}

#[test]
fn what_a_dialect_lacks_is_told() {
    let schema = json!({"type": "string", "format": "uuid", "pattern": "^a", "default": "b", "description": "An id."});
    check_property(
        Plain,
        schema.clone(),
        json!({"type": "string", "description": "An id.", "format": "uuid", "pattern": "^a", "default": "b"}),
    );
    check_property(
        Gemini,
        schema.clone(),
        json!({"type": "string", "description": "An id. Default: \"b\". Format: uuid. Pattern: `^a`."}),
    );
    check_property(
        Local,
        schema,
        json!({"type": "string", "description": "An id. Format: uuid. Pattern: `^a`.", "default": "b"}),
    );
    check_property(
        OpenApi,
        json!({"type": "object", "additionalProperties": {"type": "integer"}}),
        json!({"type": "object", "description": "Further properties are allowed; each is: {\"type\":\"integer\"}."}),
    );
    check_property(
        OpenApi,
        json!({"type": "integer", "enum": [1, 2]}),
        json!({"type": "integer", "description": "One of: 1, 2."}),
    );
    check_property(
        Gemini,
        json!({"type": "string", "enum": ["", "a"]}),
        json!({"type": "string", "description": "One of: \"\", \"a\"."}),
    );
}

#[test]
fn all_of_is_merged() {
    check_property(
        Anthropic,
        json!({
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"properties": {"b": {"type": "number"}, "a": {"minLength": 1}}, "required": ["b"]},
            ]
        }),
        json!({
            "type": "object",
            "properties": {"a": {"type": "string", "minLength": 1}, "b": {"type": "number"}},
            "required": ["a", "b"],
        }),
    );
}

#[test]
fn a_union_at_the_top_becomes_properties_and_words() {
    let schema = json!({"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "string"}}, "required": ["kind", "x"]},
        {"type": "object", "properties": {"kind": {"const": "b"}, "y": {"type": "string"}}, "required": ["kind"]},
    ]});
    let note =
        "The arguments have one of these forms: (1) `kind` is \"a\", needs `x`; (2) `kind` is \"b\", may have `y`.";
    for dialect in [Plain, Anthropic, Gemini, Bedrock, OpenApi, Local] {
        check_note(
            dialect,
            schema.clone(),
            json!({
                "type": "object",
                "properties": {
                    "kind": {"type": "string", "enum": ["a", "b"]},
                    "x": {"type": "string"},
                    "y": {"type": "string"},
                },
                "required": ["kind"],
            }),
            note,
        );
    }
}

#[test]
fn what_must_be_given_is_told_at_the_top() {
    let schema = json!({
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}],
    });
    let expect = json!({"type": "object", "properties": schema["properties"]});
    check_note(Anthropic, schema, expect, "Give at least one of: `a`; `b` with `c`.");
}

#[test]
fn names_that_a_wire_refuses_are_told_and_may_still_be_given() {
    let schema = json!({
        "type": "object",
        "properties": {"a b": {"type": "string"}, "ok": {"type": "string"}},
        "required": ["a b"],
        "additionalProperties": false,
    });
    check(Plain, schema.clone(), schema.clone().tap_sorted());
    check_note(
        Anthropic,
        schema,
        json!({"type": "object", "properties": {"ok": {"type": "string"}}}),
        "It also needs \"a b\": {\"type\":\"string\"}.",
    );
}

trait Sorted {
    fn tap_sorted(self) -> Value;
}

impl Sorted for Value {
    /// Equality of objects does not look at the order of keys; this only says so at the call.
    fn tap_sorted(self) -> Value {
        self
    }
}

#[test]
fn required_names_without_a_property_get_one() {
    check(
        Plain,
        json!({"type": "object", "required": ["a"], "additionalProperties": {"type": "string"}}),
        json!({
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "required": ["a"],
            "additionalProperties": {"type": "string"},
        }),
    );
}

#[test]
fn bedrock_has_three_words_at_the_top_and_tells_the_rest() {
    let tool = ToolSchema {
        name: "t".into(),
        description: "Does it.".into(),
        parameters: json!({"type": "object", "description": "All of it.", "properties": {}, "minProperties": 1}),
    };
    let clean = clean_tool(&tool, Bedrock);
    assert_eq!(clean.parameters, json!({"type": "object", "properties": {}}));
    assert_eq!(clean.description, "Does it.\n\nAll of it. At least 1 properties.");
}

#[test]
fn constants_with_a_meaning_become_values_with_it() {
    check_property(
        Gemini,
        json!({"oneOf": [{"const": "r", "description": "Read"}, {"const": "w", "title": "Write"}]}),
        json!({"type": "string", "description": "\"r\": Read. \"w\": Write.", "enum": ["r", "w"]}),
    );
}

#[test]
fn lists_of_places_become_a_union_in_words() {
    check_property(
        Plain,
        json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false}),
        json!({
            "type": "array",
            "description": "Items in this order: {\"type\":\"string\"}, {\"type\":\"integer\"}.",
            "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        }),
    );
}

#[test]
fn a_union_beside_other_words_stands_alone_at_google() {
    check_property(
        OpenApi,
        json!({
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "anyOf": [{"properties": {"b": {"type": "string"}}}, {"properties": {"c": {"type": "string"}}}],
        }),
        json!({"anyOf": [
            {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "string"}}},
            {"type": "object", "properties": {"c": {"type": "string"}, "a": {"type": "string"}}},
        ]}),
    );
}

#[test]
fn i18_keywords_have_one_order_whatever_order_they_came_in() {
    let one = json!({"properties": {"b": {"description": "d", "type": "string"}}, "type": "object", "required": ["b"]});
    let two = json!({"required": ["b"], "type": "object", "properties": {"b": {"type": "string", "description": "d"}}});
    for dialect in SchemaDialect::ALL {
        let text = |schema| clean_parameters(schema, *dialect).0.to_string();
        assert_eq!(text(&one), text(&two));
        assert_eq!(text(&one), text(&one));
    }
}

#[test]
fn i19_results_are_touched_only_where_they_list_tools() {
    let listing = r##"{ "tools": [ {"name": "x", "description": "d", "inputSchema": {"type": "object", "properties": {"p": {"$ref": "#/$defs/P"}}, "$defs": {"P": {"type": "integer"}}}} ] }"##;
    let cleaned = clean_listing("tool_search", listing, Gemini);
    let wanted = json!({"tools": [{
        "name": "x",
        "description": "d",
        "inputSchema": {"type": "object", "properties": {"p": {"type": "integer"}}},
    }]});
    assert_eq!(serde_json::from_str::<Value>(&cleaned).unwrap(), wanted);
    assert_eq!(clean_listing("tool_search", &cleaned, Gemini), cleaned);
    assert_eq!(clean_listing("read_file", listing, Gemini), listing);
    for untouched in ["no json", "{\"a\": 1.0 }", r#"{"name": "x", "parameters": {"type":"object","properties":{}}}"#] {
        assert_eq!(clean_listing("tool_describe", untouched, Plain), untouched);
    }
}

/// Keywords that must not stand anywhere.
fn forbidden(schema: &Value, dialect: SchemaDialect, depth: usize, at: &str) {
    let rules = dialect.rules();
    let map = schema.as_object().unwrap_or_else(|| panic!("{at}: {schema} is no object"));
    for (key, value) in map {
        let known = STRUCTURE.contains(&key.as_str()) || rules.keywords.contains(&key.as_str());
        assert!(known, "{dialect:?} {at}: {key}");
        if depth == 0 {
            assert!(rules.at_root.is_none_or(|root| root.contains(&key.as_str())), "{dialect:?} {at}: {key}");
            assert!(!matches!(key.as_str(), "anyOf" | "enum"), "{dialect:?}: {key} at the top");
        }
        match (key.as_str(), value) {
            ("properties", Value::Object(all)) => {
                for (name, schema) in all {
                    assert!(rules.names.allow(name), "{dialect:?} {at}: {name}");
                    forbidden(schema, dialect, depth + 1, name);
                }
            }
            ("items", schema) => forbidden(schema, dialect, depth + 1, "items"),
            ("additionalProperties", schema @ Value::Object(_)) => forbidden(schema, dialect, depth + 1, key),
            ("anyOf", Value::Array(forms)) => {
                assert!(!forms.is_empty(), "{dialect:?} {at}");
                forms.iter().for_each(|form| forbidden(form, dialect, depth + 1, "anyOf"));
            }
            ("required" | "enum", Value::Array(list)) => assert!(!list.is_empty(), "{dialect:?} {at}"),
            ("type", Value::Array(list)) => {
                let several = list.iter().filter(|kind| *kind != "null").count() > 1;
                assert!(rules.type_lists || !several && rules.null == rules::NullStyle::TypeList, "{dialect:?} {at}");
            }
            _ => {}
        }
    }
    let has_type = map.contains_key("type") || map.contains_key("anyOf");
    assert!(has_type || !rules.typed, "{dialect:?} {at}: no type in {schema}");
    if map.get("type").is_some_and(|kind| kind == "array") {
        assert!(map.contains_key("items"), "{dialect:?} {at}: no items");
    }
    for name in map.get("required").and_then(Value::as_array).into_iter().flatten() {
        assert!(map["properties"].get(name.as_str().unwrap()).is_some(), "{dialect:?} {at}: {name} is not declared");
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!(true)),
        Just(json!(1)),
        Just(json!(1.5)),
        Just(json!("")),
        Just(json!("a")),
        Just(json!([1])),
        Just(json!({"a": 1})),
    ]
}

fn any_schema() -> impl Strategy<Value = Value> {
    let kind = prop_oneof![
        Just(json!("string")),
        Just(json!("integer")),
        Just(json!("NUMBER")),
        Just(json!("object")),
        Just(json!("array")),
        Just(json!("null")),
        Just(json!("any")),
        Just(json!(["string", "null"])),
        Just(json!(["object", "array", "null"])),
        Just(json!([])),
    ];
    let reference = prop_oneof![
        Just(json!("#")),
        Just(json!("#/$defs/A")),
        Just(json!("#/$defs/B")),
        Just(json!("#/properties/a")),
        Just(json!("nowhere")),
    ];
    let word = prop_oneof![
        kind.prop_map(|kind| ("type".to_owned(), kind)),
        reference.prop_map(|to| ("$ref".to_owned(), to)),
        prop::collection::vec(any_value(), 0..3).prop_map(|list| ("enum".to_owned(), Value::Array(list))),
        any_value().prop_map(|value| ("const".to_owned(), value)),
        any_value().prop_map(|value| ("default".to_owned(), value)),
        ("(format|pattern|description|title|x-y)", "(date-time|uuid|a b|)").prop_map(|(key, text)| (key, json!(text))),
        ("(minLength|maxItems|minimum|exclusiveMinimum|multipleOf)", any_value()),
        ("(nullable|uniqueItems|deprecated|readOnly|required)", any::<bool>()).prop_map(|(key, is)| (key, json!(is))),
        prop::collection::vec("(a|b|c d|9)", 0..3).prop_map(|names| ("required".to_owned(), json!(names))),
    ];
    let leaf = prop::collection::vec(word, 0..4).prop_map(|words| Value::Object(words.into_iter().collect()));
    let leaf = prop_oneof![8 => leaf, 1 => any::<bool>().prop_map(Value::from), 1 => any_value()];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let lists = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array);
        let maps = prop::collection::vec(("(a|b|c d|9|type|properties)", inner.clone()), 0..4)
            .prop_map(|all| Value::Object(all.into_iter().collect()));
        (
            inner.clone(),
            prop::collection::vec(
                prop_oneof![
                    ("(anyOf|oneOf|allOf|prefixItems|items)", lists),
                    ("(properties|[$]defs|definitions|patternProperties)", maps),
                    ("(items|additionalProperties|not|if|then)", inner),
                ],
                0..4,
            ),
        )
            .prop_map(|(base, words)| {
                let mut map = base.as_object().cloned().unwrap_or_default();
                map.extend(words);
                Value::Object(map)
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn cleaned_schemas_have_no_forbidden_word_and_stay_as_they_are(schema in any_schema()) {
        for dialect in SchemaDialect::ALL {
            let (cleaned, _) = clean_parameters(&schema, *dialect);
            forbidden(&cleaned, *dialect, 0, "top");
            let (again, note) = clean_parameters(&cleaned, *dialect);
            prop_assert_eq!(again.to_string(), cleaned.to_string(), "{:?}", dialect);
            prop_assert_eq!(note, "");
        }
    }
}

#[test]
fn i18_every_wire_sends_clean_schemas_and_the_same_bytes_again() {
    use crate::mode::{WireOptions, encode};
    use crate::{ApiMode, ChatMessage, ChatRequest, Quirks};

    let parameters = json!({
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/P"}, "q": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "$defs": {"P": {"type": "array", "items": {"$ref": "#/$defs/P"}}},
        "oneOf": [{"required": ["p"]}, {"required": ["q"]}],
    });
    let tool = |name: &str| ToolSchema { name: name.into(), description: "d".into(), parameters: parameters.clone() };
    let listing = json!({"name": "x", "parameters": parameters}).to_string();
    let request = ChatRequest {
        system: "s".into(),
        tools: vec![tool("a b"), tool("tool_search")].into(),
        ..ChatRequest::new(vec![
            ChatMessage::user("hi"),
            ChatMessage::Assistant {
                text: String::new(),
                reasoning: None,
                sidecar: None,
                calls: vec![crate::ToolCall { id: "c".into(), name: "tool_search".into(), arguments: "{}".into() }],
            },
            ChatMessage::Tool {
                call_id: "c".into(),
                name: "tool_search".into(),
                content: listing,
                is_error: false,
                images: Vec::new(),
            },
        ])
    };
    for mode in ApiMode::ALL {
        let options = WireOptions { model: "m".into(), issuer: "i".into(), quirks: Quirks::default() };
        let body = encode(*mode, &request, &options).unwrap().body;
        assert_eq!(body, encode(*mode, &request, &options).unwrap().body);
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(!text.contains("$ref") && !text.contains("oneOf") && !text.contains("$defs"), "{mode:?}: {text}");
        assert!(text.contains("Give at least one of: `p`; `q`."), "{mode:?}: {text}");
    }
}
