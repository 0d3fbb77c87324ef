//! Flags, ends, names, and what is let go.

use super::driver::{Backend, Conn, Row, WriteTx, map, text_in};
use super::fenced::Touch;
use super::read::{col, count, id, size, text_or_null, word};
use super::schema::Group;
use super::sessions::{SESSION_COLUMNS_ROWS, erase, session_record, summary_of_id};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::history;
use crate::ids::{ConversationId, SessionId};
use crate::limits::{PRUNE_EMPTY_MS, PRUNE_MAX_CONVERSATIONS};
use crate::patience::WriteKind;
use crate::retention::{self, END_IDLE, PruneReport, PruneRules, PruneStep, Pruned};
use crate::rules::{conflict, invalid, ms, not_found};
use crate::session::{ConversationFlags, ConversationSummary, FlagChange, SessionRecord};

/// `aliases`: other ids of a conversation. `maintenance`: when each kind of upkeep was done last.
pub(crate) const TABLES: Group = &[
    "ALTER TABLE conversations ADD COLUMN archived BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE conversations ADD COLUMN auto_archived BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE conversations ADD COLUMN pinned BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE conversations ADD COLUMN hidden BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE conversations ADD COLUMN ended_ms BIGINT",
    "ALTER TABLE conversations ADD COLUMN end_reason TEXT",
    "CREATE TABLE aliases (
        id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE
    )",
    "CREATE INDEX aliases_by_conversation ON aliases (conversation_id)",
    "CREATE TABLE maintenance (name TEXT PRIMARY KEY NOT NULL, done_ms BIGINT NOT NULL)",
];

const FLAGS: &str = "SELECT archived, auto_archived, pinned, hidden FROM conversations WHERE id = $1";
const SET_FLAGS: &str =
    "UPDATE conversations SET archived = $2, auto_archived = $3, pinned = $4, hidden = $5 WHERE id = $1";
const END: &str = "UPDATE conversations SET ended_ms = $2, end_reason = $3 WHERE id = $1 AND ended_ms IS NULL";
const EXISTS: &str = "SELECT id FROM conversations WHERE id = $1";
/// What an id belongs to: a session, a conversation without one yet, another id.
const OWNER_OF_ID: &str = "SELECT COALESCE((SELECT conversation_id FROM sessions WHERE id = $1), \
     (SELECT id FROM conversations WHERE id = $1), (SELECT conversation_id FROM aliases WHERE id = $1))";
const INSERT_ALIAS: &str = "INSERT INTO aliases (id, conversation_id) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";

const LAST_RUN: &str = "SELECT done_ms FROM maintenance WHERE name = 'prune'";
const NOTE_RUN: &str = "INSERT INTO maintenance (name, done_ms) VALUES ('prune', $1) \
     ON CONFLICT (name) DO UPDATE SET done_ms = excluded.done_ms";

/// Conversations to which one rule applies, the longest idle first. $1 is the time now, $2 that before which it must
/// have been idle, $3 the number wanted.
macro_rules! candidates {
    ($rule:literal, $only:literal) => {
        concat!(
            "SELECT c.id, c.title, c.message_count, c.activity_ms FROM conversations c WHERE ",
            $only,
            "c.activity_ms <= $2 AND ",
            $rule,
            " AND c.pinned = 0 AND c.open_turn IS NULL AND (c.lease_owner IS NULL OR c.lease_expires_ms <= $1) \
             AND NOT EXISTS (SELECT 1 FROM admissions a WHERE a.conversation_id = c.id AND a.status <> 'terminal') \
             AND NOT EXISTS (SELECT 1 FROM worker_executions w WHERE w.conversation_id = c.id \
             AND w.state <> 'terminal') AND NOT EXISTS (SELECT 1 FROM async_delegations d \
             WHERE (d.parent_id = c.id OR d.child_id = c.id) AND d.state IN ('running', 'unknown')) \
             ORDER BY c.activity_ms, c.id LIMIT $3"
        )
    };
}

macro_rules! rule {
    ($rule:literal) => {
        (candidates!($rule, ""), candidates!($rule, "c.id = $4 AND "))
    };
}

const REMOVED: (&str, &str) = rule!("c.ended_ms <= $2");
const EMPTY: (&str, &str) = rule!(
    "NOT EXISTS (SELECT 1 FROM messages m WHERE m.conversation_id = c.id) \
     AND NOT EXISTS (SELECT 1 FROM admissions a WHERE a.conversation_id = c.id)"
);
const ENDED: (&str, &str) = rule!("c.ended_ms IS NULL");
const ARCHIVED: (&str, &str) = rule!("c.archived = 0");
const TAKE: &str = "UPDATE conversations SET revision = revision + 1 WHERE id = $1 RETURNING id";
const ARCHIVE: &str = "UPDATE conversations SET archived = 1, auto_archived = 1 WHERE id = $1";

