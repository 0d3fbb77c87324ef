//! The most frequent write, one row at the end of a conversation, in statements that need no answer of each other.
//!
//! [`append`](crate::TranscriptStore::append) goes back and forth: the fence says where the row goes, the insert says
//! whether its id is new. A **plain** append is the case that nearly always holds (the fence holds, the turn runs, the id
//! is new), with all of these as conditions of the first statement, so that the others need only know whether it did
//! something. Each database runs it in one message. When a condition fails, nothing is changed and nothing is said about
//! why: `append` then takes the long way, which finds the words for it.

use sqlx::query::Query;

use super::driver::{Db, text_in};
use super::read::{signed, text_in_or_null};
use super::rows::meta_text;
use crate::fence::Fence;
use crate::ids::{ConversationId, TurnId};
use crate::message::{NewMessage, UsageDelta};
use crate::rules::{self, is_shown};

/// The fence of every write of an owner. The parameter of the time stands apart, because it is an expression where the
/// database's own clock counts.
macro_rules! fence {
    ($now:literal) => {
        concat!(
            "UPDATE conversations SET revision = revision + 1, activity_ms = CASE WHEN $4 = 1 THEN ",
            $now,
            " ELSE activity_ms END, lease_expires_ms = CASE WHEN lease_expires_ms <= ",
            $now,
            " THEN ",
            $now,
            " + lease_ttl_ms ELSE lease_expires_ms END, seq = seq + $5, message_count = message_count + $6, \
             preview = COALESCE(preview, $7) WHERE id = $1 AND token = $2 AND lease_owner IS NOT NULL"
        )
    };
}

/// The fence of a plain append, with all of its conditions.
macro_rules! plain_fence {
    ($now:literal) => {
        concat!(
            fence!($now),
            " AND open_turn = $8 AND tip IS NOT NULL AND NOT EXISTS (SELECT 1 FROM messages WHERE id = $9) \
             AND NOT EXISTS (SELECT 1 FROM calls WHERE result_id = $9)"
        )
    };
}

/// The row. `$source` names the conversation as the fence left it, and is empty when the fence did nothing.
macro_rules! plain_row {
    ($now:literal, $source:literal) => {
        concat!(
            "INSERT INTO messages (id, conversation_id, session_id, turn_id, seq, role, kind, state, content, \
             api_content, reasoning, sidecar_issuer, sidecar, finish, has_calls, meta, digest, created_ms) \
             SELECT $9, id, tip, $8, seq, $10, $11, 'active', $12, $13, $14, $15, $16, $17, 0, $18, $19, ",
            $now,
            $source
        )
    };
}

/// The usage, if there is any; counted once per attempt.
macro_rules! plain_usage {
    ($source:literal) => {
        concat!(
            "INSERT INTO usage_log (attempt, conversation_id, provider, model, task, input, output, cache_read, \
             cache_write, reasoning, known) SELECT $20, $1, $21, $22, $23, $24, $25, $26, $27, $28, $29",
            $source,
            " AND CAST($20 AS TEXT) IS NOT NULL ON CONFLICT (attempt) DO NOTHING"
        )
    };
}
pub(in super::super) use {fence, plain_fence, plain_row, plain_usage};

/// A plain append.
#[derive(Debug)]
pub(in super::super) struct Append {
    conversation: ConversationId,
    token: i64,
    turn: TurnId,
    row: NewMessage,
    digest: String,
    preview: Option<String>,
    usage: Option<UsageDelta>,
}

impl Append {
    pub(super) fn new(fence: &Fence, turn: &TurnId, row: &NewMessage, usage: Option<&UsageDelta>) -> Self {
        Self {
            conversation: fence.conversation().clone(),
            token: fence.token().0,
            turn: turn.clone(),
            digest: row.digest(),
            preview: rules::preview_of([row].into_iter()),
            row: row.clone(),
            usage: usage.cloned(),
        }
    }

    /// Binds all parameters, in their order. `now` is empty where the database's own clock counts.
    pub(in super::super) fn bind<'q>(
        &self,
        query: Query<'q, Db, <Db as sqlx::Database>::Arguments>,
        now: Option<i64>,
    ) -> Query<'q, Db, <Db as sqlx::Database>::Arguments> {
        let (row, usage) = (&self.row, self.usage.as_ref());
        let tokens = |of: fn(&UsageDelta) -> u64| usage.map(|usage| signed(of(usage)));
        query
            .bind(self.conversation.as_str())
            .bind(self.token)
            .bind(now)
            .bind(1_i64)
            .bind(1_i64)
            .bind(i64::from(is_shown(row.kind)))
            .bind(text_in_or_null(self.preview.as_deref()))
            .bind(self.turn.as_str())
            .bind(row.id.as_str())
            .bind(row.role.as_str())
            .bind(row.kind.as_str())
            .bind(text_in(&row.content))
            .bind(row.api_content.as_ref().map(|api| api.0.as_ref()))
            .bind(text_in_or_null(row.reasoning.as_deref()))
            .bind(text_in_or_null(row.sidecar.as_ref().map(|sidecar| sidecar.issuer.as_str())))
            .bind(row.sidecar.as_ref().map(|sidecar| sidecar.bytes.as_ref()))
            .bind(text_in_or_null(row.finish.as_deref()))
            .bind(meta_text(row.meta.as_ref()))
            .bind(self.digest.as_str())
            .bind(text_in_or_null(usage.map(|usage| usage.attempt.as_str())))
            .bind(text_in_or_null(usage.map(|usage| usage.provider.as_str())))
            .bind(text_in_or_null(usage.map(|usage| usage.model.as_str())))
            .bind(text_in_or_null(usage.map(|usage| usage.task.as_str())))
            .bind(tokens(|usage| usage.input))
            .bind(tokens(|usage| usage.output))
            .bind(tokens(|usage| usage.cache_read))
            .bind(tokens(|usage| usage.cache_write))
            .bind(tokens(|usage| usage.reasoning))
            .bind(usage.map(|usage| i64::from(usage.known)))
    }
}
