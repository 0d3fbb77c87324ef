//! Writes JSON with its keys in the order in which they are written: the bytes of a request follow from its values alone.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::chat::Image;

/// A JSON document while it is written.
#[derive(Debug)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Bytes as they are: punctuation, and JSON that is replayed.
    pub(super) fn raw(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Writes a value as JSON. Strings and `Value`s cannot fail and a `Vec` takes everything, so there is no error.
    pub(super) fn json<T: Serialize + ?Sized>(&mut self, value: &T) {
        let before = self.0.len();
        if serde_json::to_writer(&mut self.0, value).is_err() {
            self.0.truncate(before);
            self.raw("null");
        }
    }

    /// A member that is not the first of its object.
    pub(super) fn member<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) {
        self.raw(",\"");
        self.raw(key);
        self.raw("\":");
        self.json(value);
    }

    pub(super) fn finish(self) -> bytes::Bytes {
        bytes::Bytes::from(self.0)
    }
}

/// The bytes of a picture in base64.
pub(super) fn base64_of(image: &Image) -> String {
    STANDARD.encode(&image.data)
}

/// `data:image/png;base64,...`.
pub(super) fn data_url(image: &Image) -> String {
    format!("data:{};base64,{}", image.media_type, base64_of(image))
}
