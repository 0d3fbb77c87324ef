//! Providers as data: one TOML file each in `profiles/`, one line each in `registry.rs`.
//!
//! A profile says where a provider is, which variables may hold its key and how its wire differs. It holds no secret and
//! no client; reading the environment is the caller's business.

mod data;
mod error;
mod host;
mod mode;
mod patience;
mod quirks;
mod registry;

pub use crate::mode::effort::Ladder;
pub use data::{ModelRule, Profile, Source};
pub use error::ProfileError;
pub use mode::{ApiMode, AuthHeader, KeyRule};
pub use patience::Patience;
#[cfg(feature = "http")]
pub(crate) use patience::floor;
pub use quirks::{EmptyContent, Extra, MaxTokensField, Quirks, ReasoningEcho, ReasoningField, SystemRole, ToolIds};
pub use registry::{CUSTOM, Profiles};
