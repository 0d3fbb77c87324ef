//! From rows of the database to the store's types. What does not parse is damage, and is said to be.

use std::borrow::Cow;

use bytes::Bytes;
use sqlx::{Decode, Row as _, Type};

use super::driver::{Conn, Db, Row, map, text_in, text_out};
use crate::admission::{AdmissionOutcome, AdmissionRecord, AdmissionStatus, Intent, Receipt};
use crate::error::StoreError;
use crate::ids::{AdmissionId, CallId, ConversationId, Generation, InvalidId, MessageId, OwnerId, SessionId, TurnId};
use crate::limits::ROUND_MAX_CALLS;
use crate::message::{ApiContent, MessageKind, NewMessage, Role, RowState, Sidecar, StoredCall, StoredMessage};
use crate::round::{CallOutcome, JournalState, NewCall, ReplaySafety};

/// Columns of [`admission`].
macro_rules! admission_columns {
    () => {
        "id, conversation_id, seq, principal, request_id, intent, payload, submitted_by, status, outcome, generation, \
         turn_id, created_ms"
    };
}
pub(super) use admission_columns;

/// Columns of [`message`].
macro_rules! message_columns {
    () => {
        "id, session_id, turn_id, seq, role, kind, state, content, api_content, reasoning, sidecar_issuer, sidecar, \
         finish, call_id, meta, created_ms, copy_of"
    };
}
pub(super) use message_columns;

/// Columns of [`call`].
macro_rules! call_columns {
    () => {
        "id, result_id, provider_id, name, arguments, replay, state, outcome, assistant_id, written_ms"
    };
}
pub(super) use call_columns;

/// One column.
pub(crate) fn col<'r, T>(row: &'r Row, index: usize) -> Result<T, StoreError>
where
    T: Decode<'r, Db> + Type<Db>,
{
    row.try_get(index).map_err(map)
}

/// A column that holds what somebody wrote: any characters at all.
pub(crate) fn text(row: &Row, index: usize) -> Result<String, StoreError> {
    text_out(col(row, index)?)
}

/// As [`text`], where the column may be empty.
pub(crate) fn text_or_null(row: &Row, index: usize) -> Result<Option<String>, StoreError> {
    col::<Option<String>>(row, index)?.map(text_out).transpose()
}

/// What somebody wrote, to be stored where there may be nothing.
pub(crate) fn text_in_or_null(text: Option<&str>) -> Option<Cow<'_, str>> {
    text.map(text_in)
}

/// A column that holds a word of a closed list, or an id.
pub(crate) fn word<T>(row: &Row, index: usize, parse: impl Fn(&str) -> Option<T>) -> Result<T, StoreError> {
    let text: &str = col(row, index)?;
    parse(text).ok_or_else(|| damaged(index, text))
}

/// As [`word`], where the column may be empty.
pub(crate) fn word_or_null<T>(
    row: &Row,
    index: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    let text: Option<&str> = col(row, index)?;
    text.map(|text| parse(text).ok_or_else(|| damaged(index, text))).transpose()
}

fn damaged(index: usize, text: &str) -> StoreError {
    let head: String = text.chars().take(40).collect();
    StoreError::Corrupt { detail: format!("column {index} holds {head:?}, which no version wrote") }
}

/// Makes the parser of an id into one of [`word`].
pub(crate) fn id<T>(parse: impl Fn(&str) -> Result<T, InvalidId>) -> impl Fn(&str) -> Option<T> {
    move |text| parse(text).ok()
}

/// A count that is stored as a signed number.
pub(crate) fn count(row: &Row, index: usize) -> Result<u64, StoreError> {
    let number: i64 = col(row, index)?;
    u64::try_from(number).map_err(|_| damaged(index, &number.to_string()))
}

