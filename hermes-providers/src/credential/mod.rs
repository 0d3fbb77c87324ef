//! Credentials: what a request is let in with, and who says which one is used next.
//!
//! A model takes a [`Ticket`] for each attempt and reports to [`Credentials`] how that attempt ended. The report names the
//! ticket that was used, so that an answer that comes late is charged to the right key (B47). [`FixedKey`] is the simple
//! case; a pool of several keys is the other one.

#[cfg(feature = "http")]
pub mod device;
#[cfg(feature = "http")]
pub mod file;
mod fingerprint;
#[cfg(feature = "http")]
mod keeper;
pub mod pool;
#[cfg(feature = "http")]
pub mod refresh;
mod seed;
mod ticket;

pub use fingerprint::Fingerprint;
#[cfg(feature = "http")]
pub use keeper::{KeyPool, KeyPoolConfig, Now, rows, system_now};
pub use seed::{SeededKey, seed};
pub use ticket::{Credentials, FixedKey, Next, Outcome, Secret, Ticket};