/// The statements of a rule (all, and only one conversation) and the age that it asks for.
fn rule(step: PruneStep, rules: &PruneRules) -> Option<((&'static str, &'static str), u64)> {
    match step {
        PruneStep::Removed => Some((REMOVED, rules.idle_ms)),
        PruneStep::Empty => Some((EMPTY, PRUNE_EMPTY_MS)),
        PruneStep::Ended => Some((ENDED, rules.idle_ms)),
        PruneStep::Archived => rules.archive_ms.map(|age| (ARCHIVED, age)),
    }
}

fn pruned(row: &Row, step: PruneStep) -> Result<Pruned, StoreError> {
    Ok(Pruned {
        conversation: word(row, 0, id(ConversationId::parse))?,
        step,
        title: text_or_null(row, 1)?,
        messages: count(row, 2)?,
        last_activity_ms: col(row, 3)?,
    })
}

/// The conversation that an id belongs to.
async fn owner_of_id(conn: &mut Conn, text: &str) -> Result<Option<ConversationId>, StoreError> {
    let row = sqlx::query(OWNER_OF_ID).bind(text).fetch_one(conn).await.map_err(map)?;
    super::read::word_or_null(&row, 0, id(ConversationId::parse))
}

async fn let_go(tx: &mut WriteTx, step: PruneStep, id: &ConversationId, now: i64) -> Result<(), StoreError> {
    match step {
        PruneStep::Removed | PruneStep::Empty => return erase(tx.conn(), id).await,
        PruneStep::Ended => {
            let end = sqlx::query(END).bind(id.as_str()).bind(now).bind(END_IDLE);
            end.execute(tx.conn()).await.map_err(map)?;
        }
        PruneStep::Archived => {
            sqlx::query(ARCHIVE).bind(id.as_str()).execute(tx.conn()).await.map_err(map)?;
        }
    }
    Ok(())
}

impl Backend {
    pub(super) async fn change_flags(
        &self,
        fence: &Fence,
        change: FlagChange,
    ) -> Result<ConversationFlags, StoreError> {
        let mut tx = self.write_within(WriteKind::Normal).await?;
        let now = tx.now();
        self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        let id = fence.conversation().as_str();
        let row = sqlx::query(FLAGS).bind(id).fetch_one(tx.conn()).await.map_err(map)?;
        let flags = change.apply(flags(&row, 0)?);
        sqlx::query(SET_FLAGS)
            .bind(id)
            .bind(i64::from(flags.archived))
            .bind(i64::from(flags.auto_archived))
            .bind(i64::from(flags.pinned))
            .bind(i64::from(flags.hidden))
            .execute(tx.conn())
            .await
            .map_err(map)?;
        tx.commit().await?;
        Ok(flags)
    }

    pub(super) async fn end(&self, fence: &Fence, reason: &str) -> Result<(), StoreError> {
        retention::check_reason(reason)?;
        let mut tx = self.write_within(WriteKind::Normal).await?;
        let now = tx.now();
        let fenced = self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        if let Some(turn) = fenced.open_turn {
            return Err(invalid(format!("turn {turn} is open; stop it, or wait for its end")));
        }
        let end = sqlx::query(END).bind(fence.conversation().as_str()).bind(now).bind(text_in(reason));
        end.execute(tx.conn()).await.map_err(map)?;
        tx.commit().await
    }

    pub(super) async fn sessions_of(&self, conversation: &ConversationId) -> Result<Vec<SessionRecord>, StoreError> {
        let mut conn = self.readers().acquire().await.map_err(map)?;
        let found = sqlx::query(EXISTS).bind(conversation.as_str()).fetch_optional(&mut *conn).await.map_err(map)?;
        found.ok_or_else(|| not_found("conversation", conversation))?;
        let rows = sqlx::query(SESSION_COLUMNS_ROWS).bind(conversation.as_str()).fetch_all(&mut *conn).await;
        let sessions = rows.map_err(map)?.iter().map(session_record).collect::<Result<_, _>>()?;
        Ok(history::in_line(sessions))
    }

    pub(super) async fn tip_of_any(&self, text: &str) -> Result<ConversationSummary, StoreError> {
        // What is no id names nothing, and is not sent to a database.
        SessionId::parse(text).map_err(|_| not_found("session", text))?;
        let mut conn = self.readers().acquire().await.map_err(map)?;
        let found = owner_of_id(&mut conn, text).await?.ok_or_else(|| not_found("session", text))?;
        summary_of_id(&mut conn, &found).await
    }

