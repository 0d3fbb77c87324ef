//! Reading the checked arguments of a call, and the reports that all tools share.

use serde_json::Value;

use crate::text::error_json;
use crate::tool::{Call, CallOutcome, CallReport};

/// A text argument; empty when it is missing.
pub(super) fn text<'a>(call: &'a Call, name: &str) -> &'a str {
    call.arguments[name].as_str().unwrap_or("")
}

/// A flag; false when it is missing.
pub(super) fn flag(call: &Call, name: &str) -> bool {
    call.arguments[name].as_bool().unwrap_or(false)
}

/// A whole number that is not negative, `default` when it is missing; a negative one counts as 0.
pub(super) fn number(call: &Call, name: &str, default: u64) -> u64 {
    match &call.arguments[name] {
        Value::Number(number) => number.as_u64().unwrap_or(0),
        _ => default,
    }
}

/// The same as a size.
pub(super) fn size(call: &Call, name: &str, default: usize) -> usize {
    usize::try_from(number(call, name, default as u64)).unwrap_or(usize::MAX)
}

/// A call that ran and failed.
pub(super) fn failed(message: impl AsRef<str>) -> CallReport {
    let message = message.as_ref();
    let first = message.lines().next().unwrap_or("");
    CallReport::new(CallOutcome::Failed, error_json(message)).with_summary(crate::text::cut_chars(first, 80))
}

/// A call that did what it says.
pub(super) fn done(content: &Value, summary: impl Into<String>) -> CallReport {
    CallReport::new(CallOutcome::Ok, content.to_string()).with_summary(summary)
}

/// A call whose work on a worker thread broke.
pub(super) fn broken() -> CallReport {
    failed("the tool failed inside (a defect of the tool)")
}
