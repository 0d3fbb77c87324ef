//! `patch`: replaces a text in a file.

use std::path::Path;

use async_trait::async_trait;
use serde_json::json;
use similar::TextDiff;

use super::arguments::{broken, done, failed, flag, text};
use super::edit::{self, EditError};
use super::files::{self, FileError};
use crate::approval::{Authorized, Risk};
use crate::session::ReadState;
use crate::text::clean_controls;
use crate::tool::{Call, CallReport, Concurrency, PathUse, ReplaySafety, Tool, ToolContext, ToolSpec};

/// Lines around a change in a diff.
const CONTEXT_LINES: usize = 3;

/// Largest file for which a diff is made, in bytes.
const DIFF_MAX_BYTES: usize = 2 * 1024 * 1024;

/// Replaces text in files.
pub(super) struct Patch {
    spec: ToolSpec,
}

impl Patch {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Absolute, or relative to the working directory; ~ works."},
                "old_string": {"type": "string", "description": "The exact text to replace, with its indentation."},
                "new_string": {"type": "string", "description": "The text in its place."},
                "replace_all": {"type": "boolean", "default": false, "description": "Replace every place of it."}
            },
            "required": ["path", "old_string", "new_string"]
        });
        Self {
            spec: ToolSpec {
                name: "patch".to_owned(),
                toolset: "file",
                description: "Replaces a text in a file. old_string must be in the file exactly once (or set \
                    replace_all). Line ends are taken on from the file; nothing else is changed."
                    .to_owned(),
                parameters,
                replay: ReplaySafety::Once,
                concurrency: Concurrency::Paths,
                timed: true,
                result_max_chars: None,
            },
        }
    }
}

#[async_trait]
impl Tool for Patch {
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
        format!("patch {}", text(call, "path"))
    }

    async fn call(&self, call: Authorized<Call>, cx: &ToolContext) -> CallReport {
        let call = call.into_inner();
        let path = cx.session.resolve(text(&call, "path"));
        let (old, new) = (text(&call, "old_string").to_owned(), text(&call, "new_string").to_owned());
        let all = flag(&call, "replace_all");
        let session = cx.session.clone();
        let work = tokio::task::spawn_blocking(move || {
            let real = crate::paths::real_blocking(&path);
            let seen = session.read_state(&real);
            let (patched, hash) = patch(&real, &old, &new, all, seen.as_ref())?;
            let complete = seen.is_some_and(|seen| seen.complete);
            session.note_read(real, ReadState { hash, complete });
            Ok::<_, PatchError>(patched)
        });
        let patched = match work.await {
            Ok(Ok(patched)) => patched,
            Ok(Err(error)) => return failed(format!("{}: {error}", text(&call, "path"))),
            Err(_) => return broken(),
        };
        let mut content = json!({"status": patched.status, "places": patched.places, "strategy": patched.strategy});
        let mut meta = json!({});
        if let Some(diff) = patched.diff {
            content["diff"] = json!(diff);
            meta["diff"] = json!(diff);
        }
        let mut report = done(&content, format!("{}, {} places", patched.status, patched.places));
        report.meta = Some(meta);
        report
    }
}

#[derive(Debug, thiserror::Error)]
enum PatchError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Edit(#[from] EditError),
}

struct Patched {
    status: &'static str,
    places: usize,
    strategy: &'static str,
    diff: Option<String>,
}

fn patch(
    real: &Path,
    old: &str,
    new: &str,
    all: bool,
    seen: Option<&ReadState>,
) -> Result<(Patched, [u8; 32]), PatchError> {
    let loaded = files::load(real)?;
    if seen.is_some_and(|seen| seen.hash != loaded.hash) {
        return Err(FileError::Changed(real.to_owned()).into());
    }
    let edited = edit::edit(&loaded.bytes, old, new, all)?;
    if edited.places == 0 {
        let same = Patched { status: "already applied", places: 0, strategy: edited.strategy, diff: None };
        return Ok((same, loaded.hash));
    }
    files::replace(real, &edited.bytes, Some(loaded.hash))?;
    let diff = (edited.bytes.len().max(loaded.bytes.len()) <= DIFF_MAX_BYTES).then(|| {
        let (before, after) = (String::from_utf8_lossy(&loaded.bytes), String::from_utf8_lossy(&edited.bytes));
        let name = real.display().to_string();
        let diff = TextDiff::from_lines(before.as_ref(), after.as_ref());
        clean_controls(&diff.unified_diff().context_radius(CONTEXT_LINES).header(&name, &name).to_string()).into_owned()
    });
    let patched = Patched { status: "applied", places: edited.places, strategy: edited.strategy, diff };
    Ok((patched, files::hash(&edited.bytes)))
}
