//! Which tools exist, which of them a session may use, and whether a call fits its tool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::coerce;
use crate::executor::PreparedCall;
use crate::text::{cut_chars, error_json};
use crate::tool::{Call, CallOutcome, CallReport, Tool};
use crate::toolsets::{self, EVERYTHING, TOOLSETS};

/// Names that older models and transcripts use.
const ALIASES: &[(&str, &str)] = &[("process", "process_manage"), ("todo", "todo_list")];

/// How many similar names an error proposes.
const NEAR_NAMES: usize = 3;

/// Longest part of wrong arguments that an error repeats, in characters.
const ECHO_MAX_CHARS: usize = 200;

/// A tool that cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Another tool has that name.
    #[error("HM3001: a tool named {0:?} is already registered")]
    Duplicate(String),
    /// The parameters are not a JSON Schema of type `object`.
    #[error("HM3002: the parameters of tool {0:?} are not a schema of type object")]
    NotAnObject(String),
}

/// A selection that names something unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("HM3003: unknown toolset {name:?}; known: {}", known.join(", "))]
pub struct SelectionError {
    /// The name that was given.
    pub name: String,
    /// Every name that can be given, sorted.
    pub known: Vec<String>,
}

/// The tools that a session may use, by toolset. Made by [`ToolRegistry::selection`], which checks the names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolSelection {
    /// `None` means everything.
    enabled: Option<Vec<String>>,
    disabled: Vec<String>,
}

impl ToolSelection {
    /// Every registered tool.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// No tool.
    #[must_use]
    pub fn none() -> Self {
        Self { enabled: Some(Vec::new()), disabled: Vec::new() }
    }
}

/// The tools that exist.
#[derive(Clone, Default)]
pub struct ToolRegistry {
    tools: BTreeMap<String, Arc<dyn Tool>>,
}

impl std::fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}

impl ToolRegistry {
    /// A registry without tools.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry with the built-in tools.
    #[cfg(feature = "builtin")]
    #[must_use]
    pub fn with_builtins() -> Self {
        let mut registry = Self::new();
        for tool in crate::builtin::all() {
            let name = tool.spec().name.clone();
            registry.tools.insert(name, tool);
        }
        registry
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// [`RegisterError`] when the name is taken or the parameters are not an object schema.
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let spec = tool.spec();
        if spec.parameters["type"] != "object" {
            return Err(RegisterError::NotAnObject(spec.name.clone()));
        }
        if self.tools.contains_key(&spec.name) {
            return Err(RegisterError::Duplicate(spec.name.clone()));
        }
        let name = spec.name.clone();
        self.tools.insert(name, tool);
        Ok(())
    }

    /// The tool of that name, old names included.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name).or_else(|| self.tools.get(canonical(name)))
    }

    /// Every toolset name that can be selected, sorted.
    pub fn toolset_names(&self) -> Vec<String> {
        let mut names: BTreeSet<String> = TOOLSETS.iter().map(|set| set.name.to_owned()).collect();
        names.extend(self.tools.values().map(|tool| tool.spec().toolset.to_owned()));
        names.insert(EVERYTHING[0].to_owned());
        names.into_iter().collect()
    }

    /// A checked selection: `enabled` of `None` means everything; `disabled` is taken away last.
    ///
    /// # Errors
    /// [`SelectionError`] for a name that is no toolset.
    pub fn selection<S: AsRef<str>>(
        &self,
        enabled: Option<&[S]>,
        disabled: &[S],
    ) -> Result<ToolSelection, SelectionError> {
        let known = self.toolset_names();
        let check = |names: &[S]| -> Result<Vec<String>, SelectionError> {
            names
                .iter()
                .map(|name| toolsets::modern(name.as_ref().trim()))
                .map(|name| {
                    let exists = EVERYTHING.contains(&name) || known.iter().any(|known| known == name);
                    if exists {
                        Ok(name.to_owned())
                    } else {
                        Err(SelectionError { name: name.to_owned(), known: known.clone() })
                    }
                })
                .collect()
        };
        Ok(ToolSelection { enabled: enabled.map(check).transpose()?, disabled: check(disabled)? })
    }

    /// The selected tools, sorted by name, so that the bytes of their schemas never vary.
    pub fn select(&self, selection: &ToolSelection) -> Vec<Arc<dyn Tool>> {
        let in_sets =
            |names: &[String], tool: &Arc<dyn Tool>, of: fn(&[toolsets::Toolset], &str) -> BTreeSet<&'static str>| {
                let spec = tool.spec();
                names.iter().any(|name| {
                    EVERYTHING.contains(&name.as_str())
                        || spec.toolset == name
                        || of(TOOLSETS, name).contains(spec.name.as_str())
                })
            };
        self.tools
            .values()
            .filter(|tool| selection.enabled.as_ref().is_none_or(|names| in_sets(names, tool, toolsets::resolve)))
            .filter(|tool| !in_sets(&selection.disabled, tool, toolsets::subtracted))
            .cloned()
            .collect()
    }

    /// Checks a call against the registry and its tool's schema. `raw_arguments` is the text that the model wrote; empty
    /// text counts as no arguments.
    ///
    /// # Errors
    /// A report with [`CallOutcome::Invalid`] that says what is wrong.
    pub fn prepare(&self, index: usize, id: &str, name: &str, raw_arguments: &str) -> Result<PreparedCall, CallReport> {
        let Some(tool) = self.get(name) else {
            return Err(unknown(name, self.tools.keys().map(String::as_str)));
        };
        prepare_for(tool, index, id, raw_arguments)
    }

    /// Like [`ToolRegistry::prepare`], but only for the tools that are available to the session (the answer of
    /// [`ToolRegistry::select`]): a tool that exists and was not selected is as unknown as any other.
    ///
    /// # Errors
    /// A report with [`CallOutcome::Invalid`] that says what is wrong.
    pub fn prepare_available(
        &self,
        available: &[Arc<dyn Tool>],
        index: usize,
        id: &str,
        name: &str,
        raw_arguments: &str,
    ) -> Result<PreparedCall, CallReport> {
        let wanted = self.get(name).map_or(name, |tool| tool.spec().name.as_str());
        match available.iter().find(|tool| tool.spec().name == wanted) {
            Some(tool) => prepare_for(tool, index, id, raw_arguments),
            None => Err(unknown(name, available.iter().map(|tool| tool.spec().name.as_str()))),
        }
    }
}

