//! A conversation as a file: JSON lines for programs, Markdown for people.

use std::io::{self, Write};

use hermes_gateway::protocol::{ConversationSummary, Row, UsageTotals};
use serde::Serialize;

use super::{lists::name_of, timestamp};

/// Version of the JSON lines format; grows when a reader would have to change.
const EXPORT_FORMAT_VERSION: u32 = 1;

/// How a conversation is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// One JSON object on each line: the session, then its rows.
    Jsonl,
    /// Markdown.
    Md,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Session {
        format_version: u32,
        #[serde(flatten)]
        session: &'a ConversationSummary,
        usage: &'a [UsageTotals],
    },
    Row {
        #[serde(flatten)]
        row: &'a Row,
    },
}

/// Writes the head of an export.
pub(crate) fn head(
    out: &mut dyn Write,
    format: Format,
    session: &ConversationSummary,
    usage: &[UsageTotals],
) -> io::Result<()> {
    match format {
        Format::Jsonl => json_line(out, &Line::Session { format_version: EXPORT_FORMAT_VERSION, session, usage }),
        Format::Md => {
            let title = name_of(session).split_whitespace().collect::<Vec<_>>().join(" ");
            writeln!(out, "# {title}\n")?;
            writeln!(out, "- id: `{}`", session.id)?;
            if let (Some(provider), Some(model)) = (&session.provider, &session.model) {
                writeln!(out, "- model: {model} at {provider}")?;
            }
            writeln!(out, "- created: {}", timestamp(session.created_at_ms))?;
            writeln!(out, "- last activity: {}", timestamp(session.last_activity_ms))
        }
    }
}

/// Writes one row.
pub(crate) fn row(out: &mut dyn Write, format: Format, row: &Row) -> io::Result<()> {
    if format == Format::Jsonl {
        return json_line(out, &Line::Row { row });
    }
    let who = match (&row.tool, &row.outcome) {
        (Some(tool), Some(outcome)) if outcome != "ok" => format!("tool {tool} ({outcome})"),
        (Some(tool), _) => format!("tool {tool}"),
        _ if row.kind != "normal" => format!("{} ({})", row.role, row.kind),
        _ => row.role.clone(),
    };
    writeln!(out, "\n## {who}\n")?;
    if row.role == "tool" {
        fenced(out, "", &row.content)?;
    } else if !row.content.is_empty() {
        writeln!(out, "{}", row.content.trim_end_matches('\n'))?;
    }
    for call in &row.calls {
        writeln!(out, "\nCall of `{}`:\n", call.name)?;
        fenced(out, "json", &call.arguments)?;
    }
    Ok(())
}

fn json_line(out: &mut dyn Write, line: &Line<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

/// A block that its content cannot end: the fence is longer than any run of backticks in it.
fn fenced(out: &mut dyn Write, language: &str, text: &str) -> io::Result<()> {
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat((longest + 1).max(3));
    writeln!(out, "{fence}{language}\n{}\n{fence}", text.trim_end_matches('\n'))
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
