//! Requests about a whole store: import, check, backup, restore, vacuum.

use std::path::{Path, PathBuf};

use hermes_store::transfer::jsonl::{self, JsonlStore};
use hermes_store::transfer::python::{ImportReport, PythonStore};
use hermes_store::{CheckDepth, Clock as _, HostClock, StoreError};
use tokio::io::AsyncReadExt as _;

use crate::compose::{Parts, wrong};
use crate::protocol::{
    ExportPlace, Request, Response, RpcError, SessionExportParams, SessionExportResponse, StorePathParams,
};
use crate::service::store_error;

/// The database in a home of the Python program.
const PYTHON_FILE: &str = "state.db";
/// What a SQLite file begins with.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// Answers a request about the store; gives it back when it is about something else.
pub(crate) async fn answer(parts: &Parts, request: Request) -> Result<Result<Response, RpcError>, Request> {
    let failed = |error: StoreError| store_error(&error);
    Ok(match request {
        Request::StoreImport(params) => import(parts, &params).await.map(|report| Response::Imported(Box::new(report))),
        Request::StoreCheck(params) => {
            let depth = if params.full { CheckDepth::Full } else { CheckDepth::Quick };
            async { parts.store().await?.check(depth).await.map(Response::Checked).map_err(failed) }.await
        }
        Request::StoreBackup(params) => {
            let to = given(&params);
            async { parts.store().await?.backup(&to).await.map(|()| Response::BackedUp).map_err(failed) }.await
        }
        Request::StoreVacuum(params) => {
            async { parts.store().await?.vacuum(params.force).await.map(Response::Vacuumed).map_err(failed) }.await
        }
        Request::SessionExport(params) => export(parts, params).await.map(Response::Exported),
        Request::StoreRestore(params) => restore(parts, &params).await.map(Response::Restored),
        other => return Err(other),
    })
}

fn given(params: &StorePathParams) -> PathBuf {
    PathBuf::from(&params.path)
}

/// Imports what stands at a path: a database or a home directory of the Python program, or an export of this one.
async fn import(parts: &Parts, params: &StorePathParams) -> Result<ImportReport, RpcError> {
    let failed = |error: StoreError| store_error(&error);
    let path = given(params);
    let store = parts.store().await?;
    if let Some(open) = parts.store_file()
        && is_open_store(&path, &open).await
    {
        return Err(store_error(&StoreError::Invalid {
            detail: format!(
                "{} is the store that is in use: all that is in it is here already. To keep a copy: `hermes store backup \
                 FILE`; to go back to one: `hermes store restore FILE --yes`",
                path.display()
            ),
        }));
    }
    let store = store.as_ref();
    if is_text(&path).await {
        let export = JsonlStore::open(&path).await.map_err(failed)?;
        return export.import_into(store, &mut |_| {}).await.map_err(failed);
    }
    let scratch = parts.scope().cache_dir();
    tokio::fs::create_dir_all(&scratch)
        .await
        .map_err(|error| wrong("HM1016", format!("{}: {error}", scratch.display())))?;
    let mut python = PythonStore::open(&path, &scratch).await.map_err(failed)?;
    let report = python.import_into(store, parts.profile(), &mut |_| {}).await;
    python.close().await;
    report.map_err(failed)
}

/// Whether what is to be imported is the open store itself, by whatever name: its file, or a home that has nothing of the
/// Python program.
async fn is_open_store(one: &Path, other: &Path) -> bool {
    let is_dir = tokio::fs::metadata(one).await.is_ok_and(|found| found.is_dir());
    let has_python = is_dir && tokio::fs::try_exists(one.join(PYTHON_FILE)).await.unwrap_or(true);
    let one = match other.file_name() {
        Some(name) if is_dir && !has_python => one.join(name),
        _ => one.to_owned(),
    };
    match (tokio::fs::canonicalize(one).await, tokio::fs::canonicalize(other).await) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Whether a path leads to a file that is no SQLite database.
async fn is_text(path: &Path) -> bool {
    // Asked before it is opened: a pipe would be waited for.
    if !tokio::fs::metadata(path).await.is_ok_and(|found| found.is_file()) {
        return false;
    }
    let Ok(mut file) = tokio::fs::File::open(path).await else { return false };
    let mut head = vec![0; SQLITE_MAGIC.len()];
    file.read_exact(&mut head).await.is_err() || head != SQLITE_MAGIC
}

/// One piece: a page of one conversation, with the head of the file before the first.
async fn export(parts: &Parts, params: SessionExportParams) -> Result<SessionExportResponse, RpcError> {
    let failed = |error: StoreError| store_error(&error);
    let store = parts.store().await?;
    let mut text = if params.next.is_none() { jsonl::header().map_err(failed)? } else { String::new() };
    let (conversation, cursor) = match (params.next, &params.conversation) {
        (Some(ExportPlace { conversation, cursor: Some(cursor) }), _) => (Some(conversation), Some(cursor)),
        (Some(_), Some(_)) => (None, None),
        (None, Some(only)) => (Some(only.clone()), None),
        (after, None) => {
            let after = after.map(|place| place.conversation);
            (store.export_list(after.as_ref(), 1).await.map_err(failed)?.pop(), None)
        }
    };
    let Some(conversation) = conversation else { return Ok(SessionExportResponse { text, next: None }) };
    let page = store.export(&conversation, cursor).await.map_err(failed)?;
    for part in &page.parts {
        text.push_str(&jsonl::line(part).map_err(failed)?);
    }
    let is_last = page.next.is_none() && params.conversation.is_some();
    let next = (!is_last).then_some(ExportPlace { conversation, cursor: page.next });
    Ok(SessionExportResponse { text, next })
}

async fn restore(parts: &Parts, params: &StorePathParams) -> Result<hermes_store::sqlite::RestoreReport, RpcError> {
    let Some(store) = parts.store_file() else {
        return Err(wrong("HM1015", "the store is in PostgreSQL; bring a backup back with pg_restore"));
    };
    parts.scope().ensure_home().map_err(|error| wrong(error.code(), error.to_string()))?;
    let now_ms = HostClock::new().now_ms();
    hermes_store::sqlite::restore(&given(params), &store, now_ms).await.map_err(|error| store_error(&error))
}
