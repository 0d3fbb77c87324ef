//! How long each kind of write waits for its turn.
//!
//! Waiting is for everything that stands before a write's first statement: other writers of this process, and the
//! lock of another process. Once a write has begun nothing of this counts any more.

use crate::limits::{BUSY_ACTIVITY_MS, BUSY_BEAT_MS, BUSY_COMPRESSION_MS, BUSY_NORMAL_MS, SQLITE_BUSY_MS};

/// What a write is about, as far as its patience goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WriteKind {
    /// Inputs, turns and the transcript: what would be lost for a person.
    Transcript,
    /// Titles, flags and other facts that somebody can set again.
    Normal,
    /// An owner's sign of life. The next one comes soon, and must not wait behind this one.
    Beat,
    /// The renewal of a lease: tried again long before the lease ends.
    Activity,
    /// A lease that is given back: others wait for it.
    Release,
    /// The swap of a compressed view: the turn can go on without it.
    Compression,
}

/// Longest wait of each kind of write, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Patience {
    /// Of [`WriteKind::Transcript`] and [`WriteKind::Release`].
    pub transcript_ms: u64,
    /// Of [`WriteKind::Normal`].
    pub normal_ms: u64,
    /// Of [`WriteKind::Beat`].
    pub beat_ms: u64,
    /// Of [`WriteKind::Activity`].
    pub activity_ms: u64,
    /// Of [`WriteKind::Compression`].
    pub compression_ms: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            transcript_ms: SQLITE_BUSY_MS,
            normal_ms: BUSY_NORMAL_MS,
            beat_ms: BUSY_BEAT_MS,
            activity_ms: BUSY_ACTIVITY_MS,
            compression_ms: BUSY_COMPRESSION_MS,
        }
    }
}

impl Patience {
    /// Every wait divided by `scale`, and at least a millisecond: the same rules for a test that has no minute.
    #[must_use]
    pub fn scaled_down(self, scale: u64) -> Self {
        let cut = |ms: u64| (ms / scale.max(1)).max(1);
        Self {
            transcript_ms: cut(self.transcript_ms),
            normal_ms: cut(self.normal_ms),
            beat_ms: cut(self.beat_ms),
            activity_ms: cut(self.activity_ms),
            compression_ms: cut(self.compression_ms),
        }
    }

    /// Longest wait of a kind of write, in milliseconds.
    #[must_use]
    pub fn of(&self, kind: WriteKind) -> u64 {
        match kind {
            WriteKind::Transcript | WriteKind::Release => self.transcript_ms,
            WriteKind::Normal => self.normal_ms,
            WriteKind::Beat => self.beat_ms,
            WriteKind::Activity => self.activity_ms,
            WriteKind::Compression => self.compression_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transcript_waits_longest_and_no_wait_is_nothing() {
        for scale in [1, 30, 1_000_000] {
            let patience = Patience::default().scaled_down(scale);
            let kinds = [
                WriteKind::Normal,
                WriteKind::Beat,
                WriteKind::Activity,
                WriteKind::Release,
                WriteKind::Compression,
                WriteKind::Transcript,
            ];
            for kind in kinds {
                assert!(patience.of(kind) >= 1 && patience.of(kind) <= patience.transcript_ms, "{kind:?} at {scale}");
            }
        }
    }
}
