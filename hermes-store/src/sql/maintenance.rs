//! The check of what stands in a database, and what each back end adds to it.

use std::path::Path;

use async_trait::async_trait;

use super::driver::{Backend, map};
use super::read::{col, size};
use crate::error::StoreError;
use crate::limits::CHECK_PAGE_PROMPTS;
use crate::maintenance::{CheckDepth, CheckReport, MaintenanceStore, VacuumOutcome};
use crate::prompt::PromptHash;

/// What must not be, each as a statement that counts it and names one.
const CHECKS: &[(&str, &str)] = &[
    (
        "calls of a turn that is over have no result",
        "SELECT COUNT(*), MIN(c.id) FROM calls c WHERE c.state <> 'settled' \
         AND NOT EXISTS (SELECT 1 FROM conversations v WHERE v.id = c.conversation_id AND v.open_turn = c.turn_id) \
         AND NOT EXISTS (SELECT 1 FROM admissions a WHERE a.conversation_id = c.conversation_id \
         AND a.turn_id = c.turn_id AND a.status = 'unknown')",
    ),
    (
        "results are not stored, though their call says so",
        "SELECT COUNT(*), MIN(c.id) FROM calls c WHERE c.state = 'settled' AND NOT EXISTS (SELECT 1 FROM messages m \
         WHERE m.id = c.result_id AND m.call_id = c.id AND m.conversation_id = c.conversation_id)",
    ),
    (
        "results answer no call",
        "SELECT COUNT(*), MIN(m.id) FROM messages m WHERE m.role = 'tool' \
         AND NOT EXISTS (SELECT 1 FROM calls c WHERE c.id = m.call_id)",
    ),
    (
        "results are not in the place that was kept for them",
        "SELECT COUNT(*), MIN(m.id) FROM calls c JOIN messages m ON m.id = c.result_id WHERE m.seq <> c.result_seq",
    ),
    (
        "calls do not stand behind their round",
        "SELECT COUNT(*), MIN(c.id) FROM calls c WHERE c.result_seq <= c.assistant_seq \
         OR NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = c.assistant_id AND m.seq = c.assistant_seq)",
    ),
    (
        "rows stand beyond the last place of their conversation",
        "SELECT COUNT(*), MIN(m.id) FROM messages m JOIN conversations v ON v.id = m.conversation_id WHERE m.seq > v.seq",
    ),
    (
        "rows are of a session of another conversation",
        "SELECT COUNT(*), MIN(m.id) FROM messages m WHERE NOT EXISTS (SELECT 1 FROM sessions s \
         WHERE s.id = m.session_id AND s.conversation_id = m.conversation_id)",
    ),
    (
        "copies have no first row",
        "SELECT COUNT(*), MIN(m.id) FROM messages m WHERE m.copy_of IS NOT NULL AND NOT EXISTS (SELECT 1 FROM messages f \
         WHERE f.id = m.copy_of AND f.copy_of IS NULL AND f.conversation_id = m.conversation_id)",
    ),
    (
        "conversations count their rows wrongly",
        "SELECT COUNT(*), MIN(v.id) FROM conversations v WHERE v.message_count <> (SELECT COUNT(*) FROM messages m \
         WHERE m.conversation_id = v.id AND m.state <> 'superseded' AND m.kind <> 'hidden' AND m.copy_of IS NULL)",
    ),
    (
        "conversations have a tip that is no open session of theirs",
        "SELECT COUNT(*), MIN(v.id) FROM conversations v WHERE v.tip IS NOT NULL AND NOT EXISTS (SELECT 1 FROM sessions s \
         WHERE s.id = v.tip AND s.conversation_id = v.id AND s.ended_ms IS NULL)",
    ),
    (
        "sessions have a parent in no, or in another, conversation",
        "SELECT COUNT(*), MIN(s.id) FROM sessions s WHERE s.parent_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM sessions p \
         WHERE p.id = s.parent_id AND p.conversation_id = s.conversation_id)",
    ),
    (
        "sessions have more than one child",
        "SELECT COUNT(*), MIN(s.id) FROM sessions s WHERE s.parent_id IS NOT NULL AND EXISTS (SELECT 1 FROM sessions o \
         WHERE o.conversation_id = s.conversation_id AND o.parent_id = s.parent_id AND o.id < s.id)",
    ),
    (
        "conversations are said to have a turn at work that is not",
        "SELECT COUNT(*), MIN(v.id) FROM conversations v WHERE v.open_turn IS NOT NULL AND NOT EXISTS (SELECT 1 \
         FROM turns t WHERE t.id = v.open_turn AND t.conversation_id = v.id AND t.status = 'running')",
    ),
    (
        "inputs were begun and belong to no open turn",
        "SELECT COUNT(*), MIN(a.id) FROM admissions a WHERE a.status = 'started' AND NOT EXISTS (SELECT 1 \
         FROM conversations v WHERE v.id = a.conversation_id AND v.open_turn = a.turn_id)",
    ),
    (
        "counters went back",
        "SELECT COUNT(*), MIN(v.id) FROM conversations v JOIN tombstones t ON t.id = v.id WHERE v.token < t.token \
         OR v.generation < t.generation OR v.seq < t.seq OR v.place < t.place",
    ),
];

const SIZES: &str = "SELECT (SELECT COUNT(*) FROM conversations), (SELECT COUNT(*) FROM messages), \
     (SELECT COUNT(*) FROM calls)";
const PROMPTS: &str = "SELECT hash, bytes FROM prompts WHERE hash > $1 ORDER BY hash LIMIT $2";

impl Backend {
    /// Hashes every prompt, a page at a time.
    async fn check_prompts(&self, report: &mut CheckReport) -> Result<(), StoreError> {
        let mut after = String::new();
        let (mut wrong, mut example) = (0, None);
        loop {
            let rows = sqlx::query(PROMPTS).bind(&after).bind(size(CHECK_PAGE_PROMPTS)).fetch_all(self.readers()).await;
            let rows = rows.map_err(map)?;
            for row in &rows {
                after = col(row, 0)?;
                report.prompts += 1;
                if PromptHash::of(col::<&[u8]>(row, 1)?).as_str() != after {
                    wrong += 1;
                    example.get_or_insert_with(|| after.clone());
                }
            }
            if rows.len() < CHECK_PAGE_PROMPTS {
                report.add("prompts do not have their hash", wrong, example);
                return Ok(());
            }
        }
    }
}

#[async_trait]
impl MaintenanceStore for Backend {
    async fn check(&self, depth: CheckDepth) -> Result<CheckReport, StoreError> {
        let mut report = CheckReport::default();
        self.check_engine(depth, &mut report).await?;
        let sizes = sqlx::query(SIZES).fetch_one(self.readers()).await.map_err(map)?;
        report.conversations = col::<i64>(&sizes, 0)?.unsigned_abs();
        report.rows = col::<i64>(&sizes, 1)?.unsigned_abs();
        report.calls = col::<i64>(&sizes, 2)?.unsigned_abs();
        for (what, sql) in CHECKS {
            let row = sqlx::query(*sql).fetch_one(self.readers()).await.map_err(map)?;
            report.add(what, col::<i64>(&row, 0)?.unsigned_abs(), col(&row, 1)?);
        }
        self.check_prompts(&mut report).await?;
        Ok(report)
    }

    async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        self.copy_file(to).await
    }

    async fn vacuum(&self, force: bool) -> Result<VacuumOutcome, StoreError> {
        self.vacuum_file(force).await
    }

    async fn close(&self) {
        Self::close(self).await;
    }
}
