//! Search on PostgreSQL: plain substrings, without regard to the case of ASCII letters.

use super::PostgresStore;
use super::errors::map;
use super::sql::read::{col, id, size, text, word};
use super::text::text_in;
use crate::error::StoreError;
use crate::ids::{ConversationId, MessageId};
use crate::limits::{SEARCH_MAX_HITS, SEARCH_QUERY_MAX_CHARS};
use crate::rules;
use crate::session::SearchHit;

pub(super) const SEARCH: &str = "SELECT m.conversation_id, c.title, m.id, m.seq, m.role, m.content, m.created_ms \
     FROM messages m JOIN conversations c ON c.id = m.conversation_id \
     WHERE m.state <> 'superseded' AND m.kind <> 'hidden' AND (CAST($2 AS TEXT) IS NULL OR c.profile = $2) \
     AND STRPOS(LOWER(m.content COLLATE \"C\"), $1) > 0 \
     ORDER BY m.created_ms DESC, m.conversation_id DESC, m.seq DESC LIMIT $3";

impl PostgresStore {
    pub(super) async fn find_text(
        &self,
        query: &str,
        profile: Option<&str>,
        limit: usize,
    ) -> Result<Vec<SearchHit>, StoreError> {
        if query.chars().count() > SEARCH_QUERY_MAX_CHARS {
            return Err(StoreError::Limit { what: "the search text", limit: SEARCH_QUERY_MAX_CHARS as u64 });
        }
        let query = query.trim();
        if query.is_empty() {
            return Ok(Vec::new());
        }
        let rows = sqlx::query(SEARCH)
            .bind(text_in(&query.to_ascii_lowercase()))
            .bind(profile)
            .bind(size(limit.min(SEARCH_MAX_HITS)))
            .fetch_all(self.readers())
            .await
            .map_err(map)?;
        let mut hits = Vec::with_capacity(rows.len());
        for row in &rows {
            let content = text(row, 5)?;
            hits.push(SearchHit {
                conversation: word(row, 0, id(ConversationId::parse))?,
                title: col(row, 1)?,
                message: word(row, 2, id(MessageId::parse))?,
                seq: col(row, 3)?,
                role: col(row, 4)?,
                snippet: rules::snippet(&content, query).unwrap_or_default(),
                created_at_ms: col(row, 6)?,
            });
        }
        Ok(hits)
    }
}
