//! Conversations and sessions.

use async_trait::async_trait;

use super::driver::{Backend, Conn, Row, map, text_in};
use super::fenced::Touch;
use super::read::{
    admission, admission_columns, col, count, id, signed, size, text, text_in_or_null, text_or_null, word, word_or_null,
};
use super::retention::flags;
use crate::admission::{AdmissionRecord, AdmissionStatus};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{ConversationId, Generation, SessionId, Token};
use crate::limits::{PAGE_MAX_ROWS, USAGE_MAX_TOKENS};
use crate::message::UsageTotals;
use crate::patience::WriteKind;
use crate::prompt::PromptHash;
use crate::retention::{PruneReport, PruneRules};
use crate::rules::{self, invalid, not_found};
use crate::session::{
    ConversationFilter, ConversationFlags, ConversationSummary, FlagChange, SessionRecord, TitleSource,
};
use crate::traits::SessionStore;

macro_rules! summary {
    ($rest:literal) => {
        concat!(
            "SELECT c.id, c.tip, c.profile, c.source, c.title, c.title_source, s.provider, s.model, s.cwd, \
             c.message_count, c.preview, c.created_ms, c.activity_ms, (SELECT a.status FROM admissions a WHERE \
             a.conversation_id = c.id AND a.status <> 'terminal' ORDER BY a.seq LIMIT 1), \
             c.archived, c.auto_archived, c.pinned, c.hidden, c.ended_ms, c.branched_from \
             FROM conversations c LEFT JOIN sessions s ON s.id = c.tip ",
            $rest
        )
    };
}

const LIST: &str = summary!(
    "WHERE (CAST($1 AS TEXT) IS NULL OR c.profile = $1) AND (CAST($2 AS TEXT) IS NULL OR c.source = $2) \
     AND (CAST($3 AS BIGINT) IS NULL OR c.activity_ms < $3 OR (c.activity_ms = $3 AND c.id < $9)) \
     AND (CAST($4 AS TEXT) IS NULL OR substr(c.id, 1, CAST($5 AS INTEGER)) = $4) AND ($6 = 0 OR c.title = $7) \
     AND (CAST($10 AS BIGINT) IS NULL OR c.archived = $10) AND (CAST($11 AS BIGINT) IS NULL OR c.pinned = $11) \
     AND (CAST($12 AS BIGINT) IS NULL OR c.hidden = $12) AND c.message_count >= $13 \
     AND (CAST($14 AS TEXT) IS NULL OR s.cwd = $14 OR substr(s.cwd, 1, CAST($15 AS INTEGER)) = $16) \
     AND (CAST($17 AS TEXT) IS NULL OR lower(c.id) LIKE $17 ESCAPE '\\' OR lower(c.title) LIKE $17 ESCAPE '\\') \
     ORDER BY c.activity_ms DESC, c.id DESC LIMIT $8"
);
const ONE: &str = summary!("WHERE c.id = $1");
macro_rules! sessions {
    ($where:literal) => {
        concat!(
            "SELECT conversation_id, parent_id, provider, model, cwd, prompt_hash, tools_hash, started_ms, ended_ms, \
             end_reason, id FROM sessions ",
            $where
        )
    };
}

const SESSION: &str = sessions!("WHERE id = $1");
pub(super) const SESSION_COLUMNS_ROWS: &str = sessions!("WHERE conversation_id = $1");
const SET_TITLE: &str = "UPDATE conversations SET title = $2, title_source = $3 WHERE id = $1";
/// A sum in which no request counts more than $2: one that overflows is an error, and the conversation could not be shown
/// or exported any more because of what a provider said.
macro_rules! sum {
    ($column:literal) => {
        concat!("CAST(SUM(CASE WHEN ", $column, " > $2 THEN $2 ELSE ", $column, " END) AS BIGINT)")
    };
}

const USAGE: &str = concat!(
    "SELECT provider, model, task, ",
    sum!("requests"),
    ", ",
    sum!("(1 - known) * requests"),
    ", ",
    sum!("input"),
    ", ",
    sum!("output"),
    ", ",
    sum!("cache_read"),
    ", ",
    sum!("cache_write"),
    ", ",
    sum!("reasoning"),
    " FROM usage_log WHERE conversation_id = $1 GROUP BY provider, model, task ORDER BY provider, model, task"
);
const EXISTS: &str = "SELECT COUNT(*) FROM conversations WHERE id = $1";
const NEXT_GENERATION: &str = "INSERT INTO routes (source, route_key, generation) VALUES ($1, $2, \
     1 + COALESCE((SELECT MAX(generation) FROM tombstones WHERE id = '*'), 0)) \
     ON CONFLICT (source, route_key) DO UPDATE SET generation = routes.generation + 1 RETURNING generation";
