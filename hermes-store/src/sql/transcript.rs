//! The transcript.

use async_trait::async_trait;
use bytes::Bytes;

use super::driver::{Backend, Conn, WriteTx, map, text_in};
use super::leases::take;
use super::plain::{Append, fence};
use super::read::{
    CallRow, admission, admission_columns, call, call_columns, col, id, join_calls, message, message_columns, signed,
    size, text, text_in_or_null, text_or_null, word_or_null,
};
use crate::admission::{AdmissionOutcome, AdmissionRecord, AdmissionStatus};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{CallId, ConversationId, Generation, MessageId, SessionId, TurnId};
use crate::limits::{PAGE_MAX_ROWS, STEERS_MAX};
use crate::message::{MessagePage, NewMessage, StoredMessage, UsageDelta, View};
use crate::prompt::{PromptHash, PromptSnapshot};
use crate::round::{CallResult, JournalState, NewCall, Planned, Recorded, Round, SettledCall};
use crate::rules::{self, conflict, invalid, is_shown, not_found, not_running};
use crate::session::NewSession;
use crate::traits::TranscriptStore;

/// Takes the conversation's row, only for the newest token, and all counters that the write needs. An expired lease that
/// nobody took lives again (S22).
const FENCE: &str = concat!(fence!("$3"), " RETURNING seq, tip, open_turn, title, title_source");

const INSERT: &str = "INSERT INTO messages (id, conversation_id, session_id, turn_id, seq, role, kind, state, content, \
     api_content, reasoning, sidecar_issuer, sidecar, finish, has_calls, meta, digest, created_ms) \
     SELECT $1, $2, $3, $4, $5, $6, $7, 'active', $8, $9, $10, $11, $12, $13, $14, $15, $16, $17 \
     WHERE NOT EXISTS (SELECT 1 FROM calls WHERE result_id = $1) ON CONFLICT (id) DO NOTHING";
const INSERT_RESULT: &str = "INSERT INTO messages (id, conversation_id, session_id, turn_id, seq, role, kind, state, \
     content, has_calls, call_id, meta, digest, created_ms) \
     SELECT c.result_id, c.conversation_id, m.session_id, c.turn_id, c.result_seq, 'tool', 'normal', 'active', $2, 0, \
     c.id, $3, $4, $5 FROM calls c JOIN messages m ON m.id = c.assistant_id WHERE c.id = $1";
const KNOWN: &str = "SELECT conversation_id, turn_id, digest FROM messages WHERE id = $1";
const UNCOUNT: &str = "UPDATE conversations SET message_count = message_count - $2 WHERE id = $1";

const INSERT_CALL: &str = "INSERT INTO calls (id, conversation_id, turn_id, assistant_id, assistant_seq, result_id, \
     result_seq, provider_id, name, arguments, replay, state, written_ms) \
     SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'recorded', $12 \
     WHERE NOT EXISTS (SELECT 1 FROM messages WHERE id = $6) ON CONFLICT DO NOTHING";
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

const INSERT_USAGE: &str = "INSERT INTO usage_log (attempt, conversation_id, provider, model, task, input, output, \
     cache_read, cache_write, reasoning, known) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
     ON CONFLICT (attempt) DO NOTHING";

/// The update changes nothing; on PostgreSQL it holds the row, so that nobody deletes it before the session refers to it.
const INSERT_PROMPT: &str = "INSERT INTO prompts (hash, bytes) VALUES ($1, $2) \
     ON CONFLICT (hash) DO UPDATE SET hash = excluded.hash WHERE 1 = 0";
const PROMPT: &str = "SELECT bytes FROM prompts WHERE hash = $1";
const INSERT_SESSION: &str = "INSERT INTO sessions (id, conversation_id, parent_id, provider, model, cwd, prompt_hash, \
     tools_hash, first_seq, started_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id) DO NOTHING";
const SAME_SESSION: &str = "SELECT parent_id, provider, model, cwd, prompt_hash, tools_hash FROM sessions \
     WHERE id = $1 AND conversation_id = $2 AND ended_ms IS NULL";
