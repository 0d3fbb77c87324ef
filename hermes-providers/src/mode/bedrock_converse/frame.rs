//! `application/vnd.amazon.eventstream`: binary frames, in any split.
//!
//! A frame is, all numbers with the highest byte first: its whole length (4 bytes), the length of its headers (4), the
//! CRC-32 of these eight bytes (4), headers, payload, the CRC-32 of everything before (4). A header is the length of its
//! name (1), the name, the kind of its value (1) and the value.
//!
//! The first checksum is looked at before the length is believed, so a damaged length costs no memory and no waiting.

use std::fmt;

/// Largest frame (the maker's libraries accept the same).
pub const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;
/// Largest headers of one frame (the maker's limit).
pub const MAX_FRAME_HEADER_BYTES: usize = 128 * 1024;

/// Both lengths and their checksum.
pub(super) const PRELUDE_BYTES: usize = 12;
/// What the prelude's checksum covers.
const LENGTHS_BYTES: usize = 8;
pub(super) const CHECKSUM_BYTES: usize = 4;
const OVERHEAD_BYTES: usize = PRELUDE_BYTES + CHECKSUM_BYTES;
const _: () = assert!(MAX_FRAME_HEADER_BYTES + OVERHEAD_BYTES < MAX_FRAME_BYTES);

/// What is wrong with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameFault {
    /// One of the checksums.
    Checksum,
    /// Lengths that contradict each other, or a header that is none.
    Shape,
    /// Larger than this program accepts.
    TooLarge,
}

impl fmt::Display for FrameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Checksum => "the stream is damaged: a checksum is wrong",
            Self::Shape => "the stream is damaged: a frame is malformed",
            Self::TooLarge => "a frame of the stream is larger than this program accepts",
        })
    }
}

/// One frame whose checksums are right. Headers that are no text are not looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Frame<'a> {
    /// `event`, `exception` or `error`.
    pub(super) message_type: &'a str,
    /// Of an event.
    pub(super) event_type: &'a str,
    /// Of an exception.
    pub(super) exception_type: &'a str,
    /// Of an error.
    pub(super) error_code: &'a str,
    /// Of an error.
    pub(super) error_message: &'a str,
    pub(super) payload: &'a [u8],
}

/// Cuts bytes into frames.
#[derive(Debug, Default)]
pub(super) struct FrameDecoder {
    buffer: Vec<u8>,
    /// What of the buffer was given out.
    taken: usize,
    /// Length of the frame that is arriving, once its prelude was believed.
    expected: Option<(usize, usize)>,
}

impl FrameDecoder {
    /// Takes more bytes. [`next`](Self::next) must be asked until it has none before more are fed.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame.
    pub(super) fn next(&mut self) -> Result<Option<Frame<'_>>, FrameFault> {
        let rest = &self.buffer[self.taken..];
        let (whole, headers) = match self.expected {
            Some(lengths) => lengths,
            None => match prelude(rest)? {
                Some(lengths) => *self.expected.insert(lengths),
                None => return Ok(None),
            },
        };
        if rest.len() < whole {
            return Ok(None);
        }
        self.expected = None;
        let start = self.taken;
        self.taken += whole;
        let frame = &self.buffer[start..start + whole];
        let (body, checksum) = frame.split_at(whole - CHECKSUM_BYTES);
        if number(checksum) != crc32(body) {
            return Err(FrameFault::Checksum);
        }
        let (headers, payload) = body[PRELUDE_BYTES..].split_at(headers);
        read_headers(headers, payload).map(Some).ok_or(FrameFault::Shape)
    }

    /// Whether bytes of an unfinished frame are left.
    pub(super) fn has_rest(&self) -> bool {
        self.taken < self.buffer.len()
    }
}

/// Whole length and length of the headers.
fn prelude(rest: &[u8]) -> Result<Option<(usize, usize)>, FrameFault> {
    if rest.len() < PRELUDE_BYTES {
        return Ok(None);
    }
    if number(&rest[LENGTHS_BYTES..PRELUDE_BYTES]) != crc32(&rest[..LENGTHS_BYTES]) {
        return Err(FrameFault::Checksum);
    }
    // Both fit: this program runs on nothing smaller than 32 bits.
    let (whole, headers) = (number(&rest[..4]) as usize, number(&rest[4..LENGTHS_BYTES]) as usize);
    if whole > MAX_FRAME_BYTES || headers > MAX_FRAME_HEADER_BYTES {
        return Err(FrameFault::TooLarge);
    }
    if whole < OVERHEAD_BYTES + headers {
        return Err(FrameFault::Shape);
    }
    Ok(Some((whole, headers)))
}

