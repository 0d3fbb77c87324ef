//! `search_files`: finds lines or files below a directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::arguments::{broken, done, failed, size, text};
use crate::approval::{Authorized, Risk};
use crate::paths::{self, Homes, PathVerdict};
use crate::text::{clean_controls, cut_chars, error_json};
use crate::tool::{Call, CallOutcome, CallReport, Concurrency, PathUse, ReplaySafety, Tool, ToolContext, ToolSpec};

/// Results of one answer when the call names no limit (tools reference, 2.1).
const LIMIT: usize = 50;

/// Most results of one answer.
const LIMIT_MAX: usize = 1_000;

/// Results after which a search stops counting.
const FOUND_MAX: usize = 20_000;

/// Longest search, in milliseconds.
const SEARCH_MAX_MS: u64 = 30_000;

/// Longest line that is shown, in characters.
const LINE_MAX_CHARS: usize = 500;

/// Most lines of context.
const CONTEXT_MAX: usize = 20;

/// Memory that one pattern may take, in bytes.
const REGEX_MAX_BYTES: usize = 10 * 1024 * 1024;

/// Searches files.
pub(super) struct SearchFiles {
    spec: ToolSpec,
}

impl SearchFiles {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description":
                    "target=content: a regular expression. target=files: a glob on names, for example *.rs."},
                "target": {"type": "string", "enum": ["content", "files"], "default": "content"},
                "path": {"type": "string", "default": ".", "description": "Directory or file."},
                "file_glob": {"type": "string", "description": "Only files with such names, for example *.py."},
                "limit": {"type": "integer", "default": LIMIT},
                "offset": {"type": "integer", "default": 0, "description": "Results to leave out at the beginning."},
                "order": {"type": "string", "enum": ["discovery", "modified"], "default": "discovery",
                    "description": "modified: newest files first."},
                "output_mode": {"type": "string", "enum": ["content", "files_only", "count"], "default": "content"},
                "context": {"type": "integer", "default": 0, "description": "Lines around each match."}
            },
            "required": ["pattern"]
        });
        Self {
            spec: ToolSpec {
                name: "search_files".to_owned(),
                toolset: "file",
                description:
                    "Searches the content or the names of files. Leaves out what .gitignore names, hidden and \
                    binary files."
                        .to_owned(),
                parameters,
                replay: ReplaySafety::Pure,
                concurrency: Concurrency::Paths,
                timed: true,
                result_max_chars: None,
            },
        }
    }
}

/// One search, all arguments checked.
struct Search {
    root: PathBuf,
    homes: Homes,
    matcher: Option<RegexMatcher>,
    names: Option<globset::GlobMatcher>,
    newest_first: bool,
    mode: String,
    context: usize,
    offset: usize,
    limit: usize,
    cancel: CancellationToken,
}

#[async_trait]
impl Tool for SearchFiles {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn paths(&self, call: &Call, cx: &ToolContext) -> Vec<PathUse> {
        vec![PathUse { path: root(call, cx), writes: false }]
    }

    fn risk(&self, call: &Call, cx: &ToolContext) -> Risk {
        Risk::Read { path: root(call, cx) }
    }

    fn label(&self, call: &Call) -> String {
        format!("search {}", text(call, "pattern"))
    }

    async fn call(&self, call: Authorized<Call>, cx: &ToolContext) -> CallReport {
        let call = call.into_inner();
        let search = match prepare(&call, cx) {
            Ok(search) => search,
            Err(why) => return failed(why),
        };
        let cancel = cx.cancel.clone();
        match tokio::task::spawn_blocking(move || run(&search)).await {
            Ok(_) if cancel.is_cancelled() => {
                CallReport::new(CallOutcome::Interrupted, error_json("the search was stopped"))
            }
            Ok(Ok((content, summary))) => done(&content, summary),
            Ok(Err(why)) => failed(why),
            Err(_) => broken(),
        }
    }
}

fn root(call: &Call, cx: &ToolContext) -> PathBuf {
    match text(call, "path") {
        "" => cx.session.cwd(),
        path => cx.session.resolve(path),
    }
}

fn prepare(call: &Call, cx: &ToolContext) -> Result<Search, String> {
    let pattern = text(call, "pattern");
    let files = text(call, "target") == "files";
    let glob = if files { pattern } else { text(call, "file_glob") };
    let names = match glob {
        "" => None,
        glob => {
            Some(globset::Glob::new(glob).map_err(|error| format!("the glob is not valid: {error}"))?.compile_matcher())
        }
    };
    let matcher = if files {
        None
    } else {
        let built = RegexMatcherBuilder::new().line_terminator(Some(b'\n')).size_limit(REGEX_MAX_BYTES).build(pattern);
        Some(built.map_err(|error| format!("the pattern is not a valid regular expression: {error}"))?)
    };
    Ok(Search {
        root: root(call, cx),
        homes: Homes { user: cx.session.home(), hermes: cx.scope.home.clone(), write_root: None },
        matcher,
        names,
        newest_first: text(call, "order") == "modified",
        mode: text(call, "output_mode").to_owned(),
        context: size(call, "context", 0).min(CONTEXT_MAX),
        offset: size(call, "offset", 0),
        limit: size(call, "limit", LIMIT).clamp(1, LIMIT_MAX),
        cancel: cx.cancel.clone(),
    })
}

/// What was found in one file.
struct Found {
    path: PathBuf,
    modified: SystemTime,
    lines: Vec<Line>,
}

