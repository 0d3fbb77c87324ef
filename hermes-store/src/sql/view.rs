//! Views as the rules look at them: which rows, in which order, with which calls. No text is read.

use std::collections::{HashMap, HashSet};

use super::driver::{Conn, Row, map};
use super::read::{col, count, id, role, word, word_or_null};
use crate::error::StoreError;
use crate::history::ViewItem;
use crate::ids::{CallId, ConversationId, MessageId, SessionId, TurnId};
use crate::message::{MessageKind, Role};
use crate::round::JournalState;

macro_rules! item_columns {
    () => {
        "id, seq, role, kind, copy_of, turn_id, call_id, \
         CAST(COALESCE(octet_length(api_content), octet_length(content)) AS BIGINT) \
         + CAST(COALESCE(octet_length(reasoning), 0) AS BIGINT) + CAST(COALESCE(octet_length(sidecar), 0) AS BIGINT)"
    };
}

const FIRST_SEQ: &str = "SELECT first_seq FROM sessions WHERE id = $1";
const MODEL: &str = concat!(
    "SELECT ",
    item_columns!(),
    " FROM messages WHERE conversation_id = $1 AND seq > $3 AND session_id = $2 AND state = 'active' ORDER BY seq"
);
const DISPLAY: &str = concat!(
    "SELECT ",
    item_columns!(),
    " FROM messages WHERE conversation_id = $1 AND state <> 'superseded' AND kind <> 'hidden' AND copy_of IS NULL \
     ORDER BY seq"
);
const CALLS: &str = "SELECT id, assistant_id, state, CAST(octet_length(arguments) AS BIGINT) FROM calls \
     WHERE conversation_id = $1 AND result_seq > $2 ORDER BY result_seq";
/// Calls of copied rounds, by their results.
const CALLS_OF_COPIES: &str = "SELECT c.id, c.assistant_id, c.state, CAST(octet_length(c.arguments) AS BIGINT) \
     FROM messages m JOIN calls c ON c.id = m.call_id WHERE m.conversation_id = $1 AND m.seq > $3 \
     AND m.session_id = $2 AND m.state = 'active' AND m.copy_of IS NOT NULL ORDER BY m.seq";

/// Calls by the first row of their round.
#[derive(Default)]
struct Calls {
    by_row: HashMap<String, Vec<(CallId, JournalState, u64)>>,
    seen: HashSet<CallId>,
}

impl Calls {
    fn add(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        for row in rows {
            let call: CallId = word(row, 0, id(CallId::parse))?;
            if self.seen.insert(call.clone()) {
                let one = (call, word(row, 2, JournalState::parse)?, count(row, 3)?);
                self.by_row.entry(col(row, 1)?).or_default().push(one);
            }
        }
        Ok(())
    }

    fn join(&self, mut item: ViewItem) -> ViewItem {
        if item.role == Role::Assistant
            && let Some(calls) = self.by_row.get(item.root().as_str())
        {
            item.bytes += calls.iter().map(|(_, _, bytes)| bytes).sum::<u64>();
            item.calls = calls.iter().map(|(call, state, _)| (call.clone(), *state)).collect();
        }
        item
    }
}

fn item(row: &Row) -> Result<ViewItem, StoreError> {
    Ok(ViewItem {
        id: word(row, 0, id(MessageId::parse))?,
        seq: col(row, 1)?,
        role: word(row, 2, role)?,
        kind: word(row, 3, MessageKind::parse)?,
        copy_of: word_or_null(row, 4, id(MessageId::parse))?,
        turn: word(row, 5, id(TurnId::parse))?,
        calls: Vec::new(),
        answers: word_or_null(row, 6, id(CallId::parse))?,
        bytes: count(row, 7)?,
    })
}

/// What a model sees of a session.
pub(super) async fn of_model(
    conn: &mut Conn,
    conversation: &ConversationId,
    session: &SessionId,
) -> Result<Vec<ViewItem>, StoreError> {
    let first: i64 = sqlx::query_scalar(FIRST_SEQ).bind(session.as_str()).fetch_one(&mut *conn).await.map_err(map)?;
    let (conversation, session) = (conversation.as_str(), session.as_str());
    let rows = sqlx::query(MODEL).bind(conversation).bind(session).bind(first).fetch_all(&mut *conn).await;
    let items: Vec<_> = rows.map_err(map)?.iter().map(item).collect::<Result<_, _>>()?;
    let mut calls = Calls::default();
    let own = sqlx::query(CALLS).bind(conversation).bind(first).fetch_all(&mut *conn).await;
    calls.add(&own.map_err(map)?)?;
    if items.iter().any(|item| item.copy_of.is_some()) {
        let copied = sqlx::query(CALLS_OF_COPIES).bind(conversation).bind(session).bind(first);
        calls.add(&copied.fetch_all(&mut *conn).await.map_err(map)?)?;
    }
    Ok(items.into_iter().map(|item| calls.join(item)).collect())
}

/// What people see of a conversation.
pub(super) async fn of_display(conn: &mut Conn, conversation: &ConversationId) -> Result<Vec<ViewItem>, StoreError> {
    let rows = sqlx::query(DISPLAY).bind(conversation.as_str()).fetch_all(&mut *conn).await.map_err(map)?;
    let items: Vec<_> = rows.iter().map(item).collect::<Result<_, _>>()?;
    let mut calls = Calls::default();
    let all = sqlx::query(CALLS).bind(conversation.as_str()).bind(0_i64).fetch_all(conn).await;
    calls.add(&all.map_err(map)?)?;
    Ok(items.into_iter().map(|item| calls.join(item)).collect())
}
