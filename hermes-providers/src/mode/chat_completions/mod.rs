//! `POST /chat/completions`, the wire that most providers and every local server speak.

mod decode;
mod encode;
mod frame;
mod names;
mod slots;
mod usage;

pub use decode::{ChatDecoder, MAX_BODY_BYTES, StreamEnd};
pub use encode::{WireOptions, encode};
pub use names::{MAX_TOOL_NAME_BYTES, NameMap};
