//! Rows of the transcript: how they are written, once each, and how those of one turn are read.

use super::driver::{Conn, map, text_in};
use super::fenced::Place;
use super::read::{col, join_calls, message, message_columns, size, text_in_or_null};
use crate::error::StoreError;
use crate::ids::{ConversationId, MessageId, TurnId};
use crate::message::{NewMessage, StoredMessage};
use crate::rules::{conflict, is_shown};

const INSERT: &str = "INSERT INTO messages (id, conversation_id, session_id, turn_id, seq, role, kind, state, content, \
     api_content, reasoning, sidecar_issuer, sidecar, finish, has_calls, meta, digest, created_ms) \
     SELECT $1, $2, $3, $4, $5, $6, $7, 'active', $8, $9, $10, $11, $12, $13, $14, $15, $16, $17 \
     WHERE NOT EXISTS (SELECT 1 FROM calls WHERE result_id = $1) ON CONFLICT (id) DO NOTHING";
const KNOWN: &str = "SELECT conversation_id, turn_id, digest FROM messages WHERE id = $1";
const UNCOUNT: &str = "UPDATE conversations SET message_count = message_count - $2 WHERE id = $1";
const ROWS_OF_TURN: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM messages WHERE conversation_id = $2 AND seq > (SELECT first_seq FROM turns WHERE id = $1) AND turn_id = $1 \
     ORDER BY seq"
);
/// Of the places between this turn's first and the next turn's: rows have no index by turn, which would cost each append
/// a page.
const ANSWER: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM messages WHERE conversation_id = (SELECT conversation_id FROM turns WHERE id = $1) \
     AND seq > (SELECT first_seq FROM turns WHERE id = $1) \
     AND seq <= COALESCE((SELECT MIN(n.first_seq) FROM turns t JOIN turns n ON n.conversation_id = t.conversation_id \
     AND n.first_seq > t.first_seq WHERE t.id = $1), 9223372036854775807) \
     AND turn_id = $1 AND role = 'assistant' AND kind = 'normal' AND has_calls = 0 AND copy_of IS NULL \
     ORDER BY seq DESC LIMIT 1"
);

/// Rows are found by their place. An index of them by turn made every append dirty one page more, and a batch of
/// appends twice as slow.
pub(super) const TABLES: super::schema::Group = &["DROP INDEX messages_by_turn"];

/// Facts for display as the text that is stored.
pub(super) fn meta_text(meta: Option<&serde_json::Value>) -> Option<String> {
    meta.map(serde_json::Value::to_string)
}

/// Inserts one row; false when the id is taken.
pub(super) async fn insert(
    conn: &mut Conn,
    place: Place<'_>,
    seq: i64,
    row: &NewMessage,
    has_calls: bool,
    digest: &str,
) -> Result<bool, StoreError> {
    let done = sqlx::query(INSERT)
        .bind(row.id.as_str())
        .bind(place.conversation.as_str())
        .bind(place.session.as_str())
        .bind(place.turn.as_str())
        .bind(seq)
        .bind(row.role.as_str())
        .bind(row.kind.as_str())
        .bind(text_in(&row.content))
        .bind(row.api_content.as_ref().map(|api| api.0.as_ref()))
        .bind(text_in_or_null(row.reasoning.as_deref()))
        .bind(text_in_or_null(row.sidecar.as_ref().map(|sidecar| sidecar.issuer.as_str())))
        .bind(row.sidecar.as_ref().map(|sidecar| sidecar.bytes.as_ref()))
        .bind(text_in_or_null(row.finish.as_deref()))
        .bind(i64::from(has_calls))
        .bind(meta_text(row.meta.as_ref()))
        .bind(digest)
        .bind(place.now)
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(done.rows_affected() == 1)
}

/// Inserts a row that no earlier write may have brought.
pub(super) async fn insert_new(
    conn: &mut Conn,
    place: Place<'_>,
    seq: i64,
    row: &NewMessage,
) -> Result<(), StoreError> {
    match insert(conn, place, seq, row, false, &row.digest()).await? {
        true => Ok(()),
        false => Err(conflict("message", &row.id)),
    }
}

/// Fails unless the row is stored already, in this conversation, with these bytes (I17). Returns its turn.
pub(super) async fn verify(
    conn: &mut Conn,
    conversation: &ConversationId,
    row: &MessageId,
    digest: &str,
) -> Result<String, StoreError> {
    let known = sqlx::query(KNOWN).bind(row.as_str()).fetch_optional(conn).await.map_err(map)?;
    let Some(known) = known else { return Err(conflict("message", row)) };
    if col::<&str>(&known, 0)? != conversation.as_str() || col::<&str>(&known, 2)? != digest {
        return Err(conflict("message", row));
    }
    col(&known, 1)
}

/// Appends rows to places that were reserved and counted by the fence.
pub(super) async fn append(conn: &mut Conn, place: Place<'_>, rows: &[NewMessage]) -> Result<(), StoreError> {
    let first = place.seq - size(rows.len());
    let mut known_shown = 0_i64;
    for (seq, row) in (first + 1..).zip(rows) {
        let digest = row.digest();
        if !insert(conn, place, seq, row, false, &digest).await? {
            verify(conn, place.conversation, &row.id, &digest).await?;
            known_shown += i64::from(is_shown(row.kind));
        }
    }
    if known_shown > 0 {
        uncount(conn, place.conversation, known_shown).await?;
    }
    Ok(())
}

/// Takes back what the fence counted for rows that were stored before.
pub(super) async fn uncount(conn: &mut Conn, conversation: &ConversationId, rows: i64) -> Result<(), StoreError> {
    sqlx::query(UNCOUNT).bind(conversation.as_str()).bind(rows).execute(conn).await.map_err(map)?;
    Ok(())
}

/// Rows of a turn in their order.
pub(super) async fn rows_of_turn(
    conn: &mut Conn,
    conversation: &ConversationId,
    turn: &TurnId,
) -> Result<Vec<StoredMessage>, StoreError> {
    let rows = sqlx::query(ROWS_OF_TURN).bind(turn.as_str()).bind(conversation.as_str()).fetch_all(&mut *conn).await;
    let rows = rows.map_err(map)?.iter().map(message).collect::<Result<_, _>>()?;
    join_calls(conn, conversation, rows).await
}

/// The row with the final answer of a turn.
pub(super) async fn read_turn_answer(conn: &mut Conn, turn: &TurnId) -> Result<Option<StoredMessage>, StoreError> {
    let row = sqlx::query(ANSWER).bind(turn.as_str()).fetch_optional(conn).await.map_err(map)?;
    Ok(row.as_ref().map(message).transpose()?.map(|(row, _)| row))
}
