//! Server-sent events, sans IO: bytes in any split, frames out.
//!
//! Line ends may be LF, CRLF or a lone CR; a byte order mark at the start is skipped; comments and fields that are of no
//! use here (`id`, `retry`, unknown ones) are dropped. Bytes are not decoded, so a character that is cut between two
//! reads is no case of its own.

/// Longest line that is accepted. One frame of a large tool call is well below it.
pub const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;
/// Longest frame (all its `data` lines together) that is accepted.
pub const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;
const _: () = assert!(MAX_LINE_BYTES <= MAX_FRAME_BYTES);

const BOM: &[u8] = b"\xef\xbb\xbf";

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    /// The `event` field; empty when there was none.
    pub event: String,
    /// The `data` lines, joined by LF.
    pub data: Vec<u8>,
    /// False when the stream ended before the blank line that closes a frame. The data may be cut.
    pub closed: bool,
}

/// A limit was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line is longer than [`MAX_LINE_BYTES`].
    #[error("a line of the event stream is longer than {MAX_LINE_BYTES} bytes")]
    Line,
    /// A frame is longer than [`MAX_FRAME_BYTES`].
    #[error("a frame of the event stream is longer than {MAX_FRAME_BYTES} bytes")]
    Frame,
}

/// The decoder. Feed it with [`push`](Self::push), then call [`finish`](Self::finish) once.
#[derive(Debug, Default)]
pub struct SseDecoder {
    line: Vec<u8>,
    frame: Frame,
    has_data: bool,
    /// The byte before was a CR, so a LF now belongs to it.
    after_cr: bool,
    /// A first line was seen, so a byte order mark is no longer one.
    started: bool,
}

impl SseDecoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes more bytes and adds the frames that they complete to `out`. Frames without data are none.
    ///
    /// # Errors
    /// [`SseError`] when a limit is exceeded; the decoder is of no use afterwards.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<Frame>) -> Result<(), SseError> {
        let mut rest = bytes;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            if rest[0] == b'\n' {
                rest = &rest[1..];
            }
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend_line(&rest[..end])?;
            let cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if cr {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            self.end_line(out)?;
        }
        self.extend_line(rest)
    }

    /// The stream has ended: gives the frame that was not closed, if there is one.
    #[must_use]
    pub fn finish(mut self) -> Option<Frame> {
        if !self.line.is_empty() {
            // An unfinished line of `data` is handed over as it is; the reader decides whether it is whole.
            let mut out = Vec::new();
            self.end_line(&mut out).ok()?;
        }
        self.has_data.then_some(self.frame)
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        if self.line.len() + bytes.len() > MAX_LINE_BYTES {
            return Err(SseError::Line);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, out: &mut Vec<Frame>) -> Result<(), SseError> {
        let mut line = self.line.as_slice();
        if !self.started {
            self.started = true;
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        if line.is_empty() {
            self.line.clear();
            let frame = std::mem::take(&mut self.frame);
            if std::mem::take(&mut self.has_data) {
                out.push(Frame { closed: true, ..frame });
            }
            return Ok(());
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &line[..0]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.frame.data.len() + value.len() + 1 > MAX_FRAME_BYTES {
                    return Err(SseError::Frame);
                }
                if self.has_data {
                    self.frame.data.push(b'\n');
                }
                self.has_data = true;
                self.frame.data.extend_from_slice(value);
            }
            b"event" => self.frame.event = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
        self.line.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames_of(chunks: &[&[u8]]) -> Vec<(String, String, bool)> {
        let mut decoder = SseDecoder::new();
        let mut out = Vec::new();
        for chunk in chunks {
            decoder.push(chunk, &mut out).unwrap();
        }
        out.extend(decoder.finish());
        out.into_iter().map(|f| (f.event, String::from_utf8_lossy(&f.data).into_owned(), f.closed)).collect()
    }

    fn check(input: &str, expect: &[(&str, &str, bool)]) {
        let expect: Vec<_> = expect.iter().map(|(e, d, c)| ((*e).to_owned(), (*d).to_owned(), *c)).collect();
        assert_eq!(frames_of(&[input.as_bytes()]), expect, "{input:?}");
        let single: Vec<&[u8]> = input.as_bytes().chunks(1).collect();
        assert_eq!(frames_of(&single), expect, "byte by byte: {input:?}");
    }

    #[test]
    fn frames_of_every_shape() {
        check("data: a\n\ndata: b\n\n", &[("", "a", true), ("", "b", true)]);
        check("data:a\r\n\r\ndata:  b\r\rdata: c\n\r\n", &[("", "a", true), ("", " b", true), ("", "c", true)]);
        check("\u{feff}data: a\n\n", &[("", "a", true)]);
        check("data: \u{feff}a\n\n", &[("", "\u{feff}a", true)]);
        check(": comment\n\n:\n\ndata: a\n: in between\ndata: b\n\n", &[("", "a\nb", true)]);
        check("event: error\ndata: x\n\n", &[("error", "x", true)]);
        check("event: lost\n\ndata: x\n\n", &[("", "x", true)]);
        check("data\n\n", &[("", "", true)]);
        check("data:\n\n", &[("", "", true)]);
        check("id: 1\nretry: 5\nunknown: x\ndata: a\n\n", &[("", "a", true)]);
        check("data: a\n", &[("", "a", false)]);
        check("data: a", &[("", "a", false)]);
        check("", &[]);
        check("\n\n\n", &[]);
        check("data: ünï→🦀\r\n\r\n", &[("", "ünï→🦀", true)]);
    }

    #[test]
    fn a_line_over_the_limit_is_an_error() {
        let mut decoder = SseDecoder::new();
        let mut out = Vec::new();
        let block = vec![b'x'; 1024 * 1024];
        let error = (0..9).find_map(|_| decoder.push(&block, &mut out).err());
        assert_eq!(error, Some(SseError::Line));
    }

    #[test]
    fn a_frame_over_the_limit_is_an_error() {
        let mut decoder = SseDecoder::new();
        let mut out = Vec::new();
        let mut line = b"data: ".to_vec();
        line.resize(4 * 1024 * 1024, b'x');
        line.push(b'\n');
        let error = (0..9).find_map(|_| decoder.push(&line, &mut out).err());
        assert_eq!(error, Some(SseError::Frame));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_frames(
            lines in proptest::collection::vec("(data: ?|event: |: |)[a-zß→🦀:]{0,6}(\n|\r\n|\r|\n\n)", 0..12),
            cuts in proptest::collection::vec(0usize..200, 0..12),
        ) {
            let bytes = lines.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut start = 0;
            for cut in cuts {
                chunks.push(&bytes[start..cut]);
                start = cut;
            }
            chunks.push(&bytes[start..]);
            prop_assert_eq!(frames_of(&chunks), frames_of(&[&bytes]));
        }
    }
}