/// Up to four bytes as a number, the highest first.
fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Reads the headers; `None` when they are malformed. Of a name that comes twice the first one counts.
fn read_headers<'a>(mut rest: &'a [u8], payload: &'a [u8]) -> Option<Frame<'a>> {
    let mut frame = Frame { payload, ..Frame::default() };
    while let Some((length, after)) = rest.split_first() {
        let (name, after) = after.split_at_checked(usize::from(*length))?;
        let (kind, after) = after.split_first()?;
        let (size, after) = match kind {
            0 | 1 => (0, after),
            2 => (1, after),
            3 => (2, after),
            4 => (4, after),
            5 | 8 => (8, after),
            6 | 7 => {
                let (size, after) = after.split_at_checked(2)?;
                (number(size) as usize, after)
            }
            9 => (16, after),
            _ => return None,
        };
        let (value, after) = after.split_at_checked(size)?;
        rest = after;
        if *kind != 7 {
            continue;
        }
        let value = std::str::from_utf8(value).ok()?;
        let place = match name {
            b":message-type" => &mut frame.message_type,
            b":event-type" => &mut frame.event_type,
            b":exception-type" => &mut frame.exception_type,
            b":error-code" => &mut frame.error_code,
            b":error-message" => &mut frame.error_message,
            _ => continue,
        };
        if place.is_empty() {
            *place = value;
        }
    }
    Some(frame)
}

/// The polynomial of CRC-32 (as of gzip), its bits reversed.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// Bytes that are taken in one step.
const STEP: usize = 8;

/// `TABLES[n][b]` is what the byte `b` adds when `n` more bytes follow it in one step.
static TABLES: [[u32; 256]; STEP] = tables();

const fn tables() -> [[u32; 256]; STEP] {
    let mut all = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        all[0][byte] = value;
        byte += 1;
    }
    let mut level = 1;
    while level < STEP {
        let mut byte = 0;
        while byte < 256 {
            let before = all[level - 1][byte];
            all[level][byte] = before >> 8 ^ all[0][(before & 0xff) as usize];
            byte += 1;
        }
        level += 1;
    }
    all
}