struct Line {
    number: u64,
    text: String,
    /// False for a line that is only around a match.
    matched: bool,
}

fn run(search: &Search) -> Result<(Value, String), String> {
    let root = search.root.canonicalize().map_err(|error| format!("{}: {error}", search.root.display()))?;
    let end = Instant::now() + Duration::from_millis(SEARCH_MAX_MS);
    let real = |path: &Option<PathBuf>| path.as_ref().map(|path| paths::real_blocking(path));
    let homes = Homes { user: real(&search.homes.user), hermes: real(&search.homes.hermes), write_root: None };
    let mut searcher = SearcherBuilder::new()
        .binary_detection(BinaryDetection::quit(0))
        .line_number(true)
        .before_context(search.context)
        .after_context(search.context)
        .build();
    let (mut found, mut total, mut cut) = (Vec::new(), 0, false);
    for entry in ignore::WalkBuilder::new(&root).sort_by_file_name(std::ffi::OsStr::cmp).require_git(false).build() {
        if search.cancel.is_cancelled() || Instant::now() > end || total >= FOUND_MAX {
            cut = true;
            break;
        }
        let Ok(entry) = entry else { continue };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) || !named(search, &root, entry.path()) {
            continue;
        }
        if paths::may_read(entry.path(), &homes) != PathVerdict::Free {
            continue;
        }
        let lines = match &search.matcher {
            None => Vec::new(),
            Some(matcher) => {
                let mut sink = Lines { lines: Vec::new(), room: FOUND_MAX - total };
                // A file that cannot be read is left out, as every search does.
                let _ = searcher.search_path(matcher, entry.path(), &mut sink);
                if !sink.lines.iter().any(|line| line.matched) {
                    continue;
                }
                sink.lines
            }
        };
        total += lines.iter().filter(|line| line.matched).count().max(1);
        let modified = entry.metadata().ok().and_then(|meta| meta.modified().ok()).unwrap_or(SystemTime::UNIX_EPOCH);
        found.push(Found { path: shown_path(&root, entry.path()), modified, lines });
    }
    if search.newest_first {
        found.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
    }
    Ok(answer(search, &found, total, cut))
}

fn named(search: &Search, root: &Path, path: &Path) -> bool {
    let Some(names) = &search.names else { return true };
    let name = path.file_name().map(Path::new);
    name.is_some_and(|name| names.is_match(name)) || names.is_match(shown_path(root, path))
}

fn shown_path(root: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix(root) {
        Ok(rest) if !rest.as_os_str().is_empty() => rest.to_owned(),
        _ => path.to_owned(),
    }
}

fn answer(search: &Search, found: &[Found], total: usize, cut: bool) -> (Value, String) {
    let files_only = search.matcher.is_none() || search.mode == "files_only";
    let mut content = json!({"root": search.root.to_string_lossy(), "total_count": total});
    let all = if files_only || search.mode == "count" { found.len() } else { total };
    if files_only {
        content["total_count"] = json!(found.len());
        let files: Vec<_> =
            found.iter().skip(search.offset).take(search.limit).map(|found| found.path.to_string_lossy()).collect();
        content["files"] = json!(files);
    } else if search.mode == "count" {
        let count = |found: &Found| found.lines.iter().filter(|line| line.matched).count();
        let counts: serde_json::Map<String, Value> = found
            .iter()
            .skip(search.offset)
            .take(search.limit)
            .map(|found| (found.path.display().to_string(), json!(count(found))))
            .collect();
        content["counts"] = Value::Object(counts);
    } else {
        content["matches"] = matches(search, found);
    }
    let more = all > search.offset.saturating_add(search.limit);
    content["truncated"] = json!(cut || more);
    if more {
        content["next_offset"] = json!(search.offset + search.limit);
    }
    (content, format!("{total} found in {} files", found.len()))
}

/// The wanted part of the matches, grouped by file.
fn matches(search: &Search, found: &[Found]) -> Value {
    let (mut at, mut groups) = (0, Vec::new());
    for file in found {
        let mut lines = Vec::new();
        for line in &file.lines {
            if line.matched {
                at += 1;
            }
            // A line around a match goes with the match before it; those before the first go with the first.
            let place = if line.matched { at } else { at.max(1) };
            if place > search.offset && place <= search.offset.saturating_add(search.limit) {
                let mark = if line.matched { ':' } else { '-' };
                lines.push(format!("{}{mark}{}", line.number, line.text));
            }
        }
        if !lines.is_empty() {
            groups.push(json!({"file": file.path.to_string_lossy(), "lines": lines}));
        }
    }
    Value::Array(groups)
}

struct Lines {
    lines: Vec<Line>,
    room: usize,
}

impl Lines {
    fn take(&mut self, number: Option<u64>, bytes: &[u8], matched: bool) {
        let text = String::from_utf8_lossy(bytes);
        let text = cut_chars(text.trim_end_matches(['\n', '\r']), LINE_MAX_CHARS);
        self.lines.push(Line { number: number.unwrap_or(0), text: clean_controls(&text).into_owned(), matched });
    }
}

impl Sink for Lines {
    type Error = std::io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        self.take(found.line_number(), found.bytes(), true);
        self.room = self.room.saturating_sub(1);
        Ok(self.room > 0)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> Result<bool, Self::Error> {
        self.take(context.line_number(), context.bytes(), false);
        Ok(true)
    }
}
