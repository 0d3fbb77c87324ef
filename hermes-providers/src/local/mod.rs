//! Model servers on the user's own computer: found by looking, described by asking, or started and stopped by us.

mod describe;
#[cfg(unix)]
mod managed;
#[cfg(unix)]
mod model;
mod probe;

pub use describe::{DESCRIBE_TIMEOUT_MS, describe_local};
#[cfg(unix)]
pub use managed::{
    LLAMA_LOG_BYTES, LLAMA_START_TIMEOUT_MS, LLAMA_STOP_TIMEOUT_MS, LlamaError, LlamaServer, LlamaServerConfig,
};
#[cfg(unix)]
pub use model::{LLAMA_SERVER, LlamaModel, llama_model_name};
pub use probe::{LocalModel, LocalPorts, LocalServer, PROBE_TIMEOUT_MS, probe_local};