/// CRC-32 as gzip has it.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    let mut steps = bytes.chunks_exact(STEP);
    for step in &mut steps {
        let mut next = 0;
        for (at, byte) in step.iter().enumerate() {
            let mixed = if at < 4 { u32::from(*byte) ^ (crc >> (8 * at) & 0xff) } else { u32::from(*byte) };
            next ^= TABLES[STEP - 1 - at][mixed as usize];
        }
        crc = next;
    }
    for byte in steps.remainder() {
        crc = crc >> 8 ^ TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize];
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::bedrock_converse::writing::{event, frame, raw};
    use proptest::prelude::*;

    /// Everything in these chunks: event types and payloads, then what is wrong.
    fn read(chunks: &[&[u8]]) -> (Vec<(String, Vec<u8>)>, Option<FrameFault>) {
        let mut decoder = FrameDecoder::default();
        let mut all = Vec::new();
        for chunk in chunks {
            decoder.feed(chunk);
            loop {
                match decoder.next() {
                    Ok(Some(frame)) => all.push((frame.event_type.to_owned(), frame.payload.to_vec())),
                    Ok(None) => break,
                    Err(fault) => return (all, Some(fault)),
                }
            }
        }
        (all, None)
    }

    #[test]
    fn the_checksum_is_the_one_of_gzip() {
        // The check value of the algorithm, and lengths around one step.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"a"), 0xe8b7_be43);
        assert_eq!(crc32(b"The quick brown fox jumps over the lazy dog"), 0x414f_a339);
    }

    #[test]
    fn b28_the_makers_own_frames_are_read() {
        // From the test vectors that AWS publishes with its libraries: no headers, and one header of another kind.
        let payload = b"\x00\x00\x00\x1d\x00\x00\x00\x00\xfd\x52\x8c\x5a{'foo':'bar'}\xc3\x65\x39\x36";
        assert_eq!(read(&[payload]), (vec![(String::new(), b"{'foo':'bar'}".to_vec())], None));
        let empty = b"\x00\x00\x00\x10\x00\x00\x00\x00\x05\xc2\x48\xeb\x7d\x98\xc8\xff";
        assert_eq!(read(&[empty]), (vec![(String::new(), Vec::new())], None));
        let header = b"\x00\x00\x00\x3d\x00\x00\x00\x20\x07\xfd\x83\x96\x0ccontent-type\x07\x00\x10application/json\
            {'foo':'bar'}\x8d\x9c\x08\xb1";
        assert_eq!(read(&[header]), (vec![(String::new(), b"{'foo':'bar'}".to_vec())], None));
        // And their damaged ones.
        let length = b"\x01\x00\x00\x1d\x00\x00\x00\x00\xfd\x52\x8c\x5a{'foo':'bar'}\xc3\x65\x39\x36";
        assert_eq!(read(&[length]).1, Some(FrameFault::Checksum));
        let changed = b"\x00\x00\x00\x1d\x00\x00\x00\x00\xfd\x52\x8c\x5a{'foo':'bar'\x8d\xc3\x65\x39\x36";
        assert_eq!(read(&[changed]).1, Some(FrameFault::Checksum));
    }

    #[test]
    fn headers_of_every_kind_are_passed_over() {
        let mut headers = Vec::new();
        for (kind, value) in [
            (0, &[][..]),
            (1, &[]),
            (2, &[1]),
            (3, &[1; 2]),
            (4, &[1; 4]),
            (5, &[1; 8]),
            (6, &[0, 3, 255, 254, 253]),
            (8, &[1; 8]),
            (9, &[1; 16]),
        ] {
            headers.extend_from_slice(&[1, b'x', kind]);
            headers.extend_from_slice(value);
        }
        headers.extend_from_slice(b"\x0b:event-type\x07\x00\x03one");
        headers.extend_from_slice(b"\x0b:event-type\x07\x00\x03two");
        assert_eq!(read(&[&raw(&headers, b"p")]), (vec![("one".to_owned(), b"p".to_vec())], None));
    }

    #[test]
    fn malformed_headers_and_lengths_are_errors_and_nothing_is_read_behind_them() {
        for headers in
            [&b"\x05x"[..], b"\x01x", b"\x01x\x07", b"\x01x\x07\x00\x05ab", b"\x01x\x0a", b"\x01x\x07\x00\x01\xff"]
        {
            assert_eq!(read(&[&raw(headers, b"")]).1, Some(FrameFault::Shape), "{headers:?}");
        }
        let prelude = |whole: u32, headers: u32| {
            let mut bytes = [whole.to_be_bytes(), headers.to_be_bytes()].concat();
            bytes.extend_from_slice(&crc32(&bytes).to_be_bytes());
            read(&[&bytes]).1
        };
        assert_eq!(prelude(15, 0), Some(FrameFault::Shape));
        assert_eq!(prelude(20, 5), Some(FrameFault::Shape));
        assert_eq!(prelude(MAX_FRAME_BYTES as u32 + 1, 0), Some(FrameFault::TooLarge));
        assert_eq!(prelude(MAX_FRAME_BYTES as u32, MAX_FRAME_HEADER_BYTES as u32 + 1), Some(FrameFault::TooLarge));
        assert_eq!(prelude(MAX_FRAME_BYTES as u32, 0), None, "waits for the rest");
    }

    proptest! {
        #[test]
        fn b28_frames_mean_the_same_in_any_split(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let bytes: Vec<u8> = payloads.iter().flat_map(|payload| frame(&[(":event-type", "e")], payload)).collect();
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            places.extend([0, bytes.len()]);
            places.sort_unstable();
            let chunks: Vec<&[u8]> = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let expect: Vec<_> = payloads.into_iter().map(|payload| ("e".to_owned(), payload)).collect();
            prop_assert_eq!(read(&chunks), (expect, None));
        }

        #[test]
        fn b28_one_wrong_byte_never_goes_unseen(at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
            let mut bytes = event("messageStart", r#"{"role":"assistant"}"#);
            let length = bytes.len();
            bytes[at.index(length)] ^= flip;
            let (frames, fault) = read(&[&bytes]);
            prop_assert!(frames.is_empty() && fault.is_some());
        }
    }
}
