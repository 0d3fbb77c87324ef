//! The real program as a real process, against a real server on the loopback, in a home of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    unreachable_pub,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

mod auth;
mod clients;
mod crash;
mod faults;
mod gateway;
mod llama;
mod models;
mod oneshot;
mod prefix;
mod processes;
mod providers;
mod signatures;
mod store;