const QUEUE: &str = concat!(
    "SELECT ",
    admission_columns!(),
    " FROM admissions WHERE conversation_id = $1 AND status <> 'terminal' ORDER BY seq"
);

const LEFT_BEHIND: &str = "SELECT token FROM tombstones WHERE id = $1 AND NOT EXISTS \
     (SELECT 1 FROM conversations WHERE id = $1)";
const WAITING: &str = "SELECT id FROM admissions WHERE conversation_id = $1 AND status <> 'terminal' LIMIT 1";
const BURY: &str = "INSERT INTO tombstones (id, token, generation, seq, place) \
     SELECT id, token, generation, seq, place FROM conversations WHERE id = $1 \
     ON CONFLICT (id) DO UPDATE SET token = excluded.token, generation = excluded.generation, seq = excluded.seq, \
     place = excluded.place";
const PROMPTS_OF: &str = "SELECT prompt_hash, tools_hash FROM sessions WHERE conversation_id = $1";
/// In this order: what refers goes before what is referred to.
const DELETE: [&str; 10] = [
    super::search::NOTE_DELETED,
    "DELETE FROM history_changes WHERE conversation_id = $1",
    "DELETE FROM compression_locks WHERE conversation_id = $1",
    "DELETE FROM calls WHERE conversation_id = $1",
    "DELETE FROM messages WHERE conversation_id = $1",
    "DELETE FROM usage_log WHERE conversation_id = $1",
    "DELETE FROM sessions WHERE conversation_id = $1",
    "DELETE FROM turns WHERE conversation_id = $1",
    "DELETE FROM admissions WHERE conversation_id = $1",
    "DELETE FROM conversations WHERE id = $1",
];
/// Holds the row, so that the next statement sees every session that refers to it.
const TAKE_PROMPT: &str = "UPDATE prompts SET hash = hash WHERE hash = $1";
const DELETE_PROMPT: &str = "DELETE FROM prompts WHERE hash = $1 AND NOT EXISTS \
     (SELECT 1 FROM sessions WHERE prompt_hash = $1) AND NOT EXISTS (SELECT 1 FROM sessions WHERE tools_hash = $1)";

fn summary(row: &Row) -> Result<ConversationSummary, StoreError> {
    Ok(ConversationSummary {
        id: word(row, 0, id(ConversationId::parse))?,
        tip: word_or_null(row, 1, id(SessionId::parse))?,
        profile: text(row, 2)?,
        source: text(row, 3)?,
        title: text_or_null(row, 4)?,
        title_source: word_or_null(row, 5, TitleSource::parse)?,
        provider: text_or_null(row, 6)?,
        model: text_or_null(row, 7)?,
        cwd: text_or_null(row, 8)?,
        messages: count(row, 9)?,
        preview: text_or_null(row, 10)?,
        created_at_ms: col(row, 11)?,
        last_activity_ms: col(row, 12)?,
        pending: word_or_null(row, 13, AdmissionStatus::parse)?,
        flags: flags(row, 14)?,
        ended_at_ms: col(row, 18)?,
        branched_from: word_or_null(row, 19, id(ConversationId::parse))?,
    })
}

/// Removes a conversation that is over, but for its counters.
pub(super) async fn erase(conn: &mut Conn, id: &ConversationId) -> Result<(), StoreError> {
    let waiting: Option<String> =
        sqlx::query_scalar(WAITING).bind(id.as_str()).fetch_optional(&mut *conn).await.map_err(map)?;
    if let Some(waiting) = waiting {
        return Err(invalid(format!("input {waiting} of the conversation is not over")));
    }
    super::delivery::forget(&mut *conn, id).await?;
    super::inbound::leave_routes(&mut *conn, id).await?;
    super::approval::forget(&mut *conn, id).await?;
    super::inbound::leave_receipts(&mut *conn, id).await?;
    super::work::forget(&mut *conn, id).await?;
    super::delegations::forget(&mut *conn, id).await?;
    sqlx::query(BURY).bind(id.as_str()).execute(&mut *conn).await.map_err(map)?;
    let sessions = sqlx::query(PROMPTS_OF).bind(id.as_str()).fetch_all(&mut *conn).await.map_err(map)?;
    for statement in DELETE {
        sqlx::query(statement).bind(id.as_str()).execute(&mut *conn).await.map_err(map)?;
    }
    let mut hashes = std::collections::BTreeSet::new();
    for row in &sessions {
        hashes.insert(col::<String>(row, 0)?);
        hashes.insert(col::<String>(row, 1)?);
    }
    for hash in hashes {
        sqlx::query(TAKE_PROMPT).bind(&hash).execute(&mut *conn).await.map_err(map)?;
        sqlx::query(DELETE_PROMPT).bind(&hash).execute(&mut *conn).await.map_err(map)?;
    }
    Ok(())
}

