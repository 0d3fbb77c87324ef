//! Any JSON as the schema of a tool: it is cleaned for every dialect, twice to the same bytes, and what is clean stays.
#![no_main]

use hermes_providers::schema::{SchemaDialect, clean_listing, clean_parameters};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let Ok(schema) = serde_json::from_str::<Value>(text) else { return };
    for dialect in SchemaDialect::ALL {
        let (clean, note) = clean_parameters(&schema, *dialect);
        assert_eq!(clean["type"], "object", "{dialect:?}");
        let again = clean_parameters(&schema, *dialect);
        assert_eq!((clean.to_string(), &note), (again.0.to_string(), &again.1), "{dialect:?}: not the same twice");
        let twice = clean_parameters(&clean, *dialect).0;
        assert_eq!(twice.to_string(), clean.to_string(), "{dialect:?}: clean is not clean");
        let _ = clean_listing("tool_search", text, *dialect);
    }
});
