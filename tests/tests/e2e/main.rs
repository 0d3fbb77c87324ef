//! The real program as a real process, against a real server on the loopback, in a home of its own.

mod crash;
mod faults;
mod oneshot;
mod prefix;
mod processes;
