//! The journal of calls: recorded with their round, started, and settled with their result's row.

use super::driver::{Conn, map, text_in};
use super::fenced::Place;
use super::read::{CallRow, call, call_columns, col, word};
use super::rows::meta_text;
use crate::error::StoreError;
use crate::ids::{CallId, ConversationId, MessageId, TurnId};
use crate::round::{CallResult, JournalState, NewCall};
use crate::rules::{self, conflict, invalid, not_found};

const INSERT_CALL: &str = "INSERT INTO calls (id, conversation_id, turn_id, assistant_id, assistant_seq, result_id, \
     result_seq, provider_id, name, arguments, replay, state, written_ms) \
     SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'recorded', $12 \
     WHERE NOT EXISTS (SELECT 1 FROM messages WHERE id = $6) ON CONFLICT DO NOTHING";
const INSERT_RESULT: &str = "INSERT INTO messages (id, conversation_id, session_id, turn_id, seq, role, kind, state, \
     content, has_calls, call_id, meta, digest, created_ms) \
     SELECT c.result_id, c.conversation_id, m.session_id, c.turn_id, c.result_seq, 'tool', 'normal', 'active', $2, 0, \
     c.id, $3, $4, $5 FROM calls c JOIN messages m ON m.id = c.assistant_id WHERE c.id = $1";
const START_CALL: &str = "UPDATE calls SET state = 'started', written_ms = $5 \
     WHERE id = $1 AND conversation_id = $2 AND turn_id = $3 AND state <> $4";
const CALL_FATE: &str = "SELECT state, digest FROM calls WHERE id = $1 AND conversation_id = $2 AND turn_id = $3";
const SETTLE_CALL: &str = "UPDATE calls SET state = 'settled', outcome = $4, digest = $5, written_ms = $6 \
     WHERE id = $1 AND conversation_id = $2 AND turn_id = $3 AND state <> 'settled'";
const CALLS_OF_ROUND: &str = "SELECT id, state FROM calls WHERE conversation_id = $1 AND assistant_id = $2 \
     AND result_seq > $3";
const ROUND_PLACE: &str = "SELECT seq FROM messages WHERE id = $1";
const CALLS_OF_TURN: &str = concat!(
    "SELECT ",
    call_columns!(),
    " FROM calls WHERE conversation_id = (SELECT conversation_id FROM turns WHERE id = $1) AND result_seq > \
     (SELECT first_seq FROM turns WHERE id = $1) AND turn_id = $1 ORDER BY result_seq"
);

/// Inserts the calls of a round behind its row; results that are known already are stored with them.
pub(super) async fn insert_calls(
    conn: &mut Conn,
    place: Place<'_>,
    assistant: (&MessageId, i64),
    calls: &[&NewCall],
) -> Result<Vec<JournalState>, StoreError> {
    let (row, seq) = assistant;
    let mut states = Vec::with_capacity(calls.len());
    for (result_seq, call) in (seq + 1..).zip(calls) {
        let inserted = sqlx::query(INSERT_CALL)
            .bind(call.call.as_str())
            .bind(place.conversation.as_str())
            .bind(place.turn.as_str())
            .bind(row.as_str())
            .bind(seq)
            .bind(call.result.as_str())
            .bind(result_seq)
            .bind(text_in(&call.provider_id))
            .bind(text_in(&call.name))
            .bind(text_in(&call.arguments))
            .bind(call.replay.as_str())
            .bind(place.now)
            .execute(&mut *conn)
            .await
            .map_err(map)?;
        if inserted.rows_affected() == 0 {
            return Err(conflict("call", &call.call));
        }
        states.push(match &call.preset {
            Some(preset) => {
                settle(conn, place.conversation, place.turn, &call.call, preset, place.now).await?;
                JournalState::Settled
            }
            None => JournalState::Recorded,
        });
    }
    Ok(states)
}

