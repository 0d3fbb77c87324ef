//! Credentials: what a request is let in with, and who says which one is used next.
//!
//! A model takes a [`Ticket`] for each attempt and reports to [`Credentials`] how that attempt ended. The report names the
//! ticket that was used, so that an answer that comes late is charged to the right key (B47). [`FixedKey`] is the simple
//! case, [`KeyPool`] has several keys that take turns, and [`FetchedCredentials`] a secret that somebody else keeps.

#[cfg(feature = "http")]
pub mod device;
#[cfg(feature = "http")]
pub mod external;
#[cfg(feature = "http")]
mod fetched;
#[cfg(feature = "http")]
pub mod file;
mod fingerprint;
#[cfg(feature = "http")]
pub(crate) mod helper;
#[cfg(feature = "http")]
mod keeper;
pub mod pool;
#[cfg(feature = "http")]
pub mod refresh;
mod seed;
#[cfg(feature = "http")]
pub mod service_account;
mod ticket;
#[cfg(feature = "http")]
pub(crate) mod when;

#[cfg(feature = "http")]
pub use fetched::{Fetched, FetchedCredentials, REFRESH_AHEAD_MS, SecretSource};
pub use fingerprint::Fingerprint;
#[cfg(feature = "http")]
pub use keeper::{KeyPool, KeyPoolConfig, Now, rows, system_now};
pub use seed::{SeededKey, seed};
pub use ticket::{Credentials, FixedKey, Next, Outcome, Secret, Ticket};