/// A conversation in a list.
pub(super) async fn summary_of_id(conn: &mut Conn, id: &ConversationId) -> Result<ConversationSummary, StoreError> {
    let row = sqlx::query(ONE).bind(id.as_str()).fetch_optional(conn).await.map_err(map)?;
    summary(&row.ok_or_else(|| not_found("conversation", id))?)
}

/// The pattern of a text that may stand anywhere.
fn like_part(text: &str) -> String {
    let mut out = String::from("%");
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            out.push('\\');
        }
        out.push(c.to_ascii_lowercase());
    }
    out.push('%');
    out
}

/// A session from [`SESSION`] or [`SESSION_COLUMNS_ROWS`].
pub(super) fn session_record(row: &Row) -> Result<SessionRecord, StoreError> {
    Ok(SessionRecord {
        conversation: word(row, 0, id(ConversationId::parse))?,
        parent: word_or_null(row, 1, id(SessionId::parse))?,
        provider: text(row, 2)?,
        model: text(row, 3)?,
        cwd: text_or_null(row, 4)?,
        prompt: PromptHash::from_stored(col(row, 5)?),
        tools: PromptHash::from_stored(col(row, 6)?),
        started_at_ms: col(row, 7)?,
        ended_at_ms: col(row, 8)?,
        end_reason: text_or_null(row, 9)?,
        id: word(row, 10, id(SessionId::parse))?,
    })
}

