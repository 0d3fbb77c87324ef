//! Who is connected: configuration, profiles, transports, and the composition of the engine.
//!
//! Everything that a program needs to serve clients meets here; no turn logic does.

pub mod config;
pub mod protocol;
pub mod stdio;
