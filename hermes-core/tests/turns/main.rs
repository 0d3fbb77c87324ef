//! Turns on the in-memory store: every phase, every way to end, every crash point of a round.

mod crashes;
mod endings;
mod support;
mod transcript;
