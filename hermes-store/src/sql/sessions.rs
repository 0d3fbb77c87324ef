//! Conversations and sessions.

use async_trait::async_trait;

use super::driver::{Backend, Row, map};
use super::read::{admission, admission_columns, col, count, id, size, word, word_or_null};
use super::transcript::Touch;
use crate::admission::{AdmissionRecord, AdmissionStatus};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{ConversationId, Generation, SessionId, Token};
use crate::limits::PAGE_MAX_ROWS;
use crate::message::UsageTotals;
use crate::patience::WriteKind;
use crate::prompt::PromptHash;
use crate::rules::{self, invalid, not_found};
use crate::session::{ConversationFilter, ConversationSummary, SearchHit, SessionRecord, TitleSource};
use crate::traits::SessionStore;

macro_rules! summary {
    ($rest:literal) => {
        concat!(
            "SELECT c.id, c.tip, c.profile, c.source, c.title, c.title_source, s.provider, s.model, s.cwd, \
             c.message_count, c.preview, c.created_ms, c.activity_ms, (SELECT a.status FROM admissions a WHERE \
             a.conversation_id = c.id AND a.status <> 'terminal' ORDER BY a.seq LIMIT 1) \
             FROM conversations c LEFT JOIN sessions s ON s.id = c.tip ",
            $rest
        )
    };
}

const LIST: &str = summary!(
    "WHERE ($1 IS NULL OR c.profile = $1) AND ($2 IS NULL OR c.source = $2) AND ($3 IS NULL OR c.activity_ms < $3) \
     AND ($4 IS NULL OR substr(c.id, 1, CAST($5 AS INTEGER)) = $4) AND ($6 = 0 OR c.title = $7) \
     ORDER BY c.activity_ms DESC, c.id DESC LIMIT $8"
);
const ONE: &str = summary!("WHERE c.id = $1");
const SESSION: &str = "SELECT conversation_id, parent_id, provider, model, cwd, prompt_hash, tools_hash, started_ms, \
     ended_ms, end_reason FROM sessions WHERE id = $1";
const SET_TITLE: &str = "UPDATE conversations SET title = $2, title_source = $3 WHERE id = $1";
const USAGE: &str = "SELECT provider, model, task, COUNT(*), CAST(SUM(1 - known) AS BIGINT), CAST(SUM(input) AS BIGINT), \
     CAST(SUM(output) AS BIGINT), CAST(SUM(cache_read) AS BIGINT), CAST(SUM(cache_write) AS BIGINT), \
     CAST(SUM(reasoning) AS BIGINT) FROM usage_log WHERE conversation_id = $1 GROUP BY provider, model, task \
     ORDER BY provider, model, task";
const EXISTS: &str = "SELECT COUNT(*) FROM conversations WHERE id = $1";
const NEXT_GENERATION: &str = "INSERT INTO routes (source, route_key, generation) VALUES ($1, $2, 1) \
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
const DELETE: [&str; 9] = [
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
        profile: col(row, 2)?,
        source: col(row, 3)?,
        title: col(row, 4)?,
        title_source: word_or_null(row, 5, TitleSource::parse)?,
        provider: col(row, 6)?,
        model: col(row, 7)?,
        cwd: col(row, 8)?,
        messages: count(row, 9)?,
        preview: col(row, 10)?,
        created_at_ms: col(row, 11)?,
        last_activity_ms: col(row, 12)?,
        pending: word_or_null(row, 13, AdmissionStatus::parse)?,
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
        let title = filter.title.as_deref().and_then(rules::clean_title);
        let prefix_chars = filter.id_prefix.as_deref().map_or(0, |prefix| prefix.chars().count());
        let rows = sqlx::query(LIST)
            .bind(&filter.profile)
            .bind(&filter.source)
            .bind(filter.before_ms)
            .bind(&filter.id_prefix)
            .bind(size(prefix_chars))
            .bind(i64::from(filter.title.is_some()))
            .bind(title)
            .bind(size(filter.limit.min(PAGE_MAX_ROWS)))
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
        let row = row.ok_or_else(|| not_found("session", session))?;
        Ok(SessionRecord {
            id: session.clone(),
            conversation: word(&row, 0, id(ConversationId::parse))?,
            parent: word_or_null(&row, 1, id(SessionId::parse))?,
            provider: col(&row, 2)?,
            model: col(&row, 3)?,
            cwd: col(&row, 4)?,
            prompt: PromptHash::from_stored(col(&row, 5)?),
            tools: PromptHash::from_stored(col(&row, 6)?),
            started_at_ms: col(&row, 7)?,
            ended_at_ms: col(&row, 8)?,
            end_reason: col(&row, 9)?,
        })
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
                let set = sqlx::query(SET_TITLE).bind(fence.conversation().as_str()).bind(&clean).bind(source.as_str());
                set.execute(tx.conn()).await.map_err(map)?;
                clean
            }
        };
        tx.commit().await?;
        Ok(title)
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
        self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        let waiting: Option<String> =
            sqlx::query_scalar(WAITING).bind(id.as_str()).fetch_optional(tx.conn()).await.map_err(map)?;
        if let Some(waiting) = waiting {
            return Err(invalid(format!("input {waiting} of the conversation is not over")));
        }
        super::work::forget(tx.conn(), id).await?;
        super::delegations::forget(tx.conn(), id).await?;
        sqlx::query(BURY).bind(id.as_str()).execute(tx.conn()).await.map_err(map)?;
        let sessions = sqlx::query(PROMPTS_OF).bind(id.as_str()).fetch_all(tx.conn()).await.map_err(map)?;
        for statement in DELETE {
            sqlx::query(statement).bind(id.as_str()).execute(tx.conn()).await.map_err(map)?;
        }
        let mut hashes = std::collections::BTreeSet::new();
        for row in &sessions {
            hashes.insert(col::<String>(row, 0)?);
            hashes.insert(col::<String>(row, 1)?);
        }
        for hash in hashes {
            sqlx::query(TAKE_PROMPT).bind(&hash).execute(tx.conn()).await.map_err(map)?;
            sqlx::query(DELETE_PROMPT).bind(&hash).execute(tx.conn()).await.map_err(map)?;
        }
        tx.commit().await
    }

    async fn search(&self, query: &str, profile: Option<&str>, limit: usize) -> Result<Vec<SearchHit>, StoreError> {
        self.find_text(query, profile, limit).await
    }

    async fn usage(&self, conversation: &ConversationId) -> Result<Vec<UsageTotals>, StoreError> {
        self.exists(conversation).await?;
        let rows = sqlx::query(USAGE).bind(conversation.as_str()).fetch_all(self.readers()).await.map_err(map)?;
        let totals = |row: &Row| {
            Ok(UsageTotals {
                provider: col(row, 0)?,
                model: col(row, 1)?,
                task: col(row, 2)?,
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
        let next = sqlx::query_scalar(NEXT_GENERATION).bind(source).bind(key).fetch_one(tx.conn()).await;
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