const CHANGE_SESSION: &str = "UPDATE sessions SET provider = $3, model = $4, cwd = $5, prompt_hash = $6, tools_hash = $7 \
     WHERE id = $1 AND conversation_id = $2 AND ended_ms IS NULL";
const SET_TIP: &str = "UPDATE conversations SET tip = $2 WHERE id = $1";
const SET_SESSION: &str = "UPDATE turns SET session_id = $2 WHERE id = $1";

const STEERS: &str = concat!(
    "SELECT ",
    admission_columns!(),
    " FROM admissions WHERE conversation_id = $1 AND status <> 'terminal' AND status = 'queued' \
     AND intent IN ('steer', 'redirect') ORDER BY seq LIMIT $2"
);
const TAKE_STEER: &str = "UPDATE admissions SET status = 'terminal', outcome = 'completed', turn_id = $2, \
     generation = (SELECT generation FROM turns WHERE id = $2) WHERE id = $1 RETURNING generation";

const EXISTS: &str = "SELECT tip FROM conversations WHERE id = $1";
const PAGE_MODEL: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM messages WHERE conversation_id = $1 AND seq > $2 AND seq > (SELECT first_seq FROM sessions WHERE id = $4) \
     AND session_id = $4 AND state = 'active' ORDER BY seq LIMIT $3"
);
const PAGE_MODEL_END: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM messages WHERE conversation_id = $1 AND seq > $2 AND seq > (SELECT first_seq FROM sessions WHERE id = $4) \
     AND session_id = $4 AND state = 'active' ORDER BY seq DESC LIMIT $3"
);
const PAGE_DISPLAY: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM messages WHERE conversation_id = $1 AND seq > $2 AND state <> 'superseded' AND kind <> 'hidden' \
     AND copy_of IS NULL ORDER BY seq LIMIT $3"
);
const PAGE_DISPLAY_END: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM messages WHERE conversation_id = $1 AND seq > $2 AND state <> 'superseded' AND kind <> 'hidden' \
     AND copy_of IS NULL ORDER BY seq DESC LIMIT $3"
);

/// Rows are found by their place. An index of them by turn made every append dirty one page more, and a batch of
/// appends twice as slow.
pub(super) const TABLES: super::schema::Group = &["DROP INDEX messages_by_turn"];

/// What a fenced write needs of the conversation's row, beside the fence itself.
#[derive(Debug, Clone)]
pub(super) struct Touch {
    now: i64,
    is_activity: bool,
    reserve: i64,
    shown: i64,
    preview: Option<String>,
}

impl Touch {
    /// A write that adds no row; with `is_activity` it makes the conversation the newest.
    pub(super) fn quiet(now: i64, is_activity: bool) -> Self {
        Self { now, is_activity, reserve: 0, shown: 0, preview: None }
    }

    fn rows(now: i64, rows: &[NewMessage]) -> Self {
        Self {
            now,
            is_activity: true,
            reserve: size(rows.len()),
            shown: size(rows.iter().filter(|row| is_shown(row.kind)).count()),
            preview: rules::preview_of(rows.iter()),
        }
    }
}

/// The conversation's row after the fence.
pub(super) struct Fenced {
    /// The last reserved place.
    pub(super) seq: i64,
    pub(super) tip: Option<SessionId>,
    pub(super) open_turn: Option<TurnId>,
    pub(super) title: Option<String>,
    pub(super) title_source: Option<String>,
}

/// Where rows go.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) conversation: &'a ConversationId,
    pub(super) session: &'a SessionId,
    pub(super) turn: &'a TurnId,
    /// The last place that was reserved for them.
    pub(super) seq: i64,
    pub(super) now: i64,
}

