//! Exports of this program as text: one JSON value on each line.
//!
//! The first line names the format and its version; behind it stand the parts of each conversation in their order
//! ([`super::bundle`]). A conversation that is exported, imported into an empty store and exported again gives the same
//! bytes. Nothing is half imported: a line that cannot be read refuses its conversation, is told with its number, and the
//! others are imported.

use std::io::SeekFrom;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncSeekExt as _, BufReader};

use super::TransferStore;
use super::bundle::{BundlePart, BundleSource, ImportKey, ImportOutcome, RowCounts};
use super::python::ImportReport;
use crate::error::StoreError;
use crate::limits::{IMPORT_LINE_MAX_BYTES, IMPORT_MAX_CONVERSATIONS};
use crate::prompt::PromptHash;
use crate::rules::invalid;

/// The version of the format that is written. Older ones are read.
pub const FORMAT_VERSION: u32 = 1;
/// The source that imported conversations are known by.
const SOURCE: &str = "hermes-export";

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    #[serde(rename = "type")]
    kind: HeaderKind,
    version: u32,
}

#[derive(Debug, Serialize, Deserialize)]
enum HeaderKind {
    #[serde(rename = "hermes_export")]
    HermesExport,
}

/// The first line of an export, with its line end.
///
/// # Errors
/// None that can happen; the writer of JSON has one.
pub fn header() -> Result<String, StoreError> {
    line_of(&Header { kind: HeaderKind::HermesExport, version: FORMAT_VERSION })
}

/// One part as a line, with its line end.
///
/// # Errors
/// [`StoreError::Invalid`] for a value that JSON cannot hold.
pub fn line(part: &BundlePart) -> Result<String, StoreError> {
    line_of(part)
}

fn line_of(value: &impl Serialize) -> Result<String, StoreError> {
    let mut line = serde_json::to_string(value).map_err(|error| invalid(format!("not to be written: {error}")))?;
    line.push('\n');
    Ok(line)
}

/// A conversation in a file.
#[derive(Debug)]
struct Found {
    id: String,
    offset: u64,
    first_line: u64,
    fingerprint: Sha256,
    rows: RowCounts,
    /// What is wrong with it.
    broken: Option<String>,
    ended: bool,
}

/// An export, opened for reading.
#[derive(Debug)]
pub struct JsonlStore {
    path: PathBuf,
    found: Vec<Found>,
}

impl JsonlStore {
    /// Reads through a file and finds its conversations; their rows are read when they are imported.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Invalid`] for a file that is no export, or one of a newer program;
    /// [`StoreError::Limit`].
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let mut lines = Lines::open(path, 0, 1).await?;
        let is_header = |line: &str| serde_json::from_str::<Header>(line).ok();
        let header = lines.next().await?.and_then(|line| line.ok().as_deref().and_then(is_header));
        let Some(header) = header else {
            return Err(invalid(format!("{} is no export of this program (its first line says so)", path.display())));
        };
        if header.version > FORMAT_VERSION {
            return Err(StoreError::TooNew { found: header.version.into(), known: FORMAT_VERSION.into() });
        }
        let mut store = Self { path: path.to_owned(), found: Vec::new() };
        loop {
            let (offset, number) = (lines.offset, lines.number);
            let Some(line) = lines.next().await? else { return Ok(store) };
            store.take(offset, number, line)?;
        }
    }

    /// How many conversations there are.
    #[must_use]
    pub fn conversations(&self) -> usize {
        self.found.len()
    }

    fn take(&mut self, offset: u64, number: u64, line: Result<String, String>) -> Result<(), StoreError> {
        let read = line.and_then(|line| {
            let part = serde_json::from_str::<BundlePart>(&line).map_err(|error| error.to_string())?;
            Ok((line, part))
        });
        if let Ok((_, BundlePart::Conversation(conversation))) = &read {
            if self.found.len() >= IMPORT_MAX_CONVERSATIONS {
                return Err(StoreError::Limit {
                    what: "the number of conversations of one import",
                    limit: IMPORT_MAX_CONVERSATIONS as u64,
                });
            }
            self.found.push(Found {
                id: conversation.id.to_string(),
                offset,
                first_line: number,
                fingerprint: Sha256::new(),
                rows: RowCounts::default(),
                broken: None,
                ended: false,
            });
        }
        let Some(found) = self.found.last_mut() else {
            return Err(invalid(format!("line {number} does not belong to a conversation")));
        };
        match read {
            Ok((line, part)) => {
                found.fingerprint.update(line.as_bytes());
                match part {
                    BundlePart::Row(row) => found.rows.add(row.state),
                    BundlePart::End(_) => found.ended = true,
                    _ => {}
                }
            }
            Err(error) => {
                found.broken.get_or_insert_with(|| format!("line {number} cannot be read: {error}"));
            }
        }
        Ok(())
    }

    /// Imports everything into `store`, one conversation in one transaction. What was imported before is recognised.
    /// `progress` is told after each conversation how many are done.
    ///
    /// # Errors
    /// Those of the file as a whole and of the store. A conversation that cannot be read is in the report.
    pub async fn import_into(
        self,
        store: &dyn TransferStore,
        progress: &mut (dyn FnMut(usize) + Send),
    ) -> Result<ImportReport, StoreError> {
        let mut report = ImportReport::default();
        for (index, found) in self.found.into_iter().enumerate() {
            report.found.merge(found.rows);
            import_one(store, &self.path, found, &mut report).await?;
            progress(index + 1);
        }
        Ok(report)
    }
}

