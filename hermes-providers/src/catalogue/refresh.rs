//! A provider's own list of models, kept in a file and asked for again when it is old.
//!
//! Where the file is and what time it is, the caller says. The file is replaced as a whole: a crash leaves the old one or
//! the new one. A file that cannot be read is put aside and not overwritten. What does not change costs one small question
//! (`If-None-Match`), and a server that fails is left alone for a while.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::Url;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;

use crate::catalogue::{ListedModel, MAX_LISTED_MODELS, parse_model_page};
use crate::credential::Secret;
use crate::error::{ErrorClass, ProviderError};
use crate::http::{GetLimits, Getter, Got, Transport};
use crate::profile::{ApiMode, Profile};

/// How long a list is taken as it is (section 7 of the reference: 4 hours).
pub const LIST_TTL_MS: i64 = 4 * 60 * 60 * 1000;
/// How long a server that failed is left alone (section 7 of the reference).
pub const LIST_RETRY_MS: i64 = 300_000;
/// For a whole list, all its pages.
pub const LIST_TIMEOUT_MS: u64 = 8000;
/// Largest list, all its pages together.
pub const MAX_LIST_BYTES: usize = 8 * 1024 * 1024;
/// Most pages of a list.
pub const MAX_LIST_PAGES: usize = 20;
/// Largest file that is read back.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// The format of the file; another one is asked for again.
const FILE_VERSION: u32 = 1;
/// Models on a page, where the server lets us say.
const PAGE_MODELS: &str = "1000";

const _: () = assert!(LIST_RETRY_MS < LIST_TTL_MS);

/// Names of unfinished files of this process.
static UNFINISHED: AtomicU64 = AtomicU64::new(0);

/// Where a list is asked for.
#[derive(Debug, Clone)]
pub struct ListPlace {
    /// How to speak to the provider.
    pub profile: Arc<Profile>,
    /// Where its requests go, without the method's path; `None`: where the profile says.
    pub base_url: Option<String>,
    /// What lets us in.
    pub secret: Secret,
    /// How servers are reached; the process's own.
    pub transport: Transport,
}

/// A provider's list, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelList {
    /// The format.
    version: u32,
    /// Where it is from.
    pub url: String,
    /// The server's mark for this content.
    #[serde(default)]
    etag: Option<String>,
    /// When it was last known to be right, in milliseconds since the Unix epoch.
    pub checked_at_ms: i64,
    /// When asking failed since then.
    #[serde(default)]
    failed_at_ms: Option<i64>,
    /// The models, in the provider's order.
    pub models: Vec<ListedModel>,
}

/// How a refresh went.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refreshed {
    /// Nobody was asked: the list is young, or asking failed a short while ago.
    Kept(ModelList),
    /// The server says that nothing changed.
    Unchanged(ModelList),
    /// A new list.
    New(ModelList),
    /// Asking failed; this is what was known before.
    Stale(ModelList, ProviderError),
}

impl Refreshed {
    /// The list, whatever its age.
    #[must_use]
    pub fn into_list(self) -> ModelList {
        match self {
            Self::Kept(list) | Self::Unchanged(list) | Self::New(list) | Self::Stale(list, _) => list,
        }
    }
}

/// The list in the file, of any age; `None` when there is none for this address.
pub async fn cached_list(place: &ListPlace, file: &Path) -> Option<ModelList> {
    let url = list_url(place).ok()?;
    read(file).await.filter(|list| list.url == url.as_str())
}

