//! Placeholder while the seams are written.
