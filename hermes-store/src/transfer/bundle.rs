//! A conversation as values, part by part.
//!
//! A bundle is a sequence of [`BundlePart`]s in a fixed order: the conversation, its prompts, its sessions from the first
//! to the tip, its rows in their order, its usage, and an end with the number of rows. Whoever reads or writes one holds
//! a page of it, never the whole.
//!
//! What belongs to a running process stays behind: leases, tokens, generations, places, queued inputs, turns. A bundle
//! that is imported gets places, tokens and generations of its own.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::StoreError;
use crate::ids::{CallId, ConversationId, MessageId, SessionId, TurnId};
use crate::message::{MessageKind, Role, RowState, UsageTotals};
use crate::prompt::PromptHash;
use crate::round::{CallOutcome, JournalState, ReplaySafety};
use crate::session::TitleSource;

/// Exact bytes: a text where they are UTF-8, `{"hex": "..."}` where they are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exact(pub Bytes);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(&self.0) {
            return serializer.serialize_str(text);
        }
        let mut hex = String::with_capacity(self.0.len() * 2);
        for byte in &self.0 {
            use fmt::Write as _;
            let _ = write!(hex, "{byte:02x}");
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("hex", &hex)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Exact;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or {\"hex\": \"...\"}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Exact, E> {
                Ok(Exact(Bytes::copy_from_slice(text.as_bytes())))
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<Exact, E> {
                Ok(Exact(Bytes::from(text)))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Exact, A::Error> {
                let Some((key, hex)) = map.next_entry::<String, String>()? else {
                    return Err(de::Error::missing_field("hex"));
                };
                if key != "hex" {
                    return Err(de::Error::unknown_field(&key, &["hex"]));
                }
                unhex(&hex).map(|bytes| Exact(Bytes::from(bytes))).ok_or_else(|| de::Error::custom("not hex digits"))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect::<Option<_>>()?;
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// What a conversation is, beside its sessions and rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleConversation {
    /// Its id.
    pub id: ConversationId,
    /// The profile that it belongs to.
    pub profile: String,
    /// Where it comes from (`cli`, `telegram`, ...).
    pub source: String,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Who gave the title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title_source: Option<TitleSource>,
    /// The first input, cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// Put away by its user.
    #[serde(default, skip_serializing_if = "is_false")]
    pub archived: bool,
    /// Kept at the top by its user.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pinned: bool,
    /// Not to be listed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hidden: bool,
    /// When it was created, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
    /// When it was last written to.
    pub last_activity_ms: i64,
    /// Other ids under which it can be found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// What is told of where it comes from (how it left another conversation, and which).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
}

/// The bytes of a prompt or a tool list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundlePrompt {
    /// SHA-256 of the bytes; checked by whoever imports.
    pub hash: PromptHash,
    /// The bytes.
    pub bytes: Exact,
}

/// One session. Its parent is the session before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleSession {
    /// Its id.
    pub id: SessionId,
    /// Provider id.
    pub provider: String,
    /// Model name.
    pub model: String,
    /// Working directory of its tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Hash of the system prompt.
    pub prompt: PromptHash,
    /// Hash of the tool list.
    pub tools: PromptHash,
    /// When it was opened, in milliseconds since the Unix epoch.
    pub started_at_ms: i64,
    /// When it was closed. The tip of an import is open whatever stands here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<i64>,
    /// Why it was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<String>,
}

/// Opaque provider state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleSidecar {
    /// Who made it; it is replayed to no other.
    pub issuer: String,
    /// The exact bytes.
    pub bytes: Exact,
}

/// One call of an assistant row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleCall {
    /// The store's id of the call.
    pub id: CallId,
    /// The id of the row with its result.
    pub result: MessageId,
    /// The id that the provider knows it by.
    pub provider_id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, byte for byte.
    pub arguments: String,
    /// What may be done after a crash.
    pub replay: ReplaySafety,
    /// How far it got, when it has no result. An import stores one for it that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<JournalState>,
}

/// The call that a tool row answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleAnswer {
    /// The call.
    pub call: CallId,
    /// How it ended.
    pub outcome: CallOutcome,
}