/// The list from the file when it is young enough, else from the server. `force` asks the server in any case.
///
/// # Errors
/// [`ProviderError`] when the server cannot be asked and nothing is known from before. That the file cannot be written is
/// told to the log only.
pub async fn refresh_list(
    place: &ListPlace,
    file: &Path,
    now_ms: i64,
    force: bool,
) -> Result<Refreshed, ProviderError> {
    let url = list_url(place)?;
    let known = read(file).await.filter(|list| list.url == url.as_str());
    if let Some(list) = known.as_ref().filter(|list| !force && !list.is_due(now_ms)) {
        return Ok(Refreshed::Kept(list.clone()));
    }
    match (fetch(place, &url, known.as_ref(), now_ms).await, known) {
        (Ok(Some(new)), _) => {
            keep(file, &new).await;
            Ok(Refreshed::New(new))
        }
        (Ok(None), Some(mut list)) => {
            list.checked_at_ms = now_ms;
            list.failed_at_ms = None;
            keep(file, &list).await;
            Ok(Refreshed::Unchanged(list))
        }
        (Ok(None), None) => Err(bad_list(place, "the server says that nothing changed, but nothing was known")),
        (Err(error), Some(mut list)) => {
            list.failed_at_ms = Some(now_ms);
            keep(file, &list).await;
            Ok(Refreshed::Stale(list, error))
        }
        (Err(error), None) => Err(error),
    }
}

impl ModelList {
    /// Old, and not failed a short while ago. A clock that went back makes it due.
    fn is_due(&self, now_ms: i64) -> bool {
        let within = |since: i64, limit: i64| (0..limit).contains(&now_ms.saturating_sub(since));
        !within(self.checked_at_ms, LIST_TTL_MS) && !self.failed_at_ms.is_some_and(|at| within(at, LIST_RETRY_MS))
    }
}

/// All pages; `None` when the server says that the known list is still right.
async fn fetch(
    place: &ListPlace,
    url: &Url,
    known: Option<&ModelList>,
    now_ms: i64,
) -> Result<Option<ModelList>, ProviderError> {
    let limit = Duration::from_millis(LIST_TIMEOUT_MS);
    let until = tokio::time::Instant::now() + limit;
    let getter = Getter::new(&place.profile, &place.secret, url, &place.transport).await?;
    let etag = known.and_then(|list| list.etag.as_deref());
    let mut list = ModelList {
        version: FILE_VERSION,
        url: url.as_str().to_owned(),
        etag: None,
        checked_at_ms: now_ms,
        failed_at_ms: None,
        models: Vec::new(),
    };
    let (mut page_url, mut left_bytes) = (with_page_size(place, url), MAX_LIST_BYTES);
    for page_at in 0..MAX_LIST_PAGES {
        let time = until.saturating_duration_since(tokio::time::Instant::now());
        let got = getter.get(&page_url, etag.filter(|_| page_at == 0), GetLimits { time, bytes: left_bytes }).await?;
        let Got::Body { bytes, etag: mark } = got else { return Ok(None) };
        left_bytes = left_bytes.saturating_sub(bytes.len());
        let page = parse_model_page(&bytes).map_err(|error| bad_list(place, &error.to_string()))?;
        let is_empty = page.models.is_empty();
        list.models.extend(page.models);
        let Some((name, value)) = page.next.filter(|_| !is_empty && list.models.len() < MAX_LISTED_MODELS) else {
            // The mark of the first of several pages says nothing of the others.
            list.etag = mark.filter(|_| page_at == 0);
            break;
        };
        page_url = with_page_size(place, url);
        page_url.query_pairs_mut().append_pair(name, &value);
    }
    list.models.truncate(MAX_LISTED_MODELS);
    Ok(Some(list))
}

fn with_page_size(place: &ListPlace, url: &Url) -> Url {
    let mut url = url.clone();
    match place.profile.api_mode {
        ApiMode::AnthropicMessages => url.query_pairs_mut().append_pair("limit", PAGE_MODELS),
        ApiMode::Gemini => url.query_pairs_mut().append_pair("pageSize", PAGE_MODELS),
        _ => return url,
    };
    url
}

