//! Writes JSON with its keys in the order in which they are written: the bytes of a request follow from its values alone.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::chat::{ChatMessage, ChatRequest, Image};
use crate::json::{is_whole_json, mend_surrogates};

/// A JSON document while it is written.
#[derive(Debug)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// A document for this request, with room for most of them without growing.
    pub(super) fn for_request(request: &ChatRequest) -> Self {
        let pictures = |images: &[Image]| images.iter().map(|image| image.data.len() / 3 * 4 + 128).sum::<usize>();
        let of = |message: &ChatMessage| match message {
            ChatMessage::User { text, images } => text.len() + pictures(images),
            ChatMessage::Assistant { text, calls, sidecar, .. } => {
                let calls: usize = calls.iter().map(|call| call.arguments.len() + 128).sum();
                text.len() + calls + sidecar.as_ref().map_or(0, |sidecar| sidecar.bytes.len())
            }
            ChatMessage::Tool { content, images, .. } => content.len() + pictures(images),
        };
        let text: usize = request.messages.iter().map(of).sum();
        let around = request.tools.len() * 1024 + request.messages.len() * 96 + 1024;
        Self(Vec::with_capacity(text + text / 8 + request.system.len() + around))
    }

    /// Bytes as they are: punctuation, and JSON that is replayed.
    pub(super) fn raw(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// The member `input` with the arguments of a call: as they are when they are an object. Wires with it take nothing else,
    /// so other arguments go in one.
    pub(super) fn input(&mut self, arguments: &str) {
        if arguments.trim_start().starts_with('{') && is_whole_json(arguments) {
            self.raw(",\"input\":");
            self.raw(&mend_surrogates(arguments));
        } else if arguments.trim().is_empty() {
            self.raw(",\"input\":{}");
        } else {
            self.raw(",\"input\":{\"arguments\":");
            self.json(arguments);
            self.raw("}");
        }
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
