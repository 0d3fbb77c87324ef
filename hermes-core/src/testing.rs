//! Parts for tests.
