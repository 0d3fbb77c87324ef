//! What tests and benches of the whole program share: a scripted model server, a home of its own for each test, and
//! programs that run longer than a test may.

pub mod crash;
pub mod home;
pub mod plan;
pub mod server;

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
