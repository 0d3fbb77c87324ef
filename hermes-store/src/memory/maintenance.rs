//! Care of the in-memory model: there is little to care for.

use std::path::Path;

use async_trait::async_trait;

use super::MemoryStore;
use crate::error::StoreError;
use crate::maintenance::{CheckDepth, CheckReport, MaintenanceStore, VacuumOutcome};
use crate::prompt::PromptHash;
use crate::round::JournalState;
use crate::rules::invalid;

#[async_trait]
impl MaintenanceStore for MemoryStore {
    async fn check(&self, _depth: CheckDepth) -> Result<CheckReport, StoreError> {
        let state = self.state();
        let mut report = CheckReport {
            conversations: state.conversations.len() as u64,
            rows: state.rows.len() as u64,
            calls: state.calls.len() as u64,
            prompts: state.prompts.len() as u64,
            findings: Vec::new(),
        };
        let lost = |call: &&super::state::Call| {
            call.state == JournalState::Settled && !state.rows.contains_key(&call.new.result)
        };
        let example = state.calls.values().map(Box::as_ref).find(lost).map(|call| call.new.call.to_string());
        let count = state.calls.values().map(Box::as_ref).filter(lost).count() as u64;
        report.add("results are not stored, though their call says so", count, example);
        let wrong = |(hash, bytes): &(&String, &bytes::Bytes)| PromptHash::of(bytes).as_str() != hash.as_str();
        let count = state.prompts.iter().filter(wrong).count() as u64;
        report.add("prompts do not have their hash", count, None);
        Ok(report)
    }

    async fn backup(&self, _to: &Path) -> Result<(), StoreError> {
        Err(invalid("this store is in memory only; there is no file to copy"))
    }

    async fn vacuum(&self, _force: bool) -> Result<VacuumOutcome, StoreError> {
        Err(invalid("this store is in memory only; there is no file to make smaller"))
    }

    async fn close(&self) {}
}
