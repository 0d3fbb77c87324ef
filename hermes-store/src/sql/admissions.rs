//! Inputs.

use async_trait::async_trait;

use super::driver::{Backend, Conn, WriteTx, kept, map, text_in};
use super::fenced::Place;
use super::journal::settle_open_calls;
use super::leases::END_TURN;
use super::read::{admission, admission_columns, col, id, signed, text_in_or_null, word_or_null};
use super::rows::{append, rows_of_turn};
use crate::admission::{
    AdmissionEvent, AdmissionOutcome, AdmissionRecord, AdmissionStatus, AdmitOutcome, NewAdmission, Receipt,
};
use crate::error::StoreError;
use crate::ids::{AdmissionId, ConversationId, Generation, SessionId, TurnId};
use crate::limits::QUEUE_MAX;
use crate::message::{MessageKind, Role, StoredMessage};
use crate::rules::{self, conflict, invalid, not_found};
use crate::session::{NewConversation, TitleSource};
use crate::traits::AdmissionStore;
use crate::turn::TurnEnd;

const CREATE: &str = "INSERT INTO conversations (id, profile, source, title, title_source, revision, token, generation, \
     seq, place, lease_expires_ms, lease_ttl_ms, freed_ms, message_count, created_ms, activity_ms) \
     SELECT $1, $2, $3, $4, $5, 0, \
     COALESCE((SELECT MAX(token) FROM tombstones WHERE id = $1 OR id = '*'), 0), \
     COALESCE((SELECT MAX(generation) FROM tombstones WHERE id = $1 OR id = '*'), 0), \
     COALESCE((SELECT MAX(seq) FROM tombstones WHERE id = $1 OR id = '*'), 0), \
     COALESCE((SELECT MAX(place) FROM tombstones WHERE id = $1 OR id = '*'), 0), \
     0, 0, $6, 0, $6, $6 WHERE 1 = 1 ON CONFLICT (id) DO NOTHING";

/// The same counters once more, when the row is there: on PostgreSQL the statement above may have waited for one that
/// deleted the conversation, and has not seen the tombstone of it (I08).
const RAISE: &str = "UPDATE conversations SET token = t.token, generation = t.generation, seq = t.seq, \
     place = t.place FROM (SELECT COALESCE(MAX(token), 0) AS token, COALESCE(MAX(generation), 0) AS generation, \
     COALESCE(MAX(seq), 0) AS seq, COALESCE(MAX(place), 0) AS place FROM tombstones WHERE id = $1 OR id = '*') AS t \
     WHERE id = $1 AND (conversations.token < t.token OR conversations.generation < t.generation \
     OR conversations.seq < t.seq OR conversations.place < t.place)";

/// Takes the row of the conversation, which puts those who admit in a line, and gives a place.
const TAKE_PLACE: &str = "UPDATE conversations SET revision = revision + 1, place = place + 1, activity_ms = $2, \
     ended_ms = NULL, end_reason = NULL, archived = CASE WHEN auto_archived = 1 THEN 0 ELSE archived END, \
     auto_archived = 0 WHERE id = $1 RETURNING place";

/// Inserts unless the queue is full or the one who submits is retired (S17). It looks in a statement of its own, behind the
/// one that waited for the row: a statement of PostgreSQL sees what was there when it began, and not what was admitted
/// while it waited.
///
/// It holds the row of the one who submits: a retirement waits for what is being admitted, and what comes behind it sees
/// it. When [`LeaseStore::retire`](crate::traits::LeaseStore::retire) returns, nothing of that owner can come any more.
const INSERT: &str = concat!(
    "INSERT INTO admissions (id, conversation_id, seq, principal, request_id, intent, payload, submitted_by, status, \
     created_ms) SELECT $1, $2, $3, $4, $5, $6, $7, $8, 'queued', $9 \
     WHERE (SELECT COUNT(*) FROM admissions WHERE conversation_id = $2 AND status <> 'terminal') < $10 \
     AND COALESCE((SELECT retired FROM owners WHERE id = $8",
    kept!(),
    "), 0) = 0 ON CONFLICT DO NOTHING"
);

