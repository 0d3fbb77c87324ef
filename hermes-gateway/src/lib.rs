//! Who is connected: configuration, profiles, transports, and the composition of the engine.
//!
//! Everything that a program needs to serve clients meets here; no turn logic does. [`Gateway::start`] reads the
//! configuration and chooses a model; [`Gateway::connect`] gives a client, which speaks the types of [`protocol`] in the
//! same process; [`stdio`] speaks the same types as JSON lines.

mod allow_list;
pub mod auth;
mod aws;
mod background;
mod care;
mod clock;
mod compose;
pub mod config;
mod delegations;
mod doctor;
mod fallback;
mod housekeeping;
mod hub;
mod indexer;
mod leftovers;
mod lent;
mod llama;
mod model;
mod models;
mod network;
mod pools;
mod prompt_source;
pub mod protocol;
mod providers;
mod service;
mod sessions;
pub mod stdio;
#[cfg(test)]
mod testing;
mod window_file;
mod workspace;

pub use clock::TokioClock;
pub use compose::{Launch, Overrides};
pub use hub::{CLARIFY_TIMEOUT_MS, CLIENT_BACKLOG_MESSAGES};
pub use service::{Caller, Client, Gateway};
