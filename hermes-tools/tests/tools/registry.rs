//! Which tools exist and fit.

use std::sync::Arc;

use hermes_tools::scripted::{Ledger, LedgerTool};
use hermes_tools::{CallOutcome, RegisterError, ToolRegistry, ToolSelection};

fn names(registry: &ToolRegistry, enabled: Option<&[&str]>, disabled: &[&str]) -> Vec<String> {
    let selection = registry.selection(enabled, disabled).unwrap();
    registry.select(&selection).iter().map(|tool| tool.spec().name.clone()).collect()
}

const ALL: [&str; 8] =
    ["clarify", "patch", "process_manage", "read_file", "search_files", "terminal", "todo_list", "write_file"];

#[test]
fn t3_what_is_disabled_is_taken_away_last() {
    let registry = ToolRegistry::with_builtins();
    assert_eq!(names(&registry, None, &[]), ALL);
    assert_eq!(names(&registry, Some(&["all"]), &[]), ALL);
    assert_eq!(names(&registry, Some(&["hermes-cli"]), &[]), ALL);
    let file = ["patch", "read_file", "search_files", "write_file"];
    assert_eq!(names(&registry, Some(&["file", "terminal"]), &["terminal"]), file);
    assert_eq!(names(&registry, Some(&["hermes-webhook"]), &[]), ["clarify"]);
    assert_eq!(names(&registry, None, &["all"]), [""; 0]);
    assert!(registry.select(&ToolSelection::none()).is_empty());
}

#[test]
fn t4_disabling_a_bundle_keeps_the_core_tools() {
    let registry = ToolRegistry::with_builtins();
    assert_eq!(names(&registry, Some(&["hermes-cli"]), &["hermes-discord"]), ALL);
}

#[test]
fn a_name_is_registered_once_and_only_with_an_object_schema() {
    let mut registry = ToolRegistry::with_builtins();
    let ledger = Arc::new(Ledger::default());
    let error = registry.register(Arc::new(LedgerTool::new("terminal", ledger.clone()))).unwrap_err();
    assert_eq!(error, RegisterError::Duplicate("terminal".to_owned()));
    registry.register(Arc::new(LedgerTool::new("mine", ledger))).unwrap();
    assert_eq!(names(&registry, Some(&["scripted"]), &[]), ["mine"]);
}

#[test]
fn every_built_in_tool_is_described() {
    for tool in hermes_tools::builtin::all() {
        let spec = tool.spec();
        assert_eq!(spec.parameters["type"], "object", "{}", spec.name);
        assert!(spec.description.len() > 20 && spec.parameters["properties"].is_object(), "{}", spec.name);
    }
}

#[test]
fn t12_a_wrong_call_gets_its_result_and_nothing_is_run() {
    let registry = ToolRegistry::with_builtins();
    for (name, arguments, expected) in [
        ("read_fil", "{}", "Did you mean read_file?"),
        ("terminal", "{\"command\": ", "not valid JSON"),
        ("terminal", "[]", "must be a JSON object"),
        ("terminal", "{}", "missing required field \\\"command\\\""),
        ("process_manage", "{\"action\": \"dance\"}", "must be one of"),
    ] {
        let Err(report) = registry.prepare(3, "id", name, arguments) else { panic!("{name} {arguments}") };
        assert_eq!(report.outcome, CallOutcome::Invalid);
        assert!(report.content.contains(expected), "{}", report.content);
    }
}

#[test]
fn old_names_and_encoded_arguments_are_understood() {
    let registry = ToolRegistry::with_builtins();
    let Ok(call) = registry.prepare(0, "id", "process", "\"{\\\"action\\\": \\\"list\\\"}\"") else { panic!() };
    assert_eq!(call.call.name, "process_manage");
    let Ok(call) = registry.prepare(0, "id", "todo", "") else { panic!() };
    assert_eq!(call.call.name, "todo_list");
}

#[test]
fn i22_a_tool_that_was_not_selected_is_unknown() {
    let registry = ToolRegistry::with_builtins();
    let available = registry.select(&registry.selection(Some(&["file"]), &[]).unwrap());
    let Err(report) = registry.prepare_available(&available, 0, "id", "terminal", "{\"command\":\"ls\"}") else {
        panic!()
    };
    assert!(report.content.contains("There is no tool named"), "{}", report.content);
    assert!(registry.prepare_available(&available, 0, "id", "read_file", "{\"path\":\"a\"}").is_ok());
}
