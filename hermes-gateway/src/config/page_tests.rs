//! `docs/config.md` says what the code reads, with the defaults that hold.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::{Config, settings};

const PAGE: &str = include_str!("../../../docs/config.md");

/// Other spellings: the page tells of them in the row of the setting itself.
const SPELLINGS: [&str; 3] = ["model.model", "model", "store.url"];

/// `| `KEY` | `DEFAULT` | ...` of the tables of settings, whose rows have five columns.
fn rows() -> BTreeMap<String, String> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let cells = rows.map(|row| row.split(" | ").collect::<Vec<_>>()).filter(|cells| cells.len() == 5);
    let word = |cell: &str| cell.trim_matches('`').to_owned();
    cells.map(|cells| (word(cells[0]).replace("NAME", "*"), word(cells[1]))).collect()
}

/// A default as the page writes it.
fn written(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(written).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

#[test]
fn the_page_lists_every_setting_that_is_read_with_its_default() {
    let config = Config::parse(Path::new("config.yaml"), "providers: {NAME: {}}").unwrap();
    let read: BTreeMap<String, String> =
        config.show().into_iter().map(|shown| (shown.key.replace("NAME", "*"), written(&shown.value))).collect();
    assert_eq!(rows(), read, "docs/config.md and the code differ");
}

#[test]
fn the_page_tells_of_every_name() {
    for name in settings::names().filter(|name| *name != "_config_version") {
        let name = name.replace('*', "NAME");
        let is_row = PAGE.contains(&format!("\n| `{name}` |"));
        let is_spelling = SPELLINGS.contains(&name.as_str()) && PAGE.contains(&format!("`{name}"));
        assert!(is_row || is_spelling, "docs/config.md does not tell of {name}");
    }
}
