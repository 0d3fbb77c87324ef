//! A conversation as a file for people: Markdown and HTML. (The lines for programs come from the gateway.)

use std::io::{self, Write};

use hermes_gateway::protocol::{ConversationSummary, Row};

use super::{lists::name_of, timestamp};

/// How a conversation is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// One JSON value on each line, all of it: `hermes import` reads it.
    Jsonl,
    /// Markdown, what people see.
    Md,
    /// One HTML page, what people see.
    Html,
}

/// Writes the head of an export.
pub(crate) fn head(out: &mut dyn Write, format: Format, session: &ConversationSummary) -> io::Result<()> {
    match format {
        Format::Jsonl => Ok(()),
        Format::Html => html_head(out, session),
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
    let who = match (&row.tool, &row.outcome) {
        (Some(tool), Some(outcome)) if outcome != "ok" => format!("tool {tool} ({outcome})"),
        (Some(tool), _) => format!("tool {tool}"),
        _ if row.kind != "normal" => format!("{} ({})", row.role, row.kind),
        _ => row.role.clone(),
    };
    match format {
        Format::Jsonl => return Ok(()),
        Format::Html => return html_row(out, &who, row),
        Format::Md => {}
    }
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

/// Writes the end of an export.
pub(crate) fn tail(out: &mut dyn Write, format: Format) -> io::Result<()> {
    match format {
        Format::Html => out.write_all(b"</body>\n</html>\n"),
        Format::Jsonl | Format::Md => Ok(()),
    }
}

/// The page needs nothing from anywhere, and runs nothing.
fn html_head(out: &mut dyn Write, session: &ConversationSummary) -> io::Result<()> {
    let title = escaped(&name_of(session).split_whitespace().collect::<Vec<_>>().join(" "));
    let model = session.model.as_deref().unwrap_or("-");
    write!(
        out,
        "<!DOCTYPE html>\n<html>\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>body{{max-width:50em;margin:2em auto;font-family:sans-serif}}\
         pre{{white-space:pre-wrap;overflow-wrap:anywhere}}section{{border-top:1px solid #ccc}}\
         h2{{font-size:1em;color:#666}}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{} &middot; {} &middot; {}</p>\n",
        escaped(session.id.as_str()),
        escaped(model),
        timestamp(session.created_at_ms),
    )
}

fn html_row(out: &mut dyn Write, who: &str, row: &Row) -> io::Result<()> {
    writeln!(out, "<section>\n<h2>{}</h2>", escaped(who))?;
    if !row.content.is_empty() {
        writeln!(out, "<pre>{}</pre>", escaped(&row.content))?;
    }
    for call in &row.calls {
        writeln!(out, "<pre>{} {}</pre>", escaped(&call.name), escaped(&call.arguments))?;
    }
    writeln!(out, "</section>")
}

/// Text that no browser takes for markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters have no place in a page.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
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