/// `BASE/models`; Anthropic's wire has its version in the method's path.
fn list_url(place: &ListPlace) -> Result<Url, ProviderError> {
    let base = place.base_url.as_deref().filter(|base| !base.is_empty()).unwrap_or(&place.profile.base_url);
    let wrong = || {
        let what = format!("{}: `base_url` is not an address of the kind https://host/v1", place.profile.name);
        ProviderError::new(ErrorClass::Configuration, what)
    };
    let mut url = Url::parse(base).map_err(|_| wrong())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(wrong());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    let method = match place.profile.api_mode {
        ApiMode::AnthropicMessages if !path.ends_with("/v1") => "v1/models",
        _ => "models",
    };
    url.set_path(&format!("{path}/{method}"));
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

fn bad_list(place: &ListPlace, what: &str) -> ProviderError {
    let mut error = ProviderError::new(ErrorClass::BadResponse, format!("{}: {what}", place.profile.id));
    error.route.clone_from(&place.profile.id);
    error
}

/// What is in the file. One that is broken is put aside under another name, so that it can be looked at.
async fn read(file: &Path) -> Option<ModelList> {
    let size = tokio::fs::metadata(file).await.ok()?.len();
    let text = if size <= MAX_FILE_BYTES { tokio::fs::read(file).await.ok()? } else { Vec::new() };
    match serde_json::from_slice::<ModelList>(&text) {
        Ok(list) => Some(list).filter(|list| list.version == FILE_VERSION),
        Err(error) => {
            let aside = beside(file, "broken");
            tracing::warn!("{} cannot be read and is now {}: {error}", file.display(), aside.display());
            if let Err(error) = tokio::fs::rename(file, &aside).await {
                tracing::warn!("{} could not be put aside: {error}", file.display());
            }
            None
        }
    }
}

async fn keep(file: &Path, list: &ModelList) {
    if let Err(error) = write(file, list).await {
        tracing::warn!("{} could not be written: {error}", file.display());
    }
}

/// A new file beside the old one, on the disk before it takes its place.
async fn write(file: &Path, list: &ModelList) -> io::Result<()> {
    if let Some(dir) = file.parent() {
        tokio::fs::create_dir_all(dir).await?;
    }
    let nth = UNFINISHED.fetch_add(1, Ordering::Relaxed);
    let unfinished = beside(file, &format!("{}-{nth}.tmp", std::process::id()));
    let written = async {
        let mut new = tokio::fs::OpenOptions::new().write(true).create_new(true).open(&unfinished).await?;
        new.write_all(&serde_json::to_vec(list)?).await?;
        new.sync_all().await?;
        tokio::fs::rename(&unfinished, file).await
    };
    let written = written.await;
    if written.is_err() {
        // It may not be there at all.
        let _ = tokio::fs::remove_file(&unfinished).await;
    }
    written
}

fn beside(file: &Path, end: &str) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(end);
    file.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profiles;

    fn place(profile: &str, base_url: Option<&str>) -> ListPlace {
        let profile = Profiles::bundled().unwrap().get(profile).unwrap().clone();
        ListPlace {
            profile,
            base_url: base_url.map(str::to_owned),
            secret: Secret::None,
            transport: Transport::default(),
        }
    }

    #[test]
    fn the_address_of_the_list_fits_the_wire() {
        for (profile, base, want) in [
            ("openai", None, "https://api.openai.com/v1/models"),
            ("openrouter", None, "https://openrouter.ai/api/v1/models"),
            ("anthropic", None, "https://api.anthropic.com/v1/models"),
            ("anthropic", Some("http://h:1/v1/"), "http://h:1/v1/models"),
            ("custom", Some("http://h:1/v1?key=x"), "http://h:1/v1/models"),
        ] {
            assert_eq!(list_url(&place(profile, base)).unwrap().as_str(), want);
        }
        for bad in ["", "no address", "ftp://h/v1"] {
            assert!(list_url(&place("custom", Some(bad))).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_list_is_due_when_it_is_old_and_nothing_failed_lately() {
        let at = |checked_at_ms, failed_at_ms| ModelList {
            version: FILE_VERSION,
            url: String::new(),
            etag: None,
            checked_at_ms,
            failed_at_ms,
            models: Vec::new(),
        };
        let now = 100 * LIST_TTL_MS;
        assert!(!at(now, None).is_due(now));
        assert!(!at(now - LIST_TTL_MS + 1, None).is_due(now));
        assert!(at(now - LIST_TTL_MS, None).is_due(now));
        assert!(!at(0, Some(now - LIST_RETRY_MS + 1)).is_due(now));
        assert!(at(0, Some(now - LIST_RETRY_MS)).is_due(now));
        assert!(at(now + 5, None).is_due(now), "a time that has not come yet proves nothing");
    }
}