/// The tip of a conversation that has this row.
const INPUT_ROW: &str = "SELECT c.tip FROM messages AS m JOIN conversations AS c ON c.id = m.conversation_id \
     WHERE m.id = $1 AND m.conversation_id = $2 AND m.state <> 'superseded' AND c.tip IS NOT NULL";

/// Whether an input was accepted before, or another one under its id.
const IS_KNOWN: &str = "SELECT id FROM admissions WHERE id = $1 \
     OR (conversation_id = $2 AND principal = $3 AND request_id = $4) LIMIT 1";

/// Whether an owner is retired.
const IS_RETIRED: &str = "SELECT id FROM owners WHERE id = $1 AND retired = 1";

const BY_KEY: &str = concat!(
    "SELECT ",
    admission_columns!(),
    " FROM admissions WHERE conversation_id = $1 AND principal = $2 AND request_id = $3"
);

const BY_ID: &str = concat!("SELECT ", admission_columns!(), " FROM admissions WHERE id = $1");

const SET_STATUS: &str = "UPDATE admissions SET status = $2, outcome = $3 WHERE id = $1";

const BUMP: &str = "UPDATE conversations SET revision = revision + 1 WHERE id = $1";

/// Reserves a place for the row that closes a turn which an operator decided.
const RESERVE: &str = "UPDATE conversations SET seq = seq + $2, message_count = message_count + $3 WHERE id = $1 \
     RETURNING seq";

pub(super) async fn by_id(conn: &mut Conn, id: &AdmissionId) -> Result<AdmissionRecord, StoreError> {
    let row = sqlx::query(BY_ID).bind(id.as_str()).fetch_optional(conn).await.map_err(map)?;
    admission(&row.ok_or_else(|| not_found("admission", id))?)
}

/// What was accepted under a key.
async fn by_key(
    conn: &mut Conn,
    conversation: &ConversationId,
    principal: &str,
    request_id: &str,
) -> Result<Option<AdmissionRecord>, StoreError> {
    let row = sqlx::query(BY_KEY)
        .bind(conversation.as_str())
        .bind(text_in(principal))
        .bind(text_in(request_id))
        .fetch_optional(conn)
        .await
        .map_err(map)?;
    row.as_ref().map(admission).transpose()
}

pub(super) async fn create(conn: &mut Conn, new: &NewConversation, now: i64) -> Result<(), StoreError> {
    let title = new.title.as_deref().and_then(rules::clean_title);
    let source = title.is_some().then_some(TitleSource::User.as_str());
    let created = sqlx::query(CREATE)
        .bind(new.id.as_str())
        .bind(text_in(&new.profile))
        .bind(text_in(&new.source))
        .bind(text_in_or_null(title.as_deref()))
        .bind(source)
        .bind(now)
        .execute(&mut *conn)
        .await
        .map_err(map)?;
    if created.rows_affected() == 1 {
        raise(conn, &new.id).await?;
    }
    Ok(())
}

/// Lets the counters of a conversation that was just created begin where those of a deleted one of its name ended.
pub(super) async fn raise(conn: &mut Conn, conversation: &ConversationId) -> Result<(), StoreError> {
    sqlx::query(RAISE).bind(conversation.as_str()).execute(conn).await.map_err(map)?;
    Ok(())
}