/// How far the calls of a round that was recorded before are.
pub(super) async fn known_states(
    conn: &mut Conn,
    conversation: &ConversationId,
    assistant: &MessageId,
    calls: &[&NewCall],
) -> Result<Vec<JournalState>, StoreError> {
    let seq: i64 = sqlx::query_scalar(ROUND_PLACE).bind(assistant.as_str()).fetch_one(&mut *conn).await.map_err(map)?;
    let rows = sqlx::query(CALLS_OF_ROUND).bind(conversation.as_str()).bind(assistant.as_str()).bind(seq);
    let rows = rows.fetch_all(conn).await.map_err(map)?;
    let mut states = vec![JournalState::Recorded; calls.len()];
    for row in &rows {
        let known: &str = col(row, 0)?;
        if let Some(at) = calls.iter().position(|call| call.call.as_str() == known) {
            states[at] = word(row, 1, JournalState::parse)?;
        }
    }
    Ok(states)
}

/// Says that a call is about to run. One that has its result must not run again.
pub(super) async fn start(
    conn: &mut Conn,
    conversation: &ConversationId,
    turn: &TurnId,
    call: &CallId,
    now: i64,
) -> Result<(), StoreError> {
    let done = sqlx::query(START_CALL)
        .bind(call.as_str())
        .bind(conversation.as_str())
        .bind(turn.as_str())
        .bind(JournalState::Settled.as_str())
        .bind(now)
        .execute(&mut *conn)
        .await
        .map_err(map)?;
    if done.rows_affected() == 0 {
        call_fate(conn, conversation, turn, call).await?;
        return Err(invalid(format!("call {call} has a stored result; it must not run again")));
    }
    Ok(())
}

/// Stores the result of a call. False when one is stored already; a call that is not known, or that has another
/// result, is an error.
pub(super) async fn settle(
    conn: &mut Conn,
    conversation: &ConversationId,
    turn: &TurnId,
    call: &CallId,
    result: &CallResult,
    now: i64,
) -> Result<bool, StoreError> {
    let digest = rules::result_digest(result.outcome, &result.content);
    let done = sqlx::query(SETTLE_CALL)
        .bind(call.as_str())
        .bind(conversation.as_str())
        .bind(turn.as_str())
        .bind(result.outcome.as_str())
        .bind(&digest)
        .bind(now)
        .execute(&mut *conn)
        .await
        .map_err(map)?;
    if done.rows_affected() == 0 {
        let known = call_fate(conn, conversation, turn, call).await?;
        return match known.1.as_deref() == Some(digest.as_str()) {
            true => Ok(false),
            false => Err(conflict("the result of call", call)),
        };
    }
    sqlx::query(INSERT_RESULT)
        .bind(call.as_str())
        .bind(text_in(&result.content))
        .bind(meta_text(result.meta.as_ref()))
        .bind(&digest)
        .bind(now)
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(true)
}

async fn call_fate(
    conn: &mut Conn,
    conversation: &ConversationId,
    turn: &TurnId,
    call: &CallId,
) -> Result<(JournalState, Option<String>), StoreError> {
    let row = sqlx::query(CALL_FATE).bind(call.as_str()).bind(conversation.as_str()).bind(turn.as_str());
    let row = row.fetch_optional(conn).await.map_err(map)?.ok_or_else(|| not_found("call", call))?;
    Ok((word(&row, 0, JournalState::parse)?, col(&row, 1)?))
}

/// Gives a result to every open call of a turn that an operator decided; returns how many.
pub(super) async fn settle_open_calls(
    conn: &mut Conn,
    conversation: &ConversationId,
    turn: &TurnId,
    now: i64,
) -> Result<i64, StoreError> {
    let mut settled = 0;
    for call in calls_of_turn(conn, turn).await? {
        if call.state != JournalState::Settled {
            let result = rules::resolved_result(call.state);
            settled += i64::from(settle(conn, conversation, turn, &call.new.call, &result, now).await?);
        }
    }
    Ok(settled)
}

/// Calls of a turn in their order.
pub(super) async fn calls_of_turn(conn: &mut Conn, turn: &TurnId) -> Result<Vec<CallRow>, StoreError> {
    let rows = sqlx::query(CALLS_OF_TURN).bind(turn.as_str()).fetch_all(conn).await.map_err(map)?;
    rows.iter().map(call).collect()
}
