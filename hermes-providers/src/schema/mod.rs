//! Tool schemas as each wire accepts them.
//!
//! A tool may come from anywhere (an MCP server, a generator of another language), and one schema that a provider refuses
//! makes the whole request fail. So every schema is rewritten to the part of JSON Schema that the wire documents:
//! references are put in place (with a bound for those that go in circles), unions of types and `null` are said in the
//! wire's own way, empty lists are left out, and what the wire has no word for is told in the description, because a model
//! reads that too.
//!
//! Everything here is pure. Keywords stand in one fixed order and properties keep theirs, so the same tools give the same
//! bytes (I18), and cleaning what is clean changes nothing.
//!
//! Checked against: "Function calling" of OpenAI (platform.openai.com/docs/guides/function-calling; an object at the top
//! without combiners), "Define tools" of Anthropic (platform.claude.com/docs/en/agents-and-tools/tool-use; no references,
//! no combiners at the top, names of properties), `FunctionDeclaration` and `Schema` of Google
//! (ai.google.dev/api/caching), `ToolInputSchema` of Amazon Bedrock and the tool page of Amazon Nova
//! (docs.aws.amazon.com/nova/latest/userguide/tool-use-definition.html).

mod clean;
mod flatten;
mod listing;
mod notes;
mod root;
mod rules;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde_json::Value;

use crate::chat::ToolSchema;

pub use listing::{LISTING_TOOLS, clean_listing};
pub use rules::SchemaDialect;

/// Deepest nesting that goes out; what is deeper is any JSON.
pub const MAX_SCHEMA_DEPTH: usize = 24;
/// Most places of one schema that are looked at: references to references may name very many.
pub const MAX_SCHEMA_NODES: usize = 2_000;
/// How often a reference may stand inside itself before it is told in words.
pub const MAX_REF_REPEATS: usize = 2;
/// Most bytes of a rule that is told as JSON.
pub const MAX_RULE_BYTES: usize = 300;

/// One tool as a wire accepts it, but for its name, which [`NameMap`](crate::mode::NameMap) maps.
#[derive(Debug, Clone, PartialEq)]
pub struct CleanTool<'a> {
    /// The description, with what the schema could not say.
    pub description: Cow<'a, str>,
    /// An object with `type` and `properties`.
    pub parameters: Value,
}

/// The tool for this dialect. Pure: the same tool gives the same bytes.
#[must_use]
pub fn clean_tool(tool: &ToolSchema, dialect: SchemaDialect) -> CleanTool<'_> {
    let (parameters, note) = clean::parameters(&tool.parameters, dialect);
    let description = match note {
        note if note.is_empty() || tool.description.contains(&note) => Cow::Borrowed(tool.description.as_str()),
        note if tool.description.trim().is_empty() => Cow::Owned(note),
        note => Cow::Owned(format!("{}\n\n{note}", tool.description.trim_end())),
    };
    CleanTool { description, parameters }
}

/// The schema of a tool's arguments for this dialect, and what must be told beside it (empty for nothing).
#[must_use]
pub fn clean_parameters(schema: &Value, dialect: SchemaDialect) -> (Value, String) {
    clean::parameters(schema, dialect)
}
