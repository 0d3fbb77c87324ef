//! Configuration: where a profile lives on disk, what its files say, and which model answers.
//!
//! Nothing here keeps global state. The process environment is read once, by [`Env::of_process`], and every other
//! function takes values and gives values.

pub mod env;
pub mod error;
mod raw;
pub mod scope;
mod values;

pub use env::Env;
pub use error::ConfigError;
pub use scope::Scope;
