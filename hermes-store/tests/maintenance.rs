//! Maintenance of a SQLite store.
