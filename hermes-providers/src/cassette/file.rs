//! The file: one JSON document, written as a whole.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cassette::CassetteError;

/// The end of a body that is shown to people.
const SHOWN_CHARS: usize = 160;
/// The format.
const VERSION: u32 = 1;

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tape {
    version: u32,
    /// The path of the real server's base URL: `/v1`.
    pub base_path: String,
    /// In the order in which their answers ended.
    pub exchanges: Vec<Exchange>,
}

/// One request and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exchange {
    pub request: Asked,
    pub response: Answered,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case; those that are no secrets.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    pub body: Piece,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answered {
    pub status: u16,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body as it arrived, piece by piece.
    pub pieces: Vec<Piece>,
}

/// Bytes: as text where they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Piece {
    Text(String),
    Base64(String),
}

impl Piece {
    pub(super) fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(STANDARD.encode(bytes)),
        }
    }

    /// `None` for what is no Base64.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.as_bytes().to_vec()),
            Self::Base64(text) => STANDARD.decode(text).ok(),
        }
    }
}

impl Asked {
    /// The same request: method, path, query and body; JSON bodies by their values, since only those have a meaning.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        if self.method != other.method || self.target != other.target {
            return false;
        }
        let json = |piece: &Piece| piece.bytes().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        match (json(&self.body), json(&other.body)) {
            (Some(one), Some(two)) => one == two,
            _ => self.body == other.body,
        }
    }

    /// For a person.
    pub(super) fn line(&self) -> String {
        let body = match &self.body {
            // Requests of one conversation begin alike and end differently.
            Piece::Text(text) if text.chars().count() > SHOWN_CHARS => {
                let left_out = text.chars().count() - SHOWN_CHARS;
                format!("...{}", text.chars().skip(left_out).collect::<String>())
            }
            Piece::Text(text) => text.clone(),
            Piece::Base64(_) => "(bytes)".to_owned(),
        };
        format!("{} {} {body}", self.method, self.target)
    }
}

impl Tape {
    pub(super) fn new(base_path: String) -> Self {
        Self { version: VERSION, base_path, exchanges: Vec::new() }
    }

    pub(super) async fn load(file: &Path) -> Result<Self, CassetteError> {
        let broken = |message: String| CassetteError::Format { file: file.to_owned(), message };
        let text = tokio::fs::read(file).await;
        let text = text.map_err(|source| CassetteError::File { file: file.to_owned(), source })?;
        let tape: Self = serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
        if tape.version != VERSION {
            return Err(broken(format!("format {} is not known; record it again", tape.version)));
        }
        let pieces = tape.exchanges.iter().flat_map(|exchange| &exchange.response.pieces);
        if pieces.chain(tape.exchanges.iter().map(|exchange| &exchange.request.body)).any(|p| p.bytes().is_none()) {
            return Err(broken("a piece is no Base64".to_owned()));
        }
        Ok(tape)
    }

    /// Beside the old one first, which it then replaces.
    pub(super) async fn save(&self, file: &Path) -> Result<(), CassetteError> {
        let failed = |source| CassetteError::File { file: file.to_owned(), source };
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|error| CassetteError::Format { file: file.to_owned(), message: error.to_string() })?;
        text.push('\n');
        if let Some(dir) = file.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            tokio::fs::create_dir_all(dir).await.map_err(failed)?;
        }
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let unfinished = file.with_file_name(name);
        let written = async {
            tokio::fs::write(&unfinished, text).await?;
            tokio::fs::rename(&unfinished, file).await
        };
        let written = written.await;
        if written.is_err() {
            // It may not be there at all.
            let _ = tokio::fs::remove_file(&unfinished).await;
        }
        written.map_err(failed)
    }
}
