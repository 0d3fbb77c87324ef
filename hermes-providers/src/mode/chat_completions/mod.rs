//! `POST /chat/completions`, the wire that most providers and every local server speak.

mod decode;
mod encode;
mod frame;
mod slots;
mod usage;

pub use decode::ChatDecoder;
pub use encode::encode;
