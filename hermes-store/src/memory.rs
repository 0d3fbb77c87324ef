//! The in-memory model of the store.
