//! Model servers on the user's own computer: found by looking, described by asking, or run by us.

mod describe;
#[cfg(unix)]
mod llama;
mod probe;

pub use describe::{DESCRIBE_TIMEOUT_MS, describe_local};
#[cfg(unix)]
pub use llama::{
    LLAMA_CONTEXT_TOKENS, LLAMA_GROW_WAIT_MS, LLAMA_IDLE_STOP_MS, LLAMA_LOG_BYTES, LLAMA_SERVER,
    LLAMA_START_TIMEOUT_MS, LLAMA_STOP_TIMEOUT_MS, LlamaConfig, LlamaError, LlamaModel, LlamaRuntime, LlamaServer,
    llama_model_name,
};
pub use probe::{LocalModel, LocalPorts, LocalServer, PROBE_TIMEOUT_MS, probe_local};
