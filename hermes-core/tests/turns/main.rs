//! Turns on the in-memory store: every phase, every way to end, every crash point of a round.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    unreachable_pub,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

mod auxiliary;
mod background;
mod budget;
mod closing;
mod compress_manual;
mod control;
mod crashes;
mod deadline;
mod delegate;
mod edits;
mod endings;
mod events;
mod examples;
mod fallback;
mod given_up;
mod growth;
mod guardrails;
mod hydrate;
mod images;
mod judge;
mod listed;
mod liveness;
mod operator;
mod platform;
mod property;
mod recovery;
mod redirect;
mod steers;
mod support;
mod thrash;
mod titles;
mod transcript;
mod windows;
mod zombie;
