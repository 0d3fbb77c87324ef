//! `llama_server`: a llama.cpp server that this program runs itself.

use std::path::PathBuf;

use super::error::ConfigError;
use super::values::View;

/// Window at the start when `model.context_length` says nothing, in tokens.
pub(crate) const LLAMA_CONTEXT: u64 = 8192;

/// How the server of `model.provider: llama-server` is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlamaConfig {
    /// The program.
    pub program: PathBuf,
    /// More arguments.
    pub args: Vec<String>,
    /// To how many tokens the window may be grown; `None`: it stays as it is.
    pub max_context: Option<u64>,
}

impl Default for LlamaConfig {
    fn default() -> Self {
        Self { program: PathBuf::from("llama-server"), args: Vec::new(), max_context: None }
    }
}

pub(super) fn llama(root: &View<'_>) -> Result<LlamaConfig, ConfigError> {
    let view = root.section("llama_server")?;
    let standard = LlamaConfig::default();
    Ok(LlamaConfig {
        program: view
            .key("program")
            .text("a program, for example `/opt/llama.cpp/llama-server`")?
            .map_or(standard.program, PathBuf::from),
        args: view
            .key("args")
            .list(true, "a list of arguments, for example `[--n-gpu-layers, \"99\"]`")?
            .unwrap_or_default(),
        max_context: view.key("max_context_length").limit("a number of tokens, for example 32768")?,
    })
}
