//! Small JSON helpers that forgive what servers really send.

use serde::de::IgnoredAny;

/// True when `text` is exactly one JSON value, blanks around it allowed.
pub(crate) fn is_whole_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}
