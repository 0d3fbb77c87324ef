//! The wires, one module each. Codecs are pure: values to bytes, bytes to deltas.

pub mod chat_completions;
