//! Lists and reports as people read them.

use hermes_gateway::protocol::{
    Check, CheckState, ConversationSummary, IndexState, ModelStatusResponse, Neighbour, Row, SearchHit, SearchPage,
    SessionShowResponse, ToolStatus, UsageTotals,
};

use super::{minute, models};
use crate::style::Style;
use crate::text::{columns, harmless, one_line, pad};

/// Columns of a title in a list.
const TITLE_COLUMNS: usize = 32;

/// Columns side by side: every one but the last is as wide as its widest cell.
pub(crate) fn table(rows: &[Vec<String>], style: Style) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> =
        (0..count).map(|i| rows.iter().filter_map(|row| row.get(i)).map(|c| columns(c)).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(i, cell)| if i + 1 == row.len() { cell.clone() } else { pad(cell, widths[i]) })
            .collect();
        let line = cells.join("  ");
        let line = line.trim_end();
        out.push_str(&if number == 0 { style.bold(line) } else { line.to_owned() });
        out.push('\n');
    }
    out
}

/// Conversations, one on each line.
pub(crate) fn sessions(list: &[ConversationSummary], style: Style, width: usize) -> String {
    if list.is_empty() {
        return "There are no sessions yet.\n".to_owned();
    }
    let mut rows = vec![["ID", "LAST ACTIVITY", "ROWS", "STATE", "TITLE OR FIRST WORDS"].map(String::from).to_vec()];
    for session in list {
        let used = session.id.as_str().len() + 16 + 4 + 8 + 10;
        rows.push(vec![
            session.id.to_string(),
            minute(session.last_activity_ms),
            session.messages.to_string(),
            state(session),
            listed_name(session, style, width.saturating_sub(used).max(TITLE_COLUMNS)),
        ]);
    }
    table(&rows, style)
}

/// A title as it is. First words stand in quotes, dim: they are no title, and `--resume` does not find them.
fn listed_name(session: &ConversationSummary, style: Style, width: usize) -> String {
    match (session.title.as_deref().unwrap_or_default(), &session.preview) {
        ("", Some(preview)) => style.dim(&format!("\"{}\"", one_line(preview, width.saturating_sub(2)))),
        _ => one_line(&name_of(session), width),
    }
}

/// What a person calls a conversation: its title, else how it began.
pub(crate) fn name_of(session: &ConversationSummary) -> String {
    match (&session.title, &session.preview) {
        (Some(title), _) if !title.is_empty() => title.clone(),
        (_, Some(preview)) => preview.clone(),
        _ => "(empty)".to_owned(),
    }
}

/// What waits or runs; else what its user did with it.
fn state(session: &ConversationSummary) -> String {
    let flags = &session.flags;
    match session.pending {
        Some(status) => status.as_str().to_owned(),
        None if flags.archived => "archived".to_owned(),
        None if flags.pinned => "pinned".to_owned(),
        None => String::new(),
    }
}

/// One conversation with its rows.
pub(crate) fn session(shown: &SessionShowResponse, style: Style) -> String {
    let session = &shown.session;
    let mut out = format!("{}\n", style.bold(&harmless(&name_of(session))));
    let mut facts = vec![("id", session.id.to_string())];
    if let (Some(provider), Some(model)) = (&session.provider, &session.model) {
        facts.push(("model", format!("{model} at {provider}")));
    }
    if let Some(cwd) = &session.cwd {
        facts.push(("directory", cwd.clone()));
    }
    facts.push(("source", session.source.clone()));
    facts.push(("created", minute(session.created_at_ms)));
    facts.push(("last activity", minute(session.last_activity_ms)));
    if let Some(pending) = session.pending {
        facts.push(("pending", pending.as_str().to_owned()));
    }
    for (at, usage) in shown.usage.iter().enumerate() {
        let cost = shown.costs.get(at).map(models::cost).unwrap_or_default();
        facts.push(("usage", format!("{}{cost}", usage_line(usage))));
    }
    for (name, value) in facts {
        out.push_str(&format!("{}  {}\n", pad(name, 13), harmless(&value)));
    }
    for row in &shown.rows {
        out.push('\n');
        out.push_str(&transcript_row(row, style));
    }
    out
}

fn usage_line(usage: &UsageTotals) -> String {
    let task = if usage.task.is_empty() { String::new() } else { format!(" for {}", usage.task) };
    format!(
        "{} at {}{task}: {} requests, {} tokens in, {} out, {} from cache",
        usage.model, usage.provider, usage.requests, usage.input, usage.output, usage.cache_read
    )
}

fn transcript_row(row: &Row, style: Style) -> String {
    let who = match (&row.tool, row.role.as_str()) {
        (Some(tool), "tool") => format!("tool {tool}"),
        _ => row.role.clone(),
    };
    let mut marks = Vec::new();
    if row.kind != "normal" {
        marks.push(row.kind.clone());
    }
    if let Some(outcome) = row.outcome.as_deref().filter(|outcome| *outcome != "ok") {
        marks.push(outcome.to_owned());
    }
    let marks = if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) };
    let mut out = format!("{}{marks}\n", style.name(&harmless(&who)));
    if !row.content.is_empty() {
        out.push_str(harmless(&row.content).trim_end_matches('\n'));
        out.push('\n');
    }
    for call in &row.calls {
        out.push_str(&style.dim(&format!("→ {} {}", harmless(&call.name), harmless(&call.arguments))));
        out.push('\n');
    }
    out
}