/// A count as the signed number that is stored.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A size as the signed number that a statement takes.
pub(crate) fn size(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// An admission from [`admission_columns`].
pub(crate) fn admission(row: &Row) -> Result<AdmissionRecord, StoreError> {
    Ok(AdmissionRecord {
        receipt: Receipt {
            admission: word(row, 0, id(AdmissionId::parse))?,
            conversation: word(row, 1, id(ConversationId::parse))?,
            seq: col(row, 2)?,
            status: word(row, 8, AdmissionStatus::parse)?,
            outcome: word_or_null(row, 9, AdmissionOutcome::parse)?,
            generation: col::<Option<i64>>(row, 10)?.map(Generation),
            turn: word_or_null(row, 11, id(TurnId::parse))?,
        },
        principal: text(row, 3)?,
        request_id: text(row, 4)?,
        intent: word(row, 5, Intent::parse)?,
        payload: text(row, 6)?,
        submitted_by: word(row, 7, id(OwnerId::parse))?,
        created_at_ms: col(row, 12)?,
    })
}

pub(crate) fn role(word: &str) -> Option<Role> {
    [Role::User, Role::Assistant, Role::Tool].into_iter().find(|role| role.as_str() == word)
}

/// A row of the transcript from [`message_columns`], without its calls; and the call that it answers.
pub(crate) fn message(row: &Row) -> Result<(StoredMessage, Option<CallId>), StoreError> {
    let sidecar = match (text_or_null(row, 10)?, col::<Option<Vec<u8>>>(row, 11)?) {
        (Some(issuer), Some(bytes)) => Some(Sidecar { issuer, bytes: Bytes::from(bytes) }),
        _ => None,
    };
    let meta: Option<&str> = col(row, 14)?;
    let meta = meta.map(serde_json::from_str).transpose();
    let meta = meta.map_err(|error| StoreError::Corrupt { detail: format!("facts of a row: {error}") })?;
    let stored = StoredMessage {
        id: word(row, 0, id(MessageId::parse))?,
        session: word(row, 1, id(SessionId::parse))?,
        turn: word(row, 2, id(TurnId::parse))?,
        seq: col(row, 3)?,
        role: word(row, 4, role)?,
        kind: word(row, 5, MessageKind::parse)?,
        state: word(row, 6, RowState::parse)?,
        content: text(row, 7)?,
        api_content: col::<Option<Vec<u8>>>(row, 8)?.map(|bytes| ApiContent(Bytes::from(bytes))),
        reasoning: text_or_null(row, 9)?,
        sidecar,
        finish: text_or_null(row, 12)?,
        calls: Vec::new(),
        answers: None,
        meta,
        created_at_ms: col(row, 15)?,
        copy_of: word_or_null(row, 16, id(MessageId::parse))?,
    };
    Ok((stored, word_or_null(row, 13, id(CallId::parse))?))
}

/// A call of the journal.
#[derive(Debug, Clone)]
pub(crate) struct CallRow {
    pub(crate) new: NewCall,
    pub(crate) state: JournalState,
    pub(crate) outcome: Option<CallOutcome>,
    pub(crate) assistant: MessageId,
    pub(crate) written_ms: i64,
}

impl CallRow {
    fn stored(&self) -> StoredCall {
        StoredCall {
            call: self.new.call.clone(),
            provider_id: self.new.provider_id.clone(),
            name: self.new.name.clone(),
            arguments: self.new.arguments.clone(),
            replay: self.new.replay,
            state: self.state,
            outcome: self.outcome,
        }
    }
}

/// A call from [`call_columns`].
pub(crate) fn call(row: &Row) -> Result<CallRow, StoreError> {
    Ok(CallRow {
        new: NewCall {
            call: word(row, 0, id(CallId::parse))?,
            result: word(row, 1, id(MessageId::parse))?,
            provider_id: text(row, 2)?,
            name: text(row, 3)?,
            arguments: text(row, 4)?,
            replay: word(row, 5, ReplaySafety::parse)?,
            preset: None,
        },
        state: word(row, 6, JournalState::parse)?,
        outcome: word_or_null(row, 7, CallOutcome::parse)?,
        assistant: word(row, 8, id(MessageId::parse))?,
        written_ms: col(row, 9)?,
    })
}

const CALLS_OF_PAGE: &str = concat!(
    "SELECT ",
    call_columns!(),
    " FROM calls WHERE conversation_id = $1 AND result_seq BETWEEN $2 AND $3 ORDER BY result_seq"
);

/// The calls of copied rounds, by their results: those stand behind the round, as they did behind the first one.
const CALLS_OF_COPIES: &str = "SELECT c.id, c.result_id, c.provider_id, c.name, c.arguments, c.replay, c.state, \
     c.outcome, c.assistant_id, c.written_ms FROM messages m JOIN calls c ON c.id = m.call_id \
     WHERE m.conversation_id = $1 AND m.seq BETWEEN $2 AND $3 AND m.copy_of IS NOT NULL ORDER BY m.seq";

/// Joins the calls to rows that were read in the same snapshot.
pub(crate) async fn join_calls(
    conn: &mut Conn,
    conversation: &ConversationId,
    rows: Vec<(StoredMessage, Option<CallId>)>,
) -> Result<Vec<StoredMessage>, StoreError> {
    let needs = rows.iter().any(|(row, answers)| answers.is_some() || row.role == Role::Assistant);
    let (Some(first), Some(last), true) = (rows.first(), rows.last(), needs) else {
        return Ok(rows.into_iter().map(|(row, _)| row).collect());
    };
    // The results of a round stand right behind it.
    let (from, to) = (first.0.seq, last.0.seq.saturating_add(size(ROUND_MAX_CALLS)));
    let calls = sqlx::query(CALLS_OF_PAGE).bind(conversation.as_str()).bind(from).bind(to).fetch_all(&mut *conn).await;
    let mut calls: Vec<CallRow> = calls.map_err(map)?.iter().map(call).collect::<Result<_, _>>()?;
    if rows.iter().any(|(row, _)| row.copy_of.is_some()) {
        let copied = sqlx::query(CALLS_OF_COPIES).bind(conversation.as_str()).bind(from).bind(to).fetch_all(conn).await;
        let mut seen: std::collections::HashSet<_> = calls.iter().map(|call| call.new.call.clone()).collect();
        for one in copied.map_err(map)?.iter().map(call) {
            let one = one?;
            if seen.insert(one.new.call.clone()) {
                calls.push(one);
            }
        }
    }
    let mut by_row: std::collections::HashMap<&str, Vec<StoredCall>> = std::collections::HashMap::new();
    let mut by_id: std::collections::HashMap<&str, &CallRow> = std::collections::HashMap::new();
    for one in &calls {
        by_row.entry(one.assistant.as_str()).or_default().push(one.stored());
        by_id.insert(one.new.call.as_str(), one);
    }
    let join = |(mut row, answers): (StoredMessage, Option<CallId>)| {
        let first = row.copy_of.as_ref().unwrap_or(&row.id);
        row.calls = by_row.get(first.as_str()).cloned().unwrap_or_default();
        row.answers = answers.and_then(|call| by_id.get(call.as_str()).map(|call| call.stored()));
        row
    };
    Ok(rows.into_iter().map(join).collect())
}

/// The row as it was appended.
pub(crate) fn as_new(row: &StoredMessage) -> NewMessage {
    NewMessage {
        id: row.id.clone(),
        role: row.role,
        kind: row.kind,
        content: row.content.clone(),
        api_content: row.api_content.clone(),
        reasoning: row.reasoning.clone(),
        sidecar: row.sidecar.clone(),
        finish: row.finish.clone(),
        meta: row.meta.clone(),
    }
}
