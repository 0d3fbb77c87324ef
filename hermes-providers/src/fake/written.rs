//! An answer as it goes over the wire.

use serde_json::Value;

/// Status, headers and the pieces of the body, each of which is sent by itself.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) pieces: Vec<Vec<u8>>,
}

impl Written {
    /// One whole JSON answer.
    pub(super) fn whole(value: &Value) -> Self {
        Self::new("application/json", vec![value.to_string().into_bytes()])
    }

    /// The events of a stream.
    pub(super) fn events(pieces: Vec<Vec<u8>>) -> Self {
        Self::new("text/event-stream; charset=utf-8", pieces)
    }

    /// A body of this type.
    pub(super) fn new(content_type: &str, pieces: Vec<Vec<u8>>) -> Self {
        Self { status: 200, headers: vec![("content-type", content_type.to_owned())], pieces }
    }

    /// A refusal.
    pub(super) fn refused(status: u16, value: &Value) -> Self {
        Self { status, ..Self::whole(value) }
    }

    /// The same with one header more.
    pub(super) fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// A server-sent event without a name.
pub(super) fn data(value: &Value) -> Vec<u8> {
    format!("data: {value}\n\n").into_bytes()
}

/// A server-sent event whose name is its `type`.
pub(super) fn named(value: &Value) -> Vec<u8> {
    let name = value.get("type").and_then(Value::as_str).unwrap_or_default();
    format!("event: {name}\ndata: {value}\n\n").into_bytes()
}
