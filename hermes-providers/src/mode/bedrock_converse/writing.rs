//! Frames as a server writes them, for tests, benches and fuzz targets.

use crate::mode::bedrock_converse::frame::{CHECKSUM_BYTES, PRELUDE_BYTES, crc32};

/// The kind of a header's value that is a text.
const TEXT: u8 = 7;

/// A frame with headers that are all texts; a name is cut at 255 bytes and a value at 65,535.
#[must_use]
pub fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut written = Vec::new();
    for (name, value) in headers {
        let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        written.push(length);
        written.extend_from_slice(&name.as_bytes()[..usize::from(length)]);
        written.push(TEXT);
        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
        written.extend_from_slice(&length.to_be_bytes());
        written.extend_from_slice(&value.as_bytes()[..usize::from(length)]);
    }
    raw(&written, payload)
}

/// A frame with these bytes as its headers. The checksums are right, the lengths are as long as they fit.
#[must_use]
pub fn raw(headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    let mut out = length(PRELUDE_BYTES + headers.len() + payload.len() + CHECKSUM_BYTES).to_vec();
    out.extend_from_slice(&length(headers.len()));
    out.extend_from_slice(&crc32(&out).to_be_bytes());
    out.extend_from_slice(headers);
    out.extend_from_slice(payload);
    out.extend_from_slice(&crc32(&out).to_be_bytes());
    out
}

/// An event of a stream.
#[must_use]
pub fn event(kind: &str, payload: &str) -> Vec<u8> {
    let headers = [(":event-type", kind), (":content-type", "application/json"), (":message-type", "event")];
    frame(&headers, payload.as_bytes())
}

/// An exception inside a stream that began well.
#[must_use]
pub fn exception(kind: &str, payload: &str) -> Vec<u8> {
    let headers = [(":exception-type", kind), (":content-type", "application/json"), (":message-type", "exception")];
    frame(&headers, payload.as_bytes())
}
