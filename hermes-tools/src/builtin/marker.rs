//! Takes the note of the last working directory out of a command's output.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// Begins and ends the note (ASCII record separator; no text uses it).
const SIGN: u8 = 0x1e;

/// Longest note, in bytes; a longer one is output.
const NOTE_MAX_BYTES: usize = 8 * 1024;

/// Separates a note from output that comes in arbitrary pieces.
pub(super) struct Marker {
    /// How the note begins.
    mark: Vec<u8>,
    /// Output that may be the beginning of the note.
    held: Vec<u8>,
    cwd: Option<PathBuf>,
}

impl Marker {
    /// A note that nothing else begins like: `nonce` differs for each command.
    pub(super) fn new(nonce: u64) -> Self {
        Self { mark: format!("\u{1e}cwd:{nonce:016x}:").into_bytes(), held: Vec::new(), cwd: None }
    }

    /// The command with a note at its end, whatever way it ends.
    pub(super) fn script(&self, command: &str) -> String {
        let mark = String::from_utf8_lossy(&self.mark);
        format!("trap 'printf \"%s\" \"{mark}$PWD\u{1e}\"' EXIT\n{command}\n")
    }

    /// The output in these bytes, as far as it is certain to be output.
    pub(super) fn filter(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(self.held.len());
        loop {
            let Some(start) = self.held.iter().position(|byte| *byte == SIGN) else {
                out.append(&mut self.held);
                return out;
            };
            out.extend(self.held.drain(..start));
            let known = self.held.len().min(self.mark.len());
            if self.held[..known] == self.mark[..known] {
                if known == self.mark.len()
                    && let Some(length) = self.held[known..].iter().position(|byte| *byte == SIGN)
                {
                    // A directory's name need not be UTF-8.
                    let note = OsStr::from_bytes(&self.held[known..known + length]);
                    self.cwd = Some(PathBuf::from(note)).filter(|cwd| cwd.is_absolute());
                    self.held.drain(..=known + length);
                    continue;
                }
                if self.held.len() <= NOTE_MAX_BYTES {
                    return out;
                }
            }
            out.extend(self.held.drain(..1));
        }
    }

    /// What was held back and is output after all, and the directory that the note told.
    pub(super) fn finish(&mut self) -> (Vec<u8>, Option<PathBuf>) {
        (std::mem::take(&mut self.held), self.cwd.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_found_in_any_pieces_and_other_bytes_stay() {
        let marker = Marker::new(7);
        let mut all = b"a\x1eb".to_vec();
        all.extend_from_slice(&marker.mark);
        all.extend_from_slice("/tmp/x é\u{1e}late\u{1e}cw".as_bytes());
        for size in 1..all.len() {
            let mut marker = Marker::new(7);
            let mut out: Vec<u8> = all.chunks(size).flat_map(|piece| marker.filter(piece)).collect();
            let (rest, cwd) = marker.finish();
            out.extend(rest);
            assert_eq!(String::from_utf8(out).unwrap(), "a\u{1e}blate\u{1e}cw");
            assert_eq!(cwd, Some(PathBuf::from("/tmp/x é")));
        }
    }
}
