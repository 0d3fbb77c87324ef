//! `read_file`: shows a text file with line numbers.

use std::fmt::Write;
use std::path::PathBuf;

use async_trait::async_trait;
use serde_json::json;

use super::arguments::{broken, done, failed, size, text};
use super::files::{self, BOM, FileError};
use crate::approval::{Authorized, Risk};
use crate::session::ReadState;
use crate::text::{clean_controls, cut_chars};
use crate::tool::{Call, CallReport, Concurrency, PathUse, ReplaySafety, Tool, ToolContext, ToolSpec};

/// Lines that one call shows at most, and when it names no limit (tools reference, 2.1).
const LINES_MAX: usize = 2_000;

/// Longest line, in characters.
const LINE_MAX_CHARS: usize = 2_000;

/// Largest answer, in characters.
const ANSWER_MAX_CHARS: usize = 100_000;

/// Reads files.
pub(super) struct ReadFile {
    spec: ToolSpec,
}

impl ReadFile {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Absolute, or relative to the working directory; ~ works."},
                "offset": {"type": "integer", "minimum": 1, "default": 1, "description": "First line, from 1."},
                "limit": {"type": "integer", "maximum": LINES_MAX, "default": LINES_MAX, "description": "Number of lines."}
            },
            "required": ["path"]
        });
        Self {
            spec: ToolSpec {
                name: "read_file".to_owned(),
                toolset: "file",
                description:
                    "Reads a text file. Each line is shown as NUMBER|TEXT. Long files are shown in parts: go on \
                    at next_offset."
                        .to_owned(),
                parameters,
                replay: ReplaySafety::Pure,
                concurrency: Concurrency::Paths,
                timed: true,
                result_max_chars: Some(usize::MAX),
            },
        }
    }
}

/// What is shown of a file.
struct View {
    text: String,
    total: usize,
    next: Option<usize>,
    /// True when the model has seen every byte of it.
    whole: bool,
}

#[async_trait]
impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn paths(&self, call: &Call, cx: &ToolContext) -> Vec<PathUse> {
        vec![PathUse { path: cx.session.resolve(text(call, "path")), writes: false }]
    }

    fn risk(&self, call: &Call, cx: &ToolContext) -> Risk {
        Risk::Read { path: cx.session.resolve(text(call, "path")) }
    }

    fn label(&self, call: &Call) -> String {
        format!("read {}", text(call, "path"))
    }

    async fn call(&self, call: Authorized<Call>, cx: &ToolContext) -> CallReport {
        let call = call.into_inner();
        let path: PathBuf = cx.session.resolve(text(&call, "path"));
        let offset = size(&call, "offset", 1).max(1);
        let limit = size(&call, "limit", LINES_MAX).clamp(1, LINES_MAX);
        let read = tokio::task::spawn_blocking(move || {
            let loaded = files::load(&path)?;
            let binary = files::is_binary(&loaded.bytes);
            let view = (!binary).then(|| view(&loaded.bytes, offset, limit));
            Ok::<_, FileError>((loaded, view))
        });
        let (loaded, view) = match read.await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => return failed(error.to_string()),
            Err(_) => return broken(),
        };
        let Some(view) = view else {
            return failed(format!("{} is a binary file ({} bytes)", loaded.real.display(), loaded.bytes.len()));
        };
        let before = cx.session.read_state(&loaded.real);
        // Parts count together only while the file stays the same; a part alone is no whole.
        let complete = view.whole || before.is_some_and(|before| before.complete && before.hash == loaded.hash);
        let seen = ReadState { hash: loaded.hash, complete };
        cx.session.note_read(loaded.real, seen);
        let mut content = json!({"content": view.text, "total_lines": view.total, "file_size": loaded.bytes.len()});
        if let Some(next) = view.next {
            content["next_offset"] = json!(next);
        }
        if offset > view.total.max(1) {
            content["note"] = json!(format!("the file has only {} lines", view.total));
        }
        let shown = view.text.lines().count();
        done(&content, format!("{shown} of {} lines", view.total))
    }
}

fn view(bytes: &[u8], offset: usize, limit: usize) -> View {
    let body = bytes.strip_prefix(BOM).unwrap_or(bytes);
    let decoded = String::from_utf8_lossy(body);
    // Bytes that are no text cannot be written back as they were, so the model has not seen them.
    let mut whole = offset == 1 && matches!(decoded, std::borrow::Cow::Borrowed(_));
    let total = decoded.lines().count();
    let (mut out, mut chars, mut next) = (String::new(), 0, None);
    for (at, line) in decoded.lines().enumerate().skip(offset - 1) {
        let number = at + 1;
        let shown = cut_chars(line, LINE_MAX_CHARS);
        let cost = shown.chars().count() + 8;
        if number >= offset.saturating_add(limit) || (chars + cost > ANSWER_MAX_CHARS && chars > 0) {
            next = Some(number);
            break;
        }
        whole &= shown.len() == line.len();
        chars += cost;
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{number}|{}", clean_controls(&shown));
    }
    out.pop();
    View { text: out, total, next, whole: whole && next.is_none() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_long_files_are_shown_in_parts() {
        let seen = view(b"a\r\nb\nc", 2, 1);
        assert_eq!((seen.text.as_str(), seen.total, seen.next, seen.whole), ("2|b", 3, Some(3), false));
        let seen = view(b"\xef\xbb\xbfa\nb\n", 1, 10);
        assert_eq!((seen.text.as_str(), seen.next, seen.whole), ("1|a\n2|b", None, true));
        let seen = view("x\n".repeat(60_000).as_bytes(), 1, 100_000);
        assert!(seen.text.len() <= ANSWER_MAX_CHARS && seen.next.is_some());
    }

    #[test]
    fn t53_a_character_across_any_boundary_is_read_as_text() {
        for pad in 8_190..8_194 {
            let text = format!("{}漢字", "x".repeat(pad));
            let seen = view(text.as_bytes(), 1, 10);
            assert!(!files::is_binary(text.as_bytes()) && !seen.text.contains('\u{fffd}'));
        }
    }

    #[test]
    fn c7_one_line_of_5_megabytes_is_cut() {
        let seen = view("é".repeat(2_500_000).as_bytes(), 1, 10);
        assert!(seen.text.chars().count() < 2_010 && !seen.whole && seen.next.is_none());
    }
}
