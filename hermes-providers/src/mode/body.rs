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
    Unknown(Vec<u8>),
    Events(SseDecoder),
    Json(Vec<u8>),
    /// A web page or other text.
    Text(Vec<u8>),
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
        Self(Kind::Unknown(Vec::new()))
    }
}

impl Body {
    /// Takes more bytes and adds the frames that are whole now. The frames before an error are added too.
    pub(super) fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), String> {
        match &mut self.0 {
            Kind::Unknown(head) => {
                head.extend_from_slice(bytes);
                if let Some(kind) = kind_of(head) {
                    let head = std::mem::take(head);
                    self.0 = kind;
                    return self.push(&head, frames);
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

/// What kind of body begins like this; `None` when it cannot be said yet.
fn kind_of(head: &[u8]) -> Option<Kind> {
    if head.len() < BOM.len() && BOM.starts_with(head) {
        return None;
    }
    let first = head.strip_prefix(BOM).unwrap_or(head).iter().find(|byte| !byte.is_ascii_whitespace())?;
    Some(match first {
        b'{' | b'[' => Kind::Json(Vec::new()),
        b'<' => Kind::Text(Vec::new()),
        _ => Kind::Events(SseDecoder::new()),
    })
}