async fn import_one(
    store: &dyn TransferStore,
    path: &Path,
    found: Found,
    report: &mut ImportReport,
) -> Result<(), StoreError> {
    let rows = found.rows;
    let broken = found.broken.or_else(|| (!found.ended).then(|| "its end is missing".to_owned()));
    if let Some(broken) = broken {
        report.left.merge(rows);
        report.refuse(|report| &mut report.failed, format!("{}: {broken}", found.id));
        return Ok(());
    }
    let fingerprint = PromptHash::of(&found.fingerprint.finalize()).as_str().to_owned();
    let key = ImportKey { source: SOURCE.to_owned(), id: found.id.clone(), fingerprint };
    let mut source = Source { lines: Lines::open(path, found.offset, found.first_line).await?, ended: false };
    match store.import(&key, &mut source).await {
        Ok(ImportOutcome::Imported { added, .. }) => {
            report.conversations += 1;
            report.imported.merge(rows);
            report.added += added;
        }
        Ok(ImportOutcome::Same { .. }) => {
            report.same += 1;
            report.known.merge(rows);
        }
        Ok(ImportOutcome::Changed { conversation }) => {
            report.left.merge(rows);
            report.refuse(|report| &mut report.changed, conversation.to_string());
        }
        Ok(ImportOutcome::Taken { what }) => {
            report.left.merge(rows);
            report.refuse(|report| &mut report.taken, format!("{}: {what}", found.id));
        }
        Err(error @ (StoreError::Invalid { .. } | StoreError::Limit { .. } | StoreError::Conflict { .. })) => {
            report.left.merge(rows);
            report.refuse(|report| &mut report.failed, format!("{}: {error}", found.id));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The parts of one conversation.
struct Source {
    lines: Lines,
    ended: bool,
}

#[async_trait]
impl BundleSource for Source {
    async fn next(&mut self) -> Result<Option<BundlePart>, StoreError> {
        if self.ended {
            return Ok(None);
        }
        let number = self.lines.number;
        let line = self.lines.next().await?.ok_or_else(|| invalid("the file is shorter than it was"))?;
        let part = line.and_then(|line| serde_json::from_str(&line).map_err(|error| error.to_string()));
        let part = part.map_err(|error| invalid(format!("line {number} cannot be read: {error}")))?;
        self.ended = matches!(part, BundlePart::End(_));
        Ok(Some(part))
    }
}

/// Lines of a file, each within its limit.
struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    /// Where the next line begins.
    offset: u64,
    /// Its number, from 1.
    number: u64,
}

impl Lines {
    async fn open(path: &Path, offset: u64, number: u64) -> Result<Self, StoreError> {
        let told = |error: std::io::Error| io(path, &error);
        let given = path.to_owned();
        let check = tokio::task::spawn_blocking(move || check(&given)).await;
        check.map_err(|error| StoreError::Io { detail: error.to_string() })??;
        let mut file = File::open(path).await.map_err(told)?;
        file.seek(SeekFrom::Start(offset)).await.map_err(told)?;
        Ok(Self { path: path.to_owned(), reader: BufReader::new(file), offset, number })
    }

    /// The next line without its end: a text, or what is wrong with it.
    async fn next(&mut self) -> Result<Option<Result<String, String>>, StoreError> {
        let mut bytes = Vec::new();
        let most = IMPORT_LINE_MAX_BYTES as u64;
        let read = (&mut self.reader).take(most).read_until(b'\n', &mut bytes).await;
        let read = read.map_err(|error| io(&self.path, &error))? as u64;
        if read == 0 {
            return Ok(None);
        }
        self.offset += read;
        self.number += 1;
        match bytes.pop() {
            Some(b'\n') => {}
            // The last line need not have an end.
            Some(last) if read < most => bytes.push(last),
            _ => {
                return Err(StoreError::Limit { what: "the length of a line of an export", limit: most });
            }
        }
        Ok(Some(String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())))
    }
}

/// Whether a file may be read by hand. Blocks.
#[cfg(feature = "sqlite")]
fn check(path: &Path) -> Result<(), StoreError> {
    crate::sqlite::check_readable(path)
}

/// Whether a file may be read by hand. Blocks.
#[cfg(not(feature = "sqlite"))]
fn check(path: &Path) -> Result<(), StoreError> {
    match std::fs::metadata(path).map_err(|error| io(path, &error))?.is_file() {
        true => Ok(()),
        false => Err(invalid(format!("{} is not a file", path.display()))),
    }
}

fn io(path: &Path, error: &std::io::Error) -> StoreError {
    match error.kind() {
        std::io::ErrorKind::NotFound => StoreError::NotFound { what: format!("{}", path.display()) },
        _ => StoreError::Io { detail: format!("{}: {error}", path.display()) },
    }
}

/// Writes conversations as an export: all of `store`, or one.
///
/// # Errors
/// Those of the store and of `out`.
pub async fn export_to(
    store: &dyn TransferStore,
    only: Option<&crate::ids::ConversationId>,
    out: &mut (dyn tokio::io::AsyncWrite + Unpin + Send),
) -> Result<u64, StoreError> {
    use tokio::io::AsyncWriteExt as _;
    let told = |error: std::io::Error| StoreError::Io { detail: format!("the export cannot be written: {error}") };
    out.write_all(header()?.as_bytes()).await.map_err(told)?;
    let mut written = 0;
    let mut after = None;
    loop {
        let ids = match only {
            Some(id) => vec![id.clone()],
            None => store.export_list(after.as_ref(), crate::limits::EXPORT_LIST_MAX).await?,
        };
        for id in &ids {
            let mut cursor = None;
            loop {
                let page = store.export(id, cursor).await?;
                for part in &page.parts {
                    out.write_all(line(part)?.as_bytes()).await.map_err(told)?;
                }
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            written += 1;
        }
        after = ids.last().cloned();
        if only.is_some() || ids.len() < crate::limits::EXPORT_LIST_MAX {
            out.flush().await.map_err(told)?;
            return Ok(written);
        }
    }
}