impl Backend {
    /// Checks the fence and takes the conversation's row, in one statement. With a turn, it must be the running one.
    pub(super) async fn fence(
        &self,
        tx: &mut WriteTx,
        fence: &Fence,
        turn: Option<&TurnId>,
        touch: Touch,
    ) -> Result<Fenced, StoreError> {
        let row = sqlx::query(FENCE)
            .bind(fence.conversation().as_str())
            .bind(fence.token().0)
            .bind(touch.now)
            .bind(i64::from(touch.is_activity))
            .bind(touch.reserve)
            .bind(touch.shown)
            .bind(text_in_or_null(touch.preview.as_deref()))
            .fetch_optional(tx.conn())
            .await
            .map_err(map)?;
        let row = row.ok_or(StoreError::Fenced { held: fence.token() })?;
        let open_turn: Option<TurnId> = word_or_null(&row, 2, id(TurnId::parse))?;
        if let Some(turn) = turn
            && open_turn.as_ref() != Some(turn)
        {
            return Err(not_running(turn));
        }
        Ok(Fenced {
            seq: col(&row, 0)?,
            tip: word_or_null(&row, 1, id(SessionId::parse))?,
            open_turn,
            title: text_or_null(&row, 3)?,
            title_source: col(&row, 4)?,
        })
    }
}

fn tip_of(fenced: &Fenced) -> Result<SessionId, StoreError> {
    fenced.tip.clone().ok_or_else(|| invalid("the conversation has no session yet; open one"))
}

/// Facts for display as the text that is stored.
pub(super) fn meta_text(meta: Option<&serde_json::Value>) -> Option<String> {
    meta.map(serde_json::Value::to_string)
}