/// Gives an input its place and inserts it; `None` when its request or its id is known.
async fn enqueue(tx: &mut WriteTx, input: &NewAdmission, now: i64) -> Result<Option<Receipt>, StoreError> {
    let taken = sqlx::query(TAKE_PLACE).bind(input.conversation.as_str()).bind(now).fetch_optional(tx.conn()).await;
    let taken = taken.map_err(map)?.ok_or_else(|| not_found("conversation", &input.conversation))?;
    let place: i64 = col(&taken, 0)?;
    let inserted = sqlx::query(INSERT)
        .bind(input.id.as_str())
        .bind(input.conversation.as_str())
        .bind(place)
        .bind(text_in(&input.principal))
        .bind(text_in(&input.request_id))
        .bind(input.intent.as_str())
        .bind(text_in(&input.payload))
        .bind(input.submitted_by.as_str())
        .bind(now)
        .bind(QUEUE_MAX)
        .execute(tx.conn())
        .await
        .map_err(map)?;
    if inserted.rows_affected() == 0 {
        let known = sqlx::query(IS_KNOWN)
            .bind(input.id.as_str())
            .bind(input.conversation.as_str())
            .bind(text_in(&input.principal))
            .bind(text_in(&input.request_id));
        if known.fetch_optional(tx.conn()).await.map_err(map)?.is_some() {
            return Ok(None);
        }
        let retired = sqlx::query(IS_RETIRED).bind(input.submitted_by.as_str()).fetch_optional(tx.conn()).await;
        return match retired.map_err(map)? {
            Some(_) => Err(StoreError::Retired),
            None => Err(StoreError::Limit { what: "the queue of a conversation", limit: QUEUE_MAX.unsigned_abs() }),
        };
    }
    tx.announce(&input.conversation);
    Ok(Some(Receipt {
        admission: input.id.clone(),
        conversation: input.conversation.clone(),
        seq: place,
        status: AdmissionStatus::Queued,
        outcome: None,
        generation: None,
        turn: None,
    }))
}

async fn admit(mut tx: WriteTx, input: NewAdmission, now: i64) -> Result<AdmitOutcome, StoreError> {
    match enqueue(&mut tx, &input, now).await? {
        Some(receipt) => {
            tx.commit().await?;
            Ok(AdmitOutcome::Accepted(receipt))
        }
        None => known(tx, input).await,
    }
}

/// Accepts an input as a part of a larger change. The row of its conversation is taken already, or is new. A request
/// that was accepted before changes nothing.
pub(super) async fn admit_within(tx: &mut WriteTx, input: &NewAdmission, now: i64) -> Result<AdmitOutcome, StoreError> {
    if let Some(record) = by_key(tx.conn(), &input.conversation, &input.principal, &input.request_id).await? {
        return match record.intent == input.intent && record.payload == input.payload {
            true => Ok(AdmitOutcome::Replayed(record.receipt)),
            false => Err(conflict("request", &input.request_id)),
        };
    }
    let receipt = enqueue(tx, input, now).await?.ok_or_else(|| conflict("admission", &input.id))?;
    Ok(AdmitOutcome::Accepted(receipt))
}

/// The receipt of a request that was accepted before. Writes nothing.
async fn known(mut tx: WriteTx, input: NewAdmission) -> Result<AdmitOutcome, StoreError> {
    let known = by_key(tx.conn(), &input.conversation, &input.principal, &input.request_id).await?;
    let record = known.ok_or_else(|| conflict("admission", &input.id))?;
    tx.rollback().await?;
    if record.intent != input.intent || record.payload != input.payload {
        return Err(conflict("request", &input.request_id));
    }
    Ok(AdmitOutcome::Replayed(record.receipt))
}

/// Closes the transcript of a turn that an operator decided: each open call gets a result, and the last word is the
/// program's.
async fn close_transcript(
    conn: &mut Conn,
    receipt: &Receipt,
    turn: &TurnId,
    end: &TurnEnd,
    now: i64,
) -> Result<(), StoreError> {
    let closing = rules::resolved_row(&receipt.conversation, turn, end)?;
    let conversation = &receipt.conversation;
    let settled = settle_open_calls(conn, conversation, turn, now).await?;
    let rows = rows_of_turn(conn, conversation, turn).await?;
    let is_closed =
        |row: &StoredMessage| row.role == Role::Assistant && row.calls.is_empty() && row.kind != MessageKind::Hidden;
    let session = match rows.last() {
        Some(last) => Some(last.session.clone()).filter(|_| !is_closed(last)),
        None => open_input(conn, receipt).await?,
    };
    let added = i64::from(session.is_some());
    let row = sqlx::query(RESERVE)
        .bind(conversation.as_str())
        .bind(added)
        .bind(settled + added)
        .fetch_one(&mut *conn)
        .await
        .map_err(map)?;
    if let Some(session) = session {
        let place = Place { conversation, session: &session, turn, seq: col(&row, 0)?, now };
        append(conn, place, &[closing]).await?;
    }
    Ok(())
}

