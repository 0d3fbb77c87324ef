//! Prompt bytes, stored once by their hash and replayed unchanged.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// SHA-256 of a prompt's bytes, as 64 hex digits.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PromptHash(Arc<str>);

impl PromptHash {
    /// The hash of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let digest = Sha256::digest(bytes);
        let mut text = String::with_capacity(64);
        for byte in digest {
            use fmt::Write as _;
            let _ = write!(text, "{byte:02x}");
        }
        Self(Arc::from(text))
    }

    /// Wraps a hash that was read back from a store.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The 64 hex digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PromptHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PromptHash({})", &self.0)
    }
}

/// A prompt (or the canonical bytes of a tool list) with its hash. Built once, replayed verbatim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSnapshot {
    hash: PromptHash,
    bytes: Bytes,
}

impl PromptSnapshot {
    /// Hashes and wraps `bytes`.
    #[must_use]
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self { hash: PromptHash::of(&bytes), bytes }
    }

    /// The hash.
    #[must_use]
    pub fn hash(&self) -> &PromptHash {
        &self.hash
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}