impl Backend {
    async fn exists(&self, id: &ConversationId) -> Result<(), StoreError> {
        let found: i64 = sqlx::query_scalar(EXISTS).bind(id.as_str()).fetch_one(self.readers()).await.map_err(map)?;
        match found {
            0 => Err(not_found("conversation", id)),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl SessionStore for Backend {
    async fn conversations(&self, filter: ConversationFilter) -> Result<Vec<ConversationSummary>, StoreError> {
        if filter.text.as_deref().is_some_and(|part| part.contains('\0')) {
            // No id and no title holds one, and a pattern of SQLite ends at it.
            return Ok(Vec::new());
        }
        let title = filter.title.as_deref().and_then(rules::clean_title);
        let prefix_chars = filter.id_prefix.as_deref().map_or(0, |prefix| prefix.chars().count());
        // As they are stored: their characters are counted.
        let dir = filter.cwd.as_deref().map(|dir| text_in(dir.trim_end_matches('/')));
        let below = dir.as_ref().map(|dir| format!("{dir}/"));
        let part = filter.text.as_deref().map(like_part);
        let rows = sqlx::query(LIST)
            .bind(text_in_or_null(filter.profile.as_deref()))
            .bind(text_in_or_null(filter.source.as_deref()))
            .bind(filter.before_ms)
            .bind(&filter.id_prefix)
            .bind(size(prefix_chars))
            .bind(i64::from(filter.title.is_some()))
            .bind(text_in_or_null(title.as_deref()))
            .bind(size(filter.limit.min(PAGE_MAX_ROWS)))
            .bind(filter.before_id.as_ref().map(ConversationId::as_str))
            .bind(filter.archived.map(i64::from))
            .bind(filter.pinned.map(i64::from))
            .bind(filter.hidden.map(i64::from))
            .bind(signed(filter.min_messages))
            .bind(dir.as_deref())
            .bind(below.as_ref().map_or(0, |below| size(below.chars().count())))
            .bind(&below)
            .bind(text_in_or_null(part.as_deref()))
            .fetch_all(self.readers())
            .await
            .map_err(map)?;
        rows.iter().map(summary).collect()
    }

    async fn conversation(&self, id: &ConversationId) -> Result<ConversationSummary, StoreError> {
        let row = sqlx::query(ONE).bind(id.as_str()).fetch_optional(self.readers()).await.map_err(map)?;
        summary(&row.ok_or_else(|| not_found("conversation", id))?)
    }

    async fn session(&self, session: &SessionId) -> Result<SessionRecord, StoreError> {
        let row = sqlx::query(SESSION).bind(session.as_str()).fetch_optional(self.readers()).await.map_err(map)?;
        session_record(&row.ok_or_else(|| not_found("session", session))?)
    }

    async fn set_title(&self, fence: &Fence, title: &str, source: TitleSource) -> Result<String, StoreError> {
        let clean =
            rules::clean_title(title).ok_or_else(|| invalid("nothing is left of the title; give another one"))?;
        let mut tx = self.write_within(WriteKind::Normal).await?;
        let now = tx.now();
        let held = self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        let stronger = held.title_source.as_deref().and_then(TitleSource::parse).is_some_and(|held| held > source);
        let title = match held.title {
            Some(title) if stronger => title,
            _ => {
                let set = sqlx::query(SET_TITLE)
                    .bind(fence.conversation().as_str())
                    .bind(text_in(&clean))
                    .bind(source.as_str());
                set.execute(tx.conn()).await.map_err(map)?;
                clean
            }
        };
        tx.commit().await?;
        Ok(title)
    }

    async fn set_flags(&self, fence: &Fence, change: FlagChange) -> Result<ConversationFlags, StoreError> {
        self.change_flags(fence, change).await
    }

    async fn end_conversation(&self, fence: &Fence, reason: &str) -> Result<(), StoreError> {
        self.end(fence, reason).await
    }

    async fn lineage(&self, conversation: &ConversationId) -> Result<Vec<SessionRecord>, StoreError> {
        self.sessions_of(conversation).await
    }

    async fn tip(&self, id: &str) -> Result<ConversationSummary, StoreError> {
        self.tip_of_any(id).await
    }

    async fn add_alias(&self, fence: &Fence, alias: &SessionId) -> Result<(), StoreError> {
        self.alias(fence, alias).await
    }

    async fn prune(&self, rules: PruneRules) -> Result<PruneReport, StoreError> {
        self.run_prune(rules).await
    }

    async fn delete_conversation(&self, fence: &Fence) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let id = fence.conversation();
        let left: Option<i64> =
            sqlx::query_scalar(LEFT_BEHIND).bind(id.as_str()).fetch_optional(tx.conn()).await.map_err(map)?;
        if left.map(Token) == Some(fence.token()) {
            return tx.rollback().await;
        }
        super::inbound::leave_routes(tx.conn(), id).await?;
        self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        erase(tx.conn(), id).await?;
        tx.commit().await
    }

    async fn usage(&self, conversation: &ConversationId) -> Result<Vec<UsageTotals>, StoreError> {
        self.exists(conversation).await?;
        let rows = sqlx::query(USAGE).bind(conversation.as_str()).bind(USAGE_MAX_TOKENS);
        let rows = rows.fetch_all(self.readers()).await.map_err(map)?;
        let totals = |row: &Row| {
            Ok(UsageTotals {
                provider: text(row, 0)?,
                model: text(row, 1)?,
                task: text(row, 2)?,
                requests: count(row, 3)?,
                unknown: count(row, 4)?,
                input: count(row, 5)?,
                output: count(row, 6)?,
                cache_read: count(row, 7)?,
                cache_write: count(row, 8)?,
                reasoning: count(row, 9)?,
            })
        };
        rows.iter().map(totals).collect()
    }

    async fn next_generation(&self, source: &str, key: &str) -> Result<Generation, StoreError> {
        let mut tx = self.write().await?;
        let next = sqlx::query_scalar(NEXT_GENERATION).bind(text_in(source)).bind(text_in(key));
        let next = next.fetch_one(tx.conn()).await;
        let next = next.map_err(map)?;
        tx.commit().await?;
        Ok(Generation(next))
    }

    async fn queue(&self, conversation: &ConversationId) -> Result<Vec<AdmissionRecord>, StoreError> {
        self.exists(conversation).await?;
        let rows = sqlx::query(QUEUE).bind(conversation.as_str()).fetch_all(self.readers()).await.map_err(map)?;
        rows.iter().map(admission).collect()
    }
}
