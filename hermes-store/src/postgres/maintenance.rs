//! Care of a store in PostgreSQL: what its own tools do better is left to them.

use std::path::Path;

use super::PostgresStore;
use crate::error::StoreError;
use crate::maintenance::{CheckDepth, CheckReport, VacuumOutcome};
use crate::rules::invalid;

impl PostgresStore {
    /// The server checks its pages itself.
    #[expect(clippy::unused_async, reason = "the shape that both back ends share")]
    pub(super) async fn check_engine(&self, _: CheckDepth, _: &mut CheckReport) -> Result<(), StoreError> {
        Ok(())
    }

    #[expect(clippy::unused_async, reason = "the shape that both back ends share")]
    pub(super) async fn copy_file(&self, _: &Path) -> Result<(), StoreError> {
        Err(invalid("this store is in PostgreSQL; back it up with pg_dump, and bring it back with pg_restore"))
    }

    #[expect(clippy::unused_async, reason = "the shape that both back ends share")]
    pub(super) async fn vacuum_file(&self, _: bool) -> Result<VacuumOutcome, StoreError> {
        Err(invalid("this store is in PostgreSQL, which vacuums by itself; to rewrite it use pg_dump and pg_restore"))
    }
}