/// Inserts one row; false when the id is taken.
async fn insert(
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
async fn verify(
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
async fn uncount(conn: &mut Conn, conversation: &ConversationId, rows: i64) -> Result<(), StoreError> {
    sqlx::query(UNCOUNT).bind(conversation.as_str()).bind(rows).execute(conn).await.map_err(map)?;
    Ok(())
}

async fn count_usage(conn: &mut Conn, conversation: &ConversationId, usage: &UsageDelta) -> Result<(), StoreError> {
    sqlx::query(INSERT_USAGE)
        .bind(text_in(&usage.attempt))
        .bind(conversation.as_str())
        .bind(text_in(&usage.provider))
        .bind(text_in(&usage.model))
        .bind(text_in(&usage.task))
        .bind(signed(usage.input))
        .bind(signed(usage.output))
        .bind(signed(usage.cache_read))
        .bind(signed(usage.cache_write))
        .bind(signed(usage.reasoning))
        .bind(i64::from(usage.known))
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(())
}

/// Stores the result of a call. False when one is stored already; a call that is not known, or that has another
/// result, is an error.
async fn settle(
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
    Ok((super::read::word(&row, 0, JournalState::parse)?, col(&row, 1)?))
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
async fn open(
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

/// Inserts the calls of a round behind its row; results that are known already are stored with them.
async fn insert_calls(
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
async fn known_states(
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
            states[at] = super::read::word(row, 1, JournalState::parse)?;
        }
    }
    Ok(states)
}

#[async_trait]
impl TranscriptStore for Backend {
    async fn open_session(
        &self,
        fence: &Fence,
        turn: &TurnId,
        session: NewSession,
        rows: Vec<NewMessage>,
    ) -> Result<(), StoreError> {
        rules::check_rows(&rows)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        let fenced = self.fence(&mut tx, fence, Some(turn), Touch::rows(now, &rows)).await?;
        let place = Place { conversation: fence.conversation(), session: &session.id, turn, seq: fenced.seq, now };
        let before = fenced.seq - size(rows.len());
        open(tx.conn(), place, &session, fenced.tip.as_ref(), before).await?;
        append(tx.conn(), place, &rows).await?;
        tx.commit().await
    }

    async fn change_session(&self, fence: &Fence, turn: &TurnId, session: NewSession) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let touch = Touch::quiet(now, true);
        let fenced = self.fence(&mut tx, fence, Some(turn), touch).await?;
        if fenced.tip.as_ref() != Some(&session.id) {
            return Err(conflict("session", &session.id));
        }
        change_session(tx.conn(), fence.conversation(), &session).await?;
        tx.commit().await
    }

    async fn append(
        &self,
        fence: &Fence,
        turn: &TurnId,
        rows: Vec<NewMessage>,
        usage: Option<UsageDelta>,
    ) -> Result<(), StoreError> {
        rules::check_rows(&rows)?;
        if let [row] = rows.as_slice()
            && self.append_plain(Append::new(fence, turn, row, usage.as_ref())).await?
        {
            return Ok(());
        }
        let mut tx = self.write().await?;
        let now = tx.now();
        let fenced = self.fence(&mut tx, fence, Some(turn), Touch::rows(now, &rows)).await?;
        let session = tip_of(&fenced)?;
        let place = Place { conversation: fence.conversation(), session: &session, turn, seq: fenced.seq, now };
        append(tx.conn(), place, &rows).await?;
        if let Some(usage) = &usage {
            count_usage(tx.conn(), fence.conversation(), usage).await?;
        }
        tx.commit().await
    }

    async fn record_round(&self, fence: &Fence, round: Round<Planned>) -> Result<Round<Recorded>, StoreError> {
        rules::check_round(&round)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        let conversation = fence.conversation();
        let calls: Vec<&NewCall> = round.calls().iter().map(|call| &call.new).collect();
        let assistant = round.assistant();
        let shown = i64::from(is_shown(assistant.kind)) + size(calls.iter().filter(|c| c.preset.is_some()).count());
        let touch = Touch { now, is_activity: true, reserve: size(calls.len() + 1), shown, preview: None };
        let fenced = self.fence(&mut tx, fence, Some(round.turn()), touch).await?;
        let session = tip_of(&fenced)?;
        let place = Place { conversation, session: &session, turn: round.turn(), seq: fenced.seq, now };
        let digest = rules::round_digest(assistant, &calls);
        let seq = fenced.seq - size(calls.len());
        let states = if insert(tx.conn(), place, seq, assistant, true, &digest).await? {
            if let Some(usage) = round.usage() {
                count_usage(tx.conn(), conversation, usage).await?;
            }
            insert_calls(tx.conn(), place, (&assistant.id, seq), &calls).await?
        } else {
            if verify(tx.conn(), conversation, &assistant.id, &digest).await? != round.turn().as_str() {
                return Err(conflict("message", &assistant.id));
            }
            uncount(tx.conn(), conversation, shown).await?;
            known_states(tx.conn(), conversation, &assistant.id, &calls).await?
        };
        tx.commit().await?;
        Ok(round.recorded(&states))
    }

    async fn start_calls(&self, fence: &Fence, turn: &TurnId, calls: &[CallId]) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let touch = Touch::quiet(now, true);
        self.fence(&mut tx, fence, Some(turn), touch).await?;
        for call in calls {
            let done = sqlx::query(START_CALL)
                .bind(call.as_str())
                .bind(fence.conversation().as_str())
                .bind(turn.as_str())
                .bind(JournalState::Settled.as_str())
                .bind(now)
                .execute(tx.conn())
                .await
                .map_err(map)?;
            if done.rows_affected() == 0 {
                call_fate(tx.conn(), fence.conversation(), turn, call).await?;
                return Err(invalid(format!("call {call} has a stored result; it must not run again")));
            }
        }
        tx.commit().await
    }

    async fn settle_call(
        &self,
        fence: &Fence,
        turn: &TurnId,
        call: &CallId,
        result: CallResult,
    ) -> Result<SettledCall, StoreError> {
        rules::check_result(&result)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        let touch = Touch { shown: 1, ..Touch::quiet(now, true) };
        self.fence(&mut tx, fence, Some(turn), touch).await?;
        if !settle(tx.conn(), fence.conversation(), turn, call, &result, now).await? {
            uncount(tx.conn(), fence.conversation(), 1).await?;
        }
        tx.commit().await?;
        Ok(SettledCall::new(call.clone()))
    }

    async fn take_steers(
        &self,
        fence: &Fence,
        turn: &TurnId,
        rows: &(dyn for<'a> Fn(&'a [AdmissionRecord]) -> Vec<NewMessage> + Send + Sync),
    ) -> Result<Vec<AdmissionRecord>, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let conversation = fence.conversation();
        let taken = take(tx.conn(), conversation).await?;
        let holds = |t: &super::leases::Taken| t.token == fence.token() && t.lease_owner.is_some();
        let taken = taken.filter(holds).ok_or(StoreError::Fenced { held: fence.token() })?;
        if taken.open_turn.as_ref() != Some(turn) {
            return Err(not_running(turn));
        }
        let found = sqlx::query(STEERS).bind(conversation.as_str()).bind(size(STEERS_MAX)).fetch_all(tx.conn()).await;
        let mut steers: Vec<_> = found.map_err(map)?.iter().map(admission).collect::<Result<_, _>>()?;
        if steers.is_empty() {
            tx.rollback().await?;
            return Ok(steers);
        }
        let new = rows(&steers);
        rules::check_rows(&new)?;
        let fenced = self.fence(&mut tx, fence, Some(turn), Touch::rows(now, &new)).await?;
        let session = tip_of(&fenced)?;
        append(tx.conn(), Place { conversation, session: &session, turn, seq: fenced.seq, now }, &new).await?;
        for steer in &mut steers {
            let id = steer.receipt.admission.as_str();
            let row = sqlx::query(TAKE_STEER).bind(id).bind(turn.as_str()).fetch_one(tx.conn()).await.map_err(map)?;
            steer.receipt.status = AdmissionStatus::Terminal;
            steer.receipt.outcome = Some(AdmissionOutcome::Completed);
            steer.receipt.turn = Some(turn.clone());
            steer.receipt.generation = col::<Option<i64>>(&row, 0)?.map(Generation);
        }
        tx.commit().await?;
        Ok(steers)
    }

    async fn count_usage(&self, fence: &Fence, usage: UsageDelta) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        count_usage(tx.conn(), fence.conversation(), &usage).await?;
        tx.commit().await
    }

    async fn messages(
        &self,
        conversation: &ConversationId,
        view: View,
        page: MessagePage,
    ) -> Result<Vec<StoredMessage>, StoreError> {
        // Rows and calls from one snapshot: a result must not be missing of a call that is settled.
        let mut tx = self.readers().begin().await.map_err(map)?;
        let row = sqlx::query(EXISTS).bind(conversation.as_str()).fetch_optional(&mut *tx).await.map_err(map)?;
        let row = row.ok_or_else(|| not_found("conversation", conversation))?;
        let tip: Option<String> = col(&row, 0)?;
        let limit = size(page.limit.min(PAGE_MAX_ROWS));
        let (text, tip) = match (view, page.from_end, tip) {
            (View::Model, _, None) => return Ok(Vec::new()),
            (View::Model, false, Some(tip)) => (PAGE_MODEL, Some(tip)),
            (View::Model, true, Some(tip)) => (PAGE_MODEL_END, Some(tip)),
            (View::Display, false, _) => (PAGE_DISPLAY, None),
            (View::Display, true, _) => (PAGE_DISPLAY_END, None),
        };
        let mut query = sqlx::query(text).bind(conversation.as_str()).bind(page.after_seq).bind(limit);
        if let Some(tip) = tip {
            query = query.bind(tip);
        }
        let mut rows: Vec<_> =
            query.fetch_all(&mut *tx).await.map_err(map)?.iter().map(message).collect::<Result<_, _>>()?;
        if page.from_end {
            rows.reverse();
        }
        join_calls(&mut tx, conversation, rows).await
    }

    async fn prompt(&self, hash: &PromptHash) -> Result<PromptSnapshot, StoreError> {
        let bytes: Option<Vec<u8>> =
            sqlx::query_scalar(PROMPT).bind(hash.as_str()).fetch_optional(self.readers()).await.map_err(map)?;
        let bytes = bytes.ok_or_else(|| not_found("prompt", hash.as_str()))?;
        let found = PromptSnapshot::new(Bytes::from(bytes));
        if found.hash() != hash {
            return Err(StoreError::Corrupt { detail: format!("prompt {} has other bytes", hash.as_str()) });
        }
        Ok(found)
    }
}
