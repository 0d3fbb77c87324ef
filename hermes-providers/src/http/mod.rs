//! Models behind HTTP. No environment is read here and nothing sleeps. A request is repeated in two cases only, in which
//! the model has not seen it: a kept connection was closed, or the server named the part that it does not take.

mod authorize;
mod body;
mod breaker;
mod client;
pub mod config;
mod exchange;
mod failure;
mod get;
mod model;
mod transport;

pub use breaker::{BREAKER_OPEN_MAX_MS, BREAKER_OPEN_MS, BREAKER_STALE_ATTEMPTS};
pub use client::Network;
pub(crate) use client::probe_client;
pub use config::{HttpModelConfig, Timeouts};
pub(crate) use exchange::{Exchange, exchange, post_form};
pub use get::is_near_address;
pub(crate) use get::{GetLimits, Getter, Got};
pub use model::HttpChatModel;
pub use transport::Transport;