fn canonical(name: &str) -> &str {
    ALIASES.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new)
}

fn invalid(message: &str, summary: &str) -> CallReport {
    CallReport::new(CallOutcome::Invalid, error_json(message)).with_summary(summary)
}

fn prepare_for(tool: &Arc<dyn Tool>, index: usize, id: &str, raw: &str) -> Result<PreparedCall, CallReport> {
    let spec = tool.spec();
    let name = &spec.name;
    let text = if raw.trim().is_empty() { "{}" } else { raw };
    let parsed = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(object)) => object,
        // Some models send no arguments as null or as an encoded string.
        Ok(Value::Null) => serde_json::Map::new(),
        Ok(Value::String(inner)) => match serde_json::from_str::<Value>(&inner) {
            Ok(Value::Object(object)) => object,
            _ => return Err(invalid(&format!("{name}: the arguments must be a JSON object"), "bad arguments")),
        },
        Ok(_) => return Err(invalid(&format!("{name}: the arguments must be a JSON object"), "bad arguments")),
        Err(error) => {
            let echo = cut_chars(raw, ECHO_MAX_CHARS);
            let message = format!("{name}: the arguments are not valid JSON ({error}). Nothing was run. Given: {echo}");
            return Err(invalid(&message, "arguments are not JSON"));
        }
    };
    let arguments = coerce::fit(&spec.parameters, parsed).map_err(|problems| {
        let fields: Vec<&str> = spec.parameters["properties"]
            .as_object()
            .map(|map| map.keys().map(String::as_str).collect())
            .unwrap_or_default();
        let message = format!("{name}: {}. Nothing was run. Known fields: {}.", problems.join("; "), fields.join(", "));
        invalid(&message, "bad arguments")
    })?;
    let call = Call { id: id.to_owned(), name: name.clone(), arguments };
    Ok(PreparedCall { index, call, tool: tool.clone() })
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> CallReport {
    let known: Vec<&str> = known.collect();
    let lower = name.to_ascii_lowercase();
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(|other| (distance(&lower, other), *other))
        .filter(|(far, other)| *far <= 1 + lower.len() / 3 || (lower.len() > 3 && other.contains(&lower)))
        .collect();
    near.sort_unstable();
    let name = cut_chars(name, ECHO_MAX_CHARS);
    let hint = if near.is_empty() {
        format!("Available tools: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })
    } else {
        let names: Vec<&str> = near.iter().take(NEAR_NAMES).map(|(_, name)| *name).collect();
        format!("Did you mean {}?", names.join(" or "))
    };
    invalid(&format!("There is no tool named {name:?}. Nothing was run. {hint}"), "unknown tool")
}

/// Edit distance by characters; names longer than 64 bytes count as far from everything.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 64 || b.len() > 64 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let cost = if ca == *cb { diagonal } else { diagonal + 1 };
            diagonal = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_proposed() {
        let report = unknown("read_fil", ["read_file", "terminal"].into_iter());
        assert_eq!(report.outcome, CallOutcome::Invalid);
        assert!(report.content.contains("Did you mean read_file?"), "{}", report.content);
        let report = unknown("zzz", ["read_file", "terminal"].into_iter());
        assert!(report.content.contains("Available tools: read_file, terminal"), "{}", report.content);
    }

    #[test]
    fn an_unknown_toolset_is_an_error_that_lists_the_known_ones() {
        let registry = ToolRegistry::new();
        let error = registry.selection(Some(&["file", "nothing"]), &[]).unwrap_err();
        assert_eq!(error.name, "nothing");
        assert!(error.to_string().contains("HM3003") && error.to_string().contains("hermes-cli"), "{error}");
        assert!(registry.selection(Some(&["file_tools", "all", "*"]), &["terminal"]).is_ok());
    }
}
