//! Models that this program runs itself, with llama.cpp's `llama-server`.
//!
//! [`LlamaServer`] is one process. [`LlamaRuntime`] is the process over time: begun at the first need, shared by all models
//! that ask it, begun anew when it ended, grown, and ended when nobody has asked for long. [`LlamaModel`] is how a model of
//! it is spoken to.

mod config;
mod log;
mod model;
mod runtime;
mod server;
mod worker;

pub use config::{
    LLAMA_CONTEXT_TOKENS, LLAMA_IDLE_STOP_MS, LLAMA_START_TIMEOUT_MS, LlamaConfig, LlamaError, llama_model_name,
};
pub use log::LLAMA_LOG_BYTES;
pub use model::{LLAMA_SERVER, LlamaModel};
pub use runtime::{LLAMA_GROW_WAIT_MS, LlamaRuntime};
pub use server::{LLAMA_STOP_TIMEOUT_MS, LlamaServer};