/// One row. Results stand right behind their round, in call order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BundleRow {
    /// Its id.
    pub id: MessageId,
    /// Its session.
    pub session: SessionId,
    /// The turn that wrote it.
    pub turn: TurnId,
    /// Who speaks.
    pub role: Role,
    /// What it is.
    pub kind: MessageKind,
    /// Whether it is live.
    pub state: RowState,
    /// The first row of its line, when a compression wrote it as a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<MessageId>,
    /// The canonical text.
    pub content: String,
    /// What the provider was shown instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_content: Option<Exact>,
    /// Readable reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Opaque provider state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<BundleSidecar>,
    /// Why the model stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<String>,
    /// The calls of an assistant row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<BundleCall>,
    /// For a tool row: what it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<BundleAnswer>,
    /// Facts for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// When it was written, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
}

/// The end of a bundle: a reader that does not see it has not seen everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleEnd {
    /// How many rows came before.
    pub rows: u64,
}

/// One part of a bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BundlePart {
    /// First.
    Conversation(Box<BundleConversation>),
    /// Then the prompts of its sessions, each once.
    Prompt(BundlePrompt),
    /// Then its sessions, from the first to the tip.
    Session(BundleSession),
    /// Then its rows.
    Row(Box<BundleRow>),
    /// Then what it used.
    Usage(UsageTotals),
    /// Last.
    End(BundleEnd),
}

/// Where a bundle comes from, so that it is imported once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportKey {
    /// The store that it comes from.
    pub source: String,
    /// The conversation's id there.
    pub id: String,
    /// Changes when the conversation there does. Compared, never read.
    pub fingerprint: String,
}

/// The parts of one bundle, in their order. Pulled inside the transaction of the import: a source must not wait for
/// anything slower than a file.
#[async_trait]
pub trait BundleSource: Send {
    /// The next part; `None` behind [`BundlePart::End`].
    ///
    /// # Errors
    /// The import ends with it, and nothing of it is kept.
    async fn next(&mut self) -> Result<Option<BundlePart>, StoreError>;
}

/// Rows of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RowCounts {
    /// [`RowState::Active`].
    pub active: u64,
    /// [`RowState::Compacted`].
    pub compacted: u64,
    /// [`RowState::Superseded`].
    pub superseded: u64,
}

impl RowCounts {
    /// Counts one row.
    pub fn add(&mut self, state: RowState) {
        match state {
            RowState::Active => self.active += 1,
            RowState::Compacted => self.compacted += 1,
            RowState::Superseded => self.superseded += 1,
        }
    }

    /// Adds other counts to these.
    pub fn merge(&mut self, other: Self) {
        self.active += other.active;
        self.compacted += other.compacted;
        self.superseded += other.superseded;
    }

    /// All rows.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.active + self.compacted + self.superseded
    }
}

/// What came of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportOutcome {
    /// It is there now.
    Imported {
        /// The conversation.
        conversation: ConversationId,
        /// Its rows, those that were added included.
        rows: RowCounts,
        /// Results that were added because a call had none.
        added: u64,
    },
    /// It was imported before, and has not changed there since. Nothing was written.
    Same {
        /// The conversation.
        conversation: ConversationId,
    },
    /// It was imported before, and has changed there since. Nothing was written: what is here may have gone on too.
    Changed {
        /// The conversation.
        conversation: ConversationId,
    },
    /// Something here has one of its ids and does not come from this key. Nothing was written.
    Taken {
        /// What.
        what: String,
    },
}

/// Where an export goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportCursor {
    /// The last place that was exported.
    pub after_seq: i64,
    /// The last place that is exported: rows that were written after the beginning are not.
    pub until_seq: i64,
    /// Rows that were exported.
    pub rows: u64,
}

/// A piece of an export.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportPage {
    /// The parts, in their order.
    pub parts: Vec<BundlePart>,
    /// Where the next one goes on; none behind the end.
    pub next: Option<ExportCursor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i19_exact_bytes_come_back_as_they_were() {
        for bytes in [&b"text \xc3\xbc\0"[..], b"", b"\xff\xfe\x00", b"{\"hex\":\"00\"}"] {
            let exact = Exact(Bytes::copy_from_slice(bytes));
            let text = serde_json::to_string(&exact).unwrap();
            assert_eq!(serde_json::from_str::<Exact>(&text).unwrap(), exact, "{text}");
        }
        for bad in ["{}", "{\"hex\":\"0\"}", "{\"hex\":\"xx\"}", "{\"text\":\"00\"}", "7"] {
            assert!(serde_json::from_str::<Exact>(bad).is_err(), "{bad}");
        }
    }
}
