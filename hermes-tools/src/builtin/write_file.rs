//! `write_file`: writes a whole file.

use std::path::Path;

use async_trait::async_trait;
use serde_json::json;

use super::arguments::{broken, done, failed, text};
use super::files::{self, BOM, FileError};
use crate::approval::{Authorized, Risk};
use crate::session::ReadState;
use crate::tool::{Call, CallReport, Concurrency, PathUse, ReplaySafety, Tool, ToolContext, ToolSpec};

/// Writes whole files.
pub(super) struct WriteFile {
    spec: ToolSpec,
}

impl WriteFile {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Absolute, or relative to the working directory; ~ works."},
                "content": {"type": "string", "description": "The whole new content."}
            },
            "required": ["path", "content"]
        });
        Self {
            spec: ToolSpec {
                name: "write_file".to_owned(),
                toolset: "file",
                description: "Writes a whole file and makes its directories. A file that exists must have been read \
                    completely before and be unchanged since. Use patch for small changes."
                    .to_owned(),
                parameters,
                // The same call twice leaves the same bytes; a second run of a finished one changes nothing.
                replay: ReplaySafety::Idempotent,
                concurrency: Concurrency::Paths,
                timed: true,
                result_max_chars: None,
            },
        }
    }
}

#[async_trait]
impl Tool for WriteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn paths(&self, call: &Call, cx: &ToolContext) -> Vec<PathUse> {
        vec![PathUse { path: cx.session.resolve(text(call, "path")), writes: true }]
    }

    fn risk(&self, call: &Call, cx: &ToolContext) -> Risk {
        Risk::Write { paths: vec![cx.session.resolve(text(call, "path"))] }
    }

    fn label(&self, call: &Call) -> String {
        format!("write {}", text(call, "path"))
    }

    async fn call(&self, call: Authorized<Call>, cx: &ToolContext) -> CallReport {
        let call = call.into_inner();
        let path = cx.session.resolve(text(&call, "path"));
        let content = text(&call, "content").to_owned();
        if let Some(why) = refuse(&path, &content) {
            return failed(format!("{why}; nothing was written"));
        }
        let session = cx.session.clone();
        let work = tokio::task::spawn_blocking(move || {
            let real = crate::paths::real_blocking(&path);
            let seen = session.read_state(&real);
            let (bytes, made) = write(&real, &content, seen.as_ref())?;
            session.note_read(real.clone(), ReadState { hash: files::hash(&bytes), complete: true });
            Ok::<_, WriteError>((real, bytes.len(), made))
        });
        match work.await {
            Ok(Ok((real, bytes, made))) => {
                let status = match made {
                    Made::New => "created",
                    Made::Replaced => "replaced",
                    Made::Same => "already had this content",
                };
                let content = json!({"path": real.to_string_lossy(), "bytes_written": bytes, "status": status});
                done(&content, format!("{status}, {bytes} bytes"))
            }
            Ok(Err(error)) => failed(format!("{error}; nothing was written")),
            Err(_) => broken(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0} exists and was not read completely in this session; read it first, or use patch")]
    Unread(String),
}

enum Made {
    New,
    Replaced,
    Same,
}

fn write(real: &Path, content: &str, seen: Option<&ReadState>) -> Result<(Vec<u8>, Made), WriteError> {
    let old = match files::load(real) {
        Ok(old) => old,
        Err(FileError::Missing { .. }) => {
            files::replace(real, content.as_bytes(), None)?;
            return Ok((content.as_bytes().to_vec(), Made::New));
        }
        Err(error) => return Err(error.into()),
    };
    let bytes = in_the_form_of(&old.bytes, content);
    if bytes == old.bytes {
        return Ok((bytes, Made::Same));
    }
    match seen {
        // An empty file has nothing to lose.
        _ if old.bytes.is_empty() => {}
        Some(seen) if seen.hash != old.hash => return Err(FileError::Changed(real.to_owned()).into()),
        Some(seen) if seen.complete => {}
        _ => return Err(WriteError::Unread(real.display().to_string())),
    }
    files::replace(real, &bytes, Some(old.hash))?;
    Ok((bytes, Made::Replaced))
}

/// The content with the byte-order mark and the line ends of what it replaces.
fn in_the_form_of(old: &[u8], content: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + BOM.len());
    if old.starts_with(BOM) && !content.as_bytes().starts_with(BOM) {
        bytes.extend_from_slice(BOM);
    }
    let lines = old.iter().filter(|byte| **byte == b'\n').count();
    let crlf = old.windows(2).filter(|pair| pair == b"\r\n").count();
    if lines > 0 && lines == crlf && !content.contains("\r\n") {
        bytes.extend_from_slice(content.replace('\n', "\r\n").as_bytes());
    } else {
        bytes.extend_from_slice(content.as_bytes());
    }
    bytes
}

/// Content that is clearly not what was meant.
fn refuse(path: &Path, content: &str) -> Option<String> {
    if is_display_form(content) {
        return Some("the content has the line numbers of read_file in it; give the text without them".to_owned());
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    // These are JSON with comments by custom.
    let comments =
        name.starts_with("tsconfig") || name.starts_with("jsconfig") || path.iter().any(|part| part == ".vscode");
    if name.ends_with(".json") && !comments && !content.trim().is_empty() {
        let parsed = serde_json::from_str::<serde::de::IgnoredAny>(content.trim_start_matches('\u{feff}'));
        return parsed.err().map(|error| format!("the content is not valid JSON ({error})"));
    }
    None
}

/// True for text in which each line begins with its number and a bar, as `read_file` shows it.
fn is_display_form(content: &str) -> bool {
    let mut expected = None;
    let mut count = 0;
    for line in content.lines() {
        let Some((number, _)) = line.split_once('|') else { return false };
        let Ok(number) = number.parse::<u64>() else { return false };
        if expected.is_some_and(|expected| expected != number) {
            return false;
        }
        expected = Some(number + 1);
        count += 1;
    }
    count >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t52_broken_json_is_refused() {
        assert!(refuse(Path::new("/w/config.json"), "{\"a\": 1,}").is_some());
        assert!(refuse(Path::new("/w/config.json"), "{\"a\": 1}").is_none());
        assert!(refuse(Path::new("/w/tsconfig.json"), "{/* c */}").is_none());
    }

    #[test]
    fn numbered_lines_are_not_written_back() {
        assert!(is_display_form("1|a\n2|b"));
        assert!(!is_display_form("1|a\n5|b"));
        assert!(!is_display_form("1|a"));
    }

    #[test]
    fn the_form_of_the_old_file_is_kept() {
        assert_eq!(in_the_form_of(b"\xef\xbb\xbfa\r\nb\r\n", "x\ny\n"), b"\xef\xbb\xbfx\r\ny\r\n");
        assert_eq!(in_the_form_of(b"a\r\nb\n", "x\ny\n"), b"x\ny\n");
    }
}
