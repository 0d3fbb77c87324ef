//! Models behind HTTP. No environment is read here, no request is repeated and nothing sleeps.

mod authorize;
mod body;
mod client;
pub mod config;
mod failure;
mod form;
mod get;
mod model;

pub(crate) use client::{probe_client, token_client};
pub use config::{HttpModelConfig, Timeouts};
pub(crate) use form::post_form;
pub use get::is_near_address;
pub(crate) use get::{GetLimits, Getter, Got};
pub use model::HttpChatModel;
