//! The row of a session with the bytes that it pins: its prompt and its tools.

use super::driver::{Conn, map, text_in};
use super::fenced::Place;
use super::read::{col, text, text_in_or_null, text_or_null};
use crate::error::StoreError;
use crate::ids::{ConversationId, SessionId};
use crate::rules::{self, conflict, invalid};
use crate::session::NewSession;

/// The update changes nothing; on PostgreSQL it holds the row, so that nobody deletes it before the session refers to it.
const INSERT_PROMPT: &str = "INSERT INTO prompts (hash, bytes) VALUES ($1, $2) \
     ON CONFLICT (hash) DO UPDATE SET hash = excluded.hash WHERE 1 = 0";
const INSERT_SESSION: &str = "INSERT INTO sessions (id, conversation_id, parent_id, provider, model, cwd, prompt_hash, \
     tools_hash, first_seq, started_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id) DO NOTHING";
const SAME_SESSION: &str = "SELECT parent_id, provider, model, cwd, prompt_hash, tools_hash FROM sessions \
     WHERE id = $1 AND conversation_id = $2 AND ended_ms IS NULL";
const CHANGE_SESSION: &str = "UPDATE sessions SET provider = $3, model = $4, cwd = $5, prompt_hash = $6, tools_hash = $7 \
     WHERE id = $1 AND conversation_id = $2 AND ended_ms IS NULL";
const SET_TIP: &str = "UPDATE conversations SET tip = $2 WHERE id = $1";
const SET_SESSION: &str = "UPDATE turns SET session_id = $2 WHERE id = $1";

/// The bytes of a session's prompt and tools, once each.
async fn insert_prompts(conn: &mut Conn, new: &NewSession) -> Result<(), StoreError> {
    let mut prompts = [&new.prompt, &new.tools];
    // Rows that several transactions may hold are taken in one order.
    prompts.sort_by_key(|prompt| prompt.hash().as_str());
    for prompt in prompts {
        let insert = sqlx::query(INSERT_PROMPT).bind(prompt.hash().as_str()).bind(prompt.bytes().as_ref());
        insert.execute(&mut *conn).await.map_err(map)?;
    }
    Ok(())
}

/// Makes the first session of a conversation the tip, or recognises it.
pub(super) async fn open(
    conn: &mut Conn,
    place: Place<'_>,
    new: &NewSession,
    tip: Option<&SessionId>,
    first_seq: i64,
) -> Result<(), StoreError> {
    let repeats = tip == Some(&new.id);
    if !repeats && new.parent.as_ref() != tip {
        return Err(conflict("the parent of session", &new.id));
    }
    if repeats {
        return same_session(conn, place, new).await;
    }
    if tip.is_some() {
        return Err(invalid(rules::ONLY_ROTATE));
    }
    if new.id != place.conversation.first_session() {
        return Err(invalid("the first session of a conversation has the conversation's id"));
    }
    insert_session(conn, place, new, first_seq).await?;
    let set = sqlx::query(SET_TIP).bind(place.conversation.as_str()).bind(new.id.as_str());
    set.execute(&mut *conn).await.map_err(map)?;
    let set = sqlx::query(SET_SESSION).bind(place.turn.as_str()).bind(new.id.as_str());
    set.execute(conn).await.map_err(map)?;
    Ok(())
}

/// The bytes of a session's prompt and tools, then its row.
pub(super) async fn insert_session(
    conn: &mut Conn,
    place: Place<'_>,
    new: &NewSession,
    first_seq: i64,
) -> Result<(), StoreError> {
    insert_prompts(conn, new).await?;
    let inserted = sqlx::query(INSERT_SESSION)
        .bind(new.id.as_str())
        .bind(place.conversation.as_str())
        .bind(new.parent.as_ref().map(SessionId::as_str))
        .bind(text_in(&new.provider))
        .bind(text_in(&new.model))
        .bind(text_in_or_null(new.cwd.as_deref()))
        .bind(new.prompt.hash().as_str())
        .bind(new.tools.hash().as_str())
        .bind(first_seq)
        .bind(place.now)
        .execute(conn)
        .await
        .map_err(map)?;
    match inserted.rows_affected() {
        0 => Err(conflict("session", &new.id)),
        _ => Ok(()),
    }
}

/// Gives the tip another prompt, model, tool list or directory.
pub(super) async fn change_session(
    conn: &mut Conn,
    conversation: &ConversationId,
    session: &NewSession,
) -> Result<(), StoreError> {
    insert_prompts(conn, session).await?;
    sqlx::query(CHANGE_SESSION)
        .bind(session.id.as_str())
        .bind(conversation.as_str())
        .bind(text_in(&session.provider))
        .bind(text_in(&session.model))
        .bind(text_in_or_null(session.cwd.as_deref()))
        .bind(session.prompt.hash().as_str())
        .bind(session.tools.hash().as_str())
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(())
}

/// Fails unless the tip was opened with exactly this (I17).
async fn same_session(conn: &mut Conn, place: Place<'_>, new: &NewSession) -> Result<(), StoreError> {
    let known = sqlx::query(SAME_SESSION).bind(new.id.as_str()).bind(place.conversation.as_str());
    let known = known.fetch_optional(conn).await.map_err(map)?.ok_or_else(|| conflict("session", &new.id))?;
    let is_same = col::<Option<&str>>(&known, 0)? == new.parent.as_ref().map(SessionId::as_str)
        && text(&known, 1)? == new.provider
        && text(&known, 2)? == new.model
        && text_or_null(&known, 3)? == new.cwd
        && col::<&str>(&known, 4)? == new.prompt.hash().as_str()
        && col::<&str>(&known, 5)? == new.tools.hash().as_str();
    match is_same {
        true => Ok(()),
        false => Err(conflict("session", &new.id)),
    }
}
