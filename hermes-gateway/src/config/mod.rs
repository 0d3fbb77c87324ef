//! Configuration: where a profile lives on disk, what its files say, and which model answers.
//!
//! Nothing here keeps global state. The process environment is read once, by [`Env::of_process`], and every other
//! function takes values and gives values.

pub mod auxiliary;
pub mod check;
mod compression;
#[allow(clippy::module_inception, reason = "the module is named after the type it holds")]
pub mod config;
mod database;
mod delegation;
pub mod dotenv;
pub mod edit;
pub mod env;
pub mod error;
pub mod fallback;
mod files;
mod llama_server;
mod near;
mod network;
#[cfg(test)]
mod page_tests;
mod raw;
pub mod scope;
mod settings;
mod values;

pub use auxiliary::{AuxiliaryConfig, TaskModel};
pub use config::{
    AgentConfig, ApprovalsConfig, ApprovalsMode, Config, ModelConfig, NobodyThere, ProviderConfig, StoreUrl,
    Synchronous, TerminalConfig,
};
pub use dotenv::{DotEnv, Keys, Lookup};
pub use env::Env;
pub use error::ConfigError;
pub use fallback::FallbackConfig;
pub use llama_server::LlamaServerConfig;
pub use network::NetworkConfig;
pub use scope::Scope;
pub use settings::{MASK, Shown, Source};