    pub(super) async fn alias(&self, fence: &Fence, alias: &SessionId) -> Result<(), StoreError> {
        let mut tx = self.write_within(WriteKind::Normal).await?;
        let now = tx.now();
        self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        let id = fence.conversation();
        let insert = sqlx::query(INSERT_ALIAS).bind(alias.as_str()).bind(id.as_str());
        match owner_of_id(tx.conn(), alias.as_str()).await? {
            Some(known) if known != *id => return Err(conflict("id", alias)),
            Some(_) => {}
            None if insert.execute(tx.conn()).await.map_err(map)?.rows_affected() == 0 => {
                return Err(conflict("id", alias));
            }
            None => {}
        }
        tx.commit().await
    }

    pub(super) async fn run_prune(&self, rules: PruneRules) -> Result<PruneReport, StoreError> {
        let mut report = PruneReport { is_due: true, ..PruneReport::default() };
        let (now, last) = self.last_prune().await?;
        if !rules.dry_run && last.is_some_and(|last| now < last.min(now).saturating_add(ms(rules.every_ms))) {
            return Ok(PruneReport::default());
        }
        let limit = rules.limit.min(PRUNE_MAX_CONVERSATIONS);
        for step in PruneStep::ALL {
            let Some(((all, one), age)) = rule(step, &rules) else { continue };
            let before = now.saturating_sub(ms(age));
            // Those of earlier rules may come again in a dry run: they are still there.
            let wanted = size(limit + 1 + if rules.dry_run { report.done.len() } else { 0 });
            let rows = sqlx::query(all).bind(now).bind(before).bind(wanted).fetch_all(self.readers()).await;
            let mut found: Vec<Pruned> =
                rows.map_err(map)?.iter().map(|row| pruned(row, step)).collect::<Result<_, _>>()?;
            found.retain(|new| !report.done.iter().any(|known| known.conversation == new.conversation));
            let room = limit.saturating_sub(report.done.len());
            report.has_more |= found.len() > room;
            for candidate in found.into_iter().take(room) {
                let id = &candidate.conversation;
                if rules.dry_run || self.prune_one(one, step, id, now, before).await? {
                    report.done.push(candidate);
                }
            }
        }
        if !rules.dry_run && !report.has_more {
            let mut tx = self.write_within(WriteKind::Normal).await?;
            sqlx::query(NOTE_RUN).bind(now).execute(tx.conn()).await.map_err(map)?;
            tx.commit().await?;
        }
        Ok(report)
    }

    /// The time by the clock of ownership, and that of the last run.
    async fn last_prune(&self) -> Result<(i64, Option<i64>), StoreError> {
        let mut tx = self.write_within(WriteKind::Normal).await?;
        let now = tx.now();
        let last: Option<i64> = sqlx::query_scalar(LAST_RUN).fetch_optional(tx.conn()).await.map_err(map)?;
        tx.rollback().await?;
        Ok((now, last))
    }

    /// Applies a rule to one conversation, when it still applies with the conversation's row held.
    async fn prune_one(
        &self,
        statement: &'static str,
        step: PruneStep,
        id: &ConversationId,
        now: i64,
        before: i64,
    ) -> Result<bool, StoreError> {
        let mut tx = self.write_within(WriteKind::Normal).await?;
        if matches!(step, PruneStep::Removed | PruneStep::Empty) {
            // Routes are always taken before the conversation.
            super::inbound::leave_routes(tx.conn(), id).await?;
        }
        let taken = sqlx::query(TAKE).bind(id.as_str()).fetch_optional(tx.conn()).await.map_err(map)?;
        let still = sqlx::query(statement).bind(now).bind(before).bind(1_i64).bind(id.as_str());
        if taken.is_none() || still.fetch_optional(tx.conn()).await.map_err(map)?.is_none() {
            tx.rollback().await?;
            return Ok(false);
        }
        match let_go(&mut tx, step, id, now).await {
            Ok(()) => {}
            // Something of it is not over, by the rules of a deletion.
            Err(StoreError::Invalid { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        tx.commit().await?;
        Ok(true)
    }
}

/// Flags from four columns.
pub(super) fn flags(row: &Row, from: usize) -> Result<ConversationFlags, StoreError> {
    Ok(ConversationFlags {
        archived: col::<i64>(row, from)? != 0,
        auto_archived: col::<i64>(row, from + 1)? != 0,
        pinned: col::<i64>(row, from + 2)? != 0,
        hidden: col::<i64>(row, from + 3)? != 0,
    })
}