/// One page of a search, and what is to be said about the index. Of an empty one the caller says so, beside the list.
pub(crate) fn found(page: &SearchPage, style: Style, width: usize) -> String {
    let mut out = hits(&page.hits, style, width);
    if page.index == IndexState::Unusable {
        out.push_str("The search index cannot be used, so that only the newest rows were looked through; `hermes sessions reindex` builds it anew.\n");
    } else if page.index == IndexState::Building || page.pending > 0 {
        out.push_str("The search index is still being built; there may be more.\n");
    }
    if let Some(next) = &page.next {
        out.push_str(&format!("There may be more: --after {next}\n"));
    }
    out
}

fn neighbour(row: Option<&Neighbour>, style: Style, width: usize) -> String {
    let line = |row: &Neighbour| one_line(&format!("{}: {}", row.role, row.text), width.saturating_sub(4));
    row.map(|row| format!("    {}\n", style.dim(&line(row)))).unwrap_or_default()
}

/// Rows that hold a text, with the text marked.
pub(crate) fn hits(list: &[SearchHit], style: Style, width: usize) -> String {
    let mut out = String::new();
    for hit in list {
        let title = hit.title.clone().unwrap_or_else(|| "(no title)".to_owned());
        out.push_str(&format!(
            "{}  {}  {}  {}\n",
            style.name(hit.conversation.as_str()),
            minute(hit.created_at_ms),
            harmless(&hit.role),
            one_line(&title, TITLE_COLUMNS)
        ));
        let snippet = one_line(&hit.snippet, width.saturating_sub(4));
        let marked = if style.colour { snippet.replace(">>>", "\x1b[1m").replace("<<<", "\x1b[0m") } else { snippet };
        // A mark that was cut off must not colour the rest of the screen.
        let end = if style.colour { "\x1b[0m" } else { "" };
        out.push_str(&neighbour(hit.before.as_ref(), style, width));
        out.push_str(&format!("    {marked}{end}\n"));
        out.push_str(&neighbour(hit.after.as_ref(), style, width));
    }
    out
}

/// Which model is used, and why; which providers there are.
pub(crate) fn model(status: &ModelStatusResponse, style: Style) -> String {
    let mut out = String::new();
    let url = if status.base_url.is_empty() { "(no network)" } else { status.base_url.as_str() };
    for (name, value) in [
        ("model", status.model.as_str()),
        ("provider", status.provider.as_str()),
        ("address", url),
        ("key", status.key_source.as_str()),
        ("why", status.reason.as_str()),
    ] {
        if value.is_empty() {
            continue;
        }
        let value = harmless(value);
        let value = if name == "model" { style.bold(&value) } else { value };
        out.push_str(&format!("{}  {value}\n", pad(name, 8)));
    }
    for fallback in &status.fallbacks {
        let told = match &fallback.problem {
            None => format!("{} at {} ({})", fallback.model, fallback.provider, fallback.base_url),
            Some(problem) => format!("not used: {}: {}", problem.code, problem.message),
        };
        out.push_str(&format!("{}  {}\n", pad("fallback", 8), harmless(&told)));
    }
    if !status.providers.is_empty() {
        out.push('\n');
        let mut rows = vec![["PROVIDER", "READY", "NAME", "KEY VARIABLES"].map(String::from).to_vec()];
        for provider in &status.providers {
            rows.push(vec![
                harmless(&provider.id),
                if provider.ready { "yes" } else { "no" }.to_owned(),
                harmless(&provider.name),
                harmless(&provider.env_keys.join(", ")),
            ]);
        }
        out.push_str(&table(&rows, style));
    }
    out
}

/// Tools, by toolset.
pub(crate) fn tools(list: &[ToolStatus], style: Style, width: usize) -> String {
    let mut rows = vec![["TOOL", "TOOLSET", "ENABLED", "WHAT IT DOES"].map(String::from).to_vec()];
    let name_width = list.iter().map(|tool| tool.name.len() + tool.toolset.len()).max().unwrap_or(0);
    for tool in list {
        rows.push(vec![
            one_line(&tool.name, 40),
            one_line(&tool.toolset, 40),
            if tool.enabled { "yes" } else { "no" }.to_owned(),
            one_line(&tool.description, width.saturating_sub(name_width + 20).max(TITLE_COLUMNS)),
        ]);
    }
    table(&rows, style)
}

/// What the doctor found.
pub(crate) fn checks(list: &[Check], style: Style) -> String {
    let width = list.iter().map(|check| columns(&check.name)).max().unwrap_or(0);
    let mut out = String::new();
    for check in list {
        let mark = match check.state {
            CheckState::Ok => style.good("ok    "),
            CheckState::Note => style.warn("note  "),
            CheckState::Failed => style.bad("failed"),
        };
        let detail = harmless(&check.detail).replace('\n', &format!("\n{}", " ".repeat(width + 10)));
        out.push_str(format!("{mark}  {}  {detail}", pad(&harmless(&check.name), width)).trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
#[path = "lists_tests.rs"]
pub(crate) mod tests;