/// The session in which the row of an input is the last one: it was put back into its place and begun again, and its row
/// is the earlier turn's.
async fn open_input(conn: &mut Conn, receipt: &Receipt) -> Result<Option<SessionId>, StoreError> {
    let (row, conversation) = (receipt.admission.input_row(), &receipt.conversation);
    let found = sqlx::query(INPUT_ROW).bind(row.as_str()).bind(conversation.as_str()).fetch_optional(conn).await;
    Ok(found.map_err(map)?.map(|row| word_or_null(&row, 0, id(SessionId::parse))).transpose()?.flatten())
}

/// An input whose conversation's row is taken: what it says now holds until the end of this change. Without the row a
/// claim could start the input between the look at it and the decision.
async fn taken(conn: &mut Conn, id: &AdmissionId) -> Result<AdmissionRecord, StoreError> {
    let found = by_id(conn, id).await?;
    sqlx::query(BUMP).bind(found.receipt.conversation.as_str()).execute(&mut *conn).await.map_err(map)?;
    by_id(conn, id).await
}

/// Writes the status that somebody outside the queue decided, and wakes those who wait.
async fn decide(mut tx: WriteTx, receipt: Receipt) -> Result<Receipt, StoreError> {
    sqlx::query(SET_STATUS)
        .bind(receipt.admission.as_str())
        .bind(receipt.status.as_str())
        .bind(receipt.outcome.map(|outcome| outcome.as_str()))
        .execute(tx.conn())
        .await
        .map_err(map)?;
    tx.announce(&receipt.conversation);
    tx.commit().await?;
    Ok(receipt)
}

#[async_trait]
impl AdmissionStore for Backend {
    async fn admit(&self, input: NewAdmission) -> Result<AdmitOutcome, StoreError> {
        rules::check_admission(&input)?;
        let tx = self.write().await?;
        let now = tx.now();
        admit(tx, input, now).await
    }

    async fn create_and_admit(
        &self,
        conversation: NewConversation,
        input: NewAdmission,
    ) -> Result<AdmitOutcome, StoreError> {
        if conversation.id != input.conversation {
            return Err(invalid("the input belongs to another conversation than the one to be created"));
        }
        rules::check_admission(&input)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        create(tx.conn(), &conversation, now).await?;
        admit(tx, input, now).await
    }

    async fn admission(&self, id: &AdmissionId) -> Result<AdmissionRecord, StoreError> {
        let mut conn = self.readers().acquire().await.map_err(map)?;
        by_id(&mut conn, id).await
    }

    async fn admission_of(
        &self,
        conversation: &ConversationId,
        principal: &str,
        request_id: &str,
    ) -> Result<Option<AdmissionRecord>, StoreError> {
        let mut conn = self.readers().acquire().await.map_err(map)?;
        by_key(&mut conn, conversation, principal, request_id).await
    }

    async fn cancel(&self, id: &AdmissionId) -> Result<Receipt, StoreError> {
        let mut tx = self.write().await?;
        let mut receipt = taken(tx.conn(), id).await?.receipt;
        receipt.status = receipt.status.next(AdmissionEvent::Cancel)?;
        receipt.outcome = Some(AdmissionOutcome::Cancelled);
        decide(tx, receipt).await
    }

    async fn resolve_unknown(
        &self,
        id: &AdmissionId,
        generation: Generation,
        end: TurnEnd,
    ) -> Result<Receipt, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let mut receipt = taken(tx.conn(), id).await?.receipt;
        receipt.status = receipt.status.next(AdmissionEvent::Resolve)?;
        receipt.outcome = Some(end.outcome);
        let turn = match (&receipt.turn, receipt.generation) {
            (Some(turn), Some(known)) if known == generation => turn.clone(),
            _ => return Err(invalid(format!("generation {} is not the one that is unknown", generation.0))),
        };
        close_transcript(tx.conn(), &receipt, &turn, &end, now).await?;
        sqlx::query(END_TURN)
            .bind(turn.as_str())
            .bind(text_in(&end.reason))
            .bind(text_in_or_null(end.detail.as_deref()))
            .bind(signed(end.api_calls))
            .bind(now)
            .execute(tx.conn())
            .await
            .map_err(map)?;
        super::delivery::owe_answer(tx.conn(), &receipt.conversation, &turn, &end, now).await?;
        decide(tx, receipt).await
    }
}
