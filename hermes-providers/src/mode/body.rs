//! What the body of an answer turns out to be: events, one JSON document, or something else.
//!
//! A server that is asked for a stream may answer with one whole document and the other way round (B17); a proxy may
//! answer with a web page. The first byte tells.

use crate::sse::{Frame, SseDecoder};

/// Largest whole (not streamed) body.
pub const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// What is kept of a body that is neither events nor JSON, to quote it.
const MAX_QUOTE_BYTES: usize = 16 * 1024;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// A body while it arrives.
#[derive(Debug)]
pub(super) struct Body(Kind);

#[derive(Debug)]
enum Kind {
    /// No byte that tells yet.
    Unknown(Head),
    Events(SseDecoder),
    Json(Vec<u8>),
    /// A web page or other text.
    Text(Vec<u8>),
}

/// What came before the byte that tells, as far as it means anything: servers send blanks and blank lines for minutes while
/// a model thinks, and keeping them all would be a buffer without a bound.
#[derive(Debug, Default)]
struct Head {
    /// The beginning of a byte order mark, or a whole one.
    mark: usize,
    /// A line has ended.
    has_line: bool,
    /// The line that is arriving has a blank, so its field is none that is known.
    has_blank: bool,
}

impl Head {
    /// Takes the bytes that tell nothing; returns the others, when there are any.
    fn take<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        for (at, byte) in bytes.iter().enumerate() {
            let is_begin = !self.has_line && !self.has_blank;
            match byte {
                _ if is_begin && BOM.get(self.mark) == Some(byte) => self.mark += 1,
                // The beginning of a mark that is none.
                _ if (1..BOM.len()).contains(&self.mark) => return Some(&bytes[at..]),
                b'\n' | b'\r' => (self.has_line, self.has_blank) = (true, false),
                byte if byte.is_ascii_whitespace() => self.has_blank = true,
                _ => return Some(&bytes[at..]),
            }
        }
        None
    }

    /// Bytes that mean the same to a reader of events.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = BOM[..self.mark].to_vec();
        if self.has_line {
            bytes.push(b'\n');
        }
        if self.has_blank {
            bytes.push(b' ');
        }
        bytes
    }
}

/// What is left of a body when its bytes have ended.
#[derive(Debug)]
pub(super) enum Rest {
    /// Nothing.
    Nothing,
    /// A frame without its closing blank line; its data may be cut.
    Frame(Frame),
    /// A whole document.
    Json(Vec<u8>),
    /// Text that is neither, cut.
    Text(Vec<u8>),
}

impl Default for Body {
    fn default() -> Self {
        Self(Kind::Unknown(Head::default()))
    }
}

impl Body {
    /// Takes more bytes and adds the frames that are whole now. The frames before an error are added too.
    pub(super) fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), String> {
        match &mut self.0 {
            Kind::Unknown(head) => {
                if let Some(rest) = head.take(bytes) {
                    let before = head.bytes();
                    let is_cut_mark = (1..BOM.len()).contains(&head.mark);
                    self.0 = if is_cut_mark { Kind::Events(SseDecoder::new()) } else { kind_of(rest[0]) };
                    self.push(&before, frames)?;
                    return self.push(rest, frames);
                }
            }
            Kind::Events(events) => return events.push(bytes, frames).map_err(|limit| limit.to_string()),
            Kind::Json(body) => {
                if body.len() + bytes.len() > MAX_BODY_BYTES {
                    return Err(format!("the answer is larger than {MAX_BODY_BYTES} bytes"));
                }
                body.extend_from_slice(bytes);
            }
            Kind::Text(body) => {
                let room = MAX_QUOTE_BYTES.saturating_sub(body.len());
                body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
        }
        Ok(())
    }

    /// The bytes have ended.
    pub(super) fn finish(&mut self) -> Rest {
        match std::mem::take(self).0 {
            Kind::Unknown(_) => Rest::Nothing,
            Kind::Events(events) => events.finish().map_or(Rest::Nothing, Rest::Frame),
            Kind::Json(body) => Rest::Json(body),
            Kind::Text(body) => Rest::Text(body),
        }
    }
}

/// What kind of body begins with this byte, blanks and a byte order mark left aside.
fn kind_of(first: u8) -> Kind {
    match first {
        b'{' | b'[' => Kind::Json(Vec::new()),
        b'<' => Kind::Text(Vec::new()),
        _ => Kind::Events(SseDecoder::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(pieces: &[&[u8]]) -> (Vec<Frame>, bool) {
        let mut body = Body::default();
        let mut frames = Vec::new();
        pieces.iter().try_for_each(|piece| body.push(piece, &mut frames)).unwrap();
        (frames, matches!(body.finish(), Rest::Json(_)))
    }

    #[test]
    fn i26_blanks_before_an_answer_are_not_kept_and_change_nothing() {
        let mut body = Body::default();
        for _ in 0..4 {
            body.push(&[b' '; 256 * 1024], &mut Vec::new()).unwrap();
            assert!(matches!(body.0, Kind::Unknown(_)), "what has no room to keep them");
        }
        body.push(b"\n\ndata: a\n\n", &mut Vec::new()).unwrap();
        assert!(matches!(body.0, Kind::Events(_)));
        let event = |data: &str| Frame { event: String::new(), data: data.into(), closed: true };
        for (text, expect, is_json) in [
            ("\n \r\n\ndata: a\n\n", vec![event("a")], false),
            ("\u{feff}data: a\n\n", vec![event("a")], false),
            ("\u{feff}\n\ndata: a\n\n", vec![event("a")], false),
            (" data: a\n\ndata: b\n\n", vec![event("b")], false),
            ("\n\u{feff}data: a\n\ndata: b\n\n", vec![event("b")], false),
            ("\u{feff} \n {\"a\":1}", vec![], true),
        ] {
            let whole = frames(&[text.as_bytes()]);
            assert_eq!(whole, (expect, is_json), "{text:?}");
            assert_eq!(frames(&text.as_bytes().chunks(1).collect::<Vec<_>>()), whole, "{text:?}");
        }
        // A mark that is cut off by something else is no mark.
        assert_eq!(frames(&[b"\xef", b"\xbbx: a\n\n", b"data: b\n\n"]).0, vec![event("b")]);
    }
}
